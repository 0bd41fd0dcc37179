"""Offset and time indexes held against the batches of their segment, as these come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from auditor.base.compiled import kernel
from auditor.connectors.codec import batch as walking
from auditor.connectors.codec.index import OffsetIndex, TimeIndex
from auditor.facts.copy_facts import EVENT, Kind

NO_BATCH_THERE, OFFSET_ELSEWHERE, NOT_INCREASING, EARLIER_IS_LARGER = range(4)
HIGHEST = np.iinfo(np.int64).max

# Indexes into the state of a check: how many entries have met their batch, how many their end, and what came so far.
_MET, _ENDED, _LAST, _TIME, _CULPRIT, _SEEN = range(6)


class _Sorted:
    """The entries of an index in the order of a value at which the batches will come to them."""

    def __init__(self, values: np.ndarray) -> None:
        self.order = np.argsort(values, kind="stable")
        self.values = values[self.order]


@kernel
def _follow_places(b, s, place, by_place, until, by_end, at, there, least, most):  # type: ignore[no-untyped-def]
    """Notes for each entry whether a batch begins where it points, and what offsets lie between it and the next one."""
    for i in range(len(b)):
        position = b[i, walking.POSITION]
        while s[_ENDED] < until.size and until[s[_ENDED]] <= position:
            entry = by_end[s[_ENDED]]
            if s[_SEEN] and until[s[_ENDED]] > at[entry]:
                most[entry] = s[_LAST]
            s[_ENDED] += 1
        while s[_MET] < place.size and place[s[_MET]] <= position:
            if place[s[_MET]] == position:
                entry = by_place[s[_MET]]
                there[entry] = True
                least[entry] = b[i, walking.BASE_OFFSET]
                most[entry] = b[i, walking.LAST_OFFSET]
            s[_MET] += 1
        s[_LAST] = b[i, walking.LAST_OFFSET]
        s[_SEEN] = 1


@kernel
def _follow_times(b, times, s, offset, order, largest, culprit):  # type: ignore[no-untyped-def]
    """Notes for each entry the largest time up to its offset, and the last offset of the batch that has it."""
    for i in range(len(b)):
        last = b[i, walking.LAST_OFFSET]
        while s[_MET] < offset.size and offset[s[_MET]] < last:
            largest[order[s[_MET]]] = s[_TIME]
            culprit[order[s[_MET]]] = s[_CULPRIT]
            s[_MET] += 1
        if times[i] >= s[_TIME]:
            s[_TIME] = times[i]
            s[_CULPRIT] = last


class OffsetCheck:
    """An offset index, to be held against the batches of its segment. Memory: 70 bytes an entry.

    An entry points at the start of a batch and carries the last offset of the append that began there, which may be a
    later batch's: the bound is the batch before the next entry's.
    """

    def __init__(self, index: OffsetIndex) -> None:
        self.index = index
        self.at, self.offset = index.log_position, index.offset
        until = np.append(self.at[1:], HIGHEST)[: len(self.at)]
        self.places, self.ends = _Sorted(self.at), _Sorted(until)
        self.there = np.zeros(len(self.at), np.bool_)
        self.least, self.most = np.zeros((2, len(self.at)), np.int64)
        self.state = np.zeros(_SEEN + 1, np.int64)

    def take(self, rows: np.ndarray) -> None:
        """The next batches (:attr:`auditor.connectors.codec.segment.Chunk.rows`)."""
        places, ends = self.places, self.ends
        _follow_places(
            rows, self.state, places.values, places.order, ends.values, ends.order, self.at, self.there, self.least,
            self.most,
        )  # fmt: skip

    def events(self, segment: int, end: int, unread: Sequence[tuple[int, int]] = ()) -> list[np.ndarray]:
        """Events for entries that no append of this segment explains, when all its batches have come.

        Not judged are entries at or beyond byte ``end`` and in the stretches ``unread`` (first byte, byte behind the
        last).
        """
        at, offset, most = self.at, self.offset, self.most
        open_ended = self.ends.order[self.state[_ENDED] :]
        open_ended = open_ended[self.ends.values[self.state[_ENDED] :] > at[open_ended]]
        if self.state[_SEEN]:
            most[open_ended] = self.state[_LAST]
        backwards = _backwards(offset <= np.roll(offset, 1)) | _backwards(at <= np.roll(at, 1))
        judged = ~backwards & (at < end)
        for first, behind in unread:
            judged &= (at < first) | (at >= behind)
        elsewhere = judged & self.there & ((offset < self.least) | (offset > most))
        found = [backwards, judged & ~self.there, elsewhere]
        faults = np.select(found, [NOT_INCREASING, NO_BATCH_THERE, OFFSET_ELSEWHERE], -1)
        fits = self.there & (offset >= self.least) & (offset <= most)
        residue = _residue(fits, self.index.zero_tail_bytes)
        return _events(Kind.INDEX_ENTRY, segment, faults, self.index.position, offset, at, residue)


class TimeCheck:
    """A time index, to be held against the batches of its segment. Memory: 50 bytes an entry."""

    def __init__(self, index: TimeIndex) -> None:
        self.index = index
        self.stamp, self.offset = index.timestamp, index.offset
        self.offsets = _Sorted(self.offset)
        self.largest = np.full(len(self.stamp), -HIGHEST)
        self.culprit = np.full(len(self.stamp), -1, np.int64)
        self.state = np.zeros(_SEEN + 1, np.int64)
        self.state[[_TIME, _CULPRIT]] = -HIGHEST, -1

    def take(self, rows: np.ndarray, belied: Sequence[np.ndarray] = ()) -> None:
        """The next batches; ``belied``: events of those whose records have another largest time than the header."""
        times = rows[:, walking.MAX_TIMESTAMP].copy()
        for events in belied:
            times[np.searchsorted(rows[:, walking.POSITION], events["position"])] = events["a"]
        _follow_times(rows, times, self.state, self.offsets.values, self.offsets.order, self.largest, self.culprit)

    def events(self, segment: int, log_end: int) -> list[np.ndarray]:
        """Events for entries that do not increase, or that an earlier record's larger timestamp belies."""
        stamp, offset = self.stamp, self.offset
        rest = self.offsets.order[self.state[_MET] :]
        self.largest[rest], self.culprit[rest] = self.state[_TIME], self.state[_CULPRIT]
        backwards = _backwards(stamp <= np.roll(stamp, 1)) | _backwards(offset < np.roll(offset, 1))
        belied = ~backwards & (offset < log_end) & (self.largest > stamp)
        faults = np.select([backwards, belied], [NOT_INCREASING, EARLIER_IS_LARGER], -1)
        residue = _residue(self.largest == stamp, self.index.zero_tail_bytes)
        return _events(
            Kind.TIME_INDEX_ENTRY, segment, faults, self.index.position, offset, stamp, residue, self.culprit
        )


