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

GENERATIONS = 3  # of a group that are kept
KEPT_CHARACTERS = 32 << 20  # of all groups; those that come later have no owners


class Member(NamedTuple):
    """A member of a group; ``instance_id`` (``group.instance.id``) is None for dynamic ones."""

    member_id: str
    instance_id: str | None
    client_id: str | None

    def __str__(self) -> str:
        static = "" if self.instance_id is None else f" (group.instance.id {self.instance_id})"
        return f"{self.member_id}{static}"


@dataclass(slots=True)
class Assignments:
    """The newest generations of each group with their members, as the text of their records until someone asks;
    ``holders``: the members of groups of KIP-848."""

    kept: dict[str, deque[tuple[int, str]]] = field(default_factory=dict)
    characters: int = 0
    holders: Holders = field(default_factory=Holders)

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
        known = [(number, text) for number, text in self.kept.get(group, ()) if number <= generation - before]
        number, value = known[-1] if known else (-1, None)
        value = value if before or number == generation else None
        for member in json.loads(value).get("members") or () if value is not None else ():
            said = member.get("assignment")
            assigned = said.get("assignedPartitions") if isinstance(said, dict) else None
            if any(one["topic"] == topic and partition in one["partitions"] for one in assigned or ()):
                return Member(member["memberId"], member.get("groupInstanceId"), member.get("clientId"))
        return None
