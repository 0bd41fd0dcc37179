"""Lists of work that travel as rows: a task each, without an exchange, few bytes each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from auditor.spark import session
from auditor.spark.jobs import each_list, read_lists
from auditor.spark.session import A_TASK_EACH, tuned
from tests import corpora
from tests.whole.test_split import tasks_below

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LEAVES = "spark.sql.leafNodeDefaultParallelism"


def work(given: list[int]) -> object:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    yield pa.RecordBatch.from_pydict({"task": [context.partitionId()], "given": [sum(given)]})


def lists(spark: SparkSession, count: int) -> DataFrame:
    return each_list(spark, [[n, 1] for n in range(count)], work, "task long, given long")  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [0, 1, 2, 40])
def test_each_list_is_a_task_of_its_own(spark: SparkSession, count: int) -> None:
    with tuned(spark, A_TASK_EACH):
        found = lists(spark, count).collect()
    assert sorted((row.task, row.given) for row in found) == [(n, n + 1) for n in range(count)]


def test_persisted_lists_are_tasks_whatever_is_set_when_they_run(spark: SparkSession) -> None:
    with tuned(spark, A_TASK_EACH):
        frame = lists(spark, 7).persist()
    assert spark.conf.get(LEAVES, None) is None
    assert sorted(row.task for row in frame.collect()) == list(range(7))
    frame.unpersist()


def test_more_lists_than_tasks_are_shared_out(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(session.A_TASK_EACH, LEAVES, "3")
    with tuned(spark, session.A_TASK_EACH):
        found = lists(spark, 7).collect()
    assert sorted(row.given for row in found) == list(range(1, 8))
    assert {row.task for row in found} == {0, 1, 2}


def test_large_lists_are_tasks_too(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above this many bytes, 48 MB by default, Spark keeps them in another kind of leaf."""
    name = "spark.sql.execution.arrow.localRelationThreshold"
    before = spark.conf.get(name)
    spark.conf.set(name, "1")
    try:
        with tuned(spark, A_TASK_EACH):
            found = lists(spark, 7).collect()
    finally:
        spark.conf.set(name, before)
    assert sorted((row.task, row.given) for row in found) == [(n, n + 1) for n in range(7)]


def test_reading_costs_no_exchange(spark: SparkSession) -> None:
    facts = read_lists(spark, tasks_below(corpora.unpack("replicas-41")))
    plan_text = facts._jdf.queryExecution().executedPlan().toString()
    facts.unpersist()
    assert plan_text.count("MapInArrow") == 1
    assert "Exchange" not in plan_text
