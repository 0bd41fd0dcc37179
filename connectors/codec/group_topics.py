"""Records of ``__consumer_offsets`` and ``__share_group_state`` (KIP-932)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from auditor.base.at_rest import Fields, Values
from auditor.base.compiled import kernel
from auditor.connectors.codec.batches import RecordColumns
from auditor.connectors.codec.primitives import be16, be32, be64
from auditor.connectors.codec.structs import (
    Field,
    Message,
    Problem,
    as_printed,
    decode,
    decode_either,
    decode_versioned,
    json_text,
    left_over,
    plain_fields,
    read_int16,
)
from auditor.connectors.codec.transaction_log import all_ascii, parse_with, uvarint

# The messages in ``__consumer_offsets``, from Kafka's own definitions up to 4.4.0.
#
# Keys are strings without flexible encoding after their int16 type. Types 0 and 1 are offset commits, 2 a classic
# group, 3 to 8 and 16 a consumer group (KIP-848), 9 to 15 a share group (KIP-932; 9 only in 3.9 and 4.0), 17 and 19 to
# 23 a streams group (KIP-1071).


NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # Uuid.ZERO_UUID
MEMBER = Field("memberId", "string")
_GROUP_ID = Field("groupId", "string")
OFFSET_COMMIT_KEY = Message("OffsetCommitKey", plain_fields("group string, topic string, partition int32"), flexible=1)
CLASSIC_GROUP_KEY = Message("GroupMetadataKey", (Field("group", "string"),), flexible=1)
GROUP_KEY = Message("GroupKey", (_GROUP_ID,), flexible=1)
MEMBER_KEY = Message("GroupMemberKey", (_GROUP_ID, MEMBER), flexible=1)
EXPRESSION_KEY = Message(
    "ConsumerGroupRegularExpressionKey", (_GROUP_ID, Field("regularExpression", "string")), flexible=1
)

OFFSET_COMMIT_VALUE = Message(
    "OffsetCommitValue",
    (
        Field("offset", "int64"),
        Field("leaderEpoch", "int32", since=3),
        *plain_fields("metadata string, commitTimestamp int64"),
        Field("expireTimestamp", "int64", since=1, until=1),
        Field("topicId", "uuid", since=4, tag=0, default=NO_TOPIC_ID),
    ),
    last_version=4,
    flexible=4,
)
GROUP_METADATA_VALUE = Message(
    "GroupMetadataValue",
    (
        *plain_fields("protocolType string, generation int32"),
        Field("protocol", "string", nullable=0),
        Field("leader", "string", nullable=0),
        Field("currentStateTimestamp", "int64", since=2),
        Field(
            "members",
            "[]struct",
            (
                MEMBER,
                Field("groupInstanceId", "string", since=3, nullable=3),
                *plain_fields("clientId string, clientHost string"),
                Field("rebalanceTimeout", "int32", since=1),
                *plain_fields("sessionTimeout int32, subscription bytes, assignment bytes"),
            ),
        ),
    ),
    last_version=4,
    flexible=4,
)

# Bytes of members of a classic group of protocol type "consumer", after their own int16 version.
_OWNED = plain_fields("topic string, partitions []int32")
SUBSCRIPTION = Message(
    "ConsumerProtocolSubscription",
    (
        Field("topics", "[]string"),
        Field("userData", "bytes", nullable=0),
        Field("ownedPartitions", "[]struct", _OWNED, since=1),
        Field("generationId", "int32", since=2),
        Field("rackId", "string", since=3, nullable=3),
    ),
    last_version=3,
    flexible=4,
)
ASSIGNMENT = Message(
    "ConsumerProtocolAssignment",
    (Field("assignedPartitions", "[]struct", _OWNED), Field("userData", "bytes", nullable=0)),
    last_version=3,
    flexible=4,
)

_EPOCH, _ASSIGNMENT_EPOCH = plain_fields("epoch int32, assignmentEpoch int32")
_ASSIGNMENT_TIMESTAMP = Field("assignmentTimestamp", "int64", tag=0, default=0)
_TOPIC_PARTITIONS = plain_fields("topicId uuid, partitions []int32")
_EPOCHS = Field("assignmentEpochs", "[]int32", nullable=0, tag=0, default=[])
_ASSIGNED_PARTITIONS = (*_TOPIC_PARTITIONS, _EPOCHS)
_TASKS = plain_fields("subtopologyId string, partitions []int32")
_OWNED_TASKS = (*_TASKS, _EPOCHS)
_CURRENT = plain_fields("memberEpoch int32, previousMemberEpoch int32, state int8")
_CLIENT = plain_fields("clientId string, clientHost string")
_KEY_VALUE = plain_fields("key string, value string")
_RACKS = Field("partitionMetadata", "[]struct", plain_fields("partition int32, racks []string"))
_TOPICS = Field("topics", "[]struct", (*plain_fields("topicId uuid, topicName string, numPartitions int32"), _RACKS))
_NAMED = plain_fields("topicId uuid, topicName string")
_NAMED_PARTITIONS = (*_NAMED, Field("partitions", "[]int32"))
_KNOWN_TO_SHARE = (
    Field("initializedTopics", "[]struct", _NAMED_PARTITIONS),
    Field("deletingTopics", "[]struct", _NAMED),
)
_INNER_TOPIC = (
    *plain_fields("name string, partitions int32, replicationFactor int16"),
    Field("topicConfigs", "[]struct", _KEY_VALUE),
)
_CLASSIC_MEMBER = Field(
    "classicMemberMetadata",
    "struct",
    (
        Field("sessionTimeoutMs", "int32"),
        Field("supportedProtocols", "[]struct", plain_fields("name string, metadata bytes")),
    ),
    nullable=0,
    tag=0,
    default={"sessionTimeoutMs": 0, "supportedProtocols": []},
)
_COPARTITION_GROUP = plain_fields("sourceTopics []int16, sourceTopicRegex []int16, repartitionSourceTopics []int16")
_SUBTOPOLOGY = (
    *plain_fields("subtopologyId string, sourceTopics []string, sourceTopicRegex []string"),
    Field("stateChangelogTopics", "[]struct", _INNER_TOPIC),
    Field("repartitionSinkTopics", "[]string"),
    Field("repartitionSourceTopics", "[]struct", _INNER_TOPIC),
    Field("copartitionGroups", "[]struct", _COPARTITION_GROUP),
)


class GroupRecordType(NamedTuple):
    """A key type of a group record: its name, key, value, and the field of the value that is its epoch.

    ``preview``: the value of 3.9 and 4.0, where share groups were not finished, under the same version number.
    """

    kind: str
    key: Message
    value: Message
    epoch: str | None = None
    preview: Message | None = None


def _type(
    kind: str, key: Message, *fields: Field, epoch: str | None = None, preview: tuple[Field, ...] = ()
) -> GroupRecordType:
    # The value has one version, which is flexible.
    name = f"{kind}Value"
    return GroupRecordType(kind, key, Message(name, fields), epoch, Message(name, preview) if preview else None)


GROUP_TYPES = {
    2: GroupRecordType("GroupMetadata", CLASSIC_GROUP_KEY, GROUP_METADATA_VALUE, "generation"),
    3: _type(
        "ConsumerGroupMetadata", GROUP_KEY, _EPOCH, Field("metadataHash", "int64", tag=0, default=0), epoch="epoch"
    ),
    4: _type("ConsumerGroupPartitionMetadata", GROUP_KEY, _TOPICS),
    5: _type(
        "ConsumerGroupMemberMetadata",
        MEMBER_KEY,
        Field("instanceId", "string", nullable=0),
        Field("rackId", "string", nullable=0),
        *_CLIENT,
        Field("subscribedTopicNames", "[]string"),
        Field("subscribedTopicRegex", "string", nullable=0),
        Field("rebalanceTimeoutMs", "int32"),
        Field("serverAssignor", "string", nullable=0),
        _CLASSIC_MEMBER,
    ),
    6: _type(
        "ConsumerGroupTargetAssignmentMetadata",
        GROUP_KEY,
        _ASSIGNMENT_EPOCH,
        _ASSIGNMENT_TIMESTAMP,
        epoch="assignmentEpoch",
    ),
    7: _type(
        "ConsumerGroupTargetAssignmentMember", MEMBER_KEY, Field("topicPartitions", "[]struct", _TOPIC_PARTITIONS)
    ),
    8: _type(
        "ConsumerGroupCurrentMemberAssignment",
        MEMBER_KEY,
        *_CURRENT,
        Field("assignedPartitions", "[]struct", _ASSIGNED_PARTITIONS),
        Field("partitionsPendingRevocation", "[]struct", _ASSIGNED_PARTITIONS),
        epoch="memberEpoch",
    ),
    9: _type("ShareGroupPartitionMetadata", GROUP_KEY, _TOPICS),
    10: _type(
        "ShareGroupMemberMetadata",
        MEMBER_KEY,
        Field("rackId", "string", nullable=0),
        *_CLIENT,
        Field("subscribedTopicNames", "[]string"),
    ),
    11: _type(
        "ShareGroupMetadata", GROUP_KEY, _EPOCH, Field("metadataHash", "int64"), epoch="epoch", preview=(_EPOCH,)
    ),
    12: _type(
        "ShareGroupTargetAssignmentMetadata",
        GROUP_KEY,
        _ASSIGNMENT_EPOCH,
        _ASSIGNMENT_TIMESTAMP,
        epoch="assignmentEpoch",
    ),
    13: _type("ShareGroupTargetAssignmentMember", MEMBER_KEY, Field("topicPartitions", "[]struct", _TOPIC_PARTITIONS)),
    14: _type(
        "ShareGroupCurrentMemberAssignment",
        MEMBER_KEY,
        *_CURRENT,
        Field("assignedPartitions", "[]struct", _TOPIC_PARTITIONS),
        epoch="memberEpoch",
    ),
    15: _type(
        "ShareGroupStatePartitionMetadata",
        GROUP_KEY,
        Field("initializingTopics", "[]struct", _NAMED_PARTITIONS),
        *_KNOWN_TO_SHARE,
        preview=_KNOWN_TO_SHARE,
    ),
    16: _type(
        "ConsumerGroupRegularExpression",
        EXPRESSION_KEY,
        *plain_fields("topics []string, version int64, timestamp int64"),
    ),
    17: _type(
        "StreamsGroupMetadata",
        GROUP_KEY,
        _EPOCH,
        Field("metadataHash", "int64"),
        Field("validatedTopologyEpoch", "int32", tag=0, default=-1),
        Field("lastAssignmentConfigs", "[]struct", _KEY_VALUE, nullable=0, tag=1, default=[]),
        Field("storedDescriptionTopologyEpoch", "int32", tag=2, default=-1),  # both since 4.4
        Field("failedDescriptionTopologyEpoch", "int32", tag=3, default=-1),
        epoch="epoch",
    ),
    19: _type(
        "StreamsGroupMemberMetadata",
        MEMBER_KEY,
        Field("instanceId", "string", nullable=0),
        Field("rackId", "string", nullable=0),
        *_CLIENT,
        *plain_fields("rebalanceTimeoutMs int32, topologyEpoch int32, processId string"),
        Field("userEndpoint", "struct", plain_fields("host string, port uint16"), nullable=0),
        Field("clientTags", "[]struct", _KEY_VALUE),
    ),
    20: _type(
        "StreamsGroupTargetAssignmentMetadata",
        GROUP_KEY,
        _ASSIGNMENT_EPOCH,
        _ASSIGNMENT_TIMESTAMP,
        epoch="assignmentEpoch",
    ),
    21: _type(
        "StreamsGroupTargetAssignmentMember",
        MEMBER_KEY,
        *(Field(name, "[]struct", _TASKS) for name in ("activeTasks", "standbyTasks", "warmupTasks")),
    ),
    22: _type(
        "StreamsGroupCurrentMemberAssignment",
        MEMBER_KEY,
        *_CURRENT,
        *(
            Field(f"{kind}Tasks{pending}", "[]struct", _OWNED_TASKS)
            for pending in ("", "PendingRevocation")
            for kind in ("active", "standby", "warmup")
        ),
        epoch="memberEpoch",
    ),
    23: _type(
        "StreamsGroupTopology", GROUP_KEY, _EPOCH, Field("subtopologies", "[]struct", _SUBTOPOLOGY), epoch="epoch"
    ),
}
"""key type -> record type."""


# Rows of ``__consumer_offsets``.


CONSUMER_PROTOCOL = "consumer"  # the protocol type whose members' bytes Kafka's tools decode


class OffsetCommitRow(NamedTuple):
    """An offset commit, named as in the table ``offset_commits``; for a tombstone all after ``tombstone`` is None.

    ``committed_offset`` is the next offset to read, ``leader_epoch`` -1 if unknown, times are ms and None if the
    version has none, ``topic_id`` None if none is stored (before 4.1). ``metadata``, which clients choose, only on
    request. Whether the commit took effect depends on its batch: in a transaction only after a COMMIT marker.
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
    """A record of a group, named as in the table ``group_metadata``; None for what its kind does not have.

    ``generation`` is the classic generation, or the epoch of the group, assignment, member or topology; ``member_ids``
    the members of a classic group, or the member of the record. ``value``: every field of the value as JSON, as
    kafka-dump-log.sh prints it, with null for addresses and for bytes of clients unless requested.
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
    """Decode one record. Row and problem together: bytes were left over, which Kafka ignores; no row: unreadable.

    ``payload``: also addresses and what clients choose. Reasons: ``unknown_key_type`` (no release to 4.4 writes it),
    ``bad_value`` (null key), ``bad_version``, ``truncated``, ``bad_size``, ``limit``, ``bad_length`` (bytes left).
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
        value_version=version, generation=fields[kind.epoch] if kind.epoch else None, value=json_text(printed)
    )
    return row, left_over(key, key_end) or left_over(value, end)


