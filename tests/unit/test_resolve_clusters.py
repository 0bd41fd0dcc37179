"""One cause, one finding: within a cluster, and whatever the order in which findings come."""

from __future__ import annotations

import itertools

import pytest

from auditor.rules.resolution.resolve import resolve_each
from auditor.rules.seen.view import Finding

CLUSTER_OF = {"a/broker-1": "a", "a/broker-2": "a", "b/broker-1": "b"}


def hanging(log_dir: str, message: str = "hangs") -> list[Finding]:
    """A transaction that hangs, and what of it shows besides."""
    evidence = {"log_dir": log_dir, "confidence": "proved"}
    place = {"topic": "t", "partition": 0, "offset": 5, "producer_id": 1, "producer_epoch": 0}
    return [
        Finding("hanging-transaction", "critical", message=message, evidence=dict(evidence), **place),
        Finding("lso-stuck", "critical", message=f"stuck in {log_dir}", evidence=dict(evidence), **place),
    ]


def shown(found: list[Finding]) -> list[tuple[str, str, list[str]]]:
    return [(f.kind, f.evidence["log_dir"], [one["message"] for one in f.evidence.get("also", ())]) for f in found]


def test_a_cluster_explains_nothing_of_another() -> None:
    """Topics, producers and ids have the same names in many."""
    assert shown(resolve_each([*hanging("a/broker-1"), *hanging("b/broker-1")], CLUSTER_OF)) == [
        ("hanging-transaction", "a/broker-1", ["stuck in a/broker-1"]),
        ("hanging-transaction", "b/broker-1", ["stuck in b/broker-1"]),
    ]
    alone = resolve_each([hanging("a/broker-1")[0], hanging("b/broker-1")[1]], CLUSTER_OF)
    assert [(f.kind, f.evidence["log_dir"]) for f in alone] == [
        ("hanging-transaction", "a/broker-1"), ("lso-stuck", "b/broker-1"),
    ]  # fmt: skip


@pytest.mark.parametrize("order", itertools.permutations(range(4)), ids=str)
def test_findings_may_come_in_any_order(order: tuple[int, ...]) -> None:
    """Processes and Spark's tasks end as they like."""
    found, same = ([*hanging("a/broker-1"), *hanging("a/broker-2", "hangs too")] for _ in range(2))
    assert shown(resolve_each([found[n] for n in order], CLUSTER_OF)) == shown(resolve_each(same, CLUSTER_OF))
