"""What would have prevented a finding: by what is set at present, by what can apply, by what the release takes.

Defaults and releases are those of Kafka's configuration reference.
"""

from __future__ import annotations

from typing import Any

import pytest

from auditor.base.words import NO_TIMEOUT_MS
from auditor.model.policies import ReleaseEvidence
from auditor.rules.catalogue import registry, safeguards
from auditor.rules.catalogue.safeguards import (
    CLEAN_ELECTION,
    GROUP_METADATA,
    ID_EXPIRATION,
    IN_SYNC_REPLICAS,
    KNOWN_BELOW_LOG_START,
    LATE_WRITES,
    PRODUCER_EXPIRATION,
    TIMESTAMP_LIMITS,
    TRANSACTION_TIMEOUT,
    Safeguard,
)
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import Finding

TOPIC = "bank ledger"  # a name that a shell has to be given in quotes
DAY, WEEK = "86400000", "604800000"
V33, V36, V40 = ReleaseEvidence((3, 3), (3, 4)), ReleaseEvidence((3, 6)), ReleaseEvidence((4, 0))
ALTER = "kafka-configs.sh --bootstrap-server B --entity-type"
UNKNOWN = "now: the input does not show it"


def cluster(release: ReleaseEvidence = V40, replicas: int | None = 3, **given: Any) -> Cluster:
    known = Cluster(as_of=0, newest_time=0, has_metadata=True, releases={1: release}, **given)
    known.leaders = {(TOPIC, 0): 1}
    if replicas is not None:
        known.replicas = {(TOPIC, 0): replicas}
    return known


def about(**given: Any) -> Finding:
    evidence = given.pop("evidence", {})
    return Finding("r", "error", **{"broker_id": 1, "topic": TOPIC, "partition": 0, "evidence": evidence, **given})


def said(
    declared: Safeguard | tuple[Safeguard, ...], known: Cluster, finding: Finding | None = None
) -> list[tuple[str, str, str]]:
    """The setting, its present value, and the command."""
    several = declared if isinstance(declared, tuple) else (declared,)
    held = safeguards.prevented_by(finding or about(), several, known)
    return [(each.safeguard.setting, each.now, each.command) for each in held]


def by_file(**settings: str) -> dict[str, Any]:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return {"broker_configs": {"1": named}, "of_files": {1: frozenset(named)}}


def test_a_value_that_is_not_known_gets_no_command() -> None:
    known = cluster()
    assert said(PRODUCER_EXPIRATION, known) == [(f"producer.id.expiration.ms={WEEK}", UNKNOWN, "")]
    assert said(CLEAN_ELECTION, known) == [("unclean.leader.election.enable=false", UNKNOWN, "")]
    assert said(IN_SYNC_REPLICAS, known) == [("min.insync.replicas=2 with acks=all", UNKNOWN, "")]
    assert said(LATE_WRITES[1:], known) == [("transaction.partition.verification.enable=true", UNKNOWN, "")]


def test_a_release_that_nothing_shows_gets_no_command() -> None:
    known = cluster(ReleaseEvidence(), broker_configs={"": {"producer.id.expiration.ms": DAY}})
    (row,) = said(PRODUCER_EXPIRATION, known)
    assert row[1:] == ("now 1 d by __cluster_metadata", "")


def test_the_present_value_says_who_says_it_and_the_command_changes_that() -> None:
    """A broker takes what the metadata has for it before what it has for all, and both before its file."""
    of_all, own = {"": {"producer.id.expiration.ms": DAY}}, {"1": {"producer.id.expiration.ms": "3600000"}}
    setting = f"--alter --add-config producer.id.expiration.ms={WEEK}"
    for configs, now, command in (
        (of_all, "now 1 d by __cluster_metadata", f"{ALTER} brokers --entity-default {setting}"),
        (of_all | own, "now 1 h by __cluster_metadata", f"{ALTER} brokers --entity-name 1 {setting}"),
    ):
        assert [row[1:] for row in said(PRODUCER_EXPIRATION, cluster(broker_configs=configs))] == [(now, command)]
    in_file = cluster(**by_file(producer__id__expiration__ms=DAY))
    wanted = ("now 1 d by server.properties of broker 1", f"{ALTER} brokers --entity-default {setting}")
    assert [row[1:] for row in said(PRODUCER_EXPIRATION, in_file)] == [wanted]
    unset = cluster(**by_file(log__dirs="/data"))
    assert [row[1] for row in said(PRODUCER_EXPIRATION, unset)] == ["now 1 d, Kafka's default"]


