"""Bounded decompression of record bodies: gzip, snappy, lz4 and zstd as Kafka frames them.

Every codec writes into a buffer of the caller's and never past it, so that memory is bounded whatever a stream claims.
Sources: ``org.apache.kafka.common.compress``; snappy-java's ``SnappyInputStream``; KIP-110 (zstd), KIP-57 (lz4).
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

import cramjam
import numpy as np
from xxhash import xxh32_intdigest

from auditor.base.errors import DEFAULT_LIMITS, Limits

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

XERIAL_MAGIC = bytes.fromhex("82534e4150505900")
XERIAL_HEADER = 16  # magic, int32 version, int32 oldest compatible version
LZ4_MAGIC = 0x184D2204
LZ4_HEADER = 15  # bytes, 8 of them the content size, which few write
LZ4_CONTENT_SIZE = 0x08
LZ4_RAW_BLOCK = 0x80000000
OUT_OF_ROOM = "failed to write whole buffer"  # what cramjam says when the output does not fit


class Failure(NamedTuple):
    """Why a stream was not decompressed: ``bad_codec``, ``bad_compression``, ``bomb_limit``, or ``limit`` if the file's
    streams became too large together."""

    reason: str
    detail: str


def decompress(
    codec: int, data: np.ndarray, *, magic: int = 2, limits: Limits = DEFAULT_LIMITS
) -> np.ndarray | Failure:
    """Decompress ``data`` (uint8) to at most ``limits.decompressed_cap`` bytes, in a new array.

    ``codec`` is the number in the batch's attributes, ``magic`` the batch's. The array is as long as the plain bytes;
    memory is touched only as far as it is written.
    """
    out = np.empty(limits.decompressed_cap(len(data)), np.uint8)
    size = counted(decompress_into(codec, data, out, magic=magic), len(data), limits)
    return size if isinstance(size, Failure) else out[:size]


def counted(size: int | Failure, stored: int, limits: Limits) -> int | Failure:
    """Add a decompressed size to the totals of ``limits``; make ``bomb_limit`` a ``limit`` if the totals caused it."""
    if not isinstance(size, Failure):
        limits.note_made(stored, size)
    elif size.reason == "bomb_limit" and limits.made is not None and limits.is_used_up(stored):
        return Failure("limit", f"{limits.made.stored} compressed bytes before it became {limits.made.plain}")
    return size


def decompress_into(codec: int, data: np.ndarray, out: np.ndarray, *, magic: int = 2) -> int | Failure:
    """Decompress ``data`` into ``out``; return the number of bytes written.

    ``bomb_limit`` means that ``out`` is too small; its content is then undefined.
    """
    try:
        if codec == ZSTD:
            return int(cramjam.zstd.decompress_into(data.data, out.data))
        if codec == GZIP:
            return int(cramjam.gzip.decompress_into(data.data, out.data))
        if codec == SNAPPY:
            return _snappy(data, out)
        if codec == LZ4:
            return _lz4(data, out, check_header=magic > 0)
        if codec == NONE:
            return _copy(data, out)
    except cramjam.DecompressionError as error:
        if OUT_OF_ROOM in str(error):
            return _too_large(out)
        return Failure("bad_compression", f"{NAMES[codec]}: {error}")
    return Failure("bad_codec", f"compression codec {codec} does not exist")


def _too_large(out: np.ndarray) -> Failure:
    return Failure("bomb_limit", f"more than {len(out)} bytes after decompression")


def _copy(data: np.ndarray, out: np.ndarray) -> int | Failure:
    if len(data) > len(out):
        return _too_large(out)
    out[: len(data)] = data
    return len(data)


def _snappy(data: np.ndarray, out: np.ndarray) -> int | Failure:
    # A xerial stream (snappy-java), or one bare block if its magic is missing.
    stored = data.data
    if bytes(stored[:8]) != XERIAL_MAGIC:
        return _snappy_block(stored, out)
    position, written = 0, 0
    while position + 4 <= len(stored):
        if bytes(stored[position : position + 8]) == XERIAL_MAGIC:  # streams may follow each other
            if position + XERIAL_HEADER > len(stored) or struct.unpack_from(">i", stored, position + 8)[0] < 1:
                return Failure("bad_compression", "snappy: an incomplete header or one of version 0")
            position += XERIAL_HEADER
            continue
        (size,) = struct.unpack_from(">i", stored, position)
        position += 4
        if size < 0 or size > len(stored) - position:
            return Failure(
                "bad_compression", f"snappy: a chunk of {size} bytes where {len(stored) - position} are left"
            )
        grown = _snappy_block(stored[position : position + size], out[written:])
        if isinstance(grown, Failure):
            return grown
        position += size
        written += grown
    return written


def _snappy_block(block: memoryview, out: np.ndarray) -> int | Failure:
    if cramjam.snappy.decompress_raw_len(block) > len(out):
        return _too_large(out)
    return int(cramjam.snappy.decompress_raw_into(block, out.data))


class _Lz4Frame(NamedTuple):
    """From a frame's header: the start of its blocks, their largest plain size, and whether they have checksums."""

    start: int
    max_block: int
    checksums: bool


