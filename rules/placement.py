"""The rules on where partitions are: without a leader, without a folder, of a removed topic, twice in one broker."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise

from auditor.base.advice import Act, Advice, Condition, Verdict
from auditor.base.words import few, plural
from auditor.facts.replica_facts import ReplicaFacts
from auditor.rules.catalogue.needs import Need
from auditor.rules.catalogue.registry import rule
from auditor.rules.lib import repairs, stops
from auditor.rules.seen.cluster_view import METADATA_TOPIC
from auditor.rules.seen.elections import SHUTTING_DOWN, UP, Offline, WithoutLeader
from auditor.rules.seen.finding import Finding
from auditor.rules.seen.view import LogView
from auditor.rules.settled.together import by_cause

FAMILY = "replicas"
OF_REMOVED = "replica-of-removed-topic"
WHILE = ", while "
STRAY = (3, 7)  # from here on a start sets aside what belongs to no topic, before it deleted it


def _of_one_stop(f: Finding) -> Hashable:
    """What the same brokers had when they were stopped, and nobody leads since."""
    stopped = f.severity == "info" and f.if_true is None
    return f.message.partition(WHILE)[2] if stopped else None


def _all_offline(found: Sequence[Finding]) -> str:
    return f"Nobody leads {plural(len(found), 'partition')}{WHILE}{found[0].message.partition(WHILE)[2]}"


@rule(
    "partition-offline",
    family=FAMILY,
    severities={
        "error": "",
        "critical": "for internal topics",
        "info": "where a broker that has all of it was stopped cleanly, or in doubt",
    },
    outcomes={"blocked": ""},
    together=by_cause(_of_one_stop, _all_offline),
    needs=(Need.METADATA,),
)
def partition_offline(log: LogView) -> Iterator[Finding]:
    """Nobody leads a partition, though the cluster is up

    Checks: partitions without a leader at the end of __cluster_metadata, where the same metadata has a broker that is
    registered, not fenced and not shutting down; also those of which no replica is in the input.
    Why it matters: nothing can be written to the partition or read from it. Of an internal topic, no transaction of its
    ids ends, and no group of it commits offsets.
    Can be wrong: the metadata is of the moment when it was copied; a broker that was just starting may lead by now. A
    cluster that was stopped as a whole has no leader anywhere and is sound: nothing is said of it. In doubt where a
    majority of the voters is in the input and has not the record that took the leader.
    What to do: bring back a broker that was in sync last, with the log directory that has the partition; never elect
    another one uncleanly, which drops what only the replicas in sync have.
    Source: KIP-631, KIP-966, ReplicationControlManager
    """
    if log.topic != METADATA_TOPIC:
        return
    for (topic, partition), offline in sorted(log.cluster.offline.items()):
        finding = _offline(log, topic, partition, offline)
        finding.broker_id = None  # it is about the cluster, not the broker whose metadata says so
        yield finding


def _offline(log: LogView, topic: str, partition: int, offline: Offline) -> Finding:
    name = f"{topic}-{partition}"
    stopped = SHUTTING_DOWN in offline.in_sync.values()
    had_all = [f"broker {broker} ({_stands(how)})" for broker, how in offline.in_sync.items()]
    gaps = log.cluster.leaderless.get((topic, partition), ())
    since = gaps[-1] if gaps and gaps[-1].until is None else None
    return log.finding(
        "partition-offline",
        "info" if stopped else "critical" if topic.startswith("__") else "error",
        f"Nobody leads {name}{WHILE}{'brokers' if len(offline.up) > 1 else 'broker'} {few(offline.up)} "
        f"{'are' if len(offline.up) > 1 else 'is'} up; in sync last: {', '.join(had_all[:5]) or 'nobody'}"
        + ("; it is led again once that broker starts" if stopped else ""),
        doubt=_missing(log, since) is not None,
        topic=topic,
        partition=partition,
        time_ms=since and since.since,
        evidence={
            "leader_epoch": offline.leader_epoch,
            "replicas": offline.replicas,
            "in_sync": list(offline.in_sync),
            "up": offline.up,
            "missing": _missing(log, since),
        },
        advice=Advice(Verdict.WAIT, "it is led again once that broker starts")
        if stopped
        else repairs.without_leader(log.cluster, [name], "nothing is lost by starting a broker that has all of it"),
    )


def _missing(log: LogView, since: WithoutLeader | None) -> str | None:
    """What there would have to be in the input to be sure."""
    if not log.cluster.has_metadata:
        return "a part of __cluster_metadata"
    if since is not None and log.cluster.may_be_uncommitted(since.offset):
        return "a majority of the voters with the record that took the leader"
    return None


def _stands(how: str) -> str:
    return "up: look for a failed log directory" if how == UP else "stopped cleanly" if how == SHUTTING_DOWN else how


def _of_one_copy(f: Finding) -> Hashable:
    """Of each that may be there, in a directory that was copied file by file: the broker's copy is in question."""
    return None if f.severity != "info" else f.broker_id


