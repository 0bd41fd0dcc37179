"""Rules on committed offsets (KIP-447): each on a history that breaks it and on one that must not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from auditor.facts.coordinator_history import CoordinatorHistory, StateRecord, build_history
from auditor.facts.replica_facts import ReplicaFacts
from auditor.model.groups import GroupPartition
from auditor.rules.committed_offsets import story_of
from auditor.rules.seen.cluster_view import Cluster, LeaderBounds
from auditor.rules.seen.view import Finding, LogView
from tests import corpora, facts, made

HOUR = 3_600_000
RULES = (
    "pending-offsets-blocked", "zombie-offset-commit", "interleaved-offset-producers", "offset-regression",
    "offset-skips-aborted-input", "committed-offset-out-of-range",
)  # fmt: skip
Row = dict[str, Any]


def commit(offset: int, value: int | None, pid: int = -1, **given: Any) -> Row:
    """A record of group g on t-0; ``pid`` -1: outside a transaction; value None: a tombstone."""
    row = {
        "file": "0.log", "position": offset, "offset": offset, "record_timestamp": 1000 + offset, "group_id": "g",
        "consumed_topic": "t", "consumed_partition": 0, "tombstone": value is None, "committed_offset": value,
        "is_transactional": pid >= 0, "producer_id": pid, "producer_epoch": 0 if pid >= 0 else -1,
    }  # fmt: skip
    return row | given


def generation(offset: int, number: int, *members: str, **given: Any) -> Row:
    """A record of classic group g."""
    row = {
        "file": "0.log", "position": offset, "offset": offset, "record_timestamp": 1000 + offset, "group_id": "g",
        "key_type": 2, "kind": "GroupMetadata", "tombstone": False, "generation": number, "member_ids": list(members),
    }  # fmt: skip
    return row | given


def ended(pid: int, offset: int, commits: bool = True) -> Row:
    return {"producer_id": pid, "first_offset": 0, "marker_offset": offset, "commit": int(commits)}


def log_of(commits: list[Row], groups: list[Row] = [], ends: list[Row] = [], **given: Any) -> LogView:  # noqa: B006
    """A ``__consumer_offsets`` partition of these records and markers, never cleaned unless ``intact_from`` says so."""
    replica: ReplicaFacts = made.facts(
        "__consumer_offsets",
        log_end=1000,
        broker_time=HOUR,
        intact_from=given.pop("intact_from", 0),
        tables={
            "offset_commits": made.table("offset_commits", *commits),
            "group_metadata": made.table("group_metadata", *groups),
        },
        transactions=made.transactions(*ends),
    )
    cluster = Cluster(as_of=given.pop("as_of", HOUR), newest_time=HOUR, **given)
    return LogView([replica], cluster)


def found(log: LogView, *rules: str) -> list[Finding]:
    return facts.judge([log], *(rules or RULES))


def said(log: LogView, *rules: str) -> list[tuple[str, str]]:
    return [(f.kind, f.severity) for f in found(log, *rules)]


# --- what is in force ---------------------------------------------------------------------------------------------


def test_a_pending_value_gives_way_to_a_later_plain_commit() -> None:
    """Order is that of the records, not of the decision (semantics 5.1)."""
    story = story_of(log_of([commit(1, 10, pid=7), commit(2, 5)], ends=[ended(7, 3)]))
    assert [(c.value, c.record_offset) for c in story.in_force()] == [(5, 2)]


def test_of_two_commits_in_a_transaction_the_last_wins_and_an_abort_drops_both() -> None:
    rows = [commit(1, 10, pid=7), commit(2, 20, pid=7)]
    assert [c.value for c in story_of(log_of(rows, ends=[ended(7, 3)])).in_force()] == [20]
    assert list(story_of(log_of(rows, ends=[ended(7, 3, commits=False)])).in_force()) == []


def test_a_tombstone_takes_pending_values_too() -> None:
    story = story_of(log_of([commit(1, 10, pid=7), commit(2, None)], ends=[ended(7, 3)]))
    assert (list(story.in_force()), story.pending(7)) == ([], [])


def test_what_no_marker_has_decided_is_pending() -> None:
    story = story_of(log_of([commit(1, 10, pid=7)], ends=[ended(8, 3)]))
    assert [c.place for c in story.pending(7)] == [GroupPartition("g", "t-0")]
    assert list(story.in_force()) == []


def test_records_below_the_log_start_are_not_judged() -> None:
    log = log_of([commit(1, 10), commit(5, 4)])
    log.leader.log_start = 3
    assert [(c.value, c.record_offset) for c in story_of(log).in_force()] == [(4, 5)]
    assert said(log) == []


def test_the_state_kept_while_reading_is_that_of_the_values_alive() -> None:
    """Values that were replaced or dropped are let go."""
    rows = [commit(k, k, pid=7 if k % 2 else -1) for k in range(1, 40)]
    ends = [ended(7, k + 100, commits=bool(k % 3)) for k in range(40)]
    story = story_of(log_of(rows, ends=ends))
    alive = {c.record_offset for c in story.in_force()} | {c.record_offset for c in story.pending(7)}
    assert set(story.commits) == alive


# --- offset-regression ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pid", "members", "severity"),
    [(7, ("a",), "error"), (7, (), "warning"), (-1, ("a",), "warning"), (-1, (), "info")],
)
def test_an_offset_that_goes_back(pid: int, members: tuple[str, ...], severity: str) -> None:
    groups = [generation(1, 3, *members)]
    log = log_of([commit(2, 50), commit(5, 40, pid=pid)], groups, ends=[ended(7, 6)])
    (f,) = found(log)
    assert (f.kind, f.severity) == ("offset-regression", severity)
    assert (f.topic, f.partition, f.group_id, f.offset, f.file) == ("t", 0, "g", 40, "0.log")
    assert f.producer_id == (None if pid < 0 else pid)
    assert (f.evidence["offset_before"], f.evidence["record_offset"]) == (50, 5)


@pytest.mark.parametrize(
    ("commits", "ends"),
    [
        ([commit(2, 50), commit(3, 40, pid=7)], [ended(7, 6, commits=False)]),  # aborted
        ([commit(2, 50), commit(3, 40, pid=7)], []),  # pending
        ([commit(2, 50), commit(3, None), commit(4, 40)], []),  # deleted in between
        ([commit(2, 40, pid=7), commit(3, 50)], [ended(7, 6)]),  # overtaken: never in force
        ([commit(2, 50), commit(3, 50)], []),
        ([commit(2, 50), commit(3, 40, consumed_partition=1)], []),
        ([commit(2, 50), commit(3, 40, group_id="h")], []),
    ],
)
def test_offsets_that_do_not_go_back(commits: list[Row], ends: list[Row]) -> None:
    assert said(log_of(commits, ends=ends)) == []


def test_a_run_of_regressions_by_one_writer_is_one_finding() -> None:
    log = log_of([commit(2, 50), commit(3, 40), commit(4, 60), commit(5, 30)])
    (f,) = found(log)
    assert (f.offset, f.evidence["times"]) == (40, 2)


# --- zombies and interleaving ---------------------------------------------------------------------------------------


def five_steps(last_commits: bool = True, last_after: int = 8) -> LogView:
    """A commits; a rebalance gives the partition to B, which commits; A wakes and commits (KIP-447)."""
    commits = [commit(2, 10, pid=1), commit(6, 30, pid=2), commit(last_after, 20, pid=1)]
    groups = [generation(1, 1, "a"), generation(4, 2, "b")]
    return log_of(commits, groups, [ended(1, 3), ended(2, 7), ended(1, 9, commits=last_commits)])


def test_the_zombie_of_kip_447_is_found_with_the_regression_it_causes() -> None:
    log = five_steps()
    (f,) = found(log)
    assert (f.kind, f.severity) == ("zombie-offset-commit", "error")
    assert (f.producer_id, f.offset, f.group_id) == (1, 20, "g")
    assert (f.evidence["rival_producer_id"], f.evidence["rival_offset"]) == (2, 30)
    assert (f.evidence["older_generation"], f.evidence["generation"]) == (1, 2)
    assert [a["rule"] for a in f.evidence["also"]] == ["offset-regression"]


def test_a_zombie_whose_transaction_was_aborted_did_no_harm() -> None:
    assert said(five_steps(last_commits=False)) == []


def test_a_commit_before_the_rebalance_is_no_zombie() -> None:
    commits = [commit(2, 10, pid=1), commit(3, 20, pid=1), commit(6, 30, pid=2)]
    groups = [generation(1, 1, "a"), generation(4, 2, "b")]
    assert said(log_of(commits, groups, [ended(1, 5), ended(2, 7)])) == []


def test_the_new_owner_is_not_blamed_for_the_zombie_before_it() -> None:
    """q had the partition; p, known from another partition, is its owner now; q's late commit came first."""
    commits = [
        commit(2, 10, pid=2), commit(3, 5, pid=1, consumed_partition=1), commit(6, 12, pid=2), commit(7, 20, pid=1),
        commit(8, 21, pid=2),
    ]  # fmt: skip
    groups = [generation(1, 1, "a", "b"), generation(5, 2, "a", "b")]
    log = log_of(commits, groups, [ended(2, 9), ended(1, 10)])
    (f,) = found(log, "zombie-offset-commit")
    assert f.producer_id == 2


