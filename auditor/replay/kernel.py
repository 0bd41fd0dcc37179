"""The replay of batches, compiled: the reference model applied in offset order, telling what was odd on the way.

Every batch of a sound log was accepted by a leader once, so the replay accepts all of them, as a follower does
(``ProducerAppendInfo`` with origin REPLICATION), and records where a leader could not have. Written in the subset that
numba compiles; state lives in numpy arrays, so that a million producers cost no Python object.
"""

from __future__ import annotations

import numpy as np

from auditor.base.compiled import kernel
from auditor.connectors.codec import batch as col
from auditor.connectors.codec import columns
from auditor.model import producers as model
from auditor.replay.batch_kinds import FLAW_PRODUCER_SEQUENCE, has_broker_time, is_control, is_foreign, is_marker
from auditor.replay.sequences import check_epochs, check_idle, check_producer_clock, check_sequences
from auditor.replay.state import (
    AHEAD_MS,
    ATTR_CONTROL,
    ATTR_TRANSACTIONAL,
    COORDINATOR_EPOCH_REGRESSION,
    COUNT_BELOW_SPAN,
    CRC,
    EPOCH_RESERVED,
    EVENTS_PER_BATCH,
    HEADER_FLAW,
    LEADER_EPOCH_CHECKPOINT,
    LEADER_EPOCH_DECREASE,
    NOTHING,
    OFFSET_HOLE,
    OFFSETS_NOT_INCREASING,
    OUTSIDE_SEGMENT,
    P_BROKER_TIMES,
    P_INTACT_FROM,
    P_KRAFT,
    P_LOG_START,
    P_SEQUENCES,
    PLAIN_IN_TRANSACTION,
    RESERVED_EPOCH,
    S_AHEAD_EPOCH,
    S_AHEAD_LAST,
    S_AHEAD_OFFSET,
    S_AHEAD_POSITION,
    S_AHEAD_PRODUCER,
    S_AHEAD_SEGMENT,
    S_AHEAD_TIME,
    S_ANY_TIME,
    S_BATCHES,
    S_BELOW,
    S_BROKER_TIME,
    S_DATA_OFFSETS,
    S_EVENTS,
    S_EXPECTED,
    S_FIRST_TIME,
    S_HOLES_CLEANED,
    S_HOLES_INTACT,
    S_LAST_OFFSET,
    S_LEADER_EPOCH,
    S_MARKED,
    S_MARKER_OFFSETS,
    S_ORDINAL,
    S_RECORDS,
    S_SEGMENT,
    S_SEGMENT_ANY_TIME,
    S_SEGMENT_BASE,
    S_SEGMENT_NEXT,
    S_SEGMENT_TIME,
    S_TRANSACTIONS,
    S_UNREADABLE,
    S_UNREADABLE_AT,
    S_UNREADABLE_OFFSETS,
    TIMESTAMP_AHEAD,
    new_event,
    producer_row,
)
from auditor.replay.transaction_kernel import close_transaction, extend_transaction, open_transaction

HEADER_FLAWS = (
    columns.FLAW_COUNT_ABOVE_SPAN
    | columns.FLAW_NEGATIVE_SPAN
    | columns.FLAW_CODEC_UNKNOWN
    | columns.FLAW_NO_PRODUCER_FIELDS
    | columns.FLAW_PRODUCER_EPOCH
    | columns.FLAW_CONTROL_COMPRESSED
    | columns.FLAW_CONTROL_KEY
    | columns.FLAW_CONTROL_VALUE
    | columns.FLAW_CONTROL_TYPE
    | columns.FLAW_CONTROL_NOT_TRANSACTIONAL
    | columns.FLAW_CONTROL_RECORDS
    | columns.FLAW_CONTROL_SEQUENCE
    | columns.FLAW_CONTROL_NO_PRODUCER
)
FLAW_CRC = columns.FLAW_CRC
FLAW_COUNT_BELOW_SPAN = columns.FLAW_COUNT_BELOW_SPAN
FLAW_NO_PRODUCER_FIELDS = columns.FLAW_NO_PRODUCER_FIELDS


