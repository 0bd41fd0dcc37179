"""Tasks that write tables."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pyarrow as pa
import pyarrow.parquet as pq

from auditor.base.at_rest import dumps
from auditor.connectors import schema
from auditor.connectors.schema import CopyShares, MadeOf, for_spark
from auditor.connectors.stores import remote_files, retries
from auditor.connectors.stores.results import ResultFolder
from auditor.connectors.tables import input_splits
from auditor.connectors.tables.rows import How, Piece, chosen, read_piece
from auditor.pipeline import derived_tables
from auditor.replay.reading.chunks import logs_of

if TYPE_CHECKING:
    from auditor.rules.seen.cluster_view import Cluster

# Parquet files: typed as Spark types them, encoded for their columns.


GROUP_ROWS = 1 << 17
GROUP_BYTES = 8 << 20  # of Arrow, which is what waits in memory; on disk a tenth of it and less


def typed(columns: pa.Schema) -> pa.Schema:
    """Return the columns as they are written: times in microseconds."""
    return for_spark(pa.RecordBatch.from_pylist([], schema=columns)).schema


class ParquetFile:
    """A Parquet file that rows are added to in any number. Memory: :data:`GROUP_BYTES`.

    Texts, of which few differ, get a dictionary. Numbers and times, which mostly grow by little, are stored as
    differences (DELTA_BINARY_PACKED): a tenth of the size and a third of the work of the default. Not so sums of
    records, which are random.
    """

    def __init__(self, path: Path, columns: pa.Schema) -> None:
        wanted = typed(columns)
        leaves = {field.name: field.type for field in wanted}
        lists = {name: kind for name, kind in leaves.items() if pa.types.is_list(kind)}
        leaves = {name: kind for name, kind in leaves.items() if name not in lists}
        leaves |= {f"{name}.list.element": kind.value_type for name, kind in lists.items()}
        numbers = {name for name, kind in leaves.items() if pa.types.is_integer(kind) or pa.types.is_timestamp(kind)}
        numbers -= {name for name in numbers if name.endswith("_sum")}
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
        """Add rows; they are written once there are enough of them."""
        self._waiting.append(for_spark(rows))
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def size(self) -> int:
        """Return the bytes written so far, without buffered rows."""
        return self._path.stat().st_size

    def _flush(self) -> None:
        if self._rows:
            self._file.write_table(pa.Table.from_batches(self._waiting), row_group_size=GROUP_ROWS)
        self._waiting.clear()
        self._rows = self._bytes = 0

    def close(self) -> None:
        """Write buffered rows and close the file. Idempotent."""
        self._flush()
        self._file.close()


def write(table: pa.Table, path: Path) -> None:
    """Write an in-memory table into one file, and create its directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with ParquetFile(path, table.schema) as file:
        for batch in table.to_batches():
            file.add(batch)


def write_rows(work: Callable[[Any], Iterator[pa.RecordBatch]], columns: pa.Schema, to: tuple[Any, Path]) -> None:
    """Write the rows that ``work`` makes of a task into a file. A repeated task writes it again."""
    task, path = to
    with ParquetFile(path, columns) as file:
        for batch in work(task):
            file.add(batch)


# Tasks that write tables, on any way to run: files under names that no other attempt of a task uses.
#
# For results in a store, a task writes its files locally and uploads them once they are complete. Processes that
# replay do not import this: it imports what decodes into rows.


NOT_SHARED = "."  # in place of a table: the staging folder is not there where a task runs
MOST_BYTES = 1 << 30  # of a file, before the next one is begun; S3 copies 5 GB at once and no more


TableRows = Iterator[tuple[str, pa.RecordBatch]]
Shares = tuple[tuple[str, int], Iterable[bytes]]  # of a partition of the coordinators' log, by cluster and number


class WrittenPart(NamedTuple):
    """A file that a task has written. ``task``: its number; ``file``: its name in the staging directory."""

    task: int
    table: str
    file: str


