"""Each expectation has a row that breaks it and it alone; what is evaluated is what was built.

great-expectations is imported where it is called: it takes 4 s, in each worker that collects this file.
"""

from __future__ import annotations

import datetime
import os
import socket
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from auditor import inline
from auditor.connectors import schema
from auditor.rules.expectations.measures import MEASURES, checks
from auditor.rules.seen.view import Finding

FINDING = Finding(
    "sequence-gap", "warning", 1, "t", 0, 5, 6, message="m", outcome="none",
    timestamp=datetime.datetime.fromisoformat("2026-11-21T04:00:00.000Z"),
).to_dict() | {"remedy": "r", "fingerprint": "f", "source": "s"}  # fmt: skip
LOG = {
    **dict.fromkeys(schema.LOGS.names, 0), "leader_copy": True, "cluster_id": "c", "log_dir": "d", "topic": "t",
    "bytes_total": 10, "bytes_decoded": 10, "offsets_total": 4, "offsets_data": 4,
    "log_end": 4, "last_stable_offset": 4,
}  # fmt: skip
RATIOS = {f"{name}_ratio": 1.0 for name in ("batches", "records", "producers", "bytes_total")}
JUDGED = LOG | RATIOS | {"bytes_off": 0, "offsets_off": 0, "batches_ratio": float("nan")}
RUN = {"age_ms": 0, "logs": 1, "bytes_unreadable": 0, "covered": 1.0}
# suite, what a good row is changed by, the columns of the expectations that fail
BREAKS: list[tuple[str, dict[str, Any], set[str]]] = [
    ("findings", {}, set()),
    ("findings", {"severity": "critical"}, {"severity"}),
    ("findings", {"severity": "error"}, {"severity"}),
    ("findings", {"severity": "grave"}, {"severity"}),
    ("findings", {"rule": "no-such-rule"}, {"rule"}),
    ("findings", {"kind": "no-such-kind"}, {"kind"}),
    ("findings", {"message": None}, {"message"}),
    ("findings", {"last_offset": 4}, {"last_offset, offset"}),
    ("logs", {}, set()),
    ("logs", {"topic": ""}, {"topic"}),
    ("logs", {"log_end": None}, {"log_end"}),
    ("logs", {"batches": -1}, {"batches"}),
    ("logs_judged", {}, set()),
    ("logs_judged", {"bytes_off": 1}, {"bytes_off"}),
    ("logs_judged", {"offsets_off": -1}, {"offsets_off"}),
    ("logs_judged", {"bytes_error": 1}, {"bytes_error"}),
    ("logs_judged", {"offsets_missing": 1}, {"offsets_missing"}),
    ("logs_judged", {"log_start": 5}, {"log_end, log_start"}),
    ("logs_judged", {"last_stable_offset": 5}, {"log_end, last_stable_offset"}),
    ("logs_judged", {"batches_ratio": 0.4}, {"batches_ratio"}),
    ("logs_judged", {"producers_ratio": 2.1}, {"producers_ratio"}),
    ("run", {}, set()),
    ("run", {"age_ms": 86_400_001}, {"age_ms"}),
    ("run", {"bytes_unreadable": 1}, {"bytes_unreadable"}),
    ("run", {"logs": 0}, {"logs"}),
    ("run", {"covered": 0.5}, {"covered"}),
]


def judged(suite: str, *frames: pd.DataFrame) -> list[dict[str, Any]]:
    from auditor.rules.expectations import suites

    return list(suites.run([(suite, frames)]))


def good_row(suite: str) -> dict[str, Any]:
    columns = schema.TABLES["findings"].schema().names
    finding = dict.fromkeys(columns) | {name: FINDING[name] for name in columns if name in FINDING}
    return {"findings": finding, "logs": LOG, "logs_judged": JUDGED, "run": RUN}[suite]


@pytest.mark.parametrize(("suite", "change", "failing"), BREAKS)
def test_each_expectation_of_results_has_what_breaks_it(suite: str, change: dict[str, Any], failing: set[str]) -> None:
    rows = judged(suite, pd.DataFrame([good_row(suite) | change]))
    assert {row["column"] for row in rows if not row["success"]} == failing
    assert not [row["error"] for row in rows if row["error"]]
    assert sum(not row["success"] for row in rows) == len(failing)


def test_frames_of_one_table_are_judged_together() -> None:
    """Two of three rows break an expectation: the second and the third frame have one each."""
    frames = [pd.DataFrame([RUN | {"logs": logs}]) for logs in (1, 0, 0)]
    (row,) = [row for row in judged("run", *frames) if row["column"] == "logs"]
    assert (row["success"], row["rows"], row["broken"]) == (False, 3, 2)


def test_sums_and_ratios_are_those_of_the_logs_and_the_run_before() -> None:
    """bytes: 10 of 12 are accounted for; batches: 400 after 100; producers: too few to compare."""
    from auditor.rules.expectations import suites

    now = LOG | {"bytes_total": 12, "batches": 400, "producers": 99}
    held = {
        name: pa.Table.from_pylist([row], schema=schema.LOGS)
        for name, row in {"logs": now, "logs_before": now | {"batches": 100}}.items()
    }
    for name, frames in inline.frames(held, {}, suites.views):
        if name == "logs_judged":
            (row,) = next(iter(frames)).to_dict("records")
            assert (row["bytes_off"], row["offsets_off"], row["batches_ratio"]) == (-2, 0, 4.0)
            assert pd.isna(row["producers_ratio"])


@pytest.mark.parametrize("table", ["batches", "events"])
def test_a_count_fails_its_own_expectation_and_names_the_log(table: str) -> None:
    """``mostly`` counts logs: one of 300 may break what one of 20 may not."""
    key = dict.fromkeys(MEASURES[table].key, "x") | {"rows": 1}
    good = key | {c.name: 0 for c in checks(table)}
    broken = [good | {check.name: 2, "log_dir": check.name} for check in checks(table)]
    rows = judged(f"{table}_counts", pd.DataFrame([good, *broken]))
    where = {row["column"]: (row["success"], row["broken"], (row["where"] or "").split("/")[0]) for row in rows}
    assert where == {c.name: (False, 1, c.name) for c in checks(table)}
    rows = judged(f"{table}_counts", pd.DataFrame([*[good] * 300, *broken]))
    assert {row["column"] for row in rows if row["success"]} == {c.name for c in checks(table) if c.mostly < 1}


@pytest.mark.parametrize("table", schema.names(*schema.MadeOf))
def test_no_row_at_all_meets_every_expectation(table: str) -> None:
    rows = judged(table, schema.TABLES[table].schema().empty_table().to_pandas())
    assert all(row["success"] for row in rows)
    assert rows


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
