"""The dashboard's pages: all clusters, one cluster, one finding."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from auditor.base.at_rest import Values
from auditor.base.transactional_ids import IdOrigin, guidance, is_flinks
from auditor.base.words import duration, plural
from auditor.dashboards import answers, page, timeline, wording
from auditor.dashboards.answers import AFFECTED, BlockedSummary, Open, RunVerdict, badness
from auditor.dashboards.timeline import TrendLane, axis, milliseconds
from auditor.dashboards.wording import GRAVE, SEVERITIES, Finding, fact, instant, log_name, short_fingerprint

# The columns on every page: what is blocked, which records are affected, what is new.


Item = TypeVar("Item")
SHOWN = 8  # of a column


class ClusterLabel(NamedTuple):
    """A cluster: ``id`` (several with commas), ``name`` (the id if it has none), and what else is configured."""

    id: str
    name: str
    owner: str = ""
    link: str = ""
    labels: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Board:
    """The status of a cluster as of a run. ``new`` and ``gone``: rows of findings above info against the run before,
    None without one; ``still``: how many are in both; ``unseen``: how many were not looked for; ``as_of``: the
    evaluation time."""

    cluster: ClusterLabel
    verdict: RunVerdict
    as_of: str | None
    new: Sequence[Finding] | None = None
    gone: Sequence[Finding] | None = None
    still: int = 0
    infos: Mapping[str, int] = field(default_factory=dict)  # infos that are new, and gone
    unseen: int = 0
    partly: str = ""


@dataclass(frozen=True, slots=True)
class Column(Generic[Item]):
    """A column: its first items with their clusters, and the number of further ones."""

    items: Sequence[tuple[ClusterLabel, Item]]
    more: int

    @property
    def count(self) -> int:
        """The number of all items."""
        return len(self.items) + self.more


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of some boards. ``compared``: whether any board has a run before it; ``open``: critical and error
    findings; ``suppressed``: findings that a baseline suppresses; ``unsure``: whether some input was not judged, or
    not all of it."""

    held: Column[BlockedSummary]
    affected: Column[Finding]
    new: Column[Finding]
    compared: bool
    open: int = 0
    suppressed: int = 0
    unsure: bool = False


def columns(boards: Sequence[Board]) -> Columns:
    """Return what is blocked, the oldest first; what is affected, by outcome; what is new, by severity."""
    blocked = [(board.cluster, row) for board in boards for row in board.verdict.held]
    affected = [(board.cluster, row) for board in boards for row in board.verdict.affected]
    new = [(board.cluster, row) for board in boards for row in board.new or ()]
    blocked.sort(key=lambda item: _begun(item[1].holder.row))
    affected.sort(key=lambda item: badness(item[1]))
    new.sort(key=lambda item: SEVERITIES.index(item[1]["severity"]))
    return Columns(
        _column(blocked),
        _column(affected),
        _column(new),
        any(board.new is not None for board in boards),
        sum(board.verdict.open for board in boards),
        sum(sum(board.verdict.suppressed.values()) for board in boards),
        any(board.partly or board.verdict.tone == "unsure" for board in boards),
    )


def oldest(boards: Iterable[Board]) -> str | None:
    """Return since when the oldest transaction blocks; None if nothing is blocked, or unknown."""
    begun = (row.holder.row.get("since") for board in boards for row in board.verdict.held)
    return min(filter(None, begun), default=None)


def _begun(row: Values) -> tuple[bool, str, int]:
    return not row.get("since"), row.get("since") or "", -(row.get("age_ms") or 0)


def _column(rows: Sequence[tuple[ClusterLabel, Item]]) -> Column[Item]:
    return Column(rows[:SHOWN], max(0, len(rows) - SHOWN))


# Stable addresses of pages, for the server and for exported files.


FRONT = "index.html"
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


def slug(name: str) -> str:
    """Return a name as a file name: unchanged if any file system and URL takes it, else a digest."""
    if _PLAIN.fullmatch(name):
        return name
    return "~" + hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:32]


