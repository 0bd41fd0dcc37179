"""A producer's first judged batch compared with what lies below it: batches below the log start, or a snapshot there.

What a snapshot at or above the first stored segment says is what the broker knew: from there on every batch is in the
files, so the first judged one is as provable as any other (semantics 6.2).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from auditor.base.compiled import kernel
from auditor.base.numbers import SEQUENCES
from auditor.facts.events import IN_TRANSACTION, STATE_MAY_BE_LOST, Kind, blank_events
from auditor.facts.replica_facts import SEQUENCE_FREE_TOPICS, ReplicaFacts
from auditor.model import producers
from auditor.model.policies import INVALID_PRODUCER_EPOCH, OK, Policy
from auditor.replay.producers.producer_columns import column
from auditor.replay.producers.snapshot_chain import OPEN, Known, Stored
from auditor.replay.producers.state import Replay

STATE = ("producer_epoch", "last_sequence", "last_offset", "last_timestamp")
BELOW = ("below_epoch", "below_last_sequence", "below_last_offset", "below_timestamp")
PLACES = {
    "segment": "segment",
    "position": "position",
    "base_offset": "offset",
    "last_offset": "last_offset",
    "producer_epoch": "epoch",
    "timestamp": "timestamp",
    "time": "time",
    "leader_epoch": "leader_epoch",
}


class Before(NamedTuple):
    """What was known of one producer right before its first judged batch; ``offset``: of its last batch,
    ``open_since``: the first offset of its open transaction by a snapshot, -1 where none says so."""

    epoch: int
    sequence: int
    offset: int
    timestamp: int
    open_since: int


def judge(facts: ReplicaFacts, replay: Replay, sound: list[Stored]) -> None:
    """Adds the events of first batches that do not follow from what was known, and takes away the FIRST_NONZERO of
    those and of all that a snapshot bears out. ``sound``: the snapshots by offset. Cleaned or damaged logs are left.
    """
    params = replay.log.params[0]
    if facts.topic in SEQUENCE_FREE_TOPICS or params["intact_from"] > 0 or facts.absent:
        return
    if replay.progress["unreadable_ordinal"] >= 0 or not facts.segment_bases:
        return
    if not _anything_known(facts, replay, sound):
        return
    rows, known, by_snapshot = _known(facts, replay, sound)
    first = {name: column(replay, f"first_{name}")[rows] for name in (*PLACES.values(), "sequence")}
    ids = column(replay, "producer_id")[rows]
    answers = _answers(ids, known, first, replay.log.policy)
    follows = answers == OK
    said = []
    for k in np.flatnonzero(~follows).tolist():
        before = Before(*(int(column_[k]) for column_ in known))
        row = {name: int(values[k]) for name, values in first.items()}
        if _marker_between(facts, int(ids[k]), before, row["offset"]):
            continue
        event = _event(facts, int(ids[k]), int(answers[k]), row, before, int(params["expiration_ms"]))
        if event is not None:
            said.append(event)
    judged = np.concatenate([ids[follows & by_snapshot], np.array([e["producer_id"][0] for e in said], np.int64)])
    explained = (facts.events["kind"] == Kind.FIRST_NONZERO) & np.isin(facts.events["producer_id"], judged)
    events = np.concatenate([facts.events[~explained], *said])
    facts.events = events[np.lexsort((events["position"], events["segment"]))]


def _anything_known(facts: ReplicaFacts, replay: Replay, sound: list[Stored]) -> bool:
    """Whether something may be known from before a first batch: from batches below the log start, or by a snapshot
    that is not newer than all first batches. Of most replicas nothing is."""
    if replay.progress["below"] or not sound:
        return bool(replay.progress["below"])
    used = int(replay.producers.meta[0])
    judged = replay.born["first_offset"][:used][replay.live["batches"][:used] > 0]
    newest = min(int(judged.max(initial=-1)), facts.log_end)
    return any(facts.segment_bases[0] <= snapshot.offset <= newest for snapshot in sound)


def _known(facts: ReplicaFacts, replay: Replay, sound: list[Stored]) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """Rows of producers with judged batches of which something is known from before, the columns of STATE of it, and
    whether a snapshot says it."""
    rows = np.flatnonzero(column(replay, "batches") > 0)
    offset, ids = column(replay, "first_offset")[rows], column(replay, "producer_id")[rows]
    known = [column(replay, name)[rows].astype(np.int64) for name in BELOW]
    open_since = np.full(len(rows), -1, np.int64)
    by_snapshot = np.zeros(len(rows), np.bool_)
    for snapshot in sound:
        if not facts.segment_bases[0] <= snapshot.offset <= facts.log_end:
            continue
        entries = Known(snapshot.entries)
        there = entries.rows(ids)
        newer = (there >= 0) & (snapshot.offset <= offset) & (snapshot.offset > known[2])
        at = there[newer]
        contradicts = entries.column("last_offset", at) >= facts.log_start  # a batch that the log does not have
        by_snapshot[newer] |= ~contradicts
        for values, name in zip(known, STATE, strict=True):
            values[newer] = np.where(contradicts, values[newer], entries.column(name, at))
        open_since[newer] = np.where(contradicts, -1, entries.column(OPEN, at))
    known.append(open_since)
    sure = (known[0] >= 0) & (known[1] >= 0)
    return rows[sure], [values[sure] for values in known], by_snapshot[sure]


def _answers(ids: np.ndarray, known: list[np.ndarray], first: dict[str, np.ndarray], policy: Policy) -> np.ndarray:
    """What a leader that knows just that of each producer answers to its first batch. Cost: a row a producer."""
    table = producers.new_producers(max(len(ids), 1), policy.cached_batches)
    answers = np.empty(len(ids), np.int64)
    epoch, sequence, offset, timestamp, _ = known
    _ask(table, policy, (ids, epoch, sequence, offset, timestamp), (first["epoch"], first["sequence"]), answers)
    return answers


@kernel
def _ask(p, policy, known, first, answers):  # type: ignore[no-untyped-def]
    ids, epochs, sequences, offsets, times = known
    for k in range(len(ids)):
        row = producers.insert(p, ids[k])
        producers.set_epoch(p, row, epochs[k])
        producers.remember_batch(p, row, sequences[k], offsets[k], 0, times[k])
        epoch, sequence = first[0][k], first[1][k]
        # Of its batch the first sequence alone is compared; what a transaction was open for is asked elsewhere.
        answers[k] = producers.check_append(p, row, policy, epoch, sequence, sequence, True)


def _marker_between(facts: ReplicaFacts, pid: int, before: Before, offset: int) -> bool:
    """Whether a marker raised the producer's epoch in between: then the batch is judged against that one already."""
    t = facts.transactions
    mine = (t["producer_id"] == pid) & (t["marker_offset"] > before.offset) & (t["marker_offset"] < offset)
    return bool(np.any(t["marker_epoch"][mine] > before.epoch))


