"""The findings of an input are the same bytes, however many processes read it, in whatever order, locale and zone."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import corpora

NAMES = [name for name in corpora.judged() if list(corpora.unpack(name).rglob("meta.properties"))]
DAY = datetime.datetime.now(datetime.UTC).toordinal()
# SAME_FINDINGS=20: as many inputs; a few of the day otherwise, others each day.
CHOSEN = [NAMES[(DAY * 3 + n) % len(NAMES)] for n in range(min(len(NAMES), int(os.environ.get("SAME_FINDINGS", "2"))))]
ONE = "inline[1]"
WAYS: dict[str, tuple[str, dict[str, str], bool]] = {
    "two processes": ("inline[2]", {}, False),
    "paths in reverse": ("inline[2]", {}, True),
    "a hash seed": (ONE, {"PYTHONHASHSEED": "1"}, False),
    "another hash seed": ("inline[2]", {"PYTHONHASHSEED": "4242"}, True),
    "the C locale": (ONE, {"LC_ALL": "C", "PYTHONUTF8": "0"}, False),
    "another zone": (ONE, {"TZ": "Pacific/Kiritimati", "LC_ALL": "C.UTF-8"}, False),
}
if os.environ.get("SAME_FINDINGS_MASTER"):
    WAYS["Spark"] = (os.environ["SAME_FINDINGS_MASTER"], {}, True)


def findings(name: str, out: Path, master: str, given: dict[str, str], reverse: bool) -> bytes:
    root = corpora.unpack(name)
    paths = sorted(path.parent for path in root.rglob("meta.properties"))
    call = [sys.executable, "-m", "auditor.cli", "audit", *map(str, reversed(paths) if reverse else paths)]
    clock = str(corpora.manifest(name).get("as_of", corpora.manifest(name)["copied_at"]))
    call += ["--out", str(out), "--master", master, "--as-of", clock, "--quiet", "--fail-on", "never"]
    done = subprocess.run(call, env=os.environ | given, capture_output=True, timeout=600, check=False)
    assert done.returncode in (0, 3), done.stderr.decode(errors="replace")
    return (out / "findings.jsonl").read_bytes()


@pytest.mark.parametrize("name", CHOSEN)
def test_findings_are_the_same_bytes(tmp_path: Path, name: str) -> None:
    first = findings(name, tmp_path / "first", ONE, {}, False)
    for number, (way, (master, given, reverse)) in enumerate(WAYS.items()):
        assert findings(name, tmp_path / str(number), master, given, reverse) == first, way
