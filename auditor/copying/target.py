"""The target of a copy, and the resources that a copy may use."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import threading
import weakref
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

from auditor.base.errors import MIB, AuditInputError, StoreTrouble
from auditor.connectors.logdir.copy_format import (
    LIST,
    MOST_LIST_BYTES,
    SUFFIX,
    FolderList,
    SegmentRows,
    decode_list,
    digest_of,
    encode_list,
    file_name,
)
from auditor.connectors.logdir.copy_view import rows_of
from auditor.connectors.stores import remote_files, results, retries, storage
from auditor.connectors.stores.results import LOCK, PARTIAL, TRIAL_S
from auditor.connectors.stores.retries import REFUSED
from auditor.connectors.stores.storage import StorageLocation
from auditor.copying.copy_job import COPYING

# Directories that are copied concurrently: only their waiting for a store overlaps. Files of the broker are read one at
# a time, as by one process without threads.


Given = TypeVar("Given")
Answer = TypeVar("Answer")

AT_ONCE = 8  # directories


class _Cancelled(BaseException):
    # Not an Exception: it must end the work as the end of the process would.
    pass


class IoSlots:
    """Runs several directories at once, one of them working while the others wait for their store."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._thread = threading.local()
        self._failed = False

    def each(self, work: Callable[[Given], Answer], given: Sequence[Given]) -> Iterator[Answer]:
        """Yield ``work`` of each item, started in order. Errors: those of ``work``; nothing is started after one."""
        if len(given) < 2:
            yield from map(work, given)
            return
        with ThreadPoolExecutor(min(len(given), AT_ONCE), thread_name_prefix="folder") as pool:
            try:
                for done in [pool.submit(self._in_turn, work, item) for item in given]:
                    yield done.result()
            except BaseException:
                self._failed = True
                pool.shutdown(cancel_futures=True)
                raise

    def _in_turn(self, work: Callable[[Given], Answer], item: Given) -> Answer:
        with self._turn:
            self._thread.working = True
            try:
                return work(item)
            finally:
                self._thread.working = False

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """While this thread waits for a store, another one works."""
        if not getattr(self._thread, "working", False):
            yield
            return
        self._turn.release()
        try:
            yield
        finally:
            self._turn.acquire()
        if self._failed:
            raise _Cancelled


# The target: files that never change, and lists that are replaced atomically.


README = "0-THIS-IS-NO-BACKUP.txt"
SAYS = """\
This is no backup. No broker can start on it, and no record can be restored from it.

It was made by `auditor copy` of a Kafka broker's log directories, and holds what an audit needs of them: headers of
batches, markers, the records of internal topics without what is secret in them, and small files. Keys and values of
records are not in it. To read it: auditor audit THIS-FOLDER --out DIR
"""
NO_COPY = "{}: not empty, and no earlier copy; give a folder of its own"


