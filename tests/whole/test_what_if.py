"""A what-if without Spark: real brokers' logs under other policies, and the numbers that are added up."""

from __future__ import annotations

import argparse
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from auditor import cli
from auditor.commands import what_if
from auditor.connectors.logdir.inventory import discover
from auditor.facts.replica_facts import PolicyOutcomes, ReplicaFacts
from auditor.model import policies
from auditor.pipeline import cluster_settings, plan, what_if_audit
from auditor.pipeline import what_if_verdicts as numbers
from auditor.pipeline.cluster_context import brief
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.runner import read_task
from auditor.pipeline.what_if_verdicts import judge_log
from auditor.replay.task import ReplicaTask
from auditor.rules.seen.cluster_view import Cluster
from tests import corpora, facts

POLICIES = policies.COMPARED
HOUR = 3_600_000
Row = dict[str, Any]


def facts_below(
    path: Path, names: tuple[str, ...], window: int = policies.DRAFT_WINDOW, **given: int
) -> list[ReplicaFacts]:
    """Every replica below a folder, read as a what-if reads it; ``given``: settings instead of those in the input."""
    options = AuditOptions((str(path),), Path())
    inventory = discover(list(options.paths), options.limits)
    known, _ = cluster_settings.read_settings(inventory, options.limits)
    tasks = plan.replica_tasks(inventory, known, options)
    tasks = what_if_audit.with_policies(tasks, inventory, known, options.policy, names, window)
    out = []
    for task in tasks:
        if isinstance(task, ReplicaTask):
            task = replace(task, policies=tuple(p._replace(**given) for p in task.policies))
        out += read_task(task)
    return out


def outcomes_of(name: str, **given: int) -> dict[tuple[str, int], PolicyOutcomes]:
    """Every replica of a corpus of one broker under the policies."""
    replicas = facts_below(corpora.unpack(name), POLICIES, **given)
    return {(c.topic, c.partition): c.outcomes for c in replicas if c.outcomes is not None}


def rows_of(name: str, window: int = policies.DRAFT_WINDOW) -> dict[str, list[Row]]:
    """What the second job of a what-if gives for a corpus; ``window``: the draft's."""
    out: dict[str, list[Row]] = {kind: [] for kind in ("verdict", "finding", "replica", "errors")}
    clusters = {facts.log_key(log.leader): log.cluster for log in facts.logs_below(corpora.unpack(name))}
    for key, replicas in by_log(facts_below(corpora.unpack(name), POLICIES, window)).items():
        for kind, row in judge_log(replicas, clusters[key]):
            out[kind].append(row)
    return out


def by_log(replicas: list[ReplicaFacts]) -> dict[tuple[str, str, int], list[ReplicaFacts]]:
    out: dict[tuple[str, str, int], list[ReplicaFacts]] = {}
    for replica in replicas:
        out.setdefault(facts.log_key(replica), []).append(replica)
    return out


def reported(rows: list[Row]) -> set[tuple[Any, ...]]:
    return {(v["topic"], v["partition"], v["policy"], v["error"], v["producer_id"], v["base_offset"]) for v in rows}


@pytest.mark.parametrize("name", ["healthy-28", "healthy-41", "trimmed-28", "not-hanging-41", "legacy-0102"])
def test_a_sound_history_is_the_same_under_every_policy(name: str) -> None:
    assert reported(rows_of(name)["verdict"]) == set()


def test_what_a_broker_of_2_3_took_later_ones_would_not() -> None:
    """The manifest: forgotten with its records, producer 0 began again at 0 in its epoch; row 15 of the table."""
    restart = next(m for m in corpora.manifest("unknown-producer-23")["must_not_flag"] if "baseOffset" in m)
    place = (restart["topic"], restart["partition"])
    later = {(*place, policy, "OUT_OF_ORDER_SEQUENCE_NUMBER", 0, restart["baseOffset"]) for policy in POLICIES[1:4]}
    draft = {(*place, "latest-batch-only", "DUPLICATE_SEQUENCE_NUMBER", 0, restart["baseOffset"])}
    assert reported(rows_of("unknown-producer-23")["verdict"]) == later | draft


