"""Reading a segment file: batches as columns, and every other byte as an error with its reason."""

from __future__ import annotations

import io
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from auditor.base.errors import DEFAULT_LIMITS, MIB, DamagedField, DecodeError, FlippedBit, Limits, bounded_time
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec.batches import (
    FLAW_CRC,
    UNVERIFIED,
    BatchColumns,
    RecordSummary,
    open_controls,
    open_wrappers,
)
from auditor.connectors.codec.compression import Failure
from auditor.connectors.codec.damaged_fields import (
    BYTES_IN_ALL,
    MOST_BYTES,
    MOST_FLIPPED,
    Mender,
    SegmentContext,
    flipped_bit,
    signed64,
)
from auditor.connectors.codec.gaps import ANY_OFFSET, BUFFER, FileWindow, Gaps, SeekableFile, read_at
from auditor.connectors.codec.primitives import be32
from auditor.connectors.codec.records import Decoded, decode_records, decode_stored, joined, summarise

# Follows ``FileLogInputStream``, except that what Kafka silently skips at a file's end is reported, and that damage
# does not hide the sound batches after it, which no broker would read.


LARGE_BUFFER = 4 * MIB  # if chunks return it
# Opens some rows of batches: their records, in runs; rows and column ``batch`` count these rows, from 0 on.
Opens = Callable[[np.ndarray], Iterator[Decoded]]
# Checks batches, with the summaries of their records, while these can be opened. Returns a row of an array for each,
# zeros for no result; None if there is no result at all.
Look = Callable[[Opens, BatchColumns, RecordSummary], np.ndarray | None]
UNKNOWN = SegmentContext()
ROWS = 8_184  # at most per chunk; not 8192, or all columns would compete for the same cache lines
CHUNK_BYTES = 64 * MIB  # at most per chunk, give or take a buffer
RAW_CHUNK_BYTES = 8 * MIB  # the same if the bytes are returned


