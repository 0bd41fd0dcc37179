"""The audit from open to outcome."""

from __future__ import annotations

import contextlib
import datetime
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import cached_property, partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from auditor.base import user_input
from auditor.base.advice import Advice, text
from auditor.base.at_rest import ExternalSort, Fields, RowsSeen, Values
from auditor.base.errors import VENDOR, AuditInputError, DecodeError, is_unread
from auditor.base.evidence_keys import Evidence, read
from auditor.base.user_input import EVERYTHING, Scope
from auditor.base.words import plural
from auditor.connectors.kafka_names import COPY_LIST
from auditor.connectors.logdir.files import Inventory
from auditor.connectors.logdir.inventory import MIXED, discover, written_over
from auditor.connectors.logdir.tiered import with_remote
from auditor.connectors.stores import retries
from auditor.connectors.tables import input_splits
from auditor.connectors.tables.input_splits import LeftOut
from auditor.pipeline import cluster_context, cluster_settings, derived_tables, moments, plan, summary
from auditor.pipeline import judge as pipeline_judge
from auditor.pipeline import moments as pipeline_moments
from auditor.pipeline import options as pipeline_options
from auditor.pipeline import runner as pipeline_runner
from auditor.pipeline.cluster_context import Brief, PolicyChoice
from auditor.pipeline.cluster_settings import METADATA_TOPIC, ClusterSettings
from auditor.pipeline.judge import judge_log
from auditor.pipeline.options import AuditOptions, Baseline, Verdicts
from auditor.pipeline.runner import LOG, JudgedLogs, LogTotals, Placed, place_of
from auditor.processes.isolation import KILLS
from auditor.replay.task import ReplicaTask, TextTask
from auditor.rules.catalogue import registry
from auditor.rules.lib import repairs
from auditor.rules.resolution.finding_limits import LimitedFindings
from auditor.rules.resolution.resolve import resolve_each, signed
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import SEVERITIES, Finding, iso

if TYPE_CHECKING:
    import pyarrow as pa

    from auditor.pipeline.runner import Replicas, Runner


# Input that is Kafka's and holds nothing to judge: log directories without segment files, clusters without topics.


class EmptyInput(NamedTuple):
    """Why nothing could be judged. ``is_new``: a new cluster, whose metadata shows that there is nothing yet."""

    reason: str
    is_new: bool = False


NO_SEGMENTS = EmptyInput("no segment files in the input (.log)")
ONLY_METADATA = EmptyInput("no partitions in the input, only cluster metadata")
EMPTY_SEGMENTS = EmptyInput("all segment files in the input (.log) are empty")
NO_SEGMENTS_OF = "no segment files of cluster {} in the input (.log), or only empty ones"
NO_TOPICS = EmptyInput("no topics yet: the cluster's metadata has none", is_new=True)
NOTHING_VISIBLE = EmptyInput("no partitions visible: empty cluster, or missing Describe permission")
NOTHING_READABLE = EmptyInput("no visible partition could be read: see the notes")


def of_directories(
    read: Inventory, settings: Mapping[str, ClusterSettings], scope: Scope = EVERYTHING
) -> EmptyInput | None:
    """Why a cluster among log directories gives nothing to judge; None where each gives something. ``read``: what
    ``scope`` leaves. The metadata log is not counted: it says which partitions there are, not what is in them. Nor are
    logs without a byte, unless the metadata log has some: then it is known that they may be empty."""
    found: dict[str, bool] = {}
    sizes: Counter[str] = Counter()
    has_metadata = has_segments = False
    for log_dir in read.log_dirs:
        named = [c for c in log_dir.replicas if c.segments and scope.names(c.topic, c.partition)]
        has_data = bool(log_dir.texts) or any(c.topic != METADATA_TOPIC for c in named)
        found[log_dir.join_key] = found.get(log_dir.join_key, False) or has_data
        has_metadata |= any(c.topic == METADATA_TOPIC for c in named)
        has_segments |= bool(named)
        sizes[log_dir.join_key] += len(log_dir.texts) + sum(s.size for c in named for s in c.segments)
    found = {key: has_data and sizes[key] > 0 for key, has_data in found.items()}
    empty = [key for key, has_data in found.items() if not has_data]
    unknown = [key for key in empty if not _is_new(settings.get(key))]
    if not empty:
        return None
    if not unknown:
        return NO_TOPICS if len(empty) == len(found) else None
    if len(empty) == len(found):
        if has_segments and not sizes.total():
            return EMPTY_SEGMENTS
        return ONLY_METADATA if has_metadata else NO_SEGMENTS
    ids = {d.join_key: d.cluster_id or d.name for d in read.log_dirs}
    return EmptyInput(NO_SEGMENTS_OF.format(", ".join(ids[key] for key in unknown)))


