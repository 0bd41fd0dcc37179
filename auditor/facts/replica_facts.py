"""Facts: everything that reading and replaying one replica of a partition yields, and all that rules may use.

A replica is reduced where it is read: batches become events (oddities), transactions, the producers' final states and
sums. Nothing here judges. Times are ms since the epoch, offsets and sizes as in the log; -1 means absent.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from auditor.base.at_rest import Fields
from auditor.base.errors import DecodeError, FlippedBit
from auditor.facts.batch_sums import BatchSums
from auditor.facts.coordinator_history import CoordinatorHistory
from auditor.facts.coordinator_log import CoordinatorLog
from auditor.facts.events import NO_EVENTS, Culprits, Event, EventKind, events_of
from auditor.facts.offsets import ShareOffset, WatchedOffsets
from auditor.facts.packed import PackedColumns, PackedRows
from auditor.model.policies import ReleaseEvidence

# One row per producer id of this replica: its state at the log end, as a broker would have it, and its history. Columns
# below_*: data below the log start, in files or snapshots only; first_*: its first judged batch; data_*: its last one.
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
NO_PRODUCERS = np.empty(0, PRODUCER)
ZERO_AT_START = frozenset(
    {
        "batches",
        "records",
        "markers",
        "idle_count",
        "max_idle_ms",
        "below_batches",
        "below_in_snapshot",
        "transactional",
    }
)


def blank_producers(rows: int) -> np.ndarray:
    """PRODUCER rows with nothing known."""
    table = np.zeros(rows, PRODUCER)
    for name in PRODUCER.names or ():
        table[name] = 0 if name in ZERO_AT_START else -1
    return table


# One row per transaction of a producer in this replica, in marker order; open ones last, with marker_offset -1.
# first_offset -1: a marker without an open transaction. first_time, last_time are time(b) of rules.md without its cap;
# first_append_time: 1 if the broker stamped the first batch. risen_offset: the first data of a higher epoch without a
# marker between (-1: none); risen_behind, risen_records: the last offset and the number of records before it.
# prior_time: the newest time before its first batch: the newest broker-written one (behind the last fall of the clock),
# or a larger one that a producer wrote after that.
TRANSACTION = np.dtype(
    [
        ("producer_id", "i8"), ("producer_epoch", "i4"), ("last_epoch", "i4"), ("first_offset", "i8"),
        ("last_offset", "i8"), ("first_timestamp", "i8"), ("first_time", "i8"), ("last_timestamp", "i8"),
        ("last_time", "i8"), ("first_leader_epoch", "i4"), ("last_leader_epoch", "i4"), ("batches", "i8"),
        ("records", "i8"), ("bytes", "i8"), ("segment", "i4"), ("position", "i8"), ("gap_offset", "i8"),
        ("marker_offset", "i8"), ("marker_epoch", "i4"), ("commit", "i1"), ("coordinator_epoch", "i4"),
        ("marker_timestamp", "i8"), ("marker_segment", "i4"), ("marker_position", "i8"),
        ("last_stable_offset", "i8"), ("repeated", "i1"), ("prev_marker_offset", "i8"), ("prev_marker_epoch", "i4"),
        ("prev_marker_time", "i8"), ("prev_marker_commit", "i1"), ("from_snapshot", "i1"), ("risen_offset", "i8"),
        ("risen_behind", "i8"), ("risen_records", "i8"), ("first_append_time", "i1"), ("marker_leader_epoch", "i4"),
        ("prior_time", "i8"),
    ]
)  # fmt: skip

# One row per entry of a transaction index; ``position`` is its byte in the index file.
ABORTED = np.dtype(
    [
        ("segment", "i4"),
        ("position", "i8"),
        ("producer_id", "i8"),
        ("first_offset", "i8"),
        ("last_offset", "i8"),
        ("last_stable_offset", "i8"),
    ]
)

# One row per aborted transaction and segment with records that read_committed consumers get from this replica: the
# first and last offset of these and their number; ``entry`` is the row in ABORTED of the entry that ends the search
# before the transaction's own. ``known`` is 0 if the segment's offset index was not readable: the records are then
# those that an offset index may expose.
EXPOSED = np.dtype(
    [
        ("segment", "i4"), ("producer_id", "i8"), ("marker_offset", "i8"), ("first_offset", "i8"),
        ("last_offset", "i8"), ("records", "i8"), ("entry", "i8"), ("known", "i1"),
    ]
)  # fmt: skip

NO_TRANSACTIONS, NO_ABORTED, NO_EXPOSED = np.empty(0, TRANSACTION), np.empty(0, ABORTED), np.empty(0, EXPOSED)

# One row per producer: its newest marker, the time (ms) of the one before, and how many it has.
ENDED = np.dtype(
    [("producer_id", "i8"), ("epoch", "i4"), ("time", "i8"), ("before", "i8"), ("commit", "i1"), ("count", "i4")]
)
COMMITTED = np.dtype([("producer_id", "i8"), ("time", "i8")])  # a COMMIT marker
NOTHING_ENDED, NO_COMMITS = np.empty(0, ENDED), np.empty(0, COMMITTED)
MOST_ENDED = 1_000  # producers of a log whose newest marker is known everywhere: 33 bytes each
MOST_COMMITS = 128  # of a log, 16 bytes each


# One row per sampled broker-written time of this replica, in offset order; ``offset`` is the first one of its batch.
# ``era`` counts how often the clock fell before: a time that is more than FALL_MS below the newest of its era
# begins another one. Rows: the first and the newest time of each era, the first one of each leader epoch and the last
# one before it, and in between at most one a minute, with both ends of longer gaps. Where there are too many, every
# second row in between is removed from the older part of the log, then any older row.
STAMP = np.dtype([("offset", "i8"), ("time", "i8"), ("leader_epoch", "i4"), ("era", "i4")])
NO_STAMPS = np.empty(0, STAMP)
FALL_MS = 1_000  # two readings of one clock, which threads of a broker may write in another order


def marker_per_producer(transactions: np.ndarray, *, first: bool) -> np.ndarray:
    """Return the first or the last marker of each producer as :data:`ENDED` rows.

    At most :data:`MOST_ENDED`: the oldest of the first markers, the newest of the last ones.
    """
    if not len(transactions):
        return NOTHING_ENDED
    rows = transactions[(transactions["marker_offset"] >= 0) & (transactions["repeated"] == 0)]
    markers = np.zeros(len(rows), ENDED)
    columns = ("producer_id", "marker_epoch", "marker_timestamp", "prev_marker_time", "commit")
    for name, column in zip(ENDED.names or (), columns, strict=False):
        markers[name] = rows[column]
    _, which, counts = np.unique(rows["producer_id"], return_inverse=True, return_counts=True)
    markers["count"] = counts[which]
    markers = markers[np.lexsort((rows["marker_offset"], markers["producer_id"]))]
    other = np.ones(len(markers), bool)
    if first:
        other[1:] = markers["producer_id"][1:] != markers["producer_id"][:-1]
    else:
        other[:-1] = markers["producer_id"][1:] != markers["producer_id"][:-1]
    markers = markers[other]
    in_order = markers[np.argsort(markers["time"], kind="stable")]
    return in_order[:MOST_ENDED] if first else in_order[-MOST_ENDED:]


def commits(transactions: np.ndarray) -> np.ndarray:
    """Return up to :data:`MOST_COMMITS` COMMIT markers, evenly spread over the time in which they were written."""
    rows = transactions[(transactions["marker_offset"] >= 0) & (transactions["commit"] == 1)]
    rows = rows[np.argsort(rows["marker_timestamp"], kind="stable")]
    if len(rows) > MOST_COMMITS:
        times = rows["marker_timestamp"]
        rows = rows[np.unique(times.searchsorted(np.linspace(times[0], times[-1], MOST_COMMITS).astype(np.int64)))]
    out = np.zeros(len(rows), COMMITTED)
    out["producer_id"], out["time"] = rows["producer_id"], rows["marker_timestamp"]
    return out if len(out) else NO_COMMITS


LogName = tuple[str, str, int]  # join key of its cluster, topic, partition


def log_of(facts: Any) -> LogName:
    """Return what names the log of a replica, by its facts or its brief."""
    return facts.join_key, facts.topic, facts.partition


# The replay of a replica under other policies.


BYTES_A_PRODUCER, BYTES_A_BATCH = 224, 40  # of a 64-bit JVM with compressed references: an estimate (semantics 2.6)
LEAST_MS = 1_000  # least time between two batches for a rate
SHOWN = 20  # producers of one replica listed as the next to wrap or to run out of epochs

# One row per run of batches (or marker) that would have been answered otherwise: the first of the run, and the number.
VERDICT = np.dtype(
    [
        ("error", "i4"),
        ("producer_id", "i8"),
        ("producer_epoch", "i4"),
        ("segment", "i4"),
        ("position", "i8"),
        ("base_offset", "i8"),
        ("last_offset", "i8"),
        ("base_sequence", "i4"),
        ("last_sequence", "i4"),
        ("known_epoch", "i4"),
        ("known_last_sequence", "i4"),
        ("max_timestamp", "i8"),
        ("transactional", "i1"),
        ("control", "i1"),
        ("batches", "i8"),
        ("records", "i8"),
        ("run_last_offset", "i8"),
        ("stored_before", "i1"),
    ]
)


@dataclass(slots=True)
class ReplicaPolicyOutcome:
    """What one policy would have made of the replica. Sizes are estimates in bytes.

    ``dropped``: the number of verdicts that were not kept; ``forgotten``: batches whose producer id had expired.
    """

    verdicts: np.ndarray
    dropped: int
    producers_peak: int
    bytes_peak: int
    producers_end: int
    bytes_end: int
    forgotten: int


@dataclass(slots=True)
class PolicyOutcomes:
    """One replica under each requested policy, by name, and what holds under all of them.

    ``hours``: hour since the epoch -> (producers that started in it, largest producer id). ``wraps``: how often
    sequences restarted at 0, of plain and transactional producers; ``rates``: the records per hour of all producers of
    either kind, each while it wrote. ``span``: the most sequences of one producer in five consecutive batches.
    ``fastest``: the producers that wrap, or run out of epochs, first. ``newest_time``: the latest time of any
    timestamp.
    """

    by_policy: dict[str, ReplicaPolicyOutcome] = field(default_factory=dict)
    producers_seen: int = 0
    one_batch: int = 0
    span: int = 0
    wraps: tuple[int, int] = (0, 0)
    rates: tuple[float, float] = (0.0, 0.0)
    hours: dict[int, tuple[int, int]] = field(default_factory=dict)
    fastest: list[dict[str, int]] = field(default_factory=list)
    newest_time: int = -1


def state_bytes(producers: int, batches: int) -> int:
    """Estimate a broker's memory for this many producers with this many cached batches in total."""
    return BYTES_A_PRODUCER * producers + BYTES_A_BATCH * batches


