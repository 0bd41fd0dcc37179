"""What a rule needs a log to have, so that a log that has none of it never meets the rule.

A healthy log of plain data has next to nothing of all this, and there may be a million of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from auditor.rules.seen.view import LogView


class Need(Enum):
    """What a log has or is. Of replicas: any of them that is no copy of another topic."""

    EVENTS = "something odd in a batch, or between two"
    ERRORS = "bytes that could not be read or decoded"
    AHEAD = "a time of a producer that nothing of a broker follows"
    PRODUCERS = "producer ids"
    TRANSACTIONS = "transactions, or markers"
    ABORTED = "entries of a transaction index"
    EXPOSED = "aborted records that its transaction index does not hide"
    SNAPSHOTS = "producer snapshots"
    REPLICAS = "more replicas than one"
    OF_ANOTHER = "a copy of another topic of its name"
    REMOTE = "a part in tiered storage"
    ELECTIONS = "elections that the metadata shows"
    COORDINATOR = "__transaction_state beside it in the input"
    TRANSACTION_STATE = "it is of __transaction_state"
    CONSUMER_OFFSETS = "it is of __consumer_offsets"
    METADATA = "it is __cluster_metadata"
    SHARE_OFFSETS = "offsets of share groups"
    MEMORY = "what its running broker has in memory"


HAS: Mapping[Need, Callable[[LogView], bool]] = MappingProxyType(
    {
        Need.EVENTS: lambda log: any(len(c.events) for c in log.replicas),
        Need.ERRORS: lambda log: any(c.errors for c in log.replicas),
        Need.AHEAD: lambda log: log.leader.ahead is not None,
        Need.PRODUCERS: lambda log: len(log.leader.producers) > 0,
        Need.TRANSACTIONS: lambda log: any(len(c.transactions) for c in log.replicas),
        Need.ABORTED: lambda log: any(len(c.aborted) for c in log.replicas),
        Need.EXPOSED: lambda log: any(len(c.exposed) for c in log.replicas),
        Need.SNAPSHOTS: lambda log: any(c.snapshots for c in log.replicas),
        Need.REPLICAS: lambda log: len(log.replicas) > 1,
        Need.OF_ANOTHER: lambda log: len(log.of_another) > 0,
        Need.REMOTE: lambda log: log.remote is not None,
        Need.ELECTIONS: lambda log: (log.topic, log.partition) in log.cluster.elections,
        Need.COORDINATOR: lambda log: log.cluster.coordinator is not None,
        Need.TRANSACTION_STATE: lambda log: log.topic == "__transaction_state",
        Need.CONSUMER_OFFSETS: lambda log: log.topic == "__consumer_offsets",
        Need.METADATA: lambda log: log.topic == "__cluster_metadata",
        Need.SHARE_OFFSETS: lambda log: len(log.leader.share_offsets) > 0,
        Need.MEMORY: lambda log: log.leader.producer_memory is not None or log.leader.coordinator_memory is not None,
    }
)


def there(log: LogView) -> frozenset[Need]:
    """What of all this a log has."""
    return frozenset([need for need, has in HAS.items() if has(log)])
