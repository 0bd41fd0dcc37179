"""Commits behind an undecided one: few of them are kept, and nothing else is found for that."""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from auditor.model import groups
from auditor.model.groups import (
    CLASSIC,
    KIP_848_ASSIGNMENT,
    KIP_848_EPOCH,
    Assignments,
    CommitReplay,
    GroupPartition,
    OffsetCommit,
)
from auditor.model.offset_watch import Committers, Rivals, Zombie

HUNG = 1_000  # a producer whose transaction nothing ends


class Everything:
    """Keeps all commits for as long as one before them is undecided, as they are."""

    def __init__(self) -> None:
        self.queues: dict[GroupPartition, deque[tuple[OffsetCommit, list[bool]]]] = {}
        self.open: dict[int, list[bool]] = {}
        self.places: dict[int, dict[GroupPartition, None]] = {}

    def add(self, c: OffsetCommit) -> None:
        self.queues.setdefault(c.place, deque()).append((c, self.open.setdefault(c.producer_id, [])))
        self.places.setdefault(c.producer_id, {})[c.place] = None

    def end(self, producer_id: int, committed: bool) -> Iterator[OffsetCommit]:
        self.open.pop(producer_id, []).append(committed)
        for place in self.places.pop(producer_id, {}):
            while self.queues[place] and self.queues[place][0][1]:
                c, (counts,) = self.queues[place].popleft()
                if counts:
                    yield c

    def rest(self) -> Iterator[OffsetCommit]:
        return (c for place in sorted(self.queues) for c, ended in self.queues[place] if ended != [False])


class Told:
    """A story with those who listen to commits as they come to count."""

    def __init__(self, most: int = groups.MOST_BEHIND) -> None:
        assignments = Assignments()
        self.rivals, self.committers = Rivals(assignments), Committers()
        self.story = CommitReplay((self.committers, self.rivals), assignments=assignments, most_waiting=most)
        self.offset = -1

    def commit(self, producer_id: int, group: str = "g", partition: int = 0, value: int | None = None) -> None:
        self.offset += 1
        value = self.offset if value is None else value
        row = (group, "t", partition, False, value, 1000 + self.offset, producer_id, 0, "0.log", self.offset)
        self.story.offset_record(self.offset, row)

    def marker(self, producer_id: int, commit: bool = True) -> None:
        self.offset += 1
        self.story.marker(producer_id, commit)

    def group(self, kind: int, number: int | None, group: str = "g", **given: Any) -> None:
        self.offset += 1
        row = (group, kind, False, number, given.get("members", ["m"]), given.get("value"), 1000 + self.offset)
        self.story.group_record(self.offset, row)

    def holds(self, member: str, *partitions: int, group: str = "h") -> None:
        """A member of a group of KIP-848 is assigned partitions."""
        value = json.dumps({"assignedPartitions": [{"topicId": "T", "partitions": partitions}]})
        self.group(KIP_848_ASSIGNMENT, None, group, members=[member], value=value)

    def found(self) -> tuple[Any, ...]:
        """All that was seen. Which of a zombie's commits for the member before is shown, is not told apart."""
        self.story.end()
        zombies = [z._replace(older=z.older and _kind(z.older)) for z in self.rivals.zombies]
        return zombies, self.rivals.interleaved, self.rivals.handed_over, self.committers.seen


def _kind(c: OffsetCommit) -> Any:
    return c.producer_id, c.generation


def assigned(member: str) -> str:
    """The value of a classic generation in which one member has both partitions."""
    owned = {"assignedPartitions": [{"topic": "t", "partitions": [0, 1]}]}
    return json.dumps({"members": [{"memberId": member, "assignment": owned}]})


def _anything(told: Told, chance: random.Random, open_now: set[int]) -> None:
    """A step of two groups, one classic and one of KIP-848, whose producers are few and turn up anywhere."""
    match chance.randrange(20):
        case 0:
            told.group(CLASSIC, told.offset, value=chance.choice([None, assigned("a"), assigned("b")]))
        case 1:
            told.group(KIP_848_EPOCH, told.offset, "h")
        case 2:
            told.holds(chance.choice("ab"), *chance.sample(range(2), chance.randrange(3)))
        case step if step < 8 and open_now:
            producer_id = chance.choice(sorted(open_now))
            if producer_id != HUNG or chance.random() < 0.1:
                told.marker(producer_id, chance.random() < 0.7)
                open_now.discard(producer_id)
        case _:
            producer_id = HUNG if chance.random() < 0.05 else chance.randrange(4)
            fallen = chance.randrange(3) * chance.randrange(100)  # most go on
            told.commit(producer_id, chance.choice("gh"), chance.randrange(2), told.offset - fallen)
            open_now.add(producer_id)


