"""What happens if a broker stops, and whether it would start again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from auditor.base.words import SEVERITIES, duration, few, plural
from auditor.model import policies
from auditor.model.leader_election import Elected, ElectionState, without
from auditor.model.policies import ReleaseEvidence, Version
from auditor.model.transaction_states import partition_for

# One state of a cluster, from files or from a running cluster, and the risks of one stop. Nothing here reads anything.

TRANSACTION_STATE, CONSUMER_OFFSETS = "__transaction_state", "__consumer_offsets"
STOP, KILL = "stop", "kill"  # a controlled shutdown; the process or its machine ends
WAYS = (STOP, KILL)
RISKS = MappingProxyType(
    {
        "start_fails": "critical",
        "quorum_lost": "critical",
        "offline": "critical",
        "marker_skipped": "critical",
        "unclean_election": "critical",
        "below_min_isr": "error",
        "coordinator_offline": "error",
        "transaction_waits": "error",
        "start_loses": "error",
        "recovery_cuts": "error",
        "input_too_old": "error",
        "one_copy": "warning",
        "one_rack": "warning",
        "already_offline": "warning",
        "not_running": "warning",
        "unknown": "info",
        "leader_moves": "info",
        "coordinator_moves": "info",
        "controller_moves": "info",
        "quorum_margin": "info",
        "reads_again": "info",
    }
)
ORDER = MappingProxyType({name: number for number, name in enumerate(RISKS)})
ELECTION_MS = 3_000  # of a controller: controller.quorum.fetch.timeout.ms and election.timeout.ms, by default
MOST = 10_000  # rows of one risk of one stop


class Risk(NamedTuple):
    """A risk of one stop. ``known``: False where the input does not show whether it is so.

    ``from_leader``, ``to_leader``: -1 for none; ``isr``: the in-sync replicas afterwards; ``least``:
    min.insync.replicas; ``lasts_ms``: about how long it has no leader, None until the broker is back, or where
    it is unknown.
    """

    risk: str
    says: str
    topic: str | None = None
    partition: int | None = None
    known: bool = True
    severity: str = ""
    transactional_id: str | None = None
    group_id: str | None = None
    from_leader: int | None = None
    to_leader: int | None = None
    isr: tuple[int, ...] | None = None
    least: int | None = None
    bytes: int | None = None
    lasts_ms: int | None = None

    @property
    def rank(self) -> tuple[object, ...]:
        """Sort key: the most severe first, then by risk and place."""
        place = (self.topic or "", -1 if self.partition is None else self.partition)
        return (SEVERITIES.index(self.severity), ORDER[self.risk], *place, self.transactional_id or "", self.group_id)


class RehearsedBroker(NamedTuple):
    """A broker. ``up``: neither fenced nor shutting down; ``session_ms``: how long after its end it counts as up."""

    up: bool = True
    rack: str | None = None
    session_ms: int = 9_000
    release: ReleaseEvidence = policies.UNKNOWN


class OpenWork(NamedTuple):
    """A transaction that its coordinator has not completed, with its partitions."""

    transactional_id: str
    partitions: tuple[tuple[str, int], ...]


class LogCut(NamedTuple):
    """A log that recovery cuts at an offset, with the readable records behind it."""

    topic: str
    partition: int
    offset: int
    records: int


class StartForecast(NamedTuple):
    """What a start of a broker does, by how it ended. ``refused``: what a newer release refuses, from which one on.

    ``fails``: why it ends; ``loses``: what it drops; ``cuts`` and ``bytes`` (read again): of a recovery after a kill.
    """

    fails: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    loses: tuple[str, ...] = ()
    cuts: tuple[LogCut, ...] = ()
    bytes: int = 0
    undecided: tuple[str, ...] = ()
    refused: tuple[tuple[Version, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterState:
    """A cluster at one moment (``time``, ms; -1: unknown). ``unknown``: what the input does not show, in sentences.

    ``partitions``: by topic and number; ``transactions``, ``groups``: None where they are unknown; ``starts``: by
    broker, of those whose files are in the input. ``voters``: of the quorum, empty with ZooKeeper; ``controller``: the
    active one, None where unknown; ``lost_voters``: those that do not follow.
    """

    brokers: Mapping[int, RehearsedBroker] = field(default_factory=dict)
    partitions: Mapping[tuple[str, int], ElectionState] = field(default_factory=dict)
    transactions: Sequence[OpenWork] | None = None
    groups: Sequence[str] | None = None
    voters: tuple[int, ...] = ()
    lost_voters: tuple[int, ...] = ()
    controller: int | None = None
    elr_enabled: bool = False
    starts: Mapping[int, StartForecast] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    time: int = -1

    @property
    def alive(self) -> frozenset[int]:
        """The brokers that are up."""
        return frozenset(number for number, broker in self.brokers.items() if broker.up)


def rehearse(state: ClusterState, broker: int, way: str, release: Version | None = None) -> list[Risk]:
    """Return the risks of one stop (:data:`WAYS`) of a broker, the most severe first.

    ``release``: that of the next start, None for the same. Cost: linear in partitions, transactions and groups.
    """
    risks = [*_Stop(state, broker, way).risks(), *_start(state, broker, way, release)]
    return sorted(_limited(risks), key=lambda risk: risk.rank)


def _limited(risks: Sequence[Risk]) -> Iterator[Risk]:
    counts: dict[str, int] = {}
    for risk in risks:
        counts[risk.risk] = counts.get(risk.risk, 0) + 1
        if counts[risk.risk] <= MOST:
            yield risk if risk.severity else risk._replace(severity=RISKS[risk.risk])
    for name, count in counts.items():
        if count > MOST:
            yield Risk(name, f"{count - MOST:,} further rows of {name} are not listed", severity=RISKS[name])


class _Stop:
    """One stop: what becomes of partitions, transactions, groups and controllers."""

    def __init__(self, state: ClusterState, broker: int, way: str) -> None:
        self.state, self.broker, self.way = state, broker, way
        self.alive = state.alive - {broker}
        self.own = state.brokers.get(broker, RehearsedBroker())
        elected = ELECTION_MS if state.voters and broker == state.controller else 0  # sessions begin again after it
        self.gap = self.own.session_ms + elected if way == KILL else 0
        self.counts = {t: sum(name == t for name, _ in state.partitions) for t in (TRANSACTION_STATE, CONSUMER_OFFSETS)}
        self.after: dict[tuple[str, int], Elected] = {}
        for place, before in state.partitions.items():
            if broker in before.isr:
                self.after[place] = without(before, broker, self.alive, elr_enabled=state.elr_enabled)

    def risks(self) -> Iterator[Risk]:
        """Yield the risks, in no order."""
        yield from (Risk("unknown", says, known=False) for says in self.state.unknown)
        if not self.state.alive:
            if self.state.brokers:
                yield Risk("unknown", "no broker is up in the input: it shows a stopped cluster", known=False)
            return
        if not self.own.up:
            says = f"broker {self.broker} is not up: it is fenced or shutting down in the input"
            yield Risk("not_running", says)
        for place, elected in self.after.items():
            yield from self._partition(place, self.state.partitions[place], elected)
        for (topic, number), p in self.state.partitions.items():
            if p.leader < 0 and self.broker in p.replicas:
                says = f"{topic}-{number} has no leader already (in the ISR: {few(p.isr) or 'none'})"
                yield Risk("already_offline", says, topic, number, isr=p.isr, from_leader=-1, to_leader=-1)
        yield from self._controllers()
        for transaction in self.state.transactions or ():
            yield from self._transaction(transaction)
        for group in self.state.groups or ():
            yield from self._coordinator(f"group {group}", CONSUMER_OFFSETS, group)

    def _partition(self, place: tuple[str, int], before: ElectionState, elected: Elected) -> Iterator[Risk]:
        after, name = elected.state, f"{place[0]}-{place[1]}"
        change = Risk("offline", "", *place, from_leader=before.leader, to_leader=after.leader, isr=after.isr)
        change = change._replace(least=before.effective_least)
        if after.leader < 0:
            if before.leader >= 0:
                says = f"{name} has no leader until broker {self.broker} is back: no other replica is in the ISR or ELR"
                yield change._replace(says=says)
                yield from self._defect(place, None)
            return
        if elected.lossy:
            says = f"broker {after.leader} leads {name} without being in the ISR: committed records may be lost"
            yield change._replace(risk="unclean_election", says=says, lasts_ms=self.gap)
        elif after.leader != before.leader:
            yield change._replace(risk="leader_moves", says=self._move(name, before, after), lasts_ms=self.gap)
        if after.refuses:
            again = " already" if before.refuses else ""
            says = f"{name} refuses acks=all and markers{again}: {len(after.isr)} of {after.effective_least} in sync"
            yield change._replace(risk="below_min_isr", says=says)
        if len(after.isr) == 1 and len(before.replicas) > 1:
            says = f"only broker {after.isr[0]} has all of {name}: records with acks=1 are lost if it dies"
            yield change._replace(risk="one_copy", says=says)
        elif len(self._racks(after.isr)) == 1 < len(self._racks(before.isr)):
            says = f"all in-sync replicas of {name} are in rack {next(iter(self._racks(after.isr)))}"
            yield change._replace(risk="one_rack", says=says)

    def _racks(self, brokers: Sequence[int]) -> set[str | None]:
        return {self.state.brokers[b].rack for b in brokers if b in self.state.brokers}

    def _move(self, name: str, before: ElectionState, after: ElectionState) -> str:
        if self.way == STOP:
            return f"the leader of {name} moves from broker {before.leader} to {after.leader}"
        loss = "records with acks=1 that it lacks are lost"
        return f"broker {after.leader} leads {name} within {duration(self.gap)}; {loss}"

    def _defect(self, place: tuple[str, int], transaction: OpenWork | None) -> Iterator[Risk]:
        """Yield the risk of KAFKA-20734 in a partition without a leader: of one transaction, or of any later one."""
        if transaction is not None:
            coordinators = [self._leader_after(TRANSACTION_STATE, transaction.transactional_id)]
        else:
            coordinators = sorted(self.alive)
        defect = policies.SKIPS_MARKERS
        evidence = [self.state.brokers[b].release for b in coordinators if b in self.state.brokers]
        if not any(release.may_have(defect) for release in evidence):
            return
        sure = any(release.below is not None and release.least >= defect.since for release in evidence)
        of, only = (
            f"{place[0]}-{place[1]}",
            "" if sure else f" if brokers run {defect.releases.replace(' and ', ' or ')}",
        )
        if transaction is None:
            says = f"transactions that end while {of} has no leader hang there{only} ({defect.issue})"
            yield Risk("marker_skipped", says, *place, known=sure, severity="warning")
            return
        says = f"{transaction.transactional_id} is open in {of} and hangs if it ends meanwhile{only} ({defect.issue})"
        severity = RISKS["marker_skipped"] if sure else "error"
        yield Risk("marker_skipped", says, *place, sure, severity, transaction.transactional_id)

    def _leader_after(self, topic: str, name: str) -> int:
        place = self._coordinator_place(topic, name)
        if place is None:
            return -1
        return (self.after[place].state if place in self.after else self.state.partitions[place]).leader

    def _coordinator_place(self, topic: str, name: str) -> tuple[str, int] | None:
        count = self.counts[topic]
        place = (topic, partition_for(name, count)) if count else None
        return place if place in self.state.partitions else None

    def _transaction(self, work: OpenWork) -> Iterator[Risk]:
        name = work.transactional_id
        yield from self._coordinator(f"transactional id {name}", TRANSACTION_STATE, name)
        for place in work.partitions:
            if (elected := self.after.get(place)) is None:
                continue
            after, of = elected.state, f"{place[0]}-{place[1]}"
            skipped = list(self._defect(place, work)) if after.leader < 0 else []
            yield from skipped
            if after.refuses or (after.leader < 0 and not any(risk.known for risk in skipped)):
                why = "has no leader" if after.leader < 0 else "has too few in-sync replicas"
                says = f"{name} is open in {of} and cannot end while that {why}: read_committed consumers wait"
                yield Risk("transaction_waits", says, *place, transactional_id=name)

    def _coordinator(self, who: str, topic: str, name: str) -> Iterator[Risk]:
        place = self._coordinator_place(topic, name)
        if place is None or place not in self.after:
            return
        before, after = self.state.partitions[place], self.after[place].state
        owner = {"transactional_id" if topic == TRANSACTION_STATE else "group_id": name}
        risk = Risk("coordinator_moves", "", *place, from_leader=before.leader, to_leader=after.leader, **owner)  # type: ignore[arg-type]
        if after.leader < 0 or after.refuses:
            why = "has no leader" if after.leader < 0 else "has too few in-sync replicas"
            says = f"{who} has no coordinator that can write: {topic}-{place[1]} {why}"
            yield risk._replace(risk="coordinator_offline", says=says)
        elif after.leader != before.leader:
            within = f" within {duration(self.gap)}" if self.gap else ""
            says = f"the coordinator of {who} moves from broker {before.leader} to {after.leader}{within}"
            yield risk._replace(says=says, lasts_ms=self.gap)

    def _controllers(self) -> Iterator[Risk]:
        voters = self.state.voters if self.broker in self.state.voters else ()
        majority, lost = len(voters) // 2 + 1, {self.broker, *self.state.lost_voters} & set(voters)
        left = len(voters) - len(lost)
        if voters and left < majority:
            says = f"no controller can be elected: {left} of {len(voters)} voters are left, and {majority} are needed"
            yield Risk("quorum_lost", says)
            return
        if self.broker == self.state.controller:
            yield Risk("controller_moves", f"broker {self.broker} is the active controller: another one is elected")
        if voters and left == majority:
            says = f"{left} of {len(voters)} voters are left, of which none may fail"
            yield Risk("quorum_margin", says)


def _start(state: ClusterState, broker: int, way: str, release: Version | None) -> Iterator[Risk]:
    """Yield what becomes of the next start."""
    start = state.starts.get(broker)
    if start is None:
        says = f"the files of broker {broker} are not in the input: cuts, bytes to read again and the start are unknown"
        yield Risk("unknown", says, known=False)
        return
    fails = f"broker {broker} would not start again"
    yield from (Risk("start_fails", f"{fails}: {why}") for why in start.fails.get(way, ()))
    yield from (Risk("start_loses", f"the start of broker {broker} loses {what}") for what in start.loses)
    for since, says in start.refused:
        if release is not None and since <= release:
            yield Risk("start_fails", f"broker {broker} would not start with {release[0]}.{release[1]}: {says}")
    if way == STOP:
        return
    for cut in start.cuts:
        p = state.partitions.get((cut.topic, cut.partition))
        others = [] if p is None else [b for b in p.isr if b != broker]
        says = f"recovery cuts {cut.topic}-{cut.partition} at offset {cut.offset}: {plural(cut.records, 'record')} lost"
        says += f" there, which broker {few(others)} has" if others else ", and no other in-sync replica has them"
        severity = "warning" if others else "error"
        yield Risk("recovery_cuts", says, cut.topic, cut.partition, severity=severity)
    yield from (Risk("unknown", f"recovery is inconclusive: {why}", known=False) for why in start.undecided)
    says = f"recovery reads the segments from the recovery points on again: {start.bytes:,} bytes"
    yield Risk("reads_again", says, bytes=start.bytes)


def rolling_order(state: ClusterState) -> list[int]:
    """Return an order for restarts: broken brokers first, the active controller last, the least risk before more."""

    def key(number: int) -> tuple[object, ...]:
        risks = rehearse(state, number, STOP)
        worst = min((SEVERITIES.index(risk.severity) for risk in risks), default=len(SEVERITIES))
        led = sum(p.leader == number for p in state.partitions.values())
        return (state.brokers[number].up, number == state.controller, number in state.voters, -worst, led, number)

    return sorted(state.brokers, key=key)


def waits(state: ClusterState, broker: int) -> list[str]:
    """Return what to wait for once a broker was restarted, before the next one stops."""
    assigned = [p for p in state.partitions.values() if broker in p.replicas]
    steps = [
        f"broker {broker} is registered and not fenced",
        f"broker {broker} is in the ISR of all its {plural(len(assigned), 'partition')}, and no partition is offline",
    ]
    if broker in state.voters:
        steps.append(f"controller {broker} follows the quorum's leader without lag")
    if state.transactions is None or state.transactions:
        steps.append("no transaction hangs: find-hanging lists none")
    return steps
