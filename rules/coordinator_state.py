"""Rules on the records of __transaction_state."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from auditor.base.advice import Advice, Verdict
from auditor.base.at_rest import Fields
from auditor.base.evidence_keys import TimeoutEvidence, read
from auditor.base.transactional_ids import LONGER_THAN_DOWN, by_scheme, is_flinks
from auditor.base.words import NO_TIMEOUT_MS, duration, plural
from auditor.evidence.cluster_clocks import BrokerTime
from auditor.facts.coordinator_log import (
    AT_HAND,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    STATES,
    TOMBSTONE,
    CoordinatorLog,
    StateRecord,
    StateStep,
    odd_steps,
    split,
    unsound_in,
)
from auditor.facts.replica_facts import once
from auditor.model.transaction_states import partition_for
from auditor.rules.catalogue.registry import rule
from auditor.rules.committed_offsets import watched
from auditor.rules.lib import repairs
from auditor.rules.resolution.finding_limits import Unmade, made
from auditor.rules.resolution.resolve import by_cause, count
from auditor.rules.seen.cluster_view import COUNT_SETTINGS, TRANSACTION_STATE, OpenHere
from auditor.rules.seen.view import Finding, LogView, iso
from auditor.rules.transactions import blocking
from auditor.rules.transactions.making import (
    of_coordinator,
    refusing,
    still_open,
    undeliverable,
    without_its_marker,
)
from auditor.transactions.record import Transaction

# ``__transaction_state`` record by record: the transitions of each id.


REGRESSIONS = {"epoch_regressed", "epoch_jumped", "epoch_not_reset", "producer_id_changed"}


def at_entry(log: LogView, severity: str, message: str, entry: StateRecord, **fields: Any) -> Finding:
    """Make a finding at a record of ``__transaction_state``."""
    fields.setdefault("last_offset", entry.offset)
    return log.finding(
        severity,
        message,
        offset=entry.offset,
        producer_id=entry.producer_id if entry.producer_id >= 0 else None,
        producer_epoch=entry.producer_epoch if entry.producer_epoch >= 0 else None,
        transactional_id=entry.transactional_id,
        time_ms=entry.time,
        file=entry.file,
        position=entry.position if entry.position >= 0 else None,
        **fields,
    )


def _facts(old: StateRecord, new: StateRecord, problems: list[str]) -> Fields:
    before, after = (
        {
            "offset": record.offset,
            "state": record.state,
            "producer_id": record.producer_id,
            "epoch": record.producer_epoch,
        }
        for record in (old, new)
    )
    return {"before": before, "after": after, "problems": problems}


@rule("illegal-transition")
def illegal_transition(log: LogView) -> Iterator[Finding]:
    """A transactional id made an illegal state transition

    Checks: a record of an id, in a region never compacted, has a state that the coordinator never writes after the
    previous record. Earlier records count too, if those between may have failed under the same coordinator epoch
    (coordinator-append-failed). Dead and PrepareEpochFence exist in memory only and are never stored. The append of an
    Ongoing record did not fail if a partition that it added has an open transaction of its producer and epoch.
    Can be wrong: records of coordinators older than Kafka 2.5 that failed to fence twice.
    What to do: check elections of this __transaction_state partition; move its leadership so that it is reloaded.
    Source: KIP-98, KIP-890; TransactionState.validPreviousStates
    """
    for old, new, problems, _ in steps(log):
        if "illegal_state" in problems:
            yield at_entry(
                log,
                "critical",
                f"{new.transactional_id} went from {old.state} to {new.state or 'tombstone'} at offset {new.offset}",
                new,
                evidence=_facts(old, new, problems),
            )
    for entry, problems in unsound_records(log):
        if "state_never_written" in problems:
            yield at_entry(
                log,
                "critical",
                f"A record of {entry.transactional_id} has state {entry.state}, which is never stored",
                entry,
                evidence={"found": entry.state, "status": entry.status},
            )


@rule("transition-invariant-broken")
def transition_invariant_broken(log: LogView) -> Iterator[Finding]:
    """A record of a transactional id contradicts the previous one

    Checks: neighbouring records in a region never compacted. Partitions shrink or differ at the decision, the timeout
    changes outside of Empty, or the start changes inside a transaction, and no failed append explains it. Also single
    records: Complete with partitions; a state other than Empty without a start; Empty with a start that is not that of
    the previous transaction.
    Can be wrong: after a restore from a backup. Clocks that moved backwards are legal and not reported.
    What to do: check elections of this __transaction_state partition, and compare its replicas; move its leadership so
    that it is reloaded.
    Source: TransactionMetadata.completeTransitionTo
    """
    for old, new, problems, _ in steps(log):
        broken = [p for p in problems if p != "illegal_state" and p not in REGRESSIONS]
        if broken and "illegal_state" not in problems:
            yield at_entry(
                log,
                "error",
                f"The record of {new.transactional_id} at offset {new.offset} breaks an invariant: {', '.join(broken)}",
                new,
                evidence=_facts(old, new, broken),
            )
    for entry, problems in unsound_records(log):
        broken = [p for p in problems if p != "state_never_written"]
        if broken and entry.state in STATES:
            yield at_entry(
                log,
                "error",
                f"The record of {entry.transactional_id} at offset {entry.offset} is invalid: {', '.join(broken)}",
                entry,
                evidence={"state": entry.state, "problems": broken},
            )


@rule("state-epoch-regression")
def state_epoch_regression(log: LogView) -> Iterator[Finding]:
    """A transactional id's epoch regressed, or jumped

    Checks: neighbouring records of one id with the same producer id have a lower epoch, or a bump that no step of the
    protocol makes. Or a new producer id does not start at epoch 0.
    Why it matters: the coordinator lost an epoch bump. Zombies of the higher epoch may write again.
    Can be wrong: old state was restored from a backup.
    What to do: stop the producers of the id; compare with the epochs in the data.
    Source: KIP-360; TransactionMetadata
    """
    for old, new, problems, _ in steps(log):
        broken = [p for p in problems if p in REGRESSIONS]
        if broken and "illegal_state" not in problems:
            yield at_entry(
                log,
                "critical",
                f"{new.transactional_id} went from producer id {old.producer_id} epoch {old.producer_epoch} to "
                f"producer id {new.producer_id} epoch {new.producer_epoch} at offset {new.offset}",
                new,
                evidence=_facts(old, new, broken),
            )


@rule("producer-id-reused")
def producer_id_reused(log: LogView) -> Iterator[Finding]:
    """A producer id has two owners, or was reused

    Checks: records of two transactional ids have the same producer id. Or a transactional id returns to an earlier
    producer id.
    Why it matters: a producer id is allocated once. If two applications share one, they fence each other.
    Can be wrong: raw copies of two clusters in one input.
    What to do: check ProducerIdsRecord in __cluster_metadata, since the allocator was reset.
    Source: KIP-98, KIP-730
    """
    history, state_log = log.cluster.coordinator, log.state_log
    if history is None or state_log is None:
        return
    runs = producer_runs(state_log, log.leader.log_start)
    pairs, times = np.unique(runs[:, :2], axis=0, return_counts=True)
    odd = np.isin(runs[:, 0], pairs[times > 1, 0]) | np.isin(runs[:, 1], history.with_several_owners())
    odd = np.isin(runs[:, 0], runs[odd, 0])
    previous: set[int] = set()
    last_id = -1
    failed: set[int] | None = None
    for number, producer_id, piece, row in runs[odd].tolist():
        if number != last_id:
            previous, last_id = set(), number
        entry = state_log.at(piece, row)
        tid = entry.transactional_id
        if producer_id in previous:
            if failed is None:  # a rotation that failed leaves the producer id as it was
                failed = {step.new.offset for step in resumed(log) if step.old.producer_id != step.new.producer_id}
            if entry.offset in failed:
                continue
            yield _reused(log, entry, tid, f"{tid} returned to producer id {producer_id}")
        elif (other := history.first_owner(entry.producer_id)) is not None and other != tid:
            yield _reused(log, entry, other, f"Producer id {producer_id} belongs to {other} and to {tid}")
        previous.add(producer_id)


def _reused(log: LogView, entry: StateRecord, other: str, message: str) -> Finding:
    return at_entry(log, "critical", message, entry, evidence={"other_transactional_id": other})


# The state of ``__transaction_state``: stuck ids, timeouts, keys, unreadable records.


SHOWN = 5  # partitions named in a sentence, ids with one setting that are named each
ENDLESS = Advice(
    Verdict.WAIT,
    "a two-phase commit has no timeout",
    afterwards="make sure that its application ends its prepared transactions, also after a crash",
)
OF_FLINK = Advice(Verdict.INVESTIGATE_FIRST, afterwards=f"if this is Flink: {LONGER_THAN_DOWN}")


@rule(
    "stuck-prepare",
    when={
        "error": "while it is young or a partition has no leader",
        "info": "if its log may be outdated",
    },
)
def stuck_prepare(log: LogView) -> Iterator[Finding]:
    """A transaction is decided but not completed

    Checks: the last record of an id is PrepareCommit or PrepareAbort, older than its timeout and 30 seconds. Without a
    timeout, as in a two-phase commit, 15 minutes count. Or, by the metadata, a partition of it has no leader, or a
    leader that is fenced or shutting down. The finding is an info if the logs of a running cluster were copied one
    after another and this copy may be too early. Signs: its partitions have their markers or a later transaction, or
    other logs are newer.
    Can be wrong: the coordinator was down for long; the copy is much older than --as-of. The input shows missing
    markers only for partitions with data of the transaction, not for those that were added and never written. If a
    partition is below min.insync.replicas by the metadata, the finding names it as refusing the marker. If all markers
    exist, only clients of the id wait.
    What to do: for each partition without a leader, start a broker of the last ISR, without an unclean election; start
    replicas for each partition below min.insync.replicas, including __transaction_state. If it is still not complete,
    make another in-sync replica lead the owning __transaction_state partition, so that its markers are re-sent. Do not
    abort it with kafka-transactions.sh.
    Source: KIP-98; Partition.appendRecordsToLeader
    """
    yield from made(log, _stuck(log))


def _stuck(log: LogView) -> Iterator[Unmade]:
    for entry in log.last_entries(PREPARE_COMMIT, PREPARE_ABORT):
        if (t := of_coordinator(log, entry)) is not None:
            severity = t.if_true or t.severity or "error"
            yield Unmade(severity, entry.offset, partial(_stuck_finding, log, t, entry, severity), doubt=t.is_unknown)


def _stuck_finding(log: LogView, t: Transaction, entry: StateRecord, severity: str) -> Finding:
    cluster, doubt = log.cluster, t.may_have_ended
    lacking = {name: here.first_offset for name, here in still_open(cluster, entry).items()}
    away, unmarked, refused = (
        undeliverable(cluster, entry),
        without_its_marker(cluster, entry),
        refusing(cluster, entry),
    )
    unseen = sorted(name for name in entry.partitions if split(name) not in cluster.bounds)
    not_read = [name for name in unseen if not cluster.scope.wants_log(*split(name))]
    return at_entry(
        log,
        severity,
        f"Prepared transaction of {entry.transactional_id} in {entry.state} for {duration(t.age_ms)}"
        + (f", or completed since: {doubt}" if doubt else f": {_why_stuck(log, entry, [*lacking], away, refused)}"),
        entry,
        doubt=t.is_unknown,
        evidence={
            "state": entry.state,
            "age_ms": t.age_ms,
            "partitions": sorted(entry.partitions),
            "without_marker": lacking or None,
            "not_in_input": [name for name in unseen if name not in not_read] or None,
            "not_read": not_read or None,
            "without_leader": away or None,
            "under_min_isr": {name: cluster.under_min_isr[name].isr for name in refused} or None,
            "may_have_ended": doubt,
            "decided": iso(entry.time),
        },
        advice=blocking.completed_late(cluster, entry)
        if entry.partitions and not unmarked
        else blocking.carried_out(cluster, unmarked, entry),
    )


def _why_stuck(log: LogView, entry: StateRecord, lacking: list[str], away: list[str], refused: list[str]) -> str:
    cluster, named = log.cluster, _some(sorted(entry.partitions))
    if away:
        return f"{_some(away)} {'have' if len(away) > 1 else 'has'} no leader to take its marker"
    if refused:
        verb = "refuse" if len(refused) > 1 else "refuses"
        return f"{_some(refused)} {verb} its marker ({repairs.too_few_in_sync(cluster, refused[0])})"
    if lacking:
        return f"{_some(lacking)} {'have' if len(lacking) > 1 else 'has'} no marker of it"
    if (unmarked := without_its_marker(cluster, entry)) or not entry.partitions:
        which = "whether" if len(unmarked) == 1 else "which of"
        return f"the input does not show {which} {_some(unmarked)} has its marker"
    short = log.name in cluster.under_min_isr
    why = (
        f"{log.name} accepts no record ({repairs.too_few_in_sync(cluster, log.name)})"
        if short
        else "its completion is not"
    )
    return f"all its markers are written ({named}), {why}, and only clients of {entry.transactional_id} are blocked"


def _some(partitions: list[str]) -> str:
    return ", ".join(partitions[:SHOWN]) + (f" and {len(partitions) - SHOWN} more" if len(partitions) > SHOWN else "")


@rule(
    "timeout-not-enforced",
    when={"info": "if its log may be outdated, or the transaction may never have begun"},
)
def timeout_not_enforced(log: LogView) -> Iterator[Finding]:
    """The coordinator did not abort an overdue transaction

    Checks: the last record of an id is Ongoing and overdue: its timeout, the coordinator's interval
    (transaction.abort.timed.out.transaction.cleanup.interval.ms, 10 s by default) and 20 s have passed since its start.
    The clock of the coordinator's broker counts, while that broker was up; --as-of sets the clock of every broker. A
    two-phase commit does not count, since a coordinator never ends it (KIP-939). The finding is an info if the logs of
    a running cluster were copied one after another and this copy may be too early. Then a marker was written later, or
    other logs are newer. It is also an info if the record began the transaction and no partition has data of it,
    with all of them in the input. Its append may have failed then (coordinator-append-failed), and no consumer waits.
    Why it matters: the coordinator of the id is dead, not elected or failed to load. The transaction blocks
    read_committed consumers.
    Can be wrong: the coordinator was down or loading when the copy was made; the copy is older than --as-of.
    What to do: check the leader of this partition, transaction.abort.timed.out.transaction.cleanup.interval.ms, and
    load errors (unreadable-transaction-record). If the id may be Flink's (PREFIX-SUBTASK-CHECKPOINT), restore the job
    from a checkpoint or savepoint: this commits its transactions and aborts the others.
    Source: KIP-98; TransactionStateManager.timedOutTransactions
    """
    yield from made(log, _beyond_timeout(log))


def _beyond_timeout(log: LogView) -> Iterator[Unmade]:
    for entry in log.last_entries(ONGOING):
        t = of_coordinator(log, entry)
        if t is not None and t.overdue:
            make = partial(_beyond_timeout_finding, log, t, entry)
            yield Unmade("error", entry.offset, make, doubt=t.is_unknown)


def _beyond_timeout_finding(log: LogView, t: Transaction, entry: StateRecord) -> Finding:
    ended, never = t.may_have_ended, t.may_never_have_begun
    where = f"; its record names {_some(sorted(entry.partitions))}" if entry.partitions else ""
    doubt = f"or completed since: {ended}" if ended else f"or never began: {never}" if never else None
    return at_entry(
        log,
        "error",
        f"Transaction of {entry.transactional_id} open for {duration(t.age_ms)} with a timeout of "
        f"{duration(entry.timeout_ms)}, " + (doubt or f"and the coordinator has not aborted it{where}"),
        entry,
        doubt=t.is_unknown,
        evidence={
            "timeout_ms": t.timeout_ms,
            "started": iso(t.since),
            "over_ms": t.age_ms - t.timeout_ms,
            "may_have_ended": ended,
            "may_never_have_begun": never,
            "partitions": sorted(entry.partitions),
        },
        advice=blocking.unended(log.cluster, entry, log.partition, blocking.discards_in(entry.partitions)),
    )


def _one_setting(f: Finding) -> Hashable:
    setting = read(TimeoutEvidence, f.evidence)
    return setting["timeout_ms"], setting["commits_offsets"], f.advice == OF_FLINK


def _all_of_one_setting(findings: Sequence[Finding]) -> str:
    setting = read(TimeoutEvidence, findings[0].evidence)
    offsets = " and commit offsets" if setting["commits_offsets"] else ""
    return f"{count(findings)} transactional ids have {_timeout(setting['timeout_ms'])}{offsets}"


@rule("transaction-timeout-too-large", together=by_cause(_one_setting, _all_of_one_setting, few=SHOWN))
def transaction_timeout_too_large(log: LogView) -> Iterator[Finding]:
    """A crash of this application blocks consumers for a long time

    Checks: a transaction timeout above Kafka's default of a minute, or no timeout, as in a two-phase commit (KIP-939).
    Why it matters: after a crash, read_committed consumers and stable offset fetches wait until the timeout.
    Can be wrong: batch jobs that need the time; Flink jobs need more than their checkpoint interval plus their longest
    downtime.
    What to do: lower transaction.timeout.ms; Kafka Streams uses 10 s. Without a timeout, make sure that the application
    ends its prepared transactions.
    Source: KIP-447
    """
    (columns, has_record), state_log = log.last_records(), log.state_log
    if state_log is None:
        return
    long = np.flatnonzero(has_record & (columns["state"] != TOMBSTONE) & (columns["timeout_ms"] > 60_000))
    having = commit_offsets(state_log, log.leader.log_start) if len(long) else has_record
    for number, last in zip(long.tolist(), state_log.entries(columns, long), strict=True):
        tid, offsets = last.transactional_id, bool(having[number])
        yield at_entry(
            log,
            "info",
            f"{tid} has {_timeout(last.timeout_ms)}" + (" and commits offsets" if offsets else ""),
            last,
            evidence={"timeout_ms": last.timeout_ms, "commits_offsets": offsets},
            advice=ENDLESS if last.timeout_ms == NO_TIMEOUT_MS else OF_FLINK if is_flinks(by_scheme(tid)) else None,
        )


def _timeout(ms: int) -> str:
    if ms == NO_TIMEOUT_MS:
        return "no transaction timeout (two-phase commit)"
    return f"a transaction timeout of {duration(ms)}"


@rule("key-in-wrong-partition")
def key_in_wrong_partition(log: LogView) -> Iterator[Finding]:
    """A transactional id or group is stored in the wrong partition

    Checks: the partition of a record differs from the hash of its transactional id or group over the topic's partition
    count.
    Why it matters: the partition count was changed. Coordinators look in another partition, so ids and groups start
    without state.
    Can be wrong: the partition count comes from an incomplete copy (not reported without metadata or settings).
    What to do: do not delete the topic, which loses every id or offset; Kafka cannot lower a partition count. Restart
    the producers of these ids, so that their new coordinator knows them; reset each group to the offsets in its old
    partition (kafka-consumer-groups.sh, first as a dry run).
    Source: TransactionStateManager.partitionFor, GroupCoordinator.partitionFor
    """
    count = log.cluster.partition_counts.get(log.topic, 0)
    if log.topic not in COUNT_SETTINGS or not log.cluster.knows_count(log.topic):
        return
    sure = log.cluster.has_metadata
    if (state_log := log.state_log) is not None:
        for number in np.flatnonzero(log.last_records()[1]).tolist():
            owner = partition_for(state_log.ids[number], count)
            if owner != log.partition:
                judged = (e for e in state_log.entries_of(number) if e.offset >= log.leader.log_start)
                yield _misplaced(log, state_log.ids[number], None, owner, count, sure, next(judged))
    elif log.topic == "__consumer_offsets":
        for group in watched(log).groups:
            if partition_for(group, count) != log.partition:
                yield _misplaced(log, None, group, partition_for(group, count), count, sure, None)


def _misplaced(
    log: LogView, tid: str | None, group: str | None, owner: int, count: int, sure: bool, entry: StateRecord | None
) -> Finding:
    return log.finding(
        "error",
        f"{tid if tid is not None else group} is stored in {log.name}, but belongs to partition {owner} of {count}",
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


@rule("unreadable-transaction-record")
def unreadable_transaction_record(log: LogView) -> Iterator[Finding]:
    """A record of __transaction_state is undecodable

    Checks: a record of __transaction_state has an unknown value version, a null key or a body that does not parse.
    Why it matters: a coordinator that loads the partition stops at it and silently keeps its earlier state. Later ids
    are stale or unknown to it.
    Can be wrong: a broker newer than this auditor wrote it.
    What to do: upgrade this broker if a newer one wrote the record; otherwise make an in-sync replica with an intact
    record lead, before this replica is re-fetched.
    Source: TransactionStateManager.loadTransactionMetadata
    """
    if log.topic != TRANSACTION_STATE:
        return
    for offset, position, error in log.leader.unreadable_records:
        if offset >= log.leader.log_start:
            yield log.finding(
                "error",
                f"The record at offset {offset} of {log.name} is undecodable ({error.detail}): a coordinator stops "
                "loading here",
                offset=offset,
                last_offset=offset,
                file=error.file,
                position=position,
                evidence={"reason": error.reason, "detail": error.detail},
            )


# Records of ``__transaction_state`` that were written although their append failed.


APART_MS = 10 * 60_000  # between two records that failed: another stretch of time
OUT_OF_SYNC = "NOT_ENOUGH_REPLICAS_AFTER_APPEND: a follower of this partition left the ISR"
TOO_SLOW = "REQUEST_TIMED_OUT: the followers of this partition did not fetch it within the transaction's timeout"
FAILED = np.dtype([("offset", "i8"), ("time", "i8"), ("id", "i8"), ("state", "i2"), ("waited", "?"), ("timed", "?")])


@rule("coordinator-append-failed")
def coordinator_append_failed(log: LogView) -> Iterator[Finding]:
    """A coordinator's record was written, but its append failed

    Checks: after records of an id, its coordinator continued from the state before them, under the same epoch. These
    are decisions, completions, Ongoing records, Empty records or tombstones that were written again or reverted.
    Records with less than ten minutes between them are one finding. An Ongoing record whose transaction has data in a
    partition does not count, since clients write only after its append.
    Why it matters: no records are lost. The client got COORDINATOR_NOT_AVAILABLE and retries. But the partition had too
    few in-sync replicas, or slow ones, and the transactions of its ids waited for them.
    Can be wrong: there may be more such records, since a failed record is not visible if the next one follows it
    anyway.
    What to do: check whether this __transaction_state partition has all its replicas in sync (kafka-topics.sh
    --describe --topic __transaction_state); check its followers' brokers at that time for a restart, a slow disk or
    network. Three replicas with min.insync.replicas=2 tolerate the loss of one. Nothing needs repair.
    Source: TransactionStateManager.appendTransactionToLog, TransactionMarkerChannelManager.tryAppendToLog
    """
    ids: dict[str, int] = {}
    rows = np.fromiter(_failed(log, ids), FAILED)
    if not len(rows):
        return
    rows = rows[np.argsort(rows["offset"])]
    names = list(ids)
    for stretch in np.split(rows, np.flatnonzero(np.diff(rows["time"]) >= APART_MS) + 1):
        yield _stretch(log, stretch, names)


def _failed(log: LogView, ids: dict[str, int]) -> Iterator[tuple[int, int, int, int, bool, bool]]:
    # As rows of FAILED; ``ids`` gets a number for each id.
    for step in resumed(log):
        for entry in step.failed:
            number = ids.setdefault(entry.transactional_id, len(ids))
            state = -1 if entry.state is None else STATES.index(entry.state)
            time = _written(entry)
            timed = entry.timeout_ms > 0  # which a tombstone does not say
            yield entry.offset, time, number, state, timed and _written(step.new) - time >= entry.timeout_ms, timed


def _written(entry: StateRecord) -> int:
    return entry.record_time if entry.record_time >= 0 else entry.time


def _stretch(log: LogView, rows: np.ndarray, names: list[str]) -> Finding:
    numbers = np.unique(rows["id"])
    states = np.unique(rows["state"], return_counts=True)
    first, last, name = rows[0], rows[-1], names[rows[0]["id"]]
    many = len(numbers) > 1
    evidence: Fields = {
        "records": len(rows),
        "transactional_ids": len(numbers),
        "states": {"tombstone" if s < 0 else STATES[s]: int(n) for s, n in zip(*states, strict=True)},
        "first_time": iso(int(first["time"])),
        "last_time": iso(int(rows["time"].max())),
        "likely_cause": TOO_SLOW if 2 * rows["waited"].sum() > rows["timed"].sum() else OUT_OF_SYNC,
    }
    return log.finding(
        "info",
        f"{plural(len(rows), 'record')} of {plural(len(numbers), 'transactional id') if many else name} in {log.name} "
        f"{'were' if len(rows) > 1 else 'was'} written, but the append failed, probably because replicas were slow or "
        "out of sync. The coordinator continued from its earlier state",
        offset=first["offset"],
        last_offset=last["offset"],
        transactional_id=None if many else name,
        time_ms=first["time"],
        evidence=evidence,
    )


# A coordinator log that begins after the data: it does not show older decisions.


@rule("coordinator-log-starts-late")
def coordinator_log_starts_late(log: LogView) -> Iterator[Finding]:
    """__transaction_state begins after the data

    Checks: partitions have markers of producer ids that no record of __transaction_state names. These markers are older
    than the first record of a __transaction_state partition that exists from offset 0 on and was never compacted.
    Why it matters: the topic was re-created, or was restored or moved without its records. Transactions that were open
    then are hanging, and ids start without state. Older markers are not judged, since this audit cannot tell a marker
    without a decision from one whose decision is lost.
    Can be wrong: markers of another cluster's coordinator, as in mirrored files.
    What to do: look for transactions that are open since before (kafka-transactions.sh find-hanging), which their
    coordinator does not know any more. Make sure that a client is stopped before you abort its transaction.
    Source: KIP-98, TransactionStateManager
    """
    history = log.cluster.coordinator
    if history is None or history.starts_late is None or log.topic != TRANSACTION_STATE:
        return
    if log.partition != min(history.whole_log):
        return
    late = history.starts_late
    yield log.finding(
        "warning",
        f"{TRANSACTION_STATE} begins at {iso(late.begins)}, after markers of {plural(late.producers, 'producer id')} "
        f"that it does not name (first: {late.name} at {iso(late.oldest)}). It is not used to judge older markers",
        producer_id=late.producer_id,
        time_ms=late.oldest,
        evidence={
            "begins": iso(late.begins),
            "oldest_marker": iso(late.oldest),
            "partition": late.name,
            "producers": late.producers,
        },
    )


@rule("coordinator-log-restored")
def coordinator_log_restored(log: LogView) -> Iterator[Finding]:
    """__transaction_state lost its newest records

    Checks: two consecutive records of a __transaction_state partition have different leader epochs. Between their times
    at least two COMMIT markers of its producers were written without a decision in this partition. Complete logs have
    more markers than this partition has decisions. Related findings of these producers are listed under `also`.
    Why it matters: ids continue from an older state. Epochs are allocated again, transactions that were open are
    hanging, and the decisions of that time cannot be checked.
    Can be wrong: markers of another cluster's coordinator, as in mirrored files.
    What to do: find out whether this broker was restored from an older backup, or lost its disk. Restart the producers
    of these ids, so that they request new epochs. Look for hanging transactions (kafka-transactions.sh find-hanging).
    Source: TransactionStateManager.loadTransactionMetadata
    """
    history = log.cluster.coordinator
    if history is None or log.topic != TRANSACTION_STATE or log.partition not in history.restored:
        return
    lost = history.restored[log.partition]
    yield log.finding(
        "error",
        f"{log.name} lost its records between {iso(lost.begin)} and {iso(lost.end)}: at least "
        f"{plural(lost.markers, 'marker')} of {plural(len(lost.producer_ids), 'producer id')} were written then (such "
        f"as in {lost.name}). A coordinator continued from an older state at offset {lost.offset}",
        offset=lost.offset,
        time_ms=lost.end,
        outcome="at_risk",
        evidence={
            "begins": iso(lost.begin),
            "begins_ms": lost.begin,
            "ends": iso(lost.end),
            "markers": lost.markers,
            "partition": lost.name,
            "producer_ids": list(lost.producer_ids),
        },
    )


# The records of one partition of ``__transaction_state``, by column: only odd ones become objects.


OFFSETS = "__consumer_offsets-"

Found = TypeVar("Found")


def cached(log: LogView, find: Callable[[LogView], Iterator[Found]]) -> Iterable[Found]:
    """Return what several rules ask for: cached if it is at most :data:`AT_HAND` items, otherwise found again."""
    cached = _at_hand(log, find)
    return find(log) if cached is None else cached


@once
def _at_hand(log: LogView, find: Callable[[LogView], Iterator[Found]]) -> list[Found] | None:
    first = list(itertools.islice(find(log), AT_HAND + 1))
    return first if len(first) <= AT_HAND else None


def unsound_records(log: LogView) -> Iterable[tuple[StateRecord, list[str]]]:
    """Return records that are unsound by themselves, with their problems, including states that are never written."""
    return cached(log, _unsound_of_log)


def _unsound_of_log(log: LogView) -> Iterator[tuple[StateRecord, list[str]]]:
    state_log = log.state_log
    return iter(()) if state_log is None else unsound_in(state_log, log.leader.log_start)


def commit_offsets(state_log: CoordinatorLog, log_start: int) -> np.ndarray:
    """Find the ids with a judged record that names a partition of ``__consumer_offsets``."""
    topics = [number for number, topic in enumerate(state_log.topics) if (topic + "-").startswith(OFFSETS)]
    ends, elements = state_log.sets
    having = np.zeros(len(ends), bool)
    having[np.searchsorted(ends, np.flatnonzero(np.isin(elements >> 32, topics)), side="right")] = True
    out = np.zeros(state_log.id_count, bool)
    for columns in state_log.all_pieces():
        out[columns["id"][having[columns["set"]] & (columns["offset"] >= log_start)]] = True
    return out


def producer_runs(state_log: CoordinatorLog, log_start: int) -> np.ndarray:
    """Find where judged records of an id change to another producer id: rows of id, producer id, piece, row."""
    out = [np.empty((0, 4), np.int64)]
    last_id, last_producer = -1, 0
    for number in range(len(state_log.pieces)):
        columns = state_log.piece(number)
        rows = np.flatnonzero((columns["state"] != TOMBSTONE) & (columns["offset"] >= log_start))
        ids, producers = columns["id"][rows], columns["producer_id"][rows]
        new = np.append(last_id, ids[:-1])[: len(ids)] != ids
        new |= np.append(last_producer, producers[:-1])[: len(ids)] != producers
        out.append(np.stack([ids[new], producers[new], np.full(int(new.sum()), number), rows[new]], axis=1))
        if len(ids):
            last_id, last_producer = int(ids[-1]), int(producers[-1])
    return np.concatenate(out)


def steps(log: LogView) -> Iterable[StateStep]:
    """Return intact records of each id that follow no state their coordinator can have had in memory."""
    return cached(log, _problems)


def _problems(log: LogView) -> Iterator[StateStep]:
    return (step for step in cached(log, _all) if step.problems)


def resumed(log: LogView) -> Iterator[StateStep]:
    """Yield steps whose coordinator continued from before records whose append failed, id by id."""
    return (step for step in cached(log, _all) if step.failed)


def _all(log: LogView) -> Iterator[StateStep]:
    state_log, history = log.state_log, log.cluster.coordinator
    if state_log is None or history is None:
        return iter(())
    intact = history.complete_from.get(log.partition, 1 << 62)
    return odd_steps(state_log, log.leader.log_start, intact, partial(appended_for_sure, log, state_log))


# Ongoing records whose append succeeded, by data that nothing else explains.
#
# A client below transaction.version 2 writes to a partition only after AddPartitionsToTxn was answered; above it the
# partition's broker appends only after the coordinator has added the partition (KIP-890). So an open transaction in a
# partition shows that a record which names it was appended: the first one that does, since a later one of the same
# transaction may have failed.


class _Begin(NamedTuple):
    """An Ongoing record and what its id had before: the number of its transaction, the last Prepare record before."""

    entry: StateRecord
    number: int
    ended: StateRecord | None


def appended_for_sure(log: LogView, state_log: CoordinatorLog, number: int) -> frozenset[int]:
    """Return the offsets of an id's Ongoing records whose append cannot have failed. Cost: its records."""
    opened, begins, whole = log.cluster.open_here, dict[tuple[int, int], list[_Begin]](), set[tuple[int, int]]()
    transaction, ended = 0, None
    for entry in state_log.entries_of(number):
        producer = (entry.producer_id, entry.producer_epoch)
        if entry.state != "Ongoing":
            transaction += 1
            ended = entry if entry.state in ("PrepareCommit", "PrepareAbort") else ended
            if producer not in begins and not state_log.damaged:
                whole.add(producer)  # its epoch begins here
        elif entry.producer_id in opened:
            begins.setdefault(producer, []).append(_Begin(entry, transaction, ended))
    out = set[int]()
    for producer, several in begins.items():
        for name, here in opened[producer[0]].items():
            if here.epoch == producer[1]:
                naming = [begin for begin in several if name in begin.entry.partitions]
                out.update(_explained(log, split(name), here, naming, whole=producer in whole))
    return frozenset(out)


