"""From decoded files to rows of the tables."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditor.base.at_rest import Fields
from auditor.base.errors import (
    DEFAULT_LIMITS,
    RECORD_AT,
    SEQUENCES,
    AuditInputError,
    DamagedField,
    DecodeError,
    Limits,
)
from auditor.connectors import kafka_names, schema
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec import indexes, small_files
from auditor.connectors.codec.batches import (
    BATCH_DTYPES,
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    FLAW_CRC,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    UNVERIFIED,
    BatchColumns,
    overflowed,
)
from auditor.connectors.codec.cluster_metadata import (
    BROKER_RESOURCE,
    BY_NAME,
    MetadataRecord,
    decode_control_record,
    decode_metadata_record,
    unknown_level,
)
from auditor.connectors.codec.damaged_fields import signed64
from auditor.connectors.codec.gaps import SeekableFile, offset_range
from auditor.connectors.codec.indexes import decode_snapshot
from auditor.connectors.codec.records import Decoded, decode_stored, records_of
from auditor.connectors.codec.segment import Chunk, HeaderHop, StoredChunks, before, read_segment
from auditor.connectors.codec.small_files import may_show
from auditor.connectors.codec.structs import Problem, as_printed
from auditor.connectors.logdir import internal_rows
from auditor.connectors.logdir.files import DataFile, Replica, TextFile
from auditor.connectors.logdir.internal_rows import InternalRows, history, internal_records
from auditor.connectors.logdir.text_folder import TextReplica, read_texts
from auditor.connectors.schema import (
    JSON,
    LOG_KEY,
    TIME,
    CopyShares,
    Key,
    array_of,
    from_columns,
    from_errors,
    from_rows,
    texts,
    with_leader_copy,
)
from auditor.connectors.stores.remote_files import Coming
from auditor.connectors.stores.storage import StorageLocation, open_file, read_file

# Rows of ``batches`` and ``records``.


CODECS = texts([*schema.COMPRESSION_NAMES, None, None, None])  # by the three bits of the attributes
TIMESTAMP_TYPES = texts(["CreateTime", "LogAppendTime", "NoTimestampType"])
# Kafka's ControlRecordType by number; higher numbers are unknown to it too.
CONTROL_TYPES = texts(
    [
        "ABORT",
        "COMMIT",
        "LEADER_CHANGE",
        "SNAPSHOT_HEADER",
        "SNAPSHOT_FOOTER",
        "KRAFT_VERSION",
        "KRAFT_VOTERS",
        "UNKNOWN",
        None,
    ]
)
_UNKNOWN_TYPE, _NO_TYPE = len(CONTROL_TYPES) - 2, len(CONTROL_TYPES) - 1
COLUMNS_OF_FIELDS = {
    "base offset": ("base_offset", "last_offset"),
    "length": ("size",),
    "leader epoch": ("partition_leader_epoch",),
    "magic": ("magic",),
}
_LISTED = ("position", "size", "magic", "base_offset", "last_offset", "record_count", "partition_leader_epoch", "crc",
           "base_timestamp", "max_timestamp", "coordinator_epoch", "producer_id", "producer_epoch", "base_sequence",
           "flaws")  # fmt: skip


def batch_rows(
    key: Key,
    file: str,
    batches: BatchColumns,
    unknown: Collection[str] = (),
    damaged: Sequence[tuple[int, DamagedField]] = (),
    made: pa.Schema = schema.BATCHES,
) -> pa.RecordBatch:
    """Rows of ``batches`` in file order. ``unknown``: columns that a text dump may not show, where none is null;
    ``damaged``: fields of which ``batches`` have the expected value, by the number of the row: rows have the stored
    one; ``made``: the columns to make."""
    attributes = np.where(batches.magic < 2, batches.attributes & (CODEC_MASK | LOG_APPEND_TIME), batches.attributes)
    control = attributes & CONTROL != 0
    horizon = np.where(attributes & DELETE_HORIZON != 0, batches.base_timestamp, -1)
    time_type = np.where(batches.magic == 0, 2, (attributes & LOG_APPEND_TIME != 0).astype(np.int64))
    kind = np.where((batches.control_type < 0) | ~control, _NO_TYPE, np.minimum(batches.control_type, _UNKNOWN_TYPE))
    columns: Fields = {name: getattr(batches, name) for name in _LISTED}
    columns |= {
        "flaws": batches.flaws & ~UNVERIFIED,
        "file": file,
        "crc_ok": array_of(batches.flaws & FLAW_CRC == 0, batches.flaws & UNVERIFIED != 0),
        "compression": CODECS.take(array_of(attributes & CODEC_MASK)),
        "timestamp_type": TIMESTAMP_TYPES.take(array_of(time_type)),
        "is_transactional": attributes & TRANSACTIONAL != 0,
        "is_control": control,
        "control_type": CONTROL_TYPES.take(array_of(kind)),
        "last_sequence": sequence_after(batches.base_sequence, batches.last_offset - batches.base_offset),
        "delete_horizon": horizon,
    }
    if damaged:
        columns |= _as_stored(columns, damaged)
    if (beyond := overflowed(batches)).any():
        columns["last_offset"] = array_of(columns["last_offset"], beyond)
    for name in unknown:
        column = columns.get(name)
        if isinstance(column, np.ndarray) and name != "is_control":
            columns[name] = array_of(column, column == (0 if name == "crc" else -1))
    columns |= {new: columns[old] for old, new in schema.RENAMED["batches"].items()}
    return from_columns(made, key, len(batches.position), columns)


def _as_stored(columns: Fields, damaged: Sequence[tuple[int, DamagedField]]) -> Fields:
    # Columns with stored values, and ``inferred`` with the expected ones.
    inferred: list[dict[str, int]] = [{} for _ in columns["position"]]
    stored: Fields = {}
    for number, field in damaged:
        by = field.stored - field.expected
        for name in COLUMNS_OF_FIELDS[field.name]:
            column = stored.setdefault(name, columns[name].astype(np.int64))
            inferred[number][name] = int(column[number])
            column[number] = signed64(int(column[number]) + by)
    return stored | {"inferred": pa.array([json.dumps(names) if names else None for names in inferred], pa.string())}


def batches_of(rows: pa.RecordBatch) -> BatchColumns:
    """The inverse of :func:`batch_rows`, for rows of one file.

    A null becomes -1, an unverified checksum :data:`UNVERIFIED`. ``flaws`` are those in the table.
    """
    codec = pc.fill_null(pc.index_in(rows.column("compression"), CODECS.slice(0, len(schema.COMPRESSION_NAMES))), 7)
    bits = np.asarray(codec).astype(np.int64)
    bits |= np.where(_is(rows, "timestamp_type", "LogAppendTime"), LOG_APPEND_TIME, 0)
    for name, bit in (("is_transactional", TRANSACTIONAL), ("is_control", CONTROL)):
        bits |= np.where(np.asarray(pc.fill_null(rows.column(name), False)), bit, 0)
    bits |= np.where(_numbers(rows, "delete_horizon") >= 0, DELETE_HORIZON, 0)
    flaws = _numbers(rows, "flaws", 0) & ~(FLAW_CRC | UNVERIFIED)
    crc_ok = rows.column("crc_ok")
    flaws |= np.where(np.asarray(pc.fill_null(crc_ok, True)), 0, FLAW_CRC)
    flaws |= np.where(np.asarray(crc_ok.is_null()), UNVERIFIED, 0)
    columns = {name: _numbers(rows, name, 0 if name == "crc" else -1) for name in _LISTED if name != "flaws"}
    for number in np.flatnonzero(np.asarray(rows.column("inferred").is_valid())).tolist():
        for name, value in _inferred(rows.column("inferred")[number].as_py()):
            columns[name] = columns[name].copy()
            columns[name][number] = value
    uncounted = np.asarray(rows.column("record_count").is_null())  # as in text dumps: computed from the offsets
    columns["record_count"] = np.where(
        uncounted, columns["last_offset"] - columns["base_offset"] + 1, columns["record_count"]
    )
    kind = pc.fill_null(pc.index_in(rows.column("control_type"), CONTROL_TYPES.slice(0, _NO_TYPE)), -1)
    columns |= {"attributes": bits, "flaws": flaws, "control_type": np.asarray(kind)}
    dtypes = zip(BatchColumns._fields, BATCH_DTYPES, strict=True)
    return BatchColumns(**{name: columns[name].astype(dtype) for name, dtype in dtypes})


def _inferred(text: str) -> Iterator[tuple[str, int]]:
    # A table may come from anywhere: what no audit writes is ignored.
    try:
        named = json.loads(text)
    except ValueError:
        return
    for name in itertools.chain.from_iterable(COLUMNS_OF_FIELDS.values()):
        value = named.get(name) if isinstance(named, dict) else None
        if isinstance(value, int) and signed64(value) == value:
            yield name, value


def _is(rows: pa.RecordBatch, name: str, value: str) -> np.ndarray:
    return np.asarray(pc.fill_null(pc.equal(rows.column(name), value), False))


def _numbers(rows: pa.RecordBatch, name: str, none: int = -1) -> np.ndarray:
    # Whole numbers, or times in ms.
    column = rows.column(name)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    return np.asarray(pc.fill_null(column.cast(pa.int64()), none))


def sequence_after(base: np.ndarray, increment: np.ndarray) -> np.ndarray:
    """The sequence ``increment`` records after ``base``, -1 if that is -1 (DefaultRecordBatch.incrementSequence)."""
    following = base.astype(np.int64) + increment
    wrapped = np.where(following >= SEQUENCES, following - SEQUENCES, following)
    return np.where(base == -1, -1, wrapped).astype(np.int32)


def record_rows(
    key: Key, file: str, batches: BatchColumns, runs: Iterator[Decoded], made: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Rows of the records of ``batches``, a run at a time; ``made``: the columns to make."""
    for run in runs:
        records, of, present = run.records, batches.take(run.rows), run.summary.present
        columns: Fields = {
            name: getattr(records, name) for name in ("offset", "timestamp", "header_count", "sequence", "flaws")
        }
        columns |= {
            "key_bytes": records.key_size,
            "value_bytes": records.value_size,
            "file": file,
            "position": np.repeat(of.position, present),
            "base_offset": np.repeat(of.base_offset, present),
            "record_index": records.index,
            "producer_id": np.repeat(of.producer_id, present),
            "producer_epoch": np.repeat(of.producer_epoch.astype(np.int32), present),
            "is_control": np.repeat((of.attributes & CONTROL != 0) & (of.magic == 2), present),
        }
        if "key" in made.names:
            columns["key"] = _bytes(records.payload, records.key_start, records.key_size)
        if "value" in made.names:
            columns["value"] = _bytes(records.payload, records.value_start, records.value_size)
        yield from_columns(made, key, len(records.offset), columns)


