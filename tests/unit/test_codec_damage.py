"""Damaged segments: whatever the bytes, no exception, and every byte is in a batch or in an error."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.base.errors import MIB, Limits
from auditor.connectors.codec.batches import walk, walk_rows
from auditor.connectors.codec.records import decode_records, iter_records, records_of
from auditor.connectors.codec.segment import read_segment
from tests import corpora
from tests.conftest import NIGHTLY
from tests.seeded_tests import seeded
from tests.segments import File, accounted, batch, chunks, message, reasons, record, simple, wrapper

LIMITS = Limits(max_batch_bytes=4 * MIB, ratio_floor_bytes=MIB)
MIXED = b"".join(
    [
        *(simple(3 * codec, codec=codec) for codec in range(5)),
        batch(
            record(0, bytes.fromhex("00000001"), bytes(6)), 1, base_offset=15, attributes=0x30, producer_id=3, epoch=0
        ),
        message(16, b"k", b"v", 0),
        message(17, None, b"v", 1),
        wrapper(20, [message(i, b"k", b"v") for i in range(3)], codec=1),
        wrapper(23, [message(21 + i, b"k", b"v", 0) for i in range(3)], codec=3, magic=0),
        batch(record(0, b"k", b"v", headers=[(b"h", b"x"), (b"n", None)]), 1, base_offset=24),
    ]
)


def read_all(data: bytes, **options: Any) -> list[Any]:
    """Everything there is to read of a segment: batches, summaries, records as columns and one by one."""
    found = chunks(data, records=True, raw=True, limits=LIMITS, **options)
    for chunk in found:
        assert chunk.raw is not None
        assert chunk.summary is not None
        assert [len(raw) for raw in chunk.raw] == chunk.batches.size.tolist()
        present = 0
        for run in decode_records(chunk.raw, chunk.batches, limits=LIMITS, payload=True):
            present += len(run.records.offset)
            ends = run.records.key_start + np.maximum(run.records.key_size, 0)
            assert (ends <= len(run.records.payload)).all()
        assert present == chunk.summary.present.sum()
        assert sum(1 for _ in records_of(chunk.raw, chunk.batches, file="s.log", limits=LIMITS)) >= present
    return found


def test_the_sample_is_sound() -> None:
    found = read_all(MIXED)
    assert reasons(found) == []
    assert sum(len(c.batches.size) for c in found) == 11
    assert not any(c.batches.flaws.any() or c.summary.flaws.any() or c.body_errors for c in found)


def test_every_cut_is_reported() -> None:
    sizes = chunks(MIXED)[0].batches.size
    ends = np.cumsum(sizes)
    for end in range(len(MIXED)):
        found = read_all(MIXED[:end])
        whole = int(np.searchsorted(ends, end, side="right"))
        assert sum(len(c.batches.size) for c in found) == whole
        rest = end - int(ends[whole - 1]) if whole else end
        reported = reasons(found)
        reason = "truncated" if any(MIXED[end - rest : end]) else "zero_filled"  # offset 0 begins with zeros
        assert reported == ([(end - rest, rest, reason)] if rest else [])


@pytest.mark.parametrize("zeros", [1, 8, 16, 17, 100, 4096, 3 * MIB])
def test_zeros_at_the_end(zeros: int) -> None:
    """Preallocated, or left by a crash."""
    found = read_all(MIXED + bytes(zeros))
    assert reasons(found) == [(len(MIXED), zeros, "zero_filled")]


def test_zeros_with_something_behind_them() -> None:
    data = simple(0) + bytes(2 * MIB) + b"x"
    assert reasons(read_all(data)) == [(len(simple(0)), 2 * MIB + 1, "bad_size")]


def resized(data: bytes, size: int) -> bytes:
    """A wrong length, and another damage: the length alone could be put right by the checksum."""
    return data[:8] + (size % 2**32).to_bytes(4, "big") + data[12:-3] + bytes([data[-3] ^ 4]) + data[-2:]


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 1, 13, 14, 48])
def test_sizes_no_batch_has(size: int) -> None:
    data = simple(0) + resized(simple(3), size) + simple(6)
    found = read_all(data)
    assert reasons(found) == [(len(simple(0)), len(simple(3)), "bad_size")]
    assert found[-1].batches.base_offset.tolist() == [0, 6]
    tail = simple(0) + resized(simple(3), size)
    assert reasons(read_all(tail)) == [(len(simple(0)), len(simple(3)), "bad_size")]


def test_a_size_beyond_the_end_is_a_torn_tail() -> None:
    for size in (100_000, 2**31 - 1):
        data = simple(0) + resized(simple(3), size)
        assert reasons(read_all(data)) == [(len(simple(0)), len(simple(3)), "truncated")]


@pytest.mark.parametrize("magic", [3, 4, 127, 255])
def test_a_magic_that_does_not_exist_is_stepped_over(magic: int) -> None:
    foreign = simple(3)[:16] + bytes([magic]) + simple(3)[17:-3] + b"??" + simple(3)[-1:]
    found = read_all(simple(0) + foreign + simple(6))
    assert reasons(found) == [(len(simple(0)), len(foreign), "bad_magic")]
    assert [int(o) for c in found for o in c.batches.base_offset] == [0, 6]
    torn = simple(0) + resized(foreign, 10_000)
    assert reasons(read_all(torn)) == [(len(simple(0)), len(foreign), "bad_magic")]


def test_a_batch_over_the_limit_is_stepped_over() -> None:
    big = simple(3, 1, value=bytes(5 * MIB))
    found = read_all(simple(0) + big + simple(4))
    assert reasons(found) == [(len(simple(0)), len(big), "batch_limit")]
    assert [int(o) for c in found for o in c.batches.base_offset] == [0, 4]
    assert reasons(read_all(big[:-1])) == [(0, len(big) - 1, "truncated")]


def test_memory_follows_the_file_and_not_its_claims() -> None:
    """A header that promises 200 MiB in a file of a few bytes makes no room for them."""
    data = resized(simple(0), 200 * MIB)
    file = File(data)
    found = list(read_segment(file, len(data), file="s.log"))
    assert reasons(found) == [(0, len(data), "truncated")]
    assert file.largest <= len(data)


def test_a_file_that_shrank() -> None:
    data = simple(0) + simple(3)
    for missing in (1, len(simple(3)), len(simple(3)) + 1, len(data) - 5, len(data)):
        found = list(read_segment(File(data[:-missing]), len(data), file="s.log"))
        assert accounted(found) == len(data)
        assert [reason for _p, _l, reason in reasons(found)] == ["vanished"]
        assert "shorter than when it was listed" in found[-1].errors[0].detail


def test_a_short_tail_that_shrank() -> None:
    (error,) = next(iter(read_segment(File(b""), 11, file="s.log"))).errors
    assert error[1:4] == (0, 11, "vanished")
    assert error.detail == "the file is 11 bytes shorter than when it was listed"


def test_a_file_that_grew_is_read_as_listed() -> None:
    data = simple(0) + simple(3)
    found = list(read_segment(File(data + simple(6)), len(data), file="s.log"))
    assert accounted(found) == len(data)
    assert reasons(found) == []


class Failing(io.BytesIO):
    """A file whose disk fails behind a byte."""

    def __init__(self, data: bytes, good: int) -> None:
        super().__init__(data)
        self.good = good

    def readinto(self, buffer: Any) -> int:
        if self.tell() >= self.good:
            raise OSError(5, "Input/output error")
        return super().readinto(memoryview(buffer)[: self.good - self.tell()])


def test_a_disk_that_fails() -> None:
    data = b"".join(simple(3 * i) for i in range(10_000))
    for good in (0, 5, len(simple(0)), 2 * MIB + 77):
        found = list(read_segment(Failing(data, good), len(data), file="s.log"))
        position = good // len(simple(0)) * len(simple(0))
        assert reasons(found) == [(position, len(data) - position, "unreadable")]
        assert found[-1].errors[0].detail == "Input/output error"
        assert accounted(found) == len(data)


def test_a_file_that_reads_in_small_pieces() -> None:
    class Slow(io.BytesIO):
        def readinto(self, buffer: Any) -> int:
            return super().readinto(memoryview(buffer)[:7])

    found = list(read_segment(Slow(MIXED), len(MIXED), file="s.log"))
    assert accounted(found) == len(MIXED)
    assert reasons(found) == []


def damage(data: bytearray, random: np.random.Generator) -> None:
    """One thing that happens to files: bytes changed, a stretch zeroed, cut out, doubled, or a length made extreme."""
    at = int(random.integers(0, len(data)))
    length = int(random.integers(1, 200))
    kind = random.integers(0, 6)
    if kind == 0:
        data[at] = int(random.integers(0, 256))
    elif kind == 1:
        data[at] ^= 1 << int(random.integers(0, 8))
    elif kind == 2:
        data[at : at + length] = bytes(len(data[at : at + length]))
    elif kind == 3:
        del data[at : at + length]
    elif kind == 4:
        data[at:at] = data[at : at + length]
    else:
        data[at : at + 4] = [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", bytes(4), b"\0\0\0\x0e"][random.integers(0, 4)]


@seeded(4, nightly=8)
def test_random_damage(seed: int) -> None:
    random = np.random.default_rng(seed)
    for _ in range(400 if NIGHTLY else 200):
        data = bytearray(MIXED)
        for _ in range(int(random.integers(1, 6))):
            if data:
                damage(data, random)
        assert accounted(read_all(bytes(data))) == len(data)


def test_random_damage_of_real_segments() -> None:
    random = np.random.default_rng(1)
    files = [path for name in corpora.names() for path in corpora.unpack(name).glob("broker-*/*/*.log")]
    for _ in range(300 if NIGHTLY else 150):
        data = bytearray(files[int(random.integers(0, len(files)))].read_bytes()[:20_000])
        for _ in range(int(random.integers(1, 6))):
            if data:
                damage(data, random)
        assert accounted(read_all(bytes(data))) == len(data)


@given(st.binary(max_size=300))
def test_any_bytes_at_all(data: bytes) -> None:
    assert accounted(read_all(data)) == len(data)
    assert sum(1 for _ in iter_records(data)) >= 0


@given(st.binary(max_size=120), st.integers(0, 4), st.integers(-1, 9), st.sampled_from([0, 0x20, 0x30]))
def test_any_body_at_all(body: bytes, codec: int, count: int, kind: int) -> None:
    data = batch(body, count, attributes=codec | kind)
    assert accounted(read_all(data)) == len(data)


@given(st.binary(max_size=90), st.integers(0, 1), st.integers(0, 3))
def test_any_message_at_all(content: bytes, magic: int, codec: int) -> None:
    for data in (message(5, content, content, magic, codec), wrapper(9, [content], max(codec, 1), magic)):
        assert accounted(read_all(data)) == len(data)


def test_a_walk_reads_nothing_behind_its_end() -> None:
    """What lies behind the end may change freely without changing a row."""
    for end in range(len(simple(0)), len(MIXED), 61):
        rows = []
        for filler in (0, 255):
            buf = np.full(len(MIXED) + 64, filler, np.uint8)
            buf[:end] = np.frombuffer(MIXED[:end], np.uint8)
            out = walk_rows(20)
            filled, reached, why = walk(buf, 0, end, 0, end, 1 << 28, True, 0, out, -1)
            rows.append((filled, reached, why, out[:filled].tolist()))
        assert rows[0] == rows[1]
