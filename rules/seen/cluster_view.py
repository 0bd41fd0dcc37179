"""Everything known of one cluster beyond a single log."""

from __future__ import annotations

from dataclasses import dataclass, field

from auditor.base.at_rest import Fields
from auditor.base.numbers import setting_number
from auditor.base.remote_segments import RemoteLogs
from auditor.base.user_input import EVERYTHING, Scope
from auditor.model import policies
from auditor.model.policies import Shown
from auditor.rules.seen.coordinator_history import (
    COORDINATOR_CHECK_MS,
    LEAST_MARGIN_MS,
    CoordinatorHistory,
)
from auditor.rules.seen.elections import Absent, Alone, Election, Elections, Leaderless, Offline
from auditor.rules.seen.incarnations import Incarnations
from auditor.rules.seen.log_bounds import Bounds, OpenHere, Read
from auditor.rules.seen.named import SKEW_MS, arrived

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
TRANSACTION_STATE = "__transaction_state"
METADATA_TOPIC = "__cluster_metadata"
MIN_IN_SYNC, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"


# The settings that brokers create their internal topics by, and what they are where nobody set them.
COUNT_SETTINGS = {
    "__transaction_state": "transaction.state.log.num.partitions",
    "__consumer_offsets": "offsets.topic.num.partitions",
}
DEFAULT_COUNT = 50


