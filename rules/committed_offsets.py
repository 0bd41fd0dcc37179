"""Rules on committed offsets (KIP-447) and share groups (KIP-932)."""

from __future__ import annotations

import heapq
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from auditor.base.advice import Advice, Condition, Verdict, check
from auditor.base.at_rest import Fields
from auditor.base.words import plural
from auditor.evidence.horizons import whole_from
from auditor.facts.batch_sums import touches
from auditor.facts.coordinator_history import TransactionWindow
from auditor.facts.events import EventKind
from auditor.facts.offsets import ShareOffset, WatchedOffsets, in_force_of
from auditor.model.groups import (
    GROUP_RECORDS,
    NO_PRODUCER_ID,
    Assignments,
    CommitReplay,
    GroupPartition,
    Member,
    OffsetCommit,
    Watcher,
)
from auditor.model.offset_watch import AlternatingCommits, Committers, Rivals, Values, Zombie, since
from auditor.rules.catalogue.registry import rule
from auditor.rules.lib import repairs
from auditor.rules.partition_transactions import who
from auditor.rules.seen.cluster_view import LeaderBounds
from auditor.rules.seen.view import Finding, LogView, iso, lowered
from auditor.rules.transactions import blocking
from auditor.rules.transactions.making import open_transactions
from auditor.transactions.matching import naming, skew
from auditor.transactions.record import NOBODYS, Case, Transaction

# Committed offsets (KIP-447): blocked, written by zombies, regressed, skipped, out of range.


SHOWN = 20  # partitions or groups that a finding lists
# Transactional ids of Kafka Streams: of a task (exactly_once), of a thread (exactly_once_v2; since 2.6)
TASK_ID = re.compile(r".+-[0-9]+_[0-9]+")
THREAD_ID = re.compile(r".+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-[0-9]+")
T = TypeVar("T")


def at_commit(log: LogView, severity: str, c: OffsetCommit, message: str, **more: Any) -> Finding:
    """Make a finding about a committed offset: at the consumed partition, with the file of the record."""
    evidence = {
        "offsets_partition": log.name,
        "record_offset": c.record_offset,
        "generation": None if c.generation is None else c.generation.number,
        "group_empty": None if c.generation is None else c.generation.empty,
        **more.pop("evidence", {}),
    }
    offsets = [c.record_offset, *_record_offsets(evidence)]
    more["lost"] = more.pop("lost", False) or lost_between(log, min(offsets), max(offsets))
    return log.finding(
        severity,
        message,
        topic=c.topic,
        partition=c.partition,
        offset=c.value,
        producer_id=None if c.plain else c.producer_id,
        producer_epoch=None if c.plain else c.producer_epoch,
        transactional_id=None if c.plain else log.owner(c.producer_id),
        group_id=c.place.group,
        time_ms=c.time if c.time >= 0 else None,
        file=c.file,
        position=c.position,
        evidence=evidence,
        **more,
    )


def _twice(begin: int, end: int) -> list[list[int]]:
    # What a group processed twice, as far as its offsets show.
    return [[begin, end - 1]] if begin < end else []


def _record_offsets(evidence: Fields) -> Iterator[int]:
    for name, value in evidence.items():
        if "record_offset" in name and value is not None:
            yield from value if isinstance(value, list) else [value]


def writer(log: LogView, c: OffsetCommit) -> str:
    """Describe who wrote a commit."""
    if c.plain:
        return "a commit outside a transaction"
    owner = log.owner(c.producer_id)
    return f"producer id {c.producer_id}" + (f" (transactional id {owner})" if owner is not None else "")


def place_of(c: OffsetCommit) -> str:
    """Describe whose offset it is."""
    return f"group {c.place.group} on {c.place.partition}"


@rule(
    "pending-offsets-blocked",
    when={
        "error": "while it is young",
        "warning": "within its timeout",
        "info": "while it may be in flight",
    },
)
def pending_offsets_blocked(log: LogView) -> Iterator[Finding]:
    """Committed offsets wait for a transaction that does not complete

    Checks: a transaction with offset commits is open in __consumer_offsets. It is hanging, or open past its timeout and
    half a minute. Within a timeout known to the coordinator, it is a warning after an hour.
    Why it matters: members that fetch stable offsets get UNSTABLE_OFFSET_COMMIT for these partitions. They cannot start
    to read them until the marker is written.
    Can be wrong: files copied from a running broker at different times (reported as in flight).
    What to do: follow the finding: if the coordinator has no open transaction of its id, run kafka-transactions.sh
    abort on the __consumer_offsets partition with its start offset. Otherwise its coordinator has to end it.
    Source: KIP-447
    """
    commits = watched(log).pending
    for t in open_transactions(log):
        pending = commits.get(t.producer_id, [])
        severity = _severity(t) if pending and t.case is not Case.GHOST else None
        if severity is not None:
            yield _blocked(log, t, pending, severity)


