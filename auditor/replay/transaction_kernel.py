"""Transactions as one partition sees them: from the first data batch to the marker."""

from __future__ import annotations

from auditor.base.compiled import kernel
from auditor.connectors.codec import batch as col
from auditor.replay.state import Q_OFFSET, Q_PLACE, Q_SLOT, S_OPEN, S_SEGMENT, S_TRANSACTIONS


@kernel
def _swap(q, one, other):  # type: ignore[no-untyped-def]
    """Lets two places of the heap of open transactions change their slots."""
    q[Q_SLOT, one], q[Q_SLOT, other] = q[Q_SLOT, other], q[Q_SLOT, one]
    q[Q_PLACE, q[Q_SLOT, one]] = one
    q[Q_PLACE, q[Q_SLOT, other]] = other


@kernel
def _rise(q, at):  # type: ignore[no-untyped-def]
    """Brings what stands at a place of the heap up to where nothing above it begins later."""
    while at > 0 and q[Q_OFFSET, q[Q_SLOT, at]] < q[Q_OFFSET, q[Q_SLOT, (at - 1) // 2]]:
        _swap(q, at, (at - 1) // 2)
        at = (at - 1) // 2


@kernel
def _sink(q, at, count):  # type: ignore[no-untyped-def]
    """Brings what stands at a place of the heap down to where nothing below it begins earlier."""
    while 2 * at + 1 < count:
        below = 2 * at + 1
        if below + 1 < count and q[Q_OFFSET, q[Q_SLOT, below + 1]] < q[Q_OFFSET, q[Q_SLOT, below]]:
            below += 1
        if q[Q_OFFSET, q[Q_SLOT, at]] <= q[Q_OFFSET, q[Q_SLOT, below]]:
            return
        _swap(q, at, below)
        at = below


@kernel
def _take_slot(q, s, offset):  # type: ignore[no-untyped-def]
    """A free slot for a transaction that begins at ``offset``."""
    at = s[S_OPEN]
    slot = q[Q_SLOT, at]
    q[Q_OFFSET, slot] = offset
    s[S_OPEN] = at + 1
    _rise(q, at)
    return slot


@kernel
def _free_slot(q, s, slot):  # type: ignore[no-untyped-def]
    """Gives a slot back."""
    last, at = s[S_OPEN] - 1, q[Q_PLACE, slot]
    s[S_OPEN] = last
    _swap(q, at, last)
    if at < last:
        _rise(q, at)
        _sink(q, at, last)


@kernel
def open_transaction(r, b, i, o, time):  # type: ignore[no-untyped-def]
    """The producer's first transactional batch after its last marker: a transaction begins in this partition."""
    slot = _take_slot(r.queue, r.log.scalars, b[i, col.BASE_OFFSET])
    o.open_slot = slot
    t = r.open[slot]
    t.producer_id = b[i, col.PRODUCER_ID]
    t.producer_epoch = b[i, col.PRODUCER_EPOCH]
    t.first_offset = b[i, col.BASE_OFFSET]
    t.second_offset = -1
    t.first_timestamp = b[i, col.MAX_TIMESTAMP]
    t.first_time = time
    t.first_leader_epoch = b[i, col.PARTITION_LEADER_EPOCH]
    t.batches = 0
    t.records = 0
    t.bytes = 0
    t.segment = r.log.scalars[S_SEGMENT]
    t.position = b[i, col.POSITION]
    t.gap_offset = -1
    t.marker_offset = -1
    t.marker_epoch = -1
    t.commit = 0
    t.coordinator_epoch = r.marked[o.marked].coordinator_epoch if o.marked >= 0 else -1
    t.marker_timestamp = -1
    t.marker_segment = -1
    t.marker_position = -1
    t.last_stable_offset = -1
    t.repeat = 0
    t.from_snapshot = 0
    _note_last_marker(r.marked, o, t)


@kernel
def extend_transaction(t, b, i, time):  # type: ignore[no-untyped-def]
    """Adds a data batch to the producer's open transaction."""
    t.last_epoch = b[i, col.PRODUCER_EPOCH]
    if t.batches == 1:
        t.second_offset = b[i, col.BASE_OFFSET]
    t.last_offset = b[i, col.LAST_OFFSET]
    t.last_timestamp = b[i, col.MAX_TIMESTAMP]
    t.last_time = time
    t.last_leader_epoch = b[i, col.PARTITION_LEADER_EPOCH]
    t.batches += 1
    t.records += max(b[i, col.RECORD_COUNT], 0)
    t.bytes += b[i, col.SIZE]


@kernel
def _note_last_marker(marked, o, t):  # type: ignore[no-untyped-def]
    """Notes the producer's marker before this transaction."""
    if o.marked < 0:
        t.prev_marker_offset = -1
        t.prev_marker_epoch = -1
        t.prev_marker_time = -1
        t.prev_marker_commit = 0
        return
    m = marked[o.marked]
    t.prev_marker_offset = m.offset
    t.prev_marker_epoch = m.epoch
    t.prev_marker_time = m.time
    t.prev_marker_commit = m.commit


@kernel
def close_transaction(r, b, i, o):  # type: ignore[no-untyped-def]
    """A marker: moves the producer's open transaction to the decided ones, or notes that there was none."""
    n, slot = r.log.scalars[S_TRANSACTIONS], o.open_slot
    r.log.scalars[S_TRANSACTIONS] = n + 1
    t = r.transactions[n]
    if slot >= 0:
        r.transactions[n] = r.open[slot]
        _free_slot(r.queue, r.log.scalars, slot)
        o.open_slot = -1
        t.repeat = 0
        t.last_stable_offset = b[i, col.LAST_OFFSET] + 1
        if r.log.scalars[S_OPEN] > 0:
            t.last_stable_offset = r.queue[Q_OFFSET, r.queue[Q_SLOT, 0]]
    else:
        _lone_marker(r.marked, b, i, o, t)
    t.marker_offset = b[i, col.LAST_OFFSET]
    t.marker_epoch = b[i, col.PRODUCER_EPOCH]
    t.commit = 1 if b[i, col.CONTROL_TYPE] == 1 else 0
    t.coordinator_epoch = b[i, col.COORDINATOR_EPOCH]
    t.marker_timestamp = b[i, col.MAX_TIMESTAMP]
    t.marker_segment = r.log.scalars[S_SEGMENT]
    t.marker_position = b[i, col.POSITION]


@kernel
def _lone_marker(marked, b, i, o, t):  # type: ignore[no-untyped-def]
    t.producer_id = b[i, col.PRODUCER_ID]
    t.producer_epoch = b[i, col.PRODUCER_EPOCH]
    t.last_epoch = b[i, col.PRODUCER_EPOCH]
    t.first_offset = -1
    t.second_offset = -1
    t.last_offset = -1
    t.first_timestamp = -1
    t.first_time = -1
    t.last_timestamp = -1
    t.last_time = -1
    t.first_leader_epoch = -1
    t.last_leader_epoch = b[i, col.PARTITION_LEADER_EPOCH]
    t.batches = 0
    t.records = 0
    t.bytes = 0
    t.segment = -1
    t.position = -1
    t.gap_offset = -1
    t.last_stable_offset = -1
    t.from_snapshot = 0
    t.repeat = 0
    if o.marker_fresh:
        m, commit = marked[o.marked], 1 if b[i, col.CONTROL_TYPE] == 1 else 0
        t.repeat = 1 if m.epoch == b[i, col.PRODUCER_EPOCH] and m.commit == commit else 0
    _note_last_marker(marked, o, t)
