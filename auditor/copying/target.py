"""The folder that a copy is written into: files that never change, and lists that replace each other at once."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator, Set
from pathlib import Path

from auditor.base.errors import AuditInputError
from auditor.connectors.copied.folder_list import LIST, FolderList, decoded, encoded
from auditor.connectors.copied.segment_columns import SUFFIX, digest_of, file_name

LOCK = ".lock"  # which a copy that is under way holds
README = "0-THIS-IS-NO-BACKUP.txt"
SAYS = """\
This is no backup. No broker can start on it, and no record can be restored from it.

It was made by `auditor copy` of a Kafka broker's log directories, and holds what an audit needs of them: headers of
batches, markers, the records of internal topics without what is secret in them, and small files. Keys and values of
records are not in it. To read it: auditor audit THIS-FOLDER --out DIR
"""
_PARTIAL = ".partial-"


class Target:
    """A folder of this machine. Nothing outside of it is written, and no link in it is followed."""

    def __init__(self, out: Path) -> None:
        """Makes the folder. Errors: :class:`AuditInputError` where it is none of a copy, or cannot be written."""
        self.out = out
        try:
            out.mkdir(parents=True, exist_ok=True)
            if any(path.name != LOCK for path in out.iterdir()) and not (out / README).is_file():
                raise AuditInputError(f"{out}: not empty, and no earlier copy; give a folder of its own")
            if not (out / README).is_file():
                _written(out / README, SAYS.encode())
        except OSError as error:
            raise AuditInputError(f"{out}: {error.strerror}; give a folder that can be written") from error

    def folder(self, name: str) -> Path:
        """The folder of that name below the target, made where it is missing. Errors: ``OSError``."""
        at = self.out
        for step in filter(None, name.split("/")):
            at = at / step
            with contextlib.suppress(FileExistsError):
                at.mkdir()
            if not stat.S_ISDIR(os.lstat(at).st_mode):
                raise OSError(0, f"{at} is no folder")
        return at

    def list_of(self, name: str) -> FolderList | None:
        """The list that a folder has by now, None where it has none that can be read."""
        try:
            found = decoded((self.out / name / LIST).read_bytes())
        except OSError:
            return None
        return found if isinstance(found, FolderList) else None

    def has(self, name: str, file: str) -> bool:
        """Whether a file that a folder's list names is there."""
        try:
            return stat.S_ISREG(os.lstat(self.out / name / file).st_mode)
        except OSError:
            return False

    def folders(self) -> set[str]:
        """The folders that have a list, by their names."""
        found = {path.parent.relative_to(self.out).as_posix() for path in self.out.rglob(LIST)}
        return {"" if name == "." else name for name in found}

    def take_away(self, name: str) -> None:
        """Takes away a folder that the input has no longer. Errors: ``OSError``."""
        at = self.folder(name)
        (at / LIST).unlink()
        self._clear(at, frozenset())
        while at != self.out and not any(at.iterdir()):
            at.rmdir()
            at = at.parent

    def put_list(self, name: str, found: FolderList, before: FolderList | None = None) -> None:
        """Replaces a folder's list where it is another than ``before``, then takes away what it does not name. Errors:
        ``OSError``."""
        at = self.folder(name)
        if found != before:
            _settle(at)  # what the list names is there before the list is
            _written(at / LIST, encoded(found))
            _settle(at)  # and what it does not name goes when it is
        kept = {item.kept for item in found.files if item.kept is not None}
        self._clear(at, kept | {item.taken.file for item in found.files if item.taken is not None})

    def _clear(self, at: Path, named: Set[str]) -> None:
        """Takes away the files of a copy that no list names."""
        for each in os.scandir(at):
            ours = each.name != LIST and each.name not in named and _is_ours(each.name)
            if ours and each.is_file(follow_symlinks=False):
                os.unlink(each.path)

    def put(self, name: str, file: str, content: bytes) -> None:
        """Writes a file that the list to come names. Errors: ``OSError``."""
        _written(self.folder(name) / file, content)

    @contextlib.contextmanager
    def begun(self, name: str, first: str) -> Iterator[Path]:
        """A file to be written, which becomes part of the folder as :func:`finished` says."""
        handle, path = tempfile.mkstemp(prefix=_PARTIAL + first, dir=self.folder(name))
        os.close(handle)
        try:
            yield Path(path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise


def finished(path: Path, first: str) -> str:
    """Gives a written file the name that its content has; that name. Errors: ``OSError``."""
    name = file_name(first, digest_of(path.read_bytes()))
    with path.open("rb") as f:
        os.fsync(f.fileno())
    path.chmod(0o644 & ~_umask())
    path.replace(path.parent / name)
    return name


def _settle(folder: Path) -> None:
    """Names of a folder are on the disk, whatever becomes of the machine."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _is_ours(name: str) -> bool:
    """Whether it is a file that a copy writes."""
    return name.endswith((SUFFIX, ".gz")) or name.startswith(_PARTIAL)


def _written(path: Path, content: bytes) -> None:
    """Writes a file so that it is there as it was, or whole."""
    handle, partial = tempfile.mkstemp(prefix=_PARTIAL, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(content)
            f.flush()
            os.fsync(handle)
        os.chmod(partial, 0o644 & ~_umask())
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise
