"""The answers: who counts as blocked, and when an abort is said to be safe."""

from __future__ import annotations

from typing import Any

import pytest

from auditor.dashboards import answers, finding_groups, wording
from tests.unit.report_samples import empty_summary, finding

BASE: dict[str, Any] = {
    "log_dir": "b1", "broker_id": 1, "topic": "t", "partition": 0, "producer_id": 7, "producer_epoch": 0,
    "transactional_id": "x", "first_offset": 5, "last_offset": 9, "since": None, "age_ms": 10, "state": None,
    "batches": 1, "records": 5, "bytes": 2048,
}  # fmt: skip


def row(kind: str, **given: Any) -> dict[str, Any]:
    return {**BASE, "class": kind, **given}


def about(rule: str, severity: str, **given: Any) -> dict[str, Any]:
    place = {"topic": "t", "partition": 0, "producer_id": 7, "offset": 5, "last_offset": 9}
    return finding(rule=rule, severity=severity, **{**place, **given})


def held(rows: list[dict[str, Any]], findings: list[dict[str, Any]]) -> list[str]:
    everything = answers.open_transactions(rows, findings, empty_summary(logs=[]))
    return [entry.holder.name for entry in answers.blocked(everything, findings, empty_summary())]


@pytest.mark.parametrize(
    ("kind", "findings", "expected"),
    [
        ("active", [], []),
        ("hanging", [about("hanging-transaction", "critical")], ["t-0"]),
        ("hanging", [about("hanging-transaction", "info", evidence={"in_flight": True})], []),
        ("undecidable", [], []),
        ("undecidable", [about("long-open-transaction", "info")], []),
        ("undecidable", [about("long-open-transaction", "warning")], ["t-0"]),
        ("late", [], ["t-0"]),
        ("orphan", [], ["t-0"]),
    ],
)
def test_who_is_blocked(kind: str, findings: list[dict[str, Any]], expected: list[str]) -> None:
    assert held([row(kind)], findings) == expected


@pytest.mark.parametrize("kind", ["hanging", "orphan", "ghost"])
def test_what_may_have_ended_since_the_copy_is_not_called_hanging(kind: str) -> None:
    """A copy of a running broker: the standing is that of the audit, whose headline says that nothing shows more."""
    young, old = answers.Open(row(kind, standing="unknown")), answers.Open(row(kind, standing="stuck"))
    assert (young.kind, old.kind) == ("undecidable", kind)
    assert "newer copy" in answers.standing_text(young)


def test_how_far_readers_are_behind_goes_by_what_they_would_get() -> None:
    """A killed broker's checkpoint of the high watermark can lie at the very offset that readers stop at."""
    stale = answers.Open(row("hanging", last_stable_offset=5, high_watermark=5, readable_end=29, log_end=29))
    assert stale.waiting == 29 - 5


@pytest.mark.parametrize(
    ("since", "not_before", "at_least", "said"),
    [
        ("A", "A", False, "at most 10 ms"), ("A", "A", True, "about 10 ms"),
        ("B", "A", False, "10 ms"), ("B", None, True, "at least 10 ms"),
    ],
)  # fmt: skip
def test_an_age_from_the_earliest_start_is_at_most_that(
    since: str, not_before: str | None, at_least: bool, said: str
) -> None:
    given = {"since": since, "since_not_before": not_before, "since_by_producer": "C", "at_least": at_least}
    assert wording.aged(row("hanging", **given)) == said


@pytest.mark.parametrize(("timeout", "lacking"), [(None, "its timeout, or whether"), (60_000, "show whether")])
def test_a_time_out_that_is_known_is_not_missed(timeout: int | None, lacking: str) -> None:
    assert lacking in answers.standing_text(answers.Open(row("undecidable", timeout_ms=timeout, standing="unknown")))


def test_a_start_that_no_brokers_time_bounds_says_so() -> None:
    known = {"since": "2026-11-21T04:00:00.000Z"}
    assert wording.begun(row("hanging", **known)) == "2026-11-21 04:00:00 UTC by its records' timestamps"
    assert wording.begun(row("hanging", **known, since_not_before=known["since"])) == "2026-11-21 04:00:00 UTC"


def test_a_blocking_finding_without_its_transaction_is_not_lost() -> None:
    assert held([], [about("lso-stuck", "error")]) == ["t-0"]
    assert held([], [about("stuck-prepare", "critical", topic="__transaction_state")]) == []
    assert held([], [about("sequence-gap", "error")]) == []
    assert held([row("active", producer_id=8)], [about("hanging-transaction", "critical")]) == ["t-0"]


