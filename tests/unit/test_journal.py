"""The journal of ``auditor watch``: each finding once when it comes and once when it goes, whatever a kill cuts off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.outputs.printing import CHECKPOINT, JOURNAL, Journal, key_of
from auditor.rules.seen.view import Finding

AT = "2026-11-21T04:00:00.000Z"


def holding(*names: str) -> dict[str, dict[str, Any]]:
    return {key_of(name, "error"): Finding("sequence-gap", "error", topic=name).to_dict() for name in names}


def reported(folder: Path) -> list[tuple[str, str]]:
    lines = (folder / JOURNAL).read_text(encoding="utf-8").splitlines()
    return [(line["event"], line["topic"]) for line in map(json.loads, lines)]


def test_a_finding_is_reported_when_it_comes_and_when_it_goes(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert len(journal.update(AT, holding("a", "b"))) == 2
    assert journal.update(AT, holding("a", "b")) == []
    assert [line["event"] for line in journal.update(AT, holding("b"))] == ["resolved"]
    journal.update(AT, holding("a", "b"))
    assert reported(tmp_path) == [("found", "a"), ("found", "b"), ("resolved", "a"), ("found", "a")]


def test_a_higher_severity_is_reported_again(tmp_path: Path) -> None:
    info, critical = (Finding("hanging-transaction", severity).to_dict() for severity in ("info", "critical"))
    journal = Journal(tmp_path)
    journal.update(AT, {key_of("f", "info"): info})
    lines = journal.update(AT, {key_of("f", "critical"): critical})
    assert [(line["event"], line["severity"]) for line in lines] == [("found", "critical"), ("resolved", "info")]


@pytest.mark.parametrize("spoilt", [None, "", "{", "{}", '{"bytes": 10000, "open": {}}', '{"bytes": 0, "open": {}}'])
def test_the_journal_alone_says_what_is_open(tmp_path: Path, spoilt: str | None) -> None:
    journal = Journal(tmp_path)
    journal.update(AT, holding("a", "b"))
    journal.update(AT, holding("b"))
    if spoilt is None:
        (tmp_path / CHECKPOINT).unlink()
    else:
        (tmp_path / CHECKPOINT).write_text(spoilt, encoding="utf-8")
    journal = Journal(tmp_path)
    assert set(journal.open) == set(holding("b"))
    assert journal.update(AT, holding("b")) == []


@given(
    states=st.lists(st.frozensets(st.sampled_from("abcd")), min_size=1, max_size=6),
    kills=st.lists(st.floats(0, 1), max_size=6),
    old=st.booleans(),
)
def test_a_kill_anywhere_loses_nothing_and_reports_nothing_twice(
    tmp_path_factory: pytest.TempPathFactory, states: list[frozenset[str]], kills: list[float], old: bool
) -> None:
    """A kill leaves any part of what was appended last, and the checkpoint of then or of before."""
    folder = tmp_path_factory.mktemp("journal")
    for number, state in enumerate(states):
        before = (folder / JOURNAL).stat().st_size if (folder / JOURNAL).exists() else 0
        checkpoint = (folder / CHECKPOINT).read_bytes() if (folder / CHECKPOINT).exists() else None
        journal = Journal(folder)
        journal.update(AT, holding(*sorted(state)))
        if number < len(kills) and (folder / JOURNAL).exists():
            after = (folder / JOURNAL).stat().st_size
            cut = before + int((after - before) * kills[number])
            with (folder / JOURNAL).open("r+b") as f:
                f.truncate(cut)
            if checkpoint is not None and (old or cut < after):
                (folder / CHECKPOINT).write_bytes(checkpoint)
            elif cut < after:
                (folder / CHECKPOINT).unlink()
    journal = Journal(folder)
    journal.update(AT, holding(*sorted(states[-1])))
    opened: set[str] = set()
    for event, topic in reported(folder) if (folder / JOURNAL).exists() else ():
        assert (topic in opened) == (event == "resolved"), "reported twice, or resolved without being found"
        opened ^= {topic}
    assert opened == states[-1]
