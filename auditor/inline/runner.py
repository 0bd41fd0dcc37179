"""The two steps in processes of this machine, as many as asked for: no JVM, no Spark.

A copy is one task, the largest first; whoever is free takes the next, so that nobody waits for a list made beforehand.
Memory: the facts of all copies, pickled, on the driver.
"""

from __future__ import annotations

import heapq
import itertools
import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auditor.pipeline import plan
from auditor.pipeline.context import Brief
from auditor.pipeline.copies import KeptFacts, briefs_of, read_kept
from auditor.pipeline.isolation import Pool
from auditor.pipeline.runner import Copies, Judged, JudgeLog, Runner, judged_texts
from auditor.replay.copy_reader import CopyTask
from auditor.replay.text_copy import TextTask
from auditor.rules.view import Cluster

if TYPE_CHECKING:
    import pyarrow as pa

    from auditor.pipeline.audit import Audit

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


class InlineRunner(Runner):
    """Runs in the processes of a pool."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self.processes = pool.size
        self.name = f"inline[{pool.size}]"

    def read(self, tasks: list[CopyTask | TextTask]) -> Copies:
        """Every copy by whoever is free, the largest first."""
        large_first = [task for tasks in plan.spread(tasks, 1) for task in tasks]
        found = self.pool.map(large_first, read_kept)
        return KeptCopies(row for _, rows in found for row in rows)

    def keep(self, rows: Sequence[KeptFacts]) -> Copies:
        """As they are."""
        return KeptCopies(rows)

    def judge(self, copies: Copies, clusters: dict[str, Cluster], judge: JudgeLog) -> Iterator[Judged]:
        """Logs in lists of about the same bytes."""
        assert isinstance(copies, KeptCopies)
        lists = self.lists(copies)
        for _, rows in self.pool.map(lists, partial(judge_list, clusters, judge), reads=False):
            yield from ((kind, json.loads(text)) for kind, text in rows)

    def lists(self, copies: KeptCopies) -> list[list[Log]]:
        """The logs of some copies, shared out."""
        logs = copies.logs()
        size = sum(len(facts) for _, found in logs for facts in found)
        count = max(1, min(self.processes * LISTS_PER_PROCESS, -(-size // LIST_BYTES)))
        return spread(logs, count)

    def write(self, audit: Audit, table: str, folder: Path) -> None:
        """Writes a table."""
        from auditor.inline import tables

        tables.write(self, audit, table, folder)

    def query(self, audit: Audit, text: str, tables: frozenset[str]) -> pa.Table:
        """Asks DuckDB."""
        from auditor.inline import sql

        return sql.query(self, audit, text, tables)

    def count(self, folder: Path, table: str) -> list[dict[str, Any]]:
        """Counts with DuckDB."""
        from auditor.inline import sql

        return sql.count(folder, table)


def judge_list(clusters: dict[str, Cluster], judge: JudgeLog, logs: list[Log]) -> list[tuple[str, str]]:
    """What is said of some logs."""
    return [row for join_key, facts in logs for row in judged_texts(facts, clusters[join_key], judge)]


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
