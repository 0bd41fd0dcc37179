"""Checks of one segment by itself, and a dry run of its recovery."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from auditor.base.compiled import kernel
from auditor.base.errors import DecodeError, Limits
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec.batches import BATCH_DTYPES, FLAW_CRC, BatchColumns
from auditor.connectors.codec.damaged_fields import ReadsEpochs, SegmentContext
from auditor.connectors.codec.gaps import offset_range
from auditor.connectors.codec.indexes import OffsetIndex, TimeIndex, decode_offset_index, decode_time_index
from auditor.connectors.codec.segment import MAGIC_AT, Chunk, foreign_row, read_segment
from auditor.connectors.logdir.copy_view import CopyView
from auditor.connectors.logdir.files import DataFile, EpochStarts, SegmentFile
from auditor.connectors.stores.retries import REFUSED
from auditor.connectors.stores.storage import StorageLocation, View, open_file, problem, read_head
from auditor.facts.batch_sums import MOST_KEPT, SUMMED, BatchSums, HeaderFiles, places_in
from auditor.facts.packed import PackedColumns
from auditor.facts.replica_facts import SegmentScan
from auditor.replay.producers.audit_replay import intact_from, known_of, log_start_of
from auditor.replay.reading.index_checks import FaultyEntries, OffsetCheck, Settled, SettledTimes, TimeCheck
from auditor.replay.reading.record_checks import largest_times
from auditor.replay.reading.record_sums import SegmentSums
from auditor.replay.task import ReplicaTask, as_records

# Digests to compare replicas by: the packed headers of its batches, or their sums if they are many ([decision
# 16](docs/decisions/016-replicas-by-sums.md)).
#
# The headers of a small log are kept, so that nothing is read twice. Those of a long one are summed
# (:mod:`auditor.facts.batch_sums`) and dropped, and :class:`SegmentHeaders` reads the few that are needed again.


DIGESTED = [
    walking.BASE_OFFSET,
    walking.LAST_OFFSET,
    walking.CRC,
    walking.PARTITION_LEADER_EPOCH,
    walking.PRODUCER_ID,
    walking.PRODUCER_EPOCH,
    walking.BASE_SEQUENCE,
    walking.MAGIC,
    walking.POSITION,
    walking.ATTRIBUTES,
    walking.MAX_TIMESTAMP,
]
DIGEST = {BatchColumns._fields[k]: BATCH_DTYPES[k] for k in DIGESTED} | {
    "crc_ok": np.dtype(bool),
    "segment": np.dtype(np.int32),
}
AT = places_in(BatchColumns._fields)
Headers = PackedColumns | BatchSums


@dataclass(frozen=True, slots=True)
class SegmentHeaders:
    """Reads headers of a replica again, as :class:`auditor.facts.batch_sums.HeaderFiles`.

    ``segments``: name, base offset and listed size in bytes of each, and its context.
    """

    place: StorageLocation
    segments: tuple[tuple[str, int, int, SegmentContext], ...]
    limits: Limits

    def read(
        self, number: int, start: int, stop: int | None, lowest: int
    ) -> Iterator[dict[str, np.ndarray] | DecodeError]:
        """Yield the batches of a segment that begin between two bytes.

        Cost: a pass over these bytes, checksums included.
        """
        name, base, size, context = self.segments[number]
        f = open_file(self.place, name)
        if isinstance(f, DecodeError):
            yield f._replace(file=name)
            return
        behind = self.segments[number + 1 : number + 2]
        least, below = offset_range(base, behind[0][1] if behind else -1)
        with contextlib.closing(f):
            try:
                for chunk in read_segment(
                    f,
                    size,
                    file=name,
                    start=start,
                    stop=stop,
                    limits=self.limits,
                    offsets=(max(lowest, least), below),
                    context=context,
                ):
                    yield columns_of(chunk.bounded().rows, number)
            except REFUSED as error:
                yield problem(name, error)._replace(file=name)

    def size(self, number: int) -> int:
        """Return the bytes of a segment as listed."""
        return self.segments[number][2]


# What facts refer to by a protocol, by that; the classes at rest (auditor.facts.arrow_codec).
STAND_INS: dict[Any, type] = {HeaderFiles: SegmentHeaders, ReadsEpochs: EpochStarts, View: CopyView}


def columns_of(rows: np.ndarray, segment: int) -> dict[str, np.ndarray]:
    """Return the stored columns of a walk's rows."""
    lines = zip(_lines(rows, segment), DIGEST.items(), strict=True)
    return {name: line.astype(dtype) for line, (name, dtype) in lines}


