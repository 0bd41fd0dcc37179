"""``auditor dashboard DIR``: the runs kept under DIR as pages in a browser, served to this machine only.

A server of the standard library on the loopback interface; nothing is written, and what is kept while it runs is on
the next page that is asked for. A page of another site cannot read it: only calls by a loopback name are answered.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from auditor.base import uris
from auditor.base.errors import AuditInputError
from auditor.commands.parser import examples
from auditor.pipeline.options import out_of

if TYPE_CHECKING:
    from auditor.dashboards.overview import Changes, Tally
    from auditor.outputs.runs import History, Run

PORT = 8765
_NAMES = frozenset({"127.0.0.1", "localhost"})
_PARTITION, _PRODUCER = ("cluster_id", "topic", "partition"), ("cluster_id", "transactional_id", "producer_id")
_SHOWN = (
    "fingerprint", "severity", "rule", "topic", "partition", "offset", "last_offset", "producer_id", "producer_epoch",
    "transactional_id", "group_id", "message",
)  # fmt: skip


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "dashboard",
        help="the runs kept by 'audit --history DIR' as pages in a browser",
        epilog=examples(
            "auditor dashboard /var/audits",
        ),
    )
    p.add_argument("dir", type=out_of, metavar="DIR", help="the folder or URI that was given to --history")
    p.add_argument("--port", type=int, default=PORT, help=f"on the loopback interface (default {PORT}; 0: any)")
    add_expected(p)
    p.set_defaults(run=run)


def add_expected(p: argparse.ArgumentParser) -> None:
    """The option that says how often a cluster's audit is due."""
    p.add_argument(
        "--expect-every", type=_period, metavar="PERIOD",
        help="a cluster without a run for half as long again is overdue: 90min, 24h, 7d (default: as often as it was)",
    )  # fmt: skip


def _period(text: str) -> int:
    found = re.fullmatch(r"([1-9]\d{0,5})\s*(min|h|d)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no period; give one such as 90min, 24h or 7d")
    return int(found[1]) * {"min": 60_000, "h": 3_600_000, "d": 86_400_000}[found[2]]


def run(args: argparse.Namespace) -> int:
    """Serve until it is stopped (Ctrl-C); returns its exit status."""
    with serve(args.dir, args.port, args.expect_every) as server:
        kept = uris.shown(str(args.dir))
        sys.stdout.write(f"http://127.0.0.1:{server.server_port}/ shows the runs kept under {kept}; Ctrl-C ends it\n")
        sys.stdout.flush()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


def serve(history: History, port: int, every_ms: int | None = None) -> ThreadingHTTPServer:
    """A server of the pages, ready for ``serve_forever``; ``every_ms``: how often a cluster is due.

    Errors: :class:`AuditInputError` for a folder or port.
    """
    from auditor.outputs import runs

    runs.committed(history)
    handler = type("Handler", (_Handler,), {"history": history, "every_ms": every_ms})
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), handler)
    except (OSError, OverflowError) as error:
        raise AuditInputError(f"cannot listen on port {port}: {error}; choose another --port") from None


