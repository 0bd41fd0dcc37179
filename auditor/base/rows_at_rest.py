"""Rows of one kind at rest: what a driver keeps of each partition, some dozens pickled and compressed together.

Rows of like partitions are alike: a row that takes 3 KB as Python's objects takes some 30 bytes here.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

from auditor.base.pickled import dumps, loads
from auditor.base.values import Fields

Row = TypeVar("Row")
TOGETHER = 64  # rows that are packed together, and of which one reading has objects
OPEN = 4  # blocks that are kept unpacked for who asks for single rows
SORTED_TOGETHER = 32 * TOGETHER  # rows that are put in order before they are packed


class RowsAtRest(Sequence[Row]):
    """Rows that are added once and read in their order, each time as objects of their own.

    Cost: some 10 us to add a row of 1 KB, 5 us to read it; one alone costs the reading of those packed with it, the
    next ones beside it nothing, and may be an object that was given before.
    Memory: :data:`TOGETHER` rows, of those asked for alone some more, and all of them packed.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._blocks: list[bytes] = []
        self._ends: list[int] = []  # how many rows there are up to the end of each block
        self._loose: list[Row] = []
        self._open: dict[int, list[Row]] = {}  # the last blocks of which single rows were asked for
        for row in rows:
            self.append(row)

    def append(self, row: Row) -> None:
        """One more, which may be pickled now or later."""
        self._loose.append(row)
        if len(self._loose) == TOGETHER:
            self.settled()

    def settled(self) -> RowsAtRest[Row]:
        """Itself, with all rows packed."""
        if self._loose:
            self._blocks.append(dumps(self._loose))
            self._ends.append(self._packed + len(self._loose))
            self._loose = []
        return self

    def extend(self, rows: Iterable[Row]) -> None:
        """More of them. Those of blocks at rest stay as they are packed."""
        if isinstance(rows, RowsAtRest):
            self.settled()
            before = self._packed
            self._blocks += rows._blocks
            self._ends += [before + end for end in rows._ends]
            rows = rows._loose
        for row in rows:
            self.append(row)

    @property
    def _packed(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __len__(self) -> int:
        return self._packed + len(self._loose)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(operator.eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[Row]:
        for block in self._blocks:
            yield from loads(block)
        yield from self._loose

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> list[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | list[Row]:
        """A row, or those of a slice."""
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(len(self)))]
        number = range(len(self))[at]
        block = bisect.bisect_right(self._ends, number)
        rows = self._opened(block) if block < len(self._blocks) else self._loose
        return rows[number - (self._ends[block - 1] if block else 0)]

    def _opened(self, block: int) -> list[Row]:
        if block not in self._open:
            if len(self._open) == OPEN:
                del self._open[next(iter(self._open))]
            self._open[block] = loads(self._blocks[block])
        return self._open[block]

    def __getstate__(self) -> Fields:
        return vars(self) | {"_open": {}}


class RowsSeen(Sequence[Any]):
    """Rows as a function gives them, each anew whenever it is read."""

    def __init__(self, rows: Sequence[Any], seen: Callable[[Any], Any]) -> None:
        self._rows = rows
        self._seen = seen

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Any]:
        return map(self._seen, self._rows)

    def __getitem__(self, at: Any) -> Any:
        found = self._rows[at]
        return [self._seen(row) for row in found] if isinstance(at, slice) else self._seen(found)


class Gathered(Generic[Row]):
    """Rows that come in any order, to be read in one: sorted some thousands at a time, and merged.

    Few rows stay as they are. ``place``: what a row goes by; of two alike the one that came first is first.
    """

    def __init__(self, place: Callable[[Row], Any]) -> None:
        self._place = place
        self._runs: list[RowsAtRest[Row]] = []
        self._new: list[Row] = []
        self._last: Any = None  # where the last run ends
        self._apart = True  # whether each run begins where the one before has ended

    def append(self, row: Row) -> None:
        """One more."""
        self._new.append(row)
        if len(self._new) == SORTED_TOGETHER:
            self._sort()
            self._runs.append(RowsAtRest(self._new))
            self._new = []

    def take(self, rows: RowsAtRest[Row]) -> None:
        """More that are in order and at rest already; to be mixed with no others."""
        if len(rows):
            self._apart &= not self._runs or self._last <= self._place(rows[0])
            self._runs.append(rows)
            self._last = self._place(rows[-1])

    def _sort(self) -> None:
        self._new.sort(key=self._place)
        if self._new and self._runs:
            self._apart &= self._last <= self._place(self._new[0])
        if self._new:
            self._last = self._place(self._new[-1])

    def merged(self) -> Iterator[Row]:
        """All of them in order. To be asked once, or :meth:`in_order`."""
        self._sort()
        runs, self._runs = [*self._runs, self._new], []
        return itertools.chain.from_iterable(runs) if self._apart else heapq.merge(*runs, key=self._place)

    def in_order(self) -> Sequence[Row]:
        """All of them at rest. To be asked once. Those that came in order are not packed again."""
        self._sort()
        if not self._runs:
            return self._new
        if not self._apart:
            return RowsAtRest(self.merged())
        first, *others = self._runs
        for rows in (*others, self._new):
            first.extend(rows)
        return first