def _with_members(row: GroupMetadataRow, fields: Fields, printed: list[Fields], payload: bool) -> GroupMetadataRow:
    # Also decodes the members' own bytes in printed, as Kafka's tools do.
    members = fields["members"]
    if fields["protocolType"] == CONSUMER_PROTOCOL:
        for member, shown in zip(members, printed, strict=True):
            for name, message in (("subscription", SUBSCRIPTION), ("assignment", ASSIGNMENT)):
                shown[name] = _consumer_message(message, member[name], payload) or shown[name]
    return row._replace(**member_columns(fields))


def member_columns(fields: Values) -> Fields:
    """The columns of a classic group's stored value that no other group has; missing fields are null."""
    members = fields["members"]
    return {
        "protocol_type": fields.get("protocolType"),
        "protocol": fields.get("protocol"),
        "leader": fields.get("leader"),
        "state_timestamp": fields.get("currentStateTimestamp"),
        "member_ids": [member.get("memberId") for member in members],
        "group_instance_ids": [member.get("groupInstanceId") for member in members],
        "client_ids": [member.get("clientId") for member in members],
    }


def _consumer_message(message: Message, data: bytes, payload: bool) -> Fields | None:
    # None if the bytes are something else.
    decoded = decode_versioned(message, data)
    if isinstance(decoded, Problem):
        return None
    version, fields, _ = decoded
    return as_printed(message, version, fields, payload=payload)


