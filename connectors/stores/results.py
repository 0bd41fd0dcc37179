"""A directory or store prefix that results are written to."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
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


# A directory of this machine or of a store, with the same methods.
#
# A store has no lock and no rename, so nothing here needs one: several files get unique names, and are then listed in
# one small file. Refused requests are retried (:mod:`auditor.connectors.stores.retries`).


Answer = TypeVar("Answer")

# In these an object is written atomically, and needs no directory. Elsewhere a file is written under another name, and
# moved.
WHOLE_OBJECTS = frozenset({"s3", "gcs", "abfs"})
LOCK = ".lock"  # of a directory of this machine
PARTIAL = ".partial-"  # prefix of that name, which no other writer uses
TRIAL_S = 5.0  # for retries of the first request: most refusals are the user's mistake


class ResultFolder(NamedTuple):
    """A result directory. ``uri``: as given by the user, empty for this machine; ``path``: in its file system;
    ``patience_s``: how long requests are retried, None for the default; ``ours``: the number of last steps of ``path``
    that the user did not name."""

    uri: str
    path: str
    patience_s: float | None = None
    ours: int = 0

    @property
    def files(self) -> pafs.FileSystem:
        """Its file system."""
        import pyarrow.fs as pafs

        return remote_files.filesystem(self.uri)[0] if self.uri else pafs.LocalFileSystem()

    @property
    def shown(self) -> str:
        """For people: without a URI's user, password and options."""
        return user_input.shown_uri(self.uri).rstrip("/") if self.uri else storage.printable(self.path)

    def __truediv__(self, name: str) -> ResultFolder:
        """The subdirectory of that name. The URI's options stay at its end."""
        head, mark, options = self.uri.partition("?")
        uri = f"{head.rstrip('/')}/{name}{mark}{options}" if self.uri else ""
        return self._replace(uri=uri, path=f"{self.path}/{name}", ours=self.ours + 1)

    def address(self, name: str) -> str:
        """How other programs open the file of that name: a path, or a URI without user, password and options."""
        return f"{self.shown}/{name}"

    def exists(self) -> bool:
        """Whether it exists: in a store, whether it has objects."""
        return bool(self._ask(lambda: self.files.get_file_info(self.path)).type.name == "Directory")

    def put(self, name: str, content: bytes | pa.Buffer | Iterator[bytes], kind: str = "") -> None:
        """Write a file atomically; retried from the start if a store fails. Links in place of the file or of
        directories of ours are replaced, not followed.

        ``kind``: the content type for HTTP, such as ``text/html``. Errors: those of the disk;
        :class:`~auditor.base.errors.StoreTrouble`, or the driver's own.
        """
        path = f"{self.path}/{name}"
        folder, _, file = path.rpartition("/")
        part = f"{PARTIAL}{uuid.uuid4().hex}-{file[-50:]}"
        if not self.uri:
            self._put_here(Path(path), part, content)
            return
        whole = self.files.type_name in WHOLE_OBJECTS
        now, data = (
            path if whole else f"{folder}/{part}",
            b"".join(content) if isinstance(content, Iterator) else content,
        )

        def written() -> None:
            if not whole:
                self.files.create_dir(folder, recursive=True)
            metadata = {"Content-Type": kind} if whole and kind else None
            with self.files.open_output_stream(now, compression=None, metadata=metadata) as stream:
                stream.write(data)
            if now != path:
                self.files.move(now, path)

        self._ask(written)

    def _put_here(self, path: Path, part: str, content: bytes | pa.Buffer | Iterator[bytes]) -> None:
        self._parents_of(path)
        try:
            with (path.parent / part).open("xb") as file:
                file.writelines(content if isinstance(content, Iterator) else (content,))
            os.replace(path.parent / part, path)
        except BaseException:
            (path.parent / part).unlink(missing_ok=True)
            raise

    def _parents_of(self, path: Path) -> None:
        above = [path.parent, *path.parent.parents][: self.ours + len(path.parts) - len(Path(self.path).parts) - 1]
        for own in filter(Path.is_symlink, reversed(above)):
            own.unlink()
        path.parent.mkdir(parents=True, exist_ok=True)

    def put_text(self, name: str, text: str | Iterable[str]) -> None:
        """Write a text, or its pieces, as UTF-8. Errors: as for :meth:`put`."""
        self.put(name, (piece.encode("utf-8", "replace") for piece in ((text,) if isinstance(text, str) else text)))

    def put_file(self, name: str, path: Path) -> None:
        """Write a file with the content of a local one. Errors: as for :meth:`put`."""
        import pyarrow as pa

        with pa.memory_map(str(path)) as content:
            self.put(name, content.read_buffer())

    def take(self, path: Path) -> None:
        """Move a file or directory of this machine here, over what has its name. A store gets a copy."""
        if not self.uri:
            self.remove([path.name])
            path.rename(Path(self.path, path.name))
            return
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                self.put_file(file.relative_to(path.parent).as_posix(), file)

    def remove(self, names: Iterable[str]) -> None:
        """Delete files, directories and links, one after the other, if they exist; never the target of a link."""
        listed = list(names)
        if self.uri:
            kinds = self.kinds(listed)
            for name in filter(kinds.__contains__, listed):
                (self.delete_folder if kinds[name] == "Directory" else self.delete_file)(name)
            return
        for path in (Path(self.path, name) for name in listed):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def place(self, name: str, final: str) -> None:
        """Rename a file to a new, unique name. A store that cannot move objects then has it under both names."""
        source, path = f"{self.path}/{name}", f"{self.path}/{final}"

        def placed() -> None:
            if self.files.type_name in WHOLE_OBJECTS:
                self.files.copy_file(source, path)
            else:
                if not self.uri:
                    self._parents_of(Path(path))
                self.files.create_dir(path.rpartition("/")[0], recursive=True)
                self.files.move(source, path)

        try:
            self._ask(placed)
        except REFUSED as error:  # also if it was done without an answer
            if retries.meaning(error) is not retries.Meaning.GONE or not self.kinds([final]):
                raise

    def kinds(self, names: Sequence[str]) -> dict[str, str]:
        """Which of these names exist, each with its kind: ``File`` or ``Directory``."""
        infos = self._ask(lambda: self.files.get_file_info([f"{self.path}/{name}" for name in names]))
        pairs = zip(names, (info.type.name for info in infos), strict=True)
        return {name: kind for name, kind in pairs if kind in ("File", "Directory")}

    def get(self, name: str, most: int | None = None) -> bytes | None:
        """The content of a small file, or its first ``most`` bytes; None if it does not exist."""

        def read() -> bytes:
            with self.files.open_input_stream(f"{self.path}/{name}", compression=None) as stream:
                return bytes(stream.read(most))

        return self._unless_gone(read)

    def reading(self, work: Callable[[pa.NativeFile], Answer], name: str) -> Answer:
        """The result of ``work`` on an open file; retried from the start if a store fails."""

        def read() -> Answer:
            with self.files.open_input_file(f"{self.path}/{name}") as file:
                return work(file)

        return self._ask(read)

    def get_all(self, names: list[str]) -> list[bytes | None]:
        """The content of small files, fetched in parallel."""
        return side_by_side(self.get, names)

    def below(self) -> dict[str, pafs.FileInfo]:
        """All files at any depth, by relative name; none if the directory does not exist."""
        import pyarrow.fs as pafs

        wanted = pafs.FileSelector(self.path, recursive=True, allow_not_found=True)
        infos = self._ask(lambda: self.files.get_file_info(wanted))
        start = len(self.path.rstrip("/")) + 1
        return {info.path[start:]: info for info in infos if info.is_file}

    def folders(self) -> dict[str, set[str]]:
        """Its subdirectories that are not empty, each with the names in it; none if it does not exist.

        On this machine files are not inspected: with many runs a tenth of the time of :meth:`below`.
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
        """Delete files, if they exist."""
        side_by_side(self.delete_file, names)

    def delete_file(self, name: str) -> None:
        """Delete a file, if it exists."""
        self._unless_gone(partial(self.files.delete_file, f"{self.path}/{name}"))

    def delete_folder(self, name: str) -> None:
        """Delete a directory with its content, if it exists."""
        self._unless_gone(partial(self.files.delete_dir, f"{self.path}/{name}"))

    def _unless_gone(self, work: Callable[[], Answer]) -> Answer | None:
        try:
            return self._ask(work)
        except REFUSED as error:
            if retries.meaning(error) is retries.Meaning.GONE:
                return None
            raise

    def _ask(self, work: Callable[[], Answer]) -> Answer:
        if not self.uri:
            return work()

        def answered() -> Answer:
            try:
                return work()
            except ValueError as error:  # of an incomplete file, or of a stream that broke off
                raise OSError(str(error)) from error

        refusal = partial(remote_files.refusal, self.uri, self.path)
        return retries.ask(answered, refusal, remote_files.renewed, most_s=self.patience_s)


def folder(out: Path | str) -> ResultFolder:
    """The directory of an option's value. Errors: :class:`AuditInputError` for a URI that cannot be opened."""
    if isinstance(out, Path):
        return ResultFolder("", os.path.abspath(out))
    if (
        user_input.parsed(out).scheme == "s3"
    ):  # one PUT for a small object, not the three requests of a multipart upload
        out += ("&" if "?" in out else "?") + "allow_delayed_open=true"
    _, path = remote_files.filesystem(out)
    return ResultFolder(out, path.rstrip("/") or path)


