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
WHILE = ", while "
STRAY = (3, 7)  # from here on a start sets aside what belongs to no topic, before it deleted it


def _of_one_stop(f: Finding) -> Hashable:
    stopped = f.severity == "info" and f.if_true is None
    return f.message.partition(WHILE)[2] if stopped else None


def _all_offline(findings: Sequence[Finding]) -> str:
    return f"Nobody leads {plural(len(findings), 'partition')}{WHILE}{findings[0].message.partition(WHILE)[2]}"


@rule(
    "partition-offline",
    when={
        "critical": "for internal topics",
        "info": "where a broker that has all of it was stopped cleanly up to 5 minutes ago, or in doubt",
    },
    together=by_cause(_of_one_stop, _all_offline),
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
    gaps = log.cluster.leaderless.get((topic, partition), ())
    since = gaps[-1] if gaps and gaps[-1].until is None else None
    restarts = SHUTTING_DOWN in offline.in_sync.values() and (offline.lasts_ms or 0) <= RESTART_MS
    had_all = [f"broker {broker} ({_stands(how)})" for broker, how in offline.in_sync.items()]
    return log.finding(
        "info" if restarts else "critical" if topic.startswith("__") else "error",
        f"Nobody leads {name}{WHILE}{'brokers' if len(offline.up) > 1 else 'broker'} {few(offline.up)} "
        f"{'are' if len(offline.up) > 1 else 'is'} up; in sync last: {', '.join(had_all[:5]) or 'nobody'}"
        + ("; it is led again once that broker starts" if restarts else ""),
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
        if restarts
        else repairs.without_leader(log.cluster, [name], "nothing is lost by starting a broker that has all of it"),
    )


def _missing(log: LogView, since: WithoutLeader | None) -> str | None:
    # In the input, to be certain.
    if not log.cluster.has_metadata:
        return "a part of __cluster_metadata"
    if since is not None and log.cluster.may_be_uncommitted(since.offset):
        return "a majority of the voters with the record that took the leader"
    return None


def _stands(how: str) -> str:
    return "up: look for a failed log directory" if how == UP else "stopped cleanly" if how == SHUTTING_DOWN else how


def _of_one_copy(f: Finding) -> Hashable:
    # The directory was copied file by file, so the broker's copy is in question.
    return None if f.severity != "info" else f.broker_id


def _all_absent(group: Sequence[Finding]) -> str:
    alone = sum(read(OfflineEvidence, f.evidence)["in_sync"] == [f.broker_id] for f in group)
    return (
        f"Broker {group[0].broker_id} has no folder of {plural(len(group), 'partition')}, which it has in sync by the "
        "metadata; " + (f"of {alone} of them nobody else is in sync" if alone else "others are in sync beside it")
    )


@rule(
    "replica-absent",
    when={"info": "where files were copied one after another"},
    together=by_cause(_of_one_copy, _all_absent),
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
    when={"warning": "where it is in sync and nothing shows that it was removed, or one topic has two ids"},
)
def replica_of_removed_topic(log: LogView) -> Iterator[Finding]:
    """A broker has a directory of a topic that was removed

    Checks: directories whose topic id (partition.metadata) is not that of the topic of that name by __cluster_metadata,
    where that shows the removal, or another broker has a -delete directory of that id. Such a directory is no replica
    of the current topic: it is compared with none, and not judged. Without metadata, copies of one partition with
    different topic ids: each is judged for itself, and this says which was probably removed, or that they begin with
    the same records and are one topic.
    Why it matters: the broker was down when the topic was removed. With KRaft its start renames the directory -stray
    (seen with 3.7, 3.9, 4.3); brokers before 3.7 delete it (seen with 3.5, 3.6). With ZooKeeper it refuses the
    partition: nothing is renamed or deleted.
    Can be wrong: a partition.metadata that was damaged, or came from elsewhere: a warning where the metadata has that
    broker in sync, since its start sets aside what it has. Which of two topics was removed is concluded from the times
    of their records, and those are the producers'.
    What to do: nothing. If somebody misses the removed topic's records, copy the directory before the broker starts.
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
                afterwards=f"copy {c.folder} of broker {c.broker_id} to a safe place before that broker starts, if its "
                "records are missed",
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
            f"Broker {c.broker_id} has {c.folder} with topic id {own.topic_id}, and the input has another topic of "
            f"that name, with id {newest.topic_id}: "
            + (
                f"this one was probably removed, its newest record is of {iso(own.time)}, that of the other one of "
                f"{iso(newest.time)}; each is judged for itself"
                if older
                else "nothing shows which of them was removed; each is judged for itself"
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
                "one of the two topics was removed, or its id was assigned again",
                (shown("the topic id that the cluster has now", None, "the metadata is not in the input"),),
            ),
        )


def _named_twice(log: LogView, c: ReplicaFacts, other: str) -> Finding:
    return log.finding(
        "warning",
        f"{log.name} has two topic ids: {c.topic_id} at broker {c.broker_id}, {other} elsewhere, and the same first "
        "records: one topic whose id was given twice. Brokers refuse the partition where they have another id than the "
        "controller (INCONSISTENT_TOPIC_ID)",
        replica=c,
        evidence={"topic_id": c.topic_id, "other_topic_id": other, "log_end": c.log_end, "confidence": "likely"},
        advice=Advice(
            Verdict.INVESTIGATE_FIRST,
            f"compare with the topic id that ZooKeeper has (/brokers/topics/{log.topic})",
            (shown("the cluster uses ZooKeeper (a KRaft broker renames the partition -stray)", None, "not looked at"),),
            (
                Step(
                    "with the broker stopped, move partition.metadata out of the directories that have another one; "
                    "the broker writes it again"
                ),
            ),
        ),
    )


def _is_strange(log: LogView, c: ReplicaFacts) -> bool:
    """Whether a copy is of a topic that the cluster has not, and not the broker's replica with a damaged topic id."""
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
        f"{ever}; they are not judged"
    )


