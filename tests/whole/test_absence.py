"""What a log lacks is only held against a cluster where its copy is known to be recent enough: each with its twin.

Made of two forged incidents: twelve ids of three brokers, whose coordinators' logs were copied ten minutes after the
rest; and an orphan that hangs beside a sound producer.
"""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path

import pytest

from auditor.rules.seen.view import Finding
from tests import broker_clocks, corpora
from tests.audited import above_info, audit_folder
from tests.coordinator_records import Coordinator
from tests.forge import Forged
from tests.whole.test_copied_one_by_one import copied_until

LATER, ORPHAN = "coordinator-s-logs-ten-minutes-later-tv0-clean", "and-another-orphan-hangs"
MIN, S = 60_000, 1_000
ALLOWED = {"transaction-abort-rate", "clock-skew"}


def at(clock: str) -> int:
    return int(datetime.fromisoformat(f"2026-09-21T{clock}+00:00").timestamp() * S)


def cluster(tmp_path: Path, name: str = LATER) -> Path:
    return Path(shutil.copytree(corpora.unpack("incidents") / name / "input", tmp_path / "input"))


def found_in(root: Path) -> list[Finding]:
    return [f for f in above_info(audit_folder(root, None)) if f.kind not in ALLOWED]


def set_clocks(root: Path) -> None:
    """Broker 2 is 40 min behind, broker 3 is 55 min ahead."""
    broker_clocks.shift(root, 2, -40 * MIN)
    broker_clocks.shift(root, 3, 55 * MIN)


def copy_at_once(root: Path) -> None:
    for partition in root.glob("broker-*/__transaction_state-*"):
        copied_until(partition, at("14:28:20"))


def lose_a_marker(root: Path) -> int:
    log = Forged(root / "broker-2", "b-1")
    gone = log.markers()[-6]
    log.drop(gone)
    log.save()
    return gone["producer_id"]


@pytest.mark.parametrize("together", [True, False])
def test_three_clocks_that_differ_accuse_nobody(together: bool, tmp_path: Path) -> None:
    root = cluster(tmp_path)
    if together:
        copy_at_once(root)
    set_clocks(root)
    assert found_in(root) == []


@pytest.mark.parametrize("apart", [True, False])
def test_a_marker_that_is_lost_in_the_middle_is_found(apart: bool, tmp_path: Path) -> None:
    root = cluster(tmp_path)
    producer = lose_a_marker(root)
    if apart:
        set_clocks(root)
    (f,) = found_in(root)
    assert (f.kind, f.severity, f.topic, f.partition, f.producer_id) == ("missing-marker", "critical", "b", 1, producer)


def test_what_a_clean_shutdown_shows_to_be_missing_is_found(tmp_path: Path) -> None:
    root = cluster(tmp_path)
    for broker in root.glob("broker-*"):
        (broker / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":5}')
    kinds = [f.kind for f in found_in(root) if f.severity == "critical" and f.topic == "b" and f.partition == 1]
    assert kinds.count("missing-marker") > 100


@pytest.mark.parametrize("again", [0, 30])
def test_a_sound_marker_by_a_clock_40_s_ahead_does_not_hide_an_orphan(again: int, tmp_path: Path) -> None:
    """``again``: how many more transactions its producer makes."""
    root = cluster(tmp_path, ORPHAN)
    coordinator, log = Coordinator(root / "broker-1", 1), Forged(root / "broker-1", "w-0")
    data, marker = log.data()[0], log.markers()[0]
    marker.set(base_time=marker["base_time"] + 40 * S, max_time=marker["max_time"] + 40 * S)
    for k in range(again):
        time, sequence = at("15:14:20") + 2 * S * k, 5 * (k + 1)
        for state, ms in (("Ongoing", 0), ("PrepareCommit", S), ("CompleteCommit", S + 20)):
            names = () if state == "CompleteCommit" else ("w-0",)
            coordinator.state("a", state, (6, 0), time + ms, *names, start=time)
        written = log.next(data, base_time=time + 100, max_time=time + 100, sequence=sequence)
        log.decide(written, True, time=time + S + 10 + 40 * S)
    coordinator.save()
    log.save()
    for one in (coordinator.log, log):
        one.checkpoint("replication-offset-checkpoint", one.end)
    (f,) = [f for f in found_in(root) if f.kind != "index-mismatch"]
    assert (f.kind, f.severity, f.producer_id) == ("hanging-transaction", "critical", 9)


def test_a_coordinators_log_from_an_older_backup_is_one_finding(tmp_path: Path) -> None:
    """It lacks five minutes, and went on under the next leader epoch."""
    root = cluster(tmp_path)
    copy_at_once(root)
    log = Forged(root / "broker-1", "__transaction_state-0")
    log.drop(*(b for b in log.all() if at("14:20:00") <= b["base_time"] < at("14:25:00")))
    first = renumbered(log, at("14:25:00"))
    log.save()
    (f,) = found_in(root)
    assert (f.kind, f.topic, f.partition, f.offset) == ("coordinator-log-restored", "__transaction_state", 0, first)
    assert f.evidence["markers"] > 100
    assert {also["rule"] for also in f.evidence["also"]} >= {"marker-without-decision", "late-write-after-marker"}


def test_a_coordinator_that_is_only_away_for_five_minutes_is_none(tmp_path: Path) -> None:
    """Nothing was written in between."""
    root = cluster(tmp_path)
    copy_at_once(root)
    log = Forged(root / "broker-1", "__transaction_state-0")
    first = renumbered(log, at("14:25:00"))
    log.save()
    assert first > 0
    assert [f.kind for f in found_in(root)] == []


def renumbered(log: Forged, since: int) -> int:
    """Offsets without a gap, and another leader epoch since a time; returns its first offset."""
    end, first = 0, -1
    for batch in log.all():
        first = end if first < 0 and batch["base_time"] >= since else first
        batch.set(base_offset=end, leader_epoch=int(first >= 0))
        end = batch.last + 1
    (log.folder / "leader-epoch-checkpoint").write_text(f"0\n2\n0 0\n1 {first}\n")
    log.checkpoint("replication-offset-checkpoint", end)
    return first
