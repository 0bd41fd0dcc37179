"""Producers that record each acknowledgement, against brokers that lose records, and what ``auditor impact`` lists.

``python -m tests.broker.ledgers SCRATCH [NUMBER...]`` makes the cluster runs of :data:`RUNS` (all, or some by number).
It prints a line of JSON for each, then their sums. ``--again`` audits and compares what an earlier call left. Each run
has ten ledgers: five kinds of producers (:data:`PRODUCERS`), two partitions each. The shares of faults were set before
the first run.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from tests.broker.cluster import Cluster, Driver
from tests.broker.dumped import Stored, state_records, stored
from tests.broker.ledger_entries import Entry, Finds, committed, compared, entries


class Run(NamedTuple):
    """A cluster run. ``fault``: a function below. ``away``: the replica that lost stays down; else it returns and
    follows. ``lone``: one replica, and the directories are audited as the fault left them. ``shared``: all producers
    write to one topic; else each to its own."""

    version: str
    fault: str
    away: bool
    lone: bool
    shared: bool


OLD, NEW = "3.9.1", "4.3.1"
RUNS = tuple(
    Run(version, fault, away, lone, shared)
    for version in (OLD, NEW)
    for fault, away, lone, shared in (
        ("killed", True, False, False), ("killed", False, False, True),
        ("unclean", True, False, False), ("unclean", True, False, True),
        ("unclean", False, False, False), ("unclean", False, False, True),
        ("cut", False, True, True), ("cut", version == OLD, False, False),
        ("restored", False, True, False), ("restored", version == NEW, False, True),
    )
)  # fmt: skip
PRODUCERS = {
    "one": "enable.idempotence=false acks=1",
    "all": "enable.idempotence=false acks=all",
    "numbered": "acks=all",
    "commits": "acks=all id=commits",
    "aborts": "acks=all id=aborts abort=4",
}
SOON = "max.block.ms=30000 delivery.timeout.ms=30000 request.timeout.ms=5000 transaction.timeout.ms=15000"
PARTITIONS = 2
FENCED_S = 6  # twice the session's time-out
OFTEN = {"broker_session_timeout_ms": "3000", "replica_lag_time_max_ms": "3000"}
CUT = (0.55, 0.95)  # what is left of a segment's bytes


class Lab:
    """One run on its way. Broker 1 is the controller and has no replica of the topics, brokers 2 and 3 have all."""

    def __init__(self, run: Run, cluster: Cluster, driver: Driver, folder: Path, seed: int) -> None:
        self.run, self.cluster, self.driver, self.folder = run, cluster, driver, folder
        self.topics = {name: "shared" if run.shared else f"of.{name}" for name in PRODUCERS}
        self.random = random.Random(seed)

    def begin(self) -> None:
        """Make the topics and start the producers."""
        on = "2" if self.run.lone else "2,3"
        for topic in sorted(set(self.topics.values())):
            self.driver(f"topic {topic} {PARTITIONS} 1 on={on} unclean.leader.election.enable=true")
        for name, settings in PRODUCERS.items():
            file = self.folder / f"{name}.ledger"
            self.driver(f"ledger {name} {self.topics[name]} 600000 parts={PARTITIONS} file={file} {settings} {SOON}")

    def partitions(self) -> list[tuple[str, int]]:
        """Those that the ledgers are about."""
        return [(topic, p) for topic in sorted(set(self.topics.values())) for p in range(PARTITIONS)]

    def start(self, broker: int, seconds: float) -> None:
        """Start a broker and let the producers go on."""
        self.cluster.start(broker)
        self.cluster.await_port(broker)
        time.sleep(seconds)

    def killed(self) -> None:
        """A leader dies while its follower is in sync and some records behind: a clean election."""
        time.sleep(6)
        self.cluster.signal(signal.SIGSTOP, 3)
        time.sleep(1.5)
        self.cluster.kill(2)
        self.cluster.signal(signal.SIGCONT, 3)
        time.sleep(12)
        if not self.run.away:
            self.start(2, 6)

    def unclean(self) -> None:
        """The follower is down, then the leader dies, and the follower comes back to lead."""
        time.sleep(5)
        self.cluster.kill(3)
        time.sleep(FENCED_S + 3)
        self.cluster.kill(2)
        time.sleep(FENCED_S)
        self.start(3, 12)
        if not self.run.away:
            self.start(2, 8)

    def cut(self) -> None:
        """The leader's log loses its end, as where the machine lost what was not flushed."""
        time.sleep(12)
        self._return(self._cut)

    def restored(self) -> None:
        """The leader starts on a copy of its disk that was made earlier."""
        time.sleep(6)
        kept = self.folder / "earlier"
        self.cluster.kill(2)
        shutil.copytree(self.cluster.log_dir(2), kept)
        self.start(2, 10)

        def older() -> None:
            shutil.rmtree(self.cluster.log_dir(2))
            shutil.copytree(kept, self.cluster.log_dir(2))

        self._return(older)

    def _return(self, change: Any) -> None:
        """The leader is killed, its disk changed; it leads again, unless the disk is to be audited first."""
        if self.run.lone:
            self.driver("stop")
            self.cluster.kill(2)
            change()
            return
        self.cluster.kill(3)
        time.sleep(FENCED_S)
        self.cluster.kill(2)
        change()
        self.start(2, 14)
        if not self.run.away:
            self.start(3, 8)

    def leader(self) -> int:
        """Who leads the first partition."""
        topic, partition = self.partitions()[0]
        return int(self.driver(f"leader {topic} {partition}"))

    def _cut(self) -> None:
        for topic, partition in self.partitions():
            newest = max((self.cluster.log_dir(2) / f"{topic}-{partition}").glob("*.log"))
            with newest.open("r+b") as log:
                log.truncate(int(newest.stat().st_size * self.random.uniform(*CUT)))

    def got(self, isolation: str) -> dict[tuple[str, int], list[tuple[int, str]]]:
        """Offset and value of each record that a consumer gets."""
        said = {at: self.driver(f"read {at[0]} {at[1]} {isolation} show=both") for at in self.partitions()}
        return {
            at: [(int(offset), value) for offset, _, value in (one.partition(":") for one in text.split())]
            for at, text in said.items()
        }


