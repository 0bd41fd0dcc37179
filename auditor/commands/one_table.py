"""What lag, space and cleaner share."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auditor.base.at_rest import Fields
from auditor.commands.arguments import add_remote, add_scope, scope_options
from auditor.pipeline.options import AuditOptions, parse_time

if TYPE_CHECKING:
    import pyarrow as pa


FORMATS = ("table", "json", "csv")
ORDER = ("topic", "partition", "broker_id", "log_dir", "base_offset", "group_id", "kind")


def add_options(p: argparse.ArgumentParser) -> None:
    """The options of such a command."""
    p.add_argument("paths", nargs="+", metavar="PATH", help="as 'auditor audit' takes; a copy of 'auditor copy', too")
    add_remote(p)
    add_scope(p)
    p.add_argument("--as-of", metavar="TIME", help="the clock to go by: ISO-8601, epoch ms or now")
    p.add_argument("--at-once", action="store_true", help="every file is of one moment, as in a snapshot of the disk")
    p.add_argument("--format", default="table", choices=FORMATS, metavar="FORMAT", help=", ".join(FORMATS))
    p.add_argument("--all", action="store_true", help="in the table, rows too of which there is little to say")
    p.add_argument(
        "--master", default="inline", metavar="URL", help="inline, inline[N], or a Spark master (default %(default)s)"
    )


def run(
    args: argparse.Namespace,
    table: str,
    lines: Callable[[list[Fields], bool], Iterator[str]],
    wanted: Callable[[Fields], bool] = lambda row: True,
) -> int:
    """Prints the rows of a table; returns 0, or 3 where a part of the input could not be read.

    ``lines``: what people are shown of them, of all or of those that say something; ``wanted``: which rows count.
    """
    from auditor import running
    from auditor.commands.rowtext import json_lines
    from auditor.pipeline.whole_audit import Audit

    out = sys.stdout
    out.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    options = AuditOptions(
        tuple(args.paths),
        Path(),
        records=getattr(args, "records", False),
        master=args.master,
        as_of=None if args.as_of is None else parse_time(args.as_of),
        remote=tuple(args.remote),
        at_once=args.at_once,
        **scope_options(args),
    )
    with running.failures(), running.runner(options) as runner:
        audit = Audit(options, runner)
        found = audit.table(table)
        rows: pa.Table = found if hasattr(found, "to_batches") else found.toArrow()  # Spark's
        texts = [line for batch in rows.to_batches() for line in json_lines(batch)]
        status = 3 if audit.incomplete() else 0
        running.warn_of_empty(audit)
        audit.close()
    asked = (row for row in map(json.loads, texts) if options.scope.names(row["topic"], row["partition"]))
    said = sorted(filter(wanted, asked), key=_place)
    if args.format == "json":
        out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in said)
    elif args.format == "csv":
        from auditor.dashboards.output_formats import csv_lines

        out.writelines(csv_lines(rows.schema.names, said))
    else:
        out.writelines(lines(said, args.all))
    out.flush()
    return status


def _place(row: Fields) -> list[tuple[bool, Any]]:
    return [(row.get(name) is None, row.get(name)) for name in ORDER]
