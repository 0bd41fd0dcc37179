"""The producer-state kernel: every producer of one partition, and what a batch or a marker does to it.

The functions read as the specification (ProducerStateManager, ProducerAppendInfo, ProducerStateEntry; KIP-98, KIP-360)
and are compiled by numba; with ``NUMBA_DISABLE_JIT=1`` they run as plain Python. A ``row`` is the place of a producer
in the columns, -1 where the partition does not know it. Rows stay valid until :func:`keep` or :func:`clear`.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

import numpy as np

from auditor.base.compiled import kernel
from auditor.model.policies import (
    DUPLICATE,
    DUPLICATE_SEQUENCE_NUMBER,
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    OK,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    TRANSACTION_COORDINATOR_FENCED,
    Policy,
)

NONE = -1  # no epoch, no sequence, no offset, no timestamp, no row
MAX_SEQUENCE = 2_147_483_647
LOW_31 = 0x7FFF_FFFF


class Producers(NamedTuple):
    """Columns of one partition's producers, one row each, and the hash table that finds them.

    ``slots`` is an open-addressing table of rows. ``meta`` is [rows used, two random hash factors]: they decide places
    in ``slots`` only, so results never depend on them, but crafted ids cannot make look-ups slow.
    The last three columns are rings of the newest batches, ``cached`` of them, the newest at ``newest``; of their
    timestamps only the newest batch's is ever asked for.
    Offsets of records; timestamps in ms; -1 means none.
    """

    slots: np.ndarray  # int32
    meta: np.ndarray  # int64
    producer_id: np.ndarray  # int64
    epoch: np.ndarray  # int32
    coordinator_epoch: np.ndarray  # int32
    last_timestamp: np.ndarray  # int64
    txn_first_offset: np.ndarray  # int64
    timestamp: np.ndarray  # int64, of the newest batch
    cached: np.ndarray  # int32
    newest: np.ndarray  # int32
    last_sequence: np.ndarray  # int32[rows, cache size]
    last_offset: np.ndarray  # int64[rows, cache size]
    offset_delta: np.ndarray  # int32[rows, cache size]


FIRST_COLUMN = Producers._fields.index("producer_id")


def new_producers(capacity: int = 64, cached_batches: int = 5) -> Producers:
    """An empty map with room for ``capacity`` producers, ``cached_batches`` per producer.

    A producer takes about 130 bytes, once it is there: rows not used are memory that was never written to.
    """
    size = 1 << max(4, (2 * capacity - 1).bit_length())
    random = secrets.randbits(60)
    slots = np.empty(size, np.int32)
    slots.fill(NONE)
    longs = [np.empty(capacity, np.int64) for _ in range(4)]
    ints = [np.empty(capacity, np.int32) for _ in range(4)]
    rings = [np.empty((capacity, cached_batches), t) for t in (np.int32, np.int64, np.int32)]
    return Producers(
        slots,
        np.array([0, random >> 30 | 1, random & (1 << 30) - 1 | 1], np.int64),
        longs[0],
        ints[0],
        ints[1],
        longs[1],
        longs[2],
        longs[3],
        ints[2],
        ints[3],
        *rings,
    )


def grow(p: Producers, capacity: int = 0) -> Producers:
    """The same producers in the same rows with at least twice the room; called when :func:`insert` answers -1."""
    rows = int(p.meta[0])
    bigger = new_producers(max(2 * len(p.producer_id), capacity, 16), p.last_sequence.shape[1])
    for old, new in zip(p[FIRST_COLUMN:], bigger[FIRST_COLUMN:], strict=True):
        new[:rows] = old[:rows]
    bigger.meta[0] = rows
    index_rows(bigger)
    return bigger


def keep(p: Producers, wanted: np.ndarray) -> None:
    """Forget the producers whose row is False in ``wanted`` (bool, rows used long); the others move up, in order."""
    rows = int(p.meta[0])
    kept = int(np.count_nonzero(wanted))
    for column in p[FIRST_COLUMN:]:
        column[:kept] = column[:rows][wanted]
    p.meta[0] = kept
    index_rows(p)


def clear(p: Producers) -> None:
    """Forget every producer."""
    keep(p, np.zeros(int(p.meta[0]), np.bool_))


@kernel
def find_slot(p: Producers, producer_id: int) -> int:
    """The slot that holds ``producer_id``, or the free one where it belongs."""
    mask = len(p.slots) - 1
    mixed = (producer_id & LOW_31) * p.meta[1] + ((producer_id >> 31) & LOW_31) * p.meta[2]
    slot = (((mixed ^ (mixed >> 29)) & LOW_31) * p.meta[1] >> 20) & mask
    while p.slots[slot] >= 0 and p.producer_id[p.slots[slot]] != producer_id:
        slot = (slot + 1) & mask
    return slot


@kernel
def find(p: Producers, producer_id: int) -> int:
    """Row of the producer, -1 if unknown."""
    return p.slots[find_slot(p, producer_id)]


@kernel
def index_rows(p: Producers) -> None:
    """Fill ``slots`` anew from the rows in use."""
    p.slots[:] = NONE
    for row in range(p.meta[0]):
        p.slots[find_slot(p, p.producer_id[row])] = row


@kernel
def insert(p: Producers, producer_id: int) -> int:
    """Row of the producer, an empty entry if it was unknown; -1 when there is no room (then :func:`grow`)."""
    slot = find_slot(p, producer_id)
    if p.slots[slot] >= 0:
        return p.slots[slot]
    row = p.meta[0]
    if row == len(p.producer_id):
        return NONE
    p.meta[0] = row + 1
    p.slots[slot] = row
    p.producer_id[row] = producer_id
    p.epoch[row] = NONE
    p.coordinator_epoch[row] = NONE
    p.last_timestamp[row] = NONE
    p.txn_first_offset[row] = NONE
    p.timestamp[row] = NONE
    p.cached[row] = 0
    p.newest[row] = 0
    return row


# --- sequences ---------------------------------------------------------------------------------------------------


@kernel
def add_sequence(base: int, delta: int) -> int:
    """``base`` + ``delta`` in the ring of sequences: 0 follows 2147483647 (DefaultRecordBatch.incrementSequence)."""
    if base > MAX_SEQUENCE - delta:
        return delta - (MAX_SEQUENCE - base) - 1
    return base + delta


@kernel
def subtract_sequence(last: int, delta: int) -> int:
    """``last`` - ``delta`` in the ring of sequences (DefaultRecordBatch.decrementSequence)."""
    if last < delta:
        return MAX_SEQUENCE - (delta - last) + 1
    return last - delta


@kernel
def next_sequence(last: int) -> int:
    """The only sequence that may follow ``last``; 0 after none (-1)."""
    return add_sequence(last, 1)


# --- what is known of a producer ---------------------------------------------------------------------------------


@kernel
def cached_slot(p: Producers, row: int, age: int) -> int:
    """Ring place of the cached batch of ``age``: 0 the newest, ``cached`` - 1 the oldest."""
    at = p.newest[row] - age
    return at if at >= 0 else at + p.last_sequence.shape[1]  # no division: this is asked for every batch


@kernel
def newest_sequence(p: Producers, row: int) -> int:
    """Last sequence of the newest batch known, -1 without one."""
    if row < 0 or p.cached[row] == 0:
        return NONE
    return p.last_sequence[row, p.newest[row]]


@kernel
def newest_offset(p: Producers, row: int) -> int:
    """Last offset of the newest batch known, -1 without one."""
    if row < 0 or p.cached[row] == 0:
        return NONE
    return p.last_offset[row, p.newest[row]]


@kernel
def idle_since(p: Producers, row: int, policy: Policy) -> int:
    """The timestamp (ms) that expiration counts from: the newest batch's alone where markers do not refresh."""
    if policy.marker_refreshes:
        return p.last_timestamp[row]
    if p.cached[row] == 0:
        return NONE
    return p.timestamp[row]


