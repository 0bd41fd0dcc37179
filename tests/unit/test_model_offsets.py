"""Life of a group's offsets: semantics 5.1 and 5.3."""

from __future__ import annotations

import pytest

from auditor.model.groups import CommittedOffset, GroupPartition
from tests.reference.commit_checks import ANONYMOUS, Committer, Group, GroupState, Member
from tests.reference.group_coordinator import UNSTABLE, GroupCoordinator, topic_of
from tests.reference.refusal import Refused

PLACE, OTHER = GroupPartition("g", "in-0"), GroupPartition("g", "in-1")
ELSEWHERE = GroupPartition("h", "in-0")


def offsets(**arguments: int) -> GroupCoordinator:
    return GroupCoordinator({"g": Group()}, **arguments)


def test_topics_may_hold_dashes() -> None:
    assert topic_of("a-b-12") == "a-b"


def test_every_partition_of_a_commit_is_checked() -> None:
    member = Member("A", epoch=9, assignment_epochs={"in-0": 4, "in-1": 9})
    group = Group(consumer_protocol=True, members=[member])
    model = GroupCoordinator({"g": group}, release=(4, 3))
    model.commit("g", Committer(8, "A"), {"in-0": 5}, 1)
    assert model.committed[PLACE].offset == 5
    with pytest.raises(Refused, match="STALE_MEMBER_EPOCH"):
        model.commit("g", Committer(8, "A"), {"in-0": 6, "in-1": 5}, 2)
    assert set(model.committed) == {PLACE}


def test_a_pending_value_becomes_the_committed_one_only_if_its_record_is_later() -> None:
    model = offsets()
    for record_offset, expected in ((4, 5), (5, 5), (6, 9)):
        model.replay(PLACE, CommittedOffset(5, 5))
        model.replay(PLACE, CommittedOffset(9, record_offset), producer_id=1)
        assert model.replay_marker(1, commit=True) == ([PLACE] if expected == 9 else [])
        assert model.committed[PLACE].offset == expected
        assert not model.is_pending(PLACE)


def test_an_abort_drops_what_was_pending() -> None:
    model = offsets()
    model.replay(PLACE, CommittedOffset(9, 1), producer_id=1)
    model.replay(OTHER, CommittedOffset(9, 1), producer_id=2)
    assert model.replay_marker(1, commit=False) == []
    assert model.committed == {}
    assert (model.is_pending(PLACE), model.is_pending(OTHER)) == (False, True)
    assert model.replay_marker(3, commit=True) == []


def test_the_last_commit_of_a_transaction_wins() -> None:
    model = offsets()
    model.commit("g", ANONYMOUS, {"in-0": 20}, 1, producer_id=0)
    model.commit("g", ANONYMOUS, {"in-0": 25, "in-1": 3}, 2, producer_id=0)
    assert model.replay_marker(0, commit=True) == [PLACE, OTHER]
    assert model.fetch("g", None, require_stable=True) == {"in-0": 25, "in-1": 3}


def test_a_refused_commit_leaves_no_trace() -> None:
    model = offsets()
    with pytest.raises(Refused, match="UNKNOWN_MEMBER_ID"):
        model.commit("g", Committer(1, "A"), {"in-0": 20}, 1, producer_id=1)
    assert model.pending == {}


def test_before_kip_447_ids_are_not_looked_at_in_transactions() -> None:
    group = Group(state=GroupState.STABLE, generation=2, members=[Member("B")])
    zombie = Committer(1, "A")
    old, new = (GroupCoordinator({"g": group}, stable_fetch=stable) for stable in (False, True))
    old.validate("g", zombie, transactional=True)
    for model, transactional in ((old, False), (new, True)):
        with pytest.raises(Refused, match="UNKNOWN_MEMBER_ID"):
            model.validate("g", zombie, transactional)


