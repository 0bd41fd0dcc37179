"""Checks of an offset commit for a consumer group (KIP-447) before it reaches the log.

Source: ClassicGroup, ConsumerGroup and StreamsGroup.validateOffsetCommit, OffsetMetadataManager of Kafka's trunk of
October 2024 and of 4.0.0, 4.2.0 and 4.3.1 (KIP-1251); semantics 5.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from auditor.model.policies import Version
from tests.reference.refusal import ILLEGAL_ARGUMENT, Refused

UNNAMED_COMMIT: Version = (4, 0)  # groups of KIP-848 take transactional commits without any ids, as classic ones do
OLDER_EPOCHS_COMMIT: Version = (4, 3)  # and commits of epochs from a partition's assignment on (KIP-1251)

FIRST_CONSUMER_GROUPS: Version = (3, 7)  # the first release whose brokers have groups of KIP-848
NO_GENERATION = -1


class GroupState(StrEnum):
    """State of a classic group, under the names that brokers print."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Member(NamedTuple):
    """A member of a group; `instance_id` for static membership. The rest is of groups of KIP-848.

    `classic`: it follows the classic protocol all the same. `assignment_epochs`: the epoch in which each partition came
    to it, of those that it is assigned or has still to give up; None where its record is from before KIP-1251.
    """

    member_id: str
    instance_id: str | None = None
    epoch: int = 0
    classic: bool = False
    assignment_epochs: Mapping[str, int] | None = None


class Committer(NamedTuple):
    """The ids that come with a commit; all at their defaults for clients before KIP-447 and for tools."""

    generation: int = NO_GENERATION
    member_id: str = ""
    instance_id: str | None = None


ANONYMOUS = Committer()


@dataclass
class Group:
    """A consumer group; `consumer_protocol`: it follows KIP-848, and its members carry epochs."""

    consumer_protocol: bool = False
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    members: list[Member] = field(default_factory=list)

    def member(self, member_id: str) -> Member | None:
        """Return the member of that id, if there is one."""
        return next((member for member in self.members if member.member_id == member_id), None)

    def replace_static_member(self, instance_id: str, old_member_id: str, new_member_id: str) -> None:
        """Let a restarted instance take its place under a new member id; the old one is fenced."""
        for index, member in enumerate(self.members):
            if (member.instance_id, member.member_id) == (instance_id, old_member_id):
                self.members[index] = member._replace(member_id=new_member_id)
                return
        raise Refused(ILLEGAL_ARGUMENT)


def check_commit(
    group: Group | None,
    committer: Committer,
    transactional: bool,
    partition: str = "",
    release: Version = FIRST_CONSUMER_GROUPS,
) -> None:
    """Raise Refused with the error of a `partition`'s commit; `group` None: unknown to the coordinator.

    A transactional commit is let through in two cases in which a plain one is not: without any ids to a group that has
    members (clients before KIP-447: the hole that KIP-447 leaves; to one of KIP-848 since 4.0), and while a rebalance
    completes. `release`: the broker's.
    """
    if group is None:
        if committer.generation >= 0:
            raise Refused("ILLEGAL_GENERATION")
    elif group.consumer_protocol:
        _check_consumer_group(group, committer, transactional, partition, release)
    else:
        _check_classic_group(group, committer, transactional)


def _check_classic_group(group: Group, committer: Committer, transactional: bool) -> None:
    if group.state == GroupState.DEAD:
        raise Refused("COORDINATOR_NOT_AVAILABLE")
    if committer.generation < 0 and group.state == GroupState.EMPTY:
        return
    if committer.generation >= 0 or committer.member_id or committer.instance_id is not None:
        _check_classic_member(group, committer)
        if committer.generation != group.generation:
            raise Refused("ILLEGAL_GENERATION")
    elif not transactional:
        raise Refused("UNKNOWN_MEMBER_ID")
    if not transactional and group.state == GroupState.COMPLETING_REBALANCE:
        raise Refused("REBALANCE_IN_PROGRESS")


def _check_classic_member(group: Group, committer: Committer) -> None:
    if committer.instance_id is not None:
        holders = [member.member_id for member in group.members if member.instance_id == committer.instance_id]
        if not holders:
            raise Refused("UNKNOWN_MEMBER_ID")
        if committer.member_id not in holders:
            raise Refused("FENCED_INSTANCE_ID")
    if group.member(committer.member_id) is None:
        raise Refused("UNKNOWN_MEMBER_ID")


def _check_consumer_group(
    group: Group, committer: Committer, transactional: bool, partition: str, release: Version
) -> None:
    """Check a KIP-848 group: consumers, or streams (KIP-1071), without members of the classic protocol."""
    if committer.generation < 0 and not group.members:
        return
    if transactional and committer == ANONYMOUS and release >= UNNAMED_COMMIT:
        return
    member = group.member(committer.member_id)
    if member is None:
        raise Refused("UNKNOWN_MEMBER_ID")
    if not _takes_epoch(member, committer.generation, partition, release):
        raise Refused("ILLEGAL_GENERATION" if transactional or member.classic else "STALE_MEMBER_EPOCH")


def _takes_epoch(member: Member, epoch: int, partition: str, release: Version) -> bool:
    """Whether a member may commit a partition in an epoch: its own, and since KIP-1251 older ones.

    No older than that in which the partition came to it, which must be assigned or still to be revoked.
    """
    if epoch == member.epoch or release < OLDER_EPOCHS_COMMIT or member.assignment_epochs is None:
        return epoch == member.epoch
    return member.assignment_epochs.get(partition, member.epoch) <= epoch < member.epoch
