"""Accepted findings: counted apart, not printed, no failure, and back when their day is over or they are graver."""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from auditor import cli
from auditor.base.errors import AuditInputError
from auditor.commands import watch
from auditor.outputs import alerts, delivery
from auditor.pipeline import options as baseline
from auditor.pipeline.options import AcceptedFinding, AuditOptions, Baseline
from auditor.pipeline.whole_audit import Audit
from tests import corpora
from tests.facts import here

DAY = datetime.date(2026, 11, 21)
A, B = "a" * 64, "b" * 64
LAST_MS, NEXT_MS = 1795305599999, 1795305600000  # 2026-11-21T23:59:59.999Z, and a millisecond later


def entry(
    fingerprint: str = A, severity: str = "error", until: datetime.date | None = DAY, rule: str = ""
) -> AcceptedFinding:
    return AcceptedFinding(fingerprint, severity, "known", "ann", until, rule)


def of(*entries: AcceptedFinding) -> Baseline:
    return Baseline("f", {e.fingerprint: e for e in entries})


@pytest.mark.parametrize(
    ("severity", "as_of", "accepts"),
    [("error", LAST_MS, True), ("error", NEXT_MS, False), ("warning", LAST_MS, True), ("critical", LAST_MS, False)],
)
def test_an_entry_counts_to_the_end_of_its_day_and_up_to_its_severity(severity: str, as_of: int, accepts: bool) -> None:
    found = baseline.compare(of(entry()), [(A, severity)], as_of, ())
    assert [e is not None for e in found.accepted] == [accepts]
    assert [e.fingerprint for e, _ in found.back] == ([] if accepts else [A])


def test_without_a_day_an_entry_has_no_end() -> None:
    assert baseline.compare(of(entry(until=None)), [(A, "error")], 1 << 50, ()).accepted[0] is not None


def test_what_no_finding_has_is_said_only_where_it_was_looked_for() -> None:
    given = of(entry(A, rule="r"), entry(B, rule="other"))
    assert [e.fingerprint for e in baseline.compare(given, [], 0, ["r"]).gone] == [A]
    assert baseline.compare(given, [], 0, None).gone == ()
    of_one = of(dataclasses.replace(entry(), cluster="one"))
    assert [e.fingerprint for e in baseline.compare(of_one, [], 0, [], ["one"]).gone] == [A]
    assert baseline.compare(of_one, [], 0, [], ["two"]).gone == []


