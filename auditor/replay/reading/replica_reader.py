"""One replica read from its first segment to its last."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import pickle
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from auditor.base.at_rest import Fields
from auditor.base.errors import DecodeError, FlippedBit
from auditor.connectors import schema
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec.batches import columns_of, header_of
from auditor.connectors.codec.blanking import COPIED, METADATA, Blanks
from auditor.connectors.codec.cluster_metadata import decode_metadata_record
from auditor.connectors.codec.indexes import decode_snapshot, decode_txn_index
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
from auditor.connectors.stores.storage import StorageLocation, read_file
from auditor.connectors.tables.rows import shown_fields
from auditor.facts.batch_sums import BatchSums
from auditor.facts.events import EventKind, events_of
from auditor.facts.packed import PACK_ABOVE, PackedColumns, PackedRows
from auditor.facts.replica_facts import ABORTED, NO_ABORTED, REFUSALS, ReplicaFacts, SegmentScan
from auditor.replay.internal_readers import InternalReader, reader_of
from auditor.replay.producers.audit_replay import AuditReplay, ReplicaBounds, bounds_of, unread_from
from auditor.replay.producers.policy_replay import PolicyReplay
from auditor.replay.producers.snapshot_chain import Chain, Stored
from auditor.replay.producers.state import Replay, used, with_room
from auditor.replay.reading import record_checks as records
from auditor.replay.reading import segment_checks
from auditor.replay.reading.chunks import (
    Opened,
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
from auditor.replay.task import ReplicaTask

# Where a reading of a replica may go on: what its batches so far came to, kept for the next look at a growing log.
#
# A broker appends to a partition's last segment only. What its batches came to up to the last that the segment's offset
# index points at is packed, and a later reading that finds all as it was goes on there: ``auditor watch`` reads what is
# new at each change, not the partition. Where something is to be said of the active segment, or it has no index, the
# point is where it begins. Anything else that changed (a segment deleted or cut, a setting, the log start, a snapshot
# or
# leader epoch below) makes the point worthless, and the replica is read from its first segment.


FROM_BYTES = 16 << 20  # before the point; fewer are read again as fast as a point is unpacked
BYTES_A_PRODUCER = 4096  # likewise: one takes about a microsecond to pack and unpack
MAX_PRODUCERS = 200_000  # more take memory of whoever keeps the point
MAX_POINT_BYTES = 64 << 20
# What moves with the log, and no replay asks for.
MOVES = ("replica", "high_watermark", "recovery_point", "resume_point")
_CODEC = pa.Codec("zstd", 1)


class ReplicaReading(Protocol):
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


class SmallFileTotals(NamedTuple):
    """What the small files of a replica came to, before its first segment: errors so far, and bytes."""

    errors: int
    bytes: dict[str, int]


def leave(reader: ReplicaReading, before: SmallFileTotals, inside: SegmentPoint | None = None) -> bytes:
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


def resume(reader: ReplicaReading) -> tuple[int, tuple[SegmentChecks, SegmentPoint] | None]:
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


def _signature(reader: ReplicaReading, count: int, behind: int) -> bytes:
    """A hash of all that reading the first ``count`` segments, and the next one up to offset ``behind``, rested on.

    What it rested on in that one is for :meth:`auditor.replay.reading.segment_checks.SegmentChecks.going_on`.
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


def _taken(reader: ReplicaReading, before: SmallFileTotals) -> SegmentsRead:
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


def _put_back(reader: ReplicaReading, read: SegmentsRead) -> None:
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


# Both readings of a batch whose CRC mismatch one flipped bit explains: as it is stored, and with that bit inverted.
#
# What neither says is left out, and so is what nobody may carry out of the house: a copy without payload shows the
# same.


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
    found: dict[tuple[int, int], Fields] = {}
    for event in events_of(facts.events, EventKind.CRC):
        at = (int(event["segment"]), int(event["position"]))
        bit = facts.flipped_bits.get(at)
        if bit is None or len(found) >= BATCHES:
            continue
        batch = stored_batch(task, *at)
        if batch is not None:
            found[at] = {"base_offset": event["base_offset"], "byte": bit.byte, "bit": bit.bit}
            found[at] |= _both(*batch, bit, task)
    return found


