"""What the suites count with Spark, on rows of the tables themselves and in a whole audit."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from auditor import running
from auditor.pipeline import summary
from auditor.pipeline.options import AuditOptions
from auditor.rules.expectations.measures import MEASURES, SPARK, counting
from auditor.spark import spark_tables
from tests import corpora
from tests.broken_rows import rows_of
from tests.facts import opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("table", ["batches", "partitions", "transactions", "lag"])
def test_rows_are_counted_where_they_break_a_check(table: str, spark: SparkSession) -> None:
    """As by DuckDB (``tests/unit/test_expectation_counts.py``), for each kind of key and join."""
    tables, names = rows_of(table)
    local = {name: spark_tables.local(spark, rows) for name, rows in tables.items()}
    views = {SPARK: {"counts": counting(table, SPARK)}}
    (counts,) = dict(spark_tables.frames(spark, local, lambda dialect, _: views[dialect]))["counts"]
    counted = {row["log_dir"]: row for row in counts.to_dict("records")}
    assert [name for name in names if not counted[name][name]] == []


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
    from auditor.rules.expectations import suites  # takes 4 s, in each worker that collects this file

    audit = opened(corpora.unpack("hanging-36"))
    frames = {"findings": summary.findings_table(audit), "logs": summary.logs(audit)}
    names = ("suite", "column", "success", "broken")
    on_pandas, on_spark = (
        [[row[n] for n in names] for row in suites.run((name, [made(table)]) for name, table in frames.items())]
        for made in (lambda table: table.to_pandas(), partial(spark_tables.local, spark))
    )
    assert on_spark == on_pandas
    assert on_pandas