def _bytes(payload: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> pa.Array:
    # Null if the size is below 0 or the start is unknown.
    view = payload.data
    slices = (
        bytes(view[start : start + size]) if start >= 0 and size >= 0 else None
        for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
    )
    return pa.array(slices, pa.binary())


# From a file to rows of the decoded tables (:mod:`auditor.connectors.schema`), as Arrow record batches, for Spark's
# data sources and ``auditor decode``. Bad bytes raise nothing: they are rows of ``decode_errors``.


PART_BYTES = 1 << 20
NO_RECORDS = "a copy without payload has no records: name the directory that it was taken from"

Rows = Iterator[tuple[str, pa.RecordBatch]]  # table, and rows of it
Content = tuple[pa.RecordBatch | None, list[DecodeError]]


@dataclass(frozen=True, slots=True)
class FilePiece:
    """A file of the log directory at ``place``, or the batches of a segment that start in ``[start, stop)``.

    ``start`` and ``stop`` may be any bytes: batches count by their position in the walk from the segment's start.
    ``next_base`` is the base offset of the next segment, -1 for none or unknown; ``begins`` the lowest offset at
    ``start`` if a batch is known to start there, else -1.
    """

    place: StorageLocation
    key: Key
    file: DataFile
    start: int = 0
    stop: int | None = None
    next_base: int = -1
    begins: int = -1

    def coming(self) -> list[Coming]:
        """The file, if it is in a store."""
        where = self.place
        plain = where.uri and where.view is None
        return [Coming(where.uri, where.child(self.file.name).path, self.file.size)] if plain else []


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A directory of text dumps; topic and partition in ``key`` are those in the dumps."""

    place: StorageLocation
    key: Key
    texts: tuple[TextFile, ...]


@dataclass(frozen=True, slots=True)
class ErrorPiece:
    """Errors that are known before anything is read."""

    key: Key
    errors: tuple[DecodeError, ...]


@dataclass(frozen=True, slots=True)
class MetadataPiece:
    """A whole replica of ``__cluster_metadata``, whose records are only meaningful in sequence."""

    place: StorageLocation
    key: Key
    replica: Replica


Piece = FilePiece | TextPiece | ErrorPiece | MetadataPiece


class How(NamedTuple):
    """How to read. ``payload``: keys and values of records too; ``deep``: find bodies that cannot be opened;
    ``columns``: by table those that are asked for, all where a table is not named; ``where``: of the batches whose rows
    are asked for, by columns of :data:`BY_HEADER`."""

    limits: Limits = DEFAULT_LIMITS
    payload: bool = False
    deep: bool = False
    columns: Mapping[str, Sequence[str]] = {}
    where: pc.Expression | None = None

    def counts(self, table: str) -> bool:
        """Whether the rows of a table tell which copy of a log counts."""
        return "leader_copy" in self.columns.get(table, ("leader_copy",))

    def made(self, table: str) -> pa.Schema:
        """The columns to make of a table: those asked for, and those by which it is known which copy counts."""
        made = schema.TABLES[table].made(self.payload)
        if table not in self.columns:
            return made
        by = ("log_dir", "topic", "partition", *(schema.TABLES[table].copy_by or ())) if self.counts(table) else ()
        return pa.schema([field for field in made if field.name in {*self.columns[table], *by}])

    def asked(self, table: str, rows: pa.RecordBatch, shares: CopyShares | None) -> pa.RecordBatch:
        """The columns of a query of some rows of one copy; ``shares``: as of :func:`with_leader_copy`."""
        rows = with_leader_copy(table, rows, shares) if self.counts(table) else rows
        return rows.select(self.columns[table]) if table in self.columns else rows


def read_piece(piece: Piece, wanted: frozenset[str], how: How) -> Rows:
    """The rows of a piece for the tables ``wanted``, in file order.

    Cost: the headers for ``batches``; every record for ``records``, the tables of internal topics, and ``how.deep``. A
    piece that starts inside a segment walks the headers before it too. Memory: a chunk of a segment.
    """
    if isinstance(piece, ErrorPiece):
        tables = _errors(piece.key, piece.errors)
    elif isinstance(piece, TextPiece):
        tables = _texts(piece, how)
    elif isinstance(piece, MetadataPiece):
        tables = (("metadata_history", rows) for rows in history(piece.place, piece.key, piece.replica, how.limits))
    elif piece.file.kind in ("log", "checkpoint"):
        tables = _segment(piece, wanted, how)
    else:
        tables = _small(piece, how)
    return (item for item in tables if item[0] in wanted and item[1].num_rows)


def chosen(columns: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Some of a table's columns. Errors: :class:`AuditInputError` for an unknown one."""
    if wrong := [name for name in names if name not in columns.names]:
        raise AuditInputError(f"no column {wrong[0]!r}; there are {', '.join(columns.names)}")
    return pa.schema([columns.field(name) for name in names])


def _errors(key: Key, errors: tuple[DecodeError, ...] | list[DecodeError]) -> Rows:
    if errors:
        yield "decode_errors", from_errors(key, errors)


def _segment(piece: FilePiece, wanted: frozenset[str], how: How) -> Rows:
    # Snapshots of __cluster_metadata have the same format.
    opened = open_file(piece.place, piece.file.name)
    if isinstance(opened, DecodeError):
        if piece.start == 0:  # reported once, for any number of pieces
            yield from _errors(piece.key, [opened._replace(length=piece.file.size)])
        return
    if isinstance(opened, StoredChunks) and "records" in wanted and piece.start == 0:
        yield from _errors(piece.key, [DecodeError(piece.file.name, 0, piece.file.size, "unreadable", NO_RECORDS)])
    here = not piece.place.uri and not isinstance(opened, StoredChunks)  # a store would answer a request per header
    if how.where is not None and here and _nothing_matches(opened, piece, how):
        opened.close()
        return
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
            keep_bytes="records" in wanted or (collected is not None and topic in internal_rows.PACKED),
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
    # Nothing in an index is trusted, so that a damaged one cannot change what is decoded.
    end, offsets = 0, offset_range(piece.file.offset, piece.next_base)
    if piece.begins >= 0:
        return piece.start, (piece.begins, offsets[1])
    if piece.start:
        walk = read_segment(opened, piece.file.size, file=piece.file.name, stop=piece.start, crc=False, offsets=offsets)
        for chunk in walk:
            end, offsets = chunk.end, (chunk.next_offset, offsets[1])
    return end, offsets


# Columns of ``batches`` that headers alone give, by the table whose rows have them with the same values.
OF_BOTH = ("position", "base_offset", "producer_id", "producer_epoch")
BY_HEADER = {
    "records": OF_BOTH,
    "batches": (*OF_BOTH, "last_offset", "record_count", "base_timestamp", "max_timestamp"),
}


def _matching(piece: FilePiece, batches: BatchColumns, how: How) -> BatchColumns:
    if how.where is None:
        return batches
    rows = batch_rows(piece.key, piece.file.name, batches, made=chosen(schema.BATCHES, BY_HEADER["batches"]))
    numbered = pa.table([*rows.columns, np.arange(rows.num_rows)], [*rows.schema.names, "row"])
    return batches.take(np.asarray(numbered.filter(how.where).column("row")))


def _nothing_matches(opened: SeekableFile, piece: FilePiece, how: How) -> bool:
    # Shown by the headers of large batches alone, which the hop accepts only where they follow each other to the end.
    hop = HeaderHop(opened, piece.file.size, how.limits, 0, offset_range(piece.file.offset, piece.next_base))
    some = any(len(_matching(piece, walking.columns_of(rows), how).position) for rows in hop.chunks())
    return not some and hop.end == piece.file.size


def _chunk(piece: FilePiece, chunk: Chunk, collected: InternalRows | None, wanted: frozenset[str], how: How) -> Rows:
    name, key = piece.file.name, piece.key
    yield from _errors(key, _overflows(name, chunk.batches))
    if "batches" in wanted:
        yield "batches", batch_rows(key, name, chunk.batches, (), chunk.damaged_fields(), how.made("batches"))
    if chunk.data is not None and "records" in wanted:
        made, batches = how.made("records"), _matching(piece, chunk.batches, how)
        payload = not {"key", "value"}.isdisjoint(made.names)
        runs = decode_stored(chunk.data, chunk.origin, batches, limits=how.limits, payload=payload)
        for rows in record_rows(key, name, batches, runs, made):
            yield "records", rows
    if collected is None:
        yield from _errors(key, [*chunk.errors, *chunk.body_errors])
        return
    for part in parts(chunk):
        bodies = collected.add(name, part)  # errors of bodies, and of records that do not parse
        bodies += collected.errors()
        collected.unreadable.clear()
        collected.unknown.clear()
        yield from collected.drain(key)
        yield from _errors(key, bodies)
    yield from _errors(key, chunk.errors)


def _overflows(file: str, batches: BatchColumns) -> list[DecodeError]:
    columns = batches.position, batches.size, batches.base_offset, batches.last_offset
    return [
        DecodeError(
            file, position, size, "bad_value", f"the last offset, {base + signed64(last - base)}, exceeds 64 bits"
        )
        for position, size, base, last in zip(*(c[overflowed(batches)].tolist() for c in columns), strict=True)
    ]


def parts(chunk: Chunk) -> Iterator[Chunk]:
    """Split a chunk into parts of about :data:`PART_BYTES` of records: rows of tables are larger than their records.

    The size of a decompressed batch is unknown before, so each is a part. Parts have only rows and raw bytes.
    """
    compressed = chunk.rows[:, walking.ATTRIBUTES] & walking.CODEC_MASK != 0
    weight = np.where(compressed, PART_BYTES, chunk.rows[:, walking.SIZE])
    number = (np.cumsum(weight) - weight) // PART_BYTES
    cuts = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(number)]
    for first, behind in itertools.pairwise(cuts):
        raw = chunk.raw[first:behind] if chunk.raw is not None else None
        yield replace(chunk, rows=chunk.rows[first:behind], raw=raw, errors=[], body_errors=[], summary=None)