def test_a_zombie_in_a_cleaned_region_is_reported_one_step_lower() -> None:
    log = five_steps()
    log.leader.intact_from = 7
    assert [f.severity for f in found(log, "zombie-offset-commit")] == ["warning"]


def test_producers_that_take_turns_within_a_generation() -> None:
    commits = [
        commit(2, 10, pid=1),
        commit(3, 11, pid=2),
        commit(4, 12, pid=3),
        commit(5, 13, pid=1),
        commit(6, 14, pid=2),
    ]
    ends = [ended(1, 7), ended(2, 8), ended(3, 9)]
    log = log_of(commits, [generation(1, 1, "a")], ends)
    (f,) = found(log, "interleaved-offset-producers")
    assert (f.severity, f.producer_id, f.offset, f.evidence["offsets"]) == ("info", 1, 13, [10, 12, 13])
    assert (f.if_true, f.evidence["confidence"]) == ("error", "undecidable")  # who owned it is not in the records
    assert said(log, "zombie-offset-commit") == []


def in_turn(group: Row, *values: int) -> LogView:
    """Producers 1 and 2 commit in turn, a transaction each."""
    commits = [commit(2 * k + 2, value, pid=k % 2 + 1) for k, value in enumerate(values)]
    return log_of(commits, [group], [ended(k % 2 + 1, 2 * k + 3) for k in range(len(values))])


