"""Facts and logs for tests of the rules: those of a whole corpus, and small made ones.

An audit as users run it, but that what a worker would do is done in this process: tests need no processes of their own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from auditor.facts.replica_facts import ReplicaFacts
from auditor.inline import InlineRunner
from auditor.pipeline import runner
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.whole_audit import Audit
from auditor.processes.isolation import Pool
from auditor.rules.catalogue import registry
from auditor.rules.resolution.resolve import resolve
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import Finding, LogView
from tests import corpora

Task = TypeVar("Task")
Result = TypeVar("Result")


class Here(Pool):
    """A pool that works in this process."""

    def map(self, tasks: Sequence[Task], work: Callable[[Task], Result], **how: object) -> Iterator[tuple[int, Result]]:
        for number, task in enumerate(tasks):
            result = work(task)
            if isinstance(result, Iterator):
                yield from ((number, part) for part in result)
            else:
                yield number, result


def here() -> InlineRunner:
    """The way to run without Spark, in this process."""
    return InlineRunner(Here(1))


def opened(path: Path, **options: object) -> Audit:
    """An audit of a folder that is about to be run here."""
    return Audit(AuditOptions((str(path),), Path(), **options), here())  # type: ignore[arg-type]


def opened_all(paths: Sequence[str]) -> Audit:
    """The same of several."""
    return Audit(AuditOptions(tuple(paths), Path()), here())


@functools.cache
def corpus_audit(name: str) -> Audit:
    """An audit of a corpus that is done. Shared between tests: do not change it, and ask for it before parts of the
    program are replaced."""
    audit = opened(corpora.unpack(name))
    audit.findings  # noqa: B018 - judged now, as the program is
    return audit


def logs_of(audit: Audit) -> list[LogView]:
    """Every log of an audit as the rules see it."""
    packed = (some.facts for some in audit.replicas.held.packed())
    logs = sorted(runner.logs_of(packed), key=lambda replicas: log_key(replicas[0]))
    return [LogView(replicas, audit.clusters[replicas[0].join_key]) for replicas in logs]


def log_key(replica: ReplicaFacts) -> tuple[str, str, int]:
    """What replicas of the same log share: cluster, topic, partition."""
    return (replica.join_key, replica.topic, replica.partition)


def logs_below(path: Path, *, records: bool = False, as_of: int | None = None, wanted: str = "auto") -> list[LogView]:
    """Every log below a folder as the rules see it."""
    return logs_of(opened(path, policy=wanted, records=records, as_of=as_of))


@functools.cache
def corpus_logs(name: str, *, records: bool = False, as_of: int | None = None) -> tuple[LogView, ...]:
    """The logs of a corpus. Shared between tests: do not change them."""
    return tuple(logs_below(corpora.unpack(name), records=records, as_of=as_of))


def judge(logs: Iterable[LogView], *rule_ids: str) -> list[Finding]:
    """What these rules say about the logs, after one cause was made one finding."""
    catalogue = registry.kinds()
    chosen = [catalogue[name] for name in rule_ids]
    return resolve(finding for log in logs for finding in registry.judge(log, chosen))


def log_of(replicas: list[ReplicaFacts], cluster: Cluster | None = None) -> LogView:
    """One log made of these replicas in a cluster of nothing else, at a clock of an hour."""
    return LogView(replicas, cluster or Cluster(as_of=3_600_000, newest_time=3_600_000))
