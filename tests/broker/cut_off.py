"""A KRaft voter that leads and is cut off: what it appends from then on nobody commits, and it stays in its log."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

from tests.broker.cluster import Cluster, Driver, Made, segment_bytes
from tests.broker.raw_requests import Wire

PARTITIONS = 150  # of the topic that nobody commits: its tail makes the log the longest of all
QUORUM = {
    "broker.session.timeout.ms": "9000", "controller.quorum.fetch.timeout.ms": "12000",
    "controller.quorum.request.timeout.ms": "12000",
}  # fmt: skip


def active_controller(cluster: Cluster, brokers: range = range(1, 4)) -> tuple[int, int]:
    """Who leads the quorum, and in which epoch, by the votes that the voters keep."""
    said = [json.loads((cluster.log_dir(b) / "__cluster_metadata-0" / "quorum-state").read_text()) for b in brokers]
    newest = max(said, key=lambda s: int(s["leaderEpoch"]))
    return int(newest["leaderId"]), int(newest["leaderEpoch"])


def voter_cut_off(version: str, scratch: Path, target: Path) -> Made:
    """Three voters that are brokers too. The other two hang while the active controller takes a topic that it cannot
    commit, and is killed; they elect one of them and go on: topics, transactions, a topic removed, a clean shutdown."""
    with Cluster(version, scratch, 3, **QUORUM) as cluster:
        time.sleep(8)  # until a controller leads
        with Driver(cluster) as run:
            run(f"topic trio.log 3 3 {segment_bytes(version, 32768)}")
            run("topic trio.gone 1 3")
            run("load t0 trio.log 3000 parts=3 n=2 size=8 pause=60")
            run("wait")
            time.sleep(2)
            leader, epoch = active_controller(cluster)
            others = [b for b in (1, 2, 3) if b != leader]
            with Wire(cluster.controllers[leader - 1]) as wire:
                for broker in others:
                    cluster.signal(signal.SIGSTOP, broker)
                time.sleep(2)
                wire.create("trio.never", PARTITIONS, 3)
                time.sleep(2)
                cluster.kill(leader)
            for broker in others:
                cluster.signal(signal.SIGCONT, broker)
        until = time.monotonic() + 120
        while (now := active_controller(cluster))[1] <= epoch or now[0] not in others:
            if time.monotonic() > until:
                raise RuntimeError("nobody leads")
            time.sleep(0.5)
        time.sleep(10)  # until the dead one is fenced
        with Driver(cluster) as run:
            run("topic trio.new 1 2")
            run("load t1 trio.log 3000 parts=3 n=2 size=8 pause=60")
            run("wait")
            run("delete-topic trio.gone")
            time.sleep(2)
        cluster.stop()
        at = cluster.copy(target)
    return Made(at, [], {"cut_off": leader, "epoch": epoch})