@pytest.mark.parametrize("value", [11, 10])
def test_producers_in_turn_whose_offset_does_not_rise_process_the_same_input(value: int) -> None:
    """The third commit of a rising row would have been an info; it goes back, and offset-regression is its part."""
    log = in_turn(generation(1, 1, "a"), 9, 11, value, 12)
    (f,) = found(log)
    assert (f.kind, f.severity, f.offset) == ("interleaved-offset-producers", "error", value)
    assert [a["rule"] for a in f.evidence.get("also", ())] == (["offset-regression"] if value == 10 else [])


@pytest.mark.parametrize("values", [(10, 11, 12), (10, 11, 11), (10, 12, 11)])
def test_producers_of_the_one_owner_of_a_partition_are_its_pool(values: tuple[int, ...]) -> None:
    """What goes back is still said to go back."""
    log = in_turn(assigned(1, 1, 1_000, a=None), *values)
    assert said(log) == ([("offset-regression", "error")] if values[2] < values[1] else [])


def test_a_pool_without_known_owner_is_one_info_a_group() -> None:
    turns = [(partition, k) for partition in range(4) for k in range(3)]
    commits = [commit(2 + 3 * p + k, k, pid=k % 2 + 1, consumed_partition=p) for p, k in turns]
    (f,) = found(log_of(commits, [generation(1, 1, "a")], [ended(1, 18), ended(2, 19)]))
    assert (f.kind, f.severity, f.evidence["times"]) == ("interleaved-offset-producers", "info", 4)


@pytest.mark.parametrize(
    ("commits", "groups"),
    [
        ([commit(2, 10, pid=1), commit(3, 11, pid=2), commit(4, 12, pid=2)], [generation(1, 1, "a")]),
        (
            [commit(2, 10, pid=1), commit(3, 11, pid=2), commit(6, 12, pid=1)],
            [generation(1, 1, "a"), generation(5, 2, "a")],
        ),
        ([commit(2, 10, pid=1), commit(3, 11), commit(4, 12, pid=1)], [generation(1, 1, "a")]),
        (
            [commit(2, 10, pid=1), commit(3, 11, pid=2, consumed_partition=1), commit(4, 12, pid=1)],
            [generation(1, 1, "a")],
        ),
    ],
)
def test_producers_that_do_not_take_turns(commits: list[Row], groups: list[Row]) -> None:
    assert said(log_of(commits, groups, [ended(1, 8), ended(2, 9)]), "interleaved-offset-producers") == []


