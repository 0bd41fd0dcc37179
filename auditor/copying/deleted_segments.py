"""Segments that the broker has deleted from below its log's start, which a copy may hold for a time.

Of a live partition's log alone, and of the same one: the topic id is as it was. What is gone from the log's start on,
or reaches beyond it, was truncated, cleaned or made anew, and is no part of the log's past: the copy has the newest
version of a log only. What was held already and no longer fits goes too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from auditor.connectors.logdir import names
from auditor.connectors.logdir.copy_lists import Gone, Listed
from auditor.copying.folders import Folder


def deleted(
    folder: Folder, before: Mapping[str, Listed], items: Sequence[Listed], keep_ms: int | None, now: int
) -> Iterator[Listed]:
    """What an earlier copy has of such segments. ``before``: its files by name; ``items``: those that are there now;
    ``keep_ms``: as of :class:`auditor.copying.one_folder.OneFolder`; ``now``: ms."""
    there = {item.name: item for item in items if not _vanished(item)}
    start = min((offset for name in there if (offset := _base(name)) >= 0), default=-1)
    if folder.task is None or folder.topic is None or folder.errors or start < 0 or not _same_topic(before, there):
        return
    for name, item in before.items():
        base = _base(name)
        if name in there or item.taken is None or not 0 <= base < start or item.taken.chunks[-1][2] > start:
            continue
        since = now if item.gone is None else item.gone.since
        until = since + keep_ms if keep_ms is not None else (item.gone.until if item.gone is not None else now)
        if until > now:
            yield item._replace(gone=Gone(since, until))


def _vanished(item: Listed) -> bool:
    return item.refused is not None and item.refused[0] == "vanished"


def _base(name: str) -> int:
    """The offset that a segment's file begins at by its name, -1 for other files."""
    says = names.data_name(name)
    return says.offset if says is not None and says.kind == "log" and not says.state else -1


def _same_topic(before: Mapping[str, Listed], there: Mapping[str, Listed]) -> bool:
    was, now = (found.get(names.PARTITION_METADATA) for found in (before, there))
    return (was.content if was else None) == (now.content if now else None)
