"""Makes ``tests/data/asked``: the log directory of docs/tracker-questions.md, and what its real broker, 4.3.1, did.

``python -m tests.broker.asked_logs`` makes both anew. ``said.json`` has what consumers then got of each group, which
segments retention left of each topic, and up to where the cleaner came.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from tests.broker.cluster import Cluster, Driver, segment_bytes
from tests.broker.newer_kafka import PATIENT

TARGET = Path(__file__).parents[1] / "data" / "asked"
VERSION = "4.3.1"
HOUR_MS = 3_600_000
SMALL = segment_bytes(VERSION, 4096)
FUTURE = "message.timestamp.after.max.ms=9000000000"
ASLEEP = {
    "log.initial.task.delay.ms": "3600000", "log.retention.check.interval.ms": "3600000",
    "offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1",
}  # fmt: skip
AWAKE = {"log.initial.task.delay.ms": "500", "log.retention.check.interval.ms": "1000"}
SETTLED_S = 25  # for retention and the cleaner to have done all that they do
GROUPS = {"billing": "orders", "supervisor": "events", "exporter": "payments", "cache": "changes"}


def make(scratch: Path, target: Path) -> None:
    """The archive and what the broker said, into a folder."""
    settings = {name.replace(".", "_"): value for name, value in (PATIENT | ASLEEP).items()}
    with Cluster(VERSION, scratch / "cluster", heap="384m", log_cleaner_backoff_ms="200", **settings) as c:
        with Driver(c) as run:
            run("producer plain linger.ms=0")
            _groups(run)
            _cleaned(run)
            _kept(run)
            _journals(c, run)
            got = {group: _got(run, group, topic) for group, topic in GROUPS.items()}
        c.stop()
        at = c.copy(scratch / "taken")
        c.settings |= AWAKE
        c._configure(1)
        c.start()
        c.await_port()
        with Driver(c) as run:
            run("config broker - log.cleaner.backoff.ms=200")
            time.sleep(SETTLED_S)
        lines = (c.log_dir() / "cleaner-offset-checkpoint").read_text().splitlines()[2:]
        said = {
            "as_of": at, "got": got, "kept": _segments(c),
            "cleaned": {topic: int(offset) for topic, _, offset in (line.rsplit(" ", 2) for line in lines)},
        }  # fmt: skip
    target.mkdir(parents=True, exist_ok=True)
    (target / "said.json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    for index in (scratch / "taken").rglob("*.*index"):
        if not index.stat().st_size:
            index.unlink()
    with tarfile.open(target / "data.tar.gz", "w:gz") as archive:
        archive.add(scratch / "taken", "asked")


def _transaction(run: Driver, name: str, topic: str, count: int, end: str) -> None:
    run(f"begin {name}")
    run(f"send {name} {topic} 0 {count} size=40")
    run(f"{end} {name}")


def _groups(run: Driver) -> None:
    """Groups behind whose last record lies a marker, an aborted transaction, or one that is open."""
    for topic in ("orders", "events", "payments"):
        run(f"topic {topic} 1 1")
    for name in ("app", "stuck"):
        run(f"producer {name} transactional.id={name} transaction.timeout.ms=900000")
        run(f"init {name}")
    for _ in range(4):
        _transaction(run, "app", "orders", 25, "commit")
    run("commit-offset billing orders 0 103")  # behind the last record, as who commits record.offset() + 1 does
    _transaction(run, "app", "events", 1, "commit")
    run("commit-offset supervisor events 0 1")
    _transaction(run, "app", "events", 1, "abort")
    run("send plain payments 0 200 size=20")
    run("begin stuck")
    run("send stuck payments 0 3 size=20")
    run("send plain payments 0 150 size=20")
    _transaction(run, "app", "payments", 20, "abort")
    run("send plain payments 0 90 size=20")
    run("commit-offset exporter payments 0 200")


def _cleaned(run: Driver) -> None:
    """A compacted topic that the cleaner went through, and a group at its start; then the cleaner sleeps."""
    run(f"topic changes 1 1 cleanup.policy=compact min.cleanable.dirty.ratio=0.01 {SMALL}")
    run("send plain changes 0 600 size=40 keys=9")
    time.sleep(15)
    run("config broker - log.cleaner.backoff.ms=3600000")
    time.sleep(3)
    run("commit-offset cache changes 0 0")


def _kept(run: Driver) -> None:
    """Topics that retention does not free as somebody thought it would."""
    now = int(time.time() * 1000)
    old = f"at={now - 3 * HOUR_MS}"
    run(f"topic metrics 1 1 retention.ms={HOUR_MS} {SMALL} {FUTURE}")
    run(f"send plain metrics 0 60 size=60 {old}")
    run("producer skewed")
    run(f"send skewed metrics 0 1 size=60 at={now + 48 * HOUR_MS}")
    run(f"send plain metrics 0 150 size=60 {old}")
    run("send plain metrics 0 10 size=60")
    run(f"topic replays 1 1 retention.ms=-1 retention.bytes=100000 {SMALL}")
    run(f"send plain replays 0 200 size=60 {old}")
    run(f"topic canary 1 1 retention.ms={2 * HOUR_MS}")
    run(f"send plain canary 0 100 size=60 {old}")
    run("send plain canary 0 1 size=60")
    run(f"topic expired 1 1 retention.ms={2 * HOUR_MS} {SMALL}")
    run(f"send plain expired 0 100 size=60 {old}")
    run(f"topic forever 1 1 retention.ms=-1 {SMALL}")
    run(f"send plain forever 0 100 size=60 {old}")


def _journals(c: Cluster, run: Driver) -> None:
    """Compacted topics: one with a damaged batch, one with an open transaction, one that is a single segment."""
    for topic, more in (("broken", SMALL), ("waiting", SMALL), ("journal", "")):
        run(f"topic {topic} 1 1 cleanup.policy=compact min.cleanable.dirty.ratio=0.01 {more}")
    run("producer packed compression.type=gzip")
    run("send packed broken 0 300 size=60 keys=5")
    with (c.log_dir() / "broken-0" / f"{0:020}.log").open("r+b") as log:
        log.seek(12 + 61 + 20)
        log.write(b"\0" * 30)
    run("send plain waiting 0 60 size=60 keys=5")
    run("producer holder transactional.id=holder transaction.timeout.ms=900000")
    run("init holder")
    run("begin holder")
    run("send holder waiting 0 5 size=60 keys=5")
    run("send plain waiting 0 200 size=60 keys=5")
    run("send plain journal 0 200 size=60 keys=5 dead=3")


def _got(run: Driver, group: str, topic: str) -> dict[str, int]:
    return {
        isolation: len(run(f"read {topic} 0 {isolation} group={group}").split())
        for isolation in ("read_committed", "read_uncommitted")
    }


def _segments(c: Cluster) -> dict[str, list[int]]:
    folders = (folder for folder in sorted(c.log_dir().glob("*-0")) if not folder.name.startswith("__"))
    return {folder.name[:-2]: sorted(int(file.stem) for file in folder.glob("*.log")) for folder in folders}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        make(Path(scratch), Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)
