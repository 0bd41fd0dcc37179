"""Knowledge about each cluster, merged from its replicas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import numpy as np
import pyarrow as pa

from auditor.base.errors import DecodeError, attempt, bounded_time, setting_number
from auditor.connectors.codec.cluster_metadata import ClusterMetadata, PartitionState
from auditor.connectors.kafka_names import METADATA_TOPIC
from auditor.connectors.logdir.files import Inventory, LogDir
from auditor.evidence import horizons
from auditor.evidence.cluster_clocks import RESTART_MS, Era, LogEras, clocks, eras_of, is_after, newest_of, up_until
from auditor.evidence.horizons import LastMarker, LogEnd, ReadTimes
from auditor.evidence.which_copy import (
    CopyEnd,
    DirectoryCopy,
    Incarnations,
    KnownCopy,
    KnownTopics,
    WhichCopies,
    incarnations,
    leader_of,
    which_copies,
)
from auditor.facts.batch_headers import first_batches
from auditor.facts.coordinator_history import CoordinatorHistory, EpochChange, changes_of, join, newest_decided
from auditor.facts.coordinator_log import ONGOING, PREPARE_ABORT, PREPARE_COMMIT, CoordinatorLog, StateRecord, pack
from auditor.facts.events import HOLES, EventKind, events_of, hole_of
from auditor.facts.replica_facts import (
    NO_COMMITS,
    NOTHING_ENDED,
    ReplicaFacts,
    commits,
    marker_per_producer,
)
from auditor.model import policies
from auditor.pipeline.cluster_settings import ClusterSettings, Made
from auditor.pipeline.options import AuditOptions
from auditor.rules.seen.cluster_view import (
    COUNT_SETTINGS,
    MIN_IN_SYNC,
    SHUTTING_DOWN,
    UP,
    Absent,
    Alone,
    Cluster,
    LeaderBounds,
    Offline,
    OpenHere,
    UnderMinIsr,
)
from auditor.rules.seen.view import iso

# Briefs: the part of each replica's facts that must be known everywhere before any log is judged.


TRANSACTION_STATE = "__transaction_state"
MOST_OPEN = 50_000  # open transactions of a replica that are known everywhere, the oldest
NOTHING_UNDECIDED = np.empty(0, np.int64)
NOTHING_OPEN: dict[int, OpenHere] = {}
INTERVAL = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
BEHIND_OFFSETS = 1 << 60  # console rows have no offset; they come behind those that have one, in the order printed


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
    nothing_read: bool = False  # of segments that held something by the high watermark
    coordinator_log: CoordinatorLog | None = None
    broken_at: int | None = None
    open_here: dict[int, OpenHere] = field(default_factory=dict)  # by producer id
    ended: np.ndarray = field(default_factory=lambda: NOTHING_ENDED)
    undecided: np.ndarray = field(default_factory=lambda: NOTHING_UNDECIDED)  # producer ids of unfinished ids
    eras: list[Era] = field(default_factory=list)
    led: list[int | None] = field(default_factory=list)  # the leader of each era
    first_batches: int = -1
    oldest: np.ndarray = field(default_factory=lambda: NOTHING_ENDED)  # the first markers
    unverified: list[tuple[int, int]] = field(default_factory=list)
    markers_whole: bool = False  # all its markers are there
    decided: dict[str, horizons.Decided] = field(default_factory=dict)  # of newest_decided
    changes: list[EpochChange] = field(default_factory=list)
    commits: np.ndarray = field(default_factory=lambda: NO_COMMITS)
    group_kinds: Mapping[str, str] = field(default_factory=dict)


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
        abort_indexes=not all(map(facts.is_remote, facts.abort_indexes)),
        nothing_read=bool(facts.segments)
        and not facts.sums.get("batches")
        and all(error.reason != "vanished" for error in facts.errors)
        and (facts.high_watermark or 0) > facts.segment_bases[0],
        coordinator_log=coordinator_log,
        broken_at=max((b for b in broken if b >= 0), default=None),
        open_here=opened,
        ended=marker_per_producer(facts.transactions, first=False),
        undecided=NOTHING_UNDECIDED if coordinator_log is None else _undecided(coordinator_log),
        eras=eras_of(facts.track),
        first_batches=first_batches(facts) if facts.topic_id is not None else -1,
        oldest=marker_per_producer(facts.transactions, first=True),
        unverified=facts.unverified,
        markers_whole=facts.own_start == 0
        and facts.intact_from <= 0
        and facts.unread_from < 0
        and max(broken, default=-1) < 0,
        decided={} if coordinator_log is None else newest_decided(coordinator_log),
        changes=[] if coordinator_log is None else changes_of(coordinator_log),
        commits=commits(facts.transactions),
        group_kinds={} if facts.watched_offsets is None else facts.watched_offsets.kinds,
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
        int(t["producer_id"]): OpenHere(
            int(t["first_offset"]),
            int(t["last_epoch"]),
            int(t["prev_marker_time"]),
            int(t["first_time"]) if t["first_append_time"] and t["producer_epoch"] == t["last_epoch"] else -1,
            int(t["first_leader_epoch"]),
        )
        for t in begun
    }


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


def read_at(inventory: Inventory) -> ReadAt:
    """Return when each log was listed and read, by its broker's clock, as copies of running brokers record."""
    return {
        (log_dir.name, replica.topic or "", replica.partition or 0): ReadTimes(*log_dir.read_at[replica.folder], clock)
        for log_dir in inventory.log_dirs
        if log_dir.read_at and (clock := log_dir.machine or log_dir.name)
        for replica in log_dir.replicas
        if replica.folder in log_dir.read_at
    }


