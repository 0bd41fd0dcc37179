"""The same input gives the same findings, byte for byte, however the work is cut."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from auditor import running
from auditor.pipeline.judge import judge_log
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.whole_audit import Audit
from auditor.spark import scan
from tests import corpora

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


def run_cli(out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    as_of = str(corpora.manifest("hanging-36")["copied_at"])
    command = [sys.executable, "-m", "auditor.cli", "audit", str(corpora.unpack("hanging-36")), "--records"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    command += ["--as-of", as_of, "--out", str(out), *more]
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False, cwd=out)


@pytest.mark.spark
def test_findings_are_the_same_bytes_on_any_master_and_split(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one = run_cli(tmp_path / "one", "--master", "local[1]", "--split-size", "65536", "--format", "json")
    two = run_cli(tmp_path / "two", "--master", "local[2]")
    assert (one.returncode, two.returncode) == (1, 1), one.stderr + two.stderr
    first = (tmp_path / "one" / "findings.jsonl").read_bytes()
    assert first == (tmp_path / "two" / "findings.jsonl").read_bytes()
    assert first.decode() == one.stdout  # --format json prints the same lines and nothing else
    assert first.count(b"\n") > 4
    assert "hanging-transaction" in two.stdout


SETTINGS = [
    ("spark.sql.adaptive.enabled", ("true", "false")),
    ("spark.sql.shuffle.partitions", ("1", "7", "64")),
    ("spark.sql.execution.arrow.maxRecordsPerBatch", ("1", "10000")),
]


@pytest.mark.parametrize(("setting", "values"), SETTINGS)
def test_spark_settings_change_no_finding(
    setting: str, values: tuple[str, ...], spark: SparkSession, tmp_path: Path
) -> None:
    seen = set()
    before = spark.conf.get(setting)
    for value in values:
        spark.conf.set(setting, value)
        options = AuditOptions((str(corpora.unpack("hanging-36")),), tmp_path / value, records=True)
        running.audit(options, lambda _: None, spark)
        seen.add((tmp_path / value / "findings.jsonl").read_bytes())
    spark.conf.set(setting, before)
    assert len(seen) == 1


def test_judging_costs_one_exchange(spark: SparkSession) -> None:
    """All copies of a log meet in one shuffle of their facts; nothing else moves."""
    options = AuditOptions((str(corpora.unpack("replicas-41")),), Path("unused"))
    audit = Audit(options, running.runner_for(None, spark))
    facts = audit.copies.frame  # type: ignore[attr-defined]
    judged = scan.judged(facts, {}, judge_log)
    plan_text = judged._jdf.queryExecution().executedPlan().toString()
    facts.unpersist()
    assert plan_text.count("Exchange ") == 1
    assert plan_text.count("MapInArrow") == 2  # reading copies, judging logs
    assert "BroadcastExchange" not in plan_text
