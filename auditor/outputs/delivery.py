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
from typing import TYPE_CHECKING

import pyarrow as pa

from auditor.base import uris
from auditor.base.errors import AuditFailure, AuditInputError
from auditor.connectors.files import Inventory
from auditor.connectors.result_folder import Folder, why
from auditor.outputs.claim import FAILURE, LOCK, RESULTS, SUMMARY, WHAT_IF, writable

if TYPE_CHECKING:
    import pyarrow.fs as pafs

COMPLETE = (SUMMARY, WHAT_IF)  # what says that all else is there
FIRST = "findings.jsonl"  # every command writes it
MARKS = frozenset({*COMPLETE, FIRST, FAILURE})  # what shows that folders beside it are an audit's


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
        said = f"results cannot be copied to {target.shown}: {why(error)}; all of them are in {folder}"
        raise AuditFailure(said) from error
    shutil.rmtree(folder)


def _checked(out: str, inventory: Inventory | None) -> Folder:
    """The folder that a URI names, tried by writing a small object; what is there is not touched."""
    target = writable(out, inventory)
    names = {info.base_name: info.type.name for info in _earlier(target)}
    others = [name for name, kind in names.items() if kind == "Directory"]
    if others and MARKS.isdisjoint(names):
        said = f"{target.shown} holds {', '.join(others)}, which no audit left there"
        raise AuditInputError(f"{said}; choose another --out")
    return target


def _earlier(target: Folder) -> list[pafs.FileInfo]:
    """What has the name of a result there: what claims completeness first, then folders."""
    infos = target.files.get_file_info([f"{target.path}/{name}" for name in RESULTS])
    found = [info for info in infos if info.type.name in ("Directory", "File")]
    return sorted(found, key=lambda info: (info.base_name not in COMPLETE, info.type.name != "Directory"))


def _deliver(folder: Path, target: Folder) -> None:
    """Copies all files in place of earlier ones, what says that all is there last; a file counts once its stream is
    closed. The first is one that shows, where copying breaks off, whose the folders are."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != LOCK]
    last = {folder / name for name in COMPLETE}
    for info in _earlier(target):
        (target.files.delete_dir if info.type.name == "Directory" else target.files.delete_file)(info.path)
    for path in sorted(found, key=lambda path: (path in last, path != folder / FIRST)):
        with pa.memory_map(str(path)) as content:
            target.put(path.relative_to(folder).as_posix(), content.read_buffer())
