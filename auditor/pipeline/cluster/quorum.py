"""Copies of ``__cluster_metadata`` beside each other: how far two are one log, and what is committed (KIP-595).

A voter that led and was cut off keeps what nobody else has: an uncommitted tail of an old epoch, which it cuts when it
follows again. Committed is what a majority of the voters has, or a snapshot. Voters copied earlier have less of it, so
what is known to be committed is a lower bound.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple


class Copy(NamedTuple):
    """A copy of the log: whose it is, where it begins and ends, and what lies below the end of its newest snapshot.

    ``lineage``: its leader epochs with their first offsets, both rising; ``snapshot_end``: 0 where there is none.
    """

    log_dir: str
    broker_id: int | None
    start: int
    end: int
    lineage: tuple[tuple[int, int], ...]
    snapshot_end: int

    @property
    def rank(self) -> tuple[int, int]:
        """Orders copies as voters do: by last leader epoch and end."""
        return (self.lineage[-1][0] if self.lineage else -1, self.end)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of the batch at an offset, -1 if it is not known."""
        return next((epoch for epoch, start in reversed(self.lineage) if start <= offset), -1)


def same_until(one: Copy, other: Copy) -> int:
    """The offset until which two copies are one log: by Raft, one epoch at one offset is one record.

    What lies below the beginning of either is in a snapshot, and so committed.
    """
    end = min(one.end, other.end)
    at = max(one.start, other.start)
    starts = sorted(start for copy in (one, other) for _, start in copy.lineage if at < start < end)
    for offset in [at, *starts]:
        if offset < end and one.epoch_at(offset) != other.epoch_at(offset):
            return offset
    return end


def has_majority(copies: Collection[Copy], voters: Collection[int]) -> bool:
    """Whether a majority of the voters is among the copies."""
    return len({copy.broker_id for copy in copies} & set(voters)) > len(set(voters)) // 2


def committed(copies: Collection[Copy], voters: Collection[int]) -> dict[str, int]:
    """By log directory the offset below which what its copy has is known to be committed."""
    majority = len(set(voters)) // 2 + 1
    found = {}
    for copy in copies:
        shared: dict[int, int] = {}
        for other in copies:
            if other.broker_id is not None and other.broker_id in voters:
                shared[other.broker_id] = max(same_until(copy, other), shared.get(other.broker_id, 0))
        ends = sorted(shared.values(), reverse=True)
        found[copy.log_dir] = max(copy.snapshot_end, ends[majority - 1] if len(ends) >= majority else 0)
    return found
