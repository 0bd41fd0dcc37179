"""Each command of docs/tracker-questions.md prints what the page says, and that is what its broker then did."""

from __future__ import annotations

from typing import Any

import pytest

import auditor
from auditor import cli
from auditor.dashboards import table_lines
from auditor.outputs import publish
from tests.asked import Question, folder, questions, said
from tests.facts import opened


@pytest.mark.parametrize("question", questions(), ids=lambda question: question.title)
def test_the_page_has_what_is_printed(question: Question, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([str(folder()) if word == "asked" else word for word in question.command]) == 0
    assert capsys.readouterr().out == question.answer


@pytest.fixture(scope="module")
def rows() -> dict[str, list[dict[str, Any]]]:
    with auditor.open(folder(), master="inline[1]", as_of=said()["as_of"]) as audit:
        return {name: audit.table(name).to_dicts() for name in ("lag", "space", "cleaner")}


def test_each_group_got_what_is_said(rows: dict[str, list[dict[str, Any]]]) -> None:
    found = {
        row["group_id"]: {"read_committed": row["committed_records"], "read_uncommitted": row["uncommitted_records"]}
        for row in rows["lag"]
    }
    assert found == said()["got"]


def test_retention_took_what_is_said(rows: dict[str, list[dict[str, Any]]]) -> None:
    """But for segments that came anew, of active ones that went."""
    for topic, left in said()["kept"].items():
        segments = [row for row in rows["space"] if row["topic"] == topic]
        stays = {row["base_offset"] for row in segments if not row["goes"] and row["kept_by"] != "cleanup_policy"}
        assert stays <= {*left}, topic
        assert not {row["base_offset"] for row in segments if row["goes"]} & {*left}, topic
    assert {row["topic"] for row in rows["space"] if row["goes"]} == {"expired", "metrics"}


def test_the_cleaner_came_as_far_as_is_said(rows: dict[str, list[dict[str, Any]]]) -> None:
    for row in rows["cleaner"]:
        if row["stands"] == "due":
            assert said()["cleaned"][row["topic"]] == row["first_uncleanable_offset"]
        elif row["stands"] == "faulty":
            assert said()["cleaned"].get(row["topic"], 0) == 0  # where it began
        elif not row["topic"].startswith("__"):
            assert said()["cleaned"].get(row["topic"]) == row["checkpoint"]


def test_the_page_has_a_card_of_each_and_of_nothing_else() -> None:
    """What is held, what a timestamp keeps, what the cleaner cannot pass; not what is as it always is."""
    rows = publish.run_report(opened(folder(), as_of=said()["as_of"])).summary["asides"]
    assert sorted((row["about"], row["topic"]) for row in rows) == [
        ("cleaner", "broken"), ("cleaner", "waiting"), ("group", "payments"), ("space", "metrics"),
    ]  # fmt: skip
    assert [card.command for card in table_lines.cards(rows)] == ["auditor lag", "auditor space", "auditor cleaner"]
