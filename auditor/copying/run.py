"""A copy from its PATHs to its target, folder by folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from auditor.base.errors import AuditInputError, is_unread
from auditor.base.limits import DEFAULT_LIMITS, Limits
from auditor.connectors import names
from auditor.connectors.codec.blanking import KEPT, Blanks
from auditor.connectors.copied.folder_list import FolderList, Listed
from auditor.connectors.storage import Place
from auditor.copying.folders import Folder, Folders
from auditor.copying.small_entries import settings_file, small_file, stat_of
from auditor.copying.taken_segments import SegmentsTaken
from auditor.copying.target import Target

NOT_TAKEN = ("deleted", "cleaned", "part")  # states of files that no broker opens again


def nobody(_folder: str) -> None:
    """Notifies nobody."""


@dataclass
class Done:
    """What a copy came to."""

    folders: int = 0
    batches: int = 0
    bytes_seen: int = 0
    refused: int = 0


def copied(
    paths: Sequence[str], out: Path, limits: Limits = DEFAULT_LIMITS, say: Callable[[str], None] = nobody
) -> Done:
    """Copies what is below PATHs into ``out``. Errors: :class:`AuditInputError` for a wrong call, ``OSError`` of the
    target."""
    check_apart(paths, out)
    found = Folders(paths, limits)
    target, done = Target(out), Done()
    for folder in found.in_order():
        say(folder.name)
        take_folder(target, folder, limits, done)
    return done


def check_apart(paths: Sequence[str], out: Path) -> None:
    """Errors: :class:`AuditInputError` where the target lies in a PATH, or one in it."""
    target = out.resolve()
    for path in paths:
        given = Path(path.removeprefix("file://")).resolve() if "://" not in path or path.startswith("file:") else None
        if given is not None and (target.is_relative_to(given) or given.is_relative_to(target)):
            raise AuditInputError(f"--out {out} and {path} lie in each other; give a folder elsewhere")


def take_folder(target: Target, folder: Folder, limits: Limits, done: Done) -> None:
    """Takes one folder: its files, then its list at once. Errors: ``OSError`` of the target."""
    internal = folder.topic if folder.topic in KEPT else None
    segments = SegmentsTaken(target, folder.name, limits, Blanks(internal, limits) if internal else None)
    items: list[Listed] = []
    for name, size in sorted(folder.files.items()):
        items.append(_taken(target, folder, name, size, segments))
        done.bytes_seen += size
    found = segments.finish()
    items = [item._replace(taken=found[item.name]) if item.name in found else item for item in items]
    items += [Listed(name, size, unused=reason) for name, (size, reason) in sorted(folder.unused.items())]
    target.put_list(folder.name, FolderList(tuple(items), tuple(folder.errors)))
    done.folders += 1
    done.batches += segments.batches
    done.refused += sum(item.refused is not None and is_unread(*item.refused) for item in items)
    done.refused += sum(is_unread(error.reason, error.detail) for error in folder.errors)


def _taken(target: Target, folder: Folder, name: str, size: int, segments: SegmentsTaken) -> Listed:
    """One file of a folder, a segment without its batches, which come when all are read."""
    place, limits = folder.place, segments.limits
    if name in folder.configs:
        return settings_file(target, folder.name, place, name, size)
    says = names.data_name(name) or names.remote_name(name)
    if says is not None and says.state in NOT_TAKEN:
        return Listed(name, size)
    kind = says.kind if says is not None else _kind_by_ending(folder, name)
    if folder.aside and kind != names.PARTITION_METADATA:
        return Listed(name, size)
    if name in _TOP or kind in _WHOLE:
        return small_file(target, folder.name, place, name, size, limits, kind or name)
    if kind not in ("log", "checkpoint"):
        return Listed(name, size)
    stat = stat_of(place, name)
    at, path = _from_log_dir(folder, name)
    why = segments.take(at, path, size, folder.task)
    return Listed(name, size, stat, refused=None if why is None else (why.reason, why.detail))


def _kind_by_ending(folder: Folder, name: str) -> str:
    """Of a file that is in no partition's folder, and may have any name."""
    return name.rpartition(".")[2] if folder.topic is None else ""


_TOP = frozenset({names.META, names.CLEAN_SHUTDOWN, *names.CHECKPOINT_KINDS})
_WHOLE = frozenset(
    {*names.INDEX_KINDS, "snapshot", names.LEADER_EPOCHS, names.PARTITION_METADATA, names.QUORUM_STATE}
)  # fmt: skip


def _from_log_dir(folder: Folder, name: str) -> tuple[Place, str]:
    """A segment by the name that an audit has for it: errors carry it."""
    if folder.task is not None:
        inside = folder.task.replica.folder
        return folder.task.place, f"{inside}/{name}" if inside else name
    return folder.place, name
