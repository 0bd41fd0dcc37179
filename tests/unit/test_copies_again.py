"""A copy into an earlier one: what is as it was is not read, and whatever happened meanwhile, it is as a new one."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from auditor import cli
from auditor.base.errors import DEFAULT_LIMITS, DecodeError, Limits
from auditor.connectors.logdir.copy_format import LIST, Listed
from auditor.connectors.logdir.inventory import Drafts, discover, drafts
from auditor.connectors.stores import storage
from auditor.connectors.stores import storage as stores_storage
from auditor.connectors.stores.storage import StorageLocation
from auditor.copying import folders, run, target
from auditor.copying.folders import now_ms
from tests import corpora
from tests.copies import breaks_off, copied_here, copy_of, listed
from tests.facts import opened
from tests.growing import CHANGES, NAME, appended, batches, broker, offsets, rolled, rows_of


@pytest.fixture(autouse=True)
def any_age(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are a test's own, and all have just been written."""
    monkeypatch.setattr(run, "RACY_NS", -(1 << 62))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return broker(tmp_path / "in" / "broker-1")


def test_of_an_unchanged_directory_no_log_is_opened(tmp_path: Path) -> None:
    source, opened = corpora.unpack("unclean-43"), list[str]()
    first = copy_of(source, tmp_path / "copy")
    lists = {path: path.stat().st_ino for path in (tmp_path / "copy").rglob("*") if path.is_file()}
    with stores_storage.guarded({}, opened.append):
        again = copy_of(source, tmp_path / "copy")
    assert first.segments == again.segments == again.kept > 50
    assert again.batches == again.bytes_read == 0
    assert opened
    assert not [path for path in opened if path.startswith(str(source)) and path.endswith(".log")]
    # Of the log directories the lists say when it was read.
    rest = {
        p: inode for p, inode in lists.items() if p.name != target.README and not p.parent.name.startswith("broker")
    }
    assert {p: p.stat().st_ino for p in rest if p.exists()} == rest


