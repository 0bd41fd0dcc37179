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


# Drivers of file systems: pyarrow's, else fsspec's if it is installed.


# pyarrow opens hdfs:// by Hadoop's own libraries, which no Python package has; hdfs-native needs none of them.
_NO_HADOOP = re.compile(r"(?:Unable|Prior attempt) to load lib(?:jvm|hdfs)")
_DRIVERS = {"hdfs": "the packages fsspec and hdfs-native, or Hadoop with libhdfs"}
_CREDENTIALS = re.compile(r"DENIED|HTTP status 40[013]|Token|TOKEN|ACCESS_KEY|SIGNATURE|UNAUTHENTICATED")


@functools.lru_cache(maxsize=64)
def filesystem(uri: str) -> tuple[pafs.FileSystem, str]:
    """The file system of a URI and the URI's path in it; cached per URI.

    Errors: :class:`AuditInputError` if neither ``pyarrow.fs`` nor ``fsspec`` can open it.
    """
    import pyarrow.fs as pafs  # imports the clients of all stores

    if pa.io_thread_count() < AT_ONCE:
        pa.set_io_thread_count(AT_ONCE)  # its S3 client has as many connections, at least 25
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
        fsspec = importlib.import_module("fsspec.core")  # optional
    except ImportError:
        wanted = _DRIVERS.get(scheme, "fsspec and its driver")
        raise AuditInputError(f"{scheme}: {reason}; install {wanted}, or copy the files") from None
    try:
        other, path = fsspec.url_to_fs(uri)
    except RuntimeError as error:
        hint = "check the URI and, for HDFS, that HADOOP_CONF_DIR names the directory of its settings"
        raise AuditInputError(f"{scheme}: {type(error).__name__}; {hint}") from error
    except (OSError, ValueError, ImportError) as error:
        wanted = _DRIVERS.get(scheme, "the fsspec driver of this scheme")
        raise AuditInputError(f"{scheme}: {type(error).__name__}; install {wanted}") from error
    return pafs.PyFileSystem(_of_fsspec(other)), path


def _of_fsspec(other: Any) -> pafs.FSSpecHandler:
    # hdfs-native replaces a file on a move only on request, as HDFS does in one step, and has another name for the time
    # of modification.
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


def renewed(why: Exception) -> bool:
    """Before a retry: if credentials were refused, have them looked up again; return whether they were."""
    refused = _CREDENTIALS.search(str(why)) is not None
    if refused:
        filesystem.cache_clear()
    return refused


def refusal(uri: str, folder: str) -> Exception | None:
    """The error of listing a directory, which has the store's code; None for none."""
    import pyarrow.fs as pafs

    try:
        filesystem(uri)[0].get_file_info(pafs.FileSelector(folder, allow_not_found=True))
    except REFUSED as error:
        return error
    return None


# Which pages of an open file are in the page cache, and dropping those that only we read.
#
# Only Linux tells, and only the owner of a file (or root): for all others all pages appear cached, and none is dropped.


PAGE = mmap.PAGESIZE
_FAILED = ctypes.c_void_p(-1).value
_AT_ONCE = 260  # pages of a MiB, at any start


