"""Listing and opening local paths and URIs, read-only."""

from __future__ import annotations

import errno
import io
import os
import secrets
import signal
import stat
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from auditor.base import user_input
from auditor.base.errors import DEFAULT_LIMITS, AuditInputError, DecodeError, Limits, StoreTrouble
from auditor.connectors import kafka_names
from auditor.connectors.kafka_names import COPY_LIST
from auditor.connectors.stores import remote_files, retries
from auditor.connectors.stores.remote_files import RemoteFile, refusal, renewed
from auditor.connectors.stores.remote_files import filesystem as filesystem
from auditor.connectors.stores.retries import AT_ONCE, side_by_side
from auditor.connectors.stores.retries import REFUSED as REFUSED

if TYPE_CHECKING:
    import pyarrow.fs as pafs


# A check before a file is opened: a file that crashes its reader stays closed, and none blocks it forever.
#
# Spark workers and the process that finds the crashing file (:mod:`auditor.processes.isolation`) set this up. Paths are
# those of places, without their URI.


ALL = ""  # in place of a path: every file
PATIENCE_S = 3600  # per file; SIGALRM ends a process that takes longer
_why_closed: Callable[[str], str] | None = None


def closed(path: str) -> str:
    """Why the file at ``path`` must not be opened; empty if it may."""
    return _why_closed(path) if _why_closed is not None else ""


@contextmanager
def guarded(
    refused: Mapping[str, str], opened: Callable[[str], None] = retries.ignore, patience_s: float = PATIENCE_S
) -> Iterator[None]:
    """While files are read: ``refused`` (path, or ``ALL``, -> why) stay closed, ``opened`` is called with the others.

    The process ends if ``patience_s`` seconds pass without another file opened or the end of the block.
    """
    global _why_closed

    def ask(path: str) -> str:
        if reason := refused.get(path) or refused.get(ALL, ""):
            return reason
        signal.setitimer(signal.ITIMER_REAL, patience_s)
        opened(path)
        return ""

    before, _why_closed = _why_closed, ask
    try:
        yield
    finally:
        _why_closed = before
        signal.setitimer(signal.ITIMER_REAL, 0)


# Local paths and URIs (``file://``, ``s3://``, ``hdfs://``, ``gs://``).
#
# Local files are opened by the operating system; URIs by the driver of ``pyarrow.fs`` for their scheme, else by
# ``fsspec`` if it is installed. A file that cannot be read is a :class:`DecodeError`, since a running broker's
# directory changes while it is read; a missing PATH is the user's mistake. Temporary refusals of stores are retried
# (:mod:`auditor.connectors.stores.retries`), and nothing is concluded from them.
#
# Symbolic links below a PATH are never followed: targets inside the PATH are listed anyway, and those outside were not
# requested. Everything here is plain data, so that it can be sent to Spark workers.


_SIDE_BY_SIDE = 64  # directories that are always listed separately
_BROKERS = 4096  # directories that are listed separately unless they are partitions'
LISTING_S, LISTING_BYTES = 1800.0, 4 << 30  # for a listing: stores list some thousand objects a second
_FIRST_S = 5.0  # for retries of the first request: most refusals are the user's mistake

LINK = "symbolic link"
SPECIAL = "not a regular file"
A_LINK = "symbolic link (not followed): give its target file as a PATH"
NOT_UTF8 = "file name is not UTF-8"
NO_PATH = "object name is not a path"
NOT_A_STEP = frozenset({"", ".", ".."})


class BinaryFile(Protocol):
    """The result of :func:`open_file`: ``io.FileIO`` or :class:`RemoteFile`. Reads may raise ``OSError``."""

    def readinto(self, buffer: Any, /) -> int:
        """Fill ``buffer`` with one read; 0 at the end of the file."""

    def seek(self, position: int, whence: int = 0, /) -> int:
        """Go to a byte."""

    def close(self) -> None:
        """Release what the open file holds."""


