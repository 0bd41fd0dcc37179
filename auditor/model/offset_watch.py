"""Observers of committed offsets, for the rules about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from auditor.model.groups import Assignments, Generation, GroupPartition, Member, OffsetCommit, Tenure

HANDED_OVER = 1_000  # changes of the producer within a generation that are looked at
MEMBERS = 16  # that one producer has worked for


def since(generation: Generation | None) -> int:
    """Return the record offset at which a generation began, -1 where no group record came before."""
    return -1 if generation is None else generation.offset


class Zombie(NamedTuple):
    """A commit by a producer that may have lost the partition in a rebalance, beside its new owner's (KIP-447).

    ``older``: an earlier commit of the producer; None without one, then only the times of its transaction can show that
    it is a zombie. ``owner_before`` and ``owner``: the members that had the partition then and at both commits, if the
    group's records show it. ``known``: they show that it was taken from the producer's member; otherwise producer and
    rival may be of one pool, whose producers commit for any member.
    """

    older: OffsetCommit | None
    rival: OffsetCommit
    late: OffsetCommit
    owner_before: Member | None
    owner: Member | None
    known: bool

    @property
    def grave(self) -> bool:
        """Whether it is certain: by the group's records, or because both have processed the same input."""
        return self.known or falls(self.rival, self.late)


class AlternatingCommits(NamedTuple):
    """Commits of one partition by one producer, another one, and the first again, for unknown members."""

    first: OffsetCommit
    other: OffsetCommit
    again: OffsetCommit

    @property
    def grave(self) -> bool:
        """Whether both have processed the same input; an application with a pool of producers moves on instead."""
        return falls(self.other, self.again)


def falls(before: OffsetCommit, after: OffsetCommit) -> bool:
    """Whether an offset moves back or stays from one producer's commit to another's."""
    return after.value <= before.value


@dataclass(slots=True)
class _GenerationCommits:
    """Commits of one place in one generation: the first of each producer, and who returned behind another."""

    began: int
    first: dict[int, OffsetCommit] = field(default_factory=dict)
    returned: set[int] = field(default_factory=set)
    reported: set[bool] = field(default_factory=set)  # whether a grave one, and one that is not


