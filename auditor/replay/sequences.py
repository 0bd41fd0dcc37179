"""What a leader with full knowledge of the log would have refused: sequences, epochs, idle times, clocks."""

from __future__ import annotations

import numpy as np

from auditor.base.compiled import kernel
from auditor.connectors.codec.crc32c import crc_of_change
from auditor.facts.events import (
    AFTER_UNREADABLE,
    IN_START_SEGMENT,
    IN_TRANSACTION,
    KNOWN_BELOW,
    STATE_MAY_BE_LOST,
)
from auditor.model import producer_appends
from auditor.model import producers as model
from auditor.replay.new_rows import (
    BUMP_NONZERO,
    EPOCH_REGRESSION,
    EPOCH_STORM,
    FIRST_NONZERO,
    IDLE_BEYOND_EXPIRY,
    MARKER_EPOCH_REGRESSION,
    SEQUENCE_GAP,
    SEQUENCE_OVERLAP,
    SEQUENCE_RESET,
    TIMESTAMP_BEHIND,
    ZERO,
    later_row,
    new_event,
)
from auditor.replay.state import (
    ATTR_APPEND_TIME,
    ATTR_CONTROL,
    ATTR_TRANSACTIONAL,
    MAX_OLD_RUNS,
    SEQUENCES,
    Log,
    Replay,
)

MAX_SEQUENCE = 2**31 - 1
STORM_WINDOW_MS = 600_000
STORM_EPOCHS = 10
BEHIND_MAX_TIME = np.int64(43)  # where the bytes behind the largest time begin, in a batch


@kernel
def _overlaps(start: int, length: int, sequence: int) -> bool:
    return length > 0 and (sequence - start) % SEQUENCES < min(length, SEQUENCES - 1)


@kernel
def _stored_before(replay: Replay, row: int, epoch: int, first: int, last: int) -> bool:
    """Whether the range [first, last] touches one that the producer stored before in this epoch."""
    live, later = replay.live[row], replay.born[row].later
    if _overlaps(live.run_start, live.run_length, first) or _overlaps(live.run_start, live.run_length, last):
        return True
    at, steps = replay.later[later].old_run if later >= 0 else -1, 0
    while at >= 0 and steps < MAX_OLD_RUNS:
        run = replay.runs[at]
        if run.epoch == epoch and (_overlaps(run.start, run.length, first) or _overlaps(run.start, run.length, last)):
            return True
        at, steps = run.older, steps + 1
    return False


@kernel
def _start_run(replay: Replay, row: int, epoch: int, first: int, length: int) -> None:
    """Closes the producer's run of contiguous sequences and begins another."""
    live = replay.live[row]
    if live.run_length > 0:
        progress = replay.log.progress[0]
        later = replay.later[later_row(replay.log, replay.later, replay.born[row])]
        at = progress.runs
        progress.runs = at + 1
        run = replay.runs[at]
        run.epoch = live.data_epoch
        run.start = live.run_start
        run.length = live.run_length
        run.older = later.old_run if live.data_epoch == epoch else -1
        later.old_run = at if live.data_epoch == epoch else -1
    live.run_start = first
    live.run_length = length


@kernel
def _sequence_event(replay: Replay, kind: int, batch: np.record, live: np.record, expected: int, time: int) -> int:
    """A new event of a kind with the columns SEQUENCE; returns its row."""
    log = replay.log
    row = new_event(log, kind, batch, batch.max_timestamp, time)
    event = log.events[row]
    event.expected_sequence = expected
    event.found_sequence = batch.base_sequence
    event.previous_last_offset = live.data_last_offset
    event.previous_leader_epoch = live.data_leader_epoch
    flags = 0
    if log.progress[0].unreadable_ordinal > live.ordinal:
        flags |= AFTER_UNREADABLE
    if live.open_slot >= 0 and replay.open[live.open_slot].first_offset <= live.data_last_offset:
        flags |= IN_TRANSACTION
    if live.data_leader_epoch != batch.partition_leader_epoch:
        flags |= STATE_MAY_BE_LOST
    event.context = flags
    return row


@kernel
def check_sequences(replay: Replay, batch: np.record, row: int, time: int) -> None:
    """The sequence rules for a judged data batch: what a leader with full knowledge would have refused."""
    live, born, first, epoch = replay.live[row], replay.born[row], batch.base_sequence, batch.producer_epoch
    length = batch.last_offset - batch.base_offset + 1
    if first < 0 or length <= 0:
        return
    if live.batches == 0:
        if first != 0:
            _first_sequence(replay.log, batch, born, time)
        elif born.below >= 0 and _same_bytes(replay.later, batch, born):
            _stored_below(replay, batch, row, time)
        _start_run(replay, row, epoch, first, length)
    elif epoch < live.max_data_epoch:  # a fenced producer's: its numbers say nothing about its successor's
        return
    elif epoch != live.data_epoch:
        if epoch >= live.max_epoch and first != 0:
            event = _sequence_event(replay, BUMP_NONZERO, batch, live, ZERO, time)
            replay.log.events[event].previous_epoch = live.data_epoch
        _start_run(replay, row, epoch, first, length)
    else:
        _same_epoch(replay, batch, row, length, time)
    if first == 0:
        if live.batches == 0 and born.later < 0:
            born.zero, born.zero_crc, born.zero_bytes = 1, batch.crc, batch.bytes  # the rest is first_*
        else:
            remember_zero(replay, batch, row)


