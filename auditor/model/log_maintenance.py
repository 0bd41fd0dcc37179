"""Effect of a broker's log cleaner and retention on a log."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from auditor.model.policies import ReleaseEvidence, Version

# Log cleaner: how far it may clean, the dirty ratio, and whether it starts.
#
# Source: LogCleanerManager.cleanableOffsets, calculateCleanableBytes, maxCompactionDelay and
# grabFilthiestCompactedLog, LogToClean; KIP-58 (min.compaction.lag.ms), KIP-354 (max.compaction.lag.ms, since 2.3).
# Of offsets that overflow a segment: KAFKA-6264, Cleaner.cleanSegments, LocalLog.splitOverflowedSegment,
# LogSegment.append.


ACTIVE, STABLE, LAG = "active_segment", "last_stable_offset", "min_compaction_lag"
RATIO, DELAY = "dirty_ratio", "max_compaction_lag"
SPLITS: Version = (2, 0)


class LogSegment(NamedTuple):
    """A segment: base offset, size in bytes, largest timestamp of its batches and that of its first one (ms, -1: none).

    Retention does not need the first one.
    """

    base: int
    size: int
    largest_time: int
    first_time: int = -1


class CleaningSettings(NamedTuple):
    """Settings of a compacted topic: ms, and a ratio."""

    min_ratio: float
    min_lag_ms: int = 0
    max_lag_ms: int = (1 << 63) - 1


class CleanerState(NamedTuple):
    """State of a log for its cleaner.

    ``first_dirty``: where cleaning would begin; ``reset``: the checkpoint is outside the log, so that all of it is
    dirty. ``first_uncleanable``: the segment at which it would end, because of ``because``; ``held_segment``: with
    :data:`LAG`, the segment's number. ``ratio`` is compared with ``min.cleanable.dirty.ratio``. ``due``: why it would
    be cleaned now, empty if it would not.
    """

    first_dirty: int
    reset: bool
    first_uncleanable: int
    because: str
    held_segment: int
    clean_bytes: int
    cleanable_bytes: int
    ratio: float
    due: str


def cleaner_state(
    segments: Sequence[LogSegment],
    log_start: int,
    log_end: int,
    stable: int,
    checkpoint: int | None,
    rules: CleaningSettings,
    now_ms: int,
) -> CleanerState:
    """Return the cleaner state of a log with at least one segment.

    ``stable``: its last stable offset, not above the high watermark.
    """
    bases = [segment.base for segment in segments]
    active = segments[-1]
    dirty = log_start if checkpoint is None else checkpoint
    reset = not log_start <= dirty <= log_end
    dirty = log_start if reset else dirty
    begin = 0 if dirty < bases[0] else bisect_right(bases, dirty) - 1  # the segment that has the first dirty offset
    not_active = range(begin, len(segments) - 1) if dirty <= active.base else range(0)
    limit, because, lagging = min((stable, STABLE, -1), (active.base, ACTIVE, -1))
    if rules.min_lag_ms > 0:
        young = (k for k in not_active if segments[k].largest_time > now_ms - rules.min_lag_ms)
        if (first := next(young, -1)) >= 0 and bases[first] < limit:
            limit, because, lagging = bases[first], LAG, first
    limit = max(dirty, limit)
    end = len(segments) - 1 if limit >= active.base else max(0, bisect_right(bases, limit) - 1)
    low = max(0, bisect_right(bases, min(dirty, bases[end])) - 1)
    clean = sum(segment.size for segment in segments if segment.base < dirty)
    cleanable = sum(segment.size for segment in segments[low:end])
    ratio = cleanable / (clean + cleanable) if clean + cleanable else 0.0
    late = any(0 < segments[k].first_time < now_ms - max(rules.max_lag_ms, 0) for k in not_active)
    due = DELAY if late and cleanable else RATIO if ratio > rules.min_ratio else ""
    return CleanerState(
        first_dirty=dirty,
        reset=reset,
        first_uncleanable=bases[end],
        because=because,
        held_segment=lagging,
        clean_bytes=clean,
        cleanable_bytes=cleanable,
        ratio=ratio,
        due=due,
    )


def splits(shown: ReleaseEvidence) -> bool | None:
    """Whether a broker's cleaner survives a segment whose offsets overflow its indexes; None for an unknown release.

    Since 2.0 it ends its pass, splits the segment and starts over; before that its thread died (KAFKA-6264).
    """
    if shown.least >= SPLITS:
        return True
    return False if shown.below is not None and shown.below <= SPLITS else None


# Retention: what becomes of each segment at the next check, and what keeps those that stay.
#
# Source: UnifiedLog.deleteOldSegments, deletableSegments, deleteRetentionMsBreachedSegments,
# deleteRetentionSizeBreachedSegments and deleteLogStartOffsetBreachedSegments, LogSegment.largestTimestamp (Log of
# releases before 3.0 does the same since 0.11); KIP-405 for local.retention.*.


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


class RetentionSettings(NamedTuple):
    """Retention settings: whether the policy deletes, ms and bytes, negative for no limit.

    ``remote_to``: the highest offset in remote storage, of a tiered log; None for any other. ``ahead_ms``: how far a
    timestamp may exceed the time of the check without being in the future, since clocks differ.
    """

    deletes: bool
    ms: int
    size: int
    remote_to: int | None = None
    ahead_ms: int = 0


class RetentionVerdict(NamedTuple):
    """What becomes of a segment.

    ``goes``: why it is deleted at the next check, empty if it stays. ``by``: what keeps it; ``at``: with :data:`OLDER`,
    the number of the segment in front of it that stays; ``until`` (ms): when its age allows deletion if nothing more is
    written, -1 for never or unknown.
    """

    goes: str
    by: str = ""
    at: int = -1
    until: int = -1


def retention_verdicts(
    segments: Sequence[LogSegment],
    log_start: int,
    log_end: int,
    watermark: int,
    rules: RetentionSettings,
    now_ms: int,
) -> list[RetentionVerdict]:
    """Return what becomes of each segment at a check at ``now_ms``, in the order in which a broker checks them."""
    bounds = [segment.base for segment in segments[1:]] + [log_end]
    barred = [_barred(segments, bounds, k, log_start, watermark, rules) for k in range(len(segments))]
    gone = _deleted_until(segments, 0, barred, lambda k: k + 1 < len(segments) and bounds[k] <= log_start)
    verdicts = [RetentionVerdict(START)] * gone
    if rules.deletes and rules.size >= 0:
        left = sum(segment.size for segment in segments[gone:]) - rules.size
        while gone < len(segments) and not barred[gone] and left - segments[gone].size >= 0:
            left -= segments[gone].size
            gone += 1
        verdicts += [RetentionVerdict(SIZE)] * (gone - len(verdicts))
    if rules.deletes and rules.ms >= 0:
        gone = _deleted_until(segments, gone, barred, lambda k: _is_old(segments[k], rules, now_ms))
        verdicts += [RetentionVerdict(TIME)] * (gone - len(verdicts))
    return verdicts + _kept_segments(segments, gone, barred, rules, now_ms)


def _is_old(segment: LogSegment, rules: RetentionSettings, now_ms: int) -> bool:
    return segment.largest_time >= 0 and now_ms - segment.largest_time > rules.ms


def _deleted_until(segments: Sequence[LogSegment], first: int, barred: list[str], breached: object) -> int:
    """End of the run of segments from ``first`` on that are deleted one after the other."""
    assert callable(breached)
    while first < len(segments) and not barred[first] and breached(first):
        first += 1
    return first


def _barred(
    segments: Sequence[LogSegment],
    bounds: list[int],
    k: int,
    log_start: int,
    watermark: int,
    rules: RetentionSettings,
) -> str:
    """What keeps a segment whatever its age and the log's size; empty if nothing does."""
    if k + 1 == len(segments) and not segments[k].size:
        return EMPTY
    if watermark < bounds[k]:
        return WATERMARK
    freed = k + 1 < len(segments) and log_start >= bounds[k]
    if rules.remote_to is not None and not freed and not 0 < bounds[k] <= rules.remote_to + 1:
        return NOT_REMOTE
    return ""


def _kept_segments(
    segments: Sequence[LogSegment], first: int, barred: list[str], rules: RetentionSettings, now_ms: int
) -> list[RetentionVerdict]:
    """What keeps each segment that stays: itself, or the one in front of it that is deleted last."""
    verdicts: list[RetentionVerdict] = []
    latest, front = -1, -1  # when the last of those in front goes, and which that is
    for k in range(first, len(segments)):
        by, until = _by_itself(segments[k], barred[k], rules, now_ms)
        if front >= 0 and 0 <= until < latest:
            verdicts.append(RetentionVerdict("", OLDER, front, -1 if latest == LATEST else latest))
        else:
            verdicts.append(RetentionVerdict("", by, -1, until))
            if by != EMPTY:
                latest, front = (LATEST if until < 0 else until), k
    return verdicts


def _by_itself(segment: LogSegment, barred: str, rules: RetentionSettings, now_ms: int) -> tuple[str, int]:
    """What keeps a segment that has none in front of it, and until when (ms); -1: not by time."""
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