def cluster(id: str) -> str:
    """Return the address of a cluster's page."""
    return f"cluster/{slug(id)}.html"


def run(run_id: str) -> str:
    """Return the address of a cluster's page as of a run."""
    return f"run/{slug(run_id)}.html"


def report(run_id: str) -> str:
    """Return the address of a run's report."""
    return f"report/{slug(run_id)}.html"


def finding(fingerprint: str) -> str:
    """Return the address of a finding's page."""
    return f"finding/{slug(fingerprint)}.html"


@dataclass(frozen=True, slots=True)
class Links:
    """Links from a page; ``up``: empty, or ``../`` to the front page; ``has``: whether a page exists. Missing pages
    get an empty link. ``unreadable``: of runs, why they cannot be read."""

    up: str = ""
    has: Callable[[str], bool] | None = None
    unreadable: Sequence[str] = ()

    @property
    def front(self) -> str:
        """The link to the front page."""
        return self.up + FRONT

    def cluster(self, id: str) -> str:
        """See :func:`cluster`."""
        return self._to(cluster(id))

    def run(self, run_id: str) -> str:
        """See :func:`run`."""
        return self._to(run(run_id))

    def report(self, run_id: str) -> str:
        """See :func:`report`."""
        return self._to(report(run_id))

    def finding(self, fingerprint: str | None) -> str:
        """See :func:`finding`."""
        return self._to(finding(fingerprint)) if fingerprint else ""

    def _to(self, path: str) -> str:
        return self.up + path if self.has is None or self.has(path) else ""


# The page of a cluster, from the manifests of its runs and their findings.


MAX_RUNS = 60  # whose findings are ranked
MAX_DRAWN = 400
MAX_CHANGES, MAX_RANKS, MAX_LISTED = 100, 25, 400

Tally = Mapping[tuple[Any, ...], Mapping[str, int]]  # findings by severity of each partition, or each producer


@dataclass(frozen=True, slots=True)
class RunPoint:
    """A kept run. ``at``: when it was made, in ms; ``counts``: findings by severity; ``facts``: of its manifest;
    ``partly``: why it does not cover what the runs before it saw."""

    run_id: str
    at: int
    as_of: str | None
    counts: Mapping[str, int]
    facts: Values
    partly: str = ""

    @property
    def accepted(self) -> int:
        """The number of findings that its baseline suppressed."""
        return sum((self.facts.get("accepted") or {}).values())

    @property
    def blocked(self) -> int | None:
        """The number of blocked partitions; None in an earlier release."""
        count = (self.facts.get("held") or {}).get("blocked")
        return None if count is None else int(count)

    @property
    def in_words(self) -> str:
        """The run on one line."""
        blocked = f"{plural(self.blocked, 'partition')} blocked, " if self.blocked else ""
        counted = blocked + ", ".join(wording.severity_count(n, self.counts[n]) for n in SEVERITIES if self.counts[n])
        also = f"; {self.accepted:,} suppressed" if self.accepted else ""
        return f"{self.run_id}, evaluated at {instant(self.as_of)}: {counted or 'no findings'}{also}"


@dataclass(frozen=True, slots=True)
class Rank:
    """A partition or producer: its findings in the run shown, and the highest severity in each run up to it."""

    key: tuple[Any, ...]
    counts: Mapping[str, int]
    worst: Sequence[str | None]

    @property
    def run_count(self) -> int:
        """The number of runs that name it."""
        return sum(worst is not None for worst in self.worst)


def step(run_id: str, created: str, facts: Values, partly: str = "") -> RunPoint:
    """Return a run from its manifest; missing counts are 0. ``created``: ISO 8601."""
    counts = {name: int((facts.get("counts") or {}).get(name) or 0) for name in SEVERITIES}
    return RunPoint(run_id, milliseconds(created), facts.get("as_of"), counts, facts, partly)


