"""The results of an audit as small tables: what the history keeps and the expectations judge."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from auditor.base.at_rest import Fields, Values
from auditor.base.errors import AuditInputError
from auditor.base.user_input import Named
from auditor.connectors.tables.schema import LOG_KEY, TIME, array_of, declared, lists, texts
from auditor.pipeline.accepted_findings import ENTRY, Verdicts
from auditor.rules.resolution.resolve import cluster_of
from auditor.rules.seen.view import FIELDS, SEVERITIES
from auditor.rules.transactions.blocking import BLOCKED as STANDS_BLOCKED

if TYPE_CHECKING:
    from auditor.pipeline.runner import Audited

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INTEGERS = {"broker_id": pa.int32(), "partition": pa.int32(), "producer_epoch": pa.int32()}
INTEGERS |= {name: pa.int64() for name in ("offset", "last_offset", "producer_id", "position")}
FINDINGS_SCHEMA = pa.schema([pa.field(name, INTEGERS.get(name, pa.string())) for name in FIELDS])
# The findings as data: the fields, `timestamp` as one, `evidence` and `advice` as JSON, and what SQL groups by.
FURTHER = {
    "cluster_id": "the cluster whose log it is about; null where no `meta.properties` says",
    "run_id": "the run, as `--history` keeps it; null where it is not kept",
    "confidence": "proved, likely or undecidable, from the evidence; null where the rule says none",
}
FINDINGS_TABLE = pa.schema(
    [pa.field(f.name, TIME) if f.name == "timestamp" else f for f in FINDINGS_SCHEMA]
    + [pa.field(name, pa.string()) for name in FURTHER]
)
# The partitions that a transaction holds, as the report's cards have them.
BLOCKED = declared(
    "blocked",
    LOG_KEY,
    """
    standing:string stuck, overdue or undeliverable (blocked too long), waiting (within its time-out), or unknown
    class:string of the transaction: active, late, hanging, orphan, ghost or undecidable
    transactional_id:string
    producer_id:long
    producer_epoch:int
    since:time since when it is held: the producer's time within what brokers wrote around it; null where nothing tells
    since_not_before:time the same, at the earliest, by brokers' clocks
    since_not_after:time the same, at the latest
    since_by_producer:time what the producer's clock says, where that contradicts what brokers wrote; else null
    age_ms:long for how long, by the clock of the audit
    at_least:bool whether it may be longer: nobody said what time it is now
    timeout_ms:int `transaction.timeout.ms` of the producer, ms; null where it is not known
    beyond_timeout:bool whether it is open for longer than that; null where that is not known
    state:string last state of the id in the coordinator's log; null where there is none
    why:string what the class rests on
    first_offset:long offset of the transaction's first record; null where no replica is in the input
    last_offset:long offset of its last record
    last_stable_offset:long how far readers get that read committed records alone
    high_watermark:long high watermark of the partition
    log_end:long end of its log
    readable_end:long how far they would get without the transaction
    batches:long batches of the transaction
    records:long records in them
    bytes:long bytes of these batches
    others:int further producers with an open transaction there
    readers:strings consumer groups with offsets in the topic, at most 20 of a partition of `__consumer_offsets`
    severity:string of the finding that says it; null where there is none
    if_true:string severity that it would have, where it is not known whether it is held still
    rule:string kind of that finding
    fingerprint:string of the gravest finding about its holder
    accepted:bool whether a baseline accepts it
    left_out:bool whether only a rule that did not run would report it
    remedy:string what to do
    advice:json the same with its conditions and commands one by one
