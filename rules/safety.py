"""What is safe to do about an open transaction: one judgement for every remedy, the page's card and the alerts.

It goes by the coordinator's state and decision, by where the data still lies, and by the replicas. An abort is offered
only for data that no transaction of its coordinator can claim any more.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import numpy as np

from auditor.base.words import NO_TIMEOUT_MS, plural
from auditor.facts.replica_facts import ReplicaFacts
from auditor.rules import commands, repairs
from auditor.rules.coordinator_history import Entry
from auditor.rules.named import DECIDING, SKEW_MS, Window
from auditor.rules.open_transactions import OpenTransaction, lost_ends, open_at_coordinator
from auditor.rules.state_records import TOPIC
from auditor.rules.view import Cluster, LogView
from auditor.rules.windows import owner_complete, unmarked_behind

FINDS_BY_OFFSET = (3, 0)  # releases from here on abort by a start offset (TransactionsCommand)
GONE = "nothing here: its data was deleted already"


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do about an open transaction: ``verdict`` in a few words, ``tone`` (act, wait, stop, ask), what it costs,
    and the ``remedy`` with the commands to paste."""

    verdict: str
    tone: str
    cost: str
    remedy: str

    def row(self) -> dict[str, str]:
        """What pages show beside the finding's remedy."""
        return {name: text for name, text in asdict(self).items() if name != "remedy"}


def advise(log: LogView, t: OpenTransaction) -> Advice:
    """The judgement on one open transaction."""
    advice = _advise(log, t)
    back = repairs.leader_back(log.cluster, [log.name]) if log.name in log.cluster.away else ""
    return advice if back in advice.remedy else replace(advice, remedy=f"First {back}. {advice.remedy}")


def _advise(log: LogView, t: OpenTransaction) -> Advice:
    gone = int(t.row["last_offset"]) < log.leader.own_start
    window = None if gone else committed(log, t)
    unsure = t.missing or ("files may have been copied at different times" if t.in_flight or t.end_unknown else None)
    if window is not None and window.prepare is not None:
        commit = Commit(window.producer_id, window.prepare.producer_epoch, _coordinator_epoch(log, window.prepare))
        return _restore(log, t, commit) if unsure is None else _marker_unseen(log, unsure)
    if unsure is None and t.entry is not None and open_at_coordinator(log, t):
        return _of_coordinator(log, t, t.entry, gone)
    elsewhere = None if gone or t.in_flight or t.end_unknown else _commit_elsewhere(log, t)
    if elsewhere is not None:
        return _restore(log, t, elsewhere)
    if unsure is not None:
        return _confirm(log, t, unsure)
    if not gone and _may_be_the_committed(log, t):
        return _confirm(
            log, t, "its id's last transaction ended in COMMIT, and the input does not show if this was it",
            "It may be part of what was committed last: an abort then drops records that the client was sure of.",
        )  # fmt: skip
    return _abort(log, t, gone)


def committed(log: LogView, t: OpenTransaction) -> Window | None:
    """The transaction that was decided COMMIT, may hold this data, and has no marker here."""
    ended = lost_ends(log, t.row)
    unended = [w for w in unmarked_behind(log, t.row) if w.end_time is None and not _is(w.prepare, t.entry)]
    time = log.time(t.row["last_time"])
    unended = [w for w in unended if w.may_hold(t.row, time)]
    return next((w for w in (*ended, *unended) if w.prepare is not None and w.prepare.commit), None)


def _is(decision: Entry | None, last: Entry | None) -> bool:
    """Whether a decision is the last record of its id: then its coordinator will carry it out by itself."""
    if decision is None or last is None:
        return False
    return (decision.partition, decision.offset) == (last.partition, last.offset)


def _may_be_the_committed(log: LogView, t: OpenTransaction) -> bool:
    """Whether the history of its id is too short to distinguish this data from that of the COMMIT that it ends with."""
    if t.entry is None or t.entry.state != "CompleteCommit" or owner_complete(log, int(t.row["producer_id"])):
        return False
    return not int(t.row["prev_marker_time"]) >= t.entry.time - SKEW_MS


