"""What tasks that write tables do."""

from __future__ import annotations

import pickle
import tempfile
import uuid
from collections.abc import Iterable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import pyarrow as pa
import pyarrow.parquet as pq

from auditor.connectors.schema import for_spark
from auditor.connectors.stores import remote_files, retries
from auditor.connectors.stores.results import ResultFolder
from auditor.connectors.tables import input_splits
from auditor.connectors.tables.rows import How, Piece, read_piece, table_schema
from auditor.pipeline import derived_tables
from auditor.pipeline import derived_tables as pipeline_derived_tables

if TYPE_CHECKING:
    from auditor.rules.seen.cluster_view import Cluster


# Parquet as every table of ours is written: typed as Spark types it, encoded for what the columns hold.


GROUP_ROWS = 1 << 17
GROUP_BYTES = 8 << 20  # of Arrow, which is what waits in memory; on disk a tenth of it and less


def typed(columns: pa.Schema) -> pa.Schema:
    """The columns as they are written: times in microseconds."""
    return for_spark(pa.RecordBatch.from_pylist([], schema=columns)).schema


class ParquetFile:
    """A file that rows of a table are added to, a few or many at a time. Memory: :data:`GROUP_BYTES`.

    Texts, of which few differ, get a dictionary. Numbers and times, which mostly grow by little, are stored as
    differences (DELTA_BINARY_PACKED): a tenth of the size and a third of the work of the default.
    """

    def __init__(self, path: Path, columns: pa.Schema) -> None:
        wanted = typed(columns)
        leaves = {field.name: field.type for field in wanted}
        lists = {name: kind for name, kind in leaves.items() if pa.types.is_list(kind)}
        leaves = {name: kind for name, kind in leaves.items() if name not in lists}
        leaves |= {f"{name}.list.element": kind.value_type for name, kind in lists.items()}
        numbers = [name for name, kind in leaves.items() if pa.types.is_integer(kind) or pa.types.is_timestamp(kind)]
        self._file = pq.ParquetWriter(
            path,
            wanted,
            use_dictionary=[name for name, kind in leaves.items() if pa.types.is_string(kind)],
            column_encoding=dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
        )
        self._path = path
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, rows: pa.RecordBatch) -> None:
        """Adds rows; they are written when there are enough of them."""
        self._waiting.append(for_spark(rows))
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def size(self) -> int:
        """Bytes written so far, those that wait not counted."""
        return self._path.stat().st_size

    def _flush(self) -> None:
        if self._rows:
            self._file.write_table(pa.Table.from_batches(self._waiting), row_group_size=GROUP_ROWS)
        self._waiting.clear()
        self._rows = self._bytes = 0

    def close(self) -> None:
        """Writes what waits, and ends the file; once more is nothing."""
        self._flush()
        self._file.close()


