"""The input directories of a copy: listing, small files, retained segments."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from auditor.base.errors import DecodeError, Limits
from auditor.connectors import kafka_names
from auditor.connectors.kafka_names import METADATA_TOPIC
from auditor.connectors.logdir import inventory as inventories
from auditor.connectors.logdir.copy_format import CopyTimes, DeletionTimes, Listed, Stat
from auditor.connectors.logdir.files import Naming
from auditor.connectors.logdir.internal_rows import CONSUMER_OFFSETS, TRANSACTION_STATE
from auditor.connectors.logdir.inventory import Draft, Drafts, drafts, folder_replica
from auditor.connectors.stores import storage
from auditor.connectors.stores.storage import StorageLocation
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.plan import replica_tasks
from auditor.replay.task import ReplicaTask

# Times of reading, which are comparable with a broker's times if it runs on this machine.
#
# A running broker locks the file ``.lock`` of each of its log directories. The kernel lists the locks of this machine,
# so none has to be tried.


LOCKS, MACHINE = Path("/proc/locks"), Path("/proc/sys/kernel/random/boot_id")
LOCK_FILE = ".lock"
_LOCKED = re.compile(r"^\d+: (?:POSIX|OFDLCK) +ADVISORY +WRITE +-?\d+ +([0-9a-f]+):([0-9a-f]+):(\d+) ", re.MULTILINE)


def now_ms() -> int:
    """Return the system time in epoch milliseconds."""
    return time.time_ns() // 1_000_000


def boot_id() -> str:
    """Return an identifier of this machine's boot; empty if unknown."""
    try:
        return MACHINE.read_text().strip()
    except OSError:
        return ""


def locked_by_broker(log_dir: StorageLocation) -> bool:
    """Whether a process of this machine holds the lock of a log directory. False if unknown."""
    if log_dir.uri or log_dir.view is not None:
        return False
    try:
        lock_stat = os.lstat(log_dir.child(LOCK_FILE).path)
        listed = LOCKS.read_text()
    except OSError:
        return False
    lock_id = os.major(lock_stat.st_dev), os.minor(lock_stat.st_dev), lock_stat.st_ino
    return any((int(m[1], 16), int(m[2], 16), int(m[3])) == lock_id for m in _LOCKED.finditer(listed))


def readings(times: Sequence[CopyTimes], *, live: bool) -> tuple[CopyTimes, ...]:
    """Mark the read times of a log directory. ``live``: a broker held its lock before the first and after the last
    one."""
    return tuple(sorted(reading._replace(live=live) for reading in times))


def stat_and_size(place: StorageLocation, name: str) -> tuple[Stat, int] | None:
    """Return a file's stat, to detect later changes, and its size (0 for a link, as in every list); None if the
    store has no stat."""
    if place.uri or place.view is not None:
        return None
    try:
        entry = os.lstat(place.child(name).path)
    except OSError:
        return None
    return Stat(entry.st_ino, entry.st_mtime_ns, entry.st_ctime_ns), entry.st_size if stat.S_ISREG(entry.st_mode) else 0


# The directories of the input.


TEXT = "text dump: not copied, give it besides the copy"
OF_PLUGIN = "object of a remote segment: not copied, give --remote besides the copy"
LISTINGS = 5  # of a directory whose files are renamed meanwhile
# Files of segments, and complete files of the cleaner.
OPENED = (*(f".{kind}" for kind in kafka_names.SEGMENT_KINDS), ".swap")
GONE = (".deleted", ".cleaned")  # whose names alone count
# The order of copying by topic: later logs explain earlier ones (docs/copying.md).
STEPS = (CONSUMER_OFFSETS, "", TRANSACTION_STATE, METADATA_TOPIC)


