"""Packed numbers come out as they went in, whatever they are, and small where they go on as batches do."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from auditor.facts.packed import Codec, equal, packed, packed_table, unpacked, unpacked_table

ENDS = [-(2**63), 2**63 - 1, 0, -1, 127, -128, 2**31, -(2**31), 2**32 - 1, 1]


def same(rows: np.ndarray) -> None:
    back = unpacked_table(pickle.loads(pickle.dumps(packed_table(rows), 5)))
    assert (back.dtype, back.shape) == (rows.dtype, rows.shape)
    assert back.tobytes() == rows.tobytes()
    assert (back.flags.c_contiguous, back.flags.writeable) == (True, True)


@given(some.lists(some.lists(some.sampled_from(ENDS) | some.integers(-5, 300), min_size=3, max_size=3), max_size=12))
def test_any_numbers(rows: list[list[int]]) -> None:
    """Steps between the ends of the range overflow, and are undone by the same overflow."""
    same(np.array(rows, np.int64).reshape(-1, 3))


@pytest.mark.parametrize("width", range(1, 64, 7))
def test_numbers_of_any_size(width: int) -> None:
    random = np.random.default_rng(width)
    same(random.integers(-(2**width), 2**width, (1000, 17)))
    same(np.cumsum(random.integers(0, 2**width, (1000, 17)), axis=0))


def test_columns_that_go_on_by_one_step_take_no_bytes_a_row() -> None:
    rows = np.array([7, -3, 2**40]) + np.arange(10_000)[:, None] * np.array([0, 1, 391])
    same(rows)
    assert [column.data for column in packed_table(rows)] == [b""] * 3


def test_columns_are_stored_by_what_takes_fewer_bytes() -> None:
    """Numbers below 2^32 in no order take 4 bytes, their steps 5; numbers of 8 bytes with small steps take 1."""
    random = np.random.default_rng(1)
    rows = np.stack([random.integers(0, 2**32, 500), 2**60 + np.cumsum(random.integers(0, 200, 500))], axis=1)
    same(rows)
    assert [(column.width, column.steps) for column in packed_table(rows)] == [(4, False), (1, True)]


EXTREMES = {
    "none": [], "one": [7], "the same ones": [5] * 40_000, "all zero": [0] * 9,
    "up to the ends": [2**31 - 1, -(2**31)] * 50,
    "rising": list(range(-500, 70_000)),
    "one that differs": [3] * 20_000 + [4] + [3] * 9,
}  # fmt: skip


@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.parametrize("kind", ["i4", "i8"])
@pytest.mark.parametrize("codec", ["lz4_raw", "zstd"])
def test_numbers_come_back_in_the_type_asked_for(name: str, kind: str, codec: Codec) -> None:
    numbers = np.array(EXTREMES[name], kind)
    for stored in (numbers, numbers.astype(np.int64)):
        found = unpacked(packed(stored, codec), kind)
        assert found.dtype == np.dtype(kind)
        assert np.array_equal(found, numbers)


@pytest.mark.parametrize("kind", ["u1", "u4", "u8", "i2", bool])
def test_numbers_without_sign_and_short_ones(kind: str) -> None:
    numbers = np.random.default_rng(3).integers(-(2**63), 2**63 - 1, 999).astype(kind)
    found = unpacked(packed(numbers), kind)
    assert found.dtype == numbers.dtype
    assert np.array_equal(found, numbers)


@pytest.mark.parametrize("ends", [[2**63 - 1, -(2**63), 0, 2**63 - 1], [-(2**63)] * 3])
def test_steps_that_overflow_do_so_on_the_way_back(ends: list[int]) -> None:
    numbers = np.array(ends, np.int64)
    assert np.array_equal(unpacked(packed(numbers)), numbers)


def test_numbers_that_go_on_by_one_step_take_no_bytes() -> None:
    assert equal(np.full(100_000, 1 << 40)) == packed(np.full(100_000, 1 << 40))
    assert [packed(column).data for column in (np.full(100_000, 1 << 40), np.arange(3), np.empty(0))] == [b""] * 3
    assert packed(np.arange(3) ** 2).data != b""
