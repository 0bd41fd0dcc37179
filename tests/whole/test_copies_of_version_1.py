"""Copies of version 1 are converted in place by ``auditor copy --out OLD``, and until then no audit reads them.

``tests/data/copies-of-version-1.tar.xz`` was made by the last program that wrote them: ``healthy-41``; ``groups-43``
with ``--records`` and each small file beside the list; ``held``, the broker of ``tests/growing.py`` with four
segments of five batches, the two oldest of which its retention deleted before a copy with ``--keep``.
"""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from auditor import cli
from auditor.copying import run
from auditor.copying.run import copy_logs
from tests import corpora
from tests.copies import LIST, breaks_off, copied_here, old_copies
from tests.facts import opened
from tests.growing import rows_of

NAMES = ("groups-43", "healthy-41", "held")
README = "0-THIS-IS-NO-BACKUP.txt"


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    copied_here(monkeypatch)
    monkeypatch.setattr(run, "RACY_NS", -(1 << 62))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    old_copies(tmp_path / "old")
    return tmp_path / "old"


def findings(path: Path, *, records: bool = False) -> list[str]:
    """But for what a broker's start meets: none starts on a copy."""
    return [f.to_json() for f in opened(path, records=records).findings if f.kind != "start-fails"]


def converted(copy: Path) -> int:
    return cli.main(["copy", "--out", str(copy)])


@pytest.mark.parametrize("name", ["groups-43", "healthy-41"])
def test_a_converted_copy_is_as_the_directory(name: str, old: Path) -> None:
    copy, source, records = old / name, corpora.unpack(name), name == "groups-43"
    assert converted(copy) == 0
    assert {path.name for path in copy.rglob("*") if path.is_file()} == {LIST, README, ".lock"}
    assert findings(copy, records=records) == findings(source, records=records)
    was, now = rows_of(source), rows_of(copy)
    for table in ("batches", "index_entries"):
        assert now[table] == was[table]


def test_what_is_held_is_held_still(old: Path) -> None:
    assert converted(old / "held") == 0
    rows = [row for row in rows_of(old / "held")["batches"] if (row["topic"], row["partition"]) == ("t", 0)]
    assert sorted(row["base_offset"] for row in rows) == list(range(0, 60, 3))
    assert sum("held by a copy" in item.reason for item in opened(old / "held").inventory.skipped) == 2


@pytest.mark.parametrize("name", ["groups-43", "healthy-41"])
def test_the_next_copy_goes_on_from_it(name: str, old: Path) -> None:
    """Files have other inodes here, so segments are read again, or they are gone on with; nothing is lost."""
    copy_logs([str(corpora.unpack(name))], old / name)
    assert not [path for path in (old / name).rglob("*") if path.is_file() and path.name not in (LIST, README)]
    assert findings(old / name) == findings(corpora.unpack(name))


def test_an_audit_names_the_command(old: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (old / "held", old / "held" / "broker-1", old / "held" / "broker-1" / "t-0"):
        assert cli.main(["audit", str(path), "--out", str(tmp_path / "out")]) == 2
        said = capsys.readouterr().err
        assert f"auditor copy --out {old / 'held'}" in said
        assert said.count("\n") == 1
    assert cli.main(["decode", str(old / "held" / "broker-1" / "t-0")]) == 2
    assert f"auditor copy --out {old / 'held'}" in capsys.readouterr().err
    # Beside others it is a row.
    source = corpora.copy("healthy-41", tmp_path / "source")
    audit = opened_beside(source, old / "held")
    assert [error.detail for _, error in audit.unread() if str(old / "held") in error.detail] != []
    assert audit.exit_code() == 3


def opened_beside(*paths: Path) -> Any:
    from tests.facts import opened_all

    return opened_all([str(path) for path in paths])


def test_killed_at_any_change_it_is_of_one_version_or_the_other(old: Path, tmp_path: Path) -> None:
    whole, number = tmp_path / "whole", 0
    shutil.copytree(old / "held", whole)
    assert converted(whole) == 0
    wanted, work = rows_of(whole), tmp_path / "work"
    for number in range(100):
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(old / "held", work)
        if not breaks_off(partial(copy_logs, [], work), number):
            break
        for folder in {path.parent for path in work.rglob("*") if path.is_file()}:
            files = {path.name for path in folder.iterdir()}
            assert LIST in files or "copied.json.gz" in files or folder == work
        copy_logs([], work)
        assert rows_of(work) == wanted
        assert {path.name for path in work.rglob("*") if path.is_file()} == {LIST, README}
    assert number > 10


def test_what_is_damaged_in_it_is_named_as_before(old: Path) -> None:
    file = next((old / "held" / "broker-1" / "t-0").glob("*.parquet"))
    data = bytearray(file.read_bytes())
    data[10] ^= 1
    file.write_bytes(data)
    assert converted(old / "held") == 0
    errors = rows_of(old / "held")["decode_errors"]
    assert {error["reason"] for error in errors} == {"unreadable"}
    assert {error["file"].partition("/")[0] for error in errors} == {"t-0"}
    assert "__consumer_offsets-0" in {row["file"].partition("/")[0] for row in rows_of(old / "held")["batches"]}


def test_nothing_to_convert(tmp_path: Path, old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (tmp_path / "nothing", tmp_path):
        assert converted(path) == 2
    assert "missing PATH" in capsys.readouterr().err
    assert not (tmp_path / "nothing").exists()
    assert converted(old / "held") == 0
    assert converted(old / "held") == 0
    assert "0 directories" in capsys.readouterr().out
