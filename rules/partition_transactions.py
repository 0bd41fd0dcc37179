"""Rules on transactions as a partition shows them: open, closed, merged."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from auditor.base.advice import Advice
from auditor.base.errors import SEQUENCES
from auditor.base.evidence_keys import LoneMarkersEvidence, read
from auditor.base.words import NO_TIMEOUT_MS, duration, plural
from auditor.evidence.cluster_clocks import by_a_client, is_after, is_read_after
from auditor.evidence.horizons import LEADERS_LOG, Missing, both_intact, whole_from
from auditor.facts.coordinator_history import TransactionWindow, transactions
from auditor.facts.coordinator_log import PREPARE_ABORT, CoordinatorLog, StateRecord, tally
from auditor.facts.events import AFTER_UNREADABLE, Event, EventKind
from auditor.rules.catalogue.registry import rule
from auditor.rules.markers import defect_in_words, of_the_defect, until_it_is_fixed
from auditor.rules.producer_sequences import behind_another_number, certainty
from auditor.rules.resolution.finding_limits import Unmade, made
from auditor.rules.resolution.resolve import by_cause, count
from auditor.rules.seen.cluster_view import TRANSACTION_STATE
from auditor.rules.seen.view import Finding, LogView, iso, once
from auditor.rules.transactions import blocking
from auditor.rules.transactions.making import dated, lost_ends, open_transactions, recorded, unreadable_behind
from auditor.transactions.matching import (
    Matching,
    begins_inside,
    marker_window,
    matching,
    other_clock,
    owner_complete,
    window_after,
)
from auditor.transactions.record import ITS_COORDINATORS, NOBODYS, BlockedState, Case, Transaction

# Open transactions at the end of a partition.


# Nobody knows it only where the coordinator's log was read whole.
UNOWNED, UNREAD = "a transactional id that nobody knows", "a transactional id that the input does not show"


def who(t: Transaction) -> str:
    """Describe the producer."""
    tid = t.transactional_id
    name = f"transactional id {tid}" if tid is not None else UNOWNED if t.case is Case.ORPHAN else UNREAD
    return f"producer {t.producer_id} (epoch {t.producer_epoch}, {name})"


def _open_finding(log: LogView, severity: str, t: Transaction, message: str, **more: Any) -> Finding:
    evidence, began = {**t.evidence(), **more.pop("evidence", {})}, dated(log, t)
    if began["since_by_producer"] is not None:  # the finding's own time is the producer's, which the brokers contradict
        evidence |= began
    return log.finding(severity, message, data=t.row, transactional_id=t.transactional_id, evidence=evidence, **more)


@rule(
    "hanging-transaction",
    when={
        "info": "while it may be in flight",
        "error": "where it may be, and is beyond its time-out by this log's own times",
    },
)
def hanging_transaction(log: LogView) -> Iterator[Finding]:
    """A transaction is open in a partition and no coordinator will ever decide it

    Checks: a transaction open at the end of the leader replica whose transactional id, by its last record in
    __transaction_state, has nothing open any more, or has a higher epoch or another producer id, or has an ongoing
    transaction without this partition; or whose producer id no transactional id ever had.
    Where the coordinator completed it while __cluster_metadata shows no leader of the partition, the finding names the
    defect of Kafka 4.3.0, 4.3.1 and 4.4.0 that does so (KAFKA-20734).
    Why it matters: the last stable offset stays at its first offset. Consumers with isolation.level=read_committed
    stop there, the cleaner too, until somebody writes a marker.
    Can be wrong: files copied from a running broker at different times (then the finding says that it may be in
    flight; broker-written times behind it in this log show all the same for how long it has been open at least).
    What to do: what the finding says: confirm with kafka-transactions.sh describe-producers, then kafka-transactions.sh
    abort --start-offset; never where COMMIT was decided: an in-sync replica that has the marker, and lacks nothing,
    may lead, else the marker has to be written again. While the id has a transaction open with the epoch of this data,
    write neither: wait until it ends, then audit again.
    If the id may be Flink's (PREFIX-SUBTASK-CHECKPOINT): restoring the job from a checkpoint or savepoint commits the
    transactions which it holds and aborts the others.
    Source: KIP-360 (dangling transactions), KIP-447, KIP-664
    """
    yield from made(log, (_looks_abandoned(log, t) for t in open_transactions(log) if t.case in NOBODYS))


def _looks_abandoned(log: LogView, t: Transaction) -> Unmade:
    if t.by_stamps:
        severity = t.severity or "info"
        return Unmade(severity, t.first_offset, partial(_hanging, log, t, severity, t.confidence), t.confidence)
    return Unmade("critical", t.first_offset, partial(_hanging, log, t, "critical", None), doubt=t.in_flight)


def _hanging(log: LogView, t: Transaction, severity: str, by_stamps: str | None) -> Finding:
    offset, held_back = t.first_offset, max(0, log.readable_end - t.first_offset)
    message = (
        f"The transaction of {who(t)} has been open in {log.name} since offset {offset} and will not end by "
        f"itself: {t.reason}; read_committed consumers of this partition stop there, "
        f"{plural(held_back, 'offset')} before its end"
    )
    copied, held = "the files may have been copied at different times", duration(t.held.at_least_ms)
    if log.may_be_removed:
        copied = f"another topic {log.topic} is newer: this one may have been removed"
    if by_stamps:
        message = (
            f"The transaction of {who(t)} has been open in {log.name} since offset {offset} for {held} by the "
            f"broker-written times behind it there, and looks abandoned ({t.reason}; {copied})"
        )
    elif t.in_flight:
        message = (
            f"The transaction of {who(t)} looks abandoned in {log.name} at offset {offset} ({t.reason}), but {copied}"
        )
    committed = blocking.committed(log, t)
    skipped = None if t.in_flight else of_the_defect(log, lost_ends(log, t.row))
    return _open_finding(
        log,
        severity,
        t,
        message + (f". {defect_in_words(log)}" if skipped else ""),
        doubt=t.in_flight and not by_stamps,
        evidence={
            "confidence": by_stamps,
            "held_back_offsets": held_back,
            "decided": "COMMIT" if committed is not None and committed.end_time is not None else None,
            **(skipped or {}),
        },
        advice=until_it_is_fixed(blocking.advise(log, t)) if skipped else blocking.advise(log, t),
    )


@rule(
    "long-open-transaction",
    when={
        "error": "beyond its time-out by 30 s",
        "critical": "beyond 1 h",
        "warning": "in text that does not show markers",
        "info": "when it is young, or nothing shows its age",
    },
)
def long_open_transaction(log: LogView) -> Iterator[Finding]:
    """A transaction has been open longer than its time-out allows

    Checks: a transaction open at the end of the leader replica for longer than its time-out and the margin (15 minutes
    where no coordinator record shows a time-out), and not proved to hang. In text that does not show markers, a warning
    after a longer time.
    Can be wrong: CreateTime stamps; a large transaction.max.timeout.ms; the copy is older than --as-of. Nothing is said
    of what may have ended after this log and its coordinator's were copied, as timeout-not-enforced says.
    What to do: kafka-transactions.sh --bootstrap-server B find-hanging --topic T, then describe the transactional id.
    Abort nothing before they show that it hangs.
    If the id may be Flink's (PREFIX-SUBTASK-CHECKPOINT): restoring the job from a checkpoint or savepoint commits the
    transactions which it holds and aborts the others.
    Source: KIP-360, KIP-664
    """
    yield from made(log, _long_open(log))


def _long_open(log: LogView) -> Iterator[Unmade]:
    for t in open_transactions(log):
        overdue = t.by_stamps if t.case is Case.ACTIVE else t.overdue
        if t.case in ITS_COORDINATORS and not overdue:
            continue
        if t.case in ITS_COORDINATORS or t.case is Case.UNDECIDABLE:
            severity = t.severity or "info"
            yield Unmade(severity, t.first_offset, partial(_long_open_finding, log, t, severity), t.confidence)


def _long_open_finding(log: LogView, t: Transaction, severity: str) -> Finding:
    dated = t.age_ms > 0 or log.cluster.clock_given  # else the newest time is that of the transaction itself
    how_long = f"for {duration(t.age_ms)}" if dated else "for a time that nothing in the input shows"
    if t.by_stamps:
        how_long = f"for {duration(t.held.at_least_ms)} by the broker-written times behind it there"
    return _open_finding(
        log,
        severity,
        t,
        f"The transaction of {who(t)} has been open in {log.name} since offset {t.first_offset} {how_long}: {t.reason}",
        if_true=t.if_true,
        evidence={"confidence": t.confidence},
        advice=blocking.advise(log, t),
    )


@rule(
    "lso-stuck",
    when={
        "critical": "beyond 1 h",
        "warning": "beyond 1 h within its time-out",
        "info": "where it may have ended",
    },
)
def lso_stuck(log: LogView) -> Iterator[Finding]:
    """The last stable offset does not move

    Checks: the transaction at the last stable offset is open for longer than its time-out (15 minutes where none is
    known) and half a minute, or for more than an hour: within a time-out that its coordinator knows that is a warning,
    which says when it ends; one of a two-phase commit has no end. However many records wait is no finding.
    Can be wrong: a prepared transaction (two-phase commit) that its transaction manager is about to decide. Nothing is
    said of what may have ended after this log and its coordinator's were copied, but of a two-phase commit as an info.
    What to do: resolve the transaction that the evidence names; one of two-phase commit by its transaction manager.
    Source: KIP-447, KIP-939
    """
    for t in open_transactions(log)[:1]:
        if t.is_unknown and not (t.in_flight or t.timeout_ms == NO_TIMEOUT_MS):
            continue  # the rule on its class says it
        severity = t.if_true if t.is_unknown else t.severity
        if severity is not None and t.is_old:
            yield _stuck_at(log, t, severity)


def _stuck_at(log: LogView, t: Transaction, severity: str) -> Finding:
    held_back, waits = max(0, log.readable_end - t.lso), t.standing is BlockedState.WAITING
    ends = iso(t.entry.start + t.timeout_ms) if waits and t.entry is not None and t.entry.start >= 0 else None
    timeout = f" of {duration(t.timeout_ms)}" + (f", at {ends} at the latest" if ends else "")
    return _open_finding(
        log,
        severity,
        t,
        f"The last stable offset of {log.name} stands at {t.lso}, {plural(held_back, 'offset')} behind, held by "
        f"{who(t)} for {duration(t.age_ms)}" + (f"; it ends with its time-out{timeout}" if waits else ""),
        doubt=t.is_unknown,
        evidence={
            "last_stable_offset": t.lso,
            "high_watermark": log.high_watermark,
            "held_back_offsets": held_back,
            "ends_at_the_latest": ends,
        },
        advice=blocking.advise(log, t),
    )


@rule(
    "transaction-pinned-at-log-start",
    when={
        "critical": "beyond 1 h, or where nobody will end it",
        "warning": "beyond 1 h within its time-out",
        "info": "while its coordinator will end it, or nothing shows its age",
    },
)
def transaction_pinned_at_log_start(log: LogView) -> Iterator[Finding]:
    """An open transaction begins below the log start

    Checks: a transaction is open at the end of the leader replica, or in its newest producer snapshot, with a first
    offset below the log start offset.
    Why it matters: its data was deleted, its state was not: the last stable offset is pinned to the log start, and
    nothing in the log shows why.
    Can be wrong: the marker had not been copied yet; while the coordinator has it open, within its time-out, it will
    end by itself (then info).
    What to do: what the finding says: where its coordinator has nothing open, abort it with the start offset that
    describe-producers shows; never one that the coordinator has open, or has decided to commit.
    Source: KIP-360
    """
    pinned = (t for t in open_transactions(log) if t.first_offset < log.leader.own_start)
    yield from made(log, (_pinned(log, t) for t in pinned))


def _pinned(log: LogView, t: Transaction) -> Unmade:
    doubt = t.in_flight and not t.by_stamps
    severity = (t.if_true if doubt else t.severity) or "info"
    confidence = "undecidable" if t.missing else "proved"
    make = partial(_pinned_finding, log, t, severity, confidence, doubt)
    return Unmade(severity, t.first_offset, make, confidence, doubt)


def _pinned_finding(log: LogView, t: Transaction, severity: str, confidence: str, doubt: bool) -> Finding:
    return _open_finding(
        log,
        severity,
        t,
        f"The transaction of {who(t)} began at offset {t.first_offset}, below the log start "
        f"{log.leader.own_start} of {log.name}, and is still open: the last stable offset is pinned",
        doubt=doubt,
        **({} if doubt else {"if_true": t.if_true}),
        evidence={"log_start": log.leader.own_start, "confidence": confidence},
        advice=blocking.advise(log, t),
    )


# Transactions closed by markers, and data written after its marker.


NO_DATA = "closed nothing that is left: a cleaner may have taken it"


def judged_transactions(log: LogView) -> np.ndarray:
    """Return the leader replica's transactions (TRANSACTION rows) except those that ended below the log start."""
    rows = log.leader.transactions
    return rows[(rows["marker_offset"] < 0) | (rows["marker_offset"] >= log.leader.log_start)]


