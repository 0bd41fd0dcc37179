"""The records of batches, of every magic and codec: as columns for tables, or one by one for the internal topics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from connectors.codec import columns as col
from connectors.codec.batch import CODEC_MASK, LOG_APPEND_TIME, columns_of, walk, walk_rows
from connectors.codec.bodies import Bodies, plain_bodies
from connectors.codec.columns import BatchColumns, RecordColumns, RecordSummary
from connectors.codec.compiled import kernel
from connectors.codec.compression import Failure
from connectors.codec.legacy import next_message, open_wrappers
from connectors.codec.primitives import varint
from connectors.codec.record import next_record
from connectors.codec.summary import summarise
from connectors.errors import DecodeError
from connectors.limits import DEFAULT_LIMITS, MIB, Limits

DTYPES = ("i4", "i4", "i8", "i8", "i4", "i4", "i4", "i4", "i8", "i8")  # of RecordColumns but its payload
RUN_BYTES = 16 * MIB  # of plain bodies whose records are decoded at a time
# Of a summary: not all declared records could be read, or not they alone.
BROKEN = col.RECORD_COUNT_MISMATCH | col.RECORD_BYTES_LEFT | col.RECORD_UNDECOMPRESSABLE
UNSOUND = col.RECORD_LENGTH | col.RECORD_HEADER_KEY_NULL  # of a record: its content cannot be relied on


@kernel
def _put(
    to: int, at: tuple[int, int, int, int], key: tuple[int, int], value: tuple[int, int], out: RecordColumns
) -> None:
    """Fill row ``to`` with a record: ``at`` is batch, index, offset and timestamp; key and value are start and size."""
    out.batch[to], out.index[to], out.offset[to], out.timestamp[to] = at
    out.key_size[to] = key[1]
    out.value_size[to] = value[1]
    out.key_start[to] = key[0] if key[1] >= 0 else -1
    out.value_start[to] = value[0] if value[1] >= 0 else -1


@kernel
def _fill_records(
    buf: np.ndarray,
    bounds: tuple[int, int],
    rows: tuple[int, int, int],
    batches: BatchColumns,
    out: RecordColumns,
    header_start: np.ndarray,
) -> None:
    """Fill the rows of one batch's records from the body within ``bounds``: ``rows`` is batch, first row, how many."""
    row, to, count = rows
    at, end = bounds
    span = batches.last_offset[row] - batches.base_offset[row]
    append_time = batches.attributes[row] & LOG_APPEND_TIME != 0
    previous = np.int64(-1)
    for index in range(count):
        at, timestamp, delta, key_start, key_size, value_start, value_size, headers, flaws = next_record(buf, at, end)
        if delta <= previous or delta > span:
            flaws |= col.RECORD_OFFSET_DELTA
        if index >= batches.record_count[row]:
            flaws |= col.RECORD_BYTES_LEFT
        previous = max(previous, delta)
        when = batches.max_timestamp[row] if append_time else batches.base_timestamp[row] + timestamp
        place = (row, index, batches.base_offset[row] + delta, when)
        _put(to + index, place, (key_start, key_size), (value_start, value_size), out)
        out.header_count[to + index] = headers
        out.flaws[to + index] = flaws
        header_start[to + index] = value_start + max(value_size, 0) if value_start >= 0 else -1


@kernel
def _fill_messages(
    buf: np.ndarray, bounds: tuple[int, int], rows: tuple[int, int, int], batches: BatchColumns, out: RecordColumns
) -> None:
    """The same for an uncompressed message, or for those in a wrapper."""
    row, to, count = rows
    at, end = bounds
    magic = np.int64(batches.magic[row])
    wrapped = batches.attributes[row] & CODEC_MASK != 0
    append_time = magic == 1 and batches.attributes[row] & LOG_APPEND_TIME != 0
    first = last = np.int64(-1)
    for index in range(count):
        at, offset, timestamp, key_start, key_size, value_start, value_size, flaws = next_message(buf, at, end, magic)
        if not wrapped:
            flaws &= col.RECORD_LENGTH
        elif index > 0 and offset <= last:
            flaws |= col.RECORD_OFFSET_DELTA
        first = offset if index == 0 else first
        last = offset
        when = batches.max_timestamp[row] if append_time else timestamp
        place = (row, index, batches.base_offset[row] + offset - first, when)
        _put(to + index, place, (key_start, key_size), (value_start, value_size), out)
        out.header_count[to + index] = 0
        out.flaws[to + index] = flaws