def _event(
    facts: ReplicaFacts, pid: int, answer: int, first: dict[str, int], before: Before, expiration_ms: int
) -> np.ndarray | None:
    """What is odd about the first batch; None where an event at it says so already."""
    kind, expected = _what(answer, first, before)
    at = facts.events["base_offset"] == first["offset"]
    if bool(np.any(at & np.isin(facts.events["kind"], (int(kind), int(Kind.SEQUENCE_OVERLAP))))):
        return None
    event = blank_events(1)
    for name, source in PLACES.items():
        event[name] = first[source]
    event["kind"], event["producer_id"], event["answer"] = int(kind), pid, answer
    if kind == Kind.EPOCH_REGRESSION:
        event["known_epoch"], event["known_epoch_offset"] = expected, before.offset
        return event
    event["expected_sequence"], event["found_sequence"] = expected, first["sequence"]
    event["previous_last_offset"] = before.offset
    if kind in (Kind.SEQUENCE_GAP, Kind.SEQUENCE_RESET):
        event["previous_time"] = before.timestamp
    elif kind == Kind.BUMP_NONZERO:
        event["previous_epoch"] = before.epoch
    forgotten = expiration_ms > 0 and first["timestamp"] - before.timestamp >= expiration_ms
    event["context"] = STATE_MAY_BE_LOST if forgotten else 0
    if kind == Kind.SEQUENCE_GAP and _in_transaction(facts, pid, first["offset"], before):
        event["context"] |= IN_TRANSACTION
    return event


def _in_transaction(facts: ReplicaFacts, pid: int, offset: int, before: Before) -> bool:
    """Whether the batch at ``offset`` went on with a transaction that was open before it; then the hole is its own."""
    t = facts.transactions
    its = (t["producer_id"] == pid) & (t["first_offset"] <= offset) & (t["last_offset"] >= offset)
    was_open = (before.open_since >= 0) & (t["prev_marker_offset"] <= before.offset)
    its &= (t["first_offset"] >= 0) & ((t["first_offset"] < offset) | was_open)
    t["gap_offset"][its & (t["gap_offset"] < 0)] = offset
    return bool(np.any(its))


def _what(answer: int, first: dict[str, int], before: Before) -> tuple[Kind, int]:
    """The kind of its event, by what a leader answers, and what was expected."""
    if answer == INVALID_PRODUCER_EPOCH:
        return Kind.EPOCH_REGRESSION, before.epoch
    if first["epoch"] > before.epoch:
        return Kind.BUMP_NONZERO, 0
    expected = int(producers.next_sequence(before.sequence))
    if first["sequence"] == 0:
        return Kind.SEQUENCE_RESET, expected
    ahead = (first["sequence"] - expected) % SEQUENCES < SEQUENCES // 2
    return (Kind.SEQUENCE_GAP if ahead else Kind.SEQUENCE_OVERLAP), expected
