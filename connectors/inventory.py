"""What is there: log directories, replicas of partitions and text dumps below PATHs, with every file accounted for.

:func:`discover` turns PATHs into an :class:`Inventory` of plain data, in an order that depends on names alone. Each
file found is either part of a log directory (to be decoded), or in ``skipped`` with a reason, or in ``errors``.
Contract section 1; reference/formats.md section 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from auditor.base import user_input
from auditor.base.errors import DEFAULT_LIMITS, AuditInputError, Limits
from auditor.base.user_input import EVERYTHING, Scope
from auditor.base.words import plural
from auditor.connectors import ahead, asking, identity, names, startup, storage
from auditor.connectors.ahead import Coming
from auditor.connectors.copied.copy_view import copy_list, is_whole
from auditor.connectors.copied.listing import HELD
from auditor.connectors.files import (
    DataFile,
    Inventory,
    LogDir,
    RemoteFiles,
    RemoteFolder,
    Replica,
    Skipped,
    Unreadable,
)
from auditor.connectors.names import CLEAN_SHUTDOWN
from auditor.connectors.naming import Naming
from auditor.connectors.partition_folder import NOT_KAFKAS, BuiltReplica, folder_replica, loose_replica
from auditor.connectors.storage import Place
from auditor.connectors.threads import side_by_side
from auditor.connectors.tree import PACKED, Draft, Drafts, drafts

_ASIDE = {
    "deleted": "folder of a deleted partition",
    "future": "folder of a replica being moved here",
    "stray": "folder of a partition that did not belong here",
}
OF_COPY = "is a copy without payload: it has no keys and no values"
OF_HELD = "that the broker has deleted since, held by the copy: its logs begin behind them, and nothing is said of them"
MIXED = (
    "a copy is being written, or was broken off: its logs are of two moments, and nothing that is found is sure; audit "
    "it again when a copy has ended"
)
_LAST_TIME = 253_402_300_799_999  # ms: the end of the year 9999
_LEFT_OUT = {
    storage.LINK: "not followed, a symbolic link; give what it leads to as a PATH if it belongs to a broker",
    PACKED: PACKED,
}


class _Built(NamedTuple):
    """A log directory and what came up while it was made."""

    log_dir: LogDir
    skipped: list[Skipped]
    errors: list[Unreadable]
    note: str


def discover(paths: Sequence[str], limits: Limits = DEFAULT_LIMITS, scope: Scope = EVERYTHING) -> Inventory:
    """The inventory of PATHs: local paths or URIs, log directories, folders above some, partition folders, files.

    Reads directory entries, the small files at the top of log directories, partition.metadata, and the first bytes of
    files with unknown names; nothing of replicas that ``scope`` leaves out, which are listed all the same.
    Errors: :class:`AuditInputError` for a PATH that is not there or holds nothing to audit.
    """
    with asking.resigned(asking.ROUNDS):  # nobody looks again: what a store refuses for long is a row
        return inventory_of(drafts(paths, limits), paths, limits, scope)


def naming_of(found: Drafts) -> Naming:
    """How the places of drafts are named."""
    return Naming({place: draft.given for place, draft in found.found.items()})


def inventory_of(
    found: Drafts, paths: Sequence[str], limits: Limits = DEFAULT_LIMITS, scope: Scope = EVERYTHING
) -> Inventory:
    """The inventory of PATHs whose files have been listed. Errors: as :func:`discover`."""
    naming = naming_of(found)
    with ahead.coming(_coming(found, scope), ahead.MANY):
        built = [_build(draft, naming.name(place), limits, scope) for place, draft in found.found.items()]
    skipped = [item for one in built for item in one.skipped]
    skipped += [Skipped(*naming.owner(place), size, reason) for place, size, reason in found.unused]
    errors = [item for one in built for item in one.errors] + _outside(found, naming)
    remote, others = _remote(found)
    skipped += [Skipped(*naming.owner(place), size, reason) for place, size, reason in others]
    settings = []
    for place, size in found.configs:
        read, wrong = identity.read_settings(place, "/".join(filter(None, naming.owner(place))), size)
        settings.append((place, read))
        errors += [Unreadable("", error) for error in wrong]
    log_dirs = identity.configure((one.log_dir for one in built), settings)
    log_dirs.sort(key=lambda item: item.name)
    left_out = _left_out(skipped)
    if not log_dirs and not errors:
        hint = f" ({left_out[0]})" if left_out else ""
        raise AuditInputError(
            f"nothing to audit in {', '.join(map(user_input.shown_uri, paths))}; name a Kafka log directory or a text dump{hint}"
        )
    read_settings = sorted((read for _, read in settings), key=lambda item: item.file)
    notes = sorted(one.note for one in built if one.note) + identity.in_two_places(log_dirs)
    notes += [identity.from_elsewhere(read) for read in read_settings if read.elsewhere]
    notes += [f"{d.name} {OF_COPY}" for d in log_dirs if d.copied]
    notes += [_read_at(d) for d in log_dirs if d.read_at]
    held = Counter(item.log_dir for item in skipped if item.reason == HELD)
    notes += [f"{name}: {plural(count, 'segment')} {OF_HELD}" for name, count in sorted(held.items())]
    notes += left_out
    return Inventory(
        tuple(log_dirs),
        tuple(read_settings),
        tuple(sorted(skipped)),
        tuple(sorted(errors)),
        tuple(notes),
        remote,
        unread_bytes=sum(max(0, error.length) for _, error in found.errors),
    )


def written_over(found: Inventory) -> frozenset[str]:
    """The copied log directories that are not all of one copy by now: one was begun and has not ended, or another one
    has been written since they were listed."""
    copied = [log_dir for log_dir in found.log_dirs if log_dir.copied]
    whole = side_by_side(lambda log_dir: is_whole(log_dir.place, log_dir.listed), copied)
    return frozenset(log_dir.name for log_dir, as_listed in zip(copied, whole, strict=True) if not as_listed)


def _read_at(log_dir: LogDir) -> str:
    begun = [begun for begun, _ in log_dir.read_at.values()]
    ends = min(begun), max(begun)
    first, last = (
        datetime.fromtimestamp(min(at, _LAST_TIME) // 1000, UTC).isoformat().replace("+00:00", "Z") for at in ends
    )
    return f"{log_dir.name} was read from {first} to {last} while its broker ran, as the copy says"


def _coming(found: Drafts, scope: Scope) -> Iterator[list[Coming]]:
    """The small files of stores that an inventory reads, by log directory and partition."""
    for place, draft in found.found.items():
        if place.uri:
            yield [Coming(place.uri, place.child(name).path, size) for name, size in draft.small.items()]
            for folder, files in draft.partitions.items():
                says = names.partition_folder(folder)
                if says is not None and not scope.wants_log(says.topic, says.partition):
                    continue
                name = f"{folder}/{names.PARTITION_METADATA}"
                size = files.get(names.PARTITION_METADATA)
                yield [] if size is None else [Coming(place.uri, place.child(name).path, size)]


def _left_out(skipped: Iterable[Skipped]) -> list[str]:
    """Notes on what may hold a broker's data and was not looked into: links that lead out of the PATHs, archives."""
    notes = []
    for reason, why in _LEFT_OUT.items():
        found = sorted(item for item in skipped if item.reason == reason)
        if found:
            first = "/".join(filter(None, (found[0].log_dir, found[0].file)))
            more = f" and {len(found) - 1:,} more" if len(found) > 1 else ""
            notes.append(f"{first}{more}: {why}")
    return notes


