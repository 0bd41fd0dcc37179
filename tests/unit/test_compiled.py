"""Machine code of kernels: kept by content, wherever there is a place for it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODEC = ("__init__", "codec/__init__", "codec/compiled")
CONSTANTS = "STEP = 1\n"
KERNEL = """from connectors.codec.compiled import kernel
from connectors.constants import STEP

@kernel
def add(x):
    return x + STEP
"""
SHOW = """from connectors.kernels import add
print(add(1), len(add.stats.cache_hits), len(add.stats.cache_misses), add.stats.cache_path)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A package like ours with one kernel, whose constant stands in another file."""
    for name in CODEC:
        target = tmp_path / "project" / "connectors" / f"{name}.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((ROOT / "connectors" / f"{name}.py").read_text())
    (tmp_path / "project" / "connectors" / "constants.py").write_text(CONSTANTS)
    (tmp_path / "project" / "connectors" / "kernels.py").write_text(KERNEL)
    return tmp_path / "project"


def run(project: Path, home: Path, **environment: str) -> tuple[int, int, int, str]:
    """Result, cache hits, cache misses and folder of the kernel called in a new process."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "XDG"))}
    clean |= {"PYTHONPATH": str(project), "HOME": str(home), "TMPDIR": str(home.parent)} | environment
    done = subprocess.run(
        [sys.executable, "-c", SHOW], env=clean, cwd=home.anchor, capture_output=True, text=True, check=True
    )
    result, hits, misses, folder = done.stdout.split(maxsplit=3)
    return int(result), int(hits), int(misses), folder.strip()


def zipped(project: Path) -> Path:
    archive = project.parent / "project.zip"
    with zipfile.ZipFile(archive, "w") as z:
        for file in project.rglob("*.py"):
            z.write(file, file.relative_to(project))
    return archive


def test_code_lies_beside_its_source_and_is_used_again(project: Path, tmp_path: Path) -> None:
    folder = str(project / "connectors" / "__pycache__")
    assert run(project, tmp_path) == (2, 0, 1, folder)
    assert run(project, tmp_path) == (2, 1, 0, folder)


def test_a_constant_of_another_file_makes_old_code_void(project: Path, tmp_path: Path) -> None:
    assert run(project, tmp_path)[0] == 2
    (project / "connectors" / "constants.py").write_text(CONSTANTS.replace("1", "5"))
    assert run(project, tmp_path)[:3] == (6, 0, 1)


def test_times_of_files_do_not_matter(project: Path, tmp_path: Path) -> None:
    run(project, tmp_path)
    for file in project.rglob("*.py"):
        os.utime(file, (1, 1))
    assert run(project, tmp_path)[1:3] == (1, 0)


def test_from_an_archive_the_users_cache_is_taken(project: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    archive = zipped(project)
    folder = str(home / ".cache" / "kafka-log-auditor" / "connectors.kernels")
    assert run(archive, home) == (2, 0, 1, folder)
    assert run(archive, home) == (2, 1, 0, folder)


def test_without_a_home_a_private_temporary_folder_is_taken(project: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "file" / "home"
    nowhere.parent.write_text("no folder")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    archive = zipped(project)
    mine = temporary / f"kafka-log-auditor-{os.getuid()}"
    assert run(archive, nowhere, TMPDIR=str(temporary))[3] == str(mine / "connectors.kernels")
    assert run(archive, nowhere, TMPDIR=str(temporary))[1:3] == (1, 0)
    mine.chmod(0o777)  # anybody may have put code there
    assert run(archive, nowhere, TMPDIR=str(temporary)) == (2, 0, 1, "None")


def test_the_folder_that_is_asked_for_comes_first(project: Path, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    assert run(project, tmp_path, NUMBA_CACHE_DIR=str(asked))[3] == str(asked / "connectors.kernels")


def test_checked_and_unchecked_code_are_told_apart(project: Path, tmp_path: Path) -> None:
    run(project, tmp_path)
    assert run(project, tmp_path, NUMBA_BOUNDSCHECK="1")[:3] == (2, 0, 1)
