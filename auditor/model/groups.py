"""Committed offsets and who may commit them (KIP-447, KIP-848)."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from auditor.base.at_rest import Fields

# Which member of a group of KIP-848 held a partition when a record was written, by the group's own records.
#
# A member's current assignment has what it is assigned, and what it has still to give up and may commit until it has
# (``partitionsPendingRevocation``). A commit does not say which member wrote it, and brokers look at the member's
# epoch:
# up to 4.2 at nothing else, since 4.3 an older one counts from that on in which the partition came to it (KIP-1251).
# Records name topics by their ids, commits by their names: where a group has had more than one, nobody is known to
# hold.


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
        entry = self.groups.setdefault(group, _OfGroup())
        before, now = entry.held.pop(member, frozenset()), _places(value)
        if now:
            entry.held[member] = now
        entry.topics.update(topic for topic, _ in now)
        for place in before ^ now:
            changes = entry.changes.setdefault(place, [])
            holders = changes[-1][1] if changes else frozenset()
            changes.append((offset, holders ^ {member}))
            self.kept += 1

    def holder(self, group: str, partition: int, offset: int) -> str | None:
        """The one member that held a partition when the record at an offset was written; None where none or several
        did, or the topic cannot be told."""
        tenure = self.held(group, partition, offset)
        return None if tenure is None else tenure[0]

    def held(self, group: str, partition: int, offset: int) -> tuple[str, int] | None:
        """The same, with the record offset from which on it held it."""
        entry = self.groups.get(group)
        if entry is None or len(entry.topics) != 1:
            return None
        (topic,) = entry.topics
        changes = entry.changes.get((topic, partition), [])
        after = bisect_right(changes, offset, key=lambda change: change[0])
        began, holders = changes[after - 1] if after else (-1, frozenset[str]())
        return (next(iter(holders)), began) if len(holders) == 1 else None


def _places(value: str | None) -> frozenset[Place]:
    """The partitions of an assignment."""
    fields: Fields = json.loads(value) if value is not None else {}
    lists = (fields.get(name) or () for name in ("assignedPartitions", "partitionsPendingRevocation"))
    return frozenset(
        (one["topicId"], partition) for listed in lists for one in listed for partition in one["partitions"]
    )


# Offsets of consumer groups: committed ones, and those that wait for the end of a transaction (KIP-447).
#
# Source: OffsetMetadataManager of Kafka's trunk of October 2024; semantics section 5. Times are epoch milliseconds.


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


# Commits of offsets, and those of them that wait until the ones before them are decided.
#
# Watchers hear of the commits of a place in the order of their records, so one that is undecided keeps back all that
# follow: those of an outage. Of these only what can still change what :class:`auditor.model.offset_watch.Rivals` and
# ``Committers`` find is kept, a few of each producer in a generation, however many there are.


MOST_BEHIND = 250_000  # commits that wait behind others of their place, in all: some 0.4 KB each
FEW = 1024  # that come before it is looked again which of all can go


class Generation(NamedTuple):
    """What the last group record before a commit said. ``offset`` and ``time`` (ms): of the first record with this
    ``number``, the time -1 where it is not known.

    ``empty``: the group had no member then, None when the log does not show.
    """

    offset: int
    number: int
    classic: bool
    empty: bool | None
    time: int = -1


class OffsetCommit(NamedTuple):
    """One offset record: ``value`` is what the group will read next there. ``producer_id`` is -1 for a plain commit.

    ``time`` is the record's, in ms, written by the broker; ``generation`` None where no group record came before.
    """

    place: GroupPartition
    topic: str
    partition: int
    value: int
    record_offset: int
    time: int
    producer_id: int
    producer_epoch: int
    file: str
    position: int
    generation: Generation | None

    @property
    def plain(self) -> bool:
        """Whether it was written outside a transaction."""
        return self.producer_id == NO_PRODUCER_ID


class _Transaction:
    """What became of a transaction, for all commits in it; ``committed`` is None while it is open."""

    __slots__ = ("committed", "places")

    def __init__(self) -> None:
        self.committed: bool | None = None
        self.places: dict[GroupPartition, None] = {}


Waits = tuple[OffsetCommit, _Transaction]


@dataclass(slots=True)
class Waiting:
    """The commits in transactions of all places, from the first undecided one of each on.

    ``holder``: the member that held a commit's partition then, as far as groups tell. ``first_left_out``: there was no
    room for this one; its place is silent from there on, since what is missing could make others seem odd.
    """

    holder: Callable[[OffsetCommit], str | None]
    most: int = MOST_BEHIND
    first_left_out: OffsetCommit | None = None
    _queues: dict[GroupPartition, deque[Waits]] = field(default_factory=dict)
    _open: dict[int, _Transaction] = field(default_factory=dict)
    _silent: set[GroupPartition] = field(default_factory=set)
    _count: int = 0
    _kept: int = 0  # of these when it was last looked
    _since: int = 0  # commits that have come since then

    def __len__(self) -> int:
        return self._count

    def add(self, c: OffsetCommit) -> None:
        """A commit in a transaction that is open."""
        if c.place in self._silent:
            return
        if self._since >= max(FEW, self._kept) or (self._full() and 2 * self._since >= self.most):
            self._thin()
        if c.place in self._queues and self._full():
            self._silent.add(c.place)
            self.first_left_out = self.first_left_out or c
            return
        transaction = self._open.setdefault(c.producer_id, _Transaction())
        transaction.places[c.place] = None
        self._queues.setdefault(c.place, deque()).append((c, transaction))
        self._count += 1
        self._since += 1

    def end(self, producer_id: int, committed: bool) -> Iterator[OffsetCommit]:
        """A transaction ends: the commits that were not aborted, of those that nothing undecided is before any more."""
        transaction = self._open.pop(producer_id, None)
        if transaction is None:
            return
        places, transaction.places, transaction.committed = transaction.places, {}, committed
        for place in places:
            queue = self._queues.get(place, ())
            while queue and queue[0][1].committed is not None:
                c, ended = queue.popleft()
                self._count -= 1
                if ended.committed:
                    yield c
            if not queue:
                self._queues.pop(place, None)

    def rest(self) -> Iterator[OffsetCommit]:
        """All others that were not aborted, by place: the log ends."""
        for place in sorted(self._queues):
            for c, transaction in self._queues[place]:
                if transaction.committed is not False:
                    yield c
        self._queues.clear()
        self._count = 0

    def _full(self) -> bool:
        """Whether no more may wait behind others; the first of a place is pending, and in memory as that, anyway."""
        return self._count - len(self._queues) >= self.most

    def _thin(self) -> None:
        """Lets all go that cannot change anything any more. A commit is looked at a bounded number of times."""
        for place, queue in self._queues.items():
            if len(queue) > 2:
                self._queues[place] = deque(self._telling(queue))
        self._count = self._kept = sum(len(queue) for queue in self._queues.values())
        self._since = 0

    def _telling(self, queue: deque[Waits]) -> Iterator[Waits]:
        """Of the commits of a place those that tell; of runs that share one fate, generation and member."""
        alive = (w for w in queue if w[1].committed is not False)
        for _, run in groupby(
            alive, lambda w: (None if w[1].committed else id(w[1]), w[0].generation, self.holder(w[0]))
        ):
            yield from telling(list(run))


def telling(run: list[Waits]) -> list[Waits]:
    """Of commits of one place, generation and member that all count or all do not: which tell as much as all.

    A producer's first, with the one right before it, may be odd by what came before the run, and a producer's last by
    what comes behind it. Within the run may be odd that it comes back behind another producer, and that it does so with
    no higher offset: the first of each, with the one right before it. One thing is said of a place and generation.
    """
    chosen, last, covered = set(), {}, set[tuple[int, str]]()
    for number, (c, _) in enumerate(run):
        producer_id, before = c.producer_id, run[number - 1][0]
        turn = number > 0 and before.producer_id != producer_id
        here = {(producer_id, "first")}
        if turn and producer_id in last:
            here.add((producer_id, "back"))
        if turn and c.value <= before.value:
            here.add((producer_id, "no higher"))
        if here - covered:
            chosen |= {number, max(number - 1, 0)}
            covered |= here
        last[producer_id] = number
    return [run[number] for number in sorted(chosen.union(last.values()))]


# Which member of a classic group owned a partition in a generation, by the group's own records (KIP-447).
#
# A commit does not say which member wrote it. The record of a generation has every member with what it was assigned,
# and
# static members with their ``group.instance.id`` (KIP-345).


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
        records = self.kept.get(group)
        if records and records[-1][0] == generation:  # a member that joined again changes the record
            self.characters -= len(records.pop()[1])
        if records and len(records) == GENERATIONS:
            self.characters -= len(records.popleft()[1])
        if self.characters + len(value) <= KEPT_CHARACTERS:
            self.characters += len(value)
            self.kept.setdefault(group, deque()).append((generation, value))

    def owner(self, group: str, generation: int, topic: str, partition: int, *, before: bool = False) -> Member | None:
        """The member that had the partition in a generation, or in the one ``before``; None where none shows it."""
        numbers = [number for number, _ in self.kept.get(group, ()) if number <= generation - before]
        if not numbers or (not before and numbers[-1] != generation):
            return None
        return self._owners(group, numbers[-1]).get((topic, partition))

    def tenure(self, c: OffsetCommit) -> Tenure | None:
        """Who owned a commit's partition when it was written; None where the group's records do not show it."""
        generation = c.generation
        if generation is None or not generation.classic:
            holder = self.holders.held(c.place.group, c.partition, c.record_offset)
            return None if holder is None else Tenure(Member(holder[0], None, None), holder[1])
        owner = self.owner(c.place.group, generation.number, c.topic, c.partition)
        return None if owner is None else Tenure(owner, generation.offset)

    def before(self, c: OffsetCommit) -> Member | None:
        """Who owned it in the generation before, of a classic group."""
        if c.generation is None or not c.generation.classic:
            return None
        return self.owner(c.place.group, c.generation.number, c.topic, c.partition, before=True)

    def _owners(self, group: str, generation: int) -> dict[tuple[str, int], Member]:
        """The members of a generation that is kept, by partition. Cost: its text is read when it is not at hand."""
        value = next(text for number, text in reversed(self.kept[group]) if number == generation)
        members = self._at_hand.get((group, generation))
        if members is None or members[0] is not value:
            if len(self._at_hand) >= AT_HAND:
                del self._at_hand[next(iter(self._at_hand))]
            members = self._at_hand[group, generation] = value, _by_partition(value)
        return members[1]


def _by_partition(value: str) -> dict[tuple[str, int], Member]:
    """The members in the value of a classic group's record, by the partitions that they are assigned."""
    owners: dict[tuple[str, int], Member] = {}
    for member in json.loads(value).get("members") or ():
        assignment = member.get("assignment")
        for one in (assignment.get("assignedPartitions") if isinstance(assignment, dict) else None) or ():
            owner = Member(member["memberId"], member.get("groupInstanceId"), member.get("clientId"))
            for partition in one["partitions"]:
                owners.setdefault((one["topic"], partition), owner)
    return owners


