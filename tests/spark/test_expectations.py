"""What the suites count with Spark, on rows of the tables themselves and in a whole audit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from auditor import running
from auditor.connectors import schema
from auditor.outputs.publish import logs
from auditor.pipeline import summary
from auditor.pipeline.options import AuditOptions
from auditor.rules.expectations.measures import MEASURES, columns_of, frame_of
from auditor.spark import spark_tables
from auditor.spark.spark_tables import count
from tests import corpora
from tests.broken_rows import broken, rows_of
from tests.facts import opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("table", MEASURES)
def test_rows_are_counted_where_they_break_a_check(table: str, spark: SparkSession) -> None:
    rows, expected = rows_of(table)
    assert broken(count(spark_tables.local(spark, rows), table), table) == expected


def test_an_empty_table_still_has_its_columns_judged(spark: SparkSession) -> None:
    frame = spark_tables.local(spark, schema.TABLES["topics"].columns.empty_table())
    rows = frame_of(count(frame, "topics"), "topics", columns_of(schema.TABLES["topics"].columns)).to_dict("records")
    assert [(row["columns"], row["rows"], row["duplicate_topics"]) for row in rows] == [
        ("cluster_id string, broker_id int, log_dir string, topic string, topic_id string", 0, 0)
    ]


def test_a_healthy_directory_meets_every_expectation(spark: SparkSession, tmp_path: Path) -> None:
    """With every table, counted by Spark; by DuckDB it is in ``tests/whole``."""
    options = AuditOptions(
        (str(corpora.unpack("healthy-41")),), tmp_path / "spark", records=True, tables=True, expectations=True,
        as_of=corpora.manifest("healthy-41")["copied_at"],
    )  # fmt: skip
    running.audit(options, spark=spark)
    judged = pq.read_table(tmp_path / "spark" / "tables" / "expectations")
    assert all(judged["success"].to_pylist())
    assert {*MEASURES} - {"verdicts"} <= set(judged["suite"].to_pylist())


def test_spark_frames_are_judged_as_pandas_ones(spark: SparkSession) -> None:
    from auditor.rules.expectations import suites
    from auditor.rules.expectations import (  # takes 4 s, in each worker that collects this file
        suites as expectations_suites,
    )

    audit = opened(corpora.unpack("hanging-36"))
    frames = {"findings": summary.findings(audit).to_pandas(), "logs": logs(audit)}
    names = ("suite", "column", "success", "broken")
    on_pandas, on_spark = (
        expectations_suites.run({name: (frame, suites.expectations(name)) for name, frame in frames.items()}, session)
        for session in (None, spark)
    )
    assert [[row[n] for n in names] for row in on_spark] == [[row[n] for n in names] for row in on_pandas]
    assert on_pandas
