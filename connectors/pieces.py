"""From an inventory to pieces that tasks read: one a file that the wanted tables need, more of a big segment."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from auditor.base.errors import DecodeError
from auditor.connectors import internal_rows, names
from auditor.connectors.arrow import Key
from auditor.connectors.codec.indexes import decode_offset_index
from auditor.connectors.copied.listing import HELD
from auditor.connectors.files import DataFile, Inventory, LogDir, Replica, Skipped
from auditor.connectors.names import METADATA_TOPIC
from auditor.connectors.rows import ErrorPiece, FilePiece, MetadataPiece, Piece, TextPiece
from auditor.connectors.storage import read_file

DEFAULT_SPLIT_BYTES = 128 << 20
MAX_PIECES = 8  # of one segment: each walks the headers before it, so more of them would cost more than they give
OPENING_BYTES = 50_000  # what opening a file costs, as if it were so much longer

_CHECKPOINTS = frozenset({*names.CHECKPOINT_KINDS.values(), names.LEADER_EPOCHS})
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
    """Lets every file through."""
    return True


def plan(
    inventory: Inventory,
    tables: frozenset[str],
    split_size: int = DEFAULT_SPLIT_BYTES,
    wanted: Callable[[FilePiece], bool] = any_file,
) -> list[Piece]:
    """The pieces of live replicas, small files and text dumps that have rows for ``tables``, in a fixed order.

    ``split_size``: bytes of a segment that one piece is to read. Segments behind a URI stay whole, since walking to
    the start of a piece would fetch what lies before it once more. ``wanted``: which files are read, asked before
    they are cut.
    """
    pieces: list[Piece] = []
    held: dict[tuple[str, str], list[Skipped]] = {}
    for item in inventory.skipped:
        if item.reason == HELD:
            held.setdefault((item.log_dir, item.file.rpartition("/")[0]), []).append(item)
    for log_dir in inventory.log_dirs:
        key: Key = (log_dir.cluster_id, log_dir.broker_id, log_dir.name, None, None)
        if log_dir.texts:
            pieces.append(TextPiece(log_dir.place, key, log_dir.texts))
        small = (FilePiece(log_dir.place, key, file) for file in log_dir.small_files if _has(tables, None, file))
        pieces += [piece for piece in small if wanted(piece)]
        for replica in log_dir.replicas:
            pieces += _of_replica(log_dir, replica, tables, split_size, wanted)
            pieces += [p for p in _held(log_dir, replica, held) if "batches" in tables and wanted(p)]
    if "metadata_history" in tables:
        pieces += _metadata(inventory)
    if "decode_errors" in tables:
        pieces += _known_errors(inventory, pieces)
    return pieces


def _metadata(inventory: Inventory) -> Iterator[MetadataPiece]:
    """Of each cluster the replica of ``__cluster_metadata`` that goes furthest, by its newest segment."""
    furthest: dict[str, tuple[tuple[int, int], LogDir, Replica]] = {}
    for log_dir in inventory.log_dirs:
        for replica in log_dir.replicas:
            if replica.topic == METADATA_TOPIC:
                end = (replica.segments[-1].base_offset, replica.segments[-1].size) if replica.segments else (-1, 0)
                known = furthest.get(log_dir.join_key)
                if known is None or end > known[0]:
                    furthest[log_dir.join_key] = (end, log_dir, replica)
    for _end, log_dir, replica in furthest.values():
        key: Key = (log_dir.cluster_id, log_dir.broker_id, log_dir.name, replica.topic, replica.partition)
        yield MetadataPiece(log_dir.place, key, replica)


def in_segments(table: str, topic: str | None) -> bool:
    """Whether the segments of a topic may have rows of a table."""
    return _TOPICS[table] == topic if table in _TOPICS else "log" in _KINDS.get(table, ())


def _has(tables: frozenset[str], topic: str | None, file: DataFile) -> bool:
    """Whether a file may have rows for one of the tables."""
    if "decode_errors" in tables:
        return True
    kinds = any(file.kind in _KINDS.get(table, ()) for table in tables)
    return kinds or (file.kind == "log" and any(_TOPICS.get(table) == topic for table in tables if table in _TOPICS))


def tables_of(piece: Piece, tables: frozenset[str]) -> frozenset[str]:
    """For which tables a piece is to be read so that each of ``tables`` gets the rows that it gets when it is asked for
    alone: a file has rows of some of them, and of an internal topic the errors are those of its records too."""
    if not isinstance(piece, FilePiece):
        return tables
    topic, file = piece.key[3], piece.file
    mine = frozenset(table for table in tables if _has(frozenset({table}), topic, file))
    if "decode_errors" in mine and file.kind == "log":
        mine |= internal_rows.TABLES.get(topic or "", frozenset())
    return mine


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


def _held(log_dir: LogDir, replica: Replica, held: Mapping[tuple[str, str], list[Skipped]]) -> Iterator[FilePiece]:
    """The segments that a copy holds though the broker has deleted them; of topics whose records have no tables."""
    key: Key = (log_dir.cluster_id, log_dir.broker_id, log_dir.name, replica.topic, replica.partition)
    if replica.topic in _TOPICS.values():
        return
    for item in held.get((log_dir.name, replica.folder), ()):
        says = names.data_name(item.file.rpartition("/")[2])
        if says is not None:
            yield FilePiece(log_dir.place, key, DataFile(item.file, item.size, "log", says.offset))


def _cuts(log_dir: LogDir, replica: Replica, file: DataFile, count: int) -> list[int]:
    """Where a segment is cut into ``count`` pieces: at the index entry behind each even share, which points at a batch.

    The index is a hint only: whoever reads a piece walks the headers before it and begins with the first batch at or
    behind the cut, so that a damaged index moves work from one piece to another and changes no row.
    """
    shares = [number * file.size // count for number in range(1, count)]
    index = next((s.index for s in replica.segments if s.name == file.name), None)
    place = file.place or log_dir.place
    data = read_file(place, index.name) if shares and index is not None else None
    if data is None or isinstance(data, DecodeError):
        return shares
    entries, _ = decode_offset_index(data, 0)
    positions = np.unique(entries.log_position[(entries.log_position > 0) & (entries.log_position < file.size)])
    at = np.searchsorted(positions, shares)
    found = {int(positions[k]) if k < len(positions) else share for k, share in zip(at, shares, strict=True)}
    return sorted(found)


def _known_errors(inventory: Inventory, pieces: list[Piece]) -> Iterator[ErrorPiece]:
    """What could not even be listed, and errors of files that the inventory alone reads."""
    read_again = {(piece.key[2], piece.file.name) for piece in pieces if isinstance(piece, FilePiece)}
    of_dir: dict[str, list[DecodeError]] = {}
    for item in inventory.errors:
        if (item.log_dir, item.error.file) not in read_again:
            of_dir.setdefault(item.log_dir, []).append(item.error)
    keys = {log_dir.name: (log_dir.cluster_id, log_dir.broker_id) for log_dir in inventory.log_dirs}
    for name, errors in sorted(of_dir.items()):
        yield ErrorPiece((*keys.get(name, (None, None)), name, None, None), tuple(errors))


def size(piece: Piece) -> int:
    """What a piece costs to read, in bytes."""
    if isinstance(piece, FilePiece):
        return (piece.file.size if piece.stop is None else piece.stop) - piece.start + OPENING_BYTES
    if isinstance(piece, MetadataPiece):
        return sum(file.size for file in piece.replica.files()) + OPENING_BYTES
    return OPENING_BYTES + (sum(text.size for text in piece.texts) if isinstance(piece, TextPiece) else 0)


def spread(pieces: list[Piece], slots: int) -> list[list[Piece]]:
    """The pieces in at most ``slots`` lists of about the same bytes: the largest first, each to the lightest list."""
    heap = [(0, number) for number in range(min(slots, len(pieces)))]
    lists: list[list[Piece]] = [[] for _ in heap]
    for piece in sorted(pieces, key=size, reverse=True):
        load, number = heapq.heappop(heap)
        lists[number].append(piece)
        heapq.heappush(heap, (load + size(piece), number))
    return lists