class View(Protocol):
    """How files below a place are stored if not as plain files; a tuple of plain values."""

    def open(self, folder: StorageLocation, name: str, /) -> BinaryFile | DecodeError:
        """The result of :func:`open_file` for ``name`` below ``folder``."""


class StorageLocation(NamedTuple):
    """A file or directory: ``path`` in the file system of ``uri``, or of this machine if ``uri`` is empty.

    ``view``: how its files are stored, None for as they are.
    """

    uri: str
    path: str
    view: View | None = None

    @property
    def name(self) -> str:
        """The last part of the path, safe to print and store."""
        return printable(self.path.rstrip("/").rpartition("/")[2])

    @property
    def parent(self) -> StorageLocation:
        """The directory above."""
        head = self.path.rstrip("/").rpartition("/")[0]
        return self._replace(path=head or ("/" if self.path.startswith("/") else ""))

    def child(self, name: str) -> StorageLocation:
        """The relative path ``name`` below this directory; an empty name is the directory itself."""
        if not name:
            return self
        return self._replace(path=f"{self.path.rstrip('/')}/{name}" if self.path else name)

    @property
    def shown(self) -> str:
        """For people: without the user, password and options of a URI."""
        parts = urllib.parse.urlsplit(self.uri)
        if not parts.scheme:
            return printable(self.path)
        path = self.path.rpartition("://")[2]  # some drivers have the whole URI as path, others all but its scheme
        for secret in (parts.netloc.rpartition("@")[0] + "@", f"?{parts.query}"):
            if len(secret) > 1:
                path = path.replace(secret, "").replace(urllib.parse.unquote(secret), "")
        return printable(f"{parts.scheme}://{path.lstrip('/')}")


class ListedFile(NamedTuple):
    """A listed file: path relative to the listed directory, and its size in bytes."""

    name: str
    size: int


class Unused(NamedTuple):
    """A listed entry that is not opened: path relative to the listed directory, size in bytes, and why."""

    name: str
    size: int
    reason: str


class FolderListing(NamedTuple):
    """The content of a directory at any depth, each list sorted by name."""

    files: list[ListedFile]
    unused: list[Unused]
    errors: list[DecodeError]


def printable(name: str) -> str:
    r"""``name`` with bytes that are not UTF-8 written as ``\xNN``."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def place(path: str) -> StorageLocation:
    """The place of a user's PATH.

    Errors: :class:`AuditInputError` if no driver opens its scheme or it does not exist.
    """
    if (local := user_input.existing(path)) is not None:
        return StorageLocation("", local)
    location = remote_place(path)
    if not is_there(location):
        raise AuditInputError(f"{location.shown}: no such object or directory; check the URI and its credentials")
    return location


def remote_place(uri: str) -> StorageLocation:
    """The place of a URI, whether it exists or not. Errors: :class:`AuditInputError` if no driver opens its scheme."""
    parts = user_input.parsed(uri)
    _, inner = filesystem(uri)
    system = f"{parts.scheme}://{parts.netloc}"  # the same for all PATHs in it, so that places compare equal
    if parts.query:
        system += f"?{parts.query}"
    return StorageLocation(system, inner.rstrip("/") or inner)


def is_there(where: StorageLocation) -> bool:
    """Whether a place exists. Errors: :class:`AuditInputError` with the store's own code."""
    return _info(where).type.name != "NotFound" if where.uri else os.path.exists(where.path)


def is_folder(where: StorageLocation) -> bool:
    """Whether the place is a directory."""
    return _info(where).type.name == "Directory" if where.uri else os.path.isdir(where.path)


def file_state(path: str) -> tuple[int, ...]:
    """Return inode, size, mtime and ctime (ns) of a local file; of a missing one numbers that are equal to no others.

    The log cleaner gives a rewritten segment the old mtime, so that mtime alone shows no change.
    """
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return -1, secrets.randbits(63)
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def file_size(where: StorageLocation) -> int:
    """The size of a file that was named as a PATH. Errors: :class:`AuditInputError` if it is not a regular file."""
    if where.uri:
        return _info(where).size or 0
    status = os.lstat(where.path)
    if not stat.S_ISREG(status.st_mode):
        raise AuditInputError(f"{where.shown}: not a file or directory; copy its content to a file")
    return status.st_size


