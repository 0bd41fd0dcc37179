"""Data under the marker of its producer's next transaction: proved by brokers' clocks, else likely."""

from __future__ import annotations

from typing import Any

import pytest

from auditor.rules.catalogue import registry
from auditor.rules.seen.view import Finding, LogView
from tests.unit.test_rules_windows import closed, entry, log, transaction

RULE = "transactions-merged-under-one-marker"
ADDED = 500_000  # by the coordinator's clock: the transaction has the partition


def merged(lead: int, **more: Any) -> dict[str, Any]:
    """Data whose first batch is stamped ``lead`` ms before its transaction had the partition, the last 5 ms after."""
    return {
        **closed(10, ADDED + 15), "first_timestamp": ADDED - lead, "first_time": ADDED - lead, "last_time": ADDED + 5,
        "batches": 2, "last_offset": 14, "marker_offset": 15, "first_append_time": 0, **more,
    }  # fmt: skip


def found(view: LogView, *, same_broker: bool = False) -> list[Finding]:
    history = view.cluster.coordinator
    assert history is not None
    history.brokers[0] = view.leader.broker_id if same_broker else 2
    return list(registry.judge(view, [registry.kinds()[RULE]]))


def said(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(f.severity, f.evidence["confidence"]) for f in findings]


PROVED, LIKELY = ("critical", "proved"), ("info", "likely")


@pytest.mark.parametrize(("lead", "expected"), [(5_000, [PROVED]), (1_001, [PROVED]), (999, [])])
def test_what_a_broker_stamped_that_is_the_coordinator_as_well(lead: int, expected: list[Any]) -> None:
    undecided = entry(3, "Ongoing", 600_000, start=600_000), entry(4, "PrepareCommit", 600_010, start=600_000)
    entries = [*transaction(0, ADDED), *undecided]  # a marker is missing, so the two clocks cannot be compared
    assert said(found(log(entries, merged(lead, first_append_time=1)), same_broker=True)) == expected


@pytest.mark.parametrize("apart", [0, -20_000, 20_000])
@pytest.mark.parametrize(("lead", "expected"), [(5_000, [PROVED]), (100, [PROVED]), (40, [])])
def test_what_another_broker_stamped_by_how_far_its_markers_are_from_the_decisions(
    apart: int, lead: int, expected: list[Any]
) -> None:
    """The markers show that its clock is ``apart`` ms ahead, 5 ms more or less."""
    row = merged(lead, first_append_time=1)
    for name in ("first_timestamp", "first_time", "last_time", "marker_timestamp"):
        row[name] += apart
    assert said(found(log(transaction(0, ADDED), row))) == expected


def test_clocks_are_not_compared_where_markers_and_decisions_may_go_together_otherwise() -> None:
    view = log([*transaction(0, 400_000), *transaction(3, ADDED)], merged(5_000, first_append_time=1))
    assert found(view) == []


def test_clocks_are_not_compared_where_another_broker_leads_by_then() -> None:
    row = merged(5_000, first_append_time=1, first_leader_epoch=3, marker_leader_epoch=4)
    assert found(log(transaction(0, ADDED), row)) == []


@pytest.mark.parametrize(("at", "epochs", "expected"), [
    (12, (7, 7), PROVED), (16, (7, 7), LIKELY), (12, (7, 8), LIKELY)])  # fmt: skip
def test_a_marker_of_another_producer_right_behind_the_first_batch_says_when_that_came(
    at: int, epochs: tuple[int, int], expected: tuple[str, str]
) -> None:
    """Clients' stamps alone prove nothing; a marker that is no earlier than the transaction's last batch neither."""
    other = {**closed(-1, ADDED - 4_000), "producer_id": 8, "marker_offset": at}
    row = merged(5_000, first_leader_epoch=epochs[0], last_leader_epoch=epochs[1], marker_leader_epoch=epochs[1])
    findings = found(log(transaction(0, ADDED), other, row), same_broker=True)
    assert said(findings) == [expected]
    assert f"marker at {at}" in findings[0].evidence["known_by"] or expected == LIKELY


