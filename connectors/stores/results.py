"""A directory or store prefix that results are written to."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from auditor.base import user_input
from auditor.base.errors import AuditInputError, StoreTrouble
from auditor.connectors.stores import remote_files, retries, storage
from auditor.connectors.stores.retries import REFUSED, side_by_side

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs as pafs


# A folder that results are written to and read back from: of this machine or of a store, by the same calls.
#
# A store has no lock and no rename, so nothing here needs one: whoever writes several files gives them names that
# nobody
# else has, and then one small file that lists them. A store that refuses is asked again as any reader asks it
# (:mod:`auditor.connectors.stores.retries`).


Answer = TypeVar("Answer")

# Here an object is as it was, or whole: it is seen once its last byte was taken, and is in no folder. Elsewhere a file
# is written under another name, and moved.
WHOLE_OBJECTS = frozenset({"s3", "gcs", "abfs"})
PARTIAL = ".partial-"  # how that name begins
TRIAL_S = 5.0  # for which a first request is tried again: it is most often refused for the user's mistake


class ResultFolder(NamedTuple):
    """``uri``: as the user gave it, empty for a folder of this machine; ``path``: in its file system; ``patience_s``:
    for how long a store is asked again, None for as long as any reader asks it."""

    uri: str
    path: str
    patience_s: float | None = None

    @property
    def files(self) -> pafs.FileSystem:
        """The file system that it is in."""
        import pyarrow.fs as pafs

        return remote_files.filesystem(self.uri)[0] if self.uri else pafs.LocalFileSystem()

    @property
    def shown(self) -> str:
        """For people: without a URI's user, password and options."""
        return user_input.shown_uri(self.uri).rstrip("/") if self.uri else storage.printable(self.path)

    def __truediv__(self, name: str) -> ResultFolder:
        """The folder of that name in it. The URI's options stay at its end."""
        head, mark, options = self.uri.partition("?")
        uri = f"{head.rstrip('/')}/{name}{mark}{options}" if self.uri else ""
        return self._replace(uri=uri, path=f"{self.path}/{name}")

    def address(self, name: str) -> str:
        """What other programs open the file of that name by: a path, or a URI without user, password and options."""
        return f"{self.shown}/{name}"

    def exists(self) -> bool:
        """Whether it is there: in a store, whether something is in it."""
        return bool(self._ask(lambda: self.files.get_file_info(self.path)).type.name == "Directory")

    def put(self, name: str, content: bytes | pa.Buffer, kind: str = "") -> None:
        """Writes a file, anew where a store broke off. The folder that it is in is not followed where it is a link.

        ``kind``: what a store says that it is to who gets it over HTTP, such as ``text/html``.

        Errors: those of the disk; :class:`~auditor.base.errors.StoreTrouble`, or the driver's own.
        """
        path = f"{self.path}/{name}"
        if not self.uri:
            own = Path(path).parent
            if own.is_symlink():  # whatever it leads to is not ours to write to
                own.unlink()

        folder, _, file = path.rpartition("/")
        whole = self.files.type_name in WHOLE_OBJECTS
        now = path if whole or not self.uri else f"{folder}/{PARTIAL}{file}"

        def written() -> None:
            if not whole:
                self.files.create_dir(folder, recursive=True)
            metadata = {"Content-Type": kind} if whole and kind else None
            with self.files.open_output_stream(now, compression=None, metadata=metadata) as stream:
                stream.write(content)
            if now != path:
                self.files.move(now, path)

        self._ask(written)

    def put_file(self, name: str, path: Path) -> None:
        """Writes a file with the content of one of this machine. Errors: as of :meth:`put`."""
        import pyarrow as pa

        with pa.memory_map(str(path)) as content:
            self.put(name, content.read_buffer())

    def place(self, name: str, final: str) -> None:
        """Gives a file its name, which no other file has. A store that moves no object has it under both names then."""
        source, path = f"{self.path}/{name}", f"{self.path}/{final}"

        def placed() -> None:
            if self.files.type_name in WHOLE_OBJECTS:
                self.files.copy_file(source, path)
            else:
                self.files.create_dir(path.rpartition("/")[0], recursive=True)
                self.files.move(source, path)

        try:
            self._ask(placed)
        except retries.REFUSED as error:  # as when it was done and not answered
            if retries.meaning(error) is not retries.Meaning.GONE or not self.kinds([final]):
                raise

    def kinds(self, names: Sequence[str]) -> dict[str, str]:
        """Which of these names are there, each with what it is: ``File`` or ``Directory``."""
        infos = self._ask(lambda: self.files.get_file_info([f"{self.path}/{name}" for name in names]))
        pairs = zip(names, (info.type.name for info in infos), strict=True)
        return {name: kind for name, kind in pairs if kind in ("File", "Directory")}

    def get(self, name: str, most: int | None = None) -> bytes | None:
        """The content of a small file, or its first ``most`` bytes; None where there is none."""

        def read() -> bytes:
            with self.files.open_input_stream(f"{self.path}/{name}", compression=None) as stream:
                return bytes(stream.read(most))

        try:
            return self._ask(read)
        except retries.REFUSED as error:
            if retries.meaning(error) is retries.Meaning.GONE:
                return None
            raise

    def reading(self, work: Callable[[pa.NativeFile], Answer], name: str) -> Answer:
        """What ``work`` makes of an open file, done anew where a store breaks off."""

        def read() -> Answer:
            with self.files.open_input_file(f"{self.path}/{name}") as file:
                return work(file)

        return self._ask(read)

    def get_all(self, names: list[str]) -> list[bytes | None]:
        """The content of small files, asked for side by side."""
        return side_by_side(self.get, names)

    def below(self) -> dict[str, pafs.FileInfo]:
        """All files however deep, by their names from here; none where the folder is not there."""
        import pyarrow.fs as pafs

        wanted = pafs.FileSelector(self.path, recursive=True, allow_not_found=True)
        infos = self._ask(lambda: self.files.get_file_info(wanted))
        start = len(self.path.rstrip("/")) + 1
        return {info.path[start:]: info for info in infos if info.is_file}

    def folders(self) -> dict[str, set[str]]:
        """The folders in it that are not empty, each with the names of what lies in it; none where it is not there.

        On this machine no file is looked at: of many runs a tenth of the time of :meth:`below`.
        """
        folders: dict[str, set[str]] = {}
        if self.uri:
            for name in self.below():
                own, _, rest = name.partition("/")
                if rest:
                    folders.setdefault(own, set()).add(rest.partition("/")[0])
            return folders
        for entry in os.scandir(self.path) if os.path.isdir(self.path) else ():
            if entry.is_dir() and (inside := os.listdir(entry.path)):
                folders[entry.name] = set(inside)
        return folders

    def delete(self, names: list[str]) -> None:
        """Takes files away; those that are gone already, too."""
        side_by_side(self.delete_file, names)

    def delete_file(self, name: str) -> None:
        """Takes a file away; one that is gone already, too."""
        try:
            self._ask(partial(self.files.delete_file, f"{self.path}/{name}"))
        except retries.REFUSED as error:
            if retries.meaning(error) is not retries.Meaning.GONE:
                raise

    def delete_folder(self, name: str) -> None:
        """Takes a folder away with all that is in it; one that is gone already, too."""
        try:
            self._ask(partial(self.files.delete_dir, f"{self.path}/{name}"))
        except retries.REFUSED as error:
            if retries.meaning(error) is not retries.Meaning.GONE:
                raise

    def _ask(self, work: Callable[[], Answer]) -> Answer:
        if not self.uri:
            return work()

        def answered() -> Answer:
            try:
                return work()
            except ValueError as error:  # of a file that came in part, or of a stream that broke off before
                raise OSError(str(error)) from error

        refusal = partial(remote_files.refusal, self.uri, self.path)
        return retries.ask(answered, refusal, remote_files.renewed, most_s=self.patience_s)


