"""From a file to rows of the decoded tables (:mod:`auditor.connectors.schema`), as Arrow record batches.

What Spark's data sources and ``auditor decode`` share. Nothing raises on bad bytes: they are rows of ``decode_errors``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from auditor.base.errors import DEFAULT_LIMITS, AuditInputError, DecodeError, Limits
from auditor.connectors import internal_rows, names, schema
from auditor.connectors.ahead import Coming
from auditor.connectors.arrow import Key, from_columns, from_errors, from_rows
from auditor.connectors.batch_rows import batch_rows, record_rows
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec import indexes, small_files
from auditor.connectors.codec.gaps import offset_range
from auditor.connectors.codec.indexes import decode_snapshot
from auditor.connectors.codec.records import decode_stored
from auditor.connectors.codec.segment import Chunk, SeekableFile, StoredChunks, before, read_segment
from auditor.connectors.files import DataFile, Replica, TextFile
from auditor.connectors.internal_columns import internal_records
from auditor.connectors.internal_rows import InternalRows
from auditor.connectors.metadata_history import history
from auditor.connectors.storage import Place, open_file, read_file
from auditor.connectors.text.folder import TextReplica, read_texts

PART_BYTES = 1 << 20
NO_RECORDS = "a copy without payload has no records: name the directory that it was taken from"

Rows = Iterator[tuple[str, pa.RecordBatch]]  # table, and rows of it
Content = tuple[pa.RecordBatch | None, list[DecodeError]]


@dataclass(frozen=True, slots=True)
class FilePiece:
    """A file of the log directory at ``place``, or of a segment the batches that begin in ``[start, stop)``.

    ``start`` and ``stop`` may be any bytes: what counts is where the walk from the segment's first batch comes to.
    ``next_base`` is the base offset of the segment behind it, -1 where there is none or it is not known; ``begins`` the
    lowest offset at ``start`` where somebody has seen that a batch begins there, -1 where nobody has.
    """

    place: Place
    key: Key
    file: DataFile
    start: int = 0
    stop: int | None = None
    next_base: int = -1
    begins: int = -1

    def coming(self) -> list[Coming]:
        """The file, where it lies in a store."""
        where = self.place
        plain = where.uri and where.view is None
        return [Coming(where.uri, where.child(self.file.name).path, self.file.size)] if plain else []


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A folder of text dumps; topic and partition in ``key`` are what the dumps show."""

    place: Place
    key: Key
    texts: tuple[TextFile, ...]


@dataclass(frozen=True, slots=True)
class ErrorPiece:
    """Errors that are known before anything is read."""

    key: Key
    errors: tuple[DecodeError, ...]


@dataclass(frozen=True, slots=True)
class MetadataPiece:
    """A whole replica of ``__cluster_metadata``, whose records only make sense one after the other."""

    place: Place
    key: Key
    replica: Replica


Piece = FilePiece | TextPiece | ErrorPiece | MetadataPiece


class How(NamedTuple):
    """How to read. ``payload``: keys and values of records too; ``deep``: look for bodies that cannot be opened."""

    limits: Limits = DEFAULT_LIMITS
    payload: bool = False
    deep: bool = False


def read_piece(piece: Piece, wanted: frozenset[str], how: How) -> Rows:
    """The rows of a piece for the tables ``wanted``, in file order.

    Cost: the headers for ``batches``; every record for ``records``, the tables of internal topics, and ``how.deep``.
    A piece that begins inside of a segment walks the headers before it too. Memory: a chunk of a segment.
    """
    if isinstance(piece, ErrorPiece):
        found = _errors(piece.key, piece.errors)
    elif isinstance(piece, TextPiece):
        found = _texts(piece, how)
    elif isinstance(piece, MetadataPiece):
        found = (("metadata_history", rows) for rows in history(piece.place, piece.key, piece.replica, how.limits))
    elif piece.file.kind in ("log", "checkpoint"):
        found = _segment(piece, wanted, how)
    else:
        found = _small(piece, how)
    return (item for item in found if item[0] in wanted and item[1].num_rows)


def table_schema(table: str, payload: bool = False) -> pa.Schema:
    """The schema of a decoded table; ``payload`` as in :class:`How`."""
    wanted = schema.DECODED[table]
    return pa.schema([*wanted, *schema.PAYLOAD]) if payload and table == "records" else wanted