def test_folders_are_listed_no_later_than_they_say(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a broker writes while all folders are looked for came behind the first of them, and one that cannot be
    listed again stays as it was."""
    begun: list[int] = []

    def slow(paths: list[str], limits: Limits) -> Drafts:
        begun.append(now_ms())
        found = drafts(paths, limits)
        time.sleep(0.02)
        return found

    monkeypatch.setattr(folders, "drafts", slow)
    found = folders.Folders([str(source)], DEFAULT_LIMITS).found
    assert len(found) > 1
    assert max(folder.listed for folder in found.values()) <= begun[0]


def test_a_link_in_place_of_a_segment_has_the_size_that_an_audit_gives_it(source: Path, tmp_path: Path) -> None:
    rolled(source)  # the first one is closed
    segment, elsewhere = source / "t-0" / NAME, tmp_path / NAME
    segment.rename(elsewhere)
    segment.symlink_to(elsewhere)
    copy_of(source, tmp_path / "copy")
    sizes = [
        {file.name: file.size for log_dir in discover([str(path)]).log_dirs for file in log_dir.files()}
        for path in (source, tmp_path / "copy")
    ]
    assert sizes[0][f"t-0/{NAME}"] == 0
    assert sizes[0] == sizes[1]


def test_a_file_of_somebodys_closes_no_segment(source: Path) -> None:
    """What a broker appends to its last segment meanwhile is no replacement of it."""
    (source / "t-0" / "backup.log").write_bytes(b"of a person")

    def closed() -> set[str]:
        found = folders.Folders([str(source)], DEFAULT_LIMITS).found
        return next(folder for name, folder in found.items() if name.endswith("t-0")).closed()

    assert closed() == set()
    rolled(source)
    assert closed() == {NAME}


def whole(copy: Path) -> set[str]:
    """Every file, and that each is named by a list."""
    return {path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_file()}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_happened_it_is_as_a_new_one(source: Path, tmp_path: Path, change: Callable[[Path], None]) -> None:
    again, new = tmp_path / "again", tmp_path / "new"
    copy_of(source.parent, again)
    change(source)
    done = copy_of(source.parent, again)
    copy_of(source.parent, new)
    assert rows_of(again) == rows_of(new)
    assert {path.rpartition("/")[0] for path in whole(again)} == {path.rpartition("/")[0] for path in whole(new)}
    if change in (appended, rolled):
        assert done.bytes_read == sum(
            map(len, (batches(5, 3), offsets(5, 3)) if change is appended else [batches(5, 2)])
        )
    assert rows_of(again)["batches"] == rows_of(source.parent)["batches"]


def test_a_partition_that_moves_to_another_disk_is_followed(tmp_path: Path) -> None:
    """As a broker moves it (KIP-113): beside a ``-future`` folder, which then takes its place, and ``-delete``."""
    a, b, copy = tmp_path / "in" / "broker-1a", tmp_path / "in" / "broker-1b", tmp_path / "copy"
    ident, topic = "0123456789abcdef0123456789abcdef", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAA{}\n"
    for disk in (a, b):
        disk.mkdir(parents=True)
        (disk / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=Q0xVU1RFUi0tLS0tLS0tLQ\n")

    def begun() -> None:
        for folder in (a / "t-1", a / "t-2"):
            folder.mkdir()
            (folder / NAME).write_bytes(batches(0, 5))
            (folder / "partition.metadata").write_text(topic.format("Q"))

    def moving() -> None:
        (b / f"t-1.{ident}-future").mkdir()
        (b / f"t-1.{ident}-future" / NAME).write_bytes(batches(0, 3))

    def moved() -> None:
        (b / f"t-1.{ident}-future" / NAME).write_bytes(batches(0, 5))
        (a / "t-1").rename(a / f"t-1.{ident}-delete")
        (b / f"t-1.{ident}-future").rename(b / "t-1")
        (b / "t-1" / "partition.metadata").write_text(topic.format("Q"))

    def gone_and_stray() -> None:
        shutil.rmtree(a / f"t-1.{ident}-delete")
        (a / "t-2").rename(a / f"t-2.{ident}-stray")

    def made_again() -> None:
        (a / "t-2").mkdir()
        (a / "t-2" / NAME).write_bytes(batches(0, 5))
        (a / "t-2" / "partition.metadata").write_text(topic.format("g"))

    ids = []
    for number, step in enumerate((begun, moving, moved, gone_and_stray, made_again)):
        step()
        copy_of(a.parent, copy)
        copy_of(a.parent, new := tmp_path / f"new-{number}")
        assert rows_of(copy) == rows_of(new)
        assert rows_of(copy)["batches"] == rows_of(a.parent)["batches"]
        folders = [sorted(p.relative_to(root).as_posix() for p in root.rglob("*-*") if p.is_dir()) for root in (a, b)]
        kept = [copy / a.name, copy / b.name]
        assert [sorted(p.relative_to(r).as_posix() for p in r.rglob("*-*") if p.is_dir()) for r in kept] == folders
        ids.append({r.topic_id for d in discover([str(copy)]).log_dirs for r in d.replicas if r.folder == "t-2"})
    assert ids[0] == {"AAAAAAAAAAAAAAAAAAAAAQ"}
    assert ids[-1] == {"AAAAAAAAAAAAAAAAAAAAAg"}


def test_many_small_copies_leave_one_file_of_one_row_group(source: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for number in range(1, 60):
        (source / "t-0" / f"{15 * number:020}.log").write_bytes(batches(5 * number, 5))
        copy_of(source.parent, copy)
        assert [path.name for path in (copy / "broker-1" / "t-0").iterdir()] == [LIST]
        assert len(listed(copy / "broker-1" / "t-0")["groups"]) == 1
    assert rows_of(copy)["batches"] == rows_of(source.parent)["batches"]


def test_a_copy_that_breaks_off_anywhere_leaves_each_partition_whole(source: Path, tmp_path: Path) -> None:
    """Each folder is as before or as after, and the next copy is whole."""
    copy_of(source.parent, tmp_path / "before")
    appended(source)
    rolled(source)
    copy_of(source.parent, tmp_path / "after")
    states = [rows_of(tmp_path / name)["batches"] for name in ("before", "after")]
    of = lambda rows, folder: [r for r in rows if r["file"].startswith(folder)]  # noqa: E731
    for number in range(60):
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(tmp_path / "before", copy)
        if not breaks_off(partial(copy_of, source.parent, copy), number):
            break
        found = rows_of(copy)
        assert "decode_errors" not in found
        for folder in ("t-0", "t-1", "__consumer_offsets-0"):
            assert of(found["batches"], folder) in [of(state, folder) for state in states]
        copy_of(source.parent, copy)
        assert rows_of(copy)["batches"] == states[1]
        assert not [path for path in whole(copy) if ".partial" in path]
    assert number == 4  # the mark that it is under way, two partitions, and that it has ended


def test_a_file_that_changed_just_now_is_read_again(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "RACY_NS", 1 << 62)
    copy_of(source.parent, tmp_path / "copy")
    assert copy_of(source.parent, tmp_path / "copy").kept == 0


def test_what_is_missing_or_damaged_in_the_earlier_copy_is_made_anew(source: Path, tmp_path: Path) -> None:
    copy_of(source.parent, tmp_path / "copy")
    files = sorted((tmp_path / "copy").rglob(LIST))
    files[-1].write_bytes(b"")
    files[-2].unlink()
    for file in files[:-2]:  # the first byte of a row group, where there is one: it shows when the segment grows
        data = bytearray(file.read_bytes())
        data[4] ^= 1
        file.write_bytes(data)
    appended(source)
    copy_of(source.parent, tmp_path / "copy")
    assert rows_of(tmp_path / "copy")["batches"] == rows_of(source.parent)["batches"]


def test_a_folder_whose_name_begins_with_a_point(tmp_path: Path) -> None:
    root = tmp_path / "in"
    (root / ".9").mkdir(parents=True)
    (root / ".9" / NAME).write_bytes(batches(0, 5))
    for _ in range(2):
        copy_of(root, tmp_path / "copy")
        assert rows_of(tmp_path / "copy")["batches"] == rows_of(root)["batches"]


@pytest.mark.parametrize("kind", ["log", "index", "timeindex", "txnindex"])
def test_what_is_replaced_while_it_is_read_is_read_again(
    source: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cleaner gives a closed segment other bytes, or an index, right when its folder was read: of the same size."""
    rolled(source)
    path = (source / "t-0" / NAME).with_suffix(f".{kind}")
    if kind != "log":
        path.write_bytes(bytes(24))
    times = right_when_it_was_read(monkeypatch, lambda: replaced(path, path.read_bytes()), 1)
    done = copy_of(source.parent, tmp_path / "copy")
    assert times.count("t-0") == 2
    assert times.count("t-1") == 1
    assert rows_of(tmp_path / "copy") == rows_of(source.parent)
    assert done.folders == len(set(times))
    assert done.bytes_read > done.batches * len(batches(0, 1))  # what was read in vain, too


def right_when_it_was_read(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object], most: int) -> list[str]:
    """What happens, so many times at most, when all files of the folder t-0 were read, before their list is written;
    the folders that are read, each time that they are."""
    retained, times = run.retained_segments, list[str]()

    def read(folder: folders.InputFolder, *how: Any) -> Iterator[Listed]:
        name = folder.name.rpartition("/")[2]
        if name == "t-0" and times.count(name) < most:
            change()
        times.append(name)
        return retained(folder, *how)

    monkeypatch.setattr(run, "retained_segments", read)
    return times


