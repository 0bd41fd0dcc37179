"""Audits under other broker policies (what-if)."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from auditor.base.at_rest import Fields
from auditor.base.errors import DecodeError, setting_number
from auditor.base.evidence_keys import PolicyEvidence, read
from auditor.base.words import plural
from auditor.connectors.logdir.files import Inventory
from auditor.facts.replica_facts import BYTES_A_BATCH, BYTES_A_PRODUCER
from auditor.model.policies import COMPARED, DRAFT, DRAFT_WINDOW, UNKNOWN, WEEK_MS, policy_at, supposed_expiration_ms
from auditor.pipeline import plan, summary, what_if_verdicts
from auditor.pipeline.cluster_context import Brief
from auditor.pipeline.cluster_settings import ClusterSettings, candidates
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.whole_audit import Audit, Say, nobody
from auditor.replay.producers.kernel import AHEAD_MS
from auditor.replay.task import PolicySettings, ReplicaTask, TextTask
from auditor.rules.producer_memory import Peak, broker_memory
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import Finding

if TYPE_CHECKING:
    import pyarrow as pa

    from auditor.pipeline.runner import JudgeLog, Replicas, Runner


# Tasks of a what-if: those of an audit, with the policies to replay each replica under.


RETENTION_MS = {"log.retention.ms": 1, "log.retention.minutes": 60_000, "log.retention.hours": 3_600_000}
CHECK_MS = 600_000
Task = ReplicaTask | TextTask


def compared(
    inventory: Inventory, settings: dict[str, ClusterSettings], wanted: str, names: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the policies to compare: those asked for, and those that the input's brokers may have used."""
    present = frozenset[str]().union(*_candidates(inventory, settings, wanted).values())
    return tuple(dict.fromkeys([*names, *sorted(present)]))


def _candidates(inventory: Inventory, settings: dict[str, ClusterSettings], wanted: str) -> dict[str, set[str]]:
    """The policies that each log directory's broker may have used."""
    return {
        log_dir.name: candidates(log_dir, settings.get(log_dir.join_key, ClusterSettings()), wanted)
        for log_dir in inventory.log_dirs
    }


def with_policies(
    tasks: Sequence[Task],
    inventory: Inventory,
    settings: dict[str, ClusterSettings],
    wanted: str,
    names: tuple[str, ...],
    duplicate_window: int = DRAFT_WINDOW,
) -> list[Task]:
    """Return the tasks with these policies, each with the expiration and retention settings of its replica.

    Text dumps stay as they are, since they have no sizes and no settings. ``duplicate_window``: the draft's threshold,
    in sequence numbers.
    """
    now = _candidates(inventory, settings, wanted)
    out: list[Task] = []
    for task in tasks:
        if isinstance(task, ReplicaTask):
            cluster = settings.get(task.join_key, ClusterSettings())
            present = now.get(task.replica.log_dir, set[str]())
            policies = (_settings(task, cluster, name, name in present, duplicate_window) for name in names)
            task = replace(task, policies=tuple(policies))
        out.append(task)
    return out


def _settings(
    task: ReplicaTask, cluster: ClusterSettings, name: str, present: bool, duplicate_window: int
) -> PolicySettings:
    """Settings of one policy for one replica; ``present``: whether its own broker may have used the policy."""

    def setting(option: str) -> str | None:
        return cluster.topic_setting(task.replica.topic or "", option, task.broker_id)

    def number(*options: str) -> int | None:
        values = (setting_number(setting(option), least=-(1 << 63)) for option in options)
        return next((value for value in values if value is not None), None)

    retention = number("retention.ms")
    for option, unit in RETENTION_MS.items():
        if retention is None and (value := number(option)) is not None:
            retention = value * unit
    size, check = number("retention.bytes", "log.retention.bytes"), number("producer.id.expiration.check.interval.ms")
    compacted = task.compacted  # by its cleaner, not by age or size
    policy = policy_at(name, cluster.releases.get(task.broker_id, UNKNOWN))
    return PolicySettings(
        name,
        policy._replace(duplicate_window=duplicate_window) if policy.is_draft else policy,
        task.expiration_ms if present else supposed_expiration_ms(name, setting),
        CHECK_MS if check is None else check,
        -1 if compacted else WEEK_MS if retention is None else retention,
        -1 if compacted or size is None else size,
    )


def ahead(tasks: Sequence[Task], briefs: Sequence[Brief], clusters: dict[str, Cluster]) -> list[ReplicaTask]:
    """Return the replicas to read again because their timestamps exceed every broker-written time by over an hour.

    Only after everything was read is the newest broker-written time known, beyond which no producer's clock is
    believed.
    """
    newest = {
        (b.log_dir, b.topic, b.partition): clusters[b.join_key].newest_time
        for b in briefs
        if 0 <= clusters[b.join_key].newest_time < b.any_time - AHEAD_MS
    }
    of = {_place(task): task for task in tasks if isinstance(task, ReplicaTask)}
    return [replace(of[key], newest_time=time) for key, time in sorted(newest.items()) if key in of]


def _place(task: Task) -> tuple[str, str, int]:
    return (task.log_dir if isinstance(task, TextTask) else task.replica.log_dir, *plan.log_of(task)[1:])


# Audit of a what-if: the read step with further policies, and a judge step that gives verdicts.


