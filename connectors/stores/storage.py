"""Listing and opening local paths and URIs, read-only."""

from __future__ import annotations

import errno
import io
import os
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


# Who is asked before a file is opened: a file that kills its reader stays closed, and none holds it up for good.
#
# Whoever reads for others sets this up: a worker of Spark's, and the process that finds out which file kills
# (:mod:`auditor.processes.isolation`). Paths are those of places, without their URI.


ALL = ""  # in place of a path: every file
PATIENCE_S = 3600  # for one file; whoever takes longer is ended by SIGALRM


def _open_to_all(path: str) -> str:
    return ""


_ask: Callable[[str], str] = _open_to_all


def closed(path: str) -> str:
    """Why the file at ``path`` is not to be opened; empty if it is."""
    return _ask(path)


def _nobody(path: str) -> None:
    return None


@contextmanager
def guarded(
    refused: Mapping[str, str], opened: Callable[[str], None] = _nobody, patience_s: float = PATIENCE_S
) -> Iterator[None]:
    """While files are read: ``refused`` (path, or ``ALL``, -> why) stay closed, ``opened`` is called with the others.

    The process ends where ``patience_s`` seconds pass with neither another file opened nor the end of the block.
    """
    global _ask

    def ask(path: str) -> str:
        if reason := refused.get(path) or refused.get(ALL, ""):
            return reason
        signal.setitimer(signal.ITIMER_REAL, patience_s)
        opened(path)
        return ""

    before, _ask = _ask, ask
    try:
        yield
    finally:
        _ask = before
        signal.setitimer(signal.ITIMER_REAL, 0)


# Where bytes are: read-only listing and opening of local paths and of URIs (``file://``, ``s3://``, ``hdfs://``,
# ``gs://``).
#
# Local files are opened by the operating system; URIs by the driver that ``pyarrow.fs`` has for their scheme, else by
# ``fsspec`` if it is installed. A file that cannot be read is a :class:`DecodeError`, since a running broker's
# directory
# changes while it is read; a PATH that is not there at all is the user's mistake. A store that refuses for now is asked
# again (:mod:`auditor.connectors.stores.retries`), and nothing is concluded from it.
#
# Symbolic links below a PATH are never followed: what they point at inside the PATH is listed by itself, and what lies
# outside was not asked for. Everything here is plain data, so that it travels to Spark workers.


_SIDE_BY_SIDE = 64  # folders that are listed each by itself, whatever they are
_BROKERS = 4096  # folders that are too, unless they are partitions'
_FIRST_S = 5.0  # for which the first request is tried again: what it is refused for is most often the user's mistake

LINK = "symbolic link"
SPECIAL = "not a regular file"
A_LINK = "a symbolic link, which is not followed: give the file that it leads to as a PATH"
NOT_UTF8 = "file name is not UTF-8"
NO_PATH = "object name that is no path"
NOT_A_STEP = frozenset({"", ".", ".."})


class BinaryFile(Protocol):
    """What :func:`open_file` returns: ``io.FileIO`` or :class:`RemoteFile`. Reads may raise ``OSError``."""

    def readinto(self, buffer: Any, /) -> int:
        """Fill ``buffer`` as far as one read gives; 0 at the end of the file."""

    def seek(self, position: int, whence: int = 0, /) -> int:
        """Go to a byte."""

    def close(self) -> None:
        """Give the file back."""


class View(Protocol):
    """How files below a place are stored that are not there as their names say; a tuple of plain values."""

    def open(self, folder: StorageLocation, name: str, /) -> BinaryFile | DecodeError:
        """What :func:`open_file` gives for ``name`` below ``folder``."""


