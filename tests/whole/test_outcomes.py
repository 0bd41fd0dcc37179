"""Every finding has an outcome, and no surface is green while a critical or error finding is open."""

from __future__ import annotations

import functools
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from auditor import cli
from auditor.api import objects
from auditor.dashboards import overview
from auditor.outputs import alerts, runs
from auditor.outputs.alerts import AlertOptions
from auditor.outputs.runs import Shelf
from auditor.outputs.site import Site, export
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.whole_audit import Audit
from auditor.rules.catalogue import registry
from tests import corpora
from tests.audited import published
from tests.bare_broker import finish
from tests.whole.test_skipped_and_ended import Skipping

BINARY = [*corpora.judged(), *corpora.campaigns()]
# Contract, section 0.
OUTCOMES = {
    "blocked", "lost", "hidden", "exposed", "duplicated", "reordered", "unreadable", "refused", "at_risk", "none",
}  # fmt: skip
GRAVE = ("critical", "error")
MARK = '<span class="chip good">'
CALM = ("no problems", "no other problems", "Nothing to do")
BOARD = re.compile(r'<div class="board".*?\n</div>', re.S)


@pytest.fixture(scope="session")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("outcomes")


@functools.cache
def audit_of(name: str, out: Path) -> Audit:
    """A corpus audited, with its run alone in a history."""
    as_of = corpora.manifest(name).get("as_of", corpora.manifest(name)["copied_at"])
    options = AuditOptions(
        (str(corpora.unpack(name)),), out / name, as_of=as_of, history=out / f"{name}-history", run_id="run"
    )
    return published(options)


def body(page: str) -> str:
    """A page without style and script."""
    return page[page.index("<body") :].rpartition("<script")[0]


def tone(page: str) -> str:
    found = re.search(r'<header class="tone-(\w+)"', page)
    assert found is not None
    return found[1]


def pages(audit: Audit, history: Path) -> dict[str, str]:
    """The report, and the pages of a history about the run."""
    site = Site(Shelf(history))
    addressed = {name: site.page(name) for name in ("", overview.run("run"), overview.report("run"))}
    report = (Path(audit.options.out) / "report.html").read_text(encoding="utf-8")
    return {"report.html": report} | {name or "front": page or "" for name, page in addressed.items()}


@pytest.mark.parametrize("name", BINARY)
def test_no_surface_is_green_beside_an_open_finding(name: str, out: Path) -> None:
    audit = audit_of(name, out)
    lines = [json.loads(line) for line in (out / name / "findings.jsonl").read_text(encoding="utf-8").splitlines()]
    grave = [row for row in lines if row["severity"] in GRAVE]
    verdict = json.loads((out / name / "summary.json").read_text(encoding="utf-8"))["verdict"]
    outcomes = [row["outcome"] for row in grave]
    assert verdict["outcomes"] == {each: outcomes.count(each) for each in set(outcomes)}
    metrics = (out / name / "metrics.prom").read_text(encoding="utf-8")
    counted = re.findall(r'kafka_audit_findings_by_outcome\{.*outcome="(\w+)"\} (\S+)', metrics)
    assert {each: float(value) for each, value in counted} == {each: outcomes.count(each) for each in OUTCOMES}
    if not grave:
        return
    assert verdict["tone"] in ("bad", "warn")
    site = pages(audit, out / f"{name}-history")
    if "blocked" in outcomes:
        for page in site.values():
            assert not re.search(r"Nothing (is|is known to be) blocked", body(page))
        assert not verdict["headline"].startswith("Nothing")
    said = objects.audit_html(verdict["headline"], [], audit.findings)
    assert not [words for words in CALM if words in said]
    for where, page in site.items():
        assert tone(page) in ("bad", "warn"), where
        assert MARK not in body(page), where


