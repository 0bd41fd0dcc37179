"""Which copy counts: of several copies of one broker, of one topic, of one log. Directory names decide nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple, Protocol, TypeVar

from auditor.evidence.cluster_clocks import beyond_ms, is_after

LogKey = tuple[str, int]  # topic and partition
METADATA_TOPIC = "__cluster_metadata"

# Copies of one log: which replica stands for it.


class LogCopy(Protocol):
    """A copy of a log: where it is, its last leader epoch and end, the end that is sure, its newest broker's time."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def log_dir(self) -> str: ...
    @property
    def broker_id(self) -> int | None: ...
    @property
    def rank(self) -> tuple[int, int]: ...
    @property
    def settled_end(self) -> int: ...
    @property
    def broker_time(self) -> int: ...


C = TypeVar("C", bound=LogCopy)


def leader_of(copies: Sequence[C], named: int | None) -> C:
    """Return the copy that stands for a log (rules.md, *leader copy*): the highest leader epoch, then the furthest end.

    An unsettled end counts only up to where some copy surely is. Among equals the leader by the metadata (``named``)
    wins, but only then: its copy may be older than the others' and lack what it wrote itself. Equal copies of one
    broker are the same up to their times.
    """
    reach = max(c.settled_end for c in copies)

    def order(c: C) -> tuple[object, ...]:
        end = c.rank[1] if c.rank[1] <= reach else c.settled_end
        known = c.broker_id is not None
        return (c.rank[0], end, known and c.broker_id == named, not known, -(c.broker_id or 0), c.broker_time)

    return max(sorted(copies, key=lambda c: c.log_dir), key=order)


class OneCopy(NamedTuple):
    """A copy of a log, as :func:`divided` compares them. ``first_offset``: where its first segment begins."""

    topic: str
    partition: int
    log_dir: str
    broker_id: int | None
    topic_id: str | None
    rank: tuple[int, int]
    settled_end: int
    broker_time: int
    first_offset: int


FAR = 1 << 62
Ranges = list[tuple[int, int]]


def by_preference(copies: Sequence[C], named: int | None) -> list[C]:
    """Return the copies of a log, each the one that :func:`leader_of` takes among those behind it."""
    left, out = list(copies), list[C]()
    while left:
        out.append(leader_of(left, named))
        left.remove(out[-1])
    return out


def divided(copies: Sequence[OneCopy]) -> list[Ranges]:
    """Return for each copy of a log the offsets (from, to) that no copy before it has; the outermost have no end."""
    taken: Ranges = []
    out: list[Ranges] = []
    for copy in copies:
        own, next_offset = Ranges(), copy.first_offset
        for begin, end in [*sorted(taken), (copy.rank[1], copy.rank[1])]:
            if next_offset < min(begin, copy.rank[1]):
                own.append((next_offset, min(begin, copy.rank[1])))
            next_offset = max(next_offset, end)
        taken += own
        out.append(own)
    if not taken:
        return [[(-FAR, FAR)] if number == 0 else [] for number in range(len(copies))]
    least, most = min(taken)[0], max(end for _, end in taken)
    return [[(-FAR if begin == least else begin, FAR if end == most else end) for begin, end in own] for own in out]


# Copies of one broker's log directory, such as the backups of two days: the older one is excluded.


class CopyEnd(NamedTuple):
    """Where a copy of a log ends, by offsets that only grow.

    ``checkpoints``: log start and high watermark, None where unknown; ``times``, ms by its broker's clock, -1 where
    unknown: the newest that the broker wrote, and when `auditor copy` read it.
    """

    leader_epoch: int
    end: int
    checkpoints: tuple[int, int] | None
    times: tuple[int, int]
    topic_id: str | None = None


class DirectoryCopy(NamedTuple):
    """A copy of a broker's log directory, with the ends of its logs. ``directory_id``: None where unknown."""

    log_dir: str
    broker_id: int
    directory_id: str | None
    logs: Mapping[LogKey, CopyEnd]


class Superseded(NamedTuple):
    """A copy of a log directory that a newer one (``by``) replaces, and how that is known.

    ``further``: the logs of which it nevertheless has more.
    """

    log_dir: str
    by: str
    why: str
    further: frozenset[LogKey] = frozenset()


