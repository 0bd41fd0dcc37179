"""Producer state of a partition, and the effect of batches and markers on it."""

from __future__ import annotations

import secrets
from typing import NamedTuple

import numpy as np

from auditor.base.compiled import kernel
from auditor.base.errors import LAST_EPOCH, LAST_SEQUENCE
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

# Table of one partition's producers.
#
# An entry is what a broker keeps of one producer (ProducerStateEntry, KIP-98). Compiled by numba; with
# ``NUMBA_DISABLE_JIT=1`` all runs as plain Python. A ``row`` is the place of a producer in the columns, -1 for an
# unknown one. Rows stay valid until :func:`keep` or :func:`clear`.


NONE = -1  # no epoch, no sequence, no offset, no timestamp, no row
LOW_31 = 0x7FFF_FFFF


# What is known of a producer. ``timestamp`` is its newest batch's; ``cached`` of its batches are in its ring, the
# newest at ``newest``; ``ascending``: 1 where that one has the largest last sequence of them. np.record, so that fields
# are attributes in plain Python too.
ENTRY = np.dtype(
    (
        np.record,
        np.dtype(
            [
                ("producer_id", "i8"),
                ("last_timestamp", "i8"),
                ("txn_first_offset", "i8"),
                ("timestamp", "i8"),
                ("coordinator_epoch", "i4"),
                ("epoch", "i2"),
                ("cached", "i1"),
                ("newest", "i1"),
                ("ascending", "i1"),
            ],
            align=True,
        ),
    )
)
NEW_ENTRY = np.array([(NONE, NONE, NONE, NONE, NONE, NONE, 0, 0, 1)], ENTRY)
CACHED = np.dtype((np.record, [("last_offset", "i8"), ("last_sequence", "i4"), ("offset_delta", "i4")]))


class Producers(NamedTuple):
    """One partition's producers, and the hash table that finds them.

    The fields of one producer are adjacent: with many producers, most of a batch's time is waiting for memory. Its
    cached batches are apart: one at a time is written, and a producer of few batches takes no memory for more.
    ``slots`` is an open-addressing table of rows. ``meta`` is [rows used, two random hash factors]: these decide places
    in ``slots`` only, so results never depend on them, but crafted ids cannot make look-ups slow. Offsets of records;
    timestamps in ms; -1 means none. Outside of kernels, each field is available as a column.
    """

    slots: np.ndarray  # int32
    meta: np.ndarray  # int64
    entries: np.ndarray  # ENTRY, by row
    rings: np.ndarray  # CACHED[cache size, rows], the newest batches of each

    @property
    def producer_id(self) -> np.ndarray:
        """int64."""
        return self.entries["producer_id"]

    @property
    def epoch(self) -> np.ndarray:
        """int16."""
        return self.entries["epoch"]

    @property
    def coordinator_epoch(self) -> np.ndarray:
        """int32."""
        return self.entries["coordinator_epoch"]

    @property
    def last_timestamp(self) -> np.ndarray:
        """int64."""
        return self.entries["last_timestamp"]

    @property
    def txn_first_offset(self) -> np.ndarray:
        """int64."""
        return self.entries["txn_first_offset"]

    @property
    def timestamp(self) -> np.ndarray:
        """int64, of the newest batch."""
        return self.entries["timestamp"]

    @property
    def cached(self) -> np.ndarray:
        """int8, batches in the ring."""
        return self.entries["cached"]

    @property
    def newest(self) -> np.ndarray:
        """int8, the newest one's place there."""
        return self.entries["newest"]

    @property
    def last_sequence(self) -> np.ndarray:
        """int32[rows, cache size]."""
        return self.rings["last_sequence"].T

    @property
    def last_offset(self) -> np.ndarray:
        """int64[rows, cache size]."""
        return self.rings["last_offset"].T

    @property
    def offset_delta(self) -> np.ndarray:
        """int32[rows, cache size]."""
        return self.rings["offset_delta"].T


def new_producers(capacity: int = 64, cached_batches: int = 5) -> Producers:
    """Return an empty table with room for ``capacity`` producers, ``cached_batches`` per producer.

    A used row takes about 60 bytes, and 16 per batch; unused memory is never written to.
    """
    size = 1 << max(4, (2 * capacity - 1).bit_length())
    random = secrets.randbits(60)
    slots = np.empty(size, np.int32)
    slots.fill(NONE)
    return Producers(
        slots,
        np.array([0, random >> 30 | 1, random & (1 << 30) - 1 | 1], np.int64),
        np.empty(capacity, ENTRY),
        np.empty((cached_batches, capacity), CACHED),
    )


