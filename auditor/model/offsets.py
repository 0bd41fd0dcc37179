"""Offsets of consumer groups: committed ones, and those that wait for the end of a transaction (KIP-447).

Source: OffsetMetadataManager of Kafka's trunk of October 2024; semantics section 5. Times are epoch milliseconds.
"""

from __future__ import annotations

from typing import NamedTuple

NO_PRODUCER_ID = -1


class CommittedOffset(NamedTuple):
    """A value of a group partition: the consumer's `offset`, the offset of its record, and when it was committed."""

    offset: int
    record_offset: int
    commit_ts: int = 0


class GroupPartition(NamedTuple):
    """A partition, `topic-N`, as one group consumes it."""

    group: str
    partition: str


class GroupOffsets:
    """The offsets that a group coordinator holds in memory, and what the records of its log do to them.

    `committed` and `pending` (by producer id) are the state.
    """

    def __init__(self) -> None:
        self.committed: dict[GroupPartition, CommittedOffset] = {}
        self.pending: dict[int, dict[GroupPartition, CommittedOffset]] = {}

    def replay(self, place: GroupPartition, value: CommittedOffset, producer_id: int = NO_PRODUCER_ID) -> None:
        """An offset record of the log: committed at once, or pending under its producer id."""
        if producer_id == NO_PRODUCER_ID:
            self.committed[place] = value
        else:
            self.pending.setdefault(producer_id, {})[place] = value

    def replay_tombstone(self, place: GroupPartition) -> None:
        """A tombstone of the log: the committed value goes, and every pending one."""
        self.committed.pop(place, None)
        for values in self.pending.values():
            values.pop(place, None)

    def replay_marker(self, producer_id: int, commit: bool) -> list[GroupPartition]:
        """The end of a producer's transaction; returns, sorted, the places whose pending value became the committed.

        A value gives way to a committed one whose record lies after it, whatever the order of the decisions.
        """
        values = self.pending.pop(producer_id, {})
        if not commit:
            return []
        materialized = [
            place
            for place, value in values.items()
            if place not in self.committed or value.record_offset > self.committed[place].record_offset
        ]
        self.committed |= {place: values[place] for place in materialized}
        return sorted(materialized)
