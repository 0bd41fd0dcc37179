"""Batches, messages and compressed streams made for tests, written from the reference and from nothing of the product.

Also what tests do with segments: read one held in memory, and count what came of its bytes.
"""

from __future__ import annotations

import functools
import gzip
import io
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import cramjam
from kafka.record.util import calc_crc32c

from auditor.connectors.codec.segment import Chunk, read_segment

XERIAL = bytes.fromhex("82534e41505059000000000100000001")
LZ4_HEADER = bytes.fromhex("04224d18604082")  # independent blocks of 64 KiB, no sizes, no checksums
TIME = 1_700_000_000_000


def varint(value: int) -> bytes:
    """Zigzag LEB128."""
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def sized(data: bytes | None) -> bytes:
    """A varint length, -1 for null, and the bytes."""
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    delta: int,
    key: bytes | None,
    value: bytes | None,
    time: int = 0,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
) -> bytes:
    """A record of magic 2."""
    body = b"\0" + varint(time) + varint(delta) + sized(key) + sized(value) + varint(len(headers))
    return sized(body + b"".join(sized(name) + sized(content) for name, content in headers))


def batch(body: bytes, count: int, **header: Any) -> bytes:
    """A batch of magic 2 around ``body`` as stored; the header's fields by name, the others as of a plain producer."""
    fields = {
        "base_offset": 0, "leader_epoch": 0, "attributes": 0, "delta": count - 1, "base_time": TIME, "max_time": TIME,
        "producer_id": -1, "epoch": -1, "sequence": -1, "magic": 2,
    }  # fmt: skip
    assert set(header) <= set(fields)
    f = fields | header
    after = struct.pack(
        ">hiqqqhii", f["attributes"], f["delta"], f["base_time"], f["max_time"], f["producer_id"], f["epoch"],
        f["sequence"], count,
    )  # fmt: skip
    crc = calc_crc32c(after + body)
    front = struct.pack(">qiibI", f["base_offset"], 49 + len(body), f["leader_epoch"], f["magic"], crc)
    return front + after + body


@functools.cache  # the checksum of a byte takes kafka-python 0.1 µs, and many tests build the same log
def simple(base_offset: int, count: int = 3, codec: int = 0, value: bytes = b"value" * 20, **header: Any) -> bytes:
    """A batch of ``count`` like records."""
    body = b"".join(record(delta, b"k%d" % delta, value, delta) for delta in range(count))
    header = {"base_offset": base_offset, "attributes": codec, "max_time": TIME + count - 1} | header
    return batch(compress(codec, body), count, **header)


def message(
    offset: int, key: bytes | None, value: bytes | None, magic: int = 1, attributes: int = 0, time: int = TIME
) -> bytes:
    """A message of magic 0 or 1."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", time) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(
    offset: int, inner: Sequence[bytes], codec: int = 1, magic: int = 1, time: int = TIME, attributes: int = 0
) -> bytes:
    """A message around the messages ``inner``."""
    return message(offset, None, compress(codec, b"".join(inner), magic), magic, codec | attributes, time)


def compress(codec: int, plain: bytes, magic: int = 2) -> bytes:
    """``plain`` as Java clients compress it, but for the level."""
    if codec == 1:
        return gzip.compress(plain, mtime=0)
    if codec == 2:
        blocks = [bytes(cramjam.snappy.compress_raw(plain[at : at + 32768])) for at in range(0, len(plain), 32768)]
        return XERIAL + b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    if codec == 3:
        parts = [plain[at : at + 65536] for at in range(0, len(plain), 65536)]
        blocks = [bytes(cramjam.lz4.compress_block(part, store_size=False)) for part in parts]
        header = LZ4_HEADER if magic else LZ4_HEADER[:-1] + b"\x1a"  # Kafka's own mistake, kept for magic 0
        return header + b"".join(struct.pack("<I", len(block)) + block for block in blocks) + bytes(4)
    return bytes(cramjam.zstd.compress(plain)) if codec == 4 else plain


class File(io.BytesIO):
    """A file in memory that remembers how much was read at a time."""

    largest = 0

    def readinto(self, buffer: Any) -> int:
        self.largest = max(self.largest, len(buffer))
        return super().readinto(buffer)


def chunks(data: bytes, **options: Any) -> list[Chunk]:
    """All chunks of a segment in memory."""
    return list(read_segment(File(data), len(data), file="s.log", **options))


def accounted(found: Sequence[Chunk]) -> int:
    """Bytes in batches and in errors."""
    return sum(int(c.batches.size.sum()) + sum(e.length for e in c.errors) for c in found)


def reasons(found: Sequence[Chunk]) -> list[tuple[int, int, str]]:
    """Position, length and reason of each error."""
    return [(e.position, e.length, e.reason) for c in found for e in c.errors]
