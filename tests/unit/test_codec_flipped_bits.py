"""The flipped bit that explains a CRC mismatch is found by arithmetic, and nothing else is."""

from __future__ import annotations

import random

import numpy as np

from auditor.base.errors import FlippedBit
from auditor.connectors.codec.damaged_fields import CHECKED_FROM, MOST_BYTES, STORED_AT, flipped_bit
from tests import segments
from tests.seeded_tests import seeded


def stored(size: int = 100) -> np.ndarray:
    record = segments.record(0, b"key", bytes(size))
    return np.frombuffer(bytearray(segments.batch(record, 1, producer_id=7, epoch=0, sequence=3)), np.uint8).copy()


def flipped(batch: np.ndarray, *bits: int) -> np.ndarray:
    out = batch.copy()
    for bit in bits:
        out[bit // 8] ^= 1 << bit % 8
    return out


def test_each_bit_of_a_batch_is_found() -> None:
    batch = stored()
    for bit in range(8 * STORED_AT, 8 * len(batch)):
        assert flipped_bit(flipped(batch, bit)) == (bit // 8, bit % 8)


@seeded(20)
def test_two_bits_and_more_are_explained_by_none(seed: int) -> None:
    dice, batch = random.Random(seed), stored()
    bits = dice.sample(range(8 * CHECKED_FROM, 8 * len(batch)), dice.randrange(2, 6))
    assert flipped_bit(flipped(batch, *bits)) is None


def test_a_sound_batch_and_one_that_is_too_large_have_none() -> None:
    assert flipped_bit(stored()) is None
    assert flipped_bit(flipped(stored(MOST_BYTES), 8 * 200)) is None
    assert flipped_bit(flipped(stored(100_000), 8 * 50_000 + 3)) == (50_000, 3)


def test_what_says_of_itself_that_it_is_a_flipped_bit_is_read_back() -> None:
    error = FlippedBit(90, 3).error("t-0/0.log", 235, 123)
    assert FlippedBit.of(error) == (90, 3)
    for detail in (error.detail.replace("90", "9" * 5000), error.detail.replace("bit 3", "bit 8"), "bit 3 of byte 90"):
        assert FlippedBit.of(error._replace(detail=detail)) is None
    assert FlippedBit.of(error._replace(reason="bad_record")) is None