@kernel
def is_expired(p: Producers, row: int, policy: Policy, now: int, expiration_ms: int) -> bool:
    """Whether the producer is forgotten at ``now`` (ms): no open transaction, and idle for the limit or longer."""
    return p.txn_first_offset[row] == NONE and now - idle_since(p, row, policy) >= expiration_ms


# --- what a leader answers ---------------------------------------------------------------------------------------


@kernel
def find_duplicate(p: Producers, row: int, epoch: int, first_sequence: int, last_sequence: int) -> int:
    """Ring place of the cached batch with exactly this epoch and range, the oldest if several; -1 if none."""
    if row < 0 or p.epoch[row] != epoch:
        return NONE
    for age in range(p.cached[row] - 1, -1, -1):
        place = cached_slot(p, row, age)
        last = p.last_sequence[row, place]
        if last == last_sequence and subtract_sequence(last, p.offset_delta[row, place]) == first_sequence:
            return place
    return NONE


@kernel
def check_epoch(p: Producers, row: int, epoch: int) -> int:
    """Data and markers alike: an epoch below the stored one is fenced."""
    if row >= 0 and epoch < p.epoch[row]:
        return INVALID_PRODUCER_EPOCH
    return OK


@kernel
def check_coordinator_epoch(p: Producers, row: int, coordinator_epoch: int) -> int:
    """A marker of a coordinator that has been replaced is fenced."""
    if row >= 0 and coordinator_epoch < p.coordinator_epoch[row]:
        return TRANSACTION_COORDINATOR_FENCED
    return OK


@kernel
def check_sequence(p: Producers, row: int, policy: Policy, epoch: int, first_sequence: int) -> int:
    """Whether a client's batch may come next, it being the only one of its append."""
    stored_epoch = p.epoch[row] if row >= 0 else NONE
    last = newest_sequence(p, row) if stored_epoch == epoch else NONE
    return sequence_answer(policy, epoch, first_sequence, stored_epoch, stored_epoch, last)


