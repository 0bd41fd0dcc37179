"""Reading of one replica from its first segment to its last."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import hmac
import itertools
import pickle
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from auditor.base import VERSION
from auditor.base.at_rest import Fields
from auditor.base.errors import DecodeError, FlippedBit, StoreTrouble, attempt, bounded, bounded_time
from auditor.connectors import schema
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec.batches import columns_of, header_of
from auditor.connectors.codec.blanking import COPIED, METADATA, Blanks
from auditor.connectors.codec.cluster_metadata import decode_metadata_record
from auditor.connectors.codec.indexes import AbortedTransactions, decode_snapshot, decode_txn_index
from auditor.connectors.codec.records import Record, records_of
from auditor.connectors.codec.segment import Chunk
from auditor.connectors.codec.small_files import (
    EpochStart,
    decode_leader_epochs,
    decode_partition_metadata,
    decode_quorum_state,
)
from auditor.connectors.codec.structs import Problem
from auditor.connectors.kafka_names import QUORUM_STATE
from auditor.connectors.logdir import internal_rows
from auditor.connectors.logdir.files import DataFile, SegmentFile
from auditor.connectors.stores import storage
from auditor.connectors.stores.results import ResultFolder, folder
from auditor.connectors.stores.storage import REFUSED, StorageLocation, read_file
from auditor.connectors.tables.rows import shown_fields
from auditor.facts.arrow_codec import WRONG, Codec
from auditor.facts.events import EventKind, events_of
from auditor.facts.packed import PACK_ABOVE, PackedRows
from auditor.facts.replica_facts import ABORTED, NO_ABORTED, REFUSALS, ReplicaFacts
from auditor.replay.internal_readers import InternalReader, reader_of
from auditor.replay.producers import state
from auditor.replay.producers.audit_replay import AuditReplay, bounds_of, unread_from
from auditor.replay.producers.policy_replay import PolicyReplay
from auditor.replay.producers.snapshot_chain import ChainAtRest, Stored
from auditor.replay.producers.state import TableAtRest
from auditor.replay.reading import record_checks as records
from auditor.replay.reading import segment_checks
from auditor.replay.reading.chunks import (
    Opened,
    PackedChunk,
    Part,
    culprits_of,
    opened_batch,
    packed,
    read_behind,
    read_checked,
    read_chunks,
    shared_key,
    unpacked,
)
from auditor.replay.reading.index_checks import exposed_records
from auditor.replay.reading.lag_counts import stored_batch
from auditor.replay.reading.record_checks import header_answers, sender_of
from auditor.replay.reading.segment_checks import (
    ReadsSmall,
    SegmentChecks,
    SegmentOutcome,
    SegmentPoint,
    SmallFiles,
    checked,
    no_bytes,
)
from auditor.replay.task import POINT, KeptPoints, ReplicaTask

# Resume points: the state of a growing log's replay, for the next reading.
#
# A broker appends to a partition's last segment only. The state after the last batch that the segment's offset index
# points at is packed, and a later reading that finds everything unchanged resumes there: ``auditor watch`` reads what
# is new at each change, not the partition. If the active segment has findings or no index, the point is where it
# begins. After any other change (a segment deleted or truncated, a setting, the log start, a snapshot or leader epoch
# below) the point is worthless, and the replica is read from its first segment.
#
# A point in a work folder may have been written by others. So it is no pickle, it counts only with a proof that it was
# made with the folder's key, and also size, times and inode of all files that it rests on are compared. The records of
# internal topics have no form at rest: their points stay in memory.


FROM_BYTES = 16 << 20  # before the point; fewer are read again as fast as a point is unpacked
BYTES_A_PRODUCER = 4096  # likewise: one takes about a microsecond to pack and unpack
MAX_PRODUCERS = 200_000  # more take memory of whoever keeps the point
MAX_POINT_BYTES = 64 << 20
# What moves with the log, and no replay asks for.
MOVES = ("replica", "high_watermark", "recovery_point", "leaves_resume_point", "resume_point", "points")
PROOF_BYTES = 32


FACTS = (  # of the segments: what a resume point restores
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
    """Results of a replica's segments, and the state of the replay after them.

    ``facts``: those of :data:`FACTS`. ``errors`` and ``bytes`` are those of the segments alone, without the small
    files.
    """

    facts: ReplicaFacts
    errors: list[DecodeError]
    bytes: dict[str, int]
    refusals: dict[str, int]
    aborted: list[np.ndarray]
    event_counts: dict[int, int]
    events: list[np.ndarray]
    transactions: list[np.ndarray]
    chain: ChainAtRest
    replay: list[TableAtRest]


class ResumePoint(NamedTuple):
    """The state after ``closed`` segments, or ``inside`` the next one. ``rests_on``: a hash of what must not change
    below offset ``behind``."""

    rests_on: bytes
    closed: int
    behind: int
    read: SegmentsRead
    inside: SegmentPoint | None


POINTS = Codec(ResumePoint, lambda: segment_checks.STAND_INS)


class SmallFileTotals(NamedTuple):
    """Errors and bytes of a replica's small files, before its first segment."""

    errors: int
    bytes: dict[str, int]