@dataclass(slots=True)
class Rivals:
    """Watches for two producers that both believe they own a partition: zombies and interleaved ones.

    Several producers of one owner are a pool and not reported; the group's records show the owner. ``zombies``: a
    producer that has committed for another owner and returns behind the new one's producer; ``interleaved``: p, q, p
    again, where the owner is unknown. One of each per partition and generation, and one more that is grave where the
    first was not. ``handed_over``: the first two producers of a place in one generation of a classic group, where
    commits do not show either as a zombie; the first :data:`HANDED_OVER` of these.
    """

    assignments: Assignments = field(default_factory=Assignments)
    zombies: list[Zombie] = field(default_factory=list)
    interleaved: list[AlternatingCommits] = field(default_factory=list)
    handed_over: list[Zombie] = field(default_factory=list)
    _stretches: dict[GroupPartition, _GenerationCommits] = field(default_factory=dict)
    _last: dict[GroupPartition, OffsetCommit] = field(default_factory=dict)
    _first: dict[tuple[str | GroupPartition, int], OffsetCommit] = field(default_factory=dict)  # in a group, at a place
    _worked: dict[tuple[str, int], dict[str, Tenure]] = field(default_factory=dict)
    """Of a group and a producer: the members that it has committed for, each with the first tenure in which it did."""

    def live(self, commit: OffsetCommit) -> None:
        """Check a commit that took effect or may."""
        place, producer_id, last = commit.place, commit.producer_id, self._last.get(commit.place)
        stretch = self._stretches.get(place)
        if stretch is None or stretch.began != since(commit.generation):
            stretch = self._stretches[place] = _GenerationCommits(since(commit.generation))
        new, classic = producer_id not in stretch.first, commit.generation is not None and commit.generation.classic
        turn = last is not None and last.producer_id != producer_id
        asked = turn and (new or producer_id not in stretch.returned or (last is not None and falls(last, commit)))
        tenure = self.assignments.tenure(commit) if new or asked or not classic else None
        if asked and last is not None and True not in stretch.reported:
            self._judge(commit, last, tenure, stretch)
        if turn and not new:
            stretch.returned.add(producer_id)
        stretch.first.setdefault(producer_id, commit)
        self._last[place] = commit
        self._first.setdefault((place.group, producer_id), commit)
        self._first.setdefault((place, producer_id), commit)
        if tenure is not None:
            self._note_worked(commit, tenure)

    def _note_worked(self, c: OffsetCommit, tenure: Tenure) -> None:
        """Keep the newest :data:`MEMBERS` of a producer."""
        worked = self._worked.setdefault((c.place.group, c.producer_id), {})
        worked.setdefault(tenure.member.member_id, tenure)
        if len(worked) > MEMBERS:
            del worked[next(iter(worked))]

    def _judge(self, c: OffsetCommit, last: OffsetCommit, tenure: Tenure | None, stretch: _GenerationCommits) -> None:
        same = since(last.generation) == stretch.began
        if (zombie := self._taken_from(c, last, tenure, same)) is not None:
            if zombie.grave not in stretch.reported:
                self.zombies.append(zombie)
                stretch.reported.add(zombie.grave)
        elif same and (turns := self._in_turn(c, last, tenure, stretch)) is not None:
            if turns.grave not in stretch.reported:
                self.interleaved.append(turns)
                stretch.reported.add(turns.grave)
        elif same and len(stretch.first) == 1 and c.producer_id not in stretch.first:
            self._note_hand_over(last, c, tenure)

    def _taken_from(self, c: OffsetCommit, last: OffsetCommit, tenure: Tenure | None, same: bool) -> Zombie | None:
        """A producer that has committed for another member, behind a commit for the present owner."""
        if tenure is not None:
            tenures, rivals = (self._worked.get((c.place.group, one.producer_id), {}) for one in (c, last))
            before = [one for one in tenures.values() if one.began < tenure.began]
            if last.record_offset < tenure.began or tenure.member.member_id in (one.member.member_id for one in before):
                return None
            if before:
                pool = any(one.member.member_id in rivals for one in before)  # whoever took a free one
                older_commit = self._first.get((c.place, c.producer_id)) or self._first[c.place.group, c.producer_id]
                return Zombie(older_commit, last, c, before[-1].member, tenure.member, known=not pool)
        classic = c.generation is not None and c.generation.classic
        here, elsewhere = self._older(c.place, c), self._older(c.place.group, c)
        older = here or (None if self._older(last.place, last) else elsewhere)
        if older is None or not classic or not same:
            return None
        return Zombie(older, last, c, self.assignments.before(c), None if tenure is None else tenure.member, False)

    def _in_turn(
        self, c: OffsetCommit, last: OffsetCommit, tenure: Tenure | None, stretch: _GenerationCommits
    ) -> AlternatingCommits | None:
        """A producer that returns behind another one, unless one member is known to have had the partition."""
        first = stretch.first.get(c.producer_id)
        if first is None or (tenure is not None and None not in map(self.assignments.tenure, (first, last))):
            return None
        return AlternatingCommits(first, last, c)

    def _note_hand_over(self, last: OffsetCommit, c: OffsetCommit, tenure: Tenure | None) -> None:
        """Note two producers of which either may have lost the partition, if any did."""
        if c.generation is None or not c.generation.classic or len(self.handed_over) >= HANDED_OVER:
            return
        before, owner = self.assignments.before(c), None if tenure is None else tenure.member
        if before is None or owner is None or before.member_id != owner.member_id:
            self.handed_over.append(Zombie(None, last, c, before, owner, None not in (before, owner)))

    def _older(self, where: str | GroupPartition, c: OffsetCommit) -> OffsetCommit | None:
        """The first commit of the producer of ``c`` there, if of an older generation of a classic group."""
        first = self._first.get((where, c.producer_id))
        return first if first is not None and since(first.generation) < since(c.generation) else None

    def decided(self, commit: OffsetCommit, outcome: str, before: OffsetCommit | None) -> None:
        """Ignore decisions: who wrote matters, not when it was decided."""


