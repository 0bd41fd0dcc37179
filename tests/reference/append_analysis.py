"""Checks of a record set before its validation: sizes, checksums and the order of offsets.

Only requests have sizes to be measured against; of checksums and offsets the modules decide that judge logs too.
Source: UnifiedLog.analyzeAndValidateRecords and append of Kafka's trunk of October 2024; semantics 4.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from auditor.model.batch_validation import (
    ANSWER,
    ERRORS,
    FINE,
    INVALID_RECORD,
    NO_TOPIC,
    SENT,
    SENT_RECORD,
    goes_back,
    judge,
)
from tests.reference.record_set import CLIENT, REPLICATION, Rejected, ValidationMetrics

OFFSETS_OUT_OF_ORDER = "OFFSETS_OUT_OF_ORDER"
UNEXPECTED_APPEND_OFFSET = "UNEXPECTED_APPEND_OFFSET"
DEFAULT_SEGMENT_BYTES = 1 << 30
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
    for batch in batches:
        if origin == CLIENT and batch.magic >= 2 and batch.base_offset != 0:
            raise Rejected(INVALID_RECORD)
        if origin != REPLICATION and batch.size > max_message_bytes:
            raise Rejected("MESSAGE_TOO_LARGE")
        _check_sum(batch, metrics)
    if origin == REPLICATION:
        spans = [(b.base_offset if b.magic >= 2 else b.last_offset, b.last_offset) for b in batches]
        refusal = offsets_refusal(spans, log_end)  # old formats show their first offset only after decompression
        if refusal is not None:
            raise Rejected(refusal)
    if sum(batch.size for batch in batches) > segment_bytes:
        raise Rejected("RECORD_LIST_TOO_LARGE")


def offsets_refusal(spans: Iterable[tuple[int, int]], log_end: int) -> str | None:
    """Return why a follower refuses batches, by their first and last offsets; None if it accepts them.

    A leader assigns the offsets itself and checks none.
    """
    before, first_of_all = -1, log_end
    for number, (first, last) in enumerate(spans):
        if last <= before:
            return OFFSETS_OUT_OF_ORDER
        first_of_all = first if number == 0 else first_of_all
        before = last
    return UNEXPECTED_APPEND_OFFSET if goes_back(first_of_all, log_end) else None


def _check_sum(batch: BatchHeader, metrics: ValidationMetrics) -> None:
    sent, answers = np.zeros(1, SENT), np.zeros(1, ANSWER)
    sent["intact"] = batch.intact
    judge(sent, np.zeros(0, SENT_RECORD), NO_TOPIC, answers)
    metrics.add(answers[0])
    cause = int(answers["cause"][0])
    if cause != FINE:
        raise Rejected(ERRORS[cause])
