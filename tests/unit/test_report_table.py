"""The report's first table: who is blocked first, everything that is open once, and a link to what to do."""

from __future__ import annotations

from typing import Any

from auditor.base.advice import Advice, Verdict, text
from auditor.dashboards import answers, finding_groups
from auditor.dashboards.report import ADVISED, BlockedTable, table
from tests.unit import report_samples as samples

Rows = list[dict[str, Any]]


def entry(producer: int, partition: int, kind: str, standing: str, **given: Any) -> dict[str, Any]:
    return {
        "log_dir": "b", "broker_id": 1, "topic": "t", "partition": partition, "producer_id": producer,
        "producer_epoch": 0, "transactional_id": None, "first_offset": 5, "last_offset": 9, "class": kind,
        "standing": standing, "age_ms": 60_000, "last_stable_offset": 5, **given,
    }  # fmt: skip


def made(held: Rows, opened: Rows, findings: Rows | None = None, anchors: tuple[str, ...] = ()) -> BlockedTable:
    found, summary = findings or [], samples.empty_summary(blocked=held, inputs=[], logs=[])
    everything = answers.open_transactions(opened, found, summary)
    rows = answers.blocked(everything, found, summary)
    nothing = {"unreadable": [], "bytes": {"unreadable": 0}, "batches": 1}
    decided = answers.decide(rows, found, answers.tally(found, summary), summary | nothing)
    return table(decided, everything, finding_groups.remedies(found, decided.held), anchors)


def names(rows: Any) -> list[tuple[int, str]]:
    return [(row.first.row["producer_id"], row.anchor) for row in rows]


def test_blocked_come_first_and_every_open_transaction_once() -> None:
    held = [entry(1, 0, "active", "waiting"), entry(2, 1, "hanging", "stuck"), entry(3, 2, "undecidable", "unknown")]
    behind = entry(4, 1, "active", "waiting", first_offset=12)
    found = made(held, [*held, behind])
    assert names(found.rows) == [(2, "do-1"), (3, "do-2"), (1, ""), (4, "")]
    assert [row.first.row["producer_id"] for row in found.advised] == [2]
    assert [row.first.row["producer_id"] for row in found.unsure_advised] == [3]
    assert found.rows[3].note == "starts after the blocking transaction"
    assert found.kinds == {"hanging", "undecidable", "active"}


def test_what_a_remedy_says_already_is_linked_and_not_said_again() -> None:
    advice = Advice(Verdict.INVESTIGATE_FIRST, "find its client first")
    held = [entry(3, 2, "undecidable", "unknown", advice=advice.row())]
    grave = samples.finding(rule="timeout-not-enforced", topic="__transaction_state", remedy=text(advice.row()))
    found = made(held, held, [grave])
    assert names(found.rows) == [(3, "do-about-1")]
    assert found.unsure_advised == []
    assert names(made(held, held).unsure_advised) == [(3, "do-1")]


def test_those_without_an_advice_of_their_own_lead_to_their_finding() -> None:
    held = [entry(n, n, "hanging", "stuck", rule="hanging-transaction") for n in range(ADVISED + 2)]
    late = samples.finding(
        rule="hanging-transaction", severity="critical", topic="t", partition=ADVISED, producer_id=ADVISED, offset=5,
        fingerprint="a" * 64,
    )  # fmt: skip
    found = made(held, held, [late], ("a" * 12,))
    assert names(found.rows)[-2:] == [(ADVISED, "a" * 12), (ADVISED + 1, "")]
    assert found.unadvised == 2


def test_a_two_phase_commit_is_called_as_everywhere_and_not_said_to_end_by_itself() -> None:
    held = [entry(1, 0, "active", "waiting", timeout_ms=2**31 - 1)]
    found = made(held, held)
    assert found.rows[0].first.kind == "active"
    assert found.rows[0].note.endswith("only its application can end it")
    assert found.rows[0].calm
    assert found.kinds == set()
