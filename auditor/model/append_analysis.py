"""What is checked of a record set before it is validated: sizes, checksums and the order of offsets.

Source: UnifiedLog.analyzeAndValidateRecords and append of Kafka's trunk of October 2024; semantics 4.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from auditor.model.record_set import CLIENT, REPLICATION, Rejected, ValidationMetrics

DEFAULT_SEGMENT_BYTES = 1 << 30
OFFSETS_OUT_OF_ORDER = "OFFSETS_OUT_OF_ORDER"
UNEXPECTED_APPEND_OFFSET = "UNEXPECTED_APPEND_OFFSET"
_MIN_SIZE_OLD = 26  # offset and length, then a message without timestamp, key and value
_MIN_SIZE_V2 = 61  # header of a batch


class BatchHeader(NamedTuple):
    """A batch before its records are read; `size` in bytes, with offset and length."""

    magic: int
    base_offset: int
    last_offset: int
    size: int
    crc_ok: bool

    @property
    def intact(self) -> bool:
        """Whether the checksum holds and the header fits."""
        return self.crc_ok and self.size >= (_MIN_SIZE_V2 if self.magic >= 2 else _MIN_SIZE_OLD)


def analyze(
    batches: Sequence[BatchHeader],
    origin: str,
    max_message_bytes: int,
    log_end: int,
    metrics: ValidationMetrics,
    segment_bytes: int = DEFAULT_SEGMENT_BYTES,
) -> None:
    """Check a record set on its way to a log that ends at `log_end`; Rejected with the first error.

    Leaders assign offsets themselves, so only followers (`origin` replication) care for the offsets given.
    `metrics` counts damaged batches.
    """
    increasing, last_offset = True, -1
    for batch in batches:
        if origin == CLIENT and batch.magic >= 2 and batch.base_offset != 0:
            raise Rejected("INVALID_RECORD")
        increasing = increasing and batch.last_offset > last_offset
        last_offset = batch.last_offset
        if origin != REPLICATION and batch.size > max_message_bytes:
            raise Rejected("MESSAGE_TOO_LARGE")
        if not batch.intact:
            metrics.invalid_checksum += 1
            raise Rejected("CORRUPT_MESSAGE")
    if origin == REPLICATION and batches:
        if not increasing:
            raise Rejected(OFFSETS_OUT_OF_ORDER)
        first = batches[0]
        # Old formats show their first offset only after decompression.
        if (first.base_offset if first.magic >= 2 else first.last_offset) < log_end:
            raise Rejected(UNEXPECTED_APPEND_OFFSET)
    if sum(batch.size for batch in batches) > segment_bytes:
        raise Rejected("RECORD_LIST_TOO_LARGE")
