"""Offset and time indexes compared with the batches of their segment, as these come."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from auditor.base.compiled import kernel
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec.batches import FLAW_CRC
from auditor.connectors.codec.indexes import OffsetIndex, TimeIndex
from auditor.facts.events import Kind, blank_events
from auditor.replay.task.batch_records import as_records

NO_BATCH_THERE, OFFSET_ELSEWHERE, NOT_INCREASING, EARLIER_IS_LARGER = range(4)
HIGHEST = np.iinfo(np.int64).max
AT_A_TIME = 1 << 14  # events

# How many entries have met their batch, how many their end, and the last offset of the batches that came (``seen``).
PLACES = np.dtype([("met", "i8"), ("ended", "i8"), ("last_offset", "i8"), ("seen", "i8")])
# How many entries have met their batch, the largest time so far, the last offset of the last batch that has it, the
# highest of all batches up to the first that has it, and the highest of all that came (``seen``).
TIMES = np.dtype([("met", "i8"), ("time", "i8"), ("last_offset", "i8"), ("first_offset", "i8"), ("seen", "i8")])


class Sorted(NamedTuple):
    """The entries of an index in the order of a value at which the batches will come to them."""

    order: np.ndarray
    values: np.ndarray


def _sorted(values: np.ndarray) -> Sorted:
    if not np.any(values[1:] < values[:-1]):
        return Sorted(np.arange(len(values)), values)
    order = np.argsort(values, kind="stable")
    return Sorted(order, values[order])


class Places(NamedTuple):
    """The entries of an offset index, and what its segment has at each: ``there`` whether a batch begins where it
    points, ``least`` and ``most`` the offsets from there to the next entry's."""

    at: np.ndarray
    starts: Sorted
    ends: Sorted
    there: np.ndarray
    least: np.ndarray
    most: np.ndarray
    state: np.ndarray  # PLACES, one row


class Times(NamedTuple):
    """The entries of a time index; ``largest`` is the largest time up to the offset of each, ``culprit`` the last
    offset of the batch that has it."""

    offsets: Sorted
    largest: np.ndarray
    culprit: np.ndarray
    state: np.ndarray  # TIMES, one row


@kernel
def _follow_places(batches: np.ndarray, places: Places) -> None:
    """Notes for each entry whether a batch begins where it points, and what offsets lie between it and the next one."""
    state, starts, ends = places.state[0], places.starts, places.ends
    for number in range(len(batches)):
        batch = batches[number]
        while state.ended < ends.values.size and ends.values[state.ended] <= batch.position:
            entry = ends.order[state.ended]
            if state.seen and ends.values[state.ended] > places.at[entry]:
                places.most[entry] = state.last_offset
            state.ended += 1
        while state.met < starts.values.size and starts.values[state.met] <= batch.position:
            if starts.values[state.met] == batch.position:
                entry = starts.order[state.met]
                places.there[entry] = True
                places.least[entry] = batch.base_offset
                places.most[entry] = batch.last_offset
            state.met += 1
        state.last_offset = batch.last_offset
        state.seen = 1


@kernel
def _follow_times(batches: np.ndarray, largest: np.ndarray, times: Times) -> None:
    """Notes for each entry the largest time up to its offset; ``largest`` is that of each batch, ms."""
    state, offsets = times.state[0], times.offsets
    for number in range(len(batches)):
        last = batches[number].last_offset
        while state.met < offsets.values.size and offsets.values[state.met] < last:
            times.largest[offsets.order[state.met]] = state.time
            times.culprit[offsets.order[state.met]] = state.last_offset
            state.met += 1
        if largest[number] > state.time:
            state.first_offset = max(state.seen, last)
        if largest[number] >= state.time:
            state.time = largest[number]
            state.last_offset = last
        state.seen = max(state.seen, last)


class FaultyEntries(NamedTuple):
    """The entries of an index that are wrong: the events' ``kind``, and ``columns`` of these beside ``fault``."""

    kind: Kind
    faults: np.ndarray
    columns: dict[str, np.ndarray]

    def events(self, segment: int, log_end: int) -> Iterator[np.ndarray]:
        """A row for each, some at a time: an event is forty times an entry.

        A larger time before an entry contradicts it only where its offset is below ``log_end``: it need not be of this
        log else.
        """
        if not len(self.faults):
            return
        there = (self.faults != EARLIER_IS_LARGER) | (self.columns["entry_offset"] < log_end)
        odd = np.flatnonzero(there)
        for at in range(0, len(odd), AT_A_TIME):
            some = odd[at : at + AT_A_TIME]
            events = blank_events(len(some))
            events["kind"], events["segment"], events["fault"] = int(self.kind), segment, self.faults[some]
            for name, column in self.columns.items():
                events[name] = column[some]
            yield events


class Settled(NamedTuple):
    """The first entries of an index, all of them right whatever batches follow: how many, and a hash of them."""

    entries: int
    digest: bytes