def _lines(rows: np.ndarray, segment: int) -> np.ndarray:
    """A line per column of :data:`DIGEST`."""
    crc_ok = rows[:, walking.FLAWS] & FLAW_CRC == 0
    return np.vstack([rows[:, DIGESTED].T, crc_ok, np.full(len(rows), segment, np.int64)])


def new_headers(task: ReplicaTask) -> PackedColumns | None:
    """Return empty headers of a replica or segment; None if there is nothing to compare with."""
    return PackedColumns(DIGEST) if task.digests else None


def add_headers(headers: Headers, rows: np.ndarray, segment: int, task: ReplicaTask) -> Headers:
    """Add a walk's rows to the headers of a segment.

    Headers become sums once the rows show that the replica has too many batches at this rate.
    """
    if isinstance(headers, BatchSums):
        headers.add(np.ascontiguousarray(rows), AT, FLAW_CRC, segment)
        return headers
    headers.add(_lines(rows, segment))
    if not len(rows):
        return headers
    replica, reached = (
        sum(one.size for one in task.replica.segments),
        int(rows[-1, walking.POSITION] + rows[-1, walking.SIZE]),
    )
    return sum_headers(headers, task) if headers.rows * replica > MOST_KEPT * reached else headers


def join_headers(headers: Headers, more: Headers, task: ReplicaTask) -> Headers:
    """Append the headers of the next segment to those of a replica."""
    if isinstance(headers, PackedColumns) and isinstance(more, PackedColumns):
        headers.append(more)
        return sum_headers(headers, task) if headers.rows > MOST_KEPT else headers
    sums = headers if isinstance(headers, BatchSums) else _sums(headers, task)
    if isinstance(more, BatchSums):
        sums.append(more)
    else:
        _add(sums, more)
    return sums


def sum_headers(headers: PackedColumns, task: ReplicaTask) -> Headers:
    """Return the sums of these headers.

    Of a log that is partly in remote storage the headers stay: reading them again would be a second download.
    """
    return headers if any(one.place is not None for one in task.replica.segments) else _sums(headers, task)


def _sums(headers: PackedColumns, task: ReplicaTask) -> BatchSums:
    sums = BatchSums(task.digests)
    _add(sums, headers)
    return sums


def _add(sums: BatchSums, more: PackedColumns) -> None:
    for number in range(more.piece_count()):
        sums.add_columns(more.piece(number, SUMMED))


def pack_headers(headers: Headers, task: ReplicaTask) -> None:
    """Pack the headers after the last batch."""
    headers.pack()
    if isinstance(headers, BatchSums):
        listed = enumerate(task.replica.segments)
        segments = tuple((one.name, one.base_offset, one.size, known_of(task, number)) for number, one in listed)
        headers.files = SegmentHeaders(task.place, segments, task.limits)


# Resume points inside a growing segment.


class SegmentPoint(NamedTuple):
    """Where the checks of a segment (:class:`SegmentChecks`) resume: no findings in the batches before ``position``.

    To be packed at once, since the checks go on with the same objects. The last entry of the offset index points at
    ``position``: later entries are about later batches, of which none has an offset below ``next_offset``.
    ``last_position`` and ``last_header`` (bytes, checksum included) are of the batch before: it differs if the log was
    truncated and rewritten.
    """

    position: int
    next_offset: int
    last_position: int
    last_header: bytes
    scan: SegmentScan
    rebuilt: np.ndarray
    digests: Headers | None
    offsets: Settled
    times: SettledTimes | None


