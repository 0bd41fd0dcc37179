"""``auditor lag PATH...``: what each group has left to read, counted by records and not by offsets."""

from __future__ import annotations

import argparse
import fnmatch

from auditor.base.at_rest import Fields
from auditor.commands import one_table
from auditor.commands.arguments import examples


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "lag",
        help="what each group has left to read, in records: without markers, aborted data and what was cleaned away",
        epilog=examples(
            "auditor lag /var/kafka-logs",
            "auditor lag /copies --group 'billing-*' --records",
            "auditor lag /copies --format json | jq 'select(.held_by)'",
        ),
    )
    one_table.add_options(p)
    p.add_argument("--group", action="append", default=[], metavar="GLOB", help="only these groups (repeatable)")
    p.add_argument(
        "--records",
        action="store_true",
        help="look into cleaned batches that an offset points into, so that their records are counted exactly",
    )
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; returns its exit status."""
    from auditor.dashboards.table_lines import lag_lines

    def wanted(row: Fields) -> bool:
        return not args.group or any(fnmatch.fnmatchcase(row["group_id"], glob) for glob in args.group)

    return one_table.run(args, "lag", lag_lines, wanted)
