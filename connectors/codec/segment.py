"""Reading a segment file: batches as columns, and every other byte as an error with its reason."""

from __future__ import annotations

import io
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from auditor.base.errors import DEFAULT_LIMITS, MIB, DamagedField, DecodeError, FlippedBit, Limits
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
    MOST_FOUND,
    Mender,
    SegmentContext,
    flipped_bit,
    signed64,
)
from auditor.connectors.codec.gaps import ANY_OFFSET, BUFFER, FileWindow, Gaps, SeekableFile
from auditor.connectors.codec.primitives import be32
from auditor.connectors.codec.records import Decoded, decode_records, decode_stored, joined, summarise

# Reading a segment file: batches in columns, and every byte that is in no batch as an error with its reason.
#
# Follows ``FileLogInputStream``, except that what Kafka passes over in silence at a file's end is said, and that damage
# does not hide the sound batches behind it, at which no broker would look.


HELD_BUFFER = 4 * MIB  # where chunks show it
# The records of some rows of batches, in runs; rows and the column ``batch`` count these rows, from 0 on.
Opens = Callable[[np.ndarray], Iterator[Decoded]]
# Looks at batches, with the summaries of their records, while these can be opened. Returns a row of an array for each,
# all zeros where there is nothing to say; None for that of all.
Look = Callable[[Opens, BatchColumns, RecordSummary], np.ndarray | None]
UNKNOWN = SegmentContext()
ROWS = 8_184  # of one chunk at most; not 8192, or all columns would compete for the same cache lines
CHUNK_BYTES = 64 * MIB  # of the file in one chunk at most, give or take a buffer
RAW_CHUNK_BYTES = 8 * MIB  # the same where the bytes are handed out


@dataclass(frozen=True)
class Chunk:
    """A stretch of a segment.

    ``rows`` are its batches in file order as a walk leaves them (:func:`auditor.connectors.codec.batches.walk_rows`),
    which is
    what kernels read; ``batches`` are the same in columns of their own types. ``errors`` are the stretches of bytes
    that are in no batch; ``body_errors`` report batches that are rows but whose content could not be opened (wrappers;
    with records, any batch), with the batch's position and size. ``summary`` and ``raw`` (each batch's stored bytes)
    are aligned with ``batches``, None unless asked for. ``end`` is the file position after the last byte accounted for.
    ``held`` are bytes of the file from ``origin`` on, all batches' among them, valid until the next chunk.
    ``next_offset`` is the lowest that a batch at ``end`` may have where bytes before it are none. ``looked`` is what
    was said of each batch by who looked at its records, None where there was nothing to say. ``of_records`` are the
    positions of the body errors that only who looks at records meets. ``flipped`` has a :class:`FlippedBit` for each
    batch whose CRC mismatch one bit explains.
    """

    rows: np.ndarray
    errors: list[DecodeError]
    body_errors: list[DecodeError]
    summary: RecordSummary | None
    raw: list[bytes] | None
    end: int
    held: np.ndarray | None = None
    origin: int = 0
    next_offset: int = 0
    looked: np.ndarray | None = None
    of_records: tuple[int, ...] = ()
    flipped: tuple[DecodeError, ...] = ()

    def as_stored(self) -> Chunk:
        """The same with the fields that are damaged as a broker meets them: one whose length or magic is has no row."""
        fields = ((e.position, DamagedField.of(e)) for e in self.body_errors)
        if not (damaged := [(position, field) for position, field in fields if field is not None]):
            return self
        rows, errors, sound = self.rows.copy(), list(self.errors), np.ones(len(self.rows), bool)
        places = np.searchsorted(rows[:, walking.POSITION], [position for position, _ in damaged])
        for number, (position, field) in zip(places.tolist(), damaged, strict=True):
            size = int(rows[number, walking.SIZE])
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

    def intact(self) -> Chunk:
        """The same without the batches that have a CRC mismatch: their records are no evidence of anything."""
        sound = self.rows[:, walking.FLAWS] & FLAW_CRC == 0
        if sound.all():
            return self
        chosen = np.flatnonzero(sound)
        return replace(
            self,
            rows=self.rows[chosen],
            raw=None if self.raw is None else [self.raw[row] for row in chosen.tolist()],
            summary=None if self.summary is None else RecordSummary(*(column[chosen] for column in self.summary)),
            looked=None if self.looked is None else self.looked[chosen],
        )

    def opened(self, rows: np.ndarray, batches: BatchColumns, limits: Limits) -> Iterator[Decoded]:
        """The records, with payload, of ``rows`` of one that was read with its bytes; ``batches`` are those rows."""
        if self.held is not None:
            yield from decode_stored(self.held, self.origin, batches, limits=limits, payload=True)
        elif len(rows):
            assert self.raw is not None
            yield from decode_records([self.raw[row] for row in rows], batches, limits=limits, payload=True)

    @cached_property
    def batches(self) -> BatchColumns:
        """The batches in columns; made when first asked for, at about 10 ns a batch."""
        return walking.columns_of(self.rows)


