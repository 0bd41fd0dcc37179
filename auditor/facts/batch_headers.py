"""The batch headers of replicas, read again where they were summed."""

from __future__ import annotations

import bisect
import functools
import itertools
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from auditor.base.errors import MIB, DecodeError
from auditor.facts.batch_sums import KEY_BYTES, SUMMED, BatchSums, wide
from auditor.facts.packed import PackedColumns
from auditor.facts.replica_facts import ReplicaFacts

# Headers of a replica that were summed and dropped, read again on demand.
#
# The result only counts if its sums equal those of the first read: files may have vanished, grown, been cut or cleaned
# since. Otherwise these batches are not compared, and an error records it.


AGAIN_BYTES = 16_384 * MIB  # of segments, for all replicas of a log
FOR_EVIDENCE = 1_024 * MIB  # of these, kept for what findings show of single batches
MOST_AT_ONCE = 16_000_000  # batches of a log that has to be held as a whole
Columns = dict[str, np.ndarray]


class HeadersLost(Exception):
    """Headers that cannot be read again. ``limited``: because a limit was reached."""

    def __init__(self, *, limited: bool = False) -> None:
        super().__init__()
        self.limited = limited


@dataclass
class Allowance:
    """How many bytes may still be read again to compare the replicas of one log.

    ``key``: for sums of replicas whose headers are kept.
    """

    left: int = AGAIN_BYTES
    key: bytes = field(default_factory=partial(os.urandom, KEY_BYTES))

    def take(self, count: int, *, evidence: bool) -> None:
        """Reserve bytes for a read. Errors: :class:`HeadersLost` where too few are left."""
        if self.left - count < (0 if evidence else FOR_EVIDENCE):
            raise HeadersLost(limited=True)
        self.left -= count


class HeadersAgain:
    """Reads again the headers of one replica whose ``digests`` are sums."""

    def __init__(self, replica: ReplicaFacts, sums: BatchSums, allowance: Allowance) -> None:
        self.replica = replica
        self.sums = sums
        self.ranges = sums.ranges
        self.allowance = allowance
        self._errors: dict[tuple[str, str], DecodeError] = {}

    @property
    def errors(self) -> list[DecodeError]:
        """What could not be read again, once per file and reason, in the order of occurrence."""
        return list(self._errors.values())

    def note(self, error: DecodeError) -> None:
        """Record an error."""
        self._errors.setdefault((error.file, error.reason), error)

    def between(self, low: int, high: int, names: Sequence[str] = (), *, evidence: bool = False) -> Columns:
        """Return columns (all, where none is named) of the batches in ranges ``low`` to ``high``, inclusive.

        Cost: reading these ranges, twice where damage hides where a batch begins. Errors: :class:`HeadersLost`.
        """
        wanted = self.ranges[low : high + 1]
        if wanted["batches"].sum() > MOST_AT_ONCE:
            raise HeadersLost(limited=True)
        for whole in (False, True):
            again = BatchSums(self.sums.key, self.sums.shift)
            parts = []
            for rows in self._walk(low, high, evidence, whole=whole):
                again.add_columns(rows)
                parts.append({name: rows[name] for name in names or rows})
            if again.ordered and np.array_equal(again.ranges, wanted):
                return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        begin = wanted[0]
        self._changed(int(begin["segment"]), int(begin["position"]), int(begin["first"]), int(wanted[-1]["last"]))
        raise HeadersLost

    def _changed(self, segment: int, position: int, first: int, last: int) -> None:
        detail = "changed while it was read: its batches are not compared with those of other replicas"
        detail += f" from offset {first} to {last}"
        self.note(DecodeError(self.replica.segments[segment], position, -1, "vanished", detail))

    def everything(self) -> PackedColumns | None:
        """Return all headers, packed, of a log that is out of order; None where it is empty. Errors:
        :class:`HeadersLost`."""
        packed: PackedColumns | None = None
        again = BatchSums(self.sums.key)
        if self.sums.total[0] > MOST_AT_ONCE:
            raise HeadersLost(limited=True)
        for number in range(len(self.replica.segments)):
            for rows in self._read(number, 0, None, -1, evidence=False):
                packed = packed or PackedColumns({name: column.dtype for name, column in rows.items()})
                packed.add(np.array([*rows.values()], np.int64))
                again.add_columns(rows)
        if again.total != self.sums.total:
            self._changed(0, 0, 0, self.replica.log_end - 1)
            raise HeadersLost
        return packed

    def limit(self, offset: int, why: str) -> None:
        """Record that a limit ends the comparison with other replicas at an offset."""
        number = max(0, int(np.searchsorted(self.replica.segment_bases, offset, side="right")) - 1)
        detail = f"not compared with other replicas from offset {offset} on: {why}"
        self.note(DecodeError(self.replica.segments[number], 0, -1, "limit", detail))

    def _walk(self, low: int, high: int, evidence: bool, *, whole: bool) -> Iterator[Columns]:
        # ``whole``: read from the segments' beginnings to their ends, where reading from the first batch failed.
        first, last = self.ranges[low], self.ranges[high]
        begin, end = int(first["segment"]), len(self.replica.segments) - 1
        behind = self.ranges[high + 1] if high + 1 < len(self.ranges) else None
        if behind is not None:
            end = int(behind["segment"])
        for number in range(begin, end + 1):
            start = int(first["position"]) if number == begin and not whole else 0
            stop = int(behind["position"]) if behind is not None and number == end and not whole else None
            if stop is not None and stop <= start:
                continue
            for rows in self._read(number, start, stop, int(first["first"]) if start else -1, evidence=evidence):
                inside = (rows["base_offset"] >= first["first"]) & (rows["base_offset"] <= last["last"])
                yield {name: column[inside] for name, column in rows.items()}

    def _read(self, number: int, start: int, stop: int | None, lowest: int, *, evidence: bool) -> Iterator[Columns]:
        files = self.sums.files
        if files is None:
            raise HeadersLost
        self.allowance.take((files.size(number) if stop is None else stop) - start, evidence=evidence)
        for rows in files.read(number, start, stop, lowest):
            if isinstance(rows, DecodeError):
                self.note(rows._replace(detail=f"{rows.detail}, when replicas were compared"))
                raise HeadersLost
            yield rows


