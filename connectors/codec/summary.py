"""What reading all records of a batch shows, summed up in one row a batch."""

from __future__ import annotations

import numpy as np

from auditor.base.compiled import kernel
from auditor.base.errors import Limits
from auditor.base.numbers import SEQUENCES
from auditor.connectors.codec import batch_columns as col
from auditor.connectors.codec.batch import CODEC_MASK, LOG_APPEND_TIME
from auditor.connectors.codec.batch_columns import BatchColumns, RecordColumns, RecordSummary, empty_records
from auditor.connectors.codec.bodies import Bodies, plain_bodies
from auditor.connectors.codec.compression import Failure
from auditor.connectors.codec.legacy import next_message
from auditor.connectors.codec.record import next_record

DTYPES = ("i4", "i8", "i8", "i8", "i4", "i4", "i4", "i4", "i8")
NOTHING = (0, -1, -1, -1, 0, -1, 0, -1, 0)  # of a batch without records
_NO_ROWS = empty_records()


@kernel
def _put(
    to: int,
    at: tuple[int, int, int, int],
    key: tuple[int, int],
    value: tuple[int, int],
    more: tuple[int, int, int, int],
    shift: int,
    out: RecordColumns,
) -> None:
    """Fill row ``to``.

    ``at`` is batch, index, offset, timestamp; key and value are start and size; ``more`` is sequence, number of
    headers, where that stands, flaws. Starts are given less ``shift``, and not at all where there is no room.
    """
    out.batch[to], out.index[to], out.offset[to], out.timestamp[to] = at
    out.key_size[to] = key[1]
    out.value_size[to] = value[1]
    out.sequence[to], out.header_count[to], header_start, out.flaws[to] = more
    if out.key_start.size:
        out.key_start[to] = key[0] - shift if key[1] >= 0 else -1
        out.value_start[to] = value[0] - shift if value[1] >= 0 else -1
        out.header_start[to] = header_start - shift if header_start >= 0 else -1


@kernel
def _sequence(base: int, delta: int) -> int:
    """That of the record ``delta`` offsets behind the first: after 2147483647 comes 0, and none (-1) stays none."""
    following = base + delta
    if base == -1:
        return -1
    return following - SEQUENCES if following >= SEQUENCES else following


@kernel
def _read_records(
    buf: np.ndarray,
    bounds: tuple[int, int],
    row: int,
    batches: BatchColumns,
    summary: RecordSummary,
    place: tuple[int, int],
    out: RecordColumns,
) -> int:
    """Read a batch (magic 2) from the body within ``bounds``: its summary, and its records from row ``place[0]`` of
    ``out`` on; how many. Rows that ``out`` has no room for are not filled. Behind the declared records only sound ones
    count.
    """
    at, end = bounds
    to, shift = place
    declared = np.int64(batches.record_count[row])
    base_offset, base_sequence = batches.base_offset[row], np.int64(batches.base_sequence[row])
    base, append_time = batches.base_timestamp[row], batches.attributes[row] & LOG_APPEND_TIME != 0
    span = batches.last_offset[row] - base_offset
    first, least, most, previous = np.int64(-1), np.int64(2**63 - 1), np.int64(-(2**63)), np.int64(-1)
    count, nulls, first_null, all_flaws, culprit = 0, 0, -1, 0, -1
    while at < end:
        at, delta_ms, delta, key_start, key_size, value_start, value_size, headers, flaws = next_record(buf, at, end)
        late = count >= declared
        unreadable = at < 0 or (late and flaws != 0)
        if at >= 0 and (delta <= previous or delta > span):
            flaws |= col.RECORD_OFFSET_DELTA
        if late:
            flaws |= col.RECORD_BYTES_LEFT
        if flaws and culprit < 0:
            culprit = count
        all_flaws |= col.RECORD_BYTES_LEFT if late else flaws
        if unreadable:
            break
        if to + count < out.offset.size:
            header_start = value_start + max(value_size, 0) if value_start >= 0 else np.int64(-1)
            when = batches.max_timestamp[row] if append_time else base + delta_ms
            more = (_sequence(base_sequence, delta), headers, header_start, flaws)
            whose = (row, count, base_offset + delta, when)
            _put(to + count, whose, (key_start, key_size), (value_start, value_size), more, shift, out)
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
    _store(row, count, (base + first, base + least, base + most), (nulls, first_null), (all_flaws, culprit), summary)
    return count


