"""What the table ``lag`` says of groups, held against what a real consumer then gets, number for number.

``LAG_LOGS`` random logs a release with five groups each; ``LAG_SEED`` is the first seed.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from auditor.outputs import publish
from tests.broker.cluster import Cluster, Driver
from tests.broker.jars import missing_tools
from tests.broker.lag_cases import KINDS, Case, make_logs, share_groups, stop_groups, taken_by
from tests.copies import copy_of
from tests.facts import opened

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(missing_tools() is not None, reason=str(missing_tools()))]
LOGS = int(os.environ.get("LAG_LOGS", "7"))
SEED = int(os.environ.get("LAG_SEED", "1"))
GROUPS = 5
SETTLED_S = 4  # for the cleaner to have passed, and for checkpoints
STARTS_S = 120  # until a broker writes its first checkpoint of log starts: 30 s after its start, whatever the setting
SETTINGS = {"log_cleaner_backoff_ms": "200", "log_flush_start_offset_checkpoint_interval_ms": "1000"}


@pytest.mark.parametrize("version", ["4.3.1", "3.9.1", "2.8.2"])
def test_a_real_consumer_gets_what_was_said(version: str, tmp_path: Path) -> None:
    with (
        Cluster(version, tmp_path / "cluster", heap="384m", **SETTINGS) as cluster,
        Driver(cluster) as run,
    ):
        places = _settled_logs(cluster, run, range(SEED, SEED + LOGS))
        cases = stop_groups(run, version, places, GROUPS)
        cluster.copy(tmp_path / "taken")
    copy_of(tmp_path / "taken", tmp_path / "copy")
    assert len(cases) == LOGS * GROUPS
    _compare(cases, _said(tmp_path / "taken", records=True), exact=True)
    _compare(cases, _said(tmp_path / "taken"), exact=False)
    _compare(cases, _said(tmp_path / "copy"), exact=False)
    _on_the_page(cases, tmp_path / "taken")
    assert _crossing(tmp_path / "taken") > 0


def test_a_real_share_consumer_gets_what_was_said(tmp_path: Path) -> None:
    """Records that a group of either isolation released come again, those that it accepted or rejected do not."""
    own = {f"share_coordinator_state_topic_{name}": "1" for name in ("num_partitions", "min_isr", "replication_factor")}
    with (
        Cluster("4.3.1", tmp_path / "cluster", heap="384m", **SETTINGS, **own) as c,
        Driver(c) as run,
    ):
        places = _settled_logs(c, run, range(SEED, SEED + len(KINDS)))
        groups = share_groups(run, places, GROUPS)
        c.copy(tmp_path / "taken")
        taken = taken_by(run, groups)
    exact, bounds = _said(tmp_path / "taken", records=True), _said(tmp_path / "taken")
    assert sum(row["settled_records"] for row in exact.values()) > 0
    for group, (topic, isolation) in groups.items():
        name = isolation.removeprefix("read_")
        for row in (exact[group], bounds[group]):
            assert (row["topic"], row["kind"], row["undecided"]) == (topic, "share", None), row
            assert row[f"{name}_records"] <= len(taken[group]) <= row[f"{name}_most"], (row, taken[group])
        assert exact[group][f"{name}_records"] == exact[group][f"{name}_most"], exact[group]


def _settled_logs(cluster: Cluster, run: Driver, seeds: range) -> dict[int, tuple[str, int]]:
    """Random logs that no cleaner changes any more, with the starts of the trimmed ones on disk."""
    places = make_logs(run, cluster.version, seeds)
    time.sleep(SETTLED_S)
    trimmed, until = [topic for topic, _ in places.values() if "trimmed" in topic], time.monotonic() + STARTS_S
    while trimmed and trimmed[0] not in (cluster.log_dir() / "log-start-offset-checkpoint").read_text():
        assert time.monotonic() < until
        time.sleep(1)
    for kind in KINDS:
        if "compacted" in kind:
            run(f"config topic lag.{kind} min.compaction.lag.ms=9000000000")
    time.sleep(1)
    return places


def _on_the_page(cases: list[Case], path: Path) -> None:
    """The groups of held partitions, with what they get at present."""
    rows = [row for row in publish.run_report(opened(path, records=True)).summary["asides"] if row["about"] == "group"]
    held = {case.group: case for case in cases if "held" in case.topic}
    assert {row["group_id"] for row in rows} <= {*held}
    assert rows
    for row in rows:
        assert row["committed_records"] == held[row["group_id"]].read_committed, row


def _crossing(path: Path) -> int:
    """How many open or aborted transactions have data in several segments."""
    rows = opened(path).table("transaction_partitions").to_pylist()
    crossing = 0
    for row in rows:
        if row["kind"] == "marker_only" or row["outcome"] == "COMMIT" or not row["topic"].startswith("lag.rolls"):
            continue
        bases = [int(file.stem) for file in path.glob(f"*/{row['topic']}-{row['partition']}/*.log")]
        crossing += any(row["first_offset"] < base <= row["last_offset"] for base in bases)
    return crossing


def _said(path: Path, **options: Any) -> dict[str, dict[str, Any]]:
    return {row["group_id"]: row for row in opened(path, **options).table("lag").to_pylist()}


def _compare(cases: list[Case], said: dict[str, dict[str, Any]], *, exact: bool) -> None:
    for case in cases:
        row = said[case.group]
        assert (row["topic"], row["partition"], row["committed_offset"]) == (case.topic, case.partition, case.committed)
        if case.committed > row["end_offset"]:
            assert row["stands"] == "beyond_end", case
            continue
        assert row["undecided"] is None, (case, row)
        bounds = {
            "committed": (row["committed_records"], case.read_committed, row["committed_most_records"]),
            "uncommitted": (row["uncommitted_records"], case.read_uncommitted, row["uncommitted_most_records"]),
        }
        for least, got, most in bounds.values():
            assert least <= got <= most, (case, row)
            assert least == most or (not exact and row["stands"] == "batch"), (case, row)
        _adds_up(case, row)


def _adds_up(case: Case, row: dict[str, Any]) -> None:
    """Every offset ahead is a record of one kind, a marker's, or gone."""
    if (
        row["committed_records"] != row["committed_most_records"]
        or row["uncommitted_records"] != row["uncommitted_most_records"]
    ):
        return
    ahead = row["uncommitted_records"] + row["marker_offsets"] + row["missing_offsets"]
    assert ahead == row["offsets"] == row["end_offset"] - max(case.committed, row["log_start"]), (case, row)
    parts = row["committed_records"] + row["waiting_records"] + row["open_records"] + row["aborted_records"]
    assert parts == row["uncommitted_records"], (case, row)
    assert (row["held_producer_id"] is not None) == ("held" in case.topic), (case, row)
