"""The first screen: a row for each partition that is held, each text once; 24 lines for one, 62 for twenty."""

from __future__ import annotations

from typing import Any

import pytest

from auditor.base.advice import Advice, Verdict, check, shown, step
from auditor.rules.lib import repairs
from tests.terminal_text import expanded
from tests.unit import report_samples as samples
from tests.unit.test_terminal import printed

TOPICS = ("payments.transactions.v2", "orders", "a.rather.long.name.of.a.topic", "ledger")


def abort(topic: str, partition: int, producer: int, offset: int, records: int) -> Advice:
    """As :mod:`auditor.rules.transactions.blocking` advises it."""
    stay = "record of it stays" if records == 1 else "records of it stay"
    return Advice(
        Verdict.SAFE_TO_ABORT, f"{records} {stay} unread",
        (shown("no coordinator will complete it", True, "its transactional id is in state CompleteAbort"),
         shown("no replica in the input has a COMMIT marker for it", True, "broker 1, broker 2, broker 3"),
         check(repairs.describe_producers(topic, partition),
              f"it lists producer {producer} with CurrentTransactionStartOffset {offset}"),),
        (step(repairs.abort(topic, partition, offset)),),
    )  # fmt: skip


def held(count: int, **further: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """That many partitions, each held by a producer of its own."""
    findings, rows = [], []
    for n in range(count):
        topic, partition = TOPICS[n % len(TOPICS)], n // len(TOPICS)
        place = {"topic": topic, "partition": partition, "producer_id": 4000 + n, "producer_epoch": 3,
                 "transactional_id": f"payments-service-{n}", "broker_id": 1}  # fmt: skip
        advice = abort(topic, partition, 4000 + n, 100 * n, n + 1)
        findings.append(samples.finding(rule="hanging-transaction", severity="critical", offset=100 * n,
                                        fingerprint=f"{n:012x}" + "0" * 52, message=f"it hangs {n}",
                                        **place) | {"advice": advice.row()})  # fmt: skip
        rows.append({
            **place, "log_dir": "b", "last_stable_offset": 100 * n, "log_end": 100 * n + 50, "first_offset": 100 * n,
            "since": "2026-11-21T03:00:00.000Z", "since_not_before": "2026-11-21T02:59:58.000Z",
            "age_ms": 3_600_000 - n, "class": "hanging", "state": "CompleteAbort", "standing": "stuck", "others": 0,
            "advice": advice.row(), "rule": "hanging-transaction", "records": n + 1, **further,
        })  # fmt: skip
    volume = {"total": 900_000, "decoded": 800_000, "skipped": 100_000, "unreadable": 0}
    return findings, samples.empty_summary(
        counts={"by_severity": {"critical": count}}, blocked=rows, bytes=volume, batches=77,
        newest="2026-11-21T04:00:00.000Z",
    )  # fmt: skip


@pytest.mark.parametrize(("count", "most"), [(1, 24), (2, 62), (20, 62), (21, 62), (500, 62)])
def test_it_fits_on_a_screen(count: int, most: int) -> None:
    lines = printed(*held(count), 80, report="/tmp/audit/report.html").splitlines()
    assert len(lines) <= most
    assert not [line for line in lines if len(line) > 80 and not line.strip().startswith("kafka-")]


def test_every_partition_has_its_row_with_its_fingerprint_and_its_commands() -> None:
    findings, summary = held(20)
    said = printed(findings, summary, 80)
    assert said.count("Safe to abort. ") == 1  # each text once
    rows = {
        line.split()[-1]: line
        for line in said.splitlines()
        if line.endswith(tuple(f["fingerprint"][:12] for f in findings))
    }
    assert list(rows) == [f["fingerprint"][:12] for f in findings]
    whole = expanded(said)
    for f in findings:
        (act,) = f["advice"]["steps"]
        (look,) = (each for each in f["advice"]["conditions"] if each["command"])
        mine = next(part for part in whole.split("\n\n") if act["command"] in part)
        order = [
            mine.index(part) for part in ("Confirmed: no coordinator will complete it", look["command"], act["command"])
        ]
        assert order == sorted(order)  # nothing acts before its conditions, and what must be seen
        assert f"Continue only if {look['expect']}." in " ".join(mine.split())


def test_one_partition_has_whole_commands() -> None:
    findings, summary = held(1)
    said = printed(findings, summary, 80)
    for part in ("conditions", "steps"):
        assert f"\n    {findings[0]['advice'][part][-1]['command']}\n" in said
    assert "Replace " not in said


def test_verbose_prints_the_whole_commands_of_each() -> None:
    findings, summary = held(30)
    said = printed(findings, summary, 80, verbose=True)
    assert all(f"\n    {f['advice']['steps'][0]['command']}\n" in said for f in findings)


def test_names_that_are_too_long_keep_their_ends() -> None:
    findings, summary = held(4)
    (row,) = [line for line in printed(findings, summary, 80).splitlines() if line.endswith("000000000002")]
    assert row.startswith("a.rath") and "-0  " in row  # noqa: PT018
    assert "…" in row


def test_a_partition_that_several_hold_names_all_of_them() -> None:
    findings, summary = held(1, others=3)
    behind = [findings[0] | {"offset": 7 + n, "producer_id": 50 + n, "transactional_id": None,
                             "timestamp": "2026-11-20T22:10:00.000Z", "fingerprint": f"{9 + n}" * 64}
              for n in range(2)]  # fmt: skip
    said = printed([*findings, *behind], summary, 100).splitlines()
    assert [line.split() for line in said[6:9]] == [
        ["@7", "11-20", "22:10", "producer", "id", "50", "Safe", "to", "abort", "9" * 12],
        ["@8", "11-20", "22:10", "producer", "id", "51", "Safe", "to", "abort", "10" * 6],
        ["and", "1", "more"],
    ]
    assert "  Consumers stay blocked until the other transactions of this partition end too." in said


def test_who_waits_as_is_normal_is_named_in_a_line() -> None:
    _, summary = held(3, standing="waiting", **{"class": "active"})
    said = printed([], summary | {"counts": {}}, 100)
    assert "\nOpen transactions within their timeout: payments.transactions.v2-0; orders-0;" in said
    assert "kafka-transactions.sh" not in said
