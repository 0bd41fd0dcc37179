"""Evidence in words: nothing is left out, and nothing reads like a program's own notation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from auditor.dashboards.wording import in_words
from tests import corpora


@pytest.mark.parametrize(
    ("name", "fact", "said"),
    [
        ("age_ms", 38_262, ("age", "38 s")),
        ("bytes", 2048, ("size", "2 KiB")),
        ("bytes", -1, ("size", "-1")),
        ("since", "2026-11-22T00:31:36.989Z", ("open since", "2026-11-22 00:31:36 UTC")),
        ("commits_offsets", False, ("commits offsets", "no")),
        ("coordinator_producer_id", 1_000_005, ("coordinator producer id", "1000005")),
        ("same_as_leader_copy", [], ("same as leader copy", "none")),
        ("in_sync", [1, 3], ("in sync", "1, 3")),
        ("leader_epochs", {"leader_copy": [[2, 0], [3, 20]]}, ("leader epochs", "leader copy (2, 0), (3, 20)")),
        ("lost", {"from": "2026-11-22T00:35:06.625Z", "lies_on": {"broker_id": 1, "folder": "un-0"}},
         ("lost", "from 2026-11-22 00:35:06 UTC; lies on broker id 1, folder un-0")),
        ("also", [{"severity": "critical", "rule": "missing-marker", "message": "no marker"}, {"message": "two"}],
         ("related findings", "critical missing-marker: no marker; two")),
    ],
)  # fmt: skip
def test_a_fact_is_said_as_people_say_it(name: str, fact: Any, said: tuple[str, str]) -> None:
    assert in_words({name: fact}) == [said]


def test_what_was_expected_comes_first_and_what_is_not_known_is_not_said() -> None:
    said = in_words({"age_ms": 1, "found": 12, "log_start": None, "expected": 0})
    assert said == [("expected", "0"), ("found", "12"), ("age", "1 ms")]


def test_a_name_from_the_input_stays_short_and_deep_structures_end() -> None:
    deep: Any = "end"
    for _ in range(50):
        deep = {"in": deep}
    ((name, said),) = in_words({"n" * 500: deep})
    assert len(name) < 120
    assert said.startswith("in in in ")


def test_no_evidence_of_a_corpus_is_left_as_json() -> None:
    """Every fact that the corpora's ground truth has, in the shapes that it has there."""
    facts = [row for name in corpora.names() for row in corpora.manifest(name).get("expect", ())]
    assert facts
    for fact in facts:
        said = in_words(json.loads(json.dumps(fact)))
        assert len(said) == sum(value is not None for value in fact.values())
        assert not any("{" in text or "_ms" in label for label, text in said)
