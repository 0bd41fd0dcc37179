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
from collections.abc import Callable, Container, Iterable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

from auditor.base.errors import MIB, AuditInputError, StoreTrouble
from auditor.connectors.kafka_names import COPY_README
from auditor.connectors.logdir.copy_format import (
    LIST,
    FolderList,
    RowGroup,
    SegmentRows,
)
from auditor.connectors.logdir.copy_view import list_of, rows_of
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


# The target: a file for each directory, which is replaced atomically.


README = COPY_README
SAYS = """\
This is not a backup. No broker can start on it, and no record can be restored from it.

It was made by `auditor copy` of a Kafka broker's log directories, and contains what an audit needs: headers of
batches, markers, the records of internal topics without what is secret in them, and small files. Keys and values of
records are not in it. To read it: auditor audit THIS-FOLDER --out DIR
"""
NO_COPY = "{}: not empty, and not an earlier copy; give a directory of its own"


class Target(ABC):
    """The directory of a copy; ``name`` is a directory in it, relative to ``place``. Nothing outside of it is written.

    Errors of all methods: ``OSError``.
    """

    place: StorageLocation

    @abstractmethod
    def replace(self, name: str, path: Path, file: str = LIST) -> None:
        """Replace the file of a directory by a complete one from :meth:`begun`, at once."""

    @abstractmethod
    def remove(self, name: str, file: str) -> None:
        """Delete a file."""

    @abstractmethod
    def files(self, name: str) -> Set[str]:
        """Return the names of the files in a directory."""

    @abstractmethod
    def folders(self, file: str = LIST) -> set[str]:
        """Return the names of the directories with such a file."""

    @abstractmethod
    def forget(self, name: str) -> None:
        """Delete a directory that is empty, and empty ones above it."""

    @abstractmethod
    def scratch(self, name: str) -> Path:
        """Return the local directory for incomplete files of a directory."""

    def each(self, work: Callable[[Given], Answer], given: Sequence[Given]) -> Iterator[Answer]:
        """Run ``work`` for each item; each is about a directory of its own."""
        return map(work, given)

    def earlier(self, name: str, groups: tuple[RowGroup, ...]) -> SegmentRows:
        """Return the rows of a directory's file with these row groups."""
        return rows_of(self.place.child(name), groups)

    def lists_ahead(self, names: Iterable[str]) -> AbstractContextManager[None]:
        """Prefetch the lists of these directories, for one :meth:`list_of` each, in this order."""
        return contextlib.nullcontext()

    def list_of(self, name: str) -> FolderList | None:
        """Return the list of a directory, None if it has no readable one."""
        folder_list = list_of(self.place.child(name))
        return folder_list if isinstance(folder_list, FolderList) else None

    def take_away(self, name: str) -> None:
        """Delete a directory that the input no longer has."""
        self.remove(name, LIST)
        self.clear(name)
        self.forget(name)

    def clear(self, name: str, more: Container[str] = ()) -> None:
        """Delete incomplete files, and ``more``."""
        for file in sorted(self.files(name)):
            if file.startswith(PARTIAL) or file in more:
                self.remove(name, file)

    def begun(self, name: str) -> Path:
        """Return the path of a new file, to be completed and given to :meth:`replace`."""
        handle, path = tempfile.mkstemp(prefix=PARTIAL, dir=self.scratch(name))
        os.close(handle)
        return Path(path)

    def _write_readme(self) -> None:
        path = self.begun("")
        path.write_text(SAYS)
        self.replace("", path, README)


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
                self._write_readme()
        except OSError as error:
            raise AuditInputError(f"{out}: {error.strerror}; give a writable directory") from error

    def scratch(self, name: str) -> Path:
        """Return the directory itself, created if missing."""
        folder = self.out
        for step in filter(None, name.split("/")):
            folder = folder / step
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
            if not stat.S_ISDIR(os.lstat(folder).st_mode):
                raise OSError(0, f"{folder} is not a directory")
        return folder

    def replace(self, name: str, path: Path, file: str = LIST) -> None:
        """See :meth:`Target.replace`."""
        with path.open("rb") as f:
            os.fsync(f.fileno())
        path.chmod(0o644 & ~_umask())
        path.replace(self.out / name / file)
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

    def folders(self, file: str = LIST) -> set[str]:
        """See :meth:`Target.folders`."""
        names = {path.parent.relative_to(self.out).as_posix() for path in self.out.rglob(file)}
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


