"""Batches of magic 0, 1 and 2: the walk over a buffer, and the columns that it fills."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from auditor.base.compiled import kernel
from auditor.base.errors import MIB, MOST_OFFSET, OUT_OF_RANGE_MS, Limits
from auditor.connectors.codec.compression import NONE, Failure, counted, decompress, decompress_into
from auditor.connectors.codec.primitives import be16, be32, be64, crc32, crc32c, varint, varlong

# Columns of batches and records: numpy arrays of one length, one row per batch or record. Kernels fill them, Arrow
# tables are built from them and the replay reads them, without a copy.

# Bits of BatchColumns.flaws: what is wrong with a batch by its header and control record.
FLAW_COUNT_ABOVE_SPAN = 1 << 0  # declared records > last_offset_delta + 1
FLAW_COUNT_BELOW_SPAN = 1 << 1  # declared records < last_offset_delta + 1: legal after cleaning only
FLAW_NEGATIVE_SPAN = 1 << 2  # last_offset_delta < 0 or declared records < 0
FLAW_CODEC_UNKNOWN = 1 << 3  # codec bits 5..7
FLAW_CONTROL_NO_PRODUCER = 1 << 4  # control batch without producer id
FLAW_CONTROL_SEQUENCE = 1 << 5  # control batch with base sequence >= 0
FLAW_CONTROL_RECORDS = 1 << 6  # control batch with more than one record
FLAW_CONTROL_NOT_TRANSACTIONAL = 1 << 7  # control batch without the transactional bit
FLAW_CONTROL_TYPE = 1 << 8  # control type other than ABORT (0) and COMMIT (1)
FLAW_CONTROL_KEY = 1 << 9  # control key shorter than 4 bytes, null, or of a negative version
FLAW_CONTROL_VALUE = 1 << 10  # end-marker value shorter than 6 bytes or null
FLAW_CONTROL_COMPRESSED = 1 << 11  # control batch with a codec
FLAW_NO_PRODUCER_FIELDS = 1 << 12  # producer id < 0 with epoch >= 0, sequence >= 0 or the transactional bit
FLAW_PRODUCER_EPOCH = 1 << 13  # producer id >= 0 with epoch < 0
FLAW_PRODUCER_SEQUENCE = 1 << 14  # data batch with producer id >= 0 and base sequence < 0
FLAW_CRC = 1 << 15  # stored checksum differs from the computed one
FLAW_LEGACY_WRAPPER = 1 << 16  # magic 0/1 wrapper that could not be opened, so base_offset is its last offset
UNVERIFIED = 1 << 17  # no flaw: the checksum was not verified, as in a copy without payload

# Bits of RecordSummary.flaws: what is wrong with the records of a batch.
RECORD_COUNT_MISMATCH = 1 << 0  # the number of records differs from the declared one
RECORD_BYTES_LEFT = 1 << 1  # bytes left after the last declared record
RECORD_UNDECOMPRESSABLE = 1 << 2  # broken stream, or over a limit
RECORD_OFFSET_DELTA = 1 << 3  # deltas not strictly increasing, or outside [0, last_offset_delta]
RECORD_LENGTH = 1 << 4  # negative or overrunning length, or the record does not end at its length
RECORD_HEADER_KEY_NULL = 1 << 5
RECORD_INNER_MAGIC = 1 << 6  # magic 0/1: inner record of another magic
RECORD_INNER_CRC = 1 << 7  # magic 0/1: inner checksum wrong
RECORD_INNER_CODEC = 1 << 8  # magic 0/1: inner record claims a codec
RECORD_WRAPPER_OFFSET = 1 << 9  # magic 1: wrapper offset below the last inner offset and not 0


class BatchColumns(NamedTuple):
    """Batches of one file in file order. Magic 0/1: one row per message or wrapper, absent fields -1.

    ``position`` and ``size`` are bytes, size with the 12 bytes of log overhead. ``last_offset`` is as stated in the
    header; ``base_offset`` of a legacy wrapper is its first inner record's offset (the wrapper is decompressed for it).
    ``record_count`` is as declared (legacy: 1, or the number of inner records). ``max_timestamp`` of LogAppendTime
    batches is the append time; for legacy messages it is their timestamp (-1 for magic 0), and base_timestamp equals
    it. ``control_type`` is -1 unless the batch is a control batch with a record (0 ABORT, 1 COMMIT, others as stored);
    ``coordinator_epoch`` is -1 unless it is an end marker. ``attributes`` are the raw 16 (legacy: 8) bits.
    """

    position: np.ndarray  # int64
    size: np.ndarray  # int32
    magic: np.ndarray  # int8
    attributes: np.ndarray  # int16
    base_offset: np.ndarray  # int64
    last_offset: np.ndarray  # int64
    record_count: np.ndarray  # int32
    partition_leader_epoch: np.ndarray  # int32
    crc: np.ndarray  # uint32
    base_timestamp: np.ndarray  # int64 ms
    max_timestamp: np.ndarray  # int64 ms
    producer_id: np.ndarray  # int64
    producer_epoch: np.ndarray  # int16
    base_sequence: np.ndarray  # int32
    control_type: np.ndarray  # int16
    coordinator_epoch: np.ndarray  # int32
    flaws: np.ndarray  # int32, bits FLAW_*

    def take(self, rows: slice | np.ndarray) -> BatchColumns:
        """The chosen rows, in their order."""
        return BatchColumns(*(column[rows] for column in self))


BATCH_DTYPES = tuple(
    np.dtype(t)
    for t in ("i8", "i4", "i1", "i2", "i8", "i8", "i4", "i4", "u4", "i8", "i8", "i8", "i2", "i4", "i2", "i4", "i4")
)


class RecordSummary(NamedTuple):
    """Summary of all records of each batch: one row per batch, aligned with its BatchColumns.

    Timestamps are ms as a consumer would see them under CreateTime (-1 without records); ``present`` counts the records
    that are present; indexes are positions in the batch, -1 for none; ``plain_size`` is bytes after decompression.
    """

    present: np.ndarray  # int32
    first_timestamp: np.ndarray  # int64
    min_timestamp: np.ndarray  # int64
    max_timestamp: np.ndarray  # int64
    null_keys: np.ndarray  # int32
    first_null_key: np.ndarray  # int32
    flaws: np.ndarray  # int32, bits RECORD_*
    first_flaw: np.ndarray  # int32
    plain_size: np.ndarray  # int64

    def take(self, rows: slice | np.ndarray) -> RecordSummary:
        """The chosen rows, in their order."""
        return RecordSummary(*(column[rows] for column in self))


class RecordColumns(NamedTuple):
    """Single records: one row per record, in log order. Sizes are bytes, -1 for null.

    ``batch`` is the row of its batch in the BatchColumns beside it, ``index`` its position in the batch. ``sequence``
    is the producer's, -1 if the batch has none. ``key_start`` and ``value_start`` (-1 for null) are indexes of
    ``payload``; so is ``header_start``, of the number of headers (-1 for magic 0/1). All three are -1 and ``payload``
    is empty unless payload was requested.
    """

    batch: np.ndarray  # int32
    index: np.ndarray  # type: ignore[assignment]  # int32; hides tuple.index, which is not used
    offset: np.ndarray  # int64
    timestamp: np.ndarray  # int64 ms
    key_size: np.ndarray  # int32
    value_size: np.ndarray  # int32
    header_count: np.ndarray  # int32
    flaws: np.ndarray  # int32, bits RECORD_*
    sequence: np.ndarray  # int32
    key_start: np.ndarray  # int64
    value_start: np.ndarray  # int64
    header_start: np.ndarray  # int64
    payload: np.ndarray  # uint8


_RECORD_DTYPES = ("i4", "i4", "i8", "i8", "i4", "i4", "i4", "i4", "i4")
_START_DTYPES = ("i8", "i8", "i8")  # of the indexes of payload


def empty_records(rows: int = 0, payload: bool = False) -> RecordColumns:
    """Uninitialised columns of ``rows`` rows; without ``payload``, the columns that refer to it are empty."""
    columns = [np.empty(rows, dtype) for dtype in _RECORD_DTYPES]
    columns += [np.empty(rows if payload else 0, dtype) for dtype in _START_DTYPES]
    return RecordColumns._make([*columns, np.empty(0, np.uint8)])


# The walk over a buffer of batches: magic 0, 1 and 2 in any mix, headers and control records into columns.
#
# Record batch: KIP-98 and ``DefaultRecordBatch``; messages: ``LegacyRecord``; end markers: ``EndTransactionMarker``.
# A wrapper of magic 0 or 1 keeps its last offset here; :func:`open_wrappers` opens it.

OVERHEAD = 12  # offset and size, which the size does not count
PREFIX = 17  # bytes that show a batch's size and magic
HEADER = 61  # of magic 2
MIN_SIZES = (14, 22, 49)  # smallest size field by magic

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40  # KIP-534: base_timestamp is the horizon
MAX_CODEC = (3, 3, 4)  # highest compression codec by magic: zstd is for magic 2 alone

# The columns of a walk's rows: those of BatchColumns in their order, all int64, one batch per line, since a reader of a
# batch needs many of them. One array, since compiled functions count references to each array taken from a tuple.
(
    POSITION,
    SIZE,
    MAGIC,
    ATTRIBUTES,
    BASE_OFFSET,
    LAST_OFFSET,
    RECORD_COUNT,
    PARTITION_LEADER_EPOCH,
    CRC,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    PRODUCER_EPOCH,
    BASE_SEQUENCE,
    CONTROL_TYPE,
    COORDINATOR_EPOCH,
    FLAWS,
) = range(len(BatchColumns._fields))

ALL = -2  # in place of a trusted position: batches with a CRC mismatch keep their length everywhere

# Why a walk stopped.
MORE = 0  # the buffer ends before the batch does
FULL = 1  # no free row
BAD_SIZE = 2
BAD_MAGIC = 3
OVER_LIMIT = 4
SUSPECT = 5  # a CRC mismatch, and the length does not lead to a following batch
CLOSED = 8  # added if a batch must be opened to fill its row: wrappers, compressed markers


@kernel
def _fill_legacy(buf: np.ndarray, start: int, total: int, magic: int, check: bool, row: int, out: np.ndarray) -> int:
    # Returns the FLAW_* bits.
    attributes = np.int64(buf[start + 17])
    timestamp = be64(buf, start + 18) if magic == 1 else -1
    crc = np.uint32(be32(buf, start + 12))
    flaws = 0
    if attributes & CODEC_MASK > MAX_CODEC[0]:
        flaws |= FLAW_CODEC_UNKNOWN
    if check and crc32(buf, start + 16, start + total) != crc:
        flaws |= FLAW_CRC
    out[row, ATTRIBUTES] = attributes
    out[row, BASE_OFFSET] = be64(buf, start)
    out[row, LAST_OFFSET] = out[row, BASE_OFFSET]
    out[row, RECORD_COUNT] = 1
    out[row, PARTITION_LEADER_EPOCH] = -1
    out[row, CRC] = crc
    out[row, BASE_TIMESTAMP] = timestamp
    out[row, MAX_TIMESTAMP] = timestamp
    out[row, PRODUCER_ID] = -1
    out[row, PRODUCER_EPOCH] = -1
    out[row, BASE_SEQUENCE] = -1
    out[row, CONTROL_TYPE] = -1
    out[row, COORDINATOR_EPOCH] = -1
    out[row, FLAWS] = flaws
    return flaws


@kernel
def _header_flaws(attributes: int, delta: int, count: int, producer: int, epoch: int, sequence: int) -> int:
    # The FLAW_* bits that the header alone shows.
    flaws = 0
    if attributes & CODEC_MASK > MAX_CODEC[2]:
        flaws |= FLAW_CODEC_UNKNOWN
    if delta < 0 or count < 0:
        flaws |= FLAW_NEGATIVE_SPAN
    elif count > delta + 1:
        flaws |= FLAW_COUNT_ABOVE_SPAN
    elif count < delta + 1:
        flaws |= FLAW_COUNT_BELOW_SPAN
    if producer < 0:
        if epoch >= 0 or sequence >= 0 or attributes & TRANSACTIONAL:
            flaws |= FLAW_NO_PRODUCER_FIELDS
    elif epoch < 0:
        flaws |= FLAW_PRODUCER_EPOCH
    if not attributes & CONTROL:
        if producer >= 0 and sequence < 0:
            flaws |= FLAW_PRODUCER_SEQUENCE
        return flaws
    if producer < 0:
        flaws |= FLAW_CONTROL_NO_PRODUCER
    if sequence >= 0:
        flaws |= FLAW_CONTROL_SEQUENCE
    if count > 1:
        flaws |= FLAW_CONTROL_RECORDS
    if not attributes & TRANSACTIONAL:
        flaws |= FLAW_CONTROL_NOT_TRANSACTIONAL
    if attributes & CODEC_MASK:
        flaws |= FLAW_CONTROL_COMPRESSED
    return flaws


@kernel
def control_record(buf: np.ndarray, position: int, end: int) -> tuple[int, int, int]:
    """Type, coordinator epoch and FLAW_* bits of the control record at ``position``, after decompression, that ends by
    ``end``.

    Type and epoch are -1 if they cannot be read; the epoch also if the type is not that of an end marker.
    """
    _length, position = varint(buf, position, end)
    if position < 0 or position >= end:
        return -1, -1, FLAW_CONTROL_KEY
    _timestamp, position = varlong(buf, position + 1, end)  # after one byte of attributes
    if position >= 0:
        _delta, position = varint(buf, position, end)
    if position < 0:
        return -1, -1, FLAW_CONTROL_KEY
    key_size, position = varint(buf, position, end)
    if position < 0 or key_size < 4 or key_size > end - position or be16(buf, position) < 0:
        return -1, -1, FLAW_CONTROL_KEY
    kind = be16(buf, position + 2)
    if kind != 0 and kind != 1:
        return kind, -1, FLAW_CONTROL_TYPE
    value_size, position = varint(buf, position + key_size, end)
    if position < 0 or value_size < 6 or value_size > end - position or be16(buf, position) < 0:
        return kind, -1, FLAW_CONTROL_VALUE
    return kind, be32(buf, position + 2), 0


@kernel
def _fill_batch(buf: np.ndarray, start: int, total: int, check: bool, row: int, out: np.ndarray) -> int:
    # Returns the FLAW_* bits.
    attributes = be16(buf, start + 21)
    delta = be32(buf, start + 23)
    producer = be64(buf, start + 43)
    epoch = be16(buf, start + 51)
    sequence = be32(buf, start + 53)
    count = be32(buf, start + 57)
    crc = np.uint32(be32(buf, start + 17))
    flaws = _header_flaws(attributes, delta, count, producer, epoch, sequence)
    kind, coordinator_epoch = -1, -1
    if attributes & CONTROL and count > 0 and not attributes & CODEC_MASK:
        kind, coordinator_epoch, more = control_record(buf, start + HEADER, start + total)
        flaws |= more
    if check and crc32c(buf, start + 21, start + total) != crc:
        flaws |= FLAW_CRC
    out[row, ATTRIBUTES] = attributes
    out[row, BASE_OFFSET] = be64(buf, start)
    out[row, LAST_OFFSET] = out[row, BASE_OFFSET] + delta
    out[row, RECORD_COUNT] = count
    out[row, PARTITION_LEADER_EPOCH] = be32(buf, start + 12)
    out[row, CRC] = crc
    out[row, BASE_TIMESTAMP] = be64(buf, start + 27)
    out[row, MAX_TIMESTAMP] = be64(buf, start + 35)
    out[row, PRODUCER_ID] = producer
    out[row, PRODUCER_EPOCH] = epoch
    out[row, BASE_SEQUENCE] = sequence
    out[row, CONTROL_TYPE] = kind
    out[row, COORDINATOR_EPOCH] = coordinator_epoch
    out[row, FLAWS] = flaws
    return flaws


@kernel
def _fill(buf: np.ndarray, start: int, total: int, magic: int, check: bool, row: int, out: np.ndarray) -> int:
    if magic == 2:
        return int(_fill_batch(buf, start, total, check, row, out))
    return int(_fill_legacy(buf, start, total, magic, check, row, out))


@kernel
def header_row(buf: np.ndarray, total: int, position: int, out: np.ndarray) -> int:
    """Fill ``out``, a row, from the header of a batch of magic 2; return its FLAW_* bits. Its checksum is not verified.

    ``buf`` has the first bytes of the batch of ``total`` bytes, all of them if it is a control batch.
    """
    rows = out.reshape(1, len(out))
    out[POSITION], out[SIZE], out[MAGIC] = position, total, 2
    if be16(buf, 21) & CONTROL and len(buf) < total:
        return FLAW_CONTROL_KEY
    return int(_fill_batch(buf, 0, min(total, len(buf)), False, 0, rows))


@kernel
def is_sound(buf: np.ndarray, start: int, total: int, magic: int) -> bool:
    """Whether the checksum of the batch or message of ``total`` bytes at ``start`` is correct. ``buf`` has all its
    bytes."""
    if magic == 2:
        return crc32c(buf, start + 21, start + total) == np.uint32(be32(buf, start + 17))
    return crc32(buf, start + 16, start + total) == np.uint32(be32(buf, start + 12))


@kernel
def _leads_on(buf: np.ndarray, after: int, end: int, last: int) -> bool:
    # Whether the offset at index after continues a batch that ends with offset last.
    return end - after >= OVERHEAD and be64(buf, after) == last + 1


@kernel
def walk(
    buf: np.ndarray,
    cursor: int,
    end: int,
    position: int,
    until: int,
    limit: int,
    check: bool,
    row: int,
    out: np.ndarray,
    trusted: int,
) -> tuple[int, int, int]:
    """Fill ``out`` from ``row`` on with the batches of ``buf[cursor:end]``.

    Returns the next row, the index reached, and why the walk stopped, with CLOSED. ``out`` is of :func:`walk_rows`.
    ``position`` is the byte in the file of ``buf[0]``; batches that start at or after position ``until`` are not read.
    ``limit`` is the largest batch in bytes. ``check``: verify all checksums; else only those of batches whose length
    does not lead to a following batch, so that the walk is the same either way. A batch of magic 2 with a CRC mismatch
    becomes a row if its length leads to the next batch, one of any magic if it starts at position ``trusted``
    (:data:`ALL`: anywhere). Cost: one pass over the bytes with ``check``, else over the headers.
    """
    closed = 0
    while position + cursor < until:
        if end - cursor < PREFIX:
            return row, cursor, MORE | closed
        size = be32(buf, cursor + 8)
        if size < MIN_SIZES[0]:
            return row, cursor, BAD_SIZE | closed
        magic = np.int64(np.int8(buf[cursor + 16]))
        if magic < 0 or magic > 2:
            return row, cursor, BAD_MAGIC | closed
        if size < MIN_SIZES[magic]:
            return row, cursor, BAD_SIZE | closed
        total = size + OVERHEAD
        if total > limit:
            return row, cursor, OVER_LIMIT | closed
        if total > end - cursor:
            return row, cursor, MORE | closed
        if row >= len(out):
            return row, cursor, FULL | closed
        out[row, POSITION] = position + cursor
        out[row, SIZE] = total
        out[row, MAGIC] = magic
        flaws = _fill(buf, cursor, total, magic, check, row, out)
        if (
            (not check or flaws & FLAW_CRC)
            and position + cursor != trusted
            and trusted != ALL
            and not (magic == 2 and _leads_on(buf, cursor + total, end, out[row, LAST_OFFSET]))
            and (check or not is_sound(buf, cursor, total, magic))
        ):
            return row, cursor, SUSPECT | closed
        if magic < 2 or flaws & FLAW_CONTROL_COMPRESSED:
            closed = CLOSED
        row += 1
        cursor += total
    return row, cursor, MORE | closed


def walk_rows(count: int) -> np.ndarray:
    """Uninitialised rows for a walk."""
    return np.empty((count, len(BATCH_DTYPES)), np.int64)


@kernel
def _bounded(number: int, most: int) -> int:
    return min(max(number, -most), most)


@kernel
def bound_numbers(rows: np.ndarray) -> None:
    """Bound the offsets and times of a walk's rows in place (:func:`auditor.base.errors.bounded`)."""
    for row in range(len(rows)):
        if rows[row, BASE_OFFSET] > MOST_OFFSET:
            rows[row, LAST_OFFSET] = MOST_OFFSET  # the sum of base offset and delta may have wrapped
        rows[row, BASE_OFFSET] = _bounded(rows[row, BASE_OFFSET], MOST_OFFSET)
        rows[row, LAST_OFFSET] = _bounded(rows[row, LAST_OFFSET], MOST_OFFSET)
        rows[row, BASE_TIMESTAMP] = _bounded(rows[row, BASE_TIMESTAMP], OUT_OF_RANGE_MS)
        rows[row, MAX_TIMESTAMP] = _bounded(rows[row, MAX_TIMESTAMP], OUT_OF_RANGE_MS)


