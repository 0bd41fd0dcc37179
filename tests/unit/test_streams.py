"""Rows between Spark and its workers: in few batches, and in groups by key."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from auditor.spark.jobs import BATCH_BYTES, LogRow, array, in_batches, keyed

KEYED = pa.schema(
    [("join_key", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("facts", pa.binary())]
)


def test_small_rows_share_a_batch_and_a_large_one_ends_it() -> None:
    rows = [("a", "t", n, bytes(10)) for n in range(1000)]
    large = ("a", "t", 1000, bytes(3 * BATCH_BYTES))
    batches = list(in_batches([*rows, large, rows[0]], KEYED))
    assert [batch.num_rows for batch in batches] == [1001, 1]
    assert [tuple(row.values()) for batch in batches for row in batch.to_pylist()] == [*rows, large, rows[0]]
    assert list(in_batches([], KEYED)) == []


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0, -1, 2**31 - 1], pa.int32()),
        (["", "Größe", "a\0b"], pa.string()),
        ([b"", b"\0\xff", bytes(9)], pa.binary()),
        ([], pa.int32()),
        ([], pa.string()),
    ],
)
def test_arrays_are_those_of_pyarrow(values: list[object], kind: pa.DataType) -> None:
    found = array(values, kind)
    found.validate(full=True)
    assert found.equals(pa.array(values, kind))


def test_what_has_no_room_is_an_error() -> None:
    with pytest.raises(OverflowError):
        array([2**31], pa.int32())


def test_nothing_waits_for_more_than_a_batch() -> None:
    """A batch is handed out as soon as it is full: what is held does not grow with the rows to come."""
    taken: list[int] = []

    def rows() -> Iterator[LogRow]:
        for n in range(9):
            taken.append(n)
            yield ("a", "t", n, bytes(BATCH_BYTES // 2))

    next(in_batches(rows(), KEYED))
    assert taken == [0, 1]


def test_a_key_goes_on_in_the_next_batch() -> None:
    first = [("a", "t", 0, b"1"), ("a", "t", 1, b"2")]
    second = [("a", "t", 1, b"3"), ("b", "t", 1, b"4")]
    batches = (batch for rows in (first, second) for batch in in_batches(rows, KEYED))
    assert [(key, list(mine)) for key, mine in keyed(batches)] == [
        (("a", "t", 0), [b"1"]), (("a", "t", 1), [b"2", b"3"]), (("b", "t", 1), [b"4"]),
    ]  # fmt: skip
