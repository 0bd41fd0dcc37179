"""Three healthy brokers of which one's clock is off."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.broker.cluster import Cluster, Driver, Made, segment_bytes
from tests.broker.jars import BUILD, HERE, compiled

AHEAD = {2: 40_000}  # ms, by broker


class Clocks(Cluster):
    """Brokers whose clocks are ahead by :data:`AHEAD`."""

    def start(self, broker: int = 1) -> None:
        """Start a broker, with its clock."""
        before = self.jars
        self.jars = compiled(HERE / "SystemTime.java", BUILD / self.version, before)
        os.environ["CLOCK_AHEAD_MS"] = str(AHEAD.get(broker, 0))
        try:
            super().start(broker)
        finally:
            self.jars = before
            del os.environ["CLOCK_AHEAD_MS"]


def clock_apart(version: str, scratch: Path, target: Path, transaction_version: int) -> Made:
    """Transactions over all brokers, committed and aborted, a group within them, and leaders that change."""
    words = ("--feature", f"transaction.version={transaction_version}")
    with Clocks(version, scratch, 3, format_words=words) as cluster:
        time.sleep(8)  # until a controller leads
        with Driver(cluster) as run:
            run(f"topic trio.log 3 3 {segment_bytes(version, 32768)}")
            run("topic lone.log 3 1")
            for name in ("t0", "t1", "t2"):
                run(f"load {name} trio.log 12000 parts=3 n=2 size=8 pause=60")
            run("load alone lone.log 12000 parts=3 n=2 size=8 pause=90")
            run("copy group trio.log trio.log 12000")
            time.sleep(4)
            cluster.restart(3)
            run("wait")
            time.sleep(3)  # until what the last transactions wrote is everywhere
        cluster.stop()
        at = cluster.copy(target)
    return Made(at, [])
