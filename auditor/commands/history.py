"""``auditor history DIR``: the runs kept under DIR, the difference of two, and which files are committed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auditor.base.errors import AuditInputError
from auditor.commands.parser import examples
from auditor.dashboards.output_formats import OF_LISTS, list_lines
from auditor.rules.finding import SEVERITIES

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
    p.add_argument("dir", type=Path, metavar="DIR", help="the folder that was given to --history")
    p.add_argument(
        "--diff", nargs=2, metavar=("OLD", "NEW"), help="compare the findings of two runs: ids, 'previous', 'latest'"
    )
    p.add_argument("--files", metavar="TABLE", help="print the committed files of a table of all runs, for SQL engines")
    p.add_argument(
        "--format", default="table", choices=OF_LISTS, metavar="FORMAT", help=f"{', '.join(OF_LISTS)} (json: lines)"
    )
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; returns its exit status."""
    from auditor.outputs import runs

    known = runs.committed(args.dir)
    out = sys.stdout
    out.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    if args.files:
        out.writelines(f"{path}\n" for each in known for path in runs.files(args.dir, each, args.files))
    elif args.diff:
        old, new = (pick(known, name) for name in args.diff)
        found = runs.diff(runs.read(args.dir, old, "findings"), runs.read(args.dir, new, "findings"))
        rows = [{"change": kind} | row for kind in ("new", "gone", "still") for row in getattr(found, kind)]
        if args.format != "table":
            out.writelines(list_lines(args.format, rows))
        else:
            out.writelines(map(_change_line, rows))
            out.write(f"{len(found.new)} new, {len(found.gone)} gone, {len(found.still)} still there\n")
    elif args.format != "table":
        of_runs = [{"run_id": r.run_id, "published_at": r.published_at, **r.facts} for r in known]
        out.writelines(list_lines(args.format, of_runs))
    else:
        out.writelines(_run_line(each) for each in known)
        left = runs.uncommitted(args.dir)
        out.writelines(f"{name}  never committed\n" for name in left)
        if not known and not left:
            out.write("no runs\n")
    return 0


def pick(known: list[Run], name: str) -> Run:
    """A run by its id, or by ``latest`` or ``previous``. Errors: :class:`AuditInputError` where there is none."""
    for each in known:
        if each.run_id == name:
            return each
    if name in WORDS and len(known) >= -WORDS[name]:
        return known[WORDS[name]]
    raise AuditInputError(f"no run {name!r}; 'auditor history DIR' lists the {len(known)} that are kept")


def _run_line(each: Run) -> str:
    counts = ", ".join(f"{each.facts['counts'][name]} {name}" for name in SEVERITIES)
    partly = "" if each.facts["complete"] else "  part of the input could not be read"
    return f"{each.run_id}  as of {each.facts['as_of']}  {counts}  {each.facts['batches']} batches{partly}\n"


def _change_line(row: dict[str, Any]) -> str:
    from auditor.dashboards.wording import visible

    where = "–" if row["topic"] is None else f"{row['topic']}-{row['partition']}"
    at = "" if row["offset"] is None else f" at offset {row['offset']}"
    return f"{row['change']:5}  {row['severity']:8}  {row['rule']}  {visible(where)}{at}: {visible(row['message'])}\n"