@pytest.mark.parametrize("few", [1, 3, 20])
def test_what_is_let_go_changes_nothing_that_is_found(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "FEW", few)
    seen: list[Any] = []
    for seed in range(300):
        found: list[tuple[Any, ...]] = []
        for told in (Told(), Told()):
            if found:
                told.story.waiting = Everything()  # type: ignore[assignment]
            chance, open_now = random.Random(seed), {HUNG}
            for place in "gh":
                told.commit(HUNG, place, 0)
            for _ in range(150):
                _anything(told, chance, open_now)
            found.append(told.found())
        assert found[0] == found[1], seed
        seen.append(found[0])
    zombies, interleaved, handed_over, _ = zip(*seen, strict=True)
    assert all(sum(map(len, each)) > 100 for each in (zombies, interleaved, handed_over))
    assert any(isinstance(z, Zombie) and z.late.place.group == "h" for each in zombies for z in each)


def test_the_commits_of_an_outage_are_a_few_of_each_producer() -> None:
    """A transaction hangs; the group goes on with two producers in turn, 100 times as long as commits are kept."""
    told = Told()
    told.group(CLASSIC, 1)
    told.commit(HUNG)
    most = 0
    for number in range(100 * groups.FEW):
        told.commit(number % 2)
        told.marker(number % 2, number % 5 != 0)
        most = max(most, len(told.story.waiting))
    assert most <= groups.FEW + 8  # what has come since it was looked, and what was left then
    assert [[c.record_offset for c in three] for three in told.found()[1]] == [[4, 6, 8]]  # the commit at 2 was aborted


@pytest.mark.parametrize(("generations", "zombies"), [((1, 2), 1), ((1, 1), 0)])
@pytest.mark.parametrize("behind", [1, 5 * groups.FEW])
def test_a_zombie_whose_commit_hangs_is_found_however_long_its_rival_goes_on(
    generations: tuple[int, int], zombies: int, behind: int
) -> None:
    """The steps of KIP-447: A commits, the group rebalances, B commits, A comes back. The twin has no rebalance."""
    told = Told()
    told.group(CLASSIC, generations[0])
    told.commit(1)
    told.marker(1)
    told.group(CLASSIC, generations[1])
    told.commit(2)
    told.marker(2)
    told.commit(1)
    for _ in range(behind):
        told.commit(2)
        told.marker(2)
    assert len(told.found()[0]) == zombies


def test_commits_of_a_transaction_that_hangs_itself_are_two() -> None:
    told = Told()
    for _ in range(10 * groups.FEW):
        told.commit(HUNG)
    assert len(told.story.waiting) <= groups.FEW + 2


def test_a_place_that_there_is_no_room_for_is_silent_from_there_on() -> None:
    """Two open transactions take turns: any of these commits may come to matter. The other partition is judged."""
    told = Told(most=6)
    told.group(CLASSIC, 1)
    for number in range(20):
        told.commit(HUNG + number % 2)
    assert told.story.waiting.first_left_out is not None
    assert told.story.waiting.first_left_out.record_offset == 8  # behind the group's record, the first, and 6 more
    assert len(told.story.waiting) == 7
    for number in (7, 8, 7):
        told.commit(number, partition=1)
        told.marker(number)
    for number in (0, 1):
        told.marker(HUNG + number)
    told.commit(9)
    told.marker(9)
    _, interleaved, _, committers = told.found()
    assert [late.partition for _, _, late in interleaved] == [1, 0]
    assert sorted(committers["g"]) == [7, 8, HUNG, HUNG + 1]  # of 9 nothing is known


def test_commits_of_many_places_wait_for_one_transaction_each_without_a_limit() -> None:
    told = Told(most=6)
    for partition in range(50):
        told.commit(HUNG, partition=partition)
    assert (len(told.story.waiting), told.story.waiting.first_left_out) == (50, None)


def test_what_was_decided_takes_no_room() -> None:
    told = Told(most=6)
    for number in range(100):
        told.commit(7, partition=number % 50)
        told.commit(7, partition=number % 50)
        told.marker(7)
        assert len(told.story.waiting) == 0
    for number in range(8):
        assert told.story.waiting.first_left_out is None
        told.commit(HUNG + number % 2)
    assert told.story.waiting.first_left_out is not None