@pytest.mark.parametrize("name", BINARY)
def test_every_finding_has_an_outcome_of_its_kind(name: str, out: Path) -> None:
    """Or that of a finding which it explains and which raised it. The field is behind ``severity``."""
    kinds = registry.kinds()
    for line in (out / name / "findings.jsonl").read_text(encoding="utf-8").splitlines() if audit_of(name, out) else ():
        row = json.loads(line)
        names = list(row)
        assert names[names.index("severity") + 1] == "outcome"
        also = {o for each in row["evidence"].get("also", ()) for o in kinds[each["rule"]].outcomes}
        assert row["outcome"] in {*kinds[row["kind"]].outcomes, *also, "none"} <= OUTCOMES, row
        assert row["severity"] != "info" or row["outcome"] == "none"
        told = [row["advice"][name] for name in ("why", "conditions", "steps")]
        assert row["severity"] not in GRAVE or any(told), row  # more than the text of its page
        advice = row["advice"] or {"steps": (), "side_effects": "", "verdict": "", "afterwards": ""}
        does = [step["do"] for step in advice["steps"]]
        stops = [number for number, words in enumerate(does) if "restart broker" in words]
        prepares = [
            number for number, words in enumerate(does) if words.startswith(("before ", "stop the broker only"))
        ]
        assert max(prepares, default=-1) < min(stops, default=len(does)), row  # what must be seen to before the restart
        assert re.search(r"^$|\d|^none: ", advice["side_effects"]), row
        assert advice["verdict"] != "none" or "another replica" not in advice["afterwards"], row


def test_lost_data_is_counted_on_every_page_that_a_finding_says_is_lost(out: Path) -> None:
    """A card that counts lost data is 0 only where no finding says lost, and never green beside other damage."""
    seen = set()
    for name in BINARY:
        audit = audit_of(name, out)
        lost = [f for f in audit.open_findings if f.outcome == "lost" and f.severity in GRAVE]
        page = Site(Shelf(out / f"{name}-history")).page("") or ""
        found = re.search(r'Affected records <span class="count">([\d,]+)</span>', page)
        assert found is not None
        assert not lost or int(found[1].replace(",", "")) >= len(lost), name
        (board,) = BOARD.findall(page)
        grave = any(f.severity in GRAVE for f in audit.open_findings)
        assert not (grave and MARK in board), name
        seen.add((bool(lost), grave))
    assert {(True, True), (False, True), (False, False)} <= seen


def test_an_alert_counts_all_partitions_that_a_finding_is_about(out: Path) -> None:
    """hall-late holds hall.desk-0 and hall.desk-1, which is one finding of its coordinator."""
    audit = audit_of("open-41-killed", out)
    news = alerts.news(audit, AlertOptions())
    told = json.dumps(alerts.slack(news)), json.dumps(alerts.pagerduty(news, "key"))
    for text in told:
        assert "hall.desk-0 has been blocked for" in text
        assert "; 1 more partition is blocked by it" in text
        assert ", and in 1 more partition" in text  # for its owner


def test_suppressed_findings_are_counted_beside_a_green_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = corpora.unpack("hanging-36")
    call = ["audit", str(path), "--master", "inline", "--as-of", str(corpora.manifest("hanging-36")["copied_at"])]
    assert cli.main([*call, "--out", str(tmp_path / "open")]) == 1
    rows = [json.loads(line) for line in (tmp_path / "open" / "findings.jsonl").read_text().splitlines()]
    names = [row["fingerprint"] for row in rows if row["severity"] != "info"]
    grave = sum(row["severity"] in GRAVE for row in rows)
    baseline = tmp_path / "baseline.json"
    words = ["--out", str(tmp_path / "open"), "--baseline", str(baseline), "--reason", "known", "--who", "me"]
    assert cli.main(["baseline", *dict.fromkeys(names), *words]) == 0
    history = tmp_path / "history"
    more = ["--baseline", str(baseline), "--history", str(history), "--run-id", "run", "--out", str(tmp_path / "held")]
    assert cli.main([*call, *more]) == 0
    verdict = json.loads((tmp_path / "held" / "summary.json").read_text())["verdict"]
    assert sum(verdict["suppressed"].values()) == len(names) >= grave > 0
    said = f"{len(names)} findings ("
    assert f"{said}" in verdict["headline"]
    assert "suppressed by the baseline" in verdict["headline"]
    capsys.readouterr()
    page = Site(Shelf(history)).page("") or ""
    (board,) = BOARD.findall(page)
    assert board.count(f"{len(names)} findings suppressed by a baseline") >= 1