class SummedRun(NamedTuple):
    """Records ``first`` to ``last`` (offsets), and their sum in order (:mod:`auditor.replay.reading.record_sums`).

    ``producer_id``: of batches of one transaction, -1 for batches outside of any. ``by_broker``: whether a broker set
    the timestamp of any.
    """

    first: int
    last: int
    producer_id: int
    records: int
    total: int
    by_broker: bool


@dataclass(slots=True)
class SegmentScan:
    """What a broker would find if it recovered a segment after a crash (``LogSegment.recover``).

    ``indexed``: its ``.index`` exists. ``next_offset`` follows its last complete batch, ``records`` are those of
    complete batches. ``cut``: the byte at which recovery would truncate the file, -1 for none; ``cut_offset`` and
    ``cut_records`` are the log end and the number of records after that. ``fatal``: markers of an unknown type before
    the cut, ``(position, offset, producer_id, type)`` each. ``undecided``: in words, why this is uncertain.

    ``largest_time`` (ms, -1: none) is the largest timestamp of its batches, as a broker keeps it, of the batch that
    ends at ``largest_offset`` of producer ``largest_producer``; ``first_time`` that of its first batch. ``horizons``:
    batches with a delete horizon (KIP-534), and the earliest of these, ms. ``controls``: records of its control
    batches. ``plain``: no byte and no batch needed individual treatment, so that ``size`` and ``records`` are the sums
    over its batches. ``overflow``: position and offset of the first batch that ends too far from ``base_offset`` for an
    index, -1 each for none. ``refused``: the byte at which a broker that does not recover it, but looks for its last
    offset, fails: it begins at the last entry of the index; -1 for none (``LogSegment.readNextOffset``). ``sums``: of
    its records in order, None if they were not asked for, if anything is damaged, or if there are too many runs.
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
    fatal: list[tuple[int, int, int, int]] = field(default_factory=list)
    undecided: str = ""
    largest_time: int = -1
    largest_offset: int = -1
    largest_producer: int = -1
    first_time: int = -1
    horizons: int = 0
    first_horizon: int = -1
    controls: int = 0
    plain: bool = True
    overflow: tuple[int, int] = (-1, -1)
    refused: int = -1
    sums: list[SummedRun] | None = None


# Producer snapshots, compared with the replay at their offset.


class Difference(NamedTuple):
    """A field of a producer, ``stored`` in the snapshot and ``replayed``; -1: missing.

    ``name`` is that of a PRODUCER column, or "open", "missing" (only in the replay), "extra" (only in the snapshot),
    "marker_offset" (stored as the last offset is that of the end marker, as 0.11 does); ``last_offset`` is the
    producer's last one.
    """

    producer_id: int
    name: str
    stored: int
    replayed: int
    last_offset: int


@dataclass(slots=True)
class SnapshotLink:
    """One producer snapshot compared with the replay.

    ``offset`` is the snapshot's; ``base`` the newest older snapshot's (or the log start); ``readable`` whether it could
    be decoded; ``comparable`` whether the log from ``base`` on was complete enough to compare; ``entries`` their
    number; ``differences`` at most a few hundred, ``extra_differences`` the number of further ones.

    ``time`` (ms) is the first broker-written one in the log from ``offset`` on, ``next_time`` (ms) that of the next
    batch, whoever wrote it. Of the missing producers, ``unexpired`` are those that cannot have expired, since others
    idle for longer are still present, and ``went_on`` has the last offset of those that wrote on in the same epoch.
    ``by_data`` counts the producers stored with the offset of their last data although an end marker followed.
    """

    file: str
    offset: int
    base: int
    entries: int
    readable: bool
    comparable: bool
    differences: list[Difference] = field(default_factory=list)
    extra_differences: int = 0
    time: int = -1
    next_time: int = -1
    unexpired: frozenset[int] = frozenset()
    went_on: dict[int, int] = field(default_factory=dict)
    by_data: int = 0


# Answers of running brokers (``auditor live``, KIP-664).


@dataclass(slots=True)
class ProducerMemory:
    """What the leader of a partition answered to DescribeProducers, before and after the log was read.

    ``unchanged``: the producers with equal answers, by field; ``ids``: all that it named; ``settled``: ``(producer_id,
    first offset)`` of transactions that were open both times with no coordinator working on them.
    """

    unchanged: list[dict[str, int]] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    settled: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class CoordinatorMemory:
    """Equal answers of the coordinator of a ``__transaction_state`` partition before and after, by transactional id.

    ``asked_at``: time (ms) of the first request.
    """

    transactions: dict[str, Fields]
    asked_at: int


# One replica.


class LargestCreateTime(NamedTuple):
    """The batch with the largest CreateTime (``time``, ms) that no broker-written time of the log follows."""

    time: int
    producer_id: int
    producer_epoch: int
    base_offset: int
    last_offset: int
    segment: int
    position: int


@dataclass(slots=True)
class ReplicaFacts:
    """All facts about one replica of a partition (``log_dir``, topic, partition) after it was read once.

    ``segments`` names the segment files (relative to the log directory) to which column ``segment`` of the tables
    refers, -1 being none; ``indexed_segments`` are the numbers of those with an index of any kind, None if unknown,
    ``abort_indexes`` of those with a ``.txnindex``; ``orphans`` are the indexes without their segment, (base offset,
    file) each. ``leader_epochs`` is the checkpoint: (epoch, start offset) each. ``sums`` are the offset accounting and
    volumes, see :data:`SUMS`.

    ``log_start`` is where the available data starts. A tiered log whose remote part is not in the input starts before
    it, at ``remote_from``, else -1; one whose beginning a scope, or a live audit, excluded at ``unread_from``, else -1.
    ``local_start``: the start of its first segment on the broker's own disk, -1 without any.

    From ``intact_from`` on the log was never compacted. ``first_time`` is time(b) of the first judged batch.
    ``unreadable``: whether bytes could not be read, ``unreadable_at`` the offset of the last of them, ``lost_at`` the
    same for bytes that may have held batches. ``ahead`` is the largest producer time that no broker time follows.
    ``track`` samples the broker-written times (STAMP rows); ``broker_time`` is the largest of them, wherever it is.

    ``coordinator_log`` are the records of ``__transaction_state``, packed; ``watched_offsets`` summarises those of
    ``__consumer_offsets``, ``share_offsets`` those of ``__share_group_state``. ``unreadable_records`` are records of an
    internal topic as (offset, position, error), ``unknown_records`` the errors of those of an unknown type.
    ``digests`` compares its batches with those of other replicas: the headers of all, or of a long log their sums;
    None without other replicas. ``snapshot_producers`` are the producer ids by a snapshot's offset, if replicas are
    compared.

    ``live``: from a running cluster. ``begins_below_lso``: reading started at or below the last stable offset, so that
    no open transaction started before. ``damaged`` are the base offsets of batches with a CRC mismatch, as ranges:
    their records are missing. ``flipped_bits`` has the one bit that explains such a mismatch, ``readings`` the batch's
    fields with it inverted and without. ``unverified_batches`` have a checksum that was not verified, at the offsets
    ``unverified``; ``unlooked_batches`` have records that should have been checked, but are not in a copy.
    ``breaks_off``: reading, or the dump, ended before the log. ``cannot_show`` names the columns that a dump does not
    print, ``may_be_cleaned``: a dump has holes that compaction would explain. ``resume_point``: where a later reading
    may continue; no rule uses it (:mod:`auditor.replay.reading.replica_reader`).
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
    orphans: list[tuple[int, str]] = field(default_factory=list)
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
    ahead: LargestCreateTime | None = None
    track: np.ndarray = field(default_factory=lambda: NO_STAMPS)
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
    digests: PackedColumns | BatchSums | None = None
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
    outcomes: PolicyOutcomes | None = None  # of other policies, if requested
    resume_point: bytes = b""

    def file(self, segment: int) -> str | None:
        """The name of a segment's file; None for -1."""
        return self.segments[segment] if 0 <= segment < len(self.segments) else None

    def is_remote(self, segment: int) -> bool:
        """Whether a segment is in remote storage: changes to a replica's directory do not affect it."""
        return 0 <= segment < len(self.segment_bases) and self.segment_bases[segment] < self.local_start

    @property
    def cut_short(self) -> bool:
        """Whether files at the end of a log directory's replica are missing, so that nothing follows from missing data.

        That is: no segment at all, or less than the checkpoints and snapshots of a cleanly shut down broker promise.
        """
        if self.text or self.live:
            return False
        return not self.segments or (self.clean_shutdown and self.lacks_end)

    @property
    def lacks_end(self) -> bool:
        """Whether checkpoints and snapshots promise more than the log has: it is older than they are, or lost data."""
        return self.promised_end > self.log_end

    @property
    def promised_end(self) -> int:
        """The highest log end that checkpoints and snapshots promise."""
        return max(0, self.high_watermark or 0, self.recovery_point or 0, *(s.offset for s in self.snapshots))

    @property
    def ends_early(self) -> bool:
        """Whether the known part of this log breaks off before its end."""
        return self.breaks_off or self.cut_short

    @property
    def starts_late(self) -> bool:
        """Whether the log may have started before its first segment: brokers raise the first leader epoch's start with
        it."""
        unknown = -1 if self.last_leader_epoch >= 0 else self.log_start
        first = self.leader_epochs[0][1] if self.leader_epochs else unknown
        return not self.log_start_known or first < self.own_start

    @property
    def table_key(self) -> tuple[str | None, int | None, str, str | None, int | None]:
        """The values of ``LOG_KEY``, with which every table row about it starts."""
        return self.cluster_id, self.broker_id, self.log_dir, self.topic, self.partition

    @property
    def own_start(self) -> int:
        """The log start offset that consumers see: that of a tiered log is in remote storage."""
        return next((start for start in (self.remote_from, self.unread_from) if start >= 0), self.log_start)

    @property
    def open_unknown(self) -> bool:
        """Whether transactions may be open that the input does not show: they started in an excluded part, and neither
        a snapshot nor the LSO tells which were open behind it."""
        readable = (s.readable and self.log_start <= s.offset <= self.log_end for s in self.snapshots)
        return self.unread_from >= 0 and not self.begins_below_lso and not any(readable)

    @property
    def absent(self) -> list[tuple[int, int]]:
        """Offsets (from, to) missing between two segments of a log that was not compacted: of a segment file that is
        lost, or was not copied."""
        holes = (e for e in events_of(self.events, EventKind.OFFSET_HOLE) if e["position"] == 0)
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
        """Sort key of replicas: the highest (last leader epoch, log end) is the leader replica.

        A replica that becomes leader notes its epoch in the checkpoint at its log end, before anything is written in
        that epoch. Source: UnifiedLog.assignEpochStartOffset
        """
        took_over = max((epoch for epoch, start in self.leader_epochs if start == self.log_end), default=-1)
        return (max(self.last_leader_epoch, took_over), self.log_end)

    @property
    def settled_end(self) -> int:
        """The log end, without a last batch behind a hole: no checksum covers its base offset, which may be damaged."""
        holes = self.events[self.events["kind"] == EventKind.OFFSET_HOLE] if len(self.events) else self.events
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
# Also in sums: what a leader would have counted in the four counters of KIP-467, in the order of the KIP.
REFUSALS = ("no_key_compacted", "invalid_magic", "invalid_checksum", "invalid_offset_or_sequence")

