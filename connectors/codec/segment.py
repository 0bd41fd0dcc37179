"""Reading a segment file: batches in columns, and every byte that is in no batch as an error with its reason.

Follows ``FileLogInputStream``, except that what Kafka passes over in silence at a file's end is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from auditor.base.errors import BREAKS_OFF, DecodeError
from auditor.base.limits import DEFAULT_LIMITS, MIB, Limits
from auditor.connectors.codec import batch as walking
from auditor.connectors.codec.columns import FLAW_CONTROL_COMPRESSED, BatchColumns, RecordSummary
from auditor.connectors.codec.compression import Failure
from auditor.connectors.codec.control import open_controls
from auditor.connectors.codec.legacy import open_wrappers
from auditor.connectors.codec.primitives import be32
from auditor.connectors.codec.summary import joined, summarise

BUFFER = MIB
HELD_BUFFER = 4 * MIB  # where chunks show it
ROWS = 8_184  # of one chunk at most; not 8192, or all columns would compete for the same cache lines
CHUNK_BYTES = 64 * MIB  # of the file in one chunk at most, give or take a buffer
RAW_CHUNK_BYTES = 8 * MIB  # the same where the bytes are handed out


class SeekableFile(Protocol):
    """A binary file as ``open(path, "rb", buffering=0)``, pyarrow and fsspec give it."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move to a byte."""
        ...

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Read into a buffer; 0 at the end."""
        ...


@dataclass(frozen=True)
class Chunk:
    """A stretch of a segment.

    ``rows`` are its batches in file order as a walk leaves them (:func:`auditor.connectors.codec.batch.walk_rows`),
    which is
    what kernels read; ``batches`` are the same in columns of their own types. ``errors`` are the stretches of bytes
    that are in no batch; ``body_errors`` tell of batches that are rows but whose content could not be opened (wrappers;
    with records, any batch), with the batch's position and size. ``summary`` and ``raw`` (each batch's stored bytes)
    are aligned with ``batches``, None unless asked for. ``end`` is the file position after the last byte accounted for.
    ``held`` are bytes of the file from ``origin`` on, all batches' among them, valid until the next chunk.
    """

    rows: np.ndarray
    errors: list[DecodeError]
    body_errors: list[DecodeError]
    summary: RecordSummary | None
    raw: list[bytes] | None
    end: int
    held: np.ndarray | None = None
    origin: int = 0

    @cached_property
    def batches(self) -> BatchColumns:
        """The batches in columns; made when first asked for, at about 10 ns a batch."""
        return walking.columns_of(self.rows)


class _Window:
    """A buffer over a file: ``data[at:end]`` is not yet walked, ``origin`` is the file position of ``data[0]``."""

    def __init__(self, f: SeekableFile, start: int, size: int, room: int = BUFFER) -> None:
        self.f = f
        self.size = size
        self.data = np.empty(max(1, min(room, size - start)), np.uint8)
        self.at = self.end = 0
        self.origin = start
        self.failure: OSError | None = None
        self._seek(start)

    @property
    def position(self) -> int:
        """The file position of the first byte not yet walked."""
        return self.origin + self.at

    def _seek(self, position: int) -> None:
        try:
            self.f.seek(position)
        except OSError as error:
            self.failure = error

    def fill(self, need: int = 0) -> bool:
        """Read on, making room for ``need`` unwalked bytes; False when nothing more came."""
        kept = self.end - self.at
        data = self.data if need <= len(self.data) else np.empty(need, np.uint8)
        data[:kept] = self.data[self.at : self.end]
        self.origin += self.at
        self.data, self.at, self.end = data, 0, kept
        wanted = min(len(data), self.size - self.origin)
        view = data.data
        while self.end < wanted and self.failure is None:
            try:
                got = self.f.readinto(view[self.end : wanted])
            except OSError as error:
                self.failure = error
                break
            if not got:
                break
            self.end += got
        return self.end > kept

    def skip_to(self, position: int) -> None:
        """Go on at ``position``, which is not behind."""
        if position <= self.origin + self.end:
            self.at = position - self.origin
        else:
            self.origin, self.at, self.end = position, 0, 0
            self._seek(position)

    def only_zeros_left(self) -> bool:
        """Whether all bytes from here to the file's end are zero. Reads as far as they are."""
        while True:
            if self.data[self.at : self.end].any():
                return False
            self.at = self.end
            if not self.fill():
                return self.failure is None


