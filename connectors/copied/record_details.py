"""What the records of a batch tell beyond its summary, as a copy without payload keeps it: stamps, whether each has a
key, and what is wrong with it. No key, no value, no header.

A batch whose summary says it all (one stamp, all or none with keys, nothing wrong) has none. Else, little-endian: a
byte for the bytes of a step (0, 1, 2, 4 or 8), a byte of bits (1: keys follow, 2: flaws follow); of each record by how
much its stamp (ms) is later than that of the one before it, of the first one than the batch's own; bits of the records
without a key, the first record's lowest; 2 bytes of flaws each (RECORD_* of
:mod:`auditor.connectors.codec.batch_columns`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from auditor.base.limits import Limits
from auditor.connectors.codec.batch import LOG_APPEND_TIME
from auditor.connectors.codec.batch_columns import (
    RECORD_UNDECOMPRESSABLE,
    BatchColumns,
    RecordColumns,
    RecordSummary,
    empty_records,
)
from auditor.connectors.codec.records import LEAST_RECORD, Decoded
from auditor.connectors.codec.segment import Opens

_STEPS = {1: "i1", 2: "<i2", 4: "<i4", 8: "<i8"}
_KEYS, _FLAWS = 1, 2  # bits
RUN_RECORDS = 1 << 16  # of a run, where it has more than one batch
WRONG = "the records of a batch of the copy are not those of its summary"


def details_of(opens: Opens, b: BatchColumns, s: RecordSummary) -> np.ndarray | None:
    """The details of each batch as bytes, 0 where there are none: what a reading of a segment may ask for
    (:data:`auditor.connectors.codec.segment.Look`)."""
    mixed = (s.null_keys > 0) & (s.null_keys < s.present)
    rows = np.flatnonzero((s.flaws != 0) | (s.min_timestamp != s.max_timestamp) | mixed)
    if not len(rows):
        return None
    out = np.zeros(len(s.present), object)
    for run in opens(rows):
        ends = np.cumsum(run.summary.present)
        for k, row in enumerate(rows[run.rows].tolist()):
            start = int(ends[k - 1]) if k else 0
            out[row] = _coded(_stamp(b, s, row), run.records, start, int(ends[k])) or 0
    return out


def _stamp(b: BatchColumns, s: RecordSummary, row: int) -> int:
    """The stamp that the first record's is counted from."""
    by_broker = b.magic[row] > 0 and b.attributes[row] & LOG_APPEND_TIME != 0
    return int(b.max_timestamp[row] if by_broker else s.first_timestamp[row])


def _coded(stamp: int, r: RecordColumns, start: int, end: int) -> bytes | None:
    no_key, flaws = r.key_size[start:end] < 0, r.flaws[start:end]
    steps = np.diff(r.timestamp[start:end], prepend=stamp)
    width = next((n for n, t in _STEPS.items() if _holds(t, steps)), 8) if steps.any() else 0
    bits = _KEYS * bool(no_key.any() and not no_key.all()) + _FLAWS * bool(flaws.any())
    if not width and not bits:
        return None
    text = bytes((width, bits)) + (steps.astype(_STEPS[width]).tobytes() if width else b"")
    text += np.packbits(no_key, bitorder="little").tobytes() if bits & _KEYS else b""
    return text + (flaws.astype("<u2").tobytes() if bits & _FLAWS else b"")


def _holds(dtype: str, steps: np.ndarray) -> bool:
    bounds = np.iinfo(dtype)
    return bool(steps.min() >= bounds.min and steps.max() <= bounds.max)


def opened_by(
    b: BatchColumns, s: RecordSummary, details: Sequence[bytes | None], rows: np.ndarray, limits: Limits
) -> Iterator[Decoded]:
    """The records of some batches, as :func:`auditor.connectors.codec.records.decode_stored` gives those of a file, by
    their summaries and details: without sizes and offsets. ``limits`` count what it all becomes.

    Errors: ``OSError`` where these do not fit each other, or would be more records than there can be.
    """
    present = np.where(s.present[rows] > limits.max_records, 0, s.present[rows])
    at = 0
    while at < len(rows):
        until = at + max(1, int(np.searchsorted(np.cumsum(present[at:], dtype=np.int64), RUN_RECORDS, side="right")))
        for row in rows[at:until].tolist():
            _count(int(b.size[row]), int(s.present[row]), limits)
        yield _run(b, s, details, rows, slice(at, until), limits)
        at = until


def _count(stored: int, present: int, limits: Limits) -> None:
    """A body of ``stored`` bytes holds so many records. Errors: ``OSError`` where it cannot."""
    if present * LEAST_RECORD > limits.decompressed_cap(stored):
        raise OSError(0, "a batch of the copy would have more records than there can be")
    limits.note_made(stored, present * LEAST_RECORD)


def _run(
    b: BatchColumns, s: RecordSummary, details: Sequence[bytes | None], rows: np.ndarray, run: slice, limits: Limits
) -> Decoded:
    some = rows[run]
    summary = RecordSummary(*(column[some] for column in s))
    too_many = summary.present > limits.max_records
    summary.present[too_many] = 0
    summary.flaws[too_many] |= RECORD_UNDECOMPRESSABLE
    records = empty_records(int(summary.present.sum()))
    end = 0
    for k, row in enumerate(some.tolist()):
        start, end = end, end + int(summary.present[k])
        here = slice(start, end)
        records.batch[here] = run.start + k
        records.index[here] = np.arange(end - start)
        records.timestamp[here] = _stamp(b, s, row)
        records.key_size[here] = -1 if s.null_keys[row] >= s.present[row] else 0
        records.flaws[here] = 0
        if (text := details[k + run.start]) is not None and end > start:
            _decode(text, records, here)
    for column in (records.offset, records.value_size, records.header_count, records.sequence):
        column[:] = -1  # which nobody asks of a copy
    return Decoded(run, records, summary, {})


def _decode(text: bytes, records: RecordColumns, here: slice) -> None:
    count = here.stop - here.start
    width, bits = (text[0], text[1]) if len(text) >= 2 else (-1, 0)
    keys, flaws = bool(bits & _KEYS) * -(-count // 8), bool(bits & _FLAWS) * 2 * count
    if width not in (0, *_STEPS) or bits > _KEYS | _FLAWS or len(text) != 2 + width * count + keys + flaws:
        raise OSError(0, WRONG)
    if width:
        records.timestamp[here] += np.cumsum(np.frombuffer(text, _STEPS[width], count, 2).astype(np.int64))
    at = 2 + width * count
    if keys:
        no_key = np.unpackbits(np.frombuffer(text, np.uint8, keys, at), count=count, bitorder="little")
        records.key_size[here] = np.where(no_key, -1, 0)
    if flaws:
        records.flaws[here] = np.frombuffer(text, "<u2", count, at + keys)
