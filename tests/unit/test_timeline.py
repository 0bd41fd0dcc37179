"""The timeline's geometry: offsets to coordinates."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from auditor.dashboards import timeline


def bar(producer: int, first: int, last: int, marker: int | None = None, **given: Any) -> dict[str, Any]:
    end = {"marker_offset": marker, "outcome": None if marker is None else "COMMIT", "start": None, "end": None}
    data = {"producer_id": producer, "producer_epoch": 0, "first_offset": first, "last_offset": last}
    return {**data, **end, "class": None, **given}


def draw(rows: list[dict[str, Any]], **given: Any) -> timeline.Picture:
    return timeline.draw_timeline(
        {"log_start": 0, "log_end": 100, "lso": 50, "transactions": rows, "truncated": 0, **given}, {}
    )


def test_an_open_transaction_reaches_the_right_edge_and_a_decided_one_its_marker() -> None:
    picture = draw([bar(1, 0, 9, 10), bar(2, 50, 59)])
    (held, ended) = picture.lanes
    assert (held.producer_id, ended.producer_id) == (2, 1)
    (open_bar,), (done,) = held.bars, ended.bars
    assert open_bar.x == picture.lso
    assert open_bar.x + open_bar.width + open_bar.tail == picture.log_end == timeline.RIGHT
    assert (done.x, done.letter, done.x + done.width) == (timeline.LEFT, "C", done.marker)


def test_an_open_transaction_is_labelled_with_its_id_and_age() -> None:
    row = {"transactional_id": "pay", "since": "2026-11-21T04:00:00.000Z", "age_ms": 60_000}
    rows = [bar(2, 50, 59, **{"class": "orphan"})]
    whole = {"log_start": 0, "log_end": 100, "lso": 50, "transactions": rows, "truncated": 0}
    (lane,) = timeline.draw_timeline(whole, {(2, 50): row}).lanes
    assert lane.label == "producer id 2 (pay)"
    assert lane.note == "open since 2026-11-21 04:00:00 UTC · 1 min · hanging"


def test_the_label_says_what_the_cards_say() -> None:
    rows = [bar(2, 50, 59, **{"class": "active"})]
    whole = {"log_start": 0, "log_end": 100, "lso": 50, "transactions": rows, "truncated": 0}
    (lane,) = timeline.draw_timeline(whole, {(2, 50): {"kind": "undeliverable"}}).lanes
    assert lane.note == "open · prepared"


def test_what_holds_nobody_up_does_not_alarm() -> None:
    calm, held, young = bar(1, 50, 59), bar(2, 60, 69), bar(3, 70, 79)
    rows = [calm | {"class": "active"}, held | {"class": "hanging"}, young | {"class": "hanging"}]
    whole = {"log_start": 0, "log_end": 100, "lso": 50, "transactions": rows, "truncated": 0}
    picture = timeline.draw_timeline(whole, {(3, 70): {"blocks": False}})
    assert [(lane.bars[0].kind, lane.tone) for lane in picture.lanes] == [
        ("active", "active"), ("open", "open"), ("active", "active"),
    ]  # fmt: skip
    assert picture.tone == "open"
    assert draw([calm | {"class": "active"}, bar(4, 0, 9, 10)]).tone == "active"
    assert draw([bar(4, 0, 9, 10)]).tone == ""


@pytest.mark.parametrize(
    "more", [{}, {"kind": "undecidable", "blocks": False}, {"standing": "unknown", "blocks": False}]
)
def test_what_is_not_decided_is_drawn_as_neither(more: dict[str, Any]) -> None:
    rows = [bar(1, 50, 59, **{"class": "undecidable"}), bar(2, 70, 79, **{"class": "active"})]
    whole = {"log_start": 0, "log_end": 100, "lso": 50, "transactions": rows, "truncated": 0}
    picture = timeline.draw_timeline(whole, {(1, 50): more})
    assert [lane.bars[0].kind for lane in picture.lanes] == ["unsure", "active"]
    assert (picture.tone, picture.kinds) == ("unsure", {"unsure", "active"})


def test_a_long_log_is_zoomed_on_its_last_stable_offset() -> None:
    """Ten records that hold back four million: in the whole they would be one pixel."""
    rows = [bar(1, 0, 3_999_000, 3_999_001), bar(2, 4_000_000, 4_000_009), bar(3, 7_000_000, 7_000_009, 7_000_010)]
    whole = {"log_start": 0, "log_end": 9_000_000, "lso": 4_000_000, "transactions": rows, "truncated": 0}
    part = timeline.focus(whole)
    assert part == (3_999_990, 4_000_020)
    picture = timeline.draw_timeline(whole, {}, part)
    (lane,) = picture.lanes
    assert (lane.producer_id, lane.bars[0].x) == (2, picture.lso)
    assert lane.bars[0].width > 300
    assert lane.bars[0].x + lane.bars[0].width + lane.bars[0].tail == timeline.RIGHT
    assert picture.start_cut
    assert picture.end_cut
    assert picture.ticks[0][1] == 3_999_990
    assert not timeline.draw_timeline(whole, {}).end_cut


def test_what_the_whole_shows_well_enough_is_not_zoomed() -> None:
    short = {"log_start": 0, "log_end": 100, "lso": 50, "transactions": [bar(2, 50, 69)], "truncated": 0}
    assert timeline.focus(short) is None
    assert timeline.focus(short | {"lso": 100}) is None
    assert timeline.focus(short | {"lso": None}) is None
    assert timeline.focus(short | {"transactions": [bar(2, 50, 69, 70)]}) is None
    assert timeline.focus(short | {"log_end": 1000}) == (40, 80)


def test_a_small_transaction_in_a_long_log_is_still_seen() -> None:
    picture = draw([bar(1, 5, 5, 6), bar(2, 4_000_000, 4_000_000)], log_end=9_000_000, lso=4_000_000)
    assert all(entry.width >= 3 for lane in picture.lanes for entry in lane.bars)
    assert all(timeline.LEFT <= x <= timeline.RIGHT for x, _ in picture.ticks)
    assert 2 <= len(picture.ticks) <= 6


def test_a_lower_epoch_after_a_higher_one_is_marked_as_fenced() -> None:
    rows = [bar(1, 0, 9, 10, producer_epoch=3), bar(1, 40, 49, producer_epoch=2)]
    marks = draw(rows).lanes[0].epochs
    assert [(mark.label, mark.fenced) for mark in marks] == [("epoch 3", False), ("epoch 2 after 3: fenced", True)]


def test_crowded_epochs_keep_their_marks_but_not_their_words() -> None:
    rows = [bar(1, n, n, n, producer_epoch=n) for n in range(0, 100, 2)]
    marks = draw(rows).lanes[0].epochs
    assert len(marks) == 50
    labelled = [mark for mark in marks if mark.label]
    assert 5 < len(labelled) < 50
    assert all(a.span[1] <= b.span[0] for a, b in itertools.pairwise(labelled))


@pytest.mark.parametrize("epoch", [3, 32767])
def test_the_words_of_an_epoch_stay_in_the_picture(epoch: int) -> None:
    rows = [bar(1, n, n, n, producer_epoch=epoch - 1 + n // 99) for n in (0, 99)]
    first, last = draw(rows).lanes[0].epochs
    assert (first.left, last.left) == (False, True)
    assert last.label == f"epoch {epoch}"
    assert last.span[0] >= first.span[1]


def test_what_is_not_drawn_is_counted_and_open_ones_are_kept() -> None:
    rows = [bar(n % 40, n, n, n) for n in range(1000)]
    picture = draw([bar(99, 0, 0), *rows], log_end=1000, truncated=7)
    assert picture.hidden_transactions == 1001 - timeline.MAX_BARS + 7
    assert picture.hidden_producers == 41 - timeline.MAX_LANES
    assert picture.lanes[0].producer_id == 99


def test_an_empty_log_draws_without_a_division() -> None:
    picture = draw([], log_start=7, log_end=7, lso=None)
    assert picture.lanes == []
    assert [tick for _, tick in picture.ticks] == [7]


def test_a_marker_that_ended_nothing_stands_at_itself() -> None:
    row = bar(1, 0, 0, 60) | {"first_offset": None, "last_offset": None}
    (entry,) = draw([row, bar(2, 0, 1, 2)]).lanes[0].bars
    assert entry.x == entry.marker
