"""Replicas from a running cluster, a table, or text dumps."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from auditor.base.errors import DEFAULT_LIMITS, DecodeError, Limits
from auditor.connectors import kafka_names, schema
from auditor.connectors.codec.batches import BATCH_DTYPES, POSITION, BatchColumns, rows_of
from auditor.connectors.codec.gaps import ANY_OFFSET
from auditor.connectors.codec.indexes import AbortedTransactions, OffsetIndex
from auditor.connectors.codec.segment import Chunk, read_segment
from auditor.connectors.logdir.files import Replica, SegmentFile
from auditor.connectors.logdir.text_folder import TextReplica, read_texts
from auditor.connectors.schema import from_rows
from auditor.connectors.stores.storage import StorageLocation
from auditor.facts.packed import PackedColumns
from auditor.facts.replica_facts import ReplicaFacts
from auditor.model.policies import DAY_MS
from auditor.replay.producers.audit_replay import INTERNAL_TOPICS
from auditor.replay.producers.snapshot_chain import Stored
from auditor.replay.reading.chunks import Opened
from auditor.replay.reading.index_checks import OffsetCheck, TimeCheck
from auditor.replay.reading.record_checks import look_of
from auditor.replay.reading.replica_reader import ReplicaReader
from auditor.replay.task import ReplicaTask, TextTask

# A partition of a running cluster as a replica: fetched batches go through the same replay as files.
#
# A broker shows neither segments nor checkpoints nor indexes: the log counts as one segment that begins where reading
# began, and files are not checked. Everything below that offset counts as not read: no marker there is reported as
# missing.


OVERHEAD = 12  # bytes of a batch before those that its size counts
NOWHERE = StorageLocation("", "")


@dataclass(frozen=True, slots=True)
class LiveTask:
    """A partition to read from ``start`` to the offset ``end``. ``log_dir`` stands for its broker.

    ``log_start`` and ``last_stable`` are the leader's log start and last stable offset, -1: unknown.
    """

    topic: str
    partition: int
    broker_id: int
    log_dir: str
    cluster_id: str | None
    join_key: str
    start: int
    end: int
    compacted: bool = False
    expiration_ms: int = DAY_MS
    before_ms: int | None = None
    records: bool = False
    raw: bool = False
    limits: Limits = field(default=DEFAULT_LIMITS)
    cleaning_unknown: bool = False
    log_start: int = -1
    last_stable: int = -1

    @property
    def may_be_cleaned(self) -> bool:
        """Whether records may be missing because of compaction."""
        return self.compacted or self.cleaning_unknown

    @property
    def file(self) -> str:
        """Stands for the files of the log."""
        return f"{self.topic}-{self.partition}/*.log"


class LiveReader(ReplicaReader):
    """Takes a log in pieces as they come; memory is that of a piece.

    ``watch`` gets every chunk (its positions are bytes of what was read).
    """

    def __init__(self, task: LiveTask, watch: Callable[[Chunk], None] | None = None) -> None:
        self.live = task
        self.watch = watch
        self.size = 0
        self.next_offset = task.start
        self.holes_end = 0
        self.segment = SegmentFile(task.file, task.start, 0)
        replica = Replica(
            task.log_dir, task.topic, task.partition, f"{task.topic}-{task.partition}", segments=(self.segment,)
        )
        super().__init__(
            ReplicaTask(
                NOWHERE,
                replica,
                task.cluster_id,
                task.broker_id,
                task.join_key,
                clean_shutdown=False,
                log_start=task.start,
                cleaner_offset=task.end if task.may_be_cleaned else None,
                compacted=task.compacted,
                cleaning_unknown=task.cleaning_unknown,
                expiration_ms=task.expiration_ms,
                before_ms=task.before_ms,
                records=task.records,
                limits=task.limits,
            )
        )
        self.begin([])
        self.begin_segment(0, task.file, task.start, -1)

    def take(self, data: bytes) -> bool:
        """Replay the whole batches at the head of ``data`` up to the end; False if they do not advance the log."""
        whole = data[: whole_batches(data, self.live.end)]
        before = self.next_offset
        raw = self.live.raw or self.internal is not None
        for chunk in read_segment(
            io.BytesIO(whole),
            len(whole),
            file=self.live.file,
            limits=self.live.limits,
            records=self.live.records,
            raw=raw,
            offsets=(max(self.next_offset, 0), ANY_OFFSET[1]),
            look=look_of(self.task),
        ):
            placed = self._placed(chunk)
            self._note_holes(placed.batches)
            self._chunk(self.segment, placed)
            if self.watch is not None:
                self.watch(placed)
        self.size += len(whole)
        self.bytes["bytes_total"] += len(whole)
        return self.next_offset > before

    def _opened_batch(self, number: int, position: int) -> Opened | None:
        return None

    def _placed(self, chunk: Chunk) -> Chunk:
        """The chunk with positions counted from the first byte that was read of the log."""

        def moved(errors: list[DecodeError]) -> list[DecodeError]:
            return [e._replace(position=e.position + self.size) for e in errors]

        rows = chunk.rows.copy()
        rows[:, POSITION] += self.size
        return replace(
            chunk,
            rows=rows,
            errors=moved(chunk.errors),
            body_errors=moved(chunk.body_errors),
            end=chunk.end + self.size,
        )

    def _note_holes(self, b: BatchColumns) -> None:
        """Note the end of the last hole, which only the batches themselves show."""
        if not len(b.position):
            return
        ends = b.last_offset + 1
        expected = np.concatenate([[self.next_offset], ends[:-1]])
        gaps = b.base_offset[b.base_offset > expected]
        thinned = ends[b.record_count < b.last_offset - b.base_offset + 1]
        self.holes_end = max([self.holes_end, *gaps[-1:].tolist(), *thinned[-1:].tolist()])
        self.next_offset = max(self.next_offset, int(ends[-1]))

    def done(self, read_at: int, high_watermark: int, why_early: str | None = None) -> ReplicaFacts:
        """Return the facts.

        ``read_at``: ms, everything written by then has been read; ``why_early``: why reading stopped before the end.
        """
        self.end_segment()
        facts = self.finish([])
        facts.text = True  # there are no files that could be judged
        facts.cleaner_offset = None
        facts.broker_time = max(facts.broker_time, read_at)
        facts.log_end = max(facts.log_end, self.live.end if why_early is None else self.next_offset)
        facts.high_watermark = min(high_watermark, facts.log_end)
        facts.live = True
        if 0 <= self.live.log_start < self.live.start:
            facts.unread_from = self.live.log_start
            facts.begins_below_lso = self.live.start <= self.live.last_stable
        if self.live.may_be_cleaned:
            facts.intact_from = max(self.holes_end, self.live.start)
        if why_early is not None:
            facts.breaks_off = True
            detail = f"not read from offset {self.next_offset} to {self.live.end}: {why_early}"
            facts.errors.append(DecodeError(self.live.file, self.size, 0, "limit", detail))
        return facts


def whole_batches(data: bytes, end: int) -> int:
    """Return the number of bytes of an answer that are whole batches below the offset ``end``.

    A broker truncates the last batch at its limit. Batches behind the end are dropped, so that all logs show about the
    same moment.
    """
    position = 0
    while len(data) - position >= OVERHEAD and int.from_bytes(data[position : position + 8], "big", signed=True) < end:
        size = int.from_bytes(data[position + 8 : position + OVERHEAD], "big", signed=True) + OVERHEAD
        if size <= OVERHEAD:
            return len(data)  # no batch begins like that: the decoder says so
        if position + size > len(data):
            break
        position += size
    return position


# Rows of the table ``batches`` as a replica: headers in a table go through the same replay as files.
#
# A table of batches has neither checkpoints nor indexes nor settings nor records: it does not show where the log
# starts, what was cleaned and who owns a producer id. As with text, a log with holes counts as cleaned, and it begins
# with its first batch. Memory: some 20 bytes per batch, since only the whole log shows whether it has holes.


COLUMNS = dict(zip(BatchColumns._fields, BATCH_DTYPES, strict=True))
NOT_KNOWN = (
    "of {} there are batches alone: what rests on snapshots, indexes, checkpoints, settings, records or the "
    "coordinators' logs is not decided"
)


class LogKey(NamedTuple):
    """Identity of a log. ``join_key``: its cluster."""

    join_key: str
    cluster_id: str | None
    broker_id: int | None
    log_dir: str
    topic: str
    partition: int


class _PackedBatches:
    """Batches of a replica as they come, packed by segment, with whether they show holes."""

    def __init__(self) -> None:
        self.segments: list[tuple[str, int, PackedColumns]] = []
        self.holes_end = 0  # behind the last one
        self.next_offset = -1
        self.bytes = 0

    def add(self, file: str, b: BatchColumns) -> None:
        """Add batches of one file."""
        if not self.segments or self.segments[-1][0] != file:
            says = kafka_names.data_name(file.rpartition("/")[2])
            base = int(b.base_offset[0]) if says is None else says.offset
            self.next_offset = self.next_offset if self.segments else base
            self.segments.append((file, base, PackedColumns(COLUMNS)))
        before = np.concatenate([[self.next_offset], b.last_offset[:-1] + 1])
        thinned = b.last_offset[b.record_count < b.last_offset - b.base_offset + 1] + 1
        self.holes_end = max([self.holes_end, *thinned.tolist(), *b.base_offset[b.base_offset > before].tolist()])
        self.next_offset = max(self.next_offset, int(b.last_offset[-1]) + 1)
        self.bytes += int(b.size.sum())
        self.segments[-1][2].add(np.ascontiguousarray(rows_of(b).T))


def read_batches(
    key: LogKey, batches: Iterable[tuple[str, BatchColumns]], expiration_ms: int, is_compacted: bool | None = None
) -> ReplicaFacts:
    """Return the facts of a log whose batches come in log order, each group of one file, none empty.

    ``expiration_ms``: producer.id.expiration.ms of its broker; ``is_compacted``: None if unknown.
    """
    gathered = _PackedBatches()
    for file, columns in batches:
        gathered.add(file, columns)
    internal = key.topic in INTERNAL_TOPICS  # of which a part without holes was not cleaned
    compacted = internal or (gathered.holes_end > 0 if is_compacted is None else is_compacted)
    cleaned_to = gathered.holes_end if internal else gathered.next_offset
    files = tuple(SegmentFile(file, base, 0) for file, base, _ in gathered.segments)
    replica = Replica(key.log_dir, key.topic, key.partition, f"{key.topic}-{key.partition}", segments=files)
    reader = ReplicaReader(
        ReplicaTask(
            NOWHERE,
            replica,
            key.cluster_id,
            key.broker_id,
            key.join_key,
            clean_shutdown=False,
            compacted=compacted,
            expiration_ms=expiration_ms,
            cleaner_offset=cleaned_to if compacted else None,
            log_start_known=False,
        )
    )
    reader.internal = None  # there are no records
    reader.begin([])
    for number, (file, base, packed) in enumerate(gathered.segments):
        after = files[number + 1].base_offset if number + 1 < len(files) else -1
        reader.begin_segment(number, file, base, after)
        for piece in range(packed.piece_count()):
            reader.replay_batches(rows_of(BatchColumns(**packed.piece(piece, COLUMNS))))
        reader.end_segment(after)
    reader.bytes["bytes_total"] = reader.bytes["bytes_decoded"] = gathered.bytes
    facts = reader.finish([])
    facts.text = True  # there are no files that could be judged
    facts.cleaner_offset = None
    facts.may_be_cleaned = compacted and is_compacted is None
    facts.notes = [NOT_KNOWN.format(f"{key.topic}-{key.partition}")]
    return facts


# Text dumps as replicas: their batches go through the same replay as files.
#
# Text has no checkpoints and no settings, so it does not show where a log starts or whether it is compacted: a log
# with holes counts as cleaned, and a dump that breaks off shows nothing about the log's end.


UNKNOWN_LOG = "(unknown)"


def read_text_replicas(task: TextTask) -> list[ReplicaFacts]:
    """Return the facts of every log in the dumps; the first one has the errors and notes of the whole directory."""
    folder = read_texts(task.place, task.texts, task.limits)
    wanted = [c for c in folder.replicas if task.scope.wants(c.topic, c.partition, task.broker_id)]
    facts = [_read(task, replica) for replica in wanted]
    if not facts:
        facts = [_read(task, TextReplica(None, None))]
    lost = [e for e in folder.errors if e.reason in ("unreadable", "vanished", "limit")]
    bad = sum(max(e.length, 0) for e in folder.errors if e not in lost)
    unread = sum(t.size for t in task.texts if t.name in {e.file for e in lost})
    first = facts[0]
    first.errors = folder.errors + first.errors
    first.notes = folder.notes
    first.sums["bytes_total"] = folder.bytes_read + unread
    first.sums["bytes_error"] = min(bad, folder.bytes_read) + unread
    first.sums["bytes_decoded"] = folder.bytes_read - min(bad, folder.bytes_read)
    return facts


def _read(task: TextTask, replica: TextReplica) -> ReplicaFacts:
    topic, partition = replica.topic or UNKNOWN_LOG, -1 if replica.partition is None else replica.partition
    segments = tuple(SegmentFile(s.file, s.base_offset, 0) for s in replica.segments)
    cleaned = _may_be_cleaned(replica)
    compacted = topic in INTERNAL_TOPICS or cleaned
    reader = ReplicaReader(
        ReplicaTask(
            task.place,
            Replica(task.log_dir, topic, partition, "", segments=segments),
            task.cluster_id,
            task.broker_id,
            task.join_key,
            clean_shutdown=False,
            compacted=compacted,
            expiration_ms=task.expiration_ms,
            cleaner_offset=_end(replica) if cleaned else None,
            limits=task.limits,
        )
    )
    reader.internal = None
    stored = [Stored(s.file, s.offset, s.entries, True) for s in replica.snapshots]
    reader.begin(stored)
    for number, segment in enumerate(replica.segments):
        after = replica.segments[number + 1].base_offset if number + 1 < len(replica.segments) else -1
        reader.begin_segment(number, segment.file, segment.base_offset, after)
        reader.replay_batches(rows_of(_countable(segment.batches)))
        reader.facts.errors += segment.errors
        reader.end_segment()
        _indexes(reader, replica, number)
    reader.facts.text = True  # there are no files that could be read again
    facts = reader.finish(stored)
    facts.cleaner_offset = None if not compacted else facts.cleaner_offset
    key = (task.cluster_id, task.broker_id, task.log_dir, topic, partition)
    facts.tables = {
        name: pa.Table.from_batches([from_rows(schema.DECODED[name], key, rows)]) for name, rows in replica.rows.items()
    }
    facts.breaks_off, facts.cannot_show, facts.may_be_cleaned = replica.ends_early, replica.cannot_show, compacted
    facts.unreadable_records = [(0, e.position, e) for e in replica.unreadable]
    return facts


def _may_be_cleaned(replica: TextReplica) -> bool:
    """Whether the log has holes, between batches or inside them, that compaction would explain."""
    expected = replica.segments[0].base_offset if replica.segments else -1  # the first batches may be what is gone
    for segment in replica.segments:
        b = segment.batches
        if not len(b.position):
            continue
        holes = bool(np.any(b.base_offset[1:] > b.last_offset[:-1] + 1))
        thinned = bool(np.any((b.record_count >= 0) & (b.record_count < b.last_offset - b.base_offset + 1)))
        if holes or thinned or (expected >= 0 and int(b.base_offset[0]) > expected):
            return True
        expected = int(b.last_offset[-1]) + 1
    return False


def _end(replica: TextReplica) -> int:
    return max([int(s.batches.last_offset[-1]) + 1 for s in replica.segments if len(s.batches.position)], default=0)


def _countable(b: BatchColumns) -> BatchColumns:
    """The same batches, with counts that a dump does not print taken from the range of offsets."""
    span = (b.last_offset - b.base_offset + 1).astype(b.record_count.dtype)
    return b._replace(record_count=np.where(b.record_count < 0, span, b.record_count))


def _indexes(reader: ReplicaReader, replica: TextReplica, number: int) -> None:
    """Check the dumped indexes of a segment."""
    segment = replica.segments[number]
    b = segment.batches
    rows = rows_of(b)
    end = int(b.position[-1] + b.size[-1]) if len(b.position) else 0
    log_end = int(b.last_offset[-1]) + 1 if end else 0
    for index in (i for i in replica.indexes if i.base_offset == segment.base_offset):
        if isinstance(index.entries, AbortedTransactions):
            _aborted(reader, index.entries, number)
        elif isinstance(index.entries, OffsetIndex):
            offsets = OffsetCheck(index.entries)
            offsets.take(rows)
            reader.audit.keep(offsets.faults(end).events(number, log_end))
        else:
            times = TimeCheck(index.entries)
            times.take(rows)
            reader.audit.keep(times.faults().events(number, log_end))


def _aborted(reader: ReplicaReader, entries: AbortedTransactions, number: int) -> None:
    reader.add_aborted(number, entries)
    reader.facts.indexed_segments = [*(reader.facts.indexed_segments or []), number]
    reader.facts.abort_indexes.append(number)
