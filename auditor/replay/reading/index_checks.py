"""Indexes compared with the batches of their segment, and aborted records that they expose."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from auditor.base.compiled import kernel
from auditor.base.errors import DecodeError
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec.batches import FLAW_CRC
from auditor.connectors.codec.indexes import OffsetIndex, TimeIndex
from auditor.facts.events import EventKind, blank_events
from auditor.facts.replica_facts import EXPOSED, NO_EXPOSED, ReplicaFacts
from auditor.replay.reading.lag_counts import FAR, Outcomes, headers_of, offset_index
from auditor.replay.task import ReplicaTask, as_records

# Offset and time indexes, compared with the batches of their segment as these are read.


NO_BATCH_THERE, OFFSET_ELSEWHERE, NOT_INCREASING, EARLIER_IS_LARGER = range(4)
HIGHEST = np.iinfo(np.int64).max
AT_A_TIME = 1 << 14  # events

# How many entries have met their batch, how many their end, and the last offset of the batches that came (``seen``).
PLACES = np.dtype([("met", "i8"), ("ended", "i8"), ("last_offset", "i8"), ("seen", "i8")])
# How many entries have met their batch, the largest time so far, the last offset of the last batch that has it, the
# highest of all batches up to the first that has it, and the highest of all that came (``seen``).
TIMES = np.dtype([("met", "i8"), ("time", "i8"), ("last_offset", "i8"), ("first_offset", "i8"), ("seen", "i8")])


class SortedEntries(NamedTuple):
    """Index entries in the order of a value at which the batches reach them."""

    order: np.ndarray
    values: np.ndarray


def _sorted(values: np.ndarray) -> SortedEntries:
    if not np.any(values[1:] < values[:-1]):
        return SortedEntries(np.arange(len(values)), values)
    order = np.argsort(values, kind="stable")
    return SortedEntries(order, values[order])


class IndexedPositions(NamedTuple):
    """Entries of an offset index, and the segment's content at each.

    ``there``: whether a batch begins where the entry points; ``least`` and ``most``: the offsets from there to the next
    entry's.
    """

    at: np.ndarray
    starts: SortedEntries
    ends: SortedEntries
    there: np.ndarray
    least: np.ndarray
    most: np.ndarray
    state: np.ndarray  # PLACES, one row


class Times(NamedTuple):
    """Entries of a time index.

    ``largest``: the largest time up to the offset of each; ``culprit``: the last offset of the batch that has it.
    """

    offsets: SortedEntries
    largest: np.ndarray
    culprit: np.ndarray
    state: np.ndarray  # TIMES, one row


@kernel
def _follow_places(batches: np.ndarray, places: IndexedPositions) -> None:
    """Note for each entry whether a batch begins where it points, and the offsets between it and the next one."""
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
    """Note for each entry the largest time up to its offset; ``largest`` is that of each batch, ms."""
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
    """Wrong entries of an index: the events' ``kind``, and ``columns`` of these beside ``fault``."""

    kind: EventKind
    faults: np.ndarray
    columns: dict[str, np.ndarray]

    def events(self, segment: int, log_end: int) -> Iterator[np.ndarray]:
        """Yield a row for each, some at a time: an event is forty times as large as an entry.

        A larger time before an entry contradicts it only where its offset is below ``log_end``: else it may be from
        another log.
        """
        if not len(self.faults):
            return
        counted = (self.faults != EARLIER_IS_LARGER) | (self.columns["entry_offset"] < log_end)
        odd = np.flatnonzero(counted)
        for first in range(0, len(odd), AT_A_TIME):
            some = odd[first : first + AT_A_TIME]
            events = blank_events(len(some))
            events["kind"], events["segment"], events["fault"] = int(self.kind), segment, self.faults[some]
            for name, column in self.columns.items():
                events[name] = column[some]
            yield events


class Settled(NamedTuple):
    """The first entries of an index that are right whatever batches follow: their number and a hash."""

    entries: int
    digest: bytes


def _settled(count: int, *columns: np.ndarray) -> Settled:
    digest = hashlib.blake2b(digest_size=16)
    for column in columns:
        digest.update(column[:count].tobytes())
    return Settled(count, digest.digest())


