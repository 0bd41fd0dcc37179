"""Which member of a classic group owned a partition in a generation, by the group's own records (KIP-447).

A commit does not say which member wrote it. The record of a generation has every member with what it was assigned, and
static members with their ``group.instance.id`` (KIP-345).
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from auditor.model.group_holders import Holders
from auditor.model.offset_commits import Commit

GENERATIONS = 3  # of a group that are kept
AT_HAND = 32  # generations whose members are at hand by partition
KEPT_CHARACTERS = 32 << 20  # of all groups; those that come later have no owners


class Member(NamedTuple):
    """A member of a group; ``instance_id`` (``group.instance.id``) is None for dynamic ones."""

    member_id: str
    instance_id: str | None
    client_id: str | None

    def __str__(self) -> str:
        static = "" if self.instance_id is None else f" (group.instance.id {self.instance_id})"
        return f"{self.member_id}{static}"


class Tenure(NamedTuple):
    """A member that owned a partition, and the record offset from which on it did, as far as the records tell: that of
    the generation of a classic group."""

    member: Member
    began: int


@dataclass(slots=True)
class Assignments:
    """The newest generations of each group with their members, as the text of their records until someone asks;
    ``holders``: the members of groups of KIP-848."""

    kept: dict[str, deque[tuple[int, str]]] = field(default_factory=dict)
    characters: int = 0
    holders: Holders = field(default_factory=Holders)
    _at_hand: dict[tuple[str, int], tuple[str, dict[tuple[str, int], Member]]] = field(default_factory=dict)

    def note(self, group: str, generation: int, value: str | None) -> None:
        """A record of a classic group: ``value`` is its value as JSON, in Kafka's own words."""
        if value is None:
            return
        known = self.kept.get(group)
        if known and known[-1][0] == generation:  # a member that joined again changes the record
            self.characters -= len(known.pop()[1])
        if known and len(known) == GENERATIONS:
            self.characters -= len(known.popleft()[1])
        if self.characters + len(value) <= KEPT_CHARACTERS:
            self.characters += len(value)
            self.kept.setdefault(group, deque()).append((generation, value))

    def owner(self, group: str, generation: int, topic: str, partition: int, *, before: bool = False) -> Member | None:
        """The member that had the partition in a generation, or in the one ``before``; None where none shows it."""
        known = [number for number, _ in self.kept.get(group, ()) if number <= generation - before]
        if not known or (not before and known[-1] != generation):
            return None
        return self._owners(group, known[-1]).get((topic, partition))

    def tenure(self, c: Commit) -> Tenure | None:
        """Who owned a commit's partition when it was written; None where the group's records do not show it."""
        generation = c.generation
        if generation is None or not generation.classic:
            held = self.holders.held(c.place.group, c.partition, c.record_offset)
            return None if held is None else Tenure(Member(held[0], None, None), held[1])
        owner = self.owner(c.place.group, generation.number, c.topic, c.partition)
        return None if owner is None else Tenure(owner, generation.offset)

    def before(self, c: Commit) -> Member | None:
        """Who owned it in the generation before, of a classic group."""
        if c.generation is None or not c.generation.classic:
            return None
        return self.owner(c.place.group, c.generation.number, c.topic, c.partition, before=True)

    def _owners(self, group: str, generation: int) -> dict[tuple[str, int], Member]:
        """The members of a generation that is kept, by partition. Cost: its text is read when it is not at hand."""
        value = next(text for number, text in reversed(self.kept[group]) if number == generation)
        known = self._at_hand.get((group, generation))
        if known is None or known[0] is not value:
            if len(self._at_hand) >= AT_HAND:
                del self._at_hand[next(iter(self._at_hand))]
            known = self._at_hand[group, generation] = value, _by_partition(value)
        return known[1]


def _by_partition(value: str) -> dict[tuple[str, int], Member]:
    """The members in the value of a classic group's record, by the partitions that they are assigned."""
    owners: dict[tuple[str, int], Member] = {}
    for member in json.loads(value).get("members") or ():
        said = member.get("assignment")
        for one in (said.get("assignedPartitions") if isinstance(said, dict) else None) or ():
            owner = Member(member["memberId"], member.get("groupInstanceId"), member.get("clientId"))
            for partition in one["partitions"]:
                owners.setdefault((one["topic"], partition), owner)
    return owners
