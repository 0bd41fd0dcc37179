"""What is safe to do about an open transaction: one judgement for every surface.

It goes by the coordinator's state and decision, by where the data still lies, and by the replicas. An abort is offered
only for data that no transaction of its coordinator can claim any more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from auditor.base.advice import Act, Advice, Condition, Look, Moves, Verdict
from auditor.base.words import NO_TIMEOUT_MS, few, plural
from auditor.facts.replica_facts import ReplicaFacts
from auditor.model.transaction_states import PREPARED
from auditor.rules.lib import commands, repairs
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.coordinator_history import Entry
from auditor.rules.seen.named import SKEW_MS, Window
from auditor.rules.seen.open_checksums import unverified, verified_first
from auditor.rules.seen.view import LogView
from auditor.rules.transactions.open_transactions import (
    DAMAGED,
    OpenTransaction,
    decision_may_be_lost,
    lost_ends,
    open_at_coordinator,
)
from auditor.rules.transactions.state_records import TOPIC
from auditor.rules.transactions.windows import owner_complete, unmarked_behind

FINDS_BY_OFFSET = (3, 0)  # releases from here on abort by a start offset (TransactionsCommand)
GONE = "nothing here: its data was deleted already"
COMMITTED = "COMMIT was decided, and an abort would drop records that the client was sure of"
ALIVE = "it may be alive, and an abort then drops records that its client is about to commit"


def advise(log: LogView, t: OpenTransaction) -> Advice:
    """The judgement on one open transaction."""
    advice = _advise(log, t)
    if mine := [each for each in unverified([log.leader]) if each[1] >= int(t.row["first_offset"])]:
        advice = verified_first(advice, mine)
    back = repairs.leader_back(log.cluster, [log.name]) if log.name in log.cluster.away else ""
    return advice if back in advice.then else _led_first(log, advice, back)


def _led_first(log: LogView, advice: Advice, back: str) -> Advice:
    """The same for a partition that nobody leads: before it has a leader, nothing can be asked of it or written."""
    led = Condition(f"a broker leads {log.name}", False, repairs.BY_METADATA)
    acts = " ; ".join(act.command for act in advice.act)
    later = f". Audit again then: {advice.cost}" if acts else ""
    further = f". {advice.then[:1].upper()}{advice.then[1:]}" if advice.then else ""
    return replace(advice.unless(led), then=f"first {back}{later}{further}")


def _advise(log: LogView, t: OpenTransaction) -> Advice:
    gone = int(t.row["last_offset"]) < log.leader.own_start
    window = None if gone else committed(log, t)
    unsure = t.missing or ("files may have been copied at different times" if t.in_flight or t.end_unknown else None)
    if window is not None and window.prepare is not None:
        commit = Commit(window.producer_id, window.prepare.producer_epoch, _coordinator_epoch(log, window.prepare))
        if unsure is None and decision_may_be_lost(log, t.row, window.prepare):
            unsure = DAMAGED
        return _restore(log, t, commit) if unsure is None else _marker_unseen(log, t, unsure)
    if unsure is None and t.entry is not None and open_at_coordinator(log, t):
        return _of_coordinator(log, t, t.entry, gone)
    elsewhere = None if gone or t.in_flight or t.end_unknown else _commit_elsewhere(log, t)
    if elsewhere is not None:
        return _restore(log, t, elsewhere)
    if unsure is not None:
        places = _damaged_places(log, t)
        return _decision_lost(t, places) if places else _confirm(log, t, unsure)
    if not gone and _may_be_the_committed(log, t):
        return _confirm(
            log,
            t,
            "its id's last transaction ended in COMMIT, and the input does not show if this was it",
            "it may be part of what was committed last, and an abort then drops records that the client was sure of",
        )
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
    decided = Condition("COMMIT was decided", True, "the coordinator's log or another replica's marker")
    if sound is not None:
        return _led_by_the_one_that_has_it(log, sound, decided)
    no_marker = Condition(
        "a replica that may lead has the marker",
        False,
        "; ".join(f"broker {c.broker_id} has the marker, but must not lead: {why}" for c, why in against)
        or "none in the input has it",
    )
    epoch = "unknown" if commit.coordinator_epoch is None else commit.coordinator_epoch
    how = (
        f"{_look_elsewhere(log)}No tool of Kafka's writes a COMMIT marker. What does is a WriteTxnMarkers "
        f"request (API key 27, needs ClusterAction) to the leader of {log.name} with producerId {commit.producer_id}, "
        f"producerEpoch {commit.producer_epoch}, coordinatorEpoch {epoch} and transactionResult true"
    )
    return Advice(Verdict.DO_NOT_ACT, COMMITTED, (decided, no_marker), loses=_records(t), then=how)


def _led_by_the_one_that_has_it(log: LogView, sound: ReplicaFacts, decided: Condition) -> Advice:
    synced = repairs.in_sync(log, sound.broker_id)
    whole = Condition(f"broker {sound.broker_id} has the marker, and all that the leader has", True, "both replicas")
    advice = Advice(
        Verdict.ACT,
        f"let broker {sound.broker_id} lead, which has the COMMIT marker; never abort: {COMMITTED}",
        (decided, whole),
        (repairs.seen_in_sync(log, sound.broker_id),),
        repairs.lead(log, sound),
        then="the other replicas do not fetch the marker by themselves: after that let each be fetched again, one by "
        "one",
        moves=Moves(leads=sound.broker_id),
    ).unless(synced)
    return advice if advice.act else replace(advice, verdict=Verdict.DO_NOT_ACT, cost=COMMITTED)


def _marker_unseen(log: LogView, t: OpenTransaction, missing: str) -> Advice:
    """COMMIT was decided, and the marker may be there, where the input does not show it: nothing is to be written."""
    return Advice(
        Verdict.DO_NOT_ACT,
        COMMITTED,
        (Condition("its marker has not come since the copy", None, missing),),
        (_listed(log, t),),
        then="its marker may be there already: where the leader does not list it, there is nothing to do",
    )


def _damaged_places(log: LogView, t: OpenTransaction) -> list[str]:
    """Where batches with a CRC mismatch are that may hold the decision about open data, or its marker."""
    history, places = log.cluster.coordinator, []
    if history is not None and t.missing == DAMAGED:
        mine = ((p, found.damaged) for p, found in history.logs.items() if t.entry is None or t.entry.partition == p)
        places = [f"{TOPIC}-{p} from offset {damaged[p][0][0]} on" for p, damaged in mine if damaged]
    behind = [first for first, last in log.leader.damaged if last > int(t.row["last_offset"])]
    return [*places, *(f"{log.name} from offset {first} on" for first in behind[:1])]


def _decision_lost(t: OpenTransaction, places: list[str]) -> Advice:
    """What was decided may be in a damaged batch: whatever brokers have read from it, and list, is no evidence."""
    return Advice(
        Verdict.DO_NOT_ACT,
        "what was decided may be in a damaged batch: if it was COMMIT, an abort would drop records that the client was "
        "told are committed",
        (Condition("its decision and its marker are not in a damaged batch", None, f"CRC mismatch in {few(places)}"),),
        loses=_records(t),
        then="audit a sound replica of these batches. Do not go by what kafka-transactions.sh lists: a broker that "
        "loaded the damaged records lists what they say. Where one flipped bit explains the checksum, the finding "
        "batch-crc-mismatch has both readings",
    )


def _listed(log: LogView, t: OpenTransaction) -> Look:
    """That the partition's leader has the transaction open still."""
    first, producer = int(t.row["first_offset"]), int(t.row["producer_id"])
    return Look(
        commands.describe_producers(log.topic, log.partition),
        f"it lists producer {producer} with CurrentTransactionStartOffset {first}",
    )


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


