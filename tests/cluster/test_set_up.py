"""The commands that README gives to install and build, in a clean copy of the project. They need a package index."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.cluster


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """What git keeps of the project, without its ``.venv``."""
    folder = tmp_path / "project"
    folder.mkdir()
    subprocess.run(
        f"git ls-files -z | tar --null --files-from - --create | tar --extract --directory {folder}",
        shell=True, cwd=ROOT, check=True,
    )  # fmt: skip
    return folder


def ran(command: list[str], folder: Path, **environment: object) -> str:
    env = os.environ | {name: str(value) for name, value in environment.items()}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_make_demo_sets_up_and_audits(copy: Path) -> None:
    assert "1 PARTITION BLOCKED" in ran(["make", "demo"], copy)
    assert not list((copy / ".venv").glob("lib/*/site-packages/pyspark"))


@pytest.mark.parametrize("tool", ["uv tool", "pipx"])
def test_tools_install_the_command(tool: str, copy: Path, tmp_path: Path) -> None:
    program = tool.split()[0]
    if shutil.which(program) is None:
        pytest.skip(f"NOT TESTED: {program} is not on PATH")
    places = {name: tmp_path / name for name in ("UV_TOOL_DIR", "UV_TOOL_BIN_DIR", "PIPX_HOME", "PIPX_BIN_DIR")}
    ran([*tool.split(), "install", "."], copy, **places)
    installed = places["UV_TOOL_BIN_DIR" if program == "uv" else "PIPX_BIN_DIR"] / "auditor"
    assert "1 PARTITION BLOCKED" in ran([str(installed), "demo", "--out", str(tmp_path / "demo")], tmp_path)


def test_make_wheel_and_docs_build(copy: Path) -> None:
    """With this project's own environment, which has what they need."""
    (copy / ".venv").symlink_to(ROOT / ".venv")
    assert ".whl" in ran(["make", "wheel"], copy)
    ran(["make", "docs"], copy)
    assert (copy / "build" / "site" / "index.html").is_file()


@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
def test_wheels_exist_for_every_python(version: str, tmp_path: Path) -> None:
    """Of all that the extras need. pyspark has no wheel: it is built without a compiler on any Python."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {*extras["dependencies"], *extras["optional-dependencies"]["all"]}
    platforms = [f"--platform=manylinux{name}_x86_64" for name in ("_2_28", "_2_17", "2014")]
    ran(
        [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "-q", "--target", str(tmp_path),
         "--only-binary=:all:", f"--python-version={version}", "--implementation=cp", *platforms,
         *sorted(one for one in wanted if not one.startswith("pyspark"))],
        tmp_path,
    )  # fmt: skip
