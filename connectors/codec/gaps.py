"""Bytes of a segment that are in no batch, and the search for the next valid batch."""

from __future__ import annotations

import errno
import re
from typing import Protocol

import numpy as np

from auditor.base.compiled import kernel
from auditor.base.errors import BREAKS_OFF, MIB, DecodeError, Limits, bounded
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec.batches import HEADER, MIN_SIZES, OVERHEAD, PREFIX, is_sound
from auditor.connectors.codec.primitives import be32, be64

# The search for the next sound batch.
#
# A batch is accepted if offset, length and magic are possible and the checksum is correct. The checksum covers neither
# offset nor length, and a record's value may contain a whole batch of another log (backups and bridges write such), so
# two more conditions hold: offsets that are possible here in this segment, and no length of a key or value just before
# it that ends with it, or with a sequence of batches that it starts.


# How a search ended.
MORE = 0  # none in this buffer; more bytes are needed from the returned index
FOUND = 1
EXHAUSTED = 2  # the bytes allowed for rejected candidates are used up
LONGEST = 4 << 20  # bytes of a key or value that is checked for a sequence of batches
LEAD = 5  # bytes checked before a candidate: the longest length field of a key or value


@kernel
def _embedded(buf: np.ndarray, start: int, end: int, first: int) -> int:
    # The bytes of a key or value that starts with this batch and ends with one, else 0. Negative if the buffer ends too
    # early: so many bytes from start on are needed.
    length = np.int64(0)
    for back in range(1, LEAD + 1):
        if start - back < 0 or (buf[start - back] > 127) != (back > 1):
            return 0
        length = (length << 7) | np.int64(buf[start - back] & 127)  # its last byte holds the highest bits
        stated = (length >> 1) ^ -(length & 1)
        if stated > LONGEST:
            return 0
        run = first
        while run + PREFIX <= stated:
            if start + run + PREFIX > end:
                return -int(stated)
            size = be32(buf, start + run + 8)
            if size < MIN_SIZES[0] or buf[start + run + 16] > 2:
                break
            run += size + OVERHEAD
        if run == stated:
            return int(stated)
    return 0


@kernel
def _fits(buf: np.ndarray, start: int, end: int, magic: int, above: int, below: int) -> bool:
    # Whether the stated offsets, as far as the buffer shows them, are between above and below.
    offset = be64(buf, start)
    if offset <= above or offset >= below:
        return False
    delta = be32(buf, start + 23) if magic == 2 and end - start >= HEADER else 0
    return delta >= 0 and offset + delta < below


@kernel
def find_batch(
    buf: np.ndarray, position: int, stop: int, end: int, behind: int, limit: int, above: int, below: int, work: int
) -> tuple[int, int, int, int]:
    """Find the first sound batch that starts in ``buf[position:stop]``.

    Returns how the search ended, the index reached, the bytes needed from there, and the rest of ``work``.
    ``buf[:end]`` is filled, the file ends at index ``behind``. ``limit`` is the largest batch in bytes; the offset must
    be between ``above`` and ``below``. ``work``: bytes that may be read for checksums and for candidates at the
    buffer's end. Cost: one pass over the bytes, and ``work``.
    """
    while position < stop:
        if end - position < PREFIX:
            return MORE, position, PREFIX, work
        magic = np.int64(buf[position + 16])
        if magic > 2:
            position += 1
            continue
        total = be32(buf, position + 8) + OVERHEAD
        if total < MIN_SIZES[magic] + OVERHEAD or total > min(limit, behind - position):
            position += 1
            continue
        fits = _fits(buf, position, end, magic, above, below)
        inside = _embedded(buf, position, end, total)
        if inside < 0 and -inside > behind - position:
            inside = 0
        if not fits and inside == 0:
            position += 1
            continue
        need = max(total, HEADER if magic == 2 else total, -inside)
        work -= need
        if work < 0:
            return EXHAUSTED, position, 0, work
        if need > end - position:
            return MORE, position, need, work
        if not is_sound(buf, position, total, magic):
            position += 1
        elif inside == 0:
            return FOUND, position, total, work
        else:
            position += inside
    return MORE, position, 0, work


BUFFER = MIB


class SeekableFile(Protocol):
    """A binary file as ``open(path, "rb", buffering=0)``, pyarrow and fsspec give it.

    One that has ``is_object`` is a store's, which does not shrink while it is read; one that has ``data_from`` tells
    where data is behind a hole.
    """

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move to a byte."""
        ...

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Read into a buffer; 0 at the end."""
        ...