class WhichCopies(NamedTuple):
    """The copies that a newer one replaces, by log directory, and the logs of which nothing orders the copies."""

    superseded: Mapping[str, Superseded] = {}
    unordered: frozenset[LogKey] = frozenset()

    def counting(self, copies: Sequence[C]) -> tuple[list[C], list[C]]:
        """Split the copies of one log into those that count, and those that a newer copy of their broker replaces."""
        if not self.superseded or len(copies) < 2:
            return list(copies), []
        newer = {c.broker_id for c in copies if c.log_dir not in self.superseded}
        older = (self.superseded.get(c.log_dir) if c.broker_id in newer else None for c in copies)
        replaced = [
            old is not None and (c.topic, c.partition) not in old.further for c, old in zip(copies, older, strict=True)
        ]
        return (
            [c for c, old in zip(copies, replaced, strict=True) if not old],
            [c for c, old in zip(copies, replaced, strict=True) if old],
        )


def which_copies(copies: Iterable[DirectoryCopy]) -> WhichCopies:
    """Return which of a cluster's log directories are older copies of others.

    The newer one of two copies has every log as far or further, and one of them further. Where ends cross, times that
    the broker wrote decide, but not for the logs of which the older one has more.
    """
    by_broker: dict[int, list[DirectoryCopy]] = {}
    for copy in copies:
        by_broker.setdefault(copy.broker_id, []).append(copy)
    superseded: dict[str, Superseded] = {}
    unordered: set[LogKey] = set()
    for some in by_broker.values():
        for one, other in combinations(sorted(some, key=lambda c: c.log_dir), 2):
            older = _older(one, other)
            if isinstance(older, Superseded):
                superseded.setdefault(older.log_dir, older)
            unordered |= older.further if isinstance(older, Superseded) else older
    return WhichCopies(_by_the_newest(superseded), frozenset(unordered))


def _by_the_newest(superseded: dict[str, Superseded]) -> dict[str, Superseded]:
    # Names the copy that nothing replaces, where copies of three days are each replaced by the next.
    out = {}
    for log_dir, one in superseded.items():
        last, met = one, {log_dir}
        while last.by in superseded and last.by not in met:
            met.add(last.by)
            last = superseded[last.by]
        if last.by not in met:
            out[log_dir] = one._replace(by=last.by)
    return out


def _older(one: DirectoryCopy, other: DirectoryCopy) -> Superseded | frozenset[LogKey]:
    """Return which of two copies the other replaces; where nothing tells, the logs that differ."""
    nothing = frozenset[LogKey]()
    ids_known = None not in (one.directory_id, other.directory_id)
    if ids_known and one.directory_id != other.directory_id:
        return nothing  # two directories of one broker
    shared = [key for key in one.logs.keys() & other.logs.keys() if _is_one_log(one.logs[key], other.logs[key])]
    if not shared or (not ids_known and 2 * len(shared) <= max(len(one.logs), len(other.logs))):
        return nothing  # they may be two directories of a broker that has some partitions in both
    ends = _compared(one, other, shared, lambda log: (log.leader_epoch, log.end))
    starts = _compared(one, other, shared, lambda log: log.checkpoints)
    for behind, ahead in (ends, starts) if not any(ends) else (ends,):
        if bool(behind) != bool(ahead):
            old, new = (one, other) if behind else (other, one)
            return Superseded(old.log_dir, new.log_dir, _why(old, new, behind or ahead, len(shared)))
    for number, what in enumerate(("newest broker-written time", "read time")):
        times = [max(copy.logs[key].times[number] for key in shared) for copy in (one, other)]
        apart = beyond_ms(times[0] - times[1], one_clock=one.broker_id is not None)
        if apart and min(times) >= 0:
            (old, further), new = ((one, ends[1]), other) if apart < 0 else ((other, ends[0]), one)
            more = f"; it has more of {_names(further)}" if further else ""
            return Superseded(old.log_dir, new.log_dir, f"the {what} is older{more}", further)
    return ends[0] | ends[1]


