"""One partition as a broker keeps it: the producer-state map of a log.

Over :mod:`tests.reference.producer_state` it looks for duplicates, asks for verification guards and keeps offsets in
bounds. Sources: UnifiedLog.append, analyzeAndValidateProducerState, maybeIncrementLogStartOffset, truncateTo,
rebuildProducerState, recoverSegment (KIP-98, KIP-360, KIP-890).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from auditor.model import producers
from auditor.model import producers as kernel
from auditor.model.policies import Policy
from auditor.model.producers import NONE
from tests.reference.append_analysis import offsets_refusal
from tests.reference.appends import CLIENT, REPLICATION, Batch, Item, Pending
from tests.reference.producer_state import DEFAULTS, ProducerState, Settings
from tests.reference.refusal import Refused
from tests.reference.transactions import Completed


class Duplicate(NamedTuple):
    """An append that repeats a cached batch: the offsets of that batch."""

    first_offset: int
    last_offset: int


class Partition(ProducerState):
    """A partition's log, of which only offsets are kept, and the map behind it. Offsets given are those assigned."""

    def __init__(
        self,
        policy: Policy,
        settings: Settings = DEFAULTS,
        log_start: int = 0,
        log_end: int = 0,
        high_watermark: int = 0,
    ) -> None:
        super().__init__(policy, settings)
        self.log_start, self.log_end, self.high_watermark = log_start, log_end, high_watermark
        self.map_end = self.last_snapshot = log_end

    def append_to_log(self, items: Sequence[Item], origin: str) -> Duplicate | list[Completed]:
        """Append as one request; return the transactions it closed, or the batch it repeats (nothing is written)."""
        if origin == REPLICATION:
            self._check_offsets(items)
        pending = Pending(self, origin)
        for item in items:
            if isinstance(item, Batch) and origin != REPLICATION:
                duplicate = self._find_duplicate(item) if origin == CLIENT else None
                if duplicate is not None:
                    return duplicate
                self._check_guard(item)
            pending.take(item)
        completed = self.apply(pending, items)
        self.log_end = max(self.log_end, self.map_end)
        return completed

    def _check_offsets(self, items: Sequence[Item]) -> None:
        """Check the given offsets of a follower or a recovery: they must ascend from the end of the map."""
        refusal = offsets_refusal([(item.first_offset, item.last_offset) for item in items], self.map_end)
        if refusal is not None:
            raise Refused(refusal)

    def _find_duplicate(self, batch: Batch) -> Duplicate | None:
        p = self.producers
        row = kernel.find(p, batch.producer_id)
        place = producers.find_duplicate(p, row, batch.epoch, batch.first_sequence, batch.last_sequence)
        if place == NONE:
            return None
        last_offset = int(p.last_offset[row, place])
        return Duplicate(last_offset - int(p.offset_delta[row, place]), last_offset)

    def _check_guard(self, batch: Batch) -> None:
        """Transactional data needs an open transaction or the guard of a live verification (KIP-890 part 1)."""
        if not self.settings.transaction_verification or not batch.transactional:
            return
        if self.has_open_transaction(batch.producer_id, batch.epoch):
            return
        if not self.verifications.accepts(batch.producer_id, batch.guard):
            raise Refused("INVALID_TXN_STATE")

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer needs no verification: its transaction is open here (4.0+: in the same epoch)."""
        row = kernel.find(self.producers, producer_id)
        if row == NONE or self.producers.txn_first_offset[row] == NONE:
            return False
        return not self.policy.open_needs_same_epoch or int(self.producers.epoch[row]) == epoch

    # --- offsets ---

    def first_unstable(self) -> int | None:
        """First unstable offset of the map, but not below the log start."""
        unstable = super().first_unstable()
        return None if unstable is None else max(unstable, self.log_start)

    def advance_high_watermark(self, high_watermark: int) -> None:
        """Set the high watermark, within the log."""
        super().advance_high_watermark(min(max(high_watermark, self.log_start), self.log_end))

    def increment_log_start(self, log_start: int) -> None:
        """Move the log start up; above the high watermark is OFFSET_OUT_OF_RANGE, at or below the old one nothing."""
        if log_start > self.high_watermark:
            raise Refused("OFFSET_OUT_OF_RANGE")
        if log_start > self.log_start:
            super().increment_log_start(log_start)

    # --- truncation and recovery ---

    def truncate_and_reload(self, log_start: int, log_end: int, now: int) -> None:
        """Truncate the log to [``log_start``, ``log_end``) and reload the map from its snapshots."""
        super().truncate_and_reload(log_start, log_end, now)
        self.log_start, self.log_end = log_start, log_end
        self.advance_high_watermark(self.high_watermark)

    def truncate_fully(self, offset: int, log_start: int | None = None) -> None:
        """Drop everything; the log begins again at ``offset``, its start at ``log_start`` or there."""
        super().truncate_fully(offset)
        self.log_start = offset if log_start is None else log_start
        self.log_end = self.high_watermark = self.last_snapshot = offset
