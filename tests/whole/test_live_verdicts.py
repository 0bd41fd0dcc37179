"""Held partitions in copies of running brokers: headline, standing, findings and metrics judge by the same doubt."""

from __future__ import annotations

from pathlib import Path

import pytest

from auditor.base.words import few
from auditor.dashboards import answers, metrics
from auditor.outputs.publish import run_report
from auditor.pipeline.whole_audit import Audit
from auditor.rules.seen.view import iso
from tests import corpora
from tests.facts import opened
from tests.whole.test_incidents_transactions import BUSY, BUSY_PRODUCER, BUSY_SINCE, Bank

MIN = 60_000
DECIDED = BUSY_SINCE + 5_000
NEVER = 2**31 - 1  # the time-out of a two-phase commit


def live(tmp_path: Path, minutes: float, timeout: int, *states: str) -> Audit:
    """A live copy in which a transaction of ``bank.audit-1`` was decided, while another log goes on so many minutes.

    Nothing shows who led its logs: neither metadata nor settings."""
    bank = Bank(tmp_path, "bank.audit-1")
    for k, state in enumerate(states):
        bank.coordinator.state(
            BUSY, state, BUSY_PRODUCER, DECIDED + k, "bank.audit-1", start=BUSY_SINCE, timeout=timeout
        )
    bank.log.decide(bank.log.data(4)[-1], False, time=DECIDED + int(minutes * MIN) - 1_000, producer_id=9, epoch=0)
    bank.log.save()
    bank.coordinator.save()
    bank.lab.is_live()
    bank.lab.without_metadata()
    (tmp_path / "server-1.properties").unlink()
    return opened(tmp_path, as_of=DECIDED + int(minutes * MIN))


def held(audit: Audit) -> tuple[str, answers.RunVerdict]:
    """The standing of ``bank.audit-1``, and the verdict on all."""
    (standing,) = [row["standing"] for row in audit.blocked if row["topic"] == "bank.audit"]
    return standing, run_report(audit).verdict


def test_a_decided_two_phase_commit_that_gets_no_marker_is_stuck_however_long_its_time_out(tmp_path: Path) -> None:
    audit = live(tmp_path, 20 * 60, NEVER, "PrepareCommit")
    assert ("stuck-prepare", "critical") in {(f.kind, f.severity) for f in audit.findings}
    assert held(audit)[0] == "overdue"


def test_what_is_beyond_its_time_out_and_may_have_ended_is_not_called_normal(tmp_path: Path) -> None:
    standing, said = held(live(tmp_path, 10.8, 10 * MIN, "PrepareCommit"))
    assert standing == "unknown"
    assert "within timeout" not in said.headline


def test_numbers_in_a_sentence_are_few() -> None:
    """A folder's name may say that there are two thousand million partitions."""
    assert few(range(2**31)).endswith("58, 59 and more")
    assert few(range(2)) == "0, 1"


def test_what_a_finding_calls_blocked_is_so_for_alerts_too() -> None:
    """A two-phase commit within its endless time-out: the page says blocked, so Prometheus must."""
    audit = opened(corpora.unpack("twopc-43"), as_of=corpora.manifest("twopc-43")["as_of"])
    blocked = run_report(audit).verdict.held
    assert blocked
    for row in blocked:
        assert row.holder.standing == metrics._standing(row) == "overdue"
        assert "normal" not in answers.standing_text(row.holder)


@pytest.mark.parametrize(("minutes", "severity"), [(59, None), (61, "warning"), (239, "warning"), (241, "critical")])
def test_within_a_time_out_that_is_known_readers_wait_an_hour_before_a_warning(
    minutes: int, severity: str | None, tmp_path: Path
) -> None:
    """It ends four hours after its beginning; half a minute later its coordinator should have ended it."""
    bank = Bank(tmp_path, "bank.audit-1")
    hours = {"start": BUSY_SINCE, "timeout": 240 * MIN}
    bank.coordinator.state(BUSY, "Ongoing", BUSY_PRODUCER, BUSY_SINCE + 10, "bank.audit-1", **hours)
    bank.coordinator.save()
    holders = ("lso-stuck", "long-open-transaction", "timeout-not-enforced")
    audit = opened(tmp_path, as_of=BUSY_SINCE + minutes * MIN, rules=holders)
    assert [f.severity for f in audit.findings] == ([severity] if severity else [])
    for found in audit.findings if severity == "warning" else ():
        assert (found.kind, found.evidence["ends_at_the_latest"]) == ("lso-stuck", iso(BUSY_SINCE + 240 * MIN))
        assert iso(BUSY_SINCE + 240 * MIN) in found.message
    (row,) = (row for row in audit.blocked if row["topic"] == "bank.audit")
    assert (row["standing"], row["severity"]) == ("overdue" if severity == "critical" else "waiting", severity)
    assert audit.exit_code() == int(severity == "critical")


@pytest.mark.parametrize("offsets", [150_000, 150_000_000])
def test_a_busy_partition_of_a_running_broker_is_not_stuck_by_its_log_end(tmp_path: Path, offsets: int) -> None:
    """Within a time-out that its coordinator knows no number of records is a finding."""
    bank = Bank(tmp_path, "bank.audit-1")
    data = bank.lab.log("bank.audit-1")
    last, parts = data.data(BUSY_PRODUCER[0])[-1], 30
    for _ in range(parts):
        data.next(
            last, base_time=BUSY_SINCE + 3_000, max_time=BUSY_SINCE + 3_000, producer_id=-1, epoch=-1, sequence=-1,
            attributes=0, delta=offsets // parts - 1,
        )  # fmt: skip
    data.save()
    audit = opened(tmp_path, as_of=BUSY_SINCE + 3_500)
    assert "lso-stuck" not in {f.kind for f in audit.findings}
    assert held(audit)[0] == "waiting"
