"""Runner of an audit in processes of this machine."""

from __future__ import annotations

import contextlib
import itertools
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from auditor.base.at_rest import dumps, loads
from auditor.base.errors import AuditInputError, DecodeError, require
from auditor.pipeline import derived_tables, plan, table_parts, table_tasks
from auditor.pipeline.runner import (
    Audited,
    HeldFacts,
    Joins,
    OverFacts,
    OverShares,
    PackedFacts,
    Runner,
    SharesOf,
    Task,
    TaskRows,
    listed,
    read_all,
    read_list,
    read_task,
)
from auditor.pipeline.table_tasks import TableRequest, WrittenPart
from auditor.processes.isolation import KILLS, Pool
from auditor.rules.expectations import measures

if TYPE_CHECKING:
    import pyarrow as pa

    from auditor.facts.replica_facts import ReplicaFacts
    from auditor.pipeline.runner import Frames, ViewsOf
    from auditor.pipeline.table_tasks import WrittenTables
    from auditor.pipeline.work_folder import WorkFolder


# Facts on the driver, packed as the lists were read, and shipped so to judging processes.


LISTS_PER_PROCESS = 16  # to read, so that processes end at about the same time
LEAST_BYTES = 256 << 10  # of a list to read
TASKS_PER_PROCESS = 4  # over the facts
FACTS_BYTES = 1 << 18  # of a task over facts: below, sending them costs more than judging


