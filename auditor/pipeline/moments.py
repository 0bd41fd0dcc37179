"""When files were read, and controller events about partitions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
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
from auditor.connectors.logdir.files import Inventory, LogDir, Replica
from auditor.connectors.logdir.internal_rows import MetadataLog, beginning
from auditor.connectors.stores.storage import StorageLocation
from auditor.facts.coordinator_history import LEAST_MARGIN_MS, SKEW_MS
from auditor.model.transaction_states import PREPARED
from auditor.rules.seen.cluster_view import RECOVERING, TRANSACTION_STATE, Cluster, ReadTimes
from auditor.rules.seen.view import iso
from auditor.transactions.matching import SAME_CLOCK_MS

# Time until which each file of a log directory is complete: what absence in a copy can prove.


BYTES_A_MS = 20_000  # 20 MB/s, as slow as copies are


class ReadLog(NamedTuple):
    """A replica that was read.

    ``newest``: its newest broker-written time (ms, -1: none); ``checkpoint``: its entry in
    ``replication-offset-checkpoint``; ``leader_epoch`` and ``epoch_start``: its last leader epoch and where that began;
    ``text``: from dumps.
    """

    log_dir: str
    topic: str
    partition: int
    newest: int
    text: bool
    broker_id: int | None = None
    log_end: int = -1
    checkpoint: int | None = None
    leader_epoch: int = -1
    epoch_start: int = -1


def copying_ms(size: int) -> int:
    """Return the time, in ms, that copying ``size`` bytes is assumed to take unless the input shows a longer one."""
    return min(LEAST_MARGIN_MS, SKEW_MS + size // BYTES_A_MS)


def read_at(inventory: Inventory) -> dict[tuple[str, str, int], ReadTimes]:
    """Return when each log was listed and read, by its broker's clock, as copies of running brokers record."""
    return {
        (log_dir.name, replica.topic or "", replica.partition or 0): ReadTimes(*log_dir.read_at[replica.folder], clock)
        for log_dir in inventory.log_dirs
        if log_dir.read_at and (clock := log_dir.machine or log_dir.name)
        for replica in log_dir.replicas
        if replica.folder in log_dir.read_at
    }


def contradicted(logs: Iterable[ReadLog], readings: Mapping[tuple[str, str, int], ReadTimes]) -> dict[str, str]:
    """Return log directories whose read times are ignored, and why.

    A log there has records from later than its read time, by more than two clocks differ.
    """
    contradictions: dict[str, str] = {}
    for log in logs:
        read = readings.get((log.log_dir, log.topic, log.partition))
        if read is not None and log.newest > read.done + SKEW_MS:
            what = f"{log.topic}-{log.partition} has what was written at {iso(log.newest)}"
            contradictions.setdefault(log.log_dir, f"{what}, and was read until {iso(read.done)} as the copy says")
    return contradictions


def complete_until(logs: list[ReadLog], cluster: Cluster, copying: int) -> dict[str, int]:
    """Return by log directory the time (ms) until which each of its files is complete.

    That is its newest broker-written time less the copy time: ``copying``, or more if a file shows that it was copied
    earlier. Texts are dumped by hand, one after another: 15 minutes, whatever their size.
    """
    newest: dict[str, int] = {}
    slack: dict[str, int] = {}
    for log in logs:
        newest[log.log_dir] = max(log.newest, newest.get(log.log_dir, -1))
        slack[log.log_dir] = max(LEAST_MARGIN_MS if log.text else copying, slack.get(log.log_dir, -1))
    for log_dir, before in _copied_before(logs, cluster):
        slack[log_dir] = max(slack[log_dir], newest[log_dir] - before + SAME_CLOCK_MS)
    return {log_dir: time - slack[log_dir] for log_dir, time in newest.items() if time >= 0}


def _copied_before(logs: Iterable[ReadLog], cluster: Cluster) -> Iterator[tuple[str, int]]:
    """Log directories with a file that lacks everything after a time (ms), though records were due.

    A coordinator's log lacks the decision of a marker. A controller's metadata log is written twice a second.
    """
    history = cluster.coordinator
    lacking = set() if history is None else set(history.outdated)
    for producer_id, markers in cluster.ended.items() if history is not None else ():
        entry = history.last_of_owner(producer_id) if history is not None else None
        if entry is None or entry.state in PREPARED:
            continue
        if any(time > entry.time + SKEW_MS or epoch > entry.producer_epoch for _, epoch, time, _ in markers):
            lacking.add(entry.partition)
    for log in logs:
        of_coordinator = log.topic == TRANSACTION_STATE and log.partition in lacking
        if log.newest >= 0 and (of_coordinator or log.topic == METADATA_TOPIC):
            yield log.log_dir, log.newest


def checkpointed(logs: Iterable[ReadLog]) -> dict[str, int]:
    """Return by log directory the newest broker-written time (ms) below its high watermark checkpoint.

    The checkpoint was written no earlier than that.
    """
    times: dict[str, int] = {}
    for log in logs:
        if log.checkpoint is not None and log.newest >= 0 and log.log_end <= log.checkpoint:
            times[log.log_dir] = max(log.newest, times.get(log.log_dir, -1))
    return times


def checkpoint_passes(logs: list[ReadLog], cluster: Cluster) -> dict[tuple[str, int], tuple[str, int]]:
    """Return the logs that have all that was committed when their broker wrote its checkpoint.

    The value is the log directory of that checkpoint and its time. A broker reads the high watermarks of all its
    partitions one after another, within milliseconds, and writes them: so the files of one log directory show what was
    committed at one moment, whenever each was copied. That moment is not before the newest broker-written time (ms)
    below any of them; a second is subtracted. Only logs that reach their entry count, and that this broker led by the
    metadata: a follower's watermark lags, and so does that of a new leader until it reaches the start of its epoch.
    Where nothing shows the leader, as with ZooKeeper, it is assumed to be this broker. Source:
    ReplicaManager.checkpointHighWatermarks.
    """
    led = [log for log in logs if log.checkpoint is not None and _leads(log, cluster)]
    times, out = checkpointed(led), {}
    for log in led:
        time = times.get(log.log_dir, -1) - SAME_CLOCK_MS
        if time >= 0 and log.checkpoint is not None and log.epoch_start <= log.checkpoint <= log.log_end:
            out[log.topic, log.partition] = (log.log_dir, time)
    return out


def _leads(log: ReadLog, cluster: Cluster) -> bool:
    leader = cluster.led(log.topic, log.partition, log.leader_epoch)
    return not log.text and (leader is None or leader == log.broker_id)


# Controller events about some partitions, read from ``__cluster_metadata`` once findings name them.
#
# A metadata log may have hundreds of thousands of partitions; this pass keeps what concerns a few. Source: the
# records that :mod:`auditor.connectors.logdir.internal_rows` makes a table of.


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
