"""``--out`` as a URI: results are gathered in a folder of this machine and copied there once all of them are complete.

The driver of a cluster may run anywhere, and what lies on its own disk is then nobody's. A store has no lock and cannot
move many files in one step: two runs into one URI at a time are not kept apart, and ``summary.json``, which goes last,
says that all else is there.
"""

from __future__ import annotations

import contextlib
import posixpath
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from auditor.base import uris
from auditor.base.errors import AuditFailure, AuditInputError
from auditor.connectors import storage
from auditor.connectors.files import Inventory
from auditor.outputs.claim import FAILURE, LOCK, RESULTS, SUMMARY, WHAT_IF, evidence, outside_of

COMPLETE = (SUMMARY, WHAT_IF)  # what says that all else is there
FIRST = "findings.jsonl"  # every command writes it
MARKS = frozenset({*COMPLETE, FIRST, FAILURE})  # what shows that folders beside it are an audit's


class Target(NamedTuple):
    """A folder in a store: ``shown`` as people see it, ``files`` the file system it is in, ``path`` where there."""

    shown: str
    files: Any
    path: str

    def earlier(self) -> list[Any]:
        """What has the name of a result there, each a ``FileInfo``: what claims completeness first, then folders."""
        infos = self.files.get_file_info([f"{self.path}/{name}" for name in RESULTS])
        found = [info for info in infos if info.type.name in ("Directory", "File")]
        return sorted(found, key=lambda info: (info.base_name not in COMPLETE, info.type.name != "Directory"))

    def clear(self) -> None:
        """Takes the results of an earlier run away."""
        for info in self.earlier():
            (self.files.delete_dir if info.type.name == "Directory" else self.files.delete_file)(info.path)


def shown(out: Path | str, name: str) -> str:
    """Where the result of that name is, for people: without a URI's password and options."""
    return str(out / name) if isinstance(out, Path) else f"{uris.shown(out).rstrip('/')}/{name}"


@contextlib.contextmanager
def gathered(out: Path | str, inventory: Inventory | None) -> Iterator[Path]:
    """The folder that results go into; at the end of the block they are copied to ``out``, where that is a URI.

    Results of an earlier run are taken away from there just before, by their names; a block that ends with a mistake of
    the user's or is interrupted leaves them; where it ends with :class:`AuditFailure`, ``failure.log`` replaces them.
    Errors: :class:`AuditInputError` where the URI cannot be written to, holds other folders under the names of results,
    or is in the input; :class:`AuditFailure` where copying breaks off: the folder, which the message names, is left.
    """
    if isinstance(out, Path):
        yield out
        return
    target = _checked(out, inventory)
    folder = Path(tempfile.mkdtemp(prefix="auditor-out-"))
    try:
        yield folder
    except AuditFailure as error:
        try:
            _deliver(folder, target)
        except Exception:  # noqa: BLE001  whatever it is, the first error is the one to be heard of
            raise error from error.__cause__
        raise AuditFailure(f"{error}, and in {target.shown}/{FAILURE}") from error.__cause__
    except BaseException:
        shutil.rmtree(folder)
        raise
    try:
        _deliver(folder, target)
    except Exception as error:  # drivers raise what they like, and the results of a whole audit are at stake
        said = f"results cannot be copied to {target.shown}: {_why(error)}; all of them are in {folder}"
        raise AuditFailure(said) from error
    shutil.rmtree(folder)


def _checked(out: str, inventory: Inventory | None) -> Target:
    """The folder that a URI names, tried by writing a small object; what is there is not touched."""
    files, path = storage.filesystem(out)
    target = Target(uris.shown(out).rstrip("/"), files, path.rstrip("/"))
    if {"local", "file"} & set(_words(files.type_name)) or "::" in out:
        raise AuditInputError(f"{target.shown} is no store of its own; choose a path or a plain URI as --out")
    _outside_of(target, inventory)
    try:
        names = {info.base_name: info.type.name for info in target.earlier()}
        others = [name for name, kind in names.items() if kind == "Directory"]
        if others and MARKS.isdisjoint(names):
            said = f"{target.shown} holds {', '.join(others)}, which no audit left there"
            raise AuditInputError(f"{said}; choose another --out")
        files.create_dir(target.path, recursive=True)
        trial = f"{target.path}/.auditor-{uuid.uuid4().hex}"
        with files.open_output_stream(trial) as stream:
            stream.write(b"auditor")
        files.delete_file(trial)
    except storage.REFUSED as error:
        raise AuditInputError(f"cannot write to {target.shown}: {_why(error)}; choose another --out") from error
    return target


def _words(type_name: str) -> list[str]:
    """The parts of a file system's type, such as ``py::fsspec+('file', 'local')``."""
    return "".join(c if c.isalnum() else " " for c in type_name).split()


def _outside_of(target: Target, inventory: Inventory | None, option: str = "--out") -> None:
    """One store may go by several schemes, so paths decide: better one folder refused too many than a log's touched."""
    for what, place in evidence(inventory):
        if place.uri and f"{_plain(target.path)}/".startswith(f"{_plain(place.path)}/"):
            raise AuditInputError(f"{target.shown} is in the {what} {place.shown}; choose an {option} outside of it")


def apart_from_input(work: str, inventory: Inventory | None) -> None:
    """That facts are kept outside of the input. Errors: :class:`AuditInputError` where they would not be."""
    if "://" not in work:
        outside_of(Path(work), inventory, "--work")
        return
    files, path = storage.filesystem(work)
    _outside_of(Target(uris.shown(work), files, path), inventory, "--work")


def _plain(path: str) -> str:
    return posixpath.normpath(f"/{path.strip('/')}").rstrip("/")


def _why(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such bucket or folder"
    return storage.problem("", error).detail


def _deliver(folder: Path, target: Target) -> None:
    """Copies all files in place of earlier ones, what says that all is there last; a file counts once its stream is
    closed. The first is one that shows, where copying breaks off, whose the folders are."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != LOCK]
    last = {folder / name for name in COMPLETE}
    target.clear()
    for path in sorted(found, key=lambda path: (path in last, path != folder / FIRST)):
        name = f"{target.path}/{path.relative_to(folder).as_posix()}"
        target.files.create_dir(name.rpartition("/")[0], recursive=True)
        with path.open("rb") as source, target.files.open_output_stream(name) as stream:
            while piece := source.read(1 << 20):
                stream.write(piece)
