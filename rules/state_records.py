"""The records of one partition of ``__transaction_state``, looked at by column: only what is odd becomes an object.

The model judges each kind of step once: steps that agree in all that it looks at are of one kind, and a sound log of
ten million records has some dozens.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import numpy as np

from auditor.facts.coordinator_log import (
    COMPLETE_ABORT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    STATES,
    TOMBSTONE,
    Columns,
    CoordinatorLog,
    tally,
)
from auditor.model.transaction_states import (
    LAST_EPOCH,
    TransactionState,
    TransactionValue,
    transition_problem,
    value_problem,
)
from auditor.rules.coordinator_history import Entry
from auditor.rules.view import LogView

TOPIC = "__transaction_state"
OFFSETS = "__consumer_offsets-"
KIND_BITS = 22  # of a number of _kinds
AT_HAND = 2_000  # odd records or steps that are kept for the next rule
Step = tuple[Entry, Entry, list[str]]
Found = TypeVar("Found")


def records(log: LogView) -> CoordinatorLog | None:
    """The records of this partition of ``__transaction_state``; None for other logs."""
    history = log.cluster.coordinator
    return history.logs.get(log.partition) if log.topic == TOPIC and history is not None else None


def value(entry: Entry) -> TransactionValue | None:
    """A record as the model's value, None for a tombstone."""
    if entry.state is None:
        return None
    return TransactionValue(
        entry.producer_id,
        entry.producer_epoch,
        entry.timeout_ms,
        TransactionState(entry.state),
        entry.partitions,
        entry.start,
        entry.last_update,
        client_tv=entry.client_version,
    )


def steps(log: LogView) -> Iterable[Step]:
    """Neighbouring intact records of every id where the model finds something wrong in the step between them."""
    found, history = records(log), log.cluster.coordinator
    if found is None or history is None:
        return ()
    intact = history.complete_from.get(log.partition, 1 << 62)
    return _kept(log, "steps", lambda: _steps(found, log.leader.log_start, intact))


def _kept(log: LogView, name: str, find: Callable[[], Iterator[Found]]) -> Iterable[Found]:
    """What several rules ask for: kept for the next one where it is little, else found anew."""
    if name not in log.cache:
        first = list(itertools.islice(find(), AT_HAND + 1))
        log.cache[name] = first if len(first) <= AT_HAND else None
    kept: list[Found] | None = log.cache[name]
    return find() if kept is None else kept


def _steps(found: CoordinatorLog, log_start: int, intact: int) -> Iterator[Step]:
    judged: dict[int, list[str]] = {}
    sound = np.zeros(1 << KIND_BITS, bool)  # kinds in which nothing is wrong
    for columns in found.neighbours(log_start):
        states = columns["state"]
        known = states < len(STATES)
        pairs = (columns["id"][1:] == columns["id"][:-1]) & (columns["offset"][:-1] >= intact)
        pairs &= known[1:] & known[:-1] & ((states[1:] != TOMBSTONE) | (states[:-1] != TOMBSTONE))
        at = np.flatnonzero(pairs)
        of_steps = _kinds(found, columns, at)
        looked_at = np.flatnonzero(~sound[of_steps])
        at = at[looked_at]
        kinds, example, which = np.unique(of_steps[looked_at], return_index=True, return_inverse=True)
        wrong = np.zeros(len(kinds), bool)
        for number, kind in enumerate(kinds.tolist()):
            if kind not in judged:
                old, new = found.entries(columns, slice(at[example[number]], at[example[number]] + 2))
                judged[kind] = transition_problem(value(old), value(new))
                sound[kind] = not judged[kind]
            wrong[number] = bool(judged[kind])
        for row, number in zip(at[wrong[which]].tolist(), which[wrong[which]].tolist(), strict=True):
            old, new = found.entries(columns, slice(row, row + 2))
            yield old, new, judged[int(kinds[number])]


def _kinds(found: CoordinatorLog, columns: Columns, at: np.ndarray) -> np.ndarray:
    """All that :func:`transition_problem` looks at in the step from each row to the next, a number a step."""

    def pair(name: str) -> tuple[np.ndarray, np.ndarray]:
        return columns[name][at].astype(np.int64), columns[name][at + 1].astype(np.int64)

    (old_state, state), (old_epoch, epoch), (old_start, start) = pair("state"), pair("producer_epoch"), pair("start")
    (old_client, client), (old_producer, producer) = pair("client_version"), pair("producer_id")
    old_timeout, timeout = pair("timeout_ms")
    facts = (
        client >= 2, client == old_client, producer == old_producer, old_epoch == LAST_EPOCH, epoch == LAST_EPOCH,
        epoch == 0, timeout == old_timeout, start == old_start, start == columns["last_update"][at + 1],
    )  # fmt: skip
    kind = (old_state + 1) << 4 | (state + 1)
    kind = kind << 3 | (np.clip(epoch - old_epoch, -1, 3) + 1)
    kind = kind << 2 | _relation(found, *pair("set"), state)
    for fact in facts:
        kind = kind << 1 | fact
    return kind


def _relation(found: CoordinatorLog, old: np.ndarray, new: np.ndarray, state: np.ndarray) -> np.ndarray:
    """0 where the sets of partitions are the same, 1 where an Ongoing record adds some, 2 where they differ else."""
    out = np.where(old == new, 0, 2)
    grown = np.flatnonzero((old != new) & (state == ONGOING))
    begun = found.set_sizes(old[grown]) == 0
    out[grown[begun]] = 1
    grown = grown[~begun]
    both, which = np.unique(old[grown] << 32 | new[grown], return_inverse=True)
    within = [found.partitions(one >> 32) <= found.partitions(one & 0xFFFFFFFF) for one in both.tolist()]
    out[grown[np.array(within, bool)[which]]] = 1
    return out


