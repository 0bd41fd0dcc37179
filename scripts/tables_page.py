"""Writes docs/tables.md, the page of every table, from the code's own columns: tables_page.py OUT.md"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa

from auditor.connectors.schema import JSON, MEANINGS
from auditor.pipeline.summary import FURTHER
from auditor.pipeline.table_parts import schemas

FINDING = Path(__file__).parents[1] / "auditor" / "outputs" / "finding.schema.json"

# Of each table what a row is, and a question that it answers.
TEXTS = {
    "batches": ("a record batch of a segment, by its header",
                "SELECT topic, partition, sum(size) AS bytes, count(*) AS batches FROM batches GROUP BY ALL "
                "ORDER BY bytes DESC LIMIT 10"),
    "records": ("a record of a batch, without key and value unless `--include-payload` is given",
                "SELECT topic, partition, min(timestamp) AS oldest FROM records WHERE NOT is_control GROUP BY ALL"),
    "producer_snapshots": ("a producer in a `.snapshot` file",
                           "SELECT topic, partition, producer_id, max(snapshot_offset) AS newest "
                           "FROM producer_snapshots GROUP BY ALL"),
    "aborted_transactions": ("an entry of a `.txnindex` file",
                             "SELECT topic, partition, count(*) AS aborted FROM aborted_transactions GROUP BY ALL"),
    "index_entries": ("an entry of an `.index` or `.timeindex` file; `kind`: offset or time",
                      "SELECT kind, count(*) AS entries FROM index_entries GROUP BY kind"),
    "checkpoints": ("a line of a checkpoint; `kind`: recovery-point, high-watermark, log-start, cleaner, leader-epoch",
                    "SELECT topic, partition, \"offset\" FROM checkpoints WHERE kind = 'high-watermark'"),
    "transaction_log": ("a record of `__transaction_state`",
                        "SELECT transactional_id, state, record_timestamp FROM transaction_log "
                        "WHERE state = 'PrepareCommit'"),
    "offset_commits": ("a committed offset in `__consumer_offsets`",
                       "SELECT group_id, consumed_topic, consumed_partition, max(committed_offset) AS committed "
                       "FROM offset_commits GROUP BY ALL"),
    "group_metadata": ("what `__consumer_offsets` says of a group of any kind",
                       "SELECT group_id, kind, count(*) AS records FROM group_metadata GROUP BY ALL"),
    "share_group_state": ("a record of `__share_group_state`",
                          "SELECT group_id, max(start_offset) AS start FROM share_group_state GROUP BY group_id"),
    "remote_log_metadata": ("a record of `__remote_log_metadata`: what was copied to tiered storage",
                            "SELECT tiered_topic, state, count(*) AS segments FROM remote_log_metadata GROUP BY ALL"),
    "topics": ("a topic in `__cluster_metadata`", "SELECT topic, topic_id FROM topics ORDER BY topic"),
    "topic_configs": ("a setting of a topic", "SELECT topic, value FROM topic_configs WHERE name = 'cleanup.policy'"),
    "broker_configs": ("a setting of a broker; `entity` is its id, empty for the default of all",
                       "SELECT entity, name, value FROM broker_configs"),
    "partitions": ("a partition as `__cluster_metadata` has it at its end",
                   "SELECT topic, partition, leader FROM partitions WHERE len(isr) < len(replicas)"),
    "metadata_history": ("a change that `__cluster_metadata` records",
                         "SELECT timestamp, topic, partition, leader, previous_leader FROM metadata_history "
                         "WHERE leader <> previous_leader ORDER BY timestamp"),
    "decode_errors": ("a stretch of bytes that could not be read, and why",
                      "SELECT reason, count(*) AS places, sum(length) AS bytes FROM decode_errors GROUP BY reason"),
    "producer_states": ("a producer as a broker would hold it at the log's end",
                        "SELECT producer_id, transactional_id, max(last_timestamp) AS seen FROM producer_states "
                        "GROUP BY ALL ORDER BY seen"),
    "transactions": ("a transaction of a producer in a replica; `outcome` is null while it is open, `class` then says "
                     "what it is: active, late, hanging, orphan, ghost or undecidable",
                     "SELECT topic, partition, producer_id, first_offset FROM transactions WHERE class = 'hanging'"),
    "events": ("something odd that the model of a correct broker met while it replayed a replica, which rules then "
               "judge; at most 10,000 of a kind in a replica",
               "SELECT kind, count(*) AS events FROM events GROUP BY kind ORDER BY events DESC"),
    "coordinated_transactions": ("a transaction as the coordinators' logs show it, with all its partitions; of those "
                                 "that they no longer have, `transactions` has the branches",
                                 "SELECT transactional_id, count(decided_at) AS decided, "
                                 "count(*) FILTER (outcome = 'ABORT') AS aborted FROM coordinated_transactions "
                                 "GROUP BY ALL ORDER BY aborted DESC"),
    "lag": ("a group's position in a partition, and what it has left to read from there on: records, not offsets; "
            "see [three questions](three-questions.md#what-has-a-group-left)",
            "SELECT group_id, topic, partition, offsets, committed_records FROM lag WHERE offsets > 0"),
    "cleaner": ("a replica of a compacted log, and where its broker's log cleaner stands in it; see "
                "[three questions](three-questions.md#where-does-the-cleaner-stand)",
                "SELECT topic, partition, stands, dirty_ratio, held_by FROM cleaner WHERE stands <> 'clean'"),
    "space": ("a segment on a broker's own disk, and what keeps it there; see "
              "[three questions](three-questions.md#why-is-the-disk-not-freed)",
              "SELECT kept_by, goes, count(*) AS segments, sum(size) AS bytes FROM space GROUP BY ALL"),
    "verdicts": ("a run of stored batches that another broker policy would have answered otherwise",
                 "SELECT policy, error, sum(batches) AS batches FROM verdicts GROUP BY ALL"),
    "findings": ("a finding, by the fields of `findings.jsonl`: `timestamp` as one, `evidence` and `advice` as JSON",
                 "SELECT rule, severity, count(*) AS found FROM findings WHERE confidence = 'proved' GROUP BY ALL"),
    "blocked": ("a partition that an open transaction keeps from being read, in the order of the report's cards: "
                "blocked ones first",
                "SELECT topic, partition, transactional_id, since, remedy FROM blocked WHERE standing <> 'waiting'"),
}  # fmt: skip
HEAD = """# Tables

