"""One record of a transaction: its class, standing and certainty follow from its fields."""

from __future__ import annotations

import numpy as np
import pytest

from auditor.base.at_rest import Fields
from auditor.evidence.cluster_clocks import Confidence, Held
from auditor.facts.coordinator_history import StateRecord, build_history
from auditor.facts.replica_facts import TRANSACTION
from auditor.pipeline.judge import blocked_rows
from auditor.rules.catalogue import registry
from auditor.rules.seen.cluster_view import Cluster, LeaderBounds
from auditor.rules.seen.view import LogView
from auditor.transactions.record import NO_DATA, BlockedState, Case, Hold, Status, Transaction
from tests import made

BEGAN, TIMEOUT_MS, OVERDUE_MS = 1_000_000, 60_000, 90_000  # 60 s, the coordinator's interval of 10 s and 20 s
DATA = np.zeros(1, TRANSACTION)[0]


def entry(state: str = "Ongoing", n: int = 0) -> StateRecord:
    """The last record of ``tx-n``, whose transaction began at :data:`BEGAN` in ``orders-0``."""
    place = (0, n, 1, 0, f"tx-{n}", state, 7, 0, TIMEOUT_MS)
    return StateRecord(*place, frozenset({"orders-0"}), False, BEGAN, BEGAN, 0, "0.log", 0, 1)


def record(case: Case, status: Status, **more: object) -> Transaction:
    fields: Fields = {"row": DATA, "entry": entry(), "reason": "", "timeout_ms": TIMEOUT_MS}
    fields |= {"overdue_after_ms": OVERDUE_MS, "margin_ms": OVERDUE_MS, "case": case, "status": status}
    return Transaction(**fields | more)


@pytest.mark.parametrize(
    ("t", "expected"),
    [
        (record(Case.ACTIVE, Status.OPEN), ("active", BlockedState.WAITING, Hold.LONG, "proved")),
        (record(Case.LATE, Status.OVERDUE, overdue=True), ("late", BlockedState.OVERDUE, Hold.OVERDUE, "proved")),
        (record(Case.LATE, Status.UNKNOWN), ("undecidable", BlockedState.UNKNOWN, Hold.OVERDUE, "undecidable")),
        (record(Case.ORPHAN, Status.HANGING), ("orphan", BlockedState.STUCK, Hold.NOBODYS, "proved")),
        (record(Case.HANGING, Status.UNKNOWN), ("undecidable", BlockedState.UNKNOWN, Hold.NOBODYS, "undecidable")),
        (record(Case.GHOST, Status.HANGING), ("ghost", BlockedState.STUCK, Hold.PINNED, "proved")),
        (record(Case.GHOST, Status.OVERDUE, overdue=True), ("late", BlockedState.OVERDUE, Hold.PINNED, "proved")),
        (
            record(Case.LATE, Status.PREPARED, undeliverable=True),
            ("late", BlockedState.UNDELIVERABLE, Hold.PREPARED, "proved"),
        ),
        (
            record(Case.UNDECIDABLE, Status.OVERDUE, overdue=True),
            ("undecidable", BlockedState.OVERDUE, Hold.OVERDUE, "likely"),
        ),
        (
            record(Case.HANGING, Status.OVERDUE, overdue=True, by_stamps=True, held=Held(OVERDUE_MS + 1, OVERDUE_MS)),
            ("late", BlockedState.OVERDUE, Hold.NOBODYS, "likely"),
        ),
        (
            record(Case.ACTIVE, Status.COMPLETED, completed=True),
            ("active", BlockedState.WAITING, Hold.LONG, "proved"),
        ),
    ],
)
def test_class_and_standing_follow_from_the_fields(
    t: Transaction, expected: tuple[str, BlockedState, Hold, str]
) -> None:
    assert (t.klass, t.standing, t.hold, t.confidence) == expected
    assert (t.certainty is Confidence.INCONCLUSIVE) == (t.standing is BlockedState.UNKNOWN)


def test_each_hold_has_one_kind_of_findings() -> None:
    assert len({registry.kind_of(hold) for hold in Hold}) == len(Hold)


def test_a_record_alone_has_the_producer_of_its_coordinator() -> None:
    alone = record(Case.LATE, Status.PREPARED, row=NO_DATA)
    assert (alone.has_data, alone.producer_id, alone.producer_epoch) == (False, 7, 0)


def rows(now: int, *entries: StateRecord, present: bool = False) -> list[Fields]:
    """The rows of ``blocked`` from a copy that has the coordinator's log, evaluated at ``now`` ms; -1: unknown."""
    bounds = {("__transaction_state", 0): LeaderBounds(0, 9, 9, now, True, None, 1)}
    if present:
        bounds["orders", 0] = LeaderBounds(0, 9, 9, now, True, None, 1)
    cluster = Cluster(now, now, coordinator=build_history(1, [*entries]), bounds=bounds, clock_given=now >= 0)
    replica = made.facts("__transaction_state", log_end=len(entries), clean_shutdown=True)
    return [*blocked_rows(LogView([replica], cluster), [])]


def test_an_open_transaction_without_any_clock_is_unknown() -> None:
    """A console text has times of records alone: nothing shows what time it is, nor that nothing is blocked."""
    (row,) = rows(-1, entry())
    assert (row["topic"], row["partition"], row["transactional_id"]) == ("orders", 0, "tx-0")
    assert (row["status"], row["certainty"], row["severity"], row["if_true"]) == (
        "unknown", "inconclusive", "info", None,
    )  # fmt: skip
    assert (row["beyond_timeout"], row["late_if_open"], row["first_offset"]) == (None, False, None)


@pytest.mark.parametrize("now", [BEGAN, BEGAN + TIMEOUT_MS])
def test_within_its_timeout_by_a_clock_it_is_not_listed(now: int) -> None:
    assert rows(now, entry()) == []


def test_a_partition_of_the_input_is_listed_by_its_own_log() -> None:
    assert rows(-1, entry(), present=True) == []


@pytest.mark.parametrize(("after", "listed"), [(OVERDUE_MS, 0), (OVERDUE_MS + 1, 1)])
def test_a_decided_one_is_prepared_past_its_time(after: int, listed: int) -> None:
    found = rows(BEGAN + after, entry("PrepareCommit"))
    assert [(row["status"], row["standing"], row["class"]) for row in found] == [
        ("prepared", "overdue", "late")
    ] * listed
