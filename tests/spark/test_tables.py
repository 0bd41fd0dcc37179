"""The tables on Spark: derived ones against the manifests, all of them as Parquet, and SQL over them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from auditor import running
from auditor.base.errors import AuditInputError
from auditor.connectors import schema
from auditor.pipeline import derived_tables
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.what_if_audit import AuditWithVerdicts
from auditor.pipeline.whole_audit import Audit
from tests import corpora


def opened(spark: SparkSession, corpus: str, **options: Any) -> Audit:
    wanted = AuditOptions(
        (str(corpora.unpack(corpus)),), Path(), as_of=corpora.manifest(corpus)["copied_at"], **options
    )
    return AuditWithVerdicts(wanted, running.runner_for(None, spark))


def ask(spark: SparkSession, corpus: str, text: str, **options: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = opened(spark, corpus, **options).query(text).to_pylist()
    return rows


def test_open_transactions_have_their_class(spark: SparkSession) -> None:
    text = "select * from transactions where class = 'hanging'"
    found = {(r["topic"], r["partition"], r["producer_id"], r["first_offset"]) for r in ask(spark, "hanging-36", text)}
    expected = [e for e in corpora.manifest("hanging-36")["expect"] if e["finding"] == "hanging_transaction"]
    assert found == {(e["topic"], e["partition"], e["producerId"], e["firstOffset"]) for e in expected}
    assert len(found) == 4


@pytest.mark.parametrize("corpus", ["healthy-41", "healthy-28", "hanging-36"])
def test_producer_states_are_what_the_broker_said(corpus: str, spark: SparkSession) -> None:
    """DescribeProducers right before the broker was stopped, for each producer of each partition."""
    rows = ask(spark, corpus, "select *, unix_millis(last_timestamp) as ms from producer_states")
    states = {(f"{row['topic']}-{row['partition']}", row["producer_id"]): row for row in rows}
    names = {"producerEpoch": "producer_epoch", "lastSequence": "last_sequence", "lastTimestamp": "ms",
             "coordinatorEpoch": "coordinator_epoch",
             "currentTransactionStartOffset": "current_txn_first_offset"}  # fmt: skip
    compared = 0
    for name, live in corpora.manifest(corpus)["live"].items():
        for said in live["producers"]:
            row = states[name, said["producerId"]]
            assert {theirs: row[ours] for theirs, ours in names.items()} == {theirs: said[theirs] for theirs in names}
            compared += 1
    assert compared > 5


def test_closed_transactions_have_their_outcome(spark: SparkSession) -> None:
    """Every aborted transaction of the indexes ends with ABORT at the offset they say, and began where they say.

    But for the compacted topic, where the cleaner took the aborted records away.
    """
    text = """
        select a.topic, a.first_offset said, t.first_offset found, t.outcome
        from aborted_transactions a left join transactions t
        on t.topic = a.topic and t.partition = a.partition and t.log_dir = a.log_dir
        and t.producer_id = a.producer_id and t.marker_offset = a.last_offset
    """
    rows = ask(spark, "healthy-41", text)
    assert len(rows) > 20
    assert {row["outcome"] for row in rows} == {"ABORT"}
    assert {row["found"] for row in rows if row["topic"] == "shop.kv"} == {-1}
    assert all(row["found"] == row["said"] for row in rows if row["topic"] != "shop.kv")


def test_findings_can_be_asked_for(spark: SparkSession) -> None:
    rows = ask(spark, "hanging-36", "select rule, evidence from findings where severity = 'critical'")
    assert [row["rule"] for row in rows] == ["hanging-transaction"] * 4
    assert all("log_dir" in json.loads(row["evidence"]) for row in rows)


def test_metadata_tables(spark: SparkSession) -> None:
    text = "select t.topic, count(*) n from topics t join partitions p on p.topic_id = t.topic_id group by 1"
    counts = {row["topic"]: row["n"] for row in ask(spark, "healthy-41", text)}
    folders = [f.name.rpartition("-")[0] for f in (corpora.unpack("healthy-41") / "broker-1").glob("shop.*-[0-9]")]
    assert {topic: n for topic, n in counts.items() if topic in folders} == {t: folders.count(t) for t in folders}


def test_verdicts_of_a_what_if(spark: SparkSession) -> None:
    (row,) = ask(spark, "unknown-producer-23", "select count(*) n, count(distinct policy) p from verdicts")
    assert row["n"] > 0


def test_wrong_sql_is_one_line_with_a_hint(spark: SparkSession) -> None:
    for text in ("select nothing from batches", "selekt", "select * from batchez", "select 1/0 from batches"):
        with pytest.raises(AuditInputError, match=r"tables: batches, records") as raised:
            ask(spark, "healthy-41", text)
        assert "\n" not in str(raised.value)


def test_only_what_is_named_is_computed() -> None:
    assert derived_tables.mentioned("SELECT * FROM Batches b JOIN transactions_x t") == {"batches"}
    assert derived_tables.mentioned("select 'findings'") == {"findings"}


@pytest.mark.parametrize("records", [False, True])
def test_every_table_is_written(records: bool, spark: SparkSession, tmp_path: Path) -> None:
    path = str(corpora.unpack("unknown-producer-41"))
    options = AuditOptions((path,), tmp_path / "out", tables=True, records=records)
    running.audit(options, lambda _: None, spark)
    expected = set(schema.DECODED) | {"producer_states", "transactions", "findings"}
    folder = tmp_path / "out" / "tables"
    assert {item.name for item in folder.iterdir()} == (expected if records else expected - {"records"})
    for name in expected - ({"records"} if not records else set()):
        columns = schema.DECODED.get(name) or derived_tables.OF_FACTS.get(name)
        read = pq.read_table(folder / name)
        if columns is not None:
            assert read.schema.names == columns.names
    assert pq.read_table(folder / "batches").num_rows == len(ask(spark, "unknown-producer-41", "select 1 from batches"))
