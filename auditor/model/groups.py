"""Committed offsets and who may commit them (KIP-447, KIP-848)."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from auditor.base.at_rest import Fields

# Holders of partitions in KIP-848 groups, by the group's own records.
#
# A member's current assignment has the partitions that it is assigned, and those that it must still revoke and may
# commit until it has (``partitionsPendingRevocation``). A commit does not name the member that wrote it, and brokers
# check the member's epoch: up to 4.2 nothing else, since 4.3 older epochs are accepted from the partition's
# assignment on (KIP-1251). Records name topics by id, commits by name: where a group has had more than one, the
# holder is unknown.


CHANGES = 200_000  # of holders that are kept, in all groups; beyond, nobody is known

Place = tuple[str, int]  # topic id, partition


@dataclass(slots=True)
class _OfGroup:
    """Members of one group.

    ``assigned``: partitions by member; ``changes``: of a partition, the record offsets with its holders from there on.
    """

    assigned: dict[str, frozenset[Place]] = field(default_factory=dict)
    changes: dict[Place, list[tuple[int, frozenset[str]]]] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Holders:
    """The members of each KIP-848 group with the partitions that they held over time."""

    groups: dict[str, _OfGroup] = field(default_factory=dict)
    change_count: int = 0

    def note(self, group: str, member: str, offset: int, value: str | None) -> None:
        """Record a member's current assignment.

        ``value``: the record's value as JSON with Kafka's own field names; None: the member is gone.
        """
        if self.change_count >= CHANGES:
            self.groups.clear()
            return
        entry = self.groups.setdefault(group, _OfGroup())
        before, now = entry.assigned.pop(member, frozenset()), _places(value)
        if now:
            entry.assigned[member] = now
        entry.topics.update(topic for topic, _ in now)
        for place in before ^ now:
            changes = entry.changes.setdefault(place, [])
            holders = changes[-1][1] if changes else frozenset()
            changes.append((offset, holders ^ {member}))
            self.change_count += 1

    def holder(self, group: str, partition: int, offset: int) -> str | None:
        """Return the only member that held a partition when the record at an offset was written.

        None where no member or several did, or the topic is ambiguous.
        """
        tenure = self.held_since(group, partition, offset)
        return None if tenure is None else tenure[0]

    def held_since(self, group: str, partition: int, offset: int) -> tuple[str, int] | None:
        """Return the only holder, and the record offset from which on it held the partition."""
        entry = self.groups.get(group)
        if entry is None or len(entry.topics) != 1:
            return None
        (topic,) = entry.topics
        changes = entry.changes.get((topic, partition), [])
        after = bisect_right(changes, offset, key=lambda change: change[0])
        began, holders = changes[after - 1] if after else (-1, frozenset[str]())
        return (next(iter(holders)), began) if len(holders) == 1 else None


def _places(value: str | None) -> frozenset[Place]:
    fields: Fields = json.loads(value) if value is not None else {}
    lists = (fields.get(name) or () for name in ("assignedPartitions", "partitionsPendingRevocation"))
    return frozenset(
        (one["topicId"], partition) for listed in lists for one in listed for partition in one["partitions"]
    )


# Offsets of consumer groups: committed, and pending until a transaction ends (KIP-447).
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
    """Offsets in a group coordinator's memory, and the effect of its log's records on them.

    `committed` and `pending` (by producer id) are the state.
    """

    def __init__(self) -> None:
        self.committed: dict[GroupPartition, CommittedOffset] = {}
        self.pending: dict[int, dict[GroupPartition, CommittedOffset]] = {}

    def replay(self, place: GroupPartition, value: CommittedOffset, producer_id: int = NO_PRODUCER_ID) -> None:
        """Apply an offset record: committed at once, or pending under its producer id."""
        if producer_id == NO_PRODUCER_ID:
            self.committed[place] = value
        else:
            self.pending.setdefault(producer_id, {})[place] = value

    def replay_tombstone(self, place: GroupPartition) -> None:
        """Apply a tombstone: drop the committed value and every pending one."""
        self.committed.pop(place, None)
        for values in self.pending.values():
            values.pop(place, None)

    def replay_marker(self, producer_id: int, commit: bool) -> list[GroupPartition]:
        """Apply the end of a producer's transaction; return, sorted, the places whose pending value is now committed.

        A pending value loses against a committed one with a later record, whatever the order of the decisions.
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


# Transactional commits that wait until earlier ones of their place are decided.
#
# Watchers are notified of the commits of a place in record order, so an undecided one holds back all that follow:
# those of an outage. Of these only what can still change the results of :class:`auditor.model.offset_watch.Rivals`
# and ``Committers`` is kept, a few per producer and generation, however many there are.


MOST_BEHIND = 250_000  # commits that wait behind others of their place, in all: some 0.4 KB each
FEW = 1024  # that come before it is looked again which of all can go


