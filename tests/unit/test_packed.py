"""Packed rows are read as the array that they were made of."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from auditor.facts.packed import PACK_ABOVE, PIECE, PackedColumns, PackedRows
from auditor.facts.replica_facts import PRODUCER

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
    return PackedRows(PRODUCER, [plain[:9], plain[9:9], plain[9:]])


def test_columns_that_are_the_same_in_all_rows_of_a_part_or_only_at_its_ends() -> None:
    rows = np.zeros(30, PRODUCER)
    for k, name in enumerate(PRODUCER.names or ()):
        rows[name] = -1 - k
    rows["records"][10:20], rows["first_time"][5], rows["transactional"][29] = 7, 1 << 62, 1
    rows["markers"][15] += 256  # one byte of many
    packed = PackedRows(PRODUCER, [rows[:10], rows[10:20], rows[20:20], rows[20:]])
    for name in PRODUCER.names or ():
        assert np.array_equal(packed[name], rows[name]), name
        changes = {"first_time": [0], "records": [], "transactional": [2], "markers": [1]}.get(name, [])
        assert [bool(data) for *_, data in packed.columns[name]] == [k in changes for k in (0, 1, None, 2)], name


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


DTYPES = {"offset": np.dtype("i8"), "crc": np.dtype("u4"), "epoch": np.dtype("i2"), "sound": np.dtype(bool)}


@pytest.mark.parametrize("rows", [1, 7, PIECE - 1, PIECE, 3 * PIECE + 5])
@pytest.mark.parametrize("packed_at_the_end", [True, False])
def test_columns_that_grow_read_as_what_was_added(rows: int, packed_at_the_end: bool) -> None:
    random = np.random.default_rng(rows)
    whole = np.array([
        random.integers(-(2**63), 2**63 - 1, rows), random.integers(0, 2**32, rows), random.integers(-1, 9, rows),
        random.integers(0, 2, rows),
    ])  # fmt: skip
    columns = PackedColumns(DTYPES)
    for at in range(0, rows, 8184):
        columns.add(whole[:, at : at + 8184])
    if packed_at_the_end:
        columns.pack()
    columns = pickle.loads(pickle.dumps(columns))
    for (name, found), expected in zip(columns.items(), whole, strict=True):
        assert found.dtype == DTYPES[name]
        assert np.array_equal(found, expected.astype(DTYPES[name]))
        assert np.array_equal(columns[name], found)


@pytest.mark.parametrize("sizes", [[PIECE + 5, 7, 3 * PIECE, 9], [5, 6], [PIECE - 1, 1, 4], [0, PIECE], [0]])
def test_columns_put_behind_others(sizes: list[int]) -> None:
    """Few rows wait for more, so that many short logs behind each other are no more pieces than one long one."""
    whole, rows = PackedColumns(DTYPES), np.arange(4 * sum(sizes)).reshape(4, -1)
    at = 0
    for size in sizes:
        some = PackedColumns(DTYPES)
        for start in range(at, at + size, 8184) if size else (0,):
            some.add(rows[:, start : min(start + 8184, at + size)])
        whole.append(pickle.loads(pickle.dumps(some)))
        at += size
    assert [len(column) for _, column in whole.items()] == [sum(sizes)] * 4
    assert np.array_equal(whole["offset"], rows[0])
    assert whole.piece_count() <= 1 + sum(sizes) // PIECE + sum(size > PIECE for size in sizes)


def test_columns_to_which_nothing_was_added_count_as_none() -> None:
    columns = PackedColumns(DTYPES)
    assert not columns
    columns.pack()
    assert not columns
    assert [len(column) for _, column in columns.items()] == [0, 0, 0, 0]
    columns.add(np.empty((4, 0), np.int64))
    assert columns
    columns.pack()
    assert [len(column) for _, column in columns.items()] == [0, 0, 0, 0]
