"""The tables of contract section 4 on Spark, as frames and as views for SQL (``--tables``: :mod:`.table_job`).

Decoded tables come from the data sources of :mod:`auditor.connectors.tables.sources`, derived ones from the facts of
:mod:`auditor.spark.scan`, and the rest is what the driver holds (:mod:`auditor.pipeline.derived_tables`).
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException

from auditor.base.at_rest import Fields
from auditor.base.errors import AuditInputError
from auditor.connectors.logdir import scope
from auditor.connectors.tables import schema
from auditor.connectors.tables.schema import for_spark
from auditor.connectors.tables.sources import SOURCES, register_all, spark_schema
from auditor.pipeline import derived_tables, summary
from auditor.pipeline import derived_tables as pipeline_derived_tables
from auditor.rules.expectations import measures
from auditor.rules.seen.cluster_view import TRANSACTION_STATE, Cluster
from auditor.spark import fatal_files, scan
from auditor.spark.query_errors import FAILED, mistake
from auditor.spark.session import hushed
from auditor.spark.streams import LOG, by_log, in_batches, logs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from auditor.pipeline.runner import Audited
    from auditor.pipeline.table_tasks import Written

SHARES = "join_key string, topic string, partition int, share binary"
SHARES_ARROW = pa.schema(
    [("join_key", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("share", pa.binary())]
)


def decoded(spark: SparkSession, audit: Audited, table: str) -> DataFrame:
    """A decoded table of the audit's paths. Nothing is read until it is asked for, and then only this table's files."""
    options = audit.options
    if (held := audit.held(table)) is not None:
        return local(spark, held)
    source = next(source for source in SOURCES if source.table == table)
    register_all(spark)
    reader = spark.read.format(source.format).options(
        paths=json.dumps([*options.inputs]),
        topics=json.dumps([*options.topics]),
        partitions=json.dumps([*options.only_partitions]),
        brokers=json.dumps([*options.only_brokers]),
        splitSize=str(options.split_size),
        includePayload=str(options.include_payload),
        deep=str(options.records),
        maxBatchBytes=str(options.limits.max_batch_bytes),
        maxBatchRatio=str(options.limits.max_batch_ratio),
        refused=json.dumps(audit.refused()),
        inventory=_shipped(audit),
    )
    if options.since is not None:
        reader = reader.option("since", options.since.text)
    rows = reader.load()
    if table == "decode_errors" and audit.outside:
        rows = rows.unionAll(local(spark, derived_tables.outside(audit.inventory, audit.outside)))
    return rows


_SHIPPED: WeakKeyDictionary[Audited, str] = WeakKeyDictionary()


def _shipped(audit: Audited) -> str:
    """What the audit reads as text, for the data sources, so that they list nothing again."""
    if audit not in _SHIPPED:
        _SHIPPED[audit] = scope.dumps(audit.scoped)
    return _SHIPPED[audit]


def local(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A table that the driver holds."""
    empty = pa.RecordBatch.from_pylist([], schema=table.schema)  # Spark takes no table without a single batch
    batches = [for_spark(batch) for batch in table.to_batches() or [empty]]
    return spark.createDataFrame(pa.Table.from_batches(batches), schema=spark_schema(table.schema))


def from_facts(facts: DataFrame, clusters: dict[str, Cluster], table: str) -> DataFrame:
    """``producer_states`` or ``transactions``: one exchange by log, since the replicas of a log explain each other."""
    shipped = pickle.dumps(clusters, 5)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known = pickle.loads(shipped)
        for (join_key, *_), found in logs(batches):
            for rows in derived_tables.of_log([pickle.loads(replica) for (replica,) in found], known[join_key], table):
                yield for_spark(rows)

    return by_log(facts.select(*LOG, "facts")).mapInArrow(work, spark_schema(derived_tables.OF_FACTS[table]))


