"""Compiled replay of batches against the model."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from auditor.base.compiled import kernel
from auditor.base.errors import LAST_EPOCH, LAST_MS, MOST_OFFSET, SEQUENCES
from auditor.connectors.codec.batches import FLAW_CRC
from auditor.facts.events import IN_TRANSACTION, STATE_MAY_BE_LOST, EventKind, blank_events
from auditor.facts.replica_facts import FALL_MS, SEQUENCE_FREE_TOPICS, ReplicaFacts
from auditor.model import producers
from auditor.model.batch_validation import goes_back, header_faults, is_leftover, lacks_records
from auditor.model.policies import INVALID_PRODUCER_EPOCH, OK, Policy
from auditor.replay.producers import state
from auditor.replay.producers.explanations import (
    LOW_32,
    explain_epoch,
    explain_sequences,
    goes_on_from_first,
    next_in_run,
    note_below,
    remember_zero,
    simply_goes_on,
)
from auditor.replay.producers.snapshot_chain import OPEN, IndexedSnapshot, Stored
from auditor.replay.producers.state import LogContext, Replay
from auditor.replay.producers.transaction_kernel import close_transaction, extend_transaction, open_transaction

# Times of producers, compiled: idle for longer than brokers remember, clocks that are off.


@kernel
def was_idle_for_long(live: np.record, limit: int, stamp: int) -> bool:
    """Note how long a producer was idle before a batch of ``stamp`` (ms); return whether that is near ``limit``."""
    if live.active_timestamp < 0 or live.open_slot >= 0 or limit <= 0 or stamp > LAST_MS:
        return False
    idle = stamp - live.active_timestamp
    live.max_idle_ms = max(live.max_idle_ms, idle)
    return idle * 5 > limit * 4


@kernel
def note_idle(replay: Replay, batch: np.record, row: int, answer: int, time: int) -> None:
    """Note a long idle time; raise an event if it exceeds the expiration and the batch goes on all the same."""
    log, live, first = replay.log, replay.live[row], batch.base_sequence
    idle = batch.max_timestamp - live.active_timestamp
    replay.later[state.later_row(log, replay.later, replay.born[row])].idle_count += 1
    follows = answer == OK or first == next_in_run(live)
    if idle >= log.params[0].expiration_ms and first > 0 and follows and batch.producer_epoch == live.data_epoch:
        event = log.events[state.new_event(log, state.IDLE_BEYOND_EXPIRY, batch, batch.max_timestamp, time)]
        event.idle_ms = idle
        event.broker_time = log.progress[0].broker_time
        event.found_sequence = first
        event.previous_last_offset = live.data_last_offset


@kernel
def check_producer_clock(log: LogContext, batch: np.record, time: int) -> None:
    """Check for a CreateTime far behind the broker's clock, or ahead of it.

    The latter is known when the next broker-written time comes.
    """
    params, progress, stamp = log.params[0], log.progress[0], batch.max_timestamp
    if batch.attributes & state.ATTR_APPEND_TIME or params.broker_times or stamp < 0:
        return
    expires = batch.producer_id >= 0 and params.expiration_ms > 0
    if progress.broker_time >= 0 and expires and stamp < progress.broker_time - params.expiration_ms:
        event = log.events[state.new_event(log, state.TIMESTAMP_BEHIND, batch, stamp, time)]
        event.broker_time = progress.broker_time
    if stamp > progress.ahead_time:
        progress.ahead_time = stamp
        progress.ahead_producer_id = batch.producer_id
        progress.ahead_producer_epoch = batch.producer_epoch
        progress.ahead_base_offset = batch.base_offset
        progress.ahead_last_offset = batch.last_offset
        progress.ahead_segment = progress.segment
        progress.ahead_position = batch.position


# Checks of the log whoever wrote it: offsets, leader epochs, headers, and the clock.


AHEAD_MS = 3_600_000


@kernel
def check_offsets(log: LogContext, batch: np.record, time: int) -> bool:
    """Check offset order, holes and the segment's bounds; move the expected offset.

    Returns whether the batch is judged.
    """
    progress, base, last = log.progress[0], batch.base_offset, batch.last_offset
    log_start = log.params[0].log_start
    judged = last >= log_start
    expected = progress.expected_offset
    if judged and base >= MOST_OFFSET:  # damaged, for no checksum covers it: nothing is missing before it
        event = log.events[state.new_event(log, state.OFFSETS_NOT_INCREASING, batch, batch.max_timestamp, time)]
        event.previous_last_offset = max(expected, log_start) - 1
        return judged
    if judged:
        following = progress.next_segment_base_offset
        if expected >= 0 and goes_back(base, expected):
            event = log.events[state.new_event(log, state.OFFSETS_NOT_INCREASING, batch, batch.max_timestamp, time)]
            event.previous_last_offset = expected - 1
        elif base < progress.segment_base_offset or (following >= 0 and last >= following):
            event = log.events[state.new_event(log, state.OUTSIDE_SEGMENT, batch, batch.max_timestamp, time)]
            event.segment_base_offset = progress.segment_base_offset
            event.next_segment_base_offset = following
        if progress.first_time < 0:
            progress.first_time = time
        expected = max(expected, log_start)
        if base > expected:
            _hole(log, batch, expected, time)
        _count_offsets(log, batch, max(base, expected))
    progress.expected_offset = max(progress.expected_offset, last + 1)
    return judged


@kernel
def _hole(log: LogContext, batch: np.record, expected: int, time: int) -> None:
    progress, base = log.progress[0], batch.base_offset
    intact = max(expected, log.params[0].intact_from)
    progress.holes_cleaned += max(0, min(base, intact) - expected)
    if base <= intact:
        return
    if progress.unreadable_ordinal == progress.ordinal:  # the bytes before it could not be read: an error says so
        progress.unreadable_offsets += base - intact
    else:
        progress.holes_intact += base - intact
        event = log.events[state.new_event(log, state.OFFSET_HOLE, batch, batch.max_timestamp, time)]
        event.first_missing_offset = intact


@kernel
def _count_offsets(log: LogContext, batch: np.record, first: int) -> None:
    """Account for the batch's offsets from ``first`` on: data, markers, and those cleaned out of it."""
    progress = log.progress[0]
    span = batch.last_offset - first + 1
    if span <= 0:
        return
    present = min(span, max(batch.record_count, 0))
    if batch.attributes & state.ATTR_CONTROL and batch.magic == 2:
        progress.marker_offsets += present
    else:
        progress.data_offsets += present
    absent = span - present
    if absent > 0:
        cleaned = min(absent, max(0, min(batch.last_offset + 1, log.params[0].intact_from) - first))
        progress.holes_cleaned += cleaned
        progress.holes_intact += absent - cleaned


