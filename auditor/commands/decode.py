"""``auditor decode FILE...``: one file's content as JSON lines, without Spark and without a JVM.

Each line has the columns of one table of contract section 4, in their order. A line of another table than the file's
own (what could not be read: ``decode_errors``) has the key ``table`` in front of them, as have all lines of a text dump
or of the records of an internal topic, which may hold several tables.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from auditor.base.errors import DEFAULT_LIMITS, AuditInputError, DecodeError, Limits, is_unread
from auditor.commands.arguments import add_limits, examples, utf8_stdout
from auditor.commands.rowtext import json_lines, table_lines
from auditor.connectors import kafka_names
from auditor.connectors.kafka_names import PartitionFolder, RemoteName
from auditor.connectors.logdir import copy_view, internal_rows
from auditor.connectors.logdir.files import DataFile, Naming, RemoteFiles, TextFile, identify
from auditor.connectors.logdir.tiered import MANIFEST, as_copied
from auditor.connectors.schema import DECODED
from auditor.connectors.stores import storage
from auditor.connectors.stores.storage import StorageLocation
from auditor.connectors.tables import rows as tables_rows
from auditor.connectors.tables.rows import ErrorPiece, FilePiece, How, Piece, Rows, TextPiece, read_piece
from auditor.connectors.text.lines import HEAD_BYTES, sniff
from auditor.pipeline.options import limits_of
from auditor.processes.isolation import Pool

TABLES = {
    "log": "batches",
    "checkpoint": "batches",
    "snapshot": "producer_snapshots",
    "txnindex": "aborted_transactions",
    "index": "index_entries",
    "timeindex": "index_entries",
}


UNTIL_READ_S = 30 * 86_400.0  # who reads the lines may take his time


class DecodeOptions(NamedTuple):
    """What to decode. ``records``: records instead of batches; ``payload``: with keys and values."""

    files: tuple[str, ...]
    records: bool = False
    payload: bool = False
    table: bool = False
    limits: Limits = DEFAULT_LIMITS


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "decode",
        help="decode a file to JSON Lines",
        epilog=examples(
            "auditor decode payments-7/00000000000000000000.log --format table",
            "auditor decode __transaction_state-12/00000000000000000000.log --records",
        ),
    )
    p.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="segment, index, snapshot, checkpoint, text dump, file of a copy, or URI",
    )
    p.add_argument("--records", action="store_true", help="records instead of batches (decoded for internal topics)")
    p.add_argument("--include-payload", action="store_true", help="with --records: include keys and values (base64)")
    p.add_argument("--format", default="json", choices=("json", "table"), help="JSON Lines, or a human-readable table")
    add_limits(p)
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0, or 3 if a part was unreadable."""
    limits = limits_of(args.max_batch_bytes, args.max_batch_ratio)
    options = DecodeOptions(tuple(args.files), args.records, args.include_payload, args.format == "table", limits)
    pieces = locate(options)
    out, unread = utf8_stdout(), False
    with Pool(1) as pool:
        parts: Iterator[tuple[int, Any]] = pool.map(pieces, partial(decode, options=options), patience_s=UNTIL_READ_S)
        for _, part in parts:
            if part is None:
                continue
            own, table, rows = part
            out.writelines(lines(rows, "" if own else table, options.table))
            unread |= table == "decode_errors" and any(
                map(is_unread, rows.column("reason").to_pylist(), rows.column("detail").to_pylist())
            )
    out.flush()
    return 3 if unread else 0


def lines(rows: pa.RecordBatch, table: str, for_people: bool) -> Iterator[str]:
    """Format rows as JSON lines or, ``for_people``, as a table. ``table``: named only if it is not the file's own."""
    if not for_people:
        yield from json_lines(rows, table)
        return
    if table:
        yield f"{table}\n"
    yield from table_lines(rows)


def decode(piece: Piece, options: DecodeOptions) -> Iterator[tuple[bool, str, pa.RecordBatch]]:
    """Yield the tables of a file: whether it is the file's own table, its name, its rows."""
    how = How(options.limits, options.payload)
    if not isinstance(piece, FilePiece):
        yield from ((False, table, rows) for table, rows in read_piece(piece, frozenset(DECODED), how))
        return
    kind, topic = piece.file.kind, piece.key[3]
    own: frozenset[str] = frozenset({TABLES.get(kind, "checkpoints")})
    if kind == "log" and options.records:
        own = internal_rows.TABLES.get(topic or "", frozenset({"records"}))
    in_metadata = options.records and (kind == "checkpoint" or (kind == "log" and topic == kafka_names.METADATA_TOPIC))
    if in_metadata or kind in tables_rows.PROPERTY_KINDS:
        tables: Rows = ((table, rows) for table, rows in tables_rows.unlisted_rows(piece, how) if rows.num_rows)
        own = frozenset({"metadata_records", "properties"})
    else:
        tables = read_piece(piece, own | {"decode_errors"}, how)
    several = topic in internal_rows.TABLES and options.records
    for table, rows in tables:
        yield table in own and not several, table, rows