# Offset commits as columns: the versions that brokers write, read by a compiled kernel. Everything else, and every
# record of another kind, is *odd*, and left to :func:`decode_consumer_offsets`.


TOMBSTONE = -1  # in VERSION
ODD = -2
VERSION, KEY_START, KEY_SIZE, GROUP_SIZE, TOPIC_START, TOPIC_SIZE, PARTITION, VALUE, FIELDS = range(9)
KEY_OVERHEAD = 2 + 2 + 2 + 4  # type, two lengths, partition
MAX_STRING = 0x7FFF
LEADER_EPOCH, COMMIT_TIME, EXPIRE_TIME, TOPIC_ID, TEXT_START, TEXT_SIZE, DETAILS = range(7)


@kernel
def _key(data: np.ndarray, position: int, size: int, out: np.ndarray) -> bool:
    # Whether it is the key of a commit.
    if size < KEY_OVERHEAD or be16(data, position) < 0 or be16(data, position) > 1:
        return False
    group = be16(data, position + 2)
    if group < 0 or group + KEY_OVERHEAD > size:
        return False
    topic = be16(data, position + 4 + group)
    if topic < 0 or group + topic + KEY_OVERHEAD != size or not all_ascii(data, position + 4, group):
        return False
    out[KEY_START], out[KEY_SIZE], out[GROUP_SIZE] = position + 2, size - 2, group
    out[TOPIC_START], out[TOPIC_SIZE] = position + 6 + group, topic
    out[PARTITION] = be32(data, position + size - 4)
    return bool(all_ascii(data, position + 6 + group, topic))


