"""What must hold of a batch in a log, whoever wrote it, beyond what a leader validates of one that is sent.

A leader numbers the records itself and stamps what it is told to, a coordinator alone writes markers, and the cleaner
leaves fewer records than offsets. The codec says what is there, as bits; which of it is wrong is said here.

Source: DefaultRecordBatch, MemoryRecordsBuilder, EndTransactionMarker, Cleaner; semantics 4.8, corrections.md
(`producer-fields-inconsistent`).
"""

from __future__ import annotations

import numpy as np

from auditor.base.compiled import kernel
from auditor.connectors.codec import batches
from auditor.connectors.codec.batches import FLAW_COUNT_BELOW_SPAN, FLAW_NO_PRODUCER_FIELDS, FLAW_PRODUCER_SEQUENCE

APPEND_TIME, TRANSACTIONAL, CONTROL, HORIZON = 0x08, 0x10, 0x20, 0x40  # bits of the attributes
NO_TIMESTAMP = -1
# Whoever wrote the batch. Fewer records than offsets, or no sequence, are legal somewhere.
HEADER_FAULTS = (
    batches.FLAW_COUNT_ABOVE_SPAN
    | batches.FLAW_NEGATIVE_SPAN
    | batches.FLAW_CODEC_UNKNOWN
    | batches.FLAW_NO_PRODUCER_FIELDS
    | batches.FLAW_PRODUCER_EPOCH
    | batches.FLAW_CONTROL_COMPRESSED
    | batches.FLAW_CONTROL_KEY
    | batches.FLAW_CONTROL_VALUE
    | batches.FLAW_CONTROL_TYPE
    | batches.FLAW_CONTROL_NOT_TRANSACTIONAL
    | batches.FLAW_CONTROL_RECORDS
    | batches.FLAW_CONTROL_SEQUENCE
    | batches.FLAW_CONTROL_NO_PRODUCER
)
# What may be wrong with a batch for its leader, by its header alone; at the other bits no leader looks.
LEADERS_LOOK_AT = (
    batches.FLAW_CRC
    | batches.FLAW_COUNT_ABOVE_SPAN
    | batches.FLAW_COUNT_BELOW_SPAN
    | batches.FLAW_NEGATIVE_SPAN
    | batches.FLAW_PRODUCER_SEQUENCE
)
# Of a record that a leader would have taken: it repairs what old clients number wrongly, so that no log has it.
NUMBERS = batches.RECORD_OFFSET_DELTA | batches.RECORD_WRAPPER_OFFSET
RECORD_FAULTS = (
    NUMBERS
    | batches.RECORD_COUNT_MISMATCH
    | batches.RECORD_BYTES_LEFT
    | batches.RECORD_UNDECOMPRESSABLE
    | batches.RECORD_LENGTH
    | batches.RECORD_HEADER_KEY_NULL
    | batches.RECORD_INNER_MAGIC
    | batches.RECORD_INNER_CRC
    | batches.RECORD_INNER_CODEC
)


@kernel
def header_faults(flaws: int, attributes: int, sequences: bool) -> int:
    """The bits of a header that no broker writes so. ``sequences``: whether they mean something in this topic."""
    found = flaws & HEADER_FAULTS
    if sequences:
        found |= flaws & FLAW_PRODUCER_SEQUENCE
    if not sequences or is_leftover(flaws, attributes):  # coordinators write sequence 0 without a producer id
        found &= ~FLAW_NO_PRODUCER_FIELDS
    return found


@kernel
def is_leftover(flaws: int, attributes: int) -> bool:
    """Whether an epoch or a sequence stands without a producer id, at which no leader looks."""
    return flaws & FLAW_NO_PRODUCER_FIELDS != 0 and not attributes & (TRANSACTIONAL | CONTROL)


@kernel
def lacks_records(flaws: int, last_offset: int, intact_from: int) -> bool:
    """Whether fewer records are declared than offsets spanned where no cleaner can have taken them: ``intact_from`` is
    the first offset that was never cleaned."""
    return flaws & FLAW_COUNT_BELOW_SPAN != 0 and last_offset >= intact_from


def record_faults(flaws: np.ndarray) -> np.ndarray:
    """The bits of batches' records that no broker stores so."""
    return flaws & RECORD_FAULTS


def misnumbered(flaws: np.ndarray) -> np.ndarray:
    """Which records are numbered as no log has them, though a leader would have taken them."""
    return flaws & NUMBERS != 0


def stamped_by_producer(magic: np.ndarray, attributes: np.ndarray) -> np.ndarray:
    """Which batches have CreateTimes, one a record."""
    return (attributes & APPEND_TIME == 0) & (magic == 2)


def misstates_time(largest: np.ndarray, stated: np.ndarray, magic: np.ndarray, attributes: np.ndarray) -> np.ndarray:
    """Which never cleaned batches state another largest time (ms) than their records have: ``largest`` of all of them.

    Batches with a delete horizon carry that in the base timestamp, from which their records count."""
    return stamped_by_producer(magic, attributes) & (attributes & HORIZON == 0) & (largest != stated)


def is_no_time(timestamp: np.ndarray) -> np.ndarray:
    """Which times (ms) no client gives to a record: :data:`NO_TIMESTAMP` stands for none."""
    return timestamp < NO_TIMESTAMP
