"""Facts: what reading and replaying one replica of a partition brings out, and all that the rules may rest on.

A replica is reduced where it is read: batches become events (something is odd), transactions, the producers' final
states and sums. Nothing here judges. Times are ms since the epoch, offsets and sizes as in the log; -1 means absent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from auditor.base.at_rest import Fields
from auditor.base.errors import DecodeError, FlippedBit
from auditor.facts.at_rest import without_defaults
from auditor.facts.batch_sums import BatchSums
from auditor.facts.blamed_records import Culprits
from auditor.facts.broker_memory import CoordinatorMemory, ProducerMemory
from auditor.facts.coordinator_log import CoordinatorLog
from auditor.facts.events import NO_EVENTS, Kind, events_of
from auditor.facts.packed import PackedColumns, PackedRows
from auditor.facts.policy_outcomes import PolicyOutcomes
from auditor.facts.producer_rows import NO_PRODUCERS
from auditor.facts.segment_scans import SegmentScan
from auditor.facts.share_offsets import ShareOffset
from auditor.facts.snapshot_links import SnapshotLink
from auditor.facts.transaction_rows import NO_ABORTED, NO_EXPOSED, NO_TRANSACTIONS
from auditor.facts.watched_offsets import WatchedOffsets


class Ahead(NamedTuple):
    """The batch with the largest CreateTime (``time``, ms) of those that no broker-written time of the log follows."""

    time: int
    producer_id: int
    producer_epoch: int
    base_offset: int
    last_offset: int
    segment: int
    position: int


@without_defaults
@dataclass(slots=True)
class ReplicaFacts:
    """Everything known of one replica of a partition (``log_dir``, topic, partition) after it was read once.

    ``segments`` names the segment files (relative to the log directory) that column ``segment`` of the tables points
    into, -1 being none; ``indexed_segments`` are the numbers of those with an index of any kind, None where nobody
    looked, ``abort_indexes`` of those with a ``.txnindex``. ``leader_epochs`` is the checkpoint: (epoch, start offset)
    each. ``sums`` are the offset accounting and volumes, see :data:`SUMS`.

    ``log_start`` is where what is here begins to count; a tiered log whose remote part is not here begins before it, at
    ``remote_from``, else -1; one of which a scope, or a live audit, left out the beginning, at ``unread_from``, else
    -1. ``local_start``: where its first segment on the broker's own disk begins, -1 without any.

    What was never cleaned begins at ``intact_from``. ``first_time`` is time(b) of the first judged batch.
    ``unreadable`` says whether bytes could not be read, ``unreadable_at`` the offset at which the last of them lie,
    ``lost_at`` the same where they may have held batches. ``ahead`` is the producer time that nothing of a broker
    follows.

    ``coordinator_log`` are the records of ``__transaction_state``, packed; ``watched_offsets`` is what those of
    ``__consumer_offsets`` came to, ``share_offsets`` those of ``__share_group_state``. ``unreadable_records`` are
    records of an internal topic as (offset, position, error), ``unknown_records`` the errors of those of a type that
    nobody knows yet. ``digests`` is what its batches are compared with those of other replicas by: the headers of all,
    or of a long log their sums; empty where there is no other replica. ``snapshot_producers`` are the producer ids by a
    snapshot's offset, where replicas are compared.
    ``live``: from a running cluster. ``begins_below_lso``: reading began at or below the last stable offset, so that no
    transaction which is open began before.
    ``damaged`` are the base offsets of batches that have a CRC mismatch, as ranges: what their records said is missing.
    ``flipped_bits`` has the one bit that explains such a mismatch, ``readings`` what the batch says with it inverted
    and without.
    ``unverified_batches`` have a checksum that nobody has verified, at the offsets ``unverified``;
    ``unlooked_batches`` have records that were to be looked at, and are not in a copy.
    ``breaks_off``: reading, or the dump, ended before the log. ``cannot_show`` names the columns that a dump does not
    print, ``may_be_cleaned`` says that a dump has holes which cleaning would explain. ``resume_point``: from where a
    later reading may go on, of which no rule knows (:mod:`auditor.replay.reading.resume_point`).
    """

    cluster_id: str | None
    broker_id: int | None
    log_dir: str
    topic: str
    partition: int
    join_key: str = ""
    folder: str = ""
    topic_id: str | None = None
    text: bool = False
    clean_shutdown: bool = False
    segments: list[str] = field(default_factory=list)
    segment_bases: list[int] = field(default_factory=list)
    segment_times: list[int] = field(default_factory=list)
    indexed_segments: list[int] | None = None
    abort_indexes: list[int] = field(default_factory=list)
    scans: list[SegmentScan] = field(default_factory=list)
    log_start: int = 0
    remote_from: int = -1
    unread_from: int = -1
    local_start: int = -1
    log_end: int = 0
    log_start_known: bool = True
    high_watermark: int | None = None
    recovery_point: int | None = None
    cleaner_offset: int | None = None
    leader_epochs: list[tuple[int, int]] = field(default_factory=list)
    last_leader_epoch: int = -1
    broker_time: int = -1
    any_time: int = -1
    first_time: int = -1
    ahead: Ahead | None = None
    intact_from: int = 0
    unreadable: bool = False
    unreadable_at: int = -1
    lost_at: int = -1
    sums: dict[str, int] = field(default_factory=dict)
    events: np.ndarray = field(default_factory=lambda: NO_EVENTS)
    dropped_events: dict[int, int] = field(default_factory=dict)
    transactions: np.ndarray = field(default_factory=lambda: NO_TRANSACTIONS)
    producers: np.ndarray | PackedRows = field(default_factory=lambda: NO_PRODUCERS)
    aborted: np.ndarray | PackedRows = field(default_factory=lambda: NO_ABORTED)
    exposed: np.ndarray = field(default_factory=lambda: NO_EXPOSED)
    snapshots: list[SnapshotLink] = field(default_factory=list)
    errors: list[DecodeError] = field(default_factory=list)
    tables: dict[str, pa.Table] = field(default_factory=dict)
    coordinator_log: CoordinatorLog | None = None
    watched_offsets: WatchedOffsets | None = None
    share_offsets: list[ShareOffset] = field(default_factory=list)
    digests: dict[str, np.ndarray] | PackedColumns | BatchSums = field(default_factory=dict)
    snapshot_producers: dict[int, np.ndarray] = field(default_factory=dict)
    unreadable_records: list[tuple[int, int, DecodeError]] = field(default_factory=list)
    unknown_records: list[DecodeError] = field(default_factory=list)
    live: bool = False
    begins_below_lso: bool = False
    breaks_off: bool = False
    cannot_show: list[str] = field(default_factory=list)
    damaged: list[tuple[int, int]] = field(default_factory=list)
    flipped_bits: dict[tuple[int, int], FlippedBit] = field(default_factory=dict)  # by segment number and position
    readings: dict[tuple[int, int], Fields] = field(default_factory=dict)  # by the same
    unverified: list[tuple[int, int]] = field(default_factory=list)
    unverified_batches: int = 0
    unlooked_batches: int = 0
    may_be_cleaned: bool = False
    producer_memory: ProducerMemory | None = None
    coordinator_memory: CoordinatorMemory | None = None
    notes: list[str] = field(default_factory=list)
    culprits: dict[tuple[int, int], Culprits] = field(default_factory=dict)  # by segment number and position
    outcomes: PolicyOutcomes | None = None  # of other policies, where they were asked for
    resume_point: bytes = b""

    def file(self, segment: int) -> str | None:
        """The name of a segment's file, null for -1."""
        return self.segments[segment] if 0 <= segment < len(self.segments) else None

    def is_remote(self, segment: int) -> bool:
        """Whether a segment lies in remote storage: what is done to a replica's folder does nothing to it."""
        return 0 <= segment < len(self.segment_bases) and self.segment_bases[segment] < self.local_start

    @property
    def cut_short(self) -> bool:
        """Whether files at the end of a log directory's replica are not there, so that nothing follows from what is
        missing: no segment at all, or less than checkpoints and snapshots of a broker that shut down promise."""
        if self.text or self.live:
            return False
        return not self.segments or (self.clean_shutdown and self.lacks_end)

    @property
    def lacks_end(self) -> bool:
        """Whether checkpoints and snapshots promise more than the log has: it is of an older moment, or lost some."""
        promised = max(0, self.high_watermark or 0, self.recovery_point or 0, *(s.offset for s in self.snapshots))
        return promised > self.log_end

    @property
    def ends_early(self) -> bool:
        """Whether what is known of this log breaks off before its end."""
        return self.breaks_off or self.cut_short

    @property
    def starts_late(self) -> bool:
        """Whether the log may have begun before its first segment: brokers raise the first leader epoch with it."""
        unknown = -1 if self.last_leader_epoch >= 0 else self.log_start
        first = self.leader_epochs[0][1] if self.leader_epochs else unknown
        return not self.log_start_known or first < self.own_start

    @property
    def table_key(self) -> tuple[str | None, int | None, str, str | None, int | None]:
        """What every row about it begins with in a table: the values of ``LOG_KEY``."""
        return self.cluster_id, self.broker_id, self.log_dir, self.topic, self.partition

    @property
    def own_start(self) -> int:
        """The log start offset that consumers see: that of a tiered log lies in remote storage."""
        return next((start for start in (self.remote_from, self.unread_from) if start >= 0), self.log_start)

    @property
    def open_unknown(self) -> bool:
        """Whether transactions may be open that nothing here shows: they began in what was left out, and neither a
        snapshot nor the last stable offset says which were open behind that."""
        known = (s.readable and self.log_start <= s.offset <= self.log_end for s in self.snapshots)
        return self.unread_from >= 0 and not self.begins_below_lso and not any(known)

    @property
    def absent(self) -> list[tuple[int, int]]:
        """Offsets (from, to) that are missing between two segments, where nothing was cleaned: those of a segment file
        that is lost, or was not copied."""
        holes = (e for e in events_of(self.events, Kind.OFFSET_HOLE) if e["position"] == 0)
        return [
            (e["first_missing_offset"], e["base_offset"])
            for e in holes
            if self.segment_bases[e["segment"]] == e["base_offset"]
        ]

    @property
    def indexed(self) -> frozenset[int]:
        """The numbers of the segments that were copied with an index of any kind."""
        if self.indexed_segments is not None:
            return frozenset(self.indexed_segments)
        return frozenset(() if self.text else range(len(self.segments)))

    @property
    def rank(self) -> tuple[int, int]:
        """Orders replicas: the highest (last leader epoch, log end) is the leader replica.

        A replica that becomes leader notes its epoch in the checkpoint at its log end, before anything is written in
        that epoch. Source: UnifiedLog.assignEpochStartOffset
        """
        took_over = max((epoch for epoch, start in self.leader_epochs if start == self.log_end), default=-1)
        return (max(self.last_leader_epoch, took_over), self.log_end)

    @property
    def settled_end(self) -> int:
        """The log end, without a last batch that begins behind a hole: its offset, which no checksum covers, may be
        damaged."""
        holes = self.events[self.events["kind"] == Kind.OFFSET_HOLE] if len(self.events) else self.events
        if not len(holes) or int(holes["last_offset"][-1]) + 1 != self.log_end:
            return self.log_end
        return int(holes["first_missing_offset"][-1])


# Names in ReplicaFacts.sums. *_offsets count offsets of [log_start, log_end); bytes and batches count what was read.
SUMS = (
    "bytes_total",
    "bytes_decoded",
    "bytes_skipped",
    "bytes_error",
    "batches",
    "records",
    "data_offsets",
    "marker_offsets",
    "hole_offsets_intact",
    "hole_offsets_cleaned",
    "producers_peak",
    "cached_batches_peak",
)
# Beside them: what a leader would have counted in the four counters of KIP-467, in the order of the KIP.
REFUSALS = ("no_key_compacted", "invalid_magic", "invalid_checksum", "invalid_offset_or_sequence")

SEQUENCE_FREE_TOPICS = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)
