"""Rules on placement, elections and tiered storage."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import pairwise

from auditor.base.advice import Advice, Step, Verdict, shown
from auditor.base.at_rest import Fields
from auditor.base.errors import OTHER_VERSION, setting_number
from auditor.base.evidence_keys import ElectionEvidence, Evidence, OfflineEvidence, read
from auditor.base.remote_segments import RemotePartition, RemoteSegment, RemoteSegmentState, holes
from auditor.base.words import few, plural
from auditor.evidence.cluster_clocks import RESTART_MS, is_after
from auditor.facts.crash_recovery import (
    LOST,
    METADATA_LOG,
    NO_ID,
    OF_LOGS,
    REBUILT,
    TAIL,
    TOPIC_ID,
    StartStep,
    own_files,
    start_steps,
)
from auditor.facts.replica_facts import ReplicaFacts
from auditor.model.log_maintenance import LogSegment, RetentionSettings, retention_verdicts
from auditor.rules.catalogue.registry import rule
from auditor.rules.lib import repairs
from auditor.rules.lib.lost_batches import lost_of, tail_advice, unsent
from auditor.rules.lib.replica_pairs import pairs as replica_pairs
from auditor.rules.resolution.resolve import by_cause
from auditor.rules.seen.cluster_view import HOUR_MS, METADATA_TOPIC, SHUTTING_DOWN, UP, Election, Offline, WithoutLeader
from auditor.rules.seen.view import Finding, LogView, iso

# Placement: offline partitions, absent or duplicate directories, directories of removed topics.


OF_REMOVED, OF_ANOTHER = "replica-of-removed-topic", "partition-of-another-cluster"
WHILE = ", although "
STRAY = (3, 7)  # a start renames directories without a topic to -stray; earlier releases delete them


def _of_one_stop(f: Finding) -> Hashable:
    stopped = f.severity == "info" and f.if_true is None
    return f.message.partition(WHILE)[2] if stopped else None


def _all_offline(findings: Sequence[Finding]) -> str:
    return (
        f"{plural(len(findings), 'partition')} are offline (no leader){WHILE}{findings[0].message.partition(WHILE)[2]}"
    )


@rule(
    "partition-offline",
    when={
        "critical": "for internal topics",
        "info": "if a broker of its ISR was stopped cleanly up to 5 minutes ago, or if inconclusive",
    },
    together=by_cause(_of_one_stop, _all_offline),
)
def partition_offline(log: LogView) -> Iterator[Finding]:
    """A partition is offline (no leader) while the cluster is up

    Checks: a partition has no leader at the end of __cluster_metadata, although the same metadata has a broker that is
    registered, not fenced and not shutting down. Partitions without a replica in the input count too.
    Why it matters: clients can neither write to the partition nor read from it. For an internal topic, the transactions
    of its ids do not complete, and its groups cannot commit offsets.
    Can be wrong: the metadata is as old as its copy; a broker that was just starting may lead by now. A cluster that
    was stopped completely has no leaders and is not reported. The finding is inconclusive if a majority of the voters
    is in the input and lacks the record that removed the leader.
    What to do: start a broker of the last ISR, with the log directory of the partition; do not use an unclean election,
    which drops records that only in-sync replicas have.
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
    gaps = log.cluster.leaderless.get((topic, partition), ())
    since = gaps[-1] if gaps and gaps[-1].until is None else None
    restarts = SHUTTING_DOWN in offline.in_sync.values() and (offline.lasts_ms or 0) <= RESTART_MS
    had_all = [f"broker {broker} ({_stands(how)})" for broker, how in offline.in_sync.items()]
    return log.finding(
        "info" if restarts else "critical" if topic.startswith("__") else "error",
        f"{name} is offline (no leader){WHILE}{'brokers' if len(offline.up) > 1 else 'broker'} {few(offline.up)} "
        f"{'are' if len(offline.up) > 1 else 'is'} up; last ISR: {', '.join(had_all[:5]) or 'none'}"
        + ("; it has a leader again once that broker starts" if restarts else ""),
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
        advice=Advice(Verdict.WAIT, "it has a leader again once that broker starts")
        if restarts
        else repairs.without_leader(log.cluster, [name], "no records are lost if a broker of the last ISR starts"),
    )


def _missing(log: LogView, since: WithoutLeader | None) -> str | None:
    # In the input, to be certain.
    if not log.cluster.has_metadata:
        return "a part of __cluster_metadata"
    if since is not None and log.cluster.may_be_uncommitted(since.offset):
        return "a majority of the voters with the record that removed the leader"
    return None


def _stands(how: str) -> str:
    return "up: check for a failed log directory" if how == UP else "stopped cleanly" if how == SHUTTING_DOWN else how


