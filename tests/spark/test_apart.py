"""Lists of work that travel as rows: each in a partition of its own, by Spark's own hash, few bytes each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from auditor.spark.jobs import each_list, hashed, keys_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_hash_is_sparks_own(spark: SparkSession) -> None:
    numbers = [0, 1, -1, 41, 2**31, 2**40 + 7, 2**63 - 1, -(2**63), *range(500)]
    rows = spark.createDataFrame([(n,) for n in numbers], "id bigint")
    said = [row[0] for row in rows.selectExpr("hash(id)").collect()]
    assert hashed(np.array(numbers, np.int64)).tolist() == said


@pytest.mark.parametrize("count", [1, 2, 7, 300])
def test_each_list_is_a_task_of_its_own(spark: SparkSession, count: int) -> None:
    def work(given: list[int]) -> object:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield pa.RecordBatch.from_pydict({"task": [context.partitionId()], "given": [sum(given)]})

    found = each_list(spark, [[n, 1] for n in range(count)], work, "task long, given long").collect()  # type: ignore[arg-type]
    assert sorted((row.task, row.given) for row in found) == [(n, n + 1) for n in range(count)]


def test_a_hundred_thousand_keys_are_found() -> None:
    keys = keys_of(100_000)
    assert (hashed(keys) % 100_000 == np.arange(100_000)).all()
