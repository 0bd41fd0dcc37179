"""What the tables of real directories hold, against their manifests; asked for without Spark, by DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from auditor.connectors import schema
from auditor.pipeline import derived_tables
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.whole_audit import Audit
from tests import corpora
from tests.audited import published
from tests.facts import here


def ask(corpus: str, text: str) -> list[dict[str, Any]]:
    options = AuditOptions((str(corpora.unpack(corpus)),), Path(), as_of=corpora.manifest(corpus)["copied_at"])
    rows: list[dict[str, Any]] = Audit(options, here()).query(text).to_pylist()
    return rows


def test_open_transactions_have_their_class() -> None:
    text = "select * from transactions where class = 'hanging'"
    found = {(r["topic"], r["partition"], r["producer_id"], r["first_offset"]) for r in ask("hanging-36", text)}
    expected = [e for e in corpora.manifest("hanging-36")["expect"] if e["finding"] == "hanging_transaction"]
    assert found == {(e["topic"], e["partition"], e["producerId"], e["firstOffset"]) for e in expected}
    assert len(found) == 4


@pytest.mark.parametrize("corpus", ["healthy-41", "healthy-28", "hanging-36"])
def test_producer_states_are_what_the_broker_said(corpus: str) -> None:
    """DescribeProducers right before the broker was stopped, for each producer of each partition."""
    rows = ask(corpus, "select *, unix_millis(last_timestamp) as ms from producer_states")
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


def test_closed_transactions_have_their_outcome() -> None:
    """Every aborted transaction of the indexes ends with ABORT at the offset they say, and began where they say.

    But for the compacted topic, where the cleaner took the aborted records away.
    """
    text = """
        select a.topic, a.first_offset said, t.first_offset found, t.outcome
        from aborted_transactions a left join transactions t
        on t.topic = a.topic and t.partition = a.partition and t.log_dir = a.log_dir
        and t.producer_id = a.producer_id and t.marker_offset = a.last_offset
    """
    rows = ask("healthy-41", text)
    assert len(rows) > 20
    assert {row["outcome"] for row in rows} == {"ABORT"}
    assert {row["found"] for row in rows if row["topic"] == "shop.kv"} == {-1}
    assert all(row["found"] == row["said"] for row in rows if row["topic"] != "shop.kv")


def test_metadata_tables() -> None:
    text = "select t.topic, count(*) n from topics t join partitions p on p.topic_id = t.topic_id group by 1"
    counts = {row["topic"]: row["n"] for row in ask("healthy-41", text)}
    folders = [f.name.rpartition("-")[0] for f in (corpora.unpack("healthy-41") / "broker-1").glob("shop.*-[0-9]")]
    assert {topic: n for topic, n in counts.items() if topic in folders} == {t: folders.count(t) for t in folders}


def test_only_what_is_named_is_computed() -> None:
    assert derived_tables.mentioned("SELECT * FROM Batches b JOIN transactions_x t") == {"batches"}
    assert derived_tables.mentioned("select 'findings'") == {"findings"}


def test_without_records_all_other_tables_are_written(tmp_path: Path) -> None:
    published(AuditOptions((str(corpora.unpack("unknown-producer-41")),), tmp_path, tables=True))
    written = {item.name for item in (tmp_path / "tables").iterdir()}
    assert written == {*schema.DECODED, "producer_states", "transactions", "findings"} - {"records"}
