"""``auditor rules``: the catalogue, and what is to be known about one rule."""

from __future__ import annotations

import argparse
import sys

from auditor.base.errors import AuditInputError
from auditor.commands.arguments import examples
from auditor.dashboards.output_formats import OF_LISTS, list_lines


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "rules",
        help="list the rules; with an id, show its page",
        epilog=examples("auditor rules", "auditor rules hanging-transaction", "auditor rules --format csv"),
    )
    p.add_argument("id", nargs="?", metavar="ID", help="id of a rule, or of a kind of its findings (default: list all)")
    p.add_argument(
        "--format", default="table", choices=OF_LISTS, metavar="FORMAT", help=f"of the list: {', '.join(OF_LISTS)}"
    )
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from auditor.rules.catalogue import registry

    rules = registry.load()
    if args.id is not None:
        rule = registry.rule_of(args.id)
        if rule is None:
            raise AuditInputError(
                f"no rule named {args.id!r}{registry.meant(args.id)}; run 'auditor rules' to list them"
            )
        sys.stdout.write(registry.page(rule))
    elif args.format == "table":
        sys.stdout.write(registry.catalogue(rules))
    else:
        rows = [{"id": r.id, "family": r.family, "severity": r.severity, "title": r.title} for r in rules.values()]
        sys.stdout.writelines(list_lines(args.format, rows))
    return 0
