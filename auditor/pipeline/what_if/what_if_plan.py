"""The tasks of a what-if: those of an audit, with the policies that each replica is replayed under beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from auditor.base.numbers import setting_number
from auditor.connectors.logdir.files import Inventory
from auditor.model.policies import DRAFT_WINDOW, UNKNOWN, WEEK_MS, policy_at, supposed_expiration_ms
from auditor.pipeline.cluster.brief import Brief
from auditor.pipeline.cluster.cluster_settings import ClusterSettings
from auditor.pipeline.cluster.policy_choice import candidates
from auditor.replay.producers.kernel import AHEAD_MS
from auditor.replay.reading.task import PolicySettings, ReplicaTask, TextTask
from auditor.rules.seen.cluster_view import Cluster

RETENTION_MS = {"log.retention.ms": 1, "log.retention.minutes": 60_000, "log.retention.hours": 3_600_000}
CHECK_MS = 600_000
Task = ReplicaTask | TextTask


def compared(
    inventory: Inventory, settings: dict[str, ClusterSettings], wanted: str, names: tuple[str, ...]
) -> tuple[str, ...]:
    """The policies that were asked for, and those that the input itself may have worked under, to compare with."""
    now = {
        name
        for log_dir in inventory.log_dirs
        for name in candidates(log_dir, settings.get(log_dir.join_key, ClusterSettings()), wanted)
    }
    return tuple(dict.fromkeys([*names, *sorted(now)]))


def with_policies(
    tasks: Sequence[Task],
    inventory: Inventory,
    settings: dict[str, ClusterSettings],
    wanted: str,
    names: tuple[str, ...],
    duplicate_window: int = DRAFT_WINDOW,
) -> list[Task]:
    """The tasks with these policies, each with what the input says of expiry and retention where the replica lies;
    ``duplicate_window``: the draft's threshold, in sequence numbers.

    Text dumps stay as they are: they show no sizes and no settings.
    """
    now = {
        log_dir.name: candidates(log_dir, settings.get(log_dir.join_key, ClusterSettings()), wanted)
        for log_dir in inventory.log_dirs
    }
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
    """One policy over one replica; ``present``: its own broker may have worked under it."""

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
    kept = task.compacted  # by its cleaner, not by age or size
    policy = policy_at(name, cluster.releases.get(task.broker_id, UNKNOWN))
    return PolicySettings(
        name,
        policy._replace(duplicate_window=duplicate_window) if policy.is_draft else policy,
        task.expiration_ms if present else supposed_expiration_ms(name, setting),
        CHECK_MS if check is None else check,
        -1 if kept else WEEK_MS if retention is None else retention,
        -1 if kept or size is None else size,
    )


def ahead(tasks: Sequence[Task], briefs: Sequence[Brief], clusters: dict[str, Cluster]) -> list[ReplicaTask]:
    """The replicas whose time-stamps go more than an hour beyond every broker-written time of the input, to be read
    once more with that as the end of time: only when all has been read is it known what no producer's clock is believed
    beyond.
    """
    newest = {
        (b.log_dir, b.topic, b.partition): clusters[b.join_key].newest_time
        for b in briefs
        if 0 <= clusters[b.join_key].newest_time < b.any_time - AHEAD_MS
    }
    keys = (
        (task.replica.log_dir, task.replica.topic or "", task.replica.partition or 0)
        for task in tasks
        if isinstance(task, ReplicaTask)
    )
    of = dict(zip(keys, (task for task in tasks if isinstance(task, ReplicaTask)), strict=True))
    return [replace(of[key], newest_time=time) for key, time in sorted(newest.items()) if key in of]
