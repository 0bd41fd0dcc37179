"""The replay of batches, compiled: the model asked of each in offset order what a leader would have answered.

Every batch of a sound log was accepted by a leader once, so the replay accepts all of them, as a follower does
(``ProducerAppendInfo`` with origin REPLICATION); where a leader could not have, the answer is explained by an event.
The one account of producers: what a batch is asked and what it leaves is the model's, and replays under other policies
(:mod:`auditor.replay.producers.policy_kernel`) go by the steps that this one leaves. Written in the subset that numba
compiles; state lives in numpy arrays, so that a million producers cost no Python object.
"""

from __future__ import annotations

import numpy as np

from auditor.base.compiled import kernel
from auditor.base.numbers import LAST_EPOCH
from auditor.connectors.codec.batches import FLAW_CRC
from auditor.model import producers
from auditor.model import producers as model
from auditor.model.policies import OK
from auditor.replay.producers.explanations import (
    explain_epoch,
    explain_sequences,
    goes_on_from_first,
    remember_zero,
    simply_goes_on,
)
from auditor.replay.producers.log_checks import check_header, check_leader_epoch, check_offsets, take_time
from auditor.replay.producers.new_rows import (
    COORDINATOR_EPOCH_REGRESSION,
    CRC,
    EPOCH_RESERVED,
    NOTHING,
    PLAIN_IN_TRANSACTION,
    later_row,
    new_event,
    producer_row,
)
from auditor.replay.producers.producer_times import check_producer_clock, note_idle, was_idle_for_long
from auditor.replay.producers.state import (
    ATTR_TRANSACTIONAL,
    DATA,
    EVENTS_OF_A_BATCH,
    MARKER,
    OTHER,
    UNREADABLE,
    Log,
    Replay,
)
from auditor.replay.producers.stored_sequences import note_below
from auditor.replay.producers.transaction_kernel import close_transaction, extend_transaction, open_transaction
from auditor.replay.task.batch_kinds import is_control, is_foreign, is_marker


@kernel
def _marked_row(log: Log, table: np.ndarray, live: np.record) -> int:
    """The row of what is noted of a producer's markers, a new one at its first."""
    if live.marked < 0:
        row = log.progress[0].marked
        log.progress[0].marked = row + 1
        live.marked = row
        marked = table[row]
        marked.markers = 0
        marked.coordinator_epoch = -1
        marked.coordinator_offset = -1
        marked.offset = -1
        marked.epoch = -1
        marked.time = -1
        marked.commit = 0
    return live.marked


@kernel
def _marker(replay: Replay, batch: np.record, row: int, judged: bool, time: int) -> int:
    """An end marker; returns the leader's answer."""
    log, live = replay.log, replay.live[row]
    marked = replay.marked[_marked_row(log, replay.marked, live)]
    epoch, coordinator_epoch = batch.producer_epoch, batch.coordinator_epoch
    answer = producers.check_marker(replay.producers, row, epoch, coordinator_epoch, 0)
    if judged:
        old = explain_epoch(replay, batch, row, answer, time)
        if coordinator_epoch < marked.coordinator_epoch and not old:
            event = log.events[new_event(log, COORDINATOR_EPOCH_REGRESSION, batch, batch.max_timestamp, time)]
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
    """A data batch. What it came to is left in ``step`` where that is ``noted``."""
    log, live, transactional = replay.log, replay.live[row], batch.attributes & ATTR_TRANSACTIONAL != 0
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
    _remember(replay, batch, row, judged, last_sequence, time)


@kernel
def _note_before(replay: Replay, row: int, step: np.record) -> None:
    """Where the producer's data before ended, and whether bytes between could not be read."""
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
    """What a leader would have refused, or a client not have sent; returns whether sequences were stored before."""
    log, live, transactional = replay.log, replay.live[row], batch.attributes & ATTR_TRANSACTIONAL != 0
    if producers.check_transaction(replay.producers, row, transactional) != OK:
        event = log.events[new_event(log, PLAIN_IN_TRANSACTION, batch, batch.max_timestamp, time)]
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
        new_event(log, EPOCH_RESERVED, batch, batch.max_timestamp, time)
    return stored


