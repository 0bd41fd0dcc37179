"""Markers and the coordinator's transactions are paired in order; what a coordinator will still end is no incident."""

from __future__ import annotations

from typing import Any

import pytest

from auditor.evidence.cluster_clocks import Clocks
from auditor.facts.coordinator_history import STAMP, WINDOW, CoordinatorHistory, StateRecord, build_history, naming
from auditor.facts.events import EventKind, blank_events
from auditor.facts.replica_facts import ReplicaFacts, blank_producers
from auditor.rules.catalogue import registry
from auditor.rules.seen.cluster_view import Cluster, LeaderBounds
from auditor.rules.seen.view import LogView
from auditor.rules.transactions.making import open_transactions
from auditor.transactions.matching import matching, owner_complete
from auditor.transactions.record import BlockedState
from tests import made

PID, NOW = 7, 1_000_000
COORDINATOR = ("__transaction_state", 0)


def entry(offset: int, state: str, time: int, *, start: int = -1, timeout: int = 60_000) -> StateRecord:
    partitions = frozenset({"t-0"}) if not state.startswith(("Complete", "Empty")) else frozenset()
    return StateRecord(
        0, offset, time, 0, "app", state, PID, 0, timeout, partitions, False, time, start, 0, "0.log", 0, 0
    )  # fmt: skip


def transaction(offset: int, begin: int) -> list[StateRecord]:
    """Begins at ``begin``, is decided 10 ms later, complete 10 ms after that."""
    states = (("Ongoing", 0), ("PrepareCommit", 10), ("CompleteCommit", 20))
    return [entry(offset + k, state, begin + after, start=begin) for k, (state, after) in enumerate(states)]


def log(entries: list[StateRecord], *rows: dict[str, Any], **given: Any) -> LogView:
    """One partition on broker 1, its coordinator on broker 2, so that 30 s of skew are allowed for."""
    history: CoordinatorHistory = build_history(1, entries)
    history.whole_log[0], history.complete_from[0] = True, 0
    history.brokers[0] = 2
    rows = tuple({"producer_id": PID, "producer_epoch": 0, "last_epoch": 0, **row} for row in rows)
    replica: ReplicaFacts = made.facts(transactions=made.transactions(*rows), clean_shutdown=True, **given)
    cluster = Cluster(NOW, NOW, coordinator=history, bounds={COORDINATOR: LeaderBounds(0, 9, 9, NOW, True, None, 2)})
    return LogView([replica], cluster)


def closed(first: int, time: int) -> dict[str, Any]:
    return {"first_offset": first, "last_offset": first, "first_time": time - 5, "last_time": time - 5,
            "marker_offset": first + 1, "marker_epoch": 0, "commit": 1, "marker_timestamp": time}  # fmt: skip


def of_markers(view: LogView) -> dict[int, int | None]:
    """By the offset of each marker, the number of the transaction that it is of."""
    found = matching(view, PID)
    return {marker: found.number(marker) for marker in found.markers.tolist()}


def test_markers_go_to_their_own_transactions_however_much_clocks_may_differ() -> None:
    entries = [e for k in range(5) for e in transaction(3 * k, 500_000 + 40 * k)]
    view = log(entries, *(closed(10 * k, 500_015 + 40 * k) for k in (2, 3, 4)))  # the first two are gone
    assert of_markers(view) == {21: 2, 31: 3, 41: 4}


def test_a_marker_that_was_sent_again_belongs_to_the_transaction_before_it() -> None:
    entries = [*transaction(0, 500_000), *transaction(3, 501_000)]
    again = {**closed(-1, 500_018), "marker_offset": 12, "repeated": 1}
    view = log(entries, closed(10, 500_015), again, closed(20, 501_015))
    assert of_markers(view) == {11: 0, 12: 0, 21: 1}


def test_a_clock_that_is_seconds_off_still_pairs_in_order() -> None:
    entries = [*transaction(0, 500_000), *transaction(3, 600_000)]
    assert of_markers(log(entries, closed(10, 495_000), closed(20, 595_000))) == {11: 0, 21: 1}