@kernel
def _offsets(g, b, i, time):  # type: ignore[no-untyped-def]
    """Offset order, holes and the segment's bounds; moves the expected offset. Returns whether the batch is judged."""
    s, base, last = g.scalars, b[i, col.BASE_OFFSET], b[i, col.LAST_OFFSET]
    log_start = g.params[P_LOG_START]
    judged = last >= log_start
    expected = s[S_EXPECTED]
    if judged:
        if expected >= 0 and base < expected:
            g.events[new_event(g, OFFSETS_NOT_INCREASING, b, i, b[i, col.MAX_TIMESTAMP], time)].a = expected - 1
        elif base < s[S_SEGMENT_BASE] or (s[S_SEGMENT_NEXT] >= 0 and last >= s[S_SEGMENT_NEXT]):
            row = new_event(g, OUTSIDE_SEGMENT, b, i, b[i, col.MAX_TIMESTAMP], time)
            g.events[row].a = s[S_SEGMENT_BASE]
            g.events[row].b = s[S_SEGMENT_NEXT]
        if s[S_FIRST_TIME] < 0:
            s[S_FIRST_TIME] = time
        expected = max(expected, log_start)
        if base > expected:
            _hole(g, b, i, expected, base, time)
        _count_offsets(g, b, i, max(base, expected), last)
    s[S_EXPECTED] = max(s[S_EXPECTED], last + 1)
    return judged


@kernel
def _hole(g, b, i, expected, base, time):  # type: ignore[no-untyped-def]
    intact = max(expected, g.params[P_INTACT_FROM])
    s = g.scalars
    s[S_HOLES_CLEANED] += max(0, min(base, intact) - expected)
    if base <= intact:
        return
    if s[S_UNREADABLE] == s[S_ORDINAL]:  # the bytes before it could not be read: told already
        s[S_UNREADABLE_OFFSETS] += base - intact
    else:
        s[S_HOLES_INTACT] += base - intact
        g.events[new_event(g, OFFSET_HOLE, b, i, b[i, col.MAX_TIMESTAMP], time)].a = intact


@kernel
def _count_offsets(g, b, i, first, last):  # type: ignore[no-untyped-def]
    """Adds the batch's offsets of [first, last] to the accounting: data, markers, and those cleaned out of it."""
    s = g.scalars
    span = last - first + 1
    if span <= 0:
        return
    if b[i, col.ATTRIBUTES] & ATTR_CONTROL and b[i, col.MAGIC] == 2:
        s[S_MARKER_OFFSETS] += min(span, max(b[i, col.RECORD_COUNT], 0))
    else:
        s[S_DATA_OFFSETS] += min(span, max(b[i, col.RECORD_COUNT], 0))
    absent = span - min(span, max(b[i, col.RECORD_COUNT], 0))
    if absent > 0:
        cleaned = max(0, min(last + 1, g.params[P_INTACT_FROM]) - first)
        s[S_HOLES_CLEANED] += min(absent, cleaned)
        s[S_HOLES_INTACT] += absent - min(absent, cleaned)


@kernel
def _leader_epoch(g, b, i, time):  # type: ignore[no-untyped-def]
    epoch = b[i, col.PARTITION_LEADER_EPOCH]
    if epoch < 0:
        return
    s = g.scalars
    if epoch < s[S_LEADER_EPOCH]:
        g.events[new_event(g, LEADER_EPOCH_DECREASE, b, i, b[i, col.MAX_TIMESTAMP], time)].a = s[S_LEADER_EPOCH]
    belied, n = False, len(g.epochs)
    if n and b[i, col.BASE_OFFSET] >= g.epoch_starts[0]:
        at = np.searchsorted(g.epoch_starts, b[i, col.BASE_OFFSET], side="right") - 1
        if g.epochs[at] != epoch and b[i, col.BASE_OFFSET] >= g.params[P_LOG_START]:
            g.events[new_event(g, LEADER_EPOCH_CHECKPOINT, b, i, b[i, col.MAX_TIMESTAMP], time)].a = g.epochs[at]
            belied = True
    if not belied:  # what follows is held against epochs that the checkpoint bears out
        s[S_LEADER_EPOCH] = max(s[S_LEADER_EPOCH], epoch)