def write(table: pa.Table, path: Path) -> None:
    """Writes a table that is held in memory into one file, whose folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with ParquetFile(path, table.schema) as file:
        for batch in table.to_batches():
            file.add(batch)


# What tasks that write tables do, on every way to run: files under names that no other attempt of a task has.
#
# Where results go to a store, a task writes its files on its own machine, and puts them there once they are whole.
# Who replays does not load this: it loads what decodes into rows.


NOT_SHARED = "."  # in place of a table: the staging folder is not there where a task runs
MOST_BYTES = 1 << 30  # of a file, before the next one is begun; S3 copies 5 GB at once and no more


class WrittenPart(NamedTuple):
    """A file that a task has written. ``task``: its number; ``file``: its name in the staging folder."""

    task: int
    table: str
    file: str


@dataclass(frozen=True)
class TableRequest:
    """What tasks write, and where: the decoded tables and those derived from facts."""

    staging: ResultFolder
    decoded: frozenset[str]
    derived: tuple[str, ...]
    how: How

    @property
    def has_errors(self) -> bool:
        """Whether what cannot be read has rows of its own; else a table would lack it, and nobody would know."""
        return "decode_errors" in self.decoded

    @property
    def of_logs(self) -> list[str]:
        """Those of the derived ones whose rows each log gives by itself."""
        return [name for name in self.derived if name != derived_tables.COORDINATED_TRANSACTIONS]

    @property
    def of_all(self) -> bool:
        """Whether the table is wanted that all logs have a share in."""
        return len(self.of_logs) < len(self.derived)

    def is_reached(self) -> bool:
        """Whether a task can write there, as far as that can be told: a folder is of all machines, or of one."""
        return bool(self.staging.uri) or Path(self.staging.path).is_dir()

    def columns(self, table: str) -> pa.Schema:
        """The columns of one of them."""
        return derived_tables.OF_FACTS.get(table) or table_schema(table, self.how.payload)


class WrittenTables(NamedTuple):
    """Tables that were written: ``folder`` has a folder of each, of this machine, but for parts in a store.

    ``stored``: by table, the names of its parts in ``staging``, in their order.
    """

    folder: Path
    staging: ResultFolder
    stored: dict[str, list[str]]

    def has(self, table: str) -> bool:
        """Whether a table is among them."""
        return table in self.stored or (self.folder / table).is_dir()

    def columns(self, table: str) -> pa.Schema:
        """The columns of one of them."""
        import pyarrow.parquet as pq

        if table in self.stored:
            return self.staging.reading(pq.read_schema, self.stored[table][0])
        return pq.read_schema(next((self.folder / table).glob("*.parquet")))


class _TaskFiles:
    """The files of one attempt of a task, made when the first row comes: one a table, and more of a large one."""

    def __init__(self, wanted: TableRequest, task: int) -> None:
        self.wanted, self.task = wanted, task
        self.parts: list[WrittenPart] = []
        self._files: dict[str, ParquetFile] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        where = self.wanted.staging
        own = tempfile.TemporaryDirectory(prefix="auditor-parts-") if where.uri else nullcontext(where.path)
        self._folder = Path(self._open.enter_context(own))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add(self, table: str, rows: pa.RecordBatch) -> None:
        """Adds rows of a table."""
        if not rows.num_rows:
            return
        if table in self._files and self._files[table].size() > MOST_BYTES:
            self._files.pop(table).close()
        if table not in self._files:
            name = f"{table}-{self.task}-{len(self.parts):05d}-{uuid.uuid4().hex}.parquet"
            self.parts.append(WrittenPart(self.task, table, name))
            file = ParquetFile(self._folder / name, self.wanted.columns(table))
            self._files[table] = self._open.enter_context(file)
        self._files[table].add(rows)

    def ended(self) -> list[WrittenPart]:
        """All of them, whole and where they belong. Errors: :class:`StoreTrouble` where a store goes on refusing, so
        that another attempt comes."""
        for file in self._files.values():
            file.close()
        if self.wanted.staging.uri:
            with retries.resigned(None):
                for part in self.parts:
                    self.wanted.staging.put_file(part.file, self._folder / part.file)
        return self.parts


def decode(wanted: TableRequest, numbered: tuple[int, list[Piece]]) -> list[WrittenPart]:
    """A task: the decoded tables of some pieces. Memory: a chunk of a segment, and a row group a table."""
    number, pieces = numbered
    if not wanted.is_reached():
        return [WrittenPart(number, NOT_SHARED, "")]
    with _TaskFiles(wanted, number) as files, remote_files.coming(remote_files.of_work(pieces)):
        for piece in pieces:
            for table, rows in read_piece(piece, input_splits.tables_of(piece, wanted.decoded), wanted.how):
                if table in wanted.decoded:
                    files.add(table, rows)
        return files.ended()


def derive(
    wanted: TableRequest, clusters: dict[str, Cluster], number: int, logs: Iterable[tuple[str, list[bytes]]]
) -> list[WrittenPart]:
    """A task: the derived tables of some logs, each the key of its cluster and the pickled facts of its replicas."""
    if not wanted.is_reached():
        return [WrittenPart(number, NOT_SHARED, "")]
    with _TaskFiles(wanted, number) as files:
        for join_key, facts in logs:
            replicas = [pickle.loads(one) for one in facts]
            for table in wanted.of_logs:
                for rows in derived_tables.of_log(replicas, clusters[join_key], table):
                    files.add(table, rows)
        return files.ended()


def gather(
    wanted: TableRequest,
    clusters: dict[str, Cluster],
    number: int,
    partitions: Iterable[tuple[str, int, Iterable[bytes]]],
) -> list[WrittenPart]:
    """A task: the whole transactions of some partitions of the coordinators' log, each with all shares in it."""
    if not wanted.is_reached():
        return [WrittenPart(number, NOT_SHARED, "")]
    with _TaskFiles(wanted, number) as files:
        for join_key, partition, shares in partitions:
            for rows in pipeline_derived_tables.coordinated_rows(clusters[join_key], partition, shares):
                files.add(derived_tables.COORDINATED_TRANSACTIONS, rows)
        return files.ended()
