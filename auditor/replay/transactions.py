"""Transactions as one partition sees them: from the first data batch to the marker."""

from __future__ import annotations

import numpy as np
from numba import njit

from auditor.replay.state import S_OPEN, S_SEGMENT, S_TRANSACTIONS


@njit(cache=True)
def open_transaction(r, b, i, o, row, time):  # type: ignore[no-untyped-def]
    """The producer's first transactional batch after its last marker: a transaction begins in this partition."""
    slot = r.scalars[S_OPEN]
    r.scalars[S_OPEN] = slot + 1
    r.open_rows[slot] = row
    o.open_slot = slot
    t = r.open[slot]
    t.producer_id = b.producer_id[i]
    t.producer_epoch = b.producer_epoch[i]
    t.first_offset = b.base_offset[i]
    t.second_offset = -1
    t.first_timestamp = b.max_timestamp[i]
    t.first_time = time
    t.first_leader_epoch = b.partition_leader_epoch[i]
    t.batches = 0
    t.records = 0
    t.bytes = 0
    t.segment = r.scalars[S_SEGMENT]
    t.position = b.position[i]
    t.gap_offset = -1
    t.marker_offset = -1
    t.marker_epoch = -1
    t.commit = 0
    t.coordinator_epoch = o.judged_coordinator_epoch
    t.marker_timestamp = -1
    t.marker_segment = -1
    t.marker_position = -1
    t.last_stable_offset = -1
    t.repeat = 0
    t.from_snapshot = 0
    t.prev_marker_offset = o.marker_offset
    t.prev_marker_epoch = o.marker_epoch
    t.prev_marker_time = o.marker_time
    t.prev_marker_commit = o.marker_commit


@njit(cache=True)
def extend_transaction(r, b, i, o, time):  # type: ignore[no-untyped-def]
    """Adds a data batch to the producer's open transaction."""
    t = r.open[o.open_slot]
    t.last_epoch = b.producer_epoch[i]
    if t.batches == 1:
        t.second_offset = b.base_offset[i]
    t.last_offset = b.last_offset[i]
    t.last_timestamp = b.max_timestamp[i]
    t.last_time = time
    t.last_leader_epoch = b.partition_leader_epoch[i]
    t.batches += 1
    t.records += max(b.record_count[i], 0)
    t.bytes += b.size[i]


@njit(cache=True)
def _first_open_of_another(r, slot):  # type: ignore[no-untyped-def]
    least = np.int64(-1)
    for k in range(r.scalars[S_OPEN]):
        if k != slot and (least < 0 or r.open[k].first_offset < least):
            least = r.open[k].first_offset
    return least


@njit(cache=True)
def close_transaction(r, b, i, o, row):  # type: ignore[no-untyped-def]
    """A marker: moves the producer's open transaction to the decided ones, or notes that there was none."""
    n = r.scalars[S_TRANSACTIONS]
    r.scalars[S_TRANSACTIONS] = n + 1
    slot = o.open_slot
    if slot >= 0:
        r.transactions[n] = r.open[slot]
        t = r.transactions[n]
        least = _first_open_of_another(r, slot)
        t.last_stable_offset = least if least >= 0 else b.last_offset[i] + 1
        last = r.scalars[S_OPEN] - 1
        r.scalars[S_OPEN] = last
        if slot != last:
            r.open[slot] = r.open[last]
            r.open_rows[slot] = r.open_rows[last]
            r.audit[r.open_rows[slot]].open_slot = slot
        o.open_slot = -1
        t.repeat = 0
    else:
        _lone_marker(r, b, i, o, r.transactions[n])
    t = r.transactions[n]
    t.marker_offset = b.last_offset[i]
    t.marker_epoch = b.producer_epoch[i]
    t.commit = 1 if b.control_type[i] == 1 else 0
    t.coordinator_epoch = b.coordinator_epoch[i]
    t.marker_timestamp = b.max_timestamp[i]
    t.marker_segment = r.scalars[S_SEGMENT]
    t.marker_position = b.position[i]


@njit(cache=True)
def _lone_marker(r, b, i, o, t):  # type: ignore[no-untyped-def]
    t.producer_id = b.producer_id[i]
    t.producer_epoch = b.producer_epoch[i]
    t.last_epoch = b.producer_epoch[i]
    t.first_offset = -1
    t.second_offset = -1
    t.last_offset = -1
    t.first_timestamp = -1
    t.first_time = -1
    t.last_timestamp = -1
    t.last_time = -1
    t.first_leader_epoch = -1
    t.last_leader_epoch = b.partition_leader_epoch[i]
    t.batches = 0
    t.records = 0
    t.bytes = 0
    t.segment = -1
    t.position = -1
    t.gap_offset = -1
    t.last_stable_offset = -1
    t.from_snapshot = 0
    commit = 1 if b.control_type[i] == 1 else 0
    repeats = o.marker_fresh and o.marker_epoch == b.producer_epoch[i] and o.marker_commit == commit
    t.repeat = 1 if repeats else 0
    t.prev_marker_offset = o.marker_offset
    t.prev_marker_epoch = o.marker_epoch
    t.prev_marker_time = o.marker_time
    t.prev_marker_commit = o.marker_commit
