"""Records of ``__cluster_metadata``: their frames and bodies (KIP-746, KIP-631), and the control records of KRaft.

A value is: uvarint frame version (1), uvarint api key, uvarint version, body in the flexible form, and no byte more.
The messages are those of Kafka 4.4.0. Records that hold secrets (SCRAM, delegation tokens) or say who may do what are
identified by name, their body is not read.
"""

from __future__ import annotations

from typing import NamedTuple

from auditor.base.at_rest import Fields
from auditor.base.errors import VENDOR
from auditor.connectors.codec.structs import (
    LAST_VERSION,
    Field,
    Message,
    Problem,
    decode,
    decode_versioned,
    left_over,
    read_frame,
    unknown_version,
)

BLANKED = "(blanked)"  # in place of a setting's value that a copy has as zeros
BROKER_ID = Field("brokerId", "int32")
BROKER_EPOCH = Field("brokerEpoch", "int64")
PARTITION_ID = Field("partitionId", "int32")
TOPIC_ID = Field("topicId", "uuid")
_BROKER = (BROKER_ID, BROKER_EPOCH)
_FENCED = (Field("id", "int32"), Field("epoch", "int64"))
_CONTROLLER_ID = Field("controllerId", "int32")
_ENDPOINT = (
    Field("name", "string"),
    Field("host", "string"),
    Field("port", "uint16"),
    Field("securityProtocol", "int16"),
)
_FEATURE = (Field("name", "string"), Field("minSupportedVersion", "int16"), Field("maxSupportedVersion", "int16"))


def _tag(tag: int, name: str, kind: str, since: int = 0, *, nullable: bool = True) -> Field:
    """A tagged field whose absence (None) is distinct from every value but a stored null."""
    return Field(name, kind, since=since, tag=tag, nullable=since if nullable else LAST_VERSION)


REGISTER_BROKER = Message(
    "RegisterBrokerRecord",
    (
        BROKER_ID,
        Field("isMigratingZkBroker", "bool", since=2),
        Field("incarnationId", "uuid"),
        BROKER_EPOCH,
        Field("endPoints", "[]struct", _ENDPOINT),
        Field("features", "[]struct", _FEATURE),
        Field("rack", "string", nullable=0),
        Field("fenced", "bool"),
        Field("inControlledShutdown", "bool", since=1),
        _tag(0, "logDirs", "[]uuid", since=3, nullable=False),
        _tag(1, "cordonedLogDirs", "[]uuid", since=4),
    ),
    last_version=4,
)
PARTITION = Message(
    "PartitionRecord",
    (
        PARTITION_ID,
        TOPIC_ID,
        Field("replicas", "[]int32"),
        Field("isr", "[]int32"),
        Field("removingReplicas", "[]int32"),
        Field("addingReplicas", "[]int32"),
        Field("leader", "int32"),
        Field("leaderEpoch", "int32"),
        Field("partitionEpoch", "int32"),
        Field("directories", "[]uuid", since=1),
        _tag(0, "leaderRecoveryState", "int8"),
        _tag(1, "eligibleLeaderReplicas", "[]int32", since=2),
        _tag(2, "lastKnownElr", "[]int32", since=2),
    ),
    last_version=2,
)
PARTITION_CHANGE = Message(
    "PartitionChangeRecord",
    (
        PARTITION_ID,
        TOPIC_ID,
        _tag(0, "isr", "[]int32"),
        _tag(1, "leader", "int32"),
        _tag(2, "replicas", "[]int32"),
        _tag(3, "removingReplicas", "[]int32"),
        _tag(4, "addingReplicas", "[]int32"),
        _tag(5, "leaderRecoveryState", "int8"),
        _tag(6, "eligibleLeaderReplicas", "[]int32", since=2),
        _tag(7, "lastKnownElr", "[]int32", since=2),
        _tag(8, "directories", "[]uuid", since=1),
    ),
    last_version=2,
)
CONFIG = Message(
    "ConfigRecord",
    (
        Field("resourceType", "int8"),
        Field("resourceName", "string"),
        Field("name", "string"),
        Field("value", "string", nullable=0),
    ),
)
BROKER_REGISTRATION_CHANGE = Message(
    "BrokerRegistrationChangeRecord",
    (
        *_BROKER,
        _tag(0, "fenced", "int8"),
        _tag(1, "inControlledShutdown", "int8", since=1),
        _tag(2, "logDirs", "[]uuid", since=2, nullable=False),
        _tag(3, "cordonedLogDirs", "[]uuid", since=3),
    ),
    last_version=3,
)
PRODUCER_IDS = Message("ProducerIdsRecord", (*_BROKER, Field("nextProducerId", "int64")))

