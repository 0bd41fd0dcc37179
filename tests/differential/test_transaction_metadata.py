"""The model of one transactional id against the coordinator's TransactionMetadata of Kafka 4.1.0."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.cases import Result
from tests.conformance.coordinator_adapter import CoordinatorModel, run_model
from tests.differential.broker import Broker, needs_kafka, seeds

pytestmark = needs_kafka

ID = "t"
START = 1_700_000_000_000
NONE = -1
# What a coordinator usually does next in a state; anything else is tried now and then.
USUAL = {
    "Empty": ("prepare_increment_epoch", "prepare_add_partitions", "prepare_rotation"),
    "Ongoing": ("prepare_add_partitions", "prepare_end", "prepare_end", "prepare_fence"),
    "PrepareCommit": ("prepare_complete",),
    "PrepareAbort": ("prepare_complete",),
    "CompleteCommit": ("prepare_add_partitions", "prepare_increment_epoch"),
    "CompleteAbort": ("prepare_add_partitions", "prepare_increment_epoch"),
}
IDLE = ("Empty", "CompleteCommit", "CompleteAbort")
ALL = sorted({op for ops in USUAL.values() for op in ops} | {"clear_pending", "complete_transition"})
SHOWN = {"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"}


def initial(chosen: random.Random) -> dict[str, Any]:
    """An id that is known already, or (epoch -1) one that was just made."""
    epoch = chosen.choice((NONE, 0, 7, 32_764, 32_765, 32_766))
    names = ("previous_producer_id", "next_producer_id", "last_producer_epoch", "start_ts")
    known = {"producer_id": 10, "producer_epoch": epoch, "timeout_ms": 30_000, "state": "Empty", "partitions": []}
    return {**known, **dict.fromkeys(names, NONE), "last_update_ts": START, "client_tv": 0}


def arguments(chosen: random.Random, op: str, known: dict[str, Any], now: int, tv: int) -> dict[str, Any]:
    """The arguments of an operation, most of them such as the present state of the id asks for."""
    near = (None, known["producer_epoch"], known["last_producer_epoch"], known["producer_epoch"] - 1, 3)
    expected = chosen.choice(near[:2] if tv else near)
    # Since 4.0 what was never begun may be aborted; the policies follow the trunk before.
    state = "PrepareCommit" if known["state"] in IDLE else chosen.choice(("PrepareCommit", "PrepareAbort"))
    tv = tv if known["producer_epoch"] < 32_767 else 0
    successor = 77 if tv and known["producer_epoch"] >= 32_766 else NONE
    own: dict[str, dict[str, Any]] = {
        "prepare_increment_epoch": {
            "timeout_ms": chosen.choice((30_000, 60_000)),
            "expected_epoch": expected,
        },
        "prepare_rotation": {"new_producer_id": 11, "timeout_ms": 30_000, "record_last_epoch": chosen.random() < 0.5},
        "prepare_add_partitions": {"partitions": chosen.sample(("a-0", "a-1", "b-0"), chosen.randint(1, 3))},
        "prepare_end": {"state": state, "client_tv": tv, "next_producer_id": successor},
    }
    return {"transactional_id": ID, "now": now, **own.get(op, {})}


class IdHistory:
    """A case of one id, and the model's answers to its steps."""

    def __init__(self, seed: int, tv: int) -> None:
        chosen = random.Random(f"transaction.version {tv} {seed}")
        self.case: dict[str, Any] = {
            "id": f"transaction.version {tv} seed {seed}",
            "model": "coordinator",
            "policy": "kip-890-p2",
            "initial": {"txns": {ID: initial(chosen)}},
            "steps": [],
        }
        model: CoordinatorModel = run_model(self.case)
        now = START
        self.results: list[Result] = []
        known = model.state()["txns"][ID]
        for _ in range(30):
            now += chosen.choice((1, 1_000, -500))
            op = operation(chosen, known)
            args = arguments(chosen, op, known, now, tv)
            self.case["steps"].append({"op": op, "args": args})
            self.results.append(model.apply(op, args))
            known = self.results[-1].state["txns"][ID]


def operation(chosen: random.Random, known: dict[str, Any]) -> str:
    """What a coordinator would mostly do next with the id, now and then anything.

    It gives an id a new producer id only where no epoch is left (TransactionCoordinator.prepareInitProducerIdTransit);
    the method does not ask.
    """
    ops = ALL if chosen.random() < 0.1 else ()
    if not ops and known["pending_state"] is None:
        ops = USUAL[known["state"]]
    if not ops:
        return "complete_transition" if known["pending_state"] != "PrepareEpochFence" else "clear_pending"
    op = chosen.choice(ops)
    has_epochs = known["producer_epoch"] < 32_766
    return "prepare_increment_epoch" if op == "prepare_rotation" and has_epochs else op


def comparable(value: dict[str, Any], tv: int) -> dict[str, Any]:
    """What both say of an id. In Empty, 4.1.0 forgets when the last transaction began, but not under which version.

    Under version 2 it keeps the epoch before the bump as the last one at completion, where the trunk of October 2024,
    which the policies follow, takes the bumped one.
    """
    forgotten = ("start_ts", "client_tv") if value.get("state") == "Empty" else ()
    return {key: one for key, one in value.items() if key not in forgotten + ("last_producer_epoch",) * (tv == 2)}


def reported(
    outcome: str, error: str | None, returns: dict[str, Any], state: dict[str, Any], tv: int
) -> tuple[Any, ...]:
    return outcome, error, comparable(returns, tv), comparable(state["txns"][ID], tv)


@pytest.mark.parametrize("tv", [0, 2])
def test_the_model_of_an_id_moves_as_the_coordinator_does(tv: int, tmp_path: Path) -> None:
    states: Counter[str] = Counter()
    with Broker("4.1", tmp_path) as broker:
        for history, answers in broker.run(IdHistory(seed, tv) for seed in seeds(0.5)):
            for number, (ours, theirs) in enumerate(zip(history.results, answers, strict=True)):
                states[ours.state["txns"][ID]["state"]] += 1
                our = reported(ours.outcome, ours.error, ours.returns, ours.state, tv)
                their = reported(theirs["outcome"], theirs.get("error"), theirs.get("returns", {}), theirs["state"], tv)
                done = history.case["steps"][: number + 1]
                assert our == their, f"{history.case}: {theirs.get('message', '')}\n{done}"
    assert set(states) == SHOWN