def _both(row: np.ndarray, raw: bytes | None, bit: FlippedBit, task: ReplicaTask) -> Fields:
    stored, size = header_of(row), int(row[walking.SIZE])
    first, _ = HEADER["checksum"]
    if len(stored) != walking.HEADER or not first <= bit.byte < size:  # of a copy that others made
        return {"field": "unknown"}
    if bit.byte < len(stored):
        name, (start, size) = next((n, at) for n, at in HEADER.items() if at[0] <= bit.byte < sum(at))
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
    as_stored, inverted = (int.from_bytes(each, "big", signed=signed) for each in (data, _inverted(data, bit, start)))
    return {"as_stored": as_stored, "inverted": inverted}


def _of_marker(row: np.ndarray, bit: FlippedBit) -> Fields:
    """Of an end marker by its columns, which is all that a copy has of it."""
    for name, (start, size), column in (
        ("marker", MARKER_TYPE, walking.CONTROL_TYPE),
        ("coordinator epoch", COORDINATOR_EPOCH, walking.COORDINATOR_EPOCH),
    ):
        if start <= bit.byte < start + size:
            stored = int(row[column]) & (1 << 8 * size) - 1
            said = _numbers(stored.to_bytes(size, "big"), bit, start)
            if name == "marker":
                said = {key: OUTCOMES.get(value, f"type {value}") for key, value in said.items()}
            return {"field": name} | said
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
    said = decode_metadata_record(record.value)
    if isinstance(said, Problem):
        return {"unreadable": said.detail}
    return {"offset": record.offset, "record": said.name, **shown_fields(said, False)}


def _difference(stored: Fields | None, inverted: Fields | None) -> Fields:
    """What two readings of a record do not have alike, and whose record it is."""
    one, other = stored or {}, inverted or {}
    names = [name for name in dict.fromkeys([*one, *other]) if one.get(name) != other.get(name)]
    alike: dict[str, Any] = {name: one[name] for name in ("offset", *NAMES) if name in one and name not in names}
    return alike | {
        "as_stored": {name: one[name] for name in names if name in one},
        "inverted": {name: other[name] for name in names if name in other},
    }


# One replica of a partition, read once from its first segment to its last: batches in, facts out.
#
# The reader knows files: segments in order, chunks of batches, and where between them bytes lie that could not be read.
# What the batches mean is for the audit's replay, and for the policies that the task asks for, which go by what that
# one
# makes of each batch. All are given the same bounds.
#
# Memory is bounded by the largest batch, a few arrays a segment and the producers' states; cost is that of walking the
# batches once. Nothing raises on bad bytes: what cannot be read is among ``ReplicaFacts.errors``.


def read_replica(task: ReplicaTask) -> ReplicaFacts:
    """Reads, checks and replays one replica."""
    return ReplicaReader(task).run()


