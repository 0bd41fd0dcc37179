"""The audit's replay of one replica, and the facts that it leaves."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from auditor.base.errors import bounded
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec.batches import FLAW_CRC, UNVERIFIED
from auditor.connectors.codec.damaged_fields import SegmentContext
from auditor.connectors.kafka_names import LEADER_EPOCHS, METADATA_TOPIC, OWN_TOPICS
from auditor.connectors.logdir.files import EpochStarts
from auditor.connectors.logdir.internal_rows import REMOTE_LOG_METADATA
from auditor.facts.batch_sums import joined
from auditor.facts.events import KNOWN_IN_SNAPSHOT, SNAPSHOT_DENIES, EventKind
from auditor.facts.packed import PACK_ABOVE, PackedRows
from auditor.facts.replica_facts import (
    NO_PRODUCERS,
    NO_STAMPS,
    NO_TRANSACTIONS,
    PRODUCER,
    SEQUENCE_FREE_TOPICS,
    TRANSACTION,
    LargestCreateTime,
    ReplicaFacts,
    blank_producers,
)
from auditor.model import producers as model
from auditor.model.policies import KIP_360, Policy
from auditor.replay.producers import kernel, state
from auditor.replay.producers.kernel import note_last, replay_and_note, replay_batches
from auditor.replay.producers.snapshot_chain import OPEN, Chain, IndexedSnapshot, Stored
from auditor.replay.producers.state import Replay, column, rows_of_producers
from auditor.replay.task import FAR, ReplicaTask, as_records

# Bounds of a replica for every replay of it: where the log starts, what was never cleaned, which producers a broker
# may have known before the first stored batch (rules.md, *judged*, *intact*, *inherited*).


INTERNAL_TOPICS = OWN_TOPICS - {REMOTE_LOG_METADATA}


class ReplicaBounds(NamedTuple):
    """Bounds of a replica, fixed before its first batch.

    Offsets are of records; a batch is judged if its last offset is at or above ``log_start``. ``intact_from``: offsets
    below it may have been cleaned. ``sequences``: whether sequences mean something in this topic; ``broker_times``:
    whether every timestamp in it is a broker's; ``kraft``: whether it is ``__cluster_metadata``, which has control
    batches of other types. ``expiration_ms``: producer.id.expiration.ms of its broker.
    """

    log_start: int
    intact_from: int
    sequences: bool
    broker_times: bool
    kraft: bool
    expiration_ms: int


class Inherited(NamedTuple):
    """Producers in snapshots: sorted ids, each with the offset of the first snapshot that has it.

    ``first_snapshot``: offset of the first snapshot above the log's first offset, beyond all offsets without one.
    """

    producer_ids: np.ndarray  # int64
    known_at: np.ndarray  # int64
    first_snapshot: int


def bounds_of(task: ReplicaTask) -> ReplicaBounds:
    """Return the bounds of a replica, by its segments' names, its checkpoints and its topic."""
    topic = task.replica.topic or ""
    return ReplicaBounds(
        log_start_of(task),
        bounded(intact_from(task)),
        topic not in SEQUENCE_FREE_TOPICS,
        topic in INTERNAL_TOPICS,
        topic == METADATA_TOPIC,
        task.expiration_ms,
    )


def log_start_of(task: ReplicaTask) -> int:
    """Return the log start of a replica, by its checkpoint and its first segment."""
    return int(bounded(max([task.log_start or 0, *(s.base_offset for s in task.replica.segments[:1])])))


def unread_from(task: ReplicaTask) -> int:
    """Return the log start if the first segments are not read, -1 if all are."""
    start = max(task.log_start or 0, task.replica.first_offset)
    return start if task.replica.unread and start < log_start_of(task) else -1


