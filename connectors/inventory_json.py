"""An inventory as text, for the option ``inventory`` of the data sources: JSON lines, compressed.

An option of a data source comes from whoever writes the SQL, so it is never unpickled: what is read can only become
the classes that are named here. A line says what :class:`Inventory` holds besides its log directories; then each log
directory is a line, followed by a line for each of its replicas, so that neither side holds all of them as objects.
"""

from __future__ import annotations

import base64
import dataclasses
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from auditor.base.at_rest import Fields, RowsAtRest
from auditor.base.errors import AuditInputError, DecodeError
from auditor.connectors.codec.small_files import MetaProperties, Offsets
from auditor.connectors.copied.copy_view import CopyView
from auditor.connectors.files import (
    BrokerSettings,
    DataFile,
    Inventory,
    LogDir,
    RemoteFiles,
    RemoteFolder,
    Replica,
    SegmentFile,
    Skipped,
    TextFile,
    Unreadable,
)
from auditor.connectors.storage import Place
from auditor.connectors.stored_objects import Chunked, Stretch

Row = TypeVar("Row")
VIEWS: dict[str, Any] = {view.__name__: view for view in (CopyView, Chunked, Stretch)}
WRONG = (ValueError, TypeError, KeyError, IndexError, AttributeError, OSError, EOFError, RuntimeError, zlib.error)
REST = ("settings", "skipped", "errors", "notes", "remote", "unread_bytes")  # of an inventory, its first line
OF_LOG_DIR = [f.name for f in dataclasses.fields(LogDir) if f.init and f.name != "replicas"]


def dumps(inventory: Inventory) -> str:
    """An inventory as text: some 130 bytes a replica of three segments. Cost: 60 us each, and 100 us to
    read it."""
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=1, mtime=0) as packed:
        for line in _lines(inventory):
            packed.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
    return base64.b85encode(out.getvalue()).decode()


