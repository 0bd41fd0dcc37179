"""Log directories, replicas and their files: names, identity, and which files a broker keeps at startup."""

from __future__ import annotations

import dataclasses
import itertools
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from auditor.base.at_rest import RowsAtRest
from auditor.base.errors import DEFAULT_LIMITS, DecodeError, Limits, StartFile, bounded, parse_int
from auditor.base.words import few
from auditor.connectors import kafka_names
from auditor.connectors.codec.small_files import (
    OF_BROKERS,
    MetaProperties,
    Offsets,
    decode_leader_epochs,
    decode_meta_properties,
    decode_offset_checkpoint,
    decode_properties,
    may_show,
    sort_out,
)
from auditor.connectors.kafka_names import SEGMENT_KINDS, DataName
from auditor.connectors.stores import storage
from auditor.connectors.stores.storage import StorageLocation, read_file

# The parts of an inventory: plain data, which :func:`auditor.connectors.logdir.inventory.discover` fills and which is
# sent to Spark workers.


Row = TypeVar("Row")


def travels_light(cls: type[Row]) -> type[Row]:
    """Decorate a dataclass with one instance per partition: pickled as its values, in order.

    The default of dataclasses with slots looks up their fields each time, 10 us per object.
    """
    values = attrgetter(*(field.name for field in dataclasses.fields(cls)))  # type: ignore[arg-type]

    def reduced(row: Row) -> tuple[Any, ...]:
        return cls, values(row)

    cls.__reduce__ = reduced  # type: ignore[assignment,method-assign]
    return cls


class DataFile(NamedTuple):
    """A file to decode: path relative to its log directory, size in bytes, kind (its extension or fixed name: index,
    timeindex, txnindex, snapshot, checkpoint, ...), and the number in its name (-1: none).

    ``place``: the directory of the path if that is not the log directory, as for a file in remote storage.
    """

    name: str
    size: int
    kind: str
    offset: int
    place: StorageLocation | None = None


@travels_light
@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A ``.log`` file and its indexes. ``base_offset`` is the number in its name, -1 for another name.

    ``place``: the directory of its names if that is not its log directory, as for a segment in remote storage.
    """

    name: str
    base_offset: int
    size: int
    index: DataFile | None = None
    timeindex: DataFile | None = None
    txnindex: DataFile | None = None
    place: StorageLocation | None = None


@travels_light
@dataclass(frozen=True, slots=True)
class Replica:
    """One replica of a partition: a directory in a log directory, or lone files (topic and partition may then be None).

    ``kind``: live, future, stray or deleted. ``segments`` ascend by base offset. ``others`` are indexes without a
    segment, and the snapshots and quorum state of ``__cluster_metadata``. ``folder`` is relative to the log directory.
    ``unread``: files of its first segments, and snapshots below, that are not read
    (:mod:`auditor.connectors.tables.input_splits`).
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
        """The start of the first segment in its own directory, read or not, -1 for none."""
        unread = (file.offset for file in self.unread if file.kind == "log" and file.place is None)
        own = next((segment.base_offset for segment in self.segments if segment.place is None), -1)
        return int(bounded(next(unread, own)))

    @property
    def first_offset(self) -> int:
        """The start of its first segment, read or not, -1 for none."""
        unread = (file.offset for file in self.unread if file.kind == "log")
        return int(bounded(next(unread, self.segments[0].base_offset if self.segments else -1)))

    @property
    def orphans(self) -> list[DataFile]:
        """Its indexes without their segment. Source: LogLoader.loadSegmentFiles, which deletes them at a start."""
        return [file for file in self.others if file.kind in kafka_names.INDEX_KINDS]

    @property
    def size(self) -> int:
        """The bytes of all its files."""
        return sum(item.size for item in self.members())

    def files(self) -> list[DataFile]:
        """Every file of the replica, segments as kind ``log``."""
        return sorted(
            DataFile(item.name, item.size, "log", item.base_offset, item.place)
            if isinstance(item, SegmentFile)
            else item
            for item in self.members()
        )

    def members(self) -> Iterator[DataFile | SegmentFile]:
        """Every file of the replica, unordered, segments as such."""
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
    """The files of one remote segment: ``start`` is its first offset. Files without an offset have -1.

    ``objects``: they are stored as objects that a manifest describes.
    """

    start: int
    segment_id: str
    files: tuple[DataFile, ...]
    objects: bool = False

    def file(self, kind: str) -> DataFile | None:
        """The file of a kind."""
        return next((file for file in self.files if file.kind == kind), None)


