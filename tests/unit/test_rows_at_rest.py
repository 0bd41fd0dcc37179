"""Rows at rest: what comes back is what was added, in order, whatever is packed and whatever is not yet."""

from __future__ import annotations

import json
import pickle
import random
from typing import Any

import pytest

from auditor.base import at_rest as base_at_rest
from auditor.base.at_rest import SORTED_TOGETHER, TOGETHER, ExternalSort, MappedRows, RowsAtRest


@pytest.mark.parametrize("count", [0, 1, TOGETHER - 1, TOGETHER, TOGETHER + 1, 3 * TOGETHER + 5])
def test_rows_come_back_in_their_order(count: int) -> None:
    rows = [{"partition": n, "why": "the same words"} for n in range(count)]
    packed = RowsAtRest(rows)
    assert len(packed) == count
    assert list(packed) == rows
    assert list(packed) == rows  # as often as one likes
    assert list(pickle.loads(pickle.dumps(packed))) == rows


def test_single_rows_and_slices() -> None:
    rows = list(range(2 * TOGETHER + 3))
    packed = RowsAtRest(rows)
    assert [packed[0], packed[TOGETHER], packed[-1]] == [0, TOGETHER, 2 * TOGETHER + 2]
    assert packed[TOGETHER - 2 : TOGETHER + 2] == rows[TOGETHER - 2 : TOGETHER + 2]
    with pytest.raises(IndexError):
        packed[len(rows)]


def test_a_change_to_what_was_read_changes_nothing() -> None:
    packed = RowsAtRest([{"n": n} for n in range(TOGETHER)])
    for row in packed:
        row["n"] = -1
    assert [row["n"] for row in packed] == list(range(TOGETHER))


def test_like_rows_take_little() -> None:
    """A row of 900 bytes as JSON, like a healthy partition's: below 100 bytes each."""
    row = {f"name-{k}": k for k in range(60)}
    packed = RowsAtRest({**row, "partition": n} for n in range(10 * TOGETHER))
    assert len(json.dumps(row)) > 800
    assert len(pickle.dumps(packed)) < 100 * len(packed)


@pytest.mark.parametrize("count", [3, SORTED_TOGETHER, 2 * SORTED_TOGETHER + 7])
def test_rows_are_put_in_order_and_those_alike_stay_as_they_came(count: int) -> None:
    rows = [(n % (count // 3), n) for n in random.Random(1).sample(range(count), count)]
    gathered = ExternalSort[tuple[int, int]](lambda row: row[0])
    for row in rows:
        gathered.append(row)
    assert list(gathered.in_order()) == sorted(rows, key=lambda row: row[0])


@pytest.mark.parametrize("count", [3, SORTED_TOGETHER, 2 * SORTED_TOGETHER + 7])
@pytest.mark.parametrize("swapped", [False, True])
def test_rows_that_come_in_order_are_joined_and_one_that_does_not_is_found(count: int, swapped: bool) -> None:
    """The row out of place is the last: it comes when all before it are packed."""
    rows = [(n // 2, n) for n in range(count)]
    for ask in ("in_order", "merged"):
        gathered = ExternalSort[tuple[int, int]](lambda row: row[0])
        for row in rows[1:] + rows[:1] if swapped else rows:
            gathered.append(row)
        found = getattr(gathered, ask)()
        assert list(found) == sorted(rows[1:] + rows[:1] if swapped else rows, key=lambda row: row[0])


def test_rows_are_seen_as_a_function_gives_them() -> None:
    seen = MappedRows(RowsAtRest(range(100)), lambda n: n * n)
    assert (len(seen), seen[9], seen[:3], sum(seen)) == (100, 81, [0, 1, 4], 328_350)


@pytest.mark.parametrize("count", [0, 1, 200])
def test_json_in_pieces_is_the_same_text(count: int) -> None:
    """As Python's own writer makes it of the same content in lists."""
    rows = [{"topic": 'é\n"', "n": n, "sub": {"b": [], "a": {}}, "half": n / 2, "none": None} for n in range(count)]
    content = {"logs": rows, "a": {"x": [1, {"y": 2}]}, "z": None, "text": "two\nlines", "blocked": rows[:1]}
    expected = json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    at_rest = content | {"logs": RowsAtRest(rows), "blocked": MappedRows(rows[:1], lambda row: row)}
    assert base_at_rest.as_json(at_rest) == expected
    assert base_at_rest.as_json(content) == expected
    assert base_at_rest.as_json({}) == "{}\n"


def test_json_text_is_what_pythons_own_encoder_gives() -> None:
    """Whatever stands in the texts: brackets, separators, line breaks, the word that stands for what comes later."""
    texts = ["null", '"', "},\n {", ",\n  ", "a\r\n\u2028\u00e9\\", "[null", ""]
    plain = [None, True, 0, -(2**70), 1.5, float("inf"), *texts]
    content: list[Any] = [*plain, [], {}, (), [[]], [{}], ((1, (2,)),), {"x": [[], [1]]}]
    content += [dict.fromkeys(texts, value) for value in (None, [], [None], {"null": [texts]}, content[:])]
    content += [{3: [1], 1: None, 2: {"b": (), "a": (None,)}}, [content[:], content[:]]]
    for one in [*content, content, {"all": content}]:
        whole = {"one": one, "rows": [{"at": one}]}
        expected = json.dumps(whole, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
        assert base_at_rest.as_json(whole) == expected
        assert base_at_rest.as_json(whole | {"rows": RowsAtRest(whole["rows"])}) == expected


@pytest.mark.parametrize("order", ["as they are", "mixed"])
def test_rows_that_are_packed_by_others_are_joined_whatever_their_blocks(order: str) -> None:
    """Packed in runs that end in short blocks, as tasks leave them; mixed: as Spark's tasks share out logs."""
    apart, mixed = [range(70), range(70, 75), range(75, 300)], [range(k, 300, 3) for k in range(3)]
    gathered = ExternalSort[int](lambda row: row)
    for run in apart if order == "as they are" else mixed:
        gathered.take(RowsAtRest(run).packed())
    found = gathered.in_order()
    assert list(found) == list(range(300))
    assert (len(found), found[0], found[69], found[70], found[74], found[75], found[-1]) == (
        300,
        0,
        69,
        70,
        74,
        75,
        299,
    )
    with pytest.raises(IndexError):
        found[300]
