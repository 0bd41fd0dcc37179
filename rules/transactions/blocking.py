"""Advice on open transactions."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import numpy as np

from auditor.base.advice import Advice, Condition, Moves, Step, Verdict, check, lead, shown
from auditor.base.evidence_keys import FinishEvidence
from auditor.base.transactional_ids import KEPT, adapted, guidance, is_flinks, sent_again
from auditor.base.words import NO_TIMEOUT_MS, few, plural
from auditor.evidence.cluster_clocks import at_least_ms, is_after
from auditor.evidence.horizons import may_lack_since
from auditor.facts.coordinator_history import COMMIT, TransactionWindow
from auditor.facts.coordinator_log import EMPTY, StateRecord
from auditor.facts.replica_facts import ReplicaFacts
from auditor.model.transaction_states import PREPARED
from auditor.rules.lib import repairs
from auditor.rules.seen.cluster_view import TRANSACTION_STATE, Cluster
from auditor.rules.seen.view import LogView, iso, unverified, verified_first
from auditor.rules.transactions.making import DAMAGED, decision_may_be_lost, open_at_coordinator
from auditor.transactions.matching import begins_inside, matching, may_hold, missing_behind, naming, owner_complete
from auditor.transactions.record import Case, Status, Transaction

# Advice depends on the coordinator's state and decision, on where the data is still stored, and on the replicas. An
# abort is only offered for data that no transaction of the coordinator can claim any more.


FINDS_BY_OFFSET = (3, 0)  # releases from here on abort by a start offset (TransactionsCommand)
GONE = "none, its data was already deleted"
COMMITTED = (
    "the coordinator committed this transaction. Aborting would lose records that the client was told are committed"
)
RESTARTED = "Stop or restart its client: a restart aborts the transaction. Re-send the records of this transaction. "
TWO_PHASES = (
    "Restart its application with the same transactional.id and its own state: it then commits or aborts what it "
    "prepared. "
)
SEND_AGAIN = "; re-send them if the application needs them"
PERHAPS_COMMITTED = "this data may belong to the last committed transaction. If so, aborting loses committed records"
MIXED = "a committed transaction of its id may have written part of this data, and has no marker here"
UNREAD = "its id committed a transaction, and the part of this log that may have the marker was not scanned"
DELETED = "its id committed a transaction, and the part of this log that may have had the marker was deleted"
ALIVE = "its client may still be running. If so, aborting loses records that it is about to commit"
NOT_BY_HAND = "Do not abort it with kafka-transactions.sh"


def advise(log: LogView, t: Transaction) -> Advice:
    """Advise on one open transaction."""
    advice = _advise(log, t)
    if ranges := [span for span in unverified([log.leader]) if span[1] >= t.first_offset]:
        advice = verified_first(advice, ranges)
    back = repairs.leader_back(log.cluster, [log.name]) if log.name in log.cluster.away else ""
    advice = advice if back in advice.afterwards else _led_first(log, advice, back)
    status = Status.OPEN if t.status in (Status.UNKNOWN, Status.COMPLETED) else t.status
    return _guided(log.cluster, t.entry, status, advice, is_its_own=t.is_its_own)


def _guided(
    cluster: Cluster, entry: StateRecord | None, status: Status, advice: Advice, *, is_its_own: bool = True
) -> Advice:
    # With what differs for the framework that names the id. ``is_its_own``: the last record of the id is about it.
    if entry is None:
        return advice
    ends = status in (Status.OPEN, Status.OVERDUE) and entry.timeout_ms != NO_TIMEOUT_MS
    known = is_its_own and entry.state == "Ongoing" and entry.start >= 0 and entry.timeout_ms > 0
    due = f" at {iso(entry.start + entry.timeout_ms)}" if known else ""
    timeout = f"its timeout{due}, " if ends else ""
    kept = status in (Status.OPEN, Status.OVERDUE) and advice.verdict in (Verdict.DO_NOT_ABORT, Verdict.COMMIT_IT)
    return adapted(advice, guidance(cluster.origin(entry.transactional_id), KEPT if kept else status, timeout))


def _led_first(log: LogView, advice: Advice, back: str) -> Advice:
    # A leaderless partition can neither be queried nor written.
    led = shown(f"a broker leads {log.name}", False, repairs.BY_METADATA)
    later = f". Then audit again. Expected advice: {lead(advice.row()).removesuffix('.')}" if advice.acts else ""
    further = f". {advice.afterwards[:1].upper()}{advice.afterwards[1:]}" if advice.afterwards else ""
    asked = advice.unless(led)
    return replace(asked, steps=() if advice.acts else asked.steps, afterwards=f"first {back}{later}{further}")


def _advise(log: LogView, t: Transaction) -> Advice:
    gone = int(t.row["last_offset"]) < log.leader.own_start
    window = None if gone else committed(log, t)
    unsure = t.missing or ("files may be copied at different times" if t.in_flight or t.end_unknown else None)
    if window is not None and window.prepare is not None:
        if t.entry is not None and _is_also_decided(log, t, window):
            return _of_coordinator(log, t, t.entry, gone)
        commit = MissingCommit(
            window.producer_id, window.prepare.producer_epoch, _coordinator_epoch(log, window.prepare)
        )
        if unsure is None and decision_may_be_lost(log, t.row, window.prepare):
            unsure = DAMAGED
        if unsure is None or (_is_also_open(t) and unsure != DAMAGED):
            return _restore(log, t, commit, window)
        return _marker_unseen(log, t, unsure)
    mixed = not gone and any(_may_hold_part(log, window, t) for window in _commits_missing(log, t))
    if mixed and _is_also_open(t):
        return _until_it_ends(t)
    if unsure is None and t.entry is not None and open_at_coordinator(log, t):
        if not gone and _is_also_open(t) and decision_may_be_lost(log, t.row, t.entry):
            return _until_it_ends(t)
        return _of_coordinator(log, t, t.entry, gone)
    elsewhere = None if gone or t.in_flight or t.end_unknown else _commit_elsewhere(log, t)
    if elsewhere is not None:
        return _restore(log, t, elsewhere)
    if unsure is not None:
        places = _damaged_places(log, t)
        return _decision_lost(_discards(t), places) if places else _confirm(log, t, unsure)
    perhaps = None if gone else MIXED if mixed else _why_perhaps_committed(log, t)
    inside = None if gone else _damaged_behind(log, t, t.first_offset)
    if inside is not None and not _is_also_open(t) and (mixed or not owner_complete(log, t.producer_id)):
        return inside
    if perhaps is not None:
        return _until_it_ends(t) if _is_also_open(t) else _confirm(log, t, perhaps, PERHAPS_COMMITTED)
    return _abort(log, t, gone)


def committed(log: LogView, t: Transaction) -> TransactionWindow | None:
    """Return the transaction decided COMMIT that may hold this data and has no marker here; a complete one first."""
    time = log.time(t.row["last_time"])
    windows = [w for w in _commits_missing(log, t) if may_hold(w, t.row, time)]
    return min(windows, key=lambda window: window.end_time is None, default=None)


def unmarked(log: LogView, t: Transaction, window: TransactionWindow | None) -> FinishEvidence:
    """Return what ``auditor finish`` compares with the cluster; empty for a transaction that is not completed."""
    states = log.leader.producers
    own = states[states["producer_id"] == t.producer_id]
    if window is None or window.complete is None or not len(own):
        return {}
    return {
        "completed_offset": window.complete.offset,
        "unmarked_transactions": sum(1 for _ in missing_behind(log, t.row)),
        "last_sequence": int(own["last_sequence"][0]),
        "last_timestamp_ms": int(own["last_timestamp"][0]),
    }


def _commits_missing(log: LogView, t: Transaction) -> Iterator[TransactionWindow]:
    # Not the last transaction of the id while its coordinator still sends markers.
    for w in missing_behind(log, t.row):
        if w.prepare is not None and w.prepare.commit and not (w.end_time is None and _is_same(w.prepare, t.entry)):
            yield w


def _may_hold_part(log: LogView, window: TransactionWindow, t: Transaction) -> bool:
    # The data may continue with that of later transactions.
    row, times = t.row, [log.time(t.row[name]) for name in ("first_time", "last_time")]
    epochs = window.data_epoch is None or row["producer_epoch"] <= window.data_epoch <= row["last_epoch"]
    begun = row["first_append_time"] != 1 or not is_after(window.start_time, max(times))
    return bool(epochs and begun and (window.end_time is None or not is_after(min(times), window.end_time)))


def _is_same(decision: StateRecord | None, last: StateRecord | None) -> bool:
    # Then its coordinator will carry it out by itself.
    if decision is None or last is None:
        return False
    return (decision.partition, decision.offset) == (last.partition, last.offset)


def _why_perhaps_committed(log: LogView, t: Transaction) -> str | None:
    # The history of the id, or the part of this log that was read, may be too short to rule out a COMMIT.
    producer_id, entry = t.producer_id, t.entry
    if entry is None:
        return None
    complete = owner_complete(log, producer_id)
    if entry.state == "CompleteCommit" and not complete and is_after(entry.time, int(t.row["prev_marker_time"])):
        return "the last transaction of its id was committed, and the input does not show whether this is it"
    if log.leader.log_start <= 0 or matching(log, producer_id).number(int(t.row["prev_marker_offset"])) is not None:
        return None
    return (UNREAD if begins_inside(log) else DELETED) if _some_commit_may_hold(log, t) else None


def _some_commit_may_hold(log: LogView, t: Transaction) -> bool:
    named = naming(log)
    span = named.of(t.producer_id)
    rows = named.rows[span]
    behind = at_least_ms(rows["decided_time"]) > int(t.row["prev_marker_time"])
    numbers = np.flatnonzero((rows["decision"] == COMMIT) & behind) + span.start
    return any(_may_hold_part(log, named.window(number), t) for number in numbers.tolist())


def _is_also_open(t: Transaction) -> bool:
    # Under transaction.version 0 and 1 all transactions share one epoch; under 2 the next one has the next epoch.
    entry = t.entry
    if entry is None or entry.state != "Ongoing":
        return False
    return (entry.producer_id, entry.producer_epoch) == (t.producer_id, int(t.row["last_epoch"]))


def _is_also_decided(log: LogView, t: Transaction, window: TransactionWindow) -> bool:
    entry, prepare = t.entry, window.prepare
    if entry is None or entry.state not in PREPARED or prepare is None or not open_at_coordinator(log, t):
        return False
    return window.client_version < 2 or int(t.row["last_epoch"]) >= prepare.producer_epoch


def _until_it_ends(t: Transaction) -> Advice:
    # A marker written by hand would end half of the transaction that is open.
    assert t.entry is not None
    name, epoch = t.entry.transactional_id, t.entry.producer_epoch
    return Advice(
        Verdict.DO_NOT_ABORT,
        f"wait until the open transaction of {name} ends, then audit again",
        (
            shown("this data belongs to a committed transaction", None, f"{name} has one open, epoch {epoch}"),
            _in_state(name, "Ongoing"),
        ),
        side_effects=_discards(t),
        afterwards=f"Until then write no marker, COMMIT or ABORT. The open transaction of {name} has the same producer "
        "epoch, and a marker would end it before its client does",
    )


@dataclass(frozen=True, slots=True)
class MissingCommit:
    """The COMMIT marker that a partition lacks; ``coordinator_epoch``: None where unknown."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None