def test_one_file_for_two_clusters_keeps_the_entries_of_each(
    first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second is the first under another id, without what was accepted of that."""
    copy, file = tmp_path / "copy", tmp_path / "b.json"
    shutil.copytree(corpora.unpack("hanging-36"), copy)
    for meta in copy.rglob("meta.properties"):
        meta.write_text(re.sub("cluster.id=.*", "cluster.id=another", meta.read_text()))
    assert cli.main(["baseline", "--out", str(first / "out"), "--baseline", str(file), "--reason", "known"]) == 0
    kept = baseline.read_baseline(file).entries
    assert {e.cluster for e in kept.values()} == {"Q0xVU1RFUi0tLS0tLS0tLQ"}
    out = str(tmp_path / "out")
    cli.main(["audit", str(copy), "--out", out, "--master", "inline[1]", "--baseline", str(file), "--format", "json"])
    assert "matches nothing" not in capsys.readouterr().err
    assert cli.main(["baseline", "--out", out, "--baseline", str(file), "--prune"]) == 0
    assert baseline.read_baseline(file).entries == kept


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not a baseline"),
        ("[]", "has no list 'accepted'"),
        ('{"accepted": [{"fingerprint": "ab"}]}', "entry 1 has no fingerprint"),
        (json.dumps({"accepted": [entry().row() | {"reason": " "}]}), "entry 1 has no reason"),
        (json.dumps({"accepted": [entry().row() | {"severity": "bad"}]}), "entry 1: invalid severity: expected one of"),
        (json.dumps({"accepted": [entry().row() | {"until": "soon"}]}), "invalid .*entry 1 'soon': expected a date"),
    ],
)
def test_a_file_that_is_no_baseline_is_a_mistake(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "b.json").write_text(text, encoding="utf-8")
    with pytest.raises(AuditInputError, match=says):
        baseline.read_baseline(tmp_path / "b.json")
    with pytest.raises(AuditInputError, match="cannot read"):
        baseline.read_baseline(tmp_path / "none")


def test_a_file_reads_as_it_was_written(tmp_path: Path) -> None:
    entries = {A: entry(), B: entry(B, until=None, rule="r")}
    (tmp_path / "b.json").write_text(baseline.text_of(entries.values()), encoding="utf-8")
    assert baseline.read_baseline(tmp_path / "b.json").entries == entries


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a run without a baseline; its history beside it."""
    folder = tmp_path_factory.mktemp("first")
    assert cli.main([*call(folder / "out"), "--history", str(folder / "kept"), "--run-id", "1", "--quiet"]) == 1
    return folder


def call(out: Path) -> list[str]:
    as_of = str(corpora.manifest("hanging-36")["copied_at"])
    return ["audit", str(corpora.unpack("hanging-36")), "--out", str(out), "--as-of", as_of, "--master", "inline[1]"]


def test_what_is_accepted_is_in_the_results_and_nowhere_else(
    first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = str(tmp_path / "b.json"), tmp_path / "out"
    accept = ["baseline", "--out", str(first / "out"), "--baseline", file, "--rule", "hanging-transaction"]
    assert cli.main([*accept, "--reason", "OPS-17", "--who", "ann", "--until", "never"]) == 0
    assert capsys.readouterr().out == f"4 findings suppressed by ann without expiry: OPS-17\n{file} has 4 entries\n"
    history = ["--history", str(first / "kept"), "--run-id", "2"]
    assert cli.main([*call(out), "--baseline", file, *history]) == 0
    said = capsys.readouterr().out
    assert said.startswith("No other problems found")
    assert "4 partitions blocked (suppressed by the baseline)" in " ".join(said.split())
    assert "hanging-transaction" not in said
    assert "Blocked, suppressed by the baseline:\n  bank.ledger-0 at offset 71, by" in said
    assert (out / "findings.jsonl").read_bytes() == (first / "out" / "findings.jsonl").read_bytes()
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert summary["counts"]["by_severity"] == {"critical": 0, "error": 0, "warning": 0, "info": 3}
    assert summary["baseline"]["counts"]["by_rule"] == {"hanging-transaction": 4}
    metrics = (out / "metrics.prom").read_text(encoding="utf-8")
    label = 'cluster="Q0xVU1RFUi0tLS0tLS0tLQ"'
    assert f'kafka_audit_accepted_findings{{{label},severity="critical"}} 4.0' in metrics
    assert f'kafka_audit_blocked_partitions{{{label},standing="stuck"}} 0.0' in metrics
    assert f'kafka_audit_blocked_partitions{{{label},standing="accepted"}} 4.0' in metrics
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "4 findings (4 critical) suppressed by" in page
    assert page.count("; suppressed by the baseline") == 4


def test_alerts_end_for_what_is_accepted_and_come_once_when_it_is_back(first: Path, tmp_path: Path) -> None:
    rows = delivery.read(first / "out").findings
    grave = {row["fingerprint"] for row in rows if row["severity"] == "critical"}
    file = tmp_path / "b.json"
    entries = [AcceptedFinding(name, "critical", "known", "ann", None) for name in grave]
    file.write_text(baseline.text_of(entries), encoding="utf-8")
    copied_at = corpora.manifest("hanging-36")["copied_at"]

    def news_of(run_id: str, given: Path | None) -> alerts.News:
        options = AuditOptions(
            (str(corpora.unpack("hanging-36")),), tmp_path / run_id, as_of=copied_at, baseline=given,
            history=first / "alerts", run_id=run_id,
        )  # fmt: skip
        from auditor import running

        audit = Audit(options, here())
        running.write(audit)
        return alerts.news(audit, alerts.AlertOptions(least="critical"))

    def names(rows: Any) -> set[str]:
        return {row["fingerprint"] for row in rows}

    assert names(news_of("a", None).new) == grave
    accepted = news_of("b", file)
    assert (names(accepted.new), names(accepted.gone), names(accepted.still)) == (set(), grave, set())
    again = news_of("c", file)
    assert (again.new, again.gone, again.still) == ([], [], [])
    assert names(news_of("d", None).new) == grave


def test_a_watch_reports_nothing_that_is_accepted(first: Path, tmp_path: Path) -> None:
    names = [row["fingerprint"] for row in delivery.read(first / "out").findings]
    file = tmp_path / "b.json"
    file.write_text(baseline.text_of([entry(names[0], "critical", None)]), encoding="utf-8")
    as_of = corpora.manifest("hanging-36")["copied_at"]
    options = AuditOptions((str(corpora.unpack("hanging-36")),), tmp_path, as_of=as_of, baseline=file)
    holding = watch._holding(Audit(options, here()))
    assert {row["fingerprint"] for row in holding.values()} == set(names[1:])


def test_fingerprints_prefixes_and_prune(first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "b.json"
    file.write_text(baseline.text_of([entry()]), encoding="utf-8")
    name = delivery.read(first / "out").findings[0]["fingerprint"]
    common = ["baseline", "--out", str(first / "out"), "--baseline", str(file)]
    assert cli.main([*common, "fff0000000"]) == 2
    assert cli.main([*common, "--rule", "no-such"]) == 2
    assert cli.main([*common, name[:12], "--who", "bob", "--until", "2026-12-31"]) == 0
    assert baseline.read_baseline(file).entries.keys() == {A, name}
    assert cli.main([*common, "--prune"]) == 0
    assert baseline.read_baseline(file).entries.keys() == {name}
    assert capsys.readouterr().out.endswith(f"1 entry removed\n{file} has 1 entry\n")
    assert cli.main([*common, "--until", "someday"]) == 2
    assert cli.main(["baseline", "--out", str(tmp_path)]) == 2