class StoredChunks(ABC):
    """A file whose batches were decoded when a copy without payload was made: :func:`read_segment` asks it for them."""

    @abstractmethod
    def chunks(
        self, start: int, stop: int | None, pause: int, *, limits: Limits, raw: bool, records: bool, look: Look | None
    ) -> Iterator[Chunk]:
        """What :func:`read_segment` gives for these of its arguments. ``raw``: with the bytes that the copy has;
        ``records``: with the summaries, where it has them."""

    @property
    @abstractmethod
    def has_records(self) -> bool:
        """Whether it has what the records of its batches come to."""

    @abstractmethod
    def batch(self, position: int, limits: Limits) -> tuple[BatchColumns, Decoded] | None:
        """The batch at a position with its records; None where there is none, or the copy has no records."""


class _Building:
    """The chunk being filled."""

    def __init__(
        self, file: str, limits: Limits, gaps: Gaps, *, records: bool, raw: bool, look: Look | None = None
    ) -> None:
        self.file = file
        self.gaps = gaps
        self.limits, self.of_records = limits.counting(), limits.counting()  # a wrapper is opened for either
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
        self.left_to_search, self.left_to_find = BYTES_IN_ALL, MOST_FOUND

    def take(self, window: FileWindow, rows: int, position: int, *, closed: bool) -> None:
        """Settle the rows that a walk up to ``position`` added, while their bytes are at hand. ``closed``: some have to be
        opened for what a row needs."""
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
        """Note the flipped bit of each batch with a CRC mismatch that one such bit explains."""
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
        """Notes what could not be opened; the positions of what had not been noted yet."""
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
        """Whether it is time to hand the chunk out."""
        return self.rows == ROWS or self.bytes >= (CHUNK_BYTES if self.raw is None else RAW_CHUNK_BYTES)

    def chunk(self, end: int, window: FileWindow | None = None) -> Chunk:
        """The chunk as it is, with what a window holds, and begin the next one."""
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
            held=data,
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
            summary=None if chunk.summary is None else RecordSummary(*(c[:rows] for c in chunk.summary)),
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
    """The batches of a segment that begin in ``[start, stop)``, in chunks, of which there is at least one.

    ``f`` is the file, ``size`` its length in bytes as listed (what it grows beyond is left alone), ``file`` its name
    for errors. ``start`` must be a batch's position; the batch that begins before ``stop`` is read whole. ``records``
    reads all records for the summary, which ``look`` is shown; ``raw`` hands out the stored bytes, ``keep_bytes`` shows them
    where they lie, a buffer a chunk, ``crc=False`` leaves checksums unchecked where the batches follow each other
    without a gap. ``offsets``: the lowest that the batch at ``start`` may have, and one above those of the whole
    segment; batches behind bytes that are none are recognised by them
    (:class:`auditor.connectors.codec.gaps.Gaps`), and, with what is ``context``, damaged fields, for which the value that
    fits is taken (:mod:`auditor.connectors.codec.damaged_fields`). A chunk ends with the last batch that
    begins before byte ``pause``. Batch sizes and error
    lengths add up to ``end - start`` of the last chunk, which is ``size`` unless ``stop`` is given. Raises nothing: a
    file that cannot be read is an error of reason ``unreadable``.
    Memory: a buffer of 1 MiB (``keep_bytes``: 4), or of the largest batch up to ``limits.max_batch_bytes``; with ``raw``,
    also the chunk. Of a copy (:class:`StoredChunks`), chunks are as they were when it was made.
    """
    if isinstance(f, StoredChunks):
        yield from f.chunks(start, stop, pause, limits=limits, raw=raw or keep_bytes, records=records, look=look)
        return
    window = FileWindow(f, start, size, HELD_BUFFER if keep_bytes else BUFFER)
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


# The offset after a segment's last record, by batch headers alone: what start-up asks of a replacement segment.


HEADER = 27  # bytes up to and with lastOffsetDelta of magic 2
OVERHEAD = 12  # offset and size, which the size does not count
SMALLEST = 14  # no sound batch has a smaller size field


class Seekable(Protocol):
    """A binary file."""

    def readinto(self, buffer: Any, /) -> int:
        """Fill ``buffer`` as far as one read gives."""

    def seek(self, position: int, whence: int = 0, /) -> int:
        """Go to a byte."""


def end_offset(file: Seekable) -> int:
    """The offset after the last whole batch header in ``file``, 0 if there is none.

    Cost: one short read a batch, so for small numbers of segments only. Bytes that are no batch end the walk.
    """
    header = bytearray(HEADER)
    position = end = 0
    while _filled(file, position, header):
        offset, size, _epoch, magic, _crc, _attributes, delta = struct.unpack(">qiibIhi", header)
        if size < SMALLEST or offset < 0:
            break
        end = max(end, offset + 1 + (max(delta, 0) if magic > 1 else 0))
        position += OVERHEAD + size
    return end


