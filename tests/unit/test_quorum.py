"""How far copies of the metadata are one log, and what a majority of the voters has: by Raft's own rules."""

from __future__ import annotations

import pytest

from auditor.pipeline.cluster_settings import Copy, committed, same_until


def copy(broker: int, end: int, *lineage: tuple[int, int], start: int = 0, snapshot_end: int = 0) -> Copy:
    return Copy(f"broker-{broker}", broker, start, end, lineage or ((1, 0),), snapshot_end)


@pytest.mark.parametrize(
    ("one", "other", "until"),
    [
        (copy(1, 10), copy(2, 7), 7),
        (copy(1, 235, (1, 0)), copy(2, 143, (1, 0), (2, 77), (3, 142)), 77),
        (copy(1, 90, (1, 0), (3, 40)), copy(2, 90, (1, 0), (2, 50)), 40),
        (copy(1, 90, (1, 0), (3, 50)), copy(2, 90, (1, 0), (2, 50)), 50),
        (copy(1, 90, (2, 60), start=60), copy(2, 80, (1, 0), (2, 50)), 80),
        (copy(1, 90, (3, 60), start=60), copy(2, 80, (1, 0), (2, 50)), 60),
        (copy(1, 90, (3, 60), start=60), copy(2, 40, (1, 0)), 40),
        (copy(1, 0), copy(2, 5), 0),
    ],
)
def test_two_copies_are_one_until_their_epochs_differ(one: Copy, other: Copy, until: int) -> None:
    assert same_until(one, other) == same_until(other, one) == until


def test_committed_is_what_a_majority_has() -> None:
    cut_off, leader, follower = (copy(1, 235), copy(2, 143, (1, 0), (2, 77), (3, 142)), copy(3, 142, (1, 0), (2, 77)))
    assert committed([cut_off, leader, follower], (1, 2, 3)) == {"broker-1": 77, "broker-2": 142, "broker-3": 142}
    assert committed([cut_off], (1, 2, 3)) == {"broker-1": 0}
    assert committed([cut_off, leader], (1, 2, 3)) == {"broker-1": 77, "broker-2": 77}
    assert committed([cut_off, leader, follower], (1, 2, 3, 4, 5)) == {"broker-1": 77, "broker-2": 77, "broker-3": 77}
    assert committed([cut_off], (1,)) == {"broker-1": 235}
    assert committed([cut_off], ()) == {"broker-1": 0}


def test_what_a_snapshot_has_is_committed_and_observers_have_no_vote() -> None:
    assert committed([copy(1, 90, snapshot_end=60)], (1, 2, 3)) == {"broker-1": 60}
    assert committed([copy(1, 90), copy(7, 90), copy(8, 90)], (1, 2, 3)) == dict.fromkeys(
        ("broker-1", "broker-7", "broker-8"), 0
    )
