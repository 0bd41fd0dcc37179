"""Commits of offsets, and those of them that wait until the ones before them are decided.

Watchers hear of the commits of a place in the order of their records, so one that is undecided keeps back all that
follow: those of an outage. Of these only what can still change what :class:`auditor.model.offset_watch.Rivals` and
``Committers`` find is kept, a few of each producer in a generation, however many there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from auditor.model.offsets import NO_PRODUCER_ID, GroupPartition

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


class Commit(NamedTuple):
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


Waits = tuple[Commit, _Transaction]


@dataclass(slots=True)
class Waiting:
    """The commits in transactions of all places, from the first undecided one of each on.

    ``holder``: the member that held a commit's partition then, as far as groups tell. ``first_left_out``: there was no
    room for this one; its place is silent from there on, since what is missing could make others seem odd.
    """

    holder: Callable[[Commit], str | None]
    most: int = MOST_BEHIND
    first_left_out: Commit | None = None
    _queues: dict[GroupPartition, deque[Waits]] = field(default_factory=dict)
    _open: dict[int, _Transaction] = field(default_factory=dict)
    _silent: set[GroupPartition] = field(default_factory=set)
    _count: int = 0
    _kept: int = 0  # of these when it was last looked
    _since: int = 0  # commits that have come since then

    def __len__(self) -> int:
        return self._count

    def add(self, c: Commit) -> None:
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

    def end(self, producer_id: int, committed: bool) -> Iterator[Commit]:
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

    def rest(self) -> Iterator[Commit]:
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
    kept, last, seen = set(), {}, set[tuple[int, str]]()
    for at, (c, _) in enumerate(run):
        producer_id, before = c.producer_id, run[at - 1][0]
        turn = at > 0 and before.producer_id != producer_id
        here = {(producer_id, "first")}
        if turn and producer_id in last:
            here.add((producer_id, "back"))
        if turn and c.value <= before.value:
            here.add((producer_id, "no higher"))
        if here - seen:
            kept |= {at, max(at - 1, 0)}
            seen |= here
        last[producer_id] = at
    return [run[at] for at in sorted(kept.union(last.values()))]
