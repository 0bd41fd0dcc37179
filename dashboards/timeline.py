"""Where things stand in a picture: a partition's transactions as bars along its offsets.

Pure arithmetic from a timeline's numbers to coordinates; the template draws them as SVG. The x axis is the offset,
since that is what the LSO and the log end are; times are said in words, because a client chooses its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from auditor.base.words import duration
from auditor.dashboards.wording import clip, instant, offsets

WIDTH = 960.0
LEFT, RIGHT = 12.0, 948.0
TOP, LANE, BAR = 48.0, 54.0, 16.0
MAX_LANES, MAX_BARS = 12, 400
_MIN_BAR = 3.0
_SIGN = 7.3  # the width of a character


@dataclass(frozen=True, slots=True)
class Bar:
    """One transaction: ``x`` to ``x + width`` its data; ``tail`` what lies behind it to the right edge if it is open.

    ``kind`` is commit, abort, open (it holds readers up) or active (open, and nothing is wrong with that);
    ``letter`` says the same without colour; ``title`` says all of it in words.
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
    """A producer epoch that begins at ``x``; ``fenced`` when it is lower than one seen before in the lane; ``left``:
    its words end there, where there is no room for them to the right."""

    x: float
    label: str
    fenced: bool
    left: bool = False

    @property
    def span(self) -> tuple[float, float]:
        """From where to where its words go, with the room between two of them."""
        width = _SIGN * (len(self.label) + 1)
        return (self.x - width, self.x) if self.left else (self.x, self.x + width)


@dataclass(slots=True)
class Lane:
    """All shown transactions of one producer id; ``y`` is the top of its bars, the label stands above.

    ``held`` where one of them holds readers up.
    """

    producer_id: int
    y: float
    label: str
    note: str = ""
    held: bool = False
    bars: list[Bar] = field(default_factory=list)
    epochs: list[EpochMark] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything the template draws of one partition. Coordinates are in the SVG's own units, ``WIDTH`` wide."""

    height: float
    lanes: Sequence[Lane]
    ticks: Sequence[tuple[float, int]]
    lso: float | None
    lso_label_end: bool
    log_end: float
    start_cut: bool
    hidden_producers: int
    hidden_transactions: int

    @property
    def held(self) -> bool:
        """Whether a transaction that is drawn holds readers up."""
        return any(lane.held for lane in self.lanes)


