"""The page that a history of many clusters opens with: a row each, which leads into its own runs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from auditor.base.words import duration, plural
from auditor.dashboards import page
from auditor.dashboards.wording import SEVERITIES


@dataclass(frozen=True, slots=True)
class Row:
    """A cluster as :mod:`auditor.outputs.cluster_standings` has it; ``facts`` and ``published`` of its last run."""

    name: str
    runs: int
    run_id: str
    facts: Mapping[str, Any]
    published: str
    worst: str | None
    new: int | None
    gone: int | None
    since: str | None
    overdue: bool
    complete: bool
    every_ms: int | None
    silent_ms: int
    called: str = ""  # by people, where they said

    @property
    def page(self) -> str:
        """The dashboard of its runs."""
        return "?run=" + quote(self.run_id, safe="")

    @property
    def counts(self) -> dict[str, int]:
        """Its findings by severity."""
        return {name: int((self.facts.get("counts") or {}).get(name) or 0) for name in SEVERITIES}

    @property
    def accepted(self) -> int:
        """How many more findings the baseline of its last run accepted."""
        return sum((self.facts.get("accepted") or {}).values())

    @property
    def late(self) -> str:
        """Since when a run is missing, in words; empty where none is."""
        if not self.overdue:
            return ""
        return f"no run for {duration(self.silent_ms)}; one was due every {duration(self.every_ms)}"


def headline(rows: Sequence[Row]) -> tuple[str, str]:
    """The tone of the page and its headline: how many clusters are ill, and of how many nothing new is known."""
    grave = [row for row in rows if row.worst in ("critical", "error")]
    late, partly = [row for row in rows if row.overdue], [row for row in rows if not row.complete]
    also = [f"{len(late):,} overdue"] if late else []
    also += [f"{len(partly):,} not read whole"] if partly else []
    of = f"{len(grave):,} of {plural(len(rows), 'cluster')}" if grave else f"None of {plural(len(rows), 'cluster')}"
    said = f"{of} {'has' if len(grave) < 2 else 'have'} critical or error findings"
    bad = any(row.worst == "critical" for row in rows)
    return "bad" if bad else "warn" if grave else "unsure" if also else "good", "; ".join([said, *also])


def render_clusters(rows: Sequence[Row]) -> str:
    """The page; ``rows`` in the order in which they are to be shown."""
    return page.render("clusters.html.j2", rows=rows, verdict=headline(rows))