@kernel
def check_leader_epoch(log: LogContext, batch: np.record, time: int) -> None:
    """Check for leader epochs that decrease or contradict the checkpoint."""
    epoch, base = batch.partition_leader_epoch, batch.base_offset
    if epoch < 0:
        return
    progress = log.progress[0]
    if epoch < progress.leader_epoch:
        event = log.events[state.new_event(log, state.LEADER_EPOCH_DECREASE, batch, batch.max_timestamp, time)]
        event.expected_leader_epoch = progress.leader_epoch
    contradicted = False
    if len(log.epochs) and base >= log.epoch_starts[0]:
        entry = np.searchsorted(log.epoch_starts, base, side="right") - 1
        if log.epochs[entry] != epoch and base >= log.params[0].log_start:
            event = log.events[state.new_event(log, state.LEADER_EPOCH_CHECKPOINT, batch, batch.max_timestamp, time)]
            event.expected_leader_epoch = log.epochs[entry]
            contradicted = True
    if not contradicted:  # what follows is compared with epochs that the checkpoint confirms
        progress.leader_epoch = max(progress.leader_epoch, epoch)


@kernel
def check_header(log: LogContext, batch: np.record, time: int) -> None:
    """Check for header fields that no broker writes."""
    if not batch.flaws:  # nearly all
        return
    sequences = log.params[0].has_sequences != 0
    if sequences and not log.progress[0].leftovers and is_leftover(batch.flaws, batch.attributes):
        log.progress[0].leftovers = 1
        state.new_event(log, state.LEFTOVER_FIELDS, batch, batch.max_timestamp, time)
    faults = header_faults(batch.flaws, batch.attributes, sequences)
    if faults:
        log.events[state.new_event(log, state.HEADER_FLAW, batch, batch.max_timestamp, time)].flaws = faults
    if lacks_records(batch.flaws, batch.last_offset, log.params[0].intact_from):
        event = log.events[state.new_event(log, state.COUNT_BELOW_SPAN, batch, batch.max_timestamp, time)]
        event.record_count = batch.record_count
        event.span = batch.last_offset - batch.base_offset + 1