class WhatIfAudit(Audit):
    """Replays the input under ``policies`` and under those that its brokers used, for comparison.

    ``duplicate_window``: how many sequence numbers behind the newest count as duplicates under the draft.
    """

    def __init__(
        self,
        options: AuditOptions,
        runner: Runner,
        policies: tuple[str, ...] = COMPARED,
        duplicate_window: int = DRAFT_WINDOW,
        say: Say = nobody,
    ) -> None:
        super().__init__(options, runner, say)
        self.policies = policies
        self.duplicate_window = duplicate_window

    @cached_property
    def _compared(self) -> tuple[str, ...]:
        return compared(self.inventory, self.settings, self.options.policy, self.policies)

    @cached_property
    def tasks(self) -> list[ReplicaTask | TextTask]:
        """Tasks of the audit, with the policies to replay each replica under."""
        tasks = plan.replica_tasks(self.scoped, self.settings, self.options)
        return with_policies(
            tasks, self.inventory, self.settings, self.options.policy, self._compared, self.duplicate_window
        )

    @cached_property
    def believed(self) -> list[tuple[Replicas, JudgeLog]]:
        """The facts, and apart those of logs that were read again, as a producer's clock ran ahead of all brokers."""
        again = {_place(task): task for task in ahead(self.tasks, self.briefs, self.clusters)}
        logs = frozenset(map(plan.log_of, again.values()))
        facts: list[tuple[Replicas, JudgeLog]] = [(self.replicas, partial(what_if_verdicts.judge_log, logs=logs))]
        if again:
            texts = {join_key for join_key, *_ in logs}  # which may have some of these logs
            tasks = [
                again.get(_place(task), task)
                for task in self.tasks
                if plan.log_of(task) in logs or (isinstance(task, TextTask) and task.join_key in texts)
            ]
            facts.append((self.runner.read(tasks), partial(what_if_verdicts.judge_log, logs=logs, again=True)))
        return facts

    @cached_property
    def judged(self) -> dict[str, Sequence[Any]]:
        """Rows of kind finding, verdict, replica and errors."""
        believed, clusters = self.believed, self.clusters
        rows: dict[str, list[Any]] = {kind: [] for kind in ("finding", "verdict", "replica", "errors")}
        with self.step("judge"):
            judged = (self.runner.judge(replicas, clusters, judge) for replicas, judge in believed)
            for kind, row in itertools.chain.from_iterable(judged):
                rows[kind].append(row)
        rows["verdict"].sort(
            key=lambda v: (v["policy"], v["topic"], v["partition"], v["base_offset"], v["producer_id"])
        )
        rows["replica"].sort(key=lambda c: (c["join_key"], c["topic"], c["partition"], c["log_dir"]))
        return {**rows}

    @property
    def _errors_of_logs(self) -> list[tuple[str, DecodeError]]:
        return [(row["log_dir"], DecodeError(**e)) for row in self.judged["errors"] for e in row["errors"]]

    @cached_property
    def _now(self) -> dict[str, str]:
        return {choice.log_dir: choice.policy for choice in self.choices}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the reported policies."""
        return tuple(name for name in self._compared if name in self.policies or name in self._now.values())

    @cached_property
    def verdicts(self) -> list[Fields]:
        """Batches that would have been answered differently: a row per run of stored batches."""
        return [v for v in self.judged["verdict"] if v["policy"] in self.names]

    @cached_property
    def result(self) -> Fields:
        """Content of ``what-if.json``."""
        rows, names = self.judged, self.names
        return {
            "as_of": self.as_of_text,
            "policy": [choice._asdict() for choice in self.choices],
            "complete": not self.incomplete(),
            "notes": _notes(sum(isinstance(task, TextTask) for task in self.tasks), self.options.scope.described),
            **what_if_verdicts.numbers([*rows["replica"]], self.verdicts, names, self._now, self.duplicate_window),
        }

    @cached_property
    def findings(self) -> list[Finding]:
        """Findings about the effect of the policies, and about the memory that each broker would need."""
        names, brokers = self.names, self.result["brokers"]
        rows = [
            row
            for row in self.judged["finding"]
            if read(PolicyEvidence, row["evidence"]).get("policy", names[0]) in names
        ]
        findings = [Finding.of(row) for row in rows]
        findings += [_memory(b) for b in brokers if DRAFT in b["policies"] and b["policy_now"] in b["policies"]]
        return self.signed(self.resolved(findings))

    def held(self, table: str) -> pa.Table | None:
        """Return ``verdicts`` from the judge step, other tables as every audit does."""
        if table == "verdicts":
            return summary.table_of(self.verdicts, what_if_verdicts.VERDICTS)
        return super().held(table)

    def exit_code(self) -> int:
        """Return 0, or 3 if part of the input was unreadable: verdicts are no failure."""
        return 3 if self.incomplete() else 0


class AuditWithVerdicts(Audit):
    """An audit that also has the table ``verdicts``, from a what-if over the same input and runner."""

    def held(self, table: str) -> pa.Table | None:
        """Return ``verdicts`` from a what-if, other tables as every audit does."""
        if table != "verdicts":
            return super().held(table)
        with contextlib.closing(WhatIfAudit(self.options, self.runner)) as what_if:
            return what_if.held(table)


def _memory(broker: Fields) -> Finding:
    now, drafted = (
        Peak(size["producers_peak"], size["bytes_peak"])
        for size in (broker["policies"][broker["policy_now"]], broker["policies"][DRAFT])
    )
    return broker_memory(broker["log_dir"], broker["broker_id"], now, drafted)


def _notes(text_folders: int, scope: str) -> list[str]:
    notes = [
        "logs have accepted batches only: real rejections, retries and restarts are not visible",
        f"state sizes are estimates: {BYTES_A_PRODUCER} bytes a producer and {BYTES_A_BATCH} a cached batch",
    ]
    if scope:
        notes.append(scope)
    if text_folders:
        notes.append(f"skipped (no sizes and settings): {plural(text_folders, 'folder')} of text dumps")
    return notes
