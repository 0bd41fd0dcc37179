"""The wheel in environments that have nothing else: README's three lines alone, and on the oldest and newest Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import corpora
from tests.conftest import ROOT, SHORT_JVM
from tests.environments import NEWEST_SPARK, OLDEST_SPARK, python_with

pytestmark = pytest.mark.cluster

NAME = "hanging-36"
CLASSIC = 'SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")'
CONNECT = 'SparkSession.builder.remote("local[2]")'


@pytest.fixture(scope="module")
def wheel() -> Path:
    """Below ``build``, by its content: an environment that has this one is kept."""
    folder = ROOT / "build" / "environments" / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def lines_of_the_readme(session: str = "") -> str:
    """README's example over a corpus; ``session``: the variable that holds a session of Spark's, which it names."""
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    arguments = repr(str(corpora.unpack(NAME))) + (f", spark={session}" if session else "")
    assert '"/copies/broker-1"' in example
    return str(example).replace('"/copies/broker-1"', arguments)


def run(python: Path, script: Path, env: dict[str, str]) -> list[str]:
    ran = subprocess.run([str(python), str(script)], capture_output=True, text=True, check=False, cwd="/", env=env)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout.splitlines()


def test_three_lines_without_spark_and_java(wheel: Path, tmp_path: Path) -> None:
    python = python_with("base", str(wheel))
    script = tmp_path / "three.py"
    script.write_text(lines_of_the_readme() + "import importlib.util\nprint(importlib.util.find_spec('pyspark'))\n")
    message, transactions, spark = run(python, script, {"PATH": "/nothing", "HOME": str(tmp_path)})
    assert "has been open" in message
    assert int(transactions) > 0
    assert spark == "None"


@pytest.mark.parametrize("version", [OLDEST_SPARK, NEWEST_SPARK])
@pytest.mark.parametrize("session", [CLASSIC, CONNECT], ids=["classic", "connect"])
def test_three_lines_on_spark(wheel: Path, tmp_path: Path, version: str, session: str) -> None:
    """With ``[spark]`` alone on a classic session; ``[connect]`` brings what Connect needs."""
    extra = "spark" if session == CLASSIC else "connect"
    python = python_with(f"{extra}-{version}", f"{wheel}[{extra}]", f"pyspark=={version}")
    script = tmp_path / "three.py"
    lines = lines_of_the_readme("spark")
    begin = f"import pyspark\nfrom pyspark.sql import SparkSession\nspark = {session}.getOrCreate()\n"
    script.write_text(begin + lines + "print(pyspark.__version__, type(spark).__module__)\nspark.stop()\n")
    env = {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}
    env |= SHORT_JVM | {"HOME": str(tmp_path)} | ({"PYSPARK_PYTHON": str(python)} if session == CONNECT else {})
    message, transactions, about = run(python, script, env)
    assert "has been open" in message
    assert int(transactions) > 0
    assert about.startswith(version)
    assert ("connect" in about) == (session == CONNECT)
