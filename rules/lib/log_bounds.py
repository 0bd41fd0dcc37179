"""Records that retention, cleaning or expiration may have removed."""

from __future__ import annotations

from bisect import bisect_right
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from auditor.base.errors import BREAKS_OFF, DecodeError, setting_number
from auditor.facts.events import HOLES, Event, hole_of
from auditor.facts.replica_facts import Difference, LargestCreateTime, ReplicaFacts, SnapshotLink
from auditor.rules.seen.cluster_view import DAY_MS, HOUR_MS, Cluster
from auditor.rules.seen.view import Finding, LogView, is_compacted, iso, once

# What a cleaner may have removed from a log, and what it cannot have.


LEADERS_LOG = "what the cleaner took of the log of the broker that led then"


class Missing(StrEnum):
    """How certain it is that records were lost in an offset gap: a confidence of the findings.

    ``UNDECIDABLE``: another broker led there or later, or may have. A follower stores the gaps that its leader's
    cleaner left, and a former leader may have lost its replica and fetched it again.
    """

    PROVED = "proved"
    LIKELY = "likely"
    UNDECIDABLE = "undecidable"


def both_intact(log: LogView, e: Event) -> bool:
    """Whether no cleaner can have removed what an event misses between its batch and the producer's previous one.

    Both are in the uncleaned part, or only markers separate them.
    """
    return e["previous_last_offset"] >= log.intact_from() or adjoin(log, e)


def adjoin(log: LogView, e: Event) -> bool:
    """Whether each offset between the two is a marker's.

    A partly cleaned batch keeps its first and last offset, and the sequences with them (``MemoryRecords.filterTo``).
    """
    first, end = int(e["previous_last_offset"]) + 1, int(e["base_offset"])
    if first >= end:
        return first == end
    low, high = np.searchsorted(_marker_offsets(log), [first, end])
    return bool(high - low == end - first)


@once
def _marker_offsets(log: LogView) -> np.ndarray:
    return np.unique(log.leader.transactions["marker_offset"])


class Cleaned(NamedTuple):
    """The end of the part of a log that may have been cleaned, and the newest time (ms) in it, -1 for none."""

    end: int
    time: int


def whole_from(log: LogView, replica: ReplicaFacts | None = None) -> int:
    """Return the first offset above everything cleaned by a log's own broker or a former leader."""
    return cleaned(log, replica or log.leader).end


@once
def cleaned(log: LogView, replica: ReplicaFacts) -> Cleaned:
    """Return the part of a log that may have been cleaned, up to its last gap that :func:`missing` cannot decide.

    A log that was fetched again has gaps: its broker's checkpoint only covers its own cleaner. Cached.
    """
    own = Cleaned(log.intact_from(replica), -1)
    holes = list(log.events(*HOLES, replica=replica))
    left = next((e for e in reversed(holes) if hole(log, replica, e) == Missing.UNDECIDABLE), None)
    if left is None:
        return own
    if any(replica.dropped_events.get(int(kind)) for kind in HOLES):
        return Cleaned(replica.log_end, max(replica.broker_time, replica.any_time))
    return Cleaned(max(own.end, hole_of(left)[1]), int(left["time"]))


def hole(log: LogView, replica: ReplicaFacts, e: Event) -> Missing:
    """Return what an offset gap before a batch, or among its records, proves."""
    return missing(log, replica, hole_of(e)[0])


@once
def _holes(log: LogView) -> list[tuple[int, int]]:
    return sorted(hole_of(e) for e in log.events(*HOLES))


def between(log: LogView, e: Event) -> Missing:
    """Return what a gap between an event's batch and the producer's previous one proves, above what was cleaned.

    Proved where the log has every offset between them.
    """
    first, end = int(e["previous_last_offset"]) + 1, int(e["base_offset"])
    holes = _holes(log)
    index = bisect_right(holes, first, key=lambda one: one[1])  # they do not overlap
    if adjoin(log, e) or (not log.leader.dropped_events and (index == len(holes) or holes[index][0] >= end)):
        return Missing.PROVED
    return missing(log, log.leader, first)


