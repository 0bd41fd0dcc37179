"""Tables of a replay that kernels fill."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from auditor.base.compiled import kernel
from auditor.base.errors import LAST_MS
from auditor.connectors.codec.batches import FLAW_CRC, FLAW_PRODUCER_EPOCH, FLAW_PRODUCER_SEQUENCE
from auditor.facts.events import EventKind, blank_events
from auditor.facts.replica_facts import PRODUCER, STAMP, TRANSACTION, ZERO_AT_START
from auditor.model import producers as model
from auditor.model.policies import KIP_360, Policy

ATTR_APPEND_TIME, ATTR_TRANSACTIONAL, ATTR_CONTROL = 0x08, 0x10, 0x20  # bits of a batch's attributes


# Kinds of batches in a walk's rows, for every replay.


@kernel
def is_control(batch: np.record) -> bool:
    """Whether a batch has control records, which clients do not get."""
    return batch.magic == 2 and batch.attributes & ATTR_CONTROL != 0


@kernel
def is_marker(batch: np.record) -> bool:
    """Whether a batch ends a transaction: a control batch of type ABORT or COMMIT that names a producer."""
    ends = batch.control_type == 0 or batch.control_type == 1
    return is_control(batch) and batch.producer_id >= 0 and ends


@kernel
def is_foreign(batch: np.record, sequences: bool) -> bool:
    """Whether no producer writes such a batch: its fields say nothing about the named one."""
    missing = FLAW_PRODUCER_EPOCH | (FLAW_PRODUCER_SEQUENCE if sequences else 0)
    return batch.flaws & missing != 0


@kernel
def has_broker_time(batch: np.record, marker: bool, broker_times: bool) -> bool:
    """Whether a broker stamped a batch: a marker, LogAppendTime, or a topic that only brokers write."""
    return marker or broker_times or (batch.magic >= 1 and batch.attributes & ATTR_APPEND_TIME != 0)


@kernel
def first_broker_time(batches: np.ndarray, broker_times: bool) -> int:
    """Return the first broker-written time in BATCH records, -1 without one; broken batches say nothing."""
    for number in range(len(batches)):
        batch = batches[number]
        sound = batch.flaws & FLAW_CRC == 0 and 0 <= batch.max_timestamp <= LAST_MS
        if sound and has_broker_time(batch, is_marker(batch), broker_times):
            return batch.max_timestamp
    return -1


# State of a replay: tables of records that compiled code fills.


MAX_OLD_RUNS = 64  # earlier runs of sequences that one producer's duplicates are looked up in

# What is fixed for a replica. Offsets from ``intact_from`` on were never cleaned. ``has_sequences``: 1 where sequences
# mean something; ``broker_times``: 1 where every record time is the broker's (internal topics); ``is_kraft``: 1 for
# __cluster_metadata, where control batches of other types are.
PARAMS = np.dtype(
    [
        ("log_start", "i8"),
        ("intact_from", "i8"),
        ("has_sequences", "i8"),
        ("broker_times", "i8"),
        ("expiration_ms", "i8"),
        ("is_kraft", "i8"),
    ]
)

# What moves with the log. -1 where nothing is known.
MOVING = (
    "expected_offset",  # the next one, -1 before the first batch
    "leader_epoch",
    "broker_time",  # newest broker-written time
    "any_time",
    "first_time",  # time(b) of the first judged batch
    "unreadable_ordinal",  # of the last batch before bytes that could not be read
    "unreadable_offset",  # the next offset where the last bytes came that could not be read
    "segment",
    "segment_base_offset",
    "next_segment_base_offset",
    "segment_time",  # newest broker-written time of this segment
    "segment_any_time",
    "ahead_time",  # largest producer time since the last broker-written one, and its batch (facts.replica_facts.Ahead)
    "ahead_producer_id",
    "ahead_producer_epoch",
    "ahead_base_offset",
    "ahead_last_offset",
    "ahead_segment",
    "ahead_position",
    "era",  # falls of the clock so far; -1 before the first broker-written time
    "era_newest",  # newest broker-written time behind the last fall, and its batch
    "era_newest_offset",
    "era_newest_leader_epoch",
    "stamp",  # last broker-written time, and its batch
    "stamp_offset",
    "stamp_leader_epoch",
    "prior_time",  # newest time before the batch that is being replayed (TRANSACTION)
)
COUNTED = (
    "ordinal",  # batches seen
    "first_event",  # the rows of events from here on are of the batch that is being replayed
    "events",
    "transactions",
    "open",
    "runs",
    "marked",
    "below",
    "later",
    "stamps",  # rows used of each table
    "batches",
    "records",
    "data_offsets",
    "marker_offsets",
    "holes_intact",
    "holes_cleaned",
    "unreadable_offsets",
    "leftovers",  # 1 once a batch without producer id had an epoch or a sequence
    "flaws",  # those of batches since somebody asked, all together
)
PROGRESS = np.dtype([(name, "i8") for name in (*MOVING, *COUNTED)])

# A run of contiguous sequences that a producer stored earlier; ``older``: the row of the one before, -1 for none;
# ``behind``: bits of auditor.replay.producers.explanations, of what began after it.
RUN = np.dtype([("epoch", "i4"), ("start", "i4"), ("length", "i8"), ("older", "i4"), ("behind", "i1")])

# What is noted beside each producer's state, in tables: a batch should touch few cache lines, and a million producers
# must not take more than they need. LIVE is what every data batch is compared with and changes.
LIVE = np.dtype(
    [
        ("batches", "i8"),
        ("records", "i8"),
        ("data_last_offset", "i8"),
        ("data_timestamp", "i8"),
        ("data_time", "i8"),
        ("active_timestamp", "i8"),
        ("max_idle_ms", "i8"),
        ("ordinal", "i8"),
        ("run_length", "u4"),
        ("run_start", "i4"),
        ("data_last_sequence", "i4"),
        ("data_leader_epoch", "i4"),
        ("open_slot", "i4"),
        ("marked", "i4"),
        ("data_epoch", "i2"),
        ("max_epoch", "i2"),
        ("crowded", "i1"),
        ("transactional", "i1"),
        ("marker_fresh", "i1"),
    ],
    align=True,
)
# What the first judged batch leaves, which few later ones are compared with: first_* mean something once batches > 0.
# zero: 1 where it began at sequence 0; then zero_crc and zero_bytes are of it.
BORN = np.dtype(
    [
        ("first_offset", "i8"),
        ("first_last_offset", "i8"),
        ("first_position", "i8"),
        ("first_timestamp", "i8"),
        ("first_time", "i8"),
        ("first_sequence", "i4"),
        ("first_segment", "i4"),
        ("first_leader_epoch", "i4"),
        ("zero_crc", "u4"),
        ("zero_bytes", "i4"),
        ("below", "i4"),
        ("later", "i4"),
        ("first_epoch", "i2"),
        ("zero", "i1"),
    ],
    align=True,
)
# Of producers that did more than to go on from their first batch (row BORN.later; without one all is as that left it):
# which batches raised the epoch, also that of data alone; the last batch that began at sequence 0, in the epoch
# zero_epoch (-1: none); the run of sequences before the present one (-1: none), and how often it was idle for long.
# While it sends batches of an earlier epoch (again_epoch) again: the age in the cache that each new batch is compared
# with, and how many of those are left.
LATER = np.dtype(
    [
        ("max_epoch_offset", "i8"),
        ("max_data_epoch_offset", "i8"),
        ("max_data_epoch_time", "i8"),
        ("epoch_window_start", "i8"),
        ("zero_time", "i8"),
        ("zero_base_offset", "i8"),
        ("zero_crc", "u4"),
        ("zero_bytes", "i4"),
        ("max_epoch_leader", "i4"),
        ("epoch_window_count", "i4"),
        ("old_run", "i4"),
        ("idle_count", "i4"),
        ("zero_epoch", "i2"),
        ("again_epoch", "i2"),
        ("again_age", "i1"),
        ("again_left", "i1"),
    ],
    align=True,
)
# Of producers with markers (row LIVE.marked), and of those with batches below the log start (row BORN.below).
# Beside each cached batch of a producer: its checksum, and the low 32 bits of its largest timestamp.
CHECKSUM = np.dtype([("crc", "u4"), ("low_time", "u4")])
MARKED = np.dtype(
    [
        ("markers", "i8"),
        ("offset", "i8"),
        ("time", "i8"),
        ("coordinator_offset", "i8"),
        ("coordinator_epoch", "i4"),
        ("epoch", "i2"),
        ("commit", "i1"),
    ],
    align=True,
)
BELOW = np.dtype(
    [("batches", "i8"), ("last_offset", "i8"), ("timestamp", "i8"), ("last_sequence", "i4"), ("epoch", "i2")],
    align=True,
)

# Replay.queue: a heap of the slots of open transactions by first offset, and behind it the free slots. ``slot`` is the
# one at this place of the heap; ``place`` is where this slot stands, ``offset`` the first one of its transaction.
QUEUE = np.dtype([("slot", "i8"), ("place", "i8"), ("offset", "i8")])


# What a batch came to, for the replays of the same batches under other policies
# (auditor.replay.producers.policy_kernel). row: of its producer, -1 where it names none; time: time(b), ms; answer: a
# leader's; kind: one of those below. judged: it lies at or above the log start; seen: its producer wrote before;
# previous_offset: where its data before ended, -1 for none; unreadable_between: bytes since then could not be read;
# stored_before: its sequences touch some that the producer stored before in this epoch. provable and below are filled
# in by auditor.replay.producers.policy_kernel.
STEP = np.dtype(
    [
        ("time", "i8"),
        ("previous_offset", "i8"),
        ("row", "i4"),
        ("last_sequence", "i4"),
        ("answer", "i4"),
        ("kind", "i1"),
        ("judged", "i1"),
        ("seen", "i1"),
        ("unreadable_between", "i1"),
        ("stored_before", "i1"),
        ("provable", "i1"),
        ("below", "i1"),
    ],
    align=True,
)
UNREADABLE, OTHER, DATA, MARKER = 0, 1, 2, 3  # OTHER: of no producer


def _new_row(kind: np.dtype, *zeros: str) -> np.ndarray:
    """One row to copy into a table of this dtype: 0 in the fields ``zeros``, -1 in all others."""
    row = np.zeros(1, kind)
    for name in kind.names or ():
        row[name] = 0 if name in zeros else -1
    return row


NEW_LIVE = _new_row(LIVE, "batches", "records", "run_length", "crowded", "max_idle_ms", "transactional", "marker_fresh")
NEW_BORN = _new_row(BORN, "zero", "zero_crc")
NEW_MARKED = _new_row(MARKED, "markers", "commit")
NEW_TRANSACTION = _new_row(
    TRANSACTION,
    *("batches", "records", "bytes", "commit", "repeated", "from_snapshot"),
    *("risen_records", "first_append_time", "prev_marker_commit"),
)


class LogContext(NamedTuple):
    """Log-wide state of a replay: kernels that need no more are compiled far faster.

    ``policy``: that of the broker, which determines its leader's answers.
    """

    events: np.ndarray  # EVENT; rows not used are blank
    params: np.ndarray  # PARAMS, one row
    progress: np.ndarray  # PROGRESS, one row
    epochs: np.ndarray  # int64, of the leader-epoch checkpoint
    epoch_starts: np.ndarray  # int64
    policy: Policy
    track: np.ndarray  # STAMP


class Replay(NamedTuple):
    """State of one replica's replay."""

    log: LogContext
    producers: model.Producers
    live: np.ndarray  # LIVE, a row beside each row of producers
    born: np.ndarray  # BORN, likewise
    marked: np.ndarray  # MARKED
    below: np.ndarray  # BELOW
    later: np.ndarray  # LATER
    transactions: np.ndarray  # TRANSACTION, those decided
    open: np.ndarray  # TRANSACTION, by slot
    queue: np.ndarray  # QUEUE
    runs: np.ndarray  # RUN
    checksums: np.ndarray  # CHECKSUM[cache size, rows], beside the rings of producers
    found_rows: np.ndarray  # int32, rows of the producers of the batches that come next
    nothing: np.ndarray  # STEP, one row that nobody reads

    @property
    def progress(self) -> np.void:
        """The PROGRESS record, to be read and written."""
        record: np.void = self.log.progress[0]
        return record


