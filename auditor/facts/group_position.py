"""Where a group goes on reading a partition, by what its coordinator has."""

from __future__ import annotations

from typing import NamedTuple

CONSUMER, SHARE = "consumer", "share"


class Position(NamedTuple):
    """A group's place in a partition.

    ``kind``: :data:`CONSUMER`, for groups of the classic and the newer protocols (KIP-848, KIP-1071), whose committed
    offset it is, or :data:`SHARE`, whose share-partition start offset it is, -1 before it has begun. ``time`` (ms) is
    of the record that says so, which broker ``broker_id`` has. ``pending`` is the offset that a transaction which is
    not decided would commit, -1 for none. ``settled`` are stretches of offsets, both ends included, that a share group
    has acknowledged or archived. ``sure``: whether all that its coordinator's log says could be read.
    """

    topic: str | None
    partition: int
    group_id: str
    kind: str
    offset: int
    time: int
    broker_id: int | None
    pending: int = -1
    settled: tuple[tuple[int, int], ...] = ()
    topic_id: str | None = None
    sure: bool = True