def leaders(briefs: Sequence[Brief], cluster: Cluster) -> dict[tuple[str, int], Brief]:
    """Return the leader replica of each log of one cluster."""
    return {
        log: of_log[0] if len(of_log) == 1 else leader_of(of_log, cluster.last_leader(*log))
        for log, of_log in _by_log(briefs).items()
    }


def _by_log(briefs: Iterable[Brief]) -> dict[tuple[str, int], list[Brief]]:
    logs: dict[tuple[str, int], list[Brief]] = {}
    for b in sorted(briefs, key=lambda b: b.log_dir):
        logs.setdefault((b.topic, b.partition), []).append(b)
    return logs


def _which_copies(briefs: Iterable[Brief], cluster: Cluster, read_at: ReadAt) -> WhichCopies:
    """Return which log directories are older copies of what another one has of the same broker."""
    by_broker: dict[int, dict[str, list[Brief]]] = {}
    for b in briefs:
        if b.broker_id is not None and not b.text:
            by_broker.setdefault(b.broker_id, {}).setdefault(b.log_dir, []).append(b)
    return which_copies(
        DirectoryCopy(
            log_dir,
            number,
            cluster.directory_ids.get(log_dir),
            {(b.topic, b.partition): _copy_end(b, read_at) for b in of_dir},
        )
        for number, dirs in by_broker.items()
        if len(dirs) > 1
        for log_dir, of_dir in dirs.items()
    )


def _copy_end(b: Brief, read_at: ReadAt) -> CopyEnd:
    read = read_at.get((b.log_dir, b.topic, b.partition))
    checkpoints = None if b.bounds.high_watermark is None else (b.bounds.log_start, b.bounds.high_watermark)
    times = (b.broker_time, -1 if read is None else read.begun)
    return CopyEnd(b.rank[0], b.settled_end, checkpoints, times, b.bounds.topic_id)


def _counting(briefs: Iterable[Brief], copies: WhichCopies) -> list[Brief]:
    """Return the briefs without those of older copies of a broker's log."""
    if not copies.superseded:
        return list(briefs)
    return [b for of_log in _by_log(briefs).values() for b in copies.counting(of_log)[0]]