def _coordinator_epoch(log: LogView, decision: StateRecord) -> int | None:
    history = log.cluster.coordinator
    return None if history is None else history.leader_epochs.get(decision.partition)


def _commit_elsewhere(log: LogView, t: Transaction) -> MissingCommit | None:
    rows = [row for replica in log.replicas if replica is not log.leader for row in _commits(replica, t)]
    if not rows:
        return None
    return MissingCommit(*(int(rows[0][name]) for name in ("producer_id", "marker_epoch", "coordinator_epoch")))


def _keeps_finish_out(log: LogView, t: Transaction, window: TransactionWindow) -> str | None:
    # Why ``auditor finish`` would refuse, as far as the input shows it; None where nothing is known against it.
    history, complete = log.cluster.coordinator, window.complete
    if history is None or complete is None or unmarked(log, t, window).get("unmarked_transactions") != 1:
        return "the input does not show that this transaction alone lacks its marker"
    source, number = history.place(window.transactional_id)
    for columns, span in source.rows_of(number) if source is not None else ():
        if ((columns["offset"][span] > complete.offset) & (columns["state"][span] != EMPTY)).any():
            return f"{window.transactional_id} has begun another transaction since"
    return None


def _restore(log: LogView, t: Transaction, commit: MissingCommit, window: TransactionWindow | None = None) -> Advice:
    with_marker = [c for c in log.replicas if c is not log.leader and len(_commits(c, t))]
    against = [(c, repairs.keeps_out(log, c)) for c in with_marker]
    sound = next((c for c, why in against if why is None), None)
    decided = shown("the coordinator decided COMMIT", True, "its log or another replica's marker")
    if sound is not None:
        return _led_by_the_one_that_has_it(log, sound, decided)
    if _is_also_open(t):
        return _until_it_ends(t)
    inside = _damaged_behind(log, t, int(t.row["prev_marker_offset"]))
    if inside is not None:
        return inside
    no_marker = shown(
        "no replica that may lead has the marker",
        True,
        "; ".join(f"broker {c.broker_id} has the marker, but must not lead: {why}" for c, why in against)
        or "none in the input",
    )
    epoch = "unknown" if commit.coordinator_epoch is None else commit.coordinator_epoch
    name = t.transactional_id if window is None else window.transactional_id
    stop = "stop its application" if name is None else f"stop the application of {name}"
    against_finish = None if window is None else _keeps_finish_out(log, t, window)
    request = (
        f"a WriteTxnMarkers request to the leader of {log.name}: producerId "
        f"{commit.producer_id}, producerEpoch {commit.producer_epoch}, coordinatorEpoch {epoch}, transactionResult true"
    )
    if window is not None and against_finish is None:  # which looks at all conditions
        looks: tuple[Condition, ...] = ()
        steps = [Step(f"{stop}. Use {repairs.FINISH}: {request}")]
    else:
        idle = () if name is None else (_in_state(name, "Empty or CompleteCommit"),)
        looks = (_listed(log, t), *idle)
        refuses = "" if against_finish is None else f"Do not use auditor finish, which refuses: {against_finish}. "
        tool = f"{refuses}Kafka has no tool that writes a COMMIT marker"
        steps = [
            Step(f"{stop}, and keep it stopped until the marker is written"),
            Step(f"{tool}. Send {request} (API key 27, needs ClusterAction)"),
        ]
    return Advice(
        Verdict.COMMIT_IT,
        COMMITTED,
        (decided, no_marker, *_others_in_sync(log), *looks),
        tuple(steps),
        side_effects=_discards(t),
    )