@kernel
def take_time(log: LogContext, batch: np.record, marker: bool) -> int:
    """Return time(b) without its cap, and update the newest times. A broker-written time also dates earlier batches."""
    progress, stamp = log.progress[0], batch.max_timestamp
    if stamp > LAST_MS:  # of no clock
        stamp = -1
    progress.any_time = max(progress.any_time, stamp)
    progress.segment_any_time = max(progress.segment_any_time, stamp)
    if not state.has_broker_time(batch, marker, log.params[0].broker_times != 0):
        return max(stamp, progress.broker_time)
    if progress.ahead_time > stamp + AHEAD_MS and stamp >= 0:
        event = log.events[state.new_event(log, state.TIMESTAMP_AHEAD, batch, progress.ahead_time, stamp)]
        event.base_offset = progress.ahead_base_offset
        event.last_offset = progress.ahead_last_offset
        event.segment = progress.ahead_segment
        event.position = progress.ahead_position
        event.producer_id = progress.ahead_producer_id
        event.producer_epoch = progress.ahead_producer_epoch
        event.broker_time = stamp
    progress.ahead_time = -1
    progress.broker_time = max(progress.broker_time, stamp)
    progress.segment_time = max(progress.segment_time, stamp)
    if stamp >= 0:
        note_stamp(log, batch, stamp)
    return stamp


# The track of broker-written times (STAMP).


MINUTE_MS = 60_000


@kernel
def note_stamp(log: LogContext, batch: np.record, stamp: int) -> None:
    """Note a broker-written time: in the track if an era, a leader epoch or another minute begins with it."""
    progress, offset, leader_epoch = log.progress[0], batch.base_offset, batch.partition_leader_epoch
    fell = stamp < progress.era_newest - FALL_MS
    if progress.era < 0 or fell or leader_epoch != progress.stamp_leader_epoch:
        if progress.era >= 0:
            note_last(log)
        if progress.era < 0 or fell:
            progress.era += 1
            progress.era_newest = -1
        _add_stamp(log, offset, stamp, leader_epoch)
    elif stamp > progress.era_newest and stamp - log.track[progress.stamps - 1].time >= MINUTE_MS:
        if stamp - progress.stamp >= MINUTE_MS:  # what came before the gap is not sampled otherwise
            note_last(log)
        _add_stamp(log, offset, stamp, leader_epoch)
    if stamp > progress.era_newest:
        progress.era_newest = stamp
        progress.era_newest_offset = offset
        progress.era_newest_leader_epoch = leader_epoch
    progress.stamp = stamp
    progress.stamp_offset = offset
    progress.stamp_leader_epoch = leader_epoch


@kernel
def note_last(log: LogContext) -> None:
    """Add the newest time of the era and the last time to the track, unless they are there."""
    progress = log.progress[0]
    if progress.era_newest_offset > log.track[progress.stamps - 1].offset:
        _add_stamp(log, progress.era_newest_offset, progress.era_newest, progress.era_newest_leader_epoch)
    if progress.stamp_offset > log.track[progress.stamps - 1].offset:
        _add_stamp(log, progress.stamp_offset, progress.stamp, progress.stamp_leader_epoch)


@kernel
def _add_stamp(log: LogContext, offset: int, time: int, leader_epoch: int) -> None:
    progress = log.progress[0]
    if progress.stamps == state.STAMPS:
        for attempt in range(2):  # eras and leader epochs alone may be too many
            if progress.stamps * 8 > state.STAMPS * 7:
                _thin(log, attempt == 1)
    row = log.track[progress.stamps]
    progress.stamps += 1
    row.offset = offset
    row.time = time
    row.leader_epoch = leader_epoch
    row.era = progress.era


@kernel
def _thin(log: LogContext, anything: bool) -> None:
    """Remove every second row from the older three quarters of the track.

    Unless ``anything`` may go, where an era or a leader epoch begins and the newest time of an era remain.
    """
    progress, track = log.progress[0], log.track
    older, rows, newest, era, leader_epoch, dropped = progress.stamps * 3 // 4, 0, -1, -1, -1, False
    for k in range(progress.stamps):
        begins = track[k].era != era
        if begins:
            newest = _newest_of_era(track, k, progress.stamps)
        fixed = not anything and (begins or track[k].leader_epoch != leader_epoch)
        fixed = fixed or (k == newest and (not anything or track[k].era == progress.era))
        era, leader_epoch = track[k].era, track[k].leader_epoch
        if k < older and not fixed:
            dropped = not dropped
            if dropped:
                continue
        track[rows] = track[k]
        rows += 1
    progress.stamps = rows