def render_overview(
    steps: Sequence[RunPoint],
    index: int,
    shown: Board | None,
    partitions: Sequence[Tally],
    producers: Sequence[Tally],
    links: Links,
    several: bool = False,
    late: str = "",
) -> str:
    """Render the page of a cluster as of the run at ``index`` of ``steps``, the oldest first; ``shown``: the status
    then, None without runs.

    ``partitions`` (cluster id, topic, partition) and ``producers`` (cluster id, transactional id, producer id): one
    tally per run, the last of the run shown; ``several``: whether there are other clusters; ``late``: that the next run
    is overdue, in words. Cost: linear.
    """
    window = steps[max(0, min(index - MAX_DRAWN // 2, len(steps) - MAX_DRAWN)) :][:MAX_DRAWN]
    new, gone = (shown.new, shown.gone) if shown else (None, None)
    return page.render(
        "runs.html.j2",
        board=shown,
        links=links,
        several=several,
        columns=columns([shown] if shown else []),
        named=False,
        steps=list(reversed(steps))[:MAX_LISTED],
        more_runs=max(0, len(steps) - MAX_LISTED),
        shown=steps[index] if steps else None,
        before=steps[index - 1] if index > 0 else None,
        latest=index >= len(steps) - 1,
        verdict=_verdict(steps[index] if steps else None, shown, late),
        trend=draw(window),
        changes=[
            (kind, title, answers.with_all_keys((rows or ())[:MAX_CHANGES], answers.FINDING), len(rows or ()))
            for kind, title, rows in (("new", "New", new), ("gone", "Resolved", gone))
        ],
        ranks=[("partitions", "Partitions", rank(partitions)), ("producers", "Producers", rank(producers))],
        max_ranks=MAX_RANKS,
    )


def _verdict(step: RunPoint | None, shown: Board | None, late: str) -> tuple[str, str]:
    # A run of an earlier release kept no verdict.
    if step is None or shown is None:
        return "unsure", "No runs yet"
    given = step.facts.get("verdict")
    tone, text = (given["tone"], given["headline"]) if given else (shown.verdict.tone, shown.verdict.headline)
    tone = "unsure" if tone == "good" and (late or shown.partly) else tone
    text = "; ".join([text, *(why for why in shown.partly.split("; ") if why and why not in text)])
    return tone, f"{text}; overdue: {late}" if late else text


def draw(steps: Sequence[RunPoint]) -> timeline.Trend[RunPoint]:
    """Draw runs over time; infos have no lane."""
    counts: dict[str, list[int | None]] = {"blocked": [point.blocked for point in steps]}
    counts |= {name: [point.counts[name] for point in steps] for name in SEVERITIES[:-1]}
    return timeline.draw_trend(steps, [point.at for point in steps], counts)


def rank(tallies: Sequence[Tally]) -> list[Rank]:
    """Rank what the runs name: by findings in the last run, the most severe first, then by the number of runs."""
    keys = list(dict.fromkeys(key for tally in reversed(tallies) for key in tally))
    rows = []
    for key in keys:
        worst = [next((name for name in SEVERITIES if tally.get(key, {}).get(name)), None) for tally in tallies]
        rows.append(Rank(key, {**dict.fromkeys(SEVERITIES, 0), **tallies[-1].get(key, {})}, worst))
    return sorted(rows, key=lambda r: (*(-r.counts[name] for name in SEVERITIES), -r.run_count, str(r.key)))


def tallied(rows: Sequence[Values], names: Sequence[str]) -> Tally:
    """Tally rows with ``names``, ``severity`` and ``count``; rows without any name are omitted."""
    tally: dict[tuple[Any, ...], Counter[str]] = {}
    for row in rows:
        if any(row[name] is not None for name in names if name != "cluster_id"):
            tally.setdefault(tuple(row[name] for name in names), Counter())[row["severity"]] += row["count"]
    return tally


# The page of all clusters.


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """The status of a cluster. ``runs``: how many it has; ``steps``: the latest of them, the oldest first;
    ``published``: when the last one was published; ``since``: since when its runs have critical or error findings;
    ``late``: that the next run is overdue, in words, else empty."""

    board: Board
    runs: int
    steps: Sequence[RunPoint]
    published: str
    since: str | None
    late: str

    @property
    def cluster(self) -> ClusterLabel:
        """Its id and names."""
        return self.board.cluster

    @property
    def last(self) -> RunPoint:
        """Its last run."""
        return self.steps[-1]

    @property
    def oldest(self) -> str | None:
        """Since when its oldest open transaction blocks."""
        return oldest([self.board])

    @property
    def counts(self) -> Mapping[str, int]:
        """Its findings by severity."""
        return self.last.counts

    @property
    def unsure(self) -> bool:
        """Whether its last run was inconclusive. Its own verdict counts, too: it saw more than is read here."""
        tone = (self.last.facts.get("verdict") or {}).get("tone")
        return "unsure" in (tone, self.board.verdict.tone)


def missing(silent_ms: int, every_ms: int | None) -> str:
    """Return that a run of a cluster is overdue, in words."""
    return f"no run for {duration(silent_ms)} (expected every {duration(every_ms)})"


def headline(rows: Sequence[ClusterRow]) -> tuple[str, str]:
    """Return the tone of the page and its headline: what is lost and blocked, else the worst outcome, else how many
    clusters have errors; then how many are overdue or incomplete."""
    blocked, lost = sum(len(row.board.verdict.held) for row in rows), sum(bool(row.board.verdict.lost) for row in rows)
    affected = [f for row in rows for f in row.board.verdict.affected]
    grave = [row for row in rows if any(row.counts[name] for name in GRAVE)]
    sentences = []
    if lost:
        sentences.append(f"Records lost in {lost:,} of {plural(len(rows), 'cluster')}")
    if blocked:
        since = oldest([row.board for row in rows])
        of = sum(bool(row.board.verdict.held) for row in rows)
        many = f"{plural(blocked, 'partition')} blocked in {of:,} of {plural(len(rows), 'cluster')}"
        sentences.append(many + (f", the first since {instant(since)}" if since else ""))
    if not sentences and affected:
        worst = min(affected, key=badness)["outcome"]
        those = [row for row in rows if worst in row.board.verdict.outcomes]
        what, word = AFFECTED[worst]
        sentences.append(f"{what.capitalize()}s {word} in {len(those):,} of {plural(len(rows), 'cluster')}")
    elif not sentences and grave:
        sentences.append(f"Critical or error findings in {len(grave):,} of {plural(len(rows), 'cluster')}")
    elif not sentences:
        sentences.append(f"No errors in {plural(len(rows), 'cluster')}")
    late, partly = [row for row in rows if row.late], [row for row in rows if row.board.partly]
    also = [f"{len(late):,} overdue"] if late else []
    also += [f"{len(partly):,} incomplete"] if partly else []
    bad = blocked or lost or any(row.counts["critical"] for row in rows)
    unsure = also or any(row.unsure for row in rows)
    return "bad" if bad else "warn" if grave else "unsure" if unsure else "good", "; ".join([*sentences, *also])


def render_clusters(rows: Sequence[ClusterRow], links: Links) -> str:
    """Render the page; ``rows`` in the order to show."""
    moments = [[step.at for step in row.steps] for row in rows]
    grave = [[sum(step.counts[name] for name in GRAVE) for step in row.steps] for row in rows]
    scale = axis([ms for times in moments for ms in times], 0.0, timeline.SMALL_WIDTH - 6)
    drawn: list[tuple[ClusterRow, TrendLane, list[float]]] = [
        (row, *timeline.small(scale, times, counts)) for row, times, counts in zip(rows, moments, grave, strict=True)
    ]
    return page.render(
        "clusters.html.j2",
        rows=drawn,
        verdict=headline(rows),
        links=links,
        columns=columns([row.board for row in rows]),
        named=True,
        small=(timeline.SMALL_WIDTH, timeline.SMALL),
        newest=max((row.published for row in rows), default=""),
    )


# The page of one finding, at a stable address.


SECTIONS = ("Checks", "Why it matters", "Can be wrong", "Source")


@dataclass(frozen=True, slots=True)
class FindingOverRuns:
    """A finding over the runs of its cluster.

    ``row``: from the last run that has it; ``held``: its blocked partition, if any; ``history``: the runs from the
    first that has it to the one that shows its status, with its severity, None where it is missing; ``whole``: whether
    all kept runs were read; ``entry``: of the last run's baseline, ``over``: why that no longer counts; ``rule``: title
    and sections, empty if it no longer exists; ``not_compared``: why the last of ``history``, which lacks it, does not
    show that it is gone.
    """

    cluster: ClusterLabel
    row: Finding
    held: BlockedSummary | None
    history: Sequence[tuple[RunPoint, str | None]]
    whole: bool
    entry: Values | None
    rule: Mapping[str, str]
    not_compared: str = ""

    @property
    def present(self) -> list[RunPoint]:
        """The runs that have it."""
        return [step for step, severity in self.history if severity is not None]

    @property
    def gone(self) -> RunPoint | None:
        """The run that no longer has it; None while it is there."""
        last, severity = self.history[-1]
        return last if severity is None else None

    @property
    def accepted(self) -> bool:
        """Whether the baseline suppresses it."""
        return self.entry is not None and self.entry["over"] is None

    @property
    def state(self) -> tuple[str, str]:
        """Its status: a colour and words."""
        if self.gone is not None:
            return ("unsure", "not checked in the latest run") if self.not_compared else ("good", "resolved")
        return ("info", "suppressed") if self.accepted else (self.row["severity"], "present in the latest run")

    @property
    def title(self) -> str:
        """Its place and the rule's title."""
        return f"{log_name(self.row) or 'The cluster'}: {self.rule.get('Title') or self.row['rule']}"


def render_finding(story: FindingOverRuns, links: Links, as_of: str | None) -> str:
    """Render the page; ``as_of``: the evaluation time of its last run."""
    row, holder = story.row, story.held.holder if story.held else None
    facts = [(name, fact(name, item)) for name, item in sorted((row["evidence"] or {}).items()) if item is not None]
    counts = {name: [int(severity == name) for _, severity in story.history] for name in SEVERITIES}
    steps = [step for step, _ in story.history]
    lanes = {name: values for name, values in counts.items() if any(values)}
    return page.render(
        "finding_page.html.j2",
        story=story,
        row=row,
        held=story.held,
        links=links,
        as_of=as_of,
        facts=facts,
        sections=SECTIONS,
        tone=story.state[0] if story.gone else "unsure" if story.accepted else _TONES[row["severity"]],
        trend=timeline.draw_trend(steps, [step.at for step in steps], lanes),
        digits=short_fingerprint(row),
        message=message(row, holder, story.cluster.name),
    )


_TONES = {"critical": "bad", "error": "bad", "warning": "warn", "info": "unsure"}


# The message for the owner of a producer, ready to be pasted.


BLANK = "____"  # for the time of the abort, to be filled in by hand


def message(finding: Finding, holder: Open | None, cluster: str, link: str = "") -> str:
    """Return the message for the owner of a producer on one line, empty if no id is named.

    ``holder``: the open transaction of the finding, if any; ``cluster``: its name; ``link``: of the finding's page.
    """
    name, group, producer = (finding.get(key) for key in ("transactional_id", "group_id", "producer_id"))
    if name is None and group is None and (holder is None or producer is None):
        return ""
    whose = None if holder is None else IdOrigin.of(holder.row)
    again = guidance(whose, "hanging") if is_flinks(whose) else "Re-send them if you need them"
    lines = page.lines(
        "owner.txt.j2", finding=finding, holder=holder, cluster=cluster, link=link, again=again, blank=BLANK
    )
    return " ".join(lines)
