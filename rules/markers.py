"""Rules on the markers in a partition against the coordinators' decisions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from auditor.base.advice import Advice, Verdict, sent_again
from auditor.base.words import plural
from auditor.facts.coordinator_history import SKEW_MS, TransactionWindow
from auditor.rules.catalogue.registry import rule
from auditor.rules.lib import repairs
from auditor.rules.lib.log_bounds import whole_from
from auditor.rules.resolution.resolve import in_flight
from auditor.rules.seen.view import Finding, LogView, iso
from auditor.rules.transactions import blocking
from auditor.rules.transactions.coordinated import (
    Ended,
    as_decided_after_all,
    defect_in_words,
    ended_by_another,
    of_the_defect,
    skipped_key,
    until_it_is_fixed,
)
from auditor.rules.transactions.open_transactions import ahead_ms, closed, ended_behind, must_have_marker, open_of
from auditor.transactions.matching import (
    SAME_CLOCK_MS,
    LateMarker,
    begins_inside,
    contradicting_window,
    is_late,
    late_markers,
    marker_window,
    matching,
    own_window,
    owner_complete,
    skew,
    unmarked_windows,
)

TOPIC = "__transaction_state"
VERSION, METADATA_VERSION = "transaction.version", "metadata.version"
LATE = "{2} it is a late marker of the transaction before, which ended offsets {0} to {1} early (KIP-1228)"


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
            **evidence,
        },
        doubt=doubt,
        outcome=outcome,
    )


NOTHING_OPEN = "nothing of it is open, so there is nothing to abort"
CLOCKS = "how far the clocks of its leader and its coordinator differ"
NOT_YET = "{count} transactions were decided and completed, but {log} has no markers of them: files may be older"


@rule(
    "missing-marker",
    when={
        "info": "while it may be in flight, or where a later marker ended its data as decided",
        "at_risk": "where none of its data is open",
    },
    together=in_flight(NOT_YET),
)
def missing_marker(log: LogView) -> Iterator[Finding]:
    """A completed transaction never got its marker here

    Checks: an id's record says that its transaction is complete, this partition was part of it, nothing was cleaned or
    retained away since, and there is no marker of that producer, epoch and result. Where a later marker with the same
    result ended its data (the next transaction's, or one written by hand), that is an information; where one with the
    other result did, split-decision.
    Can be wrong: the partition was deleted and recreated; files copied at different times (then said as in flight).
    Where one offset is missing in its place, that hole is in the evidence.
    What to do: for an ABORT decision abort as a hanging transaction; for a COMMIT decision do not abort: an in-sync
    replica that has the marker, and lacks nothing, may lead; else the marker has to be written again. Nothing where its
    data was ended already.
    Source: KIP-98
    """
    history = log.cluster.coordinator
    if history is None or log.topic == TOPIC:
        return
    ended = ended_by_another(log)
    for window, between in unmarked_windows(log):
        after_all = ended.get(skipped_key(window))
        if after_all is not None and after_all.as_decided:
            yield _late(log, after_all)
        elif must_have_marker(log, window, between[0]) and not ended_behind(log, window):
            yield _missing(log, window, between)


def _late(log: LogView, ended: Ended) -> Finding:
    # Ended as decided: nothing is open, nothing has to be done.
    window, marker = ended.window, "COMMIT" if ended.row["commit"] else "ABORT"
    first, last = ended.span
    other = "that no coordinator sent" if ended.by is None else "of a later transaction of its"
    return log.finding(
        "info",
        f"The {marker} marker of {window.transactional_id} never came to {log.name}: its data at {ended.data()} was "
        f"ended as decided, late, by the {marker} at offset {ended.row['marker_offset']} {other}",
        segment=int(ended.row["segment"]),
        offset=first,
        last_offset=last,
        producer_id=window.producer_id,
        producer_epoch=ended.row["producer_epoch"],
        transactional_id=window.transactional_id,
        time_ms=ended.row["marker_timestamp"],
        evidence=ended.evidence() | (of_the_defect(log, [window]) or {}),
        advice=until_it_is_fixed(Advice(Verdict.DO_NOT_ACT, NOTHING_OPEN)),
    )


def _missing(log: LogView, window: TransactionWindow, between: tuple[int, int]) -> Finding:
    prepare, complete = window.prepare, window.complete
    assert prepare is not None
    assert complete is not None
    other = skew(log, prepare.partition) > SAME_CLOCK_MS
    end = -1 if window.end_time is None else window.end_time + ahead_ms(log, prepare.partition, complete)
    in_flight = log.doubt(end, other_clock=other, committed=True) and between[1] >= log.leader.log_end
    clocks = matching(log, window.producer_id).inconclusive
    opened = open_of(log, window.producer_id)
    row = opened[0].row if opened else None
    unseen = window.producer_id not in log.leader.producers["producer_id"]
    newer = unseen and not len(closed(log))  # perhaps: no broker's clock says when this log began
    rival = row is None and log.topic in log.cluster.incarnations.rivals
    decision = "COMMIT" if prepare.commit else "ABORT"
    return log.finding(
        "info" if clocks else "critical",
        f"{window.transactional_id} decided {decision} and completed, but {log.name} has no such marker"
        + (": the file may have been copied before it came" if in_flight else "")
        + (": another topic of this name may have it" if rival and not in_flight else "")
        + (": the topic may have been made again since" if newer and not (in_flight or rival) else "")
        + (f": unknown is {CLOCKS}" if clocks and not (in_flight or newer or rival) else ""),
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
        },
        if_true="critical" if clocks else None,
        doubt=in_flight or newer or rival,
        outcome="at_risk" if row is None else "blocked",
        advice=None if row is None else blocking.advise(log, opened[0]),
    )


@rule(
    "split-decision",
    when={
        "error": "where only the partition shows it, as a late COMMIT marker",
        "info": "where retention may have taken its own marker",
        "hidden": "where COMMIT was decided",
        "exposed": "where ABORT was decided",
    },
)
def split_decision(log: LogView) -> Iterator[Finding]:
    """A transaction was ended here otherwise than its coordinator decided

    Checks: a marker that closed data with another result than the coordinator decided for the transaction which that
    data belongs to (by producer id, epoch, and the order of markers), where no earlier marker in the partition had
    carried the decision out; at any time before or after the decision, whoever wrote it: an operator, the producer's
    next transaction after its coordinator had skipped this partition (KAFKA-20734: the finding is then about the data,
    up to that marker), or the transaction before it, whose marker came late (KIP-1228). A later marker with the right
    result finds the data closed and does not make it whole. Without the coordinator's log, a COMMIT marker that repeats
    epoch and result of the one before it, which had raised the epoch (transaction.version 2), over data of that epoch
    is late where an ABORT of the next epoch ended the rest.
    Can be wrong: one transaction of version 1 after a downgrade looks like a late marker; clocks of two brokers more
    than 30 s apart, or records of clients that are stamped with another time than the clock's. Late data behind a
    decision that was carried out is none, nor is a partition that was added and never written to. Not judged is a
    marker newer than the copy of __transaction_state behind a cleaned part: the data may be of a later transaction.
    Nor is one whose decision the coordinator's log lost (coordinator-log-restored).
    What to do: list both sides; look for aborts by hand; compensate downstream. Nothing of it is open, so there is
    nothing to abort. Never abort by hand what the coordinator has prepared to commit.
    Source: KIP-98, KIP-664, KIP-1228
    """
    history = log.cluster.coordinator
    if log.topic == TOPIC:
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
        if history is not None and history.lost(window.prepare.partition, int(t["marker_timestamp"])):
            continue
        # The cleaner may have removed the window's own marker before this data, which is then of a later transaction.
        own_gone = t["prev_marker_offset"] < whole_from(log)
        if not _only_it_can_be(log, window, t) or (own_gone and _may_be_of_a_later_one(log, window, t)):
            continue
        decision, result = ("COMMIT", "ABORT") if window.prepare.commit else ("ABORT", "COMMIT")
        yield _at_marker(
            log,
            "critical",
            f"The transaction of {window.transactional_id} was decided {decision}, but {log.name} has {result} for its "
            f"data from offset {t['first_offset']} to {t['last_offset']}: {_fate(t)}{_by(log, t)}"
            f"{_and_elsewhere(log, window)}",
            t,
            outcome=_outcome(t),
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
    return since > t["prev_marker_time"] + SKEW_MS


def _shown_though_aborted(log: LogView, t: np.void, own: np.void) -> Finding:
    rest = f"offsets {own['first_offset']} to {own['last_offset']}" if own["first_offset"] >= 0 else "no more data"
    return _at_marker(
        log,
        "error",
        f"A transaction of producer {t['producer_id']} was split in {log.name}: a COMMIT ended offsets "
        f"{t['first_offset']} to {t['last_offset']}, the ABORT at {own['marker_offset']} ended {rest}: {_fate(t)}; the "
        f"COMMIT is a late marker of the transaction before it (KIP-1228)",
        t,
        doubt=_may_be_of_version_1(log, t, own),
        outcome=_outcome(t),
        expected="ABORT",
        data_offsets=[t["first_offset"], t["last_offset"]],
        records=t["records"],
        own_marker_offset=own["marker_offset"],
        confidence="likely",
    )


def _fate(t: np.void) -> str:
    return "visible though aborted" if t["commit"] else "gone for read_committed readers"


def _outcome(t: np.void) -> str:
    return "exposed" if t["commit"] else "hidden"


def _by(log: LogView, t: np.void) -> str:
    if not is_late(log, t):
        return ""
    by_hand = "" if t["commit"] else "an operator's abort, or "
    return f"; ended by {by_hand}a late marker of the transaction before it (KIP-1228)"


def _and_elsewhere(log: LogView, window: TransactionWindow) -> str:
    others = len(window.partitions - {log.name})
    return (
        f"; it had {plural(others, 'other partition')}, of which each is judged by what it has itself" if others else ""
    )


def _under_the_next_marker(log: LogView, ended: Ended) -> Finding:
    t, window = ended.row, ended.window
    first, _ = ended.span
    decision, result = ("ABORT", "COMMIT") if t["commit"] else ("COMMIT", "ABORT")
    skipped = of_the_defect(log, [window])
    of_next = f" (data from offset {t['risen_offset']} on)" if ended.alone else ""
    amends = (
        f"undo downstream what came of {ended.data()}"
        if t["commit"]
        else f"{sent_again(window.transactional_id, ended.data())}; readers with isolation.level=read_uncommitted, and "
        f"{repairs.dump(None, '--print-data-log')}, still show them"
    )
    advice = Advice(Verdict.DO_NOT_ACT, NOTHING_OPEN, then=f"compensate: {amends}")
    return log.finding(
        "critical",
        f"The transaction of {window.transactional_id} was decided {decision}, its marker never came to {log.name}; "
        f"there the {result} at offset {t['marker_offset']}, of a later transaction{of_next}, ended its data at "
        f"{ended.data()}: {_fate(t)}{_and_elsewhere(log, window)}" + (f". {defect_in_words(log)}" if skipped else ""),
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
    return whole or t["prev_marker_offset"] >= 0 or must_have_marker(log, window)


@rule(
    "marker-contradicts-decision",
    when={
        "hidden": "where COMMIT was decided",
        "exposed": "where ABORT was decided",
        "none": "where the marker ended no data",
    },
)
def marker_contradicts_decision(log: LogView) -> Iterator[Finding]:
    """A marker says the opposite of what the coordinator decided

    Checks: a marker whose result differs from the Prepare record of its transaction. Not judged is a marker that is
    newer than the copy of __transaction_state where the log was cleaned: its decision may be one that came later, and
    the marker of the older decision is gone.
    Can be wrong: an operator aborted a hanging transaction of the same producer right before the decision.
    What to do: list both sides; look for aborts by hand; compensate downstream.
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
            f"{log.name} has a {'COMMIT' if t['commit'] else 'ABORT'} marker for the transaction of "
            f"{window.transactional_id} that was decided {'COMMIT' if window.prepare.commit else 'ABORT'}",
            t,
            outcome=_outcome(t) if t["first_offset"] >= 0 else "none",
            expected="COMMIT" if window.prepare.commit else "ABORT",
            prepare_offset=window.prepare.offset,
            decided=iso(window.prepare.time),
        )