# A target in a store, where one PUT does what a rename does in a directory.


_STREAMS = 2  # concurrent uploads: pyarrow's S3 client reserves 10 MiB for each
_LARGE_UPLOAD = 4 * MIB
_PREFETCHED = _LARGE_UPLOAD + 1  # not aside: files that were prefetched are taken one at a time


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
            raise AuditInputError(f"{self.place.shown} is not a separate store: give a path or a plain URI")
        self.own = Path(tempfile.mkdtemp(prefix="auditor-copy-"))  # for files that are not whole yet
        weakref.finalize(self, shutil.rmtree, self.own, ignore_errors=True)
        self.entries: dict[str, dict[str, int]] = defaultdict(dict)  # folder -> its files with their sizes
        self.turns, self.streams = IoSlots(), threading.Semaphore(_STREAMS)
        try:
            self._look()
            self._write_readme()
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
            raise OSError(0, "no such bucket or directory") from error
        except StoreTrouble as error:
            raise OSError(0, f"{retries.SAYS}{error.code}") from error
        except REFUSED as error:
            raise OSError(0, storage.problem("", error).detail) from error

    def list_of(self, name: str) -> FolderList | None:
        """See :meth:`Target.list_of`."""
        if LIST not in self.entries.get(name, ()):
            return None
        return self._ask(lambda: super(StoreTarget, self).list_of(name), _PREFETCHED)

    def scratch(self, name: str) -> Path:
        """See :meth:`Target.scratch`."""
        return self.own

    def replace(self, name: str, path: Path, file: str = LIST) -> None:
        """See :meth:`Target.replace`."""
        size = path.stat().st_size

        def write() -> None:
            with self.streams:
                self.folder.put_file(_at(name, file), path)

        self._ask(write, size)
        path.unlink()
        self.entries[name][file] = size

    def remove(self, name: str, file: str) -> None:
        """See :meth:`Target.remove`."""
        self._ask(lambda: self.folder.delete_file(_at(name, file)))
        self.entries[name].pop(file, None)

    def files(self, name: str) -> Set[str]:
        """See :meth:`Target.files`."""
        return frozenset(self.entries[name])

    def each(self, work: Callable[[Given], Answer], given: Sequence[Given]) -> Iterator[Answer]:
        """See :meth:`Target.each`: several at once, while they wait for the store."""
        return self.turns.each(work, given)

    def earlier(self, name: str, groups: tuple[RowGroup, ...]) -> SegmentRows:
        """See :meth:`Target.earlier`."""
        return self._ask(lambda: super(StoreTarget, self).earlier(name, groups), _PREFETCHED)

    def lists_ahead(self, names: Iterable[str]) -> AbstractContextManager[None]:
        """See :meth:`Target.lists_ahead`: in parallel, within the memory set aside."""
        present = (name for name in names if LIST in self.entries.get(name, ()))
        wanted = (
            remote_files.Coming(self.place.uri, self.place.child(_at(name, LIST)).path, self.entries[name][LIST])
            for name in present
        )
        return remote_files.coming([wanted], remote_files.MANY)

    def folders(self, file: str = LIST) -> set[str]:
        """See :meth:`Target.folders`."""
        return {name for name, files in self.entries.items() if file in files}

    def forget(self, name: str) -> None:
        """See :meth:`Target.forget`: a store has no directories."""
        self.entries.pop(name, None)
