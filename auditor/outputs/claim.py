"""A folder for results: nobody else writes there meanwhile, nothing of an earlier run is left, all of a run appears
together, and a failure leaves its log and nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import posixpath
import shutil
import traceback
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from auditor.base.errors import AuditInputError
from auditor.connectors.logdir.files import Inventory
from auditor.connectors.logdir.names import COPY_LIST
from auditor.connectors.stores.results import Folder, folder, is_of_its_own, tried
from auditor.connectors.stores.storage import Place

SUMMARY, WHAT_IF, FAILURE = "summary.json", "what-if.json", "failure.log"
RESULTS = (
    "findings.jsonl",
    "findings",
    SUMMARY,
    "report.html",
    "metrics.prom",
    "tables",
    FAILURE,
    "data_docs",
    WHAT_IF,
)
LOCK, STAGED = ".lock", ".unfinished"


def evidence(inventory: Inventory | None) -> Iterator[tuple[str, Place]]:
    """Folders of the input that nothing may be written into, each with what it is; those of text dumps only may be."""
    for log_dir in () if inventory is None else inventory.log_dirs:
        if log_dir.meta is not None or log_dir.replicas or log_dir.small_files:
            yield "log directory", log_dir.place
    for remote in () if inventory is None else inventory.remote:
        for file in (file for segment in remote.segments[:1] for file in segment.files[:1]):
            if file.place:
                yield "remote storage", file.place


def writable(out: Path | str, inventory: Inventory | None, option: str = "--out") -> Folder:
    """The folder that an option names, which is in no log directory of the input, in no remote storage and in no copy
    of this machine, links followed; a store is tried by a small file. One store may go by several schemes, so paths
    decide: better one folder refused too many than a log's touched.

    Errors: :class:`AuditInputError` where it is: evidence is only read, and a broker does not start beside folders
    that it does not know.
    """
    where = folder(out)
    if where.uri and not is_of_its_own(where):
        raise AuditInputError(f"{where.shown} is no store of its own; choose a path or a plain URI as {option}")
    for what, place in evidence(inventory):
        if bool(place.uri) == bool(where.uri) and _plain(where).is_relative_to(_plain(place)):
            raise AuditInputError(f"{where.shown} is in the {what} {place.shown}; choose an {option} outside of it")
    if where.uri:
        tried(where, option, f".auditor-{uuid.uuid4().hex}")
    elif copy := next((at for at in (_plain(where), *_plain(where).parents) if (at / COPY_LIST).is_file()), None):
        raise AuditInputError(f"{where.shown} is in the copy {copy}; choose an {option} outside of it")
    return where


def _plain(where: Folder | Place) -> Path:
    """A path that can be compared."""
    return Path(posixpath.normpath(f"/{where.path.strip('/')}")) if where.uri else Path(where.path).resolve()


@contextlib.contextmanager
def claimed(out: Path, inventory: Inventory | None = None, *, keep: bool = False) -> Iterator[Path]:
    """While a run writes into the folder it is given; what lies there at the end is moved to ``out``, summary last.

    What an earlier run left under ``out`` goes first, by its names, unless ``keep``. Where the block raises, nothing
    is moved. Errors: :class:`AuditInputError` where ``out`` cannot be written, is in a log directory, or is another
    run's.
    """
    writable(out, inventory)
    with _making(out):
        out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        staged = out / STAGED
        with _making(out):
            for name in (STAGED, *(() if keep else RESULTS)):
                remove(out / name)
            staged.mkdir()
        try:
            yield staged
            for path in sorted(staged.iterdir(), key=lambda path: path.name == SUMMARY):
                remove(out / path.name)
                path.rename(out / path.name)
        finally:
            remove(staged)


@contextlib.contextmanager
def _making(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise AuditInputError(f"cannot write to {out}: {reason}; make room there or choose another --out") from error


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """While a process has a folder to itself; the lock goes with the process, however that ends.

    Errors: :class:`AuditInputError` where another has it.
    """
    with _making(folder):
        fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise AuditInputError(f"another run writes to {folder}; wait for its end or choose another --out") from None
    try:
        yield
    finally:
        os.close(fd)


def remove(path: Path) -> None:
    """Takes a file, folder or link away, never what a link leads to; nothing where there is none."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)


def failed(out: Path, error: BaseException) -> Path | None:
    """Leaves the trace of a failure under ``out``; None where even that cannot be written."""
    path = out / FAILURE
    try:
        remove(path)
        path.write_text("".join(traceback.format_exception(error)), encoding="utf-8", errors="replace")
    except OSError:
        return None
    return path


def write_whole(path: Path, text: str | Iterable[str]) -> None:
    """Writes a text file, or its pieces, in one step: a reader sees the old one or the new one. No link is followed."""
    part = path.with_name(path.name + ".part")
    remove(part)
    with part.open("w", encoding="utf-8", errors="replace") as file:
        file.writelines([text] if isinstance(text, str) else text)
    os.replace(part, path)