def _settled(count: int, *columns: np.ndarray) -> Settled:
    found = hashlib.blake2b(digest_size=16)
    for column in columns:
        found.update(column[:count].tobytes())
    return Settled(count, found.digest())


def _bounded(rows: np.ndarray, end: int = 0) -> np.ndarray:
    """Rows in which a batch with a CRC mismatch ends where the next one begins, the last row at ``end``, but no batch
    before its own base offset: its last offset may be damaged."""
    damaged = rows[:, walking.FLAWS] & FLAW_CRC != 0
    if not damaged.any():
        return rows
    out = rows.copy()
    following = np.append(rows[1:, walking.BASE_OFFSET] - 1, end)
    out[damaged, walking.LAST_OFFSET] = np.maximum(following, rows[:, walking.BASE_OFFSET])[damaged]
    return out


class OffsetCheck:
    """An offset index, to be compared with the batches of its segment from its entry number ``done`` on. Memory: 70
    bytes an entry.

    An entry points at the start of a batch and carries the last offset of the append that began there, which may be a
    later batch's: the bound is the batch before the next entry's.
    """

    def __init__(self, index: OffsetIndex, done: int = 0) -> None:
        self.whole, self.done = index, done
        self.index = index = index._replace(
            position=index.position[done:], offset=index.offset[done:], log_position=index.log_position[done:]
        )
        at = index.log_position
        until = np.append(at[1:], HIGHEST)[: len(at)]
        least, most = np.zeros((2, len(at)), np.int64)
        self.places = Places(
            at, _sorted(at), _sorted(until), np.zeros(len(at), np.bool_), least, most, state=np.zeros(1, PLACES)
        )

    @classmethod
    def going_on(cls, index: OffsetIndex, settled: Settled, position: int) -> OffsetCheck | None:
        """The check of a grown index, to be given the batches from byte ``position`` on; None where these entries are
        no longer settled there."""
        if settled != _settled(settled.entries, index.offset, index.log_position):
            return None
        later = index.log_position[settled.entries :]
        return None if np.any(later <= position) else cls(index, settled.entries - 1)

    def last_below(self, size: int) -> int:
        """The byte below ``size`` to which the last such entry points, -1 for none."""
        below = np.flatnonzero(self.index.log_position < size)
        return int(self.index.log_position[below[-1]]) if len(below) else -1

    def settled(self, position: int) -> Settled | None:
        """The entries up to that which points at byte ``position``, when all batches before it have come; None where
        an entry is wrong so far."""
        if len(self.faults(position).faults):
            return None
        count = self.done + int(np.count_nonzero(self.index.log_position <= position))
        return _settled(count, self.whole.offset, self.whole.log_position)

    def take(self, rows: np.ndarray) -> None:
        """The next batches (:attr:`auditor.connectors.codec.segment.Chunk.rows`)."""
        _follow_places(as_records(_bounded(rows, HIGHEST)), self.places)

    def faults(self, end: int, unread: Sequence[tuple[int, int]] = ()) -> FaultyEntries:
        """Entries that no append of this segment explains, when all its batches have come.

        Not judged are entries at or beyond byte ``end`` and in the stretches ``unread`` (first byte, byte behind the
        last).
        """
        at, most, offset, state = self.places.at, self.places.most, self.index.offset, self.places.state[0]
        ends = self.places.ends
        open_ended = ends.order[state["ended"] :]
        open_ended = open_ended[ends.values[state["ended"] :] > at[open_ended]]
        if state["seen"]:
            most[open_ended] = state["last_offset"]
        backwards = _backwards(offset <= np.roll(offset, 1)) | _backwards(at <= np.roll(at, 1))
        judged = ~backwards & (at < end)
        for first, behind in unread:
            judged &= (at < first) | (at >= behind)
        there = self.places.there
        elsewhere = judged & there & ((offset < self.places.least) | (offset > most))
        found = [backwards, judged & ~there, elsewhere]
        faults = np.select(found, [NOT_INCREASING, NO_BATCH_THERE, OFFSET_ELSEWHERE], -1)
        fits = there & (offset >= self.places.least) & (offset <= most)
        return _faulty(
            Kind.INDEX_ENTRY,
            faults,
            position=self.index.position,
            entry_offset=offset,
            entry_position=at,
            maybe_cut_off=_maybe_cut_off(fits, self.index.zero_tail_bytes),
        )


class SettledTimes(NamedTuple):
    """The entries of a time index that have met the batch behind their offset, and what the batches so far came to."""

    right: Settled
    state: np.ndarray  # TIMES, one row


