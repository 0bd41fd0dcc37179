"""An audit from opening the input to the exit code."""

from __future__ import annotations

import contextlib
import datetime
import threading
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import cached_property, partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from auditor.base import user_input
from auditor.base.advice import Advice, text
from auditor.base.at_rest import ExternalSort, Fields, MappedRows, Values
from auditor.base.errors import VENDOR, AuditInputError, DecodeError, Made, attempt, is_unread
from auditor.base.evidence_keys import Evidence, read
from auditor.base.user_input import EVERYTHING, Scope
from auditor.base.words import SEVERITIES, few, plural
from auditor.connectors import schema
from auditor.connectors.kafka_names import (
    CHECKPOINT_KINDS,
    COPY_LIST,
    LEADER_EPOCHS,
    META,
    OF_A_BROKER,
    PARTITION_METADATA,
    QUORUM_STATE,
    WITNESSES,
)
from auditor.connectors.logdir.files import Inventory, LogDir, Replica
from auditor.connectors.logdir.inventory import MIXED, discover, written_over
from auditor.connectors.logdir.tiered import with_remote
from auditor.connectors.stores import retries
from auditor.connectors.tables import input_splits
from auditor.connectors.tables.input_splits import LeftOut
from auditor.evidence import horizons
from auditor.evidence.which_copy import OneCopy
from auditor.model.rehearsal import ClusterState
from auditor.pipeline import cluster_context, cluster_settings, derived_tables, plan, rehearsal_table, summary
from auditor.pipeline.cluster_context import Brief
from auditor.pipeline.cluster_settings import METADATA_TOPIC, ClusterSettings, PolicyChoice
from auditor.pipeline.judge import judge_log, without_old_beginnings
from auditor.pipeline.options import AuditOptions, Baseline, Verdicts, compare, read_baseline
from auditor.pipeline.runner import (
    LOG,
    JudgedLogs,
    LogTotals,
    Placed,
    place_of,
    with_lasting_key,
    work_folder_of,
)
from auditor.processes.isolation import KILLS
from auditor.replay.task import ReplicaTask, TextTask
from auditor.rules.catalogue import registry
from auditor.rules.lib import repairs
from auditor.rules.resolution.finding_limits import LimitedFindings
from auditor.rules.resolution.resolve import in_order, resolve_each, sign
from auditor.rules.seen.cluster_view import TRANSACTION_STATE, Cluster
from auditor.rules.seen.view import Finding, iso

if TYPE_CHECKING:
    import pyarrow as pa

    from auditor.pipeline.runner import Replicas, Runner


# Input of Kafka's that has nothing to judge: log directories without segments, clusters without topics.


class EmptyInput(NamedTuple):
    """Why nothing could be judged. ``is_new``: a new cluster, whose metadata shows that it has no topics yet."""

    reason: str
    is_new: bool = False


NO_SEGMENTS = EmptyInput("no segment files in the input (.log)")
ONLY_METADATA = EmptyInput("no partitions in the input, only cluster metadata")
EMPTY_SEGMENTS = EmptyInput("all segment files in the input (.log) are empty")
LOGS_LEFT_OUT = "no segment files in the input: the copy excluded the .log files{} of {}, which have {}"
NO_SEGMENTS_OF = "no segment files of cluster {} in the input (.log), or only empty ones"
NO_TOPICS = EmptyInput("no topics yet: the cluster's metadata has none", is_new=True)
NOTHING_VISIBLE = EmptyInput("no partitions visible: empty cluster, or missing Describe permission")
NOTHING_READABLE = EmptyInput("all visible partitions are unreadable: see the notes")


def of_directories(
    read: Inventory, settings: Mapping[str, ClusterSettings], scope: Scope = EVERYTHING
) -> EmptyInput | None:
    """Return why some cluster among the log directories has nothing to judge; None if each has something.

    ``read``: what ``scope`` leaves. The metadata log does not count: it lists partitions but has none of their data.
    Nor do empty logs, unless the metadata log is not empty: then it is known that they may be.
    """
    has_data_of: dict[str, bool] = {}
    sizes: Counter[str] = Counter()
    has_metadata = has_segments = False
    for log_dir in read.log_dirs:
        named = [c for c in log_dir.replicas if c.segments and scope.names(c.topic, c.partition)]
        has_data = bool(log_dir.texts) or any(c.topic != METADATA_TOPIC for c in named)
        has_data_of[log_dir.join_key] = has_data_of.get(log_dir.join_key, False) or has_data
        has_metadata |= any(c.topic == METADATA_TOPIC for c in named)
        has_segments |= bool(named)
        sizes[log_dir.join_key] += len(log_dir.texts) + sum(s.size for c in named for s in c.segments)
    has_data_of = {key: has_data and sizes[key] > 0 for key, has_data in has_data_of.items()}
    if left_out := _left_out(read, scope):
        return left_out
    empty = [key for key, has_data in has_data_of.items() if not has_data]
    unknown = [key for key in empty if not _is_new(settings.get(key))]
    if not empty:
        return None
    if not unknown:
        return NO_TOPICS if len(empty) == len(has_data_of) else None
    if len(empty) == len(has_data_of):
        if has_segments and not sizes.total():
            return EMPTY_SEGMENTS
        return ONLY_METADATA if has_metadata else NO_SEGMENTS
    ids = {d.join_key: d.cluster_id or d.name for d in read.log_dirs}
    return EmptyInput(NO_SEGMENTS_OF.format(", ".join(ids[key] for key in unknown)))


