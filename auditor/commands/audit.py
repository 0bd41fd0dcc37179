"""``auditor audit``: decode, replay, judge; findings, summary and report."""

from __future__ import annotations

import argparse

from auditor import running
from auditor.commands.arguments import add_audit_options, audit_options, printing
from auditor.commands.parser import examples


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "audit",
        help="decode, replay, judge; write findings, summary and report",
        epilog=examples(
            "auditor audit /var/kafka-logs --out /tmp/audit",
            "auditor audit broker-1 broker-2 broker-3 --out /tmp/audit --as-of now --bootstrap-server kafka:9092",
            "auditor audit /var/kafka-logs --out /tmp/audit --partition payments-7 --min-severity warning",
            "auditor audit /var/kafka-logs --out /tmp/audit --baseline accepted.json --format junit > audit.xml",
        ),
    )
    add_audit_options(p)
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; returns its exit status."""
    options = audit_options(args, args.paths)
    with running.runner(options) as runner:
        from auditor.pipeline.whole_audit import Audit  # only now: see running.runner

        return running.command(Audit(options, runner), printing(args), alert=args.alert, alert_on=args.alert_on)
