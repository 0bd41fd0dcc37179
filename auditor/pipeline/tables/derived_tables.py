"""The tables that are not decoded from files: what the replay, the clusters' metadata and the judgement give.

Derived tables are made of the facts of a log, with what the coordinator's log knows of each producer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from auditor.base.at_rest import Fields
from auditor.base.errors import DecodeError
from auditor.connectors.logdir.files import Inventory
from auditor.connectors.tables import schema
from auditor.connectors.tables.schema import LOG_KEY, array_of, declared, from_columns, from_errors, texts
from auditor.facts.packed import PackedRows
from auditor.facts.replica_facts import ReplicaFacts
from auditor.pipeline.cluster import cluster_settings
from auditor.pipeline.cluster.cluster_settings import ClusterSettings
from auditor.pipeline.tables import cleaner_table, coordinated_table, events_table, lag_table, space_table
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import LogView
from auditor.rules.transactions import coordinated, written_times
from auditor.rules.transactions.blocking import judged
from auditor.rules.transactions.open_transactions import open_transactions

COORDINATED_TRANSACTIONS = "coordinated_transactions"  # of all logs together: coordinated_table
# What each replica's replay leaves of its producers, as a broker would hold it at the log's end.
PRODUCER_STATES = declared(
    "producer_states",
    LOG_KEY,
    """
    producer_id:long
    producer_epoch:int
    last_sequence:int sequence number of its last record; -1: none since its epoch began
    last_offset:long offset of its last record; -1: none
    offset_delta:int last offset less first offset of its last batch
    last_timestamp:time timestamp of its last batch or marker
    coordinator_epoch:int epoch of the coordinator that sent its last marker; -1: none
    current_txn_first_offset:long first offset of its open transaction; -1: none is open
    transactional_id:string
    batches:long its data batches in the log; 0: only a snapshot knows it
    records:long its records in them
    markers:long its transactions' markers in the log
    first_offset:long of its first batch at or behind the log start; -1: none
    first_sequence:int sequence number that this batch begins with; -1: none
    max_epoch:int its largest epoch in the log
    last_seen_by_broker:time when it wrote last, at the earliest, by markers, which carry brokers' times; null: none
    expires_at:time when the broker forgets it, which goes by `last_timestamp`; null while a transaction is open
""",
)
# One row a transaction of a producer in a replica.
TRANSACTIONS = declared(
    "transactions",
    LOG_KEY,
    """
    producer_id:long
    producer_epoch:int
    transactional_id:string
    outcome:string COMMIT or ABORT; null while it is open
    class:string of an open one in the leader's replica: active, late, hanging, orphan, ghost or undecidable; else null
    first_offset:long offset of its first record; -1: a marker that ended nothing here
    last_offset:long offset of its last record
    marker_offset:long offset of its marker; -1: it is open
    marker_epoch:int producer epoch of the marker
    coordinator_epoch:int epoch of the coordinator that sent the marker
    last_stable_offset:long last stable offset behind its marker
    first_timestamp:time timestamp of its first batch
    last_timestamp:time timestamp of its last batch
    marker_timestamp:time timestamp of its marker
    batches:long its batches in the log
    records:long its records in them
    size:long bytes of these batches
    file:string segment that it begins in; where it has no data, that of its marker
    position:long byte in it
    leader_copy:bool whether the row is of the leader's replica: count by it where there are several
    kind:string closed (data and marker), open, or marker_only: a marker that ended nothing here
    transaction_key:string joins it with `coordinated_transactions`; null: no coordinator's log shows its transaction
    began_not_before:time when its first batch was written, at the earliest, by brokers' clocks; null: not known
    began_not_after:time the same, at the latest
""",
)
MadeOfLog = Callable[[LogView], Iterator[pa.RecordBatch]]
UNOPENED = ("unreadable", "vanished")
_OUTCOMES = texts(["ABORT", "COMMIT"])
_KINDS = texts(["closed", "open", "marker_only"])


def mentioned(text: str) -> frozenset[str]:
    """The tables whose names stand in an SQL text."""
    return frozenset(re.findall(r"\w+", text.lower())) & frozenset(NAMES)


def listed(text: str) -> pa.Table | None:
    """All tables by name, where an SQL text asks for just that; None for any other text."""
    return pa.table({"name": texts(NAMES)}) if re.fullmatch(r"\s*show\s+tables\s*;?\s*", text, re.I) else None


def of_log(replicas: list[ReplicaFacts], cluster: Cluster, table: str) -> Iterator[pa.RecordBatch]:
    """The rows of a derived table about one log, whose replicas explain each other."""
    made = _OF_FACTS[table][1]
    assert made is not None, table
    return made(LogView(replicas, cluster))


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


def _columns(rows: np.ndarray | PackedRows, wanted: pa.Schema) -> Fields:
    """The columns that facts and table have by the same name."""
    return {name: rows[name].copy() for name in rows.dtype.names or () if name in wanted.names}


def _owners(log: LogView, producer_ids: np.ndarray) -> pa.Array:
    """The transactional id of each producer id, null where the coordinator's log does not show."""
    known, at = np.unique(producer_ids, return_inverse=True)
    return texts([log.owner(pid) for pid in known.tolist()]).take(array_of(at.astype(np.int64)))


