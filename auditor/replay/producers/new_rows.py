"""New rows in the tables of a replay: of an event, and of a producer."""

from __future__ import annotations

import numpy as np

from auditor.base.compiled import kernel
from auditor.facts.events import Kind
from auditor.model import producers as model
from auditor.replay.producers.state import Log, Replay

# Kinds of events, as numbers that are no literals: for each literal argument numba would compile a function anew.
SEQUENCE_GAP = np.int64(Kind.SEQUENCE_GAP)
SEQUENCE_OVERLAP = np.int64(Kind.SEQUENCE_OVERLAP)
SEQUENCE_RESET = np.int64(Kind.SEQUENCE_RESET)
SEQUENCE_RESUMED = np.int64(Kind.SEQUENCE_RESUMED)
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


@kernel
def new_event(log: Log, kind: int, batch: np.record, timestamp: int, time: int) -> int:
    """A new event about a batch, in a row that was blank: what its kind has beyond the place is -1. Returns the row.

    A batch has one row a kind: raised again, the kind gets the same row anew. So ``EVENTS_OF_A_BATCH`` rows are enough
    for whatever a batch can raise.
    """
    progress = log.progress[0]
    row = progress.first_event
    while row < progress.events and log.events[row].kind != kind:
        row += 1
    progress.events = max(progress.events, row + 1)
    event = log.events[row]
    event.kind = kind
    event.segment = progress.segment
    event.position = batch.position
    event.base_offset = batch.base_offset
    event.last_offset = batch.last_offset
    event.producer_id = batch.producer_id
    event.producer_epoch = batch.producer_epoch
    event.timestamp = timestamp
    event.time = time
    event.leader_epoch = batch.partition_leader_epoch
    return row


@kernel
def producer_row(replay: Replay, producer_id: int, found: int) -> int:
    """The row of a producer, a new one if it was unknown. ``found``: where it was when its batch was first seen, or -1.

    LOW_31 changes no row. It shows the compiler that none is negative, or it would look at every use whether to count
    from the end of a table.
    """
    if found >= 0:
        return found & model.LOW_31
    known = replay.producers.meta[0]
    row = model.insert(replay.producers, producer_id) & model.LOW_31
    if row < known:
        return row
    live = replay.live[row]
    live.batches = 0
    live.records = 0
    live.run_start = -1
    live.run_length = 0
    live.data_epoch = -1
    live.data_last_sequence = -1
    live.data_last_offset = -1
    live.data_timestamp = -1
    live.data_time = -1
    live.data_leader_epoch = -1
    live.max_epoch = -1
    live.crowded = 0
    live.active_timestamp = -1
    live.max_idle_ms = 0
    live.ordinal = -1
    live.open_slot = -1
    live.marked = -1
    live.transactional = 0
    live.marker_fresh = 0
    born = replay.born[row]
    born.first_offset = -1  # an event on an epoch below -1 asks for these two before there is a first batch
    born.first_leader_epoch = -1
    born.zero = 0
    born.below = -1
    born.later = -1
    return row


@kernel
def later_row(log: Log, table: np.ndarray, born: np.record) -> int:
    """The row of LATER of a producer, a new one when it first does more than to go on from its first batch. A new row
    holds what that batch left; nothing is read from it that no batch left."""
    if born.later < 0:
        row = log.progress[0].later
        log.progress[0].later = row + 1
        born.later = row
        later = table[row]
        later.max_epoch_offset = born.first_offset
        later.max_epoch_leader = born.first_leader_epoch
        later.max_data_epoch_offset = born.first_offset
        later.max_data_epoch_time = born.first_time
        later.zero_epoch = born.first_epoch if born.zero else -1
        later.zero_crc = born.zero_crc
        later.zero_bytes = born.zero_bytes
        later.zero_time = born.first_timestamp
        later.zero_base_offset = born.first_offset
        later.epoch_window_start = 0
        later.epoch_window_count = 0
        later.old_run = -1
        later.idle_count = 0
    return born.later
