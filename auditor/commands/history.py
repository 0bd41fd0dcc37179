"""``auditor history DIR``: the runs kept under DIR, the difference of two, and which files are committed."""

from __future__ import annotations

import argparse
import datetime
import sys
from typing import TYPE_CHECKING, TextIO

from auditor.base.at_rest import Fields
from auditor.base.errors import AuditInputError
from auditor.base.words import SEVERITIES
from auditor.commands.arguments import examples
from auditor.commands.dashboard import add_expected
from auditor.dashboards.output_formats import OF_LISTS, list_lines
from auditor.pipeline.options import out_of

if TYPE_CHECKING:
    from auditor.outputs.runs import Run

WORDS = {"latest": -1, "previous": -2}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "history",
        help="the runs kept by 'audit --history DIR': list them, compare two",
        epilog=examples("auditor history /var/audits", "auditor history /var/audits --diff previous latest"),
    )
    p.add_argument("dir", type=out_of, metavar="DIR", help="the folder or URI that was given to --history")
    p.add_argument(
        "--diff", nargs=2, metavar=("OLD", "NEW"), help="compare the findings of two runs: ids, 'previous', 'latest'"
    )
    p.add_argument("--files", metavar="TABLE", help="print the committed files of a table of all runs, for SQL engines")
    p.add_argument("--cluster", metavar="ID|NAME", help="only the runs of one cluster, where those of several are kept")
    add_expected(p)
    p.add_argument(
        "--format", default="table", choices=OF_LISTS, metavar="FORMAT", help=f"{', '.join(OF_LISTS)} (json: lines)"
    )
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; returns its exit status."""
    from auditor.outputs import runs
    from auditor.outputs import runs as outputs_runs
    from auditor.outputs.runs import Shelf

    held = runs.kept(args.dir)
    known = held.runs
    if args.cluster is not None:
        known = [each for each in known if args.cluster in (runs.cluster(each), runs.named(each))]
        if not known:
            raise AuditInputError(f"no run of cluster {args.cluster!r}; 'auditor history DIR' lists the clusters")
    several = len({runs.group(each) for each in known}) > 1
    out = sys.stdout
    out.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    if args.files:
        out.writelines(f"{path}\n" for each in known for path in runs.files(args.dir, each, args.files))
    elif args.diff:
        if len({runs.cluster(each) for each in known}) > 1 and set(args.diff) & set(WORDS):
            raise AuditInputError("runs of several clusters are kept here; say which by --cluster, or give ids of runs")
        old, new = (pick(known, name) for name in args.diff)
        shelf = Shelf(args.dir)
        found = outputs_runs.of(shelf, [old], new)
        rows = [
            {"change": kind} | row for kind in found._fields for row in outputs_runs.rows(shelf, getattr(found, kind))
        ]
        if args.format != "table":
            out.writelines(list_lines(args.format, rows))
        else:
            out.writelines(map(_change_line, rows))
            fresh, gone, still, unseen = (sum(row["change"] == kind for row in rows) for kind in found._fields)
            also = f", {unseen} not looked for" if unseen else ""
            out.write(f"{fresh} new, {gone} gone, {still} still there{also}{_accepted(new)}\n")
    elif args.format != "table":
        of_runs = [{"run_id": r.run_id, "published_at": r.published_at, **r.facts} for r in known]
        out.writelines(list_lines(args.format, of_runs))
    elif several:
        _write_clusters(args, known, held.uncommitted, out)
    else:
        out.writelines(_run_line(each, outputs_runs.is_partial(known[:at], each)) for at, each in enumerate(known))
        out.writelines(f"{name}  never committed\n" for name in held.uncommitted)
        if not known and not held.uncommitted:
            out.write("no runs\n")
    return 0


def _write_clusters(args: argparse.Namespace, known: list[Run], left: list[str], out: TextIO) -> None:
    """A line a cluster, the worst first."""
    from auditor.base.words import duration
    from auditor.dashboards.wording import instant, visible
    from auditor.outputs import runs
    from auditor.outputs import runs as clusters
    from auditor.outputs.runs import Shelf

    for each in clusters.standings(Shelf(args.dir), known, datetime.datetime.now(datetime.UTC), args.expect_every):
        change = "" if each.new is None else f"; {each.new} new, {each.gone} gone"
        since = "" if each.since is None else f"; critical or error since {instant(each.since)}"
        late = f"; OVERDUE: no run for {duration(each.silent_ms)}" if each.overdue else ""
        partly = f"; {each.partly}" if each.partly else ""
        name = visible(runs.shown(each.last)) or "no cluster id"
        out.write(f"{name}  {_counts(each.last)}{change}{since}; last run {each.last.run_id}{late}{partly}\n")
    out.writelines(f"{name}  never committed\n" for name in left)
    out.write(f"{len(known)} runs; --cluster ID lists those of one\n")


def _counts(each: Run) -> str:
    return ", ".join(f"{each.facts['counts'].get(name, 0)} {name}" for name in SEVERITIES) + _accepted(each)


def _accepted(each: Run) -> str:
    """How many more findings the baseline of a run accepts; nothing where none."""
    from auditor.outputs import runs

    count = runs.accepted_count(each)
    return f", {count} accepted" if count else ""


def pick(known: list[Run], name: str) -> Run:
    """A run by its id, or by ``latest`` or ``previous``, the one before it that was asked alike. Errors:
    :class:`AuditInputError` where there is none."""
    from auditor.outputs import runs

    for each in known:
        if each.run_id == name:
            return each
    alike = [each for each in known if runs.group(each) == runs.group(known[-1])]
    if name in WORDS and len(alike) >= -WORDS[name]:
        return alike[WORDS[name]]
    raise AuditInputError(f"no run {name!r}; 'auditor history DIR' lists the {len(known)} that are kept")


def _run_line(each: Run, partly: str) -> str:
    at = each.facts["as_of"] or "an unknown time"
    said = f"{each.run_id}  as of {at}  {_counts(each)}  {each.facts['batches']} batches"
    return f"{said}  {partly}\n" if partly else f"{said}\n"


def _change_line(row: Fields) -> str:
    from auditor.dashboards.wording import visible

    where = "–" if row["topic"] is None else f"{row['topic']}-{row['partition']}"
    at = "" if row["offset"] is None else f" at offset {row['offset']}"
    return f"{row['change']:6}  {row['severity']:8}  {row['rule']}  {visible(where)}{at}: {visible(row['message'])}\n"
