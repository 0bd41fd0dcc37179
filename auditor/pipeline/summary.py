"""Results beside the findings: totals, blocked partitions, results as tables."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from auditor.base.at_rest import Fields, Values, dumps, loads
from auditor.base.errors import AuditInputError
from auditor.base.evidence_keys import COMMON
from auditor.base.user_input import ClusterName
from auditor.base.words import plural
from auditor.connectors.schema import LOGS, RENAMED, REPORT, column_of
from auditor.facts.events import EventKind
from auditor.facts.offsets import CONSUMER, SHARE, Position
from auditor.facts.replica_facts import ReplicaFacts
from auditor.model import log_maintenance
from auditor.pipeline import derived_tables, impact_table, lag_table, space_table
from auditor.pipeline.derived_tables import keys_of
from auditor.pipeline.finding_tables import BLOCKED, FINDINGS_TABLE
from auditor.pipeline.impact_table import IMPACT
from auditor.pipeline.lag_table import Log, ReadCluster
from auditor.pipeline.options import ENTRY, Verdicts
from auditor.replay.task import ReplicaTask
from auditor.rules.catalogue import registry
from auditor.rules.committed_offsets import watched
from auditor.rules.resolution.resolve import cluster_of
from auditor.rules.seen.cluster_view import TRANSACTION_STATE, Cluster
from auditor.rules.seen.view import FIELDS, GRAVE, IMPACTS, OUT_OF_RANGE, Finding, LogView, iso
from auditor.transactions.record import BLOCKED as STANDS_BLOCKED

if TYPE_CHECKING:
    from auditor.pipeline.runner import Audited
    from auditor.pipeline.table_tasks import Shares


# Positions of all groups, by the logs that they read.


def clusters_for(audit: Audited, tables: Collection[str]) -> dict[str, Cluster]:
    """Return the cluster contexts that the derived tables among ``tables`` need."""
    return read_clusters(audit) if "lag" in tables else audit.clusters


def read_clusters(audit: Audited, only: Collection[Log] | None = None) -> dict[str, Cluster]:
    """Return the clusters of an audit with the consumers' positions, of all logs or of ``only`` some.

    Cost: a pass over the facts of all replicas; the driver holds the positions and ships them, some hundred bytes each.
    """
    clusters: dict[str, ReadCluster] = {}
    for key, cluster in audit.clusters.items():
        clusters[key] = ReadCluster(**{f.name: getattr(cluster, f.name) for f in dataclasses.fields(cluster)})
    names = {key: _names(cluster) for key, cluster in clusters.items()}
    for _, row in audit.runner.judge(audit.replicas, audit.clusters, positions_of):
        key, coordinator = row.pop("join_key"), (row.pop("coordinator"), row.pop("coordinator_partition"))
        position = Position(**row | {"settled": tuple((first, last) for first, last in row["settled"])})
        position = position._replace(topic=position.topic or names[key].get(position.topic_id or "", position.topic_id))
        log = (position.topic or "", position.partition)
        if only is not None and log not in only:
            continue
        cluster = clusters[key]
        if log in cluster.bounds:
            cluster.positions.setdefault(log, []).append(position)
        elif cluster.scope.wants_log(*log):
            cluster.elsewhere.setdefault(coordinator, []).append(position)
    for key, cluster in clusters.items():
        cluster.tasks = _tasks(audit, key, {*cluster.positions, *(only or ())})
        for some in (*cluster.positions.values(), *cluster.elsewhere.values()):
            some.sort(key=lambda p: (p.group_id, p.kind, p.topic or "", p.partition))
    return {**clusters}


def _names(cluster: Cluster) -> dict[str, str]:
    return {b.topic_id: topic for (topic, _), b in cluster.bounds.items() if b.topic_id is not None}


def _tasks(audit: Audited, key: str, read: Collection[Log]) -> dict[tuple[str, str, int], ReplicaTask]:
    """Tasks of all replicas of some logs, without their resume points."""
    return {
        (t.replica.log_dir, t.replica.topic or "", t.replica.partition or 0): dataclasses.replace(t, resume_point=b"")
        for t in audit.tasks
        if isinstance(t, ReplicaTask)
        and t.join_key == key
        and (t.replica.topic or "", t.replica.partition or 0) in read
    }


def positions_of(replicas: list[ReplicaFacts], cluster: Cluster) -> Iterator[tuple[str, Fields]]:
    """Yield the positions that a coordinator's log has; none for other logs."""
    if replicas[0].topic not in ("__consumer_offsets", "__share_group_state"):
        return
    log = LogView(replicas, cluster)
    if log.is_gone or cluster.incarnations.is_outlived(log.topic, log.leader.topic_id):
        return
    of = log.leader
    damaged = of.lost_at >= 0 or of.ends_early or of.absent or of.unreadable_records
    sure = not damaged and next(iter(log.events(EventKind.CRC)), None) is None
    for position in (*_consumers(log), *_shares(log)):
        origin = {"join_key": log.leader.join_key, "coordinator": log.topic, "coordinator_partition": log.partition}
        yield "position", position._replace(sure=sure)._asdict() | origin


