"""What is taken of one file that is no segment, as an entry of its folder's list."""

from __future__ import annotations

import os

from auditor.base.errors import DecodeError
from auditor.base.limits import DEFAULT_LIMITS, Limits
from auditor.connectors.codec.settings import audited_settings
from auditor.connectors.copied.copy_view import packed
from auditor.connectors.copied.folder_list import Listed, Stat
from auditor.connectors.storage import Place, read_file
from auditor.copying.target import Target

WITH_LIST = 16 << 10  # bytes of a file that stand in the list; more are a file of their own


def stat_of(place: Place, name: str) -> Stat | None:
    """What tells later whether a file is as it was, None where its store does not say."""
    if place.uri or place.view is not None:
        return None
    try:
        found = os.lstat(place.child(name).path)
    except OSError:
        return None
    return Stat(found.st_ino, found.st_mtime_ns, found.st_ctime_ns)


def small_file(target: Target, folder: str, place: Place, name: str, size: int, limits: Limits, kind: str) -> Listed:
    """A file that is read as a whole. Errors: ``OSError`` of the target."""
    data = read_file(place, name, limit=limits.small_file(kind))
    if isinstance(data, DecodeError):
        return Listed(name, size, refused=(data.reason, data.detail))
    return _with_content(target, folder, Listed(name, size, length=len(data)), data)


def settings_file(target: Target, folder: str, place: Place, name: str, size: int) -> Listed:
    """A ``server.properties``, of which only the settings that an audit goes by are left."""
    data = read_file(place, name, limit=DEFAULT_LIMITS.max_properties_bytes)
    if isinstance(data, DecodeError):
        return Listed(name, size, refused=(data.reason, data.detail))
    return _with_content(target, folder, Listed(name, size, length=len(data)), audited_settings(data))


def _with_content(target: Target, folder: str, item: Listed, data: bytes) -> Listed:
    content = data.rstrip(b"\0")
    if len(content) <= WITH_LIST:
        return item._replace(content=content)
    kept = f"{item.name}.gz"
    target.put(folder, kept, packed(content))
    return item._replace(kept=kept)