@kernel
def sequence_answer(
    policy: Policy, epoch: int, first_sequence: int, stored_epoch: int, pending_epoch: int, last: int
) -> int:
    """The sequence rule (ProducerAppendInfo.checkSequence).

    ``stored_epoch`` is that before the append, ``pending_epoch`` that after the append's earlier batches; ``last`` is
    the last sequence known in ``epoch``, -1 for none. Only the first sequence is compared.
    """
    if epoch != pending_epoch:
        if first_sequence == 0:
            return OK
        if pending_epoch != NONE:
            return OUT_OF_ORDER_SEQUENCE_NUMBER
        return OK if policy.unknown_accepts_any else policy.unknown_error
    if stored_epoch == NONE and policy.unknown_accepts_any:
        return OK
    if first_sequence == next_sequence(last):
        return OK
    if last == NONE:
        return policy.unknown_error if policy.marker_only_unknown else OUT_OF_ORDER_SEQUENCE_NUMBER
    if ((last - first_sequence) & LOW_31) < policy.duplicate_window:
        return DUPLICATE_SEQUENCE_NUMBER
    return OUT_OF_ORDER_SEQUENCE_NUMBER


@kernel
def check_append(p: Producers, row: int, policy: Policy, epoch: int, first_sequence: int, last_sequence: int) -> int:
    """What a leader answers to a client's batch: OK, DUPLICATE or an error; verification apart. Nothing changes."""
    if find_duplicate(p, row, epoch, first_sequence, last_sequence) != NONE:
        return DUPLICATE
    answer = check_epoch(p, row, epoch)
    if answer != OK:
        return answer
    return check_sequence(p, row, policy, epoch, first_sequence)


# --- what an accepted batch or marker does -----------------------------------------------------------------------


@kernel
def set_epoch(p: Producers, row: int, epoch: int) -> None:
    """Another epoch, higher or lower, forgets the cached batches."""
    if p.epoch[row] != epoch:
        p.epoch[row] = epoch
        p.cached[row] = 0


@kernel
def remember_batch(
    p: Producers, row: int, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int
) -> None:
    """Cache one batch, in the place of the oldest when the ring is full."""
    width = p.last_sequence.shape[1]
    place = p.newest[row] + 1
    if place == width:
        place = 0
    p.newest[row] = place
    p.last_sequence[row, place] = last_sequence
    p.last_offset[row, place] = last_offset
    p.offset_delta[row, place] = offset_delta
    p.timestamp[row] = timestamp
    if p.cached[row] < width:
        p.cached[row] += 1


@kernel
def apply_data(
    p: Producers,
    row: int,
    epoch: int,
    last_sequence: int,
    first_offset: int,
    last_offset: int,
    max_timestamp: int,
    transactional: bool,
) -> int:
    """Take in a data batch of any origin; a transactional one opens a transaction if none is open.

    Answers INVALID_TXN_STATE for plain data inside the producer's own open transaction, which every broker refuses; the
    batch is remembered all the same, so that a replay can report it once and go on.
    """
    set_epoch(p, row, epoch)
    remember_batch(p, row, last_sequence, last_offset, last_offset - first_offset, max_timestamp)
    p.last_timestamp[row] = max_timestamp
    if p.txn_first_offset[row] == NONE:
        if transactional:
            p.txn_first_offset[row] = first_offset
    elif not transactional:
        return INVALID_TXN_STATE
    return OK


@kernel
def apply_marker(p: Producers, row: int, epoch: int, coordinator_epoch: int, timestamp: int) -> int:
    """Take in an end marker of any origin: first offset of the transaction it closed, -1 if none was open."""
    first_offset = p.txn_first_offset[row]
    set_epoch(p, row, epoch)
    p.txn_first_offset[row] = NONE
    p.coordinator_epoch[row] = coordinator_epoch
    p.last_timestamp[row] = timestamp
    return first_offset


# --- several batches in one append -------------------------------------------------------------------------------


@kernel
def begin(p: Producers, pending: Producers, producer_id: int) -> int:
    """Row of the producer in ``pending``: at first what ``p`` knows of it but its batches. -1 when there is no room."""
    row = find(pending, producer_id)
    if row >= 0:
        return row
    row, known = insert(pending, producer_id), find(p, producer_id)
    if row >= 0 and known >= 0:
        pending.epoch[row] = p.epoch[known]
        pending.coordinator_epoch[row] = p.coordinator_epoch[known]
        pending.last_timestamp[row] = p.last_timestamp[known]
        pending.txn_first_offset[row] = p.txn_first_offset[known]
    return row


@kernel
def merge(p: Producers, row: int, pending: Producers, pending_row: int) -> None:
    """Apply what an append left pending: epoch, its batches in order, and the rest (ProducerStateEntry.update)."""
    set_epoch(p, row, pending.epoch[pending_row])
    for age in range(pending.cached[pending_row] - 1, -1, -1):
        at = cached_slot(pending, pending_row, age)
        remember_batch(
            p,
            row,
            pending.last_sequence[pending_row, at],
            pending.last_offset[pending_row, at],
            pending.offset_delta[pending_row, at],
            pending.timestamp[pending_row],
        )
    p.coordinator_epoch[row] = pending.coordinator_epoch[pending_row]
    p.last_timestamp[row] = pending.last_timestamp[pending_row]
    p.txn_first_offset[row] = pending.txn_first_offset[pending_row]
