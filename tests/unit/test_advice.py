"""An advice is one object: nothing acts on what is not known, and all that people read is made of it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from auditor.base.advice import (
    NOW,
    Advice,
    Condition,
    Moves,
    Step,
    Verdict,
    check,
    joined,
    pieces,
    shown,
    step,
    text,
    whole,
)
from auditor.rules.lib import repairs
from auditor.rules.seen.view import Finding
from tests import corpora
from tests.one_advice import acts_by_its_steps, nobody_is_source_and_target

KNOWN, UNKNOWN, WRONG = (shown(f"it is {name}", holds, "a file") for name, holds in
                         (("so", True), ("perhaps so", None), ("not so", False)))  # fmt: skip
ABORT = step("kafka-transactions.sh --bootstrap-server B abort --topic t --partition 0 --start-offset 7")
SAFE = Advice(
    Verdict.SAFE_TO_ABORT,
    "nobody will end it",
    (KNOWN, check("kafka-x.sh --list", "it lists 7")),
    (ABORT,),
    "3 records",
)


@pytest.mark.parametrize("condition", [UNKNOWN, WRONG])
def test_nothing_acts_on_what_is_not_known(condition: Condition) -> None:
    with pytest.raises(ValueError, match="conditions"):
        Advice(Verdict.ACT, "it is safe", (KNOWN, condition), steps=(ABORT,))
    with pytest.raises(ValueError, match="conditions"):
        Advice(Verdict.ACT, "it is safe", (KNOWN, condition), steps=(Step("stop broker 1"),))
    doubted = SAFE.unless(condition)
    assert (doubted.verdict, doubted.steps, doubted.acts) == (Verdict.INVESTIGATE_FIRST, (ABORT,), False)
    assert SAFE.unless(KNOWN).acts


@pytest.mark.parametrize("verdict", Verdict)
def test_steps_that_wait_are_printed_behind_what_they_wait_for(verdict: Verdict) -> None:
    check_first = check("kafka-x.sh --list", "it lists 7")
    said = text(Advice(verdict, "so it is", (KNOWN, check_first), (ABORT,)).row())
    waits = "Take these steps only after all conditions are confirmed. "
    assert (waits in said) == (verdict not in NOW)
    assert waits not in text(Advice(verdict, "so it is", (KNOWN,), (ABORT,)).row())
    assert said.index("it is so") < said.index(waits if waits in said else ABORT.command) <= said.index(ABORT.command)


def test_its_text_has_all_of_it_in_reading_order() -> None:
    said = text(SAFE.row())
    parts = ["Safe to abort. Nobody will end it.", "Confirmed: it is so (a file).", "kafka-x.sh --list",
             "Continue only if it lists 7.", ABORT.command, "Side effects: 3 records."]  # fmt: skip
    assert [said.index(part) for part in parts] == sorted(said.index(part) for part in parts)
    assert said == joined(pieces(SAFE.row()))


def test_a_finding_carries_it_to_another_process() -> None:
    advice = Advice(Verdict.ACT, "c", (KNOWN,), steps=(Step("stop broker 1"),), moves=Moves(1, (2, 3), None))
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
    named_otherwise = {
        "verdict": "act", "cost": "nobody will end it", "loses": "3 records", "then": "",
        "conditions": [{"what": "it is so", "holds": True, "by": "a file"}],
        "look": [{"command": "kafka-x.sh --list", "expect": "it lists 7"}], "act": [{"command": ABORT.command}],
    }  # fmt: skip
    assert whole(named_otherwise) == {**SAFE.row(), "verdict": "act"}
    assert whole(None) is None


@pytest.mark.parametrize("hidden", [
    {"afterwards": f"do this too: {ABORT.command}"}, {"why": "stop broker 2 first"},
    {"conditions": (check(ABORT.command, "it is so"),)},
    {"afterwards": "let another lead, then move t-0 away"},
    {"afterwards": "kafka-configs.sh --bootstrap-server B --alter"},
])  # fmt: skip
def test_the_test_of_all_audits_sees_acts_that_hide(hidden: dict[str, Any]) -> None:
    advice = replace(Advice(Verdict.INVESTIGATE_FIRST), **hidden)
    with pytest.raises(AssertionError):
        acts_by_its_steps("some-rule", advice.row())
    later = tuple(step(str(words)) for words in hidden.values())
    acts_by_its_steps("some-rule", Advice(Verdict.INVESTIGATE_FIRST, steps=later).row())


def test_the_test_of_all_audits_sees_a_source_that_is_moved() -> None:
    moves = (Moves(away=1, sources=(2,)), Moves(away=2, sources=(3,)))
    found = [
        Finding("r", "error", topic="t", partition=0, advice=Advice(Verdict.INVESTIGATE_FIRST, moves=each))
        for each in moves
    ]
    with pytest.raises(AssertionError):
        nobody_is_source_and_target(found)
    nobody_is_source_and_target(found[:1])


def test_what_a_page_says_becomes_steps_behind_the_batch_as_kafka_prints_it() -> None:
    """The pieces that must be in the output are in the line that kafka-dump-log.sh printed of that batch."""
    lines = (corpora.oracle("hanging-36") / "broker-1.bank.ledger-0.log.txt").read_text().splitlines()
    line = next(line for line in lines if "producerId: 1" in line and "isTransactional: true" in line)
    value = dict(re.findall(r"(\w+): (-?\w+)", line))
    places = {
        name: int(value[name]) for name in ("producerId", "producerEpoch", "position", "baseOffset", "lastOffset")
    }
    found = Finding(
        "epoch-regression", "critical", 1, "bank.ledger", 0, places["baseOffset"], places["lastOffset"],
        places["producerId"], places["producerEpoch"], position=places["position"],
        file="bank.ledger-0/00000000000000000000.log", outcome="at_risk",
    )  # fmt: skip
    advice = repairs.in_general(found, "while it is open, wait; look at A. Tell B; end C (T.C).")
    (look,) = advice.conditions
    assert look.command == "kafka-dump-log.sh --files bank.ledger-0/00000000000000000000.log --deep-iteration"
    for piece in look.expect.removeprefix("the output shows ").split(" with "):
        assert piece in line
    assert [step.do for step in advice.steps] == ["look at A", "Tell B", "end C (T.C)"]
    span = f"offsets {places['baseOffset']} to {places['lastOffset']}"
    one = f"offset {places['baseOffset']}"
    many = places["lastOffset"] > places["baseOffset"]
    assert (
        advice.side_effects == f"until then {span if many else one} of bank.ledger-0 remain{'s' * (not many)} at risk"
    )
    assert repairs.in_general(replace(found, outcome="blocked"), "while it is open, wait").steps == (
        Step("while it is open, wait"),
    )
