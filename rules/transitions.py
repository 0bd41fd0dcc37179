"""Rules on ``__transaction_state`` record by record: what the coordinators wrote of an id, step after step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from auditor.base.at_rest import Fields
from auditor.facts.coordinator_log import STATES
from auditor.rules.catalogue.needs import Need
from auditor.rules.catalogue.registry import rule
from auditor.rules.catalogue.relations import By, same_record
from auditor.rules.catalogue.safeguards import CLEAN_ELECTION
from auditor.rules.seen.coordinator_history import CoordinatorHistory, Entry
from auditor.rules.seen.finding import Finding
from auditor.rules.seen.view import LogView
from auditor.rules.transactions.state_records import alone, producer_runs, records
from auditor.rules.transactions.state_steps import resumed, steps

FAMILY = "coordinator"
REGRESSIONS = {"epoch_regressed", "epoch_jumped", "epoch_not_reset", "producer_id_changed"}


def at_entry(log: LogView, rule_id: str, severity: str, message: str, entry: Entry, **fields: Any) -> Finding:
    """A finding that points at a record of ``__transaction_state``."""
    fields.setdefault("last_offset", entry.offset)
    return log.finding(
        rule_id,
        severity,
        message,
        offset=entry.offset,
        producer_id=entry.producer_id if entry.producer_id >= 0 else None,
        producer_epoch=entry.producer_epoch if entry.producer_epoch >= 0 else None,
        transactional_id=entry.transactional_id,
        time_ms=entry.time,
        file=entry.file,
        position=entry.position if entry.position >= 0 else None,
        **fields,
    )


def _facts(old: Entry, new: Entry, problems: list[str]) -> Fields:
    return {
        "before": {
            "offset": old.offset,
            "state": old.state,
            "producer_id": old.producer_id,
            "epoch": old.producer_epoch,
        },
        "after": {
            "offset": new.offset,
            "state": new.state,
            "producer_id": new.producer_id,
            "epoch": new.producer_epoch,
        },
        "problems": problems,
    }


@rule(
    "illegal-transition",
    family=FAMILY,
    severities={"critical": ""},
    outcomes={"at_risk": ""},
    prevented_by=(CLEAN_ELECTION,),
    needs=(Need.TRANSACTION_STATE,),
)
def illegal_transition(log: LogView) -> Iterator[Finding]:
    """A transactional id went from one state to another that cannot follow

    Checks: a record of an id, in a region never cleaned, whose state the coordinator never writes behind the record
    before it, nor behind an earlier one where those between may have failed under the same coordinator epoch
    (coordinator-append-failed); a stored Dead or PrepareEpochFence, which live in memory only.
    Can be wrong: records of coordinators that are older than Kafka 2.5 and failed to fence twice.
    What to do: check elections of this __transaction_state partition; move its leadership so that it is reloaded.
    Source: KIP-98, KIP-890; TransactionState.validPreviousStates
    """
    for old, new, problems, _ in steps(log):
        if "illegal_state" in problems:
            yield at_entry(
                log,
                "illegal-transition",
                "critical",
                f"{new.transactional_id} went from {old.state} to {new.state or 'tombstone'} at offset {new.offset}",
                new,
                evidence=_facts(old, new, problems),
            )
    for entry, problems in alone(log):
        if "state_never_written" in problems:
            yield at_entry(
                log,
                "illegal-transition",
                "critical",
                f"A record of {entry.transactional_id} has state {entry.state}, which is never written",
                entry,
                evidence={"found": entry.state, "status": entry.status},
            )


@rule(
    "transition-invariant-broken",
    family=FAMILY,
    severities={"error": ""},
    outcomes={"at_risk": ""},
    absorbed_by=(By("illegal-transition", same_record),),
    needs=(Need.TRANSACTION_STATE,),
)
def transition_invariant_broken(log: LogView) -> Iterator[Finding]:
    """A record of a transactional id contradicts the one before it

    Checks: neighbouring records, in a region never cleaned: partitions shrink or differ at the decision, the time-out
    changes outside of Empty, the start changes inside a transaction, where no append that failed explains it; a record
    by itself: Complete with partitions, Empty with a start, any other state without one.
    Can be wrong: clocks that went back are legal and not reported.
    What to do: check elections of this __transaction_state partition, and compare its replicas; move its leadership so
    that it is reloaded.
    Source: TransactionMetadata.completeTransitionTo
    """
    for old, new, problems, _ in steps(log):
        broken = [p for p in problems if p != "illegal_state" and p not in REGRESSIONS]
        if broken and "illegal_state" not in problems:
            yield at_entry(
                log,
                "transition-invariant-broken",
                "error",
                f"The record of {new.transactional_id} at offset {new.offset} breaks an invariant: {', '.join(broken)}",
                new,
                evidence=_facts(old, new, broken),
            )
    for entry, problems in alone(log):
        broken = [p for p in problems if p != "state_never_written"]
        if broken and entry.state in STATES:
            yield at_entry(
                log,
                "transition-invariant-broken",
                "error",
                f"The record of {entry.transactional_id} at offset {entry.offset} is not sound: {', '.join(broken)}",
                entry,
                evidence={"state": entry.state, "problems": broken},
            )


@rule(
    "state-epoch-regression",
    family=FAMILY,
    severities={"critical": ""},
    outcomes={"at_risk": ""},
    absorbed_by=(By(("illegal-transition", "producer-id-reused"), same_record),),
    prevented_by=(CLEAN_ELECTION,),
    needs=(Need.TRANSACTION_STATE,),
)
def state_epoch_regression(log: LogView) -> Iterator[Finding]:
    """A transactional id's epoch went down, or rose as it never does

    Checks: neighbouring records of one id with the same producer id and a lower epoch, or a rise that no step of the
    protocol makes; another producer id without its epoch starting at 0.
    Why it matters: the coordinator lost a bump: zombies of the higher epoch may pass.
    Can be wrong: old state restored from a backup.
    What to do: stop the producers of the id, compare with the epochs in the data.
    Source: KIP-360; TransactionMetadata
    """
    for old, new, problems, _ in steps(log):
        broken = [p for p in problems if p in REGRESSIONS]
        if broken and "illegal_state" not in problems:
            yield at_entry(
                log,
                "state-epoch-regression",
                "critical",
                f"{new.transactional_id} went from producer {old.producer_id} epoch {old.producer_epoch} to producer "
                f"{new.producer_id} epoch {new.producer_epoch} at offset {new.offset}",
                new,
                evidence=_facts(old, new, broken),
            )


@rule(
    "producer-id-reused",
    family=FAMILY,
    severities={"critical": ""},
    outcomes={"refused": ""},
    needs=(Need.TRANSACTION_STATE,),
)
def producer_id_reused(log: LogView) -> Iterator[Finding]:
    """One producer id has two owners, or came back

    Checks: a producer id that records of two transactional ids have; a transactional id that returns to a producer id
    it had before another.
    Why it matters: producer ids are given out once. Shared ones make state of one application fence the other's.
    Can be wrong: raw copies of two clusters in one input.
    What to do: check ProducerIdsRecord in __cluster_metadata: the allocator was reset.
    Source: KIP-98, KIP-730
    """
    history, found = log.cluster.coordinator, records(log)
    if history is None or found is None:
        return
    runs = producer_runs(found, log.leader.log_start)
    pairs, times = np.unique(runs[:, :2], axis=0, return_counts=True)
    odd = np.isin(runs[:, 0], pairs[times > 1, 0]) | np.isin(runs[:, 1], history.with_several_owners())
    odd = np.isin(runs[:, 0], runs[odd, 0])
    previous: set[int] = set()
    last_id = -1
    failed: set[int] | None = None
    for number, producer_id, piece, row in runs[odd].tolist():
        if number != last_id:
            previous, last_id = set(), number
        entry = found.at(piece, row)
        tid = entry.transactional_id
        if producer_id in previous:
            if failed is None:  # a rotation that failed leaves the producer id as it was
                failed = {step.new.offset for step in resumed(log) if step.old.producer_id != step.new.producer_id}
            if entry.offset in failed:
                continue
            yield _reused(log, entry, tid, f"{tid} returned to producer id {producer_id}")
        elif (other := _other_owner(history, entry)) is not None:
            yield _reused(log, entry, other, f"Producer id {producer_id} belongs to {other} and to {tid}")
        previous.add(producer_id)


def _other_owner(history: CoordinatorHistory, entry: Entry) -> str | None:
    """Another id that had this producer id first."""
    owner = history.first_owner(entry.producer_id)
    return owner if owner != entry.transactional_id else None


def _reused(log: LogView, entry: Entry, other: str, message: str) -> Finding:
    return at_entry(log, "producer-id-reused", "critical", message, entry, evidence={"other_transactional_id": other})
