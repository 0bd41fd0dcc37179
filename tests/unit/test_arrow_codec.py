"""Values of every declared type come back from Arrow as they were, and no other bytes do."""

from __future__ import annotations

import dataclasses
import enum
import os
import random
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Union

import numpy as np
import pyarrow as pa
import pytest

from auditor.facts.arrow_codec import Codec, DamagedFacts
from auditor.facts.batch_sums import BatchSums
from auditor.facts.events import EVENT
from auditor.facts.packed import Packed, PackedColumns, PackedRows, packed
from auditor.facts.replica_facts import ABORTED, PRODUCER, ReplicaFacts
from auditor.pipeline.derived_tables import SHARES_AT_REST, Share
from auditor.pipeline.runner import BRIEFS_AT_REST, ListBriefs
from auditor.replay.reading.chunks import FACTS_AT_REST, PARTS_AT_REST, PackedPart
from auditor.replay.reading.segment_checks import STAND_INS, SegmentHeaders
from tests.seeded_tests import seeded
from tests.whole.test_split import same

# Any value of a type, by its annotation alone.

TEXTS = ("", "a", "topic-0", "Zürich", "a" * 300, "\x00", "\udc80\udcff", "日本")
NUMBERS = (0, 1, -1, 7, 2**31, 2**63 - 1, -(2**63))
ROWS = {"events": EVENT, "producers": PRODUCER, "aborted": ABORTED}


def some(rng: random.Random, kind: Any, name: str = "") -> Any:
    simple = {
        int: lambda: rng.choice(NUMBERS), bool: lambda: rng.random() < 0.5, str: lambda: rng.choice(TEXTS),
        float: rng.random, bytes: lambda: rng.randbytes(rng.randrange(9)),
        Any: lambda: rng.choice([1, "x", None, [1, "\udc80"], {"a": {"b": 2.5}}]),
        np.ndarray: lambda: rows(rng, ROWS.get(name, np.dtype(np.int64))),
        np.dtype: lambda: rng.choice([EVENT, np.dtype(np.int64), np.dtype("i2")]),
        pa.Table: lambda: pa.table({"n": pa.array([1, None], pa.int32())}),
        Packed: lambda: packed(np.array(rng.choices(NUMBERS[:4], k=rng.randrange(5)), np.int64), "zstd"),
        PackedRows: lambda: PackedRows(PRODUCER, [rows(rng, PRODUCER), rows(rng, PRODUCER)]),
        PackedColumns: lambda: columns(rng), BatchSums: lambda: sums(rng),
    }  # fmt: skip
    if kind in simple:
        return simple[kind]()
    origin, of = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        one = rng.choice(of)
        return None if one is type(None) else some(rng, one, name)
    if origin is Literal:
        return rng.choice(of)
    if origin is not None and issubclass(origin, Mapping):
        return {some(rng, of[0]): some(rng, of[1]) for _ in range(rng.randrange(3))}
    if origin is tuple and of[-1] is not Ellipsis:
        return tuple(some(rng, one) for one in of)
    if origin is not None:
        make = origin if origin in (tuple, frozenset, set) else list
        return make(some(rng, of[0]) for _ in range(rng.randrange(3)))
    kind = STAND_INS.get(kind, kind)
    if issubclass(kind, enum.Enum):
        return rng.choice(list(kind))
    hints = typing.get_type_hints(kind)
    return kind(**{name: some(rng, hints[name], name) for name in names_of(kind)})


