"""What a segment comes to by itself, whatever came before it: what a recovery would meet, its indexes, and what
replicas are compared by.

Whoever reads the segment gathers it on the way: the task that replays the replica, or one of many that read a segment
each (:mod:`auditor.spark.split`). What it takes to judge it and only the replay knows is asked for then.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from auditor.base.errors import DecodeError
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec.indexes import OffsetIndex, TimeIndex, decode_offset_index, decode_time_index
from auditor.connectors.codec.segment import Chunk
from auditor.connectors.logdir.files import DataFile, SegmentFile
from auditor.connectors.stores.storage import read_head
from auditor.facts.batch_sums import BatchSums
from auditor.facts.replica_facts import SegmentScan
from auditor.replay.producers.bounds import intact_from, log_start_of
from auditor.replay.segments import batch_headers
from auditor.replay.segments.batch_headers import Headers
from auditor.replay.segments.index_checks import FaultyEntries, OffsetCheck, TimeCheck
from auditor.replay.segments.record_checks import largest_times
from auditor.replay.segments.recovery_scan import RecoveryScan
from auditor.replay.segments.segment_point import SegmentPoint
from auditor.replay.segments.small_files import ReadsSmall, SmallFiles, no_bytes
from auditor.replay.task.replica_task import ReplicaTask

Index = TypeVar("Index", OffsetIndex, TimeIndex)
Decodes = Callable[[bytes, int, str], tuple[Index, list[DecodeError]]]


@dataclass(slots=True)
class SegmentOutcome:
    """What a segment came to by itself, when all of its chunks were read. Plain data, to be pickled.

    ``errors`` are those of its indexes, ``bytes`` those of the segment that are no batch's and of its indexes
    (:data:`auditor.replay.segments.small_files.BYTES`); ``unopened`` says why its file could not be opened.
    ``digests``: what its batches are compared by, None where replicas are not.
    """

    scan: SegmentScan
    faults: list[FaultyEntries] = field(default_factory=list)
    errors: list[DecodeError] = field(default_factory=list)
    bytes: dict[str, int] = field(default_factory=no_bytes)
    unopened: DecodeError | None = None
    digests: Headers | None = None


def read_again(task: ReplicaTask, number: int, position: int, length: int) -> bytes | None:
    """Reads a stretch of a segment once more, no more than the largest batch."""
    if length > task.limits.max_batch_bytes:
        return None
    segment = task.replica.segments[number]
    data = read_head(segment.place or task.place, segment.name, length, start=position)
    return None if isinstance(data, DecodeError) else data


def checked(
    checks: SegmentChecks, chunks: Iterator[Chunk] | DecodeError
) -> Iterator[Chunk | SegmentOutcome | SegmentPoint]:
    """The chunks of a segment, and behind them what it came to by its ``checks``.

    Behind the chunk at whose end a later reading may go on, a :class:`SegmentPoint`. Where the file could not be opened
    there is no chunk.
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
    """The checks of one segment: chunks in, its :class:`SegmentOutcome` out. Memory: 70 bytes an index entry.

    ``small`` reads its indexes. ``pause``: the byte at which a reading that goes on later should end a chunk, -1 for
    none: where the last entry of the index of an active segment points, if the task asks for such a point.
    """

    def __init__(self, task: ReplicaTask, number: int, small: ReadsSmall) -> None:
        self.segment = segment = task.replica.segments[number]
        again = functools.partial(read_again, task, number)
        self.scan = RecoveryScan(segment.base_offset, segment.size, segment.index is not None, again)
        self.task, self.number = task, number
        kept = batch_headers.begun(task)
        self.outcome = SegmentOutcome(self.scan.scan, digests=None if isinstance(kept, dict) else kept)
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
        pauses = task.leaves_resume_point and active and self.offsets is not None
        self.pause = self.offsets.last_below(segment.size) if pauses and self.offsets is not None else -1

    @classmethod
    def going_on(cls, task: ReplicaTask, number: int, small: ReadsSmall, point: SegmentPoint) -> SegmentChecks | None:
        """The checks of a segment as an earlier reading left them, to be given the batches from ``point.position`` on;
        None where what that reading rested on is no longer so."""
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
        self.outcome.scan, self.outcome.digests = point.scan, point.digests
        self.end = point.position
        return True

    def take(self, chunk: Chunk) -> None:
        """The next chunk."""
        self.accounted = chunk.end
        if len(chunk.rows):
            self.end = int(chunk.rows[-1, walking.POSITION] + chunk.rows[-1, walking.SIZE])
        self.unread += [(error.position, error.position + error.length) for error in chunk.errors]
        self.all_read = self.all_read and not chunk.errors and not chunk.body_errors
        self.scan.take(chunk)
        _noted(self.scan.scan, chunk.rows)
        if self.outcome.digests is not None:
            self.outcome.digests = batch_headers.added(self.outcome.digests, chunk.rows, self.number, self.task)
        if self.offsets is not None:
            self.offsets.take(chunk.rows)
        if self.times is not None:
            s = chunk.summary
            self.times.take(chunk.rows, None if s is None else largest_times(chunk.batches, s, *self.bounds))

    def point(self, chunk: Chunk) -> SegmentPoint | None:
        """Where the checks stand behind the chunk that came last; None where there is something to say of what came."""
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
        """What it comes to, when all chunks have come."""
        self.scan.finish()
        self.outcome.bytes["bytes_skipped"] += self.segment.size - self.accounted  # of a remote one, what the next has
        return self._with_faults()

    def unopened(self, why: DecodeError) -> SegmentOutcome:
        """What it comes to where its file could not be opened."""
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


def _noted(scan: SegmentScan, rows: np.ndarray) -> None:
    """Notes the times that retention and cleaning go by, and what is no data, of more batches of a segment."""
    if not len(rows):
        return
    times = rows[:, walking.MAX_TIMESTAMP]
    if scan.first_time < 0:
        scan.first_time = int(times[0])
    at = int(times.argmax())
    if times[at] > scan.largest_time:
        scan.largest_time, scan.largest_offset = int(times[at]), int(rows[at, walking.LAST_OFFSET])
        scan.largest_producer = int(rows[at, walking.PRODUCER_ID])
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
    """Whether a batch begins like this, by its row of a walk: its offset and, from magic 2 on, its checksum."""
    offset, crc = int.from_bytes(header[:8], "big", signed=True), int.from_bytes(header[17:21], "big")
    return bool(offset == row[walking.BASE_OFFSET] and (row[walking.MAGIC] < 2 or crc == row[walking.CRC]))


def _decoded(decode: Decodes[Index], segment: SegmentFile, file: DataFile | None, files: SmallFiles) -> Index | None:
    """An index of the segment, its bytes booked; None where there is none to read."""
    if (data := files.content(file)) is None or file is None:
        return None
    index, errors = decode(data, segment.base_offset, file.name)
    files.account(len(data), errors, index.zero_tail_bytes)
    return index
