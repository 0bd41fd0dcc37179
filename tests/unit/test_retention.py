"""What retention does with segments: small logs, worked out by hand from what UnifiedLog does."""

from __future__ import annotations

import pytest

from auditor.model.log_maintenance import (
    BELOW,
    COMPACTION,
    EMPTY,
    FUTURE,
    NOT_REMOTE,
    OFF,
    OLDER,
    SIZE,
    START,
    TIME,
    UNDATED,
    WATERMARK,
    YOUNG,
    LogSegment,
    RetentionSettings,
    RetentionVerdict,
    retention_verdicts,
)

NOW = 10_000
LOG = [
    LogSegment(0, 100, 1_000),
    LogSegment(10, 100, 2_000),
    LogSegment(20, 100, 3_000),
    LogSegment(30, 50, 4_000),
]


def said(
    segments: list[LogSegment], rules: RetentionSettings, *, start: int = 0, watermark: int = 40, now: int = NOW
) -> list[RetentionVerdict]:
    return retention_verdicts(segments, start, 40, watermark, rules, now)


def test_segments_go_by_their_largest_timestamp_and_the_active_one_too() -> None:
    """A breach is strict: exactly retention.ms old stays."""
    found = said(LOG, RetentionSettings(True, 7_000, -1))
    assert [k.goes for k in found] == [TIME, TIME, "", ""]
    assert found[2] == RetentionVerdict("", YOUNG, -1, 10_001)
    assert found[3] == RetentionVerdict("", YOUNG, -1, 11_001)
    assert [k.goes for k in said(LOG, RetentionSettings(True, 100, -1))] == [TIME] * 4


def test_deletion_stops_at_the_first_that_may_not_go() -> None:
    """A batch of the future in the first segment keeps all behind it."""
    ahead = [LOG[0]._replace(largest_time=99_000), *LOG[1:]]
    found = said(ahead, RetentionSettings(True, 1_000, -1))
    assert found[0] == RetentionVerdict("", FUTURE, -1, 100_001)
    assert found[1:] == [RetentionVerdict("", OLDER, 0, 100_001)] * 3


@pytest.mark.parametrize(
    ("limit", "gone"), [(350, 0), (349, 0), (251, 0), (250, 1), (151, 1), (150, 2), (50, 3), (0, 4)]
)
def test_bytes_go_while_the_log_stays_at_or_above_its_limit(limit: int, gone: int) -> None:
    found = said(LOG, RetentionSettings(True, -1, limit))
    assert [k.goes for k in found] == [SIZE] * gone + [""] * (4 - gone)
    assert {k.by for k in found[gone:]} <= {BELOW}


def test_what_lies_below_the_log_start_goes_whatever_the_policy() -> None:
    for deletes in (True, False):
        found = said(LOG, RetentionSettings(deletes, -1, -1), start=20)
        assert [k.goes for k in found] == [START, START, "", ""]
        assert {k.by for k in found[2:]} == {OFF if deletes else COMPACTION}


def test_nothing_goes_at_or_above_the_high_watermark() -> None:
    found = said(LOG, RetentionSettings(True, 100, -1), watermark=25)
    assert [k.goes for k in found] == [TIME, TIME, "", ""]
    assert [k.by for k in found[2:]] == [WATERMARK, WATERMARK]


def test_a_tiered_log_waits_for_the_copy() -> None:
    found = said(LOG, RetentionSettings(True, 100, -1, remote_to=9))
    assert [k.goes for k in found] == [TIME, "", "", ""]
    assert found[1].by == NOT_REMOTE


def test_an_empty_active_segment_stays_and_holds_nothing() -> None:
    found = said([*LOG[:2], LogSegment(40, 0, -1)], RetentionSettings(True, 100, -1))
    assert [k.goes for k in found] == [TIME, TIME, ""]
    assert found[2].by == EMPTY


def test_without_timestamps_the_file_decides() -> None:
    found = said([LOG[0]._replace(largest_time=-1), *LOG[1:]], RetentionSettings(True, 100, -1))
    assert found[0].by == UNDATED
    assert not any(k.goes for k in found)
