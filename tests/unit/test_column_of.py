"""Columns made from Python's values without pyarrow.array are those that it makes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from auditor.connectors.schema import ADVICE, TIME, column_of

STEP = {"do": "restart it", "command": "", "expect": ""}
ADVISED = {"verdict": "act", "why": "", "conditions": [], "steps": [STEP, STEP], "side_effects": "", "afterwards": ""}
CHECKED = ADVISED | {"conditions": [{"what": "é", "holds": None, "command": "x", "expect": ""}], "steps": []}


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), ["a", None, ""]),
        (pa.int64(), [1, None, -1]),
        (pa.bool_(), [True, None, False]),
        (TIME, [0, None, 1]),
        (pa.list_(pa.string()), [["a", None], None, []]),
        (pa.map_(pa.string(), pa.string()), [{"a": "b", "c": None}, None, {}]),
        (pa.list_(pa.int32()), [[1], [2, 3]]),
        (ADVICE, [ADVISED, None, CHECKED]),
        (ADVICE, []),
    ],
)
def test_a_column_is_what_arrow_makes_of_its_values(kind: pa.DataType, values: list[Any]) -> None:
    column = column_of(values, kind)
    column.validate(full=True)
    pairs = [[*value.items()] if pa.types.is_map(kind) and value is not None else value for value in values]
    assert column.equals(pa.array(pairs, kind))
