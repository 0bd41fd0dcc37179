"""An advice is one object: nothing acts on what is not known, and all that people read is made of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from auditor.base.advice import Act, Advice, CheckCommand, Condition, Moves, Verdict, joined, pieces, text, whole
from auditor.rules.seen.view import Finding
from tests.one_advice import acts_by_its_acts, nobody_is_source_and_target

KNOWN, UNKNOWN, WRONG = (Condition(f"it is {name}", holds, "a file") for name, holds in
                         (("so", True), ("perhaps so", None), ("not so", False)))  # fmt: skip
ABORT = Act("kafka-transactions.sh --bootstrap-server B abort --topic t --partition 0 --start-offset 7")
SAFE = Advice(Verdict.ACT, "aborting is safe", (KNOWN,), (CheckCommand("kafka-x.sh --list", "it lists 7"),), (ABORT,))


@pytest.mark.parametrize("condition", [UNKNOWN, WRONG])
def test_nothing_acts_on_what_is_not_known(condition: Condition) -> None:
    with pytest.raises(ValueError, match="conditions"):
        Advice(Verdict.ACT, "it is safe", (KNOWN, condition), act=(ABORT,))
    doubted = SAFE.unless(condition)
    assert (doubted.verdict, doubted.act) == (Verdict.LOOK, ())
    assert SAFE.unless(KNOWN).act == (ABORT,)


@pytest.mark.parametrize("verdict", [Verdict.LOOK, Verdict.WAIT, Verdict.DO_NOT_ACT])
def test_only_one_verdict_acts(verdict: Verdict) -> None:
    with pytest.raises(ValueError, match="conditions"):
        Advice(verdict, act=(ABORT,))


def test_its_text_has_all_of_it_in_reading_order() -> None:
    said = text(SAFE.row())
    parts = ["Act: aborting is safe.", "Known: it is so (a file).", "kafka-x.sh --list", "Go on only if it lists 7.",
             ABORT.command]  # fmt: skip
    assert [said.index(part) for part in parts] == sorted(said.index(part) for part in parts)
    assert said == joined(pieces(SAFE.row()))


def test_a_finding_carries_it_to_another_process() -> None:
    advice = Advice(Verdict.ACT, "c", (KNOWN,), act=(Act("stop broker 1"),), moves=Moves(1, (2, 3), None))
    found = Finding("offset-hole", "error", 1, "t", 0, advice=advice)
    assert Finding.of(json.loads(json.dumps(found.carried()))) == found
    assert "moves" not in found.to_dict()["advice"]
    assert found.remedy == text(found.to_dict()["advice"])


def test_an_advice_of_a_run_of_the_past_is_one_too() -> None:
    old = {"verdict": "Safe to abort", "tone": "act", "cost": "5 records become aborted."}
    row = whole(old)
    assert row is not None
    assert text(row) == "Act: Safe to abort. 5 records become aborted."
    assert set(row) == set(SAFE.row())
    assert whole(SAFE.row()) == SAFE.row()
    assert whole(None) is None


@pytest.mark.parametrize("hidden", [
    {"then": f"do this too: {ABORT.command}"}, {"cost": "stop broker 2 first"},
    {"look": (CheckCommand(ABORT.command, "it is so"),)},
    {"then": "let another lead, then move t-0 away"}, {"then": "kafka-configs.sh --bootstrap-server B --alter"},
])  # fmt: skip
def test_the_test_of_all_audits_sees_acts_that_hide(hidden: dict[str, Any]) -> None:
    advice = replace(Advice(Verdict.LOOK), **hidden)
    with pytest.raises(AssertionError):
        acts_by_its_acts("some-rule", advice.row())
    later = f"only once that is so: {hidden.get('then', '')}"
    acts_by_its_acts("some-rule", Advice(Verdict.LOOK, then=later).row())


def test_the_test_of_all_audits_sees_a_source_that_is_moved() -> None:
    moves = (Moves(away=1, sources=(2,)), Moves(away=2, sources=(3,)))
    found = [Finding("r", "error", topic="t", partition=0, advice=Advice(Verdict.LOOK, moves=each)) for each in moves]
    with pytest.raises(AssertionError):
        nobody_is_source_and_target(found)
    nobody_is_source_and_target(found[:1])
