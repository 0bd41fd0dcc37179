"""Chunks of a segment, and headers of its batches."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from auditor.base.compiled import kernel
from auditor.base.errors import DamagedField, DecodeError, Limits
from auditor.connectors.codec.batches import (
    FLAW_CRC,
    OVERHEAD,
    BatchColumns,
    RecordSummary,
    columns_of,
    open_wrappers,
    walk,
    walk_rows,
)
from auditor.connectors.codec.gaps import offset_range
from auditor.connectors.codec.records import DTYPES, Decoded, decode_records
from auditor.connectors.codec.segment import Chunk, StoredChunks, before, read_segment
from auditor.connectors.logdir.internal_rows import PACKED
from auditor.connectors.stores.remote_files import Coming
from auditor.connectors.stores.storage import BinaryFile, open_file, read_file
from auditor.facts.arrow_codec import Codec
from auditor.facts.events import Culprits, Event, EventKind, events_of
from auditor.facts.packed import Packed, packed_table, unpacked_table
from auditor.facts.replica_facts import ReplicaFacts, log_of
from auditor.model import batch_validation
from auditor.model.batch_validation import Topic
from auditor.replay.producers.audit_replay import intact_from, known_of, log_start_of
from auditor.replay.producers.kernel import AHEAD_MS
from auditor.replay.reading.record_checks import (
    ANY_TIME,
    Sender,
    as_sent,
    look_of,
    model_answers,
    oldest,
    packed_answers,
    sent_records,
    unpacked_answers,
)
from auditor.replay.reading.segment_checks import (
    STAND_INS,
    SegmentChecks,
    SegmentOutcome,
    SegmentPoint,
    checked,
    read_again,
)
from auditor.replay.task import ReplicaTask, as_records

# Chunks of a segment, read from its file, or packed for the process that replays them.
#
# They travel packed (:mod:`auditor.facts.packed`): a batch of a few producers takes a byte or less, where a row as
# the replay reads it has 136. Payload is never included, and checksums only where the replay needs them.


PackedRow = tuple[int, int, int, bytes]  # replica, segment, number of the row in it, packed_parts()


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """A segment of a replica that is read in parts: ``number`` is that of the segment, ``replica`` that of ``task``.

    ``also``: other replicas that share the remote segment, and its number there.
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
        """Yield its files in stores."""
        return self.task.segment_coming(self.number)


def shared_key(task: ReplicaTask, number: int) -> Hashable | None:
    """Return a key of a remote segment's content, equal for replicas that share it; None for other segments.

    The chunks end where the replica's next segment begins, and none of them has records as stored. Its indexes are
    compared with the records that are judged.
    """
    segment, behind = task.replica.segments[number], task.replica.segments[number + 1 : number + 2]
    if segment.place is None or task.has_internal_rows:
        return None
    judged = (log_start_of(task), intact_from(task)) if task.records else None
    until = behind[0].base_offset if behind else -1
    wanted = task.records, task.digests, task.sum_key, task.limits
    return segment.place, segment.name, segment.index, segment.timeindex, until, judged, *wanted


class ByteRange(NamedTuple):
    """The part of a segment to read, bytes [``start``, ``end``), -1 for all that follows.

    ``lowest``: lower bound of the offset of the batch at ``start``; ``pause`` as of
    :func:`auditor.connectors.codec.segment.read_segment`.
    """

    start: int = 0
    end: int = -1
    lowest: int = -1
    pause: int = -1


WHOLE = ByteRange()


def read_chunks(task: ReplicaTask, number: int, span: ByteRange = WHOLE) -> Iterator[Chunk] | DecodeError:
    """Return the chunks of a replica's segment, at least one, or why its file could not be opened."""
    segment = task.replica.segments[number]
    f = open_file(segment.place or task.place, segment.name)
    return f if isinstance(f, DecodeError) else _chunks(f, task, number, span)


def read_checked(task: ReplicaTask, number: int) -> Iterator[Chunk | SegmentOutcome | SegmentPoint]:
    """Yield the chunks of a replica's segment, and its outcome."""
    checks = SegmentChecks(task, number, read_file)
    return checked(checks, read_chunks(task, number, ByteRange(pause=checks.pause)))


def read_behind(
    task: ReplicaTask, checks: SegmentChecks, point: SegmentPoint
) -> Iterator[Chunk | SegmentOutcome | SegmentPoint]:
    """Yield the chunks after a resume point, and the outcome, by checks that resume there."""
    span = ByteRange(point.position, lowest=point.next_offset, pause=checks.pause)
    return checked(checks, read_chunks(task, checks.number, span))


def _chunks(f: BinaryFile, task: ReplicaTask, number: int, span: ByteRange) -> Iterator[Chunk]:
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
            keep_bytes=task.replica.topic in PACKED or bool(task.sum_key),
            raw=task.has_internal_rows and task.replica.topic not in PACKED,
            context=known_of(task, number),
            look=look_of(task),
        )
        # Remote segments of different leaders overlap; a broker's own never do where they are sound.
        remote = segment.place is not None and behind
        yield from (chunk.bounded() for chunk in (before(chunks, behind[0].base_offset) if remote else chunks))