# Dry run of a recovery of each segment, while it is read.
#
# Follows ``LogSegment.recover`` of 4.1: batches are taken in file order until one is not whole or has a CRC mismatch;
# offsets matter only where the rebuilt indexes get an entry. Which batches prevent a start, and what becomes of the
# log, is decided in auditor/facts/crash_recovery.py.


INDEX_INTERVAL_BYTES = 4096  # index.interval.bytes, its default
MAX_INT = 2**31 - 1
MAX_FATAL = 100  # of a segment
NOT_VERIFIED = "checksums of batches in it were not verified when it was copied"
MAX_FOREIGN = 1000  # batches of an unknown magic in a segment whose checksums are looked at
NOT_WHOLE = ("unreadable", "vanished", "limit", "batch_limit")  # the auditor's own limits, not the broker's
ODD_MARKER = walking.FLAW_CONTROL_KEY | walking.FLAW_CONTROL_VALUE | walking.FLAW_CONTROL_TYPE

# The indexes that recovery rebuilds: where the last entry was made, how many and the last one's offset; the largest
# time so far with its offset; how many time entries, and the last one's time and offset.
REBUILT = np.dtype(
    [
        ("entry_position", "i8"),
        ("entries", "i8"),
        ("entry_offset", "i8"),
        ("max_time", "i8"),
        ("max_time_offset", "i8"),
        ("time_entries", "i8"),
        ("entry_time", "i8"),
        ("time_entry_offset", "i8"),
    ]
)


@kernel
def _append(batch: np.record, rebuilt: np.record) -> bool:
    """Add the index entries that recovery adds for a batch; False if an index refuses the offset."""
    if batch.max_timestamp > rebuilt.max_time:
        rebuilt.max_time = batch.max_timestamp
        rebuilt.max_time_offset = batch.last_offset
    if batch.position - rebuilt.entry_position <= INDEX_INTERVAL_BYTES:
        return True
    if rebuilt.entries > 0 and batch.last_offset <= rebuilt.entry_offset:
        return False
    rebuilt.entries += 1
    rebuilt.entry_offset = batch.last_offset
    if rebuilt.time_entries > 0 and rebuilt.max_time_offset < rebuilt.time_entry_offset:
        return False
    if rebuilt.max_time > rebuilt.entry_time:
        rebuilt.time_entries += 1
        rebuilt.entry_time = rebuilt.max_time
        rebuilt.time_entry_offset = rebuilt.max_time_offset
    rebuilt.entry_position = batch.position
    return True


@kernel
def _refused_row(batches: np.ndarray, stop: int, rebuilt: np.ndarray) -> int:
    """The first row before ``stop`` at which an index refuses the offset, else -1."""
    for row in range(stop):
        if not _append(batches[row], rebuilt[0]):
            return row
    return -1


@kernel
def _all_plain(batches: np.ndarray, base: int, rebuilt: np.ndarray) -> int:
    """Number of records if no batch needs attention, else -1 with an invalid ``rebuilt``."""
    records = 0
    for row in range(len(batches)):
        batch = batches[row]
        relative = batch.last_offset - base
        # Control batches without a producer id, as in __cluster_metadata, are not looked into.
        if batch.flaws & walking.FLAW_CRC or (batch.flaws & ODD_MARKER and batch.producer_id >= 0):
            return -1
        if relative < 0 or relative > MAX_INT or not _append(batch, rebuilt[0]):
            return -1
        records += max(batch.record_count, 0)
    return records


