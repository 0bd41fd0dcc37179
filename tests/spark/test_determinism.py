"""The same input gives the same findings, byte for byte, however the work is cut."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from auditor import running
from auditor.pipeline.judge import judge_log
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.runner import judge_list
from auditor.pipeline.whole_audit import Audit
from auditor.spark import jobs
from tests import corpora
from tests.audited import published

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = (
    "spark.sql.adaptive.enabled",
    "spark.sql.shuffle.partitions",
    "spark.sql.execution.arrow.maxRecordsPerBatch",
)


@pytest.fixture
def settings(spark: SparkSession) -> Iterator[None]:
    """The session's settings are afterwards what they were before."""
    before = {name: spark.conf.get(name) for name in SETTINGS}
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("values", [("true", "7", "1"), ("false", "64", "10000")])
def test_spark_settings_change_no_finding(values: tuple[str, ...], spark: SparkSession, tmp_path: Path) -> None:
    for name, value in zip(SETTINGS, values, strict=True):
        spark.conf.set(name, value)
    path = (str(corpora.unpack("hanging-36")),)
    running.audit(AuditOptions(path, tmp_path / "spark", records=True), spark=spark)
    published(AuditOptions(path, tmp_path / "here", records=True))
    found = (tmp_path / "spark" / "findings.jsonl").read_bytes()
    assert found == (tmp_path / "here" / "findings.jsonl").read_bytes()
    assert found.count(b"\n") > 4


def test_judging_costs_no_exchange(spark: SparkSession) -> None:
    """All replicas of a log are in one list; nothing moves."""
    options = AuditOptions((str(corpora.unpack("replicas-41")),), Path("unused"))
    audit = Audit(options, running.runner_for(None, spark))
    facts = audit.replicas.held.frame  # type: ignore[attr-defined]
    judged = jobs.over_each(facts, partial(judge_list, {}, judge_log))
    plan_text = judged._jdf.queryExecution().executedPlan().toString()
    facts.unpersist()
    assert "Exchange" not in plan_text
    assert plan_text.count("MapInArrow") == 2  # reading lists, judging their logs
