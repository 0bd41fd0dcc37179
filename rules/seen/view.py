"""What a rule sees: one log with all its replicas, in the cluster around it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from auditor.base.at_rest import Fields
from auditor.base.errors import OF_A_RULE
from auditor.base.remote_segments import RemotePartition
from auditor.facts.events import Event, Kind, events_of
from auditor.facts.replica_facts import SEQUENCE_FREE_TOPICS, ReplicaFacts
from auditor.model.policies import ASSUMED, POLICIES, Policy
from auditor.rules.seen.cluster_view import (
    Cluster,
)
from auditor.rules.seen.coordinator_history import (
    Entry,
)
from auditor.rules.seen.elections import standing
from auditor.rules.seen.finding import Finding, moment
from auditor.rules.seen.named import arrived
from auditor.rules.seen.open_checksums import Ranges, between, not_proved, unverified, verified_first


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
        lost: bool = False,
        verified: bool = False,
        **fields: Any,
    ) -> Finding:
        """A finding about this log, at its leader's replica or another one; ``evidence`` gets the log directory.

        ``at``, ``marker``: the transaction whose data, or whose marker, it is about, which say its place, producer and
        time where ``fields`` do not.

        ``doubt``: whether it rests on something that may only be absent because a file was copied too early, or of
        another time than its neighbours; ``lost``: whether it may be in a batch with a CRC mismatch. Then it is an
        info, undecidable, and ``if_true`` is what it would be. What rests on unverified batches is not proved,
        unless it is ``verified``: derived from computed checksums alone.
        """
        c = replica or self.leader
        if at is not None:
            fields = self._data_of(at) | fields
        elif marker is not None:
            fields = self._marker_of(marker) | fields
        segment = fields.pop("segment", segment)
        evidence = {k: plain(v) for k, v in fields.pop("evidence", {}).items() if v is not None}
        unsure = doubt or self.cluster.mixed
        if unsure or lost:
            severity, fields["if_true"] = "info", severity if severity != "info" else fields.get("if_true")
            why = {"in_flight": True} if unsure else {"missing": "records of a batch with a CRC mismatch"}
            evidence |= {**why, "confidence": "undecidable"}
        if not verified and (ranges := self._unverified(c, fields, evidence)):
            mine = between(ranges, fields | {"evidence": evidence})
            not_proved(evidence, mine or ranges)
            if mine and fields.get("advice") is not None:
                fields["advice"] = verified_first(fields["advice"], mine)
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

    def _unverified(self, replica: ReplicaFacts, fields: Fields, evidence: Fields) -> Ranges:
        """The unverified batches of this log that a finding is derived from, or of other logs that it names."""
        found = unverified((replica, self.leader))
        if not found and self.cluster.unverified:
            named = [f"{fields.get('topic', self.topic)}-{fields.get('partition', self.partition)}"]
            named += [str(name) for name in evidence.get("partitions") or ()]
            found = next((self.cluster.unverified[name] for name in named if name in self.cluster.unverified), [])
        return found

    def _data_of(self, t: np.void) -> Fields:
        return {
            "segment": int(t["segment"]),
            "position": t["position"] if t["position"] >= 0 else None,
            "offset": t["first_offset"],
            "last_offset": t["last_offset"],
            "producer_id": t["producer_id"],
            "producer_epoch": t["producer_epoch"],
            "transactional_id": self.owner(t["producer_id"]),
            "time_ms": self.time(t["first_time"]),
        }

    def _marker_of(self, t: np.void) -> Fields:
        return {
            "segment": int(t["marker_segment"]),
            "position": t["marker_position"],
            "offset": t["marker_offset"],
            "last_offset": t["marker_offset"],
            "producer_id": t["producer_id"],
            "producer_epoch": t["marker_epoch"],
            "transactional_id": self.owner(t["producer_id"]),
            "time_ms": t["marker_timestamp"],
        }

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