def _remote(found: Drafts) -> tuple[tuple[RemoteFolder, ...], list[tuple[Place, int, str]]]:
    """The remote parts of partitions, and files among them that are not theirs, by full place with size and reason.

    Files are named by their partition's folder, or that and their topic's, and relative to the folder above it.
    """
    folders, others = [], []
    for place, files in sorted(found.remote.items(), key=lambda item: (item[0].uri, item[0].path)):
        says = names.remote_folder(place.path)
        assert says is not None
        top = place.parent if says.depth == 1 else place.parent.parent
        kind_of = names.remote_name if says.depth == 1 else names.object_name
        segments: dict[tuple[int, str], list[DataFile]] = {}
        for name, size in sorted(files.items()):
            data, segment = kind_of(name), names.remote_segment(name)
            if data is None or segment is None or data.state:
                others.append((place.child(name), size, NOT_KAFKAS if data is None else startup.DROPPED[data.state]))
            else:
                path = f"{place.path[len(top.path) :].lstrip('/')}/{name}"
                file = DataFile(path, size, data.kind, data.offset, top)
                segments.setdefault(segment, []).append(file)
        parts = tuple(RemoteFiles(*at, tuple(some), says.depth > 1) for at, some in sorted(segments.items()))
        folders.append(RemoteFolder(says.topic, says.partition, says.topic_id, parts))
    return tuple(folders), others


def _outside(found: Drafts, naming: Naming) -> list[Unreadable]:
    """Errors of the listing, each with the log directory it is in."""
    errors = []
    for place, error in found.errors:
        log_dir, file = naming.owner(place)
        errors.append(Unreadable(log_dir, error._replace(file=file)))
    return errors


def _build(draft: Draft, name: str, limits: Limits, scope: Scope) -> _Built:
    """One log directory from its files."""
    who = identity.identify(draft.place, name, draft.small, limits)
    replicas = [
        folder_replica(draft.place, name, folder, files, scope, who.broker_id)
        for folder, files in draft.partitions.items()
    ]
    if draft.loose:
        replicas.append(loose_replica(name, draft.loose))
    replicas.sort(key=lambda item: (item.replica.topic or "", item.replica.partition or 0, item.replica.folder))
    cluster_id = who.meta.cluster_id if who.meta else None
    copied = copy_list(draft.place)
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
        aside=tuple(item.replica for item in replicas if item.replica.kind != "live"),
        texts=tuple(sorted(draft.texts)),
        small_files=identity.small_files(draft.small),
        copied=copied is not None,
        listed=hash(copied),
        read_at={r.folder: (r.begun, r.done) for r in copied.readings if r.live} if copied is not None else {},
        machine=copied.machine if copied is not None else "",
    )
    errors = [*who.errors, *(error for item in replicas for error in item.errors)]
    return _Built(log_dir, _skipped(name, replicas), [Unreadable(name, error) for error in errors], who.note)


def _path(draft: Draft, name: str) -> str:
    """What joins log directories without a cluster id: the PATH they came from; text dumps only their own folder."""
    return name if draft.texts else draft.given[0].shown


def _skipped(name: str, replicas: list[BuiltReplica]) -> list[Skipped]:
    """What is left out of the replicas of a log directory: dropped files, and folders that are no live replica."""
    found = [(item, reason) for built in replicas for item, reason in built.dropped]
    found += [(item, _ASIDE[replica.kind]) for replica in _aside(replicas) for item in replica.files()]
    return [Skipped(name, item.name, item.size, reason) for item, reason in found]


def _aside(replicas: list[BuiltReplica]) -> list[Replica]:
    return [item.replica for item in replicas if item.replica.kind != "live"]