def _small(piece: FilePiece, how: How) -> Rows:
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
    return _snapshot_rows(piece.key, piece.file.name, piece.file.offset, entries), errors


def _snapshot_rows(key: Key, file: str, offset: int, entries: indexes.ProducerEntries) -> pa.RecordBatch:
    columns = entries._asdict() | {"file": file, "snapshot_offset": offset}
    return from_columns(schema.PRODUCER_SNAPSHOTS, key, len(entries.producer_id), columns)


def _index(piece: FilePiece, data: bytes) -> Content:
    decode = indexes.decode_offset_index if piece.file.kind == "index" else indexes.decode_time_index
    entries, errors = decode(data, max(piece.file.offset, 0), piece.file.name)
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


# Files without a table: the name of their value (None: a tuple with names), and the decoder.
PROPERTY_KINDS: dict[str, tuple[str | None, Callable[[bytes, str], tuple[Any, list[DecodeError]]]]] = {
    kafka_names.META: (None, small_files.decode_meta_properties),
    kafka_names.PARTITION_METADATA: ("topic_id", small_files.decode_partition_metadata),
    kafka_names.QUORUM_STATE: (None, small_files.decode_quorum_state),
    kafka_names.CLEAN_SHUTDOWN: ("broker_epoch", small_files.decode_clean_shutdown),
}


