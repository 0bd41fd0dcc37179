"""An audit's second half: the clusters that the logs are of, and what the rules find in them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from auditor.base.advice import Advice, text
from auditor.base.at_rest import Fields, Gathered, RowsSeen, Values
from auditor.base.errors import AuditInputError
from auditor.base.user_input import Scope
from auditor.connectors.logdir.inventory import written_over
from auditor.pipeline import accepted_findings, begun_inside, held
from auditor.pipeline.accepted_findings import Baseline, Verdicts
from auditor.pipeline.cluster import absent, cluster_events, context, moments, policy_choice
from auditor.pipeline.cluster.cluster_settings import ClusterSettings
from auditor.pipeline.cluster.policy_choice import PolicyChoice
from auditor.pipeline.judge import judge_log
from auditor.pipeline.log_totals import LogTotals
from auditor.pipeline.read_audit import ReadAudit
from auditor.pipeline.runner import LOG, JudgedLogs, Placed, place_of
from auditor.rules.catalogue import registry
from auditor.rules.lib import repairs
from auditor.rules.resolution.finding_limits import Kept
from auditor.rules.resolution.resolve import resolve_each, signed
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import Finding, iso

if TYPE_CHECKING:
    pass

# Of what judging gives beside findings, and a row a replica. open: transactions; readers: of a topic.
KINDS = ("open", "blocked", "readers", "aside", "timeline")


class JudgedAudit(ReadAudit):
    """What was read, judged: the findings, and the rows that pages and tables are made of."""

    @cached_property
    def clusters(self) -> dict[str, Cluster]:
        """What is known of each cluster, by join key."""
        options, size = self.options, sum(log_dir.size for log_dir in self.inventory.log_dirs)
        clusters = context.build(
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
        about = held.by_producer(self.findings, self.accepted.accepted) if len(self.judged["blocked"]) else {}

        def described(row: Fields) -> Fields:
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
        return accepted_findings.judge(self.baseline, found, self.as_of, looked_for, self.cluster_ids)

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
