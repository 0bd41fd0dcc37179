"""Histories with what a leader refuses forced in, as segments: the audit and the what-if say what Kafka 4.1.0 and 2.3.1
answer. Record sets as stored batches: the audit counts and sees what LogValidator of 4.1.0 does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.differential.broker import Broker, needs_kafka, seeds
from tests.differential.record_sets import RecordSets
from tests.proof import held_history, validator_cases
from tests.proof.stored_history import StoredHistory

pytestmark = needs_kafka

# Share of the histories, policy, and the version whose classes decide as the policy says.
HELD = [
    (0.35, "kip-360", "4.1"),
    (0.1, "kip-890-p1", "4.1"),
    (0.25, "kip-890-p2", "4.1"),
    (0.3, "pre-kip-360", "2.3"),
]
SHOWN = 20


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    with Broker(request.param, tmp_path) as one:
        yield one


@pytest.mark.parametrize(("share", "policy", "broker"), HELD, indirect=["broker"])
def test_what_is_read_says_what_the_broker_answers(share: float, policy: str, broker: Broker, tmp_path: Path) -> None:
    answers: Counter[str] = Counter()
    folder = tmp_path / "topic-0"
    folder.mkdir()
    found: list[str] = []
    made = (StoredHistory(f"seed {seed}", policy, 30) for seed in seeds(share))
    for history, results in broker.run(made):
        found += held_history.differences(history, results, folder, answers)
        if len(found) >= SHOWN:
            break
    assert found == [], "\n".join(found)
    assert set(answers) >= held_history.ANSWERS, f"the histories show too little: {answers}"


@pytest.mark.parametrize("broker", ["4.1"], indirect=True)
def test_the_counters_are_those_of_the_broker(broker: Broker, tmp_path: Path) -> None:
    answers: Counter[str] = Counter()
    folder = tmp_path / "topic-0"
    folder.mkdir()
    found: list[str] = []
    for made, results in broker.run(RecordSets(seed) for seed in seeds(0.25)):
        before: dict[str, int] = {}
        for step, result in zip(made.case["steps"], results, strict=True):
            metrics, args, error = result["state"]["metrics"], step["args"], result.get("error")
            counted = {name: count - before.get(name, 0) for name, count in metrics.items()}
            before = metrics
            if not validator_cases.unheld(step["op"], args, error):
                answers[error or "accepted"] += 1
                lines = validator_cases.differences(args, error, counted, folder)
                found += [f"{made.case['id']}: {line}: {step}" for line in lines]
        if len(found) >= SHOWN:
            break
    assert found == [], "\n".join(found)
    assert set(answers) >= {"accepted", "INVALID_RECORD", "CORRUPT_MESSAGE"}, f"they show too little: {answers}"
