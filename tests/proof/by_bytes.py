"""Conformance cases that bytes can hold, as bytes: what ``python -m tests.conformance`` runs beside the model."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.proof import coordinator_cases, producer_cases, validator_cases
from tests.proof.case_logs import Held

ONE_BY_ONE = {"producer_state": producer_cases.hold, "validator": validator_cases.hold}
# Models of which nothing is held by bytes.
UNHELD = {
    "client": "what a client does with an answer is in no log",
    "group": "which commits a coordinator of groups refuses, and what it answers to fetches, is in no log",
}


def hold(cases: Sequence[dict[str, Any]]) -> dict[str, Held]:
    """Every case by its id; an exception is a difference, so that the others still run."""
    held = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "topic-0"
        folder.mkdir()
        for case in cases:
            model = case.get("model")
            if model in ONE_BY_ONE:
                held[case["id"]] = _one(case, folder)
            elif model in UNHELD:
                held[case["id"]] = Held([], UNHELD[model])
        coordinated = [case for case in cases if case.get("model") == "coordinator"]
        if coordinated:
            held |= _coordinated(coordinated, Path(scratch) / "coordinators")
    return held


def _one(case: dict[str, Any], folder: Path) -> Held:
    try:
        return ONE_BY_ONE[case["model"]](case, folder)
    except Exception:  # noqa: BLE001 - any bug fails this case alone
        return Held([_where()])


def _coordinated(cases: Sequence[dict[str, Any]], folder: Path) -> dict[str, Held]:
    try:
        return coordinator_cases.hold(cases, folder)
    except Exception:  # noqa: BLE001 - any bug fails these cases alone
        return {case["id"]: Held([_where()]) for case in cases}


def _where() -> str:
    return traceback.format_exc(limit=-2).strip().replace("\n", " | ")