def _led_by_the_one_that_has_it(log: LogView, sound: ReplicaFacts, decided: Condition) -> Advice:
    synced = repairs.in_sync(log, sound.broker_id)
    whole = shown(f"broker {sound.broker_id} has the marker and all records of the leader", True, "both replicas")
    advice = Advice(
        Verdict.ACT,
        f"make broker {sound.broker_id} lead, which has the COMMIT marker. Do not abort: {COMMITTED}",
        (decided, whole, repairs.check_in_sync(log, sound.broker_id)),
        repairs.lead(log, sound),
        afterwards="The other replicas do not fetch the marker by themselves. Then re-fetch them one by one",
        moves=Moves(leads=sound.broker_id),
    ).unless(synced)
    return advice if advice.acts else replace(advice, verdict=Verdict.DO_NOT_ABORT, why=COMMITTED)


def _marker_unseen(log: LogView, t: Transaction, missing: str) -> Advice:
    # The marker may exist outside the input, so nothing may be written.
    return Advice(
        Verdict.DO_NOT_ABORT,
        COMMITTED,
        (shown("its marker was not written after the copy", None, missing), _listed(log, t)),
        afterwards="Its marker may exist already. If the leader does not list the transaction, there is nothing to do",
    )


def _damaged_places(log: LogView, t: Transaction) -> list[str]:
    history, places = log.cluster.coordinator, []
    if history is not None and t.missing == DAMAGED:
        partitions = history.logs if t.entry is None else (t.entry.partition,)
        places = [place for p in partitions if (place := _damaged_coordinator(log.cluster, p))]
    behind = [first for first, last in log.leader.damaged if last > int(t.row["last_offset"])]
    return [*places, *(f"{log.name} from offset {first} on" for first in behind[:1])]


