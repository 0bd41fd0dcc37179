"""``auditor cleaner PATH...``: where the log cleaner stands in each compacted log, and what holds it back."""

from __future__ import annotations

import argparse

from auditor.commands import one_table
from auditor.commands.arguments import examples


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "cleaner",
        help="where the log cleaner stands in each compacted log, how dirty that is, and what holds it back",
        epilog=examples("auditor cleaner /var/kafka-logs", "auditor cleaner /copies --topic __consumer_offsets --all"),
    )
    one_table.add_options(p)
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; returns its exit status."""
    from auditor.dashboards.table_lines import cleaner_lines

    return one_table.run(args, "cleaner", cleaner_lines)
