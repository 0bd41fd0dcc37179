"""Rules on epochs and allocated ids, and on the decisions of other policies."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from auditor.base.advice import Advice, Verdict, check
from auditor.base.at_rest import Fields
from auditor.base.errors import LAST_EPOCH
from auditor.base.evidence_keys import Evidence, read
from auditor.base.transactional_ids import adapted, guidance, is_flinks, is_pools_of_flink
from auditor.base.words import plural
from auditor.evidence.cluster_clocks import is_after
from auditor.evidence.horizons import Horizon, HorizonSource
from auditor.facts.coordinator_log import EMPTY, PREPARE_ABORT, Columns, CoordinatorLog, StateRecord, tally
from auditor.facts.events import EventKind
from auditor.model.policies import DUPLICATE_SEQUENCE_NUMBER, ERRORS, POLICIES
from auditor.rules.catalogue.registry import rule
from auditor.rules.lib import repairs
from auditor.rules.producer_memory import SHOWN
from auditor.rules.resolution.resolve import by_cause, logs_of
from auditor.rules.seen.cluster_view import METADATA_TOPIC, TRANSACTION_STATE
from auditor.rules.seen.view import Finding, LogView, iso, runs
from auditor.rules.transactions.making import around, at_the_latest
from auditor.transactions.matching import base_skew, marker_window, matching, naming, other_clock, owner_complete, skew

# Epochs in partitions: regressions, frequent bumps, exhaustion.


NEAR_EXHAUSTION = 30_000


@rule(
    "epoch-regression",
    when={
        "critical": "for data",
        "error": "for markers, and if the leader changed before",
    },
)
def epoch_regression(log: LogView) -> Iterator[Finding]:
    """A fenced producer wrote after its successor

    Checks: a data batch or marker has a lower epoch than an earlier one of that producer in the partition.
    Why it matters: the epoch fences zombies. A lower one after a higher one means that a broker accepted a zombie.
    Can be wrong: manually restored segments; two merged clusters; state lost at a leader change.
    What to do: check the leader epochs around it, broker versions below 2.5 and unclean elections; list the instances
    of the application that share a transactional.id.
    Source: KIP-360
    """
    for run in runs(
        log.events(EventKind.EPOCH_REGRESSION, EventKind.MARKER_EPOCH_REGRESSION), "producer_id", "producer_epoch"
    ):
        e = next((x for x in run if x["kind"] == EventKind.EPOCH_REGRESSION), run[0])
        data = e["kind"] == EventKind.EPOCH_REGRESSION
        changed = e["known_leader_epoch"] >= 0 and e["known_leader_epoch"] != e["leader_epoch"]
        yield log.at_event(
            "critical" if data and not changed else "error",
            f"Producer id {e['producer_id']} {'wrote data' if data else 'got a marker'} with epoch "
            f"{e['producer_epoch']} after epoch {e['known_epoch']} at offset {e['known_epoch_offset']}",
            e,
            last_offset=run[-1]["last_offset"],
            evidence={
                "expected": e["known_epoch"],
                "found": e["producer_epoch"],
                "higher_epoch_offset": e["known_epoch_offset"],
                "batches": len(run),
                "leader_epochs": [e["known_leader_epoch"], e["leader_epoch"]],
                "marker": None if data else True,
            },
        )


@rule("coordinator-epoch-regression")
def coordinator_epoch_regression(log: LogView) -> Iterator[Finding]:
    """A marker has a lower coordinator epoch than an earlier one

    Checks: the coordinator epoch of a marker is lower than that of an earlier marker of the same producer in the
    partition.
    Can be wrong: the partition count of __transaction_state was changed; manual aborts on old brokers send epoch 0.
    What to do: check the controller's log for two leaders of the owning __transaction_state partition at that time.
    Source: KIP-360; ProducerAppendInfo.checkCoordinatorEpoch
    """
    for run in runs(log.events(EventKind.COORDINATOR_EPOCH_REGRESSION), "producer_id", "coordinator_epoch"):
        e = run[0]
        yield log.at_event(
            "error",
            f"A marker of producer id {e['producer_id']} has coordinator epoch {e['coordinator_epoch']} after "
            f"{e['known_coordinator_epoch']} at offset {e['known_marker_offset']}",
            e,
            last_offset=run[-1]["last_offset"],
            evidence={
                "expected": e["known_coordinator_epoch"],
                "found": e["coordinator_epoch"],
                "earlier_marker": e["known_marker_offset"],
                "markers": len(run),
            },
        )


@rule(
    "epoch-near-exhaustion",
    when={
        "warning": "from 30000 on",
        "info": "if the rise is normal",
        "error": "for transactional data at 32767",
    },
)
def epoch_near_exhaustion(log: LogView) -> Iterator[Finding]:
    """A producer's epoch is nearly exhausted

    Checks: a producer's data epoch is 30000 or higher, or transactional data has the reserved epoch 32767.
    Why it matters: the epoch has 16 bits. At its end the coordinator allocates a new producer id, which is normal. A
    fast rise is not, and 32767 is only for markers. It is an info if the transactional id already has its next producer
    id. It is also an info under transaction.version 2, where each transaction uses an epoch.
    Can be wrong: idempotent producers may reach 32767 by themselves. Without __transaction_state, a transactional id
    that already has its next producer id is not recognised.
    What to do: nothing for a slow rise, which ends with a new producer id. For a fast one follow epoch-bump-storm. For
    data with the reserved epoch, stop the client and upgrade it, since no coordinator allocates that epoch.
    Source: KIP-360
    """
    for run in runs(log.events(EventKind.EPOCH_RESERVED), "producer_id"):
        e = run[0]
        yield log.at_event(
            "error",
            f"Producer id {e['producer_id']} wrote transactional data with epoch 32767, which is reserved for fencing",
            e,
            last_offset=run[-1]["last_offset"],
            evidence={"expected": "at most 32766", "found": LAST_EPOCH},
            advice=Advice(
                Verdict.INVESTIGATE_FIRST,
                "brokers refuse further batches of it",
                conditions=(
                    check(
                        repairs.describe_producers(log.topic, log.partition),
                        f"the output lists producer id {e['producer_id']} with ProducerEpoch {LAST_EPOCH}",
                    ),
                ),
                afterwards=f"Stop the client of producer id {e['producer_id']}, and upgrade it: no coordinator "
                "allocates that epoch. After a restart it gets another producer id",
            ),
        )
    producers = log.leader.producers
    if not len(producers):
        return
    reserved = {int(e["producer_id"]) for e in log.events(EventKind.EPOCH_RESERVED)}
    for p in producers[producers["max_data_epoch"] >= NEAR_EXHAUSTION]:
        if int(p["producer_id"]) not in reserved:
            yield _near(log, p)


def _successor(log: LogView, producer_id: int) -> int | None:
    entry = log.last_entry(producer_id)
    return entry.producer_id if entry is not None and entry.producer_id not in (-1, producer_id) else None


def _near(log: LogView, p: np.void) -> Finding:
    successor = _successor(log, int(p["producer_id"]))
    climbs = log.policy().bumps_each_transaction and bool(p["transactional"])  # an epoch a transaction
    return log.finding(
        "info" if climbs or successor is not None else "warning",
        f"Producer id {p['producer_id']} has reached epoch {p['max_data_epoch']} of 32767"
        + (f"; its transactional id continues as producer id {successor}" if successor is not None else ""),
        offset=p["max_data_epoch_offset"],
        last_offset=p["data_last_offset"],
        producer_id=p["producer_id"],
        producer_epoch=p["max_data_epoch"],
        transactional_id=log.owner(p["producer_id"]),
        time_ms=p["max_data_epoch_time"],
        evidence={
            "found": p["max_data_epoch"],
            "limit": LAST_EPOCH,
            "left": LAST_EPOCH - int(p["max_data_epoch"]),
            "next_producer_id": successor,
            "one_epoch_a_transaction": climbs or None,
        },
        advice=Advice(
            Verdict.WAIT,
            "no records are lost: at the end of its epochs it gets a new producer id",
            afterwards=""
            if climbs or successor is not None
            else "If epoch-bump-storm also reports it, two instances share its transactional id, or its client loops "
            "over an error: give each instance its own id",
        ),
    )


@rule("epoch-bump-storm")
def epoch_bump_storm(log: LogView) -> Iterator[Finding]:
    """A producer's epoch is bumped frequently

    Checks: a transactional id has ten or more epoch bumps within ten minutes that do not end its own transactions. Or
    an idempotent producer has ten or more new epochs in a partition within ten minutes. Flink's pools bump the epoch
    before each transaction, so only bumps after an abort count for their ids.
    Why it matters: two instances that share a transactional.id fence each other in turn, or a client loops over an
    error. Both waste epochs and abort work.
    Can be wrong: a rolling restart of many instances.
    What to do: look for ProducerFencedException in the clients' logs; give every instance its own id.
    Source: KIP-360, KIP-447
    """
    for e in log.events(EventKind.EPOCH_STORM):
        yield log.at_event(
            "warning",
            f"Producer id {e['producer_id']} bumped its epoch {e['epochs']} times within ten minutes",
            e,
            evidence={"bumps": e["epochs"], "first_epoch": e["first_epoch"], "window_ms": 600_000},
        )
    if log.topic == "__transaction_state" and log.cluster.coordinator is not None:
        yield from _coordinator_storms(log)


def _coordinator_storms(log: LogView) -> Iterator[Finding]:
    history = log.cluster.coordinator
    for state_log, counts in history.whole_ids(log.partition) if history is not None else ():
        rises = np.zeros(state_log.id_count, np.int64)
        for columns in state_log.neighbours():
            tally(rises, columns["id"][raised(columns)])
        for number in np.flatnonzero(counts & (rises >= 10)).tolist():
            yield from _storms(log, _rises(log, state_log, number), int(rises[number]))


def raised(columns: Columns) -> np.ndarray:
    """Return rows whose epoch is above the id's previous record, except where its own transaction ended."""
    state, epoch = columns["state"][1:], columns["producer_epoch"]
    ended = (state == PREPARE_ABORT) & (columns["client_version"][1:] < 2)
    same = (columns["id"][1:] == columns["id"][:-1]) & (columns["producer_id"][1:] == columns["producer_id"][:-1])
    return np.flatnonzero(same & ((state == EMPTY) | ended) & (epoch[1:] > epoch[:-1])) + 1


