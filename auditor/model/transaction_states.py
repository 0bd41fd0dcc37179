"""Transaction states, the value that the transaction log holds for an id, and which value may follow which.

Source: KIP-98, KIP-360, KIP-890; TransactionState, TransactionMetadata.completeTransitionTo.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from auditor.model.refusal import ILLEGAL_STATE, Refused

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_TIMESTAMP = -1
LAST_EPOCH = 32767  # reserved: fences an exhausted producer, or ends its last transaction
EXHAUSTED_EPOCH = LAST_EPOCH - 1  # the last one that a client is given


class TransactionState(StrEnum):
    """State of a transactional id, under the names that brokers print."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


_S = TransactionState
STATES_BY_ID = tuple(_S)  # the position is the byte of the log record
IDLE = frozenset((_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT))
PREPARED = frozenset((_S.PREPARE_COMMIT, _S.PREPARE_ABORT))
COMPLETED = frozenset((_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT))
NEVER_WRITTEN = frozenset((_S.DEAD, _S.PREPARE_EPOCH_FENCE))
COMPLETION_OF = {_S.PREPARE_COMMIT: _S.COMPLETE_COMMIT, _S.PREPARE_ABORT: _S.COMPLETE_ABORT}

_LEGAL_PREVIOUS = {
    _S.EMPTY: IDLE,
    _S.ONGOING: IDLE | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset((_S.ONGOING,)),
    _S.PREPARE_ABORT: frozenset((_S.ONGOING, _S.PREPARE_EPOCH_FENCE)),
    _S.COMPLETE_COMMIT: frozenset((_S.PREPARE_COMMIT,)),
    _S.COMPLETE_ABORT: frozenset((_S.PREPARE_ABORT,)),
    _S.DEAD: IDLE,
    _S.PREPARE_EPOCH_FENCE: frozenset((_S.ONGOING,)),
}


class TransactionValue(NamedTuple):
    """What a transition gives an id, and the transaction log keeps of it.

    Times are epoch milliseconds, `timeout_ms` milliseconds, -1 stands for none. `partitions` holds `topic-N` names.
    `last_producer_epoch`, `previous_producer_id` and `next_producer_id` live in the coordinator's memory; brokers do
    not write them. `client_tv` is the client's transaction.version, 0 where a record has none.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int = 30000
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[str] = frozenset()
    start_ts: int = NO_TIMESTAMP
    last_update_ts: int = 0
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    client_tv: int = 0


def bumps_epoch(transaction_version: int) -> bool:
    """Whether every end of a transaction raises the producer epoch at this transaction.version (KIP-890 part 2)."""
    return transaction_version >= 2


def state_by_id(state_id: int) -> TransactionState:
    """State of the byte in a log record; Refused(ILLEGAL_STATE) for a byte that names none."""
    if not 0 <= state_id < len(STATES_BY_ID):
        raise Refused(ILLEGAL_STATE)
    return STATES_BY_ID[state_id]


def legal_previous(state: TransactionState, client_tv: int = 0) -> frozenset[TransactionState]:
    """States from which `state` may be entered.

    `client_tv`: transaction.version of the record. From 4.0 on a client of version 2 may abort a transaction that it
    never began, so PrepareAbort also follows the idle states there; pass 0 for brokers before 4.0.
    """
    if state == TransactionState.PREPARE_ABORT and bumps_epoch(client_tv):
        return _LEGAL_PREVIOUS[state] | IDLE
    return _LEGAL_PREVIOUS[state]


def value_problem(value: TransactionValue) -> list[str]:
    """What is wrong with a log record by itself, as codes; empty for a sound one.

    Codes: `state_never_written`, `producer_id_negative`, `epoch_negative`, `partitions_not_empty` (Empty, Complete*),
    `start_present` (Empty), `start_missing` (every other state).
    """
    empty = value.state == TransactionState.EMPTY
    checks = {
        "state_never_written": value.state in NEVER_WRITTEN,
        "producer_id_negative": value.producer_id < 0,
        "epoch_negative": value.producer_epoch < 0,
        "partitions_not_empty": value.state in IDLE and bool(value.partitions),
        "start_present": empty and value.start_ts != NO_TIMESTAMP,
        "start_missing": not empty and value.state not in NEVER_WRITTEN and value.start_ts == NO_TIMESTAMP,
    }
    return [code for code, broken in checks.items() if broken]


def transition_problem(old: TransactionValue | None, new: TransactionValue | None) -> list[str]:
    """What forbids that `new` follows `old` for one transactional id, as codes; empty when it may.

    `old` None: nothing is known before `new`, so nothing is judged. `new` None: a tombstone. A record repeated with
    another update time only is legal: a write that timed out may still be in the log. Update times may go backwards.
    Codes: `illegal_state`, `producer_id_changed`, `epoch_not_reset` (new producer id, epoch not 0), `epoch_regressed`,
    `epoch_jumped`, `timeout_changed`, `partitions_shrunk`, `partitions_differ`, `start_changed`, `start_not_update`.
    Source: TransactionMetadata.completeTransitionTo; fencing aborts raise the epoch by 1, or by 2 at
    transaction.version 2 before 4.0.
    """
    if old is None:
        return []
    if new is None:
        return [] if old.state in legal_previous(TransactionState.DEAD) else ["illegal_state"]
    if new._replace(last_update_ts=old.last_update_ts) == old:
        return []
    if old.state not in legal_previous(new.state, new.client_tv):
        return ["illegal_state"]
    return _identity_problems(old, new) + _content_problems(old, new)


def _identity_problems(old: TransactionValue, new: TransactionValue) -> list[str]:
    if new.producer_id != old.producer_id:
        rotated = new.state == TransactionState.EMPTY or (
            new.state in COMPLETED and bumps_epoch(new.client_tv) and old.producer_epoch == LAST_EPOCH
        )
        if not rotated:
            return ["producer_id_changed"]
        return [] if new.producer_epoch == 0 else ["epoch_not_reset"]
    rise = new.producer_epoch - old.producer_epoch
    if rise < 0:
        return ["epoch_regressed"]
    return [] if rise in _legal_rises(new) else ["epoch_jumped"]


def _legal_rises(new: TransactionValue) -> tuple[int, ...]:
    """How far the epoch may rise in the step that leads to `new`."""
    if new.state == TransactionState.EMPTY:
        return (0, 1)
    if new.state == TransactionState.PREPARE_ABORT:
        if not bumps_epoch(new.client_tv):
            return (0, 1)
        return (0, 1, 2) if new.producer_epoch == LAST_EPOCH else (1, 2)  # no epoch lies above the last
    if new.state == TransactionState.PREPARE_COMMIT:
        return (1,) if bumps_epoch(new.client_tv) else (0,)
    return (0,)


def _content_problems(old: TransactionValue, new: TransactionValue) -> list[str]:
    inside = old.state not in IDLE  # a transaction was open or being ended
    checks = {
        "timeout_changed": new.state != TransactionState.EMPTY and new.timeout_ms != old.timeout_ms,
        "partitions_shrunk": new.state == TransactionState.ONGOING and not old.partitions <= new.partitions,
        "partitions_differ": new.state in PREPARED and new.partitions != old.partitions,
        "start_changed": inside and new.start_ts != old.start_ts,
        "start_not_update": not inside and new.state == TransactionState.ONGOING and new.start_ts != new.last_update_ts,
    }
    return [code for code, broken in checks.items() if broken]