# The batches of a replica by offset, for comparison, in pieces so that nobody holds a whole log's.
#
# Replicas are compared by sums of offset ranges (:class:`auditor.facts.batch_sums.BatchSums`), and by headers where
# sums differ. A small log has all headers, some 9 bytes per batch, in pieces of 65,536
# (:class:`auditor.facts.packed.PackedColumns`), and is summed when it is compared. A long one has only the sums, and
# the headers of a range are read again on demand. If the batches follow each other, as brokers write them, a span of
# offsets is in the pieces or ranges that hold it. A log whose batches overlap or regress is sorted as a whole, at some
# 100 bytes per batch.


COMPARED = ("last_offset", "crc", "producer_id", "producer_epoch", "base_sequence", "partition_leader_epoch")
NAMES = ("base_offset", *COMPARED, "crc_ok", "magic")  # what a comparison looks at
SPAN = ("base_offset", "last_offset")
LINEAGE = ("base_offset", "partition_leader_epoch", "crc_ok", "magic")
PIECES_AT_HAND = 2  # a stretch of one replica may end within a piece of the other


FIRST, FIRST_COLUMNS = 16, ("base_offset", "crc", "partition_leader_epoch")


def first_batches(replica: ReplicaFacts) -> int:
    """Return a checksum over the first batches of a replica, which tells their records; -1 where they are not kept."""
    kept = replica.digests
    if not isinstance(kept, PackedColumns) or not kept.piece_count():
        return -1
    columns = [column[:FIRST].astype(np.int64) for column in kept.piece(0, FIRST_COLUMNS).values()]
    return zlib.crc32(np.concatenate(columns).tobytes()) if len(columns[0]) else -1