def columns_of(filled: np.ndarray) -> BatchColumns:
    """Copy a walk's rows into columns of the types of BatchColumns."""
    return BatchColumns(*(column.astype(dtype) for column, dtype in zip(filled.T, BATCH_DTYPES, strict=True)))


def overflowed(batches: BatchColumns) -> np.ndarray:
    """Which batches end beyond 64 bits, so that ``last_offset`` has wrapped."""
    return (batches.last_offset < batches.base_offset) != (batches.last_offset - batches.base_offset < 0)


def rows_of(columns: BatchColumns) -> np.ndarray:
    """Copy columns into a walk's rows, the inverse of :func:`columns_of`."""
    rows = walk_rows(len(columns.position))
    for column, values in zip(rows.T, columns, strict=True):
        column[:] = values
    return rows


# Messages of magic 0 and 1, and wrappers (compressed messages around other messages).
#
# A wrapper states its last offset; the first one is inside (``AbstractLegacyRecordBatch.DeepRecordsIterator``, KIP-31).


@kernel
def value_bounds(buf: np.ndarray, position: int, end: int) -> tuple[int, int, int, int]:
    """Key start and size, value start and size of the message from ``position`` to ``end``; sizes -1 for null.

    The key start is -1 if the lengths do not add up to the message.
    """
    key_start = position + (30 if buf[position + 16] == 1 else 22)
    key_size = be32(buf, key_start - 4)
    if key_size < -1 or key_size > end - key_start - 4:
        return -1, -1, -1, -1
    value_start = key_start + max(key_size, 0) + 4
    value_size = be32(buf, value_start - 4)
    if value_size < -1 or max(value_size, 0) != end - value_start:
        return -1, -1, -1, -1
    return key_start, key_size, value_start, value_size


