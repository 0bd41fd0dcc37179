"""Standard streams that are closed or full, files that may not grow, a history without room, Python without docstrings:
the exit code says what came of the results, whoever can or cannot read about it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes.test_full_disks import ENV, on_a_small_disk, words

FULL, CLOSED = "No space left on device", "Bad file descriptor"
AUDIT = ("--fail-on", "critical")  # of hanging-36: exit code 1


def ran(tmp_path: Path, call: list[str], streams: str, *python: str) -> subprocess.CompletedProcess[str]:
    """What a call prints and ends with in a shell that does ``streams`` to its standard streams."""
    command = ["sh", "-c", f'"$@" {streams}', "sh", sys.executable, *python, "-m", "auditor.cli", *call]
    return subprocess.run(command, capture_output=True, text=True, env=ENV, check=False, cwd=tmp_path)


def audit(out: Path) -> list[str]:
    return [word for word in words(out, "inline[1]", *AUDIT) if word != "--quiet"]


@pytest.mark.parametrize(("streams", "says"), [
    (">/dev/full", FULL), (">&-", CLOSED), ("2>/dev/full", ""), ("2>&-", ""), ("<&- >&- 2>&-", ""), ("| head -c 1", ""),
])  # fmt: skip
def test_results_do_not_depend_on_who_reads_about_them(tmp_path: Path, streams: str, says: str) -> None:
    out = tmp_path / "out"
    streams = f"{streams}; echo $? > code" if "|" not in streams else streams
    done = ran(tmp_path, audit(out), streams)
    if "|" not in streams:
        assert (tmp_path / "code").read_text() == "1\n"
    assert (out / "summary.json").exists()
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert len((out / "findings.jsonl").read_text().splitlines()) == 7


@pytest.mark.parametrize(("streams", "status"), [(">/dev/full", 4), (">&-", 4), ("", 0)])
def test_what_is_only_printed_and_cannot_be_is_a_failure(tmp_path: Path, streams: str, status: int) -> None:
    done = ran(tmp_path, ["rules", "--format", "json"], streams)
    assert (done.returncode, "the printed output is incomplete" in done.stderr) == (status, status == 4)


def test_a_pipe_that_its_reader_closes_changes_no_exit_code(tmp_path: Path) -> None:
    script = '{ "$@"; echo $? > code; } | true'
    command = ["sh", "-c", script, "sh", sys.executable, "-m", "auditor.cli", *audit(tmp_path / "out")]
    subprocess.run(command, env=ENV, check=True, cwd=tmp_path)
    assert (tmp_path / "code").read_text() == "1\n"


def test_no_file_takes_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    """What is printed would be written into it."""
    done = ran(tmp_path, audit(tmp_path / "out"), ">&- 2>&-")
    assert done.returncode == 1
    assert all(b"Findings:" not in path.read_bytes() for path in (tmp_path / "out").rglob("*.*") if path.is_file())


def test_files_that_may_not_grow_are_named_and_leave_no_result(tmp_path: Path) -> None:
    command = [
        "sh",
        "-c",
        'ulimit -f 8; exec "$@"',
        "sh",
        sys.executable,
        "-m",
        "auditor.cli",
        *audit(tmp_path / "out"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=ENV, check=False, cwd=tmp_path)
    assert done.returncode == 4
    assert "ulimit -f" in done.stderr
    assert not (tmp_path / "out" / "summary.json").exists()


@pytest.mark.parametrize("optimized", ["-O", "-OO"])
def test_python_without_docstrings_finds_the_same(tmp_path: Path, optimized: str) -> None:
    said = []
    for out, python in ((tmp_path / "plain", ()), (tmp_path / "optimized", (optimized,))):
        assert ran(tmp_path, audit(out), "", *python).returncode == 1
        said.append((out / "findings.jsonl").read_bytes())
        said.append(ran(tmp_path, ["rules", "hanging-transaction"], "", *python).stdout.encode())
    assert said[:2] == said[2:]
    assert b"Why it matters" in said[1]


def test_a_history_without_room_is_a_failure_that_names_it(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    call = [*words(tmp_path / "out", "inline[1]", *AUDIT), "--history", str(disk / "history")]
    done = on_a_small_disk(disk, "16k", sys.executable, "-m", "auditor.cli", *call)
    assert done.returncode == 4, done.stderr
    assert FULL in done.stderr
    assert "--history" in done.stderr
    assert not (tmp_path / "out" / "summary.json").exists()
