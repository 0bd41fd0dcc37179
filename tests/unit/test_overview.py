"""The dashboard over many runs, as arithmetic and as a page."""

from __future__ import annotations

from typing import Any

from auditor.dashboards import overview
from auditor.dashboards.overview import Changes, step
from tests.unit import report_samples as samples
from tests.unit.html_page import Page


def night(n: int, **counts: int) -> overview.Step:
    return step(f"night-{n}", {"as_of": f"2026-11-{n:02d}T04:00:00.000Z", "counts": counts, "batches": n})


def test_a_bar_is_as_high_as_its_share_of_the_most() -> None:
    trend = overview.draw([night(1, critical=4), night(2, critical=1), night(3, error=7)])
    critical, error, warning, info = trend.lanes
    assert [bar[3] for bar in critical.bars] == [34.0, 8.5, 0.0]
    assert [bar[1] + bar[3] for bar in critical.bars] == [critical.y] * 3
    assert [bar[3] for bar in error.bars] == [0.0, 0.0, 34.0]
    assert all(bar[3] == 0 for lane in (warning, info) for bar in lane.bars)
    assert all(x + width <= overview.WIDTH for x, width, _ in trend.columns)


def test_a_number_stands_where_it_changes() -> None:
    lane = overview.draw([night(n, info=count) for n, count in enumerate((5, 5, 6, 0, 6), 1)]).lanes[3]
    assert [bar[5] for bar in lane.bars] == [True, False, True, False, True]


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
    assert [(r.key[1], r.worst, r.seen) for r in ranks] == [
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


def page(steps: list[overview.Step], shown: int, changes: Changes, *tallies: Any) -> Page:
    found = Page(overview.render_overview(steps, steps[shown], changes, *(tallies or ([{}], [{}]))))
    assert found.faults == []
    return found


def test_the_page_says_what_changed_and_links_to_the_reports() -> None:
    steps = [night(1), night(2, critical=1, info=3)]
    new = samples.finding(rule="hanging-transaction", severity="critical", topic="pay", partition=3, message="it hangs")
    found = page(steps, 1, Changes([new], [], 120, 0, 3))
    for said in ("120 new findings, 0 gone, 3 still there", "pay-3", "it hangs", "119 more not shown", "2 runs"):
        assert said in found.text
    links = [a["href"] for a in found.all("a")]
    assert {"report/night-1", "report/night-2", "?run=night-1", "?run=night-2"} <= set(links)
    assert 'class="tone-bad"' in overview.render_overview(steps, steps[1], Changes(), [{}], [{}])
    assert 'class="tone-good"' in overview.render_overview(steps, steps[0], Changes(), [{}], [{}])


def test_an_older_run_says_that_it_is_not_the_latest() -> None:
    steps = [night(n) for n in (1, 2, 3)]
    assert "not the latest run" in page(steps, 1, Changes()).text
    assert "Nothing has changed since the run before" in page(steps, 2, Changes()).text
    assert "there is no run before this one" in page(steps, 0, Changes()).text


def test_no_run_is_said_and_how_to_keep_one() -> None:
    found = Page(overview.render_overview([], None, Changes(), [], []))
    assert found.faults == []
    assert "No run is kept here yet" in found.text
    assert "--history" in found.text


def test_a_run_that_read_only_a_part_is_no_all_clear() -> None:
    part = step("a", {"complete": False})
    source = overview.render_overview([part], part, Changes(), [{}], [{}])
    assert 'class="tone-good"' not in source
    assert "part of the input could not be read" in source


def test_many_runs_are_drawn_around_the_one_that_is_shown() -> None:
    steps = [night(n % 28 + 1, info=n) for n in range(500)]
    steps = [step(f"run {n}", each.facts) for n, each in enumerate(steps)]
    for shown in (0, 250, 499):
        found = page(steps, shown, Changes())
        drawn = [a for a in found.all("rect") if (a.get("class") or "").startswith("column")]
        assert len(drawn) == overview.MAX_RUNS
        assert sum("shown" in (a["class"] or "") for a in drawn) == 1
    assert "100 more not shown here" in found.text


def test_hostile_names_are_inert() -> None:
    name = samples.HOSTILE + "\x1b\u202e"
    key = (name, name, 0)
    bad = samples.finding(
        rule=name, topic=name, partition=0, transactional_id=name, group_id=name, producer_id=1, message=name
    )
    steps = [step(name, {"as_of": name, "counts": {"error": 1}}), step("b", {"counts": {}})]
    found = page(steps, 0, Changes([bad], [bad], 1, 1, 0), [{key: {"error": 1}}], [{key: {"error": 1}}])
    assert len(found.all("script")) == 1
    assert "alert(1)" not in "".join(found.raw["script"])
    assert found.text.count(samples.HOSTILE) > 12
    assert not [key for _, attributes in found.elements for key in attributes if key.startswith("on")]
    assert all("<" not in (a["href"] or "") and '"' not in (a["href"] or "") for a in found.all("a"))