class ReplicaBatches:
    """The batches of one replica by base offset, the first read of each.

    ``ordered``: whether they follow each other without overlap. ``starts``: the first base offset of each non-empty
    piece or range; one for all batches if they are not ordered. ``sums``: of a long log, where useful. Cost of
    construction: a pass over two columns, or none. May have to read batches again. Errors: :class:`HeadersLost`.
    """

    def __init__(self, replica: ReplicaFacts, allowance: Allowance | None = None) -> None:
        self.replica = replica
        self.allowance = allowance or Allowance()
        self.sums: BatchSums | None = None
        self.ordered, self.starts = True, []
        self.again: HeadersAgain | None = None
        self._at_hand: dict[tuple[int, tuple[str, ...]], Columns] = {}
        self._numbers: list[int] = []
        self._kept = PackedColumns({})
        self._unknown = False
        self._made: BatchSums | None = None
        if isinstance(replica.digests, BatchSums):
            self.again = HeadersAgain(replica, replica.digests, self.allowance)
            if replica.digests.ordered:
                self.sums = replica.digests
                self.starts = self.again.ranges["first"].tolist()
                return
            try:
                self._kept = self.again.everything() or self._kept
            except HeadersLost as why:
                self._unknown, self.ordered = True, False
                if why.limited:
                    self.again.limit(0, "its batches are out of order, and too many to be put in order")
                return
        elif replica.digests is not None:
            self._kept = replica.digests
        self._order()

    def _order(self) -> None:
        reach = -1
        for number in range(self._kept.piece_count()):
            rows = self._kept.piece(number, SPAN)
            base, last = rows["base_offset"], rows["last_offset"]
            if len(base):
                follow = bool((last >= base).all() and (base[1:] > last[:-1]).all() and base[0] > reach)
                self.ordered, reach = self.ordered and follow, int(last[-1])
                self.starts.append(int(base[0]))
                self._numbers.append(number)
        if not self.ordered:
            self.starts, self._numbers = [-1], [0]

    @property
    def errors(self) -> list[DecodeError]:
        """Why batches were not, or could not be, read again."""
        return [] if self.again is None else self.again.errors

    def _rows(self, place: int, names: tuple[str, ...]) -> Columns:
        # ``place``: of a piece, or range, among ``starts``.
        key = (place, names if self.sums is None else ())  # what is read again has all columns
        if key not in self._at_hand:
            if len(self._at_hand) >= PIECES_AT_HAND:
                del self._at_hand[next(iter(self._at_hand))]
            self._at_hand[key] = self._unpacked(place, names)
        return self._at_hand[key]

    def _unpacked(self, place: int, names: tuple[str, ...]) -> Columns:
        if self.sums is not None and self.again is not None:
            return self.again.between(place, place, evidence=True)
        if self.ordered:
            return self._kept.piece(self._numbers[place], names)
        _, first = np.unique(self._kept["base_offset"], return_index=True)
        return {name: self._kept[name][first] for name in names}

    def between(self, first: int | None, until: int | None) -> Columns:
        """Return :data:`NAMES` of batches with a base offset from ``first`` to below ``until``; None: unbounded."""
        if self._unknown:
            raise HeadersLost
        begin = 0 if first is None else self._place(first)
        places = range(begin, len(self.starts) if until is None else bisect.bisect_left(self.starts, until))
        if self.sums is not None and self.again is not None and places:
            pieces = [self.again.between(places[0], places[-1], NAMES)]
        else:
            pieces = [self._rows(place, NAMES) for place in places]
        parts = []
        for rows in pieces:
            low = 0 if first is None else int(np.searchsorted(rows["base_offset"], first))
            high = len(rows["base_offset"]) if until is None else int(np.searchsorted(rows["base_offset"], until))
            parts.append({name: rows[name][low:high] for name in NAMES})
        return joined(parts)

    def above(self, first: int, until: int | None, names: tuple[str, ...]) -> Iterator[Columns]:
        """Yield columns of the batches between two offsets in pieces, including duplicates, as many as can be read."""
        kept = (self._kept.piece(number, names) for number in range(self._kept.piece_count()))
        for rows in kept if self.sums is None else self._ranges(first, until, names):
            inside = rows["base_offset"] >= first
            if until is not None:
                inside &= rows["base_offset"] < until
            yield {name: rows[name][inside] for name in names}

    def _ranges(self, first: int, until: int | None, names: tuple[str, ...]) -> Iterator[Columns]:
        last = len(self.starts) if until is None else bisect.bisect_left(self.starts, until)
        try:
            for place in range(self._place(first), last):
                yield self._rows(place, names)
        except HeadersLost as why:  # what is shown of them is the least that there is
            if why.limited and self.again is not None:
                self.again.limit(first, "what findings show of many batches was too much to be read again")

    def _place(self, offset: int) -> int:
        return max(0, bisect.bisect_right(self.starts, offset) - 1)

    def start_of(self, offset: int) -> int | None:
        """Return the base offset of :meth:`row_of`, where nothing is out of order; None if there is none."""
        if self.starts and offset <= (start := self.starts[self._place(offset)]):
            return start
        return self.row_of(offset).get("base_offset")

    def row_of(self, offset: int) -> dict[str, int]:
        """Return all columns of the batch that holds ``offset``, otherwise of the next one, otherwise of the last.

        Empty if there is none.
        """
        if not self.starts:
            return {}
        names, place = tuple(self._kept.dtypes), self._place(offset)
        rows = self._rows(place, names)
        index = int(np.searchsorted(rows["base_offset"], offset, side="right")) - 1
        index += index < 0 or int(rows["last_offset"][index]) < offset
        if index == len(rows["base_offset"]):
            more = place + 1 < len(self.starts)
            rows, index = (self._rows(place + 1, names), 0) if more else (rows, index - 1)
        return {name: int(column[index]) for name, column in rows.items()}

    @functools.cached_property
    def lineage(self) -> dict[int, int]:
        """The first offset of each leader epoch of sound batches."""
        first_offsets: dict[int, int] = {}
        if self.sums is not None:
            for run in self.sums.runs.tolist():
                first_offsets.setdefault(run[0], run[1])
            return first_offsets
        for place in range(len(self.starts)):
            rows = self._unpacked(place, LINEAGE)
            sound = (rows["crc_ok"] != 0) & (rows["magic"] == 2) & (rows["partition_leader_epoch"] >= 0)
            epochs, first_rows = np.unique(rows["partition_leader_epoch"][sound], return_index=True)
            for epoch, base in zip(epochs.tolist(), rows["base_offset"][sound][first_rows].tolist(), strict=True):
                first_offsets.setdefault(epoch, base)
        return first_offsets

    def summed(self, key: bytes) -> BatchSums:
        """Return its sums under a key. Cost: a pass over the headers where these are stored."""
        if self.sums is not None:
            return self.sums
        if self._made is None or self._made.key != key:
            self._made = BatchSums(key)
            for place in range(len(self.starts)):
                self._made.add_columns(self._unpacked(place, SUMMED))
        return self._made


