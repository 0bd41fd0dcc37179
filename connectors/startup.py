"""Which files of a partition folder a starting broker keeps, and why it drops the others.

A broker that stopped in the middle of a compaction or a deletion leaves ``.cleaned``, ``.swap`` and ``.deleted`` files.
Reading all of them would show data twice, so a reader applies what the broker does at start-up.
Source: kafka.log.LogLoader.removeTempFilesAndCollectSwapFiles and completeSwapOperations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from auditor.connectors.names import SEGMENT_KINDS, DataName

DELETED = "already deleted, waiting for removal"
CLEANED = "unfinished output of a compaction: dropped at start-up"
SWAP_DROPPED = "replacement from an unfinished compaction: dropped at start-up"
REPLACED = "replaced by a compacted segment: dropped at start-up"
UNFINISHED = "unfinished snapshot"
DROPPED = {"deleted": DELETED, "cleaned": CLEANED, "part": UNFINISHED}


class Found(NamedTuple):
    """A file of a partition folder: path relative to its log directory, size in bytes, and what its name says."""

    name: str
    size: int
    says: DataName


class Kept(NamedTuple):
    """The files that count, and the others each with a reason."""

    kept: list[Found]
    dropped: list[tuple[Found, str]]


def keep(files: Iterable[Found], end_offset: Callable[[Found], int]) -> Kept:
    """Apply the start-up rules. ``end_offset`` gives the offset after the last record of a ``.log.swap`` file.

    Cost: linear; ``end_offset`` is called once for each swapped segment, so in sound folders never.
    """
    found = list(files)
    cleaned = [item.says.offset for item in found if item.says.state == "cleaned"]
    first_cleaned = min(cleaned, default=1 << 63)
    swaps = [item for item in found if item.says.state == "swap" and item.says.offset < first_cleaned]
    logs = [item for item in swaps if item.says.kind == "log"]
    first = min((item.says.offset for item in logs), default=0)
    end = max((end_offset(item) for item in logs), default=0)
    result = Kept([], [])
    for item in found:
        reason = _reason(item, first_cleaned, first, end)
        if reason:
            result.dropped.append((item, reason))
        else:
            result.kept.append(item)
    return result


def _reason(item: Found, first_cleaned: int, first: int, end: int) -> str:
    """Why a broker drops a file, empty if it keeps it. ``first`` to ``end`` are the offsets that swaps replace."""
    says = item.says
    if says.state == "swap":
        return SWAP_DROPPED if says.offset >= first_cleaned else ""
    if not says.state and says.kind in SEGMENT_KINDS and first <= says.offset < end:
        return REPLACED
    return DROPPED.get(says.state, "")
