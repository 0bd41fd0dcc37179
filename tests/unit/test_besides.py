"""The card of what is said beside the findings."""

from __future__ import annotations

from auditor.dashboards import table_lines
from auditor.dashboards.answers import report_of
from auditor.dashboards.report import render_report
from tests.unit.report_samples import HOSTILE, empty_summary

GROUP = {
    "about": "group", "topic": "orders", "partition": 3, "group_id": "billing", "offsets": 120,
    "committed_records": 7, "committed_most": 7, "waiting_records": 90, "open_records": 4, "undecided": None,
}  # fmt: skip
SPACE = {
    "about": "space", "topic": "orders", "partition": 1, "broker_id": 2, "bytes": 2048, "says": "stays",
}  # fmt: skip


def test_each_subject_has_a_card_and_no_card_is_empty() -> None:
    cards = table_lines.cards([GROUP, SPACE, {**SPACE, "about": "what is newer"}])
    assert [card.command for card in cards] == ["auditor lag", "auditor space"]
    assert cards[0].lines == [(
        "orders-3, group billing",
        "7 records readable now; above the LSO: 90 decided records, 4 of open transactions; lag 120 offsets",
    )]  # fmt: skip
    assert cards[1].lines == [("orders-1, broker 2", "stays (2 KiB)")]
    assert table_lines.cards([]) == []


def test_bounds_and_doubts_are_said() -> None:
    wide, unsure = {**GROUP, "committed_most": 9}, {**GROUP, "undecided": "it is gone"}
    says = [line.says for line in table_lines.cards([wide, unsure])[0].lines]
    assert says[0].startswith("7 to 9 records readable now")
    assert says[1] == "inconclusive: it is gone"


def test_many_are_cut_and_the_page_says_by_how_many() -> None:
    (card,) = table_lines.cards([GROUP] * 33)
    assert (len(card.lines), card.more) == (table_lines.MAX_ROWS, 33 - table_lines.MAX_ROWS)


def test_the_page_has_the_card_only_where_there_is_something_to_say() -> None:
    page = render_report(report_of([], empty_summary(asides=[{**GROUP, "group_id": HOSTILE}])), [], [])
    assert 'id="asides"' in page
    assert HOSTILE not in page
    assert 'id="asides"' not in render_report(report_of([], empty_summary()), [], [])
