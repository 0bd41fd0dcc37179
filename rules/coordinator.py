"""Rules on ``__transaction_state``: what the coordinators wrote, record by record and at the end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from auditor.model.hashing import partition_for
from auditor.model.transaction_states import TransactionState, TransactionValue, transition_problem, value_problem
from rules.finding import Finding, iso
from rules.history import COORDINATOR_CHECK_MS, CoordinatorHistory, Entry
from rules.registry import rule
from rules.view import LogView

FAMILY = "coordinator"
TOPIC = "__transaction_state"
REGRESSIONS = {"epoch_regressed", "epoch_jumped", "epoch_not_reset", "producer_id_changed"}
STATES = {state.value for state in TransactionState}


def mine(log: LogView) -> list[tuple[str, list[Entry]]]:
    """The ids of this partition of ``__transaction_state`` with their judged records; nothing for other logs."""
    history = log.cluster.coordinator
    if log.topic != TOPIC or history is None:
        return []
    out = []
    for tid, entries in history.by_id.items():
        own = [e for e in entries if e.partition == log.partition and e.offset >= log.leader.log_start]
        if own:
            out.append((tid, own))
    return out


def at_entry(log: LogView, rule_id: str, severity: str, message: str, entry: Entry, **fields: Any) -> Finding:
    """A finding that points at a record of ``__transaction_state``."""
    fields.setdefault("last_offset", entry.offset)
    return log.finding(
        rule_id,
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


def value(entry: Entry) -> TransactionValue | None:
    """A record as the model's value, None for a tombstone."""
    if entry.state is None:
        return None
    return TransactionValue(
        entry.producer_id,
        entry.producer_epoch,
        entry.timeout_ms,
        TransactionState(entry.state),
        entry.partitions,
        entry.start,
        entry.last_update,
        client_tv=entry.client_version,
    )


def _steps(log: LogView) -> Iterator[tuple[Entry, Entry, list[str]]]:
    """Neighbouring intact records of every id with what the model finds wrong in the step between them."""
    history = log.cluster.coordinator
    for _, entries in mine(log):
        for old, new in itertools.pairwise(entries):
            if history is None or not history.intact(old) or {old.state, new.state} - STATES - {None}:
                continue
            if old.state is None and new.state is None:
                continue
            yield old, new, transition_problem(value(old), value(new))


def _facts(old: Entry, new: Entry, problems: list[str]) -> dict[str, Any]:
    return {
        "before": {
            "offset": old.offset,
            "state": old.state,
            "producer_id": old.producer_id,
            "epoch": old.producer_epoch,
        },
        "after": {
            "offset": new.offset,
            "state": new.state,
            "producer_id": new.producer_id,
            "epoch": new.producer_epoch,
        },
        "problems": problems,
    }


@rule("illegal-transition", family=FAMILY, severity="critical")
def illegal_transition(log: LogView) -> Iterator[Finding]:
    """A transactional id went from one state to another that cannot follow

    Checks: two neighbouring records of one id, in a region never cleaned, whose states the coordinator never writes in
    this order; a stored Dead or PrepareEpochFence, which live in memory only.
    Why it matters: coordinator data was lost or altered; the decision of a transaction may be wrong or missing.
    Can be wrong: an identical record repeated after a timed-out write (allowed for).
    What to do: check elections of this __transaction_state partition; move its leadership so that it is loaded anew.
    Source: KIP-98, KIP-890; TransactionState.validPreviousStates
    """
    for old, new, problems in _steps(log):
        if "illegal_state" in problems:
            yield at_entry(
                log,
                "illegal-transition",
                "critical",
                f"{new.transactional_id} went from {old.state} to {new.state or 'tombstone'} at offset {new.offset}",
                new,
                evidence=_facts(old, new, problems),
            )
    for _, entries in mine(log):
        for entry in entries:
            if entry.state in ("Dead", "PrepareEpochFence") or entry.state not in STATES | {None}:
                yield at_entry(
                    log,
                    "illegal-transition",
                    "critical",
                    f"A record of {entry.transactional_id} has state {entry.state}, which is never written",
                    entry,
                    evidence={"found": entry.state, "status": entry.status},
                )