def grow(p: Producers, capacity: int = 0) -> Producers:
    """Return the same producers in the same rows with at least twice the room, for when :func:`insert` answers -1."""
    rows = int(p.meta[0])
    bigger = new_producers(max(2 * len(p.entries), capacity, 16), len(p.rings))
    bigger.entries[:rows] = p.entries[:rows]
    bigger.rings[:, :rows] = p.rings[:, :rows]
    bigger.meta[0] = rows
    index_rows(bigger)
    return bigger


def used(p: Producers) -> Producers:
    """Return the same rows without spare room and hash slots: to be stored, and given to :func:`grow`."""
    rows = int(p.meta[0])
    return p._replace(slots=p.slots[:0], entries=p.entries[:rows], rings=p.rings[:, :rows])


def keep(p: Producers, wanted: np.ndarray) -> None:
    """Forget the producers whose row is False in ``wanted`` (bool, one per used row); others move up in order."""
    rows = int(p.meta[0])
    count = int(np.count_nonzero(wanted))
    for table in (p.entries, *p.rings):
        table[:count] = table[:rows][wanted]
    p.meta[0] = count
    index_rows(p)


def clear(p: Producers) -> None:
    """Forget every producer."""
    p.meta[0] = 0
    p.slots.fill(NONE)


@kernel
def find_slot(p: Producers, producer_id: int) -> int:
    """Return the slot that has ``producer_id``, or the free one where it belongs.

    Brokers allocate ids in sequence. Sixteen such are in 64 bytes, one cache line of the processor; on a collision all
    of them go on to the next line, each past one slot.
    """
    mask, sixteen = len(p.slots) - 1, producer_id >> 4
    mixed = (sixteen & LOW_31) * p.meta[1] + ((sixteen >> 31) & LOW_31) * p.meta[2]
    slot = ((((mixed ^ (mixed >> 29)) & LOW_31) * p.meta[1] >> 20) ^ (producer_id & 15)) & mask
    while p.slots[slot] >= 0 and p.entries[p.slots[slot]].producer_id != producer_id:
        slot = (slot + 17) & mask  # odd, so that it comes to every slot
    return slot


@kernel
def find(p: Producers, producer_id: int) -> int:
    """Return the row of the producer, -1 if unknown."""
    return p.slots[find_slot(p, producer_id)]


@kernel
def find_many(p: Producers, batches: np.ndarray, rows: np.ndarray) -> None:
    """Fill ``rows`` with those of the producers of batches; -1 where unknown.

    No look-up waits for the one before: the processor fetches what several of them need from memory at once.
    """
    for k in range(len(batches)):
        rows[k] = find(p, batches[k].producer_id)


@kernel
def index_rows(p: Producers) -> None:
    """Rebuild ``slots`` from the rows in use."""
    p.slots[:] = NONE
    for row in range(p.meta[0]):
        p.slots[find_slot(p, p.entries[row].producer_id)] = row


@kernel
def insert(p: Producers, producer_id: int) -> int:
    """Return the row of the producer, an empty entry if it was unknown; -1 without room (then :func:`grow`)."""
    slot = find_slot(p, producer_id)
    if p.slots[slot] >= 0:
        return p.slots[slot]
    row = p.meta[0]
    if row == len(p.entries):
        return NONE
    p.meta[0] = row + 1
    p.slots[slot] = row
    p.entries[row] = NEW_ENTRY[0]
    p.entries[row].producer_id = producer_id
    return row


# Entries.


@kernel
def cached_slot(p: Producers, row: int, age: int) -> int:
    """Return the ring place of the cached batch of ``age``: 0 the newest, ``cached`` - 1 the oldest."""
    place = p.entries[row].newest - age
    return place if place >= 0 else place + len(p.rings)  # no division: this is asked for every batch


@kernel
def newest_sequence(p: Producers, row: int) -> int:
    """Return the last sequence of the newest known batch, -1 without one."""
    if row < 0 or p.entries[row].cached == 0:
        return NONE
    return p.rings[p.entries[row].newest, row].last_sequence


@kernel
def newest_offset(p: Producers, row: int) -> int:
    """Return the last offset of the newest known batch, -1 without one."""
    if row < 0 or p.entries[row].cached == 0:
        return NONE
    return p.rings[p.entries[row].newest, row].last_offset


