"""``--out`` as a URI: results are gathered in a folder of this machine and copied there once all of them are complete.

The driver of a cluster may run anywhere, and what lies on its own disk is then nobody's. A store cannot move many files
in one step: ``summary.json``, which goes last, says that all else is there. It has no lock: a run that finds another at
work is refused (:mod:`auditor.connectors.stores.results`). On a cluster tasks put parts of tables there by themselves, in a
folder of this run's alone below ``.unfinished``, where no reader looks; at the end the store gives them their names.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from auditor.base import user_input
from auditor.base.errors import AuditFailure, AuditInputError, StoreTrouble
from auditor.connectors.logdir.files import Inventory
from auditor.connectors.stores.results import Folder, alone_in, why
from auditor.connectors.stores.results import folder as folder_at
from auditor.connectors.stores.retries import REFUSED, side_by_side
from auditor.outputs.claim import FAILURE, LOCK, RESULTS, STAGED, SUMMARY, WHAT_IF, writable
from auditor.pipeline.table_parts import file_name

if TYPE_CHECKING:
    from auditor.pipeline.table_tasks import Written

COMPLETE = (SUMMARY, WHAT_IF)  # what says that all else is there
FIRST = "findings.jsonl"  # every command writes it
MARKS = frozenset({*COMPLETE, FIRST, FAILURE})  # what shows that folders beside it are an audit's


RUNNING = ".running-"  # by which a run says that it writes there
STORED = ".stored.json"  # which parts of tables are in the store already
LEFT = timedelta(days=1)  # so old is what a killed run left, and nobody is still writing it


def staging(out: str) -> Folder:
    """A folder of this run's alone, for what tasks put into the store before all of it is complete."""
    return folder_at(out) / STAGED / uuid.uuid4().hex


def keep_names(written: Written, folder: Path) -> None:
    """Says in the folder that results are gathered in which parts of tables wait in the store."""
    names = {
        f"tables/{table}/{file_name(number)}": part
        for table, parts in written.stored.items()
        for number, part in enumerate(parts)
    }
    said = {"staging": written.staging.path.rpartition("/")[2], "parts": names}
    (folder / STORED).write_text(json.dumps(said), encoding="utf-8")


def shown(out: Path | str, name: str) -> str:
    """Where the result of that name is, for people: without a URI's password and options."""
    return str(out / name) if isinstance(out, Path) else f"{user_input.shown_uri(out).rstrip('/')}/{name}"


@contextlib.contextmanager
def gathered(out: Path | str, inventory: Inventory | None) -> Iterator[Path]:
    """The folder that results go into; at the end of the block they are copied to ``out``, where that is a URI.

    Results of an earlier run are taken away from there just before, by their names; a block that ends with a mistake of
    the user's or is interrupted leaves them; where it ends with :class:`AuditFailure`, ``failure.log`` replaces them.
    Errors: :class:`AuditInputError` where the URI cannot be written to, holds other folders under the names of results,
    is in the input, or another run writes there; :class:`AuditFailure` where copying breaks off: the folder, which the
    message names, is left.
    """
    if isinstance(out, Path):
        yield out
        return
    target = _checked(out, inventory)
    with alone_in(out, RUNNING, "run") as still_alone:
        yield from _delivered(target, still_alone)


def _delivered(target: Folder, still_alone: Callable[[str], None]) -> Iterator[Path]:
    """A folder of this machine, whose content is delivered at the end of a block."""
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
        still_alone("")
        _deliver(folder, target)
    except Exception as error:  # drivers raise what they like, and the results of a whole audit are at stake
        parts = f", and parts of tables in {target.shown}/{STAGED}" if (folder / STORED).exists() else ""
        said = f"results cannot be copied to {target.shown}: {why(error)}; all of them are in {folder}{parts}"
        raise AuditFailure(said) from error
    shutil.rmtree(folder)


def _checked(out: str, inventory: Inventory | None) -> Folder:
    """The folder that a URI names, tried by writing a small object; what is there is not touched."""
    target = writable(out, inventory)
    there = target.kinds(RESULTS)
    others = [name for name, kind in there.items() if kind == "Directory"]
    if others and MARKS.isdisjoint(there):
        said = f"{target.shown} holds {', '.join(others)}, which no audit left there"
        raise AuditInputError(f"{said}; choose another --out")
    return target


def _deliver(folder: Path, target: Folder) -> None:
    """Puts all files in the place of earlier ones, what says that all is there last. The first is one that shows, where
    this breaks off, whose the folders are."""
    found = {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in (LOCK, STORED)
    }
    _clear(target)
    for name in sorted(found, key=lambda name: (name in COMPLETE, name != FIRST)):
        if name in COMPLETE:
            _place_parts(folder, target)
        target.put_file(name, found[name])
    _sweep(target)


def _clear(target: Folder) -> None:
    """Takes away what has the name of a result: what claims completeness first, then folders."""
    there = target.kinds(RESULTS)
    for name in sorted(there, key=lambda name: (name not in COMPLETE, there[name] != "Directory")):
        (target.delete_folder if there[name] == "Directory" else target.delete_file)(name)


def _place_parts(folder: Path, target: Folder) -> None:
    """Gives parts that tasks have put into the store their names."""
    if not (folder / STORED).exists():
        return
    said = json.loads((folder / STORED).read_text(encoding="utf-8"))
    at = f"{STAGED}/{said['staging']}"
    side_by_side(lambda part: target.place(f"{at}/{part[1]}", part[0]), [*said["parts"].items()])
    target.delete_folder(at)


def _sweep(target: Folder) -> None:
    """Takes away what runs left that were killed; results are whole by now, so this may fail."""
    with contextlib.suppress(*REFUSED, StoreTrouble):
        left = (target / STAGED).below()
        old = datetime.now(UTC) - LEFT
        target.delete(
            [f"{STAGED}/{name}" for name, info in left.items() if info.mtime is not None and info.mtime < old]
        )
