"""A transaction that is open by its own log for longer than it may be, whatever the age of its coordinator's copy."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from auditor.pipeline.whole_audit import Audit
from tests import bare_broker
from tests.audited import above_info
from tests.bare_broker import BEGAN, data, finish
from tests.cluster_writers import LOG_APPEND_TIME
from tests.coordinator_records import Coordinator
from tests.facts import opened
from tests.forge import TRANSACTIONAL, Forged
from tests.whole.test_one_standing import agree

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
APP, OTHER = 100, 200  # producer ids
TWO_PHASES = 2**31 - 1  # transaction.two.phase.commit.enable: no timeout


def held(root: Path, *times: int, timeout: int = MINUTE, alone: bool = False, others: Sequence[int] = ()) -> Audit:
    """Broker 1 has t-0 with a transaction, and behind it data of another producer at these times; the log of its
    coordinator, on broker 2, was copied before it. ``alone``: there is no coordinator's log; ``others``: times of w-0,
    on broker 1 too."""
    paths = {1: bare_broker.broker(root, "t-0", "w-0"), 2: bare_broker.broker(root, number=2)}
    shutil.rmtree(paths[1] / "__transaction_state-0")
    log, other, states = Forged(paths[1], "t-0"), Forged(paths[1], "w-0"), Coordinator(paths[2], 0)
    for path in paths.values():
        (path / ".kafka_cleanshutdown").unlink()
    states.state("app", "Empty", (APP, 0), BEGAN, start=-1, timeout=timeout)
    for number, time in enumerate(others):
        data(other, OTHER, 3 * number, BEGAN + MINUTE + time, attributes=LOG_APPEND_TIME)
    data(log, APP, 0, BEGAN + MINUTE, attributes=LOG_APPEND_TIME | TRANSACTIONAL)
    for number, time in enumerate(times):
        data(log, OTHER, 3 * number, BEGAN + MINUTE + time, attributes=LOG_APPEND_TIME)
    finish(log, other, states)
    for path in paths.values():
        (path / "replication-offset-checkpoint").unlink(missing_ok=True)
    if alone:
        shutil.rmtree(paths[2] / "__transaction_state-0")
    return opened(root)


def said(audit: Audit) -> tuple[str | None, str, str, str]:
    """Severity of the finding above info, and status, certainty and standing of the partition."""
    (row,) = [row for row in audit.blocked if row["topic"] == "t"]
    found = [f for f in above_info(audit.findings) if f.topic == "t"]
    assert len(found) <= 1
    severity = found[0].severity if found else None
    assert severity == (row["severity"] if row["severity"] in ("critical", "error", "warning") else None)
    return severity, row["status"], row["certainty"], row["standing"]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ((20 * SECOND,), (None, "unknown", "inconclusive", "unknown")),
        ((80 * SECOND,), (None, "unknown", "inconclusive", "unknown")),
        ((100 * SECOND,), ("error", "overdue", "proved", "overdue")),
        ((HOUR - MINUTE,), ("error", "overdue", "proved", "overdue")),
        ((30 * MINUTE, HOUR + MINUTE), ("critical", "overdue", "proved", "overdue")),
    ],
)
def test_its_own_times_show_how_long_it_is_open(
    times: tuple[int, ...], expected: tuple[str, ...], tmp_path: Path
) -> None:
    """A timeout of 60 s; its coordinator looks every 10 s and is given 20 s."""
    audit = held(tmp_path, *times)
    assert said(audit) == expected
    (row,) = [row for row in audit.blocked if row["topic"] == "t"]
    assert row["held_at_least_ms"] == times[-1]
    agree(audit, tmp_path)


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ((), ("critical", "proved")),  # nothing speaks against it
        (
            (0, MINUTE),
            ("error", "likely"),
        ),  # all else of its broker was written hours before: its clock may have jumped
        ((0, 3 * HOUR - MINUTE), ("critical", "proved")),
    ],
)
def test_one_time_alone_far_ahead_of_all_others_is_likely(
    others: tuple[int, ...], expected: tuple[str, str], tmp_path: Path
) -> None:
    severity, status, certainty, standing = said(held(tmp_path, 3 * HOUR, others=others))
    assert (severity, certainty, status, standing) == (*expected, "overdue", "overdue")


def test_a_clock_that_was_wrong_and_set_back_proves_nothing(tmp_path: Path) -> None:
    audit = held(tmp_path, 10 * SECOND, 3 * HOUR, 20 * SECOND, 30 * SECOND)
    (row,) = [row for row in audit.blocked if row["topic"] == "t"]
    assert row["held_at_least_ms"] == 10 * SECOND
    assert {f.kind for f in above_info(audit.findings)} <= {"clock-skew"}


@pytest.mark.parametrize("alone", [False, True])
def test_without_a_known_timeout_it_is_15_minutes(alone: bool, tmp_path: Path) -> None:
    times = [MINUTE * n for n in range(1, 15)]
    short = held(tmp_path / "short", *times, timeout=15 * MINUTE, alone=alone)
    assert said(short)[::3] == (None, "unknown")
    longer = held(tmp_path / "long", *times, 16 * MINUTE, timeout=15 * MINUTE, alone=alone)
    assert said(longer)[::3] == ("error", "overdue")


def test_a_two_phase_commit_has_no_timeout(tmp_path: Path) -> None:
    audit = held(tmp_path, HOUR, 3 * HOUR, timeout=TWO_PHASES)
    assert said(audit)[::3] == (None, "unknown")


def test_the_ids_own_timeout_may_be_longer(tmp_path: Path) -> None:
    assert said(held(tmp_path, HOUR, 3 * HOUR, timeout=4 * HOUR))[0] is None