def make_resume_point(reader: ReplicaReader, before: SmallFileTotals, inside: SegmentPoint | None = None) -> bytes:
    """Keep the resume point before the last segment of ``reader`` or ``inside`` it, or return it; empty if not
    worthwhile."""
    task = reader.task
    closed = task.replica.segments[:-1]
    read = sum(segment.size for segment in closed) + (inside.position if inside is not None else 0)
    producers = int(reader.audit.replay.producers.meta[0])
    worth = read >= max(FROM_BYTES, producers * BYTES_A_PRODUCER) and producers <= MAX_PRODUCERS
    if not (task.leaves_resume_point or task.points) or not worth:
        return b""
    least = task.replica.segments[-1].base_offset if inside is None else inside.next_offset
    behind = max(least, reader.audit.expected)  # offsets may have gone back
    rests_on = _signature(reader, len(closed), behind, inside is not None)
    at_rest = POINTS.pack([ResumePoint(rests_on, len(closed), behind, _segments_read(reader, before), inside)])
    if len(at_rest) > MAX_POINT_BYTES:
        return b""
    if task.points is None or reader.internal is not None:
        return pickle.dumps((at_rest, reader.internal)) if task.leaves_resume_point else b""
    name = _point_name(task, inside is not None)
    with contextlib.suppress(*REFUSED, StoreTrouble):  # without it the next reading begins at the start
        _folder(task.points).put(name, _proof(task.points, name, at_rest) + at_rest)
    return b""


def resume(reader: ReplicaReader) -> tuple[int, tuple[SegmentChecks, SegmentPoint] | None]:
    """Restore the state of a resume point in ``reader``, which has read no segment yet.

    Returns the number of segments to skip, and how to resume the next one if it was begun. 0, with nothing changed,
    where there is no point or what it rests on has changed.
    """
    for at_rest, internal in _points(reader):
        try:
            (point,) = POINTS.unpack(at_rest)
            if (begin := _resumed(reader, point)) is not None:
                reader.internal = internal
                return begin
        except WRONG:  # of another release, or damaged
            continue
    return 0, None


def _points(reader: ReplicaReader) -> Iterator[tuple[bytes, InternalReader | None]]:
    """Packed points to try, the one that saves most first."""
    task = reader.task
    if task.resume_point:
        yield pickle.loads(task.resume_point)  # of a process of our own: see make_resume_point
    if task.points is None or reader.internal is not None or not reader.reads_files:
        return
    for inside in (True, False):
        name, content = _point_name(task, inside), None
        with contextlib.suppress(*REFUSED, StoreTrouble):
            content = _folder(task.points).get(name, MAX_POINT_BYTES + PROOF_BYTES + 1)
        if content and hmac.compare_digest(content[:PROOF_BYTES], _proof(task.points, name, content[PROOF_BYTES:])):
            yield content[PROOF_BYTES:], None


def _folder(points: KeptPoints) -> ResultFolder:
    return folder(points.folder if "://" in points.folder else Path(points.folder))


def _point_name(task: ReplicaTask, inside: bool) -> str:
    replica = task.replica
    named = (task.place.path, replica.log_dir, replica.folder, replica.topic, replica.partition, inside)
    return hashlib.sha256(repr(named).encode("utf-8", "surrogatepass")).hexdigest() + POINT


def _proof(points: KeptPoints, name: str, at_rest: bytes) -> bytes:
    """What only this folder's audits can write before a point of this name."""
    return hmac.digest(points.key, VERSION.encode() + name.encode() + at_rest, "sha256")


def _resumed(reader: ReplicaReader, point: ResumePoint) -> tuple[int, tuple[SegmentChecks, SegmentPoint] | None] | None:
    segments, count, inside = reader.task.replica.segments, point.closed, point.inside
    rests_on = _signature(reader, count, point.behind, inside is not None) if 0 <= count < len(segments) else b""
    if point.rests_on != rests_on:
        return None
    checks = None
    if inside is not None:
        if count + 1 < len(segments) and segments[count + 1].base_offset < point.behind:
            return None
        checks = SegmentChecks.going_on(reader.task, count, reader.files.read, inside)
        if checks is None:
            return None
    _restore(reader, point.read)
    return count, None if checks is None or inside is None else (checks, inside)