def test_stable_fetch() -> None:
    for stable_fetch, answer in ((True, UNSTABLE), (False, 5)):
        model = GroupCoordinator({}, stable_fetch=stable_fetch)
        model.replay(PLACE, CommittedOffset(5, 1))
        model.replay(PLACE, CommittedOffset(9, 2), producer_id=1)
        model.replay(ELSEWHERE, CommittedOffset(7, 3))
        assert model.fetch("g", ["in-0", "in-1"], require_stable=True) == {"in-0": answer, "in-1": -1}
        assert model.fetch("g", ["in-0"], require_stable=False) == {"in-0": 5}
        assert model.fetch("g", None, require_stable=True) == {"in-0": answer}
        assert model.fetch("nobody", None, require_stable=True) == {}


def test_a_pending_value_without_a_committed_one_is_unstable_too() -> None:
    model = offsets()
    model.replay(PLACE, CommittedOffset(9, 2), producer_id=1)
    assert model.fetch("g", ["in-0"], require_stable=True) == {"in-0": UNSTABLE}
    assert model.fetch("g", None, require_stable=True) == {}


def test_tombstones_take_pending_values_along() -> None:
    model = offsets()
    for producer_id in (-1, 1, 2):
        model.replay(PLACE, CommittedOffset(9, 1), producer_id)
    model.replay(OTHER, CommittedOffset(9, 1), producer_id=1)
    model.replay(ELSEWHERE, CommittedOffset(9, 1))
    model.replay_tombstone(PLACE)
    assert model.committed == {ELSEWHERE: CommittedOffset(9, 1)}
    assert (model.is_pending(PLACE), model.is_pending(OTHER)) == (False, True)


def test_deletions_name_what_they_removed() -> None:
    def filled() -> GroupCoordinator:
        model = offsets()
        model.replay(PLACE, CommittedOffset(1, 1))
        model.replay(OTHER, CommittedOffset(1, 2), producer_id=1)
        model.replay(ELSEWHERE, CommittedOffset(1, 3), producer_id=1)
        return model

    model = filled()
    assert model.delete("g", ["in-1", "in-9"]) == [OTHER]
    assert model.replay_marker(1, commit=True) == [ELSEWHERE]
    assert filled().delete_group("g") == [PLACE, OTHER]
    assert filled().delete_partitions(["in-0"]) == [PLACE, ELSEWHERE]
    with pytest.raises(Refused, match="GROUP_ID_NOT_FOUND"):
        model.delete("nobody", ["in-0"])


def test_retention_is_inclusive_and_spares_subscribed_topics() -> None:
    model = offsets(retention_ms=1000)
    model.replay(PLACE, CommittedOffset(1, 1, 500))
    model.replay(ELSEWHERE, CommittedOffset(1, 2, 500))
    assert model.expire("g", 1499, ()) == ([], False)
    assert model.expire("g", 1500, ("in",)) == ([], False)
    assert model.expire("g", 1500, ("other",)) == ([PLACE], True)
    assert ELSEWHERE in model.committed
    assert model.expire("g", 1500, ()) == ([], True)


def test_transactions_keep_their_group() -> None:
    model = offsets(retention_ms=1000)
    model.replay(PLACE, CommittedOffset(1, 1, 500))
    model.replay(OTHER, CommittedOffset(1, 2, 500), producer_id=1)
    assert model.expire("g", 1500, ()) == ([PLACE], False)
    model.replay(OTHER, CommittedOffset(1, 1, 500))
    assert model.expire("g", 1500, ()) == ([], False)
    assert model.expire("h", 1500, ()) == ([], True)


def test_only_transactional_commits_slip_through_without_ids() -> None:
    model = GroupCoordinator({"g": Group(state=GroupState.STABLE, generation=2, members=[Member("B")])})
    model.commit("g", ANONYMOUS, {"in-0": 20}, 1, producer_id=1)
    with pytest.raises(Refused, match="UNKNOWN_MEMBER_ID"):
        model.commit("g", ANONYMOUS, {"in-0": 20}, 2)
    assert (model.committed, model.is_pending(PLACE)) == ({}, True)
