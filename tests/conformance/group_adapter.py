"""Runs `group` cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from auditor.model.groups import CommittedOffset, GroupPartition
from tests.conformance.cases import Result
from tests.reference.commit_checks import Committer, Group, GroupState, Member
from tests.reference.group_coordinator import GroupCoordinator
from tests.reference.refusal import ILLEGAL_ARGUMENT, Refused

Args = dict[str, Any]
Returns = dict[str, Any]


def run_model(case: dict[str, Any]) -> GroupModel:
    """A group coordinator in the initial state of `case`."""
    return GroupModel(case.get("initial") or {}, case["policy"])


def _group(fields: Args) -> Group:
    members = [
        Member(member["member_id"], member.get("instance_id"), member.get("epoch", 0))
        for member in fields.get("members") or ()
    ]
    state = fields.get("state", GroupState.STABLE if members else GroupState.EMPTY)
    return Group(fields.get("type") == "consumer", GroupState(state), fields.get("generation", 0), members)


def _committer(args: Args) -> Committer:
    return Committer(args["generation"], args["member_id"], args["instance_id"])


def _names(places: list[GroupPartition]) -> list[str]:
    return [f"{place.group}/{place.partition}" for place in places]


class GroupModel:
    """One group coordinator."""

    def __init__(self, initial: dict[str, Any], policy: str) -> None:
        groups = {name: _group(fields) for name, fields in (initial.get("groups") or {}).items()}
        retention = (initial.get("config") or {}).get("offsets_retention_ms", 604800000)
        self.offsets = GroupCoordinator(groups, retention, stable_fetch=policy != "pre-kip-447")

    def apply(self, op: str, args: Args) -> Result:
        try:
            returns = _OPERATIONS[op](self.offsets, args) or {}
        except Refused as refused:
            return Result("error", refused.error, {}, self.state())
        return Result("ok", None, returns, self.state())

    def state(self) -> Returns:
        pending = {str(producer_id): _nested(values) for producer_id, values in self.offsets.pending.items()}
        return {"committed": _nested(self.offsets.committed), "pending": pending}


def _nested(values: dict[GroupPartition, CommittedOffset]) -> Returns:
    shown: dict[str, dict[str, int]] = {}
    for place, value in values.items():
        shown.setdefault(place.group, {})[place.partition] = value.offset
    return shown


def _set_group(offsets: GroupCoordinator, args: Args) -> None:
    offsets.groups[args["group"]] = _group(args)


def _replace_static_member(offsets: GroupCoordinator, args: Args) -> None:
    if args["group"] not in offsets.groups:
        raise Refused(ILLEGAL_ARGUMENT)
    group = offsets.groups[args["group"]]
    group.replace_static_member(args["instance_id"], args["old_member_id"], args["new_member_id"])


def _validate_commit(offsets: GroupCoordinator, args: Args) -> None:
    offsets.validate(args["group"], _committer(args), args["transactional"])


def _commit(offsets: GroupCoordinator, args: Args) -> None:
    producer_id = args.get("producer_id", -1)
    offsets.commit(args["group"], _committer(args), args["offsets"], args["record_offset"], producer_id)


def _replay_offset(offsets: GroupCoordinator, args: Args) -> None:
    value = CommittedOffset(args["offset"], args["record_offset"], args["now"])
    offsets.replay(GroupPartition(args["group"], args["partition"]), value, args["producer_id"])


def _replay_tombstone(offsets: GroupCoordinator, args: Args) -> None:
    offsets.replay_tombstone(GroupPartition(args["group"], args["partition"]))


def _replay_marker(offsets: GroupCoordinator, args: Args) -> Returns:
    return {"materialized": _names(offsets.replay_marker(args["producer_id"], args["result"] == "COMMIT"))}


def _offset_fetch(offsets: GroupCoordinator, args: Args) -> Returns:
    return {"offsets": offsets.fetch(args["group"], args["partitions"], args["require_stable"])}


def _offset_delete(offsets: GroupCoordinator, args: Args) -> Returns:
    return {"tombstones": [place.partition for place in offsets.delete(args["group"], args["partitions"])]}


def _delete_group_offsets(offsets: GroupCoordinator, args: Args) -> Returns:
    return {"tombstones": [place.partition for place in offsets.delete_group(args["group"])]}


def _expire_offsets(offsets: GroupCoordinator, args: Args) -> Returns:
    expired, removable = offsets.expire(args["group"], args["now"], args["subscribed_topics"])
    return {"tombstones": [place.partition for place in expired], "group_removable": removable}


def _partitions_deleted(offsets: GroupCoordinator, args: Args) -> Returns:
    return {"tombstones": _names(offsets.delete_partitions(args["partitions"]))}


_OPERATIONS: dict[str, Callable[[GroupCoordinator, Args], Returns | None]] = {
    "set_group": _set_group,
    "replace_static_member": _replace_static_member,
    "validate_commit": _validate_commit,
    "txn_offset_commit": _commit,
    "offset_commit": _commit,
    "replay_offset": _replay_offset,
    "replay_tombstone": _replay_tombstone,
    "replay_marker": _replay_marker,
    "offset_fetch": _offset_fetch,
    "offset_delete": _offset_delete,
    "delete_group_offsets": _delete_group_offsets,
    "expire_offsets": _expire_offsets,
    "partitions_deleted": _partitions_deleted,
}
