"""Truncation or loss: semantics 6.1 and 6.2, and the page UnknownProducerId/OutOfOrderSequence."""

from __future__ import annotations

import pytest

from tests.reference.loss import Cause, Gap, GapCause, gap_cause, truncation_or_loss


@pytest.mark.parametrize(
    ("log_start", "acked", "cause"),
    [
        (1010, 1000, Cause.TRUNCATION),
        (1001, 1000, Cause.TRUNCATION),
        (1000, 1000, Cause.LOSS),  # the log should still hold the acknowledged record
        (999, 1000, Cause.LOSS),
        (0, 0, Cause.LOSS),
        (0, None, Cause.TRUNCATION),  # nothing acknowledged, nothing lost
        (-1, 1000, Cause.UNKNOWN),
        (-1, None, Cause.UNKNOWN),
    ],
)
def test_decision(log_start: int, acked: int | None, cause: Cause) -> None:
    assert truncation_or_loss(log_start, acked) == cause


def test_causes_of_a_gap_in_order() -> None:
    # each cause hides those that follow it
    assert gap_cause(Gap(True, True, True, True)) == GapCause.UNPROVABLE
    assert gap_cause(Gap(False, True, True, True)) == GapCause.TRUNCATION
    assert gap_cause(Gap(False, False, True, True)) == GapCause.LOSS_BY_LEADERSHIP
    assert gap_cause(Gap(False, False, False, True)) == GapCause.CLIENT_RECOVERY
    assert gap_cause(Gap(False, False, False, False)) == GapCause.LOSS