@pytest.mark.parametrize("left_out", [1, 2, 3])
def test_what_two_of_three_brokers_do_not_show_is_green_on_no_page(tmp_path: Path, left_out: int) -> None:
    """Two brokers' log directories, first alone, then after a run that saw all three and lost records."""
    whole = corpora.unpack("unclean-43")
    log_dirs = sorted(path.parent for path in whole.rglob("meta.properties"))
    two = [path for path in log_dirs if not path.name.startswith(f"broker-{left_out}")]
    assert len(two) == 4 < len(log_dirs) == 6
    as_of = corpora.manifest("unclean-43").get("as_of", corpora.manifest("unclean-43")["copied_at"])
    for history, order in (("alone", ("two",)), ("after", ("all", "two"))):
        for name in order:
            paths = tuple(map(str, two if name == "two" else log_dirs))
            options = AuditOptions(paths, tmp_path / name, as_of=as_of, history=tmp_path / history, run_id=name)
            audit = published(options)
        verdict = json.loads((tmp_path / "two" / "summary.json").read_text(encoding="utf-8"))["verdict"]
        assert verdict["tone"] != "good"
        assert f"broker {left_out} is not in the input" in verdict["headline"]
        assert ("present in an earlier run" in verdict["headline"]) == (history == "after")
        for where, page in all_pages(audit, tmp_path / history, "two").items():
            assert MARK not in body(page), (where, left_out, history)
            assert tone(page) != "good", (where, left_out, history)


def all_pages(audit: Audit, history: Path, run: str) -> dict[str, str]:
    """The report of an audit, and the pages of its history about that run, its cluster and each finding."""
    export(history, (site := history.parent / "site"))
    shown = {str(path.relative_to(site)): path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    made = {name: Site(Shelf(history)).page(name) or "" for name in (overview.run(run), overview.report(run))}
    report = (Path(audit.options.out) / "report.html").read_text(encoding="utf-8")
    shutil.rmtree(site)
    return {"report.html": report} | shown | made


def test_no_later_run_clears_a_split_decision_that_it_could_not_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """COMMIT in b-0 and, by the next transaction's marker, ABORT in a-0; transaction.version 2 came in between.

    Later runs lack the coordinator's log, the partition, or the rule: none says that it is gone, however many there
    are.
    """
    story = Skipping(tmp_path / "data", 1)
    story.begin()
    story.decide(True, "b-0")
    story.now += 60_000
    story.begin()
    story.decide(False, "a-0", "b-0")
    finish(*story.logs.values(), story.states)
    history = tmp_path / "history"

    def run(name: str, **scope: Any) -> Audit:
        paths = (str(tmp_path / "data"),)
        return published(AuditOptions(paths, tmp_path / name, as_of=story.now, history=history, run_id=name, **scope))

    def split(name: str) -> list[str]:
        rows = [json.loads(line) for line in (tmp_path / name / "findings.jsonl").read_text().splitlines()]
        return [row["fingerprint"] for row in rows if row["kind"] == "split-decision" and row["severity"] == "critical"]

    run("1-before")
    story.version = story.client = 2
    story.now += 60_000
    story.begin()
    story.decide(True, "a-0", "b-0")
    finish(*story.logs.values(), story.states)
    run("2-upgraded")
    (finding,) = split("2-upgraded")
    assert split("1-before") == [finding]
    scoped = run("3-other-topic", topics=("b",)), run("4-without-the-rule", skip_rules=("split-decision",))
    shutil.rmtree(next((tmp_path / "data").rglob("__transaction_state-0")))
    late = (run("5-without-coordinator"), run("6-again"))
    for audit in (*scoped, *late):
        name = str(audit.options.run_id)
        assert split(name) == []
        assert "1 critical or error finding of earlier runs not checked" in audit_headline(tmp_path / name)
        news = alerts.slack(alerts.news(audit, AlertOptions()))
        assert " 0 resolved" in news["text"]
        for where, page in all_pages(audit, history, name).items():
            assert MARK not in body(page), (where, name)
            assert tone(page) != "good", (where, name)
    assert "not checked in the latest run" in (Site(Shelf(history)).page(overview.finding(finding)) or "")
    monkeypatch.setattr(runs, "LATELY", 1)
    for name in ("7-other-topic", "8-other-topic"):
        audit = run(name, topics=("b",))
        assert "1 critical or error finding of earlier runs not checked" in audit_headline(tmp_path / name)
        for where, page in all_pages(audit, history, name).items():
            assert tone(page) != "good", (where, name)


def audit_headline(folder: Path) -> str:
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return str(summary["verdict"]["headline"])
