"""What the table ``space`` foretells, held against what a real broker's retention then does: what was to go is gone,
what was to stay is there.

The broker is stopped, copied and started again with a check every second. ``SPACE_LOGS`` random logs a release;
``SPACE_SEED``: the first seed.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from auditor.outputs import publish
from tests.broker.cluster import Cluster, Driver, segment_bytes
from tests.broker.jars import missing_tools, numbers
from tests.broker.newer_kafka import tiered_settings, until_tiered
from tests.copies import copy_of
from tests.facts import opened

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(missing_tools() is not None, reason=str(missing_tools()))]
LOGS = int(os.environ.get("SPACE_LOGS", "15"))
SEED = int(os.environ.get("SPACE_SEED", "1"))
HOUR_MS = 3_600_000
POLICIES = ("delete", "delete", "delete", "compact,delete", "compact")
SEGMENT = 4096
FIRST_CHECK_S = 60  # where a release does not let it be set: half a minute after the start


def _make(run: Driver, version: str, seed: int) -> str:
    """A log of several segments: old, new, and of the future."""
    rng, name = random.Random(seed), f"sp.{seed}"
    policy = rng.choice(POLICIES)
    known = {(3, 6): "message.timestamp.after.max.ms=9000000000 message.timestamp.before.max.ms=9000000000"}
    limits = " ".join(words for since, words in known.items() if numbers(version) >= since)
    run(
        f"topic {name} 1 1 cleanup.policy={policy} retention.ms=-1 retention.bytes=-1 min.cleanable.dirty.ratio=1 "
        f"{segment_bytes(version, SEGMENT)} {limits}"
    )
    now = int(time.time() * 1000)
    run(f"producer p{seed}" + (f" transactional.id=t{seed}" if seed % 3 == 0 else ""))
    if seed % 3 == 0:
        run(f"init p{seed}")
    for _ in range(rng.randint(2, 8)):
        if seed % 3 == 0:
            run(f"begin p{seed}")
        at = now + rng.choice((-3, -3, -3, 0, 0, 5)) * HOUR_MS
        run(f"send p{seed} {name} 0 {rng.randint(15, 60)} size=60 at={at}")
        if seed % 3 == 0:
            run(f"{rng.choice(('commit', 'abort'))} p{seed}")
    if "delete" in policy and rng.random() < 0.3:
        run(f"delete-records {name} 0 {rng.randint(1, int(run(f'end-of {name} 0')))}")
    return name


def _limit(run: Driver, seed: int, name: str) -> None:
    rng = random.Random(seed + 10_000)
    age = rng.choice((-1, HOUR_MS, HOUR_MS, 4 * HOUR_MS))
    size = rng.choice((-1, -1, rng.randint(0, 6 * SEGMENT)))
    run(f"config topic {name} retention.ms={age} retention.bytes={size}")


def _there(cluster: Cluster, name: str) -> set[int]:
    return {int(file.stem) for file in (cluster.log_dir() / f"{name}-0").glob("*.log")}


@pytest.mark.parametrize("version", ["4.3.1", "3.9.1"])
def test_what_was_to_go_is_gone_and_what_was_to_stay_is_there(version: str, tmp_path: Path) -> None:
    slow = {"log_initial_task_delay_ms": "3600000", "log_cleaner_backoff_ms": "3600000"}
    with Cluster(version, tmp_path / "cluster", heap="384m", log_retention_check_interval_ms="3600000", **slow) as c:
        with Driver(c) as run:
            logs = [_make(run, version, seed) for seed in range(SEED, SEED + LOGS)]
            for seed, name in enumerate(logs, SEED):
                _limit(run, seed, name)
        c.stop()
        c.copy(tmp_path / "taken")
        now = int(time.time() * 1000)
        rows = _said(tmp_path / "taken", now)
        goes = {name: {row["base_offset"] for row in rows[name] if row["goes"]} for name in logs}
        stays = {name: {row["base_offset"] for row in rows[name] if not row["goes"]} for name in logs}
        _let_go(c, goes)
        for name in logs:
            there = _there(c, name)
            assert not goes[name] & there, (name, there, rows[name])
            assert stays[name] <= there, (name, there, rows[name])
    asides = publish.run_report(opened(tmp_path / "taken", as_of=now)).summary["asides"]
    ahead = {name for name in logs if any(row["kept_by"] == "timestamp_in_the_future" for row in rows[name])}
    assert {row["topic"] for row in asides if row["about"] == "space"} == ahead
    copy_of(tmp_path / "taken", tmp_path / "copy")
    assert _said(tmp_path / "copy", now) == rows
    said = [row for name in logs for row in rows[name]]
    assert all(row["undecided"] is None for row in said)
    assert {"retention_ms", "retention_bytes"} <= {row["goes"] for row in said}
    assert {"timestamp_in_the_future", "older_segment", "not_old_enough"} <= {row["kept_by"] for row in said}


def _let_go(c: Cluster, goes: dict[str, set[int]]) -> None:
    """Starts the broker with a check every second, and waits until it has taken what was to go, and some more."""
    c.settings |= {
        "log.initial.task.delay.ms": "500", "log.retention.check.interval.ms": "1000", "log.cleaner.backoff.ms": "500",
    }  # fmt: skip
    c._configure(1)
    c.start()
    c.await_port()
    until = time.monotonic() + FIRST_CHECK_S
    while any(goes[name] & _there(c, name) for name in goes) and time.monotonic() < until:
        time.sleep(1)
    time.sleep(3)


def test_of_a_tiered_log_what_was_to_go_is_gone_and_what_was_to_stay_is_there(tmp_path: Path) -> None:
    """Local segments by ``local.retention.*``: of those that are in remote storage, of those that an open transaction
    keeps out of it, of those below a log start that was raised, and of the active one, which may go once it has been
    rolled and copied."""
    remote, own = tmp_path / "remote", tiered_settings(tmp_path / "remote")
    own |= {name: value.replace("2", "1") for name, value in own.items() if name.startswith("rlmm.config")}
    own |= {"log.initial.task.delay.ms": "3600000", "log.retention.check.interval.ms": "3600000"}
    remote.mkdir()
    settings = {name.replace(".", "_"): value for name, value in own.items()}
    with Cluster("4.3.1", tmp_path / "cluster", others=("kafka-storage:test",), heap="384m", **settings) as c:
        with Driver(c) as run:
            logs = [_make_tiered(run, seed) for seed in range(SEED, SEED + LOGS)]
            until_tiered(remote)
            for seed, name in enumerate(logs, SEED):
                rng = random.Random(seed + 10_000)
                age, size = rng.choice((-2, HOUR_MS, HOUR_MS)), rng.choice((-2, rng.randint(0, 4 * SEGMENT)))
                run(f"config topic {name} local.retention.ms={age} local.retention.bytes={size}")
        c.stop()
        c.copy(tmp_path / "taken")
        shutil.copytree(remote, tmp_path / "taken" / "remote")
        rows = _said(tmp_path / "taken", int(time.time() * 1000))
        goes = {name: {row["base_offset"] for row in rows[name] if row["goes"]} for name in logs}
        _let_go(c, goes)
        for name in logs:
            there = _there(c, name)
            assert not goes[name] & there, (name, there, rows[name])
            stays = [
                row for row in rows[name] if not row["goes"] and (row["held_offset"] is not None or not row["active"])
            ]
            assert {row["base_offset"] for row in stays} <= there, (name, there, stays)
    said = [row for name in logs for row in rows[name]]
    ahead = [row for row in said if row["undecided"] is not None]  # which 4.3.1, without KAFKA-20609, keeps
    assert all("KAFKA-20609" in row["undecided"] for row in ahead), ahead
    assert "timestamp_in_the_future" in {row["kept_by"] for row in ahead}
    assert {"retention_ms", "retention_bytes", "log_start_offset"} <= {row["goes"] for row in said}
    held = [row for row in said if row["held_offset"] is not None]
    assert held
    assert all(row["kept_by"] == "not_in_remote_storage" for row in held)


def _make_tiered(run: Driver, seed: int) -> str:
    """A tiered log of several segments, every third of them with a transaction that stays open in it."""
    rng, name = random.Random(seed), f"ti.{seed}"
    run(
        f"topic {name} 1 1 remote.storage.enable=true retention.ms=-1 retention.bytes=-1 "
        f"{segment_bytes('4.3.1', SEGMENT)} index.interval.bytes=500 message.timestamp.after.max.ms=9000000000"
    )
    run(f"producer p{seed}")
    now = int(time.time() * 1000)
    holder = f"h{seed}"
    for k in range(rng.randint(3, 6)):
        if seed % 3 == 0 and k == 2:
            run(f"producer {holder} transactional.id={holder} transaction.timeout.ms=900000")
            run(f"init {holder}")
            run(f"begin {holder}")
            run(f"send {holder} {name} 0 5 size=60")
        at = now + (rng.choice((-3, -3, 0, 5)) if k else -3) * HOUR_MS
        run(f"send p{seed} {name} 0 {rng.randint(40, 90)} size=60 at={at}")
    run(f"send p{seed} {name} 0 5 size=60")
    if seed % 5 == 2:
        run(f"delete-records {name} 0 {rng.randint(60, int(run(f'end-of {name} 0')))}")
    return name


def _said(path: Path, now: int) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in opened(path, as_of=now).table("space").to_pylist():
        found.setdefault(row["topic"], []).append(row | {"log_dir": ""})
    return found
