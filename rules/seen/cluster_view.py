"""Facts of one cluster beyond a single log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from auditor.base.errors import setting_number
from auditor.base.remote_segments import RemoteLogs
from auditor.base.transactional_ids import IdOrigin
from auditor.base.user_input import EVERYTHING, Scope
from auditor.evidence.cluster_clocks import MAX_TIMEOUT_MS, Clocks, at_most_ms
from auditor.evidence.horizons import ALWAYS, Horizon, HorizonSource, LastMarker, ReadTimes
from auditor.evidence.which_copy import Incarnations, OfTopic, OneCopy, Ranges, WhichCopies, by_preference, divided
from auditor.facts.coordinator_history import CoordinatorHistory
from auditor.facts.coordinator_log import StateRecord
from auditor.facts.crash_recovery import StartStep
from auditor.model import policies
from auditor.model.policies import ReleaseEvidence
from auditor.transactions.id_origins import Surroundings

# Elections, by the controller's records.


Copy = TypeVar("Copy", bound=OfTopic)
UP, SHUTTING_DOWN = "up", "shutting down"  # how a broker stands
RECOVERING = 1  # LeaderRecoveryState: elected without being in sync, and not yet seen to it


class Election(NamedTuple):
    """A leader that the controller elected, by a PartitionChangeRecord of ``__cluster_metadata``.

    ``offset`` (in the metadata log) and ``time`` (ms) are None where only a snapshot shows it. Fields ``_before`` are
    those of the previous record: replicas in sync, eligible (ELR), and the last known eligible one. ``recovering``:
    this record set RECOVERING; ``reassigned``: it completed a reassignment. ``last_leader``: the previous leader.
    ``left_sync``: the metadata offset at which the new leader had left the ISR, None where unknown;
    ``in_sync_to_the_end``: the last leader's own metadata log ends before that record, so it had stopped by then.
    """

    topic_id: str
    leader: int
    leader_epoch: int
    last_leader: int
    isr: tuple[int, ...]
    isr_before: tuple[int, ...]
    elr_before: tuple[int, ...]
    last_known_elr_before: tuple[int, ...]
    recovering: bool
    reassigned: bool
    offset: int | None
    time: int | None
    left_sync: int | None = None
    in_sync_to_the_end: bool = False

    @property
    def clean(self) -> bool:
        """Whether the leader had everything committed: it was in sync or eligible. Source: KIP-966."""
        if self.recovering:
            return False
        return self.reassigned or self.leader in self.isr_before or self.leader in self.elr_before

    @property
    def only_its_own_tail(self) -> bool:
        """Whether the leader had led last, alone: only its own unflushed tail can be lost.

        An automatic election after a kill, where a partition has one replica. Source: KIP-966, last known ELR.
        """
        return self.last_known_elr_before == (self.leader,)


class WithoutLeader(NamedTuple):
    """A time (ms) without a leader, since ``offset`` in the metadata log; ``until`` is None while it lasts."""

    topic_id: str
    since: int
    until: int | None = None
    offset: int | None = None


class Offline(NamedTuple):
    """A partition that is leaderless at the end of the metadata, while some broker of the cluster is up.

    ``in_sync``: the replicas in sync and the eligible ones (ELR), each with the status of its broker: ``up``,
    ``fenced``, ``shutting down`` or ``not registered``; ``up``: the first of the brokers that are up; ``lasts_ms``: for
    how long it has been leaderless at least, None where unknown.
    """

    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: dict[int, str]
    up: tuple[int, ...]
    lasts_ms: int | None = None


class Absent(NamedTuple):
    """A replica in sync by the metadata whose broker is in the input without its partition directory.

    ``in_sync``: the replicas in sync, and the eligible ones, as before the shutdowns that end the metadata; ``sure``:
    its broker's own metadata ends with it, and its files are of the same time.
    """

    topic: str
    partition: int
    broker_id: int
    in_sync: tuple[int, ...]
    sure: bool


class Alone(NamedTuple):
    """What is unavailable while one broker is down.

    ``names``: the partitions (``topic-N``) whose only in-sync replica it has; ``producers``: ids with transactions in
    these logs, some of each log.
    """

    names: tuple[str, ...] = ()
    producers: tuple[int, ...] = ()


class UnderMinIsr(NamedTuple):
    """A partition whose leader is up and refuses appends with acks=all, as markers are: too few replicas in sync.

    ``isr``: the replicas in sync, fewer than ``least`` (min.insync.replicas, at most the number of replicas);
    ``others``: its other replicas.
    """

    isr: tuple[int, ...]
    least: int
    others: tuple[int, ...]


Elections = dict[tuple[str, int], list[Election]]
Leaderless = dict[tuple[str, int], list[WithoutLeader]]


# Facts of one log that all others need.


class LeaderBounds(NamedTuple):
    """Where the leader replica of a log begins and ends, and what its file can prove about time.

    ``clean_shutdown``: its file is complete: its broker was stopped cleanly, and was in sync. ``open_known``: all
    transactions open in it are known. ``moment`` (ms): its file has everything written until then, by its own newest
    time, or by how long copying its log directory can have taken. ``read``: the read times of a copy; ``moment`` is
    then their begin. ``out_of_sync``: its broker is not in sync by the metadata, and none in the input is as far; or it
    ran on, or again, after the copy. ``until``: it was stopped cleanly, but may have run on after this time (ms).
    ``end_damaged``: a batch with a CRC mismatch follows ``log_end``, with unknown offsets. ``broker_time`` (ms): the
    newest that a broker wrote, behind the last fall of its clock; ``copy_time`` is that, or a client's without any;
    ``clock``: the broker whose clock it is of.
    """

    log_start: int
    log_end: int
    high_watermark: int | None
    copy_time: int
    clean_shutdown: bool
    topic_id: str | None
    broker_id: int | None
    starts_late: bool = False
    open_known: bool = True
    moment: int = -1
    out_of_sync: bool = False
    until: int = -1
    read: ReadTimes | None = None
    end_damaged: bool = False
    broker_time: int = -1
    clock: int | None = None


class OpenHere(NamedTuple):
    """An open transaction of a producer in one log: first offset, epoch, and the producer's previous marker.

    ``ended_before``: ms when that marker was written, -1 for none. ``appended``: ms when its first batch was appended,
    under ``leader_epoch``, if a broker stamped it and it has this epoch; else -1.
    """

    first_offset: int
    epoch: int
    ended_before: int
    appended: int = -1
    leader_epoch: int = -1


HOUR_MS, DAY_MS = 3_600_000, 86_400_000
TRANSACTION_STATE = "__transaction_state"
METADATA_TOPIC = "__cluster_metadata"
MIN_IN_SYNC, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"


# The settings for the partition counts of internal topics.
COUNT_SETTINGS = {
    "__transaction_state": "transaction.state.log.num.partitions",
    "__consumer_offsets": "offsets.topic.num.partitions",
}
DEFAULT_COUNT = 50


_OF_THE_INPUT = (
    "policy", "scope", "absent", "whole", "without_segments", "mixed", "clock_given", "at_once", "starts", "start_of",
)  # fmt: skip


@dataclass(slots=True)
class Cluster:
    """Everything known of one cluster beyond a single log. Times are ms.

    ``as_of`` is the evaluation time of the audit; ``newest_time`` the newest broker-written time of its logs;
    ``clocks``: those of its brokers.
    ``releases``: what the input shows of each broker's release, by broker id. ``made_anew``: re-created topics: when
    the previous one was removed, when this one was created (ms), and the first producer id not allocated by then, each
    None where unknown. ``unknown_settings``: by broker, the settings of its file with an unknown value.
    ``topic_configs`` are effective per topic where ``__cluster_metadata`` shows them; ``policy`` is that of each log
    directory. ``open_here``: by producer id, its open transactions by ``topic-partition``; ``ended``: the newest marker
    per log of producers whose last transaction the coordinator has not completed. ``coordinator`` is None if no
    partition of ``__transaction_state`` is in the input.

    ``in_sync``: the in-sync replicas by the metadata, the eligible ones (ELR), and those that left by a shutdown and
    have not restarted, of which ``eligible`` are not in the ISR; ``alone_in_sync``: by broker, the partitions whose
    other replicas are neither in sync nor eligible; ``short_without``: by broker, the first and the number of
    partitions with too few in-sync replicas for acks=all once it stops; ``alone``: by broker what is unavailable while
    it is down, including partitions of one replica; ``voters``: of the quorum, by its log; ``leaderless``: times
    without a leader. ``clock_given``: ``as_of`` is the user's, not the newest time in the input. ``away``: partitions
    (``topic-partition``) that are leaderless by the metadata, or whose leader is fenced or shutting down while others
    are up; ``offline``: the leaderless ones. ``under_min_isr``: by ``topic-partition`` those that refuse writes with
    acks=all, after more than a restart. ``directory_ids``: the directory.id of each log directory, by name.
    ``remote``: what is in tiered storage, as far as the input shows it. ``abort_indexes``: whether any ``.txnindex`` is
    in the input.

    ``moments``: by log directory, the time (ms) until which each of its files is complete, by its newest time and the
    duration of copying; ``read_at``: when logs were read, by log directory, topic and partition, from the manifests of
    copies; ``misread``: what contradicts those, by log directory. ``passes``: the logs that have everything committed
    when the checkpoint of their log directory was written, and the earliest time (ms) of that; ``checkpointed`` has
    that time of all log directories. ``went_on``: brokers that ran on, or again, after their directories were copied.
    ``until``: log directories of cleanly stopped brokers that may have run on, with their newest times (ms).

    ``copies``: older copies of log directories, which are excluded; ``incarnations``: topics of one name;
    ``other_topics``: by topic id the cluster as seen from a topic that may be the current one of its name, too.

    ``metadata_committed``: by log directory, the offset below which its ``__cluster_metadata`` is committed;
    ``not_committed_from``: the offset from which a majority of the voters in the input does not have the metadata.
    ``levels``: of features, set last at ``levels_since`` (ms), and ``replicas`` the replica count of each partition, by
    the metadata; ``of_files``: by
    broker, the names of the settings in its file, where that is in the input; ``configs_by``: the source of the others.
    ``at_once``: the input is a point-in-time snapshot; ``mixed``: a log directory is of two copies, so nothing is
    certain. ``absent``: in-sync replicas without a directory, where the input has all directories of their brokers
    (``--whole``). ``whole``: that option was given; ``without_segments``: log directories without any segment.
    ``starts``: by log directory, what a start does at files that are not as they should be, ``start_of`` the first log
    there, which reports those outside of partitions; ``next_release``: what a newer release refuses. ``scope``: what
    was read; the rest is unknown. ``unverified``: by ``topic-partition`` the offset ranges of batches of its leader
    replica with an unverified checksum. ``is_judged``: False where all this is unknown since finding it out failed.
    ``group_kinds``: the groups of Connect's workers and Streams' threads; ``surroundings``: for :meth:`origin`.
    """

    as_of: int
    newest_time: int
    clocks: Clocks = field(default_factory=Clocks)
    policy: dict[str, str] = field(default_factory=dict)
    releases: dict[int | None, ReleaseEvidence] = field(default_factory=dict)
    coordinator: CoordinatorHistory | None = None
    topic_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    unknown_settings: dict[int | None, frozenset[str]] = field(default_factory=dict)
    of_files: dict[int | None, frozenset[str]] = field(default_factory=dict)
    configs_by: str = METADATA_TOPIC
    has_metadata: bool = False
    levels: dict[str, int] = field(default_factory=dict)
    levels_since: dict[str, int] = field(default_factory=dict)
    replicas: dict[tuple[str, int], int] = field(default_factory=dict)
    leaders: dict[tuple[str, int], int] = field(default_factory=dict)
    last_leaders: dict[tuple[str, int], int] = field(default_factory=dict)
    elections: Elections = field(default_factory=dict)
    leaderless: Leaderless = field(default_factory=dict)
    partition_counts: dict[str, int] = field(default_factory=dict)
    next_producer_id: int | None = None
    made_anew: dict[str, tuple[int | None, int | None, int | None]] = field(default_factory=dict)
    metadata_time: int = -1
    is_judged: bool = True
    incarnations: Incarnations = Incarnations()  # noqa: RUF009 (a tuple)
    not_committed_from: int | None = None
    metadata_committed: dict[str, int] = field(default_factory=dict)
    clock_given: bool = True
    away: frozenset[str] = frozenset()
    offline: dict[tuple[str, int], Offline] = field(default_factory=dict)
    under_min_isr: dict[str, UnderMinIsr] = field(default_factory=dict)
    absent: tuple[Absent, ...] = ()
    whole: bool = False
    without_segments: frozenset[str] = frozenset()
    directory_ids: dict[str, str] = field(default_factory=dict)
    in_sync: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    eligible: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    alone_in_sync: dict[int, list[str]] = field(default_factory=dict)
    short_without: dict[int, tuple[str, int]] = field(default_factory=dict)
    alone: dict[int, Alone] = field(default_factory=dict)
    voters: tuple[int, ...] = ()
    bounds: dict[tuple[str, int], LeaderBounds] = field(default_factory=dict)
    open_here: dict[int, dict[str, OpenHere]] = field(default_factory=dict)
    ended: dict[int, list[LastMarker]] = field(default_factory=dict)
    moments: dict[str, int] = field(default_factory=dict)
    passes: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)
    checkpointed: dict[str, int] = field(default_factory=dict)
    at_once: bool = False
    scope: Scope = EVERYTHING
    remote: RemoteLogs = field(default_factory=RemoteLogs)
    abort_indexes: bool = True
    went_on: frozenset[int] = frozenset()
    until: dict[str, int] = field(default_factory=dict)
    read_at: dict[tuple[str, str, int], ReadTimes] = field(default_factory=dict)
    misread: dict[str, str] = field(default_factory=dict)
    mixed: bool = False
    unverified: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    copies: WhichCopies = WhichCopies()  # noqa: RUF009 (a tuple)
    other_topics: dict[str, Cluster] = field(default_factory=dict)
    starts: dict[str, list[StartStep]] = field(default_factory=dict)
    start_of: dict[str, tuple[str, int]] = field(default_factory=dict)
    next_release: dict[str, list[str]] = field(default_factory=dict)
    group_kinds: dict[str, str] = field(default_factory=dict)
    surroundings: Surroundings | None = None

    def copy_shares(self, copies: list[OneCopy]) -> dict[tuple[str, str, int], tuple[bool, Ranges]]:
        """Return what each copy of a log counts for: whether it is the leader's, and the offsets that it stands for.

        By log directory, topic and partition. Older copies and other replicas stand for what the leader's lacks; copies
        of another topic of the name for nothing, where the topic has its own. No entry for a single copy.
        """
        shares = {}
        for own, cluster in self.by_topic(copies) if len(copies) > 1 else ():
            counting, older = cluster.copies.counting(own)
            replicas, strange = cluster.incarnations.parted(counting)
            if not replicas:
                replicas, strange = strange, []
            named = cluster.last_leader(own[0].topic, own[0].partition)
            order = by_preference(replicas, named) + by_preference(older, named)
            ranges = divided(order) + [Ranges() for _ in strange]
            for number, (copy, some) in enumerate(zip([*order, *strange], ranges, strict=True)):
                shares[copy.log_dir, copy.topic, copy.partition] = (number == 0, some)
        return shares

    def by_topic(self, replicas: list[Copy]) -> Iterator[tuple[list[Copy], Cluster]]:
        """Yield the copies of a partition, of each topic of its name that is judged for itself, with its cluster."""
        others = [r.topic_id for r in self.incarnations.rivals.get(replicas[0].topic, ())[1:]]
        for topic_id in others:
            if own := [c for c in replicas if c.topic_id == topic_id]:
                other = self.other_topics[topic_id]
                for name in _OF_THE_INPUT:
                    setattr(other, name, getattr(self, name))
                yield own, other
        if own := [c for c in replicas if c.topic_id not in others]:
            yield own, self

    def __post_init__(self) -> None:
        if self.clocks.cluster_now < 0:
            self.clocks = Clocks(self.as_of)

    def setting(self, topic: str, name: str) -> str | None:
        """Return a topic's setting as far as the input shows it, by its topic-level name."""
        return self.topic_configs.get(topic, {}).get(name)

    def origin(self, transactional_id: str | None) -> IdOrigin | None:
        """Return whose a transactional id is, None where nothing shows it. Cost: the first call may index all ids."""
        if self.surroundings is None:
            self.surroundings = Surroundings(self.coordinator, self.group_kinds, self.partition_counts)
        return None if transactional_id is None else self.surroundings.origin(transactional_id)

    def is_tiered(self, topic: str) -> bool:
        """Whether older segments may be in remote storage: by the topic's setting, or because some were copied."""
        return self.setting(topic, "remote.storage.enable") == "true" or self.remote.has_topic(topic)

    def is_ahead_of_all(self, ms: int, slack_ms: int = HOUR_MS) -> bool:
        """Whether a producer's timestamp (ms) is ahead of everything brokers wrote.

        Only a controller log proves it: it is written twice a second.
        """
        return self.has_metadata and ms > self.newest_time + slack_ms

    def broker_setting(self, broker_id: int | None, *names: str) -> str | None:
        """Return the first of a broker's settings that the input shows: its own, otherwise the cluster default."""
        for entity in (str(broker_id), ""):
            for name in names:
                value = self.broker_configs.get(entity, {}).get(name)
                if value is not None:
                    return value
        return None

    def is_unknown(self, broker_id: int | None, *names: str) -> bool:
        """Whether the broker's file sets one of these to an unknown value, so that no default applies."""
        return not self.unknown_settings.get(broker_id, frozenset[str]()).isdisjoint(names)

    def release(self, broker_id: int | None) -> ReleaseEvidence:
        """Return what the input shows of a broker's release."""
        return self.releases.get(broker_id, policies.UNKNOWN)

    def expiration_ms(self, broker_id: int | None) -> int:
        """Return how long the broker remembers an idle producer, ms, by its settings and release."""
        return policies.expiration_ms(self.release(broker_id), lambda name: self.broker_setting(broker_id, name))

    def knows_count(self, topic: str) -> bool:
        """Whether ``partition_counts`` of an internal topic is its real count, not only that of the copied directories.

        The metadata shows it, no broker creates more by its settings, or it is Kafka's default.
        """
        if self.has_metadata and any(name == topic for name, _ in self.leaders):
            return True
        count = self.partition_counts.get(topic, 0)
        name = COUNT_SETTINGS.get(topic, "")
        if any(self.is_unknown(broker, name) for broker in self.unknown_settings):
            return False
        values = [broker.get(name) for broker in self.broker_configs.values()]
        set_to = [number for value in values if (number := setting_number(value)) is not None]
        return count >= max(set_to) if set_to else count == DEFAULT_COUNT

    def may_be_uncommitted(self, offset: int | None) -> bool:
        """Whether only a minority of the voters has a metadata record: it may never have been committed.

        False where no majority is in the input.
        """
        return offset is not None and self.not_committed_from is not None and offset >= self.not_committed_from

    def last_leader(self, topic: str, partition: int) -> int | None:
        """Return the last leader of a partition by the metadata, also where a shutdown left it leaderless."""
        return self.last_leaders.get((topic, partition), self.leaders.get((topic, partition)))

    def elected(self, topic: str, partition: int) -> list[Election]:
        """Return the elections of a partition that the metadata shows, in order."""
        return self.elections.get((topic, partition), [])

    def led(self, topic: str, partition: int, leader_epoch: int) -> int | None:
        """Return the leader of a partition in an epoch by the metadata; None where unknown."""
        elections = self.elected(topic, partition)
        if until := [e for e in elections if e.leader_epoch <= leader_epoch]:
            return until[-1].leader
        return elections[0].last_leader if elections else self.leaders.get((topic, partition))

    def horizon(self, topic: str, partition: int, *, committed: bool = False) -> Horizon:
        """Return until when the leader replica of a log is complete, or complete in what was ``committed`` by then.

        A log outside the input may lack anything.
        """
        return max(self._horizons(topic, partition, committed=committed), key=lambda horizon: horizon.until)

    def _horizons(self, topic: str, partition: int, *, committed: bool) -> list[Horizon]:
        bounds = self.bounds.get((topic, partition))
        if bounds is None:
            return [Horizon(-1, HorizonSource.NONE)]
        if self.at_once:
            return [Horizon(ALWAYS, HorizonSource.AT_ONCE)]
        if bounds.clean_shutdown:
            until = bounds.until if bounds.until >= 0 else ALWAYS
            return [self._of_holder(bounds, until, HorizonSource.CLEAN_SHUTDOWN)]
        by_directory = HorizonSource.DIRECTORY if bounds.read is None else HorizonSource.READ_TIMES
        horizons = [
            Horizon(bounds.copy_time, HorizonSource.OWN_STAMPS),
            self._of_holder(bounds, bounds.moment, by_directory),
        ]
        if committed:
            passed = self.passes.get((topic, partition), ("", -1))[1]
            horizons.append(self._of_holder(bounds, passed, HorizonSource.CHECKPOINT))
        return horizons

    def _of_holder(self, bounds: LeaderBounds, until: int, by: HorizonSource) -> Horizon:
        # A time of the broker that has the copy, by the clock of the log.
        ahead = self.clocks.ahead_ms(bounds.clock, bounds.broker_id)
        return Horizon(until + ahead if 0 <= until < ALWAYS else until, by)

    def lacks(self, topic: str, partition: int, needed_by: int, *, other_clock: bool, committed: bool = False) -> bool:
        """Whether what a log lacks may be missing only because its file was copied before ``needed_by`` (ms).

        ``other_clock``: that time is of another broker than the log's, or of a client. ``committed``: it is the broker
        time by which the missing record had to be committed.
        """
        return not any(
            horizon.reaches(needed_by, other_clock=other_clock)
            and not self.clocks.may_be_reversed(horizon.until, needed_by, f"{topic}-{partition}")
            for horizon in self._horizons(topic, partition, committed=committed)
        )

    def moment(self, log_dir: str, topic: str, partition: int) -> int:
        """Return the time (ms) until which a replica is complete: when it was read, where known."""
        read = self.read_at.get((log_dir, topic, partition))
        return self.moments.get(log_dir, -1) if read is None else read.begun

    def of_one_pass(self, *logs: tuple[str, int]) -> bool:
        """Whether one checkpoint shows what was committed in all these logs, by topic and partition."""
        directories = {self.passes[log][0] if log in self.passes else None for log in logs}
        return len(directories) == 1 and None not in directories

    def coordinators_lack(self, producer_id: int, needed_by: int) -> bool:
        """Apply :meth:`lacks` to the coordinator log with a producer id, or to all of them where none has it."""
        assert self.coordinator is not None
        written = self.coordinator.written_in(producer_id)
        partitions = range(self.coordinator.partition_count) if written is None else (written,)
        return any(self.lacks(TRANSACTION_STATE, p, needed_by, other_clock=True) for p in partitions)

    def coordinator_of(self, partition: int, entry: StateRecord | None = None) -> int | None:
        """Return the broker that wrote a record of a coordinator's log, or its newest ones: their clock."""
        led = None if entry is None else self.led(TRANSACTION_STATE, partition, entry.leader_epoch)
        bounds = self.bounds.get((TRANSACTION_STATE, partition))
        return bounds.clock if led is None and bounds is not None else led

    def writer(self, topic: str, partition: int) -> int | None:
        """Return the broker whose clock a log goes by: its last leader, otherwise that of the leader replica."""
        bounds = self.bounds.get((topic, partition))
        named = self.last_leader(topic, partition)
        return named if named is not None or bounds is None else bounds.broker_id

    def margin(self, timeout_ms: int = 0) -> int:
        """Return the slack of rules by age alone (rules.md, *margin*)."""
        return at_most_ms(max(MAX_TIMEOUT_MS, timeout_ms + self.clocks.interval_ms(None)))
