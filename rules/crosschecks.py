"""Rules that hold what the coordinators wrote against what the partitions have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rules.finding import Finding, iso
from rules.history import SKEW_MS, CoordinatorHistory, Entry, Window
from rules.open_transactions import open_transactions
from rules.registry import rule
from rules.view import LogView, arrived
from rules.windows import contradicting_window, marker_window, owner_complete, skew, unmarked_windows

FAMILY = "cross-checks"
TOPIC = "__transaction_state"


def _judged_markers(log: LogView) -> np.ndarray:
    rows = log.leader.transactions
    return rows[rows["marker_offset"] >= max(log.leader.log_start, 0)]


def _at_marker(log: LogView, rule_id: str, severity: str, message: str, t: np.void, **evidence: Any) -> Finding:
    return log.finding(
        rule_id,
        severity,
        message,
        segment=int(t["marker_segment"]),
        offset=t["marker_offset"],
        last_offset=t["marker_offset"],
        producer_id=t["producer_id"],
        producer_epoch=t["marker_epoch"],
        transactional_id=log.owner(t["producer_id"]),
        time_ms=t["marker_timestamp"],
        position=t["marker_position"],
        evidence={
            "marker": "COMMIT" if t["commit"] else "ABORT",
            "coordinator_epoch": t["coordinator_epoch"],
            "transaction_first_offset": t["first_offset"] if t["first_offset"] >= 0 else None,
            **evidence,
        },
    )


@rule("missing-marker", family=FAMILY, severity="critical; info while it may be in flight")
def missing_marker(log: LogView) -> Iterator[Finding]:
    """A completed transaction never got its marker here

    Checks: an id's record says that its transaction is complete, this partition was part of it, nothing was cleaned or
    retained away since, and there is no marker of that producer, epoch and result.
    Why it matters: the data stays undecided for ever: read_committed consumers stop before it.
    Can be wrong: the partition was deleted and created anew; files copied at different times (then said as in flight).
    What to do: for an ABORT decision abort as a hanging transaction; for a COMMIT decision do not abort: restore from a
    replica that has the marker.
    Source: KIP-98; semantics 3.14 X4
    """
    history = log.cluster.coordinator
    if history is None or log.topic == TOPIC:
        return
    for window in unmarked_windows(log, history):
        if _must_have_marker(log, window):
            yield _missing(log, window)


def _must_have_marker(log: LogView, window: Window) -> bool:
    """Whether the log reaches back far enough, uncleaned, that the window's marker would still be in it."""
    prepare, copy = window.prepare, log.leader
    assert prepare is not None
    if copy.state.get("unreadable") or copy.absent or (copy.text and not copy.state.get("live")):
        return False
    first_time = int(copy.state.get("first_time", -1))
    begin = window.start_time if window.start_time >= 0 else prepare.time
    if first_time < 0 or first_time > begin - (0 if copy.log_start == 0 else SKEW_MS):
        return False
    if log.intact_from() <= copy.log_start:
        return True
    cleaned = [time for base, time in zip(copy.segment_bases[1:], copy.segment_times, strict=False)
               if base <= log.intact_from()]  # fmt: skip
    return begin > max(cleaned, default=-1) + SKEW_MS


def _missing(log: LogView, window: Window) -> Finding:
    prepare, complete = window.prepare, window.complete
    assert prepare is not None
    assert complete is not None
    other = skew(log, prepare.partition) > 1_000
    in_flight = log.in_flight(window.end_time or -1, other_clock=other)
    opened = [t for t in open_transactions(log) if int(t.row["producer_id"]) == window.producer_id]
    row = opened[0].row if opened else None
    decision = "COMMIT" if prepare.commit else "ABORT"
    return log.finding(
        "missing-marker",
        "info" if in_flight else "critical",
        f"{window.transactional_id} decided {decision} and completed, but {log.name} has no such marker"
        + (": the file may have been copied before it came" if in_flight else ""),
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
            "decided": iso(prepare.time),
            "in_flight": True if in_flight else None,
        },
        remedy=""
        if row is None
        else (
            "Do not abort: restore the marker from a replica that has it"
            if prepare.commit
            else f"kafka-transactions.sh --bootstrap-server B abort --topic {log.topic} --partition {log.partition} "
            f"--start-offset {row['first_offset']}"
        ),
    )


