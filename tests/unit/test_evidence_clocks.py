"""What time it is for a cluster and its brokers, and after how long a transaction is overdue."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from auditor.connectors.codec.cluster_metadata import BrokerState, Change, MetadataRecord
from auditor.evidence.cluster_clocks import (
    ALWAYS,
    BrokerTime,
    Clocks,
    Era,
    Fall,
    Lag,
    LogEras,
    at_least_ms,
    at_most_ms,
    beyond_ms,
    by_a_client,
    clocks,
    differences,
    eras_of,
    is_after,
    is_read_after,
    most_at_once,
    newest_of,
    up_until,
)
from auditor.facts.replica_facts import STAMP
from auditor.pipeline.cluster_context import brief, build
from auditor.pipeline.cluster_settings import ClusterSettings, Sessions, note_session
from tests import made

S, MIN, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
NOW = 100 * DAY


def track(*times: int, epochs: Sequence[int] = ()) -> np.ndarray:
    fell = [later < time - S for time, later in pairwise(times)]
    return np.array([(k, t, epochs[k] if epochs else 0, sum(fell[:k])) for k, t in enumerate(times)], STAMP)


def log(*times: int, name: str = "t-0", broker: int | None = 1, epochs: Sequence[int] = (), held: int = 1) -> LogEras:
    """A log with a broker's times at offsets 0, 1, ...; ``epochs``: those of its batches, each of another broker."""
    eras = eras_of(track(*times, epochs=epochs))
    leaders = [era.leader_epoch + 1 if epochs else broker for era in eras]
    return LogEras(name, held, [*zip(leaders, eras, strict=True)])


def of(*logs: LogEras, given: int | None = None, **up: int) -> Clocks:
    return clocks(logs, {int(name[1:]): time for name, time in up.items()}, {}, given)


def until(known: Clocks, broker: int | None) -> int:
    return known.enforced_until(broker).ms_for_display()


def test_an_era_is_what_one_leader_wrote_until_its_clock_fell() -> None:
    assert eras_of(track()) == []
    assert eras_of(track(NOW)) == [Era(0, 0, NOW, -1, NOW, NOW)]
    assert eras_of(track(NOW, NOW + HOUR, NOW + HOUR + S, NOW + MIN, NOW + 2 * MIN, epochs=(4, 4, 4, 4, 5))) == [
        Era(4, 0, NOW, NOW, NOW + HOUR + S, NOW + HOUR, HOUR),
        Era(4, 3, NOW + MIN, -1, NOW + MIN, NOW + MIN),
        Era(5, 4, NOW + 2 * MIN, -1, NOW + 2 * MIN, NOW + 2 * MIN),
    ]


def test_the_newest_time_is_that_behind_the_last_fall() -> None:
    """A clock that ran three days ahead for a minute nine days ago says nothing about now."""
    fell = log(NOW - 9 * DAY, NOW - 6 * DAY, NOW - 6 * DAY + MIN, NOW - 9 * DAY + 2 * MIN, NOW)
    assert newest_of(fell) == NOW
    still_lower = log(NOW, NOW + 30 * DAY, NOW + MIN, NOW + HOUR)
    assert newest_of(still_lower) == NOW + HOUR
    known = of(fell, still_lower)
    assert {known.now().ms_for_display(), known.newest[1]} == {NOW + HOUR}
    assert [(f.broker, f.by_ms, f.log, f.offset) for f in known.falls] == [
        (1, 3 * DAY - MIN, "t-0", 3),
        (1, 30 * DAY - MIN, "t-0", 2),
    ]


def test_the_next_leaders_clock_is_no_fall_of_the_last_ones() -> None:
    """Broker 2 is two hours behind: the time of broker 1 goes on to be the newest."""
    known = of(log(NOW - MIN, NOW, NOW - 2 * HOUR, NOW - 2 * HOUR + MIN, epochs=(0, 0, 1, 1)))
    assert (known.now().ms_for_display(), known.falls) == (NOW, ())
    assert (until(known, 1), until(known, 2)) == (NOW, NOW - 2 * HOUR + MIN)


