"""The records of batches, of every magic and codec: as columns for tables, or one by one for the internal topics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from auditor.base.errors import DEFAULT_LIMITS, DecodeError, Limits
from auditor.connectors.codec import batch_columns as col
from auditor.connectors.codec.batch import CODEC_MASK, columns_of, walk, walk_rows
from auditor.connectors.codec.batch_columns import BatchColumns, RecordColumns, RecordSummary, empty_records
from auditor.connectors.codec.bodies import Bodies, plain_bodies, runs
from auditor.connectors.codec.compression import Failure
from auditor.connectors.codec.legacy import open_wrappers
from auditor.connectors.codec.primitives import varint
from auditor.connectors.codec.summary import empty_summary, read_bodies

ATTRIBUTES_AT = 22  # byte of a batch of magic 2 that names its codec
LEAST_RECORD = 7  # bytes of a record without flaws
# Of a summary: not all declared records could be read, or not they alone.
BROKEN = col.RECORD_COUNT_MISMATCH | col.RECORD_BYTES_LEFT | col.RECORD_UNDECOMPRESSABLE
UNRELIABLE = col.RECORD_LENGTH | col.RECORD_HEADER_KEY_NULL  # of a record: its content cannot be relied on


class Decoded(NamedTuple):
    """The records of a run of batches.

    ``rows`` are the batches' rows, ``records`` and ``summary`` theirs (the column ``batch`` counts as ``rows`` does),
    ``failures`` those that could not be opened, with the reason.
    """

    rows: slice
    records: RecordColumns
    summary: RecordSummary
    failures: dict[int, Failure]

    def stored(self, number: int) -> tuple[bytes | None, bytes | None]:
        """Key and value of a record as they are stored, where the run was opened with its payload."""
        r = self.records
        places = (r.key_start[number], r.key_size[number]), (r.value_start[number], r.value_size[number])
        key, value = (None if size < 0 else r.payload[start : start + size].tobytes() for start, size in places)
        return key, value


def decode_records(
    raw: Sequence[bytes], batches: BatchColumns, *, limits: Limits = DEFAULT_LIMITS, payload: bool = False
) -> Iterator[Decoded]:
    """The records of ``batches``, whose stored bytes are ``raw`` (as in
    :class:`auditor.connectors.codec.segment.Chunk`).

    In runs of at most 2 MiB of plain bytes or one batch, so that no input grows beyond that and 70 bytes a record. A
    batch of more than ``limits.max_records`` gives none, and a failure of reason ``limit``.
    Offsets are absolute and timestamps as a consumer sees them, whatever the magic. With ``payload``, keys and values
    are at hand in ``records.payload``: the plain bodies of the run. Cost: decompression, and one pass over the records
    as long as no batch has more than it declares.
    """
    batches = _as_stored(raw, batches)
    for rows in runs(batches.size):
        some = batches.take(rows)
        some = some._replace(position=np.cumsum(some.size, dtype=np.int64) - some.size)
        buf = np.frombuffer(bytearray().join(raw[rows]), np.uint8)  # as in iter_records
        for run in decode_stored(buf, 0, some, limits=limits, payload=payload):
            yield _moved(run, rows.start) if rows.start else run


def _as_stored(raw: Sequence[bytes], batches: BatchColumns) -> BatchColumns:
    """The batches as their bytes are: a copy without payload has those plain that were compressed."""
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
    """The same of batches whose stored bytes are in ``buf``; ``origin`` is the file position of ``buf[0]``.

    Where all are stored plain, they are one run.
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
        yield Decoded(rows, records, RecordSummary(*(column[rows] for column in summary)), failures)
        failed.clear()
        start = bodies.stop


def _records(
    bodies: Bodies, batches: BatchColumns, summary: RecordSummary, limits: Limits, payload: bool
) -> RecordColumns:
    """Every record of ``bodies``; the batches' rows of ``summary`` are filled too."""
    first = int(bodies.starts.min(initial=len(bodies.data)))
    declared = np.clip(batches.record_count[bodies.rows], 0, limits.max_records)
    room = int(np.minimum(declared, (bodies.ends - bodies.starts) // LEAST_RECORD).sum())
    records = empty_records(room, payload)
    found = read_bodies(bodies, batches, summary, first, limits.max_records, records)
    if found > room:
        records = empty_records(found, payload)
        read_bodies(bodies, batches, summary, first, limits.max_records, records)
    if found < room:
        records = RecordColumns._make(column[:found] for column in records)
    if payload:
        return records._replace(payload=bodies.data[first : bodies.ends.max(initial=first)].copy())
    unknown = np.broadcast_to(np.int64(-1), found)
    return records._replace(key_start=unknown, value_start=unknown, header_start=unknown)


def _moved(run: Decoded, by: int) -> Decoded:
    """The same as of batches ``by`` rows further on."""
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


def sound(run: Decoded, limits: Limits) -> np.ndarray:
    """The numbers of a run's records whose content can be relied on."""
    return np.flatnonzero((run.records.flaws & UNRELIABLE == 0) & (run.records.header_count <= limits.max_headers))


def failures_of(run: Decoded, batches: BatchColumns, file: str, limits: Limits) -> list[DecodeError]:
    """The errors that :func:`records_of` gives for a run of ``batches``, in the same order."""
    broken = np.flatnonzero(run.summary.flaws & BROKEN)
    if not len(broken) and len(sound(run, limits)) == len(run.records.offset):
        return []
    ends = np.cumsum(run.summary.present)
    errors = []
    for k in range(len(ends)):
        row = run.rows.start + k
        where = (file, int(batches.position[row]), int(batches.size[row]))
        found = _run_records(run, int(ends[k - 1]) if k else 0, int(ends[k]), limits)
        errors += [DecodeError(*where, *record) for record in found if isinstance(record, Failure)]
        if run.summary.flaws[k] & BROKEN:
            failure = run.failures.get(row) or Failure("bad_record", "the records are not those declared")
            errors.append(DecodeError(*where, *failure))
    return errors


def _run_records(run: Decoded, start: int, stop: int, limits: Limits) -> Iterator[Record | Failure]:
    """Records ``start`` to ``stop`` of a run."""
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
    limit = limits.max_batch_bytes
    found, end, _why = walk(buf, 0, len(buf), position, position + 1, limit, False, 0, row, position)
    if found != 1 or end != len(buf):
        yield DecodeError(file, position, len(batch), "bad_record", "not the bytes of one batch")
        return
    batches = columns_of(row)
    open_wrappers(buf, position, batches, limits)
    for _row, record in records_of([batch], batches, file=file, limits=limits):
        yield record
