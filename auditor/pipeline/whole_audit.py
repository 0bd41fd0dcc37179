"""The audit from top to bottom: open, read, judge, publish. The table of contents of the program.

Every surface (``audit``, ``sql``, ``what-if``, ``live``, ``watch``, the tests) opens an :class:`Audit` and asks it for
what it needs. Nothing is done before it is asked for, and nothing twice.
"""

from __future__ import annotations

import contextlib
import datetime
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import cached_property, partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auditor.base import scope, uris
from auditor.base.advice import Advice, text
from auditor.base.errors import VENDOR, AuditInputError, DecodeError, is_unread
from auditor.base.rows_at_rest import Gathered, RowsSeen
from auditor.base.scope import Scope
from auditor.base.words import plural
from auditor.connectors import asking, names, scoped
from auditor.connectors.files import Inventory
from auditor.connectors.inventory import MIXED, discover, written_over
from auditor.connectors.scoped import LeftOut
from auditor.connectors.tiered import with_remote
from auditor.pipeline import accepted_findings, begun_inside, held, kept_facts, plan, results
from auditor.pipeline.accepted_findings import Baseline, Verdicts
from auditor.pipeline.cluster import absent, cluster_events, cluster_settings, context, moments, policy_choice
from auditor.pipeline.cluster.cluster_settings import ClusterSettings
from auditor.pipeline.cluster.context import Brief
from auditor.pipeline.cluster.policy_choice import PolicyChoice
from auditor.pipeline.judge import judge_log
from auditor.pipeline.log_totals import LogTotals
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.runner import LOG, JudgedLogs, Placed, place_of
from auditor.pipeline.tables import derived_tables
from auditor.processes.isolation import KILLS
from auditor.replay.task.replica_task import ReplicaTask, TextTask
from auditor.rules.catalogue import registry
from auditor.rules.lib import commands
from auditor.rules.seen.finding import SEVERITIES, Finding
from auditor.rules.seen.view import Cluster
from auditor.rules.settled.fingerprint import signed
from auditor.rules.settled.floods import Kept
from auditor.rules.settled.resolve import resolve_each

if TYPE_CHECKING:
    import pyarrow as pa

    from auditor.pipeline.runner import Replicas, Runner

# Of what judging gives beside findings, and a row a replica. open: transactions; readers: of a topic.
KINDS = ("open", "blocked", "readers", "aside", "timeline")
Say = Callable[[str], None]


def beside(work: Callable[..., Any], *given: Any) -> Future[Any]:
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