def _left_out(read: Inventory, scope: Scope) -> EmptyInput | None:
    """Return which log directories have partitions, but no segment of any besides the metadata; None for none.

    Their indexes, producer snapshots and checkpoints above 0 show that the segments were not copied.
    """
    names, partitions, shown = [], 0, dict.fromkeys(("indexes", "producer snapshots", "checkpoints above 0"), 0)
    for log_dir in read.log_dirs:
        named = [c for c in log_dir.replicas if c.topic != METADATA_TOPIC and scope.names(c.topic, c.partition)]
        if not named or log_dir.texts or any(c.segments or c.unread for c in named):
            continue
        promised = {
            (topic, partition)
            for kind in WITNESSES
            for (topic, partition), offset in log_dir.checkpoints.get(kind, {}).items()
            if offset > 0
        }
        counts = {
            "indexes": sum(bool(c.orphans) for c in named),
            "producer snapshots": sum(bool(c.snapshots) for c in named),
            "checkpoints above 0": sum((c.topic or "", c.partition or 0) in promised for c in named),
        }
        if any(counts.values()):
            names.append(log_dir.name)
            partitions += len(named)
            shown = {name: count + counts[name] for name, count in shown.items()}
    if not names:
        return None
    have = " and ".join(name for name, count in shown.items() if count)
    some = "" if len(names) == len(read.log_dirs) else f" in {few(names)}"
    return EmptyInput(LOGS_LEFT_OUT.format(some, plural(partitions, "partition directory"), have))


def _without_segments(read: Inventory) -> Iterator[str]:
    """Yield the log directories that have partition directories and not one segment."""
    for log_dir in read.log_dirs:
        if log_dir.replicas and not any(c.segments or c.unread for c in log_dir.replicas):
            yield log_dir.name


def _is_new(settings: ClusterSettings | None) -> bool:
    """Whether all of a cluster's metadata was readable, is not empty, and has no topic."""
    metadata = None if settings is None or not settings.whole else settings.metadata
    return metadata is not None and metadata.end_offset > 0 and not metadata.topics


# Kinds of evidence, beside the segments, that the input lacks.


DAMAGED, MISSING = "damaged", "missing"
_LOG_START = "log-start-offset-checkpoint"  # since 0.11, as the leader epochs
_RECOVERY_POINTS, _HIGH_WATERMARKS = "recovery-point-offset-checkpoint", "replication-offset-checkpoint"
METADATA_CHECKPOINT = "metadata checkpoint"
WHOLE_KINDS = (PARTITION_METADATA, LEADER_EPOCHS, METADATA_CHECKPOINT, TRANSACTION_STATE)
INTERNAL = ("__consumer_offsets", TRANSACTION_STATE)


class Coverage(NamedTuple):
    """A kind of evidence that is ``damaged`` or ``missing`` (``state``): the number of its files, and the first."""

    kind: str
    state: str
    files: int
    first: str


def _is_emptied(d: LogDir, c: Replica) -> bool:
    """Whether all segments of a replica are empty, though its high watermark, or directories of topics, were not."""
    if c.unread or any(segment.size for segment in c.segments):
        return False
    if c.topic == METADATA_TOPIC:
        return any(other.topic_id for other in d.replicas)
    offsets = d.checkpoints.get("high-watermark")
    return offsets is not None and offsets.get((c.topic or "", c.partition or 0), 0) > c.first_offset


def damaged_kinds(unread: Iterable[tuple[str, DecodeError]], briefs: Iterable[Brief]) -> list[Coverage]:
    """Return the kinds of evidence with damaged files, and __transaction_state where none of a log could be read."""
    files = []
    for log_dir, error in unread:
        name = error.file.rpartition("/")[2]
        kind = METADATA_CHECKPOINT if name.endswith(".checkpoint") else name
        known = kind in (LEADER_EPOCHS, PARTITION_METADATA, QUORUM_STATE, METADATA_CHECKPOINT, *OF_A_BROKER)
        if known and error.reason != "vanished":  # a broker that runs replaces and deletes them
            files.append((kind, f"{log_dir}/{error.file}"))
    for b in briefs:
        if b.topic == TRANSACTION_STATE and not b.text and b.nothing_read:
            files.append((TRANSACTION_STATE, f"{b.log_dir}/{b.topic}-{b.partition}"))
    return _kinds(DAMAGED, files)


