"""Where a copy is written: files that never change, and lists that replace each other at once."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

from auditor.base.errors import AuditInputError
from auditor.connectors.logdir.copied_segments import SUFFIX, SegmentRows, digest_of, file_name
from auditor.connectors.logdir.copy_lists import LIST, FolderList, decoded, encoded
from auditor.connectors.logdir.copy_view import rows_of
from auditor.connectors.stores.results import PARTIAL
from auditor.connectors.stores.storage import Place

Given = TypeVar("Given")

LOCK = ".lock"  # which a copy that is under way holds
README = "0-THIS-IS-NO-BACKUP.txt"
SAYS = """\
This is no backup. No broker can start on it, and no record can be restored from it.

It was made by `auditor copy` of a Kafka broker's log directories, and holds what an audit needs of them: headers of
batches, markers, the records of internal topics without what is secret in them, and small files. Keys and values of
records are not in it. To read it: auditor audit THIS-FOLDER --out DIR
"""
COPYING = ".copying-"  # in a store, which has no lock: see auditor.connectors.stores.results
NO_COPY = "{}: not empty, and no earlier copy; give a folder of its own"


class Target(ABC):
    """A folder with the folders of a copy in it, each by its name relative to ``place``. Nothing outside of it is
    written. Errors of all it does: ``OSError``."""

    place: Place

    @abstractmethod
    def read(self, name: str, file: str) -> bytes | None:
        """A file of a folder, None where it is not there."""

    @abstractmethod
    def put(self, name: str, file: str, content: bytes) -> None:
        """Writes a file so that it is there as it was, or whole."""

    @abstractmethod
    def remove(self, name: str, file: str) -> None:
        """Takes a file away."""

    @abstractmethod
    def files(self, name: str) -> Set[str]:
        """The files that are directly in a folder."""

    @abstractmethod
    def has(self, name: str, file: str) -> bool:
        """Whether a file that a folder's list names is there."""

    @abstractmethod
    def folders(self) -> set[str]:
        """The folders that have a list, by their names."""

    @abstractmethod
    def forget(self, name: str) -> None:
        """Takes away a folder that is empty by now, and those above it that are too."""

    @abstractmethod
    def scratch(self, name: str) -> Path:
        """The folder of this machine where a file of that folder may be written until it is whole."""

    @abstractmethod
    def move(self, path: Path, name: str, file: str) -> None:
        """Makes a file that was written in its :meth:`scratch` one of the folder."""

    def settle(self, name: str) -> None:  # noqa: B027  what stores took, they have
        """What was written in a folder stays, whatever becomes of the machine."""

    def each(self, work: Callable[[Given], object], given: Sequence[Given]) -> None:
        """``work`` of each, which is of a folder of its own."""
        for one in given:
            work(one)

    def earlier(self, name: str, file: str) -> SegmentRows:
        """The rows that a Parquet file of a folder has."""
        return rows_of(self.place.child(name), file)

    def lists_ahead(self, names: Iterable[str]) -> AbstractContextManager[None]:
        """While :meth:`list_of` of these folders is asked for once each, in this order."""
        return contextlib.nullcontext()

    def list_of(self, name: str) -> FolderList | None:
        """The list that a folder has by now, None where it has none that can be read."""
        data = self.read(name, LIST)
        found = decoded(data) if data is not None else None
        return found if isinstance(found, FolderList) else None

    def put_list(self, name: str, found: FolderList, before: FolderList | None = None) -> None:
        """Replaces a folder's list where it is another than ``before``, then takes away what it does not name."""
        if found != before:
            self.settle(name)  # what the list names is there before the list is
            self.put(name, LIST, encoded(found))
            self.settle(name)  # and what it does not name goes when it is
        kept = {item.kept for item in found.files if item.kept is not None}
        self._clear(name, kept | {item.taken.file for item in found.files if item.taken is not None})

    def take_away(self, name: str) -> None:
        """Takes away a folder that the input has no longer."""
        self.remove(name, LIST)
        self._clear(name, frozenset())
        self.forget(name)

    def _clear(self, name: str, named: Set[str]) -> None:
        """Takes away the files of a copy that no list names."""
        for file in sorted(self.files(name) - named - {LIST}):
            if _is_ours(file):
                self.remove(name, file)

    @contextlib.contextmanager
    def begun(self, name: str, first: str) -> Iterator[Path]:
        """A file to be written, which becomes part of the folder as :meth:`finished` says."""
        handle, path = tempfile.mkstemp(prefix=PARTIAL + first, dir=self.scratch(name))
        os.close(handle)
        try:
            yield Path(path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise

    def finished(self, path: Path, name: str, first: str) -> str:
        """Gives a written file the name that its content has; that name."""
        file = file_name(first, digest_of(path.read_bytes()))
        self.move(path, name, file)
        return file


class FolderTarget(Target):
    """A folder of this machine. No link in it is followed."""

    def __init__(self, out: Path) -> None:
        """Makes the folder. Errors: :class:`AuditInputError` where it is none of a copy, or cannot be written."""
        self.out, self.place = out, Place("", str(out))
        try:
            out.mkdir(parents=True, exist_ok=True)
            if any(path.name != LOCK for path in out.iterdir()) and not (out / README).is_file():
                raise AuditInputError(NO_COPY.format(out))
            if not (out / README).is_file():
                self.put("", README, SAYS.encode())
        except OSError as error:
            raise AuditInputError(f"{out}: {error.strerror}; give a folder that can be written") from error

    def scratch(self, name: str) -> Path:
        """The folder of that name below the target itself, made where it is missing."""
        at = self.out
        for step in filter(None, name.split("/")):
            at = at / step
            with contextlib.suppress(FileExistsError):
                at.mkdir()
            if not stat.S_ISDIR(os.lstat(at).st_mode):
                raise OSError(0, f"{at} is no folder")
        return at

    def read(self, name: str, file: str) -> bytes | None:
        """See :meth:`Target.read`; None, too, where it cannot be read."""
        try:
            return (self.out / name / file).read_bytes()
        except OSError:
            return None

    def put(self, name: str, file: str, content: bytes) -> None:
        """See :meth:`Target.put`."""
        at = self.scratch(name)
        handle, partial = tempfile.mkstemp(prefix=PARTIAL, dir=at)
        try:
            with os.fdopen(handle, "wb") as f:
                f.write(content)
            self.move(Path(partial), name, file)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(partial)
            raise

    def move(self, path: Path, name: str, file: str) -> None:
        """See :meth:`Target.move`."""
        with path.open("rb") as f:
            os.fsync(f.fileno())
        path.chmod(0o644 & ~_umask())
        path.replace(self.out / name / file)

    def settle(self, name: str) -> None:
        """See :meth:`Target.settle`."""
        _settle(self.scratch(name))

    def remove(self, name: str, file: str) -> None:
        """See :meth:`Target.remove`."""
        (self.scratch(name) / file).unlink()

    def files(self, name: str) -> Set[str]:
        """See :meth:`Target.files`."""
        with os.scandir(self.scratch(name)) as found:
            return {each.name for each in found if each.is_file(follow_symlinks=False)}

    def has(self, name: str, file: str) -> bool:
        """See :meth:`Target.has`."""
        try:
            return stat.S_ISREG(os.lstat(self.out / name / file).st_mode)
        except OSError:
            return False

    def folders(self) -> set[str]:
        """See :meth:`Target.folders`."""
        found = {path.parent.relative_to(self.out).as_posix() for path in self.out.rglob(LIST)}
        return {"" if name == "." else name for name in found}

    def forget(self, name: str) -> None:
        """See :meth:`Target.forget`."""
        at = self.scratch(name)
        while at != self.out and not any(at.iterdir()):
            at.rmdir()
            at = at.parent


def _settle(folder: Path) -> None:
    """Names of a folder are on the disk, whatever becomes of the machine."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _is_ours(name: str) -> bool:
    """Whether it is a file that a copy writes."""
    return name.endswith((SUFFIX, ".gz")) or name.startswith(PARTIAL)
