"""Histories with what a leader refuses forced in, as segments: the audit and the what-if say what the model answers.

Without a JVM: the reference model's classes stand for a broker. tests/differential asks Kafka's own.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from auditor.model.policies import POLICIES
from tests.proof import held_history
from tests.proof.stored_history import ACCEPTED, MAX_SEQUENCE, StoredHistory, scripted

HISTORIES = 150  # of each policy

OVERLAP_THEN_RETRIES = [(0, 6), (6, 8), (9, 10), (11, 12), (9, 10), (11, 12), (13, 14)]
RETRY_BEYOND_THE_CACHE = [(0, 6), (6, 8), *((k, k + 1) for k in range(9, 31, 2)), (7, 8), (9, 10)]

# What a million further ones found.
FOUND = [
    ("kip-890-p1", 11028286), ("kip-890-p1", 10264026), ("kip-890-p2", 11061041), ("kip-890-p2", 10124869),
    ("kip-890-p2", 11220005), ("kip-890-p2", 11250491), ("kip-360", 10182652), ("kip-360-text", 10208091),
    ("pre-kip-360", 11270418),
]  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_read_says_what_the_leader_answers(policy: str, tmp_path: Path) -> None:
    answers: Counter[str] = Counter()
    found = []
    for seed in range(HISTORIES):
        history = StoredHistory(f"seed {seed}", policy, 30)
        found += held_history.differences(history, history.results, tmp_path, answers)
    assert set(answers) >= held_history.ANSWERS, f"the histories show too little: {answers}"
    assert found == []


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("ranges", [OVERLAP_THEN_RETRIES, RETRY_BEYOND_THE_CACHE], ids=["retries", "beyond-the-cache"])
def test_the_logs_behind_which_the_run_was_lost(policy: str, ranges: list[tuple[int, int]], tmp_path: Path) -> None:
    history = scripted("issue 30", policy, *ranges)
    assert held_history.differences(history, history.results, tmp_path, Counter()) == []


@pytest.mark.parametrize(("policy", "seed"), FOUND)
def test_histories_that_said_something_else_once(policy: str, seed: int, tmp_path: Path) -> None:
    history = StoredHistory(f"seed {seed}", policy, 30)
    assert held_history.differences(history, history.results, tmp_path, Counter()) == []


def test_a_first_batch_that_goes_on_from_a_forced_one_and_was_stored_before(tmp_path: Path) -> None:
    history = scripted("same bytes", "latest-batch-only", (0, 0), (MAX_SEQUENCE, MAX_SEQUENCE), (0, 0))
    history.log_start = 2
    answers: Counter[str] = Counter()
    assert held_history.differences(history, history.results, tmp_path, answers) == []
    assert answers == {"DUPLICATE_SEQUENCE_NUMBER": 1, ACCEPTED: 2}
