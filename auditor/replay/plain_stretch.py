"""Batches in which every producer simply goes on, summed up so that a replay takes them all at once.

A chunk of such batches is summed up (:func:`summed_up`), by the replay itself or by whoever reads a part for it. The
replay takes the sums where none of the batches could change more than counters and what is newest
(:func:`take_stretch`), and else the batches themselves. So all that is judged is judged by
:mod:`auditor.replay.kernel`, and this knows only what a batch leaves of which there is nothing to say:
``tests/unit/test_plain_stretch.py`` compares the two.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from auditor.base.compiled import kernel
from auditor.model import producer_appends
from auditor.model import producers as model
from auditor.replay.batch_records import as_records
from auditor.replay.bounds import CopyBounds
from auditor.replay.state import ATTR_APPEND_TIME, ATTR_CONTROL, ATTR_TRANSACTIONAL, SEQUENCES, Replay

TAIL = 5  # newest batches of each producer that its state holds
MIN_PRODUCERS, ROWS_EACH = 8, 64  # more producers than one for so many batches are as quickly replayed
SUSPICIOUS = ATTR_CONTROL | ATTR_TRANSACTIONAL | ATTR_APPEND_TIME
ENOUGH = 1024  # batches; fewer are replayed before two kernels are called
FAR_MS = 1 << 50  # times beyond it are left to the replay, whose differences may overflow

# All batches together. Offsets of records, times in ms; ``first_time`` is that of the first batch, and ``ahead_*`` are
# of the first one with the largest time.
SUMS = np.dtype(
    [
        ("batches", "i8"), ("records", "i8"), ("bytes", "i8"), ("first_offset", "i8"), ("last_offset", "i8"),
        ("leader_epoch", "i8"), ("first_time", "i8"), ("least_time", "i8"), ("ahead_time", "i8"),
        ("ahead_producer_id", "i8"), ("ahead_producer_epoch", "i8"), ("ahead_base_offset", "i8"),
        ("ahead_last_offset", "i8"), ("ahead_position", "i8"),
    ]
)  # fmt: skip
# Each producer: ``sequences`` in a row from ``first_sequence`` on, one a record; ``gap_ms``: the longest time from one
# of its batches to the next; ``last_row`` counts batches of the stretch from 0; ``following`` is its next sequence, and
# ``place`` where its next batch goes in NEWEST.
OF_PRODUCER = np.dtype(
    [
        ("producer_id", "i8"), ("epoch", "i8"), ("first_sequence", "i8"), ("sequences", "i8"), ("batches", "i8"),
        ("first_time", "i8"), ("last_time", "i8"), ("gap_ms", "i8"), ("last_row", "i8"), ("last_offset", "i8"),
        ("following", "i8"), ("place", "i8"),
    ]
)  # fmt: skip
# One of its newest batches; that of number n is in place n % TAIL.
NEWEST = np.dtype([("last_sequence", "i8"), ("last_offset", "i8"), ("offset_delta", "i8")])


class Stretch(NamedTuple):
    """What :func:`take_stretch` takes: SUMS (one row), OF_PRODUCER in the order of their first batches, and NEWEST of
    each (TAIL columns)."""

    sums: np.ndarray
    producers: np.ndarray
    newest: np.ndarray


def may_be_plain(bounds: CopyBounds) -> bool:
    """Whether stretches of a copy are ever taken: not of the brokers' own topics."""
    return bounds.sequences and not bounds.broker_times and not bounds.kraft


def blank_stretch(producers: int) -> Stretch:
    """A stretch of no batches, with room for so many producers."""
    return Stretch(np.zeros(1, SUMS), np.zeros(producers, OF_PRODUCER), np.zeros((producers, TAIL), NEWEST))


