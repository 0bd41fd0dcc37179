"""The audit from top to bottom: open, read, judge, publish. The table of contents of the program."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from auditor.base.errors import AuditInputError, DecodeError, is_unread
from auditor.connectors.files import Inventory
from auditor.connectors.inventory import discover
from auditor.outputs import publish
from auditor.pipeline import cluster_settings, context, plan, policy_choice
from auditor.pipeline.cluster_settings import ClusterSettings
from auditor.pipeline.context import Brief
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.policy_choice import PolicyChoice
from auditor.rules import registry
from auditor.rules.finding import SEVERITIES, Finding
from auditor.rules.resolve import resolve
from auditor.rules.view import Cluster
from auditor.spark import scan, session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Say = Callable[[str], None]


@dataclass
class Audit:
    """One audit while it runs, and its results."""

    options: AuditOptions
    inventory: Inventory
    settings: dict[str, ClusterSettings]
    outside: list[tuple[str, DecodeError]]
    choices: list[PolicyChoice] = field(default_factory=list)
    clusters: dict[str, Cluster] = field(default_factory=dict)
    briefs: list[Brief] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    judged: dict[str, list[Any]] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
    expectations: pa.Table | None = None
    deadly: list[tuple[str, DecodeError]] = field(default_factory=list)  # files that kill who reads them for a table

    def unread(self) -> list[tuple[str, DecodeError]]:
        """What could not be read or decoded, each with its log directory, and once: several may have tried."""
        told = [(u.log_dir, u.error) for u in self.inventory.errors] + self.outside
        told += [(row["log_dir"], DecodeError(**e)) for row in self.judged.get("log", []) for e in row["errors"]]
        return list(dict.fromkeys(told + self.deadly))

    def incomplete(self) -> bool:
        """Whether a part of the input could not be read (not: read and found damaged, in flight or gone)."""
        return any(is_unread(error.reason, error.detail) for _, error in self.unread())

    def exit_code(self) -> int:
        """0, 1 or 3 as the contract says; 3 goes before 1."""
        if self.incomplete():
            return 3
        level = self.options.fail_on
        failing = () if level == "never" else SEVERITIES[: SEVERITIES.index(level) + 1]
        return int(any(f.severity in failing for f in self.findings))


def run(options: AuditOptions, say: Say, spark: SparkSession | None = None) -> Audit:
    """Audits ``options.paths`` and writes everything under ``options.out``. Errors: :class:`AuditInputError`."""
    wanted = chosen_rules(options)
    audit = _timed("open", lambda timings: open_input(options), say, {})
    publish.claim(options.out, audit.inventory)
    timings = audit.timings
    spark = spark or _timed("start Spark", lambda _: session.start(options.master), say, timings)
    tasks = plan.copy_tasks(audit.inventory, audit.settings, options)
    facts = scan.read_copies(spark, tasks)
    say(f"reading {len(tasks)} partition copies, {sum(plan.size(t) for t in tasks) / 1e6:.0f} MB")
    audit.briefs = _timed("read and replay", lambda _: scan.collect_briefs(facts), say, timings)
    add_context(audit)
    _timed("judge", lambda _: judge(audit, spark, facts, wanted), say, timings)
    _timed("publish", lambda _: publish.publish(audit, spark, facts), say, timings)
    facts.unpersist()
    return audit


def _timed(step: str, work: Callable[[dict[str, float]], Any], say: Say, timings: dict[str, float]) -> Any:
    say(step)
    began = time.monotonic()
    result = work(timings)
    timings = result.timings if isinstance(result, Audit) else timings
    timings[step] = round(time.monotonic() - began, 3)
    return result


def open_input(options: AuditOptions) -> Audit:
    """Finds what there is, and reads the clusters' settings."""
    inventory = discover(list(options.paths), options.limits)
    settings, errors = cluster_settings.read_settings(inventory, options.limits, apart=True)
    return Audit(options, inventory, settings, errors)


def add_context(audit: Audit) -> None:
    """What is known of each cluster, and which policy each log directory worked under."""
    options = audit.options
    audit.clusters = context.build(audit.briefs, audit.settings, options.as_of, options.records)
    for log_dir in audit.inventory.log_dirs:
        cluster = audit.clusters.get(log_dir.join_key)
        versions = {1} if cluster is not None and context.writes_version_1(audit.briefs, log_dir.join_key) else set()
        settings = audit.settings.get(log_dir.join_key, ClusterSettings())
        choice = policy_choice.choose(log_dir, settings, versions, options.policy)
        audit.choices.append(choice)
        if cluster is not None:
            cluster.policy[log_dir.name] = choice.policy


def chosen_rules(options: AuditOptions) -> list[str]:
    """The rules to run, in the catalogue's order. Errors: :class:`AuditInputError` for an id that is none."""
    catalogue = registry.load()
    for name in (*options.rules, *options.skip_rules):
        if name not in catalogue:
            raise AuditInputError(f"no rule named {name!r}; 'auditor rules' lists them")
    return [
        r.id
        for r in catalogue.values()
        if (not options.rules or r.id in options.rules)
        and r.id not in options.skip_rules
        and not r.what_if
        and (options.records or not r.records)
    ]


def judge(audit: Audit, spark: SparkSession, facts: DataFrame, wanted: list[str]) -> None:
    """Runs the rules and settles which findings stay."""
    audit.judged = {kind: [] for kind in ("finding", "log", "open", "timeline")}
    for kind, row in scan.judge_logs(spark, facts, audit.clusters, wanted):
        audit.judged[kind].append(row)
    audit.findings = resolve(Finding(**row) for row in audit.judged.pop("finding"))
    for kind in ("log", "open", "timeline"):
        audit.judged[kind].sort(
            key=lambda r: (r["topic"], r["partition"], r.get("log_dir") or "", r.get("first_offset", 0))
        )