def _incarnations(briefs: Iterable[Brief], settings: ClusterSettings, cluster: Cluster) -> Incarnations:
    """Return which topics of one name the copies are of."""
    copies = (
        KnownCopy(
            b.topic,
            b.bounds.topic_id,
            b.broker_time,
            b.any_time,
            b.bounds.clean_shutdown and b.broker_id in settings.metadata_ends and b.broker_id not in settings.went_on,
            (b.partition, b.first_batches) if b.first_batches >= 0 else None,
        )
        for b in briefs
    )
    current = {} if settings.metadata is None else settings.metadata.topics
    topics = KnownTopics(current, settings.removed, settings.newest_time, settings.whole, settings.since_start)
    return incarnations(copies, topics)


def build(
    briefs: list[Brief],
    settings: dict[str, ClusterSettings],
    as_of: int | None,
    copying: Mapping[str, int] | None = None,
    at_once: bool = False,
    read_at: ReadAt | None = None,
    failures: list[DecodeError] | None = None,
) -> dict[str, Cluster]:
    """Return the context of every cluster by join key.

    ``as_of``: ms, None for the newest broker-written time of each cluster. ``copying``: how long, in ms, copying each
    log directory may have taken; ``at_once``: the input is a point-in-time snapshot. ``read_at``: when each log was
    read by its broker's clock, as far as copies say. ``failures``: gets the clusters of which this fails, whose logs
    are not judged.
    """
    out, failures = dict[str, Cluster](), [] if failures is None else failures
    for key in dict.fromkeys(b.join_key for b in briefs):
        members = [b for b in briefs if b.join_key == key]
        of_key = (members, settings.get(key, ClusterSettings()), as_of, copying or {}, read_at or {})
        subject = f"no rule could judge the cluster of {members[0].log_dir}"
        out[key] = attempt(failures, subject, partial(_cluster, *of_key), Cluster(-1, -1, is_judged=False))
        out[key].clock_given, out[key].at_once = as_of is not None, at_once
        # A topic of which nothing shows that it is not the current one of its name is judged as if it were.
        rivals = out[key].incarnations.rivals.values()
        for number in range(1, max(map(len, rivals), default=0)):
            other = _cluster(*of_key, number)
            out[key].other_topics.update((some[number].topic_id, other) for some in rivals if number < len(some))
    return out


