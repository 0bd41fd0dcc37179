"""What an audit will read, in how many tasks, and about how long and in how much memory, from a listing alone.

Sizes are exact, time and memory are estimates: nothing says how large the batches are before they are read, so each is
given from large batches (64 KiB) to small ones (400 bytes).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from auditor.base.at_rest import Fields
from auditor.base.errors import MIB, is_unread
from auditor.connectors.logdir import scope
from auditor.connectors.logdir.files import Inventory, LogDir, Replica
from auditor.connectors.logdir.names import METADATA_TOPIC
from auditor.connectors.tables.internal_rows import (
    CONSUMER_OFFSETS,
    REMOTE_LOG_METADATA,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
)
from auditor.facts.batch_sums import MOST_KEPT
from auditor.pipeline import plan
from auditor.pipeline.options import AuditOptions
from auditor.replay.reading.task import ReplicaTask, TextTask

GIB = 1 << 30
OTHERS, TEXTS = "all other topics", "text dumps"
Span = tuple[float, float]  # least and most


class Rate(NamedTuple):
    """CPU seconds of one core a GiB, from large batches to small ones: read and replayed, and as rows of tables."""

    read: Span
    tables: Span


# Measured 2026-11 on one core of an AMD EPYC, files in the page cache (docs/performance.md; of the internal topics, on
# their own records of 180 and 77 bytes, of __cluster_metadata on a broker's). None of it is a promise.
RATES = {
    OTHERS: Rate((0.13, 0.30), (0.25, 1.9)),
    TRANSACTION_STATE: Rate((6.4, 6.4), (7.5, 7.5)),
    CONSUMER_OFFSETS: Rate((7.3, 7.3), (7.0, 7.0)),
    METADATA_TOPIC: Rate((390, 390), (390, 390)),
    SHARE_GROUP_STATE: Rate((120, 250), (120, 250)),
    REMOTE_LOG_METADATA: Rate((120, 250), (120, 250)),
    TEXTS: Rate((20, 60), (20, 60)),
}
RECORDS: Span = (0.5, 6.3)  # --records: seconds a GiB more, stored plain to zstd
REPLICA_S = 0.0012  # of a replica, however small: read 0.6 ms, judged 0.6
START_S = {"inline": 1.0, "Spark": 6.0}  # imports, JVM, first tasks, report
DISK_BYTES_S = 500 * MIB  # of a disk that is neither the fastest nor the slowest
BATCH_BYTES = (64 << 10, 400)
WORKER_BYTES = 185 * MIB
DRIVER_BYTES = 140 * MIB
REPLICA_BYTES = 10_300 + 2_300  # on the driver: what is known of a replica, and where it runs inline its facts
COMPARED_BYTES = 17  # of a batch and replica, in the worker that compares the replicas of a partition: few differ


class Slots(NamedTuple):
    """How it will run: ``name`` of a way to run, tasks at a time (None: the cluster knows), and lists of replicas a
    slot (0: a task is a replica)."""

    name: str
    at_a_time: int | None
    lists: int


def forecast(inventory: Inventory, options: AuditOptions, slots: Slots) -> Fields:
    """The plan of an audit as data: ``log_dirs``, ``topics``, ``not_read``, ``left_out``, ``tasks``, ``estimate``.

    Errors: :class:`AuditInputError` for a scope that fits nothing. Cost: none but memory; no file is opened, but the
    ends of time indexes where a time is given to read from.
    """
    read = scope.narrowed(inventory, options.scope)
    tasks, left = plan.replica_tasks(read, {}, options), scope.left_out(inventory, read)
    log_dirs = [_log_dir(d, d.replicas) for d in read.log_dirs]
    remote = [file for folder in inventory.remote for segment in folder.segments for file in segment.files]
    return {
        "log_dirs": log_dirs,
        "topics": _by_topic(tasks),
        "remote": {"files": len(remote), "bytes": sum(file.size for file in remote)},
        "not_read": {"files": len(inventory.skipped), "bytes": sum(item.size for item in inventory.skipped)},
        "left_out": left._asdict(),
        "unreadable": sum(is_unread(item.error.reason, item.error.detail) for item in inventory.errors),
        "tasks": _tasks(tasks, slots),
        "estimate": _estimate(tasks, options, slots),
        "notes": list(inventory.notes),
    }


def _log_dir(d: LogDir, replicas: Sequence[Replica]) -> Fields:
    files = [file for replica in replicas for file in replica.files()]
    return {
        "log_dir": d.name,
        "cluster_id": d.cluster_id,
        "broker_id": d.broker_id,
        "partitions": len(replicas),
        "segments": sum(len(c.segments) for c in replicas),
        "files": len(files) + len(d.texts),
        "bytes": sum(f.size for f in files) + sum(t.size for t in d.texts),
    }


def _kind(task: ReplicaTask | TextTask) -> str:
    """What kind of topic a task reads, as :data:`RATES` has them."""
    if isinstance(task, TextTask):
        return TEXTS
    topic = task.replica.topic or ""
    return topic if topic in RATES else OTHERS


def _by_topic(tasks: Iterable[ReplicaTask | TextTask]) -> list[Fields]:
    """Partitions, segments and bytes of each kind of topic, the largest first."""
    found: dict[str, Counter[str]] = {}
    for task in tasks:
        segments = len(task.replica.segments) if isinstance(task, ReplicaTask) else 0
        more = {"partitions": 1, "segments": segments, "bytes": plan.file_bytes(task)}
        found.setdefault(_kind(task), Counter()).update(more)
    rows = [
        {"kind": kind} | {name: counts[name] for name in ("partitions", "segments", "bytes")}
        for kind, counts in found.items()
    ]
    return sorted(rows, key=lambda row: (-row["bytes"], row["kind"]))


def _divided(
    tasks: Sequence[ReplicaTask | TextTask], slots: Slots
) -> tuple[list[ReplicaTask], Sequence[ReplicaTask | TextTask]]:
    """The replicas that are read in parts, and the others."""
    return plan.divide(tasks) if slots.lists else ([], tasks)


def _tasks(tasks: Sequence[ReplicaTask | TextTask], slots: Slots) -> Fields:
    large, others = _divided(tasks, slots)
    lists = len(others)
    if slots.lists and slots.at_a_time:
        lists = min(lists, plan.list_count(others, slots.at_a_time))
    largest = max(tasks, key=plan.file_bytes, default=None)
    return {
        "way": slots.name,
        "slots": slots.at_a_time,
        "count": None if slots.at_a_time is None else lists + len(plan.segment_tasks(large)),
        "replicas": len(tasks),
        "in_parts": len(large),
        "largest": None if largest is None else {"name": _name(largest), "bytes": plan.file_bytes(largest)},
    }


def _name(task: ReplicaTask | TextTask) -> str:
    return task.log_dir if isinstance(task, TextTask) else f"{task.replica.log_dir}/{task.replica.folder}"


def _cpu(task: ReplicaTask | TextTask, options: AuditOptions) -> tuple[Span, Span]:
    """CPU seconds of a task: what reading the replica takes, and what comes on top for the tables."""
    size, rate = plan.file_bytes(task) / GIB, RATES[_kind(task)]
    deep = RECORDS if options.records and _kind(task) == OTHERS else (0.0, 0.0)
    read = tuple(size * (one + more) + REPLICA_S for one, more in zip(rate.read, deep, strict=True))
    more = tuple(size * (one + d) for one, d in zip(rate.tables, deep, strict=True)) if options.tables else (0.0, 0.0)
    return read, more  # type: ignore[return-value]


def _estimate(tasks: Sequence[ReplicaTask | TextTask], options: AuditOptions, slots: Slots) -> Fields:
    """Seconds, CPU seconds and bytes of memory, each from large batches to small ones; seconds are null where nobody
    knows yet how many tasks run at a time."""
    costs = [_cpu(task, options) for task in tasks]
    _, others = _divided(tasks, slots)
    whole = [_cpu(task, options)[0] for task in others]
    total = [sum(read[k] + more[k] for read, more in costs) for k in (0, 1)]
    seconds = None
    if slots.at_a_time:
        longest = [max((read[k] for read in whole), default=0.0) for k in (0, 1)]
        more = [sum(one[k] for _, one in costs) / slots.at_a_time for k in (0, 1)]
        reading = [sum(read[k] for read, _ in costs) / slots.at_a_time for k in (0, 1)]
        start = START_S[slots.name]
        seconds = [round(start + max(longest[k], reading[k]) + more[k], 1) for k in (0, 1)]
    size = sum(map(plan.file_bytes, tasks))
    return {
        "seconds": seconds,
        "cpu_seconds": [round(value, 1) for value in total],
        "disk_seconds": round(size / DISK_BYTES_S, 1),
        "memory_bytes": _memory(tasks),
        "batches_of_bytes": list(BATCH_BYTES),
    }


def _headers(task: ReplicaTask, batch_bytes: int) -> int:
    """How many headers of a replica are kept to compare it: all, but of a long log on its broker's own disk."""
    batches = plan.file_bytes(task) // batch_bytes
    return batches if any(s.place is not None for s in task.replica.segments) else min(batches, MOST_KEPT)


def _memory(tasks: Sequence[ReplicaTask | TextTask]) -> Fields:
    """Of the driver, of a worker that reads, and of the worker that compares the replicas of the largest partition."""
    replicas: dict[tuple[str, str | None, int | None], list[ReplicaTask]] = {}
    for task in tasks:
        if isinstance(task, ReplicaTask):
            replicas.setdefault((task.join_key, task.replica.topic, task.replica.partition), []).append(task)
    compared = [of_log for of_log in replicas.values() if len(of_log) > 1]
    most = [max((sum(_headers(t, size) for t in of_log) for of_log in compared), default=0) for size in BATCH_BYTES]
    comparing = [WORKER_BYTES + COMPARED_BYTES * count for count in most] if any(most) else None
    return {"driver": DRIVER_BYTES + REPLICA_BYTES * len(tasks), "worker": WORKER_BYTES, "comparing": comparing}