def _severity(t: Transaction) -> str | None:
    # As the partition's; where its status is unknown, what it would be.
    severity = t.if_true if t.is_unknown else t.severity
    return "critical" if severity == "error" and t.is_old else severity


def _blocked(log: LogView, t: Transaction, pending: list[OffsetCommit], severity: str) -> Finding:
    groups = sorted({c.place.group for c in pending})
    partitions = [f"{c.place.group}: {c.place.partition}" for c in pending]
    names = ", ".join(groups[:3]) + (" and others" if len(groups) > 3 else "")
    message = (
        f"Offsets of {names} on {plural(len(pending), 'partition')} are blocked by the transaction of {who(t)}, open "
        f"in {log.name} since offset {t.first_offset}: members that need stable offsets cannot start there"
    )
    return log.finding(
        severity,
        message + (" (the files may be copied at different times)" if t.is_unknown else ""),
        doubt=t.is_unknown,
        data=t.row,
        transactional_id=t.transactional_id,
        group_id=groups[0] if len(groups) == 1 else None,
        evidence={
            **t.evidence(),
            "groups": groups[:SHOWN],
            "partitions": partitions[:SHOWN],
            "pending": len(pending),
            "start_offset": t.first_offset,
            "confidence": "undecidable" if t.is_unknown else "proved" if t.case in NOBODYS else "likely",
        },
        advice=blocking.advise(log, t),
    )


@rule(
    "interleaved-offset-producers",
    when={
        "error": "if the offset does not rise",
        "warning": "before the uncompacted part of the log",
        "info": "otherwise",
    },
)
def interleaved_offset_producers(log: LogView) -> Iterator[Finding]:
    """Two producers commit one partition of a group in turn

    Checks: producers p, q and p again commit one group partition in transactions. The group has no new generation
    between the first and the last commit, and its records do not show the owner of the partition. It is an error if p's
    second offset is not above q's, otherwise one info per group. Aborted transactions do not count. One owner with many
    producers is a pool, as in Spring-Kafka and Klife; a producer that commits for two owners is a zombie.
    Why it matters: a partition has one owner in a generation. Two owners process the same records.
    Can be wrong: consumers with manually assigned partitions; intentionally shared groups; an application that commits
    the same position again without new records.
    What to do: find both instances by their transactional ids; make sure that each sends its group metadata with its
    offsets.
    Source: KIP-447
    """
    for turns, times in _one_per_group(watched(log).interleaved, lambda t: "" if t.grave else t.again.place.group):
        yield _in_turn(log, turns, times)


def _one_per_group(items: Iterable[T], group_of: Callable[[T], str]) -> Iterator[tuple[T, int]]:
    # ``group_of``: the group of a harmless item, of which the first is reported with their number; "" for any other.
    harmless: dict[str, list[T]] = {}
    for item in items:
        if group := group_of(item):
            harmless.setdefault(group, []).append(item)
        else:
            yield item, 1
    yield from ((several[0], len(several)) for several in harmless.values())


def _in_turn(log: LogView, turns: AlternatingCommits, times: int) -> Finding:
    first, other, c = turns
    severity = "error" if first.record_offset >= whole_from(log) else lowered("error")
    pool = f"two owners, or one owner with a pool of producers{_times(times)}"
    why = "both may process the same input" if turns.grave else pool
    return at_commit(
        log,
        severity if turns.grave else "info",
        c,
        f"{writer(log, c)} and {writer(log, other)} commit {place_of(c)} in turn within one generation (offsets "
        f"{first.value}, {other.value}, {c.value}): {why}",
        if_true=None if turns.grave else severity,
        evidence={
            "other_producer_id": other.producer_id,
            "offsets": [first.value, other.value, c.value],
            "ranges": _twice(c.value, other.value),
            "record_offsets": [first.record_offset, other.record_offset, c.record_offset],
            "confidence": "likely",
            **({} if turns.grave else {"confidence": "undecidable", "missing": "the owner of the partition"}),
            "times": times,
        },
    )


