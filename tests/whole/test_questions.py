"""A cluster with three replicas answers every question of the pages as one replica does."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import pytest

import auditor
from auditor.connectors import schema
from auditor.pipeline.derived_tables import NAMES
from auditor.pipeline.whole_audit import Audit
from scripts.tables_page import QUESTIONS
from tests import corpora
from tests.conftest import ROOT
from tests.cookbook import Recipe, plain, recipes
from tests.facts import opened

CORPUS = "replicas-41"  # three brokers, each with a replica of every partition
# Of each broker its own; and what only replicas beside each other show.
DIFFER = {"broker_configs", "findings", "Replicas of different size"}
OVER_NIGHTS = "Findings over nights (`--history DIR`)"
TEXTS = {name: schema.TABLES[name].example for name in NAMES if name != "verdicts"}
TEXTS |= {recipe.title: recipe.sql for recipe in recipes()} | QUESTIONS
AS_ONE = [name for name in TEXTS if name not in {*DIFFER, OVER_NIGHTS}]


@functools.cache
def audit_of(part: str = "") -> Audit:
    return opened(corpora.unpack(CORPUS) / part, as_of=corpora.manifest(CORPUS)["copied_at"])


def answer(text: str, part: str = "") -> list[dict[str, Any]]:
    """Without the controllers' own log, which each broker has as far as it had fetched it when it stopped."""
    rows: list[dict[str, Any]] = plain(audit_of(part).query(text).to_pylist())
    return [row for row in rows if row.get("topic") != "__cluster_metadata"]


@pytest.mark.parametrize("name", AS_ONE)
def test_three_replicas_answer_as_one(name: str) -> None:
    expected = sorted(map(str, answer(TEXTS[name], "broker-1")))
    assert sorted(map(str, answer(TEXTS[name]))) == expected


@functools.cache
def in_python(part: str) -> auditor.OpenedAudit:
    return auditor.open(corpora.unpack(CORPUS) / part, master="inline[1]", as_of=corpora.manifest(CORPUS)["copied_at"])


@pytest.mark.parametrize("recipe", recipes(), ids=lambda recipe: recipe.title)
def test_three_replicas_answer_as_one_in_python(recipe: Recipe) -> None:
    answers = []
    for part in ("", "broker-1"):
        given: dict[str, Any] = {"audit": in_python(part)}
        exec(recipe.python, given)
        answers.append(sorted(map(str, plain(given["answer"].to_dict("records")))))
    assert answers[0] == answers[1]


def ended() -> list[str]:
    """How each transaction of the generator ended: commit or abort."""
    return [s["op"] for s in corpora.manifest(CORPUS)["steps"] if s.get("op") in ("commit", "abort")]


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/python.md"])
def test_the_first_example_counts_three_replicas_once(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Findings differ: some are about replicas beside each other."""
    text = (ROOT / page).read_text(encoding="utf-8")
    block = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    exec(block.replace("/copies/broker-1", str(corpora.unpack(CORPUS))), {})
    assert capsys.readouterr().out.splitlines()[-1] == str(len(ended()))


def test_twelve_questions_are_a_line_each() -> None:
    assert len(QUESTIONS) == 12
    assert not any("\n" in text for text in QUESTIONS.values())


def test_the_generators_transactions_are_counted_once() -> None:
    """Its steps say how many were committed and aborted, of one id with one epoch."""
    ends = ended()
    (row,) = answer("SELECT count(*) FILTER (outcome = 'ABORT') AS a, count(*) AS n FROM transactions")
    assert (row["a"], row["n"]) == (ends.count("abort"), len(ends))
    (aborts,) = answer(QUESTIONS["Who aborts most"])
    assert aborts["aborted"] == ends.count("abort")
    assert sum(minute["transactions"] for minute in answer(QUESTIONS["Transactions per minute"])) == len(ends)


def test_replicas_of_one_size_are_no_answer_and_others_are(tmp_path: Path) -> None:
    assert answer(QUESTIONS["Replicas of different size"]) == []
    apart = opened(corpora.unpack("replicas-39-unclean")).query(QUESTIONS["Replicas of different size"]).to_pylist()
    assert apart
    assert all(row["least"] < row["most"] for row in apart)


def test_findings_over_nights_are_those_of_each_run(tmp_path: Path) -> None:
    with auditor.open(corpora.unpack("hanging-36"), master="inline[1]") as audit:
        for night in ("first", "second"):
            audit.write(tmp_path / night, history=tmp_path / "kept", run_id=night)
        rows = audit.sql(QUESTIONS[OVER_NIGHTS].replace("'DIR/", f"'{tmp_path / 'kept'}/")).to_dicts()
        expected = len(audit.findings)
    for night in ("first", "second"):
        assert sum(row["findings"] for row in rows if row["run_id"] == night) == expected


def test_numbers_stay_whole_in_pandas_where_some_are_null() -> None:
    with auditor.open(corpora.unpack("hanging-36"), master="inline[1]") as audit:
        frame = audit.table("transactions").to_pandas()
    assert frame["duration_ms"].isna().any()
    assert {str(frame[name].dtype) for name in ("duration_ms", "offset", "records", "producer_id")} == {"Int64"}
    assert str(frame["producer_epoch"].dtype) == "Int32"
