"""Controller events about some partitions, read from ``__cluster_metadata`` once findings name them.

A metadata log may have hundreds of thousands of partitions; this pass keeps what concerns a few.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from auditor.base.at_rest import Fields
from auditor.base.errors import Limits
from auditor.connectors.codec.cluster_metadata import (
    TOPIC_RESOURCE,
    BrokerState,
    Change,
    ClusterMetadata,
    PartitionState,
)
from auditor.connectors.kafka_names import METADATA_TOPIC
from auditor.connectors.logdir.files import LogDir, Replica
from auditor.connectors.logdir.internal_rows import MetadataLog, beginning
from auditor.connectors.stores.storage import StorageLocation
from auditor.rules.seen.cluster_view import RECOVERING
from auditor.rules.seen.view import iso

MAX_PARTITIONS = 50  # that findings name, the most severe first
MAX_EVENTS = 60  # of a partition, the newest


class EventsTask(NamedTuple):
    """A replica of ``__cluster_metadata``, and the partitions to report on."""

    place: StorageLocation
    replica: Replica
    wanted: tuple[tuple[str, int], ...]
    limits: Limits


def tasks_of(source: LogDir | None, named: list[tuple[str, int]], limits: Limits) -> list[EventsTask]:
    """Return the replicas to read for the first :data:`MAX_PARTITIONS` of the named partitions.

    ``source``: the log directory whose metadata counts.
    """
    wanted = tuple(named[:MAX_PARTITIONS])
    replicas = source.replicas if source is not None and wanted else ()
    return [
        EventsTask(source.place, replica, wanted, limits)
        for replica in replicas
        if source is not None and replica.topic == METADATA_TOPIC
    ]


def read_events(task: EventsTask) -> list[Fields]:
    """Return a row per partition: ``topic``, ``partition``, ``events``, and ``left_out``, the number of older events.

    Each event, oldest first, has ``time`` (ISO 8601, null in a snapshot), ``metadata_offset`` and ``says``. Cost: every
    record of the log once more; memory: the metadata's state.
    """
    events = _EventsByPartition(task.wanted)
    reading = MetadataLog(task.place, task.replica, task.limits)
    events.metadata, changes = beginning(reading)
    for change in changes:
        events.take(change)
    events.metadata.on_change = events.take
    for entry in reading.log():
        events.metadata.log_entry(entry)
    return events.rows()


class _EventsByPartition:
    def __init__(self, wanted: tuple[tuple[str, int], ...]) -> None:
        self.events: dict[tuple[str, int], deque[Fields]] = {key: deque(maxlen=MAX_EVENTS) for key in wanted}
        self.counts = dict.fromkeys(wanted, 0)
        self.replicas: dict[tuple[str, int], tuple[int, ...]] = {}
        self.brokers: dict[int, BrokerState] = {}
        self.metadata = ClusterMetadata()

    def rows(self) -> list[Fields]:
        """Return the rows of :func:`read_events`."""
        return [
            {
                "topic": topic,
                "partition": partition,
                "events": list(events),
                "left_out": self.counts[topic, partition] - len(events),
            }
            for (topic, partition), events in self.events.items()
            if events
        ]

    def take(self, change: Change) -> None:
        """Add a change if it concerns one of the partitions."""
        fields, topic = change.record.fields, change.topic
        if change.partition is not None:
            key = (change.partition.topic, change.partition.partition)
            if key in self.events:
                self.replicas[key] = change.partition.replicas
                self._add(key, change, _of_partition(change.partition, change.before))
        elif change.broker is not None:
            says = self._of_broker(change.record.name, change.broker)
            for key in [key for key, replicas in self.replicas.items() if change.broker.broker_id in replicas]:
                self._add(key, change, says)
        elif change.record.name == "ConfigRecord" and fields["resourceType"] == TOPIC_RESOURCE:
            value = "no longer set" if fields["value"] is None else f"set to {fields['value']}"
            self._of_topic(fields["resourceName"], change, f"topic setting {fields['name']} {value}")
        elif topic is not None:
            what = "created" if change.record.name == "TopicRecord" else "removed"
            self._of_topic(topic, change, f"topic {what} (id {fields['topicId']})")

    def _of_topic(self, topic: str, change: Change, says: str) -> None:
        for key in [key for key in self.events if key[0] == topic]:
            self._add(key, change, says)

    def _of_broker(self, record: str, state: BrokerState) -> str:
        before = self.brokers.get(state.broker_id)
        self.brokers[state.broker_id] = state
        who = f"broker {state.broker_id}"
        if record == "UnregisterBrokerRecord":
            return f"{who} unregistered"
        if record == "RegisterBrokerRecord":
            return f"{who} registered, broker epoch {state.broker_epoch}" + (", fenced" if state.fenced else "")
        parts = []
        if before is None or before.fenced != state.fenced:
            parts.append("fenced" if state.fenced else "unfenced")
        if state.in_controlled_shutdown and (before is None or not before.in_controlled_shutdown):
            parts.append("shutting down")
        return f"{who} {', '.join(parts)}" if parts else ""

    def _add(self, key: tuple[str, int], change: Change, says: str) -> None:
        if says:
            self.counts[key] += 1
            time = None if change.timestamp is None else iso(change.timestamp)
            self.events[key].append({"time": time, "metadata_offset": change.offset, "says": says})


def _of_partition(state: PartitionState, before: PartitionState | None) -> str:
    if before is None:
        return f"{_led(state.leader)}, leader epoch {state.leader_epoch}, in sync {_brokers(state.isr)}"
    parts = []
    if state.leader != before.leader:
        parts.append(f"{_led(state.leader)} (before: {_led(before.leader)}), leader epoch {state.leader_epoch}")
    elif state.leader_epoch != before.leader_epoch:
        parts.append(f"{_led(state.leader)} as before, leader epoch {state.leader_epoch}")
    if state.isr != before.isr:
        parts.append(f"in sync {_brokers(state.isr)} (before: {_brokers(before.isr)})")
    if state.elr != before.elr:
        parts.append(f"eligible {_brokers(state.elr)} (before: {_brokers(before.elr)})")
    if state.recovery_state == RECOVERING != before.recovery_state:
        parts.append("elected without being in sync (recovering)")
    if state.adding or state.removing:
        if (state.adding, state.removing) != (before.adding, before.removing):
            parts.append(f"being moved: to {_brokers(state.adding)}, away from {_brokers(state.removing)}")
    elif before.adding or before.removing:
        parts.append(f"moved: replicas {_brokers(state.replicas)}")
    return "; ".join(parts)


def _led(leader: int) -> str:
    return "no leader" if leader < 0 else f"leader {leader}"


def _brokers(brokers: tuple[int, ...]) -> str:
    return ", ".join(map(str, brokers)) or "nobody"