@rule(
    "offset-regression",
    when={
        "error": "by a transaction in a group with members",
        "warning": "otherwise",
        "info": "for resets",
    },
)
def offset_regression(log: LogView) -> Iterator[Finding]:
    """The committed offset of a group moved backwards

    Checks: a new current offset is below the previous one, for the same group and partition. Pending and aborted
    offsets do not count, nor those that a later record had replaced already.
    Why it matters: the records between both offsets are processed again. In a transaction their output is duplicated.
    Can be wrong: a re-created topic; a manual reset (a plain commit while the group is empty: info); an intended seek.
    What to do: find the writer by its producer id; check whether a rebalance or a zombie precedes it.
    Source: KIP-447
    """
    runs: dict[tuple[GroupPartition, int, str], list[tuple[OffsetCommit, OffsetCommit, int]]] = {}
    for fall in watched(log).falls:
        c = fall[1]
        runs.setdefault((c.place, c.producer_id, _regression_severity(c)), []).append(fall)
    for (_, _, severity), run in runs.items():
        before, c, _ = min(run, key=lambda fall: fall[1].record_offset)
        count = sum(times for _, _, times in run)
        times = f" (and {count - 1} times more)" if count > 1 else ""
        yield at_commit(
            log,
            severity,
            c,
            f"The committed offset of {place_of(c)} moved backwards from {before.value} to {c.value} by "
            f"{writer(log, c)}{times}",
            evidence={
                "offset_before": before.value,
                "offset_after": c.value,
                "ranges": _twice(c.value, before.value),
                "record_offset_before": before.record_offset,
                "producer_id_before": None if before.plain else before.producer_id,
                "times": count,
            },
        )


def _regression_severity(c: OffsetCommit) -> str:
    empty = None if c.generation is None else c.generation.empty
    if c.plain:
        return "info" if empty else "warning"
    return "error" if empty is False else "warning"


@rule(
    "offset-skips-aborted-input",
    when={
        "warning": "by a plain commit",
        "info": "by another producer",
    },
)
def offset_skips_aborted_input(log: LogView) -> Iterator[Finding]:
    """A group's offset skips input whose transaction was aborted

    Checks: a transaction that committed [a, b) of a group partition was aborted. A plain commit then sets the next
    current offset to b or more, with no rebalance since that would make the owner begin at a. A commit by another
    producer is one info per group if the group's records do not show the owner of the partition. If they show it, the
    owner has used the next free producer of its pool, or a new one began at a.
    Why it matters: the output of that input was aborted. If no member processes it again, it is lost.
    Can be wrong: a member without transactions processed the partition again; bad data was skipped on purpose.
    What to do: if inconclusive, reset the group to the first of these offsets and process them again; disable
    enable.auto.commit in transactional applications, and seek back to the committed offset after an abort.
    Source: KIP-447
    """
    others: dict[str, list[tuple[OffsetCommit, OffsetCommit, OffsetCommit]]] = {}
    for start, aborted, c in watched(log).skips:
        if c.plain:
            yield _skips(log, start, aborted, c)
        elif log.owner(c.producer_id) is None or log.owner(c.producer_id) != log.owner(aborted.producer_id):
            others.setdefault(c.place.group, []).append((start, aborted, c))
    for several in others.values():
        yield _skips(log, *several[0], len(several))


def _skips(log: LogView, start: OffsetCommit, aborted: OffsetCommit, c: OffsetCommit, times: int = 1) -> Finding:
    severity = "warning" if start.record_offset >= whole_from(log) else lowered("warning")
    why = "they may be unprocessed" if c.plain else f"the new producer may have processed them again{_times(times)}"
    return at_commit(
        log,
        severity if c.plain else "info",
        c,
        f"The offset of {place_of(c)} moved to {c.value} by {writer(log, c)}. It skips offsets {start.value} to "
        f"{aborted.value - 1}, whose transaction ({writer(log, aborted)}) was aborted: {why}",
        if_true=None if c.plain else severity,
        evidence={
            "from_offset": start.value,
            "aborted_offset": aborted.value,
            "aborted_producer_id": aborted.producer_id,
            "aborted_record_offset": aborted.record_offset,
            "confidence": "likely",
            **({} if c.plain else {"confidence": "undecidable", "missing": "the owner of the partition"}),
            "times": times,
        },
        advice=Advice(
            Verdict.INVESTIGATE_FIRST,
            "a reset makes the group process its later records again",
            conditions=(_dry_run(c, start.value),),
            afterwards="Stop the group before you run it with --execute",
        )
        if c.plain
        else Advice(
            Verdict.NONE,
            "the application may read the input of an aborted transaction again, with any producer of a pool",
        ),
    )


