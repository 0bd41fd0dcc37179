"""The checks of each decoded or derived table, and the SQL that counts violations per log.

A check is a condition on a row in SQL common to Spark and DuckDB, true where the row violates it, or columns that
identify a row. Columns of the previous row, in file order, are named ``before_<column>``. The counts are small tables,
one row per log, which the suites judge. Cost: one pass over a table, with one sort where a check needs the previous
row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from auditor.base.at_rest import Fields
from auditor.base.errors import RECORD_AT, UNREAD, VENDOR
from auditor.connectors.schema import COMPRESSION_NAMES, DIR_KEY, LOG_KEY
from auditor.model.transaction_states import COMPLETION_OF, NEVER_WRITTEN, STATES_BY_ID

if TYPE_CHECKING:
    import pandas as pd

LOG = tuple(field.name for field in LOG_KEY)
DIR = tuple(field.name for field in DIR_KEY)


@dataclass(frozen=True, slots=True)
class Check:
    """A check of a table: ``broken``, SQL that is true for a violating row; or ``unique``, columns no two rows
    share."""

    name: str
    says: str
    broken: str = ""
    unique: tuple[str, ...] = ()
    severity: str = "critical"


@dataclass(frozen=True, slots=True)
class Measure:
    """The checks of a table, counted by ``key``; ``before``: columns of the previous row, by ``within``, in
    ``order``."""

    checks: tuple[Check, ...]
    key: tuple[str, ...] = LOG
    before: tuple[str, ...] = ()
    within: tuple[str, ...] = LOG
    order: tuple[str, ...] = ("file", "position")


def _in(column: str, names: Any) -> str:
    # True for a value that is none of these.
    return f"{column} NOT IN ({', '.join(repr(str(name)) for name in names)})"


# After compaction any state may follow another, except for states that are never written.
_STATES = [str(state) for state in STATES_BY_ID if state not in NEVER_WRITTEN]
_JUMP = " OR ".join(f"(state = '{s}' AND {_in('before_state', (str(p), str(s)))})" for p, s in COMPLETION_OF.items())
_OUTCOMES, _CLASSES = ("COMMIT", "ABORT"), ("active", "late", "hanging", "orphan", "ghost", "undecidable")
# As errors.is_unread
_LISTED = ", ".join(repr(reason) for reason in sorted(UNREAD))
_UNREAD = f"(reason IN ({_LISTED}) OR (reason = 'unknown_key_type' AND detail LIKE '{RECORD_AT}%'))"

MEASURES = {
    "batches": Measure(
        (
            Check("crc_wrong", "every batch has the CRC that it says", "NOT crc_ok"),
            Check("offsets_not_increasing", "base offsets increase through each log",
                  "base_offset <= before_last_offset"),
            Check("last_before_base", "no batch ends before it begins", "last_offset < base_offset"),
            Check("duplicate_offsets", "no two batches of a log have one base offset", unique=("base_offset",)),
            Check("magic_unknown", "the record format is one that Kafka had", "magic NOT IN (0, 1, 2)"),
            Check("codec_unknown", "the codec is one that Kafka has",
                  f"compression IS NULL OR {_in('compression', COMPRESSION_NAMES)}"),
            Check("control_unknown", "every control batch is of a type that Kafka has",
                  "is_control AND control_type = 'UNKNOWN'"),
            Check("transaction_without_producer", "every transactional batch has a producer",
                  "is_transactional AND (producer_id < 0 OR producer_epoch < 0)"),
        ),
        before=("last_offset",),
    ),
    "records": Measure(
        (
            Check("flawed", "every record keeps its format's rules (KIP-467)", "flaws <> 0"),
            Check("outside_batch", "no record lies before its batch", "offset < base_offset"),
            Check("offsets_not_increasing", "offsets increase through each log", "offset <= before_offset"),
            Check("duplicate_offsets", "no two records of a log have one offset", unique=("offset",)),
        ),
        before=("offset",), order=("file", "position", "record_index"),
    ),
    "producer_snapshots": Measure(
        (
            Check("duplicate_producers", "a snapshot names a producer once", unique=("file", "producer_id")),
            Check("beyond_snapshot", "a snapshot knows nothing behind its own offset",
                  "greatest(last_offset, current_txn_first_offset) >= snapshot_offset"),
            Check("invalid_producer", "producers have ids and epochs", "producer_id < 0 OR producer_epoch < -1"),
        )
    ),
    "aborted_transactions": Measure(
        (
            Check("upside_down", "no transaction ends before it begins", "last_offset < first_offset"),
            Check("not_ascending", "an index lists markers as they were written", "last_offset <= before_last_offset"),
            Check("version_unknown", "entries have the version that Kafka writes", "version <> 0"),
        ),
        before=("last_offset",), within=(*LOG, "file"),
    ),
    "index_entries": Measure(
        (
            Check("offsets_not_ascending", "offsets ascend through each index", "offset < before_offset"),
            Check("positions_not_ascending", "positions ascend through each offset index",
                  "log_position < before_log_position"),
            Check("times_not_ascending", "times ascend through each time index", "timestamp < before_timestamp"),
        ),
        before=("offset", "log_position", "timestamp"), within=(*LOG, "file"),
    ),
    "checkpoints": Measure(
        (
            Check("negative", "no checkpoint is negative", "offset < 0 OR leader_epoch < 0"),
            Check("named_twice", "a checkpoint names a log once", unique=("kind", "leader_epoch")),
            Check("epochs_not_ascending", "leader epochs and their start offsets ascend together",
                  "kind = 'leader-epoch' AND offset < before_offset"),
        ),
        before=("offset",), within=(*LOG, "file", "kind"), order=("leader_epoch",),
    ),
    "transaction_log": Measure(
        (
            Check("state_never_written", "states are those that a coordinator writes",
                  f"NOT tombstone AND (state IS NULL OR {_in('state', _STATES)})"),
            Check("completed_unprepared", "no transaction completes otherwise than it was prepared",
                  _JUMP, severity="warning"),
            Check("duplicate_offsets", "no two records have one offset", unique=("offset", "file", "position"),
                  ),
            Check("invalid_producer", "ids have a producer and an epoch",
                  "NOT tombstone AND (producer_id < 0 OR producer_epoch < -1)"),
            Check("timeout_negative", "time-outs are not negative", "timeout_ms < 0"),
        ),
        before=("state",), within=(*LOG, "transactional_id"), order=("offset", "file", "position"),
    ),
    "offset_commits": Measure(
        (
            Check("offset_negative", "committed offsets are not negative", "committed_offset < 0"),
            Check("partition_negative", "partitions are not negative", "consumed_partition < 0"),
            Check("nobody", "every commit names its group", "coalesce(group_id, '') = ''", severity="warning"),
        )
    ),
    "group_metadata": Measure(
        (
            Check("generation_negative", "generations are -1 or more", "generation < -1"),
            Check("nobody", "every record names its group", "group_id IS NULL", severity="warning"),
        )
    ),
    "share_group_state": Measure(
        (
            Check("start_negative", "start offsets are -1 or more", "start_offset < -1"),
            Check("nobody", "every record names its group", "coalesce(group_id, '') = ''", severity="warning"),
        )
    ),
    "remote_log_metadata": Measure(
        (
            Check("upside_down", "no segment ends before it begins", "end_offset < start_offset"),
            Check("state_unknown", "states are those that Kafka has", "state IS NULL"),
        )
    ),
    "topics": Measure(
        (
            Check("duplicate_topics", "a topic exists once", unique=("topic",)),
            Check("duplicate_ids", "no two topics have one id", unique=("topic_id",)),
        ),
        key=DIR,
    ),
    "topic_configs": Measure((Check("set_twice", "a setting has one value", unique=("topic", "name")),), key=DIR),
    "broker_configs": Measure((Check("set_twice", "a setting has one value", unique=("entity", "name")),), key=DIR),
    "partitions": Measure(
        (
            Check("duplicate_partitions", "a partition exists once", unique=("topic", "partition")),
            Check("no_replicas", "every partition has replicas", "size(replicas) = 0"),
            Check("isr_no_replica", "in-sync replicas are replicas", "size(array_except(isr, replicas)) > 0"),
            Check("leader_no_replica", "leaders are replicas", "leader >= 0 AND NOT array_contains(replicas, leader)"),
        ),
        key=DIR,
    ),
    "metadata_history": Measure(
        (
            Check("isr_no_replica", "in-sync replicas are replicas", "size(array_except(isr, replicas)) > 0"),
            Check("leader_no_replica", "leaders are replicas", "leader >= 0 AND NOT array_contains(replicas, leader)"),
        ),
        key=DIR,
    ),
    "decode_errors": Measure(
        (
            Check("not_read", "all of the input was read", _UNREAD),
            Check("not_decoded", "all that was read could be decoded",
                  f"{_in('reason', ('vanished', VENDOR))} AND NOT {_UNREAD}", severity="warning"),
        )
    ),
    "producer_states": Measure(
        (
            Check("duplicate_producers", "a replica knows a producer once", unique=("producer_id",)),
            Check("epoch_below_highest", "no producer went back to an older epoch", "producer_epoch < max_epoch"),
        )
    ),
    "transaction_partitions": Measure(
        (
            Check("outcome_unknown", "markers commit or abort", _in("outcome", _OUTCOMES)),
            Check("class_unknown", "open transactions have a class", _in("class", _CLASSES)),
            Check("upside_down", "no transaction ends before it begins",
                  "last_offset < first_offset OR (marker_offset >= 0 AND marker_offset <= last_offset)"),
            Check("stuck", "no transaction hangs", "class IN ('hanging', 'orphan', 'ghost')"),
            Check("late", "no transaction is beyond its time-out", "class = 'late'", severity="warning"),
        )
    ),
    "transactions": Measure(
        (
            Check("outcome_unknown", "transactions commit or abort", _in("outcome", _OUTCOMES)),
            Check("duplicate_keys", "a producer has one transaction at a time", unique=("transaction_key",)),
            Check("timed_out", "no transaction ran into its time-out", "decided_by = 'timeout'", severity="warning"),
            Check("upside_down", "no transaction ends before it begins", "duration_ms < 0", severity="warning"),
        )
    ),
    "events": Measure(
        (
            Check("upside_down", "no event ends before it begins", "last_offset >= 0 AND last_offset < base_offset"),
        )
    ),
    "lag": Measure(
        (
            Check("negative", "no group has less than nothing left to read", "offsets < 0 OR committed_records < 0"),
            Check("upside_down", "what is left at most is no less than at least",
                  "committed_most < committed_records OR uncommitted_most < uncommitted_records"),
        )
    ),
    "space": Measure(
        (
            Check("goes_and_stays", "a segment goes or something keeps it", "(goes IS NULL) = (kept_by IS NULL)"),
            Check("duplicate_segments", "a replica has a segment once", unique=("base_offset",)),
            Check("future", "no segment is kept by a timestamp in the future", "kept_by = 'timestamp_in_the_future'",
                  severity="warning"),
        )
    ),
    "cleaner": Measure(
        (
            Check("ratio_impossible", "a dirty ratio lies between 0 and 1", "dirty_ratio < 0 OR dirty_ratio > 1"),
            Check("faulty", "no cleaner has to read a damaged batch", "stands = 'faulty'"),
        )
    ),
    "impact": Measure(
        (
            Check("upside_down", "no range ends before it begins", "last_offset < first_offset"),
            Check("impacted", "no records are lost, hidden, exposed or duplicated", "outcome IS NOT NULL",
                  severity="warning"),
        )
    ),
    "blocked": Measure(
        (
            Check("blocked", "no partition is blocked for longer than is normal",
                  "standing IN ('stuck', 'overdue', 'undeliverable') AND NOT accepted"),
            Check("unknown", "it is known of every partition that is held how it stands", "standing = 'unknown'",
                  severity="warning"),
        )
    ),
    "verdicts": Measure(
        (
            Check("upside_down", "no verdict ends before it begins", "last_offset < base_offset"),
            Check("rejected", "every policy would have taken what is stored",
                  "error <> 'DUPLICATE'", severity="warning"),
        )
    ),
}  # fmt: skip


DUCKDB, SPARK = "duckdb", "spark"
DIALECTS = (DUCKDB, SPARK)
# Functions of Spark's SQL that DuckDB names otherwise, so that one text works for both
MACROS = {
    "size(x)": "len(x)",
    "array_except(a, b)": "list_filter(a, lambda x: NOT list_contains(b, x))",
    "unix_millis(t)": "epoch_ms(t)",
    "get_json_object(text, path)": "json_extract_string(text, path)",
}


def counting(table: str, source: str, dialect: str) -> str:
    """Return the SQL that counts how many rows of ``source`` violate each check, a row per key."""
    wanted = MEASURES[table]
    quote = '"' if dialect == DUCKDB else "`"

    def named(sql: str) -> str:  # the one column that is a keyword
        return re.sub(r"\boffset\b", f"{quote}offset{quote}", sql)

    window = f"PARTITION BY {', '.join(wanted.within)} ORDER BY {', '.join(f'{c} NULLS FIRST' for c in wanted.order)}"
    before = "".join(f",\n    lag({name}) OVER ({window}) AS before_{name}" for name in wanted.before)
    counts = ["count(*) AS rows"]
    for check in wanted.checks:
        fields = "struct_pack({})" if dialect == DUCKDB else "struct({})"
        unique = fields.format(", ".join(f"{n} := {n}" if dialect == DUCKDB else n for n in check.unique))
        if len(check.unique) == 1:  # a null is not known, and repeats nothing
            (unique,) = check.unique
        broken = f"count({unique}) - count(DISTINCT {unique})" if check.unique else f"count_if({check.broken})"
        counts.append(f"{broken} AS {check.name}")
    key = ", ".join(wanted.key)
    return (
        f"WITH found AS (\n  SELECT *{named(before)}\n  FROM {source}\n)\n"
        f"SELECT {key},\n  {named(f',{chr(10)}  '.join(counts))}\nFROM found GROUP BY {key} ORDER BY {key}"
    )


_NAMES = {"int64": "bigint", "int32": "int", "int16": "smallint", "bool": "boolean"}


def columns_of(columns: pa.Schema) -> str:
    """Return the columns of a table and their types, as text."""
    return ", ".join(f"{field.name} {_type(field.type)}" for field in columns)


def _type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"array<{_type(kind.value_type)}>"
    return "timestamp" if pa.types.is_timestamp(kind) else _NAMES.get(str(kind), str(kind))


def frame_of(counted: list[Fields], table: str, columns: str) -> pd.DataFrame:
    """Return the counts of a table: its key, ``columns``, ``rows``, and a column per check. An empty table has one
    row."""
    import pandas as pd

    wanted = MEASURES[table]
    empty = dict.fromkeys(wanted.key) | {"rows": 0} | {check.name: 0 for check in wanted.checks}
    return pd.DataFrame([{"columns": columns} | row for row in counted or [empty]])