class RemoteFolder(NamedTuple):
    """The remote segments of one partition in a directory. ``topic`` may have a prefix."""

    topic: str
    partition: int
    topic_id: str
    segments: tuple[RemoteFiles, ...]

    def is_of(self, replica: Replica) -> bool:
        """Whether it is of a replica's log, by topic id if that is known, else by name."""
        if self.partition != replica.partition or replica.topic is None:
            return False
        if replica.topic_id is None:
            return self.topic == replica.topic
        return self.topic_id == replica.topic_id and self.topic.endswith(replica.topic)


class TextFile(NamedTuple):
    """A text dump: path relative to its log directory, size in bytes, kind of :mod:`auditor.connectors.text.lines`."""

    name: str
    size: int
    kind: str


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log directory, or a directory of text dumps, or a directory of lone files.

    ``name`` is the column ``log_dir``. ``broker_id_source``: meta.properties, folder name, or none. ``checkpoints``:
    kind -> (topic, partition) -> offset; ``whole_checkpoints``: the kinds whose file was read without error, so that
    partitions not listed in it have none. ``small_files`` were read for these fields. ``configs``: non-sensitive
    settings of its broker's server.properties, near the log directories; ``unknown_settings``: names of those whose
    value is defined elsewhere. ``copied``: it is a copy without payload; ``listed``: the hash of its list; ``read_at``:
    from when to when (ms) its directories were copied, by the clock of its broker, which was running, and ``machine``
    the id of that clock's machine. ``start_files``: what a start meets besides segments, leader epochs and
    snapshots; not of copies without payload. Log directories with one ``join_key`` belong to one cluster. ``replicas``
    are compressed.
    """

    name: str
    place: StorageLocation
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
    start_files: tuple[StartFile, ...] = ()
    _counted: tuple[int, int] = field(init=False, repr=False, compare=False)  # files of its replicas, their bytes

    def __post_init__(self) -> None:
        count = size = 0
        for replica in self.replicas:
            for item in replica.members():
                count += 1
                size += item.size
        object.__setattr__(self, "_counted", (count, size))
        if not isinstance(self.replicas, RowsAtRest):  # there may be a million: 1.3 KB each as objects
            object.__setattr__(self, "replicas", RowsAtRest(self.replicas))

    def files(self) -> list[DataFile]:
        """Every file that is decoded or was read, text dumps as kind dump or console."""
        files = [item for replica in self.replicas for item in replica.files()]
        files += [DataFile(text.name, text.size, text.kind, -1) for text in self.texts]
        return sorted([*files, *self.small_files])

    @property
    def file_count(self) -> int:
        """The number of these files."""
        return self._counted[0] + len(self.texts) + len(self.small_files)

    @property
    def size(self) -> int:
        """The bytes of all these files."""
        return self._counted[1] + sum(text.size for text in self.texts) + sum(file.size for file in self.small_files)


class Skipped(NamedTuple):
    """A file that is not decoded: its log directory ("" outside of one, then ``file`` is relative to the directory
    above all PATHs), size in bytes, and why."""

    log_dir: str
    file: str
    size: int
    reason: str


class Unreadable(NamedTuple):
    """A file or directory that could not be listed or read, or a small file that does not parse."""

    log_dir: str
    error: DecodeError


class BrokerSettings(NamedTuple):
    """A parsed server.properties: path relative to the directory above all PATHs, size in bytes, broker id, and its
    non-sensitive settings about logs.

    ``unknown``: names of audited settings with an unknown value; ``elsewhere``: those of them that refer to another
    source.
    """

    file: str
    size: int
    broker_id: int | None
    configs: dict[str, str]
    unknown: frozenset[str] = frozenset()
    elsewhere: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Inventory:
    """Everything in the PATHs. ``notes`` are sentences for people, such as where a broker id is from.

    ``remote``: the remote parts of tiered partitions; :mod:`auditor.connectors.logdir.tiered` puts them before the
    local ones. ``unread_bytes``: of unopened files and of unreadable remote segments, which are among the errors. A
    segment that is compressed in remote storage counts with its size on the broker.
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
        """The cluster id of each log directory, from its ``meta.properties``."""
        return {log_dir.name: log_dir.cluster_id for log_dir in self.log_dirs}

    @property
    def bytes_found(self) -> int:
        """The sizes of all files listed, each once: decoded, skipped, settings, or unreadable."""
        decoded = sum(log_dir.size for log_dir in self.log_dirs)
        others = sum(item.size for item in self.skipped) + sum(item.size for item in self.settings)
        return decoded + others + self.unread_bytes


