"""What a batch's time says of its producer, compiled: idle for longer than brokers remember, a clock that is off."""

from __future__ import annotations

import numpy as np

from auditor.base.compiled import kernel
from auditor.model.policies import OK
from auditor.replay.producers.new_rows import IDLE_BEYOND_EXPIRY, TIMESTAMP_BEHIND, later_row, new_event
from auditor.replay.producers.state import ATTR_APPEND_TIME, Log, Replay
from auditor.replay.producers.stored_sequences import next_in_run


@kernel
def was_idle_for_long(live: np.record, limit: int, stamp: int) -> bool:
    """Notes how long a producer was idle before a batch of ``stamp`` (ms); whether that is near ``limit`` or more."""
    if live.active_timestamp < 0 or live.open_slot >= 0 or limit <= 0:
        return False
    idle = stamp - live.active_timestamp
    live.max_idle_ms = max(live.max_idle_ms, idle)
    return idle * 5 > limit * 4


@kernel
def note_idle(replay: Replay, batch: np.record, row: int, answer: int, time: int) -> None:
    """A producer was idle for long; an event where that is longer than the expiration, after which the broker had
    forgotten it, and the batch goes on all the same."""
    log, live, first = replay.log, replay.live[row], batch.base_sequence
    idle = batch.max_timestamp - live.active_timestamp
    replay.later[later_row(log, replay.later, replay.born[row])].idle_count += 1
    follows = answer == OK or first == next_in_run(live)
    if idle >= log.params[0].expiration_ms and first > 0 and follows and batch.producer_epoch == live.data_epoch:
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