MESSAGES: dict[int, Message] = {
    0: REGISTER_BROKER,
    1: Message("UnregisterBrokerRecord", _BROKER),
    2: Message("TopicRecord", (Field("name", "string"), TOPIC_ID)),
    3: PARTITION,
    4: CONFIG,
    5: PARTITION_CHANGE,
    7: Message("FenceBrokerRecord", _FENCED),
    8: Message("UnfenceBrokerRecord", _FENCED),
    9: Message("RemoveTopicRecord", (TOPIC_ID,)),
    12: Message("FeatureLevelRecord", (Field("name", "string"), Field("featureLevel", "int16"))),
    14: Message(
        "ClientQuotaRecord",
        (
            Field("entity", "[]struct", (Field("entityType", "string"), Field("entityName", "string", nullable=0))),
            Field("key", "string"),
            Field("value", "float64"),
            Field("remove", "bool"),
        ),
    ),
    15: PRODUCER_IDS,
    17: BROKER_REGISTRATION_CHANGE,
    20: Message("NoOpRecord", ()),
    21: Message("ZkMigrationStateRecord", (Field("zkMigrationState", "int8"),)),
    23: Message("BeginTransactionRecord", (_tag(0, "name", "string"),)),
    24: Message("EndTransactionRecord", ()),
    25: Message("AbortTransactionRecord", (_tag(0, "reason", "string"),)),
    27: Message(
        "RegisterControllerRecord",
        (
            _CONTROLLER_ID,
            Field("incarnationId", "uuid"),
            Field("zkMigrationReady", "bool"),
            Field("endPoints", "[]struct", _ENDPOINT),
            Field("features", "[]struct", _FEATURE),
        ),
    ),
    28: Message("ClearElrRecord", (Field("topicName", "string"),)),
    29: Message("UnregisterControllerRecord", (_CONTROLLER_ID,)),
}
"""api key -> message, of the records that are read."""

FEATURE_LEVELS = {
    "metadata.version": 33,
    "kraft.version": 1,
    "transaction.version": 2,
    "group.version": 1,
    "share.version": 2,
    "streams.version": 1,
    "eligible.leader.replicas.version": 1,
}
"""feature -> the highest level that brokers of Kafka 4.4.0 take (Feature.latestProduction)."""

UNREAD = {
    10: "DelegationTokenRecord",
    11: "UserScramCredentialRecord",
    18: "AccessControlEntryRecord",
    19: "RemoveAccessControlEntryRecord",
    22: "RemoveUserScramCredentialRecord",
    26: "RemoveDelegationTokenRecord",
}
"""api key -> name, of the records that are known, all in version 0 only, but not read."""

_VOTER = (Field("voterId", "int32"), Field("voterDirectoryId", "uuid", since=1))
_VOTER_ENDPOINT = (Field("name", "string"), Field("host", "string"), Field("port", "uint16"))
_VERSION_RANGE = (Field("minSupportedVersion", "int16"), Field("maxSupportedVersion", "int16"))
CONTROL_MESSAGES: dict[int, Message] = {
    2: Message(
        "LeaderChangeMessage",
        (
            Field("leaderId", "int32"),
            Field("voters", "[]struct", _VOTER),
            Field("grantingVoters", "[]struct", _VOTER),
        ),
        last_version=1,
    ),
    3: Message("SnapshotHeaderRecord", (Field("lastContainedLogTimestamp", "int64"),)),
    4: Message("SnapshotFooterRecord", ()),
    5: Message("KRaftVersionRecord", (Field("kRaftVersion", "int16"),)),
    6: Message(
        "VotersRecord",
        (
            Field(
                "voters",
                "[]struct",
                (
                    Field("voterId", "int32"),
                    Field("voterDirectoryId", "uuid"),
                    Field("endpoints", "[]struct", _VOTER_ENDPOINT),
                    Field("kRaftVersionFeature", "struct", _VERSION_RANGE),
                ),
            ),
        ),
    ),
}
"""control record type -> message, of KRaft's control records."""

