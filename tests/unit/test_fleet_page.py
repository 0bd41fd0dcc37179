"""docs/fleet.md: its units are systemd's, and its commands have the options that they use."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from auditor import cli
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "fleet.md").read_text(encoding="utf-8")
PROGRAM = "/opt/auditor/auditor"


def commands() -> list[list[str]]:
    """The calls of the program on the page."""
    called = re.findall(rf"(?:^|exec |ExecStart=)(?:{PROGRAM}|auditor) (.+)$", PAGE, re.MULTILINE)
    return [shlex.split(words) for words in called]


def test_the_commands_are_whole() -> None:
    calls = commands()
    assert [words[0] for words in calls] == ["copy", "copy", "audit", "dashboard"]
    for words in calls:
        cli.parsed(words)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze on the PATH")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    service, timer = re.findall(r"```ini\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "auditor-copy.service").write_text(service.replace(PROGRAM, "/bin/true"))
    (tmp_path / "auditor-copy.timer").write_text(timer)
    command = ["systemd-analyze", "verify", *map(str, sorted(tmp_path.iterdir()))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