def _all_absent(found: Sequence[Finding]) -> str:
    alone = sum(f.evidence["in_sync"] == [f.broker_id] for f in found)
    return (
        f"Broker {found[0].broker_id} has no folder of {plural(len(found), 'partition')}, which it has in sync by the "
        "metadata; " + (f"of {alone} of them nobody else is in sync" if alone else "others are in sync beside it")
    )


@rule(
    "replica-absent",
    family=FAMILY,
    severities={"critical": "", "info": "where files were copied one after another"},
    outcomes={"at_risk": ""},
    together=by_cause(_of_one_copy, _all_absent),
    needs=(Need.METADATA,),
)
def replica_absent(log: LogView) -> Iterator[Finding]:
    """A broker has no folder of a partition that it has in sync

    Checks: with --whole, which says that all log.dirs of each broker are in the input: replicas that are in sync or
    eligible by the end of __cluster_metadata, before the shutdowns that end it, and have no folder at their broker. Not
    in doubt where the broker's own metadata has the replica, and was stopped with it or copied in one moment.
    Why it matters: the broker makes an empty log at its start. As leader it goes on from there, and the others cut
    theirs: acknowledged records are lost.
    Can be wrong: a log.dir that was not copied after all.
    What to do: do not start the broker before the log directory is found; look for a disk that is not mounted. Let
    another replica in sync lead first, then start the broker: the partition is fetched again.
    Source: KIP-858, KIP-966
    """
    for a in log.cluster.absent if log.topic == METADATA_TOPIC else ():
        others = [broker for broker in a.in_sync if broker != a.broker_id]
        finding = log.finding(
            "replica-absent",
            "critical",
            f"Broker {a.broker_id} has no folder of {a.topic}-{a.partition}, which it has in sync by the metadata; "
            + (f"in sync beside it: {few(others)}" if others else "nobody else is in sync"),
            doubt=not a.sure,
            topic=a.topic,
            partition=a.partition,
            evidence={"in_sync": a.in_sync},
        )
        finding.broker_id = a.broker_id
        yield finding


@rule(
    OF_REMOVED,
    family=FAMILY,
    severities={"info": "", "warning": "where it is in sync and nothing shows that it was removed"},
    needs=(Need.OF_ANOTHER,),
)
def replica_of_removed_topic(log: LogView) -> Iterator[Finding]:
    """A broker has a folder of a topic that was removed

    Checks: folders whose topic id (partition.metadata) is not that of the topic of that name by __cluster_metadata,
    where that shows the removal, or another broker has a -delete folder of that id; without that, copies of one
    partition with different topic ids. Such a folder is no replica of the topic that there is: it is compared with
    none, and nothing else is said of it.
    Why it matters: the broker was down when the topic was removed. Its start sets the folder aside as -stray (seen with
    3.7, 3.9, 4.3); brokers before 3.7 delete it (seen with 3.5, 3.6).
    Can be wrong: a partition.metadata that was damaged, or came from elsewhere: a warning where the metadata has that
    broker in sync, since its start sets aside what it has.
    What to do: nothing. If somebody misses the removed topic's records, copy the folder before the broker starts.
    Source: KIP-516; LogManager.isStrayKraftReplica, BrokerMetadataPublisher.findStrayPartitions
    """
    for c in log.of_another:
        sure, now = c.topic_id in log.cluster.incarnations.removed, log.cluster.incarnations.now[log.topic]
        in_sync = c.broker_id in log.cluster.in_sync.get((log.topic, log.partition), ())
        stray = log.cluster.release(c.broker_id).least >= STRAY
        yield log.finding(
            OF_REMOVED,
            "warning" if in_sync and not sure else "info",
            f"Broker {c.broker_id} has {c.folder} of {'a topic' if sure else 'another topic'} {log.topic}"
            + (", which was removed" if sure else ", which is not the one that there is")
            + (" and made again" if sure and now else "")
            + f": its start {'renames it -stray' if stray else 'renames it -stray, or before 3.7 deletes it'}"
            + (", though it is in sync by the metadata" if in_sync and not sure else ""),
            replica=c,
            evidence={
                "topic_id": c.topic_id,
                "topic_id_now": now or None,
                "log_end": c.log_end,
                "confidence": "proved" if sure else "undecidable",
                "missing": None if sure else "the removal of its topic in __cluster_metadata",
            },
            advice=Advice(
                Verdict.WAIT,
                "its start sets the folder aside",
                then=f"copy {c.folder} of broker {c.broker_id} to a safe place before that broker starts, if its "
                "records are missed",
            ),
        )


