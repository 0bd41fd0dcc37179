"""Facts and logs for tests of the rules, without Spark: those of a whole corpus, and small made ones."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

from auditor.connectors.inventory import discover
from auditor.facts.copy_facts import CopyFacts
from auditor.pipeline import cluster_settings, context, plan, policy_choice
from auditor.pipeline.cluster_settings import ClusterSettings
from auditor.pipeline.options import AuditOptions
from auditor.rules import registry
from auditor.rules.finding import Finding
from auditor.rules.resolve import resolve
from auditor.rules.view import Cluster, LogView
from auditor.spark import scan
from tests import corpora


def logs_below(path: Path, *, records: bool = False, as_of: int | None = None, wanted: str = "auto") -> list[LogView]:
    """Every log below a folder as the rules see it, read in this process: what an audit does, but for Spark."""
    options = AuditOptions((str(path),), Path(), policy=wanted, records=records, as_of=as_of)
    inventory = discover([str(path)], options.limits)
    settings, _ = cluster_settings.read_settings(inventory, options.limits)
    copies = [facts for task in plan.copy_tasks(inventory, settings, options) for facts in scan.read_task(task)]
    briefs = [context.brief(facts) for facts in copies]
    clusters = context.build(briefs, settings, as_of, records)
    for log_dir in inventory.log_dirs:
        versions = {1} if context.writes_version_1(briefs, log_dir.join_key) else set()
        known = settings.get(log_dir.join_key, ClusterSettings())
        clusters[log_dir.join_key].policy[log_dir.name] = policy_choice.choose(log_dir, known, versions, wanted).policy
    by_log: dict[tuple[str, str, int], list[CopyFacts]] = {}
    for facts in copies:
        by_log.setdefault(facts.log_key, []).append(facts)
    return [LogView(mine, clusters[key[0]]) for key, mine in sorted(by_log.items())]


@functools.cache
def corpus_logs(name: str, *, records: bool = False, as_of: int | None = None) -> tuple[LogView, ...]:
    """The logs of a corpus. Shared between tests: do not change them."""
    return tuple(logs_below(corpora.unpack(name), records=records, as_of=as_of))


def judge(logs: Iterable[LogView], *rule_ids: str) -> list[Finding]:
    """What these rules say about the logs, after one cause was made one finding."""
    catalogue = registry.load()
    chosen = [catalogue[name] for name in rule_ids]
    return resolve(finding for log in logs for finding in registry.judge(log, chosen))


def log_of(copies: list[CopyFacts], cluster: Cluster | None = None) -> LogView:
    """One log made of these copies in a cluster of nothing else, at a clock of an hour."""
    return LogView(copies, cluster or Cluster(as_of=3_600_000, newest_time=3_600_000))