Every table that `auditor sql`, `--tables`, `audit.table(NAME)` and, but for the derived ones, Spark's
`spark.read.format("kafka_...")` give. Times are UTC, sizes are bytes, offsets and sequences are as Kafka stores them
(-1 where there is none). Tables of a log begin with where a row comes from: `cluster_id`, `broker_id`, `log_dir`,
`topic`, `partition`.

The examples are DuckDB's SQL (`--engine duckdb`); a test runs each. Made by `scripts/tables_page.py`.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for name, columns in schemas(payload=True).items():
        says, example = TEXTS[name]
        means = meanings(name)
        rows = "\n".join(f"| `{column.name}` | {_type(column)} | {means[column.name]} |" for column in columns)
        head = "| column | type | holds |\n| --- | --- | --- |"
        parts.append(f"## {name}\n\nA row is {says}.\n\n```sql\n{example}\n```\n\n{head}\n{rows}\n")
    return "\n".join(parts)


def meanings(table: str) -> dict[str, str]:
    """What each column of a table holds; of findings, as the JSON Schema says it."""
    if table != "findings":
        return MEANINGS[table]
    fields = json.loads(FINDING.read_text(encoding="utf-8"))["properties"]
    said = {name: field["description"] for name, field in fields.items()}
    return {name: text[0].lower() + text[1:].rstrip(".") for name, text in said.items()} | FURTHER


def _type(column: pa.Field) -> str:
    kind = column.type
    if pa.types.is_timestamp(kind):
        return "timestamp, ms, UTC"
    if pa.types.is_list(kind):
        return f"list of {kind.value_type}"
    return "string of JSON" if column.metadata == JSON or column.name in ("evidence", "advice") else str(kind)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
