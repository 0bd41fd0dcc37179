"""Records that are stamped ahead of all that brokers wrote."""

from __future__ import annotations

from auditor.facts.replica_facts import Ahead
from auditor.rules.seen.cluster_view import HOUR_MS
from auditor.rules.seen.finding import Finding, iso
from auditor.rules.seen.view import LogView


def is_ahead_of_all(log: LogView, ahead: Ahead, slack_ms: int = HOUR_MS) -> bool:
    """Whether a producer's time lies ahead of all that brokers wrote. Only a controller's log makes that sure: it
    writes twice a second, so nothing can be much later than its end."""
    return log.cluster.has_metadata and ahead.time > log.cluster.newest_time + slack_ms


def at_ahead(log: LogView, rule: str, ahead: Ahead, **evidence: object) -> Finding:
    """The finding about such a batch."""
    stamp = iso(ahead.time) or ahead.time
    who = f"producer {ahead.producer_id}" if ahead.producer_id >= 0 else "a producer without id"
    known = ahead.producer_id >= 0
    return log.finding(
        rule,
        "warning",
        f"Records of {who} in {log.name} at offset {ahead.base_offset} are stamped {stamp}, ahead of all that the "
        "brokers wrote",
        segment=ahead.segment,
        offset=ahead.base_offset,
        last_offset=ahead.last_offset,
        producer_id=ahead.producer_id if known else None,
        producer_epoch=ahead.producer_epoch if known else None,
        transactional_id=log.owner(ahead.producer_id) if known else None,
        position=ahead.position,
        time_ms=ahead.time,
        evidence={"found": stamp, "broker_time": iso(log.cluster.newest_time), **evidence},
    )