@kernel
def _newest_of_era(track: np.ndarray, first: int, end: int) -> int:
    """Row of the newest time of the era that begins at row ``first``."""
    newest, row = first, first
    while row < end and track[row].era == track[first].era:
        if track[row].time > track[newest].time:
            newest = row
        row += 1
    return newest


# Replay of batches, compiled: the model answers for a leader, batch by batch in offset order.
#
# Every batch of a sound log was accepted by a leader once, so the replay accepts all of them, as a follower does
# (``ProducerAppendInfo`` with origin REPLICATION); where a leader could not have, an event explains the answer. This
# is the only account of producers: replays under other policies (:mod:`auditor.replay.producers.policy_kernel`) use
# the steps that this one leaves. Written in the subset that numba compiles; state is in numpy arrays, so that a
# million producers cost no Python object.


@kernel
def _marked_row(log: LogContext, table: np.ndarray, live: np.record) -> int:
    """Row of a producer's markers, a new one at its first."""
    if live.marked < 0:
        row = log.progress[0].marked
        log.progress[0].marked = row + 1
        live.marked = row
        table[row] = state.NEW_MARKED[0]
    return live.marked


@kernel
def _marker(replay: Replay, batch: np.record, row: int, judged: bool, time: int) -> int:
    """Replay an end marker; return the leader's answer."""
    log, live = replay.log, replay.live[row]
    marked = replay.marked[_marked_row(log, replay.marked, live)]
    epoch, coordinator_epoch = batch.producer_epoch, batch.coordinator_epoch
    answer = producers.check_marker(replay.producers, row, epoch, coordinator_epoch, 0)
    if judged:
        old = explain_epoch(replay, batch, row, answer, time)
        if coordinator_epoch < marked.coordinator_epoch and not old:
            event = log.events[
                state.new_event(log, state.COORDINATOR_EPOCH_REGRESSION, batch, batch.max_timestamp, time)
            ]
            event.answer = answer
            event.known_coordinator_epoch = marked.coordinator_epoch
            event.coordinator_epoch = coordinator_epoch
            event.known_marker_offset = marked.coordinator_offset
        if coordinator_epoch >= marked.coordinator_epoch:
            marked.coordinator_epoch = coordinator_epoch
            marked.coordinator_offset = batch.base_offset
        marked.markers += 1
    close_transaction(replay, batch, live)
    producers.apply_marker(replay.producers, row, epoch, coordinator_epoch, batch.max_timestamp)
    marked.offset = batch.base_offset
    marked.epoch = epoch
    marked.time = batch.max_timestamp
    marked.commit = 1 if batch.control_type == 1 else 0
    live.marker_fresh = 1
    live.active_timestamp = max(live.active_timestamp, batch.max_timestamp)
    return answer


@kernel
def _data(replay: Replay, batch: np.record, row: int, judged: bool, time: int, step: np.record, noted: bool) -> None:
    """Replay a data batch. If ``noted``, what it came to is put into ``step``."""
    log, live, transactional = replay.log, replay.live[row], batch.attributes & state.ATTR_TRANSACTIONAL != 0
    length = batch.last_offset - batch.base_offset
    last_sequence = -1
    if batch.base_sequence >= 0 and length >= 0:
        last_sequence = producers.add_sequence(batch.base_sequence, length)
    answer = producers.check_append(
        replay.producers,
        row,
        log.policy,
        batch.producer_epoch,
        batch.base_sequence,
        last_sequence if log.params[0].has_sequences else -1,
        transactional,
    )
    if noted:
        _note_before(replay, row, step)
    if judged:
        stored = _explain(replay, batch, row, last_sequence, answer, time)
        if noted:
            step.stored_before = stored
    if noted:
        step.answer = answer
        step.last_sequence = last_sequence
    if transactional:
        if live.open_slot < 0:
            open_transaction(replay, batch, live, time)
        extend_transaction(replay.open[live.open_slot], batch, time)
        live.transactional = 1
    producers.apply_data(
        replay.producers,
        row,
        epoch=batch.producer_epoch,
        last_sequence=last_sequence,
        first_offset=batch.base_offset,
        last_offset=batch.last_offset,
        max_timestamp=batch.max_timestamp,
        transactional=transactional,
    )
    if not transactional:
        checksum = replay.checksums[replay.producers.entries[row].newest, row]
        checksum.crc = batch.crc
        checksum.low_time = batch.max_timestamp & LOW_32
    _remember(replay, batch, row, judged, last_sequence, time)