@kernel
def _tags_fit(data: np.ndarray, position: int, end: int) -> bool:
    # No tag, or the topic's id alone.
    return (position + 1 == end and data[position] == 0) or (
        position + 19 == end and data[position] == 1 and data[position + 1] == 0 and data[position + 2] == 16
    )


@kernel
def _value(data: np.ndarray, position: int, size: int, out: np.ndarray) -> Any:
    # Returns the version, or ODD.
    end = position + size
    if size < 10:
        return ODD
    version = be16(data, position)
    if version < 0 or version > 4:
        return ODD
    out[VALUE] = be64(data, position + 2)
    position += 14 if version >= 3 else 10
    if version == 4:
        text, position = uvarint(data, position, end)
        text -= 1
        if position < 0 or text < 0 or text > MAX_STRING or position + text + 8 > end:
            return ODD
        return 4 if _tags_fit(data, position + text + 8, end) else ODD
    if position + 2 > end:
        return ODD
    text = be16(data, position)
    if text < 0 or position + 2 + text + (16 if version == 1 else 8) != end:
        return ODD
    return np.int64(version)


@kernel
def _details(data: np.ndarray, versions: np.ndarray, value_start: np.ndarray, out: np.ndarray) -> None:
    for k in range(len(versions)):
        version, position = versions[k], value_start[k] + 10
        out[:, k] = -1
        if version < 0:
            continue
        if version >= 3:
            out[LEADER_EPOCH, k] = be32(data, position)
            position += 4
        if version == 4:
            text, position = uvarint(data, position, len(data))  # it was parsed before, and fits
            text -= 1
        else:
            text = be16(data, position)
            position += 2
        out[TEXT_START, k], out[TEXT_SIZE, k] = position, text
        position += text
        out[COMMIT_TIME, k] = be64(data, position)
        if version == 1:
            out[EXPIRE_TIME, k] = be64(data, position + 8)
        if version == 4 and data[position + 8] == 1:
            out[TOPIC_ID, k] = position + 11


