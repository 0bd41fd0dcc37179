"""Events for batches that no correct broker had accepted."""

from __future__ import annotations

import numpy as np

from auditor.base.compiled import kernel
from auditor.base.errors import LAST_SEQUENCE, SEQUENCES
from auditor.connectors.codec.primitives import crc_of_change
from auditor.facts.events import AFTER_UNREADABLE, IN_TRANSACTION, KNOWN_BELOW, STATE_MAY_BE_LOST
from auditor.model import producers as model
from auditor.model.policies import DUPLICATE, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, OK
from auditor.replay.producers import state
from auditor.replay.producers.state import LogContext, Replay

# Runs of a producer's sequences without a gap, compiled; the newest is part of LIVE.
#
# The newest run ends where the producer stands: repetitions, and data of a fenced producer, do not move it. A
# broker's state remembers five batches; a log has all of them.


NOTHING, SOME, ALL = 0, 1, 2  # of a range
RESET, LOG_START = 1, 2  # what began after a run: its producer again at 0, the log to be judged
NEAR = SEQUENCES // 2  # sequences; a run that lies farther ahead in the ring lies behind


@kernel
def _holds(start: int, length: int, sequence: int) -> bool:
    """Whether a run has a sequence. Of a full turn the oldest number counts as the one that comes next."""
    return length > 0 and (sequence - start) & LAST_SEQUENCE < min(length, LAST_SEQUENCE)


@kernel
def overlap(start: int, length: int, first: int, count: int) -> int:
    """Return how much of the ``count`` sequences from ``first`` on a run has: NOTHING, SOME or ALL."""
    if _holds(start, length, first):
        return ALL if _holds(start, length, first + count - 1) else SOME
    return SOME if length > 0 and (start - first) & LAST_SEQUENCE < count else NOTHING


@kernel
def next_in_run(live: np.record) -> int:
    """Return the sequence that follows the producer's newest run."""
    return (live.run_start + live.run_length) & LAST_SEQUENCE


@kernel
def extend_run(live: np.record, count: int) -> None:
    """Extend the newest run; after one full turn the oldest numbers may come again."""
    if live.run_length + count <= LAST_SEQUENCE:
        live.run_length += count
    else:
        live.run_start = (live.run_start + count) & LAST_SEQUENCE


@kernel
def stored_before(replay: Replay, row: int, epoch: int, first: int, count: int, behind: int) -> int:
    """Return how much of some sequences the producer stored before in its data's epoch, by the best run.

    ``behind``: bits of RUN.behind, 0 for all runs; else neither the newest is checked, nor those after which such a
    thing began.
    """
    live, later = replay.live[row], replay.born[row].later
    most = NOTHING if behind else overlap(live.run_start, live.run_length, first, count)
    run_row, steps = replay.later[later].old_run if later >= 0 else -1, 0
    while most < ALL and run_row >= 0 and steps < state.MAX_OLD_RUNS:
        run = replay.runs[run_row]
        if run.epoch != epoch or run.behind & behind:
            break
        most = max(most, overlap(run.start, run.length, first, count))
        run_row, steps = run.older, steps + 1
    return most


@kernel
def note_crowd(replay: Replay, row: int) -> None:
    """Note whether an older run is where the producer stands, or ahead of it: then going on may repeat it."""
    live, later = replay.live[row], replay.born[row].later
    live.crowded = 0
    following = next_in_run(live)
    run_row, steps = replay.later[later].old_run if later >= 0 else -1, 0
    while run_row >= 0 and steps < state.MAX_OLD_RUNS and not replay.runs[run_row].behind:
        run = replay.runs[run_row]
        if _holds(run.start, run.length, following) or (run.start - following) & LAST_SEQUENCE < NEAR:
            live.crowded = 1
        run_row, steps = run.older, steps + 1