@rule(
    "committed-offset-out-of-range",
    when={
        "error": "past the log end offset",
        "warning": "below the log start offset",
        "info": "if the files may have different copy times",
    },
)
def committed_offset_out_of_range(log: LogView) -> Iterator[Finding]:
    """A group's committed offset is outside its log

    Checks: the current offset of a group partition is outside the start and end of that log's leader replica. A tiered
    log begins in remote storage, at its log-start-offset-checkpoint.
    Why it matters: past the end, the partition lost its newest records or was re-created. Below the start, unprocessed
    records were deleted. In both cases auto.offset.reset decides where the group continues.
    Can be wrong: the topic was re-created; the log was copied before the offsets (reported as in flight).
    What to do: identify the missing records, then run kafka-consumer-groups.sh --reset-offsets --to-offset.
    Source: UnknownProducerId and OutOfOrderSequence page of Kafka's wiki
    """

    def limits(topic: str, partition: int) -> tuple[int, int] | None:
        bounds = log.cluster.bounds.get((topic, partition))
        return None if bounds is None else (bounds.log_start, bounds.log_end)

    for c in watched(log).in_force.outside(limits):
        bounds = log.cluster.bounds[(c.topic, c.partition)]
        above = c.value > bounds.log_end
        other = bounds.broker_id is None or bounds.broker_id != log.leader.broker_id
        late = above and log.cluster.lacks(c.topic, c.partition, c.time, other_clock=other)
        doubt = late or (bounds.starts_late and not above)
        severity = "error" if above else "info" if doubt else "warning"
        missing = abs(c.value - (bounds.log_end if above else bounds.log_start))
        side = (
            f"{missing:,} past the log end offset ({bounds.log_end})"
            if above
            else f"{missing:,} below the log start offset ({bounds.log_start}): these records are deleted unprocessed"
        )
        yield at_commit(
            log,
            severity,
            c,
            f"Group {c.place.group} committed offset {c.value} on {c.place.partition}, {side}"
            + (" (the log may have been copied before the offsets)" if late else "")
            + (" (its first segments may be missing from the copy)" if doubt and not late else ""),
            evidence={
                "log_start": bounds.log_start,
                "log_end": bounds.log_end,
                "confidence": "undecidable" if doubt else "proved",
            },
            doubt=late,
            lost=lost_between(log, c.record_offset)
            or (above and bounds.end_damaged),  # a later commit, or the log's end
            advice=_reset(log, c, bounds.log_end if above else bounds.log_start, doubt),
        )


@rule("mixed-processing-guarantees", when={"info": "after an upgrade, or for plain commits"})
def mixed_processing_guarantees(log: LogView) -> Iterator[Finding]:
    """A group commits with several guarantees at the same time

    Checks: one group has transactional commits by ids of a Streams task (<app>-<n>_<n>, exactly_once) and of a Streams
    thread (<app>-<uuid>-<n>, exactly_once_v2). Both commit in the last generation, or, without generations in the log,
    each before the last of the other. If only one kind commits in a later generation, the group was upgraded instance
    by instance: info. If both never committed together, it is not reported. A commit outside a transaction, to a group
    with members, between two transactional commits of the same partition is an info, the first one in each group.
    Why it matters: the older kind is fenced by its id, the newer by the group's generation. Neither fences the other,
    so both may process a task that moves between them, and its records are written twice. An offset committed outside a
    transaction belongs to no output: after a failure records are lost or written twice.
    Can be wrong: an upgrade in progress; similar ids of other applications; a rollback between two versions of an
    application, for plain commits.
    What to do: upgrade all instances to exactly_once_v2, with the two rolling restarts of the upgrade guide. For plain
    commits set enable.auto.commit=false and commit only with sendOffsetsToTransaction.
    Source: KIP-447, Upgrade path
    """
    for group, producers in sorted(watched(log).committers.items()):
        named = [(log.owner(producer_id) or "", *ends) for producer_id, ends in producers.items()]
        tasks = [committer for committer in named if TASK_ID.fullmatch(committer[0])]
        threads = [committer for committer in named if THREAD_ID.fullmatch(committer[0])]
        severity = _both_kinds(tasks, threads) if tasks and threads else None
        if severity is not None:
            yield _mixed(log, group, severity, tasks, threads)
    for _, (before, plain, after) in sorted(watched(log).mixed.items()):
        begun, end = sorted((before.value, plain.value))  # their output is in no transaction with the offset
        yield at_commit(
            log,
            "info",
            plain,
            f"{place_of(plain)} has a commit of offset {plain.value} outside a transaction, between the transactional "
            f"commits of {before.value} ({writer(log, before)}) and {after.value} ({writer(log, after)})"
            + (f": offsets {begun} to {end - 1} may be processed twice" if begun < end else ""),
            evidence={
                "may_repeat": [begun, end - 1] if begun < end else None,
                "offsets": [before.value, plain.value, after.value],
                "record_offsets": [before.record_offset, plain.record_offset, after.record_offset],
            },
        )


Committer = tuple[str, OffsetCommit, OffsetCommit]  # a transactional id with its producer's first and last commit


