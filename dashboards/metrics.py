"""metrics.prom: what a run found, as Prometheus text for node-exporter's textfile collector.

Labels are bounded on purpose: rules, severities, classes, standings and states; never a producer, a transactional id
or a topic.
Two runs on the same input write the same bytes: the time is that of the audit (``as_of``), not of the clock.
"""

from __future__ import annotations

import datetime
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from auditor.dashboards import answers, report_shapes, verdict, wording

_STATES = ("decoded", "skipped", "unreadable")


def write_metrics(
    path: str | os.PathLike[str], findings: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]
) -> None:
    """Write the metrics file at ``path`` (it should end in ``.prom``), whole or not at all: a rename puts it in place.

    ``findings`` have the contract's fields, ``summary`` is summary.json's content; its ``open_transactions`` (a count
    by class), where given, is taken as it is, else those are counted that a finding is about. Raises OSError if the
    file cannot be written.
    """
    registry = _registry(findings, report_shapes.summary(summary))
    write_to_textfile(os.fspath(path), registry)


def _registry(findings: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> CollectorRegistry:
    registry, listed = CollectorRegistry(), answers.unaccepted(findings)
    _count(
        registry,
        "kafka_audit_findings",
        "Findings by rule and severity",
        ("rule", "severity"),
        _by_rule(listed),
    )
    _count(registry, "kafka_audit_findings_by_severity", "Findings by severity, zeros included", ("severity",),
           {(name,): count for name, count in answers.tally(findings, summary).items()})  # fmt: skip
    accepted = Counter(finding["severity"] for finding in findings if finding.get("accepted"))
    _count(registry, "kafka_audit_accepted_findings", "Findings that the baseline accepts; no other number has them",
           ("severity",), {(name,): accepted[name] for name in wording.SEVERITIES})  # fmt: skip
    _count(registry, "kafka_audit_open_transactions", "Open transactions by class", ("class",),
           _classes(findings, summary))  # fmt: skip
    _count(registry, "kafka_audit_blocked_partitions", "Partitions that a transaction holds, by how they stand",
           ("standing",), _standings(findings, summary))  # fmt: skip
    _count(registry, "kafka_audit_bytes", "Bytes given to the audit: decoded, skipped with a reason, unreadable",
           ("state",), {(state,): summary["bytes"][state] or 0 for state in _STATES})  # fmt: skip
    _count(registry, "kafka_audit_batches", "Record batches audited", (), {(): summary["batches"] or 0})
    if (seconds := _seconds(summary["as_of"])) is not None:
        says = "The time that the audit judges by (as_of), in seconds since the epoch"
        _count(registry, "kafka_audit_last_run_timestamp_seconds", says, (), {(): seconds})
    policies = sorted({str(row["policy"]) for row in summary["policy"]})
    _count(registry, "kafka_audit_info", "Version of the auditor and the policies it judged by", ("version", "policy"),
           {(str(summary["tool"]["version"]), ",".join(policies)): 1})  # fmt: skip
    return registry


def _count(
    registry: CollectorRegistry, name: str, says: str, labels: Sequence[str], values: Mapping[tuple[str, ...], float]
) -> None:
    gauge = Gauge(name, says, labels, registry=registry)
    for key in sorted(values):
        (gauge.labels(*key) if labels else gauge).set(values[key])


def _by_rule(findings: Sequence[Mapping[str, Any]]) -> dict[tuple[str, ...], int]:
    return dict(Counter((finding["rule"], finding["severity"]) for finding in findings))


def _standings(findings: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> dict[tuple[str, ...], int]:
    """How many partitions stand how, zeros too, without those that are blocked as a baseline accepts."""
    rows = [row for row in answers.blocked((), findings, summary) if not (row.holder.blocks and row.accepted)]
    counted = Counter(row.holder.standing for row in rows)
    return {(name,): counted[name] for name in verdict.STANDINGS}


def _classes(findings: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> dict[tuple[str, ...], int]:
    """Open transactions by class, each once however many findings are about it; every class is there, zeros too."""
    if (given := summary.get("open_transactions")) is not None:
        return {(kind,): given.get(kind, 0) for kind in answers.CLASSES}
    seen = set()
    for finding in findings:
        kind = (finding.get("evidence") or {}).get("class")
        if kind in answers.CLASSES:
            key = ("topic", "partition", "producer_id", "producer_epoch", "offset")
            seen.add((kind, *(finding[name] for name in key)))
    counted = Counter(entry[0] for entry in seen)
    return {(kind,): counted[kind] for kind in answers.CLASSES}


def _seconds(iso: object) -> float | None:
    """An ISO 8601 instant as seconds since the epoch; None for what is none."""
    try:
        return datetime.datetime.fromisoformat(str(iso)).timestamp()
    except ValueError:
        return None
