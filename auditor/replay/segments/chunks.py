"""The chunks of a segment, read from its file, or on their way from a process that reads them to one that replays them.

They travel packed (:mod:`auditor.facts.packed`): a batch of a few producers takes a byte or less, where a row
as the replay reads it has 136. Payload is never in it, and checksums only where the replay asks for them.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from auditor.base.compiled import kernel
from auditor.base.errors import DecodeError
from auditor.connectors.codec.batches import FLAW_CRC, RecordSummary
from auditor.connectors.codec.gaps import offset_range
from auditor.connectors.codec.records import DTYPES
from auditor.connectors.codec.segment import Chunk, before, read_segment
from auditor.connectors.stores.remote_files import Coming
from auditor.connectors.stores.storage import BinaryFile, open_file, read_file
from auditor.connectors.tables.internal_rows import PACKED
from auditor.facts.packed import packed_table, unpacked_table
from auditor.replay.producers.bounds import intact_from, known_of, log_start_of
from auditor.replay.segments.segment_checks import SegmentChecks, SegmentOutcome, checked
from auditor.replay.segments.segment_point import SegmentPoint
from auditor.replay.segments.validated import look_of, packed_answers, unpacked_answers
from auditor.replay.task.batch_records import as_records
from auditor.replay.task.replica_task import ReplicaTask

PackedRow = tuple[int, int, int, bytes]  # replica, segment, number of the row in it, and what unpacked_row() takes


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """A segment of a replica that is read in parts: ``number`` is that of the segment, ``replica`` that of ``task``.

    ``also``: other replicas that have the same segment in remote storage, and its number there.
    """

    task: ReplicaTask
    replica: int
    number: int
    also: tuple[tuple[int, int], ...] = ()

    @property
    def size(self) -> int:
        """Bytes of the segment."""
        return self.task.replica.segments[self.number].size

    def coming(self) -> Iterator[Coming]:
        """Its files of stores."""
        return self.task.segment_coming(self.number)


def shared_key(task: ReplicaTask, number: int) -> Hashable | None:
    """What is in a segment depends on it, where other replicas may have the same one: it lies in remote storage.

    The chunks end where the replica's next segment begins, and none of them carries records as they are stored. Its
    indexes are compared with the records that are judged.
    """
    segment, behind = task.replica.segments[number], task.replica.segments[number + 1 : number + 2]
    if segment.place is None or task.has_internal_rows:
        return None
    judged = (log_start_of(task), intact_from(task)) if task.records else None
    until = behind[0].base_offset if behind else -1
    wanted = task.records, task.digests, task.limits
    return segment.place, segment.name, segment.index, segment.timeindex, until, judged, *wanted


class Span(NamedTuple):
    """The part of a segment to read, bytes [``start``, ``end``), -1 for all that follows. ``lowest``: that the batch at
    ``start`` may have as its offset; ``pause`` as of :func:`auditor.connectors.codec.segment.read_segment`."""

    start: int = 0
    end: int = -1
    lowest: int = -1
    pause: int = -1


WHOLE = Span()


def read_chunks(task: ReplicaTask, number: int, span: Span = WHOLE) -> Iterator[Chunk] | DecodeError:
    """The chunks of a replica's segment, of which there is at least one, or why its file could not be opened."""
    segment = task.replica.segments[number]
    f = open_file(segment.place or task.place, segment.name)
    return f if isinstance(f, DecodeError) else _chunks(f, task, number, span)


def read_checked(task: ReplicaTask, number: int) -> Iterator[Chunk | SegmentOutcome | SegmentPoint]:
    """What is in a replica's segment: its chunks, and what it comes to by itself."""
    checks = SegmentChecks(task, number, read_file)
    return checked(checks, read_chunks(task, number, Span(pause=checks.pause)))


