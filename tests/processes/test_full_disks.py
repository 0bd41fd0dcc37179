"""Audits whose disk is full, or whose driver or JVM is killed: 4 or the signal's status, and no half of a run.

The full disk is a small tmpfs in a namespace of its own, which the audit runs in; where the system gives nobody one,
those tests are skipped and say so.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import corpora
from tests.conftest import ROOT

NAME = "hanging-36"
MASTERS = ("inline[1]", pytest.param("local[1]", marks=pytest.mark.spark))
ENV = os.environ | {"PYTHONPATH": str(ROOT)}
# Mounts $1, of $2 bytes; runs the rest, then prints what lies below $1 and the end of a failure.log.
SMALL_DISK = """
disk=$1; mount -t tmpfs -o size=$2 none "$disk" || exit 99; shift 2
"$@"; status=$?
find "$disk" -mindepth 1 -maxdepth 2 -printf 'LEFT %P\\n'
cat "$disk/out/failure.log" 2>/dev/null | tail -n 1
exit $status
"""
# A driver that kills itself (0) or its JVM (1) as a step begins.
KILLS = """
import os, signal, sys
from pathlib import Path
from auditor.pipeline.whole_audit import Audit

def victims():
    children = Path("/proc/self/task").glob("*/children")
    pids = [int(word) for file in children for word in file.read_text().split()]
    return [pid for pid in pids if Path(f"/proc/{pid}/comm").read_text().startswith("java")]

def step(self, name, real=Audit.step):
    if name == "judge":
        found = victims() if sys.argv[1] == "1" else [os.getpid()]
        assert found
        Path(sys.argv[2]).touch()
        for pid in found:
            os.kill(pid, signal.SIGKILL)
    return real(self, name)

Audit.step = step
from auditor.cli import main
sys.exit(main(sys.argv[3:]))
"""


def words(out: Path, master: str, *options: str) -> list[str]:
    as_of = str(corpora.manifest(NAME)["copied_at"])
    fixed = ["audit", str(corpora.unpack(NAME)), "--out", str(out), "--master", master, "--as-of", as_of, "--quiet"]
    return [*fixed, *options]


def on_a_small_disk(disk: Path, size: str, *call: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs a command while there is a disk of this size at a folder."""
    disk.mkdir()
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", SMALL_DISK, "sh", str(disk), size, *call]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, env=ENV | env, check=False, cwd=disk.parent)
    except FileNotFoundError:
        pytest.skip("no unshare here: nothing was seen of a full disk")
    if ran.returncode == 99 or "unshare" in ran.stderr:
        pytest.skip(f"no namespace with a disk of its own here, nothing was seen of a full one: {ran.stderr}")
    return ran


def left(ran: subprocess.CompletedProcess[str]) -> set[str]:
    return {line.removeprefix("LEFT ") for line in ran.stdout.splitlines() if line.startswith("LEFT ")}


@pytest.mark.parametrize("master", MASTERS)
def test_a_full_disk_at_the_results(tmp_path: Path, master: str) -> None:
    """There is room for the lock and a few lines, not for a report."""
    disk = tmp_path / "disk"
    command = [sys.executable, "-m", "auditor.cli", *words(disk / "out", master, "--records")]
    ran = on_a_small_disk(disk, "32k", *command)
    assert ran.returncode == 4, ran.stderr
    assert "No space left on device" in ran.stdout + ran.stderr
    assert left(ran) == {"out", "out/.lock", "out/failure.log"}
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("master", MASTERS)
def test_a_full_temporary_folder(tmp_path: Path, master: str) -> None:
    """A run that needs it fails as a whole; one that does not is whole. Of Spark's: its own folder, and the JVM's."""
    disk, out = tmp_path / "disk", tmp_path / "out"
    command = [sys.executable, "-m", "auditor.cli", *words(out, master, "--tables", "--records")]
    places = {"TMPDIR": str(disk), "SPARK_LOCAL_DIRS": str(disk), "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={disk}"}
    ran = on_a_small_disk(disk, "8k", *command, **places)
    names = {path.name for path in out.iterdir()} if out.exists() else set()
    assert ran.returncode in (1, 4), ran.stderr
    assert names == {".lock", "failure.log"} if ran.returncode == 4 else {"summary.json", "tables"} < names
    assert ".unfinished" not in names


def killed(tmp_path: Path, whose: str, master: str) -> tuple[int, set[str]]:
    """The exit status, and what lies below ``--out``."""
    out, noted = tmp_path / "out", tmp_path / "noted"
    command = [sys.executable, "-c", KILLS, whose, str(noted), *words(out, master)]
    ran = subprocess.run(command, capture_output=True, text=True, env=ENV, check=False, cwd=tmp_path)
    assert noted.exists(), ran.stderr
    return ran.returncode, {path.name for path in out.iterdir()}


@pytest.mark.parametrize("master", MASTERS)
def test_a_killed_driver_leaves_no_result(tmp_path: Path, master: str) -> None:
    assert killed(tmp_path, "0", master) == (-9, {".lock", ".unfinished"})


@pytest.mark.spark
def test_a_killed_jvm_is_a_failure_and_leaves_its_log_alone(tmp_path: Path) -> None:
    assert killed(tmp_path, "1", "local[1]") == (4, {".lock", "failure.log"})
