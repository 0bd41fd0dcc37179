"""The dashboard over many runs: the trend, what is new and gone since the run before, and who is named most.

Pure: rows in, one page out. The numbers come from the runs' manifests and their findings; nothing is judged again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from auditor.base.words import plural
from auditor.dashboards import page, report_shapes
from auditor.dashboards.wording import SEVERITIES, instant

WIDTH, LANE, BAR = 960.0, 52.0, 34.0
FEW = 16  # runs that fill the picture
MAX_RUNS = 60  # drawn, and looked into for who is named how often
MAX_CHANGES, MAX_RANKS, MAX_LISTED = 100, 25, 400

Tally = Mapping[tuple[Any, ...], Mapping[str, int]]  # findings by severity of each partition, or each producer


@dataclass(frozen=True, slots=True)
class Step:
    """A kept run: ``counts`` of findings by severity, ``facts`` of its manifest, and where its pages are."""

    run_id: str
    as_of: str | None
    counts: Mapping[str, int]
    facts: Mapping[str, Any]

    @property
    def accepted(self) -> int:
        """How many more findings its baseline accepted."""
        return sum((self.facts.get("accepted") or {}).values())

    @property
    def page(self) -> str:
        """The dashboard as of this run."""
        return "?run=" + quote(self.run_id, safe="")

    @property
    def report(self) -> str:
        """The run's own report."""
        return "report/" + quote(self.run_id, safe="")

    @property
    def said(self) -> str:
        """The run in a line."""
        counted = ", ".join(f"{self.counts[name]:,} {name}" for name in SEVERITIES if self.counts[name])
        also = f"; {self.accepted:,} accepted" if self.accepted else ""
        return f"{self.run_id}, as of {instant(self.as_of)}: {counted or 'no findings'}{also}"


@dataclass(frozen=True, slots=True)
class Changes:
    """Findings only in the run, only in the one before it (``MAX_CHANGES`` rows of each), and how many there are."""

    new: Sequence[Mapping[str, Any]] = ()
    gone: Sequence[Mapping[str, Any]] = ()
    new_count: int = 0
    gone_count: int = 0
    still_count: int = 0


@dataclass(frozen=True, slots=True)
class Rank:
    """A partition or producer: its findings in the run shown, and the worst severity in each run up to it."""

    key: tuple[Any, ...]
    counts: Mapping[str, int]
    worst: Sequence[str | None]

    @property
    def seen(self) -> int:
        """In how many of the runs it is named."""
        return sum(worst is not None for worst in self.worst)