def _consumers(log: LogView) -> Iterator[Position]:
    watch, broker = watched(log), log.leader.broker_id
    if watch is None:
        return
    waiting = {(c.place.group, c.topic, c.partition): c for some in watch.pending.values() for c in some}
    for c in watch.in_force.all():
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


# Notes of a run beside its findings: disks that future timestamps keep full, held back or stopping cleaners, and the
# lag of groups in blocked partitions.


MOST = 200  # positions of groups that are listed
SPACE, CLEANER, GROUP = "space", "cleaner", "group"


def of_log(log: LogView) -> Iterator[Fields]:
    """Yield notes about one log's replicas: ``about``, where, ``bytes`` and what it ``says``.

    Cost: next to none for a log without future timestamps, open transactions and damage.
    """
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
    """Segments that the first future timestamp keeps, if any."""
    rows = space_table.segments_of(log, replica)
    first = next((row for row in rows if row["kept_by"] == log_maintenance.FUTURE), None)
    if first is None or first["undecided"] is not None:
        return
    segments = [row for row in rows if row is first or row["kept_by_file"] == first["file"]]
    who = first["transactional_id"] or (f"producer {first['producer_id']}" if first["producer_id"] >= 0 else "")
    stay = "stays" if len(segments) == 1 else "stay"
    yield _row(
        SPACE,
        replica,
        sum(row["bytes"] for row in segments),
        f"{plural(len(segments), 'segment')} from offset {first['base_offset']} on {stay} "
        f"until {iso(first['goes_at'])} ({first['setting']}): the batch that ends at offset {first['largest_offset']}"
        f"{' of ' + who if who else ''} is stamped {iso(first['largest_timestamp'])}",
    )


def _cleaner(log: LogView, replica: ReplicaFacts) -> Iterator[Fields]:
    row = space_table.row_of(log, replica)
    if row is None or row["undecided"] is not None:
        return
    if row["stands"] == "faulty":
        yield _row(
            CLEANER,
            replica,
            row["cleanable_bytes"],
            f"the cleaner may stop at byte {row['fault_position']} of {row['fault_file']}: {row['fault']}",
        )
    elif row["held_producer_id"] is not None and row["held_bytes"] > 0:
        who = row["held_by_transaction"] or f"producer {row['held_producer_id']}"
        yield _row(
            CLEANER,
            replica,
            row["held_bytes"],
            f"nothing is cleaned from offset {row['first_uncleanable_offset']} on while {who} has its transaction open",
        )


def lag_in_partitions(audit: Audited, partitions: set[tuple[str, int]]) -> list[Fields]:
    """Return the lag of the groups that read some partitions, largest first, at most :data:`MOST` rows.

    Cost: two passes over the facts, and the headers of these logs from the lowest offset on.
    """
    if not partitions:
        return []
    clusters = read_clusters(audit, partitions)
    rows = [row for _, row in audit.runner.judge(audit.replicas, clusters, _lag_rows)]
    rows = [row for row in rows if row["offsets"]]
    rows.sort(key=lambda row: (-row["offsets"], row["topic"], row["partition"], row["group_id"]))
    return rows[:MOST]


def _lag_rows(replicas: list[ReplicaFacts], cluster: Cluster) -> Iterator[tuple[str, Fields]]:
    log = LogView(replicas, cluster)
    if log.is_gone or not isinstance(cluster, ReadCluster):
        return
    before = {new: old for old, new in RENAMED["lag"].items()}  # as in summary.json
    for row in lag_table.rows_of(log, cluster):
        names = ("group_id", "kind", "committed_offset", *lag_table.LEFT, "offsets", "undecided")
        place = {"about": GROUP, "topic": log.topic, "partition": log.partition}
        yield GROUP, place | {before.get(name, name): row.get(name) for name in names}