class ReplicaReader:
    """The state of reading one replica; :mod:`auditor.replay.reading.other_replicas` feeds it from text dumps instead
    of files.

    ``segments`` gives what is in a segment by its number, once each and in order
    (:func:`auditor.replay.reading.segment_checks.checked`), and ``small`` the content of a file that is read as a
    whole; the defaults read them here.
    """

    def __init__(
        self,
        task: ReplicaTask,
        segments: Callable[[int], Iterator[Part]] | None = None,
        small: ReadsSmall = read_file,
    ) -> None:
        replica = task.replica
        self.task = task
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
            digests=segment_checks.begun(task),
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
        self.internal = reader_of(task, self.facts.log_start)
        self.resumed: tuple[SegmentChecks, SegmentPoint] | None = None  # in the first segment to read

    def run(self) -> ReplicaFacts:
        """The whole replica."""
        stored = self.open()
        for number in range(self.resume(), len(self.task.replica.segments)):
            self.read_segment(number)
        return self.finish(stored)

    def open(self) -> list[Stored]:
        """Reads what stands beside the segments and sets up who listens; the snapshots, which :meth:`finish` takes."""
        read = [self._snapshot(f) for f in self.task.replica.snapshots]
        stored = [s for s in read if s is not None]
        self.begin(stored, *self._leader_epochs())
        self._others()
        self.before = SmallFileTotals(len(self.facts.errors), dict(self.bytes))
        return stored

    def resume(self) -> int:
        """The first segment to read: those before it, and perhaps its own first batches, are as an earlier reading left
        them."""
        number, self.resumed = resume(self)
        return number

    def read_segment(self, number: int) -> None:
        """Reads the next segment, which is ``number``."""
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
            self.facts.resume_point = leave(self, self.before)
        self.begin_segment(number, segments[number].name, segments[number].base_offset, after)
        self._parts(number, self.segments(number), after)

    def begin(self, stored: list[Stored], epochs: np.ndarray, epoch_starts: np.ndarray) -> None:
        """Sets up who listens. ``stored``: the snapshots; the rest is the leader-epoch checkpoint in columns."""
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
        """Says which segment comes; ``after`` is the next one's base offset, -1 for none."""
        self.facts.segments.append(file)
        self.facts.segment_bases.append(base_offset)
        self.audit.begin_segment(number, base_offset, after)
        if self.policies is not None:
            self.policies.begin_segment(number)

    def replay_batches(self, b: np.ndarray) -> None:
        """Replays rows of a walk over batches (:mod:`auditor.connectors.codec.batches`): as the broker decided, then
        under the other policies by what each of them came to."""
        self.audit.take(b)
        if self.policies is not None:
            self.policies.take(b, self.audit.steps)

    def end_segment(self, after: int = -1) -> None:
        """Says that the segment has been read."""
        self.audit.end_segment(after)
        if self.policies is not None:
            self.policies.end_segment(after)

    def finish(self, stored: list[Stored]) -> ReplicaFacts:
        """The facts, when every segment has been replayed."""
        facts, segments = self.facts, self.task.replica.segments
        self.audit.finish(segments[-1].base_offset if segments else 0)
        facts.aborted = self._all_aborted()
        if self.aborted and not facts.text:
            facts.exposed = exposed_records(self.task, facts)
        self._book_unreadable_records()
        facts.sums = self.bytes | facts.sums | self.refusals
        if self.task.records:
            facts.culprits = culprits_of(facts, self._opened_batch, self.task.before_ms, self.sender)
        if facts.flipped_bits:
            facts.readings = readings(self.task, facts)
        facts.outcomes = self.policies.finish() if self.policies is not None else None
        if self.internal is not None:
            self.internal.leave(facts)
        if not isinstance(facts.digests, dict) and facts.digests:
            segment_checks.finished(facts.digests, self.task)
            facts.snapshot_producers = {s.offset: np.unique(s.entries.producer_id) for s in stored if s.sound}
        return facts

    def _book_unreadable_records(self) -> None:
        """The batches of records that were not understood, each once, are bytes in error."""
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
        self.facts.leader_epochs = [(e.epoch, e.start_offset) for e in entries]
        return np.array([e.epoch for e in entries], np.int64), np.array([e.start_offset for e in entries], np.int64)

    def _others(self) -> None:
        """What was read with the inventory, or apart: here its bytes are booked, and what is wrong with small files."""
        said = self.task.replica.partition_metadata
        if said is not None and (data := self.files.content(said)) is not None:
            self.files.account(len(data), decode_partition_metadata(data, said.name)[1])
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
        return Stored(file.name, file.offset, entries, not errors)

    def _parts(self, number: int, parts: Iterator[Part], after: int) -> None:
        """Reads what there is of a segment. ``after``: where the next one begins."""
        segment = self.task.replica.segments[number]
        before = len(self.facts.errors)
        for part in parts:
            if isinstance(part, SegmentPoint):
                if len(self.facts.errors) == before:
                    inside = leave(self, self.before, part)
                    self.facts.resume_point = inside or self.facts.resume_point
            elif isinstance(part, SegmentOutcome):
                self._outcome(number, part, before, after)
            else:
                self._chunk(segment, part)
        self.bytes["bytes_total"] += segment.size
        self._txn_index(number, segment)

    def _outcome(self, number: int, outcome: SegmentOutcome, before: int, after: int) -> None:
        """Ends a segment; ``before``: errors noted before it, behind which those of its indexes stand."""
        self.facts.scans.append(outcome.scan)
        self.facts.errors[before:before] = outcome.errors
        if outcome.digests is not None and not isinstance(self.facts.digests, dict):
            self.facts.digests = segment_checks.followed(self.facts.digests, outcome.digests, self.task)
        for name, count in outcome.bytes.items():
            self.bytes[name] += count
        if outcome.unopened is not None:
            self.files.error(outcome.unopened)
            self.audit.note_unreadable(lost=True, until=after - 1 if after >= 0 else outcome.scan.base_offset)
        self.end_segment(after)
        for faults in outcome.faults:
            self.audit.keep(faults.events(number, self.audit.expected))

    def _opened_batch(self, number: int, position: int) -> Opened | None:
        """Reads a batch of a segment once more."""
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
            at = records.ChunkBounds(self.bounds.log_start, self.bounds.intact_from, clock, self.audit.segment)
            self.audit.keep(records.check(chunk.batches, chunk.summary, answers, at, self.task))
        if self.internal is not None:
            self.facts.errors += self.internal.take(segment.name, chunk.intact())
        for error in chunk.errors:
            self.files.error(error)
        self.facts.errors += chunk.body_errors
        for error in chunk.flipped:
            if (bit := FlippedBit.of(error)) is not None:
                self.facts.flipped_bits[self.audit.segment, error.position] = bit

    def _replay_between_errors(self, b: np.ndarray, errors: list[DecodeError], newest: bool) -> None:
        """Replays a chunk, noting where bytes lie that could not be read. Zeros hide nothing.

        The torn end of the newest segment loses nothing either: what comes there had not been written when it was read.
        """
        at = 0
        for error in errors:
            if error.reason != "zero_filled":
                stop = int(np.searchsorted(b[:, walking.POSITION], error.position))
                self.replay_batches(b[at:stop])
                self.audit.note_unreadable(lost=not (newest and error.reason == "truncated"))
                at = stop
        self.replay_batches(b[at:])

    def _all_aborted(self) -> np.ndarray | PackedRows:
        """The entries of all transaction indexes. Many are packed: they travel as one."""
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
        rows = np.zeros(len(entries.position), ABORTED)
        rows["segment"] = number
        for name in ("position", "producer_id", "first_offset", "last_offset", "last_stable_offset"):
            rows[name] = getattr(entries, name)
        self.aborted.append(rows)
        self.aborted_rows += len(rows)


def _replica_bytes(chunk: Chunk) -> int:
    """The bytes of its batches, which lie side by side where there is no error between them."""
    rows = chunk.rows
    if chunk.errors or not len(rows):
        return int(rows[:, walking.SIZE].sum())
    return int(rows[-1, walking.POSITION] + rows[-1, walking.SIZE] - rows[0, walking.POSITION])


__all__ = ["EventKind", "ReplicaTask", "read_replica"]


# Replicas of a partition whose remote part is the same objects: each is read once, and replayed for every replica.
#
# Reading, checksums and decompression take nearly all of the time; the replay differs, as snapshots and what is local
# do.
# Memory: the state of all these replays, the packed headers of one segment (:mod:`auditor.replay.reading.chunks`), and
# at most :data:`KEPT_BYTES` of indexes and snapshots.


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
        self.kept: dict[tuple[StorageLocation, str], bytes | DecodeError] = {}
        self.size = 0

    def read(self, where: StorageLocation, name: str, /, *, limit: int) -> bytes | DecodeError:
        """The content of a file, or why it cannot be had."""
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