def _of_one_copy(f: Finding) -> Hashable:
    # The directory was copied file by file, so the broker's copy is in question.
    return None if f.severity != "info" else f.broker_id


def _all_absent(group: Sequence[Finding]) -> str:
    alone = sum(read(OfflineEvidence, f.evidence)["in_sync"] == [f.broker_id] for f in group)
    return (
        f"Broker {group[0].broker_id} has no directory of {plural(len(group), 'partition')}, although it is in their "
        "ISR; " + (f"{alone} of them have no other in-sync replica" if alone else "all have another in-sync replica")
    )


@rule(
    "replica-absent",
    when={"info": "if files were copied one after another"},
    together=by_cause(_of_one_copy, _all_absent),
)
def replica_absent(log: LogView) -> Iterator[Finding]:
    """A broker has no directory of a partition although it is in the ISR

    Checks: only with --whole (all log.dirs of each broker are in the input). A replica is in the ISR or eligible at the
    end of __cluster_metadata, before its final shutdowns, but its broker has no directory of it. The finding is certain
    if the broker's own metadata has the replica, and was stopped with it or is a point-in-time snapshot.
    Why it matters: the broker creates an empty log when it starts. If it then leads, the other replicas truncate their
    logs, and acknowledged records are lost.
    Can be wrong: a log.dir that was not copied after all.
    What to do: do not start the broker before you find the log directory; look for a disk that is not mounted. Make
    another in-sync replica lead first, then start the broker: it re-fetches the partition.
    Source: KIP-858, KIP-966
    """
    for a in log.cluster.absent if log.topic == METADATA_TOPIC else ():
        others = [broker for broker in a.in_sync if broker != a.broker_id]
        finding = log.finding(
            "critical",
            f"Broker {a.broker_id} has no directory of {a.topic}-{a.partition}, although it is in its ISR; "
            + (f"other brokers in the ISR: {few(others)}" if others else "no other replica is in sync"),
            doubt=not a.sure,
            topic=a.topic,
            partition=a.partition,
            evidence={"in_sync": a.in_sync},
        )
        finding.broker_id = a.broker_id
        yield finding


@rule(
    OF_REMOVED,
    when={"warning": "if it is in the ISR and its removal is not shown, or if one topic has two ids"},
)
def replica_of_removed_topic(log: LogView) -> Iterator[Finding]:
    """A broker has a directory of a deleted topic

    Checks: the topic id of a directory (partition.metadata) differs from the topic of that name in __cluster_metadata.
    That metadata shows the deletion, or another broker has a -delete directory of that id. Such a directory is not a
    replica of the current topic and is not judged. Without metadata, copies of one partition may have different topic
    ids. Each is then judged separately, and the finding names the one that was probably deleted. If they begin with the
    same records, they are one topic.
    Why it matters: the broker was down when the topic was deleted. With KRaft its start renames the directory to -stray
    (tested with 3.7, 3.9, 4.3); brokers before 3.7 delete it (tested with 3.5, 3.6). With ZooKeeper the broker refuses
    the partition, and nothing is renamed or deleted.
    Can be wrong: a partition.metadata that is damaged or foreign: a warning if the metadata has that broker in the ISR,
    since its start renames the directory. The deleted one of two topics is concluded from the times of their records,
    which come from producers.
    What to do: nothing. If the records of the deleted topic are still needed, copy the directory before the broker
    starts.
    Source: KIP-516; LogManager.isStrayKraftReplica, BrokerMetadataPublisher.findStrayPartitions
    """
    yield from _rivals(log)
    for c in log.of_another:
        sure, now = c.topic_id in log.cluster.incarnations.removed, log.cluster.incarnations.now[log.topic]
        in_sync = c.broker_id in log.cluster.in_sync.get((log.topic, log.partition), ())
        if _is_strange(log, c):
            continue
        stray = log.cluster.release(c.broker_id).least >= STRAY
        yield log.finding(
            "warning" if in_sync and not sure else "info",
            f"Broker {c.broker_id} {'still ' if sure else ''}has {c.folder} of "
            + (f"a deleted {'and re-created ' if now else ''}topic" if sure else f"another topic named {log.topic}")
            + f"; it is {'renamed to -stray' if stray else 'renamed to -stray (before 3.7: deleted)'} at startup"
            + (", although it is in the ISR" if in_sync and not sure else ""),
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
                "the directory is set aside at startup",
                afterwards=f"If its records are still needed, copy {c.folder} of broker {c.broker_id} to a safe place "
                "before that broker starts",
            ),
        )


