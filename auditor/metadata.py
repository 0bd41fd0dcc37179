"""What ``__cluster_metadata`` tells of each cluster, read on the driver before anything else: the audit's settings.

A metadata log is small beside the data (a snapshot and the log behind it). Each log directory that has one is read; of
a cluster the one that goes furthest counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from connectors import schema
from connectors.arrow import from_rows
from connectors.codec.cluster_metadata import ClusterMetadata, MetadataEntry, fold_metadata
from connectors.codec.records import records_of
from connectors.codec.segment import read_segment
from connectors.errors import DecodeError
from connectors.files import Copy, Inventory, LogDir
from connectors.limits import Limits
from connectors.storage import open_file

METADATA_TOPIC = "__cluster_metadata"
CONTROL = 0x20

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


def read_settings(
    inventory: Inventory, limits: Limits
) -> tuple[dict[str, ClusterSettings], list[tuple[str, DecodeError]]]:
    """Settings of every cluster by join key, and what could not be read as (log_dir, error)."""
    clusters: dict[str, ClusterSettings] = {}
    errors: list[tuple[str, DecodeError]] = []
    for log_dir in inventory.log_dirs:
        cluster = clusters.setdefault(log_dir.join_key, ClusterSettings())
        for copy in log_dir.copies:
            if copy.topic == METADATA_TOPIC:
                errors += [(log_dir.name, e) for e in _read(cluster, log_dir, copy, limits)]
    for log_dir in inventory.log_dirs:
        _add_configs(clusters[log_dir.join_key], log_dir)
    return clusters, errors


def _read(cluster: ClusterSettings, log_dir: LogDir, copy: Copy, limits: Limits) -> list[DecodeError]:
    newest, lost = [-1], [False]
    snapshots = sorted((f for f in copy.others if f.kind == "checkpoint"), key=lambda f: -f.offset)
    log = _entries(log_dir, [s.name for s in copy.segments], [s.size for s in copy.segments], limits, newest, lost)
    older = ((f.offset, _entries(log_dir, [f.name], [f.size], limits, newest, lost)) for f in snapshots if f.offset > 0)
    metadata, errors = fold_metadata(older, log)
    if cluster.metadata is None or metadata.end_offset > cluster.metadata.end_offset:
        cluster.metadata, cluster.source, cluster.newest_time = metadata, log_dir, newest[0]
        cluster.topic_configs, cluster.whole = metadata.topic_configs, not lost[0]
    return errors


def _entries(
    log_dir: LogDir, names: list[str], sizes: list[int], limits: Limits, newest: list[int], lost: list[bool]
) -> Iterator[MetadataEntry]:
    """The records of files in order; bytes that are no batch are told when the copy itself is audited."""
    for name, size in zip(names, sizes, strict=True):
        f = open_file(log_dir.place, name)
        if isinstance(f, DecodeError):
            lost[0] = True
            continue
        try:
            for chunk in read_segment(f, size, file=name, limits=limits, raw=True):
                b = chunk.batches
                lost[0] |= any(e.reason not in ("truncated", "zero_filled") for e in chunk.errors)
                if len(b.position):
                    newest[0] = max(newest[0], int(b.max_timestamp.max()))
                for i, record in records_of(chunk.raw or [], b, file=name, limits=limits):
                    if not isinstance(record, DecodeError):
                        control = bool(b.attributes[i] & CONTROL)
                        place = (name, int(b.position[i]), int(b.size[i]), control, record.offset, record.timestamp)
                        yield MetadataEntry(*place, record.key, record.value)
        finally:
            f.close()


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
        "partitions": [
            (
                p.topic,
                p.partition,
                p.topic_id,
                list(p.replicas),
                list(p.isr),
                p.leader,
                p.leader_epoch,
                p.partition_epoch,
            )
            for p in sorted(m.partitions.values(), key=lambda p: (p.topic, p.partition))
        ],
    }
    return {name: pa.Table.from_batches([from_rows(schema.DECODED[name], key, v)]) for name, v in rows.items()}
