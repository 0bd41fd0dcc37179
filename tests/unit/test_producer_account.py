"""What the one account of a producer says of batches that no leader takes, forced in: logs by hand, answers by Kafka's
rules (ProducerAppendInfo.checkSequence, the look-up of five batches), kinds by arithmetic."""

from __future__ import annotations

from typing import Any

import pytest

from auditor.facts.events import Kind
from auditor.facts.replica_facts import ReplicaFacts
from auditor.model.policies import DUPLICATE, INVALID_PRODUCER_EPOCH, OK, OUT_OF_ORDER_SEQUENCE_NUMBER
from tests.made import data, marker
from tests.unit.batch_histories import History, facts_of

GAP, OVERLAP, RESET, RESUMED = Kind.SEQUENCE_GAP, Kind.SEQUENCE_OVERLAP, Kind.SEQUENCE_RESET, Kind.SEQUENCE_RESUMED
BUMP, LOWER, FIRST = Kind.BUMP_NONZERO, Kind.EPOCH_REGRESSION, Kind.FIRST_NONZERO
OUT = OUT_OF_ORDER_SEQUENCE_NUMBER
OF_PRODUCERS = {GAP, OVERLAP, RESET, RESUMED, BUMP, LOWER, FIRST, Kind.MARKER_EPOCH_REGRESSION}
LAST = 2**31 - 1


def log(*batches: tuple[int, int] | tuple[int, int, int], log_start: int = 0) -> ReplicaFacts:
    """One producer's batches, each from a first sequence to a last one, perhaps with an epoch."""
    rows: list[dict[str, Any]] = []
    offset = 0
    for number, (first, last, *epoch) in enumerate(batches):
        row = data(offset, first, (last - first) % 2**31 + 1, producer_epoch=epoch[0] if epoch else 0)
        rows.append(row | {"position": 100 * number, "crc": number, "max_timestamp": 1_700_000_000_000 + number})
        offset = row["last_offset"] + 1
    return facts_of(History(rows, log_start=log_start), checkpoint=False)


