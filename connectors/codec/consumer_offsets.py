"""Records of ``__consumer_offsets``: what groups committed, and what their coordinator knows of them.

Key: int16 type, then strings without flexible encoding. Types 0 and 1 are offset commits, 2 a classic group, 3 to 8 and
16 a group of KIP-848, 9 to 15 share groups (KIP-932), 17 and 19 to 23 streams groups (KIP-1071).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from auditor.connectors.codec.structs import Field, Message, Problem, decode, decode_versioned, left_over, read_int16

GROUP = Field("group", "string")
MEMBER = Field("memberId", "string")
OFFSET_COMMIT_KEY = Message(
    "OffsetCommitKey", (GROUP, Field("topic", "string"), Field("partition", "int32")), flexible=1
)
GROUP_KEY = Message("GroupKey", (GROUP,), flexible=1)
MEMBER_KEY = Message("GroupMemberKey", (GROUP, MEMBER), flexible=1)
EXPRESSION_KEY = Message("ConsumerGroupRegularExpressionKey", (GROUP, Field("regularExpression", "string")), flexible=1)

OFFSET_COMMIT_VALUE = Message(
    "OffsetCommitValue",
    (
        Field("offset", "int64"),
        Field("leaderEpoch", "int32", since=3),
        Field("metadata", "string"),
        Field("commitTimestamp", "int64"),
        Field("expireTimestamp", "int64", since=1, until=1),
        Field("topicId", "uuid", since=4, tag=0),
    ),
    last_version=4,
    flexible=4,
)
GROUP_METADATA_VALUE = Message(
    "GroupMetadataValue",
    (
        Field("protocolType", "string"),
        Field("generation", "int32"),
        Field("protocol", "string", nullable=0),
        Field("leader", "string", nullable=0),
        Field("currentStateTimestamp", "int64", since=2),
        Field(
            "members",
            "[]struct",
            (
                MEMBER,
                Field("groupInstanceId", "string", since=3, nullable=3),
                Field("clientId", "string"),
                Field("clientHost", "string"),
                Field("rebalanceTimeout", "int32", since=1),
                Field("sessionTimeout", "int32"),
                Field("subscription", "bytes"),
                Field("assignment", "bytes"),
            ),
        ),
    ),
    last_version=4,
    flexible=4,
)
TOPIC_PARTITIONS = (Field("topicId", "uuid"), Field("partitions", "[]int32"))


class GroupRecordType(NamedTuple):
    """A key type of a group record: its name, its key, and the value's message and epoch field where they are read."""

    kind: str
    key: Message
    value: Message | None = None
    epoch: str | None = None


GROUP_TYPES = {
    2: GroupRecordType("GroupMetadata", GROUP_KEY, GROUP_METADATA_VALUE, "generation"),
    3: GroupRecordType(
        "ConsumerGroupMetadata",
        GROUP_KEY,
        Message(
            "ConsumerGroupMetadataValue", (Field("epoch", "int32"), Field("metadataHash", "int64", tag=0, default=0))
        ),
        "epoch",
    ),
    4: GroupRecordType("ConsumerGroupPartitionMetadata", GROUP_KEY),
    5: GroupRecordType("ConsumerGroupMemberMetadata", MEMBER_KEY),
    6: GroupRecordType(
        "ConsumerGroupTargetAssignmentMetadata",
        GROUP_KEY,
        Message("ConsumerGroupTargetAssignmentMetadataValue", (Field("assignmentEpoch", "int32"),)),
        "assignmentEpoch",
    ),
    7: GroupRecordType(
        "ConsumerGroupTargetAssignmentMember",
        MEMBER_KEY,
        Message("ConsumerGroupTargetAssignmentMemberValue", (Field("topicPartitions", "[]struct", TOPIC_PARTITIONS),)),
    ),
    8: GroupRecordType(
        "ConsumerGroupCurrentMemberAssignment",
        MEMBER_KEY,
        Message(
            "ConsumerGroupCurrentMemberAssignmentValue",
            (
                Field("memberEpoch", "int32"),
                Field("previousMemberEpoch", "int32"),
                Field("state", "int8"),
                Field("assignedPartitions", "[]struct", TOPIC_PARTITIONS),
                Field("partitionsPendingRevocation", "[]struct", TOPIC_PARTITIONS),
            ),
        ),
        "memberEpoch",
    ),
    16: GroupRecordType("ConsumerGroupRegularExpression", EXPRESSION_KEY),
}
SKIPPED_TYPES = dict.fromkeys(range(9, 16), "share group") | dict.fromkeys((17, *range(19, 24)), "streams group")


