"""Each partition that is held stands one way, for headline, card, timeline, metrics, summary, suite and exit status."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from auditor import running
from auditor.dashboards import answers, metrics, terminal
from auditor.dashboards.answers import report_of
from auditor.dashboards.finding_groups import Printing
from auditor.outputs import printing
from auditor.outputs.publish import report_page, run_report
from auditor.pipeline.derived_tables import of_log
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.whole_audit import Audit
from auditor.rules.catalogue import registry
from tests import corpora
from tests.facts import corpus_audit, here, logs_of, opened
from tests.terminal_text import expanded
from tests.whole.test_incidents_transactions import LATER, Bank
from tests.whole.test_live_verdicts import DECIDED, MIN, live

CORPORA = [*corpora.judged(), *corpora.campaigns()]
RED = ("stuck", "overdue", "undeliverable")
NEVER_ENDING = ("hanging", "orphan", "ghost")
GRAVE = ("critical", "error")
DAY = 86_400_000
STATUSES = {
    "stuck": {"hanging"},
    "overdue": {"overdue", "prepared"},
    "undeliverable": {"prepared"},
    "unknown": {"unknown"},
    "waiting": {"open", "prepared", "completed"},
}
CONFIDENCE = {"inconclusive": "undecidable"}  # as findings have it
TRANSACTIONS = (
    "hanging-transaction", "long-open-transaction", "lso-stuck", "transaction-pinned-at-log-start",
    "pending-offsets-blocked",
)  # fmt: skip


def agree(audit: Audit, folder: Path) -> None:
    """All that is said of the partitions that are held, by each surface."""
    findings, summary = run_report(audit).findings, run_report(audit).summary
    rows = list(summary["blocked"])
    red = [row for row in rows if row["standing"] in RED]
    for row in rows:
        assert (row["severity"] in GRAVE) == (row["standing"] in RED)
        assert (row["class"] == "undecidable" and row["severity"] not in GRAVE) or row["standing"] != "unknown"
        assert row["class"] not in NEVER_ENDING or row["standing"] == "stuck"
        assert row["if_true"] is None or row["standing"] == "unknown"
        assert row["status"] in STATUSES[row["standing"]]
        assert (row["certainty"] == "inconclusive") == (row["standing"] == "unknown")
        assert row["held_at_least_ms"] is None or row["held_at_least_ms"] <= row["age_ms"]
    of_findings(audit, rows)
    of_exit(audit, summary, red)
    of_headline(findings, summary, red)
    of_metrics(folder, findings, summary)
    of_tables(audit, rows)
    of_page(audit, rows)
    of_terminal(findings, summary)


def of_findings(audit: Audit, rows: list[dict[str, Any]]) -> None:
    """What a finding on a transaction calls certain is certain everywhere."""
    for row in rows:
        about = [
            f for f in audit.findings if (f.kind, f.topic, f.partition) == (row["rule"], row["topic"], row["partition"])
        ]
        for f in about:
            if (f.producer_id, f.offset) == (row["producer_id"], row["first_offset"]) and "summed" not in f.evidence:
                assert f.evidence["confidence"] == CONFIDENCE.get(row["certainty"], row["certainty"])
                assert f.evidence["class"] == row["class"]
                assert (f.if_true, f.severity) == (row["if_true"], row["severity"])


def of_exit(audit: Audit, summary: dict[str, Any], red: list[dict[str, Any]]) -> None:
    grave = [f for f in audit.findings if f.severity in GRAVE]
    assert summary["verdict"]["exit"] == audit.exit_code()
    if summary["complete"]:
        assert audit.exit_code() == int(bool(red or grave))
    for row in red:  # what blocks is a finding too, at the holder or at its coordinator
        mine = [f for f in grave if f.producer_id == row["producer_id"]]
        assert any((f.topic, f.partition) == (row["topic"], row["partition"]) for f in mine) or any(
            f.topic == "__transaction_state" for f in mine
        )
    places = {(row["topic"], row["partition"]) for row in red}
    for finding in grave:  # and what is a finding on what holds a partition, blocks, or explains something else
        if finding.kind in TRANSACTIONS and (finding.topic, finding.partition) not in places:
            others = [o["severity"] for o in finding.evidence.get("also", ()) if o["rule"] not in TRANSACTIONS]
            assert set(others) & set(GRAVE)


def of_headline(findings: list[dict[str, Any]], summary: dict[str, Any], red: list[dict[str, Any]]) -> None:
    decided = answers.report_of(findings, summary).verdict
    assert (decided.tone, decided.headline) == (summary["verdict"]["tone"], summary["verdict"]["headline"])
    assert (decided.tone in ("bad", "warn") and "warning" not in decided.headline) == any(
        summary["counts"]["by_severity"][name] for name in GRAVE
    )
    assert len(decided.held) == len({(row["topic"], row["partition"]) for row in red})  # two may hold one partition
    if red:
        assert "blocked" in decided.headline
    out = io.StringIO()
    terminal.print_findings(report_of(findings, summary), out, 4000)
    assert out.getvalue().split("\n")[0].partition(". Scanned")[0].lower() == decided.headline.lower()


def of_metrics(folder: Path, findings: list[dict[str, Any]], summary: dict[str, Any]) -> None:
    metrics.write_metrics(folder / "metrics.prom", report_of(findings, summary))
    text = (folder / "metrics.prom").read_text(encoding="utf-8")
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    counted = {s.labels["standing"]: s.value for s in samples if s.name == "kafka_audit_blocked_partitions"}
    for name in (*RED, "unknown", "waiting"):
        places = {(row["topic"], row["partition"]) for row in summary["blocked"] if row["standing"] == name}
        assert counted[name] == len(places)
    classes = {s.labels["class"]: s.value for s in samples if s.name == "kafka_audit_open_transactions"}
    stuck = sum(row["standing"] == "stuck" for row in summary["blocked"])
    assert (sum(classes[name] for name in NEVER_ENDING) > 0) >= (stuck > 0)


def of_terminal(findings: list[dict[str, Any]], summary: dict[str, Any]) -> None:
    """At 80 columns: nothing but commands is wider, each text stands once, and nothing acts before its conditions."""
    out = io.StringIO()
    terminal.print_findings(report_of(findings, summary), out, 80, report="/tmp/audit/report.html")
    text = out.getvalue()
    lines = text.splitlines()
    assert not [line for line in lines if len(line) > 80 and not line.strip().startswith("kafka-")]
    red = [row for row in summary["blocked"] if row["standing"] in RED]
    others = [f for f in findings if f["severity"] in GRAVE and f["kind"] not in TRANSACTIONS]
    assert len(lines) <= (26 if len(red) == 1 and not summary["notes"] else 64) or others
    acts = [line for line in lines if re.match(r"    kafka-transactions.sh \S+ \S+ abort ", line)]
    assert len(acts) == len(set(acts))
    for paragraph in expanded(text).split("\n\n"):
        for act in re.findall(r"kafka-transactions.sh \S+ \S+ abort .*", paragraph):
            before = paragraph.partition(act)[0]
            assert "Confirmed: no coordinator will complete it" in before
            assert "Continue only if the output lists producer id" in before
    for row in red:
        assert re.search(rf"^{re.escape(shown(row, lines))} ", text, re.M), row["topic"]


def shown(row: dict[str, Any], lines: list[str]) -> str:
    """A partition as the table has it, which may have lost the middle of its name."""
    name = f"{row['topic']}-{row['partition']}"
    cut = (line.split()[0] for line in lines if "…" in line.split(" ")[0])
    return next((c for c in cut if name.startswith(c.split("…")[0]) and name.endswith(c.split("…")[1])), name)


def of_tables(audit: Audit, rows: list[dict[str, Any]]) -> None:
    """The suites go by the table ``transactions``."""
    tables = [part for log in logs_of(audit) for part in of_log(log.replicas, log.cluster, "transaction_partitions")]
    table = [row for part in tables for row in part.to_pylist() if row["class"] is not None]
    classes = {(r["topic"], r["partition"], r["producer_id"], r["first_offset"]): r["class"] for r in table}
    for row in rows:
        if row["first_offset"] is not None:
            key = row["topic"], row["partition"], row["producer_id"], row["first_offset"]
            assert classes[key] == row["class"]
    hanging = sum(kind in NEVER_ENDING for kind in classes.values())
    assert not hanging or audit.exit_code() != 0  # a suite that is critical, and all is well
    assert hanging == sum(run_report(audit).summary["open_transactions"].get(name, 0) for name in NEVER_ENDING)


def of_page(audit: Audit, rows: list[dict[str, Any]]) -> None:
    """Cards and timelines; and the page can be made."""
    shown = answers.open_transactions(audit.judged["open"], [], run_report(audit).summary)
    cards = {(e.row["topic"], e.row["partition"], e.row["first_offset"]): e for e in shown}
    bars = {
        (line["topic"], line["partition"], bar["first_offset"]): (bar["class"], bar["status"])
        for line in audit.judged["timeline"]
        for bar in line["transactions"]
        if bar["class"] is not None
    }
    for row in rows:
        if row["first_offset"] is not None:
            key = row["topic"], row["partition"], row["first_offset"]
            assert bars[key] == (row["class"], row["status"]) == (cards[key].row["class"], cards[key].row["status"])
            assert cards[key].certainty == cards[key].row["certainty"] == row["certainty"]
            assert cards[key].row["held_at_least_ms"] == row["held_at_least_ms"]
            assert cards[key].standing == row["standing"]
            assert cards[key].blocks == (row["standing"] in RED)
            assert cards[key].kind in (row["class"], row["standing"])  # no name that only the page has
            if row["standing"] == "unknown":
                assert cards[key].kind == "undecidable"
    assert run_report(audit).summary["verdict"]["headline"][:20] in report_page(audit, run_report(audit))


@pytest.mark.parametrize("later", [0, 61 * 60_000, 3 * DAY], ids=["now", "an hour later", "days later"])
@pytest.mark.parametrize("name", CORPORA)
def test_all_agree_about_each_partition_that_is_held(name: str, later: int, tmp_path: Path) -> None:
    audit = corpus_audit(name)
    if later:
        audit = opened(corpora.unpack(name), as_of=max(audit.as_of, 1) + later)
    agree(audit, tmp_path)


@pytest.mark.parametrize("live", [False, True])
def test_all_agree_where_it_may_be_in_flight(live: bool, tmp_path: Path) -> None:
    bank = Bank(tmp_path)
    bank.write(LATER)
    bank.findings(live=live)
    audit = opened(bank.lab.root, as_of=bank.lab.as_of)
    agree(audit, tmp_path)
    (row,) = [row for row in audit.blocked if row["topic"] == "bank.ledger"]
    assert (row["class"], row["severity"], row["if_true"], row["rule"]) == (
        ("undecidable", "info", "critical", "hanging-transaction")
        if live
        else ("hanging", "critical", None, "hanging-transaction")
    )


@pytest.mark.parametrize(("fail_on", "status"), [("error", 1), ("critical", 0), ("never", 0)])
def test_who_asks_for_it_hears_of_what_is_not_decided(fail_on: str, status: int, tmp_path: Path) -> None:
    """Decided 10.8 minutes ago with a time-out of 10: its coordinator's log may have been copied too early."""
    live(tmp_path, 10.8, 10 * MIN, "PrepareCommit")
    as_of = DECIDED + int(10.8 * MIN)
    quiet, asked = (opened(tmp_path, as_of=as_of, fail_on=fail_on, fail_on_unsure=asked) for asked in (False, True))
    (row,) = [row for row in asked.blocked if row["topic"] == "bank.audit"]
    assert (row["standing"], row["severity"], row["if_true"]) == ("unknown", "info", "error")
    assert (quiet.exit_code(), asked.exit_code()) == (0, status)


