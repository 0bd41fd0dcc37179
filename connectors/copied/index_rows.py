"""Entries of indexes as what they repeat of a segment's batches: of large batches an index is longer than their rows.

An entry of an offset index names a batch's position and the last offset of that or a later one, an entry of a time
index a batch's largest time and an offset of it. So each is kept as numbers of rows, nearly always in steps of one, and
by how much it is off, nearly always zero; packed that is nothing. Any bytes come back as they were.
"""

from __future__ import annotations

import numpy as np

from auditor.connectors.codec import batches as walking

ENTRY = {"index": 8, "timeindex": 12}  # bytes of one
MOST_ROWS = 1 << 18  # of a segment; of small batches few have an entry
_COLUMNS = 4
_TIME_ENTRY = np.dtype([("time", ">i8"), ("offset", ">i4")])


def coded(kind: str, data: bytes, rows: np.ndarray, base: int) -> bytes | None:
    """The entries, of a segment that begins at offset ``base`` and has these rows of a walk; None where they do not
    come back as they were."""
    if not 0 < len(rows) <= MOST_ROWS:
        return None
    size = ENTRY[kind]
    data = data.ljust(-(-len(data) // size) * size, b"\0")
    first, offset = _columns(kind, data)
    behind = np.searchsorted(rows[:, walking.LAST_OFFSET], offset + base).clip(0, len(rows) - 1)
    by = rows[behind, walking.LAST_OFFSET] - offset - base
    if kind == "index":
        at = np.searchsorted(rows[:, walking.POSITION], first).clip(0, len(rows) - 1)
        found = (np.diff(at, prepend=0), behind - at, rows[at, walking.POSITION] - first, by)
    else:
        found = (np.diff(behind, prepend=0), np.zeros_like(by), rows[behind, walking.MAX_TIMESTAMP] - first, by)
    text = np.vstack(found).astype("<i8").tobytes()
    return text if decoded(kind, text, rows, base) == data else None


def decoded(kind: str, text: bytes, rows: np.ndarray, base: int) -> bytes:
    """The entries that :func:`coded` has made into ``text``. Errors: ``OSError`` where they are not of these rows."""
    if len(text) % (8 * _COLUMNS):
        raise OSError(0, "an index of the copy is not as it should be")
    if not text:
        return b""
    steps, more, first_by, by = np.frombuffer(text, "<i8").reshape(_COLUMNS, -1)
    at = np.cumsum(steps)
    behind = at + more
    if not len(rows) or np.any((at < 0) | (at >= len(rows)) | (behind < 0) | (behind >= len(rows))):
        raise OSError(0, "an index of the copy names batches that are not there")
    offset = rows[behind, walking.LAST_OFFSET] - by - base
    if kind == "index":
        first = rows[at, walking.POSITION] - first_by
        return np.column_stack((offset, first)).astype(">i4").tobytes()
    found = np.empty(len(offset), _TIME_ENTRY)
    found["time"], found["offset"] = rows[behind, walking.MAX_TIMESTAMP] - first_by, offset
    return found.tobytes()


def most_coded(length: int) -> int:
    """Bytes that the coded entries of an index of ``length`` bytes have at most."""
    return 8 * _COLUMNS * (length // ENTRY["index"] + 1)


def _columns(kind: str, data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Position or time, and relative offset, of each entry."""
    if kind == "index":
        entries = np.frombuffer(data, ">i4").reshape(-1, 2).astype(np.int64)
        return entries[:, 1], entries[:, 0]
    timed = np.frombuffer(data, _TIME_ENTRY)
    return timed["time"].astype(np.int64), timed["offset"].astype(np.int64)
