"""A rule is its module and a row of the table of kinds: no other file names it."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from auditor import rules
from auditor.dashboards.answers import report_of
from auditor.dashboards.report import render_report
from auditor.facts.replica_facts import ReplicaFacts
from auditor.rules.catalogue import kinds, registry, safeguards
from auditor.rules.catalogue.relations import By, same_transaction
from auditor.rules.resolution.resolve import resolve
from auditor.rules.seen.view import Finding
from tests.facts import log_of
from tests.unit.report_samples import empty_summary

ROOT = Path(__file__).parents[2]
MADE_UP = '''
"""Rules made up by a test."""

from auditor.rules.catalogue.registry import rule


@rule("sleeping-transaction")
def sleeping(log):
    """A transaction sleeps

    Checks: that it does.
    Why it matters: it should not.
    Can be wrong: never.
    What to do: wake it.
    Source: a dream
    """
    yield log.finding("warning", "It sleeps", offset=5, producer_id=7)


@rule("snoring-transaction", when={"refused": "always"})
def snoring(log):
    """A transaction snores

    Checks: that it does.
    Why it matters: others cannot sleep.
    Can be wrong: a cat.
    What to do: turn it.
    Source: a dream
    """
    yield log.finding("error", "It snores", offset=5, producer_id=7)
    yield log.finding("error", "Another snores", offset=6, producer_id=8)
'''


COFFEE = safeguards.Safeguard("coffee.enable=true", "kitchen", "Nobody falls asleep over an open transaction.")
ROWS = (
    kinds.row("sleeping-transaction", "", "critical warning", "blocked", family="transactions",
              blocks=kinds.Blocks.READERS, prevented_by=(COFFEE, *safeguards.LATE_WRITES)),
    kinds.row("snoring-transaction", "", "error", "refused", By("sleeping-transaction", same_transaction),
              family="transactions"),
)  # fmt: skip


@pytest.fixture
def catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, registry.Rule]]:
    """The catalogue with one file more in the folder of rules, and a row for each of its kinds."""
    (tmp_path / "made_up.py").write_text(MADE_UP, encoding="utf-8")
    monkeypatch.setattr(rules, "__path__", [*rules.__path__, str(tmp_path)])
    for each in ROWS:
        monkeypatch.setitem(kinds.KINDS, each.id, replace(each, rule_family=each.family))
    registry.load.cache_clear()
    registry.kinds.cache_clear()
    yield dict(registry.load())
    for name in ("sleeping-transaction", "snoring-transaction"):
        registry.CATALOGUE.pop(name, None)
    del sys.modules["auditor.rules.made_up"]
    monkeypatch.undo()
    registry.load.cache_clear()
    registry.kinds.cache_clear()


def some_log() -> Any:
    return log_of([ReplicaFacts(join_key="b1", log_dir="b1", cluster_id=None, broker_id=1, topic="t", partition=0)])


def test_a_made_up_rule_reaches_every_page(catalogue: dict[str, registry.Rule]) -> None:
    assert list(catalogue)[-2:] == ["sleeping-transaction", "snoring-transaction"]  # in the order of the table
    assert "sleeping-transaction" in registry.catalogue(catalogue)
    assert "Reported as part of:\n  sleeping-transaction\n" in registry.page(catalogue["snoring-transaction"])

    wanted = [registry.kinds()[name] for name in ("snoring-transaction", "sleeping-transaction")]
    kept = resolve(registry.judge(some_log(), wanted))
    assert [(f.kind, f.severity, f.offset) for f in kept] == [
        ("sleeping-transaction", "error", 5),  # warning by itself: what it absorbs raises it
        ("snoring-transaction", "error", 6),
    ]
    (slept,) = (f for f in kept if f.kind == "sleeping-transaction")
    assert [also["message"] for also in slept.evidence["also"]] == ["It snores"]
    assert (slept.remedy, slept.source) == ("Wake it.", "a dream")

    held = safeguards.prevented_by(slept, catalogue[slept.rule].prevented_by, some_log().cluster)
    summary = empty_summary(prevention=safeguards.summed([(slept, held)]))
    page = render_report(report_of(registry.described(f.to_dict() for f in kept), summary), [], [])
    assert "1 partition blocked" in page
    assert "coffee.enable=true" in page


def test_a_finding_gets_rule_and_kind_from_the_check_that_yields_it(catalogue: dict[str, registry.Rule]) -> None:
    snoring = registry.kinds()["snoring-transaction"]
    found = list(registry.judge(some_log(), [snoring]))
    assert {(f.rule, f.kind) for f in found} == {("snoring-transaction", "snoring-transaction")}
    with pytest.raises(AssertionError, match="rule snoring-transaction yields a finding of torn-tail"):
        list(snoring.completed([Finding("torn-tail", "error")]))


def test_what_is_explained_explains_on(catalogue: dict[str, registry.Rule]) -> None:
    """All of a chain ends in the evidence of the one at its head, whatever order the findings come in."""
    chain = [
        Finding("hanging-transaction", "critical", topic="t", partition=0, producer_id=7, offset=5, message="a"),
        Finding("late-write-after-marker", "error", topic="t", partition=0, producer_id=7, offset=5, message="b"),
        Finding("epoch-regression", "critical", topic="t", partition=0, producer_id=7, offset=5, message="c"),
    ]
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        for f in chain:
            f.evidence.clear()
        (kept,) = resolve(chain[n] for n in order)
        assert [also["message"] for also in kept.evidence["also"]] == ["c", "b"]


def test_of_rules_that_absorb_their_own_the_first_finding_stays() -> None:
    """Two findings at one offset: neither is lost to the other."""
    one, other = (
        Finding("offsets-not-increasing", "critical", topic="t", partition=0, offset=5, last_offset=6, message=text,
                evidence={"log_dir": "b1", "expected": 9})
        for text in ("one", "other")
    )  # fmt: skip
    (kept,) = resolve([one, other])
    assert (kept.message, len(kept.evidence["also"])) == ("one", 1)


@pytest.mark.parametrize(
    ("by", "says"),
    [("no-such-rule", "absorbed_by names no rule"), ("snoring-transaction", "rules absorb each other")],
)
def test_a_mistaken_row_stops_the_catalogue(
    catalogue: dict[str, registry.Rule], monkeypatch: pytest.MonkeyPatch, by: str, says: str
) -> None:
    row = replace(kinds.KINDS["sleeping-transaction"], absorbed_by=(By(by, same_transaction),))
    monkeypatch.setitem(kinds.KINDS, row.id, row)
    for name in ("sleeping-transaction", "snoring-transaction"):
        del registry.CATALOGUE[name]
    exec(compile(MADE_UP, "made_up", "exec"), {"__name__": "auditor.rules.made_up"})  # registers both again
    registry.load.cache_clear()
    registry.kinds.cache_clear()
    with pytest.raises(AssertionError, match=says):
        registry.load()


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ('"waking-transaction"', "no row in KINDS"),
        ('"torn-tail"', "already there"),
        ('"snoring-transaction", when={"info": "at noon"}', "not in its row of KINDS"),
    ],
)
def test_a_check_without_its_row_is_refused(catalogue: dict[str, registry.Rule], declared: str, says: str) -> None:
    del registry.CATALOGUE["snoring-transaction"]
    text = MADE_UP.replace('"sleeping-transaction"', declared)
    with pytest.raises(AssertionError, match=says):
        exec(compile(text, "made_up", "exec"), {"__name__": "auditor.rules.made_up"})


def test_a_row_without_a_check_stops_the_catalogue(
    catalogue: dict[str, registry.Rule], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(kinds.KINDS, "waking-transaction", kinds.row("waking-transaction", "", "info", ""))
    registry.load.cache_clear()
    with pytest.raises(AssertionError, match=r"no check registers \['waking-transaction'\]"):
        registry.load()


def named_rules(source: str, ids: frozenset[str]) -> list[str]:
    """Ids of rules that stand in a source as text of their own, declarations of absorption left out."""
    if not any(name in source for name in ids):
        return []
    tree = ast.parse(source)
    calls = [c for c in ast.walk(tree) if isinstance(c, ast.Call) and isinstance(c.func, ast.Name)]
    arguments = [c.args[0] for c in calls if c.func.id == "By"]
    declared = {id(name) for argument in arguments for name in ast.walk(argument)}
    texts = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in declared]
    return [n.value for n in texts if isinstance(n.value, str) and n.value in ids]


def test_no_other_file_names_a_rule() -> None:
    table = ROOT / "rules" / "catalogue" / "kinds.py"
    home = dict.fromkeys(kinds.PAGES, "")
    home |= {name: each.check.__module__ for name, each in registry.kinds().items()}
    ids = frozenset(home)
    found = {}
    for folder in ("auditor", "connectors", "dashboards", "rules"):
        for path in (ROOT / folder).rglob("*.py"):
            if path == table:
                continue
            module = f"auditor.rules.{path.stem}" if path.parent == ROOT / "rules" else None
            strangers = [name for name in named_rules(path.read_text(encoding="utf-8"), ids) if home[name] != module]
            if strangers:
                found[path.relative_to(ROOT).as_posix()] = strangers
        for path in (ROOT / folder).rglob("*.j2"):
            text = path.read_text(encoding="utf-8")
            if named := [name for name in ids if re.search(rf"(?<![\w-]){name}(?![\w-])", text)]:
                found[path.relative_to(ROOT).as_posix()] = named
    assert not found


def test_a_name_of_a_rule_is_seen() -> None:
    ids = frozenset({"torn-tail"})
    assert named_rules("X = {'torn-tail': 1}", ids) == ["torn-tail"]
    assert not named_rules("absorbed_by = (By('torn-tail', at_the_torn_end),)\n'see torn-tail'", ids)
    assert not named_rules("By(('torn-tail', 'x'), at_the_torn_end)", ids)