# Names of log directories and files that do not change when everything is copied elsewhere.


def common_folder(places: Iterable[StorageLocation]) -> StorageLocation | None:
    """The deepest directory that contains all places or is one of them; None for several file systems."""
    folders = list(places)
    if len({place.uri for place in folders}) != 1:
        return None
    try:
        return folders[0]._replace(path=posixpath.commonpath([place.path or "." for place in folders]))
    except ValueError:
        return None


def is_above(folder: StorageLocation, place: StorageLocation) -> bool:
    """Whether ``folder`` is a directory above ``place``, not the place itself."""
    head = folder.path.rstrip("/") + "/"
    return folder.uri == place.uri and place.path.startswith(head) and place.path != head


def relative(place: StorageLocation, base: StorageLocation | None) -> str:
    """The path of a place below ``base``, or all of it if ``base`` is not above it."""
    if base is None or not is_above(base, place):
        return place.shown
    return place.path[len(base.path.rstrip("/")) + 1 :]


class Naming:
    """Names of places in one run: relative to the deepest directory above all PATHs.

    A PATH above its log directories counts as such a directory; for a PATH that is one (or is in one), the directory
    above the log directory does, so that a log directory always has a name.
    """

    def __init__(self, log_dirs: Mapping[StorageLocation, Iterable[StorageLocation]]) -> None:
        """``log_dirs``: each log directory with the PATHs that contain it."""
        above = [
            given if is_above(given, place) else place.parent for place, paths in log_dirs.items() for given in paths
        ]
        self._base = common_folder(above)
        self._names = {place: relative(place, self._base) for place in log_dirs}

    def name(self, log_dir: StorageLocation) -> str:
        """The column ``log_dir`` of a log directory."""
        return self._names[log_dir]

    def owner(self, place: StorageLocation) -> tuple[str, str]:
        """The log directory of a file and its path there; "" and a path below the common directory if it is in none."""
        folder = place.parent
        while folder not in self._names and folder.path not in ("", "/"):
            folder = folder.parent
        if folder in self._names:
            return self._names[folder], relative(place, folder)
        return "", relative(place, self._base)


# Cluster, broker, checkpoints and settings of a log directory.


JUDGED = "; checks that need it use Kafka's default, or are skipped"


class Identity(NamedTuple):
    """Content of the small files of a log directory. ``note``: the source of the broker id, if not its
    ``meta.properties``."""

    meta: MetaProperties | None
    broker_id: int | None
    source: str
    checkpoints: dict[str, Offsets]
    whole_checkpoints: frozenset[str]
    errors: list[DecodeError]
    note: str


def identify(place: StorageLocation, log_dir: str, small: dict[str, int], limits: Limits) -> Identity:
    """Read ``meta.properties`` and the offset checkpoints of a log directory; ``small``: name -> size in bytes."""
    errors: list[DecodeError] = []
    meta = None
    checkpoints: dict[str, Offsets] = {}
    whole = set()
    for name in sorted(small.keys() - {kafka_names.CLEAN_SHUTDOWN}):
        data = storage.read_file(place, name, limit=limits.small_file(name))
        if isinstance(data, DecodeError):
            errors.append(data)
        elif name == kafka_names.META:
            meta, wrong = decode_meta_properties(data, name)
            errors += wrong
        else:
            offsets, wrong = decode_offset_checkpoint(data, name)
            checkpoints[kafka_names.CHECKPOINT_KINDS[name]] = Offsets(offsets)
            errors += wrong
            if not wrong:
                whole.add(kafka_names.CHECKPOINT_KINDS[name])
    if meta and meta.broker_id is not None:
        return Identity(meta, meta.broker_id, kafka_names.META, checkpoints, frozenset(whole), errors, "")
    digits = kafka_names.trailing_digits(place.name)
    source, detail = ("none", "no broker id: not in meta.properties, nor in the directory name")
    if digits is not None:
        source, detail = (
            "folder name",
            f"no meta.properties; using broker id {digits} from the directory name",
        )
    return Identity(meta, digits, source, checkpoints, frozenset(whole), errors, f"{log_dir}: {detail}")


