"""What is wrong with records: each flaw alone, with its place."""

from __future__ import annotations

import pytest

from auditor.base.errors import MIB, DecodeError, Limits
from auditor.connectors.codec import batches as col
from auditor.connectors.codec.records import Record, decode_records, iter_records
from tests.segments import TIME, batch, chunks, compress, message, record, simple, sized, varint, wrapper


def flaws(data: bytes, **options: Limits) -> tuple[int, int, int]:
    """RECORD_* bits, first culprit, records present of the only batch."""
    (chunk,) = chunks(data, records=True, **options)
    summary = chunk.summary
    assert summary is not None
    assert len(summary.flaws) == 1
    return int(summary.flaws[0]), int(summary.first_flaw[0]), int(summary.present[0])


def three(*deltas: int) -> bytes:
    return b"".join(record(delta, b"k", b"v") for delta in deltas)


LONG = sized(b"\0" + varint(0) + varint(1) + sized(b"k") + sized(b"v") + varint(0) + b"more")
SHORT = sized(b"\0" + varint(0) + varint(1) + varint(5) + b"k")
NULL_HEADER = sized(b"\0" + varint(0) + varint(1) + sized(b"k") + sized(b"v") + varint(1) + varint(-1) + sized(b"x"))
NEGATIVE = sized(b"\0" + varint(0) + varint(1) + varint(-2) + sized(b"v") + varint(0))
MANY_HEADERS = sized(b"\0" + varint(0) + varint(1) + sized(b"k") + sized(b"v") + varint(2**31 - 1))


@pytest.mark.parametrize(
    ("body", "count", "delta", "expected"),
    [
        (three(0, 1, 2), 3, 2, (0, -1, 3)),
        (three(0, 2, 5), 3, 5, (0, -1, 3)),
        (three(0, 1, 2), 4, 3, (col.RECORD_COUNT_MISMATCH, 3, 3)),
        (three(0, 1, 2), 2, 2, (col.RECORD_COUNT_MISMATCH | col.RECORD_BYTES_LEFT, 2, 3)),
        (three(0, 1, 2) + b"\x7f", 3, 2, (col.RECORD_BYTES_LEFT, 3, 3)),
        (three(0, 1, 2) + bytes(5), 3, 2, (col.RECORD_BYTES_LEFT, 3, 3)),
        (three(0, 2, 1), 3, 2, (col.RECORD_OFFSET_DELTA, 2, 3)),
        (three(0, 1, 1), 3, 2, (col.RECORD_OFFSET_DELTA, 2, 3)),
        (three(0, 1, 3), 3, 2, (col.RECORD_OFFSET_DELTA, 2, 3)),
        (three(-1, 1, 2), 3, 2, (col.RECORD_OFFSET_DELTA, 0, 3)),
        (three(0) + LONG + three(2), 3, 2, (col.RECORD_LENGTH, 1, 3)),
        (three(0) + SHORT + three(2), 3, 2, (col.RECORD_LENGTH, 1, 3)),
        (three(0) + NEGATIVE + three(2), 3, 2, (col.RECORD_LENGTH, 1, 3)),
        (three(0) + MANY_HEADERS + three(2), 3, 2, (col.RECORD_LENGTH, 1, 3)),
        (three(0) + NULL_HEADER + three(2), 3, 2, (col.RECORD_HEADER_KEY_NULL, 1, 3)),
        (three(0) + varint(-3) + three(2), 3, 2, (col.RECORD_LENGTH | col.RECORD_COUNT_MISMATCH, 1, 1)),
        (three(0, 1) + varint(900), 3, 2, (col.RECORD_LENGTH | col.RECORD_COUNT_MISMATCH, 2, 2)),
        (three(0, 1) + b"\xff" * 9, 3, 2, (col.RECORD_LENGTH | col.RECORD_COUNT_MISMATCH, 2, 2)),
        (b"", 3, 2, (col.RECORD_COUNT_MISMATCH, 0, 0)),
        (b"", 0, 2, (0, -1, 0)),
    ],
)
def test_flaws_of_records(body: bytes, count: int, delta: int, expected: tuple[int, int, int]) -> None:
    assert flaws(batch(body, count, delta=delta)) == expected
    if count:
        assert flaws(batch(compress(4, body), count, delta=delta, attributes=4)) == expected