def _filled(file: Seekable, position: int, buffer: bytearray) -> bool:
    """Whether ``buffer`` could be filled from ``position`` on."""
    file.seek(position)
    view = memoryview(buffer)
    got = 0
    while got < len(buffer) and (more := file.readinto(view[got:])):
        got += more
    return got == len(buffer)


# Large batches by their headers alone: what lies between two headers is not read, and its checksum not verified.
#
# Only as long as nothing is odd: where an offset is missing, the leader epoch changes or a batch is no plain one, its
# body is read and its checksum verified. At the first thing that does not fit the hop ends, some batches before it, and
# the rest is for :func:`auditor.connectors.codec.segment.read_segment`, which knows of damage.


READ = 128  # bytes at a header: a marker is in it as a whole
LARGE = 16 << 10  # bytes of a batch that are worth a leap: less is a page or two, which is read anyway
SAMPLE = 32  # batches that show whether a segment has large ones
BACK = 4  # batches before what is odd that are read again, so that their neighbours are seen


class HeaderHop:
    """Hops over a segment from one header to the next.

    ``f``, ``size``: as of :func:`read_segment`; ``start`` and ``offsets``: a batch's position, and the offsets that are
    possible from there on; ``rows``: of a chunk. When :meth:`chunks` has ended, ``end`` and ``next_offset`` say how far
    it came, ``read`` how many bytes were read.
    """

    def __init__(
        self,
        f: SeekableFile,
        size: int,
        limits: Limits,
        start: int,
        offsets: tuple[int, int],
        rows: int = ROWS,
    ) -> None:
        self.f, self.size, self.limits = f, size, limits
        self.end, self.next_offset, self.below = start, offsets[0], offsets[1]
        self.read, self.rows = 0, rows

    def chunks(self) -> Iterator[np.ndarray]:
        """Rows of a walk, chunk by chunk; those whose checksum was not verified have :data:`UNVERIFIED`."""
        rows, count = walking.walk_rows(self.rows + BACK), 0
        position, last, whole, tried = self.end, self.next_offset - 1, False, 0
        while position < self.size:
            fits = self._header(position, last, rows, count)
            if tried == SAMPLE and position - self.end < SAMPLE * LARGE:
                return  # small batches: all of it is read anyway
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
        data, got = np.empty(count, np.uint8), 0
        try:
            self.f.seek(position)
            while got < count and (more := self.f.readinto(data.data[got:])):
                got += more
        except OSError:
            return data[:0]
        self.read += got
        return data[:got]

    def _header(self, position: int, last: int, rows: np.ndarray, row: int) -> bool:
        """Whether a plain batch begins at a byte behind offset ``last``, which ``row`` then is."""
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
        """Whether a batch follows the one before it; where not directly, both their bodies are as they were written."""
        before, header = rows[row - 1], rows[row]
        rise = header[walking.PARTITION_LEADER_EPOCH] - before[walking.PARTITION_LEADER_EPOCH]
        if rise < 0 or (rise and row < BACK):
            return False
        hole = header[walking.BASE_OFFSET] != before[walking.LAST_OFFSET] + 1
        return not (hole or rise) or (self._verified(before) and self._verified(header))

    @staticmethod
    def _plain_end(rows: np.ndarray, count: int) -> bool:
        """Whether the last batch simply goes on: what contradicts nothing else has no neighbour behind it that would
        show it as damaged."""
        before, header = rows[count - 2], rows[count - 1]
        same = header[walking.PARTITION_LEADER_EPOCH] == before[walking.PARTITION_LEADER_EPOCH]
        return bool(count > 1 and same and header[walking.BASE_OFFSET] == before[walking.LAST_OFFSET] + 1)

    def _verified(self, row: np.ndarray) -> bool:
        """Whether a batch has the checksum that it says, which is then known."""
        if not row[walking.FLAWS] & UNVERIFIED:
            return True
        total = int(row[walking.SIZE])
        data = self._bytes(int(row[walking.POSITION]), total)
        if len(data) < total or not walking.is_sound(data, 0, total, 2):
            return False
        row[walking.FLAWS] = 0
        return True


# Batches of a magic above 2, which brokers take for 2 where their checksum is right: it does not cover the magic.


MAGIC_AT = walking.PREFIX - 1  # byte of a batch that holds the magic


def foreign_row(data: bytes, position: int) -> np.ndarray | None:
    """The row of a walk that a broker has of the bytes from ``position`` of a segment on; None where they are no whole
    batch to it."""
    if len(data) <= MAGIC_AT or data[MAGIC_AT] > 127:
        return None
    patched: Any = io.BytesIO(data[:MAGIC_AT] + b"\x02" + data[MAGIC_AT + 1 :])
    chunk = next(iter(read_segment(patched, len(data), file="")))
    if len(chunk.rows) != 1 or chunk.errors or chunk.rows[0, walking.FLAWS] & FLAW_CRC:
        return None
    row: np.ndarray = chunk.rows[0].copy()
    row[walking.POSITION] += position
    return row
