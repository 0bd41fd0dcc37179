"""The oldest Spark that ``pyproject.toml`` declares and the newest, the lock's: what is Spark's alone, on both.

The oldest is in an environment of its own, which has all else as the lock has it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, missing_java
from tests.environments import NEWEST_SPARK, OLDEST_SPARK, locked_but_for_spark, python_with

pytestmark = pytest.mark.cluster

# Replicas in parts, every corpus, tables, data sources, sessions; the command on one core, Connect and the API.
RUN = ("tests/spark", "tests/processes/test_spark_masters.py", "tests/processes/test_api_spark.py")


@pytest.mark.parametrize("version", [OLDEST_SPARK, NEWEST_SPARK])
def test_what_is_sparks_alone(version: str, tmp_path: Path) -> None:
    """Every test runs; none is left out for want of a Java, which the run's last line would count as passed."""
    if missing_java():
        pytest.skip(f"NOT TESTED, no Java: {missing_java()}")
    python = Path(sys.executable)
    if version != NEWEST_SPARK:
        python = python_with(f"spark-{version}", "--no-deps", *locked_but_for_spark(version))
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    asked = [str(python), "-c", "import pyspark; print(pyspark.__version__)"]
    assert subprocess.run(asked, capture_output=True, text=True, env=env, check=True).stdout.strip() == version
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'of'}", *RUN]
    ran = subprocess.run(command, capture_output=True, text=True, env=env, cwd=ROOT, check=False)
    assert ran.returncode == 0, ran.stdout[-20000:] + ran.stderr[-3000:]
    assert " skipped" not in ran.stdout.splitlines()[-1]
