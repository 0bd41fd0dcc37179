"""What to do about what holds no partition: on the page and on the terminal, each remedy once, the gravest first."""

from __future__ import annotations

from typing import Any

import pytest

from auditor.dashboards import finding_groups, wording
from auditor.dashboards.answers import report_of
from auditor.dashboards.finding_groups import Selection
from auditor.dashboards.report import render_report
from tests.unit import report_samples as samples
from tests.unit.test_terminal import printed

KEEP = "Keep a-0: kafka-dump-log.sh --files SEGMENT --print-data-log ; produce again what is missed."


def grave(rule: str, severity: str, remedy: str, **given: Any) -> dict[str, Any]:
    return samples.finding(rule=rule, severity=severity, topic="a", partition=0, remedy=remedy, **given)


FOUND = [
    grave("sequence-gap", "error", "Compare the replicas."),
    grave("sequence-gap", "error", "Compare the replicas."),
    grave("epoch-regression", "critical", "Look at the leader epochs."),
    grave("replica-divergence", "critical", KEEP),
    grave("unclean-election", "critical", KEEP),
    grave("offset-regression", "warning", "Find the writer."),
]


def test_loss_comes_first_and_rules_with_one_text_share_it() -> None:
    rows = [(one.text, one.severity, one.rules, one.count) for one in finding_groups.remedies(FOUND, [])]
    assert rows == [
        (KEEP, "critical", ["replica-divergence", "unclean-election"], 2),
        ("Look at the leader epochs.", "critical", ["epoch-regression"], 1),
        ("Compare the replicas.", "error", ["sequence-gap"], 2),
    ]


def test_a_remedy_is_not_given_for_findings_that_have_another() -> None:
    """One partition's replica may be fetched again, another's is the only one."""
    found = [grave("batch-crc-mismatch", "critical", "Move the folder away."),
             grave("batch-crc-mismatch", "critical", "Do not move the folder.")]  # fmt: skip
    ((count, others),) = ((one.count, one.others) for one in finding_groups.remedies(found, []))
    assert (count, others) == (1, 1)
    said = printed(found, samples.empty_summary(), 120)
    assert "1 more needs different steps: auditor explain" in said
    assert "1 more needs different steps" in render_report(report_of(found, samples.empty_summary()), [], [])


def test_what_a_baseline_accepts_asks_for_nothing() -> None:
    accepted = [finding | {"accepted": {"reason": "known"}} for finding in FOUND]
    assert finding_groups.remedies(accepted, []) == []


def test_the_terminal_says_what_to_do_with_each_command_on_a_line() -> None:
    lines = printed(FOUND, samples.empty_summary(), 60).splitlines()
    start = lines.index("critical replica-divergence · lost · a-0")
    assert lines[start + 1 : start + 5] == [
        "  Keep a-0:",
        "    kafka-dump-log.sh --files SEGMENT --print-data-log",
        "  Produce again what is missed.",
        "",
    ]
    again = lines.index("critical unclean-election · at risk · a-0")
    assert start < again
    assert lines[again + 1] == "  What to do: same as for replica-divergence"


def test_the_page_gives_a_shared_remedy_once() -> None:
    page = render_report(report_of(FOUND, samples.empty_summary()), [], [])
    card = page[page.index('id="q2"') : page.index('id="q3"')]
    assert card.count("Produce again what is missed.") == 1
    assert "Find the writer." not in card  # a warning is for the table


@pytest.mark.parametrize(
    ("remedy", "verdict", "rest"),
    [
        ("Do not abort, for it was decided COMMIT: no replica has it.", "Do not abort", "No replica has it."),
        ("Wait: kafka-transactions.sh --bootstrap-server B list shows it", "Wait", "kafka-transactions.sh "
         "--bootstrap-server B list shows it"),
        ("Confirm: look", "Safe to abort", "Confirm: look"),
    ],
)  # fmt: skip
def test_a_verdict_is_not_said_twice(remedy: str, verdict: str, rest: str) -> None:
    assert wording.unsaid(remedy, verdict) == rest


@pytest.mark.parametrize(
    ("remedy", "before", "rest"),
    [
        ("Abort it. It loses 5. It happens again", "Do not abort. It happens again", "Abort it. It loses 5"),
        ("Do not abort. An abort loses 5", "Do not abort. An abort loses 6", "Do not abort. An abort loses 5"),
        ("Do not abort", "Do not abort", "Do not abort"),
    ],
)
def test_what_ends_the_remedy_above_is_not_said_again(remedy: str, before: str, rest: str) -> None:
    assert wording.new_in(remedy, before) == rest


def test_the_terminal_says_it_of_what_was_asked_for() -> None:
    elsewhere = [finding | {"partition": 1} for finding in FOUND]
    said = printed(elsewhere, samples.empty_summary(), 120, shown=Selection(partitions=("a-0",)))
    assert "Keep a-0" not in said