@kernel
def next_message(buf: np.ndarray, position: int, end: int, magic: int) -> tuple[int, int, int, int, int, int, int, int]:
    """The message at ``position``: index after it, offset as stored, timestamp, key and value start and size, RECORD_*
    bits.

    The index is -1 if no message fits before ``end``. ``magic`` is the wrapper's.
    """
    size = be32(buf, position + 8) if end - position >= OVERHEAD + MIN_SIZES[0] else -1
    inner = np.int8(buf[position + 16]) if size >= MIN_SIZES[0] else 0
    if size < MIN_SIZES[1 if inner == 1 else 0] or size > end - position - OVERHEAD:
        return -1, -1, -1, -1, -1, -1, -1, RECORD_LENGTH
    after = position + OVERHEAD + size
    flaws = 0
    if inner != magic:
        flaws |= RECORD_INNER_MAGIC
    if buf[position + 17] & CODEC_MASK:
        flaws |= RECORD_INNER_CODEC
    if np.int64(crc32(buf, position + 16, after)) != be32(buf, position + 12) & 0xFFFFFFFF:
        flaws |= RECORD_INNER_CRC
    key_start, key_size, value_start, value_size = value_bounds(buf, position, after)
    if key_start < 0:
        flaws |= RECORD_LENGTH
    timestamp = be64(buf, position + 18) if inner == 1 else -1
    return after, be64(buf, position), timestamp, key_start, key_size, value_start, value_size, flaws


