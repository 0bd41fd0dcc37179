"""Rules on how things stand in ``__transaction_state``: ids that do not go on, time-outs, keys, unreadable records."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import partial

import numpy as np

from auditor.base.advice import Advice, Look, Verdict, for_flink, may_be_flinks
from auditor.base.words import NO_TIMEOUT_MS, duration
from auditor.facts.coordinator_log import ONGOING, PREPARE_ABORT, PREPARE_COMMIT, TOMBSTONE, split
from auditor.model.transaction_states import partition_for
from auditor.rules.catalogue.kinds import Blocks, Hold
from auditor.rules.catalogue.needs import Need
from auditor.rules.catalogue.registry import rule
from auditor.rules.lib import commands, repairs
from auditor.rules.lib.group_offsets import watched
from auditor.rules.seen.cluster_view import COUNT_SETTINGS
from auditor.rules.seen.coordinator_history import COORDINATOR_CHECK_MS, Entry
from auditor.rules.seen.finding import Finding, iso
from auditor.rules.seen.view import LogView
from auditor.rules.settled.floods import Unmade, made
from auditor.rules.settled.together import by_cause, count
from auditor.rules.transactions import blocking, outdated, safety
from auditor.rules.transactions.open_transactions import time_allowed
from auditor.rules.transactions.state_records import TOPIC, commit_offsets, last_entries, last_records, records
from auditor.rules.transitions import FAMILY, at_entry

SHOWN = 5  # partitions named in a sentence, ids with one setting that are named each
ENDLESS = Advice(
    Verdict.WAIT,
    "a two-phase commit has no time-out",
    then="watch that its application ends what it has prepared, also after a crash",
)
OF_FLINK = Advice(
    Verdict.LOOK,
    then="If this is Flink: keep transaction.timeout.ms above the interval of checkpoints and the longest time that "
    "the job is down: a transaction that times out before the job is restored loses records that it counts as written",
)


@rule(
    "stuck-prepare",
    family=FAMILY,
    severities={
        "critical": "",
        "error": "while it is young or a partition has no leader",
        "info": "where its log may be outdated",
    },
    outcomes={"blocked": ""},
    time=True,
    blocks=Blocks.READERS,
    hold=Hold.PREPARED,
    decided=True,
    needs=(Need.TRANSACTION_STATE,),
)
def stuck_prepare(log: LogView) -> Iterator[Finding]:
    """A transaction is decided but was never completed

    Checks: the last record of an id is PrepareCommit or PrepareAbort and older than its time-out (15 minutes where it
    has none, as in a two-phase commit) and 30 seconds, or a partition of it has no leader by the metadata, or one that
    is fenced or shutting down. Info where the logs of a running cluster were copied one after another and this one may
    have been copied before it went on: its partitions have their markers, or a later transaction; or other logs are
    newer and neither this log nor one in which the transaction is open goes on behind that time.
    Can be wrong: the coordinator was down for long; the copy is much older than --as-of. Which partitions lack the
    marker is known of those in the input that have data of it; one that was added and never written to is not seen.
    What to do: start a broker that is in sync for each partition without a leader (never elect another one unclean);
    if it does not go on then, let another in-sync replica lead the owning __transaction_state partition, so that its
    markers are sent again. Never abort it by hand.
    Source: KIP-98
    """
    yield from made(log, "stuck-prepare", _stuck(log))


def _stuck(log: LogView) -> Iterator[Unmade]:
    for entry in last_entries(log, PREPARE_COMMIT, PREPARE_ABORT):
        age = log.cluster.as_of - entry.time
        away = blocking.undeliverable(log.cluster, entry)
        allowed = time_allowed(entry)
        if age <= allowed + blocking.LATE_MS and not away:
            continue
        due = entry.time + allowed + blocking.LATE_MS
        doubt = outdated.ended(log.cluster, entry) if away else outdated.unsure(log.cluster, entry, due)
        severity = blocking.prepared_severity(log.cluster, entry)
        make = partial(_stuck_finding, log, entry, severity, age, away, doubt)
        yield Unmade(severity, entry.offset, make, doubt=doubt is not None)


def _stuck_finding(log: LogView, entry: Entry, severity: str, age: int, away: list[str], doubt: str | None) -> Finding:
    lacking = {name: here.first_offset for name, here in outdated.still_open(log.cluster, entry).items()}
    unseen = sorted(name for name in entry.partitions if split(name) not in log.cluster.bounds)
    not_read = [name for name in unseen if not log.cluster.scope.wants_log(*split(name))]
    which = "whether" if len(entry.partitions) == 1 else "which of"
    named = _some([*lacking]) if lacking else f"not known {which} {_some(sorted(entry.partitions))}"
    waits = f"nobody leads {_some(away)}" if away else named
    taken = f"{'have' if len(lacking) > 1 else 'has'} not taken its marker" if lacking else "took its marker"
    lacks = "to take its marker" if away else taken
    return at_entry(
        log,
        "stuck-prepare",
        severity,
        f"The transaction of {entry.transactional_id} has been in {entry.state} for {duration(age)}"
        + (f", or has ended since: {doubt}" if doubt else f": {waits} {lacks}"),
        entry,
        doubt=doubt is not None,
        evidence={
            "state": entry.state,
            "age_ms": age,
            "partitions": sorted(entry.partitions),
            "without_marker": lacking or None,
            "not_in_input": [name for name in unseen if name not in not_read] or None,
            "not_read": not_read or None,
            "without_leader": away or None,
            "may_have_ended": doubt,
            "decided": iso(entry.time),
        },
        advice=_carried_out(log, entry, away),
    )


def _carried_out(log: LogView, entry: Entry, away: list[str]) -> Advice:
    """Letting its coordinator send the markers that are decided."""
    first = (
        f"first {repairs.leader_back(log.cluster, away)}"
        if away
        else "let those that have no leader have one, not by an unclean election"
    )
    advice = Advice(
        Verdict.WAIT if entry.state == "PrepareAbort" else Verdict.DO_NOT_ACT,
        "nothing is lost by waiting" if entry.state == "PrepareAbort" else safety.COMMITTED,
        look=(Look(commands.unavailable(), f"it lists {_some(away) if away else 'a partition of the transaction'}"),),
        then=f"{first}. Only then, if it does not go on, "
        f"{safety.other_coordinator(log.cluster, log.partition)}, so that its markers are "
        "sent again. Do not abort it by hand",
    )
    return safety.reloaded(
        log.cluster, log.partition, entry.transactional_id, for_flink(entry.transactional_id, advice)
    )


def _some(partitions: list[str]) -> str:
    """The first few of some partitions, and how many more there are."""
    return ", ".join(partitions[:SHOWN]) + (f" and {len(partitions) - SHOWN} more" if len(partitions) > SHOWN else "")


@rule(
    "timeout-not-enforced",
    family=FAMILY,
    severities={
        "error": "",
        "warning": "within 30 s",
        "info": "where its log may be outdated, or the transaction may never have begun",
    },
    outcomes={"blocked": ""},
    time=True,
    blocks=Blocks.READERS,
    needs=(Need.TRANSACTION_STATE,),
)
def timeout_not_enforced(log: LogView) -> Iterator[Finding]:
    """The coordinator did not abort a transaction whose time was up

    Checks: the last record of an id is Ongoing, and its start, time-out and two rounds of the coordinator's check lie
    before --as-of; not of a two-phase commit, which a coordinator never ends (KIP-939). Info where the logs of a
    running cluster were copied one after another and this one may have been copied before the transaction ended: a
    marker came later; or other logs are newer and neither this log nor one in which the transaction is open goes on
    behind that time. Info too where the record began the transaction and none of its partitions, which are all in the
    input, has data of it: then its append may have failed (coordinator-append-failed), and nobody waits.
    Why it matters: the coordinator that owns the id is dead, unowned or could not load; the transaction holds back
    read_committed consumers.
    Can be wrong: the coordinator was down or loading when the copy was made; the copy is older than --as-of.
    What to do: check who leads this partition, transaction.abort.timed.out.transaction.cleanup.interval.ms, and load
    errors (unreadable-transaction-record).
    If the id may be Flink's (PREFIX-SUBTASK-CHECKPOINT): restoring the job from a checkpoint or savepoint commits the
    transactions which it holds and aborts the others.
    Source: KIP-98; TransactionStateManager.timedOutTransactions
    """
    yield from made(log, "timeout-not-enforced", _beyond_timeout(log))


def _beyond_timeout(log: LogView) -> Iterator[Unmade]:
    for entry in last_entries(log, ONGOING):
        if entry.timeout_ms <= 0 or entry.timeout_ms == NO_TIMEOUT_MS:
            continue
        begin = entry.start if entry.start >= 0 else entry.time
        over = log.cluster.as_of - begin - entry.timeout_ms
        if over <= 2 * COORDINATOR_CHECK_MS:
            continue
        ended = outdated.unsure(log.cluster, entry, begin + entry.timeout_ms + 2 * COORDINATOR_CHECK_MS)
        never = None if ended else outdated.never_begun(log.cluster, entry)
        severity = "error" if over > blocking.LATE_MS else "warning"
        make = partial(_beyond_timeout_finding, log, entry, severity, begin, over, ended, never)
        yield Unmade(severity, entry.offset, make, doubt=bool(ended or never))


def _beyond_timeout_finding(
    log: LogView, entry: Entry, severity: str, begin: int, over: int, ended: str | None, never: str | None
) -> Finding:
    where = f"; its record names {_some(sorted(entry.partitions))}" if entry.partitions else ""
    doubt = f"or has ended since: {ended}" if ended else f"or never began: {never}" if never else None
    return at_entry(
        log,
        "timeout-not-enforced",
        severity,
        f"The transaction of {entry.transactional_id} has been open for {duration(over + entry.timeout_ms)} with "
        f"a time-out of {duration(entry.timeout_ms)}, " + (doubt or f"and the coordinator has not aborted it{where}"),
        entry,
        doubt=doubt is not None,
        evidence={
            "timeout_ms": entry.timeout_ms,
            "started": iso(begin),
            "over_ms": over,
            "may_have_ended": ended,
            "may_never_have_begun": never,
            "partitions": sorted(entry.partitions),
        },
        advice=safety.unended(log.cluster, entry, log.partition, "its records"),
    )


def _one_setting(f: Finding) -> Hashable:
    return f.evidence["timeout_ms"], f.evidence["commits_offsets"], f.advice == OF_FLINK


def _all_of_one_setting(found: Sequence[Finding]) -> str:
    offsets = " and commit offsets" if found[0].evidence["commits_offsets"] else ""
    return f"{count(found)} transactional ids have {_timeout(found[0].evidence['timeout_ms'])}{offsets}"


@rule(
    "transaction-timeout-too-large",
    family=FAMILY,
    severities={"info": ""},
    together=by_cause(_one_setting, _all_of_one_setting, few=SHOWN),
    needs=(Need.TRANSACTION_STATE,),
)
def transaction_timeout_too_large(log: LogView) -> Iterator[Finding]:
    """A crash of this application blocks consumers for long

    Checks: a time-out of more than a minute, the client's default; of a minute or more for an id that also commits
    offsets; none at all, as transactions of a two-phase commit have it (KIP-939).
    Why it matters: until the time is up after a crash, read_committed consumers and stable offset fetches wait.
    Can be wrong: batch jobs that need the time; Flink's jobs need more than the interval of their checkpoints and the
    longest time that they are down.
    What to do: lower transaction.timeout.ms; Kafka Streams uses 10 s. Where there is none, watch that the application
    ends what it has prepared.
    Source: KIP-447
    """
    (columns, there), found = last_records(log), records(log)
    if found is None:
        return
    long = np.flatnonzero(there & (columns["state"] != TOMBSTONE) & (columns["timeout_ms"] >= 60_000))
    having = commit_offsets(found, log.leader.log_start) if len(long) else there
    long = long[having[long] | (columns["timeout_ms"][long] != 60_000)]
    for number, last in zip(long.tolist(), found.entries(columns, long), strict=True):
        tid, offsets = last.transactional_id, bool(having[number])
        yield at_entry(
            log,
            "transaction-timeout-too-large",
            "info",
            f"{tid} has {_timeout(last.timeout_ms)}" + (" and commits offsets" if offsets else ""),
            last,
            evidence={"timeout_ms": last.timeout_ms, "commits_offsets": offsets},
            advice=ENDLESS if last.timeout_ms == NO_TIMEOUT_MS else OF_FLINK if may_be_flinks(tid) else None,
        )


def _timeout(ms: int) -> str:
    if ms == NO_TIMEOUT_MS:
        return "no transaction time-out (two-phase commit)"
    return f"a transaction time-out of {duration(ms)}"


@rule(
    "key-in-wrong-partition",
    family=FAMILY,
    severities={"error": ""},
    outcomes={"at_risk": ""},
    needs=(Need.TRANSACTION_STATE, Need.CONSUMER_OFFSETS),
)
def key_in_wrong_partition(log: LogView) -> Iterator[Finding]:
    """A transactional id or group lies in a partition that does not own it

    Checks: the partition of a record against the hash of its transactional id or group over the topic's partition
    count.
    Why it matters: the partition count was changed: coordinators look elsewhere, ids and groups start from nothing.
    Can be wrong: the partition count taken from an incomplete copy (without metadata or settings nothing is said).
    What to do: do not delete the topic, which loses every id or offset; Kafka cannot lower a partition count. Start the
    producers of these ids again, so that their new coordinator knows them; give each group the offsets that its old
    partition has (a reset by kafka-consumer-groups.sh, first as a dry run).
    Source: TransactionStateManager.partitionFor, GroupCoordinator.partitionFor
    """
    count = log.cluster.partition_counts.get(log.topic, 0)
    if log.topic not in COUNT_SETTINGS or not log.cluster.knows_count(log.topic):
        return
    sure = log.cluster.has_metadata
    if (found := records(log)) is not None:
        for number in np.flatnonzero(last_records(log)[1]).tolist():
            owner = partition_for(found.ids[number], count)
            if owner != log.partition:
                judged = (e for e in found.entries_of(number) if e.offset >= log.leader.log_start)
                yield _misplaced(log, found.ids[number], None, owner, count, sure, next(judged))
    elif log.topic == "__consumer_offsets":
        seen = watched(log)
        for group in seen.groups if seen is not None else ():
            if partition_for(group, count) != log.partition:
                yield _misplaced(log, None, group, partition_for(group, count), count, sure, None)


def _misplaced(
    log: LogView, tid: str | None, group: str | None, owner: int, count: int, sure: bool, entry: Entry | None
) -> Finding:
    return log.finding(
        "key-in-wrong-partition",
        "error",
        f"{tid if tid is not None else group} lies in {log.name}, but of {count} partitions {owner} owns it",
        transactional_id=tid,
        group_id=group,
        offset=None if entry is None else entry.offset,
        evidence={
            "expected": owner,
            "found": log.partition,
            "partition_count": count,
            "confidence": "proved" if sure else "likely",
        },
    )


@rule(
    "unreadable-transaction-record",
    family=FAMILY,
    severities={"error": ""},
    outcomes={"unreadable": ""},
    needs=(Need.TRANSACTION_STATE,),
)
def unreadable_transaction_record(log: LogView) -> Iterator[Finding]:
    """A coordinator cannot read its own log

    Checks: a record of __transaction_state with an unknown value version, a null key or a body that does not parse.
    Why it matters: a coordinator that loads the partition stops at it and silently keeps what it had: ids further on
    are stale or unknown to it.
    Can be wrong: a newer broker wrote it than this auditor knows.
    What to do: upgrade this broker where a newer one wrote the record; else let an in-sync replica that has a sound one
    lead, before this replica is fetched again.
    Source: TransactionStateManager.loadTransactionMetadata
    """
    if log.topic != TOPIC:
        return
    for offset, position, error in log.leader.unreadable_records:
        if offset >= log.leader.log_start:
            yield log.finding(
                "unreadable-transaction-record",
                "error",
                f"The record at offset {offset} of {log.name} cannot be read ({error.detail}): a coordinator "
                f"stops loading here",
                offset=offset,
                last_offset=offset,
                file=error.file,
                position=position,
                evidence={"reason": error.reason, "detail": error.detail},
            )