def _rivals(log: LogView) -> Iterator[Finding]:
    """Topics of one name, where no metadata shows which is the current one: those that are not the newest."""
    newest, *others = log.cluster.incarnations.rivals.get(log.topic, (None,))
    for c in log.replicas if newest is not None else ():
        own = next((r for r in others if r.topic_id == c.topic_id), None)
        if own is None or newest is None:
            continue
        if log.cluster.incarnations.is_named_twice(log.topic, c.topic_id):
            yield _named_twice(log, c, newest.topic_id)
            continue
        older = is_after(newest.time, own.time)
        yield log.finding(
            "info",
            f"Broker {c.broker_id} has {c.folder} with topic id {own.topic_id}, but the input has another topic of "
            f"that name, with topic id {newest.topic_id}: "
            + (
                f"this one was probably deleted (newest record {iso(own.time)}, other topic {iso(newest.time)}). Both "
                "are judged separately"
                if older
                else "the input does not show which one was deleted. Both are judged separately"
            ),
            replica=c,
            evidence={
                "topic_id": own.topic_id,
                "other_topic_id": newest.topic_id,
                "log_end": c.log_end,
                "confidence": "likely" if older else "undecidable",
                "missing": "the ids of the topics in __cluster_metadata",
            },
            advice=Advice(
                Verdict.INVESTIGATE_FIRST,
                "one of the two topics was deleted, or its id was assigned again",
                (shown("the current topic id of the cluster", None, "the metadata is not in the input"),),
            ),
        )


def _named_twice(log: LogView, c: ReplicaFacts, other: str) -> Finding:
    return log.finding(
        "warning",
        f"{log.name} has two topic ids ({c.topic_id} at broker {c.broker_id}, {other} elsewhere), but the same first "
        "records: it is one topic with two assigned ids. Brokers refuse a partition whose id differs from the "
        "controller's (INCONSISTENT_TOPIC_ID)",
        replica=c,
        evidence={"topic_id": c.topic_id, "other_topic_id": other, "log_end": c.log_end, "confidence": "likely"},
        advice=Advice(
            Verdict.INVESTIGATE_FIRST,
            f"compare with the topic id in ZooKeeper (/brokers/topics/{log.topic})",
            (shown("the cluster uses ZooKeeper (a KRaft broker renames the partition -stray)", None, "not checked"),),
            (
                Step(
                    "stop the broker and move partition.metadata out of the directories with another id; the broker "
                    "writes it again"
                ),
            ),
        ),
    )


def _is_strange(log: LogView, c: ReplicaFacts) -> bool:
    """Whether a copy is of a topic unknown to the cluster, and not the broker's replica with a damaged topic id."""
    if c.topic_id not in log.cluster.incarnations.strange:
        return False
    in_sync = c.broker_id in log.cluster.in_sync.get((log.topic, log.partition), ())
    return not in_sync or (not log.is_gone and any(o.broker_id == c.broker_id for o in log.replicas))


def _of_one_directory(f: Finding) -> Hashable:
    return (f.broker_id, read(Evidence, f.evidence).get("log_dir"))


def _all_strange(group: Sequence[Finding]) -> str:
    ever = group[0].message.partition(NEVER)[1] or NOT_NOW
    return (
        f"Broker {group[0].broker_id} has {plural(len(group), 'directory')} of partitions whose topic ids this cluster "
        f"{ever}; they are skipped"
    )


NEVER, NOT_NOW = "never had", "does not have"


@rule(
    OF_ANOTHER,
    when={"info": "if the first metadata records are not in the input, since the topic may have been deleted before"},
    together=by_cause(_of_one_directory, _all_strange),
)
def partition_of_another_cluster(log: LogView) -> Iterator[Finding]:
    """A broker has a partition directory of another cluster

    Checks: no topic in __cluster_metadata has or had the topic id of a directory (partition.metadata). The metadata is
    in the input from its first record on. Its broker was stopped cleanly with it, or all records in the directory are
    older than the end of the metadata. Such a directory is not judged.
    Why it matters: its transactions do not belong to this cluster's coordinators. The broker renames the directory to
    -stray at startup, or deletes it before 3.7, although somebody put it there on purpose.
    Can be wrong: a topic that was created after the metadata was copied, with older record timestamps.
    What to do: find out where it came from, and copy it to a safe place before the broker starts. To restore a topic,
    create it and produce its records again.
    Source: KIP-516; LogManager.isStrayKraftReplica
    """
    for c in log.of_another:
        if not _is_strange(log, c):
            continue
        ever = log.cluster.incarnations.since_start
        yield log.finding(
            "error",
            f"Broker {c.broker_id} has {c.folder} with topic id {c.topic_id}, which this cluster "
            f"{NEVER if ever else NOT_NOW}; it is skipped",
            replica=c,
            doubt=not ever,
            evidence={
                "topic_id": c.topic_id,
                "log_end": c.log_end,
                "missing": None if ever else "the first records of __cluster_metadata",
            },
            advice=Advice(
                Verdict.WAIT,
                "a directory of an unknown topic is set aside at startup",
                afterwards="Find out where it came from, and copy it to a safe place before the broker starts",
            ),
        )


