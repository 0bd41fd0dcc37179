"""Where a reading of a replica may go on: what its batches so far came to, kept for the next look at a growing log.

A broker appends to a partition's last segment only. What its batches came to up to the last that the segment's offset
index points at is packed, and a later reading that finds all as it was goes on there: ``auditor watch`` reads what is
new at each change, not the partition. Where something is to be said of the active segment, or it has no index, the
point is where it begins. Anything else that changed (a segment deleted or cut, a setting, the log start, a snapshot or
leader epoch below) makes the point worthless, and the replica is read from its first segment.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import pickle
from collections import Counter
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from auditor.base.errors import DecodeError, FlippedBit
from auditor.facts.batch_sums import BatchSums
from auditor.facts.packed import PackedColumns
from auditor.facts.replica_facts import ReplicaFacts, SegmentScan
from auditor.replay.internal.internal_readers import InternalReader
from auditor.replay.producers.audit_replay import AuditReplay
from auditor.replay.producers.bounds import ReplicaBounds
from auditor.replay.producers.snapshot_chain import Chain
from auditor.replay.producers.state import Replay, used, with_room
from auditor.replay.segments.segment_checks import SegmentChecks
from auditor.replay.segments.segment_point import SegmentPoint
from auditor.replay.segments.small_files import SmallFiles
from auditor.replay.task.replica_task import ReplicaTask

FROM_BYTES = 16 << 20  # before the point; fewer are read again as fast as a point is unpacked
BYTES_A_PRODUCER = 4096  # likewise: one takes about a microsecond to pack and unpack
MAX_PRODUCERS = 200_000  # more take memory of whoever keeps the point
MAX_POINT_BYTES = 64 << 20
# What moves with the log, and no replay asks for.
MOVES = ("replica", "high_watermark", "recovery_point", "resume_point")
_CODEC = pa.Codec("zstd", 1)


class Reading(Protocol):
    """The reading of one replica, as :class:`auditor.replay.reading.replica_reader.ReplicaReader` has it."""

    task: ReplicaTask
    bounds: ReplicaBounds
    facts: ReplicaFacts
    audit: AuditReplay
    internal: InternalReader | None
    bytes: dict[str, int]
    files: SmallFiles
    refusals: Counter[str]
    aborted: list[np.ndarray]
    aborted_rows: int


FACTS = (
    "segments",
    "segment_bases",
    "segment_times",
    "scans",
    "lost_at",
    "damaged",
    "flipped_bits",
    "unverified",
    "unverified_batches",
    "dropped_events",
    "digests",
)


class SegmentsRead(NamedTuple):
    """What the batches of a replica came to, and where the replay stands behind them. Plain data, to be pickled.

    ``errors`` and ``bytes`` are those of the segments alone, not of the small files beside them.
    """

    segments: list[str]
    segment_bases: list[int]
    segment_times: list[int]
    scans: list[SegmentScan]
    lost_at: int
    damaged: list[tuple[int, int]]
    flipped_bits: dict[tuple[int, int], FlippedBit]
    unverified: list[tuple[int, int]]
    unverified_batches: int
    dropped_events: dict[int, int]
    digests: dict[str, np.ndarray] | PackedColumns | BatchSums
    errors: list[DecodeError]
    bytes: dict[str, int]
    refusals: Counter[str]
    aborted: list[np.ndarray]
    internal: InternalReader | None
    kept: dict[int, int]
    events: list[np.ndarray]
    transactions: list[np.ndarray]
    chain: Chain
    replay: Replay


class Before(NamedTuple):
    """What the small files of a replica came to, before its first segment: errors so far, and bytes."""

    errors: int
    bytes: dict[str, int]


def leave(reader: Reading, before: Before, inside: SegmentPoint | None = None) -> bytes:
    """The point at which ``reader`` stands, right before its last segment or ``inside`` of it; nothing where that is
    not worth it."""
    task = reader.task
    closed = task.replica.segments[:-1]
    read = sum(segment.size for segment in closed) + (inside.position if inside is not None else 0)
    producers = int(reader.audit.replay.producers.meta[0])
    worth = read >= max(FROM_BYTES, producers * BYTES_A_PRODUCER) and producers <= MAX_PRODUCERS
    if not task.leaves_resume_point or not worth:
        return b""
    least = task.replica.segments[-1].base_offset if inside is None else inside.next_offset
    behind = max(least, reader.audit.expected)  # offsets may have gone back
    state = pickle.dumps((_taken(reader, before), inside), 5)
    packed = _CODEC.compress(state, asbytes=True)
    point = pickle.dumps((_signature(reader, len(closed), behind), len(closed), behind, len(state), packed))
    return point if len(point) <= MAX_POINT_BYTES else b""


def resume(reader: Reading) -> tuple[int, tuple[SegmentChecks, SegmentPoint] | None]:
    """Puts ``reader``, which has read no segment yet, where its task's point says; returns the segments behind it, and
    how to go on in the next one where that was begun.

    0, and nothing is changed, where there is no point or what it rests on is no longer so.
    """
    if not reader.task.resume_point:
        return 0, None
    signature, count, behind, size, state = pickle.loads(reader.task.resume_point)  # made by this program: see leave()
    segments = reader.task.replica.segments
    if count >= len(segments) or signature != _signature(reader, count, behind):
        return 0, None
    read, inside = pickle.loads(_CODEC.decompress(state, size, asbytes=True))
    resumed = None
    if inside is not None:
        if count + 1 < len(segments) and segments[count + 1].base_offset < behind:
            return 0, None
        checks = SegmentChecks.going_on(reader.task, count, reader.files.read, inside)
        if checks is None:
            return 0, None
        resumed = checks, inside
    _put_back(reader, read)
    return int(count), resumed


def _signature(reader: Reading, count: int, behind: int) -> bytes:
    """A hash of all that reading the first ``count`` segments, and the next one up to offset ``behind``, rested on.

    What it rested on in that one is for :meth:`auditor.replay.segments.segment_checks.SegmentChecks.going_on`.
    """
    task, replica = reader.task, reader.task.replica
    rested_on = (
        [getattr(task, f.name) for f in dataclasses.fields(ReplicaTask) if f.name not in MOVES],
        (replica.log_dir, replica.topic, replica.partition, replica.folder, replica.topic_id, replica.local_start),
        reader.bounds,
        replica.segments[:count],
        (replica.segments[count].name, replica.segments[count].base_offset),
        [snapshot for snapshot in replica.snapshots if snapshot.offset < behind],
        _below(reader.facts.leader_epochs, behind),
    )
    return hashlib.sha256(repr(rested_on).encode()).digest()


def _below(epochs: list[tuple[int, int]], offset: int) -> list[tuple[int, int]]:
    """The leader epochs that batches below an offset are compared with: all, where their starts do not ascend."""
    ascend = all(one[1] <= other[1] for one, other in itertools.pairwise(epochs))
    return [entry for entry in epochs if entry[1] < offset] if ascend else epochs


def _taken(reader: Reading, before: Before) -> SegmentsRead:
    facts, audit = reader.facts, reader.audit
    return SegmentsRead(
        segments=facts.segments,
        segment_bases=facts.segment_bases,
        segment_times=facts.segment_times,
        scans=facts.scans,
        lost_at=facts.lost_at,
        damaged=facts.damaged,
        flipped_bits=facts.flipped_bits,
        unverified=facts.unverified,
        unverified_batches=facts.unverified_batches,
        dropped_events=facts.dropped_events,
        digests=facts.digests,
        errors=facts.errors[before.errors :],
        bytes={name: count - before.bytes[name] for name, count in reader.bytes.items()},
        refusals=reader.refusals,
        aborted=reader.aborted,
        internal=reader.internal,
        kept=audit.kept,
        events=audit.events,
        transactions=audit.transactions,
        chain=audit.chain,
        replay=used(audit.replay),
    )


def _put_back(reader: Reading, read: SegmentsRead) -> None:
    facts, audit = reader.facts, reader.audit
    for name in FACTS:
        setattr(facts, name, getattr(read, name))
    facts.errors += read.errors
    for name, count in read.bytes.items():
        reader.bytes[name] += count
    reader.refusals, reader.aborted = read.refusals, read.aborted
    reader.aborted_rows = sum(map(len, read.aborted))
    reader.internal = read.internal
    audit.kept, audit.events, audit.transactions = read.kept, read.events, read.transactions
    # Newer snapshots and leader epochs may have come; those that were compared are behind the point.
    compared = {link.offset for link in read.chain.links}
    read.chain.waiting = [stored for stored in audit.chain.waiting if stored.offset not in compared]
    audit.chain = read.chain
    newer = audit.replay.log
    log = read.replay.log._replace(epochs=newer.epochs, epoch_starts=newer.epoch_starts)
    audit.replay = with_room(read.replay._replace(log=log))