@kernel
def _parse(
    data: np.ndarray,
    key_start: np.ndarray,
    key_size: np.ndarray,
    value_start: np.ndarray,
    value_size: np.ndarray,
    out: np.ndarray,
) -> None:
    for k in range(len(key_start)):
        row = out[k]
        row[:] = -1
        row[VERSION] = ODD
        if _key(data, key_start[k], key_size[k], row):
            row[VERSION] = TOMBSTONE if value_size[k] < 0 else _value(data, value_start[k], value_size[k], row)


def parse(records: RecordColumns, chosen: np.ndarray) -> np.ndarray:
    """A row of FIELDS numbers for each of the ``chosen`` records, which must have their payload."""
    return parse_with(_parse, FIELDS, records, chosen)


def details(records: RecordColumns, chosen: np.ndarray, versions: np.ndarray) -> np.ndarray:
    """Further fields of ``chosen`` records, none of which is odd: DETAILS columns, -1 for none.

    ``versions``: VERSION of :func:`parse`. TOPIC_ID and TEXT_START (the metadata) are indexes of the payload.
    """
    out = np.empty((DETAILS, len(chosen)), np.int64)
    _details(records.payload, versions, np.ascontiguousarray(records.value_start[chosen]), out)
    return out


# ``__share_group_state`` (KIP-932): delivery and acknowledgement of each partition by share groups.
#
# Key: int16 type (0 a complete snapshot, 1 an update of one), group, topic id and partition, without flexible encoding.


KEY = Message("ShareSnapshotKey", plain_fields("groupId string, topicId uuid, partition int32"), flexible=1)
_BATCH = plain_fields("firstOffset int64, lastOffset int64, deliveryState int8, deliveryCount int16")
_COMPLETE = Field("deliveryCompleteCount", "int32", tag=0, default=-1)
_BATCHES = Field("stateBatches", "[]struct", _BATCH)
_LEADER_EPOCH, _START = plain_fields("leaderEpoch int32, startOffset int64")