def missing_kinds(inventory: Inventory) -> list[Coverage]:
    """Return the kinds of files that are missing though all brokers of the release write them, as others show."""
    of_broker: dict[tuple[str, int | str], set[tuple[str | None, int | None]]] = {}
    for d in inventory.log_dirs:
        of_broker.setdefault(_broker(d), set()).update((c.topic, c.partition) for c in (*d.replicas, *d.aside))
    files = (
        (kind, f"{d.name}/{file}") for d in inventory.log_dirs for kind, file in _lacking(d, of_broker[_broker(d)])
    )
    return _kinds(MISSING, files)


def _broker(d: LogDir) -> tuple[str, int | str]:
    return d.join_key, d.name if d.broker_id is None else d.broker_id


def _kinds(state: str, files: Iterable[tuple[str, str]]) -> list[Coverage]:
    by_kind: dict[str, dict[str, None]] = {}
    for kind, file in files:
        by_kind.setdefault(kind, {})[file] = None
    return [Coverage(kind, state, len(some), next(iter(some))) for kind, some in sorted(by_kind.items())]


def _lacking(d: LogDir, of_broker: Container[tuple[str | None, int | None]]) -> Iterator[tuple[str, str]]:
    """Yield the missing files by kind, with the empty ones that hold something as soon as there is data.

    ``of_broker``: the partitions with a directory in any log directory of its broker.
    """
    small = {file.name: file.size for file in d.small_files}
    if len(small.keys() & CHECKPOINT_KINDS.keys()) < 2:  # a partition's directory alone
        return
    has_data = any(s.size for c in d.replicas for s in c.segments)
    # A broker creates them empty. It writes the high watermarks within seconds, recovery points within a minute.
    later = any(small.get(name) for name in CHECKPOINT_KINDS if name != _HIGH_WATERMARKS)
    due_by = {META: True, _HIGH_WATERMARKS: has_data, _RECOVERY_POINTS: has_data and (d.clean_shutdown or later)}
    has_epochs = _LOG_START in small or any(c.leader_epochs for c in d.replicas)
    has_ids = (d.meta is not None and d.meta.version > 0) or any(c.partition_metadata for c in d.replicas)
    for name in (META, *CHECKPOINT_KINDS):
        is_empty = small.get(name) == 0 and due_by.get(name, False)
        if is_empty or (name not in small and (name != _LOG_START or has_epochs)):
            yield name, name
    for c in d.replicas:
        if c.orphans or not (c.segments or c.unread):
            yield "segment (.log)", c.orphans[0].name if c.orphans else c.folder
        elif _is_emptied(d, c):
            yield "segment (.log)", c.segments[0].name
        written = any(segment.size for segment in c.segments)
        if has_epochs and c.segments and (c.leader_epochs is None or (written and not c.leader_epochs.size)):
            yield LEADER_EPOCHS, f"{c.folder}/{LEADER_EPOCHS}"
        if has_ids and c.segments and c.partition_metadata is None:
            yield PARTITION_METADATA, f"{c.folder}/{PARTITION_METADATA}"
        if c.topic == METADATA_TOPIC and c.first_offset > 0 and all(f.kind != "checkpoint" for f in c.others):
            yield METADATA_CHECKPOINT, f"{c.folder}/*.checkpoint"
    for (topic, partition), offset in d.checkpoints.get("high-watermark", {}).items():
        if offset > 0 and (topic, partition) not in of_broker:
            yield f"directory of {topic if topic in INTERNAL else 'a partition'}", f"{topic}-{partition}"
    if (METADATA_TOPIC, 0) not in of_broker and d.meta is not None and d.meta.version > 0:
        yield f"directory of {METADATA_TOPIC}", f"{METADATA_TOPIC}-0"


# Read half of an audit: inventory, settings of the clusters, and the facts of every replica.


Say = Callable[[str], None]