@dataclass(slots=True)
class Values:
    """Watches the values in force: where they move back, and ``skips`` where they pass over what was aborted.

    ``skips`` has (value in force at the abort, aborted commit, next one in force); for transactional commits only where
    the group's records do not show for which member both were.
    """

    assignments: Assignments = field(default_factory=Assignments)

    _back: dict[tuple[GroupPartition, int, bool | None], tuple[OffsetCommit, OffsetCommit, int]] = field(
        default_factory=dict
    )
    skips: list[tuple[OffsetCommit, OffsetCommit, OffsetCommit]] = field(default_factory=list)
    _aborted: dict[GroupPartition, tuple[OffsetCommit, OffsetCommit]] = field(default_factory=dict)

    def fall(self, before: OffsetCommit, commit: OffsetCommit) -> None:
        """Count a value in force that is below the one before it."""
        kind = (commit.place, commit.producer_id, None if commit.generation is None else commit.generation.empty)
        first, after, times = self._back.get(kind, (before, commit, 0))
        self._back[kind] = (first, after, times + 1)

    def falls(self) -> list[tuple[OffsetCommit, OffsetCommit, int]]:
        """Return for each place, producer and kind of group the first fall, (before, after), and their number.

        The kind is without members, with members, or unknown.
        """
        return list(self._back.values())

    def live(self, commit: OffsetCommit) -> None:
        """Ignore: only what is in force counts."""

    def decided(self, commit: OffsetCommit, outcome: str, before: OffsetCommit | None) -> None:
        """Follow the value of a place."""
        if outcome == "aborted" and before is not None and commit.value > before.value:
            self._aborted[commit.place] = (before, commit)
        if outcome != "in force":
            return
        if before is not None and commit.value < before.value:
            self.fall(before, commit)
        start = self._aborted.pop(commit.place, None)
        if start is not None and commit.value >= start[1].value and self._passes_over(start[1], commit):
            self.skips.append((*start, commit))

    def _passes_over(self, aborted: OffsetCommit, c: OffsetCommit) -> bool:
        """Whether this commit need not have restarted at the offset before the aborted one.

        A new owner starts at the committed offset, which a rebalance between the two commits shows; the same producer
        may have rewound itself, and so may a member that takes the next free producer of its pool. A plain commit shows
        no output that belongs to it.
        """
        same_generation = since(aborted.generation) == since(c.generation)
        if c.plain:
            return same_generation or bool(c.generation and c.generation.empty)
        if c.producer_id == aborted.producer_id or not same_generation or c.generation is None:
            return False
        return None in map(self.assignments.tenure, (aborted, c))


class PlainBetween(NamedTuple):
    """A commit outside a transaction between two in transactions, of one partition of a group with members."""

    before: OffsetCommit
    plain: OffsetCommit
    after: OffsetCommit


@dataclass(slots=True)
class Committers:
    """Watches who commits in transactions, and which groups commit outside of them as well.

    ``seen``: each producer's first and last commit, by group; ``mixed``: by group the first :class:`PlainBetween`.
    """

    seen: dict[str, dict[int, tuple[OffsetCommit, OffsetCommit]]] = field(default_factory=dict)
    mixed: dict[str, PlainBetween] = field(default_factory=dict)
    _last: dict[GroupPartition, OffsetCommit] = field(default_factory=dict)
    _plain: dict[GroupPartition, list[OffsetCommit]] = field(default_factory=dict)  # the first and the last behind it

    def live(self, commit: OffsetCommit) -> None:
        """Note a producer's commit."""
        if commit.plain:
            return
        place = commit.place
        commits = self.seen.setdefault(place.group, {})
        commits[commit.producer_id] = commits.get(commit.producer_id, (commit,))[0], commit
        before, plain = self._last.get(place), self._plain.pop(place, [])
        if before is not None and plain and plain[0].record_offset < commit.record_offset:
            self.mixed.setdefault(place.group, PlainBetween(before, plain[0], commit))
        if behind := [c for c in plain if c.record_offset > commit.record_offset]:
            self._plain[place] = behind
        self._last[place] = commit

    def decided(self, commit: OffsetCommit, outcome: str, before: OffsetCommit | None) -> None:
        """Note plain commits but those into an empty group, which are resets by an operator."""
        if commit.plain and not (commit.generation is not None and commit.generation.empty):
            self._plain.setdefault(commit.place, [])[1:] = [commit]
