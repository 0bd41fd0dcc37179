"""Knowledge about each cluster, merged from its replicas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from auditor.base.errors import setting_number
from auditor.connectors.codec.cluster_metadata import ClusterMetadata, PartitionState
from auditor.connectors.kafka_names import METADATA_TOPIC
from auditor.connectors.logdir.files import Inventory, LogDir
from auditor.evidence.cluster_clocks import Era, LogEras, clocks, eras_of, newest_of, up_until
from auditor.facts.coordinator_history import SKEW_MS, CoordinatorHistory, StartsLate, join
from auditor.facts.coordinator_log import ONGOING, PREPARE_ABORT, PREPARE_COMMIT, CoordinatorLog, StateRecord, pack
from auditor.facts.events import HOLES, EventKind, events_of, hole_of
from auditor.facts.replica_facts import ENDED, ReplicaFacts, without_defaults
from auditor.model import policies
from auditor.model.policies import UNKNOWN, Policy, policy_at, shown_by
from auditor.pipeline import moments
from auditor.pipeline.cluster_settings import ClusterSettings, Made
from auditor.pipeline.options import AuditOptions
from auditor.rules.seen.cluster_view import (
    MIN_IN_SYNC,
    SHUTTING_DOWN,
    UP,
    Absent,
    Alone,
    Cluster,
    Incarnations,
    KnownCopy,
    LeaderBounds,
    Offline,
    OpenHere,
    ReadTimes,
    standing,
    topic_ids,
)
from auditor.rules.transactions.windows import SAME_CLOCK_MS

# Briefs: the part of each replica's facts that must be known everywhere before any log is judged.


TRANSACTION_STATE = "__transaction_state"
MOST_OPEN = 50_000  # open transactions of a replica that are known everywhere, the oldest
NOTHING_ENDED, NOTHING_UNDECIDED = np.empty(0, ENDED), np.empty(0, np.int64)
NOTHING_OPEN: dict[int, OpenHere] = {}
MOST_ENDED = 1_000  # producers of a log whose newest marker is known everywhere: 29 bytes each
INTERVAL = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
BEHIND_OFFSETS = 1 << 60  # console rows have no offset; they come behind those that have one, in the order printed


@without_defaults
@dataclass(slots=True)
class Brief:
    """The part of a replica's facts that every judge needs: bounds, clocks, and its coordinator's records."""

    join_key: str
    log_dir: str
    broker_id: int | None
    topic: str
    partition: int
    rank: tuple[int, int]
    settled_end: int
    bounds: LeaderBounds
    broker_time: int
    any_time: int
    intact_from: int
    first_offset: int
    text: bool
    lacks_end: bool
    epoch_start: int
    ends_early: bool
    abort_indexes: bool
    coordinator_log: CoordinatorLog | None = None
    broken_at: int | None = None
    open_here: dict[int, OpenHere] = field(default_factory=dict)  # by producer id
    ended: np.ndarray = field(default_factory=lambda: NOTHING_ENDED)
    undecided: np.ndarray = field(default_factory=lambda: NOTHING_UNDECIDED)  # producer ids of unfinished ids
    eras: list[Era] = field(default_factory=list)
    oldest: np.ndarray = field(default_factory=lambda: NOTHING_ENDED)  # the first markers
    unverified: list[tuple[int, int]] = field(default_factory=list)


def brief(facts: ReplicaFacts) -> Brief:
    """Return the brief of a replica."""
    copy_time = facts.broker_time if facts.broker_time >= 0 else facts.any_time
    opened = open_here(facts.transactions)
    bounds = LeaderBounds(
        log_start=facts.own_start,
        log_end=facts.log_end,
        high_watermark=facts.high_watermark,
        copy_time=copy_time,
        clean_shutdown=facts.clean_shutdown and not facts.cut_short,
        topic_id=facts.topic_id,
        broker_id=facts.broker_id,
        starts_late=facts.starts_late,
        end_damaged=any(last >= facts.log_end for _, last in facts.damaged),
        open_known=facts.lost_at < 0 and not facts.ends_early and len(opened) < MOST_OPEN and not facts.open_unknown,
    )
    lost = facts.lost_at  # behind it bytes could not be read: no history is whole across it
    broken = [offset for offset, *_ in facts.unreadable_records] + [lost] * (lost >= 0)
    broken += [facts.log_end] * facts.cut_short
    broken += [-1 if facts.coordinator_log is None else facts.coordinator_log.broken_at]
    broken += [last for _, last in facts.damaged]  # records of these batches are no evidence
    coordinator_log = _coordinator_log(facts)
    started = facts.leader_epochs[-1][1] if facts.leader_epochs else -1
    return Brief(
        join_key=facts.join_key,
        log_dir=facts.log_dir,
        broker_id=facts.broker_id,
        topic=facts.topic,
        partition=facts.partition,
        rank=facts.rank,
        settled_end=facts.settled_end,
        bounds=bounds,
        broker_time=facts.broker_time,
        any_time=facts.any_time,
        intact_from=max(facts.intact_from, lost, _behind_holes(facts)),
        first_offset=facts.segment_bases[0] if facts.segment_bases else 0,
        text=facts.text,
        lacks_end=facts.lacks_end,
        epoch_start=started,
        ends_early=facts.ends_early,
        abort_indexes=bool(facts.abort_indexes),
        coordinator_log=coordinator_log,
        broken_at=max((b for b in broken if b >= 0), default=None),
        open_here=opened,
        ended=_marker_per_producer(facts.transactions, first=False),
        undecided=NOTHING_UNDECIDED if coordinator_log is None else _undecided(coordinator_log),
        eras=eras_of(facts.track),
        oldest=_marker_per_producer(facts.transactions, first=True),
        unverified=facts.unverified,
    )


def _behind_holes(facts: ReplicaFacts) -> int:
    """End of the last hole in a coordinator's log, -1 without any: no history is complete across a hole.

    A replica that was fetched from scratch has the holes that its leader's cleaner left.
    """
    if facts.topic != TRANSACTION_STATE or not len(facts.events):
        return -1
    if any(facts.dropped_events.get(int(kind)) for kind in HOLES):
        return facts.log_end
    return max((hole_of(e)[1] for e in events_of(facts.events, *HOLES)), default=-1)


def open_here(transactions: np.ndarray) -> dict[int, OpenHere]:
    """Return the replica's open transactions by producer id, the oldest :data:`MOST_OPEN` of them."""
    if not len(transactions):
        return {}
    begun = transactions[(transactions["marker_offset"] < 0) & (transactions["first_offset"] >= 0)]
    begun = begun[np.argsort(begun["first_offset"], kind="stable")[:MOST_OPEN]]
    return {
        int(t["producer_id"]): OpenHere(int(t["first_offset"]), int(t["last_epoch"]), int(t["prev_marker_time"]))
        for t in begun
    }


