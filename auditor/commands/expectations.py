"""``auditor expectations``: the great-expectations suites as files, for a team's own project."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from auditor.base.errors import AuditInputError, require
from auditor.base.words import plural
from auditor.commands.arguments import examples
from auditor.connectors.stores import results
from auditor.pipeline import derived_tables  # noqa: F401 - declares tables that suites are of


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "expectations",
        help="export the great-expectations suites as JSON and SQL",
        epilog=examples("auditor expectations --export /srv/quality/auditor"),
    )
    p.add_argument("--export", type=Path, required=True, metavar="DIR", help="output directory (required)")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    require("great_expectations")
    from auditor.rules.expectations import suites

    target: Path = args.export
    names = []
    try:
        for name, text in suites.files():
            results.folder((target / name).parent).put_text(Path(name).name, text)
            names.append(name)
    except OSError as error:
        raise AuditInputError(f"cannot write into {target}: {error.strerror}; give another --export DIR") from None
    count = sum(name.startswith("suites/") for name in names)
    sys.stdout.write(f"{plural(count, 'suite')} and the SQL of their views written to {target}\n")
    return 0