@kernel
def set_epoch(p: Producers, row: int, epoch: int) -> None:
    """Set the epoch; a different one, higher or lower, drops the cached batches."""
    entry = p.entries[row]
    if entry.epoch != epoch:
        entry.epoch = epoch
        entry.cached = 0


@kernel
def remember_batch(
    p: Producers, row: int, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int
) -> None:
    """Cache one batch, in place of the oldest when the ring is full."""
    entry, width = p.entries[row], len(p.rings)
    if entry.cached == 0:
        entry.ascending = 1
    elif last_sequence <= p.rings[entry.newest, row].last_sequence:
        entry.ascending = 0  # until another epoch: to know when the last such batch has left would cost every batch
    place = entry.newest + 1
    if place == width:
        place = 0
    entry.newest = place
    newest = p.rings[place, row]
    newest.last_sequence = last_sequence
    newest.last_offset = last_offset
    newest.offset_delta = offset_delta
    entry.timestamp = timestamp
    if entry.cached < width:
        entry.cached += 1


# Decisions of a broker by its producer state, and the effect of batches and markers on that state.
#
# The functions read as the specification (ProducerStateManager, ProducerAppendInfo, ProducerStateEntry; KIP-98,
# KIP-360).


# Sequence arithmetic.


@kernel
def add_sequence(base: int, delta: int) -> int:
    """Return ``base`` + ``delta`` modulo 2^31: 0 follows 2147483647 (DefaultRecordBatch.incrementSequence)."""
    if base > LAST_SEQUENCE - delta:
        return delta - (LAST_SEQUENCE - base) - 1
    return base + delta


@kernel
def subtract_sequence(last: int, delta: int) -> int:
    """Return ``last`` - ``delta`` modulo 2^31 (DefaultRecordBatch.decrementSequence)."""
    if last < delta:
        return LAST_SEQUENCE - (delta - last) + 1
    return last - delta


@kernel
def next_sequence(last: int) -> int:
    """Return the only sequence that may follow ``last``; 0 after none (-1)."""
    return add_sequence(last, 1)


# Expiration.


@kernel
def idle_since(p: Producers, row: int, policy: Policy) -> int:
    """Return the timestamp (ms) that expiration counts from: the newest batch's where markers do not refresh."""
    entry = p.entries[row]
    if policy.marker_refreshes:
        return entry.last_timestamp
    if entry.cached == 0:
        return NONE
    return entry.timestamp


@kernel
def is_expired(p: Producers, row: int, policy: Policy, now: int, expiration_ms: int) -> bool:
    """Whether the producer id is expired at ``now`` (ms): no open transaction, and idle for the limit or longer."""
    return p.entries[row].txn_first_offset == NONE and now - idle_since(p, row, policy) >= expiration_ms


# Answers of a leader.


@kernel
def find_duplicate(p: Producers, row: int, epoch: int, first_sequence: int, last_sequence: int) -> int:
    """Return the ring place of the cached batch with this epoch and range, the oldest of several; -1 if none."""
    if row < 0 or p.entries[row].epoch != epoch:
        return NONE
    for age in range(p.entries[row].cached - 1, -1, -1):
        place = cached_slot(p, row, age)
        batch = p.rings[place, row]
        last = batch.last_sequence
        if last == last_sequence and subtract_sequence(last, batch.offset_delta) == first_sequence:
            return place
    return NONE


@kernel
def check_epoch(p: Producers, row: int, epoch: int) -> int:
    """Answer INVALID_PRODUCER_EPOCH to data or a marker with an epoch below the stored one."""
    if row >= 0 and epoch < p.entries[row].epoch:
        return INVALID_PRODUCER_EPOCH
    return OK


@kernel
def check_coordinator_epoch(p: Producers, row: int, coordinator_epoch: int) -> int:
    """Answer TRANSACTION_COORDINATOR_FENCED to a marker of a replaced coordinator."""
    if row >= 0 and coordinator_epoch < p.entries[row].coordinator_epoch:
        return TRANSACTION_COORDINATOR_FENCED
    return OK


@kernel
def check_sequence(p: Producers, row: int, policy: Policy, epoch: int, first_sequence: int) -> int:
    """Answer whether a client's batch may come next, as the only one of its append."""
    stored_epoch = p.entries[row].epoch if row >= 0 else NONE
    last = newest_sequence(p, row) if stored_epoch == epoch else NONE
    return sequence_answer(policy, epoch, first_sequence, stored_epoch, stored_epoch, last)


