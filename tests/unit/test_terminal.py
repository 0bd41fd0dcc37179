"""Findings on a terminal: readable without colour, and names cannot touch the terminal."""

from __future__ import annotations

import io
import re

import pytest

from auditor.cli import parsed
from auditor.commands.arguments import printing
from auditor.dashboards import terminal
from auditor.dashboards.answers import report_of
from auditor.dashboards.finding_groups import Selection
from auditor.dashboards.wording import cells, wrap
from tests.unit import report_samples as samples


def printed(findings: list[dict], summary: dict, width: int = 140, color: bool = False, **given: object) -> str:
    out = io.StringIO()
    terminal.print_findings(report_of(findings, summary), out, width, color, **given)  # type: ignore[arg-type]
    return out.getvalue()


@pytest.mark.parametrize("width", [40, 80, 100, 140, 200])
def test_every_finding_is_reported_within_the_width(width: int) -> None:
    findings, summary, _, _ = samples.hanging()
    said = printed(findings, summary, width, verbose=True)
    table = said.split("\n\n4 critical")[0]
    commands = ("kafka-transactions.sh",)  # on one line however long, to be pasted
    lines = [line for line in table.splitlines() if not line.strip().startswith(commands)]
    assert max(cells(line) for line in lines) <= width
    words = " ".join(said.split())
    for row in findings:
        assert row["rule"] in words
        assert f"{row['topic']}-{row['partition']}@{row['offset']}–{row['last_offset']}" in words
        assert row["transactional_id"] in words
    assert "\x1b" not in said


def test_closing_lines_tell_counts_what_was_read_and_the_report() -> None:
    said = printed(*samples.hanging()[:2], report="out/report.html")
    assert "\n4 critical\n" in said
    assert re.search(r"^Scanned [\d.]+ KiB, \d+ batches \([\d.]+ KiB skipped\)$", said, re.M)
    assert said.endswith("Report: out/report.html\n")


def test_colour_only_when_asked_and_not_against_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    findings, summary, _, _ = samples.hanging()
    plain, painted = printed(findings, summary, verbose=True), printed(findings, summary, color=True, verbose=True)
    assert "\x1b[1;31mcritical\x1b[0m" in painted
    assert painted.replace("\x1b[1;31m", "").replace("\x1b[0m", "") == plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert printed(findings, summary, color=True, verbose=True) == plain


@pytest.mark.parametrize("width", [60, 140])
def test_hostile_names_cannot_move_the_cursor(width: int) -> None:
    findings, summary, _, _ = samples.hostile()
    findings.append(samples.finding(rule="sequence-gap", topic="t", partition=0, message="a\r\nb\x9b2Jc\u2028d"))
    said = printed(findings, summary, width, report="x\x1b]0;y\x07")
    assert not [
        sign for sign in said if (ord(sign) < 32 and sign != "\n") or 127 <= ord(sign) < 160 or sign in "\u202e\u2028"
    ]
    assert "a\\x0d\\x0ab\\x9b2Jc\\u2028d" in said


def test_long_lists_say_how_many_more() -> None:
    findings = [
        samples.finding(rule="sequence-gap", topic="t", partition=0, offset=n, message="gap") for n in range(1000)
    ]
    said = printed(findings, samples.empty_summary())
    assert "error sequence-gap · lost · 1,000 findings · t-0@0, t-0@1, t-0@2 and 997 more places\n" in said
    assert said.count("sequence-gap") == 1
    assert printed(findings, samples.empty_summary(), verbose=True).count("sequence-gap") == 1000
    assert "\n1,000 errors\n" in said


def test_what_was_not_read_is_said() -> None:
    lost = [{"log_dir": "b1", "file": "t-0/0.log", "position": 9, "reason": "unreadable", "detail": "EIO"}] * 7
    said = printed([], samples.empty_summary(unreadable=lost, batches=1))
    assert said.startswith("Part of the input is unreadable; no problems in the rest\nEvaluated at ")
    assert "\nNo findings\n" in said
    assert "Unreadable: b1/t-0/0.log at byte 9: EIO\n" in said
    assert "Unreadable: 2 more places" in said


def test_nothing_read_is_said_as_that() -> None:
    lost = [{"log_dir": "b1", "file": "t-0/0.log", "position": 0, "reason": "unreadable", "detail": "EIO"}]
    assert printed([], samples.empty_summary(unreadable=lost)).startswith("The input is unreadable\nEvaluated at ")


