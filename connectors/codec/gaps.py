"""Bytes of a segment that are in no batch: what they are, and where the next sound batch begins."""

from __future__ import annotations

import numpy as np

from auditor.base.errors import BREAKS_OFF, MIB, DecodeError, Limits
from auditor.connectors.codec import batch as walking
from auditor.connectors.codec import search
from auditor.connectors.codec.primitives import be32, be64
from auditor.connectors.codec.window import Window

ANY_OFFSET = (0, 2**63 - 1)
WORK = 16  # bytes that a search may read for one byte of the segment, places that turn out to be no batch included
LEAST_WORK = 64 * MIB
MAX_KEPT = 2_000  # batches with wrong checksums that were searched and kept, 0.1 ms each; those behind are kept unseen
MENDABLE = ("bad_size", "bad_magic", "batch_limit", "truncated")
AS_IT_IS = ("unreadable", "vanished", "zero_filled")  # errors behind which nothing is looked for


def offset_range(base_offset: int, next_base: int = -1) -> tuple[int, int]:
    """The offsets that a segment may hold, the second of them not any more: from its own base offset to the next one's.

    -1 where one is not known: relative offsets, of which indexes are made, have 31 bits.
    """
    if base_offset < 0:
        return ANY_OFFSET
    return base_offset, next_base if next_base > base_offset else base_offset + 2**31