SEQUENCE_FREE_TOPICS = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)


# One log in its cluster, as far as modules below the rules see it, and results cached per log.


class BoundsFacts(Protocol):
    """The leader replica of a log of the cluster: its broker, and whether it was stopped cleanly with all of it."""

    @property
    def broker_id(self) -> int | None: ...
    @property
    def clean_shutdown(self) -> bool: ...
    @property
    def until(self) -> int: ...


class LeaderlessFacts(Protocol):
    """A time without a leader, ms; ``until`` is None while it lasts."""

    @property
    def since(self) -> int: ...
    @property
    def until(self) -> int | None: ...


class ClockFacts(Protocol):
    """The clocks of a cluster; :class:`auditor.evidence.cluster_clocks.Clocks` describes them."""

    def fell_ms(self, times: np.ndarray, *brokers: int | None) -> np.ndarray: ...
    def ahead_ms(self, one: int | None, other: int | None) -> int: ...
    @property
    def spread_ms(self) -> int: ...


class ClusterFacts(Protocol):
    """What is known of the cluster around a log; :class:`auditor.rules.seen.cluster_view.Cluster` describes it."""

    @property
    def coordinator(self) -> CoordinatorHistory | None: ...
    @property
    def bounds(self) -> Mapping[tuple[str, int], BoundsFacts]: ...
    @property
    def in_sync(self) -> Mapping[tuple[str, int], tuple[int, ...]]: ...
    @property
    def at_once(self) -> bool: ...
    @property
    def leaderless(self) -> Mapping[tuple[str, int], Sequence[LeaderlessFacts]]: ...

    @property
    def clocks(self) -> ClockFacts: ...
    @property
    def has_metadata(self) -> bool: ...
    @property
    def broker_configs(self) -> Mapping[str, Mapping[str, str]]: ...

    def setting(self, topic: str, name: str) -> str | None: ...
    def broker_setting(self, broker_id: int | None, *names: str) -> str | None: ...
    def is_unknown(self, broker_id: int | None, *names: str) -> bool: ...
    def led(self, topic: str, partition: int, leader_epoch: int) -> int | None: ...
    def release(self, broker_id: int | None) -> ReleaseEvidence: ...
    def writer(self, topic: str, partition: int) -> int | None: ...


