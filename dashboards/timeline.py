"""Timelines of partitions and trends of runs, as coordinates."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from auditor.base.at_rest import Values
from auditor.dashboards.wording import STATUSES, aged, clip, instant, offsets, parsed_time

# A partition's transactions as bars along its offsets, for the template to draw as SVG. The x axis is the offset, as
# for LSO and log end; times are only in the texts, because clients choose their own.


TIMELINE_WIDTH = 960.0
LEFT, RIGHT = 12.0, 948.0
TOP, TIMELINE_LANE, BAR = 48.0, 54.0, 16.0
MAX_LANES, MAX_BARS = 12, 400
_MIN_BAR = 3.0
_MARGIN, _WORTH = 10, 4  # offsets around a part; how many times shorter than the whole it must be
_SIGN = 7.3  # the width of a character


Part = tuple[int, int]  # from an offset to one that is not in it
TONES = ("open", "unsure", "active", "")  # kinds of open transactions, the worst first


@dataclass(frozen=True, slots=True)
class Bar:
    """One transaction: its records from ``x`` to ``x + width``; ``tail``: from there to the right edge if it is open.

    ``kind``: commit, abort, open (it blocks consumers), unsure (open, of unknown status) or active (open, within its
    timeout); ``letter``: the kind without colour; ``title``: all of it in words.
    """

    x: float
    width: float
    tail: float
    kind: str
    letter: str
    title: str
    marker: float | None


@dataclass(frozen=True, slots=True)
class EpochMark:
    """A producer epoch that begins at ``x``. ``fenced``: it is lower than one before it in the lane; ``left``: its
    label ends at ``x``, where the right has no room."""

    x: float
    label: str
    fenced: bool
    left: bool = False

    @property
    def span(self) -> tuple[float, float]:
        """The horizontal range of its label, with a gap."""
        width = _SIGN * (len(self.label) + 1)
        return (self.x - width, self.x) if self.left else (self.x, self.x + width)


@dataclass(slots=True)
class TimelineLane:
    """All shown transactions of one producer id. ``y``: the top of its bars, below the label; ``tone``: the worst
    kind of its open ones, empty without any."""

    producer_id: int
    y: float
    label: str
    note: str = ""
    tone: str = ""
    bars: list[Bar] = field(default_factory=list)
    epochs: list[EpochMark] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Picture:
    """What the template draws of one partition. Coordinates are SVG units, ``WIDTH`` wide."""

    height: float
    lanes: Sequence[TimelineLane]
    ticks: Sequence[tuple[float, int]]
    lso: float | None
    lso_label_end: bool
    log_end: float
    start_cut: bool
    end_cut: bool
    hidden_producers: int
    hidden_transactions: int

    @property
    def tone(self) -> str:
        """The worst kind of an open transaction; empty without any."""
        return min((lane.tone for lane in self.lanes), key=TONES.index, default="")

    @property
    def kinds(self) -> set[str]:
        """The kinds of its bars."""
        return {bar.kind for lane in self.lanes for bar in lane.bars}


def draw_timeline(
    timeline: Values, open_transactions: Mapping[tuple[int, int], Values], part: Part | None = None
) -> Picture:
    """Lay out one timeline, or a part of it.

    ``timeline``: in the report's shape; ``open_transactions``: by (producer id, first offset), for their id, age,
    ``kind``, and whether they block consumers (``blocks``). Cost: linear in the transactions, of which all open ones
    and the latest others are drawn, at most ``MAX_BARS``.
    """
    in_part = timeline["transactions"] if part is None else [row for row in timeline["transactions"] if _in(row, part)]
    rows = _shown(in_part)
    first, end = part or (_begin(timeline, rows), timeline["log_end"])
    scale = _scale(first, end)
    lanes, hidden = _lanes(rows)
    for lane, own in lanes:
        _fill(lane, own, scale, open_transactions)
    lso = timeline.get("lso")
    lso_x = None if lso is None or lso < first else scale(lso)
    return Picture(
        height=TOP + TIMELINE_LANE * len(lanes) + 26,
        lanes=[lane for lane, _ in lanes],
        ticks=[(scale(tick), tick) for tick in _ticks(first, end)],
        lso=lso_x,
        lso_label_end=lso_x is not None and lso_x > TIMELINE_WIDTH / 2,
        log_end=scale(end),
        start_cut=first > timeline["log_start"],
        end_cut=end < timeline["log_end"],
        hidden_producers=hidden,
        hidden_transactions=len(in_part) - len(rows) + (0 if part else timeline.get("truncated") or 0),
    )


def focus(timeline: Values) -> Part | None:
    """Return the part of a log around its LSO and the transaction that holds it back; None if nothing does, or the
    whole log shows it well enough."""
    lso, log_end = timeline.get("lso"), timeline["log_end"]
    still = [row for row in timeline["transactions"] if row.get("marker_offset") is None]
    if lso is None or lso >= log_end or not still:
        return None
    holder = min(still, key=_first)
    last = holder.get("last_offset")
    end = max(lso, _first(holder) if last is None else last) + 1
    margin = max(_MARGIN, (end - lso) // 2)
    whole = _begin(timeline, _shown(timeline["transactions"]))
    part = max(whole, lso - margin), min(log_end, end + margin)
    return part if (part[1] - part[0]) * _WORTH < log_end - whole else None


def _begin(timeline: Values, rows: Sequence[Values]) -> int:
    # A little before the first transaction.
    log_start, log_end = int(timeline["log_start"]), int(timeline["log_end"])
    if not rows:
        return log_start
    first = min([log_end, *(_first(row) for row in rows)])
    return max(log_start, first - max(1, (log_end - first) // 20))


def _in(row: Values, part: Part) -> bool:
    ends = [row.get("last_offset"), row.get("marker_offset")]
    return _first(row) < part[1] and max([_first(row), *(end for end in ends if end is not None)]) >= part[0]


def in_words(row: Values, since: str | None = None, age: str = "") -> str:
    """Return one transaction of a timeline as a line of text."""
    span = offsets(row["first_offset"], row.get("last_offset")) or "none"
    text = f"producer id {row['producer_id']}, epoch {row['producer_epoch']}, offsets {span}"
    if row.get("marker_offset") is None:
        begun = since or row.get("start")
        text += ", open" + (f" since {instant(begun)}" if begun else "")
        return text + (f" ({age})" if age else "")
    text += f", {row.get('outcome') or 'ended'} at {row['marker_offset']}"
    return text + (f" on {instant(row['end'])}" if row.get("end") else "")


def _shown(rows: Sequence[Values]) -> list[Values]:
    # All open transactions come before the others, as far as MAX_BARS permits.
    still = [row for row in rows if row.get("marker_offset") is None][:MAX_BARS]
    ended = sorted((row for row in rows if row.get("marker_offset") is not None), key=_first)
    return sorted(still + ended[len(ended) - max(0, MAX_BARS - len(still)) :] if ended else still, key=_first)


def _first(row: Values) -> int:
    # A marker without a transaction begins at itself.
    begin: int = row["first_offset"] if row["first_offset"] is not None else (row.get("marker_offset") or 0)
    return begin


def _scale(first: int, end: int) -> Any:
    span = max(1, end - first)

    def scale(offset: int) -> float:
        share = min(1.0, max(0.0, (offset - first) / span))
        return round(LEFT + share * (RIGHT - LEFT), 1)

    return scale


def _ticks(first: int, end: int) -> list[int]:
    # At most six round offsets.
    step = 1
    while (end - first) // step > 5:
        power = int(10 ** (len(str(step)) - 1))
        step = next(power * factor for factor in (2, 5, 10) if power * factor > step)
    start = -(-first // step) * step
    return list(range(start, end + 1, step))


def _lanes(rows: Sequence[Values]) -> tuple[list[tuple[TimelineLane, list[Values]]], int]:
    # Open transactions first, by offset, then the latest.
    own: dict[int, list[Values]] = {}
    for row in rows:
        own.setdefault(row["producer_id"], []).append(row)

    def rank(item: tuple[int, list[Values]]) -> tuple[int, int]:
        still = [_first(row) for row in item[1] if row.get("marker_offset") is None]
        return (0, min(still)) if still else (1, -_first(item[1][-1]))

    order = sorted(own.items(), key=rank)
    shown = [
        (TimelineLane(producer, TOP + TIMELINE_LANE * n + 18, f"producer id {producer}"), transactions)
        for n, (producer, transactions) in enumerate(order[:MAX_LANES])
    ]
    return shown, len(order) - len(shown)


def _fill(
    lane: TimelineLane, rows: Sequence[Values], scale: object, open_transactions: Mapping[tuple[int, int], Values]
) -> None:
    highest: int | None = None
    for row in rows:
        more = open_transactions.get((row["producer_id"], _first(row)), {})
        since, age = more.get("since"), "" if more.get("age_ms") is None else aged(more)
        bar = _bar(row, scale, in_words(row, since, age), _open_kind(row, more))
        lane.bars.append(bar)
        if bar.marker is None:
            lane.tone = min(lane.tone, bar.kind, key=TONES.index)
        if bar.marker is None and not lane.note:
            begun = since or row.get("start")
            lane.note = ("open since " + instant(begun) if begun else "open") + (f" · {age}" if age else "")
            kind = more.get("kind") or row.get("class")
            lane.note += f" · {STATUSES.get(kind, kind)}" if kind and kind != "active" else ""
            if more.get("transactional_id") is not None:
                lane.label += f" ({clip(str(more['transactional_id']), 60)})"
        highest = _mark_epoch(lane, bar.x, row["producer_epoch"], highest)


def _open_kind(row: Values, more: Values) -> str:
    kind = more.get("kind") or row.get("class")
    if more.get("blocks", kind not in ("active", "undecidable")):
        return "open"
    return "unsure" if kind == "undecidable" or more.get("standing") == "unknown" else "active"


def _mark_epoch(lane: TimelineLane, x: float, epoch: int, highest: int | None) -> int:
    # Labelled if there is room. Returns the highest epoch so far.
    fenced = highest is not None and epoch < highest
    if highest is None or fenced or epoch > highest:
        label = f"epoch {epoch} after {highest}: fenced" if fenced else f"epoch {epoch}"
        mark = EpochMark(x, label, fenced, left=x + _SIGN * len(label) > TIMELINE_WIDTH)
        last = next((mark.span[1] for mark in reversed(lane.epochs) if mark.label), 0.0)
        lane.epochs.append(mark if fenced or mark.span[0] >= last else EpochMark(x, "", fenced))
    return epoch if highest is None else max(highest, epoch)


def _bar(row: Values, scale: Any, title: str, kind: str) -> Bar:
    x = scale(_first(row))
    last = row.get("last_offset")
    end = scale(_first(row) if last is None else last + 1)
    marker = row.get("marker_offset")
    width = max(_MIN_BAR, round(end - x, 1))
    if marker is None:
        tail = max(0.0, round(RIGHT - x - width, 1))
        return Bar(min(x, RIGHT - _MIN_BAR), width, tail, kind, "OPEN", title, None)
    outcome, letter = ("commit", "C") if row.get("outcome") == "COMMIT" else ("abort", "A")
    marker_x = scale(marker)
    return Bar(x, max(width, round(marker_x - x, 1)), 0.0, outcome, letter, title, marker_x)


# Time axes.


MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
# Distances between ticks, in ms: the least is used that gives no more ticks than fit.
STEPS = (
    *(n * MINUTE for n in (1, 2, 5, 10, 30)),
    *(n * HOUR for n in (1, 3, 6, 12)),
    *(n * DAY for n in (1, 2, 7, 14, 30, 90, 180, 365)),
)
PER_TICK = 90.0  # units of width that a tick's label takes


class Tick(NamedTuple):
    """A line on the axis and its label."""

    x: float
    label: str


class Axis(NamedTuple):
    """The times from ``start`` to ``end``, in ms, laid out from ``left`` to ``right``."""

    start: int
    end: int
    left: float
    right: float

    def x(self, ms: int) -> float:
        """Return the position of a time; the right end if the axis has no length."""
        share = (ms - self.start) / (self.end - self.start) if self.end > self.start else 1.0
        return round(self.left + min(1.0, max(0.0, share)) * (self.right - self.left), 1)

    def ticks(self) -> list[Tick]:
        """Return whole hours or days (UTC), as many as fit."""
        most = max(1, int((self.right - self.left) / PER_TICK))
        step = next((step for step in STEPS if (self.end - self.start) // step < most), STEPS[-1])
        first = -(-self.start // step) * step
        ticks = [Tick(self.x(ms), _label(ms, step)) for ms in range(first, self.end + 1, step)][: most + 1]
        return ticks or [Tick(self.x(self.end), _label(self.end, MINUTE))]


def axis(moments: Sequence[int], left: float, right: float) -> Axis:
    """Return the axis of some times in ms."""
    return Axis(min(moments, default=0), max(moments, default=0), left, right)


def milliseconds(iso: str) -> int:
    """Return an ISO-8601 time in epoch ms; 0 for anything else."""
    time = parsed_time(iso)
    return 0 if time is None else int(time.timestamp() * 1000)


def _label(ms: int, step: int) -> str:
    moment = datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)
    return moment.strftime("%Y-%m-%d" if step >= DAY else "%m-%d %H:%M")


# Trends: one lane per count, a mark per run.


Of = TypeVar("Of")

TREND_WIDTH, TREND_LANE, HIGH, TAIL = 960.0, 52.0, 34.0, 16.0
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
class TrendLane:
    """One count over time. ``path``: its area above ``y``; it is labelled where it changes."""

    name: str
    y: float
    path: str
    labels: Sequence[Label]


@dataclass(frozen=True, slots=True)
class Trend(Generic[Of]):
    """The picture: lanes, one column per run to click on (left, width, mark, run), and ticks."""

    lanes: Sequence[TrendLane]
    columns: Sequence[tuple[float, float, float, Of]]
    ticks: Sequence[Tick]
    width: float = TREND_WIDTH

    @property
    def height(self) -> float:
        """In SVG units."""
        return TREND_LANE * len(self.lanes) + AXIS


def draw_trend(
    runs: Sequence[Of], moments: Sequence[int], counts: Mapping[str, Sequence[int | None]], width: float = TREND_WIDTH
) -> Trend[Of]:
    """Lay out runs over time. ``moments``: in ms, ascending; ``counts``: by lane, None if unknown. A count holds
    until the next run. Cost: linear."""
    if not runs:
        return Trend([], [], [], width)
    scale = axis(moments, 0.0, width - TAIL)
    xs = [scale.x(ms) for ms in moments]
    lanes = [lane(name, xs, values, TREND_LANE * n, HIGH, width) for n, (name, values) in enumerate(counts.items(), 1)]
    ends = [*((a + b) / 2 for a, b in itertools.pairwise(xs)), width]
    begins = [0.0, *ends[:-1]]
    columns = [
        (round(left, 1), round(max(right - left, 0.5), 1), x, run)
        for left, right, x, run in zip(begins, ends, xs, runs, strict=True)
    ]
    return Trend(lanes, columns, scale.ticks(), width)


def lane(
    name: str, xs: Sequence[float], values: Sequence[int | None], y: float, high: float, width: float
) -> TrendLane:
    """Lay out one count, relative to its maximum; counts above zero are always visible."""
    most = max((value for value in values if value), default=1)
    path, labels, before, free = [], [], None, 0.0
    for column, (x, value) in enumerate(zip(xs, values, strict=True)):
        right = xs[column + 1] if column + 1 < len(xs) else width
        if value:
            top = round(y - max(2.0, high * value / most), 1)
            path.append(f"M{x} {y}V{top}H{max(right, x + 1)}V{y}Z")
            if value != before and x >= free:
                labels.append(Label(min(x, width - 8 * len(f"{value:,}")), top - 3, value))
                free = x + APART
        before = value
    return TrendLane(name, y, "".join(path), labels)


def small(scale: Axis, moments: Sequence[int], values: Sequence[int | None]) -> tuple[TrendLane, list[float]]:
    """Lay out one count for a table cell, on an axis shared by the rows, and the positions of its runs."""
    xs = [scale.x(ms) for ms in moments]
    return lane("", xs, values, SMALL - 2, SMALL - 4, SMALL_WIDTH), xs