@rule("split-decision", family=FAMILY, severity="critical")
def split_decision(log: LogView) -> Iterator[Finding]:
    """One transaction was committed in one partition and aborted in another

    Checks: the markers of one transaction (under transaction.version 2 the same producer and epoch, before that the
    same decision of the coordinator) differ in their result; told at the partition that differs from the decision.
    Why it matters: the transaction is not atomic any more.
    Can be wrong: two short transactions taken for one (said only with the whole history of the id).
    What to do: list both sides; look for aborts by hand; compensate downstream.
    Source: KIP-98; semantics 3.14 X5
    """
    for t in _judged_markers(log):
        window = contradicting_window(log, t) if owner_complete(log, t["producer_id"]) else None
        if window is None or t["first_offset"] < 0 or window.complete is None or len(window.partitions) < 2:
            continue
        assert window.prepare is not None
        yield _at_marker(
            log,
            "split-decision",
            "critical",
            f"The transaction of {window.transactional_id} was decided "
            f"{'COMMIT' if window.prepare.commit else 'ABORT'} "
            f"for {len(window.partitions)} partitions, but {log.name} has {'COMMIT' if t['commit'] else 'ABORT'}",
            t,
            partitions=sorted(window.partitions),
            prepare_offset=window.prepare.offset,
        )


@rule("marker-contradicts-decision", family=FAMILY, severity="critical")
def marker_contradicts_decision(log: LogView) -> Iterator[Finding]:
    """A marker says the opposite of what the coordinator decided

    Checks: a marker whose result differs from the Prepare record of its transaction.
    Why it matters: committed data is hidden, or aborted data is read as committed.
    Can be wrong: an operator aborted a hanging transaction of the same producer right before the decision.
    What to do: list both sides; look for aborts by hand; compensate downstream.
    Source: KIP-98; semantics 3.14 X6
    """
    for t in _judged_markers(log):
        window = contradicting_window(log, t)
        if window is None or marker_window(log, t) is not None:
            continue
        assert window.prepare is not None
        yield _at_marker(
            log,
            "marker-contradicts-decision",
            "critical",
            f"{log.name} has a {'COMMIT' if t['commit'] else 'ABORT'} marker for the transaction of "
            f"{window.transactional_id} that was decided {'COMMIT' if window.prepare.commit else 'ABORT'}",
            t,
            expected="COMMIT" if window.prepare.commit else "ABORT",
            prepare_offset=window.prepare.offset,
            decided=iso(window.prepare.time),
        )


@rule("marker-without-decision", family=FAMILY, severity="warning if it closed something, else info")
def marker_without_decision(log: LogView) -> Iterator[Finding]:
    """A marker was written that no coordinator decided

    Checks: a marker of a producer and epoch for which the coordinator's whole history has no decision.
    Why it matters: somebody wrote it by hand, or coordinator records were lost.
    Can be wrong: kafka-transactions.sh abort writes such a marker, with the coordinator epoch of the one before it
    (then info).
    What to do: confirm with the operators' log.
    Source: KIP-98, KIP-664; semantics 3.14 X7
    """
    if log.topic == TOPIC:
        return
    last_epoch: dict[int, int] = {}
    for t in _judged_markers(log):
        producer_id = int(t["producer_id"])
        before = last_epoch.get(producer_id, -1)
        last_epoch[producer_id] = int(t["coordinator_epoch"])
        if not owner_complete(log, producer_id) or _decided(log, t) or contradicting_window(log, t) is not None:
            continue
        closed = t["first_offset"] >= 0
        by_hand = not t["commit"] and t["coordinator_epoch"] in (before, max(before, 0))
        yield _at_marker(
            log,
            "marker-without-decision",
            "warning" if closed and not by_hand else "info",
            f"No coordinator decided the {'COMMIT' if t['commit'] else 'ABORT'} of producer {producer_id} at offset "
            f"{t['marker_offset']} of {log.name}"
            + ("; it looks like an operator's abort" if by_hand and closed else "")
            + ("; it closed nothing" if not closed else ""),
            t,
            previous_coordinator_epoch=before if before >= 0 else None,
            confidence="likely",
        )


def _decided(log: LogView, t: np.void) -> bool:
    """Whether some decision of the producer explains the marker; one still being sent counts, and so do repeats."""
    history = log.cluster.coordinator
    if history is None or marker_window(log, t) is not None or t["repeat"]:
        return True
    entries = history.by_producer.get(int(t["producer_id"]), [])
    partition = entries[-1].partition if entries else None
    times = [history.times.get(partition, -1)] if partition is not None else list(history.times.values())
    clean = [history.clean.get(partition, False)] if partition is not None else list(history.clean.values())
    stamp = int(t["marker_timestamp"])
    return not all(arrived(at, ok, stamp, other_clock=True) for at, ok in zip(times, clean, strict=True))