def _both_kinds(tasks: list[Committer], threads: list[Committer]) -> str | None:
    # None where one kind followed the other.
    begun, ended = zip(*(_span(committers) for committers in (tasks, threads)), strict=True)
    generations = [since(last.generation) for last in ended]
    if generations[0] == generations[1] >= 0:
        return "warning"
    if max(committers.record_offset for committers in begun) > min(committers.record_offset for committers in ended):
        return None
    return "info" if generations[0] != generations[1] else "warning"


def _span(several: list[Committer]) -> tuple[OffsetCommit, OffsetCommit]:
    first = min((begun for _, begun, _ in several), key=lambda c: c.record_offset)
    return first, max((ended for _, _, ended in several), key=lambda c: c.record_offset)


def _mixed(log: LogView, group: str, severity: str, tasks: list[Committer], threads: list[Committer]) -> Finding:
    (task, *_), (thread, *_) = tasks[0], threads[0]
    (a, _), (b, _) = _span(tasks), _span(threads)
    which = f"as {task} (exactly_once) and as {thread} (exactly_once_v2)"
    how = f"commits offsets {which} at the same time: neither kind fences the other"
    if severity == "info":
        how = f"committed offsets {which} at the same time; since then only one kind, as after an upgrade"
    return at_commit(
        log,
        severity,
        max(a, b, key=lambda c: c.record_offset),
        f"Group {group} {how}",
        evidence={
            "task_ids": [name for name, *_ in tasks][:SHOWN],
            "thread_ids": [name for name, *_ in threads][:SHOWN],
            "first_by_a_task": a.record_offset,
            "first_by_a_thread": b.record_offset,
        },
    )


def _reset(log: LogView, c: OffsetCommit, offset: int, doubt: bool) -> Advice:
    # Not where remote storage may still have the records of a tiered log with an unknown start.
    if doubt and log.cluster.is_tiered(c.topic):
        return Advice(
            Verdict.INVESTIGATE_FIRST,
            f"the records may still be in the remote storage of {c.topic}, and a group never reads them after a reset",
            conditions=(check(repairs.describe_topic(c.topic), "the output shows remote.storage.enable=true"),),
        )
    return Advice(
        Verdict.INVESTIGATE_FIRST,
        "after a reset the group never reads the records in between",
        conditions=(_dry_run(c, offset),),
        afterwards="Identify the missing records before you run it with --execute",
    )


def _dry_run(c: OffsetCommit, offset: int) -> Condition:
    command = repairs.reset_offset(c.place.group, c.topic, c.partition, offset)
    return check(command, f"the output shows NEW-OFFSET {offset}, where the group would continue")


# The zombie of KIP-447: a producer that commits a partition after a rebalance assigned it to another member.


@rule(
    "zombie-offset-commit",
    when={
        "warning": "before the uncompacted part of the log",
        "info": "if the producers may be a pool",
    },
)
def zombie_offset_commit(log: LogView) -> Iterator[Finding]:
    """A zombie commits offsets of a partition that a rebalance reassigned

    Checks: a transactional commit follows one by another producer, which commits for the current owner of the
    partition. The later producer has only committed for other members before. Or two producers commit a partition in
    one generation, and by __transaction_state one transaction began before that generation. The group's records show
    the owner: by generation in a classic group, by assignment under KIP-848. Under KIP-848 a partition still to be
    revoked belongs to its old member. One owner with many producers is a pool and is not reported. The owner may be
    unknown, or both producers may have committed for the same other member. Then a zombie is one whose offset does not
    rise. Otherwise it is one info per group. Aborted transactions do not count, nor commits before the producer's
    id was initialised again. The evidence has the five steps of the KIP, the members that owned the partition, and the
    group.instance.id of static ones.
    Why it matters: two instances processed the same input. Their output is stored twice, and the offset may have moved
    backwards. KIP-447 fences this, but only for clients that send their group metadata. Under KIP-848 brokers check
    only the member's epoch; since 4.3 any epoch from the assignment of the partition on is valid (KIP-1251).
    Can be wrong: the producer kept the partition, and the other one committed it by mistake; members of one application
    share a pool, and one of them is new. With static members, the same group.instance.id in both generations means two
    processes with one id. The owners in a KIP-848 group with more than one topic are unknown, since its records have
    topic ids only.
    What to do: call sendOffsetsToTransaction(offsets, groupMetadata) with clients of 2.5 or newer (Streams:
    exactly_once_v2); deduplicate the zombie's output after the other's commit; give each process its own
    group.instance.id.
    Source: KIP-447, KIP-345, KIP-848, KIP-1251; ConsumerGroup.validateOffsetCommit
    """
    zombies = _one_per_group(_zombies(log), lambda z: "" if z[0].grave else z[0].late.place.group)
    for (zombie, owned_since), times in zombies:
        yield _finding(log, zombie, owned_since, times)


