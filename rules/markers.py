"""Rules that compare the markers of a partition with the coordinators' decisions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from auditor.base.advice import Advice, Step, Verdict
from auditor.base.at_rest import Fields
from auditor.base.transactional_ids import sent_again
from auditor.base.words import plural
from auditor.evidence.cluster_clocks import at_least_ms, beyond_ms, is_after
from auditor.evidence.horizons import cleaned, lost_about, whole_from
from auditor.facts.coordinator_history import TransactionWindow, transaction_key
from auditor.facts.events import EventKind
from auditor.facts.replica_facts import once
from auditor.model import policies
from auditor.rules.catalogue.registry import rule
from auditor.rules.lib import repairs
from auditor.rules.resolution.resolve import in_flight
from auditor.rules.seen.cluster_view import TRANSACTION_STATE
from auditor.rules.seen.view import IMPACTS, Finding, LogView, iso
from auditor.rules.transactions import blocking
from auditor.rules.transactions.making import ahead_ms, around, closed, ended_behind, open_by_producer
from auditor.transactions.matching import (
    LateMarker,
    begins_inside,
    closed_behind,
    contradicting_window,
    is_late,
    late_markers,
    marker_window,
    matching,
    other_clock,
    own_window,
    owner_complete,
    skew,
    unmarked_windows,
    window_after,
)

VERSION, METADATA_VERSION = "transaction.version", "metadata.version"
LATE = "{2} a late marker of the previous transaction, which ended offsets {0}–{1} early (KIP-1228)"
PAST_TENSE = {"COMMIT": "committed", "ABORT": "aborted"}


def _judged_markers(log: LogView) -> np.ndarray:
    rows = log.leader.transactions
    return rows[rows["marker_offset"] >= max(log.leader.log_start, 0)]


def _at_marker(
    log: LogView,
    severity: str,
    message: str,
    t: np.void,
    *,
    doubt: bool = False,
    outcome: str = "",
    advice: Advice | None = None,
    **evidence: object,
) -> Finding:
    return log.finding(
        severity,
        message,
        marker=t,
        evidence={
            "marker": "COMMIT" if t["commit"] else "ABORT",
            "coordinator_epoch": t["coordinator_epoch"],
            "transaction_first_offset": t["first_offset"] if t["first_offset"] >= 0 else None,
            "ranges": [[t["first_offset"], t["last_offset"]]] if outcome in IMPACTS else None,
            **evidence,
        },
        doubt=doubt,
        outcome=outcome,
        advice=advice,
    )


NOTHING_OPEN = "the transaction is not open any more, so there is nothing to abort"
CLOCKS = "the clock difference between its leader and its coordinator"
NOT_YET = "{log} has no markers of {count} completed transactions: its files may be older"


@rule(
    "missing-marker",
    when={
        "info": "while it may be in flight, or if a later marker ended its data as decided",
        "at_risk": "if none of its data is open",
        "lost": "if none of its data is open after a COMMIT decision",
    },
    together=in_flight(NOT_YET),
)
def missing_marker(log: LogView) -> Iterator[Finding]:
    """A completed transaction has no marker in this partition

    Checks: a record in __transaction_state shows a complete transaction that includes this partition. The partition has
    no marker of this producer id, epoch and result, and neither compaction nor retention can have removed it. If a
    later marker with the same result ended the data, the finding is an info. If one with the other result did, the
    finding is a split-decision.
    Can be wrong: the partition was deleted and re-created; files copied at different times (reported as in flight). If
    one offset is missing in place of the marker, the evidence has the gap.
    What to do: after an ABORT decision, abort it like a hanging transaction. After a COMMIT decision, do not abort.
    Make an in-sync replica lead that has the marker and lacks no record, or write the marker with auditor finish. If
    its data is already ended, there is nothing to do.
    Source: KIP-98
    """
    history = log.cluster.coordinator
    if history is None or log.topic == TRANSACTION_STATE:
        return
    ended = ended_by_another(log)
    for window, between in unmarked_windows(log):
        after_all = ended.get(skipped_key(window))
        if after_all is not None and after_all.as_decided:
            yield _late(log, after_all)
        elif _must_have_marker(log, window, between[0]) and not ended_behind(log, window):
            yield _missing(log, window, between)


@once
def _began(log: LogView) -> int:
    """Return when the log began, ms by broker clocks; -1: unknown.

    Of a whole log: its first timestamp, corrected by the least lag of markers behind their data, since a client clock
    may be slow. Otherwise no later than the first marker stored or read: timestamps of clients may be any. Unknown too
    where no marker follows its data: a clock may have been set back.
    """
    ended, markers = closed(log), log.leader.transactions
    if log.leader.log_start == 0:
        slow = max(0, int((ended["marker_timestamp"] - ended["last_timestamp"]).min())) if len(ended) else 0
        return log.leader.first_time + slow if log.leader.first_time >= 0 else -1
    markers = markers[markers["marker_offset"] >= log.leader.log_start]
    first = markers["marker_timestamp"][np.argsort(markers["marker_offset"])[:1]]
    return int(first[0]) if len(first) and len(ended) else -1


def _must_have_marker(log: LogView, window: TransactionWindow, before: int = -1) -> bool:
    """Whether the log reaches back far enough, uncleaned, that it would still have the window's marker.

    ``before``: the offset of the producer's last marker of an earlier decision. If it is stored above everything
    cleaned, the order of both logs decides and no clock is needed.
    """
    prepare, replica = window.prepare, log.leader
    assert prepare is not None
    if replica.unreadable or replica.absent or (replica.text and not replica.live):
        return False
    end, newest = cleaned(log, replica)
    if before >= max(end, 0):
        return True
    begin = window.start_time if window.start_time >= 0 else prepare.time
    if log.cluster.clocks.spread_ms:
        begin += ahead_ms(log, prepare.partition, prepare)
    first_time = _began(log)
    if first_time < 0 or first_time > (begin if replica.log_start == 0 else at_least_ms(begin)):
        return False
    if end <= replica.log_start:
        return True
    times = [time for base, time in zip(replica.segment_bases[1:], replica.segment_times, strict=False) if base <= end]
    return is_after(begin, max(newest, *times, -1))


def _late(log: LogView, ended: Ended) -> Finding:
    # Ended as decided: no transaction is open.
    window, marker = ended.window, "COMMIT" if ended.row["commit"] else "ABORT"
    first, last = ended.span
    other = "no coordinator sent it" if ended.by is None else "of its next transaction"
    return log.finding(
        "info",
        f"{log.name} never received the {marker} marker of {window.transactional_id}. The {marker} at offset "
        f"{ended.row['marker_offset']} ({other}) ended its data at {ended.data()} late, as decided",
        segment=int(ended.row["segment"]),
        offset=first,
        last_offset=last,
        producer_id=window.producer_id,
        producer_epoch=ended.row["producer_epoch"],
        transactional_id=window.transactional_id,
        time_ms=ended.row["marker_timestamp"],
        evidence=ended.evidence() | (of_the_defect(log, [window]) or {}),
        advice=until_it_is_fixed(Advice(Verdict.NONE, NOTHING_OPEN)),
    )


def _missing(log: LogView, window: TransactionWindow, between: tuple[int, int]) -> Finding:
    prepare, complete = window.prepare, window.complete
    assert prepare is not None
    assert complete is not None
    other = other_clock(log, prepare.partition)
    end = -1 if window.end_time is None else window.end_time + ahead_ms(log, prepare.partition, complete)
    in_flight = log.doubt(end, other_clock=other, committed=True) and between[1] >= log.leader.log_end
    clocks = matching(log, window.producer_id).inconclusive
    opened = open_by_producer(log).get(window.producer_id, [])
    row = opened[0].row if opened else None
    unseen = window.producer_id not in log.leader.producers["producer_id"]
    newer = unseen and not len(closed(log))  # perhaps: no broker's clock says when this log began
    rival = row is None and log.topic in log.cluster.incarnations.rivals
    decision = "COMMIT" if prepare.commit else "ABORT"
    lost = row is None and prepare.commit and not (in_flight or newer or rival)
    return log.finding(
        "info" if clocks else "critical",
        f"The coordinator {PAST_TENSE[decision]} {window.transactional_id}, but {log.name} has no {decision} marker"
        + (": the log may have been copied before the marker was written" if in_flight else "")
        + (": another topic of this name may have it" if rival and not in_flight else "")
        + (": the topic may have been re-created since" if newer and not (in_flight or rival) else "")
        + (f": inconclusive without {CLOCKS}" if clocks and not (in_flight or newer or rival) else ""),
        offset=None if row is None else row["first_offset"],
        last_offset=None if row is None else row["last_offset"],
        segment=-1 if row is None else int(row["segment"]),
        producer_id=window.producer_id,
        producer_epoch=prepare.producer_epoch,
        transactional_id=window.transactional_id,
        time_ms=complete.time,
        evidence={
            "expected": {"marker": decision, "epoch": prepare.producer_epoch},
            "prepare_offset": prepare.offset,
            "complete_offset": complete.offset,
            "between": between,
            "decided": iso(prepare.time),
            **({"confidence": "undecidable", "missing": CLOCKS} if clocks else {}),
            **({"transaction_key": transaction_key(window.producer_id, window.first.offset)} if window.first else {}),
        },
        if_true="critical" if clocks else None,
        doubt=in_flight or newer or rival,
        outcome="lost" if lost else "at_risk" if row is None else "blocked",
        advice=None if row is None else blocking.advise(log, opened[0]),
    )


@rule(
    "split-decision",
    when={
        "error": "if only the partition shows it, by a late COMMIT marker",
        "info": "if retention may have removed its own marker",
        "hidden": "if the decision was COMMIT",
        "exposed": "if the decision was ABORT",
    },
)
def split_decision(log: LogView) -> Iterator[Finding]:
    """A marker ended a transaction against its coordinator's decision

    Checks: a marker ended data with another result than the coordinator decided for the transaction of this data.
    Producer id, epoch and the order of markers show the transaction. No earlier marker in the partition carried out the
    decision. The marker may be an operator's. It may be of the producer's next transaction, after the coordinator
    skipped this partition (KAFKA-20734); the finding then covers the data up to that marker. It may also be a late
    marker of the previous transaction (KIP-1228). A later marker with the right result does not repair the data.
    Without __transaction_state, under transaction.version 2, a COMMIT marker that repeats the epoch and result of the
    previous marker is late. It ends data of that epoch, and an ABORT of the next epoch ended the rest.
    Can be wrong: one transaction of version 1 after a downgrade looks like a late marker; the clocks of two brokers
    differ by more than 30 s; clients stamp records with other times. Late data after a completed decision does not
    count, nor does a partition that was added and never written. A marker newer than the copy of __transaction_state is
    not judged after a compacted part, since its data may be of a later transaction. A marker whose decision
    __transaction_state lost is not judged either (coordinator-log-restored).
    What to do: list both sides; look for manual aborts; compensate downstream. There is nothing open to abort. Do not
    abort what the coordinator has prepared to commit.
    Source: KIP-98, KIP-664, KIP-1228
    """
    history = log.cluster.coordinator
    if log.topic == TRANSACTION_STATE:
        return
    for row, own in _late_by_the_partition(log):
        if own is not None and not own["commit"] and own_window(log, row) is None:
            yield _shown_though_aborted(log, row, own)
    for ended in ended_by_another(log).values():
        if ended.by is not None and not ended.as_decided:
            yield _under_the_next_marker(log, ended)
    for t in _judged_markers(log):
        if t["first_offset"] < 0 or marker_window(log, t) is not None:
            continue
        window = own_window(log, t)
        if window is None or window.prepare is None or window.prepare.commit == bool(t["commit"]):
            continue
        if history is not None and lost_about(history, window.prepare.partition, int(t["marker_timestamp"])):
            continue
        # The cleaner may have removed the window's own marker before this data, which is then of a later transaction.
        own_gone = t["prev_marker_offset"] < whole_from(log)
        if not _only_it_can_be(log, window, t) or (own_gone and _may_be_of_a_later_one(log, window, t)):
            continue
        decision, result = ("COMMIT", "ABORT") if window.prepare.commit else ("ABORT", "COMMIT")
        yield _at_marker(
            log,
            "critical",
            f"The coordinator {PAST_TENSE[decision]} {window.transactional_id}, but {log.name} has {result} for its "
            f"data at {blocking.data_of(t)}: {_fate(t)}{_by(log, t)}{_and_elsewhere(log, window)}",
            t,
            outcome=_outcome(t),
            advice=_compensated(log, t, blocking.data_of(t), window.transactional_id),
            expected=decision,
            data_offsets=[t["first_offset"], t["last_offset"]],
            records=t["records"],
            partitions=sorted(window.partitions),
            prepare_offset=window.prepare.offset,
            decided=iso(window.prepare.time),
            before_the_decision=True if t["marker_timestamp"] < window.prepare.time else None,
        )


def _late_by_the_partition(log: LogView) -> Iterator[LateMarker]:
    # Late COMMIT markers where the coordinators' logs in the input do not tell.
    levels = log.cluster.levels
    if levels.get(VERSION, 0 if METADATA_VERSION in levels else 2) < 2:
        return
    for late in late_markers(log).values():
        t = late.row
        judged = t["marker_offset"] >= max(log.leader.log_start, 0) and not owner_complete(log, t["producer_id"])
        if judged and is_late(log, t):
            yield late


def _may_be_of_version_1(log: LogView, t: np.void, own: np.void | None) -> bool:
    # After a downgrade it would be the marker of a transaction of version 1.
    since = log.cluster.levels_since.get(VERSION)
    if since is None:
        return own is None or bool(own["commit"])
    return is_after(since, int(t["prev_marker_time"]))


def _shown_though_aborted(log: LogView, t: np.void, own: np.void) -> Finding:
    rest = blocking.data_of(own) if own["first_offset"] >= 0 else "no more data"
    return _at_marker(
        log,
        "error",
        f"Two markers ended one transaction of producer id {t['producer_id']} in {log.name}: a COMMIT ended "
        f"{blocking.data_of(t)}, the ABORT at offset {own['marker_offset']} ended {rest}. {_begun(_fate(t))}. The "
        "COMMIT is a late marker of the previous transaction (KIP-1228)",
        t,
        doubt=_may_be_of_version_1(log, t, own),
        outcome=_outcome(t),
        advice=_compensated(log, t, blocking.data_of(t), log.owner(int(t["producer_id"]))),
        expected="ABORT",
        data_offsets=[t["first_offset"], t["last_offset"]],
        records=t["records"],
        own_marker_offset=own["marker_offset"],
        confidence="likely",
    )


def _fate(t: np.void) -> str:
    return "consumers see aborted records" if t["commit"] else "read_committed consumers miss committed records"


def _begun(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _outcome(t: np.void) -> str:
    return "exposed" if t["commit"] else "hidden"


def _by(log: LogView, t: np.void) -> str:
    if not is_late(log, t):
        return ""
    by_hand = "" if t["commit"] else "an operator's abort, or "
    return f". Cause: {by_hand}a late marker of the previous transaction (KIP-1228)"


def _and_elsewhere(log: LogView, window: TransactionWindow) -> str:
    others = len(window.partitions - {log.name})
    if others == 1:
        return ". Its other partition is reported separately"
    return f". Its {plural(others, 'other partition')} are reported separately" if others else ""


def _compensated(log: LogView, t: np.void, data: str, transactional_id: str | None) -> Advice:
    # Kafka cannot repair it: consumers already got ``data``, or already missed it.
    again = sent_again(log.cluster.origin(transactional_id or ""), data)
    if t["commit"]:
        return Advice(Verdict.NOTIFY_OWNER, NOTHING_OPEN, steps=(Step(f"undo the effects of {data} downstream"),))
    dump = repairs.dump(log.leader.file(int(t["segment"])), "--print-data-log")
    to_read = "to read them: a consumer with isolation.level=read_uncommitted, or this command"
    steps = (Step(again), Step(to_read, dump, f"the records of {data}"))
    return Advice(Verdict.NOTIFY_OWNER, NOTHING_OPEN, steps=steps)


def _under_the_next_marker(log: LogView, ended: Ended) -> Finding:
    t, window = ended.row, ended.window
    first, _ = ended.span
    decision, result = ("ABORT", "COMMIT") if t["commit"] else ("COMMIT", "ABORT")
    skipped = of_the_defect(log, [window])
    of_next = f", data from offset {t['risen_offset']}" if ended.alone else ""
    advice = _compensated(log, t, ended.data(), window.transactional_id)
    return log.finding(
        "critical",
        f"The coordinator {PAST_TENSE[decision]} {window.transactional_id}, but {log.name} never received the "
        f"{decision} marker. A later transaction's {result} (offset {t['marker_offset']}{of_next}) "
        f"{PAST_TENSE[result]} {ended.data()} instead: {_fate(t)}{_and_elsewhere(log, window)}"
        + (f". {defect_in_words(log)}" if skipped else ""),
        segment=int(t["segment"]),
        offset=first,
        last_offset=t["marker_offset"],
        producer_id=window.producer_id,
        producer_epoch=t["producer_epoch"],
        transactional_id=window.transactional_id,
        time_ms=t["marker_timestamp"],
        position=t["position"] if first == t["first_offset"] else None,
        doubt=ended.doubt,
        outcome=_outcome(t),
        evidence=ended.evidence() | {"partitions": sorted(window.partitions)} | (skipped or {}),
        advice=until_it_is_fixed(advice) if skipped else advice,
    )


def _only_it_can_be(log: LogView, window: TransactionWindow, t: np.void) -> bool:
    # A later marker that closed data of the same epoch shows that the window's own data is there, unless the id's whole
    # history is known.
    if not owner_complete(log, t["producer_id"]) and window.client_version < 2:
        matched, rows = matching(log, int(t["producer_id"])), log.leader.transactions
        later = rows[(rows["producer_id"] == t["producer_id"]) & (rows["marker_offset"] > t["marker_offset"])]
        behind = later["marker_offset"][later["first_offset"] >= 0]
        if np.isin(behind, matched.markers[matched.numbers >= 0]).any():
            return False
    replica = log.leader
    whole = (
        replica.log_start <= 0
        and whole_from(log) <= 0
        and not (replica.starts_late or replica.unreadable or replica.absent)
    )
    return whole or t["prev_marker_offset"] >= 0 or _must_have_marker(log, window)


@rule(
    "marker-contradicts-decision",
    when={
        "hidden": "if the decision was COMMIT",
        "exposed": "if the decision was ABORT",
        "none": "if the marker ended no data",
    },
)
def marker_contradicts_decision(log: LogView) -> Iterator[Finding]:
    """A marker contradicts the coordinator's decision

    Checks: the result of a marker differs from the Prepare record of its transaction. A marker newer than the copy of
    __transaction_state is not judged in a compacted log. Its decision may be a later one, and the marker of the older
    decision is removed.
    Can be wrong: an operator aborted a hanging transaction of the same producer right before the decision.
    What to do: list both sides; look for manual aborts; compensate downstream.
    Source: KIP-98
    """
    for t in _judged_markers(log):
        window = contradicting_window(log, t)
        if window is None or marker_window(log, t) is not None or _may_be_of_a_later_one(log, window, t):
            continue
        assert window.prepare is not None
        yield _at_marker(
            log,
            "critical",
            f"The coordinator {'committed' if window.prepare.commit else 'aborted'} {window.transactional_id}, but "
            f"{log.name} has {'a COMMIT' if t['commit'] else 'an ABORT'} marker for this transaction",
            t,
            outcome=_outcome(t) if t["first_offset"] >= 0 else "none",
            expected="COMMIT" if window.prepare.commit else "ABORT",
            prepare_offset=window.prepare.offset,
            decided=iso(window.prepare.time),
        )


def _may_be_of_a_later_one(log: LogView, window: TransactionWindow, t: np.void) -> bool:
    # Files of a running broker are copied one after another: the decision may be newer than the coordinator's copy, and
    # the window's own marker compacted away.
    history, prepare = log.cluster.coordinator, window.prepare
    if history is None or prepare is None or _must_have_marker(log, window):
        return False
    other = other_clock(log, prepare.partition)
    decided = int(t["marker_timestamp"]) - ahead_ms(log, prepare.partition)
    return log.cluster.lacks(TRANSACTION_STATE, prepare.partition, decided, other_clock=other)


@rule(
    "marker-without-decision",
    when={
        "warning": "if it ended data",
        "info": "otherwise",
    },
)
def marker_without_decision(log: LogView) -> Iterator[Finding]:
    """A marker has no coordinator decision

    Checks: the complete history of the coordinator has no decision for the marker's producer id and epoch. A marker
    that ended a transaction as decided, in place of its missing marker, does not count (missing-marker reports it).
    Under transaction.version 2 a marker with the epoch and result of the previous one may end the next transaction's
    data: it is a late marker of the previous transaction. Brokers before 4.2 accept it (KIP-1228). Without
    __transaction_state only a COMMIT after a marker that bumped the epoch counts, with no other result after it.
    Why it matters: an operator wrote the marker, coordinator records were lost, or data was visible before a decision.
    Can be wrong: kafka-transactions.sh abort writes such a marker, with the coordinator epoch of the previous one. Then
    it is an info, and a warning while the coordinator has the transaction open: its COMMIT can no longer show the data.
    What to do: nothing if an operator aborted a transaction that its coordinator has ended. For another ABORT, ask who
    ran kafka-transactions.sh abort at that time; that tool writes no COMMIT. Otherwise check whether
    __transaction_state lost records (unclean-election, illegal-transition).
    Source: KIP-98, KIP-664, KIP-1228
    """
    if log.topic == TRANSACTION_STATE:
        return
    for row, own in _late_by_the_partition(log):
        if own is None or own["commit"]:
            yield _shown_early(log, row, own)
    last_epoch: dict[int, int] = {}
    for t in _judged_markers(log):
        producer_id = int(t["producer_id"])
        before = last_epoch.get(producer_id, -1)
        last_epoch[producer_id] = int(t["coordinator_epoch"])
        if not owner_complete(log, producer_id) or _decided(log, t) or contradicting_window(log, t) is not None:
            continue
        closed = t["first_offset"] >= 0
        by_hand = not t["commit"] and t["coordinator_epoch"] in (before, max(before, 0))
        late = closed and is_late(log, t)
        still = _open_still(log, t) if by_hand and closed else None
        finding = _at_marker(
            log,
            "warning" if closed and (still or not by_hand) else "info",
            f"The {'COMMIT' if t['commit'] else 'ABORT'} marker of producer id {producer_id} at offset "
            f"{t['marker_offset']} of {log.name} has no coordinator decision"
            + (": probably an operator's abort" if by_hand and closed else "")
            + (f" of the open transaction of {still.transactional_id}" if still else "")
            + (LATE.format(t["first_offset"], t["last_offset"], ", or" if by_hand else ": probably") if late else "")
            + (", and no transaction was open" if not closed else ""),
            t,
            previous_coordinator_epoch=before if before >= 0 else None,
            late_marker_of_the_transaction_before=True if late else None,
            confidence="likely",
        )
        advice = blocking.undecided_marker(log, t, closed=closed, by_hand=by_hand, still=still)
        yield replace(finding, advice=advice)


def _open_still(log: LogView, t: np.void) -> TransactionWindow | None:
    # The transaction that its coordinator may yet commit, and which this marker ended here.
    window, history = window_after(log, t), log.cluster.coordinator
    entry = None if history is None else history.last_of_producer(int(t["producer_id"]))
    if window is None or entry is None or entry.state != "Ongoing" or window.decided is not None:
        return None
    return window if entry.start == window.start_time and entry.start <= t["marker_timestamp"] else None


def _shown_early(log: LogView, t: np.void, own: np.void | None) -> Finding:
    return _at_marker(
        log,
        "warning",
        f"The COMMIT marker of producer id {t['producer_id']} at offset {t['marker_offset']} of {log.name} repeats the "
        "previous one" + LATE.format(t["first_offset"], t["last_offset"], ": probably"),
        t,
        doubt=_may_be_of_version_1(log, t, own),
        late_marker_of_the_transaction_before=True,
        own_marker_offset=None if own is None else own["marker_offset"],
        confidence="likely",
    )


def _decided(log: LogView, t: np.void) -> bool:
    # A decision still being sent counts, and so do repeated markers.
    history = log.cluster.coordinator
    if history is None or marker_window(log, t) is not None or t["repeated"] or as_decided_after_all(log, t):
        return True
    if begins_inside(log) and matching(log, int(t["producer_id"])).is_first(int(t["marker_offset"])):
        return True
    return log.cluster.coordinators_lack(int(t["producer_id"]), int(t["marker_timestamp"]))


@rule("unknown-coordinator-epoch", when={"info": "while it may be in flight"})
def unknown_coordinator_epoch(log: LogView) -> Iterator[Finding]:
    """A marker has a coordinator epoch that never existed

    Checks: the coordinator epoch of a marker is above the last leader epoch of the __transaction_state partition that
    owns its id. Its batches, its leader epoch checkpoint and the metadata show the last leader epoch.
    Why it matters: the marker comes from another cluster, or is forged.
    Can be wrong: __transaction_state was copied before the marker was written (reported as in flight).
    What to do: check whether this segment was copied or restored from another cluster (cluster.id in meta.properties);
    its markers then apply to that cluster. List the records up to them, and compensate downstream.
    Source: KIP-98
    """
    history = log.cluster.coordinator
    if history is None or log.topic == TRANSACTION_STATE:
        return
    reported: set[tuple[int, int]] = set()
    for t in _judged_markers(log):
        p = history.written_in(int(t["producer_id"]))
        key = (int(t["producer_id"]), int(t["coordinator_epoch"]))
        latest = -1 if p is None else history.highest_epochs.get(p, -1)
        if p is None or latest < 0 or t["coordinator_epoch"] <= latest or key in reported:
            continue
        reported.add(key)
        yield _at_marker(
            log,
            "error",
            f"A marker of producer id {t['producer_id']} in {log.name} has coordinator epoch {t['coordinator_epoch']}, "
            f"but the last epoch of {TRANSACTION_STATE}-{p} is {latest}",
            t,
            expected=latest,
            found=t["coordinator_epoch"],
            doubt=log.cluster.lacks(TRANSACTION_STATE, p, int(t["marker_timestamp"]), other_clock=True),
        )


# Completed transactions without a marker in a partition, and the later marker that ended their data.
#
# A coordinator that skips a partition (KAFKA-20734) leaves its data open. The marker of the application's next
# transaction then ends both, or an operator writes a marker.


DEFECT = policies.SKIPS_MARKERS
UNTIL_IT_IS_FIXED = (
    f"This recurs whenever a partition has no live leader as a transaction ends ({DEFECT.issue}, brokers "
    f"{DEFECT.releases}). Until a release has the fix, keep replication.factor at 3 and stop one broker at a time. "
    "Stop it only while no transaction is open in its partitions without another in-sync replica. Watch "
    "coordinator logs for 'likely deleted already and hence can be skipped'"
)


def until_it_is_fixed(advice: Advice) -> Advice:
    """Add to an advice how to prevent the defect."""
    return replace(
        advice, afterwards=f"{advice.afterwards}. {UNTIL_IT_IS_FIXED}" if advice.afterwards else UNTIL_IT_IS_FIXED
    )


@dataclass(frozen=True, slots=True)
class Ended:
    """Data of ``window``, whose own marker is missing, that the marker of ``row`` (TRANSACTION) ended.

    ``by``: the later transaction that sent this marker; None if no coordinator decided it. ``doubt``: the own marker
    may have been written before the data, and deleted by retention.
    """

    window: TransactionWindow
    row: np.void
    by: TransactionWindow | None
    doubt: bool = False

    @property
    def as_decided(self) -> bool:
        """Whether the marker has the result that was decided."""
        return self.window.prepare is not None and self.window.prepare.commit == bool(self.row["commit"])

    @property
    def sure(self) -> bool:
        """Whether epochs prove whose data it is; before transaction.version 2 only times do."""
        return self.window.client_version >= 2 and self._first

    @property
    def _first(self) -> bool:
        # Whether the data begins with this transaction, not with a skipped one before it.
        prepare = self.window.prepare
        by_epoch = self.window.client_version >= 2 and prepare is not None
        return not by_epoch or prepare is None or self.row["producer_epoch"] == prepare.producer_epoch - 1

    @property
    def span(self) -> tuple[int, int]:
        """First and last offset of the data; the last of both transactions where they share an epoch."""
        t = self.row
        if not self._first:
            return int(t["risen_offset"]), int(t["last_offset"])
        return int(t["first_offset"]), int(t["risen_behind"] if t["risen_offset"] >= 0 else t["last_offset"])

    @property
    def alone(self) -> bool:
        """Whether all data within :attr:`span` is of this transaction."""
        return self._first and (self.by is None or bool(self.row["risen_offset"] >= 0))

    def evidence(self) -> Fields:
        """Return the evidence: what was ended, and by which marker."""
        t, prepare = self.row, self.window.prepare
        first, last = self.span
        return {
            "expected": None if prepare is None else "COMMIT" if prepare.commit else "ABORT",
            "marker": "COMMIT" if t["commit"] else "ABORT",
            "marker_offset": t["marker_offset"],
            "marker_epoch": t["marker_epoch"],
            "transaction_first_offset": first,
            "data_offsets": [first, last],
            "ranges": [[first, last]],
            "records": (t["risen_records"] if t["risen_offset"] >= 0 else t["records"]) if self.alone else None,
            "next_first_offset": t["risen_offset"] if self.alone and t["risen_offset"] >= 0 else None,
            "ended_by": "a marker without a decision" if self.by is None else "the marker of a later transaction",
            "ended_by_prepare_offset": None if self.by is None or self.by.prepare is None else self.by.prepare.offset,
            "prepare_offset": None if prepare is None else prepare.offset,
            "complete_offset": None if self.window.complete is None else self.window.complete.offset,
            "decided": None if prepare is None else iso(prepare.time),
            "confidence": "proved" if self.sure else "likely",
        }

    def data(self) -> str:
        """Name the data's offsets in words."""
        first, last = self.span
        if self.alone:
            return f"offset {first}" if first == last else f"offsets {first}–{last}"
        return f"offset {first} on (including the next transaction's data, to {last})"