@rule("partition-in-two-log-dirs", when={"info": "if the directories may be two copies of one"})
def partition_in_two_log_dirs(log: LogView) -> Iterator[Finding]:
    """One broker has a partition in two of its log directories

    Checks: one broker has two directories of one partition and topic id, in log directories with different directory.id
    (meta.properties). Directories in a move between log directories (-future) do not count, nor do -stray and -delete.
    Why it matters: the broker fails to start ("Duplicate log directories for ... are found in both"), with all its
    partitions.
    Can be wrong: before 3.7 log directories have no directory.id, so they may be two copies of one (then info).
    What to do: find the more recent one (last leader epoch, then log end offset); keep both, and move the other one out
    of its log directory before the broker starts.
    Source: LogManager.loadLog, every release from 2.0.1 on
    """
    for one, other, sure in _doubles(log):
        behind = min(one, other, key=lambda c: c.rank)
        ahead = one if behind is other else other
        yield log.finding(
            "error",
            f"Broker {one.broker_id} has {log.name} in two log directories, {one.log_dir} and {other.log_dir}"
            + (": it fails to start" if sure else ", unless these are two copies of one"),
            replica=behind,
            doubt=not sure,
            evidence={
                "further": f"{ahead.log_dir}/{ahead.folder}",
                "ends": {c.log_dir: {"leader_epoch": c.rank[0], "log_end": c.log_end} for c in (one, other)},
                "missing": None if sure else "directory.id in meta.properties",
            },
            advice=Advice(
                Verdict.INVESTIGATE_FIRST,
                repairs.VOTE,
                afterwards="Keep both, and move neither: a broker reads the one in metadata.log.dir",
            )
            if log.topic == METADATA_TOPIC
            else Advice(
                Verdict.ACT,
                "no records are lost, since both are kept",
                (shown(f"{ahead.log_dir}/{ahead.folder} is as recent or more recent", True, "both logs"),),
                steps=(
                    Step(
                        f"keep both; before the broker starts move {behind.log_dir}/{behind.folder} out of its log "
                        "directory"
                    ),
                ),
            ),
        )


def double_log_dirs(log: LogView) -> dict[str, str]:
    """Return, by log directory, another one of its broker with the same partition: such a broker does not start."""
    pairs = [(one.log_dir, other.log_dir) for one, other, sure in _doubles(log) if sure]
    return {b: a for a, b in pairs} | dict(pairs)


def _doubles(log: LogView) -> Iterator[tuple[ReplicaFacts, ReplicaFacts, bool]]:
    # Neighbours among copies of one topic id on one broker, and whether their directories are known to differ.
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


# Unclean elections, by the controller's records.


WITHOUT = " without being in the ISR "
CHECKPOINT = "the metadata checkpoint has "  # without a record of the election: only its result is known


def start_steps_of(log: LogView, replica: ReplicaFacts) -> list[StartStep]:
    """Return the steps of a start at wrong files of a replica."""
    known = log.cluster.starts.get(replica.log_dir, ())
    own = [s for s in known if s.kind in OF_LOGS and s.file.partition("/")[0] == replica.folder]
    return own + start_steps(own_files(replica), kraft=True)


def _of_log_dir(log: LogView, replica: ReplicaFacts) -> list[StartStep]:
    # Reported with one of its logs.
    if log.cluster.start_of.get(replica.log_dir) != (log.topic, log.partition):
        return []
    return [s for s in log.cluster.starts.get(replica.log_dir, ()) if s.kind not in OF_LOGS]