@kernel
def _fill(
    bodies: Bodies, counts: np.ndarray, to: int, batches: BatchColumns, out: RecordColumns, header_start: np.ndarray
) -> None:
    """Fill ``out`` from row ``to`` on with the records of ``bodies``, ``counts`` of each, as a summary counted them."""
    for i in range(bodies.rows.size):
        row = bodies.rows[i]
        bounds = (bodies.starts[i], bodies.ends[i])
        if batches.magic[row] == 2:
            _fill_records(bodies.data, bounds, (row, to, counts[i]), batches, out, header_start)
        else:
            _fill_messages(bodies.data, bounds, (row, to, counts[i]), batches, out)
            header_start[to : to + counts[i]] = -1
        to += counts[i]


class Decoded(NamedTuple):
    """The records of a run of batches.

    ``rows`` are the batches' rows, ``records`` and ``summary`` theirs (the column ``batch`` counts as ``rows`` does),
    ``failures`` those that could not be opened, with the reason. ``header_start`` is, by record, where the number of
    headers stands in ``records.payload``; -1 where there is none.
    """

    rows: slice
    records: RecordColumns
    summary: RecordSummary
    failures: dict[int, Failure]
    header_start: np.ndarray


def decode_records(
    raw: Sequence[bytes], batches: BatchColumns, *, limits: Limits = DEFAULT_LIMITS, payload: bool = False
) -> Iterator[Decoded]:
    """The records of ``batches``, whose stored bytes are ``raw`` (as in :class:`connectors.codec.segment.Chunk`).

    In runs of at most 16 MiB of plain bytes or one batch, so that no input grows beyond that and 60 bytes a record. A
    batch of more than ``limits.max_records`` gives none, and a failure of reason ``limit``.
    Offsets are absolute and timestamps as a consumer sees them, whatever the magic. With ``payload``, keys and values
    are at hand in ``records.payload``: the plain bodies of the run. Cost: two decompressions, three passes.
    """
    buf, stored = _joined(raw, batches)
    summary, failed = summarise(buf, 0, stored, limits)
    for row in np.flatnonzero(summary.present > limits.max_records).tolist():
        failed.append((row, Failure("limit", f"{summary.present[row]} records, limit {limits.max_records}")))
        summary.present[row] = 0
        summary.flaws[row] |= col.RECORD_UNDECOMPRESSABLE
    for rows in _runs(summary.plain_size):
        present = RecordSummary(*(column[rows] for column in summary))
        records, header_start = _columns(buf, stored.take(rows), present.present, limits, payload)
        records.batch[:] += rows.start
        failures = {row: failure for row, failure in failed if rows.start <= row < rows.stop}
        yield Decoded(rows, records, present, failures, header_start)


