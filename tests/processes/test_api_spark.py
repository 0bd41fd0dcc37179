"""The Python API on Spark in a plain script: classic and Connect."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests import corpora
from tests.conftest import ROOT, SHORT_JVM

pytestmark = pytest.mark.spark
NAME = "hanging-36"


@pytest.mark.parametrize("master", ["local[2]", "connect"])
def test_a_script_gets_frames_and_findings(master: str) -> None:
    """Without PYSPARK_PYTHON and without an activated environment; a Connect server needs to be given one."""
    path = str(corpora.unpack(NAME))
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    env |= SHORT_JVM | {"PYTHONPATH": str(ROOT)} | ({"PYSPARK_PYTHON": sys.executable} if master == "connect" else {})
    command = [sys.executable, "-m", "tests.processes.api_script", master, path]
    ran = subprocess.run(command, capture_output=True, text=True, env=env, check=False, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr[-3000:]
    said = dict(line.split(" ", 1) for line in ran.stdout.splitlines() if not line.startswith("mistake"))
    hanging = sum(e["finding"] == "hanging_transaction" for e in corpora.manifest(NAME)["expect"])
    assert said["hanging"] == f"{hanging} {master == 'connect'}"
    assert said["findings"] == said["frame"] == str(hanging)
    assert (said["tables"], said["alive"]) == ("True", "3")
    assert (said["blocked"], said["same"], said["replayed"]) == ("True", "True", "True")
    assert int(said["batches"]) > hanging
    mistakes = [line for line in ran.stdout.splitlines() if line.startswith("mistake")]
    assert len(mistakes) == 2
    assert not [line for line in mistakes if "a line more" in line]
    assert "no table named 'nothing'" in mistakes[1]
