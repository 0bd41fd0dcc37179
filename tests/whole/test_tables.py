"""What the tables of real directories hold, against their manifests; asked for without Spark, by DuckDB."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.base.errors import AuditInputError
from auditor.connectors import schema
from auditor.connectors.stores.results import ResultFolder
from auditor.pipeline import derived_tables, table_parts
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.runner import Audited
from auditor.pipeline.table_parts import STAGING
from auditor.pipeline.table_tasks import ParquetFile, TableRequest, WrittenPart
from auditor.pipeline.whole_audit import Audit
from tests import corpora
from tests.audited import published
from tests.facts import here
from tests.written_tables import tables_of


def audit_of(corpus: str, *, records: bool = False) -> Audit:
    as_of = corpora.manifest(corpus)["copied_at"]
    return Audit(AuditOptions((str(corpora.unpack(corpus)),), Path(), records=records, as_of=as_of), here())


def ask(corpus: str, text: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = audit_of(corpus).query(text).to_pylist()
    return rows


def test_open_transactions_have_their_class() -> None:
    text = "select * from transaction_partitions where class = 'hanging'"
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
        from aborted_transactions a left join transaction_partitions t
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
    assert derived_tables.tables_in("SELECT * FROM Batches b JOIN transactions_x t") == {"batches"}
    assert derived_tables.tables_in("select 'findings'") == {"findings"}


def test_without_records_all_other_tables_are_written(tmp_path: Path) -> None:
    published(AuditOptions((str(corpora.unpack("unknown-producer-41")),), tmp_path, tables=True))
    written = {item.name for item in (tmp_path / "tables").iterdir()}
    assert written == {*schema.DECODED, *derived_tables.OF_FACTS, "findings", "blocked", "impact", "rehearsal"} - {
        "records"
    }


@pytest.mark.parametrize("records", [False, True])
@pytest.mark.parametrize("corpus", ["altered-41", "healthy-41"])
def test_a_table_is_the_same_alone_and_with_all_others(corpus: str, records: bool, tmp_path: Path) -> None:
    """All are written in one pass over the files, each as if nothing else had been asked for."""
    audit = audit_of(corpus, records=records)
    names = audit.written_tables()
    table_parts.write(audit, names, tmp_path / "together" / "tables")
    for name in names:
        table_parts.write(audit, [name], tmp_path / "alone" / "tables")
    together = tables_of(tmp_path / "together")
    assert together == tables_of(tmp_path / "alone")
    assert sum(len(rows) for _, rows in together.values()) > 100
    assert not list(tmp_path.rglob(STAGING))


def test_rows_are_written_as_they_are(tmp_path: Path) -> None:
    """Every kind of column, with nulls and the widest values, in more than one row group."""
    columns = pa.schema([
        ("a", pa.int32()), ("b", pa.int64()), ("c", pa.string()), ("d", pa.binary()), ("e", pa.bool_()),
        ("f", pa.list_(pa.int32())), ("g", pa.list_(pa.string())), ("h", pa.timestamp("us", "UTC")),
    ])  # fmt: skip
    widest = datetime.datetime(9999, 12, 31, 23, 59, 59, 999000, datetime.UTC)
    rows: list[dict[str, Any]] = [
        {"a": -(1 << 31), "b": -(1 << 63), "c": "", "d": b"\0", "e": True, "f": [1, -1], "g": ["x", None], "h": widest},
        {"a": (1 << 31) - 1, "b": (1 << 63) - 1, "c": "ä" * 3000, "d": b"", "e": False, "f": [], "g": [], "h": None},
        dict.fromkeys(columns.names),
    ]
    with ParquetFile(tmp_path / "x.parquet", columns) as file:
        for _ in range(2000):
            file.add(pa.RecordBatch.from_pylist(rows, schema=columns))
    read = pq.ParquetFile(tmp_path / "x.parquet")
    assert read.metadata.num_row_groups > 1
    assert read.schema_arrow == columns
    assert read.read().to_pylist() == rows * 2000


def test_attempts_that_do_not_count_leave_no_rows(tmp_path: Path) -> None:
    """A task that ran twice, and one that died in the middle, have left files beside those that are reported."""
    audit = audit_of("hanging-36")
    table_parts.write(audit, ["batches"], tmp_path / "once" / "tables")

    def twice(audit: Audited, wanted: TableRequest) -> list[WrittenPart]:
        found = table_parts.run_tasks(audit, wanted)
        again = table_parts.run_tasks(audit, wanted)
        assert not {part.file for part in found} & {part.file for part in again}
        wanted.staging.put("batches-7-died.parquet", b"PAR1")
        return again

    table_parts.write(audit, ["batches"], tmp_path / "twice" / "tables", run=twice)
    assert tables_of(tmp_path / "twice") == tables_of(tmp_path / "once")
    assert [path.name for path in (tmp_path / "twice" / "tables").iterdir()] == ["batches"]


def test_a_folder_that_tasks_do_not_see_is_a_mistake_of_the_call(tmp_path: Path) -> None:
    """As on a cluster whose machines do not share ``--out``."""
    audit = audit_of("hanging-36")

    def elsewhere(audit: Audited, wanted: TableRequest) -> list[WrittenPart]:
        away = ResultFolder("", str(tmp_path / "of another machine"))
        return table_parts.run_tasks(audit, replace(wanted, staging=away))

    with pytest.raises(AuditInputError, match="give an --out on a mount that all share"):
        table_parts.write(audit, ["batches", "transactions"], tmp_path / "out" / "tables", run=elsewhere)
    assert not list((tmp_path / "out").rglob("*.parquet"))
