"""What a producer snapshot that is not what the log gives needs: seldom anything, and never a start as after a crash.

A start without ``.kafka_cleanshutdown`` takes a broker out of the in-sync and eligible replicas of all its partitions
(KIP-966), for one snapshot of one of them.
"""

from __future__ import annotations

from auditor.base.advice import Act, Advice, Condition, Moves, Verdict
from auditor.facts.replica_facts import ReplicaFacts, SnapshotLink
from auditor.rules.lib import repairs
from auditor.rules.lib.stops import gated
from auditor.rules.seen.view import LogView


def without_it(log: LogView, replica: ReplicaFacts, link: SnapshotLink, *, opened: bool) -> Advice:
    """What a wrong snapshot needs: nothing where no start reads it; another leader where one of the replicas in sync
    goes by what the log says; only where its broker holds a transaction open (``opened``) a start without it."""
    newest = max(replica.snapshots, key=lambda other: other.offset)
    name = log.name
    if newest is not link:
        return Advice(
            Verdict.WAIT,
            f"nothing is lost: broker {replica.broker_id} starts from {newest.file}, which is newer",
            then=f"keep {link.file} for a report",
        )
    if replica is not log.leader or log.cluster.last_leader(log.topic, log.partition) not in (None, replica.broker_id):
        if not opened:
            return Advice(
                Verdict.WAIT,
                f"nothing is lost while broker {replica.broker_id} follows: it takes each producer's state from what "
                "the leader stored next",
                then=f"do not make it the leader of {name} before these producers have written again",
            )
        return _without_snapshot(log, replica, link)
    sound = next((c for c in log.replicas if c is not replica and repairs.keeps_out(log, c) is None), None)
    if sound is not None and not any(each.differences for each in sound.snapshots):
        return Advice(
            Verdict.ACT,
            f"nothing is lost by letting broker {sound.broker_id} lead, whose snapshots fit the log",
            (Condition(f"broker {sound.broker_id} has all that the leader has", True, "both replicas"),),
            (repairs.seen_in_sync(log, sound.broker_id),),
            repairs.lead(log, sound),
            then=f"broker {replica.broker_id} then takes each producer's state from what it follows",
            moves=Moves(leads=sound.broker_id),
        ).unless(repairs.in_sync(log, sound.broker_id))
    if opened:
        return _without_snapshot(log, replica, link)
    return Advice(
        Verdict.WAIT,
        "nothing is to be done: a producer whose next batch is refused for it (OUT_OF_ORDER_SEQUENCE_NUMBER) goes on "
        "with a new epoch, and a batch that was sent twice meanwhile may be stored twice",
        then=f"let another replica lead {name} where one is in sync; keep {link.file} for a report",
    )


def _without_snapshot(log: LogView, replica: ReplicaFacts, link: SnapshotLink) -> Advice:
    """Starting without a wrong snapshot that holds a transaction open, where the log that it sums up is still there. A
    clean start reads the next older one, and replays the log from there; nothing makes it one as after a crash."""
    older = any(other.offset < link.offset for other in replica.snapshots)
    begins_later = bool(replica.log_start > 0 or (replica.segment_bases and replica.segment_bases[0] > 0))
    if not older:
        return Advice(
            Verdict.DO_NOT_ACT,
            "the log below it is gone, so what it knows of older producers would be lost"
            if begins_later
            else "a start that finds no snapshot forgets all producers, unless it is one as after a crash",
            then=f"do not delete {link.file}: compare it with the snapshots of the other replicas",
        )
    act = Act(
        f"stop broker {replica.broker_id}, move {link.file} out of the folder and keep it, start it: an older one is "
        "loaded, the log replayed"
    )
    there = Condition("an older snapshot is there", True, f"the folder of broker {replica.broker_id}")
    return gated(
        log.cluster, replica.broker_id, Advice(Verdict.ACT, "it loses nothing: the log has it all", act=(act,)), there
    )
