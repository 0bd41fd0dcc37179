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
from typing import Any, TypeVar

from auditor.base.errors import AuditInputError, StoreTrouble
from auditor.base.limits import MIB
from auditor.connectors import ahead, asking, storage
from auditor.connectors.copied.folder_list import LIST, MOST_STORED
from auditor.connectors.copied.segment_columns import SegmentRows
from auditor.connectors.drivers import filesystem, refusal, renewed
from auditor.connectors.storage import REFUSED
from auditor.copying.target import COPYING, NO_COPY, PARTIAL, README, SAYS, Given, Target
from auditor.copying.turns import Turns

Answer = TypeVar("Answer")

# Here an object is as it was, or whole: it is seen once its last byte was taken. Elsewhere a file is written under
# another name, and moved.
_WHOLE_OBJECTS = frozenset({"s3", "gcs", "abfs"})
_STREAMS = 3  # that write at once: pyarrow's S3 client sets 10 MiB aside for each
_LARGE = 4 * MIB
_TRIAL_S = 5.0  # for which the first request is tried again: it is most often refused for the user's mistake


class StoreTarget(Target):
    """A folder in a store. It is listed once, and what becomes of it is remembered: nobody else may write to it.

    A store that refuses for the time being is asked again (:mod:`auditor.connectors.asking`).
    """

    def __init__(self, uri: str, first: tuple[str, bytes] | None = None) -> None:
        """Looks at the store, or puts a ``first`` file there and does not look. Errors: :class:`AuditInputError` where
        it cannot be written, or what is there is no copy."""
        self.place = storage.remote_place(uri)
        kind = filesystem(self.place.uri)[0].type_name
        if "::" in uri or {"local", "file"} & set("".join(c if c.isalnum() else " " for c in kind).split()):
            raise AuditInputError(f"{self.place.shown} is no store of its own; give a path or a plain URI")
        self.direct = kind in _WHOLE_OBJECTS
        self.uri = self.place.uri
        if kind == "s3":  # one PUT for a small object, and not the three requests of an upload by parts
            self.uri += ("&" if "?" in self.uri else "?") + "allow_delayed_open=true"
        self.own = Path(tempfile.mkdtemp(prefix="auditor-copy-"))  # for files that are not whole yet
        weakref.finalize(self, shutil.rmtree, self.own, ignore_errors=True)
        self.there: dict[str, dict[str, int]] = defaultdict(dict)  # folder -> its files with their sizes
        self.patience_s: float | None = _TRIAL_S
        self.turns, self.streams = Turns(), threading.Semaphore(_STREAMS)
        try:
            if first is None:
                self._look()
            else:
                storage.is_there(self.place)  # which says what is wrong with credentials
            self.put("", *(first or (README, SAYS.encode())))
        except OSError as error:
            raise AuditInputError(
                f"cannot write to {self.place.shown}: {error.strerror}; choose another --out"
            ) from error
        self.patience_s = None

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

    def _ask(self, work: Callable[[Any], Answer], size: int = 0) -> Answer:
        """What ``work`` gives of the store's file system. Errors: ``OSError`` with the store's own code."""
        uri = self.uri
        try:
            with self._aside(size):
                return asking.ask(
                    lambda: work(filesystem(uri)[0]), lambda: refusal(uri, self.place.path), renewed,
                    most_s=self.patience_s,
                )  # fmt: skip
        except FileNotFoundError as error:
            raise OSError(0, "no such bucket or folder") from error
        except StoreTrouble as error:
            raise OSError(0, f"{asking.SAYS}{error.code}") from error
        except REFUSED as error:
            raise OSError(0, storage.problem("", error).detail) from error

    def _at(self, name: str, file: str) -> str:
        return self.place.child("/".join(filter(None, (name, file)))).path

    def read(self, name: str, file: str) -> bytes | None:
        """See :meth:`Target.read`."""
        if not self.has(name, file):
            return None
        came = ahead.taken(self.uri, self._at(name, file))
        if came is not None and came.first is not None and len(came.first) == came.end:
            return came.first.tobytes()

        def read(files: Any) -> bytes:
            with files.open_input_stream(self._at(name, file), compression=None) as stream:
                found: bytes = stream.read(MOST_STORED + 1)
                return found

        return self._ask(read)

    def put(self, name: str, file: str, content: bytes) -> None:
        """See :meth:`Target.put`."""
        path = self._at(name, file)

        def write(files: Any) -> None:
            now = path if self.direct else self._at(name, PARTIAL + file)
            if not self.direct:
                files.create_dir(path.rpartition("/")[0], recursive=True)
            with self.streams, files.open_output_stream(now, compression=None) as stream:
                stream.write(content)
            if now != path:
                files.move(now, path)

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
        path = self._at(name, file)
        try:
            self._ask(lambda files: files.delete_file(path))
        except OSError as error:
            if not isinstance(error.__cause__, FileNotFoundError):  # as when a request was carried out and not answered
                raise
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
        wanted = (ahead.Coming(self.uri, self._at(name, LIST), self.there[name][LIST]) for name in there)
        return ahead.coming([wanted], ahead.MANY)

    def folders(self) -> set[str]:
        """See :meth:`Target.folders`."""
        return {name for name, files in self.there.items() if LIST in files}

    def forget(self, name: str) -> None:
        """See :meth:`Target.forget`: a store has no folders. What stands for some is left."""
        self.there.pop(name, None)
