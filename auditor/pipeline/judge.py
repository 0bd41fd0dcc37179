"""Judging of one log: its findings, and its rows for summary and report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache

import numpy as np

from auditor.base.at_rest import Fields
from auditor.base.errors import OF_A_RULE, DecodeError, is_unread
from auditor.base.transactional_ids import COLUMNS
from auditor.base.words import NO_TIMEOUT_MS, plural
from auditor.evidence.cluster_clocks import HOUR_MS
from auditor.facts import crash_recovery
from auditor.facts.batch_sums import touches
from auditor.facts.coordinator_log import ONGOING, PREPARE_ABORT, PREPARE_COMMIT, StateRecord
from auditor.facts.replica_facts import ReplicaFacts, SnapshotLink
from auditor.pipeline import summary
from auditor.rules import placement
from auditor.rules.catalogue import registry
from auditor.rules.catalogue.kinds import Need
from auditor.rules.catalogue.registry import Kind, there
from auditor.rules.committed_offsets import readers
from auditor.rules.lib.replica_pairs import unread_again
from auditor.rules.placement import OF_ANOTHER, OF_REMOVED
from auditor.rules.producer_memory import PROVED, verdict
from auditor.rules.resolution.finding_limits import judge_bounded
from auditor.rules.seen.cluster_view import TRANSACTION_STATE, Cluster
from auditor.rules.seen.view import Finding, LogView, iso, viewed
from auditor.rules.transactions import blocking
from auditor.rules.transactions.making import dated, of_coordinator, open_transactions, place_of, undeliverable
from auditor.transactions.record import ORDER, Transaction

# Judge step of one log.


TIMELINE_TRANSACTIONS = 400  # of one partition, the newest of those that ended, the first of those that are open
DECODE_ERRORS = 1_000  # of one replica; the table decode_errors has all
OPEN_TRANSACTIONS = 1_000  # of one partition, the first: those that readers wait for
NOT_IN_INPUT = (
    *("log_dir", "broker_id", "last_stable_offset", "high_watermark", "log_end", "readable_end", "first_offset"),
    *("last_offset", "held_at_least_ms", "batches", "records", "bytes"),
)


def judge_log(
    replicas: list[ReplicaFacts], cluster: Cluster, kinds: tuple[str, ...], max_findings: int = OF_A_RULE
) -> Iterator[tuple[str, Fields]]:
    """Yield rows of kind finding, log, open, blocked, readers, aside, timeline about one log, or failed alone.

    ``max_findings``: of a kind.
    """
    log, failures = viewed(replicas, cluster)
    if log is None:
        yield from (("failed", error._asdict()) for error in failures)
        return
    silent = log.is_gone or not cluster.is_judged
    asked = _asked(kinds, log.is_gone, there(log)) if cluster.is_judged else ()
    for finding in judge_bounded(log, asked, max_findings):
        yield from _going_on(log, "finding", (f.carried() for f in (finding,)))
    opened = [] if silent else log.attempt("the list of open transactions", lambda: open_transactions(log), [])
    first = opened[:OPEN_TRANSACTIONS]
    yield from _going_on(log, "open", (_open_row(log, t) for t in first))
    if not silent:
        yield from _going_on(log, "blocked", blocked_rows(log, first))
        yield from (("readers", row) for row in log.attempt("the list of groups", lambda: readers(log), []))
        yield from _going_on(log, "aside", summary.of_log(log))
        yield from _going_on(log, "timeline", (_timeline(log, opened) for _ in opened[:1]))
    for replica in log.copies:  # the last, for these name what failed before
        yield "log", _log_row(log, replica, opened if replica is log.leader else [])


def _going_on(log: LogView, kind: str, rows: Iterable[Fields]) -> Iterator[tuple[str, Fields]]:
    """Yield rows of a kind until what makes them raises, which becomes a read error of the log."""
    try:
        for row in rows:
            yield kind, row
    except Exception as error:  # noqa: BLE001
        log.fail(error, f"the step {kind}")


@cache
def _asked(kinds: tuple[str, ...], is_gone: bool, has: frozenset[Need]) -> tuple[Kind, ...]:
    """Finding kinds to evaluate for a log with these facts; of a removed topic's log only those that name it.

    Few results serve all logs of a run, so they are cached.
    """
    catalogue = registry.kinds()
    asked = (catalogue[name] for name in kinds if name in (OF_REMOVED, OF_ANOTHER) or not is_gone)
    return tuple(kind for kind in asked if kind.may_speak(has))


def _log_row(log: LogView, replica: ReplicaFacts, opened: list[Transaction]) -> Fields:
    starts = [t.lso for t in opened]
    hw = replica.log_end if replica.high_watermark is None else replica.high_watermark
    undecodable = [error for _offset, _position, error in replica.unreadable_records] + replica.unknown_records
    errors = [*replica.errors, *undecodable]
    errors += log.attempt("the comparison of headers", lambda: [*unread_again(log, replica)], [])
    offsets = log.attempt("offset coverage", lambda: accounting(replica), {})
    proved = log.attempt("the verification of snapshots", lambda: chain(log, replica), {})
    recovery = log.attempt("the dry run of recovery", lambda: _recovery(log, replica), None)
    errors += log.failures
    log.failures = []  # each in one row
    return {
        "log_dir": replica.log_dir,
        "broker_id": replica.broker_id,
        "topic": replica.topic,
        "partition": replica.partition,
        "topic_id": replica.topic_id,
        "leader_copy": replica is log.leader,
        "log_start": replica.own_start,
        "local_log_start": max(replica.local_start, replica.own_start) if replica.local_start >= 0 else None,
        "log_end": replica.log_end,
        "high_watermark": replica.high_watermark,
        "hw": hw,
        "lso": min([log.readable_end if replica is log.leader and starts else hw, *starts]),
        "offsets": offsets,
        "chain": proved,
        "dropped_events": replica.dropped_events or None,
        "producers": replica.sums.get("producers", 0),
        "sums": replica.sums,
        "unlooked": replica.unlooked_batches,
        "errors": [e._asdict() for e in _fewer(errors)],
        "recovery": recovery,
        "notes": [*_notes(replica), *_left_out(log, len(opened))],
        "open_transactions": Counter(str(t.klass) for t in opened),
    }


def _recovery(log: LogView, replica: ReplicaFacts) -> Fields | None:
    return crash_recovery.both_runs(
        replica, placement.double_log_dirs(log).get(replica.log_dir), placement.start_steps_of(log, replica)
    )


def _fewer(errors: list[DecodeError]) -> list[DecodeError]:
    """The first of many errors; one per reason stands for the others, with their number."""
    if len(errors) <= DECODE_ERRORS:
        return errors
    first, more = errors[:DECODE_ERRORS], Counter[tuple[str, bool]]()
    firsts: dict[tuple[str, bool], DecodeError] = {}
    for e in errors[DECODE_ERRORS:]:
        kind = (e.reason, is_unread(e.reason, e.detail))
        more[kind] += 1
        firsts.setdefault(kind, e)
    return first + [
        e._replace(detail=f"{e.detail} ({more[kind]} such errors from here on)") for kind, e in firsts.items()
    ]


def _notes(replica: ReplicaFacts) -> list[str]:
    """Sentences on what a text dump, a copy without checksums, or a live audit's limit does not show of this log."""
    notes = list(replica.notes)
    name = f"{replica.topic}-{replica.partition}"
    if hidden := replica.cannot_show:
        notes.append(f"{name}: text does not show {', '.join(hidden)}")
    if count := replica.unverified_batches:
        notes.append(
            f"{name}: checksums of {plural(count, 'batch')} in {replica.log_dir} were not verified when it was copied: "
            "findings about them are not proved, and damage is not detected (use auditor copy --checksums all)"
        )
    if replica.breaks_off:
        live = "the log was not read to its end"
        what = live if replica.live else "the dump breaks off before the log ends"
        notes.append(f"{name}: {what}, so its end is not checked")
    if replica.may_be_cleaned and not replica.topic.startswith("__"):
        notes.append(f"{name}: text does not show whether the topic is compacted: its offset gaps count as compaction")
    return notes


