"""``--tables`` with ``--out`` at a URI: tasks that share no disk put parts of tables into the store by themselves."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyspark
import pytest

from auditor.base.errors import AuditFailure
from auditor.connectors.stores import remote_files
from auditor.connectors.stores.results import ResultFolder
from auditor.inline import InlineRunner
from auditor.outputs.delivery import RESULTS
from auditor.pipeline import table_tasks
from auditor.pipeline.options import AuditOptions
from tests import corpora, failing_store
from tests.audited import published
from tests.conftest import NIGHTLY, ROOT
from tests.failing_store import BREAKS_OFF, TIMES_OUT, TOO_SHORT, UNANSWERED, FailingStore, Fault
from tests.written_tables import tables_of

NAME = "hanging-36"
OUT = "s3://results/tonight"
AS_OF = corpora.manifest(NAME)["copied_at"]


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FailingStore]:
    """A store with a corpus and an empty bucket, which the standard variables lead to."""
    monkeypatch.setenv("AUDITOR_STORE_PATIENCE", "60")
    (tmp_path / "bucket").mkdir()
    with failing_store.failing(results=tmp_path / "bucket", copies=corpora.unpack(NAME)) as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        remote_files.filesystem.cache_clear()
        yield server
    remote_files.filesystem.cache_clear()


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an audit leaves in a folder."""
    out = tmp_path_factory.mktemp("local")
    published(options(out))
    return out


def options(out: Path | str) -> AuditOptions:
    return AuditOptions((str(corpora.unpack(NAME)),), out, as_of=AS_OF, records=True, tables=True)


def left(server: FailingStore) -> Path:
    return server.buckets["results"] / "tonight"


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def names(folder: Path) -> set[str]:
    """The results in a folder, but for the claim that nothing else writes there."""
    return {name for name in files(folder) if name != ".lock"}


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks without Spark behave as those of a cluster do."""
    monkeypatch.setattr(InlineRunner, "elsewhere", True)


def test_a_store_gets_the_tables_that_a_folder_gets(
    s3: FailingStore, local: Path, elsewhere: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one part a table, and of a part for every few rows."""
    for most in (table_tasks.MOST_BYTES, 0):
        monkeypatch.setattr(table_tasks, "MOST_BYTES", most)
        published(options(OUT))
        assert tables_of(left(s3)) == tables_of(local)
        assert (left(s3) / "findings.jsonl").read_bytes() == (local / "findings.jsonl").read_bytes()
        there = names(left(s3))
        assert there == names(local) if most else there > names(local)


def test_each_part_is_put_once_and_copied_by_the_store(s3: FailingStore, local: Path, elsewhere: None) -> None:
    """No byte of a table goes through the driver, but of those that it holds itself."""
    published(options(OUT))
    puts = [r for r in s3.log if r.method == "PUT" and "/.unfinished/" in r.key and r.key.endswith(".parquet")]
    parts = [name for name in names(local) if name.startswith("tables/") and "findings" not in name]
    assert 3 < len(puts) <= len(parts)
    assert len({put.key for put in puts}) == len(puts)
    assert not (left(s3) / ".unfinished").exists() or not files(left(s3) / ".unfinished")


class _Killed(KeyboardInterrupt):
    pass


CHANGES = ("put", "place", "delete_file", "delete_folder")


@contextlib.contextmanager
def breaking_at(number: int) -> Iterator[list[int]]:
    """Lets changes of the store happen up to the one of this number, counted from 0; how many are left to come."""
    coming = [number]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            coming[0] -= 1
            if coming[0] < 0:
                raise _Killed
            return real(*args)

        return call

    with pytest.MonkeyPatch.context() as patched:
        for name in CHANGES:
            patched.setattr(ResultFolder, name, counted(getattr(ResultFolder, name)))
        yield coming


MOST_CHANGES, LAST = 400, 8  # of a run in a store; those at its end are all tried by day, too


