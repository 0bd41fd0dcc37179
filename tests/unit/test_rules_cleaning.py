"""Which holes of a log a cleaner may have left: its own broker's, or that of the broker that led."""

from __future__ import annotations

import pytest

from auditor.facts.events import Event
from auditor.rules.cleaning import Missing, both_intact, missing
from auditor.rules.view import Cluster, LogView
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
    assert missing(LogView([replica], cluster), replica, *hole) == expected


def test_kafkas_default_counts_where_the_metadata_and_the_brokers_file_set_no_other() -> None:
    replica = facts(leader_epochs=[(0, 0)], log_end=100)
    cluster = Cluster(0, 0, has_metadata=True, broker_configs={"1": {"node.id": "1"}})
    assert missing(LogView([replica], cluster), replica, 10, 12) == Missing.PROVED
    cluster = Cluster(0, 0, has_metadata=True)
    replica.segment_bases = [0, 50]
    assert missing(LogView([replica], cluster), replica, 10, 12) == Missing.LIKELY


@pytest.mark.parametrize(("before", "base", "expected"), [
    (9, 10, True), (9, 12, True), (9, 13, False), (8, 10, False), (60, 70, True), (12, 10, False),
])  # fmt: skip
def test_batches_that_adjoin_but_for_markers_are_intact(before: int, base: int, expected: bool) -> None:
    """Markers at 10 and 11, cleaned below 50."""
    rows = transactions({"marker_offset": 10}, {"marker_offset": 11}, {"marker_offset": -1})
    log = LogView([facts(transactions=rows, intact_from=50)], Cluster(0, 0))
    assert both_intact(log, Event(previous_last_offset=before, base_offset=base)) is expected