def folder(out: Path | str) -> ResultFolder:
    """The folder that an option's value names. Errors: :class:`AuditInputError` for a URI that nothing opens."""
    if isinstance(out, Path):
        return ResultFolder("", os.path.abspath(out))
    if (
        user_input.parsed(out).scheme == "s3"
    ):  # one PUT for a small object, and not the three requests of an upload by parts
        out += ("&" if "?" in out else "?") + "allow_delayed_open=true"
    _, path = remote_files.filesystem(out)
    return ResultFolder(out, path.rstrip("/") or path)


def is_of_its_own(where: ResultFolder) -> bool:
    """Whether a URI is a store's, and no other way to files of this machine."""
    words = "".join(c if c.isalnum() else " " for c in where.files.type_name).split()  # py::fsspec+('file', 'local')
    return "::" not in where.uri and not {"local", "file"} & set(words)


def why(error: Exception) -> str:
    """What was wrong with a file, in words that hold no secret."""
    if isinstance(error, FileNotFoundError):
        return "no such bucket or folder"
    if isinstance(error, OSError) and error.errno and retries.code_of(error) == error.strerror:
        return os.strerror(error.errno)  # pyarrow's own words have the path in them
    return error.code if isinstance(error, StoreTrouble) else storage.problem("", error).detail


