"""What an inventory is made of: plain data about log directories, replicas of partitions and their files.

:func:`auditor.connectors.inventory.discover` fills it; it travels to Spark workers as it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from auditor.base.at_rest import RowsAtRest
from auditor.base.errors import DecodeError
from auditor.connectors.codec.small_files import MetaProperties, Offsets
from auditor.connectors.storage import Place

Row = TypeVar("Row")


def travels_light(cls: type[Row]) -> type[Row]:
    """Decorates a dataclass of which there is one for each partition: pickled as its values, in their order. What
    dataclasses with slots do by themselves looks up their fields each time, 10 us an object."""
    values = attrgetter(*(field.name for field in dataclasses.fields(cls)))  # type: ignore[arg-type]

    def reduced(row: Row) -> tuple[Any, ...]:
        return cls, values(row)

    cls.__reduce__ = reduced  # type: ignore[assignment,method-assign]
    return cls


class DataFile(NamedTuple):
    """A file to decode: path relative to its log directory, size in bytes, kind (as its extension or fixed name says:
    index, timeindex, txnindex, snapshot, checkpoint, ...), and the number in its name (-1: none).

    ``place``: the folder that the path is relative to where that is not the log directory, as of a file in remote
    storage.
    """

    name: str
    size: int
    kind: str
    offset: int
    place: Place | None = None


@travels_light
@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A ``.log`` file and the indexes beside it. ``base_offset`` is the number in its name, -1 for another name.

    ``place``: the folder that its names are relative to where that is not its log directory, as of a segment in remote
    storage.
    """

    name: str
    base_offset: int
    size: int
    index: DataFile | None = None
    timeindex: DataFile | None = None
    txnindex: DataFile | None = None
    place: Place | None = None


@travels_light
@dataclass(frozen=True, slots=True)
class Replica:
    """One replica of a partition: a folder of a log directory, or lone files (then topic and partition may be None).

    ``kind``: live, future, stray or deleted. ``segments`` ascend by base offset. ``others`` are indexes without their
    segment, and the snapshots and quorum state of ``__cluster_metadata``. ``folder`` is relative to the log directory.
    ``unread``: files of its first segments, and snapshots below, that are not read (:mod:`auditor.connectors.scoped`).
    """

    log_dir: str
    topic: str | None
    partition: int | None
    folder: str
    kind: str = "live"
    topic_id: str | None = None
    segments: tuple[SegmentFile, ...] = ()
    snapshots: tuple[DataFile, ...] = ()
    leader_epochs: DataFile | None = None
    partition_metadata: DataFile | None = None
    others: tuple[DataFile, ...] = ()
    unread: tuple[DataFile, ...] = ()

    @property
    def local_start(self) -> int:
        """Where the first segment in its own folder begins, read or not, -1 if there is none."""
        unread = (file.offset for file in self.unread if file.kind == "log" and file.place is None)
        return next(unread, next((segment.base_offset for segment in self.segments if segment.place is None), -1))

    @property
    def first_offset(self) -> int:
        """Where its first segment begins, read or not, -1 if there is none."""
        unread = (file.offset for file in self.unread if file.kind == "log")
        return next(unread, self.segments[0].base_offset if self.segments else -1)

    @property
    def size(self) -> int:
        """The bytes of all its files."""
        return sum(item.size for item in self.each())

    def files(self) -> list[DataFile]:
        """Every file of the replica, segments as kind ``log``."""
        return sorted(
            DataFile(item.name, item.size, "log", item.base_offset, item.place)
            if isinstance(item, SegmentFile)
            else item
            for item in self.each()
        )

    def each(self) -> Iterator[DataFile | SegmentFile]:
        """Every file of the replica as it stands here, in no order."""
        yield from self.snapshots
        yield from self.others
        for item in (self.leader_epochs, self.partition_metadata):
            if item is not None:
                yield item
        for segment in self.segments:
            yield segment
            for item in (segment.index, segment.timeindex, segment.txnindex):
                if item is not None:
                    yield item


class RemoteFiles(NamedTuple):
    """The files of one remote segment: ``start`` is its first offset. Files that carry no offset have -1.

    ``objects``: they are stored as objects that a manifest explains.
    """

    start: int
    segment_id: str
    files: tuple[DataFile, ...]
    objects: bool = False

    def file(self, kind: str) -> DataFile | None:
        """The file of a kind, as a name says it."""
        return next((file for file in self.files if file.kind == kind), None)


class RemoteFolder(NamedTuple):
    """What a folder of remote storage keeps of one partition. ``topic`` may have a prefix before it."""

    topic: str
    partition: int
    topic_id: str
    segments: tuple[RemoteFiles, ...]

    def is_of(self, replica: Replica) -> bool:
        """Whether it is of a replica's log, by topic id where that is known, else by name."""
        if self.partition != replica.partition or replica.topic is None:
            return False
        if replica.topic_id is None:
            return self.topic == replica.topic
        return self.topic_id == replica.topic_id and self.topic.endswith(replica.topic)


