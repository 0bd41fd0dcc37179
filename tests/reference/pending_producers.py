"""Pending producers of an append of several batches, apart until all of it has passed.

Source: ProducerAppendInfo, ProducerStateEntry.update (KIP-98).
"""

from __future__ import annotations

from auditor.base.compiled import kernel
from auditor.model.producers import Producers, cached_slot, find, insert, remember_batch, set_epoch


@kernel
def begin(p: Producers, pending: Producers, producer_id: int) -> int:
    """Return the row of the producer in ``pending``: its state in ``p`` without batches. -1 without room."""
    row = find(pending, producer_id)
    if row >= 0:
        return row
    row, stored_row = insert(pending, producer_id), find(p, producer_id)
    if row >= 0 and stored_row >= 0:
        entry, stored = pending.entries[row], p.entries[stored_row]
        entry.epoch = stored.epoch
        entry.coordinator_epoch = stored.coordinator_epoch
        entry.last_timestamp = stored.last_timestamp
        entry.txn_first_offset = stored.txn_first_offset
    return row


@kernel
def merge(p: Producers, row: int, pending: Producers, pending_row: int) -> None:
    """Apply what an append left pending: epoch, its batches in order, and the rest (ProducerStateEntry.update)."""
    entry, left = p.entries[row], pending.entries[pending_row]
    set_epoch(p, row, left.epoch)
    for age in range(left.cached - 1, -1, -1):
        batch = pending.rings[cached_slot(pending, pending_row, age), pending_row]
        remember_batch(p, row, batch.last_sequence, batch.last_offset, batch.offset_delta, left.timestamp)
    entry.coordinator_epoch = left.coordinator_epoch
    entry.last_timestamp = left.last_timestamp
    entry.txn_first_offset = left.txn_first_offset
