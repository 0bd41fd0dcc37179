"""Rules on transactions that are open at the end of a partition: who holds back its last stable offset."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from auditor.base.words import NO_TIMEOUT_MS, duration, plural
from auditor.rules.catalogue.kinds import Blocks, Hold
from auditor.rules.catalogue.needs import Need
from auditor.rules.catalogue.registry import rule
from auditor.rules.catalogue.relations import ABANDONED, OPEN_AT_ITS_COORDINATOR, By, same_transaction
from auditor.rules.catalogue.safeguards import LATE_WRITES, TRANSACTION_TIMEOUT
from auditor.rules.seen.finding import Finding, iso
from auditor.rules.seen.view import LogView
from auditor.rules.settled.floods import Unmade, made
from auditor.rules.transactions import blocking, safety
from auditor.rules.transactions.blocking import Standing
from auditor.rules.transactions.open_transactions import OpenTransaction, lost_ends, open_transactions
from auditor.rules.transactions.skipped import defect_in_words, of_the_defect, until_it_is_fixed

FAMILY = "transactions"
SAID_OF_IT = By(("transaction-pinned-at-log-start", "long-open-transaction"), same_transaction)
# Nobody knows it only where the coordinator's log was read whole.
UNOWNED, UNREAD = {"orphan": "a transactional id that nobody knows"}, "a transactional id that the input does not show"


def who(t: OpenTransaction) -> str:
    """The producer in words."""
    name = f"transactional id {t.owner}" if t.owner is not None else UNOWNED.get(t.klass, UNREAD)
    return f"producer {t.row['producer_id']} (epoch {t.row['producer_epoch']}, {name})"


def _open_finding(log: LogView, rule_id: str, severity: str, t: OpenTransaction, message: str, **more: Any) -> Finding:
    judged = {"class": blocking.judged(log, t).klass, "age_ms": blocking.age(log, t)}
    evidence = {**t.evidence(), **judged, **more.pop("evidence", {})}
    began = blocking.dated(log, t)
    if began["since_by_producer"] is not None:  # the finding's own time is the producer's, which the brokers contradict
        evidence |= began
    return log.finding(
        rule_id,
        severity,
        message,
        at=t.row,
        transactional_id=t.owner,
        time_ms=t.since,
        evidence=evidence,
        **more,
    )


@rule(
    "hanging-transaction",
    family=FAMILY,
    severities={"critical": "", "info": "while it may be in flight"},
    outcomes={"blocked": ""},
    blocks=Blocks.READERS,
    hold=Hold.NOBODYS,
    prevented_by=LATE_WRITES,
    moving=True,
    needs=(Need.TRANSACTIONS,),
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
    flight).
    What to do: what the finding says: confirm with kafka-transactions.sh describe-producers, then kafka-transactions.sh
    abort --start-offset; never where COMMIT was decided: an in-sync replica that has the marker, and lacks nothing,
    may lead, else the marker has to be written again. While the id has a transaction open with the epoch of this data,
    write neither: wait until it ends, then audit again.
    If the id may be Flink's (PREFIX-SUBTASK-CHECKPOINT): restoring the job from a checkpoint or savepoint commits the
    transactions which it holds and aborts the others.
    Source: KIP-360 (dangling transactions), KIP-447, KIP-664
    """
    found = (t for t in open_transactions(log) if t.klass in ("hanging", "orphan"))
    yield from made(
        log,
        "hanging-transaction",
        (Unmade("critical", int(t.row["first_offset"]), partial(_hanging, log, t), doubt=t.in_flight) for t in found),
    )


def _hanging(log: LogView, t: OpenTransaction) -> Finding:
    offset = int(t.row["first_offset"])
    held = max(0, log.readable_end - offset)
    message = (
        f"The transaction of {who(t)} has been open in {log.name} since offset {offset} and will not end by "
        f"itself: {t.reason}; read_committed consumers of this partition stop there, "
        f"{plural(held, 'offset')} before its end"
    )
    if t.in_flight:
        message = (
            f"The transaction of {who(t)} looks abandoned in {log.name} at offset {offset} ({t.reason}), but the "
            "files may have been copied at different times"
        )
    committed = safety.committed(log, t)
    skipped = None if t.in_flight else of_the_defect(log, lost_ends(log, t.row))
    return _open_finding(
        log,
        "hanging-transaction",
        "critical",
        t,
        message + (f". {defect_in_words(log)}" if skipped else ""),
        doubt=t.in_flight,
        evidence={
            "held_back_offsets": held,
            "decided": "COMMIT" if committed is not None and committed.end_time is not None else None,
            **(skipped or {}),
        },
        advice=until_it_is_fixed(safety.advise(log, t)) if skipped else safety.advise(log, t),
    )


