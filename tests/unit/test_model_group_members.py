"""Which member owned a partition in which generation, as a group's records show it (KIP-447, KIP-345)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from auditor.model import groups
from auditor.model.groups import GENERATIONS, Assignments, Member


def record(**owned: list[int] | None) -> str:
    """The value of a generation: members, each with its partitions of topic t, or without any assignment."""
    return json.dumps({"members": [member(name, owned[name]) for name in owned]})


def member(name: str, partitions: list[int] | None) -> dict[str, Any]:
    assignment = None if partitions is None else {"assignedPartitions": [{"topic": "t", "partitions": partitions}]}
    return {"memberId": name, "groupInstanceId": None, "clientId": "c", "assignment": assignment}


def owner(known: Assignments, generation: int, partition: int = 0, *, before: bool = False) -> str | None:
    found = known.owner("g", generation, "t", partition, before=before)
    return None if found is None else found.member_id


def test_the_owner_is_that_of_the_generation_or_of_the_one_before() -> None:
    known = Assignments()
    known.note("g", 3, record(a=[0, 1], b=[2]))
    known.note("g", 5, record(a=[1], b=[0, 2]))
    assert [owner(known, 3, p) for p in (0, 1, 2, 3)] == ["a", "a", "b", None]
    assert [owner(known, 5, p) for p in (0, 1, 2)] == ["b", "a", "b"]
    assert owner(known, 4) is None  # no record shows that generation,
    assert owner(known, 4, before=True) == "a"  # one shows the last before it,
    assert owner(known, 5, before=True) == "a"
    assert owner(known, 3, before=True) is None  # and none one before the first
    assert known.owner("other", 3, "t", 0) is None
    assert known.owner("g", 3, "another topic", 0) is None


def test_the_last_record_of_a_generation_counts_and_a_deleted_group_adds_none() -> None:
    known = Assignments()
    known.note("g", 1, record(a=[0]))
    known.note("g", 1, record(b=[0]))
    known.note("g", 2, None)
    assert (owner(known, 1), owner(known, 2)) == ("b", None)
    assert known.characters == len(record(b=[0]))


def test_members_without_assignment_own_nothing() -> None:
    known = Assignments()
    known.note("g", 1, record(a=None, b=[0]))
    known.note("h", 1, json.dumps({"members": [{"memberId": "a", "assignment": "0xff"}]}))
    known.note("i", 1, json.dumps({"members": None}))
    assert owner(known, 1) == "b"
    assert known.owner("h", 1, "t", 0) is known.owner("i", 1, "t", 0) is None


def test_only_the_newest_generations_are_kept() -> None:
    known = Assignments()
    for generation in range(GENERATIONS + 1):
        known.note("g", generation, record(a=[0]))
    assert [owner(known, generation) for generation in range(GENERATIONS + 1)] == [None, "a", "a", "a"]
    assert known.characters == GENERATIONS * len(record(a=[0]))


def test_what_is_kept_of_all_groups_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "KEPT_CHARACTERS", 2 * len(record(a=[0])))
    known = Assignments()
    for name in ("g", "h", "i"):
        known.note(name, 1, record(a=[0]))
    assert [known.owner(name, 1, "t", 0) is not None for name in ("g", "h", "i")] == [True, True, False]


def test_a_static_member_is_shown_with_its_instance() -> None:
    assert str(Member("m-1", None, "c")) == "m-1"
    assert str(Member("m-1", "x", "c")) == "m-1 (group.instance.id x)"
