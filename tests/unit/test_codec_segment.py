"""Reading segments: the reference's verified bytes, every kind of batch, and control records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from auditor.base.errors import MIB, DecodeError, Limits
from auditor.connectors.codec import batches as col
from auditor.connectors.codec.records import Record, decode_records, decode_stored, iter_records
from auditor.connectors.codec.segment import read_segment
from tests.segments import (
    TIME,
    File,
    accounted,
    batch,
    chunks,
    compress,
    message,
    reasons,
    record,
    simple,
    sized,
    wrapper,
)

FOUR_RECORDS = bytes.fromhex("""
0000000000000007 0000005c 00000000 02 f14f8e40 0000 00000003 0000018bcfe56800 0000018bcfe56805
0000000000000014 0000 00000000 00000004
22 00 00 00 04 6b31 04 7631 04 02 68 02 78 02 6e 01
10 00 0a 02 01 04 7632 00
10 00 05 04 04 6b33 01 00
0c 00 00 06 00 00 00""")
COMMIT = bytes.fromhex("""
0000000000000002 00000042 00000000 02 78e55a97 0030 00000000 000001a1fc114677 000001a1fc114677
0000000000000005 0000 ffffffff 00000001 20 00 00 00 08 00000001 0c 000000000000 00""")
EMPTY = bytes.fromhex("""
0000000000000005 00000031 00000000 02 b172ff18 0000 00000001 ffffffffffffffff 000001a1fc11a184
0000000000000011 0000 00000005 00000000""")
HORIZON = bytes.fromhex("""
0000000000000005 0000003d 00000000 02 12d6140f 0040 00000001 000001a1fc14279c 000001a1fc11a184
0000000000000011 0000 00000005 00000001 16 00 af9814 02 04 6b39 02 7a 00""")
MAGIC_0 = bytes.fromhex("""
0000000000000064 00000011 165764b1 00 00 00000001 6b 00000002 7630
0000000000000065 00000010 4c9f5bc2 00 00 ffffffff 00000002 7631
0000000000000066 0000000f 908204f6 00 00 00000001 6b ffffffff""")
MAGIC_1 = bytes.fromhex("0000000000000064 00000019 497426e2 01 00 0000018bcfe56800 00000001 6b 00000002 7630")


def one(data: bytes) -> dict[str, int]:
    """The only batch of a segment."""
    (chunk,) = chunks(data)
    assert reasons([chunk]) == []
    assert len(chunk.batches.size) == 1
    return {name: int(column[0]) for name, column in zip(chunk.batches._fields, chunk.batches, strict=True)}


def listed(data: bytes) -> list[Record | DecodeError]:
    return list(iter_records(data, file="s.log", position=7))


def test_the_verified_batch_of_four_records() -> None:
    assert one(FOUR_RECORDS) == {
        "position": 0, "size": 104, "magic": 2, "attributes": 0, "base_offset": 7, "last_offset": 10, "record_count": 4,
        "partition_leader_epoch": 0, "crc": 4048522816, "base_timestamp": 1700000000000,
        "max_timestamp": 1700000000005, "producer_id": 20, "producer_epoch": 0, "base_sequence": 0, "control_type": -1,
        "coordinator_epoch": -1, "flaws": 0,
    }  # fmt: skip
    assert listed(FOUR_RECORDS) == [
        Record(7, 1700000000000, b"k1", b"v1", ((b"h", b"x"), (b"n", None))),
        Record(8, 1700000000005, None, b"v2", ()),
        Record(9, 1699999999997, b"k3", None, ()),
        Record(10, 1700000000000, b"", b"", ()),
    ]


def test_the_summary_of_the_verified_batch() -> None:
    (chunk,) = chunks(FOUR_RECORDS, records=True)
    assert chunk.summary is not None
    row = {name: int(column[0]) for name, column in zip(chunk.summary._fields, chunk.summary, strict=True)}
    assert row == {
        "present": 4, "first_timestamp": 1700000000000, "min_timestamp": 1699999999997,
        "max_timestamp": 1700000000005, "null_keys": 1, "first_null_key": 1, "flaws": 0, "first_flaw": -1,
        "plain_size": 43,
    }  # fmt: skip


def test_the_columns_of_the_verified_batch() -> None:
    (chunk,) = chunks(FOUR_RECORDS, raw=True)
    assert chunk.raw == [FOUR_RECORDS]
    (run,) = decode_records(chunk.raw, chunk.batches, payload=True)
    assert run.records.offset.tolist() == [7, 8, 9, 10]
    assert run.records.key_size.tolist() == [2, -1, 2, 0]
    assert run.records.value_size.tolist() == [2, 2, -1, 0]
    assert run.records.header_count.tolist() == [2, 0, 0, 0]
    assert [s for s in run.records.key_start.tolist() if s < 0] == [-1]
    start = run.records.key_start[2]
    assert run.records.payload[start : start + 2].tobytes() == b"k3"
    (bare,) = decode_records(chunk.raw, chunk.batches)
    assert len(bare.records.payload) == 0
    assert set(bare.records.key_start.tolist()) == {-1}


def test_the_verified_marker() -> None:
    marker = one(COMMIT)
    assert (marker["control_type"], marker["coordinator_epoch"], marker["flaws"]) == (1, 0, 0)
    assert (marker["producer_id"], marker["base_sequence"], marker["crc"]) == (5, -1, 0x78E55A97)


def test_the_verified_empty_batch() -> None:
    empty = one(EMPTY)
    assert (empty["base_offset"], empty["last_offset"], empty["record_count"]) == (5, 6, 0)
    assert (empty["base_sequence"], empty["base_timestamp"]) == (5, -1)
    assert empty["flaws"] == col.FLAW_COUNT_BELOW_SPAN
    assert listed(EMPTY) == []


def test_the_verified_delete_horizon() -> None:
    assert one(HORIZON)["base_timestamp"] == 0x1A1FC14279C
    assert listed(HORIZON) == [Record(6, 0x1A1FC14279C - 165400, b"k9", b"z", ())]


def test_the_verified_messages() -> None:
    (chunk,) = chunks(MAGIC_0 + MAGIC_1, raw=True)
    assert chunk.batches.magic.tolist() == [0, 0, 0, 1]
    assert chunk.batches.base_offset.tolist() == [100, 101, 102, 100]
    assert chunk.batches.max_timestamp.tolist() == [-1, -1, -1, 1700000000000]
    assert not chunk.batches.flaws.any()
    assert chunk.raw is not None
    found = [listed(raw) for raw in chunk.raw]
    assert found == [
        [Record(100, -1, b"k", b"v0", ())],
        [Record(101, -1, None, b"v1", ())],
        [Record(102, -1, b"k", None, ())],
        [Record(100, 1700000000000, b"k", b"v0", ())],
    ]


@pytest.mark.parametrize("codec", [1, 2, 3])
@pytest.mark.parametrize("magic", [0, 1])
def test_wrappers(magic: int, codec: int) -> None:
    """Magic 0 stores absolute offsets inside, magic 1 relative ones; both have holes after compaction."""
    inner = [message(o, b"k", b"v%d" % o, magic, time=TIME + o) for o in ([95, 97, 102] if magic == 0 else [0, 2, 7])]
    data = wrapper(102, inner, codec, magic, TIME + 7)
    row = one(data)
    assert (row["base_offset"], row["last_offset"], row["record_count"], row["flaws"]) == (95, 102, 3, 0)
    records = listed(data)
    assert [r.offset for r in records if isinstance(r, Record)] == [95, 97, 102]
    expected = [-1] * 3 if magic == 0 else [TIME, TIME + 2, TIME + 7]
    assert [r.timestamp for r in records if isinstance(r, Record)] == expected


def test_a_wrapper_with_append_time_decides_for_all() -> None:
    data = wrapper(11, [message(i, b"k", b"v", time=5) for i in range(2)], time=TIME, attributes=8)
    assert [(r.offset, r.timestamp) for r in listed(data) if isinstance(r, Record)] == [(10, TIME), (11, TIME)]


def test_a_wrapper_at_offset_0_begins_there() -> None:
    """Some versions of librdkafka wrote them so."""
    data = wrapper(0, [message(i, b"k", b"v") for i in range(3)])
    assert one(data)["base_offset"] == 0
    assert [r.offset for r in listed(data) if isinstance(r, Record)] == [0, 1, 2]


def test_append_time_replaces_every_timestamp() -> None:
    data = simple(40, attributes=8, max_time=TIME + 99)
    assert [r.timestamp for r in listed(data) if isinstance(r, Record)] == [TIME + 99] * 3


@pytest.mark.parametrize("codec", range(5))
def test_every_codec(codec: int) -> None:
    (chunk,) = chunks(simple(70, 50, codec), records=True)
    assert chunk.summary is not None
    assert (chunk.summary.present[0], chunk.summary.flaws[0]) == (50, 0)
    records = listed(simple(70, 50, codec))
    assert records == [Record(70 + i, TIME + i, b"k%d" % i, b"value" * 20, ()) for i in range(50)]


def control(key: bytes | None, value: bytes | None, **header: Any) -> bytes:
    return batch(record(0, key, value), 1, **{"attributes": 0x30, "producer_id": 9, "epoch": 3} | header)


ABORT_KEY, COMMIT_KEY = bytes.fromhex("00000000"), bytes.fromhex("00000001")
VALUE = bytes.fromhex("000000000007")


@pytest.mark.parametrize(
    ("data", "kind", "epoch", "flaws"),
    [
        (control(ABORT_KEY, VALUE), 0, 7, 0),
        (control(COMMIT_KEY + b"more", VALUE + b"more"), 1, 7, 0),
        (control(bytes.fromhex("00050001"), VALUE), 1, 7, 0),
        (control(bytes.fromhex("ffff0001"), VALUE), -1, -1, col.FLAW_CONTROL_KEY),
        (control(b"\0\0\0", VALUE), -1, -1, col.FLAW_CONTROL_KEY),
        (control(None, VALUE), -1, -1, col.FLAW_CONTROL_KEY),
        (control(COMMIT_KEY, VALUE[:5]), 1, -1, col.FLAW_CONTROL_VALUE),
        (control(COMMIT_KEY, None), 1, -1, col.FLAW_CONTROL_VALUE),
        (control(bytes.fromhex("00000002"), None), 2, -1, col.FLAW_CONTROL_TYPE),
        (control(COMMIT_KEY, VALUE, attributes=0x20), 1, 7, col.FLAW_CONTROL_NOT_TRANSACTIONAL),
        (control(COMMIT_KEY, VALUE, sequence=4), 1, 7, col.FLAW_CONTROL_SEQUENCE),
        (control(COMMIT_KEY, VALUE, attributes=0x31), -1, -1, col.FLAW_CONTROL_COMPRESSED),
        (
            control(COMMIT_KEY, VALUE, producer_id=-1, epoch=-1),
            1,
            7,
            col.FLAW_CONTROL_NO_PRODUCER | col.FLAW_NO_PRODUCER_FIELDS,
        ),
        (
            batch(record(0, COMMIT_KEY, VALUE) * 2, 2, attributes=0x30, producer_id=9, epoch=3),
            1,
            7,
            col.FLAW_CONTROL_RECORDS,
        ),
        (batch(b"", 0, attributes=0x30, delta=0, producer_id=9, epoch=3), -1, -1, col.FLAW_COUNT_BELOW_SPAN),
        (batch(b"", 1, attributes=0x30, producer_id=9, epoch=3), -1, -1, col.FLAW_CONTROL_KEY),
        (batch(b"\x20\0\0\0\x80", 1, attributes=0x30, producer_id=9, epoch=3), -1, -1, col.FLAW_CONTROL_KEY),
    ],
)
def test_control_records(data: bytes, kind: int, epoch: int, flaws: int) -> None:
    row = one(data)
    assert (row["control_type"], row["coordinator_epoch"], row["flaws"]) == (kind, epoch, flaws)


def test_compressed_control_batches_are_opened() -> None:
    """No broker writes them, and every broker obeys them."""
    body = record(0, COMMIT_KEY, VALUE)
    for codec in (1, 2, 3, 4):
        row = one(batch(compress(codec, body), 1, attributes=0x30 | codec, producer_id=9, epoch=3))
        assert (row["control_type"], row["coordinator_epoch"], row["flaws"]) == (1, 7, col.FLAW_CONTROL_COMPRESSED)
    (chunk,) = chunks(simple(0) + control(COMMIT_KEY, VALUE, attributes=0x31), records=True)
    assert chunk.batches.control_type.tolist() == [-1, -1]
    assert [(e.position, e.reason) for e in chunk.body_errors] == [(len(simple(0)), "bad_compression")]


@pytest.mark.parametrize(
    ("header", "flaws"),
    [
        ({"delta": 5}, col.FLAW_COUNT_BELOW_SPAN),
        ({"delta": 1}, col.FLAW_COUNT_ABOVE_SPAN),
        ({"delta": -1}, col.FLAW_NEGATIVE_SPAN),
        ({"attributes": 6}, col.FLAW_CODEC_UNKNOWN),
        ({"epoch": 0}, col.FLAW_NO_PRODUCER_FIELDS),
        ({"sequence": 0}, col.FLAW_NO_PRODUCER_FIELDS),
        ({"attributes": 0x10}, col.FLAW_NO_PRODUCER_FIELDS),
        ({"producer_id": 1, "sequence": 0}, col.FLAW_PRODUCER_EPOCH),
        ({"producer_id": 1, "epoch": 0}, col.FLAW_PRODUCER_SEQUENCE),
        ({"producer_id": 1, "epoch": 0, "sequence": 0}, 0),
    ],
)
def test_flaws_of_headers(header: dict[str, int], flaws: int) -> None:
    assert one(simple(3, **header))["flaws"] == flaws


def test_a_wrong_checksum_is_a_row() -> None:
    data = bytearray(simple(1) + simple(4) + message(7, b"k", b"v") + message(8, b"k", b"v"))
    data[-1] ^= 1
    data[100] ^= 1
    (chunk,) = chunks(bytes(data))
    assert chunk.batches.flaws.tolist() == [col.FLAW_CRC, 0, 0, col.FLAW_CRC]
    assert accounted([chunk]) == len(data)
    (chunk,) = chunks(bytes(data), crc=False)
    assert not chunk.batches.flaws.any()


def test_batches_far_larger_than_the_buffer() -> None:
    big = simple(3, 1, value=bytes(3 * MIB))
    data = simple(0) + big + simple(4)
    found = chunks(data, raw=True, records=True)
    assert [int(o) for c in found for o in c.batches.base_offset] == [0, 3, 4]
    assert [raw for c in found for raw in c.raw or []] == [simple(0), big, simple(4)]
    assert accounted(found) == len(data)
    assert not any(c.batches.flaws.any() or c.summary is None or c.summary.flaws.any() for c in found)


def test_chunks_are_bounded_and_join_to_the_whole() -> None:
    data = b"".join(simple(3 * i) for i in range(20_000))
    found = chunks(data, records=True)
    assert len(found) == 3
    assert np.concatenate([c.batches.base_offset for c in found]).tolist() == list(range(0, 60_000, 3))
    assert sum(int(c.summary.present.sum()) for c in found if c.summary) == 60_000
    assert [c.end for c in found][-1] == len(data) == accounted(found)


def test_bytes_are_held_until_the_next_chunk() -> None:
    """Batches that share a buffer, fill it, are larger than it, or stand behind bytes that are no batch."""
    sizes = [100, 3 * MIB, 100, 5 * MIB, 2 * MIB, 100]
    parts = [simple(i, 1, 4 * (i % 2), value=bytes(size)) for i, size in enumerate(sizes)]
    parts.insert(2, batch(b"", 0, magic=3)[:-1] + b"?")  # its checksum is wrong with any magic
    data = b"".join(parts)
    found: list[Any] = []
    for chunk in read_segment(File(data), len(data), file="s.log", keep_bytes=True):
        assert chunk.data is not None
        for position, size in zip(chunk.batches.position.tolist(), chunk.batches.size.tolist(), strict=True):
            at = position - chunk.origin
            assert chunk.data[at : at + size].tobytes() == data[position : position + size]
        for run in decode_stored(chunk.data, chunk.origin, chunk.batches):
            found += zip(run.records.offset.tolist(), run.records.value_size.tolist(), strict=True)
    assert found == list(enumerate(sizes))


def test_splits_meet_at_any_batch() -> None:
    pieces = [simple(3 * i, codec=i % 5) for i in range(9)]
    data = b"".join(pieces)
    whole = chunks(data)[0].batches
    for split in np.cumsum([len(p) for p in pieces]).tolist():
        first = list(read_segment(File(data), len(data), file="s.log", stop=split))
        second = list(read_segment(File(data), len(data), file="s.log", start=split))
        assert first[-1].end == split
        both = [np.concatenate([a, b]) for a, b in zip(first[0].batches, second[0].batches, strict=True)]
        assert all((ours == theirs).all() for ours, theirs in zip(both, whole, strict=True))
    inside = list(read_segment(File(data), len(data), file="s.log", stop=len(pieces[0]) + 1))
    assert inside[-1].end == len(pieces[0] + pieces[1])  # not where the next one would start: the walks do not meet


def test_an_empty_file_is_one_empty_chunk() -> None:
    (chunk,) = chunks(b"", raw=True, records=True)
    assert (len(chunk.batches.size), chunk.errors, chunk.raw, chunk.end) == (0, [], [], 0)
    assert chunk.summary is not None
    assert len(chunk.summary.present) == 0


def test_too_many_headers_are_an_error_in_their_place() -> None:
    body = record(0, b"k", b"v", headers=[(b"h", None)] * 5) + record(1, b"k", b"v")
    found = list(iter_records(batch(body, 2), limits=Limits(max_headers=4)))
    assert isinstance(found[0], DecodeError)
    assert found[0].reason == "limit"
    assert isinstance(found[1], Record)


def test_other_bytes_are_no_batch() -> None:
    for data in (b"", b"abc", simple(0) + b"x", simple(0) + simple(3), bytes(200)):
        (error,) = listed(data)
        assert isinstance(error, DecodeError)
        assert error[:4] == ("s.log", 7, len(data), "bad_record")


def test_a_record_may_not_be_a_tombstone_by_mistake() -> None:
    """A record that does not parse is an error, never a record with a null in it."""
    cut = sized(b"\0" + b"\0\0" + b"\x02k")  # ends where the value's length should stand
    found = listed(batch(record(0, b"k", b"v") + cut[:1] + cut[1:] + record(2, b"k", b"w"), 3))
    assert [type(r).__name__ for r in found] == ["Record", "DecodeError", "Record"]
