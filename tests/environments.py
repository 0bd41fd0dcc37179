"""Environments of Python's beside the project's own, made by pip below ``build/environments`` and kept."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

KEPT = ROOT / "build" / "environments"
PINNED = re.compile(r"^([\w.-]+)==([\w.]+)(?: ; ([^\\]+?))? \\$", re.MULTILINE)  # a line of a lock
LOCK = {
    (name, marker): version for name, version, marker in PINNED.findall((ROOT / "requirements.lock").read_text("utf-8"))
}
NEWEST_SPARK = LOCK["pyspark", ""]
(_declared,) = re.findall(r'"pyspark>=(\d+\.\d+),<', (ROOT / "pyproject.toml").read_text("utf-8"))
OLDEST_SPARK = f"{_declared}.0"


def _identity(requirement: str) -> bytes:
    """A wheel is what is in it: its name stays while its code changes."""
    file = Path(requirement.partition("[")[0])
    return file.read_bytes() + requirement.encode() if file.is_file() else requirement.encode()


def python_with(name: str, *requirements: str) -> Path:
    """The Python of an environment that has exactly these requirements and what they need.

    Skips the test, loudly, where pip cannot get them. Cost: what pip takes, once.
    """
    digest = hashlib.sha256(b" ".join((sys.version.encode(), *map(_identity, requirements)))).hexdigest()[:12]
    folder = KEPT / f"{name}-{digest}"
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        command = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(python),
            "install",
            "--quiet",
            "--no-input",
            *requirements,
        ]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            pytest.skip(f"NOTHING INSTALLED: pip cannot get {' '.join(requirements)}: {ran.stderr[-500:]}")
        (folder / ".ready").touch()
    return python


def locked_but_for_spark(version: str) -> list[str]:
    """The lock as requirements of pip's, with another Spark."""
    others = {key: pinned for key, pinned in LOCK.items() if key[0] != "pyspark"}
    lines = [f"{name}=={pinned}" + (f" ; {marker}" if marker else "") for (name, marker), pinned in others.items()]
    return [f"pyspark=={version}", *lines]