def _rises(log: LogView, state_log: CoordinatorLog, number: int) -> Iterator[StateRecord]:
    # The same condition as raised; of a pool of Flink's only where a transaction was cut off, or aborted.
    for old, new in itertools.pairwise(state_log.entries_of(number)):
        ended = new.state == "PrepareAbort" and new.client_version < 2
        same = new.producer_id == old.producer_id
        if (new.state == "Empty" or ended) and same and new.producer_epoch > old.producer_epoch:
            idle = old.state in ("Empty", "CompleteCommit")
            if not idle or not is_pools_of_flink(log.cluster.origin(new.transactional_id)):
                yield new


def _storms(log: LogView, rises: Iterator[StateRecord], count: int) -> Iterator[Finding]:
    latest: deque[StateRecord] = deque(maxlen=10)
    for tenth in rises:
        latest.append(tenth)
        first = latest[0]
        if len(latest) == 10 and 0 <= tenth.time - first.time <= 600_000:
            yield log.finding(
                "warning",
                f"The epoch of transactional id {tenth.transactional_id} was bumped 10 times within ten minutes, not "
                "by its own transactions: two instances may share it",
                offset=first.offset,
                last_offset=tenth.offset,
                producer_id=tenth.producer_id,
                producer_epoch=tenth.producer_epoch,
                transactional_id=tenth.transactional_id,
                time_ms=first.time,
                file=first.file,
                position=first.position,
                evidence={"bumps": count, "first_epoch": first.producer_epoch, "window_ms": 600_000},
            )
            return