class StorageLocation(NamedTuple):
    """A file or folder: ``path`` in the file system that ``uri`` opens, or of this machine where ``uri`` is empty.

    ``view``: how its files are stored, None for as they are.
    """

    uri: str
    path: str
    view: View | None = None

    @property
    def name(self) -> str:
        """The last part of the path, fit to be shown and stored."""
        return printable(self.path.rstrip("/").rpartition("/")[2])

    @property
    def parent(self) -> StorageLocation:
        """The folder above."""
        head = self.path.rstrip("/").rpartition("/")[0]
        return self._replace(path=head or ("/" if self.path.startswith("/") else ""))

    def child(self, name: str) -> StorageLocation:
        """What has the relative path ``name`` below this folder; an empty name is the folder itself."""
        if not name:
            return self
        return self._replace(path=f"{self.path.rstrip('/')}/{name}" if self.path else name)

    @property
    def shown(self) -> str:
        """For people: without the user, password and options that a URI may hold."""
        parts = urllib.parse.urlsplit(self.uri)
        if not parts.scheme:
            return printable(self.path)
        path = self.path.rpartition("://")[2]  # some drivers keep the whole URI as path, others all but its scheme
        for secret in (parts.netloc.rpartition("@")[0] + "@", f"?{parts.query}"):
            if len(secret) > 1:
                path = path.replace(secret, "").replace(urllib.parse.unquote(secret), "")
        return printable(f"{parts.scheme}://{path.lstrip('/')}")


class ListedFile(NamedTuple):
    """A file found: path relative to the listed folder, and its size in bytes then."""

    name: str
    size: int


class Unused(NamedTuple):
    """Something found that is not opened: path relative to the listed folder, size in bytes, and why."""

    name: str
    size: int
    reason: str


class FolderListing(NamedTuple):
    """All that a folder holds, however deep, each list in the order of its names."""

    files: list[ListedFile]
    unused: list[Unused]
    errors: list[DecodeError]


def printable(name: str) -> str:
    """``name`` with bytes that are not UTF-8 written as ``\\xNN``."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def place(path: str) -> StorageLocation:
    """The place a PATH of the user names.

    Errors: :class:`AuditInputError` when no driver opens its scheme or it names nothing.
    """
    parts = user_input.parsed(path)
    if "://" not in path or parts.scheme == "file":
        local = urllib.parse.unquote(parts.path) if parts.scheme == "file" and "://" in path else path
        location = StorageLocation("", os.path.realpath(os.path.expanduser(local)))
        if not os.path.lexists(location.path):
            raise AuditInputError(f"{printable(path)}: no such file or directory; check the path")
        return location
    location = remote_place(path)
    if not is_there(location):
        raise AuditInputError(f"{location.shown}: no such object or folder; check the URI and its credentials")
    return location


def remote_place(uri: str) -> StorageLocation:
    """The place that a URI names, whether something is there or not. Errors: :class:`AuditInputError` when no driver
    opens its scheme."""
    parts = user_input.parsed(uri)
    _, inner = filesystem(uri)
    system = f"{parts.scheme}://{parts.netloc}"  # one for all PATHs in it, so that places compare equal
    if parts.query:
        system += f"?{parts.query}"
    return StorageLocation(system, inner.rstrip("/") or inner)


def is_there(where: StorageLocation) -> bool:
    """Whether anything is at a place of a store now. Errors: :class:`AuditInputError` with the store's own code."""
    return _info(where).type.name != "NotFound"


def is_folder(where: StorageLocation) -> bool:
    """Whether the place is a folder now."""
    return _info(where).type.name == "Directory" if where.uri else os.path.isdir(where.path)


def file_size(where: StorageLocation) -> int:
    """Bytes of one file that was named by itself. Errors: :class:`AuditInputError` if it is no regular file."""
    if where.uri:
        return _info(where).size or 0
    status = os.lstat(where.path)
    if not stat.S_ISREG(status.st_mode):
        raise AuditInputError(f"{where.shown}: neither a file nor a folder; copy its content into a file")
    return status.st_size


