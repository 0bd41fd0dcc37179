"""A small fleet: three brokers that work, a copy of each into a store every so often, an audit of all behind each.

``python -m tests.cluster.fleet ROUNDS SECONDS FOLDER`` runs it and prints what each round came to.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from auditor.model.transaction_states import partition_for
from tests import corpora
from tests.broker.cluster import Cluster, Driver, segment_bytes
from tests.broker.raw_requests import Wire
from tests.conftest import ROOT
from tests.failing_store import FailingStore, failing
from tests.store import clean_environment

VERSION, BROKERS, PARTITIONS = "4.3.1", 3, 6
TOPIC, COPIES, RUNS = "shop.orders", "s3://copies/berlin", "s3://runs/history"
HOURS_MS = 4 * 3_600_000  # until somebody stops them
SEGMENT = 4_000_000  # bytes
TAKEN = re.compile(r"of ([0-9,]+) bytes taken")
LATE = "late-writer"
MARKER_S = 1.0  # until the marker of a transaction that ended is surely there


class Took(NamedTuple):
    """What a command came to: status, seconds, seconds of processor time, MiB, bytes that it read of files, words."""

    status: int
    seconds: float
    cpu: float
    memory: float
    read: int
    said: str


@dataclass
class Round:
    """``written``: bytes that all brokers' logs grew by since the round before; ``sent`` and ``fetched``: between the
    copies and the store; ``audited``: what the audit fetched; ``hung``: whether the transaction hung before it began.
    """

    number: int
    written: int
    copies: list[Took]
    sent: int
    fetched: int
    requests: int
    audit: Took
    audited: int
    findings: list[dict[str, Any]]
    summary: dict[str, Any]
    hung: bool

    def above_info(self) -> list[dict[str, Any]]:
        """What would wake somebody."""
        return [row for row in self.findings if row["severity"] != "info"]

    def row(self) -> str:
        """A line of a table."""
        read, memory = sum(c.read for c in self.copies), max(c.memory for c in self.copies)
        taken = sum(int(n.replace(",", "")) for c in self.copies for n in TAKEN.findall(c.said))
        undecided = sum(row["if_true"] is not None for row in self.findings)
        cells = (
            self.number, *(f"{size / 1e6:.2f}" for size in (self.written, read, taken, self.sent, self.fetched)),
            self.requests, f"{max(c.seconds for c in self.copies):.1f}", f"{sum(c.cpu for c in self.copies):.1f}",
            f"{memory:.0f}", f"{self.audited / 1e6:.2f}", f"{self.audit.seconds:.1f}", len(self.above_info()),
            len(self.findings), undecided, "yes" if self.hung else "",
        )  # fmt: skip
        return f"| {' | '.join(map(str, cells))} |"


HEADS = (
    "round", "MB written", "MB read at the brokers", "of which batches, first look", "MB sent", "MB fetched",
    "requests", "s", "s of CPU", "MiB", "MB an audit fetched", "s of it", "above info", "findings", "undecided", "hung",
)  # fmt: skip
HEAD = f"| {' | '.join(HEADS)} |\n|{' --- |' * len(HEADS)}"


class Fleet:
    """The brokers under load, the store and what a round does."""

    def __init__(self, cluster: Cluster, run: Driver, store: FailingStore, folder: Path) -> None:
        self.cluster, self.run_driver, self.store, self.folder = cluster, run, store, folder
        self.env = clean_environment(store.environment()) | {"PYTHONPATH": str(ROOT)}
        self.number, self.size = 0, 0
        self.hang: tuple[int, int] | None = None  # partition and first offset
        # What a copy reads of its own programs: of a corpus of a few KB.
        words = ("copy", str(corpora.unpack("hanging-36")), "--out", "s3://copies/idle")
        self.idle = [self._take([self._start(*words)])[0].read for _ in range(2)][-1]

    def load(self) -> None:
        """Producers of transactions and without, and groups whose offsets are in transactions, and that commit."""
        self.run_driver(f"topic {TOPIC} {PARTITIONS} 3 min.insync.replicas=2 {segment_bytes(VERSION, SEGMENT)}")
        self.run_driver(f"topic shop.bills 1 3 min.insync.replicas=2 {segment_bytes(VERSION, SEGMENT)}")
        for number in range(3):
            self.run_driver(
                f"load till-{number} {TOPIC} {HOURS_MS} parts={PARTITIONS} n=5 size=400 pause={80 + 40 * number}"
            )
        self.run_driver(f"load - {TOPIC} {HOURS_MS} parts={PARTITIONS} n=20 size=400 per=20 pause=100")
        self.run_driver(f"copy billing {TOPIC} shop.bills {HOURS_MS} producers=2")
        self.run_driver(f"consume screen {TOPIC} {HOURS_MS} max.poll.records=500")

    def hangs(self) -> None:
        """A batch of a transaction that is over already, as a network may deliver it."""
        state = partition_for(LATE, 3)
        leaders = [
            int(self.run_driver(f"leader {topic} {n}")) for topic, n in (("__transaction_state", state), (TOPIC, 0))
        ]
        with (
            Wire(self.cluster.ports[leaders[0] - 1]) as coordinator,
            Wire(self.cluster.ports[leaders[1] - 1]) as leader,
        ):
            producer = coordinator.init(LATE)
            assert coordinator.add(LATE, producer, TOPIC, 0) == 0
            assert leader.produce(TOPIC, 0, producer, 0, transactional_id=LATE, age_ms=0)[0] == 0
            assert coordinator.end(LATE, producer, commit=True) == 0
            time.sleep(MARKER_S)
            error, offset = leader.produce(TOPIC, 0, producer, 3, transactional_id=LATE, age_ms=0)
        assert error == 0
        self.hang = (0, offset)

    def round(self) -> Round:
        """A copy of each broker, all at once, then an audit of the three."""
        self.number += 1
        before, at, hung = self.size, len(self.store.log), self.hang is not None
        self.size = sum(path.stat().st_size for path in self.cluster.folder.glob("broker-*/*-*/*.log"))
        of = [self.cluster.log_dir(broker) for broker in range(1, BROKERS + 1)]
        copies = self._take([self._start("copy", str(path), "--out", f"{COPIES}/{path.name}") for path in of])
        there = len(self.store.log)
        out = self.folder / f"audit-{self.number}"
        words = ("--history", RUNS, "--run-id", f"{self.number:03}", "--fail-on", "never", "--master", "inline[1]")
        audit = self._take([self._start("audit", COPIES, "--out", str(out), *words)])[0]
        if audit.status or any(took.status for took in copies):
            raise RuntimeError("\n".join(took.said for took in (*copies, audit)))
        sums = lambda log, *methods: sum(r.size for r in log if r.method in methods)  # noqa: E731
        by_copies, by_audit = self.store.log[at:there], self.store.log[there:]
        return Round(
            self.number, self.size - before, [took._replace(read=max(0, took.read - self.idle)) for took in copies],
            sums(by_copies, "PUT"), sums(by_copies, "GET"), len(by_copies), audit, sums(by_audit, "GET"),
            [json.loads(line) for line in (out / "findings.jsonl").read_text(encoding="utf-8").splitlines()],
            json.loads((out / "summary.json").read_text(encoding="utf-8")), hung,
        )  # fmt: skip

    def _start(self, *words: str) -> tuple[subprocess.Popen[str], float]:
        command = [sys.executable, "-m", "auditor.cli", *words]
        return (
            subprocess.Popen(command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True),
            time.monotonic(),
        )

    def _take(self, started: list[tuple[subprocess.Popen[str], float]]) -> list[Took]:
        """What commands that run at once came to."""
        done = []
        for process, began in started:
            assert process.stdout is not None
            said = process.stdout.read()
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            took = time.monotonic() - began
            io = dict(line.split(": ") for line in Path(f"/proc/{process.pid}/io").read_text().splitlines())
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            cpu = used.ru_utime + used.ru_stime
            done.append(Took(process.returncode, took, cpu, used.ru_maxrss / 1024, int(io["rchar"]), said))
        return done


@contextmanager
def fleet(folder: Path) -> Iterator[Fleet]:
    """One under load; gone afterwards."""
    for bucket in ("copies", "runs"):
        (folder / bucket).mkdir()
    settings = {"transaction_partition_verification_enable": "false", "min_insync_replicas": "2"}
    with (
        failing(copies=folder / "copies", runs=folder / "runs") as store,
        Cluster(VERSION, folder / "cluster", BROKERS, heap="300m", **settings) as cluster,
        Driver(cluster) as run,
    ):
        found = Fleet(cluster, run, store, folder)
        found.load()
        time.sleep(10)  # until all of it works
        yield found


def rounds(found: Fleet, count: int, every_s: float) -> Iterator[Round]:
    """So many, one begun every so often; in the middle of them a transaction is left hanging."""
    for number in range(count):
        began = time.monotonic()
        yield found.round()
        if number + 1 == (count + 1) // 2:
            found.hangs()
        if number + 1 < count:
            time.sleep(max(0.0, began + every_s - time.monotonic()))


def main(count: str, every_s: str, folder: str) -> None:
    """Prints each round as it ends, and all its findings above info."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    Path(folder).mkdir(parents=True)
    print(HEAD)
    with fleet(Path(folder)) as found:
        for one in rounds(found, int(count), float(every_s)):
            print(one.row(), flush=True)
            for row in one.above_info():
                print(json.dumps(row), file=sys.stderr, flush=True)
            for took in (*one.copies, one.audit):
                print(took.said, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