@kernel
def _stored_below(replay: Replay, batch: np.record, row: int, time: int) -> None:
    """A producer's first judged batch is one that lies below the log start: a retry that nobody knew any more."""
    live, born = replay.live[row], replay.born[row]
    below = replay.below[born.below]
    expected = producer_appends.next_sequence(below.last_sequence)
    event = replay.log.events[_sequence_event(replay, SEQUENCE_OVERLAP, batch, live, expected, time)]
    event.stored_base_offset = replay.later[born.later].zero_base_offset
    event.previous_last_offset = below.last_offset
    event.context = 0


@kernel
def remember_zero(replay: Replay, batch: np.record, row: int) -> None:
    """What a batch that begins at sequence 0 is made of, other than the first judged one: the same bytes may come
    again."""
    later = replay.later[later_row(replay.log, replay.later, replay.born[row])]
    later.zero_epoch = batch.producer_epoch
    later.zero_crc = batch.crc
    later.zero_bytes = batch.bytes
    later.zero_time = batch.max_timestamp
    later.zero_base_offset = batch.base_offset


@kernel
def _same_bytes(table: np.ndarray, batch: np.record, born: np.record) -> bool:
    """Whether the batch is the last one that began at sequence 0 once more, but for the time that a broker wrote.
    ``table``: LATER."""
    if born.later >= 0:
        later = table[born.later]
        if later.zero_epoch != batch.producer_epoch or later.zero_bytes != batch.bytes:
            return False
        crc, time = later.zero_crc, later.zero_time
    else:
        if not born.zero or born.first_epoch != batch.producer_epoch or born.zero_bytes != batch.bytes:
            return False
        crc, time = born.zero_crc, born.first_timestamp
    change = time ^ batch.max_timestamp
    if change and not batch.attributes & ATTR_APPEND_TIME:
        return False
    return crc ^ batch.crc == crc_of_change(change, batch.bytes - BEHIND_MAX_TIME)


@kernel
def _zero_base_offset(table: np.ndarray, born: np.record) -> int:
    """Where a producer's last batch begins that began at sequence 0."""
    return table[born.later].zero_base_offset if born.later >= 0 else born.first_offset


@kernel
def _first_sequence(log: Log, batch: np.record, born: np.record, time: int) -> None:
    """A producer's first judged batch does not begin with sequence 0."""
    event = log.events[new_event(log, FIRST_NONZERO, batch, batch.max_timestamp, time)]
    event.found_sequence = batch.base_sequence
    flags = KNOWN_BELOW if born.below >= 0 else 0
    if log.progress[0].segment == log.params[0].start_segment:
        flags |= IN_START_SEGMENT
    if log.progress[0].unreadable_ordinal >= 0:
        flags |= AFTER_UNREADABLE
    event.context = flags


@kernel
def _same_epoch(replay: Replay, batch: np.record, row: int, length: int, time: int) -> None:
    """A batch of the epoch that the producer's batch before had, with ``length`` sequences."""
    live, events, first, epoch = replay.live[row], replay.log.events, batch.base_sequence, batch.producer_epoch
    run_next = (live.run_start + live.run_length) % SEQUENCES
    if first == run_next and live.run_length + length < SEQUENCES:
        live.run_length += length
        return
    expected = producer_appends.next_sequence(live.data_last_sequence)
    if first == 0 and live.data_last_sequence != MAX_SEQUENCE:
        if _same_bytes(replay.later, batch, replay.born[row]):
            event = events[_sequence_event(replay, SEQUENCE_OVERLAP, batch, live, expected, time)]
            event.stored_base_offset = _zero_base_offset(replay.later, replay.born[row])
            return
        event = events[_sequence_event(replay, SEQUENCE_RESET, batch, live, expected, time)]
        event.previous_time = live.data_time
        _start_run(replay, row, epoch, first, length)
    elif first == run_next:  # one full turn of the sequence numbers: the oldest ones may come again
        live.run_start = (live.run_start + length) % SEQUENCES
    elif _stored_before(replay, row, epoch, first, producer_appends.add_sequence(first, length - 1)):
        event = events[_sequence_event(replay, SEQUENCE_OVERLAP, batch, live, expected, time)]
        event.stored_base_offset = _cached_offset(replay.producers, batch.producer_id, first)
    elif first != expected:
        event = events[_sequence_event(replay, SEQUENCE_GAP, batch, live, expected, time)]
        event.previous_time = live.data_time
        if event.context & IN_TRANSACTION and not event.context & AFTER_UNREADABLE:
            transaction = replay.open[live.open_slot]
            if transaction.gap_offset < 0:
                transaction.gap_offset = batch.base_offset
        _start_run(replay, row, epoch, first, length)


