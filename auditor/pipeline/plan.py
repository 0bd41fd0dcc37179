"""Plan of an audit: tasks, their lists, and a forecast of cost."""

from __future__ import annotations

import bisect
import copy
import heapq
import itertools
import math
import secrets
from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np

from auditor.base.at_rest import ExternalSort, Fields
from auditor.base.errors import MIB, bounded, is_unread
from auditor.connectors.kafka_names import METADATA_TOPIC, OWN_TOPICS
from auditor.connectors.logdir.files import Inventory, LogDir, Replica, Skipped
from auditor.connectors.logdir.internal_rows import (
    CONSUMER_OFFSETS,
    PACKED,
    REMOTE_LOG_METADATA,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
)
from auditor.connectors.tables import input_splits
from auditor.evidence.horizons import is_compacted
from auditor.evidence.which_copy import DirectoryIdentity, NamedDirectory, identities, names_by_id
from auditor.facts.batch_sums import KEY_BYTES, MOST_KEPT
from auditor.model.policies import Policy
from auditor.pipeline.cluster_settings import ClusterSettings, known_before, timestamp_limit
from auditor.pipeline.options import AuditOptions
from auditor.replay.producers.audit_replay import INTERNAL_TOPICS
from auditor.replay.reading.chunks import SegmentTask, shared_key
from auditor.replay.task import KeptTask, ReadLog, ReplicaTask, SharingTask, TextTask

# Partitions of directories that were copied or renamed in their log directory: the topic id says whose they are.


SECOND_COPY = "directory of a copied or renamed partition: see the notes"


def by_topic_id(inventory: Inventory, settings: dict[str, ClusterSettings]) -> Inventory:
    """Return the inventory with each directory as the partition that its topic id says; second copies are skipped.

    A directory that stands for its partition under another name is read as that; a note says so.
    """
    renamed = {name: some for name, some in _identities(inventory, settings) if some}
    if not renamed:
        return inventory
    log_dirs, skipped, notes = [], [], []
    for d in inventory.log_dirs:
        replicas = []
        for c in d.replicas:
            one = renamed.get(d.name, {}).get(c.folder)
            if one is None:
                replicas.append(c)
                continue
            notes.append(_note(d, c, one))
            if one.partition is None or one.beside is not None:
                skipped += [Skipped(d.name, f.name, f.size, SECOND_COPY) for f in c.files()]
            else:
                replicas.append(replace(c, topic=one.topic, partition=one.partition))
        log_dirs.append(replace(d, replicas=tuple(replicas)) if d.name in renamed else d)
    return replace(
        inventory,
        log_dirs=tuple(log_dirs),
        skipped=tuple(sorted([*inventory.skipped, *skipped])),
        notes=(*inventory.notes, *notes),
    )


def _identities(
    inventory: Inventory, settings: dict[str, ClusterSettings]
) -> Iterator[tuple[str, dict[str, DirectoryIdentity]]]:
    """Yield the partitions of directories with other names, by log directory. Cost: nothing more where all fit."""
    for join_key in dict.fromkeys(d.join_key for d in inventory.log_dirs):
        log_dirs = [d for d in inventory.log_dirs if d.join_key == join_key]
        metadata = settings.get(join_key, ClusterSettings()).metadata
        topics = {} if metadata is None else metadata.topics
        known = {topic_id: name for name, topic_id in topics.items()}
        first = dict(known)
        ids = ((c.topic_id, c.topic or "") for d in log_dirs for c in d.replicas if c.topic_id is not None)
        if all(first.setdefault(topic_id, topic) == topic for topic_id, topic in ids):
            continue
        folders = {d.name: [_named(c) for c in d.replicas if c.topic_id is not None] for d in log_dirs}
        names = names_by_id(itertools.chain.from_iterable(folders.values()), known)
        counts: dict[str, int] = {}
        for p in () if metadata is None else metadata.partitions.values():
            counts[p.topic] = max(p.partition + 1, counts.get(p.topic, 0))
        yield from ((name, identities(some, names, counts)) for name, some in folders.items())


def _named(c: Replica) -> NamedDirectory:
    last = c.segments[-1] if c.segments else None
    reach = (-1, 0) if last is None else (last.base_offset, last.size)
    return NamedDirectory(c.folder, c.topic or "", c.partition or 0, c.topic_id or "", reach)


