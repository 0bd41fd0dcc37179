"""The exported suites in an empty project on Spark: their results are those of the audit's own run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from auditor.cli import main
from auditor.pipeline.options import AuditOptions
from tests import corpora
from tests.audited import published
from tests.exported_suites import blocks, of_the_audit, placed, said

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_results_on_spark_are_those_of_the_audits_own_run(spark: SparkSession, tmp_path: Path) -> None:
    """By the page's code: that for Spark, and behind it what the one for DuckDB goes on with."""
    published(
        AuditOptions(
            (str(corpora.unpack("hanging-36")),), tmp_path / "OUT", tables=True, expectations=True,
            as_of=corpora.manifest("hanging-36")["copied_at"],
        )
    )  # fmt: skip
    assert main(["expectations", "--export", str(tmp_path / "EXPORT")]) == 0
    (tmp_path / "PROJECT").mkdir()
    first, _, on_spark = blocks()
    given: dict[str, Any] = {"spark": spark}
    exec(placed(on_spark + "\n\n" + first[first.index("def run(") :], tmp_path), given)
    found, expected = said(given["results"]), of_the_audit(tmp_path / "OUT")
    ours = expected
    assert {key: met for key, (met, _) in found.items() if key in ours} == {key: met for key, (met, _) in ours.items()}
    assert {key: found[key][1] or 0 for key in ours} == {key: broken or 0 for key, (_, broken) in ours.items()}
    assert not found["blocked_counts", "no partition is blocked for longer than is normal"][0]