def chosen(columns: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Some of a table's columns. Errors: :class:`AuditInputError` for one that it has not got."""
    if wrong := [name for name in names if name not in columns.names]:
        raise AuditInputError(f"no column {wrong[0]!r}; there are {', '.join(columns.names)}")
    return pa.schema([columns.field(name) for name in names])


def _errors(key: Key, errors: tuple[DecodeError, ...] | list[DecodeError]) -> Rows:
    if errors:
        yield "decode_errors", from_errors(key, errors)


def _segment(piece: FilePiece, wanted: frozenset[str], how: How) -> Rows:
    """A segment, or a snapshot of ``__cluster_metadata``, which is built alike."""
    opened = open_file(piece.place, piece.file.name)
    if isinstance(opened, DecodeError):
        if piece.start == 0:  # reported once, however many pieces there are
            yield from _errors(piece.key, [opened._replace(length=piece.file.size)])
        return
    if isinstance(opened, StoredChunks) and "records" in wanted and piece.start == 0:
        yield from _errors(piece.key, [DecodeError(piece.file.name, 0, piece.file.size, "unreadable", NO_RECORDS)])
    how = how._replace(limits=how.limits.counting())
    topic = piece.key[3] or ""
    tables = internal_rows.TABLES.get(topic, frozenset())
    needed = wanted & tables or (tables and (how.deep or wanted == {"decode_errors"}))
    collected = internal_records(topic, how.limits, payload=how.payload) if needed else None
    try:
        start, offsets = _first_batch(opened, piece)
        chunks = read_segment(
            opened,
            piece.file.size,
            file=piece.file.name,
            start=start,
            stop=piece.stop,
            limits=how.limits,
            records=how.deep,
            raw=collected is not None and topic not in internal_rows.PACKED,
            held="records" in wanted or (collected is not None and topic in internal_rows.PACKED),
            crc="batches" in wanted,
            offsets=offsets,
        )
        if piece.file.place is not None and piece.next_base >= 0:
            chunks = before(chunks, piece.next_base)  # remote segments of different leaders overlap
        for chunk in chunks:
            yield from _chunk(piece, chunk, collected, wanted, how)
    finally:
        opened.close()


def _first_batch(opened: SeekableFile, piece: FilePiece) -> tuple[int, tuple[int, int]]:
    """Where the first batch at or behind ``piece.start`` begins, as a walk over all headers before it finds it, and the
    offsets that are possible from there on.

    Nothing that an index says is trusted for this, so that no damage to one can change what is decoded.
    """
    end, offsets = 0, offset_range(piece.file.offset, piece.next_base)
    if piece.begins >= 0:
        return piece.start, (piece.begins, offsets[1])
    if piece.start:
        walk = read_segment(opened, piece.file.size, file=piece.file.name, stop=piece.start, crc=False, offsets=offsets)
        for chunk in walk:
            end, offsets = chunk.end, (chunk.next_offset, offsets[1])
    return end, offsets


def _chunk(piece: FilePiece, chunk: Chunk, collected: InternalRows | None, wanted: frozenset[str], how: How) -> Rows:
    name, key = piece.file.name, piece.key
    if "batches" in wanted:
        yield "batches", batch_rows(key, name, chunk.batches)
    if chunk.held is not None and "records" in wanted:
        runs = decode_stored(chunk.held, chunk.origin, chunk.batches, limits=how.limits, payload=how.payload)
        for rows in record_rows(key, name, chunk.batches, runs, how.payload):
            yield "records", rows
    if collected is None:
        yield from _errors(key, [*chunk.errors, *chunk.body_errors])
        return
    for part in parts(chunk):
        bodies = collected.add(name, part)  # the errors of bodies, and records that do not parse
        bodies += collected.errors()
        collected.unreadable.clear()
        collected.unknown.clear()
        yield from collected.drain(key)
        yield from _errors(key, bodies)
    yield from _errors(key, chunk.errors)


def parts(chunk: Chunk) -> Iterator[Chunk]:
    """A chunk in pieces of about :data:`PART_BYTES` of records: rows of tables are larger than what they are made of.

    What a compressed batch becomes nobody knows before, so each is a piece. The pieces have rows and raw bytes alone.
    """
    compressed = chunk.rows[:, walking.ATTRIBUTES] & walking.CODEC_MASK != 0
    weight = np.where(compressed, PART_BYTES, chunk.rows[:, walking.SIZE])
    number = (np.cumsum(weight) - weight) // PART_BYTES
    cuts = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(number)]
    for first, behind in itertools.pairwise(cuts):
        raw = chunk.raw[first:behind] if chunk.raw is not None else None
        yield replace(chunk, rows=chunk.rows[first:behind], raw=raw, errors=[], body_errors=[], summary=None)


def _small(piece: FilePiece, how: How) -> Rows:
    """A file that is read whole: all but segments."""
    data = read_file(piece.place, piece.file.name, limit=how.limits.small_file(piece.file.kind))
    if isinstance(data, DecodeError):
        yield from _errors(piece.key, [data])
        return
    table, decode = _SMALL[piece.file.kind]
    rows, errors = decode(piece, data)
    if rows is not None:
        yield table, rows
    yield from _errors(piece.key, errors)


