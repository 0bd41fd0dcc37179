"""The dashboard over many runs, as arithmetic and as a page."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from auditor.dashboards import answers, overview, timeline
from auditor.dashboards.overview import Board, ClusterLabel, Links, step
from auditor.dashboards.timeline import Axis, milliseconds
from tests.unit import report_samples as samples
from tests.unit.html_page import Page

DAY = 86_400_000
DAYS_OF = "2026-11-{:02d}T04:00:00+00:00"


def night(n: int, **counts: int) -> overview.RunPoint:
    return step(f"night-{n}", DAYS_OF.format(n), {"as_of": DAYS_OF.format(n), "counts": counts, "batches": n})


def board(steps: list[overview.RunPoint], at: int, new: Any = (), gone: Any = (), still: int = 0) -> Board:
    decided = answers.report_of((), {"counts": {"by_severity": steps[at].counts}}).verdict
    compared = (new, gone) if at else (None, None)
    return Board(ClusterLabel("c", "prod-eu"), decided, steps[at].as_of, *compared, still, {"new": 0, "gone": 0})


def test_a_run_stands_where_its_time_is() -> None:
    """Nights 1, 2 and 5: the second a fourth of the way, and its count holds for three fourths of it."""
    drawn = overview.draw([night(1, error=4), night(2, error=1), night(5, error=1)])
    end = timeline.TREND_WIDTH - timeline.TAIL
    assert [mark for _, _, mark, _ in drawn.columns] == [0.0, end / 4, end]
    lane = next(lane for lane in drawn.lanes if lane.name == "error")
    assert lane.path == (
        f"M0.0 {lane.y}V{lane.y - timeline.HIGH}H{end / 4}V{lane.y}Z"
        f"M{end / 4} {lane.y}V{lane.y - timeline.HIGH / 4}H{end}V{lane.y}Z"
        f"M{end} {lane.y}V{lane.y - timeline.HIGH / 4}H{timeline.TREND_WIDTH}V{lane.y}Z"
    )
    assert [(label.count, label.x) for label in lane.labels] == [(4, 0.0), (1, end / 4)]
    assert [lane.name for lane in drawn.lanes] == ["blocked", "critical", "error", "warning"], "infos have none"
    assert sum(width for _, width, _, _ in drawn.columns) == pytest.approx(timeline.TREND_WIDTH)


@pytest.mark.parametrize(
    ("length", "first", "apart"),
    [
        (4 * DAY, "11-01 00:00", DAY // 2),
        (9 * DAY, "2026-11-01", DAY),
        (DAY // 4, "11-01 00:00", 3_600_000),
        (300 * DAY, "2026-12-03", 90 * DAY),  # day 231 × 90 since the epoch
    ],
)
def test_ticks_are_whole_days_or_hours(length: int, first: str, apart: int) -> None:
    start = milliseconds("2026-11-01T00:00:00+00:00")
    ticks = Axis(start, start + length, 0.0, 944.0).ticks()
    assert ticks[0].label == first
    assert ticks[1].x - ticks[0].x == pytest.approx(944.0 * apart / length, abs=0.2)
    assert len(ticks) <= 944 / 90 + 1


def test_the_worst_of_the_last_run_comes_first_then_who_is_named_most() -> None:
    rows = [
        [("a", "info", 9), ("b", "info", 1), ("c", "critical", 1)],
        [("a", "info", 9), ("b", "error", 1), ("d", "info", 9)],
    ]
    names = ["cluster_id", "topic", "partition"]
    tallies = [
        overview.tallied(
            [{"cluster_id": "x", "topic": t, "partition": 0, "severity": s, "count": n} for t, s, n in run], names
        )
        for run in rows
    ]
    ranks = overview.rank(tallies)
    assert [(r.key[1], r.worst, r.run_count) for r in ranks] == [
        ("b", ["info", "error"], 2),
        ("a", ["info", "info"], 2),
        ("d", [None, "info"], 1),
        ("c", ["critical", None], 1),
    ]
    assert ranks[0].counts == {"critical": 0, "error": 1, "warning": 0, "info": 0}


def test_a_row_that_names_nobody_is_left_out_and_the_rest_add_up() -> None:
    row = {"cluster_id": "x", "transactional_id": None, "producer_id": None, "severity": "info", "count": 3}
    rows = [row, row | {"producer_id": 0}, row | {"producer_id": 0, "severity": "error"}]
    assert overview.tallied(rows, ["cluster_id", "transactional_id", "producer_id"]) == {
        ("x", None, 0): {"info": 3, "error": 3}
    }


def page(steps: list[overview.RunPoint], shown: int, of: Board | None, *tallies: Any) -> Page:
    found = Page(overview.render_overview(steps, shown, of, *(tallies or ([{}], [{}])), Links("../"), True))
    assert found.faults == []
    return found


def test_the_page_says_what_changed_and_links_to_findings_and_reports() -> None:
    steps = [night(1), night(2, critical=1, info=3)]
    new = samples.finding(
        rule="hanging-transaction", severity="critical", topic="pay", partition=3, message="it hangs", fingerprint="a1"
    )
    found = page(steps, 1, board(steps, 1, [new] * 120, [], 3))
    for said in ("120 new findings, 0 resolved, 3 unchanged", "pay-3", "it hangs", "20 more not shown", "2 runs"):
        assert said in found.text
    links = {a["href"] for a in found.all("a")}
    assert {f"../{room}/night-{n}.html" for room in ("report", "run") for n in (1, 2)} <= links
    assert {"../finding/a1.html", "../index.html"} <= links
    assert "3 info" not in found.text[: found.text.index("Blocked partitions")], "infos are not in the headline"


def test_an_older_run_says_that_it_is_not_the_latest() -> None:
    steps = [night(n) for n in (1, 2, 3)]
    assert "older run" in page(steps, 1, board(steps, 1)).text
    assert "0 new findings, 0 resolved" in page(steps, 2, board(steps, 2)).text
    assert "no previous run" in page(steps, 0, board(steps, 0)).text


def test_no_run_is_said_and_how_to_keep_one() -> None:
    found = Page(overview.render_overview([], 0, None, [], [], Links()))
    assert found.faults == []
    assert "No runs yet" in found.text
    assert "--history" in found.text


def test_a_run_that_read_only_a_part_is_no_all_clear() -> None:
    part = step("a", "", {"verdict": {"tone": "good", "headline": "Nothing is blocked"}})
    whole, less = board([part], 0), dataclasses.replace(board([part], 0), partly="part of the input is unreadable")
    assert 'class="tone-good"' in overview.render_overview([part], 0, whole, [{}], [{}], Links())
    source = overview.render_overview([part], 0, less, [{}], [{}], Links())
    assert 'class="tone-good"' not in source
    assert "part of the input is unreadable" in source


def test_many_runs_are_drawn_around_the_one_that_is_shown() -> None:
    steps = [step(f"run {n}", DAYS_OF.format(n % 28 + 1), {"counts": {"error": n}}) for n in range(900)]
    for shown in (0, 450, 899):
        found = page(steps, shown, board(steps, shown))
        drawn = [a for a in found.all("rect") if (a.get("class") or "").startswith("column")]
        assert len(drawn) == overview.MAX_DRAWN
        assert sum("shown" in (a["class"] or "") for a in drawn) == 1
    assert "500 more not shown" in found.text


def test_hostile_names_are_inert() -> None:
    name = samples.HOSTILE + "\x1b\u202e"
    key = (name, name, 0)
    bad = samples.finding(
        rule=name, topic=name, partition=0, transactional_id=name, group_id=name, producer_id=1, message=name,
        fingerprint=name,
    )  # fmt: skip
    steps = [step("b", "", {"counts": {}}), step(name, "", {"as_of": name, "counts": {"error": 1}})]
    named = board(steps, 1, [bad], [bad])
    named = dataclasses.replace(named, cluster=ClusterLabel(name, name, name, "https://wiki.example/", {name: name}))
    found = page(steps, 1, named, [{key: {"error": 1}}], [{key: {"error": 1}}])
    assert len(found.all("script")) == 1
    assert "alert(1)" not in "".join(found.raw["script"])
    assert found.text.count(samples.HOSTILE) > 12
    assert not [key for _, attributes in found.elements for key in attributes if key.startswith("on")]
    assert all("<" not in (a["href"] or "") and '"' not in (a["href"] or "") for a in found.all("a"))
