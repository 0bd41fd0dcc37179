"""Whether a producer that a snapshot lacks may have expired on the broker that took it, and how sure that is.

A broker counts idle time from the stamps in the log, but by its own clock: only times that brokers wrote bound it.
"""

from __future__ import annotations

from auditor.facts.replica_facts import Difference, ReplicaFacts, SnapshotLink
from auditor.rules.seen.view import LogView

EXPLAINED, UNDECIDABLE, PROVED = "explained", "undecidable", "proved"
OWN_SETTINGS = ("log.dirs", "log.dir", "broker.id", "node.id", "process.roles")  # no broker's file is without all
MARKERS_END = (1, 0)  # from here on an end marker is no batch of its producer


def counts_markers(replica: ReplicaFacts) -> bool:
    """Whether snapshots show that the broker takes an end marker for its producer's last batch: 0.11 alone does."""
    shown = any(d.name == "marker_offset" for link in replica.snapshots for d in link.differences)
    return shown and not any(link.by_data for link in replica.snapshots)


def settings_known(log: LogView, replica: ReplicaFacts) -> bool:
    """Whether the broker's settings are in the input, so that what they do not name has its default."""
    own = log.cluster.broker_configs.get(str(replica.broker_id), {})
    names = ("producer.id.expiration.ms", "transactional.id.expiration.ms")
    if log.cluster.is_unknown(replica.broker_id, *names):
        return False
    expiration = log.cluster.broker_setting(replica.broker_id, *names)
    return expiration is not None or any(name in own for name in OWN_SETTINGS)


def verdict(log: LogView, replica: ReplicaFacts, link: SnapshotLink, d: Difference) -> str:
    """What a difference between a snapshot and the replay proves: PROVED that the snapshot is wrong, EXPLAINED that a
    broker does so, or UNDECIDABLE."""
    if d.name == "marker_offset":  # 0.11 counts end markers as a producer's last batch, no later release does
        shown = log.cluster.release(replica.broker_id)
        if not counts_markers(replica) or shown.least >= MARKERS_END:
            return PROVED
        return EXPLAINED if log.policy(replica).evicts_below_log_start else UNDECIDABLE
    if d.name != "missing":
        return PROVED
    evicted = d.last_offset < replica.own_start  # also -1, of a producer known by its marker alone
    if evicted and log.policy(replica).evicts_below_log_start:
        return EXPLAINED
    if built_without(replica, link, d):
        return EXPLAINED
    if d.producer_id in link.unexpired:
        return PROVED
    return _expired(log, replica, link, d.replayed)


def built_without(replica: ReplicaFacts, link: SnapshotLink, d: Difference) -> bool:
    """Whether this replica, or the one that this snapshot was copied from to remote storage, may have been built from
    remote storage after the producer wrote.

    Such a replica begins without producers: the snapshot that it fetches is deleted as it reloads its own (seen with
    4.3.1; TierStateMachine, ProducerStateManager.truncateFullyAndReloadSnapshots).
    """
    first = replica.unread_from if replica.unread_from >= 0 else next(iter(replica.segment_bases), -1)
    if first < 0 or replica.local_start <= first:
        return False
    if link.offset < replica.local_start:  # of the leader that copied it, which may have been built so
        return len(replica.leader_epochs) > 1
    return d.last_offset < replica.local_start  # what was written since, this replica has appended itself


def _expired(log: LogView, replica: ReplicaFacts, link: SnapshotLink, stamp: int) -> str:
    """Whether a producer whose last stamp is ``stamp`` (ms) had expired when the snapshot was taken.

    The clock of the audit bounds that moment where somebody gave it, or a controller's log goes that far; a time in
    this log behind the snapshot bounds it for the broker that led, not for a replica that was created again since.
    """
    if not settings_known(log, replica):
        return UNDECIDABLE
    cluster = log.cluster
    limit, now = cluster.expiration_ms(replica.broker_id), max(cluster.as_of, cluster.newest_time)
    if now - stamp < limit:
        given = cluster.has_metadata or now != cluster.newest_time
        return PROVED if link.time >= 0 or (given and cluster.newest_time >= 0) else UNDECIDABLE
    return UNDECIDABLE if link.time >= 0 and link.time - stamp < limit else EXPLAINED


def largest_that_fits(log: LogView, links: list[tuple[SnapshotLink, list[Difference]]]) -> int:
    """The largest producer.id.expiration.ms (ms) under which all of these could be missing, by the stamps of what comes
    behind their snapshots; 0 where those go back."""
    now = max(log.cluster.as_of, log.cluster.newest_time)
    idle = [(link.next_time if link.next_time >= 0 else now) - d.replayed for link, found in links for d in found]
    return max(0, min(idle, default=0))
