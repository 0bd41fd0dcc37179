"""Spark data sources over log directories, one per decoded table."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from auditor.base.at_rest import Fields


TASK_BYTES = 32 << 20  # per task, with at least this many tasks:
TASKS = 8
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
NO_PACKAGE = (
    "the Python of Spark's workers has no package {}; set PYSPARK_PYTHON to the Python that has it before the session "
    "starts, or send it along with --py-files and --archives (docs/spark.md)"
)


def ours(name: str) -> Any:
    """Import a module of this package. Errors: ``RuntimeError``, one sentence, if this Python lacks it."""
    try:
        return importlib.import_module(f"auditor.{name}")
    except ModuleNotFoundError as error:
        raise RuntimeError(NO_PACKAGE.format(error.name)) from None


def reading(table: str, how: Any, schema: StructType) -> tuple[Any, Callable[[pa.RecordBatch], pa.RecordBatch]]:
    """How to read the columns of ``schema``, and what gives rows its types."""
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        types = to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # before Spark 4.2
        types = to_arrow_schema(schema)
    return how._replace(columns={table: schema.names}), lambda rows: rows.cast(types)


class TableReader(DataSourceReader):
    """Reads one decoded table below some paths."""

    def __init__(self, table: str, options: Mapping[str, str], schema: StructType | None = None) -> None:
        self.table = table
        self.options = dict(options)
        self.schema = schema or columns(table, options)
        self.conditions: list[Filter] = []

    def partitions(self) -> list[InputPartition]:
        """List the paths and plan the reading. Errors: ``AuditInputError`` for a wrong path."""
        options, pieces = ours("connectors.tables.source_options"), ours("connectors.tables.input_splits")
        asked = options.asked(self.options)
        with ours("connectors.stores.storage").guarded(asked.refused):
            inventory = options.inventory_of(self.options) or self.discovered(asked)
            wanted = options.file_filter(self.conditions, *asked.offsets)
            planned = pieces.plan(inventory, frozenset({self.table}), asked.split_size, wanted)
            shares = options.copy_shares(self.options, inventory)
        slots = max(TASKS, sum(pieces.size(piece) for piece in planned) // TASK_BYTES)
        some = ((part, options.shares_in(part, shares)) for part in pieces.spread(planned, slots) or [[]])
        return [InputPartition(pickle.dumps(part)) for part in some]

    def discovered(self, asked: Any) -> Any:
        """The inventory of the paths, reduced to the scope."""
        inventory = ours("connectors.logdir.inventory").discover(asked.paths, asked.how.limits, asked.scope)
        if inventory.remote:
            remote = ours("connectors.logdir.tiered")
            read = remote.read_all(remote.tasks(inventory, asked.how.limits))
            inventory = remote.with_remote(inventory, read, asked.scope)
        return ours("connectors.tables.input_splits").narrowed(inventory, asked.scope)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition, as Arrow record batches."""
        rows, options = ours("connectors.tables.rows"), ours("connectors.tables.source_options")
        asked = options.asked(self.options)
        (part, shares), ahead = pickle.loads(partition.value), ours("connectors.stores.remote_files")
        how, typed = reading(self.table, asked.how, self.schema)
        how = how._replace(where=options.by_header(self.table, self.conditions))
        with ours("connectors.stores.storage").guarded(asked.refused), ahead.coming(ahead.of_work(part)):
            for piece in part:
                for _table, read in rows.read_piece(piece, frozenset({self.table}), how):
                    batch = typed(how.asked(self.table, read, shares))
                    wanted = options.where(self.conditions, batch.schema)
                    yield batch if wanted is None else batch.filter(wanted)


class PruningReader(TableReader):
    """A reader on a session that pushes filters down: files and rows that cannot match stay where they are."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Note the conditions, unless they are about columns of other types; return all, to be applied to the rows."""
        self.conditions = list(filters) if self.schema == columns(self.table, self.options, self.schema.names) else []
        return list(filters)