def test_what_is_set_already_is_not_proposed() -> None:
    known = cluster(
        levels={"transaction.version": 2},
        topic_configs={TOPIC: {"min.insync.replicas": "2", "message.timestamp.type": "LogAppendTime"}},
        broker_configs={"": {"producer.id.expiration.ms": "2592000000", "unclean.leader.election.enable": "false"}},
        of_files={1: frozenset({"log.dirs"})},  # verification is on where nobody turned it off, from 3.6 on
    )
    assert said((*LATE_WRITES, PRODUCER_EXPIRATION, CLEAN_ELECTION, IN_SYNC_REPLICAS, TIMESTAMP_LIMITS), known) == []


def test_what_a_placeholder_stands_for_is_not_known() -> None:
    known = cluster(**by_file(unclean__leader__election__enable="${UNCLEAN}"))
    assert [row[1:] for row in said(CLEAN_ELECTION, known)] == [(UNKNOWN, "")]


def test_brokers_before_3_4_know_no_expiration_of_producers_by_itself() -> None:
    """KIP-854; before it, transactional.id.expiration.ms counted, which no running broker takes."""
    known = cluster(V33, **by_file(transactional__id__expiration__ms=DAY))
    wanted = (f"transactional.id.expiration.ms={WEEK}", "now 1 d by server.properties of broker 1", "")
    assert said(PRODUCER_EXPIRATION, known) == [wanted]
    assert said(PRODUCER_EXPIRATION, cluster(V33, **by_file(transactional__id__expiration__ms=WEEK))) == []


def test_brokers_before_3_6_cannot_verify() -> None:
    assert [row[0] for row in said(LATE_WRITES, cluster(V33))] == ["brokers of 3.6 or newer"]
    assert [
        row[0] for row in said(LATE_WRITES, cluster(ReleaseEvidence((3, 6), (3, 7)), levels={"transaction.version": 0}))
    ] == ["transaction.partition.verification.enable=true"]


def test_a_feature_is_raised_where_the_release_has_it() -> None:
    (row,) = said(LATE_WRITES[:1], cluster(levels={"transaction.version": 1}))
    assert row[1:] == (
        "now 1 by __cluster_metadata",
        "kafka-features.sh --bootstrap-server B upgrade --feature transaction.version=2",
    )


def test_a_partition_of_one_replica_gets_replicas_and_no_minimum_of_two() -> None:
    """With min.insync.replicas=2 and one replica, all writes with acks=all are refused."""
    known = cluster(replicas=1, topic_configs={TOPIC: {"min.insync.replicas": "1"}})
    now = f"now 1 replica of {TOPIC}-0 by __cluster_metadata"
    assert said((IN_SYNC_REPLICAS, CLEAN_ELECTION), known) == [("replication.factor=3", now, "")]


@pytest.mark.parametrize(("replicas", "commanded"), [(None, False), (2, False), (3, True)])
def test_a_minimum_of_two_is_set_by_a_command_where_one_may_be_away(replicas: int | None, commanded: bool) -> None:
    known = cluster(replicas=replicas, topic_configs={TOPIC: {"min.insync.replicas": "1"}})
    ((_, now, command),) = said(IN_SYNC_REPLICAS, known)
    assert now == f"now 1 for {TOPIC} by __cluster_metadata"
    wanted = f"{ALTER} topics --entity-name '{TOPIC}' --alter --add-config min.insync.replicas=2"
    assert command == (wanted if commanded else "")


def test_an_unclean_election_is_forbidden_where_it_is_allowed() -> None:
    setting = "--alter --add-config unclean.leader.election.enable=false"
    of_topic = cluster(topic_configs={TOPIC: {"unclean.leader.election.enable": "true"}})
    assert [row[2] for row in said(CLEAN_ELECTION, of_topic)] == [f"{ALTER} topics --entity-name '{TOPIC}' {setting}"]
    of_all = cluster(broker_configs={"": {"unclean.leader.election.enable": "true"}})
    assert [row[2] for row in said(CLEAN_ELECTION, of_all)] == [f"{ALTER} brokers --entity-default {setting}"]


def test_no_election_prevents_what_came_without_one() -> None:
    same, changed = (about(evidence={"leader_epochs": epochs}) for epochs in ([3, 3], [3, 4]))
    assert said(CLEAN_ELECTION, cluster(), same) == []
    assert said(CLEAN_ELECTION, cluster(), changed)
    assert said((CLEAN_ELECTION, IN_SYNC_REPLICAS), cluster(), about(topic="__cluster_metadata")) == []


