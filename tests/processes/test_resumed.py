"""An audit whose driver is killed goes on in its ``--work``: the same bytes, and no segment that was kept is read
again.

``RESUMED_KILLS``: how many kills are tried (one; ten at night, at other points with each); ``RESUMED_SEED``: their
seed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from auditor.pipeline.work_folder import FACTS
from tests import corpora, failing_store, small_tasks, store
from tests.conftest import NIGHTLY
from tests.failing_store import BREAKS_OFF, FailingStore, Fault

NAME = "replicas-41"
KILLS, SEED = int(os.environ.get("RESUMED_KILLS", "10" if NIGHTLY else "1")), int(os.environ.get("RESUMED_SEED", "36"))
TASK_BYTES = 100_000


@pytest.fixture
def s3() -> Iterator[FailingStore]:
    with failing_store.failing(copies=corpora.unpack(NAME)) as server:
        yield server


def started(server: FailingStore, folder: Path, path: str, out: str, *more: str) -> subprocess.Popen[bytes]:
    path_of_python = small_tasks.python_path(folder, TASK_BYTES)
    environment = store.clean_environment(server.environment()) | {"PYTHONPATH": path_of_python}
    call = [sys.executable, "-m", "auditor.cli", "audit", path, "--out", str(folder / out), "--records", "--quiet"]
    call += ["--as-of", str(corpora.manifest(NAME)["copied_at"]), "--fail-on", "never", *more]
    log = (folder / f"{out}.log").open("wb")
    return subprocess.Popen(call, env=environment, cwd=folder, stdout=log, stderr=log)


def segments_read(server: FailingStore, since: int) -> set[str]:
    return {r.key for r in server.log[since:] if r.method == "GET" and r.key.endswith(".log") and "/__" not in r.key}


def ends_reading(server: FailingStore, quiet_s: float = 1.0) -> None:
    """Waits until nothing was asked of a store for a second."""
    end, asked, since = time.monotonic() + 30, -1, time.monotonic()
    while time.monotonic() < min(end, since + quiet_s):
        if server.under_way or len(server.log) != asked:
            asked, since = len(server.log), time.monotonic()
        time.sleep(0.05)


@pytest.mark.parametrize("master", ["inline[2]", pytest.param("local[2]", marks=pytest.mark.spark)])
@pytest.mark.parametrize("number", range(KILLS))
def test_a_killed_audit_goes_on_where_it_was(s3: FailingStore, tmp_path: Path, master: str, number: int) -> None:
    """While the store fails at random. Files of facts are counted as they appear: the kill is after one of them."""
    expected = started(s3, tmp_path, str(corpora.unpack(NAME)), "local", "--master", "inline[2]")
    assert expected.wait(300) == 0
    s3.manner.faults = [Fault(what, share=0.04) for what in ("SlowDown", "InternalError", BREAKS_OFF)]
    work = tmp_path / "work"
    how = ("--master", master, "--work", str(work))
    job = started(s3, tmp_path, "s3://copies", "killed", *how)
    wanted = random.Random(SEED + number).randint(1, 6)
    end = time.monotonic() + 240
    while len(list(work.glob(f"*{FACTS}"))) < wanted and job.poll() is None and time.monotonic() < end:
        time.sleep(0.005)
    job.send_signal(signal.SIGKILL)
    job.wait()
    kept = sum(1 for _ in work.glob(f"*{FACTS}"))
    assert kept, (tmp_path / "killed.log").read_text()
    ends_reading(s3)  # what reads for it ends as well
    before, since = segments_read(s3, 0), len(s3.log)
    again = started(s3, tmp_path, "s3://copies", "resumed", *how, "--resume")
    assert again.wait(400) == 0, (tmp_path / "resumed.log").read_text()
    assert (tmp_path / "resumed" / "findings.jsonl").read_bytes() == (
        tmp_path / "local" / "findings.jsonl"
    ).read_bytes()
    once_more = segments_read(s3, since)
    total = {p.relative_to(corpora.unpack(NAME)).as_posix() for p in corpora.unpack(NAME).rglob("*.log")}
    assert before
    assert len(once_more) < len([key for key in total if "/__" not in key])
    since = len(s3.log)
    third = started(s3, tmp_path, "s3://copies", "third", *how, "--resume")
    assert third.wait(400) == 0
    assert (tmp_path / "third" / "findings.jsonl").read_bytes() == (tmp_path / "local" / "findings.jsonl").read_bytes()
    assert segments_read(s3, since) == set()


def test_nothing_to_resume_is_one_line(s3: FailingStore, tmp_path: Path) -> None:
    job = started(s3, tmp_path, "s3://copies", "out", "--master", "inline", "--work", "nothing", "--resume")
    assert job.wait(120) == 2
    (line,) = (tmp_path / "out.log").read_text().splitlines()
    assert "--work is empty: nothing to resume" in line