def _snapshot(piece: FilePiece, data: bytes) -> Content:
    entries, errors = decode_snapshot(data, piece.file.name)
    columns = entries._asdict() | {"file": piece.file.name, "snapshot_offset": piece.file.offset}
    return from_columns(schema.PRODUCER_SNAPSHOTS, piece.key, len(entries.producer_id), columns), errors


def _offset_index(piece: FilePiece, data: bytes) -> Content:
    entries, errors = indexes.decode_offset_index(data, max(piece.file.offset, 0), piece.file.name)
    return _index_rows(piece.key, piece.file.name, entries), errors


def _time_index(piece: FilePiece, data: bytes) -> Content:
    entries, errors = indexes.decode_time_index(data, max(piece.file.offset, 0), piece.file.name)
    return _index_rows(piece.key, piece.file.name, entries), errors


def _txn_index(piece: FilePiece, data: bytes) -> Content:
    entries, errors = indexes.decode_txn_index(data, piece.file.name)
    return _aborted_rows(piece.key, piece.file.name, entries), errors


def _index_rows(key: Key, file: str, entries: indexes.OffsetIndex | indexes.TimeIndex) -> pa.RecordBatch:
    kind = "offset" if isinstance(entries, indexes.OffsetIndex) else "time"
    columns = entries._asdict() | {"file": file, "kind": kind}
    return from_columns(schema.INDEX_ENTRIES, key, len(entries.position), columns)


def _aborted_rows(key: Key, file: str, entries: indexes.AbortedTransactions) -> pa.RecordBatch:
    columns = entries._asdict() | {"file": file}
    return from_columns(schema.ABORTED_TRANSACTIONS, key, len(entries.position), columns)


def _offset_checkpoint(piece: FilePiece, data: bytes) -> Content:
    offsets, errors = small_files.decode_offset_checkpoint(data, piece.file.name)
    rows = [(*log, piece.file.name, piece.file.kind, offset, None) for log, offset in offsets.items()]
    return from_rows(schema.CHECKPOINTS, piece.key[:3], rows), errors


def _leader_epochs(piece: FilePiece, data: bytes) -> Content:
    starts, errors = small_files.decode_leader_epochs(data, piece.file.name)
    rows = [(piece.file.name, "leader-epoch", start.start_offset, start.epoch) for start in starts]
    return from_rows(schema.CHECKPOINTS, piece.key, rows), errors


def _only_errors(decode: Callable[[bytes, str], tuple[object, list[DecodeError]]]) -> Callable[..., Content]:
    """For a file without a table of its own."""
    return lambda piece, data: (None, decode(data, piece.file.name)[1])


_SMALL: dict[str, tuple[str, Callable[[FilePiece, bytes], Content]]] = {
    "snapshot": ("producer_snapshots", _snapshot),
    "index": ("index_entries", _offset_index),
    "timeindex": ("index_entries", _time_index),
    "txnindex": ("aborted_transactions", _txn_index),
    names.LEADER_EPOCHS: ("checkpoints", _leader_epochs),
    names.PARTITION_METADATA: ("", _only_errors(small_files.decode_partition_metadata)),
    names.QUORUM_STATE: ("", _only_errors(small_files.decode_quorum_state)),
    names.META: ("", _only_errors(small_files.decode_meta_properties)),
    names.CLEAN_SHUTDOWN: ("", _only_errors(small_files.decode_clean_shutdown)),
} | dict.fromkeys(names.CHECKPOINT_KINDS.values(), ("checkpoints", _offset_checkpoint))


def _texts(piece: TextPiece, how: How) -> Rows:
    """What a folder of dumps shows, each log once."""
    folder = read_texts(piece.place, piece.texts, how.limits)
    for replica in folder.replicas:
        yield from _text_replica((*piece.key[:3], replica.topic, replica.partition), replica)
    yield from _errors(piece.key, folder.errors)


def _text_replica(key: Key, replica: TextReplica) -> Rows:
    for segment in replica.segments:
        yield "batches", batch_rows(key, segment.file, segment.batches, segment.cannot_show)
        yield from _errors(key, segment.errors)
    for shown in replica.snapshots:
        columns = shown.entries._asdict() | {"file": shown.file, "snapshot_offset": shown.offset}
        yield (
            "producer_snapshots",
            from_columns(schema.PRODUCER_SNAPSHOTS, key, len(shown.entries.producer_id), columns),
        )
    for item in replica.indexes:
        if isinstance(item.entries, indexes.AbortedTransactions):
            yield "aborted_transactions", _aborted_rows(key, item.file, item.entries)
        else:
            yield "index_entries", _index_rows(key, item.file, item.entries)
    for table, rows in replica.rows.items():
        yield table, from_rows(schema.DECODED[table], key, rows)
    yield from _errors(key, replica.unreadable)
