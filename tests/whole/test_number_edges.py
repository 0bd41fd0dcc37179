"""Numbers beyond all that a cluster has, under right checksums: nothing raises, and what is beside them is reported."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from auditor.base.errors import LAST_MS
from auditor.rules.seen.view import Finding
from tests.bare_broker import BEGAN, broker, data, end, finish
from tests.conftest import NIGHTLY
from tests.coordinator_records import Coordinator
from tests.facts import opened
from tests.forge import Forged
from tests.fuzz.number_edges import HISTORIES, chosen, failures, in_decoders, in_lists, one_at_a_time

DAY = int(time.time()) // 86_400
SAMPLE = 4  # cases of each day's run of all whole tests
HOUR = 3_600_000
LONGEST = 2**63 - 1


def test_no_number_of_any_file_ends_an_audit_a_copy_or_a_decode() -> None:
    """By day: the seed is in the message of a failure. At night all fields of one history, another one each night."""
    cases = one_at_a_time(HISTORIES[DAY % len(HISTORIES)]) if NIGHTLY else chosen(DAY, SAMPLE)
    wrong = {str(case): found for case in cases if (found := failures(case))}
    assert not wrong, (DAY, wrong)


def test_no_number_of_a_list_of_a_copy_ends_an_audit() -> None:
    wrong = [*in_lists(DAY, 100 if NIGHTLY else SAMPLE)]
    assert not wrong, (DAY, wrong)


def test_no_number_ends_a_decoder() -> None:
    wrong = [*in_decoders(DAY, 200_000 if NIGHTLY else 2_000)]
    assert not wrong, (DAY, wrong)


def a_hang_beside(root: Path, stamp: int) -> None:
    """A transaction that nobody will end in pay-0, and another producer's marker with a time of ``stamp`` in other-0,
    before one with a time as it should be."""
    path = broker(root, "pay-0", "other-0")
    pay, other, coordinator = Forged(path, "pay-0"), Forged(path, "other-0"), Coordinator(path, 0)
    data(pay, 7, 0, BEGAN, transactional=True)
    coordinator.state("hangs", "Ongoing", (7, 0), BEGAN, "pay-0", start=BEGAN)
    coordinator.state("hangs", "PrepareAbort", (7, 0), BEGAN + 1, "pay-0", start=BEGAN)
    coordinator.state("hangs", "CompleteAbort", (7, 0), BEGAN + 2, start=BEGAN)
    end(other, data(other, 8, 0, BEGAN, transactional=True), True, stamp)
    end(other, data(other, 8, 3, BEGAN + HOUR, transactional=True), True, BEGAN + HOUR)
    finish(pay, other, coordinator)


def found(root: Path, newest: int, *, records: bool = False) -> list[Finding]:
    """Findings, after a look at what time it is."""
    audit = opened(root, records=records)
    assert [cluster.newest_time for cluster in audit.clusters.values()] == [newest]
    assert audit.exit_code() == 1
    return audit.findings


@pytest.mark.parametrize("records", [False, True])
@pytest.mark.parametrize("stamp", [LAST_MS + 1, LONGEST, LONGEST - HOUR, -LONGEST - 1])
def test_a_marker_that_no_clock_stamped_hides_no_hang(tmp_path: Path, stamp: int, records: bool) -> None:
    a_hang_beside(tmp_path, stamp)
    hang = next(f for f in found(tmp_path, BEGAN + HOUR, records=records) if f.rule == "hanging-transaction")
    assert (hang.topic, hang.severity) == ("pay", "critical")


def test_the_last_time_of_a_calendar_is_a_clock_that_was_set_back(tmp_path: Path) -> None:
    """A time out of range says nothing of a clock, but the one before it does."""
    a_hang_beside(tmp_path, LAST_MS)
    assert "clock-skew" in {f.rule for f in found(tmp_path, BEGAN + HOUR)}


@pytest.mark.parametrize("as_of", [LONGEST, LAST_MS + 1])
def test_an_evaluation_time_out_of_range_is_as_late_as_any(tmp_path: Path, as_of: int) -> None:
    a_hang_beside(tmp_path, BEGAN)
    audit = opened(tmp_path, as_of=as_of)
    assert {"hanging-transaction"} <= {f.rule for f in audit.findings}
    assert [cluster.as_of for cluster in audit.clusters.values()] == [LAST_MS + 1]
