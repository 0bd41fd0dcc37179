"""Rules on the transactions of a partition: open, completed, merged."""

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


# UNOWNED needs the complete __transaction_state.
UNOWNED, UNREAD = "no known transactional id", "transactional id not in the input"


def who(t: Transaction) -> str:
    """Describe the producer."""
    tid = t.transactional_id
    name = f"transactional id {tid}" if tid is not None else UNOWNED if t.case is Case.ORPHAN else UNREAD
    return f"producer id {t.producer_id} (epoch {t.producer_epoch}, {name})"


def _open_finding(log: LogView, severity: str, t: Transaction, message: str, **more: Any) -> Finding:
    evidence, began = {**t.evidence(), **more.pop("evidence", {})}, dated(log, t)
    if began["since_by_producer"] is not None:  # the finding's own time is the producer's, which the brokers contradict
        evidence |= began
    return log.finding(severity, message, data=t.row, transactional_id=t.transactional_id, evidence=evidence, **more)


@rule(
    "hanging-transaction",
    when={
        "info": "while it may be in flight",
        "error": "if it may be in flight, but is past its timeout by this log's own times",
    },
)
def hanging_transaction(log: LogView) -> Iterator[Finding]:
    """A hanging transaction: no coordinator will complete it

    Checks: a transaction is open at the end of the leader replica, but no coordinator will complete it. By the last
    record in __transaction_state, its transactional id has no open transaction, a higher epoch, or another producer id.
    Or the id has an ongoing transaction without this partition. Or no transactional id ever had its producer id. If the
    coordinator completed it while the partition had no leader, the finding names KAFKA-20734, a defect of Kafka 4.3.0,
    4.3.1 and 4.4.0.
    Why it matters: the last stable offset stays at its first offset. Consumers with isolation.level=read_committed and
    the log cleaner stop there until a marker is written.
    Can be wrong: files copied from a running broker at different times (reported as in flight; broker-written times
    later in this log still show how long it has been open at least).
    What to do: follow the finding: confirm with kafka-transactions.sh describe-producers, then run
    kafka-transactions.sh abort --start-offset. Do not abort after a COMMIT decision: make an in-sync replica lead that
    has the marker and lacks no record, or write the marker with auditor finish. If the id has an open transaction with
    the epoch of this data, write no marker: wait until it ends, then audit again. If the id may be Flink's
    (PREFIX-SUBTASK-CHECKPOINT), restore the job from a checkpoint or savepoint: this commits its transactions and
    aborts the others.
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
        f"Hanging transaction of {who(t)} in {log.name} since offset {offset}: {t.reason}. read_committed consumers "
        f"are blocked there, {plural(held_back, 'offset')} before the log end"
    )
    copied, held = "the files may be copied at different times", duration(t.held.at_least_ms)
    if log.may_be_removed:
        copied = f"another topic {log.topic} is newer, so this one may be deleted"
    if by_stamps:
        message = (
            f"Transaction of {who(t)} open in {log.name} since offset {offset} for {held} by later broker-written "
            f"times, and possibly hanging ({t.reason}; {copied})"
        )
    elif t.in_flight:
        message = f"Possibly hanging transaction of {who(t)} in {log.name} at offset {offset}: {t.reason}. But {copied}"
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
            **blocking.unmarked(log, t, committed),
            **(skipped or {}),
        },
        advice=until_it_is_fixed(blocking.advise(log, t)) if skipped else blocking.advise(log, t),
    )


@rule(
    "long-open-transaction",
    when={
        "error": "past its timeout by 30 s",
        "critical": "after 1 h",
        "warning": "in text that does not show markers",
        "info": "if it is young, or its age is unknown",
    },
)
def long_open_transaction(log: LogView) -> Iterator[Finding]:
    """A transaction is open past its timeout

    Checks: a transaction at the end of the leader replica is open past its timeout and the margin, and is not proved to
    hang. Without a coordinator record the timeout counts as 15 minutes. In text that does not show markers, a warning
    is reported after a longer time.
    Can be wrong: CreateTime timestamps; a large transaction.max.timeout.ms; the copy is older than --as-of. A
    transaction is not reported if it may have ended after the copies of this log and of __transaction_state, as with
    timeout-not-enforced.
    What to do: run kafka-transactions.sh --bootstrap-server B find-hanging --topic T, then describe the transactional
    id. Do not abort before these commands show that it hangs. If the id may be Flink's (PREFIX-SUBTASK-CHECKPOINT),
    restore the job from a checkpoint or savepoint: this commits its transactions and aborts the others.
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
    how_long = f"for {duration(t.age_ms)}" if dated else "for an unknown time"
    if t.by_stamps:
        how_long = f"for {duration(t.held.at_least_ms)} by later broker-written times"
    return _open_finding(
        log,
        severity,
        t,
        f"Transaction of {who(t)} open in {log.name} since offset {t.first_offset} {how_long}: {t.reason}",
        if_true=t.if_true,
        evidence={"confidence": t.confidence},
        advice=blocking.advise(log, t),
    )


