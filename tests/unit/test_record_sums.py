"""Sums of records against SipHash of OpenSSL, records of MirrorMaker's topics as Kafka writes them, aligned runs."""

from __future__ import annotations

import hashlib
import io
import itertools
import random
import struct

import numpy as np
import pytest

from auditor.base.errors import DEFAULT_LIMITS, AuditInputError
from auditor.connectors.codec.mirror_maker import TranslatedOffset, translated
from auditor.connectors.codec.segment import read_segment
from auditor.pipeline.alignment import Alignment, MatchedRun, in_order, less
from auditor.pipeline.topic_pairs import named_pairs, parsed_map
from auditor.replay.reading.record_sums import MODULUS, RecordSummer
from tests import segments

KEY = bytes(range(32))


# SipHash-2-4 of the bytes 0, 1, 2, ... under the key 00, 01, ... 0f by their number, as `openssl mac SIPHASH` gives
# them. Those of 0, 1, 7, 8 and 15 bytes are also in the vectors of the reference implementation.
VECTORS = {
    0: "310e0edd47db6f72",
    1: "fd67dc93c539f874",
    7: "37d1018bf50002ab",
    8: "6224939a79f5f593",
    15: "e545be4961ca29a1",
    63: "724506eb4c328a95",
}


def reference(part: bytes, key: bytes) -> int:
    """SipHash-2-4, word by word with Python's integers."""
    k0, k1 = struct.unpack("<QQ", key)
    v = [
        a ^ b
        for a, b in zip((k0, k1, k0, k1), struct.unpack(">QQQQ", b"somepseudorandomlygeneratedbytes"), strict=True)
    ]

    def add(to: int, of: int) -> None:
        v[to] = (v[to] + v[of]) % (1 << 64)

    def turn(at: int, bits: int) -> None:
        v[at] = (v[at] << bits | v[at] >> (64 - bits)) % (1 << 64)

    def rounds(count: int) -> None:
        for _ in range(count):
            for half in (((0, 1, 13), (2, 3, 16)), ((2, 1, 17), (0, 3, 21))):
                for to, of, bits in half:
                    add(to, of)
                    turn(of, bits)
                    v[of] ^= v[to]
                turn(half[0][0], 32)

    whole = part + bytes(7 - len(part) % 8) + bytes([len(part) % 256])
    for (word,) in struct.iter_unpack("<Q", whole):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def test_sums_are_siphash_of_each_part() -> None:
    """Of all sizes around words of 8 bytes and 256, in one buffer."""
    for size, expected in VECTORS.items():
        assert reference(bytes(range(size)), bytes(range(16))).to_bytes(8, "little").hex() == expected
    parts = [random.Random(size).randbytes(size) for size in (*range(270), 1023, 1024, 5000)]
    data = np.frombuffer(bytearray(b"".join(parts)), np.uint8)
    sizes = np.array([len(part) for part in parts])
    sums = RecordSummer(KEY).sums(data, np.cumsum(sizes) - sizes, sizes)
    key = hashlib.blake2b(b"sums", key=KEY, digest_size=16).digest()
    assert sums.tolist() == [reference(part, key) for part in parts]
    null = RecordSummer(KEY).sums(data, np.zeros(1, np.int64), np.full(1, -1))
    assert null.tolist() == [0]


@pytest.mark.parametrize("cut", [0, 1, 17, 40])
def test_sums_in_order_of_two_runs_make_that_of_both(cut: int) -> None:
    """Wherever the records are cut; another record, or another order, has another sum."""
    summer, draw = RecordSummer(KEY), np.random.default_rng(cut)
    sums = draw.integers(0, (1 << 64) - 1, 40, np.uint64, endpoint=True)
    sums[:3] = 0, (1 << 64) - 1, MODULUS
    whole = summer.in_order(sums)
    assert whole == sum(one * summer.factor**k for k, one in enumerate(reversed(sums.tolist()))) % MODULUS
    assert summer.joined(summer.in_order(sums[:cut]), summer.in_order(sums[cut:]), 40 - cut) == whole
    for one in range(40):
        assert summer.in_order(np.where(np.arange(40) == one, sums ^ np.uint64(1), sums)) != whole
    assert len({summer.in_order(np.roll(sums, shift)) for shift in range(40)}) == 40
    assert RecordSummer(bytes(32)).factor != summer.factor


def _whole(*records: tuple[int, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...]]) -> list[int]:
    """The sums of whole records, each stored in a batch of its own."""
    raw = [segments.batch(segments.record(0, key, value, 0, headers), 1, base_time=time, max_time=time)
           for time, key, value, headers in records]  # fmt: skip
    stored = b"".join(raw)
    (chunk,) = read_segment(io.BytesIO(stored), len(stored), file="", raw=True)
    (run,) = chunk.opened(np.arange(len(raw)), chunk.batches, DEFAULT_LIMITS)
    return RecordSummer(KEY).whole(run, np.ones(len(raw), bool)).tolist()