class RecoveryScan:
    """The scan of one segment: chunks in, a :class:`SegmentScan` out.

    ``read`` returns the bytes of a range (position, length) of the segment again, for batches of a magic that only the
    broker accepts; None where they cannot be read.
    """

    def __init__(self, base_offset: int, size: int, indexed: bool, read: Callable[[int, int], bytes | None]) -> None:
        self.scan = SegmentScan(base_offset, size, indexed, base_offset)
        self.read = read
        self.foreign = 0
        self.rebuilt = np.zeros(1, REBUILT)
        self.rebuilt["max_time"] = self.rebuilt["max_time_offset"] = self.rebuilt["entry_time"] = -1
        self.rebuilt["entry_offset"] = self.rebuilt["time_entry_offset"] = base_offset

    def take(self, chunk: Chunk) -> None:
        """Take the next chunk: its batches and the bytes between them, in file order, with damaged fields as stored."""
        self.scan.plain &= not chunk.damaged_fields()
        chunk = chunk.as_stored()
        rows, first = chunk.rows, 0
        if np.any(rows[:, walking.FLAWS] & walking.UNVERIFIED) and not self.scan.undecided:
            self.scan.undecided = NOT_VERIFIED
        for error in sorted(chunk.errors, key=lambda e: e.position):
            behind = int(np.searchsorted(rows[:, walking.POSITION], error.position))
            self._batches(rows[first:behind])
            self._unread(error)
            first = behind
        self._batches(rows[first:])

    def finish(self) -> SegmentScan:
        """Return the scan after the last chunk."""
        rebuilt = self.rebuilt[0]
        if rebuilt["time_entries"] > 0 and rebuilt["max_time_offset"] < rebuilt["time_entry_offset"]:
            self._refused()
        return self.scan

    def _batches(self, rows: np.ndarray) -> None:
        if not len(rows):
            return
        rebuilt = self.rebuilt.copy()
        plain = int(_all_plain(as_records(rows), self.scan.base_offset, rebuilt)) if self.scan.cut < 0 else -1
        if plain >= 0:
            self.rebuilt = rebuilt
            self.scan.records += plain
        else:
            self._odd_batches(rows)
        self.scan.next_offset = int(rows[-1, walking.LAST_OFFSET]) + 1

    def go_on(self, scan: SegmentScan, rebuilt: np.ndarray) -> None:
        """Resume from the state of an earlier scan, of the same segment when it was smaller."""
        scan.size = self.scan.size
        self.scan, self.rebuilt = scan, rebuilt

    def _odd_batches(self, rows: np.ndarray) -> None:
        self.scan.plain = False
        b = BatchColumns(*rows.T)
        sound = b.flaws & walking.FLAW_CRC == 0
        if self.scan.cut < 0:
            self._recover(rows, b, sound)
        self.scan.records += int(np.maximum(b.record_count, 0)[sound].sum())

    def _recover(self, rows: np.ndarray, b: BatchColumns, sound: np.ndarray) -> None:
        """Take batches up to the first that recovery refuses."""
        broken = (
            b.flaws & (walking.FLAW_CONTROL_KEY | walking.FLAW_CONTROL_VALUE) != 0
        )  # such a record ends it, but stays
        ends = np.flatnonzero(~sound | (broken & (b.producer_id >= 0)))
        stop = int(ends[0]) + int(sound[ends[0]]) if len(ends) else len(b.position)
        refused = int(_refused_row(as_records(rows), stop, self.rebuilt))
        self._fatal(b, stop if refused < 0 else refused)
        if refused >= 0:
            self._refused()
        elif len(ends):
            row = int(ends[0])
            reason = "crc_mismatch" if not sound[row] else "control_record"
            after = int(b.last_offset[stop - 1]) + 1 if stop else self.scan.next_offset
            records = int(np.maximum(b.record_count[:stop], 0).sum())
            self._cut(int(b.position[row]) + (int(b.size[row]) if sound[row] else 0), reason, after, records)

    def _fatal(self, b: BatchColumns, stop: int) -> None:
        """Notes markers of a type that is none, and offsets that no index of this segment can hold."""
        unknown = (b.flaws[:stop] & walking.FLAW_CONTROL_TYPE != 0) & (b.producer_id[:stop] >= 0)
        for row in np.flatnonzero(unknown)[: MAX_FATAL - len(self.scan.fatal)]:
            values = (b.position[row], b.base_offset[row], b.producer_id[row], b.control_type[row])
            position, offset, producer, kind = map(int, values)
            self.scan.fatal.append((position, offset, producer, kind))
        relative = b.last_offset[:stop] - self.scan.base_offset
        if np.any((relative < 0) | (relative > MAX_INT)):
            self.scan.undecided = "a batch whose offset does not belong into its segment: the broker would split it"
        beyond = np.flatnonzero(relative > MAX_INT)
        if len(beyond) and self.scan.overflow[0] < 0:
            self.scan.overflow = int(b.position[beyond[0]]), int(b.base_offset[beyond[0]])

    def _cut(self, position: int, reason: str, after: int, records: int) -> None:
        if position < self.scan.size:  # a record refused at the very end leaves nothing to cut
            s = self.scan
            s.cut, s.cut_reason, s.cut_offset, s.cut_records = position, reason, after, s.records + records

    def _refused(self) -> None:
        """An index refuses an offset: the broker empties the whole segment."""
        if self.scan.cut != 0 and self.scan.size:
            s = self.scan
            s.cut, s.cut_reason, s.cut_offset, s.cut_records = 0, "offsets_not_increasing", s.base_offset, 0

    def _unread(self, error: DecodeError) -> None:
        """Handle bytes that are no valid batch to the auditor."""
        self.scan.plain = False
        if self.scan.cut >= 0:
            return
        if error.reason in NOT_WHOLE:
            self.scan.undecided = f"bytes from {error.position} on were not read ({error.reason})"
        elif error.reason != "bad_magic" or not self._taken_by_brokers(error):
            self._cut(error.position, error.reason, self.scan.next_offset, 0)

    def _taken_by_brokers(self, error: DecodeError) -> bool:
        """Whether it is a whole batch of a magic above 2, which brokers treat as 2 if its checksum is right."""
        self.foreign += 1
        data = self.read(error.position, error.length) if self.foreign <= MAX_FOREIGN else None
        if data is None or len(data) <= MAGIC_AT:
            self.scan.undecided = f"a batch of an unknown magic at byte {error.position} was not looked at"
            return True
        row = foreign_row(data, error.position)
        if row is not None:
            self._batches(row[np.newaxis])
        return row is not None