# The life of committed offsets: written, pending, then in force or dropped (semantics 5.1, KIP-447).
#
# Replays the records of a ``__consumer_offsets`` partition in log order over :mod:`auditor.model.groups`, and shows
# watchers what happens. Memory is that of the values in force and pending, and of what waits for its turn.


CLASSIC, KIP_848_EPOCH, KIP_848_MEMBER, KIP_848_ASSIGNMENT = 2, 3, 5, 8
STREAMS_EPOCH, STREAMS_MEMBER = 17, 19  # KIP-1071: who has which task is not followed
MEMBERS = (KIP_848_MEMBER, STREAMS_MEMBER)
# Key types that a story looks at.
GROUP_RECORDS = (CLASSIC, KIP_848_EPOCH, STREAMS_EPOCH, *MEMBERS, KIP_848_ASSIGNMENT)


class Watcher(Protocol):
    """Somebody who wants to know. Both are called in the order of the log, :meth:`live` in that of the records."""

    def live(self, commit: OffsetCommit) -> None:
        """A commit of a transaction that was not aborted (committed, or open at the log's end)."""

    def decided(self, commit: OffsetCommit, outcome: str, before: OffsetCommit | None) -> None:
        """A commit came to be ``in force``, ``aborted`` or ``superseded``; ``before``: what was in force till then."""


