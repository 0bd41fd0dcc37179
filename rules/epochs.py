"""Rules on epochs as partitions show them: those that go down, those that climb too fast or too high."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator

import numpy as np

from auditor.base.advice import Advice, Look, Verdict
from auditor.base.numbers import LAST_EPOCH
from auditor.facts.coordinator_log import CoordinatorLog, Entry, tally
from auditor.facts.events import Kind
from auditor.rules.catalogue.needs import Need
from auditor.rules.catalogue.registry import rule
from auditor.rules.catalogue.relations import WRITTEN_LATE, By, of_the_marker_that_raised_its_epoch
from auditor.rules.catalogue.safeguards import CLEAN_ELECTION
from auditor.rules.lib import commands
from auditor.rules.seen.finding import Finding
from auditor.rules.seen.view import LogView, runs
from auditor.rules.transactions.state_records import raised

FAMILY = "epochs"
NEAR_EXHAUSTION = 30_000


@rule(
    "epoch-regression",
    family=FAMILY,
    severities={"critical": "for data", "error": "for markers and where the leader had changed"},
    outcomes={"at_risk": ""},
    absorbed_by=(
        WRITTEN_LATE,
        By("split-decision", of_the_marker_that_raised_its_epoch),
    ),
    prevented_by=(CLEAN_ELECTION,),
    needs=(Need.EVENTS,),
)
def epoch_regression(log: LogView) -> Iterator[Finding]:
    """A fenced producer wrote after its successor

    Checks: a data batch or marker with a lower epoch than the highest one seen before for that producer in the
    partition.
    Why it matters: the epoch fences zombies. A lower one after a higher one means that a broker let a zombie through.
    Can be wrong: older segments restored by hand; two clusters merged; state lost at a leader change.
    What to do: look at the leader epochs around it, at broker versions below 2.5 and unclean elections; where the
    producer has a transactional.id, list the instances that share it.
    Source: KIP-360
    """
    for run in runs(log.events(Kind.EPOCH_REGRESSION, Kind.MARKER_EPOCH_REGRESSION), "producer_id", "producer_epoch"):
        e = next((x for x in run if x["kind"] == Kind.EPOCH_REGRESSION), run[0])
        data = e["kind"] == Kind.EPOCH_REGRESSION
        changed = e["known_leader_epoch"] >= 0 and e["known_leader_epoch"] != e["leader_epoch"]
        yield log.at_event(
            "epoch-regression",
            "critical" if data and not changed else "error",
            f"Producer {e['producer_id']} {'wrote data' if data else 'was sent a marker'} with epoch "
            f"{e['producer_epoch']} after epoch {e['known_epoch']} had been seen at offset {e['known_epoch_offset']}",
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


@rule(
    "coordinator-epoch-regression",
    family=FAMILY,
    severities={"error": ""},
    outcomes={"at_risk": ""},
    needs=(Need.EVENTS,),
)
def coordinator_epoch_regression(log: LogView) -> Iterator[Finding]:
    """A marker came from an older transaction coordinator than one before it

    Checks: a marker whose coordinator epoch is lower than that of an earlier marker of the same producer in the
    partition.
    Can be wrong: the partition count of __transaction_state was changed; aborts by hand on old brokers send epoch 0.
    What to do: check the owning __transaction_state partition for two leaders at that time in the controller's log.
    Source: KIP-360; ProducerAppendInfo.checkCoordinatorEpoch
    """
    for run in runs(log.events(Kind.COORDINATOR_EPOCH_REGRESSION), "producer_id", "coordinator_epoch"):
        e = run[0]
        yield log.at_event(
            "coordinator-epoch-regression",
            "error",
            f"A marker of producer {e['producer_id']} carries coordinator epoch {e['coordinator_epoch']} "
            f"after {e['known_coordinator_epoch']} at offset {e['known_marker_offset']}",
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
    family=FAMILY,
    severities={"warning": "from 30000 on", "info": "in normal rotation", "error": "for transactional data at 32767"},
    outcomes={"at_risk": ""},
    needs=(Need.EVENTS, Need.PRODUCERS),
)
def epoch_near_exhaustion(log: LogView) -> Iterator[Finding]:
    """A producer's epoch is about to run out

    Checks: a producer's data epoch is 30000 or higher; transactional data carries the reserved epoch 32767.
    Why it matters: the epoch has 16 bits. At the end the coordinator gives a new producer id, which is normal; a fast
    climb is not, and 32767 is only for markers. Info where the id has moved on to its next producer id, and for
    transactions under transaction.version 2, which take an epoch each: there the climb is normal.
    Can be wrong: idempotent producers may reach 32767 by themselves; without __transaction_state an id that has moved
    on cannot be told from one that has not.
    What to do: nothing of a slow climb, which ends in a new producer id; of a fast one epoch-bump-storm says what to
    do. Of data with the reserved epoch stop the client and upgrade it: no coordinator gave it that.
    Source: KIP-360
    """
    for run in runs(log.events(Kind.EPOCH_RESERVED), "producer_id"):
        e = run[0]
        yield log.at_event(
            "epoch-near-exhaustion",
            "error",
            f"Producer {e['producer_id']} wrote transactional data with epoch 32767, which is reserved for fencing",
            e,
            last_offset=run[-1]["last_offset"],
            evidence={"expected": "at most 32766", "found": LAST_EPOCH},
            advice=Advice(
                Verdict.LOOK,
                "brokers take nothing more of it",
                look=(
                    Look(
                        commands.describe_producers(log.topic, log.partition),
                        f"it lists producer {e['producer_id']} with ProducerEpoch {LAST_EPOCH}",
                    ),
                ),
                then=f"stop the client of producer {e['producer_id']}, and upgrade it: no coordinator gives that epoch "
                "out; started again it gets another producer id",
            ),
        )
    producers = log.leader.producers
    if not len(producers):
        return
    reserved = {int(e["producer_id"]) for e in log.events(Kind.EPOCH_RESERVED)}
    for p in producers[producers["max_data_epoch"] >= NEAR_EXHAUSTION]:
        if int(p["producer_id"]) not in reserved:
            yield _near(log, p)


def _successor(log: LogView, producer_id: int) -> int | None:
    """The producer id that the same transactional id has by now, None where it is this one or nobody knows."""
    entry = log.last_entry(producer_id)
    return entry.producer_id if entry is not None and entry.producer_id not in (-1, producer_id) else None


def _near(log: LogView, p: np.void) -> Finding:
    successor = _successor(log, int(p["producer_id"]))
    climbs = log.policy().bumps_each_transaction and bool(p["transactional"])  # an epoch a transaction
    return log.finding(
        "epoch-near-exhaustion",
        "info" if climbs or successor is not None else "warning",
        f"Producer {p['producer_id']} has reached epoch {p['max_data_epoch']} of 32767"
        + (f"; its transactional id goes on as producer {successor}" if successor is not None else ""),
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
            "nothing is lost: at the end of its epochs it gets a new producer id",
            then=""
            if climbs or successor is not None
            else "where epoch-bump-storm names it, too, two instances share "
            "its transactional id, or its client loops over an error: give each an id of its own",
        ),
    )


@rule("epoch-bump-storm", family=FAMILY, severities={"warning": ""}, needs=(Need.EVENTS, Need.TRANSACTION_STATE))
def epoch_bump_storm(log: LogView) -> Iterator[Finding]:
    """A producer's epoch is raised again and again

    Checks: one transactional id has ten or more epoch rises within ten minutes that are not the ends of its own
    transactions; or one idempotent producer shows ten or more new epochs in a partition within ten minutes.
    Why it matters: two instances that share a transactional.id fence each other in turn, or a client loops over an
    error; both waste epochs and abort work.
    Can be wrong: a rolling restart of many instances.
    What to do: look for ProducerFencedException in the clients' logs; give every instance an id of its own.
    Source: KIP-360, KIP-447
    """
    for e in log.events(Kind.EPOCH_STORM):
        yield log.at_event(
            "epoch-bump-storm",
            "warning",
            f"Producer {e['producer_id']} raised its epoch {e['epochs']} times within ten minutes",
            e,
            evidence={"bumps": e["epochs"], "first_epoch": e["first_epoch"], "window_ms": 600_000},
        )
    if log.topic == "__transaction_state" and log.cluster.coordinator is not None:
        yield from _coordinator_storms(log)


def _coordinator_storms(log: LogView) -> Iterator[Finding]:
    history = log.cluster.coordinator
    for found, counts in history.whole_ids(log.partition) if history is not None else ():
        rises = np.zeros(found.id_count, np.int64)
        for columns in found.neighbours():
            tally(rises, columns["id"][raised(columns)])
        for number in np.flatnonzero(counts & (rises >= 10)).tolist():
            yield from _storms(log, _rises(found, number), int(rises[number]))


def _rises(found: CoordinatorLog, number: int) -> Iterator[Entry]:
    """The records of an id that :func:`raised` names."""
    for old, new in itertools.pairwise(found.entries_of(number)):
        ended = new.state == "PrepareAbort" and new.client_version < 2
        same = new.producer_id == old.producer_id
        if (new.state == "Empty" or ended) and same and new.producer_epoch > old.producer_epoch:
            yield new


def _storms(log: LogView, rises: Iterator[Entry], count: int) -> Iterator[Finding]:
    """The first ten rises of an epoch that lie within ten minutes."""
    latest: deque[Entry] = deque(maxlen=10)
    for tenth in rises:
        latest.append(tenth)
        first = latest[0]
        if len(latest) == 10 and 0 <= tenth.time - first.time <= 600_000:
            yield log.finding(
                "epoch-bump-storm",
                "warning",
                f"The epoch of transactional id {tenth.transactional_id} was raised 10 times within ten minutes other "
                "than by its own transactions: two instances may share it",
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
