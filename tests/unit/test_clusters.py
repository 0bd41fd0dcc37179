"""A history of many clusters: a row each, compared with its own run before, and overdue where none came."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from auditor import cli
from auditor.dashboards.overview import Links, render_clusters
from auditor.outputs import runs
from auditor.outputs import runs as clusters
from auditor.outputs.runs import Shelf
from auditor.outputs.site import Site
from auditor.pipeline import summary as pipeline_summary
from tests.unit import report_samples as samples
from tests.unit.html_page import Page
from tests.unit.test_kept_runs import finding


def now(**later: int) -> datetime.datetime:
    """The time, or one later. Not that at which this file was imported: that may be an hour ago."""
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(**later)


def publish(
    history: Path, cluster: str, night: int, *offsets: int, complete: bool = True, asked: str = "",
    logs: Sequence[int] | None = None, **facts: Any,
) -> None:  # fmt: skip
    """A run with an error at each of some offsets; ``logs``: the partitions that it read."""
    rows = [finding(partition=0, offset=offset) for offset in offsets]
    found = [
        row | {"fingerprint": f"{cluster}{row['offset']}", "cluster_id": cluster, "evidence": "{}"} for row in rows
    ]
    facts |= {
        "as_of": f"2026-11-{night:02d}T04:00:00.000Z", "counts": {"error": len(rows)}, "batches": 1,
        "complete": complete, "clusters": [cluster], "asked": asked,
    }  # fmt: skip
    tables = {
        "findings": pa.Table.from_pylist(found, schema=pipeline_summary.FINDINGS),
    }
    if logs is not None:
        read = [{"cluster_id": cluster, "log_dir": "", "topic": "t", "partition": n} for n in logs]
        tables["logs"] = pa.Table.from_pylist(read, schema=pipeline_summary.LOGS)
    runs.publish(history, f"{cluster}-{night}{asked.partition(' ')[0]}", tables, facts,
                 samples.empty_summary(as_of=facts["as_of"]))  # fmt: skip


@pytest.fixture
def history(tmp_path: Path) -> Path:
    for night in (19, 20, 21):
        publish(tmp_path, "well", night)
        publish(tmp_path, "ill", night, *([night, 5] if night > 19 else []))
    publish(tmp_path, "torn", 21, complete=False)
    return tmp_path


def test_a_row_a_cluster_the_worst_first(history: Path) -> None:
    found = clusters.standings(Shelf(history), runs.committed(history), now())
    assert [each.name for each in found] == ["ill", "torn", "well"]
    ill, torn, well = found
    assert (ill.runs, ill.new, ill.gone, ill.since) == (3, 1, 1, "2026-11-20T04:00:00.000Z")
    assert (torn.new, torn.partly, torn.since) == (None, "part of the input is unreadable", None)
    assert (well.new, well.gone, well.worst) == (0, 0, None)


def test_who_has_had_no_run_for_half_as_long_again_is_overdue(history: Path) -> None:
    day = 86_400_000
    known = runs.committed(history)
    for hours, late in ((35, False), (37, True)):
        found = clusters.standings(Shelf(history), known, now(hours=hours), day)
        assert {each.overdue for each in found} == {late}
    # By what it did before: the runs of the test are moments apart, and one run alone tells nothing.
    found = clusters.standings(Shelf(history), known, now(hours=2))
    assert {each.name: each.overdue for each in found} == {"ill": True, "well": True, "torn": False}


def test_the_run_before_is_one_of_the_same_cluster(history: Path) -> None:
    before = runs.before(history, None, ["ill"])
    assert before is not None
    assert before.run_id == "ill-21"


def test_the_dashboard_opens_with_the_clusters_and_leads_into_one(history: Path) -> None:
    site = Site(Shelf(history))
    page = Page(site.page("") or "")
    assert page.faults == []
    said = "Records lost in 1 of 3 clusters; 1 incomplete"
    assert said in page.text
    rows = [a["href"] for a in page.all("a") if a.get("class") == "where" and "cluster/" in (a["href"] or "")]
    assert rows == ["cluster/ill.html", "cluster/torn.html", "cluster/well.html"]
    inside = Page(site.page("cluster/ill.html") or "")
    assert "1 new finding, 1 resolved, 1 unchanged" in inside.text
    assert "well-21" not in inside.text
    assert "all clusters" in inside.text


def test_a_run_that_looked_at_a_part_stands_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Somebody asked for one topic, found nothing, and the cluster is as ill as it was; nor is that run ever due."""
    publish(tmp_path, "ill", 20, 5)
    publish(tmp_path, "ill", 21, 5, 6)
    publish(tmp_path, "ill", 21, asked="--topic well")
    late = now(days=3)
    whole, part = clusters.standings(Shelf(tmp_path), runs.committed(tmp_path), late, 86_400_000)
    assert (whole.name, whole.runs, whole.new, whole.gone, whole.overdue) == ("ill", 2, 1, 0, True)
    assert (part.name, part.runs, part.new, part.overdue) == ("ill --topic well", 1, None, False)
    site = Site(Shelf(tmp_path))
    front = Page(site.front()).text
    assert "1 new finding, 0 resolved, 1 unchanged" in front, "the cluster's own page, as there is no other cluster"
    assert "--topic" not in front
    assert "ill --topic well" in Page(site.page("run/ill-21--topic.html") or "").text
    assert "is gone" not in Page(site.page("finding/ill5.html") or "").text
    assert cli.main(["history", str(tmp_path), "--cluster", "ill", "--diff", "previous", "latest"]) == 2, "asked once"
    assert cli.main(["history", str(tmp_path), "--diff", "ill-20", "ill-21"]) == 0
    assert "1 new, 0 resolved, 1 unchanged" in capsys.readouterr().out