@kernel
def offset_span(buf: np.ndarray, end: int, magic: int) -> tuple[int, np.int64, np.int64]:
    """The number of messages in ``buf[:end]``, and the first and last of their stored offsets (-1 for none)."""
    count, position, first, last = 0, 0, np.int64(-1), np.int64(-1)
    while position < end:
        position, offset, _t, _ks, _k, _vs, _v, _flaws = next_message(buf, position, end, magic)
        if position < 0:
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
    """Decompress the messages inside a whole stored wrapper."""
    magic, codec = int(message[16]), int(message[17]) & CODEC_MASK
    stored = compressed_part(message, magic)
    return stored if isinstance(stored, Failure) else decompress(codec, stored, magic=magic, limits=limits)


@kernel
def first_offset(magic: int, wrapper_offset: int, first: int, last: int) -> int:
    """The absolute offset of a wrapper's first message, from the stored offsets of the first and the last.

    Magic 0 stores absolute offsets, magic 1 relative ones. A magic 1 wrapper at offset 0 starts at 0 whatever it
    contains: some versions of librdkafka wrote it so. Compiled so that absurd offsets wrap as Java's do.
    """
    if magic == 0 or wrapper_offset == 0:
        return first
    return wrapper_offset - last + first


def open_wrappers(buf: np.ndarray, origin: int, batches: BatchColumns, limits: Limits) -> list[tuple[int, Failure]]:
    """Set the first offset and record count of each wrapper; return the rows that could not be opened.

    ``buf`` has the stored bytes, ``origin`` is the file position of ``buf[0]``. Cost: decompression of each wrapper.
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
        batches.flaws[row] |= FLAW_LEGACY_WRAPPER
        failures.append((int(row), plain))
    return failures


# Plain bodies of batches, many per call of a compiled kernel.


RUN_BYTES = 2 * MIB  # of plain bodies at a time: they stay in a core's cache until they are read


class Bodies(NamedTuple):
    """Plain bodies: that of batch ``rows[i]`` is ``data[starts[i]:ends[i]]``; for an uncompressed message, the whole
    message.

    ``stop``: all batches before this row have been reported, here, before, or as failures.
    """

    data: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    stop: int


def runs(sizes: np.ndarray) -> Iterator[slice]:
    """Cut rows of these sizes in bytes into runs of at most RUN_BYTES, or of one row."""
    ends = np.cumsum(sizes, dtype=np.int64)
    start = 0
    while start < len(sizes):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + RUN_BYTES, side="right")))
        yield slice(start, stop)
        start = stop


class _Arena:
    # One buffer, reused for many plain bodies.
    def __init__(self) -> None:
        self.data = np.empty(RUN_BYTES, np.uint8)
        self.used = 0
        self.rows: list[int] = []
        self.starts: list[int] = []

    def add(self, row: int, codec: int, stored: np.ndarray, magic: int, limits: Limits) -> int | Failure | None:
        # None: the body fits its limit, but not the free part of the buffer.
        cap = limits.decompressed_cap(len(stored))
        room = min(cap, RUN_BYTES - self.used)
        size = decompress_into(codec, stored, self.data[self.used : self.used + room], magic=magic)
        if isinstance(size, Failure) and size.reason == "bomb_limit" and room < cap:
            return None
        size = counted(size, len(stored), limits)
        if isinstance(size, Failure):
            return size
        self.rows.append(row)
        self.starts.append(self.used)
        self.used += size
        return size

    def empty(self, stop: int) -> Bodies:
        starts = np.array(self.starts, np.int64)
        full = Bodies(self.data, np.array(self.rows, np.int64), starts, np.append(starts[1:], self.used), stop)
        self.rows, self.starts, self.used = [], [], 0
        return full


def plain_bodies(
    buf: np.ndarray, origin: int, batches: BatchColumns, limits: Limits, failures: list[tuple[int, Failure]]
) -> Iterator[Bodies]:
    """Yield the bodies of ``batches`` in row order, at least once; ``stop`` of the last is the number of rows.

    ``buf`` has the stored bytes, ``origin`` is the file position of ``buf[0]``. Each result is valid until the next
    one. Batches that cannot be opened are added to ``failures`` by row. If all are stored plain, they are not copied.
    Memory: 2 MiB, or the largest body.
    """
    starts = batches.position - origin
    ends = starts + batches.size
    plain = (batches.attributes & CODEC_MASK == 0) | ((batches.magic == 2) & (batches.record_count <= 0))
    if plain.all():
        yield Bodies(buf, np.arange(len(plain)), starts + HEADER * (batches.magic == 2), ends, len(plain))
        return
    arena = _Arena()
    codecs = np.where(plain, NONE, batches.attributes & CODEC_MASK)
    for row, (codec, magic, start, end) in enumerate(
        zip(codecs.tolist(), batches.magic.tolist(), starts.tolist(), ends.tolist(), strict=True)
    ):
        stored = buf[start:end] if codec == NONE and magic < 2 else compressed_part(buf[start:end], magic)
        if isinstance(stored, Failure):
            failures.append((row, stored))
            continue
        size = arena.add(row, codec, stored, magic, limits)
        if size is None and arena.rows:
            yield arena.empty(row)
            size = arena.add(row, codec, stored, magic, limits)
        if size is None:
            alone = decompress(codec, stored, magic=magic, limits=limits)
            if not isinstance(alone, Failure):
                yield Bodies(alone, np.array([row]), np.array([0]), np.array([len(alone)]), row + 1)
                continue
            size = alone
        if isinstance(size, Failure):
            failures.append((row, size))
    yield arena.empty(len(plain))


# A batch's header as bytes, from its row, for copies without payload.


_BATCH = struct.Struct(">qiibIhiqqqhii")
_MESSAGES = struct.Struct(">qiIbb"), struct.Struct(">qiIbbq")  # of magic 0 and 1
CHECKED_FROM = 21  # first byte of a batch of magic 2 that its checksum covers
_U32 = 0xFFFFFFFF


def header_of(row: np.ndarray) -> bytes:
    """The header of the batch or message of a walk's row; of a wrapper with its own offset."""
    v = dict(zip(BatchColumns._fields, row.tolist(), strict=True))
    size, crc, magic = _int(v["size"] - OVERHEAD, 32), v["crc"] & _U32, _int(v["magic"], 8)
    if 0 <= magic < 2:
        fields = [v["last_offset"], size, crc, magic, _int(v["attributes"], 8)]
        return _MESSAGES[magic].pack(*fields, *([v["max_timestamp"]] if magic else []))
    return _BATCH.pack(
        v["base_offset"],
        size,
        _int(v["partition_leader_epoch"], 32),
        magic,
        crc,
        _int(v["attributes"], 16),
        _int(v["last_offset"] - v["base_offset"], 32),
        v["base_timestamp"],
        v["max_timestamp"],
        v["producer_id"],
        _int(v["producer_epoch"], 16),
        _int(v["base_sequence"], 32),
        _int(v["record_count"], 32),
    )


