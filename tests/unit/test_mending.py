"""Damaged fields of a batch's header: told by what lies around them, and nothing is doubted that a sound log can hold.

Every expectation is arithmetic on how the bytes were put together.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from auditor.base.errors import MIB, DamagedField
from auditor.connectors.codec.batches import OVERHEAD
from auditor.connectors.codec.damaged_fields import SegmentContext
from auditor.connectors.codec.gaps import offset_range
from auditor.connectors.tables.rows import batch_rows, batches_of
from tests.segments import accounted, chunks, simple

AT = {"base offset": (0, ">q"), "length": (8, ">i"), "leader epoch": (12, ">i"), "magic": (16, ">b")}


def put(batch: bytes, field: str, value: int) -> bytes:
    data = bytearray(batch)
    struct.pack_into(AT[field][1], data, AT[field][0], value)
    return bytes(data)


def read(log: list[bytes], **options: Any) -> tuple[list[tuple[int, int, int]], list[DamagedField]]:
    """First and last offset and leader epoch of each batch, and the damaged fields."""
    found = chunks(b"".join(log), **{"offsets": offset_range(0), **options})
    assert accounted(found) == len(b"".join(log))
    columns = ("base_offset", "last_offset", "partition_leader_epoch")
    rows = [tuple(map(int, row)) for c in found for row in zip(*(getattr(c.batches, n) for n in columns), strict=True)]
    return rows, [field for c in found for e in c.body_errors if (field := DamagedField.of(e)) is not None]  # type: ignore[return-value]


def log(*starts: int, count: int = 3, epochs: tuple[int, ...] = ()) -> list[bytes]:
    return [
        simple(at, count, leader_epoch=epoch) for at, epoch in zip(starts, epochs or [0] * len(starts), strict=True)
    ]


SOUND = {
    "without holes": log(0, 3, 6, 9, 12),
    "cleaned": log(5, 17, 20, 1000, 1 << 20, 1 << 30),
    "epochs rise": log(0, 3, 6, 9, 12, epochs=(0, 0, 3, 1000, 1 << 20)),
    "an epoch of one batch": log(0, 3, 6, epochs=(1, 2, 3)),
    "epochs that are none": log(0, 3, 6, 9, epochs=(4, -1, -1, 5)),
    "a new epoch at the end": log(0, 3, 6, epochs=(4, 4, 5)),
    "a hole at the end": log(0, 3, 8),
    "one batch": log(0),
    "one batch behind the segment's name": log(1 << 15),
}


@pytest.mark.parametrize("name", SOUND)
@pytest.mark.parametrize("epochs", [(), ((0, 0), (4, 0))])
def test_nothing_is_doubted_in_a_sound_log(name: str, epochs: tuple[tuple[int, int], ...]) -> None:
    sound = SOUND[name]
    expected = [(b[0], b[0] + 2, b[1]) for b in (struct.unpack_from(">q4xi", data) for data in sound)]
    assert read(sound, context=SegmentContext(epochs=lambda: epochs)) == (expected, [])


@pytest.mark.parametrize("bit", [0, 1, 5, 20, 40, 62, 63])
@pytest.mark.parametrize("number", [0, 1, 3])
@pytest.mark.parametrize("crc", [True, False])
def test_a_base_offset_between_its_neighbours(number: int, bit: int, crc: bool) -> None:
    sound = log(0, 3, 6, 9, 12)
    stored = struct.unpack(">q", struct.pack(">Q", 3 * number ^ 1 << bit))[0]
    rows, fields = read([*sound[:number], put(sound[number], "base offset", stored), *sound[number + 1 :]], crc=crc)
    assert rows == read(sound)[0]
    assert fields == [DamagedField("base offset", stored, 3 * number, sure=True)]


STORED = {  # column and value as stored, and the columns that an audit reads otherwise
    "base offset": (("base_offset", 6 ^ 1 << 40), {"base_offset": 6, "last_offset": 8}),
    "leader epoch": (("partition_leader_epoch", 1 << 5), {"partition_leader_epoch": 0}),
    "length": (("size", len(log(6)[0]) ^ 1 << 20), {"size": len(log(6)[0])}),
    "magic": (("magic", 3), {"magic": 2}),
}


@pytest.mark.parametrize("field", STORED)
def test_the_table_has_what_is_stored_and_names_what_is_inferred(field: str) -> None:
    (column, stored), inferred = STORED[field]
    sound = log(0, 3, 6, 9, 12)
    written = stored - OVERHEAD if field == "length" else stored
    (chunk,) = chunks(b"".join([*sound[:2], put(sound[2], field, written), *sound[3:]]), offsets=offset_range(0))
    table = batch_rows((None, 1, "d", "t", 0), "f", chunk.batches, damaged=chunk.damaged_fields())
    rows = table.to_pylist()
    assert [row[column] for row in rows][2] == stored
    assert [json.loads(row["inferred"] or "{}") for row in rows] == [{}, {}, inferred, {}, {}]
    for ours, theirs in zip(batches_of(table), chunk.batches, strict=True):
        assert np.array_equal(ours, theirs)  # what an audit of this table reads


@pytest.mark.parametrize(
    "text", ["", "[]", "7", '{"size": "x"}', '{"flaws": 1}', '{"base_offset": 9223372036854775808}']
)
def test_a_table_from_elsewhere_infers_nothing_else(text: str) -> None:
    (chunk,) = chunks(b"".join(log(0, 3)), offsets=offset_range(0))
    table = batch_rows((None, 1, "d", "t", 0), "f", chunk.batches)
    at = table.schema.get_field_index("inferred")
    changed = table.set_column(at, table.schema.field(at), pa.array([text, None], pa.string()))
    assert all(map(np.array_equal, batches_of(changed), chunk.batches))


def test_what_cannot_be_told_stays_as_it_is_stored() -> None:
    """Too high by so little that a cleaned log may have it; the same batch twice; two batches that changed places."""
    for odd in (log(0, 4, 20), log(0, 3, 3, 6), log(0, 6, 3, 9)):
        assert read(odd) == ([(b, b + 2, 0) for b in (struct.unpack_from(">q", data)[0] for data in odd)], [])


def test_a_batch_with_another_damage_proves_nothing() -> None:
    sound = log(0, 3, 6)
    broken = put(sound[1], "base offset", 1 << 20)
    rows, fields = read([sound[0], broken[:-3] + b"?" + broken[-2:], sound[2]])
    assert fields == []
    assert (1 << 20, (1 << 20) + 2, 0) in rows


def test_in_a_cleaned_log_the_one_value_of_one_bit_is_likely() -> None:
    sound = log(0, 16, 40)
    rows, fields = read([sound[0], put(sound[1], "base offset", 16 ^ 1 << 45), sound[2]])
    assert rows == [(0, 2, 0), (16, 18, 0), (40, 42, 0)]
    assert fields == [DamagedField("base offset", 16 ^ 1 << 45, 16, sure=False)]


@pytest.mark.parametrize(
    ("stored", "end", "sure"), [(9 + (1 << 4), 12, True), (9 ^ 8, 12, True), (9 ^ 1 << 33, -1, False)]
)
def test_a_last_base_offset_by_the_end_that_a_shutdown_wrote_or_by_a_leap(stored: int, end: int, sure: bool) -> None:
    sound = log(0, 3, 6, 9)
    rows, fields = read([*sound[:3], put(sound[3], "base offset", stored)], context=SegmentContext(end))
    assert rows == read(sound)[0]
    assert fields == [DamagedField("base offset", stored, 9, sure)]


def test_a_small_hole_before_a_last_batch_is_no_damage_but_where_nothing_is_ever_missing() -> None:
    odd = [*log(0, 3), put(log(6)[0], "base offset", 14)]
    assert read(odd)[1] == []
    assert read(odd, context=SegmentContext(has_holes=False))[1] == [DamagedField("base offset", 14, 6, sure=False)]


@pytest.mark.parametrize(("number", "stored"), [(1, 5), (1, 0), (1, 1 << 30), (2, 4), (1, 4 - (1 << 31)), (3, 68)])
def test_a_leader_epoch_between_equal_neighbours(number: int, stored: int) -> None:
    sound = log(0, 3, 6, 9, 12, epochs=(4, 4, 4, 4, 4))
    changed = put(sound[number], "leader epoch", stored)
    rows, fields = read([*sound[:number], changed, *sound[number + 1 :]])
    if stored != 4:
        assert fields == [DamagedField("leader epoch", stored, 4, sure=True)]
    assert rows == read(sound)[0]


def test_of_two_epochs_either_of_which_may_be_wrong_the_checkpoint_tells() -> None:
    sound = log(0, 3, 6, epochs=(1, 1, 3))
    odd = [sound[0], sound[1], put(sound[2], "leader epoch", 1), *log(9, epochs=(3,))]
    assert read(odd)[1] == []  # epoch 3 may have begun with the last batch
    high = [sound[0], put(sound[1], "leader epoch", 7), put(sound[2], "leader epoch", 2), *log(9, epochs=(7,))]
    told = SegmentContext(epochs=lambda: [(1, 0), (2, 6), (7, 9)])
    assert read(high, context=told)[1] == [DamagedField("leader epoch", 7, 1, sure=True)]


@pytest.mark.parametrize("number", [0, 2, 4])
@pytest.mark.parametrize("change", [lambda n: -5, lambda n: 0, lambda n: n ^ 1, lambda n: n ^ 256, lambda n: 1 << 30])
def test_a_length_that_the_checksum_gives(number: int, change: Callable[[int], int]) -> None:
    sound = log(0, 3, 6, 9, 12)
    right = len(sound[number]) - 12
    rows, fields = read([*sound[:number], put(sound[number], "length", change(right)), *sound[number + 1 :]])
    assert rows == read(sound)[0]
    assert fields == [DamagedField("length", change(right), right, sure=True)]


@pytest.mark.parametrize("number", [0, 2, 4])
@pytest.mark.parametrize("magic", [0, 3, 6, 66, -126])
@pytest.mark.parametrize("count", [1, 3])
def test_a_magic_that_the_checksum_gives(number: int, magic: int, count: int) -> None:
    sound = log(*range(0, 5 * count, count), count=count)
    rows, fields = read([*sound[:number], put(sound[number], "magic", magic), *sound[number + 1 :]])
    assert rows == read(sound)[0]
    assert fields == [DamagedField("magic", magic, 2, sure=True)]


def test_damage_where_a_buffer_ends() -> None:
    """The reader holds 1 MiB at a time, of which the last batch has its neighbour in the next one."""
    size = len(simple(0, 3))
    count = 2 * MIB // size
    sound = [simple(3 * k, 3) for k in range(count)]
    for number in range(MIB // size - 2, MIB // size + 3):
        for field, value in (("base offset", 3 * number ^ 1 << 20), ("leader epoch", 8), ("length", 9), ("magic", 3)):
            log_ = [*sound[:number], put(sound[number], field, value), *sound[number + 1 :]]
            found = chunks(b"".join(log_), offsets=offset_range(0))
            offsets = np.concatenate([c.batches.base_offset for c in found])
            assert np.array_equal(offsets, 3 * np.arange(count))
            (told,) = [DamagedField.of(e) for c in found for e in c.body_errors]
            assert told is not None
            assert (told.name, told.stored) == (field, value)