@kernel
def _note_before(replay: Replay, row: int, step: np.record) -> None:
    """Note the end of the producer's earlier data, and whether bytes between are unreadable."""
    live, born, unreadable = replay.live[row], replay.born[row], replay.log.progress[0].unreadable_ordinal
    step.previous_offset = -1
    if live.batches > 0:
        step.previous_offset = live.data_last_offset
    elif born.below >= 0:
        step.previous_offset = replay.below[born.below].last_offset
    step.unreadable_between = unreadable > max(live.ordinal, -1)  # -1: none, and no batch before
    step.stored_before = False


@kernel
def _explain(replay: Replay, batch: np.record, row: int, last_sequence: int, answer: int, time: int) -> bool:
    """Raise events for what a leader would have refused, or a client not have sent.

    Returns whether sequences were stored before.
    """
    log, live, transactional = replay.log, replay.live[row], batch.attributes & state.ATTR_TRANSACTIONAL != 0
    if producers.check_transaction(replay.producers, row, transactional) != OK:
        event = log.events[state.new_event(log, state.PLAIN_IN_TRANSACTION, batch, batch.max_timestamp, time)]
        event.answer = answer
        event.transaction_first_offset = replay.open[live.open_slot].first_offset
        event.previous_leader_epoch = live.data_leader_epoch
    # Whoever is given the whole replay costs more to call than the checks of nearly all batches take.
    if was_idle_for_long(live, log.params[0].expiration_ms, batch.max_timestamp):
        note_idle(replay, batch, row, answer, time)
    stored = False
    if last_sequence >= 0 and log.params[0].has_sequences and not simply_goes_on(live, batch, answer):
        stored = explain_sequences(replay, batch, row, answer, time)
    if batch.producer_epoch != live.max_epoch:
        explain_epoch(replay, batch, row, answer, time)
    if transactional and batch.producer_epoch == LAST_EPOCH:
        state.new_event(log, state.EPOCH_RESERVED, batch, batch.max_timestamp, time)
    return stored


@kernel
def _remember(replay: Replay, batch: np.record, row: int, judged: bool, last_sequence: int, time: int) -> None:
    """Store what the next batch of this producer will be compared with."""
    log, live, born, epoch = replay.log, replay.live[row], replay.born[row], batch.producer_epoch
    live.marker_fresh = 0
    live.ordinal = log.progress[0].ordinal
    live.active_timestamp = batch.max_timestamp
    if not judged:
        _remember_below(replay, batch, row, last_sequence)
        if batch.base_sequence == 0:
            remember_zero(replay, batch, row)
        return
    if epoch > live.data_epoch:
        live.data_epoch = epoch
        if goes_on_from_first(live, born):
            later = replay.later[state.later_row(log, replay.later, born)]
            later.max_data_epoch_offset = batch.base_offset
            later.max_data_epoch_time = time
    if live.batches == 0:
        _remember_first(log, batch, born, time)
    live.batches += 1
    live.records += max(batch.record_count, 0)
    if epoch == live.data_epoch:  # a fenced producer's batch does not move what its successor goes on from
        live.data_last_sequence = last_sequence
    live.data_last_offset = batch.last_offset
    live.data_timestamp = batch.max_timestamp
    live.data_time = time
    live.data_leader_epoch = batch.partition_leader_epoch


@kernel
def _remember_first(log: LogContext, batch: np.record, born: np.record, time: int) -> None:
    born.first_offset = batch.base_offset
    born.first_sequence = batch.base_sequence
    born.first_epoch = batch.producer_epoch
    born.first_segment = log.progress[0].segment
    born.first_position = batch.position
    born.first_timestamp = batch.max_timestamp
    born.first_time = time
    born.first_last_offset = batch.last_offset
    born.first_leader_epoch = batch.partition_leader_epoch


@kernel
def _remember_below(replay: Replay, batch: np.record, row: int, last_sequence: int) -> None:
    log, table, live, born = replay.log, replay.below, replay.live[row], replay.born[row]
    if born.below < 0:
        added = log.progress[0].below
        log.progress[0].below = added + 1
        born.below = added
        table[added].batches = 0
        table[added].epoch = -1
    below = table[born.below]
    if last_sequence >= 0 and live.batches == 0:
        length = batch.last_offset - batch.base_offset + 1
        note_below(replay, row, below.epoch, batch.producer_epoch, batch.base_sequence, length)
    below.batches += 1
    below.last_offset = batch.last_offset
    below.last_sequence = last_sequence
    below.epoch = batch.producer_epoch
    below.timestamp = batch.max_timestamp


