"""The validator model against LogValidator of Kafka 4.1.0."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.conformance.validator_adapter import run_model
from tests.differential import record_sets
from tests.differential.broker import Broker, needs_kafka, seeds

pytestmark = needs_kafka

REFUSALS = {"INVALID_RECORD", "INVALID_TIMESTAMP", "CORRUPT_MESSAGE", "UNSUPPORTED_FOR_MESSAGE_FORMAT"}


def test_the_model_validates_as_the_broker_does(tmp_path: Path) -> None:
    decided: Counter[str] = Counter()
    with Broker("4.1", tmp_path) as broker:
        for asked, answers in broker.run(record_sets.RecordSets(seed) for seed in seeds(0.25)):
            case = asked.case
            model = run_model(case)
            for step, theirs in zip(case["steps"], answers, strict=True):
                ours = model.apply(step["op"], step["args"])
                decided[ours.error or ours.outcome] += 1
                reported = {key: ours.returns.get(key) for key in theirs.get("returns", {})}
                culprits = [error["index"] for error in ours.state["record_errors"]] if ours.error else []
                metrics = {name: count for name, count in ours.state["metrics"].items() if count}
                our = (ours.outcome, ours.error, reported, culprits, metrics)
                answered = (theirs["outcome"], theirs.get("error"), theirs.get("returns", {}))
                their = (*answered, theirs["state"]["record_errors"], theirs["state"]["metrics"])
                assert our == their, f"{case['id']}: {json.dumps(step)}\n{theirs.get('message', '')}"
    assert set(decided) >= {"accepted", *REFUSALS}, f"the record sets show too little: {decided}"