def read_behind(
    task: ReplicaTask, checks: SegmentChecks, point: SegmentPoint
) -> Iterator[Chunk | SegmentOutcome | SegmentPoint]:
    """The same of what lies behind a point, by checks that go on from there."""
    span = Span(point.position, lowest=point.next_offset, pause=checks.pause)
    return checked(checks, read_chunks(task, checks.number, span))


def _chunks(f: BinaryFile, task: ReplicaTask, number: int, span: Span) -> Iterator[Chunk]:
    segment, behind = task.replica.segments[number], task.replica.segments[number + 1 : number + 2]
    lowest, until = offset_range(segment.base_offset, behind[0].base_offset if behind else -1)
    with contextlib.closing(f):
        chunks = read_segment(
            f,
            segment.size if span.end < 0 else span.end,
            file=segment.name,
            start=span.start,
            pause=span.pause,
            limits=task.limits,
            records=task.records,
            offsets=(lowest if span.lowest < 0 else span.lowest, until),
            held=task.replica.topic in PACKED,
            raw=task.has_internal_rows and task.replica.topic not in PACKED,
            known=known_of(task, number),
            look=look_of(task),
        )
        # Remote segments of different leaders overlap; a broker's own never do where they are sound.
        remote = segment.place is not None and behind
        yield from before(chunks, behind[0].base_offset) if remote else chunks


Part = Chunk | SegmentPoint | SegmentOutcome  # of a segment


def read_packed(part: SegmentTask) -> Iterator[PackedRow]:
    """A row a chunk of a segment, one after the other, and one for what it comes to by itself."""
    for number, item in enumerate(read_checked(part.task, part.number)):
        row = packed_row(item)
        for replica, segment in ((part.replica, part.number), *part.also):
            yield replica, segment, number, row


def packed_row(item: Part) -> bytes:
    """What is in a segment on its way to who replays it."""
    if not isinstance(item, Chunk):
        return pickle.dumps(item, 5)
    _forget_checksums(as_records(item.rows))
    return pickle.dumps(packed(item), 5)


def unpacked_row(data: bytes | pa.Buffer) -> Part:
    """What was given to :func:`packed_row`, which nobody but this program does: it is a pickle."""
    row: bytes | SegmentPoint | SegmentOutcome = pickle.loads(data)
    return unpacked(row) if isinstance(row, bytes) else row


def packed(chunk: Chunk) -> bytes:
    """A chunk without raw bytes. Cost: some 40 ns a batch."""
    summary = None if chunk.summary is None else packed_table(np.stack(chunk.summary, axis=1, dtype=np.int64))
    looked = None if chunk.looked is None else packed_answers(chunk.looked)
    errors = chunk.errors, chunk.body_errors
    return pickle.dumps(
        (packed_table(chunk.rows), *errors, summary, looked, chunk.end, chunk.next_offset, chunk.flipped), 5
    )


def unpacked(data: bytes) -> Chunk:
    """What was given to :func:`packed`, which nobody but this program does: it is a pickle."""
    packed_rows, errors, body_errors, found, looked, end, following, flipped = pickle.loads(data)
    rows = unpacked_table(packed_rows)
    summary = None
    if found is not None:
        columns = zip(unpacked_table(found).T, DTYPES, strict=True)
        summary = RecordSummary(*(np.ascontiguousarray(column, dtype) for column, dtype in columns))
    answers = None if looked is None else unpacked_answers(looked, len(rows))
    return Chunk(rows, errors, body_errors, summary, None, end, next_offset=following, looked=answers, flipped=flipped)


@kernel
def _forget_checksums(batches: np.ndarray) -> None:
    """Leaves those that the replay asks for: of batches that are broken, or that begin at sequence 0 and may be there
    twice (:mod:`auditor.replay.producers.explanations`). Nothing compresses the others."""
    for at in range(len(batches)):
        batch = batches[at]
        if not batch.flaws & FLAW_CRC and batch.base_sequence != 0:
            batch.crc = 0
