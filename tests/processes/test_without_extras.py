"""What runs where only the required packages are installed, as after ``make demo`` or ``pip install .``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import corpora
from tests.conftest import ROOT

OPTIONAL = ("pyspark", "py4j", "pandas", "great_expectations", "kafka", "cryptography", "duckdb")
BLOCKED = f"import sys; sys.modules.update(dict.fromkeys({OPTIONAL}))\n"  # None: as if it were not installed
MAIN = BLOCKED + "from auditor.cli import main; sys.exit(main(sys.argv[1:]))"


def ran(code: str, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.parametrize(("command", "status"), [("audit", 1), ("what-if", 0)])
def test_without_a_master_it_runs_inline(command: str, status: int, tmp_path: Path) -> None:
    done = ran(MAIN, command, corpora.unpack("hanging-36"), "--out", tmp_path / "out")
    assert (done.returncode, done.stderr) == (status, "")


def test_spark_is_named_where_it_is_asked_for(tmp_path: Path) -> None:
    done = ran(MAIN, "audit", corpora.unpack("hanging-36"), "--out", tmp_path / "out", "--master", "local[1]")
    assert done.returncode == 2
    assert "--master local[1] needs pyspark" in done.stderr


def test_set_up_compiles_without_spark() -> None:
    """The last step of ``make demo``."""
    done = ran(BLOCKED + "from auditor.spark import warm; warm.keep_classes(); print(warm.DEMO.is_dir())")
    assert (done.stdout, done.stderr) == ("True\n", "")