@rule(
    "start-fails",
    when={"critical": "if the only replica is lost", "info": "if a file may only be missing in the copy"},
)
def start_fails(log: LogView) -> Iterator[Finding]:
    """A broker fails to start, or loses a partition at startup

    Checks: the files besides batches that a start reads. These are meta.properties, quorum-state, the newest checkpoint
    of __cluster_metadata, checkpoint files, partition.metadata, leader epochs, and names of files and directories. Most
    damages were tested on brokers of several releases. Files that a start rebuilds are not reported. Zeros that make a
    start fail are reported as the torn tail of their segment.
    Why it matters: the broker stops, or fails the log directory and continues without its partitions. Without
    partition.metadata or the metadata, KRaft renames the partition to -stray and creates an empty one.
    Can be wrong: a copy in which files are missing or changed.
    What to do: repair the files in the listed order before the broker starts, on a copy first.
    Source: LogManager, LogLoader, CheckpointFile, PartitionMetadataFile, LogManager.isStrayKraftReplica
    """
    for c in log.replicas:
        steps = [s for s in _of_log_dir(log, c) + start_steps_of(log, c) if s.outcome != REBUILT]
        steps = [s for s in steps if s.kind not in (TOPIC_ID, TAIL)]  # which other rules report
        cut = [s for s in steps if s.kind == METADATA_LOG]
        for step in [s for s in steps if s.kind != METADATA_LOG] + cut[:1]:
            replicas = 1 if step.kind == METADATA_LOG else log.cluster.replicas.get((log.topic, log.partition))
            alone = step.outcome == LOST and replicas == 1
            absent = step.kind == METADATA_LOG or step.why.startswith("missing")
            newer = step.why.startswith(OTHER_VERSION)  # the broker may be of a release that is not known here
            if step.why == NO_ID and not c.log_end:  # of a new topic: nothing is lost
                continue
            what = "loses" if step.outcome == LOST else "stops at"
            more = f" and {len(cut) - 1} more" if step.kind == METADATA_LOG and len(cut) > 1 else ""
            yield log.finding(
                "critical" if alone else "error",
                f"A start of broker {c.broker_id} {what} {step.says}{more}",
                replica=c,
                verified=True,
                evidence={"file": step.file, "start": step.outcome, "clean_shutdown": c.clean_shutdown},
                doubt=newer or (absent and not (log.at_rest(c) or log.cluster.at_once or log.cluster.whole)),
                advice=repairs.before_a_start(c, step.repair),
            )


def _one_start(f: Finding) -> Hashable:
    # The start of a broker that had led last, alone, and leads again: all its partitions at that time.
    election = read(ElectionEvidence, f.evidence)
    if election.get("metadata_offset") is None:
        return (CHECKPOINT, election["leader"], f.severity)
    alone = election.get("last_known_eligible_before") == [election.get("leader")]
    return (f.timestamp, election["leader"], f.message.partition(WITHOUT)[2]) if alone else None


def _elected(findings: Sequence[Finding]) -> str:
    leader, how = read(ElectionEvidence, findings[0].evidence)["leader"], findings[0].message.partition(WITHOUT)[2]
    if not how:
        first = findings[0]
        return first.message.replace(f"{first.topic}-{first.partition}", plural(len(findings), "partition"), 1)
    return f"Broker {leader} became leader of {plural(len(findings), 'partition')}{WITHOUT}{how}"


@rule(
    "unclean-election",
    when={
        "warning": "if the replicas show that no records are lost",
        "info": "if no committed records can be lost",
    },
    together=by_cause(_one_start, _elected),
)
def unclean_election(log: LogView) -> Iterator[Finding]:
    """An unclean leader election

    Checks: by __cluster_metadata, a leader was neither in the ISR nor eligible (ELR) in the previous record, or the
    controller marks it as recovering. A leader added by a reassignment does not count. The finding is an info if the
    leader is the only last known eligible replica: it was the last leader, so only its own unflushed tail can be lost.
    It is also an info if the last leader's own copy of the metadata ends before the record that removed the new leader
    from the ISR. The last leader had stopped by then, and could commit nothing without the new leader before.
    replica-divergence reports the records that it had appended beyond that. A partition that a metadata checkpoint has
    as recovering is a warning, since the time of the election is unknown. A partition with a single replica never
    leaves that state and is not reported.
    Why it matters: records that only the previous replicas had are lost when these follow the new leader, even if they
    were acknowledged. Their offsets are assigned again; consumers, groups and transactions refer to records that no
    longer exist.
    Can be wrong: the new leader may have had all records by chance (a warning, if the previous leader's replica shows
    it and has not followed the new leader yet). The last leader may not have stopped, if its metadata log was copied
    before the incident and its data after it. Or its machine lost power, since brokers do not flush that log. The
    finding is inconclusive if a majority of the voters is in the input and lacks the record.
    What to do: keep the old leader's replica before its broker starts, since the start truncates it. Compare it with
    the new leader's replica (replica-divergence has the offsets, and which records were not re-sent); re-send the
    missing records.
    Source: KIP-704, KIP-966; ReplicationControlManager, PartitionChangeBuilder
    """
    for election in log.cluster.elected(log.topic, log.partition):
        only_state = election.offset is None  # of a checkpoint: a partition of one replica stays recovering for ever
        if not election.clean and not (only_state and log.cluster.replicas.get((log.topic, log.partition)) == 1):
            yield _unclean(log, election)


def _in_sync(brokers: Sequence[int]) -> str:
    if not brokers:
        return "ISR: none"
    return f"ISR: {', '.join(map(str, brokers))}"