@rule("transition-invariant-broken", family=FAMILY, severity="error")
def transition_invariant_broken(log: LogView) -> Iterator[Finding]:
    """A record of a transactional id contradicts the one before it

    Checks: neighbouring records, in a region never cleaned: partitions shrink or differ at the decision, the time-out
    changes outside of Empty, the start changes inside a transaction; a record by itself: Complete with partitions,
    Empty with a start, any other state without one.
    Why it matters: the coordinator's data was altered or mixed up.
    Can be wrong: clocks that went back are legal and not told.
    What to do: as for illegal-transition.
    Source: TransactionMetadata.completeTransitionTo
    """
    for old, new, problems in _steps(log):
        broken = [p for p in problems if p != "illegal_state" and p not in REGRESSIONS]
        if broken and "illegal_state" not in problems:
            yield at_entry(
                log,
                "transition-invariant-broken",
                "error",
                f"The record of {new.transactional_id} at offset {new.offset} breaks an invariant: {', '.join(broken)}",
                new,
                evidence=_facts(old, new, broken),
            )
    for _, entries in mine(log):
        for entry in entries:
            stored = value(entry) if entry.state in STATES else None
            alone = [p for p in value_problem(stored) if p != "state_never_written"] if stored is not None else []
            if entry.start < 0 and entry.record_time < 0:  # old text dumps print no start
                alone = [p for p in alone if p != "start_missing"]
            if alone:
                yield at_entry(
                    log,
                    "transition-invariant-broken",
                    "error",
                    f"The record of {entry.transactional_id} at offset {entry.offset} is not sound: {', '.join(alone)}",
                    entry,
                    evidence={"state": entry.state, "problems": alone},
                )


@rule("state-epoch-regression", family=FAMILY, severity="critical")
def state_epoch_regression(log: LogView) -> Iterator[Finding]:
    """A transactional id's epoch went down, or rose as it never does

    Checks: neighbouring records of one id with the same producer id and a lower epoch, or a rise that no step of the
    protocol makes; another producer id without its epoch starting at 0.
    Why it matters: the coordinator lost a bump: zombies of the higher epoch may pass.
    Can be wrong: old state restored from a backup.
    What to do: stop the producers of the id, compare with the epochs in the data.
    Source: KIP-360; TransactionMetadata
    """
    for old, new, problems in _steps(log):
        broken = [p for p in problems if p in REGRESSIONS]
        if broken and "illegal_state" not in problems:
            yield at_entry(
                log,
                "state-epoch-regression",
                "critical",
                f"{new.transactional_id} went from producer {old.producer_id} epoch {old.producer_epoch} to producer "
                f"{new.producer_id} epoch {new.producer_epoch} at offset {new.offset}",
                new,
                evidence=_facts(old, new, broken),
            )


@rule("producer-id-reused", family=FAMILY, severity="critical")
def producer_id_reused(log: LogView) -> Iterator[Finding]:
    """One producer id has two owners, or came back

    Checks: a producer id that records of two transactional ids have; a transactional id that returns to a producer id
    it had before another.
    Why it matters: producer ids are given out once. Shared ones make state of one application fence the other's.
    Can be wrong: raw copies of two clusters in one input.
    What to do: check ProducerIdsRecord in __cluster_metadata: the allocator was reset.
    Source: KIP-98, KIP-730
    """
    history = log.cluster.coordinator
    for tid, entries in mine(log):
        previous: list[int] = []
        for entry in entries:
            if entry.state is None or (previous and previous[-1] == entry.producer_id):
                continue
            if entry.producer_id in previous:
                yield _reused(log, entry, tid, f"{tid} returned to producer id {entry.producer_id}")
            elif (other := _other_owner(history, entry)) is not None:
                yield _reused(log, entry, other, f"Producer id {entry.producer_id} belongs to {other} and to {tid}")
            previous.append(entry.producer_id)


