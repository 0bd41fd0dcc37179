"""Nothing that release 1.0 promised is gone: docs/interface-1.0.json is compared with the code."""

from __future__ import annotations

import json
from collections.abc import Mapping

from scripts.public_interface import interface
from tests.conftest import ROOT

PROMISED = ROOT / "docs" / "interface-1.0.json"


def missing(promised: object, present: object, place: str) -> list[str]:
    """The names of ``promised`` that ``present`` lacks."""
    if isinstance(promised, Mapping):
        assert isinstance(present, Mapping)
        return [
            text
            for name, value in promised.items()
            for text in (missing(value, present[name], f"{place} {name}") if name in present else [f"{place}: {name}"])
        ]
    assert isinstance(promised, list)
    assert isinstance(present, list)
    return [f"{place}: {name}" for name in promised if name not in present]


def test_everything_promised_is_there() -> None:
    promised = json.loads(PROMISED.read_text(encoding="utf-8"))
    names = ["commands", "exit_codes", "finding_fields", "kinds", "metrics", "python", "rules", "tables"]
    assert sorted(promised) == names
    assert all(promised.values())
    assert missing(promised, interface(), "") == []


def test_a_name_that_is_gone_is_found() -> None:
    now = interface()
    tables = now["tables"]
    assert isinstance(tables, dict)
    without = {**now, "tables": {**tables, "batches": tables["batches"][:-1]}, "rules": []}
    found = missing(now, without, "")
    assert f" tables batches: {tables['batches'][-1]}" in found
    assert len(found) == 1 + len(now["rules"])  # type: ignore[arg-type]
