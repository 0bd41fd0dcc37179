"""The part of an inventory that is read, and how tasks split it."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import heapq
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from auditor.base import user_input as scopes
from auditor.base.at_rest import Fields, RowsAtRest
from auditor.base.errors import AuditInputError, DecodeError, StartFile
from auditor.base.user_input import Scope, Seen, Since, is_internal
from auditor.connectors import kafka_names
from auditor.connectors.codec.indexes import TIME_ENTRY, decode_offset_index
from auditor.connectors.codec.small_files import MetaProperties, Offsets
from auditor.connectors.kafka_names import METADATA_TOPIC
from auditor.connectors.logdir import internal_rows
from auditor.connectors.logdir.copy_view import HELD, CopyView
from auditor.connectors.logdir.files import (
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
from auditor.connectors.logdir.tiered import Chunked, ObjectRange
from auditor.connectors.schema import Key
from auditor.connectors.stores import retries
from auditor.connectors.stores.storage import StorageLocation, read_file, read_head
from auditor.connectors.tables.rows import ErrorPiece, FilePiece, MetadataPiece, Piece, TextPiece

# The replicas of an inventory within a scope, and the segments of each that are read.
#
# A log read from an offset on starts with a segment: the newest at or below it with a producer snapshot; without one,
# the newest at or below it. From a time on it starts with the first segment that has a record of that time or later, by
# the last entry of its time index: brokers write the largest time of a segment there when they close it. A segment
# without such an entry may have any times, and is read.


class LeftOut(NamedTuple):
    """What a scope excludes: copies of partitions, copies that are read from a later segment on, and the files and
    bytes of both. ``without_state``: the latter without a snapshot of the state there."""

    copies: int = 0
    begun: int = 0
    without_state: int = 0
    files: int = 0
    bytes: int = 0


def narrowed(inventory: Inventory, scope: Scope) -> Inventory:
    """The inventory reduced to what a scope reads.

    Cost: for a time, the end of the time index of each excluded segment and one more. Errors: :class:`AuditInputError`
    if the scope matches nothing. Topics of texts are known only when they are read.
    """
    if not scope.leaves_out:
        return inventory
    if not any(d.texts for d in inventory.log_dirs):
        scopes.check(scope, replicas_of(inventory))
    log_dirs = []
    for d in inventory.log_dirs:
        wanted = [c for c in d.replicas if scope.wants(c.topic, c.partition, d.broker_id)]
        if scope.since is not None:
            wanted = retries.side_by_side(partial(_begun, d.place, scope.since), wanted)
        log_dirs.append(replace(d, replicas=tuple(wanted)))
    return replace(inventory, log_dirs=tuple(log_dirs))


def replicas_of(inventory: Inventory) -> Iterator[Seen]:
    """Topic, partition and broker of all replicas; for log directories without any, the broker."""
    for d in inventory.log_dirs:
        yield None, None, d.broker_id
        yield from ((c.topic, c.partition, d.broker_id) for c in d.replicas)


def left_out(whole: Inventory, read: Inventory) -> LeftOut:
    """What :func:`narrowed` removed."""
    if read is whole:
        return LeftOut()
    copies = begun = without_state = files = size = 0
    for before, after in zip(whole.log_dirs, read.log_dirs, strict=True):
        remaining = {(c.folder, c.topic, c.partition) for c in after.replicas}
        gone = [c for c in before.replicas if (c.folder, c.topic, c.partition) not in remaining]
        later = [c for c in after.replicas if c.unread]
        copies, begun = copies + len(gone), begun + len(later)
        without_state += sum(not _says_state(c) for c in later)
        unread = [file for c in gone for file in c.files()] + [file for c in later for file in c.unread]
        files, size = files + len(unread), size + sum(file.size for file in unread)
    return LeftOut(copies, begun, without_state, files, size)


def _says_state(replica: Replica) -> bool:
    # Whether a snapshot has the open transactions at the start of the reading, or later.
    return any(s.offset >= replica.segments[0].base_offset for s in replica.snapshots)


def _begun(place: StorageLocation, since: Since, replica: Replica) -> Replica:
    if is_internal(replica.topic):
        return replica
    number = first_read(replica, since, lambda segment: _newest(place, segment))
    return _from(replica, number) if number else replica


def first_read(replica: Replica, since: Since, newest: Callable[[SegmentFile], int | None]) -> int:
    """The number of the segment at which reading starts. ``newest``: the largest time (ms) of a closed segment."""
    segments = replica.segments
    number = 0
    if since.offset is not None:
        number = max((n for n, s in enumerate(segments) if s.base_offset <= since.offset), default=0)
    elif since.time_ms is not None:
        times = ((n, newest(s)) for n, s in enumerate(segments[:-1]))
        number = next((n for n, time in times if time is None or time >= since.time_ms), len(segments) - 1)
    offsets = {snapshot.offset for snapshot in replica.snapshots}
    with_state = (n for n in range(number, 0, -1) if segments[n].base_offset in offsets)
    return max(next(with_state, number), 0)


def _newest(place: StorageLocation, segment: SegmentFile) -> int | None:
    # The last time of a segment's time index, None for none.
    index = segment.timeindex
    if index is None or index.size < TIME_ENTRY.itemsize or index.size % TIME_ENTRY.itemsize:
        return None
    with retries.resigned(retries.ROUNDS):
        data = read_head(index.place or place, index.name, TIME_ENTRY.itemsize, start=index.size - TIME_ENTRY.itemsize)
    if not isinstance(data, bytes) or len(data) < TIME_ENTRY.itemsize or not any(data):
        return None
    return int.from_bytes(data[:8], "big", signed=True)


def _from(replica: Replica, number: int) -> Replica:
    segments = replica.segments[number:]
    base = segments[0].base_offset
    below = [snapshot for snapshot in replica.snapshots if snapshot.offset < base]
    unread = [*_files(replica.segments[:number]), *below]
    snapshots = tuple(snapshot for snapshot in replica.snapshots if snapshot.offset >= base)
    return replace(replica, segments=segments, snapshots=snapshots, unread=tuple(unread))


def _files(segments: Iterable[SegmentFile]) -> Iterator[DataFile]:
    for s in segments:
        yield DataFile(s.name, s.size, "log", s.base_offset, s.place)
        yield from (index for index in (s.index, s.timeindex, s.txnindex) if index is not None)


# From an inventory to pieces for tasks: one per file that the wanted tables need, several for a large segment.


DEFAULT_SPLIT_BYTES = 128 << 20
MAX_PIECES = 8  # per segment: each walks the headers before it, so that more pieces would not pay off
OPENING_BYTES = 50_000  # cost of opening a file, as an equivalent size

_CHECKPOINTS = frozenset({*kafka_names.CHECKPOINT_KINDS.values(), kafka_names.LEADER_EPOCHS})
_KINDS = {
    "batches": frozenset({"log"}),
    "records": frozenset({"log"}),
    "producer_snapshots": frozenset({"snapshot"}),
    "aborted_transactions": frozenset({"txnindex"}),
    "index_entries": frozenset({"index", "timeindex"}),
    "checkpoints": _CHECKPOINTS,
}
_TOPICS = {table: topic for topic, tables in internal_rows.TABLES.items() for table in tables}


def any_file(piece: FilePiece) -> bool:
    """Accept every file."""
    return True


def plan(
    inventory: Inventory,
    tables: frozenset[str],
    split_size: int = DEFAULT_SPLIT_BYTES,
    wanted: Callable[[FilePiece], bool] = any_file,
) -> list[Piece]:
    """The pieces of live replicas, small files and text dumps that have rows for ``tables``, in a fixed order.

    ``split_size``: bytes of a segment per piece. Segments behind a URI stay whole, since walking to the start of a
    piece would fetch the bytes before it again. ``wanted``: which files are read, called before they are cut.
    """
    pieces: list[Piece] = []
    blocked: dict[tuple[str, str], list[Skipped]] = {}
    for item in inventory.skipped:
        if item.reason == HELD:
            blocked.setdefault((item.log_dir, item.file.rpartition("/")[0]), []).append(item)
    for log_dir in inventory.log_dirs:
        key: Key = (log_dir.cluster_id, log_dir.broker_id, log_dir.name, None, None)
        if log_dir.texts:
            pieces.append(TextPiece(log_dir.place, key, log_dir.texts))
        small = (FilePiece(log_dir.place, key, file) for file in log_dir.small_files if _has(tables, None, file))
        pieces += [piece for piece in small if wanted(piece)]
        for replica in log_dir.replicas:
            pieces += _of_replica(log_dir, replica, tables, split_size, wanted)
            pieces += [p for p in _deleted_segments(log_dir, replica, blocked) if "batches" in tables and wanted(p)]
    if "metadata_history" in tables:
        pieces += _metadata(inventory)
    if "decode_errors" in tables:
        pieces += _known_errors(inventory, pieces)
    return pieces


def _metadata(inventory: Inventory) -> Iterator[MetadataPiece]:
    # One replica per cluster: that with the newest last segment.
    furthest: dict[str, tuple[tuple[int, int], LogDir, Replica]] = {}
    for log_dir in inventory.log_dirs:
        for replica in log_dir.replicas:
            if replica.topic == METADATA_TOPIC:
                end = (replica.segments[-1].base_offset, replica.segments[-1].size) if replica.segments else (-1, 0)
                newest = furthest.get(log_dir.join_key)
                if newest is None or end > newest[0]:
                    furthest[log_dir.join_key] = (end, log_dir, replica)
    for _end, log_dir, replica in furthest.values():
        key: Key = (log_dir.cluster_id, log_dir.broker_id, log_dir.name, replica.topic, replica.partition)
        yield MetadataPiece(log_dir.place, key, replica)


def in_segments(table: str, topic: str | None) -> bool:
    """Whether the segments of a topic may have rows of a table."""
    return _TOPICS[table] == topic if table in _TOPICS else "log" in _KINDS.get(table, ())


def _has(tables: frozenset[str], topic: str | None, file: DataFile) -> bool:
    if "decode_errors" in tables:
        return True
    kinds = any(file.kind in _KINDS.get(table, ()) for table in tables)
    return kinds or (file.kind == "log" and any(_TOPICS.get(table) == topic for table in tables if table in _TOPICS))


def tables_of(piece: Piece, tables: frozenset[str]) -> frozenset[str]:
    """The tables for which to read a piece so that each of ``tables`` gets the same rows as if read alone: for an
    internal topic, errors include those of its records."""
    if not isinstance(piece, FilePiece):
        return tables
    topic, file = piece.key[3], piece.file
    own = frozenset(table for table in tables if _has(frozenset({table}), topic, file))
    if "decode_errors" in own and file.kind == "log":
        own |= internal_rows.TABLES.get(topic or "", frozenset())
    return own


def _of_replica(
    log_dir: LogDir, replica: Replica, tables: frozenset[str], split_size: int, wanted: Callable[[FilePiece], bool]
) -> Iterator[Piece]:
    key: Key = (log_dir.cluster_id, log_dir.broker_id, log_dir.name, replica.topic, replica.partition)
    for file in replica.files():
        if not _has(tables, replica.topic, file):
            continue
        where = file.place or log_dir.place
        behind = next((s.base_offset for s in replica.segments if s.base_offset > file.offset), -1)
        if not wanted(FilePiece(where, key, file, next_base=behind)):
            continue
        count = 1 if file.kind != "log" or where.uri else min(MAX_PIECES, -(-file.size // split_size))
        cuts = _cuts(log_dir, replica, file, count)
        for start, stop in zip([0, *cuts], [*cuts, None], strict=True):
            yield FilePiece(where, key, file, start, stop, behind)


def _deleted_segments(
    log_dir: LogDir, replica: Replica, blocked: Mapping[tuple[str, str], list[Skipped]]
) -> Iterator[FilePiece]:
    # Without topics whose records have tables.
    key: Key = (log_dir.cluster_id, log_dir.broker_id, log_dir.name, replica.topic, replica.partition)
    if replica.topic in _TOPICS.values():
        return
    for item in blocked.get((log_dir.name, replica.folder), ()):
        says = kafka_names.data_name(item.file.rpartition("/")[2])
        if says is not None:
            yield FilePiece(log_dir.place, key, DataFile(item.file, item.size, "log", says.offset))


def _cuts(log_dir: LogDir, replica: Replica, file: DataFile, count: int) -> list[int]:
    # At the index entry behind each even share, which points at a batch. The index is only a hint: a reader walks the
    # headers before its piece and starts with the first batch at or after the cut, so a damaged index moves work
    # between pieces and changes no row.
    shares = [number * file.size // count for number in range(1, count)]
    index = next((s.index for s in replica.segments if s.name == file.name), None)
    place = file.place or log_dir.place
    data = read_file(place, index.name) if shares and index is not None else None
    if data is None or isinstance(data, DecodeError):
        return shares
    entries, _ = decode_offset_index(data, 0)
    positions = np.unique(entries.log_position[(entries.log_position > 0) & (entries.log_position < file.size)])
    rows = np.searchsorted(positions, shares)
    cuts = {int(positions[k]) if k < len(positions) else share for k, share in zip(rows, shares, strict=True)}
    return sorted(cuts)


def _known_errors(inventory: Inventory, pieces: list[Piece]) -> Iterator[ErrorPiece]:
    # Errors of the listing, and of files that only the inventory reads.
    read_again = {(piece.key[2], piece.file.name) for piece in pieces if isinstance(piece, FilePiece)}
    of_dir: dict[str, list[DecodeError]] = {}
    for item in inventory.errors:
        if (item.log_dir, item.error.file) not in read_again:
            of_dir.setdefault(item.log_dir, []).append(item.error)
    keys = {log_dir.name: (log_dir.cluster_id, log_dir.broker_id) for log_dir in inventory.log_dirs}
    for name, errors in sorted(of_dir.items()):
        yield ErrorPiece((*keys.get(name, (None, None)), name, None, None), tuple(errors))


def size(piece: Piece) -> int:
    """The cost of reading a piece, in bytes."""
    if isinstance(piece, FilePiece):
        return (piece.file.size if piece.stop is None else piece.stop) - piece.start + OPENING_BYTES
    if isinstance(piece, MetadataPiece):
        return sum(file.size for file in piece.replica.files()) + OPENING_BYTES
    return OPENING_BYTES + (sum(text.size for text in piece.texts) if isinstance(piece, TextPiece) else 0)


def spread(pieces: list[Piece], slots: int) -> list[list[Piece]]:
    """Distribute pieces to at most ``slots`` lists of about equal bytes: largest first, each to the lightest list."""
    heap = [(0, number) for number in range(min(slots, len(pieces)))]
    lists: list[list[Piece]] = [[] for _ in heap]
    for piece in sorted(pieces, key=size, reverse=True):
        load, number = heapq.heappop(heap)
        lists[number].append(piece)
        heapq.heappush(heap, (load + size(piece), number))
    return lists


# An inventory as text, for the option ``inventory`` of the data sources: JSON lines, compressed.
#
# Anyone who writes SQL can set the option, so it is never unpickled: reading only creates the classes that are named
# here. The first line has the fields of :class:`Inventory` besides its log directories; then each log directory is a
# line, followed by a line per replica, so that they are never all in memory as objects.


Row = TypeVar("Row")
VIEWS: dict[str, Any] = {view.__name__: view for view in (CopyView, Chunked, ObjectRange)}
WRONG = (ValueError, TypeError, KeyError, IndexError, AttributeError, OSError, EOFError, RuntimeError, zlib.error)
REST = ("settings", "skipped", "errors", "notes", "remote", "unread_bytes")  # of an inventory: the first line
OF_LOG_DIR = [f.name for f in dataclasses.fields(LogDir) if f.init and f.name != "replicas"]


def dumps(inventory: Inventory) -> str:
    """An inventory as text: some 130 bytes per replica of three segments. Cost: 60 us each, and 100 us to read it."""
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=1, mtime=0) as packed:
        for line in _lines(inventory):
            packed.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
    return base64.b85encode(out.getvalue()).decode()


def loads(text: str) -> Inventory:
    """Restore an inventory from :func:`dumps`. Errors: :class:`AuditInputError` for any other text."""
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
                    kind: [(*key, n) for key, n in offsets.items()] for kind, offsets in log_dir.checkpoints.items()
                },
                "whole_checkpoints": sorted(log_dir.whole_checkpoints),
                "unknown_settings": sorted(log_dir.unknown_settings),
                "aside": [*map(_replica_row, log_dir.aside)],
                "small_files": [*map(_file_row, log_dir.small_files)],
            },
        )
        yield from map(_replica_row, log_dir.replicas)


def _place_row(place: StorageLocation | None) -> Sequence[Any] | None:
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
            kind: Offsets({(topic, partition): offset for topic, partition, offset in offsets})
            for kind, offsets in values["checkpoints"].items()
        },
        "whole_checkpoints": frozenset(values["whole_checkpoints"]),
        "unknown_settings": frozenset(values["unknown_settings"]),
        "aside": tuple(map(_replica, values["aside"])),
        "texts": _all(TextFile, values["texts"]),
        "small_files": tuple(map(_file, values["small_files"])),
        "read_at": {folder: tuple(times) for folder, times in values["read_at"].items()},
        "start_files": _all(StartFile, values["start_files"]),
    }
    return LogDir(**{**values, **made, "replicas": replicas.packed()})


def _settings(row: Sequence[Any]) -> BrokerSettings:
    file, size, broker_id, configs, unknown, elsewhere = row
    return BrokerSettings(file, size, broker_id, configs, frozenset(unknown), frozenset(elsewhere))


def _all(cls: type[Row], rows: Iterable[Sequence[Any]]) -> tuple[Row, ...]:
    return tuple(cls(*row) for row in rows)


def _place(row: Sequence[Any] | None) -> StorageLocation | None:
    if row is None:
        return None
    uri, path, view = row
    return StorageLocation(uri, path, None if view is None else VIEWS[view[0]](*view[1:]))


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