class _Handler(BaseHTTPRequestHandler):
    """Answers GET: ``/`` with the clusters, or with the latest run where there is one cluster, ``/?run=ID`` with the
    dashboard of a run's cluster, ``/report/ID`` with the report of a run."""

    history: History
    every_ms: int | None

    def do_GET(self) -> None:
        if (self.headers.get("Host") or "").rsplit(":", 1)[0] not in _NAMES:
            return self._send(421, "text/plain", "asked for by a name that is not this machine's\n")
        asked = urlsplit(self.path)
        run_id = parse_qs(asked.query).get("run", [None])[0]
        try:
            if asked.path == "/":
                found = (None if run_id else clusters(self.history, self.every_ms)) or overview(self.history, run_id)
            elif asked.path.startswith("/report/"):
                found = report(self.history, unquote(asked.path.removeprefix("/report/")))
            else:
                found = None
        except AuditInputError as error:
            return self._send(500, "text/plain", f"{error}\n")
        if found is None:
            return self._send(404, "text/plain", "no such page or run\n")
        return self._send(200, "text/html", found)

    def _send(self, status: int, kind: str, text: str) -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        for name, value in {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Pages that were asked for are nobody's news."""


def clusters(history: History, every_ms: int | None = None) -> str | None:
    """The page of the clusters; None where the runs are of no more than one."""
    from auditor.dashboards import cluster_page as view
    from auditor.outputs import cluster_standings as kept
    from auditor.outputs import runs

    known = runs.committed(history)
    if len(kept.by_cluster(known)) < 2:
        return None
    rows = []
    for each in kept.standings(history, known, datetime.datetime.now(datetime.UTC), every_ms):
        last: dict[str, Any] = {
            "called": runs.shown(each.last), "run_id": each.last.run_id, "facts": each.last.facts,
            "published": each.last.published_at,
        }  # fmt: skip
        names = ("name", "runs", "worst", "new", "gone", "since", "overdue", "complete", "every_ms", "silent_ms")
        rows.append(view.Row(**last, **{name: getattr(each, name) for name in names}))
    return view.render_clusters(rows)


def overview(history: History, run_id: str | None = None) -> str | None:
    """The dashboard about a run among those of its cluster, by default the latest; None where there is no run of that
    id.

    Cost: the findings of two runs, and six columns of those of the latest 60.
    """
    from auditor.dashboards import overview as view
    from auditor.outputs import runs

    known = runs.committed(history)
    of_all = len({runs.cluster(each) for each in known})
    mine = next((runs.cluster(each) for each in reversed(known) if run_id in (None, each.run_id)), None)
    known = [each for each in known if runs.cluster(each) == mine]
    steps = [view.step(each.run_id, each.facts) for each in known]
    if not known:
        return view.render_overview([], None, view.Changes(), [], []) if run_id is None else None
    at = next((n for n, each in enumerate(known) if each.run_id == run_id), -1) if run_id else len(known) - 1
    if at < 0:
        return None
    past = known[max(0, at + 1 - view.MAX_RUNS) : at + 1]
    tallies = [_tallies(history, each) for each in past]
    changes = _changes(history, known[at - 1], known[at]) if at else view.Changes()
    name = runs.shown(known[at]) if of_all > 1 else None
    partitions, producers = zip(*tallies, strict=True)
    return view.render_overview(steps, steps[at], changes, partitions, producers, name)


def _changes(history: History, older: Run, newer: Run) -> Changes:
    from auditor.dashboards.overview import MAX_CHANGES, Changes
    from auditor.outputs import runs

    then, now = (runs.open_findings(history, each, list(_SHOWN)) for each in (older, newer))
    found = runs.diff(then, now)
    return Changes(
        found.new[:MAX_CHANGES], found.gone[:MAX_CHANGES], len(found.new), len(found.gone), len(found.still)
    )  # fmt: skip


def _tallies(history: History, each: Run) -> list[Tally]:
    """A run's findings by partition, and by producer."""
    from auditor.dashboards.overview import tallied
    from auditor.outputs import runs

    table = runs.open_findings(history, each, [*dict.fromkeys((*_PARTITION, *_PRODUCER)), "severity", "fingerprint"])
    found = []
    for names in (_PARTITION, _PRODUCER):
        counted = table.group_by([*names, "severity"]).aggregate([([], "count_all")])
        found.append(tallied(counted.rename_columns({"count_all": "count"}).to_pylist(), names))
    return found


def report(history: History, run_id: str) -> str | None:
    """A run's report, made again from what was kept of it; None where there is no run of that id.

    Runs that were kept before open transactions and timelines were have a report without them.
    """
    from auditor.dashboards.report import render_report
    from auditor.outputs import runs
    from auditor.pipeline import results
    from auditor.rules.catalogue import registry

    each = next((known for known in runs.committed(history) if known.run_id == run_id), None)
    if each is None:
        return None
    accepted = runs.accepted(history, each)
    findings = [results.unfolded(row) for row in runs.read(history, each, "findings").to_pylist()]
    for row in findings:
        row["accepted"] = {"fingerprint": row["fingerprint"]} if row["fingerprint"] in accepted else None
    summary = json.loads(runs.read(history, each, "runs")["summary"][0].as_py())
    kept = runs.read(history, each, "report").to_pylist() if "report" in each.files else []
    rows = {kind: [json.loads(row["row"]) for row in kept if row["kind"] == kind] for kind in ("open", "timeline")}
    return render_report(registry.described(findings), summary, rows["open"], rows["timeline"])
