"""Runner of an audit in processes of this machine."""

from __future__ import annotations

import itertools
import pickle
import re
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from auditor.base.at_rest import TOGETHER, ExternalSort, Fields, RowsAtRest, dumps
from auditor.base.errors import AuditInputError, DecodeError, is_unread, require
from auditor.pipeline import derived_tables, plan, summary, table_parts, table_tasks
from auditor.pipeline.cluster_context import Brief
from auditor.pipeline.derived_tables import Keyed, shares_of
from auditor.pipeline.plan import TASK_BYTES, file_bytes
from auditor.pipeline.runner import (
    Audited,
    Bunch,
    Judged,
    JudgeLog,
    KeptFacts,
    Log,
    Logs,
    Replicas,
    Runner,
    briefs_of,
    judge_list,
    judged_rows,
    kept,
    log_of,
    read_kept,
)
from auditor.pipeline.table_tasks import TableRequest, WrittenPart
from auditor.pipeline.work_folder import HALF, WorkFolder, identities, is_kept
from auditor.processes.isolation import KILLS, Pool
from auditor.replay.task import ReplicaTask, SharingTask, TextTask
from auditor.rules.expectations import measures
from auditor.rules.seen.cluster_view import Cluster

if TYPE_CHECKING:
    import pyarrow as pa

    from auditor.facts.replica_facts import ReplicaFacts
    from auditor.pipeline.table_tasks import WrittenTables


# Facts on the driver, and their distribution to processes.
#
# They are packed once, some dozens of replicas together with every log whole, and shipped to judging processes
# packed.


LISTS_PER_PROCESS = 4
LIST_BYTES = 1 << 20  # of facts that are judged together: below, sending them costs more than judging
LARGE = 1 << 16  # bytes of one replica: most of them are columns, which are compressed already


class KeptReplicas(Replicas):
    """Facts on the driver, read lazily: ``read`` yields them, from the beginning each time.

    A caller that interrupts the reading, as with Ctrl-C in a notebook, may ask again: everything is read then, not the
    rest alone.
    """

    def __init__(self, read: Callable[[], Iterable[KeptFacts]]) -> None:
        self._read = read
        self._bunches: list[Bunch] | None = None

    def _each(self) -> Iterator[KeptFacts]:
        """All facts, in the order of their logs. The first pass packs them."""
        if self._bunches is not None:
            for bunch in self._bunches:
                yield from bunch.rows
            return
        gathered = ExternalSort[KeptFacts](lambda row: row[:4])
        for row in self._read():
            gathered.append(row)
        bunches = []
        for rows in _bunched(gathered.merged()):
            size = sum(len(row.facts) for row in rows)
            large = size + sum(len(row.resume_point) for row in rows) > len(rows) * LARGE
            bunches.append(Bunch(size, rows if large else dumps(rows)))
            yield from rows
        self._bunches, self._read = bunches, tuple  # what it holds is not needed any more

    def bunches(self) -> list[Bunch]:
        """Return all facts packed, in the order of their logs."""
        if self._bunches is None:
            for _ in self._each():
                pass
        return self._bunches or []

    def rows(self) -> list[KeptFacts]:
        """Return all facts, in the order of their logs."""
        return list(self._each())

    def briefs(self) -> list[Brief]:
        """Return the briefs of all replicas."""
        return briefs_of(row.brief for row in self._each())

    def logs(self) -> Iterator[Log]:
        """Yield the facts of each log, in the order of the logs."""
        return iter(Logs(self.bunches()))

    def replaced(self, again: Replicas) -> KeptReplicas:
        """Return the facts with newer ones of some replicas."""
        newer = {row[:4]: row for row in again.rows()}
        replicas = KeptReplicas(lambda: (newer.get(row[:4], row) for row in self._each()))
        replicas.bunches()
        return replicas

    def close(self) -> None:
        """Release the facts."""
        self._bunches = []


def _bunched(rows: Iterable[KeptFacts]) -> Iterator[list[KeptFacts]]:
    """Groups of rows to pack together, in the order of their logs, each log whole."""
    bunch: list[KeptFacts] = []
    size = 0
    for _, of_log in itertools.groupby(rows, key=log_of):
        replicas = list(of_log)
        more = sum(len(row.facts) for row in replicas)
        if bunch and (len(bunch) + len(replicas) > TOGETHER or size + more > LIST_BYTES):
            yield bunch
            bunch, size = [], 0
        bunch += replicas
        size += more
    if bunch:
        yield bunch


