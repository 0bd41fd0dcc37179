"""A log of ``__transaction_state`` at rest, cut into many pieces, against the same entries one by one."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import numpy as np
import pytest

from auditor.connectors import schema
from auditor.facts import coordinator_log
from auditor.facts.coordinator_log import (
    KIND_BITS,
    STATES,
    CoordinatorLog,
    StateRecord,
    _kinds,
    odd_steps,
    pack,
    tally,
    unsound_in,
    value,
)
from auditor.model.transaction_states import PREPARED, IdAccount
from auditor.rules.coordinator_state import producer_runs
from auditor.rules.epochs import raised
from auditor.rules.partition_transactions import decisions

PARTITIONS = ("orders-0", "orders-1", "payments-3", "__consumer_offsets-7")


def history(seed: int, count: int = 400, ids: int = 23) -> list[StateRecord]:
    """Records of some ids in turns, most as a coordinator writes them, some not."""
    rng = random.Random(seed)
    at = {n: (1_000 + n, 0, frozenset[str](), -1, "Empty") for n in range(ids)}
    out = []
    for offset in range(count):
        n = rng.randrange(ids)
        producer, epoch, partitions, start, state = at[n]
        following = {"Ongoing": ("Ongoing", "PrepareCommit", "PrepareAbort"), "PrepareCommit": ("CompleteCommit",),
                     "PrepareAbort": ("CompleteAbort",)}.get(state, ("Ongoing", "Ongoing", "Empty"))  # fmt: skip
        state = rng.choice(following) if rng.random() < 0.9 else rng.choice([*STATES, "unknown state 77"])
        if state == "Ongoing":
            partitions = partitions | {rng.choice(PARTITIONS)}
            start = offset if start < 0 else start
        elif state.startswith("Complete") or state == "Empty":
            partitions = frozenset()
        if state == "Empty" or rng.random() < 0.05:
            epoch, start = epoch + rng.choice((0, 1, 1, 5, -1)), -1 if state == "Empty" else start
        if rng.random() < 0.04:
            producer, epoch = 1_000 + rng.randrange(3 * ids), rng.randrange(2)
        gone = rng.random() < 0.03
        at[n] = (producer, epoch, partitions, start, "Empty" if gone else state)
        out.append(
            StateRecord(
                5, 100 + offset, 10_000 + offset, 3 + offset // 150, f"id-{n}", None if gone else state, producer,
                epoch, 60_000 if rng.random() < 0.97 else 5, frozenset() if gone else partitions, False,
                10_000 + offset if rng.random() < 0.8 else -1, start, rng.choice((0, 0, 0, 2)), "0.log",
                90 * offset, -1 if gone or state not in STATES else STATES.index(state),
            )
        )  # fmt: skip
    return out


def by_id(entries: list[StateRecord]) -> dict[str, list[StateRecord]]:
    found: dict[str, list[StateRecord]] = {}
    for entry in entries:
        found.setdefault(entry.transactional_id, []).append(entry)
    return found


@pytest.fixture(params=[(seed, rows) for seed in (1, 2, 3) for rows in (7, 60, 100_000)])
def both(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[list[StateRecord], CoordinatorLog]:
    """Entries, and their log in pieces of about so many rows."""
    seed, rows = request.param
    monkeypatch.setattr(coordinator_log, "PIECE_ROWS", rows)
    entries = history(seed)
    log = pack(entries)
    assert len(log.pieces) == 1 if rows > len(entries) else len(log.pieces) > 3
    return entries, log


def test_what_is_read_back(both: tuple[list[StateRecord], CoordinatorLog]) -> None:
    entries, log = both
    found = by_id(entries)
    assert log.ids == list(found)
    for number, mine in enumerate(found.values()):
        assert list(log.entries_of(number)) == mine
        assert log.last(number) == mine[-1]


@pytest.mark.parametrize("least", [None, 0, 250, 480, 10_000])
def test_the_last_record_of_every_id(both: tuple[list[StateRecord], CoordinatorLog], least: int | None) -> None:
    entries, log = both
    columns, there = log.last_rows(least)
    for number, mine in enumerate(by_id(entries).values()):
        judged = [e for e in mine if least is None or e.offset >= least]
        assert there[number] == bool(judged)
        if judged:
            assert list(log.entries(columns, np.array([number]))) == judged[-1:]


@pytest.mark.parametrize("least", [None, 250, 10_000])
def test_neighbours_are_all_pairs_of_records(both: tuple[list[StateRecord], CoordinatorLog], least: int | None) -> None:
    entries, log = both
    found = []
    for columns in log.neighbours(least):
        assert {name: len(column) for name, column in columns.items()} == dict.fromkeys(
            coordinator_log.COLUMNS, len(columns["id"])
        )
        at = np.flatnonzero((columns["id"][1:] == columns["id"][:-1]) & (columns["id"][1:] >= 0))
        found += list(zip(log.entries(columns, at), log.entries(columns, at + 1), strict=True))
    wanted = []
    for mine in by_id(entries).values():
        wanted += itertools.pairwise([e for e in mine if least is None or e.offset >= least])
    assert found == wanted


def test_steps_in_which_something_is_wrong(both: tuple[list[StateRecord], CoordinatorLog]) -> None:
    """Each id is replayed from its beginning here; from the last place that may matter, and by kinds of steps there."""
    entries, log = both
    wanted: list[tuple[StateRecord, StateRecord, list[str]]] = []
    failed: set[int] = set()
    for mine in by_id(entries).values():
        account = None
        for old, new in itertools.pairwise([e for e in mine if e.offset >= 120]):
            if any(e.state is not None and e.state not in STATES for e in (old, new)):
                account = None
                continue
            account = account or IdAccount(value(old), old.leader_epoch, known=False)
            problems, count = account.take(value(new), new.leader_epoch)
            if old.offset < 150 and (problems or count):
                account = None
            elif problems:
                wanted.append((old, new, problems))
            elif count:
                failed |= {e.offset for e in mine[mine.index(new) - count : mine.index(new)]}
    found = list(odd_steps(log, 120, 150))
    assert wanted
    assert failed
    assert [step[:3] for step in found if step.problems] == wanted
    assert {e.offset for step in found for e in step.failed} == failed


def test_records_that_are_not_sound_by_themselves(both: tuple[list[StateRecord], CoordinatorLog]) -> None:
    entries, log = both
    never = {e.offset for e in entries if e.state is not None and e.state not in STATES and e.offset >= 120}
    found = {e.offset: problems for e, problems in unsound_in(log, 120)}
    assert never <= {offset for offset, problems in found.items() if problems == ["state_never_written"]}
    idle = {e.offset for e in entries if e.state == "CompleteCommit" and e.partitions and e.offset >= 120}
    assert idle <= set(found)


def gone_back_on(entry: StateRecord, after: StateRecord) -> bool:
    """Whether a decision is not the last word on its transaction."""
    same = (entry.producer_id, entry.start) == (after.producer_id, after.start)
    return same and entry.state in PREPARED and after.state in ("Ongoing", *PREPARED)


def test_decisions_and_rises_are_counted_by_id(both: tuple[list[StateRecord], CoordinatorLog]) -> None:
    entries, log = both
    decided, aborted, forced = decisions(log)
    rises = np.zeros(log.id_count, np.int64)
    for columns in log.neighbours():
        tally(rises, columns["id"][raised(columns)])
    for number, mine in enumerate(by_id(entries).values()):
        kept = [*(a for a, b in itertools.pairwise(mine) if not gone_back_on(a, b)), mine[-1]]
        states = Counter(e.state for e in kept)
        assert decided[number] == states["PrepareCommit"] + states["PrepareAbort"]
        assert aborted[number] == states["PrepareAbort"]
        pairs = [(a, b) for a, b in itertools.pairwise(mine) if a.producer_id == b.producer_id]
        assert forced[number] == sum(
            b.state == "PrepareAbort" and b in kept and (
                (a.state == "Ongoing" and b.producer_epoch - a.producer_epoch >= (2 if b.client_version >= 2 else 1))
                or (gone_back_on(a, b) and b.producer_epoch - a.producer_epoch
                    >= (2 if b.client_version >= 2 else 1) - (1 if a.client_version >= 2 else 0))
            ) for a, b in pairs
        )  # fmt: skip
        assert rises[number] == sum(
            b.producer_epoch > a.producer_epoch
            and (b.state == "Empty" or (b.state == "PrepareAbort" and b.client_version < 2)) for a, b in pairs
        )  # fmt: skip


def test_where_an_id_gets_another_producer_id(both: tuple[list[StateRecord], CoordinatorLog]) -> None:
    entries, log = both
    wanted = []
    for number, mine in enumerate(by_id(entries).values()):
        known = [e for e in mine if e.state is not None and e.offset >= 120]
        for last, entry in zip([None, *known], known, strict=False):
            if last is None or last.producer_id != entry.producer_id:
                wanted.append((number, entry))
    rows = producer_runs(log, 120).tolist()
    assert [(number, log.at(piece, row)) for number, _, piece, row in rows] == wanted


def test_more_rows_than_the_interpreter_puts_in_order() -> None:
    entries = history(9, coordinator_log.PLAIN_ROWS + 100, 300)
    log = pack(entries)
    assert [list(log.entries_of(n)) for n in range(log.id_count)] == list(by_id(entries).values())


def test_a_step_has_a_kind_within_its_bits() -> None:
    entries = history(4, 2_000)
    log = pack(entries)
    for columns in log.neighbours():
        known = np.flatnonzero((columns["state"][1:] < len(STATES)) & (columns["state"][:-1] < len(STATES)))
        kinds = _kinds(log, columns, known)
        assert kinds.min() >= 0
        assert kinds.max() < 1 << KIND_BITS


def test_states_have_the_numbers_under_which_records_store_them() -> None:
    assert schema.TRANSACTION_STATES == STATES