@rule(
    "lso-stuck",
    when={
        "critical": "after 1 h",
        "warning": "after 1 h within its timeout",
        "info": "if it may have ended",
    },
)
def lso_stuck(log: LogView) -> Iterator[Finding]:
    """The last stable offset does not move

    Checks: the transaction at the last stable offset is open past its timeout and half a minute, or for more than an
    hour. An unknown timeout counts as 15 minutes. Within a timeout known to the coordinator the finding is a warning
    with the end time. A two-phase commit has no end time. The number of blocked records does not count.
    Can be wrong: a prepared transaction (two-phase commit) that its transaction manager is about to decide. A
    transaction is not reported if it may have ended after the copies of this log and of __transaction_state; a
    two-phase commit is then an info.
    What to do: resolve the transaction in the evidence; a two-phase commit through its transaction manager.
    Source: KIP-447, KIP-939
    """
    for t in open_transactions(log)[:1]:
        if t.is_unknown and not (t.in_flight or t.timeout_ms == NO_TIMEOUT_MS):
            continue  # the rule on its class reports it
        severity = t.if_true if t.is_unknown else t.severity
        if severity is not None and t.is_old:
            yield _stuck_at(log, t, severity)


def _stuck_at(log: LogView, t: Transaction, severity: str) -> Finding:
    held_back, waits = max(0, log.readable_end - t.lso), t.standing is BlockedState.WAITING
    ends = iso(t.entry.start + t.timeout_ms) if waits and t.entry is not None and t.entry.start >= 0 else None
    timeout = f" ({duration(t.timeout_ms)}" + (f", {ends})" if ends else ")")
    return _open_finding(
        log,
        severity,
        t,
        f"The last stable offset of {log.name} is {t.lso}, {plural(held_back, 'offset')} before the log end, blocked "
        f"by {who(t)} for {duration(t.age_ms)}"
        + (f". The transaction ends at its timeout{timeout} at the latest" if waits else ""),
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
        "critical": "after 1 h, or if it hangs",
        "warning": "after 1 h within its timeout",
        "info": "while its coordinator will end it, or its age is unknown",
    },
)
def transaction_pinned_at_log_start(log: LogView) -> Iterator[Finding]:
    """An open transaction begins below the log start

    Checks: a transaction is open at the end of the leader replica, or in its newest producer snapshot, with a first
    offset below the log start offset.
    Why it matters: its data was deleted, but not its state. The last stable offset is pinned to the log start, and
    nothing in the log shows why.
    Can be wrong: its marker was written after the copy; while the coordinator has it open, within its timeout, it will
    end by itself (then info).
    What to do: follow the finding: if the coordinator has no open transaction of its id, abort it with the start offset
    that describe-producers shows. Do not abort a transaction that the coordinator has open or has decided to commit.
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
        f"Transaction of {who(t)} still open since offset {t.first_offset}, below the log start "
        f"{log.leader.own_start} of {log.name}: the last stable offset is pinned",
        doubt=doubt,
        **({} if doubt else {"if_true": t.if_true}),
        evidence={"log_start": log.leader.own_start, "confidence": confidence},
        advice=blocking.advise(log, t),
    )


# Transactions closed by markers, and data written after its marker.


NO_DATA = "no remaining data: it may be compacted away"


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
        return True, f"the marker at {t['prev_marker_offset']} bumped the epoch to {t['prev_marker_epoch']}"
    if t["prev_marker_epoch"] < t["producer_epoch"] or not owner_complete(log, t["producer_id"]):
        return False, ""
    if begins_inside(log) and matching(log, int(t["producer_id"])).number(int(t["prev_marker_offset"])) is None:
        return False, ""  # the transaction of this marker may be in the excluded part
    last = log.last_entry(t["producer_id"])
    coordinators = range(log.cluster.partition_counts["__transaction_state"]) if last is None else (last.partition,)
    if window_after(log, t) is not None or not all(recorded(log, p, t) for p in coordinators):
        return False, ""
    return True, f"no coordinator record allows data after the marker at {t['prev_marker_offset']}"


@rule(
    "late-write-after-marker",
    when={
        "critical": "if it hangs, or a later transaction's marker ended it",
        "error": "if a marker ended it, or this copy ends before",
        "info": "if an operator ended it, or the rest is unreadable",
        "blocked": "if no marker ended it",
        "exposed": "if its transaction was aborted and it was committed",
        "hidden": "if its transaction was committed and it was aborted",
        "none": "if it ended like its transaction",
    },
)
def late_write_after_marker(log: LogView) -> Iterator[Finding]:
    """Transactional data was written after the marker of its transaction

    Checks: transactional data of an epoch is stored after the marker that ended that epoch. Under transaction.version 2
    that is a marker of the next epoch. Before, it is a marker of the same or a higher epoch, and no coordinator record
    lets the producer write to the partition again.
    Why it matters: such data opens a hanging transaction, or the marker of the next transaction ends it.
    Can be wrong: before transaction.version 2 the next transaction looks the same, so a finding needs the complete
    history of the id.
    What to do: while it is open, follow hanging-transaction, since not all of it may be aborted; list its records
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
            f"Producer id {t['producer_id']} (epoch {t['producer_epoch']}) wrote to {log.name} at offset {offset} "
            f"after its transaction ended: {why}; {fate}",
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
            return "error", "this copy ends before its marker"
        return ("info", "its end is unreadable") if unread else ("critical", HANGS)
    if marker_window(log, t) is not None:
        return "critical", f"the marker at {t['marker_offset']} of a later transaction ended it"
    if not t["commit"] and owner_complete(log, t["producer_id"]):
        return "info", f"the ABORT at {t['marker_offset']} (an operator's, outside all transactions) ended it"
    return "error", f"the marker at {t['marker_offset']} ended it"