@kernel
def _read_messages(
    buf: np.ndarray,
    bounds: tuple[int, int],
    row: int,
    batches: BatchColumns,
    summary: RecordSummary,
    place: tuple[int, int],
    out: RecordColumns,
) -> int:
    """The same for a message, or for a wrapper from the messages inside."""
    at, end = bounds
    to, shift = place
    magic = np.int64(batches.magic[row])
    wrapped = batches.attributes[row] & CODEC_MASK != 0
    append_time = magic == 1 and batches.attributes[row] & LOG_APPEND_TIME != 0
    start = stamp = last = np.int64(-1)
    least, most = np.int64(2**63 - 1), np.int64(-(2**63))
    count, nulls, first_null, all_flaws, culprit = 0, 0, -1, 0, -1
    while at < end:
        at, offset, timestamp, key_start, key_size, value_start, value_size, flaws = next_message(buf, at, end, magic)
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
        if count == 0:
            start, stamp = offset, timestamp
        if to + count < out.offset.size:
            when = batches.max_timestamp[row] if append_time else timestamp
            whose = (row, count, batches.base_offset[row] + offset - start, when)
            _put(to + count, whose, (key_start, key_size), (value_start, value_size), (-1, 0, -1, flaws), shift, out)
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
    _store(row, count, (stamp, least, most), (nulls, first_null), (all_flaws, culprit), summary)
    return count


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
def read_bodies(
    bodies: Bodies, batches: BatchColumns, summary: RecordSummary, shift: int, most: int, out: RecordColumns
) -> int:
    """Fill the summaries of the batches that ``bodies`` has, and ``out`` with their records; how many those are.

    There may be more than ``out`` has room for, which are not filled. Of a batch of more than ``most`` records none is.
    Key, value and header starts are indexes of ``bodies.data`` less ``shift``.
    """
    to = 0
    for i in range(bodies.rows.size):
        row, start, end = bodies.rows[i], bodies.starts[i], bodies.ends[i]
        if start < 0 or end > bodies.data.size or start > end:
            raise ValueError("a body outside of its buffer")
        summary.plain_size[row] = end - start
        if batches.magic[row] == 2:
            count = _read_records(bodies.data, (start, end), row, batches, summary, (to, shift), out)
        else:
            count = _read_messages(bodies.data, (start, end), row, batches, summary, (to, shift), out)
        to += count if count <= most else 0
    return to


def empty_summary(rows: int) -> RecordSummary:
    """Summaries of ``rows`` batches without records."""
    return RecordSummary(*(np.full(rows, value, dtype) for value, dtype in zip(NOTHING, DTYPES, strict=True)))


def summarise(
    buf: np.ndarray, origin: int, batches: BatchColumns, limits: Limits
) -> tuple[RecordSummary, list[tuple[int, Failure]]]:
    """The summary of each batch, and the rows of those that could not be opened, with the reason.

    ``buf`` holds the stored bytes, ``origin`` is the file position of ``buf[0]``. Legacy wrappers must have been opened
    before (:func:`auditor.connectors.codec.legacy.open_wrappers`). Cost: decompression, and one pass over the plain
    bytes.
    """
    summary = empty_summary(len(batches.position))
    failures: list[tuple[int, Failure]] = []
    for bodies in plain_bodies(buf, origin, batches, limits, failures):
        read_bodies(bodies, batches, summary, 0, 0, _NO_ROWS)
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
