"""The two steps in processes of this machine, as many as asked for: no JVM, no Spark.

A replica is one task, the largest first; whoever is free takes the next, so that nobody waits for a list made
beforehand. Memory: the facts of all replicas, packed, on the driver.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from auditor.base.at_rest import Fields, RowsAtRest
from auditor.inline.kept_replicas import KeptReplicas, lists
from auditor.pipeline import derived_tables, plan
from auditor.pipeline.runner import (
    Audited,
    Judged,
    JudgeLog,
    KeptFacts,
    Replicas,
    Runner,
    judge_list,
    judged_rows,
    read_kept,
)
from auditor.pipeline.table_parts import schemas
from auditor.processes.isolation import Pool
from auditor.replay.reading.task import ReplicaTask, SharingTask, TextTask
from auditor.rules.seen.cluster_view import Cluster

if TYPE_CHECKING:
    import pyarrow as pa

    from auditor.pipeline.table_tasks import Part, Wanted, Written
    from auditor.pipeline.work_folder import WorkFolder


class InlineRunner(Runner):
    """Runs in the processes of a pool."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self.processes = pool.size
        self.name = f"inline[{pool.size}]"
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._parts: WeakKeyDictionary[Audited, dict[str, Path]] = WeakKeyDictionary()

    def read(self, tasks: Sequence[ReplicaTask | TextTask], work: WorkFolder | None = None) -> Replicas:
        """Every replica by whoever is free, the largest first."""
        if work is not None:
            from auditor.inline import kept_lists

            return kept_lists.read(tasks, work, self.read, self.work_notes)

        def found() -> Iterator[KeptFacts]:
            large_first = plan.largest_first(plan.sharing(tasks))
            sizes = array("q", plan.bytes_of(large_first).tobytes())
            read = None
            if self.progress is not None:
                read = ReadSoFar(lambda number: _files(large_first[number]), sum(sizes), self.progress)
            opens = None if read is None else read.opens
            for number, rows in self.pool.map(large_first, read_kept, opens=opens, sizes=sizes):
                if read is not None:
                    read.ends(number)
                yield from rows

        return KeptReplicas(found)

    def keep(self, rows: Sequence[KeptFacts]) -> Replicas:
        """As they are, but for what no judge asks for."""
        known = [row._replace(resume_point=b"") for row in rows]
        return KeptReplicas(lambda: known)

    def judge(self, replicas: Replicas, clusters: dict[str, Cluster], judge: JudgeLog) -> Iterator[Judged]:
        """Logs in lists of about the same bytes. What is said of them comes in their order: it is sorted after that."""
        assert isinstance(replicas, KeptReplicas)
        shared = lists(replicas, self.processes)
        done: dict[int, RowsAtRest[tuple[str, bytes]]] = {}
        following = 0
        for number, rows in self.pool.map(shared, partial(judge_list, clusters, judge), reads=False):
            done[number] = rows
            while following in done:
                yield from judged_rows(done.pop(following))
                following += 1

    def parts(self, audit: Audited, wanted: Wanted) -> list[Part]:
        """Lists of files, then lists of facts."""
        from auditor.inline import table_processes

        return table_processes.run(self.pool, audit, wanted)

    def table(self, audit: Audited, name: str) -> pa.Table:
        """A table, whole."""
        import pyarrow.parquet as pq

        return pq.read_table(self._written(audit, [name])[name])

    def query(self, audit: Audited, text: str, tables: frozenset[str]) -> pa.Table:
        """Asks DuckDB."""
        from auditor.inline import duckdb_sql

        def parts() -> dict[str, Path]:
            return self._written(audit, [name for name in derived_tables.NAMES if name in tables])

        return duckdb_sql.query(text, schemas(audit.options.include_payload), parts)

    def _written(self, audit: Audited, tables: Sequence[str]) -> dict[str, Path]:
        """A folder with the parts of each table. They are written once, and kept until the runner closes."""
        from auditor.pipeline import table_parts

        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="auditor-tables-")
        parts = self._parts.setdefault(audit, {})
        if missing := [name for name in tables if name not in parts]:
            folder = Path(tempfile.mkdtemp(dir=self._folder.name))
            table_parts.write(audit, missing, folder, self.parts)
            parts.update({name: folder / name for name in missing})
        return {name: parts[name] for name in tables}

    def count(self, written: Written, table: str) -> list[Fields]:
        """Counts with DuckDB."""
        from auditor.inline import duckdb_sql

        return duckdb_sql.count(written.folder / table, table)

    def close(self) -> None:
        """Ends the processes and takes away the tables."""
        super().close()
        if self._folder is not None:
            self._folder.cleanup()


def _files(task: ReplicaTask | SharingTask | TextTask) -> dict[str, int]:
    return {_name(f.name): f.size for f in plan.files(task)}


def _name(path: str) -> str:
    """A file's name without its folders: tasks know files below their log directory, workers know whole paths."""
    return path.rpartition("/")[2]


class ReadSoFar:
    """How much of the files of all tasks has been read: a file is when the next of its task is opened. ``files``: the
    bytes of a task's files by name; ``total``: of all; ``heard`` hears which part, from 0 to 1, which never falls."""

    def __init__(self, files: Callable[[int], dict[str, int]], total: int, heard: Callable[[float], None]) -> None:
        self.files, self.total, self.heard = files, total, heard
        self.so_far = 0
        # Of the tasks that are being read the files that are not, each with its bytes: a file counts once, though
        # several readers may open it, and where a worker dies its task begins again.
        self.unread: dict[int, dict[str, int]] = {}
        self.open: dict[int, str] = {}

    def _of(self, task: int) -> dict[str, int]:
        if task not in self.unread:
            self.unread[task] = self.files(task)
        return self.unread[task]

    def opens(self, task: int, path: str) -> None:
        """A task opens a file."""
        name, before = _name(path), self.open.get(task, "")
        if name != before:
            self._reads(self._of(task).pop(before, 0))
            self.open[task] = name

    def ends(self, task: int) -> None:
        """A task is done."""
        self._reads(sum(self._of(task).values()))
        del self.unread[task]
        self.open.pop(task, None)

    def _reads(self, size: int) -> None:
        self.so_far += size
        if self.total:
            self.heard(min(1.0, self.so_far / self.total))