EVENTS_OF_A_BATCH = len(EventKind)  # the most that one batch can raise: new_event gives it one row a kind
EVENTS_AT_ONCE = 512
STAMPS = 1024  # rows of a track
TRANSACTIONS_AT_ONCE = 1024
SLOTS = 256
FOUND_AT_ONCE = 64  # producers that are looked up before their batches are replayed


MOST_SPARE_BYTES = 1 << 20  # new ones take less; a point to go on from has all of their rows
_spare: list[Replay] = []  # one at most


def new_replay(params: np.ndarray, epochs: np.ndarray, epoch_starts: np.ndarray, policy: Policy = KIP_360) -> Replay:
    """Return a replay before the first batch. ``params``: PARAMS, one row; then the leader-epoch checkpoint."""
    try:
        replay = _spare.pop()
    except IndexError:
        replay = _first_replay(policy)
    if len(replay.producers.rings) != policy.cached_batches:
        replay = _first_replay(policy)
    model.clear(replay.producers)
    replay.queue[:] = _free_slots(0, len(replay.queue))
    numbers = replay.log.progress.view(np.int64)
    numbers[: len(MOVING)], numbers[len(MOVING) :] = -1, 0
    before = replay.log
    log = LogContext(before.events, params, before.progress, epochs, epoch_starts, policy, before.track)
    return Replay(log, *replay[1:])


