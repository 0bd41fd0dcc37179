"""Rules that hold the data in a partition against what the coordinators and the controller gave out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from auditor.base.advice import IF_FLINK, Advice, Verdict, may_be_flinks
from auditor.base.words import plural
from auditor.rules.catalogue.kinds import Unverified
from auditor.rules.catalogue.needs import Need
from auditor.rules.catalogue.registry import rule
from auditor.rules.catalogue.relations import ABANDONED, ABANDONED_FOR_SURE, WRITTEN_LATE
from auditor.rules.catalogue.safeguards import CLEAN_ELECTION, ID_EXPIRATION, LATE_WRITES
from auditor.rules.markers import FAMILY, TOPIC
from auditor.rules.seen.cluster_view import METADATA_TOPIC
from auditor.rules.seen.coordinator_history import Entry
from auditor.rules.seen.finding import Finding, iso
from auditor.rules.seen.named import SKEW_MS, arrived
from auditor.rules.seen.view import LogView
from auditor.rules.settled.together import by_cause, logs_of
from auditor.rules.transactions.windows import marker_window, matching, naming, owner_complete, skew
from auditor.rules.transactions.written_times import around, at_the_latest


@rule(
    "partition-not-in-transaction",
    family=FAMILY,
    severities={"error": ""},
    outcomes={"blocked": "while it is open", "at_risk": "where a marker ended it"},
    absorbed_by=(
        ABANDONED,
        WRITTEN_LATE,
    ),
    prevented_by=LATE_WRITES,
    unverified=Unverified.NOT_ADDED,
    needs=(Need.TRANSACTIONS,),
)
def partition_not_in_transaction(log: LogView) -> Iterator[Finding]:
    """Data was written to a partition that its transaction did not have

    Checks: transactional data whose epoch has records of the coordinator, none of which names this partition up to its
    marker, with the whole history of the id in the input.
    Why it matters: the client skipped AddPartitionsToTxn, or the write came late: no marker will come for it.
    Can be wrong: the clocks of two brokers (30 s are allowed for).
    What to do: do what hanging-transaction says of it while it is open; else list its records (offsets in the
    evidence), and compensate downstream.
    Source: KIP-890
    """
    history = log.cluster.coordinator
    if history is None or log.topic == TOPIC:
        return
    for t in log.leader.transactions:
        if t["first_offset"] < log.leader.log_start or not owner_complete(log, t["producer_id"]):
            continue
        if _named(log, t):
            continue
        last = history.last_ongoing(int(t["producer_id"]), int(t["producer_epoch"]))
        if last is None or not _seen(log, t, last):
            continue
        if t["marker_offset"] >= 0 and not t["commit"] and marker_window(log, t) is None:
            continue  # an operator's abort ended it: late-write-after-marker and marker-without-decision report it
        yield _not_in_transaction(log, t, last)


def _named(log: LogView, t: np.void) -> bool:
    """Whether an Ongoing record between the producer's marker before and the one behind names this partition.

    What stands between the two markers shows when the data came; its own stamps may be of any time. Where both markers'
    decisions are known, no clock is asked.
    """
    found = matching(log, int(t["producer_id"]))
    own, before = (found.number(int(t[name])) for name in ("marker_offset", "prev_marker_offset"))
    if own is not None:
        between = found.windows[(0 if before is None else before + 1) : own + 1]
        if ((between["added_row"] >= 0) & (between["added_epoch"] == t["producer_epoch"])).any():
            return True
    slack = max((skew(log, p) for p in np.unique(found.windows["partition"]).tolist()), default=SKEW_MS)
    slack = max(slack, SKEW_MS)
    after = int(t["prev_marker_time"]) - slack if t["prev_marker_offset"] >= 0 else -1
    until = int(t["marker_timestamp"]) + slack if t["marker_offset"] >= 0 else None
    return naming(log).some_ongoing(int(t["producer_id"]), int(t["producer_epoch"]), after, until)


def _seen(log: LogView, t: np.void, entry: Entry) -> bool:
    # A client's stamps may be older than the append by any time; the marker behind the data bounds it.
    stamp = log.time(t["last_time"])
    time = max(at_the_latest(log, int(t["producer_id"]), int(t["first_offset"]), stamp), int(t["marker_timestamp"]))
    return not log.cluster.lacks(TOPIC, entry.partition, time, other_clock=True)


def _not_in_transaction(log: LogView, t: np.void, entry: Entry) -> Finding:
    return log.finding(
        "partition-not-in-transaction",
        "error",
        f"Producer {t['producer_id']} ({entry.transactional_id}) wrote to {log.name} at offset {t['first_offset']}, a "
        "partition that its transaction does not have",
        at=t,
        transactional_id=entry.transactional_id,
        outcome="blocked" if t["marker_offset"] < 0 else "at_risk",
        evidence={"partitions": sorted(entry.partitions), "coordinator_offset": entry.offset, "records": t["records"]},
    )


def _not_there_yet(found: Sequence[Finding]) -> str:
    producers, places = len({f.producer_id for f in found}), len(logs_of(found))
    return (
        f"{plural(producers, 'producer')} wrote with {'an epoch' if producers == 1 else 'epochs'} that the "
        f"coordinators do not know of, in {plural(places, 'partition')}: {TOPIC} may have been copied before"
    )


@rule(
    "data-epoch-ahead-of-coordinator",
    family=FAMILY,
    severities={"critical": "", "info": "while it may be in flight"},
    outcomes={"at_risk": ""},
    absorbed_by=(ABANDONED_FOR_SURE,),
    prevented_by=(CLEAN_ELECTION,),
    together=by_cause(lambda f: f.evidence.get("in_flight"), _not_there_yet),
    needs=(Need.PRODUCERS,),
)
def data_epoch_ahead_of_coordinator(log: LogView) -> Iterator[Finding]:
    """Data has an epoch that the coordinator never gave

    Checks: transactional data of a producer id with a higher epoch than any record of its id.
    Why it matters: the coordinator's state went back, after an unclean election or a restore: zombies may pass.
    Can be wrong: __transaction_state was copied before the data (then the finding says so: in flight).
    What to do: restart the producers so that they initialise again. If the id may be Flink's
    (PREFIX-SUBTASK-CHECKPOINT): restoring the job from a checkpoint or savepoint commits the transactions which it
    holds and aborts the others.
    Source: KIP-360
    """
    history = log.cluster.coordinator
    if history is None or log.topic == TOPIC:
        return
    producers = log.leader.producers
    for p in producers[(producers["transactional"] == 1) & (producers["batches"] > 0)]:
        highest = history.highest_epoch(int(p["producer_id"]))
        if highest is None or p["max_data_epoch"] <= highest:
            continue
        entry = history.last_of_producer(int(p["producer_id"]))
        assert entry is not None
        time, partition = log.time(p["max_data_epoch_time"]), entry.partition
        written = at_the_latest(log, int(p["producer_id"]), int(p["max_data_epoch_offset"]), time)
        other = skew(log, partition) > 1_000
        yield log.finding(
            "data-epoch-ahead-of-coordinator",
            "critical",
            f"Producer {p['producer_id']} wrote with epoch {p['max_data_epoch']} in {log.name}, the coordinator "
            f"knows of "
            f"{highest} at most",
            offset=p["max_data_epoch_offset"],
            last_offset=p["data_last_offset"],
            producer_id=p["producer_id"],
            producer_epoch=p["max_data_epoch"],
            transactional_id=entry.transactional_id,
            time_ms=time,
            evidence={"expected": highest, "found": p["max_data_epoch"]},
            advice=_if_flinks(entry.transactional_id),
            doubt=log.cluster.lacks(TOPIC, partition, written, other_clock=other) or partition in history.broken,
        )


def _if_flinks(transactional_id: str) -> Advice | None:
    """In place of a restart of an id's producer, which ends what a Flink job may have to commit; None for others."""
    if not may_be_flinks(transactional_id):
        return None
    return Advice(Verdict.LOOK, then=f"{IF_FLINK}. A job that is restored initialises its producers by itself")


