"""Which partitions of the brokers in the input have no folder there: by ``__cluster_metadata``, and what is copied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from auditor.connectors.codec.cluster_metadata import PartitionState
from auditor.connectors.logdir.files import Inventory, LogDir
from auditor.pipeline.cluster.cluster_settings import ClusterSettings, Made
from auditor.pipeline.options import AuditOptions
from auditor.rules.seen.cluster_view import Absent


def in_sync(inventory: Inventory, join_key: str, settings: ClusterSettings, options: AuditOptions) -> Iterator[Absent]:
    """The replicas in sync without a folder, of one cluster, in the order of broker, topic and partition.

    Of a broker whose own metadata does not show the replica, or ends at another moment than its files, none is sure;
    nor one that its metadata may show in a tail that was never committed.
    """
    for broker, dirs in _brokers(inventory, join_key).items():
        own = settings.assigned.get(broker, {})
        until = _acted_on(dirs, own, settings)
        still = options.at_once or (broker not in settings.went_on and all(d.clean_shutdown for d in dirs))
        for p in _without_folder(broker, dirs, settings, options):
            at = (p.topic_id, p.partition)
            had_all = tuple(dict.fromkeys((*p.isr, *p.elr, *settings.stopped.get(at, ()))))
            if broker in had_all:
                known = at in own and (own[at][0] <= until[0] or own[at][1] == until[1])
                yield Absent(p.topic, p.partition, broker, had_all, still and known)


def _acted_on(dirs: list[LogDir], own: Made, settings: ClusterSettings) -> tuple[int, int]:
    """Offset and time (ms) of a record of its own metadata that a broker has seen committed, the last that is known: it
    made a folder for it, or a majority of the voters has it."""
    folders = [
        own.get((c.topic_id, c.partition)) for d in dirs for c in d.replicas if c.topic_id and c.partition is not None
    ]
    voted = max((settings.committed.get(d.name, 0) for d in dirs), default=0) - 1
    return max([made for made in folders if made is not None] + [(voted, -1)])


def counts(
    inventory: Inventory, settings: Mapping[str, ClusterSettings], options: AuditOptions
) -> Iterator[tuple[int, int, int]]:
    """Each broker of which not all partitions are in the input, with how many are not, of how many."""
    for join_key, known in settings.items():
        for broker, dirs in _brokers(inventory, join_key).items():
            if lacking := len(_without_folder(broker, dirs, known, options)):
                yield broker, lacking, len(_assigned(broker, known, options))


def _brokers(inventory: Inventory, join_key: str) -> dict[int, list[LogDir]]:
    found: dict[int, list[LogDir]] = {}
    for d in inventory.log_dirs:
        if d.join_key == join_key and d.broker_id is not None and d.meta is not None:
            found.setdefault(d.broker_id, []).append(d)
    return dict(sorted(found.items()))


def _assigned(broker: int, settings: ClusterSettings, options: AuditOptions) -> list[PartitionState]:
    partitions = settings.metadata.partitions.values() if settings.metadata is not None and settings.whole else ()
    return [p for p in partitions if broker in p.replicas and options.scope.wants(p.topic, p.partition, broker)]


def _without_folder(
    broker: int, dirs: list[LogDir], settings: ClusterSettings, options: AuditOptions
) -> list[PartitionState]:
    there = {(c.topic, c.partition, c.topic_id) for d in dirs for c in d.replicas}  # of a removed topic: is none
    lacking = (
        p
        for p in _assigned(broker, settings, options)
        if there.isdisjoint(((p.topic, p.partition, p.topic_id), (p.topic, p.partition, None)))
    )
    return sorted(lacking, key=lambda p: (p.topic, p.partition))