def replaced(path: Path, data: bytes) -> None:
    """As the cleaner does it: another file, which has the old one's time, gets its name."""
    was = path.stat()
    new = path.with_name(f"{path.name}.swap")
    new.write_bytes(data)
    os.utime(new, ns=(was.st_atime_ns, was.st_mtime_ns))
    new.rename(path)


def test_an_index_that_is_replaced_each_time_is_not_compared(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Segment and index would be of before and of after. It is said, by the command and by an audit of the copy."""
    rolled(source)
    path = (source / "t-0" / NAME).with_suffix(".index")
    path.write_bytes((2).to_bytes(4, "big") + (7).to_bytes(4, "big"))  # of no batch's beginning
    times = right_when_it_was_read(monkeypatch, lambda: replaced(path, path.read_bytes()), 9)
    copy = tmp_path / "copy"
    copied_here(monkeypatch)
    assert cli.main(["copy", str(source.parent), "--out", str(copy)]) == 0
    assert times.count("t-0") == 3
    assert "1 directory changed during each" in capsys.readouterr().out
    audit = opened(copy)
    assert [f.kind for f in audit.findings if f.kind == "index-mismatch"] == []
    (row,) = rows_of(copy)["decode_errors"]
    assert (row["file"], row["reason"]) == (f"t-0/{path.name}", "vanished")
    monkeypatch.undo()
    assert copy_of(source.parent, copy).moving == set()
    assert [f.kind for f in opened(copy).findings if f.kind == "index-mismatch"] == ["index-mismatch"]


def test_a_folder_in_which_a_file_is_renamed_while_it_is_listed_is_as_of_then(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a busy compacted log of 3.9.1: it stayed as it was when all folders were listed, seconds before the time
    that the copy said of it. What came in between looked lost."""
    listing, gone = storage.listing, list[str]()
    error = DecodeError(f"{15:020}.log.swap", 0, -1, "vanished", "gone since the directory was listed")

    def listed(where: StorageLocation, *, deep: bool = True, limits: Limits = DEFAULT_LIMITS) -> storage.FolderListing:
        if where.path.endswith("t-0") and not gone:
            rolled(source)
            gone.append(where.path)
            return listing(where, deep=deep, limits=limits)._replace(errors=[error])
        return listing(where, deep=deep, limits=limits)

    monkeypatch.setattr(storage, "listing", listed)
    copy_of(source.parent, tmp_path / "copy")
    assert gone
    assert rows_of(tmp_path / "copy")["batches"] == rows_of(source.parent)["batches"]
