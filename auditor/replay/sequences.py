"""What a leader with full knowledge of the log would have refused: sequences, epochs, idle times, clocks."""

from __future__ import annotations

import numpy as np

from auditor.base.compiled import kernel
from auditor.connectors.codec import batch as col
from auditor.connectors.codec.crc32c import crc_of_change
from auditor.facts.copy_facts import (
    AFTER_UNREADABLE,
    IN_START_SEGMENT,
    IN_TRANSACTION,
    KNOWN_BELOW,
    STATE_MAY_BE_LOST,
)
from auditor.model import producers as model
from auditor.replay.state import (
    ATTR_APPEND_TIME,
    ATTR_CONTROL,
    ATTR_TRANSACTIONAL,
    BUMP_NONZERO,
    EPOCH_REGRESSION,
    EPOCH_STORM,
    FIRST_NONZERO,
    IDLE_BEYOND_EXPIRY,
    MARKER_EPOCH_REGRESSION,
    MAX_OLD_RUNS,
    MAX_SEQUENCE,
    P_BROKER_TIMES,
    P_EXPIRY_MS,
    P_START_SEGMENT,
    S_AHEAD_EPOCH,
    S_AHEAD_LAST,
    S_AHEAD_OFFSET,
    S_AHEAD_POSITION,
    S_AHEAD_PRODUCER,
    S_AHEAD_SEGMENT,
    S_AHEAD_TIME,
    S_BROKER_TIME,
    S_RUNS,
    S_SEGMENT,
    S_UNREADABLE,
    SEQUENCE_GAP,
    SEQUENCE_OVERLAP,
    SEQUENCE_RESET,
    SEQUENCES,
    STORM_EPOCHS,
    STORM_WINDOW_MS,
    TIMESTAMP_BEHIND,
    ZERO,
    new_event,
)

BEHIND_MAX_TIME = np.int64(43)  # where the bytes behind the largest time begin, in a batch


@kernel
def _overlaps(start, length, sequence):  # type: ignore[no-untyped-def]
    return length > 0 and (sequence - start) % SEQUENCES < min(length, SEQUENCES - 1)


@kernel
def _stored_before(runs, o, epoch, first, last):  # type: ignore[no-untyped-def]
    """Whether the range [first, last] touches one that the producer stored before in this epoch."""
    if _overlaps(o.run_start, o.run_length, first) or _overlaps(o.run_start, o.run_length, last):
        return True
    at, steps = o.old_run, 0
    while at >= 0 and steps < MAX_OLD_RUNS:
        run = runs[at]
        if run.epoch == epoch and (_overlaps(run.start, run.length, first) or _overlaps(run.start, run.length, last)):
            return True
        at, steps = run.older, steps + 1
    return False


@kernel
def _start_run(g, runs, o, epoch, first, length):  # type: ignore[no-untyped-def]
    """Closes the producer's run of contiguous sequences and begins another."""
    if o.run_length > 0:
        at = g.scalars[S_RUNS]
        g.scalars[S_RUNS] = at + 1
        run = runs[at]
        run.epoch = o.data_epoch
        run.start = o.run_start
        run.length = o.run_length
        run.older = o.old_run if o.data_epoch == epoch else -1
        o.old_run = at if o.data_epoch == epoch else -1
    o.run_start = first
    o.run_length = length


@kernel
def _sequence_event(r, kind, b, i, o, expected, time):  # type: ignore[no-untyped-def]
    row = new_event(r.log, kind, b, i, b[i, col.MAX_TIMESTAMP], time)
    e = r.log.events[row]
    e.a = expected
    e.b = b[i, col.BASE_SEQUENCE]
    e.c = o.data_last_offset
    e.d = o.data_leader_epoch
    e.e = o.data_time
    flags = 0
    if r.log.scalars[S_UNREADABLE] > o.ordinal:
        flags |= AFTER_UNREADABLE
    if o.open_slot >= 0 and r.open[o.open_slot].first_offset <= o.data_last_offset:
        flags |= IN_TRANSACTION
    if o.data_leader_epoch != b[i, col.PARTITION_LEADER_EPOCH]:
        flags |= STATE_MAY_BE_LOST
    e.f = flags
    return row