def _bounded(rows: np.ndarray, end: int = 0) -> np.ndarray:
    """Rows in which a batch with a CRC mismatch ends before the next one, the last row at ``end``.

    But no batch ends before its own base offset: its last offset may be damaged.
    """
    damaged = rows[:, walking.FLAWS] & FLAW_CRC != 0
    if not damaged.any():
        return rows
    out = rows.copy()
    following = np.append(rows[1:, walking.BASE_OFFSET] - 1, end)
    out[damaged, walking.LAST_OFFSET] = np.maximum(following, rows[:, walking.BASE_OFFSET])[damaged]
    return out


class OffsetCheck:
    """Compares an offset index, from its entry number ``done`` on, with the batches of its segment.

    Memory: 70 bytes per entry. An entry points at the start of a batch and has the last offset of the append that began
    there, which may be a later batch's: the bound is the batch before the next entry's.
    """

    def __init__(self, index: OffsetIndex, done: int = 0) -> None:
        self.whole, self.done = index, done
        self.index = index = index._replace(
            position=index.position[done:], offset=index.offset[done:], log_position=index.log_position[done:]
        )
        begin = index.log_position
        until = np.append(begin[1:], HIGHEST)[: len(begin)]
        least, most = np.zeros((2, len(begin)), np.int64)
        self.places = IndexedPositions(
            begin, _sorted(begin), _sorted(until), np.zeros(len(begin), np.bool_), least, most, np.zeros(1, PLACES)
        )

    @classmethod
    def going_on(cls, index: OffsetIndex, earlier: Settled, position: int) -> OffsetCheck | None:
        """Resume the check of a grown index, to be given the batches from byte ``position`` on.

        None where its first entries differ from the ``earlier`` ones.
        """
        if earlier != _settled(earlier.entries, index.offset, index.log_position):
            return None
        later = index.log_position[earlier.entries :]
        return None if np.any(later <= position) else cls(index, earlier.entries - 1)

    def last_below(self, size: int) -> int:
        """Return the byte below ``size`` to which the last such entry points, -1 for none."""
        below = np.flatnonzero(self.index.log_position < size)
        return int(self.index.log_position[below[-1]]) if len(below) else -1

    def settled(self, position: int) -> Settled | None:
        """Return the entries up to the one that points at byte ``position``, after all batches before it.

        None if an entry is wrong so far.
        """
        if len(self.faults(position).faults):
            return None
        count = self.done + int(np.count_nonzero(self.index.log_position <= position))
        return _settled(count, self.whole.offset, self.whole.log_position)

    def take(self, rows: np.ndarray) -> None:
        """Take the next batches (:attr:`auditor.connectors.codec.segment.Chunk.rows`)."""
        _follow_places(as_records(_bounded(rows, HIGHEST)), self.places)

    def faults(self, end: int, unread: Sequence[tuple[int, int]] = ()) -> FaultyEntries:
        """Return entries that no append of this segment explains, after all its batches.

        Not judged are entries at or beyond byte ``end`` and in the ranges ``unread`` (first byte, byte behind the
        last).
        """
        begin, most, offset, state = self.places.at, self.places.most, self.index.offset, self.places.state[0]
        ends = self.places.ends
        open_ended = ends.order[state["ended"] :]
        open_ended = open_ended[ends.values[state["ended"] :] > begin[open_ended]]
        if state["seen"]:
            most[open_ended] = state["last_offset"]
        backwards = _backwards(offset <= np.roll(offset, 1)) | _backwards(begin <= np.roll(begin, 1))
        judged = ~backwards & (begin < end)
        for first, behind in unread:
            judged &= (begin < first) | (begin >= behind)
        present = self.places.there
        elsewhere = judged & present & ((offset < self.places.least) | (offset > most))
        conditions = [backwards, judged & ~present, elsewhere]
        faults = np.select(conditions, [NOT_INCREASING, NO_BATCH_THERE, OFFSET_ELSEWHERE], -1)
        fits = present & (offset >= self.places.least) & (offset <= most)
        return _faulty(
            EventKind.INDEX_ENTRY,
            faults,
            position=self.index.position,
            entry_offset=offset,
            entry_position=begin,
            maybe_cut_off=_maybe_cut_off(fits, self.index.zero_tail_bytes),
        )


