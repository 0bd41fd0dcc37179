"""What is safe to do about an open transaction: one judgement for every remedy, the page's card and the alerts.

It goes by the coordinator's state and decision, by where the data still lies, and by the replicas. An abort is offered
only for data that no transaction of its coordinator can claim any more.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from auditor.base.words import plural
from auditor.facts.copy_facts import CopyFacts
from auditor.rules import blocking, commands
from auditor.rules.coordinator_history import Entry
from auditor.rules.named import DECIDING, SKEW_MS, Window
from auditor.rules.open_transactions import OpenTransaction, lost_ends, open_at_coordinator
from auditor.rules.state_records import TOPIC
from auditor.rules.view import LogView
from auditor.rules.windows import owner_complete, unmarked_behind

LOOK = "Nothing is lost by looking."
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
    gone = int(t.row["last_offset"]) < log.leader.own_start
    window = None if gone else committed(log, t)
    unsure = t.missing or ("files may have been copied at different times" if t.in_flight or t.end_unknown else None)
    if window is not None:
        return _restore(log, t, window) if unsure is None else _marker_unseen(log, unsure)
    if unsure is not None:
        return _confirm(log, t, unsure)
    if t.entry is not None and open_at_coordinator(log, t):
        return _of_coordinator(log, t, t.entry, gone)
    if not gone and _may_be_the_committed(log, t):
        return _confirm(log, t, "its id's last transaction ended in COMMIT, and the input does not show if this was it")
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


def _restore(log: LogView, t: OpenTransaction, window: Window) -> Advice:
    decision = window.prepare
    assert decision is not None
    with_marker = [c for c in log.copies if c is not log.leader and _has_commit(c, t)]
    if with_marker:
        broker = with_marker[0].broker_id
        how = (
            f"broker {broker} has the marker. {commands.describe_topic(log.topic)} ; if broker {broker} is in the Isr, "
            f"make it leader of {log.name} (kafka-leader-election.sh), so that the others take it from there"
        )
    else:
        history = log.cluster.coordinator
        epoch = None if history is None else history.leader_epochs.get(decision.partition)
        how = (
            f"no replica in the input has the marker. {_look_elsewhere(log)}Kafka has no tool that writes a COMMIT "
            f"marker. What writes it is a WriteTxnMarkers request (API key 27, needs ClusterAction) to the leader of "
            f"{log.name} with producerId {window.producer_id}, producerEpoch {decision.producer_epoch}, "
            f"coordinatorEpoch {'unknown' if epoch is None else epoch} and transactionResult true "
            "(WriteTxnMarkersRequest of kafka-clients)"
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
        f"to do. {LOOK}",
    )  # fmt: skip


def _look_elsewhere(log: LogView) -> str:
    """Which in-sync replicas were not audited, one of which may have the marker; with a blank behind, or nothing."""
    here = {copy.broker_id for copy in log.copies}
    others = [broker for broker in log.cluster.in_sync.get((log.topic, log.partition), ()) if broker not in here]
    if not others:
        return ""
    names = " and ".join(str(broker) for broker in others)
    return f"Audit the copies of broker {names} first: they are in sync, are not in the input, and may have it. "


def _has_commit(copy: CopyFacts, t: OpenTransaction) -> bool:
    rows = copy.transactions
    mine = rows[(rows["producer_id"] == t.row["producer_id"]) & (rows["first_offset"] == t.row["first_offset"])]
    return bool(((mine["marker_offset"] >= 0) & (mine["commit"] == 1)).any())


def _confirm(log: LogView, t: OpenTransaction, missing: str) -> Advice:
    ask = commands.describe_producers(log.topic, log.partition)
    more = "" if t.owner is None else f" ; {commands.describe_id(t.owner)}"
    return Advice(
        "Confirm before aborting", "ask",
        "It may be alive: an abort then drops records that its client is about to commit.",
        f"{commands.find_hanging(log.topic)} ; {ask}{more} . Abort nothing before they show that it hangs; not known "
        f"here: {missing}. {LOOK}",
    )  # fmt: skip


def _of_coordinator(log: LogView, t: OpenTransaction, entry: Entry, gone: bool) -> Advice:
    """It is open at its coordinator: whoever aborts it by hand contradicts what that will decide, or has decided."""
    describe = commands.describe_id(entry.transactional_id)
    if entry.state in DECIDING:
        away = log.name in blocking.undeliverable(log.cluster, entry)
        return undelivered(log.name, entry.transactional_id, entry.state, entry.partition, away)
    if t.klass == "active":
        return Advice("Wait", "wait", "Nothing is lost: it ends by itself, at its time-out at the latest.",
                      f"Wait: it ends by itself at its time-out. {describe} . {LOOK}")  # fmt: skip
    loses = (
        "nothing here: its data was deleted already" if gone else f"{_records(t)}, which its client has to send again"
    )
    return Advice(
        "Find its client first", "ask",
        "An abort cuts off a client that may still be at work; waiting costs its readers' time.",
        unended(entry.transactional_id, entry.partition, GONE if gone else loses),
    )  # fmt: skip


def unended(transactional_id: str, coordinator: int, loses: str) -> str:
    """The remedy for a transaction that its coordinator has open beyond its time-out. ``coordinator``: the partition of
    ``__transaction_state`` that has it; ``loses``: what is gone then."""
    return (
        f"{commands.describe_id(transactional_id)} ; end or restart its client, which aborts the transaction when it "
        f"starts. If that does not end it, look who leads {TOPIC}-{coordinator}: {commands.describe_topic(TOPIC)} ; "
        f"and move its leadership to another replica. Do not abort it by hand. When it is aborted it loses {loses}"
    )


def undelivered(name: str, transactional_id: str, state: str, coordinator: int, away: bool) -> Advice:
    """A decided transaction whose marker is not in partition ``name`` yet. ``coordinator``: the partition of
    ``__transaction_state`` that has it; ``away``: nobody leads ``name``."""
    commit = state == "PrepareCommit"
    first = f"bring a leader of {name} back" if away else "look for its partitions without a leader"
    return Advice(
        "Do not abort" if commit else "Let the coordinator finish", "stop" if commit else "wait",
        "COMMIT was decided: an abort would drop records that the client was sure of." if commit
        else "Nothing is lost by it; consumers wait until its marker is written.",
        f"Do not abort: its coordinator has decided ({state}) and will write the marker. First {first}: "
        f"{commands.unavailable()} ; {commands.describe_id(transactional_id)} ; if it does not go on then, move "
        f"leadership of {TOPIC}-{coordinator}, so that its markers are sent again. {LOOK}",
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
    confirm = commands.describe_producers(log.topic, log.partition)
    command = commands.abort(log.topic, log.partition, int(t.row["first_offset"]))
    return Advice(
        "Abort it, and tell its owner" if committing else "Safe to abort", "act", cost,
        f"Confirm: {confirm} ; then: {command} . It loses " + ("nothing" if gone else _records(t)),
    )  # fmt: skip


def _records(t: OpenTransaction) -> str:
    return f"{plural(int(t.row['records']), 'record')} ({int(t.row['bytes']):,} bytes)"


def refetch(log: LogView, copy: CopyFacts, holder: CopyFacts | None = None) -> str:
    """Fetching a replica again, where another one is known to have the data; else how to keep what there is.

    ``holder``: a copy in the input that is known to have what this one lacks.
    """
    in_sync = [b for b in log.cluster.in_sync.get((log.topic, log.partition), ()) if b != copy.broker_id]
    brokers = in_sync if holder is None else [holder.broker_id]
    if not brokers:
        return (
            f"Do not move or delete {copy.folder}: no other replica is known to have its data. Copy it to a safe place "
            f"before broker {copy.broker_id} is restarted; {commands.describe_topic(log.topic)} shows if there is "
            "another in-sync replica; without one, what can be saved are the records before and behind, read by "
            "consumers that seek there. Moving the folder away would lose all of it"
        )
    names = " or ".join(str(b) for b in brokers)
    return (
        f"check that broker {names} is in the Isr: {commands.describe_topic(log.topic)} ; then stop broker "
        f"{copy.broker_id}, move {copy.folder} away and keep it, start it: the replica is fetched again. It loses what "
        f"only broker {copy.broker_id} has"
    )


def rebuild(copy: CopyFacts, *files: str) -> str:
    """Letting a broker write a segment's indexes anew. A missing .index makes the start recover the segment, and that
    cuts it at the first batch that is broken (Kafka's LogLoader, LogSegment.recover)."""
    return (
        f"Only where no broken batch is reported in this segment, since the start would cut it there: stop broker "
        f"{copy.broker_id}, move {' and '.join(files)} away and keep them, start it: both are written anew from the "
        "log. It loses no record then"
    )


def rescue(log: LogView, copy: CopyFacts, offset: int) -> str:
    """Keeping what only one copy still has, from an offset on, before its broker follows another lineage and cuts it.

    Nothing in it moves or deletes what the only copy is of: the folder is copied, and only read.
    """
    return (
        f"Keep {copy.folder} of broker {copy.broker_id} before that broker starts (it cuts the log at offset {offset} "
        f"then): copy the folder to a safe place, read the copy with kafka-dump-log.sh --print-data-log --files, and "
        f"produce again what is missed; set unclean.leader.election.enable=false for {log.topic}. {LOOK}"
    )
