"""The columns in which decoded batches and records travel: numpy arrays of one length, one row a batch or record.

They are what the kernels fill, what Arrow tables are built from and what the replay reads, without a copy in between.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# Bits of BatchColumns.flaws: what is wrong with a batch as its header and control record show it.
FLAW_COUNT_ABOVE_SPAN = 1 << 0  # declared records > last_offset_delta + 1
FLAW_COUNT_BELOW_SPAN = 1 << 1  # declared records < last_offset_delta + 1: legal after cleaning only
FLAW_NEGATIVE_SPAN = 1 << 2  # last_offset_delta < 0 or declared records < 0
FLAW_CODEC_UNKNOWN = 1 << 3  # codec bits 5..7
FLAW_CONTROL_NO_PRODUCER = 1 << 4  # control batch without producer id
FLAW_CONTROL_SEQUENCE = 1 << 5  # control batch with base sequence >= 0
FLAW_CONTROL_RECORDS = 1 << 6  # control batch with more than one record
FLAW_CONTROL_NOT_TRANSACTIONAL = 1 << 7  # control batch without the transactional bit
FLAW_CONTROL_TYPE = 1 << 8  # control type other than ABORT (0) and COMMIT (1)
FLAW_CONTROL_KEY = 1 << 9  # control key shorter than 4 bytes, null, or of a negative version
FLAW_CONTROL_VALUE = 1 << 10  # end-marker value shorter than 6 bytes or null
FLAW_CONTROL_COMPRESSED = 1 << 11  # control batch with a codec
FLAW_NO_PRODUCER_FIELDS = 1 << 12  # producer id < 0 with epoch >= 0, sequence >= 0 or the transactional bit
FLAW_PRODUCER_EPOCH = 1 << 13  # producer id >= 0 with epoch < 0
FLAW_PRODUCER_SEQUENCE = 1 << 14  # data batch with producer id >= 0 and base sequence < 0
FLAW_CRC = 1 << 15  # stored checksum differs from the computed one
FLAW_LEGACY_WRAPPER = 1 << 16  # magic 0/1 wrapper that could not be opened, so base_offset is its last offset
UNVERIFIED = 1 << 17  # no flaw: nobody has verified the checksum, which a copy without payload may leave open

# Bits of RecordSummary.flaws: what is wrong with the records of a batch.
RECORD_COUNT_MISMATCH = 1 << 0  # records present differ from the declared count
RECORD_BYTES_LEFT = 1 << 1  # bytes left after the last declared record
RECORD_UNDECOMPRESSABLE = 1 << 2  # broken stream, or over a limit
RECORD_OFFSET_DELTA = 1 << 3  # deltas not strictly increasing, or outside [0, last_offset_delta]
RECORD_LENGTH = 1 << 4  # negative or overrunning length, or the record does not end at its length
RECORD_HEADER_KEY_NULL = 1 << 5
RECORD_INNER_MAGIC = 1 << 6  # magic 0/1: inner record of another magic
RECORD_INNER_CRC = 1 << 7  # magic 0/1: inner checksum wrong
RECORD_INNER_CODEC = 1 << 8  # magic 0/1: inner record claims a codec
RECORD_WRAPPER_OFFSET = 1 << 9  # magic 1: wrapper offset below the last inner offset and not 0


class BatchColumns(NamedTuple):
    """Batches of one file in file order. Magic 0/1: one row a message or wrapper, absent fields -1.

    ``position`` and ``size`` are bytes, size with the 12 bytes of log overhead. ``last_offset`` is as the header states
    it; ``base_offset`` of a legacy wrapper is its first inner record's offset (the wrapper is decompressed for it).
    ``record_count`` is as declared (legacy: 1, or the inner records found). ``max_timestamp`` of LogAppendTime batches
    is the append time; of legacy messages it is their timestamp (-1 for magic 0), and base_timestamp equals it.
    ``control_type`` is -1 unless the batch is a control batch with a record (0 ABORT, 1 COMMIT, others as stored);
    ``coordinator_epoch`` is -1 unless it is an end marker. ``attributes`` are the raw 16 (legacy: 8) bits.
    """

    position: np.ndarray  # int64
    size: np.ndarray  # int32
    magic: np.ndarray  # int8
    attributes: np.ndarray  # int16
    base_offset: np.ndarray  # int64
    last_offset: np.ndarray  # int64
    record_count: np.ndarray  # int32
    partition_leader_epoch: np.ndarray  # int32
    crc: np.ndarray  # uint32
    base_timestamp: np.ndarray  # int64 ms
    max_timestamp: np.ndarray  # int64 ms
    producer_id: np.ndarray  # int64
    producer_epoch: np.ndarray  # int16
    base_sequence: np.ndarray  # int32
    control_type: np.ndarray  # int16
    coordinator_epoch: np.ndarray  # int32
    flaws: np.ndarray  # int32, bits FLAW_*

    def take(self, rows: slice | np.ndarray) -> BatchColumns:
        """The chosen rows, in their order."""
        return BatchColumns(*(column[rows] for column in self))


BATCH_DTYPES = tuple(
    np.dtype(t)
    for t in ("i8", "i4", "i1", "i2", "i8", "i8", "i4", "i4", "u4", "i8", "i8", "i8", "i2", "i4", "i2", "i4", "i4")
)


class RecordSummary(NamedTuple):
    """What reading all records of each batch showed: one row a batch, aligned with its BatchColumns.

    Timestamps are ms as a consumer would see them under CreateTime (-1 where there is no record); ``present`` counts
    records really there; indexes are positions in the batch, -1 for none; ``plain_size`` is bytes after decompression.
    """

    present: np.ndarray  # int32
    first_timestamp: np.ndarray  # int64
    min_timestamp: np.ndarray  # int64
    max_timestamp: np.ndarray  # int64
    null_keys: np.ndarray  # int32
    first_null_key: np.ndarray  # int32
    flaws: np.ndarray  # int32, bits RECORD_*
    first_flaw: np.ndarray  # int32
    plain_size: np.ndarray  # int64


class RecordColumns(NamedTuple):
    """Single records: one row a record, in log order. Sizes are bytes, -1 for null.

    ``batch`` is the row of its batch in the BatchColumns beside it, ``index`` its position in the batch.
    ``sequence`` is the producer's, -1 where the batch has none. ``key_start`` and ``value_start`` (-1 for null) point
    into ``payload``; so does ``header_start``, to the number of headers (-1 for magic 0/1). All three are -1 and
    ``payload`` is empty unless payload was asked for.
    """

    batch: np.ndarray  # int32
    index: np.ndarray  # type: ignore[assignment]  # int32; hides tuple.index, which nobody needs here
    offset: np.ndarray  # int64
    timestamp: np.ndarray  # int64 ms
    key_size: np.ndarray  # int32
    value_size: np.ndarray  # int32
    header_count: np.ndarray  # int32
    flaws: np.ndarray  # int32, bits RECORD_*
    sequence: np.ndarray  # int32
    key_start: np.ndarray  # int64
    value_start: np.ndarray  # int64
    header_start: np.ndarray  # int64
    payload: np.ndarray  # uint8


_RECORD_DTYPES = ("i4", "i4", "i8", "i8", "i4", "i4", "i4", "i4", "i4")
_START_DTYPES = ("i8", "i8", "i8")  # of what points into the payload


def empty_records(rows: int = 0, payload: bool = False) -> RecordColumns:
    """Uninitialised columns of ``rows`` rows; without ``payload``, those that would point into it have none."""
    columns = [np.empty(rows, dtype) for dtype in _RECORD_DTYPES]
    columns += [np.empty(rows if payload else 0, dtype) for dtype in _START_DTYPES]
    return RecordColumns._make([*columns, np.empty(0, np.uint8)])