def release_tables(replay: Replay) -> None:
    """Release the replay's tables for the next replica that this process reads, unless they have become large.

    Allocating them takes longer than replaying a few batches. There must be no views of them any more. A row is written
    whole when it is used, and event rows are blank once drained: nothing of a replica gets into another's facts.
    """
    tables = (*replay.producers, *replay[2:])
    if not _spare and sum(table.nbytes for table in tables) <= MOST_SPARE_BYTES:
        _spare.append(replay)


def _first_replay(policy: Policy) -> Replay:
    capacity, none = 1024, np.empty(0, np.int64)
    events, progress, track = blank_events(EVENTS_AT_ONCE), np.zeros(1, PROGRESS), np.empty(STAMPS, STAMP)
    return Replay(
        log=LogContext(events, np.zeros(1, PARAMS), progress, none, none, policy, track),
        producers=model.new_producers(capacity, policy.cached_batches),
        live=np.empty(capacity, LIVE),
        born=np.empty(capacity, BORN),
        marked=np.empty(256, MARKED),
        below=np.empty(256, BELOW),
        later=np.empty(256, LATER),
        transactions=np.zeros(TRANSACTIONS_AT_ONCE, TRANSACTION),
        open=np.zeros(SLOTS, TRANSACTION),
        queue=_free_slots(0, SLOTS),
        runs=np.empty(256, RUN),
        checksums=np.empty((policy.cached_batches, capacity), CHECKSUM),
        found_rows=np.empty(FOUND_AT_ONCE, np.int32),
        nothing=np.empty(1, STEP),
    )


