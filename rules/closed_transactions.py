"""Rules on transactions that markers have closed, and on data that came after its marker."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from auditor.base.advice import Advice
from auditor.base.words import plural
from auditor.facts.coordinator_log import CoordinatorLog
from auditor.facts.events import AFTER_UNREADABLE, Event, Kind
from auditor.rules.catalogue.kinds import Unverified
from auditor.rules.catalogue.needs import Need
from auditor.rules.catalogue.registry import rule
from auditor.rules.catalogue.relations import ABANDONED, ENDED_OTHERWISE
from auditor.rules.catalogue.safeguards import CLEAN_ELECTION, IN_SYNC_REPLICAS, LATE_WRITES
from auditor.rules.hanging import FAMILY
from auditor.rules.lib.cleaning import LEADERS_LOG, Missing, both_intact, whole_from
from auditor.rules.producer_sequences import OF_A_WRONG_BATCH, behind_another_number, certainty
from auditor.rules.seen.finding import Finding, iso
from auditor.rules.seen.view import LogView
from auditor.rules.settled.together import by_cause, count
from auditor.rules.transactions import safety
from auditor.rules.transactions.coordinated import decisions
from auditor.rules.transactions.open_transactions import open_transactions, unreadable_behind
from auditor.rules.transactions.windows import begins_inside, marker_window, matching, owner_complete, window_after
from auditor.rules.transactions.written_times import recorded

NO_DATA = "closed nothing that is left: a cleaner may have taken it"


def judged_transactions(log: LogView) -> np.ndarray:
    """The leader replica's transactions (TRANSACTION rows) but those that ended below the log start."""
    rows = log.leader.transactions
    if not len(rows):
        return rows
    return rows[(rows["marker_offset"] < 0) | (rows["marker_offset"] >= log.leader.log_start)]


def ended_with_another(t: np.void) -> str:
    """The outcome of data whose own transaction had ended before it came, by the marker of another one that closed it.

    Its own transaction is that of the marker before; where none is known, it was not committed.
    """
    committed, now = bool(t["prev_marker_offset"] >= 0 and t["prev_marker_commit"]), bool(t["commit"])
    return "none" if committed == now else "exposed" if now else "hidden"


