"""The track of broker-written times: which rows it has, where eras end, what the helpers make of it."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from auditor.evidence.cluster_clocks import falls
from auditor.facts.replica_facts import NO_STAMPS, STAMP, ReplicaFacts
from auditor.replay.producers.state import STAMPS, used, with_room
from auditor.replay.reading.replica_reader import ReplicaReader
from tests.made import APPEND_TIME, data, marker
from tests.unit.batch_histories import History, facts_of

T = 1_700_000_000_000
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


def stamped(*times: int | tuple[int, int]) -> list[dict[str, Any]]:
    """A LogAppendTime batch for each time behind T, perhaps with a leader epoch."""
    rows = []
    for number, given in enumerate(times):
        time, leader_epoch = given if isinstance(given, tuple) else (given, 0)
        row = data(number, -1, pid=-1, producer_epoch=-1, attributes=APPEND_TIME)
        rows.append(row | {"max_timestamp": T + time, "partition_leader_epoch": leader_epoch})
    return rows


def read(rows: Iterable[dict[str, Any]]) -> ReplicaFacts:
    return facts_of(History(list(rows)), checkpoint=False)


def shown(facts: ReplicaFacts) -> list[tuple[int, int, int, int]]:
    """Offset, time behind T, leader epoch and era of each row."""
    return [(o, t - T, e, era) for o, t, e, era in facts.track.tolist()]


def fell(track: np.ndarray) -> list[tuple[int, int, int]]:
    """By how much the clock fell, where, and the time there."""
    return [(fall.by_ms, fall.offset, fall.then) for fall in falls(track)]


def newest_behind_last_fall(track: np.ndarray) -> int:
    return int(track["time"][track["era"] == track["era"][-1]].max()) if len(track) else -1


def test_a_log_without_broker_written_times_has_no_track() -> None:
    facts = read([data(0, 0, max_timestamp=T), data(1, 1, max_timestamp=T + MINUTE)])
    assert facts.track.dtype == STAMP
    assert (len(facts.track), newest_behind_last_fall(facts.track), falls(facts.track)) == (0, -1, [])


def test_only_broker_written_times_count() -> None:
    """A marker, LogAppendTime: times of producers in between do not."""
    rows = [
        data(0, 0, max_timestamp=T + DAY, transactional=True),
        marker(1, 0) | {"max_timestamp": T},
        *stamped(MINUTE),
    ]
    rows[2] |= {"base_offset": 2, "last_offset": 2}
    assert shown(read(rows)) == [(1, 0, 0, 0), (2, MINUTE, 0, 0)]


def test_the_first_one_each_minute_and_the_last() -> None:
    times = [0, 20 * SECOND, 59_999, MINUTE, MINUTE + 500, 2 * MINUTE + 100, 2 * MINUTE + 200]
    assert [o for o, *_ in shown(read(stamped(*times)))] == [0, 3, 5, 6]


def test_both_ends_of_a_gap() -> None:
    """What is behind 20 s was not written three hours later."""
    assert [o for o, *_ in shown(read(stamped(0, 10 * SECOND, 20 * SECOND, 3 * HOUR)))] == [0, 2, 3]


@pytest.mark.parametrize(("below", "eras"), [(1_000, [0, 0, 0]), (1_001, [0, 0, 1])])
def test_more_than_a_second_below_the_newest_is_another_era(below: int, eras: list[int]) -> None:
    facts = read(stamped(0, MINUTE, MINUTE - below))
    assert facts.track["era"].tolist() == eras
    assert newest_behind_last_fall(facts.track) == T + MINUTE - (below if eras[-1] else 0)
    assert facts.broker_time == T + MINUTE  # wherever it is


def test_the_newest_time_before_a_fall_is_kept() -> None:
    """It is not sampled, and within the second it is not the last one either."""
    facts = read(stamped(0, 30 * SECOND, 29_500, -DAY, -DAY + 5 * SECOND))
    assert shown(facts) == [
        (0, 0, 0, 0), (1, 30 * SECOND, 0, 0), (2, 29_500, 0, 0), (3, -DAY, 0, 1), (4, -DAY + 5 * SECOND, 0, 1),
    ]  # fmt: skip
    assert fell(facts.track) == [(30 * SECOND + DAY, 3, T - DAY)]


def test_each_leader_epoch_has_its_first_time_and_the_last_one_before() -> None:
    facts = read(stamped((0, 3), (5 * SECOND, 3), (6 * SECOND, 4), (7 * SECOND, 4), (8 * SECOND, 4)))
    assert shown(facts) == [(0, 0, 3, 0), (1, 5_000, 3, 0), (2, 6_000, 4, 0), (4, 8_000, 4, 0)]


def test_a_fall_where_the_leader_changed() -> None:
    """Broker 2 is two hours behind, leads for a while and gives the partition back: only the former is a fall."""
    facts = read(stamped((0, 1), (SECOND, 1), (2 * SECOND - 2 * HOUR, 2), (3 * SECOND - 2 * HOUR, 2), (4 * SECOND, 3)))
    assert fell(facts.track) == [(2 * HOUR - SECOND, 2, T + 2 * SECOND - 2 * HOUR)]
    assert newest_behind_last_fall(facts.track) == T + 4 * SECOND


def test_a_single_time_far_ahead_ends_an_era_and_does_not_count_behind_it() -> None:
    facts = read(stamped(0, SECOND, 30 * DAY, 2 * SECOND, 3 * SECOND))
    assert newest_behind_last_fall(facts.track) == T + 3 * SECOND
    assert fell(facts.track) == [(30 * DAY - 2 * SECOND, 3, T + 2 * SECOND)]
    assert [era for *_, era in shown(facts)] == [0, 0, 0, 1, 1]


def test_a_single_time_far_ahead_at_the_end_is_one_row_alone() -> None:
    rows = shown(read(stamped(0, SECOND, 30 * DAY)))
    assert rows == [(0, 0, 0, 0), (1, SECOND, 0, 0), (2, 30 * DAY, 0, 0)]


def test_a_long_log_keeps_its_end_by_the_minute_and_its_eras_whole() -> None:
    """Sixty days, a clock that fell by 40 min on the tenth, a leader that changed on the twentieth."""
    minutes = range(60 * 24 * 60)
    times = [(m * MINUTE - (40 * MINUTE if m >= 14_400 else 0), int(m >= 28_800)) for m in minutes]
    facts = read(stamped(*times))
    track = facts.track
    assert STAMPS // 2 < len(track) <= STAMPS
    assert np.all(np.diff(track["offset"]) > 0)
    assert fell(track) == [(39 * MINUTE, 14_400, T + 14_400 * MINUTE - 40 * MINUTE)]
    assert newest_behind_last_fall(track) == T + times[-1][0]
    assert {0, 14_399, 14_400, 28_800, len(times) - 1} <= set(track["offset"].tolist())
    assert np.all(np.diff(track["time"][-STAMPS // 4 :]) == MINUTE)


def test_more_eras_and_leader_epochs_than_rows() -> None:
    """A clock that falls at every second batch: some falls are lost, none is invented, the end is exact."""
    times = [((k // 2) * SECOND + (k % 2 == 0) * HOUR, k) for k in range(5_000)]
    facts = read(stamped(*times))
    track = facts.track
    assert len(track) <= STAMPS
    assert newest_behind_last_fall(track) == T + times[-1][0]
    found = falls(track)
    assert {f.by_ms for f in found} == {HOUR}
    assert found[-1].offset == 4_999
    assert track["era"][-1] == 2_500


def test_more_leader_epochs_than_rows_in_one_era() -> None:
    facts = read(stamped(*[(k, k) for k in range(5_000)]))
    assert len(facts.track) <= STAMPS
    assert newest_behind_last_fall(facts.track) == T + 4_999
    assert falls(facts.track) == []


def test_rows_that_were_removed_make_no_fall() -> None:
    track = np.array([(0, T, 0, 0), (1, T - DAY, 0, 1), (9, T - 5 * DAY, 0, 3)], STAMP)
    assert [f.offset for f in falls(track)] == [1]
    assert falls(NO_STAMPS) == []


def test_the_time_before_a_transaction() -> None:
    """The last broker-written time, or what a producer stamped after it; its own stamp does not count."""
    rows = [
        data(0, 0, pid=8, max_timestamp=T + DAY), marker(1, 0, pid=9) | {"max_timestamp": T},
        data(2, 0, max_timestamp=T + 5, transactional=True), marker(3, 0) | {"max_timestamp": T + 40},
        data(4, 1, pid=8, max_timestamp=T + 60), data(5, 2, pid=8, max_timestamp=T + 50),
        data(6, 1, max_timestamp=T + 70, transactional=True), data(7, 2, max_timestamp=T + 80, transactional=True),
        marker(8, 0) | {"max_timestamp": T - DAY}, data(9, 3, max_timestamp=T, transactional=True),
    ]  # fmt: skip
    t = read(rows).transactions
    assert dict(zip(t["first_offset"].tolist(), (t["prior_time"] - T).tolist(), strict=True)) == {
        -1: -1 - T, 2: 0, 6: 60, 9: -DAY,
    }  # fmt: skip


def test_nothing_before_the_first_transaction() -> None:
    facts = read([data(0, 0, max_timestamp=T, transactional=True)])
    assert facts.transactions["prior_time"].tolist() == [-1]


def test_reading_in_other_pieces_and_resuming_make_the_same_track() -> None:
    steps = (17 * SECOND * (1 + k % 7) - (k % 50 == 0) * HOUR for k in range(3_000))
    made = History(stamped(*itertools.accumulate(steps, initial=0)))
    whole = facts_of(made, checkpoint=False).track.tolist()
    assert whole[-1][0] == len(made.rows) - 1
    assert {era for *_, era in whole} == set(range(61))
    assert facts_of(made, checkpoint=False, chunk=999).track.tolist() == whole
    assert facts_of(made, checkpoint=False, chunk=7, replay=_at_rest_in_between).track.tolist() == whole


def _at_rest_in_between(reader: ReplicaReader, rows: np.ndarray) -> None:
    reader.audit.replay = with_room(pickle.loads(pickle.dumps(used(reader.audit.replay))))
    reader.replay_batches(rows)
