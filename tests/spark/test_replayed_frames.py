"""Replay of a DataFrame of batches on Spark: what the frame gives in this process, in whatever order and partitions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

import auditor
from auditor.base.errors import AuditInputError
from tests import corpora
from tests.conftest import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "altered-41"


def said(replayed: auditor.ReplayedBatches) -> list[Any]:
    tables = (replayed.events, replayed.transaction_partitions, replayed.producers)
    return [sorted(map(str, table.to_dicts())) for table in tables] + [replayed.findings.to_dicts()]


def test_spark_gives_what_arrow_gives(spark: SparkSession) -> None:
    auditor.register(spark)
    batches = spark.read.format("kafka_log_batches").load(str(corpora.unpack(NAME)))
    with auditor.replay_batches(batches.repartition(7, "crc"), as_of="2026-11-22") as replayed:
        frame = replayed.transaction_partitions.to_spark()
        assert frame.sparkSession is spark
        assert frame.count() == replayed.transaction_partitions.num_rows > 0
        found = said(replayed)
    with auditor.replay_batches(batches.toArrow(), master="inline[1]", as_of="2026-11-22") as replayed:
        assert said(replayed) == found
    assert spark.range(3).count() == 3


def test_the_coordinators_tables_decide_on_spark_as_in_arrow(spark: SparkSession) -> None:
    """With a task for few logs, however many partitions an exchange has, and what hangs by the manifest."""
    auditor.register(spark)
    path, as_of = str(corpora.unpack("hanging-36")), corpora.manifest("hanging-36")["copied_at"]
    batches, records = (spark.read.format(f"kafka_{name}").load(path) for name in ("log_batches", "transaction_log"))
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "50")
    try:
        with auditor.replay_batches(batches, transaction_log=records, at_once=True, as_of=as_of) as replayed:
            found = said(replayed)
            assert replayed._audit.replicas.held.frame.rdd.getNumPartitions() == 1
            hanging = {(f.topic, f.partition, f.offset) for f in replayed.findings if f.severity == "critical"}
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    expected = corpora.manifest("hanging-36")["expect"]
    assert hanging == {(e["topic"], e["partition"], e["firstOffset"]) for e in expected
                       if e["finding"] == "hanging_transaction"}  # fmt: skip
    frames = batches.toArrow(), records.toArrow()
    with auditor.replay_batches(
        frames[0], transaction_log=frames[1], master="inline[1]", at_once=True, as_of=as_of
    ) as replayed:
        assert said(replayed) == found


def test_a_frame_of_other_columns_is_a_mistake_before_anything_runs(spark: SparkSession) -> None:
    with pytest.raises(AuditInputError, match="the frame has no column topic, partition, file"):
        auditor.replay_batches(spark.range(3))


def test_the_example_of_the_page_runs(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "replay.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```python\n(.*?)\n```", page.split("\n## ")[0], re.DOTALL)
    auditor.register(spark)
    given = {"spark": spark, "auditor": auditor}
    exec(text.replace("/copies/broker-1", str(corpora.unpack("hanging-36"))), given)
    assert "bank.ledger" in capsys.readouterr().out
