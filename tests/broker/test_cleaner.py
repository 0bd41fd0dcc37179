"""What the table ``cleaner`` says, held against what a real broker's cleaner then does: logs that it takes are cleaned
up to where was said, all others stay as they were, and one that it dies of stays where it was.

The cleaner sleeps while the copy is made. ``CLEANER_LOGS`` random logs a release; ``CLEANER_SEED``: the first seed.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.broker.cluster import Cluster, Driver, segment_bytes
from tests.broker.jars import missing_tools
from tests.copies import copy_of
from tests.facts import opened

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(missing_tools() is not None, reason=str(missing_tools()))]
LOGS = int(os.environ.get("CLEANER_LOGS", "10"))
SEED = int(os.environ.get("CLEANER_SEED", "1"))
HOUR_MS = 3_600_000
PASSES_S = 6
ASLEEP, AWAKE = "log.cleaner.backoff.ms=3600000", "log.cleaner.backoff.ms=200"


def _checkpoints(cluster: Cluster) -> dict[str, int]:
    file = cluster.log_dir() / "cleaner-offset-checkpoint"
    lines = file.read_text().splitlines()[2:] if file.exists() else []
    return {f"{topic}-{partition}": int(at) for topic, partition, at in (line.rsplit(" ", 2) for line in lines)}


def _fill(run: Driver, rng: random.Random, topic: str, *, segments: int, keys: int = 5) -> None:
    """Records of so many keys, old ones and new ones, in about so many segments of 4 KiB."""
    for _ in range(segments):
        at = f"at={int(time.time() * 1000) - 2 * HOUR_MS}" if rng.random() < 0.7 else ""
        run(f"send plain {topic} 0 {rng.randint(40, 90)} size=60 keys={keys} {at}")


def _make(run: Driver, version: str, rng: random.Random, name: str) -> str:
    ways = [f"min.cleanable.dirty.ratio={rng.choice(('0.3', '0.6', '0.9'))}"]
    if rng.random() < 0.3:
        ways.append(f"min.compaction.lag.ms={HOUR_MS}")
    if rng.random() < 0.3:
        ways.append("max.compaction.lag.ms=3600000")
    old = "message.timestamp.before.max.ms=9000000000" if version.startswith("4.") else ""
    run(f"topic {name} 1 1 cleanup.policy=compact {segment_bytes(version, 4096)} {' '.join(ways)} {old}")
    return name


def _damage(cluster: Cluster, topic: str) -> None:
    """Zeros in the compressed records of a batch of the first segment, as a bad disk leaves them."""
    log = cluster.log_dir() / f"{topic}-0" / "00000000000000000000.log"
    with log.open("r+b") as f:
        f.seek(12 + 61 + 20)
        f.write(b"\0" * 30)


@pytest.mark.parametrize("version", ["4.3.1", "3.9.1"])
def test_the_cleaner_does_what_was_said(version: str, tmp_path: Path) -> None:
    with (
        Cluster(version, tmp_path / "cluster", heap="384m", log_cleaner_backoff_ms="200") as cluster,
        Driver(cluster) as run,
    ):
        run("producer plain linger.ms=0")
        logs = [
            _make(run, version, random.Random(seed), f"cl.{seed}-{k}")
            for k, seed in enumerate(range(SEED, SEED + LOGS))
        ]
        for topic in logs[::2]:
            _fill(run, random.Random(topic), topic, segments=8, keys=300)
        time.sleep(PASSES_S)  # some are cleaned once
        run(f"config broker - {ASLEEP}")
        time.sleep(3)  # until its threads have been started anew and find nothing to do
        for topic in logs:
            _fill(run, random.Random(topic + "more"), topic, segments=random.Random(topic).randint(1, 4))
        small = segment_bytes(version, 4096)
        run(f"topic cl.held 1 1 cleanup.policy=compact {small}")
        _hold(run, "cl.held")
        run(f"topic cl.broken 1 1 cleanup.policy=compact min.cleanable.dirty.ratio=0.01 "
            f"{segment_bytes(version, 4096)}")  # fmt: skip
        # Records without a key in a topic that is compacted only later: the cleaner drops them, and goes on.
        run(f"topic cl.keyless 1 1 min.cleanable.dirty.ratio=0.3 {small}")
        run("send plain cl.keyless 0 200 size=60 keys=0")
        run("config topic cl.keyless cleanup.policy=compact")
        logs.append("cl.keyless")
        run("producer packed compression.type=gzip")
        run("send packed cl.broken 0 300 size=60 keys=5")
        _damage(cluster, "cl.broken")
        time.sleep(1)
        cluster.copy(tmp_path / "taken")
        before = _checkpoints(cluster)
        run(f"config broker - {AWAKE}")
        time.sleep(PASSES_S)
        after = _checkpoints(cluster)
    now = int(time.time() * 1000) - PASSES_S * 1000
    rows = _said(tmp_path / "taken", now)
    copy_of(tmp_path / "taken", tmp_path / "copy")
    assert _said(tmp_path / "copy", now) == rows
    stands = [rows[f"{topic}-0"]["stands"] for topic in logs]
    for topic in logs:
        row, name = rows[f"{topic}-0"], f"{topic}-0"
        assert row["undecided"] is None, row
        assert row["checkpoint"] == before.get(name)
        if row["stands"] == "due":
            assert after.get(name) == row["first_uncleanable_offset"], (row, after.get(name))
        else:
            # A pass over a log that is not dirty enough writes nothing down, but for a checkpoint that was none.
            assert after.get(name) == before.get(name), (row, after.get(name))
    assert {"due", "below_ratio"} <= {*stands}, stands
    assert rows["cl.keyless-0"]["stands"] == "due"
    broken = rows["cl.broken-0"]
    assert (broken["stands"], broken["fault_offset"]) == ("faulty", 0)
    assert after.get("cl.broken-0", 0) == 0  # where it began
    held = rows["cl.held-0"]
    assert (held["held_by"], held["held_by_transaction"]) == ("last_stable_offset", "holder")


def _hold(run: Driver, topic: str) -> None:
    """A transaction that stays open in the midst of a log."""
    run(f"send plain {topic} 0 60 size=60 keys=5")
    run("producer holder transactional.id=holder transaction.timeout.ms=900000")
    run("init holder")
    run("begin holder")
    run(f"send holder {topic} 0 5 size=60 keys=5")
    run(f"send plain {topic} 0 200 size=60 keys=5")


def _said(path: Path, now: int) -> dict[str, dict[str, Any]]:
    rows = opened(path, as_of=now).table("cleaner").to_pylist()
    return {f"{row['topic']}-{row['partition']}": row | {"log_dir": ""} for row in rows}