# Small files of a replica, read as a whole: snapshots, indexes, checkpoints; with their byte counts.


SHORTENED_TO = {"index": 8, "timeindex": 12}  # bytes of an entry
BYTES = ("bytes_total", "bytes_decoded", "bytes_skipped", "bytes_error")


class ReadsSmall(Protocol):
    """Reads a small file, as :func:`auditor.connectors.stores.storage.read_file`."""

    def __call__(self, where: StorageLocation, name: str, /, *, limit: int) -> bytes | DecodeError:
        """Return the whole content of ``name`` below ``where``, or why it cannot be read."""


def no_bytes() -> dict[str, int]:
    """Return zero byte counts."""
    return dict.fromkeys(BYTES, 0)


class SmallFiles:
    """Reads small files with ``read`` and accounts for them in ``errors`` and ``bytes`` (:data:`BYTES`)."""

    def __init__(self, task: ReplicaTask, read: ReadsSmall, errors: list[DecodeError], bytes_: dict[str, int]) -> None:
        self.task, self.read = task, read
        self.errors, self.bytes = errors, bytes_

    def content(self, file: DataFile | None) -> bytes | None:
        """Return the bytes of a file, None (with an error noted) if it could not be read."""
        if file is None:
            return None
        data = self.read(file.place or self.task.place, file.name, limit=self.task.limits.small_file(file.kind))
        if isinstance(data, DecodeError):
            self.error(data._replace(file=file.name), file.size)
            self.bytes["bytes_total"] += file.size
            return None
        place = file.place or self.task.place
        of_store = bool(place.uri) and place.view is None  # its objects do not shrink while they are read
        if (of_store and len(data) < file.size) or _broke_off(file, data):
            detail = f"the file is {file.size - len(data)} bytes shorter than when it was listed"
            self.error(DecodeError(file.name, 0, file.size, "unreadable" if of_store else "vanished", detail))
            self.bytes["bytes_total"] += file.size
            return None
        self.bytes["bytes_total"] += len(data)
        return data

    def error(self, error: DecodeError, length: int = 0) -> None:
        """Note an error; ``length`` (bytes) counts if the error has none of its own."""
        self.errors.append(error)
        self.bytes["bytes_error"] += length if error.length < 0 else error.length

    def account(self, size: int, errors: list[DecodeError], skipped: int = 0) -> None:
        """Account for a small file of ``size`` bytes: what its errors do not cover was decoded."""
        bad = min(size, sum(e.length if e.length >= 0 else size - e.position for e in errors))
        self.errors += errors
        self.bytes["bytes_error"] += bad
        self.bytes["bytes_skipped"] += min(skipped, size - bad)
        self.bytes["bytes_decoded"] += size - bad - min(skipped, size - bad)


