"""What the records of a batch tell beyond its summary, as a copy without payload keeps it: stamps, whether each has a
key, and what is wrong with it. No key, no value, no header.

A batch whose summary says it all (one stamp, all or none with keys, nothing wrong) has none. Else, little-endian: a
byte for the bytes of a step (0, 1, 2, 4 or 8), a byte of bits (1: keys follow, 2: flaws follow); of each record by how
much its stamp (ms) is later than that of the one before it, of the first one than the batch's own; bits of the records
without a key, the first record's lowest; 2 bytes of flaws each (RECORD_* of
:mod:`auditor.connectors.codec.batches`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from auditor.base.compiled import kernel
from auditor.base.errors import Limits
from auditor.connectors.codec.batches import (
    LOG_APPEND_TIME,
    RECORD_UNDECOMPRESSABLE,
    BatchColumns,
    RecordColumns,
    RecordSummary,
    empty_records,
)
from auditor.connectors.codec.records import LEAST_RECORD, Decoded
from auditor.connectors.codec.segment import Opens

_STEPS = {1: "i1", 2: "<i2", 4: "<i4", 8: "<i8"}
WIDEST = 8  # bytes of a step
KEYS, FLAWS = 1, 2  # bits
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
    stamps = _stamps(b, s)
    for run in opens(rows):
        some, r = rows[run.rows], run.records
        ends = np.cumsum(run.summary.present, dtype=np.int64)
        text = np.empty(2 * len(some) + (WIDEST + 2 + 1) * len(r.timestamp), np.uint8)
        cuts = np.zeros(len(some) + 1, np.int64)
        _code(stamps[some], ends, r.timestamp, r.key_size, r.flaws, text, cuts)
        said = text[: cuts[-1]].tobytes()
        for k in np.flatnonzero(np.diff(cuts)).tolist():
            out[some[k]] = said[cuts[k] : cuts[k + 1]]
    return out


def _stamps(b: BatchColumns, s: RecordSummary) -> np.ndarray:
    """The stamp that the first record's of each batch is counted from."""
    by_broker = (b.magic > 0) & (b.attributes & LOG_APPEND_TIME != 0)
    return np.where(by_broker, b.max_timestamp, s.first_timestamp)


@kernel
def _width(least: int, most: int) -> int:
    """Bytes that a step between these takes, 0 where there is none."""
    if least == 0 and most == 0:
        return 0
    for width in (1, 2, 4):
        if -(1 << (8 * width - 1)) <= least and most < 1 << (8 * width - 1):
            return width
    return WIDEST


@kernel
def _code(
    stamps: np.ndarray,
    ends: np.ndarray,
    timestamp: np.ndarray,
    key_size: np.ndarray,
    flaws: np.ndarray,
    text: np.ndarray,
    cuts: np.ndarray,
) -> None:
    """Writes the details of batches into ``text``, those of batch ``i`` from ``cuts[i]`` to ``cuts[i + 1]``. The
    records of a batch end before ``ends``; its first stamp is counted from ``stamps``."""
    at, start = 0, 0
    for i in range(len(ends)):
        end, previous = ends[i], stamps[i]
        least, most, nulls, flawed = np.int64(0), np.int64(0), 0, False
        for n in range(start, end):
            step, previous = timestamp[n] - previous, timestamp[n]
            least, most = min(least, step), max(most, step)
            nulls += key_size[n] < 0
            flawed |= flaws[n] != 0
        width, keys = _width(least, most), 0 < nulls < end - start
        if width > 0 or keys or flawed:
            text[at], text[at + 1] = width, KEYS * keys + FLAWS * flawed
            at, previous = at + 2, stamps[i]
            for n in range(start, end):
                step, previous = timestamp[n] - previous, timestamp[n]
                for k in range(width):
                    text[at] = (step >> (8 * k)) & 0xFF
                    at += 1
            if keys:
                for n in range(0, end - start, 8):
                    bits = 0
                    for k in range(min(8, end - start - n)):
                        bits |= (key_size[start + n + k] < 0) << k
                    text[at] = bits
                    at += 1
            if flawed:
                for n in range(start, end):
                    text[at], text[at + 1] = flaws[n] & 0xFF, (flaws[n] >> 8) & 0xFF
                    at += 2
        cuts[i + 1], start = at, end


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
    records, stamps = empty_records(int(summary.present.sum())), _stamps(b.take(some), summary)
    end = 0
    for k, row in enumerate(some.tolist()):
        start, end = end, end + int(summary.present[k])
        here = slice(start, end)
        records.batch[here] = run.start + k
        records.index[here] = np.arange(end - start)
        records.timestamp[here] = stamps[k]
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
    keys, flaws = bool(bits & KEYS) * -(-count // 8), bool(bits & FLAWS) * 2 * count
    if width not in (0, *_STEPS) or bits > KEYS | FLAWS or len(text) != 2 + width * count + keys + flaws:
        raise OSError(0, WRONG)
    if width:
        records.timestamp[here] += np.cumsum(np.frombuffer(text, _STEPS[width], count, 2).astype(np.int64))
    at = 2 + width * count
    if keys:
        no_key = np.unpackbits(np.frombuffer(text, np.uint8, keys, at), count=count, bitorder="little")
        records.key_size[here] = np.where(no_key, -1, 0)
    if flaws:
        records.flaws[here] = np.frombuffer(text, "<u2", count, at + keys)
