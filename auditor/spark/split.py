"""Replicas that are far larger than the others: their segments are read by many tasks, and replayed by one task a
replica.

Reading, checksums and decompression take nearly all of the time and need nothing from one segment to the next; the
replay needs the headers alone, in order, and of most not even those. Between them lies an exchange of sums and packed
headers (:mod:`auditor.replay.reading.chunks`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from operator import itemgetter

import pyarrow as pa

from auditor.connectors.stores import storage
from auditor.facts.replica_facts import ReplicaFacts
from auditor.processes.isolation import read_apart
from auditor.replay.reading.chunks import PackedRow, Part, SegmentTask, read_packed, unpacked_row
from auditor.replay.reading.replica_reader import ReplicaReader, read_replica
from auditor.replay.reading.segment_checks import SegmentOutcome
from auditor.replay.reading.task import ReplicaTask
from auditor.spark.retries import failed_before, read_each
from auditor.spark.streams import in_batches

# One row a chunk: numbers of its replica, of its segment in the replica and of itself in the segment; what it holds.
CHUNKS = "replica int, segment int, chunk int, packed binary"
CHUNKS_ARROW = pa.schema(
    [("replica", pa.int32()), ("segment", pa.int32()), ("chunk", pa.int32()), ("packed", pa.binary())]
)
Row = tuple[int, int, int, pa.Buffer]


def read_list(tries: int, parts: list[SegmentTask]) -> Iterator[pa.RecordBatch]:
    """The chunks of some segments. Memory: a chunk, and a batch of what it is packed to."""
    how = list_packed if failed_before() else read_packed
    yield from in_batches(itertools.chain.from_iterable(read_each(parts, how, tries)), CHUNKS_ARROW)


def list_packed(part: SegmentTask) -> list[PackedRow]:
    """All rows of a segment, for a process that hands them to another. Memory: some 10 bytes a batch."""
    return list(read_packed(part))


def replay_parts(batches: Iterator[pa.RecordBatch], tasks: list[ReplicaTask]) -> Iterator[ReplicaFacts]:
    """The facts of the replicas whose chunks come in order. Memory: one chunk, and a batch as Arrow brings it.

    Where attempts failed before, the replica is read as a whole in a process apart, which gives the same.
    """
    for number, rows in itertools.groupby(_rows(batches), itemgetter(0)):
        if failed_before():
            yield from read_apart([tasks[number]], read_replica)
            continue
        with storage.guarded({}):
            facts = ReplicaReader(tasks[number], arriving(rows)).run()
        yield facts


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        replicas, segments, chunks = (batch.column(k).to_pylist() for k in range(3))
        for at in range(batch.num_rows):
            yield replicas[at], segments[at], chunks[at], batch.column(3)[at].as_buffer()


def arriving(rows: Iterator[Row]) -> Callable[[int], Iterator[Part]]:
    """What :class:`ReplicaReader` asks for what is in its segments, from rows that come in the order of the log."""
    segments = itertools.groupby(rows, itemgetter(1))

    def parts(number: int) -> Iterator[Part]:
        found, mine = next(segments)
        if found != number:
            raise RuntimeError(f"segment {number} of a replica did not arrive, but {found} did")
        part: Part | None = None
        for row in mine:
            part = unpacked_row(row[3])
            yield part
        if not isinstance(part, SegmentOutcome):
            raise RuntimeError(f"the end of segment {number} of a replica did not arrive")

    return parts