@once
def ended_by_another(log: LogView) -> dict[tuple[int, int, int], Ended]:
    """Find completed transactions without a marker here whose data a later marker ended, by :func:`skipped_key`.

    Skipped where an offset is missing in the marker's place or bytes could not be read: the marker was there and is
    lost. The log need not reach back to before the transaction: its data shows that it does. Computed once per log.
    """
    by_key: dict[tuple[int, int, int], Ended] = {}
    leader = log.leader
    broken = leader.unreadable or leader.absent or (leader.text and not leader.live)
    for window, between in () if broken else unmarked_windows(log):
        t = closed_behind(log, window.producer_id, between[0])
        if t is None or t["marker_offset"] > between[1] or _marker_was_there(log, between, t):
            continue
        by = marker_window(log, t)
        if _is_its(log, window, t, by) and (was := _was_open(log, window, between, t)) is not None:
            by_key[skipped_key(window)] = Ended(window, t, by, doubt=not was)
    return by_key


def skipped_key(window: TransactionWindow) -> tuple[int, int, int]:
    """Identify a prepared transaction."""
    assert window.prepare is not None
    return window.producer_id, window.prepare.partition, window.prepare.offset


def as_decided_after_all(log: LogView, t: np.void) -> bool:
    """Whether a marker without a decision carried out one whose own marker is missing."""
    return int(t["marker_offset"]) in _late_ends(log)