def joined(parts: list[Columns]) -> Columns:
    """Concatenate batches; :data:`NAMES` without rows for no parts."""
    if len(parts) == 1:
        return parts[0]
    names = parts[0] if parts else NAMES
    return {name: np.concatenate([np.empty(0, np.int64), *(rows[name] for rows in parts)]) for name in names}


# The batches of two replicas of a log that have to be compared one by one.
#
# If the batches of both follow each other, only the first of a run of equal batches is needed: it separates what is
# before from what is after, and since the batches of neither overlap, none crosses such a run. Runs are found by their
# sums, and only ranges whose sums differ are looked at batch by batch. Ranges that only one replica has become one row
# each.


MOST_APART = 2_000_000  # batches of long logs that are held to be compared one by one, at 80 bytes
AT_A_TIME = 131_072  # batches of both that are read again together
MAX_OFFSET = np.iinfo(np.int64).max
OF_SAME = ["batches", "first", "last", "digest"]  # fields of ranges with the same batches
BELOW, SAME, OURS, THEIRS, DIFFERENT = range(5)  # what a range is: below what is compared, and so on


class Lineage:
    """The leader replica's leader epochs, and which batches are outside of them.

    A batch of epoch E is outside if the leader replica has a later epoch from that offset or an earlier one on, or no E
    at all. Epochs never recur, so this is proof. Source: KIP-101.

    ``first``: the first offset of each epoch; ``low``: where the comparison begins.
    """

    def __init__(self, first: dict[int, int], low: int) -> None:
        self.low = low
        self.known = np.array(sorted(first), np.int64)
        starts = np.array([first[e] for e in self.known.tolist()], np.int64)
        self.starts = np.append(np.minimum.accumulate(starts[::-1])[::-1], MAX_OFFSET)

    def ends(self, epochs: np.ndarray) -> np.ndarray:
        """Return the offset from which batches of these epochs are outside; the highest offset for none."""
        if not len(self.known):
            return np.full(len(epochs), MAX_OFFSET)
        foreign = ~np.isin(epochs, self.known) & (epochs < self.known[-1]) & (epochs > self.known[0])
        later = np.searchsorted(self.known, epochs, side="right")
        return np.where(foreign, self.low, np.maximum(self.low, self.starts[later]))

    def outside(self, rows: Columns) -> np.ndarray:
        """Return which batches are outside."""
        epochs = rows["partition_leader_epoch"]
        sound = (rows["crc_ok"] != 0) & (rows["magic"] == 2) & (epochs >= 0)
        return sound & (rows["base_offset"] >= self.ends(epochs))

    def may_leave(self, runs: np.ndarray, ranges: np.ndarray) -> np.ndarray:
        """Return which ranges may have batches outside. ``runs``: of leader epochs, in log order."""
        begin = np.maximum(self.ends(runs["epoch"]), runs["first"])
        wrong = begin <= runs["last"]
        begin, end = np.append(begin[wrong], MAX_OFFSET), runs["last"][wrong]
        return begin[np.searchsorted(end, ranges["first"])] <= ranges["last"]


