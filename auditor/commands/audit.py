"""``auditor audit``: decode, replay, judge; findings, summary and report."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from pathlib import Path

from auditor import running
from auditor.base.errors import AuditInputError
from auditor.commands.arguments import add_audit_options, alerting, audit_options, examples, printing, utf8_stdout


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "audit",
        help="audit log directories; write findings, summary and report",
        epilog=examples(
            "auditor audit /var/kafka-logs --out /tmp/audit",
            "auditor audit /var/kafka-logs --plan",
            "auditor audit broker-1 broker-2 broker-3 --out /tmp/audit --as-of now --bootstrap-server kafka:9092",
            "auditor audit /var/kafka-logs --out /tmp/audit --partition payments-7 --min-severity warning",
            "auditor audit /var/kafka-logs --out /tmp/audit --baseline accepted.json --format junit > audit.xml",
        ),
    )
    add_audit_options(p, plan=True)
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    if args.plan:
        return _plan(args)
    args.out = args.out or _default_out()
    options = audit_options(args, args.paths)
    with running.runner(options) as runner:
        from auditor.pipeline.whole_audit import Audit  # only now: see running.runner

        return running.command(Audit(options, runner), printing(args), alerting(args))


def _default_out() -> Path:
    # A script would look for its results elsewhere, so only a person at a terminal gets a default.
    if not sys.stdout.isatty():
        raise AuditInputError("--out is required when stdout is not a terminal")
    return Path(datetime.datetime.now().strftime("audit-%Y%m%d-%H%M%S"))


def _plan(args: argparse.Namespace) -> int:
    # Lists the input and reads nothing else of it.
    if args.format not in ("table", "json"):
        raise AuditInputError(f"invalid --format {args.format!r} with --plan: expected table or json")
    args.out = args.out or Path()
    options = audit_options(args, args.paths)
    from auditor.connectors.logdir.inventory import discover
    from auditor.dashboards.table_lines import plan_lines
    from auditor.pipeline.plan import forecast

    inventory = discover(list(options.inputs), options.limits, options.scope)
    plan = forecast(inventory, options, running.slots_of(options.master))
    out = utf8_stdout()
    if args.format == "json":
        out.write(json.dumps(plan, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
    else:
        out.writelines(plan_lines(plan))
    return 3 if plan["unreadable"] else 0
