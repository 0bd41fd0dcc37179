"""Writes docs/tables.md, the page of every table, from the code's own columns: tables_page.py OUT.md"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

from auditor.connectors.schema import JSON, TABLES
from auditor.pipeline.derived_tables import all_columns

HEAD = """# Tables

Every table that `auditor sql`, `--tables`, `audit.table(NAME)` and, but for the derived ones, Spark's
`spark.read.format("kafka_...")` give. Times are UTC, sizes are bytes, offsets and sequences are as Kafka stores them
(-1 where there is none). Tables of a log begin with where a row comes from: `cluster_id`, `broker_id`, `log_dir`,
`topic`, `partition`. Where the input has several replicas, `WHERE leader_copy` counts each offset range once; the
views `batches_once` and `records_once` have these rows alone. The audit decides which copy counts: with several copies
of a log in the input, the first query of a decoded table scans all of them. Spark's own formats leave it null then.

The examples are DuckDB's SQL (`--engine duckdb`); a test runs each. Made by `scripts/tables_page.py`.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for name, columns in all_columns(payload=True).items():
        table = TABLES[name]
        rows = "\n".join(f"| `{c.name}` | {_type(c)} | {table.meanings[c.name]} |" for c in columns)
        head = "| column | type | holds |\n| --- | --- | --- |"
        parts.append(f"## {name}\n\nA row is {table.row}.\n\n```sql\n{table.example}\n```\n\n{head}\n{rows}\n")
    return "\n".join(parts)


def _type(column: pa.Field) -> str:
    kind = column.type
    if pa.types.is_timestamp(kind):
        return "timestamp, ms, UTC"
    if pa.types.is_list(kind):
        return f"list of {kind.value_type}"
    return "string of JSON" if column.metadata == JSON or column.name in ("evidence", "advice") else str(kind)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
