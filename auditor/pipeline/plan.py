"""From an inventory to tasks: one for each copy of a partition, or for each segment of a copy that is far larger than
the others, spread evenly over the slots of the cluster.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from auditor.connectors.files import Copy, DataFile, Inventory, LogDir, TextFile
from auditor.connectors.internal_rows import PACKED
from auditor.pipeline.cluster_settings import METADATA_TOPIC, ClusterSettings, timestamp_limit
from auditor.pipeline.options import AuditOptions
from auditor.replay.bounds import INTERNAL_TOPICS
from auditor.replay.chunks import SegmentTask
from auditor.replay.copy_task import CopyTask, TextTask
from auditor.rules.view import is_compacted

AnyTask = CopyTask | TextTask | SegmentTask
Spread = TypeVar("Spread", bound=AnyTask)
MIN_SPLIT_BYTES = 512 << 20  # of a copy: below, reading it in parts would cost more than it gives
OPENING_BYTES = 50_000  # what opening a task's files costs, as if it were so much longer


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
    return sharing(tasks)


def sharing(tasks: list[CopyTask | TextTask]) -> list[CopyTask | TextTask]:
    """The tasks, those of the topics that brokers write with their shares (:class:`CopyTask`), at most 1 together.

    Half of it goes to all alike, half by the bytes of the files: so much is known before they are read, few bytes that
    become many get little, and a partition far larger than the others is not cut down to an average. Shares are powers
    of two, so that a file that grows leaves nearly all tasks as they are: a watch reads again what changed.
    """
    sizes = {n: size(t) for n, t in enumerate(tasks) if isinstance(t, CopyTask) and t.copy.topic in PACKED}
    whole = sum(sizes.values())

    def share(number: int) -> float:
        return float(2.0 ** math.floor(math.log2(0.5 / len(sizes) + 0.5 * sizes[number] / whole)))

    return [
        replace(t, share=share(n)) if n in sizes and isinstance(t, CopyTask) else t for n, t in enumerate(tasks)
    ]  # fmt: skip


def _log(d: LogDir, c: Copy) -> tuple[str, str | None, int | None]:
    return (d.join_key, c.topic, c.partition)


def _task(d: LogDir, c: Copy, cluster: ClusterSettings, options: AuditOptions, replicated: bool) -> CopyTask:
    topic = c.topic or ""
    at = {kind: offsets.get((topic, c.partition or 0)) for kind, offsets in d.checkpoints.items()}
    policy = cluster.topic_setting(topic, "cleanup.policy", d.broker_id)
    return CopyTask(
        d.place,
        c,
        d.cluster_id,
        d.broker_id,
        d.join_key,
        d.clean_shutdown,
        at.get("log-start"),
        remote_from(c, cluster, at.get("log-start")),
        at.get("high-watermark"),
        at.get("recovery-point"),
        at.get("cleaner"),
        compacted=is_compacted(topic, policy, at.get("cleaner")),
        cleaning_unknown=policy is None and "cleaner" not in d.whole_checkpoints,
        log_start_known=at.get("log-start") is not None or "log-start" in d.whole_checkpoints,
        expiration_ms=cluster.expiration_ms(d.broker_id),
        before_ms=timestamp_limit(cluster, "before", topic, d.broker_id),
        records=options.records and topic != METADATA_TOPIC,
        digests=replicated,
        limits=options.limits,
    )


def remote_from(c: Copy, cluster: ClusterSettings, log_start: int | None) -> int | None:
    """Where a tiered log begins if that is below its first segment here, else None. ``log_start``: its checkpoint.

    Without a checkpoint it is the first segment that was copied and not deleted. Source: KIP-405, log start offset and
    local log start offset.
    """
    if not c.segments or not cluster.is_tiered(c.topic or ""):
        return None
    remote = cluster.remote.of(c.topic or "", c.partition or 0, c.topic_id)
    if remote is not None:
        first = min((s.start_offset for s in remote.finished()), default=None)
        log_start = first if log_start is None else remote.start_from(log_start)
    return log_start if log_start is not None and log_start < c.segments[0].base_offset else None


def split_from(tasks: Sequence[AnyTask], slots: int) -> int:
    """The size in bytes above which a copy is read in parts: all the work that there is for one slot."""
    return max(MIN_SPLIT_BYTES, sum(size(t) for t in tasks) // slots)


def divide(tasks: list[CopyTask | TextTask], slots: int) -> tuple[list[CopyTask], list[CopyTask | TextTask]]:
    """The copies to be read in parts, which would else hold up all others, and the rest.

    Without the former, no slot works more than twice as long as the best plan would let it. Copies of one segment stay
    whole, and so do internal topics, whose records are decoded as well, and copies whose reading goes on.
    """
    least = split_from(tasks, slots)
    large: list[CopyTask] = []
    others: list[CopyTask | TextTask] = []
    for task in tasks:
        if isinstance(task, CopyTask) and size(task) > least and _may_be_split(task):
            large.append(task)
        else:
            others.append(task)
    return large, others


def _may_be_split(task: CopyTask) -> bool:
    return len(task.copy.segments) > 1 and task.copy.topic not in INTERNAL_TOPICS and not task.resume_point


def segment_tasks(tasks: Sequence[CopyTask]) -> list[SegmentTask]:
    """A task for every segment of these copies."""
    return [SegmentTask(t, k, number) for k, t in enumerate(tasks) for number in range(len(t.copy.segments))]


def size(task: AnyTask) -> int:
    """Bytes that the task reads, and a little for opening its files."""
    if isinstance(task, SegmentTask):
        return task.size + OPENING_BYTES
    return sum(f.size for f in files(task)) + OPENING_BYTES


def files(task: CopyTask | TextTask) -> Sequence[DataFile | TextFile]:
    """The files that a task reads."""
    return task.texts if isinstance(task, TextTask) else task.copy.files()


def _name(task: AnyTask) -> tuple[str, str, int]:
    if isinstance(task, TextTask):
        return task.log_dir, "", 0
    if isinstance(task, SegmentTask):
        return task.task.copy.log_dir, task.task.copy.folder, task.number
    return task.copy.log_dir, task.copy.folder, 0


def spread(tasks: Sequence[Spread], slots: int) -> list[list[Spread]]:
    """The tasks in at most ``slots`` lists of about the same bytes: the largest first, each to the lightest list."""
    heap = [(0, number) for number in range(min(slots, len(tasks)))]
    lists: list[list[Spread]] = [[] for _ in heap]
    for task in sorted(tasks, key=lambda t: (-size(t), *_name(t))):
        load, number = heapq.heappop(heap)
        lists[number].append(task)
        heapq.heappush(heap, (load + size(task), number))
    return lists
