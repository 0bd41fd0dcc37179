"""The questions of docs/tracker-questions.md, the log directory that they ask, and what its broker did."""

from __future__ import annotations

import functools
import json
import re
import shlex
import tarfile
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from tests.conftest import ROOT

PAGE = ROOT / "docs" / "tracker-questions.md"
DATA = ROOT / "tests" / "data" / "asked"


class Question(NamedTuple):
    """A title with the words of its command, and what the page says that it prints."""

    title: str
    command: list[str]
    answer: str


def questions() -> list[Question]:
    """Those of the page, in its order."""
    found = []
    for part in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        title, text = part.split("\n", 1)
        ((command, answer),) = re.findall(r"```console\n\$ auditor (.*?)\n(.*?)```", text, re.DOTALL)
        found.append(Question(title, shlex.split(command), answer))
    return found


def said() -> dict[str, Any]:
    """What the broker did: see :mod:`tests.broker.asked_logs`."""
    known: dict[str, Any] = json.loads((DATA / "said.json").read_text(encoding="utf-8"))
    return known


@functools.cache
def folder() -> Path:
    """The log directory, unpacked once; nobody writes to it."""
    target = Path(tempfile.mkdtemp(prefix="auditor-asked-"))
    with tarfile.open(DATA / "data.tar.gz") as archive:
        archive.extractall(target, filter="data")
    return target / "asked"