def _cluster(
    briefs: list[Brief],
    settings: ClusterSettings,
    as_of: int | None,
    copying: Mapping[str, int],
    read_at: ReadAt,
    rival: int = 0,
) -> Cluster:
    cluster = Cluster(-1, -1, abort_indexes=any(b.abort_indexes for b in briefs))
    cluster.topic_configs, cluster.broker_configs = settings.topic_configs, settings.broker_configs
    cluster.releases, cluster.remote, cluster.directory_ids = settings.releases, settings.remote, settings.directory_ids
    cluster.unknown_settings, cluster.of_files, cluster.levels = settings.unknown, settings.of_files, settings.levels
    cluster.levels_since, cluster.voters = settings.levels_since, settings.voters
    metadata = settings.metadata
    if metadata is not None:
        _by_metadata(cluster, settings, metadata)
    _tell_time(cluster, briefs, settings, as_of)
    cluster.copies = _which_copies(briefs, cluster, read_at)
    cluster.mixed = any(topic == TRANSACTION_STATE for topic, _ in cluster.copies.unordered)
    briefs = _counting(briefs, cluster.copies)
    cluster.incarnations = _incarnations(briefs, settings, cluster).seen_from(rival)
    briefs = [b for b in briefs if not cluster.incarnations.is_of_another(b.topic, b.bounds.topic_id)]
    leading = leaders(briefs, cluster)
    for topic, partition in [*cluster.leaders, *leading]:
        cluster.partition_counts[topic] = max(cluster.partition_counts.get(topic, 0), partition + 1)
    of_coordinators = [b for (topic, _), b in leading.items() if topic == TRANSACTION_STATE]
    cluster.coordinator = _coordinator(cluster, of_coordinators, metadata)
    if cluster.coordinator is not None:
        logs = [b.coordinator_log for b in briefs if b.topic == TRANSACTION_STATE and b.coordinator_log is not None]
        cluster.coordinator.damaged_copies = frozenset(p for log in logs for p in log.damaged)
    _compare_clocks(cluster, briefs, leading)
    cluster.alone = _alone(cluster, leading)
    cluster.group_kinds = {name: kind for b in leading.values() for name, kind in b.group_kinds.items()}
    cluster.went_on = settings.went_on
    cluster.unverified = {f"{topic}-{number}": b.unverified for (topic, number), b in leading.items() if b.unverified}
    lagging = _out_of_sync(briefs, leading, metadata)
    older = cluster.copies.superseded
    ran_on = (key for key, b in leading.items() if b.broker_id in cluster.went_on or b.log_dir in older)
    for key in {*lagging, *ran_on}:
        leading[key].bounds = leading[key].bounds._replace(clean_shutdown=False, out_of_sync=True)
    cluster.until = _until(cluster, briefs, settings)
    cluster.bounds = {
        key: b.bounds._replace(until=cluster.until[b.log_dir]) if b.log_dir in cluster.until else b.bounds
        for key, b in leading.items()
    }
    _note_horizons(cluster, briefs, leading, copying, read_at)
    for key, b in leading.items():
        times, moment = cluster.read_at.get((b.log_dir, *key)), cluster.moment(b.log_dir, *key)
        # When a log of a broker that ran on was read is known by its read times.
        out = key in lagging if times is not None else b.bounds.out_of_sync
        if not (out or b.lacks_end):
            cluster.bounds[key] = cluster.bounds[key]._replace(moment=moment, read=times, out_of_sync=False)
        b.bounds = cluster.bounds[key]  # once in memory
    return cluster


def _note_horizons(
    cluster: Cluster,
    briefs: list[Brief],
    leading: dict[tuple[str, int], Brief],
    copying: Mapping[str, int],
    read_at: ReadAt,
) -> None:
    """Note until when each file is complete, and the transactions that show it."""
    decided = _decided([b.decided for (topic, _), b in leading.items() if topic == TRANSACTION_STATE])
    only = _only_broker(cluster, briefs)
    ends = [_log_end(b, cluster, decided, only) for b in briefs]
    led = [end for end, b in zip(ends, briefs, strict=True) if leading[b.topic, b.partition] is b]
    wrong = horizons.contradicted(ends, read_at)
    cluster.misread = {log_dir: _contradiction(*shown) for log_dir, shown in wrong.items()}
    cluster.read_at = {key: times for key, times in read_at.items() if key[0] not in cluster.misread}
    cluster.checkpointed, cluster.passes = horizons.checkpointed(ends), horizons.checkpoint_passes(led)
    _note_transactions(cluster, leading, {end.place: end for end in led})
    history, lacking = cluster.coordinator, set[int]()
    if history is not None:
        undecided = _undecided_in(leading)
        newest = {p: cluster.bounds[TRANSACTION_STATE, p].copy_time for p in history.brokers}
        history.starts_late = horizons.starts_late(history, led, cluster.clocks.spread_ms)
        history.outdated = horizons.outdated(history, led, undecided, newest)
        changes = {b.partition: b.changes for (topic, _), b in leading.items() if topic == TRANSACTION_STATE}
        history.restored = horizons.restored(history, changes, led, cluster.clocks.spread_ms)
        lacking = {*history.outdated, *horizons.lacking(history, cluster.ended, cluster.open_here.__contains__)}
    behind = [e for e in ends if e.topic == TRANSACTION_STATE and e.partition in lacking and e.newest >= 0]
    before = [(end.log_dir, end.newest - end.ahead) for end in behind]
    others = led + [end for end in ends if end.topic == horizons.METADATA_TOPIC]
    before += horizons.copied_before(others, partial(_read_until, cluster), partial(_skipped, cluster))
    cluster.moments = horizons.complete_until(ends, copying, before)