def _free_slots(first: int, behind: int) -> np.ndarray:
    """QUEUE rows of free slots."""
    free = np.zeros(behind - first, QUEUE)
    free["slot"] = free["place"] = np.arange(first, behind)
    return free


def used(replay: Replay) -> Replay:
    """Return the replay without spare rows, to be stored and resumed with :func:`with_room`."""
    progress, rows = replay.progress, int(replay.producers.meta[0])
    return replay._replace(
        log=replay.log._replace(track=replay.log.track[: progress["stamps"]]),
        producers=model.used(replay.producers),
        live=replay.live[:rows],
        born=replay.born[:rows],
        marked=replay.marked[: progress["marked"]],
        below=replay.below[: progress["below"]],
        transactions=replay.transactions[:0],
        runs=replay.runs[: progress["runs"]],
        checksums=replay.checksums[:, :rows],
        later=replay.later[: progress["later"]],
    )


def with_room(stored: Replay) -> Replay:
    """Resume what :func:`used` left. Its events and transactions had been taken."""
    replay = stored._replace(
        log=stored.log._replace(track=_longer(stored.log.track, STAMPS)),
        producers=model.grow(stored.producers, 1024),
        transactions=np.zeros(TRANSACTIONS_AT_ONCE, TRANSACTION),
    )
    return ensure_room(replay, 1)


