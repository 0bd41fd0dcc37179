"""Markers and decisions of one producer, where the cleaner has taken older transactions away."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from auditor.evidence.cluster_clocks import ONE_CLOCK_MS
from auditor.facts.coordinator_history import ABORT, COMMIT, WINDOW
from auditor.transactions.matching import Asked, Pairs, paired

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


def matched(decided: np.ndarray, given: list[np.ndarray], *, apart: bool = False, **evidence: bool) -> Pairs:
    """``apart``: two brokers wrote the logs; other evidence is absent."""
    names = ("whole", "complete", "delivered", "is_open", "clocks_agree", "may_be_skipped")
    asked: dict[str, Asked] = {name: partial(evidence.get, name, False) for name in names}
    return paired(decided, given, ONE_CLOCK_MS, other_clocks=apart, until=LAST, **asked)


def pairs(decided: np.ndarray, given: list[np.ndarray], *, whole: bool) -> list[int]:
    return matched(decided, given, whole=whole).numbers.tolist()


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


BEHIND = 600_000  # ms that the clock of the partition's leader is behind
CLEANED = markers(*(LAST - 3_000 * k for k in (5, 4, 3, 2, 1, 0)))  # of six transactions; the first two are cleaned
LEFT = windows(*(LAST + BEHIND - 3_000 * k - 2 for k in (3, 2, 1, 0)))


def test_a_leader_s_clock_behind_hides_no_marker_of_a_log_that_has_all() -> None:
    """The coordinator completes a transaction once its markers are written: the last ones are of the last windows."""
    assert matched(LEFT, CLEANED, apart=True, delivered=True) == (pytest.approx([-1, -1, 0, 1, 2, 3]), False)


@pytest.mark.parametrize("evidence", [{}, {"is_open": True}, {"is_open": True, "delivered": True}])
def test_of_a_running_copy_the_difference_of_clocks_is_not_proved(evidence: dict[str, bool]) -> None:
    """The markers may have come behind the copy, or the last one not at all."""
    assert matched(LEFT, CLEANED, apart=True, **evidence) == (pytest.approx([-1] * 6), True)


@pytest.mark.parametrize("evidence", [{"delivered": True}, {}])
def test_one_pair_fits_any_difference_of_clocks(evidence: dict[str, bool]) -> None:
    assert matched(LEFT[:1], CLEANED, apart=True, **evidence) == (pytest.approx([-1] * 6), True)


def test_one_decision_over_data_that_is_still_open_has_no_marker() -> None:
    assert matched(LEFT[:1], CLEANED, apart=True, delivered=True, is_open=True).inconclusive is False


def test_differences_that_do_not_agree_prove_none() -> None:
    uneven = windows(*(LAST + BEHIND - 3_000 * k - 2 + 4_000 * k * k for k in (3, 2, 1, 0)))
    assert matched(uneven, CLEANED, apart=True, delivered=True).inconclusive is True
    assert (matched(uneven, CLEANED, apart=True, delivered=True).numbers < 0).all()


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("agree", [False, True])
def test_an_epoch_for_each_end_tells_the_decision_of_a_marker(agree: bool, again: bool) -> None:
    """Version 2. Not where other producers show that the clocks agree. ``again``: the fourth marker was sent twice."""
    decided, given = LEFT.copy(), [column.copy() for column in CLEANED]
    decided["epoch"] = given[1][2:] = [7, 8, 9, 10]
    given[1][:2] = 5, 6
    if again:
        given = [np.insert(column, 4, column[3]) for column in given]
        given[3][4] = -1
    expected = [-1, -1, 0, 1, *([1] if again else []), 2, 3]
    found = matched(decided, given, apart=True, clocks_agree=agree, may_be_skipped=True).numbers.tolist()
    assert found == ([-1] * len(expected) if agree else expected)


def test_clocks_that_agree_hide_nothing() -> None:
    """Another producer's markers lie between their decisions and completions: these are missing."""
    assert matched(LEFT, CLEANED, apart=True, clocks_agree=True, delivered=True) == (pytest.approx([-1] * 6), False)


def test_a_partition_without_a_leader_may_have_been_skipped() -> None:
    """So a marker that is not found is missing, whatever clocks show, unless one difference fits most."""
    assert matched(LEFT[:1], CLEANED, apart=True, delivered=True, may_be_skipped=True).inconclusive is False
    assert matched(LEFT, CLEANED, apart=True, delivered=True, may_be_skipped=True).numbers.max() == 3


@pytest.mark.parametrize(("ahead", "expected"), [(100_000, [0, 1]), (99_998, [0, 1]), (0, [2, 3])])
def test_of_alike_transactions_those_fit_by_how_far_clocks_are_known_to_differ(ahead: int, expected: list[int]) -> None:
    """Every 40 s one is decided. The markers' clock is 100 s ahead: they are 20 s behind those two further on, too."""
    decided, given = windows(*range(10_000, 330_000, 40_000)), markers(110_002, 150_002)
    asked: dict[str, Asked] = dict.fromkeys(("whole", "complete", "delivered", "is_open"), bool)
    asked |= dict.fromkeys(("clocks_agree", "may_be_skipped"), bool)
    numbers = paired(decided, given, 30_000, other_clocks=True, until=150_002, ahead=ahead, **asked).numbers
    assert numbers.tolist() == expected