class Target(ABC):
    """The directory of a copy; ``name`` is a directory in it, relative to ``place``. Nothing outside of it is written.

    Errors of all methods: ``OSError``.
    """

    place: StorageLocation

    @abstractmethod
    def read(self, name: str, file: str) -> bytes | None:
        """Return the content of a file, None if it does not exist."""

    @abstractmethod
    def put(self, name: str, file: str, content: bytes) -> None:
        """Write a file atomically."""

    @abstractmethod
    def remove(self, name: str, file: str) -> None:
        """Delete a file."""

    @abstractmethod
    def files(self, name: str) -> Set[str]:
        """Return the names of the files in a directory."""

    @abstractmethod
    def has(self, name: str, file: str) -> bool:
        """Whether a file that a list names exists."""

    @abstractmethod
    def folders(self) -> set[str]:
        """Return the names of the directories with a list."""

    @abstractmethod
    def forget(self, name: str) -> None:
        """Delete a directory that is empty, and empty ones above it."""

    @abstractmethod
    def scratch(self, name: str) -> Path:
        """Return the local directory for incomplete files of a directory."""

    @abstractmethod
    def move(self, path: Path, name: str, file: str) -> None:
        """Move a file from :meth:`scratch` into the directory."""

    def settle(self, name: str) -> None:  # noqa: B027  what stores took, they have
        """Flush a directory to disk."""

    def each(self, work: Callable[[Given], Answer], given: Sequence[Given]) -> Iterator[Answer]:
        """Run ``work`` for each item; each is about a directory of its own."""
        return map(work, given)

    def earlier(self, name: str, file: str) -> SegmentRows:
        """Return the rows of a Parquet file."""
        return rows_of(self.place.child(name), file)

    def lists_ahead(self, names: Iterable[str]) -> AbstractContextManager[None]:
        """Prefetch the lists of these directories, for one :meth:`list_of` each, in this order."""
        return contextlib.nullcontext()

    def list_of(self, name: str) -> FolderList | None:
        """Return the list of a directory, None if it has no readable one."""
        data = self.read(name, LIST)
        folder_list = decode_list(data) if data is not None else None
        return folder_list if isinstance(folder_list, FolderList) else None

    def put_list(self, name: str, folder_list: FolderList, before: FolderList | None = None) -> None:
        """Replace a directory's list if it differs from ``before``, then delete the files that it does not name."""
        if folder_list != before:
            self.settle(name)  # what the list names is there before the list is
            self.put(name, LIST, encode_list(folder_list))
            self.settle(name)  # and what it does not name goes when it is
        small_files = {item.kept for item in folder_list.files if item.kept is not None}
        self._clear(name, small_files | {item.taken.file for item in folder_list.files if item.taken is not None})

    def take_away(self, name: str) -> None:
        """Delete a directory that the input no longer has."""
        self.remove(name, LIST)
        self._clear(name, frozenset())
        self.forget(name)

    def _clear(self, name: str, named: Set[str]) -> None:
        for file in sorted(self.files(name) - named - {LIST}):
            if _is_ours(file):
                self.remove(name, file)

    @contextlib.contextmanager
    def begun(self, name: str, first: str) -> Iterator[Path]:
        """Yield the path of a new file, to be added by :meth:`finished`."""
        handle, path = tempfile.mkstemp(prefix=PARTIAL + first, dir=self.scratch(name))
        os.close(handle)
        try:
            yield Path(path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise

    def finished(self, path: Path, name: str, first: str) -> str:
        """Move a written file into the directory, under a name from its content; return the name."""
        file = file_name(first, digest_of(path.read_bytes()))
        self.move(path, name, file)
        return file


class FolderTarget(Target):
    """A local directory. Links in it are not followed."""

    def __init__(self, out: Path) -> None:
        """Create the directory. Errors: :class:`AuditInputError` if it is not of a copy, or cannot be written."""
        self.out, self.place = out, StorageLocation("", str(out))
        try:
            out.mkdir(parents=True, exist_ok=True)
            if any(path.name != LOCK for path in out.iterdir()) and not (out / README).is_file():
                raise AuditInputError(NO_COPY.format(out))
            if not (out / README).is_file():
                self.put("", README, SAYS.encode())
        except OSError as error:
            raise AuditInputError(f"{out}: {error.strerror}; give a folder that can be written") from error

    def scratch(self, name: str) -> Path:
        """Return the directory itself, created if missing."""
        folder = self.out
        for step in filter(None, name.split("/")):
            folder = folder / step
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
            if not stat.S_ISDIR(os.lstat(folder).st_mode):
                raise OSError(0, f"{folder} is no folder")
        return folder

    def read(self, name: str, file: str) -> bytes | None:
        """See :meth:`Target.read`; None also if it is unreadable."""
        try:
            return (self.out / name / file).read_bytes()
        except OSError:
            return None

    def put(self, name: str, file: str, content: bytes) -> None:
        """See :meth:`Target.put`."""
        with self.begun(name, "") as path:
            path.write_bytes(content)
            self.move(path, name, file)

    def move(self, path: Path, name: str, file: str) -> None:
        """See :meth:`Target.move`."""
        with path.open("rb") as f:
            os.fsync(f.fileno())
        path.chmod(0o644 & ~_umask())
        path.replace(self.out / name / file)

    def settle(self, name: str) -> None:
        """See :meth:`Target.settle`."""
        handle = os.open(self.scratch(name), os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def remove(self, name: str, file: str) -> None:
        """See :meth:`Target.remove`."""
        (self.scratch(name) / file).unlink()

    def files(self, name: str) -> Set[str]:
        """See :meth:`Target.files`."""
        with os.scandir(self.scratch(name)) as entries:
            return {entry.name for entry in entries if entry.is_file(follow_symlinks=False)}

    def has(self, name: str, file: str) -> bool:
        """See :meth:`Target.has`."""
        try:
            return stat.S_ISREG(os.lstat(self.out / name / file).st_mode)
        except OSError:
            return False

    def folders(self) -> set[str]:
        """See :meth:`Target.folders`."""
        names = {path.parent.relative_to(self.out).as_posix() for path in self.out.rglob(LIST)}
        return {"" if name == "." else name for name in names}

    def forget(self, name: str) -> None:
        """See :meth:`Target.forget`."""
        folder = self.scratch(name)
        while folder != self.out and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _is_ours(name: str) -> bool:
    return name.endswith((SUFFIX, ".gz")) or name.startswith(PARTIAL)


# A target in a store, where one PUT of a list does what a rename does in a directory.


_STREAMS = 2  # concurrent uploads: pyarrow's S3 client reserves 10 MiB for each
_LARGE_UPLOAD = 4 * MIB


def _at(name: str, file: str) -> str:
    return f"{name}/{file}" if name else file


class StoreTarget(Target):
    """A directory in a store. It is listed once and tracked: nothing else may write to it.

    A store that refuses temporarily is asked again (:mod:`auditor.connectors.stores.retries`).
    """

    def __init__(self, uri: str) -> None:
        """List the store. Errors: :class:`AuditInputError` if it cannot be written, or has other content than a
        copy."""
        self.place = storage.remote_place(uri)
        self.folder = results.folder(uri)._replace(patience_s=TRIAL_S)
        if not results.is_of_its_own(self.folder):
            raise AuditInputError(f"{self.place.shown} is no store of its own; give a path or a plain URI")
        self.own = Path(tempfile.mkdtemp(prefix="auditor-copy-"))  # for files that are not whole yet
        weakref.finalize(self, shutil.rmtree, self.own, ignore_errors=True)
        self.entries: dict[str, dict[str, int]] = defaultdict(dict)  # folder -> its files with their sizes
        self.turns, self.streams = IoSlots(), threading.Semaphore(_STREAMS)
        try:
            self._look()
            self.put("", README, SAYS.encode())
        except OSError as error:
            raise AuditInputError(
                f"cannot write to {self.place.shown}: {error.strerror}; choose another --out"
            ) from error
        self.folder = self.folder._replace(patience_s=None)

    def _look(self) -> None:
        if not storage.is_there(self.place):
            return
        listing = storage.listing(self.place)
        if listing.errors:
            raise AuditInputError(f"{self.place.shown}: {listing.errors[0].detail}; check the URI and its credentials")
        for entry in listing.files:
            folder, _, file = entry.name.rpartition("/")
            self.entries[folder][file] = entry.size
        others = [item for item in listing.files if not item.name.startswith(COPYING)]
        if (others or listing.unused) and README not in self.entries[""]:
            raise AuditInputError(NO_COPY.format(self.place.shown))

    def _aside(self, size: int) -> AbstractContextManager[None]:
        # Only one large upload at a time: each is in memory.
        return self.turns.aside() if size <= _LARGE_UPLOAD else contextlib.nullcontext()

    def _ask(self, work: Callable[[], Answer], size: int = 0) -> Answer:
        # OSError with the store's own error code.
        try:
            with self._aside(size):
                return work()
        except FileNotFoundError as error:
            raise OSError(0, "no such bucket or folder") from error
        except StoreTrouble as error:
            raise OSError(0, f"{retries.SAYS}{error.code}") from error
        except REFUSED as error:
            raise OSError(0, storage.problem("", error).detail) from error

    def _path(self, name: str, file: str) -> str:
        return self.place.child(_at(name, file)).path

    def read(self, name: str, file: str) -> bytes | None:
        """See :meth:`Target.read`."""
        if not self.has(name, file):
            return None
        came = remote_files.prefetched(self.folder.uri, self._path(name, file))
        if came is not None and came.first is not None and len(came.first) == came.end:
            return came.first.tobytes()
        return self._ask(lambda: self.folder.get(_at(name, file), MOST_LIST_BYTES + 1))

    def put(self, name: str, file: str, content: bytes) -> None:
        """See :meth:`Target.put`."""

        def write() -> None:
            with self.streams:
                self.folder.put(_at(name, file), content)

        self._ask(write, len(content))
        self.entries[name][file] = len(content)

    def scratch(self, name: str) -> Path:
        """See :meth:`Target.scratch`."""
        return self.own

    def move(self, path: Path, name: str, file: str) -> None:
        """See :meth:`Target.move`."""
        self.put(name, file, path.read_bytes())
        path.unlink()

    def remove(self, name: str, file: str) -> None:
        """See :meth:`Target.remove`."""
        self._ask(lambda: self.folder.delete_file(_at(name, file)))
        self.entries[name].pop(file, None)

    def files(self, name: str) -> Set[str]:
        """See :meth:`Target.files`."""
        return frozenset(self.entries[name])

    def has(self, name: str, file: str) -> bool:
        """See :meth:`Target.has`."""
        return file in self.entries.get(name, ())

    def each(self, work: Callable[[Given], Answer], given: Sequence[Given]) -> Iterator[Answer]:
        """See :meth:`Target.each`: several at once, while they wait for the store."""
        return self.turns.each(work, given)

    def earlier(self, name: str, file: str) -> SegmentRows:
        """See :meth:`Target.earlier`."""
        with self._aside(self.entries[name].get(file, 0)):
            return super().earlier(name, file)

    def lists_ahead(self, names: Iterable[str]) -> AbstractContextManager[None]:
        """See :meth:`Target.lists_ahead`: in parallel, within the memory set aside."""
        present = (name for name in names if self.has(name, LIST))
        wanted = (
            remote_files.Coming(self.folder.uri, self.place.child(_at(name, LIST)).path, self.entries[name][LIST])
            for name in present
        )
        return remote_files.coming([wanted], remote_files.MANY)

    def folders(self) -> set[str]:
        """See :meth:`Target.folders`."""
        return {name for name, files in self.entries.items() if LIST in files}

    def forget(self, name: str) -> None:
        """See :meth:`Target.forget`: a store has no directories."""
        self.entries.pop(name, None)
