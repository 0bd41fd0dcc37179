"""What ``--keep`` holds of what the broker has deleted, what goes, and that no audit says anything else for it."""

from __future__ import annotations

import argparse
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from auditor import cli
from auditor.copying import run
from auditor.copying.folders import InputFolder
from auditor.copying.run import copy_logs
from auditor.copying.throttling import keep_time
from tests import segments
from tests.copies import LIST, copied_here
from tests.facts import opened
from tests.growing import batches, broker, rows_of

DAY = 86_400_000
OTHER = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg\n"


@pytest.fixture(autouse=True)
def any_age(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are a test's own, and all have just been written."""
    monkeypatch.setattr(run, "RACY_NS", -(1 << 62))


def log(source: Path) -> Path:
    return source / "t-0"


def segment(first: int) -> str:
    """The segment of batch ``first``, by its name."""
    return f"{3 * first:020}.log"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A log of four segments of five batches each."""
    found = broker(tmp_path / "in" / "broker-1")
    for first in (0, 5, 10, 15):
        (log(found) / segment(first)).write_bytes(batches(first, 5))
    return found


def retention(source: Path) -> None:
    """The two oldest segments go, as by retention."""
    (log(source) / segment(0)).unlink()
    (log(source) / segment(5)).unlink()


def bases(path: Path) -> list[int]:
    found = rows_of(path)["batches"]
    return sorted(row["base_offset"] for row in found if row["topic"] == "t" and row["partition"] == 0)


def held(path: Path) -> int:
    """How many segments the input of an audit names as held."""
    return sum("held by a copy" in item.reason for item in opened(path).inventory.skipped)


def findings(path: Path) -> list[str]:
    return [f.to_json() for f in opened(path).findings]


def test_what_retention_deletes_is_held_for_the_time_and_then_goes(source: Path, tmp_path: Path) -> None:
    copy, now = tmp_path / "copy", run.time.time_ns()
    copy_logs([str(source.parent)], copy, keep_ms=30 * DAY)
    retention(source)
    assert copy_logs([str(source.parent)], copy, keep_ms=30 * DAY).held == 2
    assert bases(copy) == list(range(0, 60, 3))
    assert bases(source.parent) == list(range(30, 60, 3))
    assert held(copy) == 2
    assert copy_logs([str(source.parent)], copy).held == 2  # which says nothing of keeping
    with pytest.MonkeyPatch.context() as later:
        later.setattr(run.time, "time_ns", lambda: now + 29 * DAY * 1_000_000)
        assert copy_logs([str(source.parent)], copy, keep_ms=30 * DAY).held == 2
        assert copy_logs([str(source.parent)], copy, keep_ms=40 * DAY).held == 2
        later.setattr(run.time, "time_ns", lambda: now + 41 * DAY * 1_000_000)
        assert copy_logs([str(source.parent)], copy).held == 0
    assert bases(copy) == bases(source.parent)
    assert held(copy) == 0
    assert [path.name for path in (copy / "broker-1" / "t-0").iterdir()] == [LIST]


def test_without_it_and_with_no_time_nothing_is_held(source: Path, tmp_path: Path) -> None:
    for number, keep in enumerate((None, 0)):
        copy_logs([str(source.parent)], tmp_path / f"{number}")
        retention(source)
        assert copy_logs([str(source.parent)], tmp_path / f"{number}", keep_ms=keep).held == 0
        assert bases(tmp_path / f"{number}") == bases(source.parent)
        (log(source) / segment(0)).write_bytes(batches(0, 5))
        (log(source) / segment(5)).write_bytes(batches(5, 5))


def test_what_is_held_goes_at_once_where_it_is_asked(source: Path, tmp_path: Path) -> None:
    copy_logs([str(source.parent)], tmp_path / "copy")
    retention(source)
    assert copy_logs([str(source.parent)], tmp_path / "copy", keep_ms=DAY).held == 2
    assert copy_logs([str(source.parent)], tmp_path / "copy", keep_ms=0).held == 0


def truncated(source: Path) -> None:
    """The end of the log is gone, and grows anew."""
    (log(source) / segment(15)).unlink()
    (log(source) / segment(10)).write_bytes(batches(10, 2))


def cleaned(source: Path) -> None:
    """The cleaner makes one segment of two."""
    (log(source) / segment(5)).unlink()
    (log(source) / segment(0)).write_bytes(batches(0, 1) + batches(8, 2))


def made_anew(source: Path) -> None:
    """Another topic of the same name, whose log was moved on."""
    for first in (0, 5, 10):
        (log(source) / segment(first)).unlink()
    (log(source) / "partition.metadata").write_text(OTHER)


def removed(source: Path) -> None:
    shutil.rmtree(log(source))


def set_aside(source: Path) -> None:
    log(source).rename(source / "t-0.0123456789abcdef0123456789abcdef-delete")


def begins_lower(source: Path) -> None:
    """The log was truncated whole, and is fetched from the leader again: less of it than was deleted."""
    for first in (0, 5, 10, 15):
        (log(source) / segment(first)).unlink()
    (log(source) / f"{3 * 2:020}.log").write_bytes(batches(2, 18))


@pytest.mark.parametrize("change", [truncated, cleaned, made_anew, removed, set_aside, begins_lower])
def test_what_is_no_past_of_this_log_is_not_held(change: Callable[[Path], None], source: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy_logs([str(source.parent)], copy)
    change(source)
    assert copy_logs([str(source.parent)], copy, keep_ms=DAY).held == 0
    copy_logs([str(source.parent)], tmp_path / "new")
    assert rows_of(copy) == rows_of(tmp_path / "new")


def test_what_was_held_goes_with_its_topic(source: Path, tmp_path: Path) -> None:
    copy_logs([str(source.parent)], tmp_path / "copy")
    retention(source)
    assert copy_logs([str(source.parent)], tmp_path / "copy", keep_ms=DAY).held == 2
    (log(source) / "partition.metadata").write_text(OTHER)
    assert copy_logs([str(source.parent)], tmp_path / "copy", keep_ms=DAY).held == 0


def test_what_vanishes_while_it_is_copied_is_held(source: Path, tmp_path: Path) -> None:
    copy_logs([str(source.parent)], tmp_path / "copy")
    listed = InputFolder.refresh

    def vanish(folder: InputFolder) -> None:
        listed(folder)
        if folder.name.endswith("t-0") and (log(source) / segment(0)).exists():  # then it is read once more
            retention(source)

    for first in (0, 5):  # as other files, which are opened
        content = (log(source) / segment(first)).read_bytes()
        (log(source) / segment(first)).rename(tmp_path / "old")
        (log(source) / segment(first)).write_bytes(content)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(InputFolder, "refresh", vanish)
        assert copy_logs([str(source.parent)], tmp_path / "copy", keep_ms=DAY).held == 2
    assert bases(tmp_path / "copy") == list(range(0, 60, 3))


def test_nothing_that_is_held_makes_a_finding_or_hides_one(source: Path, tmp_path: Path) -> None:
    """Random logs, gaps and a start that lies below what is there among them: as a copy of what is there by now."""
    (source / "log-start-offset-checkpoint").write_text("0\n1\nt 0 6\n")
    said = set[str]()
    for seed in range(40):
        r = random.Random(seed)
        for file in log(source).glob("*.log"):
            file.unlink()
        sequence = 0
        for first in range(0, 30, 5):
            data = b""
            for n in range(first, first + 5):
                sequence += r.choice((0,) * 8 + (4,))
                data += segments.simple(3 * n, 3, producer_id=7, epoch=0, sequence=sequence)
                sequence += 3
            if r.random() < 0.8:
                (log(source) / segment(first)).write_bytes(data if r.random() < 0.8 else data[:-9])
        copy = tmp_path / f"{seed}"
        copy_logs([str(source.parent)], copy, keep_ms=DAY)
        gone = sorted(log(source).glob("*.log"))[:-1]
        for file in gone[: r.randint(1, 4)]:
            file.unlink()
        kept = copy_logs([str(source.parent)], copy, keep_ms=DAY).held
        assert findings(copy) == findings(source.parent)
        assert held(copy) == kept
        said |= {json.loads(line)["rule"] for line in findings(copy)} if kept else set()
    assert "missing-records" in said


def test_the_command_says_what_is_held_and_an_audit_where_it_stands(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copied_here(monkeypatch)
    words = ["copy", str(source.parent), "--out", str(tmp_path / "copy"), "--keep", "30d"]
    assert cli.main(words) == 0
    retention(source)
    capsys.readouterr()
    assert cli.main(words) == 0
    assert "kept: 2 segments that the broker has deleted" in capsys.readouterr().out
    (note,) = [n for n in opened(tmp_path / "copy").inventory.notes if "has deleted" in n]
    assert note.startswith("broker-1: 2 segments")
    assert cli.main(["decode", str(tmp_path / "copy" / "broker-1" / "t-0" / segment(0))]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 5
    assert (keep_time("30d"), keep_time("12 h"), keep_time("90m")) == (30 * DAY, DAY // 2, 5_400_000)
    with pytest.raises(argparse.ArgumentTypeError, match="30d"):
        keep_time("soon")
