"""auditor.connectors.stores.storage: every kind of entry, everything that can vanish, and a URI as well as a path."""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from auditor.base.errors import AuditInputError, DecodeError, Limits
from auditor.connectors.codec import segment
from auditor.connectors.stores import remote_files, storage
from auditor.connectors.stores.storage import ListedFile, StorageLocation, Unused
from tests import segments


def test_lists_files_with_sizes_and_follows_no_link(tmp_path: Path) -> None:
    root = tmp_path / "in"
    (root / "a").mkdir(parents=True)
    (root / "a" / "x.log").write_bytes(b"12345")
    (root / "b").write_bytes(b"")
    (tmp_path / "secret").write_bytes(b"outside")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "loop").symlink_to(root)
    os.mkfifo(root / "pipe")
    found = storage.listing(storage.place(str(root)))
    assert found.files == [ListedFile("a/x.log", 5), ListedFile("b", 0)]
    assert found.unused == [
        Unused("link", 0, storage.LINK),
        Unused("loop", 0, storage.LINK),
        Unused("pipe", 0, storage.SPECIAL),
    ]
    assert found.errors == []
    assert storage.listing(storage.place(str(root)), deep=False).files == [ListedFile("b", 0)]


def test_names_that_are_no_utf8_are_reported_and_not_opened(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"bad\xff.log")).write_bytes(b"xy")
    assert storage.listing(storage.place(str(tmp_path))).unused == [Unused("bad\\xff.log", 2, storage.NOT_UTF8)]


def test_limits_on_files_and_path_length(tmp_path: Path) -> None:
    for name in ("a", "b", "c" * 20):
        (tmp_path / name).touch()
    found = storage.listing(storage.place(str(tmp_path)), limits=Limits(max_files=2))
    assert len(found.files) == 2
    assert [error.reason for error in found.errors] == ["limit"]
    found = storage.listing(storage.place(str(tmp_path)), limits=Limits(max_path_length=10))
    assert [entry.name for entry in found.files] == ["a", "b"]
    assert found.errors == [DecodeError("c" * 20, 0, 0, "limit", "path of 20 characters, limit 10")]


def test_what_is_gone_or_no_file_is_an_error_value(tmp_path: Path) -> None:
    place = storage.place(str(tmp_path))
    assert storage.open_file(place, "gone.log") == DecodeError(
        "gone.log", 0, -1, "vanished", "gone since the directory was listed"
    )
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dir").mkdir()
    (tmp_path / "target").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for name in ("pipe", "dir", "link"):
        opened = storage.open_file(place, name)
        assert isinstance(opened, DecodeError), name
        assert (opened.file, opened.reason) == (name, "unreadable")
    assert "(not followed): give its target file" in opened.detail


def test_what_may_not_be_read_is_an_error_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shut").mkdir()
    (tmp_path / "f").touch()
    scandir, opened = os.scandir, os.open

    def refuse(path: str, *arguments: int) -> Any:
        if path.endswith(("shut", "f")):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path) if not arguments else opened(path, *arguments)

    monkeypatch.setattr(os, "scandir", refuse)
    monkeypatch.setattr(os, "open", refuse)
    place = storage.place(str(tmp_path))
    assert storage.listing(place).errors == [DecodeError("shut", 0, -1, "unreadable", "Permission denied")]
    assert storage.open_file(place, "f") == DecodeError("f", 0, -1, "unreadable", "Permission denied")


