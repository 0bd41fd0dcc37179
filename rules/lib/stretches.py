"""Of two replicas of a log, the batches that have to be compared one by one.

Where the batches of both follow each other, of those that are the same in both and stand together only the first is
kept: it parts what lies before from what lies behind, and since the batches of neither overlap, none reaches from one
stretch into another that is the same in both. Of long logs such stretches are found by their sums, and only the headers
of ranges whose sums differ are read again; ranges that one replica has and the other has nothing of are a row each.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from auditor.facts.batch_sums import BatchSums, wide
from auditor.rules.lib.headers_again import Columns, Unknown
from auditor.rules.lib.replica_batches import NAMES, ReplicaBatches, joined

MOST_APART = 2_000_000  # batches of long logs that are held to be compared one by one, at 80 bytes
AT_A_TIME = 131_072  # batches of both that are read again together
MAX_OFFSET = np.iinfo(np.int64).max
BELOW, SAME, OURS, THEIRS, DIFFERENT = range(5)  # what a range is: below what is compared, and so on


class Lineage:
    """The leader replica's leader epochs, and what is outside of them.

    A batch of epoch E is not where the leader replica has a later epoch from that offset or an earlier one on, or none
    of E at all. Epochs never come back, so this is proof. Source: KIP-101.

    ``first``: the first offset of each; ``low``: where the comparison begins.
    """

    def __init__(self, first: dict[int, int], low: int) -> None:
        self.low = low
        self.known = np.array(sorted(first), np.int64)
        starts = np.array([first[e] for e in self.known.tolist()], np.int64)
        self.starts = np.append(np.minimum.accumulate(starts[::-1])[::-1], MAX_OFFSET)

    def ends(self, epochs: np.ndarray) -> np.ndarray:
        """From which offset on batches of these epochs are outside; the highest offset where none is."""
        if not len(self.known):
            return np.full(len(epochs), MAX_OFFSET)
        foreign = ~np.isin(epochs, self.known) & (epochs < self.known[-1]) & (epochs > self.known[0])
        later = np.searchsorted(self.known, epochs, side="right")
        return np.where(foreign, self.low, np.maximum(self.low, self.starts[later]))

    def outside(self, rows: Columns) -> np.ndarray:
        """Which batches are outside."""
        epochs = rows["partition_leader_epoch"]
        sound = (rows["crc_ok"] != 0) & (rows["magic"] == 2) & (epochs >= 0)
        found: np.ndarray = sound & (rows["base_offset"] >= self.ends(epochs))
        return found

    def may_leave(self, runs: np.ndarray, ranges: np.ndarray) -> np.ndarray:
        """In which ranges some may be. ``runs``: of leader epochs, in the order of the log."""
        begin = np.maximum(self.ends(runs["epoch"]), runs["first"])
        wrong = begin <= runs["last"]
        begin, end = np.append(begin[wrong], MAX_OFFSET), runs["last"][wrong]
        found: np.ndarray = begin[np.searchsorted(end, ranges["first"])] <= ranges["last"]
        return found


class Apart(NamedTuple):
    """Batches of both; column ``batches`` says for how many a row stands. ``until``: the offset up to which they were
    compared, None for all; ``undecided``: whether some below it were not, since they could not be read again."""

    ours: Columns
    theirs: Columns
    until: int | None = None
    undecided: bool = False


def apart(ours: ReplicaBatches, theirs: ReplicaBatches, lineage: Lineage) -> Apart:
    """The batches to compare, all of both where either is out of order. What lies below ``lineage.low`` is not
    compared. Errors: :class:`Unknown` where they would have to be read again and cannot."""
    if not (ours.ordered and theirs.ordered):
        return _whole(ours, theirs)
    key = next((one.sums.key for one in (ours, theirs) if one.sums is not None), b"")
    first = min(_start(ours, lineage.low), _start(theirs, lineage.low))
    if key:
        a, b = ours.summed(key), theirs.summed(key)
        if a.ordered and b.ordered:
            return _by_sums(ours, theirs, a, b, first, lineage)
        return _whole(ours, theirs)
    cuts = [first, *(start for start in theirs.starts if start > first), None]
    parts = [
        thinned(ours.between(low, high), theirs.between(low, high), lineage) for low, high in itertools.pairwise(cuts)
    ]
    return _put_together(parts)


def _whole(ours: ReplicaBatches, theirs: ReplicaBatches) -> Apart:
    try:
        return Apart(_each(ours.between(None, None)), _each(theirs.between(None, None)))
    except Unknown as why:
        if why.limited:
            _limit(ours, theirs, 0)
        raise


def _start(batches: ReplicaBatches, low: int) -> int:
    """Where the batch begins that holds an offset; that offset where this cannot be known, for then nothing is compared
    there."""
    try:
        start = batches.start_of(low)
    except Unknown:
        return low
    return low if start is None else min(low, start)


def _put_together(parts: list[tuple[Columns, Columns]], until: int | None = None, *, undecided: bool = False) -> Apart:
    none = {name: np.empty(0, np.int64) for name in (*NAMES, "batches")}
    parts = [(none, none), *parts]
    return Apart(joined([here for here, _ in parts]), joined([there for _, there in parts]), until, undecided)


def _each(rows: Columns) -> Columns:
    return rows | {"batches": np.ones(len(rows["base_offset"]), np.int64)}


def thinned(here: Columns, there: Columns, lineage: Lineage) -> tuple[Columns, Columns]:
    """Both without the batches that follow one that is the same in both, are so themselves, and within the lineage."""
    keep_here, keep_there = np.ones(len(here["magic"]), bool), np.ones(len(there["magic"]), bool)
    outside = lineage.outside(here)
    if all(np.array_equal(here[name], there[name]) for name in NAMES):
        same = ~outside
        keep_here[1:] = ~(same[1:] & same[:-1])
        keep_there = keep_here
    else:
        _, at, to = np.intersect1d(here["base_offset"], there["base_offset"], assume_unique=True, return_indices=True)
        same = np.logical_and.reduce([here[name][at] == there[name][to] for name in NAMES]) & ~outside[at]
        at, to = at[same], to[same]
        follow = (np.diff(at) == 1) & (np.diff(to) == 1)
        keep_here[at[1:][follow]] = False
        keep_there[to[1:][follow]] = False
    return (
        _each({name: column[keep_here] for name, column in here.items()}),
        _each({name: column[keep_there] for name, column in there.items()}),
    )


def overlaps(rows: Columns, others: Columns) -> np.ndarray:
    """Whether some batch of the other replica holds one of a batch's offsets."""
    if not len(others["base_offset"]):
        return np.zeros(len(rows["base_offset"]), bool)
    near = np.searchsorted(others["base_offset"], rows["last_offset"], side="right") - 1
    reach = np.maximum.accumulate(others["last_offset"])
    touches: np.ndarray = (near >= 0) & (reach[np.maximum(near, 0)] >= rows["base_offset"])
    return touches


