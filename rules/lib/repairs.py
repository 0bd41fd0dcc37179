"""What may be done to replicas and leaders without losing records: one wording for every advice."""

from __future__ import annotations

from collections.abc import Collection

from auditor.base.advice import Act, Advice, Condition, Look, Moves, Verdict
from auditor.base.errors import DAMAGED_FIELD
from auditor.facts.events import Kind
from auditor.facts.replica_facts import ReplicaFacts
from auditor.rules.lib import commands
from auditor.rules.lib.pairs import Pair, pairs
from auditor.rules.lib.stops import BY_METADATA, NOT_BY_METADATA, gated, moved, of_quorum
from auditor.rules.seen.cluster_view import METADATA_TOPIC, Cluster
from auditor.rules.seen.view import LogView

PRODUCE_AGAIN = "produce again what is missed"
DAMAGED = ("bad_size", "bad_magic", "limit", "unreadable")  # bytes of a segment that are in no batch


def keeps_out(log: LogView, replica: ReplicaFacts) -> str | None:
    """Why a follower's replica must not be made leader, since records would be lost by it; None where nothing speaks
    against it. That it is in sync now is still to be looked up."""
    if is_damaged(log, replica):
        return "batches of its log are damaged"
    pair: Pair | None = next((pair for pair in pairs(log) if pair.replica is replica), None)
    if pair is None:
        return "its replica cannot be compared with the leader's"
    if pair.divergent:
        return (
            f"its log is another one from offset {pair.first_offset} on, and the leader's records there would be lost"
        )
    if lacks := [gap for gap in pair.gaps if not gap.in_leader]:
        return f"it lacks offsets {lacks[0].first_offset} to {lacks[-1].last_offset}, which would be lost"
    if pair.undecided:
        return "not all of it could be compared with the leader's replica"
    in_sync = log.cluster.in_sync.get((log.topic, log.partition))
    if in_sync is not None and replica.broker_id not in in_sync:
        return f"it is not in sync (in sync: {_some(in_sync)}), and what it has not fetched would be lost"
    return None


def is_damaged(log: LogView, replica: ReplicaFacts) -> bool:
    """Whether batches of a replica are damaged, whose data nobody should fetch from it."""
    damaged = any(e.reason in (*DAMAGED, DAMAGED_FIELD) and e.file in replica.segments for e in replica.errors)
    return damaged or any(True for _ in log.events(Kind.CRC, replica=replica))


def in_sync(log: LogView, broker: int | None) -> Condition:
    """That a broker has the partition in sync. The metadata shows it as of its copy."""
    known = log.cluster.in_sync.get((log.topic, log.partition))
    what = has_in_sync(log.name, broker)
    return Condition(what, broker in known if known else None, BY_METADATA if known else NOT_BY_METADATA)


def has_in_sync(name: str, broker: int | None) -> str:
    """The same in words."""
    return f"broker {broker} has {name} in sync"


def seen_in_sync(log: LogView, *brokers: int | None) -> Look:
    """Who is in sync now."""
    return Look(commands.describe_topic(log.topic), isr_lists(log.name, brokers))


def isr_lists(name: str, brokers: Collection[int | None]) -> str:
    """What has to be seen of a partition's in-sync replicas: one of these brokers."""
    return f"the Isr of {name} lists broker {' or '.join(map(str, brokers))}"


def lead(log: LogView, replica: ReplicaFacts) -> tuple[Act, Act]:
    """Making an in-sync replica the leader."""
    return (
        Act(
            f"make broker {replica.broker_id} the leader: put it first among the replicas of {log.name} "
            "(kafka-reassign-partitions.sh)"
        ),
        Act(commands.prefer(log.topic, log.partition)),
    )


def leader_back(cluster: Cluster, names: Collection[str]) -> str:
    """Letting partitions (``topic-partition``) have a leader again without losing what only in-sync replicas have."""
    places = [(topic, int(number)) for topic, _, number in (name.rpartition("-") for name in names)]
    brokers = sorted({broker for place in places for broker in _had_all(cluster, place)})
    start = (
        f"start broker {_some(brokers)}, in sync by the metadata" if brokers else "start those that were in sync last"
    )
    return (
        f"bring a leader of {_some(sorted(names))} back: {start}; never by an unclean election, which drops what only "
        "the replicas in sync have"
    )


def without_leader(cluster: Cluster, names: Collection[str], cost: str) -> Advice:
    """Bringing a leader back: started is a broker that has all of these partitions. Errors: none."""
    places = [(topic, int(number)) for topic, _, number in (name.rpartition("-") for name in names)]
    known = cluster.has_metadata and all(_had_all(cluster, place) for place in places)
    some = _some(sorted(names))
    has_all = Condition(f"who has all of {some} is known", known or None, BY_METADATA if known else NOT_BY_METADATA)
    act = (Act(leader_back(cluster, names)),) if known else ()
    return Advice(
        Verdict.ACT if known else Verdict.LOOK,
        cost,
        (has_all,),
        (Look(commands.unavailable(), f"it lists {some}"),),
        act,
        then="" if known else leader_back(cluster, names),
    )


def _had_all(cluster: Cluster, place: tuple[str, int]) -> Collection[int]:
    """The replicas in sync; of a partition without a leader the eligible ones (KIP-966) too."""
    offline = cluster.offline.get(place)
    return cluster.in_sync.get(place, ()) if offline is None else offline.in_sync


