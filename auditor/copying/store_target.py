"""A copy in a store: what a rename does in a folder, one PUT of a list does here."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

from auditor.base.errors import MIB, AuditInputError, StoreTrouble
from auditor.connectors.logdir.copied_segments import SegmentRows
from auditor.connectors.logdir.copy_lists import LIST, MOST_STORED
from auditor.connectors.stores import remote_files, results, retries, storage
from auditor.connectors.stores.results import TRIAL_S
from auditor.connectors.stores.storage import REFUSED
from auditor.copying.target import COPYING, NO_COPY, README, SAYS, Given, Target
from auditor.copying.turns import Turns

Answer = TypeVar("Answer")

_STREAMS = 2  # that write at once: pyarrow's S3 client sets 10 MiB aside for each
_LARGE = 4 * MIB


def _at(name: str, file: str) -> str:
    """The file of a folder, which is the copy's own where it has no name."""
    return f"{name}/{file}" if name else file


class StoreTarget(Target):
    """A folder in a store. It is listed once, and what becomes of it is remembered: nobody else may write to it.

    A store that refuses for the time being is asked again (:mod:`auditor.connectors.stores.retries`).
    """

    def __init__(self, uri: str) -> None:
        """Looks at the store. Errors: :class:`AuditInputError` where it cannot be written, or what is there is no
        copy."""
        self.place = storage.remote_place(uri)
        self.folder = results.folder(uri)._replace(patience_s=TRIAL_S)
        if not results.is_of_its_own(self.folder):
            raise AuditInputError(f"{self.place.shown} is no store of its own; give a path or a plain URI")
        self.own = Path(tempfile.mkdtemp(prefix="auditor-copy-"))  # for files that are not whole yet
        weakref.finalize(self, shutil.rmtree, self.own, ignore_errors=True)
        self.there: dict[str, dict[str, int]] = defaultdict(dict)  # folder -> its files with their sizes
        self.turns, self.streams = Turns(), threading.Semaphore(_STREAMS)
        try:
            self._look()
            self.put("", README, SAYS.encode())
        except OSError as error:
            raise AuditInputError(
                f"cannot write to {self.place.shown}: {error.strerror}; choose another --out"
            ) from error
        self.folder = self.folder._replace(patience_s=None)

    def _look(self) -> None:
        """What is there by now."""
        if not storage.is_there(self.place):
            return
        found = storage.listing(self.place)
        if found.errors:
            raise AuditInputError(f"{self.place.shown}: {found.errors[0].detail}; check the URI and its credentials")
        for entry in found.files:
            folder, _, file = entry.name.rpartition("/")
            self.there[folder][file] = entry.size
        others = [each for each in found.files if not each.name.startswith(COPYING)]
        if (others or found.unused) and README not in self.there[""]:
            raise AuditInputError(NO_COPY.format(self.place.shown))

    def _aside(self, size: int) -> AbstractContextManager[None]:
        """While so many bytes are under way it is another folder's turn, but for many: of these one is in memory."""
        return self.turns.aside() if size <= _LARGE else contextlib.nullcontext()

    def _ask(self, work: Callable[[], Answer], size: int = 0) -> Answer:
        """What ``work`` with the folder gives. Errors: ``OSError`` with the store's own code."""
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
        came = remote_files.taken(self.folder.uri, self._path(name, file))
        if came is not None and came.first is not None and len(came.first) == came.end:
            return came.first.tobytes()
        return self._ask(lambda: self.folder.get(_at(name, file), MOST_STORED + 1))

    def put(self, name: str, file: str, content: bytes) -> None:
        """See :meth:`Target.put`."""

        def write() -> None:
            with self.streams:
                self.folder.put(_at(name, file), content)

        self._ask(write, len(content))
        self.there[name][file] = len(content)

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
        self.there[name].pop(file, None)

    def files(self, name: str) -> Set[str]:
        """See :meth:`Target.files`."""
        return frozenset(self.there[name])

    def has(self, name: str, file: str) -> bool:
        """See :meth:`Target.has`."""
        return file in self.there.get(name, ())

    def each(self, work: Callable[[Given], object], given: Sequence[Given]) -> None:
        """See :meth:`Target.each`: some at once, while they wait for the store."""
        self.turns.each(work, given)

    def earlier(self, name: str, file: str) -> SegmentRows:
        """See :meth:`Target.earlier`."""
        with self._aside(self.there[name].get(file, 0)):
            return super().earlier(name, file)

    def lists_ahead(self, names: Iterable[str]) -> AbstractContextManager[None]:
        """See :meth:`Target.lists_ahead`: side by side, as far as memory is set aside."""
        there = (name for name in names if self.has(name, LIST))
        wanted = (
            remote_files.Coming(self.folder.uri, self.place.child(_at(name, LIST)).path, self.there[name][LIST])
            for name in there
        )
        return remote_files.coming([wanted], remote_files.MANY)

    def folders(self) -> set[str]:
        """See :meth:`Target.folders`."""
        return {name for name, files in self.there.items() if LIST in files}

    def forget(self, name: str) -> None:
        """See :meth:`Target.forget`: a store has no folders. What stands for some is left."""
        self.there.pop(name, None)