@dataclass(slots=True)
class CommitReplay:
    """Replays the records; afterwards ``in_force`` and ``pending`` hold what a coordinator would have in memory."""

    watchers: tuple[Watcher, ...] = ()
    model: GroupOffsets = field(default_factory=GroupOffsets)
    generations: dict[str, Generation] = field(default_factory=dict)
    members: dict[str, set[str]] = field(default_factory=dict)
    assignments: Assignments = field(default_factory=Assignments)
    commits: dict[int, OffsetCommit] = field(default_factory=dict)  # by record offset: those in force or pending
    waiting: Waiting = field(init=False)
    most_waiting: int = MOST_BEHIND

    def __post_init__(self) -> None:
        """What waits for its turn has to know who held what."""
        self.waiting = Waiting(self._holder, self.most_waiting)

    def in_force(self) -> Iterator[OffsetCommit]:
        """The committed values, by group and partition."""
        for place in sorted(self.model.committed):
            if (c := self._before(place)) is not None:
                yield c

    def pending(self, producer_id: int) -> list[OffsetCommit]:
        """The values that wait for the end of this producer's transaction, by group and partition."""
        values = self.model.pending.get(producer_id, {})
        commits = (self.commits.get(values[place].record_offset) for place in sorted(values))
        return [c for c in commits if c is not None]  # two damaged records can have one offset

    def group_record(self, offset: int, row: tuple[Any, ...]) -> None:
        """A classic group's generation, or a KIP-848 or Streams group's epoch, member or what a member is assigned; its
        value as JSON, its time in ms."""
        group, key_type, tombstone, number, members, value, time = row
        if key_type == KIP_848_ASSIGNMENT:
            for member in members or ():
                self.assignments.holders.note(group, member, offset, None if tombstone else value)
            return
        if key_type in MEMBERS:
            current = self.members.setdefault(group, set())
            (current.difference_update if tombstone else current.update)(members or ())
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

    def begin_with(self, commit: OffsetCommit) -> None:
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
        c = OffsetCommit(
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

    def _holder(self, c: OffsetCommit) -> str | None:
        return self.assignments.holders.holder(c.place.group, c.partition, c.record_offset)

    def _store(self, c: OffsetCommit, replaced: CommittedOffset | None) -> None:
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

    def _before(self, place: GroupPartition) -> OffsetCommit | None:
        value = self.model.committed.get(place)
        return None if value is None else self.commits.get(value.record_offset)

    def marker(self, producer_id: int, commit: bool) -> None:
        """The end of a producer's transaction."""
        values = self.pending(producer_id)
        before = {c.place: self._before(c.place) for c in values}
        materialized = set(self.model.replay_marker(producer_id, commit))
        for c in values:
            outcome = "aborted" if not commit else "in force" if c.place in materialized else "superseded"
            old = before[c.place]
            gone = old if outcome == "in force" else c
            if gone is not None:
                self.commits.pop(gone.record_offset, None)
            for watcher in self.watchers:
                watcher.decided(c, outcome, old)
        for c in self.waiting.end(producer_id, commit):
            self._live(c)

    def _live(self, c: OffsetCommit) -> None:
        for watcher in self.watchers:
            watcher.live(c)

    def end(self) -> None:
        """The log ends: what is open counts as written."""
        for c in self.waiting.rest():
            self._live(c)
