"""The folder that a copy is written into: files that never change, and lists that replace each other at once."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from auditor.base.errors import AuditInputError
from auditor.connectors.copied.folder_list import LIST, FolderList, decoded, encoded
from auditor.connectors.copied.segment_columns import SUFFIX

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
            if any(out.iterdir()) and not (out / README).is_file():
                raise AuditInputError(f"{out}: not empty, and no earlier copy; give a folder of its own")
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

    def put_list(self, name: str, found: FolderList) -> None:
        """Replaces a folder's list, then takes away what it no longer names. Errors: ``OSError``."""
        at = self.folder(name)
        _written(at / LIST, encoded(found))
        named = {LIST, README, *(item.kept for item in found.files), *(i.taken.file for i in found.files if i.taken)}
        for each in os.scandir(at):
            if each.name not in named and each.is_file(follow_symlinks=False) and _is_ours(each.name):
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
    with path.open("rb") as f:
        digest = hashlib.file_digest(f, lambda: hashlib.blake2b(digest_size=6)).hexdigest()
    name = f"{first}-{digest}{SUFFIX}"
    path.chmod(0o644 & ~_umask())
    path.replace(path.parent / name)
    return name


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
        os.chmod(partial, 0o644 & ~_umask())
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise
