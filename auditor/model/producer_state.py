"""The producer-state map of one partition, without its log: what appends of several batches do, and what outlives them.

Sources: ProducerStateManager, ProducerAppendInfo (KIP-98, KIP-360, KIP-890). Checks and effects are those of
:mod:`auditor.model.producers`; this adds pending state, transactions, expiration, snapshots, and log start movement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from auditor.model import producers as kernel
from auditor.model.policies import ERRORS, OK, Policy
from auditor.model.producers import NONE
from auditor.model.snapshots import SnapshotEntry, Snapshots
from auditor.model.transactions import Completed, Transactions
from auditor.model.verification import Verifications

CLIENT, COORDINATOR, REPLICATION = "client", "coordinator", "replication"
LATE_TRANSACTION_BUFFER_MS = 300_000


class Batch(NamedTuple):
    """A data batch with a producer id. ``guard`` is the verification guard that the append carries."""

    producer_id: int
    epoch: int
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    max_timestamp: int
    transactional: bool
    guard: int | None = None


class Marker(NamedTuple):
    """An end transaction marker: a control batch of one record."""

    producer_id: int
    epoch: int
    coordinator_epoch: int
    first_offset: int
    timestamp: int
    aborted: bool

    @property
    def last_offset(self) -> int:
        """The marker's offset."""
        return self.first_offset


class EmptyControl(NamedTuple):
    """A control batch whose record was compacted away."""

    producer_id: int
    epoch: int
    first_offset: int

    @property
    def last_offset(self) -> int:
        """The batch's offset."""
        return self.first_offset


class Plain(NamedTuple):
    """Records without a producer id."""

    first_offset: int
    last_offset: int


Item = Batch | Marker | EmptyControl | Plain


class Settings(NamedTuple):
    """What a broker's configuration decides. Times in ms; the defaults are those of the conformance cases."""

    producer_id_expiration_ms: int = 86_400_000
    max_transaction_timeout_ms: int = 300_000
    transaction_verification: bool = False