Part = Chunk | SegmentPoint | SegmentOutcome  # of a segment


class PackedChunk(NamedTuple):
    """A chunk without raw bytes. ``looked``: as of :func:`auditor.replay.reading.record_checks.packed_answers`."""

    rows: list[Packed]
    errors: list[DecodeError]
    body_errors: list[DecodeError]
    summary: list[Packed] | None
    looked: tuple[np.ndarray, bytes] | None
    end: int
    next_offset: int
    flipped: tuple[DecodeError, ...]


class PackedPart(NamedTuple):
    """A part of a segment for the process that replays it."""

    part: PackedChunk | SegmentPoint | SegmentOutcome


PARTS_AT_REST = Codec(PackedPart, lambda: STAND_INS)
PARTS_OF_A_ROW = 16  # packing one alone takes 0.4 ms longer


def read_packed(part: SegmentTask) -> Iterator[PackedRow]:
    """Yield rows of chunks of a segment, one after the other, and of its outcome."""
    for number, row in enumerate(packed_parts(read_checked(part.task, part.number))):
        for replica, segment in ((part.replica, part.number), *part.also):
            yield replica, segment, number, row


def packed_parts(parts: Iterable[Part]) -> Iterator[bytes]:
    """Pack the parts of a segment for the process that replays it, :data:`PARTS_OF_A_ROW` together."""
    waiting = []
    for part in parts:
        if isinstance(part, Chunk):
            _forget_checksums(as_records(part.rows))
        waiting.append(PackedPart(packed(part) if isinstance(part, Chunk) else part))
        # A point has what the checks have counted so far, which they change as they read on.
        if len(waiting) == PARTS_OF_A_ROW or isinstance(part, SegmentPoint):
            yield PARTS_AT_REST.pack(waiting)
            waiting = []
    if waiting:
        yield PARTS_AT_REST.pack(waiting)


def unpacked_parts(row: bytes | pa.Buffer) -> Iterator[Part]:
    """Unpack a row of :func:`packed_parts`."""
    for part, *_ in PARTS_AT_REST.unpack(row):
        yield unpacked(part) if isinstance(part, PackedChunk) else part


def packed(chunk: Chunk) -> PackedChunk:
    """Pack a chunk without raw bytes. Cost: some 40 ns per batch."""
    summary = None if chunk.summary is None else packed_table(np.stack(chunk.summary, axis=1, dtype=np.int64))
    looked = None if chunk.looked is None else packed_answers(chunk.looked)
    errors = list(chunk.errors), list(chunk.body_errors)
    return PackedChunk(packed_table(chunk.rows), *errors, summary, looked, chunk.end, chunk.next_offset, chunk.flipped)


def unpacked(stored: PackedChunk) -> Chunk:
    """Unpack :func:`packed`."""
    rows = unpacked_table(stored.rows)
    summary = None
    if stored.summary is not None:
        columns = zip(unpacked_table(stored.summary).T, DTYPES, strict=True)
        summary = RecordSummary(*(np.ascontiguousarray(column, dtype) for column, dtype in columns))
    answers = None if stored.looked is None else unpacked_answers(stored.looked, len(rows))
    errors = list(stored.errors), list(stored.body_errors)
    return Chunk(
        rows, *errors, summary, None, stored.end, next_offset=stored.next_offset, looked=answers, flipped=stored.flipped
    )


# Facts at rest: those of whole logs, in Spark rows, between processes and in work folders.


FACTS_AT_REST = Codec(ReplicaFacts, lambda: STAND_INS)


def logs_of(packed: Iterable[bytes]) -> Iterator[list[ReplicaFacts]]:
    """Yield the replicas of each log; those of a log are one after the other."""
    for some in packed:
        for _, of_log in itertools.groupby(FACTS_AT_REST.unpack(some), log_of):
            yield list(of_log)


@kernel
def _forget_checksums(batches: np.ndarray) -> None:
    """Zero the checksums that the replay does not need, which do not compress.

    It needs those of broken batches, and of batches that begin at sequence 0 and may be repeated
    (:mod:`auditor.replay.producers.explanations`).
    """
    for row in range(len(batches)):
        batch = batches[row]
        if not batch.flaws & FLAW_CRC and batch.base_sequence != 0:
            batch.crc = 0


# Records to blame for a refused batch: it is read again and put to the model's validator, with the broker's clock as
# known by now.
#
# Reading summarises a batch in one row, with the first culprit alone: few batches have any, and a list for each would
# cost every healthy one.


BATCHES_OF_A_KIND = 100  # the first of a replica; of those beyond, findings name the first culprit
RECORDS_OF_A_BATCH = 10_000  # named of one batch
BLAMED = (EventKind.NULL_KEY, EventKind.RECORD_FLAW, EventKind.RECORD_TIMESTAMP, EventKind.TIMESTAMP_AHEAD)
Opened = tuple[BatchColumns, Decoded]  # one batch, and its records