def _zombies(log: LogView) -> Iterator[tuple[Zombie, str]]:
    # With step 1 of KIP-447 for each.
    watch = watched(log)
    for zombie in watch.zombies:
        older = zombie.older
        if older is not None and not _initialised_between(log, older, zombie.late):
            yield zombie, f"{writer(log, zombie.late)} committed {older.value} (record {older.record_offset})"
    for pair in watch.handed_over:
        for zombie in (pair, pair._replace(rival=pair.late, late=pair.rival)):
            window = _transaction(log, zombie.late)
            if window is not None and _begun_before(log, zombie.late, window):
                yield zombie, f"{writer(log, zombie.late)} began its transaction at {iso(window.start_time)}"
                break


def _initialised_between(log: LogView, older: OffsetCommit, late: OffsetCommit) -> bool:
    # Whether another instance took over the id: the epoch is bumped by more than transactions themselves do
    # (transaction.version 2), so the instance of the older commit was fenced.
    history = log.cluster.coordinator
    last = None if history is None else history.last_of_producer(late.producer_id)
    if history is None or last is None or late.producer_epoch <= older.producer_epoch:
        return False
    if last.client_version < 2 or last.partition in history.broken:  # the record of it may be one that is lost
        return True
    return history.initialised(late.producer_id, older.producer_epoch + 1, late.producer_epoch)


def _transaction(log: LogView, c: OffsetCommit) -> TransactionWindow | None:
    # None where several transactions may be the one.
    named = naming(log)
    span = named.of(c.producer_id)
    near = []
    for number, row in enumerate(named.rows[span], span.start):
        slack = skew(log, int(row["partition"]) if row["partition"] >= 0 else None)
        begun = row["begun"] >= 0 and row["begun"] - slack <= c.time
        if begun and (not row["has_complete"] or c.time <= row["ended"] + slack):
            near.append(number)
    return named.window(near[0]) if len(near) == 1 else None


def _begun_before(log: LogView, c: OffsetCommit, window: TransactionWindow) -> bool:
    # Beyond any clock difference.
    entry, generation = window.first or window.decided, c.generation
    if entry is None or generation is None or generation.time < 0:
        return False
    return window.start_time + skew(log, entry.partition) < generation.time


def _finding(log: LogView, zombie: Zombie, since: str, times: int = 1) -> Finding:
    c, rival, older = zombie.late, zombie.rival, zombie.older
    first = min(c, rival, key=lambda commit: commit.record_offset)
    evidence: Fields = {
        "older_generation": None if older is None or older.generation is None else older.generation.number,
        "older_record_offset": None if older is None else older.record_offset,
        "rival_producer_id": rival.producer_id,
        "rival_offset": rival.value,
        "ranges": [] if older is None else _twice(older.value, min(c.value, rival.value)),
        "rival_record_offset": rival.record_offset,
        "owner_before": _member(zombie.owner_before),
        "owner": _member(zombie.owner),
        "steps": _steps(log, zombie, since),
        "confidence": "likely",
    }
    behind, generation = first is rival, c.generation
    why = "a zombie of an older generation was not fenced"
    if generation is None or not generation.classic:
        why = f"the partition had moved from member {zombie.owner_before} to {zombie.owner}"
    if not zombie.grave:
        why = f"a zombie, or two producers of one pool (the group's records do not show which){_times(times)}"
        evidence |= {"confidence": "undecidable", "missing": "the owner of the partition", "times": times}
    takeover = f"after {writer(log, rival)} took the partition over and committed {rival.value}"
    if not behind:
        takeover = f"in a transaction older than the generation in which {writer(log, rival)} took the partition over"
    severity = "error" if first.record_offset >= whole_from(log) else lowered("error")
    return at_commit(
        log,
        severity if zombie.grave else "info",
        c,
        f"{writer(log, c)} committed offset {c.value} for {place_of(c)} {takeover}: {why}{_statically(zombie)}",
        if_true=None if zombie.grave else severity,
        evidence=evidence,
    )


def _times(times: int) -> str:
    return f" (and {times - 1} times more in this group)" if times > 1 else ""


def _member(member: Member | None) -> dict[str, str | None] | None:
    return None if member is None else member._asdict()


def _statically(zombie: Zombie) -> str:
    names = [m.instance_id for m in (zombie.owner_before, zombie.owner) if m is not None and m.instance_id is not None]
    if len(names) == 2 and names[0] == names[1]:
        return f"; two processes use the group.instance.id {names[0]}"
    return f"; static members: {', '.join(dict.fromkeys(names))}" if names else ""