def _damaged_behind(log: LogView, t: Transaction, offset: int) -> Advice | None:
    # The damaged batch may hold the marker of part of the data, or of an earlier transaction: a marker written now
    # would end another transaction.
    first = next((first for first, last in log.leader.damaged if last > offset), None)
    return None if first is None else _decision_lost(_discards(t), [f"{log.name} from offset {first} on"])


def _damaged_coordinator(cluster: Cluster, coordinator: int) -> str:
    history = cluster.coordinator
    state_log = None if history is None else history.logs.get(coordinator)
    damaged = () if state_log is None else state_log.damaged.get(coordinator, ())
    return f"{TRANSACTION_STATE}-{coordinator} from offset {damaged[0][0]} on" if damaged else ""


def _decision_lost(loses: str, places: list[str]) -> Advice:
    # What brokers read from a damaged batch and list is no evidence.
    return Advice(
        Verdict.DO_NOT_ABORT,
        "the decision may be in a damaged batch. If it was COMMIT, aborting loses records that the client was told are "
        "committed",
        (shown("its decision and its marker are not in a damaged batch", None, f"CRC mismatch in {few(places)}"),),
        side_effects=loses,
        afterwards="Audit a replica whose copy of these batches is intact. Do not rely on the output of "
        "kafka-transactions.sh: a broker that loaded damaged records lists what they contain. If one flipped bit "
        "explains the checksum, the finding batch-crc-mismatch has both readings",
    )


