"""What the rows of all logs come to."""

from __future__ import annotations

from typing import Any

import pytest

from auditor.base.errors import DecodeError
from auditor.base.words import MOST
from auditor.pipeline.runner import LogTotals

ERROR = DecodeError("t-1/0.log", 0, 10, "crc_mismatch", "")
RUN: dict[str, Any] = {"truncates": [], "poison": [], "undecided": [], "from_recovery_point": None}


def row(partition: int, **more: Any) -> dict[str, Any]:
    sums = {"batches": 2, "records": 10, "bytes_total": 100, "bytes_decoded": 90, "bytes_skipped": 0, "bytes_error": 10}
    given = {
        "log_dir": "broker-1", "topic": "t", "partition": partition, "leader_copy": True, "sums": sums, "notes": [],
        "dropped_events": None, "open_transactions": {}, "recovery": None, "unlooked": 0, "errors": [],
        "chain": {"snapshots": 0, "broken": []}, "offsets": {"missing": 0},
    }  # fmt: skip
    return given | more


def three() -> list[dict[str, Any]]:
    sums = row(0)["sums"] | {"bytes_skipped": 7, "invalid_magic": 3}
    cut = RUN | {"truncates": ["a cut"]}
    return [
        row(0, open_transactions={"late": 2}, recovery=RUN),
        row(1, sums=sums, open_transactions={"late": 1, "active": 1}, recovery=cut, errors=[ERROR._asdict()],
            chain={"snapshots": 2, "broken": []}),
        row(2, sums=sums, leader_copy=False, notes=["a note", "a note"], dropped_events={"1": 4, "2": 1}, unlooked=5,
            offsets={"missing": 7}, recovery=cut, errors=[ERROR._asdict(), ERROR._asdict()]),
    ]  # fmt: skip


def joined(*parts: list[dict[str, Any]]) -> LogTotals:
    whole = LogTotals()
    for part in parts:
        whole.join(LogTotals.of(part))
    return whole.settled()


@pytest.mark.parametrize("order", [None, [[0, 1, 2]], [[2], [0, 1]], [[0, 2], [1]], [[1], [2], [0]]])
def test_sums_of_three_logs_whoever_adds_up_which(order: list[list[int]] | None) -> None:
    rows = three()
    totals = LogTotals.of(rows) if order is None else joined(*([rows[n] for n in part] for part in order))
    assert (totals.batches, totals.records) == (6, 30)
    assert totals.bytes == {"total": 300, "decoded": 270, "skipped": 14, "error": 30}
    assert totals.refused["invalid_magic"] == 3  # of the leader's replica alone
    assert totals.open == {"late": 3, "active": 1}
    assert totals.padded == 2
    assert totals.padded_first is not None
    assert totals.padded_first[1] == "broker-1/t-1"
    assert (totals.with_records, totals.unlooked) == (6, {"broker-1": 5})
    assert totals.notes == {"a note", "t-2 in broker-1: 5 events beyond those that are kept"}
    assert [place[1] for place, _ in totals.recovery["broker-1"]] == [1, 2]
    assert [(place[1], error) for place, _, error in totals.errors] == [(1, ERROR), (2, ERROR), (2, ERROR)]
    assert (totals.chained.count, totals.chained.empty, totals.chained.shown()) == (1, 2, [rows[1]])
    assert (totals.counted.count, totals.counted.odd_ones) == (3, 1)
    assert totals.counted.shown() == [rows[2], rows[0], rows[1]]


def test_of_more_rows_than_are_shown_the_first_are_whoever_adds_up_which() -> None:
    rows = [row(n) for n in range(3 * MOST)]
    shown = joined(rows[1::2], rows[::2]).counted
    assert (shown.count, shown.shown()) == (3 * MOST, rows[:MOST])


def test_a_directory_in_which_no_recovery_does_anything_is_there() -> None:
    assert LogTotals.of([row(0, recovery=RUN)]).recovery == {"broker-1": []}
