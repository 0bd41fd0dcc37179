"""Voters of a KRaft quorum: what one keeps that led and was cut off was never committed, and its vote is never moved.

The campaign is of real brokers: 1 led, was cut off at offset 77, took a topic of 150 partitions, and was killed.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from auditor.rules.lib.repairs import VOTE
from tests import corpora
from tests.audited import above_info
from tests.controller_records import Controller
from tests.facts import opened
from tests.forge import Forged

CORPUS, METADATA = "cut-off-43", "__cluster_metadata"
AS_OF = corpora.manifest(CORPUS)["copied_at"]
CUT_OFF, FORK = corpora.manifest(CORPUS)["cut_off"], 77
OTHERS = tuple(broker for broker in (1, 2, 3) if broker != CUT_OFF)


def some_of(tmp_path: Path, *brokers: int) -> Path:
    """A copy of some brokers' directories."""
    root = corpora.copy(CORPUS, tmp_path / "-".join(map(str, brokers)))
    for path in list(root.iterdir()):
        if not any(f"-{broker}" in path.name for broker in brokers):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return root


@pytest.mark.parametrize(
    ("brokers", "sure"),
    [((1,), False), ((1,), True), ((2,), False), ((1, 3), False), ((1, 2), True), ((1, 2, 3), True)],
)
def test_an_uncommitted_tail_is_no_loss(tmp_path: Path, brokers: tuple[int, ...], sure: bool) -> None:
    audit = opened(some_of(tmp_path, *brokers), as_of=AS_OF, at_once=sure, whole=sure)
    assert above_info(audit.findings) == []
    assert [f.kind for f in audit.findings if f.kind == "replica-divergence"] == []


def test_the_metadata_is_that_of_the_higher_epoch_though_another_copy_is_longer(tmp_path: Path) -> None:
    root = some_of(tmp_path, 1, 2, 3)
    ends = {broker: Forged(root / f"broker-{broker}", f"{METADATA}-0").end for broker in (1, 2, 3)}
    assert max(ends, key=lambda broker: ends[broker]) == CUT_OFF
    (settings,) = opened(root, as_of=AS_OF).settings.values()
    assert settings.metadata is not None
    assert "trio.never" not in settings.metadata.topics
    assert "trio.new" in settings.metadata.topics
    assert settings.metadata_ends[CUT_OFF] == FORK
    assert settings.committed[f"broker-{CUT_OFF}"] == FORK


@pytest.mark.parametrize("voters", [1, 2])
def test_a_decision_that_a_majority_has_not_is_in_doubt(tmp_path: Path, voters: int) -> None:
    """Broker 1, which was out of the in-sync set, is made leader by a record that one voter has, or two of three."""
    root = some_of(tmp_path, 1, 2, 3)
    leader = max(OTHERS, key=lambda b: Forged(root / f"broker-{b}", f"{METADATA}-0").last["leader_epoch"])
    writing = Controller(root / f"broker-{leader}", AS_OF)
    writing.partition("trio.log-0", isr=(CUT_OFF,), replicas=(1, 2, 3), leader=CUT_OFF)
    writing.save()
    if voters == 2:
        other = root / f"broker-{next(b for b in OTHERS if b != leader)}" / f"{METADATA}-0"
        shutil.rmtree(other)
        shutil.copytree(root / f"broker-{leader}" / f"{METADATA}-0", other)
    (f,) = [f for f in opened(root, as_of=AS_OF).findings if f.kind == "unclean-election"]
    assert (f.topic, f.partition) == ("trio.log", 0)
    assert (f.severity, f.if_true) == (("critical", None) if voters == 2 else ("info", "critical"))


def test_another_record_of_the_same_epoch_is_a_divergence(tmp_path: Path) -> None:
    """By Raft there is none: below what a majority has, and above it."""
    root = some_of(tmp_path, 1, 2, 3)
    log = Forged(root / f"broker-{OTHERS[1]}", f"{METADATA}-0")
    odd = next(b for b in log.all() if b["base_offset"] > 20 and not b.control)
    odd.set(max_time=odd["max_time"] + 1)
    log.save()
    (f,) = above_info(opened(root, as_of=AS_OF).findings)
    assert (f.kind, f.severity, f.topic, f.offset) == ("replica-divergence", "critical", METADATA, odd["base_offset"])
    assert f.remedy is not None
    assert f.remedy.startswith(f"Investigate first: {VOTE}")


def test_what_a_majority_had_and_a_later_leader_has_not_is_lost(tmp_path: Path) -> None:
    """The leader of the newest epoch forgot what the other two have: another epoch from an offset on that both have."""
    root = some_of(tmp_path, 1, 2, 3)
    leader = max(OTHERS, key=lambda b: Forged(root / f"broker-{b}", f"{METADATA}-0").last["leader_epoch"])
    log = Forged(root / f"broker-{leader}", f"{METADATA}-0")
    begins = next(b["base_offset"] for b in log.all() if b["base_offset"] >= 50)
    for b in log.all():
        if b["base_offset"] >= begins:
            b.set(leader_epoch=9)
    log.save()
    (log.folder / "leader-epoch-checkpoint").write_text(f"0\n2\n1 0\n9 {begins}\n")
    found = above_info(opened(root, as_of=AS_OF).findings)
    assert {(f.kind, f.severity, f.topic, f.offset) for f in found} == {
        ("replica-divergence", "critical", METADATA, begins)
    }
    assert {f.broker_id for f in found} == {1, 2, 3} - {leader}
    assert all(f.remedy is not None and f.remedy.startswith(f"Investigate first: {VOTE}") for f in found)


def test_what_a_snapshot_of_its_own_has_was_committed(tmp_path: Path) -> None:
    """The cut-off voter has a complete snapshot that ends in what the others do not have."""
    root = some_of(tmp_path, 1, 2, 3)
    folder = root / f"broker-{CUT_OFF}" / f"{METADATA}-0"
    Controller(root / f"broker-{CUT_OFF}", AS_OF).snapshot(FORK + 10, 1)
    assert (folder / f"{FORK + 10:020}-0000000001.checkpoint").exists()
    found = [(f.kind, f.severity, f.broker_id, f.offset) for f in above_info(opened(root, as_of=AS_OF).findings)]
    assert found == [("replica-divergence", "critical", CUT_OFF, FORK)]


def test_no_remedy_moves_a_vote_away(tmp_path: Path) -> None:
    """A damaged batch in the middle of a voter's log: of data the replica would be fetched again."""
    root = some_of(tmp_path, 1, 2, 3)
    log = Forged(root / f"broker-{OTHERS[0]}", f"{METADATA}-0")
    odd = next(b for b in log.all() if b["base_offset"] > 20 and not b.control)
    odd.set(crc=odd["crc"] ^ 1)
    log.save()
    found = [f for f in opened(root, as_of=AS_OF).findings if f.topic == METADATA]
    assert "batch-crc-mismatch" in {f.kind for f in found}
    assert any(VOTE in (f.remedy or "") for f in found)
    assert not [f.remedy for f in found if "away" in (f.remedy or "")]
