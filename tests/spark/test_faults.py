"""Workers that die: once, and nothing is different; always over one file, and that file is named, all else audited.

Replicas are read whole, and in parts: there over a segment in the first stage, over an index in the second.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from auditor import running
from auditor.pipeline import plan
from auditor.pipeline.options import AuditOptions
from auditor.spark import scan
from tests import corpora
from tests.audited import published
from tests.crashing_files import crashing_tasks
from tests.spark.test_split import divide_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "hanging-36"
IN_PARTS = "altered-41"  # most replicas of which have three segments


def options(name: str, out: Path) -> AuditOptions:
    as_of = corpora.manifest(name)["copied_at"]
    return AuditOptions((str(corpora.unpack(name)),), out, records=True, as_of=as_of)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What audits without any fault, and without Spark, leave."""
    folders = {name: tmp_path_factory.mktemp("sound") for name in (NAME, IN_PARTS)}
    for name, out in folders.items():
        published(options(name, out))
    return folders


def findings(out: Path) -> list[str]:
    return (out / "findings.jsonl").read_text(encoding="utf-8").splitlines()


def with_all_bytes(name: str, out: Path) -> list[tuple[str, str, str]]:
    """The files that a run says it could not read, once it was seen that it accounts for every byte."""
    summary = json.loads((out / "summary.json").read_text())
    assert summary["bytes"]["total"] == sum(p.stat().st_size for p in corpora.unpack(name).rglob("*") if p.is_file())
    return [(e["file"], e["reason"], e["detail"]) for e in summary["unreadable"] if e["reason"] == "unreadable"]


@pytest.mark.parametrize(
    ("name", "kind", "how"), [(NAME, ".log", "segfault"), (IN_PARTS, ".log", "exit"), (IN_PARTS, ".index", "exit")]
)
def test_a_worker_that_dies_once_changes_nothing(
    name: str, kind: str, how: str, sound: dict[str, Path], spark: SparkSession, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    flag = tmp_path / "died"
    monkeypatch.setattr(plan, "replica_tasks", crashing_tasks(kind, how, str(flag)))
    if name == IN_PARTS:
        monkeypatch.setattr(scan, "divide", divide_all)
    assert running.audit(options(name, tmp_path / "out"), spark=spark).exit_code() == 1
    assert flag.exists()
    assert findings(tmp_path / "out") == findings(sound[name])
    assert with_all_bytes(name, tmp_path / "out") == with_all_bytes(name, sound[name])


def victim(name: str, kind: str) -> tuple[str, str]:
    """A partition, and a file of it: of its first segment, or of its second where replicas are read in parts."""
    folders = sorted({p.parent for p in corpora.unpack(name).rglob("*.log") if p.parent.name[0] != "_"})
    number = 0 if name == NAME else 1
    folder = next(f for f in folders if len(list(f.glob("*.log"))) > number and "delete" not in f.name)
    return folder.name, f"{folder.name}/{sorted(folder.glob(f'*{kind}'))[number].name}"


def elsewhere(out: Path, place: str) -> list[str]:
    """The findings that are not about a partition."""
    rows = [(line, json.loads(line)) for line in findings(out)]
    return [line for line, row in rows if f"{row['topic']}-{row['partition']}" != place]


@pytest.mark.parametrize(("name", "kind"), [(NAME, ".log"), (IN_PARTS, ".log"), (IN_PARTS, ".index")])
def test_a_file_that_always_kills_is_named_and_all_else_is_audited(
    name: str, kind: str, sound: dict[str, Path], spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, file = victim(name, kind)
    monkeypatch.setattr(plan, "replica_tasks", crashing_tasks(file, "exit"))
    if name == IN_PARTS:
        monkeypatch.setattr(scan, "divide", divide_all)
    assert running.audit(options(name, tmp_path / "out"), spark=spark).exit_code() == 3
    detail = "reading it ends the process: exit status 7"
    assert with_all_bytes(name, tmp_path / "out") == [(file, "unreadable", detail)]
    assert elsewhere(tmp_path / "out", place) == elsewhere(sound[name], place)
    assert elsewhere(sound[name], place)
