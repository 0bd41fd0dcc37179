"""Who may commit: the ladder of semantics 5.2."""

from __future__ import annotations

import pytest

from tests.reference.commit_checks import (
    ANONYMOUS,
    FIRST_CONSUMER_GROUPS,
    Committer,
    Group,
    GroupState,
    Member,
    check_commit,
)
from tests.reference.refusal import Refused

A, STATIC = Member("A"), Member("S", "i")
STABLE = Group(state=GroupState.STABLE, generation=2, members=[A, STATIC])
COMPLETING = Group(state=GroupState.COMPLETING_REBALANCE, generation=2, members=[A])
PREPARING = Group(state=GroupState.PREPARING_REBALANCE, generation=2, members=[A])
EMPTY = Group(generation=2)
DEAD = Group(state=GroupState.DEAD)
KIP_848 = Group(consumer_protocol=True, state=GroupState.STABLE, generation=9, members=[Member("A", epoch=3)])
KIP_848_EMPTY = Group(consumer_protocol=True)
CURRENT = Committer(2, "A")


@pytest.mark.parametrize(
    ("row", "group", "committer", "transactional", "plain"),
    [
        (1, None, ANONYMOUS, "ok", "ok"),
        (2, None, Committer(0, "A"), "ILLEGAL_GENERATION", "ILLEGAL_GENERATION"),
        (3, DEAD, ANONYMOUS, "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_NOT_AVAILABLE"),
        (4, EMPTY, Committer(-1, "any"), "ok", "ok"),
        (4, EMPTY, Committer(0, ""), "UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID"),
        (5, STABLE, Committer(2, "A", "nobody"), "UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID"),
        (5, STABLE, Committer(-1, "", "nobody"), "UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID"),
        (6, STABLE, Committer(2, "A", "i"), "FENCED_INSTANCE_ID", "FENCED_INSTANCE_ID"),
        (6, STABLE, Committer(2, "S", "i"), "ok", "ok"),
        (7, STABLE, Committer(2, "B"), "UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID"),
        (8, STABLE, Committer(1, "A"), "ILLEGAL_GENERATION", "ILLEGAL_GENERATION"),
        (8, STABLE, Committer(3, "A"), "ILLEGAL_GENERATION", "ILLEGAL_GENERATION"),
        (8, STABLE, Committer(-1, "A"), "ILLEGAL_GENERATION", "ILLEGAL_GENERATION"),
        (8, STABLE, CURRENT, "ok", "ok"),
        (9, STABLE, ANONYMOUS, "ok", "UNKNOWN_MEMBER_ID"),
        (10, COMPLETING, CURRENT, "ok", "REBALANCE_IN_PROGRESS"),
        (10, PREPARING, CURRENT, "ok", "ok"),
        (11, KIP_848_EMPTY, ANONYMOUS, "ok", "ok"),
        (11, KIP_848, ANONYMOUS, "UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID"),
        (12, KIP_848_EMPTY, Committer(0, "A"), "UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID"),
        (12, KIP_848, Committer(3, "A"), "ok", "ok"),
        (12, KIP_848, Committer(2, "A"), "ILLEGAL_GENERATION", "STALE_MEMBER_EPOCH"),
        (12, KIP_848, Committer(9, "A"), "ILLEGAL_GENERATION", "STALE_MEMBER_EPOCH"),
    ],
)
def test_ladder(row: int, group: Group | None, committer: Committer, transactional: str, plain: str) -> None:
    assert [_answer(group, committer, True), _answer(group, committer, False)] == [transactional, plain], row


def _answer(
    group: Group | None,
    committer: Committer,
    transactional: bool,
    partition: str = "",
    release: tuple[int, int] = FIRST_CONSUMER_GROUPS,
) -> str:
    try:
        check_commit(group, committer, transactional, partition, release)
    except Refused as refused:
        return refused.error
    return "ok"


OWNER = Member("A", epoch=9, assignment_epochs={"in-0": 4, "in-1": 9})
REVOKED = Group(consumer_protocol=True, state=GroupState.STABLE, generation=9, members=[OWNER])
CLASSIC_IN_IT = Group(consumer_protocol=True, members=[OWNER._replace(classic=True)])
BEFORE_THE_TAG = Group(consumer_protocol=True, members=[OWNER._replace(assignment_epochs=None)])


@pytest.mark.parametrize(
    ("group", "epoch", "partition", "release", "plain"),
    [
        (REVOKED, 9, "in-0", (4, 2), "ok"),
        (REVOKED, 8, "in-0", (4, 2), "STALE_MEMBER_EPOCH"),
        (REVOKED, 8, "in-0", (4, 3), "ok"),
        (REVOKED, 4, "in-0", (4, 3), "ok"),
        (REVOKED, 3, "in-0", (4, 3), "STALE_MEMBER_EPOCH"),
        (REVOKED, 10, "in-0", (4, 3), "STALE_MEMBER_EPOCH"),
        (REVOKED, 8, "in-1", (4, 3), "STALE_MEMBER_EPOCH"),
        (REVOKED, 8, "in-2", (4, 3), "STALE_MEMBER_EPOCH"),
        (REVOKED, 9, "in-2", (4, 3), "ok"),
        (CLASSIC_IN_IT, 8, "in-0", (4, 3), "ok"),
        (CLASSIC_IN_IT, 3, "in-0", (4, 3), "ILLEGAL_GENERATION"),
        (CLASSIC_IN_IT, 8, "in-0", (4, 2), "ILLEGAL_GENERATION"),
        (BEFORE_THE_TAG, 8, "in-0", (4, 3), "STALE_MEMBER_EPOCH"),
        (BEFORE_THE_TAG, 9, "in-0", (4, 3), "ok"),
    ],
)
def test_since_4_3_epochs_count_from_the_assignment_on(
    group: Group, epoch: int, partition: str, release: tuple[int, int], plain: str
) -> None:
    """ConsumerGroup.validateOffsetCommit of 4.2.0 and 4.3.1 (KIP-1251)."""
    transactional = "ok" if plain == "ok" else "ILLEGAL_GENERATION"
    for kind, expected in ((True, transactional), (False, plain)):
        assert _answer(group, Committer(epoch, "A"), kind, partition, release) == expected


@pytest.mark.parametrize(("release", "transactional"), [((3, 9), "UNKNOWN_MEMBER_ID"), ((4, 0), "ok"), ((4, 3), "ok")])
def test_the_hole_in_groups_of_kip_848(release: tuple[int, int], transactional: str) -> None:
    """ConsumerGroup.validateOffsetCommit of 3.9.1 and 4.0.0."""
    assert _answer(KIP_848, ANONYMOUS, True, "in-0", release) == transactional
    assert _answer(KIP_848, ANONYMOUS, False, "in-0", release) == "UNKNOWN_MEMBER_ID"
    assert _answer(KIP_848, Committer(-1, "B"), True, "in-0", release) == "UNKNOWN_MEMBER_ID"


def test_a_static_member_is_replaced_under_its_old_id_only() -> None:
    group = Group(members=[Member("A", "i"), Member("B", "j")])
    group.replace_static_member("i", "A", "C")
    assert group.members == [Member("C", "i"), Member("B", "j")]
    for instance, member in (("i", "A"), ("i", "B"), ("k", "C")):
        with pytest.raises(Refused, match="ILLEGAL_ARGUMENT"):
            group.replace_static_member(instance, member, "D")
