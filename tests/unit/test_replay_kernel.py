"""The compiled replay against the same functions as plain Python, and against what can be counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from auditor.facts.events import EventKind
from auditor.facts.replica_facts import PRODUCER
from auditor.replay.producers import audit_replay
from auditor.replay.producers.state import Replay, column, rows_of_producers
from tests.made import data, marker
from tests.seeded_tests import seeded
from tests.unit.batch_histories import LAST, History, facts_of, history


@seeded(12)
def test_rows_of_producers_are_their_columns(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Few producers are written as rows by machine code, many column by column."""
    seen = []

    def compared(replay: Replay, wanted: slice) -> np.ndarray:
        rows = rows_of_producers(replay, wanted)
        parts = [rows_of_producers(replay, slice(at, at + 7)) for at in range(0, len(rows), 7)]
        assert np.concatenate(parts).tolist() == rows.tolist()
        seen.append(len(rows))
        for name in PRODUCER.names or ():
            assert rows[name].tolist() == column(replay, name).tolist(), name
        return rows

    monkeypatch.setattr(audit_replay, "rows_of_producers", compared)
    facts_of(history(seed, 600, producers=40), compacted=seed % 3 == 0)
    assert seen
    assert seen[0] > 20


def test_the_histories_hold_every_kind_of_event_that_a_replay_can_tell() -> None:
    found, expected = set[int](), {int(kind) for kind in EventKind if kind < EventKind.INDEX_ENTRY}
    for seed in range(200):
        if found == expected:
            break
        found |= set(facts_of(history(seed)).events["kind"].tolist())
    assert found == expected


@seeded(20)
def test_a_sound_history_has_no_sequence_events(seed: int) -> None:
    facts = facts_of(history(seed, oddities=0))
    broken = (
        EventKind.SEQUENCE_GAP,
        EventKind.SEQUENCE_OVERLAP,
        EventKind.SEQUENCE_RESET,
        EventKind.BUMP_NONZERO,
        EventKind.EPOCH_REGRESSION,
    )
    assert not np.isin(facts.events["kind"], broken).any()


@seeded(20)
def test_last_stable_offsets_are_the_least_of_what_is_open(seed: int) -> None:
    made = history(seed, 600, producers=60, oddities=0)
    opened: dict[int, int] = {}
    expected: dict[int, int] = {}
    for row in made.rows:
        if "control_type" in row:
            opened.pop(row["producer_id"], None)
            expected[row["base_offset"]] = min(opened.values(), default=row["base_offset"] + 1)
        elif row["attributes"]:
            opened.setdefault(row["producer_id"], row["base_offset"])
    closed = facts_of(made).transactions
    closed = closed[(closed["marker_offset"] >= 0) & (closed["first_offset"] >= 0)]
    assert len(closed) > 20
    assert {int(t["marker_offset"]): int(t["last_stable_offset"]) for t in closed} == expected


def test_open_transactions_begin_in_any_order_of_offsets() -> None:
    starts = [50, 10, 40, 20, 30]
    rows = [data(start, 0, pid=number, transactional=True) for number, start in enumerate(starts)]
    rows += [marker(100 + k, 0, pid=starts.index(start)) for k, start in enumerate([30, 10, 50, 20, 40])]
    closed = facts_of(History(rows)).transactions
    assert closed["first_offset"].tolist() == [30, 10, 50, 20, 40]
    assert closed["last_stable_offset"].tolist() == [10, 20, 20, 40, 105]


def test_sequences_go_on_behind_the_largest() -> None:
    rows = [data(0, LAST - 1, 2), data(2, 0, 3), data(5, 3)]
    kinds = facts_of(History(rows)).events["kind"].tolist()
    assert kinds == [EventKind.FIRST_NONZERO]


def test_as_many_producers_as_it_takes_to_grow_all_tables() -> None:
    count = 5000
    rows = [data(n, 0, pid=n, transactional=True) for n in range(count)]
    rows += [data(count + n, 1, pid=n, transactional=True) for n in range(count)]
    rows += [marker(2 * count + n, 0, pid=n, commit=n % 2 == 0) for n in range(count)]
    facts = facts_of(History(rows))
    assert facts.producers["producer_id"].tolist() == list(range(count))
    assert set(facts.producers["batches"].tolist()) == {2}
    assert facts.transactions["last_offset"].tolist() == list(range(count, 2 * count))
    assert set(facts.transactions["risen_offset"].tolist()) == {-1}
    assert facts.transactions["commit"].tolist() == [1, 0] * (count // 2)
    assert facts.sums["producers"] == count


def test_where_data_of_a_higher_epoch_follows_with_no_marker_between() -> None:
    """What a skipped marker leaves under transaction.version 2: two epochs under the marker of the second."""
    rows = [data(0, 0, 3, transactional=True), data(3, 0, 2, pid=2), data(5, 3, 2, transactional=True)]
    rows += [data(7, 0, 2, transactional=True, producer_epoch=1), data(9, 2, transactional=True, producer_epoch=1)]
    (t,) = facts_of(History([*rows, marker(10, 2)])).transactions
    assert (t["risen_offset"], t["risen_behind"], t["risen_records"], t["records"]) == (7, 6, 5, 8)