def test_a_restart_of_one_leader_hides_no_fall() -> None:
    """The clock of one broker fell while its leader epoch changed."""
    eras = log(NOW, NOW + DAY, NOW + MIN, epochs=(0, 0, 1)).eras
    known = of(LogEras("t-0", 1, [(1, era) for _, era in eras]))
    assert (until(known, 1), [f.by_ms for f in known.falls]) == (NOW + MIN, [DAY - MIN])


def test_where_the_leader_is_unknown_its_times_may_be_half_a_minute_off() -> None:
    assert until(of(log(NOW, broker=None)), 1) == NOW - 30 * S


def test_no_other_brokers_time_counts_for_a_timeout() -> None:
    known = of(log(NOW), log(NOW + DAY, broker=2))
    assert (until(known, 1), known.now().ms_for_display()) == (NOW, NOW + DAY)


def test_the_users_time_is_that_of_every_broker() -> None:
    known = of(log(NOW), given=NOW + DAY, b1=NOW + HOUR)
    assert {until(known, 1), until(known, 2), until(known, None), known.now().ms_for_display()} == {NOW + DAY}


def test_the_time_of_an_unknown_broker_is_that_of_the_cluster() -> None:
    assert (until(of(log(NOW)), 3), until(of(log(NOW)), None)) == (NOW, NOW)
    assert clocks([], {}, {}, None, otherwise=7).now().ms_for_display() == 7


@pytest.mark.parametrize(("up", "wanted"), [(NOW + HOUR, NOW + HOUR), (NOW - HOUR, NOW)])
def test_a_broker_was_up_as_long_as_the_metadata_shows_or_as_it_wrote(up: int, wanted: int) -> None:
    assert until(of(log(NOW), b1=up), 1) == wanted


@pytest.mark.parametrize(
    ("behind", "alone", "wanted"),
    [(0, True, 0), (0, False, 39 * S), (HOUR, False, HOUR + 39 * S), (-HOUR, False, 39 * S)],
)
def test_a_session_ends_by_the_controllers_clock(behind: int, alone: bool, wanted: int) -> None:
    assert up_until(NOW, behind, of_controller=alone) == NOW - wanted


def test_a_month_ahead_at_the_end_of_one_log() -> None:
    """Nothing behind it in that log shows that it is wrong, but the other logs of the broker do."""
    ahead = log(NOW - HOUR, NOW + 30 * DAY, name="w-0")
    assert until(of(ahead, log(NOW)), 1) == NOW
    assert until(of(ahead), 1) == NOW + 30 * DAY, "no other log contradicts it"
    going_on = log(NOW, NOW + 30 * DAY, NOW + 30 * DAY + 2 * MIN, name="w-0")
    assert until(of(going_on, log(NOW)), 1) == NOW + 30 * DAY + 2 * MIN


def test_a_log_that_ends_in_the_minute_before_another_one_fell() -> None:
    fell = log(NOW, NOW + 3 * HOUR, NOW + 3 * HOUR + 2 * MIN, NOW + MIN)
    assert until(of(fell, log(NOW - MIN, NOW + 3 * HOUR + MIN, name="w-0")), 1) == NOW + MIN
    assert until(of(fell, log(NOW - MIN, NOW + 5 * HOUR, name="w-0")), 1) == NOW + 5 * HOUR, "it was not that time"


@pytest.mark.parametrize(("interval", "after"), [(None, 30 * S), (600_000, 620 * S), (1_000, 21 * S), (HOUR, 30 * S)])
def test_one_threshold(interval: int | None, after: int) -> None:
    known = Clocks(NOW, intervals={} if interval is None else {1: interval})
    assert known.overdue_after_ms(1, 5 * S) == 5 * S + after
    assert known.overdue_after_ms(None, 5 * S) == 5 * S + after, "of an unknown coordinator the longest that is known"
    begun = NOW - 5 * S - after
    assert not known.is_overdue(BrokerTime(begun, 1), 5 * S)
    assert known.is_overdue(BrokerTime(begun - 1, 1), 5 * S)