class ToCompare(NamedTuple):
    """Batches of both replicas to compare; column ``batches`` counts those that a row stands for.

    ``until``: the offset up to which they were compared, None for all; ``undecided``: whether some below it could not
    be read again.
    """

    ours: Columns
    theirs: Columns
    until: int | None = None
    undecided: bool = False


def differing(ours: ReplicaBatches, theirs: ReplicaBatches, lineage: Lineage) -> ToCompare:
    """Return the batches to compare, all of both where either is out of order.

    Nothing below ``lineage.low`` is compared. Errors: :class:`HeadersLost` where they have to be read again and cannot.
    """
    if not (ours.ordered and theirs.ordered):
        return _whole(ours, theirs)
    key = next((one.sums.key for one in (ours, theirs) if one.sums is not None), theirs.allowance.key)
    first = min(_start(ours, lineage.low), _start(theirs, lineage.low))
    a, b = ours.summed(key), theirs.summed(key)
    return _by_sums(ours, theirs, a, b, first, lineage) if a.ordered and b.ordered else _whole(ours, theirs)


def _whole(ours: ReplicaBatches, theirs: ReplicaBatches) -> ToCompare:
    try:
        return ToCompare(_each(ours.between(None, None)), _each(theirs.between(None, None)))
    except HeadersLost as why:
        if why.limited:
            _limit(ours, theirs, 0)
        raise


def _start(batches: ReplicaBatches, low: int) -> int:
    # Where the batch that holds the offset cannot be read, nothing is compared there.
    try:
        start = batches.start_of(low)
    except HeadersLost:
        return low
    return low if start is None else min(low, start)


def _put_together(
    parts: list[tuple[Columns, Columns]], until: int | None = None, *, undecided: bool = False
) -> ToCompare:
    none = {name: np.empty(0, np.int64) for name in (*NAMES, "batches")}
    parts = [(none, none), *parts]
    return ToCompare(joined([ours for ours, _ in parts]), joined([theirs for _, theirs in parts]), until, undecided)


def _each(rows: Columns) -> Columns:
    return rows | {"batches": np.ones(len(rows["base_offset"]), np.int64)}


def unequal(ours: Columns, theirs: Columns, lineage: Lineage) -> tuple[Columns, Columns]:
    """Drop batches that follow an equal one, are equal themselves, and are within the lineage."""
    keep_here, keep_there = np.ones(len(ours["magic"]), bool), np.ones(len(theirs["magic"]), bool)
    outside = lineage.outside(ours)
    if all(np.array_equal(ours[name], theirs[name]) for name in NAMES):
        same = ~outside
        keep_here[1:] = ~(same[1:] & same[:-1])
        keep_there = keep_here
    else:
        _, rows, to = np.intersect1d(
            ours["base_offset"], theirs["base_offset"], assume_unique=True, return_indices=True
        )
        same = np.logical_and.reduce([ours[name][rows] == theirs[name][to] for name in NAMES]) & ~outside[rows]
        rows, to = rows[same], to[same]
        follow = (np.diff(rows) == 1) & (np.diff(to) == 1)
        keep_here[rows[1:][follow]] = False
        keep_there[to[1:][follow]] = False
    return (
        _each({name: column[keep_here] for name, column in ours.items()}),
        _each({name: column[keep_there] for name, column in theirs.items()}),
    )


def overlaps(rows: Columns, others: Columns) -> np.ndarray:
    """Return which batches have an offset that some batch of the other replica has too."""
    if not len(others["base_offset"]):
        return np.zeros(len(rows["base_offset"]), bool)
    near = np.searchsorted(others["base_offset"], rows["last_offset"], side="right") - 1
    reach = np.maximum.accumulate(others["last_offset"])
    return (near >= 0) & (reach[np.maximum(near, 0)] >= rows["base_offset"])