def _compared(
    one: DirectoryCopy, other: DirectoryCopy, shared: Iterable[LogKey], by: Callable[[CopyEnd], tuple[int, int] | None]
) -> tuple[frozenset[LogKey], frozenset[LogKey]]:
    # The logs of which the first has less, and those of which it has more.
    pairs = [(key, by(one.logs[key]), by(other.logs[key])) for key in shared]
    known = [(key, x, y) for key, x, y in pairs if x is not None and y is not None]
    return frozenset(key for key, x, y in known if x < y), frozenset(key for key, x, y in known if x > y)


def _is_one_log(one: CopyEnd, other: CopyEnd) -> bool:
    return None in (one.topic_id, other.topic_id) or one.topic_id == other.topic_id


def _why(old: DirectoryCopy, new: DirectoryCopy, behind: frozenset[LogKey], shared: int) -> str:
    topic, partition = key = min(behind)
    before, after = ((log.end, log.leader_epoch, *(log.checkpoints or ())) for log in (old.logs[key], new.logs[key]))
    names = ("log end", "last leader epoch", "log start", "high watermark")
    name, x, y = next((name, x, y) for name, x, y in zip(names, before, after, strict=False) if x < y)
    return f"{name} of {topic}-{partition}: {x}, then {y}; {len(behind)} of {shared} logs continued, no log is behind"


def _names(keys: Collection[LogKey]) -> str:
    first = min(keys)
    return f"{first[0]}-{first[1]}" + (f" and {len(keys) - 1} more" if len(keys) > 1 else "")


# Clusters that were given one id, as tutorials and compose files have it.


class ClusterCopy(NamedTuple):
    """A log directory. ``topics``: ids of all topics that its metadata log shows from its first record on, None without
    that; ``has``: those of its partitions."""

    log_dir: str
    broker_id: int | None
    directory_id: str | None
    topics: frozenset[str] | None
    has: frozenset[str]


def several_clusters(copies: Sequence[ClusterCopy]) -> list[list[ClusterCopy]]:
    """Return the log directories of each of several clusters that have one id; empty where nothing shows several.

    Two directories of one broker have metadata logs without a common topic: a broker has one such log.
    """
    groups: list[tuple[frozenset[str], list[ClusterCopy]]] = []
    for copy in copies:
        if copy.topics:
            same = [group for group in groups if group[0] & copy.topics]
            groups = [group for group in groups if group not in same]
            groups.append((copy.topics.union(*(ids for ids, _ in same)), [*(c for _, of in same for c in of), copy]))
    twice = (
        one.broker_id is not None and one.broker_id == other.broker_id and one.directory_id != other.directory_id
        for (_, some), (_, others) in combinations(groups, 2)
        for one in some
        for other in others
        if None not in (one.directory_id, other.directory_id)
    )
    if not any(twice):
        return []
    for copy in copies:
        if not copy.topics:
            max(groups, key=lambda group: len(group[0] & copy.has))[1].append(copy)
    return [of for _, of in groups]


# Directories of partitions: the topic id says whose they are, not the name.


class NamedDirectory(NamedTuple):
    """A partition directory of one log directory, with the topic and partition of its name.

    ``reach``: first offset and size of its last segment.
    """

    folder: str
    topic: str
    partition: int
    topic_id: str
    reach: tuple[int, int]


class DirectoryIdentity(NamedTuple):
    """The partition of a directory (None: unknown); ``beside``: the directory that has it, of which this is a copy."""

    topic: str
    partition: int | None
    beside: str | None = None


def identities(
    folders: Sequence[NamedDirectory], names: Mapping[str, str], counts: Mapping[str, int]
) -> dict[str, DirectoryIdentity]:
    """Return the partitions of those directories of one log directory that have a name of their own.

    ``names``: of topics by id; ``counts``: of their partitions, where the metadata shows them; directories of these
    names show more. A directory named like a topic of the cluster is not renamed: its id may be wrong. One with its
    partition's name stands for it: a broker opens directories by name.
    """
    known = frozenset(names.values())
    counts = {t: max([n, *(f.partition + 1 for f in folders if f.topic == t)]) for t, n in counts.items()}
    taken = {(f.topic, f.partition): f.folder for f in folders}
    out: dict[str, DirectoryIdentity] = {}
    for f in sorted(folders, key=lambda f: f.reach, reverse=True):
        topic = names.get(f.topic_id)
        if topic is not None and topic != f.topic and f.topic not in known:
            number = _number(f, topic, counts.get(topic, 0))
            out[f.folder] = DirectoryIdentity(topic, number, None if number is None else taken.get((topic, number)))
            if number is not None:
                taken.setdefault((topic, number), f.folder)
    return out


