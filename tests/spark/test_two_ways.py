"""Spark, Spark Connect and the processes of this machine give the same findings and the same tables."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from auditor import running
from auditor.commands.demo import DEMO
from auditor.pipeline.options import AuditOptions
from tests import corpora
from tests.conftest import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def options(name: str, out: Path, **more: Any) -> AuditOptions:
    path, as_of = (DEMO / "logs", int((DEMO / "as-of").read_text())) if name == "demo" else _of_corpus(name)
    return AuditOptions((str(path),), out, records=True, as_of=as_of, master="inline[2]", **more)


def _of_corpus(name: str) -> tuple[Path, int]:
    return corpora.unpack(name), corpora.manifest(name)["copied_at"]


def findings(out: Path) -> bytes:
    return (out / "findings.jsonl").read_bytes()


def tables(out: Path) -> dict[str, tuple[object, list[str]]]:
    """Schema and rows of every table; in which order rows come is nobody's promise."""
    read = {path.name: pq.read_table(path) for path in (out / "tables").iterdir()}
    return {name: (rows.schema, sorted(map(repr, rows.to_pylist()))) for name, rows in read.items()}


@pytest.mark.parametrize("name", ["demo", "altered-41", "hanging-36", "replicas-41"])
def test_findings_are_the_same_bytes(name: str, spark: SparkSession, tmp_path: Path) -> None:
    running.audit(options(name, tmp_path / "spark"), spark=spark)
    running.audit(options(name, tmp_path / "inline"))
    assert findings(tmp_path / "inline") == findings(tmp_path / "spark")
    assert findings(tmp_path / "inline")


def test_tables_are_the_same(spark: SparkSession, tmp_path: Path) -> None:
    running.audit(options("altered-41", tmp_path / "spark [1]", tables=True), spark=spark)
    running.audit(options("altered-41", tmp_path / "inline", tables=True))
    assert tables(tmp_path / "inline") == tables(tmp_path / "spark [1]")


@pytest.mark.spark
def test_connect_says_the_same(tmp_path: Path) -> None:
    running.audit(options("hanging-36", tmp_path / "inline", tables=True))
    path, as_of = _of_corpus("hanging-36")
    command = [sys.executable, "-m", "tests.spark.connect_audit", str(path), str(as_of), str(tmp_path / "connect")]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, capture_output=True, text=True, env=env, check=False, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert findings(tmp_path / "connect") == findings(tmp_path / "inline")
    assert tables(tmp_path / "connect") == tables(tmp_path / "inline")
