"""Reading files of stores ahead, and files of a broker's host without disturbing it."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import importlib
import io
import mmap
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
import pyarrow as pa

from auditor.base import user_input
from auditor.base.at_rest import Values
from auditor.base.errors import AuditInputError
from auditor.connectors.stores import retries
from auditor.connectors.stores.retries import AT_ONCE, REFUSED

if TYPE_CHECKING:
    import pyarrow.fs as pafs


# Which driver opens the file system behind a URI: pyarrow's, else fsspec's if it is installed.


# pyarrow opens hdfs:// by Hadoop's own libraries, which no package of Python's brings; hdfs-native does without them.
_NO_HADOOP = re.compile(r"(?:Unable|Prior attempt) to load lib(?:jvm|hdfs)")
_DRIVERS = {"hdfs": "the packages fsspec and hdfs-native, or Hadoop with libhdfs"}
_CREDENTIALS = re.compile(r"DENIED|HTTP status 40[013]|Token|TOKEN|ACCESS_KEY|SIGNATURE|UNAUTHENTICATED")


@functools.lru_cache(maxsize=64)
def filesystem(uri: str) -> tuple[pafs.FileSystem, str]:
    """The file system behind a URI and the URI's path in it; one a process and URI.

    Errors: :class:`AuditInputError` when neither ``pyarrow.fs`` nor ``fsspec`` can open it.
    """
    import pyarrow.fs as pafs  # the clients of all stores: only where a URI needs them

    if pa.io_thread_count() < AT_ONCE:
        pa.set_io_thread_count(AT_ONCE)  # its S3 client has as many connections, and 25 at least
    scheme = user_input.parsed(uri).scheme
    try:
        files, path = pafs.FileSystem.from_uri(uri)
        return files, path
    except REFUSED as error:
        reason = str(error).partition("\n")[0].replace(uri, f"{scheme}://…")  # a URI may hold a password
        no_driver = isinstance(error, pa.ArrowInvalid | pa.ArrowNotImplementedError) or _NO_HADOOP.match(reason)
        if not no_driver:
            raise AuditInputError(f"{scheme}: {reason}; check the URI, its credentials and the network") from error
    try:
        fsspec = importlib.import_module("fsspec.core")  # no dependency: only where a URI needs it
    except ImportError:
        wanted = _DRIVERS.get(scheme, "fsspec and its driver")
        raise AuditInputError(f"{scheme}: {reason}; install {wanted}, or copy the files") from None
    try:
        other, path = fsspec.url_to_fs(uri)
    except RuntimeError as error:
        hint = "check the URI and, for HDFS, that HADOOP_CONF_DIR names the folder of its settings"
        raise AuditInputError(f"{scheme}: {type(error).__name__}; {hint}") from error
    except (OSError, ValueError, ImportError) as error:
        wanted = _DRIVERS.get(scheme, "the fsspec driver of this scheme")
        raise AuditInputError(f"{scheme}: {type(error).__name__}; install {wanted}") from error
    return pafs.PyFileSystem(_of_fsspec(other)), path


def _of_fsspec(other: Any) -> pafs.FSSpecHandler:
    """A file system of fsspec's for pyarrow. hdfs-native moves a file in place of another only where it is told to, as
    HDFS does it in one step, and names the time of writing otherwise."""
    import pyarrow.fs as pafs

    if "hdfs" not in other.protocol:
        return pafs.FSSpecHandler(other)

    class OfHadoop(pafs.FSSpecHandler):
        def move(self, src: str, dest: str) -> None:
            self.fs.mv(src, dest, overwrite=True)

        @staticmethod
        def _create_file_info(path: str, info: Values) -> pafs.FileInfo:
            mtime = info.get("modification_time", 0) / 1000
            return pafs.FSSpecHandler._create_file_info(path, {**info, "mtime": mtime})

    return OfHadoop(other)


def renewed(why: Exception) -> None:
    """Before a request is tried again: where it was refused for its credentials, those are looked up anew."""
    if _CREDENTIALS.search(str(why)):
        filesystem.cache_clear()


def refusal(uri: str, folder: str) -> Exception | None:
    """What a store has against listing a folder, which it says with a code; None for nothing."""
    import pyarrow.fs as pafs

    try:
        filesystem(uri)[0].get_file_info(pafs.FileSelector(folder, allow_not_found=True))
    except REFUSED as error:
        return error
    return None


# Which pages of an open file are in the page cache, and how to give back those that only we brought there.
#
# Linux alone, and there the owner of a file (or root) alone, is told which are cached: all others are told that all
# are,
# and give nothing back.


PAGE = mmap.PAGESIZE
_FAILED = ctypes.c_void_p(-1).value
_AT_ONCE = 260  # pages of a MiB, wherever it begins


@functools.cache
def _libc() -> Any:
    """The functions of the C library that Python has no names for; None where this cannot be asked."""
    if sys.platform != "linux" or sys.maxsize < 2**32 or not hasattr(os, "posix_fadvise"):
        return None
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
        libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    except (OSError, AttributeError):
        return None
    return libc


class Residency:
    """Tells of an open file which pages are cached, up to the size that it had when this was made. Reads none."""

    def __init__(self, descriptor: int) -> None:
        self._at = 0  # where the file is mapped, for mincore to look at; nobody reads there
        self._libc = _libc()
        self._pages = -(-os.fstat(descriptor).st_size // PAGE)
        self._told = ctypes.create_string_buffer(_AT_ONCE)
        if self._libc is not None and self._pages:
            address = self._libc.mmap(None, self._pages * PAGE, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
            self._at = 0 if address is None or address == _FAILED else address

    def cached(self, first: int, behind: int) -> bytes | None:
        """Of each page from number ``first`` to before ``behind`` a byte, 0 for one that is not cached; fewer where the
        file had fewer; None where nothing tells."""
        count = min(behind, self._pages) - first
        if not self._at or count <= 0:
            return None
        resident = self._told if count <= _AT_ONCE else ctypes.create_string_buffer(count)
        if self._libc.mincore(self._at + first * PAGE, count * PAGE, resident):
            return None
        return resident.raw[:count]

    def close(self) -> None:
        """Ends it."""
        if self._at:
            self._libc.munmap(self._at, self._pages * PAGE)
            self._at = 0


def no_reading_ahead(descriptor: int) -> None:
    """Of what this descriptor reads no more is fetched than was asked for."""
    if _libc() is not None:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)


def give_back(descriptor: int, first: int, pages: np.ndarray) -> None:
    """Takes those pages out of the cache, counted from number ``first`` on, that ``pages`` says."""
    edges = np.flatnonzero(np.diff(pages.astype(np.int8), prepend=0, append=0))
    for begin, end in edges.reshape(-1, 2).tolist():
        os.posix_fadvise(descriptor, (first + begin) * PAGE, (end - begin) * PAGE, os.POSIX_FADV_DONTNEED)


# Reading as a guest of a broker: no faster than is allowed, and leaving the page cache as it was found.
#
# A broker serves its consumers from the page cache. Reading its logs through would put them in place of what the broker
# needs, so a page that was not cached before it was read is given back after. Whoever reads so says it once, for all
# files that this process opens (:func:`visiting`).


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
        no_reading_ahead(descriptor)
        self.residency = Residency(descriptor)

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
        give_back(self.fileno(), first, brought)

    def _give_back_the_last(self) -> None:
        give_back(self.fileno(), self.ours, np.ones(1, bool))
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


def reading_pace() -> Pace | None:
    """The pace at which a store is read; None: as it comes."""
    return None if _guest is None else _guest.pace


# A file of a store, read in large requests, some of them ahead of who reads it.
#
# A request takes its time until the first byte comes, whatever it asks for: so it asks for much, and the next ones are
# under way while what came is worked on. Memory: :data:`AHEAD` blocks more than the one at hand.


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
                raise retries.Coded(code[1].decode()) from error
            raise
        return data[:got]

    def _size_now(self) -> int:
        info = filesystem(self.uri)[0].get_file_info(self.path)
        if not info.is_file:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return int(info.size or 0)


class RemoteFile:
    """What :func:`auditor.connectors.stores.storage.open_file` gives for a file behind a URI.

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
        """Opens a file, or takes what was opened ``before``.

        Errors: as of :func:`auditor.connectors.stores.retries.ask`.
        """
        if before is None:
            before = retries.ask(lambda: Opened(uri, path), lambda: refusal(uri, path.rpartition("/")[0]), renewed)
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
        if (pace := reading_pace()) is not None:
            pace.read(len(data))
        return len(data)

    def _taken(self, number: int) -> np.ndarray:
        """A block that follows the one at hand, or that itself."""
        if number != self._number:
            for following in range(number + 1, number + 1 + AHEAD):
                start, size = self._span(following)
                if size > 0 and following not in self._coming:
                    self._coming[following] = retries.run(self._of.read, start, size)
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
            return retries.ask(read, lambda: refusal(self._of.uri, self._of.path.rpartition("/")[0]), renew)
        except OSError:
            raise
        except REFUSED as error:  # who reads a file expects nothing else
            raise OSError(errno.EIO, retries.code_of(error)) from error


