"""``auditor audit``: decode, replay, judge; findings, summary and report."""

from __future__ import annotations

import argparse

from auditor import running
from auditor.commands.arguments import add_audit_options, audit_options


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser("audit", help="decode, replay, judge; write findings, summary and report")
    add_audit_options(p)
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; returns its exit status."""
    options = audit_options(args, args.paths)
    with running.runner(options) as runner:
        from auditor.pipeline.whole_audit import Audit  # only now: see running.runner

        return running.command(
            Audit(options, runner), quiet=args.quiet, as_json=args.format == "json", verbose=args.verbose,
            alert=args.alert,
            alert_on=args.alert_on,
        )  # fmt: skip
