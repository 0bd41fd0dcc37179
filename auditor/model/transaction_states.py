"""Transaction states, and the value that the transaction log holds for an id.

Source: KIP-98, KIP-360, KIP-890; TransactionState.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from auditor.base.numbers import LAST_EPOCH

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_TIMESTAMP = -1
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
LOGGED = frozenset(STATES_BY_ID) - NEVER_WRITTEN
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