@kernel
def _flaws(g, b, i, time):  # type: ignore[no-untyped-def]
    flaws = b[i, col.FLAWS] & HEADER_FLAWS
    if g.params[P_SEQUENCES]:
        flaws |= b[i, col.FLAWS] & FLAW_PRODUCER_SEQUENCE
    else:  # coordinators write sequence 0 without a producer id
        flaws &= ~FLAW_NO_PRODUCER_FIELDS
    if flaws:
        g.events[new_event(g, HEADER_FLAW, b, i, b[i, col.MAX_TIMESTAMP], time)].a = flaws
    if b[i, col.FLAWS] & FLAW_COUNT_BELOW_SPAN and b[i, col.LAST_OFFSET] >= g.params[P_INTACT_FROM]:
        row = new_event(g, COUNT_BELOW_SPAN, b, i, b[i, col.MAX_TIMESTAMP], time)
        g.events[row].a = b[i, col.RECORD_COUNT]
        g.events[row].b = b[i, col.LAST_OFFSET] - b[i, col.BASE_OFFSET] + 1


@kernel
def _clock(g, b, i, marker):  # type: ignore[no-untyped-def]
    """time(b) without its cap, and the newest times seen. A broker-written time also dates the batches before it."""
    s, stamp = g.scalars, b[i, col.MAX_TIMESTAMP]
    s[S_ANY_TIME] = max(s[S_ANY_TIME], stamp)
    s[S_SEGMENT_ANY_TIME] = max(s[S_SEGMENT_ANY_TIME], stamp)
    if not has_broker_time(b, i, marker, g.params[P_BROKER_TIMES] != 0):
        return max(stamp, s[S_BROKER_TIME])
    if s[S_AHEAD_TIME] > stamp + AHEAD_MS and stamp >= 0:
        row = new_event(g, TIMESTAMP_AHEAD, b, i, s[S_AHEAD_TIME], stamp)
        e = g.events[row]
        e.base_offset = s[S_AHEAD_OFFSET]
        e.last_offset = s[S_AHEAD_LAST]
        e.segment = s[S_AHEAD_SEGMENT]
        e.position = s[S_AHEAD_POSITION]
        e.producer_id = s[S_AHEAD_PRODUCER]
        e.producer_epoch = s[S_AHEAD_EPOCH]
        e.a = stamp
    s[S_AHEAD_TIME] = -1
    s[S_BROKER_TIME] = max(s[S_BROKER_TIME], stamp)
    s[S_SEGMENT_TIME] = max(s[S_SEGMENT_TIME], stamp)
    return stamp


@kernel
def _marked(g, marked, o):  # type: ignore[no-untyped-def]
    """The row of what is noted of a producer's markers, a new one at its first."""
    if o.marked < 0:
        o.marked = g.scalars[S_MARKED]
        g.scalars[S_MARKED] += 1
        m = marked[o.marked]
        m.markers = 0
        m.coordinator_epoch = -1
        m.coordinator_offset = -1
        m.offset = -1
        m.epoch = -1
        m.time = -1
        m.commit = 0
    return o.marked


