"""Copies read in parts on Spark: not a byte of the results differs from those of copies read whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from auditor import running
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.plan import segment_tasks
from auditor.replay.bounds import INTERNAL_TOPICS
from auditor.replay.copy_task import CopyTask, TextTask
from auditor.spark import scan
from auditor.spark.split import read_parts
from tests import corpora
from tests.unit.test_split import in_parts, tasks_below

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
Divided = tuple[list[CopyTask], list[CopyTask | TextTask]]


def divide_all(tasks: list[CopyTask | TextTask], slots: int) -> Divided:
    """Instead of :func:`auditor.pipeline.plan.divide`: all copies in parts but those that never may be, however
    small."""
    large = [t for t in tasks if isinstance(t, CopyTask) and t.copy.segments and t.copy.topic not in INTERNAL_TOPICS]
    return large, [t for t in tasks if t not in large]


def audited(name: str, out: Path, spark: SparkSession, *, tables: bool = False) -> Path:
    as_of = corpora.manifest(name)["copied_at"]
    path = (str(corpora.unpack(name)),)
    running.audit(AuditOptions(path, out, records=True, as_of=as_of, tables=tables), lambda _: None, spark)
    return out


def results(out: Path) -> dict[str, Any]:
    """What an audit wrote, but for how long it took, tables as rows in the order of their texts."""
    import pyarrow.parquet as pq

    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    summary.pop("timings", None)
    tables = {p.name: sorted(map(str, pq.read_table(p).to_pylist())) for p in sorted(out.glob("tables/*"))}
    return {"findings": (out / "findings.jsonl").read_bytes(), "summary": summary, "tables": tables}


@pytest.mark.parametrize(("name", "tables"), [("altered-41", True), ("hanging-36", False), ("replicas-41", False)])
def test_results_are_the_same_bytes_in_parts(
    name: str, tables: bool, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = results(audited(name, tmp_path / "whole", spark, tables=tables))
    monkeypatch.setattr(scan, "divide", divide_all)
    parts = results(audited(name, tmp_path / "parts", spark, tables=tables))
    assert parts["summary"] == whole["summary"]
    assert parts == whole
    assert whole["findings"]
    assert bool(whole["tables"]) == tables


def in_other_process(out: Path, master: str, file: str = "no such file", once: str = "") -> int:
    """An audit in parts of a corpus, with a file that kills whoever opens it; returns its exit status."""
    call = (
        "import sys; from auditor.spark import scan; from tests import crashing_files\n"
        "from tests.spark.test_split import divide_all\n"
        "scan.divide = divide_all\n"
        "sys.exit(crashing_files.main(*sys.argv[1:]))"
    )
    command = [sys.executable, "-c", call, "altered-41", str(out), file, "exit", once, master]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, capture_output=True, text=True, env=env, check=False, cwd=out.parent)
    assert ran.returncode in (1, 3), ran.stderr
    return ran.returncode


@pytest.fixture(scope="module")
def sound(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return audited("altered-41", tmp_path_factory.mktemp("sound"), spark)


def test_findings_are_the_same_bytes_on_one_slot(sound: Path, tmp_path: Path) -> None:
    assert in_other_process(tmp_path / "out", "local[1]") == 1
    assert (tmp_path / "out" / "findings.jsonl").read_bytes() == (sound / "findings.jsonl").read_bytes()


@pytest.mark.parametrize("kind", [".log", ".index"])
def test_a_worker_that_dies_once_changes_nothing(kind: str, sound: Path, tmp_path: Path) -> None:
    """Over a segment, in the first stage, and over an index, in the second."""
    flag = tmp_path / "died"
    assert in_other_process(tmp_path / "out", "local[2]", kind, str(flag)) == 1
    assert flag.exists()
    assert (tmp_path / "out" / "findings.jsonl").read_bytes() == (sound / "findings.jsonl").read_bytes()


@pytest.mark.parametrize("kind", ["log", "index"])
def test_a_file_that_always_kills_is_named(kind: str, tmp_path: Path) -> None:
    task = next(t for t in tasks_below(corpora.unpack("altered-41")) if len(t.copy.segments) > 1)
    segment = task.copy.segments[1]
    file = segment.name if kind == "log" else str(segment.index and segment.index.name)
    assert in_other_process(tmp_path / "out", "local[1]", file) == 3
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    reported = {(e["file"], e["detail"]) for e in summary["unreadable"] if e["reason"] == "unreadable"}
    assert reported == {(file, "reading it ends the process: exit status 7")}
    files = (p for p in corpora.unpack("altered-41").rglob("*") if p.is_file())
    assert summary["bytes"]["total"] == sum(p.stat().st_size for p in files)


@pytest.mark.parametrize("parts", [1, 100])
def test_chunks_arrive_one_copy_a_partition_and_in_order(parts: int, spark: SparkSession) -> None:
    tasks = tasks_below(corpora.unpack("altered-41"))
    chunks = read_parts(spark, tasks, parts).drop("packed")
    found = chunks.rdd.glom().map(lambda rows: [tuple(row) for row in rows]).collect()
    expected = [[(k, n, 0) for n in range(len(t.copy.segments))] for k, t in enumerate(tasks)]
    assert found == expected
    assert sum(map(len, found)) == len(segment_tasks(tasks)) > len(in_parts(tasks[:1]))
