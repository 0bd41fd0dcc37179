"""Which member of a group of KIP-848 held a partition when a record was written, by the group's own records.

A member's current assignment has what it is assigned, and what it has still to give up and may commit until it has
(``partitionsPendingRevocation``). A commit does not say which member wrote it, and brokers look at the member's epoch:
up to 4.2 at nothing else, since 4.3 an older one counts from that on in which the partition came to it (KIP-1251).
Records name topics by their ids, commits by their names: where a group has had more than one, nobody is known to hold.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import dataclass, field

from auditor.base.at_rest import Fields

CHANGES = 200_000  # of holders that are kept, in all groups; beyond, nobody is known

Place = tuple[str, int]  # topic id, partition


@dataclass(slots=True)
class _OfGroup:
    """``held``: by member; ``changes``: of a partition, the record offsets with who held it from there on."""

    held: dict[str, frozenset[Place]] = field(default_factory=dict)
    changes: dict[Place, list[tuple[int, frozenset[str]]]] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Holders:
    """The members of each group with what they held, as their records came."""

    groups: dict[str, _OfGroup] = field(default_factory=dict)
    kept: int = 0

    def note(self, group: str, member: str, offset: int, value: str | None) -> None:
        """A member's current assignment, its value as JSON in Kafka's own words; None: the member is gone."""
        if self.kept >= CHANGES:
            self.groups.clear()
            return
        known = self.groups.setdefault(group, _OfGroup())
        before, now = known.held.pop(member, frozenset()), _places(value)
        if now:
            known.held[member] = now
        known.topics.update(topic for topic, _ in now)
        for place in before ^ now:
            changes = known.changes.setdefault(place, [])
            holders = changes[-1][1] if changes else frozenset()
            changes.append((offset, holders ^ {member}))
            self.kept += 1

    def holder(self, group: str, partition: int, offset: int) -> str | None:
        """The one member that held a partition when the record at an offset was written; None where none or several
        did, or the topic cannot be told."""
        held = self.held(group, partition, offset)
        return None if held is None else held[0]

    def held(self, group: str, partition: int, offset: int) -> tuple[str, int] | None:
        """The same, with the record offset from which on it held it."""
        known = self.groups.get(group)
        if known is None or len(known.topics) != 1:
            return None
        (topic,) = known.topics
        changes = known.changes.get((topic, partition), [])
        at = bisect_right(changes, offset, key=lambda change: change[0])
        began, holders = changes[at - 1] if at else (-1, frozenset[str]())
        return (next(iter(holders)), began) if len(holders) == 1 else None


def _places(value: str | None) -> frozenset[Place]:
    """The partitions of an assignment."""
    said: Fields = json.loads(value) if value is not None else {}
    lists = (said.get(name) or () for name in ("assignedPartitions", "partitionsPendingRevocation"))
    return frozenset((one["topicId"], partition) for each in lists for one in each for partition in one["partitions"])