@functools.cache
def _libc() -> Any:
    # Functions of the C library that Python lacks; None if the page cache cannot be queried.
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
    """Shows which pages of an open file are cached, up to its size at construction. Reads none."""

    def __init__(self, descriptor: int) -> None:
        self._at = 0  # address of the mapping for mincore, which is never read
        self._libc = _libc()
        self._pages = -(-os.fstat(descriptor).st_size // PAGE)
        self._buffer = ctypes.create_string_buffer(_AT_ONCE)
        if self._libc is not None and self._pages:
            address = self._libc.mmap(None, self._pages * PAGE, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
            self._at = 0 if address is None or address == _FAILED else address

    def cached(self, first: int, behind: int) -> bytes | None:
        """A byte per page from number ``first`` to before ``behind``, 0 for one that is not cached.

        Fewer if the file had fewer; None if unknown.
        """
        count = min(behind, self._pages) - first
        if not self._at or count <= 0:
            return None
        resident = self._buffer if count <= _AT_ONCE else ctypes.create_string_buffer(count)
        if self._libc.mincore(self._at + first * PAGE, count * PAGE, resident):
            return None
        return resident.raw[:count]

    def close(self) -> None:
        """Unmap the file."""
        if self._at:
            self._libc.munmap(self._at, self._pages * PAGE)
            self._at = 0


def no_reading_ahead(descriptor: int) -> None:
    """Disable the kernel's read-ahead for this descriptor."""
    if _libc() is not None:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)


def give_back(descriptor: int, first: int, pages: np.ndarray) -> None:
    """Drop pages from the cache: those of ``pages``, counted from number ``first``."""
    edges = np.flatnonzero(np.diff(pages.astype(np.int8), prepend=0, append=0))
    for begin, end in edges.reshape(-1, 2).tolist():
        os.posix_fadvise(descriptor, (first + begin) * PAGE, (end - begin) * PAGE, os.POSIX_FADV_DONTNEED)


# Reading beside a broker: at a limited rate, and without changing the page cache.
#
# A broker serves its consumers from the page cache. Reading its logs would replace the pages that it needs, so a page
# that was not cached before is dropped after reading. :func:`throttled` sets this for all files of this process.


_NO_TIMES = getattr(os, "O_NOATIME", 0)  # only the owner may leave the access time unchanged
_NOT_CACHED = b"\0"
_LEAST_S = 0.002  # shortest wait


class Pace:
    """A limit in bytes per second; 0: none."""

    def __init__(
        self, rate: int, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.rate, self.clock, self.sleep = rate, clock, sleep
        self.free = clock()  # when the bytes read so far are within the rate

    def read(self, count: int) -> None:
        """Wait until ``count`` more bytes are within the rate."""
        if not self.rate:
            return
        now = self.clock()
        self.free = max(self.free, now) + count / self.rate
        if self.free - now >= _LEAST_S:
            self.sleep(self.free - now)


class ThrottledReader:
    """How files are read beside a broker. ``home``: a directory with our own files."""

    def __init__(self, pace: Pace, home: Path | None = None) -> None:
        self.pace = pace
        self.home = None if home is None else f"{home.resolve()}/"

    def is_host(self, path: str) -> bool:
        """Whether a file of this machine is the broker's."""
        return self.home is None or not path.startswith(self.home)


class LocalFile(io.FileIO):
    """A file of this machine."""

    def data_from(self, position: int) -> int:
        """The first byte from ``position`` on that is stored, not of a hole; the file's end if there is none."""
        try:
            return os.lseek(self.fileno(), position, os.SEEK_DATA)
        except OSError as error:
            return os.fstat(self.fileno()).st_size if error.errno == errno.ENXIO else position
        finally:
            os.lseek(self.fileno(), position, os.SEEK_SET)


class ThrottledFile(LocalFile):
    """A file of this machine, read at a pace and without leaving it in the page cache."""

    def __init__(self, descriptor: int, pace: Pace) -> None:
        super().__init__(descriptor, "rb")
        self.pace = pace
        self.at = 0
        self.ours = -1  # the last page read, if it is to be dropped: the next read may start in it
        no_reading_ahead(descriptor)
        self.residency = Residency(descriptor)

    def seek(self, position: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a byte."""
        self.at = super().seek(position, whence)
        return self.at

    def readinto(self, buffer: Any, /) -> int:
        """Fill ``buffer`` with one read; 0 at the end of the file."""
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
        # Drops pages that were not cached before, except one that is not read to its end.
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
        if not self.closed and self.ours >= 0:
            self._give_back_the_last()
        if not self.closed:
            self.residency.close()
        super().close()


_guest: ThrottledReader | None = None


@contextlib.contextmanager
def throttled(guest: ThrottledReader) -> Iterator[None]:
    """Within the block this process reads as ``reader`` says."""
    global _guest
    before, _guest = _guest, guest
    try:
        yield
    finally:
        _guest = before


def opened(path: str, flags: int) -> tuple[int, Pace | None]:
    """Open a file of this machine; also return the pace for reading it, None for no limit. Errors: ``OSError``."""
    if _guest is None or not _guest.is_host(path):
        return os.open(path, flags), None
    try:
        return os.open(path, flags | _NO_TIMES), _guest.pace
    except PermissionError:
        return os.open(path, flags), _guest.pace


def reading_pace() -> Pace | None:
    """The pace for reading stores; None for no limit."""
    return None if _guest is None else _guest.pace


# A file of a store, read in large requests, some of them ahead.
#
# The latency of a request does not depend on its size: so it is large, and the next ones are sent while the last answer
# is processed. Memory: the current block and :data:`AHEAD` more.


BLOCK = 8 << 20  # bytes per request
AHEAD = 2  # requests ahead of the current block
ASIDE = 128 << 10  # bytes per request for a few bytes elsewhere
_CODE = re.compile(rb"<Code>(\w+)</Code>")
_REASON_BYTES = 2048
_BEYOND = re.compile("HTTP status 416|InvalidRange|INVALID_RANGE")
_UNWRITTEN, _OTHER = 0xA5, 0x5A


class Opened:
    """A file opened by a store, and its first block if that has been read already."""

    def __init__(self, uri: str, path: str) -> None:
        """Sends one request. Errors: the driver's."""
        self.uri, self.path = uri, path
        self.file: pa.NativeFile = filesystem(uri)[0].open_input_file(path)
        self.end: int = self.file.size()
        self.first: np.ndarray | None = None

    def read(self, start: int, size: int) -> np.ndarray:
        """``size`` bytes from ``start`` on, fewer only if the file is now shorter.

        Errors: the driver's, and ``OSError`` for an incomplete answer.
        """
        try:
            data = self._answer(start, size)
            if len(data) == size and data[-1] == _UNWRITTEN:  # true for one block in 256
                data = data if self._ends_so(start + size - 1) else data[:0]
        except REFUSED as error:
            if not _BEYOND.search(str(error)):
                raise
            data = np.empty(0, np.uint8)
        if len(data) == size:
            return data
        if start + size <= (now := self._size_now()):
            raise OSError(errno.EIO, "an answer that breaks off")
        self.end = min(self.end, now)  # the file is shorter now: the rest is read again
        return self._answer(start, now - start) if now > start else data[:0]

    def _ends_so(self, last: int) -> bool:
        # Whether a byte really equals the filler; a refusal of a short request has no reason.
        try:
            again = self._answer(last, 1, _OTHER)
        except REFUSED:
            return False
        return bool(len(again) and again[0] == _UNWRITTEN)

    def _answer(self, start: int, size: int, last: int = _UNWRITTEN) -> np.ndarray:
        # pyarrow's S3 client reports a short answer as complete and leaves the rest of the buffer as it was: last is
        # the filler of its last byte. After a refusal, the buffer has the store's reason.
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
    """The result of :func:`auditor.connectors.stores.storage.open_file` for a file behind a URI.

    Blocks are counted from the first byte that is read. Reads may raise ``OSError``, and
    :class:`~auditor.base.errors.StoreTrouble`.
    """

    is_object = True

    def __init__(self, opened: Opened) -> None:
        self._of = opened
        self.at = 0
        self._origin = -1
        self._number, self._block = -1, np.empty(0, np.uint8)
        self._coming: dict[int, Future[np.ndarray]] = {}

    @classmethod
    def opened(cls, uri: str, path: str, before: Opened | None, until: int | None) -> Self:
        """Open a file, or use what was opened ``before``.

        Errors: as for :func:`auditor.connectors.stores.retries.ask`.
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
        for future in self._coming.values():
            future.cancel()
        self._coming.clear()
        self._block = np.empty(0, np.uint8)

    def readinto(self, buffer: Any, /) -> int:
        """Fill ``buffer`` from one block; 0 at the end of the file."""
        view = memoryview(buffer)
        wanted = min(len(view), self._of.end - self.at)
        if wanted <= 0:
            return 0
        if self._origin < 0:
            self._origin = self.at
        number, inside = divmod(self.at - self._origin, BLOCK)
        if number in (self._number, self._number + 1) and number >= 0:
            data = self._following(number)[inside : inside + wanted]
        else:
            data = self._patiently(self.at, min(max(wanted, ASIDE), self._of.end - self.at))[:wanted]
        view[: len(data)] = data.data
        self.at += len(data)
        if (pace := reading_pace()) is not None:
            pace.read(len(data))
        return len(data)

    def _following(self, number: int) -> np.ndarray:
        # The current block or the next one.
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
        if self._of.first is not None:
            first, self._of.first = self._of.first, None
            if len(first) >= start + size:
                return first[start:]
        future = self._coming.pop(number, None)
        if future is not None:
            try:
                return future.result()
            except REFUSED:
                pass  # requested again, with retries
        return self._patiently(start, size)

    def _patiently(self, start: int, size: int) -> np.ndarray:
        stale = False  # its file was opened with credentials that were refused

        def read() -> np.ndarray:
            nonlocal stale
            if stale:
                self._of.file, stale = Opened(self._of.uri, self._of.path).file, False
            return self._of.read(start, size)

        def renew(why: Exception) -> None:
            nonlocal stale
            stale |= renewed(why)

        try:
            return retries.ask(read, lambda: refusal(self._of.uri, self._of.path.rpartition("/")[0]), renew)
        except OSError:
            raise
        except REFUSED as error:  # readers of files expect only that
            raise OSError(errno.EIO, retries.code_of(error)) from error


# Prefetching: files of a store are opened, and their first block is read, before they are needed.
#
# Small files cost a store's latency each; in parallel they cost it once. :func:`coming` lists the next files, in
# groups, such as the files of a replica, in the order of reading. It is only a hint: unused files are dropped, and
# failed ones are requested again by their reader. Local files are never prefetched.


PREFETCHED_AT_ONCE = 24  # files being opened or waiting, per slot of a cluster
MANY = retries.AT_ONCE  # the same if one process works alone
MOST_BYTES = 32 << 20  # of prefetched files in memory


class Coming(NamedTuple):
    """A file that will be read: its URI and path, and its size in bytes as listed."""

    uri: str
    path: str
    size: int


@runtime_checkable
class Comes(Protocol):
    """A piece of work that knows which files of stores it reads."""

    def coming(self) -> Iterable[Coming]:
        """These files, in the order of reading."""


def of_work(work: Iterable[object]) -> Iterator[Iterable[Coming]]:
    """The files of pieces of work, a group each."""
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
        """Start to fetch as many files as allowed."""
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

    def take(self, key: tuple[str, str]) -> Opened | None:
        """A fetched file; files of earlier groups are dropped."""
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
        """Drop the rest."""
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
    """Prefetch these files, which will be read in about this order; ``at_once``: those fetched or waiting."""
    global _ahead

    before, _ahead = _ahead, _Prefetch(groups, at_once)
    own = _ahead
    own.fetch()
    try:
        yield
    finally:
        own.close()
        _ahead = before


def prefetched(uri: str, path: str) -> Opened | None:
    """A prefetched file, once; None for any other."""
    return None if _ahead is None else _ahead.take((uri, path))
