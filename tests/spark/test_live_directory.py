"""Audits on Spark, tables too, of a directory that changes under them: no exception, no alarm, what is gone is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from auditor import running
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.whole_audit import Say
from tests import corpora
from tests.changing_directory import CHANGES, live_copy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "healthy-41"


def audited(folder: Path, out: Path, spark: SparkSession, say: Say = lambda step: None) -> int:
    """The exit status of an audit with everything."""
    as_of = corpora.manifest(NAME)["copied_at"]
    options = AuditOptions((str(folder),), out, records=True, tables=True, as_of=as_of)
    return running.audit(options, say, spark).exit_code()


@pytest.mark.parametrize("step", ["read and replay", "judge"])
def test_what_goes_between_two_steps_is_said(step: str, spark: SparkSession, tmp_path: Path) -> None:
    """Before the replicas are read, and with half of the work done: what Spark holds it does not read again."""
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
