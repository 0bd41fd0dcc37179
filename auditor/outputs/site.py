"""The dashboard's pages, served or exported."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from auditor.base import VERSION
from auditor.base.at_rest import Fields, Values, parsed
from auditor.base.errors import AuditInputError, StoreTrouble
from auditor.connectors.schema import RENAMED
from auditor.connectors.stores.results import ResultFolder, folder, why
from auditor.connectors.stores.retries import REFUSED, side_by_side
from auditor.dashboards import answers, overview
from auditor.dashboards.overview import FRONT, Board, ClusterLabel, FindingOverRuns, Links, RunPoint, render_finding
from auditor.dashboards.report import render_report
from auditor.outputs import runs
from auditor.outputs.runs import History, KeptFinding, Run, Shelf
from auditor.pipeline import summary as pipeline_summary
from auditor.rules.catalogue import registry
from auditor.rules.seen.view import GRAVE, SEVERITIES, iso

LOOKED, MOST_ROWS = 400, 2_000_000  # the runs, and their findings, that a finding's history is read from
_PARTITION, _PRODUCER = ("cluster_id", "topic", "partition"), ("cluster_id", "transactional_id", "producer_id")


class FindingHistory(NamedTuple):
    """The findings of a cluster's runs. ``since``: the index of the first run that was read; ``places``: by
    fingerprint, the severity by the index of the run; ``last``: the finding in the last run that has it."""

    since: int
    places: dict[str, dict[int, str]]
    last: dict[str, KeptFinding]


class Site:
    """The pages of a history as it is now. ``has``: which pages exist, None for all.

    Cost: the front page reads the findings of two runs per cluster and what is blocked in the last; a finding's page
    the fingerprints of at most :data:`LOOKED` runs.
    """

    def __init__(self, shelf: Shelf, every_ms: int | None = None, has: Callable[[str], bool] | None = None) -> None:
        self.shelf, self.every_ms = shelf, every_ms
        self.all_runs = shelf.runs()
        self.by_cluster = runs.by_cluster(self.all_runs)
        self._has = has
        self._histories: dict[str, FindingHistory] = {}

    @property
    def in_front(self) -> dict[str, list[Run]]:
        """The runs that show the status of each cluster."""
        return runs.in_front(self.by_cluster)

    def page(self, path: str) -> str | None:
        """Return a page by its address (:mod:`auditor.dashboards.overview`); None if there is none.

        Errors: :class:`AuditInputError` if a run cannot be read.
        """
        if path in ("", FRONT):
            return self.front()
        room, _, _ = path.partition("/")
        if room == "cluster":
            id = next((id for id in self.by_cluster if overview.cluster(id) == path), None)
            return None if id is None else self.of_cluster(self.by_cluster[id], -1, "../")
        if room == "finding":
            return self.finding(path)
        for run in self.all_runs:
            if path == overview.run(run.run_id):
                series = self.by_cluster[runs.group(run)]
                return self.of_cluster(series, series.index(run), "../")
            if path == overview.report(run.run_id):
                return self.report(run)
        return None

    def front(self) -> str:
        """Return the page of all clusters; of a single cluster its own page."""
        rows = []
        for entry in self._standings():
            series = self.by_cluster[entry.name]
            late = overview.missing(entry.silent_ms, entry.every_ms) if entry.overdue else ""
            if len(self.in_front) < 2:
                return self.of_cluster(series, -1, "", late)
            board = self.board(series, len(series) - 1)
            steps = [_step(run) for run in series[-overview.MAX_DRAWN :]]
            published = entry.last.published_at
            rows.append(overview.ClusterRow(board, entry.runs, steps, published, entry.since, late))
        if not rows:
            return self.of_cluster([], -1, "")
        return overview.render_clusters(rows, self._links(""))

    def _standings(self) -> list[runs.ClusterStanding]:
        front_runs = [run for series in self.in_front.values() for run in series]
        return runs.standings(self.shelf, front_runs, datetime.now(UTC), self.every_ms)

    def of_cluster(self, series: Sequence[Run], index: int, up: str, late: str = "") -> str:
        """Return the page of a cluster as of one of its runs. ``late``: that the next run is overdue, in words.
        Cost: seven columns of the findings of 60 runs."""
        if not series:
            return overview.render_overview([], 0, None, [], [], self._links(up))
        index %= len(series)
        tallies = [self._tallies(run) for run in series[max(0, index + 1 - overview.MAX_RUNS) : index + 1]]
        partitions, producers = zip(*tallies, strict=True)
        steps = [_step(run, runs.is_partial(series[max(0, n - runs.LATELY) : n], run)) for n, run in enumerate(series)]
        return overview.render_overview(
            steps,
            index,
            self.board(series, index),
            partitions,
            producers,
            self._links(up),
            len(self.in_front) > 1,
            late,
        )

    def board(self, series: Sequence[Run], index: int) -> Board:
        """Return the status of a cluster as of one of its runs."""
        run = series[index]
        findings = _rows(self._notable(run).to_pylist())
        decided = answers.report_of(registry.described(findings), self._summary(run)).verdict
        earlier = series[:index]
        partly = "; ".join(filter(None, (run.facts.get("lacking"), self.unchecked(run))))
        shown = Board(_cluster(run), decided, run.facts.get("as_of"), partly=partly)
        if not earlier:
            return shown
        change = runs.changes_of(self.shelf, earlier, run)
        parts = [{name: was for name, was in part.items() if was.severity != "info"} for part in change]
        new, gone = (_rows(runs.rows(self.shelf, part)) for part in parts[:2])
        infos = {name: len(getattr(change, name)) - len(parts[place]) for place, name in enumerate(("new", "gone"))}
        return replace(shown, new=new, gone=gone, still=len(parts[2]), unseen=len(parts[3]), infos=infos)

    def unchecked(self, run: Run) -> str:
        """Return why a run does not show that its cluster is healthy (:func:`auditor.outputs.runs.unchecked`)."""
        return runs.unchecked(self.shelf, self.all_runs[: self.all_runs.index(run)], run)[0]

    def finding(self, path: str) -> str | None:
        """Return the page of a finding; None if no run that is read has it."""
        name = path.partition("/")[2].removesuffix(".html")
        id = next(
            (id for id in self.by_cluster if overview.finding(name) == path and name in self.history_of(id).places),
            None,
        )
        return None if id is None else self.story(id, name)

    def history_of(self, id: str) -> FindingHistory:
        """Return the history of a cluster's findings. Computed once."""
        if id not in self._histories:
            series, history, rows = self.by_cluster[id], FindingHistory(len(self.by_cluster[id]), {}, {}), 0
            while history.since and len(series) - history.since < LOOKED:
                findings = runs.found_in(self.shelf, series[history.since - 1], accepted=True)
                rows += len(findings)
                if rows > MOST_ROWS and history.places:
                    break
                history = history._replace(since=history.since - 1)
                for name, was in findings.items():
                    history.places.setdefault(name, {})[history.since] = was.severity
                    history.last.setdefault(name, was)
            self._histories[id] = history
        return self._histories[id]

    def until(self, id: str, fingerprint: str) -> int:
        """Return the index of the run that shows the status of a finding: the last one, or the first that looked for
        it and does not have it."""
        series, was = self.by_cluster[id], self.history_of(id).last[fingerprint]
        later = range(series.index(was.run) + 1, len(series))
        return next((index for index in later if not runs.why_unseen(self.shelf, series[index], was)), len(series) - 1)

    def story(self, id: str, fingerprint: str) -> str:
        """Return the page of a finding of a cluster."""
        series, history = self.by_cluster[id], self.history_of(id)
        places, was = history.places[fingerprint], history.last[fingerprint]
        first, now, run = min(places), self.until(id, fingerprint), was.run
        why = "" if now in places else runs.why_unseen(self.shelf, series[now], was)
        table = self.shelf.read(run, "findings")
        (row, *_) = _rows(table.filter(pc.equal(table["fingerprint"], fingerprint)).to_pylist())
        (described,) = registry.described([row])
        decided = answers.report_of([described], self._summary(run, fingerprint)).verdict
        blocked = next(iter((*decided.held, *decided.named, *decided.accepted)), None)
        entries = self.shelf.read(run, "baseline").to_pylist() if "baseline" in run.files else ()
        kind = registry.kinds().get(row["kind"] or row["rule"])
        story = FindingOverRuns(
            _cluster(run),
            described,
            blocked,
            [(_step(series[n]), places.get(n)) for n in range(first, now + 1)],
            first > history.since or not history.since,
            next((e for e in entries if e["fingerprint"] == fingerprint), None),
            {} if kind is None else {"Title": kind.title, **kind.sections},
            why,
        )
        return render_finding(story, self._links("../"), run.facts.get("as_of"))

    def report(self, run: Run) -> str:
        """Return a run's report, rendered again from the kept tables.

        Runs of releases that did not keep open transactions and timelines have a report without them.
        """
        if reason := run.facts.get("unreadable"):
            raise AuditInputError(str(reason))
        accepted = runs.accepted(self.shelf.history, run)
        findings = _rows(self.shelf.read(run, "findings").to_pylist())
        for row in findings:
            row["accepted"] = {"fingerprint": row["fingerprint"]} if row["fingerprint"] in accepted else None
        summary = runs.summary_of(self.shelf.history, run) | {"unchecked": self.unchecked(run)}
        saved = self.shelf.read(run, "report").to_pylist() if "report" in run.files else []
        rows = {kind: [parsed(row["row"]) for row in saved if row["kind"] == kind] for kind in ("open", "timeline")}
        return render_report(answers.report_of(registry.described(findings), summary), rows["open"], rows["timeline"])

    def _links(self, up: str) -> Links:
        return Links(up, self._has, () if up else tuple(self.shelf.unreadable.values()))

    def _above_info(self, run: Run) -> pa.Table:
        findings = self.shelf.unaccepted(run, self.shelf.read(run, "findings"))
        return findings.filter(pc.not_equal(findings["severity"], "info"))

    def _notable(self, run: Run) -> pa.Table:
        # Critical and error findings, and those above info about blocked readers.
        blocking = [name for name, kind in registry.kinds().items() if kind.blocks is not None]
        findings = self._above_info(run)
        waits = pc.is_in(pc.coalesce(findings["kind"], findings["rule"]), pa.array(blocking))
        return findings.filter(pc.or_(waits, pc.is_in(findings["severity"], pa.array(GRAVE))))

    def _summary(self, run: Run, fingerprint: str | None = None) -> Fields:
        # The part of the summary that the verdict needs; ``fingerprint``: with this finding's partition alone.
        facts: Fields = {
            "as_of": run.facts.get("as_of"),
            "complete": run.facts.get("complete", True),
            "counts": {"by_severity": run.facts.get("counts") or {}},
            "batches": run.facts.get("batches"),
        }
        if accepted := run.facts.get("accepted"):
            facts["baseline"] = {"counts": {"by_severity": accepted}}
        if "blocked" not in run.files:
            return facts
        table = self.shelf.read(run, "blocked")
        if fingerprint is not None:
            table = table.filter(pc.equal(table["fingerprint"], fingerprint))
        facts["blocked"] = rows = [_held(row) for row in table.to_pylist()]
        inputs = {row["log_dir"]: row["cluster_id"] for row in rows}
        return facts | {"inputs": [{"log_dir": name, "cluster_id": id} for name, id in inputs.items()]}

    def _tallies(self, run: Run) -> list[overview.Tally]:
        table, tallies = self.shelf.who(run, accepted=False), []
        for names in (_PARTITION, _PRODUCER):
            counted = table.group_by([*names, "severity"]).aggregate([([], "count_all")])
            tallies.append(overview.tallied(counted.rename_columns({"count_all": "count"}).to_pylist(), names))
        return tallies


