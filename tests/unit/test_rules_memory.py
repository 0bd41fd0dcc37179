"""What a running broker remembers against what its log says: silence where they agree, each difference reported."""

from __future__ import annotations

import pytest

from auditor.connectors.live.live_cluster import ListedTransaction
from auditor.facts.coordinator_history import StateRecord, build_history
from auditor.facts.replica_facts import CoordinatorMemory, ProducerMemory, ReplicaFacts
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import Finding
from tests import made
from tests.facts import judge, log_of

RULE = "broker-memory-differs"
# By the log: three batches to sequence 8, a marker of coordinator epoch 4, and a transaction open since offset 20.
LOGGED = {
    "producer_id": 7, "producer_epoch": 1, "data_epoch": 1, "last_sequence": 8, "coordinator_epoch": 4,
    "txn_first_offset": 20, "batches": 3, "markers": 1,
}  # fmt: skip
HELD = {
    "producer_id": 7, "producer_epoch": 1, "last_sequence": 8, "last_timestamp": 5, "coordinator_epoch": 4,
    "txn_first_offset": 20,
}  # fmt: skip
OPEN = {"producer_id": 7, "producer_epoch": 1, "first_offset": 20, "last_offset": 22}


def replica(log_start: int = 0, memory: ProducerMemory | None = None) -> ReplicaFacts:
    return made.facts(
        "t", log_start=log_start, log_end=30, producer_memory=memory, producers=made.producers(LOGGED),
        transactions=made.transactions(OPEN),
    )  # fmt: skip


def differences(facts: ReplicaFacts) -> list[Finding]:
    return judge([log_of([facts])], RULE)


def test_nothing_is_said_where_nobody_was_asked_or_both_agree() -> None:
    assert differences(replica()) == []
    assert differences(replica(memory=ProducerMemory([HELD], [7]))) == []


@pytest.mark.parametrize(
    ("name", "value"), [("producer_epoch", 2), ("last_sequence", 9), ("coordinator_epoch", 5), ("txn_first_offset", -1)]
)
def test_each_field_is_compared(name: str, value: int) -> None:
    (found,) = differences(replica(memory=ProducerMemory([HELD | {name: value}], [7])))
    assert (found.severity, found.producer_id) == ("warning", 7)
    assert found.evidence["found"] == {name: value}
    assert found.evidence["expected"] == {name: LOGGED[name]}


@pytest.mark.parametrize(
    ("held", "log_start", "count"),
    [
        ({"producer_id": 8, "txn_first_offset": 25}, 0, 1),  # open in memory alone
        ({"producer_id": 8, "txn_first_offset": -1}, 0, 0),  # nothing to say of who was only active before
        ({"producer_id": 8, "txn_first_offset": 3}, 10, 0),  # below what was read
    ],
)
def test_a_producer_that_the_log_does_not_have(held: dict[str, int], log_start: int, count: int) -> None:
    assert len(differences(replica(log_start, ProducerMemory([HELD, HELD | held], [7, 8])))) == count


def test_a_transaction_that_the_broker_knows_nothing_of() -> None:
    (found,) = differences(replica(memory=ProducerMemory()))
    assert (found.offset, found.evidence["found"]) == (20, {"txn_first_offset": None})
    assert differences(replica(memory=ProducerMemory(ids=[7]))) == []  # it was active while the log was read


ENTRY = StateRecord(
    0, 5, 1, 0, "tid", "Ongoing", 7, 1, 60_000, frozenset({"t-0"}), False, 1, 1, 0, "", 0, 1
)  # the last record of the id: ongoing, in one partition


@pytest.mark.parametrize(
    ("held", "other"),
    [
        (ListedTransaction("Ongoing", 7, 1, frozenset({"t-0"})), []),
        (ListedTransaction("Ongoing", 7), []),
        (ListedTransaction("Dead", 9), []),  # a state that no log has
        (ListedTransaction("CompleteCommit", 7), ["state"]),
        (ListedTransaction("Ongoing", 9, 1, frozenset({"t-0"})), ["producer_id"]),
        (ListedTransaction("Ongoing", 7, 2, frozenset()), ["producer_epoch", "partitions"]),
    ],
)
def test_what_a_coordinator_remembers_of_an_id(held: ListedTransaction, other: list[str]) -> None:
    found = coordinator_differences(held, asked_at=30_002)
    assert [sorted(f.evidence["found"]) for f in found] == ([sorted(other)] if other else [])


def test_an_id_that_was_at_work_is_not_compared() -> None:
    assert coordinator_differences(ListedTransaction("CompleteCommit", 7), asked_at=30_000) == []


@pytest.mark.parametrize(
    ("held", "leader_epoch", "severity"),
    [
        (ListedTransaction("CompleteCommit", 7, 1, frozenset()), 0, "info"),
        (ListedTransaction("CompleteCommit", 7), 0, "info"),
        (ListedTransaction("CompleteCommit", 7, 0, frozenset()), 0, "warning"),
        (ListedTransaction("CompleteAbort", 7), 0, "warning"),
        (ListedTransaction("CompleteCommit", 7, 1, frozenset()), 1, "warning"),  # a coordinator that has loaded the log
    ],
)
def test_a_coordinator_whose_last_append_failed(held: ListedTransaction, leader_epoch: int, severity: str) -> None:
    before = ENTRY._replace(offset=4, state="CompleteCommit", partitions=frozenset())
    found = coordinator_differences(held, 30_002, before, ENTRY, leader_epoch=leader_epoch)
    assert [f.severity for f in found] == [severity]


def coordinator_differences(
    held: ListedTransaction, asked_at: int, *entries: StateRecord, leader_epoch: int = 0
) -> list[Finding]:
    memory = CoordinatorMemory({"tid": held._asdict()}, asked_at)
    history = build_history(1, entries or [ENTRY])
    history.leader_epochs[0] = leader_epoch
    cluster = Cluster(as_of=9, newest_time=9, coordinator=history)
    return judge([log_of([made.facts("__transaction_state", coordinator_memory=memory)], cluster)], RULE)
