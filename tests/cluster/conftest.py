"""What the tests of clusters share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.fixture(scope="session")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The zip and the packed environment, made as ``make wheel`` and ``make env`` make them."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT, check=True)
    (wheel,) = folder.glob("*.whl")
    packed = folder / "executor-env.tar.gz"
    subprocess.run([sys.executable, str(ROOT / "scripts" / "pack_env.py"), str(packed)], check=True)
    return wheel.rename(wheel.with_suffix(".zip")), packed