@kernel
def begin_run(replay: Replay, row: int, before: int, epoch: int, first: int, count: int) -> None:
    """Close the producer's run and begin another. ``before``: the epoch of its runs so far."""
    live, later = replay.live[row], replay.born[row].later
    if before != epoch:  # of an epoch that is over nothing can be repeated
        live.crowded = 0
        if later >= 0:
            replay.later[later].old_run = -1
    elif live.run_length > 0:
        _keep_run(replay, row, epoch, live.run_start, live.run_length)
    live.run_start = first
    live.run_length = count


@kernel
def reset_run(replay: Replay, row: int, epoch: int, count: int) -> None:
    """Begin again at 0: earlier numbers say nothing about how the producer goes on."""
    begin_run(replay, row, epoch, epoch, 0, count)
    _note_behind(replay, row, RESET)


@kernel
def note_repeated(replay: Replay, row: int, epoch: int, first: int, count: int) -> None:
    """Note sequences of which some were stored before, perhaps below the log start, as stored above it."""
    live = replay.live[row]
    if _holds(live.run_start, live.run_length, first):
        live.run_length = max(live.run_length, ((first - live.run_start) & LAST_SEQUENCE) + count)
    elif stored_before(replay, row, epoch, first, count, LOG_START) < ALL:
        _keep_run(replay, row, epoch, first, count)


@kernel
def note_below(replay: Replay, row: int, before: int, epoch: int, first: int, count: int) -> None:
    """Note a batch below the log start, where nothing is judged.

    ``before``: the epoch of the one before, -1 for none.
    """
    live = replay.live[row]
    if before == epoch and first == next_in_run(live):
        extend_run(live, count)
    elif before == epoch and first == 0:
        reset_run(replay, row, epoch, count)
    else:
        begin_run(replay, row, before, epoch, first, count)


@kernel
def begin_judging(replay: Replay, row: int) -> None:
    """Mark older runs as below the log start: going on is compared with judged batches alone."""
    _note_behind(replay, row, LOG_START)


@kernel
def _note_behind(replay: Replay, row: int, what: int) -> None:
    """Note what began after the newest older run; there is none where the batch before it spans no offset."""
    later = replay.born[row].later
    replay.live[row].crowded = 0
    if later >= 0 and replay.later[later].old_run >= 0:
        replay.runs[replay.later[later].old_run].behind |= what


@kernel
def _keep_run(replay: Replay, row: int, epoch: int, first: int, count: int) -> None:
    """Add a run to the producer's older ones, which are all of one epoch."""
    progress = replay.log.progress[0]
    later = replay.later[state.later_row(replay.log, replay.later, replay.born[row])]
    run_row = progress.runs
    progress.runs = run_row + 1
    run = replay.runs[run_row]
    run.epoch = epoch
    run.start = first
    run.length = count
    run.older = later.old_run
    run.behind = 0
    later.old_run = run_row


# Events for batches that no correct broker had accepted, compiled.
#
# The model answers (:mod:`auditor.model.producers`) by the state that the log's own batches left, as if all of them
# had been accepted. The log shows more than that state, which tells refusals apart: where the producer stood before
# something was repeated or fenced, what it had stored before, and its highest epoch.


STORM_WINDOW_MS = 600_000
STORM_EPOCHS = 10
BEHIND_MAX_TIME = np.int64(43)  # where the bytes behind the largest time begin, in a batch
BEHIND_SEQUENCE = np.int64(57)  # likewise behind the base sequence, which follows the epoch
LOW_32 = np.int64(0xFFFF_FFFF)


# Sequences.


@kernel
def simply_goes_on(live: np.record, batch: np.record, answer: int) -> bool:
    """Whether a judged data batch, as nearly all, continues its producer's run, which is then extended."""
    if answer != OK or live.crowded or live.batches == 0 or batch.producer_epoch != live.data_epoch:
        return False
    if batch.base_sequence == 0 or batch.base_sequence != next_in_run(live):
        return False
    extend_run(live, batch.last_offset - batch.base_offset + 1)
    return True