@once
def _late_ends(log: LogView) -> set[int]:
    ended = ended_by_another(log).values()
    return {int(e.row["marker_offset"]) for e in ended if e.by is None and e.as_decided}


def _is_its(log: LogView, window: TransactionWindow, t: np.void, by: TransactionWindow | None) -> bool:
    # Whether a closed stretch begins with data of a transaction that its marker was not sent for. Under
    # transaction.version 2 epochs tell; before it the data's times do: before the next transaction added the partition,
    # and not after this one's decision.
    prepare = window.prepare
    assert prepare is not None
    if by is None and not _may_end_by_hand(prepare.producer_epoch, window, t):
        return False
    if window.client_version >= 2:
        below = by is None or by.prepare is None or prepare.producer_epoch < by.prepare.producer_epoch
        epoch, first, last = prepare.producer_epoch - 1, int(t["producer_epoch"]), int(t["last_epoch"])
        fits = t["records"] - t["risen_records"] >= last - first  # a record at least of each epoch between
        return below and (epoch in (first, last) or (first < epoch < last and bool(fits)))
    own = own_window(log, t)
    if (
        own is None
        or own.prepare is None
        or skipped_key(own) != skipped_key(window)
        or t["first_offset"] < whole_from(log)
    ):
        return False
    began = log.time(t["first_time"])
    sooner = not is_after(began, prepare.time, one_clock=True)
    return by is None or (by.added is not None and began < by.added.time and sooner)