class _Building:
    """The chunk being filled."""

    def __init__(self, file: str, limits: Limits, *, records: bool, raw: bool) -> None:
        self.file = file
        self.limits = limits
        self.columns = walking.walk_rows(ROWS)
        self.summaries: list[RecordSummary] | None = [] if records else None
        self.raw: list[bytes] | None = [] if raw else None
        self.rows = self.bytes = 0
        self.errors: list[DecodeError] = []
        self.body_errors: list[DecodeError] = []

    def take(self, window: _Window, rows: int, at: int) -> None:
        """Settle the rows that a walk up to ``at`` added, while their bytes are at hand."""
        added = self.columns[self.rows : rows]
        self.bytes += at - window.at
        window.at = at
        self.rows = rows
        closed = bool(((added[:, walking.MAGIC] < 2) | (added[:, walking.FLAWS] & FLAW_CONTROL_COMPRESSED)).any())
        if not closed and self.summaries is None and self.raw is None:
            return
        fresh = walking.columns_of(added)
        if closed:
            for open_them in (open_wrappers, open_controls):
                self._tell(fresh, open_them(window.data, window.origin, fresh, self.limits))
            added[:] = walking.rows_of(fresh)
        if self.summaries is not None:
            summary, failures = summarise(window.data, window.origin, fresh, self.limits)
            self.summaries.append(summary)
            self._tell(fresh, failures)
        if self.raw is not None:
            view = window.data.data
            starts = fresh.position - window.origin
            ends = starts + fresh.size
            self.raw += [bytes(view[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]

    def _tell(self, batches: BatchColumns, failures: list[tuple[int, Failure]]) -> None:
        if not failures:
            return
        told = {error.position for error in self.body_errors}  # a wrapper fails twice where records are asked for
        for row, failure in failures:
            position, size = int(batches.position[row]), int(batches.size[row])
            if position not in told:
                self.body_errors.append(DecodeError(self.file, position, size, failure.reason, failure.detail))

    def is_full(self) -> bool:
        """Whether it is time to hand the chunk out."""
        return self.rows == ROWS or self.bytes >= (CHUNK_BYTES if self.raw is None else RAW_CHUNK_BYTES)

    def chunk(self, end: int, window: _Window | None = None) -> Chunk:
        """The chunk as it is, with what a window holds, and begin the next one."""
        if self.rows == len(self.columns):
            rows, self.columns = self.columns, walking.walk_rows(ROWS)
        else:
            rows = self.columns[: self.rows].copy()
        held = (window.data, window.origin) if window else ()
        done = Chunk(rows, self.errors, self.body_errors, joined(self.summaries), self.raw, end, *held)
        self.summaries = None if self.summaries is None else []
        self.raw = None if self.raw is None else []
        self.rows = self.bytes = 0
        self.errors, self.body_errors = [], []
        return done


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
    held: bool = False,
    crc: bool = True,
) -> Iterator[Chunk]:
    """The batches of a segment that begin in ``[start, stop)``, in chunks, of which there is at least one.

    ``f`` is the file, ``size`` its length in bytes as listed (what it grows beyond is left alone), ``file`` its name
    for errors. ``start`` must be a batch's position; the batch that begins before ``stop`` is read whole. ``records``
    reads all records for the summary, ``raw`` hands out the stored bytes, ``held`` shows them where they lie, a buffer
    a chunk, ``crc=False`` leaves checksums unchecked.
    Batch sizes and error lengths add up to ``end - start`` of the last chunk, which is ``size`` unless ``stop`` is
    given. Raises nothing: a file that cannot be read is an error of reason ``unreadable``. Memory: a buffer of 1 MiB
    (``held``: 4), or of the largest batch up to ``limits.max_batch_bytes``; with ``raw``, also the chunk.
    """
    window = _Window(f, start, size, HELD_BUFFER if held else BUFFER)
    until = size if stop is None else min(stop, size)
    building = _Building(file, limits, records=records, raw=raw)
    handed_out = False
    while window.position < until:
        rows, at, why = walking.walk(
            window.data,
            window.at,
            window.end,
            window.origin,
            until,
            limits.max_batch_bytes,
            crc,
            building.rows,
            building.columns,
        )
        building.take(window, rows, at)
        if building.is_full() or (held and building.rows):
            yield building.chunk(window.position, window if held else None)
            handed_out = True
        if window.position >= until or why == walking.FULL or (why == walking.MORE and _read_on(window)):
            continue
        error = _error(window, why, file)
        building.errors.append(error)
        window.skip_to(error.position + error.length)
    if building.rows or building.errors or not handed_out:
        yield building.chunk(window.position)


def _batch_size(window: _Window) -> int:
    """Bytes of the batch at hand with its overhead, as stated; of a prefix where not even that is there yet."""
    if window.end - window.at < walking.PREFIX:
        return walking.PREFIX
    return int(be32(window.data, window.at + 8)) + walking.OVERHEAD


def _read_on(window: _Window) -> bool:
    """Read more of the batch at hand; False where the file has no more of it."""
    need, rest = _batch_size(window), window.size - window.position
    if need > rest:
        need = min(rest, walking.PREFIX)  # it is torn, and its first bytes tell how
    return window.end - window.at < need and window.fill(need)


def _error(window: _Window, why: int, file: str) -> DecodeError:
    """The error at hand: one batch, where its own size says how to step over it, else the rest of the file."""
    position, rest = window.position, window.size - window.position
    here = window.data[window.at : min(window.end, window.at + walking.PREFIX)]
    if why == walking.MORE:
        return DecodeError(file, position, rest, *_torn(window, here))
    total = _batch_size(window)
    if why == walking.BAD_SIZE:
        if here.any():
            return DecodeError(file, position, rest, "bad_size", f"a batch states a size of {total - walking.OVERHEAD}")
        if window.only_zeros_left():
            return DecodeError(file, position, rest, "zero_filled", f"{rest} zero bytes at the end")
        return DecodeError(
            file, position, rest, "bad_size", "zeros where a batch should begin, and other bytes behind them"
        )
    fits = total <= rest
    if why == walking.BAD_MAGIC:
        detail = f"magic {int(np.int8(here[16]))}" + ("" if fits else f" in a batch of {total} bytes {BREAKS_OFF}")
        return DecodeError(file, position, total if fits else rest, "bad_magic", detail)
    if fits:
        return DecodeError(file, position, total, "batch_limit", f"a batch of {total} bytes")
    return DecodeError(file, position, rest, "truncated", f"a batch of {total} bytes begins where {rest} are left")


def _torn(window: _Window, here: np.ndarray) -> tuple[str, str]:
    """Reason and detail of an end in the middle of a batch."""
    rest, left = window.size - window.position, window.end - window.at
    if window.failure is not None:
        return "unreadable", window.failure.strerror or type(window.failure).__name__
    need = _batch_size(window)
    if need <= rest or left < min(rest, walking.PREFIX):
        return "vanished", f"the file is {rest - left} bytes shorter than when it was listed"
    if left < walking.PREFIX and not here.any():
        return "zero_filled", f"{rest} zero bytes at the end"
    if left < walking.PREFIX:
        return "truncated", f"{rest} bytes of a batch header"
    return "truncated", f"a batch of {need} bytes begins where {rest} are left"
