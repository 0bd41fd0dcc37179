"""Facts of copies that the driver has, and how their logs are shared out among processes."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence

from auditor.facts.rows_at_rest import Gathered, RowsAtRest
from auditor.pipeline.context import Brief
from auditor.pipeline.read_step import KeptFacts, briefs_of
from auditor.pipeline.runner import Copies

LISTS_PER_PROCESS = 4
LIST_BYTES = 1 << 20  # of facts that are judged together: below, sending them costs more than judging

Log = tuple[str, list[bytes]]  # a log's cluster, and the facts of its copies


class KeptCopies(Copies):
    """Facts that the driver has, or will have once somebody asks."""

    def __init__(self, rows: Iterable[KeptFacts]) -> None:
        self._waiting = rows
        self._rows: Sequence[KeptFacts] | None = None

    def rows(self) -> Sequence[KeptFacts]:
        """All facts, in the order of their logs."""
        if self._rows is None:
            gathered = Gathered[KeptFacts](lambda row: row[:4])
            for row in self._waiting:
                gathered.append(row)
            self._rows, self._waiting = gathered.in_order(), ()
        return self._rows

    def briefs(self) -> list[Brief]:
        """The briefs of all copies."""
        return briefs_of(row.brief for row in self.rows())

    def logs(self) -> Iterator[Log]:
        """The facts of each log, in the order of the logs."""
        for key, rows in itertools.groupby(self.rows(), key=lambda row: row[:3]):
            yield key[0], [row.facts for row in rows]

    def replaced(self, again: Copies) -> KeptCopies:
        """The newer facts of each copy."""
        newer = {row[:4]: row for row in again.rows()}
        return KeptCopies([newer.get(row[:4], row) for row in self.rows()])

    def close(self) -> None:
        """Forgets them."""
        self._rows = []


def lists(copies: KeptCopies, processes: int) -> list[RowsAtRest[Log]]:
    """The logs of some copies, shared out among so many processes."""
    sizes = [sum(map(len, facts)) for _, facts in copies.logs()]
    count = max(1, min(processes * LISTS_PER_PROCESS, -(-sum(sizes) // LIST_BYTES)))
    shared: list[RowsAtRest[Log]] = [RowsAtRest() for _ in range(min(count, len(sizes)))]
    for log, number in zip(copies.logs(), spread(sizes, count), strict=True):
        shared[number].append(log)
    return shared


def spread(sizes: list[int], count: int) -> list[int]:
    """Which of ``count`` lists each log goes to, so that all have about the same bytes: the largest first, each to the
    lightest list."""
    heap = [(0, number) for number in range(min(count, len(sizes)))]
    lists = [0] * len(sizes)
    for at in sorted(range(len(sizes)), key=lambda at: -sizes[at]):
        load, lists[at] = heapq.heappop(heap)
        heapq.heappush(heap, (load + sizes[at], lists[at]))
    return lists
