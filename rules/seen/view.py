"""What a rule sees: one log with all its replicas, and what is known of the cluster around it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from auditor.base.advice import Advice, Verdict
from auditor.base.limits import OF_A_RULE
from auditor.base.numbers import setting_number
from auditor.base.remote_segments import RemoteLogs, RemotePartition
from auditor.base.scope import EVERYTHING, Scope
from auditor.facts.events import Event, Kind, events_of
from auditor.facts.replica_facts import SEQUENCE_FREE_TOPICS, ReplicaFacts
from auditor.model import releases
from auditor.model.policies import ASSUMED, POLICIES, Policy
from auditor.model.releases import Shown
from auditor.rules.seen.coordinator_history import (
    COORDINATOR_CHECK_MS,
    LEAST_MARGIN_MS,
    CoordinatorHistory,
    Entry,
)
from auditor.rules.seen.elections import Absent, Election, Elections, Leaderless, Offline, standing
from auditor.rules.seen.finding import Finding, moment
from auditor.rules.seen.incarnations import Incarnations
from auditor.rules.seen.log_bounds import Bounds, OpenHere, Read
from auditor.rules.seen.named import SKEW_MS, arrived
from auditor.rules.seen.open_checksums import rests_on_open_checksums

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
    how many, that have too few in sync for acks=all once a broker is stopped; ``voters``: of the quorum, by its log;
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
    what it left out is not known, whatever it was.
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
    voters: tuple[int, ...] = ()
    bounds: dict[tuple[str, int], Bounds] = field(default_factory=dict)
    open_here: dict[int, dict[str, OpenHere]] = field(default_factory=dict)
    ended: dict[int, list[tuple[int | None, int, int, int]]] = field(default_factory=dict)
    hanging: dict[tuple[str, int, int, int], dict[str, Any]] = field(default_factory=dict)
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
        return self.releases.get(broker_id, releases.UNKNOWN)

    def expiration_ms(self, broker_id: int | None) -> int:
        """How long the broker remembers an idle producer, ms, by its settings and the release that the input shows."""
        return releases.expiration_ms(self.release(broker_id), lambda name: self.broker_setting(broker_id, name))

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


@dataclass(slots=True)
class LogView:
    """One log: its replicas in the order of broker id and log directory, the leader replica, the cluster around it.

    ``most``: so many findings of a rule are listed; a rule that may have millions makes no more, and sums the others.
    ``of_another``: copies of another topic of that name, which are no replicas of it; ``is_gone``: all are.
    """

    replicas: list[ReplicaFacts]
    cluster: Cluster
    leader: ReplicaFacts = field(init=False)
    of_another: list[ReplicaFacts] = field(init=False)
    is_gone: bool = field(init=False)
    topic: str = field(init=False)
    partition: int = field(init=False)
    most: int = OF_A_RULE
    memo: dict[Hashable, Any] = field(default_factory=dict)  # of :func:`auditor.rules.seen.memo.once`
    _kinds: dict[int, frozenset[int]] = field(default_factory=dict, init=False)  # that occur, by id() of the replica

    def __post_init__(self) -> None:
        own, self.of_another = self.cluster.incarnations.parted(self.replicas)
        self.replicas, self.is_gone = own or self.replicas, not own
        first, *others = self.replicas
        self.topic, self.partition = first.topic, first.partition
        if not others:
            self.leader = first
            return
        self.replicas.sort(key=lambda c: (c.broker_id is not None, c.broker_id or 0, c.log_dir))
        named = self.cluster.last_leader(self.topic, self.partition)
        reach = max(c.settled_end for c in self.replicas)
        self.leader = max(self.replicas, key=lambda c: standing(c.rank, c.settled_end, reach, c.broker_id, named))

    @property
    def copies(self) -> list[ReplicaFacts]:
        """All of them, of whatever topic."""
        return self.replicas if self.is_gone else [*self.replicas, *self.of_another]

    @property
    def name(self) -> str:
        """``topic-partition``, as in the coordinator's partition sets."""
        return f"{self.topic}-{self.partition}"

    @property
    def remote(self) -> RemotePartition | None:
        """The part of it that is in tiered storage, as far as the input tells."""
        return self.cluster.remote.of(self.topic, self.partition, self.leader.topic_id)

    @property
    def has_sequences(self) -> bool:
        """Whether sequences mean something in this topic."""
        return self.topic not in SEQUENCE_FREE_TOPICS

    def unknown_start(self, replica: ReplicaFacts | None = None) -> dict[str, str]:
        """For the evidence of what looks odd only if the log starts where its files do; empty where that is sure."""
        if (replica or self.leader).log_start_known:
            return {}
        return {"confidence": "undecidable", "missing": "log-start-offset-checkpoint"}

    def intact_from(self, replica: ReplicaFacts | None = None) -> int:
        """The first offset from which the log was never cleaned."""
        return (replica or self.leader).intact_from

    def policy_name(self, replica: ReplicaFacts | None = None) -> str:
        """The policy under which a replica's broker worked, the leader replica's unless another is named."""
        return self.cluster.policy.get((replica or self.leader).log_dir, ASSUMED)

    def policy(self, replica: ReplicaFacts | None = None) -> Policy:
        """What that policy decides."""
        return POLICIES[self.policy_name(replica)]

    @property
    def high_watermark(self) -> int:
        """The leader replica's high watermark: its checkpoint, else its log end; never beyond the log."""
        hw = self.leader.high_watermark
        return self.leader.log_end if hw is None else hw

    @property
    def readable_end(self) -> int:
        """How far readers would get but for open transactions: the high watermark after a clean shutdown, else the log
        end, since the checkpoint of a running or killed broker is seconds old."""
        return self.high_watermark if self.leader.clean_shutdown else self.leader.log_end

    def events(self, *kinds: Kind, replica: ReplicaFacts | None = None) -> Iterable[Event]:
        """Events of these kinds in log order, of the leader replica unless another is named.

        Cost: next to nothing where there are none, as of most kinds in most logs.
        """
        of = replica or self.leader
        if not len(of.events):
            return ()
        there = self._kinds.get(id(of))
        if there is None:
            there = self._kinds[id(of)] = frozenset(np.unique(of.events["kind"]).tolist())
        return () if there.isdisjoint(kinds) else events_of(of.events, *kinds)

    def time(self, raw: int) -> int:
        """time(b) of rules.md from a fact's time: capped at the newest broker-written time of the input."""
        return min(int(raw), self.cluster.newest_time) if self.cluster.newest_time >= 0 else int(raw)

    def owner(self, producer_id: int) -> str | None:
        """The transactional id that had this producer id, where the input knows it."""
        history = self.cluster.coordinator
        return history.owner(int(producer_id)) if history is not None else None

    def last_entry(self, producer_id: int) -> Entry | None:
        """The last coordinator record of the id that had this producer id."""
        history = self.cluster.coordinator
        return history.last_of_owner(int(producer_id)) if history is not None else None

    def copy_time(self, replica: ReplicaFacts | None = None) -> int:
        """Newest broker-written time in the replica's files, else the newest time(b) in them."""
        c = replica or self.leader
        return c.broker_time if c.broker_time >= 0 else self.time(c.any_time)

    def at_rest(self, replica: ReplicaFacts | None = None) -> bool:
        """Whether a replica has all that its broker ever wrote: that was stopped cleanly, and did not go on since."""
        c = replica or self.leader
        return c.clean_shutdown and c.broker_id not in self.cluster.went_on and c.log_dir not in self.cluster.until

    def doubt(
        self, needed_by: int, *, other_clock: bool, committed: bool = False, replica: ReplicaFacts | None = None
    ) -> bool:
        """:meth:`Cluster.lacks` of this log's leader replica, or of another one."""
        c = replica or self.leader
        if c is self.leader and (self.topic, self.partition) in self.cluster.bounds:
            return self.cluster.lacks(
                self.topic, self.partition, needed_by, other_clock=other_clock, committed=committed
            )
        if (self.at_rest(c) and not c.cut_short) or self.cluster.at_once:
            return False
        if c.log_dir in self.cluster.until and not c.cut_short and c.broker_id not in self.cluster.went_on:
            return self.cluster.until[c.log_dir] < needed_by
        at = (c.log_dir, self.topic, self.partition)
        moment = max(self.copy_time(c), -1 if c.lacks_end else self.cluster.moment(*at))
        return not arrived(moment - self.cluster.went_back, needed_by, other_clock=other_clock)

    def finding(
        self,
        rule: str,
        severity: str,
        message: str,
        *,
        replica: ReplicaFacts | None = None,
        segment: int = -1,
        at: np.void | None = None,
        marker: np.void | None = None,
        doubt: bool = False,
        **fields: Any,
    ) -> Finding:
        """A finding about this log, at its leader's replica or another one; ``evidence`` gets the log directory.

        ``at``, ``marker``: the transaction whose data, or whose marker, it is about, which say its place, producer and
        time where ``fields`` do not.

        ``doubt``: whether it rests on something that may only be absent because a file was copied too early, or of
        another time than its neighbours. Then it is an info, undecidable, and ``if_true`` is what it would be.
        """
        c = replica or self.leader
        if at is not None:
            fields = self._data_of(at) | fields
        elif marker is not None:
            fields = self._marker_of(marker) | fields
        segment = fields.pop("segment", segment)
        evidence = {k: plain(v) for k, v in fields.pop("evidence", {}).items() if v is not None}
        damaged = severity != "info" and rests_on_open_checksums((c, self.leader), fields | {"evidence": evidence})
        if damaged:
            severity, fields["if_true"] = "info", severity
            fields["advice"] = Advice(Verdict.LOOK, then=damaged)
            evidence |= {"checksums": "not verified", "confidence": "undecidable"}
        if doubt or self.cluster.mixed:
            severity, fields["if_true"] = "info", severity if severity != "info" else fields.get("if_true")
            evidence |= {"in_flight": True, "confidence": "undecidable"}
        evidence["log_dir"] = c.log_dir
        evidence.setdefault("confidence", "proved")
        others = [o.log_dir for o in self.replicas if o is not c]
        if others and replica is None:
            evidence["other_copies"] = others
        if (stamp := fields.pop("time_ms", None)) is not None:
            fields["timestamp"] = moment(int(stamp))
        if segment >= 0:
            fields["file"] = c.file(int(segment))
            if c.is_remote(int(segment)):
                evidence["in_remote_storage"] = True
        return Finding(
            rule,
            severity,
            c.broker_id,
            fields.pop("topic", self.topic),
            fields.pop("partition", self.partition),
            message=message,
            evidence=evidence,
            **{name: plain(value) for name, value in fields.items()},
        )

    def _data_of(self, t: np.void) -> dict[str, Any]:
        return {
            "segment": int(t["segment"]), "position": t["position"] if t["position"] >= 0 else None,
            "offset": t["first_offset"], "last_offset": t["last_offset"], "producer_id": t["producer_id"],
            "producer_epoch": t["producer_epoch"], "transactional_id": self.owner(t["producer_id"]),
            "time_ms": self.time(t["first_time"]),
        }  # fmt: skip

    def _marker_of(self, t: np.void) -> dict[str, Any]:
        return {
            "segment": int(t["marker_segment"]), "position": t["marker_position"], "offset": t["marker_offset"],
            "last_offset": t["marker_offset"], "producer_id": t["producer_id"], "producer_epoch": t["marker_epoch"],
            "transactional_id": self.owner(t["producer_id"]), "time_ms": t["marker_timestamp"],
        }  # fmt: skip

    def at_event(self, rule: str, severity: str, message: str, event: Event, **fields: Any) -> Finding:
        """A finding that points at the batch of an event."""
        fields.setdefault("last_offset", event["last_offset"])
        fields.setdefault("position", event["position"] if event["position"] >= 0 else None)
        if event["producer_id"] >= 0:
            fields.setdefault("producer_id", event["producer_id"])
            fields.setdefault("producer_epoch", event["producer_epoch"])
            fields.setdefault("transactional_id", self.owner(event["producer_id"]))
        fields.setdefault("time_ms", event["timestamp"])
        return self.finding(
            rule, severity, message, segment=int(event["segment"]), offset=event["base_offset"], **fields
        )


def is_compacted(topic: str, cleanup_policy: str | None, cleaner_offset: int | None) -> bool:
    """Whether a topic is compacted: by its setting, else because the cleaner has a checkpoint of it."""
    if topic in ("__consumer_offsets", "__transaction_state", "__share_group_state"):
        return True
    if cleanup_policy is not None:
        return "compact" in cleanup_policy
    return cleaner_offset is not None


def plain(value: object) -> Any:
    """numpy numbers as Python's; everything else as it is."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    return value


def runs(events: Iterable[Event], *same: str) -> Iterator[list[Event]]:
    """Events that follow one another and agree in the named columns, together: one cause, one finding."""
    nothing = isinstance(events, tuple) and not events  # as most rules find of what they ask for
    return iter(()) if nothing else _runs(events, *same)


def _runs(events: Iterable[Event], *same: str) -> Iterator[list[Event]]:
    open_runs: dict[tuple[object, ...], list[Event]] = {}
    for event in events:
        columns: Mapping[str, object] = event
        open_runs.setdefault(tuple(columns[name] for name in same), []).append(event)
    yield from sorted(open_runs.values(), key=lambda run: run[0]["base_offset"])
