"""What the cluster did to some partitions, in words: read from ``__cluster_metadata`` once findings name them.

A metadata log may tell of hundreds of thousands of partitions; this pass keeps what concerns a few. Source: the records
that :mod:`auditor.connectors.tables.internal_rows` makes a table of.
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
from auditor.connectors.logdir.files import LogDir, Replica
from auditor.connectors.logdir.names import METADATA_TOPIC
from auditor.connectors.stores.storage import Place
from auditor.connectors.tables.internal_rows import MetadataLog, beginning
from auditor.rules.seen.cluster_view import RECOVERING
from auditor.rules.seen.view import iso

MAX_PARTITIONS = 50  # that findings name, the most severe first
MAX_EVENTS = 60  # of a partition, the newest


class EventsTask(NamedTuple):
    """A replica of ``__cluster_metadata``, and the partitions to tell of."""

    place: Place
    replica: Replica
    wanted: tuple[tuple[str, int], ...]
    limits: Limits


def tasks_of(source: LogDir | None, named: list[tuple[str, int]], limits: Limits) -> list[EventsTask]:
    """What there is to read for the first :data:`MAX_PARTITIONS` of the partitions that are named; ``source``: the log
    directory whose metadata counts."""
    wanted = tuple(named[:MAX_PARTITIONS])
    replicas = source.replicas if source is not None and wanted else ()
    return [
        EventsTask(source.place, replica, wanted, limits)
        for replica in replicas
        if source is not None and replica.topic == METADATA_TOPIC
    ]


def read_events(task: EventsTask) -> list[Fields]:
    """A row a partition: ``topic``, ``partition``, ``events`` (oldest first; each with ``time``, ISO 8601 or null of a
    snapshot, ``metadata_offset`` and ``says``), and ``left_out``, how many older ones are not in it.

    Cost: every record of the log once more; memory: the metadata's state.
    """
    told = _Told(task.wanted)
    reading = MetadataLog(task.place, task.replica, task.limits)
    told.metadata, changes = beginning(reading)
    for change in changes:
        told.take(change)
    told.metadata.on_change = told.take
    for entry in reading.log():
        told.metadata.log_entry(entry)
    return told.rows()


class _Told:
    """The events so far, by partition."""

    def __init__(self, wanted: tuple[tuple[str, int], ...]) -> None:
        self.events: dict[tuple[str, int], deque[Fields]] = {at: deque(maxlen=MAX_EVENTS) for at in wanted}
        self.counts = dict.fromkeys(wanted, 0)
        self.replicas: dict[tuple[str, int], tuple[int, ...]] = {}
        self.brokers: dict[int, BrokerState] = {}
        self.metadata = ClusterMetadata()

    def rows(self) -> list[Fields]:
        """What :func:`read_events` gives."""
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
        """A change, if it concerns one of the partitions."""
        fields, topic = change.record.fields, change.topic
        if change.partition is not None:
            at = (change.partition.topic, change.partition.partition)
            if at in self.events:
                self.replicas[at] = change.partition.replicas
                self._add(at, change, _of_partition(change.partition, change.before))
        elif change.broker is not None:
            says = self._of_broker(change.record.name, change.broker)
            for at in [at for at, replicas in self.replicas.items() if change.broker.broker_id in replicas]:
                self._add(at, change, says)
        elif change.record.name == "ConfigRecord" and fields["resourceType"] == TOPIC_RESOURCE:
            value = "no longer set" if fields["value"] is None else f"set to {fields['value']}"
            self._of_topic(fields["resourceName"], change, f"topic setting {fields['name']} {value}")
        elif topic is not None:
            what = "created" if change.record.name == "TopicRecord" else "removed"
            self._of_topic(topic, change, f"topic {what} (id {fields['topicId']})")

    def _of_topic(self, topic: str, change: Change, says: str) -> None:
        for at in [at for at in self.events if at[0] == topic]:
            self._add(at, change, says)

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

    def _add(self, at: tuple[str, int], change: Change, says: str) -> None:
        if says:
            self.counts[at] += 1
            time = None if change.timestamp is None else iso(change.timestamp)
            self.events[at].append({"time": time, "metadata_offset": change.offset, "says": says})


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
