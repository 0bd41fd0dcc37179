"""Counts of runs over time, as pictures: an axis of time, a lane a count, a mark where a run was. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from auditor.dashboards.time_axis import Axis, Tick, axis

Of = TypeVar("Of")

WIDTH, LANE, HIGH, TAIL = 960.0, 52.0, 34.0, 16.0
AXIS = 22.0  # below the lanes, for the ticks' labels
APART = 26.0  # between the numbers of a lane
SMALL_WIDTH, SMALL = 150.0, 22.0


@dataclass(frozen=True, slots=True)
class Label:
    """A number in the picture."""

    x: float
    y: float
    count: int


@dataclass(frozen=True, slots=True)
class Lane:
    """One count over time: ``path`` is its area, which stands on ``y``; a number stands where it changes."""

    name: str
    y: float
    path: str
    labels: Sequence[Label]


@dataclass(frozen=True, slots=True)
class Trend(Generic[Of]):
    """The picture: lanes below each other, a column a run to be clicked (left, width, mark, run), and the ticks."""

    lanes: Sequence[Lane]
    columns: Sequence[tuple[float, float, float, Of]]
    ticks: Sequence[Tick]
    width: float = WIDTH

    @property
    def height(self) -> float:
        """In the SVG's own units."""
        return LANE * len(self.lanes) + AXIS


def draw(
    runs: Sequence[Of], moments: Sequence[int], counts: Mapping[str, Sequence[int | None]], width: float = WIDTH
) -> Trend[Of]:
    """Lays runs out: ``moments`` when each was, in ms, in their order; ``counts`` by lane, None where a run does not
    say. A count holds until the next run. Cost: linear."""
    if not runs:
        return Trend([], [], [], width)
    scale = axis(moments, 0.0, width - TAIL)
    xs = [scale.x(ms) for ms in moments]
    lanes = [lane(name, xs, values, LANE * n, HIGH, width) for n, (name, values) in enumerate(counts.items(), 1)]
    ends = [*((a + b) / 2 for a, b in itertools.pairwise(xs)), width]
    begins = [0.0, *ends[:-1]]
    columns = [
        (round(left, 1), round(max(right - left, 0.5), 1), x, run)
        for left, right, x, run in zip(begins, ends, xs, runs, strict=True)
    ]
    return Trend(lanes, columns, scale.ticks(), width)


def lane(name: str, xs: Sequence[float], values: Sequence[int | None], y: float, high: float, width: float) -> Lane:
    """One count: as high as its share of the most; whatever is not zero can be seen."""
    most = max((value for value in values if value), default=1)
    path, labels, before, free = [], [], None, 0.0
    for at, (x, value) in enumerate(zip(xs, values, strict=True)):
        right = xs[at + 1] if at + 1 < len(xs) else width
        if value:
            top = round(y - max(2.0, high * value / most), 1)
            path.append(f"M{x} {y}V{top}H{max(right, x + 1)}V{y}Z")
            if value != before and x >= free:
                labels.append(Label(min(x, width - 8 * len(f"{value:,}")), top - 3, value))
                free = x + APART
        before = value
    return Lane(name, y, "".join(path), labels)


def small(scale: Axis, moments: Sequence[int], values: Sequence[int | None]) -> tuple[Lane, list[float]]:
    """A picture for a cell of a table: one count on an axis that the rows share, and where its runs were."""
    xs = [scale.x(ms) for ms in moments]
    return lane("", xs, values, SMALL - 2, SMALL - 4, SMALL_WIDTH), xs