class LogFacts(Protocol):
    """One log in its cluster; :class:`auditor.rules.seen.view.LogView` describes it."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def leader(self) -> ReplicaFacts: ...
    @property
    def replicas(self) -> list[ReplicaFacts]: ...
    @property
    def cluster(self) -> ClusterFacts: ...
    @property
    def memo(self) -> dict[Hashable, Any]: ...

    def intact_from(self, replica: ReplicaFacts | None = None) -> int: ...
    def events(self, *kinds: EventKind, replica: ReplicaFacts | None = None) -> Iterable[Event]: ...
    def time(self, raw: int) -> int: ...
    def doubt(self, needed_by: int, *, other_clock: bool, committed: bool = False) -> bool: ...


Log = TypeVar("Log", bound=LogFacts)
Given = ParamSpec("Given")
Found = TypeVar("Found")


def once(find: Callable[Concatenate[Log, Given], Found]) -> Callable[Concatenate[Log, Given], Found]:
    """Cache a function of a log, and of replicas or values that can be keys, per log and values.

    Callers share the result, which lives as long as the log's view: it has to be small or bounded.
    """

    @functools.wraps(find)
    def known(log: Log, *values: Given.args, **named: Given.kwargs) -> Found:
        key = (find, *(value.log_dir if isinstance(value, ReplicaFacts) else value for value in values))
        if key not in log.memo:
            log.memo[key] = find(log, *values, **named)
        result: Found = log.memo[key]
        return result

    return known
