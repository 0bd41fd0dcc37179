"""Rows as JSON lines and as a table for people."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from auditor.commands.rowtext import json_lines, table_lines
from auditor.connectors.schema import JSON

TIME = pa.timestamp("us", tz="UTC")


def lines(column: pa.Array, kind: Any = None) -> list[str]:
    return [line.rstrip("\n") for line in json_lines(pa.record_batch([column], names=["x"]))]


def values(*given: object, kind: pa.DataType | None = None) -> list[object]:
    return [json.loads(line)["x"] for line in lines(pa.array(given, kind))]


def test_each_type_as_json() -> None:
    assert values(1, None, -(2**63)) == [1, None, -(2**63)]
    assert values(0, 255, kind=pa.uint8()) == [0, 255]
    assert values(True, False, None) == [True, False, None]
    assert values("a", None, "a", '"\n\u202e%s') == ["a", None, "a", '"\n\u202e%s']
    assert values(b"\x00\xff", None) == ["AP8=", None]
    assert values([1, None], []) == [[1, None], []]
    assert values(["x"], None) == [["x"], None]
    assert values(1.5, float("nan"), float("inf")) == [1.5, None, None]
    assert values({"a": b"k", "b": [datetime(2026, 11, 21, 4, tzinfo=UTC)]}) == [
        {"a": "aw==", "b": ["2026-11-21T04:00:00.000Z"]}
    ]
    assert values(date(2026, 11, 21)) == ["2026-11-21"]
    assert lines(pa.array([Decimal("1.20"), None])) == ['{"x":1.20}', '{"x":null}']


def test_times_are_in_utc_with_milliseconds() -> None:
    """Also in a column that begins in the middle of another, where the buffers have more in them."""
    moments = [0, None, 1795233600123999, -1000, 253402300799999000]
    expected = [
        "1970-01-01T00:00:00.000Z", None, "2026-11-21T04:00:00.123Z", "1969-12-31T23:59:59.999Z",
        "9999-12-31T23:59:59.999Z",
    ]  # fmt: skip
    column = pa.array(moments, TIME)
    assert [json.loads(line)["x"] for line in lines(column)] == expected
    assert [json.loads(line)["x"] for line in lines(column[2:])] == expected[2:]
    assert [json.loads(line)["x"] for line in lines(pa.array([5, 6, 7])[1:])] == [6, 7]


def test_the_table_goes_in_front_and_names_may_hold_anything() -> None:
    batch = pa.record_batch([pa.array([1]), pa.array(['{"a": 1}'])], names=["100%s", "fields"])
    marked = batch.schema.set(1, batch.schema.field(1).with_metadata(JSON))
    (line,) = json_lines(pa.record_batch(batch.columns, schema=marked), "t%d")
    assert line == '{"table":"t%d","100%s":1,"fields":{"a": 1}}\n'


def test_a_table_for_people_cannot_move_the_cursor() -> None:
    batch = pa.record_batch(
        [pa.array(["\x1b[2J", "b"]), pa.array([None, None], pa.int64()), pa.array([None, 12])],
        names=["id", "none", "n"],
    )
    assert list(table_lines(batch)) == ["id       n\n", "\\x1b[2J  -\n", "b        12\n"]


def test_long_values_are_cut() -> None:
    (_, row) = table_lines(pa.record_batch([pa.array(["x" * 500])], names=["id"]))
    assert len(row) < 70
    assert row.endswith("…\n")
