"""Replicas read in parts: packed chunks replay as the files themselves do, and only what must be is divided."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from auditor.base.errors import DecodeError
from auditor.connectors.codec import segment
from auditor.connectors.codec.segment import Chunk
from auditor.connectors.logdir.files import Replica, SegmentFile
from auditor.connectors.logdir.internal_rows import TABLES
from auditor.connectors.logdir.inventory import discover
from auditor.connectors.stores.storage import StorageLocation
from auditor.facts import packed as facts_packed
from auditor.facts.batch_sums import BatchSums
from auditor.facts.events import EventKind
from auditor.facts.packed import PackedColumns
from auditor.facts.replica_facts import ReplicaFacts
from auditor.pipeline import cluster_settings, plan
from auditor.pipeline.options import AuditOptions
from auditor.processes.isolation import read_apart
from auditor.replay.producers.audit_replay import INTERNAL_TOPICS
from auditor.replay.reading import chunks, segment_checks
from auditor.replay.reading.chunks import PackedRow, packed, read_chunks, read_packed, unpacked, unpacked_parts
from auditor.replay.reading.replica_reader import read_replica
from auditor.replay.reading.segment_checks import SegmentOutcome
from auditor.replay.task import KeptTask, ReplicaTask
from auditor.spark.jobs import CHUNKS_ARROW, _rows, list_packed, replay
from tests import corpora
from tests.crashing_files import CrashingPlace

MIB = 1 << 20
NOW = 1_700_000_000_000
SEGMENTS = "altered-41"  # of which most replicas have three segments
NAMES = [*corpora.names(), *corpora.campaigns()]


def tasks_below(path: Path, *, records: bool = True) -> list[ReplicaTask]:
    options = AuditOptions((str(path),), Path(), records=records)
    inventory = discover([str(path)], options.limits)
    settings, _ = cluster_settings.read_settings(inventory, options.limits)
    found = plan.replica_tasks(inventory, settings, options)
    return [t for t in found if isinstance(t, ReplicaTask) and t.replica.segments and not plan.reads_records(t)]


def same(one: object, other: object) -> bool:
    """Equal in everything, types and arrays' bytes too: pickles of the same things with nothing shared."""
    return plain(one) == plain(other)


def plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, PackedColumns | BatchSums):
        return plain(vars(value))
    if isinstance(value, dict):
        return [(k, plain(v)) for k, v in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [plain(v) for v in value]
    if hasattr(value, "__dataclass_fields__"):
        return type(value), [plain(getattr(value, name)) for name in value.__dataclass_fields__]
    return type(value), pickle.dumps(value, 5) if isinstance(value, pa.Table) else value


def in_parts(tasks: list[ReplicaTask], rows_each: int = 3) -> list[ReplicaFacts]:
    """What the two stages give, without Spark between them."""
    return replayed([row for part in plan.segment_tasks(tasks) for row in read_packed(part)], tasks, rows_each)


def replayed(rows: list[PackedRow], tasks: list[ReplicaTask], rows_each: int = 3) -> list[ReplicaFacts]:
    """What the second stage gives of rows in the order of the log."""
    of_log = [(0, *row) for row in rows]
    table = pa.Table.from_pydict(
        {name: [row[k] for row in of_log] for k, name in enumerate(CHUNKS_ARROW.names)}, schema=CHUNKS_ARROW
    )
    arrived = (row for _, row in _rows(iter(table.to_batches(max_chunksize=rows_each))))
    return list(replay(arrived, dict(enumerate(tasks))))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("records", [False, True])
def test_packed_chunks_replay_as_files_do(name: str, records: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "ROWS", 7)  # of a chunk, so that a small segment has many
    tasks = tasks_below(corpora.unpack(name), records=records)
    whole = [read_replica(task) for task in tasks]
    assert whole
    for ours, theirs in zip(in_parts(tasks), whole, strict=True):
        assert same(ours, theirs), (theirs.log_dir, theirs.topic, theirs.partition)


def test_sums_of_long_replicas_are_the_same_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "ROWS", 7)
    monkeypatch.setattr(segment_checks, "MOST_KEPT", 50)
    tasks = tasks_below(corpora.unpack("replicas-41"))
    whole = [read_replica(task) for task in tasks]
    assert any(isinstance(facts.digests, BatchSums) for facts in whole)
    assert all(map(same, in_parts(tasks), whole))


def test_every_chunk_comes_out_as_it_went_in() -> None:
    chunks = 0
    for name in ("altered-41", "legacy-0102"):
        for task in tasks_below(corpora.unpack(name)):
            for number in range(len(task.replica.segments)):
                read = read_chunks(task, number)
                assert not isinstance(read, DecodeError)
                for chunk in read:
                    back = unpacked(packed(chunk))
                    assert isinstance(back, Chunk)
                    flags = back.rows.flags
                    assert (flags.c_contiguous, flags.writeable) == (True, True)  # or kernels compile once more
                    assert same(back, chunk)
                    chunks += 1
    assert chunks > 10


