"""Settings and metadata of each cluster, from __cluster_metadata."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from auditor.base.at_rest import Fields
from auditor.base.errors import DecodeError, Limits, StartFile, attempt, is_unread, setting_number
from auditor.base.remote_segments import RemoteLogs
from auditor.connectors import schema
from auditor.connectors.codec.cluster_metadata import (
    TOPIC_RESOURCE,
    BrokerState,
    Change,
    ClusterMetadata,
    MetadataEntry,
    PartitionState,
    fold_metadata,
)
from auditor.connectors.codec.small_files import OF_BROKERS, OF_TOPICS, sort_out
from auditor.connectors.logdir import tiered
from auditor.connectors.logdir.files import JUDGED, DataFile, Inventory, LogDir, Replica, parted
from auditor.connectors.logdir.internal_rows import MetadataLog, beginning, checkpoints_at_start
from auditor.connectors.schema import from_rows
from auditor.connectors.stores.storage import StorageLocation
from auditor.evidence.which_copy import ClusterCopy, several_clusters
from auditor.facts.crash_recovery import METADATA_LOG, TOPIC_ID, StartStep, start_steps
from auditor.model import policies
from auditor.model.policies import UNKNOWN, Policy, ReleaseEvidence, policy_at, shown_by
from auditor.processes.isolation import Pool
from auditor.rules.seen.cluster_view import RECOVERING, Election, Elections, Leaderless, WithoutLeader
from auditor.rules.seen.view import iso

# Comparison of copies of ``__cluster_metadata``: how far two are one log, and what is committed (KIP-595).
#
# A voter that led and was cut off keeps an uncommitted tail of an old epoch, which it truncates when it follows
# again. Committed is what a majority of the voters has, or a snapshot. Voters copied earlier have less of it, so the
# offset known to be committed is a lower bound.


class Copy(NamedTuple):
    """A copy of the metadata log.

    ``lineage``: its leader epochs with their first offsets, both ascending; ``snapshot_end``: end of its newest
    snapshot, 0 without one.
    """

    log_dir: str
    broker_id: int | None
    start: int
    end: int
    lineage: tuple[tuple[int, int], ...]
    snapshot_end: int

    @property
    def rank(self) -> tuple[int, int]:
        """Sort key as voters compare logs: last leader epoch, then end."""
        return (self.lineage[-1][0] if self.lineage else -1, self.end)

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of the batch at an offset, -1 if unknown."""
        return next((epoch for epoch, start in reversed(self.lineage) if start <= offset), -1)


def same_until(one: Copy, other: Copy) -> int:
    """Return the offset until which two copies are one log: by Raft, equal epoch and offset mean equal records.

    What is below the beginning of either is in a snapshot, and so committed.
    """
    end = min(one.end, other.end)
    begin = max(one.start, other.start)
    starts = sorted(start for copy in (one, other) for _, start in copy.lineage if begin < start < end)
    for offset in [begin, *starts]:
        if offset < end and one.epoch_at(offset) != other.epoch_at(offset):
            return offset
    return end


def has_majority(copies: Collection[Copy], voters: Collection[int]) -> bool:
    """Whether a majority of the voters is among the copies."""
    return len({copy.broker_id for copy in copies} & set(voters)) > len(set(voters)) // 2


def committed(copies: Collection[Copy], voters: Collection[int]) -> dict[str, int]:
    """Return by log directory the offset below which its copy is known to be committed."""
    majority = len(set(voters)) // 2 + 1
    offsets = {}
    for copy in copies:
        shared: dict[int, int] = {}
        for other in copies:
            if other.broker_id is not None and other.broker_id in voters:
                shared[other.broker_id] = max(same_until(copy, other), shared.get(other.broker_id, 0))
        ends = sorted(shared.values(), reverse=True)
        offsets[copy.log_dir] = max(copy.snapshot_end, ends[majority - 1] if len(ends) >= majority else 0)
    return offsets


# Settings of each cluster from ``__cluster_metadata``, read before anything else.
#
# A metadata log is small (a snapshot and the log after it). Every one is read on the driver's machine, in a process
# apart, since it may kill its reader; the copy counts that a quorum would elect.