def names_of(kind: Any) -> list[str]:
    return [f.name for f in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else list(kind._fields)


def rows(rng: random.Random, dtype: np.dtype) -> np.ndarray:
    return np.frombuffer(rng.randbytes(rng.randrange(4) * dtype.itemsize), dtype)


def columns(rng: random.Random) -> PackedColumns:
    made = PackedColumns({"offset": np.dtype("i8"), "crc": np.dtype("u4")})
    for _ in range(rng.randrange(4)):
        made.add(np.array([rng.choices(NUMBERS[:4], k=5), range(5)], np.int64))
        if rng.random() < 0.3:
            made.pack()
    return made


def sums(rng: random.Random) -> BatchSums:
    made = BatchSums(rng.randbytes(16))
    made.files = some(rng, SegmentHeaders | None)
    batches = np.zeros((3, 10), np.int64)
    batches[:, 0] = batches[:, 1] = np.arange(3) * 1000
    made.add(batches, np.arange(10), 1, 0)
    made.pack()
    return made


CODECS: list[tuple[Codec[Any], type]] = [
    (FACTS_AT_REST, ReplicaFacts), (BRIEFS_AT_REST, ListBriefs), (SHARES_AT_REST, Share), (PARTS_AT_REST, PackedPart),
]  # fmt: skip


@seeded(40)
def test_any_value_of_every_field_comes_back(seed: int) -> None:
    rng = random.Random(seed)
    for codec, cls in CODECS:
        values = [some(rng, cls) for _ in range(rng.randrange(4))]
        found = codec.unpack(codec.pack(values))
        assert len(found) == len(values)
        for one, other in zip(found, values, strict=True):
            for name in names_of(cls):
                assert alike(getattr(one, name), getattr(other, name)), (name, getattr(one, name), getattr(other, name))


def alike(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) and not len(one):  # no rows have no type
        return len(other) == 0
    if isinstance(one, pa.Table):
        return bool(one.equals(other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(alike, one.values(), other.values()))
    if isinstance(one, PackedRows):
        return isinstance(other, PackedRows) and one.dtype == other.dtype and one[:].tobytes() == other[:].tobytes()
    if isinstance(one, PackedColumns):
        return all(np.array_equal(a[1], b[1]) for a, b in zip(one.items(), other.items(), strict=True))
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(alike, one, other))
    if dataclasses.is_dataclass(one):
        return type(one) is type(other) and all(alike(getattr(one, n), getattr(other, n)) for n in names_of(one))
    return same(one, other)


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(ReplicaFacts)])
def test_a_field_alone_comes_back_and_the_others_keep_their_defaults(name: str) -> None:
    rng = random.Random(name)
    kind = typing.get_type_hints(ReplicaFacts)[name]
    for _ in range(5):
        facts = [ReplicaFacts(None, None, "d", "t", k) for k in range(3)]
        setattr(facts[1], name, some(rng, kind, name))
        for found, made in zip(FACTS_AT_REST.unpack(FACTS_AT_REST.pack(facts)), facts, strict=True):
            assert all(alike(getattr(found, n), getattr(made, n)) for n in names_of(ReplicaFacts))


def test_a_field_with_its_default_in_all_values_has_no_column() -> None:
    alone = FACTS_AT_REST.pack([ReplicaFacts(None, None, "d", "t", 0)])
    assert len(alone) < 420
    found, other = FACTS_AT_REST.unpack(FACTS_AT_REST.pack([ReplicaFacts(None, None, "d", "t", k) for k in (0, 1)]))
    assert found.segments is not other.segments
    assert same(found, ReplicaFacts(None, None, "d", "t", 0))


def test_arrays_can_be_changed_as_new_ones_can() -> None:
    """Compiled code is compiled again for arrays that cannot."""
    facts = ReplicaFacts(None, None, "d", "t", 0, events=np.zeros(2, EVENT), snapshot_producers={7: np.arange(3)})
    (found,) = FACTS_AT_REST.unpack(FACTS_AT_REST.pack([facts]))
    for rows in (found.events, found.snapshot_producers[7]):
        assert rows.flags.writeable
        assert rows.flags.c_contiguous
        assert rows.flags.aligned
    assert found.events.dtype is EVENT


class Shapes(NamedTuple):
    of_any: np.ndarray


def test_arrays_of_several_types_and_dimensions() -> None:
    made = [
        np.arange(6).reshape(2, 3), np.arange(6.0).reshape(3, 2, 1), np.zeros(2, EVENT), np.empty((0, 8), np.uint64),
        np.array([True, False]), np.arange(10, dtype=np.int16)[::2],
    ]  # fmt: skip
    codec = Codec(Shapes)
    for some_of in (made, made[:1], [made[5], made[5]], [made[3]]):
        found = [value.of_any for value in codec.unpack(codec.pack(map(Shapes, some_of)))]
        assert [(a.dtype, a.shape, a.tolist()) for a in found] == [(a.dtype, a.shape, a.tolist()) for a in some_of]


@pytest.mark.parametrize(
    "wrong", [{"log_start": "x"}, {"log_start": 2**63}, {"segments": [1]}, {"topic": None},
              {"producers": np.array([object()])}, {"digests": 3}, {"readings": {(0, 0): {"a": object()}}}],
)  # fmt: skip
def test_a_value_of_another_type_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        FACTS_AT_REST.pack([dataclasses.replace(ReplicaFacts(None, None, "d", "t", 0), **wrong)])


class Function(NamedTuple):
    of: object


def test_a_type_without_a_form_is_named() -> None:
    with pytest.raises(TypeError, match="object"):
        Codec(Function).pack([Function(len)])


# Bytes of others.


def sample() -> list[ReplicaFacts]:
    rng = random.Random(5)
    return [some(rng, ReplicaFacts) for _ in range(4)]


def plain(data: bytes) -> bytes:
    return pa.Codec("zstd").decompress(data[8:], int.from_bytes(data[:8], "little"), asbytes=True)


def compressed(stream: bytes) -> bytes:
    return len(stream).to_bytes(8, "little") + pa.Codec("zstd", 1).compress(stream, asbytes=True)


SAMPLE = FACTS_AT_REST.pack(sample())