@dataclass(slots=True)
class Lane:
    """One severity of the trend: its bars ``(x, y, width, height, count, labelled)`` stand on ``y``."""

    severity: str
    y: float
    bars: list[tuple[float, float, float, float, int, bool]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Trend:
    """The picture of the runs: a lane a severity, each on a scale of its own, and a column a run to be clicked."""

    lanes: Sequence[Lane]
    columns: Sequence[tuple[float, float, Step]]

    @property
    def width(self) -> float:
        """In the SVG's own units: no wider than its runs, so that a narrow screen begins with the latest."""
        return sum(wide for _, wide, _ in self.columns)

    @property
    def height(self) -> float:
        """In the SVG's own units."""
        return LANE * len(self.lanes) + 8


def step(run_id: str, facts: Mapping[str, Any]) -> Step:
    """A run from its manifest; counts that it does not have are 0."""
    counts = facts.get("counts") or {}
    return Step(run_id, facts.get("as_of"), {name: int(counts.get(name) or 0) for name in SEVERITIES}, facts)


def render_overview(
    steps: Sequence[Step], shown: Step | None, changes: Changes, partitions: Sequence[Tally],
    producers: Sequence[Tally], cluster: str | None = None,
) -> str:  # fmt: skip
    """The page about ``shown`` (None where no run is kept), one of ``steps``, which are in the order they were made.

    ``changes`` against the run before it; ``partitions`` (cluster id, topic, partition) and ``producers`` (cluster id,
    transactional id, producer id) one tally a run, the last that of ``shown``; ``cluster``: whose runs these are, where
    others are kept beside them. Cost: linear in what is given.
    """
    at = steps.index(shown) if shown is not None else 0
    window = steps[max(0, min(at - MAX_RUNS // 2, len(steps) - MAX_RUNS)) :][:MAX_RUNS]
    return page.render(
        "runs.html.j2",
        cluster=cluster,
        steps=list(reversed(steps))[:MAX_LISTED],
        more_runs=max(0, len(steps) - MAX_LISTED),
        shown=shown,
        before=steps[at - 1] if at > 0 else None,
        latest=shown is None or at == len(steps) - 1,
        verdict=_verdict(shown, changes, at),
        trend=draw(window),
        changes=[
            ("new", "New", report_shapes.whole(changes.new, report_shapes.FINDING), changes.new_count),
            ("gone", "Gone", report_shapes.whole(changes.gone, report_shapes.FINDING), changes.gone_count),
        ],
        still=changes.still_count,
        ranks=[("partitions", "Partitions", rank(partitions)), ("producers", "Producers", rank(producers))],
        max_ranks=MAX_RANKS,
    )


def _verdict(shown: Step | None, changes: Changes, at: int) -> tuple[str, str]:
    """The tone of the page and its headline."""
    if shown is None:
        return "unsure", "No run is kept here yet"
    grave = shown.counts["critical"] + shown.counts["error"]
    tone = "bad" if shown.counts["critical"] else "warn" if grave or shown.counts["warning"] else "good"
    if not shown.facts.get("complete", True) and tone == "good":
        tone = "unsure"
    if at == 0:
        return tone, plural(sum(shown.counts.values()), "finding") + " in the first run"
    if not changes.new_count and not changes.gone_count:
        return tone, "Nothing has changed since the run before"
    return (
        tone,
        f"{plural(changes.new_count, 'new finding')}, {changes.gone_count:,} gone, {changes.still_count:,} still there",
    )


def rank(tallies: Sequence[Tally]) -> list[Rank]:
    """Whoever the runs name: the worst and most findings in the last run first, then the most runs."""
    keys = list(dict.fromkeys(key for tally in reversed(tallies) for key in tally))
    rows = []
    for key in keys:
        worst = [next((name for name in SEVERITIES if tally.get(key, {}).get(name)), None) for tally in tallies]
        rows.append(Rank(key, {**dict.fromkeys(SEVERITIES, 0), **tallies[-1].get(key, {})}, worst))
    return sorted(rows, key=lambda r: (*(-r.counts[name] for name in SEVERITIES), -r.seen, str(r.key)))


def tallied(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Tally:
    """Rows of ``names``, ``severity`` and ``count`` as a tally; rows that name nobody are left out."""
    found: dict[tuple[Any, ...], Counter[str]] = {}
    for row in rows:
        if any(row[name] is not None for name in names if name != "cluster_id"):
            found.setdefault(tuple(row[name] for name in names), Counter())[row["severity"]] += row["count"]
    return found


def draw(steps: Sequence[Step]) -> Trend:
    """Lays the trend out. Bars say their number where it changes."""
    wide = WIDTH / max(len(steps), FEW)
    lanes = []
    for n, name in enumerate(SEVERITIES):
        lane = Lane(name, LANE * (n + 1))
        most = max((each.counts[name] for each in steps), default=0) or 1
        before = None
        for at, each in enumerate(steps):
            count = each.counts[name]
            high = round(max(2.0, BAR * count / most), 1) if count else 0.0
            x = round(at * wide + wide * 0.12, 1)
            lane.bars.append((x, lane.y - high, round(wide * 0.76, 1), high, count, count != before and count > 0))
            before = count
        lanes.append(lane)
    return Trend(lanes, [(round(at * wide, 1), round(wide, 1), each) for at, each in enumerate(steps)])
