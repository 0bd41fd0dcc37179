"""A log that grows under a watch: each reading goes on inside the active segment, and leaves what one from the start
does. The segments are those that brokers wrote, cut where they may have ended at some time."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from auditor.connectors.codec import batches as walking
from auditor.connectors.codec.indexes import TimeIndex
from auditor.connectors.logdir.inventory import discover
from auditor.facts.batch_sums import BatchSums
from auditor.facts.replica_facts import ReplicaFacts
from auditor.pipeline import cluster_settings, plan
from auditor.pipeline.options import AuditOptions
from auditor.replay.reading import replica_reader, segment_checks
from auditor.replay.reading.index_checks import TimeCheck
from auditor.replay.reading.replica_reader import read_replica
from auditor.replay.task import ReplicaTask
from tests import corpora, segments
from tests.forge import snapshot
from tests.whole.test_resume_point import places_read, tasks_below
from tests.whole.test_split import in_parts, same

# A topic of epochs, one of many times, transactions, what a controller writes, and topics whose records are decoded.
LOGS = [
    "epochs-43/e-0", "epochs-43/e-1", "healthy-41/shop.plain-0", "healthy-28/web.plain-0",
    "epochs-43/__cluster_metadata-0",
    "epochs-43/__transaction_state-2", "live-copy-39/__transaction_state-0", "lively-11/__transaction_state-1",
]  # fmt: skip
PREALLOCATED = 4096  # zeros behind the entries of an active segment's indexes


@pytest.fixture(autouse=True)
def every_replica_leaves_a_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_reader, "FROM_BYTES", 1)
    monkeypatch.setattr(replica_reader, "BYTES_A_PRODUCER", 0)


class Growing:
    """A partition folder whose last segment is the longest of those that a broker wrote, as far as it has come.

    ``late`` draws how many of the last times are not in their index yet.
    """

    def __init__(self, name: str, root: Path, late: Random | None = None) -> None:
        corpus, _, folder = name.partition("/")
        source = next(corpora.unpack(corpus).rglob(folder))
        self.late = late
        self.folder = root / "broker-1" / folder
        shutil.copytree(source, self.folder, copy_function=shutil.copyfile)
        (self.folder.parent / "cleaner-offset-checkpoint").write_text("0\n0\n")  # nothing was cleaned
        logs = sorted(self.folder.glob("*.log"))
        self.log = max(logs, key=lambda path: len(_entries(path.with_suffix(".index"), 8)))
        for path in logs[logs.index(self.log) + 1 :]:
            for file in self.folder.glob(path.stem + ".*"):
                file.unlink()
        for file in self.folder.glob("*.snapshot"):
            if int(file.stem) > int(self.log.stem):
                file.unlink()
        self.bytes = self.log.read_bytes()
        self.entries = _entries(self.log.with_suffix(".index"), 8)
        self.times = _entries(self.log.with_suffix(".timeindex"), 12)

    def grow(self, size: int) -> None:
        """Writes what there is when the log has come to ``size`` bytes."""
        self.log.write_bytes(self.bytes[:size])
        entries = [e for e in self.entries if struct.unpack(">ii", e)[1] < size]
        last = struct.unpack(">ii", entries[-1])[0] if entries else -1
        times = [t for t in self.times if struct.unpack(">qi", t)[1] <= last]
        times = times[: len(times) - (self.late.choice((0, 1, 2)) if self.late else 0)]
        self.log.with_suffix(".index").write_bytes(b"".join(entries).ljust(PREALLOCATED, b"\0"))
        self.log.with_suffix(".timeindex").write_bytes(b"".join(times).ljust(PREALLOCATED * 3, b"\0"))

    def task(self, *, records: bool = False) -> ReplicaTask:
        """What a watch asks for."""
        options = AuditOptions((str(self.folder.parent),), Path(), records=records)
        inventory = discover([str(self.folder.parent)], options.limits)
        settings, _ = cluster_settings.read_settings(inventory, options.limits)
        (found,) = plan.replica_tasks(inventory, settings, options)
        assert isinstance(found, ReplicaTask)
        return replace(found, leaves_resume_point=True)


def _entries(path: Path, width: int) -> list[bytes]:
    """The entries of an index, without the zeros behind them."""
    data = path.read_bytes()
    found = [data[at : at + width] for at in range(0, len(data) - width + 1, width)]
    return [entry for entry in found if any(entry)]


def sizes(random: Random, end: int) -> list[int]:
    """Where a log of ``end`` bytes ends at some looks, in the middle of a batch more often than not."""
    return [*sorted(random.sample(range(1, end), 12)), end]


def looks(
    log: Growing, sizes: list[int], *, records: bool = False, digests: bytes = b""
) -> Iterator[tuple[ReplicaTask, ReplicaFacts, ReplicaFacts]]:
    """Each look's task, its facts, and those of a reading from the start."""
    point = b""
    for size in sizes:
        log.grow(size)
        task = replace(log.task(records=records), resume_point=point, digests=digests)
        found, whole = read_replica(task), read_replica(replace(task, resume_point=b""))
        point, found.resume_point, whole.resume_point = found.resume_point, b"", b""
        yield task, found, whole