@kernel
def check_sequences(r, b, i, row, time):  # type: ignore[no-untyped-def]
    """The sequence rules for a judged data batch: what a leader with full knowledge would have refused."""
    o, first, epoch = r.live[row], b[i, col.BASE_SEQUENCE], b[i, col.PRODUCER_EPOCH]
    length = b[i, col.LAST_OFFSET] - b[i, col.BASE_OFFSET] + 1
    if first < 0 or length <= 0:
        return
    last = model.add_sequence(first, length - 1)
    if o.batches == 0:
        if first != 0:
            at = new_event(r.log, FIRST_NONZERO, b, i, b[i, col.MAX_TIMESTAMP], time)
            r.log.events[at].b = first
            flags = KNOWN_BELOW if o.below >= 0 else 0
            if r.log.scalars[S_SEGMENT] == r.log.params[P_START_SEGMENT]:
                flags |= IN_START_SEGMENT
            if r.log.scalars[S_UNREADABLE] >= 0:
                flags |= AFTER_UNREADABLE
            r.log.events[at].f = flags
        _start_run(r.log, r.runs, o, epoch, first, length)
    elif epoch < o.max_data_epoch:  # a fenced producer's: its numbers say nothing about its successor's
        return
    elif epoch != o.data_epoch:
        if epoch >= o.max_epoch and first != 0:
            at = _sequence_event(r, BUMP_NONZERO, b, i, o, ZERO, time)
            r.log.events[at].e = o.data_epoch
        _start_run(r.log, r.runs, o, epoch, first, length)
    else:
        _same_epoch(r, b, i, row, first, last, length, time)
    if first == 0:
        _remember_zero(b, i, r.born[row])


@kernel
def _remember_zero(b, i, zero):  # type: ignore[no-untyped-def]
    """What a batch that begins at sequence 0 is made of: the same bytes may come again."""
    zero.zero_epoch = b[i, col.PRODUCER_EPOCH]
    zero.zero_crc = b[i, col.CRC]
    zero.zero_size = b[i, col.SIZE]
    zero.zero_time = b[i, col.MAX_TIMESTAMP]
    zero.zero_offset = b[i, col.BASE_OFFSET]


@kernel
def _same_bytes(b, i, zero):  # type: ignore[no-untyped-def]
    """Whether the batch is the last one that began at sequence 0 once more, but for the time that a broker wrote."""
    if zero.zero_epoch != b[i, col.PRODUCER_EPOCH] or zero.zero_size != b[i, col.SIZE]:
        return False
    change = zero.zero_time ^ b[i, col.MAX_TIMESTAMP]
    if change and not b[i, col.ATTRIBUTES] & ATTR_APPEND_TIME:
        return False
    return zero.zero_crc ^ b[i, col.CRC] == crc_of_change(change, b[i, col.SIZE] - BEHIND_MAX_TIME)


@kernel
def _same_epoch(r, b, i, row, first, last, length, time):  # type: ignore[no-untyped-def]
    o = r.live[row]
    epoch = b[i, col.PRODUCER_EPOCH]
    run_next = (o.run_start + o.run_length) % SEQUENCES
    expected = model.next_sequence(o.data_last_sequence)
    if first == run_next and o.run_length + length < SEQUENCES:
        o.run_length += length
    elif first == 0 and o.data_last_sequence != MAX_SEQUENCE:
        if _same_bytes(b, i, r.born[row]):
            at = _sequence_event(r, SEQUENCE_OVERLAP, b, i, o, expected, time)
            r.log.events[at].e = r.born[row].zero_offset
            return
        _sequence_event(r, SEQUENCE_RESET, b, i, o, expected, time)
        _start_run(r.log, r.runs, o, epoch, first, length)
    elif first == run_next:  # one full turn of the sequence numbers: the oldest ones may come again
        o.run_start = (o.run_start + length) % SEQUENCES
    elif _stored_before(r.runs, o, epoch, first, last):
        at = _sequence_event(r, SEQUENCE_OVERLAP, b, i, o, expected, time)
        r.log.events[at].e = _cached_offset(r.producers, b[i, col.PRODUCER_ID], first)
    elif first != expected:
        at = _sequence_event(r, SEQUENCE_GAP, b, i, o, expected, time)
        if (
            r.log.events[at].f & IN_TRANSACTION
            and r.open[o.open_slot].gap_offset < 0
            and not (r.log.events[at].f & AFTER_UNREADABLE)
        ):
            r.open[o.open_slot].gap_offset = b[i, col.BASE_OFFSET]
        _start_run(r.log, r.runs, o, epoch, first, length)


@kernel
def _cached_offset(p, pid, first):  # type: ignore[no-untyped-def]
    """Base offset of the cached batch that holds this sequence, -1 when it left the cache of five."""
    row = model.find(p, pid)
    for age in range(p.cached[row]):
        at = model.cached_slot(p, row, age)
        delta = p.offset_delta[row, at]
        if (p.last_sequence[row, at] - first) % SEQUENCES <= delta:
            return p.last_offset[row, at] - delta
    return -1


