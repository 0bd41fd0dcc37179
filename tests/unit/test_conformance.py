"""Every conformance case against the model, and the runner that compares."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.__main__ import main
from tests.conformance.cases import case_files, differences, judge, read_cases
from tests.corpora import CONFORMANCE
from tests.proof import by_bytes
from tests.proof.case_logs import Held

CASES = [case for file in case_files([str(CONFORMANCE)]) for case in read_cases(file)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_model_decides_as_the_case_says(case: dict[str, Any]) -> None:
    assert judge(case) == []


def test_all_cases_are_there() -> None:
    assert len(CASES) >= 438


@pytest.fixture(scope="module")
def logs() -> dict[str, Held]:
    return by_bytes.hold(CASES)


def test_the_log_of_a_case_says_what_the_case_says(logs: dict[str, Held]) -> None:
    assert {name: log.differences for name, log in logs.items() if log.differences} == {}


def test_what_no_log_can_hold_has_a_reason_and_the_rest_is_held(logs: dict[str, Held]) -> None:
    held = Counter(case["model"] for case in CASES if not logs[case["id"]].unheld)
    assert held == {"producer_state": 137, "coordinator": 70, "validator": 31}


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        (None, None),
        (None, {}),
        ({}, None),
        ({}, {"1": None, "2": {}}),
        ({"5": None}, {}),
        ({"5": None}, None),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}, "d": 3}),
        ([1, {"a": 1}], [1, {"a": 1, "b": 2}]),
        ([], []),
        (True, True),
        ("x", "x"),
    ],
)
def test_what_counts_as_equal(expected: Any, actual: Any) -> None:
    assert list(differences(expected, actual, "it")) == []


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        (None, 0),
        ({}, {"1": 1}),
        ({}, [1]),
        ({"5": None}, {"5": {"epoch": 0}}),
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {}),
        ({"a": 1}, [1]),
        ([1, 2], [1]),
        ([1], [1, 2]),
        ([1, 2], [2, 1]),
        ([], None),
        (True, 1),
        (1, True),
        (0, False),
        (1, None),
        ("1", 1),
    ],
)
def test_what_counts_as_different(expected: Any, actual: Any) -> None:
    found = list(differences(expected, actual, "it"))
    assert found
    assert all(line.startswith("it") for line in found)


def case(final: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A case of one step, right but for ``final`` and ``changes``."""
    step = {"op": "append_plain", "args": {"first_offset": 0, "last_offset": 2}, "expect": {"outcome": "accepted"}}
    whole = {"id": "one", "model": "producer_state", "policy": "kip-360", "level": "log", "initial": {}}
    return whole | {"steps": [step], "final": final} | changes


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        (case({"log_end": 4}), "log_end"),
        (case({}, model="shoes"), "shoes"),
        (case({}, policy="kip-0"), "kip-0"),
        (case({}, steps=[{"op": "dance", "args": {}, "expect": {"outcome": "ok"}}]), "dance"),
        (case({}, steps=[{"op": "take_snapshot", "args": {}, "expect": {"outcome": "error"}}]), "outcome"),
        (case({}, steps=[{"op": "restart", "args": {}, "expect": {"outcome": "ok", "error": "OH"}}]), "error"),
        (case({}, steps=[{"op": "restart", "args": {}, "expect": {"outcome": "ok", "returns": {"a": 1}}}]), "returns"),
        (case({}, steps=[{"op": "restart", "args": {}, "expect": {"outcome": "ok", "state": {"hw": 9}}}]), "state"),
    ],
)
def test_a_wrong_case_fails_and_the_line_says_why(
    wrong: dict[str, Any], word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cases.json").write_text(json.dumps({"cases": [wrong, case({"log_end": 3}, id="right")]}))
    assert main([str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "1 passed, 1 failed"
    assert lines[-2].endswith("that no log can hold")
    assert len(lines) == 3
    assert lines[0].startswith("one: ")
    assert word in lines[0]


def appended(first: int, *, outcome: str = "accepted") -> dict[str, Any]:
    """A step: three records of producer 1 from this sequence and offset on, and what the case says to them."""
    span = {"first_seq": first, "last_seq": first + 2, "first_offset": first, "last_offset": first + 2}
    args = {"pid": 1, "epoch": 0, "timestamp": 1, "transactional": False, "origin": "client"} | span
    return {"op": "append_batch", "args": args, "expect": {"outcome": outcome}}


def test_a_case_whose_log_says_otherwise_fails(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    wrong = case({}, steps=[appended(0), appended(7)])
    (tmp_path / "cases.json").write_text(json.dumps({"cases": [wrong]}))
    assert main([str(tmp_path)]) == 1
    failing, counted, _ = capsys.readouterr().out.splitlines()
    assert "by bytes: offset 7: the case says accepted, the model OUT_OF_ORDER_SEQUENCE_NUMBER" in failing
    assert counted == "1 of them by bytes too; 0 that no log can hold"


def test_a_file_without_cases_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "not.json").write_text("[]")
    assert main([str(tmp_path / "not.json"), str(tmp_path / "missing.json")]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 2 failed"


def test_no_path_is_a_wrong_call(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage" in capsys.readouterr().err
