"""The page that a history of many clusters opens with: what is blocked, lost and new in any, and a row each. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from auditor.base.at_rest import Values
from auditor.base.words import duration, plural
from auditor.dashboards import board, page, trend
from auditor.dashboards.addresses import Links
from auditor.dashboards.board import Board, Cluster
from auditor.dashboards.time_axis import axis
from auditor.dashboards.trend import Lane
from auditor.dashboards.wording import GRAVE, SEVERITIES, instant


@dataclass(frozen=True, slots=True)
class Row:
    """A cluster as :mod:`auditor.outputs.runs` has it; ``facts`` and ``published`` of its last run;
    ``moments`` and ``grave``: when its runs were, in ms, and how many critical and error findings each had."""

    board: Board
    runs: int
    run_id: str
    facts: Values
    published: str
    since: str | None
    overdue: bool
    every_ms: int | None
    silent_ms: int
    moments: Sequence[int] = ()
    grave: Sequence[int] = ()

    @property
    def cluster(self) -> Cluster:
        """Which it is."""
        return self.board.cluster

    @property
    def oldest(self) -> str | None:
        """Since when its oldest hold is."""
        return board.oldest([self.board])

    @property
    def counts(self) -> dict[str, int]:
        """Its findings by severity."""
        return {name: int((self.facts.get("counts") or {}).get(name) or 0) for name in SEVERITIES}

    @property
    def accepted(self) -> int:
        """How many more findings the baseline of its last run accepted."""
        return sum((self.facts.get("accepted") or {}).values())

    @property
    def unsure(self) -> bool:
        """Whether its last run, which saw more than is read of it here, was sure of nothing being wrong."""
        kept = (self.facts.get("verdict") or {}).get("tone")
        return "unsure" in (kept, self.board.verdict.tone)

    @property
    def late(self) -> str:
        """Since when a run is missing, in words; empty where none is."""
        return missing(self.silent_ms, self.every_ms) if self.overdue else ""


def missing(silent_ms: int, every_ms: int | None) -> str:
    """That a run of a cluster is missing, in words."""
    return f"no run for {duration(silent_ms)}; one was due every {duration(every_ms)}"


def headline(rows: Sequence[Row]) -> tuple[str, str]:
    """The tone of the page and its headline: what is blocked and lost, else how many clusters have errors, and of how
    many nothing new is known."""
    held, lost = sum(len(row.board.verdict.held) for row in rows), sum(bool(row.board.verdict.lost) for row in rows)
    grave = [row for row in rows if any(row.counts[name] for name in GRAVE)]
    said = []
    if lost:
        said.append(f"Records are lost or at risk in {lost:,} of {plural(len(rows), 'cluster')}")
    if held:
        since = board.oldest([row.board for row in rows])
        of = sum(bool(row.board.verdict.held) for row in rows)
        many = f"{plural(held, 'partition')} {'is' if held == 1 else 'are'} blocked in {of:,} of "
        said.append(many + plural(len(rows), "cluster") + (f", the first since {instant(since)}" if since else ""))
    if not said and grave:
        said.append(f"Critical or error findings in {len(grave):,} of {plural(len(rows), 'cluster')}")
    elif not said:
        said.append(f"Nothing is known to be blocked in {plural(len(rows), 'cluster')}")
    late, partly = [row for row in rows if row.overdue], [row for row in rows if row.board.partly]
    also = [f"{len(late):,} overdue"] if late else []
    also += [f"{len(partly):,} read in part"] if partly else []
    bad = held or lost or any(row.counts["critical"] for row in rows)
    unsure = also or any(row.unsure for row in rows)
    return "bad" if bad else "warn" if grave else "unsure" if unsure else "good", "; ".join([*said, *also])


def render_clusters(rows: Sequence[Row], links: Links) -> str:
    """The page; ``rows`` in the order in which they are to be shown."""
    scale = axis([ms for row in rows for ms in row.moments], 0.0, trend.SMALL_WIDTH - 6)
    drawn: list[tuple[Row, Lane, list[float]]] = [(row, *trend.small(scale, row.moments, row.grave)) for row in rows]
    return page.render(
        "clusters.html.j2",
        rows=drawn,
        verdict=headline(rows),
        links=links,
        columns=board.columns([row.board for row in rows]),
        named=True,
        small=(trend.SMALL_WIDTH, trend.SMALL),
        newest=max((row.published for row in rows), default=""),
    )