def said(facts: ReplicaFacts, *names: str) -> list[tuple[Any, ...]]:
    """Number of the batch and kind of each event on producers, and these columns."""
    return [
        (int(e["position"]) // 100, Kind(int(e["kind"])), *(int(e[name]) for name in names))
        for e in facts.events
        if e["kind"] in OF_PRODUCERS
    ]


def test_behind_an_overlap_a_retry_is_a_duplicate_and_no_gap() -> None:
    facts = log((0, 6), (6, 8), (9, 10), (11, 12), (9, 10), (11, 12), (13, 14))
    assert said(facts, "answer", "expected_sequence") == [
        (1, OVERLAP, OUT, 7), (4, OVERLAP, DUPLICATE, 13), (5, OVERLAP, DUPLICATE, 11),
    ]  # fmt: skip
    stored = {int(e["base_offset"]): int(e["stored_base_offset"]) for e in facts.events}
    assert stored == {7: 0, 14: 10, 16: 12}


def test_what_left_the_cache_of_five_is_a_duplicate_still() -> None:
    facts = log((0, 6), (6, 8), *[(n, n + 1) for n in range(9, 30, 2)], (7, 8), (9, 10))
    assert said(facts, "answer") == [(1, OVERLAP, OUT), (13, OVERLAP, OUT), (14, OVERLAP, OK)]


def test_a_producer_goes_on_where_it_stood_before_a_repetition() -> None:
    facts = log((0, 9), (10, 19), (0, 4), (20, 29), (30, 39))
    assert said(facts, "answer", "expected_sequence") == [(2, RESET, OUT, 20), (3, GAP, OUT, 5)]
    facts = log((0, 9), (10, 19), (20, 29), (10, 14), (30, 39), (40, 49))
    assert said(facts, "answer", "expected_sequence") == [(3, OVERLAP, OUT, 30), (4, RESUMED, OUT, 15)]


def test_a_fenced_producers_batch_does_not_move_its_successor() -> None:
    facts = log((0, 9, 5), (10, 19, 4), (20, 29, 4), (10, 19, 5), (30, 39, 5))
    assert said(facts, "answer") == [
        (1, LOWER, INVALID_PRODUCER_EPOCH), (2, LOWER, OK), (3, RESUMED, OUT), (4, GAP, OUT),
    ]  # fmt: skip


def test_a_hole_that_is_filled_late_is_no_second_oddity() -> None:
    assert said(log((0, 9), (20, 29), (5, 9), (10, 19))) == [(1, GAP), (2, OVERLAP)]


def test_a_repetition_that_goes_beyond_what_was_stored_moves_the_producer() -> None:
    facts = log((0, 9), (5, 14), (15, 19), (12, 13), (20, 24))
    assert said(facts) == [(1, OVERLAP), (3, OVERLAP), (4, RESUMED)]


def test_the_ring_of_sequences_turns_without_an_event() -> None:
    assert said(log((LAST - 4, LAST), (0, 4), (5, 9)))[1:] == []
    assert said(log((LAST - 4, 1), (2, 4), (LAST, 0)))[1:] == [(2, OVERLAP)]


def test_an_epoch_that_is_new_begins_at_zero() -> None:
    assert said(log((0, 4, 0), (0, 4, 1), (5, 9, 1))) == []
    assert said(log((0, 4, 0), (5, 9, 1), (10, 14, 1)), "answer") == [(1, BUMP, OUT)]
    assert said(log((0, 4, 0), (5, 9, 1), (0, 4, 1)), "answer") == [(1, BUMP, OUT), (2, RESET, OUT)]


def test_a_batch_behind_its_own_fencing_marker_is_of_an_old_epoch_alone() -> None:
    rows = [
        data(0, 0, 5, transactional=True), marker(5, 1), data(6, 5, 5, transactional=True),
    ]  # fmt: skip
    facts = facts_of(History([row | {"position": 100 * n} for n, row in enumerate(rows)]), checkpoint=False)
    assert said(facts, "answer") == [(2, LOWER, INVALID_PRODUCER_EPOCH)]


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([(0, 4), (5, 9), (10, 14), (2, 3)], [(3, OVERLAP)]),  # stored below the log start
        ([(0, 4), (5, 9), (10, 14), (20, 24)], [(3, GAP)]),
        ([(0, 4), (7, 9), (10, 14), (1, 2)], [(3, OVERLAP)]),
    ],
)
def test_what_lies_below_the_log_start_was_stored_before(
    batches: list[tuple[int, int]], expected: list[tuple[int, Kind]]
) -> None:
    assert [one for one in said(log(*batches, log_start=7)) if one[0] > 1] == expected


@pytest.mark.parametrize(
    ("batches", "log_start", "expected"),
    [
        ([(15, 15), (10, 19), (15, 15), (16, 16)], 1, [(2, OVERLAP), (3, OVERLAP)]),
        ([(15, 15), (10, 19), (20, 20), (21, 29)], 1, []),
        ([(10, 19), (5, 6), (7, 7), (10, 19), (8, 9), (10, 12)], 12, [(3, OVERLAP), (4, RESUMED), (5, OVERLAP)]),
        ([(10, 19), (5, 6), (7, 7), (8, 9), (10, 12)], 12, []),  # stored below it alone
        ([(10, 19), (5, 6), (10, 19), (7, 9), (10, 12)], 12, [(2, OVERLAP), (3, RESUMED), (4, OVERLAP)]),
    ],
)
def test_what_is_repeated_from_below_the_log_start_stands_above_it(
    batches: list[tuple[int, int]], log_start: int, expected: list[tuple[int, Kind]]
) -> None:
    facts = log(*batches, log_start=log_start)
    assert [one for one in said(facts) if one[0] > 1 and one[1] != FIRST] == expected