def listing(where: StorageLocation, *, deep: bool = True, limits: Limits = DEFAULT_LIMITS) -> FolderListing:
    """The files of a folder with sizes, sorted by name; without ``deep`` only those directly in it.

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


def _sort_in(item: ListedFile | Unused | DecodeError, content: FolderListing, limits: Limits) -> None:
    """Put what was met where it belongs; names that cannot be stored or are too long are not opened."""
    if isinstance(item, DecodeError):
        content.errors.append(item)
    elif len(item.name) > limits.max_path_length:
        detail = f"path of {len(item.name)} characters, limit {limits.max_path_length}"
        content.errors.append(DecodeError(printable(item.name)[:200], 0, item.size, "limit", detail))
    elif printable(item.name) != item.name:
        content.unused.append(Unused(printable(item.name), item.size, NOT_UTF8))
    elif not NOT_A_STEP.isdisjoint(item.name.split("/")):  # stores allow it; some drivers would follow it out of there
        content.unused.append(Unused(item.name, item.size, NO_PATH))
    elif isinstance(item, Unused):
        content.unused.append(item)
    else:
        content.files.append(item)


def _local(root: str, deep: bool) -> Iterator[ListedFile | Unused | DecodeError]:
    """What a local folder holds, in no order; folders wait on a stack, so depth costs no recursion.

    All names of a folder come before any size: the size of a segment is then its last one where the list has the next.
    """
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
    """One directory entry that is no folder."""
    if item.is_symlink():
        return Unused(name, 0, LINK)
    try:
        status = item.stat(follow_symlinks=False)
    except OSError as error:
        return problem(name, error)
    return ListedFile(name, status.st_size) if stat.S_ISREG(status.st_mode) else Unused(name, 0, SPECIAL)


def _remote(where: StorageLocation, deep: bool) -> Iterator[ListedFile | DecodeError]:
    """What a folder of a remote file system holds."""
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
    """All that is below a folder. Folders above those of brokers are looked into level by level; what is below the
    others is listed as one, a thousand objects a request, side by side. All is one where the driver tells of no folder
    that has no object of its own, as Google's of pyarrow."""
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
    """Whether folders are worth a request each: some, or as many as there are brokers, the first no partition's."""
    if len(folders) <= _SIDE_BY_SIDE:
        return True
    infos = _infos(folders[0], deep=False)
    return len(folders) <= _BROKERS and (_is_broker(infos) or not _is_kafkas(infos))


def _is_copy(infos: list[pafs.FileInfo]) -> bool:
    return any(info.is_file and info.base_name == COPY_LIST for info in infos)


def _is_kafkas(infos: list[pafs.FileInfo]) -> bool:
    """Whether files are directly in a folder that a broker has there: it is a log directory's or a partition's."""
    return _is_broker(infos) or any(info.is_file and kafka_names.data_name(info.base_name) for info in infos)


def _is_broker(infos: list[pafs.FileInfo]) -> bool:
    return any(info.is_file and info.base_name in kafka_names.OF_A_BROKER for info in infos)


def _infos(where: StorageLocation, *, deep: bool) -> list[pafs.FileInfo]:
    """What the store lists. Errors: as of :func:`auditor.connectors.stores.retries.ask`."""
    import pyarrow.fs as pafs

    def listed() -> list[pafs.FileInfo]:
        infos: list[pafs.FileInfo] = filesystem(where.uri)[0].get_file_info(
            pafs.FileSelector(where.path, recursive=deep)
        )
        return infos

    try:
        with retries.resigned(None):  # without its list nothing is known of a store: that is no row
            return retries.ask(listed, lambda: None, renewed)
    except StoreTrouble as error:
        raise _mistake(where, error.code) from error


def open_file(where: StorageLocation, name: str = "", *, until: int | None = None) -> BinaryFile | DecodeError:
    """Open the file ``name`` below ``where`` (or ``where`` itself) for reading from byte 0.

    ``until``: of a remote one, the byte up to which it will be read, where that is known. ``name``
    goes into the error as it is. A link, pipe or device that took a file's place is refused, not opened.
    """
    if reason := closed(f"{where.path}/{name}" if name else where.path):
        return DecodeError(printable(name or where.name), 0, -1, "unreadable", reason)
    if where.view is not None:
        return where.view.open(where._replace(view=None), name)
    target = where.child(name)
    try:
        if where.uri:
            return RemoteFile.opened(where.uri, target.path, remote_files.taken(where.uri, target.path), until)
        return _open_local(target.path)
    except REFUSED as error:
        return problem(name or where.name, error)