# Records that are lost, hidden, exposed or duplicated, by what findings name.


def impact(audit: Audited) -> list[Fields]:
    """Return the rows of the table ``impact``, times in ms, by outcome and place.

    Cost: none without such findings; else two passes over the facts, and the headers of the batches that are named.
    """
    asked = impact_table.ranges_by_log(audit.findings, {d.name: d.join_key for d in audit.inventory.log_dirs})
    if not asked:
        return []
    clusters = read_clusters(audit, {(topic, partition) for _, topic, partition in asked})
    job = partial(impact_table.rows_of, asked, keys_of)
    rows = [row for _, row in audit.runner.judge(audit.replicas, clusters, job)]
    for (key, topic, partition), ranges in asked.items():
        if key not in clusters or (topic, partition) not in clusters[key].bounds:
            rows += [one.bare(topic, partition) for one in ranges]
    return sorted(rows, key=_place_of_impact)


def _place_of_impact(row: Values) -> tuple[Any, ...]:
    place = (row["topic"], row["partition"], row.get("first_offset") or -1, row["log_dir"] or "", row["finding"])
    return (IMPACTS.index(row["outcome"]), *place)


def impact_columns(audit: Audited) -> pa.Table:
    """Return the table ``impact``."""
    of_dir = audit.inventory.cluster_ids
    own = ({**dict.fromkeys(IMPACT.names), **row, "cluster_id": of_dir.get(row["log_dir"])} for row in audit.impact)
    return table_of(own, IMPACT)


# Blocked partitions in a run: accepted by a baseline, of an excluded rule, or failing the run.


class About(NamedTuple):
    """A finding about a transaction that blocks readers, and whether a baseline accepts it."""

    finding: Finding
    accepted: bool


def by_producer(findings: Sequence[Finding], accepted: Sequence[object | None]) -> dict[int | None, list[About]]:
    """Return the findings of blocking rules by producer id; ``accepted``: for each finding what accepts it."""
    catalogue, grouped = registry.kinds(), defaultdict(list)
    for finding, entry in zip(findings, accepted, strict=True):
        if catalogue[finding.kind].blocks is not None:
            grouped[finding.producer_id].append(About(finding, entry is not None))
    return dict(grouped)


NO_STATE: Fields = {"accepted": False, "left_out": False, "fingerprint": None}  # where it fails


def run_state(row: Values, about: Mapping[int | None, Sequence[About]], asked: Collection[str]) -> Fields:
    """Return what a run adds to a row of ``judge.blocked_rows``.

    ``accepted``: whether a baseline accepts all findings about its transaction; ``left_out``: whether there is none
    because its kind is not in ``asked``; ``fingerprint``: of the most severe finding about it.
    """
    related = [item for item in about.get(row["producer_id"], ()) if _is_about(item.finding, row)]
    reported = any(item.finding.severity in GRAVE for item in related)
    return {
        "accepted": bool(related) and all(item.accepted for item in related),
        "left_out": row["rule"] not in asked and not reported,
        "fingerprint": next((item.finding.fingerprint for item in related), None),
    }


def _is_about(finding: Finding, row: Values) -> bool:
    if finding.topic == TRANSACTION_STATE and row["topic"] != TRANSACTION_STATE:
        return finding.transactional_id == row["transactional_id"]
    if (finding.topic, finding.partition) != (row["topic"], row["partition"]):
        return False
    last = finding.offset if finding.last_offset is None else finding.last_offset
    return last is None or row["first_offset"] is None or last >= row["first_offset"]


def fails(row: Values, severities: Collection[str], unsure: bool) -> bool:
    """Whether a blocked partition makes the run fail at these severities.

    ``unsure``: also if it may be blocked past its timeout, which the input cannot confirm, and would count if so.
    """
    if row["accepted"] or row["left_out"]:
        return False
    if row["severity"] in severities:
        return True
    return unsure and row["if_true"] in severities and row["late_if_open"]


