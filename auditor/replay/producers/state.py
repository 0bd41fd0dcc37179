"""The state of a replay: tables of records that compiled code fills."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from auditor.facts.events import Kind, blank_events
from auditor.facts.replica_facts import TRANSACTION
from auditor.model import producers as model
from auditor.model.policies import KIP_360, Policy

MAX_OLD_RUNS = 64  # earlier runs of sequences that one producer's duplicates are looked up in

ATTR_APPEND_TIME = 0x08
ATTR_TRANSACTIONAL = 0x10
ATTR_CONTROL = 0x20

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
    "later",  # rows used of each table
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
# ``behind``: bits of auditor.replay.producers.stored_sequences, of what began after it.
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
    ],
    align=True,
)
# Of producers with markers (row LIVE.marked), and of those with batches below the log start (row BORN.below).
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
# in by auditor.replay.producers.producer_pace.
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


class Log(NamedTuple):
    """What a replay knows of the log whoever wrote it: kernels that need no more are compiled far faster.

    ``policy``: that of the broker, by which its leader's answers are told.
    """

    events: np.ndarray  # EVENT; rows not used are blank
    params: np.ndarray  # PARAMS, one row
    progress: np.ndarray  # PROGRESS, one row
    epochs: np.ndarray  # int64, of the leader-epoch checkpoint
    epoch_starts: np.ndarray  # int64
    policy: Policy


class Replay(NamedTuple):
    """The state of one replica's replay."""

    log: Log
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
    found: np.ndarray  # int32, rows of the producers of the batches that come next
    nothing: np.ndarray  # STEP, one row that nobody reads

    @property
    def progress(self) -> np.void:
        """What moves with the log: the PROGRESS record itself, to be read and written."""
        record: np.void = self.log.progress[0]
        return record


EVENTS_OF_A_BATCH = len(Kind)  # the most that one batch can raise: new_event gives it one row a kind
EVENTS_AT_ONCE = 512
TRANSACTIONS_AT_ONCE = 1024
SLOTS = 256
FOUND_AT_ONCE = 64  # producers that are looked up before their batches are replayed


MOST_SPARE_BYTES = 1 << 20  # new ones take less; a point to go on from has all of their rows
_spare: list[Replay] = []  # one at most


def new_replay(params: np.ndarray, epochs: np.ndarray, epoch_starts: np.ndarray, policy: Policy = KIP_360) -> Replay:
    """A replay before the first batch. ``params``: PARAMS, one row; then the leader-epoch checkpoint."""
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
    log = Log(replay.log.events, params, replay.log.progress, epochs, epoch_starts, policy)
    return Replay(log, *replay[1:])


def let_go(replay: Replay) -> None:
    """The replay is done: the next replica that this process reads has its tables, unless they have become large.

    To allocate them takes longer than to replay a few batches. Nobody may have a view of them any more. A row is
    written whole when it is taken, those of events are blank once they were drained: nothing of a replica gets into
    another's facts.
    """
    tables = (*replay.producers, *replay[2:])
    if not _spare and sum(table.nbytes for table in tables) <= MOST_SPARE_BYTES:
        _spare.append(replay)


def _first_replay(policy: Policy) -> Replay:
    """One with new tables."""
    capacity, none = 1024, np.empty(0, np.int64)
    return Replay(
        log=Log(blank_events(EVENTS_AT_ONCE), np.zeros(1, PARAMS), np.zeros(1, PROGRESS), none, none, policy),
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
        found=np.empty(FOUND_AT_ONCE, np.int32),
        nothing=np.empty(1, STEP),
    )


def _free_slots(first: int, behind: int) -> np.ndarray:
    """QUEUE rows of slots that no transaction has."""
    free = np.zeros(behind - first, QUEUE)
    free["slot"] = free["place"] = np.arange(first, behind)
    return free


def used(replay: Replay) -> Replay:
    """The same with no more rows than it uses: to be kept, and gone on with :func:`with_room`."""
    progress, rows = replay.progress, int(replay.producers.meta[0])
    return replay._replace(
        producers=model.used(replay.producers),
        live=replay.live[:rows],
        born=replay.born[:rows],
        marked=replay.marked[: progress["marked"]],
        below=replay.below[: progress["below"]],
        transactions=replay.transactions[:0],
        runs=replay.runs[: progress["runs"]],
        later=replay.later[: progress["later"]],
    )


def with_room(kept: Replay) -> Replay:
    """What :func:`used` left, to be gone on with. Events and transactions had been taken from it."""
    replay = kept._replace(
        producers=model.grow(kept.producers, 1024), transactions=np.zeros(TRANSACTIONS_AT_ONCE, TRANSACTION)
    )
    return ensure_room(replay, 1)


def ensure_room(replay: Replay, rows: int) -> Replay:
    """The same replay with room for ``rows`` more producers, open transactions and runs."""
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
        and int(progress["marked"]) + rows <= len(replay.marked)
        and int(progress["below"]) + rows <= len(replay.below)
        and int(progress["later"]) + rows <= len(replay.later)
        and int(progress["open"]) + rows <= len(replay.open)
        and int(progress["runs"]) + rows <= len(replay.runs)
    )


def take_rows(replay: Replay) -> tuple[np.ndarray, np.ndarray]:
    """The events and the decided transactions so far; their tables are empty afterwards."""
    progress, events, transactions = replay.progress, replay.log.events, replay.transactions
    found, decided = events[: progress["events"]], transactions[: progress["transactions"]]
    if len(found):  # numpy takes 40 us to copy no rows of so many columns
        found = found.copy()
        events[: len(found)] = blank_events(len(found))
    if len(decided):
        decided = decided.copy()
    progress["events"] = progress["transactions"] = 0
    return found, decided


def _capacity(rows: int) -> int:
    """Room for so many producers, in few steps: copying costs, and memory that was never written to does not."""
    return next((step for step in (1 << 14, 1 << 20) if step >= rows), 1 << (rows - 1).bit_length())


def _longer(table: np.ndarray, rows: int) -> np.ndarray:
    """The table with room for ``rows``; what is new is not yet memory that is used."""
    if rows <= len(table):
        return table
    longer = np.empty(max(rows, 2 * len(table)), table.dtype)
    longer[: len(table)] = table
    return longer