class OffsetCommitRow(NamedTuple):
    """An offset commit, named as in the table ``offset_commits``; of a tombstone all behind ``tombstone`` is None.

    ``committed_offset`` is the next offset to read, ``leader_epoch`` -1 if unknown, times are ms and None where the
    version has none. Whether the commit took effect says its batch: under a transaction only after a COMMIT marker.
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


class GroupMetadataRow(NamedTuple):
    """A record of a group, named as in the table ``group_metadata``; what its kind does not say is None.

    ``generation`` is the classic generation or the KIP-848 group, assignment or member epoch; ``member_ids`` the
    members of a classic group, or the one a KIP-848 record is about.
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


Row = OffsetCommitRow | GroupMetadataRow


def decode_consumer_offsets(key: bytes | None, value: bytes | None) -> tuple[Row | None, Problem | None]:
    """One record. Row and problem together: bytes were left over, which Kafka ignores; no row: skipped or unreadable.

    Reasons: ``unknown_key_type`` (share and streams groups too: not read here, and skipped), ``bad_value`` (null key),
    ``bad_version``, ``truncated``, ``bad_size``, ``limit``, ``bad_length`` (bytes left).
    Source: Kafka's GroupMetadataManager and GroupCoordinatorRecordSerde.
    """
    if key is None:
        return None, Problem("bad_value", 0, "the key is null")
    key_type = read_int16(key)
    if isinstance(key_type, Problem):
        return None, key_type
    if key_type in (0, 1):
        return _offset_commit(key, value)
    if key_type in GROUP_TYPES:
        return _group(key_type, GROUP_TYPES[key_type], key, value)
    kind = SKIPPED_TYPES.get(key_type, "unknown")
    return None, Problem("unknown_key_type", 0, f"key type {key_type} ({kind}) is not read")


def _offset_commit(key: bytes, value: bytes | None) -> tuple[OffsetCommitRow | None, Problem | None]:
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
    )
    return row, left_over(key, key_end) or left_over(value, end)


def _group(
    key_type: int, kind: GroupRecordType, key: bytes, value: bytes | None
) -> tuple[GroupMetadataRow | None, Problem | None]:
    decoded_key = decode(kind.key, 0, key, 2)
    if isinstance(decoded_key, Problem):
        return None, decoded_key
    names, key_end = decoded_key
    row = GroupMetadataRow(names["group"], key_type, kind.kind, tombstone=value is None)
    if "memberId" in names:
        row = row._replace(member_ids=[names["memberId"]])
    if value is None:
        return row, left_over(key, key_end)
    if kind.value is None:
        version = read_int16(value)
        if isinstance(version, Problem):
            return None, version
        return row._replace(value_version=version), left_over(key, key_end)
    decoded = decode_versioned(kind.value, value)
    if isinstance(decoded, Problem):
        return None, decoded
    version, fields, end = decoded
    row = row._replace(value_version=version, generation=fields[kind.epoch] if kind.epoch else None)
    if kind.value is GROUP_METADATA_VALUE:
        row = _with_members(row, fields)
    return row, left_over(key, key_end) or left_over(value, end)


def _with_members(row: GroupMetadataRow, fields: dict[str, Any]) -> GroupMetadataRow:
    members = fields["members"]
    return row._replace(
        protocol_type=fields["protocolType"],
        protocol=fields["protocol"],
        leader=fields["leader"],
        state_timestamp=fields.get("currentStateTimestamp"),
        member_ids=[member["memberId"] for member in members],
        group_instance_ids=[member.get("groupInstanceId") for member in members],
        client_ids=[member["clientId"] for member in members],
    )
