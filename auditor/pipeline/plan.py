"""From an inventory to tasks: one for each replica of a partition, or for each segment of a replica that is far larger
than the others, in lists of about as many bytes, whatever cores there are.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
import secrets
from array import array
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np

from auditor.base.at_rest import Gathered
from auditor.connectors.logdir.files import DataFile, Inventory, LogDir, Replica, TextFile
from auditor.connectors.tables.internal_rows import PACKED
from auditor.facts.batch_sums import KEY_BYTES
from auditor.model.policies import Policy
from auditor.pipeline.cluster.cluster_settings import METADATA_TOPIC, ClusterSettings, timestamp_limit
from auditor.pipeline.cluster.policy_choice import known_before
from auditor.pipeline.options import AuditOptions
from auditor.replay.producers.audit_replay import INTERNAL_TOPICS
from auditor.replay.reading.chunks import SegmentTask, shared_key
from auditor.replay.reading.task import ReplicaTask, SharingTask, TextTask
from auditor.rules.seen.view import is_compacted

AnyTask = ReplicaTask | SharingTask | TextTask | SegmentTask
Spread = TypeVar("Spread", bound=AnyTask)
TASK_BYTES = 1 << 30  # of a list that one task reads: what a retry, or a preempted machine, costs again
LEAST_BYTES = 16 << 20  # below, a task costs more than it brings, however many cores are free
SPLIT_BYTES = 4 << 30  # of a replica: above, its segments are read by many tasks
LISTS_PER_CORE = 2
FEW, LARGEST = 10_000, 1_000  # tasks that are objects all at once; of more, those that go before all others
# Drawn by each process that plans: whoever writes logs cannot know it, and what a watch kept stays comparable.
KEY = secrets.token_bytes(KEY_BYTES)
OPENING_BYTES = 50_000  # what opening a task's files costs, as if it were so much longer


def replica_tasks(
    inventory: Inventory, settings: dict[str, ClusterSettings], options: AuditOptions
) -> Sequence[ReplicaTask | TextTask]:
    """A task for every live replica of the inventory, and for every folder of text dumps."""
    return ReplicaTasks(inventory, settings, options)


class ReplicaTasks(Sequence[ReplicaTask | TextTask]):
    """These tasks, each made when it is come to: of a million the driver holds none.

    ``sizes``: of each, see :func:`size`; ``tiered``: whether any has segments in remote storage. Tasks of the topics
    that brokers write have shares (:class:`ReplicaTask`), at most 1 together: half of it goes to all alike, half by the
    bytes of the files. So much is known before they are read, few bytes that become many get little, and a partition
    far larger than the others is not cut down to an average. Shares are powers of two, so that a file that grows leaves
    nearly all tasks as they are: a watch reads again what changed.
    """

    def __init__(self, inventory: Inventory, settings: dict[str, ClusterSettings], options: AuditOptions) -> None:
        self._texts = [
            TextTask(
                d.place,
                d.name,
                d.join_key,
                d.cluster_id,
                d.broker_id,
                d.texts,
                limits=options.limits,
                scope=options.scope,
            )
            for d in inventory.log_dirs
            if d.texts
        ]
        sizes, logs, internal = array("q", map(size, self._texts)), array("q"), []
        self.tiered = False
        self._begin, self._makers = [], []
        for d in inventory.log_dirs:
            self._begin.append(len(sizes))
            self._makers.append((self._maker(d, settings.get(d.join_key, ClusterSettings()), options), d.replicas))
            for c in d.replicas:
                sizes.append(c.size + OPENING_BYTES)
                if c.topic is not None:
                    logs.append(hash(_log(d, c)))  # which two logs may share: then they are compared in vain
                if c.topic in PACKED:
                    internal.append(sizes[-1])
                self.tiered |= bool(c.segments) and c.segments[0].place is not None
        self.sizes, self._internal = np.array(sizes), (len(internal), sum(internal))
        found, counts = np.unique(np.array(logs), return_counts=True)
        self._replicated = frozenset(found[counts > 1].tolist())

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[ReplicaTask | TextTask]:
        yield from self._texts
        for make, replicas in self._makers:
            yield from map(make, replicas)

    @overload
    def __getitem__(self, at: int) -> ReplicaTask | TextTask: ...
    @overload
    def __getitem__(self, at: slice) -> list[ReplicaTask | TextTask]: ...
    def __getitem__(self, at: int | slice) -> Any:
        """A task, or those of a slice."""
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(len(self)))]
        number = range(len(self))[at]
        if number < len(self._texts):
            return self._texts[number]
        of_dir = bisect.bisect_right(self._begin, number) - 1
        make, replicas = self._makers[of_dir]
        return make(replicas[number - self._begin[of_dir]])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def _maker(self, d: LogDir, cluster: ClusterSettings, options: AuditOptions) -> Callable[[Replica], ReplicaTask]:
        """What makes the tasks of a log directory's replicas."""
        of_topic, broker = cache(partial(_of_topic, d, cluster)), known_before(d, cluster, options.policy)

        def task(c: Replica) -> ReplicaTask:
            replicated = c.topic is not None and hash(_log(d, c)) in self._replicated
            share = self._share(c.size + OPENING_BYTES) if c.topic in PACKED else 1.0
            return _task(d, c, of_topic(c.topic or ""), options, replicated, broker, share)

        return task

    def _share(self, size: int) -> float:
        count, whole = self._internal
        return float(2.0 ** math.floor(math.log2(0.5 / count + 0.5 * size / whole)))


