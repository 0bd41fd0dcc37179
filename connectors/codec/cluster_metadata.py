"""Records of ``__cluster_metadata`` and the state that they describe."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from auditor.base.at_rest import Fields
from auditor.base.errors import RECORD_AT, VENDOR, DecodeError
from auditor.connectors.codec.small_files import may_show
from auditor.connectors.codec.structs import (
    LAST_VERSION,
    Field,
    Message,
    Problem,
    decode,
    decode_versioned,
    left_over,
    plain_fields,
    read_frame,
    unknown_version,
)

# Records: their frames and bodies (KIP-746, KIP-631), and the control records of KRaft.
#
# A value is: uvarint frame version (1), uvarint api key, uvarint version, and the body in the flexible form.
# The messages are those of Kafka 4.4.0. Records with secrets (SCRAM, delegation tokens) or ACLs are identified by name,
# their body is not read.


BLANKED = "(blanked)"  # replaces a setting's value that a copy has as zeros
BROKER_ID = Field("brokerId", "int32")
BROKER_EPOCH = Field("brokerEpoch", "int64")
PARTITION_ID = Field("partitionId", "int32")
TOPIC_ID = Field("topicId", "uuid")
_BROKER = (BROKER_ID, BROKER_EPOCH)
_FENCED = plain_fields("id int32, epoch int64")
_CONTROLLER_ID = Field("controllerId", "int32")
_ENDPOINT = plain_fields("name string, host string, port uint16, securityProtocol int16")
_FEATURE = plain_fields("name string, minSupportedVersion int16, maxSupportedVersion int16")


def _tag(tag: int, name: str, kind: str, since: int = 0, *, nullable: bool = True) -> Field:
    # Absence (None) is distinct from every value but a stored null.
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
        *plain_fields(
            "replicas []int32, isr []int32, removingReplicas []int32, addingReplicas []int32, "
            "leader int32, leaderEpoch int32, partitionEpoch int32"
        ),
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
    (*plain_fields("resourceType int8, resourceName string, name string"), Field("value", "string", nullable=0)),
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
    12: Message("FeatureLevelRecord", plain_fields("name string, featureLevel int16")),
    14: Message(
        "ClientQuotaRecord",
        (
            Field("entity", "[]struct", (Field("entityType", "string"), Field("entityName", "string", nullable=0))),
            *plain_fields("key string, value float64, remove bool"),
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
            *plain_fields("incarnationId uuid, zkMigrationReady bool"),
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
_VOTER_ENDPOINT = plain_fields("name string, host string, port uint16")
_VERSION_RANGE = plain_fields("minSupportedVersion int16, maxSupportedVersion int16")
CONTROL_MESSAGES: dict[int, Message] = {
    2: Message(
        "LeaderChangeMessage",
        (Field("leaderId", "int32"), Field("voters", "[]struct", _VOTER), Field("grantingVoters", "[]struct", _VOTER)),
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
                    *plain_fields("voterId int32, voterDirectoryId uuid"),
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
    """Decode the value of a data record, or return why not (Kafka's node stops on all of these).

    Reasons: ``vendor`` (an api key that Kafka does not have), ``bad_version``, ``bad_length`` (bytes left),
    ``bad_value`` (null), ``truncated``, ``bad_size``, ``limit``. Source: Kafka's MetadataRecordSerde.
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
    """The problem of a record that sets a feature to an unknown level; None for all others.

    From there on, records and broker behaviour may differ from what is implemented here. A feature that Kafka does not
    have is ``vendor``: a newer Kafka raises metadata.version too. Kafka's brokers do not start under such a level.
    Source: FeaturesDelta, ClusterControlManager.
    """
    if record.name == "KRaftVersionRecord":
        name, level = "kraft.version", record.fields["kRaftVersion"]
    elif record.name == "FeatureLevelRecord":
        name, level = record.fields["name"], record.fields["featureLevel"]
    else:
        return None
    newest = FEATURE_LEVELS.get(name, 0)
    if level <= newest:
        return None
    if not newest:
        return Problem(VENDOR, 0, f"the feature {name[:80]} at level {level}, which Kafka does not have")
    return Problem("bad_version", 0, f"{name} at level {level}, known: up to {newest}")


def decode_control_record(key: bytes | None, value: bytes | None) -> MetadataRecord | Problem:
    """Decode a control record of the metadata log or of a snapshot, or return why not.

    Reasons: ``bad_record`` (key), ``unknown_key_type`` (end markers, which this log never has), ``vendor`` (a type that
    Kafka does not have: a newer one raises kraft.version too), ``bad_value``, ``bad_version``, ``truncated``,
    ``bad_size``, ``limit``. Source: Kafka's ControlRecordType, ControlRecordUtils.
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


# Values of the state.


class MetadataEntry(NamedTuple):
    """A record of the metadata log or a snapshot, with the place of its batch (``position``, ``size``: bytes)."""

    file: str
    position: int
    size: int
    is_control: bool
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class PartitionState(NamedTuple):
    """A partition in the controller's last known state. ``leader`` is -1 for none.

    ``adding`` and ``removing`` are replicas of a reassignment, ``elr`` the replicas that may lead although they are not
    in the ISR (KIP-966). ``recovery_state`` is 1 (RECOVERING) after an unclean election until the leader has handled
    it.
    """

    topic: str
    partition: int
    topic_id: str
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    recovery_state: int = 0


class BrokerState(NamedTuple):
    """A registered broker in the controller's last known state; ids are uuids as text.

    ``cordoned``: log dirs that accept no new replicas (KIP-1066; None: unknown). ``rack``: of ``broker.rack``.
    """

    broker_id: int
    broker_epoch: int
    incarnation_id: str
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[str, ...] = ()
    cordoned: tuple[str, ...] | None = None
    rack: str | None = None


class Change(NamedTuple):
    """A record that changed the state.

    ``partition`` or ``broker`` is the new state, ``before`` the one it replaced (None for none). ``offset`` and
    ``timestamp`` (ms) are None in a snapshot.
    """

    offset: int | None
    timestamp: int | None
    record: MetadataRecord
    topic: str | None = None
    partition: PartitionState | None = None
    before: PartitionState | None = None
    broker: BrokerState | None = None


class FeatureLevel(NamedTuple):
    """A feature's level; ``offset`` and ``timestamp`` (ms) of its record in the log, None if it is from a snapshot."""

    level: int
    offset: int | None
    timestamp: int | None


class Creation(NamedTuple):
    """A topic that was re-created under the name of a removed one.

    Times (ms) of both records, None from a snapshot, and the first producer id not allocated by then, None if unknown.
    """

    removed: int | None
    created: int | None
    next_producer_id: int | None


class ProducerIdBlock(NamedTuple):
    """The last allocated block of producer ids: ``next_producer_id`` is the first id after it."""

    broker_id: int
    next_producer_id: int
    offset: int | None
    timestamp: int | None


# The state: the newest complete snapshot with the log after it applied.
#
# It has what an audit uses: topics, their partitions and settings, brokers and their settings, feature levels and the
# producer id allocator. Secrets are never decoded or, for settings, withheld (value None).


TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4  # ConfigResource.Type
MOST_NAMED = 10_000  # unreadable records that are listed: the driver has an error for each
MOST_REMOVED = 100_000  # removed topics: an id each, 80 bytes
BROKER_RECORDS = frozenset(
    {
        "RegisterBrokerRecord",
        "UnregisterBrokerRecord",
        "FenceBrokerRecord",
        "UnfenceBrokerRecord",
        "BrokerRegistrationChangeRecord",
    }
)
_LISTS = {  # fields of a PartitionState, and of a change that replaces them
    "isr": "isr",
    "replicas": "replicas",
    "adding": "addingReplicas",
    "removing": "removingReplicas",
    "elr": "eligibleLeaderReplicas",
    "last_known_elr": "lastKnownElr",
}


class ClusterMetadata:
    """The state after the records applied so far.

    ``topics`` name -> id; ``partitions`` (topic id, partition) -> state; ``topic_configs`` topic -> name -> value;
    ``broker_configs`` broker id as text ("" for the cluster's default) -> name -> value, None if withheld; ``brokers``
    id -> state of the registered ones; ``features`` name -> level (absent: 0); ``producer_ids`` None before the first
    block. ``end_offset`` is the first offset after the state; ``snapshot_timestamp`` (ms) the last record's in the
    snapshot it starts from. ``gaps`` are ranges [first, end) of missing offsets, whose records are not in the state.
    ``made_anew`` has the topics that reused the name of a removed one in these records; ``removed`` has the ids of all
    removed ones. ``snapshot_end``: the end of the snapshot that it starts from, 0 for none. ``voters``: of the quorum,
    from its last leader change, which elected ``controller``; it is dynamic from ``kraft_version`` 1 on (KIP-853).
    """

    def __init__(self, end_offset: int = 0, on_change: Callable[[Change], None] | None = None) -> None:
        """``on_change`` is called with every change, in order; changes of a metadata transaction at its end."""
        self.end_offset = self.snapshot_end = end_offset
        self.on_change = on_change
        self.snapshot_timestamp: int | None = None
        self.snapshot_complete = False
        self.topics: dict[str, str] = {}
        self.partitions: dict[tuple[str, int], PartitionState] = {}
        self.topic_configs: dict[str, dict[str, str]] = {}
        self.broker_configs: dict[str, dict[str, str | None]] = {}
        self.brokers: dict[int, BrokerState] = {}
        self.features: dict[str, FeatureLevel] = {}
        self.producer_ids: ProducerIdBlock | None = None
        self.gaps: list[tuple[int, int]] = []
        self.made_anew: dict[str, Creation] = {}
        self.removed: dict[str, None] = {}  # ordered by removal
        self.voters: tuple[int, ...] = ()
        self.controller: int | None = None
        self.kraft_version = 0
        self._removed: dict[str, int | None] = {}
        self._older_names: dict[str, str] = {}
        self._older_producer_id: int | None = None
        self._names: dict[str, str] = {}  # topic id -> name
        self._numbers: dict[str, list[int]] = {}  # topic id -> partitions, so that no record walks all topics
        self._eligible: dict[str, dict[int, None]] = {}  # topic id -> those with eligible replicas, in order
        self._pending: list[tuple[MetadataRecord, int | None, int | None]] | None = None

    def snapshot_entry(self, entry: MetadataEntry) -> Problem | None:
        """Apply a record of a snapshot, whose offset is meaningless. Sets ``snapshot_complete`` after its footer."""
        if not entry.is_control:
            return self._value(entry, None, None)
        record = decode_control_record(entry.key, entry.value)
        if isinstance(record, Problem):
            return record
        self._name_voters(record)
        if record.name == "SnapshotHeaderRecord":
            self.snapshot_timestamp = record.fields["lastContainedLogTimestamp"]
        self.snapshot_complete = record.name == "SnapshotFooterRecord"
        return unknown_level(record)

    def log_entry(self, entry: MetadataEntry) -> Problem | None:
        """Apply a record of the log; one below ``end_offset`` is in the snapshot already, and only checked for reused
        names."""
        if entry.offset < self.end_offset:
            return self._look_back(entry)
        missing = None
        if entry.offset > self.end_offset:  # this log is never compacted, so its offsets have no holes
            self.gaps.append((self.end_offset, entry.offset))
            missing = Problem("bad_value", 0, f"offsets {self.end_offset} to {entry.offset - 1} are missing before it")
        self.end_offset = entry.offset + 1
        if entry.is_control:
            return self._control(entry) or missing
        return self._value(entry, entry.offset, entry.timestamp) or missing

    def _look_back(self, entry: MetadataEntry) -> Problem | None:
        # No state shows that a name was reused. Unreadable records are reported as in every table.
        if entry.is_control:
            return self._control(entry)
        record = decode_metadata_record(entry.value)
        if isinstance(record, Problem):
            return record
        fields = record.fields
        if record.name == "TopicRecord":
            self._made(fields["name"], entry.timestamp, self._older_producer_id)
            self._older_names[fields["topicId"]] = fields["name"]
        elif record.name == "RemoveTopicRecord" and fields["topicId"] in self._older_names:
            self._removed[self._older_names[fields["topicId"]]] = entry.timestamp
            self._gone(fields["topicId"])
        elif record.name == "ProducerIdsRecord":
            self._older_producer_id = fields["nextProducerId"]
        return unknown_level(record)

    def _control(self, entry: MetadataEntry) -> Problem | None:
        record = decode_control_record(entry.key, entry.value)
        if isinstance(record, Problem):
            return record
        self._name_voters(record)
        return unknown_level(record)

    def _name_voters(self, record: MetadataRecord) -> None:
        if "voters" in record.fields:  # LeaderChangeMessage, VotersRecord
            self.voters = tuple(voter["voterId"] for voter in record.fields["voters"])
            self.controller = record.fields.get("leaderId", self.controller)
        elif record.name == "KRaftVersionRecord":
            self.kraft_version = record.fields["kRaftVersion"]

    def _gone(self, topic_id: str) -> None:
        self.removed[topic_id] = None
        if len(self.removed) > MOST_REMOVED:
            del self.removed[next(iter(self.removed))]

    def _made(self, name: str, timestamp: int | None, next_producer_id: int | None) -> None:
        if name in self._removed:
            self.made_anew[name] = Creation(self._removed[name], timestamp, next_producer_id)

    def next_producer_id(self) -> int | None:
        """The first producer id never allocated so far; None if unknown (ZooKeeper, or none yet)."""
        return self.producer_ids.next_producer_id if self.producer_ids else None

    def _value(self, entry: MetadataEntry, offset: int | None, timestamp: int | None) -> Problem | None:
        record = decode_metadata_record(entry.value)
        if isinstance(record, Problem):
            return record
        if record.name == "BeginTransactionRecord":
            self._pending = []
            return None
        if record.name == "AbortTransactionRecord":
            self._pending = None
            return None
        if record.name == "EndTransactionRecord":
            pending, self._pending = self._pending or [], None
            problems = [self._apply(*change) for change in pending]
            return next((problem for problem in problems if problem), None)
        if self._pending is not None:
            self._pending.append((record, offset, timestamp))
            return None
        return self._apply(record, offset, timestamp)

    def _apply(self, record: MetadataRecord, offset: int | None, timestamp: int | None) -> Problem | None:
        fields, change = record.fields, Change(offset, timestamp, record)
        match record.name:
            case "TopicRecord":
                name = fields["name"]
                self._made(name, timestamp, self.next_producer_id())
                self.topics[name] = fields["topicId"]
                self._names[fields["topicId"]] = fields["name"]
                self._report(change._replace(topic=fields["name"]))
            case "RemoveTopicRecord":
                return self._remove_topic(fields["topicId"], change)
            case "PartitionRecord":
                return self._partition(fields, change)
            case "PartitionChangeRecord":
                return self._change_partition(fields, change)
            case "ClearElrRecord":
                self._clear_elr(fields["topicName"], change)
            case "ConfigRecord":
                self._config(fields)
                self._report(change)
            case "FeatureLevelRecord":
                self.features[fields["name"]] = FeatureLevel(fields["featureLevel"], offset, timestamp)
                self._report(change)
                return unknown_level(record)
            case "ProducerIdsRecord":
                self.producer_ids = ProducerIdBlock(fields["brokerId"], fields["nextProducerId"], offset, timestamp)
            case "RegisterControllerRecord" | "UnregisterControllerRecord":
                self._report(change)
            case name if name in BROKER_RECORDS:
                return self._broker(name, fields, change)
        return None

    def _report(self, change: Change) -> None:
        if self.on_change is not None:
            self.on_change(change)

    def _partition(self, fields: Fields, change: Change) -> Problem | None:
        name = self._names.get(fields["topicId"])
        if name is None:
            return self._unknown("a partition of a topic that does not exist")
        state = PartitionState(
            topic=name,
            partition=fields["partitionId"],
            topic_id=fields["topicId"],
            replicas=tuple(fields["replicas"]),
            isr=tuple(fields["isr"]),
            leader=fields["leader"],
            leader_epoch=fields["leaderEpoch"],
            partition_epoch=fields["partitionEpoch"],
            adding=tuple(fields["addingReplicas"]),
            removing=tuple(fields["removingReplicas"]),
            elr=tuple(fields["eligibleLeaderReplicas"] or ()),
            last_known_elr=tuple(fields["lastKnownElr"] or ()),
            recovery_state=fields["leaderRecoveryState"] or 0,
        )
        self._put_partition(state, change)
        return None

    def _change_partition(self, fields: Fields, change: Change) -> Problem | None:
        state = self.partitions.get((fields["topicId"], fields["partitionId"]))
        if state is None:
            return self._unknown("a change of a partition that does not exist")
        changed: Fields = {name: tuple(fields[field]) for name, field in _LISTS.items() if fields[field] is not None}
        changed["partition_epoch"] = state.partition_epoch + 1
        if fields["leader"] is not None:  # also if it names the same leader
            changed |= {"leader": fields["leader"], "leader_epoch": state.leader_epoch + 1}
        if fields["leaderRecoveryState"] is not None:
            changed["recovery_state"] = fields["leaderRecoveryState"]
        self._put_partition(state._replace(**changed), change)
        return None

    def _put_partition(self, state: PartitionState, change: Change) -> None:
        key = (state.topic_id, state.partition)
        before = self.partitions.get(key)
        self.partitions[key] = state
        if before is None:
            self._numbers.setdefault(state.topic_id, []).append(state.partition)
        if state.elr or state.last_known_elr:
            self._eligible.setdefault(state.topic_id, {})[state.partition] = None
        elif eligible := self._eligible.get(state.topic_id):
            eligible.pop(state.partition, None)
        self._report(change._replace(topic=state.topic, partition=state, before=before))

    def _clear_elr(self, topic: str, change: Change) -> None:
        # For all topics with "". Source: TopicsDelta.
        if topic:
            topic_id = self.topics.get(topic, "")
            cleared = {topic_id: self._eligible.pop(topic_id, {})}
        else:
            cleared, self._eligible = (self._eligible, {})  # iterating an emptied dict passes its deleted entries
        for topic_id, numbers in cleared.items():
            for number in numbers:
                state = self.partitions[topic_id, number]
                epoch = state.partition_epoch + 1
                self._put_partition(state._replace(elr=(), last_known_elr=(), partition_epoch=epoch), change)

    def _broker(self, name: str, fields: Fields, change: Change) -> Problem | None:
        broker_id = fields["id"] if "id" in fields else fields["brokerId"]
        if name == "RegisterBrokerRecord":
            state = BrokerState(
                broker_id,
                fields["brokerEpoch"],
                fields["incarnationId"],
                fields["fenced"],
                bool(fields.get("inControlledShutdown")),
                tuple(fields["logDirs"] or ()),
                None if fields["cordonedLogDirs"] is None else tuple(fields["cordonedLogDirs"]),
                fields["rack"],
            )
        elif broker_id not in self.brokers:
            return self._unknown("a change of a broker that is not registered")
        elif name == "UnregisterBrokerRecord":
            self._report(change._replace(broker=self.brokers.pop(broker_id)))
            return None
        else:
            state = _changed_broker(self.brokers[broker_id], name, fields)
        self.brokers[broker_id] = state
        self._report(change._replace(broker=state))
        return None

    def _remove_topic(self, topic_id: str, change: Change) -> Problem | None:
        name = self._names.pop(topic_id, None)
        if name is None:
            return self._unknown("a removal of a topic that does not exist")
        self._removed[name] = change.timestamp
        self._gone(topic_id)
        if self.topics.get(name) == topic_id:
            del self.topics[name]
        self.topic_configs.pop(name, None)
        self._eligible.pop(topic_id, None)
        for number in self._numbers.pop(topic_id, ()):
            del self.partitions[topic_id, number]
        self._report(change._replace(topic=name))
        return None

    def _unknown(self, detail: str) -> Problem | None:
        # A reference to a missing object is an error, unless its record may be in a gap.
        return None if self.gaps else Problem("bad_value", 0, detail)

    def _config(self, fields: Fields) -> None:
        kind, entity, name, value = (fields[key] for key in ("resourceType", "resourceName", "name", "value"))
        if kind == TOPIC_RESOURCE:
            _put(self.topic_configs, entity, name, value)
        elif kind == BROKER_RESOURCE:
            if value is not None and not may_show(name):
                self.broker_configs.setdefault(entity, {})[name] = None
            else:
                _put(self.broker_configs, entity, name, value)


def _changed_broker(state: BrokerState, name: str, fields: Fields) -> BrokerState:
    # Source: Kafka's ClusterDelta.
    if name != "BrokerRegistrationChangeRecord":
        return state._replace(fenced=name == "FenceBrokerRecord")
    changed: Fields = {}
    if fields["fenced"]:  # 1: fenced, -1: unfenced
        changed["fenced"] = fields["fenced"] > 0
    if fields["inControlledShutdown"]:
        changed["in_controlled_shutdown"] = True
    for name, field in (("log_dirs", "logDirs"), ("cordoned", "cordonedLogDirs")):
        if fields[field] is not None:
            changed[name] = tuple(fields[field])
    return state._replace(**changed)


def fold_metadata(
    snapshots: Iterable[tuple[int, Iterable[MetadataEntry]]],
    log: Iterable[MetadataEntry],
    earlier: ClusterMetadata | None = None,
) -> tuple[ClusterMetadata, list[DecodeError]]:
    """The state after the newest complete snapshot and the log after it, and errors for unreadable records.

    ``snapshots``: (end offset, records), newest first; those without a footer are skipped. ``log``: in offset order;
    ``earlier``, the state before its first record, applies all of it and reports its changes. Cost: every record once,
    no-ops too. At most :data:`MOST_NAMED` unreadable records are listed, and as many of vendors. Source: Kafka's
    MetadataImage and its deltas.
    """
    problems = _Problems()
    metadata = ClusterMetadata()
    for end_offset, entries in snapshots:
        candidate = ClusterMetadata(end_offset)
        for entry in entries:
            problems.note(candidate.snapshot_entry(entry), entry)
        if candidate.snapshot_complete:
            metadata = candidate
            break
    for entry in log:
        if earlier is not None:
            earlier.log_entry(entry)
        problems.note(metadata.log_entry(entry), entry)
    return metadata, problems.errors + problems.of_vendors


class _Problems:
    # Unreadable records, and those of vendors; beyond MOST_NAMED of each, one entry counts the rest.
    def __init__(self) -> None:
        self.errors: list[DecodeError] = []
        self.of_vendors: list[DecodeError] = []
        self.more = {"limit": 0, VENDOR: 0}

    def note(self, problem: Problem | None, entry: MetadataEntry) -> None:
        if problem is None:
            return
        reason, detail = problem.reason, f"{RECORD_AT} {entry.offset}: {problem.detail}"
        named, beyond = (self.of_vendors, VENDOR) if reason == VENDOR else (self.errors, "limit")
        if len(named) >= MOST_NAMED:
            self.more[beyond] += 1
            reason, more = beyond, self.more[beyond]
            detail = f"{more} more such records, the last at offset {entry.offset}, are not named one by one"
            del named[MOST_NAMED:]
        named.append(DecodeError(entry.file, entry.position, entry.size, reason, detail))


def _put(configs: dict[str, Fields], entity: str, name: str, value: str | None) -> None:
    # None deletes the setting, and the entity after its last one.
    if value is not None:
        configs.setdefault(entity, {})[name] = value
        return
    configs.get(entity, {}).pop(name, None)
    if not configs.get(entity, True):
        del configs[entity]
