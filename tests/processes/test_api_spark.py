"""The Python API on Spark in a plain script: classic and Connect, and a worker that lacks the package says so."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from auditor import register
from auditor.connectors.sources import _KNOWING, NO_PACKAGE
from tests import corpora
from tests.conftest import ROOT

pytestmark = pytest.mark.spark
NAME = "hanging-36"


@pytest.mark.parametrize("master", ["local[2]", "connect"])
def test_a_script_gets_frames_and_findings(master: str) -> None:
    """Without PYSPARK_PYTHON and without an activated environment; a Connect server needs to be given one."""
    path = str(corpora.unpack(NAME))
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    env |= {"PYTHONPATH": str(ROOT)} | ({"PYSPARK_PYTHON": sys.executable} if master == "connect" else {})
    command = [sys.executable, "-m", "tests.processes.api_script", master, path]
    ran = subprocess.run(command, capture_output=True, text=True, env=env, check=False, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr[-3000:]
    said = dict(line.split(" ", 1) for line in ran.stdout.splitlines() if not line.startswith("mistake"))
    hanging = sum(e["finding"] == "hanging_transaction" for e in corpora.manifest(NAME)["expect"])
    assert said["hanging"] == f"{hanging} {master == 'connect'}"
    assert said["findings"] == said["frame"] == str(hanging)
    assert (said["tables"], said["alive"]) == ("True", "3")
    assert int(said["batches"]) > hanging
    mistakes = [line for line in ran.stdout.splitlines() if line.startswith("mistake")]
    assert len(mistakes) == 2
    assert not [line for line in mistakes if "a line more" in line]
    assert "no table named 'nothing'" in mistakes[1]


def test_a_worker_without_the_package_says_what_to_do(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("auditor.spark.adopted.adopt", lambda session: session)
    bare = os.path.join(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", bare)
    monkeypatch.setattr(spark.sparkContext, "environment", {"PYTHONPATH": ""})
    register_again(spark)
    with pytest.raises(PySparkException, match=NO_PACKAGE.split(" {}")[0]):
        spark.read.format("kafka_log_batches").load(str(corpora.unpack(NAME))).count()
    monkeypatch.undo()
    register_again(spark)
    assert spark.read.format("kafka_log_batches").load(str(corpora.unpack(NAME))).count()


def register_again(spark: SparkSession) -> None:
    """As if the session were new, so that it takes the workers' Python of now."""
    _KNOWING.discard(spark)
    register(spark)
