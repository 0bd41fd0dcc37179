"""Damage in the middle of a segment hides nothing behind it: one error for what lies between, and sound batches again.

Every expectation is arithmetic on how the bytes were put together.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from auditor.base.errors import MIB
from auditor.connectors.codec import gaps as gaps_module
from auditor.connectors.codec.batches import FLAW_CRC
from auditor.connectors.codec.gaps import offset_range
from auditor.connectors.logdir.inventory import discover
from auditor.connectors.tables.rows import FilePiece, How, read_piece
from tests.conftest import NIGHTLY
from tests.segments import accounted, batch, chunks, message, reasons, record, simple

COUNT = 12
LOG = [simple(3 * k, 3) for k in range(COUNT)]
SIZE = len(LOG[0])
RANGE = offset_range(0)


def resized(data: bytes, size: int) -> bytes:
    """A wrong length, and another damage: the length alone could be put right by the checksum."""
    return data[:8] + struct.pack(">i", size) + data[12:-3] + bytes([data[-3] ^ 4]) + data[-2:]


def broken(number: int, how: Any) -> bytes:
    """The log with one batch changed."""
    return b"".join([*LOG[:number], how(LOG[number]), *LOG[number + 1 :]])


def read(data: bytes, **options: Any) -> tuple[list[int], list[tuple[int, int, str]], list[Any]]:
    """Base offsets of what is a batch, the errors' places and reasons, and the errors."""
    found = chunks(data, offsets=RANGE, **options)
    assert accounted(found) == len(data)
    offsets = [int(o) for c in found for o in c.batches.base_offset]
    return offsets, reasons(found), [e for c in found for e in c.errors]


def without(*numbers: int) -> list[int]:
    return [3 * k for k in range(COUNT) if k not in numbers]


RANDOM = np.random.default_rng(5)
HOWS = {
    "negative": lambda b: resized(b, -5),
    "zero": lambda b: resized(b, 0),
    "smaller than a header": lambda b: resized(b, 30),
    "ends in its own records": lambda b: resized(b, SIZE - 12 - 40),
    "one byte short": lambda b: resized(b, SIZE - 13),
    "one byte long": lambda b: resized(b, SIZE - 11),
    "ends inside the next batch": lambda b: resized(b, SIZE - 12 + 100),
    "spans the next batch exactly": lambda b: resized(b, 2 * SIZE - 12),
    "spans three batches exactly": lambda b: resized(b, 3 * SIZE - 12),
    "beyond the file": lambda b: resized(b, 100 * SIZE),
    "as large as numbers get": lambda b: resized(b, 2**31 - 1),
    "zeros": lambda b: bytes(len(b)),
    "zeros at its beginning": lambda b: bytes(100) + b[100:],
    "random bytes": lambda b: RANDOM.bytes(len(b)),
    "a random header": lambda b: RANDOM.bytes(61) + b[61:],
    "an unknown magic and no length": lambda b: resized(b, 77)[:16] + b"\x09" + b[17:],
    "text": lambda b: (b"to be or not to be " * len(b))[: len(b)],
}


@pytest.mark.parametrize("crc", [True, False])
@pytest.mark.parametrize("number", [0, 1, 5, COUNT - 2])
@pytest.mark.parametrize("how", HOWS)
def test_one_damaged_batch(how: str, number: int, crc: bool) -> None:
    offsets, reported, errors = read(broken(number, HOWS[how]), crc=crc)
    assert offsets == without(number)
    assert reported == [(number * SIZE, SIZE, "bad_size")]
    assert (errors[0].first_offset, errors[0].last_offset) == (3 * number, 3 * number + 2)


@pytest.mark.parametrize("how", HOWS)
def test_two_damaged_places(how: str) -> None:
    data = b"".join(
        [*LOG[:2], HOWS[how](LOG[2]), LOG[3], HOWS["zeros"](LOG[4]), *LOG[5:8], HOWS[how](LOG[8]), *LOG[9:]]
    )
    offsets, reported, _errors = read(data)
    assert offsets == without(2, 4, 8)
    assert reported == [(k * SIZE, SIZE, "bad_size") for k in (2, 4, 8)]


