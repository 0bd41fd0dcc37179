"""Many random histories, refused batches forced in, as segments: the audit and what-if say what the model answers.

tests/unit/test_proof_by_bytes.py has a few of each, tests/differential those that Kafka's own classes answered.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from auditor.model.policies import POLICIES
from tests.proof import held_history
from tests.proof.stored_history import StoredHistory

HISTORIES = int(os.environ.get("PROOF_HISTORIES", "18000")) // len(POLICIES)  # of each policy: some 10 ms each
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
