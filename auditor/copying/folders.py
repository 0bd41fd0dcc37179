"""What is to be copied: every folder below the PATHs with its files, in the order in which later ones know more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from auditor.base.errors import DecodeError, Limits
from auditor.connectors.logdir import inventory as inventories
from auditor.connectors.logdir import names
from auditor.connectors.logdir.copy_lists import Stat
from auditor.connectors.logdir.files import Naming
from auditor.connectors.logdir.inventory import Draft, Drafts, drafts, folder_replica
from auditor.connectors.logdir.names import METADATA_TOPIC
from auditor.connectors.stores import storage
from auditor.connectors.stores.storage import Place
from auditor.connectors.tables.internal_rows import CONSUMER_OFFSETS, TRANSACTION_STATE
from auditor.copying.readings import now_ms
from auditor.copying.small_entries import look
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.plan import replica_tasks
from auditor.replay.reading.task import ReplicaTask

TEXT = "a text dump: not taken into the copy, give it beside it"
OF_PLUGIN = "an object of a remote segment: not taken into the copy, give --remote beside it"
LISTINGS = 5  # of a folder whose files are renamed meanwhile
# Files of segments, and as the cleaner names its own when they are whole.
OPENED = (*(f".{kind}" for kind in names.SEGMENT_KINDS), ".swap")
GONE = (".deleted", ".cleaned")  # whose names alone count
# What is copied one after the other: each knows what those before it need (docs/copying.md).
STEPS = (CONSUMER_OFFSETS, "", TRANSACTION_STATE, METADATA_TOPIC)


@dataclass
class Folder:
    """A folder of the input: ``name`` relative to the target, its files (name -> size), those that nobody opens
    (size and reason), and what could not be listed. ``listed``: when (ms) that was, or before. ``task`` reads its
    replica, None where it is none that is live; ``topic``: of a partition, whatever becomes of it."""

    name: str
    place: Place
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
        """Lists a live partition's folder once more: what is read next is as it is by now, not as when all was listed.
        Where it cannot be listed any more, it stays as it was found, and so does one of a copy.

        What is renamed between its name and its size is listed again, a few times; after that it counts as vanished."""
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
        at, replica = self.task.place, self.task.replica
        if any(names.data_name(name) for name in files):
            built = folder_replica(at, replica.log_dir, replica.folder, files)
            self.task = replace(self.task, replica=built.replica)

    def closed(self) -> set[str]:
        """The files of segments behind which there is another one: they are replaced, or deleted, and nothing else."""
        last = self._last()
        return {name for name in self.files if self.task is not None and name.endswith(OPENED) and _base(name) < last}

    def _last(self) -> str:
        """How the files of the last segment begin, which is written to."""
        return max((_base(name) for name in self.files if _is_segment(name)), default="")

    def moved_on(self, seen: Mapping[str, Stat | None]) -> set[str]:
        """The files of segments that are no longer those that were listed and ``seen`` right before they were read, and
        those that nobody listed: the cleaner replaced them, made one of several, or they were deleted. Of the last
        segment, which is written to, that is where another file has its name; what is behind it came later."""
        if self.task is None or self.place.uri or self.place.view is not None:
            return set()
        there, last = {entry.name for entry in storage.listing(self.place, deep=False).files}, self._last()
        moved = set()
        for name in (name for name in self.files.keys() | there if name.endswith(OPENED) and _base(name) <= last):
            was, now = seen.get(name), look(self.place, name)
            other = now is None or was is None or now[0].inode != was.inode
            if other or (_base(name) < last and now != (was, self.files[name])):
                moved.add(name)
        return moved

    @property
    def has_segments(self) -> bool:
        """Whether a ``.log`` file is in it."""
        return any(_is_segment(name) for name in self.files)

    @property
    def step(self) -> int:
        """When it is its turn: the files at the top come first."""
        if self.topic is None:
            return -1
        return STEPS.index(self.topic) if self.topic in STEPS else STEPS.index("")


class Folders:
    """The folders below PATHs."""

    def __init__(self, paths: Sequence[str], limits: Limits) -> None:
        """Lists the PATHs. Errors: :class:`auditor.base.errors.AuditInputError` for a wrong one."""
        self.listed, found = now_ms(), drafts(paths, limits)
        self.inventory = inventories.inventory_of(found, paths, limits)
        self.naming: Naming = inventories.naming_of(found)
        self.found: dict[str, Folder] = {}
        options = AuditOptions(tuple(paths), "", limits=limits)
        tasks = {
            (t.replica.log_dir, t.replica.folder): t
            for t in replica_tasks(self.inventory, {}, options)
            if isinstance(t, ReplicaTask)
        }
        for place, draft in found.found.items():
            self._log_dir(place, draft, tasks)
        self._outside(found)
        top = next(iter(found.found), Place("", ""))
        self.found.setdefault("", Folder("", top, listed=self.listed))  # whose list says that nothing else is there

    def in_order(self) -> list[Folder]:
        """The folders in the order of copying."""
        return sorted(self.found.values(), key=lambda folder: (folder.step, folder.name))

    def _at(self, place: Place) -> Folder:
        """The folder at a place."""
        log_dir, below = self.naming.owner(place.child("x"))
        name = "/".join(filter(None, (log_dir, below))).rpartition("/")[0].strip("/")
        return self.found.setdefault(name, Folder(name, place, listed=self.listed))

    def _log_dir(self, place: Place, draft: Draft, tasks: dict[tuple[str, str], ReplicaTask]) -> None:
        name = self.naming.name(place)
        top = self._at(place)
        top.files |= draft.small | {file: size for file, (size, _) in draft.loose.items()}
        top.unused |= {text.name: (text.size, TEXT) for text in draft.texts}
        top.task = tasks.get((name, ""))
        top.log_dir = top.name
        for folder, files in draft.partitions.items():
            at = self._at(place.child(folder))
            at.files |= files
            at.task, at.log_dir = tasks.get((name, folder)), top.name
            says = names.partition_folder(folder)
            at.topic, at.aside = (says.topic, says.kind != "live") if says else (None, False)

    def _outside(self, found: Drafts) -> None:
        """Remote segments, settings, and what nobody reads."""
        for place, files in found.remote.items():
            says = names.remote_folder(place.path)
            at = self._at(place)
            if says is not None and says.depth == 1:
                at.files |= files
            else:
                at.unused |= {file: (size, OF_PLUGIN) for file, size in files.items()}
        for where, size in found.configs:
            at = self._at(where.parent)
            at.files[_last(where)] = size
            at.configs.add(_last(where))
        for where, size, reason in found.unused:
            self._at(where.parent).unused[_last(where)] = (size, reason)
        for where, error in found.errors:
            self._at(where.parent).errors.append(error._replace(file=_last(where)))


def _is_segment(name: str) -> bool:
    """Whether a file is one by its name, and not somebody's that ends in ``.log``, too."""
    says = names.data_name(name)
    return says is not None and says.kind == "log" and not says.state


def _base(name: str) -> str:
    """What the files of one segment have in common."""
    return name.partition(".")[0]


def _last(place: Place) -> str:
    return place.path.rpartition("/")[2]