@pytest.mark.parametrize("records", [False, True])
@pytest.mark.parametrize("name", LOGS)
def test_each_look_leaves_what_a_reading_from_the_start_does(name: str, records: bool, tmp_path: Path) -> None:
    """And reads from the last batch on that the index pointed at when the look before was taken."""
    log = Growing(name, tmp_path)
    indexed = [struct.unpack(">ii", entry)[1] for entry in log.entries]
    ends = sizes(Random(name), len(log.bytes))
    for before, (task, found, whole) in zip([0, *ends], looks(log, ends, records=records), strict=False):
        assert same(found, whole), task.replica.segments[-1].size
        stood = max((at for at in indexed if at < before), default=0)
        assert places_read(task)[-1] == (len(task.replica.segments) - 1, stood)


@pytest.mark.parametrize("name", LOGS)
def test_times_may_come_into_their_index_late(name: str, tmp_path: Path) -> None:
    random = Random(name)
    log = Growing(name, tmp_path, random)
    inside = 0
    for task, found, whole in looks(log, sizes(random, len(log.bytes))):
        assert same(found, whole), task.replica.segments[-1].size
        inside += places_read(task)[-1][1] > 0
    assert 3 < inside < 12  # what is late may be about a time that only the batches before could tell


@pytest.mark.parametrize("name", LOGS[:4])
def test_damage_that_lies_there_from_the_start(name: str, tmp_path: Path) -> None:
    """A byte of the log or of an index is wrong: the point stays before it, and what is said of it is said."""
    for seed in range(40):
        random = Random(f"{name} {seed}")
        log = Growing(name, tmp_path / str(seed), random if seed % 2 else None)
        which = random.choice(("log", "log", "index", "timeindex"))
        if which == "log":
            log.bytes = _flipped(random, log.bytes)
        elif which == "index":
            log.entries = _with_one_changed(random, log.entries)
        else:
            log.times = _with_one_changed(random, log.times)
        for task, found, whole in looks(log, sizes(random, len(log.bytes))[::3]):
            assert same(found, whole), (seed, which, task.replica.segments[-1].size)
        shutil.rmtree(tmp_path / str(seed))


def _flipped(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1 :]


def _with_one_changed(random: Random, entries: list[bytes]) -> list[bytes]:
    at = random.randrange(len(entries))
    return [*entries[:at], _flipped(random, entries[at]), *entries[at + 1 :]]


@pytest.mark.parametrize("change", ["", "shorter", "last batch", "index entry", "time entry", "no index", "new time"])
def test_a_segment_that_is_not_the_same_is_read_from_its_start(change: str, tmp_path: Path) -> None:
    log = Growing("healthy-41/shop.plain-0", tmp_path)
    log.grow(len(log.bytes))
    point = read_replica(log.task()).resume_point
    last = struct.unpack(">ii", log.entries[-1])[1]
    if change == "shorter":
        log.bytes = log.bytes[: last - 1]
    elif change == "last batch":  # its CRC and nothing else: the header says that it is another one
        at = _batch_before(log.bytes, last)
        log.bytes = log.bytes[: at + 17] + bytes([log.bytes[at + 17] ^ 1]) + log.bytes[at + 18 :]
    elif change == "index entry":
        del log.entries[3]
    elif change == "time entry":
        del log.times[3]
    elif change == "new time":  # about a batch that was read, and not the largest: only that batch could tell
        log.times.append(struct.pack(">qi", 1, 100))
    log.grow(len(log.bytes))
    if change == "no index":
        log.log.with_suffix(".index").unlink()
    task = replace(log.task(), resume_point=point)
    assert (places_read(task)[-1][1] == 0) == bool(change)
    found, whole = read_replica(task), read_replica(replace(task, resume_point=b""))
    found.resume_point = whole.resume_point = b""
    assert same(found, whole)