def _note(d: LogDir, c: Replica, one: DirectoryIdentity) -> str:
    has = f"its partition.metadata has the topic id of {one.topic}"
    if one.partition is None:
        return f"{d.name}/{c.folder} is excluded: {has}, and its name does not show which partition it is"
    if one.beside is not None:
        partition = f"{one.topic}-{one.partition}, which is in {d.name}/{one.beside}"
        return f"{d.name}/{c.folder} is excluded: {has}, so it is a second copy of {partition}"
    return f"{d.name}/{c.folder} is audited as {one.topic}-{one.partition}: {has}"


# Tasks: one per replica, or one per segment of a replica far larger than others, in lists of similar size.


Item = ReplicaTask | TextTask | KeptTask | ReadLog  # of a list that one task reads
AnyTask = Item | SharingTask | SegmentTask
Spread = TypeVar("Spread", bound=AnyTask)
TASK_BYTES = 1 << 30  # of a list that one task reads: what a retry, or a preempted machine, costs again
LEAST_BYTES = 16 << 20  # below, a task costs more than it brings, however many cores are free
SPLIT_BYTES = 4 << 30  # of a replica: above, its segments are read by many tasks
LISTS_PER_CORE = 2
LIST_REPLICAS = 2_000  # of a list: their facts are one value
# Drawn by each process that plans: whoever writes logs cannot know it, and what a watch kept stays comparable.
KEY = secrets.token_bytes(KEY_BYTES)
MOST_BYTES = 1 << 50  # of a task, by which tasks are compared: a sparse file may claim exbibytes
OPENING_BYTES = 50_000  # what opening a task's files costs, as if it were so much longer


def replica_tasks(
    inventory: Inventory, settings: dict[str, ClusterSettings], options: AuditOptions
) -> Sequence[ReplicaTask | TextTask]:
    """Return a task for every live replica of the inventory, and for every directory of text dumps."""
    return ReplicaTasks(inventory, settings, options)


class ReplicaTasks(Sequence[ReplicaTask | TextTask]):
    """Tasks that are built when they are accessed, so the driver never holds a million.

    ``sizes``: of each, see :func:`size`; ``logs``: a hash of the log of each; ``texts``: the first of them, which read
    text dumps. Tasks of internal topics get shares (:class:`ReplicaTask`), at most 1 in total: half of it in equal
    parts, half by the bytes of the files. Sizes are all that is known before reading: few bytes that decode to much get
    little, and a partition far larger than the others is not cut down to an average. Shares are powers of two, so that
    a file that grows leaves nearly all tasks as they are: a watch reads again only what changed.
    """

    def __init__(self, inventory: Inventory, settings: dict[str, ClusterSettings], options: AuditOptions) -> None:
        self.texts = [
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
        sizes, logs, internal = array("q", map(size, self.texts)), array("q", map(_hash, self.texts)), []
        self._begin, self._makers = [], []
        for d in inventory.log_dirs:
            self._begin.append(len(sizes))
            self._makers.append((self._maker(d, settings.get(d.join_key, ClusterSettings()), options), d.replicas))
            for c in d.replicas:
                sizes.append(_with_opening(c.size))
                logs.append(hash(_log(d.join_key, c)))
                if c.topic in PACKED:
                    internal.append(sizes[-1])
        self.sizes, self._internal = np.array(sizes), (len(internal), sum(internal))
        self.logs = np.array(logs)
        hashes, counts = np.unique(self.logs[len(self.texts) :], return_counts=True)
        self._replicated = frozenset(hashes[counts > 1].tolist())  # where two logs share one, all is compared in vain

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: Any) -> Any:
        numbers = range(len(self))[index]
        return [self._task(number) for number in numbers] if isinstance(index, slice) else self._task(numbers)

    def __iter__(self) -> Iterator[ReplicaTask | TextTask]:
        yield from self.texts
        for make, replicas in self._makers:
            yield from map(make, replicas)

    def _task(self, number: int) -> ReplicaTask | TextTask:
        if number < len(self.texts):
            return self.texts[number]
        of_dir = bisect.bisect_right(self._begin, number) - 1
        make, replicas = self._makers[of_dir]
        return make(replicas[number - self._begin[of_dir]])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def _maker(self, d: LogDir, cluster: ClusterSettings, options: AuditOptions) -> Callable[[Replica], ReplicaTask]:
        """Return the function that builds the tasks of a log directory's replicas."""
        of_topic, broker = cache(partial(_of_topic, d, cluster)), known_before(d, cluster, options.policy)

        def task(c: Replica) -> ReplicaTask:
            replicated = c.topic is not None and hash(_log(d.join_key, c)) in self._replicated
            share = self._share(_with_opening(c.size)) if c.topic in PACKED else 1.0
            return _task(d, c, of_topic(c.topic or ""), options, replicated, broker, share)

        return task

    def _share(self, size: int) -> float:
        count, whole = self._internal
        return float(2.0 ** math.floor(math.log2(0.5 / count + 0.5 * size / whole)))


