"""Decisions of a coordinator that are not carried out: which log does not take its record, by the metadata.

A leader refuses appends with acks=all, as markers and a coordinator's own records are, while fewer replicas are in sync
than min.insync.replicas (Partition.appendRecordsToLeader), at most as many as there are (Partition.effectiveMinIsr).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from auditor.base.advice import text as advice_text
from auditor.connectors.codec.cluster_metadata import BrokerState, ClusterMetadata, PartitionState
from auditor.pipeline.cluster_context import brief, build
from auditor.pipeline.cluster_settings import ClusterSettings
from auditor.rules.seen.cluster_view import UnderMinIsr
from auditor.rules.seen.view import Finding
from tests import made
from tests.audited import opened
from tests.controller_records import Controller
from tests.whole.test_incidents_transactions import (
    BUSY,
    BUSY_PRODUCER,
    BUSY_SINCE,
    BUSY_TIMEOUT,
    MINUTE_MS,
    Bank,
)

PARTITION, STATE_LOG = "bank.audit-1", "__transaction_state-1"
DECIDED = BUSY_SINCE + 5_000
MINIMUM = "min.insync.replicas"
OF_THREE, LACKING, SYNCED = (1, 2, 3), "--under-min-isr-partitions", "--unavailable-partitions"


def decided(tmp_path: Path, state: str) -> Bank:
    bank = Bank(tmp_path, PARTITION)
    bank.coordinator.state(
        BUSY, state, BUSY_PRODUCER, DECIDED, PARTITION, start=BUSY_SINCE, timeout=BUSY_TIMEOUT
    )  # fmt: skip
    return bank


def tell(bank: Bank, name: str, isr: tuple[int, ...], replicas: tuple[int, ...], minimum: str = "2") -> None:
    controller = Controller(bank.lab.broker(), DECIDED)
    controller.register(1)
    controller.partition(name, isr=isr, replicas=replicas, leader=1)
    controller.topic_setting(name.rpartition("-")[0], MINIMUM, minimum)
    controller.save()


def marked(bank: Bank, commit: bool, time: int, epoch: int = BUSY_PRODUCER[1]) -> None:
    """A marker of the busy producer in its partition."""
    log = bank.lab.log(PARTITION)
    log.decide(log.data(BUSY_PRODUCER[0])[-1], commit, time=time, epoch=epoch)
    log.save()


def stuck(bank: Bank) -> Finding:
    (found,) = [f for f in bank.findings(DECIDED + 16 * MINUTE_MS) if f.kind == "stuck-prepare"]
    return found


def remedy(f: Finding) -> str:
    assert f.advice is not None
    return advice_text(f.advice.row())


@pytest.mark.parametrize("state", ["PrepareCommit", "PrepareAbort"])
def test_a_partition_below_its_minimum_of_replicas_in_sync_refuses_the_marker(tmp_path: Path, state: str) -> None:
    bank = decided(tmp_path, state)
    tell(bank, PARTITION, (1,), OF_THREE)
    f = stuck(bank)
    assert f.evidence["under_min_isr"] == {PARTITION: [1]}
    assert f"{PARTITION} refuses its marker (1 in the ISR, {MINIMUM} is 2)" in f.message
    (row,) = [r for r in opened(bank.lab.root, as_of=DECIDED + 16 * MINUTE_MS).blocked if r["partition"] == 1]
    for text in (remedy(f), advice_text(row["advice"])):
        assert f"--describe {LACKING}" in text
        assert SYNCED not in text
        assert "estore broker 2 or 3" in text
        assert "Another coordinator does not help before" in text
        assert "Do not abort it with kafka-transactions.sh" in text
        assert "kafka-leader-election" not in text


@pytest.mark.parametrize(
    ("isr", "replicas", "minimum"),
    [((1, 2), OF_THREE, "2"), ((1,), (1,), "2"), ((1,), OF_THREE, "1"), ((1,), OF_THREE, "")],
)
def test_enough_replicas_in_sync_refuse_nothing(
    tmp_path: Path, isr: tuple[int, ...], replicas: tuple[int, ...], minimum: str
) -> None:
    bank = decided(tmp_path, "PrepareAbort")
    tell(bank, PARTITION, isr, replicas, minimum)
    f = stuck(bank)
    assert "under_min_isr" not in f.evidence
    assert f.message.endswith(f"{PARTITION} has no marker of it")
    assert {LACKING, SYNCED} <= set(remedy(f).split())


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("short", [True, False])
def test_where_all_markers_are_written_only_the_clients_of_the_id_wait(
    tmp_path: Path, commit: bool, short: bool
) -> None:
    bank = decided(tmp_path, "PrepareCommit" if commit else "PrepareAbort")
    marked(bank, commit, DECIDED + 100)
    if short:
        tell(bank, STATE_LOG, (1,), OF_THREE)
    f = stuck(bank)
    assert f"all its markers are written ({PARTITION}), " in f.message
    assert f.message.endswith(f"and only clients of {BUSY} are blocked")
    assert (f"{STATE_LOG} accepts no record (1 in the ISR, {MINIMUM} is 2)" in f.message) == short
    assert (SYNCED in remedy(f), LACKING in remedy(f)) == (False, True)
    assert ("the coordinator then completes it by itself" in remedy(f)) == short
    assert not [r for r in opened(bank.lab.root, as_of=DECIDED + 16 * MINUTE_MS).blocked if r["partition"] == 1]


@pytest.mark.parametrize(("commit", "time", "epoch"), [(False, 100, 0), (True, -31_000, 0), (True, 100, -1)])
def test_a_marker_that_is_not_of_the_decision_proves_nothing(
    tmp_path: Path, commit: bool, time: int, epoch: int
) -> None:
    """Of another outcome, of a transaction before, of an epoch before."""
    bank = decided(tmp_path, "PrepareCommit")
    marked(bank, commit, DECIDED + time, BUSY_PRODUCER[1] + epoch)
    found = bank.findings(DECIDED + 16 * MINUTE_MS)
    assert not [f for f in found if "markers are written" in f.message]


def test_a_coordinator_below_its_minimum_cannot_abort_what_is_overdue(tmp_path: Path) -> None:
    bank = Bank(tmp_path, PARTITION)
    tell(bank, STATE_LOG, (1,), OF_THREE)
    (f,) = [f for f in bank.findings(BUSY_SINCE + 60 * MINUTE_MS) if f.kind == "timeout-not-enforced"]
    assert "estore broker 2 or 3, so that enough replicas of __transaction_state-1 are in sync" in remedy(f)


HOUR_MS, NOW = 60 * MINUTE_MS, DECIDED
TOPIC, OF_BROKER, OF_CLUSTER = {"t": {MINIMUM: "2"}}, {"1": {MINIMUM: "2"}}, {"": {MINIMUM: "2"}}


@pytest.mark.parametrize(
    ("given", "short"),
    [
        ({"topic_configs": TOPIC}, True),
        ({"broker_configs": OF_BROKER}, True),
        ({"broker_configs": OF_CLUSTER}, True),
        ({"broker_configs": {"2": {MINIMUM: "2"}}}, False),  # another broker's file
        ({"topic_configs": {"t": {MINIMUM: "1"}}, "broker_configs": OF_BROKER}, False),  # the topic's own counts
        ({}, False),  # 1 by default
        ({"topic_configs": TOPIC, "whole": False}, False),  # lost records may have changed who is in sync
        ({"topic_configs": TOPIC, "stopped": {("id", 0): (2,)}, "sessions": {2: NOW - MINUTE_MS}}, False),
        ({"topic_configs": TOPIC, "stopped": {("id", 0): (2,)}, "sessions": {2: NOW - HOUR_MS}}, True),
        ({"topic_configs": TOPIC, "stopped": {("id", 0): (2,)}, "sessions": {}}, False),  # not known since when
    ],
)
def test_which_partitions_refuse_markers(given: dict[str, Any], short: bool) -> None:
    """One of two replicas is in sync, and its broker leads."""
    metadata = ClusterMetadata()
    metadata.partitions["id", 0] = PartitionState("t", 0, "id", (1, 2), (1,), 1, 0, 0)
    settings = ClusterSettings(metadata=metadata, newest_time=NOW, **{"whole": True, **given})
    for fenced in (False, True):
        metadata.brokers[1] = BrokerState(1, 7, "id", fenced, False)
        (cluster,) = build([brief(made.facts(broker_time=NOW, log_end=9))], {"cluster": settings}, NOW).values()
        expected = {"t-0": UnderMinIsr((1,), 2, (2,))} if short and not fenced else {}
        assert cluster.under_min_isr == expected