def ended_with_another(t: np.void) -> str:
    """Return the outcome of data that another transaction's marker closed.

    Its own transaction is that of the previous marker; where that is unknown, it was not committed.
    """
    committed, now = bool(t["prev_marker_offset"] >= 0 and t["prev_marker_commit"]), bool(t["commit"])
    return "none" if committed == now else "exposed" if now else "hidden"


def _foreign(t: np.void) -> list[int]:
    # Offsets of what another transaction's marker closed, without its own data where that has a higher epoch.
    return [t["first_offset"], t["risen_behind"] if t["risen_offset"] >= 0 else t["last_offset"]]


def _is_late(log: LogView, t: np.void) -> tuple[bool, str]:
    # With the reason.
    if t["prev_marker_offset"] < log.leader.log_start or t["prev_marker_epoch"] < 0:
        return False, ""
    if t["prev_marker_epoch"] > t["producer_epoch"]:
        return True, f"the marker at {t['prev_marker_offset']} had raised the epoch to {t['prev_marker_epoch']}"
    if t["prev_marker_epoch"] < t["producer_epoch"] or not owner_complete(log, t["producer_id"]):
        return False, ""
    if begins_inside(log) and matching(log, int(t["producer_id"])).number(int(t["prev_marker_offset"])) is None:
        return False, ""  # whose marker that is may lie where nobody looked
    last = log.last_entry(t["producer_id"])
    coordinators = range(log.cluster.partition_counts["__transaction_state"]) if last is None else (last.partition,)
    if window_after(log, t) is not None or not all(recorded(log, p, t) for p in coordinators):
        return False, ""
    return True, f"no record of the coordinator allows data after the marker at {t['prev_marker_offset']}"


