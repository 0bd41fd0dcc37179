"""Snapshots compared with a replay: what differs is reported producer by producer, what cannot differ is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from auditor.connectors.codec.indexes import ProducerEntries
from auditor.facts.replica_facts import ReplicaFacts, SnapshotLink
from auditor.replay.producers.snapshot_chain import MAX_DIFFERENCES, Stored
from tests.made import data, marker
from tests.unit.batch_histories import History, facts_of

NOTHING = {
    "producer_epoch": 0, "last_sequence": -1, "last_offset": -1, "offset_delta": 0, "last_timestamp": 1_000_000,
    "coordinator_epoch": -1, "current_txn_first_offset": -1,
}  # fmt: skip


def snapshot(offset: int, *rows: dict[str, Any], sound: bool = True) -> Stored:
    full = [{**NOTHING, **row} for row in rows]
    entries = ProducerEntries(*(np.array([row[n] for row in full], np.int64) for n in ProducerEntries._fields))
    return Stored(f"{offset}.snapshot", offset, entries, sound)


def entry(pid: int, sequence: int, offset: int, **given: Any) -> dict[str, Any]:
    return {"producer_id": pid, "last_sequence": sequence, "last_offset": offset, **given}


def links(rows: list[dict[str, Any]], *snapshots: Stored, compacted: bool = False) -> list[SnapshotLink]:
    return replayed(rows, *snapshots, compacted=compacted).snapshots


def replayed(rows: list[dict[str, Any]], *snapshots: Stored, compacted: bool = False) -> ReplicaFacts:
    return facts_of(History(rows, list(snapshots)), compacted=compacted)


ROWS = [data(0, 0, pid=1), data(1, 0, 3, pid=2, transactional=True), data(4, 1, pid=1), data(5, 2, pid=1)]
TWO = entry(2, 2, 3, offset_delta=2, current_txn_first_offset=1)


@pytest.mark.parametrize(
    ("stored", "differences"),
    [
        ((entry(1, 1, 4), TWO), []),
        ((entry(1, 0, 4), TWO), [(1, "last_sequence", 0, 1, 4)]),
        ((entry(1, 1, 0, producer_epoch=3), TWO), [(1, "producer_epoch", 3, 0, 4), (1, "last_offset", 0, 4, 4)]),
        ((entry(1, 1, 4, coordinator_epoch=7), TWO), []),  # no marker here shows what it should be
        ((TWO,), [(1, "missing", -1, 1_000_000, 4)]),
        ((entry(1, 1, 4),), [(2, "open", -1, 1, 3)]),
        ((entry(1, 1, 4), TWO | {"current_txn_first_offset": -1}), [(2, "open", -1, 1, 3)]),
        ((entry(1, 1, 4), TWO, entry(9, 5, 2)), [(9, "extra", 2, -1, 2)]),
        ((entry(1, 1, 4), TWO, entry(9, -1, -1)), []),  # known by a marker alone
        ((entry(1, 0, 0), entry(1, 1, 4), TWO), []),  # the last of two entries counts, as in a broker's map
    ],
)
def test_one_snapshot(stored: tuple[dict[str, Any], ...], differences: list[tuple[int, str, int, int, int]]) -> None:
    (link,) = links(ROWS, snapshot(5, *stored))
    assert (link.readable, link.comparable, link.entries) == (True, True, len(stored))
    assert link.differences == differences


def test_the_epoch_of_a_marker_counts_where_there_is_one() -> None:
    rows = [*ROWS, marker(6, 0, pid=2, coordinator_epoch=4), data(7, 3, pid=1)]
    two = TWO | {"current_txn_first_offset": -1}
    (link,) = links(rows, snapshot(7, entry(1, 2, 5), two | {"coordinator_epoch": 3}))
    assert link.differences == [(2, "coordinator_epoch", 3, 4, 3)]


def test_what_a_snapshot_carries_over_is_reported_once() -> None:
    wrong = entry(1, 7, 0)
    rows = [data(0, 0, pid=1), data(1, 0, pid=2), data(2, 1, pid=2), data(3, 2, pid=2)]
    first, second = links(rows, snapshot(1, wrong), snapshot(3, wrong, entry(2, 1, 2)))
    assert first.differences == [(1, "last_sequence", 7, 0, 0)]
    assert (second.base, second.differences) == (1, [])


def test_what_wrote_in_between_is_reported_again() -> None:
    wrong = entry(1, 7, 0)
    rows = [data(0, 0, pid=1), data(1, 1, pid=1), data(2, 2, pid=1)]
    assert [len(link.differences) for link in links(rows, snapshot(1, wrong), snapshot(2, wrong))] == [1, 2]


def test_a_cleaned_log_may_lag_behind_its_snapshot() -> None:
    newer = [entry(1, 5, 9, producer_epoch=2), TWO | {"current_txn_first_offset": 0}]
    (link,) = links(ROWS, snapshot(5, *newer), compacted=True)
    assert link.differences == []
    (link,) = links(ROWS, snapshot(5, entry(1, 1, 4), TWO | {"current_txn_first_offset": 2}), compacted=True)
    assert link.differences == [(2, "open", 2, 1, 3)]


def test_a_broken_snapshot_says_nothing() -> None:
    (link,) = links(ROWS, snapshot(5, entry(1, 0, 0), sound=False))
    assert (link.readable, link.comparable, link.differences) == (False, False, [])


def test_many_differences_are_counted() -> None:
    count = MAX_DIFFERENCES + 50
    rows = [data(n, 0, pid=n) for n in range(count)]
    others = [entry(10_000 + n, 0, 1) for n in range(30)]
    (link,) = links(rows, snapshot(count, *others))
    assert [d[0] for d in link.differences] == list(range(MAX_DIFFERENCES))
    assert link.extra_differences == 50 + 30


def test_producers_that_only_snapshots_know() -> None:
    old, new = (
        snapshot(2, entry(8, 4, 1), entry(9, 1, 1)),
        snapshot(4, entry(9, 3, 2, producer_epoch=1), entry(1, 1, 3)),
    )
    p = replayed([data(n, n, pid=1) for n in range(4)], old, new).producers
    assert p["producer_id"].tolist() == [1, 8, 9]
    assert p["below_in_snapshot"].tolist() == [0, 1, 1]
    assert p["below_last_sequence"].tolist() == [-1, 4, 3]
    assert p["producer_epoch"].tolist() == [0, 0, 1]