@kernel
def _marker(r, b, i, row, judged, time):  # type: ignore[no-untyped-def]
    o = r.live[row]
    m = r.marked[_marked(r.log, r.marked, o)]
    if judged:
        old = check_epochs(r.log, b, i, o, r.born[row], time)
        coordinator = b[i, col.COORDINATOR_EPOCH]
        if coordinator < m.coordinator_epoch and not old:
            e = r.log.events[new_event(r.log, COORDINATOR_EPOCH_REGRESSION, b, i, b[i, col.MAX_TIMESTAMP], time)]
            e.a = m.coordinator_epoch
            e.b = coordinator
            e.c = m.coordinator_offset
        if coordinator >= m.coordinator_epoch:
            m.coordinator_epoch = coordinator
            m.coordinator_offset = b[i, col.BASE_OFFSET]
        m.markers += 1
    close_transaction(r, b, i, o)
    model.apply_marker(r.producers, row, b[i, col.PRODUCER_EPOCH], b[i, col.COORDINATOR_EPOCH], b[i, col.MAX_TIMESTAMP])
    m.offset = b[i, col.BASE_OFFSET]
    m.epoch = b[i, col.PRODUCER_EPOCH]
    m.time = b[i, col.MAX_TIMESTAMP]
    m.commit = 1 if b[i, col.CONTROL_TYPE] == 1 else 0
    o.marker_fresh = 1
    o.active_timestamp = max(o.active_timestamp, b[i, col.MAX_TIMESTAMP])


@kernel
def _data(r, b, i, row, judged, time):  # type: ignore[no-untyped-def]
    o = r.live[row]
    epoch, transactional = b[i, col.PRODUCER_EPOCH], b[i, col.ATTRIBUTES] & ATTR_TRANSACTIONAL != 0
    if o.open_slot >= 0 and not transactional and judged:
        e = r.log.events[new_event(r.log, PLAIN_IN_TRANSACTION, b, i, b[i, col.MAX_TIMESTAMP], time)]
        e.a = r.open[o.open_slot].first_offset
        e.d = o.data_leader_epoch
    if judged:
        check_idle(r.log, b, i, o, time)
        if r.log.params[P_SEQUENCES]:
            check_sequences(r, b, i, o, time)
        check_epochs(r.log, b, i, o, r.born[row], time)
        if transactional and epoch == RESERVED_EPOCH:
            new_event(r.log, EPOCH_RESERVED, b, i, b[i, col.MAX_TIMESTAMP], time)
    if transactional:
        if o.open_slot < 0:
            open_transaction(r, b, i, o, time)
        extend_transaction(r.open[o.open_slot], b, i, time)
        o.transactional = 1
    length = b[i, col.LAST_OFFSET] - b[i, col.BASE_OFFSET]
    last_sequence = -1
    if b[i, col.BASE_SEQUENCE] >= 0 and length >= 0:
        last_sequence = model.add_sequence(b[i, col.BASE_SEQUENCE], length)
    model.apply_data(
        r.producers,
        row,
        epoch,
        last_sequence,
        b[i, col.BASE_OFFSET],
        b[i, col.LAST_OFFSET],
        b[i, col.MAX_TIMESTAMP],
        transactional,
    )
    _remember(r, b, i, row, judged, last_sequence, time)


@kernel
def _remember(r, b, i, row, judged, last_sequence, time):  # type: ignore[no-untyped-def]
    """What the next batch of this producer will be compared with."""
    o, epoch = r.live[row], b[i, col.PRODUCER_EPOCH]
    o.marker_fresh = 0
    o.ordinal = r.log.scalars[S_ORDINAL]
    o.active_timestamp = b[i, col.MAX_TIMESTAMP]
    if not judged:
        _remember_below(r.log, r.below, b, i, o, last_sequence)
        return
    if o.batches == 0:
        _remember_first(r.log, b, i, r.born[row], time)
    if epoch > o.max_data_epoch:
        o.max_data_epoch = epoch
        r.born[row].max_data_epoch_offset = b[i, col.BASE_OFFSET]
        r.born[row].max_data_epoch_time = time
    o.batches += 1
    o.records += max(b[i, col.RECORD_COUNT], 0)
    o.data_epoch = epoch
    o.data_last_sequence = last_sequence
    o.data_last_offset = b[i, col.LAST_OFFSET]
    o.data_timestamp = b[i, col.MAX_TIMESTAMP]
    o.data_time = time
    o.data_leader_epoch = b[i, col.PARTITION_LEADER_EPOCH]