def _broke_off(file: DataFile, data: bytes) -> bool:
    """Whether a binary file was truncated or rewritten while it was read: then nothing in it counts.

    Brokers shorten the indexes of a segment that they close, to whole entries; text files they replace at once.
    """
    if len(data) >= file.size or file.kind not in ("snapshot", "index", "timeindex", "txnindex"):
        return False
    return len(data) % SHORTENED_TO[file.kind] != 0 if file.kind in SHORTENED_TO else True


# Outcome of a segment by itself: the recovery's dry run, its indexes, and its digests.
#
# The reader of the segment gathers it: the task that replays the replica, or one of many that read a segment each
# (:mod:`auditor.spark.jobs`). What only the replay knows is supplied later.


Index = TypeVar("Index", OffsetIndex, TimeIndex)
Decodes = Callable[[bytes, int, str], tuple[Index, list[DecodeError]]]


@dataclass(slots=True)
class SegmentOutcome:
    """Results of a segment by itself, after all of its chunks. Plain data, to be packed.

    ``errors`` are those of its indexes, ``bytes`` those of the segment outside of batches and of its indexes
    (:data:`BYTES`); ``unopened`` says why its file could not be opened. ``digests``: digests of its batches, None where
    replicas are not compared.
    """

    scan: SegmentScan
    faults: list[FaultyEntries] = field(default_factory=list)
    errors: list[DecodeError] = field(default_factory=list)
    bytes: dict[str, int] = field(default_factory=no_bytes)
    unopened: DecodeError | None = None
    digests: Headers | None = None


def read_again(task: ReplicaTask, number: int, position: int, length: int) -> bytes | None:
    """Read a range of a segment again, no more than the largest batch."""
    if length > task.limits.max_batch_bytes:
        return None
    segment = task.replica.segments[number]
    data = read_head(segment.place or task.place, segment.name, length, start=position)
    return None if isinstance(data, DecodeError) else data


def checked(
    checks: SegmentChecks, chunks: Iterator[Chunk] | DecodeError
) -> Iterator[Chunk | SegmentOutcome | SegmentPoint]:
    """Yield the chunks of a segment, and then the outcome of its ``checks``.

    After the chunk at whose end a later reading may resume comes a :class:`SegmentPoint`. Without chunks if the file
    could not be opened.
    """
    if isinstance(chunks, DecodeError):
        yield checks.unopened(chunks)
        return
    for chunk in chunks:
        checks.take(chunk)
        yield chunk
        if chunk.end == checks.pause and (point := checks.point(chunk)) is not None:
            yield point
    yield checks.finish()