def test_sums_of_whole_records_differ_by_each_part() -> None:
    """And by its boundaries: null is not empty, and bytes at the end of a key are not those of the value."""
    records = [(1, b"k" * 8, b"v", ()), (2, b"k" * 8, b"v", ()), (1, b"", b"v", ()), (1, None, b"v", ())]
    records += [(1, b"k" * 8 + b"v", b"", ()), (1, b"k" * 8, None, ()), (1, b"k" * 8, b"v", ((b"h", None),))]
    records += [(1, b"k" * 8, b"v", ((b"h", b""),)), (1, b"k" * 9, b"v", ()), (1, b"k" * 8, b"v\0", ())]
    sums = _whole(*records)
    assert len(set(sums)) == len(records)
    assert _whole(*records[::-1]) == sums[::-1]
    assert _whole(records[6]) == sums[6:7]


def test_a_part_outside_of_its_buffer_is_refused() -> None:
    with pytest.raises(ValueError, match="outside"):
        RecordSummer(KEY).sums(np.zeros(10, np.uint8), np.array([8]), np.array([3]))


def test_checkpoints_and_offset_syncs() -> None:
    """Checkpoint.java: group, topic, partition; version, upstream, downstream, metadata. OffsetSync.java: no version"""

    def text(value: str) -> bytes:
        return struct.pack(">h", len(value)) + value.encode()

    key = text("g") + text("A.orders") + struct.pack(">i", 3)
    value = struct.pack(">hqq", 0, 70, 65) + text("")
    newer = struct.pack(">hqq", 1, 70, 65)
    records = [(key, value), (key, None), (key, newer), (key[:5], value)]
    assert [*translated("A.checkpoints.internal", iter(records))] == [TranslatedOffset("g", "A.orders", 3, 70, 65)]
    sync = text("orders") + struct.pack(">i", 3), struct.pack(">qq", 1, 2)
    assert [*translated("mm2-offset-syncs.B.internal", iter([sync]))] == [TranslatedOffset(None, "orders", 3, 1, 2)]


@pytest.mark.parametrize("seed", range(30))
def test_runs_in_order_have_the_most_records(seed: int) -> None:
    """Against all subsets."""
    draw = random.Random(seed)
    others = draw.sample(range(0, 100, 10), 7)
    runs = [MatchedRun(10 * k, 10 * k + draw.randrange(8), other) for k, other in enumerate(others)]
    kept, moved = in_order(runs)
    assert sorted([*kept, *moved]) == runs
    assert all(a.other < b.other for a, b in itertools.pairwise(kept))

    def ordered(some: tuple[MatchedRun, ...]) -> bool:
        return all(a.other < b.other for a, b in itertools.pairwise(some))

    subsets = (some for size in range(8) for some in itertools.combinations(runs, size) if ordered(some))
    assert sum(r.records for r in kept) == max(sum(r.records for r in some) for some in subsets)


def test_neighbours_of_a_record() -> None:
    alignment = Alignment([MatchedRun(0, 4, 0), MatchedRun(10, 14, 20)])
    assert [alignment.before(n) for n in (0, 3, 5, 8, 12, 99)] == [None, 2, 4, 4, 21, 24]
    assert [alignment.after(n) for n in (0, 5, 12, 15)] == [0, 20, 22, None]
    assert alignment.reversed().before(22) == 11
    assert [alignment.match(n) for n in (0, 4, 5, 9, 10, 14, 15)] == [0, 4, None, None, 20, 24, None]
    assert less([(2, 4), (9, 20)], 0, 10) == 6
    assert less([(2, 7), (4, 6), (9, 20)], 0, 10) == 3


def test_pairs_of_topics() -> None:
    assert named_pairs(["a", "b"], ["west.a", "b"], {}) == ([("a", "west.a"), ("b", "b")], [])
    assert named_pairs(["a", "w.a"], ["a", "w.a"], {}) == ([("a", "a"), ("w.a", "w.a")], [])
    assert named_pairs(["a"], ["c"], {}) == ([], ["a"])
    assert named_pairs(["a"], ["c"], parsed_map(["a=c"])) == ([("a", "c")], [])
    with pytest.raises(AuditInputError, match="--topic-map a="):
        named_pairs(["a"], ["a", "w.a"], {})
    with pytest.raises(AuditInputError, match="no topic x in B"):
        named_pairs(["a"], ["c"], {"a": "x"})
    with pytest.raises(AuditInputError, match="topic c of B would be compared with a and b of A"):
        named_pairs(["a", "b"], ["c"], {"a": "c", "b": "c"})
    with pytest.raises(AuditInputError, match="expected A=B"):
        parsed_map(["a"])