def _marker_per_producer(transactions: np.ndarray, *, first: bool) -> np.ndarray:
    """The first or the last marker of each producer as :data:`ENDED` rows.

    At most :data:`MOST_ENDED`: the oldest of the first markers, the newest of the last ones.
    """
    if not len(transactions):
        return NOTHING_ENDED
    rows = transactions[(transactions["marker_offset"] >= 0) & (transactions["repeated"] == 0)]
    markers = np.zeros(len(rows), ENDED)
    columns = ("producer_id", "marker_epoch", "marker_timestamp", "prev_marker_time", "commit")
    for name, column in zip(ENDED.names or (), columns, strict=True):
        markers[name] = rows[column]
    markers = markers[np.lexsort((rows["marker_offset"], markers["producer_id"]))]
    other = np.ones(len(markers), bool)
    if first:
        other[1:] = markers["producer_id"][1:] != markers["producer_id"][:-1]
    else:
        other[:-1] = markers["producer_id"][1:] != markers["producer_id"][:-1]
    markers = markers[other]
    in_order = markers[np.argsort(markers["time"], kind="stable")]
    return in_order[:MOST_ENDED] if first else in_order[-MOST_ENDED:]


def _undecided(log: CoordinatorLog) -> np.ndarray:
    """Producer ids of the transactional ids whose last record shows an incomplete transaction."""
    columns, valid = log.last_rows()
    return columns["producer_id"][valid & np.isin(columns["state"], (ONGOING, PREPARE_COMMIT, PREPARE_ABORT))]


