"""The records inside batches, of every magic and codec."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from auditor.base.compiled import kernel
from auditor.base.errors import DEFAULT_LIMITS, SEQUENCES, DecodeError, Limits
from auditor.connectors.codec import batches as col
from auditor.connectors.codec.batches import (
    CODEC_MASK,
    LOG_APPEND_TIME,
    BatchColumns,
    Bodies,
    RecordColumns,
    RecordSummary,
    columns_of,
    empty_records,
    next_message,
    open_wrappers,
    plain_bodies,
    runs,
    walk,
    walk_rows,
)
from auditor.connectors.codec.compression import Failure
from auditor.connectors.codec.primitives import le64, varint, varlong

# One record of magic 2 in a batch's plain body (KIP-98, ``DefaultRecord``; headers: KIP-82).


@kernel
def next_record(
    buf: np.ndarray, position: int, end: int
) -> tuple[int, np.int64, np.int64, int, np.int64, int, np.int64, np.int64, int]:
    """The record at ``position``.

    Index after it, timestamp delta, offset delta, key start and size, value start and size (sizes -1 for null), number
    of headers, RECORD_* bits. The index is -1 if the length does not fit before ``end``; a record that does not fill
    its length, or overruns it, is flagged.
    """
    nothing = np.int64(-1)
    length, position = varint(buf, position, end)
    if position < 0 or length < 0 or length > end - position:
        return -1, nothing, nothing, -1, nothing, -1, nothing, nothing, col.RECORD_LENGTH
    stop = position + length
    timestamp, position = varlong(buf, position + 1, stop)  # behind one byte of attributes
    if position < 0:
        return stop, nothing, nothing, -1, nothing, -1, nothing, nothing, col.RECORD_LENGTH
    delta, position = varint(buf, position, stop)
    key_size, key_start = varint(buf, position, stop) if position >= 0 else (nothing, -1)
    if key_start < 0 or key_size > stop - key_start:
        return stop, timestamp, delta, -1, nothing, -1, nothing, nothing, col.RECORD_LENGTH
    value_size, value_start = varint(buf, key_start + max(key_size, 0), stop)
    if value_start < 0 or value_size > stop - value_start:
        return stop, timestamp, delta, key_start, key_size, -1, nothing, nothing, col.RECORD_LENGTH
    headers, position = varint(buf, value_start + max(value_size, 0), stop)
    flaws = col.RECORD_LENGTH if key_size < -1 or value_size < -1 or headers < 0 else 0
    left = headers
    while position >= 0 and left > 0:
        size, position = varint(buf, position, stop)
        if size < 0:
            flaws |= col.RECORD_HEADER_KEY_NULL
        if position < 0 or size > stop - position:
            position = -1
            break
        size, position = varint(buf, position + max(size, 0), stop)
        if position < 0 or size > stop - position:
            position = -1
            break
        position += max(size, 0)
        left -= 1
    if position != stop:
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


# Summaries of all records of a batch, one row each.


DTYPES = ("i4", "i8", "i8", "i8", "i4", "i4", "i4", "i4", "i8")
NOTHING = (0, -1, -1, -1, 0, -1, 0, -1, 0)  # of a batch without records
_NO_ROWS = empty_records()


@kernel
def _put(
    to: int,
    place: tuple[int, int, int, int],
    key: tuple[int, int],
    value: tuple[int, int],
    more: tuple[int, int, int, int],
    shift: int,
    out: RecordColumns,
) -> None:
    # place: batch, index, offset, timestamp; key and value: start and size; more: sequence, number of headers, its
    # index, flaws. Starts are reduced by shift, and not stored without payload.
    out.batch[to], out.index[to], out.offset[to], out.timestamp[to] = place
    out.key_size[to] = key[1]
    out.value_size[to] = value[1]
    out.sequence[to], out.header_count[to], header_start, out.flaws[to] = more
    if out.key_start.size:
        out.key_start[to] = key[0] - shift if key[1] >= 0 else -1
        out.value_start[to] = value[0] - shift if value[1] >= 0 else -1
        out.header_start[to] = header_start - shift if header_start >= 0 else -1


@kernel
def _sequence(base: int, delta: int) -> int:
    # Wraps as DefaultRecordBatch.incrementSequence; none (-1) stays none.
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
    # Returns the number of records; rows beyond the size of out are not filled. After the declared records only sound
    # ones count.
    position, end = bounds
    to, shift = place
    declared = np.int64(batches.record_count[row])
    base_offset, base_sequence = batches.base_offset[row], np.int64(batches.base_sequence[row])
    base, append_time = batches.base_timestamp[row], batches.attributes[row] & LOG_APPEND_TIME != 0
    span = batches.last_offset[row] - base_offset
    first, least, most, previous = np.int64(-1), np.int64(2**63 - 1), np.int64(-(2**63)), np.int64(-1)
    count, nulls, first_null, all_flaws, culprit = 0, 0, -1, 0, -1
    while position < end:
        position, delta_ms, delta, key_start, key_size, value_start, value_size, headers, flaws = next_record(
            buf, position, end
        )
        late = count >= declared
        unreadable = position < 0 or (late and flaws != 0)
        if position >= 0 and (delta <= previous or delta > span):
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
    # As _read_records, for a message, or for a wrapper from its inner messages.
    position, end = bounds
    to, shift = place
    magic = np.int64(batches.magic[row])
    wrapped = batches.attributes[row] & CODEC_MASK != 0
    append_time = magic == 1 and batches.attributes[row] & LOG_APPEND_TIME != 0
    start = stamp = last = np.int64(-1)
    least, most = np.int64(2**63 - 1), np.int64(-(2**63))
    count, nulls, first_null, all_flaws, culprit = 0, 0, -1, 0, -1
    while position < end:
        position, offset, timestamp, key_start, key_size, value_start, value_size, flaws = next_message(
            buf, position, end, magic
        )
        if not wrapped:
            flaws &= col.RECORD_LENGTH  # its checksum and codec are the batch's own
        elif position >= 0 and count > 0 and offset <= last:
            flaws |= col.RECORD_OFFSET_DELTA
        if flaws and culprit < 0:
            culprit = count
        all_flaws |= flaws
        if position < 0:
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
    # times: first, least and largest; nulls: number and first; flaws: bits and first record.
    out.present[row] = count
    if count > 0:
        out.first_timestamp[row], out.min_timestamp[row], out.max_timestamp[row] = times
    out.null_keys[row], out.first_null_key[row] = nulls
    out.flaws[row], out.first_flaw[row] = flaws


@kernel
def read_bodies(
    bodies: Bodies, batches: BatchColumns, summary: RecordSummary, shift: int, most: int, out: RecordColumns
) -> int:
    """Fill the summaries of the batches of ``bodies``, and ``out`` with their records; return the number of records.

    There may be more than ``out`` has rows, which are not filled. A batch of more than ``most`` records fills none.
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

    ``buf`` has the stored bytes, ``origin`` is the file position of ``buf[0]``. Legacy wrappers must have been opened
    before (:func:`auditor.connectors.codec.batches.open_wrappers`). Cost: decompression, and one pass over the plain
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
    """Concatenate summaries of consecutive batches; None for None."""
    if parts is None:
        return None
    if not parts:
        return empty_summary(0)
    return RecordSummary(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


# Records of batches, of every magic and codec: as columns for tables, or one by one for the internal topics.


ATTRIBUTES_AT = 22  # byte of a batch of magic 2 that names its codec
LEAST_RECORD = 7  # bytes of a record without flaws
# Of a summary: the records are not exactly those declared.
BROKEN = col.RECORD_COUNT_MISMATCH | col.RECORD_BYTES_LEFT | col.RECORD_UNDECOMPRESSABLE
UNRELIABLE = col.RECORD_LENGTH | col.RECORD_HEADER_KEY_NULL  # of a record: its content cannot be relied on


class Decoded(NamedTuple):
    """The records of a run of batches.

    ``rows`` are the batches' rows, ``records`` and ``summary`` theirs (column ``batch`` counts as ``rows`` does),
    ``failures`` those that could not be opened, with the reason.
    """

    rows: slice
    records: RecordColumns
    summary: RecordSummary
    failures: dict[int, Failure]

    def stored(self, number: int) -> tuple[bytes | None, bytes | None]:
        """Key and value of a record as stored, if the run was opened with its payload."""
        r = self.records
        places = (r.key_start[number], r.key_size[number]), (r.value_start[number], r.value_size[number])
        key, value = (None if size < 0 else r.payload[start : start + size].tobytes() for start, size in places)
        return key, value


def decode_records(
    raw: Sequence[bytes], batches: BatchColumns, *, limits: Limits = DEFAULT_LIMITS, payload: bool = False
) -> Iterator[Decoded]:
    """Decode the records of ``batches``, whose stored bytes are ``raw`` (as in
    :class:`auditor.connectors.codec.segment.Chunk`).

    In runs of at most 2 MiB of plain bytes or one batch, so that memory is bounded by that and 70 bytes per record. A
    batch of more than ``limits.max_records`` yields none, and a failure of reason ``limit``. Offsets are absolute and
    timestamps as a consumer sees them, for every magic. With ``payload``, keys and values are in ``records.payload``:
    the plain bodies of the run. Cost: decompression, and one pass over the records unless a batch has more than it
    declares.
    """
    batches = _as_stored(raw, batches)
    for rows in runs(batches.size):
        some = batches.take(rows)
        some = some._replace(position=np.cumsum(some.size, dtype=np.int64) - some.size)
        buf = np.frombuffer(bytearray().join(raw[rows]), np.uint8)  # as in iter_records
        for run in decode_stored(buf, 0, some, limits=limits, payload=payload):
            yield _moved(run, rows.start) if rows.start else run


def _as_stored(raw: Sequence[bytes], batches: BatchColumns) -> BatchColumns:
    # A copy without payload stores batches plain that were compressed; the codec of their bytes counts.
    sizes = np.array([len(stored) for stored in raw], batches.size.dtype)
    if len(sizes) != len(batches.size):
        raise ValueError("the stored bytes are not those of the batches")
    attributes = batches.attributes.copy()
    for row in np.flatnonzero((attributes & CODEC_MASK != 0) & (batches.magic == 2)).tolist():
        attributes[row] = attributes[row] & ~CODEC_MASK | raw[row][ATTRIBUTES_AT] & CODEC_MASK
    return batches._replace(size=sizes, attributes=attributes)


def decode_stored(
    buf: np.ndarray, origin: int, batches: BatchColumns, *, limits: Limits = DEFAULT_LIMITS, payload: bool = False
) -> Iterator[Decoded]:
    """As :func:`decode_records`, for batches whose stored bytes are in ``buf``; ``origin`` is the file position of
    ``buf[0]``.

    If all are stored plain, they are one run.
    """
    failed: list[tuple[int, Failure]] = []
    summary = empty_summary(len(batches.position))
    start = 0
    for bodies in plain_bodies(buf, origin, batches, limits, failed):
        records = _records(bodies, batches, summary, limits, payload)
        rows = slice(start, bodies.stop)
        failures = dict(failed)
        for row in failures:
            summary.flaws[row] |= col.RECORD_UNDECOMPRESSABLE
            summary.first_flaw[row] = 0
        for row in (start + np.flatnonzero(summary.present[rows] > limits.max_records)).tolist():
            failures[row] = Failure("limit", f"{summary.present[row]} records, limit {limits.max_records}")
            summary.present[row] = 0
            summary.flaws[row] |= col.RECORD_UNDECOMPRESSABLE
        yield Decoded(rows, records, summary.take(rows), failures)
        failed.clear()
        start = bodies.stop


def _records(
    bodies: Bodies, batches: BatchColumns, summary: RecordSummary, limits: Limits, payload: bool
) -> RecordColumns:
    first = int(bodies.starts.min(initial=len(bodies.data)))
    declared = np.clip(batches.record_count[bodies.rows], 0, limits.max_records)
    room = int(np.minimum(declared, (bodies.ends - bodies.starts) // LEAST_RECORD).sum())
    records = empty_records(room, payload)
    read = read_bodies(bodies, batches, summary, first, limits.max_records, records)
    if read > room:
        records = empty_records(read, payload)
        read_bodies(bodies, batches, summary, first, limits.max_records, records)
    if read < room:
        records = RecordColumns._make(column[:read] for column in records)
    if payload:
        return records._replace(payload=bodies.data[first : bodies.ends.max(initial=first)].copy())
    unknown = np.broadcast_to(np.int64(-1), read)
    return records._replace(key_start=unknown, value_start=unknown, header_start=unknown)


def _moved(run: Decoded, by: int) -> Decoded:
    run.records.batch[:] += by
    rows = slice(run.rows.start + by, run.rows.stop + by)
    return run._replace(rows=rows, failures={row + by: failure for row, failure in run.failures.items()})


class Record(NamedTuple):
    """A record as a consumer sees it; ``headers`` are key and value pairs, ``timestamp`` is ms since the epoch."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


def records_of(
    raw: Sequence[bytes], batches: BatchColumns, *, file: str, limits: Limits = DEFAULT_LIMITS
) -> Iterator[tuple[int, Record | DecodeError]]:
    """Each record of ``batches`` with its batch's row, in log order.

    A record that does not parse is an error in its place; a batch with another number of records than declared, or that
    cannot be opened, has an error after its records. Errors have ``file`` and the batch's position and size. Checksums
    are not verified. Cost: as :func:`decode_records`, and about a microsecond per record.
    """
    for run in decode_records(raw, batches, limits=limits, payload=True):
        yield from _records_of_run(run, batches, file, limits)


def _records_of_run(
    run: Decoded, batches: BatchColumns, file: str, limits: Limits
) -> Iterator[tuple[int, Record | DecodeError]]:
    ends = np.cumsum(run.summary.present).tolist()
    start = 0
    for row, end, flaws in zip(range(run.rows.start, run.rows.stop), ends, run.summary.flaws.tolist(), strict=True):
        where = (file, int(batches.position[row]), int(batches.size[row]))
        for record in _run_records(run, start, end, limits):
            yield row, DecodeError(*where, *record) if isinstance(record, Failure) else record
        start = end
        if flaws & BROKEN:
            failure = run.failures.get(row) or Failure("bad_record", "the records are not those declared")
            yield row, DecodeError(*where, *failure)


def sound(run: Decoded, limits: Limits) -> np.ndarray:
    """The numbers of a run's records whose content is reliable."""
    return np.flatnonzero((run.records.flaws & UNRELIABLE == 0) & (run.records.header_count <= limits.max_headers))


def failures_of(run: Decoded, batches: BatchColumns, file: str, limits: Limits) -> list[DecodeError]:
    """The errors that :func:`records_of` yields for a run of ``batches``, in the same order."""
    broken = np.flatnonzero(run.summary.flaws & BROKEN)
    if not len(broken) and len(sound(run, limits)) == len(run.records.offset):
        return []
    return [record for _, record in _records_of_run(run, batches, file, limits) if isinstance(record, DecodeError)]


def _run_records(run: Decoded, start: int, stop: int, limits: Limits) -> Iterator[Record | Failure]:
    records, payload = run.records, run.records.payload.data
    span = slice(start, stop)
    columns = (records.offset, records.timestamp, records.key_start, records.key_size, records.value_start)
    more = (records.value_size, records.header_count, records.header_start, records.flaws)
    for offset, timestamp, key_at, key_size, value_at, value_size, count, headers_at, flaws in zip(
        *(column[span].tolist() for column in (*columns, *more)), strict=True
    ):
        if flaws & UNRELIABLE:
            yield Failure("bad_record", f"the record at offset {offset} does not parse")
        elif count > limits.max_headers:
            yield Failure("limit", f"the record at offset {offset} has {count} headers")
        else:
            key = None if key_size < 0 else bytes(payload[key_at : key_at + key_size])
            value = None if value_size < 0 else bytes(payload[value_at : value_at + value_size])
            yield Record(offset, timestamp, key, value, _headers(records.payload, headers_at) if count else ())


def _headers(payload: np.ndarray, position: int) -> tuple[tuple[bytes, bytes | None], ...]:
    # The record has parsed; position is that of the number of headers.
    end = len(payload)
    count, position = varint(payload, position, end)
    headers = []
    for _ in range(count):
        size, position = varint(payload, position, end)
        key = payload[position : position + size].tobytes()
        size, position = varint(payload, position + size, end)
        headers.append((key, None if size < 0 else payload[position : position + size].tobytes()))
        position += max(size, 0)
    return tuple(headers)


def iter_records(
    batch: bytes, *, file: str = "", position: int = 0, limits: Limits = DEFAULT_LIMITS
) -> Iterator[Record | DecodeError]:
    """The records of one whole stored batch, message or wrapper, as :func:`records_of`; one error for other bytes."""
    buf = np.frombuffer(bytearray(batch), np.uint8)  # kernels are compiled for arrays that can be written
    row = walk_rows(1)
    limit = limits.max_batch_bytes
    rows, end, _why = walk(buf, 0, len(buf), position, position + 1, limit, False, 0, row, position)
    if rows != 1 or end != len(buf):
        yield DecodeError(file, position, len(batch), "bad_record", "not the bytes of one batch")
        return
    batches = columns_of(row)
    open_wrappers(buf, position, batches, limits)
    for _row, record in records_of([batch], batches, file=file, limits=limits):
        yield record


# Interned byte strings (ids, groups, lists of partitions), numbered from 0 in the order of their first occurrence.
# Memory: the distinct bytes, about 30 bytes more per string, and at most ``limit`` bytes of strings.


LEAST_SLOTS = 1 << 10
COUNT, USED = 0, 1  # of Interner.meta
FULL = -1  # in place of a number: the string is new, and the limit is reached


@kernel
def _hash(data: np.ndarray, start: int, size: int, seed: np.uint64) -> np.uint64:
    h = seed ^ np.uint64(size)
    position, end = start, start + size
    while position + 8 <= end:
        h = (h ^ np.uint64(le64(data, position))) * np.uint64(0x9E3779B97F4A7C15)
        h ^= h >> np.uint64(29)
        position += 8
    while position < end:
        h = (h ^ np.uint64(data[position])) * np.uint64(0x9E3779B97F4A7C15)
        position += 1
    h ^= h >> np.uint64(32)
    h *= np.uint64(0xD6E8FEB86659FD93)
    return h ^ (h >> np.uint64(32))


@kernel
def _same(data: np.ndarray, start: int, arena: np.ndarray, begin: int, size: int) -> bool:
    k = 0
    while k + 8 <= size:
        if le64(data, start + k) != le64(arena, begin + k):
            return False
        k += 8
    while k < size:
        if data[start + k] != arena[begin + k]:
            return False
        k += 1
    return True


@kernel
def intern_one(
    data: np.ndarray,
    start: int,
    size: int,
    limit: int,
    seed: np.uint64,
    slots: np.ndarray,
    hashes: np.ndarray,
    ends: np.ndarray,
    arena: np.ndarray,
    meta: np.ndarray,
) -> np.int64:
    """The number of ``data[start:start + size]``; FULL if it is new and the limit is reached."""
    h = _hash(data, start, size, seed)
    mask = len(slots) - 1
    slot = np.int64(h & np.uint64(mask))
    while slots[slot] >= 0:
        code = slots[slot]
        begin = ends[code]
        if hashes[code] == h and ends[code + 1] - begin == size and _same(data, start, arena, begin, size):
            return np.int64(code)
        slot = (slot + 1) & mask
    used = meta[USED]
    if used + size > limit:
        return np.int64(FULL)
    code = meta[COUNT]
    slots[slot], hashes[code] = code, h
    for k in range(size):
        arena[used + k] = data[start + k]
    ends[code + 1] = used + size
    meta[COUNT], meta[USED] = code + 1, used + size
    return np.int64(code)


@kernel
def _intern(
    data: np.ndarray,
    starts: np.ndarray,
    sizes: np.ndarray,
    limit: int,
    seed: np.uint64,
    slots: np.ndarray,
    hashes: np.ndarray,
    ends: np.ndarray,
    arena: np.ndarray,
    meta: np.ndarray,
    out: np.ndarray,
) -> None:
    for k in range(len(starts)):
        out[k] = intern_one(data, starts[k], sizes[k], limit, seed, slots, hashes, ends, arena, meta)


@kernel
def _rehash(hashes: np.ndarray, count: int, slots: np.ndarray) -> None:
    mask = len(slots) - 1
    for code in range(count):
        slot = np.int64(hashes[code] & np.uint64(mask))
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = code


class Interner:
    """A growing dictionary of byte strings. Hashes use a random seed, so that no input can force collisions."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.seed = np.uint64(int.from_bytes(os.urandom(8), "little"))
        self.slots = np.full(LEAST_SLOTS, -1, np.int32)
        self.hashes = np.empty(LEAST_SLOTS // 2, np.uint64)
        self.ends = np.zeros(LEAST_SLOTS // 2 + 1, np.int64)
        self.arena = np.empty(1 << 16, np.uint8)
        self.meta = np.zeros(2, np.int64)

    def __len__(self) -> int:
        return int(self.meta[COUNT])

    def codes(self, data: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """The number (int64) of each ``data[start:start + size]``, FULL if the limit is reached."""
        out = np.empty(len(starts), np.int64)
        self._make_room(len(starts), int(sizes.sum()))
        _intern(
            data, starts, sizes, self.limit, self.seed, self.slots, self.hashes, self.ends, self.arena, self.meta, out
        )
        return out

    def code(self, text: bytes) -> int:
        """The number of one string."""
        data = np.frombuffer(bytearray(text), np.uint8)
        return int(self.codes(data, np.zeros(1, np.int64), np.full(1, len(text), np.int64))[0])

    def _make_room(self, more: int, size: int) -> None:
        count, used = int(self.meta[COUNT]), int(self.meta[USED])
        if count + more > len(self.hashes):
            room = max(count + more, len(self.hashes) * 3 // 2)
            self.hashes = np.append(self.hashes[:count], np.empty(room - count, np.uint64))
            self.ends = np.append(self.ends[: count + 1], np.empty(room - count, np.int64))
        if (count + more) * 2 > len(self.slots):
            self.slots = np.full(1 << ((count + more) * 2 - 1).bit_length(), -1, np.int32)
            _rehash(self.hashes, count, self.slots)
        need = min(used + size, max(self.limit, used))
        if need > len(self.arena):
            room = min(max(need, len(self.arena) * 3 // 2), max(self.limit, need))
            self.arena = np.append(self.arena[:used], np.empty(room - used, np.uint8))

    def bytes_of(self, code: int) -> bytes:
        """The string of a number."""
        return self.arena[self.ends[code] : self.ends[code + 1]].tobytes()

    def texts(self) -> list[str]:
        """All strings as text, by number; bytes that are not UTF-8 as in Java."""
        data = self.arena[: self.meta[USED]].tobytes()
        ends = self.ends[: len(self) + 1].tolist()
        return [data[start:end].decode("utf-8", "replace") for start, end in itertools.pairwise(ends)]
