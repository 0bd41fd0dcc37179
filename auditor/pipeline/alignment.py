"""Two streams of records aligned by the runs of records that match in order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class MatchedRun(NamedTuple):
    """Records ``first`` to ``last`` of A that are, in this order, the records of B from ``other`` on.

    Numbers count the records of a stream from 0.
    """

    first: int
    last: int
    other: int

    @property
    def records(self) -> int:
        """How many they are."""
        return self.last - self.first + 1

    @property
    def other_last(self) -> int:
        """The last record of B."""
        return self.other + self.last - self.first


def in_order(runs: Sequence[MatchedRun]) -> tuple[list[MatchedRun], list[MatchedRun]]:
    """Part runs, sorted by ``first``, into those with the most records that B has in the order of A, and others.

    Cost: n log n (the heaviest increasing subsequence, by a Fenwick tree of maxima).
    """
    places = {other: rank + 1 for rank, other in enumerate(sorted(run.other for run in runs))}
    tree: list[tuple[int, int]] = [(0, -1)] * (len(places) + 1)  # records so far, and the last run of these
    before = [-1] * len(runs)
    best = (0, -1)
    for number, run in enumerate(runs):
        rank, most = places[run.other] - 1, (0, -1)
        while rank > 0:
            most = max(most, tree[rank])
            rank -= rank & -rank
        before[number] = most[1]
        total = (most[0] + run.records, number)
        best = max(best, total)
        rank = places[run.other]
        while rank < len(tree):
            tree[rank] = max(tree[rank], total)
            rank += rank & -rank
    chosen, number = set[int](), best[1]
    while number >= 0:
        chosen.add(number)
        number = before[number]
    kept = [run for k, run in enumerate(runs) if k in chosen]
    return kept, [run for k, run in enumerate(runs) if k not in chosen]


@dataclass(slots=True)
class Alignment:
    """The runs of a stream that match in order, sorted; ``moved`` are those that B has at another place."""

    runs: list[MatchedRun]
    moved: list[MatchedRun] = field(default_factory=list)
    _firsts: list[int] = field(init=False)
    _others: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.runs = [run for run in self.runs if run.records > 0]
        self._firsts = [run.first for run in self.runs]
        self._others = [run.other for run in self.runs]

    def before(self, number: int) -> int | None:
        """Return the record of B that matches the last record of A before ``number``; None for none."""
        k = bisect_left(self._firsts, number) - 1
        return None if k < 0 else self.runs[k].other + min(number - 1, self.runs[k].last) - self.runs[k].first

    def after(self, number: int) -> int | None:
        """Return the record of B that matches the first record of A from ``number`` on; None for none."""
        k = bisect_right(self._firsts, number) - 1
        if k >= 0 and number <= self.runs[k].last:
            return self.runs[k].other + number - self.runs[k].first
        return self.runs[k + 1].other if k + 1 < len(self.runs) else None

    def match(self, number: int) -> int | None:
        """Return the record of B that matches the record ``number`` of A; None for none."""
        following = self.after(number)
        return following if following == self.before(number + 1) else None

    def reversed(self) -> Alignment:
        """Return the same with A and B exchanged."""
        return Alignment([MatchedRun(run.other, run.other_last, run.first) for run in self.runs])


def less(spans: Iterable[tuple[int, int]], first: int, behind: int) -> int:
    """Return how many numbers of ``[first, behind)`` are in none of the spans (first and last); below 0 backwards."""
    left, reached = behind - first, first
    for begin, last in sorted(spans):
        begin, end = max(begin, reached), min(last + 1, behind)
        left, reached = left - max(0, end - begin), max(reached, end)
    return left