@rule(
    "late-write-after-marker",
    when={
        "critical": "where it hangs, or a later transaction's marker took it in",
        "error": "where a marker closed it, or this copy ends before",
        "info": "once an operator closed it, or where that could not be read",
        "blocked": "where no marker closed it",
        "exposed": "where its transaction was aborted and it was committed",
        "hidden": "where its transaction was committed and it was aborted",
        "none": "where it ended like its transaction",
    },
)
def late_write_after_marker(log: LogView) -> Iterator[Finding]:
    """Data arrived after the marker that had closed its transaction

    Checks: transactional data of an epoch after the marker that closed that epoch: under transaction.version 2 a marker
    of the next epoch; before, a marker of the same or a higher epoch with no record of the coordinator that lets the
    producer write to the partition again.
    Why it matters: such data opens a transaction that nobody will close, or is swept up by the next one's marker.
    Can be wrong: before transaction.version 2 the next transaction looks alike, so nothing is said without the whole
    history of the id.
    What to do: while it is open, do what hanging-transaction says of it: not all of it may be aborted; list its records
    (offsets in the evidence), and compensate downstream.
    Source: KIP-360, KIP-890
    """
    for t in judged_transactions(log):
        if t["first_offset"] < log.leader.log_start:
            continue
        late, why = _is_late(log, t)
        if not late:
            continue
        severity, fate = _fate(log, t)
        offset = int(t["first_offset"])
        yield log.finding(
            severity,
            f"Producer {t['producer_id']} (epoch {t['producer_epoch']}) wrote to {log.name} at offset {offset} after "
            f"its transaction was over: {why}; {fate}",
            data=t,
            outcome="blocked" if t["marker_offset"] < 0 else ended_with_another(t),
            evidence={
                "previous_marker_offset": t["prev_marker_offset"],
                "previous_marker_epoch": t["prev_marker_epoch"],
                "previous_marker_time": iso(int(t["prev_marker_time"])),
                "closed_by_marker_at": t["marker_offset"] if t["marker_offset"] >= 0 else None,
                "ranges": [_foreign(t)],
                "records": t["records"],
            },
            advice=_what_to_do(log, offset) if severity == "critical" and fate == HANGS else None,
        )


