"""What the suites count, on rows of the tables themselves; and the whole of ``--expectations`` on real directories."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor import running
from auditor.connectors import schema
from auditor.inline import duckdb_sql
from auditor.outputs import runs
from auditor.outputs.expectations import logs
from auditor.pipeline import derived_tables as held
from auditor.pipeline import results
from auditor.pipeline.derived_tables import OF_FACTS
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.verdicts import VERDICTS
from auditor.pipeline.whole_audit import Audit
from auditor.rules.expectations import gx_run, suites
from auditor.rules.expectations.measures import LOG, MEASURES, columns_of, frame_of
from auditor.spark import spark_tables
from auditor.spark.spark_tables import count
from tests import corpora
from tests.facts import opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]
SCHEMAS = {**schema.DECODED, **OF_FACTS, "verdicts": VERDICTS}
T = [datetime(2026, 11, 21, hour, tzinfo=UTC) for hour in range(3)]
GOOD: dict[str, Row] = {
    "batches": {"magic": 2, "crc_ok": True, "compression": "none", "is_transactional": False, "is_control": False,
                "base_offset": 5, "last_offset": 6, "position": 0, "file": "f"},
    "records": {"flaws": 0, "base_offset": 5, "offset": 5, "position": 0, "record_index": 0, "file": "f"},
    "producer_snapshots": {"file": "f", "snapshot_offset": 9, "producer_id": 1, "producer_epoch": 0, "last_offset": 8,
                           "current_txn_first_offset": -1},
    "aborted_transactions": {"file": "f", "position": 0, "version": 0, "first_offset": 1, "last_offset": 2},
    "index_entries": {"file": "f", "position": 0, "offset": 5, "log_position": 50, "timestamp": T[1]},
    "checkpoints": {"file": "f", "kind": "leader-epoch", "offset": 5, "leader_epoch": 1},
    "transaction_log": {"file": "f", "position": 0, "offset": 0, "tombstone": False, "state": "Ongoing",
                        "transactional_id": "x", "producer_id": 1, "producer_epoch": 0, "timeout_ms": 1},
    "offset_commits": {"committed_offset": 1, "consumed_partition": 0, "group_id": "g"},
    "group_metadata": {"generation": 1, "group_id": "g"},
    "share_group_state": {"start_offset": -1, "group_id": "g"},
    "remote_log_metadata": {"start_offset": 1, "end_offset": 2, "state": "COPY_SEGMENT_STARTED"},
    "topics": {"topic": "a", "topic_id": "A"},
    "topic_configs": {"topic": "a", "name": "n"},
    "broker_configs": {"entity": "1", "name": "n"},
    "partitions": {"topic": "a", "partition": 0, "replicas": [1, 2], "isr": [1], "leader": -1},
    "metadata_history": {"replicas": [1, 2], "isr": [1], "leader": -1},
    "decode_errors": {"reason": "vanished"},
    "producer_states": {"producer_id": 1, "producer_epoch": 3, "max_epoch": 3},
    "transactions": {"outcome": "COMMIT", "first_offset": 1, "last_offset": 2, "marker_offset": 3},
    "verdicts": {"base_offset": 1, "last_offset": 2, "error": "DUPLICATE"},
}  # fmt: skip
# What a log holds that breaks a check and no other: changes to the good row, one for each row.
BREAKS: dict[str, dict[str, list[Row]]] = {
    "batches": {
        "crc_wrong": [{"crc_ok": False}],
        "offsets_not_increasing": [{}, {"base_offset": 6, "last_offset": 9, "position": 9}],
        "last_before_base": [{"last_offset": 4}],
        "duplicate_offsets": [{"last_offset": 4}, {"position": 9}],
        "magic_unknown": [{"magic": 3}],
        "codec_unknown": [{"compression": None}],
        "control_unknown": [{"is_control": True, "control_type": "UNKNOWN"}],
        "transaction_without_producer": [{"is_transactional": True, "producer_id": -1, "producer_epoch": 0}],
    },
    "records": {
        "flawed": [{"flaws": 4}],
        "outside_batch": [{"offset": 4}],
        "offsets_not_increasing": [{"offset": 7}, {"offset": 6, "record_index": 1}],
        "duplicate_offsets": [{}, {"record_index": 1}],
    },
    "producer_snapshots": {
        "duplicate_producers": [{}, {"last_offset": 7}],
        "beyond_snapshot": [{"current_txn_first_offset": 9}],
        "invalid_producer": [{"producer_id": -1}],
    },
    "aborted_transactions": {
        "upside_down": [{"last_offset": 0}],
        "not_ascending": [{}, {"position": 34}],
        "version_unknown": [{"version": 1}],
    },
    "index_entries": {
        "offsets_not_ascending": [{}, {"position": 8, "offset": 4}],
        "positions_not_ascending": [{}, {"position": 8, "log_position": 49}],
        "times_not_ascending": [{}, {"position": 8, "timestamp": T[0]}],
    },
    "checkpoints": {
        "negative": [{"offset": -1}],
        "named_twice": [{}, {}],
        "epochs_not_ascending": [{}, {"leader_epoch": 2, "offset": 4}],
    },
    "transaction_log": {
        "state_never_written": [{"state": "Dead"}],
        "completed_unprepared": [{}, {"state": "CompleteCommit", "offset": 1}],
        "duplicate_offsets": [{}, {}],
        "invalid_producer": [{"producer_id": -1}],
        "timeout_negative": [{"timeout_ms": -1}],
    },
    "offset_commits": {
        "offset_negative": [{"committed_offset": -1}],
        "partition_negative": [{"consumed_partition": -1}],
        "nobody": [{"group_id": ""}],
    },
    "group_metadata": {"generation_negative": [{"generation": -2}], "nobody": [{"group_id": None}]},
    "share_group_state": {"start_negative": [{"start_offset": -2}], "nobody": [{"group_id": ""}]},
    "remote_log_metadata": {"upside_down": [{"end_offset": 0}], "state_unknown": [{"state": None}]},
    "topics": {
        "duplicate_topics": [{}, {"topic_id": "B"}],
        "duplicate_ids": [{}, {"topic": "b"}],
    },
    "topic_configs": {"set_twice": [{}, {}]},
    "broker_configs": {"set_twice": [{}, {}]},
    "partitions": {
        "duplicate_partitions": [{}, {}],
        "no_replicas": [{"replicas": [], "isr": []}],
        "isr_no_replica": [{"isr": [3]}],
        "leader_no_replica": [{"leader": 3}],
    },
    "metadata_history": {"isr_no_replica": [{"isr": [3]}], "leader_no_replica": [{"leader": 3}]},
    "decode_errors": {"not_read": [{"reason": "unreadable"}], "not_decoded": [{"reason": "crc_mismatch"}]},
    "producer_states": {
        "duplicate_producers": [{}, {}],
        "epoch_below_highest": [{"producer_epoch": 2}],
    },
    "transactions": {
        "outcome_unknown": [{"outcome": "MAYBE"}],
        "class_unknown": [{"class": "odd"}],
        "upside_down": [{"last_offset": 3}],
        "stuck": [{"class": "ghost"}],
        "late": [{"class": "late"}],
    },
    "verdicts": {"upside_down": [{"last_offset": 0}], "rejected": [{"error": "OUT_OF_ORDER_SEQUENCE_NUMBER"}]},
}
ALSO = {
    ("batches", "duplicate_offsets"): {"last_before_base"},
    ("records", "duplicate_offsets"): {"offsets_not_increasing"},
}


def test_every_check_has_rows_that_break_it() -> None:
    assert {table: set(breaks) for table, breaks in BREAKS.items()} == {
        table: {check.name for check in wanted.checks} for table, wanted in MEASURES.items()
    }


def rows_of(table: str) -> tuple[pa.Table, dict[str, set[str]]]:
    """Rows that break each check, in a log directory of their own each; a good row has one too. And what they break."""
    cases = {"good": [{}], **BREAKS[table]}
    rows = [{"log_dir": name} | GOOD[table] | change for name, changes in cases.items() for change in changes]
    if MEASURES[table].key == LOG:
        rows = [{"topic": "t", "partition": 0} | row for row in rows]
    expected = {name: ({name} | ALSO.get((table, name), set())) - {"good"} for name in cases}
    return pa.Table.from_pylist(rows, schema=SCHEMAS[table]), expected


def broken(counted: list[dict[str, Any]], table: str) -> dict[str, set[str]]:
    names = [check.name for check in MEASURES[table].checks]
    return {row["log_dir"]: {n for n in names if row[n]} for row in counted}


@pytest.mark.parametrize("table", MEASURES)
def test_rows_are_counted_where_they_break_a_check(table: str, spark: SparkSession) -> None:
    rows, expected = rows_of(table)
    assert broken(count(spark_tables.local(spark, rows), table), table) == expected


@pytest.mark.parametrize("table", MEASURES)
def test_duckdb_counts_the_same(table: str, tmp_path: Path) -> None:
    rows, expected = rows_of(table)
    held.write(rows, tmp_path)
    assert broken(duckdb_sql.count(tmp_path, table), table) == expected


def test_an_empty_table_still_has_its_columns_judged(spark: SparkSession) -> None:
    frame = spark_tables.local(spark, SCHEMAS["topics"].empty_table())
    rows = frame_of(count(frame, "topics"), "topics", columns_of(SCHEMAS["topics"])).to_dict("records")
    assert [(row["columns"], row["rows"], row["duplicate_topics"]) for row in rows] == [
        ("cluster_id string, broker_id int, log_dir string, topic string, topic_id string", 0, 0)
    ]


def failing(result: Audit) -> set[tuple[str, str]]:
    judged = pq.read_table(result.options.out / "tables" / "expectations").to_pylist()
    return {(row["suite"], row["column"]) for row in judged if not row["success"]}


def test_a_healthy_directory_meets_every_expectation_and_an_altered_one_does_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    found = {}
    for name in ("healthy-41", "altered-41"):
        options = AuditOptions(
            (str(corpora.unpack(name)),), tmp_path / name, records=True, tables=name == "healthy-41",
            expectations=True, as_of=corpora.manifest(name)["copied_at"], history=tmp_path / "history", run_id=name,
        )  # fmt: skip
        found[name] = running.audit(options, lambda _: None, spark)
        said = json.loads((tmp_path / name / "summary.json").read_text())["expectations"]
        judged = pq.read_table(tmp_path / name / "tables" / "expectations")
        assert said["failed"] == sum(not row["success"] for row in judged.to_pylist())
        assert not (tmp_path / name / "data_docs").exists()
        assert judged.num_rows == said["evaluated"]
        (run,) = [run for run in runs.committed(tmp_path / "history") if run.run_id == name]
        assert runs.read(tmp_path / "history", run, "expectations") == judged
    assert failing(found["healthy-41"]) == set()
    assert {("findings", "severity"), ("logs", "bytes_error")} <= failing(found["altered-41"])


def test_spark_frames_are_judged_as_pandas_ones(spark: SparkSession) -> None:
    audit = opened(corpora.unpack("hanging-36"))
    frames = {"findings": results.findings(audit).to_pandas(), "logs": logs(audit)}
    names = ("suite", "column", "success", "broken")
    on_pandas, on_spark = (
        gx_run.run({name: (frame, suites.expectations(name)) for name, frame in frames.items()}, session)
        for session in (None, spark)
    )
    assert [[row[n] for n in names] for row in on_spark] == [[row[n] for n in names] for row in on_pandas]
    assert on_pandas


def test_drift_is_judged_against_the_run_before(spark: SparkSession, tmp_path: Path) -> None:
    options = AuditOptions(
        (str(corpora.unpack("healthy-28")),), tmp_path / "out", expectations=True, history=tmp_path / "history"
    )
    first = running.audit(options, lambda _: None, spark)
    assert ("logs", "batches_ratio") not in failing(first)
    (kept,) = runs.committed(tmp_path / "history")
    then = runs.read(tmp_path / "history", kept, "logs")
    at = then.schema.get_field_index("batches")
    thrice = pa.array([3 * max(100, n) for n in then["batches"].to_pylist()], pa.int64())
    runs.publish(tmp_path / "history", kept.run_id, {"logs": then.set_column(at, "batches", thrice)}, kept.facts)
    assert ("logs", "batches_ratio") in failing(running.audit(options, lambda _: None, spark))