def refetch(log: LogView, replica: ReplicaFacts, holder: ReplicaFacts | None = None) -> Advice:
    """Fetching a replica again, where another one is known to have the data; else how to keep what there is.

    ``holder``: a replica in the input that is known to have what this one lacks. One with damage of its own is none.
    """
    if log.topic == METADATA_TOPIC:
        return of_quorum(log, replica)
    synced = [b for b in log.cluster.in_sync.get((log.topic, log.partition), ()) if b != replica.broker_id]
    damaged = {c.broker_id for c in log.replicas if is_damaged(log, c)}
    named = synced if holder is None else [b for b in [holder.broker_id] if b is not None]
    brokers = [b for b in named if b not in damaged]
    if not brokers:
        return keep(replica.folder, replica.broker_id, commands.describe_topic(log.topic))
    again = Act(
        f"stop broker {replica.broker_id}, move {replica.folder} away and keep it, start it: the replica is fetched "
        "again"
    )
    advice = Advice(
        Verdict.ACT,
        f"a replica that is fetched again loses what only broker {replica.broker_id} has",
        look=(seen_in_sync(log, *brokers),),
        act=(again,),
        moves=Moves(replica.broker_id, tuple(brokers)),
    )
    synced_ones = (in_sync(log, b) for b in brokers)
    return gated(log.cluster, replica.broker_id, advice, *synced_ones, *moved(log, replica.broker_id))


def keep(folder: str, broker: object, look: str) -> Advice:
    """Keeping a replica that nobody is known to have the data of. ``look``: the command that shows who is in sync."""
    return Advice(
        Verdict.DO_NOT_ACT,
        f"no other replica is known to have the data of {folder}, and moving it away would lose all of it",
        look=(Look(look, f"the Isr of {folder} lists nobody but broker {broker}"),),
        then=f"copy it to a safe place before broker {broker} next starts; where the Isr lists nobody else, what can "
        "be saved are the records before and behind, read by consumers that seek there",
    )


def rebuild(log: LogView, replica: ReplicaFacts, *files: str) -> Advice:
    """Letting a broker write a segment's indexes anew. A missing .index makes the start recover the segment, and that
    cuts it at the first batch that is broken (Kafka's LogLoader, LogSegment.recover)."""
    sound = Condition(
        f"no batch of {replica.folder} is broken, since the start would cut it there",
        not is_damaged(log, replica),
        "all of it was read",
    )
    act = Act(
        f"stop broker {replica.broker_id}, move {' and '.join(files)} away and keep them, start it: both are written "
        "anew from the log"
    )
    return gated(log.cluster, replica.broker_id, Advice(Verdict.ACT, "it loses no record", act=(act,)), sound)


def rescue(log: LogView, replica: ReplicaFacts, offset: int, amends: str = PRODUCE_AGAIN) -> Advice:
    """Keeping what only one replica still has, from an offset on, before its broker follows another lineage and cuts
    it. ``amends``: what is to be produced again.

    Nothing in it moves or deletes what the only copy is of: the folder is copied, and only read.
    """
    if log.topic == METADATA_TOPIC:
        return of_quorum(log, replica)
    return Advice(
        Verdict.ACT,
        f"nothing is lost by keeping {replica.folder} of broker {replica.broker_id}, which cuts its log at offset "
        f"{offset} when it starts",
        act=(Act(f"copy {replica.folder} of broker {replica.broker_id} to a safe place before that broker starts"),),
        then=f"read the copy: {commands.dump(None, '--print-data-log')} ; {amends}",
    )


def compared(log: LogView, replica: ReplicaFacts, offset: int) -> Advice:
    """What lacks from an offset on may be in another replica, where there is one."""
    if log.cluster.replicas.get((log.topic, log.partition)) == 1:
        return Advice(
            Verdict.LOOK, then=f"there is no other replica of {log.name}: what lacks has to come from its source again"
        )
    return Advice(
        Verdict.LOOK,
        then=f"compare with the other replicas from offset {offset} on, before broker {replica.broker_id} leads "
        f"{log.name}",
    )


def torn_tail(log: LogView, replica: ReplicaFacts, *, newest: bool, lost: bool) -> Advice:
    """What a torn end needs before a start cuts it off: nothing, but where it held acknowledged records (``lost``), or
    lies before the ``newest`` segment, where the records behind it would be cut off, too."""
    if newest and not lost:
        return Advice(
            Verdict.WAIT,
            "nothing is to be done: "
            + ("the high watermark is not in it, and " if replica.high_watermark is not None else "")
            + f"broker {replica.broker_id} cuts these bytes off when it starts",
        )
    others = log.cluster.replicas.get((log.topic, log.partition)) != 1
    return Advice(
        Verdict.ACT,
        f"nothing is lost by keeping {replica.folder} of broker {replica.broker_id}, which cuts its log at offset "
        f"{replica.log_end} when it starts"
        if lost
        else f"nothing is lost by keeping {replica.folder} of broker {replica.broker_id}, which may cut off what lies "
        "behind these bytes when it starts",
        act=(Act(f"copy {replica.folder} of broker {replica.broker_id} to a safe place before that broker starts"),),
        then="let a replica lead that is in sync and has the records, where there is one"
        if others
        else f"there is no other replica: read the copy for what is cut off: {commands.dump(None, '--print-data-log')}",
    )


def _some(values: Collection[object], most: int = 5) -> str:
    named = [str(value) for value in values][:most]
    more = f" and {len(values) - most} more" if len(values) > most else ""
    return f"{' or '.join(named) if not more else ', '.join(named)}{more}" if named else "none"