def _unclean(log: LogView, election: Election) -> Finding:
    pair = next((p for p in replica_pairs(log) if p.replica.broker_id == election.last_leader), None)
    begins = next((start for epoch, start in log.leader.leader_epochs if epoch >= election.leader_epoch), None)
    # Only a replica that has not followed the new leader yet can show what there was.
    as_it_was = pair if pair is not None and pair.replica.last_leader_epoch < election.leader_epoch else None
    lost = lost_of(log, as_it_was) if as_it_was is not None and as_it_was.forked_at >= 0 else None
    compared = None if as_it_was is None or as_it_was.undecided else as_it_was
    whole = compared is not None and lost is None and begins is not None and compared.replica.log_end <= begins
    severity, meaning = _harm(election, lost, whole=whole)
    message = (
        f"Broker {election.leader} became leader of {log.name} with epoch {election.leader_epoch}{WITHOUT}"
        f"({_in_sync(election.isr_before)}): {meaning}"
    )
    if election.offset is None:
        severity = severity if lost else "warning"
        message = (
            f"{CHECKPOINT[0].upper()}{CHECKPOINT[1:]}{log.name} as recovering: broker {election.leader} was elected "
            "its leader earlier without being in the ISR"
        )
    return log.finding(
        severity,
        message,
        offset=begins,
        doubt=severity != "info" and log.cluster.may_be_uncommitted(election.offset),
        time_ms=election.time,
        evidence={
            "metadata_offset": election.offset,
            "isr_before": list(election.isr_before),
            "eligible_before": list(election.elr_before),
            "last_known_eligible_before": list(election.last_known_elr_before),
            "isr": list(election.isr),
            "leader_before": election.last_leader,
            "leader": election.leader,
            "leader_epoch": election.leader_epoch,
            "recovering": election.recovering,
            "left_sync_at_metadata_offset": election.left_sync,
            "in_sync_as_long_as_its_leader_ran": election.in_sync_to_the_end or None,
            "ranges": None if lost is None else lost.pop("ranges"),
            "lost": lost,
        },
        advice=tail_advice(log, as_it_was.replica, lost) if as_it_was is not None and lost else None,
    )


def _harm(election: Election, lost: Fields | None, *, whole: bool) -> tuple[str, str]:
    # ``lost``: from the last leader's replica; ``whole``: that replica shows no loss.
    again = lost is not None and lost["all_sent_again"]
    some = lost and not again and (unsent(lost) or f"offsets {lost['first_offset']} to {lost['last_offset']}")
    gone = some and f"{some} of broker {election.last_leader} are lost"
    if election.in_sync_to_the_end:
        what = (
            f"{gone}, but none of them were committed (only producers with acks=0 or 1 rely on them)"
            if gone
            else "no committed records are lost"
        )
        return "info", f"{what}: it was in the ISR while broker {election.last_leader} ran, unless that lost power"
    if gone:
        return "critical", gone
    if election.only_its_own_tail:
        return "info", "it was the last leader and alone in the ISR, so only its own unflushed tail can be lost"
    if again:
        return "warning", f"producers re-sent the records that only broker {election.last_leader} has"
    if whole:
        return "warning", "the previous leader's replica shows that no records are lost"
    return "critical", "records that only the previous replicas had are lost"


# Tiered storage (KIP-405): the metadata of a log's remote part against its local one.


SHOWN = 20  # segments that a finding lists


@rule("remote-log-gap", when={"info": "while the metadata may have been copied before the log"})
def remote_log_gap(log: LogView) -> Iterator[Finding]:
    """Offsets of a tiered log are neither local nor in remote storage

    Checks: between the log start offset and the first local segment, an offset is in no finished remote segment. By
    __remote_log_metadata, such a segment is copied and not deleted. Its leader epochs match the log's
    leader-epoch-checkpoint. Segments may overlap, as after a leader change. Not judged if records of that topic are
    missing.
    Why it matters: a consumer at such an offset gets an error, or auto.offset.reset moves it. The records are lost,
    although the log start offset is below them.
    Can be wrong: on running brokers, offsets right below the first local segment may have been copied and deleted
    locally after the metadata was read (then info).
    What to do: check whether a replica still has the offsets locally, and copy its directory before retention deletes
    it. Look for their segments in the remote storage, and for errors of the RemoteStorageManager in the brokers' logs.
    Do not move a group past these offsets before that.
    Source: KIP-405; RemoteLogManager
    """
    remote, replica = log.remote, log.leader
    if remote is None or not remote.whole or not replica.log_start_known or replica.local_start < 0:
        return
    for first, behind in holes(remote.finished(replica.leader_epochs), replica.own_start, replica.local_start):
        at_rest = remote.clean and replica.clean_shutdown
        late = behind == replica.local_start and not at_rest
        yield _gap(log, remote, first, behind - 1, late)


