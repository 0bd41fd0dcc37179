"""Rules on share groups (KIP-932): how far they had come against the logs that they consume."""

from __future__ import annotations

from collections.abc import Iterator

from auditor.base.words import plural
from auditor.facts.offsets import ShareOffset
from auditor.rules.catalogue.needs import Need
from auditor.rules.catalogue.registry import rule
from auditor.rules.lib.group_offsets import lost_between
from auditor.rules.seen.finding import Finding
from auditor.rules.seen.log_bounds import Bounds
from auditor.rules.seen.view import LogView


@rule(
    "share-offset-out-of-range",
    family="consumer offsets",
    severities={
        "error": "above the log's end",
        "warning": "below its start",
        "info": "where the files may be of different times",
    },
    outcomes={"at_risk": ""},
    needs=(Need.SHARE_OFFSETS,),
)
def share_offset_out_of_range(log: LogView) -> Iterator[Finding]:
    """What a share group has settled or been given lies outside the log that it reads

    Checks: the last state of a share group in a partition, by __share_group_state: its start offset, and the last
    offset that was delivered from there on, against the end of that log's leader replica; its start offset against the
    log start, which for a tiered log lies in remote storage.
    Why it matters: above the end, the partition lost its tail: the records that come there again are taken for settled
    ones and are not delivered. Below the start, retention took records before the group had settled them.
    Can be wrong: the log was copied before the state (then the finding says so: in flight); a group that nobody uses
    any more.
    What to do: find out what the log lost before its leader writes on; kafka-share-groups.sh --reset-offsets --dry-run
    shows where the start offset of a group without members would go (--execute moves it); raise retention above the
    time that the group needs.
    Source: KIP-932; SharePartition, ShareCoordinatorShard
    """
    if not log.leader.share_offsets:  # as of nearly all logs: to walk all partitions for each would take their square
        return
    names = {b.topic_id: topic for (topic, _), b in log.cluster.bounds.items() if b.topic_id is not None}
    for state in log.leader.share_offsets:
        topic = names.get(state.topic_id)
        bounds = None if topic is None else log.cluster.bounds.get((topic, state.partition))
        if topic is not None and bounds is not None and state.start_offset >= 0:
            yield from _judged(log, topic, bounds, state)


def _judged(log: LogView, topic: str, bounds: Bounds, state: ShareOffset) -> Iterator[Finding]:
    furthest = max(state.start_offset, state.delivered + 1)
    above, below = furthest > bounds.log_end, state.start_offset < bounds.log_start
    if not above and not below:
        return
    other = bounds.broker_id is None or bounds.broker_id != log.leader.broker_id
    late = above and log.cluster.lacks(topic, state.partition, state.time, other_clock=other)
    doubt = late or (bounds.starts_late and not above)
    where = f"share group {state.group_id} in {topic}-{state.partition}"
    if above:
        message = (
            f"The state of {where} goes up to offset {furthest - 1}, but the log ends at {bounds.log_end}: records "
            f"that come at these {plural(furthest - bounds.log_end, 'offset')} may never be delivered"
        )
    else:
        gone = plural(bounds.log_start - state.start_offset, "offset")
        message = f"Of {where} {gone} from {state.start_offset} on were deleted before all of them were settled"
    yield log.finding(
        "share-offset-out-of-range",
        "error" if above else "info" if doubt else "warning",
        message + (" (the files may be of different times)" if doubt else ""),
        topic=topic,
        partition=state.partition,
        offset=state.start_offset,
        last_offset=state.delivered if state.delivered >= 0 else None,
        group_id=state.group_id,
        time_ms=state.time,
        file=state.file,
        position=state.position,
        evidence={
            "state_partition": log.name,
            "record_offset": state.record_offset,
            "log_start": bounds.log_start,
            "log_end": bounds.log_end,
            "confidence": "undecidable" if doubt else "proved",
        },
        doubt=late,
        lost=lost_between(log, state.record_offset) or (above and bounds.end_damaged),
    )