def _signature(reader: ReplicaReader, count: int, behind: int, inside: bool) -> bytes:
    """A hash of everything that the first ``count`` segments, and the next one up to offset ``behind``, rest on.

    Of that one, if the point is ``inside``, the file must be the same one; whether its content is,
    :meth:`auditor.replay.reading.segment_checks.SegmentChecks.going_on` decides.
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
        reader.states[:count],
        [log[0] for log, *_ in reader.states[count : count + 1]] if inside else [],
    )
    return hashlib.sha256(repr(rested_on).encode("utf-8", "surrogatepass")).digest()


def _states(task: ReplicaTask) -> list[tuple[Any, ...]]:
    """What changes with each segment's files, the log's first, if points are kept."""
    if task.points is None or sum(segment.size for segment in task.replica.segments) < FROM_BYTES:
        return []
    return [
        tuple(
            None if file is None else storage.file_state(f"{task.place.path}/{file.name}")
            for file in (segment, segment.index, segment.timeindex, segment.txnindex)
        )
        for segment in task.replica.segments
    ]


def _below(epochs: list[tuple[int, int]], offset: int) -> list[tuple[int, int]]:
    """Leader epochs that batches below an offset are compared with: all, if their starts do not ascend."""
    ascend = all(one[1] <= other[1] for one, other in itertools.pairwise(epochs))
    return [entry for entry in epochs if entry[1] < offset] if ascend else epochs


def _segments_read(reader: ReplicaReader, before: SmallFileTotals) -> SegmentsRead:
    facts, audit = reader.facts, reader.audit
    return SegmentsRead(
        facts=ReplicaFacts(None, None, "", "", 0, **{name: getattr(facts, name) for name in FACTS}),
        errors=facts.errors[before.errors :],
        bytes={name: count - before.bytes[name] for name, count in reader.bytes.items()},
        refusals=reader.refusals,
        aborted=reader.aborted,
        event_counts=audit.event_counts,
        events=audit.events,
        transactions=audit.transactions,
        chain=audit.chain.at_rest(),
        replay=state.at_rest(audit.replay),
    )


def _restore(reader: ReplicaReader, read: SegmentsRead) -> None:
    facts, audit = reader.facts, reader.audit
    replay = state.resumed(audit.replay, read.replay)
    if read.bytes.keys() != reader.bytes.keys():
        raise ValueError("other bytes")
    audit.chain.go_on(read.chain)
    for name in FACTS:
        setattr(facts, name, getattr(read.facts, name))
    facts.errors += read.errors
    for name, count in read.bytes.items():
        reader.bytes[name] += count
    reader.refusals, reader.aborted = Counter(read.refusals), read.aborted
    reader.aborted_rows = sum(map(len, read.aborted))
    audit.event_counts, audit.events, audit.transactions = read.event_counts, read.events, read.transactions
    audit.replay = replay


# Both readings of a batch whose CRC mismatch one flipped bit explains: as stored, and with that bit inverted.
#
# Values that are equal in both are omitted, and so is payload: a copy without payload gives the same result.


BATCHES = 100  # of a replica that are read once more
HEADER = {  # of a batch: name, first byte, bytes
    "checksum": (17, 4),
    "attributes": (21, 2),
    "last offset delta": (23, 4),
    "base timestamp": (27, 8),
    "max timestamp": (35, 8),
    "producer id": (43, 8),
    "producer epoch": (51, 2),
    "base sequence": (53, 4),
    "record count": (57, 4),
}
MARKER_BYTES = 78  # of a batch with one end marker, as brokers write it
MARKER_TYPE, COORDINATOR_EPOCH = (68, 2), (73, 4)  # first byte and bytes there
OUTCOMES = {0: "ABORT", 1: "COMMIT"}
NAMES = ("transactional_id", "group_id", "consumed_topic", "consumed_partition", "topic_id", "name")  # whose record


def readings(task: ReplicaTask, facts: ReplicaFacts) -> dict[tuple[int, int], Fields]:
    """Return both readings of the first damaged batches by segment number and position. Cost: each is read again."""
    by_batch: dict[tuple[int, int], Fields] = {}
    for event in events_of(facts.events, EventKind.CRC):
        place = (int(event["segment"]), int(event["position"]))
        bit = facts.flipped_bits.get(place)
        if bit is None or len(by_batch) >= BATCHES:
            continue
        batch = stored_batch(task, *place)
        if batch is not None:
            by_batch[place] = {"base_offset": event["base_offset"], "byte": bit.byte, "bit": bit.bit}
            by_batch[place] |= _readings_of(*batch, bit, task)
    return by_batch


def _readings_of(row: np.ndarray, raw: bytes | None, bit: FlippedBit, task: ReplicaTask) -> Fields:
    stored, size = header_of(row), int(row[walking.SIZE])
    first, _ = HEADER["checksum"]
    if len(stored) != walking.HEADER or not first <= bit.byte < size:  # of a copy that others made
        return {"field": "unknown"}
    if bit.byte < len(stored):
        name, (start, size) = next((n, extent) for n, extent in HEADER.items() if extent[0] <= bit.byte < sum(extent))
        return {"field": name} | _numbers(stored[start : start + size], bit, start, signed=name != "checksum")
    is_control = int(row[walking.ATTRIBUTES]) & walking.CONTROL != 0
    if is_control and size == MARKER_BYTES:
        return _of_marker(row, bit)
    topic = task.replica.topic or ""
    compressed = int(row[walking.ATTRIBUTES]) & walking.CODEC_MASK != 0
    if is_control or raw is None or len(raw) != size or topic not in COPIED or compressed:
        return {"field": "records"}
    plain = Blanks(topic, task.limits).blanked(columns_of(row[None, :]), [raw])[0]
    both = [_records(row, plain, topic, task), _records(row, _inverted(plain, bit), topic, task)]
    return {"field": "records", "records": [_difference(*pair) for pair in zip_longest(*both) if pair[0] != pair[1]]}


def _inverted(data: bytes, bit: FlippedBit, start: int = 0) -> bytes:
    out = bytearray(data)
    out[bit.byte - start] ^= 1 << bit.bit
    return bytes(out)


def _numbers(data: bytes, bit: FlippedBit, start: int, *, signed: bool = True) -> Fields:
    as_stored, inverted = (int.from_bytes(value, "big", signed=signed) for value in (data, _inverted(data, bit, start)))
    return {"as_stored": as_stored, "inverted": inverted}


def _of_marker(row: np.ndarray, bit: FlippedBit) -> Fields:
    """Readings of an end marker by its columns, which is all that a copy has of it."""
    for name, (start, size), column in (
        ("marker", MARKER_TYPE, walking.CONTROL_TYPE),
        ("coordinator epoch", COORDINATOR_EPOCH, walking.COORDINATOR_EPOCH),
    ):
        if start <= bit.byte < start + size:
            stored = int(row[column]) & (1 << 8 * size) - 1
            values = _numbers(stored.to_bytes(size, "big"), bit, start)
            if name == "marker":
                values = {key: OUTCOMES.get(value, f"type {value}") for key, value in values.items()}
            return {"field": name} | values
    return {"field": "records"}


def _records(row: np.ndarray, raw: bytes, topic: str, task: ReplicaTask) -> list[Fields]:
    """The records of a batch, as tables show them."""
    batches = columns_of(row[None, :])
    reader = internal_rows.InternalRows(topic, task.limits)
    out = []
    for _, record in records_of([raw], batches, file="", limits=task.limits):
        if isinstance(record, DecodeError):
            out.append({"unreadable": record.detail})
        elif topic == METADATA:
            out.append(_of_metadata(record))
        else:
            table, values = reader.row_of("", batches, 0, record)
            names = schema.DECODED[table].names[len(schema.LOG_KEY) :]
            out.append({"unreadable": "the record"} if values is None else dict(zip(names, values, strict=True)))
    return out


def _of_metadata(record: Record) -> Fields:
    decoded = decode_metadata_record(record.value)
    if isinstance(decoded, Problem):
        return {"unreadable": decoded.detail}
    return {"offset": record.offset, "record": decoded.name, **shown_fields(decoded, False)}


def _difference(stored: Fields | None, inverted: Fields | None) -> Fields:
    """Differences between two readings of a record, and whose record it is."""
    one, other = stored or {}, inverted or {}
    names = [name for name in dict.fromkeys([*one, *other]) if one.get(name) != other.get(name)]
    alike: dict[str, Any] = {name: one[name] for name in ("offset", *NAMES) if name in one and name not in names}
    return alike | {
        "as_stored": {name: one[name] for name in names if name in one},
        "inverted": {name: other[name] for name in names if name in other},
    }


# Reading of one replica, once from its first segment to its last: batches in, facts out.
#
# The reader knows files: segments in order, chunks of batches, and unreadable bytes between them. The meaning of
# batches is up to the audit's replay, and to the replays under the task's policies, which use what that one makes of
# each batch. All get the same bounds.
#
# Memory: the largest batch, a few arrays per segment and the producers' states; cost: walking the batches once.
# Nothing raises on bad bytes: what is unreadable is in ``ReplicaFacts.errors``.


NO_EPOCHS = np.empty(0, np.int64)


def read_replica(task: ReplicaTask) -> ReplicaFacts:
    """Read, check and replay one replica."""
    return ReplicaReader(task).run()


class ReplicaReader:
    """State of reading one replica; :mod:`auditor.replay.reading.other_replicas` feeds it from other sources.

    ``segments`` returns the parts of a segment by its number, once each and in order
    (:func:`auditor.replay.reading.segment_checks.checked`), and ``small`` the content of a small file; by default they
    are read here.
    """

    def __init__(
        self,
        task: ReplicaTask,
        segments: Callable[[int], Iterator[Part]] | None = None,
        small: ReadsSmall = read_file,
    ) -> None:
        replica = task.replica
        self.task = task
        self.reads_files = segments is None
        self.segments = segments or functools.partial(read_checked, task)
        self.facts = ReplicaFacts(
            task.cluster_id,
            task.broker_id,
            replica.log_dir,
            replica.topic or "",
            replica.partition or 0,
            task.join_key,
            folder=replica.folder,
            topic_id=replica.topic_id,
            clean_shutdown=task.clean_shutdown,
            high_watermark=task.high_watermark,
            recovery_point=task.recovery_point,
            cleaner_offset=task.cleaner_offset,
            log_start_known=task.log_start_known and not task.replica.unread,
            digests=segment_checks.new_headers(task),
        )
        self.bounds = bounds_of(task)
        self.sender = sender_of(task)
        self.facts.log_start = self.bounds.log_start
        self.facts.remote_from = -1 if task.remote_from is None else task.remote_from
        self.facts.unread_from = unread_from(task)
        self.facts.local_start = replica.local_start
        self.bytes = no_bytes()
        self.files = SmallFiles(task, small, self.facts.errors, self.bytes)
        self.refusals: Counter[str] = Counter(dict.fromkeys(REFUSALS, 0))
        self.aborted: list[np.ndarray] = []
        self.aborted_rows = 0
        if replica.segments:
            indexed = [k for k, s in enumerate(replica.segments) if s.index or s.timeindex or s.txnindex]
            self.facts.indexed_segments = indexed
            self.facts.abort_indexes = [k for k, s in enumerate(replica.segments) if s.txnindex]
        self.facts.orphans = [(file.offset, file.name) for file in replica.orphans]
        self.internal = reader_of(task, self.facts.log_start)
        self.resumed: tuple[SegmentChecks, SegmentPoint] | None = None  # in the first segment to read

    def run(self) -> ReplicaFacts:
        """Read the whole replica."""
        stored = self.open()
        for number in range(self.resume(), len(self.task.replica.segments)):
            self.read_segment(number)
        return self.finish(stored)

    def open(self) -> list[Stored]:
        """Read the small files and set up the replays; return the snapshots, which :meth:`finish` takes."""
        read = [self._snapshot(f) for f in self.task.replica.snapshots]
        stored = [s for s in read if s is not None]
        self.begin(stored, *self._leader_epochs())
        self._others()
        self.states = _states(self.task)
        self.before = SmallFileTotals(len(self.facts.errors), dict(self.bytes))
        return stored

    def resume(self) -> int:
        """Return the first segment to read: earlier ones, and perhaps its first batches, come from a resume point."""
        number, self.resumed = resume(self)
        return number

    def read_segment(self, number: int) -> None:
        """Read the next segment, which is ``number``."""
        segments = self.task.replica.segments
        last = number + 1 == len(segments)
        after = -1 if last else segments[number + 1].base_offset
        resumed, self.resumed = self.resumed, None
        if resumed is not None:
            self.audit.segment_ends(after)
            self.facts.resume_point = self.task.resume_point if last else b""
            self._parts(number, read_behind(self.task, *resumed), after)
            return
        if last:
            self.facts.resume_point = make_resume_point(self, self.before)
        self.begin_segment(number, segments[number].name, segments[number].base_offset, after)
        self._parts(number, self.segments(number), after)

    def begin(self, stored: list[Stored], epochs: np.ndarray = NO_EPOCHS, epoch_starts: np.ndarray = NO_EPOCHS) -> None:
        """Set up the replays. ``stored``: the snapshots; the rest is the leader-epoch checkpoint in columns."""
        task, segments = self.task, self.task.replica.segments
        self.audit = AuditReplay(
            self.facts,
            self.bounds,
            stored,
            (epochs, epoch_starts),
            compacted=task.may_be_cleaned,
            policy=task.policy,
            noted=bool(task.policies),
        )
        self.policies: PolicyReplay | None = None
        if task.policies:
            first = segments[0].base_offset if segments else -1
            self.policies = PolicyReplay(
                task.policies,
                self.bounds,
                stored,
                first,
                start_known=task.log_start_known and not task.replica.unread,
                newest_time=task.newest_time,
            )

    def begin_segment(self, number: int, file: str, base_offset: int, after: int) -> None:
        """Begin a segment; ``after`` is the next one's base offset, -1 for none."""
        self.facts.segments.append(file)
        self.facts.segment_bases.append(bounded(base_offset))
        self.audit.begin_segment(number, base_offset, after)
        if self.policies is not None:
            self.policies.begin_segment(number)

    def replay_batches(self, b: np.ndarray) -> None:
        """Replay rows of a walk over batches (:mod:`auditor.connectors.codec.batches`).

        First under the broker's policy, then under the others, which use what each batch came to.
        """
        walking.bound_numbers(b)
        self.audit.take(b)
        if self.policies is not None:
            self.policies.take(b, self.audit.steps)

    def end_segment(self, after: int = -1) -> None:
        self.audit.end_segment(after)
        if self.policies is not None:
            self.policies.end_segment(after)

    def finish(self, stored: list[Stored]) -> ReplicaFacts:
        """Return the facts after every segment was replayed."""
        facts, segments = self.facts, self.task.replica.segments
        self.audit.finish(bounded(segments[-1].base_offset) if segments else 0)
        facts.aborted = self._all_aborted()
        if self.aborted and not facts.text:
            facts.exposed = exposed_records(self.task, facts)
        self._book_unreadable_records()
        facts.sums = self.bytes | facts.sums | self.refusals
        if self.task.records:
            blamed = functools.partial(culprits_of, facts, self._opened_batch, self.task.before_ms, self.sender)
            facts.culprits = attempt(facts.errors, "the records to blame could not be named", blamed, {})
        if facts.flipped_bits:
            facts.readings = readings(self.task, facts)
        facts.outcomes = self.policies.finish() if self.policies is not None else None
        if self.internal is not None:
            self.internal.leave(facts)
        if facts.digests:
            segment_checks.pack_headers(facts.digests, self.task)
            facts.snapshot_producers = {s.offset: np.unique(s.entries.producer_id) for s in stored if s.sound}
        return facts

    def _book_unreadable_records(self) -> None:
        """Count the batches of undecodable records, each once, as bytes in error."""
        errors = self.internal.errors() if self.internal is not None else []
        size = sum({(error.file, error.position): error.length for error in errors}.values())
        self.bytes["bytes_decoded"] -= size
        self.bytes["bytes_error"] += size

    def _leader_epochs(self) -> tuple[np.ndarray, np.ndarray]:
        file = self.task.replica.leader_epochs
        data = self.files.content(file)
        entries: list[EpochStart] = []
        if data is not None and file is not None:
            entries, errors = decode_leader_epochs(data, file.name)
            self.files.account(len(data), errors)
            entries = [] if errors else entries  # of a part nothing follows for any batch
        self.facts.leader_epochs = [(e.epoch, bounded(e.start_offset)) for e in entries]
        epochs, starts = np.array(self.facts.leader_epochs, np.int64).reshape(-1, 2).T
        return epochs.copy(), starts.copy()

    def _others(self) -> None:
        """Account for small files that were read with the inventory or elsewhere, and their errors."""
        metadata = self.task.replica.partition_metadata
        if metadata is not None and (data := self.files.content(metadata)) is not None:
            self.files.account(len(data), decode_partition_metadata(data, metadata.name)[1])
        for other in self.task.replica.others:
            if other.kind != QUORUM_STATE:
                self.bytes["bytes_total"] += other.size
                self.bytes["bytes_skipped"] += other.size
            elif (data := self.files.content(other)) is not None:
                self.files.account(len(data), decode_quorum_state(data, other.name)[1])

    def _snapshot(self, file: DataFile) -> Stored | None:
        data = self.files.content(file)
        if data is None:
            return None
        entries, errors = decode_snapshot(data, file.name)
        self.files.account(len(data), errors)
        entries = entries._replace(
            last_offset=bounded(entries.last_offset),
            last_timestamp=bounded_time(entries.last_timestamp),
            current_txn_first_offset=bounded(entries.current_txn_first_offset),
        )
        return Stored(file.name, bounded(file.offset), entries, not errors)

    def _parts(self, number: int, parts: Iterator[Part], after: int) -> None:
        """Read the parts of a segment. ``after``: where the next one begins."""
        segment = self.task.replica.segments[number]
        before = len(self.facts.errors)
        for part in parts:
            if isinstance(part, SegmentPoint):
                if len(self.facts.errors) == before:
                    inside = make_resume_point(self, self.before, part)
                    self.facts.resume_point = inside or self.facts.resume_point
            elif isinstance(part, SegmentOutcome):
                self._outcome(number, part, before, after)
            else:
                self._chunk(segment, part)
        self.bytes["bytes_total"] += segment.size
        self._txn_index(number, segment)

    def _outcome(self, number: int, outcome: SegmentOutcome, before: int, after: int) -> None:
        """End a segment; ``before``: number of errors noted before it, where those of its indexes are inserted."""
        self.facts.scans.append(outcome.scan)
        self.facts.errors[before:before] = outcome.errors
        if outcome.digests is not None and self.facts.digests is not None:
            self.facts.digests = segment_checks.join_headers(self.facts.digests, outcome.digests, self.task)
        for name, count in outcome.bytes.items():
            self.bytes[name] += count
        if outcome.unopened is not None:
            self.files.error(outcome.unopened)
            self.audit.note_unreadable(lost=True, until=after - 1 if after >= 0 else outcome.scan.base_offset)
        self.end_segment(after)
        for faults in outcome.faults:
            self.audit.keep(faults.events(number, self.audit.expected))

    def _opened_batch(self, number: int, position: int) -> Opened | None:
        """Read a batch of a segment again."""
        return opened_batch(self.task, number, position)

    def _chunk(self, segment: SegmentFile, chunk: Chunk) -> None:
        self.bytes["bytes_decoded"] += _replica_bytes(chunk)
        clock = self.audit.broker_time
        self._replay_between_errors(chunk.rows, chunk.errors, segment is self.task.replica.segments[-1])
        answers, flawed = chunk.looked, self.audit.take_flaws() != 0
        if self.task.records and chunk.summary is None:
            self.facts.unlooked_batches += len(chunk.rows)
        if chunk.summary is None and flawed:
            answers = header_answers(chunk.batches, self.sender)
        if answers is not None:
            self.refusals += records.counted(answers)
        if chunk.summary is not None:
            bounds = records.ChunkBounds(self.bounds.log_start, self.bounds.intact_from, clock, self.audit.segment)
            self.audit.keep(records.check(chunk.batches, chunk.summary, answers, bounds, self.task))
        if self.internal is not None:
            self.facts.errors += self.internal.take(segment.name, chunk.intact())
        for error in chunk.errors:
            self.files.error(error)
        self.facts.errors += chunk.body_errors
        for error in chunk.flipped:
            if (bit := FlippedBit.of(error)) is not None:
                self.facts.flipped_bits[self.audit.segment, error.position] = bit

    def _replay_between_errors(self, b: np.ndarray, errors: list[DecodeError], newest: bool) -> None:
        """Replay a chunk, noting where unreadable bytes are. Zeros hide nothing.

        The torn end of the newest segment loses nothing either: it had not been written completely when it was read.
        """
        start = 0
        for error in errors:
            if error.reason != "zero_filled":
                stop = int(np.searchsorted(b[:, walking.POSITION], error.position))
                self.replay_batches(b[start:stop])
                self.audit.note_unreadable(lost=not (newest and error.reason == "truncated"))
                start = stop
        self.replay_batches(b[start:])

    def _all_aborted(self) -> np.ndarray | PackedRows:
        """Entries of all transaction indexes. Many are packed: they travel as one."""
        if not self.aborted:
            return NO_ABORTED
        if sum(map(len, self.aborted)) <= PACK_ABOVE:
            return np.concatenate(self.aborted)
        return PackedRows(ABORTED, self.aborted)

    def _txn_index(self, number: int, segment: SegmentFile) -> None:
        data = self.files.content(segment.txnindex)
        if data is None or segment.txnindex is None:
            return
        left = self.task.limits.max_producer_entries - self.aborted_rows  # all are in memory together
        entries, errors = decode_txn_index(data, segment.txnindex.name, left)
        self.files.account(len(data), errors)
        self.add_aborted(number, entries)

    def add_aborted(self, number: int, entries: AbortedTransactions) -> None:
        """Add the entries of a segment's transaction index."""
        rows = np.zeros(len(entries.position), ABORTED)
        rows["segment"] = number
        for name in ("position", "producer_id", "first_offset", "last_offset", "last_stable_offset"):
            rows[name] = getattr(entries, name) if name == "producer_id" else bounded(getattr(entries, name))
        self.aborted.append(rows)
        self.aborted_rows += len(rows)