@lru_cache(maxsize=64)  # a producer's frames all begin alike
def _lz4_header(head: bytes, check_header: bool) -> _Lz4Frame | Failure:
    # With Kafka's restrictions: version 1, independent blocks, no dictionary (KafkaLZ4BlockInputStream).
    if len(head) < 7 or struct.unpack_from("<I", head)[0] != LZ4_MAGIC:
        return Failure("bad_compression", "lz4: no frame")
    flags, sizes = head[4], head[5]
    if flags >> 6 != 1 or flags & 0x03 or sizes & 0x8F or sizes >> 4 < 4:
        return Failure("bad_compression", f"lz4: frame descriptor {flags:02x} {sizes:02x} is not supported")
    if not flags & 0x20:
        return Failure("bad_compression", "lz4: blocks depend on each other")
    end = 14 if flags & LZ4_CONTENT_SIZE else 6
    if len(head) <= end:
        return Failure("bad_compression", "lz4: the header is cut")
    if check_header and (xxh32_intdigest(head[4:end]) >> 8) & 0xFF != head[end]:
        return Failure("bad_compression", "lz4: checksum mismatch in the header")
    return _Lz4Frame(end + 1, 1 << (2 * (sizes >> 4) + 8), bool(flags & 0x10))


def _lz4(data: np.ndarray, out: np.ndarray, *, check_header: bool) -> int | Failure:
    # Only the first frame; Kafka ignores what follows it.
    head = data[:LZ4_HEADER].tobytes()
    sized = len(head) > 4 and head[4] & LZ4_CONTENT_SIZE
    frame = _lz4_header(head if sized else head[: LZ4_HEADER - 8], check_header)
    if isinstance(frame, Failure):
        return frame
    position, written = frame.start, 0
    while position + 4 <= len(data):
        (word,) = struct.unpack_from("<I", data.data, position)
        size = word & ~LZ4_RAW_BLOCK
        position += 4
        if size == 0:
            return written
        after = position + size + 4 * frame.checksums
        if size > frame.max_block or after > len(data):
            return Failure("bad_compression", f"lz4: a block of {size} bytes where {len(data) - position} are left")
        if frame.checksums and struct.unpack_from("<I", data.data, position + size)[0] != xxh32_intdigest(
            data.data[position : position + size]
        ):
            return Failure("bad_compression", "lz4: checksum mismatch in a block")
        grown = _lz4_block(data[position : position + size], out[written:], frame.max_block, raw=word != size)
        if isinstance(grown, Failure):
            return grown
        written += grown
        position = after
    return Failure("bad_compression", "lz4: the frame has no end mark")


def _lz4_block(block: np.ndarray, out: np.ndarray, max_block: int, *, raw: bool) -> int | Failure:
    if raw:
        return _copy(block, out)
    if len(out) >= max_block:
        return int(cramjam.lz4.decompress_block_into(block.data, out[:max_block].data))
    room = np.empty(max_block, np.uint8)  # little is left: a block that is too long must not look like a broken one
    size = int(cramjam.lz4.decompress_block_into(block.data, room.data))
    if size > len(out):
        return _too_large(out)
    out[:size] = room[:size]
    return size