HANGS = "it is still open"


def _what_to_do(log: LogView, offset: int) -> Advice | None:
    opened = (t for t in open_transactions(log) if int(t.row["first_offset"]) == offset)
    return next((blocking.advise(log, t) for t in opened), None)


def _fate(log: LogView, t: np.void) -> tuple[str, str]:
    if t["marker_offset"] < 0:
        unread = unreadable_behind(log, t)
        if log.leader.ends_early and not unread:
            return "error", "what became of it lies beyond the end of this copy"
        return ("info", "what became of it could not be read") if unread else ("critical", HANGS)
    if marker_window(log, t) is not None:
        return "critical", f"the marker at {t['marker_offset']} of a later transaction took it in"
    if not t["commit"] and owner_complete(log, t["producer_id"]):
        return "info", f"the ABORT at {t['marker_offset']}, outside every transaction (an operator's), closed it"
    return "error", f"the marker at {t['marker_offset']} closed it"


@rule(
    "committed-transaction-hole",
    when={
        "info": "where its leader may have cleaned",
        "at_risk": "where a segment file may not have been copied",
    },
)
def committed_transaction_hole(log: LogView) -> Iterator[Finding]:
    """A committed transaction lacks records

    Checks: among the batches of one committed transaction in a partition, in a region never cleaned or with nothing but
    markers between, the producer's sequences do not continue.
    Why it matters: consumers read part of an atomic unit as if it were whole.
    Can be wrong: cleaning (then nothing is said). A batch that goes on as if the one before it had the sequence that
    was expected is no hole: that one's number is wrong (duplicate-sequence-range, sequence-reset-same-epoch).
    What to do: reprocess the input of the transaction, which writes the records that are there a second time; check
    acks and unclean elections.
    Source: UnknownProducerId and OutOfOrderSequence page of Kafka's wiki, KIP-360
    """
    gaps: dict[int, list[Event]] = {}
    for e in log.events(EventKind.SEQUENCE_GAP):
        if both_intact(log, e) and not e["context"] & AFTER_UNREADABLE and not behind_another_number(log, e):
            gaps.setdefault(int(e["producer_id"]), []).append(e)
    rows = judged_transactions(log)
    if not gaps or not len(rows):
        return
    for t in rows[(rows["gap_offset"] >= 0) & (rows["commit"] == 1) & (rows["marker_offset"] >= 0)]:
        producer_gaps = gaps.get(int(t["producer_id"]), [])
        index = bisect.bisect_left(producer_gaps, t["gap_offset"], key=lambda e: e["base_offset"])
        if index == len(producer_gaps) or producer_gaps[index]["base_offset"] > t["last_offset"]:
            continue
        e, sure = producer_gaps[index], certainty(log, producer_gaps[index])
        yield log.at_event(
            "info" if sure.get("missing") == LEADERS_LOG else "critical",
            f"The committed transaction of producer {t['producer_id']} in {log.name} (offsets {t['first_offset']} to "
            f"{t['last_offset']}) lacks records before offset {e['base_offset']}",
            e,
            if_true="critical" if sure.get("missing") == LEADERS_LOG else None,
            outcome="at_risk" if sure["confidence"] == Missing.UNDECIDABLE else "lost",
            evidence={
                "expected": e["expected_sequence"],
                "found": e["found_sequence"],
                "missing_records": (e["found_sequence"] - e["expected_sequence"]) % SEQUENCES,
                "ranges": [],
                "previous_last_offset": e["previous_last_offset"],
                "transaction_first_offset": t["first_offset"],
                "transaction_last_offset": t["last_offset"],
                "marker_offset": t["marker_offset"],
                "records": t["records"],
                **sure,
            },
        )


