"""``readStream`` over a directory that grows: each batch exactly once, restarts from a checkpoint included."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from auditor import register
from auditor.connectors.tables.sources import SOURCES, GrowingTable
from tests import growing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(spark: SparkSession, path: Path, target: Path, **options: Any) -> None:
    """A query that takes what there is, and ends; the next one goes on from its checkpoint."""
    frame = spark.readStream.format("kafka_log_batches").options(**options).load(str(path))
    query = (
        frame.writeStream.format("parquet").option("checkpointLocation", str(target / "checkpoint"))
        .trigger(availableNow=True).start(str(target / "rows"))
    )  # fmt: skip
    query.awaitTermination(120)
    assert query.exception() is None


def told(spark: SparkSession, target: Path) -> Counter[tuple[str, int, int]]:
    rows = spark.read.parquet(str(target / "rows")).collect()
    return Counter((f"{row.topic}-{row.partition}", row.base_offset, row.last_offset) for row in rows)


def expected(folder: str, first: int, count: int) -> Counter[tuple[str, int, int]]:
    return Counter((folder, 3 * n, 3 * n + 2) for n in range(first, first + count))


def test_a_directory_that_grows_is_told_exactly_once(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    broker = growing.broker(tmp_path / "broker-1")
    offsets = Counter(("__consumer_offsets-0", n, n) for n in range(5))
    run(spark, broker, tmp_path)
    first = expected("t-0", 0, 5) + expected("t-1", 0, 2) + offsets
    assert told(spark, tmp_path) == first
    run(spark, broker, tmp_path)  # nothing new
    assert told(spark, tmp_path) == first
    growing.appended(broker)
    (broker / "t-0" / f"{24:020}.log").write_bytes(growing.batches(8, 2))
    run(spark, broker, tmp_path)
    more = first + expected("t-0", 5, 5) + Counter(("__consumer_offsets-0", n, n) for n in range(5, 8))
    assert told(spark, tmp_path) == more
    (broker / "t-0" / growing.NAME).unlink()
    growing.deleted(broker)
    with (broker / "t-0" / f"{24:020}.log").open("ab") as f:
        f.write(growing.batches(10, 1))
    run(spark, broker, tmp_path)
    assert told(spark, tmp_path) == more + expected("t-0", 10, 1)


def test_a_spark_that_gives_no_start_says_first_what_was_told(spark: SparkSession, tmp_path: Path) -> None:
    """As those before 4.2 do, and newer ones where ``latestOffset`` takes nothing."""
    calls = tmp_path / "calls"

    class Asked(GrowingTable):
        def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
            with calls.open("a") as f:
                f.write(f"{len(self.known)}\n")
            return super().latestOffset()

    class Source(SOURCES[0]):  # type: ignore[misc,valid-type]
        format = "batches_without_start"

        def streamReader(self, schema: Any) -> GrowingTable:
            return Asked(self.table, self.options)

    spark.dataSource.register(Source)
    frame = spark.readStream.format("batches_without_start").load(str(growing.broker(tmp_path / "broker-1")))
    for known in (["0"], ["3"]):
        calls.write_text("")
        query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.processAllAvailable()
        query.stop()
        assert calls.read_text().split()[:1] == known


def test_a_query_that_runs_sees_what_comes(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    broker = growing.broker(tmp_path / "broker-1")
    frame = spark.readStream.format("kafka_log_batches").option("topics", "t").load(str(broker))
    query = frame.writeStream.format("memory").queryName("grown").outputMode("append").start()
    try:
        query.processAllAvailable()
        growing.appended(broker)
        query.processAllAvailable()
        assert spark.table("grown").where("topic = 't' AND partition = 0").count() == 8
    finally:
        query.stop()


def test_a_table_that_no_log_appends_to_has_no_stream(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    frame = spark.readStream.format("kafka_checkpoints").load(str(growing.broker(tmp_path / "broker-1")))
    query = frame.writeStream.format("noop").start()
    with pytest.raises(Exception, match="checkpoints cannot be streamed"):
        query.awaitTermination(60)