def test_whether_a_local_file_exists_is_asked_without_a_driver_of_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where fsspec is missing, an audit of a broker with ``bootstrap.checkpoint`` ended with exit code 4."""
    monkeypatch.setattr(storage, "filesystem", pytest.fail)
    (tmp_path / "a").touch()
    assert storage.is_there(StorageLocation("", str(tmp_path / "a")))
    assert not storage.is_there(StorageLocation("", str(tmp_path / "b")))


def test_opens_for_reading_only(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    opened = storage.open_file(storage.place(str(tmp_path)), "f")
    assert not isinstance(opened, DecodeError)
    buffer = bytearray(4)
    opened.seek(3)
    assert (opened.readinto(buffer), bytes(buffer)) == (4, b"3456")
    assert not opened.writable()  # type: ignore[attr-defined]
    opened.close()


def test_small_files_and_heads(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    place = storage.place(str(tmp_path))
    assert storage.read_file(place, "f", limit=10) == b"0123456789"
    assert storage.read_file(place, "f", limit=9) == DecodeError(
        "f", 0, -1, "limit", "file larger than the limit of 9 bytes"
    )
    assert storage.read_head(place, "f", 4) == b"0123"
    assert storage.read_head(place, "f", 99) == b"0123456789"


@pytest.mark.parametrize("path", ["/no/such/place", "abc://host/x", "s3://key:secret@bucket/a b"])
def test_a_wrong_path_is_the_users_mistake_with_a_hint(path: str) -> None:
    with pytest.raises(AuditInputError, match=r"; (check|install)") as caught:
        storage.place(path)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_uri_reads_as_a_path_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bucket" / "dir").mkdir(parents=True)
    (tmp_path / "bucket" / "dir" / "x.log").write_bytes(b"abc")
    files = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    given = functools.cache(lambda uri: (files, "bucket/dir"))
    for module in (storage, remote_files):
        monkeypatch.setattr(module, "filesystem", given)
    place = storage.place("s3://key:secret@bucket/dir?region=x")
    assert place == StorageLocation("s3://key:secret@bucket?region=x", "bucket/dir")
    assert storage.is_folder(place)
    assert storage.listing(place).files == [ListedFile("x.log", 3)]
    assert storage.read_file(place, "x.log") == b"abc"
    assert storage.file_size(place.child("x.log")) == 3
    missing = storage.open_file(place, "gone.log")
    assert isinstance(missing, DecodeError)
    assert missing.reason == "vanished"
    assert place.shown == "s3://bucket/dir"


def test_file_uris_are_local_paths(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    folder.mkdir()
    assert (
        storage.place(f"file://{tmp_path}/with%20space")
        == storage.place(str(folder))
        == StorageLocation("", str(folder))
    )


def test_places_travel() -> None:
    place = StorageLocation("s3://b", "b/x")
    assert pickle.loads(pickle.dumps(place)) == place
    assert place.child("y/z").parent.parent == place
    assert (place.name, StorageLocation("", "/a").parent, StorageLocation("", "/").child("a")) == (
        "x",
        StorageLocation("", "/"),
        StorageLocation("", "/a"),
    )


@pytest.mark.parametrize(("head", "size"), [
    (b"12345678" * 100, 10 << 20), (b"", 10 << 20), (b"\0" * 9000 + b"x", 10 << 20), (b"12345678", 8), (b"", 0),
])  # fmt: skip
def test_of_a_file_with_a_hole_at_its_end_what_is_written_alone_is_read(tmp_path: Path, head: bytes, size: int) -> None:
    """As brokers make their indexes: given their full size, then written from the front."""
    with (tmp_path / "f.index").open("wb") as f:
        f.write(head)
        f.truncate(size)
    found = storage.read_data(StorageLocation("", str(tmp_path)), "f.index", 10 << 20)
    assert not isinstance(found, DecodeError)
    data, length = found
    assert (data.ljust(length, b"\0"), length) == ((tmp_path / "f.index").read_bytes(), size)
    assert len(data) <= len(head) + 65_536  # to the end of its last block
    too_large = storage.read_data(StorageLocation("", str(tmp_path)), "f.index", size - 1)
    assert isinstance(too_large, DecodeError)
    assert too_large.reason == "limit"


@pytest.mark.parametrize("behind", [b"", segments.simple(3)])
def test_of_a_segment_with_a_hole_what_is_written_alone_is_read(tmp_path: Path, behind: bytes) -> None:
    """A terabyte of it would take minutes; a broker with preallocate=true, and a copy by rsync --sparse, leave such."""
    head, size = segments.simple(0), 1 << 40
    (tmp_path / "s.log").write_bytes(head)
    with (tmp_path / "s.log").open("r+b") as f:
        f.truncate(size)
        f.seek(size - len(behind))
        f.write(behind)
    f = storage.open_file(StorageLocation("", str(tmp_path)), "s.log")
    assert not isinstance(f, DecodeError)
    with contextlib.closing(f):
        found = list(segment.read_segment(f, size, file="s.log", offsets=(0, 1 << 31)))
    offsets = [int(offset) for chunk in found for offset in chunk.batches.base_offset]
    zeros, reason = size - len(head) - len(behind), "bad_size" if behind else "zero_filled"
    assert (offsets, segments.reasons(found)) == ([0, 3] if behind else [0], [(len(head), zeros, reason)])


@pytest.mark.parametrize(
    "page", [b"<!DOCTYPE html>\n<html></html>", b"\xef\xbb\xbf\r\n<HTML><body>", b"<html" + bytes(99)]
)
def test_a_page_in_place_of_a_segment_is_not_taken_for_damage(page: bytes) -> None:
    ((position, length, reason),) = segments.reasons(segments.chunks(page))
    assert (position, length, reason) == (0, len(page), "unreadable")
