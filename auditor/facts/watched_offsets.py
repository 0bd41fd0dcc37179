"""What reading a partition of ``__consumer_offsets`` leaves: what the rules look for, and the values in force."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from auditor.facts.packed_numbers import Packed, packed, unpacked
from auditor.model.offset_commits import Commit, Generation
from auditor.model.offset_watch import Turns, Zombie
from auditor.model.offsets import GroupPartition

COLUMNS = (
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
    """The committed values at the end of a log: columns of :data:`COLUMNS`, a row a group and partition.

    ``group``, ``topic``, ``file`` and ``generation`` (-1: none) are numbers in the lists. About 15 bytes a row.
    """

    columns: dict[str, Packed]
    groups: list[str]
    topics: list[str]
    files: list[str]
    generations: list[Generation]

    def outside(self, bounds: Callable[[str, int], tuple[int, int] | None]) -> Iterator[Commit]:
        """Those that lie outside the (start, end) of the log that they are of, as far as ``bounds`` knows them."""
        topic, partition, value = (unpacked(self.columns[name]) for name in ("topic", "partition", "value"))
        places, which = np.unique(topic << 32 | (partition & 0xFFFFFFFF), return_inverse=True)
        known = [bounds(self.topics[p >> 32], int(np.int32(np.uint32(p & 0xFFFFFFFF)))) for p in places.tolist()]
        starts = np.array([0 if k is None else k[0] for k in known], np.int64)[which]
        ends = np.array([np.iinfo(np.int64).max if k is None else k[1] for k in known], np.int64)[which]
        return self.rows(np.flatnonzero((value >= 0) & ((value < starts) | (value > ends))))

    def topics_of_groups(self) -> Iterator[tuple[str, str]]:
        """Each topic and group once that a value is of."""
        topic, group = (unpacked(self.columns[name]).astype(np.int64) for name in ("topic", "group"))
        for pair in np.unique(topic << 32 | group).tolist():
            yield self.topics[pair >> 32], self.groups[pair & 0xFFFFFFFF]

    def all(self) -> Iterator[Commit]:
        """All of them."""
        return self.rows(np.arange(len(unpacked(self.columns["value"]))))

    def rows(self, rows: np.ndarray) -> Iterator[Commit]:
        """Rows as commits."""
        picked = [unpacked(self.columns[name])[rows].tolist() for name in COLUMNS] if len(rows) else [()]
        for group, topic, partition, value, offset, time, producer_id, epoch, file, position, generation in zip(
            *picked, strict=True
        ):
            name = self.topics[topic]
            yield Commit(
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
    """See :class:`auditor.model.offset_watch.Rivals` and :class:`auditor.model.offset_watch.Values` for the first five.

    ``committers``: of each group every producer's first and last commit in a transaction.
    ``pending``: values that wait for the end of a producer's transaction. ``groups``: all that have a record.
    """

    zombies: list[Zombie]
    interleaved: list[Turns]
    handed_over: list[Zombie]
    falls: list[tuple[Commit, Commit, int]]
    skips: list[tuple[Commit, Commit, Commit]]
    committers: dict[str, dict[int, tuple[Commit, Commit]]]
    pending: dict[int, list[Commit]]
    in_force: InForce
    groups: list[str] = field(default_factory=list)


def in_force(
    table: np.ndarray, groups: list[str], topics: list[str], files: list[str], generations: list[Generation]
) -> InForce:
    """Values as an array with a line to each of :data:`COLUMNS`."""
    columns = {name: packed(values, "zstd") for name, values in zip(COLUMNS, table, strict=True)}
    return InForce(columns, groups, topics, files, generations)


def in_force_of(commits: Iterable[Commit]) -> InForce:
    """The same of single commits."""
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
    table = np.array(rows, np.int64).reshape(len(rows), len(COLUMNS)).T
    return in_force(table, list(groups), list(topics), list(files), list(generations))
