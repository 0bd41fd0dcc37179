"""What a leader with full knowledge of the log would have refused: sequences, epochs, idle times, clocks."""

from __future__ import annotations

from numba import njit

from auditor.facts import AFTER_UNREADABLE, IN_START_SEGMENT, IN_TRANSACTION, KNOWN_BELOW, STATE_MAY_BE_LOST
from auditor.model import producers as model
from auditor.replay.state import (
    ATTR_APPEND_TIME,
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
    new_event,
)


@njit(cache=True)
def _overlaps(start, length, sequence):  # type: ignore[no-untyped-def]
    return length > 0 and (sequence - start) % SEQUENCES < min(length, SEQUENCES - 1)


@njit(cache=True)
def _stored_before(r, o, epoch, first, last):  # type: ignore[no-untyped-def]
    """Whether the range [first, last] touches one that the producer stored before in this epoch."""
    if _overlaps(o.run_start, o.run_length, first) or _overlaps(o.run_start, o.run_length, last):
        return True
    at, steps = o.old_run, 0
    while at >= 0 and steps < MAX_OLD_RUNS:
        run = r.runs[at]
        if run.epoch == epoch and (_overlaps(run.start, run.length, first) or _overlaps(run.start, run.length, last)):
            return True
        at, steps = run.older, steps + 1
    return False


@njit(cache=True)
def _start_run(r, o, epoch, first, length):  # type: ignore[no-untyped-def]
    """Closes the producer's run of contiguous sequences and begins another."""
    if o.run_length > 0:
        at = r.scalars[S_RUNS]
        r.scalars[S_RUNS] = at + 1
        run = r.runs[at]
        run.epoch = o.data_epoch
        run.start = o.run_start
        run.length = o.run_length
        run.older = o.old_run if o.data_epoch == epoch else -1
        o.old_run = at if o.data_epoch == epoch else -1
    o.run_start = first
    o.run_length = length


@njit(cache=True)
def _sequence_event(r, kind, b, i, o, expected, time):  # type: ignore[no-untyped-def]
    row = new_event(r, kind, b, i, b.max_timestamp[i], time)
    e = r.events[row]
    e.a = expected
    e.b = b.base_sequence[i]
    e.c = o.data_last_offset
    e.d = o.data_leader_epoch
    e.e = o.data_time
    flags = 0
    if r.scalars[S_UNREADABLE] > o.ordinal:
        flags |= AFTER_UNREADABLE
    if o.open_slot >= 0 and r.open[o.open_slot].first_offset <= o.data_last_offset:
        flags |= IN_TRANSACTION
    if o.data_leader_epoch != b.partition_leader_epoch[i]:
        flags |= STATE_MAY_BE_LOST
    e.f = flags
    return row


@njit(cache=True)
def check_sequences(r, b, i, o, row, time):  # type: ignore[no-untyped-def]
    """The sequence rules for a judged data batch: what a leader with full knowledge would have refused."""
    first, epoch = b.base_sequence[i], b.producer_epoch[i]
    length = b.last_offset[i] - b.base_offset[i] + 1
    if first < 0 or length <= 0:
        return
    last = model.add_sequence(first, length - 1)
    if o.batches == 0:
        if first != 0:
            at = new_event(r, FIRST_NONZERO, b, i, b.max_timestamp[i], time)
            r.events[at].b = first
            flags = KNOWN_BELOW if o.below_batches > 0 else 0
            if r.scalars[S_SEGMENT] == r.params[P_START_SEGMENT]:
                flags |= IN_START_SEGMENT
            if r.scalars[S_UNREADABLE] >= 0:
                flags |= AFTER_UNREADABLE
            r.events[at].f = flags
        _start_run(r, o, epoch, first, length)
    elif epoch != o.data_epoch:
        if epoch > o.data_epoch and epoch >= o.max_epoch and first != 0:
            at = _sequence_event(r, BUMP_NONZERO, b, i, o, 0, time)
            r.events[at].e = o.data_epoch
        _start_run(r, o, epoch, first, length)
    else:
        _same_epoch(r, b, i, o, first, last, length, time)


@njit(cache=True)
def _same_epoch(r, b, i, o, first, last, length, time):  # type: ignore[no-untyped-def]
    epoch = b.producer_epoch[i]
    run_next = (o.run_start + o.run_length) % SEQUENCES
    expected = model.next_sequence(o.data_last_sequence)
    if first == run_next and o.run_length + length < SEQUENCES:
        o.run_length += length
    elif first == 0 and o.data_last_sequence != MAX_SEQUENCE:
        _sequence_event(r, SEQUENCE_RESET, b, i, o, expected, time)
        _start_run(r, o, epoch, first, length)
    elif first == run_next:  # one full turn of the sequence numbers: the oldest ones may come again
        o.run_start = (o.run_start + length) % SEQUENCES
    elif _stored_before(r, o, epoch, first, last):
        at = _sequence_event(r, SEQUENCE_OVERLAP, b, i, o, expected, time)
        r.events[at].e = _cached_offset(r, b.producer_id[i], first)
    elif first != expected:
        at = _sequence_event(r, SEQUENCE_GAP, b, i, o, expected, time)
        if (
            r.events[at].f & IN_TRANSACTION
            and r.open[o.open_slot].gap_offset < 0
            and not (r.events[at].f & AFTER_UNREADABLE)
        ):
            r.open[o.open_slot].gap_offset = b.base_offset[i]
        _start_run(r, o, epoch, first, length)


