"""A buffer over a file of which any stretch may be looked at again."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from auditor.base.errors import MIB

BUFFER = MIB


class SeekableFile(Protocol):
    """A binary file as ``open(path, "rb", buffering=0)``, pyarrow and fsspec give it."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move to a byte."""
        ...

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Read into a buffer; 0 at the end."""
        ...


class Window:
    """A buffer over a file: ``data[at:end]`` is not yet walked, ``origin`` is the file position of ``data[0]``.

    ``size`` is the file's in bytes as listed; ``failure`` is set once it could not be read.
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

    def go_to(self, position: int) -> None:
        """Go on at ``position``, whether it is in the buffer, behind it or before it."""
        if self.origin <= position <= self.origin + self.end:
            self.at = position - self.origin
        else:
            self.origin, self.at, self.end = position, 0, 0
            self._seek(position)

    def peek(self, position: int, count: int) -> np.ndarray:
        """Up to ``count`` bytes from ``position`` on, fewer where the file ends. Goes there."""
        self.go_to(position)
        if self.left < count:
            self.fill(count)
        return self.data[self.at : min(self.end, self.at + count)]

    def look(self, position: int, count: int) -> np.ndarray:
        """Up to ``count`` bytes from ``position`` on, fewer where the file ends. The buffer stays as it is."""
        begin, count = position - self.origin, min(count, self.size - position)
        if begin >= 0 and begin + count <= self.end:
            return self.data[begin : begin + count]
        found, got = np.empty(max(0, count), np.uint8), 0
        try:
            self.f.seek(position)
            while got < count and (more := self.f.readinto(found.data[got:])):
                got += more
            self.f.seek(self.origin + self.end)
        except OSError as error:
            self.failure = error
        return found[:got]

    def only_zeros_left(self) -> bool:
        """Whether all bytes from here to the file's end are zero; else it goes to the buffer with the first other."""
        while True:
            if self.data[self.at : self.end].any():
                return False
            self.at = self.end
            if not self.fill():
                return self.failure is None
