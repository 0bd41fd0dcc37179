"""From the files of a partition folder to a :class:`Replica`: its segments, snapshots, and what is left out."""

from __future__ import annotations

from typing import NamedTuple

from auditor.base.errors import DecodeError
from auditor.base.user_input import EVERYTHING, Scope
from auditor.connectors import names, startup, storage
from auditor.connectors.codec.segment import end_offset
from auditor.connectors.codec.small_files import decode_partition_metadata
from auditor.connectors.files import DataFile, Replica, SegmentFile
from auditor.connectors.names import DataName
from auditor.connectors.startup import Found
from auditor.connectors.storage import Place

NOT_KAFKAS = "no file of Kafka's"
_MAX_METADATA_BYTES = 1 << 16


class BuiltReplica(NamedTuple):
    """A replica, the files of its folder that are left out (file, reason), and what could not be read."""

    replica: Replica
    dropped: list[tuple[DataFile, str]]
    errors: list[DecodeError]


def folder_replica(
    place: Place,
    log_dir: str,
    folder: str,
    files: dict[str, int],
    scope: Scope = EVERYTHING,
    broker_id: int | None = None,
) -> BuiltReplica:
    """The replica in a partition folder of the log directory at ``place``; ``files``: name -> size in bytes.

    Reads ``partition.metadata``, and a ``.log.swap`` file's batch headers if there is one; neither where ``scope``
    leaves it out.
    """
    says = names.partition_folder(folder)
    if says is None:
        raise ValueError(f"{folder} is no partition folder")
    found, dropped = [], []
    for name, size in sorted(files.items()):
        data = names.data_name(name)
        if data:
            found.append(Found(f"{folder}/{name}", size, data))
        else:
            dropped.append((DataFile(f"{folder}/{name}", size, "", -1), NOT_KAFKAS))
    errors: list[DecodeError] = []
    opened = scope.wants(says.topic, says.partition, broker_id)
    kept = startup.keep(found, lambda item: _end_offset(place, item, errors) if opened else 0)
    dropped += [(_data_file(item), reason) for item, reason in kept.dropped]
    metadata = next((item.name for item in kept.kept if item.says.kind == names.PARTITION_METADATA), None)
    # Of a deleted one it tells which topic is gone; nobody misses what cannot be read of it.
    wanted = opened and metadata is not None and says.kind in ("live", "deleted")
    topic_id = _topic_id(place, metadata or "", errors if says.kind == "live" else []) if wanted else None
    replica = _replica(kept.kept, log_dir, says.topic, says.partition, folder, says.kind, topic_id)
    return BuiltReplica(replica, dropped, errors)


def loose_replica(log_dir: str, files: dict[str, tuple[int, DataName]]) -> BuiltReplica:
    """Files outside of a partition folder as a replica of an unknown partition; start-up rules do not apply to them."""
    kept, dropped = [], []
    for name, (size, says) in sorted(files.items()):
        reason = startup.DROPPED.get(says.state)
        if reason:
            dropped.append((DataFile(name, size, says.kind, says.offset), reason))
        else:
            kept.append(Found(name, size, says))
    return BuiltReplica(_replica(kept, log_dir, None, None, ""), dropped, [])


def _replica(
    files: list[Found],
    log_dir: str,
    topic: str | None,
    partition: int | None,
    folder: str,
    kind: str = "live",
    topic_id: str | None = None,
) -> Replica:
    """The replica with its files."""
    by_kind: dict[str, list[DataFile]] = {}
    for item in files:
        by_kind.setdefault(item.says.kind, []).append(_data_file(item))
    beside = {(item.kind, item.offset): item for kind in names.INDEX_KINDS for item in by_kind.get(kind, [])}
    segments = []
    for log in sorted(by_kind.get("log", []), key=lambda item: (item.offset, item.name)):
        indexes = [beside.pop((kind, log.offset), None) for kind in names.INDEX_KINDS] if beside else ()
        segments.append(SegmentFile(log.name, log.offset, log.size, *indexes))
    others = [*beside.values(), *by_kind.get("checkpoint", []), *by_kind.get(names.QUORUM_STATE, [])]
    return Replica(
        log_dir,
        topic,
        partition,
        folder,
        kind,
        topic_id,
        segments=tuple(segments),
        snapshots=tuple(sorted(by_kind.get("snapshot", []), key=lambda item: (item.offset, item.name))),
        leader_epochs=next(iter(by_kind.get(names.LEADER_EPOCHS, [])), None),
        partition_metadata=next(iter(by_kind.get(names.PARTITION_METADATA, [])), None),
        others=tuple(sorted(others)),
    )


def _data_file(item: Found) -> DataFile:
    return DataFile(item.name, item.size, item.says.kind, item.says.offset)


def _topic_id(place: Place, name: str, errors: list[DecodeError]) -> str | None:
    """The topic id in ``partition.metadata``; what is wrong with it goes to ``errors``."""
    data = storage.read_file(place, name, limit=_MAX_METADATA_BYTES)
    if isinstance(data, DecodeError):
        errors.append(data)
        return None
    topic_id, wrong = decode_partition_metadata(data, name)
    errors += wrong
    return topic_id


def _end_offset(place: Place, item: Found, errors: list[DecodeError]) -> int:
    """The offset after a replacement segment; one that cannot be read replaces nothing."""
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
