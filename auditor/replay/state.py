"""The state of a replay: numpy arrays that compiled code fills, and the indexes into them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from auditor.facts import EVENT, PRODUCER, TRANSACTION, Kind
from auditor.model import producers as model

# Kinds of events as plain ints: numba freezes module globals.
SEQUENCE_GAP = int(Kind.SEQUENCE_GAP)
SEQUENCE_OVERLAP = int(Kind.SEQUENCE_OVERLAP)
SEQUENCE_RESET = int(Kind.SEQUENCE_RESET)
BUMP_NONZERO = int(Kind.BUMP_NONZERO)
FIRST_NONZERO = int(Kind.FIRST_NONZERO)
EPOCH_REGRESSION = int(Kind.EPOCH_REGRESSION)
MARKER_EPOCH_REGRESSION = int(Kind.MARKER_EPOCH_REGRESSION)
COORDINATOR_EPOCH_REGRESSION = int(Kind.COORDINATOR_EPOCH_REGRESSION)
PLAIN_IN_TRANSACTION = int(Kind.PLAIN_IN_TRANSACTION)
IDLE_BEYOND_EXPIRY = int(Kind.IDLE_BEYOND_EXPIRY)
EPOCH_STORM = int(Kind.EPOCH_STORM)
TIMESTAMP_BEHIND = int(Kind.TIMESTAMP_BEHIND)
TIMESTAMP_AHEAD = int(Kind.TIMESTAMP_AHEAD)
EPOCH_RESERVED = int(Kind.EPOCH_RESERVED)
CRC = int(Kind.CRC)
OFFSET_HOLE = int(Kind.OFFSET_HOLE)
OFFSETS_NOT_INCREASING = int(Kind.OFFSETS_NOT_INCREASING)
OUTSIDE_SEGMENT = int(Kind.OUTSIDE_SEGMENT)
LEADER_EPOCH_DECREASE = int(Kind.LEADER_EPOCH_DECREASE)
LEADER_EPOCH_CHECKPOINT = int(Kind.LEADER_EPOCH_CHECKPOINT)
HEADER_FLAW = int(Kind.HEADER_FLAW)
COUNT_BELOW_SPAN = int(Kind.COUNT_BELOW_SPAN)

MAX_SEQUENCE = 2**31 - 1
SEQUENCES = 2**31
RESERVED_EPOCH = 32767
STORM_WINDOW_MS = 600_000
STORM_EPOCHS = 10
AHEAD_MS = 3_600_000
MAX_OLD_RUNS = 64  # earlier runs of sequences that one producer's duplicates are looked up in

ATTR_APPEND_TIME = 0x08
ATTR_TRANSACTIONAL = 0x10
ATTR_CONTROL = 0x20
ATTR_HORIZON = 0x40

# Indexes into Replay.params: what is fixed for a copy.
P_LOG_START = 0
P_START_SEGMENT = 1  # segment that holds the log start
P_INTACT_FROM = 2  # offsets from here on were never cleaned
P_SEQUENCES = 3  # 1 where sequences mean something
P_BROKER_TIMES = 4  # 1 where every record time is the broker's (internal topics)
P_EXPIRY_MS = 5
P_KRAFT = 6  # 1 for __cluster_metadata: control batches of other types are at home there
PARAMS = 7

# Indexes into Replay.scalars: what moves with the log.
S_EXPECTED = 0  # next offset, -1 before the first batch
S_LEADER_EPOCH = 1
S_BROKER_TIME = 2
S_ANY_TIME = 3
S_ORDINAL = 4  # batches seen
S_UNREADABLE = 5  # ordinal of the last batch before bytes that could not be read
S_SEGMENT = 6
S_SEGMENT_BASE = 7
S_SEGMENT_NEXT = 8
S_EVENTS = 9
S_TRANSACTIONS = 10
S_OPEN = 11
S_RUNS = 12
S_BATCHES = 13
S_RECORDS = 14
S_DATA_OFFSETS = 15
S_MARKER_OFFSETS = 16
S_HOLES_INTACT = 17
S_HOLES_CLEANED = 18
S_AHEAD_TIME = 19  # largest producer time since the last broker-written one
S_AHEAD_PRODUCER = 20  # its producer id, -1 for none
S_AHEAD_OFFSET = 21
S_LAST_OFFSET = 22
S_PREV_LEADER_EPOCH = 23
S_SEGMENT_TIME = 24  # newest broker-written time of this segment
S_AHEAD_POSITION = 25
S_SEGMENT_ANY_TIME = 26
S_UNREADABLE_OFFSETS = 27
S_FIRST_TIME = 28  # time(b) of the first judged batch
S_UNREADABLE_AT = 29  # next offset where the last bytes came that could not be read
S_AHEAD_SEGMENT = 30
S_AHEAD_LAST = 31
S_AHEAD_EPOCH = 32
SCALARS = 33

RUN = np.dtype([("epoch", "i4"), ("start", "i4"), ("length", "i8"), ("older", "i4")])


class Replay(NamedTuple):
    """The state of one copy's replay. ``open`` holds the open transactions, compact; ``open_rows`` their producers."""

    producers: model.Producers
    audit: np.ndarray  # PRODUCER, a row beside each row of producers
    events: np.ndarray  # EVENT
    transactions: np.ndarray  # TRANSACTION
    open: np.ndarray  # TRANSACTION
    open_rows: np.ndarray  # int32
    runs: np.ndarray  # RUN
    epochs: np.ndarray  # int64, of the leader-epoch checkpoint
    epoch_starts: np.ndarray  # int64
    params: np.ndarray  # int64
    scalars: np.ndarray  # int64


