"""What kind of batch a row of the walk is, asked in the same words by every replay."""

from __future__ import annotations

import numpy as np

from auditor.base.compiled import kernel
from auditor.connectors.codec import batch as col
from auditor.connectors.codec import columns

FLAW_PRODUCER_SEQUENCE = columns.FLAW_PRODUCER_SEQUENCE
FLAW_PRODUCER_EPOCH = columns.FLAW_PRODUCER_EPOCH
APPEND_TIME, CONTROL = 0x08, 0x20  # bits of the attributes


@kernel
def is_control(b: np.ndarray, i: int) -> bool:
    """Whether batch ``i`` holds control records, which clients do not see."""
    return b[i, col.MAGIC] == 2 and b[i, col.ATTRIBUTES] & CONTROL != 0


@kernel
def is_marker(b: np.ndarray, i: int) -> bool:
    """Whether batch ``i`` ends a transaction: a control batch of type ABORT or COMMIT that names a producer."""
    ends = b[i, col.CONTROL_TYPE] == 0 or b[i, col.CONTROL_TYPE] == 1
    return is_control(b, i) and b[i, col.PRODUCER_ID] >= 0 and ends


@kernel
def is_foreign(b: np.ndarray, i: int, sequences: bool) -> bool:
    """Whether no producer writes such a batch: its fields say nothing about the one that it names."""
    missing = FLAW_PRODUCER_EPOCH | (FLAW_PRODUCER_SEQUENCE if sequences else 0)
    return b[i, col.FLAWS] & missing != 0


@kernel
def has_broker_time(b: np.ndarray, i: int, marker: bool, broker_times: bool) -> bool:
    """Whether a broker stamped batch ``i``: a marker, LogAppendTime, or a topic that only brokers write."""
    return marker or broker_times or (b[i, col.MAGIC] >= 1 and b[i, col.ATTRIBUTES] & APPEND_TIME != 0)