@dataclass
class InputFolder:
    """A directory of the input.

    ``name``: relative to the target; ``files``: sizes by name; ``unused``: files that are never opened, with size and
    reason; ``errors``: what could not be listed; ``listed``: when (ms), or earlier; ``task``: reads its replica, None
    if that is not live; ``topic``: of a partition directory; ``log_dir``: its log directory by ``name``.
    """

    name: str
    place: StorageLocation
    files: dict[str, int] = field(default_factory=dict)
    unused: dict[str, tuple[int, str]] = field(default_factory=dict)
    errors: list[DecodeError] = field(default_factory=list)
    listed: int = field(default_factory=now_ms)
    task: ReplicaTask | None = None
    topic: str | None = None
    configs: set[str] = field(default_factory=set)
    aside: bool = False
    log_dir: str | None = None  # the folder of its log directory, by ``name``

    def refresh(self) -> None:
        """List a live partition's directory again, right before it is read. A directory that cannot be listed any more,
        or is of a copy, keeps its first listing.

        A file that is renamed between listing and stat is listed again, :data:`LISTINGS` times; then it counts as
        vanished.
        """
        if self.task is None or self.topic is None or self.place.view is not None:
            return
        for _ in range(LISTINGS):
            listed, now = now_ms(), storage.listing(self.place, deep=False)
            if not (errors := [error for error in now.errors if not error.file.endswith(GONE)]):
                break
        vanished = {error.file: 0 for error in errors if error.file and error.reason == "vanished"}
        if len(vanished) < len(errors):
            return
        odd = {item.name for item in now.unused}  # links in place of files, which were found before
        files = {name: size for name, size in self.files.items() if name in odd} | vanished
        files |= {entry.name: entry.size for entry in now.files if entry.name not in self.unused}
        self.files, self.listed = files, listed
        log_dir, replica = self.task.place, self.task.replica
        if any(kafka_names.data_name(name) for name in files):
            built = folder_replica(log_dir, replica.log_dir, replica.folder, files)
            self.task = replace(self.task, replica=built.replica)

    def closed(self) -> set[str]:
        """Return the files of all segments but the last. They are only replaced or deleted, never appended to."""
        last = self._last()
        return {
            name for name in self.files if self.task is not None and name.endswith(OPENED) and _base_above(name) < last
        }

    def _last(self) -> str:
        return max((_base_above(name) for name in self.files if _is_segment(name)), default="")

    def moved_on(self, stats: Mapping[str, Stat | None]) -> set[str]:
        """Return the segment files that are not those of ``stats``, taken right before they were read, and those that
        were not listed.

        The cleaner replaced or merged them, or they were deleted. The last segment is written to, so only another inode
        counts there; later segments are new.
        """
        if self.task is None or self.place.uri or self.place.view is not None:
            return set()
        names, last = {entry.name for entry in storage.listing(self.place, deep=False).files}, self._last()
        moved = set()
        for name in (name for name in self.files.keys() | names if name.endswith(OPENED) and _base_above(name) <= last):
            was, now = stats.get(name), stat_and_size(self.place, name)
            other = now is None or was is None or now[0].inode != was.inode
            if other or (_base_above(name) < last and now != (was, self.files[name])):
                moved.add(name)
        return moved

    @property
    def has_segments(self) -> bool:
        """Whether it has a ``.log`` file."""
        return any(_is_segment(name) for name in self.files)

    @property
    def step(self) -> int:
        """The order of copying: files at the top of a log directory come first."""
        if self.topic is None:
            return -1
        return STEPS.index(self.topic) if self.topic in STEPS else STEPS.index("")