def usual(count: int) -> tuple[list[Any], list[dict[str, Any]]]:
    """Transactions that begin 10 ms after their first records are stamped."""
    entries, rows = [], []
    for k in range(count):
        begin = 300_000 + 1_000 * k
        entries += transaction(3 * k, begin)
        rows.append({**closed(100 * k + 1_000, begin + 15), "first_timestamp": begin - 10, "first_time": begin - 10,
                     "batches": 1, "first_append_time": 0})  # fmt: skip
    return entries, rows


def late(count: int, lead: int, **more: Any) -> LogView:
    """Behind the usual ones one whose data begins ``lead`` ms early, by its client."""
    entries, rows = usual(count)
    row = merged(lead, prev_marker_offset=100 * count + 901, prev_marker_time=299_015 + 1_000 * count, **more)
    for name, at in (("first_offset", 5_010), ("last_offset", 5_014), ("marker_offset", 5_015)):
        row[name] = at
    return log([*entries, *transaction(3 * count, ADDED)], *rows, row)


@pytest.mark.parametrize(("others", "lead", "expected"), [
    (3, 5_000, [("warning", "likely")]),  # it never began like that
    (2, 5_000, [LIKELY]),  # too few to say
    (3, 999, []), (3, 31_000, [("critical", "likely")])])  # fmt: skip
def test_by_clients_stamps_it_is_likely(others: int, lead: int, expected: list[Any]) -> None:
    assert said(found(late(others, lead))) == expected


@pytest.mark.parametrize(("prior", "expected"), [
    (ADDED - 31_000, [("critical", "likely")]), (ADDED - 5_000, [("warning", "likely")]), (ADDED - 999, []),
    (ADDED + 14, []),
    (ADDED + 16, [("critical", "likely")])])  # fmt: skip
def test_a_batch_is_no_older_than_what_stands_before_it(prior: int, expected: list[Any]) -> None:
    """After an outage clients send what they stamped before it. A time newer than the marker behind is wrong."""
    assert said(found(late(3, 36_000, prior_time=prior))) == expected


@pytest.mark.parametrize(("prior", "expected"), [
    (ADDED - 11_000 + 25_000, [("warning", "likely")]), (ADDED + 25_000, []),
    (ADDED + 60_000, [("warning", "likely")])])  # fmt: skip
def test_after_an_outage_a_clients_clock_may_be_ahead(prior: int, expected: list[Any]) -> None:
    """By 25 s, as its other transactions show, whose stamps are later than their coordinator's."""
    view = late(3, 11_000, prior_time=prior)
    assert not said(found(late(3, 11_000, prior_time=ADDED)))
    view.leader.transactions["first_timestamp"][:3] += 25_000
    assert said(found(view)) == expected


def test_a_producer_that_often_waits_for_its_coordinator_is_not_accused() -> None:
    view = late(3, 5_000)
    rows = view.leader.transactions
    rows["first_timestamp"][0] -= 2_000
    assert found(view) == []


def test_a_coordinator_that_moved_keeps_its_clients_waiting() -> None:
    entries, rows = usual(3)
    moved = [e._replace(leader_epoch=1) for e in transaction(9, ADDED)]
    row = merged(5_000, prev_marker_offset=1_201, prev_marker_time=302_015, first_offset=5_010, last_offset=5_014,
                 marker_offset=5_015)  # fmt: skip
    assert said(found(log([*entries, *moved], *rows, row))) == [LIKELY]


def test_records_that_keep_the_times_of_old_events_say_nothing() -> None:
    """A Streams application that catches up: stamps from before its last transaction up to now, in one transaction."""
    hours = 2 * 3_600_000
    row = merged(45_000, first_timestamp=ADDED - hours, prev_marker_offset=5, prev_marker_time=ADDED - 45_000)
    assert found(log(transaction(0, ADDED), row)) == []


def test_without_the_whole_history_of_an_id_what_lies_behind_a_whole_transaction_is_judged() -> None:
    entries = [*transaction(0, 400_000), *transaction(3, ADDED)]
    own = {**closed(1, 400_015), "batches": 1}
    view = log(entries, own, merged(5_000, first_append_time=1, prev_marker_offset=2, prev_marker_time=400_015))
    history = view.cluster.coordinator
    assert history is not None
    history.whole_log[0] = False
    assert said(found(view)) == [PROVED]
    history.complete_from[0] = 3  # the record that completed the one before may be all that is left of several
    assert found(view) == []
