"""A copy in a process apart: what kills its reader costs that file, or that directory, and the rest is copied."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from auditor import cli
from auditor.base.errors import FAILURES_RAISE, AuditFailure, AuditInputError
from auditor.copying import folders, run, taken_segments
from auditor.copying.copy_job import BUDGET, CopyJob, Part
from auditor.copying.run import copy_logs
from auditor.pipeline.options import AuditOptions
from tests import corpora
from tests.audited import published
from tests.conftest import ROOT
from tests.growing import rows_of
from tests.processes.test_copies_in_stores import OUT, s3

__all__ = ["s3"]
NAME = "healthy-41"
SEGMENT = "00000000000000000000.log"
VICTIMS = "VICTIMS_OF_THIS_TEST"  # environment variable: what kills a worker


@pytest.fixture(autouse=True)
def contained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FAILURES_RAISE)


def dies(number: int = signal.SIGSEGV) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60)


def killed_by_segments(asked: CopyJob, number: int = signal.SIGSEGV) -> Iterator[Part]:
    """As a worker copies, which dies within each file that is named."""
    read = taken_segments.read_segment

    def reading(f: Any, size: int, **how: Any) -> Any:
        if how["file"] in os.environ[VICTIMS].split():
            dies(number)
        return read(f, size, **how)

    taken_segments.read_segment = reading
    return run.copied(asked)


def killed_by_memory(asked: CopyJob) -> Iterator[Part]:
    """As the kernel ends the largest process."""
    return killed_by_segments(asked, signal.SIGKILL)


def killed_by_directories(asked: CopyJob) -> Iterator[Part]:
    """As a worker copies, which dies before it opens a file of each directory that is named."""
    refresh = folders.InputFolder.refresh

    def refreshing(folder: folders.InputFolder) -> None:
        if folder.place.path.rpartition("/")[2] in os.environ[VICTIMS].split():
            dies()
        refresh(folder)

    folders.InputFolder.refresh = refreshing  # type: ignore[method-assign]
    return run.copied(asked)


def killed_at_the_listing(asked: CopyJob) -> Iterator[Part]:
    dies()
    return run.copied(asked)


def logs(source: Path, count: int) -> list[str]:
    """Some first segments that hold something, as the copy names them."""
    found = sorted(f"{p.parent.name}/{p.name}" for p in source.rglob(f"*[0-9]/{SEGMENT}") if p.stat().st_size)
    return found[:: max(1, len(found) // count)][:count]


def rows_but(copy: Path | str, *directories: str) -> dict[str, list[Any]]:
    """The rows of all other logs."""
    of_others = {
        table: [row for row in rows if f"{row['topic']}-{row['partition']}" not in directories]
        for table, rows in rows_of(str(copy)).items()
    }
    return {table: rows for table, rows in of_others.items() if rows}


@pytest.mark.parametrize(("work", "count", "ending"), [
    (killed_by_segments, 1, "SIGSEGV"),
    (killed_by_memory, 1, "SIGKILL"),
    (killed_by_segments, 9, "SIGSEGV"),  # more than a pool refuses to one task
])  # fmt: skip
def test_each_file_that_kills_is_named_and_the_rest_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: Callable[..., Any], count: int, ending: str
) -> None:
    source, out = corpora.unpack(NAME), tmp_path / "copy"
    copy_logs([str(source)], tmp_path / "sound")
    victims = logs(source, count)
    monkeypatch.setenv(VICTIMS, " ".join(victims))
    for _ in range(2):  # every night
        done = CopyJob([str(source)], out).apart(work)
        assert len(done.failed) == done.refused == len(victims) == count
        for victim, line in zip(victims, sorted(done.failed), strict=True):
            assert line.startswith(f"{source}/")
            assert line.endswith(f"/{victim}: reading it ends the process: {ending}")
    of_victims = [victim.partition("/")[0] for victim in victims]
    assert rows_but(out, *of_victims) == rows_but(tmp_path / "sound", *of_victims)
    audit = published(AuditOptions((str(out),), tmp_path / "audit"))
    assert audit.exit_code() == 3
    assert {row["file"] for row in json.loads((tmp_path / "audit" / "summary.json").read_text())["unreadable"]} >= set(
        victims
    )


def test_a_directory_that_kills_without_a_file_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = corpora.unpack(NAME), tmp_path / "copy"
    copy_logs([str(source)], out)
    before = rows_of(str(out))
    victims = [name.partition("/")[0] for name in logs(source, 2)]
    monkeypatch.setenv(VICTIMS, " ".join(victims))
    done = CopyJob([str(source)], out).apart(killed_by_directories)
    assert len(done.failed) == 2
    assert all(line.endswith("was not copied: it ends the process") for line in done.failed)
    assert rows_of(str(out)) == before


def test_a_process_that_ends_at_the_listing_ends_the_copy(tmp_path: Path) -> None:
    with pytest.raises((AuditFailure, RuntimeError), match="the reader process"):
        CopyJob([str(corpora.unpack(NAME))], tmp_path / "copy").apart(killed_at_the_listing)


def test_in_a_store_only_the_file_that_kills_is_blamed(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There several directories are copied at once, so that the first death blames nothing."""
    source = corpora.unpack(NAME)
    copy_logs([str(source)], tmp_path / "sound")
    victims = logs(source, 2)
    monkeypatch.setenv(VICTIMS, " ".join(victims))
    done = CopyJob([str(source)], OUT).apart(killed_by_segments)
    assert sorted("/".join(line.partition(": ")[0].split("/")[-2:]) for line in done.failed) == victims
    of_victims = [victim.partition("/")[0] for victim in victims]
    assert rows_but(OUT, *of_victims) == rows_but(tmp_path / "sound", *of_victims)


