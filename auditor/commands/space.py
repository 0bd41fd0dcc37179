"""``auditor space PATH...``: what keeps each segment on the disk, by which setting, and when it goes."""

from __future__ import annotations

import argparse

from auditor.commands import one_table
from auditor.commands.arguments import examples


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "space",
        help="what keeps each segment on the disk, by which setting, and when it goes",
        epilog=examples(
            "auditor space /var/kafka-logs --as-of now",
            "auditor space /copies --topic orders --all",
            "auditor space /copies --format json | jq 'select(.kept_by == \"timestamp_in_the_future\")'",
        ),
    )
    one_table.add_options(p)
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; returns its exit status."""
    from auditor.dashboards.table_lines import space_lines

    return one_table.run(args, "space", space_lines)
