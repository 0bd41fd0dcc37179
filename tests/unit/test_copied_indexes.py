"""Indexes of a copy: kept as what they repeat of their segment's batches, and the same bytes when they are read."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest

from auditor.connectors.codec import batches as walking
from auditor.connectors.logdir import copy_view
from auditor.copying import run, taken_segments
from auditor.copying.run import copy_logs
from tests import corpora, segments
from tests.copies import LIST, copy_of, listed
from tests.unit.test_copies_again import rows_of

NAME = f"{0:020}"


@pytest.fixture(autouse=True)
def any_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "RACY_NS", -(1 << 62))
    monkeypatch.setattr(taken_segments, "WITH_LIST", 0)  # none of them is in the list


def rows(count: int) -> np.ndarray:
    found = np.zeros((count, 17), np.int64)
    found[:, walking.POSITION] = 100 * np.arange(count)
    found[:, walking.LAST_OFFSET] = 5_000 + 10 * np.arange(count)
    found[:, walking.MAX_TIMESTAMP] = 1_700_000_000_000 + 7 * np.arange(count)
    return found


@pytest.mark.parametrize("kind", ["index", "timeindex"])
def test_any_bytes_come_back_or_are_not_coded(kind: str) -> None:
    dice, tried = random.Random(5), 0
    for number in range(300):
        data = dice.randbytes(copy_view.ENTRY[kind] * dice.randrange(1, 20)) if number % 2 else _sound(kind, number)
        if (text := copy_view.encoded_index(kind, data, rows(200), 4_000)) is not None:
            assert copy_view.decoded_index(kind, text, rows(200), 4_000) == data
            tried += 1
    assert tried > 200


def _sound(kind: str, number: int) -> bytes:
    at = range(0, 200, 1 + number % 5)
    if kind == "index":
        return b"".join(struct.pack(">ii", 1_000 + 10 * k, 100 * k) for k in at)
    return b"".join(struct.pack(">qi", 1_700_000_000_000 + 7 * k, 1_000 + 10 * k) for k in at)


@pytest.mark.parametrize("text", [b"\1" * 32, b"\0" * 7, (10**6).to_bytes(8, "little") + bytes(24)])
def test_entries_of_a_stranger_are_an_error(text: bytes) -> None:
    with pytest.raises(OSError, match="index of the copy"):
        copy_view.decoded_index("index", text, rows(10), 0)


def test_indexes_of_a_corpus_are_as_they_were(tmp_path: Path) -> None:
    source, copy = corpora.copy("unclean-43", tmp_path / "source"), tmp_path / "copy"
    copy_of(source, copy)
    assert rows_of(copy)["index_entries"] == rows_of(source)["index_entries"]
    files = (file for path in copy.rglob(LIST) for file in listed(path.parent)["files"])
    assert sum("like" in file for file in files) > 20


def test_a_segment_that_is_another_has_another_index(tmp_path: Path) -> None:
    folder, copy = tmp_path / "in" / "t-0", tmp_path / "copy"
    folder.mkdir(parents=True)
    for sizes in ((3, 4, 5), (5, 4, 3), (5, 4, 3, 2)):  # the second is another, of as many batches; the third grew
        data = b""
        for number, size in enumerate(sizes):
            data += segments.simple(10 * number, size)
        if len(sizes) == 3:
            (folder / f"{NAME}.log").unlink(missing_ok=True)
        (folder / f"{NAME}.log").write_bytes(data)
        if not (folder / f"{NAME}.index").exists():
            (folder / f"{NAME}.index").write_bytes(struct.pack(">iiii", 2, 0, 13, len(segments.simple(0, 3))))
        copy_of(folder, copy)
        assert rows_of(copy)["index_entries"] == rows_of(folder)["index_entries"]


def test_large_batches_take_twelve_bytes_with_their_indexes(tmp_path: Path) -> None:
    """A segment of 64 KiB batches as a sparse file: headers where they stand, and each batch in both indexes."""
    count, size, dice = 8_000, 65_536, random.Random(1)
    folder, copy = tmp_path / "in" / "t-0", tmp_path / "copy"
    folder.mkdir(parents=True)
    by_offset, by_time, time = b"", b"", 1_700_000_000_000
    with (folder / f"{NAME}.log").open("wb") as f:
        for number in range(count):
            time += dice.randrange(1, 40)
            first = struct.pack(">qiibI", 100 * number, size - 12, 3, 2, dice.getrandbits(32))
            body = (2, 99, time - dice.randrange(30), time, 1_000 + dice.randrange(20), 0, 100 * number, 100)
            f.seek(number * size)
            f.write(first + struct.pack(">hiqqqhii", *body))
            by_offset += struct.pack(">ii", 100 * number + 99, number * size)
            by_time += struct.pack(">qi", time, 100 * number + 99)
        f.truncate(count * size - size)  # the last one is not whole: nothing of it is a batch
    (folder / f"{NAME}.index").write_bytes(by_offset)
    (folder / f"{NAME}.timeindex").write_bytes(by_time)
    done = copy_logs([str(folder)], copy, checksums="none")
    assert done.bytes_read < count * size // 100
    batches = len(rows_of(copy)["batches"])
    assert batches > count - 10
    assert sum(path.stat().st_size for path in copy.rglob("*") if path.is_file()) <= 4_096 + 12 * batches