@rule(
    "committed-transaction-hole",
    when={
        "info": "if its leader may have compacted it",
        "at_risk": "if a segment file may be missing from the copy",
    },
)
def committed_transaction_hole(log: LogView) -> Iterator[Finding]:
    """A committed transaction lacks records

    Checks: the producer's sequences do not continue between the batches of one committed transaction. The region was
    never compacted, or has only markers between these batches.
    Why it matters: consumers read part of an atomic unit as if it were complete.
    Can be wrong: compaction (then it is not reported). If the next batch continues from the expected sequence, no
    record is missing: the number of one batch is wrong (duplicate-sequence-range, sequence-reset-same-epoch).
    What to do: reprocess the input of the transaction, which duplicates the existing records; check acks and unclean
    elections.
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
            f"The committed transaction of producer id {t['producer_id']} in {log.name} ({blocking.data_of(t)}) lacks "
            f"records before offset {e['base_offset']}",
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
    return f"{many} of {count(findings)} producers in {findings[0].topic}-{findings[0].partition} ended {NO_DATA}"


@rule(
    "marker-without-transaction",
    when={"warning": "if it is frequent for one producer"},
    together=by_cause(_of_one_cleaner, _all_cleaned),
)
def marker_without_transaction(log: LogView) -> Iterator[Finding]:
    """A marker without an open transaction

    Checks: a marker of a producer that has no open transaction in the partition. More than a tenth of at least a
    hundred markers of one producer, without repeats, is frequent.
    Why it matters: it is mostly harmless: a retried marker, a moved coordinator, or a partition that a client added to
    its transaction and never wrote.
    Can be wrong: the data was below the log start or was compacted away (reported once per log after compaction).
    What to do: nothing; if frequent, find the client that adds partitions without writing to them.
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
        f"{many} of producer id {first['producer_id']} in {log.name} ended {NO_DATA if cleaned else 'no transaction'}"
        + (": it adds partitions without writing to them" if habit else ""),
        marker=first,
        last_offset=last["marker_offset"],
        evidence={"markers": markers, "closed_nothing": len(lone), "repeats": int(np.sum(lone["repeated"]))}
        | ({"cleaned": True} if cleaned else {}),
    )


