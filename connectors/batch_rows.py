"""Decoded batches and records as rows of the tables ``batches`` and ``records``."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditor.base.at_rest import Fields
from auditor.base.numbers import SEQUENCES
from auditor.connectors import schema
from auditor.connectors.arrow import Key, array_of, from_columns, texts
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
)
from auditor.connectors.codec.records import Decoded

CODECS = texts([*schema.COMPRESSION_NAMES, None, None, None])  # by the three bits of the attributes
TIMESTAMP_TYPES = texts(["CreateTime", "LogAppendTime", "NoTimestampType"])
# Kafka's ControlRecordType by number; what is beyond is unknown to it too.
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
_LISTED = ("position", "size", "magic", "base_offset", "last_offset", "record_count", "partition_leader_epoch", "crc",
           "base_timestamp", "max_timestamp", "coordinator_epoch", "producer_id", "producer_epoch", "base_sequence",
           "flaws")  # fmt: skip


def batch_rows(key: Key, file: str, batches: BatchColumns, unknown: Collection[str] = ()) -> pa.RecordBatch:
    """Rows of ``batches`` in file order. ``unknown``: columns that a text dump may not show; there "none" is null."""
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
    for name in unknown:
        column = columns.get(name)
        if isinstance(column, np.ndarray) and name != "is_control":
            columns[name] = array_of(column, column == (0 if name == "crc" else -1))
    return from_columns(schema.BATCHES, key, len(batches.position), columns)


def batches_of(rows: pa.RecordBatch) -> BatchColumns:
    """What :func:`batch_rows` undoes, of rows of one file: batches as headers have them. A column that is null has
    nothing: -1, of a checksum that nobody verified :data:`UNVERIFIED`. ``flaws`` are the table's, so far as it says."""
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
    known = {name: _numbers(rows, name, 0 if name == "crc" else -1) for name in _LISTED if name != "flaws"}
    uncounted = np.asarray(rows.column("record_count").is_null())  # as text dumps leave it: taken from the offsets
    known["record_count"] = np.where(uncounted, known["last_offset"] - known["base_offset"] + 1, known["record_count"])
    kind = pc.fill_null(pc.index_in(rows.column("control_type"), CONTROL_TYPES.slice(0, _NO_TYPE)), -1)
    known |= {"attributes": bits, "flaws": flaws, "control_type": np.asarray(kind)}
    dtypes = zip(BatchColumns._fields, BATCH_DTYPES, strict=True)
    return BatchColumns(**{name: known[name].astype(dtype) for name, dtype in dtypes})


def _is(rows: pa.RecordBatch, name: str, value: str) -> np.ndarray:
    return np.asarray(pc.fill_null(pc.equal(rows.column(name), value), False))


def _numbers(rows: pa.RecordBatch, name: str, none: int = -1) -> np.ndarray:
    """A column of whole numbers, or of times in ms."""
    column = rows.column(name)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    return np.asarray(pc.fill_null(column.cast(pa.int64()), none))


def sequence_after(base: np.ndarray, increment: np.ndarray) -> np.ndarray:
    """The sequence ``increment`` records after ``base``, -1 where that is -1 (DefaultRecordBatch.incrementSequence)."""
    following = base.astype(np.int64) + increment
    wrapped = np.where(following >= SEQUENCES, following - SEQUENCES, following)
    return np.where(base == -1, -1, wrapped).astype(np.int32)


def record_rows(
    key: Key, file: str, batches: BatchColumns, runs: Iterator[Decoded], payload: bool
) -> Iterator[pa.RecordBatch]:
    """Rows of the records of ``batches``, a run at a time; with ``payload``, the columns ``key`` and ``value`` too."""
    wanted = pa.schema([*schema.RECORDS, *schema.PAYLOAD]) if payload else schema.RECORDS
    for run in runs:
        records, of, present = run.records, batches.take(run.rows), run.summary.present
        columns: Fields = {
            name: getattr(records, name)
            for name in ("offset", "timestamp", "key_size", "value_size", "header_count", "sequence", "flaws")
        }
        columns |= {
            "file": file,
            "position": np.repeat(of.position, present),
            "base_offset": np.repeat(of.base_offset, present),
            "record_index": records.index,
            "producer_id": np.repeat(of.producer_id, present),
            "producer_epoch": np.repeat(of.producer_epoch.astype(np.int32), present),
            "is_control": np.repeat((of.attributes & CONTROL != 0) & (of.magic == 2), present),
        }
        if payload:
            columns["key"] = _bytes(records.payload, records.key_start, records.key_size)
            columns["value"] = _bytes(records.payload, records.value_start, records.value_size)
        yield from_columns(wanted, key, len(records.offset), columns)


def _bytes(payload: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> pa.Array:
    """Stretches of ``payload``, null where the size is below 0 or the start is not known."""
    view = payload.data
    found = (
        bytes(view[at : at + size]) if at >= 0 and size >= 0 else None
        for at, size in zip(starts.tolist(), sizes.tolist(), strict=True)
    )
    return pa.array(found, pa.binary())
