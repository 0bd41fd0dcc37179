"""Replicas of compacted topics that were fetched anew have their leader's holes, and no checkpoint that says so.

Campaign fetched-anew-43: three brokers, between which compacted topics and those of the coordinators moved. Which
broker led in which epoch is what the campaign's steps say: broker 1 first, then others.
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from auditor.rules.seen.view import Finding
from tests import corpora
from tests.audited import above_info, audit_folder
from tests.forge import Forged

NAME = "fetched-anew-43"
MOVED = "move.one-1"  # cleaned by broker 1, then led by 2, then by 3, where all of it lies in the active segment


def findings(root: Path) -> list[Finding]:
    return audit_folder(root, corpora.manifest(NAME)["copied_at"])


def some(target: Path, brokers: tuple[int, ...]) -> Path:
    """The directories of some brokers with their settings."""
    for broker in brokers:
        shutil.copytree(corpora.unpack(NAME) / f"broker-{broker}", target / f"broker-{broker}")
        shutil.copy(corpora.unpack(NAME) / f"server-{broker}.properties", target)
    return target


@pytest.mark.parametrize("brokers", [*itertools.combinations((1, 2, 3), 1), *itertools.combinations((1, 2, 3), 2)])
def test_some_of_the_brokers(brokers: tuple[int, ...], tmp_path: Path) -> None:
    assert [f.to_json() for f in above_info(findings(some(tmp_path, brokers)))] == []


@pytest.mark.parametrize("broker", [1, 2, 3])
def test_a_broker_without_the_metadata(broker: int, tmp_path: Path) -> None:
    """As of a cluster with ZooKeeper: nobody says who led, nor which topics are compacted."""
    root = some(tmp_path, (broker,))
    shutil.rmtree(root / f"broker-{broker}" / "__cluster_metadata-0")
    assert [f.to_json() for f in above_info(findings(root))] == []


@pytest.fixture
def moved(tmp_path: Path) -> tuple[Path, Forged]:
    root = some(tmp_path, (3,))
    return root, Forged(root / "broker-3", MOVED)


def test_what_the_leader_has_lost_since_it_leads_is_lost(moved: tuple[Path, Forged]) -> None:
    root, log = moved
    newest = log.last["leader_epoch"]
    gone = [b for b in log.data() if b["leader_epoch"] == newest and not b.transactional][3]
    log.drop(gone)
    log.save()
    found = above_info(findings(root))
    assert {(f.topic, f.partition) for f in found} == {("move.one", 1)}
    holes = [f for f in found if f.kind == "offset-hole" or any(a["rule"] == "offset-hole" for a in f.evidence["also"])]
    assert [(f.severity, f.evidence["confidence"]) for f in holes] == [("error", "proved")]


def test_what_is_gone_of_an_epoch_that_another_led_may_have_been_cleaned(moved: tuple[Path, Forged]) -> None:
    root, log = moved
    before = [f for f in findings(root) if f.kind == "offset-hole" and f.topic == "move.one"]
    gone = [b for b in log.data() if b["leader_epoch"] == 0 and not b.transactional][-3]
    log.drop(gone)
    log.save()
    found = findings(root)
    assert [f.to_json() for f in above_info(found)] == []
    after = [f for f in found if f.kind == "offset-hole" and f.topic == "move.one"]
    assert [f.if_true for f in after] == ["error"]
    count = gone.last - gone["base_offset"] + 1
    assert after[0].evidence["missing_offsets"] == before[0].evidence["missing_offsets"] + count
