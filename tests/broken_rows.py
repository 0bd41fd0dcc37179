"""Rows of every table that break checks of its expectation suite; tests of mutated tables have the others."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from auditor.connectors import schema
from auditor.rules.expectations.measures import LOG, MEASURES

Row = dict[str, Any]
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
    "transaction_partitions": {"outcome": "COMMIT", "first_offset": 1, "last_offset": 2, "marker_offset": 3},
    "transactions": {"outcome": "COMMIT", "transaction_key": "1:2", "decided_by": "client",
                                 "duration_ms": 5},
    "events": {"base_offset": 1, "last_offset": 2},
    "lag": {"offsets": 5, "committed_records": 4, "committed_most_records": 4, "uncommitted_records": 5,
            "uncommitted_most_records": 5},
    "space": {"base_offset": 0, "kept_by": "not_old_enough"},
    "cleaner": {"dirty_ratio": 0.5, "stands": "due"},
    "blocked": {"standing": "waiting", "accepted": False},
    "impact": {"first_offset": 1, "last_offset": 2},
    "verdicts": {"base_offset": 1, "last_offset": 2, "error": "DUPLICATE"},
}  # fmt: skip
# What a log holds that breaks a check and no other: changes to the good row, one for each row.
BREAKS: dict[str, dict[str, list[Row]]] = {
    "batches": {
        "crc_wrong": [{"crc_ok": False}],
        "offsets_not_increasing": [{}, {"base_offset": 6, "last_offset": 9, "position": 9}],
        "last_before_base": [{"last_offset": 4}],
        "duplicate_offsets": [{"last_offset": 4}, {"position": 9}],
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
    },
    "aborted_transactions": {
        "upside_down": [{"last_offset": 0}],
        "not_ascending": [{}, {"position": 34}],
    },
    "index_entries": {
        "offsets_not_ascending": [{}, {"position": 8, "offset": 4}],
        "positions_not_ascending": [{}, {"position": 8, "log_position": 49}],
        "times_not_ascending": [{}, {"position": 8, "timestamp": T[0]}],
    },
    "checkpoints": {
        "named_twice": [{}, {}],
        "epochs_not_ascending": [{}, {"leader_epoch": 2, "offset": 4}],
    },
    "transaction_log": {
        "state_never_written": [{"state": "Dead"}],
        "completed_unprepared": [{}, {"state": "CompleteCommit", "offset": 1}],
        "duplicate_offsets": [{}, {}],
    },
    "offset_commits": {"half_a_commit": [{"tombstone": False, "committed_offset": None}]},
    "group_metadata": {"generation_negative": [{"generation": -3}]},
    "share_group_state": {"other_kind": [{"key_type": 1, "kind": "ShareSnapshot"}]},
    "remote_log_metadata": {
        "upside_down": [{"end_offset": 0}],
    },
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
    "transaction_partitions": {
        "class_unknown": [{"class": "odd"}],
        "upside_down": [{"last_offset": 3}],
        "stuck": [{"class": "ghost"}],
        "late": [{"class": "late"}],
    },
    "transactions": {
        "duplicate_keys": [{}, {"duration_ms": 6}],
        "timed_out": [{"outcome": "ABORT", "decided_by": "timeout"}],
        "upside_down": [{"duration_ms": -1}],
    },
    "lag": {
        "upside_down": [{"committed_most_records": 3}],
    },
    "space": {
        "goes_and_stays": [{"goes": "retention_ms"}],
        "duplicate_segments": [{}, {}],
        "future": [{"kept_by": "timestamp_in_the_future"}],
    },
    "events": {"upside_down": [{"last_offset": 0}]},
    "cleaner": {"faulty": [{"stands": "faulty"}]},
    "impact": {
        "upside_down": [{"last_offset": 0}],
        "impacted": [{"outcome": "lost"}],
        "listed_twice": [{}, {}],
        "of_no_finding": [{"finding": "f"}],
        "half_a_range": [{"last_offset": None}],
        "counted_in_part": [{"records": 3, "bytes": 9}],
        "other_transaction": [{"transaction": "1:2"}],
    },
    "blocked": {
        "blocked": [{"standing": "overdue"}],
        "unknown": [{"standing": "unknown"}],
    },
    "verdicts": {"upside_down": [{"last_offset": 0}], "rejected": [{"error": "OUT_OF_ORDER_SEQUENCE_NUMBER"}]},
}


def rows_of(table: str) -> tuple[dict[str, pa.Table], list[str]]:
    """Tables with rows that break each check of one, in a log directory of their own each, and the names of the checks.

    All other tables are empty, but for the logs.
    """
    rows = [{"log_dir": name} | GOOD[table] | change for name, changes in BREAKS[table].items() for change in changes]
    key: Row = {}
    if MEASURES[table].key == LOG:
        key = {"topic": "t", "partition": 0}
    log: Row = dict.fromkeys(schema.LOGS.names[7:], 0) | {"topic": "t", "partition": 0}
    tables = {name: schema.TABLES[name].schema().empty_table() for name in (*MEASURES, "findings")}
    tables["logs"] = pa.Table.from_pylist([log | {"log_dir": name} for name in BREAKS[table]], schema=schema.LOGS)
    return tables | {table: pa.Table.from_pylist([key | row for row in rows], schema=schema.TABLES[table].schema())}, [
        *BREAKS[table]
    ]