def test_a_record_that_repeats_a_generation_is_no_rebalance() -> None:
    """Static members rejoin without one: the record is written again with the same number."""
    commits = [commit(2, 10, pid=1), commit(4, 11, pid=2), commit(6, 12, pid=1)]
    groups = [generation(1, 1, "a"), generation(3, 1, "a"), generation(5, 1, "a")]
    assert said(log_of(commits, groups, [ended(1, 8), ended(2, 9)])) == [("interleaved-offset-producers", "info")]


@pytest.mark.parametrize(("value", "severity"), [(29, "error"), (30, "error"), (40, "info")])
def test_a_zombie_that_waits_behind_an_open_transaction_is_seen_at_the_end(value: int, severity: str) -> None:
    """Whose the partition was is not in the records: the offset tells, or nothing."""
    commits = [commit(2, 10, pid=1), commit(6, 30, pid=2), commit(7, value, pid=1)]
    groups = [generation(1, 1, "a"), generation(4, 2, "b")]
    log = log_of(commits, groups, [ended(1, 3), ended(1, 9)])  # that of producer 2 is open
    assert said(log, "zombie-offset-commit") == [("zombie-offset-commit", severity)]


def handed(owners: str, *, late: int = 40, before: tuple[int, ...] = (1,), **epochs: Any) -> LogView:
    """Producers ``before`` commit in the first generation, 2 and then 1 in the second; each with its owner of t-0."""
    commits = [commit(2 + k, 8 + k, pid=pid) for k, pid in enumerate(before)]
    commits += [commit(7, 30, pid=2), commit(8, late, pid=1, producer_epoch=epochs.pop("epoch", 0))]
    groups = [assigned(1 + 5 * k, k + 1, 1_000, **{member: None}) for k, member in enumerate(owners)]
    return log_of(commits, groups, [ended(1, 5), ended(2, 9), ended(1, 10)], **epochs)


@pytest.mark.parametrize(("owners", "before", "late", "expected"), [
    ("aa", (1,), 40, []), ("aa", (1, 2), 40, []),  # a pool whose member kept the partition
    ("ab", (1,), 40, ["error"]), ("ab", (1,), 20, ["error"]),  # it went to a member with a producer of its own
    ("ab", (2, 1), 40, ["info"]), ("ab", (2, 1), 20, ["error"]),  # both had worked for a: one pool
])  # fmt: skip
def test_a_producer_of_an_older_generation_behind_another(
    owners: str, before: tuple[int, ...], late: int, expected: list[str]
) -> None:
    assert [f.severity for f in found(handed(owners, before=before, late=late), "zombie-offset-commit")] == expected


@pytest.mark.parametrize(("version", "state", "expected"), [
    (1, "CompleteCommit", []),  # only InitProducerId raises an epoch
    (2, "CompleteCommit", ["error"]),  # each transaction does
    (2, "Empty", []),
])  # fmt: skip
def test_an_id_that_was_initialised_again_is_no_zombie(version: int, state: str, expected: list[str]) -> None:
    """A process that restarts with its ids: the instance that wrote the older commit is fenced."""
    last = ongoing(0, 1, 0)._replace(state=state, producer_epoch=1, client_version=version)
    after = last._replace(offset=1, state="Ongoing")
    log = handed("ab", epoch=1, coordinator=build_history(1, [last, after]))
    assert [f.severity for f in found(log, "zombie-offset-commit")] == expected


# --- offset-skips-aborted-input -------------------------------------------------------------------------------------


def test_a_plain_commit_over_aborted_input() -> None:
    """An auto-commit after an abort: 10 to 19 were processed in a transaction that never was."""
    commits = [commit(2, 10, pid=1), commit(4, 20, pid=1), commit(6, 25)]
    log = log_of(commits, [generation(1, 1, "a")], [ended(1, 3), ended(1, 5, commits=False)])
    (f,) = found(log)
    assert (f.kind, f.severity, f.offset) == ("offset-skips-aborted-input", "warning", 25)
    assert (f.evidence["from_offset"], f.evidence["aborted_offset"], f.evidence["aborted_producer_id"]) == (10, 20, 1)
    assert "--to-offset 10 " in f.remedy


