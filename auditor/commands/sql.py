"""``auditor sql "SELECT ..." PATH...``: SQL over the tables of contract section 4."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from auditor.commands.arguments import add_master, add_remote
from auditor.commands.parser import examples
from auditor.pipeline.options import DEFAULT_SPLIT_BYTES, AuditOptions, parse_time

if TYPE_CHECKING:
    import pyarrow as pa

    from auditor.pipeline.whole_audit import Audit


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "sql",
        help="SQL over the decoded and derived tables",
        epilog=examples(
            "auditor sql 'SELECT producer_id, count(*) FROM batches GROUP BY 1' /var/kafka-logs",
        ),
    )
    p.add_argument("query", metavar="SQL", help='such as "SELECT producer_id, count(*) FROM batches GROUP BY 1"')
    p.add_argument("paths", nargs="+", metavar="PATH", help="as for audit")
    p.add_argument("--format", default="table", choices=("table", "json"), help="a table for people, or JSON lines")
    p.add_argument("--topic", action="append", default=[], metavar="GLOB", help="only these topics (repeatable)")
    p.add_argument("--records", action="store_true", help="findings and decode_errors: look into every record too")
    p.add_argument("--include-payload", action="store_true", help="keys and values in the table records")
    p.add_argument("--as-of", metavar="TIME", help="clock that time-outs are judged by: ISO-8601 or epoch ms")
    add_remote(p)
    add_master(p)
    p.add_argument(
        "--split-size", type=int, default=DEFAULT_SPLIT_BYTES, metavar="BYTES", help="of a segment that a task reads"
    )
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; returns its exit status: 0, or 3 when a part of the input could not be read."""
    from auditor import running
    from auditor.commands.rowtext import json_lines, table_lines
    from auditor.pipeline.what_if_audit import AuditWithVerdicts

    options = AuditOptions(
        tuple(args.paths), Path(), records=args.records, topics=tuple(args.topic), master=args.master,
        as_of=parse_time(args.as_of) if args.as_of is not None else None, split_size=args.split_size,
        include_payload=args.include_payload, remote=tuple(args.remote),
    )  # fmt: skip
    with running.failures(), running.runner(options) as runner:
        audit = AuditWithVerdicts(options, runner)
        result = query(audit, args.query)
        status = 3 if audit.incomplete() else 0
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    if args.format == "json":
        for batch in result.to_batches():
            sys.stdout.writelines(json_lines(batch))
    else:
        for batch in result.combine_chunks().to_batches():
            sys.stdout.writelines(table_lines(batch))
    sys.stdout.flush()
    return status


def query(audit: Audit, text: str) -> pa.Table:
    """The result of an SQL text over the tables of an audit's paths.

    Errors: :class:`AuditInputError` for a text that is wrong. Cost: what the tables that the text names cost; the
    derived ones need the replay, ``findings`` the rules too. The result is held in memory.
    """
    _ = audit.inventory  # a wrong path is said before anything starts
    audit.ready()
    try:
        return audit.runner.query(audit, text, mentioned(text))
    finally:
        audit.close()


def mentioned(text: str) -> frozenset[str]:
    """The tables whose names stand in an SQL text."""
    from auditor.pipeline import derived_tables

    return frozenset(re.findall(r"\w+", text.lower())) & frozenset(derived_tables.NAMES)
