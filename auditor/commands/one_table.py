"""``auditor lag``, ``space``, ``cleaner`` and ``impact``: a table of an audit each, human-readable or as data."""

from __future__ import annotations

import argparse
import fnmatch
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auditor import running
from auditor.base.at_rest import Fields
from auditor.commands import arguments
from auditor.commands.arguments import add_remote, add_repeatable, add_scope, examples, path_options, utf8_stdout
from auditor.pipeline.options import AuditOptions

if TYPE_CHECKING:
    import pyarrow as pa


FORMATS = ("table", "json", "csv")
ORDER = ("topic", "partition", "broker_id", "log_dir", "base_offset", "group_id", "kind")


HELP = {
    "lag": "consumer lag in records, without markers, aborted records and compacted offsets",
    "space": "why each segment is retained, by which setting, and when it is deleted",
    "cleaner": "status of the log cleaner per compacted log: dirty ratio, and what holds it back",
    "impact": "list the records that are lost, hidden, exposed or duplicated; exit code 1 if there are any, 3 if "
    "the list may be incomplete",
}
EXAMPLES = {
    "lag": (
        "auditor lag /var/kafka-logs",
        "auditor lag /copies --group 'billing-*' --records",
        "auditor lag /copies --format json | jq 'select(.held_by)'",
    ),
    "space": (
        "auditor space /var/kafka-logs --as-of now",
        "auditor space /copies --topic orders --all",
        "auditor space /copies --format json | jq 'select(.kept_by == \"timestamp_in_the_future\")'",
    ),
    "cleaner": ("auditor cleaner /var/kafka-logs", "auditor cleaner /copies --topic __consumer_offsets --all"),
    "impact": (
        "auditor impact /copies",
        "auditor impact /copies --topic orders --format csv",
        "auditor impact /copies --format json | jq 'select(.outcome == \"lost\")'",
    ),
}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands to the console script's."""
    for table in HELP:
        p = commands.add_parser(table, help=HELP[table], epilog=examples(*EXAMPLES[table]))
        _add_options(p)
        if table == "lag":
            add_repeatable(p, "--group", "GLOB", "only these groups (repeatable)")
            p.add_argument(
                "--records",
                action="store_true",
                help="decode compacted batches at a committed offset, to count their records exactly",
            )
        if table == "impact":
            p.add_argument(
                "--include-payload",
                metavar="FILE",
                help="write keys and values of lost and hidden records that a replica has to FILE (JSON Lines, base64)",
            )
        p.set_defaults(run=run, table=table)


def _add_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("paths", nargs="+", metavar="PATH", help="as for 'auditor audit'")
    add_remote(p)
    add_scope(p)
    p.add_argument("--as-of", metavar="TIME", help="evaluation time: ISO-8601, epoch ms, or now")
    arguments.add_point_in_time(p)
    p.add_argument("--format", default="table", choices=FORMATS, metavar="FORMAT", help=", ".join(FORMATS))
    p.add_argument("--all", action="store_true", help="include rows with nothing to report")
    p.add_argument(
        "--master", default="inline", metavar="URL", help="inline, inline[N], or a Spark master (default %(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    """Print the rows of ``args.table`` and return the exit code: 0, or 3 if part of the input was unreadable.

    For ``impact`` also 1: if there are rows; and 3 if findings say that more records may be lost.
    """
    from auditor.commands.rowtext import json_lines
    from auditor.dashboards import output_formats, table_lines
    from auditor.pipeline.impact_table import without_rows
    from auditor.pipeline.whole_audit import Audit

    out = utf8_stdout()
    records = getattr(args, "records", False)
    options = AuditOptions(tuple(args.paths), Path(), records=records, at_once=args.at_once, **path_options(args))
    with running.failures(), running.runner(options) as runner:
        audit = Audit(options, runner)
        table = audit.table(args.table)
        rows: pa.Table = table if hasattr(table, "to_batches") else table.toArrow()  # Spark's
        texts = [line for batch in rows.to_batches() for line in json_lines(batch)]
        status = 3 if audit.incomplete() else 0
        running.warn_of_empty(audit)
        asked = [row for row in map(json.loads, texts) if options.scope.names(row["topic"], row["partition"])]
        scoped = [f for f in audit.findings if f.topic is None or options.scope.names(f.topic, f.partition)]
        unlisted = len(without_rows(scoped, asked)) if args.table == "impact" else 0
        if file := getattr(args, "include_payload", None):
            from auditor.pipeline.impact_payload import payload_lines

            with Path(file).open("w", encoding="utf-8") as replay:
                replay.writelines(f"{line}\n" for line in payload_lines(audit, asked))
        audit.close()
    if groups := getattr(args, "group", []):
        asked = [row for row in asked if any(fnmatch.fnmatchcase(row["group_id"], glob) for glob in groups)]
    chosen = asked if args.table == "impact" else sorted(asked, key=_place)  # which is sorted by outcome
    if args.table == "impact" and (chosen or unlisted):
        status = status or (3 if unlisted else 1)
    if args.format == "json":
        out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in chosen)
    elif args.format == "csv":
        out.writelines(output_formats.csv_lines(rows.schema.names, chosen))
    else:
        shown: dict[str, Callable[[list[Fields], bool], Iterator[str]]] = {
            "lag": table_lines.lag_lines,
            "space": table_lines.space_lines,
            "cleaner": table_lines.cleaner_lines,
            "impact": partial(table_lines.impact_lines, unlisted=unlisted),
        }
        out.writelines(shown[args.table](chosen, args.all))
    out.flush()
    if unlisted and args.format != "table":
        running.warn([f"{table_lines.unlisted_note(unlisted)}. Run: auditor audit PATH"])
    return status


def _place(row: Fields) -> list[tuple[bool, Any]]:
    return [(row.get(name) is None, row.get(name)) for name in ORDER]