def test_the_drafts_threshold_is_what_was_asked_for() -> None:
    """What begins again at 0 lies as far behind as the last sequence before it: within (latest - N, latest] or not."""
    rows = rows_of("unknown-producer-23")["verdict"]
    (last,) = {v["known_last_sequence"] for v in rows if v["policy"] == policies.DRAFT}
    draft = {
        window: [v["error"] for v in rows_of("unknown-producer-23", window)["verdict"] if v["policy"] == policies.DRAFT]
        for window in (last, last + 1)
    }
    assert draft == {last: ["OUT_OF_ORDER_SEQUENCE_NUMBER"], last + 1: ["DUPLICATE_SEQUENCE_NUMBER"]}


def test_a_verdict_names_the_transactional_id() -> None:
    """By the manifest: whose writes came behind their transaction's end."""
    late = {
        (e["topic"], e["partition"], e["producerId"], e["transactionalId"])
        for e in corpora.manifest("hanging-36")["expect"]
        if e["finding"] == "hanging_transaction"
    }
    verdicts = rows_of("hanging-36")["verdict"]
    assert late <= {(v["topic"], v["partition"], v["producer_id"], v["transactional_id"]) for v in verdicts}
    assert late


def test_what_a_broker_of_4_1_took_earlier_ones_would_not() -> None:
    expect = {e["finding"]: e for e in corpora.manifest("unknown-producer-41")["expect"]}
    first, gap = expect["producer_first_sequence_not_zero"], expect["sequence_gap"]
    unknown = (first["topic"], first["partition"], "pre-kip-360", "UNKNOWN_PRODUCER_ID", first["producerId"], 0)
    at = (gap["producerId"], gap["baseOffset"])
    gaps = {(gap["topic"], gap["partition"], policy, "OUT_OF_ORDER_SEQUENCE_NUMBER", *at) for policy in POLICIES}
    assert reported(rows_of("unknown-producer-41")["verdict"]) == {unknown} | gaps


def test_with_the_expiry_of_that_broker_its_gap_is_a_forgotten_producer() -> None:
    """producer.id.expiration.ms=2000 and six seconds idle: accepted with any sequence, or unknown to old brokers."""
    found = outcomes_of("unknown-producer-41", expiration_ms=2_000, check_ms=1_000)["gps.events", 5].by_policy
    assert {name: [int(v["error"]) for v in o.verdicts] for name, o in found.items()} == {
        "pre-kip-360": [59], "kip-360": [], "kip-890-p1": [], "kip-890-p2": [], "latest-batch-only": [],
    }  # fmt: skip
    assert found["kip-360"].forgotten > 0


def test_kip_890_would_have_refused_every_transaction_that_hangs() -> None:
    manifest = corpora.manifest("hanging-36")
    hanging = {(e["topic"], e["partition"], e["firstOffset"]) for e in manifest["expect"]}
    cured = {
        (m["topic"], m["partition"], m["firstOffset"])
        for m in manifest["must_not_flag"]
        if "ended by hand" in m["what"]
    }
    rows = rows_of("hanging-36")["verdict"]
    for policy in ("kip-890-p1", "kip-890-p2"):
        assert {
            (v["topic"], v["partition"], v["base_offset"]) for v in rows if v["policy"] == policy
        } == hanging | cured
    assert not [v for v in rows if not v["policy"].startswith("kip-890")]
    assert {v["error"] for v in rows if v["policy"] == "kip-890-p1"} == {"INVALID_TXN_STATE"}


def test_a_batch_stored_twice_is_a_duplicate_to_all_and_of_no_offset_to_the_draft() -> None:
    (twice,) = (e for e in corpora.manifest("altered-41")["expect"] if e["finding"] == "duplicate_batch")
    rows = [
        v
        for v in rows_of("altered-41")["verdict"]
        if (v["topic"], v["partition"]) == (twice["topic"], twice["partition"])
    ]
    assert {v["error"] for v in rows if v["policy"] != "latest-batch-only"} == {"DUPLICATE"}
    assert [(v["error"], v["stored_before"]) for v in rows if v["policy"] == "latest-batch-only"] == [
        ("DUPLICATE_SEQUENCE_NUMBER", True)
    ]