def locate(options: DecodeOptions) -> list[Piece]:
    """Identify each FILE and the log that it belongs to, in the order given. Errors: :class:`AuditInputError`."""
    given = [entry for path in options.files for entry in _given(path)]
    naming = Naming({_log_dir(place): [_log_dir(place)] for place, _ in given})
    pieces = []
    for place, size in given:
        log_dir = naming.name(_log_dir(place))
        in_objects = None if place.view else _object(place)
        pieces += _objects(place, in_objects, log_dir) if in_objects else [_piece(place, size, log_dir, options.limits)]
    return pieces


def _given(path: str) -> list[tuple[StorageLocation, int]]:
    # A file of a copy stands for the files that were copied.
    if of_copy := copy_view.files_named(path):
        return [*of_copy]
    place = storage.place(path)
    if storage.is_folder(place):
        raise AuditInputError(f"{place.shown} is a directory: give files in it, or run 'auditor audit'")
    return [(place, storage.file_size(place))]


def _object(place: StorageLocation) -> RemoteName | None:
    # The partition of an object of Aiven's RemoteStorageManager; None for other files.
    says = kafka_names.remote_folder(place.parent.path)
    return says if says and says.depth > 1 and kafka_names.object_name(place.name) else None


def _objects(place: StorageLocation, says: RemoteName, log_dir: str) -> list[Piece]:
    # All files of the remote segment that the object is a part of.
    top, stem = _log_dir(place), place.name.rpartition(".")[0]
    inside = place.parent.path[len(top.path) :].lstrip("/")
    key = (None, None, log_dir, says.topic, says.partition)
    wanted, start = kafka_names.object_name(place.name), kafka_names.remote_segment(place.name)
    assert wanted is not None
    assert start is not None
    if wanted.kind == MANIFEST:
        raise AuditInputError(
            f"{place.shown} is a manifest of remote storage: give the .log or .indexes of the segment"
        )
    files = [
        DataFile(f"{inside}/{entry.name}", entry.size, entry.name.rpartition(".")[2], start[0], top)
        for entry in storage.listing(place.parent, deep=False).files
        if entry.name.rpartition(".")[0] == stem and kafka_names.object_name(entry.name)
    ]
    segment = as_copied(RemoteFiles(*start, tuple(files), objects=True))
    if isinstance(segment, DecodeError):
        return [ErrorPiece(key, (segment,))]
    of_log = wanted.kind == "log"
    return [
        FilePiece(file.place or top, key, file)
        for file in segment.files
        if file.kind != MANIFEST and (file.kind == "log") == of_log
    ]


def _log_dir(place: StorageLocation) -> StorageLocation:
    folder = place.parent
    if _object(place):
        return folder.parent.parent
    return folder.parent if _partition(folder.name) and _kind(place) else folder


def _partition(folder: str) -> PartitionFolder | RemoteName | None:
    return kafka_names.partition_folder(folder) or kafka_names.remote_folder(folder)


def _kind(place: StorageLocation) -> tuple[str, int] | None:
    # The kind of a data file and the offset in its name.
    says = kafka_names.data_name(place.name) or kafka_names.remote_name(place.name)
    if says:
        return says.kind, says.offset
    kind = place.name.rpartition(".")[2]
    return (kind, -1) if kind in TABLES else None


def _piece(place: StorageLocation, size: int, log_dir: str, limits: Limits) -> Piece:
    folder = _log_dir(place)
    who = identify(folder, log_dir, {kafka_names.META: 0}, limits)
    cluster_id = who.meta.cluster_id if who.meta else None
    partition = _partition(place.parent.name) if folder != place.parent else None
    topic = (partition.topic, partition.partition) if partition else (None, None)
    key = (cluster_id, who.broker_id, log_dir, *topic)
    kind = _kind(place)
    if not (kafka_names.data_name(place.name) or kafka_names.remote_name(place.name)) and place.name not in (
        kafka_names.META,
        kafka_names.CLEAN_SHUTDOWN,
        *kafka_names.CHECKPOINT_KINDS,
    ):
        head = storage.read_head(place, "", HEAD_BYTES)
        text = None if isinstance(head, DecodeError) else sniff(head)
        if text:
            return TextPiece(place.parent, key, (TextFile(place.name, size, text),))
        if kind is None:
            raise AuditInputError(f"{place.shown}: not a Kafka file or known text dump; check the name")
    name = f"{place.parent.name}/{place.name}" if partition else place.name
    kind = kind or (kafka_names.CHECKPOINT_KINDS.get(place.name, place.name), -1)
    return FilePiece(folder, key, DataFile(name, size, *kind))