def intact_from(task: ReplicaTask) -> int:
    """Return the offset below which records may have been cleaned (rules.md, *intact*).

    The cleaner writes its checkpoint after its work, and a running broker's checkpoints are copied before or after its
    logs: only the active segment, which the cleaner never touches, is certainly intact without a clean shutdown.
    """
    if not task.may_be_cleaned:
        return 0
    segments, checkpoint = task.replica.segments, task.cleaner_offset
    if checkpoint is not None and task.clean_shutdown:
        return checkpoint
    return max(checkpoint or 0, segments[-1].base_offset if segments else 0)


def known_of(task: ReplicaTask, number: int) -> SegmentContext:
    """Return what is known of a segment's end apart from its batches.

    A clean shutdown writes the log's end as recovery point and names a snapshot by it. Nothing is ever missing within a
    controller's log. Source: UnifiedLog.close
    """
    replica, point, end = task.replica, task.recovery_point, -1
    if replica.segments[number].place is None:  # remote ones of different leaders overlap
        if number + 1 < len(replica.segments):
            end = replica.segments[number + 1].base_offset
        elif task.clean_shutdown and any(snapshot.offset == point for snapshot in replica.snapshots):
            end = -1 if point is None else point
    epochs = EpochStarts(task.place, replica.leader_epochs, task.limits.small_file(LEADER_EPOCHS))
    return SegmentContext(end, replica.topic != METADATA_TOPIC, epochs, task.clean_shutdown)


def inherited(stored: Sequence[Stored], begins: int) -> Inherited:
    """Return the producers in the readable snapshots; ``begins``: the log's first offset.

    Cost: a sort of their entries.
    """
    sound = sorted((s for s in stored if s.sound), key=lambda s: s.offset)
    if not sound:
        return Inherited(np.empty(0, np.int64), np.empty(0, np.int64), FAR)
    ids = np.concatenate([np.asarray(s.entries.producer_id, np.int64) for s in sound])
    offsets = np.concatenate([np.full(len(s.entries.producer_id), s.offset, np.int64) for s in sound])
    unique, first = np.unique(ids, return_index=True)
    return Inherited(unique, offsets[first], next((s.offset for s in sound if s.offset >= begins), FAR))


# Facts after the last batch.


AT_ONCE = 16_384  # producers that stay in the processor's cache until each of their columns is packed


def open_rows(replay: Replay) -> np.ndarray:
    """Return the transactions still open, by first offset."""
    if not (count := int(replay.progress["open"])):
        return NO_TRANSACTIONS
    return np.sort(replay.open[replay.queue["slot"][:count]], order="first_offset")


def sums(replay: Replay) -> dict[str, int]:
    """Return volumes and offset accounting."""
    progress, used = replay.progress, int(replay.producers.meta[0])
    return {
        "batches": int(progress["batches"]),
        "records": int(progress["records"]),
        "data_offsets": int(progress["data_offsets"]),
        "marker_offsets": int(progress["marker_offsets"]),
        "hole_offsets_intact": int(progress["holes_intact"]),
        "hole_offsets_cleaned": int(progress["holes_cleaned"]),
        "unreadable_offsets": int(progress["unreadable_offsets"]),
        "producers": used,
        "cached_batches": int(replay.producers.cached[:used].sum()),
    }


def track_of(replay: Replay) -> np.ndarray:
    """Return the sampled broker-written times (STAMP rows), up to the last one."""
    if replay.progress["era"] < 0:
        return NO_STAMPS
    note_last(replay.log)
    return replay.log.track[: replay.progress["stamps"]].copy()


def pending_ahead(replay: Replay) -> LargestCreateTime | None:
    """Return the batch with the largest producer time that no broker-written time follows."""
    progress = replay.progress
    if progress["ahead_time"] < 0:
        return None
    return LargestCreateTime(**{name: int(progress[f"ahead_{name}"]) for name in LargestCreateTime._fields})


