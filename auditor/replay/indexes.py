"""Offset and time indexes held against the batches of their segment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from auditor.facts import EVENT, Kind
from connectors.codec.columns import BatchColumns
from connectors.codec.index import OffsetIndex, TimeIndex

NO_BATCH_THERE, OFFSET_ELSEWHERE, NOT_INCREASING, EARLIER_IS_LARGER = range(4)
POSITION, BASE, LAST, TIME = range(4)  # columns of a shape
HIGHEST = np.iinfo(np.int64).max - 1


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


class _Sorted:
    """The entries of an index by a value that is to be looked for."""

    def __init__(self, values: np.ndarray) -> None:
        self.order = np.argsort(values, kind="stable")
        self.values = values[self.order]

    def between(self, low: int, high: int) -> np.ndarray:
        """The entries whose value is at least ``low`` and below ``high``."""
        first, behind = np.searchsorted(self.values, (low, high))
        return self.order[first:behind]


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

    def walk(self, *wanted: int) -> Iterator[tuple[list[np.ndarray], int]]:
        """These columns chunk by chunk, and where the first of them begins in the next one (``HIGHEST``: nowhere)."""
        for number, chunk in enumerate(self.chunks):
            after = self.chunks[number + 1][wanted[0]] if number + 1 < len(self.chunks) else None
            yield [chunk[k].unpacked() for k in wanted], HIGHEST if after is None else after.first + int(after.rest[0])


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
    by_place, by_end = _Sorted(at), _Sorted(until)
    for (position, base, last), next_position in shape.walk(POSITION, BASE, LAST):
        mine = by_place.between(position[0], position[-1] + 1)
        row = np.searchsorted(position, at[mine])
        mine, row = mine[position[row] == at[mine]], row[position[row] == at[mine]]
        there[mine], least[mine], most[mine] = True, base[row], last[row]
        ending = by_end.between(position[0] + 1, next_position + 1)
        ending = ending[until[ending] > at[ending]]
        most[ending] = last[np.searchsorted(position, until[ending]) - 1]
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
    by_offset, so_far, its_offset = _Sorted(offset), -HIGHEST, -1
    for (last, times), next_last in shape.walk(LAST, TIME):
        time = np.maximum.accumulate(np.maximum(times, so_far))
        rows = np.maximum.accumulate(np.where(times == time, np.arange(len(time)), -1))
        mine = by_offset.between(last[0], next_last)
        row = np.searchsorted(last, offset[mine], side="right") - 1
        largest[mine], culprit[mine] = time[row], np.where(rows[row] >= 0, last[rows[row]], its_offset)
        so_far, its_offset = int(time[-1]), int(last[rows[-1]]) if rows[-1] >= 0 else its_offset
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
