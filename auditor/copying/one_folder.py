"""One folder of the input in the copy: what is as it was stays, of what grew the end is read, all else is made anew."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields

from auditor.base.errors import Limits, is_unread
from auditor.connectors.codec.blanking import KEPT, Blanks
from auditor.connectors.logdir import names
from auditor.connectors.logdir.copied_segments import GROUP_ROWS
from auditor.connectors.logdir.copy_lists import FolderList, Listed, Stat, Taken
from auditor.connectors.logdir.copy_view import ENTRY
from auditor.connectors.logdir.names import METADATA_TOPIC
from auditor.connectors.stores.storage import Place
from auditor.connectors.tables.internal_rows import TRANSACTION_STATE
from auditor.copying.deleted_segments import deleted
from auditor.copying.folders import Folder
from auditor.copying.small_entries import index_like, look, settings_file, small_file
from auditor.copying.taken_segments import SegmentsTaken
from auditor.copying.target import Target

NOT_TAKEN = ("deleted", "cleaned", "part")  # states of files that no broker opens again
RACY_NS = 2_000_000_000  # a file that changed so shortly before it was read may change again under the same times
REPLACED = "the broker replaced it, or its segment, while both were read"
MANY_FILES = 16  # of few batches each, after which they become one
_TOP = frozenset({names.META, names.CLEAN_SHUTDOWN, *names.CHECKPOINT_KINDS})
_WHOLE = frozenset({*names.INDEX_KINDS, "snapshot", names.LEADER_EPOCHS, names.PARTITION_METADATA, names.QUORUM_STATE})


@dataclass
class Done:
    """What a copy came to. ``batches`` and ``bytes_read`` are of segments; ``kept`` segments were as they were, and the
    broker has deleted the ``held`` ones. ``live``: a broker of this machine ran meanwhile. ``open``: folders with
    segments whose checksums are not all verified, ``unverified`` how many such segments are left at the end.
    ``moving``: folders whose segments the broker replaced each time that they were read. ``unended``: folders of logs
    in which a transaction is open, or nobody knows; ``beside``: those of coordinators' logs and of the metadata.
    ``emptied``: directories whose segments only the earlier copy has, for which nothing was copied."""

    folders: int = 0
    batches: int = 0
    bytes_seen: int = 0
    bytes_read: int = 0
    segments: int = 0
    kept: int = 0
    refused: int = 0
    held: int = 0
    live: bool = False
    open: set[str] = field(default_factory=set)
    moving: set[str] = field(default_factory=set)
    unended: set[str] = field(default_factory=set)
    beside: set[str] = field(default_factory=set)
    unverified: int = 0
    emptied: set[str] = field(default_factory=set)

    def add(self, more: Done) -> None:
        """Adds what more came to."""
        for each in fields(self):
            before, found = getattr(self, each.name), getattr(more, each.name)
            setattr(self, each.name, before | found if isinstance(before, set | bool) else before + found)


class OneFolder:
    """Takes one folder."""

    def __init__(
        self,
        target: Target,
        folder: Folder,
        limits: Limits,
        whole: Callable[..., bool] = lambda _size, **_: True,
        *,
        records: bool = False,
        keep_ms: int | None = None,
    ) -> None:
        """``whole``: whether so many bytes of a segment are to be read, or headers alone
        (:meth:`auditor.copying.checksums.Checksums.now`); ``records``: whether what records come to is to be taken, as
        it is anyway of a segment of which an earlier copy has it. ``keep_ms``: how long what the broker has deleted is
        held; None: what is held by now until its time, and nothing more."""
        self.keep_ms = keep_ms
        self.target, self.folder, self.limits, self.whole = target, folder, limits, whole
        self.records = records and folder.topic != METADATA_TOPIC  # of whose batches nobody asks that
        internal = folder.topic if folder.topic in KEPT else None
        self.segments = SegmentsTaken(target, folder.name, limits, Blanks(internal, limits) if internal else None)
        self.before = target.list_of(folder.name)
        self.old = {item.name: item for item in self.before.files} if self.before is not None else {}
        self.scattered = self._scattered()
        self.anew: set[str] = set()  # segments of which nothing was kept
        self.closed = folder.closed()
        self.seen: dict[str, Stat | None] = {}  # what told of each file right before it was read
        self.moved: set[str] = set()  # files that are others since
        self.fresh = False  # whether anything had to be read

    def take(self, done: Done) -> None:
        """Takes its files, then replaces its list at once. Errors: ``OSError`` of the target."""
        folder, segments = self.folder, self.segments
        items = [self._file(name, size) for name, size in sorted(folder.files.items())]
        held = {item.name: item for item in deleted(folder, self.old, items, self.keep_ms, time.time_ns() // 1_000_000)}
        for item in held.values():
            if item.taken is not None and item.taken.file in self.scattered:
                segments.carry(item.name, item.taken)
        found = segments.finish()
        items = [item for item in items if item.name not in held] + [*held.values()]
        items = [item._replace(taken=found[item.name]) if item.name in found else item for item in items]
        items = [self._index(item, found) for item in items]
        self.moved = folder.moved_on(self.seen) if self.fresh else set()
        items = [self._of_one_moment(item) for item in items]
        items += [Listed(name, size, unused=reason) for name, (size, reason) in sorted(folder.unused.items())]
        now = FolderList(tuple(items), tuple(folder.errors))
        now = now._replace(under_way=folder.name == folder.log_dir)
        if self.before is not None:  # until the new ones are known
            now = now._replace(readings=self.before.readings, machine=self.before.machine)
        self.target.put_list(folder.name, now, self.before)
        done.folders += 1
        done.bytes_seen += sum(folder.files.values())
        done.batches += segments.batches
        done.bytes_read += segments.read
        done.segments += len(found.keys() - held.keys())
        done.held += len(held)
        done.kept += segments.kept
        if folder.topic in (TRANSACTION_STATE, METADATA_TOPIC):
            done.beside.add(folder.name)
        elif found and not folder.aside and segments.unended != set():
            done.unended.add(folder.name)
        is_open = any(not taken.checked for name, taken in found.items() if name not in held)
        done.open |= {folder.name} if is_open else set()
        done.moving |= {folder.name} if self.moved else set()
        done.refused += sum(item.refused is not None and is_unread(*item.refused) for item in items)
        done.refused += sum(is_unread(error.reason, error.detail) for error in folder.errors)

    def _index(self, item: Listed, found: Mapping[str, Taken]) -> Listed:
        """An index by the batches of its segment; read again where these are no longer those that it was told by."""
        if item.kept is None or item.name.rpartition(".")[2] not in ENTRY:
            return item
        segment = f"{item.name.partition('.')[0]}.log"
        if item.like is not None and (segment in self.anew or segment not in found):
            says = item.name.rpartition(".")[2]
            self._seen(item.name)
            again = small_file(
                self.target,
                self.folder.name,
                self.folder.place,
                item.name,
                self.folder.files[item.name],
                self.limits,
                says,
            )
            item = again._replace(stat=None)
        if segment not in found:
            return item
        return index_like(self.target, self.folder.name, item, Listed(segment, 0, taken=found[segment]))

    def _of_one_moment(self, item: Listed) -> Listed:
        """A file, but no index where another segment has its name since, or it has another one's itself: they may be of
        before and of after."""
        base, _, kind = item.name.partition(".")
        if kind in names.INDEX_KINDS and not self.moved.isdisjoint({item.name, f"{base}.log"}):
            return Listed(item.name, item.size, refused=("vanished", REPLACED))
        return item

    def _scattered(self) -> frozenset[str]:
        """Files of the earlier copy that hold few batches each, where they are many."""
        rows = Counter[str]()
        for item in self.old.values():
            if item.taken is not None:
                rows[item.taken.file] += item.taken.rows
        few = [file for file, count in rows.items() if count < GROUP_ROWS]
        return frozenset(few) if len(few) > MANY_FILES else frozenset()

    def _file(self, name: str, size: int) -> Listed:
        """One file, a segment without its batches, which come when all are read."""
        place, limits, at = self.folder.place, self.limits, self.folder.name
        if name in self.folder.configs:
            return settings_file(self.target, at, place, name, size)
        says = names.data_name(name) or names.remote_name(name)
        if says is not None and says.state in NOT_TAKEN:
            return Listed(name, size)
        kind = says.kind if says is not None else _kind_by_ending(self.folder, name)
        if self.folder.aside and kind != names.PARTITION_METADATA:
            return Listed(name, size)
        stat = settled(self._seen(name))
        size = self.folder.files[name]
        if name in _TOP or kind in _WHOLE:
            if (old := self._as_it_was(name, size, stat)) is not None:
                return old
            self.fresh = True
            return small_file(self.target, at, place, name, size, limits, kind or name)._replace(stat=stat)
        return self._segment(name, size, stat) if kind in ("log", "checkpoint") else Listed(name, size)

    def _seen(self, name: str) -> Stat | None:
        """What tells of a file that is about to be read. Of a closed segment it has the size that it has by now: the
        cleaner may have replaced it since it was listed."""
        found = look(self.folder.place, name)
        self.seen[name] = found[0] if found is not None else None
        if found is not None and name in self.closed:
            self.folder.files[name] = found[1]
        return self.seen[name]

    def _as_it_was(self, name: str, size: int, stat: Stat | None) -> Listed | None:
        """What an earlier copy has of a file that did not change since."""
        old = self.old.get(name)
        if old is None or stat is None or not stat.changed_ns or (old.size, old.stat) != (size, stat):
            return None
        if old.refused is not None:
            return None
        taken = old.taken
        if taken is not None and (taken.damaged or not self.target.has(self.folder.name, taken.file)):
            return None
        return old if old.kept is None or self.target.has(self.folder.name, old.kept) else None

    def _segment(self, name: str, size: int, stat: Stat | None) -> Listed:
        old, item = self.old.get(name), Listed(name, size, stat)
        same = self._as_it_was(name, size, stat)
        had = old is not None and old.taken is not None and old.taken.records
        if self.records and not had:
            same = old = None
        if same is not None and same.taken is not None and self._stays(name, same.taken):
            return item
        self.fresh = True
        at, path = place_of(self.folder, name)
        in_place = old is not None and old.stat is not None and stat is not None and old.stat.inode == stat.inode
        task = self.folder.task
        if in_place and old is not None:
            grown = self.whole(max(0, size - old.size), grown=True)
            if self.segments.go_on(at, path, size, task, old, whole=grown):
                return item
        self.anew.add(name)
        why = self.segments.take(at, path, size, task, whole=self.whole(size), records=self.records or had)
        return item if why is None else item._replace(refused=(why.reason, why.detail))

    def _stays(self, name: str, taken: Taken) -> bool:
        if taken.file in self.scattered:
            return self.segments.carry(name, taken)
        self.segments.keep(name, taken)
        return True


def settled(stat: Stat | None) -> Stat | None:
    """What tells later that a file is as it was. One that changed so shortly ago that this would not tell has no time
    of change."""
    if stat is not None and max(stat.modified_ns, stat.changed_ns) > time.time_ns() - RACY_NS:
        return stat._replace(changed_ns=0)
    return stat


def _kind_by_ending(folder: Folder, name: str) -> str:
    """Of a file that is in no partition's folder, and may have any name."""
    return name.rpartition(".")[2] if folder.topic is None else ""


def place_of(folder: Folder, name: str) -> tuple[Place, str]:
    """A segment by the name that an audit has for it: errors carry it."""
    if folder.task is not None:
        inside = folder.task.replica.folder
        return folder.task.place, f"{inside}/{name}" if inside else name
    return folder.place, name
