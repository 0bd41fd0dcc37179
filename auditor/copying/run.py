"""A copy from its PATHs to its target, folder by folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from auditor.base.errors import AuditInputError
from auditor.base.limits import DEFAULT_LIMITS, Limits
from auditor.copying.folders import Folders
from auditor.copying.one_folder import Done, OneFolder
from auditor.copying.target import Target


def nobody(_folder: str) -> None:
    """Notifies nobody."""


def copied(
    paths: Sequence[str], out: Path, limits: Limits = DEFAULT_LIMITS, say: Callable[[str], None] = nobody
) -> Done:
    """Copies what is below PATHs into ``out``: of an earlier copy there, what is as it was stays, and is not read.

    Errors: :class:`AuditInputError` for a wrong call, ``OSError`` of the target.
    """
    check_apart(paths, out)
    found = Folders(paths, limits)
    target, done = Target(out), Done()
    for folder in found.in_order():
        say(folder.name)
        OneFolder(target, folder, limits).take(done)
    for name in target.folders() - found.found.keys():
        target.take_away(name)
    return done


def check_apart(paths: Sequence[str], out: Path) -> None:
    """Errors: :class:`AuditInputError` where the target lies in a PATH, or one in it."""
    target = out.resolve()
    for path in paths:
        given = Path(path.removeprefix("file://")).resolve() if "://" not in path or path.startswith("file:") else None
        if given is not None and (target.is_relative_to(given) or given.is_relative_to(target)):
            raise AuditInputError(f"--out {out} and {path} lie in each other; give a folder elsewhere")
