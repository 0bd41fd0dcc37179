"""Replicas of a partition whose remote part is the same objects: each is read once, and replayed for every replica.

Reading, checksums and decompression take nearly all of the time; the replay differs, as snapshots and what is local do.
Memory: the state of all these replays, and the packed headers of one segment (:mod:`auditor.replay.chunks`).
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterator, Sequence

from auditor.base.errors import DecodeError
from auditor.connectors.codec.segment import Chunk
from auditor.facts.copy_facts import CopyFacts
from auditor.replay.chunks import packed, read_chunks, shared_key, unpacked
from auditor.replay.copy_reader import CopyReader
from auditor.replay.copy_task import CopyTask


def read_sharing(tasks: Sequence[CopyTask]) -> list[CopyFacts]:
    """The facts of each, as reading it alone would give them."""
    shared = _SharedChunks()
    readers = [CopyReader(task, functools.partial(shared.chunks, task)) for task in tasks]
    stored = [reader.open() for reader in readers]
    at = [reader.resume() for reader in readers]
    while waiting := [k for k, task in enumerate(tasks) if at[k] < len(task.copy.segments)]:
        # The one that is furthest behind is next, and with it all that have the same segment next.
        first = min(waiting, key=lambda k: (tasks[k].copy.segments[at[k]].base_offset, k))
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

    def chunks(self, task: CopyTask, number: int) -> Iterator[Chunk] | DecodeError:
        """The chunks of a copy's segment, or why its file could not be opened."""
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
        for pack in self.packs:
            chunk = unpacked(pack)
            assert not isinstance(chunk, DecodeError)
            yield chunk