def _of_one_cleaner(f: Finding) -> Hashable:
    return (f.topic, f.partition) if read(LoneMarkersEvidence, f.evidence).get("cleaned") else None


def _all_cleaned(findings: Sequence[Finding]) -> str:
    many = plural(sum(read(LoneMarkersEvidence, f.evidence)["closed_nothing"] for f in findings), "marker")
    return f"{many} of {count(findings)} producers in {findings[0].topic}-{findings[0].partition} {NO_DATA}"


@rule(
    "marker-without-transaction",
    when={"warning": "when it is a producer's habit"},
    together=by_cause(_of_one_cleaner, _all_cleaned),
)
def marker_without_transaction(log: LogView) -> Iterator[Finding]:
    """A marker closed nothing

    Checks: an end marker of a producer that has no transaction open in the partition; more than a tenth of at least a
    hundred markers of one producer, repeats aside, is a habit.
    Why it matters: mostly harmless: a retried marker, a coordinator that moved, a partition that a client added to its
    transaction and never wrote to.
    Can be wrong: the data lay below the log start or was cleaned away (said once a log, where a cleaner was).
    What to do: nothing; when frequent, find the client that adds partitions which it does not write.
    Source: KIP-98
    """
    rows = judged_transactions(log)
    if not len(rows):
        return
    lone = rows[(rows["first_offset"] < 0) & (rows["marker_offset"] >= 0)]
    markers = Counter(rows["producer_id"][rows["marker_offset"] >= 0].tolist())
    for producer_id in dict.fromkeys(lone["producer_id"].tolist()):
        empty = lone[lone["producer_id"] == producer_id]
        counted = empty[(empty["repeated"] == 0) & (empty["marker_offset"] >= whole_from(log))]
        habit = markers[producer_id] >= 100 and len(counted) * 10 > markers[producer_id]
        yield _lone_markers(log, empty, habit, markers[producer_id])