def test_what_a_task_holds_of_transactions_has_a_bound_and_nothing_is_concluded_beyond_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two logs with a transaction of three records each that names the partition, and room for three records."""
    logs = [build_history(1, transaction(offset, time)) for offset, time in ((0, 500_000), (9, 700_000))]
    sources = [source for history in logs for source in history.sources]
    whole, cut = naming(sources, "t-0"), naming(sources, "t-0", 3)
    assert ([len(n.rows) for n in (whole, cut)], [n.left_out for n in (whole, cut)]) == ([2, 1], [False, True])
    assert [whole.window(k).end_time for k in range(2)] == [500_020, 700_020]
    view = log(transaction(0, 500_000), closed(10, 500_015))
    assert owner_complete(view, PID)
    monkeypatch.setattr("auditor.transactions.matching.naming", lambda _: cut)
    assert not owner_complete(view, PID)


def test_a_partition_is_named_where_its_name_is_and_nowhere_else() -> None:
    """One log's transaction has t-0, the other's u-0: t-1 and v-0 are in none, though one has the topic of t-1."""
    other = [each._replace(partitions=frozenset({"u-0"})) for each in transaction(0, 500_000)]
    sources = [*build_history(1, other).sources, *build_history(1, transaction(9, 700_000)).sources]
    found = {name: naming(sources, name) for name in ("t-0", "u-0", "t-1", "v-0")}
    assert {name: len(one.rows) for name, one in found.items()} == {"t-0": 1, "u-0": 1, "t-1": 0, "v-0": 0}
    assert found["t-0"].window(0).end_time == 700_020
    assert {(one.rows.dtype, one.stamps.dtype, one.left_out) for one in found.values()} == {(WINDOW, STAMP, False)}


def test_a_transaction_in_columns_is_what_its_entries_say() -> None:
    entries = [
        *transaction(0, 500_000),
        *transaction(3, 600_000)[:2],
        *transaction(5, 700_000)[1:],
        entry(9, "Empty", 1),
    ]
    found = naming(build_history(1, entries).sources, "t-0")
    for number, row in enumerate(found.rows):
        window = found.window(number)
        assert row["begun"] == window.start_time
        assert row["ended"] == (-1 if window.end_time is None else window.end_time)
        assert (row["has_prepare"], row["has_complete"]) == (window.prepare is not None, window.complete is not None)
        assert row["decided_time"] == window.decided.time if window.decided else row["decision"] == -1
        assert (row["added_row"] >= 0) == (window.added is not None)
    assert found.rows["begun"].tolist() == [500_000, 600_000, 700_000]
    assert found.rows["ended"].tolist() == [500_020, -1, 700_020]
    assert found.rows["added_time"][:2].tolist() == [500_000, 600_000]


def findings(rule: str, view: LogView) -> list[str]:
    return [f.severity for f in registry.judge(view, [registry.kinds()[rule]])]


@pytest.mark.parametrize(("begun", "severity"), [(NOW - 30_000, "info"), (NOW - 300_000, "error")])
def test_an_open_transaction_below_the_log_start_is_left_to_its_coordinator_until_its_time_is_up(
    begun: int, severity: str
) -> None:
    row = {"first_offset": 5, "last_offset": 9, "first_time": begun, "last_time": begun, "batches": 1}
    view = log([entry(0, "Ongoing", begun, start=begun)], row, log_start=20, log_end=30)
    assert findings("transaction-pinned-at-log-start", view) == [severity]


@pytest.mark.parametrize(("unreadable_at", "severity"), [(-1, "error"), (7, "error"), (25, "info")])
def test_bytes_that_cannot_be_read_may_hold_the_marker_of_what_began_below_the_log_start(
    unreadable_at: int, severity: str
) -> None:
    """The coordinator has completed it, so it seems to be forgotten here, unless what is lost lies behind its data."""
    row = {"first_offset": 5, "last_offset": 9, "first_time": 500_000, "last_time": 500_000, "batches": 1}
    view = log(transaction(0, 500_000), row, log_start=20, log_end=30, unreadable_at=unreadable_at)
    assert findings("transaction-pinned-at-log-start", view) == [severity]


@pytest.mark.parametrize(("began", "severity"), [(500_500, "info"), (499_000, "warning")])
def test_a_producer_that_wrote_before_the_log_began_is_no_stranger_to_it(began: int, severity: str) -> None:
    events = blank_events(1)
    events["kind"], events["producer_id"], events["base_offset"] = EventKind.FIRST_NONZERO, PID, 0
    events["found_sequence"], events["context"] = 40, 0
    view = log(transaction(0, 500_000), events=events, first_time=began)
    assert findings("unknown-producer-first-sequence", view) == [severity]


def aborted(first: int, time: int, **more: Any) -> dict[str, Any]:
    """Data of about ``time`` that an operator's ABORT ended, a millisecond later unless ``more`` says otherwise."""
    return {**closed(first, time + 6), "commit": 0, "first_time": time, "last_time": time, **more}