@rule(
    "producer-id-not-allocated",
    family=FAMILY,
    severities={"error": "", "info": "while it may be in flight"},
    outcomes={"at_risk": ""},
    absorbed_by=(ABANDONED_FOR_SURE,),
    needs=(Need.PRODUCERS,),
)
def producer_id_not_allocated(log: LogView) -> Iterator[Finding]:
    """Data has a producer id that this cluster has not given out yet

    Checks: data of a producer id at or above the allocator's next one in __cluster_metadata.
    Can be wrong: the metadata log was copied before the data (then the finding says so: in flight).
    What to do: start the producers of these ids again, so that they get ids that were given out; look whether the
    segments, or the metadata, were restored from another cluster or time, and compensate downstream.
    Source: KIP-730
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
    seen = log.at_rest() or arrived(log.cluster.metadata_time, time, other_clock=True)
    yield log.finding(
        "producer-id-not-allocated",
        "error",
        f"{log.name} has {plural(len(foreign), 'producer id')} that {METADATA_TOPIC} has not given out, "
        f"the first {p['producer_id']}; its next one is {limit}",
        segment=int(p["first_segment"]),
        offset=p["first_offset"],
        last_offset=p["data_last_offset"],
        producer_id=p["producer_id"],
        producer_epoch=p["first_epoch"],
        time_ms=time,
        position=p["first_position"],
        evidence={"next_producer_id": limit, "producers": len(foreign)},
        doubt=not seen,
    )


@rule(
    "expired-id-still-producing",
    family=FAMILY,
    severities={"warning": ""},
    time=True,
    prevented_by=(ID_EXPIRATION,),
    needs=(Need.PRODUCERS,),
)
def expired_id_still_producing(log: LogView) -> Iterator[Finding]:
    """A producer writes although the coordinator has forgotten its id

    Checks: transactional data of a producer id later than the tombstone of its transactional id.
    Why it matters: its next request to the coordinator fails with INVALID_PRODUCER_ID_MAPPING.
    Can be wrong: clocks of two brokers.
    What to do: restart the producer, so that it gets a producer id again; let it write more often than it is forgotten.
    If the id may be Flink's (PREFIX-SUBTASK-CHECKPOINT): restoring the job from a checkpoint or savepoint commits the
    transactions which it holds and aborts the others.
    Source: KIP-360, KIP-854
    """
    history = log.cluster.coordinator
    if history is None or log.topic == TOPIC:
        return
    producers = log.leader.producers
    writing = producers[(producers["transactional"] == 1) & (producers["batches"] > 0)]
    if not len(writing):
        return
    for p in writing[history.forgotten(writing["producer_id"])]:
        last = log.last_entry(int(p["producer_id"]))
        if last is None or history.may_be_outdated(last):
            continue
        expired = last.record_time + log.cluster.went_back  # by a clock that was set back since, it was then
        if log.time(p["data_time"]) <= expired + SKEW_MS:
            continue
        _, latest = around(log, int(p["producer_id"]), int(p["data_last_offset"]))
        if 0 <= latest <= expired + skew(log, last.partition):  # its client's clock alone says later
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
            advice=_if_flinks(last.transactional_id),
        )