@pytest.mark.parametrize(
    ("last", "groups"),
    [
        (commit(6, 25, pid=1), [generation(1, 1, "a")]),  # the same producer went back itself
        (commit(6, 15), [generation(1, 1, "a")]),  # not past the aborted one
        (commit(7, 25, pid=2), [generation(1, 1, "a"), generation(6, 2, "b")]),  # a new owner begins at 10
        (commit(7, 25), [generation(1, 1, "a"), generation(6, 2, "b")]),
    ],
)
def test_aborted_input_that_was_read_again(last: Row, groups: list[Row]) -> None:
    commits = [commit(2, 10, pid=1), commit(4, 20, pid=1), last]
    ends = [ended(1, 3), ended(1, 5, commits=False), ended(last["producer_id"], 9)]
    assert said(log_of(commits, groups, ends)) == []


@pytest.mark.parametrize(("group", "expected"), [
    (generation(1, 1, "a"), [("offset-skips-aborted-input", "info")]),
    (None, []),  # the group's owner takes the next free producer of its pool, and gives it the same input again
])  # fmt: skip
def test_another_producer_in_the_same_generation_goes_on(group: Row | None, expected: list[tuple[str, str]]) -> None:
    commits = [commit(2, 10, pid=1), commit(4, 20, pid=1), commit(6, 25, pid=2)]
    groups = [assigned(1, 1, 1_000, a=None) if group is None else group]
    log = log_of(commits, groups, [ended(1, 3), ended(1, 5, commits=False), ended(2, 9)])
    assert said(log) == expected
    assert all("--reset-offsets" not in f.remedy for f in found(log))  # a sound group


# --- committed-offset-out-of-range ----------------------------------------------------------------------------------


def bounds(start: int, end: int, copied: int, broker: int | None = 1) -> dict[tuple[str, int], LeaderBounds]:
    return {("t", 0): LeaderBounds(start, end, end, copied, False, None, broker)}


@pytest.mark.parametrize(
    ("value", "copied", "broker", "expected"),
    [
        (101, 1004, 1, ["error"]),
        (101, 1003, 1, ["info"]),  # the log's file may be older than the commit
        (101, 1004, 2, ["info"]),  # ... give or take two brokers' clocks
        (101, 31_004, 2, ["error"]),
        (100, 1004, 1, []),
        (9, 1004, 1, ["warning"]),
        (10, 1004, 1, []),
    ],
)
def test_offsets_against_the_log_they_read(value: int, copied: int, broker: int, expected: list[str]) -> None:
    log = log_of([commit(3, value)], bounds=bounds(10, 100, copied, broker))
    results = found(log)
    assert [f.severity for f in results] == expected
    assert all(f.kind == "committed-offset-out-of-range" for f in results)


def test_only_the_last_offset_in_force_is_compared_with_the_log() -> None:
    log = log_of([commit(2, 5), commit(3, 50), commit(4, 500, pid=7)], bounds=bounds(10, 100, HOUR))
    assert said(log) == []


def test_groups_of_topics_that_are_not_in_the_input_are_left_alone() -> None:
    assert said(log_of([commit(2, 5)])) == []


# --- pending-offsets-blocked ----------------------------------------------------------------------------------------


def open_row(pid: int, offset: int, time: int) -> Row:
    times = dict.fromkeys(("first_timestamp", "first_time", "last_timestamp", "last_time"), time)
    return {"producer_id": pid, "producer_epoch": 0, "last_epoch": 0, "first_offset": offset, "last_offset": offset,
            "batches": 1, "records": 1, "segment": 0, "position": 7, **times}  # fmt: skip


def owner(pid: int, state: str, time: int) -> StateRecord:
    return StateRecord(0, 5, time, 0, "app", state, pid, 0, 60_000, frozenset(), False, time, time, 0, "f", 0, 4)


def blocked(state: str | None, age: int, copied: int = HOUR) -> list[Finding]:
    """Offsets pending for ``age`` ms in a transaction whose id was last seen in ``state`` half a minute later."""
    log = log_of([commit(4, 20, pid=7)], ends=[open_row(7, 4, HOUR - age)])
    log.leader.broker_time = copied
    if state is not None:
        history = build_history(1, [owner(7, state, HOUR - age + 30_000)])
        history.complete_from, history.brokers = {0: 0}, {0: 1}
        log.cluster.bounds |= {("__transaction_state", 0): LeaderBounds(0, 9, 9, copied, False, None, 1)}
        log.cluster.coordinator = history
    return found(log, "pending-offsets-blocked")


