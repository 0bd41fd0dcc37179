"""Where a reading of a copy may go on: what its closed segments came to, kept for the next look at a growing log.

A broker appends to a partition's last segment only. What the segments before it came to is packed when that one
begins, and a later reading that finds them as they were starts there: ``auditor watch`` reads the active segment at
each change, not the partition. Anything else that changed (a segment deleted or cut, a setting, the log start, a
snapshot or leader epoch below) makes the point worthless, and the copy is read from its first segment.
"""

from __future__ import annotations

import dataclasses
import hashlib
import pickle
from collections import Counter
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from auditor.base.errors import DecodeError
from auditor.facts.batch_sums import BatchSums
from auditor.facts.copy_facts import CopyFacts
from auditor.facts.packed import PackedColumns
from auditor.facts.segment_scans import SegmentScan
from auditor.replay.audit_replay import AuditReplay
from auditor.replay.bounds import CopyBounds
from auditor.replay.copy_task import CopyTask
from auditor.replay.internal_readers import InternalReader
from auditor.replay.snapshot_chain import Chain
from auditor.replay.state import Replay

FROM_BYTES = 16 << 20  # of closed segments; fewer are read again as fast as a point is unpacked
MAX_PRODUCERS = 200_000  # more take longer to pack than their log to read, and memory of whoever keeps the point
MAX_POINT_BYTES = 64 << 20
# What moves with the log, and no replay asks for.
MOVES = ("copy", "high_watermark", "recovery_point", "resume_point")
_CODEC = pa.Codec("zstd", 1)


class Reading(Protocol):
    """The reading of one copy, as :class:`auditor.replay.copy_reader.CopyReader` has it."""

    task: CopyTask
    bounds: CopyBounds
    facts: CopyFacts
    audit: AuditReplay
    internal: InternalReader | None
    bytes: dict[str, int]
    refusals: Counter[str]
    aborted: list[np.ndarray]
    aborted_rows: int


class SegmentsRead(NamedTuple):
    """What the closed segments of a copy came to, and where the replay stands behind them. Plain data, to be pickled.

    ``errors`` and ``bytes`` are those of the segments alone, not of the small files beside them.
    """

    segments: list[str]
    segment_bases: list[int]
    segment_times: list[int]
    scans: list[SegmentScan]
    lost_at: int
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
    """What the small files of a copy came to, before its first segment: errors so far, and bytes."""

    errors: int
    bytes: dict[str, int]


def leave(reader: Reading, before: Before) -> bytes:
    """The point at which ``reader`` stands, right before its last segment; nothing where that is not worth it."""
    task = reader.task
    closed = task.copy.segments[:-1]
    if not task.leaves_resume_point or sum(segment.size for segment in closed) < FROM_BYTES:
        return b""
    if int(reader.audit.replay.producers.meta[0]) > MAX_PRODUCERS:
        return b""
    state = pickle.dumps(_taken(reader, before), 5)
    packed = _CODEC.compress(state, asbytes=True)
    point = pickle.dumps((_signature(reader, len(closed)), len(closed), len(state), packed))
    return point if len(point) <= MAX_POINT_BYTES else b""


def resume(reader: Reading) -> int:
    """Puts ``reader``, which has read no segment yet, where its task's point says; returns the segments behind it.

    0, and nothing is changed, where there is no point or what it rests on is no longer so.
    """
    if not reader.task.resume_point:
        return 0
    signature, count, size, state = pickle.loads(reader.task.resume_point)  # made by this program: see leave()
    if count >= len(reader.task.copy.segments) or signature != _signature(reader, count):
        return 0
    _put_back(reader, pickle.loads(_CODEC.decompress(state, size, asbytes=True)))
    return int(count)


def _signature(reader: Reading, count: int) -> bytes:
    """A hash of all that the first ``count`` segments' reading rested on."""
    task, copy = reader.task, reader.task.copy
    behind = copy.segments[count].base_offset
    rested_on = (
        [getattr(task, f.name) for f in dataclasses.fields(CopyTask) if f.name not in MOVES],
        (copy.log_dir, copy.topic, copy.partition, copy.folder, copy.topic_id, copy.local_start),
        reader.bounds,
        copy.segments[:count],
        [snapshot for snapshot in copy.snapshots if snapshot.offset < behind],
        [entry for entry in reader.facts.leader_epochs if entry[1] < behind],
    )
    return hashlib.sha256(repr(rested_on).encode()).digest()


def _taken(reader: Reading, before: Before) -> SegmentsRead:
    facts, audit = reader.facts, reader.audit
    return SegmentsRead(
        facts.segments, facts.segment_bases, facts.segment_times, facts.scans, facts.lost_at, facts.dropped_events,
        facts.digests, facts.errors[before.errors :],
        {name: count - before.bytes[name] for name, count in reader.bytes.items()}, reader.refusals, reader.aborted,
        reader.internal, audit.kept, audit.events, audit.transactions, audit.chain, audit.replay,
    )  # fmt: skip


def _put_back(reader: Reading, read: SegmentsRead) -> None:
    facts, audit = reader.facts, reader.audit
    for name in ("segments", "segment_bases", "segment_times", "scans", "lost_at", "dropped_events", "digests"):
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
    audit.replay = read.replay._replace(log=log)
