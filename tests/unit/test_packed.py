"""Packed rows are read as the array that they were made of."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from auditor.facts import PRODUCER
from auditor.packed import PACK_ABOVE, PackedRows, table

ROWS = PACK_ABOVE + 1


def filled() -> np.ndarray:
    out = np.zeros(ROWS, PRODUCER)
    random = np.random.default_rng(5)
    for name in PRODUCER.names or ():
        out[name] = random.integers(-1, 100, ROWS)
    out["producer_id"] = np.arange(ROWS)
    return out


@pytest.fixture(scope="module")
def plain() -> np.ndarray:
    return filled()


@pytest.fixture(scope="module")
def packed(plain: np.ndarray) -> PackedRows:
    made = table(PRODUCER, ROWS, lambda name: plain[name])
    assert isinstance(made, PackedRows)
    return made


def test_short_tables_stay_arrays(plain: np.ndarray) -> None:
    short = plain[:PACK_ABOVE]
    made = table(PRODUCER, PACK_ABOVE, lambda name: short[name])
    assert isinstance(made, np.ndarray)
    assert np.array_equal(made, short)


def test_columns(plain: np.ndarray, packed: PackedRows) -> None:
    assert len(packed) == ROWS
    assert packed.dtype == PRODUCER
    for name in PRODUCER.names or ():
        assert packed[name].dtype == PRODUCER[name]
        assert np.array_equal(packed[name], plain[name])


@pytest.mark.parametrize(
    "key", [slice(3, 40, 7), np.array([9, 2, 2]), np.arange(ROWS) % 777 == 0, np.zeros(ROWS, np.bool_), 17, -1]
)
def test_rows(plain: np.ndarray, packed: PackedRows, key: object) -> None:
    assert np.array_equal(packed[key], plain[key])


def test_one_after_the_other(plain: np.ndarray, packed: PackedRows) -> None:
    first = next(iter(packed))
    assert (first["producer_id"], first["batches"]) == (0, plain["batches"][0])


def test_a_name_that_is_none(packed: PackedRows) -> None:
    with pytest.raises(KeyError):
        packed["nonsense"]


def test_packed_rows_travel(plain: np.ndarray, packed: PackedRows) -> None:
    assert np.array_equal(pickle.loads(pickle.dumps(packed))["last_offset"], plain["last_offset"])
