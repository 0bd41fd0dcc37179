"""Facts: what reading and replaying one copy of a partition brings out, and all that the rules may rest on.

A copy is reduced where it is read: batches become events (something is odd), transactions, the producers' final
states and sums. Nothing here judges: an event says that a sequence jumped, a rule says whether that is a finding.
Times are ms since the epoch, offsets and sizes as in the log; -1 means absent throughout.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from auditor.base.errors import DecodeError
from auditor.facts.coordinator_log import CoordinatorLog
from auditor.facts.packed import PackedColumns, PackedRows
from auditor.facts.watched_offsets import WatchedOffsets


class Kind(IntEnum):
    """What an event tells. The words after each say what its columns a to f hold."""

    SEQUENCE_GAP = 1  # a expected, b found, c previous last offset, d previous leader epoch, e previous time, f flags
    SEQUENCE_OVERLAP = 2  # as above; e base offset of the first stored batch where still known
    SEQUENCE_RESET = 3  # as SEQUENCE_GAP
    BUMP_NONZERO = 4  # b found, c previous last offset, d previous leader epoch, e previous epoch
    FIRST_NONZERO = 5  # b found, f flags INHERITED_*
    EPOCH_REGRESSION = 6  # a highest epoch before, c its offset, d leader epoch there
    MARKER_EPOCH_REGRESSION = 7  # as EPOCH_REGRESSION
    COORDINATOR_EPOCH_REGRESSION = 8  # a earlier coordinator epoch, b this one, c offset of the earlier marker
    PLAIN_IN_TRANSACTION = 9  # a first offset of the open transaction, d leader epoch of the previous batch
    IDLE_BEYOND_EXPIRY = 10  # a idle ms, c previous last offset, b sequence
    EPOCH_STORM = 11  # a epochs counted within the window, b first of them
    TIMESTAMP_BEHIND = 12  # a broker-written time before it; timestamp: the batch's
    TIMESTAMP_AHEAD = 13  # a broker-written time after it; timestamp: the batch's
    EPOCH_RESERVED = 14  # transactional data with epoch 32767
    CRC = 20  # a stored checksum
    OFFSET_HOLE = 21  # a first missing offset
    OFFSETS_NOT_INCREASING = 22  # a last offset of the batch before
    OUTSIDE_SEGMENT = 23  # a base offset of the segment, b of the next (-1 none)
    LEADER_EPOCH_DECREASE = 24  # a epoch before
    LEADER_EPOCH_CHECKPOINT = 25  # a epoch the checkpoint gives
    HEADER_FLAW = 26  # a FLAW_* bits
    COUNT_BELOW_SPAN = 27  # a declared, b span
    INDEX_ENTRY = 30  # position: byte in the index file; a entry's offset, b entry's position, c what is wrong
    # position: byte in the file; a entry's offset, b entry's timestamp, c what is wrong, d last offset of the batch
    # with a larger one (-1: none)
    TIME_INDEX_ENTRY = 31
    RECORD_FLAW = 40  # a RECORD_* bits, b first culprit's index, c records present, d declared
    NULL_KEY = 41  # a how many, b first culprit's index
    BATCH_TIMESTAMP = 42  # a found maximum, b found first, timestamp: the stored maximum; c stored base
    RECORD_TIMESTAMP = 43  # a smallest record time, b largest, c broker-written time before (-1 none)


# Bits of column f of SEQUENCE_* events.
AFTER_UNREADABLE = 1  # bytes that could not be read lie between the two batches
IN_TRANSACTION = 2  # both batches belong to the same open transaction
STATE_MAY_BE_LOST = 4  # the leader epoch changed between them
# Bits of column f of FIRST_NONZERO events (rules.md, *inherited*).
KNOWN_BELOW = 8  # a batch of it lies below the log start
KNOWN_IN_SNAPSHOT = 16  # a snapshot at or below the batch knows it
SNAPSHOT_DENIES = 32  # there is a snapshot at or below the batch, and it does not know the producer
IN_START_SEGMENT = 64  # the batch lies in the segment that holds the log start
# Column c of INDEX_ENTRY and TIME_INDEX_ENTRY events.
INDEX_FAULTS = (
    "no batch starts at its position", "its offset is not in the batches from its position on",
    "entries do not increase", "an earlier record has a larger timestamp",
)  # fmt: skip

EVENT = np.dtype(
    [
        ("kind", "i2"), ("segment", "i4"), ("position", "i8"), ("base_offset", "i8"), ("last_offset", "i8"),
        ("producer_id", "i8"), ("producer_epoch", "i4"), ("timestamp", "i8"), ("time", "i8"), ("leader_epoch", "i4"),
        ("a", "i8"), ("b", "i8"), ("c", "i8"), ("d", "i8"), ("e", "i8"), ("f", "i8"),
    ]
)  # fmt: skip

# One row a transaction of a producer in this copy, in marker order; open ones last, with marker_offset -1.
# first_offset -1: a marker that closed nothing. first_time, last_time are time(b) of rules.md without its cap.
TRANSACTION = np.dtype(
    [
        ("producer_id", "i8"), ("producer_epoch", "i4"), ("last_epoch", "i4"), ("first_offset", "i8"),
        ("last_offset", "i8"), ("first_timestamp", "i8"), ("first_time", "i8"), ("last_timestamp", "i8"),
        ("last_time", "i8"), ("first_leader_epoch", "i4"), ("last_leader_epoch", "i4"), ("batches", "i8"),
        ("records", "i8"), ("bytes", "i8"), ("segment", "i4"), ("position", "i8"), ("gap_offset", "i8"),
        ("marker_offset", "i8"), ("marker_epoch", "i4"), ("commit", "i1"), ("coordinator_epoch", "i4"),
        ("marker_timestamp", "i8"), ("marker_segment", "i4"), ("marker_position", "i8"),
        ("last_stable_offset", "i8"), ("repeat", "i1"), ("prev_marker_offset", "i8"), ("prev_marker_epoch", "i4"),
        ("prev_marker_time", "i8"), ("prev_marker_commit", "i1"), ("from_snapshot", "i1"), ("second_offset", "i8"),
    ]
)  # fmt: skip

# One row a producer known in this copy: its state at the end (as a broker would hold it) and what led there.
# Columns below_*: what lies below the log start, in files or snapshots only. Columns first_*: its first judged batch;
# data_*: its last one.
PRODUCER = np.dtype(
    [
        ("producer_id", "i8"), ("producer_epoch", "i4"), ("last_sequence", "i4"), ("last_offset", "i8"),
        ("offset_delta", "i4"), ("last_timestamp", "i8"), ("coordinator_epoch", "i4"), ("txn_first_offset", "i8"),
        ("batches", "i8"), ("records", "i8"), ("markers", "i8"), ("max_epoch", "i4"), ("first_offset", "i8"),
        ("first_sequence", "i4"), ("first_epoch", "i4"), ("first_segment", "i4"), ("first_position", "i8"),
        ("first_timestamp", "i8"), ("first_time", "i8"),
        ("data_epoch", "i4"), ("data_last_sequence", "i4"), ("data_last_offset", "i8"), ("data_timestamp", "i8"),
        ("data_time", "i8"), ("marker_time", "i8"), ("idle_count", "i4"), ("max_idle_ms", "i8"),
        ("below_batches", "i8"), ("below_last_offset", "i8"), ("below_last_sequence", "i4"), ("below_epoch", "i4"),
        ("below_timestamp", "i8"), ("below_in_snapshot", "i1"), ("transactional", "i1"), ("max_data_epoch", "i4"),
        ("max_data_epoch_offset", "i8"), ("max_data_epoch_time", "i8"),
    ]
)  # fmt: skip

ABORTED = np.dtype(
    [
        ("segment", "i4"), ("position", "i8"), ("producer_id", "i8"), ("first_offset", "i8"), ("last_offset", "i8"),
        ("last_stable_offset", "i8"),
    ]
)  # fmt: skip


class Ahead(NamedTuple):
    """The batch with the largest CreateTime (``time``, ms) of those that no broker-written time of the log follows."""

    time: int
    producer_id: int
    producer_epoch: int
    base_offset: int
    last_offset: int
    segment: int
    position: int


@dataclass(slots=True)
class SnapshotLink:
    """One producer snapshot held against the replay: a link of the chain proof.

    ``offset`` is the snapshot's; ``base`` the newest older snapshot's (or the log start); ``readable`` whether it could
    be decoded; ``comparable`` whether the log from ``base`` on was whole enough to say anything; ``differences`` one
    ``(producer_id, field, stored, replayed, last_offset)`` each, at most a few hundred; ``entries`` how many.
    """

    file: str
    offset: int
    base: int
    entries: int
    readable: bool
    comparable: bool
    differences: list[tuple[int, str, int, int, int]] = field(default_factory=list)
    extra_differences: int = 0
    time: int = -1


@dataclass(slots=True)
class SegmentScan:
    """What a broker would meet if it recovered a segment after a crash (``LogSegment.recover``).

    ``indexed``: its ``.index`` is there. ``next_offset`` follows its last whole batch, ``records`` are those of whole
    batches. ``cut``: the byte at which recovery would cut the file, -1 for none; ``cut_offset`` and ``cut_records`` say
    where the log would end then and how many records would stay. ``poison``: markers of an unknown type before the cut,
    ``(position, offset, producer_id, type)`` each. ``undecided``: in words, what keeps this from being certain.
    """

    base_offset: int
    size: int
    indexed: bool
    next_offset: int
    records: int = 0
    cut: int = -1
    cut_reason: str = ""
    cut_offset: int = -1
    cut_records: int = 0
    poison: list[tuple[int, int, int, int]] = field(default_factory=list)
    undecided: str = ""


@dataclass(slots=True)
class CopyFacts:
    """Everything known of one copy of a partition (``log_dir``, topic, partition) after it was read once.

    ``segments`` names the segment files (relative to the log directory) that column ``segment`` of the tables points
    into, -1 being none. ``coordinator_log`` are the records of ``__transaction_state``, packed; ``watched_offsets`` is
    what those of ``__consumer_offsets`` came to. ``sums`` are the offset accounting and volumes, see :data:`SUMS`.
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
    scans: list[SegmentScan] = field(default_factory=list)
    log_start: int = 0
    log_end: int = 0
    log_start_known: bool = True
    high_watermark: int | None = None
    recovery_point: int | None = None
    cleaner_offset: int | None = None
    last_leader_epoch: int = -1
    broker_time: int = -1
    any_time: int = -1
    sums: dict[str, int] = field(default_factory=dict)
    events: np.ndarray = field(default_factory=lambda: np.empty(0, EVENT))
    dropped_events: dict[int, int] = field(default_factory=dict)
    transactions: np.ndarray = field(default_factory=lambda: np.empty(0, TRANSACTION))
    producers: np.ndarray | PackedRows = field(default_factory=lambda: np.empty(0, PRODUCER))
    aborted: np.ndarray = field(default_factory=lambda: np.empty(0, ABORTED))
    snapshots: list[SnapshotLink] = field(default_factory=list)
    errors: list[DecodeError] = field(default_factory=list)
    tables: dict[str, pa.Table] = field(default_factory=dict)
    coordinator_log: CoordinatorLog | None = None
    watched_offsets: WatchedOffsets | None = None
    digests: dict[str, np.ndarray] | PackedColumns = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)

    def file(self, segment: int) -> str | None:
        """The name of a segment's file, null for -1."""
        return self.segments[segment] if 0 <= segment < len(self.segments) else None

    @property
    def log_key(self) -> tuple[str, str, int]:
        """What copies of the same log share: cluster, topic, partition."""
        return (self.join_key, self.topic, self.partition)

    @property
    def cut_short(self) -> bool:
        """Whether files at the end of a log directory's copy are not there, so that nothing follows from what is
        missing: no segment at all, or less than checkpoints and snapshots of a broker that shut down promise."""
        if self.text or self.state.get("live"):
            return False
        promised = max(0, self.high_watermark or 0, self.recovery_point or 0, *(s.offset for s in self.snapshots))
        return not self.segments or (self.clean_shutdown and promised > self.log_end)

    @property
    def ends_early(self) -> bool:
        """Whether what is known of this log breaks off before its end."""
        return bool(self.state.get("ends_early")) or self.cut_short

    @property
    def starts_late(self) -> bool:
        """Whether the log may have begun before its first segment: brokers raise the first leader epoch with it."""
        epochs = self.state.get("leader_epochs") or ()
        first = epochs[0][1] if epochs else -1 if self.last_leader_epoch >= 0 else self.log_start
        return not self.log_start_known or first < self.log_start

    @property
    def absent(self) -> list[tuple[int, int]]:
        """Offsets (from, to) that are missing between two segments, where nothing was cleaned: those of a segment file
        that is lost, or was not copied."""
        holes = self.events[self.events["kind"] == Kind.OFFSET_HOLE]
        starts = ((int(e["a"]), int(e["base_offset"]), int(e["segment"])) for e in holes if e["position"] == 0)
        return [(start, end) for start, end, segment in starts if self.segment_bases[segment] == end]

    @property
    def indexed(self) -> frozenset[int]:
        """The numbers of the segments that were copied with an index of any kind."""
        return frozenset(self.state.get("indexed_segments", () if self.text else range(len(self.segments))))

    @property
    def rank(self) -> tuple[int, int]:
        """Orders copies: the highest (last leader epoch, log end) is the leader copy."""
        return (self.last_leader_epoch, self.log_end)


# Names in CopyFacts.sums. *_offsets count offsets of [log_start, log_end); bytes and batches count what was read.
SUMS = (
    "bytes_total", "bytes_decoded", "bytes_skipped", "bytes_error", "batches", "records", "data_offsets",
    "marker_offsets", "hole_offsets_intact", "hole_offsets_cleaned", "producers_peak", "cached_batches_peak",
)  # fmt: skip

SEQUENCE_FREE_TOPICS = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)
