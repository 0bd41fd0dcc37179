"""Rules on the times of records: beyond a topic's limits, or others than their batch states (KIP-32, KIP-937)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from auditor.base.numbers import setting_number
from auditor.base.words import plural
from auditor.facts.events import TOLERANCE_MS, Event, Kind
from auditor.model import policies
from auditor.model.batch_validation import FAR_MS, accepted_times
from auditor.rules.catalogue.needs import Need
from auditor.rules.catalogue.registry import rule
from auditor.rules.catalogue.safeguards import TIMESTAMP_LIMITS
from auditor.rules.lib.culprits import Place, blamed
from auditor.rules.lib.stamps_ahead import at_ahead, is_ahead_of_all
from auditor.rules.seen.finding import Finding, iso
from auditor.rules.seen.view import LogView, runs
from auditor.rules.validation import FAMILY, error_code

AFTER_SETTINGS = ("message.timestamp.after.max.ms", "message.timestamp.difference.max.ms")


def when(time: Any) -> str | int:
    """A time as ISO-8601, or the bare ms of one that no calendar has."""
    return iso(int(time)) or int(time)


@rule(
    "timestamp-out-of-range",
    family=FAMILY,
    severities={"warning": ""},
    records=True,
    prevented_by=(TIMESTAMP_LIMITS,),
    needs=(Need.EVENTS, Need.AHEAD),
)
def timestamp_out_of_range(log: LogView) -> Iterator[Finding]:
    """Record timestamps are impossible or beyond the topic's limits

    Checks: CreateTime stamps below -1, or before the append by more than message.timestamp.before.max.ms, or after it
    by more than message.timestamp.after.max.ms; message.timestamp.difference.max.ms stands in for whichever is unset
    (until 3.9; up to 3.5 it is the only limit). Too old is said by the newest broker-written time at or before the
    batch, too far ahead by the next one behind it, with five minutes of grace.
    Why it matters: retention and look-up by time go wrong; leaders refuse them as INVALID_TIMESTAMP.
    Can be wrong: the limits were changed since; the time of the append is an estimate.
    What to do: correct the producers' clocks; set the limits.
    Source: KIP-467, KIP-937; LogValidator
    """
    skip = {int(e["base_offset"]) for e in log.events(Kind.BATCH_TIMESTAMP)}
    for run in runs(log.events(Kind.RECORD_TIMESTAMP), "producer_id"):
        e = run[0]
        yield _odd_time(log, run, f"the earliest is {when(e['min_timestamp'])}", e["min_timestamp"], "old")
    after = _after_limit(log)
    if after is None:
        return
    for run in runs((e for e in log.events(Kind.TIMESTAMP_AHEAD) if int(e["base_offset"]) not in skip), "producer_id"):
        e = run[0]
        newest = accepted_times(e["broker_time"] + TOLERANCE_MS, FAR_MS, after)[1]
        if e["timestamp"] > newest:
            yield _odd_time(
                log,
                run,
                f"{iso(int(e['timestamp']))} lies ahead of the broker",
                e["timestamp"],
                "ahead",
                newest=newest,
            )
    ahead = log.leader.ahead
    if ahead is not None and ahead.base_offset not in skip and is_ahead_of_all(log, ahead, after + TOLERANCE_MS):
        place: Place = {"segment": ahead.segment, "position": ahead.position, "base_offset": ahead.base_offset}
        named = blamed(log, [place], "ahead", newest=log.cluster.newest_time + after + TOLERANCE_MS)
        code = error_code("INVALID_TIMESTAMP")
        yield at_ahead(log, "timestamp-out-of-range", ahead, limit_ms=after, culprits=named, **code)


def _after_limit(log: LogView) -> int | None:
    """message.timestamp.after.max.ms: as set, else an hour since 4.0, and what the older setting says before."""
    limit, broker = log.policy().after_max_ms, log.leader.broker_id
    since_4_0 = limit >= 0 or log.cluster.releases.get(broker, policies.UNKNOWN).least >= (4, 0)
    for name in AFTER_SETTINGS[:1] if since_4_0 else AFTER_SETTINGS:
        value = log.cluster.setting(log.topic, name) or log.cluster.broker_setting(broker, f"log.{name}")
        if value is not None:
            return setting_number(value)
        if log.cluster.is_unknown(broker, f"log.{name}"):
            return None
    return limit if limit >= 0 else None


def _odd_time(log: LogView, run: list[Event], what: str, found: int, kind: str, newest: int | None = None) -> Finding:
    e = run[0]
    return log.at_event(
        "timestamp-out-of-range",
        "warning",
        f"Timestamps out of range in {plural(len(run), 'batch')} of {log.name} from offset {e['base_offset']} on: "
        f"{what}",
        e,
        last_offset=run[-1]["last_offset"],
        evidence={
            "found": int(found),
            "batches": len(run),
            "culprits": blamed(log, run, kind, newest=newest),
            **error_code("INVALID_TIMESTAMP"),
        },
    )


@rule("batch-timestamp-mismatch", family=FAMILY, severities={"warning": ""}, records=True, needs=(Need.EVENTS,))
def batch_timestamp_mismatch(log: LogView) -> Iterator[Finding]:
    """A batch's times are not those of its records

    Checks: in a CreateTime batch that was never cleaned, the header's largest timestamp is not the largest of its
    records. The base timestamp is what the records count from, and need not be the first one's: kafkajs writes the
    smallest.
    Can be wrong: cleaned batches (nothing is said there).
    What to do: write the records again; report the client library.
    Source: KIP-32; LogValidator
    """
    for run in runs(log.events(Kind.BATCH_TIMESTAMP), "producer_id"):
        e = run[0]
        found, expected = when(e["timestamp"]), when(e["found_max_timestamp"])
        yield log.at_event(
            "batch-timestamp-mismatch",
            "warning",
            f"The largest time is stated as {found} in {plural(len(run), 'batch')} of {log.name} from offset "
            f"{e['base_offset']} on, while the records say {expected}",
            e,
            last_offset=run[-1]["last_offset"],
            evidence={
                "expected": expected,
                "found": found,
                "first_record": when(e["found_base_timestamp"]),
                "base_timestamp": when(e["base_timestamp"]),
                "batches": len(run),
            },
        )
