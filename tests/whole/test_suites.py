"""Each expectation has a row that breaks it and it alone; what is evaluated is what was built.

great-expectations is imported where it is called: it takes 4 s, in each worker that collects this file.
"""

from __future__ import annotations

import datetime
import os
import socket
from typing import Any

import pandas as pd
import pytest

from auditor.pipeline import summary
from auditor.rules.expectations.measures import MEASURES
from auditor.rules.seen.view import FIELDS, Finding

FINDING = Finding(
    "sequence-gap",
    "warning",
    1,
    "t",
    0,
    5,
    6,
    message="m",
    timestamp=datetime.datetime.fromisoformat("2026-11-21T04:00:00.000Z"),
).to_dict()
LOG = {
    **dict.fromkeys(summary.LOGS.names, 0), "cluster_id": "c", "log_dir": "d", "topic": "t",
    "bytes_total": 10, "bytes_decoded": 10, "offsets_total": 4, "offsets_data": 4,
    "log_end": 4, "last_stable_offset": 4, "batches_ratio": 1.0, "producers_ratio": float("nan"),
}  # fmt: skip
OFFSETS = (
    "offsets_data, offsets_aborted, offsets_marker, offsets_compacted, offsets_unreadable, offsets_missing, "
    "offsets_remote, offsets_left_out, offsets_not_reached, offsets_total"
)
RUN = {"age_ms": 0, "logs": 1, "bytes_unreadable": 0, "covered": 1.0}
# suite, what a good row is changed by, the columns of the expectations that fail
BREAKS: list[tuple[str, dict[str, Any], set[str]]] = [
    ("findings", {}, set()),
    ("findings", {"extra": 1}, {", ".join(["cluster_id", *FIELDS])}),
    ("findings", {"severity": "critical"}, {"severity"}),
    ("findings", {"severity": "error"}, {"severity"}),
    ("findings", {"severity": "grave"}, {"severity"}),
    ("findings", {"rule": "no-such-rule"}, {"rule"}),
    ("findings", {"kind": "no-such-kind"}, {"kind"}),
    ("findings", {"message": None}, {"message"}),
    ("findings", {"timestamp": "yesterday"}, {"timestamp"}),
    ("findings", {"last_offset": 4}, {"last_offset, offset"}),
    ("logs", {}, set()),
    ("logs", {"bytes_total": 11}, {"bytes_decoded, bytes_skipped, bytes_error, bytes_total"}),
    ("logs", {"offsets_total": 5}, {OFFSETS}),
    ("logs", {"bytes_error": 1, "bytes_decoded": 9}, {"bytes_error"}),
    ("logs", {"offsets_missing": 1, "offsets_data": 3}, {"offsets_missing"}),
    ("logs", {"log_start": 5}, {"log_end, log_start"}),
    ("logs", {"last_stable_offset": 5}, {"log_end, last_stable_offset"}),
    ("logs", {"batches_ratio": 0.4}, {"batches_ratio"}),
    ("logs", {"producers_ratio": 2.1}, {"producers_ratio"}),
    ("run", {}, set()),
    ("run", {"age_ms": 86_400_001}, {"age_ms"}),
    ("run", {"bytes_unreadable": 1}, {"bytes_unreadable"}),
    ("run", {"logs": 0}, {"logs"}),
    ("run", {"covered": 0.5}, {"covered"}),
]


def judged(suite: str, frame: pd.DataFrame, columns: str = "") -> list[dict[str, Any]]:
    from auditor.rules.expectations import suites
    from auditor.rules.expectations import suites as expectations_suites

    return expectations_suites.run({suite: (frame, suites.expectations(suite, columns))})


@pytest.mark.parametrize(("suite", "change", "failing"), BREAKS)
def test_each_expectation_of_results_has_what_breaks_it(suite: str, change: dict[str, Any], failing: set[str]) -> None:
    good = {"findings": {"cluster_id": "c", **FINDING}, "logs": LOG, "run": RUN}[suite]
    rows = judged(suite, pd.DataFrame([good | change]))
    assert {row["column"] for row in rows if not row["success"]} == failing
    assert not [row["error"] for row in rows if row["error"]]
    assert sum(not row["success"] for row in rows) == len(failing)


def test_every_expectation_of_results_is_broken_above() -> None:
    from auditor.rules.expectations.suites import expectations

    for suite in ("findings", "logs", "run"):
        assert sum(name == suite and bool(change) for name, change, _ in BREAKS) >= len(expectations(suite))


@pytest.mark.parametrize("table", MEASURES)
def test_a_count_fails_its_own_expectation_and_names_the_log(table: str) -> None:
    measure = MEASURES[table]
    good = dict.fromkeys(measure.key, "x") | {"columns": "c", "rows": 1} | {c.name: 0 for c in measure.checks}
    broken = [good | {check.name: 2, "log_dir": check.name} for check in measure.checks]
    rows = judged(table, pd.DataFrame([good, *broken, good | {"columns": "other", "log_dir": "columns"}]), "c")
    where = {row["column"]: (row["success"], row["broken"], (row["where"] or "").split("/")[0]) for row in rows}
    assert where == {name: (False, 1, name) for name in ["columns", *(c.name for c in measure.checks)]}


def test_no_finding_at_all_meets_every_expectation_of_findings() -> None:
    rows = judged("findings", summary.FINDINGS.empty_table().to_pandas())
    assert all(row["success"] for row in rows)


def test_a_suite_that_shrank_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """What great-expectations does to a custom expectation that is not known: it leaves it out, and says success."""
    from auditor.rules.expectations import suites as expectations_suites

    whole = expectations_suites.gx.ExpectationSuite
    monkeypatch.setattr(
        expectations_suites.gx,
        "ExpectationSuite",
        lambda name, expectations: whole(name, expectations=expectations[1:]),
    )
    with pytest.raises(AssertionError, match="suite run: 4 expectations built, 3 evaluated"):
        judged("run", pd.DataFrame([RUN]))


def test_telemetry_is_off_and_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError(f"connects to {args}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert all(row["success"] for row in judged("run", pd.DataFrame([RUN])))
    assert os.environ["GX_ANALYTICS_ENABLED"] == "false"