def test_offsets_of_a_hanging_transaction_are_blocked() -> None:
    (f,) = blocked("CompleteCommit", 600_000)
    assert (f.severity, f.topic, f.partition, f.offset, f.last_offset) == ("critical", "__consumer_offsets", 0, 4, 4)
    assert (f.group_id, f.producer_id, f.transactional_id) == ("g", 7, "app")
    assert f.evidence["partitions"] == ["g: t-0"]
    assert f.advice is not None
    assert not f.advice.acts  # they may be of the transaction that ended in COMMIT
    (f,) = blocked("CompleteAbort", 600_000)
    assert f.advice is not None
    (step,) = f.advice.steps
    assert step.command.endswith("abort --topic __consumer_offsets --partition 0 --start-offset 4")


def test_without_a_coordinator_age_decides() -> None:
    late = 15 * 60_000 + 30_000  # contract section 2: time-out of a transaction at most, and half a minute
    margin = 15 * 60_000 + 10_000 + 30_000  # rules.md: the coordinator's check, two clocks
    assert blocked(None, late) == []
    assert [f.severity for f in blocked(None, late + 1)] == ["error"]
    assert [f.severity for f in blocked(None, margin + 1)] == ["critical"]


def test_a_transaction_that_the_coordinator_has_open_blocks_nobody_yet() -> None:
    log = log_of([commit(4, 20, pid=7)], ends=[open_row(7, 4, HOUR - 1000)])
    entry = owner(7, "Ongoing", HOUR - 1000)._replace(partitions=frozenset({"__consumer_offsets-0"}))
    history = build_history(1, [entry])
    history.complete_from, history.brokers = {0: 0}, {0: 1}
    log.cluster.bounds |= {("__transaction_state", 0): LeaderBounds(0, 9, 9, HOUR, False, None, 1)}
    log.cluster.coordinator = history
    assert found(log, "pending-offsets-blocked") == []


# --- corpora --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", corpora.names())
def test_no_corpus_has_broken_offsets(name: str) -> None:
    """None of the manifests expects one, and all name whatever else is odd in them."""
    assert [f.to_json() for f in facts.judge(facts.corpus_logs(name), *RULES) if f.severity != "info"] == []


def test_corpora_hold_offsets_in_transactions() -> None:
    """Otherwise the silence above would mean little: some are committed, some aborted."""
    logs = [log for name in ("healthy-28", "healthy-41") for log in facts.corpus_logs(name)]
    offsets = [log for log in logs if log.topic == "__consumer_offsets"]
    values = [log.leader.watched_offsets.in_force for log in offsets if log.leader.watched_offsets is not None]
    commits = [c for v in values for c in v.all()]
    assert {c.plain for c in commits} == {True, False}
    ends = [int(t["commit"]) for log in offsets for t in log.leader.transactions if t["marker_offset"] >= 0]
    assert set(ends) == {0, 1}


# --- both kinds of exactly-once ids -------------------------------------------------------------------------------

TASK, THREAD = "app-0_1", "app-3b0f4a52-9c1e-4f6b-8a7d-2f1e0c9b8a76-1"


def committers(*names: str) -> CoordinatorHistory:
    """Ids that own the producer ids 1, 2, ..."""
    return build_history(1, [
        StateRecord(0, k, 0, 0, name, "Empty", k + 1, 0, 60_000, frozenset(), True, 0, -1, 0, "0.log", 0, 0)
        for k, name in enumerate(names)
    ])  # fmt: skip


OTHER_TASK, OTHER_THREAD = "app-0_2", THREAD[:-1] + "2"
MIXED, OVER = [("mixed-processing-guarantees", "warning")], [("mixed-processing-guarantees", "info")]