class TableAtRest(NamedTuple):
    """One table of a replay."""

    shape: tuple[int, ...]
    data: bytes


def at_rest(replay: Replay) -> list[TableAtRest]:
    """Return the tables of a replay without spare rows, for :func:`resumed`."""
    tables = (np.ascontiguousarray(table) for table in _tables(used(replay)))
    return [TableAtRest(table.shape, table.tobytes()) for table in tables]


def resumed(replay: Replay, stored: list[TableAtRest]) -> Replay:
    """Return the replay that was stored, of the policy and leader epochs of ``replay``, which is new. Errors:
    ValueError for tables of other sizes."""
    pairs = zip(_tables(replay), stored, strict=True)
    tables = [np.frombuffer(one.data, table.dtype).reshape(one.shape).copy() for table, one in pairs]
    if any(table.ndim != now.ndim for table, now in zip(tables, _tables(replay), strict=True)):
        raise ValueError("other tables")
    events, params, progress, _, _, track, slots, meta, entries, rings, *rest = tables
    log = replay.log._replace(events=events, params=params, progress=progress, track=track)
    before = Replay(log, model.Producers(slots, meta, entries, rings), *rest)
    rows, caches = len(entries), len(replay.producers.rings)
    beside = len(before.live), len(before.born), before.checksums.shape[1], rings.shape[1], int(meta[0])
    counted = {"stamps": track, "marked": before.marked, "below": before.below}
    counted |= {"runs": before.runs, "later": before.later}
    whole = len(params) == len(progress) == 1 and len(meta) == 3 and beside == (rows,) * 5
    if (
        not whole
        or {len(rings), len(before.checksums)} != {caches}
        or any(progress[name][0] != len(table) for name, table in counted.items())
    ):
        raise ValueError("other sizes")
    if len(before.open) > len(before.queue) or not 0 <= progress["open"][0] <= len(before.open):
        raise ValueError("other sizes")
    return with_room(before)


def _tables(replay: Replay) -> list[np.ndarray]:
    log = replay.log
    of_log = (log.events, log.params, log.progress, log.epochs, log.epoch_starts, log.track)
    return [*of_log, *replay.producers, *replay[2:]]


def ensure_room(replay: Replay, rows: int) -> Replay:
    """Return the same replay with room for ``rows`` more producers, open transactions and runs."""
    table, progress = replay.producers, replay.progress
    if _has_room(replay, progress, rows):
        return replay
    if int(table.meta[0]) + rows > len(table.entries):
        table = model.grow(table, _capacity(int(table.meta[0]) + rows))
    capacity = len(table.entries)
    replay = replay._replace(
        producers=table,
        live=_longer(replay.live, capacity),
        born=_longer(replay.born, capacity),
        marked=_longer(replay.marked, int(progress["marked"]) + rows),
        below=_longer(replay.below, int(progress["below"]) + rows),
        later=_longer(replay.later, int(progress["later"]) + rows),
        open=_longer(replay.open, int(progress["open"]) + rows),
        runs=_longer(replay.runs, int(progress["runs"]) + rows),
        checksums=_wider(replay.checksums, capacity),
    )
    if len(replay.open) > len(replay.queue):
        free = _free_slots(len(replay.queue), len(replay.open))
        replay = replay._replace(queue=np.concatenate([replay.queue, free]))
    return replay


def _has_room(replay: Replay, progress: np.void, rows: int) -> bool:
    """Whether nothing has to grow, as for nearly every chunk."""
    capacity = len(replay.producers.entries)
    return (
        int(replay.producers.meta[0]) + rows <= capacity
        and len(replay.live) >= capacity
        and len(replay.born) >= capacity
        and replay.checksums.shape[1] >= capacity
        and int(progress["marked"]) + rows <= len(replay.marked)
        and int(progress["below"]) + rows <= len(replay.below)
        and int(progress["later"]) + rows <= len(replay.later)
        and int(progress["open"]) + rows <= len(replay.open)
        and int(progress["runs"]) + rows <= len(replay.runs)
    )