@kernel
def _broken(log: LogContext, batch: np.record) -> None:
    """Note a batch with a CRC mismatch: nothing may rest on its content, including its last offset."""
    progress = log.progress[0]
    if max(batch.base_offset, batch.last_offset) >= log.params[0].log_start:
        log.events[state.new_event(log, state.CRC, batch, state.NOTHING, progress.broker_time)].stored_crc = batch.crc
    progress.ordinal += 1
    progress.unreadable_ordinal = progress.ordinal
    progress.unreadable_offset = progress.expected_offset
    progress.batches += 1


@kernel
def _batch(replay: Replay, batch: np.record, found_row: int, step: np.record, noted: bool) -> None:
    """Replay a batch. ``found_row``: the row of its producer, -1 if it was unknown a few batches ago."""
    log, progress = replay.log, replay.log.progress[0]
    progress.first_event = progress.events
    progress.flaws |= batch.flaws
    if batch.flaws & FLAW_CRC:
        _broken(log, batch)
        if noted:
            step.kind, step.row = state.UNREADABLE, -1
        return
    control, marker = state.is_control(batch), state.is_marker(batch)
    progress.prior_time = max(progress.era_newest, progress.ahead_time)
    time = take_time(log, batch, marker)
    judged = check_offsets(log, batch, time)
    if judged:
        check_leader_epoch(log, batch, time)
        if not log.params[0].is_kraft:
            check_header(log, batch, time)
            if batch.magic == 2 and not control:
                check_producer_clock(log, batch, time)
    progress.batches += 1
    progress.records += max(batch.record_count, 0)
    if noted:
        step.kind, step.row, step.time, step.judged = state.OTHER, -1, time, judged
    if batch.magic == 2 and batch.producer_id >= 0:
        data = not control and not state.is_foreign(batch, log.params[0].has_sequences != 0)
        if marker or data:
            used_rows = replay.producers.meta[0]
            row = state.producer_row(replay, batch.producer_id, found_row)
            if noted:
                step.kind, step.row, step.seen, step.last_sequence = (
                    state.MARKER if marker else state.DATA,
                    row,
                    row < used_rows,
                    -1,
                )
            if data:
                _data(replay, batch, row, judged, time, step, noted)
            else:
                answer = _marker(replay, batch, row, judged, time)
                if noted:
                    step.answer, step.stored_before = answer, False
    progress.ordinal += 1


@kernel
def replay_batches(replay: Replay, batches: np.ndarray, start: int, stop: int) -> int:
    """Replay rows [start, stop) of BATCH records; return how far it came.

    It stops early when the tables of events or decided transactions may be full: the caller empties them and goes on.
    ``ensure_room`` must have made room for ``stop - start`` producers.
    """
    for first in range(start, stop, len(replay.found_rows)):
        next_ones = batches[first : min(first + len(replay.found_rows), stop)]
        producers.find_many(replay.producers, next_ones, replay.found_rows)
        for k in range(len(next_ones)):
            if _may_be_full(replay):
                return first + k
            _batch(replay, next_ones[k], replay.found_rows[k], replay.nothing[0], False)
    return stop


@kernel
def replay_and_note(replay: Replay, batches: np.ndarray, start: int, stop: int, steps: np.ndarray) -> int:
    """Replay likewise, and fill ``steps`` with a STEP for each of the batches.

    Another kernel, since asking for each batch whether it is wanted takes a tenth of the time.
    """
    for first in range(start, stop, len(replay.found_rows)):
        next_ones = batches[first : min(first + len(replay.found_rows), stop)]
        producers.find_many(replay.producers, next_ones, replay.found_rows)
        for k in range(len(next_ones)):
            if _may_be_full(replay):
                return first + k
            _batch(replay, next_ones[k], replay.found_rows[k], steps[first + k], True)
    return stop


@kernel
def _may_be_full(replay: Replay) -> bool:
    progress = replay.log.progress[0]
    no_event = progress.events + state.EVENTS_OF_A_BATCH > len(replay.log.events)
    return no_event or progress.transactions >= len(replay.transactions)


# A producer's first judged batch compared with earlier knowledge: batches below the log start, or a snapshot.
#
# A snapshot at or above the first stored segment shows what the broker knew: from there on every batch is in the
# files, so the first judged one is as provable as any other (semantics 6.2).


STATE = ("producer_epoch", "last_sequence", "last_offset", "last_timestamp")
BELOW = ("below_epoch", "below_last_sequence", "below_last_offset", "below_timestamp")
PLACES = {
    "segment": "segment",
    "position": "position",
    "base_offset": "offset",
    "last_offset": "last_offset",
    "producer_epoch": "epoch",
    "timestamp": "timestamp",
    "time": "time",
    "leader_epoch": "leader_epoch",
}