NEVER, NOT_NOW = "never had", "does not have"


@rule(
    OF_ANOTHER,
    when={"info": "where the beginning of the metadata is not in the input: the topic may have been removed before"},
    together=by_cause(_of_one_directory, _all_strange),
)
def partition_of_another_cluster(log: LogView) -> Iterator[Finding]:
    """A broker has a partition directory of another cluster

    Checks: directories whose topic id (partition.metadata) no topic in __cluster_metadata has or had, although that is
    in the input from its first record on, and its broker was stopped cleanly with it, or all records in the directory
    are older than its end. Such a directory is compared with none, and not judged.
    Why it matters: its transactions are not those of this cluster's coordinators. The start of the broker renames it
    -stray, or deletes it before 3.7: whoever put it there expects something else.
    Can be wrong: a topic that was created after the metadata was copied, with records that have older times.
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
            f"{NEVER if ever else NOT_NOW}; it is not judged",
            replica=c,
            doubt=not ever,
            evidence={
                "topic_id": c.topic_id,
                "log_end": c.log_end,
                "missing": None if ever else "the first records of __cluster_metadata",
            },
            advice=Advice(
                Verdict.WAIT,
                "its start sets aside what belongs to no topic of its cluster",
                afterwards="find out where it came from, and copy it to a safe place before the broker starts",
            ),
        )


@rule("partition-in-two-log-dirs", when={"info": "where the directories cannot be told apart"})
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
    for one, other, sure in _doubles(log):
        behind = min(one, other, key=lambda c: c.rank)
        ahead = one if behind is other else other
        yield log.finding(
            "error",
            f"Broker {one.broker_id} has {log.name} in two log directories, {one.log_dir} and {other.log_dir}"
            + (": it ends at its start" if sure else ", if these are not two copies of one"),
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
                afterwards="keep both, and move neither: a broker reads the one in metadata.log.dir",
            )
            if log.topic == METADATA_TOPIC
            else Advice(
                Verdict.ACT,
                "nothing is lost: both are kept",
                (shown(f"{ahead.log_dir}/{ahead.folder} goes as far or further", True, "both logs"),),
                steps=(
                    Step(
                        f"keep both; before the broker starts move {behind.log_dir}/{behind.folder} out of its log "
                        "directory"
                    ),
                ),
            ),
        )


def double_log_dirs(log: LogView) -> dict[str, str]:
    """Return by log directory another one of its broker with the same partition: such a broker does not start."""
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


WITHOUT = " without having been in sync "
CHECKPOINT = "the metadata checkpoint has "  # where an election was not seen: only its result is known


def start_steps_of(log: LogView, replica: ReplicaFacts) -> list[StartStep]:
    """What a start does at the files of a replica that are not as they should be."""
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
    when={"critical": "where the only replica is lost", "info": "where a file may only be missing in the copy"},
)
def start_fails(log: LogView) -> Iterator[Finding]:
    """A broker does not start on its files, or loses a partition when it does

    Checks: what a start reads besides batches: meta.properties, quorum-state, the newest checkpoint of
    __cluster_metadata, checkpoint files, names of directories, partition.metadata, leader epochs, names of files in
    partition directories. Most damages were tried on brokers of several releases. Files that a start makes again are
    not reported, and zeros at which a start ends are reported as the torn tail of their segment.
    Why it matters: the broker ends, or fails the log directory; with other log directories it goes on without its
    partitions. Without partition.metadata or the metadata, KRaft renames the partition -stray and makes an empty one.
    Can be wrong: a copy that lacks or has changed files which the broker's directory has.
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
        "warning": "where the replicas show that nothing was lost",
        "info": "where nothing committed can be",
    },
    together=by_cause(_one_start, _elected),
)
def unclean_election(log: LogView) -> Iterator[Finding]:
    """A replica became leader that did not have to have everything

    Checks: by __cluster_metadata, a leader that was neither in sync nor eligible (ELR) in the record before, or that
    the controller marks as recovering. One that a reassignment brought in is none. Info where the leader is the only
    last known eligible replica: it led last, so only its own unflushed tail can be gone. Info, too, where the last
    leader's own copy of the metadata ends before the record that took the new leader out of the in-sync set: it had
    stopped by then, and until then could commit nothing without the new leader; what it had appended beyond that is
    named by replica-divergence. A partition that a metadata checkpoint has as recovering is a warning: when its leader
    was elected is not known. Nothing is said of one with a single replica, which never leaves that state.
    Why it matters: what only the replicas before had, acknowledged or not, is lost when they follow the new leader, and
    their offsets are given out again; consumers, groups and transactions refer to records that no longer exist.
    Can be wrong: the new leader may have had everything by chance: a warning where the replica of the leader before,
    which has not followed the new one yet, shows it. That the last leader had stopped is wrong where its metadata log
    was copied from it before the incident, and its data after it, or where its machine lost power: brokers do not force
    that log to the disk. In doubt where a majority of the voters is in the input and has not the record.
    What to do: before the old leader starts, keep its replica (its start cuts it), compare it with the new leader's
    (replica-divergence names the offsets, and which were not sent again) and produce again what is missed of these.
    Source: KIP-704, KIP-966; ReplicationControlManager, PartitionChangeBuilder
    """
    for election in log.cluster.elected(log.topic, log.partition):
        only_state = election.offset is None  # of a checkpoint: a partition of one replica stays recovering for ever
        if not election.clean and not (only_state and log.cluster.replicas.get((log.topic, log.partition)) == 1):
            yield _unclean(log, election)


