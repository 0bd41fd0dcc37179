"""Indexes against the reference's bytes, Kafka's own tool, the batches they point at, and damage."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from auditor.connectors.codec.indexes import decode_offset_index, decode_time_index, decode_txn_index
from tests import corpora

TXN = bytes.fromhex("0000 0000000000000005 0000000000000003 0000000000000004 0000000000000005")  # formats.md 6.3
OFFSET = bytes.fromhex("0000001f 00003f73")  # 6.1, base 2500
TIME = bytes.fromhex("0000018bcfe5681f 0000001f")  # 6.2, base 2500
TXN_LINE = re.compile(
    r"version: (\d+) producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", re.ASCII
)
BATCH_LINE = re.compile(r"baseOffset: \d+ lastOffset: (\d+).* position: (\d+) \w+: (-?\d+)", re.ASCII)


def test_the_reference_entries() -> None:
    offsets, errors = decode_offset_index(OFFSET, 2500)
    assert (offsets.offset.tolist(), offsets.log_position.tolist(), errors) == ([2531], [16243], [])
    times, errors = decode_time_index(TIME, 2500)
    assert (times.timestamp.tolist(), times.offset.tolist(), errors) == ([1700000000031], [2531], [])
    aborted, errors = decode_txn_index(TXN)
    assert [column.tolist() for column in aborted[:6]] == [[0], [0], [5], [3], [4], [5]]
    assert (aborted.decoded_bytes, errors) == (34, [])


def test_every_aborted_transaction_is_as_the_tool_says() -> None:
    compared = 0
    for name in corpora.names():
        for text in sorted(corpora.oracle(name).glob("*.txnindex.txt")):
            for part in (text.read_text() if text.is_file() else "").split("Dumping ")[1:]:
                path, _, body = part.partition("\n")
                said = [tuple(map(int, found)) for found in TXN_LINE.findall(body)]
                aborted, errors = decode_txn_index((corpora.unpack(name) / path.strip()).read_bytes())
                assert errors == []
                assert list(zip(*(column.tolist() for column in aborted[1:6]), strict=True)) == said
                assert aborted.position.tolist() == [34 * row for row in range(len(said))]
                compared += len(said)
    assert compared > 90


def batches_by_position(text: Path, segment: str) -> dict[int, tuple[int, int]]:
    """position -> (last offset, max timestamp) of a segment in what the tool printed."""
    for part in (text.read_text() if text.is_file() else "").split("Dumping ")[1:]:
        path, _, body = part.partition("\n")
        if path.strip().endswith(segment):
            return {int(p): (int(last), int(t)) for last, p, t in BATCH_LINE.findall(body)}
    return {}


@pytest.mark.parametrize("name", ["healthy-28", "healthy-41"])
def test_index_entries_point_at_the_batches_the_tool_shows(name: str) -> None:
    compared = 0
    for path in sorted(corpora.unpack(name).glob("broker-1/*/*.index")):
        batches = batches_by_position(corpora.oracle(name) / f"broker-1.{path.parent.name}.log.txt", path.stem + ".log")
        base = int(path.stem)
        index, errors = decode_offset_index(path.read_bytes(), base)
        assert errors == []
        times, errors = decode_time_index(path.with_suffix(".timeindex").read_bytes(), base)
        assert errors == []
        last_offsets = {last for last, _ in batches.values()}
        for offset, position in zip(index.offset.tolist(), index.log_position.tolist(), strict=True):
            if position in batches:  # long dumps are cut
                assert batches[position][0] == offset
                compared += 1
        for timestamp, offset in zip(times.timestamp.tolist(), times.offset.tolist(), strict=True):
            if offset in last_offsets:
                assert timestamp >= max(time for last, time in batches.values() if last <= offset)
                compared += 1
    assert compared > 50


def test_preallocated_zeros_are_counted_not_reported() -> None:
    index, errors = decode_offset_index(OFFSET + bytes(80), 2500)
    assert (index.offset.tolist(), index.decoded_bytes, index.zero_tail_bytes, errors) == ([2531], 8, 80, [])
    times, errors = decode_time_index(TIME + bytes(120), 2500)
    assert (times.offset.tolist(), times.decoded_bytes, times.zero_tail_bytes, errors) == ([2531], 12, 120, [])
    empty, errors = decode_time_index(bytes(24), 7)
    assert (len(empty.offset), empty.zero_tail_bytes, errors) == (0, 24, [])


def test_a_lone_time_of_zero_is_genuine() -> None:
    times, errors = decode_time_index(bytes(12), 7)
    assert (times.timestamp.tolist(), times.offset.tolist(), errors) == ([0], [7], [])


def test_entries_after_the_zeros_are_reported() -> None:
    index, errors = decode_offset_index(OFFSET + bytes(16) + OFFSET, 2500)
    assert (index.decoded_bytes, index.zero_tail_bytes) == (8, 16)
    assert [(error.reason, error.position, error.length) for error in errors] == [("bad_value", 24, 8)]


def test_unknown_versions_of_aborted_transactions_are_reported_by_run() -> None:
    other = b"\0\1" + TXN[2:]
    aborted, errors = decode_txn_index(TXN + other + other + TXN + other)
    assert aborted.version.tolist() == [0, 1, 1, 0, 1]
    assert [(error.reason, error.position, error.length) for error in errors] == [
        ("bad_version", 34, 68),
        ("bad_version", 136, 34),
    ]


@pytest.mark.parametrize("cut", range(1, 34))
def test_every_cut_is_reported_and_whole_entries_are_kept(cut: int) -> None:
    aborted, errors = decode_txn_index((TXN + TXN)[:-cut], "f")
    assert aborted.decoded_bytes == 34
    assert [(error.file, error.position, error.length, error.reason) for error in errors] == [
        ("f", 34, 34 - cut, "bad_length")
    ]
    _, errors = decode_offset_index(OFFSET + OFFSET[: cut % 8], 0)
    assert [error.reason for error in errors] == (["bad_length"] if cut % 8 else [])
    _, errors = decode_time_index(TIME + TIME[: cut % 12], 0)
    assert [error.reason for error in errors] == (["bad_length"] if cut % 12 else [])


def test_no_bytes_raise_and_every_byte_is_accounted_for() -> None:
    chance = random.Random(61)
    for _ in range(3000):
        data = bytes(chance.choice((0, 0, 1, 0x80, 0xFF)) for _ in range(chance.randrange(120)))
        for index, errors in (decode_offset_index(data, 2**40), decode_time_index(data, 2**40)):
            reported = sum(error.length for error in errors)
            assert index.decoded_bytes + index.zero_tail_bytes + reported == len(data)
        aborted, errors = decode_txn_index(data)
        partial = sum(error.length for error in errors if error.reason == "bad_length")
        assert aborted.decoded_bytes + partial == len(data)
