"""The state of a replay: numpy arrays that compiled code fills, and the indexes into them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from auditor.base.compiled import kernel
from auditor.connectors.codec import batch as col
from auditor.facts.copy_facts import EVENT, PRODUCER, TRANSACTION, Kind
from auditor.model import producers as model

# Kinds of events, as numbers that are no literals: for each literal argument numba would compile a function anew.
SEQUENCE_GAP = np.int64(Kind.SEQUENCE_GAP)
SEQUENCE_OVERLAP = np.int64(Kind.SEQUENCE_OVERLAP)
SEQUENCE_RESET = np.int64(Kind.SEQUENCE_RESET)
BUMP_NONZERO = np.int64(Kind.BUMP_NONZERO)
FIRST_NONZERO = np.int64(Kind.FIRST_NONZERO)
EPOCH_REGRESSION = np.int64(Kind.EPOCH_REGRESSION)
MARKER_EPOCH_REGRESSION = np.int64(Kind.MARKER_EPOCH_REGRESSION)
COORDINATOR_EPOCH_REGRESSION = np.int64(Kind.COORDINATOR_EPOCH_REGRESSION)
PLAIN_IN_TRANSACTION = np.int64(Kind.PLAIN_IN_TRANSACTION)
IDLE_BEYOND_EXPIRY = np.int64(Kind.IDLE_BEYOND_EXPIRY)
EPOCH_STORM = np.int64(Kind.EPOCH_STORM)
TIMESTAMP_BEHIND = np.int64(Kind.TIMESTAMP_BEHIND)
TIMESTAMP_AHEAD = np.int64(Kind.TIMESTAMP_AHEAD)
EPOCH_RESERVED = np.int64(Kind.EPOCH_RESERVED)
CRC = np.int64(Kind.CRC)
OFFSET_HOLE = np.int64(Kind.OFFSET_HOLE)
OFFSETS_NOT_INCREASING = np.int64(Kind.OFFSETS_NOT_INCREASING)
OUTSIDE_SEGMENT = np.int64(Kind.OUTSIDE_SEGMENT)
LEADER_EPOCH_DECREASE = np.int64(Kind.LEADER_EPOCH_DECREASE)
LEADER_EPOCH_CHECKPOINT = np.int64(Kind.LEADER_EPOCH_CHECKPOINT)
HEADER_FLAW = np.int64(Kind.HEADER_FLAW)
COUNT_BELOW_SPAN = np.int64(Kind.COUNT_BELOW_SPAN)
LEFTOVER_FIELDS = np.int64(Kind.LEFTOVER_FIELDS)

NOTHING, ZERO = np.int64(-1), np.int64(0)  # no literals, for the same reason
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

# Indexes into Log.params: what is fixed for a copy.
P_LOG_START = 0
P_START_SEGMENT = 1  # segment that holds the log start
P_INTACT_FROM = 2  # offsets from here on were never cleaned
P_SEQUENCES = 3  # 1 where sequences mean something
P_BROKER_TIMES = 4  # 1 where every record time is the broker's (internal topics)
P_EXPIRY_MS = 5
P_KRAFT = 6  # 1 for __cluster_metadata: control batches of other types are at home there
PARAMS = 7

# Indexes into Log.scalars: what moves with the log.
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
S_MARKED = 33  # rows used of each
S_BELOW = 34
S_LEFTOVERS = 35  # 1 once a batch without producer id had an epoch or a sequence
SCALARS = 36

RUN = np.dtype([("epoch", "i4"), ("start", "i4"), ("length", "i8"), ("older", "i4")])


# What is noted beside each producer's state, in four tables: a batch should touch few cache lines, and a million
# producers must not take more than they need. LIVE is what every data batch is compared with and changes.
LIVE = np.dtype(
    [
        ("batches", "i8"), ("records", "i8"), ("run_length", "i8"), ("data_last_offset", "i8"),
        ("data_timestamp", "i8"),
        ("data_time", "i8"), ("active_timestamp", "i8"), ("max_idle_ms", "i8"), ("ordinal", "i8"), ("run_start", "i4"),
        ("old_run", "i4"), ("data_last_sequence", "i4"), ("data_leader_epoch", "i4"), ("idle_count", "i4"),
        ("open_slot", "i4"), ("marked", "i4"), ("below", "i4"), ("data_epoch", "i2"), ("max_epoch", "i2"),
        ("max_data_epoch", "i2"), ("transactional", "i1"), ("marker_fresh", "i1"),
    ],
    align=True,
)  # fmt: skip
# What a first batch and a new epoch leave: first_* mean something once batches > 0, max_* once there is an epoch;
# zero_* are of the last batch that began at sequence 0, in the epoch zero_epoch (-1: none).
BORN = np.dtype(
    [
        ("first_offset", "i8"), ("first_position", "i8"), ("first_timestamp", "i8"), ("first_time", "i8"),
        ("max_epoch_offset", "i8"), ("max_data_epoch_offset", "i8"), ("max_data_epoch_time", "i8"),
        ("epoch_window_start", "i8"), ("epoch_window_count", "i4"), ("first_sequence", "i4"), ("first_segment", "i4"),
        ("max_epoch_leader", "i4"), ("first_epoch", "i2"), ("first_last", "i8"), ("first_leader", "i4"),
        ("zero_time", "i8"), ("zero_crc", "i8"), ("zero_offset", "i8"), ("zero_size", "i4"), ("zero_epoch", "i4"),
    ],
    align=True,
)  # fmt: skip
# Of producers with markers (row LIVE.marked), and of those with batches below the log start (row LIVE.below).
MARKED = np.dtype(
    [
        ("markers", "i8"), ("offset", "i8"), ("time", "i8"), ("coordinator_offset", "i8"), ("coordinator_epoch", "i4"),
        ("epoch", "i2"), ("commit", "i1"),
    ],
    align=True,
)  # fmt: skip
BELOW = np.dtype(
    [("batches", "i8"), ("last_offset", "i8"), ("timestamp", "i8"), ("last_sequence", "i4"), ("epoch", "i2")],
    align=True,
)  # fmt: skip

# Rows of Replay.queue: a heap of the slots of open transactions by first offset, and behind it the free slots.
Q_SLOT = 0  # the slot at a place of the heap
Q_PLACE = 1  # the place of a slot
Q_OFFSET = 2  # the first offset of a slot's transaction


class Log(NamedTuple):
    """What a replay knows of the log whoever wrote it: kernels that need no more are compiled far faster."""

    events: np.ndarray  # EVENT
    params: np.ndarray  # int64, P_*
    scalars: np.ndarray  # int64, S_*
    epochs: np.ndarray  # int64, of the leader-epoch checkpoint
    epoch_starts: np.ndarray  # int64


class Replay(NamedTuple):
    """The state of one copy's replay."""

    log: Log
    producers: model.Producers
    live: np.ndarray  # LIVE, a row beside each row of producers
    born: np.ndarray  # BORN, likewise
    marked: np.ndarray  # MARKED
    below: np.ndarray  # BELOW
    transactions: np.ndarray  # TRANSACTION, those decided
    open: np.ndarray  # TRANSACTION, by slot
    queue: np.ndarray  # int64, rows Q_*
    runs: np.ndarray  # RUN

    @property
    def scalars(self) -> np.ndarray:
        """What moves with the log, S_*."""
        return self.log.scalars


