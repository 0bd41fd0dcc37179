"""Healthy brokers whose clocks differ: nothing fails, and a marker may have an earlier time than its decision."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from tests.broker.cluster import Cluster, Driver, Made, segment_bytes

OFF, AHEAD_MS = 2, 40_000


def clocks_apart(version: str, scratch: Path, target: Path, ms: int = 9_000) -> Made:
    """Three brokers, the clock of one 40 s ahead. Transactions of version 2, and of version 1 by clients of before 4.0,
    commit and abort on partitions of all three, by coordinators on all three."""
    with Cluster(version, scratch, 3, ahead={OFF: AHEAD_MS}) as cluster, contextlib.ExitStack() as stack:
        time.sleep(8)  # until a controller leads
        newer, older = (stack.enter_context(Driver(cluster, clients)) for clients in (version, "3.9.1"))
        newer(f"topic trio.log 3 3 {segment_bytes(version, 32768)}")
        newer("topic trio.out 3 3")
        for k in range(4):  # enough ids that each of the three coordinators has some
            newer(f"load new-{k} trio.log {ms} parts=3 n=2 size=8 abort=9 pause={120 + 30 * k}")
            older(f"load old-{k} trio.log {ms} parts=3 n=2 size=8 abort=9 pause={130 + 30 * k}")
        newer(f"copy group trio.log trio.out {ms}")
        for run in (newer, older):
            run("wait")
        time.sleep(2)
        cluster.stop()
        at = cluster.copy(target)
    return Made(at, [{"finding": "clock_skew", "severity": "warning"}], {"off": OFF, "ahead_ms": AHEAD_MS})