# Results as small tables, kept by the history and judged by the expectations.


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The entries of the run's baseline that its findings have. over: why one does not count any more; null where it does.
BASELINE = pa.schema([pa.field(name, pa.string()) for name in (*ENTRY, "over")])
# The findings as runs keep them: the fields alone, `timestamp` as text, `evidence` and `advice` as JSON.
_AS_TEXT = ("timestamp", "evidence", "advice")
FINDINGS = pa.schema(
    [FINDINGS_TABLE.field("cluster_id")]
    + [pa.field(n, pa.string()) if n in _AS_TEXT else FINDINGS_TABLE.field(n) for n in FIELDS]
)
# How many transactions with a topic (of the first partition by name; each transaction counts once) and outcome.
TRANSACTION_TOTALS = pa.schema(
    [(name, pa.string()) for name in ("cluster_id", "topic", "outcome", "decided_by")]
    + [(name, pa.int64()) for name in ("transactions", "records", "bytes", "longest_ms")]
)
# The lag of a group in a topic. partitions: with a position; unknown: those that offsets lack, as outside of the input.
LAG_TOTALS = pa.schema(
    [(name, pa.string()) for name in ("cluster_id", "group_id", "kind", "topic")]
    + [(name, pa.int64()) for name in ("partitions", "offsets", "unknown")]
)
OFFSET_KINDS = [name.removeprefix("offsets_") for name in LOGS.names if name.startswith("offsets_")]
_SUMS = ("batches", "records", "bytes_total", "bytes_decoded", "bytes_skipped", "bytes_error")
_AT_ONCE = 10_000  # rows that are Python's


def findings_table(audit: Audited) -> pa.Table:
    """Return the findings as the table of that name, in their order."""
    return table_of(_findings_rows(audit), FINDINGS_TABLE)


def blocked_table(audit: Audited) -> pa.Table:
    """Return the blocked partitions as the table of that name.

    In the order of the report's cards: blocked too long first, the longest of these first.
    """
    of_dir = audit.inventory.cluster_ids
    rows = [_blocked_row(row) | {"cluster_id": of_dir.get(row["log_dir"])} for row in audit.blocked]
    rows.sort(key=lambda row: (row["standing"] not in STANDS_BLOCKED, -row["age_ms"], row["topic"], row["partition"]))
    return table_of(rows, BLOCKED)


def _blocked_row(row: Values) -> Fields:
    times = {new: ms_of(row[old]) for old, new in RENAMED["blocked"].items()}
    return {**row, **times, "log_dir": row["log_dir"] or ""}


def ms_of(text: str | None) -> int | None:
    return None if text in (None, OUT_OF_RANGE) else (datetime.fromisoformat(text) - EPOCH) // timedelta(milliseconds=1)


def _findings_rows(audit: Audited) -> Iterator[Fields]:
    for row in _rows(audit):
        yield row | _typed(row["evidence"]) | {"timestamp": ms_of(row["timestamp"]), "run_id": audit.options.run_id}


def _typed(evidence: Values) -> Fields:
    """Evidence as columns of the table: its common keys, and a map of the others; what is no text as JSON."""
    as_text = {name: v if v is None or isinstance(v, str) else _json(v) for name, v in sorted(evidence.items())}
    common = {name: (evidence if kind is int else as_text).get(name) for name, kind in COMMON.items()}
    return common | {"evidence": {name: text for name, text in as_text.items() if name not in COMMON}}


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _rows(audit: Audited) -> Iterator[Fields]:
    """The findings, each with the id of its cluster."""
    of_dir = audit.inventory.cluster_ids
    for finding in audit.findings:
        row = finding.to_dict()
        yield row | {"cluster_id": cluster_of(row, of_dir)}


def _flat(row: Fields) -> Fields:
    """A finding as runs keep it: its structures as JSON."""
    advice = row["advice"]
    return row | {
        "evidence": _json(row["evidence"]),
        "advice": None if advice is None else json.dumps(advice, ensure_ascii=False),
    }


def unfolded(row: Values) -> Fields:
    """Return a row of the findings table with its structures parsed; advice may be missing in rows of older runs."""
    advice = row.get("advice")
    return {
        **row,
        "evidence": json.loads(row["evidence"]),
        "advice": None if advice is None else json.loads(advice),
    }


def table_of(rows: Iterable[Values], columns: pa.Schema) -> pa.Table:
    """Return rows as a table, with times in ms. Not by ``pyarrow.array``, which would load pandas."""
    by_column: list[list[Any]] = [[] for _ in columns]
    for row in rows:
        for values, name in zip(by_column, columns.names, strict=True):
            values.append(row[name])
    return pa.Table.from_arrays([*map(column_of, by_column, columns.types)], schema=columns)