def _gap(log: LogView, remote: RemotePartition, first: int, last: int, late: bool) -> Finding:
    inside = [s for s in remote.segments.values() if s.start_offset <= last and s.end_offset >= first]
    holders = [c.log_dir for c in log.replicas if 0 <= c.local_start <= first and c.log_end > last]
    elsewhere = f"; {', '.join(holders)} still has them" if holders else ""
    return log.finding(
        "error",
        f"Offsets {first} to {last} of {log.name} ({last + 1 - first}) are below its first local segment at "
        f"{log.leader.local_start}, but not in remote storage{elsewhere}"
        + (" (__remote_log_metadata may have been copied before the log)" if late else ""),
        offset=first,
        last_offset=last,
        evidence={
            "log_start": log.leader.own_start,
            "local_log_start": log.leader.local_start,
            "missing_range": [first, last],
            "segments_there": [_described(s) for s in inside[:SHOWN]],
            "local_copies": holders or None,
            "missing": "a later copy of __remote_log_metadata" if late else None,
        },
        doubt=late,
    )


def _described(s: RemoteSegment) -> dict[str, object]:
    return {
        "segment_id": s.segment_id,
        "offsets": [s.start_offset, s.end_offset],
        "state": RemoteSegmentState(s.state).name if s.state in list(RemoteSegmentState) else s.state,
        "leader_epochs": [list(pair) for pair in s.leader_epochs],
        "broker_id": s.broker_id,
        "changed": iso(s.changed_at),
    }


@rule("remote-segment-leftover")
def remote_segment_leftover(log: LogView) -> Iterator[Finding]:
    """Remote storage has segments that the log does not use

    Checks: for an hour or longer, __remote_log_metadata has a copy that was started and neither finished nor deleted,
    or a deletion that was not finished. Or it has a segment whose leader epochs are not the log's (of a leader whose
    tail was truncated), or a second segment of the same offsets.
    Why it matters: consumers never read them, but they use paid storage. Unfinished deletions may also mean that the
    RemoteStorageManager fails.
    Can be wrong: legal after a broker was killed during a copy, and after unclean elections; slow storage.
    What to do: look for errors of the RemoteStorageManager in the log of the segment's broker; brokers delete such
    segments together with the topic, newer releases also by retention.
    Source: KIP-405; RemoteLogSegmentState, RemoteLogManager
    """
    remote = log.remote
    if remote is None:
        return
    old = [s for s in remote.segments.values() if log.cluster.as_of - s.changed_at > HOUR_MS]
    finished = [s for s in old if s.state == RemoteSegmentState.COPY_SEGMENT_FINISHED]
    kinds = {
        "unfinished copies": [s for s in old if s.state == RemoteSegmentState.COPY_SEGMENT_STARTED],
        "unfinished deletions": [s for s in old if s.state == RemoteSegmentState.DELETE_SEGMENT_STARTED],
        "segments of other leader epochs": [s for s in finished if not s.is_of(log.leader.leader_epochs)],
        "segments copied twice": _twice(finished),
    }
    for kind, group in kinds.items():
        if group:
            yield log.finding(
                "info",
                f"Remote storage of {log.name} has {plural(len(group), 'unused segment')} "
                f"({sum(s.size for s in group):,} bytes): {kind}",
                offset=min(s.start_offset for s in group),
                last_offset=max(s.end_offset for s in group),
                time_ms=max(s.changed_at for s in group),
                evidence={"kind": kind, "segments": [_described(s) for s in group[:SHOWN]], "count": len(group)},
            )


def _twice(finished: Iterable[RemoteSegment]) -> list[RemoteSegment]:
    # The same offsets and leader epochs as a later segment.
    last: dict[object, RemoteSegment] = {}
    out = []
    for s in sorted(finished, key=lambda s: s.record_offset):
        key = (s.start_offset, s.end_offset, s.leader_epochs)
        if key in last:
            out.append(last[key])
        last[key] = s
    return out


