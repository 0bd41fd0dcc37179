"""Runs whose input lacks what an earlier one had: what they did not look for is not gone, and new only once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from auditor import cli
from auditor.dashboards import overview
from auditor.outputs import alerts, publish, runs
from auditor.outputs.alerts import AlertOptions
from auditor.outputs.runs import Shelf
from auditor.outputs.site import Site
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.whole_audit import Audit
from tests import corpora
from tests.facts import here
from tests.unit.html_page import Page
from tests.unit.test_clusters import publish as keep

ONE, TWO = {"broker 1": 1}, {"broker 2": 1}


def told(history: Path) -> list[tuple[list[str], list[str], list[str]]]:
    """What is new, gone and not looked for in each run, by the last letters of fingerprints."""
    shelf, known = Shelf(history), runs.committed(history)
    every = (runs.changes_of(shelf, known[:at], run) for at, run in enumerate(known))
    return [tuple(sorted(name[1:] for name in part) for part in (c.new, c.gone, c.unseen)) for c in every]  # type: ignore[misc]


def test_each_broker_s_copy_by_itself_tells_of_its_own(tmp_path: Path) -> None:
    """5 is of broker 1, 7 of broker 2: each comes once and goes once, whichever was audited in between."""
    for night, (brokers, *there) in enumerate(
        [(ONE, 5), (TWO, 7), (ONE, 5), (TWO, 7), (ONE,), (TWO, 7), (ONE,), (TWO,), (ONE, 5)], 10
    ):
        keep(tmp_path, "c", night, *there, brokers=brokers)
    assert told(tmp_path) == [
        (["5"], [], []), (["7"], [], ["5"]), ([], [], ["7"]), ([], [], ["5"]), ([], ["5"], ["7"]),
        ([], [], []), ([], [], ["7"]), ([], ["7"], []), (["5"], [], []),
    ]  # fmt: skip
    known = runs.committed(tmp_path)
    assert runs.is_partial(known[:1], known[1]) == "broker 1 missing from the input (present in an earlier run)"
    assert runs.is_partial((), known[0]) == runs.is_partial(known[:1], known[2]) == ""


def test_a_broker_that_is_missing_for_a_night_clears_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On no surface: not the front page, not the finding's, not the list."""
    both = ONE | {"broker 2": 2}
    keep(tmp_path, "c", 20, 5, brokers=both)
    keep(tmp_path, "c", 21, brokers=ONE)
    page = Page(Site(Shelf(tmp_path)).front())
    assert "0 new findings, 0 resolved, 0 unchanged, 1 not checked" in page.text
    assert "broker 2 missing from the input (present in an earlier run)" in page.text
    assert page.all("header")[0]["class"] != "tone-good"
    story = Page(Site(Shelf(tmp_path)).page("finding/c5.html") or "")
    assert "not checked in the latest run broker 2 missing from the input (present in an earlier run)" in story.text
    assert story.all("header")[0]["class"] == "tone-unsure"
    assert cli.main(["history", str(tmp_path)]) == 0
    assert [line.partition("batches")[2] for line in capsys.readouterr().out.splitlines()] == [
        "", "  broker 2 missing from the input (present in an earlier run)",
    ]  # fmt: skip
    keep(tmp_path, "c", 22, brokers=both | {"broker 2": 1})
    assert "a log directory of broker 2 missing from the input" in (Site(Shelf(tmp_path)).page("finding/c5.html") or "")
    keep(tmp_path, "c", 23, brokers=both)
    assert told(tmp_path)[1:] == [([], [], ["5"]), ([], [], ["5"]), ([], ["5"], [])]
    story = Page(Site(Shelf(tmp_path)).page("finding/c5.html") or "")
    assert story.all("header")[0]["class"] == "tone-good"
    assert "resolved in c-23" in story.text


@pytest.mark.parametrize(("all_logs", "said"), [(False, ([], [], ["5"])), (True, ([], ["5"], []))])
def test_a_log_that_is_not_in_the_input_was_deleted_where_that_is_known(
    tmp_path: Path, all_logs: bool, said: object, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(tmp_path, "c", 20, 5, brokers=ONE, logs=[0, 1])
    keep(tmp_path, "c", 21, brokers=ONE, logs=[1], all_logs=all_logs)
    assert told(tmp_path)[1] == said
    assert cli.main(["history", str(tmp_path), "--diff", "previous", "latest"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == (
        "0 new, 1 resolved, 0 unchanged" if all_logs else "0 new, 0 resolved, 0 unchanged, 1 not checked"
    )
    assert out[0].startswith("gone " if all_logs else "unseen ")


def test_a_log_that_both_runs_lack_is_no_reason(tmp_path: Path) -> None:
    """A partition that coordinators name, of a broker that is in no input."""
    keep(tmp_path, "c", 20, 5, brokers=ONE, logs=[1])
    keep(tmp_path, "c", 21, brokers=ONE, logs=[1])
    assert told(tmp_path)[1] == ([], ["5"], [])


def test_audits_of_one_broker_after_another_resolve_nothing(tmp_path: Path) -> None:
    """Three brokers of a real cluster by themselves, then one without a log, then the rest: alerts and pages."""
    copies, history = tmp_path / "copies", tmp_path / "history"
    shutil.copytree(corpora.unpack("replicas-39-unclean"), copies)
    as_of = corpora.manifest("replicas-39-unclean")["copied_at"]

    def news(run_id: str, *brokers: int) -> Any:
        paths = tuple(str(copies / f"broker-{n}") for n in brokers)
        audit = Audit(AuditOptions(paths, tmp_path, history=history, run_id=run_id, as_of=as_of), here())
        publish.keep(audit, publish.run_report(audit), {})
        return alerts.news(audit, AlertOptions(least="info"))

    first = news("1", 1, 2, 3)
    names = {row["fingerprint"] for row in first.new}
    assert names
    for run_id, broker in (("2", 1), ("3", 2)):
        assert news(run_id, broker).gone == []
    again = news("4", 1, 2, 3)
    assert ({row["fingerprint"] for row in again.still}, again.gone) == (names, [])
    (partition,) = {(row["topic"], row["partition"]) for row in first.new[:1]}
    for folder in copies.rglob(f"{partition[0]}-{partition[1]}"):
        shutil.rmtree(folder)
    assert partition not in {(row["topic"], row["partition"]) for row in news("5", 1, 2, 3).gone}
    page = Page(Site(Shelf(history)).page(overview.finding(first.new[0]["fingerprint"])) or "")
    assert "the log is missing from the input (present in an earlier run)" in page.text
