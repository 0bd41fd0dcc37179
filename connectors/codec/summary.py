"""What reading all records of a batch shows, summed up in one row a batch."""

from __future__ import annotations

import numpy as np

from connectors.codec import columns as col
from connectors.codec.batch import CODEC_MASK
from connectors.codec.bodies import Bodies, plain_bodies
from connectors.codec.columns import BatchColumns, RecordSummary
from connectors.codec.compiled import kernel
from connectors.codec.compression import Failure
from connectors.codec.legacy import next_message
from connectors.codec.record import next_record
from connectors.limits import Limits

DTYPES = ("i4", "i8", "i8", "i8", "i4", "i4", "i4", "i4", "i8")
NOTHING = (0, -1, -1, -1, 0, -1, 0, -1, 0)  # of a batch without records


@kernel
def _summarise_records(buf: np.ndarray, at: int, end: int, row: int, batches: BatchColumns, out: RecordSummary) -> None:
    """Fill the summary of a batch (magic 2) from its body. Behind the declared records only sound ones count."""
    declared = np.int64(batches.record_count[row])
    span = batches.last_offset[row] - batches.base_offset[row]
    first, least, most, previous = np.int64(-1), np.int64(2**63 - 1), np.int64(-(2**63)), np.int64(-1)
    count, nulls, first_null, all_flaws, culprit = 0, 0, -1, 0, -1
    while at < end:
        at, delta_ms, delta, _ks, key_size, _vs, _v, _headers, flaws = next_record(buf, at, end)
        unreadable = at < 0 or (count >= declared and flaws != 0)
        if count >= declared:
            flaws = col.RECORD_BYTES_LEFT
        elif not unreadable and (delta <= previous or delta > span):
            flaws |= col.RECORD_OFFSET_DELTA
        if flaws and culprit < 0:
            culprit = count
        all_flaws |= flaws
        if unreadable:
            break
        previous = max(previous, delta)
        first = delta_ms if count == 0 else first
        least, most = min(least, delta_ms), max(most, delta_ms)
        if key_size < 0:
            first_null = count if nulls == 0 else first_null
            nulls += 1
        count += 1
    if count != declared:
        all_flaws |= col.RECORD_COUNT_MISMATCH
        culprit = culprit if culprit >= 0 else count
    base = batches.base_timestamp[row]
    _store(row, count, (base + first, base + least, base + most), (nulls, first_null), (all_flaws, culprit), out)


@kernel
def _summarise_messages(
    buf: np.ndarray, at: int, end: int, row: int, batches: BatchColumns, out: RecordSummary
) -> None:
    """Fill the summary of a message, or of a wrapper from the messages inside."""
    magic = np.int64(batches.magic[row])
    wrapped = batches.attributes[row] & CODEC_MASK != 0
    first, least, most, last = np.int64(-1), np.int64(2**63 - 1), np.int64(-(2**63)), np.int64(-1)
    count, nulls, first_null, all_flaws, culprit = 0, 0, -1, 0, -1
    while at < end:
        at, offset, timestamp, _ks, key_size, _vs, _v, flaws = next_message(buf, at, end, magic)
        if not wrapped:
            flaws &= col.RECORD_LENGTH  # its checksum and codec are the batch's own
        elif at >= 0 and count > 0 and offset <= last:
            flaws |= col.RECORD_OFFSET_DELTA
        if flaws and culprit < 0:
            culprit = count
        all_flaws |= flaws
        if at < 0:
            break
        last = offset
        first = timestamp if count == 0 else first
        least, most = min(least, timestamp), max(most, timestamp)
        if key_size < 0:
            first_null = count if nulls == 0 else first_null
            nulls += 1
        count += 1
    wrapper = batches.last_offset[row]
    if wrapped and magic == 1 and wrapper != 0 and wrapper < last:
        all_flaws |= col.RECORD_WRAPPER_OFFSET
        culprit = culprit if culprit >= 0 else count - 1
    if count == 0:
        all_flaws |= col.RECORD_COUNT_MISMATCH
        culprit = 0
    _store(row, count, (first, least, most), (nulls, first_null), (all_flaws, culprit), out)


@kernel
def _store(
    row: int,
    count: int,
    times: tuple[int, int, int],
    nulls: tuple[int, int],
    flaws: tuple[int, int],
    out: RecordSummary,
) -> None:
    """Write one summary: ``times`` are the first, least and largest; the pairs are how many or which, and the first."""
    out.present[row] = count
    if count > 0:
        out.first_timestamp[row], out.min_timestamp[row], out.max_timestamp[row] = times
    out.null_keys[row], out.first_null_key[row] = nulls
    out.flaws[row], out.first_flaw[row] = flaws


@kernel
def _summarise(bodies: Bodies, batches: BatchColumns, out: RecordSummary) -> None:
    """Fill the summaries of the batches that ``bodies`` has."""
    for i in range(bodies.rows.size):
        row, start, end = bodies.rows[i], bodies.starts[i], bodies.ends[i]
        if start < 0 or end > bodies.data.size or start > end:
            raise ValueError("a body outside of its buffer")
        out.plain_size[row] = end - start
        if batches.magic[row] == 2:
            _summarise_records(bodies.data, start, end, row, batches, out)
        else:
            _summarise_messages(bodies.data, start, end, row, batches, out)


def empty_summary(rows: int) -> RecordSummary:
    """Summaries of ``rows`` batches without records."""
    return RecordSummary(*(np.full(rows, value, dtype) for value, dtype in zip(NOTHING, DTYPES, strict=True)))


def summarise(
    buf: np.ndarray, origin: int, batches: BatchColumns, limits: Limits
) -> tuple[RecordSummary, list[tuple[int, Failure]]]:
    """The summary of each batch, and the rows of those that could not be opened, with the reason.

    ``buf`` holds the stored bytes, ``origin`` is the file position of ``buf[0]``. Legacy wrappers must have been opened
    before (:func:`connectors.codec.legacy.open_wrappers`). Cost: decompression, and one pass over the plain bytes.
    """
    summary = empty_summary(len(batches.position))
    failures: list[tuple[int, Failure]] = []
    for bodies in plain_bodies(buf, origin, batches, limits, failures):
        _summarise(bodies, batches, summary)
    for row, _failure in failures:
        summary.flaws[row] |= col.RECORD_UNDECOMPRESSABLE
        summary.first_flaw[row] = 0
    return summary, failures


def joined(parts: list[RecordSummary] | None) -> RecordSummary | None:
    """Summaries of batches that follow each other as one; None for None."""
    if parts is None:
        return None
    if not parts:
        return empty_summary(0)
    return RecordSummary(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
