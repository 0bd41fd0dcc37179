"""Which checksums of bodies a copy verifies, and when: as bodies are read anyway, or behind the headers of all else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from auditor.base.errors import MIB, Limits
from auditor.connectors.logdir.copy_lists import Listed
from auditor.copying.folders import Folder
from auditor.copying.one_folder import place_of
from auditor.copying.small_entries import look, small_file
from auditor.copying.taken_segments import SegmentsTaken
from auditor.copying.target import Target

NONE, BUDGET, ALL = MODES = "none", "budget", "all"
BUDGET_BYTES = 1024 * MIB  # of segments that a copy reads whole; an input of no more is read whole at once


@dataclass
class Checksums:
    """What is left to verify. ``headers_first``: bodies come when all headers are there."""

    mode: str = ALL
    left: int = BUDGET_BYTES
    headers_first: bool = False

    def now(self, size: int, *, grown: bool = False) -> bool:
        """Whether so many bytes of a segment are to be read whole by now; ``grown``: behind what an earlier copy has.
        They count."""
        if self.mode != BUDGET:
            return self.mode == ALL
        if (self.headers_first and not grown) or size > self.left:
            return False
        self.left -= size
        return True

    def later(self, size: int) -> bool:
        """The same of a segment whose headers are there: one at a time, as long as anything is left."""
        if self.mode != BUDGET:
            return self.mode == ALL
        if self.left <= 0:
            return False
        self.left -= size
        return True


def verify(
    target: Target,
    folders: Sequence[Folder],
    limits: Limits,
    checksums: Checksums,
    only: Mapping[str, Set[str]] | None = None,
) -> int:
    """Verifies checksums that are open in the copy, segment by segment; how many segments are left open. ``only``: of
    these segments by folder, whatever is left of the budget. Errors: ``OSError`` of the target."""
    still = 0
    with target.lists_ahead(folder.name for folder in folders):
        for folder in folders:
            found = target.list_of(folder.name)
            if found is None:
                continue
            unknown = [
                item for item in found.files if item.taken is not None and not item.taken.checked and item.gone is None
            ]
            if only is None:
                chosen = [item for item in unknown if checksums.later(item.size)]
            else:
                chosen = [item for item in unknown if item.name in only.get(folder.name, ())]
            done = _verified(target, folder, limits, found.files, chosen) if chosen else {}
            if done:
                files = tuple(done.get(item.name, item) for item in found.files)
                target.put_list(folder.name, found._replace(files=files), found)
            still += sum(not (item.taken and item.taken.checked) for item in (done.get(u.name, u) for u in unknown))
    return still


def _verified(
    target: Target, folder: Folder, limits: Limits, files: Sequence[Listed], chosen: Sequence[Listed]
) -> dict[str, Listed]:
    """The files whose entries are others, since they were read again or lie beside one that was."""
    segments = SegmentsTaken(target, folder.name, limits, None)
    names = {item.name for item in chosen if _is_as_it_was(folder, item)}
    moved = {item.taken.file for item in files if item.taken is not None and item.name in names}
    others = [item for item in files if item.taken is not None and item.taken.file in moved]
    for item in others:
        at, path = place_of(folder, item.name)
        again = item.name in names and item.taken is not None and segments.is_there(at, path, item.taken)
        records = item.taken is not None and item.taken.records
        if again and segments.take(at, path, item.size, folder.task, records=records) is None:
            continue
        if item.taken is None or not segments.carry(item.name, item.taken):
            return {}
    done = segments.finish()
    entries = {item.name: item._replace(taken=done[item.name]) for item in others}
    odd = {name for name, item in entries.items() if item.taken and item.taken.damaged}
    for index in (item for item in files if item.like in odd):  # its batches are others now
        at, kind = folder.place, index.name.rpartition(".")[2]
        entries[index.name] = small_file(target, folder.name, at, index.name, index.size, limits, kind)
    return entries


def _is_as_it_was(folder: Folder, item: Listed) -> bool:
    """Whether a segment is the file that was taken, which may have grown since."""
    now = look(folder.place, item.name)
    return now is not None and item.stat is not None and now[0].inode == item.stat.inode