@pytest.mark.parametrize(("names", "rebalances", "expected"), [
    ((TASK, THREAD, TASK), (), MIXED), ((THREAD, TASK, THREAD), (), MIXED),
    ((TASK, THREAD), (), []), ((THREAD, TASK), (), []),  # from one to the other, and back
    ((TASK, THREAD), (0,), MIXED),  # both in one generation
    ((TASK, THREAD), (0, 1), []),
    ((TASK, TASK, THREAD, TASK, THREAD), (0, 2, 4), OVER),  # a rolling restart of two instances
    ((TASK, TASK, THREAD, TASK), (0, 2), MIXED),  # that has stopped half-way
    ((TASK, OTHER_TASK, TASK), (0,), []), ((THREAD, OTHER_THREAD, THREAD), (0,), []),
    ((TASK, "app-tx-1", TASK), (0,), []),
])  # fmt: skip
def test_both_kinds_of_exactly_once_ids_in_one_group(
    names: tuple[str, ...], rebalances: tuple[int, ...], expected: list[tuple[str, str]]
) -> None:
    """Ids as StreamsProducer makes them: of a task, or of the process and a thread (KIP-447); in their order, with a
    new generation before some of them."""
    ids = list(dict.fromkeys(names))
    commits = [commit(10 * k + 5, 10 * k, pid=ids.index(name) + 1, consumed_partition=ids.index(name))
               for k, name in enumerate(names)]  # fmt: skip
    groups = [generation(10 * k, k + 1, "a", "b") for k in rebalances]
    view = log_of(commits, groups, ends=[ended(k + 1, 90 + k) for k in range(len(ids))], coordinator=committers(*ids))
    assert said(view, "mixed-processing-guarantees") == expected


def test_kinds_in_different_groups_are_not_mixed() -> None:
    commits = [commit(1, 10, pid=1), commit(2, 20, pid=2, group_id="h"), commit(3, 11, pid=1)]
    view = log_of(commits, ends=[ended(1, 8), ended(2, 9)], coordinator=committers(TASK, THREAD))
    assert said(view, "mixed-processing-guarantees") == []


# --- commits in transactions and outside of them ------------------------------------------------------------------

PLAIN_BETWEEN = [("mixed-processing-guarantees", "info")]
LIVING, EMPTIED = generation(0, 1, "a"), generation(15, 2)


@pytest.mark.parametrize(("commits", "groups", "ends", "expected"), [
    ([commit(10, 10, pid=7), commit(20, 15), commit(30, 20, pid=7)], [LIVING], [11, 31], PLAIN_BETWEEN),
    ([commit(10, 10, pid=7), commit(20, 15), commit(30, 20, pid=7)], [], [11, 31], PLAIN_BETWEEN),
    # while one is undecided, and where it stays so
    ([commit(10, 10, pid=7), commit(20, 15), commit(30, 20, pid=7)], [LIVING], [25, 31], PLAIN_BETWEEN),
    ([commit(10, 10, pid=7), commit(20, 15), commit(30, 20, pid=7), commit(40, 25)], [LIVING], [], PLAIN_BETWEEN),
    # two producers
    ([commit(10, 10, pid=7), commit(20, 15), commit(30, 20, pid=8)], [LIVING], [11], PLAIN_BETWEEN),
    # from one kind to the other
    ([commit(10, 10), commit(20, 15, pid=7), commit(30, 20, pid=7)], [LIVING], [21, 31], []),
    ([commit(10, 10, pid=7), commit(20, 15, pid=7), commit(30, 20)], [LIVING], [11, 21], []),
    # a reset of an empty group, and a commit of another partition
    ([commit(10, 10, pid=7), commit(20, 15), commit(30, 20, pid=7)], [LIVING, EMPTIED], [11, 31], []),
    ([commit(10, 10, pid=7), commit(20, 15, consumed_partition=1), commit(30, 20, pid=7)], [LIVING], [11, 31], []),
])  # fmt: skip
def test_plain_commits_between_transactional_ones(
    commits: list[Row], groups: list[Row], ends: list[int], expected: list[tuple[str, str]]
) -> None:
    view = log_of(commits, groups, [ended(7, offset) for offset in ends])
    assert said(view, "mixed-processing-guarantees") == expected


def test_of_plain_commits_the_first_of_a_group_is_reported() -> None:
    commits = [commit(10 * k, 10 * k, pid=7 if k % 2 else -1, group_id=g) for k in range(1, 8) for g in "gh"]
    found_here = found(log_of(commits, ends=[ended(7, 10 * k + 1) for k in range(1, 8)]), "mixed-processing-guarantees")
    assert [(f.group_id, f.evidence["record_offsets"], f.evidence["may_repeat"]) for f in found_here] == [
        ("g", [10, 20, 30], [10, 19]),
        ("h", [10, 20, 30], [10, 19]),
    ]
    assert all(f.message.endswith(": offsets 10 to 19 may be processed twice") for f in found_here)