def names_by_id(folders: Iterable[NamedDirectory], known: Mapping[str, str]) -> dict[str, str]:
    """Return the names of topics by id: ``known`` ones, else the name that all other directories of the id contain."""
    met: dict[str, list[NamedDirectory]] = {}
    for f in folders:
        if f.topic_id not in known:
            met.setdefault(f.topic_id, []).append(f)
    names = dict(known)
    for topic_id, some in met.items():
        within = {f.topic for f in some if all(o.topic == f.topic or f"{f.topic}-" in o.folder for o in some)}
        if len({f.topic for f in some}) > 1 and len(within) == 1:
            names[topic_id] = within.pop()
    return names


def _number(f: NamedDirectory, topic: str, count: int) -> int | None:
    """Return the partition that a directory of another name has: the one that its name still has, or the only one."""
    named = [int(digits) for digits in re.findall(rf"(?<![A-Za-z0-9]){re.escape(topic)}-(\d+)", f.folder)]
    for number in (*named, f.partition) if count else named:
        if not count or number < count:
            return number
    return 0 if count == 1 and not named else None


# Copies of one topic: those that were re-created under their name.
#
# A broker that was down keeps the directories of topics that were removed meanwhile. They are separate logs, by the
# topic ids in ``partition.metadata`` and ``__cluster_metadata`` (KIP-516).


class OfTopic(Protocol):
    """Something of a topic that may have an id."""

    @property
    def topic(self) -> str: ...
    @property
    def topic_id(self) -> str | None: ...


T = TypeVar("T", bound=OfTopic)


class KnownCopy(NamedTuple):
    """A copy of a partition: its topic, topic id (None: unknown), its newest broker-written time and of all, ms.

    ``at_rest``: its broker was stopped cleanly, and the metadata that it had then is in the input. ``first_batches``:
    its partition, with a checksum over its first batches, None where unknown.
    """

    topic: str
    topic_id: str | None
    time: int
    any_time: int = -1
    at_rest: bool = False
    first_batches: tuple[int, int] | None = None


class Rival(NamedTuple):
    """One of several topics of one name, and the newest time in its copies (ms).

    ``by_broker``: the newest that a broker wrote; any time where none did. ``first_batches``: of its copies.
    """

    topic_id: str
    time: int
    by_broker: int
    first_batches: frozenset[tuple[int, int]] = frozenset()


NOBODY = ""  # the id of a topic of which every copy is of a removed one


class Incarnations(NamedTuple):
    """Topics that were re-created under their name.

    ``now``: for topics with copies of another topic, the id of the current one; ``removed``: ids of deleted topics.
    ``rivals``: where nothing shows which topic is the current one, all of them, written last first: each is judged for
    itself. ``strange``: ids that the cluster has not at the end of its metadata, though it does not show their removal;
    ``since_start``: it shows all topics that there ever were, so these are of another cluster.
    """

    now: Mapping[str, str] = {}
    removed: frozenset[str] = frozenset()
    rivals: Mapping[str, tuple[Rival, ...]] = {}
    strange: frozenset[str] = frozenset()
    since_start: bool = False

    def is_of_another(self, topic: str, topic_id: str | None) -> bool:
        """Whether a copy is of another topic than the current one of its name."""
        return topic_id is not None and self.now.get(topic, topic_id) != topic_id

    def is_outlived(self, topic: str, topic_id: str | None) -> bool:
        """Whether a topic has a rival of its name that was written after it, as far as anything shows."""
        return topic_id in {r.topic_id for r in self.rivals.get(topic, ())[1:]}

    def may_be_removed(self, topic: str, topic_id: str | None) -> bool:
        """Whether a topic may be the removed one of its name: no time of it is newer than the other's by its broker."""
        rivals = self.rivals.get(topic, ())
        own = next((r for r in rivals if r.topic_id == topic_id), None)
        others = [r for r in rivals if own is not None and not r.first_batches & own.first_batches]
        return own is not None and any(r.by_broker >= own.time for r in others if r is not own)

    def is_named_twice(self, topic: str, topic_id: str | None) -> bool:
        """Whether a topic has the first records of the newest one of its name: it is one topic with two ids."""
        newest, *others = self.rivals.get(topic, (None,))
        own = next((r for r in others if r.topic_id == topic_id), None)
        return newest is not None and own is not None and bool(own.first_batches & newest.first_batches)

    def parted(self, copies: Sequence[T]) -> tuple[list[T], list[T]]:
        """Split the copies of a partition into its replicas and copies of another topic."""
        if not self.now:
            return list(copies), []
        strange = [self.is_of_another(c.topic, c.topic_id) for c in copies]
        return (
            [c for c, one in zip(copies, strange, strict=True) if not one],
            [c for c, one in zip(copies, strange, strict=True) if one],
        )

    def seen_from(self, number: int) -> Incarnations:
        """Return the same where the current topic is that rival, as far as a topic has so many."""
        return self._replace(
            now={**self.now, **{t: some[number].topic_id for t, some in self.rivals.items() if number < len(some)}}
        )


