"""Reactions of producers, row by row of semantics 2.4."""

from __future__ import annotations

import pytest

from tests.reference.client import Action, Failure, on_produce_error

UPI = Failure("UNKNOWN_PRODUCER_ID", last_acked_offset=1000, last_acked_sequence=0, batch_first_sequence=1)
TRUNCATED = UPI._replace(log_start_offset=1001)
NOT_TRUNCATED = UPI._replace(log_start_offset=1000)
NEXT = Failure("OUT_OF_ORDER_SEQUENCE_NUMBER", last_acked_sequence=4, batch_first_sequence=5)
LATER = NEXT._replace(batch_first_sequence=6)
UNRESOLVED = LATER._replace(has_unresolved_sequence=True)
INVALID = Failure("INVALID_RECORD", record_errors=(1,))


# policy: idempotent, transactional
ROWS = [
    (UPI, {"diff-page": "retry", "pre-kip-360": "retry", "kip-360": "retry"}),
    (
        NOT_TRUNCATED._replace(sequence_has_been_reset=True),
        {"pre-kip-360": "retry", "kip-360": "retry"},
    ),
    (
        TRUNCATED,
        {
            "diff-page": "retry",
            "pre-kip-360": "retry_reset_sequences",
            "kip-360-text": "retry_bump_epoch fail_abortable_and_bump",
            "kip-360": "retry_bump_epoch retry_reset_sequences",
        },
    ),
    (
        NOT_TRUNCATED,
        {
            "diff-page": "fail",
            "pre-kip-360": "fail fail_abortable",
            "kip-360-text": "retry_bump_epoch fail_abortable_and_bump",
            "kip-360": "retry_bump_epoch fail_abortable_and_bump",
        },
    ),
    (LATER, {"diff-page": "fail", "pre-kip-360": "retry", "kip-360-text": "retry", "kip-360": "retry"}),
    (
        NEXT,
        {
            "diff-page": "fail",
            "pre-kip-360": "fail_new_producer_id fail_abortable",
            "kip-360-text": "retry_bump_epoch fail_abortable_and_bump",
            "kip-360": "retry_bump_epoch fail_abortable_and_bump",
        },
    ),
    (NEXT._replace(sequence_has_been_reset=True), {"pre-kip-360": "retry", "kip-360": "retry"}),
    (UNRESOLVED, {"pre-kip-360": "fail fail_abortable", "kip-360": "retry fail_abortable_and_bump"}),
    (
        UNRESOLVED._replace(is_next_for_unresolved=True),
        {"kip-360": "retry_bump_epoch fail_abortable_and_bump"},
    ),
    (
        Failure("DUPLICATE_SEQUENCE_NUMBER"),
        {"pre-kip-360": "complete_without_offset", "kip-360": "complete_without_offset"},
    ),
    (
        INVALID,
        {
            "kip-467-text": "retry_without_error_records",
            "kip-467": "fail fail_abortable_and_bump",
            "pre-kip-360": "fail fail_abortable",
        },
    ),
    (INVALID._replace(record_errors=()), {"kip-467-text": "fail fail_abortable_and_bump"}),
    (INVALID._replace(error="CORRUPT_MESSAGE"), {"kip-467-text": "retry", "kip-360": "retry", "pre-kip-360": "retry"}),
    (Failure("PRODUCER_FENCED"), {"pre-kip-360": "fail", "kip-360": "fail"}),
]


@pytest.mark.parametrize(
    ("failure", "policy", "actions"),
    [(failure, policy, actions) for failure, row in ROWS for policy, actions in row.items()],
)
def test_reaction(failure: Failure, policy: str, actions: str) -> None:
    idempotent, transactional = (actions.split() * 2)[:2]
    assert on_produce_error(policy, failure).value == idempotent
    assert on_produce_error(policy, failure._replace(transactional=True)).value == transactional


def test_an_old_broker_has_no_bump_to_give() -> None:
    failure = NEXT._replace(transactional=True, broker_supports_epoch_bump=False)
    assert on_produce_error("kip-360", failure) == Action.FAIL_ABORTABLE
    assert on_produce_error("kip-360", failure._replace(transactional=False)) == Action.RETRY_BUMP_EPOCH


def test_the_first_batch_follows_nothing() -> None:
    first = Failure("OUT_OF_ORDER_SEQUENCE_NUMBER", batch_first_sequence=0)
    assert on_produce_error("kip-360", first) == Action.RETRY_BUMP_EPOCH
    assert on_produce_error("kip-360", first._replace(batch_first_sequence=1)) == Action.RETRY


@pytest.mark.parametrize("policy", ["latest-batch-only", "kip-890-p1", "kip-890-p2", "kip-447"])
def test_policies_that_say_nothing_of_clients_react_as_kip_360(policy: str) -> None:
    assert on_produce_error(policy, TRUNCATED) == Action.RETRY_BUMP_EPOCH
