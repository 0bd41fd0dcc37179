"""The tasks that write tables, as one job of Spark's: no row of a table passes through the JVM, nor the driver."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from functools import partial, reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from auditor.connectors.stores import retries, storage
from auditor.connectors.tables.rows import Piece
from auditor.pipeline import summary, table_parts, table_tasks
from auditor.pipeline.table_tasks import Part, Wanted
from auditor.processes.isolation import Pool
from auditor.spark import fatal_files, scan, spark_tables
from auditor.spark.retries import attempts, rounds
from auditor.spark.streams import LOG, by_log, in_batches, logs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from auditor.pipeline.runner import Audited
    from auditor.rules.seen.cluster_view import Cluster

PARTS = "task int, name string, file string"
PARTS_ARROW = pa.schema([("task", pa.int32()), ("name", pa.string()), ("file", pa.string())])


def run(spark: SparkSession, pool: Pool, audit: Audited, wanted: Wanted) -> list[Part]:
    """Runs them; once more without files that kill their reader, which go to ``audit.fatal``."""
    return fatal_files.without(spark, audit, wanted.decoded, partial(_run, spark, pool, audit, wanted))


def _run(spark: SparkSession, pool: Pool, audit: Audited, wanted: Wanted) -> list[Part]:
    refused = audit.refused()
    shares = list(enumerate(table_parts.lists(audit, wanted, scan.slots(spark), pool, refused)))
    tries = attempts(spark)
    frames = [scan.each_list(spark, shares, partial(_decode, wanted, refused, tries), PARTS)] if shares else []
    if wanted.derived:
        facts: DataFrame = audit.replicas.frame  # type: ignore[attr-defined]
        clusters = summary.clusters_for(audit, wanted.derived)
        shipped = pickle.dumps((wanted, clusters), 5)
        if wanted.of_logs:
            frames.append(by_log(facts.select(*LOG, "facts")).mapInArrow(partial(_derive, shipped), PARTS))
        if wanted.of_all:
            frames.append(spark_tables.shares(facts, clusters).mapInArrow(partial(_gather, shipped), PARTS))
    if not frames:
        return []
    rows = reduce(lambda some, more: some.union(more), frames).toArrow()
    return [Part(*row) for row in zip(*(column.to_pylist() for column in rows.columns), strict=True)]


def _reported(parts: Iterable[Part]) -> Iterator[pa.RecordBatch]:
    yield from in_batches(parts, PARTS_ARROW)


def _decode(
    wanted: Wanted, refused: dict[str, str], tries: int, numbered: tuple[int, list[Piece]]
) -> Iterator[pa.RecordBatch]:
    with storage.guarded(refused), retries.resigned(rounds(tries) if wanted.has_errors else None):
        parts = table_tasks.decode(wanted, numbered)
    yield from _reported(parts)


def _gather(shipped: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    wanted: Wanted
    clusters: dict[str, Cluster]
    wanted, clusters = pickle.loads(shipped)
    found = ((join_key, partition, [s for (s,) in rows]) for (join_key, _, partition), rows in logs(batches))
    yield from _reported(table_tasks.gather(wanted, clusters, _number(), found))


def _number() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _derive(shipped: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    wanted: Wanted
    clusters: dict[str, Cluster]
    wanted, clusters = pickle.loads(shipped)
    found = ((join_key, [facts for (facts,) in rows]) for (join_key, *_), rows in logs(batches))
    yield from _reported(table_tasks.derive(wanted, clusters, _number(), found))