def _by_sums(
    ours: ReplicaBatches, theirs: ReplicaBatches, a: BatchSums, b: BatchSums, first: int, lineage: Lineage
) -> ToCompare:
    shift = max(a.shift, b.shift)
    our_wide, their_wide = wide(a.ranges, shift - a.shift), wide(b.ranges, shift - b.shift)
    if np.array_equal(our_wide[OF_SAME], their_wide[OF_SAME]) and not lineage.may_leave(a.runs, our_wide).any():
        return _put_together([])
    numbers = np.union1d(our_wide["number"], their_wide["number"])
    our_ranges, other = _aligned(our_wide, numbers), _aligned(their_wide, numbers)
    kinds = _kinds(our_ranges, other, lineage.may_leave(a.runs, our_ranges), first, lineage.low)
    kinds[numbers < first >> shift] = BELOW
    parts: list[tuple[Columns, Columns]] = []
    batches_held, undecided = 0, False
    none = _row(0, 0, 0)
    for start, stop in _groups(kinds, our_ranges["batches"] + other["batches"]):
        batches = [int(rows["batches"][start:stop].sum()) for rows in (our_ranges, other)]
        if kinds[start] == SAME:
            stands = _row(int(our_ranges["first"][start]), int(our_ranges["first"][start]), 1)
            parts.append((stands, stands))
        elif kinds[start] == OURS:
            parts.append((_row(int(our_ranges["first"][start]), int(our_ranges["last"][stop - 1]), batches[0]), none))
        elif kinds[start] == THEIRS:
            parts.append((none, _row(int(other["first"][start]), int(other["last"][stop - 1]), batches[1])))
        elif kinds[start] == DIFFERENT:
            low = max(first, int(numbers[start]) << shift)
            high = (int(numbers[stop - 1]) + 1) << shift
            try:
                if batches_held > MOST_APART:
                    raise HeadersLost(limited=True)
                within = (low, high if high <= MAX_OFFSET else None)
                parts.append(unequal(ours.between(*within), theirs.between(*within), lineage))
                batches_held += sum(len(rows["magic"]) for rows in parts[-1])
            except HeadersLost as why:
                if why.limited:
                    _limit(ours, theirs, low)
                    return _put_together(parts, low, undecided=undecided)
                undecided = True
                parting = _row(low, -1, 1)  # it reaches nothing, and what is before and behind it are two
                parts.append((parting, parting))
    return _put_together(parts, undecided=undecided)


def _limit(ours: ReplicaBatches, theirs: ReplicaBatches, offset: int) -> None:
    for one in (ours, theirs):
        if one.again is not None:
            one.again.limit(offset, "too much of them differs")
            return


def _aligned(ranges: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    # A row without batches for each number that has no range.
    aligned = np.zeros(len(numbers), ranges.dtype)
    aligned[np.searchsorted(numbers, ranges["number"])] = ranges
    aligned["number"] = numbers
    return aligned


def _kinds(ours: np.ndarray, other: np.ndarray, doubtful: np.ndarray, first: int, low: int) -> np.ndarray:
    # ``doubtful``: ranges where batches of ours may be outside the lineage.
    kinds = np.full(len(ours), DIFFERENT)
    same = ours[OF_SAME] == other[OF_SAME]
    kinds[same & (ours["first"] >= first) & ~doubtful] = SAME
    for rows, others, kind, doubt in ((ours, other, OURS, doubtful), (other, ours, THEIRS, np.zeros(len(ours), bool))):
        alone = (others["batches"] == 0) & (rows["unsound"] == 0) & (rows["first"] >= low) & ~doubt
        kinds[alone & ~overlaps(_spans(rows), _spans(others[others["batches"] > 0]))] = kind
    return kinds


def _spans(ranges: np.ndarray) -> Columns:
    return {"base_offset": ranges["first"], "last_offset": ranges["last"]}


def _groups(kinds: np.ndarray, batches: np.ndarray) -> Iterator[tuple[int, int]]:
    # As (first, one behind the last); those that differ are cut at AT_A_TIME batches.
    full = np.where(kinds == DIFFERENT, np.cumsum(batches) // AT_A_TIME, 0)
    cuts = np.flatnonzero((np.diff(kinds) != 0) | (np.diff(full) != 0)) + 1
    return itertools.pairwise([0, *cuts.tolist(), len(kinds)] if len(kinds) else [])


def _row(first: int, last: int, batches: int) -> Columns:
    # Stands for batches that need no comparison; no row for no batches.
    values = {"base_offset": first, "last_offset": last, "partition_leader_epoch": -1, "crc_ok": 1, "batches": batches}
    return {name: np.full(int(batches > 0), values.get(name, 0), np.int64) for name in (*NAMES, "batches")}
