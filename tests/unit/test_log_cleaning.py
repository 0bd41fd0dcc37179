"""Where a log cleaner stands: the cases of Kafka's LogCleanerManagerTest and arithmetic over small logs."""

from __future__ import annotations

import pytest

from auditor.model.log_maintenance import (
    ACTIVE,
    DELAY,
    LAG,
    RATIO,
    STABLE,
    CleaningSettings,
    LogSegment,
    cleaner_state,
)

NOW = 1_000_000
# Ten offsets a segment, of 100 bytes but for the third one; the last one is active.
LOG = [
    LogSegment(0, 100, 100, 90),
    LogSegment(10, 100, 200, 190),
    LogSegment(20, 300, 300, 290),
    LogSegment(30, 100, 400, 390),
]
EASY = CleaningSettings(0.5)


@pytest.mark.parametrize(
    ("checkpoint", "clean", "cleanable", "dirty"),
    [(None, 0, 500, 0), (10, 100, 400, 10), (20, 200, 300, 20), (30, 500, 0, 30), (15, 200, 400, 15)],
)
def test_bytes_are_those_of_whole_segments(checkpoint: int | None, clean: int, cleanable: int, dirty: int) -> None:
    """A checkpoint inside a segment counts it twice, as LogToClean does."""
    found = cleaner_state(LOG, 0, 40, 40, checkpoint, EASY, NOW)
    assert (found.clean_bytes, found.cleanable_bytes, found.first_dirty) == (clean, cleanable, dirty)
    assert found.ratio == cleanable / (clean + cleanable)
    assert (found.first_uncleanable, found.because) == (30, ACTIVE)
    assert found.due == (RATIO if found.ratio > 0.5 else "")


@pytest.mark.parametrize(("start", "checkpoint"), [(12, 5), (0, 41)])
def test_a_checkpoint_outside_of_the_log_counts_for_nothing(start: int, checkpoint: int) -> None:
    """testLogsWithSegmentsToDeleteShouldNotConsiderCheckpointed..., testCleanableOffsetsForInvalidCheckpoint."""
    found = cleaner_state(LOG, start, 40, 40, checkpoint, EASY, NOW)
    assert (found.reset, found.first_dirty) == (True, start)


@pytest.mark.parametrize(("stable", "limit"), [(25, 20), (20, 20), (19, 10), (3, 0)])
def test_an_open_transaction_keeps_its_segment_and_what_lies_behind(stable: int, limit: int) -> None:
    """testUndecidedTransactionalDataNotCleanable."""
    found = cleaner_state(LOG, 0, 40, stable, None, EASY, NOW)
    assert (found.first_uncleanable, found.because) == (limit, STABLE)
    assert found.cleanable_bytes == sum(s.size for s in LOG if s.base < limit)


def test_min_compaction_lag_keeps_the_first_young_segment_and_what_lies_behind() -> None:
    """testCleanableOffsetsForTime: by the largest timestamp, that of a batch written ahead of time, too."""
    assert cleaner_state(LOG, 0, 40, 40, None, CleaningSettings(0.5, 250), 500).first_uncleanable == 20
    ahead = [LOG[0], LOG[1]._replace(largest_time=9_000), *LOG[2:]]
    found = cleaner_state(ahead, 0, 40, 40, None, CleaningSettings(0.5, 250), 600)
    assert (found.first_uncleanable, found.because, found.held_segment) == (10, LAG, 1)
    assert cleaner_state(LOG, 0, 40, 40, None, CleaningSettings(0.5, 250), 700).because == ACTIVE


def test_max_compaction_lag_makes_due_what_is_not_dirty_enough() -> None:
    rules = CleaningSettings(0.9, 0, 500)
    assert cleaner_state(LOG, 0, 40, 40, 20, rules, 700).due == ""
    assert cleaner_state(LOG, 0, 40, 40, 20, rules, 791).due == DELAY
    assert cleaner_state(LOG, 0, 40, 40, 30, rules, NOW).due == ""  # nothing that could be cleaned


def test_a_log_of_one_segment_has_nothing_to_clean() -> None:
    found = cleaner_state(LOG[:1], 0, 10, 10, None, EASY, NOW)
    assert (found.cleanable_bytes, found.ratio, found.due, found.first_uncleanable) == (0, 0.0, "", 0)
