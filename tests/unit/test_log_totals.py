"""What the rows of all logs come to."""

from __future__ import annotations

from typing import Any

from auditor.pipeline.log_totals import LogTotals

RUN: dict[str, Any] = {"truncates": [], "poison": [], "undecided": [], "from_recovery_point": None}


def row(partition: int, **more: Any) -> dict[str, Any]:
    sums = {"batches": 2, "records": 10, "bytes_total": 100, "bytes_decoded": 90, "bytes_skipped": 0, "bytes_error": 10}
    given = {
        "log_dir": "broker-1", "topic": "t", "partition": partition, "leader_copy": True, "sums": sums, "notes": [],
        "dropped_events": None, "open_transactions": {}, "recovery": None, "unlooked": 0,
    }  # fmt: skip
    return given | more


def test_sums_of_three_logs() -> None:
    sums = row(0)["sums"] | {"bytes_skipped": 7, "invalid_magic": 3}
    totals = LogTotals.of(
        [
            row(0, open_transactions={"late": 2}, recovery=RUN),
            row(1, sums=sums, open_transactions={"late": 1, "active": 1}, recovery=RUN | {"truncates": ["a cut"]}),
            row(
                2, sums=sums, leader_copy=False, notes=["a note", "a note"], dropped_events={"1": 4, "2": 1}, unlooked=5
            ),
        ]
    )
    assert (totals.batches, totals.records) == (6, 30)
    assert totals.bytes == {"total": 300, "decoded": 270, "skipped": 14, "error": 30}
    assert totals.refused["invalid_magic"] == 3  # of the leader's replica alone
    assert totals.open == {"late": 3, "active": 1}
    assert (totals.padded, totals.padded_example) == (2, "broker-1/t-1")
    assert (totals.with_records, totals.unlooked) == (6, {"broker-1": 5})
    assert totals.notes == {"a note", "t-2 in broker-1: 5 events beyond those that are kept"}
    assert totals.recovery == {"broker-1": [RUN | {"truncates": ["a cut"]}]}


def test_a_directory_in_which_no_recovery_does_anything_is_there() -> None:
    assert LogTotals.of([row(0, recovery=RUN)]).recovery == {"broker-1": []}
