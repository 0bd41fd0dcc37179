"""Files of a copy that somebody names: as the directory had them, a file of batches, or a folder of them."""

from __future__ import annotations

from typing import NamedTuple

from auditor.base.errors import AuditInputError
from auditor.connectors import storage
from auditor.connectors.copied.copy_view import CopyView, list_of
from auditor.connectors.copied.folder_list import FolderList, Listed
from auditor.connectors.copied.segment_columns import SUFFIX
from auditor.connectors.storage import Place


class Named(NamedTuple):
    """A file of a copy, seen as what it was taken from, and its size there in bytes."""

    place: Place
    size: int


def named(path: str) -> list[Named]:
    """The files of a copy that ``path`` names; none where it names something else, or nothing.

    Errors: :class:`AuditInputError` for a list that cannot be read.
    """
    folder, last = path.rstrip("/"), ""
    found = _list(folder)
    if found is None:
        folder, _, last = folder.rpartition("/")
        found = _list(folder or ("/" if path.startswith("/") else "."))
    if found is None:
        return []
    place = storage.place(folder or ("/" if path.startswith("/") else "."))._replace(view=CopyView())
    return [Named(place.child(item.name), item.size) for item in found.files if _is_meant(item, last)]


def _is_meant(item: Listed, last: str) -> bool:
    there = item.taken is not None or item.content is not None or item.kept is not None or item.refused is not None
    if not last:
        return there and not item.unused
    return item.name == last or (last.endswith(SUFFIX) and item.taken is not None and item.taken.file == last)


def _list(path: str) -> FolderList | None:
    try:
        place = storage.place(path)
    except AuditInputError:
        return None
    found = list_of(place) if storage.is_folder(place) else None
    if found is None or isinstance(found, FolderList):
        return found
    raise AuditInputError(f"{place.shown}: {found.detail}; make the copy again")
