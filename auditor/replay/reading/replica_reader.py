"""One replica of a partition, read once from its first segment to its last: batches in, facts out.

The reader knows files: segments in order, chunks of batches, and where between them bytes lie that could not be read.
What the batches mean is for the audit's replay, and for the policies that the task asks for, which go by what that one
makes of each batch. All are given the same bounds.

Memory is bounded by the largest batch, a few arrays a segment and the producers' states; cost is that of walking the
batches once. Nothing raises on bad bytes: what cannot be read is among ``ReplicaFacts.errors``.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from auditor.base.errors import DecodeError, FlippedBit
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec.indexes import decode_snapshot, decode_txn_index
from auditor.connectors.codec.segment import Chunk
from auditor.connectors.codec.small_files import (
    EpochStart,
    decode_leader_epochs,
    decode_partition_metadata,
    decode_quorum_state,
)
from auditor.connectors.logdir.files import DataFile, SegmentFile
from auditor.connectors.logdir.names import QUORUM_STATE
from auditor.connectors.stores.storage import read_file
from auditor.facts.events import Kind
from auditor.facts.packed import PACK_ABOVE, PackedRows
from auditor.facts.replica_facts import ABORTED, NO_ABORTED, REFUSALS, ReplicaFacts
from auditor.replay.internal.internal_readers import reader_of
from auditor.replay.producers.audit_replay import AuditReplay
from auditor.replay.producers.bounds import bounds_of, unread_from
from auditor.replay.producers.policy_replay import PolicyReplay
from auditor.replay.producers.snapshot_chain import Stored
from auditor.replay.reading import resume_point
from auditor.replay.reading.exposed_records import exposed_records
from auditor.replay.reading.flipped_readings import readings
from auditor.replay.segments import batch_headers
from auditor.replay.segments import record_checks as records
from auditor.replay.segments.chunks import Part, read_behind, read_checked
from auditor.replay.segments.culprit_reader import Opened, culprits_of, opened_batch
from auditor.replay.segments.segment_checks import SegmentChecks, SegmentOutcome
from auditor.replay.segments.segment_point import SegmentPoint
from auditor.replay.segments.small_files import ReadsSmall, SmallFiles, no_bytes
from auditor.replay.segments.validated import header_answers, sender_of
from auditor.replay.task.replica_task import ReplicaTask


def read_replica(task: ReplicaTask) -> ReplicaFacts:
    """Reads, checks and replays one replica."""
    return ReplicaReader(task).run()


class ReplicaReader:
    """The state of reading one replica; :mod:`auditor.replay.reading.text_replica` feeds it from text dumps instead of
    files.

    ``segments`` gives what is in a segment by its number, once each and in order
    (:func:`auditor.replay.segments.segment_checks.checked`), and ``small`` the content of a file that is read as a
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
            digests=batch_headers.begun(task),
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
        self.before = resume_point.Before(len(self.facts.errors), dict(self.bytes))
        return stored

    def resume(self) -> int:
        """The first segment to read: those before it, and perhaps its own first batches, are as an earlier reading left
        them."""
        number, self.resumed = resume_point.resume(self)
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
            self.facts.resume_point = resume_point.leave(self, self.before)
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
            batch_headers.finished(facts.digests, self.task)
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
                    inside = resume_point.leave(self, self.before, part)
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
            self.facts.digests = batch_headers.followed(self.facts.digests, outcome.digests, self.task)
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
        self.bytes["bytes_decoded"] += _bytes_of(chunk)
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
            at = records.Bounds(self.bounds.log_start, self.bounds.intact_from, clock, self.audit.segment)
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


def _bytes_of(chunk: Chunk) -> int:
    """The bytes of its batches, which lie side by side where there is no error between them."""
    rows = chunk.rows
    if chunk.errors or not len(rows):
        return int(rows[:, walking.SIZE].sum())
    return int(rows[-1, walking.POSITION] + rows[-1, walking.SIZE] - rows[0, walking.POSITION])


__all__ = ["Kind", "ReplicaTask", "read_replica"]