class Folders:
    """The directories below PATHs."""

    def __init__(self, paths: Sequence[str], limits: Limits) -> None:
        """List the PATHs. Errors: :class:`auditor.base.errors.AuditInputError` for a wrong one."""
        self.listed, input_drafts = now_ms(), drafts(paths, limits)
        self.inventory = inventories.inventory_of(input_drafts, paths, limits)
        self.naming: Naming = inventories.naming_of(input_drafts)
        self.found: dict[str, InputFolder] = {}
        options = AuditOptions(tuple(paths), "", limits=limits)
        tasks = {
            (t.replica.log_dir, t.replica.folder): t
            for t in replica_tasks(self.inventory, {}, options)
            if isinstance(t, ReplicaTask)
        }
        for place, draft in input_drafts.found.items():
            self._log_dir(place, draft, tasks)
        self._outside(input_drafts)
        top = next(iter(input_drafts.found), StorageLocation("", ""))
        self.found.setdefault(
            "", InputFolder("", top, listed=self.listed)
        )  # whose list says that nothing else is there

    def in_order(self) -> list[InputFolder]:
        """Return the directories in the order of copying."""
        return sorted(self.found.values(), key=lambda folder: (folder.step, folder.name))

    def _at(self, place: StorageLocation) -> InputFolder:
        log_dir, below = self.naming.owner(place.child("x"))
        name = "/".join(filter(None, (log_dir, below))).rpartition("/")[0].strip("/")
        return self.found.setdefault(name, InputFolder(name, place, listed=self.listed))

    def _log_dir(self, place: StorageLocation, draft: Draft, tasks: dict[tuple[str, str], ReplicaTask]) -> None:
        name = self.naming.name(place)
        top = self._at(place)
        top.files |= draft.small | {file: size for file, (size, _) in draft.loose.items()}
        top.unused |= {text.name: (text.size, TEXT) for text in draft.texts}
        top.task = tasks.get((name, ""))
        top.log_dir = top.name
        for folder, files in draft.partitions.items():
            input_folder = self._at(place.child(folder))
            input_folder.files |= files
            input_folder.task, input_folder.log_dir = tasks.get((name, folder)), top.name
            says = kafka_names.partition_folder(folder)
            input_folder.topic, input_folder.aside = (says.topic, says.kind != "live") if says else (None, False)

    def _outside(self, input_drafts: Drafts) -> None:
        # Remote segments, settings, and files that no audit reads.
        for place, files in input_drafts.remote.items():
            says = kafka_names.remote_folder(place.path)
            folder = self._at(place)
            if says is not None and says.depth == 1:
                folder.files |= files
            else:
                folder.unused |= {file: (size, OF_PLUGIN) for file, size in files.items()}
        for where, size in input_drafts.configs:
            folder = self._at(where.parent)
            folder.files[_last(where)] = size
            folder.configs.add(_last(where))
        for where, size, reason in input_drafts.unused:
            self._at(where.parent).unused[_last(where)] = (size, reason)
        for where, error in input_drafts.errors:
            self._at(where.parent).errors.append(error._replace(file=_last(where)))


def _is_segment(name: str) -> bool:
    # Other programs, too, have files that end in .log.
    says = kafka_names.data_name(name)
    return says is not None and says.kind == "log" and not says.state


def _base_above(name: str) -> str:
    return name.partition(".")[0]


def _last(place: StorageLocation) -> str:
    return place.path.rpartition("/")[2]


# Segments below the log start that the broker has deleted and a copy retains for a time.
#
# Only of a live partition with the same topic id. Missing segments at or above the log start were truncated, cleaned or
# re-created: the copy has only the newest version of a log. The same holds for segments that were retained before.


def retained_segments(
    folder: InputFolder, before: Mapping[str, Listed], items: Sequence[Listed], keep_ms: int | None, now: int
) -> Iterator[Listed]:
    """Yield the segments of an earlier copy that the broker deleted by retention and that are retained.

    ``before``: its files by name; ``items``: the present files; ``keep_ms``: as for
    :class:`auditor.copying.run.OneFolder`; ``now``: ms.
    """
    present = {item.name: item for item in items if not _vanished(item)}
    start = min((offset for name in present if (offset := _segment_base(name)) >= 0), default=-1)
    if folder.task is None or folder.topic is None or folder.errors or start < 0 or not _same_topic(before, present):
        return
    for name, item in before.items():
        base = _segment_base(name)
        if name in present or item.taken is None or not 0 <= base < start or item.taken.chunks[-1][2] > start:
            continue
        since = now if item.gone is None else item.gone.since
        until = since + keep_ms if keep_ms is not None else (item.gone.until if item.gone is not None else now)
        if until > now:
            yield item._replace(gone=DeletionTimes(since, until))


def _vanished(item: Listed) -> bool:
    return item.refused is not None and item.refused[0] == "vanished"


def _segment_base(name: str) -> int:
    # -1 for files that are no segments.
    says = kafka_names.data_name(name)
    return says.offset if says is not None and says.kind == "log" and not says.state else -1


def _same_topic(before: Mapping[str, Listed], present: Mapping[str, Listed]) -> bool:
    was, now = (files.get(kafka_names.PARTITION_METADATA) for files in (before, present))
    return (was.content if was else None) == (now.content if now else None)