@kernel
def explain_sequences(replay: Replay, batch: np.record, row: int, answer: int, time: int) -> bool:
    """Raise events for the sequences of a judged data batch that does not simply go on.

    Returns whether some may be stored before.
    """
    live, first, epoch = replay.live[row], batch.base_sequence, batch.producer_epoch
    count = batch.last_offset - batch.base_offset + 1
    if live.batches > 0 and epoch == live.data_epoch:
        stored = _same_epoch(replay, batch, row, count, answer, time)
    elif live.batches == 0:
        stored = _first_batch(replay, batch, row, count, answer, time)
    elif epoch < live.data_epoch:  # a fenced producer's: its numbers say nothing about its successor's
        return True  # for all that is known: of older epochs nobody keeps count
    else:
        stored = False
        if answer != OK and first != 0 and epoch >= live.max_epoch:
            event = _sequence_event(replay, state.BUMP_NONZERO, batch, live, answer, state.ZERO, time)
            replay.log.events[event].previous_epoch = live.data_epoch
        begin_run(replay, row, live.data_epoch, epoch, first, count)
        if first == 0 and not batch.attributes & state.ATTR_TRANSACTIONAL:
            _begin_again(replay, batch, row, time)
    if first == 0:
        _note_zero(replay, batch, row)
    return stored


@kernel
def _same_epoch(replay: Replay, batch: np.record, row: int, count: int, answer: int, time: int) -> bool:
    """Explain a batch of the same epoch as the one before, with ``count`` sequences, that is not simply next."""
    live, first, epoch = replay.live[row], batch.base_sequence, batch.producer_epoch
    expected = model.next_sequence(live.data_last_sequence)
    goes_on = first == next_in_run(live)  # where it stood before something was repeated or fenced, if not the next one
    behind = (RESET if answer == DUPLICATE else RESET | LOG_START) if goes_on else 0
    stored = stored_before(replay, row, epoch, first, count, behind)
    refused = answer != OK and answer != INVALID_PRODUCER_EPOCH and answer != INVALID_TXN_STATE
    if goes_on:
        extend_run(live, count)
        if stored != NOTHING:
            _overlap_event(replay, batch, row, answer, expected, time)
        elif refused:
            _sequence_event(replay, state.SEQUENCE_RESUMED, batch, live, answer, expected, time)
    elif first == 0 and live.data_last_sequence != LAST_SEQUENCE:
        _from_zero(replay, batch, row, count, answer, expected, time)
    elif stored != NOTHING:
        _overlap_event(replay, batch, row, answer, expected, time)
        note_repeated(replay, row, epoch, first, count)
    else:
        if first == expected:
            if refused:  # by what a fenced producer left; its own batch before went beyond a repetition
                _sequence_event(replay, state.SEQUENCE_RESUMED, batch, live, answer, expected, time)
        elif answer != OK:
            _gap_event(replay, batch, live, answer, expected, time)
        begin_run(replay, row, epoch, epoch, first, count)
    note_crowd(replay, row)
    later = replay.born[row].later
    if later >= 0 and replay.later[later].again_left > 0:
        _go_on_again(replay, batch, row, time)
    return stored != NOTHING


@kernel
def _from_zero(replay: Replay, batch: np.record, row: int, count: int, answer: int, expected: int, time: int) -> None:
    """Explain a return to sequence 0: the same bytes once more, or a new numbering."""
    live, born = replay.live[row], replay.born[row]
    if _same_bytes(replay.later, batch, born):
        event = _sequence_event(replay, state.SEQUENCE_OVERLAP, batch, live, answer, expected, time)
        replay.log.events[event].stored_base_offset = _zero_base_offset(replay.later, born)
        note_repeated(replay, row, batch.producer_epoch, 0, count)
    else:
        event = _sequence_event(replay, state.SEQUENCE_RESET, batch, live, answer, expected, time)
        replay.log.events[event].previous_time = live.data_time
        reset_run(replay, row, batch.producer_epoch, count)