class Audit:
    """One audit of ``options.paths`` by a way to run. What it gives is computed when it is first asked for, and kept.

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
        with self.step("open"), asking.heard_by(self.say):
            found = discover(list(self.options.inputs), self.options.limits, self.options.scope)
        if self.options.remote and not found.remote:
            raise AuditInputError(
                f"no remote segments below {', '.join(map(uris.shown, self.options.remote))}; check --remote"
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
        with self.step("open"), asking.heard_by(self.say):
            return scoped.narrowed(inventory, self.options.scope)

    @cached_property
    def left_out(self) -> LeftOut:
        """What the scope left out."""
        return scoped.left_out(self.inventory, self.scoped)

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

    @property
    def outside(self) -> list[tuple[str, DecodeError]]:
        """What could not be read of the clusters' metadata, each with its log directory."""
        return self._opened[1]

    # read

    @cached_property
    def tasks(self) -> Sequence[ReplicaTask | TextTask]:
        """What there is to read: a task for every replica that is read."""
        return kept_facts.under_its_key(plan.replica_tasks(self.scoped, self.settings, self.options), self.options)

    @cached_property
    def replicas(self) -> Replicas:
        """The facts of every replica, where the runner has them."""
        if self.runner.slow_start and not self._found.remote and "_opened" not in self.__dict__:
            self._opening = beside(cluster_settings.read_settings, self._found, self.options.limits, self.runner.pool)
            try:
                self.ready()
            except BaseException:
                wait([self._opening])  # who closes the pool next must not do so beside it
                raise
        tasks = self.tasks
        self.ready()
        self.runner.progress = None if self.say is nobody else self._say_read
        return self.runner.read(tasks, kept_facts.folder(self.options))

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
            scope.check(self.options.scope, ((b.topic, b.partition, b.broker_id) for b in found))
        return found

    # judge

    @cached_property
    def clusters(self) -> dict[str, Cluster]:
        """What is known of each cluster, by join key."""
        options, size = self.options, sum(log_dir.size for log_dir in self.inventory.log_dirs)
        clusters = context.build(
            self.briefs, self.settings, options.as_of, moments.copying_ms(size), options.at_once,
            moments.read_at(self.inventory),
        )  # fmt: skip
        for cluster in clusters.values():
            cluster.scope = options.scope
        if options.whole:
            for key, cluster in clusters.items():
                cluster.absent = tuple(absent.in_sync(self.inventory, key, self.settings[key], options))
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
            versions = {1} if context.writes_version_1(self.briefs, log_dir.join_key) else set()
            settings = self.settings.get(log_dir.join_key, ClusterSettings())
            found.append(policy_choice.choose(log_dir, settings, versions, self.options.policy))
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
        rows: dict[str, Gathered[Any]] = {kind: Gathered(place_of) for kind in KINDS}
        logs, totals = Gathered[Placed](itemgetter(0)), LogTotals()
        limit = self.options.max_findings
        found = Kept(registry.kinds(), limit)
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

    def _asked_for(self, row: Mapping[str, Any]) -> bool:
        """Whether a finding is about a partition that ``--only-partition`` names, or about none. What the metadata
        tells of topics beyond those of ``--topic`` is said."""
        named = Scope(partitions=self.options.only_partitions)
        return row["topic"] is None or named.wants_log(row["topic"], row["partition"])

    def _addressed(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row with the commands of its advice, where it has one, as this cluster takes them."""
        if self.options.bootstrap is None or "advice" not in row:
            return row
        return row | {"advice": commands.addressed(Advice.of(row["advice"]), self.options.bootstrap).row()}

    @property
    def logs(self) -> JudgedLogs:
        """The rows of all logs."""
        found: JudgedLogs = self.judged[LOG]  # type: ignore[assignment]
        return found

    @property
    def blocked(self) -> Sequence[dict[str, Any]]:
        """The partitions whose last stable offset a transaction keeps below their end: rows of ``rules.blocking``.

        ``readers``: groups with committed offsets in the topic, at most those that ``rules.readers`` names. With what
        :func:`held.settled` adds.
        """
        groups: dict[str, set[str]] = {}
        for row in self.judged["readers"]:
            groups.setdefault(row["topic"], set()).update(row["groups"])
        about = held.by_producer(self.findings, self.accepted.accepted) if len(self.judged["blocked"]) else {}

        def described(row: dict[str, Any]) -> dict[str, Any]:
            further = {"readers": sorted(groups.get(row["topic"], ())), "remedy": text(row["advice"])}
            return row | further | held.settled(row, about, self.kinds)

        return RowsSeen(self.judged["blocked"], described)

    @cached_property
    def findings(self) -> list[Finding]:
        """The findings in the contract's order, after one cause was made one finding."""
        found = resolve_each(self.judged["finding"], {d.name: d.join_key for d in self.inventory.log_dirs})
        found = begun_inside.without_news(found, self._begun_inside)
        for finding in found:
            if finding.advice is not None:
                finding.advice = commands.addressed(finding.advice, self.options.bootstrap)
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
    def cluster_events(self) -> list[dict[str, Any]]:
        """What the controller did to the partitions that findings above info name: rows of
        :func:`auditor.pipeline.cluster.cluster_events.read_events`, in the order of the findings."""
        tasks = []
        by_dir = {log_dir.name: log_dir.join_key for log_dir in self.inventory.log_dirs}
        for key, known in self.settings.items():
            named = (
                f for f in self.findings if f.severity != "info" and by_dir.get(f.evidence.get("log_dir", "")) == key
            )
            at = dict.fromkeys((f.topic, f.partition) for f in named if f.topic and f.partition is not None)
            tasks += cluster_events.tasks_of(known.source, list(at), self.options.limits)
        with self.step("what the cluster did"):
            return [row for rows in self.runner.pool.all(tasks, cluster_events.read_events) for row in rows]

    @cached_property
    def baseline(self) -> Baseline:
        """The accepted findings. Errors: :class:`AuditInputError` for a file that is none."""
        file = self.options.baseline
        return Baseline() if file is None else accepted_findings.read(file)

    @cached_property
    def accepted(self) -> Verdicts:
        """The baseline compared with the findings, by the audit's own clock."""
        if not self.baseline.entries:
            return Verdicts([None] * len(self.findings))
        options = self.options
        found = ((f.fingerprint, f.severity) for f in self.findings)
        looked_for = None if options.scope.leaves_out else frozenset(self.kinds)
        return accepted_findings.judge(self.baseline, found, self.as_of, looked_for, results.cluster_ids(self))

    @property
    def open_findings(self) -> list[Finding]:
        """The findings that the baseline does not accept."""
        return [f for f, entry in zip(self.findings, self.accepted.accepted, strict=True) if entry is None]

    @property
    def as_of(self) -> int:
        """The clock that the audit goes by, in ms; 0 where the input tells no time."""
        return max((c.as_of for c in self.clusters.values()), default=0)

    # tables

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
            return results.findings_table(self)
        if table == "blocked":
            return results.blocked_table(self)
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
        found += self._errors_of_logs if "judged" in self.__dict__ else []
        found += [
            (name, DecodeError(names.COPY_LIST, 0, -1, "unreadable", MIXED))
            for name in sorted(self.__dict__.get("mixed", ()))
        ]
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
        """Whether a part of the input could not be read (not: read and found damaged, in flight or gone)."""
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
        return int(found or unlooked or any(held.fails(row, failing, unsure) for row in self.blocked))

    def spared(self) -> Inventory | None:
        """The input that results must not be written into; None where it is no folder."""
        return self.inventory

    def staged(self, folder: Path) -> None:
        """Hears where its results are being gathered, before anything is read."""

    def of_summary(self) -> dict[str, Any]:
        """What the summary says beyond what every audit's says."""
        return {}

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

    def close(self) -> None:
        """Gives back what holds the facts; who asks for them again has them read again. The runner stays as it is."""
        if "replicas" in self.__dict__:
            self.__dict__.pop("replicas").close()