def _confirm(log: LogView, t: OpenTransaction, missing: str, cost: str = ALIVE) -> Advice:
    own = (
        ()
        if t.owner is None
        else (
            Look(
                commands.describe_id(t.owner),
                f"its state is not Ongoing, or its partitions do not have {log.name}",
            ),
        )
    )
    return Advice(
        Verdict.LOOK,
        cost,
        (Condition("no coordinator will end it", None, missing),),
        (
            Look(commands.find_hanging(log.topic), f"it lists producer {t.row['producer_id']} in {log.name}"),
            _listed(log, t),
            *own,
        ),
        then="abort nothing before they show that it hangs",
    )


def _of_coordinator(log: LogView, t: OpenTransaction, entry: Entry, gone: bool) -> Advice:
    """It is open at its coordinator: whoever aborts it by hand contradicts what that will decide, or has decided."""
    if entry.state in PREPARED:
        return undelivered(log.cluster, log.name, entry.transactional_id, entry.state, entry.partition)
    loses = "nothing" if gone else _records(t)
    if entry.timeout_ms == NO_TIMEOUT_MS:
        return _of_two_phases(entry, loses)
    if t.klass == "active":
        return Advice(
            Verdict.WAIT,
            "nothing is lost: it ends by itself, at its time-out at the latest",
            look=(_in_state(entry.transactional_id, "Ongoing"),),
        )
    return unended(entry.transactional_id, entry.partition, loses)