@njit(cache=True)
def _cached_offset(r, pid, first):  # type: ignore[no-untyped-def]
    """Base offset of the cached batch that holds this sequence, -1 when it left the cache of five."""
    row = model.find(r.producers, pid)
    for age in range(r.producers.cached[row]):
        at = model.cached_slot(r.producers, row, age)
        delta = r.producers.offset_delta[row, at]
        if (r.producers.last_sequence[row, at] - first) % SEQUENCES <= delta:
            return r.producers.last_offset[row, at] - delta
    return -1


@njit(cache=True)
def check_epochs(r, b, i, o, marker, time):  # type: ignore[no-untyped-def]
    """Epochs that go down, and producers whose epochs climb too fast. Returns whether the epoch is an old one."""
    epoch, stamp = b.producer_epoch[i], b.max_timestamp[i]
    if epoch < o.max_epoch:
        kind = MARKER_EPOCH_REGRESSION if marker else EPOCH_REGRESSION
        e = r.events[new_event(r, kind, b, i, stamp, time)]
        e.a = o.max_epoch
        e.c = o.max_epoch_offset
        e.d = o.max_epoch_leader
        return True
    if epoch > o.max_epoch:
        o.max_epoch = epoch
        o.max_epoch_offset = b.base_offset[i]
        o.max_epoch_leader = b.partition_leader_epoch[i]
        if not marker and not b.attributes[i] & ATTR_TRANSACTIONAL and o.batches > 0:
            if o.epoch_window_count == 0 or stamp - o.epoch_window_start > STORM_WINDOW_MS:
                o.epoch_window_start = stamp
                o.epoch_window_count = 0
            o.epoch_window_count += 1
            if o.epoch_window_count == STORM_EPOCHS:
                e = r.events[new_event(r, EPOCH_STORM, b, i, stamp, time)]
                e.a = o.epoch_window_count
                e.b = epoch - STORM_EPOCHS + 1
    return False


@njit(cache=True)
def check_idle(r, b, i, o, time):  # type: ignore[no-untyped-def]
    """Idle times longer than the expiration, after which the broker had forgotten the producer."""
    limit = r.params[P_EXPIRY_MS]
    if o.active_timestamp < 0 or o.open_slot >= 0 or limit <= 0:
        return
    idle = b.max_timestamp[i] - o.active_timestamp
    o.max_idle_ms = max(o.max_idle_ms, idle)
    if idle * 5 > limit * 4:
        o.idle_count += 1
    same = b.producer_epoch[i] == o.data_epoch and b.base_sequence[i] > 0
    if idle >= limit and same and b.base_sequence[i] == model.next_sequence(o.data_last_sequence):
        e = r.events[new_event(r, IDLE_BEYOND_EXPIRY, b, i, b.max_timestamp[i], time)]
        e.a = idle
        e.b = b.base_sequence[i]
        e.c = o.data_last_offset


@njit(cache=True)
def check_producer_clock(r, b, i, time):  # type: ignore[no-untyped-def]
    """CreateTime far behind the broker's clock, or ahead of it (known when the next broker-written time comes)."""
    s, stamp, producer = r.scalars, b.max_timestamp[i], b.producer_id[i]
    if b.attributes[i] & ATTR_APPEND_TIME or r.params[P_BROKER_TIMES] or stamp < 0:
        return
    expires = producer >= 0 and r.params[P_EXPIRY_MS] > 0
    if s[S_BROKER_TIME] >= 0 and expires and stamp < s[S_BROKER_TIME] - r.params[P_EXPIRY_MS]:
        r.events[new_event(r, TIMESTAMP_BEHIND, b, i, stamp, time)].a = s[S_BROKER_TIME]
    if stamp > s[S_AHEAD_TIME]:
        s[S_AHEAD_TIME] = stamp
        s[S_AHEAD_PRODUCER] = producer
        s[S_AHEAD_EPOCH] = b.producer_epoch[i]
        s[S_AHEAD_OFFSET] = b.base_offset[i]
        s[S_AHEAD_POSITION] = b.position[i]
        s[S_AHEAD_LAST] = b.last_offset[i]
        s[S_AHEAD_SEGMENT] = s[S_SEGMENT]