def _replica_bytes(chunk: Chunk) -> int:
    """Bytes of the chunk's batches, which are contiguous if there is no error between them."""
    rows = chunk.rows
    if chunk.errors or not len(rows):
        return int(rows[:, walking.SIZE].sum())
    return int(rows[-1, walking.POSITION] + rows[-1, walking.SIZE] - rows[0, walking.POSITION])


# Replicas of a partition that share remote segments: each is read once, and replayed for every replica.
#
# Reading, checksums and decompression take nearly all of the time; the replay differs, as snapshots and local
# segments do. Memory: the state of all these replays, the packed headers of one segment
# (:mod:`auditor.replay.reading.chunks`), and at most :data:`KEPT_BYTES` of indexes and snapshots.


KEPT_BYTES = 32 * 1024 * 1024  # what does not fit is read again for the next replica


def read_sharing(tasks: Sequence[ReplicaTask]) -> list[ReplicaFacts]:
    """Return the facts of each replica, as reading it alone would give them."""
    shared, small = _SharedChunks(), _SharedFiles(tasks)

    def read(task: ReplicaTask, number: int) -> Iterator[Chunk | SegmentPoint | SegmentOutcome]:
        return checked(SegmentChecks(task, number, small.read), shared.chunks(task, number))

    readers = [ReplicaReader(task, functools.partial(read, task), small.read) for task in tasks]
    stored = [reader.open() for reader in readers]
    positions = [reader.resume() for reader in readers]
    while waiting := [k for k, task in enumerate(tasks) if positions[k] < len(task.replica.segments)]:
        # The one that is furthest behind is next, and with it all that have the same segment next.
        first = min(waiting, key=lambda k: (tasks[k].replica.segments[positions[k]].base_offset, k))
        key = shared_key(tasks[first], positions[first])
        for k in waiting:
            if k == first or (key is not None and shared_key(tasks[k], positions[k]) == key):
                readers[k].read_segment(positions[k])
                positions[k] += 1
    return [reader.finish(snapshots) for reader, snapshots in zip(readers, stored, strict=True)]


