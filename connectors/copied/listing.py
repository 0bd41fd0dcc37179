"""What the listing of a PATH stands for where copies lie in it: the files that the directories had."""

from __future__ import annotations

import time

from auditor.base.errors import DecodeError, Limits
from auditor.connectors import names
from auditor.connectors.copied.copy_view import CopyView, list_of, listed_as
from auditor.connectors.copied.folder_list import LIST, FolderList
from auditor.connectors.storage import Entry, Listing, Place, Unused
from auditor.connectors.threads import side_by_side

_LAST: dict[Place, tuple[int, int]] = {}  # of each place what its lists came to, and when (ns) they first did
HELD = "held by a copy: the broker has deleted it, and the log begins behind it; the table batches has it"
BESIDE = "a file of Kafka's in the folder of a copy, whose list has it not: nobody reads it"


def seen_through(where: Place, found: Listing, limits: Limits) -> tuple[Place, Listing]:
    """A folder and what it holds, with the folders that have a list as that says; the place then opens them so.

    A list hides every other file of its folder. What looks like a broker's own among these is an error, since it may
    be what somebody wanted to have read.
    """
    copied = {entry.name.rpartition("/")[0] for entry in found.files if entry.name.rpartition("/")[2] == LIST}
    if not copied:
        return where, found
    seen = Listing([], list(found.unused), list(found.errors))
    for entry in found.files:
        folder, _, name = entry.name.rpartition("/")
        if folder not in copied:
            seen.files.append(entry)
        elif names.data_name(name) or name in names.OF_A_BROKER:
            seen.errors.append(DecodeError(entry.name, 0, entry.size, "unreadable", BESIDE))
    now, folders, all_said, tops = time.time_ns(), sorted(copied), 0, list[tuple[str, FolderList]]()
    to_read = side_by_side if where.uri else map
    for folder, said in zip(folders, to_read(lambda each: list_of(where.child(each), now), folders), strict=True):
        prefix, all_said = f"{folder}/" if folder else "", hash((all_said, said))
        if isinstance(said, FolderList):
            _add(said, prefix, seen, limits)
            if said.readings or said.under_way:
                tops.append((folder, said))
        else:
            why = said or DecodeError(LIST, 0, -1, "vanished", "gone since the directory was listed")
            seen.errors.append(why._replace(file=prefix + LIST))
    for each in seen:
        each.sort()
    since = _since(where._replace(view=None), all_said, now)
    for folder, said in tops:
        listed_as(where._replace(view=None).child(folder), since, said)
    return where._replace(view=CopyView(since)), seen


def _since(where: Place, lists: int, now: int) -> int:
    """When (ns) this process first met these lists at a place, having met no others since."""
    before, since = _LAST.get(where, (lists, now))
    _LAST[where] = lists, (found := since if before == lists else now)
    return found


def _add(said: FolderList, prefix: str, seen: Listing, limits: Limits) -> None:
    if len(seen.files) + len(seen.unused) + len(said.files) > limits.max_files:
        detail = f"more than {limits.max_files} files: not all listed"
        seen.errors.append(DecodeError(prefix + LIST, 0, -1, "limit", detail))
        return
    for item in said.files:
        if item.gone is not None:
            seen.unused.append(Unused(prefix + item.name, item.size, HELD))
        elif item.unused is None:
            seen.files.append(Entry(prefix + item.name, item.size))
        else:
            seen.unused.append(Unused(prefix + item.name, item.size, item.unused))
    for error in said.errors:
        seen.errors.append(error._replace(file=prefix + error.file if error.file else prefix.rstrip("/")))