class _OfTopic(NamedTuple):
    """What the settings say of a topic in a log directory, looked up once for all its partitions."""

    policy: str | None
    expiration_ms: int
    before_ms: int | None
    tiered: ClusterSettings | None  # where older segments may lie in remote storage


def _of_topic(d: LogDir, cluster: ClusterSettings, topic: str) -> _OfTopic:
    return _OfTopic(
        cluster.topic_setting(topic, "cleanup.policy", d.broker_id),
        cluster.expiration_ms(d.broker_id),
        timestamp_limit(cluster, "before", topic, d.broker_id),
        cluster if cluster.is_tiered(topic) else None,
    )


def _log(d: LogDir, c: Replica) -> tuple[str, str | None, int | None]:
    return (d.join_key, c.topic, c.partition)


def _task(
    d: LogDir, c: Replica, of: _OfTopic, options: AuditOptions, replicated: bool, broker: Policy, share: float
) -> ReplicaTask:
    topic = c.topic or ""
    at = {kind: offsets.get((topic, c.partition or 0)) for kind, offsets in d.checkpoints.items()}
    return ReplicaTask(
        place=d.place,
        replica=c,
        cluster_id=d.cluster_id,
        broker_id=d.broker_id,
        join_key=d.join_key,
        clean_shutdown=d.clean_shutdown,
        log_start=at.get("log-start"),
        remote_from=None if of.tiered is None else remote_from(c, of.tiered, at.get("log-start")),
        high_watermark=at.get("high-watermark"),
        recovery_point=at.get("recovery-point"),
        cleaner_offset=at.get("cleaner"),
        compacted=is_compacted(topic, of.policy, at.get("cleaner")),
        cleaning_unknown=of.policy is None and "cleaner" not in d.whole_checkpoints,
        log_start_known=at.get("log-start") is not None or "log-start" in d.whole_checkpoints,
        expiration_ms=of.expiration_ms,
        before_ms=of.before_ms,
        records=options.records and topic != METADATA_TOPIC,
        digests=KEY if replicated else b"",
        policy=broker,
        share=share,
        limits=options.limits,
    )


def remote_from(c: Replica, cluster: ClusterSettings, log_start: int | None) -> int | None:
    """Where the log of a tiered topic begins if that is below its first segment here, else None.

    ``log_start``: its checkpoint; without one it is the first segment that was copied and not deleted. Source:
    KIP-405, log start offset and local log start offset.
    """
    if not c.segments:
        return None
    remote = cluster.remote.of(c.topic or "", c.partition or 0, c.topic_id)
    if remote is not None:
        first = min((s.start_offset for s in remote.finished()), default=None)
        log_start = first if log_start is None else remote.start_from(log_start)
    return log_start if log_start is not None and log_start < c.first_offset else None