def entries(table: pa.Table) -> list[StateRecord]:
    """Return rows of ``transaction_log`` as the rules read them, by offset (console text: in printed order)."""
    times = ("record_timestamp", "last_update_timestamp", "start_timestamp")  # which Python's dates may not hold
    ms = {name: table[name].cast(pa.int64()).to_pylist() for name in times}
    out = []
    for k, row in enumerate(table.drop_columns(list(times)).to_pylist()):
        names = row["partitions"] or []
        out.append(
            StateRecord(
                partition=row["partition"],
                offset=_value_or(row["offset"], BEHIND_OFFSETS + k),
                record_time=_value_or(ms["record_timestamp"][k]),
                leader_epoch=_value_or(row["leader_epoch"]),
                transactional_id=row["transactional_id"],
                state=None if row["tombstone"] else row["state"] or f"unknown state {row['status']}",
                producer_id=_value_or(row["producer_id"]),
                producer_epoch=_value_or(row["producer_epoch"]),
                timeout_ms=_value_or(row["timeout_ms"]),
                partitions=frozenset(names),
                partitions_null=bool(row["partitions_null"]),
                last_update=_value_or(ms["last_update_timestamp"][k]),
                start=_value_or(ms["start_timestamp"][k]),
                client_version=row["client_transaction_version"] or 0,
                file=row["file"],
                position=_value_or(row["position"]),
                status=_value_or(row["status"]),
            )
        )
    return out


def _undamaged(records: list[StateRecord], facts: ReplicaFacts) -> list[StateRecord]:
    """Records of a dump outside of batches with a CRC mismatch."""
    wrong = [(e["base_offset"], e["last_offset"]) for e in events_of(facts.events, EventKind.CRC)]
    return [entry for entry in records if not any(first <= entry.offset <= last for first, last in wrong)]


def _value_or(value: int | None, otherwise: int = -1) -> int:
    return otherwise if value is None else value


def _coordinator_log(facts: ReplicaFacts) -> CoordinatorLog | None:
    """The replica's ``__transaction_state`` records; those of text dumps, which are small, come from their table."""
    table = facts.tables.get("transaction_log")
    if facts.coordinator_log is not None:
        facts.coordinator_log.damaged = {facts.partition: facts.damaged} if facts.damaged else {}
    if facts.coordinator_log is not None or table is None:
        return facts.coordinator_log
    log = pack(_undamaged(entries(table), facts))
    log.damaged = {facts.partition: facts.damaged} if facts.damaged else {}
    log.version_1 = 1 in table["value_version"].unique().to_pylist()
    return log


# Cluster contexts, merged from the briefs for the rules.


ReadAt = dict[tuple[str, str, int], ReadTimes]  # by log directory, topic and partition
MOST_OPEN_IN_ALL = 500_000  # open transactions known everywhere
MOST_NAMED = 20  # brokers that are up, of an offline partition


def leaders(briefs: Sequence[Brief], cluster: Cluster) -> dict[tuple[str, int], Brief]:
    """Return the leader replica of each log of one cluster."""
    chosen: dict[tuple[str, int], Brief] = {}
    reach: dict[tuple[str, int], int] = {}
    for b in briefs:
        reach[b.topic, b.partition] = max(b.settled_end, reach.get((b.topic, b.partition), 0))

    def order(b: Brief) -> tuple[object, ...]:
        broker = (1, -b.broker_id) if b.broker_id is not None else (2, 0)
        furthest, named = reach[b.topic, b.partition], cluster.last_leader(b.topic, b.partition)
        return (*standing(b.rank, b.settled_end, furthest, b.broker_id, named), broker)

    for b in sorted(briefs, key=lambda b: b.log_dir):
        log = (b.topic, b.partition)
        if log not in chosen or order(b) > order(chosen[log]):
            chosen[log] = b
    return chosen