def take_rows(replay: Replay) -> tuple[np.ndarray, np.ndarray]:
    """Return the events and decided transactions so far, and empty their tables."""
    progress, events, transactions = replay.progress, replay.log.events, replay.transactions
    raised, decided = events[: progress["events"]], transactions[: progress["transactions"]]
    if len(raised):  # numpy takes 40 us to copy no rows of so many columns
        raised = raised.copy()
        events[: len(raised)] = blank_events(len(raised))
    if len(decided):
        decided = decided.copy()
    progress["events"] = progress["transactions"] = 0
    return raised, decided


def _capacity(rows: int) -> int:
    """Room for so many producers, in few steps: copying costs, and memory that was never written to does not."""
    return next((step for step in (1 << 14, 1 << 20) if step >= rows), 1 << (rows - 1).bit_length())


def _longer(table: np.ndarray, rows: int) -> np.ndarray:
    """The table with room for ``rows``; new rows take no memory yet."""
    if rows <= len(table):
        return table
    longer = np.empty(max(rows, 2 * len(table)), table.dtype)
    longer[: len(table)] = table
    return longer


def _wider(table: np.ndarray, rows: int) -> np.ndarray:
    """Likewise a table with a column per row of producers."""
    if rows <= table.shape[1]:
        return table
    wider = np.empty((len(table), rows), table.dtype)
    wider[:, : table.shape[1]] = table
    return wider


# New rows in the tables of a replay: events and producers.


# Kinds of events, as numbers that are no literals: for each literal argument numba would compile a function anew.
SEQUENCE_GAP = np.int64(EventKind.SEQUENCE_GAP)
SEQUENCE_OVERLAP = np.int64(EventKind.SEQUENCE_OVERLAP)
SEQUENCE_RESET = np.int64(EventKind.SEQUENCE_RESET)
SEQUENCE_RESUMED = np.int64(EventKind.SEQUENCE_RESUMED)
SENT_AGAIN = np.int64(EventKind.SENT_AGAIN)
BUMP_NONZERO = np.int64(EventKind.BUMP_NONZERO)
FIRST_NONZERO = np.int64(EventKind.FIRST_NONZERO)
EPOCH_REGRESSION = np.int64(EventKind.EPOCH_REGRESSION)
MARKER_EPOCH_REGRESSION = np.int64(EventKind.MARKER_EPOCH_REGRESSION)
COORDINATOR_EPOCH_REGRESSION = np.int64(EventKind.COORDINATOR_EPOCH_REGRESSION)
PLAIN_IN_TRANSACTION = np.int64(EventKind.PLAIN_IN_TRANSACTION)
IDLE_BEYOND_EXPIRY = np.int64(EventKind.IDLE_BEYOND_EXPIRY)
EPOCH_STORM = np.int64(EventKind.EPOCH_STORM)
TIMESTAMP_BEHIND = np.int64(EventKind.TIMESTAMP_BEHIND)
TIMESTAMP_AHEAD = np.int64(EventKind.TIMESTAMP_AHEAD)
EPOCH_RESERVED = np.int64(EventKind.EPOCH_RESERVED)
CRC = np.int64(EventKind.CRC)
OFFSET_HOLE = np.int64(EventKind.OFFSET_HOLE)
OFFSETS_NOT_INCREASING = np.int64(EventKind.OFFSETS_NOT_INCREASING)
OUTSIDE_SEGMENT = np.int64(EventKind.OUTSIDE_SEGMENT)
LEADER_EPOCH_DECREASE = np.int64(EventKind.LEADER_EPOCH_DECREASE)
LEADER_EPOCH_CHECKPOINT = np.int64(EventKind.LEADER_EPOCH_CHECKPOINT)
HEADER_FLAW = np.int64(EventKind.HEADER_FLAW)
COUNT_BELOW_SPAN = np.int64(EventKind.COUNT_BELOW_SPAN)
LEFTOVER_FIELDS = np.int64(EventKind.LEFTOVER_FIELDS)

NOTHING, ZERO = np.int64(-1), np.int64(0)  # no literals, for the same reason


