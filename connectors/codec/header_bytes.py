"""A batch's header as bytes, made of its row: what a copy without payload shows of the bytes themselves."""

from __future__ import annotations

import struct

import numpy as np

from auditor.connectors.codec import batch as walking
from auditor.connectors.codec.batch_columns import BatchColumns
from auditor.connectors.codec.crc32c import crc32c

_BATCH = struct.Struct(">qiibIhiqqqhii")
_MESSAGES = struct.Struct(">qiIbb"), struct.Struct(">qiIbbq")  # of magic 0 and 1
CHECKED_FROM = 21  # byte of a batch of magic 2 from which on its checksum is of it
_U32 = 0xFFFFFFFF


def header_of(row: np.ndarray) -> bytes:
    """The header of the batch or message that a row of a walk is about; of a wrapper with its own offset."""
    v = dict(zip(BatchColumns._fields, row.tolist(), strict=True))
    size, crc, magic = _int(v["size"] - walking.OVERHEAD, 32), v["crc"] & _U32, _int(v["magic"], 8)
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
    """The lowest bits of a number as a signed one: rows of a copy are from strangers."""
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def with_right_checksum(header: bytes, size: int) -> bytes:
    """The header of a batch of ``size`` bytes, with the checksum that it has if all behind the header is zero."""
    whole = np.zeros(size, np.uint8)
    whole[: len(header)] = np.frombuffer(header, np.uint8)
    crc = int(crc32c(whole, CHECKED_FROM, size))
    return header[: CHECKED_FROM - 4] + crc.to_bytes(4, "big") + header[CHECKED_FROM:]