def _is_new(known: ClusterSettings | None) -> bool:
    """Whether all of a cluster's metadata could be read, and has no topic."""
    return known is not None and known.metadata is not None and known.whole and not known.metadata.topics


# An audit's first half: what there is, the settings of its clusters, and the facts of every replica.


Say = Callable[[str], None]


def beside(work: Callable[..., Any], *given: object) -> Future[Any]:
    """What ``work`` comes to, in a thread that the end of the program does not wait for."""
    found: Future[Any] = Future()

    def run() -> None:
        try:
            found.set_result(work(*given))
        except BaseException as error:  # noqa: BLE001
            found.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return found


def nobody(text: str) -> None:
    """Notifies nobody."""


class ReadAudit:
    """What there is below ``options.paths``, and what a way to run reads of it: computed when asked for, and kept.

    ``timings``: seconds of each step so far; ``began``: when it was opened. ``fatal``: files that kill who reads them
    for a table, with their log directory. Errors, where the input is first asked for: :class:`AuditInputError`.
    """

    def __init__(self, options: AuditOptions, runner: Runner, say: Say = nobody) -> None:
        self.options = options
        self.runner = runner
        self.say = say
        runner.pool.waits = say
        self.timings: dict[str, float] = {}
        self.began = datetime.datetime.now(datetime.UTC)
        self.fatal: list[tuple[str, DecodeError]] = []
        self._opening: Future[Any] | None = None  # the settings, while they are read beside the runner's start
        self._steps: list[str] = []
        self._since = 0.0

    # open

    @cached_property
    def _found(self) -> Inventory:
        """What there is below the paths, the remote parts of logs for themselves."""
        with self.step("open"), retries.heard_by(self.say):
            found = discover(list(self.options.inputs), self.options.limits, self.options.scope)
        if self.options.remote and not found.remote:
            raise AuditInputError(
                f"no remote segments below {', '.join(map(user_input.shown_uri, self.options.remote))}; check --remote"
            )
        return found

    @cached_property
    def inventory(self) -> Inventory:
        """What there is below the paths, tiered logs with their remote part."""
        if not self._found.remote:
            return self._found
        known = {key: known.remote for key, known in self.settings.items()}
        return with_remote(self._found, known, self.options.scope)

    @cached_property
    def scoped(self) -> Inventory:
        """What is read of it. Errors: :class:`AuditInputError` where what was asked for fits nothing."""
        if not self.options.scope.leaves_out:
            return self.inventory
        inventory = self.inventory
        with self.step("open"), retries.heard_by(self.say):
            return input_splits.narrowed(inventory, self.options.scope)

    @property
    def cluster_ids(self) -> list[str]:
        """The ids of the clusters that are looked at, as far as they are known, sorted."""
        return sorted({id for id in self.inventory.cluster_ids.values() if id})

    @cached_property
    def left_out(self) -> LeftOut:
        """What the scope left out."""
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
        """Why the input, or all of it about one cluster, holds nothing to judge; None where it holds something."""
        asked = self.options.scope
        found = of_directories(self.scoped, self.settings, asked)
        if found is None or not asked.may_lack:
            return found
        return of_directories(self.inventory, self.settings)

    @property
    def outside(self) -> list[tuple[str, DecodeError]]:
        """What could not be read of the clusters' metadata, each with its log directory."""
        return self._opened[1]

    # read

    @cached_property
    def tasks(self) -> Sequence[ReplicaTask | TextTask]:
        """What there is to read: a task for every replica that is read."""
        return pipeline_runner.under_its_key(plan.replica_tasks(self.scoped, self.settings, self.options), self.options)

    @cached_property
    def replicas(self) -> Replicas:
        """The facts of every replica, where the runner has them."""
        if self.runner.slow_start and not self._found.remote and not self.is_known("_opened"):
            self._opening = beside(cluster_settings.read_settings, self._found, self.options.limits, self.runner.pool)
            try:
                self.ready()
            except BaseException:
                wait([self._opening])  # who closes the pool next must not do so beside it
                raise
        tasks = self.tasks
        self.ready()
        self.runner.progress = None if self.say is nobody else self._say_read
        return self.runner.read(tasks, pipeline_runner.folder(self.options))

    @cached_property
    def _planned_mb(self) -> float:
        return int(plan.bytes_of(self.tasks).sum()) / 1e6

    def _say_read(self, part: float) -> None:
        mb = self._planned_mb
        replicas = plural(len(self.tasks), "partition copy")
        self.say(f"reading {replicas}: {part * mb:,.1f} of {mb:,.1f} MB ({part:.0%})")

    def ready(self) -> None:
        """Waits until the runner has started."""
        self.runner.input_bytes = sum(log_dir.size for log_dir in self.inventory.log_dirs)
        with self.step(f"start {self.runner.name}"):
            self.runner.ready()

    @cached_property
    def briefs(self) -> list[Brief]:
        """Of every replica the little that is known everywhere."""
        replicas = self.replicas
        with self.step("read and replay"):
            self._say_read(0.0)
            found = replicas.briefs()
        if any(log_dir.texts for log_dir in self.inventory.log_dirs):  # else it is known before anything is read
            user_input.check(self.options.scope, ((b.topic, b.partition, b.broker_id) for b in found))
        return found

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Around a step's work: says its name and counts its time, without that of steps within it."""
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
        """Whether that was asked for before, so that asking again costs nothing."""
        return name in vars(self)

    def close(self) -> None:
        """Gives back what holds the facts; who asks for them again has them read again. The runner stays as it is."""
        if self.is_known("replicas"):
            vars(self).pop("replicas").close()