def in_background(work: Callable[..., Any], *given: object) -> Future[Any]:
    """Run ``work`` in a daemon thread, which the end of the program does not wait for."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(work(*given))
        except BaseException as error:  # noqa: BLE001
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def nobody(text: str) -> None:
    """Ignore progress."""


class ReadAudit:
    """The input below ``options.paths`` and the facts read from it, computed lazily and cached.

    ``timings``: seconds of each step so far; ``began``: when it was opened. ``fatal``: files that kill their reader for
    a table, with their log directory. Errors, when the input is first needed: :class:`AuditInputError`.
    """

    def __init__(self, options: AuditOptions, runner: Runner, say: Say = nobody) -> None:
        self.options = options
        self.runner = runner
        self.say = say
        runner.pool.waits = say
        self.timings: dict[str, float] = {}
        self.began = datetime.datetime.now(datetime.UTC)
        self.fatal: list[tuple[str, DecodeError]] = []
        self.failures: list[DecodeError] = []  # of parts of the audit
        self._opening: Future[Any] | None = None  # the settings, while they are read beside the runner's start
        self._steps: list[str] = []
        self._since = 0.0

    # open

    @cached_property
    def _found(self) -> Inventory:
        """Everything below the paths, with the remote parts of logs apart."""
        with self.step("open"), retries.heard_by(self.say):
            inventory = discover(list(self.options.inputs), self.options.limits, self.options.scope)
        if self.options.remote and not inventory.remote:
            raise AuditInputError(
                f"no remote segments below {', '.join(map(user_input.shown_uri, self.options.remote))}; check --remote"
            )
        return inventory

    @cached_property
    def inventory(self) -> Inventory:
        """Everything below the paths, partitions by topic id, tiered logs with their remote part."""
        apart = {key: cluster.apart for key, cluster in self.settings.items() if cluster.apart}
        inventory = plan.by_topic_id(cluster_settings.parted(self._found, apart), self.settings)
        if not inventory.remote:
            return inventory
        remote = {key: remote.remote for key, remote in self.settings.items()}
        return with_remote(inventory, remote, self.options.scope)

    @cached_property
    def scoped(self) -> Inventory:
        """The part that is read. Errors: :class:`AuditInputError` where a filter matches nothing."""
        if not self.options.scope.leaves_out:
            return self.inventory
        inventory = self.inventory
        with self.step("open"), retries.heard_by(self.say):
            return input_splits.narrowed(inventory, self.options.scope)

    @property
    def cluster_ids(self) -> list[str]:
        """The ids of the audited clusters, as far as known, sorted."""
        return sorted({id for id in self.inventory.cluster_ids.values() if id})

    @cached_property
    def left_out(self) -> LeftOut:
        """Counts of what the scope excludes."""
        return input_splits.left_out(self.inventory, self.scoped)

    @cached_property
    def _opened(self) -> tuple[dict[str, ClusterSettings], list[tuple[str, DecodeError]]]:
        inventory = self._found
        with self.step("open"):
            if self._opening is not None:
                return self._opening.result()
            return cluster_settings.read_settings(inventory, self.options.limits, self.runner.pool)

    @property
    def settings(self) -> dict[str, ClusterSettings]:
        """The settings of each cluster by join key."""
        return self._opened[0]

    @cached_property
    def empty_input(self) -> EmptyInput | None:
        """Why the input, or all of it about one cluster, has nothing to judge; None where it has something."""
        asked = self.options.scope
        empty = of_directories(self.scoped, self.settings, asked)
        if empty is None or not asked.may_lack:
            return empty
        return of_directories(self.inventory, self.settings)

    @property
    def outside(self) -> list[tuple[str, DecodeError]]:
        """Read errors of the clusters' metadata, each with its log directory."""
        return self._opened[1]

    # read

    @cached_property
    def tasks(self) -> Sequence[ReplicaTask | TextTask]:
        """A task for every replica to read."""
        return with_lasting_key(plan.replica_tasks(self.scoped, self.settings, self.options), self.options)

    @cached_property
    def replicas(self) -> Replicas:
        """The facts of every replica, wherever the runner has them."""
        if self.runner.slow_start and not self._found.remote and not self.is_known("_opened"):
            self._opening = in_background(
                cluster_settings.read_settings, self._found, self.options.limits, self.runner.pool
            )
            try:
                self.ready()
            except BaseException:
                wait([self._opening])  # who closes the pool next must not do so beside it
                raise
        tasks = self.tasks
        self.ready()
        self.runner.progress = None if self.say is nobody else self._say_read
        return self.runner.read(tasks, work_folder_of(self.options))

    @cached_property
    def _planned_mb(self) -> float:
        return int(plan.bytes_of(self.tasks).sum()) / 1e6

    def _say_read(self, part: float, batches: int = 0) -> None:
        mb = self._planned_mb
        replicas = plural(len(self.tasks), "partition copy")
        counted = f", {plural(batches, 'batch')}" if batches else ""
        self.say(f"reading {replicas}: {part * mb:,.1f} of {mb:,.1f} MB ({part:.0%}){counted}")

    def ready(self) -> None:
        """Wait until the runner has started."""
        inventory = self.inventory if self._opening is None else self._found  # which needs no settings
        self.runner.input_bytes = sum(log_dir.size for log_dir in inventory.log_dirs)
        with self.step(f"start {self.runner.name}"):
            self.runner.ready()

    @cached_property
    def briefs(self) -> list[Brief]:
        """The brief of every replica."""
        replicas = self.replicas
        with self.step("read and replay"):
            self._say_read(0.0)
            briefs = replicas.briefs()
        if any(log_dir.texts for log_dir in self.inventory.log_dirs):  # else it is known before anything is read
            user_input.check(self.options.scope, ((b.topic, b.partition, b.broker_id) for b in briefs))
        return briefs

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Report a step's name and time its work, without the time of steps within it."""
        self._count()
        self._steps.append(name)
        self.say(name)
        try:
            yield
        finally:
            self._count()
            self._steps.pop()

    def _count(self) -> None:
        now = time.monotonic()
        if self._steps:
            name = self._steps[-1]
            self.timings[name] = round(self.timings.get(name, 0.0) + now - self._since, 3)
        self._since = now

    def is_known(self, name: str) -> bool:
        """Whether that attribute was computed, so that it costs nothing to ask for it again."""
        return name in vars(self)

    def close(self) -> None:
        """Release the facts, which are read again if needed. The runner is left as it is."""
        if self.is_known("replicas"):
            vars(self).pop("replicas").close()