class _OfTopic(NamedTuple):
    """Settings of a topic in a log directory, looked up once for all its partitions."""

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


def _log(join_key: str, c: Replica) -> tuple[str, str, int]:
    return (join_key, c.topic or "", c.partition or 0)


def log_of(item: Item) -> tuple[str, str, int]:
    """Return what names the log of an item: the join key of its cluster, topic, partition. Of text, its directory."""
    if isinstance(item, ReplicaTask):
        return _log(item.join_key, item.replica)
    if isinstance(item, KeptTask):
        return log_of(item.task)
    return (
        (item.join_key, f"/{item.log_dir}", 0)
        if isinstance(item, TextTask)
        else (item.join_key, item.topic, item.partition)
    )


def _hash(item: Item) -> int:
    return hash(log_of(item))


def _task(
    d: LogDir, c: Replica, of: _OfTopic, options: AuditOptions, replicated: bool, broker: Policy, share: float
) -> ReplicaTask:
    topic = c.topic or ""
    key = topic, c.partition or 0
    checkpoints = {kind: bounded(offsets[key]) for kind, offsets in d.checkpoints.items() if key in offsets}
    return ReplicaTask(
        place=d.place,
        replica=c,
        cluster_id=d.cluster_id,
        broker_id=d.broker_id,
        join_key=d.join_key,
        clean_shutdown=d.clean_shutdown,
        log_start=checkpoints.get("log-start"),
        remote_from=None if of.tiered is None else remote_from(c, of.tiered, checkpoints.get("log-start")),
        high_watermark=checkpoints.get("high-watermark"),
        recovery_point=checkpoints.get("recovery-point"),
        cleaner_offset=checkpoints.get("cleaner"),
        compacted=is_compacted(topic, of.policy, checkpoints.get("cleaner")),
        cleaning_unknown=of.policy is None and "cleaner" not in d.whole_checkpoints,
        log_start_known=checkpoints.get("log-start") is not None or "log-start" in d.whole_checkpoints,
        expiration_ms=of.expiration_ms,
        before_ms=of.before_ms,
        records=options.records and topic != METADATA_TOPIC,
        digests=KEY if replicated else b"",
        sum_key=b"" if topic in OWN_TOPICS else options.sum_key,
        policy=broker,
        share=share,
        limits=options.limits,
    )


def remote_from(c: Replica, cluster: ClusterSettings, log_start: int | None) -> int | None:
    """Return the log start of a tiered topic if it is below the first local segment, else None.

    ``log_start``: its checkpoint; without one, the first segment that was copied and not deleted. Source: KIP-405, log
    start offset and local log start offset.
    """
    if not c.segments:
        return None
    remote = cluster.remote.of(c.topic or "", c.partition or 0, c.topic_id)
    if remote is not None:
        first = min((s.start_offset for s in remote.finished()), default=None)
        log_start = first if log_start is None else remote.start_from(log_start)
    return log_start if log_start is not None and log_start < c.first_offset else None