class SettledTimes(NamedTuple):
    """Entries of a time index that have met the batch at their offset, and the state of the batches so far."""

    right: Settled
    state: np.ndarray  # TIMES, one row


class TimeCheck:
    """Compares a time index, from its entry number ``done`` on, with the batches of its segment.

    Memory: 50 bytes per entry.
    """

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
    def going_on(cls, index: TimeIndex, earlier: SettledTimes) -> TimeCheck | None:
        """Resume the check of a grown index, to be given the batches that follow.

        None where its first entries differ from the ``earlier`` ones, or a new one cannot be judged without earlier
        batches.
        """
        count, state = earlier.right.entries, earlier.state[0]
        if earlier.right != _settled(count, index.timestamp, index.offset) or _turns_back(index, count):
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
        """Return the state; None if an entry is wrong so far."""
        met = int(self.times.state["met"][0])
        in_order = np.array_equal(self.times.offsets.order[:met], np.arange(met))
        if not in_order or len(self.faults().faults):
            return None
        right = _settled(self.done + met, self.whole.timestamp, self.whole.offset)
        return SettledTimes(right, self.times.state.copy())

    def take(self, rows: np.ndarray, largest: np.ndarray | None = None) -> None:
        """Take the next batches.

        ``largest``: the largest time (ms) of each where that is not what all headers say. A batch with a CRC mismatch
        has none.
        """
        batches = as_records(_bounded(rows))
        stamps = batches["max_timestamp"] if largest is None else largest
        _follow_times(batches, np.where(batches["flaws"] & FLAW_CRC, -HIGHEST, stamps), self.times)

    def faults(self) -> FaultyEntries:
        """Return entries that do not ascend, or that an earlier record's larger timestamp contradicts."""
        stamp, offset, times, state = self.index.timestamp, self.index.offset, self.times, self.times.state[0]
        rest = times.offsets.order[state["met"] :]
        times.largest[rest], times.culprit[rest] = state["time"], state["last_offset"]
        backwards = _backwards(stamp <= np.roll(stamp, 1)) | _backwards(offset < np.roll(offset, 1))
        contradicted = ~backwards & (times.largest > stamp)
        faults = np.select([backwards, contradicted], [NOT_INCREASING, EARLIER_IS_LARGER], -1)
        culprit = np.where(faults == EARLIER_IS_LARGER, times.culprit, -1)
        return _faulty(
            EventKind.TIME_INDEX_ENTRY,
            faults,
            position=self.index.position,
            entry_offset=offset,
            entry_timestamp=stamp,
            larger_last_offset=culprit,
            maybe_cut_off=_maybe_cut_off(times.largest == stamp, self.index.zero_tail_bytes),
        )


def _turns_back(index: TimeIndex, number: int) -> bool:
    """Whether an entry does not ascend from the one before it."""
    if not 0 < number < len(index.offset):
        return False
    stamp, offset = index.timestamp[number - 1 : number + 1], index.offset[number - 1 : number + 1]
    return bool(stamp[1] <= stamp[0] or offset[1] < offset[0])


def _backwards(than_before: np.ndarray) -> np.ndarray:
    """A comparison of each entry with the one before it, without the first, which has none."""
    than_before[:1] = False
    return than_before


def _maybe_cut_off(fits: np.ndarray, zeros: int) -> np.ndarray:
    """Which entries may be behind the end that a running broker knows: the last ones, of which none fits a batch.

    A truncation moves that end back and leaves the bytes; the zeros behind them (``zeros`` bytes) are removed when the
    file is closed. New entries overwrite them one by one, while the log may long be past their offsets.
    """
    last = np.flatnonzero(fits)
    after = int(last[-1]) if len(last) else -1
    return (np.arange(len(fits)) > after) & (zeros > 0)


def _faulty(kind: EventKind, faults: np.ndarray, **columns: np.ndarray) -> FaultyEntries:
    """The entries that have a fault. ``faults`` (-1 for none) and ``columns`` have a value per entry."""
    odd = np.flatnonzero(faults >= 0)
    if not len(odd):
        return FaultyEntries(kind, odd, {})
    return FaultyEntries(kind, faults[odd].astype(np.int8), {name: column[odd] for name, column in columns.items()})


