"""What brokers recorded about segments that they copied to tiered storage, as values (KIP-405).

:mod:`auditor.connectors.logdir.tiered` fills it from ``__remote_log_metadata``; reading a partition and judging it use
the same values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

EpochStarts = Sequence[tuple[int, int]]  # leader epoch and its first offset, ascending


class RemoteSegmentState(IntEnum):
    """State of a remote segment. Source: Kafka's RemoteLogSegmentState."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class RemoteSegment(NamedTuple):
    """A segment in remote storage, as the records of ``__remote_log_metadata`` describe it.

    ``start_offset`` and ``end_offset`` are its first and last offset; ``leader_epochs`` its leader epochs, each with
    its first offset in the segment; ``size`` bytes; ``state`` as stored. ``broker_id`` copied it; ``changed_at`` is the
    time (ms) of the last record about it, ``record_offset`` that record's offset.
    """

    segment_id: str
    start_offset: int
    end_offset: int
    leader_epochs: tuple[tuple[int, int], ...]
    size: int
    state: int
    broker_id: int
    changed_at: int
    record_offset: int

    def is_of(self, epochs: EpochStarts) -> bool:
        """Whether a log with these leader epochs has the same batches at these offsets; True if its epochs are unknown.

        Epochs below the first known one are ignored: they were removed with the start of the log. Source: Kafka's
        RemoteLogManager.isRemoteSegmentWithinLeaderEpochs.
        """
        if not epochs:
            return True
        ends = [start for _, start in epochs[1:]] + [1 << 62]
        ranges = {epoch: (start, end) for (epoch, start), end in zip(epochs, ends, strict=True)}
        mine_end = [start for _, start in self.leader_epochs[1:]] + [self.end_offset + 1]
        for number, ((epoch, start), end) in enumerate(zip(self.leader_epochs, mine_end, strict=True)):
            if epoch < epochs[0][0]:
                continue
            if epoch not in ranges:
                return False
            first, behind = ranges[epoch]
            last_of_mine = number == len(self.leader_epochs) - 1
            begins = start >= first if number == 0 else start == first or first == epochs[0][1]
            if not begins or (end > behind if last_of_mine else end != behind):
                return False
        return True


@dataclass(slots=True)
class RemotePartition:
    """The remote part of one partition: its segments by id, in the order in which they were first recorded.

    Deleted segments are only offsets in ``deleted``, as (first, behind the last), neighbours joined. ``whole``: the
    records start with the first that was ever written, and all could be read. ``newest`` is the time (ms) of the newest
    record in the same partition of ``__remote_log_metadata``, ``clean`` whether its broker had shut down, so that
    everything that happened is recorded, and ``metadata_broker`` that broker.
    """

    topic: str
    partition: int
    topic_id: str
    segments: dict[str, RemoteSegment] = field(default_factory=dict)
    deleted: list[tuple[int, int]] = field(default_factory=list)
    whole: bool = True
    newest: int = -1
    clean: bool = False
    metadata_broker: int | None = None

    def take(self, segment: RemoteSegment) -> None:
        """Apply one record about a segment."""
        if segment.state != RemoteSegmentState.DELETE_SEGMENT_FINISHED:
            self.segments[segment.segment_id] = segment
            return
        self.segments.pop(segment.segment_id, None)
        start, behind = segment.start_offset, segment.end_offset + 1
        if self.deleted and self.deleted[-1][0] <= start <= self.deleted[-1][1]:
            start, behind = self.deleted[-1][0], max(behind, self.deleted.pop()[1])
        self.deleted.append((start, behind))

    def finished(self, epochs: EpochStarts = ()) -> list[RemoteSegment]:
        """The readable segments of a log with these leader epochs, by first offset and by age."""
        segments = (
            s for s in self.segments.values() if s.state == RemoteSegmentState.COPY_SEGMENT_FINISHED and s.is_of(epochs)
        )
        return sorted(segments, key=lambda s: (s.start_offset, s.record_offset))

    def highest(self, epochs: EpochStarts, log_end: int) -> int:
        """The highest remote offset of a log with these leader epochs, as its broker computes it; -1 for none.

        Source: RemoteLogManager.findHighestRemoteOffset.
        """
        tops: dict[int, int] = {}
        for s in self.finished():
            ends = [*(start - 1 for _, start in s.leader_epochs[1:]), s.end_offset]
            for (epoch, _), end in zip(s.leader_epochs, ends, strict=True):
                tops[epoch] = max(tops.get(epoch, -1), end)
        behind = log_end
        for epoch, start in reversed(epochs):
            if epoch in tops:
                return min(tops[epoch], behind - 1)
            behind = start
        return -1 if epochs else max(tops.values(), default=-1)

    def start_from(self, start: int) -> int:
        """The log start, if a broker recorded ``start`` before segments from there on were deleted."""
        going = ((s.start_offset, s.end_offset + 1) for s in self.segments.values() if s.state > 1)
        readable = min((s.start_offset for s in self.finished()), default=1 << 62)
        for first, behind in sorted([*self.deleted, *going]):
            if first <= start < behind <= readable:
                start = behind
        return start


def holes(segments: Iterable[RemoteSegment], start: int, end: int) -> Iterator[tuple[int, int]]:
    """The offsets of ``[start, end)`` in no segment, as (first, behind the last). ``segments``: by first offset.

    Segments may overlap: after a leader change the next one starts where the new leader's own segment does.
    """
    position = start
    for segment in segments:
        if segment.start_offset >= end:
            break
        if segment.start_offset > position:
            yield position, segment.start_offset
        position = max(position, segment.end_offset + 1)
    if position < end:
        yield position, end


@dataclass(slots=True)
class RemoteLogs:
    """The remote parts of all partitions of a cluster, by topic id and partition."""

    partitions: Mapping[tuple[str, int], RemotePartition] = field(default_factory=dict)

    def of(self, topic: str, partition: int, topic_id: str | None) -> RemotePartition | None:
        """The remote part of a partition; without a topic id, the only one of this name."""
        if topic_id is not None:
            return self.partitions.get((topic_id, partition))
        named = [p for p in self.partitions.values() if (p.topic, p.partition) == (topic, partition)]
        return named[0] if len(named) == 1 else None

    def has_topic(self, topic: str) -> bool:
        """Whether segments of a topic were ever copied."""
        return any(p.topic == topic for p in self.partitions.values())
