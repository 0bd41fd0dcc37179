"""Rules on capacity: memory, short-lived producers, producers about to be forgotten, and what-if verdicts."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from auditor.model.policies import ReleaseEvidence
from auditor.pipeline.what_if_verdicts import VERDICTS, judge_log
from auditor.rules.catalogue import registry
from auditor.rules.producer_memory import Peak, broker_memory, known_peaks
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import Finding, LogView
from tests import corpora, facts, made

HOUR, DAY = 3_600_000, 86_400_000
Row = dict[str, Any]


def log_of(*rows: Row, as_of: int = DAY, topic: str = "t", policy: str = "kip-360", log_start: int = 100) -> LogView:
    replica = made.facts(topic, producers=made.producers(*rows), log_start=log_start, log_end=1000)
    return LogView([replica], Cluster(as_of, DAY, policy={"broker-1": policy}))


def found(log: LogView, rule: str) -> list[Finding]:
    return facts.judge([log], rule)


# --- memory ---------------------------------------------------------------------------------------------------------


def alive(pid: int, begin: int, end: int, batches: int = 1) -> Row:
    return {"producer_id": pid, "first_time": begin, "data_time": end, "last_timestamp": end, "batches": batches}


def test_the_peak_counts_producers_until_they_expire() -> None:
    replica = made.facts(producers=made.producers(alive(1, 0, 10, 9), alive(2, 50, 60, 2), alive(3, 110, 120)))
    # the first goes at 110, when the third comes
    assert known_peaks(replica, 100) == [(2, 2 * 224 + 40 * (5 + 2)), (2, 2 * 224 + 40 * 2)]
    assert known_peaks(replica, 101) == [(3, 3 * 224 + 40 * (5 + 2 + 1)), (3, 3 * 224 + 40 * 3)]
    assert known_peaks(made.facts(), 100) == [(0, 0), (0, 0)]


@pytest.mark.parametrize("lasts", [1, 30, 100])
def test_the_peak_is_what_a_count_at_each_beginning_gives(lasts: int) -> None:
    """Also where none expires before the last one begins (``lasts`` 100), which is not counted but summed up."""
    draw = random.Random(lasts)
    for _ in range(200):
        rows = [
            alive(n, begin := draw.randint(0, 60), begin + draw.randint(0, 9), draw.randint(1, 9)) for n in range(12)
        ]
        for peak, cached in zip(known_peaks(made.facts(producers=made.producers(*rows)), lasts), (5, 1), strict=True):
            there = [
                [row for row in rows if row["first_time"] <= now < row["data_time"] + lasts]
                for now in (row["first_time"] for row in rows)
            ]
            assert peak.producers == max(map(len, there))
            assert peak.bytes == max(sum(224 + 40 * min(row["batches"], cached) for row in now) for now in there)


def test_an_open_transaction_keeps_its_producer() -> None:
    rows = alive(1, 0, 10) | {"txn_first_offset": 5}, alive(2, 500, 510)
    assert [peak.producers for peak in known_peaks(made.facts(producers=made.producers(*rows)), 100)] == [2, 2]


@pytest.mark.parametrize(("count", "expected"), [(9_999, []), (10_000, ["info"]), (100_001, ["warning"])])
def test_memory_is_reported_where_it_matters(count: int, expected: list[str]) -> None:
    log = log_of()
    rows = np.repeat(made.producers(alive(1, 0, 10)), count)
    rows["producer_id"] = np.arange(count)
    log.leader.producers = rows
    results = found(log, "producer-state-memory")
    assert [f.severity for f in results] == expected
    assert [f.evidence["bytes_peak"] for f in results] == [count * 264] * len(expected)


@pytest.mark.parametrize(("size", "severity"), [(256 << 20, "info"), ((256 << 20) + 1, "warning")])
def test_memory_of_a_broker(size: int, severity: str) -> None:
    f = broker_memory("b1", 1, Peak(9, size), Peak(9, 8))
    assert (f.severity, f.broker_id, f.topic) == (severity, 1, None)
    assert (f.evidence["bytes_peak"], f.evidence["bytes_peak_latest_batch_only"]) == (size, 8)
    assert f.remedy
    assert f.source


# --- short-lived producers ------------------------------------------------------------------------------------------


def many(count: int, every: int, batches: int) -> LogView:
    log = log_of()
    rows = np.repeat(made.producers({"batches": batches}), count)
    rows["producer_id"] = rows["first_offset"] = rows["data_last_offset"] = np.arange(count)
    rows["first_time"] = np.arange(count) * every
    log.leader.producers = rows
    return log


def test_a_thousand_short_lived_producers_within_a_day() -> None:
    (f,) = found(many(1_200, 60_000, 3), "short-lived-producers")
    assert (f.severity, f.evidence["producers"], f.offset, f.last_offset) == ("warning", 1_200, 0, 1_199)


@pytest.mark.parametrize(
    ("count", "every", "batches"), [(999, 1, 1), (1_200, 1, 4), (3_000, DAY // 999 + 1, 1)], ids=["few", "long", "slow"]
)
def test_producers_that_are_not_too_many(count: int, every: int, batches: int) -> None:
    assert found(many(count, every, batches), "short-lived-producers") == []


@pytest.mark.parametrize(("transactional", "switched_off"), [(1_000, False), (400, True), (0, True)])
def test_idempotence_is_not_switched_off_under_a_transactional_id(transactional: int, switched_off: bool) -> None:
    """KafkaProducer throws a ConfigException for a transactional.id with enable.idempotence=false."""
    log = many(1_000, 1, 1)
    log.leader.producers["transactional"][:transactional] = 1
    (f,) = found(log, "short-lived-producers")
    assert ("enable.idempotence=false" in f.remedy) is switched_off
    assert ("reuse a few transactional ids" in f.remedy) is (transactional > 0)


@pytest.mark.parametrize(("shown", "said"), [
    (ReleaseEvidence((3, 3), (3, 4)), ""), (ReleaseEvidence((3, 4)), "; lower producer.id.expiration.ms"),
    (ReleaseEvidence(), "; from 3.4 on, lower producer.id.expiration.ms"),
])  # fmt: skip
def test_brokers_before_3_4_are_told_of_no_setting_that_they_refuse(shown: ReleaseEvidence, said: str) -> None:
    log = many(1_000, 1, 1)
    log.cluster.releases = {log.leader.broker_id: shown}
    (f,) = found(log, "short-lived-producers")
    assert f.remedy.partition("(1000 of these)")[2].startswith(said or ".")


def test_exactly_a_thousand_within_a_day_are_too_many() -> None:
    (f,) = found(many(3_000, DAY // 1_000, 1), "short-lived-producers")
    assert f.evidence["producers"] == 1_000


# --- exposure -------------------------------------------------------------------------------------------------------


def gone(**given: Any) -> Row:
    """A producer whose batches all lie below the log start of 100, its last an hour ago."""
    row = {"producer_id": 7, "producer_epoch": 2, "below_batches": 3, "below_last_offset": 90, "below_epoch": 2,
           "below_last_sequence": 29, "below_timestamp": DAY - HOUR}  # fmt: skip
    return row | given


def restarted(**given: Any) -> Row:
    first = {"batches": 1, "first_sequence": 0, "first_epoch": 2, "first_offset": 110, "first_timestamp": DAY}
    return gone(**{**first, **given})


@pytest.mark.parametrize(
    ("policy", "severity"), [("pre-kip-360", "warning"), ("kip-360", "info"), ("kip-890-p2", "info")]
)
@pytest.mark.parametrize("row", [gone(), restarted()], ids=["gone", "restarted"])
def test_a_producer_below_the_log_start(row: Row, policy: str, severity: str) -> None:
    (f,) = found(log_of(row, policy=policy), "unknown-producer-exposure")
    assert (f.severity, f.producer_id, f.producer_epoch, f.last_offset) == (severity, 7, 2, 90)
    evidence = {name: f.evidence[name] for name in ("last_sequence", "last_offset", "log_start", "known_from")}
    assert evidence == {
        "last_sequence": 29,
        "last_offset": 90,
        "log_start": 100,
        "known_from": "a batch below the log start",
    }


@pytest.mark.parametrize(
    "row",
    [
        gone(below_last_offset=100),  # still in the log
        gone(below_timestamp=0),  # idle for the whole expiration: forgotten by every broker
        gone(batches=5, first_sequence=30, first_epoch=2),  # went on
        gone(producer_epoch=3),  # a marker raised its epoch: it begins at 0 in the new one
        restarted(first_epoch=3),  # began a new epoch
        restarted(below_last_sequence=2**31 - 1),  # the sequence wrapped
        restarted(first_timestamp=2 * DAY),  # it had expired
    ],
)
def test_a_producer_that_is_not_exposed(row: Row) -> None:
    assert found(log_of(row, policy="pre-kip-360"), "unknown-producer-exposure") == []


def test_topics_without_sequences_expose_nobody() -> None:
    assert found(log_of(gone(), topic="__consumer_offsets"), "unknown-producer-exposure") == []


def test_many_exposed_producers_are_summed_up() -> None:
    log = log_of(*[gone(producer_id=k) for k in range(130)])
    results = found(log, "unknown-producer-exposure")
    assert len(results) == 101
    assert [f.evidence["producers"] for f in results if f.producer_id is None] == [30]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ["warning"]),
        ({"idle_count": 1}, []),
        ({"max_idle_ms": DAY}, []),  # that is producer-expired-while-active
        ({"data_timestamp": 0}, []),  # it writes no more
    ],
)
def test_a_producer_that_nearly_expires_again_and_again(given: Row, expected: list[str]) -> None:
    row = {"producer_id": 7, "batches": 9, "idle_count": 2, "max_idle_ms": 20 * HOUR, "data_timestamp": DAY - 1}
    assert [f.severity for f in found(log_of(row | given), "unknown-producer-exposure")] == expected


@pytest.mark.parametrize("name", ["unknown-producer-23", "unknown-producer-41"])
def test_the_hazards_that_the_manifests_name_and_no_others(name: str) -> None:
    manifest = corpora.manifest(name)
    wanted = {
        (
            e["topic"],
            e["partition"],
            e["producerId"],
            e["producerEpoch"],
            e["lastOffset"],
            e["lastSequence"],
            e["logStartOffset"],
        )
        for e in manifest["expect"]
        if e["finding"] == "unknown_producer_hazard"
    }
    results = facts.judge(facts.corpus_logs(name), "unknown-producer-exposure")
    said = {
        (
            f.topic,
            f.partition,
            f.producer_id,
            f.producer_epoch,
            f.last_offset,
            f.evidence["last_sequence"],
            f.evidence["log_start"],
        )
        for f in results
    }
    assert said == wanted
    assert {f.severity for f in results} == {"warning" if name == "unknown-producer-23" else "info"}


@pytest.mark.parametrize("name", [n for n in corpora.names() if n != "unknown-producer-23"])
def test_no_other_corpus_is_exposed_above_info(name: str) -> None:
    rules = ("producer-state-memory", "short-lived-producers", "unknown-producer-exposure")
    assert [f.to_json() for f in facts.judge(facts.corpus_logs(name), *rules) if f.severity != "info"] == []


# --- what-if --------------------------------------------------------------------------------------------------------


def verdict(**given: Any) -> Row:
    row: Row = dict.fromkeys(VERDICTS.names)
    row |= {"policy": "latest-batch-only", "error": "DUPLICATE_SEQUENCE_NUMBER", "base_offset": 5, "last_offset": 6,
            "producer_id": 7, "producer_epoch": 0, "base_sequence": 3, "last_sequence": 4, "known_last_sequence": 9,
            "batches": 2, "stored_before": False, "max_timestamp": 0, "file": "0.log", "position": 40}  # fmt: skip
    return row | given


def with_verdicts(*rows: Row) -> LogView:
    import pyarrow as pa

    log = log_of()
    log.leader.tables["verdicts"] = pa.Table.from_pylist(list(rows), VERDICTS)
    return log


def test_verdicts_are_grouped_by_policy_and_error() -> None:
    rows = [
        verdict(),
        verdict(base_offset=9, producer_id=8),
        verdict(policy="kip-360", error="OUT_OF_ORDER_SEQUENCE_NUMBER"),
    ]
    results = found(with_verdicts(*rows), "what-if-rejection")
    reported = [
        (f.evidence["policy"], f.evidence["runs"], f.evidence["batches"], f.evidence["producers"]) for f in results
    ]
    assert sorted(reported) == [("kip-360", 1, 2, 1), ("latest-batch-only", 2, 4, 2)]
    assert {f.severity for f in results} == {"info"}


def test_only_what_was_never_stored_is_a_false_duplicate() -> None:
    rows = [
        verdict(),
        verdict(stored_before=True),
        verdict(policy="kip-360"),
        verdict(error="OUT_OF_ORDER_SEQUENCE_NUMBER"),
    ]
    (f,) = found(with_verdicts(*rows), "draft-false-duplicate")
    assert (f.severity, f.offset, f.last_offset, f.file, f.position) == ("warning", 5, 6, "0.log", 40)
    assert f.to_dict()["timestamp"] == "1970-01-01T00:00:00.000Z"


def test_a_client_s_time_beyond_the_year_9999_is_no_obstacle() -> None:
    (f,) = found(with_verdicts(verdict(max_timestamp=2**62)), "what-if-rejection")
    assert f.timestamp is None
    assert f.offset == 5


def test_a_plain_audit_never_hears_of_policies() -> None:
    assert found(log_of(gone()), "what-if-rejection") == found(log_of(gone()), "draft-false-duplicate") == []
    catalogue = registry.kinds()
    assert {r.id for r in catalogue.values() if r.what_if} == {"what-if-rejection", "draft-false-duplicate"}


def test_a_log_without_worlds_has_no_verdicts() -> None:
    log = log_of()
    assert [kind for kind, _ in judge_log(log.replicas, log.cluster)] == ["errors"]
