"""The COMMIT marker that a partition lacks: what a cluster shows of it, and whether ``auditor finish`` may write it.

:func:`look` asks, :func:`decide` judges without asking. The decision itself is confirmed by records that are read live,
never by the run's files, which may have been edited.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from auditor.base.advice import Verdict
from auditor.base.at_rest import Values
from auditor.base.errors import MIB, DecodeError, setting_number
from auditor.base.evidence_keys import Evidence, FinishEvidence, LateDataEvidence, read
from auditor.connectors.codec.batches import CONTROL, FLAW_CRC
from auditor.connectors.codec.gaps import ANY_OFFSET
from auditor.connectors.codec.records import records_of
from auditor.connectors.codec.segment import Chunk, read_segment
from auditor.connectors.codec.transaction_log import TransactionLogRow, decode_transaction_log
from auditor.connectors.logdir.internal_rows import TRANSACTION_STATE
from auditor.model.transaction_states import bumps_epoch, partition_for
from auditor.replay.reading.other_replicas import whole_batches
from auditor.rules.catalogue.kinds import KINDS
from auditor.rules.resolution.resolve import cluster_of, fingerprint
from auditor.rules.seen.cluster_view import MIN_IN_SYNC

if TYPE_CHECKING:
    from auditor.connectors.live.live_cluster import Budget, ListedTransaction, PartitionMetadata, Producer
    from auditor.connectors.live.marker_writer import BrokerLevels, MarkerCluster, MarkerRequest

Answer = TypeVar("Answer")

FINISHED = {
    name for name, row in KINDS.items() if any(made is FinishEvidence for made in row.marks.get("evidence", ()))
}
# Releases whose brokers were tried (tests/broker/test_remedies.py), by the metadata.version that they support at most.
TRIED = {21: "3.9", 27: "4.1", 30: "4.3", 33: "4.4"}
STRICT = 2  # version of WriteTxnMarkers with which a broker refuses a marker that is late (4.2, KIP-1228)
METADATA_VERSION, TRANSACTION_VERSION = "metadata.version", "transaction.version"
IDLE_STATES = ("Empty", "CompleteCommit")
MOVED = ("no leader", "NotLeader", "LeaderEpoch", "NotCoordinator", "UnknownTopicOrPartition")  # in the names of errors
EMPTY_ANSWERS = 10  # of half a second each


@dataclass(frozen=True, slots=True)
class CommittedOpen:
    """A finding about a transaction that was committed and is open in a partition, as a run has it.

    ``producer_epoch``, ``last_sequence`` and ``last_timestamp`` (ms): of its producer there; ``completed_offset``: of
    its Complete record in ``__transaction_state``; ``unmarked``: how many transactions of its id lack a marker there;
    None for what the run does not have. ``flaws``: why the run does not prove it.
    """

    topic: str
    partition: int
    offset: int
    producer_id: int
    producer_epoch: int
    transactional_id: str
    cluster_id: str | None
    completed_offset: int | None
    unmarked: int | None
    last_sequence: int | None
    last_timestamp: int | None
    flaws: tuple[str, ...]

    @property
    def name(self) -> str:
        """Topic and partition."""
        return f"{self.topic}-{self.partition}"


def committed_open(row: Values, summary: Values) -> CommittedOpen | None:
    """Return what a finding says; None for one that is not about data of a known id in a partition."""
    needed = ("topic", "partition", "offset", "producer_id", "producer_epoch", "transactional_id")
    if any(row.get(name) is None for name in needed) or row.get("kind") not in FINISHED:
        return None
    evidence = read(FinishEvidence, row["evidence"])
    cluster_id = cluster_of(row, {item["log_dir"]: item["cluster_id"] for item in summary["inputs"]})
    return CommittedOpen(
        **{name: row[name] for name in needed}, cluster_id=cluster_id, flaws=tuple(_flaws(row, cluster_id)),
        completed_offset=evidence.get("completed_offset"), unmarked=evidence.get("unmarked_transactions"),
        last_sequence=evidence.get("last_sequence"), last_timestamp=evidence.get("last_timestamp_ms"),
    )  # fmt: skip


def _flaws(row: Values, cluster_id: str | None) -> Iterator[str]:
    evidence = row["evidence"]
    if (row["advice"] or {}).get("verdict") != Verdict.COMMIT_IT:
        yield "its advice is not to commit"
    if read(LateDataEvidence, evidence).get("decided") != "COMMIT":
        yield "the decision is not known to be COMMIT"
    if read(Evidence, evidence).get("confidence") != "proved" or row["if_true"] is not None:
        yield "its evidence is not proved"
    if any(item["holds"] is not True and not item["command"] for item in (row["advice"] or {}).get("conditions", ())):
        yield "a condition of its advice is not confirmed"
    if not FinishEvidence.__annotations__.keys() <= evidence.keys():
        yield "its evidence has no values to compare: audit again with this release"
    if row["fingerprint"] != fingerprint(row, cluster_id):
        yield "its ID is not that of its fields"


class IdHistory(NamedTuple):
    """Records of one transactional id, read live. ``records``: by offset; ``gaps``: missing offsets, first and last;
    ``damaged``: offsets from which on bytes are damaged; ``end``: up to where; ``stopped``: why not to the log end."""

    records: tuple[tuple[int, TransactionLogRow], ...]
    gaps: tuple[tuple[int, int], ...]
    damaged: tuple[int, ...]
    end: int
    stopped: str | None


@dataclass(frozen=True, slots=True)
class MarkerLook:
    """What a cluster shows at one time. ``log``, ``coordinator``: the partition, and that of ``__transaction_state``
    with the id. ``stable_offset``: None unless the broker leads the log; ``listed``: ids with the producer id;
    ``problems``: by name of a field, why it is None."""

    cluster_id: str | None
    log: PartitionMetadata | None
    coordinator: PartitionMetadata | None
    levels: Mapping[int, BrokerLevels | None]
    min_in_sync: int | None
    may_write: bool | None
    history: IdHistory | None
    coordinator_end: int | None
    state: ListedTransaction | None
    listed: Mapping[str, str] | None
    stable_offset: int | None
    producers: tuple[Producer, ...] | None
    problems: Mapping[str, str]


def look(cluster: MarkerCluster, asked: CommittedOpen, budget: Budget, begin: int | None = None) -> MarkerLook:
    """Ask a cluster for everything that :func:`decide` needs; what may change soonest comes last.

    ``begin``: the offset of ``__transaction_state`` to read from, None for the log start. Sends nothing that writes.
    """
    from auditor.connectors.live import live_cluster

    problems: dict[str, str] = {}

    def ask(name: str, needs: str, call: Callable[[], Answer | None]) -> Answer | None:
        before, answer = len(cluster.failures), call()
        if answer is None:
            why = "; ".join(text for _, text in cluster.failures[before:]) or "the cluster does not show it"
            problems[name] = f"{why} (permission: {needs})" if "Authorization" in why else why
        return answer

    cluster_id, brokers, logs = cluster.metadata()
    place, tid = (asked.topic, asked.partition), asked.transactional_id
    count = sum(log.topic == TRANSACTION_STATE for log in logs)
    of_id, by_name = (TRANSACTION_STATE, partition_for(tid, max(count, 1))), {log.name: log for log in logs}
    on_topic, on_states = (f"Read on topic {topic}" for topic in (asked.topic, TRANSACTION_STATE))
    on_id = f"Describe on transactional id {tid}"
    log, coordinator = by_name.get(place), by_name.get(of_id)
    for field, part, needs in (("stable_offset", log, on_topic), ("coordinator_end", coordinator, on_states)):
        problems[field] = f"not visible (permission: {needs})" if part is None else "it has no leader"
    log, coordinator = (None if part is None or part.leader < 0 else part for part in (log, coordinator))
    nodes = sorted({part.leader for part in (log, coordinator) if part is not None})
    levels = {node: ask("levels", "", partial(cluster.levels, node)) for node in nodes}
    least = history = end = state = stable = producers = may = None
    if log is not None:
        configs = ask("min_in_sync", f"DescribeConfigs on topic {asked.topic}",
                      lambda: cluster.configs(live_cluster.TOPIC, [asked.topic]) or None)  # fmt: skip
        least = (configs or {}).get(asked.topic, {}).get(MIN_IN_SYNC)
        may = ask("may_write", "Describe on the cluster", lambda: cluster.may_write_markers(log.leader))
    if coordinator is not None:
        history = ask("history", on_states, lambda: id_history(cluster, coordinator, tid, budget, begin))
        end = ask("coordinator_end", on_states, lambda: cluster.stable_offset(coordinator))
        state = ask("state", on_id, lambda: cluster.described_id(coordinator.leader, tid))
    listed = ask("listed", on_id, lambda: cluster.ids_of(brokers, asked.producer_id))
    if log is not None:
        stable = ask("stable_offset", f"Describe on topic {asked.topic}", lambda: cluster.stable_offset(log))
        active = ask("producers", on_topic, lambda: cluster.producers(log.leader, [place]).get(place))
        producers = None if active is None else tuple(sorted(active))
    return MarkerLook(
        cluster_id, log, coordinator, levels, setting_number(least), may, history, end, state, listed,
        stable, producers, problems,
    )  # fmt: skip


def id_history(
    cluster: MarkerCluster, log: PartitionMetadata, tid: str, budget: Budget, begin: int | None
) -> IdHistory | None:  # fmt: skip
    """Return the records of an id from an offset on to the end that the log has now; None if that is not shown."""
    from auditor.connectors.live import live_cluster

    start, end = (
        cluster.offsets(log.leader, [log.name], which, replica=live_cluster.DEBUGGER).get(log.name)
        for which in (live_cluster.EARLIEST, live_cluster.LATEST)
    )
    if start is None or end is None:
        return None
    next_offset = max(start, start if begin is None else begin)
    records, gaps, damaged = list[tuple[int, TransactionLogRow]](), list[tuple[int, int]](), list[int]()
    stopped = None
    for piece in pieces(cluster, log, next_offset, end, budget):
        if isinstance(piece, str):
            stopped = piece
            break
        next_offset = _take(piece, tid, next_offset, records, gaps, damaged)
    return IdHistory(tuple(records), tuple(gaps), tuple(damaged), next_offset, stopped)


def pieces(
    cluster: MarkerCluster, log: PartitionMetadata, begin: int, end: int, budget: Budget
) -> Iterator[Chunk | str]:
    """Yield the batches of a log from ``begin`` on, below ``end``; at last why reading stopped before, if it did."""
    next_offset, empty, name = begin, 0, f"{log.topic}-{log.partition}"
    while next_offset < end:
        if budget.spent:
            yield "read limit reached (--max-bytes)"
            return
        answer = cluster.fetch(log, next_offset, MIB)  # and the first batch whole, however large it is
        if answer is None:
            yield "; ".join(text for _, text in cluster.failures[-1:])
            return
        budget.take(len(answer.data))
        empty = 0 if answer.data else empty + 1
        if empty == EMPTY_ANSWERS:
            yield f"no records at offset {next_offset}"
            return
        whole, before = answer.data[: whole_batches(answer.data, end)], next_offset
        for chunk in read_segment(io.BytesIO(whole), len(whole), file=name, raw=True, offsets=(before, ANY_OFFSET[1])):
            yield chunk
            next_offset = max([next_offset, *(chunk.batches.last_offset + 1).tolist()])
        if answer.data and next_offset == before:
            yield f"no whole batch at offset {next_offset}"
            return


def _take(
    chunk: Chunk, tid: str, next_offset: int, records: list[tuple[int, TransactionLogRow]], gaps: list[tuple[int, int]],
    damaged: list[int],
) -> int:  # fmt: skip
    # Add a chunk that begins at ``next_offset`` to what was read; return the offset after it.
    b = chunk.batches
    damaged += [next_offset] * bool(chunk.errors or chunk.body_errors)
    damaged += b.base_offset[b.flaws & FLAW_CRC != 0].tolist()
    for row, record in records_of(chunk.raw or [], b, file=TRANSACTION_STATE):
        first = int(b.base_offset[row])
        if isinstance(record, DecodeError):
            damaged.append(first)
            continue
        if record.offset > next_offset:
            gaps.append((next_offset, record.offset - 1))
        next_offset = record.offset + 1
        decoded, problem = decode_transaction_log(record.key, record.value)
        if decoded is not None and decoded.transactional_id == tid:
            records.append((record.offset, decoded))
        elif decoded is None and (problem is None or problem.reason != "unknown_key_type"):
            damaged.append(first)
    after = max([next_offset, *(b.last_offset + 1).tolist()])
    if after > next_offset:
        gaps.append((next_offset, after - 1))
    return after


class FinishCondition(NamedTuple):
    """What has to hold before the marker is written. ``source``: who shows the value; ``holds``: None if unknown."""

    what: str
    value: str
    source: str
    holds: bool | None


class MarkerPlan(NamedTuple):
    """The conditions, and the request that they allow: None as long as its values are not known.

    ``begin``: the offset of the oldest record that they rest on; ``late_risk``: whether a late request could commit
    data of the next transaction.
    """

    conditions: tuple[FinishCondition, ...]
    request: MarkerRequest | None
    begin: int | None
    late_risk: bool

    @property
    def refused(self) -> list[FinishCondition]:
        """The conditions that do not hold."""
        return [condition for condition in self.conditions if condition.holds is False]

    @property
    def unknown(self) -> list[FinishCondition]:
        """The conditions that the cluster did not show."""
        return [condition for condition in self.conditions if condition.holds is None]

    def changes(self, later: MarkerPlan) -> list[str]:
        """Return what differs in a later plan, in words."""
        now = {c.what: (c.value, c.holds) for c in later.conditions}
        changed = [f"{c.what}: {c.value}, now {now.get(c.what, ('not shown',))[0]}" for c in self.conditions
                   if (c.value, c.holds) != now.get(c.what)]  # fmt: skip
        return changed + ([] if changed or self.request == later.request else ["the request"])


def decide(asked: CommittedOpen, seen: MarkerLook) -> MarkerPlan:
    """Judge what was seen. Everything must hold; what is missing is unknown, never treated as right."""
    complete = _completed(asked, seen)
    conditions = [*_of_run(asked, seen), *_of_leader(seen, asked), *_of_producer(asked, seen), *_of_id(asked, seen),
                  *_of_decision(asked, seen, complete)]  # fmt: skip
    producer, log = _producer(asked, seen), seen.log
    level = None if log is None else seen.levels.get(log.leader)
    version = 0 if complete is None else complete[1].client_transaction_version or 0
    late = level is None or level.write_markers < STRICT or not bumps_epoch(version)
    begin = None if seen.history is None else min((o for o, _ in _of_transaction(asked, seen)), default=None)
    if complete is None or producer is None or level is None or level.write_markers < 1 or log is None:
        return MarkerPlan(tuple(conditions), None, begin, late)
    from auditor.connectors.live.marker_writer import MarkerRequest

    of_request = min(level.write_markers, STRICT)
    request = MarkerRequest(
        log.leader, of_request, asked.topic, asked.partition, asked.producer_id, complete[1].producer_epoch or 0,
        max(producer.coordinator_epoch, 0), version if of_request >= STRICT else 0,
    )  # fmt: skip
    return MarkerPlan(tuple(conditions), request, begin, late)


def _of_run(asked: CommittedOpen, seen: MarkerLook) -> Iterator[FinishCondition]:
    flaws = "; ".join(asked.flaws)
    yield FinishCondition("the finding proves a COMMIT without its marker", flaws or "proved", "the run", not flaws)
    alone = asked.unmarked == 1
    yield FinishCondition("only one transaction would be closed", f"{asked.unmarked or 'unknown'}", "the run", alone)
    same = None if seen.cluster_id is None else seen.cluster_id == asked.cluster_id
    yield FinishCondition("the cluster is that of the run", f"{seen.cluster_id}", "Metadata", same)


def _shown(
    seen: MarkerLook, name: str, what: str, source: str, shown: tuple[str, bool] | None
) -> FinishCondition:  # fmt: skip
    # ``shown``: a value, and whether it is right; None where the cluster does not show it. A broker that does not lead
    # any more refutes what was asked of it.
    why = seen.problems.get(name, "not asked")
    value, holds = shown or (why, False if any(word in why for word in MOVED) else None)
    return FinishCondition(what, value, source, holds)


def _of_leader(seen: MarkerLook, asked: CommittedOpen) -> Iterator[FinishCondition]:
    log, states, by = seen.log, seen.coordinator, "Metadata, and ListOffsets with its leader epoch"
    leads = enough = None
    if log is not None and seen.stable_offset is not None:
        leads = (f"broker {log.leader}, leader epoch {log.leader_epoch}", True)
    yield _shown(seen, "stable_offset", f"a broker leads {asked.name}", by, leads)
    if log is not None and seen.min_in_sync is not None:
        value = f"{len(log.isr)} ({', '.join(map(str, sorted(log.isr)))}), {MIN_IN_SYNC} {seen.min_in_sync}"
        enough = (value, len(log.isr) >= seen.min_in_sync)
    yield _shown(seen, "min_in_sync", "enough replicas are in sync", "Metadata, DescribeConfigs", enough)
    leads = None
    if states is not None and seen.coordinator_end is not None:
        leads = (f"broker {states.leader}, partition {states.partition}, leader epoch {states.leader_epoch}", True)
    yield _shown(seen, "coordinator_end", f"a broker leads {TRANSACTION_STATE} of the id", by, leads)
    for node, level in seen.levels.items():
        release = None if level is None else TRIED.get(level.metadata_version)
        value = "" if level is None else f"{release or 'not tried'} ({METADATA_VERSION} up to {level.metadata_version})"
        tried = None if level is None else (value, release is not None)
        yield _shown(seen, "levels", f"the release of broker {node} was tried", "ApiVersions", tried)
    if seen.may_write is not None:
        value = "yes" if seen.may_write else "no: needs ClusterAction or (3.8 and newer) Alter on the cluster"
        yield FinishCondition("this user may write markers", value, "DescribeCluster", seen.may_write)


def _producer(asked: CommittedOpen, seen: MarkerLook) -> Producer | None:
    return next((p for p in seen.producers or () if p.producer_id == asked.producer_id), None)


def _of_producer(asked: CommittedOpen, seen: MarkerLook) -> Iterator[FinishCondition]:
    source = "DescribeProducers" if seen.log is None else f"DescribeProducers on broker {seen.log.leader}"
    p, listed = _producer(asked, seen), None if seen.producers is None else ("not listed", False)
    if p is None:
        yield _shown(seen, "producers", f"producer id {asked.producer_id} has this transaction open", source, listed)
        return
    for what, now, before in (
        ("producer epoch", p.producer_epoch, asked.producer_epoch),
        ("first offset of its open transaction", p.txn_first_offset, asked.offset),
        ("last sequence", p.last_sequence, asked.last_sequence),
        ("last timestamp", p.last_timestamp, asked.last_timestamp),
    ):
        value = f"{now}" if now == before else f"{now}, in the run {before}"
        yield FinishCondition(f"{what} as in the run", value, source, now == before)
    if seen.coordinator is not None:
        most, epoch = seen.coordinator.leader_epoch, max(p.coordinator_epoch, 0)
        value = f"{epoch}, leader epoch of its coordinator partition {most}"
        yield FinishCondition("coordinator epoch is not too high", value, f"{source}, Metadata", epoch <= most)


def _of_id(asked: CommittedOpen, seen: MarkerLook) -> Iterator[FinishCondition]:
    state, listed, idle, only = seen.state, seen.listed, None, None
    if state is not None:
        value = f"{state.state}, producer id {state.producer_id}, epoch {state.producer_epoch}"
        idle = (value, state.state in IDLE_STATES and state.producer_id == asked.producer_id)
    yield _shown(seen, "state", f"{asked.transactional_id} has no open transaction", "DescribeTransactions", idle)
    if listed is not None:
        value = ", ".join(f"{name}: {of}" for name, of in sorted(listed.items())) or "none"
        only = (value, listed.keys() == {asked.transactional_id} and {*listed.values()} <= {*IDLE_STATES})
    yield _shown(seen, "listed", f"no other id has producer id {asked.producer_id}", "ListTransactions", only)


def _of_transaction(asked: CommittedOpen, seen: MarkerLook) -> list[tuple[int, TransactionLogRow]]:
    # The Complete record, and right before it the Prepare where a cleaner left it.
    if seen.history is None or asked.completed_offset is None:
        return []
    until = [(offset, row) for offset, row in seen.history.records if offset <= asked.completed_offset]
    if not until or until[-1][0] != asked.completed_offset:
        return []
    return [pair for pair in until[-2:-1] if (pair[1].state or "").startswith("Prepare")] + until[-1:]


def _completed(asked: CommittedOpen, seen: MarkerLook) -> tuple[int, TransactionLogRow] | None:
    records = _of_transaction(asked, seen)
    return records[-1] if records and records[-1][1].state == "CompleteCommit" else None


def _of_decision(
    asked: CommittedOpen, seen: MarkerLook, complete: tuple[int, TransactionLogRow] | None
) -> Iterator[FinishCondition]:  # fmt: skip
    history, states, what = seen.history, seen.coordinator, "a record decides COMMIT"
    own_records, since = _of_transaction(asked, seen), asked.completed_offset or 0
    if history is None or states is None:
        yield _shown(seen, "history", what, "Fetch", None)
        return
    source = f"Fetch of {TRANSACTION_STATE}-{states.partition} from broker {states.leader}"
    if history.stopped is not None and not own_records:
        yield FinishCondition(what, history.stopped, source, None)
        return
    value, own = "no record of this transaction is left", False
    for _, row in own_records[-1:]:
        own = row.producer_id == asked.producer_id
        value = f"{row.state} at offset {since}, producer id {row.producer_id}"
    yield FinishCondition(what, value, source, complete is not None and own)
    for offset, row in own_records[:-1]:
        named = asked.name in (row.partitions or ()) and row.state == "PrepareCommit"
        value = f"{row.state} at offset {offset}{'' if named else ': it does not'}"
        yield FinishCondition("its Prepare record names the partition", value, source, named)
    later = [f"{row.state or 'tombstone'} at offset {offset}" for offset, row in history.records
             if offset > since and row.state != "Empty"]  # fmt: skip
    yield FinishCondition("nothing of the id follows but Empty", ", ".join(later[:3]) or "nothing", source, not later)
    yield from _of_reading(history, since, source)
    if complete is not None:
        epoch, version = complete[1].producer_epoch or 0, complete[1].client_transaction_version or 0
        fits = epoch == asked.producer_epoch + int(bumps_epoch(version))
        value = f"{epoch}, {TRANSACTION_VERSION} {version}, data {asked.producer_epoch}"
        yield FinishCondition("the marker's epoch fits the data's", value, source, fits)


def _of_reading(history: IdHistory, since: int, source: str) -> Iterator[FinishCondition]:
    gap = next(((first, last) for first, last in history.gaps if last >= since), None)
    bad = next((offset for offset in history.damaged if offset >= since), None)
    what = f"the records from offset {since} on are intact and without a gap"
    value = "intact" if gap is None else f"offsets {gap[0]} to {gap[1]} are missing"
    value = value if bad is None else f"damaged from offset {bad} on"
    yield FinishCondition(what, value, source, gap is None and bad is None)
    what, value = "they were read to the log end", history.stopped or "to the end"
    yield FinishCondition(what, value, source, None if history.stopped else True)


class LeaderNow(NamedTuple):
    """A partition at its leader: its end, the last stable offset, and the producers."""

    log: PartitionMetadata
    end: int
    stable_offset: int
    producers: list[Producer]

    def has_open(self, producer_id: int) -> bool:
        """Whether a producer has an open transaction."""
        return any(p.producer_id == producer_id and p.txn_first_offset >= 0 for p in self.producers)


def leader_now(cluster: MarkerCluster, asked: CommittedOpen) -> LeaderNow | None:
    """Return what the leader shows of the partition now; None where no broker leads it and answers."""
    from auditor.connectors.live.live_cluster import LATEST

    place = (asked.topic, asked.partition)
    log = next((log for log in cluster.metadata()[2] if log.name == place and log.leader >= 0), None)
    if log is None:
        return None
    active, end = cluster.producers(log.leader, [place]).get(place), cluster.offsets(log.leader, [place], LATEST)
    stable = cluster.stable_offset(log)
    return None if active is None or stable is None or place not in end else LeaderNow(log, end[place], stable, active)


def marker_between(
    cluster: MarkerCluster, now: LeaderNow, begin: int, producer_id: int, budget: Budget
) -> tuple[int, bool] | None:
    """Return the producer's first marker from an offset on: its offset, and whether it is a COMMIT; None if none."""
    for piece in pieces(cluster, now.log, begin, now.end, budget):
        if isinstance(piece, str):
            break
        b = piece.batches
        rows = np.flatnonzero((b.attributes & CONTROL != 0) & (b.producer_id == producer_id) & (b.base_offset >= begin))
        if len(rows):
            return int(b.base_offset[rows[0]]), bool(b.control_type[rows[0]] == 1)
    return None


def abort_command(row: Values) -> str | None:
    """Return the command that aborts the transaction of a finding; None where an abort is not known to be safe."""
    advice = row["advice"] or {}
    steps = advice["steps"] if advice.get("verdict") == Verdict.SAFE_TO_ABORT else ()
    return next((step["command"] for step in steps if step["command"]), None)


def as_row(plan: MarkerPlan) -> dict[str, Any]:
    """Return a plan for the journal."""
    request = None if plan.request is None else plan.request._asdict()
    return {"conditions": [c._asdict() for c in plan.conditions], "request": request}