def _listed(log: LogView, t: Transaction) -> Condition:
    first, producer = t.first_offset, t.producer_id
    return check(
        repairs.describe_producers(log.topic, log.partition),
        f"the output lists producer id {producer} with CurrentTransactionStartOffset {first}",
    )


def _others_in_sync(log: LogView) -> Iterator[Condition]:
    here = {replica.broker_id for replica in log.replicas}
    others = [broker for broker in log.cluster.in_sync.get((log.topic, log.partition), ()) if broker not in here]
    if others:
        names = " and ".join(str(broker) for broker in others)
        yield shown(
            f"no replica of broker {names} has the marker", None, "in the ISR, but not in the input: audit them first"
        )


def _commits(replica: ReplicaFacts, t: Transaction) -> np.ndarray:
    rows = replica.transactions
    closed = rows[(rows["producer_id"] == t.row["producer_id"]) & (rows["first_offset"] == t.row["first_offset"])]
    return closed[(closed["marker_offset"] >= 0) & (closed["commit"] == 1)]


def _confirm(log: LogView, t: Transaction, missing: str, cost: str = ALIVE) -> Advice:
    hangs = check(repairs.find_hanging(log.topic), f"the output lists producer id {t.row['producer_id']} in {log.name}")
    look: tuple[Condition, ...] = (hangs, _listed(log, t))
    if t.transactional_id is not None:
        ended = f"its state is not Ongoing, or its partitions do not include {log.name}"
        look = (*look, check(repairs.describe_id(t.transactional_id), ended))
    condition = shown("no coordinator will complete it", None, missing)
    then = "Do not abort before these commands show that the transaction hangs"
    return Advice(Verdict.INVESTIGATE_FIRST, cost, (condition, *look), afterwards=then)


def _of_coordinator(log: LogView, t: Transaction, entry: StateRecord, gone: bool) -> Advice:
    # An abort by hand would contradict what the coordinator decides or has decided.
    if entry.state in PREPARED:
        return undelivered(log.cluster, log.name, entry)
    loses = GONE if gone else _discards(t)
    if entry.timeout_ms == NO_TIMEOUT_MS:
        return _of_two_phases(t, entry, loses)
    if t.case is Case.ACTIVE:
        # What Flink has pre-committed would be lost.
        lossless = "" if is_flinks(t.origin) else "no records are lost. "
        ends = "The coordinator ends" if lossless else "the coordinator ends"
        return Advice(
            Verdict.WAIT,
            f"{lossless}{ends} the transaction at its timeout at the latest",
            (_in_state(entry.transactional_id, "Ongoing"),),
        )
    return unended(log.cluster, entry, entry.partition, loses)


def _in_state(transactional_id: str, state: str) -> Condition:
    return check(repairs.describe_id(transactional_id), f"its TransactionState is {state}")


def _open_at_its_coordinator(transactional_id: str) -> Condition:
    return shown("the coordinator has it open", True, f"{TRANSACTION_STATE}: {transactional_id}")