def missing(log: LogView, replica: ReplicaFacts, first: int) -> Missing:
    """Return what an offset gap at ``first`` proves, above everything known to be cleaned.

    In a topic that may be compacted only the active segment is certain, if this broker has led since: followers store
    their leader's gaps, and an aborted cleaner run leaves gaps without moving its checkpoint.
    """
    policy = _cleanup_policy(log, replica)
    compacted = _is_compacted(log, replica, policy)
    if policy is not None and not compacted:
        return Missing.PROVED
    if replica.broker_id is not None and _led_since(log, replica, first) == {replica.broker_id}:
        active = replica.segment_bases and first >= replica.segment_bases[-1]
        return Missing.PROVED if active else Missing.LIKELY
    return Missing.UNDECIDABLE if compacted else Missing.LIKELY


def _is_compacted(log: LogView, replica: ReplicaFacts, policy: str | None) -> bool:
    # By its setting or a cleaner checkpoint of any replica; with an unknown setting also where batches lack single
    # records, which only a cleaner removes.
    if is_compacted(log.topic, policy, None):
        return True
    if policy is None and any(one.cleaner_offset is not None for one in log.replicas):
        return True
    return policy is None and all(any(True for _ in log.events(kind, replica=replica)) for kind in HOLES)


def _cleanup_policy(log: LogView, replica: ReplicaFacts) -> str | None:
    # Kafka's default only where everything that could set another value is in the input.
    cluster, name = log.cluster, "log.cleanup.policy"
    policy = cluster.setting(log.topic, "cleanup.policy") or cluster.broker_setting(replica.broker_id, name)
    if policy is not None or cluster.is_unknown(replica.broker_id, name):
        return policy
    return "delete" if cluster.has_metadata and str(replica.broker_id) in cluster.broker_configs else None


def _led_since(log: LogView, replica: ReplicaFacts, first: int) -> set[int | None]:
    # By the replica's own leader epochs and the metadata; None for an unknown leader.
    epochs = replica.leader_epochs
    ends = [*(start for _, start in epochs[1:]), replica.log_end + 1]
    since = tuple(epoch for (epoch, _), stop in zip(epochs, ends, strict=False) if stop > max(first - 1, 0))
    return _led_in(log, since)


@once
def _led_in(log: LogView, epochs: tuple[int, ...]) -> set[int | None]:
    return {log.cluster.led(log.topic, log.partition, epoch) for epoch in epochs}


# Retention and cleaning settings with their source: the topic, its broker, or Kafka's default.


MINUTE_MS = 60_000
WEEK_MS = 7 * DAY_MS
FOREVER = (1 << 63) - 1
LOWEST = -(1 << 63)


class TopicSettingName(NamedTuple):
    """A topic setting: its broker-level names, each with its unit in ms or bytes, and its default."""

    at_broker: tuple[tuple[str, int], ...]
    default: str


