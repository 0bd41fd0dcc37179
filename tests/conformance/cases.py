"""Builds a model from a case, applies its steps and compares by subset (conformance/README.md, section 2).

An adapter is a module ``tests.conformance.<model>_adapter`` with ``run_model(case) -> Model``; :data:`ADAPTERS` names
the models.
"""

from __future__ import annotations

import importlib
import json
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

ADAPTERS = ("producer_state", "coordinator", "validator", "group", "client")


class Result(NamedTuple):
    """What one operation gave. ``state`` is the whole state after it, as the README writes it, also after an error.

    ``outcome`` is accepted, duplicate, ok or error; ``error`` its name or None; ``returns`` the values returned.
    """

    outcome: str
    error: str | None
    returns: dict[str, Any]
    state: dict[str, Any]


class Model(Protocol):
    """A model under test: applies one operation after the other."""

    def apply(self, op: str, args: dict[str, Any]) -> Result:
        """Apply ``op``; a refusal is a Result, an exception is a bug of the model."""
        ...


def is_nothing(value: Any) -> bool:
    """Null, an empty object, or an object that holds nothing else."""
    return value is None or (isinstance(value, dict) and all(is_nothing(v) for v in value.values()))


def differences(expected: Any, actual: Any, where: str) -> Iterator[str]:
    """One line for each place where ``actual`` does not hold what ``expected`` demands."""
    if expected is None or expected == {}:
        if not is_nothing(actual):
            yield f"{where}: expected nothing, found {actual!r}"
    elif isinstance(expected, dict):
        found = {} if actual is None else actual
        if not isinstance(found, dict):
            yield f"{where}: expected an object, found {actual!r}"
            return
        for key, value in expected.items():
            yield from differences(value, found.get(key), f"{where}.{key}")
    elif isinstance(expected, list):
        if not isinstance(actual, list) or len(actual) != len(expected):
            yield f"{where}: expected {expected!r}, found {actual!r}"
            return
        for index, (wanted, found) in enumerate(zip(expected, actual, strict=True)):
            yield from differences(wanted, found, f"{where}[{index}]")
    elif isinstance(expected, bool) != isinstance(actual, bool) or expected != actual:
        yield f"{where}: expected {expected!r}, found {actual!r}"


def compare(expected: dict[str, Any], actual: dict[str, Any], where: str) -> list[str]:
    """Differences of a whole state or of the values returned, of which only the keys named are compared."""
    return [line for key, value in expected.items() for line in differences(value, actual.get(key), f"{where}.{key}")]


def run_case(case: dict[str, Any]) -> list[str]:
    """The differences of one case, empty when it passes. Every step is applied, also after a difference."""
    if case.get("model") not in ADAPTERS:
        return [f"no model {case.get('model')!r}"]
    model = importlib.import_module(f"tests.conformance.{case['model']}_adapter").run_model(case)
    found: list[str] = []
    state: dict[str, Any] = {}
    for number, step in enumerate(case["steps"]):
        result = model.apply(step["op"], step.get("args", {}))
        state, expect, where = result.state, step["expect"], f"step {number} {step['op']}"
        answer = {"outcome": result.outcome, "error": result.error}
        found += compare({key: expect[key] for key in answer if key in expect}, answer, where)
        found += compare(expect.get("returns") or {}, result.returns, f"{where}: returns")
        found += compare(expect.get("state") or {}, state, f"{where}: state")
    found += compare(case.get("final") or {}, state, "final")
    return found


def judge(case: dict[str, Any]) -> list[str]:
    """As :func:`run_case`, but an exception of the model is a difference, so that the other cases still run."""
    try:
        return run_case(case)
    except Exception:  # noqa: BLE001 - any bug of the model fails this case alone
        return [traceback.format_exc(limit=-2).strip().replace("\n", " | ")]


def case_files(paths: list[str]) -> Iterator[Path]:
    """The files named, and every ``*.json`` of the directories named."""
    for path in map(Path, paths):
        yield from sorted(path.rglob("*.json")) if path.is_dir() else [path]


def read_cases(path: Path) -> list[dict[str, Any]]:
    """The cases of one conformance file."""
    return json.loads(path.read_text(encoding="utf-8"))["cases"]