def loads(text: str) -> Inventory:
    """What :func:`dumps` made. Errors: :class:`AuditInputError` for any other text."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(base64.b85decode(text))) as packed:
            return _inventory(map(json.loads, packed))
    except WRONG as error:
        what = type(error).__name__
        raise AuditInputError(f"option inventory is not one that the auditor made ({what}); leave it out") from None


def _lines(inventory: Inventory) -> Iterator[Any]:
    rest = {name: getattr(inventory, name) for name in REST}
    settings = [(*s[:4], sorted(s.unknown), sorted(s.elsewhere)) for s in inventory.settings]
    remote = [
        (*folder[:3], [(*part[:2], [*map(_file_row, part.files)], part.objects) for part in folder.segments])
        for folder in inventory.remote
    ]
    yield rest | {"settings": settings, "remote": remote}
    for log_dir in inventory.log_dirs:
        values = {name: getattr(log_dir, name) for name in OF_LOG_DIR}
        yield (
            len(log_dir.replicas),
            values
            | {
                "place": _place_row(log_dir.place),
                "checkpoints": {
                    kind: [(*at, n) for at, n in held.items()] for kind, held in log_dir.checkpoints.items()
                },
                "whole_checkpoints": sorted(log_dir.whole_checkpoints),
                "unknown_settings": sorted(log_dir.unknown_settings),
                "aside": [*map(_replica_row, log_dir.aside)],
                "small_files": [*map(_file_row, log_dir.small_files)],
            },
        )
        yield from map(_replica_row, log_dir.replicas)


def _place_row(place: Place | None) -> Sequence[Any] | None:
    if place is None or place.view is None:
        return place
    return place.uri, place.path, (type(place.view).__name__, *place.view)  # type: ignore[misc]  # a tuple of values


def _file_row(file: DataFile | None) -> Sequence[Any] | None:
    return file if file is None or file.place is None else (*file[:4], _place_row(file.place))


def _replica_row(r: Replica) -> Sequence[Any]:
    segments = [
        (s.name, s.base_offset, s.size, *map(_file_row, (s.index, s.timeindex, s.txnindex)), _place_row(s.place))
        for s in r.segments
    ]
    alone = (_file_row(r.leader_epochs), _file_row(r.partition_metadata))
    lists = ([*map(_file_row, files)] for files in (r.snapshots, r.others, r.unread))
    return r.log_dir, r.topic, r.partition, r.folder, r.kind, r.topic_id, segments, *alone, *lists


def _inventory(lines: Iterator[Any]) -> Inventory:
    rest: Fields = _next(lines)
    log_dirs = tuple(_log_dir(lines, count, values) for count, values in lines)
    return Inventory(
        log_dirs,
        settings=tuple(map(_settings, rest["settings"])),
        skipped=_all(Skipped, rest["skipped"]),
        errors=tuple(Unreadable(log_dir, DecodeError(*error)) for log_dir, error in rest["errors"]),
        notes=tuple(rest["notes"]),
        remote=tuple(map(_remote_folder, rest["remote"])),
        unread_bytes=rest["unread_bytes"],
    )


def _next(lines: Iterator[Any]) -> Any:
    for line in lines:
        return line
    raise EOFError


def _log_dir(lines: Iterator[Any], count: int, values: Fields) -> LogDir:
    replicas = RowsAtRest[Replica]()
    for _ in range(count):
        replicas.append(_replica(_next(lines)))
    made = {
        "place": _place(values["place"]),
        "meta": None if values["meta"] is None else MetaProperties(*values["meta"]),
        "checkpoints": {
            kind: Offsets({(topic, partition): offset for topic, partition, offset in held})
            for kind, held in values["checkpoints"].items()
        },
        "whole_checkpoints": frozenset(values["whole_checkpoints"]),
        "unknown_settings": frozenset(values["unknown_settings"]),
        "aside": tuple(map(_replica, values["aside"])),
        "texts": _all(TextFile, values["texts"]),
        "small_files": tuple(map(_file, values["small_files"])),
        "read_at": {folder: tuple(times) for folder, times in values["read_at"].items()},
    }
    return LogDir(**{**values, **made, "replicas": replicas.settled()})


def _settings(row: Sequence[Any]) -> BrokerSettings:
    file, size, broker_id, configs, unknown, elsewhere = row
    return BrokerSettings(file, size, broker_id, configs, frozenset(unknown), frozenset(elsewhere))


def _all(cls: type[Row], rows: Iterable[Sequence[Any]]) -> tuple[Row, ...]:
    return tuple(cls(*row) for row in rows)


def _place(row: Sequence[Any] | None) -> Place | None:
    if row is None:
        return None
    uri, path, view = row
    return Place(uri, path, None if view is None else VIEWS[view[0]](*view[1:]))


def _file(row: Sequence[Any]) -> DataFile:
    name, size, kind, offset, place = row
    return DataFile(name, size, kind, offset, _place(place))


def _optional(row: Sequence[Any] | None) -> DataFile | None:
    return None if row is None else _file(row)


def _segment(row: Sequence[Any]) -> SegmentFile:
    name, base_offset, size, index, timeindex, txnindex, place = row
    indexes = (_optional(index), _optional(timeindex), _optional(txnindex))
    return SegmentFile(name, base_offset, size, *indexes, _place(place))


def _replica(row: Sequence[Any]) -> Replica:
    log_dir, topic, partition, folder, kind, topic_id, segments, *alone, snapshots, others, unread = row
    leader_epochs, partition_metadata = map(_optional, alone)
    return Replica(
        *(log_dir, topic, partition, folder, kind, topic_id),
        tuple(map(_segment, segments)),
        tuple(map(_file, snapshots)),
        leader_epochs,
        partition_metadata,
        tuple(map(_file, others)),
        tuple(map(_file, unread)),
    )


def _remote_folder(row: Sequence[Any]) -> RemoteFolder:
    topic, partition, topic_id, segments = row
    return RemoteFolder(topic, partition, topic_id, tuple(map(_remote_files, segments)))


def _remote_files(row: Sequence[Any]) -> RemoteFiles:
    start, segment_id, files, objects = row
    return RemoteFiles(start, segment_id, tuple(map(_file, files)), objects)