def test_two_times_are_in_doubt_only_within_what_a_clock_fell() -> None:
    known = Clocks(NOW, falls=(Fall(1, NOW, NOW - HOUR, NOW - MIN, "t-0", 3),))
    times = np.array([NOW - HOUR - MIN, NOW - HOUR, NOW - MIN, NOW, NOW + MIN])
    assert known.fell_ms(times, 1).tolist() == [0, HOUR, HOUR, HOUR, 0]
    assert not known.fell_ms(times, 2).any()


def test_times_that_a_clock_read_twice_have_no_order_but_in_the_log_that_shows_its_fall() -> None:
    back = Clocks(NOW, falls=(Fall(1, NOW, NOW - MIN, NOW, "t-0", 3, wrong_from=NOW - MIN),))
    assert back.may_be_reversed(NOW - 30 * S, NOW - 50 * S, "u-0")
    assert not back.may_be_reversed(NOW - 30 * S, NOW - 50 * S, "t-0")
    assert not back.may_be_reversed(NOW - 30 * S, NOW - 2 * MIN, "u-0"), "from before the clock read anything twice"
    jumped = Clocks(NOW, falls=(Fall(1, NOW, NOW - DAY, NOW, "t-0", 3, wrong_from=NOW - MIN),))
    assert not jumped.may_be_reversed(NOW - HOUR, NOW - 2 * HOUR, "u-0"), "it read no such time before it fell"


def test_a_step_explains_a_pause_that_ends_while_the_clock_ran_ahead() -> None:
    fall = Fall(1, NOW + 2 * DAY, NOW, NOW + 2 * DAY - MIN, "t-0", 3)
    known = Clocks(NOW, falls=(fall,))
    assert known.explains(1, 2 * DAY, NOW + 2 * DAY - 1) == fall
    assert known.explains(1, 30 * S, NOW + 2 * DAY) is None, "both times are of the clock that ran ahead"
    assert known.explains(1, 2 * DAY, NOW) is None
    assert known.explains(2, 2 * DAY, NOW + 2 * DAY - 1) is None


# From the metadata and the replicas.


def broker(name: str, time: int | None, *, fenced: bool = False, stopping: bool = False, number: int = 1) -> Change:
    return Change(9, time, MetadataRecord(name, 0, {}), broker=BrokerState(number, 1, "", fenced, stopping, (), None))


REGISTER, CHANGE, GONE = "RegisterBrokerRecord", "BrokerRegistrationChangeRecord", "UnregisterBrokerRecord"


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ([broker(REGISTER, 5)], None),
        ([broker(REGISTER, None)], None),
        ([broker(REGISTER, 5, fenced=True)], "nothing"),
        ([broker(REGISTER, 5, fenced=True), broker(CHANGE, 6)], None),
        ([broker(REGISTER, 5), broker(CHANGE, 7, stopping=True), broker(CHANGE, 9, fenced=True, stopping=True)], 7),
        ([broker(REGISTER, 5), broker(CHANGE, 9, fenced=True)], 9),
        ([broker(REGISTER, 5), broker(GONE, 9)], 9),
        ([broker(REGISTER, 5), broker(CHANGE, 7, fenced=True), broker(REGISTER, 8, fenced=True)], 7),
        ([broker(REGISTER, 5), broker(CHANGE, 7, fenced=True), broker(CHANGE, 8)], None),
        ([broker(REGISTER, 5), broker(CHANGE, None, fenced=True)], -1),
    ],
)
def test_when_the_last_session_of_a_broker_ended(changes: list[Change], wanted: int | str | None) -> None:
    sessions: Sessions = {}
    for change in changes:
        note_session(change, sessions)
    assert sessions.get(1, "nothing") == wanted