class PriorProducerState(NamedTuple):
    """What was known of a producer right before its first judged batch.

    ``offset``: of its last batch; ``open_since``: first offset of its open transaction by a snapshot, -1 without one.
    """

    epoch: int
    sequence: int
    offset: int
    timestamp: int
    open_since: int


def judge(facts: ReplicaFacts, replay: Replay, sound: list[Stored]) -> None:
    """Add events of first batches that do not follow from earlier knowledge.

    The FIRST_NONZERO events of those, and of all that a snapshot confirms, are removed. ``sound``: the snapshots by
    offset. Compacted or damaged logs are not judged.
    """
    params = replay.log.params[0]
    if facts.topic in SEQUENCE_FREE_TOPICS or params["intact_from"] > 0 or facts.absent:
        return
    if replay.progress["unreadable_ordinal"] >= 0 or not facts.segment_bases:
        return
    if not _anything_known(facts, replay, sound):
        return
    rows, prior, by_snapshot = _known(facts, replay, sound)
    first = {name: state.column(replay, f"first_{name}")[rows] for name in (*PLACES.values(), "sequence")}
    ids = state.column(replay, "producer_id")[rows]
    answers = _answers(ids, prior, first, replay.log.policy)
    follows = answers == OK
    events_of_first_batches = []
    for k in np.flatnonzero(~follows).tolist():
        before = PriorProducerState(*(int(column_[k]) for column_ in prior))
        row = {name: int(values[k]) for name, values in first.items()}
        if _marker_between(facts, int(ids[k]), before, row["offset"]):
            continue
        event = _event(facts, int(ids[k]), int(answers[k]), row, before, int(params["expiration_ms"]))
        if event is not None:
            events_of_first_batches.append(event)
    judged = np.concatenate(
        [ids[follows & by_snapshot], np.array([e["producer_id"][0] for e in events_of_first_batches], np.int64)]
    )
    explained = (facts.events["kind"] == EventKind.FIRST_NONZERO) & np.isin(facts.events["producer_id"], judged)
    events = np.concatenate([facts.events[~explained], *events_of_first_batches])
    facts.events = events[np.lexsort((events["position"], events["segment"]))]


def _anything_known(facts: ReplicaFacts, replay: Replay, sound: list[Stored]) -> bool:
    """Whether anything may be known from before a first batch, which is so for few replicas.

    From batches below the log start, or by a snapshot that is not newer than all first batches.
    """
    if replay.progress["below"] or not sound:
        return bool(replay.progress["below"])
    used = int(replay.producers.meta[0])
    judged = replay.born["first_offset"][:used][replay.live["batches"][:used] > 0]
    newest = min(int(judged.max(initial=-1)), facts.log_end)
    return any(facts.segment_bases[0] <= snapshot.offset <= newest for snapshot in sound)


def _known(facts: ReplicaFacts, replay: Replay, sound: list[Stored]) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """Rows of producers with judged batches and earlier knowledge, its columns of STATE, whether by a snapshot."""
    rows = np.flatnonzero(state.column(replay, "batches") > 0)
    offset, ids = state.column(replay, "first_offset")[rows], state.column(replay, "producer_id")[rows]
    prior = [state.column(replay, name)[rows].astype(np.int64) for name in BELOW]
    open_since = np.full(len(rows), -1, np.int64)
    by_snapshot = np.zeros(len(rows), np.bool_)
    for snapshot in sound:
        if not facts.segment_bases[0] <= snapshot.offset <= facts.log_end:
            continue
        entries = IndexedSnapshot(snapshot.entries)
        entry_row_of = entries.rows(ids)
        newer = (entry_row_of >= 0) & (snapshot.offset <= offset) & (snapshot.offset > prior[2])
        entry_rows = entry_row_of[newer]
        contradicts = entries.column("last_offset", entry_rows) >= facts.log_start  # a batch that the log does not have
        by_snapshot[newer] |= ~contradicts
        for values, name in zip(prior, STATE, strict=True):
            values[newer] = np.where(contradicts, values[newer], entries.column(name, entry_rows))
        open_since[newer] = np.where(contradicts, -1, entries.column(OPEN, entry_rows))
    prior.append(open_since)
    sure = (prior[0] >= 0) & (prior[1] >= 0)
    return rows[sure], [values[sure] for values in prior], by_snapshot[sure]


