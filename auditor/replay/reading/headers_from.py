"""The headers of a replica from an offset on, once more: for what only a later question asks of single batches.

Checksums are not looked at again: the audit that comes before has told what is damaged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from auditor.base.errors import DecodeError
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec.gaps import offset_range
from auditor.connectors.codec.indexes import decode_offset_index
from auditor.connectors.codec.records import decode_records
from auditor.connectors.codec.segment import Chunk, HeaderHop, before, read_segment
from auditor.connectors.stores.storage import REFUSED, open_file, problem, read_file
from auditor.replay.producers.bounds import known_of
from auditor.replay.task.replica_task import ReplicaTask

FAR = 1 << 62
ROWS = 512  # of a chunk of large batches: who needs a few of a segment need not look at all


class Headers(NamedTuple):
    """Batches of a segment, as rows of a walk, in order."""

    segment: int
    rows: np.ndarray


def headers_from(task: ReplicaTask, offset: int, end: int) -> Iterator[Headers | DecodeError]:
    """The batches of a replica that may hold offsets in ``[offset, end)``, segment by segment, or why one cannot be
    had. Cost: a walk, without checksums, from where its segment's index puts ``offset``, else from its beginning."""
    for number, (base, behind) in enumerate(stretches(task)):
        for found in headers_of(task, number, offset) if behind > offset and base < end else ():
            yield found if isinstance(found, DecodeError) else Headers(number, found)


def stretches(task: ReplicaTask) -> list[tuple[int, int]]:
    """Where each segment of a replica begins, and the next one; behind the last one :data:`FAR`."""
    return list(pairwise([*(segment.base_offset for segment in task.replica.segments), FAR]))


def headers_of(task: ReplicaTask, number: int, offset: int) -> Iterator[np.ndarray | DecodeError]:
    """The batches of a segment from one at or before an offset on, or why they end; large ones on a disk are not read
    beyond their headers."""
    segment = task.replica.segments[number]
    start, lowest = _place(task, number, offset)
    if segment.place is None and not task.place.uri and task.place.view is None:
        f = open_file(task.place, segment.name)
        if not isinstance(f, DecodeError):
            least, below = _offsets(task, number)
            with contextlib.closing(f):
                hop = HeaderHop(f, segment.size, task.limits, start, (max(least, lowest), below), ROWS)
                yield from hop.chunks()
                if hop.end == segment.size > start:
                    return
                start, lowest = (hop.end, hop.next_offset) if hop.end > start else (start, lowest)
    for chunk in _chunks(task, number, start, None, raw=False, lowest=lowest):
        yield chunk if isinstance(chunk, DecodeError) else chunk.rows


def _place(task: ReplicaTask, number: int, offset: int) -> tuple[int, int]:
    """Where a batch at or before an offset begins, by the segment's index, and its offset; from its beginning on where
    the index does not say, or says what the segment does not."""
    segment = task.replica.segments[number]
    if segment.index is None or segment.place is not None or offset <= segment.base_offset:
        return 0, -1
    data = read_file(task.place, segment.index.name, limit=task.limits.small_file("index"))
    if isinstance(data, DecodeError):
        return 0, -1
    index, _ = decode_offset_index(data, segment.base_offset, segment.index.name)
    at = int(np.searchsorted(index.offset, offset, "right")) - 1
    if at < 0 or not (index.offset[1:] > index.offset[:-1]).all():
        return 0, -1
    position = int(index.log_position[at])
    for chunk in _chunks(task, number, position, position + 1, raw=False):
        if not isinstance(chunk, DecodeError) and len(chunk.rows):
            row = chunk.rows[0]
            if int(row[walking.POSITION]) == position and int(row[walking.LAST_OFFSET]) == int(index.offset[at]):
                return position, int(row[walking.BASE_OFFSET])
    return 0, -1


def _offsets(task: ReplicaTask, number: int) -> tuple[int, int]:
    behind = task.replica.segments[number + 1 : number + 2]
    return offset_range(task.replica.segments[number].base_offset, behind[0].base_offset if behind else -1)


def offsets_in(task: ReplicaTask, number: int, position: int) -> np.ndarray | None:
    """The offsets of the records in one batch; None where they cannot be had."""
    row, raw = stored_batch(task, number, position) or (None, None)
    if row is None or raw is None:
        return None
    decoded = decode_records([raw], walking.columns_of(row[None, :]), limits=task.limits)
    found = [run for run in decoded if not run.failures]
    return np.concatenate([run.records.offset for run in found]) if found else None


def stored_batch(task: ReplicaTask, number: int, position: int) -> tuple[np.ndarray, bytes | None] | None:
    """One batch: its row of a walk, and its bytes as they are stored, None where a copy without payload does not have
    them; None where it cannot be read."""
    for chunk in _chunks(task, number, position, position + 1, raw=True):
        if isinstance(chunk, DecodeError) or not len(chunk.rows):
            continue
        row = chunk.rows[0]
        if int(row[walking.POSITION]) == position:
            raw = chunk.raw[0] if chunk.raw else b""
            return row, raw if len(raw) >= min(int(row[walking.SIZE]), walking.HEADER + 1) else None
    return None


def _chunks(
    task: ReplicaTask, number: int, start: int, stop: int | None, *, raw: bool, lowest: int = -1
) -> Iterator[Chunk | DecodeError]:
    segment, behind = task.replica.segments[number], task.replica.segments[number + 1 : number + 2]
    f = open_file(segment.place or task.place, segment.name)
    if isinstance(f, DecodeError):
        yield f._replace(file=segment.name)
        return
    least, below = _offsets(task, number)
    with contextlib.closing(f):
        try:
            chunks = read_segment(
                f,
                segment.size,
                file=segment.name,
                start=start,
                stop=stop,
                limits=task.limits,
                raw=raw,
                crc=False,
                offsets=(max(least, lowest), below),
                known=known_of(task, number),
            )
            # Remote segments of different leaders overlap; a broker's own never do where they are sound.
            yield from before(chunks, behind[0].base_offset) if segment.place is not None and behind else chunks
        except REFUSED as error:
            yield problem(segment.name, error)._replace(file=segment.name)