def test_who_only_looks_at_parts_sees_them_in_front(tmp_path: Path) -> None:
    for night in (20, 21):
        for topic in ("a", "b"):
            publish(tmp_path, f"{topic}", night, 5, asked=f"--topic {topic}")
    assert [each.name for each in clusters.standings(Shelf(tmp_path), runs.committed(tmp_path), now())] == [
        "a --topic a", "b --topic b",
    ]  # fmt: skip
    text = Page(Site(Shelf(tmp_path)).front()).text
    assert "a --topic a" in text
    assert "b --topic b" in text


def test_one_cluster_has_no_page_of_clusters(tmp_path: Path) -> None:
    publish(tmp_path, "only", 21, 1)
    assert "run only-21" in (Site(Shelf(tmp_path)).page("index.html") or "").replace('<span class="id">', "").lower()


def test_hostile_names_are_inert(tmp_path: Path) -> None:
    for name in (samples.HOSTILE, "other"):
        publish(tmp_path, name, 21, 1)
    text = Site(Shelf(tmp_path)).front()
    assert Page(text).faults == []
    assert len(Page(text).all("script")) == 1
    assert render_clusters([], Links()) != ""


def test_the_command_says_the_same(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["history", str(history)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("ill  0 critical, 2 error")
    assert "1 new, 1 resolved; critical or error since 2026-11-20 04:00:00 UTC; last run ill-21" in lines[0]
    assert cli.main(["history", str(history), "--diff", "previous", "latest"]) == 2
    assert "--cluster" in capsys.readouterr().err
    assert cli.main(["history", str(history), "--cluster", "ill", "--diff", "previous", "latest"]) == 0
    assert "1 new, 1 resolved, 1 unchanged" in capsys.readouterr().out
    assert cli.main(["history", str(history), "--cluster", "none"]) == 2


def test_one_cluster_that_is_overdue_says_so_and_is_no_all_clear(tmp_path: Path) -> None:
    publish(tmp_path, "only", 21)
    site = Site(Shelf(tmp_path), every_ms=3_600_000)
    assert "overdue" not in site.front()
    monday = {"published_at": (now() - datetime.timedelta(days=3)).isoformat()}
    site.all_runs = [dataclasses.replace(run, **monday) for run in site.all_runs]
    site.by_cluster = clusters.by_cluster(site.all_runs)
    page = site.front()
    assert "overdue: no run for 3" in page
    assert 'class="tone-good"' not in page


def test_many_clusters_are_as_unsure_as_their_runs_were(history: Path) -> None:
    """A run that read damage is unsure, which its findings and what is held do not show."""
    known = runs.committed(history)
    facts = {"verdict": {"tone": "unsure", "headline": "Nothing is blocked in what could be read"}, "counts": {}}
    site = Site(Shelf(history))
    tones = []
    for kept in ({}, facts):
        site.all_runs = [
            dataclasses.replace(r, facts=r.facts | kept) for r in known if r.run_id in ("well-21", "well-20")
        ]
        other = dataclasses.replace(site.all_runs[0], facts={**site.all_runs[0].facts, "clusters": ["other"]})
        site.all_runs.append(other)
        site.by_cluster = clusters.by_cluster(site.all_runs)
        tones.append(Page(site.front()).all("header")[0]["class"])
    assert tones == ["tone-good", "tone-unsure"]


def test_a_finding_that_a_run_could_not_look_for_is_not_gone(tmp_path: Path) -> None:
    publish(tmp_path, "torn", 20, 5)
    publish(tmp_path, "torn", 21, complete=False)
    page = Page(Site(Shelf(tmp_path)).page("finding/torn5.html") or "")
    assert "not checked in the latest run part of the input is unreadable" in page.text
    assert page.all("header")[0]["class"] == "tone-unsure"


def test_a_table_that_is_read_twice_at_a_time_counts_once(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pages that are asked for side by side: else the shelf takes itself for full, and keeps nothing any more."""
    shelf, read, inside = Shelf(history), runs.read, list[int]()
    run = next(each for each in runs.committed(history) if each.run_id == "ill-21")

    def slow(*args: Any) -> pa.Table:
        if not inside:
            inside.append(1)
            shelf.read(run, "findings")
        return read(*args)

    monkeypatch.setattr(runs, "read", slow)
    found = shelf.read(run, "findings")
    assert shelf._bytes == found.nbytes
