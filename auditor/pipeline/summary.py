"""What a run says beside its findings: totals, blocked partitions, results as tables."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from auditor.base.at_rest import Fields, Values
from auditor.base.errors import AuditInputError
from auditor.base.evidence_keys import Evidence, read
from auditor.base.user_input import ClusterName
from auditor.base.words import plural
from auditor.connectors.schema import LOG_KEY, TIME, array_of, declared, lists, texts
from auditor.facts.events import EventKind
from auditor.facts.offsets import CONSUMER, SHARE, Position
from auditor.facts.replica_facts import ReplicaFacts
from auditor.model import log_maintenance
from auditor.pipeline import lag_table, space_table
from auditor.pipeline import space_table as pipeline_space_table
from auditor.pipeline.lag_table import Log, ReadCluster
from auditor.pipeline.options import ENTRY, Verdicts
from auditor.replay.task import ReplicaTask
from auditor.rules.catalogue import registry
from auditor.rules.lib.evidence import watched
from auditor.rules.resolution.resolve import cluster_of
from auditor.rules.seen.cluster_view import HOUR_MS, TRANSACTION_STATE, Cluster
from auditor.rules.seen.view import FIELDS, GRAVE, SEVERITIES, Finding, LogView, iso
from auditor.rules.transactions.blocking import BLOCKED as STANDS_BLOCKED
from auditor.rules.transactions.blocking import LATE_MS
from auditor.rules.transactions.open_transactions import DEFAULT_TIMEOUT_MS

if TYPE_CHECKING:
    from auditor.pipeline.runner import Audited


# Where all groups of the input go on reading, brought together by the logs that they read.


def clusters_for(audit: Audited, tables: Collection[str]) -> dict[str, Cluster]:
    """What the derived ones of some tables have to know of the clusters of an audit."""
    return read_clusters(audit) if "lag" in tables else audit.clusters


def read_clusters(audit: Audited, only: Collection[Log] | None = None) -> dict[str, Cluster]:
    """The clusters of an audit with who reads them, or some of their logs. Cost: a pass over the facts of all replicas;
    the positions are held by the driver and sent to all who ask, some hundred bytes each."""
    found: dict[str, ReadCluster] = {}
    for key, cluster in audit.clusters.items():
        found[key] = ReadCluster(**{f.name: getattr(cluster, f.name) for f in dataclasses.fields(cluster)})
    names = {key: _names(cluster) for key, cluster in found.items()}
    for _, row in audit.runner.judge(audit.replicas, audit.clusters, positions_of):
        key, coordinator = row.pop("join_key"), (row.pop("coordinator"), row.pop("coordinator_partition"))
        at = Position(**row | {"settled": tuple((first, last) for first, last in row["settled"])})
        at = at._replace(topic=at.topic or names[key].get(at.topic_id or "", at.topic_id))
        log = (at.topic or "", at.partition)
        if only is not None and log not in only:
            continue
        cluster = found[key]
        if log in cluster.bounds:
            cluster.positions.setdefault(log, []).append(at)
        elif cluster.scope.wants_log(*log):
            cluster.elsewhere.setdefault(coordinator, []).append(at)
    for key, cluster in found.items():
        cluster.tasks = _tasks(audit, key, cluster.positions)
        for some in (*cluster.positions.values(), *cluster.elsewhere.values()):
            some.sort(key=lambda p: (p.group_id, p.kind, p.topic or "", p.partition))
    return {**found}


def _names(cluster: Cluster) -> dict[str, str]:
    return {b.topic_id: topic for (topic, _), b in cluster.bounds.items() if b.topic_id is not None}


def _tasks(audit: Audited, key: str, read: dict[Log, list[Position]]) -> dict[tuple[str, str, int], ReplicaTask]:
    """The tasks of all replicas of the logs that somebody reads, without what only the first reading needs."""
    return {
        (t.replica.log_dir, t.replica.topic or "", t.replica.partition or 0): dataclasses.replace(t, resume_point=b"")
        for t in audit.tasks
        if isinstance(t, ReplicaTask)
        and t.join_key == key
        and (t.replica.topic or "", t.replica.partition or 0) in read
    }


def positions_of(replicas: list[ReplicaFacts], cluster: Cluster) -> Iterator[tuple[str, Fields]]:
    """The positions that one log of a coordinator has; none for other logs."""
    if replicas[0].topic not in ("__consumer_offsets", "__share_group_state"):
        return
    log = LogView(replicas, cluster)
    if log.is_gone:
        return
    of = log.leader
    damaged = of.lost_at >= 0 or of.ends_early or of.absent or of.unreadable_records
    sure = not damaged and next(iter(log.events(EventKind.CRC)), None) is None
    for at in (*_consumers(log), *_shares(log)):
        said = {"join_key": log.leader.join_key, "coordinator": log.topic, "coordinator_partition": log.partition}
        yield "position", at._replace(sure=sure)._asdict() | said


def _consumers(log: LogView) -> Iterator[Position]:
    seen, broker = watched(log), log.leader.broker_id
    if seen is None:
        return
    waiting = {(c.place.group, c.topic, c.partition): c for some in seen.pending.values() for c in some}
    for c in seen.in_force.all():
        later = waiting.pop((c.place.group, c.topic, c.partition), None)
        pending = -1 if later is None else later.value
        yield Position(c.topic, c.partition, c.place.group, CONSUMER, c.value, c.time, broker, pending)
    for c in waiting.values():
        yield Position(c.topic, c.partition, c.place.group, CONSUMER, -1, c.time, broker, c.value)


def _shares(log: LogView) -> Iterator[Position]:
    broker = log.leader.broker_id
    for s in log.leader.share_offsets:
        yield Position(
            None, s.partition, s.group_id, SHARE, s.start_offset, s.time, broker, settled=s.settled, topic_id=s.topic_id
        )


# What a run says beside its findings, where there is something to say: disks that future timestamps keep full,
# cleaners that are held or may stop, and what the groups that read held partitions have left. None of it is a finding.


MOST = 200  # positions of groups that are listed
SPACE, CLEANER, GROUP = "space", "cleaner", "group"


def of_log(log: LogView) -> Iterator[Fields]:
    """Rows about the replicas of one log: ``about``, where, ``bytes`` and what it ``says``. Cost: next to nothing of a
    log in which no timestamp lies ahead, nothing is open and nothing damaged."""
    if log.is_gone:
        return
    ahead = log.cluster.as_of + space_table.ahead_ms(log.cluster)
    for replica in log.replicas:
        if any(scan.largest_time > ahead for scan in replica.scans):
            yield from _space(log, replica)
        odd = len(replica.events) or replica.errors or (replica.transactions["marker_offset"] < 0).any()
        if odd and len(replica.scans) > 1:
            yield from _cleaner(log, replica)


def _row(about: str, replica: ReplicaFacts, size: int, says: str) -> Fields:
    return {
        "about": about,
        "topic": replica.topic,
        "partition": replica.partition,
        "broker_id": replica.broker_id,
        "log_dir": replica.log_dir,
        "bytes": size,
        "says": says,
    }


def _space(log: LogView, replica: ReplicaFacts) -> Iterator[Fields]:
    """What the first timestamp of the future keeps, if it keeps anything."""
    rows = space_table.segments_of(log, replica)
    first = next((row for row in rows if row["kept_by"] == log_maintenance.FUTURE), None)
    if first is None or first["undecided"] is not None:
        return
    kept = [row for row in rows if row is first or row["kept_by_file"] == first["file"]]
    who = first["transactional_id"] or (f"producer {first['producer_id']}" if first["producer_id"] >= 0 else "")
    yield _row(
        SPACE,
        replica,
        sum(row["size"] for row in kept),
        f"{plural(len(kept), 'segment')} from offset {first['base_offset']} on {'stays' if len(kept) == 1 else 'stay'} "
        f"until {iso(first['goes_at'])} ({first['setting']}): the batch that ends at offset {first['largest_offset']}"
        f"{' of ' + who if who else ''} is stamped {iso(first['largest_timestamp'])}",
    )


def _cleaner(log: LogView, replica: ReplicaFacts) -> Iterator[Fields]:
    row = pipeline_space_table.row_of(log, replica)
    if row is None or row["undecided"] is not None:
        return
    size = row["uncleanable_bytes"] - replica.scans[-1].size
    if row["stands"] == "faulty":
        yield _row(
            CLEANER,
            replica,
            row["cleanable_bytes"],
            f"the cleaner may stop at byte {row['fault_position']} of {row['fault_file']}: {row['fault']}",
        )
    elif row["held_producer_id"] is not None and size > 0:
        who = row["held_by_transaction"] or f"producer {row['held_producer_id']}"
        yield _row(
            CLEANER,
            replica,
            size,
            f"nothing is cleaned from offset {row['first_uncleanable_offset']} on while {who} has its transaction open",
        )


def left_behind(audit: Audited, held: set[tuple[str, int]]) -> list[Fields]:
    """What the groups that read some partitions have left there, the most first, at most :data:`MOST` rows. Cost: two
    passes over the facts, and the headers of these logs from the lowest offset on."""
    if not held:
        return []
    clusters = read_clusters(audit, held)
    found = [row for _, row in audit.runner.judge(audit.replicas, clusters, _left)]
    found = [row for row in found if row["offsets"]]
    found.sort(key=lambda row: (-row["offsets"], row["topic"], row["partition"], row["group_id"]))
    return found[:MOST]


def _left(replicas: list[ReplicaFacts], cluster: Cluster) -> Iterator[tuple[str, Fields]]:
    log = LogView(replicas, cluster)
    if log.is_gone or not isinstance(cluster, ReadCluster):
        return
    for row in lag_table.rows_of(log, cluster):
        names = ("group_id", "kind", "committed_offset", *lag_table.LEFT, "offsets", "undecided")
        at = {"about": GROUP, "topic": log.topic, "partition": log.partition}
        yield GROUP, at | {name: row.get(name) for name in names}


# Partitions that are held, as a run sees them: whether a baseline accepts them, a rule that was left out would report
# them, and they make it fail.


class About(NamedTuple):
    """A finding about a transaction that readers wait for, and whether a baseline accepts it."""

    finding: Finding
    accepted: bool


def by_producer(findings: Sequence[Finding], accepted: Sequence[object | None]) -> dict[int | None, list[About]]:
    """The findings of blocking rules by producer id; ``accepted``: beside each finding what accepts it."""
    catalogue, found = registry.kinds(), defaultdict(list)
    for finding, entry in zip(findings, accepted, strict=True):
        if catalogue[finding.kind].blocks is not None:
            found[finding.producer_id].append(About(finding, entry is not None))
    return dict(found)


def settled(row: Values, about: Mapping[int | None, Sequence[About]], asked: Collection[str]) -> Fields:
    """What a run adds to a row of ``rules.blocking.blocked``: ``accepted``, where a baseline accepts all that was found
    about its holder; ``left_out``, where nothing was, and its kind was not ``asked``; ``fingerprint``, of the gravest
    finding about it."""
    mine = [each for each in about.get(row["producer_id"], ()) if _is_about(each.finding, row)]
    found = any(each.finding.severity in GRAVE for each in mine)
    return {
        "accepted": bool(mine) and all(each.accepted for each in mine),
        "left_out": row["rule"] not in asked and not found,
        "fingerprint": next((each.finding.fingerprint for each in mine), None),
    }


def _is_about(finding: Finding, row: Values) -> bool:
    if finding.topic == TRANSACTION_STATE and row["topic"] != TRANSACTION_STATE:
        return finding.transactional_id == row["transactional_id"]
    if (finding.topic, finding.partition) != (row["topic"], row["partition"]):
        return False
    last = finding.offset if finding.last_offset is None else finding.last_offset
    return last is None or row["first_offset"] is None or last >= row["first_offset"]


def fails(row: Values, severities: Collection[str], unsure: bool) -> bool:
    """Whether a partition that is held makes the run fail at these severities; ``unsure``: also where it is not known
    whether it is held still, has been for longer than is normal, and would count if so."""
    if row["accepted"] or row["left_out"]:
        return False
    if row["severity"] in severities:
        return True
    allowed = DEFAULT_TIMEOUT_MS if row["timeout_ms"] is None else row["timeout_ms"]
    return unsure and row["if_true"] in severities and row["age_ms"] > min(allowed + LATE_MS, HOUR_MS)


# The results of an audit as small tables: what the history keeps and the expectations judge.


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
        confidence = read(Evidence, row["evidence"]).get("confidence")
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


def cluster_names(audit: Audited) -> dict[str, ClusterName]:
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
    return {one: found.get(one, ClusterName(""))._replace(name=options.cluster_name)}


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