class Where(NamedTuple):
    """A batch with culprits, among others records stamped before ``oldest`` or after ``newest`` (ms)."""

    segment: int
    position: int
    oldest: int = ANY_TIME[0]
    newest: int = ANY_TIME[1]


def culprits_of(
    facts: ReplicaFacts, opened: Callable[[int, int], Opened | None], before_ms: int | None, sender: Sender
) -> dict[tuple[int, int], Culprits]:
    """Return the culprits of a replica's batches by segment number and position.

    ``opened`` returns a batch by these, None where it cannot. Cost: some hundred batches at most are read again.
    """
    out = {}
    hidden = {(e.file, e.position) for e in facts.errors if (field := DamagedField.of(e)) and field.hides}
    for where in _batches(facts, before_ms):
        if hidden and (facts.segments[where.segment], where.position) in hidden:
            continue  # as it is stored it is no batch, or another
        batch = opened(where.segment, where.position)
        if batch is not None:
            topic = Topic(sender.compacted, False, where.oldest, where.newest)
            out[where.segment, where.position] = _culprits(batch[1], batch[0], topic, sender)
    return out


def opened_batch(task: ReplicaTask, number: int, position: int) -> Opened | None:
    """Read the batch at a position of a replica's segment again, with its records."""
    segment, limits = task.replica.segments[number], task.limits
    place = segment.place or task.place
    f = open_file(place, segment.name)
    if isinstance(f, DecodeError):
        return None
    with contextlib.closing(f):
        if isinstance(f, StoredChunks):
            return f.batch(position, limits)
    return batch_of(lambda size: read_again(task, number, position, size), limits)


def batch_of(read: Callable[[int], bytes | None], limits: Limits) -> Opened | None:
    """Decode a batch from its stored bytes, of which ``read`` returns the first so many."""
    head = read(OVERHEAD)
    size = OVERHEAD + int.from_bytes(head[8:], "big", signed=True) if head and len(head) == OVERHEAD else 0
    stored = read(size) if OVERHEAD < size <= limits.max_batch_bytes else None
    return _decoded(stored, limits) if stored is not None and len(stored) == size else None


def _batches(facts: ReplicaFacts, before_ms: int | None) -> Iterator[Where]:
    """Every batch of which an event blames a record, once."""
    wanted: dict[tuple[int, int], Where] = {}
    for kind in BLAMED:
        for number, e in enumerate(events_of(facts.events, kind)):
            if number >= BATCHES_OF_A_KIND:
                break
            place = (int(e["segment"]), int(e["position"]))
            before = wanted.get(place, Where(*place))
            wanted[place] = before._replace(**_limits_of(kind, e, before_ms))
    if facts.ahead is not None and facts.broker_time >= 0:
        place = (facts.ahead.segment, facts.ahead.position)
        wanted[place] = wanted.get(place, Where(*place))._replace(newest=facts.broker_time + AHEAD_MS)
    yield from wanted.values()


def _limits_of(kind: EventKind, e: Event, before_ms: int | None) -> dict[str, int]:
    if kind is EventKind.RECORD_TIMESTAMP:
        dated = before_ms is not None and e["broker_time"] >= 0
        return {"oldest": max(int(oldest(e["broker_time"], before_ms)), -1) if dated and before_ms is not None else -1}
    return {"newest": int(e["broker_time"]) + AHEAD_MS} if kind is EventKind.TIMESTAMP_AHEAD else {}


def _decoded(stored: bytes, limits: Limits) -> Opened | None:
    buf = np.frombuffer(bytearray(stored), np.uint8)  # kernels are compiled for arrays that can be written
    row = walk_rows(1)
    count, end, _why = walk(buf, 0, len(buf), 0, 1, limits.max_batch_bytes, False, 0, row, 0)
    if count != 1 or end != len(buf):
        return None
    batch = columns_of(row)
    open_wrappers(buf, 0, batch, limits)
    for run in decode_records([stored], batch, limits=limits):
        return batch, run
    return None


def _culprits(run: Decoded, batch: BatchColumns, topic: Topic, sender: Sender) -> Culprits:
    r = run.records
    sent = sent_records(r, batch)
    model_answers(as_sent(batch, sender, run.summary), sent, topic)
    cause = sent["cause"]
    flawed = np.isin(
        cause, (batch_validation.UNREADABLE, batch_validation.CODEC, batch_validation.MAGIC, batch_validation.CHECKSUM)
    ) | batch_validation.misnumbered(r.flaws)
    wanted = (
        cause == batch_validation.NO_KEY,
        flawed,
        cause == batch_validation.TOO_OLD,
        cause == batch_validation.TOO_NEW,
    )
    named = [np.flatnonzero(mask)[:RECORDS_OF_A_BATCH] for mask in wanted]
    null, flawed, behind, beyond = (tuple(r.index[rows].tolist()) for rows in named)
    return Culprits(
        len(r.index),
        int(batch.record_count[0]),
        int(batch.base_sequence[0]),
        null,
        flawed,
        behind,
        tuple(zip(beyond, r.timestamp[named[3]].tolist(), strict=True)),
        sum(int(mask.sum()) - len(rows) for mask, rows in zip(wanted, named, strict=True)),
    )