def _was_open(log: LogView, window: TransactionWindow, between: tuple[int, int], t: np.void) -> bool | None:
    # Whether the data was there before the decision of a transaction that it may be of: True, False (perhaps) or None
    # (no). An earlier marker of the producer, or the log start, proves it: the decision's own marker would then be
    # stored too. Otherwise retention may have deleted it; the data counts only if a marker behind it, or its stamps
    # corrected for a slow client clock, place it before the decision.
    prepare, start = window.prepare, log.leader.log_start
    assert prepare is not None
    if start <= 0 or between[0] >= start or window.client_version >= 2:
        return True
    apart = beyond_ms(skew(log, prepare.partition), one_clock=True)
    _, latest = around(log, window.producer_id, int(t["first_offset"]))
    began, producer_rows = log.time(t["first_time"]), closed(log)
    producer_rows = producer_rows[producer_rows["producer_id"] == window.producer_id]
    slow = max(0, int((producer_rows["marker_timestamp"] - producer_rows["last_timestamp"]).min(initial=1 << 62)))
    if 0 <= latest <= prepare.time - apart or began + slow <= prepare.time - apart:
        return True
    return False if began <= prepare.time else None


def _may_end_by_hand(epoch: int, window: TransactionWindow, t: np.void) -> bool:
    # kafka-transactions.sh writes an abort with the epoch of the data.
    of_data = not t["commit"] and t["marker_epoch"] == t["last_epoch"] and window.client_version >= 2
    return bool(t["marker_epoch"] == epoch or of_data)


