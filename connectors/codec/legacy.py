"""Messages of magic 0 and 1: their records, and wrappers (compressed messages around other messages).

A wrapper states its last offset; the first one is inside (``AbstractLegacyRecordBatch.DeepRecordsIterator``, KIP-31).
"""

from __future__ import annotations

import numpy as np

from auditor.base.compiled import kernel
from auditor.base.errors import Limits
from auditor.connectors.codec import batch_columns as col
from auditor.connectors.codec.batch import CODEC_MASK, HEADER, MIN_SIZES, OVERHEAD
from auditor.connectors.codec.batch_columns import BatchColumns
from auditor.connectors.codec.compression import Failure, decompress
from auditor.connectors.codec.crc32c import crc32
from auditor.connectors.codec.primitives import be32, be64


@kernel
def value_bounds(buf: np.ndarray, at: int, end: int) -> tuple[int, int, int, int]:
    """Key start and size, value start and size of the message at ``at`` that ends at ``end``; sizes -1 for null.

    The first is -1 where the lengths do not add up to the message.
    """
    key_start = at + (30 if buf[at + 16] == 1 else 22)
    key_size = be32(buf, key_start - 4)
    if key_size < -1 or key_size > end - key_start - 4:
        return -1, -1, -1, -1
    value_start = key_start + max(key_size, 0) + 4
    value_size = be32(buf, value_start - 4)
    if value_size < -1 or max(value_size, 0) != end - value_start:
        return -1, -1, -1, -1
    return key_start, key_size, value_start, value_size


@kernel
def next_message(buf: np.ndarray, at: int, end: int, magic: int) -> tuple[int, int, int, int, int, int, int, int]:
    """The message at ``at``: index after it, offset as stored, timestamp, key and value as above, RECORD_* bits.

    The index is -1 where no message fits before ``end``. ``magic`` is the wrapper's.
    """
    size = be32(buf, at + 8) if end - at >= OVERHEAD + MIN_SIZES[0] else -1
    inner = np.int8(buf[at + 16]) if size >= MIN_SIZES[0] else 0
    if size < MIN_SIZES[1 if inner == 1 else 0] or size > end - at - OVERHEAD:
        return -1, -1, -1, -1, -1, -1, -1, col.RECORD_LENGTH
    after = at + OVERHEAD + size
    flaws = 0
    if inner != magic:
        flaws |= col.RECORD_INNER_MAGIC
    if buf[at + 17] & CODEC_MASK:
        flaws |= col.RECORD_INNER_CODEC
    if np.int64(crc32(buf, at + 16, after)) != be32(buf, at + 12) & 0xFFFFFFFF:
        flaws |= col.RECORD_INNER_CRC
    key_start, key_size, value_start, value_size = value_bounds(buf, at, after)
    if key_start < 0:
        flaws |= col.RECORD_LENGTH
    timestamp = be64(buf, at + 18) if inner == 1 else -1
    return after, be64(buf, at), timestamp, key_start, key_size, value_start, value_size, flaws


@kernel
def offset_span(buf: np.ndarray, end: int, magic: int) -> tuple[int, np.int64, np.int64]:
    """How many messages lie in ``buf[:end]``, and the first and last of their stored offsets (-1 for none)."""
    count, at, first, last = 0, 0, np.int64(-1), np.int64(-1)
    while at < end:
        at, offset, _t, _ks, _k, _vs, _v, _flaws = next_message(buf, at, end, magic)
        if at < 0:
            break
        first = offset if count == 0 else first
        last = offset
        count += 1
    return count, first, last


def compressed_part(batch: np.ndarray, magic: int) -> np.ndarray | Failure:
    """The compressed bytes of a whole stored batch or wrapper."""
    if magic == 2:
        return batch[HEADER:]
    key_start, _key_size, value_start, value_size = value_bounds(batch, 0, len(batch))
    if key_start < 0 or value_size < 0:
        return Failure("bad_record", "the lengths of a wrapper do not add up to its size")
    return batch[value_start : value_start + value_size]


def unwrap(message: np.ndarray, limits: Limits) -> np.ndarray | Failure:
    """The messages inside a whole stored wrapper, decompressed."""
    magic, codec = int(message[16]), int(message[17]) & CODEC_MASK
    stored = compressed_part(message, magic)
    return stored if isinstance(stored, Failure) else decompress(codec, stored, magic=magic, limits=limits)


@kernel
def first_offset(magic: int, wrapper_offset: int, first: int, last: int) -> int:
    """The absolute offset of a wrapper's first message, from the stored ones of the first and the last.

    Magic 0 stores absolute offsets, magic 1 relative ones. A magic 1 wrapper at offset 0 begins at 0 whatever it holds:
    some versions of librdkafka wrote it so. Compiled so that absurd offsets wrap as Java's do.
    """
    if magic == 0 or wrapper_offset == 0:
        return first
    return wrapper_offset - last + first


def open_wrappers(buf: np.ndarray, origin: int, batches: BatchColumns, limits: Limits) -> list[tuple[int, Failure]]:
    """Give each wrapper among ``batches`` its first offset and record count; return rows that could not be opened.

    ``buf`` holds the stored bytes, ``origin`` is the file position of ``buf[0]``. Cost: decompression of each wrapper.
    """
    failures: list[tuple[int, Failure]] = []
    codecs = batches.attributes & CODEC_MASK
    for row in np.flatnonzero((batches.magic < 2) & (codecs > 0)):
        start = int(batches.position[row]) - origin
        plain = unwrap(buf[start : start + int(batches.size[row])], limits)
        if not isinstance(plain, Failure):
            count, first, last = offset_span(plain, len(plain), int(batches.magic[row]))
            if count:
                wrapper = int(batches.last_offset[row])
                batches.base_offset[row] = first_offset(int(batches.magic[row]), wrapper, first, last)
                batches.record_count[row] = count
                continue
            plain = Failure("bad_record", "a wrapper without a message inside")
        batches.flaws[row] |= col.FLAW_LEGACY_WRAPPER
        failures.append((int(row), plain))
    return failures