@rule(
    "partition-in-two-log-dirs",
    family=FAMILY,
    severities={"error": "", "info": "where the directories cannot be told apart"},
    outcomes={"at_risk": ""},
    needs=(Need.REPLICAS,),
)
def partition_in_two_log_dirs(log: LogView) -> Iterator[Finding]:
    """One broker has a partition in two of its log directories

    Checks: two folders of one partition, of one topic id, in log directories of one broker whose meta.properties have
    different directory.id. Folders that are being moved to another log directory (-future) are none, nor those that are
    set aside (-stray, -delete).
    Why it matters: the broker ends at its start ("Duplicate log directories for ... are found in both"), with all that
    it has.
    Can be wrong: before 3.7 no directory.id tells two log directories from two copies of one: there it is an info.
    What to do: find which of the two goes further (last leader epoch, then log end); keep both, and move the other one
    out of its log directory before the broker starts.
    Source: LogManager.loadLog, every release from 2.0.1 on
    """
    for one, other, known in _doubles(log):
        behind = min(one, other, key=lambda c: c.rank)
        ahead = one if behind is other else other
        yield log.finding(
            "partition-in-two-log-dirs",
            "error",
            f"Broker {one.broker_id} has {log.name} in two log directories, {one.log_dir} and {other.log_dir}"
            + (": it ends at its start" if known else ", if these are not two copies of one"),
            replica=behind,
            doubt=not known,
            evidence={
                "further": f"{ahead.log_dir}/{ahead.folder}",
                "ends": {c.log_dir: {"leader_epoch": c.rank[0], "log_end": c.log_end} for c in (one, other)},
                "missing": None if known else "directory.id in meta.properties",
            },
            advice=Advice(
                Verdict.DO_NOT_ACT,
                stops.VOTE,
                then="keep both, and move neither: a broker reads the one in metadata.log.dir",
            )
            if log.topic == METADATA_TOPIC
            else Advice(
                Verdict.ACT,
                "nothing is lost: both are kept",
                (Condition(f"{ahead.log_dir}/{ahead.folder} goes as far or further", True, "both logs"),),
                act=(
                    Act(
                        f"keep both; before the broker starts move {behind.log_dir}/{behind.folder} out of its log "
                        "directory"
                    ),
                ),
            ),
        )


def twice(log: LogView) -> dict[str, str]:
    """By log directory another one of its broker that is known to have the same partition: no such broker starts."""
    known = [(one.log_dir, other.log_dir) for one, other, sure in _doubles(log) if sure]
    return {b: a for a, b in known} | dict(known)


def _doubles(log: LogView) -> Iterator[tuple[ReplicaFacts, ReplicaFacts, bool]]:
    """Neighbours among the replicas of one topic id that one broker has in two log directories, and whether these are
    known to be two."""
    if len(log.replicas) < 2:
        return
    of_brokers: dict[tuple[int, str | None], list[ReplicaFacts]] = {}
    for c in log.replicas:
        if c.broker_id is not None and not (c.text or c.live):
            of_brokers.setdefault((c.broker_id, c.topic_id), []).append(c)
    for copies in of_brokers.values():
        for one, other in pairwise(copies):
            ids = [log.cluster.directory_ids.get(c.log_dir) for c in (one, other)]
            if None in ids or ids[0] != ids[1]:
                yield one, other, None not in ids