@seeded(300)
def test_changed_bytes_are_refused_or_are_other_values(seed: int) -> None:
    """Neither the process nor its memory is at risk, whichever bytes of the stream others change."""
    rng = random.Random(seed)
    inner = rng.random() < 0.8
    data = bytearray(plain(SAMPLE) if inner else SAMPLE)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(data))
        how = rng.randrange(4)
        if how == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            data[at : at + 8] = rng.choice((0, 1, -1, 2**31, 2**62, -(2**40))).to_bytes(8, "little", signed=True)
        elif how == 2:
            del data[at : at + rng.randrange(1, 64)]
        else:
            data[at:at] = data[: rng.randrange(64)]
    try:
        found = FACTS_AT_REST.unpack(compressed(bytes(data)) if inner else bytes(data))
    except DamagedFacts:
        return
    assert all(type(one) is ReplicaFacts for one in found)


@pytest.mark.parametrize("size", [0, 7, 8, 9, 100, -1])
def test_fewer_bytes_are_refused(size: int) -> None:
    with pytest.raises(DamagedFacts):
        FACTS_AT_REST.unpack(SAMPLE[:size])


def batch_of(array: pa.Array, cls: bytes = b"ReplicaFacts") -> bytes:
    schema = pa.schema([("row", array.type)], metadata={b"program": b"kafka-log-auditor facts", b"class": cls})
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, schema) as stream:
        stream.write_batch(pa.RecordBatch.from_arrays([array], schema=schema))
    return compressed(out.getvalue().to_pybytes())


def array_of(value: Any) -> pa.Array:
    return FACTS_AT_REST._form.encode([value])


FACTS = ReplicaFacts(None, None, "d", "t", 0)


@pytest.mark.parametrize(
    "data",
    [
        compressed(b""),
        (1 << 50).to_bytes(8, "little") + SAMPLE[8:],
        compressed(plain(SAMPLE) * 2)[:-9],
        batch_of(array_of(FACTS), b"Brief"),
        batch_of(pa.Array.from_buffers(pa.null(), 1 << 30, [None])),
        batch_of(pa.array([1])),
        batch_of(pa.array([{}])),
        batch_of(pa.array([{"log_dir": "x"}])),
        batch_of(pa.array([None, {"log_dir": "x"}])),
        batch_of(pa.array([{"__class__": "os.system"}])),
    ],
)
def test_streams_that_are_no_facts(data: bytes) -> None:
    with pytest.raises(DamagedFacts):
        FACTS_AT_REST.unpack(data)


@pytest.mark.parametrize(
    "name",
    ['["|O"]', '["V8"]', '["<U0"]', '[[["a","|O"]]]', '[[["a","<i8"],["a","<i8"]]]', '["<i8",0]', "[]",
     '["<i8",1099511627776]', "{}", '[["a"]]', '["<i8", 4]'],
)  # fmt: skip
def test_types_of_arrays_that_hold_no_numbers_or_do_not_fit(name: str) -> None:
    array = pa.StructArray.from_arrays([pa.array([b"8 bytes."], pa.large_binary())], names=[name])
    row = pa.StructArray.from_arrays([array], names=["of_any"])
    with pytest.raises(DamagedFacts):
        Codec(Shapes).unpack(batch_of(row, b"Shapes"))


def test_a_column_does_not_say_that_it_has_more_rows_than_there_can_be() -> None:
    """Equal numbers take no bytes, however many there are."""
    rows = PackedRows(ABORTED, [])
    rows.columns = {name: [Packed(1 << 40, 0, 0, 0, True, "zstd", b"")] for name in rows.columns}
    with pytest.raises(DamagedFacts):
        FACTS_AT_REST.unpack(FACTS_AT_REST.pack([dataclasses.replace(FACTS, aborted=rows)]))
    rows.columns = {name: [Packed(k, 0, 0, 0, True, "zstd", b"")] for k, name in enumerate(rows.columns)}
    with pytest.raises(DamagedFacts):
        FACTS_AT_REST.unpack(FACTS_AT_REST.pack([dataclasses.replace(FACTS, aborted=rows)]))


def test_a_stream_that_grows_a_thousandfold_when_it_is_decompressed_is_bounded() -> None:
    bomb = pa.Codec("zstd").compress(bytes(1 << 27), asbytes=True)
    assert len(bomb) < 1 << 15
    with pytest.raises(DamagedFacts, match="too large"):
        FACTS_AT_REST.unpack((1 << 27).to_bytes(8, "little") + bomb)


def test_nothing_at_rest_is_a_pickle() -> None:
    class Runs:
        def __reduce__(self) -> Any:
            return os.abort, ()

    with pytest.raises((TypeError, ValueError)):
        FACTS_AT_REST.pack([dataclasses.replace(FACTS, readings={(0, 0): {"a": Runs()}})])