def test_replicas_on_several_brokers_are_one_transaction_but_not_across_clusters() -> None:
    inputs = [{"log_dir": name, "cluster_id": name[0]} for name in ("a1", "a2", "b1")]
    rows = [row("hanging", log_dir=name, broker_id=n) for n, name in enumerate(("a1", "a2", "b1"))]
    found = answers.open_transactions(rows, [], empty_summary(inputs=inputs, logs=[]))
    assert [(entry.cluster, entry.brokers) for entry in found] == [("a", [0, 1]), ("b", [2])]


def test_the_oldest_blocker_of_a_partition_holds_it() -> None:
    rows = [row("hanging", producer_id=8, first_offset=9, age_ms=99), row("hanging", first_offset=5)]
    everything = answers.open_transactions(rows, [], empty_summary(logs=[]))
    (entry,) = answers.blocked(everything, [], empty_summary())
    assert (entry.holder.row["producer_id"], entry.others) == (7, 1)


def test_waiting_is_what_lies_between_lso_and_high_watermark() -> None:
    log = {"log_dir": "b1", "topic": "t", "partition": 0, "hw": 148, "log_end": 150, "lso": 71}
    (entry,) = answers.open_transactions([row("hanging")], [], empty_summary(logs=[log]))
    assert (entry.lso, entry.waiting) == (71, 77)


def test_a_finding_on_its_own_finds_its_log() -> None:
    log = {"log_dir": "b1", "topic": "t", "partition": 0, "hw": 20, "log_end": 20, "lso": 5}
    alone = about("hanging-transaction", "critical", evidence={"log_dir": "b1", "class": "orphan", "records": 5})
    (entry,) = answers.blocked([], [alone], empty_summary(logs=[log]))
    assert (entry.holder.waiting, entry.holder.row["class"], entry.holder.row["records"]) == (15, "orphan", 5)


@pytest.mark.parametrize(
    ("kind", "state", "findings", "verdict"),
    [
        ("hanging", "CompleteAbort", [about("hanging-transaction", "critical")], "safe_to_abort"),
        ("hanging", "CompleteCommit", [about("hanging-transaction", "critical")], "safe_to_abort"),
        ("hanging", "CompleteCommit", [about("missing-marker", "critical")], "do_not_abort"),
        ("late", "PrepareCommit", [], "do_not_abort"),
        ("late", "PrepareAbort", [], "wait"),
        ("late", "Ongoing", [], "investigate_first"),
        ("active", "Ongoing", [], "wait"),
        ("undecidable", None, [], "investigate_first"),
        ("orphan", None, [], "safe_to_abort"),
        (
            "orphan",
            None,
            [about("hanging-transaction", "info", evidence={"in_flight": True})],
            "investigate_first",
        ),
    ],
)
def test_when_an_abort_is_safe(kind: str, state: str | None, findings: list[dict[str, Any]], verdict: str) -> None:
    assert answers.advise(row(kind, state=state), findings)["verdict"] == verdict


def test_cost_of_an_abort_is_reported_in_records_and_bytes() -> None:
    assert answers.advise(row("hanging"), [])["why"].startswith("discards 5 records (2 KiB) of the open transaction")


def test_what_would_decide_is_named_once() -> None:
    evidence = {"class": "undecidable", "missing": "__transaction_state"}
    findings = [about("long-open-transaction", "warning", evidence=evidence)] * 2
    counted = about("sequence-gap", "error", evidence={"missing": 12})
    assert answers.missing([*findings, counted]) == ["__transaction_state"]


def test_every_rule_gets_its_share_of_the_page() -> None:
    findings = [about("sequence-gap", "error")] * 5000 + [about("torn-tail", "warning"), about("lso-stuck", "critical")]
    found = finding_groups.group(findings)
    assert [(g.rule, g.count, len(g.rows), g.more) for g in found] == [
        ("lso-stuck", 1, 1, 0),
        ("sequence-gap", 5000, finding_groups.MAX_ROWS_PER_RULE, 5000 - finding_groups.MAX_ROWS_PER_RULE),
        ("torn-tail", 1, 1, 0),
    ]


def test_many_rules_share_the_page_alike() -> None:
    findings = [about(f"rule-{n % 50}", "error") for n in range(50 * 300)]
    assert {len(g.rows) for g in finding_groups.group(findings)} == {finding_groups.MAX_ROWS // 50}


def test_an_input_without_any_time_is_of_no_date() -> None:
    summary = {"as_of": "1970-01-01T00:00:00.000Z", "as_of_given": False, "newest": None}
    assert answers.clock(summary) == "Evaluation time unknown: the input has no broker timestamp"
