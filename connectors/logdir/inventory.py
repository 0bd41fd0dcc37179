"""From PATHs to log directories and replicas, with every file accounted for."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import NamedTuple

from auditor.base import user_input
from auditor.base.errors import (
    DEFAULT_LIMITS,
    LAST_MS,
    OTHER_VERSION,
    AuditInputError,
    DecodeError,
    Limits,
    StartFile,
    is_damage,
)
from auditor.base.user_input import EVERYTHING, Scope
from auditor.base.words import plural
from auditor.connectors import kafka_names
from auditor.connectors.codec.segment import end_offset
from auditor.connectors.codec.small_files import Offsets, decode_partition_metadata, decode_quorum_state
from auditor.connectors.kafka_names import CLEAN_SHUTDOWN, DataName
from auditor.connectors.logdir import files as logdir_files
from auditor.connectors.logdir.copy_view import HELD, CopyView, copy_list, is_whole, resolve_copies
from auditor.connectors.logdir.files import (
    DataFile,
    FoundFile,
    Inventory,
    LogDir,
    Naming,
    RemoteFiles,
    RemoteFolder,
    Replica,
    SegmentFile,
    Skipped,
    TextFile,
    Unreadable,
)
from auditor.connectors.stores import remote_files, retries, storage
from auditor.connectors.stores.remote_files import Coming
from auditor.connectors.stores.retries import side_by_side
from auditor.connectors.stores.storage import ListedFile, StorageLocation, Unused
from auditor.connectors.text.lines import HEAD_BYTES, sniff

# From PATHs to drafts of log directories.
#
# A directory is a partition's if its name is one and it has files that only such directories have (so ``healthy-41``
# above a broker's directory is none). A log directory is one above partition directories, or with the small files of a
# broker. Directories of text dumps and of lone files count as log directories too.


REMOTE_CACHE = "index cache of tiered storage"
UNKNOWN = "not a Kafka file or known text dump"
LINKED_DATA = "symbolic link (not followed): give its target directory as a PATH"
LINK_WITHIN = "symbolic link to a directory that is scanned anyway"
TEXT_AMONG_LOGS = "text dump inside a log directory: move it to its own directory"
PACKED = "archive: unpack it and give the resulting directory as a PATH"
PACKED_FILE = "archive: unpack it in place"
_PACKED = re.compile(r"(.+)\.(?:gz|bz2|xz|zst|lz4|zip|7z)")
_ARCHIVE = re.compile(r".+\.(?:tar|tgz|tar\.[a-z0-9]+|zip|7z)")
_LOOKED_AT = 1000  # names checked in a linked directory: nearly all names in a partition's are data files
_SERVER_PROPERTIES = re.compile(r"server.*\.properties")
_NOT_DATA = {
    ".lock": "lock file",
    kafka_names.BOOTSTRAP: "only used at first startup",
}


@dataclass
class Tree:
    """The files of one PATH; names are relative to ``top``, which is the PATH (``given``) or a directory above it."""

    top: StorageLocation
    given: StorageLocation
    files: list[ListedFile] = field(default_factory=list)
    unused: list[Unused] = field(default_factory=list)
    errors: list[DecodeError] = field(default_factory=list)


@dataclass
class Draft:
    """A log directory being assembled: its files by kind, names relative to it."""

    place: StorageLocation
    given: list[StorageLocation]
    partitions: dict[str, dict[str, int]] = field(default_factory=dict)  # folder -> file name -> size
    small: dict[str, int] = field(default_factory=dict)
    texts: list[TextFile] = field(default_factory=list)
    loose: dict[str, tuple[int, DataName]] = field(default_factory=dict)


@dataclass
class Drafts:
    """All drafts, and files outside of them: broker settings, and unread files (by full place).

    ``remote``: directories of remote segments, with the names and sizes of their files.
    """

    found: dict[StorageLocation, Draft] = field(default_factory=dict)
    remote: dict[StorageLocation, dict[str, int]] = field(default_factory=dict)
    configs: list[tuple[StorageLocation, int]] = field(default_factory=list)
    unused: list[tuple[StorageLocation, int, str]] = field(default_factory=list)
    errors: list[tuple[StorageLocation, DecodeError]] = field(default_factory=list)

    def draft(self, place: StorageLocation, given: StorageLocation) -> Draft:
        """The draft of a directory, created on first use."""
        draft = self.found.setdefault(place, Draft(place, []))
        if given not in draft.given:
            draft.given.append(given)
        return draft


def drafts(paths: Sequence[str], limits: Limits = DEFAULT_LIMITS) -> Drafts:
    """List all PATHs and sort every file into its log directory. Errors: :class:`AuditInputError` for a wrong PATH."""
    if not paths:
        raise AuditInputError("missing PATH: give a log directory, a directory above several, or a file")
    result = Drafts()
    outermost = _outermost(retries.apart(retries.as_here(storage.place), paths))
    for tree in _of_one_view(retries.apart(retries.as_here(partial(_tree, limits=limits)), outermost)):
        _bring_out_hidden(tree, outermost)
        _sort_files(tree, result)
    if not result.found and (
        old := [error for _, error in result.errors if error.file.endswith(kafka_names.COPY_LIST_1)]
    ):
        raise AuditInputError(old[0].detail)
    return result


def _of_one_view(trees: list[Tree]) -> list[Tree]:
    # Trees of one log directory get the view that was listed last.
    latest: dict[StorageLocation, StorageLocation] = {}
    for tree in trees:
        folder = tree.top._replace(view=None)
        latest[folder] = max(latest.get(folder, tree.top), tree.top, key=_listed_at)
    for tree in trees:
        tree.top = latest[tree.top._replace(view=None)]
    return trees


def _listed_at(place: StorageLocation) -> int:
    return place.view.seen if isinstance(place.view, CopyView) else 0


def _outermost(places: Iterable[StorageLocation]) -> list[StorageLocation]:
    # Each PATH once, without those below another one.
    outermost: list[StorageLocation] = []
    for place in sorted(set(places), key=lambda item: (item.uri, item.path)):
        if not any(_below(place, other) for other in outermost):
            outermost.append(place)
    return outermost


def _below(place: StorageLocation, folder: StorageLocation) -> bool:
    return place.uri == folder.uri and f"{place.path}/".startswith(f"{folder.path.rstrip('/')}/")


def _tree(given: StorageLocation, limits: Limits) -> Tree:
    # A partition directory is read from its log directory, with the small files there.
    if storage.is_folder(given):
        given, listing = resolve_copies(given, storage.listing(given, limits=limits), limits)
        direct = [entry.name for entry in listing.files if "/" not in entry.name]
        tree = Tree(given, given, *listing)
        if not _is_partition(given.name, direct):
            return tree
        return _with_small_files(_seen_from_above(tree, given.parent))
    tree = Tree(given.parent, given, [ListedFile(given.name, storage.file_size(given))])
    if not _is_partition(given.parent.name, [given.name]):
        return tree
    return _with_small_files(_seen_from_above(tree, given.parent.parent))


def _seen_from_above(tree: Tree, top: StorageLocation) -> Tree:
    prefix = tree.top.name + "/"
    return Tree(
        top,
        tree.given,
        [entry._replace(name=prefix + entry.name) for entry in tree.files],
        [item._replace(name=prefix + item.name) for item in tree.unused],
        [error._replace(file=prefix + error.file) for error in tree.errors],
    )


def _with_small_files(tree: Tree) -> Tree:
    # Without identity and checkpoints of its log directory, a partition cannot be judged soundly.
    top, around = resolve_copies(tree.top, storage.listing(tree.top, deep=False), DEFAULT_LIMITS)
    tree.top = max(top, tree.top, key=_listed_at)
    tree.files += [entry for entry in around.files if entry.name in kafka_names.OF_A_BROKER]
    return tree


def _is_partition(folder: str, files: Iterable[str]) -> bool:
    if not kafka_names.partition_folder(folder):
        return False
    direct = list(files)
    return kafka_names.META not in direct and any(kafka_names.data_name(name) for name in direct)


def _is_remote(folder: StorageLocation, files: Iterable[str]) -> bool:
    says = kafka_names.remote_folder(folder.path)
    pattern = kafka_names.object_name if says and says.depth > 1 else kafka_names.remote_name
    return says is not None and any(pattern(name) for name in files)


def _bring_out_hidden(tree: Tree, paths: Sequence[StorageLocation]) -> None:
    # Unread items in place of a broker's data are reported, since they may hide a partition. A link or pipe in place of
    # a partition's file stays a file, so that reading it fails like any unreadable one; a partition directory that is a
    # link is an error here, as is a packed file. Links into a PATH hide nothing.
    unopened, tree.unused = tree.unused, []
    for item in unopened:
        folder, _, name = item.name.rpartition("/")
        link = tree.top.child(item.name)
        if item.reason == storage.LINK and _is_within(link, paths):
            tree.unused.append(item._replace(reason=LINK_WITHIN))
        elif item.reason in (storage.LINK, storage.SPECIAL) and _is_live(_last(folder)) and kafka_names.data_name(name):
            tree.files.append(ListedFile(item.name, item.size))
        elif item.reason == storage.LINK and _may_hold_data(link):
            tree.errors.append(DecodeError(item.name, 0, -1, "unreadable", LINKED_DATA))
        else:
            tree.unused.append(item)
    packed = [entry for entry in tree.files if _is_packed(entry.name)]
    tree.errors += [DecodeError(entry.name, 0, entry.size, "unreadable", PACKED_FILE) for entry in packed]
    names = {entry.name for entry in tree.files}
    lacking = [ListedFile(name, 0) for entry in packed if (name := entry.name.rpartition(".")[0]) not in names]
    tree.files = [entry for entry in tree.files if not _is_packed(entry.name)] + lacking  # as missing files


def _is_packed(name: str) -> bool:
    # A broker never compresses files of a partition.
    folder, _, last = name.rpartition("/")
    match = _PACKED.fullmatch(last)
    return match is not None and _is_live(_last(folder)) and kafka_names.data_name(match[1]) is not None


def _is_live(folder: str) -> bool:
    partition = kafka_names.partition_folder(folder)
    return partition is not None and partition.kind == "live"


def _is_within(link: StorageLocation, paths: Sequence[StorageLocation]) -> bool:
    # Whether the target of a link is read anyway: for a partition's directory or file, as the same partition's.
    try:
        target = StorageLocation("", os.path.realpath(link.path))
    except OSError:  # a link that may not be followed, as in /proc
        return False
    if not os.path.exists(target.path) or target.path == link.path or not any(_below(target, p) for p in paths):
        return False
    if _is_live(link.name):
        return target.name == link.name or not os.path.isdir(target.path) or _below(link, target)
    if _is_live(link.parent.name) and kafka_names.data_name(link.name):
        return (target.parent.name, target.name) == (link.parent.name, link.name)
    return True


def _may_hold_data(link: StorageLocation) -> bool:
    if any(os.path.lexists(os.path.join(link.path, name)) for name in kafka_names.OF_A_BROKER):
        return True
    if not _is_live(link.name):
        return False
    try:
        with os.scandir(link.path) as entries:
            return any(kafka_names.data_name(item.name) for item in islice(entries, _LOOKED_AT))
    except NotADirectoryError:
        return False
    except OSError:
        return True


def _sort_files(tree: Tree, result: Drafts) -> None:
    by_folder: dict[str, dict[str, int]] = {}
    for entry in tree.files:
        folder, _, name = entry.name.rpartition("/")
        by_folder.setdefault(folder, {})[name] = entry.size
    partitions = {folder for folder, files in by_folder.items() if _is_partition(_last(folder), files)}
    roots = {_above(folder) for folder in partitions}
    roots |= {folder for folder, files in by_folder.items() if not files.keys().isdisjoint(kafka_names.OF_A_BROKER)}
    for folder, files in by_folder.items():
        if folder in partitions:
            draft = result.draft(tree.top.child(_above(folder)), tree.given)
            draft.partitions.setdefault(_last(folder), {}).update(files)
        elif _is_remote(tree.top.child(folder), files):
            result.remote.setdefault(tree.top.child(folder), {}).update(files)
        else:
            _sort_folder(tree, folder, files, roots, result)
    result.unused += [(tree.top.child(item.name), item.size, item.reason) for item in tree.unused]
    result.errors += [(tree.top.child(error.file), error) for error in tree.errors]


def _sort_folder(tree: Tree, folder: str, files: dict[str, int], roots: set[str], result: Drafts) -> None:
    place = tree.top.child(folder)
    cache = _last(folder) == kafka_names.REMOTE_INDEX_CACHE and _above(folder) in roots
    for name, size in files.items():
        where = place.child(name)
        if folder in roots and name in kafka_names.OF_A_BROKER:
            result.draft(place, tree.given).small[name] = size
        elif _SERVER_PROPERTIES.fullmatch(name):
            result.configs.append((where, size))
        elif cache or name in _NOT_DATA:
            result.unused.append((where, size, REMOTE_CACHE if cache else _NOT_DATA[name]))
        elif says := _loose(where, tree.given):
            result.draft(place, tree.given).loose[name] = (size, says)
        else:
            _sort_unknown(tree, folder, name, size, folder in roots, result)


def _loose(where: StorageLocation, given: StorageLocation) -> DataName | None:
    # A file given as a PATH may have any name.
    says = kafka_names.data_name(where.name)
    kind = where.name.rpartition(".")[2]
    if says or where != given or kind not in (*kafka_names.SEGMENT_KINDS, "snapshot", "checkpoint"):
        return says
    head = storage.read_head(where, "", HEAD_BYTES)
    return None if isinstance(head, bytes) and sniff(head) else DataName(-1, kind, "")


def _sort_unknown(tree: Tree, folder: str, name: str, size: int, in_log_dir: bool, result: Drafts) -> None:
    place = tree.top.child(folder)
    head = storage.read_head(place, name, HEAD_BYTES)
    if isinstance(head, DecodeError):
        result.errors.append((place.child(name), head))
        return
    kind = sniff(head)
    if kind and not in_log_dir:
        result.draft(place, tree.given).texts.append(TextFile(name, size, kind))
    else:
        packed = _PACKED.fullmatch(name)
        reason = PACKED if _ARCHIVE.fullmatch(name) or (packed and kafka_names.data_name(packed[1])) else UNKNOWN
        result.unused.append((place.child(name), size, TEXT_AMONG_LOGS if kind else reason))


def _last(folder: str) -> str:
    return folder.rpartition("/")[2]


def _above(folder: str) -> str:
    return folder.rpartition("/")[0]


# From the files of a partition directory to a :class:`Replica`.


NOT_KAFKAS = "not a Kafka file"
_MAX_METADATA_BYTES = 1 << 16


class BuiltReplica(NamedTuple):
    """A replica, the excluded files of its directory (file, reason), and errors."""

    replica: Replica
    dropped: list[tuple[DataFile, str]]
    errors: list[DecodeError]


def folder_replica(
    place: StorageLocation,
    log_dir: str,
    folder: str,
    files: dict[str, int],
    scope: Scope = EVERYTHING,
    broker_id: int | None = None,
) -> BuiltReplica:
    """The replica in a partition directory of the log directory at ``place``; ``files``: name -> size in bytes.

    Reads ``partition.metadata``, and a ``.log.swap`` file's batch headers if there is one; neither if ``scope``
    excludes it.
    """
    says = kafka_names.partition_folder(folder)
    if says is None:
        raise ValueError(f"{folder} is not a partition directory")
    candidates, dropped = [], []
    for name, size in sorted(files.items()):
        data = kafka_names.data_name(name)
        if data:
            candidates.append(FoundFile(f"{folder}/{name}", size, data))
        else:
            dropped.append((DataFile(f"{folder}/{name}", size, "", -1), NOT_KAFKAS))
    errors: list[DecodeError] = []
    opened = scope.wants(says.topic, says.partition, broker_id)
    chosen = logdir_files.keep(candidates, lambda item: _end_offset(place, item, errors) if opened else 0)
    kept, without_log = _without_indexes_of_deleted(chosen.kept, [item for item, _ in chosen.dropped])
    dropped += [(_data_file(item), reason) for item, reason in chosen.dropped]
    dropped += [(_data_file(item), logdir_files.DELETED) for item in without_log]
    metadata = next((item.name for item in kept if item.says.kind == kafka_names.PARTITION_METADATA), None)
    # For a deleted one it shows which topic was deleted; its errors do not matter.
    wanted = opened and metadata is not None and says.kind in ("live", "deleted")
    topic_id = _topic_id(place, metadata or "", errors if says.kind == "live" else []) if wanted else None
    replica = _replica(kept, log_dir, says.topic, says.partition, folder, says.kind, topic_id)
    return BuiltReplica(replica, dropped, errors)


def _without_indexes_of_deleted(
    kept: list[FoundFile], dropped: list[FoundFile]
) -> tuple[list[FoundFile], list[FoundFile]]:
    # A broker renames a segment before its indexes. Source: LogSegment.changeFileSuffixes.
    renamed = {item.says.offset for item in dropped if item.says.kind == "log" and item.says.state == "deleted"}
    renamed -= {item.says.offset for item in kept if item.says.kind == "log"}
    indexes = [i for i in kept if i.says.kind in kafka_names.INDEX_KINDS and i.says.offset in renamed]
    return [item for item in kept if item not in indexes] if indexes else kept, indexes


def loose_replica(log_dir: str, files: dict[str, tuple[int, DataName]]) -> BuiltReplica:
    """Files outside of a partition directory as a replica of an unknown partition, without start-up rules."""
    chosen, dropped = [], []
    for name, (size, says) in sorted(files.items()):
        reason = logdir_files.DROPPED.get(says.state)
        if reason:
            dropped.append((DataFile(name, size, says.kind, says.offset), reason))
        else:
            chosen.append(FoundFile(name, size, says))
    return BuiltReplica(_replica(chosen, log_dir, None, None, ""), dropped, [])


def _replica(
    files: list[FoundFile],
    log_dir: str,
    topic: str | None,
    partition: int | None,
    folder: str,
    kind: str = "live",
    topic_id: str | None = None,
) -> Replica:
    by_kind: dict[str, list[DataFile]] = {}
    for item in files:
        by_kind.setdefault(item.says.kind, []).append(_data_file(item))
    beside = {(item.kind, item.offset): item for kind in kafka_names.INDEX_KINDS for item in by_kind.get(kind, [])}
    segments = []
    for log in sorted(by_kind.get("log", []), key=lambda item: (item.offset, item.name)):
        indexes = [beside.pop((kind, log.offset), None) for kind in kafka_names.INDEX_KINDS] if beside else ()
        segments.append(SegmentFile(log.name, log.offset, log.size, *indexes))
    others = [*beside.values(), *by_kind.get("checkpoint", []), *by_kind.get(kafka_names.QUORUM_STATE, [])]
    return Replica(
        log_dir,
        topic,
        partition,
        folder,
        kind,
        topic_id,
        segments=tuple(segments),
        snapshots=tuple(sorted(by_kind.get("snapshot", []), key=lambda item: (item.offset, item.name))),
        leader_epochs=next(iter(by_kind.get(kafka_names.LEADER_EPOCHS, [])), None),
        partition_metadata=next(iter(by_kind.get(kafka_names.PARTITION_METADATA, [])), None),
        others=tuple(sorted(others)),
    )


def _data_file(item: FoundFile) -> DataFile:
    return DataFile(item.name, item.size, item.says.kind, item.says.offset)


def _topic_id(place: StorageLocation, name: str, errors: list[DecodeError]) -> str | None:
    data = storage.read_file(place, name, limit=_MAX_METADATA_BYTES)
    if isinstance(data, DecodeError):
        errors.append(data)
        return None
    topic_id, wrong = decode_partition_metadata(data, name)
    errors += wrong
    return topic_id


def _end_offset(place: StorageLocation, item: FoundFile, errors: list[DecodeError]) -> int:
    # An unreadable replacement segment replaces nothing.
    file = storage.open_file(place, item.name)
    if isinstance(file, DecodeError):
        errors.append(file)
        return 0
    try:
        return end_offset(file)
    except OSError as error:
        errors.append(storage.problem(item.name, error))
        return 0
    finally:
        file.close()


# The inventory, in an order that depends on names alone. Each file is part of a log directory (to be decoded), or in
# ``skipped`` with a reason, or in ``errors``. Contract section 1; reference/formats.md section 1.


_ASIDE = {
    "deleted": "directory of a deleted partition",
    "future": "directory of a replica being moved here",
    "stray": "directory of a stray partition",
}
OF_COPY = "is a copy without payload (no keys, no values)"
OF_HELD = "that the broker has deleted are kept by the copy: they are before the log start, and are not checked"
MIXED = (
    "the copy is incomplete (being written or interrupted): its logs are of different times, so findings are "
    "inconclusive; audit it again when the copy is complete"
)
_LEFT_OUT = {
    storage.LINK: "symbolic link (not followed); give its target as a PATH if it belongs to a broker",
    PACKED: PACKED,
}


class _Built(NamedTuple):
    log_dir: LogDir
    skipped: list[Skipped]
    errors: list[Unreadable]
    note: str


def discover(paths: Sequence[str], limits: Limits = DEFAULT_LIMITS, scope: Scope = EVERYTHING) -> Inventory:
    """The inventory of PATHs: local paths or URIs, log directories, directories above them, partition directories,
    files.

    Reads directory entries, the small files at the top of log directories, partition.metadata, and the first bytes of
    files with unknown names; of replicas that ``scope`` excludes only the listing. Errors: :class:`AuditInputError` for
    a PATH that does not exist or has nothing to audit.
    """
    with retries.resigned(retries.ROUNDS):  # no later retry: what a store keeps refusing becomes a row
        return inventory_of(drafts(paths, limits), paths, limits, scope)


def naming_of(drafted: Drafts) -> Naming:
    """The names of the places of drafts."""
    return Naming({place: draft.given for place, draft in drafted.found.items()})


def inventory_of(
    drafted: Drafts, paths: Sequence[str], limits: Limits = DEFAULT_LIMITS, scope: Scope = EVERYTHING
) -> Inventory:
    """The inventory of PATHs whose files have been listed. Errors: as for :func:`discover`."""
    naming = naming_of(drafted)
    with remote_files.coming(_coming(drafted, scope), remote_files.MANY):
        built = [_build(draft, naming.name(place), limits, scope) for place, draft in drafted.found.items()]
    skipped = [item for one in built for item in one.skipped]
    skipped += [Skipped(*naming.owner(place), size, reason) for place, size, reason in drafted.unused]
    errors = [item for one in built for item in one.errors] + _outside(drafted, naming)
    remote, others = _remote(drafted)
    skipped += [Skipped(*naming.owner(place), size, reason) for place, size, reason in others]
    settings = []
    for place, size in drafted.configs:
        read, wrong = logdir_files.read_settings(place, "/".join(filter(None, naming.owner(place))), size)
        settings.append((place, read))
        errors += [Unreadable("", error) for error in wrong]
    log_dirs = logdir_files.configure((one.log_dir for one in built), settings)
    log_dirs.sort(key=lambda item: item.name)
    left_out = _left_out(skipped)
    if not log_dirs and not errors:
        hint = f" ({left_out[0]})" if left_out else ""
        if not left_out and any("://" in path for path in paths):
            hint = " (empty listing: the URI may point to a web page, not to a store)"
        raise AuditInputError(
            f"nothing to audit in {', '.join(map(user_input.shown_uri, paths))}; "
            f"give a Kafka log directory or a text dump{hint}"
        )
    read_settings = sorted((read for _, read in settings), key=lambda item: item.file)
    notes = sorted(one.note for one in built if one.note) + logdir_files.in_two_places(log_dirs)
    notes += [logdir_files.from_elsewhere(read) for read in read_settings if read.elsewhere]
    notes += [f"{d.name} {OF_COPY}" for d in log_dirs if d.copied]
    notes += [_read_at(d) for d in log_dirs if d.read_at]
    blocked = Counter(item.log_dir for item in skipped if item.reason == HELD)
    notes += [f"{name}: {plural(count, 'segment')} {OF_HELD}" for name, count in sorted(blocked.items())]
    notes += left_out
    return Inventory(
        tuple(log_dirs),
        tuple(read_settings),
        tuple(sorted(skipped)),
        tuple(sorted(errors)),
        tuple(notes),
        remote,
        unread_bytes=sum(max(0, error.length) for _, error in drafted.errors),
    )


def written_over(inventory: Inventory) -> frozenset[str]:
    """The copied log directories that are no longer one copy: a copy was started and has not ended, or another one was
    written since they were listed."""
    copied = [log_dir for log_dir in inventory.log_dirs if log_dir.copied]
    whole = side_by_side(lambda log_dir: is_whole(log_dir.place, log_dir.listed), copied)
    return frozenset(log_dir.name for log_dir, as_listed in zip(copied, whole, strict=True) if not as_listed)


def _read_at(log_dir: LogDir) -> str:
    begun = [begun for begun, _ in log_dir.read_at.values()]
    ends = min(begun), max(begun)
    first, last = (
        datetime.fromtimestamp(min(end, LAST_MS) // 1000, UTC).isoformat().replace("+00:00", "Z") for end in ends
    )
    return f"{log_dir.name} was copied from {first} to {last} while its broker was running"


def _coming(drafted: Drafts, scope: Scope) -> Iterator[list[Coming]]:
    for place, draft in drafted.found.items():
        if place.uri:
            yield [Coming(place.uri, place.child(name).path, size) for name, size in draft.small.items()]
            for folder, files in draft.partitions.items():
                says = kafka_names.partition_folder(folder)
                if says is not None and not scope.wants_log(says.topic, says.partition):
                    continue
                name = f"{folder}/{kafka_names.PARTITION_METADATA}"
                size = files.get(kafka_names.PARTITION_METADATA)
                yield [] if size is None else [Coming(place.uri, place.child(name).path, size)]


def _left_out(skipped: Iterable[Skipped]) -> list[str]:
    # Links out of the PATHs and archives may hold a broker's data.
    notes = []
    for reason, why in _LEFT_OUT.items():
        items = sorted(item for item in skipped if item.reason == reason)
        if items:
            first = "/".join(filter(None, (items[0].log_dir, items[0].file)))
            more = f" and {len(items) - 1:,} more" if len(items) > 1 else ""
            notes.append(f"{first}{more}: {why}")
    return notes


def _remote(drafted: Drafts) -> tuple[tuple[RemoteFolder, ...], list[tuple[StorageLocation, int, str]]]:
    # Also returns files that belong to no segment, by full place with size and reason. Files are named relative to the
    # directory above that of their partition, or of their topic.
    folders, others = [], []
    for place, files in sorted(drafted.remote.items(), key=lambda item: (item[0].uri, item[0].path)):
        says = kafka_names.remote_folder(place.path)
        assert says is not None
        top = place.parent if says.depth == 1 else place.parent.parent
        kind_of = kafka_names.remote_name if says.depth == 1 else kafka_names.object_name
        segments: dict[tuple[int, str], list[DataFile]] = {}
        for name, size in sorted(files.items()):
            data, segment = kind_of(name), kafka_names.remote_segment(name)
            if data is None or segment is None or data.state:
                others.append(
                    (place.child(name), size, NOT_KAFKAS if data is None else logdir_files.DROPPED[data.state])
                )
            else:
                path = f"{place.path[len(top.path) :].lstrip('/')}/{name}"
                file = DataFile(path, size, data.kind, data.offset, top)
                segments.setdefault(segment, []).append(file)
        parts = tuple(RemoteFiles(*key, tuple(some), says.depth > 1) for key, some in sorted(segments.items()))
        folders.append(RemoteFolder(says.topic, says.partition, says.topic_id, parts))
    return tuple(folders), others


def _outside(drafted: Drafts, naming: Naming) -> list[Unreadable]:
    errors = []
    for place, error in drafted.errors:
        log_dir, file = naming.owner(place)
        errors.append(Unreadable(log_dir, error._replace(file=file)))
    return errors


def _build(draft: Draft, name: str, limits: Limits, scope: Scope) -> _Built:
    who = logdir_files.identify(draft.place, name, draft.small, limits)
    partitions = {**_emptied(draft, who.checkpoints), **draft.partitions}
    replicas = [
        folder_replica(draft.place, name, folder, files, scope, who.broker_id) for folder, files in partitions.items()
    ]
    if draft.loose:
        replicas.append(loose_replica(name, draft.loose))
    replicas.sort(key=lambda item: (item.replica.topic or "", item.replica.partition or 0, item.replica.folder))
    cluster_id = who.meta.cluster_id if who.meta else None
    copied = copy_list(draft.place)
    errors = [*who.errors, *(error for item in replicas for error in item.errors)]
    log_dir = LogDir(
        name=name,
        place=draft.place,
        join_key=f"cluster {cluster_id}" if cluster_id else f"path {_path(draft, name)}",
        cluster_id=cluster_id,
        broker_id=who.broker_id,
        broker_id_source=who.source,
        clean_shutdown=CLEAN_SHUTDOWN in draft.small,
        meta=who.meta,
        checkpoints=who.checkpoints,
        whole_checkpoints=who.whole_checkpoints,
        replicas=tuple(item.replica for item in replicas if item.replica.kind == "live"),
        aside=tuple(_aside(replicas)),
        texts=tuple(sorted(draft.texts)),
        small_files=logdir_files.small_files(draft.small),
        copied=copied is not None,
        listed=hash(copied),
        read_at={r.folder: (r.begun, r.done) for r in copied.readings if r.live} if copied is not None else {},
        machine=copied.machine if copied is not None else "",
        start_files=tuple(_start_files(draft, who, replicas, errors, limits)) if copied is None else (),
    )
    return _Built(log_dir, _skipped(name, replicas), [Unreadable(name, error) for error in errors], who.note)


def _emptied(draft: Draft, checkpoints: Mapping[str, Offsets]) -> dict[str, dict[str, int]]:
    # Directories of partitions with a checkpoint above 0 that have no file of a partition left.
    if draft.place.uri or draft.place.view is not None:  # stores have no empty directories
        return {}
    promised = {
        f"{topic}-{partition}"
        for kind, offsets in checkpoints.items()
        if kind in kafka_names.WITNESSES
        for (topic, partition), offset in offsets.items()
        if offset > 0
    }
    return {
        folder: {}
        for folder in sorted(promised - draft.partitions.keys())
        if _is_live(folder) and _has_nothing(draft.place.child(folder))
    }


def _has_nothing(folder: StorageLocation) -> bool:
    # A directory that could be listed, and has neither files of a partition nor links.
    if not storage.is_folder(folder) or os.path.islink(folder.path):
        return False
    files, unused, errors = storage.listing(folder, deep=False)
    return not (unused or errors or any(kafka_names.data_name(item.name) for item in files))


def _path(draft: Draft, name: str) -> str:
    # The key that joins log directories without a cluster id: their PATH; for text dumps their own directory.
    return name if draft.texts else draft.given[0].shown


def _skipped(name: str, replicas: list[BuiltReplica]) -> list[Skipped]:
    pairs = [(item, reason) for built in replicas for item, reason in built.dropped]
    pairs += [(item, _ASIDE[replica.kind]) for replica in _aside(replicas) for item in replica.files()]
    return [Skipped(name, item.name, item.size, reason) for item, reason in pairs]


def _aside(replicas: list[BuiltReplica]) -> list[Replica]:
    return [item.replica for item in replicas if item.replica.kind != "live"]


# What a start meets in a log directory besides segments, leader epochs and snapshots.


def _start_files(
    draft: Draft, who: logdir_files.Identity, replicas: list[BuiltReplica], errors: list[DecodeError], limits: Limits
) -> Iterator[StartFile]:
    if not (draft.small and draft.partitions):  # no log directory as a whole
        return
    damaged = {e.file for e in errors if is_damage(e)}
    versions = {e.file for e in errors if e.reason == "bad_version"}
    meta = None if kafka_names.META in versions else who.meta
    if kafka_names.META not in draft.small:
        yield StartFile(kafka_names.META, kafka_names.META, "missing")
    elif meta is not None and (meta.broker_id is None or (meta.version and meta.cluster_id is None)):
        yield StartFile(kafka_names.META, kafka_names.META, "damaged" if kafka_names.META in damaged else "empty")
    for name in sorted(kafka_names.CHECKPOINT_KINDS.keys() & draft.small.keys() & (damaged | versions)):
        yield StartFile(name, name, "damaged" if name in damaged else OTHER_VERSION)
    for name in storage.folders(draft.place):
        if kafka_names.is_refused_folder(name):
            yield StartFile(name, "folder", "name")
    have_ids = sum(item.replica.partition_metadata is not None for item in replicas if not _of_metadata(item.replica))
    for item in replicas:
        if item.replica.kind == "live":
            yield from _of_partition(draft.place, item, damaged, have_ids > 0, limits)


def _of_metadata(replica: Replica) -> bool:
    return replica.topic == kafka_names.METADATA_TOPIC


def _of_partition(
    place: StorageLocation, item: BuiltReplica, damaged: set[str], have_ids: bool, limits: Limits
) -> Iterator[StartFile]:
    replica, metadata = item.replica, item.replica.partition_metadata
    if metadata is None and have_ids and replica.folder and not _of_metadata(replica):
        file = f"{replica.folder}/{kafka_names.PARTITION_METADATA}"
        yield StartFile(file, kafka_names.PARTITION_METADATA, "missing")
    elif metadata is not None and metadata.name in damaged:
        yield StartFile(metadata.name, kafka_names.PARTITION_METADATA, "damaged" if metadata.size else "empty")
    for dropped, reason in item.dropped:
        if reason == NOT_KAFKAS and kafka_names.lacks_number(dropped.name.rpartition("/")[2]):
            yield StartFile(dropped.name, "number", "name")
    if _of_metadata(replica):
        yield from _of_metadata_log(place, replica, limits)


def _of_metadata_log(place: StorageLocation, replica: Replica, limits: Limits) -> Iterator[StartFile]:
    quorum = next((file for file in replica.others if file.kind == kafka_names.QUORUM_STATE), None)
    if quorum is not None:
        data = storage.read_file(place, quorum.name, limit=limits.small_file(kafka_names.QUORUM_STATE))
        errors = decode_quorum_state(data, quorum.name)[1] if isinstance(data, bytes) else []
        if isinstance(data, bytes) and (not data or errors):
            newer = any(error.reason == "bad_version" for error in errors)
            state = OTHER_VERSION if newer else "damaged" if data else "empty"
            yield StartFile(quorum.name, kafka_names.QUORUM_STATE, state)
    checkpoints = [file.offset for file in replica.others if file.kind == "checkpoint"]
    if not any(segment.size for segment in replica.segments) and max(checkpoints, default=0) <= 0:
        yield StartFile(f"{replica.folder}/00000000000000000000.log", "metadata-log", "missing")