def _by_sums(
    ours: ReplicaBatches, theirs: ReplicaBatches, a: BatchSums, b: BatchSums, first: int, lineage: Lineage
) -> Apart:
    shift = max(a.shift, b.shift)
    here, there = wide(a.ranges, shift - a.shift), wide(b.ranges, shift - b.shift)
    numbers = np.union1d(here["number"], there["number"])
    mine, other = _aligned(here, numbers), _aligned(there, numbers)
    kinds = _kinds(mine, other, lineage.may_leave(a.runs, mine), first, lineage.low)
    kinds[numbers < first >> shift] = BELOW
    parts: list[tuple[Columns, Columns]] = []
    held, undecided = 0, False
    none = _row(0, 0, 0)
    for start, stop in _groups(kinds, mine["batches"] + other["batches"]):
        batches = [int(rows["batches"][start:stop].sum()) for rows in (mine, other)]
        if kinds[start] == SAME:
            stands = _row(int(mine["first"][start]), int(mine["first"][start]), 1)
            parts.append((stands, stands))
        elif kinds[start] == OURS:
            parts.append((_row(int(mine["first"][start]), int(mine["last"][stop - 1]), batches[0]), none))
        elif kinds[start] == THEIRS:
            parts.append((none, _row(int(other["first"][start]), int(other["last"][stop - 1]), batches[1])))
        elif kinds[start] == DIFFERENT:
            low = max(first, int(numbers[start]) << shift)
            high = (int(numbers[stop - 1]) + 1) << shift
            try:
                if held > MOST_APART:
                    raise Unknown(limited=True)
                within = (low, high if high <= MAX_OFFSET else None)
                parts.append(thinned(ours.between(*within), theirs.between(*within), lineage))
                held += sum(len(rows["magic"]) for rows in parts[-1])
            except Unknown as why:
                if why.limited:
                    _limit(ours, theirs, low)
                    return _put_together(parts, low, undecided=undecided)
                undecided = True
                parting = _row(low, -1, 1)  # it reaches nothing, and what is before and behind it are two
                parts.append((parting, parting))
    return _put_together(parts, undecided=undecided)


def _limit(ours: ReplicaBatches, theirs: ReplicaBatches, offset: int) -> None:
    """Names that the comparison ends at an offset."""
    for one in (ours, theirs):
        if one.again is not None:
            one.again.limit(offset, "too much of them differs")
            return


def _aligned(ranges: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """A row for each of some numbers, without batches where there is none."""
    found = np.zeros(len(numbers), ranges.dtype)
    found[np.searchsorted(numbers, ranges["number"])] = ranges
    found["number"] = numbers
    return found


def _kinds(mine: np.ndarray, other: np.ndarray, doubtful: np.ndarray, first: int, low: int) -> np.ndarray:
    """What each range is. ``doubtful``: where batches of ours may be outside the lineage."""
    kinds = np.full(len(mine), DIFFERENT)
    same = np.logical_and.reduce([mine[name] == other[name] for name in ("batches", "first", "last", "digest")])
    kinds[same & (mine["first"] >= first) & ~doubtful] = SAME
    for rows, others, kind, doubt in ((mine, other, OURS, doubtful), (other, mine, THEIRS, np.zeros(len(mine), bool))):
        alone = (others["batches"] == 0) & (rows["unsound"] == 0) & (rows["first"] >= low) & ~doubt
        kinds[alone & ~overlaps(_spans(rows), _spans(others[others["batches"] > 0]))] = kind
    return kinds


def _spans(ranges: np.ndarray) -> Columns:
    return {"base_offset": ranges["first"], "last_offset": ranges["last"]}


def _groups(kinds: np.ndarray, batches: np.ndarray) -> Iterator[tuple[int, int]]:
    """Ranges of one kind that stand together, as (first, one behind the last); of those that differ not too many."""
    full = np.where(kinds == DIFFERENT, np.cumsum(batches) // AT_A_TIME, 0)
    cuts = np.flatnonzero((np.diff(kinds) != 0) | (np.diff(full) != 0)) + 1
    return itertools.pairwise([0, *cuts.tolist(), len(kinds)] if len(kinds) else [])


def _row(first: int, last: int, batches: int) -> Columns:
    """A row that stands for batches that need not be compared with any other; none for no batches."""
    values = {"base_offset": first, "last_offset": last, "partition_leader_epoch": -1, "crc_ok": 1, "batches": batches}
    return {name: np.full(int(batches > 0), values.get(name, 0), np.int64) for name in (*NAMES, "batches")}