@kernel
def check_epochs(g, b, i, o, first, time):  # type: ignore[no-untyped-def]
    """Epochs that go down, and producers whose epochs climb too fast. Returns whether the epoch is an old one."""
    epoch, stamp = b[i, col.PRODUCER_EPOCH], b[i, col.MAX_TIMESTAMP]
    if epoch == o.max_epoch:
        return False
    marker = b[i, col.ATTRIBUTES] & ATTR_CONTROL
    if epoch < o.max_epoch:
        kind = MARKER_EPOCH_REGRESSION if marker else EPOCH_REGRESSION
        e = g.events[new_event(g, kind, b, i, stamp, time)]
        e.a = o.max_epoch
        e.c = first.max_epoch_offset
        e.d = first.max_epoch_leader
        return True
    o.max_epoch = epoch
    first.max_epoch_offset = b[i, col.BASE_OFFSET]
    first.max_epoch_leader = b[i, col.PARTITION_LEADER_EPOCH]
    if not marker and not b[i, col.ATTRIBUTES] & ATTR_TRANSACTIONAL and o.batches > 0:
        _count_epoch(g, b, i, first, time)
    return False


@kernel
def _count_epoch(g, b, i, first, time):  # type: ignore[no-untyped-def]
    """A new epoch of a producer without transactions: tells when there are many within a short time."""
    stamp = b[i, col.MAX_TIMESTAMP]
    if first.epoch_window_count == 0 or stamp - first.epoch_window_start > STORM_WINDOW_MS:
        first.epoch_window_start = stamp
        first.epoch_window_count = 0
    first.epoch_window_count += 1
    if first.epoch_window_count == STORM_EPOCHS:
        e = g.events[new_event(g, EPOCH_STORM, b, i, stamp, time)]
        e.a = first.epoch_window_count
        e.b = b[i, col.PRODUCER_EPOCH] - STORM_EPOCHS + 1


@kernel
def check_idle(g, b, i, o, time):  # type: ignore[no-untyped-def]
    """Idle times longer than the expiration, after which the broker had forgotten the producer."""
    limit = g.params[P_EXPIRY_MS]
    if o.active_timestamp < 0 or o.open_slot >= 0 or limit <= 0:
        return
    idle = b[i, col.MAX_TIMESTAMP] - o.active_timestamp
    o.max_idle_ms = max(o.max_idle_ms, idle)
    if idle * 5 > limit * 4:
        o.idle_count += 1
    same = b[i, col.PRODUCER_EPOCH] == o.data_epoch and b[i, col.BASE_SEQUENCE] > 0
    if idle >= limit and same and b[i, col.BASE_SEQUENCE] == model.next_sequence(o.data_last_sequence):
        e = g.events[new_event(g, IDLE_BEYOND_EXPIRY, b, i, b[i, col.MAX_TIMESTAMP], time)]
        e.a = idle
        e.b = b[i, col.BASE_SEQUENCE]
        e.c = o.data_last_offset


@kernel
def check_producer_clock(g, b, i, time):  # type: ignore[no-untyped-def]
    """CreateTime far behind the broker's clock, or ahead of it (known when the next broker-written time comes)."""
    s, stamp, producer = g.scalars, b[i, col.MAX_TIMESTAMP], b[i, col.PRODUCER_ID]
    if b[i, col.ATTRIBUTES] & ATTR_APPEND_TIME or g.params[P_BROKER_TIMES] or stamp < 0:
        return
    expires = producer >= 0 and g.params[P_EXPIRY_MS] > 0
    if s[S_BROKER_TIME] >= 0 and expires and stamp < s[S_BROKER_TIME] - g.params[P_EXPIRY_MS]:
        g.events[new_event(g, TIMESTAMP_BEHIND, b, i, stamp, time)].a = s[S_BROKER_TIME]
    if stamp > s[S_AHEAD_TIME]:
        s[S_AHEAD_TIME] = stamp
        s[S_AHEAD_PRODUCER] = producer
        s[S_AHEAD_EPOCH] = b[i, col.PRODUCER_EPOCH]
        s[S_AHEAD_OFFSET] = b[i, col.BASE_OFFSET]
        s[S_AHEAD_POSITION] = b[i, col.POSITION]
        s[S_AHEAD_LAST] = b[i, col.LAST_OFFSET]
        s[S_AHEAD_SEGMENT] = s[S_SEGMENT]
