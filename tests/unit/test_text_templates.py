"""Text from templates: values cannot touch the layout, each kind escapes for itself, all views use the same words."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from auditor.commands.rowtext import table_lines
from auditor.dashboards import output_formats, page, terminal
from auditor.dashboards import table_lines as tables
from auditor.dashboards.answers import Open, report_of
from auditor.dashboards.overview import message
from auditor.dashboards.wording import aligned, cells
from auditor.outputs import alerts
from tests.unit import report_samples as samples

MARKS = "\x01\x02\ta\nb"  # what the layout marks lines, indentation and cells with, and a line break
SIGNS = "<b>&'\"{{ 7 * 7 }}"


def steps(*parts: tuple[str, str], width: int = 20) -> list[str]:
    return page.lines("steps.txt.j2", width, parts=parts)


def test_a_line_keeps_its_indentation_and_a_command_is_never_cut() -> None:
    assert steps(("text", "one two three four five"), ("command", "kafka-topics.sh --describe --topic t")) == [
        "  one two three four",
        "  five",
        "    kafka-topics.sh --describe --topic t",
    ]


@pytest.mark.parametrize("kind", ["text", "command"])
def test_no_value_has_a_mark_of_the_layout(kind: str) -> None:
    indent = "  " if kind == "text" else "    "
    assert steps((kind, MARKS), width=80) == [f"{indent}\\x01\\x02\\x09a\\x0ab"]


def test_spaces_before_a_value_are_no_indentation() -> None:
    assert steps(("text", "   one two three four five")) == ["  one two three four", "  five"]
    assert steps(("text", ""), ("text", " ")) == []


def test_rows_are_aligned_by_the_columns_of_a_terminal() -> None:
    made = aligned([("日本", "1"), ("t", MARKS), ("longer", "")])
    assert made == ["日本    1", "t       \\x01\\x02\\x09a\\x0ab", "longer"]
    assert cells(made[0][:4] + " " * 2) == 8
    import pyarrow as pa

    batch = pa.record_batch([["日本", "t"], [1, 2]], names=["id", "n"])
    assert list(table_lines(batch)) == ["id    n\n", "日本  1\n", "t     2\n"]


def blocked_run(**given: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    row = {
        "log_dir": "b1", "broker_id": 1, "topic": "t", "partition": 0, "first_offset": 5, "last_offset": 6,
        "last_stable_offset": 5, "high_watermark": 9, "class": "hanging", "standing": "stuck", "age_ms": 60_000,
        "since": "2026-11-21T03:59:00.000Z", "others": 0, "rule": "hanging-transaction", "fingerprint": "f" * 64,
        **given,
    }  # fmt: skip
    found = samples.finding(
        rule="hanging-transaction", severity="critical", topic="t", partition=0, offset=5, last_offset=6,
        producer_id=row.get("producer_id"), transactional_id=row.get("transactional_id"), fingerprint="f" * 64,
        message=f"open {SIGNS}", remedy="Find its client.",
    )  # fmt: skip
    return [found], samples.empty_summary(blocked=[row])


def views(findings: list[dict[str, Any]], summary: dict[str, Any]) -> dict[str, str]:
    run, out = report_of(findings, summary), io.StringIO()
    terminal.print_findings(run, out, 400)
    holder = Open(summary["blocked"][0], findings=findings)
    news = alerts.News([f | {"cluster_id": None} for f in findings], (), (), None, holders={"f" * 64: holder})
    return {
        "terminal": out.getvalue(),
        "markdown": "".join(output_formats.rendered("markdown", run.findings, run, {}, "error")),
        "page": samples.rendered(findings, summary, [], []),
        "slack": json.dumps(alerts.slack(news)),
        "pagerduty": json.dumps(alerts.pagerduty(news, "key")),
    }


def test_each_kind_escapes_for_itself() -> None:
    made = views(*blocked_run(producer_id=1, transactional_id=SIGNS))
    assert SIGNS in made["terminal"]
    assert "&lt;" not in made["terminal"]
    assert r"\<b\>&'\"{{ 7 \* 7 }}".replace(r"\"", '"') in made["markdown"]
    assert "&lt;b&gt;&amp;&#39;&#34;{{ 7 * 7 }}" in made["page"]
    assert "<b>" not in made["page"]
    assert "&lt;b&gt;&amp;'" in made["slack"]
    assert "49" not in made["terminal"] + made["markdown"] + made["slack"]


def test_an_owner_that_nobody_knows_has_one_name() -> None:
    for name, text in views(*blocked_run(producer_id=None)).items():
        assert "an unknown producer" in text, name
        assert "unknown producer" not in text.replace("an unknown producer", ""), name


def test_all_views_say_by_whose_clock_it_began() -> None:
    made = views(*blocked_run(producer_id=1))
    for name in ("markdown", "slack", "pagerduty"):
        assert "since 2026-11-21 03:59:00 UTC by its records' timestamps" in made[name], name


def test_the_message_for_an_owner() -> None:
    findings, summary = blocked_run(producer_id=1, transactional_id="tx", records=2, certainty="proved")
    (found,), holder = findings, Open(summary["blocked"][0], findings=findings)
    said = message(found, holder, "prod", "https://x")
    assert said.startswith(
        "Your transactional id tx (producer id 1) left 2 records of an open transaction in t-0 at offsets 5–6 since "
        "2026-11-21 03:59:00 UTC by its records' timestamps in cluster prod. Its read_committed consumers are blocked "
        "at offset 5; the LSO lag is 4 offsets. "
    )
    assert said.endswith(" Details: https://x")
    assert message(found, None, "") == f"About your transactional id tx (producer id 1): open {SIGNS}."
    assert message({**found, "transactional_id": None}, None, "") == ""


def test_what_recheck_notes_is_escaped_and_wrapped() -> None:
    row = {"answer": "open", "topic": "t", "partition": 0, "first_offset": 1, "fingerprint": None, "why": "w " * 9,
           "transactional_id": None, "producer_id": 7, "blocked": None, "finding": None}  # fmt: skip
    said = tables.recheck_lines([row, row], ["a \x1b note"], 20)
    assert said[:3] == ["2 compared: 2 open", "", "OPEN  t-0 at offset"]
    assert said[-1] == "A \\x1b note."
    assert max(map(len, said)) <= 20
