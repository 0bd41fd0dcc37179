"""``auditor what-if``: the same history under each broker policy (semantics 2.6).

Reports which batches would have been rejected, with which error, and the memory of producer state. Writes
``what-if.json``, ``findings.jsonl``, ``findings/`` and ``tables/verdicts/`` below ``--out``.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import Any, TextIO

from auditor import running
from auditor.base.at_rest import Fields, as_json
from auditor.commands.arguments import add_master, add_remote, add_repeatable, add_scope, examples, path_options
from auditor.dashboards import page
from auditor.model.policies import AUTO, CHOICES, DRAFT_WINDOW, SAYS, named
from auditor.pipeline.options import AuditOptions, check_window, out_of


def add_parser(commands: Any) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "what-if",
        help="replay the history under each broker policy: rejected writes, and memory",
        epilog=examples("auditor what-if /var/kafka-logs --out /tmp/what-if"),
    )
    p.add_argument(
        "paths", nargs="+", metavar="PATH", help="log directory, a directory above several, partition directory or URI"
    )
    p.add_argument("-o", "--out", type=out_of, required=True, metavar="DIR", help="output directory or URI")
    names = [name for name in CHOICES if name != AUTO]
    add_repeatable(p, "--policy", "NAME", f"only this policy: {', '.join(names)} (repeatable)", choices=names)
    p.add_argument(
        "--duplicate-window",
        type=int,
        default=DRAFT_WINDOW,
        metavar="N",
        help="sequence numbers below the newest that the draft treats as duplicates: its "
        f"max.in.flight.sequence.number.per.connection (default: {DRAFT_WINDOW})",
    )
    add_scope(p)
    p.add_argument("--as-of", metavar="TIME", help="evaluation time: ISO-8601 or epoch ms")
    add_remote(p)
    add_master(p)
    p.add_argument("--format", default="table", choices=("table", "json"), help="output format: table, json")
    p.add_argument("-q", "--quiet", action="store_true", help="print only errors")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    check_window(args.duplicate_window)
    options = AuditOptions(tuple(args.paths), args.out, fail_on="never", **path_options(args))
    with running.runner(options) as runner:
        from auditor.outputs.publish import publish_what_if  # late: see running.runner
        from auditor.pipeline.what_if_audit import WhatIfAudit

        done = WhatIfAudit(options, runner, named(tuple(args.policy)), args.duplicate_window)
        running.write_by(done, publish_what_if)
    if not args.quiet and args.format == "json":
        sys.stdout.write(as_json(done.result))
    elif not args.quiet:
        from auditor.outputs.delivery import WHAT_IF, shown

        show(done.result, sys.stdout)
        sys.stdout.write(f"\nResults: {shown(args.out, WHAT_IF)}\n")
    running.warn_of_empty(done)
    return done.exit_code()


def show(result: Fields, out: TextIO) -> None:
    """Print the policies, the batches that they answer differently, and the brokers' memory as tables."""
    policies = []
    for policy in result["policies"]:
        runs = Counter[str]()
        for row in policy["errors"]:
            runs[row["error"]] += row["runs"]
        policies.append((policy, ", ".join(f"{error} {count}" for error, count in sorted(runs.items()))))
    lines = page.lines("what_if.txt.j2", result=result, policies=policies, says=SAYS)
    out.writelines(f"{line}\n" for line in lines)