def build(
    briefs: list[Brief],
    settings: dict[str, ClusterSettings],
    as_of: int | None,
    copying: int = 0,
    at_once: bool = False,
    read_at: ReadAt | None = None,
) -> dict[str, Cluster]:
    """Return the context of every cluster by join key.

    ``as_of``: ms, None for the newest broker-written time of each cluster. ``copying``: how long, in ms, copying a log
    directory may have taken; ``at_once``: the input is a point-in-time snapshot. ``read_at``: when each log was read by
    its broker's clock, as far as copies say.
    """
    out = {}
    for key in dict.fromkeys(b.join_key for b in briefs):
        members = [b for b in briefs if b.join_key == key]
        out[key] = _cluster(members, settings.get(key, ClusterSettings()), as_of, copying, read_at or {})
        out[key].clock_given, out[key].at_once = as_of is not None, at_once
    return out


def _cluster(
    briefs: list[Brief],
    settings: ClusterSettings,
    as_of: int | None,
    copying: int,
    read_at: ReadAt,
) -> Cluster:
    cluster = Cluster(-1, -1, abort_indexes=any(b.abort_indexes for b in briefs))
    cluster.topic_configs, cluster.broker_configs = settings.topic_configs, settings.broker_configs
    cluster.releases, cluster.remote, cluster.directory_ids = settings.releases, settings.remote, settings.directory_ids
    cluster.unknown_settings, cluster.of_files, cluster.levels = settings.unknown, settings.of_files, settings.levels
    cluster.voters = settings.voters
    metadata = settings.metadata
    if metadata is not None:
        _by_metadata(cluster, settings, metadata)
    _tell_time(cluster, briefs, settings, as_of)
    copies = [KnownCopy(b.topic, b.bounds.topic_id, b.broker_time) for b in briefs]
    current = {} if metadata is None else metadata.topics
    ids = topic_ids(copies, current, settings.removed, settings.newest_time)
    cluster.incarnations = Incarnations(ids, settings.removed)
    briefs = [b for b in briefs if not cluster.incarnations.is_of_another(b.topic, b.bounds.topic_id)]
    leading = leaders(briefs, cluster)
    cluster.alone = _alone(cluster, leading)
    cluster.went_on = settings.went_on
    cluster.unverified = {f"{topic}-{number}": b.unverified for (topic, number), b in leading.items() if b.unverified}
    lagging = _out_of_sync(briefs, leading, metadata)
    for key in {*lagging, *(key for key, b in leading.items() if b.broker_id in cluster.went_on)}:
        leading[key].bounds = leading[key].bounds._replace(clean_shutdown=False, out_of_sync=True)
    cluster.until = _until(briefs, settings)
    cluster.bounds = {
        key: b.bounds._replace(until=cluster.until[b.log_dir]) if b.log_dir in cluster.until else b.bounds
        for key, b in leading.items()
    }
    undecided = np.concatenate([NOTHING_UNDECIDED, *(b.undecided for b in leading.values() if len(b.undecided))])
    _note_transactions(cluster, leading, undecided)
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
    cluster.moments = moments.complete_until(read, cluster, copying)
    cluster.checkpointed = moments.checkpointed(read)
    led = [log for log, b in zip(read, briefs, strict=True) if leading[b.topic, b.partition] is b]
    cluster.passes = moments.checkpoint_passes(led, cluster)
    cluster.misread = moments.contradicted(read, read_at)
    cluster.read_at = {key: times for key, times in read_at.items() if key[0] not in cluster.misread}
    for key, b in leading.items():
        times, moment = cluster.read_at.get((b.log_dir, *key)), cluster.moment(b.log_dir, *key)
        # When a log of a broker that ran on was read is known by its read times.
        out = key in lagging if times is not None else b.bounds.out_of_sync
        if not (out or b.lacks_end):
            cluster.bounds[key] = cluster.bounds[key]._replace(moment=moment, read=times, out_of_sync=False)
        b.bounds = cluster.bounds[key]  # once in memory
    return cluster