def _of_two_phases(t: Transaction, entry: StateRecord, loses: str) -> Advice:
    # Its coordinator never ends a two-phase commit by itself (KIP-939).
    return Advice(
        Verdict.NOTIFY_OWNER,
        "a two-phase commit has no timeout. Only its application knows whether to commit or to abort it",
        (
            _open_at_its_coordinator(entry.transactional_id),
            _in_state(entry.transactional_id, entry.state or "Ongoing"),
        ),
        side_effects=loses,
        afterwards=("" if is_flinks(t.origin) else TWO_PHASES)
        + f"{NOT_BY_HAND}: records that belong to a commit in other systems would be missing here",
    )


def unended(cluster: Cluster, entry: StateRecord, coordinator: int, loses: str) -> Advice:
    """Advise on a transaction that its coordinator has open past its timeout.

    ``entry``: the last record of its id; ``coordinator``: the partition of ``__transaction_state`` that has it;
    ``loses``: what an abort discards.
    """
    transactional_id, history, late = entry.transactional_id, cluster.coordinator, Status.OVERDUE
    if history is not None and may_lack_since(history, coordinator, entry.time):
        return _guided(cluster, entry, late, _decision_lost(loses, [_damaged_coordinator(cluster, coordinator)]))
    name, short = f"{TRANSACTION_STATE}-{coordinator}", ""
    if name in cluster.under_min_isr:  # then its coordinator can neither abort it nor take its client's decision
        short = f"{repairs.in_sync_again(cluster, [name])}: until then the coordinator cannot write a decision. "
    advice = Advice(
        Verdict.INVESTIGATE_FIRST,
        "is the client still running? Aborting kills its transaction; waiting keeps consumers blocked",
        (
            _open_at_its_coordinator(transactional_id),
            _in_state(transactional_id, "Ongoing"),
            check(repairs.describe_topic(TRANSACTION_STATE), f"{name} has a leader"),
        ),
        side_effects=loses,
        afterwards=short + ("" if guidance(cluster.origin(transactional_id), late) else RESTARTED),
    )
    last = f"If it is still open after that, {other_coordinator(cluster, coordinator)}"
    return _guided(cluster, entry, late, _reloaded(cluster, entry, coordinator, advice, last))


def other_coordinator(cluster: Cluster, coordinator: int) -> str:
    """Describe how to let another broker load a partition of ``__transaction_state``, which re-sends markers.

    A copy with a CRC mismatch must not be loaded.
    """
    name = f"{TRANSACTION_STATE}-{coordinator}"
    if _has_damaged_copy(cluster, coordinator):
        return (
            f"make a replica without a CRC mismatch lead {name} (audit the replicas first: a coordinator uses damaged "
            "records as it loads them)"
        )
    if (count := cluster.replicas.get((TRANSACTION_STATE, coordinator))) == 1:
        return f"restart broker {cluster.last_leader(TRANSACTION_STATE, coordinator)}, the only one with {name}"
    moves = "no effect if the preferred replica already leads"
    alone = "" if count else "; without another replica its broker has to start again"
    return f"make another in-sync replica lead {name} (kafka-leader-election.sh, type preferred: {moves}{alone})"


def _has_damaged_copy(cluster: Cluster, coordinator: int) -> bool:
    return cluster.coordinator is not None and coordinator in cluster.coordinator.damaged_copies


def _reloaded(cluster: Cluster, entry: StateRecord, coordinator: int, advice: Advice, last: str) -> Advice:
    # With ``last``, of other_coordinator, behind what the advice says to do. A restart of the only replica's broker
    # comes behind what must be seen to before it.
    as_told = replace(advice, afterwards=f"{advice.afterwards}{last}. {NOT_BY_HAND}")
    if cluster.replicas.get((TRANSACTION_STATE, coordinator), 1) > 1 or _has_damaged_copy(cluster, coordinator):
        return as_told
    stopped = replace(advice, steps=(), afterwards=NOT_BY_HAND)
    leader = cluster.last_leader(TRANSACTION_STATE, coordinator)
    risk = repairs.at_risk(cluster, leader, stopped, but=entry.transactional_id)
    if not risk.steps:
        return replace(risk, steps=advice.steps, afterwards=as_told.afterwards)
    first = (Step(advice.afterwards.removesuffix(". ")),) if advice.afterwards else ()
    return replace(risk, steps=(*advice.steps, *first, *risk.steps, Step(last)))


