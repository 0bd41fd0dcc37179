"""What keeps a partition's last stable offset below its end, and whether that is normal: one verdict, made here.

The findings' severities, the summary's ``blocked``, tables, suites, page, terminal, metrics, alerts and the exit status
all take it from :func:`judged`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from auditor.base.at_rest import Fields
from auditor.base.words import NO_TIMEOUT_MS
from auditor.facts.coordinator_log import PREPARE_ABORT, PREPARE_COMMIT
from auditor.model.transaction_states import PREPARED
from auditor.rules.catalogue import registry
from auditor.rules.catalogue.kinds import Hold
from auditor.rules.seen.cluster_view import HOUR_MS, Cluster
from auditor.rules.seen.coordinator_history import COORDINATOR_CHECK_MS, Entry
from auditor.rules.seen.finding import highest, iso
from auditor.rules.seen.memo import once
from auditor.rules.seen.named import SKEW_MS
from auditor.rules.seen.view import LogView
from auditor.rules.transactions import outdated, written_times
from auditor.rules.transactions.open_transactions import OpenTransaction, open_at_coordinator, time_allowed
from auditor.rules.transactions.state_records import TOPIC, last_entries
from auditor.rules.transactions.when_read import open_in_time, read_of

LATE_MS = COORDINATOR_CHECK_MS + 20_000  # the coordinator's next look, and the clocks of two machines


class Standing(StrEnum):
    """How a partition that is held stands."""

    STUCK = "stuck"  # nobody will end the transaction
    OVERDUE = "overdue"  # it is open for longer than its time-out allows
    UNDELIVERABLE = "undeliverable"  # it is decided, and nobody leads the partition to take its marker
    UNKNOWN = "unknown"  # nothing in the input shows for how long, or whether it is open still
    WAITING = "waiting"  # within its time-out: normal


ORDER = tuple(Standing)
BLOCKED = (Standing.STUCK, Standing.OVERDUE, Standing.UNDELIVERABLE)  # longer than is normal


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an open transaction stands, as every surface says it.

    ``klass``: the class that it is listed, drawn and counted as, of those of :class:`OpenTransaction`; what may have
    ended is undecidable, whatever it looks like. ``severity``: of the finding of ``rule``, None where there is nothing
    to find. ``if_true``: the severity that it would have if it is open still, where that is not known.
    """

    standing: Standing
    klass: str
    severity: str | None
    if_true: str | None
    hold: Hold

    @property
    def kind(self) -> str:
        """The kind of findings that speak of it."""
        return next(each.id for each in registry.kinds().values() if each.hold is self.hold)


def began_between(log: LogView, t: OpenTransaction) -> tuple[int, int]:
    """No earlier and no later than when the transaction can have begun here, by brokers' clocks, in ms; -1: no bound.

    See :func:`auditor.rules.transactions.written_times.around`. Where the coordinator has it, open or decided, with
    this partition, it began after the start that is written there, and before the decision.
    """
    earliest, latest = written_times.around(log, int(t.row["producer_id"]), int(t.row["first_offset"]))
    if t.entry is not None and _is_its_own(t) and log.name in t.entry.partitions:
        earliest = max(earliest, t.entry.start)
        if t.entry.state in PREPARED:
            latest = min(latest, t.entry.time) if latest >= 0 else t.entry.time
    return earliest, latest


def since(log: LogView, t: OpenTransaction) -> int:
    """When the transaction began here, in ms: the producer's time within what brokers wrote around it; -1 where nothing
    tells. A producer's time that contradicts them by more than two brokers' clocks may is not believed."""
    earliest, latest = began_between(log, t)
    if 0 <= t.since < earliest - SKEW_MS:
        return earliest
    return latest if 0 <= latest < t.since - SKEW_MS else t.since


def dated(log: LogView, t: OpenTransaction) -> dict[str, str | None]:
    """``since`` for pages with the brokers' bounds; where its producer's own time-stamp says otherwise, that too."""
    begun, stamp = since(log, t), int(t.row["first_timestamp"])
    differs = begun >= 0 and stamp >= 0 and abs(begun - stamp) > SKEW_MS
    earliest, latest = began_between(log, t)
    return {
        "since": iso(begun),
        "since_by_producer": iso(stamp) if differs else None,
        "since_not_before": iso(earliest),
        "since_not_after": iso(latest),
    }


def age(log: LogView, t: OpenTransaction) -> int:
    """For how long it has been open, in ms, by :func:`since`, or by its coordinator where that says more."""
    ongoing = t.entry is not None and t.entry.state == "Ongoing" and _is_its_own(t)
    begun = [time for time in (since(log, t), t.entry.start if ongoing and t.entry else -1) if time >= 0]
    read = read_of(log) if t.ended else None
    return max(0, (log.cluster.as_of if read is None else read.done) - min(begun)) if begun else 0


def _is_its_own(t: OpenTransaction) -> bool:
    """Whether the last record of its id is about it."""
    return t.klass in ("active", "late") and not t.ended


def alone(cluster: Cluster) -> bool:
    """Whether one partition's folder is all there is and no clock was given: it cannot tell how old its end is."""
    return cluster.coordinator is None and not cluster.clock_given and len(cluster.bounds) <= 1