@dataclass(slots=True)
class Cluster:
    """Everything known of one cluster beyond a single log. Times are ms.

    ``as_of`` is the wall clock of the audit; ``newest_time`` the newest broker-written time of the input.
    ``releases``: what the input shows of each broker's release, by broker id.
    ``made_anew``: topics that took a removed one's name: when that was removed, when this was made (ms), and the first
    producer id not given out by then, each None where nothing says so.
    ``unknown_settings``: by broker, the settings of its file whose value cannot be known. ``topic_configs`` are
    effective per topic where ``__cluster_metadata`` shows; ``policy`` is that of each log directory. ``open_here`` says
    for each producer id where it has an open transaction, by ``topic-partition``; ``ended`` has the newest markers of
    those whose last transaction its coordinator has not completed, one a log: the broker that has the log, epoch and
    time of the marker, and the time of the one before it.
    ``coordinator`` is None when no partition of ``__transaction_state`` is in the input.
    ``in_sync``: the in-sync replicas by the metadata, the eligible ones (ELR), and those that left by a shutdown and
    were not started again, of which ``eligible`` are not in the in-sync set; ``alone_in_sync``: by broker the
    partitions with other replicas, none of which is in sync or eligible; ``short_without``: the first partition, and
    how many, that have too few in sync for acks=all once a broker is stopped; ``alone``: by broker what waits for it
    while it is down, partitions of one replica too; ``voters``: of the quorum, by its log;
    ``leaderless``: when nobody led a partition. ``clock_given``: ``as_of`` is the user's, not the newest time in
    the input. ``away``: partitions, as ``topic-partition``, that nobody leads by the metadata, or whose leader is
    fenced or shutting down while others are up; ``offline``: those of them without a leader.
    ``directory_ids``: what tells the log directories of a broker apart, by name. ``remote``: what is in tiered storage,
    as far as the input tells. ``abort_indexes``: whether any ``.txnindex`` is in the input.
    ``moments``: of each log directory the time (ms) until which each of its files has all that was written, by its
    newest time and the time that copying takes; ``read_at``: when logs were read, by log directory, topic and
    partition, as copies say; ``misread``: what contradicts that, by log directory. ``passes``: the logs that have all
    that was committed when the checkpoint of their log directory was written, and when (ms) that was, at the earliest;
    ``checkpointed`` has that of all log directories. ``went_on``: brokers that ran on, or again, behind the moment that
    their directories are of. ``until``: log directories of brokers that were stopped cleanly, of which nothing shows
    that they did not go on, with their newest times (ms). ``went_back``: by how much (ms) a clock was set back at most,
    so that the newest time may be older than it looks.
    ``metadata_committed``: by log directory the offset below which its ``__cluster_metadata`` is known to be committed;
    ``not_committed_from``: the offset from which on a majority of the voters, which is in the input, has not what the
    metadata says.
    ``levels``: of features, and ``replicas`` how many each partition has, by the metadata; ``of_files``: by broker the
    names of the settings that its file sets, of those whose file is in the input; ``configs_by``: who says the others.
    ``at_once``: all is of one moment; ``mixed``: a log directory is of two copies, so that nothing is sure. ``absent``:
    replicas in sync without a folder, where the input has all of their brokers (``--whole``). ``scope``: what was read;
    what it left out is not known, whatever it was. ``unverified``: by ``topic-partition`` the offsets, as ranges, of
    batches of its leader replica whose checksum nobody has verified.
    """

    as_of: int
    newest_time: int
    policy: dict[str, str] = field(default_factory=dict)
    releases: dict[int | None, Shown] = field(default_factory=dict)
    coordinator: CoordinatorHistory | None = None
    topic_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    unknown_settings: dict[int | None, frozenset[str]] = field(default_factory=dict)
    of_files: dict[int | None, frozenset[str]] = field(default_factory=dict)
    configs_by: str = METADATA_TOPIC
    has_metadata: bool = False
    levels: dict[str, int] = field(default_factory=dict)
    replicas: dict[tuple[str, int], int] = field(default_factory=dict)
    leaders: dict[tuple[str, int], int] = field(default_factory=dict)
    last_leaders: dict[tuple[str, int], int] = field(default_factory=dict)
    elections: Elections = field(default_factory=dict)
    leaderless: Leaderless = field(default_factory=dict)
    partition_counts: dict[str, int] = field(default_factory=dict)
    next_producer_id: int | None = None
    made_anew: dict[str, tuple[int | None, int | None, int | None]] = field(default_factory=dict)
    metadata_time: int = -1
    incarnations: Incarnations = Incarnations()  # noqa: RUF009 (a tuple)
    not_committed_from: int | None = None
    metadata_committed: dict[str, int] = field(default_factory=dict)
    clock_given: bool = True
    away: frozenset[str] = frozenset()
    offline: dict[tuple[str, int], Offline] = field(default_factory=dict)
    absent: tuple[Absent, ...] = ()
    directory_ids: dict[str, str] = field(default_factory=dict)
    in_sync: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    eligible: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    alone_in_sync: dict[int, list[str]] = field(default_factory=dict)
    short_without: dict[int, tuple[str, int]] = field(default_factory=dict)
    alone: dict[int, Alone] = field(default_factory=dict)
    voters: tuple[int, ...] = ()
    bounds: dict[tuple[str, int], Bounds] = field(default_factory=dict)
    open_here: dict[int, dict[str, OpenHere]] = field(default_factory=dict)
    ended: dict[int, list[tuple[int | None, int, int, int]]] = field(default_factory=dict)
    hanging: dict[tuple[str, int, int, int], Fields] = field(default_factory=dict)
    moments: dict[str, int] = field(default_factory=dict)
    passes: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)
    checkpointed: dict[str, int] = field(default_factory=dict)
    at_once: bool = False
    scope: Scope = EVERYTHING
    remote: RemoteLogs = field(default_factory=RemoteLogs)
    abort_indexes: bool = True
    went_back: int = 0
    went_on: frozenset[int] = frozenset()
    until: dict[str, int] = field(default_factory=dict)
    read_at: dict[tuple[str, str, int], Read] = field(default_factory=dict)
    misread: dict[str, str] = field(default_factory=dict)
    mixed: bool = False
    unverified: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def setting(self, topic: str, name: str) -> str | None:
        """A topic's setting as far as the input shows it, under its topic-level name."""
        return self.topic_configs.get(topic, {}).get(name)

    def is_tiered(self, topic: str) -> bool:
        """Whether a topic's older segments may lie in remote storage: by its setting, or because some were copied."""
        return self.setting(topic, "remote.storage.enable") == "true" or self.remote.has_topic(topic)

    def broker_setting(self, broker_id: int | None, *names: str) -> str | None:
        """The first of the broker's settings that the input shows: its own, else the cluster's default."""
        for entity in (str(broker_id), ""):
            for name in names:
                value = self.broker_configs.get(entity, {}).get(name)
                if value is not None:
                    return value
        return None

    def is_unknown(self, broker_id: int | None, *names: str) -> bool:
        """Whether the broker's file sets one of these to a value that cannot be known, so that no default counts."""
        return not self.unknown_settings.get(broker_id, frozenset[str]()).isdisjoint(names)

    def release(self, broker_id: int | None) -> Shown:
        """What the input shows of a broker's release."""
        return self.releases.get(broker_id, policies.UNKNOWN)

    def expiration_ms(self, broker_id: int | None) -> int:
        """How long the broker remembers an idle producer, ms, by its settings and the release that the input shows."""
        return policies.expiration_ms(self.release(broker_id), lambda name: self.broker_setting(broker_id, name))

    def knows_count(self, topic: str) -> bool:
        """Whether ``partition_counts`` of an internal topic is its number of partitions, not only that of the folders
        that were copied: the metadata says so, or a broker was set to create no more, or it is Kafka's default."""
        if self.has_metadata and any(name == topic for name, _ in self.leaders):
            return True
        count = self.partition_counts.get(topic, 0)
        name = COUNT_SETTINGS.get(topic, "")
        if any(self.is_unknown(broker, name) for broker in self.unknown_settings):
            return False
        values = [broker.get(name) for broker in self.broker_configs.values()]
        set_to = [known for value in values if (known := setting_number(value)) is not None]
        return count >= max(set_to) if set_to else count == DEFAULT_COUNT

    def may_be_uncommitted(self, offset: int | None) -> bool:
        """Whether a record of the metadata lies in what only a minority of the voters has: the others were copied
        earlier, or it was never committed. Where no majority is in the input, nothing speaks against it."""
        return offset is not None and self.not_committed_from is not None and offset >= self.not_committed_from

    def last_leader(self, topic: str, partition: int) -> int | None:
        """The broker that led a partition last by the metadata, also where a shutdown has left none."""
        return self.last_leaders.get((topic, partition), self.leaders.get((topic, partition)))

    def elected(self, topic: str, partition: int) -> list[Election]:
        """The elections of a partition that the metadata still shows, in order."""
        return self.elections.get((topic, partition), [])

    def led(self, topic: str, partition: int, leader_epoch: int) -> int | None:
        """The broker that led a partition in an epoch, by the metadata; None where it does not tell."""
        elections = self.elected(topic, partition)
        if until := [e for e in elections if e.leader_epoch <= leader_epoch]:
            return until[-1].leader
        return elections[0].last_leader if elections else self.leaders.get((topic, partition))

    def lacks(self, topic: str, partition: int, needed_by: int, *, other_clock: bool, committed: bool = False) -> bool:
        """Whether what is absent from a log may only be absent because its file was copied before ``needed_by`` (ms).

        ``other_clock``: that is the time of another broker than the log's, or of a client. ``committed``: it is the
        time of a broker, by which what is absent had to be committed. A log that is not in the input lacks anything.
        """
        bounds = self.bounds.get((topic, partition))
        if bounds is None or bounds.clean_shutdown or self.at_once:
            return bounds is None or (0 <= bounds.until < needed_by and not self.at_once)
        moment = max(bounds.moment, bounds.copy_time, self.passed(topic, partition) if committed else -1)
        return not arrived(moment - self.went_back, needed_by, other_clock=other_clock)

    def moment(self, log_dir: str, topic: str, partition: int) -> int:
        """Until when (ms) a replica has all that was written there: when it was read, where that is known."""
        read = self.read_at.get((log_dir, topic, partition))
        return self.moments.get(log_dir, -1) if read is None else read.begun

    def passed(self, topic: str, partition: int) -> int:
        """The time (ms) until which a log has all that was committed, as its broker's checkpoint shows; -1 for none."""
        return self.passes.get((topic, partition), ("", -1))[1]

    def of_one_pass(self, *logs: tuple[str, int]) -> bool:
        """Whether one checkpoint shows what was committed in all these logs, by topic and partition."""
        found = {self.passes[log][0] if log in self.passes else None for log in logs}
        return len(found) == 1 and None not in found

    def coordinators_lack(self, producer_id: int, needed_by: int) -> bool:
        """The same of the coordinator's log that has a producer id; of all of them, where none has."""
        assert self.coordinator is not None
        written = self.coordinator.written_in(producer_id)
        partitions = range(self.coordinator.partition_count) if written is None else (written,)
        return any(self.lacks(TRANSACTION_STATE, p, needed_by, other_clock=True) for p in partitions)

    def margin(self, timeout_ms: int = 0) -> int:
        """The slack of rules on age alone (rules.md, *margin*)."""
        return max(LEAST_MARGIN_MS, timeout_ms + COORDINATOR_CHECK_MS) + SKEW_MS

    def waiting_margin(self, timeout_ms: int = 0) -> int:
        """That slack where somebody waits: never more than an hour, whatever time-out the client asked for; a prepared
        transaction has none at all (2147483647 ms). Source: KIP-939."""
        return min(self.margin(timeout_ms), HOUR_MS)
