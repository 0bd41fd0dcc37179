"""A DataFrame of batches on Spark, classic or Connect: brought into the order of logs, a task replays log after log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from auditor.connectors.tables.sources import spark_schema
from auditor.pipeline import frames_audit
from auditor.pipeline.frames_audit import COLUMNS, KEY
from auditor.pipeline.runner import kept
from auditor.spark.scan import FACTS, FACTS_ARROW
from auditor.spark.spark_runner import SparkReplicas
from auditor.spark.streams import in_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Of Spark's types those that columns of batches may have, and a few that they may not.
TYPES = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "varchar": pa.string(),
    "char": pa.string(),
    "timestamp": pa.timestamp("us"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    "double": pa.float64(),
    "float": pa.float32(),
    "date": pa.date32(),
}
NUMBER = r"(\d{20})[^/]*$"  # that in the name of a segment's file


def check(batches: DataFrame) -> None:
    """Errors: ``AuditInputError`` where the columns are not those of ``batches``."""
    types = ((field.name, field.dataType.simpleString().partition("(")[0]) for field in batches.schema)
    frames_audit.check(pa.schema([(name, TYPES.get(kind, pa.binary())) for name, kind in types]))


def replicas(batches: DataFrame, compacted: tuple[str, ...] | None) -> SparkReplicas:
    """The facts of each replica of a frame, kept for what is judged; ``compacted``: globs of compacted topics, None
    where nobody knows. Nothing runs until it is asked for.

    Cost: one exchange of all rows by replica, sorted, which spills to disk; a task holds the batches of one replica at
    a time, packed.
    """
    from pyspark.sql import functions as F

    types = {field.name: field.dataType for field in spark_schema(COLUMNS)}
    columns = [F.col(n) if n in batches.columns else F.lit(None).cast(types[n]).alias(n) for n in COLUMNS.names]
    rows = batches.select(*columns).repartition(*KEY)
    ordered = rows.sortWithinPartitions(*KEY, F.regexp_extract("file", NUMBER, 1), "file", "position")

    def work(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from in_batches((kept(facts) for facts in frames_audit.replicas_of(parts, compacted)), FACTS_ARROW)

    return SparkReplicas(ordered.mapInArrow(work, FACTS).persist())
