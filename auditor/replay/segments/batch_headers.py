"""What a replica leaves to be compared with the others by: its batches' headers, packed, or their sums where they are
many ([decision 16](docs/decisions/016-replicas-by-sums.md)).

The headers of a small log are kept, so that nothing is read twice. Those of a long one are summed
(:mod:`auditor.facts.batch_sums`) and dropped, and :class:`SegmentHeaders` reads the few that are asked for again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from auditor.base.errors import DecodeError, Limits
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec.batches import BATCH_DTYPES, FLAW_CRC, BatchColumns
from auditor.connectors.codec.damaged_fields import Known
from auditor.connectors.codec.gaps import offset_range
from auditor.connectors.codec.segment import read_segment
from auditor.connectors.stores.storage import REFUSED, Place, open_file, problem
from auditor.facts.batch_sums import MOST_KEPT, SUMMED, BatchSums, places_in
from auditor.facts.packed import PackedColumns
from auditor.replay.producers.bounds import known_of
from auditor.replay.task.replica_task import ReplicaTask

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
    """Reads headers of a replica again, as :class:`auditor.facts.batch_sums.HeaderFiles`. ``segments``: name, base
    offset, size in bytes of each as listed, and what is known of it."""

    place: Place
    segments: tuple[tuple[str, int, int, Known], ...]
    limits: Limits

    def read(
        self, number: int, start: int, stop: int | None, lowest: int
    ) -> Iterator[dict[str, np.ndarray] | DecodeError]:
        """The batches of a segment that begin between two bytes. Cost: a pass over these bytes, checksums included."""
        name, base, size, known = self.segments[number]
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
                    known=known,
                ):
                    yield columns_of(chunk.rows, number)
            except REFUSED as error:
                yield problem(name, error)._replace(file=name)

    def size(self, number: int) -> int:
        """Bytes of a segment as it was listed."""
        return self.segments[number][2]


def columns_of(rows: np.ndarray, segment: int) -> dict[str, np.ndarray]:
    """The columns that are kept of a walk's rows."""
    lines = zip(_lines(rows, segment), DIGEST.items(), strict=True)
    return {name: line.astype(dtype) for line, (name, dtype) in lines}


def _lines(rows: np.ndarray, segment: int) -> np.ndarray:
    """A line a column of :data:`DIGEST`."""
    crc_ok = rows[:, walking.FLAWS] & FLAW_CRC == 0
    return np.vstack([rows[:, DIGESTED].T, crc_ok, np.full(len(rows), segment, np.int64)])


def begun(task: ReplicaTask) -> PackedColumns | dict[str, np.ndarray]:
    """What is kept of a replica, or of a segment of it, before its first batch; nothing where there is none to compare
    it with."""
    return PackedColumns(DIGEST) if task.digests else {}


def added(kept: Headers, rows: np.ndarray, segment: int, task: ReplicaTask) -> Headers:
    """What is kept of a segment once more of a walk's rows have come: sums as soon as these show that the replica has
    too many batches, if they go on as they began."""
    if isinstance(kept, BatchSums):
        kept.add(np.ascontiguousarray(rows), AT, FLAW_CRC, segment)
        return kept
    kept.add(_lines(rows, segment))
    if not len(rows):
        return kept
    replica, reached = (
        sum(one.size for one in task.replica.segments),
        int(rows[-1, walking.POSITION] + rows[-1, walking.SIZE]),
    )
    return summed(kept, task) if kept.rows * replica > MOST_KEPT * reached else kept


def followed(kept: Headers, more: Headers, task: ReplicaTask) -> Headers:
    """What is kept of a replica and its next segment together."""
    if isinstance(kept, PackedColumns) and isinstance(more, PackedColumns):
        kept.append(more)
        return summed(kept, task) if kept.rows > MOST_KEPT else kept
    sums = kept if isinstance(kept, BatchSums) else _sums(kept, task)
    if isinstance(more, BatchSums):
        sums.append(more)
    else:
        _add(sums, more)
    return sums


def summed(kept: PackedColumns, task: ReplicaTask) -> Headers:
    """The sums of these headers. Of a log that is partly in remote storage the headers stay: to read them again would
    be a second download."""
    return kept if any(one.place is not None for one in task.replica.segments) else _sums(kept, task)


def _sums(kept: PackedColumns, task: ReplicaTask) -> BatchSums:
    sums = BatchSums(task.digests)
    _add(sums, kept)
    return sums


def _add(sums: BatchSums, more: PackedColumns) -> None:
    for number in range(more.piece_count()):
        sums.add_columns(more.piece(number, SUMMED))


def finished(kept: Headers, task: ReplicaTask) -> None:
    """Puts what is kept to rest when the last batch has come."""
    kept.pack()
    if isinstance(kept, BatchSums):
        listed = enumerate(task.replica.segments)
        segments = tuple((one.name, one.base_offset, one.size, known_of(task, number)) for number, one in listed)
        kept.files = SegmentHeaders(task.place, segments, task.limits)