# Judge half of an audit: cluster contexts and findings.


def note_starts(cluster: Cluster, log_dirs: list[LogDir], briefs: list[Brief], settings: ClusterSettings) -> None:
    """Note for each log directory of a cluster what a start does at its files, and what a newer release refuses."""
    of_dirs: dict[str, list[cluster_settings.OwnLog]] = {}
    for b in sorted(briefs, key=lambda b: b.topic != METADATA_TOPIC):
        cluster.start_of.setdefault(b.log_dir, (b.topic, b.partition))
        of_dirs.setdefault(b.log_dir, []).append((b.topic, b.partition, b.bounds.topic_id))
    for log_dir in log_dirs:
        if steps := cluster_settings.steps_at_start(log_dir, of_dirs.get(log_dir.name, []), settings):
            cluster.starts[log_dir.name] = steps
        if refused := cluster_settings.refused_by_newer(log_dir, settings):
            cluster.next_release[log_dir.name] = refused


# Of what judging gives beside findings, and a row a replica. open: transactions; readers: of a topic.
KINDS = ("open", "blocked", "readers", "aside", "timeline")


class JudgedAudit(ReadAudit):
    """A judged audit: the findings, and the rows that pages and tables are made of."""

    @cached_property
    def copy_shares(self) -> dict[tuple[str, str, int], Any]:
        """What each copy of a log counts for, where the input has several (:meth:`Cluster.copy_shares`).

        Cost: none where it has one of each log; else all are read.
        """
        dirs = self.scoped.log_dirs
        seen = Counter((d.join_key, c.topic, c.partition) for d in dirs for c in d.replicas)
        if max(seen.values(), default=0) < 2 and sum(bool(d.texts) for d in dirs) < 2:
            return {}
        copies: dict[tuple[str, str, int], list[OneCopy]] = {}
        for b in self.briefs:
            one = OneCopy(b.topic, b.partition, b.log_dir, b.broker_id, b.bounds.topic_id, b.rank, b.settled_end,
                          b.broker_time, b.first_offset)  # fmt: skip
            copies.setdefault((b.join_key, b.topic, b.partition), []).append(one)
        shares = (self.clusters[key[0]].copy_shares(some) for key, some in copies.items() if key[0] in self.clusters)
        return {place: share for of_log in shares for place, share in of_log.items()}

    @cached_property
    def clusters(self) -> dict[str, Cluster]:
        """The context of each cluster, by join key."""
        options = self.options
        clusters = cluster_context.build(
            self.briefs,
            self.settings,
            options.as_of,
            {log_dir.name: horizons.copying_ms(log_dir.size) for log_dir in self.inventory.log_dirs},
            options.at_once,
            cluster_context.read_at(self.inventory),
            self.failures,
        )
        for key, cluster in clusters.items():
            cluster.scope = options.scope
            cluster.whole = options.whole
            cluster.without_segments = frozenset(_without_segments(self.inventory))
            dirs = [log_dir for log_dir in self.inventory.log_dirs if log_dir.join_key == key]
            briefs = [b for b in self.briefs if b.join_key == key]
            note_starts(cluster, dirs, briefs, self.settings.get(key, ClusterSettings()))
        if options.whole:
            for key, cluster in clusters.items():
                cluster.absent = tuple(cluster_context.in_sync(self.inventory, key, self.settings[key], options))
        for log_dir, choice in zip(self.inventory.log_dirs, self.choices, strict=True):
            if log_dir.join_key in clusters:
                clusters[log_dir.join_key].policy[log_dir.name] = choice.policy
                clusters[log_dir.join_key].mixed |= log_dir.name in self.mixed
        return clusters

    @cached_property
    def mixed(self) -> frozenset[str]:
        """The log directories that hold two copies in one, as far as known once all were read."""
        return written_over(self.inventory)

    @cached_property
    def choices(self) -> list[PolicyChoice]:
        """The policy of each log directory, and why."""
        choices = []
        for log_dir in self.inventory.log_dirs:
            versions = {1} if cluster_context.writes_version_1(self.briefs, log_dir.join_key) else set()
            settings = self.settings.get(log_dir.join_key, ClusterSettings())
            choices.append(cluster_settings.choose(log_dir, settings, versions, self.options.policy))
        return choices

    @cached_property
    def kinds(self) -> list[str]:
        """The finding kinds to look for, in the catalogue's order, by ``--rule`` and ``--skip-rule``.

        Errors: :class:`AuditInputError` for an id that is neither a rule nor a kind.
        """
        options = self.options
        for name in (*options.rules, *options.skip_rules):
            if not registry.named(name):
                raise AuditInputError(f"no rule named {name!r}{registry.meant(name)}; run 'auditor rules' to list them")
        wanted, skipped = (
            {k.id for n in names for k in registry.named(n)} for names in (options.rules, options.skip_rules)
        )
        chosen = [
            kind.id
            for kind in registry.kinds().values()
            if (not options.rules or kind.id in wanted)
            and kind.id not in skipped
            and not kind.what_if
            and (options.records or not kind.records)
        ]
        if (options.rules or options.skip_rules) and not chosen:
            raise AuditInputError(
                "--rule and --skip-rule exclude all rules; some rules need --records (see 'auditor rules')"
            )
        return chosen

    @cached_property
    def judged(self) -> dict[str, Sequence[Any]]:
        """Results of the judge step: findings, and rows of kind log and of :data:`KINDS`, sorted, on disk if many.

        Findings are removed once :attr:`findings` has merged those with one cause.
        """
        replicas, clusters, kinds = self.replicas, self.clusters, self.kinds
        rows: dict[str, ExternalSort[Any]] = {kind: ExternalSort(place_of) for kind in KINDS}
        logs, totals = ExternalSort[Placed](itemgetter(0)), LogTotals()
        limit = self.options.max_findings
        limited = LimitedFindings(registry.kinds(), limit)
        with self.step("judge"):
            judge = partial(judge_log, kinds=tuple(kinds), max_findings=limit)
            for kind, row in self.runner.judge(replicas, clusters, judge):
                if kind == LOG:
                    logs.take(row[0])
                    totals.join(row[1])
                elif kind == "finding":
                    if self._asked_for(row):
                        limited.add(Finding.of(row))
                elif kind == "failed":
                    self.failures.append(DecodeError(**row))
                else:
                    rows[kind].append(self._addressed(row))
            done = {kind: gathered.in_order() for kind, gathered in rows.items()}
            return done | {"finding": limited.findings(), LOG: JudgedLogs(logs.in_order(), totals.settled())}

    def _asked_for(self, row: Values) -> bool:
        """Whether a finding is about a partition of ``--only-partition``, or about none.

        Findings from the metadata about topics beyond ``--topic`` are reported.
        """
        named = Scope(partitions=self.options.only_partitions)
        return row["topic"] is None or named.wants_log(row["topic"], row["partition"])

    def _addressed(self, row: Fields) -> Fields:
        """Put the bootstrap server into the commands of a row's advice, if it has one."""
        if self.options.bootstrap is None or "advice" not in row:
            return row
        return row | {"advice": repairs.addressed(Advice.of(row["advice"]), self.options.bootstrap).row()}

    @property
    def logs(self) -> JudgedLogs:
        """The rows of all logs."""
        logs: JudgedLogs = self.judged[LOG]  # type: ignore[assignment]
        return logs

    @property
    def blocked(self) -> Sequence[Fields]:
        """Blocked partitions: rows of ``judge.blocked_rows``, with what :func:`summary.run_state` adds.

        ``readers``: groups with committed offsets in the topic, limited as in ``rules.committed_offsets``.
        """
        groups: dict[str, set[str]] = {}
        for row in self.judged["readers"]:
            groups.setdefault(row["topic"], set()).update(row["groups"])
        about = summary.by_producer(self.findings, self.accepted.accepted) if len(self.judged["blocked"]) else {}

        def described(row: Fields) -> Fields:
            further = {"readers": sorted(groups.get(row["topic"], ())), "remedy": text(row["advice"])}
            of_run = self.look("a row of blocked", lambda: summary.run_state(row, about, self.kinds), summary.NO_STATE)
            return row | further | of_run

        return MappedRows(self.judged["blocked"], described)

    @cached_property
    def findings(self) -> list[Finding]:
        """The findings in the contract's order, those with one cause merged."""
        findings = self.resolved(self.judged["finding"])
        findings = without_old_beginnings(findings, self._begun_inside)
        for finding in findings:
            if finding.advice is not None:
                finding.advice = repairs.addressed(finding.advice, self.options.bootstrap)
        findings = self.signed(findings)
        del self.judged["finding"]  # at the end: who interrupts this may ask again
        return findings

    def signed(self, findings: Iterable[Finding]) -> list[Finding]:
        """Return findings in the contract's order with their fingerprints, as far as that does not fail."""
        ids = self.inventory.cluster_ids
        listed = [*findings]
        for finding in listed:
            self.look(f"the fingerprint of a finding of {finding.rule}", partial(sign, finding, ids), None)
        return in_order(listed)

    def resolved(self, findings: Iterable[Finding]) -> list[Finding]:
        """Return findings with those of one cause merged, as far as that does not fail."""
        return resolve_each(findings, {d.name: d.join_key for d in self.inventory.log_dirs}, self.failures)

    def look(self, subject: str, make: Callable[[], Made], otherwise: Any) -> Made:
        """Return what ``make`` returns, which no finding rests on; where it fails, ``otherwise``, with a read error."""
        return attempt(self.failures, f"{subject} failed", make, otherwise)

    @cached_property
    def _begun_inside(self) -> set[tuple[str | None, int | None]]:
        """Topic and partition of the logs that were not read from their start."""
        if self.scoped is self.inventory:
            return set()
        return {(c.topic, c.partition) for d in self.scoped.log_dirs for c in d.replicas if c.unread}

    @cached_property
    def cluster_events(self) -> list[Fields]:
        """Controller actions on the partitions that findings above info name, in the order of the findings.

        Rows of :func:`auditor.pipeline.cluster_settings.read_events`.
        """
        with self.step("what the cluster did"):
            return self.look("the list of what the cluster did", self._read_events, [])

    def _read_events(self) -> list[Fields]:
        tasks = []
        by_dir = {log_dir.name: log_dir.join_key for log_dir in self.inventory.log_dirs}
        for key, settings in self.settings.items():
            named = (
                f
                for f in self.findings
                if f.severity != "info" and by_dir.get(read(Evidence, f.evidence).get("log_dir") or "") == key
            )
            partitions = dict.fromkeys((f.topic, f.partition) for f in named if f.topic and f.partition is not None)
            tasks += cluster_settings.event_tasks(settings.source, list(partitions), self.options.limits)
        return [row for rows in self.runner.pool.all(tasks, cluster_settings.read_events) for row in rows]

    @cached_property
    def baseline(self) -> Baseline:
        """The accepted findings. Errors: :class:`AuditInputError` for an invalid file."""
        file = self.options.baseline
        return Baseline() if file is None else read_baseline(file)

    @cached_property
    def accepted(self) -> Verdicts:
        """The baseline compared with the findings, at the audit's evaluation time."""
        if not self.baseline.entries:
            return Verdicts([None] * len(self.findings))
        options = self.options
        findings = ((f.fingerprint, f.severity) for f in self.findings)
        looked_for = None if options.scope.leaves_out else frozenset(self.kinds)
        return compare(self.baseline, findings, self.as_of, looked_for, self.cluster_ids)

    @property
    def open_findings(self) -> list[Finding]:
        """The findings that the baseline does not accept."""
        return [f for f, entry in zip(self.findings, self.accepted.accepted, strict=True) if entry is None]

    @property
    def as_of(self) -> int:
        """The evaluation time in ms; 0 if none was given and the input has no times."""
        return max((c.as_of for c in self.clusters.values()), default=self.options.as_of or 0)

    @property
    def as_of_text(self) -> str | None:
        """The evaluation time as results have it; None if unknown."""
        return iso(self.as_of) if self.as_of or self.options.as_of is not None else None