def _open_local(path: str) -> io.FileIO:
    """A regular file, not through a link, and without waiting for the other end of a pipe."""
    descriptor, pace = remote_files.opened(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, SPECIAL)
    return io.FileIO(descriptor, "rb") if pace is None else remote_files.GuestFile(descriptor, pace)


def read_file(
    where: StorageLocation, name: str = "", *, limit: int = DEFAULT_LIMITS.max_small_file_bytes
) -> bytes | DecodeError:
    """The whole content of a small file; more than ``limit`` bytes are an error of reason ``limit``."""
    data = read_head(where, name, limit + 1)
    if not isinstance(data, DecodeError) and len(data) > limit:
        return DecodeError(name or where.name, 0, -1, "limit", f"file larger than the limit of {limit} bytes")
    return data


def read_data(where: StorageLocation, name: str, limit: int) -> tuple[bytes, int] | DecodeError:
    """The same without what a hole at its end is, and its length: a broker gives an index that it writes to its full
    size, 10 MiB, of which the file system has what is written alone. Zeros where that cannot be told."""
    opened = open_file(where, name, until=limit + 1)
    if isinstance(opened, DecodeError):
        return opened
    try:
        size, end = _extent(opened.fileno()) if isinstance(opened, io.FileIO) else (0, limit + 1)
        data = _read(opened, min(end, limit + 1))
    except REFUSED as error:
        return problem(name, error)
    finally:
        opened.close()
    size = max(size, len(data))
    if size > limit:
        return DecodeError(name, 0, -1, "limit", f"file larger than the limit of {limit} bytes")
    return data, size


def _extent(descriptor: int) -> tuple[int, int]:
    """The size of a file of this machine, and behind which byte it has nothing but a hole."""
    size, end = os.fstat(descriptor).st_size, 0
    try:
        while end < size:
            end = os.lseek(descriptor, os.lseek(descriptor, end, os.SEEK_DATA), os.SEEK_HOLE)
    except OSError as error:
        return size, end if error.errno == errno.ENXIO else size  # nothing behind it; or nobody knows
    return size, min(end, size)


def read_head(where: StorageLocation, name: str, count: int, *, start: int = 0) -> bytes | DecodeError:
    """The first ``count`` bytes of a file from byte ``start`` on, fewer if it is shorter."""
    opened = open_file(where, name, until=start + count)
    if isinstance(opened, DecodeError):
        return opened
    try:
        return _read(opened, count, start)
    except REFUSED as error:
        return problem(name or where.name, error)
    finally:
        opened.close()


def _read(opened: BinaryFile, count: int, start: int = 0) -> bytes:
    """Bytes of an open file. Errors: those of its store."""
    data = bytearray()
    piece = np.empty(min(count, 1 << 20), np.uint8).data  # not zeroed: most files are far smaller
    opened.seek(start)
    while len(data) < count and (got := opened.readinto(piece[: count - len(data)])):
        data += piece[:got]
    return bytes(data)


def _info(where: StorageLocation) -> pafs.FileInfo:
    """Type and size of a remote place. Errors: :class:`AuditInputError` with the store's own code."""
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
    """An error of the storage as a value: gone since it was listed, or there and unreadable.

    Of a driver's own words only a code is kept: nobody knows what else they hold.
    """
    if retries.meaning(error) is retries.Meaning.GONE:
        return DecodeError(printable(name), 0, -1, "vanished", "gone since the directory was listed")
    reason = getattr(error, "strerror", None) or retries.code_of(error)
    linked = isinstance(error, OSError) and error.errno == errno.ELOOP
    return DecodeError(printable(name), 0, -1, "unreadable", A_LINK if linked else reason)
