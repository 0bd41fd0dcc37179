"""The walk over a buffer of batches: magic 0, 1 and 2 in any mix, headers and control records into columns.

Record batch: KIP-98 and ``DefaultRecordBatch``; messages: ``LegacyRecord``; end markers: ``EndTransactionMarker``.
A wrapper of magic 0 or 1 is left with its last offset here; :mod:`auditor.connectors.codec.legacy` opens it.
"""

from __future__ import annotations

import numpy as np

from auditor.base.compiled import kernel
from auditor.connectors.codec import batch_columns as col
from auditor.connectors.codec.batch_columns import BATCH_DTYPES, BatchColumns
from auditor.connectors.codec.crc32c import crc32, crc32c
from auditor.connectors.codec.primitives import be16, be32, be64, varint, varlong

OVERHEAD = 12  # offset and size, which the size does not count
PREFIX = 17  # bytes that show a batch's size and magic
HEADER = 61  # of magic 2
MIN_SIZES = (14, 22, 49)  # smallest size field by magic

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40  # KIP-534: base_timestamp is that
MAX_CODEC = (3, 3, 4)  # highest compression codec by magic: zstd is for magic 2 alone

# The columns of what a walk fills: those of BatchColumns in their order, all as int64, a batch in one line, since what
# reads a batch reads many of them. One array, since a compiled function pays for counting references to each array that
# it takes out of a tuple.
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

ALL = -2  # in place of a trusted position: a wrong checksum says nothing about a length any more

# Why a walk stopped.
MORE = 0  # the buffer ends before the batch does
FULL = 1  # no row is free
BAD_SIZE = 2
BAD_MAGIC = 3
OVER_LIMIT = 4
SUSPECT = 5  # a batch with a wrong checksum, whose length does not lead to the batch that follows it
CLOSED = 8  # added where a batch says only when it is opened what its row needs: wrappers, compressed markers


@kernel
def _fill_legacy(buf: np.ndarray, at: int, total: int, magic: int, check: bool, row: int, out: np.ndarray) -> int:
    """Fill ``row`` with the message at ``at``; returns its FLAW_* bits."""
    attributes = np.int64(buf[at + 17])
    timestamp = be64(buf, at + 18) if magic == 1 else -1
    crc = np.uint32(be32(buf, at + 12))
    flaws = 0
    if attributes & CODEC_MASK > MAX_CODEC[0]:
        flaws |= col.FLAW_CODEC_UNKNOWN
    if check and crc32(buf, at + 16, at + total) != crc:
        flaws |= col.FLAW_CRC
    out[row, ATTRIBUTES] = attributes
    out[row, BASE_OFFSET] = be64(buf, at)
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
    """The FLAW_* bits that the header alone shows."""
    flaws = 0
    if attributes & CODEC_MASK > MAX_CODEC[2]:
        flaws |= col.FLAW_CODEC_UNKNOWN
    if delta < 0 or count < 0:
        flaws |= col.FLAW_NEGATIVE_SPAN
    elif count > delta + 1:
        flaws |= col.FLAW_COUNT_ABOVE_SPAN
    elif count < delta + 1:
        flaws |= col.FLAW_COUNT_BELOW_SPAN
    if producer < 0:
        if epoch >= 0 or sequence >= 0 or attributes & TRANSACTIONAL:
            flaws |= col.FLAW_NO_PRODUCER_FIELDS
    elif epoch < 0:
        flaws |= col.FLAW_PRODUCER_EPOCH
    if not attributes & CONTROL:
        if producer >= 0 and sequence < 0:
            flaws |= col.FLAW_PRODUCER_SEQUENCE
        return flaws
    if producer < 0:
        flaws |= col.FLAW_CONTROL_NO_PRODUCER
    if sequence >= 0:
        flaws |= col.FLAW_CONTROL_SEQUENCE
    if count > 1:
        flaws |= col.FLAW_CONTROL_RECORDS
    if not attributes & TRANSACTIONAL:
        flaws |= col.FLAW_CONTROL_NOT_TRANSACTIONAL
    if attributes & CODEC_MASK:
        flaws |= col.FLAW_CONTROL_COMPRESSED
    return flaws