def _step(run: Run, partly: str = "") -> RunPoint:
    return overview.step(run.run_id, run.created_at, run.facts, partly)


def _cluster(run: Run) -> ClusterLabel:
    given = (run.facts.get("named") or {}).get(runs.cluster(run), {})
    alone = {name: value for name, value in given.items() if name != "name"}
    return ClusterLabel(runs.group(run), runs.shown(run), **alone)


def _rows(rows: Iterable[Values]) -> list[Fields]:
    return answers.with_all_keys(map(pipeline_summary.unfolded, rows), answers.FINDING)


def _held(row: Values) -> Fields:
    times = {old: _iso(row.get(new, row.get(old))) for old, new in RENAMED["blocked"].items()}  # or a run of 0.4
    advice = row["advice"]
    return {**row, **times, "advice": parsed(advice) if isinstance(advice, str) else advice}


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else iso(round(moment.timestamp() * 1000))


# Export as static files. Only changed pages are written, and none is deleted: a resolved finding keeps its page.
#
# ``pages.json``, written last, has a digest of what each page is made of. Concurrent exports each write complete pages;
# the next export is complete again.


LIST, KIND = "pages.json", "text/html; charset=utf-8"
MOST_FINDINGS = 2000  # pages of findings per cluster and export: those of the last run, the most severe, first
AT_ONCE = 32  # pages in memory