@kernel
def _remember(replay: Replay, batch: np.record, row: int, judged: bool, last_sequence: int, time: int) -> None:
    """What the next batch of this producer will be compared with."""
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
            later = replay.later[later_row(log, replay.later, born)]
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
def _remember_first(log: Log, batch: np.record, born: np.record, time: int) -> None:
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
def _broken(log: Log, batch: np.record) -> None:
    """A batch whose checksum is wrong: nothing may rest on its content, its last offset neither."""
    progress = log.progress[0]
    if max(batch.base_offset, batch.last_offset) >= log.params[0].log_start:
        log.events[new_event(log, CRC, batch, NOTHING, progress.broker_time)].stored_crc = batch.crc
    progress.ordinal += 1
    progress.unreadable_ordinal = progress.ordinal
    progress.unreadable_offset = progress.expected_offset
    progress.batches += 1


@kernel
def _batch(replay: Replay, batch: np.record, found: int, step: np.record, noted: bool) -> None:
    """Replays a batch. ``found``: the row of its producer, -1 if it was unknown a few batches ago."""
    log, progress = replay.log, replay.log.progress[0]
    progress.first_event = progress.events
    progress.flaws |= batch.flaws
    if batch.flaws & FLAW_CRC:
        _broken(log, batch)
        if noted:
            step.kind, step.row = UNREADABLE, -1
        return
    control, marker = is_control(batch), is_marker(batch)
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
        step.kind, step.row, step.time, step.judged = OTHER, -1, time, judged
    if batch.magic == 2 and batch.producer_id >= 0:
        data = not control and not is_foreign(batch, log.params[0].has_sequences != 0)
        if marker or data:
            known = replay.producers.meta[0]
            row = producer_row(replay, batch.producer_id, found)
            if noted:
                step.kind, step.row, step.seen, step.last_sequence = MARKER if marker else DATA, row, row < known, -1
            if data:
                _data(replay, batch, row, judged, time, step, noted)
            else:
                answer = _marker(replay, batch, row, judged, time)
                if noted:
                    step.answer, step.stored_before = answer, False
    progress.ordinal += 1


@kernel
def replay_batches(replay: Replay, batches: np.ndarray, start: int, stop: int) -> int:
    """Replays rows [start, stop) of BATCH records; returns how far it came.

    It stops early when the tables of events or decided transactions may be full: the caller empties them and goes on.
    ``ensure_room`` must have made room for ``stop - start`` producers.
    """
    for at in range(start, stop, len(replay.found)):
        next_ones = batches[at : min(at + len(replay.found), stop)]
        model.find_many(replay.producers, next_ones, replay.found)
        for k in range(len(next_ones)):
            if _may_be_full(replay):
                return at + k
            _batch(replay, next_ones[k], replay.found[k], replay.nothing[0], False)
    return stop


@kernel
def replay_and_note(replay: Replay, batches: np.ndarray, start: int, stop: int, steps: np.ndarray) -> int:
    """The same, and ``steps`` gets a STEP for each of the batches. Another kernel, since to ask for each batch whether
    it is wanted takes a tenth of the time."""
    for at in range(start, stop, len(replay.found)):
        next_ones = batches[at : min(at + len(replay.found), stop)]
        model.find_many(replay.producers, next_ones, replay.found)
        for k in range(len(next_ones)):
            if _may_be_full(replay):
                return at + k
            _batch(replay, next_ones[k], replay.found[k], steps[at + k], True)
    return stop


@kernel
def _may_be_full(replay: Replay) -> bool:
    progress = replay.log.progress[0]
    no_event = progress.events + EVENTS_OF_A_BATCH > len(replay.log.events)
    return no_event or progress.transactions >= len(replay.transactions)