# Answers of another policy.


def _verdicts(log: LogView) -> list[Fields]:
    # ``max_timestamp`` in ms; only what-if audits have the table.
    table = log.leader.tables.get("verdicts")
    if table is None:
        return []
    times = table["max_timestamp"].cast(pa.int64())  # a client may write years that Python's dates do not hold
    rows: list[Fields] = table.drop_columns(["max_timestamp"]).append_column("max_timestamp", times).to_pylist()
    return rows


@rule("what-if-rejection")
def what_if_rejection(log: LogView) -> Iterator[Finding]:
    """Another policy would have refused stored batches

    Checks: the verdicts of 'auditor what-if': stored batches and markers that a broker under the named policy would
    have refused or answered differently. The first one of each run of a producer counts, grouped by policy and error.
    Why it matters: it shows the effect of an upgrade or a downgrade of the brokers on this history.
    Can be wrong: only accepted batches are stored, so retries and real refusals are not visible; retention and restarts
    are simulated.
    What to do: read the table of policies in what-if.json before you decide on an upgrade.
    Source: KIP-360, KIP-890, KIP draft on keeping only the latest batch
    """
    groups: dict[tuple[str, str], list[Fields]] = {}
    for v in _verdicts(log):
        groups.setdefault((v["policy"], v["error"]), []).append(v)
    for (policy, error), rows in sorted(groups.items()):
        first = rows[0]
        yield _verdict(
            log,
            "info",
            f"{policy} would have answered {plural(len(rows), 'run')} of stored batches of {log.name} with {error} "
            f"(first: producer id {first['producer_id']} at offset {first['base_offset']})",
            first,
            evidence={
                "policy": policy,
                "error": error,
                "runs": len(rows),
                "batches": sum(v["batches"] for v in rows),
                "producers": len({v["producer_id"] for v in rows}),
                "base_sequence": first["base_sequence"],
                "known_last_sequence": first["known_last_sequence"],
                "offsets": [v["base_offset"] for v in rows[:SHOWN]],
                "confidence": "likely",
            },
        )