def _states(log: LogView, replica: ReplicaFacts) -> pa.RecordBatch:
    rows = replica.producers
    columns = _columns(rows, PRODUCER_STATES)
    columns |= {
        "current_txn_first_offset": rows["txn_first_offset"].copy(),
        "transactional_id": _owners(log, rows["producer_id"]),
        "last_seen_by_broker": written_times.last_seen(log, replica),
        "expires_at": _expiry(log, replica),
    }
    return from_columns(PRODUCER_STATES, replica.table_key, len(rows), columns)


def _expiry(log: LogView, replica: ReplicaFacts) -> np.ndarray:
    """When a broker forgets each producer, ms; -1 for not while things stand as they do."""
    rows, allowed = replica.producers, log.cluster.expiration_ms(replica.broker_id)
    idle = (rows["txn_first_offset"] < 0) & (rows["last_timestamp"] >= 0)
    out: np.ndarray = np.where(idle, rows["last_timestamp"] + allowed, -1)
    return out


def _transactions(log: LogView, replica: ReplicaFacts) -> pa.RecordBatch:
    rows = replica.transactions
    is_open = rows["marker_offset"] < 0
    classes: dict[tuple[int, int], str] = {}
    if replica is log.leader:
        opened = open_transactions(log)
        classes = {(int(t.row["producer_id"]), int(t.row["first_offset"])): judged(log, t).klass for t in opened}
    where = zip(rows["producer_id"].tolist(), rows["first_offset"].tolist(), is_open.tolist(), strict=True)
    segments = np.where(rows["segment"] >= 0, rows["segment"], rows["marker_segment"])
    positions = np.where(rows["segment"] >= 0, rows["position"], rows["marker_position"])
    columns = _columns(rows, TRANSACTIONS)
    columns |= {
        "transactional_id": _owners(log, rows["producer_id"]),
        "outcome": _OUTCOMES.take(array_of((rows["commit"] == 1).astype(np.int64), is_open)),
        "class": texts([classes.get((pid, first)) if still else None for pid, first, still in where]),
        "size": rows["bytes"].copy(),
        "file": texts([replica.file(number) for number in segments.tolist()]),
        "position": positions,
        "leader_copy": replica is log.leader,
        "kind": _KINDS.take(array_of(np.where(is_open, 1, np.where(rows["first_offset"] < 0, 2, 0)))),
        "transaction_key": _keys(log, replica),
    } | _began(log, replica)
    return from_columns(TRANSACTIONS, replica.table_key, len(rows), columns)


def _began(log: LogView, replica: ReplicaFacts) -> dict[str, np.ndarray]:
    """When each transaction began here: between markers, and not before its coordinator let it."""
    earliest, latest = written_times.written_bounds(log, replica)
    if replica is log.leader:
        earliest = np.where(earliest < 0, earliest, np.maximum(earliest, coordinated.begun_at(log)))
    return {"began_not_before": earliest, "began_not_after": latest}


def _keys(log: LogView, replica: ReplicaFacts) -> pa.Array:
    """The transaction that each row is a branch of; in a follower that of the leader's row with the same end."""
    known = coordinated.keys(log)
    if replica is log.leader:
        return texts(known)
    of_leader = {_place(row): key for row, key in zip(log.leader.transactions, known, strict=True)}
    return texts([of_leader.get(_place(row)) for row in replica.transactions])


def _place(row: np.void) -> tuple[int, int, int]:
    marker = int(row["marker_offset"])
    return int(row["producer_id"]), marker, int(row["first_offset"]) if marker < 0 else -1


def _of_copies(made: Callable[[LogView, ReplicaFacts], pa.RecordBatch]) -> MadeOfLog:
    return lambda log: (made(log, replica) for replica in log.copies)


# The tables that are made of facts: their columns, and who makes the rows about one log; nobody of all logs together.
_OF_FACTS: dict[str, tuple[pa.Schema, MadeOfLog | None]] = {
    "producer_states": (PRODUCER_STATES, _of_copies(_states)),
    "transactions": (TRANSACTIONS, _of_copies(_transactions)),
    "events": (events_table.EVENTS, _of_copies(lambda _, replica: events_table.rows(replica))),
    COORDINATED_TRANSACTIONS: (coordinated_table.COORDINATED, None),
    "lag": (lag_table.LAG, lag_table.rows),
    "space": (space_table.SPACE, space_table.rows),
    "cleaner": (cleaner_table.CLEANER, cleaner_table.rows),
}
OF_FACTS = {name: columns for name, (columns, _) in _OF_FACTS.items()}
OF_METADATA = ("topics", "topic_configs", "broker_configs", "partitions")
NAMES = (*schema.DECODED, *OF_FACTS, "verdicts", "findings", "blocked")
