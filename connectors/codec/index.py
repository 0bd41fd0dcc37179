"""The indexes beside a segment: offsets (``.index``), times (``.timeindex``), aborted transactions (``.txnindex``).

None has a header or a checksum. The first two are preallocated: zeros after the last entry are the rule while a segment
is active or after a crash, and are counted, not reported.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from auditor.base.errors import DEFAULT_LIMITS, DecodeError

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

    ``last_stable_offset`` is the one at the moment of the abort. ``version`` is kept as stored, also an unknown one.
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
    of :func:`decode_offset_index`. Source: Kafka's TimeIndex.
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
    """All whole entries of a ``.txnindex`` file, at most so many.

    Errors: ``bad_length`` for a partial last entry; one for each run of entries of another version than 0:
    ``bad_version``, or ``bad_value`` for a version below 0. Cost: one pass. Source: Kafka's TransactionIndex.
    """
    rows, errors = _rows(data, TXN_ENTRY, file)
    rows = _within_limit(rows, DEFAULT_LIMITS.max_producer_entries if most is None else most, file, errors)
    unknown = np.flatnonzero(rows["version"] != TXN_VERSION)
    newer = rows["version"][unknown] > TXN_VERSION
    breaks = (np.diff(unknown, prepend=-2) != 1) | np.diff(newer, prepend=False)
    begins = np.flatnonzero(breaks)[: DEFAULT_LIMITS.max_bad_lines]  # of runs of such
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
    """The whole entries, and an error for a partial one at the end."""
    whole = len(data) // entry.itemsize
    end = whole * entry.itemsize
    errors = []
    if end < len(data):
        detail = f"{len(data)} bytes are no multiple of {entry.itemsize}"
        errors.append(DecodeError(file, end, len(data) - end, "bad_length", detail))
    return np.frombuffer(data, entry, count=whole), errors


def _within_limit(rows: np.ndarray, limit: int, file: str, errors: list[DecodeError]) -> np.ndarray:
    """The first ``limit`` rows; an error says of the others that they were not read."""
    if len(rows) > limit:
        start, length = limit * rows.itemsize, (len(rows) - limit) * rows.itemsize
        errors.append(DecodeError(file, start, length, "limit", f"more than {limit} entries: not read"))
    return rows[:limit]


def _zero_tail(blank: np.ndarray, skip: int, size: int, file: str, errors: list[DecodeError]) -> tuple[int, int]:
    """Entries before the first blank one (from ``skip`` on), and bytes of zeros after them; not zero: an error."""
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
