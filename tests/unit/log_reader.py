"""A second reader of segments for tests of the records inside: uncompressed ones only, written from the reference.

It shares nothing with the product's own, so that one cannot hide the other's mistake.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Read(NamedTuple):
    position: int
    size: int
    is_control: bool
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def read_log(path: Path) -> Iterator[Read]:
    data, position = path.read_bytes(), 0
    while position < len(data):
        base, length = struct.unpack_from(">qi", data, position)
        end = position + 12 + length
        assert length > 0
        assert end <= len(data)
        read = _batch if data[position + 16] == 2 else _message
        yield from read(data, position, end, base)
        position = end


def read_partition(folder: Path, suffix: str = ".log") -> Iterator[Read]:
    for path in sorted(folder.glob("*" + suffix)):
        yield from read_log(path)


def _message(data: bytes, position: int, end: int, offset: int) -> Iterator[Read]:
    magic, attributes = data[position + 16], data[position + 17]
    assert attributes & 7 == 0
    timestamp = struct.unpack_from(">q", data, position + 18)[0] if magic else -1
    at = position + (26 if magic else 18)
    (size,) = struct.unpack_from(">i", data, at)
    key = None if size < 0 else data[at + 4 : at + 4 + size]
    at += 4 + max(size, 0)
    (size,) = struct.unpack_from(">i", data, at)
    value = None if size < 0 else data[at + 4 : at + 4 + size]
    assert at + 4 + max(size, 0) == end
    yield Read(position, end - position, False, offset, timestamp, key, value)


def _batch(data: bytes, position: int, end: int, base: int) -> Iterator[Read]:
    (attributes,) = struct.unpack_from(">h", data, position + 21)
    base_time, max_time = struct.unpack_from(">qq", data, position + 27)
    (count,) = struct.unpack_from(">i", data, position + 57)
    assert attributes & 7 == 0
    at = position + 61
    for _ in range(count):
        _, at = _varint(data, at)
        time_delta, at = _varint(data, at + 1)
        offset_delta, at = _varint(data, at)
        key, at = _sized(data, at)
        value, at = _sized(data, at)
        headers, at = _varint(data, at)
        assert headers == 0
        time = max_time if attributes & 8 else base_time + time_delta
        control = bool(attributes & 0x20)
        yield Read(position, end - position, control, base + offset_delta, time, key, value)
    assert at == end


def _sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
