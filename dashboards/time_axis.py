"""An axis of time for small pictures: where a moment stands, and the ticks that say so. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import NamedTuple

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
# What lies between two ticks, in ms: of these the least that gives no more than fit.
STEPS = (
    *(n * MINUTE for n in (1, 2, 5, 10, 30)),
    *(n * HOUR for n in (1, 3, 6, 12)),
    *(n * DAY for n in (1, 2, 7, 14, 30, 90, 180, 365)),
)
PER_TICK = 90.0  # units of width that a tick's label takes


class Tick(NamedTuple):
    """A line on the axis and what stands there."""

    x: float
    label: str


class Axis(NamedTuple):
    """Moments between ``start`` and ``end``, in ms, laid out from ``left`` to ``right``."""

    start: int
    end: int
    left: float
    right: float

    def x(self, ms: int) -> float:
        """Where a moment stands; the end where the axis has no length."""
        share = (ms - self.start) / (self.end - self.start) if self.end > self.start else 1.0
        return round(self.left + min(1.0, max(0.0, share)) * (self.right - self.left), 1)

    def ticks(self) -> list[Tick]:
        """Whole hours or days (UTC), as many as there is room for; the day, and below it the time of day."""
        most = max(1, int((self.right - self.left) / PER_TICK))
        step = next((step for step in STEPS if (self.end - self.start) // step < most), STEPS[-1])
        first = -(-self.start // step) * step
        found = [Tick(self.x(ms), _label(ms, step)) for ms in range(first, self.end + 1, step)][: most + 1]
        return found or [Tick(self.x(self.end), _label(self.end, MINUTE))]


def axis(moments: Sequence[int], left: float, right: float) -> Axis:
    """The axis that has all of some moments, in ms."""
    return Axis(min(moments, default=0), max(moments, default=0), left, right)


def milliseconds(iso: str) -> int:
    """An ISO-8601 time in ms; one that is none is 0."""
    try:
        return int(datetime.datetime.fromisoformat(iso).timestamp() * 1000)
    except ValueError:
        return 0


def _label(ms: int, step: int) -> str:
    moment = datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)
    return moment.strftime("%Y-%m-%d" if step >= DAY else "%m-%d %H:%M")
