"""Of very many rows the first that have something to show, and how many there are."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from auditor.base.values import Values

MOST = 200  # rows that are shown


class FirstRows:
    """Rows of the logs that have something under a name: how many, and those to show, which are first the odd ones.

    ``odd``: the part of it that makes a row odd; ``needed``: the part without which there is nothing to show of it,
    ``empty`` counts these. Memory: twice what is shown.
    """

    def __init__(self, name: str, odd: str, needed: str | None = None) -> None:
        self.name = name
        self.odd = odd
        self.needed = needed
        self.count = self.empty = self.odd_ones = 0
        self._kept: tuple[list[tuple[Any, Values]], ...] = ([], [])  # the odd ones are the second

    def add(self, place: object, row: Values) -> None:
        """Looks at one row, behind those before it by its ``place``."""
        told = row[self.name]
        if not told:
            return
        odd = bool(told[self.odd])
        if self.needed is not None and not told[self.needed] and not odd:
            self.empty += 1
            return
        self.count += 1
        self.odd_ones += odd
        if len(self._kept[odd]) < MOST:
            self._kept[odd].append((place, row))

    def join(self, other: FirstRows) -> None:
        """Takes in those of other rows, which may lie between its own."""
        self.count += other.count
        self.empty += other.empty
        self.odd_ones += other.odd_ones
        for mine, theirs in zip(self._kept, other._kept, strict=True):
            mine += theirs
            mine.sort(key=itemgetter(0))
            del mine[MOST:]

    def shown(self) -> list[Values]:
        """Those to show."""
        return [row for _, row in (*self._kept[True], *self._kept[False])][:MOST]
