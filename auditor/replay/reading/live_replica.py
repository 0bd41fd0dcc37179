"""A partition of a running cluster as a replica: batches that a broker hands out go through the same replay as files
do.

A broker shows neither segments nor checkpoints nor indexes: the log counts as one segment that begins where reading
began, and files are not checked. What is below that offset counts as not read: no marker there is reported as missing.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from auditor.base.errors import DEFAULT_LIMITS, DecodeError, Limits
from auditor.connectors.codec.batches import POSITION, BatchColumns
from auditor.connectors.codec.gaps import ANY_OFFSET
from auditor.connectors.codec.segment import Chunk, read_segment
from auditor.connectors.logdir.files import Replica, SegmentFile
from auditor.connectors.stores.storage import Place
from auditor.facts.replica_facts import ReplicaFacts
from auditor.model.policies import DAY_MS
from auditor.replay.reading.replica_reader import ReplicaReader
from auditor.replay.segments.culprit_reader import Opened
from auditor.replay.segments.validated import look_of
from auditor.replay.task.replica_task import ReplicaTask

OVERHEAD = 12  # bytes of a batch before those that its size counts
NOWHERE = Place("", "")


@dataclass(frozen=True, slots=True)
class LiveTask:
    """A partition to read from ``start`` on; ``end`` is the offset to read up to. ``log_dir`` stands for its broker.

    ``log_start`` and ``last_stable`` are the leader's log start and last stable offset, -1: not known.
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
        """Whether records may be missing because the cleaner took them."""
        return self.compacted or self.cleaning_unknown

    @property
    def file(self) -> str:
        """What stands for the files of the log."""
        return f"{self.topic}-{self.partition}/*.log"


class LiveReader(ReplicaReader):
    """Takes a log in pieces as they come; memory is that of a piece.

    ``watch`` is shown every chunk (its positions are bytes of what was read).
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
        none = np.empty(0, np.int64)
        self.begin([], none, none)
        self.begin_segment(0, task.file, task.start, -1)

    def take(self, data: bytes) -> bool:
        """Replays whole batches at the head of ``data`` up to the end; False where they bring the log no further."""
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
        """What was fetched is not kept."""
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
        """Remembers behind which offset nothing has been cleaned away, which only the batches themselves show."""
        if not len(b.position):
            return
        ends = b.last_offset + 1
        expected = np.concatenate([[self.next_offset], ends[:-1]])
        gaps = b.base_offset[b.base_offset > expected]
        thinned = ends[b.record_count < b.last_offset - b.base_offset + 1]
        self.holes_end = max([self.holes_end, *gaps[-1:].tolist(), *thinned[-1:].tolist()])
        self.next_offset = max(self.next_offset, int(ends[-1]))

    def done(self, read_at: int, high_watermark: int, why_early: str | None = None) -> ReplicaFacts:
        """The facts. ``read_at``: ms, what was written by then has been read; ``why_early``: what was in the way of
        reading to the end.
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
    """How many bytes of an answer are whole batches below the offset ``end``: a broker cuts the last one where its
    limit is reached. What came behind the end is left, so that all logs show about the same moment.
    """
    at = 0
    while len(data) - at >= OVERHEAD and int.from_bytes(data[at : at + 8], "big", signed=True) < end:
        size = int.from_bytes(data[at + 8 : at + OVERHEAD], "big", signed=True) + OVERHEAD
        if size <= OVERHEAD:
            return len(data)  # no batch begins like that: the decoder says so
        if at + size > len(data):
            break
        at += size
    return at
