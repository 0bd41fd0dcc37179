"""The two steps in processes of this machine, as many as asked for: no JVM, no Spark.

A copy is one task, the largest first; whoever is free takes the next, so that nobody waits for a list made beforehand.
Memory: the facts of all copies, pickled, on the driver.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auditor.inline.kept_copies import KeptCopies, Log, lists
from auditor.pipeline import plan
from auditor.pipeline.copies import KeptFacts, read_kept
from auditor.pipeline.isolation import Pool
from auditor.pipeline.runner import Audited, Copies, Judged, JudgeLog, Runner, judged_texts
from auditor.replay.copy_task import CopyTask, TextTask
from auditor.rules.view import Cluster

if TYPE_CHECKING:
    import pyarrow as pa


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
        for _, rows in self.pool.map(lists(copies, self.processes), partial(judge_list, clusters, judge), reads=False):
            yield from ((kind, json.loads(text)) for kind, text in rows)

    def write(self, audit: Audited, table: str, folder: Path) -> None:
        """Writes a table."""
        from auditor.inline import tables

        tables.write(self.pool, audit, table, folder)

    def query(self, audit: Audited, text: str, tables: frozenset[str]) -> pa.Table:
        """Asks DuckDB."""
        from auditor.inline import sql

        return sql.query(self.pool, audit, text, tables)

    def count(self, folder: Path, table: str) -> list[dict[str, Any]]:
        """Counts with DuckDB."""
        from auditor.inline import sql

        return sql.count(folder, table)


def judge_list(clusters: dict[str, Cluster], judge: JudgeLog, logs: list[Log]) -> list[tuple[str, str]]:
    """What is said of some logs."""
    return [row for join_key, facts in logs for row in judged_texts(facts, clusters[join_key], judge)]
