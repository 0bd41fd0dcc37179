"""The table rehearsal, and the state of a cluster by its files."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from auditor.base.at_rest import Fields, Values
from auditor.base.errors import setting_number
from auditor.connectors.kafka_names import METADATA_TOPIC
from auditor.connectors.logdir.files import Inventory, LogDir
from auditor.connectors.schema import MadeOf, declared
from auditor.facts import crash_recovery
from auditor.facts.coordinator_history import CoordinatorHistory
from auditor.facts.coordinator_log import ONGOING, PREPARE_ABORT, PREPARE_COMMIT, split
from auditor.model import policies, rehearsal
from auditor.model.leader_election import ElectionState
from auditor.model.rehearsal import (
    TRANSACTION_STATE,
    WAYS,
    ClusterState,
    RehearsedBroker,
    Risk,
    StartForecast,
    rehearse,
)
from auditor.pipeline.cluster_settings import ClusterSettings
from auditor.rules.seen.cluster_view import MIN_IN_SYNC, UNCLEAN, Cluster

REHEARSAL = declared(
    "rehearsal",
    """
    a risk of stopping one broker: what is offline, refused, moved or lost if it stops or is killed, and whether it \
would start again; see [rehearse](rehearse.md)
    SELECT broker_id, how, risk, severity, count(*) AS n FROM rehearsal WHERE severity <> 'info' GROUP BY ALL
    how:string stop (a controlled shutdown) or kill
    risk:string name of the risk, as in the list of [risks](rehearse.md#risks)
    severity:string critical, error, warning or info
    known:bool false where the input does not show whether it is so
    transactional_id:string transactional id concerned; null: none
    group_id:string group concerned; null: none
    from_leader:int leader before; -1: none; null: not about a leader
    to_leader:int leader afterwards; -1: none; null: not about a leader
    isr:ints in-sync replicas afterwards; null: not about a partition; empty: none
    min_isr:int in-sync replicas that acks=all needs; null: not about a partition
    bytes:long bytes that recovery reads again; null: not about recovery
    lasts_ms:long about how long it has no leader; null: until the broker is back, or unknown
    says:string the risk as a sentence
""",
    of=MadeOf.FINDINGS,
)
MOST_COUNTED = 20_000  # partitions of a cluster whose risks every audit counts
RECOVERY_POINTS = "recovery-point"
SESSION_MS = {True: ("broker.session.timeout.ms", 9_000), False: ("zookeeper.session.timeout.ms", 18_000)}  # by KRaft
ELR_FEATURE = "eligible.leader.replicas.version"
NO_METADATA = "the input has no __cluster_metadata: partitions, leaders and in-sync replicas are unknown"
NOT_WHOLE = "not all of __cluster_metadata could be read: what it lacks is unknown"
NO_COORDINATOR = "the input has no __transaction_state: open transactions are unknown"
NO_GROUPS = "the input has no __consumer_offsets: groups are unknown"
CUT = ("topic", "partition", "offset", "records")
DEFAULTS = "min.insync.replicas of some topics is unknown without server.properties: 1 stands in for it"
MORE_GROUPS = "not all groups are listed"
WITHOUT_OFFSETS = "groups without committed offsets are not listed: the input does not show whether they still exist"


def rows_of(states: Mapping[str | None, ClusterState]) -> list[Fields]:
    """Return the rows of the table for each broker of some clusters, by cluster id, and each way to stop."""
    return [
        row_of(risk, cluster_id, broker, way)
        for cluster_id, state in states.items()
        for broker in sorted({*state.brokers, *state.starts})
        for way in WAYS
        for risk in rehearse(state, broker, way)
    ]


def row_of(risk: Risk, cluster_id: str | None, broker: int, way: str) -> Fields:
    """Return a risk as a row of the table."""
    row = risk._asdict() | {"isr": None if risk.isr is None else list(risk.isr), "min_isr": risk.least}
    row |= {"cluster_id": cluster_id, "broker_id": broker, "log_dir": None, "how": way}
    return {name: row[name] for name in REHEARSAL.names}


def counts_of(states: Mapping[str | None, ClusterState]) -> Fields:
    """Return under ``brokers``, for each broker and way, how often it has each risk above info, the most severe first.

    Clusters of more than :data:`MOST_COUNTED` partitions are under ``left_out``.
    """
    brokers = []
    few = {cluster_id: state for cluster_id, state in states.items() if len(state.partitions) <= MOST_COUNTED}
    for cluster_id, state in few.items():
        for broker in sorted({*state.brokers, *state.starts}):
            for way in WAYS:
                risks = Counter(risk.risk for risk in rehearse(state, broker, way) if risk.severity != "info")
                brokers.append({"cluster_id": cluster_id, "broker_id": broker, "how": way, "risks": dict(risks)})
    return {"brokers": brokers, "left_out": [cluster_id for cluster_id in states if cluster_id not in few]}


# The state of a cluster by its files.


def recovery(
    inventory: Inventory, clusters: Mapping[str, Cluster], dry_runs: Mapping[str, Sequence[Any]]
) -> list[Fields]:
    """Return for each log directory what a start does (:func:`auditor.facts.crash_recovery.directory`).

    ``dry_runs``: by log directory those of its logs in which something happens, each with its place.
    """
    clean = {d.name: d.clean_shutdown for d in inventory.log_dirs}
    starts = {name: steps for cluster in clusters.values() for name, steps in cluster.starts.items()}
    refused = {name: words for cluster in clusters.values() for name, words in cluster.next_release.items()}
    runs = {**dry_runs, **{name: [] for name in starts if name not in dry_runs}}
    rows = []
    for name, own in sorted(runs.items(), key=itemgetter(0)):
        dry = [run for _, run in own]
        steps = crash_recovery.joined(starts.get(name, ()), dry)
        rows.append(crash_recovery.directory(name, dry, clean.get(name, False), steps, refused.get(name, ())))
    return rows


def state_by_files(
    log_dirs: Sequence[LogDir],
    settings: ClusterSettings,
    cluster: Cluster | None,
    recoveries: Sequence[Values],
    readers: Sequence[Values],
) -> ClusterState:
    """Return the state of one cluster at the end of its metadata.

    ``recoveries``: rows of :func:`recovery`; ``readers``: groups by topic, as ``judged["readers"]`` has them.
    """
    history = None if cluster is None else cluster.coordinator
    state = ClusterState(
        transactions=None if history is None else _unfinished(history),
        groups=sorted({group for row in readers if row["topic"] for group in row["groups"]}) if readers else None,
        starts=dict(_starts(log_dirs, recoveries, {} if cluster is None else cluster.next_release)),
        time=settings.newest_time if cluster is None or settings.newest_time >= 0 else cluster.newest_time,
    )
    bare = any(row["groups"] for row in readers if not row["topic"])
    more = any(row["more"] for row in readers if row["topic"])
    return _by_metadata(state, settings, [MORE_GROUPS] * more + [WITHOUT_OFFSETS] * bare)


def _by_metadata(state: ClusterState, settings: ClusterSettings, of_groups: list[str]) -> ClusterState:
    metadata = settings.metadata
    if metadata is None:
        brokers = {number: RehearsedBroker() for number in state.starts}
        return replace(state, brokers=brokers, unknown=(NO_METADATA,))
    partitions, default = {}, False
    for p in metadata.partitions.values():
        least = setting_number(settings.topic_setting(p.topic, MIN_IN_SYNC, p.leader))
        default |= least is None and p.leader >= 0 and p.leader not in settings.of_files
        unclean = settings.topic_setting(p.topic, UNCLEAN, p.leader) == "true"
        kept = (p.replicas, p.isr, p.leader, p.elr, p.last_known_elr)
        partitions[p.topic, p.partition] = ElectionState(*kept, least or 1, unclean)
    topics = metadata.topics
    unknown = [] if settings.whole else [NOT_WHOLE]
    unknown += [NO_COORDINATOR] if TRANSACTION_STATE in topics and state.transactions is None else []
    unknown += [NO_GROUPS] if rehearsal.CONSUMER_OFFSETS in topics and state.groups is None else []
    unknown += of_groups
    unknown += [DEFAULTS] if default else []
    name, usual = SESSION_MS[True]
    sessions = [setting_number(settings.topic_setting("", name, b)) for b in (None, *metadata.brokers)]
    session = next((ms for ms in sessions if ms is not None), usual)
    return replace(
        state,
        brokers={
            n: RehearsedBroker(not (b.fenced or b.in_controlled_shutdown), b.rack, session, _release(settings, n))
            for n, b in metadata.brokers.items()
        },
        partitions=partitions,
        voters=settings.voters,
        lost_voters=tuple(n for n, b in metadata.brokers.items() if n in settings.voters and b.fenced),
        controller=metadata.controller,
        elr_enabled=settings.levels.get(ELR_FEATURE, 0) > 0,
        unknown=tuple(unknown),
    )


def _release(settings: ClusterSettings, broker: int) -> policies.ReleaseEvidence:
    level = settings.levels.get("metadata.version", 0)
    return settings.releases.get(broker, policies.UNKNOWN).also(policies.shown_by_levels(level))


def _unfinished(history: CoordinatorHistory) -> list[rehearsal.OpenWork]:
    work: dict[str, rehearsal.OpenWork] = {}
    for log in history.logs.values():
        columns, valid = log.last_rows()
        rows = np.flatnonzero(valid & np.isin(columns["state"], (ONGOING, PREPARE_COMMIT, PREPARE_ABORT)))
        for entry in log.entries(columns, rows):
            work[entry.transactional_id] = rehearsal.OpenWork(entry.transactional_id, split_names(entry.partitions))
    return [work[name] for name in sorted(work)]


def split_names(names: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Return partitions by topic and number, sorted, from their names."""
    return tuple(sorted(map(split, names)))


def _starts(
    log_dirs: Sequence[LogDir], recoveries: Sequence[Values], next_release: Mapping[str, Sequence[str]]
) -> Iterator[tuple[int, StartForecast]]:
    by_dir = {row["log_dir"]: row for row in recoveries}
    of_broker: dict[int, list[LogDir]] = {}
    for d in log_dirs:
        if d.broker_id is not None and not d.texts:
            of_broker.setdefault(d.broker_id, []).append(d)
    for broker, dirs in of_broker.items():
        rows = [by_dir[d.name] for d in dirs if d.name in by_dir]
        steps = [step for row in rows for step in row["reads"] if step["file"] is not None]
        stops = [f"{s['file']} ({s['why']})" for s in steps if s["outcome"] in crash_recovery.STOPS]
        killed = [row["from_recovery_points"] for row in rows]
        poison = {rehearsal.STOP: [p for row in rows for p in row["poison"] if p["offset"] is None],
                  rehearsal.KILL: [p for run in killed for p in run["poison"]]}  # fmt: skip
        refused = [says for d in dirs for says in next_release.get(d.name, ())]
        forecast = StartForecast(
            fails={way: tuple(dict.fromkeys([*stops, *map(_poison, some)])) for way, some in poison.items()},
            loses=tuple(f"{s['file']} ({s['why']})" for s in steps if s["outcome"] == crash_recovery.LOST),
            cuts=tuple(rehearsal.LogCut(*(c[n] for n in CUT)) for run in killed for c in run["truncates"]),
            bytes=sum(map(_read_again, dirs)),
            undecided=tuple(why for run in killed for why in run["undecided"]),
            refused=tuple((policies.parsed(says.partition(" ")[0]) or (0, 0), says) for says in refused),
        )
        yield broker, forecast


def _poison(row: Values) -> str:
    where = "" if row["offset"] is None else f" at offset {row['offset']}"
    return f"{row['why']} in {row['topic']}-{row['partition']}{where}"


def _read_again(log_dir: LogDir) -> int:
    """Bytes of the segments from the one with the recovery point on; a metadata log is read from its start."""
    points: Mapping[tuple[str, int], int] = log_dir.checkpoints.get(RECOVERY_POINTS, {})
    total = 0
    for replica in log_dir.replicas:
        own = (replica.topic or "", replica.partition or 0)
        point = 0 if replica.topic == METADATA_TOPIC else points.get(own, 0)
        bases = [segment.base_offset for segment in replica.segments]
        total += sum(segment.size for segment in replica.segments[max(0, bisect_right(bases, point) - 1) :])
    return total


def table_of_rows(rows: Sequence[Fields]) -> pa.Table:
    """Return rows as the table."""
    return pa.Table.from_pylist(list(rows), schema=REHEARSAL)
