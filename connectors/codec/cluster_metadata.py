"""The state that ``__cluster_metadata`` describes: its newest complete snapshot and the log behind it, folded.

Only what an audit asks is kept: topics, their partitions and settings, brokers and their settings, feature levels and
the producer id allocator; each change on the way may be listened to. Secrets are never decoded or, for settings,
withheld (value None).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from auditor.base.at_rest import Fields
from auditor.base.errors import RECORD_AT, VENDOR, DecodeError
from auditor.connectors.codec.metadata_records import (
    MetadataRecord,
    decode_control_record,
    decode_metadata_record,
    unknown_level,
)
from auditor.connectors.codec.metadata_states import (
    BrokerState,
    Change,
    Creation,
    FeatureLevel,
    MetadataEntry,
    PartitionState,
    ProducerIdBlock,
)
from auditor.connectors.codec.settings import may_show
from auditor.connectors.codec.structs import Problem

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4  # ConfigResource.Type
MOST_NAMED = 10_000  # records that could not be read: the driver has an error for each
MOST_REMOVED = 100_000  # topics that are gone: an id each, 80 bytes
BROKER_RECORDS = frozenset(
    {
        "RegisterBrokerRecord",
        "UnregisterBrokerRecord",
        "FenceBrokerRecord",
        "UnfenceBrokerRecord",
        "BrokerRegistrationChangeRecord",
    }
)
_LISTS = {  # of a PartitionState, and the fields of a change that replace them
    "isr": "isr",
    "replicas": "replicas",
    "adding": "addingReplicas",
    "removing": "removingReplicas",
    "elr": "eligibleLeaderReplicas",
    "last_known_elr": "lastKnownElr",
}


class ClusterMetadata:
    """State as of the records applied so far.

    ``topics`` name -> id; ``partitions`` (topic id, partition) -> state; ``topic_configs`` topic -> name -> value;
    ``broker_configs`` broker id as text ("" for the cluster's default) -> name -> value, None where withheld;
    ``brokers`` id -> state, of those that are registered;
    ``features`` name -> level (absent: 0); ``producer_ids`` None before the first block. ``end_offset`` is the first
    offset behind the state; ``snapshot_timestamp`` (ms) the last record's in the snapshot it starts from. ``gaps`` are
    stretches [first, end) of offsets that were not there to read: what they said is not in the state. ``made_anew``
    names the topics that took the name of one that was removed in these records; ``removed`` has the ids of all that
    were. ``snapshot_end``: the end of the snapshot that it starts from, 0 for none. ``voters``: of the quorum, as its
    last leader named them; it is dynamic from ``kraft_version`` 1 on (KIP-853).
    """

    def __init__(self, end_offset: int = 0, on_change: Callable[[Change], None] | None = None) -> None:
        """``on_change`` is called with every change, in order; those of a record that ends several at its end."""
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
        self.removed: dict[str, None] = {}  # in the order of their removal
        self.voters: tuple[int, ...] = ()
        self.kraft_version = 0
        self._removed: dict[str, int | None] = {}
        self._older_names: dict[str, str] = {}
        self._older_producer_id: int | None = None
        self._names: dict[str, str] = {}  # topic id -> name
        self._numbers: dict[str, list[int]] = {}  # topic id -> partitions, so that no record walks all topics
        self._eligible: dict[str, dict[int, None]] = {}  # topic id -> those with eligible replicas, in order
        self._pending: list[tuple[MetadataRecord, int | None, int | None]] | None = None

    def snapshot_entry(self, entry: MetadataEntry) -> Problem | None:
        """Apply a record of a snapshot; offsets in it mean nothing. ``snapshot_complete`` after its footer."""
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
        """Apply a record of the log; one below ``end_offset`` is in the snapshot already, and only looked back at."""
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
        """What a record that a snapshot has taken in says of names that were given twice: no state shows that. One that
        cannot be read is said here as in every table."""
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
        elif record.name == "KRaftVersionRecord":
            self.kraft_version = record.fields["kRaftVersion"]

    def _gone(self, topic_id: str) -> None:
        """A topic's id, removed. Of very many the last are known."""
        self.removed[topic_id] = None
        if len(self.removed) > MOST_REMOVED:
            del self.removed[next(iter(self.removed))]

    def _made(self, name: str, timestamp: int | None, next_producer_id: int | None) -> None:
        if name in self._removed:
            self.made_anew[name] = Creation(self._removed[name], timestamp, next_producer_id)

    def next_producer_id(self) -> int | None:
        """The first producer id never given out so far; None if the log does not say (ZooKeeper, or none yet)."""
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
        if fields["leader"] is not None:  # also when it names the leader there was
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
        """No partition of the topic, or with "" of all, has eligible replicas behind it. Source: TopicsDelta."""
        if topic:
            topic_id = self.topics.get(topic, "")
            taken = {topic_id: self._eligible.pop(topic_id, {})}
        else:
            taken, self._eligible = self._eligible, {}  # not emptied: what was deleted of a dict is walked over too
        for topic_id, numbers in taken.items():
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
        """A reference to nothing: an error, unless it may have been in a gap."""
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
    """A broker behind a record about it. Source: Kafka's ClusterDelta."""
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
    """The state after the newest complete snapshot and the log behind it, and what could not be read.

    ``snapshots``: (end offset, records), the newest first; those without their footer are passed over. ``log`` in order
    of offsets; ``earlier``, the state before its first record, follows all of it, for who listens to its changes.
    Cost: every record once, no-ops too. Of records that could not be read :data:`MOST_NAMED` are named, and as many of
    a vendor's. Source: Kafka's MetadataImage and its deltas.
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
    """Records that could not be read, and those of vendors. Of both one stands for all beyond :data:`MOST_NAMED`."""

    def __init__(self) -> None:
        self.errors: list[DecodeError] = []
        self.of_vendors: list[DecodeError] = []
        self.more = {"limit": 0, VENDOR: 0}

    def note(self, problem: Problem | None, entry: MetadataEntry) -> None:
        """Adds one, if there is one."""
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
    """Set a setting, or with None delete it and the entity that then has none."""
    if value is not None:
        configs.setdefault(entity, {})[name] = value
        return
    configs.get(entity, {}).pop(name, None)
    if not configs.get(entity, True):
        del configs[entity]
