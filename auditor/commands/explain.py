"""``auditor explain``: one finding of a run with its evidence, as text."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterable
from urllib.parse import quote

from auditor import running
from auditor.base.at_rest import Fields, Values
from auditor.base.errors import AuditInputError
from auditor.commands.arguments import examples
from auditor.dashboards.wording import short_fingerprint
from auditor.outputs import delivery, printing, runs
from auditor.outputs.runs import History
from auditor.pipeline import summary as pipeline_summary
from auditor.pipeline.options import out_of


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "explain",
        help="show one finding of a run with its evidence",
        epilog=examples(
            "auditor explain dfe6f71ca00b --out /tmp/audit", "auditor explain dfe6f7 --history /var/audits"
        ),
    )
    p.add_argument("fingerprint", help="finding ID as the audit prints it, or its first digits")
    p.add_argument("-o", "--out", type=out_of, metavar="DIR|URI", help="output directory of an audit")
    p.add_argument("--history", type=out_of, metavar="DIR|URI", help="stored runs: the newest one with this finding")
    p.add_argument("--json", action="store_true", help="print the finding as in findings.jsonl")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    if (args.out is None) == (args.history is None):
        raise AuditInputError("missing run: give --out DIR or --history DIR")
    if args.out is not None:
        results = delivery.read(args.out)
        row = printing.finding_by_fingerprint(results.findings, str(args.fingerprint))
        summary, page = results.summary, results.page
    else:
        row = printing.finding_by_fingerprint(_of_history(args.history), str(args.fingerprint))
        summary = _summary(args.history, row["run_id"])
        page = f"/report/{quote(row['run_id'], safe='')}"
    if args.json:
        sys.stdout.write(json.dumps(row, ensure_ascii=False, indent=2, default=str) + "\n")
        return 0
    width = shutil.get_terminal_size((120, 24)).columns
    sys.stdout.write(printing.text(row, width, summary.get("cluster_events")))
    served = "" if args.out is not None else " (served by 'auditor dashboard')"
    sys.stdout.write(f"\nIn the report{served}:\n  {page}#{short_fingerprint(row)}\n")
    return 0


def _summary(history: History, run_id: str) -> Fields:
    (kept_run,) = (run for run in runs.committed(history) if run.run_id == run_id)
    return runs.summary_of(history, kept_run)


def _of_history(history: History) -> Iterable[Values]:
    for kept_run in reversed(runs.committed(history)):
        try:
            rows = runs.read(history, kept_run, "findings").to_pylist()
        except runs.UnreadableRun as error:
            running.warn([str(error)])
            continue
        for row in rows:
            yield pipeline_summary.unfolded(row) | {"run_id": kept_run.run_id}