def _other_owner(history: CoordinatorHistory | None, entry: Entry) -> str | None:
    """Another id that had this producer id first."""
    entries = history.by_producer.get(entry.producer_id, []) if history is not None else []
    owners = list(dict.fromkeys(e.transactional_id for e in sorted(entries, key=lambda e: e.time)))
    return owners[0] if owners and owners[0] != entry.transactional_id else None


def _reused(log: LogView, entry: Entry, other: str, message: str) -> Finding:
    return at_entry(log, "producer-id-reused", "critical", message, entry, evidence={"other_transactional_id": other})


def last_entries(log: LogView) -> Iterator[Entry]:
    """The last record of every id whose partition this is."""
    for _, entries in mine(log):
        yield entries[-1]


@rule("stuck-prepare", family=FAMILY, severity="critical", time=True)
def stuck_prepare(log: LogView) -> Iterator[Finding]:
    """A transaction is decided but was never completed

    Checks: the last record of an id is PrepareCommit or PrepareAbort and older than the margin.
    Why it matters: some partition did not take its marker: consumers stand still there, and every client of the id gets
    CONCURRENT_TRANSACTIONS.
    Can be wrong: the coordinator was down for long; the copy is much older than --as-of.
    What to do: mend the partitions without marker, then move leadership of the owning __transaction_state partition, so
    that its markers are sent again. Never abort a PrepareCommit.
    Source: KIP-98; semantics 3.7
    """
    for entry in last_entries(log):
        age = log.cluster.as_of - entry.time
        if entry.state not in ("PrepareCommit", "PrepareAbort") or age <= log.cluster.margin(entry.timeout_ms):
            continue
        yield at_entry(
            log,
            "stuck-prepare",
            "critical",
            f"The transaction of {entry.transactional_id} has been in {entry.state} for {age / 1000:.0f} s: a "
            f"partition "
            "of it has not taken its marker",
            entry,
            evidence={
                "state": entry.state,
                "age_ms": age,
                "partitions": sorted(entry.partitions),
                "decided": iso(entry.time),
            },
            remedy="kafka-topics.sh --bootstrap-server B --describe --unavailable-partitions ; then move leadership of "
            f"{TOPIC}-{log.partition}: kafka-leader-election.sh --bootstrap-server B --election-type preferred --topic "
            f"{TOPIC} --partition {log.partition} . Do not abort it by hand",
        )


@rule("timeout-not-enforced", family=FAMILY, severity="warning; error beyond the margin", time=True)
def timeout_not_enforced(log: LogView) -> Iterator[Finding]:
    """The coordinator did not abort a transaction whose time was up

    Checks: the last record of an id is Ongoing, and its start, time-out and two rounds of the coordinator's check lie
    before --as-of.
    Why it matters: the coordinator that owns the id is dead, unowned or could not load; the transaction holds back
    read_committed consumers.
    Can be wrong: the coordinator was down or loading when the copy was made; the copy is older than --as-of.
    What to do: check who leads this partition, transaction.abort.timed.out.transaction.cleanup.interval.ms, and load
    errors (unreadable-transaction-record).
    Source: KIP-98; TransactionStateManager.timedOutTransactions
    """
    for entry in last_entries(log):
        if entry.state != "Ongoing" or entry.timeout_ms <= 0:
            continue
        begin = entry.start if entry.start >= 0 else entry.time
        over = log.cluster.as_of - begin - entry.timeout_ms
        if over <= 2 * COORDINATOR_CHECK_MS:
            continue
        error = over > log.cluster.margin(entry.timeout_ms)
        yield at_entry(
            log,
            "timeout-not-enforced",
            "error" if error else "warning",
            f"The transaction of {entry.transactional_id} has been open for "
            f"{(over + entry.timeout_ms) / 1000:.0f} s with "
            f"a time-out of {entry.timeout_ms / 1000:.0f} s, and the coordinator has not aborted it",
            entry,
            evidence={
                "timeout_ms": entry.timeout_ms,
                "started": iso(begin),
                "over_ms": over,
                "partitions": sorted(entry.partitions),
            },
            remedy=f"kafka-transactions.sh --bootstrap-server B describe --transactional-id "
            f"'{entry.transactional_id}' ; "
            f"kafka-topics.sh --bootstrap-server B --describe --topic {TOPIC}",
        )