def _in_state(transactional_id: str, state: str) -> Look:
    """That a coordinator has an id in the state that it had by the copy."""
    return Look(commands.describe_id(transactional_id), f"its TransactionState is {state}")


def _open_at_its_coordinator(transactional_id: str) -> Condition:
    return Condition("its coordinator has ended it", False, f"{TOPIC} has it open for {transactional_id}")


def _of_two_phases(entry: Entry, loses: str) -> Advice:
    """It takes part in a two-phase commit: its coordinator never ends it by itself (KIP-939)."""
    return Advice(
        Verdict.LOOK,
        "find its application: it has no time-out (two-phase commit), so that it waits until its application commits "
        "or aborts it, and only that knows which of both was decided",
        (_open_at_its_coordinator(entry.transactional_id),),
        (_in_state(entry.transactional_id, entry.state or "Ongoing"),),
        loses=loses,
        then="let its application end it: started again with the same transactional.id and its own state, it commits "
        "or aborts what it had prepared. Do not abort it by hand: what other systems have committed with it would be "
        "missing here",
    )


def unended(transactional_id: str, coordinator: int, loses: str) -> Advice:
    """What to do about a transaction that its coordinator has open beyond its time-out. ``coordinator``: the partition
    of ``__transaction_state`` that has it; ``loses``: what is gone once it is aborted."""
    return Advice(
        Verdict.LOOK,
        "find its client: an abort cuts off one that may still be at work, while waiting costs its readers' time",
        (_open_at_its_coordinator(transactional_id),),
        (
            _in_state(transactional_id, "Ongoing"),
            Look(commands.describe_topic(TOPIC), f"a broker leads {TOPIC}-{coordinator}"),
        ),
        loses=loses,
        then="end or restart its client, which aborts the transaction when it starts: what it wrote in it has to be "
        f"sent again. If that does not end it, {other_coordinator(coordinator)}. Do not abort it by hand",
    )


def other_coordinator(coordinator: int) -> str:
    """Letting another broker load a partition of ``__transaction_state``, which sends what is decided again."""
    return (
        f"let another replica that is in sync lead {TOPIC}-{coordinator} (kafka-leader-election.sh, of type preferred: "
        "it moves nothing where the preferred replica leads already; where there is no other replica, its broker has "
        "to start again)"
    )


def undelivered(cluster: Cluster, name: str, transactional_id: str, state: str, coordinator: int) -> Advice:
    """A decided transaction whose marker is not in partition ``name`` yet. ``coordinator``: the partition of
    ``__transaction_state`` that has it."""
    commit = state == "PrepareCommit"
    away = name in cluster.away
    back = f"first {repairs.leader_back(cluster, [name])}" if away else "first give those without a leader one"
    decides = Condition("its coordinator has ended it", False, f"it has decided ({state}) and will write the marker")
    return Advice(
        Verdict.DO_NOT_ACT if commit else Verdict.WAIT,
        COMMITTED if commit else "nothing is lost by it, and consumers wait until its marker is written",
        (decides,),
        (
            Look(commands.unavailable(), f"it lists {name}" if away else "it lists a partition of the transaction"),
            _in_state(transactional_id, state),
        ),
        then=f"{back}; if it does not go on then, {other_coordinator(coordinator)}, so that its markers are sent "
        "again. Do not abort it by hand",
    )


