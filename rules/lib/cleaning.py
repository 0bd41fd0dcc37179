"""What a cleaner may have taken from a log, and what it cannot have."""

from __future__ import annotations

from bisect import bisect_right
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from auditor.facts.events import HOLES, Event, hole_of
from auditor.facts.replica_facts import ReplicaFacts
from auditor.rules.seen.memo import once
from auditor.rules.seen.view import LogView, is_compacted

LEADERS_LOG = "what the cleaner took of the log of the broker that led then"


class Missing(StrEnum):
    """How sure it is that records were lost where a log has a hole: a confidence of the findings.

    ``UNDECIDABLE``: another broker led there or since, or may have; a follower stores the holes that its leader's
    cleaner left, and whoever led may have lost its replica and fetched it anew.
    """

    PROVED = "proved"
    LIKELY = "likely"
    UNDECIDABLE = "undecidable"


def both_intact(log: LogView, e: Event) -> bool:
    """Whether no cleaner can have taken what an event misses between its batch and the producer's one before: both lie
    where nothing was cleaned, or adjoin, but for markers, whatever the cleaner's checkpoint says."""
    return e["previous_last_offset"] >= log.intact_from() or adjoin(log, e)


def adjoin(log: LogView, e: Event) -> bool:
    """Whether every offset between the two is that of a marker. A batch that is cleaned in part keeps its first and
    last offset, and the sequences that go with them (``MemoryRecords.filterTo``)."""
    first, end = int(e["previous_last_offset"]) + 1, int(e["base_offset"])
    if first >= end:
        return first == end
    low, high = np.searchsorted(_marker_offsets(log), [first, end])
    return bool(high - low == end - first)


@once
def _marker_offsets(log: LogView) -> np.ndarray:
    return np.unique(log.leader.transactions["marker_offset"])


class Cleaned(NamedTuple):
    """Up to where a log may have been cleaned, and the newest time (ms) known there, -1 for none."""

    end: int
    time: int


def whole_from(log: LogView, replica: ReplicaFacts | None = None) -> int:
    """The first offset from which on no cleaner has been at a log, its own broker's or that of one that led."""
    return cleaned(log, replica or log.leader).end


@once
def _cleaned_of(log: LogView) -> dict[str, Cleaned]:
    """By log directory; :func:`cleaned` fills it."""
    return {}


def cleaned(log: LogView, replica: ReplicaFacts) -> Cleaned:
    """Where that is: behind all holes that :func:`missing` cannot decide. Holes there are in all logs that were
    fetched anew, since a broker's own checkpoint knows only what its own cleaner did. Looked up once."""
    made = _cleaned_of(log)
    if replica.log_dir not in made:
        made[replica.log_dir] = _cleaned(log, replica)
    return made[replica.log_dir]


def _cleaned(log: LogView, replica: ReplicaFacts) -> Cleaned:
    own = Cleaned(log.intact_from(replica), -1)
    holes = list(log.events(*HOLES, replica=replica))
    left = next((e for e in reversed(holes) if hole(log, replica, e) == Missing.UNDECIDABLE), None)
    if left is None:
        return own
    if any(replica.dropped_events.get(int(kind)) for kind in HOLES):
        return Cleaned(replica.log_end, max(replica.broker_time, replica.any_time))
    return Cleaned(max(own.end, hole_of(left)[1]), int(left["time"]))


def hole(log: LogView, replica: ReplicaFacts, e: Event) -> Missing:
    """What a hole before a batch shows, or one among its records."""
    return missing(log, replica, *hole_of(e))


@once
def _holes(log: LogView) -> list[tuple[int, int]]:
    return sorted(hole_of(e) for e in log.events(*HOLES))


def between(log: LogView, e: Event) -> Missing:
    """What it shows that something lacks between an event's batch and the producer's one before, where no cleaner of
    this broker has been: sure where all offsets between them are there."""
    first, end = int(e["previous_last_offset"]) + 1, int(e["base_offset"])
    holes = _holes(log)
    at = bisect_right(holes, first, key=lambda one: one[1])  # they do not overlap
    if adjoin(log, e) or (not log.leader.dropped_events and (at == len(holes) or holes[at][0] >= end)):
        return Missing.PROVED
    return missing(log, log.leader, first, end)


def missing(log: LogView, replica: ReplicaFacts, first: int, end: int) -> Missing:
    """What a hole [first, end) above all that is known to be cleaned shows.

    Of a topic that may be compacted only the active segment is sure, where this broker has led since: followers store
    their leader's holes, and a pass of the cleaner that was ended early has left holes and moved no checkpoint.
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
    """Whether a topic is compacted: by its setting, or a cleaner's checkpoint of any replica; of one whose setting is
    not known also since batches lack records beside others that are gone, which nothing but a cleaner does."""
    if is_compacted(log.topic, policy, None):
        return True
    if policy is None and any(one.cleaner_offset is not None for one in log.replicas):
        return True
    return policy is None and all(any(True for _ in log.events(kind, replica=replica)) for kind in HOLES)


def _cleanup_policy(log: LogView, replica: ReplicaFacts) -> str | None:
    """The topic's cleanup.policy, Kafka's default where all that could set another one is in the input."""
    cluster, name = log.cluster, "log.cleanup.policy"
    said = cluster.setting(log.topic, "cleanup.policy") or cluster.broker_setting(replica.broker_id, name)
    if said is not None or cluster.is_unknown(replica.broker_id, name):
        return said
    return "delete" if cluster.has_metadata and str(replica.broker_id) in cluster.broker_configs else None


def _led_since(log: LogView, replica: ReplicaFacts, first: int) -> set[int | None]:
    """Who has led from a hole at ``first`` on to the log's end, by the replica's own leader epochs and the metadata;
    None for who is not known."""
    epochs = replica.leader_epochs
    ends = [*(start for _, start in epochs[1:]), replica.log_end + 1]
    since = tuple(epoch for (epoch, _), stop in zip(epochs, ends, strict=False) if stop > max(first - 1, 0))
    return _led_in(log, since)


@once
def _led_in(log: LogView, epochs: tuple[int, ...]) -> set[int | None]:
    return {log.cluster.led(log.topic, log.partition, epoch) for epoch in epochs}
