"""``auditor compare``: two topics, clusters or backups compared by the content of their records."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from auditor import running
from auditor.base.errors import AuditInputError
from auditor.commands import arguments
from auditor.commands.arguments import add_remote, add_repeatable, examples, utf8_stdout
from auditor.pipeline.options import AuditOptions

if TYPE_CHECKING:
    from auditor.pipeline.comparison import Comparison

FORMATS = ("table", "json", "csv")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "compare",
        help="compare two topics, clusters or backups by the content of their records; exit code 1 if they differ",
        epilog=examples(
            "auditor compare /primary/kafka-logs /mirror/kafka-logs",
            "auditor compare /primary /mirror --topic orders --topic-map orders=west.orders",
            "auditor compare /primary s3://backups/kafka --format json | jq 'select(.kind == \"missing\")'",
        )
        + "\nexit code: 0 if B has the records of A and no others. 1 if they differ. 3 if part of the input was "
        "unreadable (3 takes precedence over 1)",
    )
    for name, meaning in (("a", "the source"), ("b", "the mirror or the backup")):
        p.add_argument(name, metavar=name.upper(), help=f"{meaning}: a PATH as for 'auditor audit'")
    add_repeatable(p, "--topic", "GLOB", "compare only these topics of A (repeatable)")
    add_repeatable(p, "--topic-map", "A=B", "topic A of the source is topic B of the mirror (repeatable)")
    p.add_argument("--sum-key", metavar="FILE", help="key of the sums, 32 bytes (default: a random one)")
    add_remote(p)
    arguments.add_point_in_time(p)
    p.add_argument("--format", default="table", choices=FORMATS, metavar="FORMAT", help=", ".join(FORMATS))
    p.add_argument("--all", action="store_true", help="include all ranges, and offsets that were translated correctly")
    p.add_argument("--html", metavar="FILE", type=Path, help="also write the result as a page")
    p.add_argument(
        "--master", default="inline", metavar="URL", help="inline, inline[N], or a Spark master (default %(default)s)"
    )
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the ranges that differ and return the exit code: 0, 1 if there are any, or 3 if input was unreadable."""
    from auditor.pipeline.comparison import CompareOptions, compare
    from auditor.pipeline.topic_pairs import parsed_map

    key = None if args.sum_key is None else key_of(Path(args.sum_key))
    asked = CompareOptions(parsed_map(args.topic_map), key)
    how = {"master": args.master, "at_once": args.at_once, "remote": tuple(args.remote)}
    theirs = AuditOptions((args.b,), Path(), **how)
    ours = replace(theirs, paths=(args.a,), topics=tuple(args.topic))
    out = utf8_stdout()
    try:
        if args.html is not None and not args.html.is_file():
            args.html.open("x").close()
            args.html.unlink()
    except OSError as error:
        raise AuditInputError(f"cannot write --html {args.html}: {error.strerror}; give another FILE") from None
    with running.failures(), running.runner(ours) as runner:
        done = compare((ours, theirs), runner, asked)
    out.writelines(_lines(done, args.format, every=args.all))
    out.flush()
    if args.html is not None:
        from auditor.dashboards.comparison_page import comparison_page

        about = done.partitions, done.records, done.incomplete
        args.html.write_text(comparison_page(done.shown, *about, (args.a, args.b)), "utf-8")
    return 3 if done.incomplete else int(done.differs)


def key_of(file: Path) -> bytes:
    """Return the key of a file. Errors: :class:`AuditInputError` where it cannot be read, or has another size."""
    from auditor.replay.reading.record_sums import KEY_BYTES

    try:
        key = file.read_bytes()
    except OSError as error:
        raise AuditInputError(f"cannot read --sum-key {file}: {error.strerror}; give a file of 32 bytes") from None
    if len(key) != KEY_BYTES:
        raise AuditInputError(
            f"invalid --sum-key {file}: {len(key)} bytes, expected {KEY_BYTES}; to make one: "
            "head -c 32 /dev/urandom > FILE"
        )
    return key


def _lines(done: Comparison, format: str, *, every: bool) -> list[str]:
    from auditor.dashboards import output_formats, table_lines
    from auditor.pipeline.comparison import COMPARISON

    rows = done.shown if every else table_lines.without_right_groups(done.shown)
    if format == "table":
        return [*table_lines.comparison_lines(rows, done.partitions, done.records, done.incomplete, every)]
    if format == "csv":
        return [*output_formats.csv_lines(COMPARISON.names, rows)]
    return [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
