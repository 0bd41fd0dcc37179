"""Markers and decisions of one producer, where the cleaner has taken older transactions away."""

from __future__ import annotations

import numpy as np
import pytest

from auditor.facts.coordinator_history import ABORT, COMMIT, WINDOW
from auditor.transactions.matching import SAME_CLOCK_MS, paired

LAST = 100_000  # ms, of the last marker in the partition


def windows(*prepared: int) -> np.ndarray:
    """Transactions that were decided then, commit and abort in turn, and over 5 ms later."""
    rows = np.zeros(len(prepared), WINDOW)
    rows["prepared"], rows["ended"] = prepared, np.array(prepared) + 5
    rows["has_prepare"] = rows["has_complete"] = True
    rows["decision"] = [COMMIT if number % 2 == 0 else ABORT for number in range(len(prepared))]
    return rows


def markers(*stamps: int) -> list[np.ndarray]:
    """Markers of then that close data, commit and abort in turn, of epoch 0."""
    count = len(stamps)
    commits = np.array([number % 2 == 0 for number in range(count)]).astype(np.int8)
    return [np.array(stamps), np.zeros(count, np.int16), commits, np.arange(count) * 10]


def pairs(decided: np.ndarray, given: list[np.ndarray], *, whole: bool) -> list[int]:
    return paired(
        decided, given, SAME_CLOCK_MS, whole=lambda: whole, complete=lambda: False, other_clocks=False, until=LAST
    ).tolist()


def test_old_markers_are_not_of_transactions_behind_the_end_of_the_log() -> None:
    """The coordinator's log was read later than the partition's, and has lost what it had of the markers there."""
    decided, given = windows(LAST + 2_000, LAST + 2_050, LAST + 2_100), markers(80_000, 80_050, 80_100, 80_150)
    assert pairs(decided, given, whole=False) == [-1, -1, -1, -1]


def test_of_whole_logs_the_order_tells_however_clocks_are_apart() -> None:
    decided, given = windows(LAST + 2_000, LAST + 2_050), markers(80_000, 80_050)
    assert pairs(decided, given, whole=True) == [0, 1]


@pytest.mark.parametrize("lag", [1, 4])
def test_what_came_before_the_end_of_the_log_is_paired_by_time(lag: int) -> None:
    decided, given = windows(90_000, 90_050, LAST + 2_000), markers(80_000, 80_050, 90_000 + lag, 90_050 + lag)
    assert pairs(decided, given, whole=False) == [-1, -1, 0, 1]