@dataclass
class IndexChecks:
    """Those of one segment, as far as it has such indexes."""

    offsets: OffsetCheck | None = None
    times: TimeCheck | None = None

    def take(self, rows: np.ndarray, belied: Sequence[np.ndarray]) -> None:
        """The next batches, as :meth:`TimeCheck.take` wants them."""
        if self.offsets is not None:
            self.offsets.take(rows)
        if self.times is not None:
            self.times.take(rows, belied)

    def events(self, segment: int, end: int, log_end: int, unread: Sequence[tuple[int, int]]) -> list[np.ndarray]:
        """What both say, when all batches have come."""
        said = [] if self.offsets is None else self.offsets.events(segment, end, unread)
        return said if self.times is None else said + self.times.events(segment, log_end)


def _backwards(than_before: np.ndarray) -> np.ndarray:
    """Of a comparison of each entry with the one before it: the first has none."""
    than_before[:1] = False
    return than_before


def _residue(fits: np.ndarray, zeros: int) -> np.ndarray:
    """Which entries may lie behind the end that a running broker knows: the last ones, of which none fits a batch.

    A truncation moves that end back and leaves the bytes; the zeros behind them (``zeros`` bytes) are cut when the file
    is closed. New entries overwrite them one by one, while the log may long be past their offsets.
    """
    last = np.flatnonzero(fits)
    after = int(last[-1]) if len(last) else -1
    return (np.arange(len(fits)) > after) & (zeros > 0)


def _events(
    kind: Kind, segment: int, faults: np.ndarray, position: np.ndarray, offset: np.ndarray, value: np.ndarray,
    residue: np.ndarray, culprit: np.ndarray | None = None,
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
    events["e"] = residue[odd]
    if culprit is not None:
        events["d"] = np.where(faults[odd] == EARLIER_IS_LARGER, culprit[odd], -1)
    return [events]