def test_a_run_that_breaks_off_anywhere_is_told_from_a_whole_one(
    s3: FailingStore, elsewhere: None, tmp_path: Path, local: Path
) -> None:
    """Where there is a summary, all is there of one run: of the one before, or of this. The next run goes well."""
    published(AuditOptions((str(corpora.unpack("healthy-41")),), OUT, tables=True))
    before = files(left(s3))
    shutil.copytree(left(s3), tmp_path / "before")
    with breaking_at(MOST_CHANGES) as coming:
        published(options(OUT))
    total = MOST_CHANGES - coming[0]
    assert 20 < total < MOST_CHANGES
    ended: set[str] = set()
    for number in range(total) if NIGHTLY else [*range(0, total - LAST, 8), *range(total - LAST, total)]:
        shutil.rmtree(left(s3))
        shutil.copytree(tmp_path / "before", left(s3))
        with breaking_at(number) as coming, contextlib.suppress(_Killed):
            published(options(OUT))
        found = {name: data for name, data in files(left(s3)).items() if name.partition("/")[0] in RESULTS}
        if "summary.json" not in found:
            ended.add("not whole")
        elif found == before:
            ended.add("before")
        else:
            assert tables_of(left(s3)) == tables_of(local)
            assert set(found) == names(local)
            ended.add("whole")
        assert coming[0] < 0
        if number % (8 if NIGHTLY else 24) == 0:
            published(options(OUT))
            assert tables_of(left(s3)) == tables_of(local)
            assert {name for name in names(left(s3)) if not name.startswith(".")} == names(local)
    assert ended == {"before", "not whole", "whole"}


def test_what_a_killed_run_left_goes_a_day_later(s3: FailingStore, elsewhere: None) -> None:
    old = left(s3) / ".unfinished" / "of-a-killed-run"
    old.mkdir(parents=True)
    for name, age in (("old.parquet", timedelta(days=2)), ("new.parquet", timedelta(hours=2))):
        (old / name).write_bytes(b"PAR1")
        then = (datetime.now(UTC) - age).timestamp()
        os.utime(old / name, (then, then))
    published(options(OUT))
    assert set(files(left(s3) / ".unfinished")) == {"of-a-killed-run/new.parquet"}


def test_a_store_that_goes_on_refusing_says_where_all_is(
    s3: FailingStore, elsewhere: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AUDITOR_STORE_PATIENCE", "0.2")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    s3.manner.faults = [Fault("SlowDown", "tonight/tables", "PUT")]
    with pytest.raises(
        AuditFailure, match=r"they are complete in .*, and parts of tables in s3://results/tonight/\.unf"
    ):
        published(options(OUT))
    (kept,) = tmp_path.glob("auditor-out-*")
    waiting = json.loads((kept / ".stored.json").read_text())
    there = files(left(s3) / ".unfinished" / waiting["staging"])
    assert set(waiting["parts"].values()) <= set(there)
    assert not (left(s3) / "summary.json").exists()


def audited(out: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own; executors of a cluster of Spark's are processes of their own, too."""
    call = [sys.executable, "-m", "auditor.cli", "audit", "s3://copies", "--records", "--as-of", str(AS_OF), "--quiet"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "SPARK_HOME": str(Path(pyspark.__file__).parent)}
    call += ["--fail-on", "never", "--tables", "--out", out, *words]
    return subprocess.run(call, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.spark
@pytest.mark.parametrize("master", ["inline[2]", "local-cluster[2,1,1024]"])
def test_a_fifth_of_all_requests_fails_and_the_results_are_the_same(
    s3: FailingStore, local: Path, tmp_path: Path, master: str
) -> None:
    """In processes of this machine, and on a cluster of two workers, where great-expectations judge what is stored."""
    codes = ("SlowDown", "InternalError", BREAKS_OFF, TOO_SHORT, UNANSWERED)
    s3.manner.faults = [Fault(what, share=0.04) for what in codes]
    s3.manner.faults.append(Fault(TIMES_OUT, count=1, share=0.04))
    ran = audited(OUT, "--master", master, "--expectations", "--history", "s3://results/history", "--run-id", "r")
    assert ran.returncode == 0, ran.stderr
    failed = sum(request.what != "" for request in s3.log)
    assert 0.1 < failed / len(s3.log) < 0.35
    s3.manner.faults = []
    assert (left(s3) / "findings.jsonl").read_bytes() == (local / "findings.jsonl").read_bytes()
    found, expected = tables_of(left(s3)), tables_of(local)
    assert len(found.pop("findings")[1]) == len(expected.pop("findings")[1])  # it has the run's id in it
    judged = json.loads((left(s3) / "summary.json").read_text())["expectations"]
    assert judged["evaluated"] == len(found.pop("expectations")[1])
    assert any(text.startswith("batches: ") for text in judged["passing"])
    assert all(len(found.pop(name)[1]) for name in ("logs", "run"))  # which the suites are over
    assert found == expected
    assert (".unfinished" in {request.key.split("/")[1] for request in s3.log if request.method == "PUT"}) == (
        "cluster" in master
    )
