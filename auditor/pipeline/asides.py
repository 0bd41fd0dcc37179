"""What a run says beside its findings, where there is something to say: disks that future timestamps keep full,
cleaners that are held or may stop, and what the groups that read held partitions have left. None of it is a finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from auditor.base.at_rest import Fields
from auditor.base.words import plural
from auditor.facts.replica_facts import ReplicaFacts
from auditor.model import log_maintenance
from auditor.pipeline import group_positions
from auditor.pipeline.tables import cleaner_table, lag_table, space_table
from auditor.pipeline.tables.read_cluster import ReadCluster
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import LogView, iso

if TYPE_CHECKING:
    from auditor.pipeline.runner import Audited

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
    row = cleaner_table.row_of(log, replica)
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
    clusters = group_positions.read_clusters(audit, held)
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
