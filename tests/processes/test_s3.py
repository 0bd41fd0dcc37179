"""A whole audit of a bucket, workers and all: the findings of the local copy, and no credential left anywhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from auditor.pipeline.options import AuditOptions
from tests import corpora, store
from tests.audited import published
from tests.conftest import ROOT

NAME = "hanging-36"


@pytest.mark.spark
def test_a_bucket_gives_the_findings_of_the_local_copy(tmp_path: Path) -> None:
    as_of = corpora.manifest(NAME)["copied_at"]
    local = AuditOptions((str(corpora.unpack(NAME)),), tmp_path / "local", records=True, as_of=as_of)
    published(local)
    (tmp_path / "events").mkdir()
    with store.serving() as credentials:
        store.upload(corpora.unpack(NAME), "copies", credentials)
        # The event log shows what a history server would show of the run.
        events = "--conf spark.eventLog.enabled=true --conf spark.eventLog.dir=file://" + str(tmp_path / "events")
        env = store.clean_environment(credentials)
        env |= {"PYTHONPATH": str(ROOT), "PYSPARK_SUBMIT_ARGS": f"{events} pyspark-shell"}
        command = [sys.executable, "-m", "auditor.cli", "audit", "s3://copies", "--records", "--as-of", str(as_of)]
        command += ["--master", "local[1]", "--out", str(tmp_path / "s3")]
        ran = subprocess.run(command, capture_output=True, text=True, env=env, check=False, cwd=tmp_path)
    assert ran.returncode == 1, ran.stderr
    found = (tmp_path / "s3" / "findings.jsonl").read_bytes()
    assert found == (tmp_path / "local" / "findings.jsonl").read_bytes()
    assert b"hanging-transaction" in found
    assert "4 PARTITIONS BLOCKED" in ran.stdout
    assert any((tmp_path / "events").rglob("*"))
    left = [path for path in tmp_path.rglob("*") if path.is_file() and store.SECRET.encode() in path.read_bytes()]
    assert not left
    assert store.SECRET not in ran.stdout + ran.stderr
    assert store.KEY not in ran.stdout + ran.stderr
