"""What running brokers answered about what they have in memory (``auditor live``, KIP-664)."""

from __future__ import annotations

from dataclasses import dataclass, field

from auditor.base.at_rest import Fields


@dataclass(slots=True)
class ProducerMemory:
    """What the leader of a partition answered to DescribeProducers, before and after the log was read.

    ``unchanged``: the producers of which it said the same both times, by field; ``ids``: all that it named;
    ``settled``: ``(producer_id, first offset)`` of transactions that were open both times with no coordinator at work
    on them.
    """

    unchanged: list[dict[str, int]] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    settled: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class CoordinatorMemory:
    """What the coordinator of a ``__transaction_state`` partition answered alike before and after: by transactional id.

    ``asked_at``: ms, when it was asked first.
    """

    transactions: dict[str, Fields]
    asked_at: int
