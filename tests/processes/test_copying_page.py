"""The lines of docs/copying.md, run as they stand: what they copy, and in which order. ssh is a stand-in."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import corpora
from tests.conftest import ROOT

BLOCKS = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "copying.md").read_text(encoding="utf-8"), re.DOTALL)
SOURCE = corpora.unpack("hanging-36") / "broker-1"
# Runs here what it was to run there, where the log directory is another.
SSH = """#!/bin/bash
shift
exec bash -c "${{*//\\/var\\/lib\\/kafka/{source}}}"
"""


def rank(name: str) -> int:
    """Of a file or folder at the top, by the list above the lines: 1 is copied first."""
    kinds = (("__transaction_state-", 3), ("__cluster_metadata-", 4), ("__consumer_offsets-", 1))
    return next((place for start, place in kinds if name.startswith(start)), 2 if re.search(r"-\d+$", name) else 1)


@pytest.mark.parametrize("tool", ["rsync", "tar"])
def test_all_is_copied_in_order(tool: str, tmp_path: Path) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"no {tool} here")
    lines = next(block for block in BLOCKS if f"{tool} -" in block).splitlines()
    here = tmp_path / "bin"
    here.mkdir()
    (here / "ssh").write_text(SSH.format(source=str(SOURCE).replace("/", "\\/")))
    (here / "ssh").chmod(0o755)
    target, arrived = tmp_path / "copies" / "broker-1", dict[str, int]()
    target.parent.mkdir()
    env = os.environ | {"PATH": f"{here}:{os.environ['PATH']}"}
    for number, line in enumerate(lines):
        run = ["bash", "-c", "set -o pipefail; " + line.replace("/copies/", f"{target.parent}/")]
        done = subprocess.run(run, env=env, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        arrived |= {path.name: number for path in target.iterdir() if path.name not in arrived}
    there = {path.relative_to(SOURCE): path for path in SOURCE.rglob("*")}
    assert {path.relative_to(target) for path in target.rglob("*")} == set(there)
    assert all((target / name).read_bytes() == path.read_bytes() for name, path in there.items() if path.is_file())
    in_order = sorted(arrived, key=lambda name: arrived[name])
    assert [rank(name) for name in in_order] == sorted(map(rank, in_order))
    assert len({arrived[name] for name in arrived}) == 4