@kernel
def control_record(buf: np.ndarray, at: int, end: int) -> tuple[int, int, int]:
    """Type, coordinator epoch and FLAW_* bits of the control record at ``at`` (after decompression), ending by ``end``.

    Type and epoch are -1 where they cannot be read; the epoch also where the type is no end marker's.
    """
    _length, at = varint(buf, at, end)
    if at < 0 or at >= end:
        return -1, -1, col.FLAW_CONTROL_KEY
    _timestamp, at = varlong(buf, at + 1, end)  # after one byte of attributes
    if at >= 0:
        _delta, at = varint(buf, at, end)
    if at < 0:
        return -1, -1, col.FLAW_CONTROL_KEY
    key_size, at = varint(buf, at, end)
    if at < 0 or key_size < 4 or key_size > end - at or be16(buf, at) < 0:
        return -1, -1, col.FLAW_CONTROL_KEY
    kind = be16(buf, at + 2)
    if kind != 0 and kind != 1:
        return kind, -1, col.FLAW_CONTROL_TYPE
    value_size, at = varint(buf, at + key_size, end)
    if at < 0 or value_size < 6 or value_size > end - at or be16(buf, at) < 0:
        return kind, -1, col.FLAW_CONTROL_VALUE
    return kind, be32(buf, at + 2), 0


@kernel
def _fill_batch(buf: np.ndarray, at: int, total: int, check: bool, row: int, out: np.ndarray) -> int:
    """Fill ``row`` with the record batch (magic 2) at ``at``; returns its FLAW_* bits."""
    attributes = be16(buf, at + 21)
    delta = be32(buf, at + 23)
    producer = be64(buf, at + 43)
    epoch = be16(buf, at + 51)
    sequence = be32(buf, at + 53)
    count = be32(buf, at + 57)
    crc = np.uint32(be32(buf, at + 17))
    flaws = _header_flaws(attributes, delta, count, producer, epoch, sequence)
    kind, coordinator_epoch = -1, -1
    if attributes & CONTROL and count > 0 and not attributes & CODEC_MASK:
        kind, coordinator_epoch, more = control_record(buf, at + HEADER, at + total)
        flaws |= more
    if check and crc32c(buf, at + 21, at + total) != crc:
        flaws |= col.FLAW_CRC
    out[row, ATTRIBUTES] = attributes
    out[row, BASE_OFFSET] = be64(buf, at)
    out[row, LAST_OFFSET] = out[row, BASE_OFFSET] + delta
    out[row, RECORD_COUNT] = count
    out[row, PARTITION_LEADER_EPOCH] = be32(buf, at + 12)
    out[row, CRC] = crc
    out[row, BASE_TIMESTAMP] = be64(buf, at + 27)
    out[row, MAX_TIMESTAMP] = be64(buf, at + 35)
    out[row, PRODUCER_ID] = producer
    out[row, PRODUCER_EPOCH] = epoch
    out[row, BASE_SEQUENCE] = sequence
    out[row, CONTROL_TYPE] = kind
    out[row, COORDINATOR_EPOCH] = coordinator_epoch
    out[row, FLAWS] = flaws
    return flaws


@kernel
def _fill(buf: np.ndarray, at: int, total: int, magic: int, check: bool, row: int, out: np.ndarray) -> int:
    if magic == 2:
        return int(_fill_batch(buf, at, total, check, row, out))
    return int(_fill_legacy(buf, at, total, magic, check, row, out))


@kernel
def header_row(buf: np.ndarray, total: int, position: int, out: np.ndarray) -> int:
    """Fill ``out``, a row, with the batch of magic 2 and ``total`` bytes whose first ones are in ``buf``, all of them
    where it is a control batch; returns its FLAW_* bits. Its checksum is left alone."""
    rows = out.reshape(1, len(out))
    out[POSITION], out[SIZE], out[MAGIC] = position, total, 2
    if be16(buf, 21) & CONTROL and len(buf) < total:
        return col.FLAW_CONTROL_KEY
    return int(_fill_batch(buf, 0, min(total, len(buf)), False, 0, rows))