def read_settings(where: StorageLocation, file: str, size: int) -> tuple[BrokerSettings, list[DecodeError]]:
    """The non-sensitive settings about logs in a ``server.properties``.

    Errors: an unreadable file, ``bad_setting`` for lines that do not parse, since any setting may be in them, and for
    each audited setting with an invalid value.
    """
    data = storage.read_file(where, limit=DEFAULT_LIMITS.max_properties_bytes)
    if isinstance(data, DecodeError):
        return BrokerSettings(file, size, None, {}, frozenset(OF_BROKERS)), [data._replace(file=file)]
    values, wrong = decode_properties(data, file)
    settings = sort_out({key: value for key, value in sorted(values.items()) if may_show(key)}, OF_BROKERS)
    errors = [error._replace(reason="bad_setting") for error in wrong]
    for key in sorted(settings.refused):
        errors.append(DecodeError(file, 0, size, "bad_setting", f"{key} has an invalid value{JUDGED}"))
    unknown = settings.refused | settings.elsewhere | frozenset(set(OF_BROKERS) - set(values) if wrong else ())
    broker_id = parse_int(values.get("node.id", values.get("broker.id", "")).strip(), 32)
    return BrokerSettings(file, size, broker_id, settings.known, unknown, settings.elsewhere), errors


def configure(log_dirs: Iterable[LogDir], settings: Iterable[tuple[StorageLocation, BrokerSettings]]) -> list[LogDir]:
    """Give each log directory the settings of its broker from the nearest file above it."""
    nearest_last = sorted(settings, key=lambda item: (item[0].path.count("/"), item[1].file))
    result = []
    for log_dir in log_dirs:
        for where, values in nearest_last:
            if (
                values.broker_id is not None
                and values.broker_id == log_dir.broker_id
                and is_above(where.parent, log_dir.place)
            ):
                log_dir = replace(log_dir, configs=values.configs, unknown_settings=values.unknown)
        result.append(log_dir)
    return result


def from_elsewhere(settings: BrokerSettings) -> str:
    """The note that some settings refer to a source outside their file."""
    names = ", ".join(sorted(settings.elsewhere))
    return f"{settings.file} takes {names} from a source that is missing from the input{JUDGED}"


def in_two_places(log_dirs: Iterable[LogDir]) -> list[str]:
    """Notes on live partitions in two log directories of one broker: Kafka refuses to start then.

    Not of directories that may be two copies of one: of one directory.id, or, where that is unknown, with most of their
    partitions in common.
    """
    of_brokers: dict[tuple[str, int], list[LogDir]] = {}
    for log_dir in log_dirs:
        if log_dir.broker_id is not None:
            of_brokers.setdefault((log_dir.join_key, log_dir.broker_id), []).append(log_dir)
    notes = []
    for (_, broker_id), some in of_brokers.items():
        live = {d.name: {(c.topic, c.partition) for c in d.replicas} for d in some if len(some) > 1}
        for one, other in itertools.combinations(some if live else (), 2):
            ids = [None if d.meta is None else d.meta.directory_id for d in (one, other)]
            shared = live[one.name] & live[other.name]
            most = 2 * len(shared) > max(len(live[one.name]), len(live[other.name]))
            if (None not in ids and ids[0] == ids[1]) or (None in ids and most):
                continue
            where = f"{one.name} and {other.name} of broker {broker_id}"
            notes += [f"{topic}-{n} is live in {where}" for topic, n in sorted(shared, key=str) if topic is not None]
    return notes