def _only_errors(decode: Callable[[bytes, str], tuple[object, list[DecodeError]]]) -> Callable[..., Content]:
    return lambda piece, data: (None, decode(data, piece.file.name)[1])


_SMALL: dict[str, tuple[str, Callable[[FilePiece, bytes], Content]]] = {
    "snapshot": ("producer_snapshots", _snapshot),
    "index": ("index_entries", _index),
    "timeindex": ("index_entries", _index),
    "txnindex": ("aborted_transactions", _txn_index),
    kafka_names.LEADER_EPOCHS: ("checkpoints", _leader_epochs),
    **{kind: ("", _only_errors(decode)) for kind, (_, decode) in PROPERTY_KINDS.items()},
} | dict.fromkeys(kafka_names.CHECKPOINT_KINDS.values(), ("checkpoints", _offset_checkpoint))


def _texts(piece: TextPiece, how: How) -> Rows:
    folder = read_texts(piece.place, piece.texts, how.limits)
    for replica in folder.replicas:
        yield from _text_replica((*piece.key[:3], replica.topic, replica.partition), replica)
    yield from _errors(piece.key, folder.errors)


def _text_replica(key: Key, replica: TextReplica) -> Rows:
    for segment in replica.segments:
        yield "batches", batch_rows(key, segment.file, segment.batches, segment.cannot_show)
        yield from _errors(key, segment.errors)
    for shown in replica.snapshots:
        yield "producer_snapshots", _snapshot_rows(key, shown.file, shown.offset, shown.entries)
    for item in replica.indexes:
        if isinstance(item.entries, indexes.AbortedTransactions):
            yield "aborted_transactions", _aborted_rows(key, item.file, item.entries)
        else:
            yield "index_entries", _index_rows(key, item.file, item.entries)
    for table, rows in replica.rows.items():
        yield table, from_rows(schema.DECODED[table], key, rows)
    yield from _errors(key, replica.unreadable)


