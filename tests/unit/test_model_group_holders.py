"""Who held a partition of a group of KIP-848 when a record was written, by the members' current assignments."""

from __future__ import annotations

import json

import pytest

from auditor.model import groups
from auditor.model.groups import Holders


def assignment(mine: list[int], to_revoke: list[int], topic: str = "T") -> str:
    lists = {"assignedPartitions": mine, "partitionsPendingRevocation": to_revoke}
    return json.dumps({n: [{"topicId": topic, "partitions": p}] if p else [] for n, p in lists.items()})


def test_what_is_assigned_or_still_to_be_given_up_is_held() -> None:
    known = Holders()
    known.note("g", "a", 10, assignment([0, 1], []))
    known.note("g", "a", 20, assignment([1], [0]))
    known.note("g", "a", 30, assignment([1], []))
    known.note("g", "b", 31, assignment([0], []))
    known.note("g", "a", 40, None)
    held = [[known.holder("g", p, at) for at in (9, 10, 25, 30, 31, 40)] for p in (0, 1, 2)]
    assert held == [[None, "a", "a", None, "b", "b"], [None, "a", "a", "a", "a", None], [None] * 6]
    assert known.holder("other", 0, 25) is None


def test_two_holders_or_two_topics_are_none() -> None:
    known = Holders()
    known.note("g", "a", 10, assignment([0], []))
    known.note("g", "b", 11, assignment([0], []))
    assert (known.holder("g", 0, 10), known.holder("g", 0, 11)) == ("a", None)
    known.note("h", "a", 12, assignment([0], []))
    known.note("h", "b", 13, assignment([1], [], "U"))
    assert known.holder("h", 0, 14) is None


def test_beyond_the_bound_nobody_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "CHANGES", 2)
    known = Holders()
    for offset, partitions in enumerate(([0], [0, 1], [0, 1, 2])):
        known.note("g", "a", offset, assignment(partitions, []))
    assert known.holder("g", 0, 5) is None
    assert known.groups == {}
