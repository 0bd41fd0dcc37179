"""auditor sql: a text or a shell, the engine, and one line for what is wrong."""

from __future__ import annotations

import io
import json

import pytest

from auditor import cli
from auditor.base.errors import AuditInputError
from auditor.commands import sql
from auditor.pipeline.derived_tables import NAMES
from tests import corpora

PATH = str(corpora.unpack("hanging-36"))
LONG = f"SELECT {'producer_id, ' * 30}offset FROM batches"  # longer than a file's name may be


def test_the_shell_answers_until_it_ends(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Of what comes through a pipe, without prompts; a wrong column is one line, and the next question is answered."""
    text = "SHOW TABLES;\nselect nope from batches;\nselect count(*) AS n\n from\n transaction_partitions"
    text += "\n where class = 'hanging';"
    monkeypatch.setattr("sys.stdin", io.StringIO(text + "\nquit\nselect 1;\n"))
    assert cli.main(["sql", PATH, "--engine", "duckdb", "--format", "json"]) == 0
    said = capsys.readouterr()
    rows = [json.loads(line) for line in said.out.splitlines()]
    hanging = sum(e["finding"] == "hanging_transaction" for e in corpora.manifest("hanging-36")["expect"])
    assert rows == [*({"name": name} for name in NAMES), {"n": hanging}]
    assert said.err.startswith('auditor: Binder Error: Referenced column "nope" not found')
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["select 1", "x"], "select 1"),
        (["SHOW TABLES", "x"], "SHOW TABLES"),
        (["from batches", "x", "y"], "from batches"),
        ([LONG, "x"], LONG),
        (["/copies", "y"], None),
        (["s3://bucket/x"], None),
        ([PATH], None),
    ],
)
def test_what_is_the_text_and_what_are_paths(words: list[str], text: str | None) -> None:
    assert sql.split(words) == (text, tuple(words if text is None else words[1:]))


def test_what_makes_no_sense_is_a_mistake() -> None:
    with pytest.raises(AuditInputError, match="missing PATH"):
        sql.split(["select 1"])
    with pytest.raises(AuditInputError, match="after a path"):
        sql.split([PATH, "select 1"])
    with pytest.raises(AuditInputError, match="does not run on"):
        sql.master("duckdb", "local[2]")
    assert sql.master("duckdb", None) == "inline"
    assert sql.master("spark", None) == "local[*]"
    assert sql.master(None, "inline[2]") == "inline[2]"


def test_duckdb_answers_by_default_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (sql.master(None, None), sql.master(None, "local[2]")) == ("inline", "local[2]")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert sql.master(None, None) is None


def test_tables_and_columns_are_completed() -> None:
    assert {"transactions", "producer_epoch", "SELECT"} <= set(sql.words(False))
    assert "value" not in sql.words(False) or "key" not in sql.words(False)
    assert {"key", "value"} <= set(sql.words(True))


def test_an_empty_answer_is_said_to_people_alone(capsys: pytest.CaptureFixture[str]) -> None:
    ask = ["sql", "SELECT topic FROM batches WHERE topic = 'none of the name'", PATH, "--engine", "duckdb"]
    assert cli.main(ask) == cli.main([*ask, "--format", "json"]) == 0
    assert capsys.readouterr().out == "no rows\n"