@pytest.mark.parametrize("after", [1_000, 600_000])
@pytest.mark.parametrize("completed", [True, False])
def test_an_abort_over_data_that_was_decided_to_be_committed(after: int, completed: bool) -> None:
    """At any time after the decision, whether the coordinator has completed it or not."""
    entries = transaction(0, 300_000)[: 3 if completed else 2]
    view = log(entries, aborted(10, 300_005, marker_timestamp=300_010 + after))
    assert findings("split-decision", view) == ["critical"]


def test_an_abort_while_it_was_still_open_splits_it_as_well() -> None:
    """The right marker, which comes later and closes nothing, does not make it whole."""
    entries = [entry(0, "Ongoing", 300_000, start=300_000), entry(1, "PrepareCommit", 420_000, start=300_000),
               entry(2, "CompleteCommit", 420_010, start=300_000)]  # fmt: skip
    late = {**closed(-1, 420_005), "marker_offset": 20}
    view = log(entries, aborted(10, 300_005, marker_timestamp=400_000), late)
    assert findings("split-decision", view) == ["critical"]


def test_late_data_behind_a_commit_that_was_carried_out_is_no_split() -> None:
    own = closed(10, 300_015)
    late = aborted(20, 300_400, marker_timestamp=900_000, prev_marker_offset=11, prev_marker_time=300_015)
    assert findings("split-decision", log(transaction(0, 300_000), own, late)) == []


def test_late_data_in_a_partition_that_was_added_and_never_written_to_is_no_split() -> None:
    marker = {**closed(-1, 300_015), "marker_offset": 5}
    late = aborted(20, 300_400, marker_timestamp=900_000, prev_marker_offset=5, prev_marker_time=300_015)
    assert findings("split-decision", log(transaction(0, 300_000), marker, late)) == []


def test_data_between_two_transactions_is_of_neither() -> None:
    """The next one begins minutes after it was ended."""
    own, late = closed(10, 300_015), aborted(20, 400_000, marker_timestamp=420_000, prev_marker_offset=11)
    entries = [*transaction(0, 300_000), *transaction(3, 600_000)]
    view = log(entries, own, {**late, "prev_marker_time": 300_015}, closed(30, 600_015))
    assert findings("split-decision", view) == []


@pytest.mark.parametrize(("age", "severities"), [(3_500_000, []), (3_700_000, ["critical"])])
def test_a_prepared_transaction_has_no_time_out_and_blocks_its_readers_all_the_same(
    age: int, severities: list[str]
) -> None:  # fmt: skip
    """Two-phase commit asks for a time-out of 2147483647 ms (KIP-939)."""
    begun = 500_000
    row = {"first_offset": 5, "last_offset": 9, "first_time": begun, "last_time": begun, "batches": 1}
    view = log([entry(0, "Ongoing", begun, start=begun, timeout=2**31 - 1)], row, log_end=30)
    view.cluster.clocks = Clocks(begun + age)
    assert findings("lso-stuck", view) == severities


@pytest.mark.parametrize(("minutes", "severities"), [(15, []), (16, ["critical"])])
def test_a_two_phase_commit_that_is_decided_is_carried_out_at_once(minutes: int, severities: list[str]) -> None:
    """It has no time-out for its application's decision (KIP-939); the coordinator's markers need none of it."""
    decided = entry(0, "PrepareCommit", NOW, start=500_000, timeout=2**31 - 1)
    row = {"first_offset": 5, "last_offset": 9, "first_time": NOW, "last_time": NOW, "batches": 1}
    data = log([decided], row, log_end=30)
    replica = made.facts("__transaction_state", log_end=1, clean_shutdown=True)
    states = LogView([replica], data.cluster)
    states.cluster.clocks = Clocks(NOW + minutes * 60_000)
    assert findings("stuck-prepare", states) == severities
    late = open_transactions(data)[0].standing is BlockedState.OVERDUE
    assert late == bool(severities)


@pytest.mark.parametrize(("timeout", "expected"), [(60_000, 0), (60_001, 1)])
def test_the_default_timeout_is_not_reported_though_the_id_commits_offsets(timeout: int, expected: int) -> None:
    """60 s is the default of Kafka's clients: an info about it would be an info about every application."""
    one = entry(0, "Ongoing", 500_000, start=500_000, timeout=timeout)
    history = build_history(1, [one._replace(partitions=frozenset({"__consumer_offsets-0"}))])
    replica = made.facts("__transaction_state", log_end=1, clean_shutdown=True)
    view = LogView([replica], Cluster(NOW, NOW, coordinator=history))
    assert findings("transaction-timeout-too-large", view) == ["info"] * expected


