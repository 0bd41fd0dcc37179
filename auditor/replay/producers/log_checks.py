"""What is odd in a log whoever wrote it: offsets, leader epochs, headers, and the clock."""

from __future__ import annotations

import numpy as np

from auditor.base.compiled import kernel
from auditor.model.batch_validation import goes_back, header_faults, is_leftover, lacks_records
from auditor.replay.producers.new_rows import (
    COUNT_BELOW_SPAN,
    HEADER_FLAW,
    LEADER_EPOCH_CHECKPOINT,
    LEADER_EPOCH_DECREASE,
    LEFTOVER_FIELDS,
    OFFSET_HOLE,
    OFFSETS_NOT_INCREASING,
    OUTSIDE_SEGMENT,
    TIMESTAMP_AHEAD,
    new_event,
)
from auditor.replay.producers.state import ATTR_CONTROL, Log
from auditor.replay.task.batch_kinds import has_broker_time

AHEAD_MS = 3_600_000


@kernel
def check_offsets(log: Log, batch: np.record, time: int) -> bool:
    """Offset order, holes and the segment's bounds; moves the expected offset. Returns whether the batch is judged."""
    progress, base, last = log.progress[0], batch.base_offset, batch.last_offset
    log_start = log.params[0].log_start
    judged = last >= log_start
    expected = progress.expected_offset
    if judged:
        following = progress.next_segment_base_offset
        if expected >= 0 and goes_back(base, expected):
            event = log.events[new_event(log, OFFSETS_NOT_INCREASING, batch, batch.max_timestamp, time)]
            event.previous_last_offset = expected - 1
        elif base < progress.segment_base_offset or (following >= 0 and last >= following):
            event = log.events[new_event(log, OUTSIDE_SEGMENT, batch, batch.max_timestamp, time)]
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
def _hole(log: Log, batch: np.record, expected: int, time: int) -> None:
    progress, base = log.progress[0], batch.base_offset
    intact = max(expected, log.params[0].intact_from)
    progress.holes_cleaned += max(0, min(base, intact) - expected)
    if base <= intact:
        return
    if progress.unreadable_ordinal == progress.ordinal:  # the bytes before it could not be read: an error says so
        progress.unreadable_offsets += base - intact
    else:
        progress.holes_intact += base - intact
        event = log.events[new_event(log, OFFSET_HOLE, batch, batch.max_timestamp, time)]
        event.first_missing_offset = intact


@kernel
def _count_offsets(log: Log, batch: np.record, first: int) -> None:
    """Adds the batch's offsets from ``first`` on to the accounting: data, markers, and those cleaned out of it."""
    progress = log.progress[0]
    span = batch.last_offset - first + 1
    if span <= 0:
        return
    there = min(span, max(batch.record_count, 0))
    if batch.attributes & ATTR_CONTROL and batch.magic == 2:
        progress.marker_offsets += there
    else:
        progress.data_offsets += there
    absent = span - there
    if absent > 0:
        cleaned = min(absent, max(0, min(batch.last_offset + 1, log.params[0].intact_from) - first))
        progress.holes_cleaned += cleaned
        progress.holes_intact += absent - cleaned


@kernel
def check_leader_epoch(log: Log, batch: np.record, time: int) -> None:
    """Leader epochs that go down, or are not what the checkpoint gives."""
    epoch, base = batch.partition_leader_epoch, batch.base_offset
    if epoch < 0:
        return
    progress = log.progress[0]
    if epoch < progress.leader_epoch:
        event = log.events[new_event(log, LEADER_EPOCH_DECREASE, batch, batch.max_timestamp, time)]
        event.expected_leader_epoch = progress.leader_epoch
    contradicted = False
    if len(log.epochs) and base >= log.epoch_starts[0]:
        at = np.searchsorted(log.epoch_starts, base, side="right") - 1
        if log.epochs[at] != epoch and base >= log.params[0].log_start:
            event = log.events[new_event(log, LEADER_EPOCH_CHECKPOINT, batch, batch.max_timestamp, time)]
            event.expected_leader_epoch = log.epochs[at]
            contradicted = True
    if not contradicted:  # what follows is compared with epochs that the checkpoint confirms
        progress.leader_epoch = max(progress.leader_epoch, epoch)


@kernel
def check_header(log: Log, batch: np.record, time: int) -> None:
    """Fields of the header that no broker writes so."""
    if not batch.flaws:  # nearly all
        return
    sequences = log.params[0].has_sequences != 0
    if sequences and not log.progress[0].leftovers and is_leftover(batch.flaws, batch.attributes):
        log.progress[0].leftovers = 1
        new_event(log, LEFTOVER_FIELDS, batch, batch.max_timestamp, time)
    faults = header_faults(batch.flaws, batch.attributes, sequences)
    if faults:
        log.events[new_event(log, HEADER_FLAW, batch, batch.max_timestamp, time)].flaws = faults
    if lacks_records(batch.flaws, batch.last_offset, log.params[0].intact_from):
        event = log.events[new_event(log, COUNT_BELOW_SPAN, batch, batch.max_timestamp, time)]
        event.record_count = batch.record_count
        event.span = batch.last_offset - batch.base_offset + 1


@kernel
def take_time(log: Log, batch: np.record, marker: bool) -> int:
    """time(b) without its cap, and the newest times seen. A broker-written time also dates the batches before it."""
    progress, stamp = log.progress[0], batch.max_timestamp
    progress.any_time = max(progress.any_time, stamp)
    progress.segment_any_time = max(progress.segment_any_time, stamp)
    if not has_broker_time(batch, marker, log.params[0].broker_times != 0):
        return max(stamp, progress.broker_time)
    if progress.ahead_time > stamp + AHEAD_MS and stamp >= 0:
        event = log.events[new_event(log, TIMESTAMP_AHEAD, batch, progress.ahead_time, stamp)]
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
    return stamp