@rule("draft-false-duplicate")
def draft_false_duplicate(log: LogView) -> Iterator[Finding]:
    """The latest-batch draft would lose records as false duplicates

    Checks: the verdicts of 'auditor what-if' under latest-batch-only: a stored batch would get
    DUPLICATE_SEQUENCE_NUMBER, although no record with its sequences was stored before in that epoch.
    Why it matters: a client treats that answer as success. The records would be lost silently.
    Can be wrong: the range was stored before, and retention or compaction removed it.
    What to do: compare these cases with the first phase of the draft, which changes brokers alone.
    Source: KIP draft on keeping only the latest batch
    """
    for v in _verdicts(log):
        duplicate = POLICIES[v["policy"]].is_draft and v["error"] == ERRORS[DUPLICATE_SEQUENCE_NUMBER]
        if duplicate and not v["stored_before"]:
            yield _verdict(
                log,
                "warning",
                f"{v['policy']} would treat the batch of producer id {v['producer_id']} (epoch {v['producer_epoch']}) "
                f"at offset {v['base_offset']} with sequence {v['base_sequence']} as a duplicate and lose its records. "
                "These sequences are not stored before it",
                v,
                evidence={
                    "base_sequence": v["base_sequence"],
                    "last_sequence": v["last_sequence"],
                    "known_last_sequence": v["known_last_sequence"],
                    "batches": v["batches"],
                    "confidence": "likely",
                },
            )


def _verdict(log: LogView, severity: str, message: str, v: Fields, **more: Any) -> Finding:
    return log.finding(
        severity,
        message,
        offset=v["base_offset"],
        last_offset=v["last_offset"],
        producer_id=v["producer_id"],
        producer_epoch=v["producer_epoch"],
        transactional_id=log.owner(v["producer_id"]),
        file=v["file"],
        position=v["position"],
        time_ms=v["max_timestamp"],
        **more,
    )


# Data of a partition compared with the allocations of coordinators and controller.


@rule(
    "partition-not-in-transaction",
    when={
        "blocked": "while it is open",
        "at_risk": "if a marker ended it",
    },
)
def partition_not_in_transaction(log: LogView) -> Iterator[Finding]:
    """Transactional data in a partition that was not added to the transaction

    Checks: the coordinator has records of this data's epoch, but none of them names this partition up to its marker.
    The complete history of the id is in the input.
    Why it matters: the client skipped AddPartitionsToTxn, or the write was late. No marker will be written for it.
    Can be wrong: the clocks of two brokers differ (30 s are allowed).
    What to do: while it is open, follow hanging-transaction; list its records (offsets in the evidence), and compensate
    downstream.
    Source: KIP-890
    """
    history = log.cluster.coordinator
    if history is None or log.topic == TRANSACTION_STATE:
        return
    for t in log.leader.transactions:
        if t["first_offset"] < log.leader.log_start or not owner_complete(log, t["producer_id"]):
            continue
        if _named(log, t):
            continue
        last = history.last_ongoing(int(t["producer_id"]), int(t["producer_epoch"]))
        if last is None or not _coordinator_covers(log, t, last):
            continue
        if t["marker_offset"] >= 0 and not t["commit"] and marker_window(log, t) is None:
            continue  # an operator's abort ended it: late-write-after-marker and marker-without-decision report it
        yield _not_in_transaction(log, t, last)


