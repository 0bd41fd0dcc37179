"""Reaction of a producer to a refused batch, for each generation of clients.

Retries and the delivery time-out are taken as not used up. Source: TransactionManager.canRetry and handleFailedBatch,
Sender.completeBatch; KIP-360, KIP-467; the page UnknownProducerId/OutOfOrderSequence; semantics 2.4.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from tests.reference.loss import Cause, truncation_or_loss

NO_SEQUENCE = -1
# Errors whose Java exception is retriable, of those that a produce response may carry.
RETRIABLE = frozenset(
    (
        "CORRUPT_MESSAGE",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_OR_FOLLOWER",
        "REQUEST_TIMED_OUT",
        "NETWORK_EXCEPTION",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "KAFKA_STORAGE_ERROR",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "UNKNOWN_TOPIC_ID",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "CONCURRENT_TRANSACTIONS",
        "THROTTLING_QUOTA_EXCEEDED",
    )
)
# Errors after which a transactional producer is of no more use.
FATAL = frozenset(
    (
        "PRODUCER_FENCED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "UNSUPPORTED_VERSION",
        "INVALID_PRODUCER_ID_MAPPING",
    )
)


class Action(StrEnum):
    """What becomes of the batch and of its producer.

    RETRY_RESET_SEQUENCES restarts at sequence 0 in the same epoch, RETRY_BUMP_EPOCH at 0 in the next epoch, taken
    locally; FAIL_ABORTABLE asks for an abort, FAIL_ABORTABLE_AND_BUMP for one followed by InitProducerId.
    """

    RETRY = "retry"
    RETRY_RESET_SEQUENCES = "retry_reset_sequences"
    RETRY_BUMP_EPOCH = "retry_bump_epoch"
    RETRY_WITHOUT_ERROR_RECORDS = "retry_without_error_records"
    FAIL = "fail"
    FAIL_ABORTABLE = "fail_abortable"
    FAIL_ABORTABLE_AND_BUMP = "fail_abortable_and_bump"
    FAIL_NEW_PRODUCER_ID = "fail_new_producer_id"
    COMPLETE_WITHOUT_OFFSET = "complete_without_offset"


class Failure(NamedTuple):
    """A produce response with an error, and what the client knows of the partition.

    `log_start_offset` is the response's, -1 unknown; `last_acked_*` None when nothing was acknowledged;
    `sequence_has_been_reset`: the batch was renumbered since it was sent; `has_unresolved_sequence`: an earlier batch
    expired without an answer, `is_next_for_unresolved`: this one follows it; `record_errors`: indexes of the culprits.
    """

    error: str
    transactional: bool = False
    log_start_offset: int = -1
    last_acked_offset: int | None = None
    last_acked_sequence: int | None = None
    batch_first_sequence: int = 0
    sequence_has_been_reset: bool = False
    has_unresolved_sequence: bool = False
    is_next_for_unresolved: bool = False
    broker_supports_epoch_bump: bool = True
    record_errors: tuple[int, ...] = ()

    @property
    def is_next(self) -> bool:
        """Whether the batch directly follows the last acknowledged one; the client does not count across the wrap."""
        last = NO_SEQUENCE if self.last_acked_sequence is None else self.last_acked_sequence
        return self.batch_first_sequence == last + 1

    @property
    def cause(self) -> Cause:
        """Whether the log was truncated above everything that was acknowledged."""
        return truncation_or_loss(self.log_start_offset, self.last_acked_offset)


def on_produce_error(policy: str, failure: Failure) -> Action:
    """Return the reaction of a client of `policy` (conformance/README.md section 3) to a failed batch."""
    reactions = _REACTIONS.get(policy, _KIP_360)
    if failure.error == "DUPLICATE_SEQUENCE_NUMBER":
        return Action.COMPLETE_WITHOUT_OFFSET
    if failure.error == "UNKNOWN_PRODUCER_ID":
        return reactions.unknown_producer(failure)
    if failure.error == "OUT_OF_ORDER_SEQUENCE_NUMBER":
        return reactions.out_of_order(failure)
    if failure.error in RETRIABLE:
        return Action.RETRY
    if policy == "kip-467-text" and failure.record_errors:
        return Action.RETRY_WITHOUT_ERROR_RECORDS
    return Action.FAIL if failure.error in FATAL else reactions.give_up(failure)


def _give_up_before_bumps(failure: Failure) -> Action:
    return Action.FAIL_ABORTABLE if failure.transactional else Action.FAIL


def _give_up(failure: Failure) -> Action:
    if failure.transactional and failure.broker_supports_epoch_bump:
        return Action.FAIL_ABORTABLE_AND_BUMP
    return _give_up_before_bumps(failure)


def _fail(failure: Failure) -> Action:
    return Action.FAIL


def _unknown_producer_diff_page(failure: Failure) -> Action:
    return Action.FAIL if failure.cause == Cause.LOSS else Action.RETRY


def _unknown_producer_before_bumps(failure: Failure) -> Action:
    if failure.cause == Cause.UNKNOWN or failure.sequence_has_been_reset:
        return Action.RETRY
    return Action.RETRY_RESET_SEQUENCES if failure.cause == Cause.TRUNCATION else _give_up_before_bumps(failure)


def _out_of_order_before_bumps(failure: Failure) -> Action:
    if _may_be_waiting(failure):
        return Action.RETRY
    if failure.transactional or failure.has_unresolved_sequence:
        return _give_up_before_bumps(failure)
    return Action.FAIL_NEW_PRODUCER_ID


def _may_be_waiting(failure: Failure) -> bool:
    """Whether an earlier batch of the same client is in flight, so that nothing need be missing."""
    return not failure.has_unresolved_sequence and (failure.sequence_has_been_reset or not failure.is_next)


def _bump_or_give_up(failure: Failure) -> Action:
    return _give_up(failure) if failure.transactional else Action.RETRY_BUMP_EPOCH


def _unknown_producer(failure: Failure) -> Action:
    if failure.cause == Cause.UNKNOWN or failure.sequence_has_been_reset:
        return Action.RETRY
    if failure.transactional and failure.cause == Cause.TRUNCATION:
        return Action.RETRY_RESET_SEQUENCES
    return _bump_or_give_up(failure)


def _out_of_order(failure: Failure) -> Action:
    waits = failure.has_unresolved_sequence and not failure.is_next_for_unresolved and not failure.transactional
    return Action.RETRY if waits or _may_be_waiting(failure) else _bump_or_give_up(failure)


class _Reactions(NamedTuple):
    """A client generation: its reactions to lost producer state, to a gap, and to any other error it cannot retry."""

    unknown_producer: Callable[[Failure], Action]
    out_of_order: Callable[[Failure], Action]
    give_up: Callable[[Failure], Action]


_KIP_360 = _Reactions(_unknown_producer, _out_of_order, _give_up)
_REACTIONS = {
    "diff-page": _Reactions(_unknown_producer_diff_page, _fail, _give_up_before_bumps),
    "pre-kip-360": _Reactions(_unknown_producer_before_bumps, _out_of_order_before_bumps, _give_up_before_bumps),
    "kip-360-text": _Reactions(_bump_or_give_up, _out_of_order, _give_up),  # the text no longer asks for the log start
}