# Single files without a table in the contract: KRaft's records, and small settings.


FIELDS = pa.field("fields", pa.string(), metadata=JSON)
METADATA_RECORDS = pa.schema(
    [
        *LOG_KEY,
        ("file", pa.string()),
        ("position", pa.int64()),
        ("offset", pa.int64()),
        ("timestamp", TIME),
        ("name", pa.string()),
        ("version", pa.int32()),
        FIELDS,
    ]
)
PROPERTIES = pa.schema([*LOG_KEY, ("file", pa.string()), FIELDS])
_ADDRESSES = "endPoints"


def metadata_records(piece: FilePiece, how: How) -> Rows:
    """The records of a segment or snapshot of ``__cluster_metadata`` by name, in chunks.

    Possible passwords and addresses are withheld unless ``how.payload``; records with secrets show only their name.
    """
    opened = open_file(piece.place, piece.file.name)
    if isinstance(opened, DecodeError):
        yield "decode_errors", from_errors(piece.key, [opened])
        return
    limits = how.limits.counting()
    try:
        for chunk in read_segment(opened, piece.file.size, file=piece.file.name, limits=limits, raw=True):
            rows: list[tuple[Any, ...]] = []
            errors = list(chunk.errors)
            for row, record in records_of(chunk.raw or [], chunk.batches, file=piece.file.name, limits=limits):
                if isinstance(record, DecodeError):
                    errors.append(record)
                    continue
                place = (piece.file.name, int(chunk.batches.position[row]))
                control = bool(chunk.batches.attributes[row] & CONTROL)
                changes = (
                    decode_control_record(record.key, record.value) if control else decode_metadata_record(record.value)
                )
                problem = changes if isinstance(changes, Problem) else unknown_level(changes)
                if problem is not None:
                    detail = f"{RECORD_AT} {record.offset}: {problem.detail}"
                    errors.append(DecodeError(*place, int(chunk.batches.size[row]), problem.reason, detail))
                if not isinstance(changes, Problem):
                    fields = json.dumps(shown_fields(changes, how.payload), ensure_ascii=False)
                    rows.append((*place, record.offset, record.timestamp, changes.name, changes.version, fields))
            yield "metadata_records", from_rows(METADATA_RECORDS, piece.key, rows)
            yield "decode_errors", from_errors(piece.key, errors)
    finally:
        opened.close()