# An audit's second half: the clusters that the logs are of, and what the rules find in them.


# Of what judging gives beside findings, and a row a replica. open: transactions; readers: of a topic.
KINDS = ("open", "blocked", "readers", "aside", "timeline")


class JudgedAudit(ReadAudit):
    """What was read, judged: the findings, and the rows that pages and tables are made of."""

    @cached_property
    def clusters(self) -> dict[str, Cluster]:
        """What is known of each cluster, by join key."""
        options, size = self.options, sum(log_dir.size for log_dir in self.inventory.log_dirs)
        clusters = cluster_context.build(
            self.briefs,
            self.settings,
            options.as_of,
            moments.copying_ms(size),
            options.at_once,
            moments.read_at(self.inventory),
        )
        for cluster in clusters.values():
            cluster.scope = options.scope
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
        """The log directories that are of two copies in one, as far as was seen once all were read."""
        return written_over(self.inventory)

    @cached_property
    def choices(self) -> list[PolicyChoice]:
        """Which policy each log directory worked under, and why."""
        found = []
        for log_dir in self.inventory.log_dirs:
            versions = {1} if cluster_context.writes_version_1(self.briefs, log_dir.join_key) else set()
            settings = self.settings.get(log_dir.join_key, ClusterSettings())
            found.append(cluster_context.choose(log_dir, settings, versions, self.options.policy))
        return found

    @cached_property
    def kinds(self) -> list[str]:
        """The kinds of findings to look for, in the catalogue's order: of the rules that are chosen, or chosen by their
        own ids. Errors: :class:`AuditInputError` for an id that is neither."""
        options = self.options
        for name in (*options.rules, *options.skip_rules):
            if not registry.named(name):
                raise AuditInputError(f"no rule named {name!r}{registry.meant(name)}; 'auditor rules' lists them")
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
            raise AuditInputError("--rule and --skip-rule leave no rule to run; some need --records ('auditor rules')")
        return chosen

    @cached_property
    def judged(self) -> dict[str, Sequence[Any]]:
        """What judging the logs gave: findings, and rows of kind log and of each of :data:`KINDS`, in a fixed order, at
        rest where they are many.

        Those of kind finding are gone once :attr:`findings` has made one of all that have one cause.
        """
        replicas, clusters, kinds = self.replicas, self.clusters, self.kinds
        rows: dict[str, ExternalSort[Any]] = {kind: ExternalSort(place_of) for kind in KINDS}
        logs, totals = ExternalSort[Placed](itemgetter(0)), LogTotals()
        limit = self.options.max_findings
        found = LimitedFindings(registry.kinds(), limit)
        with self.step("judge"):
            judge = partial(judge_log, kinds=tuple(kinds), max_findings=limit)
            for kind, row in self.runner.judge(replicas, clusters, judge):
                if kind == LOG:
                    logs.take(row[0])
                    totals.join(row[1])
                elif kind == "finding":
                    if self._asked_for(row):
                        found.add(Finding.of(row))
                else:
                    rows[kind].append(self._addressed(row))
            done = {kind: gathered.in_order() for kind, gathered in rows.items()}
            return done | {"finding": found.findings(), LOG: JudgedLogs(logs.in_order(), totals.settled())}

    def _asked_for(self, row: Values) -> bool:
        """Whether a finding is about a partition that ``--only-partition`` names, or about none. What the metadata
        tells of topics beyond those of ``--topic`` is said."""
        named = Scope(partitions=self.options.only_partitions)
        return row["topic"] is None or named.wants_log(row["topic"], row["partition"])

    def _addressed(self, row: Fields) -> Fields:
        """A row with the commands of its advice, where it has one, as this cluster takes them."""
        if self.options.bootstrap is None or "advice" not in row:
            return row
        return row | {"advice": repairs.addressed(Advice.of(row["advice"]), self.options.bootstrap).row()}

    @property
    def logs(self) -> JudgedLogs:
        """The rows of all logs."""
        found: JudgedLogs = self.judged[LOG]  # type: ignore[assignment]
        return found

    @property
    def blocked(self) -> Sequence[Fields]:
        """The partitions whose last stable offset a transaction keeps below their end: rows of ``rules.blocking``.

        ``readers``: groups with committed offsets in the topic, at most those that ``rules.readers`` names. With what
        :func:`held.settled` adds.
        """
        groups: dict[str, set[str]] = {}
        for row in self.judged["readers"]:
            groups.setdefault(row["topic"], set()).update(row["groups"])
        about = summary.by_producer(self.findings, self.accepted.accepted) if len(self.judged["blocked"]) else {}

        def described(row: Fields) -> Fields:
            further = {"readers": sorted(groups.get(row["topic"], ())), "remedy": text(row["advice"])}
            return row | further | summary.settled(row, about, self.kinds)

        return RowsSeen(self.judged["blocked"], described)

    @cached_property
    def findings(self) -> list[Finding]:
        """The findings in the contract's order, after one cause was made one finding."""
        found = resolve_each(self.judged["finding"], {d.name: d.join_key for d in self.inventory.log_dirs})
        found = pipeline_judge.without_news(found, self._begun_inside)
        for finding in found:
            if finding.advice is not None:
                finding.advice = repairs.addressed(finding.advice, self.options.bootstrap)
        found = signed(found, self.inventory.cluster_ids)
        del self.judged["finding"]  # at the end: who interrupts this may ask again
        return found

    @cached_property
    def _begun_inside(self) -> set[tuple[str | None, int | None]]:
        """Topic and partition of the logs that were not read from their start."""
        if self.scoped is self.inventory:
            return set()
        return {(c.topic, c.partition) for d in self.scoped.log_dirs for c in d.replicas if c.unread}

    @cached_property
    def cluster_events(self) -> list[Fields]:
        """What the controller did to the partitions that findings above info name: rows of
        :func:`auditor.pipeline.moments.read_events`, in the order of the findings."""
        tasks = []
        by_dir = {log_dir.name: log_dir.join_key for log_dir in self.inventory.log_dirs}
        for key, known in self.settings.items():
            named = (
                f
                for f in self.findings
                if f.severity != "info" and by_dir.get(read(Evidence, f.evidence).get("log_dir") or "") == key
            )
            at = dict.fromkeys((f.topic, f.partition) for f in named if f.topic and f.partition is not None)
            tasks += pipeline_moments.tasks_of(known.source, list(at), self.options.limits)
        with self.step("what the cluster did"):
            return [row for rows in self.runner.pool.all(tasks, pipeline_moments.read_events) for row in rows]

    @cached_property
    def baseline(self) -> Baseline:
        """The accepted findings. Errors: :class:`AuditInputError` for a file that is none."""
        file = self.options.baseline
        return Baseline() if file is None else pipeline_options.read(file)

    @cached_property
    def accepted(self) -> Verdicts:
        """The baseline compared with the findings, by the audit's own clock."""
        if not self.baseline.entries:
            return Verdicts([None] * len(self.findings))
        options = self.options
        found = ((f.fingerprint, f.severity) for f in self.findings)
        looked_for = None if options.scope.leaves_out else frozenset(self.kinds)
        return pipeline_options.judge(self.baseline, found, self.as_of, looked_for, self.cluster_ids)

    @property
    def open_findings(self) -> list[Finding]:
        """The findings that the baseline does not accept."""
        return [f for f, entry in zip(self.findings, self.accepted.accepted, strict=True) if entry is None]

    @property
    def as_of(self) -> int:
        """The clock that the audit goes by, in ms; 0 where nobody gave one and the input tells no time."""
        return max((c.as_of for c in self.clusters.values()), default=self.options.as_of or 0)

    @property
    def as_of_text(self) -> str | None:
        """The same as results have it; None where nothing tells the time."""
        return iso(self.as_of) if self.as_of or self.options.as_of is not None else None