def test_it_is_the_copy_of_this_process(tmp_path: Path) -> None:
    source = corpora.unpack(NAME)
    here = copy_logs([str(source)], tmp_path / "here")
    assert CopyJob([str(source)], tmp_path / "apart").apart(run.copied) == here
    assert rows_of(str(tmp_path / "apart")) == rows_of(str(tmp_path / "here"))
    with pytest.raises(AuditInputError, match="contain each other"):
        CopyJob([str(source)], source / "copy").apart(run.copied)
    (tmp_path / "here" / "x").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises((AuditInputError, OSError)):
        CopyJob([str(source)], tmp_path / "file" / "copy").apart(run.copied)


def test_the_budget_is_what_is_left_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that takes over verifies no more than the one before had left."""
    source = corpora.unpack(NAME)
    budget = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
    first, second = (CopyJob([str(source)], tmp_path / n, checksums=BUDGET, budget=budget) for n in ("a", "b"))
    monkeypatch.setenv(VICTIMS, logs(source, 1)[0])
    first.apart(run.copied)
    second.apart(killed_by_segments)
    assert 0 < min(one.left for one in second.done.values()) == min(one.left for one in first.done.values()) < budget


def test_no_process_goes_on_when_the_first_is_killed(tmp_path: Path) -> None:
    """It would write without the lock that ended with the first."""
    source = corpora.unpack(NAME)
    words = ["copy", str(source), "--out", str(tmp_path / "copy"), "--limit-rate", "100kB"]
    command = [sys.executable, "-m", "auditor.cli", *words]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        deadline = time.monotonic() + 120
        while len(mine := below(process.pid)) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(mine) == 2  # the starter and its worker
    finally:
        process.kill()
        process.wait()
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in mine) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in mine)


def below(pid: int) -> list[int]:
    """All processes that a process has started, and those that they have."""
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*children, *(process for child in children for process in below(child))]


def test_the_command_names_the_file_and_ends_with_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from auditor.commands import copy

    source = corpora.unpack(NAME)
    monkeypatch.setenv(VICTIMS, logs(source, 1)[0])
    monkeypatch.setattr(copy, "_copied", killed_by_segments)
    assert cli.main(["copy", str(source), "--out", str(tmp_path / "copy"), "--limit-rate", "none"]) == 3
    printed = capsys.readouterr()
    assert f"{logs(source, 1)[0]}: reading it ends the process: SIGSEGV" in printed.err
    assert "unreadable: 1 file" in printed.out