class SegmentChecks:
    """The checks of one segment: chunks in, its :class:`SegmentOutcome` out. Memory: 70 bytes per index entry.

    ``small`` reads its indexes. ``pause``: the byte at which a resumable reading should end a chunk, -1 for none: where
    the last entry of an active segment's index points, if the task asks for such a point.
    """

    def __init__(self, task: ReplicaTask, number: int, small: ReadsSmall) -> None:
        self.segment = segment = task.replica.segments[number]
        again = functools.partial(read_again, task, number)
        self.scan = RecoveryScan(segment.base_offset, segment.size, segment.index is not None, again)
        self.task, self.number = task, number
        self.outcome = SegmentOutcome(self.scan.scan, digests=new_headers(task))
        self.sums = SegmentSums(task) if task.sum_key else None
        self.bounds = log_start_of(task), intact_from(task)
        self.end, self.accounted = 0, segment.size
        self.unread: list[tuple[int, int]] = []  # first byte, byte behind the last one
        self.all_read = True
        files = SmallFiles(task, small, self.outcome.errors, self.outcome.bytes)
        index = _decoded(decode_offset_index, segment, segment.index, files)
        times = _decoded(decode_time_index, segment, segment.timeindex, files)
        self.indexes = index, times
        self.offsets = None if index is None else OffsetCheck(index)
        self.times = None if times is None else TimeCheck(times)
        active = number + 1 == len(task.replica.segments) and segment.place is None
        pauses = (task.leaves_resume_point or task.points is not None) and active and self.offsets is not None
        self.pause = self.offsets.last_below(segment.size) if pauses and self.offsets is not None else -1

    @classmethod
    def going_on(cls, task: ReplicaTask, number: int, small: ReadsSmall, point: SegmentPoint) -> SegmentChecks | None:
        """Resume the checks of a segment from ``point``; None where what that reading rested on has changed."""
        if task.replica.segments[number].size < point.position:
            return None
        if read_again(task, number, point.last_position, len(point.last_header)) != point.last_header:
            return None
        checks = cls(task, number, small)
        return checks if checks._go_on(point) else None

    def _go_on(self, point: SegmentPoint) -> bool:
        index, times = self.indexes
        if index is None or (times is None) != (point.times is None):
            return False
        self.offsets = OffsetCheck.going_on(index, point.offsets, point.position)
        if times is not None and point.times is not None:
            self.times = TimeCheck.going_on(times, point.times)
        if self.offsets is None or (times is not None and self.times is None):
            return False
        self.scan.go_on(point.scan, point.rebuilt)
        if self.sums is not None:
            self.sums.runs = None  # a point has none of what is before it
        self.outcome.scan, self.outcome.digests = point.scan, point.digests
        self.end = point.position
        return True

    def take(self, chunk: Chunk) -> None:
        """Take the next chunk."""
        self.accounted = chunk.end
        if len(chunk.rows):
            self.end = int(chunk.rows[-1, walking.POSITION] + chunk.rows[-1, walking.SIZE])
        self.unread += [(error.position, error.position + error.length) for error in chunk.errors]
        self.all_read = self.all_read and not chunk.errors and not chunk.body_errors
        if chunk.errors:
            self._note_refused(chunk.errors)
        self.scan.take(chunk)
        _note_times(self.scan.scan, chunk.rows)
        if self.outcome.digests is not None:
            self.outcome.digests = add_headers(self.outcome.digests, chunk.rows, self.number, self.task)
        if self.sums is not None:
            self.sums.take(chunk)
        if self.offsets is not None:
            self.offsets.take(chunk.rows)
        if self.times is not None:
            s = chunk.summary
            self.times.take(chunk.rows, None if s is None else largest_times(chunk.batches, s, *self.bounds))

    def _note_refused(self, errors: list[DecodeError]) -> None:
        # FileLogInputStream.nextBatch: a size below that of a record fails, unless no whole prefix is left.
        scan = self.scan.scan
        if self.offsets is None or scan.refused >= 0:
            return
        begin, last = self.offsets.last_below(scan.size), scan.size - walking.PREFIX
        positions = [
            max(begin, e.position)
            for e in errors
            if e.reason in ("zero_filled", "bad_size") and e.position + e.length > begin
        ]
        scan.refused = min((position for position in positions if position < last), default=-1)

    def point(self, chunk: Chunk) -> SegmentPoint | None:
        """Return the resume point after the last chunk; None if there were any findings so far."""
        if self.offsets is None or not (self.all_read and self.scan.scan.plain and len(chunk.rows)):
            return None
        offsets = self.offsets.settled(chunk.end)
        times = None if self.times is None else self.times.settled()
        last = chunk.rows[-1]
        position = int(last[walking.POSITION])
        header = read_again(self.task, self.number, position, min(int(last[walking.SIZE]), walking.HEADER))
        if offsets is None or header is None or (times is None and self.times is not None):
            return None
        if not _is_header_of(header, last):  # the log was cut and written anew since it was read
            return None
        scan, digests = self.scan, self.outcome.digests
        return SegmentPoint(
            position=chunk.end,
            next_offset=chunk.next_offset,
            last_position=position,
            last_header=header,
            scan=scan.scan,
            rebuilt=scan.rebuilt,
            digests=digests,
            offsets=offsets,
            times=times,
        )

    def finish(self) -> SegmentOutcome:
        """Return the outcome after the last chunk."""
        self.scan.finish()
        if self.sums is not None:
            self.scan.scan.sums = self.sums.runs
        self.outcome.bytes["bytes_skipped"] += self.segment.size - self.accounted  # of a remote one, what the next has
        return self._with_faults()

    def unopened(self, why: DecodeError) -> SegmentOutcome:
        """Return the outcome of a file that could not be opened."""
        self.scan.scan.undecided, self.scan.scan.plain = "the file could not be opened", False
        self.outcome.unopened = why._replace(file=self.segment.name, position=0, length=self.segment.size)
        return self._with_faults()

    def _with_faults(self) -> SegmentOutcome:
        if isinstance(self.outcome.digests, BatchSums):
            self.outcome.digests.pack()
        if self.offsets is not None:
            self.outcome.faults.append(self.offsets.faults(self.end, self.unread))
        if self.times is not None:
            self.outcome.faults.append(self.times.faults())
        return self.outcome


