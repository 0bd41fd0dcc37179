"""Where all groups of the input go on reading, brought together by the logs that they read."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from auditor.base.at_rest import Fields
from auditor.facts.events import Kind
from auditor.facts.offsets import CONSUMER, SHARE, Position
from auditor.facts.replica_facts import ReplicaFacts
from auditor.pipeline.tables.read_cluster import Log, ReadCluster
from auditor.replay.reading.task import ReplicaTask
from auditor.rules.lib.evidence import watched
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import LogView

if TYPE_CHECKING:
    from auditor.pipeline.runner import Audited


def clusters_for(audit: Audited, tables: Collection[str]) -> dict[str, Cluster]:
    """What the derived ones of some tables have to know of the clusters of an audit."""
    return read_clusters(audit) if "lag" in tables else audit.clusters


def read_clusters(audit: Audited, only: Collection[Log] | None = None) -> dict[str, Cluster]:
    """The clusters of an audit with who reads them, or some of their logs. Cost: a pass over the facts of all replicas;
    the positions are held by the driver and sent to all who ask, some hundred bytes each."""
    found: dict[str, ReadCluster] = {}
    for key, cluster in audit.clusters.items():
        found[key] = ReadCluster(**{f.name: getattr(cluster, f.name) for f in dataclasses.fields(cluster)})
    names = {key: _names(cluster) for key, cluster in found.items()}
    for _, row in audit.runner.judge(audit.replicas, audit.clusters, positions_of):
        key, coordinator = row.pop("join_key"), (row.pop("coordinator"), row.pop("coordinator_partition"))
        at = Position(**row | {"settled": tuple((first, last) for first, last in row["settled"])})
        at = at._replace(topic=at.topic or names[key].get(at.topic_id or "", at.topic_id))
        log = (at.topic or "", at.partition)
        if only is not None and log not in only:
            continue
        cluster = found[key]
        if log in cluster.bounds:
            cluster.positions.setdefault(log, []).append(at)
        elif cluster.scope.wants_log(*log):
            cluster.elsewhere.setdefault(coordinator, []).append(at)
    for key, cluster in found.items():
        cluster.tasks = _tasks(audit, key, cluster.positions)
        for some in (*cluster.positions.values(), *cluster.elsewhere.values()):
            some.sort(key=lambda p: (p.group_id, p.kind, p.topic or "", p.partition))
    return {**found}


def _names(cluster: Cluster) -> dict[str, str]:
    return {b.topic_id: topic for (topic, _), b in cluster.bounds.items() if b.topic_id is not None}


def _tasks(audit: Audited, key: str, read: dict[Log, list[Position]]) -> dict[tuple[str, str, int], ReplicaTask]:
    """The tasks of all replicas of the logs that somebody reads, without what only the first reading needs."""
    return {
        (t.replica.log_dir, t.replica.topic or "", t.replica.partition or 0): dataclasses.replace(t, resume_point=b"")
        for t in audit.tasks
        if isinstance(t, ReplicaTask)
        and t.join_key == key
        and (t.replica.topic or "", t.replica.partition or 0) in read
    }


def positions_of(replicas: list[ReplicaFacts], cluster: Cluster) -> Iterator[tuple[str, Fields]]:
    """The positions that one log of a coordinator has; none for other logs."""
    if replicas[0].topic not in ("__consumer_offsets", "__share_group_state"):
        return
    log = LogView(replicas, cluster)
    if log.is_gone:
        return
    of = log.leader
    damaged = of.lost_at >= 0 or of.ends_early or of.absent or of.unreadable_records
    sure = not damaged and next(iter(log.events(Kind.CRC)), None) is None
    for at in (*_consumers(log), *_shares(log)):
        said = {"join_key": log.leader.join_key, "coordinator": log.topic, "coordinator_partition": log.partition}
        yield "position", at._replace(sure=sure)._asdict() | said


def _consumers(log: LogView) -> Iterator[Position]:
    seen, broker = watched(log), log.leader.broker_id
    if seen is None:
        return
    waiting = {(c.place.group, c.topic, c.partition): c for some in seen.pending.values() for c in some}
    for c in seen.in_force.all():
        later = waiting.pop((c.place.group, c.topic, c.partition), None)
        pending = -1 if later is None else later.value
        yield Position(c.topic, c.partition, c.place.group, CONSUMER, c.value, c.time, broker, pending)
    for c in waiting.values():
        yield Position(c.topic, c.partition, c.place.group, CONSUMER, -1, c.time, broker, c.value)


def _shares(log: LogView) -> Iterator[Position]:
    broker = log.leader.broker_id
    for s in log.leader.share_offsets:
        yield Position(
            None, s.partition, s.group_id, SHARE, s.start_offset, s.time, broker, settled=s.settled, topic_id=s.topic_id
        )
