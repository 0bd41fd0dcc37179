"""``auditor sql "SELECT ..." PATH...``: SQL over the tables of contract section 4."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from auditor.base.errors import AuditInputError
from auditor.pipeline.options import DEFAULT_SPLIT_BYTES, AuditOptions, parse_time

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from auditor.pipeline.audit import Audit


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser("sql", help="SQL over the decoded and derived tables")
    p.add_argument("query", metavar="SQL", help='such as "SELECT producer_id, count(*) FROM batches GROUP BY 1"')
    p.add_argument("paths", nargs="+", metavar="PATH", help="as for audit")
    p.add_argument("--format", default="table", choices=("table", "json"), help="a table for people, or JSON lines")
    p.add_argument("--topic", action="append", default=[], metavar="GLOB", help="only these topics (repeatable)")
    p.add_argument("--records", action="store_true", help="findings and decode_errors: look into every record too")
    p.add_argument("--include-payload", action="store_true", help="keys and values in the table records")
    p.add_argument("--as-of", metavar="TIME", help="clock that time-outs are judged by: ISO-8601 or epoch ms")
    p.add_argument("--master", default="local[*]", metavar="URL", help="Spark master (default local[*])")
    p.add_argument("--split-size", type=int, default=DEFAULT_SPLIT_BYTES, metavar="BYTES")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; returns its exit status: 0, or 3 when a part of the input could not be read."""
    from auditor.commands.rowtext import json_lines, table_lines
    from auditor.pipeline import audit as auditing
    from auditor.spark import session

    options = AuditOptions(
        tuple(args.paths), Path(), records=args.records, topics=tuple(args.topic), master=args.master,
        as_of=parse_time(args.as_of) if args.as_of is not None else None, split_size=args.split_size,
        include_payload=args.include_payload,
    )  # fmt: skip
    audit = auditing.open_input(options)
    result = query(session.start(options.master), audit, args.query)
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    if args.format == "json":
        for batch in result.to_batches():
            sys.stdout.writelines(json_lines(batch))
    else:
        for batch in result.combine_chunks().to_batches():
            sys.stdout.writelines(table_lines(batch))
    sys.stdout.flush()
    return 3 if audit.incomplete() else 0


def query(spark: SparkSession, audit: Audit, text: str) -> pa.Table:
    """The result of an SQL text over the tables of an audit's paths.

    Errors: :class:`AuditInputError` for a text that Spark does not take. Cost: what the tables that the text names
    cost; the derived ones need the replay, ``findings`` the rules too. The result is held in memory.
    """
    from auditor.spark import fatal_files

    return fatal_files.without(spark, audit, mentioned(text), lambda: _result(spark, audit, text))


def _result(spark: SparkSession, audit: Audit, text: str) -> pa.Table:
    from pyspark import errors

    from auditor.spark import tables

    facts = register(spark, audit, mentioned(text))
    try:
        return spark.sql(text).toArrow()
    except (
        errors.AnalysisException,
        errors.ArithmeticException,
        errors.DateTimeException,
        errors.NumberFormatException,
    ) as e:
        says = str(e).strip().splitlines()[0]
        raise AuditInputError(f"{says} (tables: {', '.join(tables.NAMES)})") from None
    finally:
        if facts is not None:
            facts.unpersist()


def mentioned(text: str) -> frozenset[str]:
    """The tables whose names stand in an SQL text."""
    from auditor.spark import tables

    return frozenset(re.findall(r"\w+", text.lower())) & frozenset(tables.NAMES)


def register(spark: SparkSession, audit: Audit, names: frozenset[str]) -> DataFrame | None:
    """Make views of all decoded tables and of the derived ones among ``names``; returns the facts if it needed them."""
    from auditor.connectors import schema
    from auditor.pipeline import audit as auditing
    from auditor.pipeline import plan
    from auditor.spark import scan, tables

    for name in schema.DECODED:
        tables.decoded(spark, audit, name).createOrReplaceTempView(name)
    if "verdicts" in names:
        _verdicts(spark, audit).createOrReplaceTempView("verdicts")
    if names.isdisjoint({*tables.OF_FACTS, "findings"}):
        return None
    facts = scan.read_copies(spark, plan.copy_tasks(audit.inventory, audit.settings, audit.options))
    audit.briefs = scan.collect_briefs(facts)
    auditing.add_context(audit)
    for name in tables.OF_FACTS:
        tables.from_facts(spark, facts, audit.clusters, name).createOrReplaceTempView(name)
    if "findings" in names:
        auditing.judge(audit, spark, facts, auditing.chosen_rules(audit.options))
        tables.findings(spark, audit).createOrReplaceTempView("findings")
    return facts


def _verdicts(spark: SparkSession, audit: Audit) -> DataFrame:
    """What a what-if over the same paths writes."""
    import pyarrow.parquet as pq

    from auditor.commands import what_if
    from auditor.spark import tables

    with tempfile.TemporaryDirectory() as folder:
        what_if.run(replace(audit.options, out=Path(folder)), spark=spark)
        return tables.local(spark, pq.read_table(Path(folder, "tables", "verdicts")))