def _lone_markers(log: LogView, lone: np.ndarray, habit: bool, markers: int) -> Finding:
    first, last = lone[0], lone[-1]
    many = f"{len(lone)} markers" if len(lone) > 1 else f"The {'COMMIT' if first['commit'] else 'ABORT'} marker"
    cleaned = not habit and int(first["marker_offset"]) < whole_from(log)
    return log.finding(
        "warning" if habit else "info",
        f"{many} of producer {first['producer_id']} in {log.name} {NO_DATA if cleaned else 'closed nothing'}"
        + (": it keeps adding partitions that it does not write" if habit else ""),
        marker=first,
        last_offset=last["marker_offset"],
        evidence={"markers": markers, "closed_nothing": len(lone), "repeats": int(np.sum(lone["repeated"]))}
        | ({"cleaned": True} if cleaned else {}),
    )


@rule("transaction-abort-rate")
def transaction_abort_rate(log: LogView) -> Iterator[Finding]:
    """Many transactions of one id are aborted

    Checks: of at least twenty decided transactions of one transactional id a fifth or more were aborted, or a
    twentieth or more by the coordinator itself (time-outs, fencing).
    Why it matters: every abort is work done twice; aborts by the coordinator mean time-outs or instances that fence
    each other.
    Can be wrong: chaos tests.
    What to do: read the aborting application's log; for the coordinator's aborts raise transaction.timeout.ms or
    commit more often.
    Source: KIP-447
    """
    history = log.cluster.coordinator
    if log.topic != "__transaction_state" or history is None:
        return
    for ids, counts in history.whole_ids(log.partition):
        decided, aborted, forced = decisions(ids)
        often = (decided >= 20) & ((aborted * 5 >= decided) | (forced * 20 >= decided))
        for number in np.flatnonzero(counts & often).tolist():
            yield _aborted_often(log, ids, number, int(decided[number]), int(aborted[number]), int(forced[number]))