def is_of_its_own(where: ResultFolder) -> bool:
    """Whether a URI is a store's, not an alias of local files."""
    words = "".join(c if c.isalnum() else " " for c in where.files.type_name).split()  # py::fsspec+('file', 'local')
    return "::" not in where.uri and not {"local", "file"} & set(words)


def why(error: Exception) -> str:
    """The reason of an error, in words without secrets."""
    if isinstance(error, FileNotFoundError):
        return "no such bucket or directory"
    if isinstance(error, OSError) and error.errno and retries.code_of(error) == error.strerror:
        return os.strerror(error.errno)  # pyarrow's own message has the path
    return error.code if isinstance(error, StoreTrouble) else storage.problem("", error).detail


def tried(where: ResultFolder, option: str, trial: str, *, keep: bool = False) -> None:
    """Check that a store accepts a small file named ``trial``, and its deletion unless ``keep``.

    Errors: :class:`AuditInputError` if it does not.
    """
    where = where._replace(patience_s=TRIAL_S)
    try:
        where.put(trial, b"auditor")
        if not keep:
            where.delete([trial])
    except (*REFUSED, StoreTrouble) as error:
        raise AuditInputError(f"cannot write to {where.shown}: {why(error)}; choose another {option}") from error


@contextlib.contextmanager
def making(out: Path) -> Iterator[None]:
    """Errors: :class:`AuditInputError` for an ``OSError`` of the block, which writes to a directory."""
    try:
        yield
    except OSError as error:
        reason = f"cannot write to {out}: {error.strerror or error}"
        if isinstance(error, FileExistsError):
            reason = f"cannot create output directory {out}: a file with that name exists"
        raise AuditInputError(f"{reason}; choose another --out") from error


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a directory for this process; the lock ends with the process.

    Errors: :class:`AuditInputError` if another process has it.
    """
    with making(folder):
        fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise AuditInputError(
            f"another run is writing to {folder}; wait until it ends or choose another --out"
        ) from None
    try:
        yield
    finally:
        os.close(fd)


# Leases against two writers in one directory of a store, which has no lock.
#
# Each writer puts an object of its own there, and only then lists all: of two that start at once, at least one sees the
# other. A writer changes its object every few seconds. One that stays unchanged for longer is of a killed run, and is
# deleted. Clocks are not compared, and a store only needs to list what was written.


RENEW_S = 10.0
WATCHED_S = 45.0  # for watching another's object: some renewals may be late
_SIZES = 100  # bytes of an object, one more at each renewal, so that a listing shows the change
_TROUBLE = (*REFUSED, AuditInputError, StoreTrouble)


@contextlib.contextmanager
def alone_in(out: Path | str, prefix: str, what: str) -> Iterator[Callable[[str], None]]:
    """Lock a directory, or hold a lease on one of a store. Yields a function that raises ``OSError`` once another
    writer has taken over, as when this machine was suspended.

    ``prefix``: of the lease objects' names; ``what``: the kind of writer, for people. Errors: :class:`AuditInputError`
    if there is another writer, or the store cannot be written or listed.
    """
    if isinstance(out, Path):
        with making(out):
            out.mkdir(parents=True, exist_ok=True)
        with locked(out):
            yield retries.ignore
        return
    lease = _Lease(out, prefix, what)
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
        """Wait until other leases are known to be dead, while renewing this one."""
        storage.is_there(self.place)  # reports invalid credentials
        tried(self.folder, "--out", self.own, keep=True)
        self.thread.start()
        first, until = self._others(), time.monotonic() + WATCHED_S
        while (now := self._others()) and time.monotonic() < until:
            if any(first.get(name) != size for name, size in now.items()):
                where = self.folder.shown
                raise AuditInputError(
                    f"another {self.what} is writing to {where}; wait until it ends or choose another --out"
                )
            time.sleep(RENEW_S / 4)
        self._take_away(now)

    def _leases(self) -> dict[str, int]:
        # All leases with their sizes. AuditInputError if a store does not list them: then other writers are unknown.
        listing = storage.listing(self.place, deep=False)
        if wrong := [error.detail for error in listing.errors if error.reason != "vanished"]:  # as an empty directory
            raise AuditInputError(f"cannot list {self.folder.shown}: {wrong[0]}; grant it or choose another --out")
        return {entry.name: entry.size for entry in listing.files if entry.name.startswith(self.prefix)}

    def _others(self) -> dict[str, int]:
        return {name: size for name, size in self._leases().items() if name != self.own}

    def _renew(self) -> None:
        while not self.over.wait(RENEW_S):
            with contextlib.suppress(*_TROUBLE):  # the next write fails, too
                self._go_on()

    def _go_on(self) -> None:
        self.lost = self.lost or self.own not in self._leases()
        if not self.lost:
            self.size = self.size % _SIZES + 1
            self.folder.put(self.own, b"." * self.size)
            self.renewed_at = time.monotonic()

    def check(self, _about: str = "") -> None:
        """Errors: ``OSError`` if another writer has taken over; those of the store if it cannot tell."""
        if time.monotonic() - self.renewed_at > WATCHED_S - RENEW_S:
            self._go_on()
        if self.lost:
            raise OSError(0, f"another {self.what} writes there, which took this one for killed, for it stood still")

    def _take_away(self, names: Iterable[str]) -> None:
        for name in names:
            with contextlib.suppress(*_TROUBLE):  # already deleted
                self.folder.delete_file(name)

    def end(self) -> None:
        """Delete the lease."""
        self.over.set()
        if self.thread.ident is not None:
            self.thread.join()
        self._take_away([self.own])
