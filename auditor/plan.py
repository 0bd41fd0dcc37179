"""From an inventory to tasks: one for each copy of a partition, spread evenly over the slots of the cluster."""

from __future__ import annotations

import heapq
from collections import Counter

from auditor.metadata import METADATA_TOPIC, ClusterSettings
from auditor.options import AuditOptions
from auditor.replay.copy import CopyTask
from auditor.replay.text import TextTask
from connectors.files import Copy, Inventory, LogDir
from rules.view import DAY_MS, is_compacted

EXPIRATION_NAMES = ("producer.id.expiration.ms", "transactional.id.expiration.ms")


def copy_tasks(
    inventory: Inventory, settings: dict[str, ClusterSettings], options: AuditOptions
) -> list[CopyTask | TextTask]:
    """A task for every live copy that the options let through, and for every folder of text dumps."""
    copies = Counter(_log(d, c) for d in inventory.log_dirs for c in d.copies if c.topic is not None)
    tasks: list[CopyTask | TextTask] = [
        TextTask(d.place, d.name, d.join_key, d.cluster_id, d.broker_id, d.texts, limits=options.limits)
        for d in inventory.log_dirs
        if d.texts
    ]
    tasks += [
        _task(d, c, settings.get(d.join_key, ClusterSettings()), options, copies[_log(d, c)] > 1)
        for d in inventory.log_dirs
        for c in d.copies
        if options.wants_topic(c.topic or "")
    ]
    return tasks


def _log(d: LogDir, c: Copy) -> tuple[str, str | None, int | None]:
    return (d.join_key, c.topic, c.partition)


def _task(d: LogDir, c: Copy, cluster: ClusterSettings, options: AuditOptions, replicated: bool) -> CopyTask:
    topic = c.topic or ""
    at = {kind: offsets.get((topic, c.partition or 0)) for kind, offsets in d.checkpoints.items()}
    policy = cluster.topic_setting(topic, "cleanup.policy", d.broker_id)
    before = cluster.topic_setting(topic, "message.timestamp.before.max.ms", d.broker_id)
    return CopyTask(
        d.place,
        c,
        d.cluster_id,
        d.broker_id,
        d.join_key,
        d.clean_shutdown,
        at.get("log-start"),
        at.get("high-watermark"),
        at.get("recovery-point"),
        at.get("cleaner"),
        compacted=is_compacted(topic, policy, at.get("cleaner")),
        cleaning_unknown=policy is None and "cleaner" not in d.whole_checkpoints,
        log_start_known=at.get("log-start") is not None or "log-start" in d.whole_checkpoints,
        expiration_ms=expiration_ms(cluster, d.broker_id),
        before_ms=int(before) if before is not None and before.isdigit() else None,
        records=options.records and topic != METADATA_TOPIC,
        digests=replicated,
        limits=options.limits,
    )


def expiration_ms(cluster: ClusterSettings, broker_id: int | None) -> int:
    """How long a broker remembers an idle producer, in ms: its setting, or one day."""
    for name in EXPIRATION_NAMES:
        value = cluster.topic_setting("", name, broker_id)
        if value is not None and value.isdigit():
            return int(value)
    return DAY_MS


def size(task: CopyTask | TextTask) -> int:
    """Bytes that the task reads, and a little for opening its files."""
    files = task.texts if isinstance(task, TextTask) else task.copy.files()
    return sum(f.size for f in files) + 50_000


def _name(task: CopyTask | TextTask) -> tuple[str, str]:
    return (task.log_dir, "") if isinstance(task, TextTask) else (task.copy.log_dir, task.copy.folder)


def spread(tasks: list[CopyTask | TextTask], slots: int) -> list[list[CopyTask | TextTask]]:
    """The tasks in at most ``slots`` lists of about the same bytes: the largest first, each to the lightest list."""
    heap = [(0, number) for number in range(min(slots, len(tasks)))]
    lists: list[list[CopyTask | TextTask]] = [[] for _ in heap]
    for task in sorted(tasks, key=lambda t: (-size(t), *_name(t))):
        load, number = heapq.heappop(heap)
        lists[number].append(task)
        heapq.heappush(heap, (load + size(task), number))
    return lists