def lists(replicas: KeptReplicas, processes: int) -> list[Logs]:
    """Return the logs of some replicas in their order, as lists of similar size for so many processes."""
    bunches = replicas.bunches()
    whole = sum(bunch.size for bunch in bunches)
    count = max(1, min(processes * LISTS_PER_PROCESS, -(-whole // LIST_BYTES)))
    before, places = 0, []
    for bunch in bunches:
        places.append((2 * before + bunch.size) * count // (2 * whole + 1))  # where its middle is
        before += bunch.size
    shared = itertools.groupby(zip(places, bunches, strict=True), key=lambda placed: placed[0])
    return [Logs([bunch for _, bunch in some]) for _, some in shared]


# Read step with a work folder: stored facts are not read again, and what is read is stored, a GiB at a time.


AnyTask = ReplicaTask | TextTask


def read(
    tasks: Sequence[AnyTask],
    work: WorkFolder,
    read_others: Callable[[Sequence[AnyTask]], Replicas],
    notes: list[str],
) -> KeptReplicas:
    """Return the facts of all tasks; ``read_others`` reads what the work folder lacks, one list after the other.

    ``notes`` gets what is left alone there.
    """

    def facts_of_all() -> Iterator[KeptFacts]:
        kept_tasks = [task for task in tasks if isinstance(task, ReplicaTask) and is_kept(task)]
        named = list(zip(kept_tasks, identities(kept_tasks), strict=True))
        positions, left_alone = content = work.known()
        rows: dict[str, list[int]] = {}
        for position in sorted(positions[identity] for identity in {i for _, i in named} if identity in positions):
            rows.setdefault(position.file, []).append(position.row)
        for file, numbers in rows.items():
            if (at_rest := work.facts(file, numbers)) is None:
                left_alone[file] = HALF
            else:
                yield from map(kept, at_rest)
        notes[:] = content.notes([identity for _, identity in named])
        for some in _lists([one for one in named if one[1] not in positions or positions[one[1]].file in left_alone]):
            yield from _read_list(some, work, read_others)
        if others := [task for task in tasks if not is_kept(task)]:
            yield from read_others(others).rows()

    return KeptReplicas(facts_of_all)


def _lists(named: list[tuple[ReplicaTask, bytes]]) -> Iterator[list[tuple[ReplicaTask, bytes]]]:
    some: list[tuple[ReplicaTask, bytes]] = []
    size = 0
    for one in named:
        some.append(one)
        size += file_bytes(one[0])
        if size >= TASK_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def _read_list(
    named: list[tuple[ReplicaTask, bytes]], work: WorkFolder, read_others: Callable[[Sequence[AnyTask]], Replicas]
) -> Iterator[KeptFacts]:
    of = {(t.join_key, t.replica.topic, t.replica.partition, t.replica.log_dir): identity for t, identity in named}
    whole: list[tuple[bytes, ReplicaFacts]] = []
    for row in read_others([task for task, _ in named]).rows():
        facts: ReplicaFacts = pickle.loads(row.facts)  # of a process of our own
        if (identity := of.get(row[:4])) is not None and not any(is_unread(e.reason, e.detail) for e in facts.errors):
            whole.append((identity, facts))
        yield row
    work.keep(whole, [identity for _, identity in named])


# SQL without Spark: DuckDB over the Parquet parts that the workers wrote.


BARE_OFFSET = re.compile(r'(?<!["\w])offset\b(?!["\w]|\s+\d)', re.I)  # not the clause OFFSET 10


def duckdb() -> ModuleType:
    """Return the module. Errors: :class:`AuditInputError` where it is not installed."""
    require("duckdb")
    import duckdb

    return duckdb


def _connected() -> Any:
    connection = duckdb().connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'; SET default_null_order = 'nulls_first'")
    for name, is_ in measures.MACROS.items():
        connection.execute(f"CREATE MACRO {name} AS {is_}")
    return connection


def _view(connection: Any, name: str, folder: Path) -> None:
    files = [str(path) for path in sorted(folder.glob("*.parquet"))]
    connection.read_parquet(files).create_view(name)


def query(text: str, tables: Mapping[str, pa.Schema], parts: Callable[[], Mapping[str, Path]]) -> pa.Table:
    """Return the result of an SQL text over ``tables``.

    ``parts`` writes the tables that the text names and returns the directory of each. Errors: :class:`AuditInputError`
    for an invalid text, before anything is written.
    """
    module = duckdb()
    with _connected() as connection:
        for name, columns in tables.items():
            connection.register(f"no_{name}", columns.empty_table())
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM no_{name}")
        for name, of in derived_tables.VIEWS.items():
            connection.execute(f"CREATE VIEW {name} AS {of}")
        try:
            kinds = [statement.type for statement in connection.extract_statements(text)]
            if len(kinds) != 1 or kinds[0] not in (module.StatementType.SELECT, module.StatementType.EXPLAIN):
                raise AuditInputError("one question at a time; give SELECT, WITH, DESCRIBE, SUMMARIZE or SHOW TABLES")
            connection.sql(text)
            for name, folder in parts().items():
                connection.execute(f"DROP VIEW {name}")
                _view(connection, name, folder)
            return connection.sql(text).to_arrow_table()
        except module.Error as error:
            raise AuditInputError(_one_line(error, text)) from None


def _one_line(error: Exception, text: str) -> str:
    """DuckDB's message, with the columns it suggests and our hints."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    helpful = ("Candidate bindings", "Did you mean")
    parts = [lines[0].rstrip("!"), *(line for line in lines[1:] if line.startswith(helpful))]
    if "Table with name" in lines[0]:
        parts[1:] = ["there are " + ", ".join(derived_tables.NAMES)]
    elif isinstance(error, duckdb().BinderException) and (where := derived_tables.moved(text)):
        parts.append(where)
    elif isinstance(error, duckdb().ParserException) and BARE_OFFSET.search(text):
        parts.append('DuckDB takes offset for a keyword: write "offset", in double quotes')
    return "; ".join(parts)


def count(folder: Path, table: str) -> list[Fields]:
    """Return the counts of a measure in a written table, a row per key."""
    with _connected() as connection:
        _view(connection, "judged", folder)
        text = measures.counting(table, "judged", measures.DUCKDB)
        rows: list[Fields] = connection.sql(text).to_arrow_table().to_pylist()
        return rows


# Tasks that write tables, in processes of this machine.


def run(pool: Pool, audit: Audited, wanted: TableRequest) -> list[WrittenPart]:
    """Run the tasks that write tables. Files that kill their reader are added to ``audit.fatal``."""
    refused = audit.refused()
    refused_before = dict(refused)
    shares = list(enumerate(table_parts.lists(audit, wanted, pool.size, pool, refused)))
    written = [
        part
        for _, parts in pool.map(shares, partial(table_tasks.decode, wanted), refused=refused, rows=wanted.has_errors)
        for part in parts
    ]
    audit.fatal += sorted(_named(audit, {path: why for path, why in refused.items() if path not in refused_before}))
    if wanted.derived:
        replicas, clusters = audit.replicas, summary.clusters_for(audit, wanted.derived)
        assert isinstance(replicas, KeptReplicas)
        logs = list(enumerate(lists(replicas, pool.size)))
        if wanted.of_logs:
            for _, parts in pool.map(logs, partial(table_tasks.derive, wanted, clusters), reads=False):
                written += parts
        if wanted.of_all:
            written += _gather(pool, wanted, clusters, logs)
    return written


def _gather(pool: Pool, wanted: TableRequest, clusters: dict[str, Cluster], logs: Sequence[Any]) -> list[WrittenPart]:
    """Write the table that all logs contribute to."""
    shares: dict[tuple[str, int], list[bytes]] = {}
    for _, results in pool.map(logs, partial(_shares, clusters), reads=False):
        for join_key, partition, share in results:
            shares.setdefault((join_key, partition), []).append(share)
    tasks = [(number, [(*key, packed)]) for number, (key, packed) in enumerate(sorted(shares.items()))]
    gather = partial(table_tasks.gather, wanted, clusters)
    return [part for _, parts in pool.map(tasks, gather, reads=False) for part in parts]


def _shares(clusters: dict[str, Cluster], numbered: tuple[int, Iterable[Log]]) -> list[Keyed]:
    return [
        share
        for join_key, facts in numbered[1]
        for share in shares_of(join_key, [pickle.loads(one) for one in facts], clusters[join_key])
    ]


def _named(audit: Audited, refused: dict[str, str]) -> Iterator[tuple[str, DecodeError]]:
    """Files that killed, by log directory and name."""
    for log_dir in audit.inventory.log_dirs:
        for file in log_dir.files():
            path = f"{(file.place or log_dir.place).path}/{file.name}"
            if refused.get(path, "").startswith(KILLS):
                yield log_dir.name, DecodeError(file.name, 0, file.size, "unreadable", refused[path])


# Runner in processes of this machine, without JVM and Spark.
#
# A replica is one task, the largest first; any free process takes the next, so that nobody waits for a prepared list.
# Memory: the facts of all replicas, packed, on the driver.


class InlineRunner(Runner):
    """Runs in the processes of a pool."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self.processes = pool.size
        self.name = f"inline[{pool.size}]"
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._parts: WeakKeyDictionary[Audited, dict[str, Path]] = WeakKeyDictionary()

    def read(self, tasks: Sequence[ReplicaTask | TextTask], work: WorkFolder | None = None) -> Replicas:
        """Read every replica, the largest first, in any free process."""
        if work is not None:
            return read(tasks, work, self.read, self.work_notes)

        def facts_in_order() -> Iterator[KeptFacts]:
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

        return KeptReplicas(facts_in_order)

    def keep(self, rows: Sequence[KeptFacts]) -> Replicas:
        """Hold the facts, without resume points, which no judge needs."""
        stripped = [row._replace(resume_point=b"") for row in rows]
        return KeptReplicas(lambda: stripped)

    def judge(self, replicas: Replicas, clusters: dict[str, Cluster], judge: JudgeLog) -> Iterator[Judged]:
        """Judge logs in lists of similar size, and yield rows in log order, which sorts them fast afterwards."""
        assert isinstance(replicas, KeptReplicas)
        shared = lists(replicas, self.processes)
        done: dict[int, RowsAtRest[tuple[str, bytes]]] = {}
        following = 0
        for number, rows in self.pool.map(shared, partial(judge_list, clusters, judge), reads=False):
            done[number] = rows
            while following in done:
                yield from judged_rows(done.pop(following))
                following += 1

    def parts(self, audit: Audited, wanted: TableRequest) -> list[WrittenPart]:
        """Write tables: by lists of files, then by lists of facts."""
        return run(self.pool, audit, wanted)

    def table(self, audit: Audited, name: str) -> pa.Table:
        """Return a table, whole."""
        import pyarrow.parquet as pq

        return pq.read_table(self._written(audit, [name])[name])

    def query(self, audit: Audited, text: str, tables: frozenset[str]) -> pa.Table:
        """Query DuckDB."""

        def parts() -> dict[str, Path]:
            return self._written(audit, [name for name in derived_tables.NAMES if name in tables])

        return query(text, derived_tables.all_columns(audit.options.include_payload), parts)

    def _written(self, audit: Audited, tables: Sequence[str]) -> dict[str, Path]:
        """Directories with the parts of each table, written once and kept until the runner closes."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="auditor-tables-")
        parts = self._parts.setdefault(audit, {})
        if missing := [name for name in tables if name not in parts]:
            folder = Path(tempfile.mkdtemp(dir=self._folder.name))
            table_parts.write(audit, missing, folder, self.parts)
            parts.update({name: folder / name for name in missing})
        return {name: parts[name] for name in tables}

    def count(self, written: WrittenTables, table: str) -> list[Fields]:
        """Count with DuckDB."""
        return count(written.folder / table, table)

    def close(self) -> None:
        """End the processes and remove the tables."""
        super().close()
        if self._folder is not None:
            self._folder.cleanup()


def _files(task: ReplicaTask | SharingTask | TextTask) -> dict[str, int]:
    return {_name(f.name): f.size for f in plan.files(task)}


def _name(path: str) -> str:
    """A file's name without directories: tasks know files below their log directory, workers know whole paths."""
    return path.rpartition("/")[2]


class ReadSoFar:
    """Which part of all files was read: a file is once the next of its task is opened.

    ``files``: bytes of a task's files by name; ``total``: of all; ``heard`` gets the part, from 0 to 1, which never
    decreases.
    """

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
        """Note that a task opens a file."""
        name, before = _name(path), self.open.get(task, "")
        if name != before:
            self._reads(self._of(task).pop(before, 0))
            self.open[task] = name

    def ends(self, task: int) -> None:
        """Note that a task is done."""
        self._reads(sum(self._of(task).values()))
        del self.unread[task]
        self.open.pop(task, None)

    def _reads(self, size: int) -> None:
        self.so_far += size
        if self.total:
            self.heard(min(1.0, self.so_far / self.total))
