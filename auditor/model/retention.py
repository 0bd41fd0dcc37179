"""What a broker's retention would do with each segment of a log next, and what keeps those that stay.

Source: UnifiedLog.deleteOldSegments, deletableSegments, deleteRetentionMsBreachedSegments,
deleteRetentionSizeBreachedSegments and deleteLogStartOffsetBreachedSegments, LogSegment.largestTimestamp (Log of
releases before 3.0 does the same since 0.11); KIP-405 for local.retention.*.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# Why a segment goes at the next check.
START, SIZE, TIME = "log_start_offset", "retention_bytes", "retention_ms"
# What keeps it.
YOUNG, FUTURE, BELOW, OLDER = "not_old_enough", "timestamp_in_the_future", "size_below_limit", "older_segment"
WATERMARK, NOT_REMOTE, COMPACTION, OFF, EMPTY = (
    "high_watermark",
    "not_in_remote_storage",
    "cleanup_policy",
    "retention_off",
    "empty",
)
UNDATED = "no_timestamps"  # the broker goes by the file's time of change
LATEST = (1 << 63) - 1


class Segment(NamedTuple):
    """A segment: its base offset, its bytes, the largest timestamp of its batches (ms, -1: none)."""

    base: int
    size: int
    largest_time: int


class Rules(NamedTuple):
    """What a log is kept by: whether its policy deletes, ms and bytes, negative for no limit. ``remote_to``: the
    highest offset in remote storage, of a log whose segments go there first; None for any other. ``ahead_ms``: how far
    behind the check a timestamp may lie and be no time of the future: clocks differ."""

    deletes: bool
    ms: int
    size: int
    remote_to: int | None = None
    ahead_ms: int = 0


class Kept(NamedTuple):
    """What becomes of a segment. ``goes``: why it goes at the next check, empty where it stays. ``by``: what keeps it,
    ``at``: of :data:`OLDER`, the number of the segment that stands in front; ``until`` (ms) when time lets it go if
    nothing is written any more, -1 for never or not known."""

    goes: str
    by: str = ""
    at: int = -1
    until: int = -1


def kept(
    segments: Sequence[Segment], log_start: int, log_end: int, watermark: int, rules: Rules, now_ms: int
) -> list[Kept]:
    """What becomes of each segment at a check at ``now_ms``, one after the other as a broker looks at them."""
    bounds = [segment.base for segment in segments[1:]] + [log_end]
    barred = [_barred(segments, bounds, k, log_start, watermark, rules) for k in range(len(segments))]
    gone = _taken(segments, 0, barred, lambda k: k + 1 < len(segments) and bounds[k] <= log_start)
    found = [Kept(START)] * gone
    if rules.deletes and rules.size >= 0:
        left = sum(segment.size for segment in segments[gone:]) - rules.size
        while gone < len(segments) and not barred[gone] and left - segments[gone].size >= 0:
            left -= segments[gone].size
            gone += 1
        found += [Kept(SIZE)] * (gone - len(found))
    if rules.deletes and rules.ms >= 0:
        gone = _taken(segments, gone, barred, lambda k: _is_old(segments[k], rules, now_ms))
        found += [Kept(TIME)] * (gone - len(found))
    return found + _staying(segments, gone, barred, rules, now_ms)


def _is_old(segment: Segment, rules: Rules, now_ms: int) -> bool:
    return segment.largest_time >= 0 and now_ms - segment.largest_time > rules.ms


def _taken(segments: Sequence[Segment], first: int, barred: list[str], breached: object) -> int:
    """Behind the last of the segments, from ``first`` on, that go one after the other."""
    assert callable(breached)
    while first < len(segments) and not barred[first] and breached(first):
        first += 1
    return first


def _barred(
    segments: Sequence[Segment], bounds: list[int], k: int, log_start: int, watermark: int, rules: Rules
) -> str:
    """What keeps a segment whatever its age and the log's size; empty where nothing does."""
    if k + 1 == len(segments) and not segments[k].size:
        return EMPTY
    if watermark < bounds[k]:
        return WATERMARK
    freed = k + 1 < len(segments) and log_start >= bounds[k]
    if rules.remote_to is not None and not freed and not 0 < bounds[k] <= rules.remote_to + 1:
        return NOT_REMOTE
    return ""


def _staying(segments: Sequence[Segment], first: int, barred: list[str], rules: Rules, now_ms: int) -> list[Kept]:
    """What keeps the segments that stay: each itself, or the one in front of it that goes last."""
    found: list[Kept] = []
    latest, front = -1, -1  # when the last of those in front goes, and which that is
    for k in range(first, len(segments)):
        by, until = _by_itself(segments[k], barred[k], rules, now_ms)
        if front >= 0 and 0 <= until < latest:
            found.append(Kept("", OLDER, front, -1 if latest == LATEST else latest))
        else:
            found.append(Kept("", by, -1, until))
            if by != EMPTY:
                latest, front = (LATEST if until < 0 else until), k
    return found


def _by_itself(segment: Segment, barred: str, rules: Rules, now_ms: int) -> tuple[str, int]:
    """What keeps a segment that has none in front of it, and until when (ms), -1: not by time."""
    if barred:
        return barred, -1
    if not rules.deletes:
        return COMPACTION, -1
    if rules.ms < 0:
        return (BELOW if rules.size >= 0 else OFF), -1
    if segment.largest_time < 0:
        return UNDATED, -1
    until = segment.largest_time + rules.ms + 1
    return (FUTURE if segment.largest_time > now_ms + rules.ahead_ms else YOUNG), until
