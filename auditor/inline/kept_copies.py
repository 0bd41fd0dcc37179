"""Facts of copies that the driver has, and how their logs are shared out among processes."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence

from auditor.pipeline.context import Brief
from auditor.pipeline.read_step import KeptFacts, briefs_of
from auditor.pipeline.runner import Copies

LISTS_PER_PROCESS = 4
LIST_BYTES = 1 << 20  # of facts that are judged together: below, sending them costs more than judging

Log = tuple[str, list[bytes]]  # a log's cluster, and the facts of its copies


class KeptCopies(Copies):
    """Facts that the driver has, or will have once somebody asks."""

    def __init__(self, rows: Iterator[KeptFacts] | Sequence[KeptFacts]) -> None:
        self._waiting: Iterator[KeptFacts] | Sequence[KeptFacts] = rows
        self._rows: list[KeptFacts] | None = None

    def rows(self) -> list[KeptFacts]:
        """All facts, in the order of their logs."""
        if self._rows is None:
            self._rows = sorted(self._waiting, key=lambda row: row[:4])
            self._waiting = ()
        return self._rows

    def briefs(self) -> list[Brief]:
        """The briefs of all copies."""
        return briefs_of(row.brief for row in self.rows())

    def logs(self) -> list[Log]:
        """The facts of each log, in the order of the logs."""
        grouped = itertools.groupby(self.rows(), key=lambda row: row[:3])
        return [(key[0], [row.facts for row in rows]) for key, rows in grouped]

    def replaced(self, again: Copies) -> KeptCopies:
        """The newer facts of each copy."""
        newer = {row[:4]: row for row in again.rows()}
        return KeptCopies([newer.get(row[:4], row) for row in self.rows()])

    def close(self) -> None:
        """Forgets them."""
        self._rows = []


def lists(copies: KeptCopies, processes: int) -> list[list[Log]]:
    """The logs of some copies, shared out among so many processes."""
    logs = copies.logs()
    size = sum(len(facts) for _, found in logs for facts in found)
    return spread(logs, max(1, min(processes * LISTS_PER_PROCESS, -(-size // LIST_BYTES))))


def spread(logs: list[Log], count: int) -> list[list[Log]]:
    """The logs in ``count`` lists of about the same bytes: the largest first, each to the lightest list."""
    heap = [(0, number) for number in range(min(count, len(logs)))]
    lists: list[list[Log]] = [[] for _ in heap]
    sizes = [sum(map(len, facts)) for _, facts in logs]
    for at in sorted(range(len(logs)), key=lambda at: -sizes[at]):
        load, number = heapq.heappop(heap)
        lists[number].append(logs[at])
        heapq.heappush(heap, (load + sizes[at], number))
    return lists