def summed_up(rows: np.ndarray) -> Stretch | None:
    """The rows of a walk as a stretch; None where there is anything about them that a replay has to look at.

    Cost: some 11 ns a batch.
    """
    if not len(rows):
        return None
    most = max(MIN_PRODUCERS, len(rows) // ROWS_EACH)
    stretch = blank_stretch(most)
    slots = np.full(1 << (2 * most).bit_length(), -1, np.int32)
    used = int(_sum_up(as_records(rows), stretch, slots))
    return None if used < 0 else stretch._replace(producers=stretch.producers[:used], newest=stretch.newest[:used])


@kernel
def _sum_up(batches: np.ndarray, stretch: Stretch, slots: np.ndarray) -> int:
    """Fills a blank stretch; returns how many producers it has, -1 where these batches are none. ``slots`` (-1 each)
    are a hash table of producers."""
    first, used, slot = batches[0], 0, 0
    following, epoch = first.base_offset, first.partition_leader_epoch
    records, size, least, ahead, newest = 0, 0, first.max_timestamp, -1, 0
    for at in range(len(batches)):
        batch = batches[at]
        span, stamp = batch.last_offset - batch.base_offset + 1, batch.max_timestamp
        if batch.magic != 2 or batch.flaws != 0 or batch.attributes & SUSPICIOUS or span <= 0:
            return -1
        if batch.base_offset != following or batch.record_count != span or batch.partition_leader_epoch != epoch:
            return -1
        if stamp < 0 or stamp > FAR_MS:
            return -1
        following += span
        records += span
        size += batch.bytes
        least = min(least, stamp)
        if stamp > ahead:
            ahead, newest = stamp, at
        if batch.producer_id >= 0:
            if slots[slot] < 0 or stretch.producers[slots[slot]].producer_id != batch.producer_id:
                slot = _slot(stretch.producers, slots, batch.producer_id)
            if slots[slot] < 0:
                if used == len(stretch.producers):
                    return -1
                slots[slot] = used
                _begin(batch, stretch.producers[used])
                used += 1
            if not _goes_on(batch, at, stretch.producers[slots[slot]], stretch.newest[slots[slot]]):
                return -1
    sums, largest = stretch.sums[0], batches[newest]
    sums.batches = len(batches)
    sums.records = records
    sums.bytes = size
    sums.first_offset = first.base_offset
    sums.last_offset = following - 1
    sums.leader_epoch = epoch
    sums.first_time = first.max_timestamp
    sums.least_time = least
    sums.ahead_time = ahead
    sums.ahead_producer_id = largest.producer_id
    sums.ahead_producer_epoch = largest.producer_epoch
    sums.ahead_base_offset = largest.base_offset
    sums.ahead_last_offset = largest.last_offset
    sums.ahead_position = largest.position
    return used


@kernel
def _begin(batch: np.record, mine: np.record) -> None:
    """A producer's first batch comes."""
    mine.producer_id = batch.producer_id
    mine.epoch = batch.producer_epoch
    mine.first_sequence = mine.following = batch.base_sequence
    mine.first_time = mine.last_time = batch.max_timestamp


@kernel
def _goes_on(batch: np.record, at: int, mine: np.record, ring: np.ndarray) -> bool:
    """Adds a batch to its producer's; False where it does not simply go on. ``ring``: the producer's newest ones."""
    sequence, length = batch.base_sequence, batch.last_offset - batch.base_offset
    if sequence <= 0 or batch.producer_epoch < 0 or batch.producer_epoch != mine.epoch or sequence != mine.following:
        return False
    newest = ring[mine.place]
    newest.last_sequence = producer_appends.add_sequence(sequence, length)
    newest.last_offset = batch.last_offset
    newest.offset_delta = length
    mine.following = producer_appends.next_sequence(newest.last_sequence)
    mine.place += 1
    if mine.place == TAIL:  # no division: this is done for every batch
        mine.place = 0
    mine.gap_ms = max(mine.gap_ms, batch.max_timestamp - mine.last_time)
    mine.sequences += length + 1
    mine.batches += 1
    mine.last_time = batch.max_timestamp
    mine.last_row = at
    mine.last_offset = batch.last_offset
    return True


@kernel
def _slot(producers: np.ndarray, slots: np.ndarray, producer_id: int) -> int:
    """The slot that holds a producer, or the free one where it belongs."""
    mask = len(slots) - 1
    slot = (producer_id ^ (producer_id >> 9)) & mask
    while slots[slot] >= 0 and producers[slots[slot]].producer_id != producer_id:
        slot = (slot + 1) & mask
    return slot


@kernel
def take_stretch(replay: Replay, stretch: Stretch) -> bool:
    """Replays a stretch all at once; False, and nothing is changed, where its batches are to be looked at.

    No snapshot may wait within it (:class:`auditor.replay.snapshot_chain.Chain`), and the copy be one of those that
    :func:`may_be_plain` lets through.
    """
    if not _log_goes_on(replay, stretch.sums[0]):
        return False
    for number in range(len(stretch.producers)):
        if not _is_as_before(replay, stretch.producers[number]):
            return False
    for number in range(len(stretch.producers)):
        _take_producer(replay, stretch, number)
    _take_log(replay, stretch.sums[0])
    return True


@kernel
def _log_goes_on(replay: Replay, sums: np.record) -> bool:
    """Whether :mod:`auditor.replay.log_checks` would have nothing to say of any batch."""
    log, params, progress = replay.log, replay.log.params[0], replay.log.progress[0]
    first, last = sums.first_offset, sums.last_offset
    if progress.expected_offset != first or first < params.log_start or progress.first_time < 0:
        return False
    following = progress.next_segment_base_offset
    if first < progress.segment_base_offset or (following >= 0 and last >= following):
        return False
    if sums.leader_epoch < 0 or sums.leader_epoch != progress.leader_epoch:
        return False
    if len(log.epochs) and last >= log.epoch_starts[0]:
        at = np.searchsorted(log.epoch_starts, first, side="right") - 1
        until = np.searchsorted(log.epoch_starts, last, side="right") - 1
        if at < 0 or at != until or log.epochs[at] != sums.leader_epoch:
            return False
    remembered = progress.broker_time >= 0 and params.expiration_ms > 0
    return not (remembered and sums.least_time < progress.broker_time - params.expiration_ms)


@kernel
def _is_as_before(replay: Replay, mine: np.record) -> bool:
    """Whether :mod:`auditor.replay.sequences` would have nothing to say of any of a producer's batches, nor a
    transaction be touched."""
    row = model.find(replay.producers, mine.producer_id)
    if row < 0 or len(replay.producers.rings) != TAIL:
        return False
    live, limit, epoch = replay.live[row], replay.log.params[0].expiration_ms, mine.epoch
    if live.batches == 0 or live.open_slot >= 0 or live.active_timestamp < 0 or live.active_timestamp > FAR_MS:
        return False
    if epoch != live.data_epoch or epoch != live.max_data_epoch or epoch != live.max_epoch:
        return False
    if epoch != replay.producers.entries[row].epoch:
        return False
    follows = mine.first_sequence == (live.run_start + live.run_length) % SEQUENCES
    if not follows or live.run_length + mine.sequences >= SEQUENCES:
        return False
    gap = max(mine.gap_ms, mine.first_time - live.active_timestamp)
    return limit <= 0 or gap * 5 <= limit * 4


@kernel
def _take_producer(replay: Replay, stretch: Stretch, number: int) -> None:
    """What a producer's batches leave, as ``kernel._data`` leaves it of each."""
    mine, log = stretch.producers[number], replay.log
    row = model.find(replay.producers, mine.producer_id)
    live, entry, progress = replay.live[row], replay.producers.entries[row], log.progress[0]
    if log.params[0].expiration_ms > 0:
        live.max_idle_ms = max(live.max_idle_ms, mine.gap_ms, mine.first_time - live.active_timestamp)
    passed = max(0, mine.batches - TAIL)
    entry.newest = (entry.newest + passed) % TAIL
    for k in range(passed, mine.batches):
        newest = stretch.newest[number, k % TAIL]
        model.remember_batch(
            replay.producers, row, newest.last_sequence, newest.last_offset, newest.offset_delta, mine.last_time
        )
    last = stretch.newest[number, (mine.batches - 1) % TAIL]
    entry.last_timestamp = mine.last_time
    live.run_length += mine.sequences
    live.batches += mine.batches
    live.records += mine.sequences
    live.data_last_sequence = last.last_sequence
    live.data_last_offset = mine.last_offset
    live.data_timestamp = mine.last_time
    live.data_time = max(mine.last_time, progress.broker_time)
    live.data_leader_epoch = stretch.sums[0].leader_epoch
    live.active_timestamp = mine.last_time
    live.ordinal = progress.ordinal + mine.last_row
    live.marker_fresh = 0


@kernel
def _take_log(replay: Replay, sums: np.record) -> None:
    """What the batches leave whoever wrote them, as :mod:`auditor.replay.log_checks` leaves it of each."""
    progress = replay.log.progress[0]
    progress.first_event = progress.events
    progress.any_time = max(progress.any_time, sums.ahead_time)
    progress.segment_any_time = max(progress.segment_any_time, sums.ahead_time)
    if sums.ahead_time > progress.ahead_time:
        progress.ahead_time = sums.ahead_time
        progress.ahead_producer_id = sums.ahead_producer_id
        progress.ahead_producer_epoch = sums.ahead_producer_epoch
        progress.ahead_base_offset = sums.ahead_base_offset
        progress.ahead_last_offset = sums.ahead_last_offset
        progress.ahead_segment = progress.segment
        progress.ahead_position = sums.ahead_position
    progress.data_offsets += sums.records
    progress.expected_offset = sums.last_offset + 1
    progress.batches += sums.batches
    progress.records += sums.records
    progress.ordinal += sums.batches