def parted(inventory: Inventory, apart: Mapping[str, Sequence[str]]) -> Inventory:
    """Return the inventory with a join key for each of several clusters of one id; a note says so."""
    if not apart:
        return inventory
    key_of = {name: key for key, log_dirs in apart.items() for name in log_dirs}
    names = " and ".join(some[0] + f" (and {len(some) - 1} more)" * (len(some) > 1) for some in apart.values())
    ids = sorted({d.cluster_id for d in inventory.log_dirs if d.name in key_of and d.cluster_id})
    note = (
        f"{names} claim to be one node of cluster {few(ids)}, and cannot be: their metadata logs have no topic in "
        f"common. They are audited apart, as {len(apart)} clusters"
    )
    log_dirs = tuple(replace(d, join_key=key_of.get(d.name, d.join_key)) for d in inventory.log_dirs)
    of_one = {*in_two_places(inventory.log_dirs)} - {*in_two_places(log_dirs)}
    notes = (note, *(other for other in inventory.notes if other not in of_one))
    return replace(inventory, log_dirs=log_dirs, notes=notes)


def small_files(small: dict[str, int]) -> tuple[DataFile, ...]:
    """The small files of a log directory as data files, by name."""
    return tuple(
        DataFile(name, size, kafka_names.CHECKPOINT_KINDS.get(name, name), -1) for name, size in sorted(small.items())
    )


# Which files of a partition directory a starting broker keeps, and why it drops the others.
#
# A broker that stopped during a compaction or a deletion leaves ``.cleaned``, ``.swap`` and ``.deleted`` files. Reading
# all of them would return data twice, so the rules of start-up are applied.
# Source: kafka.log.LogLoader.removeTempFilesAndCollectSwapFiles and completeSwapOperations.


DELETED = "deleted, to be removed by the broker"
CLEANED = "unfinished compaction output: removed at startup"
SWAP_DROPPED = "replacement from an unfinished compaction: removed at startup"
REPLACED = "replaced by a compacted segment: removed at startup"
UNFINISHED = "unfinished snapshot"
DROPPED = {"deleted": DELETED, "cleaned": CLEANED, "part": UNFINISHED}


class FoundFile(NamedTuple):
    """A file of a partition directory: path relative to its log directory, size in bytes, and its parsed name."""

    name: str
    size: int
    says: DataName


class CountedFiles(NamedTuple):
    """The files that count, and the others each with a reason."""

    kept: list[FoundFile]
    dropped: list[tuple[FoundFile, str]]


def keep(files: Iterable[FoundFile], end_offset: Callable[[FoundFile], int]) -> CountedFiles:
    """Apply the start-up rules. ``end_offset`` returns the offset after the last record of a ``.log.swap`` file.

    Cost: linear; ``end_offset`` is called once per swapped segment, so in sound directories never.
    """
    chosen = list(files)
    cleaned = [item.says.offset for item in chosen if item.says.state == "cleaned"]
    first_cleaned = min(cleaned, default=1 << 63)
    swaps = [item for item in chosen if item.says.state == "swap" and item.says.offset < first_cleaned]
    logs = [item for item in swaps if item.says.kind == "log"]
    first = min((item.says.offset for item in logs), default=0)
    end = max((end_offset(item) for item in logs), default=0)
    result = CountedFiles([], [])
    for item in chosen:
        reason = _reason(item, first_cleaned, first, end)
        if reason:
            result.dropped.append((item, reason))
        else:
            result.kept.append(item)
    return result


def _reason(item: FoundFile, first_cleaned: int, first: int, end: int) -> str:
    # Empty if a broker keeps the file. Swaps replace the offsets from first to end.
    says = item.says
    if says.state == "swap":
        return SWAP_DROPPED if says.offset >= first_cleaned else ""
    if not says.state and says.kind in SEGMENT_KINDS and first <= says.offset < end:
        return REPLACED
    return DROPPED.get(says.state, "")


@dataclass(frozen=True, slots=True)
class EpochStarts:
    """Reads the leader-epoch checkpoint of a replica when called. ``limit``: bytes."""

    place: StorageLocation
    file: DataFile | None
    limit: int

    def __call__(self) -> list[tuple[int, int]]:
        """Epochs with their first offsets; none if they do not rise, or cannot be read."""
        data = b"" if self.file is None else read_file(self.file.place or self.place, self.file.name, limit=self.limit)
        if not isinstance(data, bytes) or not data:
            return []
        entries, errors = decode_leader_epochs(data)
        rising = all(a.epoch < b.epoch and a.start_offset <= b.start_offset for a, b in itertools.pairwise(entries))
        return [(e.epoch, e.start_offset) for e in entries] if rising and not errors else []
