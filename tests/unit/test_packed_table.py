"""A packed table comes out as the rows that went in, whatever they are, and small where they go on as batches do."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from auditor.facts.packed_table import packed_table, unpacked_table

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
    sizes = []
    for length in (100, 10_000):
        rows = np.array([7, -3, 2**40]) + np.arange(length)[:, None] * np.array([0, 1, 391])
        same(rows)
        sizes.append(len(pickle.dumps(packed_table(rows), 5)))
    assert sizes[1] - sizes[0] <= 1


def test_columns_are_stored_by_what_takes_fewer_bytes() -> None:
    """Numbers below 2^32 in no order take 4 bytes, their steps 5; numbers of 8 bytes with small steps take 1."""
    random = np.random.default_rng(1)
    rows = np.stack([random.integers(0, 2**32, 500), 2**60 + np.cumsum(random.integers(0, 200, 500))], axis=1)
    same(rows)
    assert [(v.column, v.width, v.steps) for v in packed_table(rows).varying] == [(0, 4, False), (1, 1, True)]
