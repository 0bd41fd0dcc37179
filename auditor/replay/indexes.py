"""Offset and time indexes held against the batches of their segment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from auditor.facts import EVENT, Kind
from connectors.codec.columns import BatchColumns
from connectors.codec.index import OffsetIndex, TimeIndex

NO_BATCH_THERE, OFFSET_ELSEWHERE, NOT_INCREASING, EARLIER_IS_LARGER = range(4)
BLOCK_CHUNKS = 32  # looked through at a time, so that a segment of small batches is never unpacked whole
HIGHEST = np.iinfo(np.int64).max


class _Packed(NamedTuple):
    """A column of one chunk, in half of its bytes where its values lie close together."""

    first: int
    rest: np.ndarray

    @classmethod
    def of(cls, column: np.ndarray) -> _Packed:
        first = int(column[0])
        near = abs(int(column.max()) - first) < 2**31 and abs(int(column.min()) - first) < 2**31
        return cls(first, (column - first).astype(np.int32)) if near else cls(0, column.copy())

    def unpacked(self) -> np.ndarray:
        return self.rest + np.int64(self.first)


class Block(NamedTuple):
    """Some batches in file order, and where those of the next block begin (``HIGHEST`` behind the last one)."""

    position: np.ndarray
    base: np.ndarray
    last: np.ndarray
    time: np.ndarray
    next_position: int
    next_last: int


class SegmentShape:
    """Where the batches of one segment lie, gathered chunk by chunk for the comparison at its end."""

    def __init__(self) -> None:
        self.chunks: list[tuple[_Packed, ...]] = []

    def add(self, b: BatchColumns) -> None:
        """Remembers positions, offsets and times of a chunk (16 bytes a batch)."""
        if len(b.position):
            self.chunks.append(tuple(map(_Packed.of, (b.position, b.base_offset, b.last_offset, b.max_timestamp))))

    def correct(self, events: np.ndarray) -> None:
        """Puts the records' own largest time where a header belies it (events BATCH_TIMESTAMP of this chunk)."""
        position, base, last, times = self.chunks[-1]
        time = times.unpacked()
        time[np.searchsorted(position.unpacked(), events["position"])] = events["a"]
        self.chunks[-1] = (position, base, last, _Packed.of(time))

    def blocks(self) -> Iterator[Block]:
        """All batches, a block at a time."""
        groups = [self.chunks[at : at + BLOCK_CHUNKS] for at in range(0, len(self.chunks), BLOCK_CHUNKS)]
        for number, group in enumerate(groups):
            position, base, last, time = (
                np.concatenate([packed.unpacked() for packed in part]) for part in zip(*group, strict=True)
            )
            after = groups[number + 1][0] if number + 1 < len(groups) else None
            starts = (after[0].unpacked()[0], after[2].unpacked()[0]) if after else (HIGHEST, HIGHEST)
            yield Block(position, base, last, time, int(starts[0]), int(starts[1]))


def check_offset_index(
    index: OffsetIndex, shape: SegmentShape, segment: int, end: int, unread: Sequence[tuple[int, int]] = ()
) -> list[np.ndarray]:
    """Events for entries that no append of this segment explains.

    Not judged are entries at or beyond byte ``end`` and in the stretches ``unread`` (first byte, byte behind the last).

    An entry points at the start of a batch and carries the last offset of the append that began there, which may be a
    later batch's: the bound is the batch before the next entry's.
    """
    at, offset = (np.asarray(column, np.int64) for column in (index.log_position, index.offset))
    until = np.append(at[1:], end)[: len(at)]
    there, least, most = np.zeros(len(at), bool), np.zeros(len(at), np.int64), np.zeros(len(at), np.int64)
    for b in shape.blocks():
        mine = np.flatnonzero((at >= b.position[0]) & (at <= b.position[-1]))
        row = np.searchsorted(b.position, at[mine])
        mine, row = mine[b.position[row] == at[mine]], row[b.position[row] == at[mine]]
        there[mine], least[mine], most[mine] = True, b.base[row], b.last[row]
        ending = np.flatnonzero((until > b.position[0]) & (until <= b.next_position) & (until > at))
        most[ending] = b.last[np.searchsorted(b.position, until[ending]) - 1]
    backwards = _backwards(offset <= np.roll(offset, 1)) | _backwards(at <= np.roll(at, 1))
    judged = ~backwards & (at < end)
    for first, behind in unread:
        judged &= (at < first) | (at >= behind)
    elsewhere = there & ((offset < least) | (offset > most))
    faults = np.select(
        [backwards, judged & ~there, judged & elsewhere], [NOT_INCREASING, NO_BATCH_THERE, OFFSET_ELSEWHERE], -1
    )
    return _events(Kind.INDEX_ENTRY, segment, faults, index.position, offset, at)


def check_time_index(index: TimeIndex, shape: SegmentShape, segment: int, log_end: int) -> list[np.ndarray]:
    """Events for entries that do not increase, or that an earlier record's larger timestamp belies."""
    stamp, offset = (np.asarray(column, np.int64) for column in (index.timestamp, index.offset))
    largest, culprit = np.full(len(stamp), -HIGHEST), np.full(len(stamp), -1, np.int64)
    so_far, its_offset = -HIGHEST, -1
    for b in shape.blocks():
        time = np.maximum.accumulate(np.maximum(b.time, so_far))
        rows = np.maximum.accumulate(np.where(b.time == time, np.arange(len(time)), -1))
        whose = np.where(rows >= 0, b.last[rows], its_offset)
        mine = np.flatnonzero((offset >= b.last[0]) & (offset < b.next_last))
        row = np.searchsorted(b.last, offset[mine], side="right") - 1
        largest[mine], culprit[mine] = time[row], whose[row]
        so_far, its_offset = int(time[-1]), int(whose[-1])
    backwards = _backwards(stamp <= np.roll(stamp, 1)) | _backwards(offset < np.roll(offset, 1))
    belied = ~backwards & (offset < log_end) & (largest > stamp)
    faults = np.select([backwards, belied], [NOT_INCREASING, EARLIER_IS_LARGER], -1)
    return _events(Kind.TIME_INDEX_ENTRY, segment, faults, index.position, offset, stamp, culprit)


def _backwards(than_before: np.ndarray) -> np.ndarray:
    """Of a comparison of each entry with the one before it: the first has none."""
    than_before[:1] = False
    return than_before


def _events(
    kind: Kind, segment: int, faults: np.ndarray, position: np.ndarray, offset: np.ndarray, value: np.ndarray,
    culprit: np.ndarray | None = None,
) -> list[np.ndarray]:  # fmt: skip
    """A row for each entry with a fault; ``culprit``: the last offset of the batch that belies it."""
    odd = np.flatnonzero(faults >= 0)
    if not len(odd):
        return []
    events = np.zeros(len(odd), EVENT)
    for name in ("base_offset", "last_offset", "producer_id", "timestamp", "time", "leader_epoch", "d", "e"):
        events[name] = -1
    events["kind"], events["segment"], events["position"] = int(kind), segment, position[odd]
    events["a"], events["b"], events["c"], events["producer_epoch"] = offset[odd], value[odd], faults[odd], -1
    if culprit is not None:
        events["d"] = np.where(faults[odd] == EARLIER_IS_LARGER, culprit[odd], -1)
    return [events]