@kernel
def sequence_answer(
    policy: Policy, epoch: int, first_sequence: int, stored_epoch: int, pending_epoch: int, last: int
) -> int:
    """Apply the sequence rule (ProducerAppendInfo.checkSequence).

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
def goes_on(p: Producers, row: int, epoch: int, first_sequence: int, last_sequence: int) -> bool:
    """Whether a batch begins where the newest one ended, and no cached one can be the same.

    Every policy accepts its sequences; this cheap check covers nearly all batches of a log.
    """
    entry = p.entries[row]
    if entry.epoch != epoch or entry.cached == 0 or not entry.ascending:
        return False
    return 0 < first_sequence <= last_sequence and first_sequence == p.rings[entry.newest, row].last_sequence + 1


@kernel
def check_transaction(p: Producers, row: int, transactional: bool) -> int:
    """Answer INVALID_TXN_STATE to plain data inside the producer's own open transaction, as every broker does."""
    if not transactional and row >= 0 and p.entries[row].txn_first_offset != NONE:
        return INVALID_TXN_STATE
    return OK


@kernel
def check_append(
    p: Producers,
    row: int,
    policy: Policy,
    epoch: int,
    first_sequence: int,
    last_sequence: int,
    transactional: bool,
) -> int:
    """Return a leader's answer to a client's batch: OK, DUPLICATE or an error. Nothing changes.

    ``last_sequence`` -1: the batch has no sequences, or they mean nothing. Verification with the coordinator is not
    modelled, of which a log shows nothing but that a client of version 2 begins at 0 (``strict_first_sequence``).
    """
    if row >= 0 and goes_on(p, row, epoch, first_sequence, last_sequence):
        return check_transaction(p, row, transactional)
    if last_sequence != NONE and find_duplicate(p, row, epoch, first_sequence, last_sequence) != NONE:
        return DUPLICATE
    answer = check_epoch(p, row, epoch)
    if answer == OK and last_sequence != NONE:
        answer = check_sequence(p, row, policy, epoch, first_sequence)
        nothing_known = row < 0 or p.entries[row].cached == 0 or p.entries[row].epoch != epoch
        if answer == OK and policy.strict_first_sequence and transactional and nothing_known and first_sequence != 0:
            answer = OUT_OF_ORDER_SEQUENCE_NUMBER
    return answer if answer != OK else check_transaction(p, row, transactional)


@kernel
def check_marker(p: Producers, row: int, epoch: int, coordinator_epoch: int, transaction_version: int) -> int:
    """Return a leader's answer to an end marker. Nothing changes.

    ``transaction_version`` is that of the request (WriteTxnMarkers 2, since 4.2; KIP-1228), 0 where it has none and for
    all that is read from a log, which does not store it: version 2 bumps the epoch with every decision, so that a
    marker of the stored epoch is late, unless it is sent once more and closes nothing, or no epoch is left.
    """
    answer = check_epoch(p, row, epoch)
    same_epoch = row >= 0 and epoch == p.entries[row].epoch and epoch != LAST_EPOCH
    if transaction_version >= 2 and same_epoch and p.entries[row].txn_first_offset != NONE:
        answer = INVALID_PRODUCER_EPOCH
    return answer if answer != OK else check_coordinator_epoch(p, row, coordinator_epoch)


# Effect of accepted batches and markers.


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
    """Apply a data batch of any origin; a transactional one opens a transaction if none is open.

    Answers INVALID_TXN_STATE for plain data inside the producer's own open transaction, which every broker refuses; the
    batch is cached all the same, so that a replay can report it once and go on.
    """
    entry = p.entries[row]
    set_epoch(p, row, epoch)
    remember_batch(p, row, last_sequence, last_offset, last_offset - first_offset, max_timestamp)
    entry.last_timestamp = max_timestamp
    if transactional and entry.txn_first_offset == NONE:
        entry.txn_first_offset = first_offset
    return check_transaction(p, row, transactional)


@kernel
def apply_marker(p: Producers, row: int, epoch: int, coordinator_epoch: int, timestamp: int) -> int:
    """Apply an end marker of any origin; return the first offset of the transaction it closed, -1 if none was open."""
    entry = p.entries[row]
    first_offset = entry.txn_first_offset
    set_epoch(p, row, epoch)
    entry.txn_first_offset = NONE
    entry.coordinator_epoch = coordinator_epoch
    entry.last_timestamp = timestamp
    return first_offset
