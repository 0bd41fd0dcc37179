"""The links of the chain proof: each producer snapshot of a replica beside what the replay has at its offset."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Difference(NamedTuple):
    """A field of a producer that the snapshot has as ``stored`` and the replay as ``replayed``; -1: not there.

    ``name`` is that of a PRODUCER column, or "open", "missing" (only the replay has the producer), "extra" (only the
    snapshot), "marker_offset" (stored as the last offset is that of the end marker, as 0.11 does); ``last_offset`` is
    the producer's last one.
    """

    producer_id: int
    name: str
    stored: int
    replayed: int
    last_offset: int


@dataclass(slots=True)
class SnapshotLink:
    """One producer snapshot compared with the replay.

    ``offset`` is the snapshot's; ``base`` the newest older snapshot's (or the log start); ``readable`` whether it could
    be decoded; ``comparable`` whether the log from ``base`` on was whole enough to say anything; ``entries`` how many;
    ``differences`` at most a few hundred, ``extra_differences`` how many more.

    ``time`` (ms) is the first broker-written one in the log from ``offset`` on, ``next_time`` (ms) that of the next
    batch, whoever wrote it. Of the producers missing, ``unexpired`` are those that cannot have expired, since others
    idle for longer are still there, and ``went_on`` gives of those that wrote on in the same epoch the last offset
    seen. ``by_data`` counts the producers stored with the offset of their last data although an end marker came behind.
    """

    file: str
    offset: int
    base: int
    entries: int
    readable: bool
    comparable: bool
    differences: list[Difference] = field(default_factory=list)
    extra_differences: int = 0
    time: int = -1
    next_time: int = -1
    unexpired: frozenset[int] = frozenset()
    went_on: dict[int, int] = field(default_factory=dict)
    by_data: int = 0