def _tell_time(cluster: Cluster, briefs: list[Brief], settings: ClusterSettings, as_of: int | None) -> None:
    """Set the clocks of a cluster, and the newest time of each log behind the last fall of its clock."""
    logs, alone = [], settings.metadata is None and len({b.broker_id for b in briefs}) == 1
    for b in briefs:
        led = [cluster.led(b.topic, b.partition, era.leader_epoch) for era in b.eras]
        if alone or b.topic == TRANSACTION_STATE:  # nothing shows another leader
            led = [b.broker_id if broker is None else broker for broker in led]
        eras = [*zip(led, b.eras, strict=True)]
        log = LogEras(f"{b.topic}-{b.partition}", b.broker_id, eras, b.topic == METADATA_TOPIC)
        b.broker_time = newest_of(log)
        b.bounds = b.bounds._replace(copy_time=b.broker_time if b.broker_time >= 0 else b.any_time)
        logs.append(log)
    times = [b.broker_time for b in briefs if b.broker_time >= 0]
    cluster.newest_time = max(times, default=-1)
    brokers = {b.broker_id for b in briefs} | settings.sessions.keys()
    intervals = {broker: setting_number(cluster.broker_setting(broker, INTERVAL)) for broker in brokers}
    cluster.clocks = clocks(
        logs,
        _by_clients(briefs, settings) | _up_until(settings, logs),
        {broker: interval for broker, interval in intervals.items() if interval is not None},
        as_of,
        otherwise=max((b.any_time for b in briefs), default=0),
    )
    cluster.as_of = cluster.clocks.cluster_now


def _by_clients(briefs: list[Brief], settings: ClusterSettings) -> dict[int | None, int]:
    """Until when (ms) each broker took records by its clients' clocks, if its metadata goes on until then.

    For metadata that shows no session of the broker, and by logs in which no broker wrote a time.
    """
    newest: dict[int | None, int] = {}
    for b in briefs:
        if not b.eras and b.broker_id not in settings.sessions and settings.newest_time >= 0 <= b.any_time:
            newest[b.broker_id] = max(min(b.any_time, settings.newest_time), newest.get(b.broker_id, -1))
    return newest


def _up_until(settings: ClusterSettings, logs: list[LogEras]) -> dict[int | None, int]:
    """Until when (ms) each broker was up at least, by its own clock, as far as its last session in the metadata shows.

    A clock that is behind the controllers' is known by the first time of the leader epoch that it began last.
    """
    data = [log for log in logs if not log.of_controllers]
    started = {(log.name, era.leader_epoch): era.oldest for log in data for _, era in reversed(log.eras)}
    behind: dict[int, tuple[int, int]] = {}
    for (topic, partition), elections in settings.elections.items():
        for e in elections[-1:]:
            first = started.get((f"{topic}-{partition}", e.leader_epoch))
            if e.time is not None and first is not None:
                behind[e.leader] = max((e.time, e.time - first), behind.get(e.leader, (-1, 0)))
    return {
        broker: up_until(
            settings.newest_time if until is None else until,
            behind.get(broker, (-1, 0))[1],
            of_controller=settings.voters == (broker,),
        )
        for broker, until in settings.sessions.items()
        if until != -1
    }


def _note_transactions(cluster: Cluster, leading: dict[tuple[str, int], Brief], undecided: np.ndarray) -> None:
    """Note open transactions, and the last markers of producers whose coordinator shows an undecided transaction."""
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
    if up := tuple(sorted(number for number in metadata.brokers if _broker_state(metadata, number) == UP)):
        away = [p for p in metadata.partitions.values() if _away(metadata, p)]
        cluster.away = frozenset(f"{p.topic}-{p.partition}" for p in away)
        cluster.offline = {(p.topic, p.partition): _offline(settings, metadata, p, up) for p in away if p.leader < 0}
    cluster.next_producer_id = metadata.next_producer_id() if settings.whole else None
    cluster.metadata_time = settings.newest_time
    cluster.last_leaders = {log: some[-1].leader for log, some in settings.elections.items()}