@rule("transaction-abort-rate")
def transaction_abort_rate(log: LogView) -> Iterator[Finding]:
    """Many transactions of one id are aborted

    Checks: a transactional id has at least twenty decided transactions. A fifth or more were aborted, or a twentieth or
    more by the coordinator itself (timeouts, fencing).
    Why it matters: every abort repeats work. Aborts by the coordinator mean timeouts, or instances that fence each
    other.
    Can be wrong: chaos tests.
    What to do: read the log of the aborting application; if the coordinator aborts, raise transaction.timeout.ms or
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
        f"{aborted:,} of {decided:,} transactions of {last.transactional_id} were aborted, {forced} by the coordinator",
        offset=first.offset,
        last_offset=last.offset,
        producer_id=last.producer_id,
        producer_epoch=last.producer_epoch,
        transactional_id=last.transactional_id,
        time_ms=last.time,
        file=last.file,
        evidence={"decided": decided, "aborted": aborted, "by_coordinator": forced},
    )


# Data of one transaction that the marker of the next one ended.


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
        "warning": "without broker times, if the producer never began a transaction like that",
        "info": "otherwise",
        "exposed": "if its transaction was aborted and it was committed",
        "hidden": "if its transaction was committed and it was aborted",
        "none": "if it ended like its transaction",
    },
)
def transactions_merged_under_one_marker(log: LogView) -> Iterator[Finding]:
    """One marker ended the data of two transactions

    Checks: the data between two markers of a producer begins before the coordinator added this partition to the
    transaction of the second marker. No other transaction of the id can own that data. Broker times prove it: the
    batch's own timestamp (LogAppendTime), or a marker of any producer right after it. If one broker wrote that time and
    the coordinator's record, 1 s of difference is allowed. Otherwise the clock difference of both brokers counts, as
    markers between decisions and completions show it. By client timestamps alone it is likely: critical from 30 s on,
    below that a warning if the producer never began like that before. A batch is not older than earlier times in the
    log. This covers an outage, after which clients send records with old timestamps.
    Why it matters: the first part was committed or aborted together with unrelated data. Atomicity is broken, and
    nothing else shows it.
    Can be wrong: only if it is marked as likely: a client stamps records before its coordinator adds the partition, and
    may have to wait for that (a moving coordinator). Producers that stamp records with old times are excluded.
    What to do: list the records of the first part (offsets in the evidence) and compensate downstream.
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
        f"The marker at offset {t['marker_offset']} {'ended' if merged.confidence == 'proved' else 'probably ended'} "
        f"data of producer id {t['producer_id']} from offset {t['first_offset']} on, {duration(merged.lead_ms)} older "
        f"than its transaction in {log.name}",
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
        return Merged(came, added.time - came, "critical", "proved", f"{known_by}, and is also the coordinator")
    ahead = _ahead_at_least(log, t, added)
    if ahead is not None and is_read_after(added.time, came - ahead):
        began = came - ahead
        why = f"{known_by}, compared with the coordinator's clock by the markers of its decisions"
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
    return int(behind["marker_timestamp"]), f"the broker wrote the next marker at {behind['marker_offset']}"


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
    # A batch is not older than earlier batches. Before a marker no clock can show more than the marker does, except a
    # client clock that is ahead of the brokers', by as much as the producer's other transactions begin early.
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
