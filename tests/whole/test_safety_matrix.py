"""What is said of an open transaction in each state of its coordinator, with its data in the log and below its start.

Every surface that an on-call engineer may act on is made, and read for what it must say and must never say.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from auditor.outputs.publish import run_report
from tests.blocked_states import COMMANDS, COMMIT, FIND, PRODUCER, SAFE, SAYS, STATES, forged, surfaces, verdict_of


@pytest.mark.parametrize("below", [False, True], ids=["in the log", "below the log start"])
@pytest.mark.parametrize("state", STATES)
def test_every_surface_says_what_is_safe(tmp_path: Path, state: str, below: bool) -> None:
    audit = forged(tmp_path, state, below)
    advice, standing = STATES[state][3 if below else 2], STATES[state][4]
    (row,) = audit.blocked
    assert (verdict_of(row), row["standing"]) == (advice, standing)
    blocked = standing in ("stuck", "overdue")
    assert audit.exit_code() == int(blocked)
    texts = surfaces(audit, tmp_path)
    has, never = SAYS[advice]
    for name, text in {**texts, **{f.kind: f.remedy for f in audit.findings}}.items():
        assert not [phrase for phrase in never if phrase in text], name
        asked = blocked or (name == "page" and standing == "unknown")
        assert name not in COMMANDS or not asked or all(phrase in text for phrase in has), name
    with (tmp_path / "metrics.prom").open(encoding="utf-8") as lines:
        counted = [line for line in lines if line.startswith("kafka_audit_blocked") and not line.endswith(" 0.0\n")]
    assert [f'standing="{standing}"}} 1.0' in line for line in counted] == [True]
    never_ends = sum(
        run_report(audit).summary["open_transactions"].get(name, 0) for name in ("hanging", "orphan", "ghost")
    )
    assert bool(never_ends) == (standing == "stuck")
    if advice == COMMIT and standing == "stuck":
        assert f"producerEpoch {PRODUCER[1] + ('version 2' in state)}, " in row["remedy"]
    if below and advice in (SAFE, FIND):
        assert row["advice"]["side_effects"].startswith("none")