@rule("partition-not-in-transaction", family=FAMILY, severity="error")
def partition_not_in_transaction(log: LogView) -> Iterator[Finding]:
    """Data was written to a partition that its transaction did not have

    Checks: transactional data whose epoch has records of the coordinator, none of which names this partition up to its
    marker, with the whole history of the id in the input.
    Why it matters: the client skipped AddPartitionsToTxn, or the write came late: no marker will come for it.
    Can be wrong: the clocks of two brokers (30 s are allowed for).
    What to do: turn on transaction.partition.verification.enable; see hanging-transaction while it is open.
    Source: KIP-890; semantics 3.14 X8
    """
    history = log.cluster.coordinator
    if history is None or log.topic == TOPIC:
        return
    for t in log.leader.transactions:
        if t["first_offset"] < log.leader.log_start or not owner_complete(log, t["producer_id"]):
            continue
        ongoing = [e for e in history.by_producer.get(int(t["producer_id"]), []) if e.state == "Ongoing"]
        same = [e for e in ongoing if e.producer_epoch == t["producer_epoch"]]
        if not same or _named(log, same, t) or not _seen(log, history, t, same[-1]):
            continue
        if t["marker_offset"] >= 0 and not t["commit"] and marker_window(log, t) is None:
            continue  # an operator's abort ended it: late-write-after-marker and marker-without-decision tell
        yield _not_in_transaction(log, t, same[-1])


def _named(log: LogView, entries: list[Entry], t: np.void) -> bool:
    """Whether an Ongoing record between the producer's marker before and the one behind names this partition.

    What stands between the two markers tells when the data came; its own stamps may be of any time.
    """
    after = int(t["prev_marker_time"]) - SKEW_MS if t["prev_marker_offset"] >= 0 else -1
    until = int(t["marker_timestamp"]) + SKEW_MS if t["marker_offset"] >= 0 else None
    named = [e.time for e in entries if log.name in e.partitions]
    return any(time >= after and (until is None or time <= until) for time in named)


def _seen(log: LogView, history: CoordinatorHistory, t: np.void, entry: Entry) -> bool:
    time = log.time(t["last_time"])
    copied, clean = history.times.get(entry.partition, -1), history.clean.get(entry.partition, False)
    return arrived(copied, clean, time, other_clock=True)


def _not_in_transaction(log: LogView, t: np.void, entry: Entry) -> Finding:
    return log.finding(
        "partition-not-in-transaction",
        "error",
        f"Producer {t['producer_id']} ({entry.transactional_id}) wrote to {log.name} at offset {t['first_offset']}, a "
        "partition that its transaction does not have",
        segment=int(t["segment"]),
        offset=t["first_offset"],
        last_offset=t["last_offset"],
        producer_id=t["producer_id"],
        producer_epoch=t["producer_epoch"],
        transactional_id=entry.transactional_id,
        time_ms=log.time(t["first_time"]),
        position=t["position"],
        evidence={"partitions": sorted(entry.partitions), "coordinator_offset": entry.offset, "records": t["records"]},
    )


@rule("data-epoch-ahead-of-coordinator", family=FAMILY, severity="critical; info while it may be in flight")
def data_epoch_ahead_of_coordinator(log: LogView) -> Iterator[Finding]:
    """Data has an epoch that the coordinator never gave

    Checks: transactional data of a producer id with a higher epoch than any record of its id.
    Why it matters: the coordinator's state went back, after an unclean election or a restore: zombies may pass.
    Can be wrong: __transaction_state was copied before the data (then said as in flight).
    What to do: restart the producers so that they initialise again; set unclean.leader.election.enable=false.
    Source: KIP-360; semantics 3.14 X9
    """
    history = log.cluster.coordinator
    if history is None or log.topic == TOPIC:
        return
    producers = log.leader.producers
    for p in producers[(producers["transactional"] == 1) & (producers["batches"] > 0)]:
        entries = history.by_producer.get(int(p["producer_id"]), [])
        highest = max((e.producer_epoch for e in entries), default=-1)
        if not entries or p["max_data_epoch"] <= highest:
            continue
        time = log.time(p["max_data_epoch_time"])
        partition = entries[-1].partition
        other = skew(log, partition) > 1_000
        seen = arrived(history.times.get(partition, -1), history.clean.get(partition, False), time, other_clock=other)
        yield log.finding(
            "data-epoch-ahead-of-coordinator",
            "critical" if seen else "info",
            f"Producer {p['producer_id']} wrote with epoch {p['max_data_epoch']} in {log.name}, the coordinator "
            f"knows of "
            f"{highest} at most",
            offset=p["max_data_epoch_offset"],
            last_offset=p["data_last_offset"],
            producer_id=p["producer_id"],
            producer_epoch=p["max_data_epoch"],
            transactional_id=entries[-1].transactional_id,
            time_ms=time,
            evidence={"expected": highest, "found": p["max_data_epoch"], "in_flight": None if seen else True},
        )