@kernel
def _overlap_event(replay: Replay, batch: np.record, row: int, answer: int, expected: int, time: int) -> None:
    event = _sequence_event(replay, state.SEQUENCE_OVERLAP, batch, replay.live[row], answer, expected, time)
    replay.log.events[event].stored_base_offset = _cached_offset(replay.producers, row, batch.base_sequence)


@kernel
def _gap_event(replay: Replay, batch: np.record, live: np.record, answer: int, expected: int, time: int) -> None:
    event = replay.log.events[_sequence_event(replay, state.SEQUENCE_GAP, batch, live, answer, expected, time)]
    event.previous_time = live.data_time
    if event.context & IN_TRANSACTION and not event.context & AFTER_UNREADABLE:
        transaction = replay.open[live.open_slot]
        if transaction.gap_offset < 0:
            transaction.gap_offset = batch.base_offset


@kernel
def _first_batch(replay: Replay, batch: np.record, row: int, count: int, answer: int, time: int) -> bool:
    """Explain a producer's first judged batch.

    What is known from below the log start is compared after all has been read (:mod:`auditor.replay.producers.kernel`),
    except for a retry that nobody remembered.
    """
    live, born, first = replay.live[row], replay.born[row], batch.base_sequence
    again = first == 0 and born.below >= 0 and _same_bytes(replay.later, batch, born)
    if again or (first != 0 and answer == DUPLICATE):
        below = replay.below[born.below]
        expected = model.next_sequence(below.last_sequence)
        event = replay.log.events[_sequence_event(replay, state.SEQUENCE_OVERLAP, batch, live, answer, expected, time)]
        event.stored_base_offset = _cached_offset(replay.producers, row, first)
        if again:
            event.stored_base_offset = replay.later[born.later].zero_base_offset
        event.previous_last_offset = below.last_offset
        event.context = 0
    elif first != 0:
        _first_sequence(replay.log, batch, born, answer, time)
    if born.below < 0 or replay.below[born.below].epoch != batch.producer_epoch:
        live.run_start = first
        live.run_length = count
        return False
    return _take_first_run(replay, row, batch.producer_epoch, first, count, again)


@kernel
def _take_first_run(replay: Replay, row: int, epoch: int, first: int, count: int, again: bool) -> bool:
    """Append the first judged batch to the runs below; return whether some of it was stored there already.

    ``again``: it repeats the last batch from sequence 0.
    """
    live = replay.live[row]
    stored = stored_before(replay, row, epoch, first, count, 0) != NOTHING
    goes_on, anew = first == next_in_run(live), first == 0 and not again
    if goes_on:
        extend_run(live, count)
    elif anew:
        reset_run(replay, row, epoch, count)
    elif not stored:
        begin_run(replay, row, epoch, epoch, first, count)
    begin_judging(replay, row)
    if stored and not goes_on and not anew:
        note_repeated(replay, row, epoch, first, count)
    return stored


@kernel
def _sequence_event(
    replay: Replay, kind: int, batch: np.record, live: np.record, answer: int, expected: int, time: int
) -> int:
    """Add an event of a kind with the columns SEQUENCE; return its row."""
    log = replay.log
    row = state.new_event(log, kind, batch, batch.max_timestamp, time)
    event = log.events[row]
    event.answer = answer
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
def _first_sequence(log: LogContext, batch: np.record, born: np.record, answer: int, time: int) -> None:
    """Raise an event for a first judged batch that does not begin with sequence 0."""
    event = log.events[state.new_event(log, state.FIRST_NONZERO, batch, batch.max_timestamp, time)]
    event.answer = answer
    event.found_sequence = batch.base_sequence
    flags = KNOWN_BELOW if born.below >= 0 else 0
    if log.progress[0].unreadable_ordinal >= 0:
        flags |= AFTER_UNREADABLE
    event.context = flags


