"""The one flipped bit that explains a CRC mismatch, where there is one.

CRC-32C is linear: two batches that differ in one bit have checksums that differ by a pattern of that bit's place alone,
and no two bits of a batch below 256 MiB have the same pattern. So at most one bit explains a mismatch. Damage of many
bits looks like one flipped bit by chance about once in 2^32 / bits batches.
"""

from __future__ import annotations

import numpy as np

from auditor.connectors.codec.crc32c import CASTAGNOLI, crc32c
from auditor.connectors.codec.header_bytes import CHECKED_FROM

STORED_AT = CHECKED_FROM - 4  # byte of a batch at which its checksum is stored
MOST_BYTES = 1 << 18  # of a batch that is searched
BYTES_IN_ALL = 1 << 23  # of the batches that one reading of a segment searches
MOST_FOUND = 100  # flipped bits that one reading of a segment notes
_ONES = 0xFFFFFFFF


def _table() -> list[int]:
    states = list(range(256))
    for _ in range(8):
        states = [state >> 1 ^ (CASTAGNOLI if state & 1 else 0) for state in states]
    return states


_TABLE = _table()
_BY_TOP_BYTE = {state >> 24: index for index, state in enumerate(_TABLE)}
_LAST_BYTE = {_TABLE[1 << bit]: bit for bit in range(8)}  # by how the checksum changes with a bit of the last byte


def flipped_bit(batch: np.ndarray) -> tuple[int, int] | None:
    """Return byte and bit (0: the lowest) of a stored batch of magic 2 whose inversion makes its checksum right.

    None where no single bit does, and for a batch above :data:`MOST_BYTES`. Cost: a step a byte from the end on.
    """
    size = len(batch)
    if not CHECKED_FROM < size <= MOST_BYTES:
        return None
    stored = int.from_bytes(batch[STORED_AT:CHECKED_FROM].tobytes(), "big")
    change = stored ^ int(crc32c(batch, CHECKED_FROM, size)) & _ONES
    if change.bit_count() == 1:
        bit = change.bit_length() - 1
        return STORED_AT + 3 - bit // 8, bit % 8
    for at in range(size - 1, CHECKED_FROM - 1, -1):
        if change in _LAST_BYTE:
            return at, _LAST_BYTE[change]
        index = _BY_TOP_BYTE[change >> 24]  # as if the last byte, which is equal in both, were not there
        change = (change ^ _TABLE[index]) << 8 & _ONES | index
    return None
