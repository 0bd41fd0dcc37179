"""Records of ``__consumer_offsets``: what groups committed, and what their coordinator knows of them."""

from __future__ import annotations

from typing import NamedTuple

from auditor.base.at_rest import Fields
from auditor.connectors.codec.group_records import (
    ASSIGNMENT,
    GROUP_METADATA_VALUE,
    GROUP_TYPES,
    NO_TOPIC_ID,
    OFFSET_COMMIT_KEY,
    OFFSET_COMMIT_VALUE,
    SUBSCRIPTION,
    GroupRecordType,
)
from auditor.connectors.codec.struct_json import as_printed, json_text
from auditor.connectors.codec.structs import (
    Message,
    Problem,
    decode,
    decode_either,
    decode_versioned,
    left_over,
    read_int16,
)

CONSUMER_PROTOCOL = "consumer"  # the protocol type whose members' bytes Kafka's tools read


class OffsetCommitRow(NamedTuple):
    """An offset commit, named as in the table ``offset_commits``; of a tombstone all behind ``tombstone`` is None.

    ``committed_offset`` is the next offset to read, ``leader_epoch`` -1 if unknown, times are ms and None where the
    version has none, ``topic_id`` None where none is stored (before 4.1). ``metadata``, which clients choose, only on
    demand. Whether the commit took effect says its batch: under a transaction only after a COMMIT marker.
    """

    group_id: str
    consumed_topic: str
    consumed_partition: int
    tombstone: bool
    value_version: int | None = None
    committed_offset: int | None = None
    leader_epoch: int | None = None
    commit_timestamp: int | None = None
    expire_timestamp: int | None = None
    topic_id: str | None = None
    metadata: str | None = None


class GroupMetadataRow(NamedTuple):
    """A record of a group, named as in the table ``group_metadata``; what its kind does not say is None.

    ``generation`` is the classic generation, or the epoch of the group, assignment, member or topology; ``member_ids``
    the members of a classic group, or the one that the record is about. ``value``: every field of the value as JSON, as
    kafka-dump-log.sh prints it, with null for addresses and for bytes of clients unless they were asked for.
    """

    group_id: str
    key_type: int
    kind: str
    tombstone: bool
    value_version: int | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    generation: int | None = None
    leader: str | None = None
    state_timestamp: int | None = None
    member_ids: list[str] | None = None
    group_instance_ids: list[str | None] | None = None
    client_ids: list[str] | None = None
    regular_expression: str | None = None
    value: str | None = None


Row = OffsetCommitRow | GroupMetadataRow


def decode_consumer_offsets(
    key: bytes | None, value: bytes | None, *, payload: bool = False
) -> tuple[Row | None, Problem | None]:
    """One record. Row and problem together: bytes were left over, which Kafka ignores; no row: unreadable.

    ``payload``: also what clients alone chose, and addresses. Reasons: ``unknown_key_type`` (no release to 4.4 writes
    it), ``bad_value`` (null key), ``bad_version``, ``truncated``, ``bad_size``, ``limit``, ``bad_length`` (bytes left).
    Source: Kafka's GroupMetadataManager and GroupCoordinatorRecordSerde.
    """
    if key is None:
        return None, Problem("bad_value", 0, "the key is null")
    key_type = read_int16(key)
    if isinstance(key_type, Problem):
        return None, key_type
    if key_type in (0, 1):
        return _offset_commit(key, value, payload)
    if key_type in GROUP_TYPES:
        return _group(key_type, GROUP_TYPES[key_type], key, value, payload)
    return None, Problem("unknown_key_type", 0, f"a record of __consumer_offsets with the unknown key type {key_type}")


def _offset_commit(key: bytes, value: bytes | None, payload: bool) -> tuple[OffsetCommitRow | None, Problem | None]:
    decoded_key = decode(OFFSET_COMMIT_KEY, 0, key, 2)
    if isinstance(decoded_key, Problem):
        return None, decoded_key
    names, key_end = decoded_key
    row = OffsetCommitRow(names["group"], names["topic"], names["partition"], tombstone=value is None)
    if value is None:
        return row, left_over(key, key_end)
    decoded = decode_versioned(OFFSET_COMMIT_VALUE, value)
    if isinstance(decoded, Problem):
        return None, decoded
    version, fields, end = decoded
    row = row._replace(
        value_version=version,
        committed_offset=fields["offset"],
        leader_epoch=fields.get("leaderEpoch", -1),
        commit_timestamp=fields["commitTimestamp"],
        expire_timestamp=fields.get("expireTimestamp"),
        topic_id=None if fields["topicId"] == NO_TOPIC_ID else fields["topicId"],
        metadata=fields["metadata"] if payload else None,
    )
    return row, left_over(key, key_end) or left_over(value, end)


def _group(
    key_type: int, kind: GroupRecordType, key: bytes, value: bytes | None, payload: bool
) -> tuple[GroupMetadataRow | None, Problem | None]:
    decoded_key = decode(kind.key, 0, key, 2)
    if isinstance(decoded_key, Problem):
        return None, decoded_key
    names, key_end = decoded_key
    row = GroupMetadataRow(
        names["group" if "group" in names else "groupId"],
        key_type,
        kind.kind,
        tombstone=value is None,
        member_ids=[names["memberId"]] if "memberId" in names else None,
        regular_expression=names.get("regularExpression"),
    )
    if value is None:
        return row, left_over(key, key_end)
    decoded = decode_either(kind.value, kind.preview, value)
    if isinstance(decoded, Problem):
        return None, decoded
    message, version, fields, end = decoded
    printed = as_printed(message, version, fields, payload=payload)
    if kind.value is GROUP_METADATA_VALUE:
        row = _with_members(row, fields, printed["members"], payload)
    row = row._replace(
        value_version=version,
        generation=fields[kind.epoch] if kind.epoch else None,
        value=json_text(printed),
    )
    return row, left_over(key, key_end) or left_over(value, end)


def _with_members(row: GroupMetadataRow, fields: Fields, printed: list[Fields], payload: bool) -> GroupMetadataRow:
    """The row with its members; in ``printed`` what they said is read, as Kafka's tools do."""
    members = fields["members"]
    if fields["protocolType"] == CONSUMER_PROTOCOL:
        for member, shown in zip(members, printed, strict=True):
            for name, message in (("subscription", SUBSCRIPTION), ("assignment", ASSIGNMENT)):
                shown[name] = _said(message, member[name], payload) or shown[name]
    return row._replace(
        protocol_type=fields["protocolType"],
        protocol=fields["protocol"],
        leader=fields["leader"],
        state_timestamp=fields.get("currentStateTimestamp"),
        member_ids=[member["memberId"] for member in members],
        group_instance_ids=[member.get("groupInstanceId") for member in members],
        client_ids=[member["clientId"] for member in members],
    )


def _said(message: Message, data: bytes, payload: bool) -> Fields | None:
    """What a member said, None where its bytes are something else."""
    decoded = decode_versioned(message, data)
    if isinstance(decoded, Problem):
        return None
    version, fields, _ = decoded
    return as_printed(message, version, fields, payload=payload)