# The whole audit: open, read, judge, publish.
#
# Every front end (``audit``, ``sql``, ``what-if``, ``live``, ``watch``, the tests) opens an :class:`Audit` and asks
# it for what it needs. Everything is computed when it is first needed, and once.


class Audit(JudgedAudit):
    """One audit of ``options.paths``; everything it gives is computed lazily and cached.

    Input and facts: :class:`ReadAudit`; findings: :class:`JudgedAudit`; here tables and the outcome.
    """

    def table(self, name: str) -> Any:
        """Return a table: Spark's DataFrame, or Arrow's table, by the way to run.

        Errors: :class:`AuditInputError` for an unknown name. Cost: on Spark none before the frame is used, except for
        derived tables, which need the replay; otherwise the table's files are read, and its rows are held in memory.
        """
        name = derived_tables.FORMERLY.get(name, name)
        if name not in derived_tables.NAMES:
            raise AuditInputError(f"no table named {name!r}: expected one of {', '.join(derived_tables.NAMES)}")
        _ = self.inventory
        self.ready()
        return self.runner.table(self, name)

    def query(self, text: str) -> pa.Table:
        """Return the result of an SQL text over the tables.

        Errors: :class:`AuditInputError` for an invalid text. Cost: that of the tables that the text names; derived ones
        need the replay, ``findings`` the rules too. The result is held in memory.
        """
        _ = self.inventory  # a wrong path is reported before anything starts
        if (names := derived_tables.listed(text)) is not None:
            return names
        self.ready()
        return self.runner.query(self, text, derived_tables.tables_in(text))

    def held(self, table: str) -> pa.Table | None:
        """Return a table that needs no data files; None for one that is decoded or derived from facts."""
        if table == "findings":
            return summary.findings_table(self)
        if table == "blocked":
            return summary.blocked_table(self)
        if table == "impact":
            return summary.impact_columns(self)
        if table == "rehearsal":
            return rehearsal_table.table_of_rows(self.rehearsal)
        held = schema.TABLES[table].made_of is schema.MadeOf.METADATA
        return derived_tables.of_metadata(self.settings, table) if held else None

    @cached_property
    def impact(self) -> list[Fields]:
        """Rows of the table ``impact``."""
        return summary.impact(self)

    @cached_property
    def recovery(self) -> list[Fields]:
        """What a start does, by log directory."""
        of_logs = partial(rehearsal_table.recovery, self.inventory, self.clusters, self.logs.totals.recovery)
        return self.look("the dry run of recovery", of_logs, [])

    @cached_property
    def states(self) -> dict[str | None, ClusterState]:
        """The state of each cluster, by its id, for a rehearsal."""
        recovery, readers = self.recovery, [*self.judged["readers"]]
        states = {}
        for key, settings in self.settings.items():
            dirs = [d for d in self.inventory.log_dirs if d.join_key == key]
            of_cluster = readers if len(self.settings) == 1 else []  # rows of groups do not name their cluster
            cluster = self.clusters.get(key)
            cluster_id = next((d.cluster_id for d in dirs), None)
            states[cluster_id] = rehearsal_table.state_by_files(dirs, settings, cluster, recovery, of_cluster)
        return states

    @cached_property
    def rehearsal(self) -> list[Fields]:
        """Rows of the table ``rehearsal``."""
        return rehearsal_table.rows_of(self.states)

    def written_tables(self) -> list[str]:
        """Return the tables that ``--tables`` writes; ``records`` only with ``--records``.

        ``decode_errors`` is the last of the decoded ones, and so includes what killed readers of the others.
        """
        names = [name for name in derived_tables.NAMES if name != "verdicts"]
        return [name for name in names if name != "records" or self.options.records]

    # what came of it

    def unread(self) -> list[tuple[str, DecodeError]]:
        """Return read and decode errors so far, each with its log directory, without repetitions by other readers."""
        errors = [(u.log_dir, u.error) for u in self.inventory.errors]
        errors += [(log_dir, error) for log_dir, error in self.outside if error.reason != VENDOR]
        errors += self._errors_of_logs if self.is_known("judged") else []
        mixed = sorted(self.mixed) if self.is_known("clusters") else []
        errors += [(name, DecodeError(COPY_LIST, 0, -1, "unreadable", MIXED)) for name in mixed]
        return list(dict.fromkeys([*errors, *self.fatal, *(("", error) for error in self.failures)]))

    @property
    def _errors_of_logs(self) -> list[tuple[str, DecodeError]]:
        return [(log_dir, error) for _, log_dir, error in self.logs.totals.errors]

    def refused(self) -> dict[str, str]:
        """Return the paths of files known to kill their reader, with the reason."""
        places = {log_dir.name: log_dir.place for log_dir in self.inventory.log_dirs}
        fatal = [(name, e) for name, e in self.unread() if name in places and e.detail.startswith(KILLS)]
        replicas = [(d.name, c) for d in self.inventory.log_dirs for c in d.replicas] if fatal else []
        remote = {(name, f.name): f.place for name, c in replicas for f in c.files() if f.place is not None}
        return {f"{remote.get((name, e.file), places[name]).path}/{e.file}": e.detail for name, e in fatal}

    @cached_property
    def _missing(self) -> list[Coverage]:
        return missing_kinds(self.inventory)

    @property
    def coverage(self) -> list[Coverage]:
        """The kinds of evidence that are damaged, as far as was read, then those that are missing from the input."""
        return [*damaged_kinds(self.unread(), self.briefs if self.is_known("briefs") else ()), *self._missing]

    def incomplete(self) -> bool:
        """Whether input was unreadable, a kind of evidence is damaged, or there was nothing to judge.

        A cluster known to be new is complete without anything to judge.
        """
        return ((empty := self.empty_input) is not None and not empty.is_new) or self.lacks_input()

    def lacks_input(self) -> bool:
        """Whether input was unreadable, or a kind of evidence is damaged."""
        if any(is_unread(error.reason, error.detail) for _, error in self.unread()):
            return True
        return any(row.state == DAMAGED and row.kind in WHOLE_KINDS for row in self.coverage)

    def exit_code(self) -> int:
        """Return 0, 1 or 3 as the contract says; 3 takes precedence over 1. Accepted findings do not count.

        Blocked partitions count on their own: the finding about one may be in a log that ``--topic`` excludes.
        """
        if self.incomplete():
            return 3
        level = self.options.fail_on
        failing = () if level == "never" else SEVERITIES[: SEVERITIES.index(level) + 1]
        if not failing:
            return 0
        unsure = self.options.fail_on_unsure
        failing_finding = any(f.severity in failing for f in self.open_findings)
        unlooked = unsure and self.logs.totals.unlooked.total() > 0
        blocked = any(summary.fails(row, failing, unsure) for row in self.blocked)
        return int(failing_finding or unlooked or blocked)

    def spared(self) -> Inventory | None:
        """Return the input, which results must not be written into; None if it is no directory."""
        return self.inventory

    def staged(self, folder: Path) -> None:
        """Hook: called with the staging directory of results before anything is read."""

    def of_summary(self) -> Fields:
        """Return additional content of the summary."""
        return {}
