"""What no table of the contract holds and is still shown of a single file: KRaft's records, and small settings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from auditor.base.at_rest import Fields
from auditor.base.errors import RECORD_AT, DecodeError
from auditor.connectors import names
from auditor.connectors.arrow import from_errors, from_rows
from auditor.connectors.batch_rows import CONTROL
from auditor.connectors.codec import small_files
from auditor.connectors.codec.cluster_metadata import (
    BROKER_RESOURCE,
    BY_NAME,
    MetadataRecord,
    decode_control_record,
    decode_metadata_record,
    unknown_level,
)
from auditor.connectors.codec.records import records_of
from auditor.connectors.codec.segment import read_segment
from auditor.connectors.codec.small_files import may_show
from auditor.connectors.codec.structs import Problem, as_printed
from auditor.connectors.declared import JSON, TIME
from auditor.connectors.rows import FilePiece, How, Rows
from auditor.connectors.schema import LOG_KEY
from auditor.connectors.storage import open_file, read_file

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
    """The records of a segment or snapshot of ``__cluster_metadata`` by name, a chunk at a time.

    What may be a password or an address is left out unless ``how.payload``; records with secrets show their name.
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
                said = (
                    decode_control_record(record.key, record.value) if control else decode_metadata_record(record.value)
                )
                problem = said if isinstance(said, Problem) else unknown_level(said)
                if problem is not None:
                    detail = f"{RECORD_AT} {record.offset}: {problem.detail}"
                    errors.append(DecodeError(*place, int(chunk.batches.size[row]), problem.reason, detail))
                if not isinstance(said, Problem):
                    fields = json.dumps(shown_fields(said, how.payload), ensure_ascii=False)
                    rows.append((*place, record.offset, record.timestamp, said.name, said.version, fields))
            yield "metadata_records", from_rows(METADATA_RECORDS, piece.key, rows)
            yield "decode_errors", from_errors(piece.key, errors)
    finally:
        opened.close()


def shown_fields(record: MetadataRecord, payload: bool) -> Fields:
    """The fields that may be shown, as Kafka's tool prints them: without the tagged ones that are not there."""
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
    """What one of the small files of :data:`PROPERTY_KINDS` says, in one row."""
    data = read_file(piece.place, piece.file.name, limit=how.limits.small_file(piece.file.kind))
    if isinstance(data, DecodeError):
        yield "decode_errors", from_errors(piece.key, [data])
        return
    fields, errors = _decode(piece.file.kind, data, piece.file.name)
    text = json.dumps(fields, ensure_ascii=False)
    yield "properties", from_rows(PROPERTIES, piece.key, [(piece.file.name, text)])
    yield "decode_errors", from_errors(piece.key, errors)


def _decode(kind: str, data: bytes, file: str) -> tuple[Fields, list[DecodeError]]:
    if kind == names.META:
        meta, errors = small_files.decode_meta_properties(data, file)
        return meta._asdict(), errors
    if kind == names.PARTITION_METADATA:
        topic_id, errors = small_files.decode_partition_metadata(data, file)
        return {"topic_id": topic_id}, errors
    if kind == names.QUORUM_STATE:
        state, errors = small_files.decode_quorum_state(data, file)
        return ({} if state is None else state._asdict()), errors
    epoch, errors = small_files.decode_clean_shutdown(data, file)
    return {"broker_epoch": epoch}, errors


PROPERTY_KINDS = frozenset({names.META, names.PARTITION_METADATA, names.QUORUM_STATE, names.CLEAN_SHUTDOWN})


def named(piece: FilePiece, how: How) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of a file without a table of the contract."""
    return properties(piece, how) if piece.file.kind in PROPERTY_KINDS else metadata_records(piece, how)
