"""Transactions of one partition as its log sees them: open, or decided but not yet replicated; and the LSO.

Sources: KIP-98; ProducerStateManager.ongoingTxns, unreplicatedTxns, firstUnstableOffset, lastStableOffset.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple


class Completed(NamedTuple):
    """A transaction that its marker closed. ABORT: also its entry in the transaction index.

    ``last_offset`` is the marker's; ``last_stable_offset`` what the index stores beside it.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool
    last_stable_offset: int = -1


class Transactions:
    """Open transactions (first offset to producer id) and decided ones (first offset to marker offset)."""

    def __init__(self) -> None:
        self.ongoing: dict[int, int] = {}
        self.decided: dict[int, int] = {}

    def first_undecided(self) -> int | None:
        """First offset of the oldest open transaction."""
        return min(self.ongoing, default=None)

    def first_unstable(self, high_watermark: int) -> int | None:
        """As :meth:`first_undecided`, but decided ones count too until their marker lies below the high watermark."""
        unreplicated = (first for first, marker in self.decided.items() if marker >= high_watermark)
        return min((*self.ongoing, *unreplicated), default=None)

    def last_stable_offset(self, closed: Completed) -> int:
        """What the index stores: start of the oldest transaction of *another* producer, else one past the marker."""
        others = (first for first, producer_id in self.ongoing.items() if producer_id != closed.producer_id)
        return min(others, default=closed.last_offset + 1)

    def complete(self, closed: Completed) -> bool:
        """Move a transaction from open to decided; False if it was not open."""
        if self.ongoing.pop(closed.first_offset, None) is None:
            return False
        self.decided[closed.first_offset] = closed.last_offset
        return True

    def forget_decided_below(self, offset: int) -> None:
        """Forget decided transactions whose marker is below ``offset`` (the high watermark, or the log start)."""
        self.decided = {first: marker for first, marker in self.decided.items() if marker >= offset}

    def forget_producers(self, producer_ids: Collection[int]) -> None:
        """Forget the open transactions of evicted producers (up to 2.3)."""
        self.ongoing = {first: owner for first, owner in self.ongoing.items() if owner not in producer_ids}

    def clear(self) -> None:
        """Forget all."""
        self.ongoing.clear()
        self.decided.clear()
