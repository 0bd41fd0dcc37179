"""Which consumer groups read a topic, as far as ``__consumer_offsets`` shows: those who wait where it is blocked."""

from __future__ import annotations

from auditor.base.at_rest import Fields
from auditor.rules.lib.group_offsets import watched
from auditor.rules.seen.view import LogView

SHOWN = 20  # groups of a topic that are named


def readers(log: LogView) -> list[Fields]:
    """A row for each topic that groups of this partition of ``__consumer_offsets`` have offsets in; none for others.

    ``groups`` are at most :data:`SHOWN` names, ``more`` counts the rest. Whether a group reads committed records only
    is its consumers' setting, which no broker stores.
    """
    seen = watched(log)
    by_topic: dict[str, set[str]] = {}
    for topic, group in seen.in_force.topics_of_groups() if seen is not None else ():
        by_topic.setdefault(topic, set()).add(group)
    return [
        {
            "topic": topic,
            "partition": log.partition,
            "groups": sorted(groups)[:SHOWN],
            "more": max(0, len(groups) - SHOWN),
        }
        for topic, groups in sorted(by_topic.items())
    ]
