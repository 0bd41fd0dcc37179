"""How the clusters stand whose runs are kept in one folder: each by its own runs, and whether one is overdue."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from auditor.outputs import changes, runs
from auditor.outputs.runs import Run
from auditor.outputs.shelf import Shelf
from auditor.rules.seen.view import GRAVE, SEVERITIES

GAPS = 10  # between the latest runs, from which it is seen how often a cluster is audited
LEAST_GAPS = 2
HOUR_MS = 3_600_000  # runs closer than that are somebody's tries, no schedule


@dataclass(frozen=True, slots=True)
class Standing:
    """A cluster by its kept runs: ``name`` its id (several with commas, empty for none known); ``last`` its latest run.
    Runs that looked at a part of it stand apart, by what they were asked.

    ``new`` and ``gone``: findings against the run before, None where there is none. ``since``: the time judged by of
    the first of its runs from which on each had critical or error findings, None where the last has none.
    ``every_ms``: how often it is due, None where that is not known. ``silent_ms``: since its last run was published.
    ``partly``: why that does not answer for all that the runs before it saw, empty where it does.
    """

    name: str
    runs: int
    last: Run
    new: int | None
    gone: int | None
    since: str | None
    every_ms: int | None
    silent_ms: int
    partly: str

    @property
    def overdue(self) -> bool:
        """Whether a run should have come by now: it failed, or was not started."""
        return self.every_ms is not None and self.silent_ms > self.every_ms * 3 // 2

    @property
    def worst(self) -> str | None:
        """The worst severity of its last run."""
        return next((name for name in SEVERITIES if self.last.facts["counts"].get(name)), None)


def by_cluster(known: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs by :func:`runs.group`, in the order given; first those that looked at all of their input."""
    found: dict[str, list[Run]] = {}
    for each in sorted(known, key=lambda run: runs.asked(run) != ""):
        found.setdefault(runs.group(each), []).append(each)
    return found


def in_front(groups: Mapping[str, list[Run]]) -> dict[str, list[Run]]:
    """Of :func:`by_cluster` those that say how their clusters stand: runs that looked at a part do where there are no
    others."""
    whole = {runs.cluster(mine[-1]) for mine in groups.values() if not runs.asked(mine[-1])}
    return {
        name: mine for name, mine in groups.items() if not runs.asked(mine[-1]) or runs.cluster(mine[-1]) not in whole
    }


def standings(shelf: Shelf, known: Sequence[Run], now: datetime, every_ms: int | None = None) -> list[Standing]:
    """How each cluster stands, the worst first: by severity, then those that are overdue or were not read whole.

    ``every_ms``: how often each is due; None: as often as the median of its latest runs. Cost: the fingerprints of two
    runs a cluster.
    """
    found = [_standing(shelf, name, mine, now, every_ms) for name, mine in by_cluster(known).items()]
    return sorted(found, key=_order)


def _order(each: Standing) -> tuple[int, bool, bool, str]:
    severity = len(SEVERITIES) if each.worst is None else SEVERITIES.index(each.worst)
    return (severity if each.worst in GRAVE else len(GRAVE), not each.overdue, not each.partly, each.name)


def _standing(shelf: Shelf, name: str, mine: Sequence[Run], now: datetime, every_ms: int | None) -> Standing:
    new = gone = None
    if len(mine) > 1:
        change = changes.of(shelf, mine[:-1], mine[-1])
        new, gone = len(change.new), len(change.gone)
    since = None
    for each in reversed(mine):
        if not any(each.facts["counts"].get(severity) for severity in GRAVE):
            break
        since = each.facts.get("as_of")
    if runs.asked(mine[-1]) and len(mine) <= LEAST_GAPS:
        every_ms = None  # somebody's question, which has no schedule
    elif every_ms is None:
        times = [datetime.fromisoformat(each.published_at) for each in mine[-GAPS - 1 :]]
        gaps = [(late - early).total_seconds() for early, late in itertools.pairwise(times)]
        every_ms = max(HOUR_MS, int(statistics.median(gaps) * 1000)) if len(gaps) >= LEAST_GAPS else None
    silent = int((now - datetime.fromisoformat(mine[-1].published_at)).total_seconds() * 1000)
    partly = changes.partly(mine[:-1], mine[-1])
    return Standing(name, len(mine), mine[-1], new, gone, since, every_ms, max(0, silent), partly)
