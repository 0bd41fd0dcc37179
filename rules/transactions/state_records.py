"""The records of one partition of ``__transaction_state``, looked at by column: only what is odd becomes an object."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import numpy as np

from auditor.facts.coordinator_log import (
    COMPLETE_ABORT,
    EMPTY,
    PREPARE_ABORT,
    STATES,
    TOMBSTONE,
    Columns,
    CoordinatorLog,
)
from auditor.model.transaction_states import TransactionState, TransactionValue, value_problem
from auditor.rules.seen.coordinator_history import Entry
from auditor.rules.seen.memo import once
from auditor.rules.seen.view import LogView

TOPIC = "__transaction_state"
OFFSETS = "__consumer_offsets-"
AT_HAND = 2_000  # odd records or steps that are kept for the next rule
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


def kept(log: LogView, find: Callable[[LogView], Iterator[Found]]) -> Iterable[Found]:
    """What several rules ask for: kept for the next one where it is little, else found anew."""
    found = _at_hand(log, find)
    return find(log) if found is None else found


@once
def _at_hand(log: LogView, find: Callable[[LogView], Iterator[Found]]) -> list[Found] | None:
    first = list(itertools.islice(find(log), AT_HAND + 1))
    return first if len(first) <= AT_HAND else None


def alone(log: LogView) -> Iterable[tuple[Entry, list[str]]]:
    """Records that are not sound by themselves, with what is wrong; states that are never written among them."""
    return kept(log, _found_alone)


def _found_alone(log: LogView) -> Iterator[tuple[Entry, list[str]]]:
    found = records(log)
    return iter(()) if found is None else _alone(found, log.leader.log_start)


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


@once
def last_records(log: LogView) -> tuple[Columns, np.ndarray]:
    """The last judged record of every id, as columns by id, and which ids have one; no ids for other logs."""
    found = records(log)
    none: tuple[Columns, np.ndarray] = ({}, np.empty(0, bool))
    return none if found is None else found.last_rows(log.leader.log_start)


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


def last_entries(log: LogView, *states: int) -> Iterator[Entry]:
    """The last record of every id whose partition this is, where it is in one of these states."""
    (columns, there), found = last_records(log), records(log)
    if found is not None:
        yield from found.entries(columns, np.flatnonzero(there & np.isin(columns["state"], states)))
