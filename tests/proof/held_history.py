"""A history held against the log that it leaves: what an audit of its segments says and should not, or does not say."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from auditor.model.policies import POLICIES
from tests.forge import Producer, snapshot
from tests.proof import segment_files
from tests.proof.expected_events import Comparison
from tests.proof.stored_history import ACCEPTED, StoredHistory, answer
from tests.reference.snapshots import SnapshotEntry

# What histories have to show, each policy what its brokers answer.
ANSWERS = {
    ACCEPTED, "duplicate", "OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH", "INVALID_TXN_STATE",
    "TRANSACTION_COORDINATOR_FENCED",
}  # fmt: skip


def snapshot_of(entries: list[SnapshotEntry]) -> bytes:
    """A snapshot file as a broker writes it, but for the order of its producers."""
    return snapshot([Producer(*entry) for entry in entries])


def differences(history: StoredHistory, results: list[Any], folder: Path, answers: Counter[str]) -> list[str]:
    """A line for each batch of which audit or what-if do not say what they have to, by a broker's ``results``.

    ``answers`` counts what the broker said. Half of the logs have their snapshots: the broker's own where it gave them.
    """
    if not history.log:
        return []
    policy = history.case["policy"]
    snapshots = {}
    for roll in history.rolls if history.chance(0.5) else ():
        returns = {} if results is history.results else results[roll.step]["returns"]
        snapshots[roll.offset] = bytes.fromhex(returns["hex"]) if "hex" in returns else snapshot_of(roll.entries)
    facts = segment_files.read(
        folder, history.log, policy, rolls=[roll.offset for roll in history.rolls], snapshots=snapshots,
        log_start=history.log_start or None,
    )  # fmt: skip
    said = [answer(stored, results) for stored in history.log]
    answers.update(said)
    if said != (modelled := [answer(stored, history.results) for stored in history.log]):
        return [
            f"{history.case['id']}: the broker says {said}, the model {modelled}"
        ]  # and was not forced where it had to
    compared = Comparison(history.log, said, history.log_start, evicts=POLICIES[policy].evicts_below_log_start)
    return [f"{history.case['id']}, offset {line}" for line in compared.differences(facts, policy)]