@dataclass(frozen=True)
class Chunk:
    """A part of a segment.

    ``rows`` are its batches in file order as a walk leaves them (:func:`auditor.connectors.codec.batches.walk_rows`),
    for kernels; ``batches`` are the same in typed columns. ``errors`` are ranges of bytes that are in no batch;
    ``body_errors`` report batches that are rows but whose content could not be opened (wrappers; with records, any
    batch), with the batch's position and size. ``summary`` and ``raw`` (each batch's stored bytes) are aligned with
    ``batches``, None unless requested. ``end`` is the file position after the last byte accounted for. ``held`` are
    bytes of the file from ``origin`` on, including all batches, valid until the next chunk. ``next_offset`` is the
    lowest that a batch at ``end`` may have if the bytes before it are no batch. ``looked`` are the results of ``look``
    per batch, None if there are none. ``of_records`` are the positions of the body errors that occur only when records
    are read. ``flipped`` has a :class:`FlippedBit` for each batch whose CRC mismatch one bit explains.
    """

    rows: np.ndarray
    errors: list[DecodeError]
    body_errors: list[DecodeError]
    summary: RecordSummary | None
    raw: list[bytes] | None
    end: int
    data: np.ndarray | None = None
    origin: int = 0
    next_offset: int = 0
    looked: np.ndarray | None = None
    of_records: tuple[int, ...] = ()
    flipped: tuple[DecodeError, ...] = ()

    def damaged_fields(self) -> list[tuple[int, DamagedField]]:
        """The damaged fields of its batches, each with the number of the row that has the expected value."""
        fields = ((e.position, DamagedField.of(e)) for e in self.body_errors)
        damaged = [(position, field) for position, field in fields if field is not None]
        places = np.searchsorted(self.rows[:, walking.POSITION], [position for position, _ in damaged])
        return [(number, field) for number, (_, field) in zip(places.tolist(), damaged, strict=True)]

    def as_stored(self) -> Chunk:
        """The chunk with damaged fields as a broker reads them: a batch with a damaged length or magic has no row."""
        if not (damaged := self.damaged_fields()):
            return self
        rows, errors, sound = self.rows.copy(), list(self.errors), np.ones(len(self.rows), bool)
        for number, field in damaged:
            position, size = int(rows[number, walking.POSITION]), int(rows[number, walking.SIZE])
            if field.name == "base offset":
                rows[number, walking.BASE_OFFSET] = field.stored
                rows[number, walking.LAST_OFFSET] = signed64(
                    int(rows[number, walking.LAST_OFFSET]) + field.stored - field.expected
                )
            elif field.name == "leader epoch":
                rows[number, walking.PARTITION_LEADER_EPOCH] = field.stored
            elif field.name == "magic" and field.stored in (0, 1):
                rows[number, walking.FLAWS] |= FLAW_CRC
            else:
                sound[number] = False
                reason = "bad_magic" if field.name == "magic" else "bad_size"
                errors.append(DecodeError("", position, size, reason, f"{field.name} {field.stored}"))
        return replace(self, rows=rows[sound], errors=errors)

    def bounded(self) -> Chunk:
        """The chunk with offsets and times that are safe to compute with (:func:`auditor.base.errors.bounded`)."""
        walking.bound_numbers(self.rows)
        if self.summary is None:
            return self
        names = ("first_timestamp", "min_timestamp", "max_timestamp")
        times = {name: bounded_time(getattr(self.summary, name)) for name in names}
        return replace(self, summary=self.summary._replace(**times))

    def intact(self) -> Chunk:
        """The chunk without batches that have a CRC mismatch: their records prove nothing."""
        sound = self.rows[:, walking.FLAWS] & FLAW_CRC == 0
        if sound.all():
            return self
        chosen = np.flatnonzero(sound)
        return replace(
            self,
            rows=self.rows[chosen],
            raw=None if self.raw is None else [self.raw[row] for row in chosen.tolist()],
            summary=None if self.summary is None else self.summary.take(chosen),
            looked=None if self.looked is None else self.looked[chosen],
        )

    def opened(self, rows: np.ndarray, batches: BatchColumns, limits: Limits) -> Iterator[Decoded]:
        """The records, with payload, of ``rows`` of a chunk read with its bytes; ``batches`` are those rows."""
        if self.data is not None:
            yield from decode_stored(self.data, self.origin, batches, limits=limits, payload=True)
        elif len(rows):
            assert self.raw is not None
            yield from decode_records([self.raw[row] for row in rows], batches, limits=limits, payload=True)

    @cached_property
    def batches(self) -> BatchColumns:
        """The batches in columns; computed on first use, about 10 ns per batch."""
        return walking.columns_of(self.rows)


class StoredChunks(ABC):
    """A file whose batches were decoded when a copy without payload was made; :func:`read_segment` asks it for them.

    ``gives_sums``: whether its reader takes sums of records in place of the bytes of batches.
    """

    gives_sums = False

    @abstractmethod
    def chunks(
        self, start: int, stop: int | None, pause: int, *, limits: Limits, raw: bool, records: bool, look: Look | None
    ) -> Iterator[Chunk]:
        """As :func:`read_segment`, for these of its arguments. ``raw``: with the bytes in the copy; ``records``: with
        the summaries, if it has them."""

    @property
    @abstractmethod
    def has_records(self) -> bool:
        """Whether it has summaries of the records of its batches."""

    @abstractmethod
    def batch(self, position: int, limits: Limits) -> tuple[BatchColumns, Decoded] | None:
        """The batch at a position with its records; None if there is none, or the copy has no records."""