def list_count(tasks: Sequence[AnyTask], cores: int, per_core: int = LISTS_PER_CORE, least: int = LEAST_BYTES) -> int:
    """Return the number of lists that tasks are read in: by their bytes, or ``per_core`` for a small input.

    The number of cores counts only where that leaves each list ``least`` bytes.
    """
    whole = int(sizes_of(tasks).sum())
    few = max(LISTS_PER_CORE, min(per_core * cores, whole // least))
    return max(1, few, -(-whole // TASK_BYTES), -(-len(tasks) // LIST_REPLICAS))


def divide(items: Sequence[Item]) -> tuple[list[list[Item]], Sequence[Item]]:
    """Return the logs with a replica to read in parts, which would delay all others, and the items of other logs.

    Not divided are replicas of one segment, internal topics, whose records are decoded too, and resumed replicas.
    """
    sizes = sizes_of(items)
    if not (sizes > SPLIT_BYTES).any():
        return [], items
    large = {log_of(items[n]) for n in np.flatnonzero(sizes > SPLIT_BYTES) if may_be_split(items[n])}
    logs: dict[Hashable, list[Item]] = {}
    others: list[Item] = []
    for item in items:
        of_log = log_of(item)
        (logs.setdefault(of_log, []) if of_log in large else others).append(item)
    return [*logs.values()], others


def may_be_split(item: Item) -> bool:
    """Whether a replica may be read in parts: several segments, no records decoded, read from the start."""
    task = unread(item)
    return task is not None and len(task.replica.segments) > 1 and not reads_records(task) and not task.resume_point


def unread(item: Item) -> ReplicaTask | None:
    """Return the replica to read of an item, None where it has none, or its facts are there."""
    if isinstance(item, KeptTask):
        return item.task if item.at is None else None
    return item if isinstance(item, ReplicaTask) else None


def reads_records(task: ReplicaTask) -> bool:
    """Whether the stored records of a replica are needed, which packed chunks lack."""
    return task.has_internal_rows or task.replica.topic in INTERNAL_TOPICS


def segment_tasks(tasks: Sequence[ReplicaTask]) -> list[SegmentTask]:
    """Return a task per segment of these replicas, one for several that share a remote segment."""
    segments: list[SegmentTask] = []
    positions: dict[Hashable, int] = {}
    for k, t in enumerate(tasks):
        for number in range(len(t.replica.segments)):
            key = shared_key(t, number)
            if key is not None and key in positions:
                first = segments[positions[key]]
                segments[positions[key]] = replace(first, also=(*first.also, (k, number)))
                continue
            if key is not None:
                positions[key] = len(segments)
            segments.append(SegmentTask(t, k, number))
    return segments


def sharing(tasks: Sequence[ReplicaTask | TextTask]) -> list[ReplicaTask | SharingTask | TextTask]:
    """Return the tasks, with one for all replicas of a log that share remote segments."""
    groups: dict[Hashable, list[ReplicaTask]] = {}
    others: list[ReplicaTask | SharingTask | TextTask] = []
    for t in tasks:
        if isinstance(t, ReplicaTask) and t.replica.segments and shared_key(t, 0) is not None:
            groups.setdefault((t.join_key, t.replica.topic, t.replica.partition), []).append(t)
        else:
            others.append(t)
    return others + [of_log[0] if len(of_log) == 1 else SharingTask(tuple(of_log)) for of_log in groups.values()]


def size(task: AnyTask) -> int:
    """Return the bytes that the task reads, with an allowance for opening its files."""
    return _with_opening(task.size if isinstance(task, SegmentTask) else file_bytes(task))


def _with_opening(size: int) -> int:
    return bounded(size, MOST_BYTES) + OPENING_BYTES


def sizes_of(tasks: Sequence[AnyTask]) -> np.ndarray:
    """Return the :func:`size` of each task."""
    if isinstance(tasks, ReplicaTasks):
        return tasks.sizes
    return np.array([size(task) for task in tasks], np.int64)


def bytes_of(tasks: Sequence[AnyTask]) -> np.ndarray:
    """Return the file bytes that each task reads."""
    total: np.ndarray = sizes_of(tasks) - OPENING_BYTES
    return total


def file_bytes(task: Item | SharingTask) -> int:
    """Return the file bytes that a task reads."""
    return task.replica.size if isinstance(task, ReplicaTask) else sum(files(task).values())


def files(task: Item | SharingTask) -> dict[str, int]:
    """Return the paths of the files that a task reads, and their bytes."""
    if isinstance(task, SharingTask):
        return {path: size for one in task.tasks for path, size in files(one).items()}
    if isinstance(task, TextTask):
        return {f"{task.place.path}/{text.name}": text.size for text in task.texts}
    one = unread(task)
    return {} if one is None else {f"{(f.place or one.place).path}/{f.name}": f.size for f in one.replica.files()}


def spread(tasks: Sequence[Spread], slots: int) -> Iterator[list[Spread]]:
    """Yield the tasks in at most ``slots`` lists of similar size: largest first, each to the lightest list.

    Memory: one list; the other tasks are in an external sort.
    """
    sizes = sizes_of(tasks)
    numbers, ranks = (array("q", bytes(8 * len(tasks))) for _ in range(2))  # of its list, and within all
    heap = [(0, number) for number in range(min(slots, len(tasks)))]
    for rank, index in enumerate(np.argsort(-sizes, kind="stable").tolist()):
        load, number = heap[0]
        heapq.heapreplace(heap, (load + int(sizes[index]), number))
        numbers[index], ranks[index] = number, rank
    placed = ExternalSort[tuple[tuple[int, int], Spread]](itemgetter(0))
    for number, rank, task in zip(numbers, ranks, tasks, strict=True):
        placed.append(((number, rank), task))
    for _, some in itertools.groupby(placed.merged(), key=lambda one: one[0][0]):
        yield [task for _, task in some]


class WorkLists(Sequence[list[Any]]):
    """Items in about ``count`` lists of similar size, each of whole logs, built when they are accessed.

    A list has neighbours, a large log is alone in its list. Memory: some 50 bytes of each item.
    """

    def __init__(self, items: Sequence[Item], count: int) -> None:
        sizes = sizes_of(items)
        hashes = items.logs if isinstance(items, ReplicaTasks) else np.array([_hash(item) for item in items], np.int64)
        _, first, alike = np.unique(hashes, return_index=True, return_inverse=True)
        logs = np.unique(first[alike], return_inverse=True)[1]  # in the order in which they come first
        weights = np.bincount(logs, sizes, len(first))
        most = weights.sum() / count
        small = weights <= most / 2
        before = np.cumsum(np.where(small, weights, 0.0))
        number = ((before - weights / 2) / most).astype(np.int64)
        number[~small] = count + 1 + np.flatnonzero(~small)
        _, first, alike = np.unique(number, return_index=True, return_inverse=True)
        lists = first[alike][logs]  # of each item, by the log with which it begins
        self._items, self._order = items, np.lexsort((logs, lists))
        self._begin = np.flatnonzero(np.diff(lists[self._order], prepend=-1, append=len(logs) + 1))
        self.sizes = np.add.reduceat(sizes[self._order], self._begin[:-1]) if len(items) else sizes
        self.numbers = list(range(len(self.sizes)))

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Any) -> Any:
        begin, end = self._begin[self.numbers[index] :][:2]
        return [self._items[number] for number in self._order[begin:end].tolist()]

    def largest_first(self) -> WorkLists:
        """Return these lists, the largest first; ``numbers`` are those that they have here."""
        other = copy.copy(self)
        other.numbers = np.argsort(-self.sizes, kind="stable").tolist()
        return other


# Forecast of an audit from a listing: what is read, in how many tasks, time and memory.
#
# Sizes are exact, time and memory are estimates: the size of batches is unknown before they are read, so each is
# given from large batches (64 KiB) to small ones (400 bytes).


GIB = 1 << 30
OTHERS, TEXTS = "all other topics", "text dumps"
Span = tuple[float, float]  # least and most


class Rate(NamedTuple):
    """CPU seconds of one core per GiB, from large batches to small ones: reading and replaying, and writing tables."""

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
    """How an audit will run.

    ``name``: the way to run; ``at_a_time``: tasks at a time (None: the cluster knows); ``lists``: lists of replicas per
    slot (0: a task is a replica).
    """

    name: str
    at_a_time: int | None
    lists: int


def forecast(inventory: Inventory, options: AuditOptions, slots: Slots) -> Fields:
    """Return the plan of an audit as data, among others ``log_dirs``, ``topics``, ``tasks`` and ``estimate``.

    Errors: :class:`AuditInputError` for a scope that fits nothing. Cost: memory only; no file is opened, except the
    ends of time indexes where ``--since`` is a time.
    """
    read = input_splits.narrowed(inventory, options.scope)
    tasks, left = replica_tasks(read, {}, options), input_splits.left_out(inventory, read)
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
    """Kind of topic that a task reads, as in :data:`RATES`."""
    if isinstance(task, TextTask):
        return TEXTS
    topic = task.replica.topic or ""
    return topic if topic in RATES else OTHERS


def _by_topic(tasks: Iterable[ReplicaTask | TextTask]) -> list[Fields]:
    """Partitions, segments and bytes of each kind of topic, the largest first."""
    counters: dict[str, Counter[str]] = {}
    for task in tasks:
        segments = len(task.replica.segments) if isinstance(task, ReplicaTask) else 0
        more = {"partitions": 1, "segments": segments, "bytes": file_bytes(task)}
        counters.setdefault(_kind(task), Counter()).update(more)
    rows = [
        {"kind": kind} | {name: counts[name] for name in ("partitions", "segments", "bytes")}
        for kind, counts in counters.items()
    ]
    return sorted(rows, key=lambda row: (-row["bytes"], row["kind"]))


def _divided(tasks: Sequence[ReplicaTask | TextTask], slots: Slots) -> tuple[list[list[Item]], Sequence[Any]]:
    return divide(tasks) if slots.lists else ([], tasks)


def _tasks(tasks: Sequence[ReplicaTask | TextTask], slots: Slots) -> Fields:
    logs, others = _divided(tasks, slots)
    large = [task for log in logs for task in map(unread, log) if task is not None]
    lists = len(others)
    if slots.lists and slots.at_a_time:
        lists = min(lists, list_count(others, slots.at_a_time))
    largest = max(tasks, key=file_bytes, default=None)
    return {
        "way": slots.name,
        "slots": slots.at_a_time,
        "count": None if slots.at_a_time is None else lists + len(segment_tasks(large)),
        "replicas": len(tasks),
        "in_parts": len(large),
        "largest": None if largest is None else {"name": _name(largest), "bytes": file_bytes(largest)},
    }


def _name(task: ReplicaTask | TextTask) -> str:
    return task.log_dir if isinstance(task, TextTask) else f"{task.replica.log_dir}/{task.replica.folder}"


def _cpu(task: ReplicaTask | TextTask, options: AuditOptions) -> tuple[Span, Span]:
    """CPU seconds of a task: for reading the replica, and in addition for the tables."""
    size, rate = file_bytes(task) / GIB, RATES[_kind(task)]
    deep = RECORDS if options.records and _kind(task) == OTHERS else (0.0, 0.0)
    read = tuple(size * (one + more) + REPLICA_S for one, more in zip(rate.read, deep, strict=True))
    more = tuple(size * (one + d) for one, d in zip(rate.tables, deep, strict=True)) if options.tables else (0.0, 0.0)
    return read, more  # type: ignore[return-value]


def _estimate(tasks: Sequence[ReplicaTask | TextTask], options: AuditOptions, slots: Slots) -> Fields:
    """Seconds, CPU seconds and bytes of memory, each from large batches to small ones.

    Seconds are null while the number of slots is unknown.
    """
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
    size = sum(map(file_bytes, tasks))
    return {
        "seconds": seconds,
        "cpu_seconds": [round(value, 1) for value in total],
        "disk_seconds": round(size / DISK_BYTES_S, 1),
        "memory_bytes": _memory(tasks),
        "batches_of_bytes": list(BATCH_BYTES),
    }


def _headers(task: ReplicaTask, batch_bytes: int) -> int:
    """Headers of a replica that are kept for comparison: all, except of a long log on its broker's own disk."""
    batches = file_bytes(task) // batch_bytes
    return batches if any(s.place is not None for s in task.replica.segments) else min(batches, MOST_KEPT)


def _memory(tasks: Sequence[ReplicaTask | TextTask]) -> Fields:
    """Memory of the driver, of a reading worker, and of the worker that compares the largest partition's replicas."""
    replicas: dict[tuple[str, str | None, int | None], list[ReplicaTask]] = {}
    for task in tasks:
        if isinstance(task, ReplicaTask):
            replicas.setdefault((task.join_key, task.replica.topic, task.replica.partition), []).append(task)
    compared = [of_log for of_log in replicas.values() if len(of_log) > 1]
    most = [max((sum(_headers(t, size) for t in of_log) for of_log in compared), default=0) for size in BATCH_BYTES]
    comparing = [WORKER_BYTES + COMPARED_BYTES * count for count in most] if any(most) else None
    return {"driver": DRIVER_BYTES + REPLICA_BYTES * len(tasks), "worker": WORKER_BYTES, "comparing": comparing}
