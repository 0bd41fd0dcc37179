"""Replicas of a partition whose remote part is the same objects: each is read once, and replayed for every replica.

Reading, checksums and decompression take nearly all of the time; the replay differs, as snapshots and what is local do.
Memory: the state of all these replays, the packed headers of one segment (:mod:`auditor.replay.segments.chunks`), and
at most :data:`KEPT_BYTES` of indexes and snapshots.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

from auditor.base.errors import DecodeError
from auditor.connectors.codec.segment import Chunk
from auditor.connectors.stores.storage import Place, read_file
from auditor.facts.replica_facts import ReplicaFacts
from auditor.replay.reading.replica_reader import ReplicaReader
from auditor.replay.segments.chunks import packed, read_chunks, shared_key, unpacked
from auditor.replay.segments.segment_checks import SegmentChecks, SegmentOutcome, checked
from auditor.replay.segments.segment_point import SegmentPoint
from auditor.replay.task.replica_task import ReplicaTask

KEPT_BYTES = 32 * 1024 * 1024  # what does not fit is read again for the next replica


def read_sharing(tasks: Sequence[ReplicaTask]) -> list[ReplicaFacts]:
    """The facts of each, as reading it alone would give them."""
    shared, small = _SharedChunks(), _SharedFiles(tasks)

    def read(task: ReplicaTask, number: int) -> Iterator[Chunk | SegmentPoint | SegmentOutcome]:
        return checked(SegmentChecks(task, number, small.read), shared.chunks(task, number))

    readers = [ReplicaReader(task, functools.partial(read, task), small.read) for task in tasks]
    stored = [reader.open() for reader in readers]
    at = [reader.resume() for reader in readers]
    while waiting := [k for k, task in enumerate(tasks) if at[k] < len(task.replica.segments)]:
        # The one that is furthest behind is next, and with it all that have the same segment next.
        first = min(waiting, key=lambda k: (tasks[k].replica.segments[at[k]].base_offset, k))
        key = shared_key(tasks[first], at[first])
        for k in waiting:
            if k == first or (key is not None and shared_key(tasks[k], at[k]) == key):
                readers[k].read_segment(at[k])
                at[k] += 1
    return [reader.finish(snapshots) for reader, snapshots in zip(readers, stored, strict=True)]


class _SharedChunks:
    """The chunks of the remote segment that was read last, packed, or why it could not be opened."""

    def __init__(self) -> None:
        self.key: Hashable | None = None
        self.packs: list[bytes] = []
        self.failed: DecodeError | None = None

    def chunks(self, task: ReplicaTask, number: int) -> Iterator[Chunk] | DecodeError:
        """The chunks of a replica's segment, or why its file could not be opened."""
        key = shared_key(task, number)
        if key is None:
            return read_chunks(task, number)
        if key == self.key:
            return self.failed or self._again()
        self.key, self.packs, self.failed = None, [], None
        found = read_chunks(task, number)
        if isinstance(found, DecodeError):
            self.key, self.failed = key, found
            return found
        return self._kept(key, found)

    def _kept(self, key: Hashable, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        for chunk in chunks:
            self.packs.append(packed(chunk))
            yield chunk
        self.key = key  # now that all of them are here

    def _again(self) -> Iterator[Chunk]:
        return map(unpacked, self.packs)


class _SharedFiles:
    """Small remote files, each kept until every replica that has it was given it."""

    def __init__(self, tasks: Sequence[ReplicaTask]) -> None:
        self.waiting = Counter(
            (f.place, f.name) for t in tasks for f in t.replica.files() if f.place and f.kind != "log"
        )
        self.kept: dict[tuple[Place, str], bytes | DecodeError] = {}
        self.size = 0

    def read(self, where: Place, name: str, /, *, limit: int) -> bytes | DecodeError:
        """The content of a file, or why it cannot be had."""
        key = (where, name)
        if key not in self.waiting:  # of one replica alone
            return read_file(where, name, limit=limit)
        data = self.kept.pop(key, None)
        if data is None:
            data = read_file(where, name, limit=limit)
        else:
            self.size -= _bytes_of(data)
        self.waiting[key] -= 1
        if self.waiting[key] > 0 and self.size + _bytes_of(data) <= KEPT_BYTES:
            self.kept[key] = data
            self.size += _bytes_of(data)
        return data


def _bytes_of(data: bytes | DecodeError) -> int:
    return 0 if isinstance(data, DecodeError) else len(data)
