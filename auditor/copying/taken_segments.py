"""The batches of one folder's segments, read by the audit's own codec and written as Parquet."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from auditor.base.errors import DecodeError
from auditor.base.limits import Limits
from auditor.connectors import names
from auditor.connectors.codec import batch as walking
from auditor.connectors.codec.blanking import Blanks
from auditor.connectors.codec.foreign import foreign_row
from auditor.connectors.codec.gaps import offset_range
from auditor.connectors.codec.mending import Known
from auditor.connectors.codec.segment import Chunk, read_segment
from auditor.connectors.copied.folder_list import Taken
from auditor.connectors.copied.segment_columns import FILE_BYTES, FILE_ROWS, SegmentWriter
from auditor.connectors.storage import BinaryFile, Place, open_file, read_head
from auditor.copying.target import Target, finished
from auditor.replay.bounds import known_of
from auditor.replay.replica_task import ReplicaTask

MAX_FOREIGN = 1000  # batches of an unknown magic in a segment that are looked at, as in the recovery scan


class SegmentsTaken:
    """Takes the segments of a folder one after the other; several share a file until it is full.

    ``blanks``: of an internal topic, what becomes of the records of its batches; None where no bytes are taken.
    """

    def __init__(self, target: Target, folder: str, limits: Limits, blanks: Blanks | None) -> None:
        self.target, self.folder, self.limits, self.blanks = target, folder, limits, blanks
        self.open: contextlib.ExitStack | None = None
        self.writer: SegmentWriter
        self.path: Path
        self.first = ""
        self.pending: list[tuple[str, Taken]] = []  # of the file that is open
        self.done: dict[str, Taken] = {}
        self.bytes = 0
        self.batches = 0

    def take(self, place: Place, name: str, size: int, task: ReplicaTask | None) -> DecodeError | None:
        """Takes one segment; why not, where it could not be opened."""
        last = name.rpartition("/")[2]
        f = open_file(place, name)
        if isinstance(f, DecodeError):
            return f
        if self.open is None:
            self._begin(last.partition(".")[0])
        with contextlib.closing(f):
            self.pending.append((last, self._segment(f, place, name, size, task)))
        if self.writer.rows >= FILE_ROWS or self.bytes >= FILE_BYTES:
            self.finish()
        return None

    def finish(self) -> dict[str, Taken]:
        """What was taken by the names of the segments, once all are there."""
        if self.open is not None:
            self.writer.close()
            file = finished(self.path, self.first)
            self.open.close()
            self.open = None
            self.done |= {name: taken._replace(file=file) for name, taken in self.pending}
            self.pending, self.bytes = [], 0
        return self.done

    def _begin(self, first: str) -> None:
        self.open = contextlib.ExitStack()
        self.first = first
        self.path = self.open.enter_context(self.target.begun(self.folder, first))
        self.writer = SegmentWriter(self.path, stored=self.blanks is not None)

    def _segment(self, f: BinaryFile, place: Place, name: str, size: int, task: ReplicaTask | None) -> Taken:
        first = self.writer.rows
        chunks, errors, bodies = [], [], []
        for chunk in _chunks(f, name, size, task, self.limits, raw=self.blanks is not None):
            stored = None
            if self.blanks is not None and chunk.raw is not None:
                stored = self.blanks.blanked(chunk.batches, chunk.raw)
                self.bytes += sum(map(len, stored))
            self.writer.add(chunk.rows, True, stored)
            self.batches += len(chunk.rows)
            chunks.append((len(chunk.rows), chunk.end, chunk.next_offset))
            errors += chunk.errors
            bodies += chunk.body_errors
        foreign = tuple(_foreign(place, name, errors, self.limits))
        return Taken("", first, self.writer.rows - first, tuple(chunks), tuple(errors), tuple(bodies), foreign)


def _chunks(
    f: BinaryFile, name: str, size: int, task: ReplicaTask | None, limits: Limits, *, raw: bool
) -> Iterator[Chunk]:
    """The chunks as an audit reads them."""
    numbers = {s.name: k for k, s in enumerate(task.replica.segments)} if task is not None else {}
    number = numbers.get(name)
    if task is None or number is None:
        says = names.data_name(name.rpartition("/")[2]) or names.remote_name(name.rpartition("/")[2])
        yield from read_segment(
            f, size, file=name, limits=limits, raw=raw, offsets=offset_range(says.offset if says else -1)
        )
        return
    behind = task.replica.segments[number + 1 : number + 2]
    offsets = offset_range(task.replica.segments[number].base_offset, behind[0].base_offset if behind else -1)
    known: Known = known_of(task, number)
    yield from read_segment(f, size, file=name, limits=limits, raw=raw, offsets=offsets, known=known)


def _foreign(place: Place, name: str, errors: list[DecodeError], limits: Limits) -> Iterator[tuple[int, ...]]:
    """Rows of whole batches of a magic above 2 whose checksum is right: brokers take them."""
    bad = [e for e in errors if e.reason == "bad_magic" and 0 < e.length <= limits.max_batch_bytes]
    for error in bad[:MAX_FOREIGN]:
        data = read_head(place, name, error.length, start=error.position)
        row = None if isinstance(data, DecodeError) else foreign_row(data, error.position)
        if row is not None and isinstance(data, bytes):
            said = row.copy()
            said[walking.MAGIC] = np.int64(data[walking.PREFIX - 1])
            yield tuple(said.tolist())
