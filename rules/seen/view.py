"""The view of one log that rules get, and the Finding."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

import numpy as np

from auditor.base.advice import Advice, shown, text
from auditor.base.at_rest import Fields, Values
from auditor.base.errors import LAST_MS, OF_A_RULE, DecodeError, Made, attempt, failure
from auditor.base.evidence_keys import Evidence, PartitionsEvidence, read
from auditor.base.remote_segments import RemotePartition
from auditor.base.words import SEVERITIES
from auditor.evidence.horizons import Horizon, HorizonSource
from auditor.evidence.which_copy import leader_of
from auditor.facts.batch_sums import touches
from auditor.facts.coordinator_log import Columns, CoordinatorLog, StateRecord
from auditor.facts.events import Event, EventKind, events_of
from auditor.facts.replica_facts import SEQUENCE_FREE_TOPICS, ReplicaFacts
from auditor.facts.replica_facts import once as once
from auditor.model.policies import ASSUMED, POLICIES, Policy
from auditor.rules.seen.cluster_view import TRANSACTION_STATE, Cluster

# The one shape of every finding, its order, and its line in ``findings.jsonl`` (contract section 3).


GRAVE = ("critical", "error")  # severities whose findings have an outcome
# What a finding means for records, readers and writers. lost: records below a high watermark, or whose acceptance the
# producer's later sequences prove, that no replica which may lead has; hidden: committed, and read_committed readers do
# not get them; exposed: aborted, and readers get them; at_risk: none of these yet.
OUTCOMES = (
    "blocked", "lost", "hidden", "exposed", "duplicated", "reordered", "unreadable", "refused", "at_risk", "none",
)  # fmt: skip
NO_OUTCOME = "none"
IMPACTS = ("lost", "hidden", "exposed", "duplicated")  # the outcomes that are about records, which Finding.ranges names
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OUT_OF_RANGE = "after the year 9999"  # in place of a time


@dataclass(slots=True)
class Finding:
    """One cause, reported once. Fields and their order are the contract's; null if one does not apply.

    ``offset`` and ``last_offset`` are inclusive; ``timestamp`` is in UTC with milliseconds, in rows and lines
    ISO-8601; ``position`` a byte in ``file``, which is relative to the log directory named in ``evidence["log_dir"]``.
    ``if_true``: the severity of an inconclusive finding if it is true, otherwise None. ``kind``: which of
    the rule's questions, the rule's id where it has one alone. ``fingerprint`` is given once all findings are known.
    ``outcome``: one of :data:`OUTCOMES` that its kind declares; empty until its kind completes the finding.
    """

    rule: str
    severity: str
    broker_id: int | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    last_offset: int | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    transactional_id: str | None = None
    group_id: str | None = None
    timestamp: datetime | None = None
    file: str | None = None
    position: int | None = None
    message: str = ""
    evidence: Fields = field(default_factory=dict)
    source: str = ""
    if_true: str | None = None
    kind: str = ""
    fingerprint: str = ""
    advice: Advice | None = None
    outcome: str = ""

    def __post_init__(self) -> None:
        self.kind = self.kind or self.rule

    @property
    def remedy(self) -> str:
        """The advice on one line; empty if there is none yet."""
        return "" if self.advice is None else text(self.advice.row())

    @property
    def ranges(self) -> list[list[int]]:
        """The offsets that its outcome is about: :attr:`auditor.base.evidence_keys.Evidence.ranges`."""
        end = self.offset if self.last_offset is None else self.last_offset
        own = [] if self.offset is None or end is None else [[self.offset, end]]
        return read(Evidence, self.evidence).get("ranges", own)

    def to_dict(self) -> Fields:
        """Return the fields in the contract's order, ``advice`` as an object."""
        row = {name: getattr(self, name) for name in FIELDS}
        advice = None if self.advice is None else self.advice.row()
        return row | {"timestamp": iso_text(self.timestamp), "advice": advice}

    def carried(self) -> Fields:
        """Return all fields, for :meth:`of` in another process."""
        row = {name: getattr(self, name) for name in MADE_OF}
        advice = None if self.advice is None else self.advice.carried()
        return row | {"timestamp": iso_text(self.timestamp), "advice": advice}

    @classmethod
    def of(cls, row: Values) -> Finding:
        """Restore a finding from the result of :meth:`carried` or :meth:`to_dict`."""
        given = {name: row[name] for name in MADE_OF}
        timestamp = None if row["timestamp"] is None else datetime.fromisoformat(row["timestamp"])
        advice = None if row["advice"] is None else Advice.of(row["advice"])
        return cls(**given | {"timestamp": timestamp, "advice": advice})

    def to_json(self) -> str:
        """Return one line of JSON: fields in the contract's order, keys of ``evidence`` sorted, UTF-8 not escaped."""
        row = self.to_dict()
        row["evidence"] = json.loads(json.dumps(self.evidence, sort_keys=True, ensure_ascii=False))
        return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace").decode("utf-8")

    def sort_key(self) -> tuple[Any, ...]:
        """Order by severity, topic, partition, broker, offset, then the other fields; nulls first."""
        row = self.to_dict()
        row["evidence"] = json.dumps(self.evidence, sort_keys=True, ensure_ascii=False)
        lead = ("topic", "partition", "broker_id", "offset")
        names = (*lead, *(name for name in FIELDS if name not in (*lead, "severity", "advice")))
        return (SEVERITIES.index(self.severity), *((row[name] is not None, row[name]) for name in names))


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings by :meth:`Finding.sort_key`.

    Cost: the full key is only built for findings of one rule at one place.
    """
    ordered: list[Finding] = []
    for _, alike in groupby(sorted(findings, key=_place), key=_place):
        several = list(alike)
        ordered += several if len(several) == 1 else sorted(several, key=Finding.sort_key)
    return ordered


def _place(f: Finding) -> tuple[Any, ...]:
    # The first fields of Finding.sort_key.
    given = (f.topic, f.partition, f.broker_id, f.offset)
    return (SEVERITIES.index(f.severity), *((value is not None, value) for value in given), f.rule)


MADE_OF = tuple(f.name for f in fields(Finding))
_FIRST, _LAST = ("rule", "kind", "fingerprint", "if_true"), ("remedy", "advice", "source")
_MIDDLE = (name for name in MADE_OF if name not in (*_FIRST, "severity", "outcome", *_LAST))
FIELDS = (*_FIRST, "severity", "outcome", *_MIDDLE, *_LAST)


def lowered(severity: str) -> str:
    """Return the next lower severity, at least info."""
    return SEVERITIES[min(SEVERITIES.index(severity) + 1, len(SEVERITIES) - 1)]


def highest(*severities: str) -> str:
    """Return the most severe one."""
    return min(severities, key=SEVERITIES.index)


def moment(ms: int | None) -> datetime | None:
    """Convert epoch milliseconds to UTC; None for negative values and for years beyond 9999."""
    return None if ms is None or not 0 <= ms <= LAST_MS else EPOCH + timedelta(milliseconds=int(ms))


def iso_text(time: datetime | None) -> str | None:
    """Format a time as ``2026-11-21T04:00:00.123Z``."""
    return None if time is None else time.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def iso(ms: int | None) -> str | None:
    """Format epoch milliseconds as ``2026-11-21T04:00:00.123Z``; None for none, words for a time out of range."""
    return OUT_OF_RANGE if ms is not None and ms > LAST_MS else iso_text(moment(ms))


# Findings from batches with unverified checksums, as in a copy without payload, are not proved.


Ranges = list[tuple[int, int]]
UNVERIFIED_SHOWN = 20  # ranges of offsets that a finding names
VERIFIED_BY = "copy the log again with auditor copy --checksums all, and audit that copy"


def unverified(replicas: Iterable[ReplicaFacts]) -> Ranges:
    """Return the offsets of the unverified batches of some replicas, as ranges."""
    return sorted({span for replica in replicas for span in replica.unverified})


def between(ranges: Ranges, fields: Values) -> Ranges:
    """Return the unverified batches among the offsets that a finding with these fields names.

    The lowest offset counts: what is missed before a batch may be in a damaged one.
    """
    begin, until = fields.get("offset"), fields.get("last_offset")
    first, last = (None if offset is None else int(offset) for offset in (begin, until))
    if first is not None:
        named = (value for name, value in fields.get("evidence", {}).items() if name.endswith("_offset"))
        last = max(first, first if last is None else last)
        first = min([first, *(int(value) for value in named if isinstance(value, (int, np.integer)) and value >= 0)])
    return [span for span in ranges if touches([span], first, last)]


def not_proved(evidence: Fields, ranges: Ranges) -> None:
    """Lower the confidence of what is derived by replay of a log with unverified batches, and name these."""
    evidence["checksums"] = "not verified"
    evidence["unverified_offsets"] = [list(span) for span in ranges[:UNVERIFIED_SHOWN]]
    if evidence.get("confidence", "proved") == "proved":
        evidence["confidence"] = "likely"


def verified_first(advice: Advice, ranges: Ranges) -> Advice:
    """Return the same advice with steps that wait: what they rest on may be damaged."""
    if not advice.acts:
        return advice
    first, last = ranges[0][0], ranges[-1][1]
    what = "the batches behind this finding are undamaged"
    by = f"checksums not verified between offsets {first} and {last}: {VERIFIED_BY}"
    return advice.unless(shown(what, None, by))


# What a rule sees: one log with all its replicas, in the cluster around it.


@dataclass(slots=True)
class LogView:
    """What a rule sees: one log with its replicas by broker id and log directory, its leader replica and the cluster.

    ``most``: findings of a rule that are listed; a rule that may have millions makes no more and sums up the rest.
    ``of_another``: copies of another topic of the same name, which are not its replicas; ``is_gone``: all copies are.
    ``superseded``: older copies of what a broker has, which are excluded. ``failures``: what could not be judged of it.
    """

    replicas: list[ReplicaFacts]
    cluster: Cluster
    leader: ReplicaFacts = field(init=False)
    of_another: list[ReplicaFacts] = field(init=False)
    is_gone: bool = field(init=False)
    superseded: list[ReplicaFacts] = field(init=False)
    topic: str = field(init=False)
    partition: int = field(init=False)
    most: int = OF_A_RULE
    failures: list[DecodeError] = field(default_factory=list)
    memo: dict[Hashable, Any] = field(default_factory=dict)  # of :func:`auditor.facts.replica_facts.once`
    _kinds: dict[int, frozenset[int]] = field(default_factory=dict, init=False)  # that occur, by id() of the replica

    def __post_init__(self) -> None:
        counting, self.superseded = self.cluster.copies.counting(self.replicas)
        own, self.of_another = self.cluster.incarnations.parted(counting)
        self.replicas, self.is_gone = own or counting, not own
        first, *others = self.replicas
        self.topic, self.partition = first.topic, first.partition
        if not others:
            self.leader = first
            return
        self.replicas.sort(key=lambda c: (c.broker_id is not None, c.broker_id or 0, c.log_dir))
        self.leader = leader_of(self.replicas, self.cluster.last_leader(self.topic, self.partition))

    def fail(self, error: Exception, subject: str) -> None:
        """Note that ``subject`` raised an exception. Errors: as for :func:`auditor.base.errors.failure`."""
        self.failures.append(failure(error, f"{subject} could not judge {self.name}", self.name))

    def attempt(self, subject: str, make: Callable[[], Made], otherwise: Any) -> Made:
        """Return what ``make`` returns; where it raises, ``otherwise``, with a note as of :meth:`fail`."""
        return attempt(self.failures, f"{subject} could not judge {self.name}", make, otherwise, self.name)

    @property
    def copies(self) -> list[ReplicaFacts]:
        """All replicas, also those of an earlier topic of the same name, and older copies."""
        return [*self.replicas, *([] if self.is_gone else self.of_another), *self.superseded]

    @property
    def name(self) -> str:
        """``topic-partition``, as in the coordinator's partition sets."""
        return f"{self.topic}-{self.partition}"

    @property
    def remote(self) -> RemotePartition | None:
        """Its part in tiered storage, as far as the input shows it."""
        return self.cluster.remote.of(self.topic, self.partition, self.leader.topic_id)

    @property
    def may_be_removed(self) -> bool:
        """Whether it is a log of a topic that may have been removed: the input has a newer one of that name."""
        return self.cluster.incarnations.may_be_removed(self.topic, self.leader.topic_id)

    @property
    def has_sequences(self) -> bool:
        """Whether producers number their records in this topic."""
        return self.topic not in SEQUENCE_FREE_TOPICS

    @property
    def state_log(self) -> CoordinatorLog | None:
        """The records of this partition of ``__transaction_state``; None for other logs."""
        history = self.cluster.coordinator
        return history.logs.get(self.partition) if self.topic == TRANSACTION_STATE and history is not None else None

    @once
    def last_records(self) -> tuple[Columns, np.ndarray]:
        """Return the last judged record of each id, as columns by id, and which have one; no ids for other logs."""
        state_log = self.state_log
        return ({}, np.empty(0, bool)) if state_log is None else state_log.last_rows(self.leader.log_start)

    def last_entries(self, *states: int) -> Iterator[StateRecord]:
        """Yield the last record of each id of this partition that is in one of these states."""
        (columns, has_record), state_log = self.last_records(), self.state_log
        if state_log is not None:
            yield from state_log.entries(columns, np.flatnonzero(has_record & np.isin(columns["state"], states)))

    def unknown_start(self, replica: ReplicaFacts | None = None) -> dict[str, str]:
        """Return the evidence for findings that depend on the log start; empty where that is known."""
        if (replica or self.leader).log_start_known:
            return {}
        return {"confidence": "undecidable", "missing": "log-start-offset-checkpoint"}

    def intact_from(self, replica: ReplicaFacts | None = None) -> int:
        """Return the first offset from which the log was never cleaned."""
        return (replica or self.leader).intact_from

    def policy_name(self, replica: ReplicaFacts | None = None) -> str:
        """Return the name of the policy of a replica's broker, the leader replica's by default."""
        return self.cluster.policy.get((replica or self.leader).log_dir, ASSUMED)

    def policy(self, replica: ReplicaFacts | None = None) -> Policy:
        """Return what the policy of a replica's broker decides, the leader replica's by default."""
        return POLICIES[self.policy_name(replica)]

    @property
    def high_watermark(self) -> int:
        """The leader replica's high watermark: its checkpoint, otherwise its log end."""
        hw = self.leader.high_watermark
        return self.leader.log_end if hw is None else hw

    @property
    def readable_end(self) -> int:
        """Where readers would stop without open transactions.

        The high watermark after a clean shutdown, otherwise the log end: the checkpoint of a running or killed broker
        is seconds old.
        """
        return self.high_watermark if self.leader.clean_shutdown else self.leader.log_end

    def events(self, *kinds: EventKind, replica: ReplicaFacts | None = None) -> Iterable[Event]:
        """Return events of these kinds in log order, the leader replica's by default.

        Cost: close to nothing where there are none, as of most kinds in most logs.
        """
        of = replica or self.leader
        if not len(of.events):
            return ()
        kinds_present = self._kinds.get(id(of))
        if kinds_present is None:
            kinds_present = self._kinds[id(of)] = frozenset(np.unique(of.events["kind"]).tolist())
        return () if kinds_present.isdisjoint(kinds) else events_of(of.events, *kinds)

    def time(self, raw: int) -> int:
        """Return time(b) of rules.md: a fact's time, capped at the newest broker-written time of the input."""
        return min(int(raw), self.cluster.newest_time) if self.cluster.newest_time >= 0 else int(raw)

    def owner(self, producer_id: int) -> str | None:
        """Return the transactional id that had this producer id, None where unknown."""
        history = self.cluster.coordinator
        return history.owner(int(producer_id)) if history is not None else None

    def last_entry(self, producer_id: int) -> StateRecord | None:
        """Return the last coordinator record of the id that had this producer id."""
        history = self.cluster.coordinator
        return history.last_of_owner(int(producer_id)) if history is not None else None

    def copy_time(self, replica: ReplicaFacts | None = None) -> int:
        """Return the newest broker-written time in a replica's files, otherwise their newest time(b)."""
        c = replica or self.leader
        return c.broker_time if c.broker_time >= 0 else self.time(c.any_time)

    def at_rest(self, replica: ReplicaFacts | None = None) -> bool:
        """Whether a replica has everything its broker wrote: stopped cleanly and not restarted since."""
        c = replica or self.leader
        later = c.broker_id in self.cluster.went_on or c.log_dir in self.cluster.copies.superseded
        return c.clean_shutdown and not later and c.log_dir not in self.cluster.until

    def doubt(
        self, needed_by: int, *, other_clock: bool, committed: bool = False, replica: ReplicaFacts | None = None
    ) -> bool:
        """Apply :meth:`Cluster.lacks` to this log's leader replica or another one."""
        c = replica or self.leader
        if c is self.leader and (self.topic, self.partition) in self.cluster.bounds:
            return self.cluster.lacks(
                self.topic, self.partition, needed_by, other_clock=other_clock, committed=committed
            )
        if (self.at_rest(c) and not c.cut_short) or self.cluster.at_once:
            return False
        if c.log_dir in self.cluster.until and not c.cut_short and c.broker_id not in self.cluster.went_on:
            return self.cluster.until[c.log_dir] - self.cluster.clocks.spread_ms < needed_by
        moment = -1 if c.lacks_end else self.cluster.moment(c.log_dir, self.topic, self.partition)
        horizon = Horizon(max(self.copy_time(c), moment) - self.cluster.clocks.spread_ms, HorizonSource.DIRECTORY)
        return not horizon.reaches(needed_by, other_clock=other_clock)

    def finding(
        self,
        severity: str,
        message: str,
        *,
        replica: ReplicaFacts | None = None,
        segment: int = -1,
        data: np.void | None = None,
        marker: np.void | None = None,
        doubt: bool = False,
        lost: bool = False,
        verified: bool = False,
        **fields: Any,
    ) -> Finding:
        """Make a finding about this log, at its leader's replica or another one.

        ``evidence`` gets the log directory; ``Kind.completed`` sets rule and kind. ``data``, ``marker``: the
        transaction whose data or marker it is about; they give place, producer and time where ``fields`` do not.

        ``doubt``: it rests on something that may be absent only because a file was copied too early, or at another time
        than its neighbours. ``lost``: the evidence may be in a batch with a CRC mismatch. In both cases it is an info,
        undecidable, and ``if_true`` is what it would be. A finding that rests on unverified batches is not proved,
        unless it is ``verified``: derived from computed checksums alone.
        """
        c = replica or self.leader
        if data is not None:
            fields = self._data_of(data) | fields
        elif marker is not None:
            fields = self._marker_of(marker) | fields
        segment = fields.pop("segment", segment)
        evidence = {k: plain(v) for k, v in fields.pop("evidence", {}).items() if v is not None}
        unsure = doubt or self.cluster.mixed or (self.topic, self.partition) in self.cluster.copies.unordered
        if unsure or lost:
            severity, fields["if_true"] = "info", severity if severity != "info" else fields.get("if_true")
            why = {"in_flight": True} if unsure else {"missing": "records of a batch with a CRC mismatch"}
            evidence |= {**why, "confidence": "undecidable"}
        if not verified and (ranges := self._unverified(c, fields, evidence)):
            own_ranges = between(ranges, fields | {"evidence": evidence})
            not_proved(evidence, own_ranges or ranges)
            if own_ranges and fields.get("advice") is not None:
                fields["advice"] = verified_first(fields["advice"], own_ranges)
        if severity != "info" and (whose := self.cluster.origin(fields.get("transactional_id"))) is not None:
            evidence = whose.row() | evidence
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
            "",
            severity,
            c.broker_id,
            fields.pop("topic", self.topic),
            fields.pop("partition", self.partition),
            message=message,
            evidence=evidence,
            **{name: plain(value) for name, value in fields.items()},
        )

    def _unverified(self, replica: ReplicaFacts, fields: Fields, evidence: Fields) -> Ranges:
        # Of this log, or of other logs that the finding names.
        ranges = unverified((replica, self.leader))
        if not ranges and self.cluster.unverified:
            named = [f"{fields.get('topic', self.topic)}-{fields.get('partition', self.partition)}"]
            several = read(PartitionsEvidence, evidence).get("partitions")
            named += map(str, several) if isinstance(several, list) else ()  # of clocks it is a number
            ranges = next((self.cluster.unverified[name] for name in named if name in self.cluster.unverified), [])
        return ranges

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

    def at_event(self, severity: str, message: str, event: Event, **fields: Any) -> Finding:
        """Make a finding at the batch of an event."""
        fields.setdefault("last_offset", event["last_offset"])
        fields.setdefault("position", event["position"] if event["position"] >= 0 else None)
        if event["producer_id"] >= 0:
            fields.setdefault("producer_id", event["producer_id"])
            fields.setdefault("producer_epoch", event["producer_epoch"])
            fields.setdefault("transactional_id", self.owner(event["producer_id"]))
        fields.setdefault("time_ms", event["timestamp"])
        return self.finding(severity, message, segment=int(event["segment"]), offset=event["base_offset"], **fields)


def viewed(replicas: list[ReplicaFacts], cluster: Cluster) -> tuple[LogView | None, list[DecodeError]]:
    """Return the view of a log; None where that fails, with a read error."""
    failures: list[DecodeError] = []
    name = f"{replicas[0].topic}-{replicas[0].partition}"
    return attempt(failures, f"no rule could judge {name}", lambda: LogView(replicas, cluster), None, name), failures


def plain(value: object) -> Any:
    """Convert numpy numbers to Python's, also in lists and dicts."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    return value


def runs(events: Iterable[Event], *same: str) -> Iterator[list[Event]]:
    """Group events that agree in the named columns: one cause, one finding."""
    nothing = isinstance(events, tuple) and not events  # as most rules find of what they ask for
    return iter(()) if nothing else _runs(events, *same)


def _runs(events: Iterable[Event], *same: str) -> Iterator[list[Event]]:
    open_runs: dict[tuple[object, ...], list[Event]] = {}
    for event in events:
        columns: Mapping[str, object] = event
        open_runs.setdefault(tuple(columns[name] for name in same), []).append(event)
    yield from sorted(open_runs.values(), key=lambda run: run[0]["base_offset"])