@pytest.mark.parametrize("how", sorted(HOWS.keys() - {"zeros", "zero"}))
def test_a_damaged_last_batch_is_a_tail_as_before(how: str) -> None:
    """Nothing sound lies behind it: no search may change what a broker's own recovery would meet."""
    offsets, reported, errors = read(broken(COUNT - 1, HOWS[how]))
    at = (COUNT - 1) * SIZE
    assert offsets[: COUNT - 1] == without(COUNT - 1)
    assert reported[-1][0] + reported[-1][1] == COUNT * SIZE
    assert all(position >= at for position, _length, _reason in reported)
    assert all(e.first_offset == -1 for e in errors)


def test_a_wrong_checksum_alone_stays_a_batch() -> None:
    """Its length leads to the next batch: the batch is there, damaged, and is a row."""
    for number in (0, 4, COUNT - 1):
        data = broken(number, lambda b: b[:-20] + b"\xff" + b[-19:])
        for crc in (True, False):
            found = chunks(data, offsets=RANGE, crc=crc)
            assert reasons(found) == []
            assert [int(o) for c in found for o in c.batches.base_offset] == without()
        flaws = [int(f) for c in chunks(data, offsets=RANGE) for f in c.batches.flaws]
        assert [k for k, f in enumerate(flaws) if f & FLAW_CRC] == [number]


def test_a_wrong_checksum_before_cleaned_offsets_stays_a_batch() -> None:
    """A cleaner leaves holes: that the offsets do not follow each other says nothing against a length."""
    cleaned = [simple(10 * k, 3) for k in range(8)]
    cleaned[3] = cleaned[3][:-9] + b"?" + cleaned[3][-8:]
    cleaned[4] = cleaned[4][:-9] + b"?" + cleaned[4][-8:]
    for crc in (True, False):
        offsets, reported, _ = read(b"".join(cleaned), crc=crc)
        assert (offsets, reported) == ([10 * k for k in range(8)], [])


def test_a_magic_that_does_not_exist_is_one_batch_where_its_length_is_right() -> None:
    foreign = [b[:16] + b"\x07" + b[17:-3] + b"??" + b[-1:] for b in LOG]
    data = b"".join([*LOG[:3], foreign[3], foreign[4], *LOG[5:]])
    offsets, reported, _ = read(data)
    assert offsets == without(3, 4)
    assert reported == [(3 * SIZE, SIZE, "bad_magic"), (4 * SIZE, SIZE, "bad_magic")]


def hiding(value: bytes, base_offset: int) -> bytes:
    """A batch whose record's value holds bytes, padded as records are."""
    return batch(record(0, b"key", value) + record(1, b"key", b"more"), 2, base_offset=base_offset)


@pytest.mark.parametrize("inside", [1, 2, 5])
@pytest.mark.parametrize("offset", [5, 14, 100])
def test_batches_inside_of_a_value_are_not_taken_for_the_logs_own(offset: int, inside: int) -> None:
    """Whole batches of another log, checksum and all, in a value of a batch whose length is wrong."""
    value = b"".join(simple(offset + 3 * k, 3) for k in range(inside))
    outer = hiding(value, 12)
    for size in (-1, 20, len(outer) + 5, 10**6):
        data = b"".join([*LOG[:4], resized(outer, size), *(simple(14 + 3 * k, 3) for k in range(4))])
        offsets, reported, _ = read(data)
        assert offsets == [0, 3, 6, 9, 14, 17, 20, 23]
        assert reported == [(4 * SIZE, len(outer), "bad_size")]


def test_offsets_that_cannot_be_are_no_batch() -> None:
    """Behind the header's garbage lies a batch of an earlier offset (a copy of one before), and of the next segment."""
    old, other = simple(3, 3), simple(5000, 3)
    data = b"".join([*LOG[:4], b"\xa5" * 50 + old + b"\xa5" * 9 + other + b"\xa5" * 7, *LOG[5:]])
    found = chunks(data, offsets=(0, 4000))
    assert [int(o) for c in found for o in c.batches.base_offset] == without(4)
    assert reasons(found) == [(4 * SIZE, 66 + len(old) + len(other), "bad_size")]


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_the_old_formats(magic: int) -> None:
    log = [message(k, b"key", b"value" * 30, magic) for k in range(9)]
    size = len(log[0])
    for wrong in (-1, 13, size - 12 - 5, size - 12 + 7, 2 * size - 12, 10**7):
        data = b"".join([*log[:4], resized(log[4], wrong), *log[5:]])
        for crc in (True, False):
            offsets, reported, _ = read(data, crc=crc)
            assert offsets == [0, 1, 2, 3, 5, 6, 7, 8]
            assert reported == [(4 * size, size, "bad_size")]


