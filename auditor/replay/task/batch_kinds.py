"""What kind of batch a row of the walk is, asked in the same words by every replay."""

from __future__ import annotations

import numpy as np

from auditor.base.compiled import kernel
from auditor.connectors.codec import batches as codec_batches

FLAW_PRODUCER_SEQUENCE = codec_batches.FLAW_PRODUCER_SEQUENCE
FLAW_PRODUCER_EPOCH = codec_batches.FLAW_PRODUCER_EPOCH
FLAW_CRC = codec_batches.FLAW_CRC
APPEND_TIME, CONTROL = 0x08, 0x20  # bits of the attributes


@kernel
def is_control(batch: np.record) -> bool:
    """Whether a batch holds control records, which clients do not see."""
    return batch.magic == 2 and batch.attributes & CONTROL != 0


@kernel
def is_marker(batch: np.record) -> bool:
    """Whether a batch ends a transaction: a control batch of type ABORT or COMMIT that names a producer."""
    ends = batch.control_type == 0 or batch.control_type == 1
    return is_control(batch) and batch.producer_id >= 0 and ends


@kernel
def is_foreign(batch: np.record, sequences: bool) -> bool:
    """Whether no producer writes such a batch: its fields say nothing about the one that it names."""
    missing = FLAW_PRODUCER_EPOCH | (FLAW_PRODUCER_SEQUENCE if sequences else 0)
    return batch.flaws & missing != 0


@kernel
def has_broker_time(batch: np.record, marker: bool, broker_times: bool) -> bool:
    """Whether a broker stamped a batch: a marker, LogAppendTime, or a topic that only brokers write."""
    return marker or broker_times or (batch.magic >= 1 and batch.attributes & APPEND_TIME != 0)


@kernel
def first_broker_time(batches: np.ndarray, broker_times: bool) -> int:
    """The first time in BATCH records that a broker wrote, -1 if there is none; broken batches say nothing."""
    for number in range(len(batches)):
        batch = batches[number]
        sound = batch.flaws & FLAW_CRC == 0 and batch.max_timestamp >= 0
        if sound and has_broker_time(batch, is_marker(batch), broker_times):
            return batch.max_timestamp
    return -1
