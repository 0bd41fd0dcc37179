"""One record of magic 2 as it lies in a batch's plain body (KIP-98, ``DefaultRecord``; headers: KIP-82)."""

from __future__ import annotations

import numpy as np

from auditor.base.compiled import kernel
from auditor.connectors.codec import batch_columns as col
from auditor.connectors.codec.primitives import varint, varlong


@kernel
def next_record(
    buf: np.ndarray, at: int, end: int
) -> tuple[int, np.int64, np.int64, int, np.int64, int, np.int64, np.int64, int]:
    """The record at ``at``.

    Index after it, timestamp delta, offset delta, key start and size, value start and size (sizes -1 for null), number
    of headers, RECORD_* bits. The index is -1 where the length is no length of a record before ``end``; a record that
    does not fill its length, or overruns it, is flagged.
    """
    nothing = np.int64(-1)
    length, at = varint(buf, at, end)
    if at < 0 or length < 0 or length > end - at:
        return -1, nothing, nothing, -1, nothing, -1, nothing, nothing, col.RECORD_LENGTH
    stop = at + length
    timestamp, at = varlong(buf, at + 1, stop)  # behind one byte of attributes
    if at < 0:
        return stop, nothing, nothing, -1, nothing, -1, nothing, nothing, col.RECORD_LENGTH
    delta, at = varint(buf, at, stop)
    key_size, key_start = varint(buf, at, stop) if at >= 0 else (nothing, -1)
    if key_start < 0 or key_size > stop - key_start:
        return stop, timestamp, delta, -1, nothing, -1, nothing, nothing, col.RECORD_LENGTH
    value_size, value_start = varint(buf, key_start + max(key_size, 0), stop)
    if value_start < 0 or value_size > stop - value_start:
        return stop, timestamp, delta, key_start, key_size, -1, nothing, nothing, col.RECORD_LENGTH
    headers, at = varint(buf, value_start + max(value_size, 0), stop)
    flaws = col.RECORD_LENGTH if key_size < -1 or value_size < -1 or headers < 0 else 0
    left = headers
    while at >= 0 and left > 0:
        size, at = varint(buf, at, stop)
        if size < 0:
            flaws |= col.RECORD_HEADER_KEY_NULL
        if at < 0 or size > stop - at:
            at = -1
            break
        size, at = varint(buf, at + max(size, 0), stop)
        if at < 0 or size > stop - at:
            at = -1
            break
        at += max(size, 0)
        left -= 1
    if at != stop:
        flaws |= col.RECORD_LENGTH
    return (
        stop,
        timestamp,
        delta,
        key_start,
        max(key_size, nothing),
        value_start,
        max(value_size, nothing),
        headers,
        flaws,
    )
