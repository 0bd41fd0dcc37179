"""What the table ``cleaner`` says, held against what a real broker's cleaner then does: logs that it takes are cleaned
up to where was said, all others stay as they were, and one that it dies of stays where it was. Records without a key
are gone from what was cleaned, and a segment whose offsets overflow is split first.

The cleaner sleeps while the copy is made. ``CLEANER_LOGS`` random logs a release; ``CLEANER_SEED``: the first seed.
"""

from __future__ import annotations

import os
import random
import struct
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
FAR = 2**31  # relative offsets have 31 bits
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
        run(f"topic cl.zeros 1 1 cleanup.policy=compact min.cleanable.dirty.ratio=0.01 {small}")
        run("send plain cl.zeros 0 200 size=60 keys=5")
        _zeros(cluster, "cl.zeros")
        assert _read(run, "cl.keyless") == [*range(200)]
        time.sleep(1)
        cluster.copy(tmp_path / "taken")
        before = _checkpoints(cluster)
        run(f"config broker - {AWAKE}")
        time.sleep(PASSES_S)
        after = _checkpoints(cluster)
        keyless = _read(run, "cl.keyless")
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
    assert keyless == [*range(rows["cl.keyless-0"]["first_uncleanable_offset"], 200)]
    broken, zeros = rows["cl.broken-0"], rows["cl.zeros-0"]
    assert (broken["stands"], broken["fault_offset"]) == ("faulty", 0)
    assert (zeros["stands"], zeros["fault"]) == ("faulty", "bytes are no batch: zero_filled")
    for name in ("cl.broken-0", "cl.zeros-0"):
        assert after.get(name, 0) == 0  # where it began
    held = rows["cl.held-0"]
    assert (held["held_by"], held["held_by_transaction"]) == ("last_stable_offset", "holder")


def _zeros(cluster: Cluster, topic: str) -> None:
    """Zeros instead of the last batch of the first segment."""
    first = cluster.log_dir() / f"{topic}-0" / f"{0:020}.log"
    data = first.read_bytes()
    first.write_bytes(data[: _batches(data)[-1]].ljust(len(data), b"\0"))


def _batches(data: bytes) -> list[int]:
    """Where the batches of a segment begin."""
    found = []
    while (at := found[-1] + 12 + struct.unpack_from(">i", data, found[-1] + 8)[0] if found else 0) < len(data):
        found.append(at)
    return found


def _read(run: Driver, topic: str) -> list[int]:
    return [int(offset) for offset in run(f"read {topic} 0 read_uncommitted").split()]


@pytest.mark.parametrize("version", ["4.3.1", "3.9.1"])
def test_a_segment_whose_offsets_overflow_is_split_and_then_cleaned(version: str, tmp_path: Path) -> None:
    """What brokers before 2.0 left (KAFKA-6264), written below a broker that was stopped."""
    awake = AWAKE.partition("=")[2]
    with Cluster(version, tmp_path / "cluster", heap="384m", log_cleaner_backoff_ms="3600000") as cluster:
        with Driver(cluster) as run:
            ways = "cleanup.policy=compact min.cleanable.dirty.ratio=0.01"
            run(f"topic cl.far 1 1 {ways} {segment_bytes(version, 4096)}")
            run("producer plain linger.ms=0 enable.idempotence=false")
            run("send plain cl.far 0 200 size=60 per=1 keys=100000")
        cluster.stop()
        folder = cluster.log_dir() / "cl.far-0"
        first = _overflow(folder, 200)
        cluster.copy(tmp_path / "taken")
        cluster.settings["log.cleaner.backoff.ms"] = awake
        cluster._configure(1)
        cluster.start()
        cluster.await_port()
        until = time.monotonic() + 60
        now = int(time.time() * 1000)
        row = _said(tmp_path / "taken", now)["cl.far-0"]
        copy_of(tmp_path / "taken", tmp_path / "copy")
        assert _said(tmp_path / "copy", now)["cl.far-0"] == row
        while _checkpoints(cluster).get("cl.far-0", 0) < FAR and time.monotonic() < until:
            time.sleep(1)
        time.sleep(1)
        assert _checkpoints(cluster)["cl.far-0"] == row["first_uncleanable_offset"] > FAR
        assert (folder / f"{first:020}.log").exists()  # where it was split
        with Driver(cluster) as run:
            there = _read(run, "cl.far")
    assert there[0] < first <= there[-1]
    assert (row["stands"], row["fault"]) == ("due", "offsets overflow the segment, which the cleaner first splits")
    assert (row["fault_offset"], row["fault_file"]) == (first, f"cl.far-0/{0:020}.log")
    assert row["undecided"] is None


def _overflow(folder: Path, end: int) -> int:
    """Raises all offsets from the midst of the first segment on by 2^31, in a log at rest that ends at ``end``; the
    first of them. Batches' offsets lie outside of their checksums."""
    segments = sorted(folder.glob("*.log"))
    raised = []
    for number, log in enumerate(segments):
        data = bytearray(log.read_bytes())
        positions = _batches(bytes(data))
        for at in positions[len(positions) // 2 :] if number == 0 else positions:
            raised.append(struct.unpack_from(">q", data, at)[0] + FAR)
            struct.pack_into(">q", data, at, raised[-1])
        log.write_bytes(data)
        for kind in ("index", "timeindex"):
            index = log.with_suffix(f".{kind}")
            if number:
                index.rename(folder / f"{int(log.stem) + FAR:020}.{kind}")
            else:
                index.write_bytes(b"")  # as of a segment that has too little for an entry
        if number:
            log.rename(folder / f"{int(log.stem) + FAR:020}.log")
    for snapshot in folder.glob("*.snapshot"):
        snapshot.unlink()
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        file = folder.parent / name
        file.write_text(file.read_text().replace(f"cl.far 0 {end}\n", f"cl.far 0 {end + FAR}\n"))
    return raised[0]


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