METADATA_TOPIC, KRAFT = "__cluster_metadata", "kraft.version"
TIMES_WITHOUT_LEADER = 50  # kept of a partition, the last
Stopped = dict[tuple[str, int], tuple[int, ...]]  # by topic id and partition
LeftSync = dict[tuple[str, int], dict[int, int | None]]
Sessions = dict[int, int | None]  # when a broker's last session ended (ms, -1: unknown), None while it is up
Made = dict[
    tuple[str, int], tuple[int, int]
]  # offset and time (ms) of the record that made a partition, -1: a snapshot

# Broker-level names of topic settings (formats 10.2); the rest have the same name at both levels.
BROKER_NAMES = {
    "cleanup.policy": "log.cleanup.policy",
    "message.timestamp.type": "log.message.timestamp.type",
    "message.timestamp.difference.max.ms": "log.message.timestamp.difference.max.ms",
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

    ``unknown``: by broker, the settings of its file whose value cannot be known; ``of_files``: those that count of it.
    ``releases``: what the input shows of each broker's release, by broker id. ``whole``: all of that metadata could be
    read. ``remote``: what ``__remote_log_metadata`` says of segments in tiered storage. ``metadata_ends``: where each
    broker's own metadata log ends, of those that could be read whole, as far as it is one with that. ``committed``: by
    log directory below which offset its metadata log is known to be committed. ``not_committed_from``: where a majority
    of the voters is in the input, the offset from which on that has not what is read here; copied earlier, or never.
    ``voters``: of the quorum. ``directory_ids``: of the log directories that have one, by name. ``assigned``: by broker
    the partitions, with their topic ids, that its own metadata gives it, and when that says they were made.
    ``sessions``: of the brokers that were up in the records of the metadata. ``removed``: ids of topics that are gone;
    ``since_start``: the metadata log is whole from its first record on. ``went_on``: brokers that ran on, or again,
    behind the moment that their directories are of. ``apart``: its log directories, where other clusters have its id.
    ``cut_at``: of a controller alone, its log directory and the offset at which its start cuts the damaged metadata
    log; ``not_sound``: the partitions made from there on, by topic id; ``start_files``: metadata checkpoints that are
    not whole, by log directory.
    """

    metadata: ClusterMetadata | None = None
    whole: bool = False
    source: LogDir | None = None
    newest_time: int = -1
    elections: Elections = field(default_factory=dict)
    leaderless: Leaderless = field(default_factory=dict)
    topic_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    unknown: dict[int | None, frozenset[str]] = field(default_factory=dict)
    of_files: dict[int | None, frozenset[str]] = field(default_factory=dict)
    releases: dict[int | None, ReleaseEvidence] = field(default_factory=dict)
    remote: RemoteLogs = field(default_factory=RemoteLogs)
    metadata_ends: dict[int | None, int] = field(default_factory=dict)
    directory_ids: dict[str, str] = field(default_factory=dict)
    voters: tuple[int, ...] = ()
    committed: dict[str, int] = field(default_factory=dict)
    not_committed_from: int | None = None
    assigned: dict[int, Made] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    since_start: bool = False
    went_on: frozenset[int] = frozenset()
    stopped: Stopped = field(default_factory=dict)
    sessions: Sessions = field(default_factory=dict)
    apart: tuple[str, ...] = ()
    cut_at: dict[str, int] = field(default_factory=dict)
    start_files: dict[str, tuple[StartFile, ...]] = field(default_factory=dict)
    not_sound: frozenset[tuple[str, int]] = frozenset()

    @property
    def levels(self) -> dict[str, int]:
        """The levels of features in the metadata."""
        if self.metadata is None:
            return {}
        return {name: f.level for name, f in self.metadata.features.items()} | {KRAFT: self.metadata.kraft_version}

    @property
    def levels_since(self) -> dict[str, int]:
        """When (ms) records in the metadata set these levels last; a snapshot does not tell."""
        features = {} if self.metadata is None else self.metadata.features
        return {name: f.timestamp for name, f in features.items() if f.timestamp is not None}

    def is_tiered(self, topic: str) -> bool:
        """Whether older segments of a topic may be in remote storage: by its setting, or because some were copied."""
        return self.topic_setting(topic, "remote.storage.enable") == "true" or self.remote.has_topic(topic)

    def expiration_ms(self, broker_id: int | None) -> int:
        """Return producer.id.expiration.ms of a broker, by its settings and the release that the input shows."""
        shown = self.releases.get(broker_id, policies.UNKNOWN)
        return policies.expiration_ms(shown, lambda name: self.topic_setting("", name, broker_id))

    def topic_setting(self, topic: str, name: str, broker_id: int | None = None) -> str | None:
        """Return a topic's effective setting: its own, the broker's, or the cluster's default; None if unset."""
        own = self.topic_configs.get(topic, {}).get(name)
        if own is not None:
            return own
        at_broker = BROKER_NAMES.get(name, name)
        for entity in (str(broker_id), ""):
            value = self.broker_configs.get(entity, {}).get(at_broker)
            if value is not None:
                return value
        return None


def timestamp_limit(cluster: ClusterSettings, side: str, topic: str, broker_id: int | None) -> int | None:
    """Return how far (ms) a CreateTime may be before or after (``side``) the append; None where unset.

    Until 3.5 message.timestamp.difference.max.ms is the only limit; up to 3.9 it stands in for whichever of the two is
    unset, 4.0 does not know it. Source: KIP-937.
    """
    names = [f"message.timestamp.{side}.max.ms"]
    if cluster.releases.get(broker_id, policies.UNKNOWN).least < (4, 0):
        names.append("message.timestamp.difference.max.ms")
    values = (cluster.topic_setting(topic, name, broker_id) for name in names)
    return setting_number(next((v for v in values if v is not None), None))


class MetadataTask(NamedTuple):
    """A replica of ``__cluster_metadata`` to read."""

    place: StorageLocation
    replica: Replica
    limits: Limits


class MetadataRead(NamedTuple):
    """What a replica of it says: ``whole`` if all of it could be read, the newest time in ms (-1: none), the errors.

    ``elections``: the leaders that it shows, by partition, also of topics that are gone; ``leaderless``: when nobody
    led. ``stopped``: brokers that left the in-sync set by the shutdown that is the last the metadata knows of them.
    ``made``: when each partition was. ``lineage``: the leader epochs of the log with their first offsets. ``voters``:
    of the quorum, as far as it says. ``sound``: the last leader epoch of its log and its end, up to what is damaged in
    it (``damaged``: something is); ``start_files``: its checkpoints that are not whole.
    """

    metadata: ClusterMetadata
    whole: bool
    newest_time: int
    errors: list[DecodeError]
    elections: Elections
    leaderless: Leaderless
    stopped: Stopped
    sessions: Sessions
    made: Made
    lineage: tuple[tuple[int, int], ...]
    voters: tuple[int, ...]
    sound: tuple[int, int]
    damaged: bool
    start_files: tuple[StartFile, ...]


def read_settings(
    inventory: Inventory, limits: Limits, pool: Pool | None = None
) -> tuple[dict[str, ClusterSettings], list[tuple[str, DecodeError]]]:
    """Return the settings of every cluster by join key, and read errors as (log_dir, error).

    ``pool``: processes that read, since a file may kill its reader; None: this process reads.
    """
    clusters = {log_dir.join_key: ClusterSettings() for log_dir in inventory.log_dirs}
    replicas = [(d, c) for d in inventory.log_dirs for c in d.replicas if c.topic == METADATA_TOPIC]
    tasks = [MetadataTask(log_dir.place, replica, limits) for log_dir, replica in replicas]
    errors, copies = list[tuple[str, DecodeError]](), dict[str, list[_MetadataPass]]()
    reads = list(map(read_metadata, tasks)) if pool is None else pool.all(tasks, read_metadata)
    inventory, apart = _by_cluster(inventory, [(d.name, c, r) for (d, c), r in zip(replicas, reads, strict=True)])
    clusters |= {key: ClusterSettings(apart=log_dirs) for key, log_dirs in apart.items()}
    for (read_dir, replica), read in zip(replicas, reads, strict=True):
        log_dir = next(d for d in inventory.log_dirs if d.name == read_dir.name)
        copies.setdefault(log_dir.join_key, []).append(_MetadataPass(_copy(log_dir, replica, read), log_dir, read))
        errors += [(log_dir.name, error) for error in read.errors]
    for join_key, some in copies.items():
        empty, failed = clusters[join_key], list[DecodeError]()
        merged = partial(_merge_copies, empty.apart, some)
        clusters[join_key] = attempt(failed, "the metadata could not be judged", merged, empty)
        errors += [(some[0].log_dir.name, error) for error in failed]
    for log_dir in inventory.log_dirs:
        _note_deleted(clusters[log_dir.join_key], log_dir)
    for cluster in clusters.values():
        _mark_in_sync_to_the_end(cluster)
        errors += drop_invalid_settings(cluster)
    for join_key, remote in _remote(inventory, limits, pool).items():
        clusters[join_key].remote = remote
    for log_dir in inventory.log_dirs:
        _add_configs(clusters[log_dir.join_key], log_dir)
        cluster = clusters[log_dir.join_key]
        if log_dir.meta is not None and log_dir.meta.directory_id is not None:
            cluster.directory_ids[log_dir.name] = log_dir.meta.directory_id
        before = cluster.releases.get(log_dir.broker_id, policies.UNKNOWN)
        cluster.releases[log_dir.broker_id] = before.also(_release(cluster, log_dir))
    return clusters, errors


def _by_cluster(
    inventory: Inventory, reads: Sequence[tuple[str, Replica, MetadataRead]]
) -> tuple[Inventory, dict[str, tuple[str, ...]]]:
    """Return the inventory, and by join key the log directories of each cluster, where several have one id."""
    topics = {
        name: frozenset([*read.metadata.topics.values(), *read.metadata.removed])
        for name, replica, read in reads
        if read.whole and replica.segments and replica.segments[0].base_offset == 0
    }
    apart: dict[str, tuple[str, ...]] = {}
    for key in dict.fromkeys(d.join_key for d in inventory.log_dirs) if len(topics) > 1 else ():
        some = [
            ClusterCopy(
                d.name,
                d.broker_id,
                None if d.meta is None else d.meta.directory_id,
                topics.get(d.name),
                frozenset(c.topic_id for c in d.replicas if c.topic_id is not None),
            )
            for d in inventory.log_dirs
            if d.join_key == key
        ]
        for number, of in enumerate(several_clusters(some)):
            apart[f"{key} of {of[0].log_dir}" if number else key] = tuple(c.log_dir for c in of)
    return parted(inventory, apart), apart


def _remote(inventory: Inventory, limits: Limits, pool: Pool | None) -> dict[str, RemoteLogs]:
    """Segments in tiered storage, by join key."""
    remote_tasks = tiered.tasks(inventory, limits)
    if pool is None:
        return tiered.read_all(remote_tasks)
    read = pool.all([task for _, task in remote_tasks], tiered.read_remote_log)
    return tiered.joined(zip((join_key for join_key, _ in remote_tasks), read, strict=True))


class _MetadataPass(NamedTuple):
    copy: Copy
    log_dir: LogDir
    read: MetadataRead


def _copy(log_dir: LogDir, replica: Replica, read: MetadataRead) -> Copy:
    begins = max(replica.segments[0].base_offset, 0) if replica.segments else read.metadata.snapshot_end
    end = read.metadata.end_offset
    return Copy(log_dir.name, log_dir.broker_id, begins, end, read.lineage, read.metadata.snapshot_end)


def _merge_copies(apart: tuple[str, ...], reads: list[_MetadataPass]) -> ClusterSettings:
    """Merge the copies of a cluster's metadata; the state is that of the copy that reaches furthest."""
    cluster = ClusterSettings(apart=apart)
    furthest, log_dir, read = max(reads, key=lambda item: (item.read.sound, item.copy.rank))
    copies = [item.copy for item in reads]
    cluster.committed = committed(copies, read.voters)
    damaged = any(item.read.damaged for item in reads)  # then it shows less than it had
    if not damaged and has_majority(copies, read.voters):
        cluster.not_committed_from = cluster.committed[furthest.log_dir]
    cluster.since_start = furthest.start == 0
    of_brokers = {item.log_dir.broker_id: item for item in sorted(reads, key=lambda item: item.copy.rank)}
    for copy, own, own_read in of_brokers.values():  # of each broker the copy that reaches furthest
        if own_read.whole and own.broker_id is not None:
            end = copy.end if own_read.damaged else same_until(copy, furthest)
            cluster.metadata_ends[own.broker_id] = end
            assigned = (key for key, p in own_read.metadata.partitions.items() if own.broker_id in p.replicas)
            cluster.assigned[own.broker_id] = {key: own_read.made.get(key, (-1, -1)) for key in assigned}
            if copy.end < furthest.end and _ran_on(own.broker_id, own_read.metadata, read.metadata, copy.end):
                cluster.went_on |= {own.broker_id}
    cluster.metadata, cluster.source, cluster.newest_time = read.metadata, log_dir, read.newest_time
    cluster.voters = read.voters
    cluster.start_files = {item.log_dir.name: item.read.start_files for item in reads}
    unread = any(is_unread(error.reason, error.detail) for error in read.errors)
    if (read.damaged or read.sound[1] <= 0) and not unread and len(reads) == 1 and len(read.voters) <= 1:
        cluster.cut_at = {log_dir.name: max(read.sound[1], 0)}
        cluster.not_sound = frozenset(key for key, (offset, _) in read.made.items() if offset >= read.sound[1])
    cluster.stopped, cluster.removed = read.stopped, frozenset(read.metadata.removed)
    cluster.sessions = read.sessions
    topics = read.metadata.topics  # one that was recreated under its name has another past
    of_now = {key: [e for e in some if e.topic_id == topics.get(key[0])] for key, some in read.elections.items()}
    cluster.elections = {key: some for key, some in of_now.items() if some}
    gaps = {key: [g for g in some if g.topic_id == topics.get(key[0])] for key, some in read.leaderless.items()}
    cluster.leaderless = {key: some for key, some in gaps.items() if some}
    cluster.topic_configs, cluster.whole = dict(read.metadata.topic_configs), read.whole
    cluster.broker_configs = {
        entity: {k: v for k, v in settings.items() if v is not None}
        for entity, settings in read.metadata.broker_configs.items()
    }
    return cluster


def _ran_on(number: int, then: ClusterMetadata, now: ClusterMetadata, end: int) -> bool:
    """Whether a broker ran on, or again, after the end of its own metadata copy, as a longer copy shows.

    It was not shutting down there, or has registered since: its broker epoch is the offset of its registration.
    """
    before, since = then.brokers.get(number), now.brokers.get(number)
    if since is None:
        return False
    return since.broker_epoch > end or before is None or not (before.fenced or before.in_controlled_shutdown)


def _note_deleted(cluster: ClusterSettings, log_dir: LogDir) -> None:
    """Note topics of which a log directory has deleted directories and which the metadata does not know (any more)."""
    if cluster.metadata is not None:
        ids = {c.topic_id for c in log_dir.aside if c.kind == "deleted" and c.topic_id is not None}
        cluster.removed |= ids - set(cluster.metadata.topics.values())


def _mark_in_sync_to_the_end(cluster: ClusterSettings) -> None:
    """Mark elections whose new leader was in sync as long as the last leader ran, by that one's metadata."""
    ends = cluster.metadata_ends
    for key, some in cluster.elections.items():
        cluster.elections[key] = [
            e._replace(in_sync_to_the_end=True)
            if e.left_sync is not None and e.last_leader in ends and ends[e.last_leader] <= e.left_sync
            else e
            for e in some
        ]


def read_metadata(task: MetadataTask) -> MetadataRead:
    """Read one replica: its newest complete snapshot, and the log after it."""
    reading = MetadataLog(*task)
    tried: list[DataFile] = []

    def snapshots() -> Iterator[tuple[int, Iterator[MetadataEntry]]]:
        for file in reading.snapshots():
            tried.append(file)
            yield file.offset, reading.snapshot(file)

    elections: Elections = {}
    leaderless: Leaderless = {}
    made: Made = {}

    left: LeftSync = {}
    stopping: dict[int, int | None] = {}
    sessions: Sessions = {}

    def take(change: Change) -> None:
        note_isr_exit(change, left)
        note_shutdown(change, stopping)
        note_session(change, sessions)
        note_election(change, elections, left)
        note_leaderless(change, leaderless)
        if change.partition is not None and change.before is None and change.offset is not None:
            made[change.partition.topic_id, change.partition.partition] = change.offset, change.timestamp or -1

    earlier, changes = beginning(reading)
    for change in changes:
        take(change)
    earlier.on_change = take
    metadata, errors = fold_metadata(snapshots(), reading.log(), earlier)
    unopened = {error.file for error in reading.unopened}
    errors = (
        reading.unopened
        + errors
        + [
            DecodeError(
                file.name, 0, file.size, "truncated", "a metadata snapshot without its footer, which is skipped"
            )
            for file in (tried[:-1] if metadata.snapshot_complete else tried)
            if file.name not in unopened
        ]
    )
    by_shutdown = left_by_shutdown(left, stopping)
    sound = reading.sound if reading.doubted else max(reading.sound, (reading.sound[0], metadata.end_offset))
    return MetadataRead(
        metadata=metadata,
        whole=not reading.lost,
        newest_time=reading.newest,
        errors=errors,
        elections=elections,
        leaderless=leaderless,
        stopped=by_shutdown,
        sessions=sessions,
        made=made,
        lineage=tuple(reading.lineage),
        voters=metadata.voters or reading.voters(),
        sound=sound,
        damaged=reading.doubted,
        start_files=tuple(checkpoints_at_start(*task)),
    )


def note_leaderless(change: Change, leaderless: Leaderless) -> None:
    """Note when a partition loses its leader and gets one again; the last times of each."""
    state, before = change.partition, change.before
    if state is None or change.timestamp is None or before is None or (state.leader < 0) == (before.leader < 0):
        return
    gaps = leaderless.setdefault((state.topic, state.partition), [])
    if state.leader < 0:
        gaps.append(WithoutLeader(state.topic_id, change.timestamp, offset=change.offset))
        del gaps[:-TIMES_WITHOUT_LEADER]
    elif gaps and gaps[-1].until is None:
        gaps[-1] = gaps[-1]._replace(until=change.timestamp)


def note_shutdown(change: Change, stopping: dict[int, int | None]) -> None:
    """Note the metadata offset at which each broker began its current controlled shutdown."""
    if change.broker is not None:
        number = change.broker.broker_id
        if not change.broker.in_controlled_shutdown:
            stopping.pop(number, None)
        else:
            stopping.setdefault(number, change.offset)


def note_session(change: Change, sessions: Sessions) -> None:
    """Note that a broker is up, or when it was fenced, began to shut down or was unregistered."""
    broker = change.broker
    if broker is None:
        return
    gone = change.record.name == "UnregisterBrokerRecord"
    if not (gone or broker.fenced or broker.in_controlled_shutdown):
        sessions[broker.broker_id] = None
    elif sessions.get(broker.broker_id, -1) is None:
        sessions[broker.broker_id] = -1 if change.timestamp is None else change.timestamp


def left_by_shutdown(left: LeftSync, stopping: dict[int, int | None]) -> Stopped:
    """Return the brokers that were in sync until their shutdown and have not been restarted since, by partition."""
    stopped: Stopped = {}
    for key, brokers in left.items():
        for number, offset in brokers.items():
            since = stopping.get(number)
            if since is not None and offset is not None and offset >= since:
                stopped[key] = (*stopped.get(key, ()), number)
    return stopped


def note_isr_exit(change: Change, left: LeftSync) -> None:
    """Note the metadata offset at which each replica last left the ISR, by topic id and partition."""
    state, before = change.partition, change.before
    if state is None or before is None or not set(before.isr) - set(state.isr):
        return
    offsets = left.setdefault((state.topic_id, state.partition), {})
    offsets.update(dict.fromkeys(set(before.isr) - set(state.isr), change.offset))


def note_election(change: Change, elections: Elections, left: LeftSync) -> None:
    """Note a change of a partition's leader, or a partition that a snapshot shows as recovering."""
    state, before = change.partition, change.before
    if state is None or state.leader < 0:
        return
    recovering = state.recovery_state == RECOVERING and (before is None or before.recovery_state != RECOVERING)
    if before is not None and before.leader_epoch == state.leader_epoch and not recovering:
        return
    earlier = elections.setdefault((state.topic, state.partition), [])
    same_topic = bool(earlier) and earlier[-1].topic_id == state.topic_id
    if before is None:  # made, or of a snapshot, where of an election only the outcome is known
        before = state._replace(isr=() if recovering else state.isr, elr=(), last_known_elr=(), adding=(), removing=())
    earlier.append(
        Election(
            topic_id=state.topic_id,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            last_leader=earlier[-1].leader if same_topic else before.leader,
            isr=state.isr,
            isr_before=before.isr,
            elr_before=before.elr,
            last_known_elr_before=before.last_known_elr,
            recovering=recovering,
            reassigned=bool(before.adding or before.removing) and not (state.adding or state.removing),
            offset=change.offset,
            time=change.timestamp,
            left_sync=left.get((state.topic_id, state.partition), {}).get(state.leader),
        )
    )


def drop_invalid_settings(cluster: ClusterSettings) -> list[tuple[str, DecodeError]]:
    """Drop settings with a value that no controller accepts; return an error for each name."""
    if cluster.metadata is None or cluster.source is None:
        return []
    met: dict[str, list[str]] = {}
    for kind, names, configs in (
        ("topic", OF_TOPICS, cluster.topic_configs),
        ("broker", OF_BROKERS, cluster.broker_configs),
    ):
        for entity in sorted(configs):
            accepted, *refused = sort_out(configs[entity], names)
            configs[entity] = accepted
            for name in sorted(frozenset().union(*refused)):
                met.setdefault(name, []).append(f"{kind} {entity or 'default'}")
    folder = f"{METADATA_TOPIC}-0"
    return [
        (
            cluster.source.name,
            DecodeError(
                folder,
                0,
                -1,
                "bad_setting",
                f"{name} of {entities[0]}"
                + (f" and {len(entities) - 1:,} more" if entities[1:] else "")
                + f" has a value that no broker takes{JUDGED}",
            ),
        )
        for name, entities in sorted(met.items())
    ]


def _add_configs(cluster: ClusterSettings, log_dir: LogDir) -> None:
    """Add the settings of a broker's file, which dynamic settings override as on a broker."""
    own = cluster.broker_configs.setdefault(str(log_dir.broker_id), {})
    default = cluster.broker_configs.get("", {})
    counting = {name: value for name, value in log_dir.configs.items() if name not in own and name not in default}
    own |= counting
    if log_dir.configs:
        cluster.of_files[log_dir.broker_id] = cluster.of_files.get(log_dir.broker_id, frozenset()) | counting.keys()
    met = cluster.unknown.get(log_dir.broker_id, frozenset())  # of the broker's other directories
    cluster.unknown[log_dir.broker_id] = (met | log_dir.unknown_settings) - own.keys() - default.keys()


def _release(cluster: ClusterSettings, log_dir: LogDir) -> ReleaseEvidence:
    """Evidence of a broker's release in the metadata, the settings and meta.properties."""
    protocol, message_format = (
        cluster.topic_setting("", name, log_dir.broker_id)
        for name in ("inter.broker.protocol.version", "log.message.format.version")
    )
    meta = log_dir.meta
    return policies.shown_by(
        cluster.levels.get("metadata.version", 0),
        protocol,
        message_format,
        None if meta is None else meta.cluster_id is not None,
        meta is not None and meta.directory_id is not None,
    )


def tables(cluster: ClusterSettings) -> dict[str, pa.Table]:
    """Return ``topics``, ``topic_configs``, ``broker_configs`` and ``partitions`` of one cluster."""
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
    named = 0 <= p.recovery_state < len(schema.RECOVERY_STATES)
    lists = (p.adding, p.removing, p.elr, p.last_known_elr)
    place = (p.topic, p.partition, p.topic_id, p.replicas, p.isr, p.leader, p.leader_epoch, p.partition_epoch)
    return (*place, *lists, schema.RECOVERY_STATES[p.recovery_state] if named else None)


# What a start does at files that are not as they should be, and what a newer release refuses.


LEAST_SEGMENT = 1 << 20  # bytes: segment.bytes since 4.1, log.segment.bytes since 4.0
TOO_SMALL = "{} and newer end at the start: {}={} of {} is below 1048576; set it to 1048576 or more before the upgrade"
NO_ZOOKEEPER = "4.0 and newer have no ZooKeeper mode: migrate to KRaft with 3.9 before the upgrade"
OwnLog = tuple[str, int, str | None]  # topic, partition and topic id of a log in a log directory


def _uses_zookeeper(log_dir: LogDir, logs: Iterable[OwnLog], settings: ClusterSettings) -> bool:
    if settings.metadata is not None or any(topic == METADATA_TOPIC for topic, _, _ in logs):
        return False
    if (meta := log_dir.meta) is None or meta.broker_id is None:  # damaged: topic ids are in every directory of KRaft
        return all(replica.partition_metadata is None for replica in log_dir.replicas)
    return meta.version == 0


def steps_at_start(log_dir: LogDir, logs: list[OwnLog], settings: ClusterSettings) -> list[StartStep]:
    """What a start does at the files of a log directory that are not as they should be; ``logs``: those that it has."""
    own = () if log_dir.copied else settings.start_files.get(log_dir.name, ())
    files = [f for f in (*log_dir.start_files, *own) if f.kind != METADATA_LOG or len(settings.voters) <= 1]
    files += _lost_at_start(log_dir, logs, settings)
    return start_steps(files, kraft=not _uses_zookeeper(log_dir, logs, settings))


def _lost_at_start(log_dir: LogDir, logs: list[OwnLog], settings: ClusterSettings) -> Iterator[StartFile]:
    # Partitions that the start renames -stray, though the broker has them: by damaged metadata, or another topic id.
    missing = any(file.kind == METADATA_LOG for file in log_dir.start_files) and len(settings.voters) <= 1
    cut = missing or log_dir.name in settings.cut_at
    metadata = settings.metadata
    if metadata is None and not cut:
        return
    known, ids = ({}, {}) if metadata is None else (metadata.partitions, metadata.topics)
    have = {(topic_id, number) for _, number, topic_id in logs}
    for topic, number, topic_id in logs:
        if topic_id is None or topic == METADATA_TOPIC:
            continue
        key, now = (topic_id, number), (ids.get(topic, ""), number)
        if cut and (key not in known or key in settings.not_sound):
            yield StartFile(f"{topic}-{number}", METADATA_LOG, "cut")
        elif cut or key in known or now not in known or now in have:
            continue
        elif log_dir.broker_id in known[now].replicas:
            yield StartFile(f"{topic}-{number}", TOPIC_ID, "other")


def refused_by_newer(log_dir: LogDir, settings: ClusterSettings) -> list[str]:
    """What keeps a newer release from starting on a log directory, a sentence each."""
    sizes = [
        ("4.1", "segment.bytes", configs.get("segment.bytes"), f"topic {topic}")
        for topic, configs in sorted(settings.topic_configs.items())
    ]
    own = log_dir.configs.get("log.segment.bytes")
    sizes.append(("4.0", "log.segment.bytes", own, f"broker {log_dir.broker_id}"))
    refused = [TOO_SMALL.format(*row) for row in sizes if 0 < (setting_number(row[2]) or 0) < LEAST_SEGMENT]
    return refused + ([NO_ZOOKEEPER] if log_dir.meta and _uses_zookeeper(log_dir, (), settings) else [])


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


# Controller events about some partitions, read from ``__cluster_metadata`` once findings name them.
#
# A metadata log may have hundreds of thousands of partitions; this pass keeps what concerns a few.


MAX_PARTITIONS = 50  # that findings name, the most severe first
MAX_EVENTS = 60  # of a partition, the newest


class EventsTask(NamedTuple):
    """A replica of ``__cluster_metadata``, and the partitions to report on."""

    place: StorageLocation
    replica: Replica
    wanted: tuple[tuple[str, int], ...]
    limits: Limits


def event_tasks(source: LogDir | None, named: list[tuple[str, int]], limits: Limits) -> list[EventsTask]:
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
