"""Sequence arithmetic in the ring of 2^31 and the rule that uses it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.model import producers
from auditor.model import producers as kernel
from auditor.model.policies import (
    DUPLICATE_SEQUENCE_NUMBER,
    OK,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    UNKNOWN_PRODUCER_ID,
    Policy,
    policy,
)

RING = 2**31
MAX = 2**31 - 1
sequences = st.integers(0, MAX) | st.integers(0, 12) | st.integers(MAX - 12, MAX)
spans = st.integers(0, MAX) | st.integers(0, 12)
LATER = policy("kip-360")
DRAFT = policy("latest-batch-only")


@given(sequences, spans)
def test_adding_is_addition_modulo_the_ring(base: int, delta: int) -> None:
    assert producers.add_sequence(base, delta) == (base + delta) % RING


@given(sequences, spans)
def test_subtracting_is_subtraction_modulo_the_ring(last: int, delta: int) -> None:
    assert producers.subtract_sequence(last, delta) == (last - delta) % RING


@given(sequences, spans)
def test_subtracting_takes_adding_back(base: int, delta: int) -> None:
    assert producers.subtract_sequence(producers.add_sequence(base, delta), delta) == base


@given(sequences)
def test_the_next_sequence_is_one_further(last: int) -> None:
    assert producers.next_sequence(last) == (last + 1) % RING


def test_the_next_sequence_at_the_ends() -> None:
    assert producers.next_sequence(MAX) == 0
    assert producers.next_sequence(MAX - 1) == MAX
    assert producers.next_sequence(kernel.NONE) == 0


def answer(policy: Policy, first: int, last: int, epoch: int = 3, stored: int = 3, pending: int = 3) -> int:
    return producers.sequence_answer(policy, epoch, first, stored, pending, last)


@given(sequences, sequences)
def test_only_the_next_sequence_may_follow(last: int, first: int) -> None:
    expected = OK if first == (last + 1) % RING else OUT_OF_ORDER_SEQUENCE_NUMBER
    assert answer(LATER, first, last) == expected


@given(sequences, sequences)
def test_the_draft_calls_ten_million_sequences_back_duplicates(last: int, first: int) -> None:
    behind = (last - first) % RING
    expected = DUPLICATE_SEQUENCE_NUMBER if behind < 10_000_000 else OUT_OF_ORDER_SEQUENCE_NUMBER
    assert answer(DRAFT, first, last) == (OK if first == (last + 1) % RING else expected)


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (20_000_000, DUPLICATE_SEQUENCE_NUMBER),
        (10_000_001, DUPLICATE_SEQUENCE_NUMBER),
        (10_000_000, OUT_OF_ORDER_SEQUENCE_NUMBER),  # the window is half-open
        (20_000_002, OUT_OF_ORDER_SEQUENCE_NUMBER),
    ],
)
def test_the_ends_of_the_drafts_window(first: int, expected: int) -> None:
    assert answer(DRAFT, first, 20_000_000) == expected


@pytest.mark.parametrize("name", ["pre-kip-360", "kip-360-text", "kip-360", "latest-batch-only"])
def test_another_epoch_begins_at_zero(name: str) -> None:
    assert answer(policy(name), 0, kernel.NONE, epoch=4) == OK
    assert answer(policy(name), 1, kernel.NONE, epoch=4) == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert answer(policy(name), 8, 7, epoch=4) == OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize(
    ("name", "expected"),
    [("pre-kip-360", UNKNOWN_PRODUCER_ID), ("kip-360-text", UNKNOWN_PRODUCER_ID), ("kip-360", OK)],
)
def test_an_unknown_producer_above_zero(name: str, expected: int) -> None:
    assert answer(policy(name), 0, kernel.NONE, stored=-1, pending=-1) == OK
    assert answer(policy(name), 5, kernel.NONE, stored=-1, pending=-1) == expected


def test_the_rest_of_an_unknown_producers_first_append() -> None:
    assert answer(LATER, 99, 5, stored=-1) == OK
    assert answer(policy("kip-360-text"), 99, 5, stored=-1) == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert answer(policy("kip-360-text"), 6, 5, stored=-1) == OK


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pre-kip-360", UNKNOWN_PRODUCER_ID),
        ("kip-360-text", UNKNOWN_PRODUCER_ID),
        ("kip-360", OUT_OF_ORDER_SEQUENCE_NUMBER),
        ("latest-batch-only", OUT_OF_ORDER_SEQUENCE_NUMBER),
    ],
)
def test_a_producer_known_from_markers_only(name: str, expected: int) -> None:
    assert answer(policy(name), 0, kernel.NONE) == OK
    assert answer(policy(name), 17, kernel.NONE) == expected