class TextFile(NamedTuple):
    """A text dump: path relative to its log directory, size in bytes, ``kind`` as auditor.connectors.text.lines
    says."""

    name: str
    size: int
    kind: str


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log directory, or a folder of text dumps, or a folder of lone files.

    ``name`` is the column ``log_dir``. ``broker_id_source``: meta.properties, folder name, or none.
    ``checkpoints``: kind -> (topic, partition) -> offset; ``whole_checkpoints``: the kinds whose file is there and was
    read without error, so that a partition that is not in it has none. ``small_files`` were read for what stands here.
    ``configs``: non-sensitive settings of its broker's server.properties, found beside the log directories;
    ``unknown_settings``: names of those whose value there cannot be known. ``copied``: it is a copy without payload;
    ``listed``: the hash of the list that says so;
    ``read_at``: from when to when (ms) its folders were read, by the clock of its broker, which ran then, and
    ``machine`` whose clock that is: so the copy says.
    Log directories with one ``join_key`` belong to one cluster. ``replicas`` are at rest where they are many.
    """

    name: str
    place: Place
    join_key: str
    cluster_id: str | None = None
    broker_id: int | None = None
    broker_id_source: str = "none"
    clean_shutdown: bool = False
    meta: MetaProperties | None = None
    checkpoints: dict[str, Offsets] = field(default_factory=dict)
    whole_checkpoints: frozenset[str] = frozenset()
    configs: dict[str, str] = field(default_factory=dict)
    unknown_settings: frozenset[str] = frozenset()
    replicas: Sequence[Replica] = ()
    aside: tuple[Replica, ...] = ()  # future, stray and deleted: their files are in Inventory.skipped
    texts: tuple[TextFile, ...] = ()
    small_files: tuple[DataFile, ...] = ()
    copied: bool = False
    listed: int = 0
    read_at: dict[str, tuple[int, int]] = field(default_factory=dict)
    machine: str = ""
    _counted: tuple[int, int] = field(init=False, repr=False, compare=False)  # files of its replicas, their bytes

    def __post_init__(self) -> None:
        count = size = 0
        for replica in self.replicas:
            for item in replica.each():
                count += 1
                size += item.size
        object.__setattr__(self, "_counted", (count, size))
        if not isinstance(self.replicas, RowsAtRest):  # there may be a million: 1.3 KB each as objects
            object.__setattr__(self, "replicas", RowsAtRest(self.replicas))

    def files(self) -> list[DataFile]:
        """Every file of it that is decoded or was read, text dumps as kind dump or console."""
        found = [item for replica in self.replicas for item in replica.files()]
        found += [DataFile(text.name, text.size, text.kind, -1) for text in self.texts]
        return sorted([*found, *self.small_files])

    @property
    def file_count(self) -> int:
        """How many these are."""
        return self._counted[0] + len(self.texts) + len(self.small_files)

    @property
    def size(self) -> int:
        """The bytes of all these files."""
        return self._counted[1] + sum(text.size for text in self.texts) + sum(file.size for file in self.small_files)


class Skipped(NamedTuple):
    """A file that is not decoded: its log directory ("" outside of one, then ``file`` is relative to the folder above
    all PATHs), size in bytes, and why.
    """

    log_dir: str
    file: str
    size: int
    reason: str


class Unreadable(NamedTuple):
    """A file or folder that could not be listed or read, or a small file that does not parse."""

    log_dir: str
    error: DecodeError


class BrokerSettings(NamedTuple):
    """What a server.properties says: its path relative to the folder above all PATHs, size in bytes, the broker it is
    of, and its settings that matter to logs (no sensitive one among them).

    ``unknown``: names of those that an audit goes by and whose value cannot be known; ``elsewhere``: of these, the ones
    for which it says where the value comes from.
    """

    file: str
    size: int
    broker_id: int | None
    configs: dict[str, str]
    unknown: frozenset[str] = frozenset()
    elsewhere: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Inventory:
    """All that PATHs hold. ``notes`` are sentences for people, such as how a broker id was found.

    ``remote``: the remote parts of tiered partitions; :mod:`auditor.connectors.tiered` puts them before the local ones.
    ``unread_bytes``: of files that nobody opens and of remote segments that cannot be read, which are among the errors.
    A segment that is compressed in remote storage counts as what it was on its broker.
    """

    log_dirs: tuple[LogDir, ...]
    settings: tuple[BrokerSettings, ...]
    skipped: tuple[Skipped, ...]
    errors: tuple[Unreadable, ...]
    notes: tuple[str, ...]
    remote: tuple[RemoteFolder, ...] = ()
    unread_bytes: int = 0

    @property
    def cluster_ids(self) -> dict[str, str | None]:
        """The id of each log directory's cluster, where its ``meta.properties`` shows one."""
        return {log_dir.name: log_dir.cluster_id for log_dir in self.log_dirs}

    @property
    def bytes_found(self) -> int:
        """The sizes of all files listed, each once: to decode, skipped, settings, or not readable."""
        decoded = sum(log_dir.size for log_dir in self.log_dirs)
        others = sum(item.size for item in self.skipped) + sum(item.size for item in self.settings)
        return decoded + others + self.unread_bytes