@dataclass(frozen=True, slots=True)
class Commit:
    """The COMMIT marker that a partition lacks; ``coordinator_epoch``: None where nothing tells."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None


def _coordinator_epoch(log: LogView, decision: Entry) -> int | None:
    history = log.cluster.coordinator
    return None if history is None else history.leader_epochs.get(decision.partition)


def _commit_elsewhere(log: LogView, t: OpenTransaction) -> Commit | None:
    """The COMMIT marker that another replica has for it, whatever is left of what its coordinator wrote."""
    rows = [row for replica in log.replicas if replica is not log.leader for row in _commits(replica, t)]
    if not rows:
        return None
    return Commit(*(int(rows[0][name]) for name in ("producer_id", "marker_epoch", "coordinator_epoch")))


def _restore(log: LogView, t: OpenTransaction, commit: Commit) -> Advice:
    with_marker = [c for c in log.replicas if c is not log.leader and len(_commits(c, t))]
    against = [(c, repairs.keeps_out(log, c)) for c in with_marker]
    sound = next((c for c, why in against if why is None), None)
    if sound is not None:
        how = (
            f"broker {sound.broker_id} has the marker, and all that the leader has. Who is in the Isr: "
            f"{commands.describe_topic(log.topic)} ; if it is, {repairs.lead(log, sound)}. The other replicas do not "
            "fetch the marker by themselves: after that let each be fetched again, one by one"
        )
    else:
        said = [f"broker {c.broker_id} has the marker, but must not lead: {why}. " for c, why in against]
        epoch = "unknown" if commit.coordinator_epoch is None else commit.coordinator_epoch
        how = (
            f"{''.join(said) or 'no replica in the input has the marker. '}{_look_elsewhere(log)}Kafka has no tool "
            "that writes a COMMIT marker. What writes it is a WriteTxnMarkers request (API key 27, needs "
            f"ClusterAction) to the leader of {log.name} with producerId {commit.producer_id}, producerEpoch "
            f"{commit.producer_epoch}, "
            f"coordinatorEpoch {epoch} and transactionResult true (WriteTxnMarkersRequest of kafka-clients)"
        )
    return Advice(
        "Do not abort", "stop", "COMMIT was decided: an abort would drop records that the client was sure of.",
        f"Do not abort, for it was decided COMMIT: {how}. An abort would lose {_records(t)} for good",
    )  # fmt: skip


def _marker_unseen(log: LogView, missing: str) -> Advice:
    """COMMIT was decided, and the marker may be there, where the input does not show it: nothing is to be written."""
    return Advice(
        "Do not abort", "stop", "COMMIT was decided: an abort would drop records that the client was sure of.",
        f"Do not abort: COMMIT was decided, and its marker may be there already; not known here: {missing}. "
        f"{commands.describe_producers(log.topic, log.partition)} shows if it is open still; if not, there is nothing "
        f"to do. {repairs.LOOK}",
    )  # fmt: skip


def _look_elsewhere(log: LogView) -> str:
    """Which in-sync replicas were not audited, one of which may have the marker; with a blank behind, or nothing."""
    here = {replica.broker_id for replica in log.replicas}
    others = [broker for broker in log.cluster.in_sync.get((log.topic, log.partition), ()) if broker not in here]
    if not others:
        return ""
    names = " and ".join(str(broker) for broker in others)
    return f"Audit the copies of broker {names} first: they are in sync, are not in the input, and may have it. "


def _commits(replica: ReplicaFacts, t: OpenTransaction) -> np.ndarray:
    """The transaction in another replica that has its COMMIT marker; no row where it has none."""
    rows = replica.transactions
    mine = rows[(rows["producer_id"] == t.row["producer_id"]) & (rows["first_offset"] == t.row["first_offset"])]
    return mine[(mine["marker_offset"] >= 0) & (mine["commit"] == 1)]


ALIVE = "It may be alive: an abort then drops records that its client is about to commit."


def _confirm(log: LogView, t: OpenTransaction, missing: str, cost: str = ALIVE) -> Advice:
    ask = commands.describe_producers(log.topic, log.partition)
    more = "" if t.owner is None else f" ; {commands.describe_id(t.owner)}"
    return Advice(
        "Confirm before aborting", "ask", cost,
        f"{commands.find_hanging(log.topic)} ; {ask}{more} . Abort nothing before they show that it hangs; not known "
        f"here: {missing}. {repairs.LOOK}",
    )  # fmt: skip


def _of_coordinator(log: LogView, t: OpenTransaction, entry: Entry, gone: bool) -> Advice:
    """It is open at its coordinator: whoever aborts it by hand contradicts what that will decide, or has decided."""
    describe = commands.describe_id(entry.transactional_id)
    if entry.state in DECIDING:
        return undelivered(log.cluster, log.name, entry.transactional_id, entry.state, entry.partition)
    loses = GONE if gone else f"{_records(t)}, which its client has to send again"
    if entry.timeout_ms == NO_TIMEOUT_MS:
        return _of_two_phases(entry, loses)
    if t.klass == "active":
        return Advice("Wait", "wait", "Nothing is lost: it ends by itself, at its time-out at the latest.",
                      f"Wait: {describe} shows since when it is open, and its time-out. {repairs.LOOK}")  # fmt: skip
    return Advice(
        "Find its client first", "ask",
        "An abort cuts off a client that may still be at work; waiting costs its readers' time.",
        unended(entry.transactional_id, entry.partition, loses),
    )  # fmt: skip


def _of_two_phases(entry: Entry, loses: str) -> Advice:
    """It takes part in a two-phase commit: its coordinator never ends it by itself (KIP-939)."""
    return Advice(
        "Find its application", "ask",
        "It has no time-out (two-phase commit): it waits until its application commits or aborts it, and only that "
        "knows which of both was decided.",
        f"{commands.describe_id(entry.transactional_id)} ; then let its application end it: started again with the "
        "same transactional.id and its own state, it commits or aborts what it had prepared. Do not abort it by hand: "
        f"what other systems have committed with it would be missing here. When it is aborted it loses {loses}",
    )  # fmt: skip


def unended(transactional_id: str, coordinator: int, loses: str) -> str:
    """The remedy for a transaction that its coordinator has open beyond its time-out. ``coordinator``: the partition of
    ``__transaction_state`` that has it; ``loses``: what is gone then."""
    return (
        f"{commands.describe_id(transactional_id)} ; end or restart its client, which aborts the transaction when it "
        f"starts. If that does not end it, look who leads {TOPIC}-{coordinator}: {commands.describe_topic(TOPIC)} ; "
        f"and {other_coordinator(coordinator)}. Do not abort it by hand. When it is aborted it loses {loses}"
    )


def other_coordinator(coordinator: int) -> str:
    """Letting another broker load a partition of ``__transaction_state``, which sends what is decided again."""
    return (
        f"let another replica in sync lead {TOPIC}-{coordinator}: {commands.prefer(TOPIC, coordinator)} (it moves "
        "nothing where the preferred replica leads already; where there is no other replica, restart its broker)"
    )


def undelivered(cluster: Cluster, name: str, transactional_id: str, state: str, coordinator: int) -> Advice:
    """A decided transaction whose marker is not in partition ``name`` yet. ``coordinator``: the partition of
    ``__transaction_state`` that has it."""
    commit = state == "PrepareCommit"
    look = f"look for its partitions without a leader: {commands.unavailable()}"
    first = repairs.leader_back(cluster, [name]) if name in cluster.away else look
    return Advice(
        "Do not abort" if commit else "Let the coordinator finish", "stop" if commit else "wait",
        "COMMIT was decided: an abort would drop records that the client was sure of." if commit
        else "Nothing is lost by it; consumers wait until its marker is written.",
        f"Do not abort: its coordinator has decided ({state}) and will write the marker. First {first}; "
        f"then {commands.describe_id(transactional_id)} ; if it does not go on, {other_coordinator(coordinator)}, so "
        f"that its markers are sent again. {repairs.LOOK}",
    )  # fmt: skip


def _abort(log: LogView, t: OpenTransaction, gone: bool) -> Advice:
    committing = t.entry is not None and t.entry.state == "CompleteCommit" and not gone
    cost = f"{_records(t)} become aborted: read_committed readers never see them. Nothing committed is touched."
    if gone:
        cost = "Nothing is lost by it: its data lies below the log start and was deleted already."
    elif committing:
        cost += (
            " Its last transaction ended in COMMIT, so the application may count on them: ask its owner, and send them "
            "again where they are missed."
        )
    return Advice(
        "Abort it, and tell its owner" if committing else "Safe to abort", "act", cost,
        f"{_how_to_abort(log, t)} . It loses " + ("nothing" if gone else _records(t)),
    )  # fmt: skip


def _how_to_abort(log: LogView, t: OpenTransaction) -> str:
    """The commands; where the input does not show that the broker is of 3.0 or newer, also the form that older ones
    take. (The inter-broker protocol does not show that it is older: it may lag behind the release.)"""
    confirm = commands.describe_producers(log.topic, log.partition)
    asked = f"Confirm: {confirm} ; then: {commands.abort(log.topic, log.partition, int(t.row['first_offset']))}"
    if log.cluster.release(log.leader.broker_id).least >= FINDS_BY_OFFSET:
        return asked
    producer = int(t.row["producer_id"]), int(t.row["last_epoch"])
    by_producer = commands.abort_before_3_0(log.topic, log.partition, *producer, _least_coordinator_epoch(log, t))
    return (
        f"{asked} ; only where the broker does not know these requests (below 3.0), and the producer's client is known "
        f"to be gone, in place of both: {by_producer}"
    )


def _least_coordinator_epoch(log: LogView, t: OpenTransaction) -> int:
    """The coordinator epoch that a marker of the producer must have at least: an older one than stored is fenced."""
    rows, states = log.leader.transactions, log.leader.producers
    mine = rows["coordinator_epoch"][(rows["producer_id"] == t.row["producer_id"]) & (rows["marker_offset"] >= 0)]
    stored = states["coordinator_epoch"][states["producer_id"] == t.row["producer_id"]]
    return max([0, *map(int, mine), *map(int, stored)])


def _records(t: OpenTransaction) -> str:
    return f"{plural(int(t.row['records']), 'record')} ({int(t.row['bytes']):,} bytes)"
