"""As a guest of a broker: the page cache is as it was, and what is read a second is bounded."""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from auditor.connectors.stores import remote_files, storage
from auditor.connectors.stores.remote_files import Pace, ThrottledReader, throttled
from auditor.connectors.stores.storage import StorageLocation
from auditor.copying import throttling
from auditor.copying.run import copy_logs
from tests import corpora

PAGE = remote_files.PAGE
PAGES = 700
FAST = Pace(0)


def state(path: Path) -> list[bool] | None:
    """Which pages of a file are cached."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        residency = remote_files.Residency(descriptor)
        found = residency.cached(0, max(1, -(-path.stat().st_size // PAGE)))
        residency.close()
        return None if found is None else [page > 0 for page in found]
    finally:
        os.close(descriptor)


def forget(path: Path) -> None:
    """Takes a file out of the cache; the test is skipped where that cannot be done or seen."""
    with path.open("rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if (now := state(path)) is None or any(now):
        pytest.skip("NOT TESTED: nothing tells here which pages are cached, or they cannot be given back")


def remember(path: Path, first: int, behind: int) -> None:
    """Brings those pages of a file into the cache, and no other."""
    with path.open("rb", buffering=0) as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for page in range(first, behind):
            os.pread(f.fileno(), PAGE, page * PAGE)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "source" / "x.log"
    path.parent.mkdir()
    path.write_bytes(np.random.default_rng(35).bytes(PAGES * PAGE - 77))
    forget(path)
    return path


TRIES = 3  # the system may take pages of any file at any time


def read_as_guest(path: Path, sizes: Iterator[int], starts: Iterator[int] | None = None) -> bytes:
    """What a guest reads of a file by requests of these sizes, from where it is on or from ``starts``."""
    data, size = b"", path.stat().st_size
    with throttled(ThrottledReader(FAST)):
        f = storage.open_file(StorageLocation("", str(path)))
        assert not isinstance(f, storage.DecodeError)
        while len(data) < size:
            if starts is not None:
                f.seek(next(starts))
            buffer = bytearray(next(sizes))
            if not (got := f.readinto(buffer)):
                break
            data += buffer[:got]
        f.close()
    return data


@pytest.mark.parametrize("kept", [(0, 0), (0, PAGES), (0, PAGES // 2), (PAGES // 2, PAGES), (5, 6), (300, 600)])
@pytest.mark.parametrize("sizes", [(1 << 20,), (PAGE,), (61, 5000), (3 * PAGE - 1,)])
def test_what_was_not_cached_is_not_after_and_what_was_still_is(
    file: Path, kept: tuple[int, int], sizes: tuple[int, ...]
) -> None:
    before = [kept[0] <= page < kept[1] for page in range(PAGES)]
    after: list[bool] = []
    for _ in range(TRIES):
        forget(file)
        remember(file, *kept)
        untouched = state(file) == before
        data = read_as_guest(file, itertools.cycle(sizes))
        after = state(file)
        if untouched and after == before:
            break
    assert [page for page in range(PAGES) if after[page] != before[page]] == []
    assert data == file.read_bytes()


def test_headers_here_and_there_leave_nothing_either(file: Path) -> None:
    remember(file, 100, 200)
    before = state(file)
    places = np.random.default_rng(1).integers(0, PAGES * PAGE - 200, 3000).tolist()
    read_as_guest(file, itertools.repeat(61), iter([*places, PAGES * PAGE]))
    assert state(file) == before


def test_a_copy_leaves_the_cache_as_it_was(tmp_path: Path) -> None:
    source = corpora.copy("healthy-41", tmp_path / "source")
    files = sorted(path for path in source.rglob("*") if path.is_file() and path.stat().st_size)
    for path in files:
        forget(path)
    for path in files[::3]:
        remember(path, 0, -(-path.stat().st_size // PAGE))
    before = {path: state(path) for path in files}
    assert any(map(any, before.values()))  # type: ignore[arg-type]
    with throttled(ThrottledReader(FAST, tmp_path / "copy")):
        done = copy_logs([str(source)], tmp_path / "copy")
    assert done.bytes_read > 100_000
    assert {path: state(path) for path in files} == before


def test_our_own_files_are_read_as_they_come(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(PAGE))
    forget(path)
    with throttled(ThrottledReader(Pace(1), tmp_path)):  # a byte a second
        assert storage.read_file(StorageLocation("", str(path))) == bytes(PAGE)
    assert state(path) == [True]


def test_where_nothing_tells_nothing_is_given_back(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_files, "_libc", lambda: None)
    read_as_guest(file, itertools.repeat(1 << 20))
    monkeypatch.undo()
    assert all(state(file) or [])


def test_what_is_read_a_second() -> None:
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    pace = Pace(50_000_000, lambda: now[0], sleep)
    for _ in range(100):
        pace.read(1_000_000)
    assert now[0] == pytest.approx(2.0)  # 100 MB at 50 MB/s
    now[0] += 60  # a time without reading earns nothing
    pace.read(1_000_000)
    pace.read(1_000_000)
    assert now[0] == pytest.approx(62.04)
    slept.clear()
    for _ in range(1000):  # each far shorter than a sleep: they are waited for together
        pace.read(4096)
    assert 30 < len(slept) < 50
    assert sum(slept) == pytest.approx(4_096_000 / 50_000_000, abs=0.002)
    Pace(0, lambda: now[0], sleep).read(1 << 40)
    assert now[0] < 63


@pytest.mark.parametrize(("text", "bytes_a_second"), [
    ("50MB", 50_000_000), ("50 MB/s", 50_000_000), ("1GiB", 1 << 30), ("200kB", 200_000), ("1.5m", 1_500_000),
    ("4096", 4096), ("0", 0), ("none", 0), ("64KiB", 65536),
])  # fmt: skip
def test_speeds(text: str, bytes_a_second: int) -> None:
    assert throttling.rate(text) == bytes_a_second


@pytest.mark.parametrize("text", ["", "fast", "-5MB", "50", "MB", "5 parsecs", "1e9", "9" * 40, "50MB50MB", "NaN"])
def test_no_speeds(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"speed|second"):
        throttling.rate(text)