@kernel
def _cached_offset(producers: model.Producers, producer_id: int, first: int) -> int:
    """Base offset of the cached batch that holds this sequence, -1 when it left the cache of five."""
    row = model.find(producers, producer_id)
    for age in range(producers.entries[row].cached):
        cached = producers.rings[model.cached_slot(producers, row, age), row]
        if (cached.last_sequence - first) % SEQUENCES <= cached.offset_delta:
            return cached.last_offset - cached.offset_delta
    return -1


@kernel
def check_epochs(replay: Replay, batch: np.record, row: int, time: int) -> bool:
    """Epochs that go down, and producers whose epochs climb too fast. Returns whether the epoch is an old one."""
    log, live, born = replay.log, replay.live[row], replay.born[row]
    epoch, marker = batch.producer_epoch, batch.attributes & ATTR_CONTROL
    if epoch == live.max_epoch:
        return False
    if epoch < live.max_epoch:
        kind = MARKER_EPOCH_REGRESSION if marker else EPOCH_REGRESSION
        event = log.events[new_event(log, kind, batch, batch.max_timestamp, time)]
        event.known_epoch = live.max_epoch
        event.known_epoch_offset = born.first_offset if born.later < 0 else replay.later[born.later].max_epoch_offset
        event.known_leader_epoch = (
            born.first_leader_epoch if born.later < 0 else replay.later[born.later].max_epoch_leader
        )
        return True
    live.max_epoch = epoch
    if goes_on_from_first(live, born) or marker:
        later = replay.later[later_row(log, replay.later, born)]
        later.max_epoch_offset = batch.base_offset
        later.max_epoch_leader = batch.partition_leader_epoch
        if not marker and not batch.attributes & ATTR_TRANSACTIONAL and live.batches > 0:
            _count_epoch(log, batch, later, time)
    return False


@kernel
def goes_on_from_first(live: np.record, born: np.record) -> bool:
    """Whether what a judged data batch leaves has to be noted in LATER: it is not the first, or there is a row."""
    return live.batches > 0 or born.later >= 0


@kernel
def _count_epoch(log: Log, batch: np.record, later: np.record, time: int) -> None:
    """A new epoch of a producer without transactions: an event when there are many within a short time."""
    stamp = batch.max_timestamp
    if later.epoch_window_count == 0 or stamp - later.epoch_window_start > STORM_WINDOW_MS:
        later.epoch_window_start = stamp
        later.epoch_window_count = 0
    later.epoch_window_count += 1
    if later.epoch_window_count == STORM_EPOCHS:
        event = log.events[new_event(log, EPOCH_STORM, batch, stamp, time)]
        event.epochs = later.epoch_window_count
        event.first_epoch = batch.producer_epoch - STORM_EPOCHS + 1


@kernel
def check_idle(replay: Replay, batch: np.record, row: int, time: int) -> None:
    """Idle times longer than the expiration, after which the broker had forgotten the producer."""
    log, live = replay.log, replay.live[row]
    limit, first = log.params[0].expiration_ms, batch.base_sequence
    if live.active_timestamp < 0 or live.open_slot >= 0 or limit <= 0:
        return
    idle = batch.max_timestamp - live.active_timestamp
    live.max_idle_ms = max(live.max_idle_ms, idle)
    if idle * 5 > limit * 4:
        replay.later[later_row(log, replay.later, replay.born[row])].idle_count += 1
    same = batch.producer_epoch == live.data_epoch and first > 0
    if idle >= limit and same and first == producer_appends.next_sequence(live.data_last_sequence):
        event = log.events[new_event(log, IDLE_BEYOND_EXPIRY, batch, batch.max_timestamp, time)]
        event.idle_ms = idle
        event.broker_time = log.progress[0].broker_time
        event.found_sequence = first
        event.previous_last_offset = live.data_last_offset


@kernel
def check_producer_clock(log: Log, batch: np.record, time: int) -> None:
    """CreateTime far behind the broker's clock, or ahead of it (known when the next broker-written time comes)."""
    params, progress, stamp = log.params[0], log.progress[0], batch.max_timestamp
    if batch.attributes & ATTR_APPEND_TIME or params.broker_times or stamp < 0:
        return
    expires = batch.producer_id >= 0 and params.expiration_ms > 0
    if progress.broker_time >= 0 and expires and stamp < progress.broker_time - params.expiration_ms:
        event = log.events[new_event(log, TIMESTAMP_BEHIND, batch, stamp, time)]
        event.broker_time = progress.broker_time
    if stamp > progress.ahead_time:
        progress.ahead_time = stamp
        progress.ahead_producer_id = batch.producer_id
        progress.ahead_producer_epoch = batch.producer_epoch
        progress.ahead_base_offset = batch.base_offset
        progress.ahead_last_offset = batch.last_offset
        progress.ahead_segment = progress.segment
        progress.ahead_position = batch.position