def cluster_names(audit: Audited) -> dict[str, ClusterName]:
    """Return the configured names of the audited clusters, by id.

    Errors: :class:`AuditInputError` for one name of several clusters.
    """
    ids, options = audit.cluster_ids, audit.options
    names = {id: named for id, named in options.clusters if id in ids}
    if options.cluster_name is None:
        return names
    if len(ids) > 1:
        raise AuditInputError(
            f"--cluster-name names one cluster, the input has {len(ids)}: {', '.join(ids)}; name each by its id under "
            "[clusters] in auditor.toml"
        )
    one = ids[0] if ids else ""
    return {one: names.get(one, ClusterName(""))._replace(name=options.cluster_name)}


def findings(audit: Audited) -> pa.Table:
    """Return the findings in their order, each with its cluster, as runs keep them; structures as JSON."""
    return table_of(map(_flat, _rows(audit)), FINDINGS)


def logs(audit: Audited) -> pa.Table:
    """Return the content of each replica: offsets, batches, records, producers and bytes. Some 200 bytes a row."""
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


def totals(audit: Audited) -> dict[str, pa.Table]:
    """Return the tables of totals that a history keeps."""
    return {"transaction_totals": transaction_totals(audit), "lag_totals": lag_totals(audit)}


def transaction_totals(audit: Audited) -> pa.Table:
    """Return how many transactions there are by topic and outcome. Cost: that of the table ``transactions``."""
    replicas, clusters = audit.replicas, audit.clusters
    work, shares = partial(_counted, clusters), partial(derived_tables.shares_of, clusters)
    parts = audit.runner.gather(replicas.held, shares, work, "count transactions")
    return _summed(list(chain.from_iterable(map(loads, parts))), TRANSACTION_TOTALS)


def _counted(clusters: Mapping[str, Cluster], shares: Iterable[Shares]) -> Iterator[bytes]:
    for (join_key, partition), of_partition in shares:
        for batch in derived_tables.coordinated_rows(clusters[join_key], partition, of_partition):
            rows = batch.to_pylist()
            for row in rows:
                topic = row["partitions"][0].rpartition("-")[0] if row["partitions"] else None
                row |= {"topic": topic, "transactions": 1, "longest_ms": row["duration_ms"]}
            yield dumps(_summed(rows, TRANSACTION_TOTALS).to_pylist())


def lag_totals(audit: Audited) -> pa.Table:
    """Return the lag of each group by topic. Cost: two passes over the facts."""
    rows = audit.runner.judge(audit.replicas, read_clusters(audit), _lags)
    return _summed([row for _, row in rows], LAG_TOTALS)


def _lags(replicas: list[ReplicaFacts], cluster: Cluster) -> Iterator[tuple[str, Fields]]:
    log = LogView(replicas, cluster)
    if log.is_gone or not isinstance(cluster, ReadCluster):
        return
    for p, offsets in lag_table.lag_offsets(log, cluster):
        row = {"cluster_id": log.leader.table_key[0], "group_id": p.group_id, "kind": p.kind, "topic": p.topic}
        yield GROUP, {**row, "partitions": 1, "offsets": offsets, "unknown": int(offsets is None)}


def _summed(rows: list[Fields], columns: pa.Schema) -> pa.Table:
    """Add up rows with equal texts; of columns in ms the largest is kept."""
    table = pa.Table.from_pylist(rows, schema=columns)
    keys = [column.name for column in columns if pa.types.is_string(column.type)]
    how = {name: "max" if name.endswith("_ms") else "sum" for name in columns.names if name not in keys}
    summed = table.group_by(keys).aggregate([*how.items()])
    named = summed.select([*keys, *(f"{name}_{sum}" for name, sum in how.items())])
    return named.rename_columns(columns.names).sort_by([(key, "ascending") for key in keys])


def report(audit: Audited) -> pa.Table:
    """Return the open transactions and timelines, from which a kept run's report can be rebuilt."""
    rows = [
        {"kind": kind, "row": json.dumps(row, ensure_ascii=False, sort_keys=True)}
        for kind in ("open", "timeline")
        for row in audit.judged[kind]
    ]
    return pa.Table.from_pylist(rows, schema=REPORT)


def baseline(verdicts: Verdicts) -> pa.Table:
    """Return the baseline entries that match the run's findings, each once: those in force and those that lapsed."""
    rows = {entry.fingerprint: entry.row() | {"over": None} for entry in verdicts.accepted if entry is not None}
    rows |= {entry.fingerprint: entry.row() | {"over": why} for entry, why in verdicts.back}
    return pa.Table.from_pylist(list(rows.values()), schema=BASELINE)