def _may_be_of_a_later_one(log: LogView, window: TransactionWindow, t: np.void) -> bool:
    # Files of a running broker are copied one after another: the decision may be newer than the coordinator's copy, and
    # the window's own marker cleaned away.
    history, prepare = log.cluster.coordinator, window.prepare
    if history is None or prepare is None or must_have_marker(log, window):
        return False
    other = skew(log, prepare.partition) > SAME_CLOCK_MS
    decided = int(t["marker_timestamp"]) - ahead_ms(log, prepare.partition)
    return log.cluster.lacks(TOPIC, prepare.partition, decided, other_clock=other)


@rule(
    "marker-without-decision",
    when={
        "warning": "if it closed something",
        "info": "else",
    },
)
def marker_without_decision(log: LogView) -> Iterator[Finding]:
    """A marker was written that no coordinator decided

    Checks: a marker of a producer and epoch for which the coordinator's whole history has no decision. One that ended a
    decided transaction as decided, where its own marker never came, is none (missing-marker says so). Under
    transaction.version 2 one with epoch and result of the marker before it that ended the next transaction's data may
    be that transaction's, late: brokers before 4.2 take it (KIP-1228). Without the coordinator's log that is said of a
    COMMIT after one that had raised the epoch, and before no other result.
    Why it matters: somebody wrote it by hand, coordinator records were lost, or data was shown before it was decided.
    Can be wrong: kafka-transactions.sh abort writes such a marker, with the coordinator epoch of the one before it
    (then info).
    What to do: nothing of an abort by hand. Of another ABORT ask who ran kafka-transactions.sh abort then, which writes
    no COMMIT; else look whether __transaction_state lost records (unclean-election, illegal-transition).
    Source: KIP-98, KIP-664, KIP-1228
    """
    if log.topic == TOPIC:
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
        finding = _at_marker(
            log,
            "warning" if closed and not by_hand else "info",
            f"No coordinator decided the {'COMMIT' if t['commit'] else 'ABORT'} of producer {producer_id} at offset "
            f"{t['marker_offset']} of {log.name}"
            + ("; it looks like an operator's abort" if by_hand and closed else "")
            + (LATE.format(t["first_offset"], t["last_offset"], " or" if by_hand else ";") if late else "")
            + ("; it closed nothing" if not closed else ""),
            t,
            previous_coordinator_epoch=before if before >= 0 else None,
            late_marker_of_the_transaction_before=True if late else None,
            confidence="likely",
        )
        yield replace(finding, advice=blocking.undecided_marker(t, closed=closed, by_hand=by_hand))