def _runs(sizes: np.ndarray) -> Iterator[slice]:
    """Cut rows of these sizes into runs that stay within RUN_BYTES where more than one row is in them."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + RUN_BYTES, side="right")))
        yield slice(start, stop)
        start = stop


def _columns(
    buf: np.ndarray, batches: BatchColumns, present: np.ndarray, limits: Limits, payload: bool
) -> tuple[RecordColumns, np.ndarray]:
    """The ``present`` records of ``batches``, in log order, and their header starts."""
    total = int(present.sum())
    records = RecordColumns._make([*(np.empty(total, dtype) for dtype in DTYPES), np.empty(0, np.uint8)])
    header_start = np.empty(total, np.int64)
    kept: list[np.ndarray] = []
    to = before = 0
    for bodies in plain_bodies(buf, 0, batches, limits, []):
        counts = present[bodies.rows]
        _fill(bodies, counts, to, batches, records, header_start)
        added = slice(to, to + int(counts.sum()))
        to = added.stop
        if payload and len(bodies.rows):
            first = int(bodies.starts.min())
            kept.append(bodies.data[first : bodies.ends.max()].copy())
            for starts in (records.key_start[added], records.value_start[added], header_start[added]):
                starts[starts >= 0] += before - first
            before += len(kept[-1])
    if not payload:
        records.key_start[:] = records.value_start[:] = header_start[:] = -1
    order = np.argsort(records.batch, kind="stable")
    whole = np.concatenate(kept) if kept else np.empty(0, np.uint8)
    return RecordColumns._make([*(column[order] for column in records[:-1]), whole]), header_start[order]


def _joined(raw: Sequence[bytes], batches: BatchColumns) -> tuple[np.ndarray, BatchColumns]:
    """The stored bytes in one array, and the batches with their positions in it."""
    ends = np.cumsum(batches.size, dtype=np.int64)
    joined = np.frombuffer(bytearray().join(raw), np.uint8)  # kernels are compiled for arrays that can be written
    if len(raw) != len(ends) or len(joined) != (ends[-1] if len(ends) else 0):
        raise ValueError("the stored bytes are not those of the batches")
    return joined, batches._replace(position=ends - batches.size)


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

    A record that does not parse is an error in its place; a batch whose records are not as many as declared, or cannot
    be opened, has an error behind its records. Errors carry ``file`` and the batch's position and size. Checksums are
    not looked at. Cost: as :func:`decode_records`, and about a microsecond a record.
    """
    for run in decode_records(raw, batches, limits=limits, payload=True):
        ends = np.cumsum(run.summary.present).tolist()
        at = 0
        for row, end, flaws in zip(range(run.rows.start, run.rows.stop), ends, run.summary.flaws.tolist(), strict=True):
            where = (file, int(batches.position[row]), int(batches.size[row]))
            for record in _run_records(run, at, end, limits):
                yield row, DecodeError(*where, *record) if isinstance(record, Failure) else record
            at = end
            if flaws & BROKEN:
                failure = run.failures.get(row) or Failure("bad_record", "the records are not those declared")
                yield row, DecodeError(*where, *failure)


def _run_records(run: Decoded, start: int, stop: int, limits: Limits) -> Iterator[Record | Failure]:
    """Records ``start`` to ``stop`` of a run."""
    records, payload = run.records, run.records.payload.data
    span = slice(start, stop)
    columns = (records.offset, records.timestamp, records.key_start, records.key_size, records.value_start)
    more = (records.value_size, records.header_count, run.header_start, records.flaws)
    for offset, timestamp, key_at, key_size, value_at, value_size, count, headers_at, flaws in zip(
        *(column[span].tolist() for column in (*columns, *more)), strict=True
    ):
        if flaws & UNSOUND:
            yield Failure("bad_record", f"the record at offset {offset} does not parse")
        elif count > limits.max_headers:
            yield Failure("limit", f"the record at offset {offset} has {count} headers")
        else:
            key = None if key_size < 0 else bytes(payload[key_at : key_at + key_size])
            value = None if value_size < 0 else bytes(payload[value_at : value_at + value_size])
            yield Record(offset, timestamp, key, value, _headers(records.payload, headers_at) if count else ())


def _headers(payload: np.ndarray, at: int) -> tuple[tuple[bytes, bytes | None], ...]:
    """The headers of a record that parsed, from their number on."""
    end = len(payload)
    count, at = varint(payload, at, end)
    headers = []
    for _ in range(count):
        size, at = varint(payload, at, end)
        key = payload[at : at + size].tobytes()
        size, at = varint(payload, at + size, end)
        headers.append((key, None if size < 0 else payload[at : at + size].tobytes()))
        at += max(size, 0)
    return tuple(headers)


def iter_records(
    batch: bytes, *, file: str = "", position: int = 0, limits: Limits = DEFAULT_LIMITS
) -> Iterator[Record | DecodeError]:
    """The records of one whole stored batch, message or wrapper, as :func:`records_of`; of other bytes, one error."""
    buf = np.frombuffer(bytearray(batch), np.uint8)  # kernels are compiled for arrays that can be written
    row = walk_rows(1)
    found, end, _why = walk(buf, 0, len(buf), position, position + 1, limits.max_batch_bytes, False, 0, row)
    if found != 1 or end != len(buf):
        yield DecodeError(file, position, len(batch), "bad_record", "not the bytes of one batch")
        return
    batches = columns_of(row)
    open_wrappers(buf, position, batches, limits)
    for _row, record in records_of([batch], batches, file=file, limits=limits):
        yield record