def _steps(log: LogView, zombie: Zombie, since: str) -> list[str]:
    # The five steps of KIP-447: A is the zombie, B the new owner.
    c, rival = zombie.late, zombie.rival
    generation = c.generation
    classic = generation is not None and generation.classic
    word = "generation" if classic else "epoch"
    began = "" if generation is None else f"{word} {generation.number} began (record {generation.offset})"
    fence = "without a generation to fence it" if classic else "and brokers check only the epoch"
    return [
        f"1. A: {since}" + (f", as member {zombie.owner_before}" if zombie.owner_before else ""),
        f"2. A lost its membership and the group rebalanced: {began}",
        f"3. B was assigned {c.place.partition}: {writer(log, rival)}"
        + (f", as member {zombie.owner}" if zombie.owner else ""),
        f"4. B found no pending offsets of A, continued and committed {rival.value} (record {rival.record_offset})",
        f"5. A returned and committed {c.value} (record {c.record_offset}), {fence}",
    ]


# Share groups (KIP-932): their progress against the logs that they consume.


@rule(
    "share-offset-out-of-range",
    when={
        "error": "past the log end offset",
        "warning": "below the log start offset",
        "info": "if the files may have different copy times",
    },
)
def share_offset_out_of_range(log: LogView) -> Iterator[Finding]:
    """A share group's state is outside its log

    Checks: the last state of a share group in a partition, by __share_group_state. Its start offset or its last
    delivered offset is past the log end offset of that log's leader replica. Or its start offset is below the log start
    offset, which is in remote storage for a tiered log.
    Why it matters: past the end, the partition lost its newest records. New records at these offsets count as
    acknowledged and are not delivered. Below the start, retention deleted records before the group acknowledged them.
    Can be wrong: the log was copied before the state (reported as in flight); an unused group.
    What to do: find out which records the log lost before its leader appends more. kafka-share-groups.sh
    --reset-offsets --dry-run shows the new start offset of a group without members (--execute sets it). Raise retention
    above the time that the group needs.
    Source: KIP-932; SharePartition, ShareCoordinatorShard
    """
    if not log.leader.share_offsets:  # as of nearly all logs: to walk all partitions for each would take their square
        return
    names = {b.topic_id: topic for (topic, _), b in log.cluster.bounds.items() if b.topic_id is not None}
    for state in log.leader.share_offsets:
        topic = names.get(state.topic_id)
        bounds = None if topic is None else log.cluster.bounds.get((topic, state.partition))
        if topic is not None and bounds is not None and state.start_offset >= 0:
            yield from _judged(log, topic, bounds, state)


def _judged(log: LogView, topic: str, bounds: LeaderBounds, state: ShareOffset) -> Iterator[Finding]:
    furthest = max(state.start_offset, state.delivered + 1)
    above, below = furthest > bounds.log_end, state.start_offset < bounds.log_start
    if not above and not below:
        return
    other = bounds.broker_id is None or bounds.broker_id != log.leader.broker_id
    late = above and log.cluster.lacks(topic, state.partition, state.time, other_clock=other)
    doubt = late or (bounds.starts_late and not above)
    where = f"share group {state.group_id} in {topic}-{state.partition}"
    if above:
        message = (
            f"The state of {where} reaches offset {furthest - 1}, but the log end offset is {bounds.log_end}: new "
            f"records at these {plural(furthest - bounds.log_end, 'offset')} may never be delivered"
        )
    else:
        gone = plural(bounds.log_start - state.start_offset, "offset")
        message = f"{where[0].upper()}{where[1:]} lost {gone} from {state.start_offset} on, deleted unacknowledged"
    yield log.finding(
        "error" if above else "info" if doubt else "warning",
        message + (" (the files may have different copy times)" if doubt else ""),
        topic=topic,
        partition=state.partition,
        offset=state.start_offset,
        last_offset=state.delivered if state.delivered >= 0 else None,
        group_id=state.group_id,
        time_ms=state.time,
        file=state.file,
        position=state.position,
        evidence={
            "state_partition": log.name,
            "record_offset": state.record_offset,
            "log_start": bounds.log_start,
            "log_end": bounds.log_end,
            "confidence": "undecidable" if doubt else "proved",
        },
        doubt=late,
        lost=lost_between(log, state.record_offset) or (above and bounds.end_damaged),
    )


# Committed offsets of one ``__consumer_offsets`` partition: from the replica's reader, or replayed from rows.


CONSUMER_OFFSETS = "__consumer_offsets"
FAR = 1 << 62


