"""Producer snapshots against the reference's bytes, Kafka's own tool, and damage."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.connectors.codec.indexes import ENTRY, ProducerEntries, decode_snapshot, encode_snapshot
from tests import corpora

# formats.md 6.4
ONE_ENTRY = bytes.fromhex(
    "0001 ead1b220 00000001 0000000000000000 0000 00000004 0000000000000004 00000000 0000018bcfe5680a ffffffff"
    "ffffffffffffffff"
)
TOOL_LINE = re.compile(
    r"producerId: (-?\d+) producerEpoch: (-?\d+) coordinatorEpoch: (-?\d+) "
    r"currentTxnFirstOffset: (?:None|Some\((\d+)\)|OptionalLong\.empty|OptionalLong\[(\d+)\])"
    r"(?: lastTimestamp: (-?\d+))?"
    r"(?: firstSequence: (-?\d+) lastSequence: (-?\d+) lastOffset: (-?\d+) offsetDelta: (-?\d+) timestamp: (-?\d+))?"
)


def rows(entries: ProducerEntries) -> list[tuple[int, ...]]:
    return list(zip(*(column.tolist() for column in entries), strict=True))


def test_the_reference_entry() -> None:
    entries, errors = decode_snapshot(ONE_ENTRY)
    assert errors == []
    assert rows(entries) == [(0, 0, 4, 4, 0, 1700000000010, -1, -1)]
    assert encode_snapshot(entries) == ONE_ENTRY


def test_an_empty_snapshot_is_sound() -> None:
    entries, errors = decode_snapshot(encode_snapshot(decode_snapshot(b"")[0]))
    assert (rows(entries), errors) == ([], [])


def dumped() -> Iterator[tuple[Path, list[str]]]:
    """Each snapshot the tool dumped, with its lines."""
    for name in corpora.names():
        for text in sorted(corpora.oracle(name).glob("*.snapshots.txt")):
            for part in text.read_text().split("Dumping ")[1:]:
                path, _, body = part.partition("\n")
                yield corpora.unpack(name) / path.strip(), body.splitlines()


def test_every_snapshot_of_every_broker_is_as_the_tool_says() -> None:
    compared = 0
    for path, lines in dumped():
        entries, errors = decode_snapshot(path.read_bytes(), path.name)
        assert errors == [], path
        said = [match for line in lines if (match := TOOL_LINE.match(line))]
        assert len(said) == len(entries.producer_id), path
        for match, entry in zip(said, named(entries), strict=True):
            compare(match, entry)
            compared += 1
        assert encode_snapshot(entries) == path.read_bytes()
    assert compared > 300


def named(entries: ProducerEntries) -> Iterator[dict[str, int]]:
    for row in rows(entries):
        yield dict(zip(ProducerEntries._fields, row, strict=True))


def compare(said: re.Match[str], entry: dict[str, int]) -> None:
    producer, epoch, coordinator, some, optional, last_time, first, last, offset, delta, time = said.groups()
    assert entry["producer_id"] == int(producer)
    assert entry["producer_epoch"] == int(epoch)
    assert entry["coordinator_epoch"] == int(coordinator)
    assert entry["current_txn_first_offset"] == int(some or optional or -1)
    if last_time is not None:
        assert entry["last_timestamp"] == int(last_time)
    if last is None:
        assert (entry["last_sequence"], entry["last_offset"]) == (-1, -1)
        return
    assert entry["last_sequence"] == int(last)
    assert entry["last_offset"] == int(offset)
    assert entry["offset_delta"] == int(delta)
    assert entry["last_timestamp"] == int(time)
    assert (entry["last_sequence"] - entry["offset_delta"]) % 2**31 == int(first)


@given(st.lists(st.tuples(*(st.integers(-(1 << 8 * s - 1), (1 << 8 * s - 1) - 1) for s in (8, 2, 4, 8, 4, 8, 4, 8)))))
def test_what_is_encoded_is_decoded(wanted: list[tuple[int, ...]]) -> None:
    columns = zip(*wanted, strict=True) if wanted else ([] for _ in ProducerEntries._fields)
    native = (ENTRY[name].newbyteorder("=") for name in ProducerEntries._fields)
    data = encode_snapshot(ProducerEntries(*(np.array(c, t) for c, t in zip(columns, native, strict=True))))
    assert len(data) == 10 + 46 * len(wanted)
    entries, errors = decode_snapshot(data)
    assert (rows(entries), errors) == (wanted, [])


@pytest.mark.parametrize("length", range(len(ONE_ENTRY)))
def test_every_cut_is_reported(length: int) -> None:
    entries, errors = decode_snapshot(ONE_ENTRY[:length], "f")
    assert rows(entries) == []
    assert {error.reason for error in errors} <= {"truncated", "crc_mismatch", "bad_length"}
    assert errors
    assert max(error.position + error.length for error in errors) == length


def test_entries_before_a_cut_are_still_read() -> None:
    twice = ONE_ENTRY[:6] + struct.pack(">i", 2) + ONE_ENTRY[10:] * 2
    entries, errors = decode_snapshot(twice[:-1], "f")
    assert rows(entries) == [(0, 0, 4, 4, 0, 1700000000010, -1, -1)]
    assert [(error.reason, error.position, error.length) for error in errors] == [
        ("crc_mismatch", 0, 101),
        ("bad_length", 56, 45),
    ]


def test_an_unknown_version_is_not_guessed_at() -> None:
    entries, errors = decode_snapshot(b"\0\2" + ONE_ENTRY[2:])
    assert (rows(entries), [error.reason for error in errors]) == ([], ["bad_version"])


def test_every_changed_bit_is_reported() -> None:
    for bit in range(8 * len(ONE_ENTRY)):
        changed = bytearray(ONE_ENTRY)
        changed[bit // 8] ^= 1 << bit % 8
        assert decode_snapshot(bytes(changed))[1], bit


def test_no_bytes_raise() -> None:
    chance = random.Random(64)
    for _ in range(3000):
        data = bytearray(ONE_ENTRY + chance.randbytes(chance.randrange(60)))
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(len(data))] = chance.choice((0, 0x7F, 0x80, 0xFF))
        cut = bytes(data[: chance.randrange(len(data) + 1)])
        entries, errors = decode_snapshot(cut)
        assert all(len(column) == len(entries.producer_id) for column in entries)
        assert bool(errors) == (cut != ONE_ENTRY)