def _explained(
    log: LogView, place: tuple[str, int], here: OpenHere, naming: list[_Begin], *, whole: bool
) -> Iterator[int]:
    # Offsets of records without which the data at ``place`` would not be there.
    cluster, leader = log.cluster, log.cluster.led(*place, here.leader_epoch)

    def by_coordinator(entry: StateRecord) -> BrokerTime:
        return BrokerTime(entry.time, cluster.led(TRANSACTION_STATE, entry.partition, entry.leader_epoch))

    def is_before(ms: int, entry: StateRecord) -> bool:
        return ms >= 0 and by_coordinator(entry).is_after(BrokerTime(ms, leader))

    for before, begin, behind in zip([None, *naming], naming, [*naming[1:], None], strict=False):
        same = before is not None and before.number == begin.number and before.entry.start == begin.entry.start
        if same or is_before(here.appended, begin.entry):
            continue
        if behind is not None and not is_before(here.appended, behind.entry):
            continue
        ended = begin.ended
        if whole and naming[0].number == begin.number:
            yield begin.entry.offset
            continue
        late = not log.policy().verifies and (ended is None or not ended.commit)  # of a request that came late
        marked = ended is not None and here.ended_before >= 0 and not is_before(here.ended_before, ended)
        after = here.appended >= 0 and BrokerTime(here.appended, leader).is_after(by_coordinator(begin.entry))
        if not late and (marked or after):
            yield begin.entry.offset