def _in_sync(brokers: Sequence[int]) -> str:
    if not brokers:
        return "nobody was in sync"
    return f"in sync {'was' if len(brokers) == 1 else 'were'} {', '.join(map(str, brokers))}"


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
            f"{CHECKPOINT[0].upper()}{CHECKPOINT[1:]}{log.name} as recovering: at some time before, broker "
            f"{election.leader} was elected its leader and was not in sync"
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
            f"{gone}, none of them committed, so only producers with acks=0 or 1 count on them"
            if gone
            else "nothing that was committed is lost"
        )
        return "info", f"{what}: it was in sync as long as broker {election.last_leader} ran, unless that lost power"
    if gone:
        return "critical", gone
    if election.only_its_own_tail:
        return "info", "it had led last, alone, so only its own unflushed tail can be gone"
    if again:
        return "warning", f"the producers of what only broker {election.last_leader} has sent it again"
    if whole:
        return "warning", "the replica of the leader before it shows that nothing was lost"
    return "critical", "what only the replicas before it had is lost"


# Tiered storage (KIP-405): the metadata of a log's remote part against its local one.


SHOWN = 20  # segments that a finding lists


@rule("remote-log-gap", when={"info": "while the metadata may have been copied before the log"})
def remote_log_gap(log: LogView) -> Iterator[Finding]:
    """Offsets of a tiered log are neither local nor in remote storage

    Checks: from the log start offset to the first local segment every offset has to lie in a segment whose copy is
    finished by __remote_log_metadata and not deleted, with leader epochs as in the log's own leader-epoch-checkpoint.
    Segments may overlap, as they do after a change of leader. Not judged where records of that topic are missing.
    Why it matters: a consumer that comes to such an offset gets an error or is sent elsewhere by auto.offset.reset: the
    records are lost to it, although the log start offset says that they are there.
    Can be wrong: of running brokers, what lies right below the first local segment: it may have been copied and taken
    away after the metadata was read (then info).
    What to do: find out whether a replica still has the offsets locally and keep its folder before retention takes it;
    look for segments of them in the remote storage, and in the brokers' logs for errors of the RemoteStorageManager;
    move no group beyond them before that.
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
        f"Offsets {first} to {last} of {log.name} ({last + 1 - first}) lie below its first local segment at "
        f"{log.leader.local_start}, and no segment in remote storage has them{elsewhere}"
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
    """Remote storage holds segments that the log does not use

    Checks: by __remote_log_metadata, for an hour or longer: a copy that was begun and neither finished nor deleted, a
    deletion that was begun and not finished, a segment whose leader epochs are not the log's (of a leader whose tail
    was cut), a second segment of the same offsets.
    Why it matters: readers never see them, but they are stored and paid for. Deletions that do not end also point to a
    RemoteStorageManager that fails.
    Can be wrong: legal after a broker was killed while it copied, and after unclean elections; a slow storage.
    What to do: look for errors of the RemoteStorageManager in the log of the broker that the segment names; brokers
    delete what is left over together with the topic, newer ones by retention too.
    Source: KIP-405; RemoteLogSegmentState, RemoteLogManager
    """
    remote = log.remote
    if remote is None:
        return
    old = [s for s in remote.segments.values() if log.cluster.as_of - s.changed_at > HOUR_MS]
    finished = [s for s in old if s.state == RemoteSegmentState.COPY_SEGMENT_FINISHED]
    kinds = {
        "copies that were never finished": [s for s in old if s.state == RemoteSegmentState.COPY_SEGMENT_STARTED],
        "deletions that were never finished": [s for s in old if s.state == RemoteSegmentState.DELETE_SEGMENT_STARTED],
        "segments of other leader epochs": [s for s in finished if not s.is_of(log.leader.leader_epochs)],
        "segments that were copied twice": _twice(finished),
    }
    for kind, group in kinds.items():
        if group:
            yield log.finding(
                "info",
                f"Remote storage of {log.name}: {plural(len(group), 'segment')} ({sum(s.size for s in group):,} bytes) "
                f"that nobody reads: {kind}",
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


@rule(
    "remote-copy-behind", when={"info": "where only producers' clocks tell how long, and retention keeps them locally"}
)
def remote_copy_behind(log: LogView) -> Iterator[Finding]:
    """Closed segments of a tiered log wait to be copied

    Checks: local segments behind which another one begins, below the last stable offset, that no finished remote
    segment has an hour after the log went beyond them, or an hour after a copy of the first one was begun
    (COPY_SEGMENT_STARTED) where local.retention.ms or local.retention.bytes would have deleted it by then: the bytes
    that stay are named. Not judged where remote.log.copy.disable is set.
    Why it matters: brokers delete no local segment before it is copied, whatever local.retention.* says: the disk fills
    up, and what is not copied is lost with the replicas.
    Can be wrong: the storage or its quota (remote.log.manager.copy.max.bytes.per.second) is slow after a burst.
    What to do: look at RemoteCopyLagSegments and RemoteCopyErrorsPerSec of the leader, and in its log for errors of the
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
    after = "the log went on"
    if over and was_begun:
        waited, after = log.cluster.newest_time - begun, "a copy was begun"
    stay = f", and {over:,} bytes stay on broker {replica.broker_id} beyond local retention" if over else ""
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