@kernel
def new_event(log: LogContext, kind: int, batch: np.record, timestamp: int, time: int) -> int:
    """Add an event about a batch in a blank row, with -1 in columns of its kind; return the row.

    A batch has one row per kind: raised again, the kind reuses its row. So ``EVENTS_OF_A_BATCH`` rows are enough for
    whatever a batch can raise.
    """
    progress = log.progress[0]
    row = progress.first_event
    while row < progress.events and log.events[row].kind != kind:
        row += 1
    progress.events = max(progress.events, row + 1)
    event = log.events[row]
    event.kind = kind
    event.segment = progress.segment
    event.position = batch.position
    event.base_offset = batch.base_offset
    event.last_offset = batch.last_offset
    event.producer_id = batch.producer_id
    event.producer_epoch = batch.producer_epoch
    event.timestamp = timestamp
    event.time = time
    event.leader_epoch = batch.partition_leader_epoch
    return row


@kernel
def producer_row(replay: Replay, producer_id: int, found_row: int) -> int:
    """Return the row of a producer, a new one if it was unknown.

    ``found_row``: its row when its batch was first looked up, or -1. LOW_31 changes no row: it shows the compiler that
    none is negative, or it would check at every use whether to count from the end of a table.
    """
    if found_row >= 0:
        return found_row & model.LOW_31
    used_rows = replay.producers.meta[0]
    row = model.insert(replay.producers, producer_id) & model.LOW_31
    if row < used_rows:
        return row
    replay.live[row] = NEW_LIVE[0]
    replay.born[row] = NEW_BORN[0]
    return row


@kernel
def later_row(log: LogContext, table: np.ndarray, born: np.record) -> int:
    """Return the LATER row of a producer, a new one when it first does more than go on from its first batch.

    A new row has what that batch left.
    """
    if born.later < 0:
        row = log.progress[0].later
        log.progress[0].later = row + 1
        born.later = row
        later = table[row]
        later.max_epoch_offset = born.first_offset
        later.max_epoch_leader = born.first_leader_epoch
        later.max_data_epoch_offset = born.first_offset
        later.max_data_epoch_time = born.first_time
        later.zero_epoch = born.first_epoch if born.zero else -1
        later.zero_crc = born.zero_crc
        later.zero_bytes = born.zero_bytes
        later.zero_time = born.first_timestamp
        later.zero_base_offset = born.first_offset
        later.epoch_window_start = 0
        later.epoch_window_count = 0
        later.old_run = -1
        later.idle_count = 0
        later.again_left = 0
    return born.later


# Producers of a replay in the order of its rows: one column at a time, or all of them at once.


NEWEST = frozenset({"last_sequence", "last_offset", "offset_delta"})
STATE = {"producer_epoch": "epoch"} | {
    name: name for name in ("producer_id", "coordinator_epoch", "last_timestamp", "txn_first_offset")
}


def column(replay: Replay, name: str) -> np.ndarray:
    """Return a column of PRODUCER (auditor.facts.replica_facts), or ``markers`` and ``marker_offset``.

    Unknown values are -1 or 0.
    """
    used = int(replay.producers.meta[0])
    p, live, born = replay.producers, replay.live[:used], replay.born[:used]
    if name in STATE:
        values: np.ndarray = getattr(p, STATE[name])[:used]
        return values
    if name in NEWEST:
        newest = getattr(p, name)[np.arange(used), p.newest[:used]]
        return np.where(p.cached[:used] > 0, newest, 0 if name == "offset_delta" else -1)
    if name == "max_data_epoch":
        name = "data_epoch"  # data of a fenced producer does not count
    if name in (live.dtype.names or ()):
        return np.asarray(live[name])
    if name.startswith("below_") and name != "below_in_snapshot":
        return _beside(replay.below, born["below"], name.removeprefix("below_"))
    if name == "idle_count":
        return _beside(replay.later, born["later"], name)
    if name == "markers" or name.startswith("marker_"):
        return _beside(replay.marked, live["marked"], name.removeprefix("marker_"))
    if name.startswith("first_"):
        return np.where(live["batches"] > 0, born[name], -1)
    if name.startswith("max_data_epoch_"):
        out = born["first_" + name.removeprefix("max_data_epoch_")].copy()
        later = np.flatnonzero(born["later"] >= 0)
        out[later] = replay.later[name][born["later"][later]]
        return np.where(live["data_epoch"] >= 0, out, -1)
    assert name == "below_in_snapshot"
    return np.zeros(used, np.int8)


