"""The page of a cluster: what is blocked, lost and new, the trend, what is gone, and who is named most.

Pure: rows in, one page out. The numbers come from the runs' manifests and their findings; nothing is judged again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from auditor.base.at_rest import Values
from auditor.base.words import plural
from auditor.dashboards import board, page, report_shapes, trend
from auditor.dashboards.addresses import Links
from auditor.dashboards.board import Board
from auditor.dashboards.time_axis import milliseconds
from auditor.dashboards.wording import SEVERITIES, instant

MAX_RUNS = 60  # looked into for who is named how often
MAX_DRAWN = 400
MAX_CHANGES, MAX_RANKS, MAX_LISTED = 100, 25, 400

Tally = Mapping[tuple[Any, ...], Mapping[str, int]]  # findings by severity of each partition, or each producer


@dataclass(frozen=True, slots=True)
class Step:
    """A kept run, made ``at`` a time in ms: ``counts`` of findings by severity, ``facts`` of its manifest; ``partly``:
    why it does not answer for all that the runs before it saw."""

    run_id: str
    at: int
    as_of: str | None
    counts: Mapping[str, int]
    facts: Values
    partly: str = ""

    @property
    def accepted(self) -> int:
        """How many more findings its baseline accepted."""
        return sum((self.facts.get("accepted") or {}).values())

    @property
    def blocked(self) -> int | None:
        """How many partitions were blocked; None where an earlier release kept it."""
        found = (self.facts.get("held") or {}).get("blocked")
        return None if found is None else int(found)

    @property
    def said(self) -> str:
        """The run in a line."""
        held = f"{plural(self.blocked, 'partition')} blocked, " if self.blocked else ""
        counted = held + ", ".join(f"{self.counts[name]:,} {name}" for name in SEVERITIES if self.counts[name])
        also = f"; {self.accepted:,} accepted" if self.accepted else ""
        return f"{self.run_id}, as of {instant(self.as_of)}: {counted or 'no findings'}{also}"


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


def step(run_id: str, created: str, facts: Values, partly: str = "") -> Step:
    """A run from its manifest; counts that it does not have are 0. ``created``: ISO 8601."""
    counts = {name: int((facts.get("counts") or {}).get(name) or 0) for name in SEVERITIES}
    return Step(run_id, milliseconds(created), facts.get("as_of"), counts, facts, partly)


def render_overview(
    steps: Sequence[Step],
    at: int,
    shown: Board | None,
    partitions: Sequence[Tally],
    producers: Sequence[Tally],
    links: Links,
    several: bool = False,
    late: str = "",
) -> str:
    """The page about the run ``at`` that place of ``steps``, which are in the order they were made; ``shown``: how its
    cluster stood then (None where no run is kept).

    ``partitions`` (cluster id, topic, partition) and ``producers`` (cluster id, transactional id, producer id) one
    tally a run, the last that of the run; ``several``: whether there are other clusters; ``late``: that a run is
    missing, in words. Cost: linear in what is given.
    """
    window = steps[max(0, min(at - MAX_DRAWN // 2, len(steps) - MAX_DRAWN)) :][:MAX_DRAWN]
    new, gone = (shown.new, shown.gone) if shown else (None, None)
    return page.render(
        "runs.html.j2",
        board=shown,
        links=links,
        several=several,
        columns=board.columns([shown] if shown else []),
        named=False,
        steps=list(reversed(steps))[:MAX_LISTED],
        more_runs=max(0, len(steps) - MAX_LISTED),
        shown=steps[at] if steps else None,
        before=steps[at - 1] if at > 0 else None,
        latest=at >= len(steps) - 1,
        verdict=_verdict(steps[at] if steps else None, shown, late),
        trend=draw(window),
        changes=[
            (kind, title, report_shapes.whole((rows or ())[:MAX_CHANGES], report_shapes.FINDING), len(rows or ()))
            for kind, title, rows in (("new", "New", new), ("gone", "Gone", gone))
        ],
        ranks=[("partitions", "Partitions", rank(partitions)), ("producers", "Producers", rank(producers))],
        max_ranks=MAX_RANKS,
    )


def _verdict(step: Step | None, shown: Board | None, late: str) -> tuple[str, str]:
    """The tone of the page and its headline: the run's own, or of a run of the past one by what was kept of it."""
    if step is None or shown is None:
        return "unsure", "No run is kept here yet"
    given = step.facts.get("verdict")
    tone, said = (given["tone"], given["headline"]) if given else (shown.verdict.tone, shown.verdict.headline)
    return "unsure" if tone == "good" and (late or shown.partly) else tone, f"{said}; overdue: {late}" if late else said


def draw(steps: Sequence[Step]) -> trend.Trend[Step]:
    """Runs over time; infos have no lane."""
    counts: dict[str, list[int | None]] = {"blocked": [each.blocked for each in steps]}
    counts |= {name: [each.counts[name] for each in steps] for name in SEVERITIES[:-1]}
    return trend.draw(steps, [each.at for each in steps], counts)


def rank(tallies: Sequence[Tally]) -> list[Rank]:
    """Whoever the runs name: the worst and most findings in the last run first, then the most runs."""
    keys = list(dict.fromkeys(key for tally in reversed(tallies) for key in tally))
    rows = []
    for key in keys:
        worst = [next((name for name in SEVERITIES if tally.get(key, {}).get(name)), None) for tally in tallies]
        rows.append(Rank(key, {**dict.fromkeys(SEVERITIES, 0), **tallies[-1].get(key, {})}, worst))
    return sorted(rows, key=lambda r: (*(-r.counts[name] for name in SEVERITIES), -r.seen, str(r.key)))


def tallied(rows: Sequence[Values], names: Sequence[str]) -> Tally:
    """Rows of ``names``, ``severity`` and ``count`` as a tally; rows that name nobody are left out."""
    found: dict[tuple[Any, ...], Counter[str]] = {}
    for row in rows:
        if any(row[name] is not None for name in names if name != "cluster_id"):
            found.setdefault(tuple(row[name] for name in names), Counter())[row["severity"]] += row["count"]
    return found
