"""``--out`` as a URI: results are gathered in a folder of this machine and copied there once all of them are complete.

The driver of a cluster may run anywhere, and what lies on its own disk is then nobody's. A store has no lock and cannot
move many files in one step: two runs into one URI at a time are not kept apart, and ``summary.json``, which goes last,
says that all else is there.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from auditor.base.errors import AuditFailure, AuditInputError
from auditor.connectors import storage
from auditor.connectors.files import Inventory
from auditor.outputs.claim import LOCK, RESULTS, SUMMARY


class Target(NamedTuple):
    """A folder in a store: ``place`` as people see it, ``files`` the file system it is in, ``path`` where there."""

    place: storage.Place
    files: Any
    path: str


def shown(out: Path | str, name: str) -> str:
    """Where the result of that name is, for people: without a URI's password and options."""
    if isinstance(out, Path):
        return str(out / name)
    return storage.Place(out, storage.filesystem(out)[1]).child(name).shown


@contextlib.contextmanager
def gathered(out: Path | str, inventory: Inventory | None) -> Iterator[Path]:
    """The folder that results go into; at the end of the block they are copied to ``out``, where that is a URI.

    Results of an earlier run are taken away from there first, by their names. Errors: :class:`AuditInputError` where
    the URI cannot be written to or is in a log directory of the input; :class:`AuditFailure` where copying breaks off:
    the folder, which the message names, is left then, and also where the block failed, for its trace.
    """
    if isinstance(out, Path):
        yield out
        return
    target = _cleared(out, inventory)
    folder = Path(tempfile.mkdtemp(prefix="auditor-out-"))
    try:
        yield folder
    except AuditInputError:
        shutil.rmtree(folder)
        raise
    try:
        _copy(folder, target)
    except storage.REFUSED as error:
        why = storage.problem("", error).detail
        raise AuditFailure(f"results cannot be copied to {target.place.shown}: {why}; they are in {folder}") from error
    shutil.rmtree(folder)


def _cleared(out: str, inventory: Inventory | None) -> Target:
    """The folder that a URI names, made, and without results of an earlier run."""
    files, path = storage.filesystem(out)
    target = Target(storage.Place(out, path.rstrip("/")), files, path.rstrip("/"))
    _outside_of(target, inventory)
    try:
        files.create_dir(target.path, recursive=True)
        for info in files.get_file_info([f"{target.path}/{name}" for name in RESULTS]):
            if info.type.name == "Directory":
                files.delete_dir(info.path)
            elif info.type.name == "File":
                files.delete_file(info.path)
    except storage.REFUSED as error:
        why = storage.problem("", error).detail
        raise AuditInputError(f"cannot write to {target.place.shown}: {why}; choose another --out") from error
    return target


def _outside_of(target: Target, inventory: Inventory | None) -> None:
    """One store may go by several URIs, so paths decide: better one folder refused too many than a log's touched."""
    scheme = target.place.shown.partition("://")[0]
    for log_dir in () if inventory is None else inventory.log_dirs:
        same = log_dir.place.shown.partition("://")[0] == scheme
        if same and f"{target.path}/".startswith(f"{log_dir.place.path.rstrip('/')}/"):
            where = f"{target.place.shown} is in the log directory {log_dir.place.shown}"
            raise AuditInputError(f"{where}; choose an --out outside of it")


def _copy(folder: Path, target: Target) -> None:
    """Copies all files, the summary last; a file counts once its stream is closed."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != LOCK]
    for path in sorted(found, key=lambda path: path == folder / SUMMARY):
        name = f"{target.path}/{path.relative_to(folder).as_posix()}"
        target.files.create_dir(name.rpartition("/")[0], recursive=True)
        with path.open("rb") as source, target.files.open_output_stream(name) as stream:
            while piece := source.read(1 << 20):
                stream.write(piece)