def test_any_number_comes_out_as_it_went_in() -> None:
    """Steps between the ends of the range overflow, and are undone by the same overflow."""
    ends = np.array([-(2**63), 2**63 - 1, 0, -1, 2**63 - 1, -(2**63), 127, -128, 2**31, -(2**31)], np.int64)
    rows = np.array([np.roll(ends, k) for k in range(17)]).T
    errors = [DecodeError("f", 1, 2, "bad_size", "a detail")]
    back = unpacked(packed(Chunk(rows, errors, [], None, None, 77)))
    assert isinstance(back, Chunk)
    assert (back.rows == rows).all()
    assert (back.errors, back.body_errors, back.end, back.summary, back.raw) == (errors, [], 77, None, None)
    empty = unpacked(packed(Chunk(rows[:0], [], errors, None, None, 0)))
    assert isinstance(empty, Chunk)
    assert (empty.rows.shape, empty.errors, empty.body_errors) == ((0, 17), [], errors)


def altered(path: Path, position: int, value: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[position : position + len(value)] = value
    path.write_bytes(data)


def wrong_index_entry(log: Path) -> None:
    entries = np.array([(1, 7), (2, 10**8)], [("offset", ">i4"), ("position", ">i4")])
    log.with_suffix(".index").write_bytes(entries.tobytes())


def wrong_time_index_entry(log: Path) -> None:
    entries = np.array([(1, 2), (0, 3), (9, 10**6)], [("time", ">i8"), ("offset", ">i4")])
    log.with_suffix(".timeindex").write_bytes(entries.tobytes())


def wrong_transaction_index(log: Path) -> None:
    entry = struct.pack(">hqqqq", 0, 4711, 1, 2, 3)
    log.with_suffix(".txnindex").write_bytes(entry + b"half an entry")


def torn_tail(log: Path) -> None:
    log.write_bytes(log.read_bytes()[:-5])


def zeros_behind(log: Path) -> None:
    log.write_bytes(log.read_bytes() + bytes(300))


def broken_batch(log: Path) -> None:
    altered(log, log.stat().st_size - 3, b"\xff")


def wrong_length(log: Path) -> None:
    altered(log, 8, struct.pack(">i", 20))


def unknown_magic(log: Path) -> None:
    altered(log, 16, b"\x03")


DAMAGE = {
    wrong_index_entry: EventKind.INDEX_ENTRY,
    wrong_time_index_entry: EventKind.TIME_INDEX_ENTRY,
    broken_batch: EventKind.CRC,
    wrong_transaction_index: None,
    torn_tail: None,
    zeros_behind: None,
    wrong_length: None,
    unknown_magic: None,
}


@pytest.mark.parametrize("place", [0, 5, -1], ids=["first", "middle", "last"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_the_same_in_parts(
    damage: Callable[[Path], None], place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment, "ROWS", 3)
    monkeypatch.setattr(facts_packed, "PIECE", 20)  # rows; a segment has some 40
    corpora.copy("lively-40", tmp_path)
    (task,) = [t for t in tasks_below(tmp_path) if t.replica.folder == "shop.short-0"]
    before = read_replica(task)
    assert before.digests is None
    damage(Path(task.place.path, task.replica.segments[place].name))
    (task,) = [t for t in tasks_below(tmp_path) if t.replica.folder == "shop.short-0"]
    whole = read_replica(task)
    for one in (task, replace(task, digests=True)):
        (parts,) = in_parts([one])
        assert same(parts, read_replica(one))
    number = place % len(task.replica.segments)
    if (kind := DAMAGE[damage]) is None:
        assert whole.errors != before.errors
    else:
        assert number in whole.events[whole.events["kind"] == kind]["segment"]
    if damage in (torn_tail, broken_batch, wrong_length):
        assert (whole.scans[number].cut >= 0, before.scans[number].cut) == (True, -1)


def test_files_that_are_gone_or_kill_their_reader_are_reported_as_ever(tmp_path: Path) -> None:
    tasks = tasks_below(corpora.copy(SEGMENTS, tmp_path))
    task = max(tasks, key=lambda t: len(t.replica.segments))
    victim = task.replica.segments[0].name
    Path(task.place.path, victim).unlink()
    (facts,) = in_parts([task])
    assert same(facts, read_replica(task))
    assert [(e.file, e.reason) for e in facts.errors] == [(victim, "vanished")]


def test_a_segment_that_kills_its_reader_is_refused_by_name() -> None:
    task = tasks_below(corpora.unpack("unknown-producer-41"))[0]
    file = task.replica.segments[0].name
    crashing = replace(task, place=CrashingPlace(*task.place, file, "segfault", ""))  # type: ignore[arg-type]
    ((replica, number, chunk, data),) = next(read_apart(plan.segment_tasks([crashing])[:1], list_packed))
    assert (replica, number, chunk) == (0, 0, 0)
    (outcome,) = unpacked_parts(data)
    assert isinstance(outcome, SegmentOutcome)
    said = DecodeError(file, 0, task.replica.segments[0].size, "unreadable", "reading it ends the process: SIGSEGV")
    assert outcome.unopened == said


def test_a_chunk_that_does_not_arrive_is_an_error_not_a_shorter_log(monkeypatch: pytest.MonkeyPatch) -> None:
    task = next(t for t in tasks_below(corpora.unpack(SEGMENTS)) if len(t.replica.segments) > 1)
    rows = [row for part in plan.segment_tasks([task])[1:] for row in read_packed(part)]
    with pytest.raises(RuntimeError, match="segment 0 of a replica did not arrive"):
        replayed(rows, [task])
    first = next(read_packed(plan.segment_tasks([task])[0]))
    with pytest.raises(RuntimeError, match="segment 1 of a replica did not arrive, but None did"):
        replayed([first], [task])
    monkeypatch.setattr(chunks, "PARTS_OF_A_ROW", 1)
    (first, _, *_) = [row for part in plan.segment_tasks([task]) for row in read_packed(part)]
    with pytest.raises(RuntimeError, match="the end of segment 0 of a replica did not arrive"):
        replayed([first], [task])


def made(partition: int, mib: int, topic: str = "orders", segments: int = 4) -> ReplicaTask:
    files = tuple(SegmentFile(f"{k}.log", k, mib * MIB // segments) for k in range(segments))
    replica = Replica("logs", topic, partition, f"{topic}-{partition}", segments=files)
    return ReplicaTask(StorageLocation("", ""), replica, None, None, "", False)


def test_only_what_is_too_large_for_a_task_is_divided() -> None:
    small = [made(p, 4000) for p in range(10)]
    large = made(10, 4200)
    assert plan.divide([*small, large]) == ([[large]], small)
    assert plan.divide(small) == ([], small)


def test_the_log_of_a_large_replica_is_divided_as_a_whole() -> None:
    """All its replicas meet in one task, though others are small, or of one segment, or kept already."""
    large, small, lone = made(1, 4200), made(1, 1), made(1, 1, segments=1)
    kept = [KeptTask(task, b"", at) for task, at in ((large, None), (large, ("file", 0)), (small, ("file", 1)))]
    other = made(2, 1)
    assert plan.divide([small, other, large, lone]) == ([[small, large, lone]], [other])
    assert plan.divide([kept[0], other, kept[2]]) == ([[kept[0], kept[2]]], [other])
    assert plan.divide([*kept[1:], other]) == ([], [*kept[1:], other]), "nothing of it is to be read"


def test_lists_are_cut_by_bytes_and_small_inputs_by_cores() -> None:
    a_tebibyte = [made(p, 1023) for p in range(1024)]
    assert {plan.list_count(a_tebibyte, cores) for cores in (1, 2, 500)} == {1024}
    assert plan.list_count(a_tebibyte, 2000) == 4000
    assert plan.list_count([made(p, 1) for p in range(10)], 2000) == 2  # 10 MiB
    assert plan.list_count([made(p, 1) for p in range(200)], 2000) == 13  # 200 times 1 MiB and 50 000, by 16 MiB
    assert plan.list_count([made(p, 1) for p in range(200)], 2) == 4
    assert plan.list_count([], 2) == 2
    assert plan.list_count([made(p, 0) for p in range(plan.LIST_REPLICAS * 3 + 1)], 1) == 4


@pytest.mark.parametrize(
    "task", [made(0, 4000, segments=1), *(made(0, 4000, topic=t) for t in sorted({*INTERNAL_TOPICS, *TABLES}))]
)
def test_lone_segments_and_internal_topics_stay_whole(task: ReplicaTask) -> None:
    assert plan.divide([task]) == ([], [task])


def test_every_segment_is_read_once_by_lists_of_like_size() -> None:
    tasks = [made(0, 4000), made(1, 3000, segments=30)]
    lists = list(plan.spread(plan.segment_tasks(tasks), 4))
    read = sorted((part.replica, part.number) for part in (p for some in lists for p in some))
    assert read == [(0, n) for n in range(4)] + [(1, n) for n in range(30)]
    loads = [sum(part.size for part in some) for some in lists]
    assert max(loads) - min(loads) <= 100 * MIB  # the smallest segment
    assert sum(loads) == sum(s.size for t in tasks for s in t.replica.segments)