class FactsHere(HeldFacts):
    """Facts on the driver, read lazily: ``read`` yields them, from the beginning each time.

    A caller that interrupts the reading, as with Ctrl-C in a notebook, may ask again: everything is read then, not the
    rest alone.
    """

    def __init__(self, read: Callable[[], Iterable[PackedFacts]]) -> None:
        self._read = read
        self._packed: list[PackedFacts] | None = None

    def packed(self) -> list[PackedFacts]:
        """Return all facts."""
        if self._packed is None:
            self._packed = list(self._read())
            self._read = tuple  # what it holds is not needed any more
        return self._packed

    def briefs(self) -> Iterator[bytes]:
        """Yield the packed briefs."""
        return (some.briefs for some in self.packed())

    def close(self) -> None:
        """Release the facts."""
        self._packed = []

    def shared(self, processes: int) -> list[list[bytes]]:
        """Return the facts in their order, in lists of similar size for so many processes."""
        sizes = [len(some.facts) for some in self.packed()]
        count = max(1, min(processes * TASKS_PER_PROCESS, sum(sizes) // FACTS_BYTES))
        middles = (before - size / 2 for before, size in zip(itertools.accumulate(sizes), sizes, strict=True))
        places = [int(middle * count / sum(sizes)) for middle in middles]
        shared = itertools.groupby(zip(places, self.packed(), strict=True), key=itemgetter(0))
        return [[packed.facts for _, packed in some] for _, some in shared]


# SQL without Spark: DuckDB over the Parquet parts that the workers wrote.


Columns = Mapping[str, Sequence[str]]  # by table, those to read; all of one that is not named
UNREAD = "this column was not read"
JOIN_MEMORY = "1GiB"
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


def _view(connection: Any, name: str, folder: Path, types: Mapping[str, Any] = {}) -> None:
    """Make a view of written parts; ``types``: of all its columns, of which the parts may lack what no plan reads."""
    rows = connection.read_parquet([str(path) for path in sorted(folder.glob("*.parquet"))])
    whole = [
        f'"{column}"' if column in rows.columns else f"CAST(error('{UNREAD}') AS {kind}) AS \"{column}\""
        for column, kind in types.items()
    ]
    rows.project(", ".join(whole) or "*").create_view(name)


def query(text: str, tables: Mapping[str, pa.Schema], parts: Callable[[Columns], Mapping[str, Path]]) -> pa.Table:
    """Return the result of an SQL text over ``tables``.

    ``parts`` writes the tables that the text names, with the columns that its plan needs, and returns the directory of
    each. Errors: :class:`AuditInputError` for an invalid text, before anything is written.
    """
    module = duckdb()
    with _connected() as connection:
        for name, columns in tables.items():
            names = [derived_tables.marked(name, column) for column in columns.names]
            connection.register(f"no_{name}", columns.empty_table().rename_columns(names))
            renamed = (f'{a} AS "{b}"' for a, b in zip(names, columns.names, strict=True))
            connection.execute(f"CREATE VIEW {name} AS SELECT {', '.join(renamed)} FROM no_{name}")
        for name, of in derived_tables.VIEWS.items():
            connection.execute(f"CREATE VIEW {name} AS {of}")
        try:
            kinds = [statement.type for statement in connection.extract_statements(text)]
            if len(kinds) != 1 or kinds[0] not in (module.StatementType.SELECT, module.StatementType.EXPLAIN):
                raise AuditInputError("one query at a time: expected SELECT, WITH, DESCRIBE, SUMMARIZE or SHOW TABLES")
            connection.sql(text)
            for name, folder in parts(_needed(connection, text, tables)).items():
                empty = connection.view(name)
                types = dict(zip(empty.columns, empty.types, strict=True))
                connection.execute(f"DROP VIEW {name}")
                _view(connection, name, folder, types)
            return connection.sql(text).to_arrow_table()
        except module.Error as error:
            raise AuditInputError(_one_line(error, text)) from None


def _needed(connection: Any, text: str, tables: Mapping[str, pa.Schema]) -> Columns:
    """Return by table the columns that the plan of a text reads; nothing, for all, where it has no plan of its own."""
    try:
        plan = str(connection.execute(f"EXPLAIN (FORMAT JSON) {text}").fetchall())
    except duckdb().Error:
        return {}
    return {name: derived_tables.columns_in(plan, name, columns) for name, columns in tables.items()}


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
        parts.append('offset is a keyword in DuckDB: write "offset" in double quotes')
    return "; ".join(parts)


def frames(held: Mapping[str, pa.Table], folders: Mapping[str, Path], views: ViewsOf) -> Iterator[Frames]:
    """Yield tables, in memory and in directories, and views over them as pandas frames."""
    with _connected() as connection:
        for name, table in held.items():
            connection.register(name, table)
        for name, folder in folders.items():
            _view(connection, name, folder)
        for name in (*held, *folders):
            yield name, _pieces(connection, name)
        for name, text in views(measures.DUCKDB, (*held, *folders)).items():
            yield name, [connection.sql(text).to_arrow_table().to_pandas()]


def _pieces(connection: Any, table: str) -> Iterator[Any]:
    """Frames of a table's rows; an empty one for no row."""
    rows, batch = connection.sql(f"FROM {table}").to_arrow_reader(table_tasks.GROUP_ROWS), None
    for batch in rows:
        yield batch.to_pandas()
    if batch is None:
        yield rows.schema.empty_table().to_pandas()


class DuckJoins(Joins):
    """SQL over Parquet files below ``folder``, where what does not fit into :data:`JOIN_MEMORY` is spilled."""

    def __init__(self, name: str, folder: Path, threads: int) -> None:
        self.connection = duckdb().connect(str(folder / "joins.duckdb"))
        self.connection.execute(
            f"SET memory_limit = '{JOIN_MEMORY}'; SET threads = {threads}; SET preserve_insertion_order = false"
        )
        self.connection.execute("SET temp_directory = ?", [str(folder / "spilled")])
        _view(self.connection, name, folder)

    def put(self, name: str, table: pa.Table) -> None:
        """Register it."""
        self.connection.register(name, table)

    def keep(self, name: str, text: str) -> None:
        """Make a table of it."""
        self.connection.execute(f"CREATE OR REPLACE TABLE {name} AS {text}")

    def ask(self, text: str) -> pa.Table:
        """Return it."""
        return self.connection.sql(text).to_arrow_table()


# Files that kill their reader, by log directory.


def _named(audit: Audited, refused: dict[str, str]) -> Iterator[tuple[str, DecodeError]]:
    """Files that killed, by log directory and name."""
    for log_dir in audit.inventory.log_dirs:
        for file in log_dir.files():
            path = f"{(file.place or log_dir.place).path}/{file.name}"
            if refused.get(path, "").startswith(KILLS):
                yield log_dir.name, DecodeError(file.name, 0, file.size, "unreadable", refused[path])


# Runner in processes of this machine, without JVM and Spark.
#
# Any free process takes the next list, the largest first. Memory: the facts of all replicas, packed, on the driver.


class InlineRunner(Runner):
    """Runs in the processes of a pool."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self.processes = pool.size
        self.name = f"inline[{pool.size}]"
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._parts: WeakKeyDictionary[Audited, dict[str, tuple[Sequence[str], Path]]] = WeakKeyDictionary()

    def hold(self, items: Callable[[], Sequence[plan.Item]], work: WorkFolder | None) -> FactsHere:
        """Read lists in any free process, and hold what they give."""
        return FactsHere(lambda: self._read(items(), work))

    def hold_packed(self, packed: Callable[[], Iterable[PackedFacts]]) -> FactsHere:
        """Hold facts."""
        return FactsHere(packed)

    def _read(self, items: Sequence[plan.Item], work: WorkFolder | None) -> list[PackedFacts]:
        """Return the facts of all lists in their order. Where a process ends, its list is read task by task."""
        lists = plan.WorkLists(items, plan.list_count(items, self.processes, LISTS_PER_PROCESS, LEAST_BYTES))
        ordered, read = lists.largest_first(), None
        if self.progress is not None:
            total = sum(plan.bytes_of(items).tolist())
            read = ReadSoFar(lambda number: _files(ordered[number]), total, self.progress)
        opens = None if read is None else read.opens
        done: dict[int, PackedFacts | None] = {}
        task = partial(read_list, work=work, read=read_all)
        for number, done[number] in self.pool.map(ordered, task, opens=opens, once=True):
            if read is not None:
                read.ends(number)
        for number, packed in done.items():
            if packed is None:
                done[number] = read_list(ordered[number], work, self._read_apart)
        return [packed for _, packed in sorted(done.items(), key=lambda one: ordered.numbers[one[0]]) if packed]

    def _read_apart(self, tasks: Sequence[Task], _: bool) -> Iterator[ReplicaFacts]:
        return (facts for _, some in self.pool.map(plan.sharing(tasks), read_task) for facts in some)

    def over(self, held: HeldFacts, work: OverFacts, job: str = "") -> Iterator[bytes]:
        """Work over facts in lists of similar size, and yield the results in their order."""
        assert isinstance(held, FactsHere)
        done: dict[int, list[bytes]] = {}
        following = 0
        for number, results in self.pool.map(held.shared(self.processes), partial(listed, work), reads=False):
            done[number] = results
            while following in done:
                yield from done.pop(following)
                following += 1

    def gather(self, held: HeldFacts, shares: SharesOf, work: OverShares, job: str = "") -> Iterator[bytes]:
        """Work over shares, those with one key in a task."""
        keyed: dict[tuple[str, int], list[bytes]] = {}
        for some in map(loads, self.over(held, partial(_packed_shares, shares))):
            for *key, share in some:
                keyed.setdefault(tuple(key), []).append(share)
        tasks = [[one] for one in sorted(keyed.items())]
        for _, results in sorted(self.pool.map(tasks, partial(listed, work), reads=False)):
            yield from results

    def decode(self, audit: Audited, wanted: TableRequest) -> list[WrittenPart]:
        """Write the decoded tables in any free process."""
        refused = audit.refused()
        before = dict(refused)
        shares = list(enumerate(table_parts.lists(audit, wanted, self.processes, self.pool, refused)))
        decode = partial(table_tasks.decode, wanted)
        lists = self.pool.map(shares, decode, refused=refused, rows=wanted.has_errors)
        written = [part for _, parts in lists for part in parts]
        audit.fatal += sorted(_named(audit, {path: why for path, why in refused.items() if path not in before}))
        return written

    def table(self, audit: Audited, name: str) -> pa.Table:
        """Return a table, whole."""
        import pyarrow.parquet as pq

        return pq.read_table(self._written(audit, [name], {})[name])

    def query(self, audit: Audited, text: str, tables: frozenset[str]) -> pa.Table:
        """Query DuckDB."""

        def parts(columns: Columns) -> dict[str, Path]:
            return self._written(audit, [name for name in derived_tables.NAMES if name in tables], columns)

        return query(text, derived_tables.all_columns(audit.options.include_payload), parts)

    def _written(self, audit: Audited, tables: Sequence[str], columns: Columns) -> dict[str, Path]:
        """Directories with the parts of each table, kept until the runner closes, written again for further columns."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="auditor-tables-")
        parts, all_of = self._parts.setdefault(audit, {}), derived_tables.all_columns(audit.options.include_payload)
        before = {name: parts[name][0] if name in parts else [] for name in tables}
        wanted = {
            n: [c for c in all_of[n].names if c in {*before[n], *columns.get(n, all_of[n].names)}] for n in tables
        }
        if missing := [name for name in tables if wanted[name] != before[name]]:
            folder = Path(tempfile.mkdtemp(dir=self._folder.name))
            table_parts.write(audit, missing, folder, columns={name: wanted[name] for name in missing})
            parts.update({name: (wanted[name], folder / name) for name in missing})
        return {name: parts[name][1] for name in tables}

    @contextlib.contextmanager
    def joins(self, name: str, columns: pa.Schema, tasks: Sequence[Any], work: TaskRows) -> Iterator[DuckJoins]:
        """Write a file per task, and query them with DuckDB."""
        duckdb()
        with tempfile.TemporaryDirectory(prefix="auditor-joins-") as own:
            folder = Path(own)
            table_tasks.write(columns.empty_table(), folder / "part-none.parquet")
            several = [(task, folder / f"part-{number:05d}.parquet") for number, task in enumerate(tasks)]
            for _ in self.pool.map(several, partial(table_tasks.write_rows, work, columns)):
                pass
            joins = DuckJoins(name, folder, self.processes)
            try:
                yield joins
            finally:
                joins.connection.close()

    def frames(self, written: WrittenTables | None, held: Mapping[str, pa.Table], views: ViewsOf) -> Iterator[Frames]:
        """Ask DuckDB."""
        folders = {} if written is None else {name: written.folder / name for name in written.names()}
        return frames(held, {name: folder for name, folder in folders.items() if name not in held}, views)

    def close(self) -> None:
        """End the processes and remove the tables."""
        super().close()
        if self._folder is not None:
            self._folder.cleanup()


def _packed_shares(shares: SharesOf, packed: Iterable[bytes]) -> Iterator[bytes]:
    yield dumps(list(shares(packed)))


def _files(items: Sequence[plan.Item]) -> dict[str, int]:
    return {path: size for item in items for path, size in plan.files(item).items()}


class ReadSoFar:
    """Which part of all files was read: a file is once the next of its task is opened.

    ``files``: bytes of a task's files by path; ``total``: of all; ``heard`` gets the part, from 0 to 1, which never
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
        before = self.open.get(task, "")
        if path != before:
            self._reads(self._of(task).pop(before, 0))
            self.open[task] = path

    def ends(self, task: int) -> None:
        """Note that a task is done."""
        self._reads(sum(self._of(task).values()))
        del self.unread[task]
        self.open.pop(task, None)

    def _reads(self, size: int) -> None:
        self.so_far += size
        if self.total:
            self.heard(min(1.0, self.so_far / self.total))