@kernel
def _cached_offset(producers: model.Producers, row: int, first: int) -> int:
    """Base offset of the cached batch that has this sequence, -1 when it left the cache of five."""
    for age in range(producers.entries[row].cached):
        cached = producers.rings[model.cached_slot(producers, row, age), row]
        if (cached.last_sequence - first) % SEQUENCES <= cached.offset_delta:
            return cached.last_offset - cached.offset_delta
    return -1


# Batches that begin at sequence 0: the same bytes may come again.


@kernel
def _note_zero(replay: Replay, batch: np.record, row: int) -> None:
    live, born = replay.live[row], replay.born[row]
    if live.batches == 0 and born.later < 0:
        born.zero, born.zero_crc, born.zero_bytes = 1, batch.crc, batch.bytes  # the rest is first_*
    else:
        remember_zero(replay, batch, row)


@kernel
def remember_zero(replay: Replay, batch: np.record, row: int) -> None:
    """Store what a later batch from sequence 0 is made of: the same bytes may come again."""
    later = replay.later[state.later_row(replay.log, replay.later, replay.born[row])]
    later.zero_epoch = batch.producer_epoch
    later.zero_crc = batch.crc
    later.zero_bytes = batch.bytes
    later.zero_time = batch.max_timestamp
    later.zero_base_offset = batch.base_offset


@kernel
def _same_bytes(table: np.ndarray, batch: np.record, born: np.record) -> bool:
    """Whether the batch repeats the last one from sequence 0, apart from the broker-written time.

    ``table``: LATER.
    """
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
    if change and not batch.attributes & state.ATTR_APPEND_TIME:
        return False
    return crc ^ batch.crc == crc_of_change(change, batch.bytes - BEHIND_MAX_TIME)


@kernel
def _zero_base_offset(table: np.ndarray, born: np.record) -> int:
    """Base offset of a producer's last batch that began at sequence 0."""
    return table[born.later].zero_base_offset if born.later >= 0 else born.first_offset


# Batches that a producer sends again in its next epoch: it renumbers from 0 what is in flight (KIP-360), also what was
# stored but not acknowledged. The records are the same bytes then.


@kernel
def _begin_again(replay: Replay, batch: np.record, row: int, time: int) -> None:
    """Compare the first batch of an epoch with the cached ones of the epoch before, and note if it is one of them.

    Where two of those are equal, the producer writes equal batches anyway.
    """
    entry, before = replay.producers.entries[row], np.int64(replay.live[row].data_epoch)
    if entry.epoch != before:
        return
    age, same = -1, 0
    for other in range(entry.cached):
        if _is_sent_again(replay, batch, row, before, other):
            age = other
            same += 1
    later = replay.later[state.later_row(replay.log, replay.later, replay.born[row])]
    later.again_left = 0
    if same == 1:
        later.again_epoch = before
        later.again_age = age
        later.again_left = age
        _again_event(replay, batch, row, before, age, time)


@kernel
def _go_on_again(replay: Replay, batch: np.record, row: int, time: int) -> None:
    """Compare the next batch of an epoch with the cached one that followed in the epoch before."""
    later = replay.later[replay.born[row].later]
    epoch, age = np.int64(later.again_epoch), np.int64(later.again_age)
    later.again_left -= 1
    if _is_sent_again(replay, batch, row, epoch, age):
        _again_event(replay, batch, row, epoch, age, time)
    else:
        later.again_left = 0
    if later.again_left > 0:
        replay.live[row].crowded = 1


