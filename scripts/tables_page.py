"""Writes docs/tables.md, the page of every table, from the code's own columns: tables_page.py OUT.md"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

from auditor.connectors.schema import JSON, RENAMED, TABLES
from auditor.pipeline.comparison import COMPARISON
from auditor.pipeline.derived_tables import all_columns

# Questions of everyday, each in one line. A test asks them of a cluster with three replicas, and of one replica.
QUESTIONS = {
    "Who aborts most": "SELECT transactional_id, count(*) AS aborted FROM transactions WHERE outcome = 'ABORT' "
    "GROUP BY ALL ORDER BY aborted DESC",
    "Transactions per minute": "SELECT date_trunc('minute', began_earliest_at) AS minute, count(*) AS transactions "
    "FROM transactions GROUP BY ALL ORDER BY minute",
    "Longest open": "SELECT transactional_id, producer_id, began_earliest_at FROM transactions WHERE outcome IS NULL "
    "ORDER BY began_earliest_at",
    "p99 of the duration": "SELECT percentile_cont(0.99) WITHIN GROUP (ORDER BY duration_ms) AS p99_ms "
    "FROM transactions",
    "Epoch bumps per id": "SELECT transactional_id, count(DISTINCT (producer_id, producer_epoch)) - 1 AS bumps "
    "FROM transactions GROUP BY ALL ORDER BY bumps DESC",
    "Which partition grows": "SELECT topic, partition, date_trunc('hour', max_timestamp) AS hour, sum(bytes) AS bytes "
    "FROM batches_once GROUP BY ALL ORDER BY bytes DESC",
    "Churn of producer ids": "SELECT transactional_id, count(DISTINCT producer_id) AS ids FROM producer_states "
    "GROUP BY ALL ORDER BY ids DESC",
    "Gaps and duplicates": "SELECT topic, partition, kind, count(*) AS n FROM events WHERE leader_copy AND kind IN "
    "('sequence_gap', 'sequence_overlap', 'sent_again', 'offset_hole') GROUP BY ALL ORDER BY n DESC",
    "Lag of each group": "SELECT group_id, sum(offsets) AS lag, sum(committed_records) AS records FROM lag "
    "GROUP BY ALL ORDER BY lag DESC",
    "Why bytes are kept": "SELECT kept_by, setting, sum(bytes) AS bytes FROM space WHERE leader_copy GROUP BY ALL "
    "ORDER BY bytes DESC",
    "Replicas of different size": "SELECT topic, partition, min(bytes) AS least, max(bytes) AS most FROM (SELECT "
    "topic, partition, log_dir, sum(bytes) AS bytes FROM batches GROUP BY ALL) GROUP BY ALL "
    "HAVING min(bytes) < max(bytes)",
    "Findings over nights (`--history DIR`)": "SELECT run_id, severity, count(*) AS findings FROM "
    "read_parquet('DIR/run_id=*/findings/*.parquet', hive_partitioning = true) GROUP BY ALL ORDER BY run_id",
}
HEAD = """# Tables

Every table that `auditor sql`, `--tables`, `audit.table(NAME)` and, but for the derived ones, Spark's
`spark.read.format("kafka_...")` give. Times are UTC, sizes are bytes, offsets and sequences are as Kafka stores them
(-1 where there is none). Tables of a log begin with where a row comes from: `cluster_id`, `broker_id`, `log_dir`,
`topic`, `partition`. Where the input has several replicas, `WHERE leader_copy` counts each offset range once; the
views `batches_once` and `records_once` have these rows alone. The audit decides which copy counts: with several copies
of a log in the input, the first query that needs `leader_copy` of a decoded table scans all of them. Spark's own
formats leave it null then. A query decodes the columns that its plan needs.

The examples run on DuckDB, which `auditor sql` starts by default, and on Spark (`--master 'local[*]'`). Tests run each.
Only `read_parquet` is DuckDB's. Made by `scripts/tables_page.py`.
"""
VOCABULARY = """## Names of columns

Sizes are `bytes` or `*_bytes`, counts of records `records` or `*_records`, durations `*_ms`, and moments `*_at`,
which are timestamps in UTC. Fields that Kafka stores keep Kafka's name, such as `base_timestamp` and `max_timestamp`.
These columns were renamed since 0.4. `batches` keeps its old names for one release. Of the other tables, a query with
an old name fails and names the new one.

| table | before | now |
| --- | --- | --- |
"""


def page() -> str:
    """The whole page."""
    questions = "\n".join(f"-- {question}\n{text};" for question, text in QUESTIONS.items())
    renamed = "\n".join(
        f"| `{table}` | `{old}` | `{new}` |" for table, names in RENAMED.items() for old, new in names.items()
    )
    parts = [HEAD, f"```sql\n{questions}\n```\n", f"{VOCABULARY}{renamed}\n"]
    for name, columns in {**all_columns(payload=True), "comparison": COMPARISON}.items():
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
    if pa.types.is_struct(kind):
        return f"struct of {', '.join(f'`{field.name}`' for field in kind)}"
    if pa.types.is_map(kind):
        return "map of strings"
    return "string of JSON" if column.metadata == JSON else str(kind)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