class _SharedChunks:
    """Chunks of the remote segment that was read last, packed, or why it could not be opened."""

    def __init__(self) -> None:
        self.key: Hashable | None = None
        self.packs: list[PackedChunk] = []
        self.failed: DecodeError | None = None

    def chunks(self, task: ReplicaTask, number: int) -> Iterator[Chunk] | DecodeError:
        """Return the chunks of a replica's segment, or why its file could not be opened."""
        key = shared_key(task, number)
        if key is None:
            return read_chunks(task, number)
        if key == self.key:
            return self.failed or map(unpacked, self.packs)
        self.key, self.packs, self.failed = None, [], None
        chunks = read_chunks(task, number)
        if isinstance(chunks, DecodeError):
            self.key, self.failed = key, chunks
            return chunks
        return self._kept(key, chunks)

    def _kept(self, key: Hashable, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        for chunk in chunks:
            self.packs.append(packed(chunk))
            yield chunk
        self.key = key  # now that all of them are here


class _SharedFiles:
    """Small remote files, each kept until every replica that has it has read it."""

    def __init__(self, tasks: Sequence[ReplicaTask]) -> None:
        self.waiting = Counter(
            (f.place, f.name) for t in tasks for f in t.replica.files() if f.place and f.kind != "log"
        )
        self.kept: dict[tuple[StorageLocation, str], bytes | DecodeError] = {}
        self.size = 0

    def read(self, where: StorageLocation, name: str, /, *, limit: int) -> bytes | DecodeError:
        """Return the content of a file, or why it cannot be read."""
        key = (where, name)
        if key not in self.waiting:  # of one replica alone
            return read_file(where, name, limit=limit)
        data = self.kept.pop(key, None)
        if data is None:
            data = read_file(where, name, limit=limit)
        else:
            self.size -= _shared_bytes(data)
        self.waiting[key] -= 1
        if self.waiting[key] > 0 and self.size + _shared_bytes(data) <= KEPT_BYTES:
            self.kept[key] = data
            self.size += _shared_bytes(data)
        return data


def _shared_bytes(data: bytes | DecodeError) -> int:
    return 0 if isinstance(data, DecodeError) else len(data)