def undelivered(cluster: Cluster, name: str, entry: StateRecord) -> Advice:
    """Advise on a decided transaction whose marker is not in partition ``name`` yet.

    ``entry``: the last record of its id, with the decision.
    """
    advice = carried_out(cluster, [name], entry)
    decides = shown("the coordinator will write the marker", True, f"its state is {entry.state}")
    state = _in_state(entry.transactional_id, entry.state or "")
    return replace(advice, conditions=(decides, *advice.conditions, state))


def carried_out(cluster: Cluster, lacking: Collection[str], entry: StateRecord) -> Advice:
    """Advise on a decided transaction whose marker is not known to be in the partitions ``lacking``, by name."""
    commit = entry.state == "PrepareCommit"
    advice = Advice(
        Verdict.DO_NOT_ABORT if commit else Verdict.WAIT,
        COMMITTED if commit else "no records are lost. Consumers stay blocked until the marker is written",
        afterwards=NOT_BY_HAND,
    )
    away, short = sorted(cluster.away.intersection(lacking)), sorted(cluster.under_min_isr.keys() & {*lacking})
    if not away and short:
        look = check(repairs.UNDER_MIN_ISR, f"the output lists {few(short)}")
        then = (
            f"{repairs.in_sync_again(cluster, short)}: the coordinator then re-sends the markers by itself. Another "
            f"coordinator does not help before. {advice.afterwards}"
        )
        return _guided(cluster, entry, Status.PREPARED, replace(advice, conditions=(look,), afterwards=then))
    if away:
        looks = [check(repairs.UNAVAILABLE, f"the output lists {few(away)}")]
        first = f"first {repairs.leader_back(cluster, away)}"
    else:
        either = "this command or the other one lists a partition of the transaction"
        looks = [check(command, either) for command in (repairs.UNAVAILABLE, repairs.UNDER_MIN_ISR)]
        first = (
            "restore a leader for offline partitions, without an unclean election, and bring enough replicas of the "
            "others in sync"
        )
    return _sent_again(cluster, entry, replace(advice, conditions=tuple(looks)), first)


def completed_late(cluster: Cluster, entry: StateRecord) -> Advice:
    """Advise on a decided transaction that has all its markers: its coordinator has not written that it is complete."""
    name = f"{TRANSACTION_STATE}-{entry.partition}"
    advice = Advice(
        Verdict.WAIT,
        f"all its markers are written. Consumers are not blocked, only clients of {entry.transactional_id} are",
        (_in_state(entry.transactional_id, entry.state or ""),),
    )
    if name in cluster.under_min_isr:
        listed = check(repairs.UNDER_MIN_ISR, f"the output lists {name}")
        then = f"{repairs.in_sync_again(cluster, [name])}: the coordinator then completes it by itself"
        return _guided(cluster, entry, Status.PREPARED, replace(advice.also(listed), afterwards=then))
    refused = f"the output lists {name}, or its leader logs errors of WriteTxnMarkers requests"
    advice = replace(advice, conditions=(*advice.conditions, check(repairs.UNDER_MIN_ISR, refused)))
    return _sent_again(cluster, entry, advice, f"bring enough replicas of {name} in sync (min.insync.replicas)")


def _sent_again(cluster: Cluster, entry: StateRecord, advice: Advice, first: str) -> Advice:
    again = f"{other_coordinator(cluster, entry.partition)}, so that its markers are re-sent"
    advice = _guided(cluster, entry, Status.PREPARED, replace(advice, afterwards=f"{first}. "))
    return _reloaded(cluster, entry, entry.partition, advice, f"If it is still not complete after that, {again}")


def _abort(log: LogView, t: Transaction, gone: bool) -> Advice:
    committing = t.entry is not None and t.entry.state == "CompleteCommit" and not gone
    records = plural(int(t.row["records"]), "record")
    if gone:
        cost = "its data was already deleted (below the log start)"
    elif committing:
        discarded = f"{records} written after the COMMIT {'is' if int(t.row['records']) == 1 else 'are'} discarded"
        cost = f"notify the owner: {discarded}" + ("" if is_flinks(t.origin) else SEND_AGAIN)
    else:
        cost = f"discards {records} of {_what_it_is(t)}"
    return Advice(
        Verdict.SAFE_TO_ABORT,
        cost,
        (
            shown("no coordinator will complete it", True, _why_nobody(t)),
            shown("no replica in the input has a COMMIT marker for it", True, few(_brokers(log))),
            _listed(log, t),
        ),
        (Step("", repairs.abort(log.topic, log.partition, t.first_offset)),),
        side_effects=GONE if gone else f"read_committed consumers never get {_records(t)}",
        afterwards=_by_producer(log, t),
    )


