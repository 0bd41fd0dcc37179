"""A reading that goes on where an earlier one stood leaves the facts of one that reads all, over every corpus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from auditor.base.errors import DecodeError
from auditor.connectors.codec.segment import Chunk
from auditor.connectors.logdir.files import DataFile
from auditor.connectors.logdir.inventory import discover
from auditor.facts.replica_facts import ReplicaFacts
from auditor.pipeline import cluster_settings, plan
from auditor.pipeline.options import AuditOptions
from auditor.replay.reading import chunks, replica_reader
from auditor.replay.reading.chunks import ByteRange, read_chunks
from auditor.replay.reading.replica_reader import read_replica
from auditor.replay.task import ReplicaTask
from tests import corpora
from tests.whole.test_split import same

NAMES = [*corpora.names(), *corpora.campaigns()]
SEGMENTS = "altered-41"  # of which most replicas have three segments


@pytest.fixture(autouse=True)
def every_replica_leaves_a_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_reader, "FROM_BYTES", 1)
    monkeypatch.setattr(replica_reader, "BYTES_A_PRODUCER", 0)


def tasks_below(path: Path, *, records: bool = True, least: int = 2) -> list[ReplicaTask]:
    """The replicas of ``least`` segments, as a watch asks for them."""
    options = AuditOptions((str(path),), Path(), records=records)
    inventory = discover([str(path)], options.limits)
    settings, _ = cluster_settings.read_settings(inventory, options.limits)
    found = plan.replica_tasks(inventory, settings, options)
    return [
        replace(t, leaves_resume_point=True)
        for t in found
        if isinstance(t, ReplicaTask) and len(t.replica.segments) >= least
    ]


def earlier(task: ReplicaTask, count: int, *, indexed: bool = True) -> ReplicaTask:
    """The same replica when its segment number ``count`` was the last, half of it written.

    Not ``indexed``: without the index that a point inside of it needs.
    """
    *closed, last = task.replica.segments[: count + 1]
    last = replace(last, size=last.size // 2, index=last.index if indexed else None)
    snapshots = tuple(s for s in task.replica.snapshots if s.offset <= last.base_offset)
    return replace(task, replica=replace(task.replica, segments=(*closed, last), snapshots=snapshots))


def read(task: ReplicaTask) -> ReplicaFacts:
    """Its facts, without the point that it leaves in its turn."""
    facts = read_replica(task)
    facts.resume_point = b""
    return facts


def places_read(task: ReplicaTask) -> list[tuple[int, int]]:
    """The numbers of the segments whose files a reading opens, and the byte from which on it reads each."""
    opened: list[tuple[int, int]] = []

    def spying(task: ReplicaTask, number: int, span: ByteRange) -> Iterator[Chunk] | DecodeError:
        opened.append((number, span.start))
        return read_chunks(task, number, span)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "read_chunks", spying)
        read_replica(task)
    return opened


def segments_read(task: ReplicaTask) -> list[int]:
    """The numbers of the segments of which it reads all."""
    return [number for number, start in places_read(task) if start == 0]


@pytest.mark.parametrize("name", NAMES)
def test_a_reading_that_goes_on_leaves_what_one_from_the_start_does(name: str) -> None:
    for task in tasks_below(corpora.unpack(name)):
        whole = read(task)
        for count in range(1, len(task.replica.segments)):
            point = read_replica(earlier(task, count)).resume_point
            found = read(replace(task, resume_point=point))
            assert same(found, whole), (task.replica.folder, count)


def test_only_the_segments_behind_the_point_are_read() -> None:
    task = next(t for t in tasks_below(corpora.unpack(SEGMENTS)) if len(t.replica.segments) == 3)
    points = [read_replica(earlier(task, count, indexed=False)).resume_point for count in (1, 2)]
    assert [segments_read(replace(task, resume_point=point)) for point in (b"", *points)] == [[0, 1, 2], [1, 2], [2]]


@pytest.mark.parametrize(
    "change", ["log start", "closed segment", "leader epoch", "snapshot", "setting", "first segment"]
)
def test_what_lies_below_the_point_must_be_as_it_was(change: str) -> None:
    """Or the replica is read from its first segment, whatever the point says."""
    task = next(t for t in tasks_below(corpora.unpack(SEGMENTS)) if len(t.replica.segments) == 3)
    replica, base = task.replica, task.replica.segments[2].base_offset
    first, *others = replica.segments
    below = replace(
        replica, snapshots=(DataFile("00000000000000000001.snapshot", 0, "snapshot", 1), *replica.snapshots)
    )
    changed = {
        "log start": replace(task, log_start=base - 1),
        "closed segment": replace(
            task, replica=replace(replica, segments=(replace(first, size=first.size - 1), *others))
        ),
        "leader epoch": replace(task, replica=replace(replica, leader_epochs=None)),
        "snapshot": replace(task, replica=below),
        "setting": replace(task, expiration_ms=1),
        "first segment": replace(task, replica=replace(replica, segments=tuple(others))),
    }[change]
    point = read_replica(earlier(task, 2)).resume_point
    assert segments_read(replace(changed, resume_point=point)) == list(range(len(changed.replica.segments)))
    assert same(read(replace(changed, resume_point=point)), read(changed))


def test_small_logs_leave_none(monkeypatch: pytest.MonkeyPatch) -> None:
    task = next(t for t in tasks_below(corpora.unpack(SEGMENTS)) if len(t.replica.segments) == 3)
    task = earlier(task, 2, indexed=False)
    closed = sum(segment.size for segment in task.replica.segments[:-1])
    left = []
    for limit in (closed, closed + 1):
        monkeypatch.setattr(replica_reader, "FROM_BYTES", limit)
        left.append(bool(read_replica(task).resume_point))
    assert left == [True, False]
    monkeypatch.setattr(replica_reader, "FROM_BYTES", 1)
    assert not read_replica(replace(task, leaves_resume_point=False)).resume_point
    monkeypatch.setattr(replica_reader, "BYTES_A_PRODUCER", closed + 1)  # there is one at least
    assert not read_replica(task).resume_point