def shown_fields(record: MetadataRecord, payload: bool) -> Fields:
    """The fields that may be shown, as Kafka's tool prints them, without absent tagged ones."""
    if record.name not in BY_NAME:
        return {}
    fields = as_printed(BY_NAME[record.name], record.version, record.fields, payload=True)
    if payload:
        return fields
    fields.pop(_ADDRESSES, None)
    if record.name == "ConfigRecord" and fields["resourceType"] == BROKER_RESOURCE and not may_show(fields["name"]):
        fields["value"] = None
    if record.name == "VotersRecord":
        fields["voters"] = [{k: v for k, v in voter.items() if k != "endpoints"} for voter in fields["voters"]]
    return fields


def properties(piece: FilePiece, how: How) -> Rows:
    """The content of one of the small files of :data:`PROPERTY_KINDS`, in one row."""
    data = read_file(piece.place, piece.file.name, limit=how.limits.small_file(piece.file.kind))
    if isinstance(data, DecodeError):
        yield "decode_errors", from_errors(piece.key, [data])
        return
    name, decode = PROPERTY_KINDS[piece.file.kind]
    value, errors = decode(data, piece.file.name)
    fields = {name: value} if name is not None else {} if value is None else value._asdict()
    text = json.dumps(fields, ensure_ascii=False)
    yield "properties", from_rows(PROPERTIES, piece.key, [(piece.file.name, text)])
    yield "decode_errors", from_errors(piece.key, errors)


def unlisted_rows(piece: FilePiece, how: How) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of a file that has no table in the contract."""
    return properties(piece, how) if piece.file.kind in PROPERTY_KINDS else metadata_records(piece, how)