@kernel
def is_sound(buf: np.ndarray, at: int, total: int, magic: int) -> bool:
    """Whether the checksum of the batch or message of ``total`` bytes at ``at``, all in ``buf``, is right."""
    if magic == 2:
        return crc32c(buf, at + 21, at + total) == np.uint32(be32(buf, at + 17))
    return crc32(buf, at + 16, at + total) == np.uint32(be32(buf, at + 12))


@kernel
def _leads_on(buf: np.ndarray, after: int, end: int, last: int) -> bool:
    """Whether the offset at index ``after`` is that of the batch behind one that ends with offset ``last``."""
    return end - after >= OVERHEAD and be64(buf, after) == last + 1


@kernel
def walk(
    buf: np.ndarray,
    at: int,
    end: int,
    position: int,
    until: int,
    limit: int,
    check: bool,
    row: int,
    out: np.ndarray,
    trusted: int,
) -> tuple[int, int, int]:
    """Fill ``out`` from ``row`` on with the batches of ``buf[at:end]``; return the next row, the index reached, why,
    with CLOSED.

    ``out`` is of :func:`walk_rows`. ``position`` is the byte in the file of ``buf[0]``; no batch that begins at or
    after position ``until`` is taken. ``limit`` is the largest batch in bytes; ``check`` says whether all checksums are
    computed; else only those of batches that no batch follows where their length leads, so that the walk is the same
    either way. A batch of magic 2 with a wrong checksum is a row like any other where its length leads to the batch
    behind it, one of any magic where it begins at position ``trusted`` (:data:`ALL`: anywhere). Cost: one pass over the
    bytes with ``check``, else over the headers.
    """
    closed = 0
    while position + at < until:
        if end - at < PREFIX:
            return row, at, MORE | closed
        size = be32(buf, at + 8)
        if size < MIN_SIZES[0]:
            return row, at, BAD_SIZE | closed
        magic = np.int64(np.int8(buf[at + 16]))
        if magic < 0 or magic > 2:
            return row, at, BAD_MAGIC | closed
        if size < MIN_SIZES[magic]:
            return row, at, BAD_SIZE | closed
        total = size + OVERHEAD
        if total > limit:
            return row, at, OVER_LIMIT | closed
        if total > end - at:
            return row, at, MORE | closed
        if row >= len(out):
            return row, at, FULL | closed
        out[row, POSITION] = position + at
        out[row, SIZE] = total
        out[row, MAGIC] = magic
        flaws = _fill(buf, at, total, magic, check, row, out)
        if (
            (not check or flaws & col.FLAW_CRC)
            and position + at != trusted
            and trusted != ALL
            and not (magic == 2 and _leads_on(buf, at + total, end, out[row, LAST_OFFSET]))
            and (check or not is_sound(buf, at, total, magic))
        ):
            return row, at, SUSPECT | closed
        if magic < 2 or flaws & col.FLAW_CONTROL_COMPRESSED:
            closed = CLOSED
        row += 1
        at += total
    return row, at, MORE | closed


def walk_rows(count: int) -> np.ndarray:
    """Room for a walk's rows."""
    return np.empty((count, len(BATCH_DTYPES)), np.int64)


def columns_of(filled: np.ndarray) -> BatchColumns:
    """A copy of a walk's rows in the types of BatchColumns."""
    return BatchColumns(*(column.astype(dtype) for column, dtype in zip(filled.T, BATCH_DTYPES, strict=True)))


def rows_of(columns: BatchColumns) -> np.ndarray:
    """Columns as a walk's rows: what :func:`columns_of` undoes."""
    rows = walk_rows(len(columns.position))
    for column, values in zip(rows.T, columns, strict=True):
        column[:] = values
    return rows
