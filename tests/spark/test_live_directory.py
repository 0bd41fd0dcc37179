"""Whole audits, tables too, of a directory that changes under them: no exception, no alarm, what is gone is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from auditor import running
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.whole_audit import Say
from tests import corpora
from tests.changing_directory import CHANGES, changes_going_on, live_copy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "healthy-41"


def audited(folder: Path, out: Path, spark: SparkSession, say: Say = lambda step: None) -> int:
    """The exit status of an audit with everything."""
    as_of = corpora.manifest(NAME)["copied_at"]
    options = AuditOptions((str(folder),), out, records=True, tables=True, as_of=as_of)
    return running.audit(options, say, spark).exit_code()


@pytest.mark.parametrize("step", ["read and replay", "judge", "publish"])
def test_what_goes_between_two_steps_is_said(step: str, spark: SparkSession, tmp_path: Path) -> None:
    """Before the copies are read, with half of the work done, and before the tables are read."""
    folder = live_copy(NAME, tmp_path / "live")

    def change(at: str) -> None:
        if at == step:
            for one in CHANGES:
                one(folder)

    assert audited(folder, tmp_path / "out", spark, change) == 0
    findings = (tmp_path / "out" / "findings.jsonl").read_text(encoding="utf-8").splitlines()
    assert [line for line in findings if json.loads(line)["severity"] != "info"] == []
    reasons = {row["reason"] for row in json.loads((tmp_path / "out" / "summary.json").read_text())["unreadable"]}
    assert "unreadable" not in reasons
    assert ("vanished" in reasons) == (step == "read and replay")


def test_a_directory_that_keeps_changing_is_audited_to_the_end(spark: SparkSession, tmp_path: Path) -> None:
    """No broker does this to a directory, so that there may be findings; but never an exception."""
    folder = live_copy(NAME, tmp_path / "live")
    with changes_going_on(folder, 11) as fewer_changes_than:
        while fewer_changes_than(100):
            assert audited(folder, tmp_path / "out", spark) in (0, 1, 3)
    assert (tmp_path / "out" / "summary.json").exists()