class GrowingTable(DataSourceStreamReader):
    """New rows of one decoded table below some paths, for a stream."""

    def __init__(self, table: str, options: Mapping[str, str], schema: StructType | None = None) -> None:
        self.table = table
        self.options = dict(options)
        self.schema = schema or columns(table, options)
        self.known: Fields = {}

    def _listed(self) -> tuple[Any, Any, Any]:
        # The options, the current inventory, and which replicas count.
        asked = ours("connectors.tables.source_options").asked(self.options)
        pieces = ours("connectors.tables.input_splits")
        with ours("connectors.stores.storage").guarded(asked.refused):
            inventory = TableReader(self.table, self.options).discovered(asked)
        return asked, inventory, lambda replica: pieces.in_segments(self.table, replica.topic)

    def initialOffset(self) -> Fields:
        """Nothing read yet."""
        return {}

    def latestOffset(self, start: Fields | None = None, limit: object = None) -> Fields:
        """The current end of each log.

        Before Spark 4.2 it is called without arguments; after a restart, :meth:`partitions` is called first with the
        checkpoint's offset twice (``setLatestSeenOffset``).
        """
        offsets = ours("connectors.tables.source_options")
        asked, inventory, wanted = self._listed()
        self.known = offsets.ends(inventory, {**self.known, **(start or {})}, wanted, asked.how.limits)
        return self.known

    def partitions(self, start: Fields, end: Fields) -> list[InputPartition]:
        """Plan the data between two ends. Errors: ``AuditInputError`` if it was deleted before it was read."""
        pieces, offsets = ours("connectors.tables.input_splits"), ours("connectors.tables.source_options")
        _, inventory, wanted = self._listed()
        self.known = {**self.known, **end}
        lots = list(offsets.lots(inventory, start, end, wanted, offsets.fails(self.options)))
        slots = max(TASKS, sum(pieces.size(lot.piece) for lot in lots) // TASK_BYTES)
        return [InputPartition(pickle.dumps(lots[number::slots])) for number in range(min(slots, len(lots)))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition, as Arrow record batches."""
        offsets = ours("connectors.tables.source_options")
        asked = offsets.asked(self.options)
        how, typed = reading(self.table, asked.how, self.schema)
        with ours("connectors.stores.storage").guarded(asked.refused):
            for lot in pickle.loads(partition.value):
                yield from map(typed, offsets.rows(lot, self.table, how))


class TableSource(DataSource):
    """A decoded table as a data source; each subclass names its table."""

    table: ClassVar[str]
    format: ClassVar[str]
    pushes: ClassVar[bool] = False  # whether the session pushes filters down

    @classmethod
    def name(cls) -> str:
        """The name for ``spark.read.format``."""
        return cls.format

    def schema(self) -> StructType:
        """The table's columns, or those asked for."""
        wanted = ours("connectors.tables.source_options").columns_of(self.options)
        return columns(self.table, self.options, wanted)

    def reader(self, schema: StructType) -> TableReader:
        """A reader of the columns of ``schema``. Errors: ``AuditInputError`` for an invalid option or column."""
        ours("connectors.tables.source_options").asked(self.options)
        columns(self.table, self.options, schema.names)
        return (PruningReader if self.pushes else TableReader)(self.table, self.options, schema)

    def streamReader(self, schema: StructType) -> GrowingTable:
        """A reader of new data below the paths. Errors: ``AuditInputError`` for a table without a streaming form."""
        ours("connectors.tables.source_options").streamed(self.table, self.options)
        columns(self.table, self.options, schema.names)
        return GrowingTable(self.table, self.options, schema)


def columns(table: str, options: Mapping[str, str], wanted: Sequence[str] = ()) -> StructType:
    """Some columns of a table, all by default. Errors: ``AuditInputError`` for an unknown one."""
    payload = ours("connectors.tables.source_options").how_of(options).payload
    whole = ours("connectors.schema").TABLES[table].schema(payload)
    return spark_schema(ours("connectors.tables.rows").chosen(whole, wanted or whole.names))


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark schema of a table."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


# Names for ``spark.read.format`` by table.
FORMATS = {
    "batches": "kafka_log_batches",
    "records": "kafka_log_records",
    "producer_snapshots": "kafka_producer_snapshots",
    "aborted_transactions": "kafka_aborted_transactions",
    "index_entries": "kafka_index_entries",
    "checkpoints": "kafka_checkpoints",
    "transaction_log": "kafka_transaction_log",
    "offset_commits": "kafka_offset_commits",
    "group_metadata": "kafka_group_metadata",
    "share_group_state": "kafka_share_group_state",
    "remote_log_metadata": "kafka_remote_log_metadata",
    "metadata_history": "kafka_metadata_history",
    "decode_errors": "kafka_decode_errors",
}
SOURCES: list[type[TableSource]] = [
    type(f"{table.title().replace('_', '')}Source", (TableSource,), {"table": table, "format": name})
    for table, name in FORMATS.items()
]


def register_all(spark: SparkSession) -> None:
    """Register all sources in a session, once, and again after filter pushdown was switched."""
    pushes = hasattr(DataSourceReader, "pushFilters") and spark.conf.get(PUSHDOWN, "false") == "true"  # from 4.1 on
    if _KNOWING.get(spark) != pushes:
        for source in SOURCES:
            spark.dataSource.register(type(source.__name__, (source,), {"pushes": True}) if pushes else source)
        _KNOWING[spark] = pushes


_KNOWING: WeakKeyDictionary[SparkSession, bool] = WeakKeyDictionary()
cloudpickle.register_pickle_by_value(sys.modules[__name__])
