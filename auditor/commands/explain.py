"""``auditor explain``: one finding of a run with its evidence, as text."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from auditor.base.errors import AuditInputError
from auditor.commands.parser import examples
from auditor.dashboards.wording import short_fingerprint
from auditor.outputs import explaining, runs
from auditor.outputs.runs import History
from auditor.pipeline import results
from auditor.pipeline.options import folder_of, out_of
from auditor.rules import registry
from auditor.rules.fingerprint import cluster_of, fingerprint


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "explain",
        help="one finding of a run with its evidence, by its fingerprint",
        epilog=examples(
            "auditor explain dfe6f71ca00b --out /tmp/audit",
            "auditor explain dfe6f7 --history /var/audits",
        ),
    )
    p.add_argument("fingerprint", help="as the audit prints it, or its first digits")
    p.add_argument("--out", type=folder_of, metavar="DIR", help="the results of an audit")
    p.add_argument("--history", type=out_of, metavar="DIR", help="the runs kept under DIR; the newest that has it")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; returns its exit status."""
    if (args.out is None) == (args.history is None):
        raise AuditInputError("explain needs --out DIR or --history DIR; give one of them")
    if args.out is not None:
        row = explaining.one(findings_of(args.out), str(args.fingerprint))
        summary = json.loads((args.out / "summary.json").read_text(encoding="utf-8"))
        page = (args.out / "report.html").resolve().as_uri()
    else:
        row = explaining.one(_of_history(args.history), str(args.fingerprint))
        summary = _summary(args.history, row["run_id"])
        page = f"/report/{quote(row['run_id'], safe='')}"
    width = shutil.get_terminal_size((120, 24)).columns
    sys.stdout.write(explaining.text(row, width, summary.get("cluster_events")))
    served = "" if args.out is not None else ", which 'auditor dashboard' serves"
    sys.stdout.write(f"\nIn the report{served}:\n  {page}#{short_fingerprint(row)}\n")
    return 0


def _summary(history: History, run_id: str) -> dict[str, Any]:
    """The summary of a kept run."""
    (each,) = (run for run in runs.committed(history) if run.run_id == run_id)
    summary: dict[str, Any] = json.loads(runs.read(history, each, "runs")["summary"][0].as_py())
    return summary


def findings_of(out: Path) -> Iterable[Mapping[str, Any]]:
    """The findings in the ``--out`` of an audit, each with its ``fingerprint``; of a run before they had one, but those
    of rules that are no more.

    Errors: :class:`AuditInputError` for a folder without results.
    """
    try:
        summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
        lines = (out / "findings.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
    except (OSError, ValueError):
        raise AuditInputError(f"{out} holds no results of an audit; give the --out of one") from None
    of_dir = {row["log_dir"]: row["cluster_id"] for row in summary["inputs"]}
    for row in rows:
        if "fingerprint" in row:
            yield row
        elif row["rule"] in registry.kinds():
            yield row | {"fingerprint": fingerprint(row, cluster_of(row, of_dir))}


def _of_history(history: History) -> Iterable[Mapping[str, Any]]:
    """The findings of every run, the newest first, each with its ``run_id``."""
    for each in reversed(runs.committed(history)):
        for row in runs.read(history, each, "findings").to_pylist():
            yield results.unfolded(row) | {"run_id": each.run_id}