def test_bodies_that_cannot_be_opened() -> None:
    broken = batch(b"no stream at all", 2, attributes=1)
    assert flaws(broken) == (col.RECORD_UNDECOMPRESSABLE, 0, 0)
    (chunk,) = chunks(broken, records=True)
    assert [(e.position, e.length, e.reason) for e in chunk.body_errors] == [(0, len(broken), "bad_compression")]
    (chunk,) = chunks(batch(b"x", 2, attributes=7), records=True)
    assert [e.reason for e in chunk.body_errors] == ["bad_codec"]


def test_a_bomb_is_a_row_and_an_error() -> None:
    bomb = simple(0, 1, 4, value=bytes(3 * MIB))
    limits = Limits(max_batch_bytes=2 * MIB)
    (chunk,) = chunks(simple(9, 2, 4) + bomb + simple(1, 2, 4), records=True, limits=limits)
    assert chunk.summary is not None
    assert chunk.summary.flaws.tolist() == [0, col.RECORD_UNDECOMPRESSABLE, 0]
    assert [(e.reason, e.length) for e in chunk.body_errors] == [("bomb_limit", len(bomb))]
    (error,) = iter_records(bomb, limits=limits)
    assert isinstance(error, DecodeError)
    assert error.reason == "bomb_limit"


def test_more_plain_bytes_than_the_arena_holds() -> None:
    """Bodies that share the arena, fill it, and are larger than it."""
    sizes = [100, MIB, 2 * MIB, 3 * MIB, 100, 5 * MIB, 100, 4 * MIB, 15 * MIB, 1]
    data = b"".join(simple(i, 1, 4, value=bytes(size)) for i, size in enumerate(sizes))
    (chunk,) = chunks(data, records=True, raw=True)
    assert chunk.summary is not None
    assert not chunk.summary.flaws.any()
    assert all(size < plain < size + 32 for size, plain in zip(sizes, chunk.summary.plain_size.tolist(), strict=True))
    assert chunk.raw is not None
    runs = list(decode_records(chunk.raw, chunk.batches, payload=True))
    starts = [0, 2, 3, 4, 5, 6, 7, 8, 9]  # what is larger than 2 MiB with its record's own bytes stands alone
    assert [run.rows for run in runs] == [slice(a, b) for a, b in zip(starts, [*starts[1:], 10], strict=True)]
    assert [s for run in runs for s in run.records.value_size.tolist()] == sizes
    assert [b for run in runs for b in run.records.batch.tolist()] == list(range(10))
    for run in runs:
        for start, size in zip(run.records.key_start, run.records.key_size, strict=True):
            assert run.records.payload[start : start + size].tobytes() == b"k0"


def test_more_records_than_batches_declare() -> None:
    """Room is made for what is declared at first, and of no more than the bytes can hold."""
    bodies = [(three(0, 1, 2), 2), (three(0), 1), (varint(0) * 9, 9), (three(0, 1), 2**31 - 1), (three(0, 1), -1)]
    data = b"".join(batch(body, count, delta=8, base_offset=10 * i) for i, (body, count) in enumerate(bodies))
    (chunk,) = chunks(data, raw=True)
    assert chunk.raw is not None
    (run,) = decode_records(chunk.raw, chunk.batches)
    assert run.summary.present.tolist() == [3, 1, 9, 2, 2]
    assert run.records.batch.tolist() == [0] * 3 + [1] + [2] * 9 + [3] * 2 + [4] * 2
    assert run.records.offset.tolist() == [0, 1, 2, 10, *[19] * 9, 30, 31, 40, 41]
    late, unread = col.RECORD_BYTES_LEFT, col.RECORD_LENGTH | col.RECORD_OFFSET_DELTA
    assert run.records.flaws.tolist() == [0, 0, late, 0, *[unread] * 9, 0, 0, late, late]


def test_sequences_of_records() -> None:
    """After 2147483647 comes 0, with holes too; without a producer there is none."""
    data = batch(three(0, 1, 3), 3, delta=3, producer_id=5, epoch=0, sequence=2**31 - 2) + batch(
        three(0, 1), 2, base_offset=4
    )
    (chunk,) = chunks(data + message(6, b"k", b"v"), raw=True)
    assert chunk.raw is not None
    (run,) = decode_records(chunk.raw, chunk.batches)
    assert run.records.sequence.tolist() == [2**31 - 2, 2**31 - 1, 1, -1, -1, -1]


