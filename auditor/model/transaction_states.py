"""Transaction states, and the account of one transactional id."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from auditor.base.errors import LAST_EPOCH

# Transaction states, and the value that the transaction log holds for an id.
#
# Source: KIP-98, KIP-360, KIP-890; TransactionState.


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
    """What a transition gives a transactional id, and the transaction log stores.

    Times are epoch milliseconds, `timeout_ms` milliseconds, -1 stands for none. `partitions` has `topic-N` names.
    `last_producer_epoch`, `previous_producer_id` and `next_producer_id` are in the coordinator's memory only; brokers
    do not write them. `client_tv` is the client's transaction.version, 0 where a record has none.
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
    """Whether every end of a transaction bumps the producer epoch at this transaction.version (KIP-890 part 2)."""
    return transaction_version >= 2


def legal_previous(state: TransactionState, client_tv: int = 0) -> frozenset[TransactionState]:
    """Return the states from which `state` may be entered.

    `client_tv`: transaction.version of the record. Since 4.0 a client of version 2 may abort a transaction that it
    never began, so PrepareAbort also follows the idle states there; pass 0 for brokers before 4.0.
    """
    if state == TransactionState.PREPARE_ABORT and bumps_epoch(client_tv):
        return _LEGAL_PREVIOUS[state] | IDLE
    return _LEGAL_PREVIOUS[state]


def value_problem(value: TransactionValue) -> list[str]:
    """Return codes of what is wrong with a log record by itself; empty for a valid one.

    Codes: `state_never_written`, `producer_id_negative`, `epoch_negative`, `partitions_not_empty` (Empty, Complete*),
    `start_missing` (every state but Empty).
    """
    empty = value.state == TransactionState.EMPTY
    checks = {
        "state_never_written": value.state in NEVER_WRITTEN,
        "producer_id_negative": value.producer_id < 0,
        "epoch_negative": value.producer_epoch < 0,
        "partitions_not_empty": value.state in IDLE and bool(value.partitions),
        "start_missing": not empty and value.state not in NEVER_WRITTEN and value.start_ts == NO_TIMESTAMP,
    }
    return [code for code, broken in checks.items() if broken]


# States that the coordinator of one transactional id can have in memory, and which record may follow.
#
# An append can fail after it was written: too few replicas were in sync by then, or none answered in time. Its record
# stays in the log, and the coordinator goes on from what it had in memory, or, if that is a completion, writes it
# once more. So a record is judged from every state that the coordinator can have had, including those before records
# that may have failed. A coordinator that has loaded the log, under another coordinator epoch, has the last record.
#
# Source: TransactionMetadata.completeTransitionTo, TransactionStateManager.appendTransactionToLog,
# TransactionMarkerChannelManager.tryAppendToLog, TransactionCoordinator.endTransaction; KIP-98, KIP-360, KIP-890.


MOST_STATES = 16  # that are followed at once: more appends that failed one after the other were never seen
_DECISION_OF = {completion: decision for decision, completion in COMPLETION_OF.items()}


class CachedTransaction(NamedTuple):
    """A transactional id in a coordinator's memory.

    `value` None: the coordinator has no such id. `has_failed_epoch_fence`: it has bumped the epoch to fence a producer
    and could not write that, so that no client got this epoch and the next fence reuses it.
    """

    value: TransactionValue | None
    has_failed_epoch_fence: bool = False


class Judgement(NamedTuple):
    """Verdict on a record.

    ``problems``: codes of :func:`step_problem` if it follows no state that its coordinator can have had; ``failed``:
    otherwise the number of records right before it that must have failed.
    """

    problems: list[str]
    failed: int = 0


def step_problem(cached: CachedTransaction, new: TransactionValue | None) -> list[str]:
    """Return codes of what forbids a coordinator with `cached` to write `new` (None: a tombstone); empty if it may.

    Update times may go backwards. Codes: `illegal_state`, `producer_id_changed`, `epoch_not_reset` (new producer id or
    new id, epoch not 0), `epoch_regressed`, `epoch_jumped`, `timeout_changed`, `partitions_shrunk`,
    `partitions_differ`, `start_changed`, `start_not_update`, `start_present` (Empty with a start other than that of
    the transaction before, which coordinators keep in memory). Source: TransactionMetadata.completeTransitionTo;
    fencing aborts bump the epoch by 1, or by 2 at transaction.version 2 before 4.0.
    """
    old = cached.value
    if old is None:
        return [] if new is None else _first_problem(new)
    if new is None:
        return [] if old.state in legal_previous(TransactionState.DEAD) else ["illegal_state"]
    untold = cached.has_failed_epoch_fence and new.state != TransactionState.PREPARE_ABORT
    if untold or old.state not in legal_previous(new.state, new.client_tv):
        return ["illegal_state"]
    return _identity_problems(cached, old, new) + _content_problems(old, new)


