"""A cluster with who reads it, for tables that need to know."""

from __future__ import annotations

from dataclasses import dataclass, field

from auditor.facts.offsets import Position
from auditor.replay.reading.task import ReplicaTask
from auditor.rules.seen.cluster_view import Cluster

Log = tuple[str, int]  # topic and partition


@dataclass(slots=True)
class ReadCluster(Cluster):
    """A cluster with who reads it: the groups' positions by the log that they read, those in logs that are not in the
    input by the coordinator's log that has them, and what is needed to read headers again, by log directory, topic and
    partition."""

    positions: dict[Log, list[Position]] = field(default_factory=dict)
    elsewhere: dict[Log, list[Position]] = field(default_factory=dict)
    tasks: dict[tuple[str, str, int], ReplicaTask] = field(default_factory=dict)