@pytest.mark.parametrize(("evidence", "prevents"), [
    ({"log_age_ms": 1_000}, False),  # a topic of one second
    ({"log_age_ms": 2 * int(DAY)}, True),
    ({"idle_ms": int(DAY) - 1}, False),
    ({"idle_ms": int(DAY)}, True),
    ({"idle_ms": 2 * int(WEEK)}, False),  # a week would not have been enough
    ({}, True),
    ({"forgotten_by": "retention"}, False),
])  # fmt: skip
def test_a_longer_memory_prevents_what_an_idle_producer_met(evidence: dict[str, Any], prevents: bool) -> None:
    known = cluster(broker_configs={"": {"producer.id.expiration.ms": DAY}})
    assert bool(said(PRODUCER_EXPIRATION, known, about(evidence=evidence))) is prevents


def test_what_retention_makes_an_old_broker_forget_no_expiration_keeps() -> None:
    """KIP-360: before 2.4 a producer went with its last batch, whatever transactional.id.expiration.ms said."""
    both, known = (KNOWN_BELOW_LOG_START, PRODUCER_EXPIRATION), cluster()
    forgotten = about(evidence={safeguards.FORGOTTEN_BY: safeguards.RETENTION})
    assert [row[0] for row in said(both, known, forgotten)] == ["brokers of 2.4 or newer"]
    assert [row[0] for row in said(both, known)] == [f"producer.id.expiration.ms={WEEK}"]


@pytest.mark.parametrize(("evidence", "prevents"), [
    ({"timeout_ms": 900_000, "age_ms": 60_000, "coordinator_state": "Ongoing"}, True),
    ({"timeout_ms": 900_000, "age_ms": 900_001, "coordinator_state": "Ongoing"}, False),  # it was not enforced
    ({"timeout_ms": 900_000, "age_ms": 900_001, "coordinator_state": None}, True),  # which nobody knows
    ({"timeout_ms": NO_TIMEOUT_MS, "age_ms": 60_000, "coordinator_state": "Ongoing"}, False),  # KIP-939
])  # fmt: skip
def test_a_shorter_time_out_helps_within_one(evidence: dict[str, Any], prevents: bool) -> None:
    found = said(TRANSACTION_TIMEOUT, cluster(), about(evidence=evidence))
    known = "now 15 min by __transaction_state" if evidence["coordinator_state"] else UNKNOWN
    assert found == ([("transaction.timeout.ms", known, "")] if prevents else [])


def test_settings_of_transactions_prevent_what_transactions_did() -> None:
    assert said(GROUP_METADATA, cluster(), about()) == []  # a plain commit
    assert said(GROUP_METADATA, cluster(), about(producer_id=7))
    committed = about(producer_id=7, evidence={"decided": "COMMIT", "class": "hanging"})
    assert said(LATE_WRITES, cluster(), committed) == []  # its marker is what lacks
    assert said(LATE_WRITES, cluster(), about(producer_id=7, evidence={"class": "active"})) == []


def test_static_settings_have_no_command() -> None:
    known = cluster(broker_configs={"1": {"transactional.id.expiration.ms": DAY}})
    assert [row[1:] for row in said(ID_EXPIRATION, known)] == [("now 1 d by __cluster_metadata", "")]


def test_rows_come_worst_first_and_name_each_value_once() -> None:
    known = cluster(topic_configs={TOPIC: {"unclean.leader.election.enable": "true"}})
    pairs = []
    for severity, declared in (("error", CLEAN_ELECTION), ("error", CLEAN_ELECTION), ("critical", GROUP_METADATA)):
        finding = about(producer_id=7)
        finding.severity = severity
        pairs.append((finding, safeguards.prevented_by(finding, (declared,), known)))
    rows = safeguards.summed(pairs)
    assert [(row["setting"], row["severity"], row["findings"]) for row in rows] == [
        (GROUP_METADATA.setting, "critical", 1), (CLEAN_ELECTION.setting, "error", 2),
    ]  # fmt: skip
    assert [len(row["now"]) for row in rows] == [0, 1]


def test_every_safeguard_is_declared_by_a_rule_or_stands_in_for_one() -> None:
    every = {each for each in vars(safeguards).values() if isinstance(each, Safeguard)}
    declared = {each for rule in registry.load().values() for each in rule.prevented_by}
    assert every == declared | {each.or_else for each in declared} - {None} | {*safeguards.OF_A_DEFECT}
