"""What commands leave in the folder for temporary files goes with the tests that ran them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_folders_of_failed_commands_go_with_the_run(tmp_path: Path) -> None:
    """One that fails without a folder of its own leaves its trace in ``auditor-failure-*`` and says where."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | {"TMPDIR": str(tmp_path)}
    tests = tmp_path / "test_one.py"
    tests.write_text(
        "import pathlib, tempfile\n"
        "import pytest\n"
        "from auditor.base.errors import AuditFailure\n"
        "from auditor.running import failures\n"
        "def test_it():\n"
        "    with pytest.raises(AuditFailure, match='auditor-failure-') as failed, failures():\n"
        "        raise IndexError\n"
        f"    assert str(failed.value).rpartition(' ')[2].startswith('{tmp_path}/auditor-tests-')\n"
        "    assert list(pathlib.Path(tempfile.gettempdir()).glob('auditor-failure-*/failure.log'))\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", str(tests)]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=ROOT)
    assert ran.returncode == 0, ran.stdout
    assert not list(tmp_path.glob("auditor-*"))