def test_what_is_young_is_not_asked_for(tmp_path: Path) -> None:
    """It may be a marker that came while the files were copied: nothing that is normal makes a run fail."""
    bank = Bank(tmp_path)
    bank.write(LATER)
    bank.findings(live=True)
    audit = opened(bank.lab.root, as_of=bank.lab.as_of, fail_on_unsure=True)
    assert "critical" in [row["if_true"] for row in audit.blocked]
    assert audit.exit_code() == 0


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        ({}, 1, "4 partitions blocked"),
        ({"rules": ("hanging-transaction",)}, 1, "4 partitions blocked"),
        ({"rules": ("torn-tail",)}, 0, "4 partitions blocked (reported only by excluded rules)"),
        ({"skip_rules": ("torn-tail",)}, 1, "4 partitions blocked; 1 of "),
        ({"topics": ("bank.audit",)}, 1, "1 partition blocked; only topics that match bank.audit were scanned"),
        ({"topics": ("__transaction_state",)}, 0, "No problems found"),
    ],
)  # fmt: skip
def test_the_headline_says_what_was_left_out_and_agrees_with_the_exit_status(
    options: dict[str, Any], status: int, said: str
) -> None:
    audit = opened(corpora.unpack("hanging-36"), as_of=corpora.manifest("hanging-36")["copied_at"], **options)
    given = run_report(audit).summary["verdict"]
    assert given["exit"] == audit.exit_code() == status
    assert given["headline"].startswith(said)
    assert (given["tone"] == "bad") == bool(status)
    assert bool(re.search(r"\d+ of \d+ rules excluded", given["headline"])) == bool(
        options.keys() & {"rules", "skip_rules"}
    )
    assert ("only topics that match" in given["headline"]) == ("topics" in options)


def test_an_audit_describes_its_findings_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Page, metrics and history go by one report, which what is printed goes by, too."""
    described: list[int] = []
    real = registry.described

    def counted(rows: Any) -> list[dict[str, Any]]:
        found = real(rows)
        described.append(len(found))
        return found

    monkeypatch.setattr(registry, "described", counted)
    options = AuditOptions((str(corpora.unpack("hanging-36")),), tmp_path / "out", history=tmp_path / "runs")
    audit = Audit(options, here())
    report = running.write(audit)
    printing.show(audit, Printing(), report)
    assert described == [len(audit.findings)] != [0]
    assert report.summary["verdict"]["headline"] == report.verdict.headline
