"""Many random histories, refused batches forced in, as segments: the audit and what-if say what the model answers.

tests/unit/test_proof_by_bytes.py has a few of each, tests/differential those that Kafka's own classes answered.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from auditor.model.policies import POLICIES
from auditor.rules.catalogue import registry
from tests.bare_broker import BEGAN, broker, finish
from tests.conftest import NIGHTLY
from tests.coordinator_records import Coordinator
from tests.facts import opened
from tests.proof import held_history
from tests.proof.coordinator_cases import APART_MS, Written, write
from tests.proof.failing_coordinator import NAME, Requests
from tests.proof.stored_history import StoredHistory

HISTORIES = int(os.environ.get("PROOF_HISTORIES", "90000" if NIGHTLY else "6000")) // len(POLICIES)  # some 10 ms each
FIRST = int(os.environ.get("PROOF_FROM", "1000"))


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_read_says_what_the_leader_answers(policy: str, tmp_path: Path) -> None:
    answers: Counter[str] = Counter()
    found = []
    for seed in range(FIRST, FIRST + HISTORIES):
        history = StoredHistory(f"seed {seed}", policy, 30)
        found += held_history.differences(history, history.results, tmp_path, answers)
    assert found == []
    assert set(answers) >= held_history.ANSWERS


LOGS, IDS, REQUESTS = 6, 60, 150


def recorded(seed: int) -> list[Written]:
    """What one id leaves in its coordinators' log, appends that failed among it."""
    requests = Requests(random.Random(seed))
    for _ in range(REQUESTS):
        requests.any_one()
    written: list[Written] = []
    last = 0
    for value, epoch, _ in requests.store.log:
        if epoch != last and written:
            written.append(Written("", None, loads=True))
        last = epoch
        told = None if value is None else value._asdict() | {"state": str(value.state)}
        written.append(Written(NAME, told))
    return written


@pytest.mark.parametrize("number", range(LOGS))
def test_a_coordinator_whose_appends_fail_is_accused_of_nothing(number: int, tmp_path: Path) -> None:
    log = Coordinator(broker(tmp_path), 0)
    for one in range(IDS):
        if log.log.all():
            log.load()  # the next id's coordinator is another one
        write(log, f"id-{one}", one, recorded(number * IDS + one))
    finish(log)
    found = opened(tmp_path, as_of=BEGAN + (IDS + 1) * APART_MS).findings
    catalogue = registry.kinds()
    judged = [f for f in found if catalogue[f.kind].family == "coordinator" and not catalogue[f.kind].time]
    assert [(f.kind, f.offset, f.message) for f in judged if f.severity != "info"] == []
    assert any(f.kind == "coordinator-append-failed" for f in judged)
