"""Topics that were made again under their name: which copies are of the topic that there is, which of a removed one.

A broker that was down keeps the folders of topics that were removed meanwhile. They are logs of their own: told apart
by the topic ids in ``partition.metadata`` and ``__cluster_metadata`` (KIP-516).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from auditor.facts.replica_facts import ReplicaFacts


class Known(NamedTuple):
    """A copy of a partition: its topic, with its id (None: not known), and the newest time (ms) that a broker wrote."""

    topic: str
    topic_id: str | None
    time: int


NOBODY = ""  # the id of a topic of which every copy is of a removed one


class Incarnations(NamedTuple):
    """``now``: of topics of which some copies are of another one the id of those that are not; ``removed``: the ids of
    topics that are gone."""

    now: Mapping[str, str] = {}
    removed: frozenset[str] = frozenset()

    def is_of_another(self, topic: str, topic_id: str | None) -> bool:
        """Whether a copy is of another topic than the one that has the name: removed, and perhaps made again."""
        return topic_id is not None and self.now.get(topic, topic_id) != topic_id

    def parted(self, copies: list[ReplicaFacts]) -> tuple[list[ReplicaFacts], list[ReplicaFacts]]:
        """The copies of a partition that are replicas of it, and those of another topic."""
        if not self.now:
            return copies, []
        strange = [self.is_of_another(c.topic, c.topic_id) for c in copies]
        return (
            [c for c, one in zip(copies, strange, strict=True) if not one],
            [c for c, one in zip(copies, strange, strict=True) if one],
        )


def topic_ids(
    copies: Iterable[Known], current: Mapping[str, str], removed: Collection[str], metadata_time: int
) -> dict[str, str]:
    """By topic of which some copies are of another one the id of those that are not.

    ``current``: the ids of the topics that there are by the metadata, which ends at ``metadata_time`` (ms);
    ``removed``: of those that there are no more. Where nothing else tells, the copies that were written last count.
    """
    times: dict[str, dict[str, int]] = {}
    for copy in copies:
        if copy.topic_id is not None:
            known = times.setdefault(copy.topic, {})
            known[copy.topic_id] = max(copy.time, known.get(copy.topic_id, -1))
    found = {}
    for topic, ids in times.items():
        living = {i: time for i, time in ids.items() if i == current.get(topic) or i not in removed}
        if not living:
            found[topic] = NOBODY
        elif len(ids) > 1:
            found[topic] = max(living, key=lambda i: _order(i == current.get(topic), living[i], metadata_time))
    return found


def _order(is_current: bool, time: int, metadata_time: int) -> tuple[bool, bool, int]:
    """One that was made behind the end of the metadata goes before the one that this knows."""
    return (is_current or time > metadata_time, not is_current and time > metadata_time, time)