def test_codecs_mixed_keep_log_order() -> None:
    pieces = [simple(3 * i, codec=i % 5) for i in range(10)] + [wrapper(33, [message(i, b"k", b"v") for i in range(4)])]
    (chunk,) = chunks(b"".join(pieces), raw=True)
    assert chunk.raw is not None
    (run,) = decode_records(chunk.raw, chunk.batches)
    assert run.records.offset.tolist() == list(range(34))
    assert run.records.batch.tolist() == [i // 3 for i in range(30)] + [10] * 4
    assert run.records.index.tolist() == [0, 1, 2] * 10 + [0, 1, 2, 3]


def altered(inner: bytes) -> bytes:
    """With another last byte."""
    return inner[:-1] + bytes([inner[-1] ^ 1])


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (wrapper(5, [message(0, b"k", b"v"), altered(message(1, b"k", b"v"))]), (col.RECORD_INNER_CRC, 1, 2)),
        (wrapper(5, [message(0, b"k", b"v"), message(1, b"k", b"v", 0)]), (col.RECORD_INNER_MAGIC, 1, 2)),
        (wrapper(5, [message(0, b"k", b"v", attributes=2), message(1, b"k", b"v")]), (col.RECORD_INNER_CODEC, 0, 2)),
        (wrapper(5, [message(1, b"k", b"v"), message(1, b"k", b"v")]), (col.RECORD_OFFSET_DELTA, 1, 2)),
        (wrapper(1, [message(0, b"k", b"v"), message(2, b"k", b"v")]), (col.RECORD_WRAPPER_OFFSET, 1, 2)),
        (wrapper(0, [message(0, b"k", b"v"), message(2, b"k", b"v")]), (0, -1, 2)),
        (wrapper(5, [message(0, b"k", b"v"), message(1, b"k", b"v")[:-1]]), (col.RECORD_LENGTH, 1, 1)),
        (wrapper(5, [message(0, b"k", b"v"), bytes(26)]), (col.RECORD_LENGTH, 1, 1)),
        (wrapper(5, []), (col.RECORD_COUNT_MISMATCH, 0, 0)),
    ],
)
def test_flaws_inside_wrappers(data: bytes, expected: tuple[int, int, int]) -> None:
    assert flaws(data) == expected


def test_a_wrapper_that_cannot_be_opened_says_so() -> None:
    data = message(8, None, b"no stream", attributes=1)
    (chunk,) = chunks(data + message(9, b"k", b"v"), records=True)
    assert chunk.batches.flaws.tolist() == [col.FLAW_LEGACY_WRAPPER, 0]
    assert chunk.batches.base_offset.tolist() == [8, 9]
    assert [(e.position, e.length, e.reason) for e in chunk.body_errors] == [(0, len(data), "bad_compression")]
    assert chunks(message(8, None, None, attributes=1))[0].body_errors[0].reason == "bad_record"
    assert chunks(wrapper(8, []))[0].body_errors[0].reason == "bad_record"


def test_absurd_offsets_wrap() -> None:
    data = wrapper(-(2**63), [message(0, b"k", b"v"), message(2**63 - 1, b"k", b"v")])
    (chunk,) = chunks(data)
    assert chunk.batches.base_offset.tolist() == [1]  # -2^63 - (2^63 - 1) = 1 modulo 2^64


def test_lengths_of_a_message_must_fill_it() -> None:
    whole = message(3, b"key", b"value")
    wrong = whole[:26] + b"\0\0\0\x04" + whole[30:]
    assert flaws(wrong)[0] == col.RECORD_LENGTH
    (error, missing) = [*iter_records(wrong), None]
    assert isinstance(error, DecodeError)
    assert missing is None


def test_null_keys_are_counted() -> None:
    body = record(0, b"", b"v") + record(1, None, b"v") + record(2, b"k", None) + record(3, None, b"v")
    (chunk,) = chunks(batch(body, 4), records=True)
    assert chunk.summary is not None
    assert (chunk.summary.null_keys[0], chunk.summary.first_null_key[0]) == (2, 1)


def test_timestamps_of_a_summary_are_the_producers() -> None:
    """Also where the broker stamped the batch: base and deltas stay as the client wrote them."""
    body = record(0, b"k", b"v", 7) + record(1, b"k", b"v", -5) + record(2, b"k", b"v", 11)
    (chunk,) = chunks(batch(body, 3, attributes=8, max_time=TIME + 1000), records=True)
    s = chunk.summary
    assert s is not None
    assert (s.first_timestamp[0], s.min_timestamp[0], s.max_timestamp[0]) == (TIME + 7, TIME - 5, TIME + 11)


def test_a_broken_batch_ends_in_an_error() -> None:
    found = list(iter_records(batch(three(0, 1), 3), file="s.log", position=9))
    assert [isinstance(r, Record) for r in found] == [True, True, False]
    assert isinstance(found[2], DecodeError)
    assert found[2][:4] == ("s.log", 9, 61 + len(three(0, 1)), "bad_record")
