"""Events: oddities that were noticed while a replica was read and replayed. Rules decide which are findings.

Offsets, positions and sizes are as in the log, times ms since the epoch; -1 means absent throughout.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple, TypedDict, cast

import numpy as np


class EventKind(IntEnum):
    """Kinds of events. :data:`FIELDS` names the columns that each has beyond the common ones."""

    SEQUENCE_GAP = 1
    SEQUENCE_OVERLAP = 2
    SEQUENCE_RESET = 3
    BUMP_NONZERO = 4
    FIRST_NONZERO = 5
    EPOCH_REGRESSION = 6
    MARKER_EPOCH_REGRESSION = 7
    COORDINATOR_EPOCH_REGRESSION = 8
    PLAIN_IN_TRANSACTION = 9
    IDLE_BEYOND_EXPIRY = 10
    EPOCH_STORM = 11
    TIMESTAMP_BEHIND = 12
    TIMESTAMP_AHEAD = 13
    EPOCH_RESERVED = 14
    SEQUENCE_RESUMED = 15
    SENT_AGAIN = 16
    CRC = 20
    OFFSET_HOLE = 21
    OFFSETS_NOT_INCREASING = 22
    OUTSIDE_SEGMENT = 23
    LEADER_EPOCH_DECREASE = 24
    LEADER_EPOCH_CHECKPOINT = 25
    HEADER_FLAW = 26
    COUNT_BELOW_SPAN = 27
    LEFTOVER_FIELDS = 28
    INDEX_ENTRY = 30
    TIME_INDEX_ENTRY = 31
    RECORD_FLAW = 40
    NULL_KEY = 41
    BATCH_TIMESTAMP = 42
    RECORD_TIMESTAMP = 43


class Event(TypedDict, total=False):
    """One event. The first ten columns locate it: the batch, or for an index the byte of the entry in its file."""

    kind: int
    segment: int  # number of the segment file (ReplicaFacts.segments)
    position: int
    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    timestamp: int  # the batch's largest, as stored
    time: int  # time(b) of rules.md without its cap
    leader_epoch: int
    # sequences and epochs
    answer: int  # of a leader by the state that the batches before left (auditor.model.policies), 0: it accepts
    expected_sequence: int
    found_sequence: int
    previous_last_offset: int  # of the producer's batch before; OFFSETS_NOT_INCREASING: of the log's batch before
    previous_leader_epoch: int  # of the producer's batch before
    previous_time: int  # time(b) of the producer's batch before
    previous_epoch: int
    stored_base_offset: int  # of the first stored batch with these sequences, where still known
    context: int  # the bits below
    known_epoch: int  # the highest epoch before, with its offset and the leader epoch there
    known_epoch_offset: int
    known_leader_epoch: int
    known_coordinator_epoch: int  # of the marker at known_marker_offset
    known_marker_offset: int
    coordinator_epoch: int
    epochs: int  # counted within the window, from first_epoch on
    first_epoch: int
    transaction_first_offset: int  # of the producer's open transaction
    idle_ms: int
    broker_time: int  # the broker-written time that it is compared with: before it; TIMESTAMP_AHEAD: after it
    # batches and segments
    stored_crc: int
    first_missing_offset: int
    segment_base_offset: int
    next_segment_base_offset: int  # -1: no segment follows
    expected_leader_epoch: int  # that of a batch before, or what the checkpoint gives
    flaws: int  # FLAW_* bits of the header; RECORD_FLAW: RECORD_* bits
    record_count: int  # as declared
    span: int  # offsets from the batch's first to its last
    # indexes
    entry_offset: int
    entry_position: int
    entry_timestamp: int
    fault: int  # a number in INDEX_FAULTS
    maybe_cut_off: int  # 1: the entry may lie behind the end of the index, where a truncation left its bytes; else 0
    larger_last_offset: int  # last offset of the batch with a larger timestamp
    # records
    record_index: int  # of the first culprit in its batch
    records_present: int
    records_declared: int
    cause: int  # why a leader would have refused the batch (auditor.model.batch_validation), 0: it would have taken it
    null_keys: int
    found_max_timestamp: int  # the largest among the records
    found_base_timestamp: int  # the first record's
    base_timestamp: int  # as stored
    min_timestamp: int  # the smallest among the records
    max_timestamp: int


SEQUENCE = ("answer", "expected_sequence", "found_sequence", "previous_last_offset", "previous_leader_epoch", "context")
KNOWN_EPOCH = ("answer", "known_epoch", "known_epoch_offset", "known_leader_epoch")
FIELDS: dict[EventKind, tuple[str, ...]] = {
    EventKind.SEQUENCE_GAP: (*SEQUENCE, "previous_time"),
    EventKind.SEQUENCE_OVERLAP: (*SEQUENCE, "stored_base_offset"),
    EventKind.SEQUENCE_RESET: (*SEQUENCE, "previous_time"),
    EventKind.BUMP_NONZERO: (*SEQUENCE, "previous_epoch"),
    EventKind.SEQUENCE_RESUMED: SEQUENCE,  # continues from before a repetition or a fencing
    EventKind.FIRST_NONZERO: ("answer", "found_sequence", "context"),
    # the same records as a batch of the producer's epoch before
    EventKind.SENT_AGAIN: ("previous_epoch", "previous_last_offset", "stored_base_offset"),
    EventKind.EPOCH_REGRESSION: KNOWN_EPOCH,
    EventKind.MARKER_EPOCH_REGRESSION: KNOWN_EPOCH,
    EventKind.COORDINATOR_EPOCH_REGRESSION: (
        "answer",
        "known_coordinator_epoch",
        "coordinator_epoch",
        "known_marker_offset",
    ),
    EventKind.PLAIN_IN_TRANSACTION: ("answer", "transaction_first_offset", "previous_leader_epoch"),
    EventKind.IDLE_BEYOND_EXPIRY: ("idle_ms", "found_sequence", "previous_last_offset", "broker_time"),
    EventKind.EPOCH_STORM: ("epochs", "first_epoch"),
    EventKind.TIMESTAMP_BEHIND: ("broker_time",),
    EventKind.TIMESTAMP_AHEAD: ("broker_time",),
    EventKind.EPOCH_RESERVED: (),  # transactional data with epoch 32767
    EventKind.CRC: ("stored_crc",),
    EventKind.OFFSET_HOLE: ("first_missing_offset",),
    EventKind.OFFSETS_NOT_INCREASING: ("previous_last_offset",),
    EventKind.OUTSIDE_SEGMENT: ("segment_base_offset", "next_segment_base_offset"),
    EventKind.LEADER_EPOCH_DECREASE: ("expected_leader_epoch",),
    EventKind.LEADER_EPOCH_CHECKPOINT: ("expected_leader_epoch",),
    EventKind.HEADER_FLAW: ("flaws",),
    EventKind.COUNT_BELOW_SPAN: ("record_count", "span"),
    EventKind.LEFTOVER_FIELDS: (),  # the log's first batch with an epoch or a sequence, but without producer id
    EventKind.INDEX_ENTRY: ("entry_offset", "entry_position", "fault", "maybe_cut_off"),
    EventKind.TIME_INDEX_ENTRY: ("entry_offset", "entry_timestamp", "fault", "maybe_cut_off", "larger_last_offset"),
    EventKind.RECORD_FLAW: ("flaws", "record_index", "records_present", "records_declared", "cause"),
    EventKind.NULL_KEY: ("null_keys", "record_index"),
    EventKind.BATCH_TIMESTAMP: ("found_max_timestamp", "found_base_timestamp", "base_timestamp"),
    EventKind.RECORD_TIMESTAMP: ("min_timestamp", "max_timestamp", "broker_time"),
}

# Bits of ``context`` of SEQUENCE_* and BUMP_NONZERO events.
AFTER_UNREADABLE = 1  # bytes that could not be read lie between the two batches
IN_TRANSACTION = 2  # both batches belong to the same open transaction
STATE_MAY_BE_LOST = 4  # the leader epoch changed between them
# Bits of ``context`` of FIRST_NONZERO events (rules.md, *inherited*), which may have AFTER_UNREADABLE too.
KNOWN_BELOW = 8  # a batch of the producer is below the log start
KNOWN_IN_SNAPSHOT = 16  # a snapshot at or below the batch knows it
SNAPSHOT_DENIES = 32  # a snapshot between the log's first offset and the batch does not know the producer
TOLERANCE_MS = 300_000  # allowed between the clock that checked a record's time and the times in the log
HOLES = (EventKind.OFFSET_HOLE, EventKind.COUNT_BELOW_SPAN)  # whole batches, and some of a batch's records
INDEX_FAULTS = (
    "no batch starts at its position",
    "its offset is not in the batches from its position on",
    "entries do not increase",
    "an earlier record has a larger timestamp",
)

PLACE = {
    "kind": "i2",
    "segment": "i4",
    "position": "i8",
    "base_offset": "i8",
    "last_offset": "i8",
    "producer_id": "i8",
    "producer_epoch": "i4",
    "timestamp": "i8",
    "time": "i8",
    "leader_epoch": "i4",
}
NARROW = dict.fromkeys(
    ("answer", "expected_sequence", "found_sequence", "previous_leader_epoch", "previous_epoch", "known_epoch",
     "known_leader_epoch", "known_coordinator_epoch", "coordinator_epoch", "epochs", "first_epoch", "record_count",
     "expected_leader_epoch", "context", "fault", "maybe_cut_off", "cause"),
    "i4",
)  # fmt: skip
# A table of events has the columns of all kinds; those that a kind lacks are -1.
EVENT = np.dtype([(name, (PLACE | NARROW).get(name, "i8")) for name in Event.__annotations__])
NO_EVENTS = np.empty(0, EVENT)


def _blank_row() -> np.ndarray:
    row = np.empty(1, EVENT)
    for name in EVENT.names or ():
        row[name] = -1
    return row


BLANK = _blank_row()


def blank_events(rows: int) -> np.ndarray:
    """EVENT rows with every field -1."""
    return np.repeat(BLANK, rows)


def hole_of(e: Event) -> tuple[int, int]:
    """The offsets [first, end) in which an event of :data:`HOLES` found records missing."""
    if e["kind"] == EventKind.COUNT_BELOW_SPAN:
        return int(e["base_offset"]), int(e["last_offset"]) + 1
    return int(e["first_missing_offset"]), int(e["base_offset"])


def events_of(table: np.ndarray, *kinds: EventKind) -> Iterator[Event]:
    """The rows of these kinds in order, each with only the columns of its kind."""
    if not len(table):
        return
    for number in np.flatnonzero(np.isin(table["kind"], [int(kind) for kind in kinds])).tolist():
        row = table[number]
        names = (*PLACE, *FIELDS[EventKind(int(row["kind"]))])
        yield cast(Event, {name: row[name].item() for name in names})


class Culprits(NamedTuple):
    """The records of a refused batch that a leader would have named (KIP-467), by position from 0, as in
    ``error_records`` of a ProduceResponse.

    ``records``: the number in the batch, ``declared``: the number in its header; ``base_sequence`` is -1 for none.
    ``null_keys``: without a key; ``flawed``: malformed; ``old``: stamped below -1, or too far behind the broker's
    clock; ``ahead``: an hour or more ahead of it, with their timestamps (ms). ``left_out``: the number of further ones.
    """

    records: int
    declared: int
    base_sequence: int
    null_keys: tuple[int, ...] = ()
    flawed: tuple[int, ...] = ()
    old: tuple[int, ...] = ()
    ahead: tuple[tuple[int, int], ...] = ()
    left_out: int = 0
