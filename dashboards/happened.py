"""What the cluster did to a partition, and the findings about it, in the order of time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from auditor.base.at_rest import Values
from auditor.dashboards.wording import log_name

MAX_STORIES = 20  # partitions on a page
MAX_FINDINGS = 20  # of a partition among its events
AROUND = 5  # events before and after a finding, as text


class Entry(NamedTuple):
    """Something at a time (ISO 8601; null: before what the log still tells). ``severity`` is null for what the
    controller did, else that of a finding."""

    time: str | None
    says: str
    severity: str | None = None


class Story(NamedTuple):
    """Of one partition everything in order; ``left_out``: how many older events are not in it."""

    name: str
    entries: list[Entry]
    left_out: int


def when(finding: Values) -> str | None:
    """When it happened, by the clock that what the cluster did goes by: the brokers', where that of the producer, which
    its ``timestamp`` may be, contradicts them."""
    evidence = finding.get("evidence") or {}
    by_brokers = evidence.get("since") if evidence.get("since_by_producer") else None
    return str(by_brokers) if by_brokers else finding["timestamp"]


def stories(events: Iterable[Values], findings: Sequence[Values]) -> list[Story]:
    """One a partition of which the metadata tells, in the order given. ``events``: rows of the summary's
    ``cluster_events``; findings without a time, and infos, are left out."""
    told = []
    for row in events:
        name = log_name(row)
        mine = [f for f in findings if when(f) and f["severity"] != "info" and log_name(f) == name]
        entries = [Entry(e.get("time"), e["says"]) for e in row["events"] or ()]
        entries += [Entry(when(f), f["message"], f["severity"]) for f in mine[:MAX_FINDINGS]]
        told.append(Story(name, sorted(entries, key=lambda e: e.time or ""), row["left_out"] or 0))
    return told


def unknown(events: Sequence[Values] | None, finding: Values) -> str:
    """Why nothing is said of what the cluster did beside a finding about a partition. ``events``: null of a run that
    was kept before they were."""
    if events is None:
        return "not kept with this run"
    if finding["severity"] == "info":
        return "not looked up for an info"
    if events and not any(log_name(row) == log_name(finding) for row in events):
        return "the metadata has no record of this partition, or was not asked, as more severe findings name others"
    return "the input has no record of __cluster_metadata about this partition"


def around(events: Iterable[Values], finding: Values) -> list[Entry]:
    """What the cluster did to a finding's partition right before and after its time; the newest where it has none."""
    row = next((row for row in events if log_name(row) == log_name(finding)), None)
    entries = [Entry(e.get("time"), e["says"]) for e in (row or {}).get("events") or ()]
    at = when(finding)
    if at is None:
        return entries[-2 * AROUND :]
    before = [e for e in entries if (e.time or "") <= at]
    return before[-AROUND:] + entries[len(before) :][:AROUND]