def _beside(table: np.ndarray, rows: np.ndarray, name: str) -> np.ndarray:
    """A column of a table in which only some producers have a row; others have 0 or -1."""
    out = np.full(len(rows), 0 if name in ZERO_AT_START else -1, table.dtype[name])
    present = np.flatnonzero(rows >= 0)
    out[present] = table[name][rows[present]]
    return out


def rows_of_producers(replay: Replay, wanted: slice = slice(None)) -> np.ndarray:
    """Return all columns of PRODUCER as rows: those of :func:`column`, in one pass."""
    chosen = range(int(replay.producers.meta[0]))[wanted]
    out = np.empty(len(chosen), PRODUCER)
    if len(out):
        _fill(out, chosen.start, replay)
    return out


@kernel
def _fill(out: np.ndarray, first: int, replay: Replay) -> None:
    p = replay.producers
    for number in range(len(out)):
        row = first + number
        o, live, born, entry = out[number], replay.live[row], replay.born[row], p.entries[row]
        o["producer_id"], o["producer_epoch"] = entry.producer_id, entry.epoch
        o["coordinator_epoch"], o["last_timestamp"] = entry.coordinator_epoch, entry.last_timestamp
        o["txn_first_offset"] = entry.txn_first_offset
        o["last_sequence"], o["last_offset"], o["offset_delta"] = -1, -1, 0
        if entry.cached > 0:
            newest = p.rings[entry.newest, row]
            o["last_sequence"], o["last_offset"] = newest.last_sequence, newest.last_offset
            o["offset_delta"] = newest.offset_delta
        o["batches"] = live["batches"]
        o["records"] = live["records"]
        o["max_epoch"] = live["max_epoch"]
        o["data_epoch"] = live["data_epoch"]
        o["data_last_sequence"] = live["data_last_sequence"]
        o["data_last_offset"] = live["data_last_offset"]
        o["data_timestamp"] = live["data_timestamp"]
        o["data_time"] = live["data_time"]
        o["max_idle_ms"] = live["max_idle_ms"]
        o["transactional"] = live["transactional"]
        o["max_data_epoch"] = live["data_epoch"]
        _fill_first(o, live, born, replay.later)
        _fill_beside(o, live["marked"], born["below"], replay.marked, replay.below)


@kernel
def _fill_first(o: np.void, live: np.void, born: np.void, table: np.ndarray) -> None:
    """Fill what a first batch and later ones left."""
    first = born if live["batches"] > 0 else NEW_BORN[0]
    o["first_offset"] = first["first_offset"]
    o["first_sequence"] = first["first_sequence"]
    o["first_epoch"] = first["first_epoch"]
    o["first_segment"] = first["first_segment"]
    o["first_position"] = first["first_position"]
    o["first_timestamp"] = first["first_timestamp"]
    o["first_time"] = first["first_time"]
    o["max_data_epoch_offset"], o["max_data_epoch_time"], o["idle_count"] = o["first_offset"], o["first_time"], 0
    if born["later"] >= 0:
        later = table[born["later"]]
        o["max_data_epoch_offset"], o["max_data_epoch_time"] = (
            later["max_data_epoch_offset"],
            later["max_data_epoch_time"],
        )
        o["idle_count"] = later["idle_count"]
    if live["data_epoch"] < 0:
        o["max_data_epoch_offset"], o["max_data_epoch_time"] = -1, -1


@kernel
def _fill_beside(o: np.void, marked_row: int, below_row: int, marked: np.ndarray, below: np.ndarray) -> None:
    """Fill the columns of tables in which only some producers have a row."""
    o["markers"], o["marker_time"] = 0, -1
    if marked_row >= 0:
        m = marked[marked_row]
        o["markers"], o["marker_time"] = m["markers"], m["time"]
    o["below_in_snapshot"], o["below_batches"] = 0, 0
    if below_row >= 0:
        b = below[below_row]
        o["below_batches"], o["below_last_offset"] = b["batches"], b["last_offset"]
        o["below_last_sequence"], o["below_epoch"] = b["last_sequence"], b["epoch"]
        o["below_timestamp"] = b["timestamp"]
    else:
        o["below_last_offset"], o["below_last_sequence"] = -1, -1
        o["below_epoch"], o["below_timestamp"] = -1, -1
