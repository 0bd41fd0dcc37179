"""Small histories of real brokers, frozen below ``tests/data/campaigns`` in the corpora's shape.

``python -m tests.broker.campaigns NAME SCRATCH`` makes one again: ``manifest.json`` and ``data.tar.gz``. Index files
are cut to what they hold, as a clean shutdown would, so that an archive stays small.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.broker.clocks_apart import clocks_apart
from tests.broker.cluster import Cluster, Driver, Made, segment_bytes
from tests.broker.cut_off import voter_cut_off
from tests.broker.follower_stops import failed_appends, failed_then_loaded
from tests.broker.jars import numbers
from tests.broker.left_open import IDLE, NAP, UNVERIFIED, first_transaction, late_writes
from tests.broker.moved_work import fetched_anew, pooled, upgraded
from tests.broker.newer_kafka import connect, many, moved, regrouped, streams, tiered_moved
from tests.broker.raw_requests import Wire

ROOT = Path(__file__).parents[1] / "data" / "campaigns"


def live(version: str, scratch: Path, target: Path) -> Made:
    """A healthy broker copied while it works: short transactions, a topic being cleaned, offsets in transactions."""
    with Cluster(version, scratch, log_cleaner_backoff_ms="200") as cluster, Driver(cluster) as run:
        run(f"topic shop.orders 3 1 {segment_bytes(version, 8192)}")
        cleaned = "cleanup.policy=compact min.cleanable.dirty.ratio=0.01"
        run(f"topic shop.kv 2 1 {segment_bytes(version, 4096)} {cleaned}")
        run("topic shop.out 1 1")
        run("load t1 shop.orders 7000 parts=3 n=1 size=8 pause=20")
        run("load t2 shop.orders 7000 parts=3 n=1 size=8 pause=35 abort=6")
        run("load kv1 shop.kv 7000 parts=2 n=2 size=8 keys=9 pause=25 abort=6")
        run("load kv2 shop.kv 7000 parts=2 n=2 size=8 keys=5 pause=45 abort=7")
        run("copy group shop.orders shop.out 7000")
        run("producer open transactional.id=open")
        run("init open")
        run("begin open")
        run("send open shop.orders 0 3 size=8")
        time.sleep(3)
        at = cluster.copy(target)
        run("wait")
    return Made(at, [])


OFTEN = {  # what else happens once in minutes or hours
    "log_cleaner_backoff_ms": "200", "log_retention_check_interval_ms": "700",
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": "1000",
    "log_flush_offset_checkpoint_interval_ms": "900", "log_flush_start_offset_checkpoint_interval_ms": "800",
    "replica_high_watermark_checkpoint_interval_ms": "500",
}  # fmt: skip


def lively(version: str, scratch: Path, target: Path, moment: str = "live") -> Made:
    """A healthy broker under all that topics, producers and groups may ask of it, copied slowly while it works, or
    after ``kill -9`` (``killed``), when it has come back from that (``recovered``), or shut down (``stopped``)."""
    at = -1
    with Cluster(version, scratch, 1, **OFTEN) as cluster:
        time.sleep(2)
        with Driver(cluster, version if numbers(version) >= (2, 5) else "2.8.2") as run:
            ask_for_everything(run, version)
            time.sleep(4)
            change_topics(run)
            if moment == "live":
                at = cluster.copy(target, pause=0.12)
            if moment in ("killed", "recovered"):
                cluster.kill()
                at = cluster.copy(target)
                time.sleep(4)  # until ZooKeeper has forgotten it
                cluster.start()
                cluster.await_port()
            run("wait")
        if moment == "recovered":
            shutil.rmtree(target)
            at = cluster.copy(target, pause=0.12)
        if moment == "stopped":
            cluster.stop()
            at = cluster.copy(target)
    return Made(at, [])


def ask_for_everything(run: Driver, version: str, ms: int = 9000) -> None:
    """Starts producers and groups of every kind on topics that are cleaned, cut, stamped and compressed."""
    small, smaller = segment_bytes(version, 8192), segment_bytes(version, 4096)
    cleaned = f"min.cleanable.dirty.ratio=0.01 delete.retention.ms=500 {smaller}"
    run(f"topic shop.both 1 1 cleanup.policy=compact,delete retention.bytes=20000 {cleaned}")
    run(f"topic shop.kv 2 1 cleanup.policy=compact {cleaned}")
    run(f"topic shop.orders 2 1 {small}")
    run("topic shop.out 1 1")
    run(f"topic shop.short 1 1 retention.bytes=12000 file.delete.delay.ms=1000 {smaller}")
    run(f"topic shop.stamped 1 1 message.timestamp.type=LogAppendTime {small}")
    run("topic shop.anew 1 1")
    run(f"load both1 shop.both {ms} n=3 size=10 keys=50 pause=40 dead=4")
    run(f"load - shop.both {ms} n=3 size=10 keys=50 pause=60 dead=4")
    run(f"load kv1 shop.kv {ms} parts=2 n=2 size=8 keys=9 pause=30 abort=6 dead=2")
    run(f"load kv2 shop.kv {ms} parts=2 n=2 size=8 keys=5 pause=55 abort=7")
    run(f"load - shop.kv {ms} parts=2 n=3 size=8 keys=5 pause=70 dead=3")
    run(f"load t1 shop.orders {ms} parts=2 n=2 size=8 pause=40 compression.type=gzip")
    run(f"load t2 shop.orders {ms} parts=2 n=1 size=8 pause=70 restart=30")
    run(f"load - shop.orders {ms} parts=2 n=3 size=8 pause=60 restart=9 compression.type=lz4")
    run(f"load - shop.orders {ms} parts=2 n=1 size=8 pause=90 enable.idempotence=false")
    run(f"load s1 shop.short {ms} n=2 size=30 pause=40 compression.type=snappy")
    run(f"load - shop.short {ms} n=2 size=30 pause=60")
    run(f"load st1 shop.stamped {ms} n=2 size=8 pause=60")
    newest = "zstd" if numbers(version) >= (2, 1) else "lz4"
    run(f"load - shop.stamped {ms} n=2 size=8 pause=80 compression.type={newest}")
    run("load g1 shop.anew 2500 n=2 size=8 pause=40")
    run(f"copy group shop.orders shop.out {ms}" + ("" if numbers(version) >= (2, 5) else " unnamed=1"))
    run(f"consume reader shop.orders {ms}")
    run(f"consume reader shop.orders {ms // 2}")
    if numbers(version) >= (4, 0):
        run(f"consume modern shop.orders {ms} group.protocol=consumer")
        run(f"consume modern shop.orders {ms // 2} group.protocol=consumer")
    for name, timeout in (("left", 2500), ("open", 60_000)):  # the coordinator ends the first one
        run(f"producer {name} transactional.id={name} transaction.timeout.ms={timeout}")
        run(f"init {name}")
        run(f"begin {name}")
        run(f"send {name} shop.orders 0 3 size=8")


def change_topics(run: Driver) -> None:
    """A topic deleted and recreated, partitions added, records deleted."""
    run("delete-topic shop.anew")
    run("partitions shop.orders 3")
    run("delete-records shop.orders 1 40")
    run("delete-records shop.stamped 0 50")
    time.sleep(1.5)
    run("topic shop.anew 1 1")
    run("load g1 shop.anew 2000 n=2 size=8 pause=40")


def old_stamps(version: str, scratch: Path, target: Path, **settings: str) -> Made:
    """Transactions of records with old stamps: the stamps say nothing of when their partition had to be added."""
    with Cluster(version, scratch, 1, **settings) as cluster, Driver(cluster) as run, Wire(cluster.ports[0]) as wire:
        run("topic bank.ledger 2 1")
        first_transaction(run, "bank.ledger")
        for k in range(4):
            name = f"bank-{k}"
            producer = wire.init(name)
            assert wire.add(name, producer, "bank.ledger", k % 2) == 0
            assert wire.produce("bank.ledger", k % 2, producer, 0, 5, transactional_id=name)[0] == 0
            assert wire.end(name, producer, commit=k < 2) == 0
            time.sleep(NAP)
        cluster.stop()
        at = cluster.copy(target)
    return Made(at, [])


def failover(version: str, scratch: Path, target: Path) -> Made:
    """Three healthy brokers; one dies in the middle of transactions and comes back, another one hangs for a while."""
    with Cluster(version, scratch, brokers=3, replica_lag_time_max_ms="3000") as cluster:
        time.sleep(6)  # until a controller leads
        with Driver(cluster) as run:
            run(f"topic trio.log 3 3 {segment_bytes(version, 32768)}")
            for name in ("t0", "t1", "t2"):
                run(f"load {name} trio.log 24000 parts=3 n=2 size=8 pause=60")
            run("copy group trio.log trio.log 24000")
            time.sleep(4)
            cluster.kill(1)
            time.sleep(4)
            cluster.start(1)
            cluster.await_port(1)
            time.sleep(3)
            cluster.signal(signal.SIGSTOP, 3)
            time.sleep(4)
            cluster.signal(signal.SIGCONT, 3)
            run("wait")
        cluster.stop()
        at = cluster.copy(target)
    return Made(at, [])


def in_turn(version: str, scratch: Path, target: Path) -> Made:
    """Three brokers, killed one after the other, each in the middle of a transaction with a partition of its own alone.

    Up to 4.2 the coordinator waits with the end of such a transaction for that partition; 4.3 takes it for deleted
    (KAFKA-20734), and it hangs. Which ones hang is what the leaders say, once all is quiet.
    """
    often = {"broker_session_timeout_ms": "3000", "replica_lag_time_max_ms": "3000"}
    hanging: list[dict[str, Any]] = []
    with Cluster(version, scratch, 3, **often) as cluster:
        time.sleep(6)  # until a controller leads
        with Driver(cluster) as run:
            run(f"topic trio.log 3 3 {segment_bytes(version, 32768)}")
            run("topic lone.log 3 1")
            for name in ("t0", "t1"):
                run(f"load {name} trio.log 20000 parts=3 n=2 size=8 pause=150")
            run("copy group trio.log trio.log 20000")
            sent = [_killed_between(run, cluster, k, "abort" if k == 1 else "commit") for k in range(3)]
            run("wait")
            time.sleep(8)  # until every marker that will come has come
            for k, (first, last) in enumerate(sent):
                for held in run(f"open lone.log {k}").split():
                    producer_id, start = map(int, held.split(":"))
                    assert start == first
                    hanging.append(
                        {"finding": "hanging_transaction", "topic": "lone.log", "partition": k,
                         "transactionalId": f"one-{k}", "producerId": producer_id, "firstOffset": first,
                         "lastOffset": last}
                    )  # fmt: skip
        cluster.stop()
        at = cluster.copy(target)
    return Made(at, hanging)


def _killed_between(run: Driver, cluster: Cluster, k: int, end: str) -> tuple[int, int]:
    """A transaction on partition ``k``, whose only broker is down as it ends; its first and last offset there."""
    name = f"one-{k}"
    run(f"producer {name} transactional.id={name}")
    run(f"init {name}")
    run(f"begin {name}")
    first, last = map(int, run(f"send {name} lone.log {k} 3 size=8").split())
    run(f"send {name} trio.log {k} 2 size=8")
    broker = int(run(f"leader lone.log {k}"))
    cluster.kill(broker)
    time.sleep(6)  # until it is fenced
    run(f"{end} {name}")
    cluster.start(broker)
    cluster.await_port(broker)
    time.sleep(4)
    return first, last


CAMPAIGNS: dict[str, tuple[str, str, Callable[[Path, Path], Made]]] = {
    **IDLE,
    "live-28": ("2.8.2", "A healthy 2.8.2 broker, copied while it works", lambda s, t: live("2.8.2", s, t)),
    "live-36": ("3.6.2", "A healthy 3.6.2 broker, copied while it works", lambda s, t: live("3.6.2", s, t)),
    "live-41": ("4.1.0", "A healthy 4.1.0 broker, copied while it works", lambda s, t: live("4.1.0", s, t)),
    "hanging-killed-28": (
        "2.8.2", "Hanging transactions on 2.8.2, ended by kill -9", lambda s, t: late_writes("2.8.2", s, t),
    ),
    "hanging-killed-36": (
        "3.6.2", "Hanging transactions on 3.6.2, ended by kill -9",
        lambda s, t: late_writes("3.6.2", s, t, **UNVERIFIED),
    ),
    "hanging-killed-25": (
        "2.5.1", "Hanging transactions on 2.5.1, ended by kill -9", lambda s, t: late_writes("2.5.1", s, t),
    ),
    "hanging-killed-39": (
        "3.9.1", "Hanging transactions on 3.9.1, ended by kill -9",
        lambda s, t: late_writes("3.9.1", s, t, **UNVERIFIED),
    ),
    "hanging-killed-40": (
        "4.0.0", "Hanging transactions on 4.0.0 of clients as before 4.0, ended by kill -9",
        lambda s, t: late_writes("4.0.0", s, t, **UNVERIFIED),
    ),
    "failover-36": (
        "3.6.2", "Three 3.6.2 brokers, one killed and one stopped for a while", lambda s, t: failover("3.6.2", s, t),
    ),
    "lively-11": ("1.1.1", "A busy 1.1.1 broker, copied slowly", lambda s, t: lively("1.1.1", s, t)),
    "lively-25": ("2.5.1", "A busy 2.5.1 broker, copied slowly", lambda s, t: lively("2.5.1", s, t)),
    "lively-30": ("3.0.2", "A busy 3.0.2 broker, copied slowly", lambda s, t: lively("3.0.2", s, t)),
    "lively-33": ("3.3.2", "A busy 3.3.2 broker, killed in its work", lambda s, t: lively("3.3.2", s, t, "killed")),
    "lively-39": ("3.9.1", "A busy 3.9.1 broker, copied slowly", lambda s, t: lively("3.9.1", s, t)),
    "lively-40": ("4.0.0", "A busy 4.0.0 broker, copied slowly", lambda s, t: lively("4.0.0", s, t)),
    "failed-appends-loaded-43": (
        "4.3.1", "A coordinator's appends that timed out, loaded by the next coordinator after a kill -9",
        lambda s, t: failed_then_loaded("4.3.1", s, t),
    ),
    "failed-appends-v1-43": (
        "4.3.1", "A coordinator's appends that time out after they were written, transaction.version 1",
        lambda s, t: failed_appends("4.3.1", s, t, 1),
    ),
    "failed-appends-v2-43": (
        "4.3.1", "A coordinator's appends that time out after they were written, transaction.version 2",
        lambda s, t: failed_appends("4.3.1", s, t, 2),
    ),
    "in-turn-42": ("4.2.1", "Three 4.2.1 brokers, killed in turn", lambda s, t: in_turn("4.2.1", s, t)),
    "in-turn-43": (
        "4.3.1", "Three 4.3.1 brokers, killed in turn: markers skipped", lambda s, t: in_turn("4.3.1", s, t),
    ),
    "clocks-apart-43": (
        "4.3.1", "Three healthy 4.3.1 brokers, the clock of one 40 s ahead", lambda s, t: clocks_apart("4.3.1", s, t),
    ),
    "connect-43": (
        "4.3.1", "Connect's exactly-once source, its worker killed twice", lambda s, t: connect("4.3.1", s, t),
    ),
    "fetched-anew-43": (
        "4.3.1", "Replicas of compacted topics that were fetched anew", lambda s, t: fetched_anew("4.3.1", s, t),
    ),
    "many-43": ("4.3.1", "1 307 partitions on one broker", lambda s, t: many("4.3.1", s, t)),
    "moved-43": (
        "4.3.1", "Replicas moved between disks and brokers, and a rolling restart", lambda s, t: moved("4.3.1", s, t),
    ),
    "pooled-28": ("2.8.2", "A group whose member has a pool of producers", lambda s, t: pooled("2.8.2", s, t)),
    "pooled-43": ("4.3.1", "Groups whose members have pools of producers", lambda s, t: pooled("4.3.1", s, t)),
    "pooled-zombie-43": (
        "4.3.1", "A member with a pool of producers that commits what it has lost",
        lambda s, t: pooled("4.3.1", s, t, zombie=True),
    ),
    "regrouped-43": (
        "4.3.1", "Groups that turn, end, are deleted, or lose what they read", lambda s, t: regrouped("4.3.1", s, t),
    ),
    "streams-43": (
        "4.3.1", "Streams exactly once by both protocols, killed and restarted", lambda s, t: streams("4.3.1", s, t),
    ),
    "tiered-moved-43": (
        "4.3.1", "Tiered topics moved between brokers", lambda s, t: tiered_moved("4.3.1", s, t),
    ),
    "upgraded-39": (
        "3.9.1", "Streams brought from exactly_once to exactly_once_v2", lambda s, t: upgraded("3.9.1", s, t),
    ),
    "lively-42": ("4.2.1", "A busy 4.2.1 broker, killed in its work", lambda s, t: lively("4.2.1", s, t, "killed")),
    "lively-43": ("4.3.1", "A busy 4.3.1 broker, copied slowly", lambda s, t: lively("4.3.1", s, t)),
    "cut-off-43": (
        "4.3.1", "A voter that led is cut off, appends what nobody commits, and is killed; the others go on",
        lambda s, t: voter_cut_off("4.3.1", s, t),
    ),
    "old-stamps-36": (
        "3.6.2", "Transactions of records stamped two hours back", lambda s, t: old_stamps("3.6.2", s, t),
    ),
}  # fmt: skip


def freeze(name: str, scratch: Path) -> Path:
    """Make a campaign and pack it below :data:`ROOT`; its folder."""
    version, title, make = CAMPAIGNS[name]
    shutil.rmtree(scratch, ignore_errors=True)
    copy, folder = scratch / "copy", ROOT / name
    made = make(scratch / "cluster", copy)
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {
        "corpus": name, "title": title, "kafka": {"version": version}, "copied_at": made.at, "expect": made.expect,
        "command": f"python -m tests.broker.campaigns {name} SCRATCH", **made.more,
    }  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    with tarfile.open(folder / "data.tar.gz", "w:gz") as tar:
        for path in sorted(copy.rglob("*")):
            if path.suffix in (".index", ".timeindex"):
                trim(path)
            if path.is_file():
                tar.add(path, path.relative_to(copy))
    return folder


def trim(path: Path) -> None:
    """Cut the zero tail of a preallocated index, to whole entries."""
    entry = 8 if path.suffix == ".index" else 12
    data = path.read_bytes()
    used = len(data.rstrip(b"\0"))
    path.write_bytes(data[: -(-used // entry) * entry])


if __name__ == "__main__":
    freeze(sys.argv[1], Path(sys.argv[2]))
