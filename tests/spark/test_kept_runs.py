"""Audits that keep their runs, and Spark reading all runs as one table."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

from auditor.dashboards import overview
from auditor.outputs import runs
from auditor.outputs.runs import Shelf
from auditor.outputs.site import Site
from auditor.pipeline.options import AuditOptions
from tests import corpora, nights
from tests.audited import published

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_runs_of_two_audits_are_one_table_and_a_rule_left_out_cures_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    history, found = tmp_path / "history", {}
    for run_id, skip in (("night-1", ()), ("night-2", ("hanging-transaction",))):
        options = AuditOptions(
            (str(corpora.unpack("hanging-36")),), tmp_path / run_id, skip_rules=skip, history=history, run_id=run_id
        )
        found[run_id] = published(options).findings
    rows = spark.read.option("basePath", str(history)).parquet(f"{history}/run_id=*/findings")
    counted = {row["run_id"]: row["count"] for row in rows.groupBy("run_id").count().collect()}
    assert counted == {run_id: len(findings) for run_id, findings in found.items()}

    totals = spark.read.option("basePath", str(history)).parquet(f"{history}/run_id=*/runs")
    assert {row["run_id"]: row["critical"] for row in totals.collect()} == {
        run_id: sum(f.severity == "critical" for f in findings) for run_id, findings in found.items()
    }
    logs = spark.read.option("basePath", str(history)).parquet(f"{history}/run_id=*/logs")
    assert {row["run_id"]: row["sum(batches)"] for row in logs.groupBy("run_id").sum("batches").collect()} == {
        row["run_id"]: row["batches"] for row in totals.collect()
    }

    first, second = runs.committed(history)
    change, shelf = runs.changes_of(Shelf(history), [first], second), Shelf(history)
    unseen, still = (runs.rows(shelf, part) for part in (change.unseen, change.still))
    assert not change.gone
    assert {row["kind"] for row in unseen} == {"hanging-transaction"}
    assert len(unseen) == sum(f.kind == "hanging-transaction" for f in found["night-1"]) > 0
    assert {row["cluster_id"] for row in still} == {runs.summary_of(history, second)["inputs"][0]["cluster_id"]}
    assert runs.read(history, first, "logs")["bytes_total"].to_pylist()
    site = Site(Shelf(history))
    for run_id in found:
        assert site.page(overview.report(run_id)) == (tmp_path / run_id / "report.html").read_text(encoding="utf-8")


def test_ten_clusters_and_thirty_nights_with_a_killed_run_are_what_arithmetic_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    history, killed = tmp_path / "history", (3, 15)
    nights.make(history, killed)
    for name in nights.TABLES:
        rows = spark.read.option("basePath", str(history)).parquet(f"{history}/run_id=*/{name}")
        rows.createOrReplaceTempView(name)
    found = [tuple(row) for row in spark.sql(nights.BY_CLUSTER).collect()]
    assert [(*row[:-1], row[-1].astimezone(UTC)) for row in found] == nights.expected(killed)
