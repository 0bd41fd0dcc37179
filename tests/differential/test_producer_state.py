"""The producer-state model against ProducerStateManager and ProducerAppendInfo of Kafka 4.1.0 and 2.3.1."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from auditor.connectors.codec.indexes import ProducerEntries, decode_snapshot, encode_snapshot
from tests.conformance.cases import Result
from tests.differential.broker import Broker, needs_kafka, seeds
from tests.differential.histories import History
from tests.differential.partition_histories import LogHistory

pytestmark = needs_kafka

# Share of the histories, policy, and the version whose classes decide as the policy says.
COMPARED = [
    (0.25, "kip-360", "4.1"),
    (0.1, "kip-890-p1", "4.1"),
    (0.3, "kip-890-p2", "4.1"),
    (0.35, "pre-kip-360", "2.3"),
]
WITH_LOG = [(0.1, "kip-360", "4.1"), (0.1, "kip-890-p2", "4.1")]
DECISIONS = {"accepted", "snapshot", "OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH", "INVALID_TXN_STATE"}


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    with Broker(request.param, tmp_path) as one:
        yield one


def same_bytes(ours: list[Any], hexadecimal: str) -> bool:
    """Whether our entries, in the order in which the broker's hash map gave its own, make the very file it wrote."""
    data = bytes.fromhex(hexadecimal)
    order, errors = decode_snapshot(data)
    by_id = {entry.producer_id: entry for entry in ours}
    if errors or sorted(by_id) != sorted(order.producer_id.tolist()):
        return False
    rows = [by_id[producer_id] for producer_id in order.producer_id.tolist()]
    columns = zip(*rows, strict=True) if rows else [[] for _ in ProducerEntries._fields]
    return encode_snapshot(ProducerEntries(*(np.array(column, np.int64) for column in columns))) == data


def difference(ours: Result, theirs: dict[str, Any]) -> str | None:
    """What differs between our answer to a step and the broker's, None if nothing does."""
    returns = dict(ours.returns)
    entries, hexadecimal = returns.pop("entries", None), theirs.get("returns", {}).pop("hex", None)
    pairs = {
        "outcome": (ours.outcome, theirs["outcome"]),
        "error": (ours.error, theirs.get("error")),
        **{key: (returns.get(key), value) for key, value in theirs.get("returns", {}).items()},
        **{key: (ours.state[key], value) for key, value in theirs["state"].items()},
    }
    for what, (our, their) in pairs.items():
        if our != their:
            return f"{what}: ours {our}, the broker's {their} {theirs.get('message', '')}"
    if hexadecimal is not None and not same_bytes(entries or [], hexadecimal):
        return f"snapshot: ours {entries}, the broker's {hexadecimal}"
    return None


def compare(history: History, answers: list[dict[str, Any]]) -> None:
    """Fail at the first step where the model and the broker differ, with the shortest history that shows it."""
    assert len(answers) == len(history.results)
    for number, (ours, theirs) in enumerate(zip(history.results, answers, strict=True)):
        found = difference(ours, theirs)
        if found:
            steps = "\n".join(json.dumps(step) for step in history.case["steps"][: number + 1])
            pytest.fail(f"{history.case['id']}, step {number}: {found}\n{steps}")


def decisions(history: History) -> Iterator[str]:
    """What a history shows: outcomes, errors, and snapshots whose bytes were compared."""
    for result in history.results:
        yield result.error or result.outcome
        if result.returns.get("snapshot_offset") is not None:
            yield "snapshot"


@pytest.mark.parametrize(("share", "policy", "broker"), COMPARED, indirect=["broker"])
def test_the_model_decides_as_the_broker_does(share: float, policy: str, broker: Broker) -> None:
    decided: Counter[str] = Counter()
    for history, answers in broker.run(History(seed, policy) for seed in seeds(share)):
        compare(history, answers)
        decided.update(decisions(history))
    assert set(decided) >= DECISIONS, f"the histories show too little: {decided}"


@pytest.mark.parametrize(("share", "policy", "broker"), WITH_LOG, indirect=["broker"])
def test_the_model_of_a_partition_decides_as_its_log_does(share: float, policy: str, broker: Broker) -> None:
    decided: Counter[str] = Counter()
    for history, answers in broker.run(LogHistory(seed, policy) for seed in seeds(share)):
        compare(history, answers)
        decided.update(decisions(history))
    assert set(decided) >= DECISIONS | {"duplicate"}, f"the histories show too little: {decided}"
