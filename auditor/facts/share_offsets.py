"""How far share groups had come in the partitions that they consume, as ``__share_group_state`` leaves it (KIP-932)."""

from __future__ import annotations

from typing import NamedTuple


class ShareOffset(NamedTuple):
    """The last state of a group in a partition of a topic id.

    ``start_offset``: the first offset that is not settled, -1 where the group has not begun. ``delivered``: the last
    offset that was delivered from there on, -1: none. ``record_offset``, ``time`` (ms), ``file`` and ``position`` are
    of the record that said so last. ``settled``: stretches of offsets behind the start, both ends included, that are
    acknowledged or archived.
    """

    group_id: str
    topic_id: str
    partition: int
    start_offset: int
    delivered: int
    record_offset: int
    time: int
    file: str
    position: int
    settled: tuple[tuple[int, int], ...] = ()