# Records of aborted transactions that a replica's transaction index does not keep from read_committed consumers.
#
# A broker answers a fetch with the aborted transactions that it finds in the transaction indexes from the fetch's
# segment on. It stops at the first entry whose last stable offset is at or above the upper bound of the fetch. That
# bound is the offset of the first entry in the offset index at or behind the last byte of the fetch, else the next
# segment's base offset, else the log end. An entry whose last stable offset is too high thus hides the entries behind
# it.
#
# The smallest fetch that returns a batch ends with it, and a larger one has no lower bound. So a batch is exposed to
# some fetch exactly where that smallest one does not find its transaction. Source:
# TransactionIndex.collectAbortedTxns, LocalLog.addAbortedTransactions, OffsetIndex.fetchUpperBoundOffset,
# RemoteLogManager.addAbortedTransactions.
#
# Nearly all logs have no such entry. In others the headers of the segments with hidden entries are read once more.


class _IndexEntries(NamedTuple):
    """Columns of the entries of all transaction indexes, in the order of segments and positions."""

    segment: np.ndarray
    producer_id: np.ndarray
    last_offset: np.ndarray
    last_stable_offset: np.ndarray


class _Hidden(NamedTuple):
    """Transactions with data in a segment whose index entry is behind one with a higher LSO than their first offset.

    In the order of their markers. ``stable`` is the highest LSO before their entry, in the indexes from the segment on,
    ``entry`` the row that has it.
    """

    marker: np.ndarray
    first: np.ndarray
    stable: np.ndarray
    entry: np.ndarray


def exposed_records(task: ReplicaTask, facts: ReplicaFacts) -> np.ndarray:
    """Return the rows of EXPOSED of a replica, by its transactions and the entries of its transaction indexes.

    Cost: some passes over these; the headers of segments with hidden entries.
    """
    listed = _IndexEntries(*(facts.aborted[name] for name in _IndexEntries._fields))
    parts: list[np.ndarray] = []
    outcomes = None
    for number, hidden in _hidden(facts, listed):
        outcomes = outcomes or Outcomes(facts.transactions, facts.log_end)
        bounds = _FetchBounds(task, number, facts, listed)
        if bounds.may_be_below(int(hidden.stable.max())):
            parts.append(_of_segment(task, facts, number, hidden, bounds, outcomes))
    return np.concatenate(parts) if parts else NO_EXPOSED


def _hidden(facts: ReplicaFacts, listed: _IndexEntries) -> Iterator[tuple[int, _Hidden]]:
    """Segments with data of hidden entries' transactions, with these."""
    t = facts.transactions
    t = t[(t["commit"] == 0) & (t["marker_offset"] >= 0) & (t["first_offset"] >= 0) & (t["records"] > 0)]
    if not len(t) or not len(listed.segment):
        return
    before = np.maximum.accumulate(np.concatenate([[-1], listed.last_stable_offset[:-1]]))
    t = t[np.argsort(t["marker_offset"], kind="stable")]
    index = np.minimum(np.searchsorted(t["marker_offset"], listed.last_offset), len(t) - 1)
    own = (t["marker_offset"][index] == listed.last_offset) & (t["producer_id"][index] == listed.producer_id)
    rows = np.flatnonzero(own & (before > t["first_offset"][index]))
    if not len(rows):
        return
    bases = np.array(facts.segment_bases, np.int64)
    begins = np.maximum(np.searchsorted(bases, t["first_offset"][index[rows]], "right") - 1, 0)
    ends = np.minimum(np.searchsorted(bases, t["last_offset"][index[rows]], "right") - 1, listed.segment[rows])
    for number in range(int(begins.min()), int(ends.max()) + 1):
        here = rows[(begins <= number) & (ends >= number)]
        if not len(here):
            continue
        start = int(np.searchsorted(listed.segment, number))
        stop = int(here.max()) + 1
        highest = np.maximum.accumulate(listed.last_stable_offset[start:stop])
        # The first entry of each transaction is the one that counts: a second one may be in a later index.
        marker, row = np.unique(listed.last_offset[start:stop], return_index=True)
        row, marker = row[row > 0], marker[row > 0]
        of = index[start + row]
        first, stable = t["first_offset"][of], highest[row - 1]
        chosen = own[start + row] & (stable > first) & np.isin(marker, listed.last_offset[here])
        if chosen.any():
            entry = start + np.searchsorted(highest, stable[chosen])
            yield number, _Hidden(marker[chosen], first[chosen], stable[chosen], entry)