class SitePage(NamedTuple):
    """A page: its address, a digest of what it is made of, and a function that renders it."""

    path: str
    stamp: str
    made: Callable[[], str]


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The number of pages written and unchanged, of findings without a page (``left``), and why runs are unreadable."""

    pages: int
    unchanged: int
    left: int
    unreadable: tuple[str, ...] = ()


def export(history: History, to: History, every_ms: int | None = None) -> ExportResult:
    """Write the pages of a history into a directory or a store.

    Errors: :class:`AuditInputError` if either cannot be read or written.
    """
    shelf = Shelf(history)
    return shelf.without_unreadable(partial(_exported, shelf, folder(to), every_ms))


def _exported(shelf: Shelf, out: ResultFolder, every_ms: int | None) -> ExportResult:
    try:
        before = _stamps(out)
        paths: set[str] = set(before)
        site = Site(shelf, every_ms, paths.__contains__)
        wanted = list(_pages(site))
        left = sum(max(0, len(site.history_of(id).places) - MOST_FINDINGS) for id in site.by_cluster)
        paths |= {page.path for page in wanted}
        due = [page for page in wanted if before.get(page.path) != page.stamp]
        for start in range(0, len(due), AT_ONCE):
            texts = {page.path: page.made().encode("utf-8", "replace") for page in due[start : start + AT_ONCE]}
            side_by_side(partial(_put, out, texts), list(texts))
        stamps = before | {page.path: page.stamp for page in wanted}
        out.put(LIST, (json.dumps({"pages": stamps}, indent=0, sort_keys=True) + "\n").encode(), "application/json")
    except (*REFUSED, StoreTrouble) as error:
        raise AuditInputError(f"cannot write to {out.shown}: {why(error)}; choose another --export") from error
    return ExportResult(len(due), len(wanted) - len(due), left, tuple(shelf.unreadable.values()))


def _put(out: ResultFolder, texts: Mapping[str, bytes], path: str) -> None:
    out.put(path, texts[path], KIND)


def _stamps(out: ResultFolder) -> dict[str, str]:
    # Empty if there is no list, or one of another program.
    try:
        stamps = parsed(out.get(LIST) or b"{}")["pages"]
    except (ValueError, KeyError, TypeError):
        return {}
    return {str(path): str(stamp) for path, stamp in stamps.items()} if isinstance(stamps, dict) else {}


def _pages(site: Site) -> Iterator[SitePage]:
    # Findings get the story of the runs with full scope, if these have them.
    yield SitePage(overview.FRONT, datetime.now(UTC).isoformat(), site.front)  # the time decides who is overdue
    listed: set[str] = set()
    for id, series in site.by_cluster.items():
        last = series[-1]
        yield SitePage(overview.cluster(id), _stamp(*map(_of, series)), partial(site.of_cluster, series, -1, "../"))
        if "unreadable" not in last.facts:
            yield SitePage(overview.report(last.run_id), _stamp(_of(last)), partial(site.report, last))
        places = site.history_of(id).places
        names = sorted(places.keys() - listed, key=lambda name: (_rank(places[name]), name))[:MOST_FINDINGS]
        listed.update(places)
        for name in names:
            until = site.until(id, name)
            runs = [f"{_of(series[n])} {places[name].get(n)}" for n in range(min(places[name]), until + 1)]
            yield SitePage(overview.finding(name), _stamp(*runs), partial(site.story, id, name))


def _rank(places: dict[int, str]) -> tuple[int, int]:
    last = max(places)
    return -last, SEVERITIES.index(places[last])


def _of(run: Run) -> str:
    return f"{run.run_id} {run.published_at} {run.facts.get('unreadable', '')}".rstrip()


def _stamp(*of: str) -> str:
    return hashlib.sha256("\n".join([VERSION, *of]).encode("utf-8", "replace")).hexdigest()[:32]
