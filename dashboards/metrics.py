"""metrics.prom: the results of a run for node-exporter's textfile collector.

The number of series is bounded: rules, severities, classes, statuses and states, and the :data:`WORST` blocked
partitions, all others summed; never a producer or a transactional id. Every series names its cluster, so files of many
clusters can share a directory. There are two times: the evaluation time (``as_of``) and the start of the run.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from auditor.base.at_rest import Values
from auditor.base.evidence_keys import ClassEvidence, read
from auditor.dashboards import answers
from auditor.dashboards.wording import GRAVE, OUTCOMES, SEVERITIES, clip, kind, parsed_time, visible

WORST = 50  # partitions with series of their own
ACCEPTED = "accepted"  # the standing of a blocked partition that a baseline suppresses
OTHERS = "(others)"  # in place of a topic; Kafka allows no such name
_STATES = ("decoded", "skipped", "unreadable")
_NO_LABEL = re.compile(r"\W", re.ASCII)  # characters that a label's name may not have
_PARTITION = ("cluster", "broker", "topic", "partition", "standing")

Samples = dict[tuple[str, ...], float]
Count = Callable[[str, str, Sequence[str], Mapping[tuple[str, ...], float]], None]


def write_metrics(path: str | os.PathLike[str], run: answers.RunReport) -> None:
    """Write the metrics file at ``path`` (it should end in ``.prom``) atomically.

    Without ``open_transactions`` in the summary (counts by class), the transactions of findings are counted. Raises
    OSError if the file cannot be written.
    """
    write_to_textfile(os.fspath(path), _registry(run))


def _registry(run: answers.RunReport) -> CollectorRegistry:
    findings, summary, blocked = run.findings, run.full, run.blocked
    registry, cluster = CollectorRegistry(), clusters(summary)

    def gauge(name: str, says: str, labels: Sequence[str], values: Mapping[tuple[str, ...], float]) -> None:
        made = Gauge(f"kafka_audit_{name}", says, labels, registry=registry)
        for key in sorted(values):
            made.labels(*key).set(values[key])

    def count(name: str, says: str, labels: Sequence[str], values: Mapping[tuple[str, ...], float]) -> None:
        gauge(name, says, ("cluster", *labels), {(cluster, *key): value for key, value in values.items()})

    _findings(count, run)
    count("open_transactions", "Open transactions by class", ("class",), _classes(findings, summary))
    count(
        "blocked_partitions",
        "Partitions with an open transaction, by standing",
        ("standing",),
        _standings(blocked),
    )
    gauge(
        "lso_lag_offsets",
        f"LSO lag of a partition with an open transaction; beyond the {WORST} worst, summed",
        _PARTITION,
        _lags(blocked),
    )
    gauge(
        "holder_age_seconds",
        f"Age of the open transaction of a partition; beyond the {WORST} worst, the oldest",
        _PARTITION,
        _ages(blocked),
    )
    count(
        "bytes",
        "Input bytes: decoded, skipped, unreadable",
        ("state",),
        {(state,): summary["bytes"][state] or 0 for state in _STATES},
    )
    count("complete", "1 if all of the input was read, 0 if a part was unreadable or there was no input to check", (),
          {(): float(summary.get("complete") is not False)})  # fmt: skip
    count("batches", "Record batches audited", (), {(): summary["batches"] or 0})
    count("validation_failures", "What leaders would have counted as refused of what is stored, by their own counters "
          "(KIP-467); without --records, those that headers show", ("counter",), _refusals(summary))  # fmt: skip
    if summary["clusters"]:
        says = "Display name of the cluster, always 1: join by cluster"
        gauge("cluster_info", says, *_names(summary["clusters"]))
    for name, (says, value) in _times(summary).items():
        count(name, says, (), {} if value is None else {(): value})
    policies = sorted({str(row["policy"]) for row in summary["policy"]})
    count(
        "info",
        "Version of the auditor and its policies",
        ("version", "policy"),
        {(str(summary["tool"]["version"]), ",".join(policies)): 1},
    )
    return registry


def _findings(count: Count, run: answers.RunReport) -> None:
    listed = answers.unaccepted(run.findings)
    accepted = Counter(finding["severity"] for finding in run.findings if finding.get("accepted"))
    by_rule = Counter[tuple[str, ...]]((f["rule"], kind(f), f["severity"]) for f in listed)
    count("findings", "Findings by rule, kind and severity", ("rule", "kind", "severity"), by_rule)
    count(
        "findings_by_severity",
        "Findings by severity, zeros included",
        ("severity",),
        {(name,): number for name, number in run.counts.items()},
    )
    count(
        "findings_by_outcome",
        "Critical and error findings by outcome, zeros included",
        ("outcome",),
        _by_outcome(listed),
    )
    count(
        "accepted_findings",
        "Findings suppressed by the baseline, in no other metric",
        ("severity",),
        {(name,): accepted[name] for name in SEVERITIES},
    )


def _names(named: Sequence[Values]) -> tuple[tuple[str, ...], Samples]:
    labels = sorted({key for row in named for key in row["labels"] or {}})
    columns = ("cluster", "name", "owner", *(f"label_{_NO_LABEL.sub('_', key)}" for key in labels))

    def values(row: Values) -> tuple[str, ...]:
        own_labels = row["labels"] or {}
        return tuple(
            map(_label, (row["cluster_id"], row["name"], row["owner"], *(own_labels.get(key, "") for key in labels)))
        )

    return columns, {values(row): 1.0 for row in named}


def _times(summary: Values) -> dict[str, tuple[str, float | None]]:
    as_of, ran = "Evaluation time, in seconds since the epoch", summary["ran"] or {}
    return {
        "as_of_timestamp_seconds": (as_of, _seconds(summary["as_of"])),
        "run_timestamp_seconds": ("Start of the run, in seconds since the epoch", _seconds(ran.get("began"))),
        "run_duration_seconds": ("Duration of the run", ran.get("seconds")),
    }


def clusters(summary: Values) -> str:
    """Return the cluster ids of a run, separated by commas; empty if unknown."""
    return ",".join(sorted({_label(row["cluster_id"]) for row in summary["inputs"] if row["cluster_id"]}))


def _label(name: object) -> str:
    return "" if name is None else clip(visible(str(name)), 300)


def _by_outcome(findings: Sequence[Values]) -> dict[tuple[str, ...], int]:
    # A finding of a rule that no longer exists has the outcome ``none``.
    grave = [finding for finding in findings if finding["severity"] in GRAVE]
    counted = Counter(finding.get("outcome") or "none" for finding in grave)
    return {(name,): counted[name] for name in OUTCOMES}


def _refusals(summary: Values) -> Samples:
    counted: Mapping[str, int | None] = summary.get("validation_failures") or {}
    return {(name,): count for name, count in counted.items() if count is not None}


def _standings(rows: Sequence[answers.BlockedSummary]) -> dict[tuple[str, ...], int]:
    counted = Counter(_standing(row) for row in rows)
    return {(name,): counted[name] for name in (*answers.STANDINGS, ACCEPTED)}


def _standing(row: answers.BlockedSummary) -> str:
    # Suppressed partitions have a value of their own, so no alert fires. In a run of an earlier release, a partition
    # that is blocked according to a finding counts as overdue, for alerts.
    if not row.holder.blocks:
        return row.holder.standing
    if row.accepted:
        return ACCEPTED
    return row.holder.standing if row.holder.standing in answers.RED else "overdue"


def _key(place: int, row: answers.BlockedSummary) -> tuple[str, ...]:
    # All partitions but the worst, which come first, share one key per cluster and status.
    holder, standing, cluster = row.holder.row, _standing(row), _label(row.holder.cluster)
    if place >= WORST:
        return (cluster, "", OTHERS, "", standing)
    return (cluster, _label(holder["broker_id"]), _label(holder["topic"]), _label(holder["partition"]), standing)


def _lags(rows: Sequence[answers.BlockedSummary]) -> Samples:
    samples: Samples = {}
    for rank, row in enumerate(rows):
        if row.holder.waiting is not None:
            key = _key(rank, row)
            samples[key] = samples.get(key, 0) + row.holder.waiting
    return samples


def _ages(rows: Sequence[answers.BlockedSummary]) -> Samples:
    samples: Samples = {}
    for rank, row in enumerate(rows):
        if row.holder.row.get("age_ms") is not None:
            key = _key(rank, row)
            samples[key] = max(samples.get(key, 0), row.holder.row["age_ms"] / 1000)
    return samples


def _classes(findings: Sequence[Values], summary: Values) -> dict[tuple[str, ...], int]:
    if (given := summary.get("open_transactions")) is not None:
        return {(kind,): given.get(kind, 0) for kind in answers.CLASSES}
    transactions = set()
    for finding in findings:
        kind = read(ClassEvidence, finding.get("evidence")).get("class")
        if kind in answers.CLASSES:
            key = ("topic", "partition", "producer_id", "producer_epoch", "offset")
            transactions.add((kind, *(finding[name] for name in key)))
    counted = Counter(entry[0] for entry in transactions)
    return {(kind,): counted[kind] for kind in answers.CLASSES}


def _seconds(iso: object) -> float | None:
    time = parsed_time(iso)
    return None if time is None else time.timestamp()