class Generation(NamedTuple):
    """Group state by the last group record before a commit.

    ``offset`` and ``time`` (ms): of the first record with this ``number``, the time -1 if unknown. ``empty``: whether
    the group had no member then, None where the log does not show it.
    """

    offset: int
    number: int
    classic: bool
    empty: bool | None
    time: int = -1


class OffsetCommit(NamedTuple):
    """One offset record; ``value``: the offset that the group will read next.

    ``producer_id`` is -1 for a plain commit. ``time`` is the record's, in ms, written by the broker; ``generation``
    None where no group record came before.
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
    """Outcome of a transaction, shared by its commits; ``committed`` is None while it is open."""

    __slots__ = ("committed", "places")

    def __init__(self) -> None:
        self.committed: bool | None = None
        self.places: dict[GroupPartition, None] = {}


Waits = tuple[OffsetCommit, _Transaction]


@dataclass(slots=True)
class Waiting:
    """Transactional commits of all places, from the first undecided one of each on.

    ``holder``: the member that held a commit's partition, as far as group records show. ``first_left_out``: the first
    commit without room; its place reports nothing from there on, since gaps could make others seem odd.
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
        """Add a commit of an open transaction."""
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
        """End a transaction; yield the commits that were not aborted and have no undecided one before them any more."""
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
        """Yield all remaining commits that were not aborted, by place: the log ends."""
        for place in sorted(self._queues):
            for c, transaction in self._queues[place]:
                if transaction.committed is not False:
                    yield c
        self._queues.clear()
        self._count = 0

    def _full(self) -> bool:
        """Whether no more commits may wait behind others; the first of a place is in memory as pending anyway."""
        return self._count - len(self._queues) >= self.most

    def _thin(self) -> None:
        """Drop all that cannot change anything any more; each commit is checked a bounded number of times."""
        for place, queue in self._queues.items():
            if len(queue) > 2:
                self._queues[place] = deque(self._telling(queue))
        self._count = self._kept = sum(len(queue) for queue in self._queues.values())
        self._since = 0

    def _telling(self, queue: deque[Waits]) -> Iterator[Waits]:
        """Commits of a place that :func:`telling` keeps, by runs that share fate, generation and member."""
        alive = (w for w in queue if w[1].committed is not False)
        for _, run in groupby(
            alive, lambda w: (None if w[1].committed else id(w[1]), w[0].generation, self.holder(w[0]))
        ):
            yield from decisive_commits(list(run))


def decisive_commits(run: list[Waits]) -> list[Waits]:
    """Return the commits that tell as much as the whole run: of one place, generation, member and fate.

    A producer's first commit, with the one right before it, may be odd because of commits before the run, and its last
    because of those behind it. Within the run it may be odd that it returns behind another producer, and that it does
    so without a higher offset: the first of each, with the one right before it. Each oddity is reported once per place
    and generation.
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


# Owners of partitions in classic groups, by the group's own records (KIP-447).
#
# A commit does not name the member that wrote it. The record of a generation has every member with its assignment,
# and static members with their ``group.instance.id`` (KIP-345).


CONNECT, STREAMS = "connect", "streams"  # whose a group is
_OF_CONNECT = re.compile(r'"protocolType": ?"connect"')
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
    """A member that owned a partition, and the record offset from which on it did.

    For a classic group that is the offset of its generation.
    """

    member: Member
    began: int


@dataclass(slots=True)
class Assignments:
    """The newest generations of each group with their members, as record text until needed.

    ``holders``: the members of KIP-848 groups. ``kinds``: the groups of Connect's workers and of Streams' threads.
    """

    records: dict[str, deque[tuple[int, str]]] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    characters: int = 0
    holders: Holders = field(default_factory=Holders)
    _at_hand: dict[tuple[str, int], tuple[str, dict[tuple[str, int], Member]]] = field(default_factory=dict)

    def note(self, group: str, generation: int, value: str | None) -> None:
        """Record a classic group's record; ``value``: its value as JSON with Kafka's own field names."""
        if value is None:
            return
        if _OF_CONNECT.search(value):
            self.kinds[group] = CONNECT
        elif "-StreamThread-" in value:  # in the client ids
            self.kinds[group] = STREAMS
        records = self.records.get(group)
        if records and records[-1][0] == generation:  # a member that joined again changes the record
            self.characters -= len(records.pop()[1])
        if records and len(records) == GENERATIONS:
            self.characters -= len(records.popleft()[1])
        if self.characters + len(value) <= KEPT_CHARACTERS:
            self.characters += len(value)
            self.records.setdefault(group, deque()).append((generation, value))

    def owner(self, group: str, generation: int, topic: str, partition: int, *, before: bool = False) -> Member | None:
        """Return the member that had the partition in a generation, or in the one ``before``; None if unknown."""
        numbers = [number for number, _ in self.records.get(group, ()) if number <= generation - before]
        if not numbers or (not before and numbers[-1] != generation):
            return None
        return self._owners(group, numbers[-1]).get((topic, partition))

    def tenure(self, c: OffsetCommit) -> Tenure | None:
        """Return the owner of a commit's partition when it was written; None if group records do not show it."""
        generation = c.generation
        if generation is None or not generation.classic:
            holder = self.holders.held_since(c.place.group, c.partition, c.record_offset)
            return None if holder is None else Tenure(Member(holder[0], None, None), holder[1])
        owner = self.owner(c.place.group, generation.number, c.topic, c.partition)
        return None if owner is None else Tenure(owner, generation.offset)

    def before(self, c: OffsetCommit) -> Member | None:
        """Return the owner in the generation before, of a classic group."""
        if c.generation is None or not c.generation.classic:
            return None
        return self.owner(c.place.group, c.generation.number, c.topic, c.partition, before=True)

    def _owners(self, group: str, generation: int) -> dict[tuple[str, int], Member]:
        """Members of a stored generation by partition. Cost: parses its text on a cache miss."""
        value = next(text for number, text in reversed(self.records[group]) if number == generation)
        members = self._at_hand.get((group, generation))
        if members is None or members[0] is not value:
            if len(self._at_hand) >= AT_HAND:
                del self._at_hand[next(iter(self._at_hand))]
            members = self._at_hand[group, generation] = value, _by_partition(value)
        return members[1]


