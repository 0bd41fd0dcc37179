"""Findings of one cause are one: none that is graver, and none with advice of its own, disappears in it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from auditor.base.advice import Advice, Verdict, check
from auditor.rules.resolution.finding_limits import SUMMED
from auditor.rules.resolution.resolve import by_cause, resolve
from auditor.rules.seen.view import Finding
from tests import corpora
from tests.audited import audit_folder


def look(command: str) -> Advice:
    return Advice(Verdict.INVESTIGATE_FIRST, conditions=(check(command, "it is so"),))


PAGE = look("look")


def of(number: int, severity: str = "info", advice: Advice = PAGE, **fields: Any) -> Finding:
    place = {"broker_id": 1, "topic": "t", "partition": number, "offset": number}
    evidence = {"log_dir": "b", "cause": "c", "number": number}
    return Finding("replica-absent", severity, message=f"{number}", evidence=evidence, advice=advice, **place | fields)


FOLD = by_cause(lambda f: f.evidence.get("cause"), lambda group: f"{len(group)} of them")


def test_the_one_has_what_all_have_alike_and_names_where_they_are() -> None:
    (f,) = FOLD([of(1), of(2), of(3)], PAGE)
    assert (f.kind, f.severity, f.broker_id, f.message) == ("replica-absent", "info", 1, "3 of them")
    assert (f.topic, f.partition, f.offset, f.advice) == (None, None, None, PAGE)
    assert f.evidence == {
        "log_dir": "b", "cause": "c", "count": 3, "partitions": ["t-1", "t-2", "t-3"], "partitions_in_all": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    "other", [of(2, "critical"), of(2, if_true="critical"), of(2, advice=look("elsewhere"))], ids=lambda f: f.severity
)
def test_what_is_graver_or_has_its_own_advice_stands_for_itself(other: Finding) -> None:
    found = [of(1), other]
    assert sorted(FOLD(found, PAGE), key=lambda f: f.message) == found


def test_neither_does_a_sum_nor_what_has_no_cause_disappear() -> None:
    lonely, summed = of(2), of(3)
    lonely.evidence["cause"] = None
    summed.evidence |= {SUMMED: 7, "first_offset": 1, "last_offset": 9}
    assert {f.message for f in FOLD([of(1), lonely, summed, of(4)], PAGE)} == {"2 of them", "2", "3"}


def test_what_they_explain_is_kept() -> None:
    one, other = of(1), of(2)
    one.evidence["also"], other.evidence["also"] = [{"rule": "a"}], [{"rule": "b"}]
    (f,) = FOLD([one, other], PAGE)
    assert [also["rule"] for also in f.evidence["also"]] == ["a", "b"]


def test_a_few_may_be_listed_all_the_same() -> None:
    fold = by_cause(lambda f: "c", lambda group: "many", few=2)
    assert [f.message for f in fold([of(1), of(2)], PAGE)] == ["1", "2"]
    assert [f.message for f in fold([of(1), of(2), of(3)], PAGE)] == ["many"]


def clock(partition: int, since: str, by: int, ahead: int = 40_000, brokers: tuple[int, int] = (1, 2)) -> Finding:
    evidence = {
        "log_dir": "b", "brokers": brokers, "ahead_ms": ahead, "since": since, "since_by": by, "partitions": 1,
    }  # fmt: skip
    return Finding("clock-skew", "warning", 1, "t", partition, partition, evidence=evidence)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_since_when_clocks_differ_is_told_by_the_clock_of_one(order: tuple[int, ...]) -> None:
    found = [clock(0, "2026-11-21T05:00", 1), clock(1, "2026-11-21T04:00", 2), clock(2, "2026-11-21T06:00", 1, 41_000)]
    (f,) = resolve(found[n] for n in order)
    assert (f.evidence["since"], f.evidence["since_by"], f.evidence["partitions"]) == ("2026-11-21T04:00", 2, 3)
    assert "since 2026-11-21T04:00 by the clock of broker 2; seen in 3 partitions" in f.message
    assert f.message.startswith("Clock of broker 2 is at least 41 s ahead of that of broker 1")


def said(corpus: str, rule: str) -> list[Finding]:
    return [f for f in audit_folder(corpora.unpack(corpus), corpora.manifest(corpus)["copied_at"]) if f.kind == rule]


def test_a_start_after_a_kill_is_one_information() -> None:
    """A lone broker was killed, and leads again what it led: Kafka's metadata has an election for each partition."""
    (f,) = said("expiry-unknown-43", "unclean-election")
    folders = {p.name for p in corpora.unpack("expiry-unknown-43").glob("broker-1/*-*") if p.is_dir()}
    assert f.severity == "info"
    assert 10 < len(f.evidence["partitions"]) == f.evidence["count"]
    assert set(f.evidence["partitions"]) <= folders


def test_an_election_that_may_have_lost_records_is_said_by_itself() -> None:
    assert [(f.severity, f.topic, f.partition) for f in said("unclean-43", "unclean-election")] == [
        ("critical", "un", 0)
    ]
    places = {(f.topic, f.partition) for f in said("replicas-39-unclean", "unclean-election")}
    assert places == {("trivet.log", number) for number in range(3)}


def test_a_directory_that_was_copied_earlier_is_one_information_a_broker() -> None:
    """Broker 1 was copied first, then 2, then 3, the others running on (manifest of the corpus)."""
    found = said("rolling-cold-copies-43", "replica-missing-range")
    assert [(f.severity, f.broker_id, f.partition) for f in found] == [("info", 1, None), ("info", 2, None)]
    short = said("replicas-39-unclean", "replica-missing-range")  # a few are named
    assert None not in {f.partition for f in short}


def test_what_a_cleaner_took_of_a_log_is_one_information() -> None:
    """Of a compacted topic markers are left without their data; that nothing was there before them nobody can tell."""
    (f,) = (f for f in said("clock-step5-43", "marker-without-transaction") if f.topic == "clk-kv")
    assert (f.severity, f.partition, f.evidence["count"]) == ("info", 0, 3)
    assert f.message.endswith("ended no remaining data: it may be compacted away")


def test_one_setting_of_a_few_transactional_ids_is_named_each() -> None:
    """A few are named each; twelve are one: test_many_ids_with_one_timeout_are_one_information."""
    assert not said("pooled-43", "transaction-timeout-too-large")  # twelve producers with Kafka's default
    assert len(said("skipped-then-goes-on-43", "transaction-timeout-too-large")) == 5


def test_a_coordinators_log_that_was_made_again_is_said_once_and_nothing_else_above_info() -> None:
    """Deleted while the broker was down (manifest of the corpus): it begins when it was made again, after the data."""
    manifest = corpora.manifest("txnstate-made-again-43")
    found = audit_folder(corpora.unpack("txnstate-made-again-43"), manifest["copied_at"])
    (f,) = (f for f in found if f.severity != "info")
    assert (f.kind, f.severity) == ("coordinator-log-starts-late", "warning")
    assert f.evidence["oldest_marker"] < f.evidence["begins"]