@rule(
    "long-open-transaction",
    family=FAMILY,
    severities={
        "error": "beyond its time-out by 30 s",
        "critical": "beyond 1 h",
        "warning": "in text that does not show markers",
        "info": "when it is young, or nothing shows its age",
    },
    outcomes={"blocked": ""},
    time=True,
    absorbed_by=(
        ABANDONED,
        OPEN_AT_ITS_COORDINATOR,
        SAID_OF_IT,
    ),
    blocks=Blocks.READERS,
    hold=Hold.OVERDUE,
    prevented_by=(TRANSACTION_TIMEOUT,),
    needs=(Need.TRANSACTIONS,),
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
    yield from made(log, "long-open-transaction", _long_open(log))


def _long_open(log: LogView) -> Iterator[Unmade]:
    for t in open_transactions(log):
        if t.klass in ("hanging", "orphan", "ghost", "active"):
            continue
        verdict = blocking.judged(log, t)
        if t.klass == "late" and verdict.standing is not Standing.OVERDUE:
            continue
        severity = verdict.severity or "info"
        confidence = "undecidable" if verdict.klass == "undecidable" else "proved"
        make = partial(_long_open_finding, log, t, severity, blocking.age(log, t), confidence)
        yield Unmade(severity, int(t.row["first_offset"]), make, confidence)


def _long_open_finding(log: LogView, t: OpenTransaction, severity: str, age: int, confidence: str) -> Finding:
    known = age > 0 or log.cluster.clock_given  # else the newest time is that of the transaction itself
    how_long = f"for {duration(age)}" if known else "for a time that nothing in the input shows"
    return _open_finding(
        log,
        "long-open-transaction",
        severity,
        t,
        f"The transaction of {who(t)} has been open in {log.name} since offset {t.row['first_offset']} "
        f"{how_long}: {t.reason}",
        if_true=blocking.judged(log, t).if_true,
        evidence={"confidence": confidence},
        advice=safety.advise(log, t),
    )


@rule(
    "lso-stuck",
    family=FAMILY,
    severities={
        "error": "",
        "critical": "beyond 1 h",
        "warning": "beyond 1 h within its time-out",
        "info": "where it may have ended",
    },
    outcomes={"blocked": ""},
    time=True,
    absorbed_by=(
        ABANDONED,
        OPEN_AT_ITS_COORDINATOR,
        SAID_OF_IT,
    ),
    blocks=Blocks.READERS,
    hold=Hold.LONG,
    prevented_by=(TRANSACTION_TIMEOUT,),
    needs=(Need.TRANSACTIONS,),
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
        verdict, age = blocking.judged(log, t), blocking.age(log, t)
        unsure = verdict.standing is Standing.UNKNOWN
        if unsure and not (t.in_flight or t.timeout_ms == NO_TIMEOUT_MS):
            continue  # the rule on its class says it
        severity = verdict.if_true if unsure else verdict.severity
        if severity is not None and age > log.cluster.waiting_margin(t.timeout_ms):
            yield _stuck_at(log, t, severity, age, unsure)


def _stuck_at(log: LogView, t: OpenTransaction, severity: str, age: int, doubt: bool) -> Finding:
    lso = max(int(t.row["first_offset"]), log.leader.own_start)
    held = max(0, log.readable_end - lso)
    waits = blocking.judged(log, t).standing is Standing.WAITING
    ends = iso(t.entry.start + t.timeout_ms) if waits and t.entry is not None and t.entry.start >= 0 else None
    said = f" of {duration(t.timeout_ms)}" + (f", at {ends} at the latest" if ends else "")
    return _open_finding(
        log,
        "lso-stuck",
        severity,
        t,
        f"The last stable offset of {log.name} stands at {lso}, {plural(held, 'offset')} behind, held by {who(t)} "
        f"for {duration(age)}" + (f"; it ends with its time-out{said}" if waits else ""),
        doubt=doubt,
        evidence={
            "last_stable_offset": lso,
            "high_watermark": log.high_watermark,
            "held_back_offsets": held,
            "ends_at_the_latest": ends,
        },
        advice=safety.advise(log, t),
    )


@rule(
    "transaction-pinned-at-log-start",
    family=FAMILY,
    severities={
        "error": "",
        "critical": "beyond 1 h, or where nobody will end it",
        "warning": "beyond 1 h within its time-out",
        "info": "while its coordinator will end it, or nothing shows its age",
    },
    outcomes={"blocked": ""},
    absorbed_by=(ABANDONED,),
    blocks=Blocks.READERS,
    hold=Hold.PINNED,
    prevented_by=LATE_WRITES,
    needs=(Need.TRANSACTIONS,),
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
    pinned = (t for t in open_transactions(log) if int(t.row["first_offset"]) < log.leader.own_start)
    yield from made(log, "transaction-pinned-at-log-start", (_pinned(log, t) for t in pinned))


def _pinned(log: LogView, t: OpenTransaction) -> Unmade:
    verdict = blocking.judged(log, t)
    severity = (verdict.if_true if t.in_flight else verdict.severity) or "info"
    confidence = "undecidable" if t.missing else "proved"
    make = partial(_pinned_finding, log, t, severity, confidence)
    return Unmade(severity, int(t.row["first_offset"]), make, confidence, t.in_flight)


def _pinned_finding(log: LogView, t: OpenTransaction, severity: str, confidence: str) -> Finding:
    offset = int(t.row["first_offset"])
    return _open_finding(
        log,
        "transaction-pinned-at-log-start",
        severity,
        t,
        f"The transaction of {who(t)} began at offset {offset}, below the log start "
        f"{log.leader.own_start} of {log.name}, and is still open: the last stable offset is pinned",
        doubt=t.in_flight,
        **({} if t.in_flight else {"if_true": blocking.judged(log, t).if_true}),
        evidence={"log_start": log.leader.own_start, "confidence": confidence},
        advice=safety.advise(log, t),
    )