def _first_problem(new: TransactionValue) -> list[str]:
    if new.state != TransactionState.EMPTY:
        return ["illegal_state"]
    if new.producer_epoch != 0:
        return ["epoch_not_reset"]
    return [] if new.start_ts == NO_TIMESTAMP else ["start_present"]


def _identity_problems(cached: CachedTransaction, old: TransactionValue, new: TransactionValue) -> list[str]:
    if new.producer_id != old.producer_id:
        # A coordinator rotates an id only where its epochs are used up (TransactionCoordinator).
        by_init = new.state == TransactionState.EMPTY and old.producer_epoch >= EXHAUSTED_EPOCH
        by_end = new.state in COMPLETED and bumps_epoch(new.client_tv) and old.producer_epoch == LAST_EPOCH
        if not (by_init or by_end):
            return ["producer_id_changed"]
        return [] if new.producer_epoch == 0 else ["epoch_not_reset"]
    rise = new.producer_epoch - old.producer_epoch
    if rise < 0:
        return ["epoch_regressed"]
    return [] if rise in _legal_rises(cached, new) else ["epoch_jumped"]


def _legal_rises(cached: CachedTransaction, new: TransactionValue) -> range:
    """How far the epoch may rise in the step to `new`."""
    if new.state == TransactionState.EMPTY:
        return range(2)
    fence = 0 if cached.has_failed_epoch_fence else 1
    end = int(bumps_epoch(new.client_tv))
    if new.state == TransactionState.PREPARE_ABORT:
        at_the_last = new.producer_epoch == LAST_EPOCH  # the highest epoch
        return range(0 if at_the_last else end, end + fence + 1)
    return range(end, end + 1) if new.state == TransactionState.PREPARE_COMMIT else range(1)


def _content_problems(old: TransactionValue, new: TransactionValue) -> list[str]:
    inside = old.state not in IDLE  # a transaction was open or being ended
    empty = new.state == TransactionState.EMPTY
    checks = {
        "timeout_changed": not empty and new.timeout_ms != old.timeout_ms,
        "partitions_shrunk": new.state == TransactionState.ONGOING and not old.partitions <= new.partitions,
        "partitions_differ": new.state in PREPARED and new.partitions != old.partitions,
        "start_changed": inside and new.start_ts != old.start_ts,
        "start_not_update": not inside and new.state == TransactionState.ONGOING and new.start_ts != new.last_update_ts,
        "start_present": empty and new.start_ts not in (NO_TIMESTAMP, old.start_ts),
    }
    return [code for code, broken in checks.items() if broken]


def fenced(value: TransactionValue, epoch: int) -> TransactionValue:
    """Return an open transaction once its coordinator has bumped the epoch to fence the producer, without a record."""
    return value._replace(producer_epoch=epoch, last_producer_epoch=NO_PRODUCER_EPOCH)


def after_failure(cached: CachedTransaction, new: TransactionValue | None) -> tuple[CachedTransaction, ...]:
    """Return what a coordinator may have in memory after it wrote a record whose append failed all the same.

    A fence was taken in memory before; the transactional id of a first record keeps its producer id. An abort that
    leads to the last epoch at transaction.version 2 may come from a fence or from a client.
    """
    old = cached.value
    if old is None:
        return (cached if new is None else CachedTransaction(new._replace(producer_epoch=NO_PRODUCER_EPOCH)),)
    if new is None or new.state != TransactionState.PREPARE_ABORT:
        return (cached,)
    rise = new.producer_epoch - old.producer_epoch
    raised = CachedTransaction(fenced(old, old.producer_epoch + 1), has_failed_epoch_fence=True)
    if bumps_epoch(new.client_tv) and new.producer_epoch == LAST_EPOCH and old.producer_epoch == EXHAUSTED_EPOCH:
        return (cached, raised)
    return (raised,) if rise == 1 + bumps_epoch(new.client_tv) else (cached,)