def _too_long(log: LogView, t: OpenTransaction) -> bool:
    """Whether it is open, if it is open still, beyond its time-out (15 minutes where none is known) by
    :data:`LATE_MS`; one of a two-phase commit, which has none, beyond an hour."""
    if t.timeout_ms == NO_TIMEOUT_MS:
        return age(log, t) > HOUR_MS
    return t.klass != "active" and _beyond(log, t)


def _beyond(log: LogView, t: OpenTransaction) -> bool:
    return t.timeout_ms != NO_TIMEOUT_MS and age(log, t) > t.timeout_ms + LATE_MS


def may_have_ended(log: LogView, t: OpenTransaction, allowed_ms: int) -> bool:
    """Whether this log and its coordinator's may have been copied before a transaction that both have open ended, and
    before it was open for longer than ``allowed_ms``."""
    if t.entry is None or t.entry.state not in ("Ongoing", *PREPARED) or not _is_its_own(t):
        return False
    return outdated.unsure(log.cluster, t.entry, log.cluster.as_of - age(log, t) + allowed_ms) is not None


def undeliverable(cluster: Cluster, entry: Entry | None) -> list[str]:
    """Partitions of a decided transaction that nobody leads, so that its markers cannot be written there."""
    if entry is None or entry.state not in PREPARED:
        return []
    return sorted(entry.partitions & cluster.away)


@once
def _verdicts(log: LogView) -> dict[tuple[int, int], Verdict]:
    """By producer id and first offset; :func:`judged` fills it."""
    return {}


def judged(log: LogView, t: OpenTransaction) -> Verdict:
    """The verdict on one open transaction; made once."""
    made = _verdicts(log)
    key = int(t.row["producer_id"]), int(t.row["first_offset"])
    if key not in made:
        made[key] = _judge(log, t)
    return made[key]


def _judge(log: LogView, t: OpenTransaction) -> Verdict:
    stands = _standing(log, t)
    grave = "critical" if t.klass in ("hanging", "orphan") or age(log, t) > HOUR_MS else "error"
    if t.klass == "late" and t.entry is not None and t.entry.state in PREPARED:
        grave = highest(grave, prepared_severity(log.cluster, t.entry))
    severity, if_true = _severity(log, t, stands, grave), None
    if stands is Standing.UNKNOWN and severity == "info" and (t.in_flight or _too_long(log, t)):
        if_true = grave
    return Verdict(stands, _counted_as(t, stands), severity, if_true, _hold(t, stands))


def _standing(log: LogView, t: OpenTransaction) -> Standing:
    if t.in_flight:
        return Standing.UNKNOWN
    if t.ended:
        return Standing.WAITING
    waits = t.klass == "ghost" and open_at_coordinator(log, t)  # who has it open or decided will still end it
    if t.klass in ("hanging", "orphan") or (t.klass == "ghost" and not (waits or t.end_unknown or t.missing)):
        return Standing.STUCK
    if t.entry and log.name in undeliverable(log.cluster, t.entry) and not outdated.ended(log.cluster, t.entry):
        return Standing.UNDELIVERABLE
    if not _too_long(log, t):
        return Standing.WAITING if waits or t.klass in ("active", "late") else Standing.UNKNOWN
    allowed = HOUR_MS if t.timeout_ms == NO_TIMEOUT_MS else t.timeout_ms + LATE_MS
    if t.end_unknown or "control_type" in log.leader.cannot_show or alone(log.cluster):
        return Standing.UNKNOWN
    if not may_have_ended(log, t, allowed):
        return Standing.OVERDUE
    in_time = t.entry is not None and open_in_time(log, t.entry, log.cluster.as_of - age(log, t), allowed)
    return Standing.WAITING if in_time else Standing.UNKNOWN


def _severity(log: LogView, t: OpenTransaction, stands: Standing, grave: str) -> str | None:
    if stands in BLOCKED:
        return grave
    if stands is Standing.UNKNOWN:
        old = "control_type" in log.leader.cannot_show and age(log, t) > log.cluster.margin(t.timeout_ms)
        return "warning" if old and not (t.end_unknown or alone(log.cluster)) else "info"
    old = age(log, t) > HOUR_MS and not t.ended
    return "warning" if old and not may_have_ended(log, t, HOUR_MS) else None


def _counted_as(t: OpenTransaction, stands: Standing) -> str:
    """An alert goes by those that will never end by themselves: what its coordinator will end is none of them."""
    if stands is Standing.UNKNOWN:
        return "undecidable"
    if t.klass != "ghost" or stands is Standing.STUCK:
        return t.klass
    return "active" if stands is Standing.WAITING else "late"


def _hold(t: OpenTransaction, stands: Standing) -> Hold:
    """Which rule says it."""
    if t.klass in ("hanging", "orphan"):
        return Hold.NOBODYS
    if t.klass == "ghost":
        return Hold.PINNED
    if stands is Standing.UNDELIVERABLE:
        return Hold.PREPARED
    return Hold.LONG if stands is Standing.WAITING or t.timeout_ms == NO_TIMEOUT_MS else Hold.OVERDUE