def alone(log: LogView) -> Iterable[tuple[Entry, list[str]]]:
    """Records that are not sound by themselves, with what is wrong; states that are never written among them."""
    found = records(log)
    return () if found is None else _kept(log, "alone", lambda: _alone(found, log.leader.log_start))


def _alone(found: CoordinatorLog, log_start: int) -> Iterator[tuple[Entry, list[str]]]:
    for columns in found.all_pieces():
        state, start = columns["state"], columns["start"]
        idle = (state == EMPTY) | ((state > PREPARE_ABORT) & (state <= COMPLETE_ABORT))
        odd = (columns["producer_id"] < 0) | (columns["producer_epoch"] < 0) | (state > COMPLETE_ABORT)
        odd |= idle & (found.set_sizes(columns["set"]) > 0)
        odd |= (start == -1) != (state == EMPTY)
        odd &= (state != TOMBSTONE) & (columns["offset"] >= log_start)
        for entry in found.entries(columns, np.flatnonzero(odd)):
            stored = value(entry) if entry.state in STATES else None
            problems = ["state_never_written"] if stored is None else value_problem(stored)
            if entry.start < 0 and entry.record_time < 0:  # old text dumps print no start
                problems = [p for p in problems if p != "start_missing"]
            if problems:
                yield entry, problems


def last_records(log: LogView) -> tuple[Columns, np.ndarray]:
    """The last judged record of every id, as columns by id, and which ids have one; no ids for other logs."""
    if "last_records" not in log.cache:
        found = records(log)
        none: tuple[Columns, np.ndarray] = ({}, np.empty(0, bool))
        log.cache["last_records"] = none if found is None else found.last_rows(log.leader.log_start)
    made: tuple[Columns, np.ndarray] = log.cache["last_records"]
    return made


def commit_offsets(found: CoordinatorLog, log_start: int) -> np.ndarray:
    """Which ids have a judged record that names a partition of ``__consumer_offsets``."""
    topics = [number for number, topic in enumerate(found.topics) if (topic + "-").startswith(OFFSETS)]
    ends, elements = found.sets
    having = np.zeros(len(ends), bool)
    having[np.searchsorted(ends, np.flatnonzero(np.isin(elements >> 32, topics)), side="right")] = True
    out = np.zeros(found.id_count, bool)
    for columns in found.all_pieces():
        out[columns["id"][having[columns["set"]] & (columns["offset"] >= log_start)]] = True
    return out


def producer_runs(found: CoordinatorLog, log_start: int) -> np.ndarray:
    """Where an id's judged records begin to have another producer id: rows of id, producer id, piece, row."""
    out = [np.empty((0, 4), np.int64)]
    last_id, last_producer = -1, 0
    for number in range(len(found.pieces)):
        columns = found.piece(number)
        rows = np.flatnonzero((columns["state"] != TOMBSTONE) & (columns["offset"] >= log_start))
        ids, producers = columns["id"][rows], columns["producer_id"][rows]
        new = np.append(last_id, ids[:-1])[: len(ids)] != ids
        new |= np.append(last_producer, producers[:-1])[: len(ids)] != producers
        out.append(np.stack([ids[new], producers[new], np.full(int(new.sum()), number), rows[new]], axis=1))
        if len(ids):
            last_id, last_producer = int(ids[-1]), int(producers[-1])
    return np.concatenate(out)


def raised(columns: Columns) -> np.ndarray:
    """Rows whose epoch is above that of the id's record before, other than by the end of its own transaction."""
    state, epoch = columns["state"][1:], columns["producer_epoch"]
    ended = (state == PREPARE_ABORT) & (columns["client_version"][1:] < 2)
    same = (columns["id"][1:] == columns["id"][:-1]) & (columns["producer_id"][1:] == columns["producer_id"][:-1])
    return np.flatnonzero(same & ((state == EMPTY) | ended) & (epoch[1:] > epoch[:-1])) + 1


def decisions(found: CoordinatorLog) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each id how many transactions were decided, how many aborted, and how many of those by the coordinator.

    A rise of the epoch from the last Ongoing record to the abort (of two, where each end raises it by one) shows that.
    """
    decided, aborted, forced = (np.zeros(found.id_count, np.int64) for _ in range(3))
    for columns in found.neighbours():
        ids, state = columns["id"][1:], columns["state"]
        new = state[1:]
        same = (ids == columns["id"][:-1]) & (columns["producer_id"][1:] == columns["producer_id"][:-1])
        rise = columns["producer_epoch"][1:] - columns["producer_epoch"][:-1]
        by_coordinator = same & (state[:-1] == ONGOING) & (rise >= np.where(columns["client_version"][1:] >= 2, 2, 1))
        abort = new == PREPARE_ABORT
        tally(decided, ids[abort | (new == PREPARE_COMMIT)])
        tally(aborted, ids[abort])
        tally(forced, ids[abort & by_coordinator])
    return decided, aborted, forced


def last_entries(log: LogView, *states: int) -> Iterator[Entry]:
    """The last record of every id whose partition this is, where it is in one of these states."""
    (columns, there), found = last_records(log), records(log)
    if found is not None:
        yield from found.entries(columns, np.flatnonzero(there & np.isin(columns["state"], states)))