def add_snapshot_knowledge(facts: ReplicaFacts, replay: Replay, stored: list[Stored]) -> None:
    """Add to the facts what only snapshots have: producers below the log start, and open transactions."""
    sound = sorted((s for s in stored if s.sound), key=lambda s: s.offset)
    _deny_or_know(facts, sound)
    kernel.judge(facts, replay, sound)
    others = _only_in_snapshots(replay, [s for s in sound if s.offset <= facts.log_end])
    below = _data_in_snapshots(replay, [s for s in sound if s.offset <= facts.log_end])
    facts.producers = _producers(replay, below, others)
    _begin_below(facts, sound)
    if sound and sound[-1].offset <= facts.log_end:
        ghosts = _ghosts(facts, replay, sound[-1])
        if ghosts:
            facts.transactions = np.concatenate([facts.transactions, *ghosts])


def _producers(replay: Replay, below: dict[str, np.ndarray], others: np.ndarray) -> np.ndarray | PackedRows:
    """Producers of the log with what snapshots add, and then ``others``. Many are packed."""
    used = int(replay.producers.meta[0])
    if not used and not len(others):
        return others
    if used + len(others) > PACK_ABOVE:
        parts = (_of_the_log(replay, below, slice(first, first + AT_ONCE)) for first in range(0, used, AT_ONCE))
        return PackedRows(PRODUCER, itertools.chain(parts, [others]))
    rows = _of_the_log(replay, below)
    return np.concatenate([rows, others]) if len(others) else rows


def _of_the_log(replay: Replay, below: dict[str, np.ndarray], wanted: slice = slice(None)) -> np.ndarray:
    rows = rows_of_producers(replay, wanted)
    for name, values in below.items():
        rows[name] = values[wanted]
    return rows


def _deny_or_know(facts: ReplicaFacts, sound: list[Stored]) -> None:
    """Set whether the snapshots at or below each FIRST_NONZERO event have its producer."""
    if not len(facts.events):
        return
    first = np.flatnonzero(facts.events["kind"] == EventKind.FIRST_NONZERO)
    ids, offsets = facts.events["producer_id"][first], facts.events["base_offset"][first]
    flags, begins = np.zeros(len(first), np.int64), min(facts.segment_bases, default=0)
    for snapshot in sound:
        below = snapshot.offset <= offsets
        if snapshot.offset >= begins:  # else what came right behind it is not here
            flags[below] |= SNAPSHOT_DENIES
        flags[below & np.isin(ids, snapshot.entries.producer_id)] |= KNOWN_IN_SNAPSHOT
    facts.events["context"][first] |= np.where(flags & KNOWN_IN_SNAPSHOT, KNOWN_IN_SNAPSHOT, flags)


def _only_in_snapshots(replay: Replay, sound: list[Stored]) -> np.ndarray:
    """PRODUCER rows of those that the log does not show, as the newest snapshot with each has them."""
    if not sound:
        return NO_PRODUCERS
    ids = np.concatenate([np.empty(0, np.int64), *(s.entries.producer_id for s in sound)])
    unknown = np.flatnonzero(~np.isin(ids, column(replay, "producer_id")))
    if not len(unknown):
        return NO_PRODUCERS
    first = np.unique(ids[unknown], return_index=True)[1]
    last = len(unknown) - 1 - np.unique(ids[unknown][::-1], return_index=True)[1]
    rows = unknown[last[np.argsort(first, kind="stable")]]
    out = blank_producers(len(rows))
    out["producer_id"], out["below_in_snapshot"] = ids[rows], 1
    for name, below in COPIED.items():
        stored = np.concatenate([getattr(s.entries, name) for s in sound])[rows]
        out[below] = stored
        out[name if name != "current_txn_first_offset" else "txn_first_offset"] = stored
    return out


