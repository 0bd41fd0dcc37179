"""Records on both sides of a damaged batch are told apart, however many batches of the log are damaged."""

from __future__ import annotations

import random

import numpy as np
import pytest

from auditor.facts.batch_sums import MOST, joined
from auditor.facts.coordinator_log import gaps_before


@pytest.mark.parametrize("count", [1, MOST, 2 * MOST, 5 * MOST])
def test_records_with_a_damaged_batch_between_them_have_different_counts(count: int) -> None:
    dice = random.Random(count)
    damaged = np.array(sorted(dice.sample(range(10 * count), count)), np.int64)
    ranges: list[tuple[int, int]] = []
    for at in range(0, count, 100):  # as a log is read, a chunk at a time
        ranges = joined(ranges, damaged[at : at + 100], damaged[at : at + 100])
    sound = np.setdiff1d(np.arange(10 * count), damaged)
    columns = {"id": np.zeros(len(sound)), "partition": np.zeros(len(sound), np.int32), "offset": sound}
    gaps = gaps_before(columns, {0: ranges})
    between = np.diff(np.searchsorted(damaged, sound)) > 0
    assert between.any()
    assert (np.diff(gaps)[between] != 0).all()
    if count <= MOST:
        assert not np.diff(gaps)[~between].any()
