"""The producer-state map of one partition, without its log: effects of appends, and what survives a restart.

Sources: ProducerStateManager, ProducerAppendInfo (KIP-98, KIP-360, KIP-890). Checks and effects are those of
:mod:`auditor.model.producers`; this adds pending state, transactions, expiration, snapshots, and log start movement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from auditor.model import producers
from auditor.model import producers as kernel
from auditor.model.policies import Policy
from auditor.model.producers import NONE
from tests.reference import pending_producers
from tests.reference.appends import REPLICATION, Item, Pending
from tests.reference.refusal import ILLEGAL_ARGUMENT, Refused
from tests.reference.snapshots import SnapshotEntry, Snapshots
from tests.reference.transactions import Completed, Transactions
from tests.reference.verification import Verifications

LATE_TRANSACTION_BUFFER_MS = 300_000


class Settings(NamedTuple):
    """Settings of a broker. Times in ms; the defaults are those of the conformance cases."""

    producer_id_expiration_ms: int = 86_400_000
    max_transaction_timeout_ms: int = 300_000
    transaction_verification: bool = False


DEFAULTS = Settings()


class ProducerState:
    """The map of one partition. It knows no log: no duplicate look-up, no guard, no bounds on offsets.

    ``map_end`` is the next offset to apply; ``aborted`` the transaction index; producers are in ``producers``.
    """

    def __init__(self, policy: Policy, settings: Settings = DEFAULTS) -> None:
        self.policy = policy
        self.settings = settings
        self.snapshots = Snapshots()
        self.aborted: list[Completed] = []
        self.log_start = self.log_end = self.high_watermark = 0
        self.restart()

    def restart(self) -> None:
        """Lose what is in memory; snapshots, transaction index and log offsets stay."""
        self.producers = kernel.new_producers(16, self.policy.cached_batches)
        self.transactions = Transactions()
        self.verifications = Verifications()
        self.map_end = self.last_snapshot = 0

    # --- appends ---

    def append(self, items: Sequence[Item], origin: str) -> list[Completed]:
        """Apply the items of one append together, or refuse them together; return the transactions they closed."""
        pending = Pending(self, origin)
        for item in items:
            pending.take(item)
        return self.apply(pending, items)

    def apply(self, pending: Pending, items: Sequence[Item]) -> list[Completed]:
        """Apply what :class:`Pending` prepared: first all producers, then all completions."""
        for pending_row in range(int(pending.producers.meta[0])):
            row = self.row_for(int(pending.producers.producer_id[pending_row]))
            pending_producers.merge(self.producers, row, pending.producers, pending_row)
        self.transactions.ongoing.update(pending.started)
        completed = [self._complete(closed) for closed in pending.completed]
        for producer_id in pending.verified:
            self.verifications.clear(producer_id)
        for item in items[-1:]:
            self.map_end = item.last_offset + 1
        return completed

    def _complete(self, closed: Completed) -> Completed:
        closed = closed._replace(last_stable_offset=self.transactions.last_stable_offset(closed))
        if not self.transactions.complete(closed):
            raise Refused(ILLEGAL_ARGUMENT)
        if closed.aborted:
            self.aborted.append(closed)
        return closed

    def row_for(self, producer_id: int) -> int:
        """Return the row of the producer, which is added if unknown."""
        row = kernel.insert(self.producers, producer_id)
        if row == NONE:
            self.producers = kernel.grow(self.producers)
            row = kernel.insert(self.producers, producer_id)
        return row

    # --- offsets ---

    def first_unstable(self) -> int | None:
        """First offset that is undecided, or decided but not replicated."""
        return self.transactions.first_unstable(self.high_watermark)

    def last_stable_offset(self) -> int:
        """Last stable offset: the first unstable one, but never above the high watermark."""
        unstable = self.first_unstable()
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    def advance_high_watermark(self, high_watermark: int) -> None:
        """Release decided transactions whose marker is replicated."""
        self.high_watermark = high_watermark
        self.transactions.forget_decided_below(high_watermark)

    def increment_log_start(self, log_start: int) -> None:
        """The log now begins at ``log_start`` (ProducerStateManager.onLogStartOffsetIncremented, truncateHead)."""
        self.log_start = log_start
        if self.policy.evicts_below_log_start:
            self._evict_below(log_start)
        self.transactions.forget_decided_below(log_start)
        self.map_end = max(self.map_end, log_start)
        if self.policy.snapshots_follow_log_start:
            self.snapshots.delete_before(log_start)
        newest = self.snapshots.newest()
        self.last_snapshot = log_start if newest is None else newest

    # --- forgetting ---

    def _rows(self) -> range:
        return range(int(self.producers.meta[0]))

    def _evict_below(self, log_start: int) -> None:
        offsets = [kernel.newest_offset(self.producers, row) for row in self._rows()]
        wanted = np.array([offset >= log_start for offset in offsets], np.bool_)
        self.transactions.forget_producers({int(self.producers.producer_id[row]) for row in np.flatnonzero(~wanted)})
        kernel.keep(self.producers, wanted)

    def _expire_entries(self, now: int) -> None:
        limit = self.settings.producer_id_expiration_ms
        gone = [producers.is_expired(self.producers, row, self.policy, now, limit) for row in self._rows()]
        kernel.keep(self.producers, ~np.array(gone, np.bool_))

    def expire(self, now: int) -> None:
        """Forget producers and verifications that have been idle for the limit at ``now`` (ms)."""
        self._expire_entries(now)
        self.verifications.expire(now, self.settings.producer_id_expiration_ms)

    def has_late_transaction(self, now: int) -> bool:
        """Whether the oldest transaction's producer has been idle for longer than any timeout (KIP-664's metric)."""
        first = self.transactions.first_undecided()
        if first is None:
            return False
        row = kernel.find(self.producers, self.transactions.ongoing[first])
        last = NONE if row == NONE else int(producers.idle_since(self.producers, row, self.policy))
        return last > 0 and now - last > self.settings.max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS

    def truncate_fully(self, offset: int) -> None:
        """Drop producers, transactions and snapshots; the map begins again at ``offset``."""
        kernel.clear(self.producers)
        self.transactions.clear()
        self.snapshots.files.clear()
        self.last_snapshot, self.map_end = 0, offset

    # --- snapshots ---

    def take_snapshot(self) -> int | None:
        """Write a snapshot at ``map_end``; its offset, or None when nothing was applied since the last one."""
        if self.map_end <= self.last_snapshot:
            return None
        self.snapshots.files[self.map_end] = [self._entry(row) for row in self._rows()]
        self.last_snapshot = self.map_end
        return self.map_end

    def _entry(self, row: int) -> SnapshotEntry:
        p = self.producers
        sequence, offset, delta = NONE, NONE, 0
        if p.cached[row]:
            newest = int(p.newest[row])
            sequence, offset, delta = (int(c[row, newest]) for c in (p.last_sequence, p.last_offset, p.offset_delta))
        timestamp = int(producers.idle_since(p, row, self.policy))
        fixed = (int(c[row]) for c in (p.coordinator_epoch, p.txn_first_offset))
        return SnapshotEntry(int(p.producer_id[row]), int(p.epoch[row]), sequence, offset, delta, timestamp, *fixed)

    def load(self, entry: SnapshotEntry) -> None:
        """Add a producer from a snapshot; an open transaction is ongoing again."""
        row, p = self.row_for(entry.producer_id), self.producers
        p.epoch[row] = entry.epoch
        p.coordinator_epoch[row] = entry.coordinator_epoch
        p.last_timestamp[row] = entry.timestamp
        p.txn_first_offset[row] = entry.txn_first_offset
        p.cached[row] = 0
        if entry.last_offset >= 0 or self.policy.snapshot_batch_always:
            batch = (entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp)
            kernel.remember_batch(p, row, *batch)
        if entry.txn_first_offset != NONE:
            self.transactions.ongoing[entry.txn_first_offset] = entry.producer_id

    def truncate_and_reload(self, log_start: int, log_end: int, now: int) -> None:
        """Go back to the newest readable snapshot in (``log_start``, ``log_end``], unless the map is at ``log_end``."""
        self.snapshots.keep_between(log_start, log_end)
        if log_end == self.map_end:
            ProducerState.increment_log_start(self, log_start)
            return
        kernel.clear(self.producers)
        self.transactions.clear()
        offset, entries = self.snapshots.load_newest() or (log_start, [])
        for entry in entries:
            self.load(entry)
        self._expire_entries(now)
        if self.policy.evicts_below_log_start:
            self._evict_below(log_start)
        self.last_snapshot = self.map_end = offset

    def rebuild(self, log: Sequence[Item], log_start: int, log_end: int, now: int, recover_index: bool = False) -> None:
        """Recover from what is stored: reload, then replay ``log`` from there to ``log_end`` and take a snapshot.

        The transaction index is written again from there on with ``recover_index``, else left as it is.
        """
        self.truncate_and_reload(log_start, log_end, now)
        index = self.aborted
        self.aborted = [entry for entry in index if entry.last_offset < self.map_end]
        for item in log:
            if self.map_end <= item.last_offset < log_end:
                ProducerState.append(self, [item], REPLICATION)
        if not recover_index:
            self.aborted = index
        self.map_end = log_end
        self.take_snapshot()