def impact_of(copy: Path, out: Path) -> tuple[int, list[dict[str, Any]], list[dict[str, Any]]]:
    """Exit code and rows of ``auditor impact``, and the findings of ``auditor audit``."""
    auditor = Path(sys.executable).with_name("auditor")
    how = ["--master", "inline", "--format", "json"]
    done = subprocess.run([auditor, "impact", copy, *how], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr[-2000:]}")
    subprocess.run([auditor, "audit", copy, "--out", out, *how[:2], "--quiet"], capture_output=True, check=False)
    found = (out / "findings.jsonl").read_text(encoding="utf-8").splitlines()
    return done.returncode, [json.loads(row) for row in done.stdout.splitlines()], [json.loads(row) for row in found]


def made(number: int, folder: Path) -> Finds:
    """Make a run, audit its directories, read its topics, and compare. ``folder`` keeps all of it."""
    run, copy = RUNS[number], folder / "copy"
    heap = {"heap": "288m", "voters": 1}
    with Cluster(run.version, folder / "cluster", 3, **heap, **OFTEN) as cluster, Driver(cluster) as driver:
        time.sleep(4)
        lab = Lab(run, cluster, driver, folder, number)
        lab.begin()
        getattr(lab, run.fault)()
        driver("stop")
        leaders = {at: 2 if run.lone else int(driver(f"leader {at[0]} {at[1]}")) for at in lab.partitions()}
        running = list(cluster.jvms)
        for broker in sorted(running, reverse=True):  # the controller last: the others ask it before they stop
            cluster.stop_one(broker)
        cluster.copy(copy)
        for broker in [*running, *([2] if run.lone else [])]:
            cluster.start(broker)
        for broker in list(cluster.jvms):
            cluster.await_port(broker)
        time.sleep(FENCED_S + 20 * run.lone)  # until coordinators have ended what was open
        got, all_stored = lab.got("read_committed"), lab.got("read_uncommitted")
    (folder / "got.json").write_text(json.dumps([[*at, seen, all_stored[at]] for at, seen in got.items()]))
    (folder / "leaders.json").write_text(json.dumps([[*at, broker] for at, broker in leaders.items()]))
    return looked_at(number, folder)


def looked_at(number: int, folder: Path) -> Finds:
    """Audit and compare what :func:`made` left in ``folder``."""
    run, copy = RUNS[number], folder / "copy"
    code, rows, findings = impact_of(copy, folder / "audit")
    (folder / "impact.json").write_text("\n".join(map(json.dumps, rows)))
    stores: dict[str, Stored] = {f"broker-{broker}": stored(NEW, copy / f"broker-{broker}") for broker in (2, 3)}
    lab = Lab(run, None, None, folder, number)  # type: ignore[arg-type]
    books: dict[str, dict[tuple[int, int], Entry]] = {name: entries(folder / f"{name}.ledger") for name in PRODUCERS}
    got = {(topic, p): (seen, rest) for topic, p, seen, rest in json.loads((folder / "got.json").read_text())}
    leaders = {(topic, p): broker for topic, p, broker in json.loads((folder / "leaders.json").read_text())}
    states = [state_records(NEW, copy / "broker-1" / f"__transaction_state-{k}") for k in range(3)]
    finds = compared(lab.topics, books, got, leaders, stores, committed(states, books), rows, findings)
    if (code == 1) != bool(rows):
        finds.wrong.append(f"exit code {code} with {len(rows)} rows")
    return finds


def main(words: list[str]) -> None:
    """Make the runs that are asked for."""
    scratch, sums, wrong = Path(words[0]), Counter[str](), 0
    again = "--again" in words
    for number in [int(word) for word in words[1:] if word.isdigit()] or range(len(RUNS)):
        folder = scratch / f"run-{number}"
        if not again:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        finds = looked_at(number, folder) if again else made(number, folder)
        print(
            json.dumps({"run": number, **RUNS[number]._asdict(), **finds.counts, "wrong": finds.wrong[:20]}), flush=True
        )
        sums += finds.counts
        wrong += len(finds.wrong)
    print(json.dumps({"runs": "all", **sums, "wrong": wrong}))


if __name__ == "__main__":
    main(sys.argv[1:])
