"""The shared session is what its fixture says: this Python in the workers, Arrow both ways, our packages importable."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession


def test_workers_run_this_python_and_know_our_packages(spark: SparkSession) -> None:
    def ask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import auditor.base.errors as errors

        for batch in batches:
            said = [f"{sys.executable} {len(errors.REASONS)}"] * batch.num_rows
            yield pa.RecordBatch.from_arrays([pa.array(said)], names=["said"])

    from auditor.base.errors import REASONS

    rows = spark.range(3).mapInArrow(ask, "said string").collect()
    assert [row.said for row in rows] == [f"{sys.executable} {len(REASONS)}"] * 3


def test_one_shuffle_partition(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.shuffle.partitions") == "1"