class KnownTopics(NamedTuple):
    """What the metadata shows: current ids by name, ids of removed topics, its newest time (ms).

    ``whole``: all of it could be read; ``since_start``: from its first record on.
    """

    current: Mapping[str, str] = {}
    removed: frozenset[str] = frozenset()
    time: int = -1
    whole: bool = False
    since_start: bool = False


def incarnations(copies: Iterable[KnownCopy], topics: KnownTopics) -> Incarnations:
    """Return which topics of one name there are in the input, and which is the current one as far as that is known."""
    by_id: dict[str, dict[str, list[KnownCopy]]] = {}
    for copy in copies:
        if copy.topic_id is not None and copy.topic != METADATA_TOPIC:
            by_id.setdefault(copy.topic, {}).setdefault(copy.topic_id, []).append(copy)
    now: dict[str, str] = {}
    rivals: dict[str, tuple[Rival, ...]] = {}
    strange: set[str] = set()
    ids_now = frozenset(topics.current.values())
    for topic, ids in by_id.items():
        unknown = {i for i, some in ids.items() if i not in ids_now and _is_strange(some, topics)}
        strange |= unknown
        current = topics.current.get(topic)
        living = {
            i: max(max(c.time for c in some), -1)
            for i, some in ids.items()
            if i == current or not (i in topics.removed or i in unknown)
        }
        if not living:
            now[topic] = NOBODY
        elif current in living and len(ids) > 1:
            now[topic] = max(living, key=lambda i: _order(i == current, living[i], topics.time))
        elif len(living) > 1:
            newest = [_rival(i, ids[i]) for i in living]
            rivals[topic] = tuple(sorted(newest, key=lambda r: (-r.time, r.topic_id)))
            now[topic] = rivals[topic][0].topic_id
        elif len(ids) > 1:
            now[topic] = next(iter(living))
    return Incarnations(now, topics.removed, rivals, frozenset(strange), topics.since_start)


def _rival(topic_id: str, copies: Sequence[KnownCopy]) -> Rival:
    by_broker, of_any = max(c.time for c in copies), max(c.any_time for c in copies)
    first = frozenset(c.first_batches for c in copies if c.first_batches is not None)
    return Rival(topic_id, max(by_broker, of_any), by_broker if by_broker >= 0 else of_any, first)


def _is_strange(copies: Iterable[KnownCopy], topics: KnownTopics) -> bool:
    """Whether a topic that is not in the metadata was not created after its end: it was written before, or at rest."""
    copies = list(copies)
    if not topics.whole or copies[0].topic_id in topics.removed:
        return False
    newest = max(max(c.time, c.any_time) for c in copies)
    written = any(c.any_time >= 0 or c.time >= 0 for c in copies)
    return all(c.at_rest for c in copies) or (written and is_after(topics.time, newest))


def _order(is_current: bool, time: int, metadata_time: int) -> tuple[bool, bool, int]:
    # A topic created after the end of the metadata wins over the one that the metadata has.
    return (is_current or time > metadata_time, not is_current and time > metadata_time, time)
