"""What a cleaner may have taken from a log, and what it cannot have."""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from auditor.facts.events import Event
from auditor.facts.replica_facts import ReplicaFacts
from auditor.rules.view import LogView, is_compacted

LEADERS_LOG = "what the cleaner took of the log of the broker that led then"


class Missing(StrEnum):
    """How sure it is that records were lost where a log has a hole: a confidence of the findings.

    ``UNDECIDABLE``: another broker led there, and a follower stores the holes that its leader's cleaner left.
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
    if "marker_offsets" not in log.cache:
        log.cache["marker_offsets"] = np.unique(log.leader.transactions["marker_offset"])
    low, high = np.searchsorted(log.cache["marker_offsets"], [first, end])
    return bool(high - low == end - first)


def missing(log: LogView, replica: ReplicaFacts, first: int, end: int) -> Missing:
    """What a hole [first, end) above all that is known to be cleaned shows.

    Of a topic that may be compacted only the active segment is sure, where this broker led: followers store their
    leader's holes, and a pass of the cleaner that was ended early has left holes and moved no checkpoint.
    """
    policy = _cleanup_policy(log, replica)
    compacted = is_compacted(log.topic, policy, None)
    if policy is not None and not compacted:
        return Missing.PROVED
    led = _led(log, replica, first, end)
    if led == {replica.broker_id} and replica.segment_bases and first >= replica.segment_bases[-1]:
        return Missing.PROVED
    followed = compacted and led and None not in led and replica.broker_id not in (None, *led)
    return Missing.UNDECIDABLE if followed else Missing.LIKELY


def _cleanup_policy(log: LogView, replica: ReplicaFacts) -> str | None:
    """The topic's cleanup.policy, Kafka's default where all that could set another one is in the input."""
    cluster, name = log.cluster, "log.cleanup.policy"
    said = cluster.setting(log.topic, "cleanup.policy") or cluster.broker_setting(replica.broker_id, name)
    if said is not None or cluster.is_unknown(replica.broker_id, name):
        return said
    return "delete" if cluster.has_metadata and str(replica.broker_id) in cluster.broker_configs else None


def _led(log: LogView, replica: ReplicaFacts, first: int, end: int) -> set[int | None]:
    """Who led while the offsets around a hole were written, by the replica's own leader epochs and the metadata; None
    for who is not known."""
    epochs = replica.leader_epochs
    ends = [*(start for _, start in epochs[1:]), replica.log_end + 1]
    near = [
        epoch for (epoch, start), stop in zip(epochs, ends, strict=False) if start <= end and stop > max(first - 1, 0)
    ]
    return {log.cluster.led(log.topic, log.partition, epoch) for epoch in near}
