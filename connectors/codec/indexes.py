"""Offset, time and transaction indexes, and producer snapshots."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from auditor.base.errors import DEFAULT_LIMITS, DecodeError
from auditor.base.words import plural
from auditor.connectors.codec.primitives import crc32c

# The indexes of a segment: offsets (``.index``), times (``.timeindex``), aborted transactions (``.txnindex``).
#
# They have no header and no checksum. The first two are preallocated: zeros after the last entry are normal while a
# segment is active or after a crash, and are counted, not reported.


OFFSET_ENTRY = np.dtype([("relative_offset", ">i4"), ("log_position", ">i4")])
TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("relative_offset", ">i4")])
TXN_ENTRY = np.dtype(
    [
        ("version", ">i2"),
        ("producer_id", ">i8"),
        ("first_offset", ">i8"),
        ("last_offset", ">i8"),
        ("last_stable_offset", ">i8"),
    ]
)
TXN_VERSION = 0


class OffsetIndex(NamedTuple):
    """Entries of a ``.index``: ``offset`` is the last offset of the batch that starts at ``log_position`` (bytes)."""

    position: np.ndarray  # int64, of the entry in the index file
    offset: np.ndarray  # int64, absolute
    log_position: np.ndarray  # int64
    decoded_bytes: int
    zero_tail_bytes: int  # preallocated, not yet written


class TimeIndex(NamedTuple):
    """Entries of a ``.timeindex``: no record up to ``offset`` has a larger time than ``timestamp`` (ms)."""

    position: np.ndarray  # int64, of the entry in the index file
    timestamp: np.ndarray  # int64 ms
    offset: np.ndarray  # int64, absolute
    decoded_bytes: int
    zero_tail_bytes: int


class AbortedTransactions(NamedTuple):
    """Entries of a ``.txnindex``: one aborted transaction each; offsets are absolute, ``last_offset`` is the marker's.

    ``last_stable_offset`` is the LSO at the time of the abort. ``version`` is as stored, also if unknown.
    """

    position: np.ndarray  # int64, of the entry in the index file
    version: np.ndarray  # int16
    producer_id: np.ndarray  # int64
    first_offset: np.ndarray  # int64
    last_offset: np.ndarray  # int64
    last_stable_offset: np.ndarray  # int64
    decoded_bytes: int


def decode_offset_index(data: bytes, base_offset: int, file: str = "") -> tuple[OffsetIndex, list[DecodeError]]:
    """Entries of a ``.index`` file up to the first all-zero one (never genuine: position 0 is not indexed).

    ``base_offset`` is the segment's. Errors: ``bad_length`` for a partial last entry, ``bad_value`` for entries after
    the zeros. Cost: one pass. Source: Kafka's OffsetIndex.
    """
    rows, errors = _rows(data, OFFSET_ENTRY, file)
    blank = (rows["relative_offset"] == 0) & (rows["log_position"] == 0)
    used, tail = _zero_tail(blank, 0, OFFSET_ENTRY.itemsize, file, errors)
    rows = _within_limit(rows[:used], DEFAULT_LIMITS.max_index_entries, file, errors)
    offset = rows["relative_offset"].astype(np.int64) + base_offset
    log_position = rows["log_position"].astype(np.int64)
    index = OffsetIndex(_positions(rows), offset, log_position, rows.nbytes, tail)
    return index, errors


def decode_time_index(data: bytes, base_offset: int, file: str = "") -> tuple[TimeIndex, list[DecodeError]]:
    """Entries of a ``.timeindex`` file up to the first all-zero one.

    A zero first entry is genuine only in a file of that one entry (a record with time 0). Arguments, errors and cost as
    for :func:`decode_offset_index`. Source: Kafka's TimeIndex.
    """
    rows, errors = _rows(data, TIME_ENTRY, file)
    blank = (rows["timestamp"] == 0) & (rows["relative_offset"] == 0)
    genuine = 1 if len(rows) == 1 else 0
    used, tail = _zero_tail(blank, genuine, TIME_ENTRY.itemsize, file, errors)
    rows = _within_limit(rows[:used], DEFAULT_LIMITS.max_index_entries, file, errors)
    offset = rows["relative_offset"].astype(np.int64) + base_offset
    return TimeIndex(_positions(rows), rows["timestamp"].astype(np.int64), offset, rows.nbytes, tail), errors


def decode_txn_index(
    data: bytes, file: str = "", most: int | None = None
) -> tuple[AbortedTransactions, list[DecodeError]]:
    """All complete entries of a ``.txnindex`` file, at most ``most``.

    Errors: ``bad_length`` for a partial last entry; one per run of entries of another version than 0: ``bad_version``,
    or ``bad_value`` for a version below 0. Cost: one pass. Source: Kafka's TransactionIndex.
    """
    rows, errors = _rows(data, TXN_ENTRY, file)
    rows = _within_limit(rows, DEFAULT_LIMITS.max_producer_entries if most is None else most, file, errors)
    unknown = np.flatnonzero(rows["version"] != TXN_VERSION)
    newer = rows["version"][unknown] > TXN_VERSION
    breaks = (np.diff(unknown, prepend=-2) != 1) | np.diff(newer, prepend=False)
    begins = np.flatnonzero(breaks)[: DEFAULT_LIMITS.max_bad_lines]  # of runs of other versions
    ends = [*begins[1:].tolist(), len(unknown)]
    for first, end in zip(begins.tolist(), ends, strict=False):
        start, last = int(unknown[first]), int(unknown[end - 1])
        detail = f"{end - first} entries, the first of version {rows['version'][start]}, known: 0"
        length = (last - start + 1) * TXN_ENTRY.itemsize
        reason = "bad_version" if newer[first] else "bad_value"
        errors.append(DecodeError(file, start * TXN_ENTRY.itemsize, length, reason, detail))
    columns = AbortedTransactions(
        _positions(rows),
        rows["version"].astype(np.int16),
        rows["producer_id"].astype(np.int64),
        rows["first_offset"].astype(np.int64),
        rows["last_offset"].astype(np.int64),
        rows["last_stable_offset"].astype(np.int64),
        rows.nbytes,
    )
    return columns, errors


def _rows(data: bytes, entry: np.dtype, file: str) -> tuple[np.ndarray, list[DecodeError]]:
    whole = len(data) // entry.itemsize
    end = whole * entry.itemsize
    errors = []
    if end < len(data):
        detail = f"{len(data)} bytes are no multiple of {entry.itemsize}"
        errors.append(DecodeError(file, end, len(data) - end, "bad_length", detail))
    return np.frombuffer(data, entry, count=whole), errors


def _within_limit(rows: np.ndarray, limit: int, file: str, errors: list[DecodeError]) -> np.ndarray:
    if len(rows) > limit:
        start, length = limit * rows.itemsize, (len(rows) - limit) * rows.itemsize
        errors.append(DecodeError(file, start, length, "limit", f"more than {limit} entries: not read"))
    return rows[:limit]


def _zero_tail(blank: np.ndarray, skip: int, size: int, file: str, errors: list[DecodeError]) -> tuple[int, int]:
    # Returns the number of entries before the first blank one (from skip on), and the bytes of zeros after them.
    if not blank[skip:].any():
        return len(blank), 0
    first = skip + int(blank[skip:].argmax())
    written = np.flatnonzero(~blank[first:])
    zeros = int(written[0]) if len(written) else len(blank) - first
    if len(written):
        start, length = (first + zeros) * size, (len(blank) - first - zeros) * size
        errors.append(DecodeError(file, start, length, "bad_value", "entries after the zeros that end an index"))
    return first, zeros * size


def _positions(rows: np.ndarray) -> np.ndarray:
    return np.arange(len(rows), dtype=np.int64) * rows.itemsize


# Producer state snapshots (``.snapshot``) at the offset in the file's name.
#
# Layout (Kafka's ProducerStateManager, version 1, the only one since 0.11): int16 version, uint32 CRC-32C of all bytes
# from 6 on, int32 entry count, then 46 bytes per entry in hash order.


VERSION = 1
HEADER = struct.Struct(">hIi")
CRC_START = 6  # the checksum covers the bytes from here to the end

ENTRY = np.dtype(
    [
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("last_sequence", ">i4"),
        ("last_offset", ">i8"),
        ("offset_delta", ">i4"),
        ("last_timestamp", ">i8"),
        ("coordinator_epoch", ">i4"),
        ("current_txn_first_offset", ">i8"),
    ]
)


class ProducerEntries(NamedTuple):
    """The entries of one snapshot in file order: arrays of one length, one row per producer.

    ``last_sequence`` and ``last_offset`` are those of the last data batch (-1: none since the epoch changed) and
    ``offset_delta`` is its last minus its first offset; ``last_timestamp`` is that of the last batch or marker,
    ``coordinator_epoch`` of the last marker (-1: none), ``current_txn_first_offset`` of the open transaction.
    """

    producer_id: np.ndarray  # int64
    producer_epoch: np.ndarray  # int16
    last_sequence: np.ndarray  # int32
    last_offset: np.ndarray  # int64
    offset_delta: np.ndarray  # int32
    last_timestamp: np.ndarray  # int64 ms
    coordinator_epoch: np.ndarray  # int32
    current_txn_first_offset: np.ndarray  # int64


def decode_snapshot(data: bytes, file: str = "") -> tuple[ProducerEntries, list[DecodeError]]:
    """The entries of a ``.snapshot`` file, and its errors (Kafka drops a snapshot with any error).

    Returns all complete entries, also after a CRC mismatch; none of an unknown version. Columns:
    :class:`ProducerEntries`. Errors: ``truncated``, ``bad_version`` (a newer one), ``bad_value`` (a version that never
    existed), ``crc_mismatch``, ``bad_length``. Cost: one pass. Source: ProducerStateManager.readSnapshot.
    """
    if len(data) < HEADER.size:
        return _entries(b""), [DecodeError(file, 0, len(data), "truncated", f"{len(data)} of 10 header bytes")]
    version, stored_crc, count = HEADER.unpack_from(data)
    if version != VERSION:
        reason = "bad_version" if version > VERSION else "bad_value"
        return _entries(b""), [DecodeError(file, 0, len(data), reason, f"snapshot version {version}, known: 1")]
    errors = []
    actual_crc = _crc(data, CRC_START)
    if actual_crc != stored_crc:
        detail = f"stored checksum {stored_crc}, computed {actual_crc}"
        errors.append(DecodeError(file, 0, len(data), "crc_mismatch", detail))
    whole = max(0, min(count, (len(data) - HEADER.size) // ENTRY.itemsize))
    end = HEADER.size + whole * ENTRY.itemsize
    if count != whole or end != len(data):
        detail = f"{plural(count, 'entry')} declared, {plural(len(data) - HEADER.size, 'byte')} for them, {whole} read"
        errors.append(DecodeError(file, end, len(data) - end, "bad_length", detail))
    limit = DEFAULT_LIMITS.max_producer_entries
    if whole > limit:
        end = HEADER.size + limit * ENTRY.itemsize
        errors.append(DecodeError(file, end, len(data) - end, "limit", f"more than {limit} entries: not read"))
    return _entries(memoryview(data)[HEADER.size : end]), errors


def encode_snapshot(entries: ProducerEntries) -> bytes:
    """The bytes that a broker writes for these entries in this order. Source: ProducerStateManager.writeSnapshot."""
    rows = np.empty(len(entries.producer_id), ENTRY)
    for name, column in entries._asdict().items():
        rows[name] = column
    body = struct.pack(">i", len(rows)) + rows.tobytes()
    return struct.pack(">hI", VERSION, _crc(body, 0)) + body


def _entries(data: bytes | memoryview) -> ProducerEntries:
    rows = np.frombuffer(data, ENTRY)
    return ProducerEntries(*(rows[name].astype(ENTRY[name].newbyteorder("=")) for name in ProducerEntries._fields))


def _crc(data: bytes, start: int) -> int:
    return int(crc32c(np.frombuffer(data, np.uint8), start, len(data)))