@pytest.mark.parametrize("shift", [0, 1, 17, 60, 61, 394])
def test_damage_at_the_end_of_a_buffer(shift: int) -> None:
    """The reader holds 1 MiB at a time; what is damaged, and what is found, may lie across two of them."""
    count = MIB // SIZE
    padding = simple(0, 1, value=bytes(MIB - count * SIZE + shift))
    log = [padding, *(simple(1 + 3 * k, 3) for k in range(2 * count))]
    number = count - len(padding) // SIZE
    for k in range(number - 2, number + 3):
        for how in ("negative", "spans three batches exactly", "one byte long", "random bytes"):
            data = b"".join([*log[:k], HOWS[how](log[k]), *log[k + 1 :]])
            found = chunks(data, offsets=RANGE)
            assert [int(o) for c in found for o in c.batches.base_offset] == [
                *(0 if j == 0 else 3 * j - 2 for j in range(len(log)) if j != k)
            ]
            assert [length for _p, length, _r in reasons(found)] == [SIZE]


def test_a_large_batch_is_found_behind_damage() -> None:
    """Larger than the buffer, behind bytes that state lengths of their own."""
    big = simple(6, 3, value=bytes(MIB))
    data = b"".join([LOG[0], resized(LOG[1], -1), big, simple(9, 3)])
    offsets, reported, _ = read(data)
    assert offsets == [0, 6, 9]
    assert reported == [(SIZE, SIZE, "bad_size")]


def test_places_that_look_like_batches_cost_what_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers of large batches, one every 61 bytes: each would be read for its checksum. The limit ends it."""
    header = struct.pack(">qiibIhiqqqhii", 7, 200_000, 0, 2, 1, 0, 0, 0, 0, -1, -1, -1, 1)
    assert len(header) == 61
    data = LOG[0] + bytes([1] * 17) + header * 8000
    monkeypatch.setattr(gaps_module, "LEAST_WORK", 0)
    _offsets, reported, errors = read(data)
    assert reported == [(SIZE, len(data) - SIZE, "limit")]
    assert "limit of bytes" in errors[0].detail


def test_the_same_rows_however_the_segment_is_split(tmp_path: Path) -> None:
    """Parts that begin inside of damage, before it and behind it: together they give what one walk gives."""
    cleaned = [simple(100 + 10 * k, 3) for k in range(3)]
    cleaned[1] = cleaned[1][:-9] + b"?" + cleaned[1][-8:]
    made = b"".join([
        LOG[0], HOWS["spans the next batch exactly"](LOG[1]), LOG[2], HOWS["ends in its own records"](LOG[3]),
        LOG[4][:-20] + b"!" + LOG[4][-19:], HOWS["zeros"](LOG[5]), LOG[6], HOWS["beyond the file"](LOG[7]),
        resized(hiding(simple(24) + simple(40), 24), -7), *LOG[9:], *cleaned, LOG[11][:50],
    ])  # fmt: skip
    folder = tmp_path / "broker-1" / "orders-0"
    folder.mkdir(parents=True)
    (folder.parent / "meta.properties").write_text("version=1\nbroker.id=1\ncluster.id=abcdefghijklmnopqrstuw\n")
    (folder / f"{0:020}.log").write_bytes(made)
    log_dir = discover([str(folder.parent)]).log_dirs[0]
    (file,) = [f for f in log_dir.replicas[0].files() if f.kind == "log"]
    key = (None, 1, "broker-1", "orders", 0)

    def found(pieces: list[FilePiece], wanted: frozenset[str]) -> dict[str, list[Any]]:
        out: dict[str, list[Any]] = {table: [] for table in wanted}
        for piece in pieces:
            for table, rows in read_piece(piece, wanted, How()):
                out[table] += rows.to_pylist()
        return out

    for wanted in (frozenset({"batches", "decode_errors"}), frozenset({"records", "decode_errors"})):
        whole = found([FilePiece(log_dir.place, key, file)], wanted)
        assert len(whole["decode_errors"]) == 4
        for cut in range(1, len(made), 13 if NIGHTLY else 41):
            halves = [FilePiece(log_dir.place, key, file, 0, cut), FilePiece(log_dir.place, key, file, cut, None)]
            assert found(halves, wanted) == whole
