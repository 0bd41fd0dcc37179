"""Transactions as one partition sees them, the aborted ones that its transaction indexes list, and those whose records
consumers get all the same."""

from __future__ import annotations

import numpy as np

# One row a transaction of a producer in this replica, in marker order; open ones last, with marker_offset -1.
# first_offset -1: a marker that closed nothing. first_time, last_time are time(b) of rules.md without its cap;
# first_append_time: 1 where the broker stamped the first batch. risen_offset: where data of a higher epoch follows that
# of the first one, with no marker between them (-1: nowhere); risen_behind, risen_records: the last offset and the
# records of what lies before.
TRANSACTION = np.dtype(
    [
        ("producer_id", "i8"), ("producer_epoch", "i4"), ("last_epoch", "i4"), ("first_offset", "i8"),
        ("last_offset", "i8"), ("first_timestamp", "i8"), ("first_time", "i8"), ("last_timestamp", "i8"),
        ("last_time", "i8"), ("first_leader_epoch", "i4"), ("last_leader_epoch", "i4"), ("batches", "i8"),
        ("records", "i8"), ("bytes", "i8"), ("segment", "i4"), ("position", "i8"), ("gap_offset", "i8"),
        ("marker_offset", "i8"), ("marker_epoch", "i4"), ("commit", "i1"), ("coordinator_epoch", "i4"),
        ("marker_timestamp", "i8"), ("marker_segment", "i4"), ("marker_position", "i8"),
        ("last_stable_offset", "i8"), ("repeated", "i1"), ("prev_marker_offset", "i8"), ("prev_marker_epoch", "i4"),
        ("prev_marker_time", "i8"), ("prev_marker_commit", "i1"), ("from_snapshot", "i1"), ("risen_offset", "i8"),
        ("risen_behind", "i8"), ("risen_records", "i8"), ("first_append_time", "i1"), ("marker_leader_epoch", "i4"),
    ]
)  # fmt: skip

# One row an entry of a transaction index; ``position`` is its byte in the index file.
ABORTED = np.dtype(
    [
        ("segment", "i4"),
        ("position", "i8"),
        ("producer_id", "i8"),
        ("first_offset", "i8"),
        ("last_offset", "i8"),
        ("last_stable_offset", "i8"),
    ]
)

# One row per aborted transaction and segment with records that read_committed consumers get from this replica: the
# first and last offset of these and their number; ``entry`` is the row in ABORTED of the entry that ends the search
# before the transaction's own. ``known`` is 0 where the segment's offset index was not readable: then the records are
# those that some offset index would expose.
EXPOSED = np.dtype(
    [
        ("segment", "i4"), ("producer_id", "i8"), ("marker_offset", "i8"), ("first_offset", "i8"),
        ("last_offset", "i8"), ("records", "i8"), ("entry", "i8"), ("known", "i1"),
    ]
)  # fmt: skip

NO_TRANSACTIONS, NO_ABORTED, NO_EXPOSED = np.empty(0, TRANSACTION), np.empty(0, ABORTED), np.empty(0, EXPOSED)

# One row a producer: its newest marker, and the time of the one before it; ms.
ENDED = np.dtype([("producer_id", "i8"), ("epoch", "i4"), ("time", "i8"), ("before", "i8"), ("commit", "i1")])