def _by_partition(value: str) -> dict[tuple[str, int], Member]:
    """Members in a classic group's record by the partitions that they are assigned."""
    owners: dict[tuple[str, int], Member] = {}
    for member in json.loads(value).get("members") or ():
        assignment = member.get("assignment")
        for one in (assignment.get("assignedPartitions") if isinstance(assignment, dict) else None) or ():
            owner = Member(member["memberId"], member.get("groupInstanceId"), member.get("clientId"))
            for partition in one["partitions"]:
                owners.setdefault((one["topic"], partition), owner)
    return owners


# Replay of a ``__consumer_offsets`` partition: commits are written, pending, then in force or dropped (semantics 5.1,
# KIP-447).
#
# Records are replayed in log order and reported to watchers. Memory: the values in force and pending, and those that
# wait.


CLASSIC, KIP_848_EPOCH, KIP_848_MEMBER, KIP_848_ASSIGNMENT = 2, 3, 5, 8
STREAMS_EPOCH, STREAMS_MEMBER = 17, 19  # KIP-1071: who has which task is not followed
MEMBERS = (KIP_848_MEMBER, STREAMS_MEMBER)
# Key types that a story looks at.
GROUP_RECORDS = (CLASSIC, KIP_848_EPOCH, STREAMS_EPOCH, *MEMBERS, KIP_848_ASSIGNMENT)


class Watcher(Protocol):
    """An observer of commits; both methods are called in log order, :meth:`live` in the order of the commit records."""

    def live(self, commit: OffsetCommit) -> None:
        """Handle a commit of a transaction that was not aborted (committed, or open at the log's end)."""

    def decided(self, commit: OffsetCommit, outcome: str, before: OffsetCommit | None) -> None:
        """Handle a commit that became ``in force``, ``aborted`` or ``superseded``.

        ``before``: the value in force until then.
        """


@dataclass(slots=True)
class CommitReplay:
    """Replays offset and group records; afterwards ``in_force`` and ``pending`` are as in a coordinator's memory."""

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
        """Yield the committed values, by group and partition."""
        for place in sorted(self.model.committed):
            if (c := self._before(place)) is not None:
                yield c

    def pending(self, producer_id: int) -> list[OffsetCommit]:
        """Return the values that wait for the end of this producer's transaction, by group and partition."""
        values = self.model.pending.get(producer_id, {})
        commits = (self.commits.get(values[place].record_offset) for place in sorted(values))
        return [c for c in commits if c is not None]  # two damaged records can have one offset

    def group_record(self, offset: int, row: tuple[Any, ...]) -> None:
        """Apply a group record: a generation, an epoch, a member or an assignment; value as JSON, time in ms."""
        group, key_type, tombstone, number, members, value, time = row
        if key_type == KIP_848_ASSIGNMENT:
            for member in members or ():
                self.assignments.holders.note(group, member, offset, None if tombstone else value)
            return
        if key_type in (STREAMS_EPOCH, STREAMS_MEMBER):
            self.assignments.kinds[group] = STREAMS
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
        """Set a value that was in force before the first record."""
        self._store(commit, None)

    def offset_record(self, offset: int, row: tuple[Any, ...]) -> None:
        """Apply a commit, or the tombstone that removes all values of its place."""
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
        """Apply the end of a producer's transaction."""
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
        """End the log: open transactions count as written."""
        for c in self.waiting.rest():
            self._live(c)