BY_NAME = {message.name: message for message in (*MESSAGES.values(), *CONTROL_MESSAGES.values())}


class MetadataRecord(NamedTuple):
    """A record by the name of its message; ``fields`` is empty for the names of :data:`UNREAD`."""

    name: str
    version: int
    fields: Fields


def decode_metadata_record(value: bytes | None) -> MetadataRecord | Problem:
    """The value of a record that is no control record, or why it is not read (Kafka's node stops on all of them).

    Reasons: ``vendor`` (an api key that no Kafka has), ``bad_version``, ``bad_length`` (bytes left), ``bad_value``
    (null), ``truncated``, ``bad_size``, ``limit``. Source: Kafka's MetadataRecordSerde.
    """
    if value is None:
        return Problem("bad_value", 0, "a null value")
    frame = read_frame(value)
    if isinstance(frame, Problem):
        return frame
    api_key, version, position = frame
    if api_key in UNREAD:
        message = Message(UNREAD[api_key], ())
        if version > message.last_version:
            return unknown_version(message, version, position)
        return MetadataRecord(message.name, version, {})
    if api_key not in MESSAGES:
        return Problem(VENDOR, 0, f"a record with api key {api_key}, which Kafka does not have")
    message = MESSAGES[api_key]
    decoded = decode(message, version, value, position)
    if isinstance(decoded, Problem):
        return decoded
    fields, end = decoded
    if message is CONFIG and fields["value"] and not fields["value"].strip("\0"):
        fields["value"] = BLANKED
    return left_over(value, end) or MetadataRecord(message.name, version, fields)


def unknown_level(record: MetadataRecord) -> Problem | None:
    """The feature level that a record sets, where no release known here has it: from then on records, and what brokers
    do, may be other than is read here. None for all other records. A feature of a name that no Kafka has is ``vendor``:
    a newer Kafka raises metadata.version too.

    Kafka's brokers do not start under such a level. Source: FeaturesDelta, ClusterControlManager.
    """
    if record.name == "KRaftVersionRecord":
        name, level = "kraft.version", record.fields["kRaftVersion"]
    elif record.name == "FeatureLevelRecord":
        name, level = record.fields["name"], record.fields["featureLevel"]
    else:
        return None
    known = FEATURE_LEVELS.get(name, 0)
    if level <= known:
        return None
    if not known:
        return Problem(VENDOR, 0, f"the feature {name[:80]} at level {level}, which Kafka does not have")
    return Problem("bad_version", 0, f"{name} at level {level}, known: up to {known}")


def decode_control_record(key: bytes | None, value: bytes | None) -> MetadataRecord | Problem:
    """A record of a control batch of the metadata log or of a snapshot, or why it is not read.

    Reasons: ``bad_record`` (key), ``unknown_key_type`` (end markers, which this log never has), ``vendor`` (a type that
    no Kafka has: a newer one raises kraft.version too), ``bad_value``, ``bad_version``, ``truncated``, ``bad_size``,
    ``limit``. Source: Kafka's ControlRecordType, ControlRecordUtils.
    """
    if key is None or len(key) < 4:
        return Problem("bad_record", 0, "a control key of less than 4 bytes")
    kind = int.from_bytes(key[2:4], "big", signed=True)
    if kind not in CONTROL_MESSAGES:
        if 0 <= kind < min(CONTROL_MESSAGES):
            return Problem("unknown_key_type", 0, f"control type {kind} has no place in this log")
        return Problem(VENDOR, 0, f"a control record of type {kind}, which Kafka does not have")
    if value is None:
        return Problem("bad_value", 0, "a null value")
    decoded = decode_versioned(CONTROL_MESSAGES[kind], value)
    if isinstance(decoded, Problem):
        return decoded
    version, fields, _ = decoded
    return MetadataRecord(CONTROL_MESSAGES[kind].name, version, fields)
