"""How long data has been in a log by the broker-written times behind it: numbers by hand."""

from __future__ import annotations

import numpy as np
import pytest

from auditor.evidence.cluster_clocks import FAR_MS, Fall, OwnTimes, step_between
from auditor.facts.replica_facts import STAMP

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
BEGAN = 1_795_300_000_000  # ms


def track(*rows: tuple[int, int, int, int]) -> np.ndarray:
    """Offset, ms since the log began, leader epoch, era."""
    return np.array([(offset, BEGAN + time, epoch, era) for offset, time, epoch, era in rows], STAMP)


def passed(rows: np.ndarray, offset: int, own: int = -1, until: int | None = None) -> tuple[int, int]:
    times = OwnTimes(rows, None if until is None else BEGAN + until)
    return times.held(offset, own if own < 0 else BEGAN + own)


MINUTES = track(*((n, n * MINUTE, 0, 0) for n in range(200)))


def test_from_the_first_time_at_or_behind_the_data_to_the_newest() -> None:
    assert passed(MINUTES, 100) == (99 * MINUTE, 99 * MINUTE)
    assert passed(MINUTES, 100, own=100 * MINUTE - 20 * SECOND) == (99 * MINUTE + 20 * SECOND,) * 2
    assert passed(MINUTES, 199) == passed(MINUTES, 500) == (0, 0)
    assert passed(MINUTES[:0], 0) == (0, 0)
    assert (OwnTimes(MINUTES).newest, OwnTimes(MINUTES[:0]).newest) == (BEGAN + 199 * MINUTE, -1)


def test_a_last_time_alone_and_far_ahead_is_not_without_doubt() -> None:
    """The data at 5 was there at minute 5: 3 h 10 min behind it is one time, and nothing between."""
    rows = np.concatenate([MINUTES[:11], track((11, 10 * MINUTE + 3 * HOUR, 0, 0))])
    assert passed(rows, 5) == (3 * HOUR + 5 * MINUTE, 5 * MINUTE)
    assert (
        passed(np.concatenate([rows, track((12, 10 * MINUTE + 3 * HOUR + 1, 0, 0))]), 5)
        == (3 * HOUR + 5 * MINUTE + 1,) * 2
    )
    near = np.concatenate([MINUTES[:11], track((11, 10 * MINUTE + FAR_MS, 0, 0))])
    assert passed(near, 5) == (FAR_MS + 5 * MINUTE,) * 2


@pytest.mark.parametrize(
    ("same", "other", "doubted"),
    [
        ([], -1, False),  # nothing speaks against it
        ([-1], -1, False),
        ([-7 * DAY], -7 * DAY, False),  # idle
        ([9 * MINUTE], 9 * MINUTE, False),
        ([10 * MINUTE - 30 * SECOND], 10 * MINUTE, True),  # it was written as lately, and not in those three hours
        ([-7 * DAY, 20 * MINUTE], 20 * MINUTE, True),
        ([20 * MINUTE], 3 * HOUR, False),  # a log of another broker has that time too
        ([-7 * DAY], 20 * MINUTE, False),
    ],
)
def test_it_is_doubted_where_logs_as_fresh_are_far_behind(same: list[int], other: int, doubted: bool) -> None:
    times = OwnTimes(np.concatenate([MINUTES[:11], track((11, 10 * MINUTE + 3 * HOUR, 0, 0))]))
    assert times.is_doubted([t if t == -1 else BEGAN + t for t in same], BEGAN + other) == doubted
    assert not OwnTimes(MINUTES[:0]).is_doubted([BEGAN], BEGAN)


@pytest.mark.parametrize(("offset", "expected"), [(0, 2 * MINUTE), (3, 2 * MINUTE), (4, MINUTE), (5, 0)])
def test_nothing_counts_before_the_last_fall_of_the_clock(offset: int, expected: int) -> None:
    """A time a month ahead at offset 2 is a wrong clock, and so may be all before the next one."""
    rows = track((0, 0, 0, 0), (2, 30 * DAY, 0, 0), (3, MINUTE, 0, 1), (4, 2 * MINUTE, 0, 1), (5, 3 * MINUTE, 0, 1))
    assert passed(rows, offset, own=0 if offset == 0 else -1)[0] == expected


def test_each_leaders_clock_counts_for_itself() -> None:
    """A leader two hours behind the one before: 20 min under the first, 10 min under the second; between unknown."""
    rows = track((0, 0, 4, 0), (8, 20 * MINUTE, 4, 0), (9, -2 * HOUR, 5, 1), (12, 10 * MINUTE - 2 * HOUR, 5, 1))
    assert passed(rows, 0) == (30 * MINUTE, 30 * MINUTE)
    assert passed(rows, 5, own=12 * MINUTE) == (18 * MINUTE, 18 * MINUTE)


def test_times_behind_that_of_the_audit_are_of_a_wrong_clock() -> None:
    assert passed(MINUTES, 100, until=130 * MINUTE) == (30 * MINUTE, 30 * MINUTE)
    assert passed(MINUTES, 100, until=0) == (0, 0)


RAN_AHEAD = [Fall(None, BEGAN + 2 * DAY, BEGAN + MINUTE, -1, "", 20)]  # it read two days more


@pytest.mark.parametrize(
    ("before", "begun", "offset", "time", "explained"),
    [
        (5, 0, 10, 2 * DAY, True),  # within the minute in which it ran ahead
        (5, -2 * DAY, 10, 0, False),  # before it
        (5, 0, 10, 3 * DAY, False),  # beyond all that it read
        (21, MINUTE, 30, 2 * DAY + MINUTE, True),  # set right again behind the fall
        (21, MINUTE, 30, DAY, False),
        (5, -DAY, 30, 2 * MINUTE, False),
    ],
)
def test_what_a_step_of_the_clock_explains(before: int, begun: int, offset: int, time: int, explained: bool) -> None:
    step = step_between(RAN_AHEAD, before, BEGAN + begun, offset, BEGAN + time)
    assert (step is not None) == explained
