"""What a broker's log cleaner would do with a log next: how far it may go, how dirty it finds it, whether it starts.

Source: LogCleanerManager.cleanableOffsets, calculateCleanableBytes, maxCompactionDelay and grabFilthiestCompactedLog,
LogToClean; KIP-58 (min.compaction.lag.ms), KIP-354 (max.compaction.lag.ms, since 2.3). Of offsets that overflow a
segment: KAFKA-6264, Cleaner.cleanSegments, LocalLog.splitOverflowedSegment, LogSegment.append.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from auditor.model.releases import Shown, Version

ACTIVE, STABLE, LAG = "active_segment", "last_stable_offset", "min_compaction_lag"
RATIO, DELAY = "dirty_ratio", "max_compaction_lag"
SPLITS: Version = (2, 0)


class Segment(NamedTuple):
    """A segment: its base offset, its bytes, the largest timestamp of its batches and that of its first one (ms)."""

    base: int
    size: int
    largest_time: int
    first_time: int


class Rules(NamedTuple):
    """The settings of a compacted topic; ms, and a ratio."""

    min_ratio: float
    min_lag_ms: int = 0
    max_lag_ms: int = (1 << 63) - 1


class Standing(NamedTuple):
    """How a log stands for its cleaner.

    ``first_dirty``: where cleaning would begin; ``reset``: the checkpoint is outside of the log, so that all of it is
    dirty. ``first_uncleanable``: the segment at which it would end, kept back by ``because``; ``held_segment``: of
    :data:`LAG`, its number. ``ratio`` is what ``min.cleanable.dirty.ratio`` is compared with. ``due``: why it would be
    cleaned now, empty where it would not.
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


def standing(
    segments: Sequence[Segment],
    log_start: int,
    log_end: int,
    stable: int,
    checkpoint: int | None,
    rules: Rules,
    now_ms: int,
) -> Standing:
    """How a log with at least one segment stands. ``stable``: its last stable offset, not above the high watermark."""
    bases = [segment.base for segment in segments]
    active = segments[-1]
    dirty = log_start if checkpoint is None else checkpoint
    reset = not log_start <= dirty <= log_end
    dirty = log_start if reset else dirty
    begin = 0 if dirty < bases[0] else bisect_right(bases, dirty) - 1  # the segment that has the first dirty offset
    not_active = range(begin, len(segments) - 1) if dirty <= active.base else range(0)
    limit, because, held = min((stable, STABLE, -1), (active.base, ACTIVE, -1))
    if rules.min_lag_ms > 0:
        young = (k for k in not_active if segments[k].largest_time > now_ms - rules.min_lag_ms)
        if (first := next(young, -1)) >= 0 and bases[first] < limit:
            limit, because, held = bases[first], LAG, first
    limit = max(dirty, limit)
    at = len(segments) - 1 if limit >= active.base else max(0, bisect_right(bases, limit) - 1)
    low = max(0, bisect_right(bases, min(dirty, bases[at])) - 1)
    clean = sum(segment.size for segment in segments if segment.base < dirty)
    cleanable = sum(segment.size for segment in segments[low:at])
    ratio = cleanable / (clean + cleanable) if clean + cleanable else 0.0
    late = any(0 < segments[k].first_time < now_ms - max(rules.max_lag_ms, 0) for k in not_active)
    due = DELAY if late and cleanable else RATIO if ratio > rules.min_ratio else ""
    return Standing(
        first_dirty=dirty,
        reset=reset,
        first_uncleanable=bases[at],
        because=because,
        held_segment=held,
        clean_bytes=clean,
        cleanable_bytes=cleanable,
        ratio=ratio,
        due=due,
    )


def splits(shown: Shown) -> bool | None:
    """Whether a broker's cleaner comes past a segment whose offsets overflow its indexes; None where its release is not
    shown. Since 2.0 it ends its pass, splits the segment and begins anew; before that its thread died of it."""
    if shown.least >= SPLITS:
        return True
    return False if shown.below is not None and shown.below <= SPLITS else None