@pytest.mark.parametrize(
    ("name", "policy", "snapshots"),
    [
        ("healthy-28", "kip-360", 8),
        ("healthy-41", "kip-890-p2", 8),
        ("hanging-36", "kip-890-p1", 8),
        ("not-hanging-41", "kip-890-p2", 7),
        ("unknown-producer-23", "pre-kip-360", 5),
        ("unknown-producer-41", "kip-890-p2", 6),
    ],
)
def test_replays_end_with_as_many_producers_as_the_brokers_own_snapshots(
    name: str, policy: str, snapshots: int
) -> None:
    """Snapshots that brokers took at the log's end when they stopped, under the policy of their release."""
    outcomes, compared = outcomes_of(name), 0
    for log in facts.corpus_logs(name):
        for link in log.leader.snapshots if log.has_sequences else ():
            if link.offset == log.leader.log_end:
                ends = outcomes[log.topic, log.partition].by_policy[policy].producers_end
                assert ends == link.entries, log.name
                compared += 1
    assert compared == snapshots


# --- numbers --------------------------------------------------------------------------------------------------------


def replica_row(**given: Any) -> Row:
    sizes = {"producers_peak": 3, "bytes_peak": 300, "producers_end": 2, "bytes_end": 200, "dropped": 1, "forgotten": 4}
    row: Row = {
        "join_key": "c", "log_dir": "b1", "broker_id": 1, "topic": "t", "partition": 0, "leader_copy": True,
        "producers_seen": 5, "one_batch": 2, "span": 50, "wraps": (1, 2), "rates": (0.0, 2.0**31 / 8_766),
        "hours": [[0, 3, 100], [2, 2, 150]], "fastest": [], "policies": dict.fromkeys(POLICIES, sizes),
    }  # fmt: skip
    return row | given


def producer(**given: Any) -> Row:
    row = {"producer_id": 9, "batches": 10, "records": 2**20, "first_time": 0, "last_time": HOUR, "first_epoch": 0,
           "last_epoch": 766, "span": 5, "wraps": 0, "transactional": 0}  # fmt: skip
    return row | given


def verdict(**given: Any) -> Row:
    row = {"policy": "latest-batch-only", "error": "DUPLICATE_SEQUENCE_NUMBER", "topic": "t", "batches": 3,
           "producer_id": 9, "stored_before": True, "partition": 0, "base_offset": 50, "run_last_offset": 53,
           "producer_epoch": 1, "transactional_id": "pay", "records": 4}  # fmt: skip
    return row | given


def test_memory_is_that_of_every_replica_and_the_rest_that_of_leaders() -> None:
    replicas = [replica_row(), replica_row(partition=1), replica_row(log_dir="b2", broker_id=2, leader_copy=False)]
    result = numbers.numbers(replicas, [], POLICIES, {"b1": "kip-360"})
    sizes = {b["log_dir"]: (b["policy_now"], b["policies"]["kip-360"]["bytes_peak"]) for b in result["brokers"]}
    assert sizes == {"b1": ("kip-360", 600), "b2": (None, 300)}
    (ids,) = result["producer_ids"]
    assert (ids["producers_by_partition"], ids["one_batch_by_partition"]) == (10, 4)


def test_growth_of_producer_ids_goes_by_the_largest_seen() -> None:
    (ids,) = numbers.numbers([replica_row()], [], POLICIES, {})["producer_ids"]
    assert (ids["new_ids_per_hour"], ids["most_new_ids_in_an_hour"]) == (25.0, 50)  # 100 to 150 in two hours
    assert [h["hour"] for h in ids["hours"]] == ["1970-01-01T00:00:00.000Z", "1970-01-01T02:00:00.000Z"]


def test_epochs_last_as_long_as_the_pace_so_far_allows() -> None:
    fast = producer()
    slow = producer(producer_id=8, last_epoch=1)
    rows = numbers.numbers([replica_row(fastest=[slow, fast, producer(last_epoch=0)])], [], POLICIES, {})["epochs"]
    assert [(r["producer_id"], r["hours_left"]) for r in rows] == [(9, round(32_000 / 766, 2)), (8, 32_765.0)]


