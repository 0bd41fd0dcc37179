"""Offset and time indexes held against the batches of their segment."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from auditor.facts import EVENT, Kind
from connectors.codec.columns import BatchColumns
from connectors.codec.index import OffsetIndex, TimeIndex

NO_BATCH_THERE, OFFSET_ELSEWHERE, NOT_INCREASING, EARLIER_IS_LARGER = range(4)


class SegmentShape:
    """Where the batches of one segment lie, gathered chunk by chunk for the comparison at its end."""

    def __init__(self) -> None:
        self.chunks: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []

    def add(self, b: BatchColumns) -> None:
        """Remembers positions, offsets and times of a chunk (32 bytes a batch)."""
        self.chunks.append((b.position.copy(), b.base_offset.copy(), b.last_offset.copy(), b.max_timestamp.copy()))

    def correct(self, events: np.ndarray) -> None:
        """Puts the records' own largest time where a header belies it (events BATCH_TIMESTAMP of this chunk)."""
        position, _, _, time = self.chunks[-1]
        time[np.searchsorted(position, events["position"])] = events["a"]

    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Positions, base offsets, last offsets, largest times."""
        if not self.chunks:
            none = np.empty(0, np.int64)
            return none, none, none, none
        position, base, last, time = (np.concatenate(part) for part in zip(*self.chunks, strict=True))
        return position, base, last, time


def check_offset_index(
    index: OffsetIndex, shape: SegmentShape, segment: int, end: int, unread: Sequence[tuple[int, int]] = ()
) -> list[np.ndarray]:
    """Events for entries that no append of this segment explains.

    Not judged are entries at or beyond byte ``end`` and in the stretches ``unread`` (first byte, byte behind the last).

    An entry points at the start of a batch and carries the last offset of the append that began there, which may be a
    later batch's: the bound is the batch before the next entry's.
    """
    position, base, last, _ = shape.columns()
    out = []
    for k in range(len(index.offset)):
        at, offset = int(index.log_position[k]), int(index.offset[k])
        if k and (offset <= index.offset[k - 1] or at <= index.log_position[k - 1]):
            out.append(_event(Kind.INDEX_ENTRY, segment, index.position[k], offset, at, NOT_INCREASING))
            continue
        if at >= end or any(first <= at < behind for first, behind in unread):
            continue
        row = int(np.searchsorted(position, at))
        if row >= len(position) or position[row] != at:
            out.append(_event(Kind.INDEX_ENTRY, segment, index.position[k], offset, at, NO_BATCH_THERE))
            continue
        until = int(index.log_position[k + 1]) if k + 1 < len(index.offset) else end
        stop = max(row, int(np.searchsorted(position, until)) - 1)
        if not base[row] <= offset <= last[min(stop, len(last) - 1)]:
            out.append(_event(Kind.INDEX_ENTRY, segment, index.position[k], offset, at, OFFSET_ELSEWHERE))
    return out


def check_time_index(index: TimeIndex, shape: SegmentShape, segment: int, log_end: int) -> list[np.ndarray]:
    """Events for entries that do not increase, or that an earlier record's larger timestamp belies."""
    _, _, last, time = shape.columns()
    largest = np.maximum.accumulate(time) if len(time) else time
    culprit = np.maximum.accumulate(np.where(time == largest, np.arange(len(time)), 0)) if len(time) else time
    out = []
    for k in range(len(index.offset)):
        stamp, offset = int(index.timestamp[k]), int(index.offset[k])
        if k and (stamp <= index.timestamp[k - 1] or offset < index.offset[k - 1]):
            out.append(_event(Kind.TIME_INDEX_ENTRY, segment, index.position[k], offset, stamp, NOT_INCREASING))
            continue
        if offset >= log_end:
            continue
        row = int(np.searchsorted(last, offset, side="right")) - 1
        if row >= 0 and largest[row] > stamp:
            out.append(_event(Kind.TIME_INDEX_ENTRY, segment, index.position[k], offset, stamp, EARLIER_IS_LARGER))
            out[-1]["d"] = last[culprit[row]]
    return out


def _event(kind: Kind, segment: int, position: int, offset: int, value: int, fault: int) -> np.ndarray:
    event = np.zeros(1, EVENT)
    for name in ("base_offset", "last_offset", "producer_id", "timestamp", "time", "leader_epoch", "d", "e"):
        event[name] = -1
    event["kind"], event["segment"], event["position"] = int(kind), segment, position
    event["a"], event["b"], event["c"], event["producer_epoch"] = offset, value, fault, -1
    return event
