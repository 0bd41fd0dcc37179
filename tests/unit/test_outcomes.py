"""What a kind declares that its critical and error findings mean, and what becomes of it on the way to a finding."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from auditor.dashboards import wording
from auditor.facts.replica_facts import ReplicaFacts
from auditor.rules.catalogue import kinds, registry
from auditor.rules.resolution.finding_limits import judge_bounded
from auditor.rules.resolution.resolve import resolve
from auditor.rules.seen.view import FIELDS, OUTCOMES, SEVERITIES, Finding
from tests.facts import log_of

# Contract, section 0, in its order.
CONTRACT = (
    "blocked", "lost", "hidden", "exposed", "duplicated", "reordered", "unreadable", "refused", "at_risk", "none",
)  # fmt: skip


def declare(
    severities: Mapping[str, str], outcomes: Mapping[str, str], found: Callable[..., Any] | None = None
) -> None:
    """Registers a kind ``made-up``, as a module of rules does."""

    def check(log: Any) -> Iterator[Finding]:
        """Something

        Checks: a.
        What to do: b.
        Source: c
        """
        yield from found(log) if found is not None else ()

    kinds.KINDS["made-up"] = kinds.row("made-up", "", " ".join(severities), " ".join(outcomes), family="replicas")
    registry.rule("made-up", when={**severities, **outcomes})(check)


@pytest.fixture(autouse=True)
def catalogue() -> Iterator[None]:
    """No kind stays that a test makes up."""
    yield
    registry.CATALOGUE.pop("made-up", None)
    kinds.KINDS.pop("made-up", None)


def some_log() -> Any:
    return log_of([ReplicaFacts(join_key="b1", log_dir="b1", cluster_id=None, broker_id=1, topic="t", partition=0)])


def test_the_outcomes_are_the_contracts() -> None:
    assert OUTCOMES == wording.OUTCOMES == CONTRACT
    assert FIELDS[FIELDS.index("severity") + 1] == "outcome"


@pytest.mark.parametrize("severity", SEVERITIES)
def test_a_kind_with_critical_or_error_findings_declares_their_outcome(severity: str) -> None:
    for several in ({severity: ""}, {"warning": "", severity: "in some cases"}):
        if severity in ("critical", "error"):
            with pytest.raises(AssertionError, match="rule made-up: outcomes="):
                declare(several, {})
        else:
            declare(several, {})
            del registry.CATALOGUE["made-up"]
    with pytest.raises(AssertionError, match="rule made-up: outcomes="):
        declare({severity: ""}, {"gone": ""})


def test_every_kind_of_the_catalogue_declares_it() -> None:
    for kind in registry.kinds().values():
        assert set(kind.outcomes) <= set(CONTRACT)
        assert kind.outcomes or not {"critical", "error"} & set(kind.severities)
        assert "blocked" in kind.outcomes or kind.blocks is None, kind.id


def test_a_finding_has_the_usual_outcome_or_one_that_its_kind_declares() -> None:
    def check(log: Any) -> Iterator[Finding]:
        for severity in SEVERITIES:
            yield log.finding(severity, "usual")
            yield log.finding(severity, "own", outcome="hidden")
        yield log.finding("critical", "in doubt", doubt=True, outcome="hidden")

    declare(dict.fromkeys(SEVERITIES, ""), {"exposed": "", "hidden": "sometimes"}, check)
    kind = registry.CATALOGUE["made-up"]
    said = [(f.severity, f.message, f.outcome) for f in judge_bounded(some_log(), [kind])]
    assert said == [
        ("critical", "usual", "exposed"), ("critical", "own", "hidden"),
        ("error", "usual", "exposed"), ("error", "own", "hidden"),
        ("warning", "usual", "none"), ("warning", "own", "hidden"),
        ("info", "usual", "none"), ("info", "own", "none"),
        ("info", "in doubt", "none"),
    ]  # fmt: skip
    with pytest.raises(AssertionError, match="does not declare the outcome 'lost'"):
        list(kind.completed([Finding("made-up", "critical", outcome="lost")]))


def test_a_sum_has_the_first_outcome_of_those_that_it_stands_for() -> None:
    def check(log: Any) -> Iterator[Finding]:
        for offset, outcome in enumerate(("none", "at_risk", "hidden", "at_risk")):
            yield log.finding("error", "x", offset=offset, outcome=outcome)

    declare({"error": ""}, dict.fromkeys(("none", "at_risk", "hidden"), ""), check)
    found = list(judge_bounded(some_log(), [registry.CATALOGUE["made-up"]], limit=1))
    assert [(f.offset, f.outcome) for f in found] == [(0, "none"), (None, "hidden")]


@pytest.mark.parametrize(("own", "absorbed"), list(itertools.product(SEVERITIES, SEVERITIES)))
def test_a_finding_that_is_raised_by_what_it_explains_has_its_outcome(own: str, absorbed: str) -> None:
    """Severity and outcome climb together; of two alike the cause's own stays, unless it is none."""
    at = {"topic": "t", "partition": 0, "producer_id": 7, "offset": 5}
    for mine, other in itertools.product(("none", "hidden"), ("none", "blocked")):
        cause = Finding("hanging-transaction", own, message="a", outcome=mine, **at)  # type: ignore[arg-type]
        effect = Finding("late-write-after-marker", absorbed, message="b", outcome=other, **at)  # type: ignore[arg-type]
        (kept,) = resolve([cause, effect])
        graver = SEVERITIES.index(absorbed) < SEVERITIES.index(own)
        same = absorbed == own
        assert kept.outcome == (other if graver or (same and mine == "none") else mine)


def test_a_run_from_before_has_the_usual_outcomes() -> None:
    rows = [
        {"rule": "missing-records", "kind": "sequence-gap", "severity": "error"},
        {"rule": "missing-records", "kind": "sequence-gap", "severity": "info"},
        {"rule": "batch-crc-mismatch", "kind": None, "severity": "critical", "outcome": None},
        {"rule": "batch-crc-mismatch", "severity": "critical", "outcome": "at_risk"},
        {"rule": "a-rule-of-the-past", "severity": "critical"},
    ]
    found = registry.described(MappingProxyType(row) for row in rows)
    assert [row.get("outcome") for row in found] == ["lost", "none", "unreadable", "at_risk", None]