# Source: LogConfig, ServerLogConfigs and ServerTopicConfigSynonyms; the first one of a broker that is set counts.
SETTINGS = {
    "cleanup.policy": TopicSettingName((("log.cleanup.policy", 1),), "delete"),
    "retention.ms": TopicSettingName(
        (("log.retention.ms", 1), ("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS)),
        str(WEEK_MS),
    ),
    "retention.bytes": TopicSettingName((("log.retention.bytes", 1),), "-1"),
    "local.retention.ms": TopicSettingName((("log.local.retention.ms", 1),), "-2"),
    "local.retention.bytes": TopicSettingName((("log.local.retention.bytes", 1),), "-2"),
    "segment.ms": TopicSettingName((("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)), str(WEEK_MS)),
    "remote.storage.enable": TopicSettingName((), "false"),
    "remote.log.copy.disable": TopicSettingName((), "false"),
    "min.cleanable.dirty.ratio": TopicSettingName((("log.cleaner.min.cleanable.ratio", 1),), "0.5"),
    "min.compaction.lag.ms": TopicSettingName((("log.cleaner.min.compaction.lag.ms", 1),), "0"),
    "max.compaction.lag.ms": TopicSettingName((("log.cleaner.max.compaction.lag.ms", 1),), str(FOREVER)),
    "delete.retention.ms": TopicSettingName((("log.cleaner.delete.retention.ms", 1),), str(DAY_MS)),
}
COMPACTED = ("__consumer_offsets", "__transaction_state", "__share_group_state")  # brokers make them so
OF_INTERNAL = {"__share_group_state": "compact,delete"}  # that are more than compacted


class TopicSetting(NamedTuple):
    """A value, its source, and whether it is certain: topic settings and broker file are in the input."""

    value: str
    by: str
    sure: bool

    @property
    def number(self) -> int:
        """The value as a number; :data:`LOWEST` for an invalid one, for which the default applies."""
        number = setting_number(self.value, least=LOWEST)
        return LOWEST if number is None else number


def setting(cluster: Cluster, broker_id: int | None, topic: str, name: str) -> TopicSetting:
    """Return a topic's setting as its replica's broker applies it."""
    own = cluster.setting(topic, name)
    if own is not None:
        return TopicSetting(own, f"topic {name}", True)
    if name == "cleanup.policy" and topic in COMPACTED:
        return TopicSetting(OF_INTERNAL.get(topic, "compact"), "internal topic", cluster.has_metadata)
    names = SETTINGS[name].at_broker
    sure = cluster.has_metadata and not cluster.is_unknown(broker_id, *(broker_name for broker_name, _ in names))
    for broker_name, unit in names:
        value = cluster.broker_setting(broker_id, broker_name)
        if value is None:
            continue
        number = None if unit == 1 else setting_number(value, least=LOWEST)
        return TopicSetting(value if number is None else str(number * unit), f"broker {broker_name}", sure)
    sure = sure and (not names or broker_id in cluster.of_files)
    return TopicSetting(SETTINGS[name].default, "default", sure)


# Whether a producer missing from a snapshot may have expired on the broker that took it.
#
# A broker measures idle time by the timestamps in the log, but against its own clock: only broker-written times bound
# that.


EXPLAINED, UNDECIDABLE, PROVED = "explained", "undecidable", "proved"
OWN_SETTINGS = ("log.dirs", "log.dir", "broker.id", "node.id", "process.roles")  # no broker's file is without all
MARKERS_END = (1, 0)  # from here on an end marker is no batch of its producer


def counts_markers(replica: ReplicaFacts) -> bool:
    """Whether snapshots show that the broker counts an end marker as a producer's last batch: only 0.11 does."""
    shown = any(d.name == "marker_offset" for link in replica.snapshots for d in link.differences)
    return shown and not any(link.by_data for link in replica.snapshots)


def settings_known(log: LogView, replica: ReplicaFacts) -> bool:
    """Whether the broker's settings are in the input, so that defaults apply to the rest."""
    own = log.cluster.broker_configs.get(str(replica.broker_id), {})
    names = ("producer.id.expiration.ms", "transactional.id.expiration.ms")
    if log.cluster.is_unknown(replica.broker_id, *names):
        return False
    expiration = log.cluster.broker_setting(replica.broker_id, *names)
    return expiration is not None or any(name in own for name in OWN_SETTINGS)


def verdict(log: LogView, replica: ReplicaFacts, link: SnapshotLink, d: Difference) -> str:
    """Judge a difference between a snapshot and the replay: PROVED (wrong), EXPLAINED (normal) or UNDECIDABLE."""
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
    """Whether this replica, or the one that uploaded this snapshot, may have been rebuilt from remote storage since.

    Such a replica starts without producers: the fetched snapshot is deleted on reload (seen with 4.3.1;
    TierStateMachine, ProducerStateManager.truncateFullyAndReloadSnapshots).
    """
    first = replica.unread_from if replica.unread_from >= 0 else next(iter(replica.segment_bases), -1)
    if first < 0 or replica.local_start <= first:
        return False
    if link.offset < replica.local_start:  # of the leader that copied it, which may have been built so
        return len(replica.leader_epochs) > 1
    return d.last_offset < replica.local_start  # what was written since, this replica has appended itself


def _expired(log: LogView, replica: ReplicaFacts, link: SnapshotLink, stamp: int) -> str:
    # ``stamp``: the producer's last timestamp, ms. The evaluation time bounds when the snapshot was taken if the user
    # gave it or a controller log reaches that far. A time in this log behind the snapshot bounds it for the broker that
    # led, not for a replica re-created since.
    if not settings_known(log, replica):
        return UNDECIDABLE
    cluster = log.cluster
    limit, now = cluster.expiration_ms(replica.broker_id), max(cluster.as_of, cluster.newest_time)
    if now - stamp < limit:
        given = cluster.has_metadata or now != cluster.newest_time
        return PROVED if link.time >= 0 or (given and cluster.newest_time >= 0) else UNDECIDABLE
    return UNDECIDABLE if link.time >= 0 and link.time - stamp < limit else EXPLAINED


def largest_that_fits(log: LogView, links: list[tuple[SnapshotLink, list[Difference]]]) -> int:
    """Return the largest producer.id.expiration.ms (ms) that explains all of these missing producers.

    By the first timestamp after each snapshot; 0 where those regress.
    """
    now = max(log.cluster.as_of, log.cluster.newest_time)
    idle = [(link.next_time if link.next_time >= 0 else now) - d.replayed for link, several in links for d in several]
    return max(0, min(idle, default=0))


# Records with a timestamp ahead of everything brokers wrote.


def is_ahead_of_all(log: LogView, ahead: LargestCreateTime, slack_ms: int = HOUR_MS) -> bool:
    """Whether a producer's timestamp is ahead of everything brokers wrote.

    Only a controller log proves it: it is written twice a second.
    """
    return log.cluster.has_metadata and ahead.time > log.cluster.newest_time + slack_ms


def at_ahead(log: LogView, ahead: LargestCreateTime, **evidence: object) -> Finding:
    """Make the finding about such a batch."""
    stamp = iso(ahead.time) or ahead.time
    who = f"producer {ahead.producer_id}" if ahead.producer_id >= 0 else "a producer without id"
    has_producer = ahead.producer_id >= 0
    return log.finding(
        "warning",
        f"Records of {who} in {log.name} at offset {ahead.base_offset} are stamped {stamp}, ahead of all that the "
        "brokers wrote",
        segment=ahead.segment,
        offset=ahead.base_offset,
        last_offset=ahead.last_offset,
        producer_id=ahead.producer_id if has_producer else None,
        producer_epoch=ahead.producer_epoch if has_producer else None,
        transactional_id=log.owner(ahead.producer_id) if has_producer else None,
        position=ahead.position,
        time_ms=ahead.time,
        evidence={"found": stamp, "broker_time": iso(log.cluster.newest_time), **evidence},
    )


# The torn end of a segment: bytes up to its end that are not complete batches.


TAIL_REASONS = ("truncated", "zero_filled", "bad_size", "bad_magic", "bad_value")


def tails(replica: ReplicaFacts) -> dict[str, list[DecodeError]]:
    """Return by segment file the bytes at its end that are not complete batches, in pieces.

    A single complete batch of an unknown magic is not included: brokers skip it too.
    """
    sizes = {replica.segments[k]: scan.size for k, scan in enumerate(replica.scans)}
    out: dict[str, list[DecodeError]] = {}
    for e in sorted(replica.errors, key=lambda e: -e.position):
        begun = out.get(e.file)
        end = begun[-1].position if begun else sizes.get(e.file)
        if e.reason in TAIL_REASONS and end == e.position + e.length:
            out.setdefault(e.file, []).append(e)
    return {file: pieces[::-1] for file, pieces in out.items() if len(pieces) > 1 or not is_whole(pieces[0])}


def is_whole(error: DecodeError) -> bool:
    """Whether the bytes are one complete batch of an unknown magic."""
    return error.reason == "bad_magic" and not error.detail.endswith(BREAKS_OFF)