def _batch_before(data: bytes, until: int) -> int:
    """Where the batch begins that ends at a byte."""
    at = 0
    while (end := at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")) < until:
        at = end
    return at


def test_a_segment_that_was_closed_meanwhile(tmp_path: Path) -> None:
    """It goes on inside of it, and from the start of the one that followed."""
    log = Growing("epochs-43/e-0", tmp_path)
    log.grow(len(log.bytes) // 2)
    point = read_replica(log.task()).resume_point
    log.grow(len(log.bytes))
    source = next(corpora.unpack("epochs-43").rglob("e-0"))
    following = min(path for path in source.glob("*.log") if path.name > log.log.name)
    for file in source.glob(following.stem + ".*"):
        shutil.copyfile(file, log.folder / file.name)
    task = replace(log.task(), resume_point=point)
    (number, start), (behind, begin) = places_read(task)
    assert (number, behind, begin) == (len(task.replica.segments) - 2, len(task.replica.segments) - 1, 0)
    assert start > 0
    found, whole = read_replica(task), read_replica(replace(task, resume_point=b""))
    found.resume_point = whole.resume_point = b""
    assert same(found, whole)


@pytest.mark.parametrize("news", ["next segment", "leader epoch", "snapshot"])
def test_what_comes_is_about_batches_before_where_offsets_went_back(news: str, tmp_path: Path) -> None:
    """All is above the last offset before the point, and below the largest."""
    folder = tmp_path / "broker-1" / "orders-0"
    folder.mkdir(parents=True)
    (folder.parent / "cleaner-offset-checkpoint").write_text("0\n0\n")
    batches = [segments.simple(offset) for offset in (0, 3, 90, 6, 9, 12)]
    size = len(batches[0])
    (folder / f"{0:020}.log").write_bytes(b"".join(batches[:-1]))
    (folder / f"{0:020}.index").write_bytes(struct.pack(">ii", 11, 4 * size))
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (task,) = tasks_below(tmp_path, records=False, least=1)
    point = read_replica(task).resume_point
    assert places_read(replace(task, resume_point=point)) == [(0, 4 * size)]
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    if news == "next segment":
        (folder / f"{60:020}.log").write_bytes(segments.simple(60))
    elif news == "leader epoch":
        (folder / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n7 60\n")
    else:
        (folder / f"{60:020}.snapshot").write_bytes(snapshot([]))
    (task,) = tasks_below(tmp_path, records=False, least=1)
    found, whole = read_replica(replace(task, resume_point=point)), read_replica(task)
    found.resume_point = whole.resume_point = b""
    assert same(found, whole)


def test_a_late_time_fits_no_batch_that_stands_behind_a_higher_offset() -> None:
    rows = np.zeros((4, walking.walk_rows(0).shape[1]), np.int64)
    rows[:, walking.LAST_OFFSET], rows[:, walking.MAX_TIMESTAMP] = [3, 1, 3, 5], [5, 9, 7, 8]
    times = TimeIndex(12 * np.arange(2), np.array([5, 9]), np.array([3, 1]), 24, 12)
    begun, whole = TimeCheck(TimeIndex(*(column[:0] for column in times[:3]), 0, 36)), TimeCheck(times)
    begun.take(rows[:3])
    settled = begun.settled()
    assert settled is not None
    resumed = TimeCheck.going_on(times, settled)
    assert resumed is not None
    resumed.take(rows[3:])
    whole.take(rows)
    assert same(list(resumed.faults().events(0, 9)), list(whole.faults().events(0, 9)))


def test_a_point_does_not_grow_by_what_was_read(tmp_path: Path) -> None:
    log = Growing("healthy-41/shop.plain-0", tmp_path)
    left = []
    for size in (len(log.bytes) // 4, len(log.bytes)):
        log.grow(size)
        left.append(len(read_replica(log.task()).resume_point))
    assert left[1] < left[0] * 1.5


@pytest.mark.parametrize("most", [10, 1000, 1_000_000])
def test_what_replicas_are_compared_by_goes_on_too(most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers, or sums where the batches are more than ``most``."""
    monkeypatch.setattr(segment_checks, "MOST_KEPT", most)
    log = Growing("epochs-43/e-1", tmp_path)
    kept = set()
    for task, found, whole in looks(log, sizes(Random(4), len(log.bytes)), digests=bytes(16)):
        assert same(found, whole), task.replica.segments[-1].size
        kept.add(type(found.digests))
    assert BatchSums in kept or most == 1_000_000


def test_a_replica_that_is_read_in_parts_leaves_a_point_inside(tmp_path: Path) -> None:
    log = Growing("epochs-43/e-0", tmp_path)
    log.grow(len(log.bytes) // 2)
    (then,) = in_parts([log.task()])
    log.grow(len(log.bytes))
    task = replace(log.task(), resume_point=then.resume_point)
    assert places_read(task)[0][1] > 0
    found, whole = read_replica(task), read_replica(replace(task, resume_point=b""))
    found.resume_point = whole.resume_point = b""
    assert same(found, whole)