def _left_out(log: LogView, opened: int) -> list[str]:
    if opened <= OPEN_TRANSACTIONS:
        return []
    return [f"{log.name}: {opened} transactions are open; the report has the first {OPEN_TRANSACTIONS} of them"]


def accounting(replica: ReplicaFacts) -> dict[str, int]:
    """Return the number of offsets in [log start, log end) by what became of them.

    Keys: data, marker, aborted, compacted away, unreadable, missing, remote (in tiered storage only), or excluded by
    the scope.
    """
    t, records = replica.transactions, 0
    if len(t):
        aborted = t[
            (t["commit"] == 0) & (t["marker_offset"] >= replica.log_start) & (t["first_offset"] >= replica.log_start)
        ]
        records = int(aborted["records"].sum())
    s = replica.sums
    total = replica.log_end - replica.own_start
    remote_until = replica.unread_from if replica.unread_from >= 0 else replica.log_start
    out = {
        "data": s["data_offsets"] - min(records, s["data_offsets"]),
        "aborted": min(records, s["data_offsets"]),
        "marker": s["marker_offsets"],
        "compacted": s["hole_offsets_cleaned"],
        "unreadable": s["unreadable_offsets"],
        "missing": s["hole_offsets_intact"],
        "remote": remote_until - replica.own_start,
        "left_out": replica.log_start - remote_until,
    }
    rest = total - sum(out.values())
    out["not_reached"] = rest  # behind the last whole batch: an empty or damaged end, never negative in a sound log
    out["total"] = total
    return out


