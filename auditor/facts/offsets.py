"""Committed offsets and share group positions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from auditor.facts.packed import Packed, packed, unpacked
from auditor.model.groups import Generation, GroupPartition, OffsetCommit
from auditor.model.offset_watch import AlternatingCommits, PlainBetween, Zombie

# Facts about a partition of ``__consumer_offsets``: what the rules need, and the current values.


COMMIT_COLUMNS = (
    "group",
    "topic",
    "partition",
    "value",
    "record_offset",
    "time",
    "producer_id",
    "producer_epoch",
    "file",
    "position",
    "generation",
)


@dataclass
class InForce:
    """The committed values at the end of a log: columns of :data:`COMMIT_COLUMNS`, a row per group and partition.

    ``group``, ``topic``, ``file`` and ``generation`` (-1: none) are numbers in the lists. About 15 bytes per row.
    """

    columns: dict[str, Packed]
    groups: list[str]
    topics: list[str]
    files: list[str]
    generations: list[Generation]

    def outside(self, bounds: Callable[[str, int], tuple[int, int] | None]) -> Iterator[OffsetCommit]:
        """The commits outside the (start, end) of the log they refer to, if ``bounds`` knows it."""
        topic, partition, value = (unpacked(self.columns[name]) for name in ("topic", "partition", "value"))
        places, which = np.unique(topic << 32 | (partition & 0xFFFFFFFF), return_inverse=True)
        ranges = [bounds(self.topics[p >> 32], int(np.int32(np.uint32(p & 0xFFFFFFFF)))) for p in places.tolist()]
        starts = np.array([0 if k is None else k[0] for k in ranges], np.int64)[which]
        ends = np.array([np.iinfo(np.int64).max if k is None else k[1] for k in ranges], np.int64)[which]
        return self.rows(np.flatnonzero((value >= 0) & ((value < starts) | (value > ends))))

    def topics_of_groups(self) -> Iterator[tuple[str, str]]:
        """The distinct pairs of topic and group that have a value."""
        topic, group = (unpacked(self.columns[name]).astype(np.int64) for name in ("topic", "group"))
        for pair in np.unique(topic << 32 | group).tolist():
            yield self.topics[pair >> 32], self.groups[pair & 0xFFFFFFFF]

    def all(self) -> Iterator[OffsetCommit]:
        """All values as commits."""
        return self.rows(np.arange(len(unpacked(self.columns["value"]))))

    def rows(self, rows: np.ndarray) -> Iterator[OffsetCommit]:
        """Some rows as commits."""
        picked = [unpacked(self.columns[name])[rows].tolist() for name in COMMIT_COLUMNS] if len(rows) else [()]
        for group, topic, partition, value, offset, time, producer_id, epoch, file, position, generation in zip(
            *picked, strict=True
        ):
            name = self.topics[topic]
            yield OffsetCommit(
                place=GroupPartition(self.groups[group], f"{name}-{partition}"),
                topic=name,
                partition=partition,
                value=value,
                record_offset=offset,
                time=time,
                producer_id=producer_id,
                producer_epoch=epoch,
                file=self.files[file],
                position=position,
                generation=None if generation < 0 else self.generations[generation],
            )


@dataclass
class WatchedOffsets:
    """For the first five see :class:`auditor.model.offset_watch.Rivals` and :class:`auditor.model.offset_watch.Values`.

    ``committers``: by group, every producer's first and last commit in a transaction. ``pending``: values that wait for
    the end of a producer's transaction. ``groups``: all groups that have a record. ``mixed``: see
    :class:`auditor.model.offset_watch.Committers`; ``kinds``: :class:`auditor.model.groups.Assignments`.
    """

    zombies: list[Zombie]
    interleaved: list[AlternatingCommits]
    handed_over: list[Zombie]
    falls: list[tuple[OffsetCommit, OffsetCommit, int]]
    skips: list[tuple[OffsetCommit, OffsetCommit, OffsetCommit]]
    committers: dict[str, dict[int, tuple[OffsetCommit, OffsetCommit]]]
    pending: dict[int, list[OffsetCommit]]
    in_force: InForce
    groups: list[str] = field(default_factory=list)
    mixed: Mapping[str, PlainBetween] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)


def in_force(
    table: np.ndarray, groups: list[str], topics: list[str], files: list[str], generations: list[Generation]
) -> InForce:
    """Values from an array with a row for each of :data:`COMMIT_COLUMNS`."""
    columns = {name: packed(values, "zstd") for name, values in zip(COMMIT_COLUMNS, table, strict=True)}
    return InForce(columns, groups, topics, files, generations)


def in_force_of(commits: Iterable[OffsetCommit]) -> InForce:
    """Values from single commits."""
    groups: dict[str, int] = {}
    topics: dict[str, int] = {}
    files: dict[str, int] = {}
    generations: dict[Generation, int] = {}
    rows = []
    for c in commits:
        generation = -1 if c.generation is None else generations.setdefault(c.generation, len(generations))
        rows.append(
            (
                groups.setdefault(c.place.group, len(groups)),
                topics.setdefault(c.topic, len(topics)),
                c.partition,
                c.value,
                c.record_offset,
                c.time,
                c.producer_id,
                c.producer_epoch,
                files.setdefault(c.file, len(files)),
                c.position,
                generation,
            )
        )
    table = np.array(rows, np.int64).reshape(len(rows), len(COMMIT_COLUMNS)).T
    return in_force(table, list(groups), list(topics), list(files), list(generations))


CONSUMER, SHARE = "consumer", "share"


class Position(NamedTuple):
    """A group's position in a partition.

    ``kind``: :data:`CONSUMER` for the committed offset of a group of the classic or a newer protocol (KIP-848,
    KIP-1071), or :data:`SHARE` for the start offset of a share partition, -1 before it has started. ``time`` (ms) is
    that of the record with this position, ``broker_id`` the broker that has the record. ``pending`` is the offset that
    an undecided transaction would commit, -1 for none. ``settled`` are ranges of offsets, both ends included, that a
    share group has acknowledged or archived. ``sure``: whether all records of its coordinator's log could be read.
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


class ShareOffset(NamedTuple):
    """The last state of a share group in a partition of a topic id (``__share_group_state``, KIP-932).

    ``start_offset``: the first offset that is not settled, -1 before the group has started. ``delivered``: the last
    offset delivered from there on, -1: none. ``record_offset``, ``time`` (ms), ``file`` and ``position`` are those of
    the last record. ``settled``: ranges of offsets behind the start, both ends included, that are acknowledged or
    archived.
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
