"""What must hold of a batch in a log, beyond what a leader validates: corrections.md, semantics 4.8."""

from __future__ import annotations

import numpy as np
import pytest

from auditor.connectors.codec import batches as col
from auditor.model import batch_validation as stored
from auditor.model.batch_validation import goes_back
from tests.reference.append_analysis import OFFSETS_OUT_OF_ORDER, UNEXPECTED_APPEND_OFFSET, offsets_refusal

DATA, TRANSACTIONAL, MARKER = 0, 0x10, 0x30
LEFT = col.FLAW_NO_PRODUCER_FIELDS


@pytest.mark.parametrize(
    ("flaws", "attributes", "sequences", "expected"),
    [
        (0, DATA, True, 0),
        (col.FLAW_COUNT_ABOVE_SPAN, DATA, False, col.FLAW_COUNT_ABOVE_SPAN),
        (col.FLAW_COUNT_BELOW_SPAN, DATA, True, 0),  # the cleaner leaves such
        (col.FLAW_CRC, DATA, True, 0),  # has a rule of its own
        (col.FLAW_PRODUCER_SEQUENCE, DATA, True, col.FLAW_PRODUCER_SEQUENCE),
        (col.FLAW_PRODUCER_SEQUENCE, DATA, False, 0),  # coordinators write none
        (LEFT, DATA, True, 0),  # leaders look at neither
        (LEFT, TRANSACTIONAL, True, LEFT),
        (LEFT, MARKER, True, LEFT),
        (LEFT, TRANSACTIONAL, False, 0),
        (LEFT | col.FLAW_CODEC_UNKNOWN, DATA, True, col.FLAW_CODEC_UNKNOWN),
    ],
)
def test_headers(flaws: int, attributes: int, sequences: bool, expected: int) -> None:
    assert stored.header_faults(flaws, attributes, sequences) == expected


@pytest.mark.parametrize(
    ("flaws", "attributes", "expected"),
    [(LEFT, DATA, True), (LEFT, TRANSACTIONAL, False), (LEFT, MARKER, False), (col.FLAW_CRC, DATA, False)],
)
def test_fields_left_by_default_clients(flaws: int, attributes: int, expected: bool) -> None:
    assert stored.is_leftover(flaws, attributes) == expected


@pytest.mark.parametrize(("last_offset", "expected"), [(9, False), (10, True), (11, True)])
def test_fewer_records_are_wrong_where_nothing_was_cleaned(last_offset: int, expected: bool) -> None:
    assert stored.lacks_records(col.FLAW_COUNT_BELOW_SPAN, last_offset, 10) == expected
    assert not stored.lacks_records(col.FLAW_COUNT_ABOVE_SPAN, last_offset, 10)


def test_every_bit_of_records_is_a_fault() -> None:
    bits = np.array([value for name, value in vars(col).items() if name.startswith("RECORD_")], np.int32)
    assert stored.record_faults(bits).tolist() == bits.tolist()
    numbers = [col.RECORD_OFFSET_DELTA, col.RECORD_WRAPPER_OFFSET]
    assert bits[stored.misnumbered(bits)].tolist() == numbers


def test_largest_times() -> None:
    """Of a batch with CreateTimes alone; one with a delete horizon counts from that."""
    magic = np.array([2, 2, 2, 2, 1], np.int8)
    attributes = np.array([0, 0, 0x08, 0x40, 0], np.int16)
    largest, stated = np.array([5, 6, 6, 6, 6]), np.array([5, 5, 5, 5, 5])
    assert stored.misstates_time(largest, stated, magic, attributes).tolist() == [False, True, False, False, False]


def test_times_that_are_none() -> None:
    assert stored.is_no_time(np.array([-2, -1, 0])).tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], None),
        ([(50, 51), (52, 52)], None),
        ([(60, 60)], None),
        ([(49, 51)], UNEXPECTED_APPEND_OFFSET),
        ([(50, 51), (51, 51)], OFFSETS_OUT_OF_ORDER),
        ([(49, 51), (51, 51)], OFFSETS_OUT_OF_ORDER),
        ([(-1, -1)], OFFSETS_OUT_OF_ORDER),
    ],
)
def test_what_a_follower_takes(spans: list[tuple[int, int]], expected: str | None) -> None:
    assert offsets_refusal(spans, 50) == expected


def test_going_back() -> None:
    assert [goes_back(first, 50) for first in (49, 50, 51)] == [True, False, False]
