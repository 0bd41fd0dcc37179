"""What is taken of one file that is no segment, as an entry of its folder's list."""

from __future__ import annotations

import os
import stat

from auditor.base.errors import DEFAULT_LIMITS, DecodeError, Limits
from auditor.connectors.codec.small_files import audited_settings
from auditor.connectors.logdir import names
from auditor.connectors.logdir.copied_segments import digest_of
from auditor.connectors.logdir.copy_lists import Listed, Stat
from auditor.connectors.logdir.copy_view import ENTRY, MOST_ROWS, coded, packed, unpacked
from auditor.connectors.stores.storage import Place, read_data, read_file
from auditor.copying.target import Target

WITH_LIST = 16 << 10  # bytes of a file that stand in the list; more are a file of their own


def look(place: Place, name: str) -> tuple[Stat, int] | None:
    """What tells later whether a file is as it was, and its size, of a link 0 as in every list; None where its store
    does not say."""
    if place.uri or place.view is not None:
        return None
    try:
        found = os.lstat(place.child(name).path)
    except OSError:
        return None
    return Stat(found.st_ino, found.st_mtime_ns, found.st_ctime_ns), found.st_size if stat.S_ISREG(found.st_mode) else 0


def small_file(target: Target, folder: str, place: Place, name: str, size: int, limits: Limits, kind: str) -> Listed:
    """A file that is read as a whole. Errors: ``OSError`` of the target."""
    found = read_data(place, name, limits.small_file(kind))
    if isinstance(found, DecodeError):
        return Listed(name, size, refused=(found.reason, found.detail))
    data, length = found
    return _with_content(target, folder, Listed(name, size, length=length), data)


def index_like(target: Target, folder: str, item: Listed, segment: Listed | None) -> Listed:
    """A large index as what it repeats of its segment's batches, where it does. Errors: ``OSError`` of the target."""
    says = names.data_name(item.name)
    taken = segment.taken if segment is not None else None
    if item.kept is None or item.like or says is None or says.kind not in ENTRY or taken is None or segment is None:
        return item
    place = target.place.child(folder)
    data = unpacked(place, item.kept, item.length)
    if isinstance(data, DecodeError) or taken.rows > MOST_ROWS or taken.damaged:
        return item
    rows, _ = target.earlier(folder, taken.file).rows(taken.first, taken.first + taken.rows)
    text = coded(says.kind, data, rows, says.offset)
    if text is None:
        return item
    content = packed(text)
    kept = f"{item.name}-{digest_of(content)}.gz"
    target.put(folder, kept, content)
    return item._replace(kept=kept, like=segment.name)


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
