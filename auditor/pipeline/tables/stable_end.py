"""Up to where a replica is read, and up to where by read_committed readers."""

from __future__ import annotations

from auditor.facts.replica_facts import ReplicaFacts
from auditor.replay.reading.lag_counts import Outcomes
from auditor.rules.seen.view import LogView


def readable_end(log: LogView, replica: ReplicaFacts) -> int:
    """The high watermark after a clean shutdown, else the end of the log: a running broker's checkpoint is old."""
    if replica is log.leader:
        return log.readable_end
    hw = replica.high_watermark
    return min(hw, replica.log_end) if replica.clean_shutdown and hw is not None else replica.log_end


def stable_end(replica: ReplicaFacts, end: int) -> int:
    """The last stable offset of a replica that is read up to ``end``."""
    return min(max(Outcomes(replica.transactions, end).first_open, replica.own_start), end)


def holder(replica: ReplicaFacts, end: int) -> int | None:
    """The producer whose open transaction keeps it there; None where no transaction does."""
    return Outcomes(replica.transactions, end).holder