def test_each_cluster_has_its_own_time() -> None:
    one, other = made.facts(broker_time=NOW), made.facts(broker_time=NOW + DAY)
    other.join_key = "other"
    built = build([brief(one), brief(other)], {}, None)
    assert {key: (c.as_of, c.newest_time) for key, c in built.items()} == {
        "cluster": (NOW, NOW),
        "other": (NOW + DAY, NOW + DAY),
    }
    given = build([brief(one), brief(other)], {}, NOW + 7)
    assert {c.as_of for c in given.values()} == {NOW + 7}


def test_the_interval_is_the_brokers_own_setting() -> None:
    name = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    settings = ClusterSettings(broker_configs={"1": {name: "600000"}, "": {name: "20000"}}, sessions={2: None})
    known = build([brief(made.facts(broker_time=NOW))], {"cluster": settings}, None)["cluster"].clocks
    assert [known.interval_ms(number) for number in (1, 2, None)] == [600_000, 20_000, 600_000]
    assert build([brief(made.facts())], {}, None)["cluster"].clocks.interval_ms(1) == 10_000


def test_a_stopped_broker_ends_nothing_any_more() -> None:
    """Controllers and other brokers go on for three days."""
    settings = ClusterSettings(sessions={1: NOW + MIN, 2: None}, newest_time=NOW + 3 * DAY, voters=(100, 101, 102))
    known = build([brief(made.facts(broker_time=NOW))], {"cluster": settings}, None)["cluster"].clocks
    assert (until(known, 1), until(known, 2)) == (NOW + 21 * S, NOW + 3 * DAY - 39 * S)


def test_clients_show_until_when_a_broker_took_records_where_no_session_is_known() -> None:
    """Not beyond the metadata, and not where broker-written times are in the same log."""
    replica, data = made.facts(broker_time=NOW), made.facts("beat", any_time=NOW + HOUR)
    for end, wanted in ((NOW + 2 * HOUR, NOW + HOUR), (NOW + MIN, NOW + MIN), (-1, NOW)):
        settings = ClusterSettings(newest_time=end)
        known = build([brief(replica), brief(data)], {"cluster": settings}, None)["cluster"].clocks
        assert until(known, 1) == wanted
    replica.any_time = NOW + DAY
    known = build([brief(replica)], {"cluster": ClusterSettings(newest_time=NOW + DAY)}, None)["cluster"].clocks
    assert until(known, 1) == NOW


# How far clocks differ.


def test_the_clocks_of_brokers_are_compared_by_most_of_their_markers() -> None:
    """Broker 2 is 10 min ahead of broker 1, and broker 3 is 5 min behind broker 2; one marker came late."""
    pairs = [(1, 2, 10 * MIN - 20, 10 * MIN + 30), (1, 2, 10 * MIN - 400, 10 * MIN + 5), (1, 2, 50 * MIN, 51 * MIN)]
    pairs += [(3, 2, 5 * MIN - 10, 5 * MIN + 15), (2, 3, -5 * MIN - 30, -5 * MIN + 10)]
    known = Clocks(NOW)
    known.compare(Lag(*pair) for pair in pairs)
    assert known.apart.keys() == {1, 2, 3}
    assert abs(known.ahead_ms(2, 1) - 10 * MIN) < S
    assert abs(known.ahead_ms(3, 2) + 5 * MIN) < S
    assert abs(known.ahead_ms(3, 1) - 5 * MIN) < S
    assert abs(known.spread_ms - 10 * MIN) < S
    assert (known.measured_ms(1, 9), known.measured_ms(9, 9), known.measured_ms(None, None)) == (None, 0, None)


@pytest.mark.parametrize("turned", [False, True])
def test_order_alone_shows_how_far_a_clock_is_ahead_at_least(turned: bool) -> None:
    """Two markers of broker 2 are from before decisions of broker 1 that are stamped 50 and 49 minutes earlier."""
    pairs = [(50 * MIN, ALWAYS), (49 * MIN, ALWAYS)]
    known = differences(Lag(2, 1, -most, -least) if turned else Lag(1, 2, least, most) for least, most in pairs)
    assert known == {1: (0, 1), 2: (50 * MIN, 1)}