def blocked(log: LogView, opened: list[OpenTransaction]) -> list[Fields]:
    """Rows of the summary's ``blocked``: this partition, where a transaction keeps its last stable offset below its
    end; for a partition of ``__transaction_state`` those of its decided transactions that are not in the input."""
    rows = _absent(log)
    held = [t for t in opened if max(int(t.row["first_offset"]), log.leader.own_start) < log.leader.log_end]
    if held:
        rows.append(_held(log, held))
    return rows


def _held(log: LogView, held: list[OpenTransaction]) -> Fields:
    """The holder is the first in the log of those that stand worst."""
    ranked = [(ORDER.index(judged(log, t).standing), int(t.row["first_offset"]), t) for t in held]
    _, first, t = min(ranked, key=lambda each: each[:2])
    verdict = judged(log, t)
    known = t.entry is not None and t.entry.timeout_ms > 0
    lowest = max(min(offset for _, offset, _ in ranked), log.leader.own_start)
    return {
        "log_dir": log.leader.log_dir,
        "broker_id": log.leader.broker_id,
        "topic": log.topic,
        "partition": log.partition,
        "last_stable_offset": min(lowest, log.readable_end),
        "high_watermark": log.high_watermark,
        "log_end": log.leader.log_end,
        "readable_end": log.readable_end,
        "producer_id": int(t.row["producer_id"]),
        "producer_epoch": int(t.row["producer_epoch"]),
        "transactional_id": t.owner,
        "first_offset": first,
        "last_offset": int(t.row["last_offset"]),
        **dated(log, t),
        "age_ms": age(log, t),
        "at_least": not log.cluster.clock_given,
        "timeout_ms": t.timeout_ms if known else None,
        "beyond_timeout": None if verdict.standing is Standing.UNKNOWN else _beyond(log, t),
        **said(verdict),
        "state": None if t.entry is None else t.entry.state or "tombstone",
        "why": t.reason,
        "others": len({int(each.row["producer_id"]) for _, _, each in ranked}) - 1,
        **{name: int(t.row[name]) for name in ("batches", "records", "bytes")},
    }


def said(verdict: Verdict) -> dict[str, str | None]:
    """A verdict as the columns of a row."""
    return {
        "class": verdict.klass,
        "standing": verdict.standing.value,
        "severity": verdict.severity,
        "if_true": verdict.if_true,
        "rule": verdict.kind,
    }


def _absent(log: LogView) -> list[Fields]:
    """Partitions without a replica in the input that wait for a marker, as far as their coordinator shows."""
    rows = []
    for last in last_entries(log, PREPARE_COMMIT, PREPARE_ABORT) if log.topic == TOPIC else ():
        away, due = undeliverable(log.cluster, last), last.time + time_allowed(last) + LATE_MS
        late = log.cluster.as_of > due
        if not (late or away):
            continue
        doubt = outdated.ended(log.cluster, last) if away else outdated.unsure(log.cluster, last, due)
        unsure = doubt is not None or log.cluster.mixed
        for name in sorted(last.partitions):
            topic, _, number = name.rpartition("-")
            if (topic, int(number)) in log.cluster.bounds or not (late or name in away):
                continue
            if not log.cluster.scope.wants_log(topic, int(number)):
                continue
            rows.append(
                dict.fromkeys(_HELD)
                | {
                    "topic": topic,
                    "partition": int(number),
                    "producer_id": last.producer_id,
                    "producer_epoch": last.producer_epoch,
                    "transactional_id": last.transactional_id,
                    "since": iso(last.time),
                    "since_not_before": iso(last.time),
                    "age_ms": max(0, log.cluster.as_of - last.time),
                    "at_least": True,
                    "timeout_ms": time_allowed(last) if last.timeout_ms > 0 else None,
                    "beyond_timeout": None if unsure else late,
                    "state": last.state,
                    "others": 0,
                    "why": f"the coordinator has it as {last.state}; no replica of the partition is in the input",
                    **said(_of_absent(log, last, unsure, name in away, late)),
                }
            )
    return rows


def _of_absent(log: LogView, last: Entry, doubt: bool, away: bool, late: bool) -> Verdict:
    stands = Standing.UNKNOWN if doubt else Standing.UNDELIVERABLE if away else Standing.OVERDUE
    grave = prepared_severity(log.cluster, last)
    klass = "undecidable" if doubt else "late" if late else "active"
    return Verdict(stands, klass, "info" if doubt else grave, grave if doubt else None, Hold.PREPARED)


def prepared_severity(cluster: Cluster, entry: Entry) -> str:
    """How grave it is that a decided transaction was not completed, by its age."""
    return "critical" if cluster.as_of - entry.time > cluster.margin(time_allowed(entry)) else "error"


_HELD = (
    "log_dir",
    "broker_id",
    "last_stable_offset",
    "high_watermark",
    "log_end",
    "readable_end",
    "first_offset",
    "last_offset",
    "since_by_producer",
    "since_not_before",
    "since_not_after",
    "batches",
    "records",
    "bytes",
)