def draw(timeline: Mapping[str, Any], known: Mapping[tuple[int, int], Mapping[str, Any]]) -> Picture:
    """Lay one timeline out.

    ``timeline`` is of the shape the report takes; ``known`` holds the open transactions by (producer id, first offset),
    for their id, since when and for how long, what pages call them (``kind``), and whether they hold readers up
    (``blocks``). Cost: linear in the transactions, of which all open ones and the latest others are drawn, ``MAX_BARS``
    together.
    """
    rows = _shown(timeline["transactions"])
    log_end = timeline["log_end"]
    first = min([log_end, *(_first(row) for row in rows)])
    first = max(timeline["log_start"], first - max(1, (log_end - first) // 20)) if rows else timeline["log_start"]
    scale = _scale(first, log_end)
    lanes, hidden = _lanes(rows)
    for lane, own in lanes:
        _fill(lane, own, scale, known)
    lso = timeline.get("lso")
    at = None if lso is None or lso < first else scale(lso)
    return Picture(
        height=TOP + LANE * len(lanes) + 26,
        lanes=[lane for lane, _ in lanes],
        ticks=[(scale(tick), tick) for tick in _ticks(first, log_end)],
        lso=at,
        lso_label_end=at is not None and at > WIDTH / 2,
        log_end=scale(log_end),
        start_cut=first > timeline["log_start"],
        hidden_producers=hidden,
        hidden_transactions=len(timeline["transactions"]) - len(rows) + (timeline.get("truncated") or 0),
    )


def in_words(row: Mapping[str, Any], since: str | None = None, age_ms: int | None = None) -> str:
    """One transaction of a timeline as a line of text."""
    said = f"producer {row['producer_id']} epoch {row['producer_epoch']}, offsets {_range(row)}"
    if row.get("marker_offset") is None:
        begun = since or row.get("start")
        said += ", open" + (f" since {instant(begun)}" if begun else "")
        return said + (f" ({duration(age_ms)})" if age_ms is not None else "")
    said += f", {row.get('outcome') or 'ended'} at {row['marker_offset']}"
    return said + (f" on {instant(row['end'])}" if row.get("end") else "")


def _range(row: Mapping[str, Any]) -> str:
    return offsets(row["first_offset"], row.get("last_offset")) or "none"


def _shown(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Every open transaction (as far as bars go) and the latest of the others, in offset order."""
    still = [row for row in rows if row.get("marker_offset") is None][:MAX_BARS]
    ended = sorted((row for row in rows if row.get("marker_offset") is not None), key=_first)
    return sorted(still + ended[len(ended) - max(0, MAX_BARS - len(still)) :] if ended else still, key=_first)


def _first(row: Mapping[str, Any]) -> int:
    """Where a transaction begins; a marker that ended nothing begins at itself."""
    begin: int = row["first_offset"] if row["first_offset"] is not None else (row.get("marker_offset") or 0)
    return begin


def _scale(first: int, end: int) -> Any:
    span = max(1, end - first)

    def scale(offset: int) -> float:
        share = min(1.0, max(0.0, (offset - first) / span))
        return round(LEFT + share * (RIGHT - LEFT), 1)

    return scale


def _ticks(first: int, end: int) -> list[int]:
    """At most six round offsets between first and end."""
    step, factors = 1, (2, 5, 10)
    while (end - first) // step > 5:
        step = next(base * f for base in [_power(step)] for f in factors if base * f > step)
    start = -(-first // step) * step
    return list(range(start, end + 1, step))


def _power(step: int) -> int:
    return int(10 ** (len(str(step)) - 1))


def _lanes(rows: Sequence[Mapping[str, Any]]) -> tuple[list[tuple[Lane, list[Mapping[str, Any]]]], int]:
    """One lane a producer: open transactions first (by offset), then the latest; and how many lanes are left out."""
    own: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        own.setdefault(row["producer_id"], []).append(row)

    def rank(item: tuple[int, list[Mapping[str, Any]]]) -> tuple[int, int]:
        still = [_first(row) for row in item[1] if row.get("marker_offset") is None]
        return (0, min(still)) if still else (1, -_first(item[1][-1]))

    order = sorted(own.items(), key=rank)
    shown = [
        (Lane(producer, TOP + LANE * n + 18, f"producer {producer}"), mine)
        for n, (producer, mine) in enumerate(order[:MAX_LANES])
    ]
    return shown, len(order) - len(shown)


def _fill(
    lane: Lane,
    rows: Sequence[Mapping[str, Any]],
    scale: Any,
    known: Mapping[tuple[int, int], Mapping[str, Any]],
) -> None:
    highest: int | None = None
    for row in rows:
        more = known.get((row["producer_id"], _first(row)), {})
        since, age = more.get("since"), more.get("age_ms")
        blocks = more.get("blocks", row.get("class") != "active")
        bar = _bar(row, scale, in_words(row, since, age), blocks)
        lane.bars.append(bar)
        lane.held = lane.held or bar.kind == "open"
        if bar.marker is None and not lane.note:
            begun = since or row.get("start")
            lane.note = ("open since " + instant(begun) if begun else "open") + (f" · {duration(age)}" if age else "")
            kind = more.get("kind") or row.get("class")
            lane.note += f" · {kind}" if kind else ""
            if more.get("transactional_id") is not None:
                lane.label += f" ({clip(str(more['transactional_id']), 60)})"
        highest = _mark_epoch(lane, bar.x, row["producer_epoch"], highest)


def _mark_epoch(lane: Lane, x: float, epoch: int, highest: int | None) -> int:
    """Mark an epoch where it begins, in words if there is room for them. Returns the highest epoch so far."""
    fenced = highest is not None and epoch < highest
    if highest is None or fenced or epoch > highest:
        said = f"epoch {epoch} after {highest}: fenced" if fenced else f"epoch {epoch}"
        mark = EpochMark(x, said, fenced, left=x + _SIGN * len(said) > WIDTH)
        last = next((mark.span[1] for mark in reversed(lane.epochs) if mark.label), 0.0)
        lane.epochs.append(mark if fenced or mark.span[0] >= last else EpochMark(x, "", fenced))
    return epoch if highest is None else max(highest, epoch)


def _bar(row: Mapping[str, Any], scale: Any, title: str, blocks: bool) -> Bar:
    x = scale(_first(row))
    last = row.get("last_offset")
    end = scale(_first(row) if last is None else last + 1)
    marker = row.get("marker_offset")
    width = max(_MIN_BAR, round(end - x, 1))
    if marker is None:
        tail = max(0.0, round(RIGHT - x - width, 1))
        return Bar(min(x, RIGHT - _MIN_BAR), width, tail, "open" if blocks else "active", "OPEN", title, None)
    commit = row.get("outcome") == "COMMIT"
    at = scale(marker)
    return Bar(x, max(width, round(at - x, 1)), 0.0, "commit" if commit else "abort", "C" if commit else "A", title, at)