def listing(where: StorageLocation, *, deep: bool = True, limits: Limits = DEFAULT_LIMITS) -> FolderListing:
    """The files of a directory with sizes, sorted by name; without ``deep`` only those directly in it.

    Cost: one pass over the directory entries. Stops at ``limits.max_files`` with an error of reason ``limit``.
    """
    content = FolderListing([], [], [])
    for item in _remote(where, deep) if where.uri else _local(where.path, deep):
        if len(content.files) + len(content.unused) >= limits.max_files:
            content.errors.append(
                DecodeError("", 0, -1, "limit", f"more than {limits.max_files} files: not all listed")
            )
            break
        _sort_in(item, content, limits)
    content.files.sort()
    content.unused.sort()
    content.errors.sort()
    return content


def folders(where: StorageLocation) -> list[str]:
    """The names of the directories directly in a local directory, sorted; none where only files are stored."""
    if where.uri or where.view is not None:
        return []
    try:
        with os.scandir(where.path) as items:
            return sorted(printable(item.name) for item in items if item.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _sort_in(item: ListedFile | Unused | DecodeError, content: FolderListing, limits: Limits) -> None:
    # Names that cannot be stored or are too long are not opened.
    if isinstance(item, DecodeError):
        content.errors.append(item)
    elif len(item.name) > limits.max_path_length:
        detail = f"path of {len(item.name)} characters, limit {limits.max_path_length}"
        content.errors.append(DecodeError(printable(item.name)[:200], 0, item.size, "limit", detail))
    elif printable(item.name) != item.name:
        content.unused.append(Unused(printable(item.name), item.size, NOT_UTF8))
    elif not NOT_A_STEP.isdisjoint(item.name.split("/")):  # stores allow it; some drivers would leave the directory
        content.unused.append(Unused(item.name, item.size, NO_PATH))
    elif isinstance(item, Unused):
        content.unused.append(item)
    else:
        content.files.append(item)


def _local(root: str, deep: bool) -> Iterator[ListedFile | Unused | DecodeError]:
    # Directories wait on a stack, so depth costs no recursion. All names of a directory are listed before any size: if
    # the listing has a next segment, the size of a segment is its final one.
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(os.path.join(root, folder)) as items:
                for item in list(items):
                    name = f"{folder}/{item.name}" if folder else item.name
                    if item.is_dir(follow_symlinks=False):
                        if deep:
                            waiting.append(name)
                    else:
                        yield _local_file(name, item)
        except OSError as error:
            yield problem(folder, error)


def _local_file(name: str, item: os.DirEntry[str]) -> ListedFile | Unused | DecodeError:
    if item.is_symlink():
        return Unused(name, 0, LINK)
    try:
        status = item.stat(follow_symlinks=False)
    except OSError as error:
        return problem(name, error)
    return ListedFile(name, status.st_size) if stat.S_ISREG(status.st_mode) else Unused(name, 0, SPECIAL)


def _remote(where: StorageLocation, deep: bool) -> Iterator[ListedFile | DecodeError]:
    start = len(where.path.rstrip("/")) + 1
    try:
        infos = _all_infos(where) if deep else _infos(where, deep=False)
    except REFUSED as error:
        yield problem("", error)
        return
    for info in infos:
        if info.is_file:
            yield ListedFile(info.path[start:], info.size or 0)


def _all_infos(where: StorageLocation) -> list[pafs.FileInfo]:
    # Directories above those of brokers are listed level by level; everything below the others at once, a thousand
    # objects per request, in parallel. One recursive listing for drivers without directories that have no object of
    # their own, such as pyarrow's for Google.
    if filesystem(where.uri)[0].type_name == "gcs":
        return _infos(where, deep=True)
    collected: list[pafs.FileInfo] = []
    whole: list[StorageLocation] = []
    level = [where]
    while level and len(whole) + len(level) < AT_ONCE:
        following: list[StorageLocation] = []
        for folder, infos in zip(level, side_by_side(partial(_infos, deep=False), level), strict=True):
            below = [where._replace(path=info.path) for info in infos if not info.is_file]
            if not below:
                collected += infos
            elif _is_copy(infos) or _is_kafkas(infos) or not _are_few(below):
                whole.append(folder)
            else:
                collected += [info for info in infos if info.is_file]
                following += below
        level = following
    return collected + [info for infos in side_by_side(partial(_infos, deep=True), whole + level) for info in infos]


def _are_few(folders: list[StorageLocation]) -> bool:
    # Whether directories are worth a request each: some, or as many as brokers, the first not a partition's.
    if len(folders) <= _SIDE_BY_SIDE:
        return True
    infos = _infos(folders[0], deep=False)
    return len(folders) <= _BROKERS and (_is_broker(infos) or not _is_kafkas(infos))


def _is_copy(infos: list[pafs.FileInfo]) -> bool:
    return any(info.is_file and info.base_name == COPY_LIST for info in infos)


def _is_kafkas(infos: list[pafs.FileInfo]) -> bool:
    # A log directory's or a partition's files.
    return _is_broker(infos) or any(info.is_file and kafka_names.data_name(info.base_name) for info in infos)


def _is_broker(infos: list[pafs.FileInfo]) -> bool:
    return any(info.is_file and info.base_name in kafka_names.OF_A_BROKER for info in infos)


def _infos(where: StorageLocation, *, deep: bool) -> list[pafs.FileInfo]:
    # Raises as retries.ask.
    import pyarrow.fs as pafs

    def listed() -> list[pafs.FileInfo]:
        infos: list[pafs.FileInfo] = filesystem(where.uri)[0].get_file_info(
            pafs.FileSelector(where.path, recursive=deep)
        )
        return infos

    def asked() -> list[pafs.FileInfo]:
        with retries.resigned(None):  # without its listing nothing is known of a store: this cannot become a row
            return retries.ask(listed, lambda: None, renewed)

    try:
        return retries.ended(asked, LISTING_S, LISTING_BYTES)
    except StoreTrouble as error:
        raise _mistake(where, error.code) from error
    except retries.Endless:
        hint = "give directories below it, or check the address"
        limit = f"{LISTING_S:.0f} s or {LISTING_BYTES >> 20} MiB"
        raise AuditInputError(f"{where.shown}: the listing did not end within {limit}; {hint}") from None


def open_file(where: StorageLocation, name: str = "", *, until: int | None = None) -> BinaryFile | DecodeError:
    """Open the file ``name`` below ``where`` (or ``where`` itself) for reading from byte 0.

    ``until``: for a remote file, the byte up to which it will be read, if known. ``name`` is used in the error. A link,
    pipe or device in place of a file is refused.
    """
    if reason := closed(f"{where.path}/{name}" if name else where.path):
        return DecodeError(printable(name or where.name), 0, -1, "unreadable", reason)
    if where.view is not None:
        return where.view.open(where._replace(view=None), name)
    target = where.child(name)
    try:
        if where.uri:
            return RemoteFile.opened(where.uri, target.path, remote_files.prefetched(where.uri, target.path), until)
        return _open_local(target.path)
    except REFUSED as error:
        return problem(name or where.name, error)


def _open_local(path: str) -> io.FileIO:
    # O_NONBLOCK: opening a pipe must not wait for its other end.
    descriptor, pace = remote_files.opened(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, SPECIAL)
    return remote_files.LocalFile(descriptor, "rb") if pace is None else remote_files.ThrottledFile(descriptor, pace)


def read_file(
    where: StorageLocation, name: str = "", *, limit: int = DEFAULT_LIMITS.max_small_file_bytes
) -> bytes | DecodeError:
    """The whole content of a small file; more than ``limit`` bytes are an error of reason ``limit``."""
    data = read_head(where, name, limit + 1)
    if not isinstance(data, DecodeError) and len(data) > limit:
        return DecodeError(name or where.name, 0, -1, "limit", f"file larger than the limit of {limit} bytes")
    return data


def read_data(where: StorageLocation, name: str, limit: int) -> tuple[bytes, int] | DecodeError:
    """As :func:`read_file`, without a hole at the file's end, and the file's size.

    A broker allocates an open index at full size, 10 MiB, of which the file system stores only written parts. Zeros are
    returned if holes are unknown.
    """
    opened = open_file(where, name, until=limit + 1)
    if isinstance(opened, DecodeError):
        return opened
    try:
        size, end = _extent(opened.fileno()) if isinstance(opened, io.FileIO) else (0, limit + 1)
        data = read_opened(opened, min(end, limit + 1))
    except REFUSED as error:
        return problem(name, error)
    finally:
        opened.close()
    size = max(size, len(data))
    if size > limit:
        return DecodeError(name, 0, -1, "limit", f"file larger than the limit of {limit} bytes")
    return data, size


def _extent(descriptor: int) -> tuple[int, int]:
    # The size of a local file, and the end of its last data before a hole.
    size, end = os.fstat(descriptor).st_size, 0
    try:
        while end < size:
            end = os.lseek(descriptor, os.lseek(descriptor, end, os.SEEK_DATA), os.SEEK_HOLE)
    except OSError as error:
        return size, end if error.errno == errno.ENXIO else size  # no data after it; or unknown
    return size, min(end, size)


def read_head(where: StorageLocation, name: str, count: int, *, start: int = 0) -> bytes | DecodeError:
    """The first ``count`` bytes of a file from byte ``start`` on, fewer if it is shorter."""
    opened = open_file(where, name, until=start + count)
    if isinstance(opened, DecodeError):
        return opened
    try:
        return read_opened(opened, count, start)
    except REFUSED as error:
        return problem(name or where.name, error)
    finally:
        opened.close()


def read_opened(opened: BinaryFile, count: int, start: int = 0) -> bytes:
    """``count`` bytes of an open file from byte ``start`` on, fewer if it is shorter. Errors: those of its store."""
    data = bytearray()
    piece = np.empty(min(count, 1 << 20), np.uint8).data  # not zeroed: most files are far smaller
    opened.seek(start)
    while len(data) < count and (got := opened.readinto(piece[: count - len(data)])):
        data += piece[:got]
    return bytes(data)


def _info(where: StorageLocation) -> pafs.FileInfo:
    # AuditInputError with the store's own code.
    try:
        return retries.ask(
            lambda: filesystem(where.uri)[0].get_file_info(where.path),
            lambda: refusal(where.uri, where.path),
            renewed,
            most_s=_FIRST_S,
        )
    except StoreTrouble as error:
        raise _mistake(where, error.code) from error
    except REFUSED as error:
        raise _mistake(where, retries.code_of(refusal(where.uri, where.path) or error)) from error


def _mistake(where: StorageLocation, code: str) -> AuditInputError:
    return AuditInputError(f"{where.shown}: {retries.SAYS}{code}; check the URI, its credentials and the network")


def problem(name: str, error: Exception) -> DecodeError:
    """A storage error as a value: vanished since the listing, or unreadable.

    Only the code of a driver's message is kept, since it may contain secrets.
    """
    if retries.meaning(error) is retries.Meaning.GONE:
        return DecodeError(printable(name), 0, -1, "vanished", "gone since the directory was listed")
    reason = getattr(error, "strerror", None) or retries.code_of(error)
    linked = isinstance(error, OSError) and error.errno == errno.ELOOP
    return DecodeError(printable(name), 0, -1, "unreadable", A_LINK if linked else reason)