def _note_times(scan: SegmentScan, rows: np.ndarray) -> None:
    """Note the times that retention and cleaning use, and control records, of further batches."""
    if not len(rows):
        return
    times = rows[:, walking.MAX_TIMESTAMP]
    if scan.first_time < 0:
        scan.first_time = int(times[0])
    row = int(times.argmax())
    if times[row] > scan.largest_time:
        scan.largest_time, scan.largest_offset = int(times[row]), int(rows[row, walking.LAST_OFFSET])
        scan.largest_producer = int(rows[row, walking.PRODUCER_ID])
    attributes = rows[:, walking.ATTRIBUTES]
    if not np.bitwise_or.reduce(attributes) & (walking.CONTROL | walking.DELETE_HORIZON):
        return
    attributes = np.where(rows[:, walking.MAGIC] == 2, attributes, 0)
    scan.controls += int(rows[attributes & walking.CONTROL != 0, walking.RECORD_COUNT].clip(0).sum())
    set_ones = attributes & walking.DELETE_HORIZON != 0
    if set_ones.any():
        earliest = int(rows[set_ones, walking.BASE_TIMESTAMP].min())
        scan.first_horizon = earliest if not scan.horizons else min(scan.first_horizon, earliest)
        scan.horizons += int(set_ones.sum())


def _is_header_of(header: bytes, row: np.ndarray) -> bool:
    """Whether a batch has this header, by its row of a walk: its offset and, since magic 2, its checksum."""
    offset, crc = int.from_bytes(header[:8], "big", signed=True), int.from_bytes(header[17:21], "big")
    return bool(offset == row[walking.BASE_OFFSET] and (row[walking.MAGIC] < 2 or crc == row[walking.CRC]))


def _decoded(decode: Decodes[Index], segment: SegmentFile, file: DataFile | None, files: SmallFiles) -> Index | None:
    """An index of the segment, its bytes accounted for; None without one."""
    if (data := files.content(file)) is None or file is None:
        return None
    index, errors = decode(data, segment.base_offset, file.name)
    files.account(len(data), errors, index.zero_tail_bytes)
    return index
