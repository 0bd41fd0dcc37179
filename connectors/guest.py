"""Reading as a guest of a broker: no faster than is allowed, and leaving the page cache as it was found.

A broker serves its consumers from the page cache. Reading its logs through would put them in place of what the broker
needs, so a page that was not cached before it was read is given back after. Whoever reads so says it once, for all
files that this process opens (:func:`visiting`).
"""

from __future__ import annotations

import contextlib
import io
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from auditor.connectors import page_cache
from auditor.connectors.page_cache import PAGE

_NO_TIMES = getattr(os, "O_NOATIME", 0)  # only the owner may ask that reading is not noted
_NOT_CACHED = b"\0"
_LEAST_S = 0.002  # that is waited at once


class Pace:
    """Bytes a second, at most; 0: as many as there are."""

    def __init__(
        self, rate: int, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.rate, self.clock, self.sleep = rate, clock, sleep
        self.free = clock()  # when as much was read as is allowed up to then

    def read(self, count: int) -> None:
        """Waits for as long as so many bytes may take since what was read before them."""
        if not self.rate:
            return
        now = self.clock()
        self.free = max(self.free, now) + count / self.rate
        if self.free - now >= _LEAST_S:
            self.sleep(self.free - now)


class Guest:
    """How files are read. ``home``: a folder whose files are our own."""

    def __init__(self, pace: Pace, home: Path | None = None) -> None:
        self.pace = pace
        self.home = None if home is None else f"{home.resolve()}/"

    def is_host(self, path: str) -> bool:
        """Whether a file of this machine is the broker's."""
        return self.home is None or not path.startswith(self.home)


class GuestFile(io.FileIO):
    """A file of this machine, read as a guest."""

    def __init__(self, descriptor: int, pace: Pace) -> None:
        super().__init__(descriptor, "rb")
        self.pace = pace
        self.at = 0
        self.ours = -1  # the last page that was read, where it is to be given back: the next read may begin in it
        page_cache.no_reading_ahead(descriptor)
        self.residency = page_cache.Residency(descriptor)

    def seek(self, position: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a byte."""
        self.at = super().seek(position, whence)
        return self.at

    def readinto(self, buffer: Any, /) -> int:
        """Fill ``buffer`` as far as one read gives; 0 at the end of the file."""
        wanted = memoryview(buffer).nbytes
        first, behind = self.at // PAGE, -(-(self.at + wanted) // PAGE)
        before = self.residency.cached(first, behind)
        got = super().readinto(buffer) or 0
        self.at += got
        read = max(0, -(-self.at // PAGE) - first)
        if before is not None and (self.ours >= 0 or _NOT_CACHED in before):
            self._leave(first, np.frombuffer(before, np.uint8)[:read] == 0)
        self.pace.read(read * PAGE)
        return got

    def _leave(self, first: int, brought: np.ndarray) -> None:
        """Gives back the pages from ``first`` on that were not cached, but for one that is not read to its end."""
        if not len(brought):
            return
        if self.ours == first:
            brought[0] = True
        elif self.ours >= 0:
            self._give_back_the_last()
        self.ours = -1
        if self.at % PAGE and (last := self.at // PAGE - first) < len(brought) and brought[last]:
            brought[last], self.ours = False, first + last
        page_cache.give_back(self.fileno(), first, brought)

    def _give_back_the_last(self) -> None:
        page_cache.give_back(self.fileno(), self.ours, np.ones(1, bool))
        self.ours = -1

    def close(self) -> None:
        """Give the file back."""
        if not self.closed and self.ours >= 0:
            self._give_back_the_last()
        if not self.closed:
            self.residency.close()
        super().close()


_guest: Guest | None = None


@contextlib.contextmanager
def visiting(guest: Guest) -> Iterator[None]:
    """Within the block this process reads as a guest."""
    global _guest
    before, _guest = _guest, guest
    try:
        yield
    finally:
        _guest = before


def opened(path: str, flags: int) -> tuple[int, Pace | None]:
    """Opens a file of this machine, with the pace at which a guest reads it; None: as it comes. Errors: ``OSError``."""
    if _guest is None or not _guest.is_host(path):
        return os.open(path, flags), None
    try:
        return os.open(path, flags | _NO_TIMES), _guest.pace
    except PermissionError:
        return os.open(path, flags), _guest.pace


def pace() -> Pace | None:
    """The pace at which a store is read; None: as it comes."""
    return None if _guest is None else _guest.pace