# --- the five steps of KIP-447 --------------------------------------------------------------------------------------


def assigned(offset: int, number: int, time: int, **members: str | None) -> Row:
    """A generation whose only members, by id, have ``group.instance.id`` as given; the first one has t-0."""
    said = [
        {"memberId": name, "groupInstanceId": instance, "clientId": "c",
         "assignment": {"assignedPartitions": [{"topic": "t", "partitions": [k]}], "userData": None}}
        for k, (name, instance) in enumerate(members.items())
    ]  # fmt: skip
    value = json.dumps({"protocolType": "consumer", "generation": number, "members": said})
    return generation(offset, number, *members, value=value, record_timestamp=time)


def ongoing(offset: int, pid: int, begun: int) -> StateRecord:
    partitions = frozenset({"__consumer_offsets-0"})
    return StateRecord(0, offset, begun, 0, f"tx-{pid}", "Ongoing", pid, 0, 60_000, partitions, False, begun, begun, 0,
                 "0.log", 0, 0)  # fmt: skip


@pytest.mark.parametrize("zombie_last", [True, False])
def test_a_zombie_that_had_never_committed_is_known_by_its_transaction(zombie_last: bool) -> None:
    """Step 1 of the KIP: A has not got the chance to commit. Its transaction began before the rebalance at 200 s."""
    order = ((5, 2), (6, 1)) if zombie_last else ((5, 1), (6, 2))
    commits = [commit(k, 10 * k, pid=pid, record_timestamp=300_000 + k) for k, pid in order]
    groups = [assigned(1, 1, 50_000, a="x"), assigned(4, 2, 200_000, b="y")]
    history = build_history(1, [ongoing(0, 1, 100_000), ongoing(1, 2, 299_000)])
    log = log_of(commits, groups, [ended(1, 8), ended(2, 9)], coordinator=history)
    (f,) = found(log, "zombie-offset-commit")
    assert (f.producer_id, f.severity, f.evidence["rival_producer_id"]) == (1, "error", 2)
    assert [step[0] for step in f.evidence["steps"]] == list("12345")
    assert (f.evidence["owner_before"]["instance_id"], f.evidence["owner"]["instance_id"]) == ("x", "y")
    assert f.message.endswith("static members: x, y")


def test_two_processes_with_one_instance_id_are_named() -> None:
    commits = [commit(2, 10, pid=1), commit(6, 30, pid=2), commit(8, 20, pid=1)]
    groups = [assigned(1, 1, 1_000, a="x"), assigned(4, 2, 2_000, b="x")]
    log = log_of(commits, groups, [ended(1, 3), ended(2, 7), ended(1, 9)])
    (f,) = found(log, "zombie-offset-commit")
    assert f.message.endswith("two processes use the group.instance.id x")
    assert f.evidence["owner"] == {"member_id": "b", "instance_id": "x", "client_id": "c"}


@pytest.mark.parametrize("begun", [201_000, 199_500])
def test_a_producer_that_follows_another_in_one_generation_is_no_zombie(begun: int) -> None:
    """A static member that restarts: its new producer begins later. Clocks of two brokers may differ by 30 s."""
    commits = [commit(5, 10, pid=1, record_timestamp=300_000), commit(6, 20, pid=2, record_timestamp=300_500)]
    history = build_history(1, [ongoing(0, 1, begun), ongoing(1, 2, 300_100)])
    log = log_of(commits, [assigned(4, 2, 200_000, a="x")], [ended(1, 8), ended(2, 9)], coordinator=history)
    assert said(log, "zombie-offset-commit") == []


def test_a_group_lies_in_the_partition_that_its_hash_names() -> None:
    """Of 50 partitions: the hash of a text of one character is its code, 100 of d, 103 of g."""
    log = log_of([commit(1, 10, group_id="d"), commit(2, 10)], partition_counts={"__consumer_offsets": 50})
    (f,) = found(log, "key-in-wrong-partition")
    assert (f.group_id, f.severity, f.evidence["expected"], f.evidence["found"]) == ("g", "error", 3, 0)