def tried(where: ResultFolder, option: str, trial: str, *, keep: bool = False) -> None:
    """That a store takes a small file of the name ``trial``, and gives it up, but where it is to be kept.

    Errors: :class:`AuditInputError` where it does not.
    """
    where = where._replace(patience_s=TRIAL_S)
    try:
        where.put(trial, b"auditor")
        if not keep:
            where.delete([trial])
    except (*retries.REFUSED, StoreTrouble) as error:
        raise AuditInputError(f"cannot write to {where.shown}: {why(error)}; choose another {option}") from error


# Two that write into one folder of a store: a store has no lock, so each says that it is there, and looks for others.
#
# Each puts an object of its own beside the others', and only then lists what is there: of two that begin at once, one
# at
# least sees the other. Who writes changes its object every few seconds. One that stays as it is for longer is of a run
# that was killed, and is taken away. No two clocks are compared, and a store needs but list what it took.


RENEW_S = 10.0
WATCHED_S = 45.0  # for which another's object is watched: some renewals may be late
_SIZES = 100  # bytes of an object, one more each time: a list of the folder shows that it changed
_TROUBLE = (*REFUSED, AuditInputError, StoreTrouble)


@contextlib.contextmanager
def alone_in(uri: str, prefix: str, what: str) -> Iterator[Callable[[str], None]]:
    """While nobody else who does the same writes into a folder of a store. Gives what raises ``OSError`` once another
    took this one for killed, as when its machine stood still.

    ``prefix``: how names of these objects begin; ``what``: what they are of, for people.
    Errors: :class:`AuditInputError` where another writes there, or the store cannot be written or listed.
    """
    lease = _Lease(uri, prefix, what)
    try:
        lease.begin()
        yield lease.check
    finally:
        lease.end()


class _Lease:
    def __init__(self, uri: str, prefix: str, what: str) -> None:
        self.place, self.folder = storage.remote_place(uri), folder(uri)
        self.prefix, self.what = prefix, what
        self.own, self.size = f"{prefix}{uuid.uuid4().hex}", 1
        self.renewed_at, self.lost, self.over = time.monotonic(), False, threading.Event()
        self.thread = threading.Thread(target=self._renew, daemon=True)

    def begin(self) -> None:
        """Waits until others are known to be gone, and says all the time that this one is there."""
        storage.is_there(self.place)  # which says what is wrong with credentials
        tried(self.folder, "--out", self.own, keep=True)
        self.thread.start()
        first, until = self._others(), time.monotonic() + WATCHED_S
        while (now := self._others()) and time.monotonic() < until:
            if any(first.get(name) != size for name, size in now.items()):
                where = self.folder.shown
                raise AuditInputError(
                    f"another {self.what} writes to {where}; wait for its end or choose another --out"
                )
            time.sleep(RENEW_S / 4)
        self._take_away(now)

    def _there(self) -> dict[str, int]:
        """The objects of all, with their sizes by now. Errors: :class:`AuditInputError` where a store does not list
        them: that says nothing of who is there."""
        listing = storage.listing(self.place, deep=False)
        if wrong := [error.detail for error in listing.errors if error.reason != "vanished"]:  # an empty folder is none
            raise AuditInputError(f"cannot list {self.folder.shown}: {wrong[0]}; allow that or choose another --out")
        return {entry.name: entry.size for entry in listing.files if entry.name.startswith(self.prefix)}

    def _others(self) -> dict[str, int]:
        return {name: size for name, size in self._there().items() if name != self.own}

    def _renew(self) -> None:
        while not self.over.wait(RENEW_S):
            with contextlib.suppress(*_TROUBLE):  # who writes next will hear of that, too
                self._go_on()

    def _go_on(self) -> None:
        self.lost = self.lost or self.own not in self._there()
        if not self.lost:
            self.size = self.size % _SIZES + 1
            self.folder.put(self.own, b"." * self.size)
            self.renewed_at = time.monotonic()

    def check(self, _about: str = "") -> None:
        """Errors: ``OSError`` where another writes by now; those of the store where it does not tell."""
        if time.monotonic() - self.renewed_at > WATCHED_S - RENEW_S:
            self._go_on()
        if self.lost:
            raise OSError(0, f"another {self.what} writes there, which took this one for killed, for it stood still")

    def _take_away(self, names: Iterable[str]) -> None:
        for name in names:
            with contextlib.suppress(*_TROUBLE):  # gone meanwhile
                self.folder.delete_file(name)

    def end(self) -> None:
        """Takes its object away."""
        self.over.set()
        if self.thread.ident is not None:
            self.thread.join()
        self._take_away([self.own])