class ShareRecordType(NamedTuple):
    """A key type: its name, its value, and the value of 3.9 and 4.0 under the same version number."""

    kind: str
    value: Message
    preview: Message


TYPES = {
    0: ShareRecordType(
        "ShareSnapshot",
        Message(
            "ShareSnapshotValue",
            (
                *plain_fields("snapshotEpoch int32, stateEpoch int32"),
                _LEADER_EPOCH,
                _START,
                *plain_fields("createTimestamp int64, writeTimestamp int64"),
                _BATCHES,
                _COMPLETE,
            ),
        ),
        Message(
            "ShareSnapshotValue",
            (*plain_fields("snapshotEpoch uint16, stateEpoch int32"), _LEADER_EPOCH, _START, _BATCHES),
        ),
    ),
    1: ShareRecordType(
        "ShareUpdate",
        Message("ShareUpdateValue", (Field("snapshotEpoch", "int32"), _LEADER_EPOCH, _START, _BATCHES, _COMPLETE)),
        Message("ShareUpdateValue", (Field("snapshotEpoch", "uint16"), _LEADER_EPOCH, _START, _BATCHES)),
    ),
}


class ShareGroupStateRow(NamedTuple):
    """A record, named as in the table ``share_group_state``; None for what its kind does not have.

    ``start_offset`` is the first offset that is not settled yet (-1: unknown, and in an update: unchanged);
    ``state_batches`` are, as JSON like Kafka's tool prints them, the delivered offsets from there on: ``deliveryState``
    0 available, 2 acknowledged, 3 archiving, 4 archived, and the delivery count. ``delivery_complete_count`` is -1 if
    unknown (before 4.2). Times are ms.
    """

    group_id: str
    topic_id: str
    consumed_partition: int
    key_type: int
    kind: str
    tombstone: bool
    value_version: int | None = None
    snapshot_epoch: int | None = None
    state_epoch: int | None = None
    leader_epoch: int | None = None
    start_offset: int | None = None
    delivery_complete_count: int | None = None
    create_timestamp: int | None = None
    write_timestamp: int | None = None
    state_batches: str | None = None


def decode_share_group_state(
    key: bytes | None, value: bytes | None
) -> tuple[ShareGroupStateRow | None, Problem | None]:
    """Decode one record. Row and problem together: bytes were left over, which Kafka ignores; no row: unreadable.

    Reasons: ``unknown_key_type``, ``bad_value`` (null key), ``bad_version``, ``truncated``, ``bad_size``, ``limit``,
    ``bad_length`` (bytes left). Source: Kafka's ShareCoordinatorRecordSerde.
    """
    if key is None:
        return None, Problem("bad_value", 0, "the key is null")
    key_type = read_int16(key)
    if isinstance(key_type, Problem):
        return None, key_type
    if key_type not in TYPES:
        detail = f"a record of __share_group_state with the unknown key type {key_type}"
        return None, Problem("unknown_key_type", 0, detail)
    kind = TYPES[key_type]
    decoded_key = decode(KEY, 0, key, 2)
    if isinstance(decoded_key, Problem):
        return None, decoded_key
    names, key_end = decoded_key
    row = ShareGroupStateRow(
        names["groupId"], names["topicId"], names["partition"], key_type, kind.kind, tombstone=value is None
    )
    if value is None:
        return row, left_over(key, key_end)
    decoded = decode_either(kind.value, kind.preview, value)
    if isinstance(decoded, Problem):
        return None, decoded
    message, version, fields, end = decoded
    row = row._replace(
        value_version=version,
        snapshot_epoch=fields["snapshotEpoch"],
        state_epoch=fields.get("stateEpoch"),
        leader_epoch=fields["leaderEpoch"],
        start_offset=fields["startOffset"],
        delivery_complete_count=fields.get("deliveryCompleteCount", -1),
        create_timestamp=fields.get("createTimestamp"),
        write_timestamp=fields.get("writeTimestamp"),
        state_batches=json_text(as_printed(message, version, fields)["stateBatches"]),
    )
    return row, left_over(key, key_end) or left_over(value, end)