def _tell_time(cluster: Cluster, briefs: list[Brief], settings: ClusterSettings, as_of: int | None) -> None:
    """Set the clocks of a cluster, and the newest time of each log behind the last fall of its clock."""
    logs, alone = [], settings.metadata is None and len({b.broker_id for b in briefs}) == 1
    for b in briefs:
        b.led = [cluster.led(b.topic, b.partition, era.leader_epoch) for era in b.eras]
        if alone or b.topic == TRANSACTION_STATE:  # nothing shows another leader
            b.led = [b.broker_id if broker is None else broker for broker in b.led]
        logs.append(log := _eras_of(b))
        _set_newest(b, newest_of(log))
    times = [b.broker_time for b in briefs if b.broker_time >= 0]
    cluster.newest_time = max(times, default=-1)
    brokers = {b.broker_id for b in briefs} | settings.sessions.keys()
    intervals = {broker: setting_number(cluster.broker_setting(broker, INTERVAL)) for broker in brokers}
    cluster.clocks = clocks(
        logs,
        _by_clients(briefs, settings) | _up_until(settings, logs),
        {broker: interval for broker, interval in intervals.items() if interval is not None},
        None if as_of is None else bounded_time(as_of),
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


def _eras_of(b: Brief) -> LogEras:
    eras = [*zip(b.led, b.eras, strict=True)]
    return LogEras(f"{b.topic}-{b.partition}", b.broker_id, eras, b.topic == METADATA_TOPIC)


def _set_newest(b: Brief, time: int) -> None:
    b.broker_time, copy_time = time, time if time >= 0 else b.any_time
    clock = b.led[-1] if b.led else None
    b.bounds = b.bounds._replace(copy_time=copy_time, broker_time=time, clock=clock)


def _compare_clocks(cluster: Cluster, briefs: list[Brief], leading: dict[tuple[str, int], Brief]) -> None:
    """Measure how far clocks differ; the newest time of each log is then by the clock of its last leader."""
    history = cluster.coordinator
    if history is None or len({broker for b in briefs for broker in b.led}) < 2:
        return
    logs = (
        horizons.Marked(_eras_of(b), b.led[-1], b.oldest, b.ended, b.markers_whole)
        for b in leading.values()
        if b.topic != TRANSACTION_STATE and b.led and len(b.ended)
    )
    coordinators = {b.partition: _eras_of(b) for (topic, _), b in leading.items() if topic == TRANSACTION_STATE}
    cluster.clocks.compare(horizons.lags(history, logs, coordinators))
    if cluster.clocks.spread_ms:
        for b in briefs:
            _set_newest(b, newest_of(_eras_of(b), cluster.clocks))


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


def _decided(logs: Iterable[Mapping[str, horizons.Decided]]) -> dict[str, horizons.Decided]:
    """The newest two transactions of each partition over all coordinators' logs."""
    out: dict[str, horizons.Decided] = {}
    for log in logs:
        for name, newest in log.items():
            out[name] = tuple(sorted((*out.get(name, ()), *newest), reverse=True)[:2])
    return out


def _only_broker(cluster: Cluster, briefs: list[Brief]) -> int | None:
    """The only broker that the cluster can have had since its internal topics were made, without metadata.

    Each of their partitions has one replica by its settings, and all are here: among several they would be spread.
    """
    brokers = {b.broker_id for b in briefs}
    (only,) = brokers if len(brokers) == 1 else (None,)
    if only is None or cluster.has_metadata:
        return None
    for topic, count in COUNT_SETTINGS.items():
        wanted = setting_number(cluster.broker_setting(only, count))
        replicas = cluster.broker_setting(only, count.rpartition("num.partitions")[0] + "replication.factor")
        here = sum(b.topic == topic for b in briefs)
        if replicas == "1" and wanted is not None and here >= wanted > 1:
            return only
    return None


def _log_end(b: Brief, cluster: Cluster, decided: Mapping[str, horizons.Decided], only: int | None) -> LogEnd:
    leader = cluster.led(b.topic, b.partition, b.rank[0])
    return LogEnd(
        log_dir=b.log_dir,
        topic=b.topic,
        partition=b.partition,
        newest=b.broker_time,
        broker_id=b.broker_id,
        leader=only if leader is None else leader,
        log_end=b.bounds.log_end,
        checkpoint=b.bounds.high_watermark,
        epoch_start=b.epoch_start,
        is_text=b.text,
        is_cut=b.lacks_end or b.ends_early,
        whole=b.markers_whole,
        first_markers=b.oldest,
        last_markers=b.ended,
        commits=b.commits,
        decided=decided.get(f"{b.topic}-{b.partition}", ()),
        ahead=cluster.clocks.ahead_ms(b.bounds.clock, b.broker_id),
    )


def _contradiction(log: LogEnd, read: ReadTimes) -> str:
    return f"{log.name} has what was written at {iso(log.newest)}, and was read until {iso(read.done)} as the copy says"


def _read_until(cluster: Cluster, log: LogEnd) -> int:
    """The time (ms) until which a log is known to be complete by other evidence than its own times, -1 for none."""
    bounds, read = cluster.bounds.get(log.place), cluster.read_at.get((log.log_dir, *log.place))
    if cluster.at_once or (bounds is not None and bounds.clean_shutdown):
        return horizons.ALWAYS if bounds is None or bounds.until < 0 else bounds.until
    return max(cluster.passes.get(log.place, ("", -1))[1], -1 if read is None else read.begun)


def _skipped(cluster: Cluster, log: LogEnd) -> bool:
    """Whether a partition was leaderless when coordinators that may skip its markers completed transactions of it."""
    brokers = set() if cluster.coordinator is None else {*cluster.coordinator.brokers.values()}
    return any(cluster.release(broker).may_have(policies.SKIPS_MARKERS) for broker in brokers) and any(
        not is_after(gone.since, completed) and (gone.until is None or completed <= gone.until)
        for gone in cluster.leaderless.get(log.place, ())
        for _, completed in log.decided
    )


def _undecided_in(leading: dict[tuple[str, int], Brief]) -> np.ndarray:
    return np.concatenate([NOTHING_UNDECIDED, *(b.undecided for b in leading.values() if len(b.undecided))])


def _note_transactions(
    cluster: Cluster, leading: dict[tuple[str, int], Brief], ends: Mapping[tuple[str, int], LogEnd]
) -> None:
    """Note open transactions, and the last markers of producers whose coordinator shows an undecided transaction."""
    left, undecided = MOST_OPEN_IN_ALL, _undecided_in(leading)
    for (topic, partition), b in leading.items():
        if not (b.open_here or len(b.ended)):
            continue
        name = f"{topic}-{partition}"
        for producer_id, here in islice(b.open_here.items(), left):
            cluster.open_here.setdefault(producer_id, {})[name] = here
        if len(b.open_here) > left:
            cluster.bounds[topic, partition] = b.bounds._replace(open_known=False)
        left = max(0, left - len(b.open_here))
        ended = b.ended[np.isin(b.ended["producer_id"], undecided)] if len(b.ended) else NOTHING_ENDED
        named = cluster.coordinator.named(name) if cluster.coordinator is not None and len(ended) else None
        for row in ended:
            decided = named is not None and horizons.has_decision(named, row, whole=ends[topic, partition].whole)
            producer_id, epoch, time, before, commit, _ = row.item()
            marker = LastMarker(name, b.broker_id, epoch, time, before, commit == 1, decided)
            cluster.ended.setdefault(producer_id, []).append(marker)


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
        if (short := _under_min_isr(settings, metadata, state)) is not None:
            cluster.under_min_isr[f"{state.topic}-{state.partition}"] = short
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


def _under_min_isr(settings: ClusterSettings, metadata: ClusterMetadata, state: PartitionState) -> UnderMinIsr | None:
    """Return how a partition whose leader is up refuses markers; None where it takes them (Partition.effectiveMinIsr).

    A replica whose broker was stopped cleanly a moment ago still counts: the cluster may be restarting, or stopped as a
    whole.
    """
    value = setting_number(settings.topic_setting(state.topic, MIN_IN_SYNC, state.leader))
    least = min(1 if value is None else value, len(state.replicas))
    if len(state.isr) >= least or _away(metadata, state):
        return None
    stopped = settings.stopped.get((state.topic_id, state.partition), ())
    ended = {b: settings.sessions.get(b) or -1 for b in stopped}
    moment_ago = [b for b, time in ended.items() if time < 0 or settings.newest_time - time <= RESTART_MS]
    if len({*state.isr, *moment_ago}) >= least:
        return None
    return UnderMinIsr(state.isr, least, tuple(b for b in state.replicas if b not in state.isr))


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


def _until(cluster: Cluster, briefs: list[Brief], settings: ClusterSettings) -> dict[str, int]:
    """Newest broker-written time (ms) of each directory whose own metadata is missing, if there are several brokers.

    Such a directory may lack whatever others have from later: nothing shows that its broker was not restarted.
    """
    newest: dict[str, int] = {}
    if len({b.broker_id for b in briefs}) > 1:
        for b in briefs:
            if b.bounds.clean_shutdown and b.broker_id not in settings.metadata_ends:
                time = b.broker_time - cluster.clocks.ahead_ms(b.bounds.clock, b.broker_id)
                newest[b.log_dir] = max(time, newest.get(b.log_dir, -1))
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


def _coordinator(cluster: Cluster, briefs: list[Brief], metadata: ClusterMetadata | None) -> CoordinatorHistory | None:
    if not briefs:
        return None
    # A follower learns of a leader epoch by its first batch, the metadata before the new coordinator writes anything.
    states = () if metadata is None else metadata.partitions.values()
    epochs = {state.partition: state.leader_epoch for state in states if state.topic == TRANSACTION_STATE}
    briefs.sort(key=lambda b: b.partition)
    logs = {b.partition: b.coordinator_log for b in briefs if b.coordinator_log is not None}
    history = join(cluster.partition_counts.get(TRANSACTION_STATE, 0), logs)
    history.count_known = cluster.knows_count(TRANSACTION_STATE)
    for b in briefs:
        p = b.partition
        history.complete_from[p], history.leader_epochs[p] = b.intact_from, b.rank[0]
        history.highest_epochs[p] = max(b.rank[0], epochs.get(p, -1))
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
        for p in _without_folder(broker, dirs, settings, options, by_name=True):
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
    broker: int, dirs: list[LogDir], settings: ClusterSettings, options: AuditOptions, by_name: bool = False
) -> list[PartitionState]:
    """Return a broker's partitions without a directory; ``by_name``: one under another name, which a start ignores."""
    present = {
        (c.topic, c.partition, c.topic_id)  # of a removed topic: is none
        for d in dirs
        for c in d.replicas
        if not by_name or c.folder == f"{c.topic}-{c.partition}"
    }
    lacking = (
        p
        for p in _assigned(broker, settings, options)
        if present.isdisjoint(((p.topic, p.partition, p.topic_id), (p.topic, p.partition, None)))
    )
    return sorted(lacking, key=lambda p: (p.topic, p.partition))
