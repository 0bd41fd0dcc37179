"""The state of a running cluster for a rehearsal."""

from __future__ import annotations

from collections.abc import Mapping

from auditor.base.errors import setting_number
from auditor.connectors.live import live_cluster
from auditor.connectors.live.live_cluster import BrokerFeatures, LiveCluster, PartitionMetadata
from auditor.model import policies
from auditor.model.leader_election import ElectionState
from auditor.model.rehearsal import ClusterState, OpenWork, RehearsedBroker
from auditor.model.transaction_states import PREPARED
from auditor.pipeline.rehearsal_table import ELR_FEATURE, SESSION_MS, split_names
from auditor.rules.seen.cluster_view import MIN_IN_SYNC, UNCLEAN

MOST_DESCRIBED = 10_000  # open transactions of one coordinator
LEVEL = "metadata.version"
LAST_ZOOKEEPER = policies.ReleaseEvidence(below=(4, 0))


def state_by_cluster(cluster: LiveCluster, now: int) -> tuple[str | None, ClusterState]:
    """Ask a running cluster for its id and its state. ``now``: the time before the first request, ms.

    Cost: a request for the metadata, for topics' settings and for the quorum, some per broker, and one for 2,000
    partitions where ELR is in force.
    """
    cluster_id, up, logs = cluster.metadata()
    racks, controller = cluster.racks()
    quorum = cluster.quorum()
    features = {broker: cluster.features(broker) for broker in up}
    kraft = quorum is not None or any(LEVEL in f.finalized for f in features.values())
    elr_enabled = any(f.finalized.get(ELR_FEATURE, 0) > 0 for f in features.values())
    eligible = cluster.eligible({log.topic for log in logs}) if elr_enabled else {}
    listed, groups = cluster.transactions(up, MOST_DESCRIBED), cluster.groups(up)
    open_states = ("Ongoing", *PREPARED)
    work = [OpenWork(name, split_names(t.partitions)) for name, t in (listed or {}).items() if t.state in open_states]
    topics = cluster.configs(live_cluster.TOPIC, sorted({log.topic for log in logs}))
    unknown = {
        "the controllers are unknown": kraft and quorum is None,
        "eligible leader replicas are unknown": eligible is None,
        "open transactions are unknown: not all coordinators list them": listed is None,
        "groups are unknown: not all coordinators list them": groups is None,
        "the settings of some topics are unknown: Kafka's defaults stand in for them": any(
            log.topic not in topics for log in logs
        ),
    }
    return cluster_id, ClusterState(
        brokers=_brokers(cluster, up, logs, racks, features, kraft=kraft),
        partitions={
            log.name: _partition(log, topics.get(log.topic, {}), (eligible or {}).get(log.name)) for log in logs
        },
        transactions=None if listed is None else work,
        groups=groups,
        voters=() if quorum is None else quorum.voters,
        lost_voters=() if quorum is None else quorum.gone,
        controller=quorum.leader if quorum is not None else None if kraft else controller,
        elr_enabled=elr_enabled,
        unknown=tuple(says for says, so in unknown.items() if so),
        time=now,
    )


def _partition(
    log: PartitionMetadata, settings: Mapping[str, str], eligible: tuple[tuple[int, ...], tuple[int, ...]] | None
) -> ElectionState:
    elr, last_known = eligible or ((), ())
    least = setting_number(settings.get(MIN_IN_SYNC)) or 1
    return ElectionState(log.replicas, log.isr, log.leader, elr, last_known, least, settings.get(UNCLEAN) == "true")


def _brokers(
    cluster: LiveCluster, up: list[int], logs: list[PartitionMetadata], racks: Mapping[int, str | None],
    features: Mapping[int, BrokerFeatures], *, kraft: bool,
) -> dict[int, RehearsedBroker]:  # fmt: skip
    """Return the brokers that are up, and those that only assignments name, which are not."""
    name, default = SESSION_MS[kraft]
    brokers = {broker: RehearsedBroker(up=False) for log in logs for broker in log.replicas if broker not in up}
    for broker in up:
        settings = cluster.configs(live_cluster.BROKER, [str(broker)], broker).get(str(broker), {})
        levels = features[broker]
        release = policies.shown_by_levels(levels.finalized.get(LEVEL, 0), levels.supported.get(LEVEL, 0))
        release = release if kraft else release.also(LAST_ZOOKEEPER)
        session = setting_number(settings.get(name))
        brokers[broker] = RehearsedBroker(True, racks.get(broker), default if session is None else session, release)
    return brokers