@pytest.mark.parametrize(
    "pairs",
    [
        [(1, 2, HOUR, HOUR + 50)],  # one alone may be a marker that was written by hand
        [(1, 2, HOUR, ALWAYS)],
        [(1, 2, HOUR, HOUR + 50), (1, 2, DAY, DAY + 50)],
        [(1, 2, HOUR, HOUR + 50)] * 2 + [(1, 2, n * DAY, n * DAY + 50) for n in (1, 2)],
        [(1, 1, HOUR, HOUR + 50)] * 3,
    ],
)
def test_few_markers_do_not_show_it(pairs: list[tuple[int, int, int, int]]) -> None:
    assert differences(Lag(*pair) for pair in pairs) == {}


def test_what_two_clocks_usually_differ_by_moves_nothing() -> None:
    known = Clocks(NOW)
    known.compare(Lag(1, 2, 29 * S, 29 * S + 50) for _ in range(3))
    assert (known.ahead_ms(2, 1), known.spread_ms) == (0, 0)


def test_the_newest_time_is_by_the_last_leaders_clock() -> None:
    """Broker 1 led for ten minutes, then broker 2, whose clock is an hour behind, for two."""
    eras = log(NOW, NOW + 10 * MIN, NOW - 49 * MIN, NOW - 48 * MIN, epochs=(0, 0, 1, 1))
    known = Clocks(NOW)
    known.compare(Lag(1, 2, -HOUR, -HOUR + 20) for _ in range(2))
    assert newest_of(eras) == NOW + 10 * MIN
    assert abs(newest_of(eras, known) - (NOW - 48 * MIN)) < S
    known.compare(Lag(1, 3, -HOUR, -HOUR + 20) for _ in range(2))
    assert newest_of(eras, known) == NOW - 48 * MIN, "by how much these two differ is unknown"
    assert [eras.written_by(time) for time in (NOW + MIN, NOW - 48 * MIN, NOW - DAY)] == [1, 2, None]


@pytest.mark.parametrize(("one_clock", "margin"), [(False, 30 * S), (True, S)])
def test_times_are_compared_with_what_clocks_usually_differ_by(one_clock: bool, margin: int) -> None:
    assert is_after(NOW + margin + 1, NOW, one_clock=one_clock)
    assert not is_after(NOW + margin, NOW, one_clock=one_clock)
    assert not is_after(NOW, NOW + margin + 1, one_clock=one_clock)
    assert at_most_ms(NOW, one_clock=one_clock) == NOW + margin
    assert at_least_ms(NOW, one_clock=one_clock) == NOW - margin
    apart = np.array([-margin - 1, -margin, 0, margin, margin + 1])
    assert beyond_ms(apart, one_clock=one_clock).tolist() == [-margin - 1, 0, 0, 0, margin + 1]
    assert [beyond_ms(ms, one_clock=one_clock) for ms in apart.tolist()] == [-margin - 1, 0, 0, 0, margin + 1]


@pytest.mark.parametrize(
    ("one", "other", "margin"), [(1, 1, S), (1, 2, 30 * S), (1, None, 30 * S), (None, None, 30 * S)]
)
def test_a_time_of_a_broker_is_compared_by_whose_clock_it_is(one: int | None, other: int | None, margin: int) -> None:
    assert BrokerTime(NOW + margin + 1, one).is_after(BrokerTime(NOW, other))
    assert not BrokerTime(NOW + margin, one).is_after(BrokerTime(NOW, other))


def test_smaller_margins() -> None:
    """50 ms between two readings of a clock; a client's stamp is no reading of one a minute before."""
    assert (is_read_after(NOW + 51, NOW), is_read_after(NOW + 50, NOW)) == (True, False)
    assert by_a_client(NOW) == NOW - MIN


def test_differences_that_one_pair_of_clocks_may_have_at_once() -> None:
    """By a second on both sides: the first two meet at 1.5 s, the third one is 10 s away."""
    least, most = np.array([0, 2 * S, 12 * S]), np.array([S, 3 * S, 13 * S])
    assert most_at_once(least, most) == 2
    assert most_at_once(least[:0], most[:0]) == 0
