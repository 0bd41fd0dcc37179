"""Files of a store: large requests ahead of who reads, every byte, and nothing that the store did not give."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from auditor.base.errors import DecodeError, StoreTrouble
from auditor.connectors.stores import remote_files, retries, storage
from auditor.connectors.stores.remote_files import Coming
from auditor.connectors.stores.storage import StorageLocation
from tests import failing_store
from tests.failing_store import BREAKS_OFF, TOO_SHORT, FailingStore, Fault

SIZE = 5 * remote_files.BLOCK + 12345


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("bucket")
    (found / "t-0").mkdir()
    (found / "t-0" / "large.log").write_bytes(random.Random(1).randbytes(SIZE))
    for number in range(12):
        (found / "t-0" / f"{number}.index").write_bytes(bytes([number]) * number)
    return found


@pytest.fixture
def s3(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FailingStore]:
    with failing_store.failing(copies=folder) as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv(retries.PATIENCE, "0.3")
        storage.filesystem.cache_clear()
        yield server
    storage.filesystem.cache_clear()


@pytest.fixture
def where(s3: FailingStore) -> StorageLocation:
    found = storage.place("s3://copies")
    s3.log.clear()
    return found


def whole(where: StorageLocation, name: str, piece: int = 1 << 20) -> bytes:
    opened = storage.open_file(where, name)
    assert not isinstance(opened, DecodeError)
    data, buffer = bytearray(), bytearray(piece)
    while got := opened.readinto(buffer):
        data += buffer[:got]
    opened.close()
    return bytes(data)


def test_a_large_file_takes_a_request_a_block(where: StorageLocation, s3: FailingStore, folder: Path) -> None:
    assert whole(where, "t-0/large.log") == (folder / "t-0" / "large.log").read_bytes()
    asked = sorted((r.start, r.size) for r in s3.log if r.method == "GET")
    blocks = range(0, SIZE, remote_files.BLOCK)
    assert asked == [(start, min(remote_files.BLOCK, SIZE - start)) for start in blocks]
    assert 8 << 20 <= remote_files.BLOCK <= 16 << 20


def test_a_look_elsewhere_takes_little_and_loses_nothing(
    where: StorageLocation, s3: FailingStore, folder: Path
) -> None:
    data = (folder / "t-0" / "large.log").read_bytes()
    opened = storage.open_file(where, "t-0/large.log")
    assert not isinstance(opened, DecodeError)
    buffer = bytearray(1000)
    for at in (0, 1000, SIZE - 500, 2000, 3 * remote_files.BLOCK, remote_files.BLOCK - 500, remote_files.BLOCK):
        opened.seek(at)
        got = opened.readinto(buffer)
        assert buffer[:got] == data[at : at + got]
        assert got
    opened.close()
    few = [r.size for r in s3.log if r.method == "GET" and r.start in (SIZE - 500, 3 * remote_files.BLOCK)]
    assert max(few) <= remote_files.BLOCK


def test_the_head_of_a_file_is_all_that_is_asked_for(where: StorageLocation, s3: FailingStore, folder: Path) -> None:
    data = (folder / "t-0" / "large.log").read_bytes()
    assert storage.read_head(where, "t-0/large.log", 500, start=700) == data[700:1200]
    assert [(r.start, r.size) for r in s3.log if r.method == "GET"] == [(700, 500)]


@pytest.mark.parametrize("what", [BREAKS_OFF, TOO_SHORT, "ExpiredToken", "SlowDown", "InternalError"])
def test_an_answer_that_fails_once_is_asked_for_again(
    where: StorageLocation, s3: FailingStore, folder: Path, what: str
) -> None:
    s3.manner.faults = [Fault(what, "large.log", "GET", 2)]
    assert whole(where, "t-0/large.log") == (folder / "t-0" / "large.log").read_bytes()


@pytest.mark.parametrize("what", ["ExpiredToken", BREAKS_OFF, "AccessDenied"])
def test_a_file_whose_reopening_is_refused_is_asked_for_again(
    where: StorageLocation, s3: FailingStore, folder: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is opened again once its credentials are looked up again: that request may be refused as any other."""
    monkeypatch.setenv(retries.PATIENCE, "5")
    opened = storage.open_file(where, "t-0/large.log")
    assert not isinstance(opened, DecodeError)
    s3.manner.faults = [Fault("ExpiredToken", "large.log", "GET", 3), Fault(what, "large.log", "HEAD", 1)]
    data, buffer = bytearray(), bytearray(1 << 20)
    while got := opened.readinto(buffer):
        data += buffer[:got]
    assert data == (folder / "t-0" / "large.log").read_bytes()
    assert s3.manner.faults[1].count == 0


def test_what_was_not_given_is_never_taken_for_the_content(where: StorageLocation, s3: FailingStore) -> None:
    """pyarrow gives the rest of its buffer for an answer that is too short."""
    s3.manner.faults = [Fault(TOO_SHORT, "large.log", "GET")]
    with pytest.raises(StoreTrouble, match="breaks off"):
        whole(where, "t-0/large.log")
    with retries.resigned():
        found = storage.read_head(where, "t-0/large.log", 5000)
    assert isinstance(found, DecodeError)
    assert (found.reason, found.detail) == ("unreadable", "the store says an answer that breaks off")


def test_a_file_that_became_shorter_ends_there(where: StorageLocation, s3: FailingStore, folder: Path) -> None:
    path = folder / "t-0" / "shrinks.log"
    path.write_bytes(b"a" * 5000)
    opened = storage.open_file(where, "t-0/shrinks.log")
    assert not isinstance(opened, DecodeError)
    path.write_bytes(b"b" * 2000)
    buffer = bytearray(9000)
    assert opened.readinto(buffer) == 2000
    assert buffer[:2000] == b"b" * 2000
    assert opened.readinto(buffer) == 0
    path.unlink()


def test_files_that_come_are_fetched_side_by_side(where: StorageLocation, s3: FailingStore, folder: Path) -> None:
    s3.manner.latency_s = 0.05
    names = [f"t-0/{number}.index" for number in range(12)]
    coming = [Coming(where.uri, where.child(name).path, int(os.path.getsize(folder / name))) for name in names]
    with remote_files.coming([coming[:6], coming[6:]]):
        found = [storage.read_file(where, name) for name in names]
    assert found == [bytes([number]) * number for number in range(12)]
    until = time.monotonic() + 10  # the store notes a request once it has answered, which the reader may be ahead of
    while len(asked := [r.key for r in s3.log if r.method == "GET"]) < len(names) - 1 and time.monotonic() < until:
        time.sleep(0.01)
    assert sorted(asked) == sorted(names[1:])  # each once, and the empty one not at all


def test_what_does_not_come_is_asked_for_as_ever(where: StorageLocation, s3: FailingStore) -> None:
    """What was fetched for nothing is forgotten; what could not be had is asked for by who reads it."""
    s3.manner.faults = [Fault("ExpiredToken", "3.index", "GET", 1)]
    coming = [[Coming(where.uri, f"copies/t-0/{number}.index", number)] for number in range(12)]
    with remote_files.coming(coming):
        assert storage.read_file(where, "t-0/9.index") == bytes([9]) * 9
        assert storage.read_file(where, "t-0/3.index") == bytes([3]) * 3
        gone = storage.read_file(where, "t-0/none.index")
    assert isinstance(gone, DecodeError)
    assert gone.reason == "vanished"