def _named(log: LogView, t: np.void) -> bool:
    # The neighbouring markers show when the data was written; its own timestamps may be of any time. If the decisions
    # of both markers are known, no clock is needed.
    matched = matching(log, int(t["producer_id"]))
    own, before = (matched.number(int(t[name])) for name in ("marker_offset", "prev_marker_offset"))
    if own is not None:
        between = matched.windows[(0 if before is None else before + 1) : own + 1]
        if ((between["added_row"] >= 0) & (between["added_epoch"] == t["producer_epoch"])).any():
            return True
    slack = max([base_skew(log, None), *(skew(log, p) for p in np.unique(matched.windows["partition"]).tolist())])
    after = int(t["prev_marker_time"]) - slack if t["prev_marker_offset"] >= 0 else -1
    until = int(t["marker_timestamp"]) + slack if t["marker_offset"] >= 0 else None
    return naming(log).some_ongoing(int(t["producer_id"]), int(t["producer_epoch"]), after, until)


def _coordinator_covers(log: LogView, t: np.void, entry: StateRecord) -> bool:
    # A client's stamps may be older than the append by any time; the marker behind the data bounds it.
    stamp = log.time(t["last_time"])
    time = max(at_the_latest(log, int(t["producer_id"]), int(t["first_offset"]), stamp), int(t["marker_timestamp"]))
    return not log.cluster.lacks(TRANSACTION_STATE, entry.partition, time, other_clock=True)


def _not_in_transaction(log: LogView, t: np.void, entry: StateRecord) -> Finding:
    return log.finding(
        "error",
        f"Producer id {t['producer_id']} ({entry.transactional_id}) wrote to {log.name} at offset {t['first_offset']}, "
        "which is not in its transaction",
        data=t,
        transactional_id=entry.transactional_id,
        outcome="blocked" if t["marker_offset"] < 0 else "at_risk",
        evidence={"partitions": sorted(entry.partitions), "coordinator_offset": entry.offset, "records": t["records"]},
    )


def _not_there_yet(findings: Sequence[Finding]) -> str:
    producers, places = len({f.producer_id for f in findings}), len(logs_of(findings))
    return (
        f"{plural(producers, 'producer')} wrote with {'an epoch' if producers == 1 else 'epochs'} above the "
        f"coordinators' records in {plural(places, 'partition')}: {TRANSACTION_STATE} may have been copied before"
    )


@rule(
    "data-epoch-ahead-of-coordinator",
    when={"info": "while it may be in flight"},
    together=by_cause(lambda f: read(Evidence, f.evidence).get("in_flight"), _not_there_yet),
)
def data_epoch_ahead_of_coordinator(log: LogView) -> Iterator[Finding]:
    """Data has an epoch that the coordinator never allocated

    Checks: transactional data of a producer id has a higher epoch than any coordinator record of its id.
    Why it matters: the coordinator's state regressed, after an unclean election or a restore. Zombies may write again.
    Can be wrong: __transaction_state was copied before the data (reported as in flight).
    What to do: restart the producers so that they initialise again. If the id may be Flink's
    (PREFIX-SUBTASK-CHECKPOINT), restore the job from a checkpoint or savepoint: this commits its transactions and
    aborts the others.
    Source: KIP-360
    """
    history = log.cluster.coordinator
    if history is None or log.topic == TRANSACTION_STATE:
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
        other = other_clock(log, partition)
        yield log.finding(
            "critical",
            f"Producer id {p['producer_id']} wrote with epoch {p['max_data_epoch']} in {log.name}, but the "
            f"coordinator's highest epoch is {highest}",
            offset=p["max_data_epoch_offset"],
            last_offset=p["data_last_offset"],
            producer_id=p["producer_id"],
            producer_epoch=p["max_data_epoch"],
            transactional_id=entry.transactional_id,
            time_ms=time,
            evidence={"expected": highest, "found": p["max_data_epoch"]},
            advice=_if_flinks(log, entry.transactional_id),
            doubt=log.cluster.lacks(TRANSACTION_STATE, partition, written, other_clock=other)
            or partition in history.broken,
        )