def _note_stops(cluster: Cluster, settings: ClusterSettings, metadata: ClusterMetadata, state: PartitionState) -> None:
    """Note the effect of stopping an in-sync broker: no leader is left, or fewer than min.insync.replicas."""
    if len(state.replicas) < 2:
        return
    if len(state.isr) == 1 and not any(_broker_state(metadata, b) == UP for b in state.elr if b not in state.isr):
        cluster.alone_in_sync.setdefault(state.isr[0], []).append(f"{state.topic}-{state.partition}")
    least = setting_number(settings.topic_setting(state.topic, MIN_IN_SYNC, state.leader))
    if least is not None and len(state.isr) == least > 1:
        for broker in state.isr:
            first, count = cluster.short_without.get(broker, (f"{state.topic}-{state.partition}", 0))
            cluster.short_without[broker] = first, count + 1


def _alone(cluster: Cluster, leading: dict[tuple[str, int], Brief]) -> dict[int, Alone]:
    """Partitions of which a broker has the only in-sync replica, by broker, with their transactional producers."""
    names: dict[int, dict[str, None]] = {}
    for (topic, partition), brokers in cluster.in_sync.items():
        if len(brokers) == 1:
            names.setdefault(brokers[0], {})[f"{topic}-{partition}"] = None
    for broker, more in cluster.alone_in_sync.items():
        names.setdefault(broker, {}).update(dict.fromkeys(more))
    of = {name: broker for broker, partitions in names.items() for name in partitions}
    producers: dict[int, set[int]] = {}
    for (topic, partition), b in leading.items() if of else ():
        if (broker_id := of.get(f"{topic}-{partition}")) is not None:
            producers.setdefault(broker_id, set()).update(b.oldest["producer_id"].tolist(), b.open_here)
    return {
        broker: Alone(tuple(partitions), tuple(sorted(producers.get(broker, ()))))
        for broker, partitions in names.items()
    }


def _until(briefs: list[Brief], settings: ClusterSettings) -> dict[str, int]:
    """Newest broker-written time (ms) of each directory whose own metadata is missing, if there are several brokers.

    Such a directory may lack whatever others have from later: nothing shows that its broker was not restarted.
    """
    newest: dict[str, int] = {}
    if len({b.broker_id for b in briefs}) > 1:
        for b in briefs:
            if b.bounds.clean_shutdown and b.broker_id not in settings.metadata_ends:
                newest[b.log_dir] = max(b.broker_time, newest.get(b.log_dir, -1))
    return {log_dir: time for log_dir, time in newest.items() if time >= 0}


def _out_of_sync(
    briefs: list[Brief], leading: dict[tuple[str, int], Brief], metadata: ClusterMetadata | None
) -> list[tuple[str, int]]:
    """Logs whose leader replica may lack later records although its broker was stopped cleanly.

    By the metadata the replica is neither in the ISR nor in the ELR, and no replica of those has reached as far.
    """
    states = () if metadata is None else metadata.partitions.values()
    had_all = {(state.topic, state.partition): (*state.isr, *state.elr) for state in states}
    got_there: dict[tuple[str, int], set[int | None]] = {}
    for b in briefs if had_all else ():
        if b.rank == leading[b.topic, b.partition].rank:
            got_there.setdefault((b.topic, b.partition), set()).add(b.broker_id)
    return [
        log
        for log, brokers in got_there.items()
        if (in_sync := had_all.get(log)) and None not in brokers and brokers.isdisjoint(in_sync)
    ]


def _starts_late(history: CoordinatorHistory, briefs: Iterable[Brief]) -> StartsLate | None:
    """The oldest marker of a producer id that no record names, if older than every partition's first record.

    A log that is complete from its first offset on may still be a re-created one.
    """
    if not history.complete_for_all():
        return None  # then its silence says nothing anyway
    begins = max(history.begins().values(), default=1 << 62)
    markers: list[tuple[int, str, int]] = []
    for b in briefs:
        unknown = b.oldest[history.each_written_in(b.oldest["producer_id"]) < 0]
        same = set(history.brokers.values()) == {b.broker_id}
        old = unknown[unknown["time"] + (SAME_CLOCK_MS if same else SKEW_MS) < begins]
        markers += [
            (time, f"{b.topic}-{b.partition}", pid)
            for pid, time in zip(old["producer_id"].tolist(), old["time"].tolist(), strict=True)
        ]
    if not markers:
        return None
    time, name, producer_id = min(markers)
    return StartsLate(name, producer_id, time, begins if begins < 1 << 62 else -1, len({pid for *_, pid in markers}))


