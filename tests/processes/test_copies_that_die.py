"""A copy that is killed, or finds no room: each folder is as before or as after, and another call goes on."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests import corpora, segments
from tests.conftest import NIGHTLY, ROOT
from tests.copies import LIST, old_copies
from tests.unit.test_copies_again import rows_of

FOLDERS = 60
KILLS = 60 if NIGHTLY else 12
NAME = f"{0:020}.log"


def directory(root: Path) -> Path:
    broker = root / "broker-1"
    for number in range(FOLDERS):
        (broker / f"t-{number}").mkdir(parents=True)
        (broker / f"t-{number}" / NAME).write_bytes(batches(0, 40))
    (broker / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=Q0xVU1RFUi0tLS0tLS0tLQ\n")
    return root


def batches(first: int, count: int) -> bytes:
    return b"".join(segments.simple(3 * n, 3) for n in range(first, first + count))


def grown(root: Path) -> None:
    for number in range(FOLDERS):
        folder = root / "broker-1" / f"t-{number}"
        with (folder / NAME).open("ab") as f:
            f.write(batches(40, 5))
        (folder / f"{135:020}.log").write_bytes(batches(45, 5))


def call(source: Path | None, copy: Path, **more: Any) -> subprocess.Popen[str]:
    paths = [str(source)] if source is not None else []
    line = [sys.executable, "-m", "auditor.cli", "copy", *paths, "--out", str(copy)]
    return subprocess.Popen(
        line, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, **more,
    )  # fmt: skip


def by_folder(copy: Path) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    rows = rows_of(copy)
    assert "decode_errors" not in rows
    for row in rows["batches"]:
        found.setdefault(row["file"].partition("/")[0], []).append(row)
    return found


def killed(process: subprocess.Popen[str], copy: Path, folders: int) -> None:
    """Kill a call once it has written so many folders, some of them more on a slow machine."""
    before = {path: path.stat().st_ino for path in copy.rglob(LIST)}
    while process.poll() is None and sum(before.get(p) != p.stat().st_ino for p in copy.rglob(LIST)) < folders:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    time.sleep(0.5)  # until its worker has ended, too


def test_killed_at_any_moment_each_folder_is_as_before_or_as_after(tmp_path: Path) -> None:
    source, copy = directory(tmp_path / "in"), tmp_path / "copy"
    assert call(source, copy).wait() == 0
    shutil.copytree(copy, tmp_path / "before")
    was = by_folder(copy)
    grown(source)
    assert call(source, tmp_path / "after").wait() == 0
    will_be = by_folder(tmp_path / "after")
    seen, dice = set(), random.Random(35)
    for _ in range(KILLS):
        shutil.rmtree(copy)
        shutil.copytree(tmp_path / "before", copy)
        killed(call(source, copy), copy, dice.randrange(FOLDERS))
        found = by_folder(copy)
        assert found.keys() == was.keys()
        after = [folder for folder, rows in found.items() if rows == will_be[folder]]
        assert all(found[folder] == was[folder] for folder in found.keys() - set(after))
        seen.add(len(after))
    process = call(source, copy)
    assert (process.wait(), by_folder(copy)) == (0, will_be)
    assert not [path for path in copy.rglob("*") if ".partial" in path.name]
    assert len(seen) > 1  # they died at different moments


def test_a_conversion_killed_at_any_moment_goes_on(tmp_path: Path) -> None:
    """Each folder is of version 1 or converted, and the last call converts the rest."""
    old_copies(tmp_path / "old")
    old, copy, dice, seen = tmp_path / "old" / "groups-43", tmp_path / "copy", random.Random(56), set()
    shutil.copytree(old, tmp_path / "whole")
    assert call(None, tmp_path / "whole").wait() == 0
    wanted = by_folder(tmp_path / "whole")
    for _ in range(KILLS // 2):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(old, copy)
        killed(call(None, copy), copy, dice.randrange(22))
        folders = {path.parent for path in copy.rglob("copied.*")}
        seen.add(len([folder for folder in folders if (folder / LIST).exists()]))
        assert len(folders) == 22
        assert call(None, copy).wait() == 0
        assert by_folder(copy) == wanted
        assert {path.name for path in copy.rglob("*") if path.is_file()} == {LIST, "0-THIS-IS-NO-BACKUP.txt", ".lock"}
    assert seen


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A disk of 128 KB; skipped where nobody may mount one."""
    at = tmp_path / "disk"
    at.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(at)], check=False).returncode:
        pytest.skip("no disk can be mounted here")
    yield at
    subprocess.run(["umount", "-l", str(at)], check=True)


def test_a_full_disk_is_one_line_and_what_was_copied_is_whole(tmp_path: Path, small_disk: Path) -> None:
    source = directory(tmp_path / "in")
    process = call(source, small_disk / "copy")
    _, said = process.communicate()
    assert (process.returncode, said.count("\n")) == (4, 1)
    assert "No space left" in said
    assert "Traceback" not in said
    assert 0 < len(by_folder(small_disk / "copy")) < FOLDERS


def test_a_file_that_may_not_grow_is_one_line(tmp_path: Path) -> None:
    source, copy = corpora.unpack("healthy-41"), tmp_path / "copy"
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))  # noqa: E731
    process = call(source, copy, preexec_fn=limit)
    _, said = process.communicate()
    assert (process.returncode, said.count("\n")) == (4, 1), said
    assert "File too large" in said
    assert call(source, copy).wait() == 0


def test_two_copies_at_once_do_not_meet(tmp_path: Path) -> None:
    source, copy = directory(tmp_path / "in"), tmp_path / "copy"
    many = [call(source, copy) for _ in range(2)]
    said = [process.communicate()[1] for process in many]
    status = [process.returncode for process in many]
    assert 0 in status
    assert all(code == 0 or (code == 2 and "another run" in text) for code, text in zip(status, said, strict=True))
    assert len(by_folder(copy)) == FOLDERS