class Gaps:
    """What a walk over a segment asks when it comes to bytes that it cannot step over as a batch.

    A length that is wrong is found out by where it leads: to no batch, or over batches that it hides. Then the next
    sound batch is searched for (:mod:`auditor.connectors.codec.search`), and what lies between is one error. Its offset
    is above that of the last batch before, or of the broken batch itself where its header holds together, and below
    the segment's end. Where there is none, the bytes are what they would be for a broker: a tail.

    ``offsets`` as of :func:`auditor.connectors.codec.segment.read_segment`; ``trusted`` is the position of a batch with
    a wrong checksum whose length is the best that there is. Cost: searches pass over bytes once, and read at most 16
    times the segment (64 MiB at least) in vain; beyond that the rest of the segment is an error of reason ``limit``.
    """

    def __init__(self, file: str, window: Window, limits: Limits, offsets: tuple[int, int]) -> None:
        self.file = file
        self.window = window
        self.limits = limits
        self.last, self.below = offsets[0] - 1, offsets[1]
        self.trusted = -1
        self.found = (-1, -1)  # position and offset of the batch that the last search came to
        self.kept = 0
        self.barren = False  # no sound batch lies behind
        self.work = max(LEAST_WORK, WORK * window.size)

    def passed(self, rows: np.ndarray) -> None:
        """Notes the last offset of the rows that a walk has added."""
        if len(rows) and int(rows[-1, walking.POSITION]) == self.trusted:
            rows = rows[:-1]
        if len(rows) and rows[-1, walking.LAST_OFFSET] < self.below:
            self.last = int(rows[-1, walking.LAST_OFFSET])

    def read_on(self, why: int) -> bool:
        """Read more of the batch at hand where that helps; False where the file has no more of it."""
        if why not in (walking.MORE, walking.SUSPECT):
            return False
        need, rest = self._batch_size(), self.window.size - self.window.position
        if why == walking.SUSPECT:
            need = min(rest, need + walking.PREFIX)  # the batch behind it says whether its length is right
        elif need > rest:
            need = min(rest, walking.PREFIX)  # it is torn, and its first bytes show how
        return self.window.left < need and self.window.fill(need)

    def over(self, why: int) -> DecodeError | None:
        """The error at hand, which ends where the walk is to go on; None where it is to take the batch as it is."""
        if why == walking.SUSPECT:
            return self._suspect()
        here = self.window.position
        header = self.window.peek(here, walking.HEADER).copy()
        error = self._plain(why)
        start = max(here + 1, self.window.position - walking.PREFIX)  # zeros have been passed over
        if error.reason in AS_IT_IS:
            return error
        if self._is_batch(error):
            offset = int(be64(header, 0)) if len(header) >= walking.PREFIX else -1
            return error._replace(first_offset=offset) if self.last < offset < self.below else error
        return self._until_next(error, header, start) or error

    def end_to_try(self, error: DecodeError | None) -> int:
        """Where the batch at hand may end if its length is wrong, -1 where another length or magic is not worth to be
        tried, by what :meth:`over` gave. The bytes that it takes to try are booked."""
        if error is not None and error.reason not in MENDABLE:
            return -1
        end = self._end_of(error)
        self.work -= min(max(self._batch_size(), end - self.window.position), self.limits.max_batch_bytes)
        return end if self.work >= 0 else -1

    def _end_of(self, error: DecodeError | None) -> int:
        """Where the bytes end that may be the batch at hand: where the next sound one begins, else with the file."""
        if error is not None:
            return error.position + error.length
        here = self.window.position
        end = self.found[0] if self._search(here + 1, self.window.size, self.last) else self.window.size
        self.window.go_to(here)
        return end

    def _suspect(self) -> DecodeError | None:
        """A batch with a wrong checksum: its bytes were damaged, or its length is wrong."""
        here, total = self.window.position, self._batch_size()
        header = self.window.peek(here, walking.HEADER).copy()
        end = here + total
        neighbour = self._is_behind(end)
        error = DecodeError(self.file, here, total, "bad_size", f"a batch of {total} bytes that is none")
        gap = self._until_next(error, header, here + 1, end if neighbour else self.window.size)
        if gap is not None and gap.reason == "bad_size":
            return gap
        self.kept += 1
        self.trusted = here if self.kept < MAX_KEPT else walking.ALL
        self.window.go_to(here)
        return None

    def _until_next(
        self, error: DecodeError, header: np.ndarray, start: int, until: int | None = None
    ) -> DecodeError | None:
        """The error as it is when the next sound batch ends it; None where there is no such batch before ``until``."""
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
            self.file, error.position, position - error.position, "bad_size", detail, self.last + 1, offset - 1
        )

    @staticmethod
    def _failure(failure: OSError) -> str:
        return failure.strerror or type(failure).__name__

    def _above(self, header: np.ndarray) -> int:
        """The offset above which the next batch lies: the broken one's last where its header holds together."""
        if len(header) == walking.HEADER and header[16] == 2 and be64(header, 0) == self.last + 1:
            delta = int(be32(header, 23))
            if delta >= 0 and delta + 1 == be32(header, 57):
                return self.last + 1 + delta
        return self.last

    def _is_batch(self, error: DecodeError) -> bool:
        """Whether the error is a whole batch by its length: what lies behind it could be the next one, or nothing."""
        if error.reason not in ("bad_magic", "batch_limit"):
            return False
        return self._is_behind(error.position + error.length) and not error.detail.endswith(BREAKS_OFF)

    def _is_behind(self, position: int) -> bool:
        """Whether the file ends at a position, or what stands there could be a whole batch behind this one."""
        if position >= self.window.size:
            return position == self.window.size
        ahead = self.window.peek(position, walking.PREFIX)
        if len(ahead) < walking.PREFIX:
            return False
        size = int(be32(ahead, 8))
        fits = walking.MIN_SIZES[0] <= size <= self.window.size - position - walking.OVERHEAD
        return bool(fits and self.last < be64(ahead, 0) < self.below)

    def _search(self, start: int, until: int, above: int) -> bool:
        """Whether a sound batch begins in [start, until); ``found`` says where."""
        window = self.window
        if self.found[0] >= start and self.found[1] > above:
            return self.found[0] < until
        if self.barren:
            return False
        window.go_to(start)
        while window.position < until:
            how, at, need, self.work = search.find_batch(
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
            if how == search.FOUND:
                window.at = at
                self.found = (window.position, int(be64(window.data, at)))
                return True
            if how == search.EXHAUSTED:
                self.barren = True
                return False
            lead = min(search.LEAD, at)
            window.at = at - lead
            grew = window.position + lead < until and window.fill(need + lead)
            window.at += lead
            if not grew:
                self.barren = until == window.size
                return False
        return False

    def _batch_size(self) -> int:
        """Bytes of the batch at hand with its overhead, as stated; of a prefix where not even that is there yet."""
        if self.window.left < walking.PREFIX:
            return walking.PREFIX
        return int(be32(self.window.data, self.window.at + 8)) + walking.OVERHEAD

    def _plain(self, why: int) -> DecodeError:
        """The error at hand: one batch, where its own size says how to step over it, else the rest of the file."""
        window, file = self.window, self.file
        position, rest = window.position, window.size - window.position
        here = window.data[window.at : min(window.end, window.at + walking.PREFIX)]
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
        """Reason and detail of an end in the middle of a batch."""
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
