"""What is printed: by place, owner and severity; results and exit status are of all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from auditor import cli
from auditor.dashboards.finding_groups import Selection
from tests import corpora


@pytest.mark.parametrize(
    ("selection", "holds"),
    [
        (Selection(partitions=("t-1",)), True),
        (Selection(partitions=("t-*", "x-1")), True),
        (Selection(partitions=("1",)), True),
        (Selection(partitions=("t-10",)), False),
        (Selection(brokers=(3, 4)), True),
        (Selection(brokers=(4,)), False),
        (Selection(transactional_ids=("app[1]",)), True),
        (Selection(transactional_ids=("app?1*",)), True),
        (Selection(transactional_ids=("app",)), False),
        (Selection(groups=("g",)), False),
        (Selection(partitions=("t-1",), brokers=(4,)), False),
    ],
)
def test_each_kind_must_fit_and_of_each_any_value(selection: Selection, holds: bool) -> None:
    row = {"topic": "t", "partition": 1, "broker_id": 3, "transactional_id": "app[1]", "group_id": None}
    assert selection.holds(row) is holds


def test_a_held_partition_is_of_the_groups_that_read_it() -> None:
    assert Selection(groups=("g*",)).holds({"readers": ["a", "g1"]})


def test_severities_are_ordered_and_a_selection_says_what_it_is() -> None:
    chosen = Selection("warning", ("t-1", "u-2"), (3,))
    assert [chosen.shows({"severity": s, "topic": "t", "partition": 1, "broker_id": 3})
            for s in ("critical", "error", "warning", "info")] == [True, True, True, False]  # fmt: skip
    assert chosen.text() == "partition t-1 or u-2, broker 3, warning and above"
    assert not Selection().narrow


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    out = tmp_path_factory.mktemp("selection") / "out"
    as_of = str(corpora.manifest("hanging-36")["copied_at"])
    return ["audit", str(corpora.unpack("hanging-36")), "--out", str(out), "--as-of", as_of, "--master", "inline[1]"]


def test_only_what_is_asked_for_is_printed_and_all_of_it_counts(
    call: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*call, "--format", "json", "--transactional-id", "bank-c*", "--partition", "bank.ledger-*"]) == 1
    said = capsys.readouterr()
    rows = [json.loads(line) for line in said.out.splitlines()]
    assert {row["transactional_id"] for row in rows} == {"bank-commit", "bank-cured"}
    assert said.err.startswith("4 PARTITIONS BLOCKED\n")
    assert "Listed: 3 (partition bank.ledger-*, transactional id bank-c*)" in said.err
    assert len(Path(call[3], "findings.jsonl").read_text(encoding="utf-8").splitlines()) == 7


def test_blocked_partitions_that_are_not_printed_are_counted(
    call: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Four are blocked (manifest of the corpus); one is asked for."""
    assert cli.main([*call, "--partition", "bank.ledger-0"]) == 1
    said = capsys.readouterr().out
    assert " ".join(said.split()).count("read_committed consumers stop") == 1
    assert "\nNot listed: 3 more blocked partitions\n" in said


@pytest.mark.parametrize(
    ("option", "value"),
    [("--partition", "bank.ledger-99"), ("--broker", "7"), ("--transactional-id", "nobody"), ("--group", "nobody"),
     ("--topic", "nothing*")],
)  # fmt: skip
def test_what_matches_nothing_of_the_input_is_a_mistake(
    call: list[str], option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*call, option, value]) == 2
    assert f"{option} {value} matches no" in capsys.readouterr().err
