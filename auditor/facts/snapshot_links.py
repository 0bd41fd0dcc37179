"""The links of the chain proof: each producer snapshot of a copy beside what the replay has at its offset."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Difference(NamedTuple):
    """A field of a producer that the snapshot has as ``stored`` and the replay as ``replayed``; -1: not there.

    ``name`` is that of a PRODUCER column, or "open", "missing", "extra"; ``last_offset`` the producer's last one.
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
    ``differences`` at most a few hundred, ``extra_differences`` how many more; ``time`` (ms) of the first batch behind.
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