def watched(log: LogView) -> WatchedOffsets:
    """Return the result of one pass over the records, cached; nothing for other topics."""
    if log.topic != CONSUMER_OFFSETS:
        return WatchedOffsets([], [], [], [], [], {}, {}, in_force_of(()))
    if log.leader.watched_offsets is None:
        assignments = Assignments()
        committers, rivals, values = Committers(), Rivals(assignments), Values(assignments)
        story = story_of(log, committers, rivals, values, assignments=assignments)
        pending = {producer_id: story.pending(producer_id) for producer_id in story.model.pending}
        tables = (log.leader.tables.get(name) for name in ("offset_commits", "group_metadata"))
        groups = [group for table in tables if table is not None for group in table["group_id"].to_pylist()]
        log.leader.watched_offsets = WatchedOffsets(
            zombies=rivals.zombies,
            interleaved=rivals.interleaved,
            handed_over=rivals.handed_over,
            falls=values.falls(),
            skips=values.skips,
            committers=committers.seen,
            mixed=committers.mixed,
            pending=pending,
            in_force=in_force_of(story.in_force()),
            groups=[group for group in dict.fromkeys(groups) if group is not None],
            kinds=assignments.kinds,
        )
    return log.leader.watched_offsets


def lost_between(log: LogView, first: int, last: int | None = None) -> bool:
    """Whether records between two offsets, or after one, are in batches with a CRC mismatch."""
    return touches(log.leader.damaged, first, FAR if last is None else last)


def story_of(log: LogView, *watchers: Watcher, assignments: Assignments | None = None) -> CommitReplay:
    """Replay the judged records of the leader replica of a ``__consumer_offsets`` partition."""
    # No limit of its own: the rows are in memory as it is.
    story = CommitReplay(tuple(watchers), assignments=assignments or Assignments(), most_waiting=sys.maxsize)
    steps = heapq.merge(_groups(log), _commits(log), _markers(log), key=lambda step: step[0])
    for offset, kind, row in steps:
        if kind == "commit":
            story.offset_record(offset, row)
        elif kind == "group":
            story.group_record(offset, row)
        else:
            story.marker(*row)
    story.end()
    return story


Step = tuple[int, str, tuple[Any, ...]]


def _rows(log: LogView, table: str, kind: str, columns: tuple[str, ...]) -> Iterator[Step]:
    # Rows without an offset (console text) cannot be ordered and are skipped.
    rows = log.leader.tables.get(table)
    if rows is None:
        return
    import pyarrow.compute  # a tenth of a second that whoever only names the rules need not wait for

    rows = rows.filter(pyarrow.compute.greater_equal(rows["offset"], log.leader.log_start))
    rows = rows.sort_by("offset")
    lists = [_plain(rows[name]) for name in ("offset", *columns)]
    damaged = [(e["base_offset"], e["last_offset"]) for e in log.events(EventKind.CRC)]
    for offset, *row in zip(*lists, strict=True):
        if not any(first <= offset <= last for first, last in damaged):
            yield offset, kind, tuple(row)


def _plain(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return list(column.to_pylist())


def _groups(log: LogView) -> Iterator[Step]:
    names = ("group_id", "key_type", "tombstone", "generation", "member_ids", "value", "record_timestamp")
    return (step for step in _rows(log, "group_metadata", "group", names) if step[2][1] in GROUP_RECORDS)


def _commits(log: LogView) -> Iterator[Step]:
    head_names = ("group_id", "consumed_topic", "consumed_partition", "tombstone", "committed_offset")
    names = ("record_timestamp", "producer_id", "producer_epoch", "file", "position", "is_transactional")
    for offset, kind, row in _rows(log, "offset_commits", "commit", head_names + names):
        *head, time, producer_id, epoch, file, position, transactional = row
        writer = (producer_id, epoch) if transactional else (NO_PRODUCER_ID, -1)
        yield offset, kind, (*head, -1 if time is None else time, *writer, file, position)


def _markers(log: LogView) -> Iterator[Step]:
    rows = log.leader.transactions
    rows = rows[rows["marker_offset"] >= log.leader.log_start]
    for row in rows[np.argsort(rows["marker_offset"], kind="stable")]:
        yield int(row["marker_offset"]), "marker", (int(row["producer_id"]), bool(row["commit"] == 1))


def readers(log: LogView) -> list[Fields]:
    """List the groups of this ``__consumer_offsets`` partition by the topics they have offsets in.

    ``groups`` are at most :data:`SHOWN` names, ``more`` counts the rest. The topic is empty for groups that have
    records and no offsets, which may be deleted ones. Whether a group reads committed records only is a consumer
    setting, which no broker stores.
    """
    if log.topic != CONSUMER_OFFSETS:
        return []
    by_topic: dict[str, set[str]] = {}
    for topic, group in watched(log).in_force.topics_of_groups():
        by_topic.setdefault(topic, set()).add(group)
    by_topic[""] = {*watched(log).groups}.difference(*by_topic.values())
    return [
        {
            "topic": topic,
            "partition": log.partition,
            "groups": sorted(groups)[:SHOWN],
            "more": max(0, len(groups) - SHOWN),
        }
        for topic, groups in sorted(by_topic.items())
    ]
