"""Producer state snapshots (``.snapshot``): what a broker knew of each producer at the offset in the file's name.

Layout (Kafka's ProducerStateManager, version 1, the only one since 0.11): int16 version, uint32 CRC-32C of all bytes
from 6 on, int32 entry count, then 46 bytes an entry in hash order.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from auditor.base.errors import DEFAULT_LIMITS, DecodeError
from auditor.base.words import plural
from auditor.connectors.codec.crc32c import crc32c

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
    """The entries of one snapshot in file order: arrays of one length, one row a producer.

    ``last_sequence`` and ``last_offset`` are of the last data batch (-1: none since the epoch changed) and
    ``offset_delta`` is its last minus its first offset; ``last_timestamp`` is of the last batch or marker,
    ``coordinator_epoch`` of the last marker (-1: none seen), ``current_txn_first_offset`` of the open transaction.
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
    """The entries of a ``.snapshot`` file's bytes, and what is wrong with it (Kafka drops a snapshot with any error).

    Entries are given as far as whole ones are there, also under a wrong checksum; none of an unknown version. Columns:
    :class:`ProducerEntries`. Errors: ``truncated``, ``bad_version`` (a newer one), ``bad_value`` (a version that never
    was), ``crc_mismatch``, ``bad_length``.
    Cost: one pass. Source: ProducerStateManager.readSnapshot.
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
    """The bytes a broker writes for these entries in this order. Source: ProducerStateManager.writeSnapshot."""
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
