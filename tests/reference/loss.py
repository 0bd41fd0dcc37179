"""Truncation or data loss: what a missing piece of a producer's history proves (semantics section 6)."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

NO_OFFSET = -1


class Cause(StrEnum):
    """Why a broker no longer knows a producer that had data acknowledged."""

    TRUNCATION = "truncation"
    LOSS = "loss"
    UNKNOWN = "unknown"


def truncation_or_loss(log_start_offset: int, last_acked_offset: int | None) -> Cause:
    """Decide between data cut off on purpose and data lost, from what a produce response shows.

    `log_start_offset`: of the partition, -1 when the response does not say (ask again). `last_acked_offset`: of the
    producer in this partition, None when nothing was acknowledged; then nothing acknowledged can be lost. The bound is
    strict: a log that starts at the acknowledged offset should still hold it.
    Source: the page UnknownProducerId/OutOfOrderSequence; TransactionManager.canRetry.
    """
    if log_start_offset == NO_OFFSET:
        return Cause.UNKNOWN
    acked = NO_OFFSET if last_acked_offset is None else last_acked_offset
    return Cause.TRUNCATION if acked < log_start_offset else Cause.LOSS


class Gap(NamedTuple):
    """A jump forward in the sequences of one producer in one stored partition, with its surroundings.

    `compacted`: the cleaner may have been there; `at_log_start`: the gap lies below the log start or in the first
    segment that is kept; `leader_epoch_changed` and `producer_epoch_changed`: between the batches on both sides.
    """

    compacted: bool
    at_log_start: bool
    leader_epoch_changed: bool
    producer_epoch_changed: bool


class GapCause(StrEnum):
    """What a gap proves, in the order in which the causes are considered."""

    UNPROVABLE = "unprovable"
    TRUNCATION = "truncation"
    LOSS_BY_LEADERSHIP = "loss-by-leadership"
    CLIENT_RECOVERY = "client-recovery"
    LOSS = "loss"


def gap_cause(gap: Gap) -> GapCause:
    """Return the first cause that explains a gap without loss, or the kind of loss it proves (semantics 6.2)."""
    if gap.compacted:
        return GapCause.UNPROVABLE
    if gap.at_log_start:
        return GapCause.TRUNCATION
    if gap.leader_epoch_changed:
        return GapCause.LOSS_BY_LEADERSHIP
    return GapCause.CLIENT_RECOVERY if gap.producer_epoch_changed else GapCause.LOSS
