"""What a segment comes to by itself, whatever came before it: what a recovery would meet, its indexes, and what
replicas are compared by.

Whoever reads the segment gathers it on the way: the task that replays the replica, or one of many that read a segment
each (:mod:`auditor.spark.split`). What it takes to judge it and only the replay knows is asked for then.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field

from auditor.base.errors import DecodeError
from auditor.connectors.codec import batch as walking
from auditor.connectors.codec.index import decode_offset_index, decode_time_index
from auditor.connectors.codec.segment import Chunk
from auditor.connectors.storage import read_head
from auditor.facts.batch_sums import BatchSums
from auditor.facts.segment_scans import SegmentScan
from auditor.replay import batch_headers
from auditor.replay.batch_headers import Headers
from auditor.replay.bounds import intact_from, log_start_of
from auditor.replay.copy_task import CopyTask
from auditor.replay.index_checks import FaultyEntries, OffsetCheck, TimeCheck
from auditor.replay.record_checks import largest_times
from auditor.replay.recovery_scan import RecoveryScan
from auditor.replay.small_files import ReadsSmall, SmallFiles, no_bytes


@dataclass(slots=True)
class SegmentOutcome:
    """What a segment came to by itself, when all of its chunks were read. Plain data, to be pickled.

    ``errors`` are those of its indexes, ``bytes`` those of the segment that are no batch's and of its indexes
    (:data:`auditor.replay.small_files.BYTES`); ``unopened`` says why its file could not be opened. ``digests``: what
    its batches are compared by, None where replicas are not.
    """

    scan: SegmentScan
    faults: list[FaultyEntries] = field(default_factory=list)
    errors: list[DecodeError] = field(default_factory=list)
    bytes: dict[str, int] = field(default_factory=no_bytes)
    unopened: DecodeError | None = None
    digests: Headers | None = None


def read_again(task: CopyTask, number: int, position: int, length: int) -> bytes | None:
    """Reads a stretch of a segment once more, no more than the largest batch."""
    if length > task.limits.max_batch_bytes:
        return None
    segment = task.copy.segments[number]
    data = read_head(segment.place or task.place, segment.name, length, start=position)
    return None if isinstance(data, DecodeError) else data


def checked(
    task: CopyTask, number: int, chunks: Iterator[Chunk] | DecodeError, small: ReadsSmall
) -> Iterator[Chunk | SegmentOutcome]:
    """The chunks of a segment, and behind them what it came to; ``small`` reads its indexes.

    Where its file could not be opened there is no chunk.
    """
    checks = _SegmentChecks(task, number, small)
    if isinstance(chunks, DecodeError):
        yield checks.unopened(chunks)
        return
    for chunk in chunks:
        checks.take(chunk)
        yield chunk
    yield checks.finish()


class _SegmentChecks:
    """The checks of one segment: chunks in, its :class:`SegmentOutcome` out. Memory: 70 bytes an index entry."""

    def __init__(self, task: CopyTask, number: int, small: ReadsSmall) -> None:
        self.segment = segment = task.copy.segments[number]
        again = functools.partial(read_again, task, number)
        self.scan = RecoveryScan(segment.base_offset, segment.size, segment.index is not None, again)
        self.task, self.number = task, number
        kept = batch_headers.begun(task)
        self.outcome = SegmentOutcome(self.scan.scan, digests=None if isinstance(kept, dict) else kept)
        self.bounds = log_start_of(task), intact_from(task)
        self.end, self.accounted = 0, segment.size
        self.unread: list[tuple[int, int]] = []  # first byte, byte behind the last one
        self._read_indexes(SmallFiles(task, small, self.outcome.errors, self.outcome.bytes))

    def _read_indexes(self, files: SmallFiles) -> None:
        segment = self.segment
        self.offsets: OffsetCheck | None = None
        self.times: TimeCheck | None = None
        if (data := files.content(segment.index)) is not None and segment.index is not None:
            index, errors = decode_offset_index(data, segment.base_offset, segment.index.name)
            files.account(len(data), errors, index.zero_tail_bytes)
            self.offsets = OffsetCheck(index)
        if (data := files.content(segment.timeindex)) is not None and segment.timeindex is not None:
            times, errors = decode_time_index(data, segment.base_offset, segment.timeindex.name)
            files.account(len(data), errors, times.zero_tail_bytes)
            self.times = TimeCheck(times)

    def take(self, chunk: Chunk) -> None:
        """The next chunk."""
        self.accounted = chunk.end
        if len(chunk.rows):
            self.end = int(chunk.rows[-1, walking.POSITION] + chunk.rows[-1, walking.SIZE])
        self.unread += [(error.position, error.position + error.length) for error in chunk.errors]
        self.scan.take(chunk)
        if self.outcome.digests is not None:
            self.outcome.digests = batch_headers.added(self.outcome.digests, chunk.rows, self.number, self.task)
        if self.offsets is not None:
            self.offsets.take(chunk.rows)
        if self.times is not None:
            s = chunk.summary
            self.times.take(chunk.rows, None if s is None else largest_times(chunk.batches, s, *self.bounds))

    def finish(self) -> SegmentOutcome:
        """What it comes to, when all chunks have come."""
        self.scan.finish()
        self.outcome.bytes["bytes_skipped"] += self.segment.size - self.accounted  # of a remote one, what the next has
        return self._with_faults()

    def unopened(self, why: DecodeError) -> SegmentOutcome:
        """What it comes to where its file could not be opened."""
        self.scan.scan.undecided = "the file could not be opened"
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