@rule("transaction-timeout-too-large", family=FAMILY, severity="info")
def transaction_timeout_too_large(log: LogView) -> Iterator[Finding]:
    """A crash of this application blocks consumers for long

    Checks: a time-out of ten minutes or more; of more than one minute for an id that also commits offsets.
    Why it matters: until the time is up after a crash, read_committed consumers and stable offset fetches wait.
    Can be wrong: batch jobs that need the time.
    What to do: lower transaction.timeout.ms; Kafka Streams uses 10 s.
    Source: KIP-447
    """
    for tid, entries in mine(log):
        last = entries[-1]
        offsets = any(name.startswith("__consumer_offsets-") for e in entries for name in e.partitions)
        if last.state is None or not (last.timeout_ms >= 600_000 or (offsets and last.timeout_ms > 60_000)):
            continue
        yield at_entry(
            log,
            "transaction-timeout-too-large",
            "info",
            f"{tid} has a transaction time-out of {last.timeout_ms / 1000:.0f} s"
            + (" and commits offsets" if offsets else ""),
            last,
            evidence={"timeout_ms": last.timeout_ms, "commits_offsets": offsets},
        )


@rule("key-in-wrong-partition", family=FAMILY, severity="error")
def key_in_wrong_partition(log: LogView) -> Iterator[Finding]:
    """A transactional id or group lies in a partition that does not own it

    Checks: the partition of a record against the hash of its transactional id or group over the topic's partition
    count.
    Why it matters: the partition count was changed: coordinators look elsewhere, ids and groups start from nothing.
    Can be wrong: the partition count taken from an incomplete copy (without metadata or settings nothing is said).
    What to do: restore the partition count, or create the ids and offsets anew.
    Source: TransactionStateManager.partitionFor, GroupCoordinator.partitionFor
    """
    count = log.cluster.partition_counts.get(log.topic, 0)
    if not log.cluster.knows_count(log.topic):
        return
    sure = log.cluster.has_metadata
    if log.topic == TOPIC:
        for tid, entries in mine(log):
            owner = partition_for(tid, count)
            if owner != log.partition:
                yield _misplaced(log, tid, None, owner, count, sure, entries[0])
    elif log.topic == "__consumer_offsets":
        for name in ("offset_commits", "group_metadata"):
            table = log.leader.tables.get(name)
            for group in dict.fromkeys(table["group_id"].to_pylist() if table is not None else ()):
                if group is not None and partition_for(group, count) != log.partition:
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
        evidence={"expected": owner, "found": log.partition, "partition_count": count,
                  "confidence": "proved" if sure else "likely"},
    )  # fmt: skip


@rule("unreadable-transaction-record", family=FAMILY, severity="error")
def unreadable_transaction_record(log: LogView) -> Iterator[Finding]:
    """A coordinator cannot read its own log

    Checks: a record of __transaction_state with an unknown value version, a null key or a body that does not parse.
    Why it matters: a coordinator that loads the partition stops at it and silently keeps what it had: ids further on
    are stale or unknown to it.
    Can be wrong: a newer broker wrote it than this auditor knows.
    What to do: upgrade, or repair the partition from another replica.
    Source: TransactionStateManager.loadTransactionMetadata
    """
    if log.topic != TOPIC:
        return
    for offset, position, error in log.leader.state.get("unreadable_records") or []:
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