# Files of a store that are opened, and their first block read, before somebody asks for them.
#
# Small files cost a store's answering time each, one after the other; side by side they cost it once. Who knows what
# will
# be read next says so (:func:`coming`), in groups, such as the files of a replica, in the order of reading. It is a
# hint
# and no more: what is not taken is forgotten, and what could not be had is asked for again by who reads it. Files of
# this
# machine are never meant.


PREFETCHED_AT_ONCE = 24  # files that are opened or wait to be taken, for each slot of a cluster
MANY = retries.AT_ONCE  # of them where one process works for all, before there are slots
MOST_BYTES = 32 << 20  # of them in memory


class Coming(NamedTuple):
    """A file that will be read: its URI and path, and its size in bytes as listed."""

    uri: str
    path: str
    size: int


@runtime_checkable
class Comes(Protocol):
    """A piece of work that knows which files of stores it reads."""

    def coming(self) -> Iterable[Coming]:
        """These, in the order of reading."""


def of_work(work: Iterable[object]) -> Iterator[Iterable[Coming]]:
    """What comes with pieces of work, a group each."""
    return (one.coming() if isinstance(one, Comes) else () for one in work)


class _FetchedBytes(NamedTuple):
    group: int
    size: int
    future: Future[Opened]


class _Prefetch:
    def __init__(self, groups: Iterable[Iterable[Coming]], at_once: int) -> None:
        self.at_once = at_once
        self.following = ((number, file) for number, group in enumerate(groups) for file in group)
        self.next: tuple[int, Coming] | None = None
        self.fetched: dict[tuple[str, str], _FetchedBytes] = {}
        self.passed: set[tuple[str, str]] = set()
        self.bytes = 0

    def fetch(self) -> None:
        """Begins to fetch as many files as may be under way."""
        while len(self.fetched) < self.at_once:
            number, file = self.next or next(self.following, (-1, None))
            self.next = None
            if file is None:
                return
            size, key = min(file.size, BLOCK), (file.uri, file.path)
            if key in self.passed or key in self.fetched:
                self.passed.discard(key)
                continue
            if self.bytes and self.bytes + size > MOST_BYTES:
                self.next = number, file
                return
            self.bytes += size
            self.fetched[key] = _FetchedBytes(number, size, retries.run(_opened, file, size))

    def taken(self, key: tuple[str, str]) -> Opened | None:
        """A file that was fetched; what should have been read before it is forgotten."""
        fetched = self.fetched.pop(key, None)
        if fetched is None:
            self.passed.add(key)
            return None
        self.bytes -= fetched.size
        for other in [k for k, f in self.fetched.items() if f.group < fetched.group]:
            left = self.fetched.pop(other)
            left.future.cancel()
            self.bytes -= left.size
        self.fetch()
        try:
            return fetched.future.result()
        except REFUSED:
            return None

    def close(self) -> None:
        """Forgets the rest."""
        for left in self.fetched.values():
            left.future.cancel()
        self.fetched.clear()


_ahead: _Prefetch | None = None


def _opened(file: Coming, size: int) -> Opened:
    opened = Opened(file.uri, file.path)
    opened.first = opened.read(0, min(size, opened.end)) if min(size, opened.end) else None
    return opened


@contextmanager
def coming(groups: Iterable[Iterable[Coming]], at_once: int = PREFETCHED_AT_ONCE) -> Iterator[None]:
    """While these files are read, in about this order; ``at_once``: how many are under way or wait."""
    global _ahead

    before, _ahead = _ahead, _Prefetch(groups, at_once)
    own = _ahead
    own.fetch()
    try:
        yield
    finally:
        own.close()
        _ahead = before


def taken(uri: str, path: str) -> Opened | None:
    """A file that somebody said was coming, once; None for any other."""
    return None if _ahead is None else _ahead.taken((uri, path))
