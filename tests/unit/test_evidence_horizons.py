"""Until when each file of a copy has all that was written, and what a finding says that rests on more than that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from auditor.connectors.codec.cluster_metadata import ClusterMetadata, PartitionState
from auditor.evidence.horizons import (
    ALWAYS,
    Horizon,
    HorizonSource,
    LastMarker,
    LogEnd,
    ReadTimes,
    checkpoint_passes,
    complete_until,
    copied_before,
    copying_ms,
    has_decision,
    lacking,
    outdated,
    starts_late,
)
from auditor.facts.coordinator_history import StateRecord, build_history, newest_decided
from auditor.facts.coordinator_log import pack
from auditor.facts.replica_facts import ENDED
from auditor.pipeline.cluster_context import brief, build
from auditor.pipeline.cluster_settings import ClusterSettings
from auditor.rules.resolution.resolve import resolve
from auditor.rules.seen.cluster_view import Cluster, Election, LeaderBounds
from auditor.rules.seen.view import Finding, LogView
from tests import made

NOW, S, MIN = 10_000_000, 1_000, 60_000


@pytest.mark.parametrize(
    ("size", "wanted"),
    [(0, 30 * S), (2_000_000_000, 130 * S), (17_400_000_000, 900 * S), (1 << 40, (30 + (1 << 40) // 20_000_000) * S)],
)
def test_copying_takes_half_a_minute_and_as_long_as_20_mb_a_second(size: int, wanted: int) -> None:
    """Without a cap: a large copy takes hours."""
    assert abs(copying_ms(size) - wanted) < S


def log(name: str, newest: int, folder: str = "broker-1", **more: Any) -> LogEnd:
    topic, _, partition = name.rpartition("-")
    return LogEnd(folder, topic, int(partition), newest, **{"broker_id": 1, "leader": 1} | more)


def moments(*logs: LogEnd, before: Iterable[tuple[str, int]] = ()) -> dict[str, int]:
    return complete_until(logs, dict.fromkeys(["broker-1", "broker-2"], 30 * S), before)


def test_each_directory_goes_by_its_own_newest_time() -> None:
    found = moments(log("t-0", NOW), log("u-0", NOW - MIN), log("t-0", NOW - 10 * MIN, "broker-2"), log("v-0", -1, "e"))
    assert found == {"broker-1": NOW - 30 * S, "broker-2": NOW - 10 * MIN - 30 * S}


@pytest.mark.parametrize("leader", [2, None])
def test_a_time_that_another_broker_may_have_written_is_up_to_half_a_minute_off(leader: int | None) -> None:
    assert moments(log("t-0", NOW, leader=leader)) == {"broker-1": NOW - 60 * S}
    assert moments(log("t-0", NOW, leader=leader), log("u-0", NOW - 10 * S)) == {"broker-1": NOW - 40 * S}


def test_a_file_that_was_copied_earlier_shows_how_long_copying_took() -> None:
    assert moments(log("t-0", NOW), before=[("broker-1", NOW - MIN)]) == {"broker-1": NOW - MIN - S}
    assert moments(log("t-0", NOW), before=[("broker-1", NOW)]) == {"broker-1": NOW - 30 * S}


def test_texts_are_made_by_hand_one_after_another() -> None:
    assert moments(log("t-0", NOW, is_text=True)) == {"broker-1": NOW - 15 * MIN}


# Files that were copied before others of their directory.


def early(end: LogEnd, read_until: int = -1, *, skipped: bool = False) -> list[tuple[str, int]]:
    return list(copied_before([end], lambda _: read_until, lambda _: skipped))


COPIED = NOW - 10 * MIN
TWO = ((NOW - MIN, NOW), (COPIED + MIN, COPIED + MIN))


def test_a_metadata_log_that_ends_earlier_was_copied_then() -> None:
    """A controller writes twice a second."""
    assert early(log("__cluster_metadata-0", COPIED)) == [("broker-1", COPIED)]


def test_a_log_without_the_newest_two_markers_was_copied_before_them() -> None:
    assert early(log("t-0", COPIED, decided=TWO)) == [("broker-1", COPIED)]


@pytest.mark.parametrize(
    "end",
    [
        log("t-0", COPIED, decided=TWO[:1]),  # one marker may be lost
        log("t-0", COPIED + 31 * S, decided=TWO),  # something is behind the first of both, by two clocks
        log("t-0", -1, decided=TWO),  # no broker's time at all: it may be empty
        log("t-0", COPIED, decided=TWO, is_cut=True),  # its end could not be read
    ],
)
def test_nothing_else_shows_an_early_copy(end: LogEnd) -> None:
    assert early(end) == []


def test_a_later_reading_or_a_leader_that_was_away_explains_lost_markers() -> None:
    """KAFKA-20734 skips the markers of all open transactions at once."""
    end = log("t-0", COPIED, decided=TWO)
    assert early(end, COPIED + MIN) == early(end, ALWAYS) == early(end, skipped=True) == []
    assert early(end, COPIED + 29 * S) == [("broker-1", COPIED + 29 * S)]


def record(
    state: str, time: int, producer: int = 7, epoch: int = 0, *, offset: int = 1, partition: int = 0, start: int = -1
) -> StateRecord:
    names = frozenset({"t-0"}) if state in ("Ongoing", "PrepareCommit", "PrepareAbort") else frozenset()
    begun = time if start < 0 else start
    return StateRecord(
        partition,
        offset,
        time,
        0,
        f"app-{producer}",
        state,
        producer,
        epoch,
        MIN,
        names,
        False,
        time,
        begun,
        0,
        "f",
        0,
        1,
    )


def committed(time: int, producer: int = 7, epoch: int = 0, partition: int = 0) -> list[StateRecord]:
    steps = (("Ongoing", 0), ("PrepareCommit", S), ("CompleteCommit", S + 20))
    return [record(state, time + ms, producer, epoch, partition=partition, start=time) for state, ms in steps]


def test_the_newest_two_decisions_of_a_partition_are_known() -> None:
    """Decided a second behind the start, completed 20 ms later; what is open has no decision."""
    log = pack([*committed(100 * S), *committed(300 * S), *committed(200 * S, 8), record("Ongoing", 400 * S, 9)])
    assert newest_decided(log) == {"t-0": ((301 * S, 301_020), (201 * S, 201_020))}
    assert newest_decided(pack(())) == {}


# Coordinators' logs that lack a decision.


def shown(time: int, **more: Any) -> dict[int, list[LastMarker]]:
    return {7: [LastMarker("t-0", 1, **{"epoch": 0, "time": time, "before": -1, "commit": True} | more)]}


BEGUN = NOW - 5 * MIN


@pytest.mark.parametrize(
    ("markers", "is_open", "lacks"),
    [
        (shown(NOW - MIN), False, True),  # half a minute behind the record that has it open
        (shown(BEGUN + 20 * S), False, False),  # it may be the one before, by two clocks
        (shown(NOW - MIN, has_decision=True), False, False),  # it is the one before, by a clock that is ahead
        (shown(BEGUN, epoch=1), False, True),  # of an epoch that was given out later
        (shown(NOW - MIN, commit=False), True, False),  # by hand, in one of two partitions
        (shown(NOW - MIN, commit=False), False, True),  # nothing of it is open any more
        (shown(NOW - MIN, commit=False, before=NOW - 2 * MIN), True, True),  # two of them
    ],
)
def test_a_marker_shows_that_the_coordinators_log_was_copied_before_its_decision(
    markers: dict[int, list[LastMarker]], is_open: bool, lacks: bool
) -> None:
    history = build_history(1, [record("Ongoing", BEGUN)])
    assert lacking(history, markers, lambda _: is_open) == ({0} if lacks else set())


def ended(*rows: tuple[int, int, int, int, int, int]) -> np.ndarray:
    return np.array(list(rows), ENDED)


@pytest.mark.parametrize(
    ("row", "whole", "there"),
    [
        ((7, 0, BEGUN + 41 * S, -1, 1, 1), True, True),  # a clock that is 40 s ahead
        ((7, 0, BEGUN + 41 * S, BEGUN - MIN, 1, 3), True, False),  # more markers than decisions
        ((7, 0, BEGUN + 41 * S, -1, 1, 1), False, True),
        ((7, 0, BEGUN + 41 * S, BEGUN + S, 1, 2), False, False),  # the marker before it is that of the last decision
        ((7, 1, BEGUN + 41 * S, -1, 1, 1), True, False),  # another epoch
        ((7, 0, BEGUN + 41 * S, -1, 0, 1), True, False),  # another result
        ((8, 0, BEGUN + 41 * S, -1, 1, 1), True, False),  # another producer
    ],
)
def test_the_order_of_both_logs_shows_whether_a_marker_has_its_decision(
    row: tuple[int, int, int, int, int, int], whole: bool, there: bool
) -> None:
    history = build_history(1, [*committed(BEGUN - 5 * MIN), *committed(BEGUN)])
    assert has_decision(history.named("t-0"), ended(row)[0], whole=whole) == there


@pytest.mark.parametrize(("count", "wanted"), [(1, {}), (2, {0: BEGUN + 41 * S})])
def test_a_sound_marker_by_a_clock_that_is_ahead_shows_no_older_copy(count: int, wanted: dict[int, int]) -> None:
    history = build_history(1, committed(BEGUN))
    logs = [log("t-0", NOW, whole=True, last_markers=ended((7, 0, BEGUN + 41 * S, -1, 1, count)))]
    assert outdated(history, logs, np.empty(0, np.int64), {0: BEGUN + S}) == wanted


@pytest.mark.parametrize(("time", "late"), [(BEGUN + 30 * MIN, False), (BEGUN - 31 * S, True), (BEGUN - 29 * S, False)])
def test_the_coordinators_log_begins_with_its_first_partition(time: int, late: bool) -> None:
    """The other one got its first id an hour later."""
    history = build_history(2, [*committed(BEGUN), *committed(BEGUN + 60 * MIN, 8, partition=1)])
    history.whole_log = {0: True, 1: True}
    found = starts_late(history, [log("t-0", NOW, first_markers=ended((9, 0, time, -1, 0, 1)))])
    assert (found is not None) == late
    assert found is None or (found.producer_id, found.begins) == (9, BEGUN)


# What a log must have.


def lacks(needed_by: int, *, moment: int, copied: int = -1, **given: bool) -> bool:
    whole = given.pop("whole", False)
    bounds = {("t", 0): LeaderBounds(0, 9, 9, copied, whole, None, 1, moment=moment)}
    return Cluster(NOW, NOW, bounds=bounds, **given).lacks("t", 0, needed_by, other_clock=False)  # type: ignore[arg-type]


def test_what_a_log_must_have() -> None:
    assert lacks(NOW, moment=NOW)
    assert not lacks(NOW - 1, moment=NOW)
    assert not lacks(NOW - 1, moment=-1, copied=NOW)  # it has something newer itself, however long copying took
    assert not lacks(NOW + MIN, moment=-1, whole=True)
    assert not lacks(NOW + MIN, moment=-1, at_once=True)
    assert Cluster(NOW, NOW, at_once=True).lacks("t", 0, -1, other_clock=False)  # it is not in the input at all
    two_clocks = Cluster(NOW, NOW, bounds={("t", 0): LeaderBounds(0, 9, 9, NOW, False, None, 1)})
    assert two_clocks.lacks("t", 0, NOW - 30 * S, other_clock=True)
    assert not two_clocks.lacks("t", 0, NOW - 30 * S - 1, other_clock=True)


def test_a_finding_in_doubt_is_an_info_that_says_what_it_would_be() -> None:
    view = LogView([made.facts(log_end=9)], Cluster(NOW, NOW))
    f = view.finding("critical", "m", doubt=True, evidence={"confidence": "proved"})
    assert (f.severity, f.if_true) == ("info", "critical")
    assert (f.evidence["confidence"], f.evidence["in_flight"]) == ("undecidable", True)
    f = view.finding("critical", "m", doubt=False)
    assert (f.severity, f.if_true, f.evidence["confidence"]) == ("critical", None, "proved")
    assert "in_flight" not in f.evidence


HELD = {"topic": "t", "partition": 0, "producer_id": 7, "offset": 5}


@pytest.mark.parametrize(
    ("head", "explained", "wanted"),
    [
        (("info", "critical"), ("critical", None), ("critical", None)),  # proved beside a doubt: it counts
        (("info", "critical"), ("error", None), ("error", "critical")),
        (("info", "critical"), ("info", "error"), ("info", "critical")),  # both in doubt
        (("critical", None), ("info", "error"), ("critical", None)),
        (("error", None), ("info", "critical"), ("error", None)),  # as its record says, in the rows too
    ],
)
def test_doubt_lowers_first_and_the_head_is_as_grave_as_what_it_explains(
    head: tuple[str, str | None], explained: tuple[str, str | None], wanted: tuple[str, str | None]
) -> None:
    def evidence(said: tuple[str, str | None]) -> dict[str, object]:
        return {"in_flight": True} if said[1] and said[0] == "info" else {}

    cause = Finding("hanging-transaction", head[0], if_true=head[1], evidence=evidence(head), **HELD)  # type: ignore[arg-type]
    other = Finding("late-write-after-marker", explained[0], if_true=explained[1], evidence=evidence(explained), **HELD)  # type: ignore[arg-type]
    (f,) = resolve([cause, other])
    assert (f.kind, f.severity, f.if_true) == ("hanging-transaction", *wanted)
    assert [also["severity"] for also in f.evidence["also"]] == [explained[0]]


def led(name: str, newest: int, end: int, checkpoint: int | None, epoch_start: int = 0, **more: Any) -> LogEnd:
    return log(name, newest, log_end=end, checkpoint=checkpoint, epoch_start=epoch_start, **more)


def passed(*logs: LogEnd) -> dict[tuple[str, int], tuple[str, int]]:
    return checkpoint_passes(logs)


def test_a_checkpoint_is_one_moment_of_all_the_logs_of_its_directory() -> None:
    """A pass is no older than the newest marker below an entry; a second is left for reading all of them."""
    logs = led("t-0", NOW - MIN, 10, 10), led("u-0", NOW, 20, 20)
    assert passed(*logs) == dict.fromkeys([("t", 0), ("u", 0)], ("broker-1", NOW - S))


@pytest.mark.parametrize(
    ("end", "checkpoint", "leader", "epoch_start", "there"),
    [
        (10, 10, 1, 0, True),
        (12, 10, 1, 0, True),  # what came behind the entry is there too
        (9, 10, 1, 0, False),  # the copy ends before what the checkpoint promises
        (10, None, 1, 0, False),
        (10, 10, 2, 0, False),  # a follower: its watermark comes a fetch late
        (10, 10, -1, 0, False),
        (10, 10, None, 0, True),  # nobody tells, as with ZooKeeper
        (10, 10, 1, 10, True),
        (12, 10, 1, 11, False),  # a new leader's watermark, as it was when it followed
    ],
)
def test_what_a_log_needs_to_be_known_by_its_checkpoint(
    end: int, checkpoint: int | None, leader: int | None, epoch_start: int, there: bool
) -> None:
    beside = led("u-0", NOW, 20, 20)
    assert (("t", 0) in passed(led("t-0", NOW - MIN, end, checkpoint, epoch_start, leader=leader), beside)) == there


def test_a_checkpoint_by_the_time_of_an_unknown_leader_may_be_half_a_minute_older() -> None:
    """It may follow a leader whose clock is ahead, as with ZooKeeper."""
    logs = led("t-0", NOW - MIN, 10, 10, leader=None), led("u-0", NOW, 20, 20, leader=None)
    assert passed(*logs) == dict.fromkeys([("t", 0), ("u", 0)], ("broker-1", NOW - 31 * S))


def test_a_leader_that_has_stopped_since_is_the_one_of_its_epoch() -> None:
    elected = Election("id", 1, 3, 2, (1,), (1, 2), (), (), recovering=False, reassigned=False, offset=9, time=NOW)
    gone = elected._replace(leader=-1, leader_epoch=4, last_leader=1)
    assert Cluster(NOW, NOW, leaders={("t", 0): -1}, elections={("t", 0): [elected, gone]}).led("t", 0, 3) == 1


def test_times_behind_an_entry_say_nothing_of_when_the_checkpoint_was_written() -> None:
    assert passed(led("t-0", NOW, 12, 10), led("u-0", NOW - MIN, 20, 20))["t", 0] == ("broker-1", NOW - MIN - S)


def test_two_directories_have_two_checkpoints() -> None:
    cluster = Cluster(NOW, NOW)
    cluster.passes = {("t", 0): ("a", NOW), ("u", 0): ("b", NOW), ("v", 0): ("a", NOW)}
    assert cluster.of_one_pass(("t", 0), ("v", 0))
    assert not cluster.of_one_pass(("t", 0), ("u", 0))
    assert not cluster.of_one_pass(("t", 0), ("w", 0))


@pytest.mark.parametrize(("committed", "wanted"), [(True, False), (False, True)])
def test_only_what_had_to_be_committed_is_known_by_a_checkpoint(committed: bool, wanted: bool) -> None:
    """A client's stamp says nothing of when its data was committed."""
    bounds = {("t", 0): LeaderBounds(0, 9, 9, NOW - 9 * MIN, False, None, 1)}
    cluster = Cluster(NOW, NOW, bounds=bounds, passes={("t", 0): ("broker-1", NOW)})
    by = HorizonSource.CHECKPOINT if committed else HorizonSource.OWN_STAMPS
    assert cluster.horizon("t", 0, committed=committed) == Horizon(NOW if committed else NOW - 9 * MIN, by)
    assert cluster.lacks("t", 0, NOW - S, other_clock=False, committed=committed) == wanted


@pytest.mark.parametrize(
    ("isr", "read", "known"),
    [((1, 2), ReadTimes(NOW, NOW + S, "m"), True), ((2,), ReadTimes(NOW, NOW + S, "m"), False), ((1, 2), None, False)],
)
def test_a_broker_that_ran_on_was_in_sync_when_its_log_was_read(
    isr: tuple[int, ...], read: ReadTimes | None, known: bool
) -> None:
    """Of three brokers that are copied while they run, all but one go on behind their own copy of the metadata. Only
    where nobody says when a log was read may it be of any time before."""
    metadata = ClusterMetadata()
    metadata.partitions["id", 0] = PartitionState("t", 0, "id", (1, 2), isr, 1, 0, 0)
    settings = {"cluster": ClusterSettings(metadata=metadata, went_on=frozenset({1}))}
    read_at = {} if read is None else {("broker-1", "t", 0): read}
    (cluster,) = build([brief(made.facts(broker_time=NOW, log_end=9))], settings, NOW, read_at=read_at).values()
    bounds = cluster.bounds["t", 0]
    assert (bounds.read, bounds.out_of_sync) == ((read, False) if known else (None, True))