def _data_in_snapshots(replay: Replay, sound: list[Stored]) -> dict[str, np.ndarray]:
    """Columns below_* from snapshots for producers of which the log has markers alone; empty without any."""
    if not sound:
        return {}
    bare = np.flatnonzero(
        (replay.live[: int(replay.producers.meta[0])]["batches"] == 0) & (column(replay, "below_batches") == 0)
    )
    out: dict[str, np.ndarray] = {}
    for snapshot in sound if len(bare) else ():
        e = snapshot.entries
        snapshot_index = IndexedSnapshot(e)
        positions = snapshot_index.rows(column(replay, "producer_id")[bare])
        rows, entry_rows = bare[positions >= 0], positions[positions >= 0]
        with_data = e.last_offset[entry_rows] >= 0
        rows, entry_rows = rows[with_data], entry_rows[with_data]
        for name, below in COPIED.items():
            if len(rows) and below.startswith("below_"):
                out.setdefault(below, column(replay, below).copy())[rows] = getattr(e, name)[entry_rows]
        if len(rows):
            out.setdefault("below_in_snapshot", column(replay, "below_in_snapshot").copy())[rows] = 1
    return out


# Columns of a snapshot's entries, and where else they stand in a PRODUCER row.
COPIED = {
    "producer_epoch": "below_epoch",
    "last_sequence": "below_last_sequence",
    "last_offset": "below_last_offset",
    "last_timestamp": "below_timestamp",
    "coordinator_epoch": "coordinator_epoch",
    "current_txn_first_offset": "txn_first_offset",
}


def _begin_below(facts: ReplicaFacts, sound: list[Stored]) -> None:
    """Set the begin of open transactions whose first batches are not here, by the snapshot at the log start."""
    t = facts.transactions
    if facts.own_start >= facts.log_start or not len(t):
        return
    for snapshot in (s for s in sound if s.offset == facts.log_start):
        snapshot_index = IndexedSnapshot(snapshot.entries)
        rows = np.flatnonzero((t["marker_offset"] < 0) & (t["first_offset"] >= 0) & (t["prev_marker_offset"] < 0))
        entry_rows = snapshot_index.rows(t["producer_id"][rows])
        rows, entry_rows = rows[entry_rows >= 0], entry_rows[entry_rows >= 0]
        first, time = snapshot_index.column(OPEN, entry_rows), snapshot_index.column("last_timestamp", entry_rows)
        goes_on = (first >= facts.own_start) & (first < t["first_offset"][rows])
        goes_on &= snapshot_index.column("producer_epoch", entry_rows) == t["producer_epoch"][rows]
        t["first_offset"][rows[goes_on]] = first[goes_on]
        for name in ("first_timestamp", "first_time"):
            t[name][rows[goes_on]] = np.minimum(t[name][rows[goes_on]], time[goes_on])
        t["prior_time"][rows[goes_on]] = -1


def _ghosts(facts: ReplicaFacts, replay: Replay, newest: Stored) -> list[np.ndarray]:
    """Open transactions that only the newest snapshot has, with no marker after it."""
    out = []
    e = newest.entries
    for row in np.flatnonzero(e.current_txn_first_offset >= 0):
        first, pid = int(e.current_txn_first_offset[row]), int(e.producer_id[row])
        log_row = int(model.find(replay.producers, pid))
        if first >= facts.log_start or (log_row >= 0 and _moved_on(replay, log_row, newest.offset)):
            continue
        t = np.zeros(1, TRANSACTION)
        for name in TRANSACTION.names or ():
            t[name] = -1
        t["producer_id"], t["producer_epoch"], t["last_epoch"] = pid, e.producer_epoch[row], e.producer_epoch[row]
        t["first_offset"], t["last_offset"] = first, e.last_offset[row]
        t["first_timestamp"] = t["first_time"] = t["last_timestamp"] = t["last_time"] = e.last_timestamp[row]
        for name in ("batches", "records", "bytes", "commit", "repeated", "risen_records"):
            t[name] = 0
        t["from_snapshot"] = 1
        out.append(t)
    return out


def _moved_on(replay: Replay, row: int, offset: int) -> bool:
    """Whether the log has the transaction itself, or a marker of the producer after the snapshot."""
    o = replay.live[row]
    return bool(o["open_slot"] >= 0 or (o["marked"] >= 0 and replay.marked["offset"][o["marked"]] >= offset))