def chain(log: LogView, replica: ReplicaFacts) -> Fields:
    """Return how much of the log its snapshots prove: each link is a replay from one snapshot to the next."""
    links = sorted(replica.snapshots, key=lambda link: link.offset)
    sound = [link for link in links if link.comparable and not _broken(log, replica, link)]
    sound = [link for link in sound if not touches(replica.unverified, link.base, link.offset - 1)]
    proved = sum(max(0, min(link.offset, replica.log_end) - max(link.base, replica.log_start)) for link in sound)
    length = replica.log_end - replica.log_start
    return {
        "snapshots": len(links),
        "proved_links": [link.offset for link in sound][:100],
        "proved": proved,
        "broken": [link.file for link in links if link.comparable and _broken(log, replica, link)][:100],
        "not_comparable": [link.file for link in links if not link.comparable][:100],
        "fraction": round(proved / length, 4) if length > 0 else None,
    }


def _broken(log: LogView, replica: ReplicaFacts, link: SnapshotLink) -> bool:
    """Whether the snapshot is proved wrong in more than a missing producer."""
    return any(d.name != "missing" and verdict(log, replica, link, d) == PROVED for d in link.differences)


def _open_row(log: LogView, t: Transaction) -> Fields:
    return _row(log, t) | {"advice": blocking.advise(log, t).row(), "in_flight": t.in_flight}


def _row(log: LogView, t: Transaction) -> Fields:
    """What rows of open transactions and of blocked partitions have in common."""
    return {
        "log_dir": log.leader.log_dir,
        "broker_id": log.leader.broker_id,
        "topic": log.topic,
        "partition": log.partition,
        "producer_id": t.producer_id,
        "producer_epoch": t.producer_epoch,
        "transactional_id": t.transactional_id,
        **(dict.fromkeys(COLUMNS) if t.origin is None else t.origin.row()),
        "status": t.status.value,
        "certainty": t.certainty.value,
        "class": str(t.klass),
        "standing": t.standing.value,
        "severity": t.severity,
        "if_true": t.if_true,
        "rule": registry.kind_of(t.hold),
        "why": t.reason,
        **_numbers(t.row, "first_offset", "last_offset", "batches", "records", "bytes"),
        **dated(log, t),
        "age_ms": t.age_ms,
        "at_least": not log.cluster.clock_given,
        "held_at_least_ms": t.held.at_least_ms,
        "timeout_ms": t.timeout_ms,
        "state": None if t.entry is None else t.entry.state or "tombstone",
    }


