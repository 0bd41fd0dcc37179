"""Messages of magic 0 and 1: their records, and wrappers (compressed messages around other messages).

A wrapper states its last offset; the first one is inside (``AbstractLegacyRecordBatch.DeepRecordsIterator``, KIP-31).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from connectors.codec import columns as col
from connectors.codec.batch import CODEC_MASK, MIN_SIZES, OVERHEAD
from connectors.codec.columns import BatchColumns, RecordColumns
from connectors.codec.compression import Failure, decompress
from connectors.codec.crc32c import crc32
from connectors.codec.primitives import be32, be64, kernel
from connectors.limits import Limits


class Span(NamedTuple):
    """What a stretch of messages holds: how many, the first and last offset as stored, RECORD_* bits, first culprit."""

    messages: int
    first_offset: int
    last_offset: int
    flaws: int
    first_flaw: int


@kernel
def value_bounds(buf: np.ndarray, at: int, end: int) -> tuple[int, np.int64, int, np.int64]:
    """Key start and size, value start and size of the message at ``at`` that ends at ``end``; sizes -1 for null.

    The first is -1 where the lengths do not add up to the message.
    """
    key_start = at + (30 if buf[at + 16] == 1 else 22)
    key_size = be32(buf, key_start - 4)
    if key_size < -1 or key_size > end - key_start - 4:
        return -1, np.int64(-1), -1, np.int64(-1)
    value_start = key_start + max(key_size, 0) + 4
    value_size = be32(buf, value_start - 4)
    if value_size < -1 or max(value_size, 0) != end - value_start:
        return -1, np.int64(-1), -1, np.int64(-1)
    return key_start, key_size, value_start, value_size


@kernel
def scan(
    buf: np.ndarray, at: int, end: int, magic: int, row: int, out: RecordColumns
) -> tuple[int, int, int, int, int]:
    """Read the messages of ``buf[at:end]`` and return the fields of their :class:`Span`.

    With ``row`` >= 0 they also fill ``out`` from that row on, with offsets as stored and starts within ``buf``.
    ``magic`` is the wrapper's. The caller gives rows for a first scan's count.
    """
    count, first, last, flaws, culprit = 0, -1, -1, 0, -1
    while at < end:
        flaw = 0
        size = be32(buf, at + 8) if end - at >= OVERHEAD + MIN_SIZES[0] else -1
        inner = np.int64(np.int8(buf[at + 16])) if size >= MIN_SIZES[0] else 0
        if size < MIN_SIZES[1 if inner == 1 else 0] or size > end - at - OVERHEAD:
            return count, first, last, flaws | col.RECORD_LENGTH, culprit if culprit >= 0 else count
        after = at + OVERHEAD + size
        if inner != magic:
            flaw |= col.RECORD_INNER_MAGIC
        if buf[at + 17] & CODEC_MASK:
            flaw |= col.RECORD_INNER_CODEC
        if crc32(buf, at + 16, after) != np.uint32(be32(buf, at + 12)):
            flaw |= col.RECORD_INNER_CRC
        key_start, key_size, value_start, value_size = value_bounds(buf, at, after)
        if key_start < 0:
            flaw |= col.RECORD_LENGTH
        offset = be64(buf, at)
        if count > 0 and offset <= last:
            flaw |= col.RECORD_OFFSET_DELTA
        if row >= 0:
            at_row = row + count
            out.index[at_row] = count
            out.offset[at_row] = offset
            out.timestamp[at_row] = be64(buf, at + 18) if inner == 1 else -1
            out.key_size[at_row], out.value_size[at_row] = key_size, value_size
            out.key_start[at_row] = key_start if key_size >= 0 else -1
            out.value_start[at_row] = value_start if value_size >= 0 else -1
            out.header_count[at_row] = 0
            out.flaws[at_row] = flaw
        first = offset if count == 0 else first
        last = offset
        culprit = count if flaw and culprit < 0 else culprit
        flaws |= flaw
        count += 1
        at = after
    return count, first, last, flaws, culprit


def unwrap(message: np.ndarray, limits: Limits) -> np.ndarray | Failure:
    """The messages inside a wrapper (whole stored message, sizes proved), decompressed."""
    key_start, _key_size, value_start, value_size = value_bounds(message, 0, len(message))
    if key_start < 0 or value_size < 0:
        return Failure("bad_record", "the lengths of a wrapper do not add up to its size")
    magic, codec = int(message[16]), int(message[17]) & CODEC_MASK
    return decompress(codec, message[value_start : value_start + value_size], magic=magic, limits=limits)


def offset_shift(magic: int, wrapper_offset: int, last_inner: int) -> int:
    """What to add to a stored inner offset. Magic 0 stores absolute ones, magic 1 relative ones.

    A magic 1 wrapper at offset 0 begins at 0 whatever it holds: some versions of librdkafka wrote it so.
    """
    if magic == 0 or wrapper_offset == 0:
        return 0
    return wrapper_offset - last_inner


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
            span = Span(*scan(plain, 0, len(plain), int(batches.magic[row]), -1, NO_RECORDS))
            if span.messages:
                shift = offset_shift(int(batches.magic[row]), int(batches.last_offset[row]), span.last_offset)
                batches.base_offset[row] = span.first_offset + shift
                batches.record_count[row] = span.messages
                continue
            plain = Failure("bad_record", "a wrapper without a message inside")
        batches.flaws[row] |= col.FLAW_LEGACY_WRAPPER
        failures.append((int(row), plain))
    return failures


RECORD_DTYPES = tuple(np.dtype(name) for name in ("i4", "i4", "i8", "i8", "i4", "i4", "i4", "i4", "i8", "i8"))


def empty_records(rows: int = 0, payload: np.ndarray | None = None) -> RecordColumns:
    """Uninitialised columns of ``rows`` rows, over ``payload``."""
    payload = np.empty(0, np.uint8) if payload is None else payload
    return RecordColumns._make([*(np.empty(rows, dtype) for dtype in RECORD_DTYPES), payload])


NO_RECORDS = empty_records()