@pytest.mark.parametrize(("copied", "expected"), [(500_000, []), (700_000, ["error"])])
def test_data_whose_stamps_are_old_came_no_later_than_its_marker(copied: int, expected: list[str]) -> None:
    """The coordinator's file was copied before the marker was written: the record that is missed may be newer."""
    elsewhere = entry(0, "Ongoing", 300_000, start=300_000)._replace(partitions=frozenset({"u-0"}))
    row = {**closed(10, 600_000), "first_time": 400_000, "last_time": 400_000, "first_timestamp": 400_000}
    view = log([elsewhere], row)
    view.cluster.bounds[COORDINATOR] = LeaderBounds(0, 9, 9, copied, False, None, 2)
    assert findings("partition-not-in-transaction", view) == expected


@pytest.mark.parametrize(("moment", "cleaned", "expected"), [
    (600_100, True, []), (600_100, False, ["critical"]), (700_000, True, ["critical"]),
])  # fmt: skip
def test_a_marker_whose_decision_was_cleaned_away_is_not_against_one_that_came_behind_the_copy(
    moment: int, cleaned: bool, expected: list[str]
) -> None:
    """A broker that was copied while it ran: its partition until ``moment``, then the coordinator's log, from which the
    cleaner has taken what was before offset 100. The COMMIT came half a second before the ABORT was decided."""
    states = (("Ongoing", 600_500), ("PrepareAbort", 600_510), ("CompleteAbort", 600_520))
    view = log(
        [entry(100 + k, state, time, start=600_500) for k, (state, time) in enumerate(states)], closed(10, 600_000)
    )
    history = view.cluster.coordinator
    assert history is not None
    history.brokers[0], history.whole_log[0], history.complete_from[0] = 1, not cleaned, 100 if cleaned else 0
    view.cluster.bounds[view.topic, view.partition] = LeaderBounds(0, 12, 12, moment, False, None, 1)
    assert findings("marker-contradicts-decision", view) == expected


@pytest.mark.parametrize(("log_start", "stamp", "others", "expected"), [
    (20, 601_005, None, []), (20, 600_009, None, ["info"]), (20, 600_009, 600_009, ["critical"]),
    (0, 601_005, None, ["critical"]),
])  # fmt: skip
def test_a_marker_that_retention_took_was_not_skipped(
    log_start: int, stamp: int, others: int | None, expected: list[str]
) -> None:
    """As on a broker of 3.9.1 that was well: a COMMIT at 600 010, whose marker was below the log start; a second later
    the next transaction, whose client stamps its batch a moment before the coordinator's record of it, is aborted.
    Another producer's marker behind the data, from before that COMMIT, shows that the data was there by then."""
    states = (("Ongoing", 601_010), ("PrepareAbort", 601_060), ("CompleteAbort", 601_070))
    later = [entry(3 + k, state, time, start=601_010) for k, (state, time) in enumerate(states)]
    rows = [{**closed(30, 601_065), "commit": 0, "marker_offset": 35, "first_time": stamp, "last_time": stamp,
             "first_timestamp": stamp, "last_timestamp": stamp}]  # fmt: skip
    if others is not None:
        rows.append({**closed(31, others), "producer_id": 8, "producer_epoch": 0})
    view = log([*transaction(0, 600_000), *later], *rows, log_start=log_start, log_end=50)
    history = view.cluster.coordinator
    assert history is not None
    history.brokers[0] = 1
    assert findings("split-decision", view) == expected


@pytest.mark.parametrize(("begins", "said"), [(0, "broker 2 has them"), (40, "and no other replica of the input")])
def test_the_other_replicas_are_asked_for_the_sequences_before(begins: int, said: str) -> None:
    """A follower that has them shows that the leader lost them, and where they are."""
    events, producers = blank_events(1), blank_producers(1)
    events["kind"], events["producer_id"], events["base_offset"] = EventKind.FIRST_NONZERO, PID, 0
    events["found_sequence"], events["context"], events["producer_epoch"] = 40, 0, 0
    producers["producer_id"], producers["first_sequence"], producers["first_epoch"] = PID, begins, 0
    view = log(transaction(0, 500_000), events=events, first_time=499_000)
    view.replicas.append(made.facts(broker_id=2, log_dir="b2", producers=producers))
    rule = registry.kinds()["unknown-producer-first-sequence"]
    (found,) = rule.completed(rule.check(view))
    assert found.message.endswith(f"does not have sequences 0 to 39, {said}")
