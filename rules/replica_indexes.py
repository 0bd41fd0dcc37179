"""The transaction indexes of replicas of one log: what one broker leaves out of its readers' sight, all must."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from auditor.facts.replica_facts import ReplicaFacts
from auditor.rules.catalogue.needs import Need
from auditor.rules.catalogue.registry import rule
from auditor.rules.catalogue.relations import DIVERGED_BEFORE, By, same_transaction
from auditor.rules.lib import repairs
from auditor.rules.lib.lost_batches import TOP
from auditor.rules.lib.pairs import Pair, row_of
from auditor.rules.lib.pairs import pairs as replica_pairs
from auditor.rules.replicas import FAMILY
from auditor.rules.seen.finding import Finding
from auditor.rules.seen.view import LogView


@rule(
    "replica-abort-index-divergence",
    family=FAMILY,
    severities={"error": "", "info": "while it may be in flight"},
    outcomes={"exposed": ""},
    absorbed_by=(
        DIVERGED_BEFORE,
        By(("aborted-transaction-not-indexed", "aborted-index-extra-entry"), same_transaction),
    ),
    needs=(Need.REPLICAS,),
)
def replica_abort_index_divergence(log: LogView) -> Iterator[Finding]:
    """Transaction indexes of replicas disagree

    Checks: below both high watermarks and above both log starts, entries of the .txnindex files (producer, first
    offset, marker offset) that only one of two replicas has, where both have the marker's batch.
    Can be wrong: last_stable_offset differs legally and is not compared; retention and cleaning are left out; a live
    directory whose index is of another moment (then the finding says so: in flight).
    What to do: where no batch of the segment is broken, since its recovery would cut it there: stop the broker without
    the entry, move the segment's .txnindex and .index away, start it: the start recovers the segment and rebuilds both.
    Before the stop, see to the broker's partitions without another in-sync replica, as the finding says.
    Source: TransactionIndex, UnifiedLog.rebuildProducerState
    """
    for pair in replica_pairs(log):
        only_leader, only_replica = pair.index_entries()
        if len(only_leader) or len(only_replica):
            yield _index_finding(log, pair, only_leader, only_replica)


def _index_finding(log: LogView, pair: Pair, only_leader: np.ndarray, only_replica: np.ndarray) -> Finding:
    replica, leader = pair.replica, pair.leader
    entry = min([*only_leader[:1], *only_replica[:1]], key=lambda e: e["last_offset"])
    without, holder = (leader, replica) if entry in only_replica else (replica, leader)
    number = int(np.searchsorted(replica.segment_bases, entry["last_offset"], side="right")) - 1
    file = (replica.file(number) or "").removesuffix(".log") + ".txnindex"
    late = _index_is_late(log, without, holder, entry)
    return log.finding(
        "replica-abort-index-divergence",
        "error",
        f"Broker {without.broker_id} has no index entry for the aborted transaction of producer {entry['producer_id']} "
        f"at offsets {entry['first_offset']} to {entry['last_offset']} of {log.name}, which broker {holder.broker_id} "
        "has: its read_committed consumers would get aborted records",
        replica=replica,
        offset=entry["first_offset"],
        last_offset=entry["last_offset"],
        producer_id=entry["producer_id"],
        transactional_id=log.owner(entry["producer_id"]),
        file=file,
        evidence={
            "missing_in": {"broker_id": without.broker_id, "log_dir": without.log_dir},
            "present_in": {"broker_id": holder.broker_id, "log_dir": holder.log_dir},
            "only_in_leader_copy": [list(map(int, e)) for e in only_leader[:TOP]],
            "only_in_this_copy": [list(map(int, e)) for e in only_replica[:TOP]],
            "columns": ["producer_id", "first_offset", "marker_offset"],
            "entries": len(only_leader) + len(only_replica),
        },
        doubt=late,
        advice=repairs.rebuild(
            log, without, f"the .txnindex of the segment that holds offset {entry['last_offset']}", "its .index"
        ),
    )


def _index_is_late(log: LogView, without: ReplicaFacts, holder: ReplicaFacts, entry: np.void) -> bool:
    """Whether the entry may only be absent because the index was copied before it came: nothing later is in it, and
    its batch is young, or could not be read again."""
    later = bool(np.any(without.aborted["last_offset"] > entry["last_offset"]))
    row = row_of(log, holder, int(entry["last_offset"]))
    if later or not row:
        return not later
    return log.doubt(log.time(row["max_timestamp"]), other_clock=True, replica=without)