def _answers(ids: np.ndarray, prior: list[np.ndarray], first: dict[str, np.ndarray], policy: Policy) -> np.ndarray:
    """Answers of a leader with just that knowledge to each producer's first batch. Cost: a row per producer."""
    table = producers.new_producers(max(len(ids), 1), policy.cached_batches)
    answers = np.empty(len(ids), np.int64)
    epoch, sequence, offset, timestamp, _ = prior
    _ask(table, policy, (ids, epoch, sequence, offset, timestamp), (first["epoch"], first["sequence"]), answers)
    return answers


@kernel
def _ask(p, policy, prior, first, answers):  # type: ignore[no-untyped-def]
    ids, epochs, sequences, offsets, times = prior
    for k in range(len(ids)):
        row = producers.insert(p, ids[k])
        producers.set_epoch(p, row, epochs[k])
        producers.remember_batch(p, row, sequences[k], offsets[k], 0, times[k])
        epoch, sequence = first[0][k], first[1][k]
        # Of its batch the first sequence alone is compared; what a transaction was open for is asked elsewhere.
        answers[k] = producers.check_append(p, row, policy, epoch, sequence, sequence, True)


def _marker_between(facts: ReplicaFacts, pid: int, before: PriorProducerState, offset: int) -> bool:
    """Whether a marker bumped the producer's epoch in between: the batch is judged against that one already."""
    t = facts.transactions
    between = (t["producer_id"] == pid) & (t["marker_offset"] > before.offset) & (t["marker_offset"] < offset)
    return bool(np.any(t["marker_epoch"][between] > before.epoch))


def _event(
    facts: ReplicaFacts, pid: int, answer: int, first: dict[str, int], before: PriorProducerState, expiration_ms: int
) -> np.ndarray | None:
    """Event about a first batch; None where an event at it says so already."""
    kind, expected = _what(answer, first, before)
    same_offset = facts.events["base_offset"] == first["offset"]
    if bool(np.any(same_offset & np.isin(facts.events["kind"], (int(kind), int(EventKind.SEQUENCE_OVERLAP))))):
        return None
    event = blank_events(1)
    for name, source in PLACES.items():
        event[name] = first[source]
    event["kind"], event["producer_id"], event["answer"] = int(kind), pid, answer
    if kind == EventKind.EPOCH_REGRESSION:
        event["known_epoch"], event["known_epoch_offset"] = expected, before.offset
        return event
    event["expected_sequence"], event["found_sequence"] = expected, first["sequence"]
    event["previous_last_offset"] = before.offset
    if kind in (EventKind.SEQUENCE_GAP, EventKind.SEQUENCE_RESET):
        event["previous_time"] = before.timestamp
    elif kind == EventKind.BUMP_NONZERO:
        event["previous_epoch"] = before.epoch
    forgotten = expiration_ms > 0 and first["timestamp"] - before.timestamp >= expiration_ms
    event["context"] = STATE_MAY_BE_LOST if forgotten else 0
    if kind == EventKind.SEQUENCE_GAP and _in_transaction(facts, pid, first["offset"], before):
        event["context"] |= IN_TRANSACTION
    return event


def _in_transaction(facts: ReplicaFacts, pid: int, offset: int, before: PriorProducerState) -> bool:
    """Whether the batch at ``offset`` continued a transaction that was open before it, which then has the gap."""
    t = facts.transactions
    its = (t["producer_id"] == pid) & (t["first_offset"] <= offset) & (t["last_offset"] >= offset)
    was_open = (before.open_since >= 0) & (t["prev_marker_offset"] <= before.offset)
    its &= (t["first_offset"] >= 0) & ((t["first_offset"] < offset) | was_open)
    t["gap_offset"][its & (t["gap_offset"] < 0)] = offset
    return bool(np.any(its))


def _what(answer: int, first: dict[str, int], before: PriorProducerState) -> tuple[EventKind, int]:
    """Kind of event by a leader's answer, and what was expected."""
    if answer == INVALID_PRODUCER_EPOCH:
        return EventKind.EPOCH_REGRESSION, before.epoch
    if first["epoch"] > before.epoch:
        return EventKind.BUMP_NONZERO, 0
    expected = int(producers.next_sequence(before.sequence))
    if first["sequence"] == 0:
        return EventKind.SEQUENCE_RESET, expected
    ahead = (first["sequence"] - expected) % SEQUENCES < SEQUENCES // 2
    return (EventKind.SEQUENCE_GAP if ahead else EventKind.SEQUENCE_OVERLAP), expected