EVENTS_AT_ONCE = 4096
TRANSACTIONS_AT_ONCE = 8192
EVENTS_PER_BATCH = 12  # the most that one batch can raise


def new_replay(params: np.ndarray, epochs: np.ndarray, epoch_starts: np.ndarray) -> Replay:
    """A replay before the first batch."""
    capacity = 1024
    scalars = np.full(SCALARS, -1, np.int64)
    scalars[[S_EVENTS, S_TRANSACTIONS, S_OPEN, S_RUNS, S_BATCHES, S_RECORDS, S_ORDINAL]] = 0
    scalars[[S_DATA_OFFSETS, S_MARKER_OFFSETS, S_HOLES_INTACT, S_HOLES_CLEANED, S_UNREADABLE_OFFSETS]] = 0
    return Replay(
        model.new_producers(capacity),
        blank_audit(capacity),
        np.zeros(EVENTS_AT_ONCE, EVENT),
        np.zeros(TRANSACTIONS_AT_ONCE, TRANSACTION),
        np.zeros(256, TRANSACTION),
        np.zeros(256, np.int32),
        np.zeros(256, RUN),
        epochs,
        epoch_starts,
        params,
        scalars,
    )


def blank_audit(rows: int) -> np.ndarray:
    """Rows of the audit columns before anything is known."""
    audit = np.zeros(rows, PRODUCER)
    for name in PRODUCER.names or ():
        audit[name] = 0 if name in _ZERO_AT_START else -1
    return audit


_ZERO_AT_START = frozenset(
    {"batches", "markers", "records", "idle_count", "max_idle_ms", "epoch_window_count", "below_batches"}
    | {"below_in_snapshot", "run_length", "marker_commit", "marker_fresh", "transactional"}
)


def ensure_room(replay: Replay, rows: int) -> Replay:
    """The same replay with room for ``rows`` more producers, open transactions and runs."""
    table, audit = replay.producers, replay.audit
    while int(table.meta[0]) + rows > len(table.producer_id):
        table = model.grow(table)
    if len(audit) < len(table.producer_id):
        audit = np.concatenate([audit, blank_audit(len(table.producer_id) - len(audit))])
    opened, open_rows, runs = replay.open, replay.open_rows, replay.runs
    need = int(replay.scalars[S_OPEN]) + rows
    if need > len(opened):
        extra = max(need - len(opened), len(opened))
        opened = np.concatenate([opened, np.zeros(extra, TRANSACTION)])
        open_rows = np.concatenate([open_rows, np.zeros(extra, np.int32)])
    need = int(replay.scalars[S_RUNS]) + rows
    if need > len(runs):
        runs = np.concatenate([runs, np.zeros(max(need - len(runs), len(runs)), RUN)])
    return replay._replace(producers=table, audit=audit, open=opened, open_rows=open_rows, runs=runs)


@njit(cache=True)
def new_event(r, kind, b, i, timestamp, time):  # type: ignore[no-untyped-def]
    """A new event about batch ``i``, its columns a to f still -1; returns its row."""
    row = r.scalars[S_EVENTS]
    r.scalars[S_EVENTS] = row + 1
    e = r.events[row]
    e.kind = kind
    e.segment = r.scalars[S_SEGMENT]
    e.position = b.position[i]
    e.base_offset = b.base_offset[i]
    e.last_offset = b.last_offset[i]
    e.producer_id = b.producer_id[i]
    e.producer_epoch = b.producer_epoch[i]
    e.timestamp = timestamp
    e.time = time
    e.leader_epoch = b.partition_leader_epoch[i]
    e.a = -1
    e.b = -1
    e.c = -1
    e.d = -1
    e.e = -1
    e.f = 0
    return row