class _FetchBounds:
    """Upper bounds of fetches from a segment, by the byte in it at which they end."""

    def __init__(self, task: ReplicaTask, number: int, facts: ReplicaFacts, listed: _IndexEntries) -> None:
        bases = facts.segment_bases
        # Of a running broker the transaction index may be newer than the log that was read before it.
        newest = min(max(facts.log_end, int(listed.last_offset.max()) + 1), FAR)
        self.behind = bases[number + 1] if number + 1 < len(bases) else newest
        index = offset_index(task, number)
        self.known = index is not None
        none = np.empty(0, np.int64)
        self.position = none if index is None else index.log_position
        self.offset = none if index is None else index.offset

    def may_be_below(self, stable: int) -> bool:
        """Whether a fetch may have an upper bound at or below ``stable``."""
        return not self.known or self.behind <= stable or bool((self.offset <= stable).any())

    def of(self, rows: np.ndarray) -> np.ndarray:
        """Return the upper bounds of fetches that end with each of these batches.

        If the segment's index is unknown, the least that some index would give.
        """
        if not self.known:
            return np.minimum(rows[:, walking.LAST_OFFSET] + 1, self.behind)
        ends = rows[:, walking.POSITION] + rows[:, walking.SIZE]
        index = np.searchsorted(self.position, ends)
        if len(self.position):  # AbstractIndex.binarySearch never compares the first entry for equality
            index[(index == 0) & (ends == self.position[0])] = 1
        return np.append(self.offset, self.behind)[np.minimum(index, len(self.offset))]


def _of_segment(
    task: ReplicaTask, facts: ReplicaFacts, number: int, hidden: _Hidden, bounds: _FetchBounds, outcomes: Outcomes
) -> np.ndarray:
    """The rows of EXPOSED of one segment."""
    exposed_rows = np.zeros(len(hidden.marker), EXPOSED)
    exposed_rows["first_offset"], exposed_rows["last_offset"] = np.iinfo(np.int64).max, -1
    highest, start = int(hidden.stable.max()), facts.log_start
    for rows in headers_of(task, number, int(hidden.first.min()), facts.scans):
        if isinstance(rows, DecodeError):  # as an audit's errors say already
            break
        if len(rows) and int(rows[0, walking.BASE_OFFSET]) >= highest:
            break
        inside = (rows[:, walking.MAGIC] == 2) & (rows[:, walking.ATTRIBUTES] & walking.TRANSACTIONAL != 0)
        inside &= (rows[:, walking.ATTRIBUTES] & walking.CONTROL == 0) & (rows[:, walking.LAST_OFFSET] >= start)
        rows = rows[inside]
        which = outcomes.which(rows[:, walking.BASE_OFFSET], rows[:, walking.PRODUCER_ID])
        rows, which = rows[which >= 0], which[which >= 0]
        index = np.minimum(np.searchsorted(hidden.marker, outcomes.until[which]), len(exposed_rows) - 1)
        exposed = (hidden.marker[index] == outcomes.until[which]) & (bounds.of(rows) <= hidden.stable[index])
        rows, index = rows[exposed], index[exposed]
        last, first = rows[:, walking.LAST_OFFSET], np.maximum(rows[:, walking.BASE_OFFSET], start)
        np.minimum.at(exposed_rows["first_offset"], index, first)
        np.maximum.at(exposed_rows["last_offset"], index, last)
        np.add.at(exposed_rows["records"], index, np.minimum(rows[:, walking.RECORD_COUNT], last + 1 - first))
        exposed_rows["producer_id"][index] = rows[:, walking.PRODUCER_ID]
    exposed_rows["segment"], exposed_rows["known"] = number, bounds.known
    exposed_rows["marker_offset"], exposed_rows["entry"] = hidden.marker, hidden.entry
    return exposed_rows[exposed_rows["records"] > 0]