def read_at(file: SeekableFile, position: int, count: int) -> np.ndarray:
    """Up to ``count`` bytes from ``position`` on, fewer at the file's end. Errors: ``OSError``."""
    data, got = np.empty(count, np.uint8), 0
    file.seek(position)
    while got < count and (more := file.readinto(data.data[got:])):
        got += more
    return data[:got]


class FileWindow:
    """A buffer over a file: ``data[at:end]`` is not yet walked, ``origin`` is the file position of ``data[0]``.

    ``size`` is the file's in bytes as listed; ``failure`` is set after a read error.
    """

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

    @property
    def left(self) -> int:
        """Bytes in the buffer that are not yet walked."""
        return self.end - self.at

    def _seek(self, position: int) -> None:
        try:
            self.f.seek(position)
        except OSError as error:
            self.failure = error

    def fill(self, need: int = 0) -> bool:
        """Read on, making room for ``need`` unwalked bytes; return False if nothing more came."""
        remaining = self.end - self.at
        data = self.data if need <= len(self.data) else np.empty(need, np.uint8)
        data[:remaining] = self.data[self.at : self.end]
        self.origin += self.at
        self.data, self.at, self.end = data, 0, remaining
        wanted = min(len(data), self.size - self.origin)
        view = data.data
        while self.end < wanted and self.failure is None:
            try:
                got = self.f.readinto(view[self.end : wanted])
            except OSError as error:
                self.failure = error
                break
            if not got:
                if getattr(self.f, "is_object", False):
                    missing = self.size - self.origin - self.end
                    self.failure = OSError(errno.EIO, f"the store has {missing} bytes less of it than it listed")
                break
            self.end += got
        return self.end > remaining

    def go_to(self, position: int) -> None:
        """Continue at ``position``, inside or outside the buffer."""
        if self.origin <= position <= self.origin + self.end:
            self.at = position - self.origin
        else:
            self.origin, self.at, self.end = position, 0, 0
            self._seek(position)

    def peek(self, position: int, count: int) -> np.ndarray:
        """Up to ``count`` bytes from ``position`` on, fewer at the file's end. Moves there."""
        self.go_to(position)
        if self.left < count:
            self.fill(count)
        return self.data[self.at : min(self.end, self.at + count)]

    def look(self, position: int, count: int) -> np.ndarray:
        """Up to ``count`` bytes from ``position`` on, fewer at the file's end. The buffer is unchanged."""
        begin, count = position - self.origin, min(count, self.size - position)
        if begin >= 0 and begin + count <= self.end:
            return self.data[begin : begin + count]
        data, got = np.empty(max(0, count), np.uint8), 0
        try:
            self.f.seek(position)
            while got < count and (more := self.f.readinto(data.data[got:])):
                got += more
            self.f.seek(self.origin + self.end)
        except OSError as error:
            self.failure = error
        return data[:got]

    def only_zeros_left(self) -> bool:
        """Whether all bytes up to the file's end are zero; if not, moves to the buffer with the first other byte."""
        while True:
            if self.data[self.at : self.end].any():
                return False
            self.at = self.end
            if data_from := getattr(self.f, "data_from", None):
                self.go_to(min(max(self.position, data_from(self.position)), self.size))
            if not self.fill():
                return self.failure is None


# Bytes of a segment that are in no batch.


ANY_OFFSET = (0, 2**63 - 1)
WORK = 16  # bytes that searches may read per byte of the segment, rejected candidates included
LEAST_WORK = 64 * MIB
MAX_SUSPECTS = 2_000  # batches with a CRC mismatch that are checked, 0.1 ms each; later ones are kept unchecked
HTML = re.compile(rb"(?:\xef\xbb\xbf)?\s*<(?:!doctype|html)", re.IGNORECASE)
MENDABLE = ("bad_size", "bad_magic", "batch_limit", "truncated")
ENDS_WALK = ("unreadable", "vanished", "zero_filled")  # no batch is searched after these errors


def offset_range(base_offset: int, next_base: int = -1) -> tuple[int, int]:
    """The offsets that a segment may have, as (first, behind the last): from its base offset to the next segment's.

    ``next_base`` is -1 if unknown: relative offsets, as in indexes, have 31 bits.
    """
    if base_offset < 0:
        return ANY_OFFSET
    return base_offset, next_base if next_base > base_offset else base_offset + 2**31


