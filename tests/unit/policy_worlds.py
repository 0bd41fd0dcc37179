"""A replica's batches under other policies in a test: the audit's replay, and behind it that of the policies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from auditor.facts.replica_facts import PolicyOutcomes, ReplicaFacts
from auditor.replay.producers.audit_replay import AuditReplay, ReplicaBounds
from auditor.replay.producers.policy_replay import PolicyReplay
from auditor.replay.task import FAR, PolicySettings

NOTHING = np.empty(0, np.int64)
PLAIN = ReplicaBounds(0, 0, True, False, False, 86_400_000)


class World:
    """One replica from its first batch on, as :class:`auditor.replay.reading.replica_reader.ReplicaReader` replays
    it."""

    def __init__(
        self, settings: Sequence[PolicySettings], bounds: ReplicaBounds = PLAIN, *, newest_time: int = FAR
    ) -> None:
        facts = ReplicaFacts("c", 1, "d", "t", 0, "c")
        self.audit = AuditReplay(facts, bounds, [], (NOTHING, NOTHING), compacted=False, noted=True)
        self.policies = PolicyReplay(settings, bounds, [], -1, newest_time=newest_time)
        self.audit.begin_segment(0, 0, -1)
        self.policies.begin_segment(0)

    def take(self, rows: np.ndarray) -> None:
        """The rows of a walk."""
        self.audit.take(rows)
        self.policies.take(rows, self.audit.steps)

    def note_unreadable(self, *, lost: bool) -> None:
        """Bytes that could not be read."""
        self.audit.note_unreadable(lost=lost)

    def end_segment(self, after: int) -> None:
        """The segment ends."""
        self.audit.end_segment(after)
        self.policies.end_segment(after)

    def finish(self) -> PolicyOutcomes:
        """What came out."""
        return self.policies.finish()