class TimeCheck:
    """A time index, to be compared with the batches of its segment from its entry number ``done`` on. Memory: 50 bytes
    an entry."""

    def __init__(self, index: TimeIndex, done: int = 0) -> None:
        self.whole, self.done = index, done
        self.index = index = index._replace(
            position=index.position[done:], timestamp=index.timestamp[done:], offset=index.offset[done:]
        )
        count = len(index.timestamp)
        self.times = Times(
            _sorted(index.offset), np.full(count, -HIGHEST), np.full(count, -1, np.int64), np.zeros(1, TIMES)
        )
        self.times.state[0] = (0, -HIGHEST, -1, -1, -1)

    @classmethod
    def going_on(cls, index: TimeIndex, settled: SettledTimes) -> TimeCheck | None:
        """The check of a grown index, to be given the batches that follow; None where the entries are no longer
        settled, or where a new one cannot be judged without the batches that came."""
        count, state = settled.right.entries, settled.state[0]
        if settled.right != _settled(count, index.timestamp, index.offset) or _turns_back(index, count):
            return None
        check = cls(index, count)
        stamp, offset = check.index.timestamp, check.index.offset
        late = offset < state["seen"]  # about batches that came: the largest time so far was not yet in the index
        if np.any(stamp[late] < state["time"]):
            return None
        # The others meet what comes. Of these only whether it fits matters: nothing before them is larger.
        fits = late & (stamp == state["time"]) & (offset >= state["first_offset"])
        check.times.largest[fits] = state["time"]
        check.times.state[0] = state
        check.times.state["met"] = np.count_nonzero(late)
        return check

    def settled(self) -> SettledTimes | None:
        """Where it stands; None where an entry is wrong so far."""
        met = int(self.times.state["met"][0])
        in_order = np.array_equal(self.times.offsets.order[:met], np.arange(met))
        if not in_order or len(self.faults().faults):
            return None
        right = _settled(self.done + met, self.whole.timestamp, self.whole.offset)
        return SettledTimes(right, self.times.state.copy())

    def take(self, rows: np.ndarray, largest: np.ndarray | None = None) -> None:
        """The next batches; ``largest``: the largest time (ms) of each where that is not what all headers say. A batch
        with a wrong checksum has none."""
        batches = as_records(_bounded(rows))
        stamps = batches["max_timestamp"] if largest is None else largest
        _follow_times(batches, np.where(batches["flaws"] & FLAW_CRC, -HIGHEST, stamps), self.times)

    def faults(self) -> FaultyEntries:
        """Entries that do not increase, or that an earlier record's larger timestamp contradicts."""
        stamp, offset, times, state = self.index.timestamp, self.index.offset, self.times, self.times.state[0]
        rest = times.offsets.order[state["met"] :]
        times.largest[rest], times.culprit[rest] = state["time"], state["last_offset"]
        backwards = _backwards(stamp <= np.roll(stamp, 1)) | _backwards(offset < np.roll(offset, 1))
        contradicted = ~backwards & (times.largest > stamp)
        faults = np.select([backwards, contradicted], [NOT_INCREASING, EARLIER_IS_LARGER], -1)
        culprit = np.where(faults == EARLIER_IS_LARGER, times.culprit, -1)
        return _faulty(
            Kind.TIME_INDEX_ENTRY,
            faults,
            position=self.index.position,
            entry_offset=offset,
            entry_timestamp=stamp,
            larger_last_offset=culprit,
            maybe_cut_off=_maybe_cut_off(times.largest == stamp, self.index.zero_tail_bytes),
        )


def _turns_back(index: TimeIndex, number: int) -> bool:
    """Whether an entry does not go on where the one before it was."""
    if not 0 < number < len(index.offset):
        return False
    stamp, offset = index.timestamp[number - 1 : number + 1], index.offset[number - 1 : number + 1]
    return bool(stamp[1] <= stamp[0] or offset[1] < offset[0])


def _backwards(than_before: np.ndarray) -> np.ndarray:
    """Of a comparison of each entry with the one before it: the first has none."""
    than_before[:1] = False
    return than_before


def _maybe_cut_off(fits: np.ndarray, zeros: int) -> np.ndarray:
    """Which entries may lie behind the end that a running broker knows: the last ones, of which none fits a batch.

    A truncation moves that end back and leaves the bytes; the zeros behind them (``zeros`` bytes) are cut when the file
    is closed. New entries overwrite them one by one, while the log may long be past their offsets.
    """
    last = np.flatnonzero(fits)
    after = int(last[-1]) if len(last) else -1
    return (np.arange(len(fits)) > after) & (zeros > 0)


def _faulty(kind: Kind, faults: np.ndarray, **columns: np.ndarray) -> FaultyEntries:
    """Those entries that have a fault. ``faults`` (-1 for none) and ``columns`` have a value an entry."""
    odd = np.flatnonzero(faults >= 0)
    if not len(odd):
        return FaultyEntries(kind, odd, {})
    return FaultyEntries(kind, faults[odd].astype(np.int8), {name: column[odd] for name, column in columns.items()})
