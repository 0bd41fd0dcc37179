"""Which holes of a log a cleaner may have left: its own broker's, or that of the broker that led."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from auditor.evidence.horizons import Cleaned, Missing, between, both_intact, cleaned, missing
from auditor.facts.events import Event, EventKind, blank_events
from auditor.rules.seen.cluster_view import Cluster, Election
from auditor.rules.seen.view import LogView
from tests.made import facts, transactions

COMPACT, DELETE = {"cleanup.policy": "compact"}, {"cleanup.policy": "delete"}


@pytest.mark.parametrize(("settings", "leader", "hole", "expected"), [
    (DELETE, 1, (10, 12), Missing.PROVED),  # no cleaner ever goes there
    (DELETE, 2, (10, 12), Missing.PROVED),
    (COMPACT, 1, (60, 62), Missing.PROVED),  # no cleaner takes from the active segment
    (COMPACT, 1, (10, 12), Missing.LIKELY),  # a pass that was ended early
    (COMPACT, 1, (48, 52), Missing.LIKELY),  # across the active segment's beginning
    (COMPACT, 2, (60, 62), Missing.UNDECIDABLE),  # a follower stores its leader's holes
    (COMPACT, 2, (10, 12), Missing.UNDECIDABLE),
    (COMPACT, None, (60, 62), Missing.UNDECIDABLE),  # of a ZooKeeper cluster's follower nobody can tell
    ({}, 1, (60, 62), Missing.PROVED),
    ({}, 1, (10, 12), Missing.LIKELY),  # nobody knows the policy
])  # fmt: skip
def test_what_a_hole_proves(
    settings: dict[str, str], leader: int | None, hole: tuple[int, int], expected: Missing
) -> None:
    cluster = Cluster(0, 0, topic_configs={"t": settings})
    cluster.leaders = {} if leader is None else {("t", 0): leader}
    replica = facts(leader_epochs=[(0, 0)], segments=["0.log", "50.log"], segment_bases=[0, 50], log_end=100)
    assert missing(LogView([replica], cluster), replica, hole[0]) == expected


def test_kafkas_default_counts_where_the_metadata_and_the_brokers_file_set_no_other() -> None:
    replica = facts(leader_epochs=[(0, 0)], log_end=100)
    cluster = Cluster(0, 0, has_metadata=True, broker_configs={"1": {"node.id": "1"}})
    assert missing(LogView([replica], cluster), replica, 10) == Missing.PROVED
    cluster = Cluster(0, 0, has_metadata=True)
    replica.segment_bases = [0, 50]
    assert missing(LogView([replica], cluster), replica, 10) == Missing.LIKELY


@pytest.mark.parametrize(("before", "base", "expected"), [
    (9, 10, True), (9, 12, True), (9, 13, False), (8, 10, False), (60, 70, True), (12, 10, False),
])  # fmt: skip
def test_batches_that_adjoin_but_for_markers_are_intact(before: int, base: int, expected: bool) -> None:
    """Markers at 10 and 11, cleaned below 50."""
    rows = transactions({"marker_offset": 10}, {"marker_offset": 11}, {"marker_offset": -1})
    log = LogView([facts(transactions=rows, intact_from=50)], Cluster(0, 0))
    assert both_intact(log, Event(previous_last_offset=before, base_offset=base)) is expected


def elected(epoch: int, leader: int, last: int) -> Election:
    return Election("", leader, epoch, last, (1, 2), (1, 2), (), (), False, False, 100, 1_000)


def holes(*rows: dict[str, int]) -> np.ndarray:
    """Events of holes, absent columns as blank."""
    events = blank_events(len(rows))
    for event, row in zip(events, rows, strict=True):
        event["kind"] = EventKind.OFFSET_HOLE
        for name, value in row.items():
            event[name] = value
    return events


@pytest.mark.parametrize(("hole", "expected"), [
    ((10, 12), Missing.UNDECIDABLE),  # this broker led, then another one: it may have come back with nothing
    ((50, 52), Missing.UNDECIDABLE),
    ((80, 82), Missing.PROVED),
])  # fmt: skip
def test_a_leader_that_was_away_may_have_fetched_its_replica_anew(hole: tuple[int, int], expected: Missing) -> None:
    """Broker 1 led to 40, broker 2 to 70, broker 1 since; all lies in one segment, where no cleaner goes."""
    cluster = Cluster(0, 0, topic_configs={"t": COMPACT})
    cluster.elections = {("t", 0): [elected(1, 2, 1), elected(2, 1, 2)]}
    replica = facts(leader_epochs=[(0, 0), (1, 40), (2, 70)], log_end=100)
    assert missing(LogView([replica], cluster), replica, hole[0]) == expected


def test_who_led_is_not_known_of_a_broker_without_a_name() -> None:
    replica = facts(broker_id=None, leader_epochs=[(0, 0)], log_end=100)
    assert missing(LogView([replica], Cluster(0, 0, topic_configs={"t": COMPACT})), replica, 60) != Missing.PROVED


@pytest.mark.parametrize(("given", "expected"), [
    ({}, Missing.LIKELY),
    ({"cleaner_offset": 0}, Missing.UNDECIDABLE),  # a cleaner has a checkpoint of it
    ({"partial": True}, Missing.UNDECIDABLE),  # batches lack some of their records: only cleaners leave such
])  # fmt: skip
def test_what_shows_that_a_topic_is_compacted(given: dict[str, Any], expected: Missing) -> None:
    events = holes({"first_missing_offset": 10, "base_offset": 12}, {"base_offset": 20, "last_offset": 25})
    events[1]["kind"] = EventKind.COUNT_BELOW_SPAN
    events = events if given.pop("partial", None) else events[:1]
    replica = facts(leader_epochs=[(0, 0)], log_end=100, events=events, **given)
    assert missing(LogView([replica], Cluster(0, 0)), replica, 10) == expected


def test_a_log_is_whole_from_behind_the_last_hole_that_nobody_can_decide() -> None:
    events = holes({"first_missing_offset": 10, "base_offset": 12, "time": 700},
                   {"first_missing_offset": 80, "base_offset": 83, "time": 900})  # fmt: skip
    replica = facts(leader_epochs=[(0, 0), (1, 40)], log_end=100, events=events)
    cluster = Cluster(0, 0, topic_configs={"t": COMPACT})
    cluster.elections = {("t", 0): [elected(1, 1, 2)]}  # the hole at 80 is this broker's own
    log = LogView([replica], cluster)
    assert cleaned(log, replica) == Cleaned(12, 700)
    cluster.topic_configs = {"t": DELETE}
    assert cleaned(LogView([replica], cluster), replica) == Cleaned(0, -1)
    cluster.topic_configs, replica.dropped_events = {"t": COMPACT}, {int(EventKind.OFFSET_HOLE): 1}
    assert cleaned(LogView([replica], cluster), replica).end == 100  # which are the last ones is not known


@pytest.mark.parametrize(("before", "base", "expected"), [
    (12, 40, Missing.PROVED), (2, 10, Missing.PROVED), (2, 11, Missing.UNDECIDABLE), (11, 40, Missing.UNDECIDABLE),
    (2, 40, Missing.UNDECIDABLE),
])  # fmt: skip
def test_batches_between_which_all_offsets_are_there_lack_nothing(before: int, base: int, expected: Missing) -> None:
    """Others wrote between them; only the offsets from 10 to 12 are missing."""
    replica = facts(log_end=100, events=holes({"first_missing_offset": 10, "base_offset": 13}))
    log = LogView([replica], Cluster(0, 0, topic_configs={"t": COMPACT}))
    assert between(log, Event(previous_last_offset=before, base_offset=base)) == expected