def _if_flinks(log: LogView, transactional_id: str) -> Advice | None:
    # Restarting an id's producer aborts what a Flink job may have to commit.
    whose = log.cluster.origin(transactional_id)
    advice = Advice(Verdict.INVESTIGATE_FIRST, afterwards="A restored job initialises its producers by itself")
    return adapted(advice, guidance(whose, "open")) if is_flinks(whose) else None


@rule("producer-id-not-allocated", when={"info": "while it may be in flight"})
def producer_id_not_allocated(log: LogView) -> Iterator[Finding]:
    """Data has a producer id that this cluster has not allocated yet

    Checks: the producer id of data is at or above the next one to allocate in __cluster_metadata.
    Can be wrong: the metadata log was copied before the data (reported as in flight).
    What to do: restart the producers of these ids, so that they get allocated ids; check whether the segments, or the
    metadata, were restored from another cluster or time, and compensate downstream.
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
    complete = log.at_rest() or Horizon(log.cluster.metadata_time, HorizonSource.OWN_STAMPS).reaches(
        time, other_clock=True
    )
    yield log.finding(
        "error",
        f"{log.name} has {plural(len(foreign), 'unallocated producer id')}, first {p['producer_id']}; the next one to "
        f"allocate in {METADATA_TOPIC} is {limit}",
        segment=int(p["first_segment"]),
        offset=p["first_offset"],
        last_offset=p["data_last_offset"],
        producer_id=p["producer_id"],
        producer_epoch=p["first_epoch"],
        time_ms=time,
        position=p["first_position"],
        evidence={"next_producer_id": limit, "producers": len(foreign)},
        doubt=not complete,
    )


@rule("expired-id-still-producing")
def expired_id_still_producing(log: LogView) -> Iterator[Finding]:
    """A producer writes after its transactional id expired

    Checks: transactional data of a producer id is later than the tombstone of its transactional id.
    Why it matters: its next request to the coordinator fails with INVALID_PRODUCER_ID_MAPPING.
    Can be wrong: the clocks of two brokers differ.
    What to do: restart the producer, so that it gets a producer id again; make it write more often than
    transactional.id.expiration.ms. If the id may be Flink's (PREFIX-SUBTASK-CHECKPOINT), restore the job from a
    checkpoint or savepoint: this commits its transactions and aborts the others.
    Source: KIP-360, KIP-854
    """
    history = log.cluster.coordinator
    if history is None or log.topic == TRANSACTION_STATE:
        return
    producers = log.leader.producers
    writing = producers[(producers["transactional"] == 1) & (producers["batches"] > 0)]
    if not len(writing):
        return
    for p in writing[history.forgotten(writing["producer_id"])]:
        last = log.last_entry(int(p["producer_id"]))
        if last is None or history.may_be_outdated(last):
            continue
        fell = log.cluster.clocks.fell_ms(
            np.array([last.record_time]), log.cluster.writer(TRANSACTION_STATE, last.partition)
        )
        expired = last.record_time + int(fell[0])  # by a clock that was set back since, it was then
        if not is_after(log.time(p["data_time"]), expired):
            continue
        _, latest = around(log, int(p["producer_id"]), int(p["data_last_offset"]))
        if 0 <= latest <= expired + skew(log, last.partition):  # its client's clock alone says later
            continue
        yield log.finding(
            "warning",
            f"Producer id {p['producer_id']} of {last.transactional_id} wrote to {log.name} after its id expired",
            offset=p["data_last_offset"],
            last_offset=p["data_last_offset"],
            producer_id=p["producer_id"],
            producer_epoch=p["data_epoch"],
            transactional_id=last.transactional_id,
            time_ms=log.time(p["data_time"]),
            evidence={"tombstone_offset": last.offset, "tombstone_time": iso(last.record_time)},
            advice=_if_flinks(log, last.transactional_id),
        )
