"""The producers of one replica: their states at its end, as a broker would have them, and what led there."""

from __future__ import annotations

import numpy as np

# One row a producer known in this replica. Columns below_*: what lies below the log start, in files or snapshots only.
# Columns first_*: its first judged batch; data_*: its last one.
PRODUCER = np.dtype(
    [
        ("producer_id", "i8"), ("producer_epoch", "i4"), ("last_sequence", "i4"), ("last_offset", "i8"),
        ("offset_delta", "i4"), ("last_timestamp", "i8"), ("coordinator_epoch", "i4"), ("txn_first_offset", "i8"),
        ("batches", "i8"), ("records", "i8"), ("markers", "i8"), ("max_epoch", "i4"), ("first_offset", "i8"),
        ("first_sequence", "i4"), ("first_epoch", "i4"), ("first_segment", "i4"), ("first_position", "i8"),
        ("first_timestamp", "i8"), ("first_time", "i8"),
        ("data_epoch", "i4"), ("data_last_sequence", "i4"), ("data_last_offset", "i8"), ("data_timestamp", "i8"),
        ("data_time", "i8"), ("marker_time", "i8"), ("idle_count", "i4"), ("max_idle_ms", "i8"),
        ("below_batches", "i8"), ("below_last_offset", "i8"), ("below_last_sequence", "i4"), ("below_epoch", "i4"),
        ("below_timestamp", "i8"), ("below_in_snapshot", "i1"), ("transactional", "i1"), ("max_data_epoch", "i4"),
        ("max_data_epoch_offset", "i8"), ("max_data_epoch_time", "i8"),
    ]
)  # fmt: skip
NO_PRODUCERS = np.empty(0, PRODUCER)
ZERO_AT_START = frozenset(
    {
        "batches",
        "records",
        "markers",
        "idle_count",
        "max_idle_ms",
        "below_batches",
        "below_in_snapshot",
        "transactional",
    }
)


def blank_producers(rows: int) -> np.ndarray:
    """PRODUCER rows of which nothing is known."""
    table = np.zeros(rows, PRODUCER)
    for name in PRODUCER.names or ():
        table[name] = 0 if name in ZERO_AT_START else -1
    return table