def _is_late(log: LogView, t: np.void) -> tuple[bool, str]:
    """Whether the transaction's data came after the marker that had closed its epoch, and how that is known."""
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
    family=FAMILY,
    severities={
        "critical": "where it hangs, or a later transaction's marker took it in",
        "error": "where a marker closed it, or this copy ends before",
        "info": "once an operator closed it, or where that could not be read",
    },
    outcomes={
        "blocked": "where no marker closed it",
        "exposed": "where its transaction was aborted and it was committed",
        "hidden": "where its transaction was committed and it was aborted",
        "none": "where it ended like its transaction",
    },
    absorbed_by=(ABANDONED, ENDED_OTHERWISE),
    prevented_by=LATE_WRITES,
    unverified=Unverified.ENDED,
    needs=(Need.TRANSACTIONS,),
)
def late_write_after_marker(log: LogView) -> Iterator[Finding]:
    """Data arrived after the marker that had closed its transaction

    Checks: transactional data of an epoch after the marker that closed that epoch: under transaction.version 2 a marker
    of the next epoch; before, a marker of the same or a higher epoch with no record of the coordinator that lets the
    producer write to the partition again.
    Why it matters: such data opens a transaction that nobody will close, or is swept up by the next one's marker.
    Can be wrong: before transaction.version 2 the next transaction looks alike, so nothing is said without the whole
    history of the id.
    What to do: while it is open, do what hanging-transaction says of it: not all of it may be aborted; where a marker
    closed it, list its records (offsets in the evidence), and compensate downstream.
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
            "late-write-after-marker",
            severity,
            f"Producer {t['producer_id']} (epoch {t['producer_epoch']}) wrote to {log.name} at offset {offset} after "
            f"its transaction was over: {why}; {fate}",
            at=t,
            outcome="blocked" if t["marker_offset"] < 0 else ended_with_another(t),
            evidence={
                "previous_marker_offset": t["prev_marker_offset"],
                "previous_marker_epoch": t["prev_marker_epoch"],
                "previous_marker_time": iso(int(t["prev_marker_time"])),
                "closed_by_marker_at": t["marker_offset"] if t["marker_offset"] >= 0 else None,
                "records": t["records"],
            },
            advice=_what_to_do(log, offset) if severity == "critical" and fate == HANGS else None,
        )


HANGS = "it is still open"


def _what_to_do(log: LogView, offset: int) -> Advice | None:
    opened = (t for t in open_transactions(log) if int(t.row["first_offset"]) == offset)
    return next((safety.advise(log, t) for t in opened), None)


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
    family=FAMILY,
    severities={"critical": "", "info": "where its leader may have cleaned"},
    outcomes={"lost": "", "at_risk": "where a segment file may not have been copied"},
    absorbed_by=OF_A_WRONG_BATCH,
    prevented_by=(CLEAN_ELECTION, IN_SYNC_REPLICAS),
    needs=(Need.TRANSACTIONS,),
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
    for e in log.events(Kind.SEQUENCE_GAP):
        if both_intact(log, e) and not e["context"] & AFTER_UNREADABLE and not behind_another_number(log, e):
            gaps.setdefault(int(e["producer_id"]), []).append(e)
    rows = judged_transactions(log)
    if not gaps or not len(rows):
        return
    for t in rows[(rows["gap_offset"] >= 0) & (rows["commit"] == 1) & (rows["marker_offset"] >= 0)]:
        mine = gaps.get(int(t["producer_id"]), [])
        at = bisect.bisect_left(mine, t["gap_offset"], key=lambda e: e["base_offset"])
        if at == len(mine) or mine[at]["base_offset"] > t["last_offset"]:
            continue
        e, sure = mine[at], certainty(log, mine[at])
        yield log.at_event(
            "committed-transaction-hole",
            "info" if sure.get("missing") == LEADERS_LOG else "critical",
            f"The committed transaction of producer {t['producer_id']} in {log.name} (offsets {t['first_offset']} to "
            f"{t['last_offset']}) lacks records before offset {e['base_offset']}",
            e,
            if_true="critical" if sure.get("missing") == LEADERS_LOG else None,
            outcome="at_risk" if sure["confidence"] == Missing.UNDECIDABLE else "lost",
            evidence={
                "expected": e["expected_sequence"],
                "found": e["found_sequence"],
                "previous_last_offset": e["previous_last_offset"],
                "transaction_first_offset": t["first_offset"],
                "transaction_last_offset": t["last_offset"],
                "marker_offset": t["marker_offset"],
                "records": t["records"],
                **sure,
            },
        )


def _of_one_cleaner(f: Finding) -> Hashable:
    return (f.topic, f.partition) if f.evidence.get("cleaned") else None


def _all_cleaned(found: Sequence[Finding]) -> str:
    many = plural(sum(f.evidence["closed_nothing"] for f in found), "marker")
    return f"{many} of {count(found)} producers in {found[0].topic}-{found[0].partition} {NO_DATA}"


@rule(
    "marker-without-transaction",
    family=FAMILY,
    severities={"info": "", "warning": "when it is a producer's habit"},
    together=by_cause(_of_one_cleaner, _all_cleaned),
    before_start=True,
    needs=(Need.TRANSACTIONS,),
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
        mine = lone[lone["producer_id"] == producer_id]
        counted = mine[(mine["repeated"] == 0) & (mine["marker_offset"] >= whole_from(log))]
        habit = markers[producer_id] >= 100 and len(counted) * 10 > markers[producer_id]
        yield _lone_markers(log, mine, habit, markers[producer_id])


def _lone_markers(log: LogView, mine: np.ndarray, habit: bool, markers: int) -> Finding:
    first, last = mine[0], mine[-1]
    many = f"{len(mine)} markers" if len(mine) > 1 else f"The {'COMMIT' if first['commit'] else 'ABORT'} marker"
    cleaned = not habit and int(first["marker_offset"]) < whole_from(log)
    return log.finding(
        "marker-without-transaction",
        "warning" if habit else "info",
        f"{many} of producer {first['producer_id']} in {log.name} {NO_DATA if cleaned else 'closed nothing'}"
        + (": it keeps adding partitions that it does not write" if habit else ""),
        marker=first,
        last_offset=last["marker_offset"],
        evidence={"markers": markers, "closed_nothing": len(mine), "repeats": int(np.sum(mine["repeated"]))}
        | ({"cleaned": True} if cleaned else {}),
    )


@rule("transaction-abort-rate", family=FAMILY, severities={"warning": ""}, needs=(Need.TRANSACTION_STATE,))
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
    for found, counts in history.whole_ids(log.partition):
        decided, aborted, forced = decisions(found)
        often = (decided >= 20) & ((aborted * 5 >= decided) | (forced * 20 >= decided))
        for number in np.flatnonzero(counts & often).tolist():
            yield _aborted_often(log, found, number, int(decided[number]), int(aborted[number]), int(forced[number]))


def _aborted_often(
    log: LogView, found: CoordinatorLog, number: int, decided: int, aborted: int, forced: int
) -> Finding:
    first, last = next(found.entries_of(number)), found.last(number)
    return log.finding(
        "transaction-abort-rate",
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
