"""What SECURITY.md promises of the connectors: the evidence is never touched, and no input exhausts the machine."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cramjam
import numpy as np
import pytest

from auditor.base.errors import MIB, DecodeError, Limits
from auditor.connectors.codec import compression
from auditor.connectors.stores import storage
from tests import corpora

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Changes to the file system that Python announces; see "Audit events table" of its documentation.
CHANGING = {
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
    "os.utime",
}

watched: list[tuple[str, Any]] = []
watching: list[str] = []


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Note what would change a file below the watched folder. Audit hooks stay for good, so there is a switch."""
    if not watching or not (event == "open" or event in CHANGING):
        return
    below = str(arguments[0]).startswith(watching[0])
    if below and (event in CHANGING or arguments[2] & WRITING):
        watched.append((event, arguments))


@functools.cache
def _install() -> None:
    sys.addaudithook(_watch)


@pytest.fixture
def writes() -> Iterator[Callable[[Path], list[tuple[str, Any]]]]:
    """Start watching a folder; the list returned fills with whatever would change it."""
    _install()

    def start(folder: Path) -> list[tuple[str, Any]]:
        watching[:] = [str(folder)]
        watched.clear()
        return watched

    yield start
    watching.clear()


def test_input_is_opened_for_reading_only(writes: Callable[[Path], list[tuple[str, Any]]]) -> None:
    folder = corpora.unpack("unknown-producer-41")
    noted = writes(folder)
    where = storage.place(str(folder))
    files = storage.listing(where).files
    assert {entry.name for entry in files} == {
        p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()
    }
    for entry in files:
        assert storage.read_file(where, entry.name) == (folder / entry.name).read_bytes()
    assert not noted


def test_a_write_would_be_noted(writes: Callable[[Path], list[tuple[str, Any]]], tmp_path: Path) -> None:
    noted = writes(tmp_path)
    (tmp_path / "touched").write_text("")
    (tmp_path / "touched").unlink()
    assert [event for event, _ in noted] == ["open", "os.remove"]


def test_links_and_pipes_are_named_and_not_opened(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("outside")
    inside = tmp_path / "logs"
    inside.mkdir()
    (inside / "link").symlink_to(tmp_path / "secret")
    (inside / "folder").symlink_to(tmp_path)
    os.mkfifo(inside / "pipe")
    where = storage.place(str(inside))
    found = storage.listing(where)
    assert not found.files
    assert {unused.name for unused in found.unused} == {"link", "folder", "pipe"}
    assert isinstance(storage.read_file(where, "link"), DecodeError)
    assert isinstance(storage.read_file(where, "pipe"), DecodeError)


def test_no_more_files_than_the_limit(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / str(number)).touch()
    found = storage.listing(storage.place(str(tmp_path)), limits=Limits(max_files=3))
    assert len(found.files) == 3
    assert [error.reason for error in found.errors] == ["limit"]


def test_a_place_shows_no_password() -> None:
    where = storage.StorageLocation("s3://key:hunter2@bucket?secret_key=hunter2", "bucket/logs")
    assert where.shown == "s3://bucket/logs"


def pack(codec: str, plain: bytes) -> bytes:
    """As a producer would: bare snappy, lz4 with independent blocks."""
    if codec == "snappy":
        return bytes(cramjam.snappy.compress_raw(plain))
    if codec == "lz4":
        compressor = cramjam.lz4.Compressor(block_linked=False)
        compressor.compress(plain)
        return bytes(compressor.finish())
    return bytes(getattr(cramjam, codec).compress(plain))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_bomb_stops_at_the_limit(codec: str) -> None:
    """8 MiB of zeros against a cap of 1 MiB, and the same bytes with room enough."""
    zeros = bytes(8 * MIB)
    bomb = np.frombuffer(pack(codec, zeros), np.uint8)
    number = compression.NAMES.index(codec)
    small = Limits(max_batch_bytes=MIB, ratio_floor_bytes=MIB)
    stopped = compression.decompress(number, bomb, limits=small)
    assert isinstance(stopped, compression.Failure)
    assert stopped.reason == "bomb_limit"
    whole = compression.decompress(number, bomb, limits=Limits(max_batch_bytes=8 * MIB))
    assert bytes(whole) == zeros


def test_a_ratio_stops_a_bomb_below_the_size_limit() -> None:
    """64 KiB stored at a ratio of at most 10 give 640 KiB and no more, where the floor is lower than that."""
    limits = Limits(max_batch_ratio=10, ratio_floor_bytes=1)
    assert limits.decompressed_cap(64 << 10) == 640 << 10
    assert Limits().decompressed_cap(1) == 16 * MIB
    assert Limits().decompressed_cap(1 << 30) == 256 * MIB