def _int(value: int, bits: int) -> int:
    # Rows of a copy are untrusted: numbers may have more bits than their field.
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def with_right_checksum(header: bytes, size: int) -> bytes:
    """The header of a batch of ``size`` bytes with the checksum for a body of zeros."""
    whole = np.zeros(size, np.uint8)
    whole[: len(header)] = np.frombuffer(header, np.uint8)
    crc = int(crc32c(whole, CHECKED_FROM, size))
    return header[: CHECKED_FROM - 4] + crc.to_bytes(4, "big") + header[CHECKED_FROM:]


# Compressed control batches: Kafka never writes them, but brokers would read and obey them.


def open_controls(buf: np.ndarray, origin: int, batches: BatchColumns, limits: Limits) -> list[tuple[int, Failure]]:
    """Set type and coordinator epoch of each compressed control batch; return the rows that could not be opened.

    ``buf`` has the stored bytes, ``origin`` is the file position of ``buf[0]``. Cost: decompression of each.
    """
    failures: list[tuple[int, Failure]] = []
    compressed = batches.flaws & FLAW_CONTROL_COMPRESSED != 0
    for row in np.flatnonzero(compressed & (batches.record_count > 0)).tolist():
        start = int(batches.position[row]) - origin
        stored = buf[start + HEADER : start + int(batches.size[row])]
        plain = decompress(int(batches.attributes[row]) & CODEC_MASK, stored, limits=limits)
        if isinstance(plain, Failure):
            failures.append((row, plain))
            continue
        kind, epoch, flaws = control_record(plain, 0, len(plain))
        batches.control_type[row], batches.coordinator_epoch[row] = kind, epoch
        batches.flaws[row] |= flaws
    return failures