EVENTS_AT_ONCE = 512
TRANSACTIONS_AT_ONCE = 1024
EVENTS_PER_BATCH = 12  # the most that one batch can raise


def new_replay(params: np.ndarray, epochs: np.ndarray, epoch_starts: np.ndarray) -> Replay:
    """A replay before the first batch."""
    capacity = 1024
    scalars = np.full(SCALARS, -1, np.int64)
    scalars[[S_EVENTS, S_TRANSACTIONS, S_OPEN, S_RUNS, S_MARKED, S_BELOW, S_BATCHES, S_RECORDS, S_ORDINAL]] = 0
    scalars[[S_LEFTOVERS, S_DATA_OFFSETS, S_MARKER_OFFSETS, S_HOLES_INTACT, S_HOLES_CLEANED, S_UNREADABLE_OFFSETS]] = 0
    return Replay(
        Log(np.zeros(EVENTS_AT_ONCE, EVENT), params, scalars, epochs, epoch_starts),
        model.new_producers(capacity),
        np.empty(capacity, LIVE),
        np.empty(capacity, BORN),
        np.empty(256, MARKED),
        np.empty(256, BELOW),
        np.zeros(TRANSACTIONS_AT_ONCE, TRANSACTION),
        np.zeros(256, TRANSACTION),
        np.array([np.arange(256)] * 3),
        np.empty(256, RUN),
    )