def _outdated(
    history: CoordinatorHistory,
    briefs: Iterable[Brief],
    undecided: np.ndarray,
    bounds: dict[tuple[str, int], LeaderBounds],
) -> dict[int, int]:
    """When (ms) a marker was written whose decision the coordinator's replica lacks, by partition of its log.

    Either a COMMIT written after the replica ends, of a producer whose last transaction is complete there: no operator
    can have written it. Or a marker with a higher epoch than any in the replica, also from after its end.
    """
    oldest: dict[int, int] = {}
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
                oldest[partition] = min(int(behind.min()), oldest.get(partition, 1 << 62))
    return oldest


def _away(metadata: ClusterMetadata, state: PartitionState) -> bool:
    """Whether no broker can append a marker: the leader is missing, fenced or shutting down."""
    leader = metadata.brokers.get(state.leader)
    return state.leader < 0 or (leader is not None and (leader.fenced or leader.in_controlled_shutdown))


def _offline(
    settings: ClusterSettings, metadata: ClusterMetadata, state: PartitionState, up: tuple[int, ...]
) -> Offline:
    had_all = dict.fromkeys((*state.isr, *state.elr))
    gaps = settings.leaderless.get((state.topic, state.partition), ())
    since = gaps[-1].since if gaps and gaps[-1].until is None else metadata.snapshot_timestamp  # or since before that
    return Offline(
        state.leader_epoch,
        state.replicas,
        {b: _broker_state(metadata, b) for b in had_all},
        up[:MOST_NAMED],
        None if since is None else max(0, settings.newest_time - since),
    )


def _broker_state(metadata: ClusterMetadata, number: int) -> str:
    """State of a broker at the end of the metadata. A stopped broker keeps its mark until it registers again."""
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
    """Whether ``__transaction_state`` of this cluster has values of version 1, written since 4.0."""
    logs = (b.coordinator_log for b in briefs if b.join_key == join_key)
    return any(log is not None and log.version_1 for log in logs)


# Partitions that ``__cluster_metadata`` assigns to a broker and that have no directory in the input.


def in_sync(inventory: Inventory, join_key: str, settings: ClusterSettings, options: AuditOptions) -> Iterator[Absent]:
    """Yield the in-sync replicas of one cluster without a directory, by broker, topic and partition.

    Not certain (``sure``) where the broker's own metadata does not show the replica, ends at another time than its
    files, or may show it in an uncommitted tail.
    """
    for broker, dirs in _brokers(inventory, join_key).items():
        own = settings.assigned.get(broker, {})
        until = _acted_on(dirs, own, settings)
        still = options.at_once or (broker not in settings.went_on and all(d.clean_shutdown for d in dirs))
        for p in _without_folder(broker, dirs, settings, options):
            key = (p.topic_id, p.partition)
            had_all = tuple(dict.fromkeys((*p.isr, *p.elr, *settings.stopped.get(key, ()))))
            if broker in had_all:
                shown = key in own and (own[key][0] <= until[0] or own[key][1] == until[1])
                yield Absent(p.topic, p.partition, broker, had_all, still and shown)


def _acted_on(dirs: list[LogDir], own: Made, settings: ClusterSettings) -> tuple[int, int]:
    """Offset and time (ms) of the last metadata record that a broker is known to have seen committed.

    It created a directory because of the record, or a majority of the voters has it.
    """
    folders = [
        own.get((c.topic_id, c.partition)) for d in dirs for c in d.replicas if c.topic_id and c.partition is not None
    ]
    voted = max((settings.committed.get(d.name, 0) for d in dirs), default=0) - 1
    return max([made for made in folders if made is not None] + [(voted, -1)])


