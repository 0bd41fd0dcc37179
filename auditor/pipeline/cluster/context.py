"""What is known of each cluster beyond a single log, put together from the replicas' facts for the rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np

from auditor.base.numbers import setting_number
from auditor.connectors.codec.cluster_metadata import ClusterMetadata, PartitionState
from auditor.pipeline.cluster import moments
from auditor.pipeline.cluster.brief import (
    NOTHING_ENDED,
    NOTHING_UNDECIDED,
    TRANSACTION_STATE,
    Brief,
)
from auditor.pipeline.cluster.cluster_settings import ClusterSettings
from auditor.rules.seen.cluster_view import (
    MIN_IN_SYNC,
    SHUTTING_DOWN,
    UP,
    Alone,
    Bounds,
    Cluster,
    Incarnations,
    Known,
    Offline,
    Read,
    standing,
    topic_ids,
)
from auditor.rules.seen.coordinator_history import SKEW_MS, CoordinatorHistory, StartsLate, join
from auditor.rules.transactions.windows import SAME_CLOCK_MS

ReadAt = dict[tuple[str, str, int], Read]  # by log directory, topic and partition
MOST_OPEN_IN_ALL = 500_000  # open transactions known everywhere
MOST_NAMED = 20  # brokers that are up, of an offline partition


def leaders(briefs: Sequence[Brief], cluster: Cluster) -> dict[tuple[str, int], Brief]:
    """The leader replica of each log of one cluster."""
    chosen: dict[tuple[str, int], Brief] = {}
    reach: dict[tuple[str, int], int] = {}
    for b in briefs:
        reach[b.topic, b.partition] = max(b.settled_end, reach.get((b.topic, b.partition), 0))

    def order(b: Brief) -> tuple[object, ...]:
        broker = (1, -b.broker_id) if b.broker_id is not None else (2, 0)
        at, named = reach[b.topic, b.partition], cluster.last_leader(b.topic, b.partition)
        return (*standing(b.rank, b.settled_end, at, b.broker_id, named), broker)

    for b in sorted(briefs, key=lambda b: b.log_dir):
        at = (b.topic, b.partition)
        if at not in chosen or order(b) > order(chosen[at]):
            chosen[at] = b
    return chosen


def build(
    briefs: list[Brief],
    settings: dict[str, ClusterSettings],
    as_of: int | None,
    copying: int = 0,
    at_once: bool = False,
    read_at: ReadAt | None = None,
) -> dict[str, Cluster]:
    """The context of every cluster by join key. ``as_of``: ms, None for the newest broker-written time of the input.

    ``copying``: how long, in ms, copying a log directory may have taken; ``at_once``: all is of one moment.
    ``read_at``: when logs were read by the clock of their broker, as far as copies say.
    """
    newest = max([b.broker_time for b in briefs], default=-1)
    since_set = newest - max([b.went_back for b in briefs], default=0)  # the newest may be of before a clock was set
    clock = as_of if as_of is not None else (since_set if newest >= 0 else max([b.any_time for b in briefs], default=0))
    out = {}
    for key in dict.fromkeys(b.join_key for b in briefs):
        mine = [b for b in briefs if b.join_key == key]
        out[key] = _cluster(mine, settings.get(key, ClusterSettings()), clock, newest, copying, read_at or {})
        out[key].clock_given, out[key].at_once = as_of is not None, at_once
    return out


def _cluster(
    briefs: list[Brief],
    settings: ClusterSettings,
    as_of: int,
    newest: int,
    copying: int,
    read_at: ReadAt,
) -> Cluster:
    cluster = Cluster(as_of, newest, abort_indexes=any(b.abort_indexes for b in briefs))
    cluster.topic_configs, cluster.broker_configs = settings.topic_configs, settings.broker_configs
    cluster.releases, cluster.remote, cluster.directory_ids = settings.releases, settings.remote, settings.directory_ids
    cluster.unknown_settings, cluster.of_files, cluster.levels = settings.unknown, settings.of_files, settings.levels
    cluster.voters = settings.voters
    metadata = settings.metadata
    copies = [Known(b.topic, b.bounds.topic_id, b.broker_time) for b in briefs]
    current = {} if metadata is None else metadata.topics
    ids = topic_ids(copies, current, settings.removed, settings.newest_time)
    cluster.incarnations = Incarnations(ids, settings.removed)
    briefs = [b for b in briefs if not cluster.incarnations.is_of_another(b.topic, b.bounds.topic_id)]
    if metadata is not None:
        _by_metadata(cluster, settings, metadata)
    leading = leaders(briefs, cluster)
    cluster.alone = _alone(cluster, leading)
    cluster.went_on = settings.went_on
    cluster.unverified = {f"{topic}-{number}": b.unverified for (topic, number), b in leading.items() if b.unverified}
    lagging = _out_of_sync(briefs, leading, metadata)
    for at in {*lagging, *(at for at, b in leading.items() if _is_earlier(b, cluster))}:
        leading[at].bounds = leading[at].bounds._replace(clean_shutdown=False, out_of_sync=True)
    cluster.until = _until(briefs, settings)
    cluster.bounds = {
        at: b.bounds._replace(until=cluster.until[b.log_dir]) if b.log_dir in cluster.until else b.bounds
        for at, b in leading.items()
    }
    undecided = np.concatenate([NOTHING_UNDECIDED, *(b.undecided for b in leading.values() if len(b.undecided))])
    left = MOST_OPEN_IN_ALL
    for (topic, partition), b in leading.items():
        if not (b.open_here or len(b.ended)):
            continue
        for producer_id, here in islice(b.open_here.items(), left):
            cluster.open_here.setdefault(producer_id, {})[f"{topic}-{partition}"] = here
        if len(b.open_here) > left:
            cluster.bounds[topic, partition] = b.bounds._replace(open_known=False)
        left = max(0, left - len(b.open_here))
        ended = b.ended[np.isin(b.ended["producer_id"], undecided)] if len(b.ended) else NOTHING_ENDED
        for producer_id, epoch, time, before, _ in ended.tolist():
            cluster.ended.setdefault(producer_id, []).append((b.broker_id, epoch, time, before))
    for topic, partition in [*cluster.leaders, *leading]:
        cluster.partition_counts[topic] = max(cluster.partition_counts.get(topic, 0), partition + 1)
    cluster.coordinator = _coordinator(cluster, [b for (topic, _), b in leading.items() if topic == TRANSACTION_STATE])
    if cluster.coordinator is not None:
        logs = [b.coordinator_log for b in briefs if b.topic == TRANSACTION_STATE and b.coordinator_log is not None]
        cluster.coordinator.damaged_copies = frozenset(p for log in logs for p in log.damaged)
    if cluster.coordinator is not None:
        cluster.coordinator.starts_late = _starts_late(cluster.coordinator, leading.values())
        cluster.coordinator.outdated = _outdated(cluster.coordinator, leading.values(), undecided, cluster.bounds)
    read = [_read_log(b) for b in briefs]
    cluster.went_back = max((b.went_back for b in briefs), default=0)
    cluster.moments = moments.settled(read, cluster, copying)
    cluster.checkpointed = moments.checkpointed(read)
    cluster.passes = moments.passes([log for log, b in zip(read, briefs, strict=True) if _is(b, leading)], cluster)
    cluster.misread = moments.contradicted(read, read_at)
    cluster.read_at = {at: known for at, known in read_at.items() if at[0] not in cluster.misread}
    for at, b in leading.items():
        known, moment = cluster.read_at.get((b.log_dir, *at)), cluster.moment(b.log_dir, *at)
        out = at in lagging if known is not None else b.bounds.out_of_sync  # of a broker that ran on it is known when
        if not (out or b.lacks_end):
            cluster.bounds[at] = cluster.bounds[at]._replace(moment=moment, read=known, out_of_sync=False)
        b.bounds = cluster.bounds[at]  # once in memory
    return cluster


def _read_log(b: Brief) -> moments.ReadLog:
    return moments.ReadLog(
        log_dir=b.log_dir,
        topic=b.topic,
        partition=b.partition,
        newest=b.broker_time,
        text=b.text,
        broker_id=b.broker_id,
        log_end=b.bounds.log_end,
        checkpoint=b.bounds.high_watermark,
        leader_epoch=b.rank[0],
        epoch_start=b.epoch_start,
    )


def _by_metadata(cluster: Cluster, settings: ClusterSettings, metadata: ClusterMetadata) -> None:
    """What the metadata says of partitions and brokers."""
    cluster.has_metadata = settings.whole
    for state in metadata.partitions.values():
        cluster.leaders[(state.topic, state.partition)] = state.leader
        cluster.replicas[(state.topic, state.partition)] = len(state.replicas)
        if not settings.whole:  # what the lost records said may have changed who is in sync
            continue
        stopped = settings.stopped.get((state.topic_id, state.partition), ())
        in_sync = dict.fromkeys((*state.isr, *state.elr, *stopped))
        cluster.in_sync[(state.topic, state.partition)] = tuple(in_sync)
        if not_in_it := in_sync.keys() - set(state.isr):
            cluster.eligible[(state.topic, state.partition)] = tuple(not_in_it)
        _note_stops(cluster, settings, metadata, state)
    cluster.made_anew, cluster.metadata_committed = dict(metadata.made_anew), settings.committed
    cluster.not_committed_from = settings.not_committed_from
    cluster.elections, cluster.leaderless = settings.elections, settings.leaderless
    # Where no broker is up, the cluster was stopped as a whole: what is prepared goes on when it starts.
    if up := tuple(sorted(number for number in metadata.brokers if _stands(metadata, number) == UP)):
        away = [p for p in metadata.partitions.values() if _away(metadata, p)]
        cluster.away = frozenset(f"{p.topic}-{p.partition}" for p in away)
        cluster.offline = {(p.topic, p.partition): _offline(metadata, p, up) for p in away if p.leader < 0}
    cluster.next_producer_id = metadata.next_producer_id() if settings.whole else None
    cluster.metadata_time = settings.newest_time
    cluster.last_leaders = {at: some[-1].leader for at, some in settings.elections.items()}


def _note_stops(cluster: Cluster, settings: ClusterSettings, metadata: ClusterMetadata, state: PartitionState) -> None:
    """What a stop of a broker in sync would do to a partition: nobody else may lead it, or too few are in sync."""
    if len(state.replicas) < 2:
        return
    if len(state.isr) == 1 and not any(_stands(metadata, b) == UP for b in state.elr if b not in state.isr):
        cluster.alone_in_sync.setdefault(state.isr[0], []).append(f"{state.topic}-{state.partition}")
    least = setting_number(settings.topic_setting(state.topic, MIN_IN_SYNC, state.leader))
    if least is not None and len(state.isr) == least > 1:
        for broker in state.isr:
            first, count = cluster.short_without.get(broker, (f"{state.topic}-{state.partition}", 0))
            cluster.short_without[broker] = first, count + 1


def _alone(cluster: Cluster, leading: dict[tuple[str, int], Brief]) -> dict[int, Alone]:
    """By broker the partitions of which it has the only replica in sync, and who wrote transactions there."""
    names: dict[int, dict[str, None]] = {}
    for (topic, partition), brokers in cluster.in_sync.items():
        if len(brokers) == 1:
            names.setdefault(brokers[0], {})[f"{topic}-{partition}"] = None
    for broker, more in cluster.alone_in_sync.items():
        names.setdefault(broker, {}).update(dict.fromkeys(more))
    of = {name: broker for broker, mine in names.items() for name in mine}
    producers: dict[int, set[int]] = {}
    for (topic, partition), b in leading.items() if of else ():
        if (at := of.get(f"{topic}-{partition}")) is not None:
            producers.setdefault(at, set()).update(b.oldest["producer_id"].tolist(), b.open_here)
    return {broker: Alone(tuple(mine), tuple(sorted(producers.get(broker, ())))) for broker, mine in names.items()}


def _until(briefs: list[Brief], settings: ClusterSettings) -> dict[str, int]:
    """The newest broker-written time (ms) of each directory, of several brokers, whose own metadata is not there: what
    other directories have of later, it may lack, for nothing shows that its broker was not started again."""
    found: dict[str, int] = {}
    if len({b.broker_id for b in briefs}) > 1:
        for b in briefs:
            if b.bounds.clean_shutdown and b.broker_id not in settings.metadata_ends:
                found[b.log_dir] = max(b.broker_time, found.get(b.log_dir, -1))
    return {log_dir: time for log_dir, time in found.items() if time >= 0}


def _is_earlier(b: Brief, cluster: Cluster) -> bool:
    return b.broker_id in cluster.went_on


def _is(b: Brief, leading: dict[tuple[str, int], Brief]) -> bool:
    return leading[b.topic, b.partition] is b


def _out_of_sync(
    briefs: list[Brief], leading: dict[tuple[str, int], Brief], metadata: ClusterMetadata | None
) -> list[tuple[str, int]]:
    """The logs whose leader replica may lack what came later, though its broker was stopped cleanly: it is not among
    those in sync or eligible by the metadata, and none that is got just as far in the input."""
    states = () if metadata is None else metadata.partitions.values()
    had_all = {(state.topic, state.partition): (*state.isr, *state.elr) for state in states}
    got_there: dict[tuple[str, int], set[int | None]] = {}
    for b in briefs if had_all else ():
        if b.rank == leading[b.topic, b.partition].rank:
            got_there.setdefault((b.topic, b.partition), set()).add(b.broker_id)
    return [
        at
        for at, brokers in got_there.items()
        if (in_sync := had_all.get(at)) and None not in brokers and brokers.isdisjoint(in_sync)
    ]


def _starts_late(history: CoordinatorHistory, briefs: Iterable[Brief]) -> StartsLate | None:
    """The oldest marker of a producer id that no record names, where it is older than the first record of a partition,
    None where there is none: a log that is there from its first offset on may have been made again."""
    if not history.complete_for_all():
        return None  # then its silence says nothing anyway
    begins = max(history.begins().values(), default=1 << 62)
    found: list[tuple[int, str, int]] = []
    for b in briefs:
        unknown = b.oldest[history.each_written_in(b.oldest["producer_id"]) < 0]
        same = set(history.brokers.values()) == {b.broker_id}
        old = unknown[unknown["time"] + (SAME_CLOCK_MS if same else SKEW_MS) < begins]
        found += [
            (time, f"{b.topic}-{b.partition}", pid)
            for pid, time in zip(old["producer_id"].tolist(), old["time"].tolist(), strict=True)
        ]
    if not found:
        return None
    time, name, producer_id = min(found)
    return StartsLate(name, producer_id, time, begins if begins < 1 << 62 else -1, len({pid for *_, pid in found}))


def _outdated(
    history: CoordinatorHistory, briefs: Iterable[Brief], undecided: np.ndarray, bounds: dict[tuple[str, int], Bounds]
) -> dict[int, int]:
    """By partition of the coordinators' log when (ms) a marker was written whose decision its replica does not have.

    A COMMIT of a producer whose last transaction is complete there: what came behind its end, no operator can have
    written. And a marker of a higher epoch than any there, behind the end too.
    """
    found: dict[int, int] = {}
    for b in briefs:
        rows = b.ended
        partitions = history.each_written_in(rows["producer_id"])
        decided = (rows["commit"] == 1) & ~np.isin(rows["producer_id"], undecided)
        ahead = rows["epoch"] > history.each_highest_epoch(rows["producer_id"])
        for partition in np.unique(partitions[(partitions >= 0) & (decided | ahead)]).tolist():
            same = b.broker_id is not None and b.broker_id == history.brokers.get(partition)
            newest = bounds[TRANSACTION_STATE, partition].copy_time
            later = rows["time"] > newest + (SAME_CLOCK_MS if same else SKEW_MS)
            lacks = (decided & later) | (ahead & (rows["time"] > newest))
            behind = rows["time"][lacks & (partitions == partition)]
            if len(behind):
                found[partition] = min(int(behind.min()), found.get(partition, 1 << 62))
    return found


def _away(metadata: ClusterMetadata, state: PartitionState) -> bool:
    """Whether nobody can take a marker for a partition: it has no leader, or one that is fenced or shutting down."""
    leader = metadata.brokers.get(state.leader)
    return state.leader < 0 or (leader is not None and (leader.fenced or leader.in_controlled_shutdown))


def _offline(metadata: ClusterMetadata, state: PartitionState, up: tuple[int, ...]) -> Offline:
    had_all = dict.fromkeys((*state.isr, *state.elr))
    return Offline(state.leader_epoch, state.replicas, {b: _stands(metadata, b) for b in had_all}, up[:MOST_NAMED])


def _stands(metadata: ClusterMetadata, number: int) -> str:
    """How a broker stands at the end of the metadata. One that was stopped keeps that mark until it registers again."""
    broker = metadata.brokers.get(number)
    if broker is None:
        return "not registered"
    return SHUTTING_DOWN if broker.in_controlled_shutdown else "fenced" if broker.fenced else UP


def _coordinator(cluster: Cluster, briefs: list[Brief]) -> CoordinatorHistory | None:
    if not briefs:
        return None
    briefs.sort(key=lambda b: b.partition)
    logs = {b.partition: b.coordinator_log for b in briefs if b.coordinator_log is not None}
    history = join(cluster.partition_counts.get(TRANSACTION_STATE, 0), logs)
    history.count_known = cluster.knows_count(TRANSACTION_STATE)
    for b in briefs:
        p = b.partition
        history.complete_from[p], history.leader_epochs[p] = b.intact_from, b.rank[0]
        history.brokers[p] = b.broker_id
        history.whole_log[p] = b.bounds.log_start == 0 and b.intact_from <= 0 and not b.ends_early
        if b.broken_at is not None:
            history.broken[p] = b.broken_at
    return history


def writes_version_1(briefs: Iterable[Brief], join_key: str) -> bool:
    """Whether some value in ``__transaction_state`` of this cluster has version 1, which 4.0 began to write."""
    mine = (b.coordinator_log for b in briefs if b.join_key == join_key)
    return any(log is not None and log.version_1 for log in mine)