# The audit from top to bottom: open, read, judge, publish. The table of contents of the program.
#
# Every surface (``audit``, ``sql``, ``what-if``, ``live``, ``watch``, the tests) opens an :class:`Audit` and asks it
# for
# what it needs. Nothing is done before it is asked for, and nothing twice.


class Audit(JudgedAudit):
    """One audit of ``options.paths`` by a way to run. What it gives is computed when it is first asked for, and kept.

    What there is and is read: :class:`ReadAudit`; what the rules find: :class:`JudgedAudit`; here tables, and what came
    of it all.
    """

    def table(self, name: str) -> Any:
        """A table as the way to run has tables: Spark's DataFrame, or Arrow's table.

        Errors: :class:`AuditInputError` for a name that is none. Cost: on Spark nothing before the frame is used, but
        for the derived tables, which need the replay; else the table's files are read, and its rows held in memory.
        """
        if name not in derived_tables.NAMES:
            raise AuditInputError(f"no table named {name!r}; one of {', '.join(derived_tables.NAMES)}")
        _ = self.inventory
        self.ready()
        return self.runner.table(self, name)

    def query(self, text: str) -> pa.Table:
        """The result of an SQL text over the tables.

        Errors: :class:`AuditInputError` for a text that is wrong. Cost: what the tables that the text names cost; the
        derived ones need the replay, ``findings`` the rules too. The result is held in memory.
        """
        _ = self.inventory  # a wrong path is said before anything starts
        if (names := derived_tables.listed(text)) is not None:
            return names
        self.ready()
        return self.runner.query(self, text, derived_tables.mentioned(text))

    def held(self, table: str) -> pa.Table | None:
        """A table that is made without reading data files; None for one that is decoded or derived from facts."""
        if table == "findings":
            return summary.findings_table(self)
        if table == "blocked":
            return summary.blocked_table(self)
        return derived_tables.of_metadata(self.settings, table) if table in derived_tables.OF_METADATA else None

    def written_tables(self) -> list[str]:
        """The tables that ``--tables`` writes; ``records`` only under ``--records``. ``decode_errors`` is the last of
        those that are decoded, and so knows what reading the others died of."""
        names = [name for name in derived_tables.NAMES if name != "verdicts"]
        return [name for name in names if name != "records" or self.options.records]

    # what came of it

    def unread(self) -> list[tuple[str, DecodeError]]:
        """What could not be read or decoded so far, each with its log directory, and once: several may have tried."""
        found = [(u.log_dir, u.error) for u in self.inventory.errors]
        found += [(log_dir, error) for log_dir, error in self.outside if error.reason != VENDOR]
        found += self._errors_of_logs if self.is_known("judged") else []
        mixed = sorted(self.mixed) if self.is_known("clusters") else []
        found += [(name, DecodeError(COPY_LIST, 0, -1, "unreadable", MIXED)) for name in mixed]
        return list(dict.fromkeys(found + self.fatal))

    @property
    def _errors_of_logs(self) -> list[tuple[str, DecodeError]]:
        return [(log_dir, error) for _, log_dir, error in self.logs.totals.errors]

    def refused(self) -> dict[str, str]:
        """Paths of the files that are known to kill their reader, with the reason."""
        places = {log_dir.name: log_dir.place for log_dir in self.inventory.log_dirs}
        found = [(name, e) for name, e in self.unread() if name in places and e.detail.startswith(KILLS)]
        replicas = [(d.name, c) for d in self.inventory.log_dirs for c in d.replicas] if found else []
        remote = {(name, f.name): f.place for name, c in replicas for f in c.files() if f.place is not None}
        return {f"{remote.get((name, e.file), places[name]).path}/{e.file}": e.detail for name, e in found}

    def incomplete(self) -> bool:
        """Whether a part of the input could not be read (not: read and found damaged, in flight or gone), or there was
        nothing to judge though the cluster is not known to be new."""
        if (empty := self.empty_input) is not None and not empty.is_new:
            return True
        return any(is_unread(error.reason, error.detail) for _, error in self.unread())

    def exit_code(self) -> int:
        """0, 1 or 3 as the contract says; 3 goes before 1. What the baseline accepts does not count.

        Partitions that are held count by themselves: what is said of one may be about a log that ``--topic`` left out.
        """
        if self.incomplete():
            return 3
        level = self.options.fail_on
        failing = () if level == "never" else SEVERITIES[: SEVERITIES.index(level) + 1]
        if not failing:
            return 0
        unsure = self.options.fail_on_unsure
        found = any(f.severity in failing for f in self.open_findings)
        unlooked = unsure and self.logs.totals.unlooked.total() > 0
        return int(found or unlooked or any(summary.fails(row, failing, unsure) for row in self.blocked))

    def spared(self) -> Inventory | None:
        """The input that results must not be written into; None where it is no folder."""
        return self.inventory

    def staged(self, folder: Path) -> None:
        """Hears where its results are being gathered, before anything is read."""

    def of_summary(self) -> Fields:
        """What the summary says beyond what every audit's says."""
        return {}
