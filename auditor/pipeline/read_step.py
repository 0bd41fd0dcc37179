"""The read step: from a task to the facts of its replicas, and facts at rest, one pickled row a replica.

Readers are loaded by who reads: the driver names this step and never takes it.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterable
from typing import NamedTuple

from auditor.facts.replica_facts import ReplicaFacts, at_rest
from auditor.pipeline.cluster.brief import NOTHING_ENDED, NOTHING_OPEN, NOTHING_UNDECIDED, Brief, brief
from auditor.replay.reading.task import ReplicaTask, SharingTask, TextTask


class KeptFacts(NamedTuple):
    """The facts of one replica at rest: what names its log and its replica, and pickled its brief and all its facts.

    ``resume_point`` is what the next reading of the replica may be given, empty where nobody asked for it.
    """

    join_key: str
    topic: str
    partition: int
    log_dir: str
    brief: bytes
    facts: bytes
    resume_point: bytes


REPLICA = KeptFacts._fields[:4]  # what names one


def read_task(task: ReplicaTask | SharingTask | TextTask) -> list[ReplicaFacts]:
    """The facts of a task's replicas."""
    if isinstance(task, TextTask):
        from auditor.replay.reading.other_replicas import read_text_replicas

        return read_text_replicas(task)
    if isinstance(task, SharingTask):
        from auditor.replay.reading.replica_reader import read_sharing

        return read_sharing(task.tasks)
    from auditor.replay.reading.replica_reader import read_replica

    return [read_replica(task)]


def read_kept(task: ReplicaTask | SharingTask | TextTask) -> list[KeptFacts]:
    """The same, at rest."""
    return [kept(facts) for facts in read_task(task)]


def kept(facts: ReplicaFacts) -> KeptFacts:
    """The row of one replica."""
    key = (facts.join_key, facts.topic, facts.partition, facts.log_dir)
    little = at_rest(brief(facts))
    facts.coordinator_log = None  # which every judge gets with its cluster: it travels once
    point, facts.resume_point = facts.resume_point, b""
    return KeptFacts(*key, little, at_rest(facts), point)


def briefs_of(rows: Iterable[bytes]) -> list[Brief]:
    """Pickled briefs as objects, in the order of their replicas."""
    alike: dict[tuple[int, int], tuple[int, int]] = {}
    return sorted((_brief(row, alike) for row in rows), key=lambda b: (b.join_key, b.topic, b.partition, b.log_dir))


def _brief(row: bytes, alike: dict[tuple[int, int], tuple[int, int]]) -> Brief:
    """A brief that has in common with others what they have alike, as ``alike`` holds it: a driver may hold a
    million."""
    found: Brief = pickle.loads(row)
    found.join_key, found.log_dir, found.topic = map(sys.intern, (found.join_key, found.log_dir, found.topic))
    found.rank = alike.setdefault(found.rank, found.rank)
    if not len(found.ended):
        found.ended = NOTHING_ENDED
    if not len(found.oldest):
        found.oldest = NOTHING_ENDED
    if not len(found.undecided):
        found.undecided = NOTHING_UNDECIDED
    if not found.open_here:
        found.open_here = NOTHING_OPEN
    return found
