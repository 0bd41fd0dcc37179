"""``auditor rules``: the catalogue, and what is to be known about one rule."""

from __future__ import annotations

import argparse
import sys

from auditor.base.errors import AuditInputError


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser("rules", help="the catalogue of rules; with an id, all about one")
    p.add_argument("id", nargs="?", help="a rule's id")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; returns its exit status."""
    from auditor.rules import registry
    from auditor.rules.rule_page import catalogue, page

    known = registry.load()
    if args.id is None:
        sys.stdout.write(catalogue(known))
        return 0
    if args.id not in known:
        raise AuditInputError(f"no rule named {args.id!r}; 'auditor rules' lists them")
    sys.stdout.write(page(known[args.id]))
    return 0