@rule("remote-copy-behind", when={"info": "if only producer clocks show the delay, and retention keeps the segments"})
def remote_copy_behind(log: LogView) -> Iterator[Finding]:
    """Closed segments of a tiered log are not copied to remote storage

    Checks: a closed local segment below the last stable offset is in no finished remote segment an hour after the log
    continued past it. Or an hour has passed since its copy was started (COPY_SEGMENT_STARTED), and local.retention.ms
    or local.retention.bytes would have deleted it; the finding has the remaining bytes. Not judged if
    remote.log.copy.disable is set.
    Why it matters: brokers delete no local segment before it is copied, whatever local.retention.* is. The disk fills
    up, and segments that are not copied are lost with the replicas.
    Can be wrong: the storage or its quota (remote.log.manager.copy.max.bytes.per.second) is slow after a burst.
    What to do: check RemoteCopyLagSegments and RemoteCopyErrorsPerSec of the leader; look in its log for errors of the
    RemoteLogManager or the RemoteStorageManager.
    Source: KIP-405, KIP-963
    """
    remote, replica = log.remote, log.leader
    if remote is None or not remote.whole or log.cluster.setting(log.topic, "remote.storage.enable") != "true":
        return
    if log.cluster.setting(log.topic, "remote.log.copy.disable") == "true" or replica.local_start < 0:
        return
    waiting = _waiting(log, remote)
    if not waiting:
        return
    first, behind = waiting[0][0], waiting[-1][1]
    waited, proved = _waited(log, waiting[0][1])
    begun = _begun_copy(remote, *waiting[0])
    was_begun = log.cluster.newest_time - begun > HOUR_MS
    over = _beyond_retention(log, first) if was_begun or (proved and waited > HOUR_MS) else 0
    if waited <= HOUR_MS and not over:
        return
    after = "the log continued"
    if over and was_begun:
        waited, after = log.cluster.newest_time - begun, "its copy was started"
    stay = f", and {over:,} bytes remain on broker {replica.broker_id} beyond local retention" if over else ""
    yield log.finding(
        "warning" if proved or over else "info",
        f"{plural(len(waiting), 'closed segment')} of {log.name} (offsets {first} to {behind - 1}) "
        f"{'is' if len(waiting) == 1 else 'are'} not in remote storage {waited // HOUR_MS} h after {after}{stay}",
        offset=first,
        last_offset=behind - 1,
        evidence={
            "segments": len(waiting),
            "waited_ms": waited,
            "copied_last": iso(max((s.changed_at for s in remote.finished()), default=-1)),
            "copy_begun": iso(begun) if was_begun else None,
            "held_bytes": over or None,
            "confidence": "proved" if proved or over else "likely",
        },
    )


def _begun_copy(remote: RemotePartition, first: int, behind: int) -> int:
    # When (ms, by a broker's clock) the oldest copy of these offsets was begun that is not finished.
    begun = [s for s in remote.segments.values() if s.state == RemoteSegmentState.COPY_SEGMENT_STARTED]
    times = [s.changed_at for s in begun if s.start_offset < behind and s.end_offset >= first and s.changed_at >= 0]
    return min(times, default=1 << 62)


def _beyond_retention(log: LogView, first: int) -> int:
    # Bytes of closed segments from an offset on that a broker deletes once they are in remote storage.
    replica, hour_ago = log.leader, log.cluster.newest_time - HOUR_MS
    scans = [scan for k, scan in enumerate(replica.scans) if not replica.is_remote(k)]
    segments = [LogSegment(scan.base_offset, scan.size, scan.largest_time) for scan in scans]
    rules = RetentionSettings(True, _local_retention(log, "retention.ms"), _local_retention(log, "retention.bytes"))
    start = max(replica.local_start, replica.log_start)
    verdicts = retention_verdicts(segments, start, replica.log_end, log.high_watermark, rules, hour_ago)
    closed = zip(pairwise(segments), verdicts, strict=False)  # all but the active one, which is not copied
    return sum(one.size for (one, behind), verdict in closed if verdict.goes and behind.base > first)


def _local_retention(log: LogView, name: str) -> int:
    # local.retention.* of a topic, -2 for retention.*, as far as the input shows it; -1: no limit is known.
    for of in (f"local.{name}", name):
        own = log.cluster.setting(log.topic, of)
        value = setting_number(own or log.cluster.broker_setting(log.leader.broker_id, f"log.{of}"), least=-2)
        if value is not None and value != -2:
            return value
    return -1


def _waiting(log: LogView, remote: RemotePartition) -> list[tuple[int, int]]:
    # As (first offset, one behind the last).
    replica, rows = log.leader, log.leader.transactions
    open_from = rows["first_offset"][(rows["marker_offset"] < 0) & (rows["first_offset"] >= 0)]
    stable = min([log.high_watermark, *open_from.tolist()])
    finished = remote.finished(replica.leader_epochs)
    local = [base for base in replica.segment_bases if base >= replica.local_start]
    closed = [(max(a, replica.own_start), b) for a, b in itertools.pairwise(local) if b <= stable]
    return [(a, b) for a, b in closed if a < b and any(holes(finished, a, b))]


def _waited(log: LogView, behind: int) -> tuple[int, bool]:
    # A marker behind the offset proves it by a broker's clock, unless its transaction was open across the offset.
    rows = log.leader.transactions
    later = rows[rows["marker_offset"] >= behind]
    across = later["marker_timestamp"][later["first_offset"] < behind]
    if len(later):
        since = max(int(later["marker_timestamp"].min()), *across.tolist(), -1)
        return log.cluster.newest_time - since, True
    times = [t for base, t in zip(log.leader.segment_bases, log.leader.segment_times, strict=False) if base >= behind]
    since = min((log.time(t) for t in times if t >= 0), default=log.cluster.newest_time)
    return log.cluster.newest_time - since, False