def blocked_rows(log: LogView, opened: list[Transaction]) -> Iterator[Fields]:
    """Yield rows of ``blocked``: this partition, if an open transaction holds its LSO below its end.

    For a partition of ``__transaction_state`` the missing partitions of decided transactions, and of all that are open
    where nothing shows what time it is.
    """
    states = (PREPARE_COMMIT, PREPARE_ABORT, *((ONGOING,) if log.cluster.as_of < 0 else ()))
    for entry in log.last_entries(*states) if log.topic == TRANSACTION_STATE else ():
        if (t := of_coordinator(log, entry)) is not None:
            yield from _absent(log, t, entry)
    blocked = [t for t in opened if t.lso < log.leader.log_end]
    if not blocked:
        return
    worst = min(blocked, key=lambda t: (ORDER.index(t.standing), t.first_offset))
    yield _blocked_row(log, worst) | {
        "last_stable_offset": min(log.readable_end, *(t.lso for t in blocked)),
        "high_watermark": log.high_watermark,
        "log_end": log.leader.log_end,
        "readable_end": log.readable_end,
        "others": len({t.producer_id for t in blocked}) - 1,
        "advice": blocking.advise(log, worst).row(),
    }


def _blocked_row(log: LogView, t: Transaction) -> Fields:
    known = t.entry is not None and t.entry.timeout_ms > 0
    beyond = t.timeout_ms != NO_TIMEOUT_MS and t.age_ms > t.overdue_after_ms
    return _row(log, t) | {
        "timeout_ms": t.timeout_ms if known else None,
        "beyond_timeout": None if t.is_unknown else beyond,
        "late_if_open": t.age_ms > min(t.overdue_after_ms, HOUR_MS),
        "others": 0,
    }


def _absent(log: LogView, t: Transaction, entry: StateRecord) -> Iterator[Fields]:
    away = undeliverable(log.cluster, entry)
    for name in sorted(entry.partitions):
        topic, partition = place_of(name)
        listed = partition >= 0 and (t.overdue or not away or name in away)
        if not listed or (topic, partition) in log.cluster.bounds or not log.cluster.scope.wants_log(topic, partition):
            continue
        advice = (
            blocking.undelivered(log.cluster, name, entry)
            if t.is_prepared
            else blocking.unended(log.cluster, entry, log.partition, blocking.discards_in([name]))
        )
        row = _blocked_row(log, replace(t, undeliverable=name in away)) | dict.fromkeys(NOT_IN_INPUT)
        yield row | {"topic": topic, "partition": partition, "at_least": True, "advice": advice.row()}


def _numbers(row: np.void, *names: str) -> dict[str, int]:
    return {name: int(row[name]) for name in names}


def _timeline(log: LogView, opened: list[Transaction]) -> Fields:
    rows = log.leader.transactions
    closed = rows[(rows["marker_offset"] >= log.leader.log_start) & (rows["first_offset"] >= 0)]
    shown = closed[np.argsort(closed["marker_offset"])][-TIMELINE_TRANSACTIONS:]
    first = opened[:TIMELINE_TRANSACTIONS]
    bars = [_bar(log, row, None) for row in shown] + [_bar(log, t.row, t) for t in first]
    return {
        "log_dir": log.leader.log_dir,  # other clusters in the input may have a log of that name
        "topic": log.topic,
        "partition": log.partition,
        "broker_id": log.leader.broker_id,
        "log_start": log.leader.log_start,
        "log_end": log.leader.log_end,
        "readable_end": log.readable_end,
        "lso": min(log.readable_end, *(t.lso for t in opened)),
        "transactions": bars,
        "truncated": len(closed) - len(shown) + len(opened) - len(first),
    }


def _bar(log: LogView, row: np.void, t: Transaction | None) -> Fields:
    closed = row["marker_offset"] >= 0
    return {
        **_numbers(row, "producer_id", "producer_epoch", "first_offset", "last_offset"),
        "marker_offset": int(row["marker_offset"]) if closed else None,
        "marker_epoch": int(row["marker_epoch"]) if closed else None,
        "outcome": ("COMMIT" if row["commit"] else "ABORT") if closed else None,
        "start": iso(log.time(row["first_time"])),
        "end": iso(int(row["marker_timestamp"])) if closed else None,
        "class": None if t is None else str(t.klass),
        "status": "completed" if t is None else t.status.value,
    }


# Findings about logs that were not read from their start.


def without_old_beginnings(findings: Iterable[Finding], begun: set[tuple[str | None, int | None]]) -> list[Finding]:
    """Drop info findings that something began before a log's start, for logs not read from their start.

    ``begun``: topic and partition of these logs.
    """
    kinds = registry.kinds()
    return [
        f
        for f in findings
        if (f.topic, f.partition) not in begun or not kinds[f.kind].before_start or f.severity != "info"
    ]