@rule("producer-id-not-allocated", family=FAMILY, severity="error; info while it may be in flight")
def producer_id_not_allocated(log: LogView) -> Iterator[Finding]:
    """Data has a producer id that this cluster has not given out yet

    Checks: data of a producer id at or above the allocator's next one in __cluster_metadata.
    Why it matters: the data comes from another cluster, or the allocator was reset: ids will collide.
    Can be wrong: the metadata log was copied before the data (then said as in flight).
    What to do: do not let old producers write; find out where the segments come from.
    Source: KIP-730; semantics 3.14 X12
    """
    limit = log.cluster.next_producer_id
    if limit is None:
        return
    producers = log.leader.producers
    foreign = producers[(producers["producer_id"] >= limit) & (producers["batches"] > 0)]
    if not len(foreign):
        return
    p = foreign[np.argmin(foreign["first_offset"])]
    time = log.time(p["first_time"])
    seen = arrived(log.cluster.metadata_time, log.leader.clean_shutdown, time, other_clock=True)
    yield log.finding(
        "producer-id-not-allocated",
        "error" if seen else "info",
        f"{len(foreign)} producer id(s) in {log.name}, the first {p['producer_id']}, were never given out by this "
        f"cluster, whose next one is {limit}",
        segment=int(p["first_segment"]),
        offset=p["first_offset"],
        last_offset=p["data_last_offset"],
        producer_id=p["producer_id"],
        producer_epoch=p["first_epoch"],
        time_ms=time,
        position=p["first_position"],
        evidence={"next_producer_id": limit, "producers": len(foreign), "in_flight": None if seen else True},
    )


@rule("expired-id-still-producing", family=FAMILY, severity="warning", time=True)
def expired_id_still_producing(log: LogView) -> Iterator[Finding]:
    """A producer writes although the coordinator has forgotten its id

    Checks: transactional data of a producer id later than the tombstone of its transactional id.
    Why it matters: its next request to the coordinator fails with INVALID_PRODUCER_ID_MAPPING.
    Can be wrong: clocks of two brokers.
    What to do: raise transactional.id.expiration.ms above the longest idle time.
    Source: KIP-360, KIP-854
    """
    history = log.cluster.coordinator
    if history is None or log.topic == TOPIC:
        return
    producers = log.leader.producers
    for p in producers[(producers["transactional"] == 1) & (producers["batches"] > 0)]:
        last = log.last_entry(int(p["producer_id"]))
        gone = last is not None and last.state is None
        if last is None or not gone or log.time(p["data_time"]) <= last.record_time + SKEW_MS:
            continue
        yield log.finding(
            "expired-id-still-producing",
            "warning",
            f"Producer {p['producer_id']} of {last.transactional_id} wrote to {log.name} after its id had expired",
            offset=p["data_last_offset"],
            last_offset=p["data_last_offset"],
            producer_id=p["producer_id"],
            producer_epoch=p["data_epoch"],
            transactional_id=last.transactional_id,
            time_ms=log.time(p["data_time"]),
            evidence={"tombstone_offset": last.offset, "tombstone_time": iso(last.record_time)},
        )


@rule("unknown-coordinator-epoch", family=FAMILY, severity="error; info while it may be in flight")
def unknown_coordinator_epoch(log: LogView) -> Iterator[Finding]:
    """A marker has a coordinator epoch that never was

    Checks: a marker whose coordinator epoch lies above the last leader epoch of the __transaction_state partition that
    owns its id.
    Why it matters: the marker comes from another cluster, or was forged.
    Can be wrong: __transaction_state was copied before the marker came (then said as in flight).
    What to do: find out who wrote it.
    Source: KIP-98; semantics 3.14 X11
    """
    history = log.cluster.coordinator
    if history is None or log.topic == TOPIC:
        return
    told: set[tuple[int, int]] = set()
    for t in _judged_markers(log):
        entries = history.by_producer.get(int(t["producer_id"]), [])
        at = (int(t["producer_id"]), int(t["coordinator_epoch"]))
        latest = history.leader_epochs.get(entries[-1].partition, -1) if entries else -1
        if not entries or latest < 0 or t["coordinator_epoch"] <= latest or at in told:
            continue
        told.add(at)
        p = entries[-1].partition
        stamp = int(t["marker_timestamp"])
        seen = arrived(history.times.get(p, -1), history.clean.get(p, False), stamp, other_clock=True)
        yield _at_marker(
            log,
            "unknown-coordinator-epoch",
            "error" if seen else "info",
            f"A marker of producer {t['producer_id']} in {log.name} has coordinator epoch "
            f"{t['coordinator_epoch']}; the "
            f"last one of {TOPIC}-{p} is {latest}",
            t,
            expected=latest,
            found=t["coordinator_epoch"],
            in_flight=None if seen else True,
        )