@kernel
def _again_event(replay: Replay, batch: np.record, row: int, epoch: int, age: int, time: int) -> None:
    log, live = replay.log, replay.live[row]
    event = log.events[state.new_event(log, state.SENT_AGAIN, batch, batch.max_timestamp, time)]
    cached = replay.producers.rings[model.cached_slot(replay.producers, row, age), row]
    event.previous_epoch = epoch
    event.previous_last_offset = live.data_last_offset
    event.stored_base_offset = cached.last_offset - cached.offset_delta
    if replay.later[replay.born[row].later].again_left > 0:
        live.crowded = 1  # the next batch is compared, too


@kernel
def _is_sent_again(replay: Replay, batch: np.record, row: int, epoch: int, age: int) -> bool:
    """Whether a batch is the cached one of ``age``, but for the epoch, the sequence and the broker-written time."""
    place = model.cached_slot(replay.producers, row, age)
    cached, checksum = replay.producers.rings[place, row], replay.checksums[place, row]
    if cached.offset_delta != batch.last_offset - batch.base_offset:
        return False
    aged = (batch.max_timestamp - np.int64(checksum.low_time)) & LOW_32
    change = (batch.max_timestamp - aged) ^ batch.max_timestamp
    if change and not batch.attributes & state.ATTR_APPEND_TIME:
        return False
    first = model.subtract_sequence(cached.last_sequence, cached.offset_delta)
    numbers = (np.int64(epoch ^ batch.producer_epoch) << 32) | np.int64(first ^ batch.base_sequence)
    changed = crc_of_change(numbers, batch.bytes - BEHIND_SEQUENCE)
    changed ^= crc_of_change(change, batch.bytes - BEHIND_MAX_TIME)
    return np.int64(checksum.crc) ^ batch.crc == changed


# Epochs.


@kernel
def explain_epoch(replay: Replay, batch: np.record, row: int, answer: int, time: int) -> bool:
    """Raise events for epochs that decrease, or that climb too fast. Returns whether the epoch is an old one."""
    log, live, born = replay.log, replay.live[row], replay.born[row]
    epoch, marker = batch.producer_epoch, batch.attributes & state.ATTR_CONTROL
    if epoch == live.max_epoch:
        return False
    if epoch < live.max_epoch:
        kind = state.MARKER_EPOCH_REGRESSION if marker else state.EPOCH_REGRESSION
        event = log.events[state.new_event(log, kind, batch, batch.max_timestamp, time)]
        event.answer = answer
        event.known_epoch = live.max_epoch
        event.known_epoch_offset = born.first_offset if born.later < 0 else replay.later[born.later].max_epoch_offset
        event.known_leader_epoch = (
            born.first_leader_epoch if born.later < 0 else replay.later[born.later].max_epoch_leader
        )
        return True
    live.max_epoch = epoch
    if goes_on_from_first(live, born) or marker:
        later = replay.later[state.later_row(log, replay.later, born)]
        later.max_epoch_offset = batch.base_offset
        later.max_epoch_leader = batch.partition_leader_epoch
        if not marker and not batch.attributes & state.ATTR_TRANSACTIONAL and live.batches > 0:
            _count_epoch(log, batch, later, time)
    return False


@kernel
def goes_on_from_first(live: np.record, born: np.record) -> bool:
    """Whether a judged data batch has to be noted in LATER: it is not the first, or there is a row."""
    return live.batches > 0 or born.later >= 0


@kernel
def _count_epoch(log: LogContext, batch: np.record, later: np.record, time: int) -> None:
    """Count a new epoch of a producer without transactions; raise an event when there are many in a short time."""
    stamp = batch.max_timestamp
    if later.epoch_window_count == 0 or stamp - later.epoch_window_start > STORM_WINDOW_MS:
        later.epoch_window_start = stamp
        later.epoch_window_count = 0
    later.epoch_window_count += 1
    if later.epoch_window_count == STORM_EPOCHS:
        event = log.events[state.new_event(log, state.EPOCH_STORM, batch, stamp, time)]
        event.epochs = later.epoch_window_count
        event.first_epoch = batch.producer_epoch - STORM_EPOCHS + 1