def _answers_again(old: TransactionValue | None, new: TransactionValue | None) -> bool:
    """Whether an Empty record repeats the answer to an InitProducerId that had bumped the epoch before (KIP-360).

    Its producer has not gone on since then, so a failed append behind that record would be another client's.
    """
    if old is None or new is None or new.state != TransactionState.EMPTY:
        return False
    return (new.producer_id, new.producer_epoch) == (old.producer_id, old.producer_epoch)


def held_before(new: TransactionValue) -> CachedTransaction:
    """Return the least that a coordinator must have had to write `new`, as far as the record shows."""
    old, epoch = new._replace(client_tv=0), new.producer_epoch
    if new.state in COMPLETED:
        return CachedTransaction(old._replace(state=_DECISION_OF[new.state], client_tv=new.client_tv))
    if new.state in PREPARED:
        return CachedTransaction(
            old._replace(state=TransactionState.ONGOING, producer_epoch=epoch - bumps_epoch(new.client_tv))
        )
    idle = old._replace(state=TransactionState.EMPTY, partitions=frozenset(), start_ts=NO_TIMESTAMP)
    return CachedTransaction(idle._replace(producer_epoch=epoch - 1) if new.state == TransactionState.EMPTY else idle)


class IdAccount:
    """States that the coordinators of one id can have in memory after each of its records.

    `first`: the first record, under its coordinator epoch (the partition leader epoch of its batch). `known`: whether
    earlier records cannot matter, as after a completed transaction; otherwise the first one may have failed too.
    """

    def __init__(self, first: TransactionValue | None, coordinator_epoch: int, *, known: bool) -> None:
        self._last = CachedTransaction(first)
        self._epoch = coordinator_epoch
        self._states = {self._last: 0}  # and how many records, up to the last one, have failed then
        self._blind = first is None and not known
        if first is not None and not known:
            self._states[held_before(first)] = 1

    def held(self) -> list[CachedTransaction]:
        """Return the possible states in memory now, that of the last record first."""
        return list(self._states)

    def take(self, new: TransactionValue | None, coordinator_epoch: int, *, appended: bool = False) -> Judgement:
        """Judge the id's next record and go on from it; ``appended``: its append cannot have failed."""
        if coordinator_epoch != self._epoch:  # it was loaded from the log
            self._epoch, self._states, self._blind = coordinator_epoch, {self._last: 0}, False
        legal = {
            cached: failed
            for cached, failed in self._states.items()
            if not step_problem(cached, new) and not (failed and _answers_again(cached.value, new))
        }
        judgement = Judgement([], min(legal.values())) if legal else Judgement(step_problem(self._last, new))
        if self._blind:  # behind a tombstone that may have failed, of an id that nothing else is known of
            judgement = Judgement([], judgement.failed)
        self._go_on({} if appended else legal, new)
        return judgement

    def _go_on(self, legal: dict[CachedTransaction, int], new: TransactionValue | None) -> None:
        self._last, self._blind = CachedTransaction(new), False
        self._states = {self._last: 0}
        for cached, failed in legal.items():
            for left in after_failure(cached, new):
                if len(self._states) < MOST_STATES:
                    self._states.setdefault(left, failed + 1)


# Partition of an internal topic for a transactional id or a consumer group.


_MIN_INT = -(2**31)


def java_string_hash(text: str) -> int:
    """Return `String.hashCode` of `text` as a signed 32-bit number.

    The hash runs over UTF-16 code units, so a character outside the basic plane counts as two. Lone surrogates, which
    decoded names may contain, are hashed like any unit. Cost: linear in the length. Source: java.lang.String.
    """
    units = text.encode("utf-16-be", "surrogatepass")
    total = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        total = (31 * total + (high << 8 | low)) & 0xFFFFFFFF
    return total - 2**32 if total >= 2**31 else total


def partition_for(name: str, partitions: int) -> int:
    """Return the partition of `__transaction_state` (`name`: transactional id) or `__consumer_offsets` (group id).

    `partitions` is the partition count of that topic; ValueError when it is not positive. The hash is made positive by
    its absolute value, with 0 for the one int that has none; it is not masked as client partitioners do. Source:
    TransactionStateManager.partitionFor, Utils.abs.
    """
    if partitions <= 0:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    value = java_string_hash(name)
    return 0 if value == _MIN_INT else abs(value) % partitions
