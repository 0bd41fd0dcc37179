"""Forged incidents and their healthy twins, each with a prediction from Kafka's source: what must be found, and nothing
above info besides. The same as ``check.py`` of the folder that they came in."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from auditor import cli
from tests import corpora

# What is not right yet, by name: a test that begins to pass fails here, and its name goes.
WAITING = (
    "30d-ahead-once-young-stopped-cleanly",
    "and-another-orphan-hangs",
    "behind-10m",
    "clock-fell-last-week",
    "coordinator-s-logs-ten-minutes-later-tv0-clean",
    "copied-a-day-after-another-cluster",
    "follower-of-the-new-coordinator",
    "followers-leader-8s-fast",
    "forgotten-while-ongoing-its-data-is-there",
    "group-offsets-five-days",
    "held-3h-coordinator-copied-before-it",
    "late-commit-no-coordinator",
    "late-write-behind-an-idle-coordinator",
    "looks-every-ten-minutes",
    "one-of-two-aborted-by-hand",
    "plain-commits-between-transactional-ones",
    "stopped-cleanly-controllers-go-on-3d",
    "stored-twice-across-a-local-bump",
)
WAITS = pytest.mark.xfail(strict=True, reason="issue 52")
CASES = [pytest.param(name, marks=WAITS) if name in WAITING else name for name in corpora.incidents()]


def meets(finding: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Whether a finding has all that is expected: ``key~`` is a pattern, ``key!~`` one that must not be there."""
    for key, value in expected.items():
        text = str(finding.get(key.rstrip("~").rstrip("!")) or "")
        if key.endswith("~"):
            if (re.search(value, text, re.S) is None) != key.endswith("!~"):
                return False
        elif finding.get(key) not in (value if isinstance(value, list) else [value]):
            return False
    return True


@pytest.mark.parametrize("name", CASES)
def test_predictions_come_true(name: str, tmp_path: Path) -> None:
    folder = corpora.unpack("incidents") / name
    want = json.loads((folder / "expect.json").read_text())
    cli.main(
        ["audit", str(folder / "input"), "--out", str(tmp_path), "--master", "inline", "--quiet", *want["options"]]
    )
    lines = (tmp_path / "findings.jsonl").read_text().splitlines()
    left = [found | {"rule": found["kind"] or found["rule"]} for found in map(json.loads, lines)]
    missed = []
    for expected in want["expect"]:
        hit = next((found for found in left if meets(found, expected)), None)
        if hit is None:
            missed.append(expected)
        else:
            left.remove(hit)
    false = [f for f in left if f["severity"] != "info" and f["rule"] not in want["allowed_besides"]]
    assert (missed, false) == ([], [])