def test_an_ascii_terminal_gets_ascii() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    findings = [samples.finding(rule="sequence-gap", topic="t", partition=0, offset=1, last_offset=2, message="größer")]
    terminal.print_findings(report_of(findings, samples.empty_summary()), out, 120, color=False)
    out.flush()
    assert b"t-0@1-2" in raw.getvalue()
    assert b"gr\\xf6\\xdfer" in raw.getvalue()


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("", 5, [""]),
        ("one two three", 7, ["one two", "three"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("日本語", 4, ["日本", "語"]),
    ],
)
def test_wrap(text: str, width: int, lines: list[str]) -> None:
    assert wrap(text, width) == lines


def thousand() -> tuple[list[dict], dict]:
    """A thousand partitions that four producers hold, by turns."""
    found, summary, *_ = samples.hanging()
    whose = [
        {"producer_id": n % 4, "transactional_id": f"app-{n % 4}", "topic": "t", "partition": n} for n in range(1000)
    ]
    held = {
        "log_dir": "b", "broker_id": 1, "last_stable_offset": 71, "log_end": 500, "producer_epoch": 0,
        "first_offset": 71, "age_ms": 3_600_000, "class": "hanging", "state": "CompleteAbort", "standing": "stuck",
        "others": 0,
    }  # fmt: skip
    findings = [found[0] | each | {"fingerprint": f"{n:064x}"[::-1]} for n, each in enumerate(whose)]
    return findings, {name: summary[name] for name in summary if name != "counts"} | {
        "blocked": [held | each for each in whose]
    }


def test_what_four_producers_hold_is_four_parts_and_all_of_it_when_asked() -> None:
    findings, summary = thousand()
    said = printed(findings, summary, 80)
    assert said.startswith("1,000 PARTITIONS BLOCKED\n")
    assert [line.split()[:2] for line in said.splitlines()[4:8]] == [[f"t-{n}", "+249"] for n in range(4)]
    assert len(said.splitlines()) <= 60
    whole = " ".join(printed(findings, summary, 80, verbose=True).split())
    assert whole.count("read_committed consumers stop") == 1000


def test_fingerprints_are_there_at_every_width() -> None:
    findings, summary = thousand()
    for width in (80, 200):
        assert findings[7]["fingerprint"][:12] in printed(findings[:8], summary, width, verbose=True)
    assert findings[0]["fingerprint"][:12] in printed(findings, summary, 80)


def test_infos_are_counted_and_printed_when_asked() -> None:
    findings = [samples.finding(rule="sequence-gap", severity=name, topic="t", partition=n, message=f"m{n}")
                for n, name in enumerate(("warning", "info", "info"))]  # fmt: skip
    said = printed(findings, samples.empty_summary(), 80)
    assert "warning sequence-gap" in said
    assert "info sequence-gap" not in said
    assert "\n1 warning, 2 info (use --verbose to list)\n" in said
    assert "1 info (use --verbose to list)" in printed(findings[:2], samples.empty_summary(), 80)
    whole = printed(findings, samples.empty_summary(), 80, verbose=True)
    assert whole.count("info sequence-gap") == 2
    assert "--verbose" not in whole


def test_infos_that_are_asked_for_are_printed() -> None:
    findings = [samples.finding(severity="info", message=f"note {number}") for number in range(2)]
    said = printed(findings, samples.empty_summary(), 80, shown=Selection(infos=True))
    assert "note 0" in said
    assert "--verbose" not in said
    assert "Listed:" not in said  # nothing is left out


@pytest.mark.parametrize(("given", "infos"), [([], False), (["--min-severity", "info"], True)])
def test_who_asks_for_infos_gets_them(given: list[str], infos: bool) -> None:
    args = parsed(["audit", "somewhere", "--out", "there", *given])
    assert printing(args).selection == Selection(infos=infos)


def test_the_last_hint_works_as_it_stands() -> None:
    findings = [samples.finding(fingerprint="98a4cf72be27" + "0" * 52)]
    said = printed(findings, samples.empty_summary(), 200, report="/tmp/of today/report.html")
    assert "auditor explain 98a4cf72be27 --out '/tmp/of today'\n" in said
    narrow = printed(findings, samples.empty_summary(), 40, report="/tmp/of today/report.html")
    assert "\n    auditor explain 98a4cf72be27 --out '/tmp/of today'\n" in narrow  # to be pasted, however narrow