# Replay of the audit: the compiled replay, the snapshots it passes, and the facts it leaves.


MAX_EVENTS_OF_A_KIND = 10_000  # kept per replica; what is beyond is counted


class AuditReplay:
    """The replay of one replica into its facts.

    ``compacted``: its records may have been cleaned; ``policy``: its broker's; ``noted``: whether what each batch came
    to is needed (:attr:`steps`). ``checkpoint``: epochs and their starts of the leader-epoch checkpoint. Memory: the
    producers' states.
    """

    def __init__(
        self,
        facts: ReplicaFacts,
        bounds: ReplicaBounds,
        stored: list[Stored],
        checkpoint: tuple[np.ndarray, np.ndarray],
        *,
        compacted: bool,
        policy: Policy = KIP_360,
        noted: bool = False,
    ) -> None:
        self.facts, self.bounds, self.stored = facts, bounds, stored
        self.event_counts: dict[int, int] = {}
        self.events: list[np.ndarray] = []
        self.transactions: list[np.ndarray] = []
        self.chain = Chain(stored, bounds.log_start, compacted)
        self.replay = state.new_replay(_params(bounds), *checkpoint, policy)
        self.noted = noted
        self.steps = np.empty(1024 if noted else 0, state.STEP)

    @property
    def broker_time(self) -> int:
        """The newest broker-written time so far, ms."""
        return int(self.replay.progress["broker_time"])

    @property
    def expected(self) -> int:
        """The next offset, -1 before the first batch."""
        return int(self.replay.progress["expected_offset"])

    @property
    def segment(self) -> int:
        """The number of the segment being read."""
        return int(self.replay.progress["segment"])

    def take_flaws(self) -> int:
        """Return the flaws of the batches since the last call, as one bit set."""
        progress = self.replay.progress
        flaws, progress["flaws"] = int(progress["flaws"]), 0
        return flaws & ~UNVERIFIED

    def begin_segment(self, number: int, base_offset: int, after: int) -> None:
        """Begin a segment; ``after`` is the next one's base offset, -1 for none."""
        progress = self.replay.progress
        progress["segment"], progress["segment_base_offset"] = number, bounded(base_offset)
        self.segment_ends(after)
        progress["segment_time"] = progress["segment_any_time"] = -1

    def segment_ends(self, after: int) -> None:
        """Set the base offset of the next segment, -1 for none."""
        self.replay.progress["next_segment_base_offset"] = bounded(after)

    def end_segment(self, after: int) -> None:
        """Note the newest time of the segment."""
        progress = self.replay.progress
        self.facts.segment_times.append(int(max(progress["segment_time"], progress["segment_any_time"])))

    def note_unreadable(self, *, lost: bool, until: int = 0) -> None:
        """Note unreadable bytes here, perhaps with what offsets up to ``until`` had."""
        progress = self.replay.progress
        until = max(until, int(progress["expected_offset"]))
        progress["unreadable_ordinal"], progress["unreadable_offset"] = progress["ordinal"], until
        if lost:
            self.facts.lost_at = until

    def _note_checksums(self, rows: np.ndarray) -> None:
        """Note offsets of batches with a CRC mismatch, and batches whose checksum nobody has verified."""
        flaws = rows[:, walking.FLAWS]
        if not np.bitwise_or.reduce(flaws, initial=0) & (UNVERIFIED | FLAW_CRC):
            return
        damaged = rows[flaws & FLAW_CRC != 0, walking.BASE_OFFSET]
        if len(damaged):
            self.facts.damaged = joined(self.facts.damaged, damaged, damaged)
        unverified = rows[flaws & UNVERIFIED != 0]
        if len(unverified):
            self.facts.unverified_batches += len(unverified)
            self.facts.unverified = joined(
                self.facts.unverified, unverified[:, walking.BASE_OFFSET], unverified[:, walking.LAST_OFFSET]
            )

    def take(self, rows: np.ndarray) -> None:
        """Replay the rows of a walk one by one, stopping at each snapshot's offset to compare it.

        If ``noted``, ``steps`` then has a STEP for each of them, until the next call.
        """
        if self.noted and len(self.steps) < len(rows):
            self.steps = np.empty(2 * len(rows), state.STEP)
        self._note_checksums(rows)
        start, batches = 0, as_records(rows)
        self.chain.date(batches, self.bounds.broker_times)
        while start < len(rows):
            stop = len(rows)
            if self.chain.waiting:
                behind = np.flatnonzero(batches["base_offset"][start:] >= self.chain.next_offset())
                stop = start + int(behind[0]) if len(behind) else stop
                if stop == start:
                    self.chain.compare(self.replay, self.replay.progress["unreadable_ordinal"] < 0)
                    self.chain.date(batches[start:], self.bounds.broker_times)
                    continue
            self.replay = state.ensure_room(self.replay, stop - start)
            if self.noted:
                start = int(replay_and_note(self.replay, batches, start, stop, self.steps))
            else:
                start = int(replay_batches(self.replay, batches, start, stop))
            self._drain()

    def _drain(self) -> None:
        events, transactions = state.take_rows(self.replay)
        if len(events):
            self.keep([events])
        if len(transactions):
            self.transactions.append(transactions)

    def keep(self, batches: Iterable[np.ndarray]) -> None:
        """Keep events up to a number of each kind, and count those beyond."""
        for events in batches:
            for kind in np.unique(events["kind"]) if len(events) else ():
                of_kind = events[events["kind"] == kind]
                room = max(0, MAX_EVENTS_OF_A_KIND - self.event_counts.get(int(kind), 0))
                self.event_counts[int(kind)] = self.event_counts.get(int(kind), 0) + min(room, len(of_kind))
                if len(of_kind) > room:
                    dropped = self.facts.dropped_events
                    dropped[int(kind)] = dropped.get(int(kind), 0) + len(of_kind) - room
                if room:
                    self.events.append(of_kind[:room].copy())  # a slice would keep all of them in memory

    def finish(self, last_base: int) -> None:
        """Fill the facts after every segment; ``last_base``: base offset of the last one.

        To be called last: the replay's tables are reused then.
        """
        facts, progress = self.facts, self.replay.progress
        facts.log_end = max(int(progress["expected_offset"]), facts.log_start, last_base, 0)
        self.chain.finish(self.replay, progress["unreadable_ordinal"] < 0, facts.log_end)
        if self.events:
            events = np.concatenate(self.events)
            facts.events = events[np.lexsort((events["kind"], events["position"], events["segment"]))]
        facts.transactions = open_rows(self.replay)
        if self.transactions:
            facts.transactions = np.concatenate([*self.transactions, facts.transactions])
        facts.snapshots = self.chain.links
        add_snapshot_knowledge(facts, self.replay, self.stored)
        facts.sums = sums(self.replay)
        facts.last_leader_epoch = int(progress["leader_epoch"])
        facts.broker_time, facts.any_time = int(progress["broker_time"]), int(progress["any_time"])
        facts.first_time, facts.intact_from = int(progress["first_time"]), self.bounds.intact_from
        facts.unreadable = bool(progress["unreadable_ordinal"] >= 0)
        facts.unreadable_at = max(0, int(progress["unreadable_offset"])) if facts.unreadable else -1
        facts.ahead = pending_ahead(self.replay)
        facts.track = track_of(self.replay)
        state.release_tables(self.replay)


def _params(bounds: ReplicaBounds) -> np.ndarray:
    params = {
        "log_start": bounds.log_start,
        "intact_from": bounds.intact_from,
        "has_sequences": bounds.sequences,
        "broker_times": bounds.broker_times,
        "expiration_ms": bounds.expiration_ms,
        "is_kraft": bounds.kraft,
    }
    return np.array([tuple(params[name] for name in state.PARAMS.names or ())], state.PARAMS)
