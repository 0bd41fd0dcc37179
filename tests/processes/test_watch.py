"""``auditor watch`` over a growing directory, killed in the middle: in the end it has reported all, once."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from auditor import cli
from auditor.outputs.printing import JOURNAL
from tests import corpora, segments
from tests.conftest import ROOT

CORPUS = "hanging-36"


@pytest.fixture
def whole() -> Path:
    return corpora.unpack(CORPUS)


def as_of() -> str:
    return str(corpora.manifest(CORPUS)["copied_at"])


def grow(whole: Path, target: Path, share: float) -> None:
    """The directory as it was before its last bytes were appended: the start of every log, and no index yet."""
    for source in sorted(p for p in whole.rglob("*") if p.is_file()):
        copy = target / source.relative_to(whole)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if share == 1 or source.suffix not in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
            shutil.copyfile(source, copy)
        elif source.suffix == ".log":
            copy.write_bytes(source.read_bytes()[: int(source.stat().st_size * share)])


def call(folder: Path, out: Path) -> list[str]:
    return ["watch", str(folder), "--out", str(out), "--as-of", as_of(), "--interval", "0.2", "--quiet",
            "--fail-on", "never", "--master", "inline[1]"]  # fmt: skip


def lines(out: Path) -> list[dict[str, Any]]:
    if not (out / JOURNAL).exists():
        return []
    return [json.loads(line) for line in (out / JOURNAL).read_text(encoding="utf-8").splitlines(keepends=True)
            if line.endswith("\n")]  # fmt: skip


def still_open(reported: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the journal leaves open; no finding may be reported twice or resolved unfound."""
    opened: dict[str, dict[str, Any]] = {}
    for line in reported:
        assert (line["key"] in opened) == (line["event"] == "resolved"), line
        if line["event"] == "found":
            opened[line["key"]] = line
        else:
            del opened[line["key"]]
    return list(opened.values())


def wait_for_more(process: subprocess.Popen[bytes], out: Path, seconds: float) -> None:
    until, seen = time.monotonic() + seconds, len(lines(out))
    while len(lines(out)) == seen and time.monotonic() < until:
        assert process.poll() is None
        time.sleep(0.1)


def test_killed_in_the_middle_nothing_is_lost_and_nothing_reported_twice(whole: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "logs", tmp_path / "out"
    grow(whole, folder, 0.4)
    with subprocess.Popen([sys.executable, "-m", "auditor.cli", *call(folder, out)], cwd=ROOT) as first:
        wait_for_more(first, out, seconds=240)
        grow(whole, folder, 0.7)
        wait_for_more(first, out, seconds=20)
        first.send_signal(signal.SIGKILL)
    before = lines(out)
    assert before, "the first half of these logs shows a finding"

    grow(whole, folder, 1)
    assert cli.main([*call(folder, out), "--until-idle", "1"]) == 0
    reported = lines(out)
    assert reported[: len(before)] == before

    batch = tmp_path / "batch"
    cli.main(["audit", str(folder), "--out", str(batch), "--as-of", as_of(), "--quiet", "--master", "inline[1]"])
    found = (batch / "findings.jsonl").read_text(encoding="utf-8")
    assert (out / "findings.jsonl").read_text(encoding="utf-8") == found
    same = ("rule", "severity", "topic", "partition", "offset", "producer_id")
    assert sorted([[row[n] for n in same] for row in still_open(reported)], key=str) == sorted(
        [[row[n] for n in same] for row in map(json.loads, found.splitlines())], key=str
    )


def test_a_watch_that_starts_again_goes_on_from_its_work_folder(tmp_path: Path) -> None:
    """And says no more than one that reads all."""
    folder, work = tmp_path / "logs" / "large-0", tmp_path / "work"
    folder.mkdir(parents=True)
    (folder.parent / "cleaner-offset-checkpoint").write_text("0\n0\n")

    def write(first: int) -> None:
        batches = [segments.simple(first + 3 * k, value=bytes(100_000)) for k in range(60)]
        (folder / f"{first:020}.log").write_bytes(b"".join(batches))

    def watched(out: Path, *more: str) -> list[dict[str, Any]]:
        call = ["watch", str(folder.parent), "--out", str(out), "--interval", "0.1", "--until-idle", "0", "--quiet"]
        cli.main([*call, "--fail-on", "never", "--master", "inline[1]", "--as-of", "now", *more])
        return [{name: value for name, value in line.items() if name != "at"} for line in lines(out)]

    write(0)
    write(180)
    assert watched(tmp_path / "with", "--work", str(work)) == watched(tmp_path / "without")
    (point,) = work.glob("*.point")
    before = point.read_bytes()
    write(366)
    assert watched(tmp_path / "with", "--work", str(work)) == watched(tmp_path / "without")
    assert point.read_bytes() != before
