"""Spark data sources over Kafka log directories: one for each decoded table, all alike.

    spark.dataSource.register(BatchesSource)          # or register(spark) for all
    spark.read.format("kafka_log_batches").load("/copies/broker-1")

Options: ``path`` (or ``load``'s argument; several as a JSON list in ``paths``), ``splitSize`` (bytes of a segment that
one task reads), ``topics`` (a JSON list of globs; internal topics always come along), ``includePayload`` (true: keys
and values in ``kafka_log_records``), ``deep`` (true: batches whose records cannot be opened are in
``kafka_decode_errors`` too), ``refused`` (a JSON object: paths of files not to open, and why), ``maxBatchBytes``,
``maxBatchRatio``. Columns: those of :mod:`auditor.connectors.schema`. Bytes
that cannot be read are rows of ``kafka_decode_errors``; no task fails for them. Cost: each table lists the paths by
itself.

Filters are not pushed down: an implemented ``pushFilters`` is fatal on a session that has not enabled it.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from auditor.base.errors import AuditInputError
from auditor.base.limits import DEFAULT_LIMITS
from auditor.base.numbers import setting_number

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from auditor.connectors.rows import How, Piece

TASK_BYTES = 32 << 20  # that a task is given to read, and at least this many tasks:
TASKS = 8


@dataclass
class PiecesPartition(InputPartition):
    """What one task reads."""

    pieces: list[Piece]


class TableReader(DataSourceReader):
    """Reads one decoded table below some paths."""

    def __init__(
        self, table: str, paths: list[str], topics: list[str], split_size: int, how: How, refused: dict[str, str]
    ) -> None:
        self.table = table
        self.paths = paths
        self.topics = topics
        self.split_size = split_size
        self.how = how
        self.refused = refused

    def partitions(self) -> list[InputPartition]:
        """Lists the paths and shares out what is to be read. Errors: ``AuditInputError`` for a wrong path."""
        from auditor.connectors.gate import guarded
        from auditor.connectors.inventory import discover
        from auditor.connectors.pieces import plan, size, spread
        from auditor.connectors.remote_log import read_all, tasks
        from auditor.connectors.tiered import with_remote

        with guarded(self.refused):
            inventory = discover(self.paths, self.how.limits)
            if inventory.remote:
                inventory = with_remote(inventory, read_all(tasks(inventory, self.how.limits)))
            pieces = plan(inventory, frozenset({self.table}), self.split_size, self._wants_topic)
        slots = max(TASKS, sum(size(piece) for piece in pieces) // TASK_BYTES)
        return [PiecesPartition(pieces) for pieces in spread(pieces, slots)] or [PiecesPartition([])]

    def _wants_topic(self, topic: str) -> bool:
        internal = topic.startswith("__")
        return not self.topics or internal or any(fnmatch.fnmatchcase(topic, glob) for glob in self.topics)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition, as Arrow record batches."""
        from auditor.connectors.arrow import for_spark
        from auditor.connectors.gate import guarded
        from auditor.connectors.rows import read_piece

        assert isinstance(partition, PiecesPartition)
        with guarded(self.refused):
            for piece in partition.pieces:
                for _table, rows in read_piece(piece, frozenset({self.table}), self.how):
                    yield for_spark(rows)


class TableSource(DataSource):
    """A decoded table as a data source; each subclass names its table."""

    table: ClassVar[str]
    format: ClassVar[str]

    @classmethod
    def name(cls) -> str:
        """The name for ``spark.read.format``."""
        return cls.format

    def schema(self) -> StructType:
        """The table's columns."""
        from auditor.connectors.rows import table_schema

        return spark_schema(table_schema(self.table, self._how().payload))

    def reader(self, schema: StructType) -> TableReader:
        """A reader of the paths in the options."""
        paths = self.options.get("paths") or self.options.get("path")
        if not paths:
            raise AuditInputError(f"{self.format} needs a path; give it to load() or in the option paths")
        listed = json.loads(paths) if "paths" in self.options else [paths]
        topics = json.loads(self.options.get("topics", "[]"))
        refused = json.loads(self.options.get("refused", "{}"))
        split_size = self._number("splitSize", 128 << 20, 1 << 16)
        return TableReader(self.table, listed, topics, split_size, self._how(), refused)

    def _how(self) -> How:
        from auditor.connectors.rows import How

        limits = DEFAULT_LIMITS._replace(
            max_batch_bytes=self._number("maxBatchBytes", DEFAULT_LIMITS.max_batch_bytes, 1 << 10),
            max_batch_ratio=self._number("maxBatchRatio", DEFAULT_LIMITS.max_batch_ratio, 1),
        )
        return How(limits, self._flag("includePayload"), self._flag("deep"))

    def _flag(self, name: str) -> bool:
        return str(self.options.get(name, "false")).lower() == "true"

    def _number(self, name: str, default: int, least: int) -> int:
        text = str(self.options.get(name, default))
        number = setting_number(text, least)
        if number is None:
            raise AuditInputError(f"option {name} is {text!r}; give a whole number of at least {least}")
        return number


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark schema of a table."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


class BatchesSource(TableSource):
    """Batch headers."""

    table, format = "batches", "kafka_log_batches"


class RecordsSource(TableSource):
    """Records, without keys and values unless ``includePayload``."""

    table, format = "records", "kafka_log_records"


class ProducerSnapshotsSource(TableSource):
    """``.snapshot`` files."""

    table, format = "producer_snapshots", "kafka_producer_snapshots"


class AbortedTransactionsSource(TableSource):
    """``.txnindex`` files."""

    table, format = "aborted_transactions", "kafka_aborted_transactions"


class IndexEntriesSource(TableSource):
    """``.index`` and ``.timeindex`` files."""

    table, format = "index_entries", "kafka_index_entries"


class CheckpointsSource(TableSource):
    """Offset and leader epoch checkpoints."""

    table, format = "checkpoints", "kafka_checkpoints"


class TransactionLogSource(TableSource):
    """Records of ``__transaction_state``."""

    table, format = "transaction_log", "kafka_transaction_log"


class OffsetCommitsSource(TableSource):
    """Offset commits in ``__consumer_offsets``."""

    table, format = "offset_commits", "kafka_offset_commits"


class GroupMetadataSource(TableSource):
    """Groups in ``__consumer_offsets``."""

    table, format = "group_metadata", "kafka_group_metadata"


class ShareGroupStateSource(TableSource):
    """Records of ``__share_group_state``."""

    table, format = "share_group_state", "kafka_share_group_state"


class RemoteLogMetadataSource(TableSource):
    """Records of ``__remote_log_metadata``."""

    table, format = "remote_log_metadata", "kafka_remote_log_metadata"


class MetadataHistorySource(TableSource):
    """What ``__cluster_metadata`` says, change by change."""

    table, format = "metadata_history", "kafka_metadata_history"


class DecodeErrorsSource(TableSource):
    """Bytes that could not be read or decoded, and why."""

    table, format = "decode_errors", "kafka_decode_errors"


SOURCES = (
    BatchesSource,
    RecordsSource,
    ProducerSnapshotsSource,
    AbortedTransactionsSource,
    IndexEntriesSource,
    CheckpointsSource,
    TransactionLogSource,
    OffsetCommitsSource,
    GroupMetadataSource,
    ShareGroupStateSource,
    RemoteLogMetadataSource,
    MetadataHistorySource,
    DecodeErrorsSource,
)


def register(spark: SparkSession) -> None:
    """Make all sources known to a session."""
    for source in SOURCES:
        spark.dataSource.register(source)
