"""What may be done to replicas and leaders without losing records: one wording for every remedy."""

from __future__ import annotations

import re
from collections.abc import Collection

from auditor.base.errors import DAMAGED_FIELD
from auditor.facts.events import Kind
from auditor.facts.replica_facts import ReplicaFacts
from auditor.rules import commands
from auditor.rules.pairs import Pair, pairs
from auditor.rules.view import METADATA_TOPIC, Cluster, LogView

LOOK = "Nothing is lost by looking."
VOTE = (
    f"Do not move or delete a folder of {METADATA_TOPIC}: it holds quorum-state, the vote of its node, and one that "
    "forgets how it voted may elect a second leader"
)
# What :func:`refetch` and :func:`lead` say, to be found again in remedies (:mod:`auditor.rules.crossed`).
FETCHED = re.compile(
    r"check that broker (?P<sources>\d+(?: or \d+)*) is in the Isr: (?P<look>[^;]*) ; "
    r"then stop broker (?P<broker>\d+), move (?P<folder>\S+) away and keep it, start it: "
    r"the replica is fetched again\. It loses what only broker (?P=broker) has"
)
LEADS = re.compile(
    r"make it leader: put (?P<broker>\d+) first among the replicas of \S+ \(kafka-reassign-partitions\.sh\), then "
    r"kafka-leader-election\.sh [^;.]*--partition \d+"
)
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


def lead(log: LogView, replica: ReplicaFacts) -> str:
    """Making an in-sync replica the leader."""
    return (
        f"make it leader: put {replica.broker_id} first among the replicas of {log.name} "
        f"(kafka-reassign-partitions.sh), then {commands.prefer(log.topic, log.partition)}"
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
        f"the replicas in sync have. Those without a leader: {commands.unavailable()} "
    )


def _had_all(cluster: Cluster, place: tuple[str, int]) -> Collection[int]:
    """The replicas in sync; of a partition without a leader the eligible ones (KIP-966) too."""
    offline = cluster.offline.get(place)
    return cluster.in_sync.get(place, ()) if offline is None else offline.in_sync


def refetch(log: LogView, replica: ReplicaFacts, holder: ReplicaFacts | None = None) -> str:
    """Fetching a replica again, where another one is known to have the data; else how to keep what there is.

    ``holder``: a replica in the input that is known to have what this one lacks. One with damage of its own is none.
    """
    if log.topic == METADATA_TOPIC:
        return voter(replica)
    in_sync = [b for b in log.cluster.in_sync.get((log.topic, log.partition), ()) if b != replica.broker_id]
    damaged = {c.broker_id for c in log.replicas if is_damaged(log, c)}
    brokers = [b for b in (in_sync if holder is None else [holder.broker_id]) if b not in damaged]
    if not brokers:
        return keep(replica.folder, replica.broker_id, commands.describe_topic(log.topic))
    names = " or ".join(str(b) for b in brokers)
    return (
        f"check that broker {names} is in the Isr: {commands.describe_topic(log.topic)} ; then stop broker "
        f"{replica.broker_id}, move {replica.folder} away and keep it, start it: the replica is fetched again. It "
        f"loses what only broker {replica.broker_id} has"
    )


def voter(replica: ReplicaFacts) -> str:
    """What may be done about a node's log of the metadata: nothing that takes its vote from it."""
    return (
        f"{VOTE}. Copy {replica.folder} of broker {replica.broker_id} to a safe place before that broker starts; see "
        f"which voters follow: {commands.quorum()} ; a voter whose log is wrong is replaced by one with another "
        "directory.id (KIP-853), never by an empty folder under its old one"
    )


def keep(folder: str, broker: object, look: str) -> str:
    """Keeping a replica that nobody is known to have the data of. ``look``: the command that shows who is in sync."""
    return (
        f"Do not move or delete {folder}: no other replica is known to have its data. Copy it to a safe place before "
        f"broker {broker} is restarted; {look} shows if there is another in-sync replica; without one, what can be "
        "saved are the records before and behind, read by consumers that seek there. Moving the folder away would lose "
        "all of it"
    )


def rebuild(replica: ReplicaFacts, *files: str) -> str:
    """Letting a broker write a segment's indexes anew. A missing .index makes the start recover the segment, and that
    cuts it at the first batch that is broken (Kafka's LogLoader, LogSegment.recover)."""
    return (
        f"Only where no broken batch is reported in this segment, since the start would cut it there: stop broker "
        f"{replica.broker_id}, move {' and '.join(files)} away and keep them, start it: both are written anew from the "
        "log. It loses no record then"
    )


def rescue(log: LogView, replica: ReplicaFacts, offset: int) -> str:
    """Keeping what only one replica still has, from an offset on, before its broker follows another lineage and cuts
    it.

    Nothing in it moves or deletes what the only copy is of: the folder is copied, and only read.
    """
    if log.topic == METADATA_TOPIC:
        return voter(replica)
    return (
        f"Keep {replica.folder} of broker {replica.broker_id} before that broker starts (it cuts the log at offset "
        f"{offset} then): copy the folder to a safe place, and read the copy: "
        f"{commands.dump(None, '--print-data-log')} ; produce again what is missed; set "
        f"unclean.leader.election.enable=false for {log.topic}. {LOOK}"
    )


def keep_tail(log: LogView, replica: ReplicaFacts) -> str:
    """Keeping the torn end of a log that holds acknowledged records, before a start cuts it off."""
    return (
        f"Copy {replica.folder} of broker {replica.broker_id} to a safe place before that broker starts: it cuts "
        "these bytes off. Let an in-sync replica that has the records lead; who is in the Isr: "
        f"{commands.describe_topic(log.topic)} . {LOOK}"
    )


def _some(values: Collection[object], most: int = 5) -> str:
    named = [str(value) for value in values][:most]
    more = f" and {len(values) - most} more" if len(values) > most else ""
    return f"{' or '.join(named) if not more else ', '.join(named)}{more}" if named else "none"