def test_the_draft_is_weighed_by_its_own_questions() -> None:
    rows = [
        verdict(),
        verdict(stored_before=False),
        verdict(error="OUT_OF_ORDER_SEQUENCE_NUMBER"),
        verdict(policy="kip-360"),
    ]
    draft = numbers.numbers([replica_row(fastest=[producer()])], rows, POLICIES, {})["draft"]
    assert (draft["duplicates_without_offset"], draft["false_duplicates"]) == (6, 3)
    assert (draft["in_flight_span"], draft["threshold"]) == (50, 10_000_000)
    assert [w["hours_to_wraparound"] for w in draft["soonest_wraparounds"]] == [2048.0]
    assert (draft["epoch_bumps_seen_for_wraparound"], draft["aborts_seen_for_wraparound"]) == (3, 2)
    assert draft["aborts_a_year_for_wraparound"] == draft["epoch_bumps_a_year_for_wraparound"] == 1.0


def test_answers_are_counted_by_policy_error_and_topic() -> None:
    result = numbers.numbers([replica_row()], [verdict(), verdict(topic="u", producer_id=8)], POLICIES, {})
    (draft,) = (p for p in result["policies"] if p["policy"] == "latest-batch-only")
    assert (draft["runs"], draft["batches"], draft["producers"], draft["runs_not_kept"]) == (2, 6, 2, 1)
    assert [(e["topic"], e["runs"]) for e in draft["errors"]] == [("t", 1), ("u", 1)]


# --- the command ----------------------------------------------------------------------------------------------------


def test_kip_890_stands_for_both_its_parts() -> None:
    assert policies.named(("kip-890", "kip-890-p1")) == ("kip-890-p1", "kip-890-p2")
    assert policies.named(()) == POLICIES


def test_the_parser_takes_what_the_contract_names() -> None:
    parser = argparse.ArgumentParser()
    what_if.add_parser(parser.add_subparsers())
    args = parser.parse_args(["what-if", "a", "b", "--out", "o", "--policy", "kip-360", "--quiet"])
    assert (args.paths, args.out, args.policy, args.quiet) == (["a", "b"], Path("o"), ["kip-360"], True)


@pytest.mark.parametrize("window", ["0", "-1", str(2**30)])
def test_a_window_that_tells_nothing_is_a_users_mistake(window: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["what-if", ".", "--out", "o", "--duplicate-window", window]) == 2
    said = capsys.readouterr().err
    assert "window" in said
    assert said.count("\n") == 1


def test_who_would_have_been_answered_otherwise_is_named() -> None:
    """One line for policies that agree, and each policy is explained."""
    rows = [verdict(), verdict(policy="kip-890-p2"), verdict(policy="kip-890-p1", error="INVALID_TXN_STATE")]
    result = numbers.numbers([replica_row()], rows, POLICIES, {}, 1_000)
    assert result["draft"]["threshold"] == 1_000
    out = io.StringIO()
    what_if.show(result, out)
    lines = [line.split() for line in out.getvalue().splitlines()]
    who = ["t-0", "50..53", "9,", "epoch", "1", "(pay)"]
    assert [*who, "DUPLICATE_SEQUENCE_NUMBER", "latest-batch-only,", "kip-890-p2"] in lines
    assert [*who, "INVALID_TXN_STATE", "kip-890-p1"] in lines
    assert all(text in out.getvalue() for name, text in policies.SAYS.items() if name in POLICIES)
    assert set(policies.SAYS) == set(policies.POLICIES)


def test_names_from_the_input_cannot_repaint_the_terminal() -> None:
    result = numbers.numbers([replica_row(log_dir="b\x1b[2J")], [], POLICIES, {})
    out = io.StringIO()
    what_if.show(result, out)
    assert "\x1b" not in out.getvalue()
    assert "all as stored" in out.getvalue()


def test_replicas_are_read_again_where_a_clock_runs_ahead_of_all_brokers() -> None:
    options = AuditOptions((str(corpora.unpack("legacy-0102")),), Path())
    inventory = discover(list(options.paths), options.limits)
    tasks = plan.replica_tasks(inventory, {}, options)
    briefs = [brief(found) for task in tasks for found in read_task(task)]
    newest = max(b.any_time for b in briefs)
    late = [(b.topic, b.partition) for b in briefs if b.any_time == newest]
    for end_of_time, expected in ((newest - HOUR, []), (newest - HOUR - 1, late), (-1, [])):
        clusters = {b.join_key: Cluster(newest, end_of_time) for b in briefs}
        again = what_if_audit.ahead(tasks, briefs, clusters)
        assert [(t.replica.topic, t.replica.partition) for t in again] == expected
        assert {t.newest_time for t in again} <= {end_of_time}
