"""Who may commit offsets for a consumer group (KIP-447): the checks before a commit reaches the log.

Source: ClassicGroup and ConsumerGroup.validateOffsetCommit, OffsetMetadataManager of Kafka's trunk of October 2024;
semantics 5.2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from auditor.model.refusal import ILLEGAL_ARGUMENT, Refused

NO_GENERATION = -1


class GroupState(StrEnum):
    """State of a classic group, under the names that brokers print."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Member(NamedTuple):
    """A member of a group; `instance_id` for static membership, `epoch` for groups of KIP-848."""

    member_id: str
    instance_id: str | None = None
    epoch: int = 0


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
        """The member of that id, if there is one."""
        return next((member for member in self.members if member.member_id == member_id), None)

    def replace_static_member(self, instance_id: str, old_member_id: str, new_member_id: str) -> None:
        """A restarted instance takes its place under a new member id; the old one is fenced."""
        for index, member in enumerate(self.members):
            if (member.instance_id, member.member_id) == (instance_id, old_member_id):
                self.members[index] = member._replace(member_id=new_member_id)
                return
        raise Refused(ILLEGAL_ARGUMENT)


def check_commit(group: Group | None, committer: Committer, transactional: bool) -> None:
    """Refused with the error that a commit gets; `group` None when the coordinator does not know it.

    A transactional commit is let through in two cases in which a plain one is not: without any ids to a classic group
    that has members (clients before KIP-447: the hole that KIP-447 leaves), and while a rebalance completes.
    """
    if group is None:
        if committer.generation >= 0:
            raise Refused("ILLEGAL_GENERATION")
    elif group.consumer_protocol:
        _check_consumer_group(group, committer, transactional)
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


def _check_consumer_group(group: Group, committer: Committer, transactional: bool) -> None:
    if committer.generation < 0 and not group.members:
        return
    member = group.member(committer.member_id)
    if member is None:
        raise Refused("UNKNOWN_MEMBER_ID")
    if committer.generation != member.epoch:
        raise Refused("ILLEGAL_GENERATION" if transactional else "STALE_MEMBER_EPOCH")
