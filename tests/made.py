"""Columns, facts and tables made by hand for tests of replays and rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from auditor.connectors import schema
from auditor.connectors.codec.batches import BATCH_DTYPES, BatchColumns
from auditor.connectors.schema import from_rows
from auditor.facts.replica_facts import PRODUCER, STAMP, TRANSACTION, ReplicaFacts, blank_producers

TRANSACTIONAL, CONTROL, APPEND_TIME = 0x10, 0x20, 0x08
KEY = ("cluster", 1, "broker-1", "__consumer_offsets", 0)
DEFAULTS = {
    "size": 100, "magic": 2, "attributes": 0, "record_count": -1, "partition_leader_epoch": 0, "producer_epoch": 0,
    "base_sequence": -1, "control_type": -1, "coordinator_epoch": -1, "max_timestamp": 1_000_000,
}  # fmt: skip


def batches(*rows: dict[str, Any]) -> BatchColumns:
    """Columns with a row a batch: ``base_offset``, ``last_offset`` and what differs from :data:`DEFAULTS`."""
    columns = BatchColumns(*(np.empty(len(rows), dtype) for dtype in BATCH_DTYPES))
    for k, given in enumerate(rows):
        row = {"position": 100 * k, **DEFAULTS, **given}
        row["record_count"] = row["last_offset"] - row["base_offset"] + 1
        for name, column in columns._asdict().items():
            column[k] = row.get(name, 0)
    return columns


def data(offset: int, sequence: int, count: int = 1, *, pid: int = 1, **given: Any) -> dict[str, Any]:
    """A data batch."""
    row = {"base_offset": offset, "last_offset": offset + count - 1, "producer_id": pid, "base_sequence": sequence}
    return {**row, "attributes": TRANSACTIONAL if given.pop("transactional", False) else 0, **given}


def marker(offset: int, epoch: int, *, pid: int = 1, coordinator_epoch: int = 0, commit: bool = True) -> dict[str, Any]:
    """An end marker."""
    return {
        "base_offset": offset, "last_offset": offset, "producer_id": pid, "producer_epoch": epoch,
        "attributes": TRANSACTIONAL | CONTROL, "control_type": int(commit), "coordinator_epoch": coordinator_epoch,
    }  # fmt: skip


def facts(topic: str = "t", **given: Any) -> ReplicaFacts:
    """The facts of a replica of ``topic``-0 on broker 1: nothing known but what is given."""
    replica = ReplicaFacts("cluster", 1, "broker-1", topic, 0, "cluster", segments=["0.log"], segment_bases=[0])
    for name, value in given.items():
        setattr(replica, name, value)
    if replica.broker_time >= 0 and not len(replica.track):
        replica.track = np.array([(replica.log_end - 1, replica.broker_time, replica.last_leader_epoch, 0)], STAMP)
    return replica


def producers(*rows: dict[str, Any]) -> np.ndarray:
    """PRODUCER rows, absent columns as before anything is known."""
    return _rows(blank_producers(len(rows)), rows)


def transactions(*rows: dict[str, Any]) -> np.ndarray:
    """TRANSACTION rows, absent columns -1, but counts and flags 0."""
    out = np.zeros(len(rows), TRANSACTION)
    for name in TRANSACTION.names or ():
        out[name] = 0 if name in ("batches", "records", "bytes", "repeated", "from_snapshot", "risen_records") else -1
    return _rows(out, rows)


def _rows(out: np.ndarray, rows: tuple[dict[str, Any], ...]) -> np.ndarray:
    for k, row in enumerate(rows):
        for name, value in row.items():
            out[name][k] = value
    return out


def table(name: str, *rows: dict[str, Any]) -> pa.Table:
    """A decoded table of the replica of :func:`facts`; absent columns null."""
    columns = [field.name for field in schema.DECODED[name]][len(KEY) :]
    return from_rows(schema.DECODED[name], KEY, [tuple(row.get(column) for column in columns) for row in rows])


__all__ = ["APPEND_TIME", "PRODUCER", "batches", "data", "facts", "marker", "producers", "table", "transactions"]
