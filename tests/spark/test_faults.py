"""Workers that die: once, and nothing is different; always over one file, and that file is named, all else audited.

Replicas are read whole, and in parts: there over a segment in the first stage, over an index in the second. Of long
ones headers are read again when they are judged. Attempts that were lost with their machines change nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from pyspark import TaskContext

from auditor import running
from auditor.connectors.stores.storage import StorageLocation
from auditor.facts.replica_facts import ReplicaFacts, log_of
from auditor.inline import InlineRunner
from auditor.pipeline import plan
from auditor.pipeline.judge import judge_log
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.runner import LOG, Judged, Pair, Runner, row_of
from auditor.processes.isolation import Pool
from auditor.replay.reading import segment_checks
from auditor.replay.reading.segment_checks import SegmentHeaders
from auditor.rules.seen.cluster_view import Cluster
from auditor.spark import jobs
from tests import corpora
from tests.audited import published
from tests.crashing_files import CrashingPlace, crashing_tasks
from tests.facts import opened
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
        monkeypatch.setattr(jobs, "divide", divide_all)
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
        monkeypatch.setattr(jobs, "divide", divide_all)
    assert running.audit(options(name, tmp_path / "out"), spark=spark).exit_code() == 3
    detail = "reading it ends the process: exit code 7"
    assert with_all_bytes(name, tmp_path / "out") == [(file, "unreadable", detail)]
    assert elsewhere(tmp_path / "out", place) == elsewhere(sound[name], place)
    assert elsewhere(sound[name], place)


LONG = "replicas-41"


class Long(NamedTuple):
    """Facts of replicas that are compared by sums, and what judges their logs; ``again``: places and names of the
    segments that are then read again."""

    pairs: list[Pair]
    clusters: dict[str, Cluster]
    kinds: tuple[str, ...]
    again: list[tuple[StorageLocation, str]]

    def inline(self, judge: Any = None) -> list[tuple[str, str]]:
        """What is said of them without Spark."""
        with Pool(1) as pool:
            return self.judged(InlineRunner(pool), judge or partial(judge_log, kinds=self.kinds))

    def judged(self, runner: Runner, judge: Any) -> list[tuple[str, str]]:
        """The rows of judging them on a way to run, as texts."""
        return said(runner.judge(runner.keep(lambda: self.pairs), self.clusters, judge))


def said(rows: Iterable[Judged]) -> list[tuple[str, str]]:
    """Rows of all kinds as texts."""
    found: list[tuple[str, str]] = []
    for kind, row in rows:
        each = map(row_of, row[0]) if kind == LOG else [row]
        found += [(kind, json.dumps(one)) for one in each]
    return sorted(found)


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> Long:
    again: list[tuple[StorageLocation, str]] = []
    read = SegmentHeaders.read

    def noted(self: SegmentHeaders, number: int, *where: Any) -> Iterator[Any]:
        again.append((self.place, self.segments[number][0]))
        yield from read(self, number, *where)

    with monkeypatch.context() as here:
        here.setattr(segment_checks, "MOST_KEPT", -1)
        here.setattr(SegmentHeaders, "read", noted)
        audit = opened(corpora.unpack(LONG))
        _ = audit.judged
    pairs = sorted(audit.replicas.pairs(), key=lambda pair: log_of(pair[0]))
    return Long(pairs, audit.clusters, tuple(audit.kinds), again)


def lost_twice(replicas: list[ReplicaFacts], cluster: Cluster, kinds: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Judges a log at the third attempt: to Spark a machine that goes is a task that failed, too."""
    context = TaskContext.get()
    if context is not None and context.attemptNumber() < 2:
        raise RuntimeError("as if its machine had gone")
    yield from judge_log(replicas, cluster, kinds)


def test_attempts_that_were_lost_leave_no_file_out(long: Long, spark: SparkSession) -> None:
    assert long.again, "nothing is read again"
    runner = running.runner_for(None, spark)
    assert long.judged(runner, partial(lost_twice, kinds=long.kinds)) == long.inline()


def killed(
    replicas: list[ReplicaFacts], cluster: Cluster, kinds: tuple[str, ...], place: StorageLocation, name: str
) -> Iterator[tuple[str, Any]]:
    """Judges a log, and ends where it opens that file."""
    for facts in replicas:
        files = getattr(facts.digests, "files", None)
        if files is not None and files.place == place and name in [segment[0] for segment in files.segments]:
            facts.digests.files = replace(files, place=CrashingPlace(*place, name, "exit", ""))  # type: ignore[union-attr, arg-type]
    yield from judge_log(replicas, cluster, kinds)


def test_a_file_that_kills_who_judges_is_named(long: Long, spark: SparkSession) -> None:
    place, name = long.again[0]
    judge = partial(killed, kinds=long.kinds, place=place, name=name)
    found, whole = long.judged(running.runner_for(None, spark), judge), long.inline()
    assert found == long.inline(judge) != whole
    (row,) = [json.loads(text) for kind, text in found if kind == LOG and "ends the process" in text]
    detail = "reading it ends the process: exit code 7, when replicas were compared"
    assert [(e["file"], e["detail"]) for e in row["errors"] if e["reason"] == "unreadable"] == [(name, detail)]
    others = [text for kind, text in whole if kind == LOG and json.loads(text)["partition"] != row["partition"]]
    assert others
    assert set(others) <= {text for _, text in found}
