"""What a broker decides by what it knows of a producer, and what a batch or a marker does to that.

The functions read as the specification (ProducerStateManager, ProducerAppendInfo, ProducerStateEntry; KIP-98, KIP-360)
and are compiled by numba; with ``NUMBA_DISABLE_JIT=1`` they run as plain Python. The producers are in a table
(:mod:`auditor.model.producers`); a ``row`` is the place of one there, -1 where the partition does not know it.
"""

from __future__ import annotations

from auditor.base.compiled import kernel
from auditor.base.numbers import LAST_EPOCH, LAST_SEQUENCE
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
from auditor.model.producers import (
    LOW_31,
    NONE,
    Producers,
    cached_slot,
    newest_sequence,
    remember_batch,
    set_epoch,
)

# --- sequences ---------------------------------------------------------------------------------------------------


@kernel
def add_sequence(base: int, delta: int) -> int:
    """``base`` + ``delta`` in the ring of sequences: 0 follows 2147483647 (DefaultRecordBatch.incrementSequence)."""
    if base > LAST_SEQUENCE - delta:
        return delta - (LAST_SEQUENCE - base) - 1
    return base + delta


@kernel
def subtract_sequence(last: int, delta: int) -> int:
    """``last`` - ``delta`` in the ring of sequences (DefaultRecordBatch.decrementSequence)."""
    if last < delta:
        return LAST_SEQUENCE - (delta - last) + 1
    return last - delta


@kernel
def next_sequence(last: int) -> int:
    """The only sequence that may follow ``last``; 0 after none (-1)."""
    return add_sequence(last, 1)


# --- when a producer is forgotten ------------------------------------------------------------------------------------


@kernel
def idle_since(p: Producers, row: int, policy: Policy) -> int:
    """The timestamp (ms) that expiration counts from: the newest batch's alone where markers do not refresh."""
    entry = p.entries[row]
    if policy.marker_refreshes:
        return entry.last_timestamp
    if entry.cached == 0:
        return NONE
    return entry.timestamp


@kernel
def is_expired(p: Producers, row: int, policy: Policy, now: int, expiration_ms: int) -> bool:
    """Whether the producer is forgotten at ``now`` (ms): no open transaction, and idle for the limit or longer."""
    return p.entries[row].txn_first_offset == NONE and now - idle_since(p, row, policy) >= expiration_ms


# --- what a leader answers ---------------------------------------------------------------------------------------


@kernel
def find_duplicate(p: Producers, row: int, epoch: int, first_sequence: int, last_sequence: int) -> int:
    """Ring place of the cached batch with exactly this epoch and range, the oldest if several; -1 if none."""
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
    """Data and markers alike: an epoch below the stored one is fenced."""
    if row >= 0 and epoch < p.entries[row].epoch:
        return INVALID_PRODUCER_EPOCH
    return OK


@kernel
def check_coordinator_epoch(p: Producers, row: int, coordinator_epoch: int) -> int:
    """A marker of a coordinator that has been replaced is fenced."""
    if row >= 0 and coordinator_epoch < p.entries[row].coordinator_epoch:
        return TRANSACTION_COORDINATOR_FENCED
    return OK


@kernel
def check_sequence(p: Producers, row: int, policy: Policy, epoch: int, first_sequence: int) -> int:
    """Whether a client's batch may come next, it being the only one of its append."""
    stored_epoch = p.entries[row].epoch if row >= 0 else NONE
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
def goes_on(p: Producers, row: int, epoch: int, first_sequence: int, last_sequence: int) -> bool:
    """Whether a batch begins where the newest one ended, and none that is remembered can be the same.

    Every policy accepts its sequences; nearly all batches of a log are such, and this asks for little.
    """
    entry = p.entries[row]
    if entry.epoch != epoch or entry.cached == 0 or not entry.ascending:
        return False
    return 0 < first_sequence <= last_sequence and first_sequence == p.rings[entry.newest, row].last_sequence + 1


@kernel
def check_transaction(p: Producers, row: int, transactional: bool) -> int:
    """Plain data inside the producer's own open transaction, which every broker refuses."""
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
    """What a leader answers to a client's batch: OK, DUPLICATE or an error. Nothing changes.

    ``last_sequence`` -1: the batch has no sequences, or they mean nothing. Verification with the coordinator apart, of
    which a log shows nothing but that a client of version 2 begins at 0 (``strict_first_sequence``).
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
    """What a leader answers to an end marker. Nothing changes.

    ``transaction_version`` is that of the request (WriteTxnMarkers 2, since 4.2; KIP-1228), 0 where it says none and in
    all that is read from a log, which does not keep it: version 2 raises the epoch with every decision, so that a
    marker of the stored epoch is late, unless it is sent once more and closes nothing, or no epoch is left.
    """
    answer = check_epoch(p, row, epoch)
    same_epoch = row >= 0 and epoch == p.entries[row].epoch and epoch != LAST_EPOCH
    if transaction_version >= 2 and same_epoch and p.entries[row].txn_first_offset != NONE:
        answer = INVALID_PRODUCER_EPOCH
    return answer if answer != OK else check_coordinator_epoch(p, row, coordinator_epoch)


# --- what an accepted batch or marker does -----------------------------------------------------------------------


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
    entry = p.entries[row]
    set_epoch(p, row, epoch)
    remember_batch(p, row, last_sequence, last_offset, last_offset - first_offset, max_timestamp)
    entry.last_timestamp = max_timestamp
    if transactional and entry.txn_first_offset == NONE:
        entry.txn_first_offset = first_offset
    return check_transaction(p, row, transactional)


@kernel
def apply_marker(p: Producers, row: int, epoch: int, coordinator_epoch: int, timestamp: int) -> int:
    """Take in an end marker of any origin: first offset of the transaction it closed, -1 if none was open."""
    entry = p.entries[row]
    first_offset = entry.txn_first_offset
    set_epoch(p, row, epoch)
    entry.txn_first_offset = NONE
    entry.coordinator_epoch = coordinator_epoch
    entry.last_timestamp = timestamp
    return first_offset
