"""What ``__cluster_metadata`` tells of each cluster, read before anything else: the audit's settings.

A metadata log is small beside the data (a snapshot and the log behind it). Each log directory that has one is read,
where the driver runs but in a process apart, which it may kill; of a cluster the one that goes furthest counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from auditor.base.errors import DecodeError
from auditor.base.limits import Limits
from auditor.connectors import schema
from auditor.connectors.arrow import from_rows
from auditor.connectors.codec.cluster_metadata import ClusterMetadata, PartitionState, fold_metadata
from auditor.connectors.files import Copy, Inventory, LogDir
from auditor.connectors.metadata_log import MetadataLog
from auditor.connectors.storage import Place
from auditor.pipeline.isolation import read_apart

METADATA_TOPIC = "__cluster_metadata"

# Broker-level names of topic settings (formats 10.2); the rest have the same name at both levels.
BROKER_NAMES = {
    "cleanup.policy": "log.cleanup.policy",
    "message.timestamp.type": "log.message.timestamp.type",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "max.message.bytes": "message.max.bytes",
    "segment.bytes": "log.segment.bytes",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "preallocate": "log.preallocate",
}


@dataclass
class ClusterSettings:
    """Settings of one cluster: topics', brokers' (entity "" is the default of all), and the metadata they came from.

    ``whole``: all of that metadata could be read.
    """

    metadata: ClusterMetadata | None = None
    whole: bool = False
    source: LogDir | None = None
    newest_time: int = -1
    topic_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)

    def topic_setting(self, topic: str, name: str, broker_id: int | None = None) -> str | None:
        """A topic's effective setting: its own, the broker's, or the cluster's default; None where none tells."""
        own = self.topic_configs.get(topic, {}).get(name)
        if own is not None:
            return own
        at_broker = BROKER_NAMES.get(name, name)
        for entity in (str(broker_id), ""):
            value = self.broker_configs.get(entity, {}).get(at_broker)
            if value is not None:
                return value
        return None


class MetadataTask(NamedTuple):
    """A copy of ``__cluster_metadata`` to read."""

    place: Place
    copy: Copy
    limits: Limits


class MetadataRead(NamedTuple):
    """What a copy of it tells: ``whole`` if all of it could be read, the newest time in ms (-1: none), the errors."""

    metadata: ClusterMetadata
    whole: bool
    newest_time: int
    errors: list[DecodeError]


def read_settings(
    inventory: Inventory, limits: Limits, *, apart: bool = False
) -> tuple[dict[str, ClusterSettings], list[tuple[str, DecodeError]]]:
    """Settings of every cluster by join key, and what could not be read as (log_dir, error).

    ``apart``: read in another process (:mod:`auditor.pipeline.isolation`). Nothing is started where there is nothing
    to read.
    """
    clusters = {log_dir.join_key: ClusterSettings() for log_dir in inventory.log_dirs}
    found = [(d, c) for d in inventory.log_dirs for c in d.copies if c.topic == METADATA_TOPIC]
    tasks = [MetadataTask(log_dir.place, copy, limits) for log_dir, copy in found]
    errors: list[tuple[str, DecodeError]] = []
    for (log_dir, _), read in zip(
        found, read_apart(tasks, read_metadata) if apart else map(read_metadata, tasks), strict=True
    ):
        _take(clusters[log_dir.join_key], log_dir, read)
        errors += [(log_dir.name, error) for error in read.errors]
    for log_dir in inventory.log_dirs:
        _add_configs(clusters[log_dir.join_key], log_dir)
    return clusters, errors


def _take(cluster: ClusterSettings, log_dir: LogDir, read: MetadataRead) -> None:
    if cluster.metadata is None or read.metadata.end_offset > cluster.metadata.end_offset:
        cluster.metadata, cluster.source, cluster.newest_time = read.metadata, log_dir, read.newest_time
        cluster.topic_configs, cluster.whole = read.metadata.topic_configs, read.whole


def read_metadata(task: MetadataTask) -> MetadataRead:
    """Reads one copy: its newest snapshot that is complete, and the log behind it."""
    reading = MetadataLog(*task)
    snapshots = ((file.offset, reading.snapshot(file)) for file in reading.snapshots())
    metadata, errors = fold_metadata(snapshots, reading.log())
    return MetadataRead(metadata, not reading.lost, reading.newest, reading.unopened + errors)


def _add_configs(cluster: ClusterSettings, log_dir: LogDir) -> None:
    """Dynamic settings win over the broker's own file, as on a broker."""
    if not cluster.broker_configs and cluster.metadata is not None:
        for entity, settings in cluster.metadata.broker_configs.items():
            shown = {k: v for k, v in settings.items() if v is not None}
            cluster.broker_configs[entity] = shown
    own = cluster.broker_configs.setdefault(str(log_dir.broker_id), {})
    default = cluster.broker_configs.get("", {})
    for name, value in log_dir.configs.items():
        if name not in own and name not in default:
            own[name] = value


def tables(cluster: ClusterSettings) -> dict[str, pa.Table]:
    """``topics``, ``topic_configs``, ``broker_configs`` and ``partitions`` of one cluster."""
    if cluster.metadata is None or cluster.source is None:
        return {}
    m, d = cluster.metadata, cluster.source
    key = (d.cluster_id, d.broker_id, d.name)
    rows: dict[str, list[tuple[Any, ...]]] = {
        "topics": [(name, topic_id) for name, topic_id in sorted(m.topics.items())],
        "topic_configs": [(t, n, v) for t, c in sorted(m.topic_configs.items()) for n, v in sorted(c.items())],
        "broker_configs": [(e, n, v) for e, c in sorted(cluster.broker_configs.items()) for n, v in sorted(c.items())],
        "partitions": [_partition(p) for p in sorted(m.partitions.values(), key=lambda p: (p.topic, p.partition))],
    }
    return {name: pa.Table.from_batches([from_rows(schema.DECODED[name], key, v)]) for name, v in rows.items()}


def _partition(p: PartitionState) -> tuple[Any, ...]:
    known = 0 <= p.recovery_state < len(schema.RECOVERY_STATES)
    lists = (p.adding, p.removing, p.elr, p.last_known_elr)
    place = (p.topic, p.partition, p.topic_id, p.replicas, p.isr, p.leader, p.leader_epoch, p.partition_epoch)
    return (*place, *lists, schema.RECOVERY_STATES[p.recovery_state] if known else None)