def _shown_early(log: LogView, t: np.void, own: np.void | None) -> Finding:
    return _at_marker(
        log,
        "warning",
        f"The COMMIT of producer {t['producer_id']} at offset {t['marker_offset']} of {log.name} repeats the last one;"
        + LATE.format(t["first_offset"], t["last_offset"], ""),
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
    """A marker has a coordinator epoch that never was

    Checks: a marker whose coordinator epoch lies above the last leader epoch of the __transaction_state partition that
    owns its id, by its batches, its leader epoch checkpoint and the metadata.
    Why it matters: the marker comes from another cluster, or was forged.
    Can be wrong: __transaction_state was copied before the marker came (then the finding says so: in flight).
    What to do: look whether this segment was copied or restored from another cluster (cluster.id in meta.properties):
    what its markers decided holds there. List the records up to them, and compensate downstream.
    Source: KIP-98
    """
    history = log.cluster.coordinator
    if history is None or log.topic == TOPIC:
        return
    reported: set[tuple[int, int]] = set()
    for t in _judged_markers(log):
        p = history.written_in(int(t["producer_id"]))
        key = (int(t["producer_id"]), int(t["coordinator_epoch"]))
        latest = -1 if p is None else history.leader_epochs.get(p, -1)
        if p is None or latest < 0 or t["coordinator_epoch"] <= latest or key in reported:
            continue
        reported.add(key)
        yield _at_marker(
            log,
            "error",
            f"A marker of producer {t['producer_id']} in {log.name} has coordinator epoch {t['coordinator_epoch']}; "
            f"the last one of {TOPIC}-{p} is {latest}",
            t,
            expected=latest,
            found=t["coordinator_epoch"],
            doubt=log.cluster.lacks(TOPIC, p, int(t["marker_timestamp"]), other_clock=True),
        )