def counts(
    inventory: Inventory, settings: Mapping[str, ClusterSettings], options: AuditOptions
) -> Iterator[tuple[int, int, int]]:
    """Yield each broker with missing partitions: broker id, number of missing ones, number of assigned ones."""
    for join_key, cluster in settings.items():
        for broker, dirs in _brokers(inventory, join_key).items():
            if lacking := len(_without_folder(broker, dirs, cluster, options)):
                yield broker, lacking, len(_assigned(broker, cluster, options))


def _brokers(inventory: Inventory, join_key: str) -> dict[int, list[LogDir]]:
    by_broker: dict[int, list[LogDir]] = {}
    for d in inventory.log_dirs:
        if d.join_key == join_key and d.broker_id is not None and d.meta is not None:
            by_broker.setdefault(d.broker_id, []).append(d)
    return dict(sorted(by_broker.items()))


def _assigned(broker: int, settings: ClusterSettings, options: AuditOptions) -> list[PartitionState]:
    partitions = settings.metadata.partitions.values() if settings.metadata is not None and settings.whole else ()
    return [p for p in partitions if broker in p.replicas and options.scope.wants(p.topic, p.partition, broker)]


def _without_folder(
    broker: int, dirs: list[LogDir], settings: ClusterSettings, options: AuditOptions
) -> list[PartitionState]:
    present = {(c.topic, c.partition, c.topic_id) for d in dirs for c in d.replicas}  # of a removed topic: is none
    lacking = (
        p
        for p in _assigned(broker, settings, options)
        if present.isdisjoint(((p.topic, p.partition, p.topic_id), (p.topic, p.partition, None)))
    )
    return sorted(lacking, key=lambda p: (p.topic, p.partition))


# The policy of each broker, by the strongest evidence in the input (rules.md, *How auto picks*).


class PolicyChoice(NamedTuple):
    """The policy of one log directory and the evidence for it."""

    log_dir: str
    policy: str
    why: str


def choose(log_dir: LogDir, cluster: ClusterSettings, value_versions: set[int], wanted: str) -> PolicyChoice:
    """Return the policy of a log directory.

    ``value_versions``: those of the cluster's ``__transaction_state`` records.
    """
    if wanted not in (policies.AUTO, policies.VERIFIED):
        return PolicyChoice(log_dir.name, wanted, "asked for by --policy")
    parts = policies.PARTS[policies.VERIFIED]
    version = cluster.levels.get("transaction.version", 0)
    if version >= 1:
        part = policies.BY_TRANSACTION_VERSION[min(version, max(policies.BY_TRANSACTION_VERSION))]
        return PolicyChoice(log_dir.name, part, f"transaction.version {version} in __cluster_metadata")
    if 1 in value_versions:
        return PolicyChoice(log_dir.name, parts[-1], "value version 1 in __transaction_state")
    if wanted == policies.VERIFIED:
        return PolicyChoice(log_dir.name, parts[0], "asked for by --policy; no transaction.version 2 in the input")
    level = cluster.levels.get("metadata.version", 0)
    if (least := shown_by(level).rows[0].policy) in parts:
        return PolicyChoice(log_dir.name, least, f"metadata.version {level} in __cluster_metadata")
    if log_dir.meta is not None and log_dir.meta.cluster_id is None:
        return PolicyChoice(log_dir.name, policies.OLDEST, "meta.properties without cluster.id")
    return PolicyChoice(log_dir.name, policies.ASSUMED, "assumed: nothing in the input shows another one")


def candidates(log_dir: LogDir, cluster: ClusterSettings, wanted: str) -> set[str]:
    """Return the policies that :func:`choose` may return once ``__transaction_state`` has been read."""
    return {choose(log_dir, cluster, versions, wanted).policy for versions in (set[int](), {1})}


def known_before(log_dir: LogDir, cluster: ClusterSettings, wanted: str) -> Policy:
    """Return the policy of a log directory as known before its logs are read, see :func:`candidates`."""
    name = choose(log_dir, cluster, set(), wanted).policy
    return policy_at(name, cluster.releases.get(log_dir.broker_id, UNKNOWN))
