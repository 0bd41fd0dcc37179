"""The life of committed offsets record by record (semantics 5.1): groups' own records, and the order watchers see."""

from __future__ import annotations

from typing import Any

import pytest

from auditor.model.groups import (
    CLASSIC,
    KIP_848_EPOCH,
    KIP_848_MEMBER,
    STREAMS_EPOCH,
    STREAMS_MEMBER,
    CommitReplay,
    Generation,
    OffsetCommit,
)

GROUP = "g"


def offset(value: int | None, producer_id: int = -1) -> tuple[object, ...]:
    """An offset record of group g on t-0; None: a tombstone."""
    return (GROUP, "t", 0, value is None, value, 1000, producer_id, 0 if producer_id >= 0 else -1, "0.log", 0)


def record(key_type: int, tombstone: bool, number: int | None, members: list[str] | None) -> tuple[Any, ...]:
    """A record of group g, written at 1000 ms; its value is not looked at."""
    return (GROUP, key_type, tombstone, number, members, None, 1000)


class Seen:
    """Notes what a watcher hears, by record offset."""

    def __init__(self) -> None:
        self.lived: list[int] = []

    def live(self, commit: OffsetCommit) -> None:
        self.lived.append(commit.record_offset)

    def decided(self, commit: OffsetCommit, outcome: str, before: OffsetCommit | None) -> None:
        pass


@pytest.mark.parametrize(("epoch", "member"), [(KIP_848_EPOCH, KIP_848_MEMBER), (STREAMS_EPOCH, STREAMS_MEMBER)])
def test_members_of_a_group_with_epochs_come_and_go_within_one(epoch: int, member: int) -> None:
    story = CommitReplay()
    story.group_record(1, record(member, False, None, ["a"]))
    assert story.generations == {}  # no epoch is known yet
    story.group_record(2, record(epoch, False, 4, None))
    assert story.generations == {GROUP: Generation(2, 4, False, False, 1000)}
    story.group_record(3, record(member, True, None, ["a"]))
    assert story.generations == {GROUP: Generation(2, 4, False, True, 1000)}
    story.group_record(4, record(member, False, None, ["b"]))
    assert story.generations == {GROUP: Generation(2, 4, False, False, 1000)}
    story.group_record(5, record(epoch, False, 5, None))
    assert story.generations == {GROUP: Generation(5, 5, False, False, 1000)}


def test_a_group_that_is_removed_leaves_its_generation() -> None:
    story = CommitReplay()
    story.group_record(1, record(CLASSIC, False, 1, ["a"]))
    story.group_record(2, record(CLASSIC, True, 2, []))
    assert story.generations == {GROUP: Generation(1, 1, True, False, 1000)}


def test_a_tombstone_lets_go_of_the_value_in_force_and_of_every_pending_one() -> None:
    story = CommitReplay()
    for record, (value, producer_id) in enumerate([(10, -1), (20, 7), (30, 8)]):
        story.offset_record(record, offset(value, producer_id))
    assert set(story.commits) == {0, 1, 2}
    story.offset_record(3, offset(None))
    assert story.commits == {}


def test_watchers_hear_of_commits_in_the_order_of_their_records_as_soon_as_they_are_decided() -> None:
    seen = Seen()
    story = CommitReplay((seen,))
    for record, producer_id in enumerate([7, 8, 9]):
        story.offset_record(record, offset(record, producer_id))
    story.marker(8, commit=True)
    assert seen.lived == []  # 7's came before it, and is open
    story.marker(7, commit=True)
    assert seen.lived == [0, 1]
    story.end()
    assert seen.lived == [0, 1, 2]