def ensure_room(replay: Replay, rows: int) -> Replay:
    """The same replay with room for ``rows`` more producers, open transactions and runs."""
    table, scalars = replay.producers, replay.scalars
    if int(table.meta[0]) + rows > len(table.producer_id):
        table = model.grow(table, _capacity(int(table.meta[0]) + rows))
    capacity = len(table.producer_id)
    replay = replay._replace(
        producers=table,
        live=_longer(replay.live, capacity),
        born=_longer(replay.born, capacity),
        marked=_longer(replay.marked, int(scalars[S_MARKED]) + rows),
        below=_longer(replay.below, int(scalars[S_BELOW]) + rows),
        open=_longer(replay.open, int(scalars[S_OPEN]) + rows),
        runs=_longer(replay.runs, int(scalars[S_RUNS]) + rows),
    )
    slots = replay.queue.shape[1]
    if len(replay.open) > slots:
        free = np.array([np.arange(slots, len(replay.open))] * 3)
        replay = replay._replace(queue=np.concatenate([replay.queue, free], axis=1))
    return replay


def _capacity(rows: int) -> int:
    """Room for so many producers, in few steps: copying costs, and memory that was never written to does not."""
    return next((step for step in (1 << 14, 1 << 20) if step >= rows), 1 << (rows - 1).bit_length())


def _longer(table: np.ndarray, rows: int) -> np.ndarray:
    """The table with room for ``rows``; what is new is not yet memory that is used."""
    if rows <= len(table):
        return table
    longer = np.empty(max(rows, 2 * len(table)), table.dtype)
    longer[: len(table)] = table
    return longer


def blank_audit(rows: int) -> np.ndarray:
    """PRODUCER rows of which nothing is known."""
    audit = np.zeros(rows, PRODUCER)
    for name in PRODUCER.names or ():
        audit[name] = 0 if name in ZERO_AT_START else -1
    return audit


ZERO_AT_START = frozenset(
    {
        "batches",
        "records",
        "markers",
        "idle_count",
        "max_idle_ms",
        "below_batches",
        "below_in_snapshot",
        "transactional",
    }
)


@kernel
def producer_row(r, pid):  # type: ignore[no-untyped-def]
    """The row of a producer, a new one if it was unknown."""
    row = model.find(r.producers, pid)
    if row >= 0:
        return row
    row = model.insert(r.producers, pid)
    o = r.live[row]
    o.batches = 0
    o.records = 0
    o.run_start = -1
    o.run_length = 0
    o.old_run = -1
    o.data_epoch = -1
    o.data_last_sequence = -1
    o.data_last_offset = -1
    o.data_timestamp = -1
    o.data_time = -1
    o.data_leader_epoch = -1
    o.max_epoch = -1
    o.max_data_epoch = -1
    o.active_timestamp = -1
    o.max_idle_ms = 0
    o.idle_count = 0
    o.ordinal = -1
    o.open_slot = -1
    o.marked = -1
    o.below = -1
    o.transactional = 0
    o.marker_fresh = 0
    r.born[row].epoch_window_count = 0
    r.born[row].zero_epoch = -1
    return row


@kernel
def new_event(g, kind, b, i, timestamp, time):  # type: ignore[no-untyped-def]
    """A new event about batch ``i``, its columns a to f still -1; returns its row."""
    row = g.scalars[S_EVENTS]
    g.scalars[S_EVENTS] = row + 1
    e = g.events[row]
    e.kind = kind
    e.segment = g.scalars[S_SEGMENT]
    e.position = b[i, col.POSITION]
    e.base_offset = b[i, col.BASE_OFFSET]
    e.last_offset = b[i, col.LAST_OFFSET]
    e.producer_id = b[i, col.PRODUCER_ID]
    e.producer_epoch = b[i, col.PRODUCER_EPOCH]
    e.timestamp = timestamp
    e.time = time
    e.leader_epoch = b[i, col.PARTITION_LEADER_EPOCH]
    e.a = -1
    e.b = -1
    e.c = -1
    e.d = -1
    e.e = -1
    e.f = 0
    return row