@kernel
def _remember_first(g, b, i, first, time):  # type: ignore[no-untyped-def]
    first.first_offset = b[i, col.BASE_OFFSET]
    first.first_sequence = b[i, col.BASE_SEQUENCE]
    first.first_epoch = b[i, col.PRODUCER_EPOCH]
    first.first_segment = g.scalars[S_SEGMENT]
    first.first_position = b[i, col.POSITION]
    first.first_timestamp = b[i, col.MAX_TIMESTAMP]
    first.first_time = time


@kernel
def _remember_below(g, below, b, i, o, last_sequence):  # type: ignore[no-untyped-def]
    if o.below < 0:
        o.below = g.scalars[S_BELOW]
        g.scalars[S_BELOW] += 1
        below[o.below].batches = 0
    n = below[o.below]
    n.batches += 1
    n.last_offset = b[i, col.LAST_OFFSET]
    n.last_sequence = last_sequence
    n.epoch = b[i, col.PRODUCER_EPOCH]
    n.timestamp = b[i, col.MAX_TIMESTAMP]


@kernel
def _batch(r, b, i):  # type: ignore[no-untyped-def]
    s = r.log.scalars
    if b[i, col.FLAWS] & FLAW_CRC:  # nothing may rest on its content
        if b[i, col.LAST_OFFSET] >= r.log.params[P_LOG_START]:
            r.log.events[new_event(r.log, CRC, b, i, NOTHING, s[S_BROKER_TIME])].a = b[i, col.CRC]
        s[S_ORDINAL] += 1
        s[S_UNREADABLE] = s[S_ORDINAL]
        s[S_UNREADABLE_AT] = s[S_EXPECTED]
        s[S_BATCHES] += 1
        return
    control, marker = is_control(b, i), is_marker(b, i)
    time = _clock(r.log, b, i, marker)
    judged = _offsets(r.log, b, i, time)
    if judged:
        _leader_epoch(r.log, b, i, time)
        if not r.log.params[P_KRAFT]:
            _flaws(r.log, b, i, time)
            if b[i, col.MAGIC] == 2 and not control:
                check_producer_clock(r.log, b, i, time)
    s[S_BATCHES] += 1
    s[S_RECORDS] += max(b[i, col.RECORD_COUNT], 0)
    if b[i, col.MAGIC] == 2 and b[i, col.PRODUCER_ID] >= 0:
        if marker:
            _marker(r, b, i, producer_row(r, b[i, col.PRODUCER_ID]), judged, time)
        elif not control and not is_foreign(b, i, r.log.params[P_SEQUENCES] != 0):
            _data(r, b, i, producer_row(r, b[i, col.PRODUCER_ID]), judged, time)
    s[S_ORDINAL] += 1
    s[S_LAST_OFFSET] = max(s[S_LAST_OFFSET], b[i, col.LAST_OFFSET])


@kernel
def replay_batches(r, b, start, stop):  # type: ignore[no-untyped-def]
    """Replays rows [start, stop) of the columns; returns how far it came.

    It stops early when the tables of events or decided transactions are full: the caller empties them and goes on.
    ``ensure_room`` must have made room for ``stop - start`` producers.
    """
    for i in range(start, stop):
        if r.log.scalars[S_EVENTS] + EVENTS_PER_BATCH > len(r.log.events) or r.log.scalars[S_TRANSACTIONS] >= len(
            r.transactions
        ):
            return i
        _batch(r, b, i)
    return stop