def _what_it_is(t: Transaction) -> str:
    if t.entry is not None and t.entry.state in ("PrepareAbort", "CompleteAbort"):
        return "an already aborted transaction"
    return "a transaction that no coordinator will complete"


def _why_nobody(t: Transaction) -> str:
    if t.case is not Case.GHOST:
        return t.reason
    return f"{TRANSACTION_STATE} has {'no id with its producer id' if t.entry is None else 'no open transaction of it'}"


def _brokers(log: LogView) -> list[str]:
    return [f"broker {c.broker_id}" if c.broker_id is not None else c.log_dir for c in log.replicas]


def _by_producer(log: LogView, t: Transaction) -> str:
    # Releases before 3.0 take the producer's ids instead. inter.broker.protocol does not prove an old release: it may
    # lag behind.
    if log.cluster.release(log.leader.broker_id).least >= FINDS_BY_OFFSET:
        return ""
    return (
        f"Brokers before 3.0: use --producer-id {t.row['producer_id']} --producer-epoch {t.row['last_epoch']} "
        f"--coordinator-epoch {_least_coordinator_epoch(log, t)} instead of --start-offset, and only if the client is "
        "stopped"
    )


def _least_coordinator_epoch(log: LogView, t: Transaction) -> int:
    # Brokers fence a marker with an older coordinator epoch than the stored one.
    rows, states = log.leader.transactions, log.leader.producers
    epochs = rows["coordinator_epoch"][(rows["producer_id"] == t.row["producer_id"]) & (rows["marker_offset"] >= 0)]
    stored = states["coordinator_epoch"][states["producer_id"] == t.row["producer_id"]]
    return max([0, *map(int, epochs), *map(int, stored)])


def _records(t: Transaction) -> str:
    count, size = plural(int(t.row["records"]), "record"), int(t.row["bytes"])
    return count if size < 0 else f"{count} ({plural(size, 'byte')})"  # text dumps do not show sizes


def _discards(t: Transaction) -> str:
    return f"an abort discards {_records(t)}"


def discards_in(partitions: Collection[str]) -> str:
    """Say what an abort discards of a transaction whose data was not counted, by partition."""
    where = f" in {plural(len(partitions), 'partition')}: {repairs.some(sorted(partitions))}" if partitions else ""
    return f"an abort discards its records{where}"


def data_of(t: np.void) -> str:
    """Name the offsets of a transaction's data in words."""
    first, last = int(t["first_offset"]), int(t["last_offset"])
    return f"offset {first}" if first == last else f"offsets {first}–{last}"


def undecided_marker(
    log: LogView, t: np.void, *, closed: bool, by_hand: bool, still: TransactionWindow | None
) -> Advice:
    """Advise on a marker that no coordinator decided. kafka-transactions.sh writes no COMMIT.

    ``still``: the transaction of this data, if its coordinator has it open.
    """
    if still is not None:
        name, hidden = still.transactional_id, plural(int(t["records"]), "record")
        amends = Step(sent_again(log.cluster.origin(name), data_of(t)))
        why = f"consumers never see {hidden} at {data_of(t)}, even if {name} commits"
        return Advice(Verdict.NOTIFY_OWNER, why, (_in_state(name, "Ongoing"),), (amends,))
    if by_hand:
        return Advice(Verdict.NONE, "an operator aborted it on purpose, and it is not open any more")
    asked = "" if t["commit"] else "Ask who ran kafka-transactions.sh abort at that time. If no one did, "
    how = "visible as committed" if t["commit"] else "hidden from read_committed consumers"
    downstream = f". Its data is {how} without a coordinator's decision: compensate downstream"
    return Advice(
        Verdict.INVESTIGATE_FIRST,
        afterwards=f"{asked}check whether __transaction_state lost records (unclean-election, "
        f"illegal-transition){downstream if closed else ''}",
    )