def _marker_was_there(log: LogView, between: tuple[int, int], t: np.void) -> bool:
    # A single offset missing there was the marker.
    low, high = np.searchsorted(_single_holes(log), [max(between[0], int(t["first_offset"])), between[1]])
    return bool(low < high)


@once
def _single_holes(log: LogView) -> np.ndarray:
    holes = log.events(EventKind.OFFSET_HOLE)
    single = [e["base_offset"] for e in holes if e["first_missing_offset"] + 1 == e["base_offset"]]
    return np.array(sorted(single), np.int64) - 1


def of_the_defect(log: LogView, windows: Iterable[TransactionWindow]) -> Fields | None:
    """Return evidence that the coordinator completed one of these while the partition had no leader (KAFKA-20734).

    None where it did not, or an unclean election may have lost the marker. Brokers with the defect do so instead of
    waiting for a leader.
    """
    history = log.cluster.coordinator
    if any(not e.clean and not e.only_its_own_tail for e in log.cluster.elected(log.topic, log.partition)):
        return None
    for window in windows:
        done = window.complete
        broker = None if history is None or done is None else history.brokers.get(done.partition)
        if done is None or not log.cluster.release(broker).may_have(DEFECT):
            continue
        for gone in log.cluster.leaderless.get((log.topic, log.partition), ()):
            if not is_after(gone.since, done.record_time) and (gone.until is None or done.record_time <= gone.until):
                return {
                    "known_defect": DEFECT.issue,
                    "completed": iso(done.record_time),
                    "no_leader_from": iso(gone.since),
                    "no_leader_until": None if gone.until is None else iso(gone.until),
                }
    return None


def defect_in_words(log: LogView) -> str:
    """Describe what the defect did."""
    return (
        f"The coordinator completed it while {log.name} had no leader, and sent no marker: brokers {DEFECT.releases} "
        f"treat such a partition as deleted ({DEFECT.issue})"
    )
