"""The messages in ``__consumer_offsets``, as Kafka's own definitions have them up to 4.4.0.

Keys are strings without flexible encoding behind their int16 type. Types 0 and 1 are offset commits, 2 a classic group,
3 to 8 and 16 a consumer group (KIP-848), 9 to 15 a share group (KIP-932; 9 only in 3.9 and 4.0), 17 and 19 to 23 a
streams group (KIP-1071).
"""

from __future__ import annotations

from typing import NamedTuple

from auditor.connectors.codec.structs import Field, Message

NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # Uuid.ZERO_UUID
MEMBER = Field("memberId", "string")
_GROUP_ID = Field("groupId", "string")
OFFSET_COMMIT_KEY = Message(
    "OffsetCommitKey",
    (Field("group", "string"), Field("topic", "string"), Field("partition", "int32")),
    flexible=1,
)
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
        Field("metadata", "string"),
        Field("commitTimestamp", "int64"),
        Field("expireTimestamp", "int64", since=1, until=1),
        Field("topicId", "uuid", since=4, tag=0, default=NO_TOPIC_ID),
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

# What the members of a classic group of protocol type "consumer" say, behind an int16 version of its own.
_OWNED = (Field("topic", "string"), Field("partitions", "[]int32"))
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

_EPOCH, _ASSIGNMENT_EPOCH = Field("epoch", "int32"), Field("assignmentEpoch", "int32")
_ASSIGNMENT_TIMESTAMP = Field("assignmentTimestamp", "int64", tag=0, default=0)
_TOPIC_PARTITIONS = (Field("topicId", "uuid"), Field("partitions", "[]int32"))
_EPOCHS = Field("assignmentEpochs", "[]int32", nullable=0, tag=0, default=[])
_ASSIGNED_PARTITIONS = (*_TOPIC_PARTITIONS, _EPOCHS)
_TASKS = (Field("subtopologyId", "string"), Field("partitions", "[]int32"))
_OWNED_TASKS = (*_TASKS, _EPOCHS)
_CURRENT = (Field("memberEpoch", "int32"), Field("previousMemberEpoch", "int32"), Field("state", "int8"))
_CLIENT = (Field("clientId", "string"), Field("clientHost", "string"))
_KEY_VALUE = (Field("key", "string"), Field("value", "string"))
_RACKS = Field("partitionMetadata", "[]struct", (Field("partition", "int32"), Field("racks", "[]string")))
_TOPICS = Field(
    "topics",
    "[]struct",
    (Field("topicId", "uuid"), Field("topicName", "string"), Field("numPartitions", "int32"), _RACKS),
)
_NAMED = (Field("topicId", "uuid"), Field("topicName", "string"))
_NAMED_PARTITIONS = (*_NAMED, Field("partitions", "[]int32"))
_KNOWN_TO_SHARE = (
    Field("initializedTopics", "[]struct", _NAMED_PARTITIONS),
    Field("deletingTopics", "[]struct", _NAMED),
)
_INNER_TOPIC = (
    Field("name", "string"),
    Field("partitions", "int32"),
    Field("replicationFactor", "int16"),
    Field("topicConfigs", "[]struct", _KEY_VALUE),
)
_CLASSIC_MEMBER = Field(
    "classicMemberMetadata",
    "struct",
    (
        Field("sessionTimeoutMs", "int32"),
        Field("supportedProtocols", "[]struct", (Field("name", "string"), Field("metadata", "bytes"))),
    ),
    nullable=0,
    tag=0,
    default={"sessionTimeoutMs": 0, "supportedProtocols": []},
)
_COPARTITION_GROUP = (
    Field("sourceTopics", "[]int16"),
    Field("sourceTopicRegex", "[]int16"),
    Field("repartitionSourceTopics", "[]int16"),
)
_SUBTOPOLOGY = (
    Field("subtopologyId", "string"),
    Field("sourceTopics", "[]string"),
    Field("sourceTopicRegex", "[]string"),
    Field("stateChangelogTopics", "[]struct", _INNER_TOPIC),
    Field("repartitionSinkTopics", "[]string"),
    Field("repartitionSourceTopics", "[]struct", _INNER_TOPIC),
    Field("copartitionGroups", "[]struct", _COPARTITION_GROUP),
)


class GroupRecordType(NamedTuple):
    """A key type of a group record: its name, its key, its value, and the field of the value that is its epoch.

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
    """A type whose value has one version, which is flexible."""
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
        Field("topics", "[]string"),
        Field("version", "int64"),
        Field("timestamp", "int64"),
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
        Field("rebalanceTimeoutMs", "int32"),
        Field("topologyEpoch", "int32"),
        Field("processId", "string"),
        Field("userEndpoint", "struct", (Field("host", "string"), Field("port", "uint16")), nullable=0),
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
"""key type -> what a record of it holds."""