def list_count(tasks: Sequence[AnyTask], cores: int) -> int:
    """In how many lists tasks are read: by their bytes, whatever number of cores is there; of a small input two a core,
    where that leaves each enough to do."""
    whole = int(sizes_of(tasks).sum())
    few = max(LISTS_PER_CORE, min(LISTS_PER_CORE * cores, whole // LEAST_BYTES))
    return max(1, few, -(-whole // TASK_BYTES))


def divide(tasks: Sequence[ReplicaTask | TextTask]) -> tuple[list[ReplicaTask], Sequence[ReplicaTask | TextTask]]:
    """The replicas to be read in parts, which would else hold up all others, and the rest.

    Replicas of one segment stay whole, and so do internal topics, whose records are decoded as well, and replicas whose
    reading goes on.
    """
    if not (sizes_of(tasks) > SPLIT_BYTES).any():
        return [], tasks
    large: list[ReplicaTask] = []
    others: list[ReplicaTask | TextTask] = []
    for task in tasks:
        if isinstance(task, ReplicaTask) and size(task) > SPLIT_BYTES and may_be_split(task):
            large.append(task)
        else:
            others.append(task)
    return large, others


def may_be_split(task: ReplicaTask) -> bool:
    """Whether a replica may be read in parts: it has more than one segment, its records are not looked at, and the
    whole of it is read."""
    return len(task.replica.segments) > 1 and not reads_records(task) and not task.resume_point


def reads_records(task: ReplicaTask) -> bool:
    """Whether the records of a replica are needed as they are stored, which packed chunks have not."""
    return task.has_internal_rows or task.replica.topic in INTERNAL_TOPICS


def segment_tasks(tasks: Sequence[ReplicaTask]) -> list[SegmentTask]:
    """A task for every segment of these replicas, one for those that lie in remote storage for several of them."""
    found: list[SegmentTask] = []
    known: dict[Hashable, int] = {}
    for k, t in enumerate(tasks):
        for number in range(len(t.replica.segments)):
            key = shared_key(t, number)
            if key is not None and key in known:
                first = found[known[key]]
                found[known[key]] = replace(first, also=(*first.also, (k, number)))
                continue
            if key is not None:
                known[key] = len(found)
            found.append(SegmentTask(t, k, number))
    return found


def sharing(tasks: Sequence[ReplicaTask | TextTask]) -> Sequence[ReplicaTask | SharingTask | TextTask]:
    """The tasks, those for replicas of a log that have segments in remote storage in common made one."""
    if isinstance(tasks, ReplicaTasks) and not tasks.tiered:
        return tasks
    groups: dict[Hashable, list[ReplicaTask]] = {}
    found: list[ReplicaTask | SharingTask | TextTask] = []
    for t in tasks:
        if isinstance(t, ReplicaTask) and t.replica.segments and shared_key(t, 0) is not None:
            groups.setdefault((t.join_key, t.replica.topic, t.replica.partition), []).append(t)
        else:
            found.append(t)
    return found + [of_log[0] if len(of_log) == 1 else SharingTask(tuple(of_log)) for of_log in groups.values()]


def size(task: AnyTask) -> int:
    """Bytes that the task reads, and a little for opening its files."""
    if isinstance(task, SegmentTask):
        return task.size + OPENING_BYTES
    return file_bytes(task) + OPENING_BYTES


def sizes_of(tasks: Sequence[AnyTask]) -> np.ndarray:
    """The :func:`size` of each."""
    if isinstance(tasks, (ReplicaTasks, LargestFirst)):
        return tasks.sizes
    return np.array([size(task) for task in tasks], np.int64)


def bytes_of(tasks: Sequence[AnyTask]) -> np.ndarray:
    """Bytes of the files that each reads."""
    found: np.ndarray = sizes_of(tasks) - OPENING_BYTES
    return found


def file_bytes(task: ReplicaTask | SharingTask | TextTask) -> int:
    """Bytes of the files that a task reads."""
    return task.replica.size if isinstance(task, ReplicaTask) else sum(f.size for f in files(task))


def files(task: ReplicaTask | SharingTask | TextTask) -> Sequence[DataFile | TextFile]:
    """The files that a task reads."""
    if isinstance(task, SharingTask):
        found = {
            (None if f.place else t.replica.log_dir, f.place, f.name): f for t in task.tasks for f in t.replica.files()
        }
        return list(found.values())
    return task.texts if isinstance(task, TextTask) else task.replica.files()


def spread(tasks: Sequence[Spread], slots: int) -> Iterator[list[Spread]]:
    """The tasks in at most ``slots`` lists of about the same bytes: the largest first, each to the lightest list.

    Memory: of many tasks one list, and the others at rest.
    """
    sizes = sizes_of(tasks)
    numbers, ranks = (array("q", bytes(8 * len(tasks))) for _ in range(2))  # of its list, and within all
    heap = [(0, number) for number in range(min(slots, len(tasks)))]
    for rank, at in enumerate(np.argsort(-sizes, kind="stable").tolist()):
        load, number = heap[0]
        heapq.heapreplace(heap, (load + int(sizes[at]), number))
        numbers[at], ranks[at] = number, rank
    placed = Gathered[tuple[tuple[int, int], Spread]](itemgetter(0))
    for number, rank, task in zip(numbers, ranks, tasks, strict=True):
        placed.append(((number, rank), task))
    for _, some in itertools.groupby(placed.merged(), key=lambda one: one[0][0]):
        yield [task for _, task in some]


class LargestFirst(Sequence[ReplicaTask | TextTask]):
    """Tasks that are made when they are come to, the largest before all others, which are in their own order: to
    go by the size of each would be to unpack them from all over the place."""

    def __init__(self, tasks: ReplicaTasks) -> None:
        self._tasks = tasks
        order = np.argsort(-tasks.sizes, kind="stable")
        self._order = np.concatenate([order[:LARGEST], np.sort(order[LARGEST:])])
        self.sizes = tasks.sizes[self._order]

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, at: object) -> Any:
        """A task, or those of a slice."""
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(len(self)))]
        return self._tasks[self._order[at]]


def largest_first(tasks: Sequence[ReplicaTask | SharingTask | TextTask]) -> Sequence[Any]:
    """The tasks with the largest first, so that nobody is left with one at the end."""
    if isinstance(tasks, ReplicaTasks) and len(tasks) > FEW:
        return LargestFirst(tasks)
    return sorted(tasks, key=size, reverse=True)
