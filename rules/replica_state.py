"""Where replicas of one log start, and which producers they know: legal, and said before a failover shows it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from auditor.base.advice import Advice, Verdict
from auditor.rules.catalogue.needs import Need
from auditor.rules.catalogue.registry import rule
from auditor.rules.catalogue.relations import DIVERGED_BEFORE
from auditor.rules.lib.lost_batches import TOP
from auditor.rules.lib.pairs import Pair, watermark
from auditor.rules.lib.pairs import pairs as replica_pairs
from auditor.rules.replicas import FAMILY
from auditor.rules.seen.finding import Finding
from auditor.rules.seen.view import LogView


@rule(
    "replica-state-differs",
    family=FAMILY,
    severities={"info": ""},
    absorbed_by=(DIVERGED_BEFORE,),
    needs=(Need.REPLICAS,),
)
def replica_state_differs(log: LogView) -> Iterator[Finding]:
    """Replicas know different producers, or start at different offsets

    Checks: a follower whose log start lies below the leader's; a leader whose log start lies below a follower's, though
    that lies within a segment, where only a leader's DeleteRecords puts it: it went back at a failover, since brokers
    note it once a minute. Snapshots of two replicas at the same offset that know different producers.
    Why it matters: the next leader may know a producer that this one forgot, or the other way round: before 2.5 clients
    then see UNKNOWN_PRODUCER_ID or OUT_OF_ORDER_SEQUENCE_NUMBER. Where the start went back, deleted records can be read
    again.
    Can be wrong: legal, since each replica has its own retention, expiry and start. A running leader's start may be
    higher than what it noted last (then the finding says that it may be in flight).
    What to do: nothing while clients are 2.5 or newer.
    Source: KIP-360 (problem 2, and the note on reassignment); ProducerStateManager.truncateAndReload
    """
    for pair in replica_pairs(log):
        if pair.replica.segments and pair.leader.segments and pair.replica.own_start < pair.leader.own_start:
            yield _lower_start(log, pair)
        if _went_back(pair):
            yield _start_back(log, pair)
        differing = pair.snapshots()
        if differing:
            yield _other_producers(log, pair, differing)


def _lower_start(log: LogView, pair: Pair) -> Finding:
    replica, leader = pair.replica, pair.leader
    return log.finding(
        "replica-state-differs",
        "info",
        f"{log.name} starts at offset {replica.own_start} on broker {replica.broker_id}, at {leader.own_start} on "
        f"broker {leader.broker_id} (leader): a change of leader can bring back producers that the leader forgot",
        replica=replica,
        offset=replica.own_start,
        last_offset=leader.own_start - 1,
        evidence={
            "log_start": replica.own_start,
            "log_start_of_leader_copy": leader.own_start,
            "leader_copy": {"broker_id": leader.broker_id, "log_dir": leader.log_dir},
        },
    )


def _went_back(pair: Pair) -> bool:
    """Whether the leader starts below a follower that a leader made begin within a segment (DeleteRecords)."""
    replica, leader = pair.replica, pair.leader
    known = replica.segments and leader.segments and replica.log_start_known and leader.log_start_known
    known = known and replica.unread_from < 0  # else nobody looked whether it begins within a segment
    return bool(known) and leader.own_start < replica.own_start and replica.own_start not in replica.segment_bases


def _start_back(log: LogView, pair: Pair) -> Finding:
    replica, leader = pair.replica, pair.leader
    doubt = not log.at_rest(leader)
    return log.finding(
        "replica-state-differs",
        "info",
        f"The start of {log.name} went back from {replica.own_start} to {leader.own_start} when broker "
        f"{leader.broker_id} became leader or restarted: records that were deleted can be read again, and producers "
        "are known again" + (" (it may only not have noted its start yet)" if doubt else ""),
        replica=leader,
        offset=leader.own_start,
        last_offset=replica.own_start - 1,
        evidence={
            "log_start": leader.own_start,
            "log_start_before": replica.own_start,
            "leader_epochs": [replica.last_leader_epoch, leader.last_leader_epoch],
            "seen_on": {"broker_id": replica.broker_id, "log_dir": replica.log_dir},
        },
        doubt=doubt,
        advice=Advice(
            Verdict.LOOK,
            then=f"if those below {replica.own_start} have to be gone, delete them once more "
            "(kafka-delete-records.sh), which cannot be undone",
        ),
    )


def _other_producers(log: LogView, pair: Pair, differing: list[tuple[int, np.ndarray, np.ndarray]]) -> Finding:
    offset, only_replica, only_leader = differing[-1]
    return log.finding(
        "replica-state-differs",
        "info",
        f"The producer snapshots of {log.name} at offset {offset} know different producers: {len(only_replica)} only "
        f"on broker {pair.replica.broker_id}, {len(only_leader)} only on broker {pair.leader.broker_id} (leader)",
        replica=pair.replica,
        offset=offset,
        last_offset=offset,
        file=next((link.file for link in pair.replica.snapshots if link.offset == offset), None),
        evidence={
            "only_in_this_copy": only_replica[:TOP].tolist(),
            "only_in_leader_copy": only_leader[:TOP].tolist(),
            "snapshots": [at for at, _, _ in differing][-TOP:],
            "leader_copy": {"broker_id": pair.leader.broker_id, "log_dir": pair.leader.log_dir},
            "high_watermarks": [watermark(pair.replica), watermark(pair.leader)],
        },
    )