class Refused(Exception):
    """An append or operation that the broker refuses; ``name`` is Kafka's error name (or ILLEGAL_ARGUMENT)."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def require(answer: int) -> None:
    """Raise :class:`Refused` unless ``answer`` is OK."""
    if answer != OK:
        raise Refused(ERRORS[answer])


class Pending:
    """What one append would do, item by item, on copies of the producers it concerns (ProducerAppendInfo)."""

    def __init__(self, state: ProducerState, origin: str) -> None:
        self.state = state
        self.origin = origin
        self.producers = kernel.new_producers(8, state.policy.cached_batches)
        self.started: list[tuple[int, int]] = []  # first offset, producer id
        self.completed: list[Completed] = []
        self.verified: set[int] = set()

    def take(self, item: Item) -> None:
        """Check one item and add its effects; :class:`Refused` ends the whole append."""
        if isinstance(item, Plain):
            return
        row = kernel.begin(self.state.producers, self.producers, item.producer_id)
        if row == NONE:
            self.producers = kernel.grow(self.producers)
            row = kernel.begin(self.state.producers, self.producers, item.producer_id)
        if isinstance(item, Batch):
            self._take_batch(row, item)
        elif isinstance(item, Marker):
            self._take_marker(row, item)

    def _take_batch(self, row: int, batch: Batch) -> None:
        if self.origin != REPLICATION:
            require(kernel.check_epoch(self.producers, row, batch.epoch))
        if self.origin == CLIENT:
            self._check_sequence(row, batch)
        was_open = self.producers.txn_first_offset[row] != NONE
        require(
            kernel.apply_data(
                self.producers,
                row,
                batch.epoch,
                batch.last_sequence,
                batch.first_offset,
                batch.last_offset,
                batch.max_timestamp,
                batch.transactional,
            )
        )
        if batch.transactional:
            self.verified.add(batch.producer_id)
            if not was_open:
                self.started.append((batch.first_offset, batch.producer_id))

    def _check_sequence(self, row: int, batch: Batch) -> None:
        state = self.state
        stored_row = kernel.find(state.producers, batch.producer_id)
        stored_epoch = NONE if stored_row == NONE else int(state.producers.epoch[stored_row])
        verification = state.verifications.entries.get(batch.producer_id)
        knows_batches = stored_row != NONE and bool(state.producers.cached[stored_row])
        if verification and not verification.admits(state.policy, batch.first_sequence, knows_batches):
            raise Refused("OUT_OF_ORDER_SEQUENCE_NUMBER")
        last = NONE
        if self.producers.cached[row]:
            last = kernel.newest_sequence(self.producers, row)
        elif stored_epoch == batch.epoch:
            last = kernel.newest_sequence(state.producers, stored_row)
        pending_epoch = int(self.producers.epoch[row])
        require(
            kernel.sequence_answer(state.policy, batch.epoch, batch.first_sequence, stored_epoch, pending_epoch, last)
        )

    def _take_marker(self, row: int, marker: Marker) -> None:
        policy = self.state.policy
        if self.origin != REPLICATION or policy.follower_checks_markers:
            require(kernel.check_epoch(self.producers, row, marker.epoch))
            require(kernel.check_coordinator_epoch(self.producers, row, marker.coordinator_epoch))
        first_offset = int(
            kernel.apply_marker(self.producers, row, marker.epoch, marker.coordinator_epoch, marker.timestamp)
        )
        if first_offset == NONE and policy.lone_marker_completes:
            first_offset = marker.first_offset
            self.started.append((first_offset, marker.producer_id))
        if first_offset != NONE:
            closed = Completed(marker.producer_id, first_offset, marker.last_offset, marker.aborted)
            self.completed.append(closed)
        self.verified.add(marker.producer_id)


class ProducerState:
    """The map of one partition. It knows no log: no duplicate look-up, no guard, no bounds on offsets.

    ``map_end`` is the next offset to apply; ``aborted`` the transaction index; producers are in ``producers``.
    """

    def __init__(self, policy: Policy, settings: Settings = Settings()) -> None:  # noqa: B008 - immutable
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
        """Apply the items of one append together, or refuse them together; the transactions they closed."""
        pending = Pending(self, origin)
        for item in items:
            pending.take(item)
        return self.apply(pending, items)

    def apply(self, pending: Pending, items: Sequence[Item]) -> list[Completed]:
        """Take over what :class:`Pending` prepared: first all producers, then all completions."""
        for pending_row in range(int(pending.producers.meta[0])):
            row = self.row_for(int(pending.producers.producer_id[pending_row]))
            kernel.merge(self.producers, row, pending.producers, pending_row)
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
            raise Refused("ILLEGAL_ARGUMENT")
        if closed.aborted:
            self.aborted.append(closed)
        return closed

    def row_for(self, producer_id: int) -> int:
        """Row of the producer, which is entered if unknown."""
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
        """Where consumers of committed data stop: the first unstable offset, but never above the high watermark."""
        unstable = self.first_unstable()
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    def advance_high_watermark(self, high_watermark: int) -> None:
        """Decided transactions whose marker is replicated hold nothing back any more."""
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
        kept = np.array([offset >= log_start for offset in offsets], np.bool_)
        self.transactions.forget_producers({int(self.producers.producer_id[row]) for row in np.flatnonzero(~kept)})
        kernel.keep(self.producers, kept)

    def _expire_entries(self, now: int) -> None:
        limit = self.settings.producer_id_expiration_ms
        gone = [kernel.is_expired(self.producers, row, self.policy, now, limit) for row in self._rows()]
        kernel.keep(self.producers, ~np.array(gone, np.bool_))

    def expire(self, now: int) -> None:
        """Forget producers and verifications that have been idle for the limit at ``now`` (ms)."""
        self._expire_entries(now)
        self.verifications.expire(now, self.settings.producer_id_expiration_ms)

    def has_late_transaction(self, now: int) -> bool:
        """Whether the oldest transaction's producer has been idle for longer than any time-out (KIP-664's metric)."""
        first = self.transactions.first_undecided()
        if first is None:
            return False
        row = kernel.find(self.producers, self.transactions.ongoing[first])
        last = NONE if row == NONE else int(kernel.idle_since(self.producers, row, self.policy))
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
            at = int(p.newest[row])
            sequence, offset, delta = (int(c[row, at]) for c in (p.last_sequence, p.last_offset, p.offset_delta))
        timestamp = int(kernel.idle_since(p, row, self.policy))
        fixed = (int(c[row]) for c in (p.coordinator_epoch, p.txn_first_offset))
        return SnapshotEntry(int(p.producer_id[row]), int(p.epoch[row]), sequence, offset, delta, timestamp, *fixed)

    def load(self, entry: SnapshotEntry) -> None:
        """Enter a producer as a snapshot tells of it; an open transaction is ongoing again."""
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

        The transaction index is written anew from there on with ``recover_index``, else left as it is.
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