def _abort(log: LogView, t: OpenTransaction, gone: bool) -> Advice:
    committing = t.entry is not None and t.entry.state == "CompleteCommit" and not gone
    records = plural(int(t.row["records"]), "record")
    stay = "stays" if int(t.row["records"]) == 1 else "stay"
    if gone:
        cost = "aborting is safe, for its data lies below the log start and was deleted already"
    elif committing:
        cost = (
            f"aborting touches nothing committed, but tell its owner: {records} behind its COMMIT {stay} unread, on "
            "which the application may count; send them again where they are missed"
        )
    else:
        cost = f"aborting is safe: {records} of {_what_it_is(t)} {stay} unread"
    return Advice(
        Verdict.ACT,
        cost,
        (
            Condition("no coordinator will end it", True, _why_nobody(t)),
            Condition("no replica in the input has a COMMIT marker for it", True, few(_brokers(log))),
        ),
        (_listed(log, t),),
        (Act(commands.abort(log.topic, log.partition, int(t.row["first_offset"]))),),
        loses="nothing" if gone else _records(t),
        then=_by_producer(log, t),
    )


def _what_it_is(t: OpenTransaction) -> str:
    """Whose the data is, of which nobody is sure that it was committed."""
    if t.entry is not None and t.entry.state in ("PrepareAbort", "CompleteAbort"):
        return "a transaction that ended in ABORT"
    return "a transaction that nobody will end"


def _why_nobody(t: OpenTransaction) -> str:
    if t.klass != "ghost":
        return t.reason
    return f"{TOPIC} has nothing open for it" if t.owner is not None else f"{TOPIC} has nobody with its producer id"


def _brokers(log: LogView) -> list[str]:
    return [f"broker {c.broker_id}" if c.broker_id is not None else c.log_dir for c in log.replicas]


def _by_producer(log: LogView, t: OpenTransaction) -> str:
    """The form that older brokers take, where the input does not show that the broker is of 3.0 or newer. (The
    inter-broker protocol does not show that it is older: it may lag behind the release.)"""
    if log.cluster.release(log.leader.broker_id).least >= FINDS_BY_OFFSET:
        return ""
    return (
        "only a broker below 3.0 does not know these two requests: there, and only where the producer's client is "
        "known to be gone, the same command takes, in place of the start offset, --producer-id "
        f"{t.row['producer_id']} --producer-epoch {t.row['last_epoch']} --coordinator-epoch "
        f"{_least_coordinator_epoch(log, t)}"
    )


def _least_coordinator_epoch(log: LogView, t: OpenTransaction) -> int:
    """The coordinator epoch that a marker of the producer must have at least: an older one than stored is fenced."""
    rows, states = log.leader.transactions, log.leader.producers
    mine = rows["coordinator_epoch"][(rows["producer_id"] == t.row["producer_id"]) & (rows["marker_offset"] >= 0)]
    stored = states["coordinator_epoch"][states["producer_id"] == t.row["producer_id"]]
    return max([0, *map(int, mine), *map(int, stored)])


def _records(t: OpenTransaction) -> str:
    count, size = plural(int(t.row["records"]), "record"), int(t.row["bytes"])
    return count if size < 0 else f"{count} ({plural(size, 'byte')})"  # text dumps do not show sizes


def undecided_marker(t: np.void, *, closed: bool, by_hand: bool) -> Advice:
    """What to do about a marker that no coordinator decided. kafka-transactions.sh writes no COMMIT, so nobody is asked
    for one."""
    if by_hand:
        return Advice(Verdict.WAIT, "nothing is to be done about an abort that somebody meant: nothing of it is open")
    asked = "" if t["commit"] else "ask who ran kafka-transactions.sh abort at that time; where nobody did, "
    how = "read as committed" if t["commit"] else "hidden from read_committed consumers"
    downstream = f"; what it closed is {how}, though no coordinator decided so: compensate downstream"
    return Advice(
        Verdict.LOOK,
        then=f"{asked}look whether __transaction_state lost records (unclean-election, "
        f"illegal-transition){downstream if closed else ''}",
    )
