"""A file of a store, read in large requests, some of them ahead of who reads it.

A request takes its time until the first byte comes, whatever it asks for: so it asks for much, and the next ones are
under way while what came is worked on. Memory: :data:`AHEAD` blocks more than the one at hand.
"""

from __future__ import annotations

import errno
import os
import re
from concurrent.futures import Future
from typing import Any, Self

import numpy as np
import pyarrow as pa

from auditor.connectors import asking, guest, threads
from auditor.connectors.asking import REFUSED
from auditor.connectors.drivers import filesystem, refusal, renewed

BLOCK = 8 << 20  # bytes of a request
AHEAD = 2  # requests under way beyond the block at hand
ASIDE = 128 << 10  # bytes of a request for a few bytes elsewhere
_CODE = re.compile(rb"<Code>(\w+)</Code>")
_REASON_BYTES = 2048
_BEYOND = re.compile("HTTP status 416|InvalidRange|INVALID_RANGE")
_UNWRITTEN, _OTHER = 0xA5, 0x5A


class Opened:
    """A file that a store has opened, and the block at its beginning where that has been read already."""

    def __init__(self, uri: str, path: str) -> None:
        """Asks the store once. Errors: the driver's."""
        self.uri, self.path = uri, path
        self.file: pa.NativeFile = filesystem(uri)[0].open_input_file(path)
        self.end: int = self.file.size()
        self.first: np.ndarray | None = None

    def read(self, start: int, size: int) -> np.ndarray:
        """``size`` bytes from ``start`` on, fewer only where the file has no more by now. Errors: the driver's, and
        ``OSError`` where the answer breaks off."""
        try:
            data = self._answer(start, size)
            if len(data) == size and data[-1] == _UNWRITTEN:  # so it is of one block in 256
                data = data if self._ends_so(start + size - 1) else data[:0]
        except REFUSED as error:
            if not _BEYOND.search(str(error)):
                raise
            data = np.empty(0, np.uint8)
        if len(data) == size:
            return data
        if start + size <= (now := self._size_now()):
            raise OSError(errno.EIO, "an answer that breaks off")
        self.end = min(self.end, now)  # it is shorter than it was: what is left is read anew
        return self._answer(start, now - start) if now > start else data[:0]

    def _ends_so(self, last: int) -> bool:
        """Whether a byte really is what unwritten ones are; a refusal of so few bytes comes without a reason."""
        try:
            again = self._answer(last, 1, _OTHER)
        except REFUSED:
            return False
        return bool(len(again) and again[0] == _UNWRITTEN)

    def _answer(self, start: int, size: int, last: int = _UNWRITTEN) -> np.ndarray:
        """What a request gives. pyarrow's S3 says of an answer that is too short that it was whole, and the rest of the
        buffer is as it was: ``last`` is put where its last byte should be written. Where it refuses, the store's reason
        is in the buffer."""
        data = np.empty(size, np.uint8)
        data[:_REASON_BYTES], data[-1] = 0, last
        try:
            got = self.file.get_stream(start, size).readinto(data)
        except REFUSED as error:
            if code := _CODE.search(data[:_REASON_BYTES].tobytes()):
                raise asking.Coded(code[1].decode()) from error
            raise
        return data[:got]

    def _size_now(self) -> int:
        info = filesystem(self.uri)[0].get_file_info(self.path)
        if not info.is_file:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return int(info.size or 0)


class RemoteFile:
    """What :func:`auditor.connectors.storage.open_file` gives for a file behind a URI.

    Blocks are counted from the first byte that is read. Reads may raise ``OSError``, and
    :class:`~auditor.base.errors.StoreTrouble`.
    """

    def __init__(self, opened: Opened) -> None:
        self._of = opened
        self.at = 0
        self._origin = -1
        self._number, self._block = -1, np.empty(0, np.uint8)
        self._coming: dict[int, Future[np.ndarray]] = {}

    @classmethod
    def opened(cls, uri: str, path: str, before: Opened | None, until: int | None) -> Self:
        """Opens a file, or takes what was opened ``before``. Errors: as of :func:`auditor.connectors.asking.ask`."""
        if before is None:
            before = asking.ask(lambda: Opened(uri, path), lambda: refusal(uri, path.rpartition("/")[0]), renewed)
        if until is not None:
            before.end = min(before.end, until)
        return cls(before)

    def seek(self, position: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a byte."""
        self.at = position + {os.SEEK_SET: 0, os.SEEK_CUR: self.at, os.SEEK_END: self._of.end}[whence]
        return self.at

    def close(self) -> None:
        """Give the file back."""
        for future in self._coming.values():
            future.cancel()
        self._coming.clear()
        self._block = np.empty(0, np.uint8)

    def readinto(self, buffer: Any, /) -> int:
        """Fill ``buffer`` as far as one block gives; 0 at the end of the file."""
        view = memoryview(buffer)
        wanted = min(len(view), self._of.end - self.at)
        if wanted <= 0:
            return 0
        if self._origin < 0:
            self._origin = self.at
        number, inside = divmod(self.at - self._origin, BLOCK)
        if number in (self._number, self._number + 1) and number >= 0:
            data = self._taken(number)[inside : inside + wanted]
        else:
            data = self._patiently(self.at, min(max(wanted, ASIDE), self._of.end - self.at))[:wanted]
        view[: len(data)] = data.data
        self.at += len(data)
        if (pace := guest.pace()) is not None:
            pace.read(len(data))
        return len(data)

    def _taken(self, number: int) -> np.ndarray:
        """A block that follows the one at hand, or that itself."""
        if number != self._number:
            for following in range(number + 1, number + 1 + AHEAD):
                start, size = self._span(following)
                if size > 0 and following not in self._coming:
                    self._coming[following] = threads.run(self._of.read, start, size)
            self._block = self._came(number)
            self._number = number
        return self._block

    def _span(self, number: int) -> tuple[int, int]:
        start = self._origin + number * BLOCK
        return start, min(BLOCK, self._of.end - start)

    def _came(self, number: int) -> np.ndarray:
        start, size = self._span(number)
        if start == 0 and self._of.first is not None:
            first, self._of.first = self._of.first, None
            if len(first) >= size:
                return first
        future = self._coming.pop(number, None)
        if future is not None:
            try:
                return future.result()
            except REFUSED:
                pass  # it is asked again, patiently
        return self._patiently(start, size)

    def _patiently(self, start: int, size: int) -> np.ndarray:
        def read() -> np.ndarray:
            return self._of.read(start, size)

        def renew(why: Exception) -> None:
            before = filesystem.cache_info().currsize
            renewed(why)
            if filesystem.cache_info().currsize < before:
                again = Opened(self._of.uri, self._of.path)
                self._of.file = again.file

        try:
            return asking.ask(read, lambda: refusal(self._of.uri, self._of.path.rpartition("/")[0]), renew)
        except OSError:
            raise
        except REFUSED as error:  # who reads a file expects nothing else
            raise OSError(errno.EIO, asking.code_of(error)) from error
