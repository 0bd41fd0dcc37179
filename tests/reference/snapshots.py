"""The snapshots of one partition's producer state, as the model keeps them: entries, not bytes.

Sources: ProducerStateManager.takeSnapshot, loadFromSnapshot, removeStraySnapshots (KIP-98, KAFKA-7190).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple


class SnapshotEntry(NamedTuple):
    """One producer in a snapshot: its newest batch only. -1 where there is none; timestamp in ms."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    txn_first_offset: int


class Snapshots:
    """Snapshot files by offset. A damaged one has no entries: None."""

    def __init__(self) -> None:
        self.files: dict[int, list[SnapshotEntry] | None] = {}

    def newest(self) -> int | None:
        """Return the offset of the newest file, readable or not."""
        return max(self.files, default=None)

    def load_newest(self) -> tuple[int, list[SnapshotEntry]] | None:
        """Return offset and entries of the newest readable file; delete unreadable newer ones."""
        for offset in sorted(self.files, reverse=True):
            entries = self.files[offset]
            if entries is not None:
                return offset, entries
            del self.files[offset]
        return None

    def keep_between(self, above: int, up_to: int) -> None:
        """Delete all but those in (``above``, ``up_to``]."""
        self.files = {offset: entries for offset, entries in self.files.items() if above < offset <= up_to}

    def delete_before(self, offset: int) -> None:
        """Delete those below ``offset``."""
        self.files = {base: entries for base, entries in self.files.items() if base >= offset}

    def remove_stray(self, segment_base_offsets: Collection[int]) -> None:
        """Keep those of segments, and the newest stray one unless a segment begins above it (KIP-98; since 2.8)."""
        stray = [offset for offset in self.files if offset not in segment_base_offsets]
        newest = max(stray, default=None)
        for offset in stray:
            if offset != newest or offset < max(segment_base_offsets, default=offset):
                del self.files[offset]
