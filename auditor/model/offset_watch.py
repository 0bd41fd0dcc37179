"""What the rules on committed offsets look for while the records of ``__consumer_offsets`` pass by (KIP-447)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from auditor.model.group_members import Assignments, Member
from auditor.model.offset_commits import Commit, Generation
from auditor.model.offsets import GroupPartition

HANDED_OVER = 1_000  # changes of the producer within a generation that are looked at


def since(generation: Generation | None) -> int:
    """The record offset at which a generation began, -1 where no group record came before."""
    return -1 if generation is None else generation.offset


class Zombie(NamedTuple):
    """A commit by a producer that a rebalance had taken the partition from, beside its new owner's (KIP-447).

    ``older``: what the producer had committed in an older generation; None where it has not, and only the times of its
    transaction can show that it is one. ``owner_before`` and ``owner``: the members that had the partition then and in
    the generation of both commits, where the group's records tell.
    """

    older: Commit | None
    rival: Commit
    late: Commit
    owner_before: Member | None
    owner: Member | None


@dataclass(slots=True)
class Rivals:
    """Watches for two producers that both believe to own a partition: zombies and interleaved ones.

    ``zombies``: who committed in an older generation and came back behind the new owner; ``interleaved`` holds (p, q, p
    again); one each for a producer, partition and generation. What a zombie explains is not reported as interleaved
    too. ``handed_over``: the first two producers of a place in one generation of a classic group, of which neither is
    known for a zombie by its commits; the first :data:`HANDED_OVER` of these. Of a group of KIP-848 a zombie is known
    by who held the partition, and several producers of one holder are a pool.
    """

    assignments: Assignments = field(default_factory=Assignments)
    zombies: list[Zombie] = field(default_factory=list)
    interleaved: list[tuple[Commit, Commit, Commit]] = field(default_factory=list)
    handed_over: list[Zombie] = field(default_factory=list)
    _turns: dict[GroupPartition, dict[int, Commit]] = field(default_factory=dict)  # this generation's last of each
    _last: dict[GroupPartition, Commit] = field(default_factory=dict)
    _first: dict[tuple[str | GroupPartition, int], Commit] = field(default_factory=dict)  # in a group, at a place
    _reported: dict[GroupPartition, int] = field(default_factory=dict)  # the last generation that was reported
    _held: dict[tuple[GroupPartition, int], tuple[str, str, Commit]] = field(default_factory=dict)
    """Of a place of a group of KIP-848 and a producer: who held it at its first commit, and at its last, with that."""

    def live(self, commit: Commit) -> None:
        """Looks at a commit that took effect or may."""
        last, began = self._last.get(commit.place), since(commit.generation)
        classic = commit.generation is not None and commit.generation.classic
        same = last is not None and since(last.generation) == began
        if not same:
            self._turns[commit.place] = {}
        if last is not None and last.producer_id != commit.producer_id and self._reported.get(commit.place) != began:
            if not classic:
                self._judge_held(commit, last)
            elif same:
                self._judge(commit, last)
        self._turns[commit.place][commit.producer_id] = self._last[commit.place] = commit
        if classic:
            self._first.setdefault((commit.place.group, commit.producer_id), commit)
            self._first.setdefault((commit.place, commit.producer_id), commit)
        else:
            self._note_holder(commit)

    def _note_holder(self, c: Commit) -> None:
        """Notes who held the place when it was committed; what a zombie was known by stays as it was."""
        at = (c.place, c.producer_id)
        holder = self.assignments.holders.holder(c.place.group, c.partition, c.record_offset)
        if holder is None:
            self._held.pop(at, None)
        elif self._reported.get(c.place) != since(c.generation):
            self._held[at] = (self._held[at][0] if at in self._held else holder, holder, c)

    def _taken_from(self, c: Commit, last: Commit) -> Zombie | None:
        """Of a group of KIP-848: a producer whose holder had to give the place up to another, whose own producer has
        committed it since; it has never committed for the one before, or they might be of one pool."""
        holder = self.assignments.holders.holder(c.place.group, c.partition, c.record_offset)
        mine, other = (self._held.get((c.place, one.producer_id)) for one in (c, last))
        if mine is None or other is None or holder is None or mine[1] == holder or other[:2] != (holder, holder):
            return None
        return Zombie(mine[2], last, c, Member(mine[1], None, None), Member(holder, None, None))

    def _judge(self, c: Commit, last: Commit) -> None:
        here, elsewhere = self._older(c.place, c), self._older(c.place.group, c)
        older = here or (None if self._older(last.place, last) else elsewhere)
        earlier = self._turns[c.place].get(c.producer_id)
        if older is not None:
            self.zombies.append(self._zombie(older, last, c))
        elif earlier is not None:
            self.interleaved.append((earlier, last, c))
        else:
            self._note_hand_over(last, c)
            return
        self._reported[c.place] = since(c.generation)

    def _judge_held(self, c: Commit, last: Commit) -> None:
        """The same in a group of KIP-848, or one without any record."""
        earlier = self._turns[c.place].get(c.producer_id)
        holders = {
            self.assignments.holders.holder(one.place.group, one.partition, one.record_offset)
            for one in (earlier, last, c) if one is not None
        }  # fmt: skip
        if (zombie := self._taken_from(c, last)) is not None:
            self.zombies.append(zombie)
        elif earlier is not None and (len(holders) > 1 or None in holders):
            self.interleaved.append((earlier, last, c))
        else:
            return
        self._reported[c.place] = since(c.generation)

    def _note_hand_over(self, last: Commit, c: Commit) -> None:
        """Either of the two may be the one that the partition was taken from."""
        first = len(self._turns[c.place]) == 1 and len(self.handed_over) < HANDED_OVER
        if first and c.generation is not None and c.generation.classic:
            self.handed_over.append(self._zombie(None, last, c))

    def _zombie(self, older: Commit | None, rival: Commit, late: Commit) -> Zombie:
        return Zombie(older, rival, late, self._owner(late, before=True), self._owner(late))

    def _owner(self, c: Commit, *, before: bool = False) -> Member | None:
        if c.generation is None:
            return None
        place = (c.place.group, c.generation.number, c.topic, c.partition)
        return self.assignments.owner(*place, before=before)

    def _older(self, where: str | GroupPartition, c: Commit) -> Commit | None:
        """What the producer of ``c`` committed there in an older generation of a classic group."""
        first = self._first.get((where, c.producer_id))
        return first if first is not None and since(first.generation) < since(c.generation) else None

    def decided(self, commit: Commit, outcome: str, before: Commit | None) -> None:
        """Nothing to see here: who wrote matters, not when it was decided."""


@dataclass(slots=True)
class Values:
    """Watches the values in force: where they fall, and ``skips`` where they pass over what was aborted.

    ``skips`` holds (value in force at the abort, aborted commit, next one in force).
    """

    _back: dict[tuple[GroupPartition, int, bool | None], tuple[Commit, Commit, int]] = field(default_factory=dict)
    skips: list[tuple[Commit, Commit, Commit]] = field(default_factory=list)
    _aborted: dict[GroupPartition, tuple[Commit, Commit]] = field(default_factory=dict)

    def fall(self, before: Commit, commit: Commit) -> None:
        """Counts a value in force that lies below the one before it."""
        kind = (commit.place, commit.producer_id, None if commit.generation is None else commit.generation.empty)
        first, after, times = self._back.get(kind, (before, commit, 0))
        self._back[kind] = (first, after, times + 1)

    def falls(self) -> list[tuple[Commit, Commit, int]]:
        """Of each place, producer and kind of group (without members, with, unknown) the first fall, (before, after),
        and how many there were."""
        return list(self._back.values())

    def live(self, commit: Commit) -> None:
        """Nothing to see here: only what is in force counts."""

    def decided(self, commit: Commit, outcome: str, before: Commit | None) -> None:
        """Follows the value of a place."""
        if outcome == "aborted" and before is not None and commit.value > before.value:
            self._aborted[commit.place] = (before, commit)
        if outcome != "in force":
            return
        if before is not None and commit.value < before.value:
            self.fall(before, commit)
        start = self._aborted.pop(commit.place, None)
        if start is not None and commit.value >= start[1].value and _passes_over(start[1], commit):
            self.skips.append((*start, commit))


def _passes_over(aborted: Commit, c: Commit) -> bool:
    """Whether this commit cannot have begun again at the offset before the aborted one.

    A new owner begins at the committed offset, which a rebalance between the two commits shows; the same producer may
    have gone back itself. A plain commit shows no output that belongs to it, and so does one by another producer.
    """
    same_generation = since(aborted.generation) == since(c.generation)
    if c.plain:
        return same_generation or bool(c.generation and c.generation.empty)
    return c.producer_id != aborted.producer_id and same_generation and c.generation is not None


@dataclass(slots=True)
class Committers:
    """Watches who commits in transactions: ``first`` holds each producer's first commit, by group."""

    first: dict[str, dict[int, Commit]] = field(default_factory=dict)

    def live(self, commit: Commit) -> None:
        """Takes note of a producer that is new to the group."""
        if not commit.plain:
            self.first.setdefault(commit.place.group, {}).setdefault(commit.producer_id, commit)

    def decided(self, commit: Commit, outcome: str, before: Commit | None) -> None:
        """Nothing to see here: who wrote matters, not when it was decided."""
