"""Findings by cause: a producer is one row however many partitions it holds, and many producers are not many rows."""

from __future__ import annotations

from auditor.dashboards.answers import BlockedSummary, Open
from auditor.dashboards.finding_groups import causes, holders
from tests.unit import report_samples as samples


def held(partition: int, **owner: object) -> dict[str, object]:
    return samples.finding(rule="hanging-transaction", severity="critical", topic="t", partition=partition, **owner)


def test_a_thousand_partitions_of_four_producers_are_four_causes() -> None:
    found = causes([held(n, producer_id=4000 + n % 4, producer_epoch=1) for n in range(1000)])
    assert [(each.who, len(each.findings)) for each in found] == [
        (f"producer id {4000 + n}, epoch 1", 250) for n in range(4)
    ]


def test_epochs_and_producer_ids_of_one_owner_stay_together() -> None:
    (one,) = causes([held(n, producer_id=7, producer_epoch=n) for n in range(3)])
    assert one.who == "producer id 7"
    (two,) = causes([held(n, transactional_id="pay", producer_id=n, producer_epoch=0) for n in range(3)])
    assert (two.who, two.owners) == ("pay", 1)


def test_who_stands_out_of_many_has_a_row_and_the_others_share_one() -> None:
    few = [held(n, producer_id=100 + n) for n in range(20)]
    found = causes([*few, *(held(n, producer_id=1) for n in range(200))])
    assert [(each.who, each.owners, len(each.findings)) for each in found] == [
        ("producer id 1", 1, 200),
        ("20 more producers or groups", 20, 20),
    ]
    assert [each.who for each in causes(few)] == ["20 producers or groups"]


def test_the_worst_comes_first_and_no_finding_is_lost() -> None:
    mild = samples.finding(rule="sequence-gap", severity="warning", topic="t", partition=0)
    found = causes([mild, held(1, producer_id=1)])
    assert [each.severity for each in found] == ["critical", "warning"]
    assert found[1].who == ""
    assert causes([]) == []


def blocked(partition: int, producer_id: int, standing: str = "stuck") -> BlockedSummary:
    row = {
        "topic": "t", "partition": partition, "producer_id": producer_id, "producer_epoch": 0, "first_offset": 5,
        "transactional_id": None, "class": "hanging", "standing": standing, "last_stable_offset": 5,
        "high_watermark": 15, "readers": [f"g{partition % 2}"],
    }  # fmt: skip
    return BlockedSummary(Open(row))


def test_partitions_go_by_who_holds_them_and_how_they_stand() -> None:
    rows = [blocked(n, 1 + n % 2) for n in range(10)] + [blocked(10, 1, "overdue")]
    found = holders(rows)
    assert [(each.first.row["producer_id"], len(each.rows)) for each in found] == [(1, 5), (2, 5), (1, 1)]
    assert found[0].waiting == 50
    assert found[0].readers == ["g0"]
    assert [row.holder.row["partition"] for row in found[1].rows] == [1, 3, 5, 7, 9]