def shares(facts: DataFrame, clusters: dict[str, Cluster]) -> DataFrame:
    """What each log knows of whole transactions, in :data:`SHARES`: that of one coordinators' log comes together."""
    shipped = pickle.dumps(clusters, 5)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known = pickle.loads(shipped)
        yield from in_batches(
            (
                (join_key, TRANSACTION_STATE, partition, share)
                for (key, *_), found in logs(batches)
                for join_key, partition, share in pipeline_derived_tables.shares_of(
                    key, [pickle.loads(replica) for (replica,) in found], known[key]
                )
            ),
            SHARES_ARROW,
        )

    return by_log(by_log(facts.select(*LOG, "facts")).mapInArrow(work, SHARES))


def _coordinated(facts: DataFrame, clusters: dict[str, Cluster]) -> DataFrame:
    """The table that all logs have a share in: a second exchange."""
    shipped = pickle.dumps(clusters, 5)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known = pickle.loads(shipped)
        for (join_key, _, partition), found in logs(batches):
            for rows in pipeline_derived_tables.coordinated_rows(
                known[join_key], partition, [share for (share,) in found]
            ):
                yield for_spark(rows)

    return shares(facts, clusters).mapInArrow(work, spark_schema(pipeline_derived_tables.COORDINATED))


def path_of(folder: Path) -> str:
    """A folder of this machine as Spark writes to it: not as a URI, whose escapes it takes for names."""
    return f"file:{folder.absolute()}"


def read(spark: SparkSession, written: Written, table: str) -> DataFrame:
    """A table that was written. Brackets and the like in the name of a folder are no pattern. What is in a store, tasks
    open by the drivers that read input, since Spark's own may know nothing of it."""
    if table not in written.stored:
        return spark.read.parquet(re.sub(r"([\[\]{}*?\\])", r"\\\1", path_of(written.folder / table)))
    where = written.staging

    def rows(name: str) -> Iterator[pa.RecordBatch]:
        with where.files.open_input_file(f"{where.path}/{name}") as file:
            yield from pq.ParquetFile(file).iter_batches()

    return scan.each_list(spark, written.stored[table], rows, spark_schema(written.columns(table)).simpleString())


def frame(spark: SparkSession, audit: Audited, facts: DataFrame | None, table: str) -> DataFrame:
    """Any table of an audit; ``facts`` for the derived ones."""
    if table in derived_tables.OF_FACTS and audit.held(table) is None:
        assert facts is not None
        if table == derived_tables.COORDINATED_TRANSACTIONS:
            return _coordinated(facts, audit.clusters)
        return from_facts(facts, summary.clusters_for(audit, (table,)), table)
    return decoded(spark, audit, table)


def query(spark: SparkSession, audit: Audited, text: str, wanted: frozenset[str]) -> pa.Table:
    """The result of an SQL text over ``wanted`` tables. Errors: :class:`AuditInputError` for a text that is wrong."""
    return fatal_files.without(
        spark, audit, wanted & frozenset(schema.DECODED), partial(_ask, spark, audit, text, wanted)
    )


def _ask(spark: SparkSession, audit: Audited, text: str, wanted: frozenset[str]) -> pa.Table:
    for name in derived_tables.NAMES:
        if name in wanted or name in schema.DECODED:
            facts = audit.replicas.frame if name in derived_tables.OF_FACTS else None  # type: ignore[attr-defined]
            frame(spark, audit, facts, name).createOrReplaceTempView(name)
    try:
        with hushed(spark):
            return spark.sql(text).toArrow()
    except AnalysisException as error:
        says = str(error).strip().splitlines()[0]
        raise AuditInputError(f"{says} (tables: {', '.join(derived_tables.NAMES)})") from None
    except FAILED as error:
        if (wrong := mistake(error)) is None:
            raise
        raise AuditInputError(wrong) from None


def count(rows: DataFrame, table: str) -> list[Fields]:
    """What a measure counts in a table, a row a key."""
    text = measures.counting(table, "{judged}", measures.SPARK)
    found: list[Fields] = rows.sparkSession.sql(text, judged=rows).toArrow().to_pylist()
    return found
