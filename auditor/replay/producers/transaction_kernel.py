"""Compiled transactions of one partition."""

from __future__ import annotations

import numpy as np

from auditor.base.compiled import kernel
from auditor.replay.producers.state import ATTR_APPEND_TIME, NEW_TRANSACTION, Replay


@kernel
def _first_offset(queue: np.ndarray, position: int) -> int:
    """First offset of the transaction at a position of the heap."""
    return queue[queue[position].slot].offset


@kernel
def _swap(queue: np.ndarray, one: int, other: int) -> None:
    """Swap the slots of two positions of the heap."""
    slot = queue[one].slot
    queue[one].slot = queue[other].slot
    queue[other].slot = slot
    queue[queue[one].slot].place = one
    queue[slot].place = other


@kernel
def _rise(queue: np.ndarray, position: int) -> None:
    """Sift up."""
    while position > 0 and _first_offset(queue, position) < _first_offset(queue, (position - 1) // 2):
        _swap(queue, position, (position - 1) // 2)
        position = (position - 1) // 2


@kernel
def _sink(queue: np.ndarray, position: int, count: int) -> None:
    """Sift down."""
    while 2 * position + 1 < count:
        below = 2 * position + 1
        if below + 1 < count and _first_offset(queue, below + 1) < _first_offset(queue, below):
            below += 1
        if _first_offset(queue, position) <= _first_offset(queue, below):
            return
        _swap(queue, position, below)
        position = below


@kernel
def _take_slot(queue: np.ndarray, progress: np.record, offset: int) -> int:
    """Take a free slot for a transaction that begins at ``offset``."""
    position = progress.open
    slot = queue[position].slot
    queue[slot].offset = offset
    progress.open = position + 1
    _rise(queue, position)
    return slot


@kernel
def _free_slot(queue: np.ndarray, progress: np.record, slot: int) -> None:
    """Release a slot."""
    last, position = progress.open - 1, queue[slot].place
    progress.open = last
    _swap(queue, position, last)
    if position < last:
        _rise(queue, position)
        _sink(queue, position, last)


@kernel
def open_transaction(replay: Replay, batch: np.record, live: np.record, time: int) -> None:
    """Open a transaction in this partition at the producer's first transactional batch after its last marker."""
    slot = _take_slot(replay.queue, replay.log.progress[0], batch.base_offset)
    live.open_slot = slot
    _begin_transaction(replay, replay.open, slot, batch, live)
    transaction = replay.open[slot]
    transaction.first_offset = batch.base_offset
    transaction.first_timestamp = batch.max_timestamp
    transaction.first_time = time
    transaction.first_leader_epoch = batch.partition_leader_epoch
    transaction.first_append_time = 1 if batch.attributes & ATTR_APPEND_TIME else 0
    transaction.segment = replay.log.progress[0].segment
    transaction.position = batch.position
    transaction.prior_time = replay.log.progress[0].prior_time
    transaction.coordinator_epoch = replay.marked[live.marked].coordinator_epoch if live.marked >= 0 else -1


@kernel
def extend_transaction(transaction: np.record, batch: np.record, time: int) -> None:
    """Add a data batch to the producer's open transaction."""
    if batch.producer_epoch > transaction.last_epoch and transaction.risen_offset < 0:
        transaction.risen_offset = batch.base_offset
        transaction.risen_behind = transaction.last_offset
        transaction.risen_records = transaction.records
    transaction.last_epoch = batch.producer_epoch
    transaction.last_offset = batch.last_offset
    transaction.last_timestamp = batch.max_timestamp
    transaction.last_time = time
    transaction.last_leader_epoch = batch.partition_leader_epoch
    transaction.batches += 1
    transaction.records += max(batch.record_count, 0)
    transaction.bytes += batch.bytes


@kernel
def _begin_transaction(replay: Replay, table: np.ndarray, row: int, batch: np.record, live: np.record) -> None:
    """Begin a row of TRANSACTION with the producer's marker before it."""
    table[row] = NEW_TRANSACTION[0]
    transaction = table[row]
    transaction.producer_id = batch.producer_id
    transaction.producer_epoch = batch.producer_epoch
    transaction.last_epoch = batch.producer_epoch
    if live.marked >= 0:
        marked = replay.marked[live.marked]
        transaction.prev_marker_offset = marked.offset
        transaction.prev_marker_epoch = marked.epoch
        transaction.prev_marker_time = marked.time
        transaction.prev_marker_commit = marked.commit


@kernel
def close_transaction(replay: Replay, batch: np.record, live: np.record) -> None:
    """Apply a marker: move the producer's open transaction to the decided ones, or note that there was none."""
    progress, slot = replay.log.progress[0], live.open_slot
    row = progress.transactions
    progress.transactions = row + 1
    transaction = replay.transactions[row]
    if slot >= 0:
        replay.transactions[row] = replay.open[slot]
        _free_slot(replay.queue, progress, slot)
        live.open_slot = -1
        transaction.repeated = 0
        transaction.last_stable_offset = batch.last_offset + 1
        if progress.open > 0:
            transaction.last_stable_offset = _first_offset(replay.queue, 0)
    else:
        _lone_marker(replay, row, batch, live)
    transaction.marker_offset = batch.last_offset
    transaction.marker_epoch = batch.producer_epoch
    transaction.commit = 1 if batch.control_type == 1 else 0
    transaction.coordinator_epoch = batch.coordinator_epoch
    transaction.marker_timestamp = batch.max_timestamp
    transaction.marker_segment = replay.log.progress[0].segment
    transaction.marker_position = batch.position
    transaction.marker_leader_epoch = batch.partition_leader_epoch


@kernel
def _lone_marker(replay: Replay, row: int, batch: np.record, live: np.record) -> None:
    _begin_transaction(replay, replay.transactions, row, batch, live)
    transaction = replay.transactions[row]
    transaction.last_leader_epoch = batch.partition_leader_epoch
    if live.marker_fresh:
        marked, commit = replay.marked[live.marked], 1 if batch.control_type == 1 else 0
        transaction.repeated = 1 if marked.epoch == batch.producer_epoch and marked.commit == commit else 0
