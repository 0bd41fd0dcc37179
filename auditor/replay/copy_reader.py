"""One copy of a partition, read once from its first segment to its last: batches in, facts out.

Memory is bounded by the largest batch, a few arrays a segment and the producers' states; cost is that of walking the
batches once. Nothing raises on bad bytes: what cannot be read is among ``CopyFacts.errors``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from auditor.base.errors import DecodeError
from auditor.base.limits import DEFAULT_LIMITS, Limits
from auditor.connectors.codec import batch as walking
from auditor.connectors.codec.checkpoint import EpochStart, decode_leader_epochs
from auditor.connectors.codec.columns import BATCH_DTYPES, FLAW_CRC, BatchColumns
from auditor.connectors.codec.index import decode_offset_index, decode_time_index, decode_txn_index
from auditor.connectors.codec.segment import Chunk
from auditor.connectors.codec.snapshot import decode_snapshot
from auditor.connectors.files import Copy, DataFile, SegmentFile
from auditor.connectors.internal import CONSUMER_OFFSETS, TRANSACTION_STATE
from auditor.connectors.storage import Place, read_file, read_head
from auditor.facts.copy_facts import ABORTED, EVENT, SEQUENCE_FREE_TOPICS, TRANSACTION, CopyFacts, Kind
from auditor.facts.packed import PackedColumns
from auditor.replay import finish
from auditor.replay import record_checks as records
from auditor.replay import state as st
from auditor.replay.chunks import read_chunks
from auditor.replay.coordinator_reader import CoordinatorReader
from auditor.replay.index_checks import IndexChecks, OffsetCheck, TimeCheck
from auditor.replay.kernel import replay_batches
from auditor.replay.offsets_reader import OffsetsReader
from auditor.replay.recovery_scan import RecoveryScan
from auditor.replay.snapshot_chain import Chain, Stored

SHORTENED_TO = {"index": 8, "timeindex": 12}  # bytes of an entry
DIGESTED = [
    walking.BASE_OFFSET, walking.LAST_OFFSET, walking.CRC, walking.PARTITION_LEADER_EPOCH, walking.PRODUCER_ID,
    walking.PRODUCER_EPOCH, walking.BASE_SEQUENCE, walking.MAGIC, walking.POSITION, walking.ATTRIBUTES,
    walking.MAX_TIMESTAMP,
]  # fmt: skip
DIGEST = {BatchColumns._fields[k]: BATCH_DTYPES[k] for k in DIGESTED} | {"crc_ok": np.dtype(bool)}
MAX_EVENTS_OF_A_KIND = 10_000  # kept per copy; what is beyond is counted
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, "__share_group_state", "__cluster_metadata"})


@dataclass(frozen=True, slots=True)
class CopyTask:
    """All that a worker needs to read one copy. Offsets are those of the checkpoints, None where they do not say.

    ``log_start_known``: whether the log starts where its lowest segment does when ``log_start`` is None; else, for want
    of the checkpoint file, it may start later. ``cleaning_unknown``: neither settings nor a checkpoint file say whether
    the topic is compacted. ``before_ms`` is message.timestamp.before.max.ms where set; ``digests`` asks for a row a
    batch, to compare replicas.
    """

    place: Place
    copy: Copy
    cluster_id: str | None
    broker_id: int | None
    join_key: str
    clean_shutdown: bool
    log_start: int | None = None
    high_watermark: int | None = None
    recovery_point: int | None = None
    cleaner_offset: int | None = None
    compacted: bool = False
    cleaning_unknown: bool = False
    log_start_known: bool = True
    expiration_ms: int = 86_400_000
    before_ms: int | None = None
    records: bool = False
    digests: bool = False
    limits: Limits = field(default=DEFAULT_LIMITS)

    @property
    def may_be_cleaned(self) -> bool:
        """Whether records may be missing because the cleaner took them."""
        return self.compacted or self.cleaning_unknown

    @property
    def has_internal_rows(self) -> bool:
        """Whether its records are decoded into rows of tables, for which the stored bytes are needed."""
        return self.copy.topic in (TRANSACTION_STATE, CONSUMER_OFFSETS)


def read_copy(task: CopyTask) -> CopyFacts:
    """Reads, checks and replays one copy."""
    return CopyReader(task).run()


def _broke_off(file: DataFile, data: bytes) -> bool:
    """Whether a binary file was being cut or written anew while it was read: then nothing in it counts.

    Brokers shorten the indexes of a segment that they close, to whole entries; text files they replace at once.
    """
    if len(data) >= file.size or file.kind not in ("snapshot", "index", "timeindex", "txnindex"):
        return False
    return len(data) % SHORTENED_TO[file.kind] != 0 if file.kind in SHORTENED_TO else True


class CopyReader:
    """The state of reading one copy; :mod:`auditor.replay.text_copy` feeds it from text dumps instead of files.

    ``chunks`` gives those of a segment by its number, once each and in order, or why its file could not be opened; the
    default reads them here.
    """

    def __init__(self, task: CopyTask, chunks: Callable[[int], Iterator[Chunk] | DecodeError] | None = None) -> None:
        copy = task.copy
        self.task = task
        self.chunks = chunks or functools.partial(read_chunks, task)
        self.facts = CopyFacts(
            task.cluster_id, task.broker_id, copy.log_dir, copy.topic or "", copy.partition or 0, task.join_key,
            folder=copy.folder, topic_id=copy.topic_id, clean_shutdown=task.clean_shutdown,
            high_watermark=task.high_watermark, recovery_point=task.recovery_point, cleaner_offset=task.cleaner_offset,
            log_start_known=task.log_start_known, digests=PackedColumns(DIGEST) if task.digests else {},
        )  # fmt: skip
        bases = [s.base_offset for s in copy.segments]
        self.facts.log_start = max([task.log_start or 0, *bases[:1]])
        self.bytes = dict.fromkeys(("bytes_total", "bytes_decoded", "bytes_skipped", "bytes_error"), 0)
        self.events: list[np.ndarray] = []
        self.kept: dict[int, int] = {}
        self.transactions: list[np.ndarray] = []
        self.aborted: list[np.ndarray] = []
        self.unread: list[tuple[str, int, int]] = []  # file, first byte, byte behind the last one
        self.intact_from = self._intact_from()
        if copy.segments:
            indexed = [k for k, s in enumerate(copy.segments) if s.index or s.timeindex or s.txnindex]
            self.facts.state["indexed_segments"] = indexed
        self.offsets: OffsetsReader | None = None
        self.coordinator: CoordinatorReader | None = None
        if copy.topic == TRANSACTION_STATE:
            self.coordinator = CoordinatorReader(copy.partition or 0, task.limits)
        elif copy.topic == CONSUMER_OFFSETS:
            self.offsets = OffsetsReader(self.facts.log_start, task.limits)

    def _intact_from(self) -> int:
        """Offsets below it may have been cleaned (rules.md, *intact*).

        The cleaner writes its checkpoint behind its work, and a running broker's checkpoints are copied before or after
        its logs: only the active segment, which no cleaner touches, is intact for sure where nothing shut down.
        """
        if not self.task.may_be_cleaned:
            return 0
        segments, checkpoint = self.task.copy.segments, self.task.cleaner_offset
        if checkpoint is not None and self.task.clean_shutdown:
            return checkpoint
        return max(checkpoint or 0, segments[-1].base_offset if segments else 0)

    def run(self) -> CopyFacts:
        """The whole copy."""
        stored = [self._snapshot(f) for f in self.task.copy.snapshots]
        self.begin([s for s in stored if s is not None], *self._leader_epochs())
        self._partition_metadata()
        segments = self.task.copy.segments
        for number, segment in enumerate(segments):
            after = segments[number + 1].base_offset if number + 1 < len(segments) else -1
            self._segment(number, segment, after)
        return self.finish([s for s in stored if s is not None])

    def finish(self, stored: list[Stored]) -> CopyFacts:
        """The facts, when every segment has been replayed."""
        scalars, segments = self.replay.scalars, self.task.copy.segments
        last_base = segments[-1].base_offset if segments else 0
        self.facts.log_end = max(int(scalars[st.S_EXPECTED]), self.facts.log_start, last_base, 0)
        self.chain.finish(self.replay, scalars[st.S_UNREADABLE] < 0, self.facts.log_end)
        self._gather(stored)
        return self.facts

    def begin(self, stored: list[Stored], epochs: np.ndarray, epoch_starts: np.ndarray) -> None:
        """Sets up the replay and the comparison with snapshots."""
        self.chain = Chain(stored, self.facts.log_start, self.task.may_be_cleaned)
        self.replay = st.new_replay(self._params(), epochs, epoch_starts)

    def begin_segment(self, number: int, file: str, base_offset: int, after: int) -> None:
        """Tells the replay which segment comes; ``after`` is the next one's base offset, -1 for none."""
        self.facts.segments.append(file)
        self.facts.segment_bases.append(base_offset)
        scalars = self.replay.scalars
        scalars[[st.S_SEGMENT, st.S_SEGMENT_BASE, st.S_SEGMENT_NEXT]] = number, base_offset, after
        scalars[[st.S_SEGMENT_TIME, st.S_SEGMENT_ANY_TIME]] = -1

    def end_segment(self) -> None:
        """Notes the newest time of the segment."""
        scalars = self.replay.scalars
        self.facts.segment_times.append(int(max(scalars[st.S_SEGMENT_TIME], scalars[st.S_SEGMENT_ANY_TIME])))

    def _params(self) -> np.ndarray:
        start = [k for k, s in enumerate(self.task.copy.segments) if s.base_offset <= self.facts.log_start]
        params = np.zeros(st.PARAMS, np.int64)
        params[st.P_LOG_START] = self.facts.log_start
        params[st.P_START_SEGMENT] = start[-1] if start else -1
        params[st.P_INTACT_FROM] = self.intact_from
        params[st.P_SEQUENCES] = self.facts.topic not in SEQUENCE_FREE_TOPICS
        params[st.P_BROKER_TIMES] = self.facts.topic in INTERNAL_TOPICS
        params[st.P_EXPIRY_MS] = self.task.expiration_ms
        params[st.P_KRAFT] = self.facts.topic == "__cluster_metadata"
        return params

    def _small(self, file: DataFile | None) -> bytes | None:
        """The bytes of a small file, None (and an error noted) when it could not be read."""
        if file is None:
            return None
        data = read_file(self.task.place, file.name, limit=self.task.limits.max_small_file_bytes)
        if isinstance(data, DecodeError):
            self._error(data._replace(file=file.name), file.size)
            self.bytes["bytes_total"] += file.size
            return None
        if _broke_off(file, data):
            detail = f"the file is {file.size - len(data)} bytes shorter than when it was listed"
            self._error(DecodeError(file.name, 0, file.size, "vanished", detail))
            self.bytes["bytes_total"] += file.size
            return None
        self.bytes["bytes_total"] += len(data)
        return data

    def _error(self, error: DecodeError, length: int = 0) -> None:
        self.facts.errors.append(error)
        self.bytes["bytes_error"] += length if error.length < 0 else error.length

    def _account(self, size: int, errors: list[DecodeError], skipped: int = 0) -> None:
        """Books a small file of ``size`` bytes: what its errors do not cover was decoded."""
        bad = min(size, sum(e.length if e.length >= 0 else size - e.position for e in errors))
        self.facts.errors += errors
        self.bytes["bytes_error"] += bad
        self.bytes["bytes_skipped"] += min(skipped, size - bad)
        self.bytes["bytes_decoded"] += size - bad - min(skipped, size - bad)

    def _leader_epochs(self) -> tuple[np.ndarray, np.ndarray]:
        file = self.task.copy.leader_epochs
        data = self._small(file)
        entries: list[EpochStart] = []
        if data is not None and file is not None:
            entries, errors = decode_leader_epochs(data, file.name)
            self._account(len(data), errors)
            entries = [] if errors else entries  # of a part nothing follows for any batch
        self.facts.state["leader_epochs"] = [(e.epoch, e.start_offset) for e in entries]
        return np.array([e.epoch for e in entries], np.int64), np.array([e.start_offset for e in entries], np.int64)

    def _partition_metadata(self) -> None:
        """Its content was read with the inventory; here its bytes are booked."""
        if (data := self._small(self.task.copy.partition_metadata)) is not None:
            self._account(len(data), [])
        for other in self.task.copy.others:
            self.bytes["bytes_total"] += other.size
            self.bytes["bytes_skipped"] += other.size

    def _snapshot(self, file: DataFile) -> Stored | None:
        data = self._small(file)
        if data is None:
            return None
        entries, errors = decode_snapshot(data, file.name)
        self._account(len(data), errors)
        return Stored(file.name, file.offset, entries, not errors)

    def _segment(self, number: int, segment: SegmentFile, after: int) -> None:
        self.begin_segment(number, segment.name, segment.base_offset, after)
        checks = self._index_checks(segment)
        end = self._log(number, segment, after, checks)
        self.end_segment()
        unread = [(first, last) for file, first, last in self.unread if file == segment.name]
        self.keep(checks.events(number, end, int(self.replay.scalars[st.S_EXPECTED]), unread))
        self._txn_index(number, segment)

    def _log(self, number: int, segment: SegmentFile, after: int, checks: IndexChecks) -> int:
        """The segment's batches; returns the byte after the last whole one. ``after``: where the next one begins."""
        self.bytes["bytes_total"] += segment.size
        chunks = self.chunks(number)
        scan = RecoveryScan(segment.base_offset, segment.size, segment.index is not None, self._reader(segment))
        self.facts.scans.append(scan.scan)
        if isinstance(chunks, DecodeError):
            scan.scan.undecided = "the file could not be opened"
            self._error(chunks._replace(file=segment.name, position=0, length=segment.size))
            self._note_unreadable(lost=True, until=after - 1 if after >= 0 else segment.base_offset)
            return 0
        end = 0
        for chunk in chunks:
            if len(chunk.rows):
                end = int(chunk.rows[-1, walking.POSITION] + chunk.rows[-1, walking.SIZE])
            scan.take(chunk)
            self._chunk(segment, chunk, checks)
        scan.finish()
        return end

    def _reader(self, segment: SegmentFile) -> Callable[[int, int], bytes | None]:
        """Reads a stretch of a segment once more, no more than the largest batch."""

        def read(position: int, length: int) -> bytes | None:
            if length > self.task.limits.max_batch_bytes:
                return None
            data = read_head(self.task.place, segment.name, length, start=position)
            return None if isinstance(data, DecodeError) else data

        return read

    def _chunk(self, segment: SegmentFile, chunk: Chunk, checks: IndexChecks) -> None:
        self.bytes["bytes_decoded"] += int(chunk.rows[:, walking.SIZE].sum())
        if isinstance(self.facts.digests, PackedColumns):
            crc_ok = chunk.rows[:, walking.FLAWS] & FLAW_CRC == 0
            self.facts.digests.add(np.vstack([chunk.rows[:, DIGESTED].T, crc_ok]))
        clock = int(self.replay.scalars[st.S_BROKER_TIME])
        self._replay_between_errors(chunk.rows, chunk.errors, segment is self.task.copy.segments[-1])
        found: list[np.ndarray] = []
        if chunk.summary is not None:
            number = int(self.replay.scalars[st.S_SEGMENT])
            bounds = records.Bounds(self.facts.log_start, self.intact_from, clock, number)
            found = records.check(chunk.batches, chunk.summary, bounds, self.task)
            self.keep(found)
        checks.take(chunk.rows, [events for events in found if events["kind"][0] == Kind.BATCH_TIMESTAMP])
        if self.coordinator is not None:
            self.facts.errors += self.coordinator.take(segment.name, chunk)
        if self.offsets is not None:
            self.facts.errors += self.offsets.take(segment.name, chunk)
        for error in chunk.errors:
            self._error(error)
            self.unread.append((error.file, error.position, error.position + error.length))
        self.facts.errors += chunk.body_errors

    def _replay_between_errors(self, b: np.ndarray, errors: list[DecodeError], newest: bool) -> None:
        """Replays a chunk, telling the replay where bytes lie that could not be read. Zeros hide nothing.

        The torn end of the newest segment loses nothing either: what comes there had not been written when it was read.
        """
        at = 0
        for error in errors:
            if error.reason != "zero_filled":
                stop = int(np.searchsorted(b[:, walking.POSITION], error.position))
                self.replay_batches(b[at:stop])
                self._note_unreadable(lost=not (newest and error.reason == "truncated"))
                at = stop
        self.replay_batches(b[at:])

    def _note_unreadable(self, *, lost: bool, until: int = 0) -> None:
        """Bytes that could not be read lie here, perhaps with what offsets up to ``until`` held."""
        scalars = self.replay.scalars
        until = max(until, int(scalars[st.S_EXPECTED]))
        scalars[[st.S_UNREADABLE, st.S_UNREADABLE_AT]] = scalars[st.S_ORDINAL], until
        if lost:
            self.facts.state["lost_at"] = until

    def replay_batches(self, b: np.ndarray) -> None:
        """Replays the batches of a chunk (its ``rows``), stopping at each snapshot's offset to compare."""
        at, rows = 0, len(b)
        while at < rows:
            stop = rows
            if self.chain.waiting:
                behind = np.flatnonzero(b[at:, walking.BASE_OFFSET] >= self.chain.next_offset())
                stop = at + int(behind[0]) if len(behind) else rows
                if stop == at:
                    time = int(b[at, walking.MAX_TIMESTAMP])
                    self.chain.compare(self.replay, self.replay.scalars[st.S_UNREADABLE] < 0, time)
                    continue
            self.replay = st.ensure_room(self.replay, stop - at)
            at = int(replay_batches(self.replay, b, at, stop))
            self._drain()

    def _drain(self) -> None:
        scalars = self.replay.scalars
        if scalars[st.S_EVENTS]:
            self.keep([self.replay.log.events[: scalars[st.S_EVENTS]].copy()])
        if scalars[st.S_TRANSACTIONS]:
            self.transactions.append(self.replay.transactions[: scalars[st.S_TRANSACTIONS]].copy())
        scalars[[st.S_EVENTS, st.S_TRANSACTIONS]] = 0

    def keep(self, found: list[np.ndarray]) -> None:
        """Keeps events up to a number of each kind, and counts those beyond."""
        for events in found:
            for kind in np.unique(events["kind"]) if len(events) else ():
                mine = events[events["kind"] == kind]
                room = max(0, MAX_EVENTS_OF_A_KIND - self.kept.get(int(kind), 0))
                self.kept[int(kind)] = self.kept.get(int(kind), 0) + min(room, len(mine))
                if len(mine) > room:
                    dropped = self.facts.dropped_events
                    dropped[int(kind)] = dropped.get(int(kind), 0) + len(mine) - room
                self.events.append(mine[:room])

    def _index_checks(self, segment: SegmentFile) -> IndexChecks:
        checks = IndexChecks()
        if (data := self._small(segment.index)) is not None and segment.index is not None:
            index, errors = decode_offset_index(data, segment.base_offset, segment.index.name)
            self._account(len(data), errors, index.zero_tail_bytes)
            checks.offsets = OffsetCheck(index)
        if (data := self._small(segment.timeindex)) is not None and segment.timeindex is not None:
            times, errors = decode_time_index(data, segment.base_offset, segment.timeindex.name)
            self._account(len(data), errors, times.zero_tail_bytes)
            checks.times = TimeCheck(times)
        return checks

    def _txn_index(self, number: int, segment: SegmentFile) -> None:
        data = self._small(segment.txnindex)
        if data is None or segment.txnindex is None:
            return
        entries, errors = decode_txn_index(data, segment.txnindex.name)
        self._account(len(data), errors)
        rows = np.zeros(len(entries.position), ABORTED)
        rows["segment"] = number
        for name in ("position", "producer_id", "first_offset", "last_offset", "last_stable_offset"):
            rows[name] = getattr(entries, name)
        self.aborted.append(rows)

    def _gather(self, stored: list[Stored]) -> None:
        facts, scalars = self.facts, self.replay.scalars
        events = np.concatenate([np.empty(0, EVENT), *self.events])
        facts.events = events[np.lexsort((events["position"], events["segment"]))]
        facts.transactions = np.concatenate(
            [np.empty(0, TRANSACTION), *self.transactions, finish.open_rows(self.replay)]
        )
        facts.aborted = np.concatenate([np.empty(0, ABORTED), *self.aborted])
        facts.snapshots = self.chain.links
        finish.add_snapshot_knowledge(facts, self.replay, stored)
        facts.sums = self.bytes | finish.sums(self.replay)
        facts.last_leader_epoch = int(scalars[st.S_LEADER_EPOCH])
        facts.broker_time, facts.any_time = int(scalars[st.S_BROKER_TIME]), int(scalars[st.S_ANY_TIME])
        facts.state |= {
            "intact_from": self.intact_from,
            "first_time": int(scalars[st.S_FIRST_TIME]),
            "unreadable": bool(scalars[st.S_UNREADABLE] >= 0),
            "unreadable_at": max(0, int(scalars[st.S_UNREADABLE_AT])) if scalars[st.S_UNREADABLE] >= 0 else -1,
            "ahead": finish.pending_ahead(self.replay),
        }
        if self.offsets is not None:
            facts.watched_offsets = self.offsets.finish()
            facts.state["unreadable_records"] = self.offsets.unreadable
            facts.state["skipped_kinds"] = self.offsets.skipped_kinds
        if self.coordinator is not None:
            facts.coordinator_log = self.coordinator.finish()
            facts.state["unreadable_records"] = self.coordinator.unreadable
            facts.state["skipped_kinds"] = self.coordinator.skipped_kinds
        if isinstance(facts.digests, PackedColumns) and facts.digests:
            facts.digests.pack()
            facts.state["snapshot_producers"] = {s.offset: np.unique(s.entries.producer_id) for s in stored if s.sound}


__all__ = ["CopyTask", "Kind", "read_copy"]