""",
)
SINCE = ("since", "since_not_before", "since_not_after", "since_by_producer")
FINDINGS = pa.schema([pa.field("cluster_id", pa.string()), *FINDINGS_SCHEMA])
OFFSET_KINDS = (
    "data",
    "aborted",
    "marker",
    "compacted",
    "unreadable",
    "missing",
    "remote",
    "left_out",
    "not_reached",
    "total",
)
_SUMS = ("batches", "records", "bytes_total", "bytes_decoded", "bytes_skipped", "bytes_error")
_AT_ONCE = 10_000  # rows that are Python's
_AT = ("log_start", "log_end", "high_watermark", "last_stable_offset", "producers")
# One row a copy of a partition; offsets_*: how many offsets of [log_start, log_end) are of each kind.
LOGS = pa.schema(
    [
        *LOG_KEY,
        pa.field("leader_copy", pa.bool_()),
        *(pa.field(name, pa.int64()) for name in (*_AT, *_SUMS, *(f"offsets_{kind}" for kind in OFFSET_KINDS))),
    ]
)
# One row a run. summary: summary.json whole.
RUNS = pa.schema(
    [pa.field(name, pa.string()) for name in ("as_of", "tool_version", "summary")]
    + [pa.field(name, pa.int64()) for name in (*SEVERITIES, "bytes", "bytes_unreadable", "batches", "records")]
)


# What the report draws beside findings and summary. kind: open (transactions) or timeline; row: JSON.
REPORT = pa.schema([pa.field("kind", pa.string()), pa.field("row", pa.string())])
# The entries of the run's baseline that its findings have. over: why one does not count any more; null where it does.
BASELINE = pa.schema([pa.field(name, pa.string()) for name in (*ENTRY, "over")])


def findings_table(audit: Audited) -> pa.Table:
    """The findings as the table of that name (:data:`FINDINGS_TABLE`), in their order."""
    return table_of(_findings_rows(audit), FINDINGS_TABLE)


def blocked_table(audit: Audited) -> pa.Table:
    """The partitions that are held as the table of that name (:data:`BLOCKED`).

    In the order of the report's cards: those that are blocked first, and of these the one held longest.
    """
    of_dir = audit.inventory.cluster_ids
    found = [_blocked_row(row) | {"cluster_id": of_dir.get(row["log_dir"])} for row in audit.blocked]
    found.sort(key=lambda row: (row["standing"] not in STANDS_BLOCKED, -row["age_ms"], row["topic"], row["partition"]))
    return table_of(found, BLOCKED)


def _blocked_row(row: Values) -> Fields:
    times = {name: _ms(row[name]) for name in SINCE}
    return {**row, **times, "log_dir": row["log_dir"] or "", "advice": json.dumps(row["advice"], ensure_ascii=False)}


def _ms(text: str | None) -> int | None:
    return None if text is None else (datetime.fromisoformat(text) - EPOCH) // timedelta(milliseconds=1)


def _findings_rows(audit: Audited) -> Iterator[Fields]:
    for row in _rows(audit):
        confidence = row["evidence"].get("confidence")
        yield _flat(row) | {
            "timestamp": _ms(row["timestamp"]),
            "run_id": audit.options.run_id,
            "confidence": None if confidence is None else str(confidence),
        }


def _rows(audit: Audited) -> Iterator[Fields]:
    """The findings, each with the id of its cluster."""
    of_dir = audit.inventory.cluster_ids
    for found in audit.findings:
        row = found.to_dict()
        yield row | {"cluster_id": cluster_of(row, of_dir)}


def _flat(row: Fields) -> Fields:
    """A finding as a row of a table: its structures as JSON."""
    advice = row["advice"]
    return row | {
        "evidence": json.dumps(row["evidence"], sort_keys=True, ensure_ascii=False),
        "advice": None if advice is None else json.dumps(advice, ensure_ascii=False),
    }


def unfolded(row: Values) -> Fields:
    """A row of the table of findings with its structures again; of a run of the past, which has no advice, too."""
    advice = row.get("advice")
    return {
        **row,
        "evidence": json.loads(row["evidence"]),
        "advice": None if advice is None else json.loads(advice),
    }


def table_of(rows: Iterable[Values], columns: pa.Schema) -> pa.Table:
    """Rows of texts, whole numbers, truth values and times in ms as a table.

    Not by ``pyarrow.array``, which would load pandas.
    """
    arrays = []
    found: list[list[Any]] = [[] for _ in columns]
    for row in rows:
        for values, column in zip(found, columns.names, strict=True):
            values.append(row[column])
    for column, values in zip(columns, found, strict=True):
        if pa.types.is_string(column.type):
            arrays.append(texts(values))
            continue
        if pa.types.is_list(column.type):
            arrays.append(lists(values))
            continue
        stored = np.int64 if pa.types.is_timestamp(column.type) else column.type.to_pandas_dtype()
        numbers = np.array([0 if value is None else value for value in values], stored)
        arrays.append(array_of(numbers, np.array([value is None for value in values], bool), column.type))
    return pa.Table.from_arrays(arrays, schema=columns)


def cluster_names(audit: Audited) -> dict[str, Named]:
    """What people call the clusters that were looked at, by id, as far as somebody said.

    Errors: :class:`AuditInputError` for one name of several clusters.
    """
    ids, options = audit.cluster_ids, audit.options
    found = {id: named for id, named in options.clusters if id in ids}
    if options.cluster_name is None:
        return found
    if len(ids) > 1:
        raise AuditInputError(
            f"--cluster-name names one cluster, the input has {len(ids)}: {', '.join(ids)}; name each by its id under "
            "[clusters] in auditor.toml"
        )
    one = ids[0] if ids else ""
    return {one: found.get(one, Named(""))._replace(name=options.cluster_name)}


def findings(audit: Audited) -> pa.Table:
    """The findings in their order, each with its cluster, as runs keep them; ``evidence`` and ``advice`` are JSON."""
    return table_of(map(_flat, _rows(audit)), FINDINGS)


def logs(audit: Audited) -> pa.Table:
    """What each replica of a partition holds: offsets, batches, records, producers and bytes. Some 200 bytes a row."""
    of_dir = audit.inventory.cluster_ids
    rows = (
        {
            **{name: row.get(name) for name in LOGS.names},
            **{name: row["sums"][name] for name in _SUMS},
            **{f"offsets_{kind}": row["offsets"].get(kind) for kind in OFFSET_KINDS},
            "cluster_id": of_dir.get(row["log_dir"]),
            "last_stable_offset": row["lso"],
        }
        for row in audit.judged["log"]
    )
    parts = [LOGS.empty_table()]
    while some := list(islice(rows, _AT_ONCE)):
        parts.append(pa.Table.from_pylist(some, schema=LOGS))
    return pa.concat_tables(parts).combine_chunks()


def run(summary: Values) -> pa.Table:
    """The run itself, one row, from its summary."""
    row = {
        **summary["counts"]["by_severity"],
        "as_of": summary["as_of"],
        "tool_version": summary["tool"]["version"],
        "summary": json.dumps(summary, ensure_ascii=False, default=list),
        "bytes": summary["bytes"]["total"],
        "bytes_unreadable": summary["bytes"]["unreadable"],
        "batches": summary["batches"],
        "records": summary["records"],
    }
    return pa.Table.from_pylist([row], schema=RUNS)


def report(audit: Audited) -> pa.Table:
    """The open transactions and timelines, so that a kept run's report can be made again as it was."""
    rows = [
        {"kind": kind, "row": json.dumps(row, ensure_ascii=False, sort_keys=True)}
        for kind in ("open", "timeline")
        for row in audit.judged[kind]
    ]
    return pa.Table.from_pylist(rows, schema=REPORT)


def baseline(held: Verdicts) -> pa.Table:
    """The entries of the baseline that the run's findings have, each once: those that hold and those that are over."""
    rows = {entry.fingerprint: entry.row() | {"over": None} for entry in held.accepted if entry is not None}
    rows |= {entry.fingerprint: entry.row() | {"over": why} for entry, why in held.back}
    return pa.Table.from_pylist(list(rows.values()), schema=BASELINE)
