"""The life of committed offsets: written, pending, then in force or dropped (semantics 5.1, KIP-447).

Replays the records of a ``__consumer_offsets`` partition in log order over :mod:`auditor.model.offsets`, and shows
watchers what happens. Memory is that of the values in force and pending, and of what waits for its turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from auditor.model.group_members import Assignments
from auditor.model.offset_commits import MOST_BEHIND, Commit, Generation, Waiting
from auditor.model.offsets import CommittedOffset, GroupOffsets, GroupPartition

CLASSIC, KIP_848_EPOCH, KIP_848_MEMBER, KIP_848_ASSIGNMENT = 2, 3, 5, 8
STREAMS_EPOCH, STREAMS_MEMBER = 17, 19  # KIP-1071: who has which task is not followed
MEMBERS = (KIP_848_MEMBER, STREAMS_MEMBER)
# Key types that a story looks at.
GROUP_RECORDS = (CLASSIC, KIP_848_EPOCH, STREAMS_EPOCH, *MEMBERS, KIP_848_ASSIGNMENT)


class Watcher(Protocol):
    """Somebody who wants to know. Both are called in the order of the log, :meth:`live` in that of the records."""

    def live(self, commit: Commit) -> None:
        """A commit of a transaction that was not aborted (committed, or open at the log's end)."""

    def decided(self, commit: Commit, outcome: str, before: Commit | None) -> None:
        """A commit came to be ``in force``, ``aborted`` or ``superseded``; ``before``: what was in force till then."""


@dataclass(slots=True)
class Story:
    """Replays the records; afterwards ``in_force`` and ``pending`` hold what a coordinator would have in memory."""

    watchers: tuple[Watcher, ...] = ()
    model: GroupOffsets = field(default_factory=GroupOffsets)
    generations: dict[str, Generation] = field(default_factory=dict)
    members: dict[str, set[str]] = field(default_factory=dict)
    assignments: Assignments = field(default_factory=Assignments)
    commits: dict[int, Commit] = field(default_factory=dict)  # by record offset: those in force or pending
    waiting: Waiting = field(init=False)
    most_waiting: int = MOST_BEHIND

    def __post_init__(self) -> None:
        """What waits for its turn has to know who held what."""
        self.waiting = Waiting(self._holder, self.most_waiting)

    def in_force(self) -> Iterator[Commit]:
        """The committed values, by group and partition."""
        for place in sorted(self.model.committed):
            if (c := self._before(place)) is not None:
                yield c

    def pending(self, producer_id: int) -> list[Commit]:
        """The values that wait for the end of this producer's transaction, by group and partition."""
        values = self.model.pending.get(producer_id, {})
        found = (self.commits.get(values[place].record_offset) for place in sorted(values))
        return [c for c in found if c is not None]  # two damaged records can have one offset

    def group_record(self, offset: int, row: tuple[Any, ...]) -> None:
        """A classic group's generation, or a KIP-848 or Streams group's epoch, member or what a member is assigned; its
        value as JSON, its time in ms."""
        group, key_type, tombstone, number, members, value, time = row
        if key_type == KIP_848_ASSIGNMENT:
            for member in members or ():
                self.assignments.holders.note(group, member, offset, None if tombstone else value)
            return
        if key_type in MEMBERS:
            known = self.members.setdefault(group, set())
            (known.difference_update if tombstone else known.update)(members or ())
            number = self.generations[group].number if group in self.generations else None
        if number is None or (tombstone and key_type not in MEMBERS):
            return
        last = self.generations.get(group)
        same = last is not None and last.number == number
        first, time = (last.offset, last.time) if same and last is not None else (offset, -1 if time is None else time)
        empty = not (members if key_type == CLASSIC else self.members.get(group))
        self.generations[group] = Generation(first, number, key_type == CLASSIC, empty, time)
        if key_type == CLASSIC:
            self.assignments.note(group, number, value)

    def begin_with(self, commit: Commit) -> None:
        """A value that was in force before the first record."""
        self._store(commit, None)

    def offset_record(self, offset: int, row: tuple[Any, ...]) -> None:
        """A commit, or the tombstone that takes all values of its place away."""
        group, topic, partition, tombstone, value, time, producer_id, epoch, file, position = row
        place = GroupPartition(group, f"{topic}-{partition}")
        if tombstone or value is None:
            for gone in self._values(place):
                self.commits.pop(gone.record_offset, None)
            self.model.replay_tombstone(place)
            return
        generation = self.generations.get(group)
        c = Commit(
            place=place,
            topic=topic,
            partition=partition,
            value=value,
            record_offset=offset,
            time=time,
            producer_id=producer_id,
            producer_epoch=epoch,
            file=file,
            position=position,
            generation=generation,
        )
        if c.plain:
            before = self._before(place)
            self._store(c, self.model.committed.get(place))
            for watcher in self.watchers:
                watcher.decided(c, "in force", before)
        else:
            self._store(c, self.model.pending.get(producer_id, {}).get(place))
            if self.watchers:
                self.waiting.add(c)

    def _holder(self, c: Commit) -> str | None:
        return self.assignments.holders.holder(c.place.group, c.partition, c.record_offset)

    def _store(self, c: Commit, replaced: CommittedOffset | None) -> None:
        if replaced is not None:
            self.commits.pop(replaced.record_offset, None)
        self.commits[c.record_offset] = c
        self.model.replay(c.place, CommittedOffset(c.value, c.record_offset, c.time), c.producer_id)

    def _values(self, place: GroupPartition) -> Iterator[CommittedOffset]:
        if place in self.model.committed:
            yield self.model.committed[place]
        for values in self.model.pending.values():
            if place in values:
                yield values[place]

    def _before(self, place: GroupPartition) -> Commit | None:
        value = self.model.committed.get(place)
        return None if value is None else self.commits.get(value.record_offset)

    def marker(self, producer_id: int, commit: bool) -> None:
        """The end of a producer's transaction."""
        values = self.pending(producer_id)
        before = {c.place: self._before(c.place) for c in values}
        taken = set(self.model.replay_marker(producer_id, commit))
        for c in values:
            outcome = "aborted" if not commit else "in force" if c.place in taken else "superseded"
            old = before[c.place]
            gone = old if outcome == "in force" else c
            if gone is not None:
                self.commits.pop(gone.record_offset, None)
            for watcher in self.watchers:
                watcher.decided(c, outcome, old)
        for c in self.waiting.end(producer_id, commit):
            self._live(c)

    def _live(self, c: Commit) -> None:
        for watcher in self.watchers:
            watcher.live(c)

    def end(self) -> None:
        """The log ends: what is open counts as written."""
        for c in self.waiting.rest():
            self._live(c)