@dataclass(frozen=True)
class TableRequest:
    """The tables to write, and where: the decoded tables and those derived from facts.

    ``shares``: what each copy of a log counts for, of the decoded ones.
    """

    staging: ResultFolder
    decoded: frozenset[str]
    derived: tuple[str, ...]
    how: How
    shares: CopyShares

    @property
    def has_errors(self) -> bool:
        """Whether ``decode_errors`` is written too; otherwise read errors must fail the task."""
        return "decode_errors" in self.decoded

    @property
    def of_logs(self) -> list[str]:
        """The derived tables whose rows come from one log at a time."""
        return [name for name in self.derived if schema.TABLES[name].made_of is MadeOf.LOG]

    @property
    def of_all(self) -> bool:
        """Whether the table is requested that all logs contribute to."""
        return len(self.of_logs) < len(self.derived)

    def is_reached(self) -> bool:
        """Whether a task can write to the staging directory, which may exist on the driver's machine only."""
        return bool(self.staging.uri) or Path(self.staging.path).is_dir()

    def columns(self, table: str) -> pa.Schema:
        """Return the columns of one of the tables."""
        whole = schema.TABLES[table].schema(self.how.payload)
        return chosen(whole, self.how.columns.get(table, whole.names))


class WrittenTables(NamedTuple):
    """Tables that were written: ``folder`` has a local directory of each, except for parts in a store.

    ``stored``: by table, the names of its parts in ``staging``, in their order.
    """

    folder: Path
    staging: ResultFolder
    stored: dict[str, list[str]]

    def has(self, table: str) -> bool:
        """Whether a table was written."""
        return table in self.stored or (self.folder / table).is_dir()

    def names(self) -> list[str]:
        """Return the names of the tables that were written."""
        return [name for name in derived_tables.NAMES if self.has(name)]

    def columns(self, table: str) -> pa.Schema:
        """Return the columns of one of the tables."""
        if table in self.stored:
            return self.staging.reading(pq.read_schema, self.stored[table][0])
        return pq.read_schema(next((self.folder / table).glob("*.parquet")))


class _TaskFiles:
    """Files of one attempt of a task, created with the first row: one per table, several for a large one."""

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
        """Add rows of a table."""
        if not rows.num_rows:
            return
        if table in self._files and self._files[table].size() > MOST_BYTES:
            self._files.pop(table).close()
        if table not in self._files:
            name = f"{table}-{self.task}-{len(self.parts):05d}-{uuid.uuid4().hex}.parquet"
            self.parts.append(WrittenPart(self.task, table, name))
            file = ParquetFile(self._folder / name, self.wanted.columns(table))
            self._files[table] = self._open.enter_context(file)
        self._files[table].add(rows.select(self.wanted.columns(table).names))

    def ended(self) -> list[WrittenPart]:
        """Close the files, upload them to a store, and return them.

        Errors: :class:`StoreTrouble` where a store keeps refusing, so that Spark starts another attempt.
        """
        for file in self._files.values():
            file.close()
        if self.wanted.staging.uri:
            with retries.resigned(None):
                for part in self.parts:
                    self.wanted.staging.put_file(part.file, self._folder / part.file)
        return self.parts


def _write_rows(wanted: TableRequest, number: int, rows: TableRows) -> list[WrittenPart]:
    if not wanted.is_reached():
        return [WrittenPart(number, NOT_SHARED, "")]
    with _TaskFiles(wanted, number) as files:
        for table, batch in rows:
            files.add(table, batch)
        return files.ended()


def decode(wanted: TableRequest, numbered: tuple[int, list[Piece]]) -> list[WrittenPart]:
    """Write the decoded tables of some pieces. Memory: a chunk of a segment, and a row group per table."""
    number, pieces = numbered

    def rows() -> TableRows:
        with remote_files.coming(remote_files.of_work(pieces)):
            for piece in pieces:
                for table, batch in read_piece(piece, input_splits.tables_of(piece, wanted.decoded), wanted.how):
                    if table in wanted.decoded:
                        yield table, wanted.how.asked(table, batch, wanted.shares)

    return _write_rows(wanted, number, rows())


def derive(wanted: TableRequest, clusters: Mapping[str, Cluster], packed: Iterable[bytes]) -> Iterator[bytes]:
    """Write the derived tables of some logs, given as packed facts; yield the files, packed."""

    def rows() -> TableRows:
        for replicas in logs_of(packed):
            cluster = clusters[replicas[0].join_key]
            for table in wanted.of_logs:
                yield from ((table, batch) for batch in derived_tables.of_log(replicas, cluster, table))

    yield dumps(_write_rows(wanted, 0, rows()))


def gather(wanted: TableRequest, clusters: Mapping[str, Cluster], shares: Iterable[Shares]) -> Iterator[bytes]:
    """Write the transactions of some partitions of the coordinators' log, each given with all its shares."""
    rows = (
        ("transactions", batch)
        for (join_key, partition), of_partition in shares
        for batch in derived_tables.coordinated_rows(clusters[join_key], partition, of_partition)
    )
    yield dumps(_write_rows(wanted, 0, rows))
