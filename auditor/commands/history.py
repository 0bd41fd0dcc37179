"""``auditor history DIR``: the runs kept under DIR, the difference of two, and which files are committed."""

from __future__ import annotations

import argparse
import datetime
from typing import TextIO

from auditor import running
from auditor.base.at_rest import Fields
from auditor.base.errors import AuditInputError
from auditor.base.words import SEVERITIES, duration, plural
from auditor.commands.arguments import examples, utf8_stdout
from auditor.commands.dashboard import add_expected
from auditor.dashboards.output_formats import OF_LISTS, list_lines
from auditor.dashboards.wording import instant, severity_count, visible
from auditor.outputs import runs
from auditor.outputs.runs import Run, Shelf
from auditor.pipeline.options import out_of

WORDS = {"latest": -1, "previous": -2}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "history",
        help="list stored runs ('audit --history DIR'), or compare two",
        epilog=examples("auditor history /var/audits", "auditor history /var/audits --diff previous latest"),
    )
    p.add_argument("dir", type=out_of, metavar="DIR", help="the directory or URI given to --history")
    p.add_argument(
        "--diff", nargs=2, metavar=("OLD", "NEW"), help="compare the findings of two runs: ids, 'previous' or 'latest'"
    )
    p.add_argument("--files", metavar="TABLE", help="print the committed files of a table in all runs, for SQL engines")
    p.add_argument("--cluster", metavar="ID|NAME", help="only the runs of one cluster")
    add_expected(p)
    p.add_argument(
        "--format", default="table", choices=OF_LISTS, metavar="FORMAT", help=f"{', '.join(OF_LISTS)} (json: lines)"
    )
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code: 3 if a run is unreadable."""
    content, shelf = runs.content_of(args.dir), Shelf(args.dir)
    kept_runs = content.runs
    if args.cluster is not None:
        kept_runs = [entry for entry in kept_runs if args.cluster in (runs.cluster(entry), runs.named(entry))]
        if not kept_runs:
            raise AuditInputError(f"no run of cluster {args.cluster!r}; 'auditor history DIR' lists the clusters")
    several = len({runs.group(entry) for entry in kept_runs}) > 1
    out = utf8_stdout()
    if args.files:
        out.writelines(f"{path}\n" for entry in kept_runs for path in runs.files(args.dir, entry, args.files))
    elif args.diff:
        if len({runs.cluster(entry) for entry in kept_runs}) > 1 and set(args.diff) & set(WORDS):
            raise AuditInputError("several clusters are stored here: give --cluster ID, or the ids of two runs")
        old, new = (pick(kept_runs, name) for name in args.diff)
        changes = runs.changes_of(shelf, [old], new)
        rows = [{"change": kind} | row for kind, part in changes._asdict().items() for row in runs.rows(shelf, part)]
        if args.format != "table":
            out.writelines(list_lines(args.format, rows))
        else:
            out.writelines(map(_change_line, rows))
            fresh, gone, still, unseen = (sum(row["change"] == kind for row in rows) for kind in changes._fields)
            also = f", {unseen} not checked" if unseen else ""
            out.write(f"{fresh} new, {gone} resolved, {still} unchanged{also}{_accepted(new)}\n")
    elif args.format != "table":
        of_runs = [{"run_id": r.run_id, "published_at": r.published_at, **r.facts} for r in kept_runs]
        out.writelines(list_lines(args.format, of_runs))
    elif several:
        ids = {entry.run_id for entry in kept_runs}

        def standings() -> list[runs.ClusterStanding]:
            now = datetime.datetime.now(datetime.UTC)
            return runs.standings(shelf, [run for run in shelf.runs() if run.run_id in ids], now, args.expect_every)

        _write_clusters(shelf.without_unreadable(standings), content.uncommitted, out)
    else:
        out.writelines(_run_line(entry, runs.is_partial(kept_runs[:n], entry)) for n, entry in enumerate(kept_runs))
        out.writelines(f"{name}  never committed\n" for name in content.uncommitted)
        out.writelines(f"{visible(name)}  unreadable\n" for name in content.unreadable)
        if not kept_runs and not content.uncommitted and not content.unreadable:
            out.write("no runs\n")
    unreadable = content.unreadable | shelf.unreadable  # as far as tables were read
    running.warn(list(unreadable.values()))
    return 3 if unreadable else 0


def _write_clusters(standings: list[runs.ClusterStanding], left: list[str], out: TextIO) -> None:
    for standing in standings:
        change = "" if standing.new is None else f"; {standing.new} new, {standing.gone} resolved"
        since = "" if standing.since is None else f"; critical or error since {instant(standing.since)}"
        late = f"; OVERDUE: no run for {duration(standing.silent_ms)}" if standing.overdue else ""
        partly = f"; {standing.partly}" if standing.partly else ""
        name = visible(runs.shown(standing.last)) or "no cluster id"
        out.write(f"{name}  {_counts(standing.last)}{change}{since}; last run {standing.last.run_id}{late}{partly}\n")
    out.writelines(f"{name}  never committed\n" for name in left)
    out.write(f"{sum(standing.runs for standing in standings)} runs (use --cluster ID to list those of one cluster)\n")


def _counts(entry: Run) -> str:
    counts = entry.facts.get("counts") or {}
    return ", ".join(severity_count(name, counts.get(name, 0)) for name in SEVERITIES) + _accepted(entry)


def _accepted(run: Run) -> str:
    count = runs.accepted_count(run)
    return f", {count} suppressed" if count else ""


def pick(kept_runs: list[Run], name: str) -> Run:
    """Return a run by its id, or by ``latest`` or ``previous``: the last two with the cluster and the scope of the
    newest run.

    Errors: :class:`AuditInputError` if there is none.
    """
    for entry in kept_runs:
        if entry.run_id == name:
            return entry
    alike = [entry for entry in kept_runs if runs.group(entry) == runs.group(kept_runs[-1])]
    if name in WORDS and len(alike) >= -WORDS[name]:
        return alike[WORDS[name]]
    raise AuditInputError(
        f"no run {name!r}; run 'auditor history DIR' to list the {plural(len(kept_runs), 'stored run')}"
    )


def _run_line(entry: Run, partly: str) -> str:
    as_of = entry.facts.get("as_of") or "an unknown time"
    line = f"{entry.run_id}  evaluated at {as_of}  {_counts(entry)}  {entry.facts.get('batches')} batches"
    return f"{line}  {partly}\n" if partly else f"{line}\n"


def _change_line(row: Fields) -> str:
    where = "–" if row["topic"] is None else f"{row['topic']}-{row['partition']}"
    where += "" if row["offset"] is None else f" at offset {row['offset']}"
    return f"{row['change']:6}  {row['severity']:8}  {row['rule']}  {visible(where)}: {visible(row['message'])}\n"
