"""What the coordinators wrote of each id, record after record, judged by the model's account of an id.

The model judges each kind of step once: steps that agree in all that it looks at are of one kind, and a sound log of
ten million records has some dozens. Where a record does not follow the one before it, the account is replayed from the
last place behind which nothing older matters.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from auditor.base.numbers import LAST_EPOCH
from auditor.facts.coordinator_log import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    STATES,
    TOMBSTONE,
    Columns,
    CoordinatorLog,
    gaps_before,
)
from auditor.model.transaction_states import Held, IdAccount, Judgement, TransactionValue, step_problem
from auditor.rules.seen.coordinator_history import CoordinatorHistory, Entry
from auditor.rules.seen.view import LogView
from auditor.rules.transactions.state_records import AT_HAND, kept, records, value

KIND_BITS = 21  # of a number of _kinds
LATEST = 64  # records of an id that matter for what its coordinator may have in memory


class Step(NamedTuple):
    """A record that does not follow the one before it: what is wrong, or which records before it are now known to have
    failed."""

    old: Entry
    new: Entry
    problems: list[str]
    failed: tuple[Entry, ...] = ()


def steps(log: LogView) -> Iterable[Step]:
    """The intact records of every id that follow no state which their coordinator can have held."""
    return kept(log, _problems)


def _problems(log: LogView) -> Iterator[Step]:
    return (step for step in kept(log, _all) if step.problems)


def resumed(log: LogView) -> Iterator[Step]:
    """The others: their coordinator went on from before records whose append has failed. Id by id."""
    return (step for step in kept(log, _all) if step.failed)


def may_be_held(history: CoordinatorHistory, transactional_id: str) -> list[TransactionValue]:
    """What a coordinator that has written the last record of an id may have in memory, should appends have failed."""
    found, number = history.place(transactional_id)
    if found is None:
        return []
    columns, span = list(found.rows_of(number))[-1]
    first, *behind = found.entries(columns, slice(max(span.start, span.stop - LATEST), span.stop))
    if any(entry.state is not None and entry.state not in STATES for entry in (first, *behind)):
        return []
    last = behind[-1] if behind else first
    if history.leader_epochs.get(last.partition, -1) > last.leader_epoch:  # it has loaded that record
        return []
    account = IdAccount(value(first), first.leader_epoch, known=False)
    for entry in behind:
        account.take(value(entry), entry.leader_epoch)
    return [held.value for held in account.held() if held.value is not None]


def _all(log: LogView) -> Iterator[Step]:
    found, history = records(log), log.cluster.coordinator
    if found is None or history is None:
        return iter(())
    intact = history.complete_from.get(log.partition, 1 << 62)
    return odd_steps(found, log.leader.log_start, intact)


def odd_steps(found: CoordinatorLog, log_start: int, intact: int) -> Iterator[Step]:
    """The steps at or above ``log_start``, from records at or above ``intact``, that the record before does not
    explain."""
    sieve = _Sieve(found)
    for columns in found.neighbours(log_start):
        states = columns["state"]
        known = states < len(STATES)
        pairs = (columns["id"][1:] == columns["id"][:-1]) & known[1:] & known[:-1]
        gaps = gaps_before(columns, found.damaged)
        lost = gaps[1:] != gaps[:-1]  # records between two rows are in a batch with a CRC mismatch
        at = np.flatnonzero(pairs & ((states[1:] != TOMBSTONE) | (states[:-1] != TOMBSTONE)))
        odd = at[~sieve.sound(columns, at)]
        if not len(odd):
            continue
        whole = (columns["offset"][odd] >= intact) & ~lost[odd]
        parted = np.append(False, ~pairs | lost)  # a piece begins behind a completed transaction, or with another id
        parted[odd[~whole] + 1] = True  # records between may have been cleaned away
        yield from _replayed(found, columns, odd[whole], parted)


def _beginnings(columns: Columns, odd: np.ndarray, parted: np.ndarray) -> np.ndarray:
    """For each odd row the last one up to it from which its id's account can be replayed: the first one known, the last
    one under a coordinator epoch, or a decision that was completed."""
    state, epoch = columns["state"], columns["leader_epoch"]
    decided = (state[:-1] == PREPARE_COMMIT) | (state[:-1] == PREPARE_ABORT)
    completed = decided & (state[1:] >= COMPLETE_COMMIT) & (state[1:] <= COMPLETE_ABORT)
    completed[odd] = False
    once = np.append(state[2:] != state[1:-1], True)  # from one that comes again it is replayed before that
    begins = parted.copy()
    begins[:-1] |= (epoch[1:] != epoch[:-1]) | (completed & ~once)
    begins[1:] |= completed & once
    found: np.ndarray = np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0))[odd]
    return found


def _replayed(found: CoordinatorLog, columns: Columns, odd: np.ndarray, parted: np.ndarray) -> Iterator[Step]:
    """The odd steps, each given by the row of its first record, with what the account says of them. ``parted``: rows
    before which something else may have been."""
    account, reached, told = None, -1, -1
    latest: deque[Entry] = deque(maxlen=AT_HAND)
    for row, begin in zip(odd.tolist(), _beginnings(columns, odd, parted).tolist(), strict=True):
        anew = account is None or begin > reached
        entries = found.entries(columns, slice(begin if anew else reached + 1, row + 2))
        if account is None or anew:
            latest.append(next(entries))
            account = IdAccount(value(latest[-1]), latest[-1].leader_epoch, known=not parted[begin])
            told = begin - 1
        judgement = Judgement([])
        for entry in entries:
            judgement = account.take(value(entry), entry.leader_epoch)
            latest.append(entry)
        reached = row + 1
        failed = min(judgement.failed, row - told, len(latest) - 1)
        told = row if failed else told
        behind = len(latest) - 1
        yield Step(latest[-2], latest[-1], judgement.problems, tuple(itertools.islice(latest, behind - failed, behind)))


class _Sieve:
    """Which steps are sound by the record before alone, judged a kind at a time."""

    def __init__(self, found: CoordinatorLog) -> None:
        self._found = found
        self._judged = np.zeros(1 << KIND_BITS, np.int8)  # by kind: 1 sound, -1 not, 0 not judged yet

    def sound(self, columns: Columns, at: np.ndarray) -> np.ndarray:
        """Whether in the steps from these rows to the next ones nothing is wrong."""
        kinds = _kinds(self._found, columns, at)
        new, example = np.unique(kinds[self._judged[kinds] == 0], return_index=True)
        rows = at[self._judged[kinds] == 0][example]
        for kind, row in zip(new.tolist(), rows.tolist(), strict=True):
            old, following = (value(entry) for entry in self._found.entries(columns, slice(row, row + 2)))
            self._judged[kind] = -1 if step_problem(Held(old), following) else 1
        return self._judged[kinds] > 0


def _kinds(found: CoordinatorLog, columns: Columns, at: np.ndarray) -> np.ndarray:
    """All that :func:`step_problem` looks at in the step from each row to the next, a number a step."""

    def pair(name: str) -> tuple[np.ndarray, np.ndarray]:
        return columns[name][at].astype(np.int64), columns[name][at + 1].astype(np.int64)

    (old_state, state), (old_epoch, epoch), (old_start, start) = pair("state"), pair("producer_epoch"), pair("start")
    (old_producer, producer), (old_timeout, timeout) = pair("producer_id"), pair("timeout_ms")
    facts = (
        columns["client_version"][at + 1] >= 2,
        producer == old_producer,
        old_epoch == LAST_EPOCH,
        epoch == LAST_EPOCH,
        epoch == 0,
        timeout == old_timeout,
        start == old_start,
        start == columns["last_update"][at + 1],
    )
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