class Gaps:
    """Decides how a walk over a segment continues at bytes that are not a sound batch.

    A wrong length shows in where it leads: to no batch, or over batches that it hides. Then the next sound batch is
    searched, and the bytes up to it are one error. Its offset is above that of the last batch before, or of the broken
    batch itself if its header is consistent, and below the segment's end. Without such a batch, the bytes are a tail,
    as for a broker.

    ``offsets`` as for :func:`auditor.connectors.codec.segment.read_segment`; ``trusted`` is the position of a batch
    with a CRC mismatch whose length is kept. Cost: searches pass over bytes once, and read at most 16 times the segment
    (64 MiB at least) in vain; the rest of the segment is then an error of reason ``limit``.
    """

    def __init__(self, file: str, window: FileWindow, limits: Limits, offsets: tuple[int, int]) -> None:
        self.file = file
        self.window = window
        self.limits = limits
        self.last, self.below = offsets[0] - 1, offsets[1]
        self.trusted = -1
        self.found = (-1, -1)  # position and offset of the last search's result
        self.kept = 0
        self.barren = False  # no sound batch follows
        self.work = max(LEAST_WORK, WORK * window.size)

    def passed(self, rows: np.ndarray) -> None:
        """Note the last offset of the rows that a walk added."""
        if len(rows) and int(rows[-1, walking.POSITION]) == self.trusted:
            rows = rows[:-1]
        if len(rows) and rows[-1, walking.LAST_OFFSET] < self.below:
            self.last = int(rows[-1, walking.LAST_OFFSET])

    def read_on(self, why: int) -> bool:
        """Read more of the current batch if that helps; False if the file has no more of it."""
        if why not in (walking.MORE, walking.SUSPECT):
            return False
        need, rest = self._batch_size(), self.window.size - self.window.position
        if why == walking.SUSPECT:
            need = min(rest, need + walking.PREFIX)  # the next batch shows whether the length is right
        elif need > rest:
            need = min(rest, walking.PREFIX)  # it is incomplete, and its first bytes show how
        return self.window.left < need and self.window.fill(need)

    def over(self, why: int) -> DecodeError | None:
        """The error at the current position, which ends where the walk continues; None if it should keep the batch."""
        if why == walking.SUSPECT:
            return self._suspect()
        here = self.window.position
        header = self.window.peek(here, walking.HEADER).copy()
        error = self._plain(why)
        start = max(here + 1, self.window.position - walking.PREFIX)  # zeros were skipped
        if error.reason in ENDS_WALK:
            return error
        if self._is_batch(error):
            offset = int(be64(header, 0)) if len(header) >= walking.PREFIX else -1
            return error._replace(first_offset=offset) if self.last < offset < self.below else error
        return self._until_next(error, header, start) or error

    def end_to_try(self, error: DecodeError | None) -> int:
        """The possible end of the current batch if its length is wrong; -1 if no other length or magic should be tried.
        ``error``: from :meth:`over`. The bytes of the attempt are counted."""
        if error is not None and error.reason not in MENDABLE:
            return -1
        end = self._end_of(error)
        self.work -= min(max(self._batch_size(), end - self.window.position), self.limits.max_batch_bytes)
        return end if self.work >= 0 else -1

    def _end_of(self, error: DecodeError | None) -> int:
        # The start of the next sound batch, else the end of the file.
        if error is not None:
            return error.position + error.length
        here = self.window.position
        end = self.found[0] if self._search(here + 1, self.window.size, self.last) else self.window.size
        self.window.go_to(here)
        return end

    def _suspect(self) -> DecodeError | None:
        # A CRC mismatch: either the bytes are damaged, or the length is wrong.
        here, total = self.window.position, self._batch_size()
        header = self.window.peek(here, walking.HEADER).copy()
        end = here + total
        neighbour = self._is_behind(end)
        error = DecodeError(self.file, here, total, "bad_size", f"a batch of {total} bytes that is none")
        gap = self._until_next(error, header, here + 1, end if neighbour else self.window.size)
        if gap is not None and gap.reason == "bad_size":
            return gap
        self.kept += 1
        self.trusted = here if self.kept < MAX_SUSPECTS else walking.ALL
        self.window.go_to(here)
        return None

    def _until_next(
        self, error: DecodeError, header: np.ndarray, start: int, until: int | None = None
    ) -> DecodeError | None:
        # None if no sound batch starts before until.
        if not self._search(start, self.window.size if until is None else until, self._above(header)):
            rest = self.window.size - error.position
            if self.window.failure is not None:
                return DecodeError(self.file, error.position, rest, "unreadable", self._failure(self.window.failure))
            if self.work < 0:
                detail = f"{error.detail}; no sound batch was found behind it within the limit of bytes to read for it"
                return DecodeError(self.file, error.position, rest, "limit", detail)
            return None
        position, offset = self.found
        detail = f"{error.detail}; the next sound batch begins at byte {position} with offset {offset}"
        return DecodeError(
            self.file, error.position, position - error.position, "bad_size", detail, bounded(self.last + 1), offset - 1
        )

    @staticmethod
    def _failure(failure: OSError) -> str:
        return failure.strerror or type(failure).__name__

    def _above(self, header: np.ndarray) -> int:
        # The last offset of the broken batch, if its header is consistent.
        if len(header) == walking.HEADER and header[16] == 2 and be64(header, 0) == self.last + 1:
            delta = int(be32(header, 23))
            if delta >= 0 and delta + 1 == be32(header, 57):
                return self.last + 1 + delta
        return self.last

    def _is_batch(self, error: DecodeError) -> bool:
        # Whether its length leads to a possible next batch, or to the end.
        if error.reason not in ("bad_magic", "batch_limit"):
            return False
        return self._is_behind(error.position + error.length) and not error.detail.endswith(BREAKS_OFF)

    def _is_behind(self, position: int) -> bool:
        # Whether the file ends here, or the next bytes could be the header of a later batch.
        if position >= self.window.size:
            return position == self.window.size
        ahead = self.window.peek(position, walking.PREFIX)
        if len(ahead) < walking.PREFIX:
            return False
        size = int(be32(ahead, 8))
        fits = walking.MIN_SIZES[0] <= size <= self.window.size - position - walking.OVERHEAD
        return bool(fits and self.last < be64(ahead, 0) < self.below)

    def _search(self, start: int, until: int, above: int) -> bool:
        window = self.window
        if self.found[0] >= start and self.found[1] > above:
            return self.found[0] < until
        if self.barren:
            return False
        window.go_to(start)
        while window.position < until:
            how, position, need, self.work = find_batch(
                window.data,
                window.at,
                min(window.end, until - window.origin),
                window.end,
                window.size - window.origin,
                self.limits.max_batch_bytes,
                above,
                self.below,
                self.work,
            )
            if how == FOUND:
                window.at = position
                self.found = (window.position, int(be64(window.data, position)))
                return True
            if how == EXHAUSTED:
                self.barren = True
                return False
            lead = min(LEAD, position)
            window.at = position - lead
            grew = window.position + lead < until and window.fill(need + lead)
            window.at += lead
            if not grew:
                self.barren = until == window.size
                return False
        return False

    def _batch_size(self) -> int:
        # As stated; that of a prefix if not even that is in the file.
        if self.window.left < walking.PREFIX:
            return walking.PREFIX
        return int(be32(self.window.data, self.window.at + 8)) + walking.OVERHEAD

    def _plain(self, why: int) -> DecodeError:
        # One batch if its own size tells how to skip it, else the rest of the file.
        window, file = self.window, self.file
        position, rest = window.position, window.size - window.position
        here = window.data[window.at : min(window.end, window.at + walking.PREFIX)]
        if not position and HTML.match(here.tobytes()):
            return DecodeError(file, 0, rest, "unreadable", "an HTML page, as of a login or a proxy, in place of a log")
        if why == walking.MORE:
            return DecodeError(file, position, rest, *self._torn(here))
        total = self._batch_size()
        if why == walking.BAD_SIZE:
            if here.any():
                return DecodeError(
                    file, position, rest, "bad_size", f"a batch states a size of {total - walking.OVERHEAD}"
                )
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

    def _torn(self, here: np.ndarray) -> tuple[str, str]:
        # The file ends in the middle of a batch.
        window = self.window
        rest, left = window.size - window.position, window.left
        if window.failure is not None:
            return "unreadable", self._failure(window.failure)
        need = self._batch_size()
        if need <= rest or left < min(rest, walking.PREFIX):
            return "vanished", f"the file is {rest - left} bytes shorter than when it was listed"
        if left < walking.PREFIX and not here.any():
            return "zero_filled", f"{rest} zero bytes at the end"
        if left < walking.PREFIX:
            return "truncated", f"{rest} bytes of a batch header"
        return "truncated", f"a batch of {need} bytes begins where {rest} are left"