def decisions(state_log: CoordinatorLog) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Count per id the decided transactions, the aborted ones, and those aborted by the coordinator.

    A decision followed by another record of its transaction failed to append and is not counted.
    """
    decided, aborted, forced = (np.zeros(state_log.id_count, np.int64) for _ in range(3))
    for columns in state_log.all_pieces():
        piece = transactions(columns, state_log.damaged)
        ids, prepare = columns["id"][piece.starts], piece.ends.prepare
        abort = (prepare >= 0) & (columns["state"][prepare] == PREPARE_ABORT)
        tally(decided, ids[prepare >= 0])
        tally(aborted, ids[abort])
        tally(forced, ids[piece.forced])
    return decided, aborted, forced


def _aborted_often(
    log: LogView, state_log: CoordinatorLog, number: int, decided: int, aborted: int, forced: int
) -> Finding:
    first, last = next(state_log.entries_of(number)), state_log.last(number)
    return log.finding(
        "warning",
        f"{aborted} of {decided} transactions of {last.transactional_id} were aborted, {forced} by the coordinator",
        offset=first.offset,
        last_offset=last.offset,
        producer_id=last.producer_id,
        producer_epoch=last.producer_epoch,
        transactional_id=last.transactional_id,
        time_ms=last.time,
        file=last.file,
        evidence={"decided": decided, "aborted": aborted, "by_coordinator": forced},
    )


# Data of one transaction under the marker of the next.


COMPARED = 64  # markers by which two clocks are compared
ENOUGH = 3  # transactions that show how a producer usually begins
FAR_FROM_USUAL = 5  # times as long as any other time


@dataclass(frozen=True, slots=True)
class Merged:
    """Data written ``lead_ms`` before its marker's transaction had the partition, and the evidence.

    ``began``: when it was written, ms, by the coordinator broker's clock where both clocks could be compared.
    """

    began: int
    lead_ms: int
    severity: str
    confidence: str
    known_by: str


@rule(
    "transactions-merged-under-one-marker",
    when={
        "warning": "where no broker's clock decides, if the producer never began like that",
        "info": "else",
        "exposed": "where its transaction was aborted and it was committed",
        "hidden": "where its transaction was committed and it was aborted",
        "none": "where it ended like its transaction",
    },
)
def transactions_merged_under_one_marker(log: LogView) -> Iterator[Finding]:
    """One marker closed the data of two transactions

    Checks: the data between two markers of a producer begins before the coordinator's transaction whose marker closes
    it had this partition, with no other transaction of the id to belong to. Proved where brokers' clocks say when it
    came: its own stamp (LogAppendTime), or a marker of any producer right behind it; these are compared with the
    coordinator's record as one clock if the same broker wrote both (1 s is allowed for), else by how far the two are
    apart, which the markers show that lie between the coordinator's decisions and completions. By clients' stamps
    alone it is likely: critical from 30 s on; below that a warning if the producer never began like that before. A
    batch is no older than the times before it in the log, as after an outage, when clients send what they stamped
    before it.
    Why it matters: the first part was committed or aborted together with data it has nothing to do with: atomicity is
    broken, and nothing else shows it.
    Can be wrong: where it is called likely: a client stamps records before it asks its coordinator for the partition,
    and may have to wait for it (a coordinator that moves). Producers that stamp records with old times are left out.
    What to do: list the records of the foreign part (offsets in the evidence) and compensate downstream.
    Source: KIP-360, KIP-890
    """
    for t in judged_transactions(log):
        if t["first_offset"] < log.leader.log_start or t["marker_offset"] < 0:
            continue
        matched = matching(log, int(t["producer_id"]))
        number = matched.number(int(t["marker_offset"]))
        window = None if number is None else matched.window(number)
        added = window.added if window is not None else None
        if number is None or window is None or added is None or window.client_version >= 2:
            continue
        if not _whole(log, matched, number) or _marker_is_missing(matched, t, number):
            continue
        merged = _by_brokers(log, t, added) or _by_stamps(log, t, added)
        if merged is not None:
            yield _finding(log, t, window, added, merged)


def _finding(log: LogView, t: np.void, window: TransactionWindow, added: StateRecord, merged: Merged) -> Finding:
    return log.finding(
        merged.severity,
        f"The marker at offset {t['marker_offset']} {'closed' if merged.confidence == 'proved' else 'seems to close'} "
        f"data of producer {t['producer_id']} that began at offset {t['first_offset']}, {duration(merged.lead_ms)} "
        f"before its transaction had {log.name}",
        data=t,
        transactional_id=window.transactional_id,
        outcome=ended_with_another(t),
        evidence={
            "marker_offset": t["marker_offset"],
            "ranges": [_foreign(t)],
            "partition_added": iso(added.time),
            "data_began": iso(merged.began),
            "coordinator_offset": added.offset,
            "known_by": merged.known_by,
            "confidence": merged.confidence,
        },
    )


def _marker_is_missing(matched: Matching, t: np.void, number: int) -> bool:
    # The data may be of a transaction in between whose marker is lost or unreadable.
    before = matched.number(int(t["prev_marker_offset"]))
    return bool(np.any((matched.unmarked > (-1 if before is None else before)) & (matched.unmarked < number)))


def _whole(log: LogView, matched: Matching, number: int) -> bool:
    if owner_complete(log, int(matched.windows["producer_id"][number])):
        return True
    history = log.cluster.coordinator
    before = matched.window(number - 1).complete if number else None
    return history is not None and before is not None and history.intact(before)


# Evidence by broker clocks


def _by_brokers(log: LogView, t: np.void, added: StateRecord) -> Merged | None:
    # Proved: a broker's clock was read after the first batch and before the coordinator added the partition.
    came, known_by = _came_by(log, t)
    if came < 0:
        return None
    leader = log.cluster.writer(log.topic, log.partition)
    came += int(log.cluster.clocks.fell_ms(np.array([came]), leader)[0])  # perhaps between the record and the batch
    if _one_clock(log, t, added) and is_after(added.time, came, one_clock=True):
        return Merged(came, added.time - came, "critical", "proved", f"{known_by}, and it is the coordinator's")
    ahead = _ahead_at_least(log, t, added)
    if ahead is not None and is_read_after(added.time, came - ahead):
        began = came - ahead
        why = f"{known_by}, compared with the coordinator's by the markers that it decided"
        return Merged(began, added.time - began, "critical", "proved", why)
    return None


def _one_clock(log: LogView, t: np.void, added: StateRecord) -> bool:
    # By the metadata, otherwise by the brokers of the files.
    cluster = log.cluster
    if not cluster.has_metadata:
        return not other_clock(log, added.partition)
    leader = cluster.led(log.topic, log.partition, int(t["first_leader_epoch"]))
    return leader is not None and leader == cluster.led(TRANSACTION_STATE, added.partition, added.leader_epoch)


def _came_by(log: LogView, t: np.void) -> tuple[int, str]:
    # By the leader's clock at the latest, ms; -1 where it wrote no time.
    if t["first_append_time"] == 1:
        return int(t["first_time"]), "the broker stamped the first batch"
    if t["first_leader_epoch"] != t["last_leader_epoch"]:
        return -1, ""
    markers = _all_markers(log)
    next_one = int(np.searchsorted(markers["marker_offset"], t["first_offset"]))
    if next_one >= len(markers) or markers["marker_offset"][next_one] > t["last_offset"]:
        return -1, ""
    behind = markers[next_one]
    return int(behind["marker_timestamp"]), f"the broker wrote the marker at {behind['marker_offset']} behind it"


@once
def _all_markers(log: LogView) -> np.ndarray:
    rows = log.leader.transactions
    closed = rows[rows["marker_offset"] >= 0]
    return closed[np.argsort(closed["marker_offset"], kind="stable")]


def _ahead_at_least(log: LogView, t: np.void, added: StateRecord) -> int | None:
    # A marker is written after its Prepare record's time and before its Complete record's. The match is only certain if
    # every marker of the producer has its transaction and every transaction its marker.
    matched = matching(log, int(t["producer_id"]))
    if len(matched.unmarked) or np.any(matched.numbers < 0):
        return None
    least: list[int] = []
    for row in _markers_near(log, t):
        window = matched.window(matched.number(int(row["marker_offset"])) or 0)
        prepare, end = window.prepare, window.end_time
        if prepare is not None and end is not None and prepare.leader_epoch == added.leader_epoch:
            least.append(int(row["marker_timestamp"]) - end)
    return max(least, default=None)


def _markers_near(log: LogView, t: np.void) -> np.ndarray:
    markers = _all_markers(log)
    near = markers[(markers["producer_id"] == t["producer_id"]) & (markers["marker_offset"] <= t["marker_offset"])]
    return near[near["marker_leader_epoch"] == t["first_leader_epoch"]][-COMPARED:]


# Evidence by client timestamps


def _by_stamps(log: LogView, t: np.void, added: StateRecord) -> Merged | None:
    # Likely: the client's timestamps begin before the coordinator added the partition, and continue after it.
    stamp = log.time(t["first_time"])
    one_clock = t["first_append_time"] == 1
    previous = int(t["prev_marker_time"]) if t["prev_marker_offset"] >= 0 else -1
    if t["batches"] < 2 or stamp < 0 or not is_after(added.time, stamp, one_clock=True) or previous > stamp:
        return None
    stamped = t["prev_marker_offset"] < 0 or t["first_timestamp"] >= by_a_client(int(t["prev_marker_time"]))
    if log.time(t["last_time"]) < added.time or not stamped:
        return None
    others = _other_leads(log, t)
    began = max(stamp, log.time(_prior_time(t, others)))
    if not is_after(lead := added.time - began, 0, one_clock=True):
        return None
    as_usual = bool(others) and lead <= FAR_FROM_USUAL * max(others)
    if as_usual or (one_clock and not is_after(lead, 0)):
        return None
    why = "the broker's stamps" if one_clock else "the client's stamps"
    if is_after(lead, 0):
        return Merged(began, lead, "critical", "likely", why)
    strange = len(others) >= ENOUGH and not _coordinator_moved(log, t, added)
    return Merged(began, lead, "warning" if strange else "info", "likely", why)


def _prior_time(t: np.void, leads: list[int]) -> int:
    # A batch is no older than what stands before it. Before a marker no clock can show more than the marker does, but
    # for a client's that is ahead of the brokers': by as much as the producer's other transactions begin early.
    prior = int(t["prior_time"])
    if prior > t["marker_timestamp"] and len(leads) >= ENOUGH:
        prior -= max(0, -int(np.median(leads)))
    return prior if prior <= t["marker_timestamp"] else -1


def _other_leads(log: LogView, t: np.void) -> list[int]:
    matched, markers = matching(log, int(t["producer_id"])), _all_markers(log)
    others = markers[(markers["producer_id"] == t["producer_id"]) & (markers["marker_offset"] != t["marker_offset"])]
    others = others[others["first_offset"] >= 0]
    numbers = matched.numbers[np.searchsorted(matched.markers, others["marker_offset"])]
    others, windows = others[numbers >= 0], matched.windows[numbers[numbers >= 0]]
    leads = (windows["added_time"] - others["first_timestamp"])[windows["added_row"] >= 0]
    return [int(lead) for lead in leads]


def _coordinator_moved(log: LogView, t: np.void, added: StateRecord) -> bool:
    matched = matching(log, int(t["producer_id"]))
    before = matched.number(int(t["prev_marker_offset"]))
    last = None if before is None else matched.window(before).decided
    return last is None or last.leader_epoch != added.leader_epoch
