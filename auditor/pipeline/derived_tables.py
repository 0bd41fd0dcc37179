"""The tables that are not decoded from files: what the replay, the clusters' metadata and the judgement give.

Derived tables are made of the facts of a log, with what the coordinator's log knows of each producer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from auditor.base.errors import DecodeError
from auditor.connectors import schema
from auditor.connectors.arrow import Key, array_of, from_columns, from_errors, texts
from auditor.connectors.files import Inventory
from auditor.connectors.schema import LOG_KEY, TIME
from auditor.facts.copy_facts import CopyFacts
from auditor.facts.packed import PackedRows
from auditor.pipeline import cluster_settings
from auditor.pipeline.cluster_settings import ClusterSettings
from auditor.rules.open_transactions import open_transactions
from auditor.rules.view import Cluster, LogView

# What each copy's replay leaves of its producers, as a broker would hold it at the log's end. A producer that only a
# snapshot knows has no batches. first_offset, first_sequence: of its first batch at or behind the log start.
PRODUCER_STATES = pa.schema(
    [*LOG_KEY, ("producer_id", pa.int64()), ("producer_epoch", pa.int32()), ("last_sequence", pa.int32()),
     ("last_offset", pa.int64()), ("offset_delta", pa.int32()), ("last_timestamp", TIME),
     ("coordinator_epoch", pa.int32()), ("current_txn_first_offset", pa.int64()), ("transactional_id", pa.string()),
     ("batches", pa.int64()), ("records", pa.int64()), ("markers", pa.int64()), ("first_offset", pa.int64()),
     ("first_sequence", pa.int32()), ("max_epoch", pa.int32())]
)  # fmt: skip
# One row a transaction of a producer in a copy; first_offset -1: a marker that ended nothing here. outcome: COMMIT,
# ABORT, null while open; class, of open ones in the leader replica: active, late, hanging, orphan, ghost, undecidable.
TRANSACTIONS = pa.schema(
    [*LOG_KEY, ("producer_id", pa.int64()), ("producer_epoch", pa.int32()), ("transactional_id", pa.string()),
     ("outcome", pa.string()), ("class", pa.string()), ("first_offset", pa.int64()), ("last_offset", pa.int64()),
     ("marker_offset", pa.int64()), ("marker_epoch", pa.int32()), ("coordinator_epoch", pa.int32()),
     ("last_stable_offset", pa.int64()), ("first_timestamp", TIME), ("last_timestamp", TIME),
     ("marker_timestamp", TIME), ("batches", pa.int64()), ("records", pa.int64()), ("size", pa.int64()),
     ("file", pa.string()), ("position", pa.int64()), ("leader_copy", pa.bool_())]
)  # fmt: skip
OF_FACTS = {"producer_states": PRODUCER_STATES, "transactions": TRANSACTIONS}
OF_METADATA = ("topics", "topic_configs", "broker_configs", "partitions")
NAMES = (*schema.DECODED, *OF_FACTS, "verdicts", "findings")
UNOPENED = ("unreadable", "vanished")
_OUTCOMES = texts(["ABORT", "COMMIT"])


def mentioned(text: str) -> frozenset[str]:
    """The tables whose names stand in an SQL text."""
    return frozenset(re.findall(r"\w+", text.lower())) & frozenset(NAMES)


def listed(text: str) -> pa.Table | None:
    """All tables by name, where an SQL text asks for just that; None for any other text."""
    return pa.table({"name": texts(NAMES)}) if re.fullmatch(r"\s*show\s+tables\s*;?\s*", text, re.I) else None


def of_log(copies: list[CopyFacts], cluster: Cluster, table: str) -> Iterator[pa.RecordBatch]:
    """The rows of a derived table about one log, whose copies explain each other."""
    log = LogView(copies, cluster)
    rows_of = {"producer_states": _states, "transactions": _transactions}[table]
    for copy in log.copies:
        yield rows_of(log, copy)


def of_metadata(settings: dict[str, ClusterSettings], table: str) -> pa.Table:
    """A table of what ``__cluster_metadata`` says, of all clusters."""
    found = [cluster_settings.tables(cluster) for cluster in settings.values()]
    batches = [batch for tables in found if table in tables for batch in tables[table].to_batches()]
    return pa.Table.from_batches(batches, schema.DECODED[table])


def outside(inventory: Inventory, errors: list[tuple[str, DecodeError]]) -> pa.Table:
    """What could not be read of the clusters' metadata, but for files that who reads tables cannot open either."""
    dirs = {log_dir.name: log_dir for log_dir in inventory.log_dirs}

    def rows(log_dir: str, error: DecodeError) -> pa.RecordBatch:
        known = dirs[log_dir]
        key = (known.cluster_id, known.broker_id, log_dir, cluster_settings.METADATA_TOPIC, 0)
        return from_errors(key, [error])

    found = [(log_dir, error) for log_dir, error in errors if error.reason not in UNOPENED]
    return pa.Table.from_batches([rows(*item) for item in found], schema.DECODE_ERRORS)


def _key(copy: CopyFacts) -> Key:
    return (copy.cluster_id, copy.broker_id, copy.log_dir, copy.topic, copy.partition)


def _columns(rows: np.ndarray | PackedRows, wanted: pa.Schema) -> dict[str, Any]:
    """The columns that facts and table have by the same name."""
    return {name: rows[name].copy() for name in rows.dtype.names or () if name in wanted.names}


def _owners(log: LogView, producer_ids: np.ndarray) -> pa.Array:
    """The transactional id of each producer id, null where the coordinator's log does not show."""
    known, at = np.unique(producer_ids, return_inverse=True)
    return texts([log.owner(pid) for pid in known.tolist()]).take(array_of(at.astype(np.int64)))


def _states(log: LogView, copy: CopyFacts) -> pa.RecordBatch:
    rows = copy.producers
    columns = _columns(rows, PRODUCER_STATES)
    columns |= {
        "current_txn_first_offset": rows["txn_first_offset"].copy(),
        "transactional_id": _owners(log, rows["producer_id"]),
    }
    return from_columns(PRODUCER_STATES, _key(copy), len(rows), columns)


def _transactions(log: LogView, copy: CopyFacts) -> pa.RecordBatch:
    rows = copy.transactions
    is_open = rows["marker_offset"] < 0
    classes: dict[tuple[int, int], str] = {}
    if copy is log.leader:
        classes = {(int(t.row["producer_id"]), int(t.row["first_offset"])): t.klass for t in open_transactions(log)}
    where = zip(rows["producer_id"].tolist(), rows["first_offset"].tolist(), is_open.tolist(), strict=True)
    segments = np.where(rows["segment"] >= 0, rows["segment"], rows["marker_segment"])
    positions = np.where(rows["segment"] >= 0, rows["position"], rows["marker_position"])
    columns = _columns(rows, TRANSACTIONS)
    columns |= {
        "transactional_id": _owners(log, rows["producer_id"]),
        "outcome": _OUTCOMES.take(array_of((rows["commit"] == 1).astype(np.int64), is_open)),
        "class": texts([classes.get((pid, first)) if still else None for pid, first, still in where]),
        "size": rows["bytes"].copy(),
        "file": texts([copy.file(number) for number in segments.tolist()]),
        "position": positions,
        "leader_copy": copy is log.leader,
    }
    return from_columns(TRANSACTIONS, _key(copy), len(rows), columns)