class _Building:
    def __init__(
        self, file: str, limits: Limits, gaps: Gaps, *, records: bool, raw: bool, look: Look | None = None
    ) -> None:
        self.file = file
        self.gaps = gaps
        self.limits, self.of_records = limits.counting(), limits.counting()  # a wrapper is opened for both
        self.of_looks = limits
        self.columns = walking.walk_rows(ROWS)
        self.summaries: list[RecordSummary] | None = [] if records else None
        self.raw: list[bytes] | None = [] if raw else None
        self.look = look
        self.looked: list[tuple[int, np.ndarray]] = []  # with the first row of each
        self.rows = self.bytes = 0
        self.errors: list[DecodeError] = []
        self.body_errors: list[DecodeError] = []
        self.of_bodies: list[int] = []  # positions
        self.flipped: list[DecodeError] = []
        self.left_to_search, self.left_to_find = BYTES_IN_ALL, MOST_FLIPPED

    def take(self, window: FileWindow, rows: int, position: int, *, closed: bool) -> None:
        # While the bytes of the new rows are in the window. closed: some must be opened for what a row needs.
        added = self.columns[self.rows : rows]
        self.bytes += position - window.at
        window.at = position
        self.rows = rows
        self._explain(window, added)
        if not closed and self.summaries is None and self.raw is None:
            return
        fresh = walking.columns_of(added)
        if closed:
            for open_them in (open_wrappers, open_controls):
                self._report(fresh, open_them(window.data, window.origin, fresh, self.limits))
            added[:] = walking.rows_of(fresh)
        if self.summaries is not None:
            summary, failures = summarise(window.data, window.origin, fresh, self.of_records)
            self.summaries.append(summary)
            self.of_bodies += self._report(fresh, failures)
            if self.look is not None:
                self._look(fresh, self.look(self._opens(window, fresh), fresh, summary))
        if self.raw is not None:
            view = window.data.data
            starts = fresh.position - window.origin
            ends = starts + fresh.size
            self.raw += [bytes(view[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]

    def _explain(self, window: FileWindow, added: np.ndarray) -> None:
        damaged = added[(added[:, walking.FLAWS] & FLAW_CRC != 0) & (added[:, walking.MAGIC] == 2)]
        for row in damaged:
            position, size = int(row[walking.POSITION]), int(row[walking.SIZE])
            if size > min(MOST_BYTES, self.left_to_search) or not self.left_to_find:
                continue
            self.left_to_search -= size
            flipped = flipped_bit(window.data[position - window.origin : position - window.origin + size])
            if flipped is not None:
                self.left_to_find -= 1
                self.flipped.append(FlippedBit(*flipped).error(self.file, position, size))

    def _opens(self, window: FileWindow, batches: BatchColumns) -> Opens:
        data, origin, limits = window.data, window.origin, self.of_looks
        return lambda rows: decode_stored(data, origin, batches.take(rows), limits=limits)

    def _look(self, batches: BatchColumns, opened: np.ndarray | None) -> None:
        if opened is not None:
            self.looked.append((self.rows - len(batches.position), opened))

    def _looked(self) -> np.ndarray | None:
        if not self.looked:
            return None
        looked = np.zeros(self.rows, self.looked[0][1].dtype)
        for first, opened in self.looked:
            looked[first : first + len(opened)] = opened
        return looked

    def _report(self, batches: BatchColumns, failures: list[tuple[int, Failure]]) -> list[int]:
        # A wrapper fails twice if records are requested; returns the positions reported for the first time.
        if not failures:
            return []
        fresh = []
        reported = {error.position for error in self.body_errors}  # a wrapper fails twice where records are asked for
        for row, failure in failures:
            position, size = int(batches.position[row]), int(batches.size[row])
            if position not in reported:
                self.body_errors.append(DecodeError(self.file, position, size, failure.reason, failure.detail))
                fresh.append(position)
        return fresh

    def is_full(self) -> bool:
        """Whether to yield the chunk."""
        return self.rows == ROWS or self.bytes >= (CHUNK_BYTES if self.raw is None else RAW_CHUNK_BYTES)

    def chunk(self, end: int, window: FileWindow | None = None) -> Chunk:
        # Also starts the next chunk.
        if self.rows == len(self.columns):
            rows, self.columns = self.columns, walking.walk_rows(ROWS)
        else:
            rows = self.columns[: self.rows].copy()
        data, origin = (window.data, window.origin) if window else (None, 0)
        following = self.gaps.last + 1
        done = Chunk(
            rows=rows,
            errors=self.errors,
            body_errors=self.body_errors,
            summary=joined(self.summaries),
            raw=self.raw,
            end=end,
            data=data,
            origin=origin,
            next_offset=following,
            looked=self._looked(),
            of_records=tuple(self.of_bodies),
            flipped=tuple(self.flipped),
        )
        self.summaries = None if self.summaries is None else []
        self.raw = None if self.raw is None else []
        self.rows = self.bytes = 0
        self.errors, self.body_errors, self.looked, self.of_bodies, self.flipped = [], [], [], [], []
        return done


def before(chunks: Iterator[Chunk], offset: int) -> Iterator[Chunk]:
    """The chunks of a segment up to its first batch at or above an offset, where the last one then ends."""
    for chunk in chunks:
        beyond = np.flatnonzero(chunk.rows[:, walking.BASE_OFFSET] >= offset)
        if not len(beyond):
            yield chunk
            continue
        rows = int(beyond[0])
        end = int(chunk.rows[rows, walking.POSITION])
        yield replace(
            chunk,
            rows=chunk.rows[:rows],
            errors=[e for e in chunk.errors if e.position < end],
            body_errors=[e for e in chunk.body_errors if e.position < end],
            flipped=tuple(e for e in chunk.flipped if e.position < end),
            summary=None if chunk.summary is None else chunk.summary.take(slice(rows)),
            raw=None if chunk.raw is None else chunk.raw[:rows],
            looked=None if chunk.looked is None else chunk.looked[:rows],
            end=end,
        )
        return


def read_segment(
    f: SeekableFile,
    size: int,
    *,
    file: str,
    start: int = 0,
    stop: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
    records: bool = False,
    raw: bool = False,
    keep_bytes: bool = False,
    crc: bool = True,
    offsets: tuple[int, int] = ANY_OFFSET,
    context: SegmentContext = UNKNOWN,
    pause: int = -1,
    look: Look | None = None,
) -> Iterator[Chunk]:
    """The batches of a segment that start in ``[start, stop)``, in chunks, at least one.

    ``f`` is the file, ``size`` its length in bytes as listed (later growth is ignored), ``file`` its name for errors.
    ``start`` must be a batch's position; the batch that starts before ``stop`` is read whole. ``records`` reads all
    records for the summary, which is passed to ``look``; ``raw`` returns the stored bytes, ``keep_bytes`` the buffer
    with them, one per chunk; ``crc=False`` skips checksums of batches that follow each other without a gap.
    ``offsets``: the lowest that the batch at ``start`` may have, and one above those of the whole segment; by them,
    batches after unreadable bytes are recognised (:class:`auditor.connectors.codec.gaps.Gaps`) and, with ``context``,
    damaged fields are corrected (:mod:`auditor.connectors.codec.damaged_fields`). A chunk ends with the last batch that
    starts before byte ``pause``.

    Batch sizes and error lengths add up to ``end - start`` of the last chunk, which is ``size`` unless ``stop`` is
    given. Raises nothing: a file that cannot be read is an error of reason ``unreadable``. Memory: a buffer of 1 MiB
    (``keep_bytes``: 4), or of the largest batch up to ``limits.max_batch_bytes``; with ``raw``, also the chunk. For a
    copy (:class:`StoredChunks`), chunks are as they were when it was made.
    """
    if isinstance(f, StoredChunks):
        yield from f.chunks(start, stop, pause, limits=limits, raw=raw or keep_bytes, records=records, look=look)
        return
    window = FileWindow(f, start, size, LARGE_BUFFER if keep_bytes else BUFFER)
    until = size if stop is None else min(stop, size)
    gaps = Gaps(file, window, limits, offsets)
    mender = Mender(file, window, limits.max_batch_bytes, offsets, context)
    building = _Building(file, limits, gaps, records=records, raw=raw, look=look)
    handed_out = False
    while window.position < until:
        stop_at = min(pause, until) if window.position < pause else until
        rows, position, why = walking.walk(
            window.data, window.at, window.end, window.origin, stop_at, limits.max_batch_bytes, crc,
            building.rows, building.columns, gaps.trusted,
        )  # fmt: skip
        mender.rows(building.columns, building.rows, rows, checked=crc)
        gaps.passed(building.columns[building.rows : rows])
        building.body_errors += mender.take()
        building.take(window, rows, position, closed=why & walking.CLOSED != 0)
        why &= ~walking.CLOSED
        paused = stop_at == pause <= window.position
        if building.is_full() or paused or (keep_bytes and building.rows):
            yield building.chunk(window.position, window if keep_bytes else None)
            handed_out = True
        if window.position >= stop_at or why == walking.FULL or gaps.read_on(why):
            continue
        here = window.position
        error = gaps.over(why)
        if (end := gaps.end_to_try(error)) >= 0 and mender.header(here, end):
            building.body_errors += mender.take()
        elif error is not None:
            building.errors.append(error)
            window.go_to(error.position + error.length)
    if building.rows or building.errors or not handed_out:
        yield building.chunk(window.position)


# The offset after a segment's last record, by batch headers alone, as start-up computes it for a replacement segment.


SHORT_HEADER = struct.Struct(">qiibIhi")  # up to lastOffsetDelta of magic 2


def end_offset(file: SeekableFile) -> int:
    """The offset after the last complete batch header in ``file``, 0 if there is none.

    Cost: one short read per batch, so for small segments only. Bytes that are no batch end the walk.
    """
    position = end = 0
    while len(header := read_at(file, position, SHORT_HEADER.size)) == SHORT_HEADER.size:
        offset, size, _epoch, magic, _crc, _attributes, delta = SHORT_HEADER.unpack(header.data)
        if size < walking.MIN_SIZES[0] or offset < 0:
            break
        end = max(end, offset + 1 + (max(delta, 0) if magic > 1 else 0))
        position += walking.OVERHEAD + size
    return end


# Large batches by their headers alone: the bytes between two headers are not read, and checksums are not verified.
#
# If an offset is missing, the leader epoch changes or a batch is not a plain one, its body is read and its checksum is
# verified. At the first inconsistency the hop ends, some batches before it, and :func:`read_segment`, which handles
# damage, reads the rest.


READ = 128  # bytes per header: enough for a whole marker
LARGE = 16 << 10  # bytes of a batch that are worth a hop: less is a page or two, which is read anyway
SAMPLE = 32  # batches by which a segment is judged to have large ones
BACK = 4  # batches before an inconsistency that are read again as its neighbours


class HeaderHop:
    """Hops over a segment from one header to the next.

    ``f``, ``size``: as for :func:`read_segment`; ``start`` and ``offsets``: a batch's position, and the possible
    offsets from there on; ``rows``: per chunk. After :meth:`chunks`, ``end`` and ``next_offset`` are where it stopped,
    ``read`` is the number of bytes read.
    """

    def __init__(
        self, f: SeekableFile, size: int, limits: Limits, start: int, offsets: tuple[int, int], rows: int = ROWS
    ) -> None:
        self.f, self.size, self.limits = f, size, limits
        self.end, self.next_offset, self.below = start, offsets[0], offsets[1]
        self.read, self.rows = 0, rows

    def chunks(self) -> Iterator[np.ndarray]:
        """Rows of a walk, in chunks; those whose checksum was not verified have :data:`UNVERIFIED`."""
        rows, count = walking.walk_rows(self.rows + BACK), 0
        position, last, whole, tried = self.end, self.next_offset - 1, False, 0
        while position < self.size:
            fits = self._header(position, last, rows, count)
            if tried == SAMPLE and position - self.end < SAMPLE * LARGE:
                return  # small batches: everything is read anyway
            if not fits or (count and not self._goes_on(rows, count)):
                whole = True
                break
            tried += 1
            last = int(rows[count, walking.LAST_OFFSET])
            position += int(rows[count, walking.SIZE])
            count += 1
            if count == len(rows):
                yield self._out(rows[: self.rows])
                rows[:BACK] = rows[self.rows :]
                count = BACK
        if not whole and count and self._plain_end(rows, count) and self._verified(rows[count - 1]):
            yield self._out(rows[:count])
        elif count > BACK:
            yield self._out(rows[: count - BACK])

    def _out(self, rows: np.ndarray) -> np.ndarray:
        self.end = int(rows[-1, walking.POSITION] + rows[-1, walking.SIZE])
        self.next_offset = int(rows[-1, walking.LAST_OFFSET]) + 1
        return rows.copy()

    def _bytes(self, position: int, count: int) -> np.ndarray:
        try:
            data = read_at(self.f, position, count)
        except OSError:
            return np.empty(0, np.uint8)
        self.read += len(data)
        return data

    def _header(self, position: int, last: int, rows: np.ndarray, row: int) -> bool:
        # Only a plain batch behind offset last is accepted.
        data = self._bytes(position, min(READ, self.size - position))
        if len(data) < walking.HEADER or data[walking.PREFIX - 1] != 2:
            return False
        total = int(be32(data, 8)) + walking.OVERHEAD
        if not walking.HEADER <= total <= min(self.size - position, self.limits.max_batch_bytes):
            return False
        flaws = int(walking.header_row(data, total, position, rows[row]))
        header = rows[row]
        if flaws or not last < header[walking.BASE_OFFSET] <= header[walking.LAST_OFFSET] < self.below:
            return False
        if header[walking.PARTITION_LEADER_EPOCH] < 0:
            return False
        if header[walking.ATTRIBUTES] & walking.CONTROL or total <= READ:
            return total <= READ and bool(walking.is_sound(data, 0, total, 2))
        header[walking.FLAWS] = UNVERIFIED
        return True

    def _goes_on(self, rows: np.ndarray, row: int) -> bool:
        # If the batch does not directly follow the one before it, the checksums of both are verified.
        before, header = rows[row - 1], rows[row]
        rise = header[walking.PARTITION_LEADER_EPOCH] - before[walking.PARTITION_LEADER_EPOCH]
        if rise < 0 or (rise and row < BACK):
            return False
        hole = header[walking.BASE_OFFSET] != before[walking.LAST_OFFSET] + 1
        return not (hole or rise) or (self._verified(before) and self._verified(header))

    @staticmethod
    def _plain_end(rows: np.ndarray, count: int) -> bool:
        # If the last batch simply continues, no later batch is needed to show that it is undamaged.
        before, header = rows[count - 2], rows[count - 1]
        same = header[walking.PARTITION_LEADER_EPOCH] == before[walking.PARTITION_LEADER_EPOCH]
        return bool(count > 1 and same and header[walking.BASE_OFFSET] == before[walking.LAST_OFFSET] + 1)

    def _verified(self, row: np.ndarray) -> bool:
        if not row[walking.FLAWS] & UNVERIFIED:
            return True
        total = int(row[walking.SIZE])
        data = self._bytes(int(row[walking.POSITION]), total)
        if len(data) < total or not walking.is_sound(data, 0, total, 2):
            return False
        row[walking.FLAWS] = 0
        return True


# Batches of a magic above 2, which brokers read as 2 if their checksum is correct: it does not cover the magic.


MAGIC_AT = walking.PREFIX - 1  # byte of a batch that holds the magic


def foreign_row(data: bytes, position: int) -> np.ndarray | None:
    """The walk's row that a broker reads from the bytes at ``position`` of a segment; None if they are no whole batch
    to it."""
    if len(data) <= MAGIC_AT or data[MAGIC_AT] > 127:
        return None
    patched: Any = io.BytesIO(data[:MAGIC_AT] + b"\x02" + data[MAGIC_AT + 1 :])
    chunk = next(iter(read_segment(patched, len(data), file="")))
    if len(chunk.rows) != 1 or chunk.errors or chunk.rows[0, walking.FLAWS] & FLAW_CRC:
        return None
    row: np.ndarray = chunk.rows[0].copy()
    row[walking.POSITION] += position
    return row
