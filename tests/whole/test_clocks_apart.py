"""Three healthy brokers, the clock of one 40 s ahead: that is said, once, and nothing else; what is lost is found.

Campaign clocks-apart-43: transactions of versions 1 and 2, committed and aborted. Who is off by how much is what its
clock was given.
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from auditor.rules.seen.view import Finding
from tests import corpora
from tests.audited import above_info, audit_folder
from tests.broker_clocks import shift
from tests.forge import Forged, Lab
from tests.whole.test_incidents_one_cause import ended

NAME = "clocks-apart-43"
BROKERS = (1, 2, 3)
LED = "trio.log-0"


def some(target: Path, brokers: tuple[int, ...]) -> Path:
    for broker in brokers:
        shutil.copytree(corpora.unpack(NAME) / f"broker-{broker}", target / f"broker-{broker}")
        shutil.copy(corpora.unpack(NAME) / f"server-{broker}.properties", target)
    return target


def is_said_once(found: list[Finding]) -> None:
    """The clock's warning: which broker, and by how much at least. A marker comes within a second."""
    truth = corpora.manifest(NAME)
    (f,) = found
    assert (f.kind, f.severity) == ("clock-skew", "warning")
    assert f.message.startswith(f"Clock of broker {truth['off']} is at least 39 s ahead")
    assert set(f.evidence["brokers"]) == set(BROKERS)
    assert truth["ahead_ms"] - 1_000 < f.evidence["ahead_ms"] <= truth["ahead_ms"]


@pytest.mark.parametrize("brokers", [kept for n in BROKERS for kept in itertools.combinations(BROKERS, n)])
@pytest.mark.parametrize("told", [True, False])
def test_only_the_clock_is_said(brokers: tuple[int, ...], told: bool, tmp_path: Path) -> None:
    """``told``: whether the audit is given the time of the copy, by the machine's clock."""
    as_of = corpora.manifest(NAME)["copied_at"] if told else None
    is_said_once(above_info(audit_folder(some(tmp_path, brokers), as_of)))


def test_the_cluster_is_what_it_is_said_to_be() -> None:
    """Four producers with an epoch for each transaction (version 2), four with one for all of them (version 1)."""
    log = Forged(corpora.unpack(NAME) / "broker-1", LED)
    epochs: dict[int, list[int]] = {}
    for marker in log.markers():
        epochs.setdefault(marker["producer_id"], []).append(marker["epoch"])
    assert sorted(len(set(of)) == len(of) for of in epochs.values()) == [False] * 4 + [True] * 4
    assert [len(set(of)) for of in epochs.values()].count(1) == 4


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("number", range(8))
def test_a_marker_that_is_lost_is_found(number: int, commit: bool, tmp_path: Path) -> None:
    """Of each producer, so of coordinators whose clock is the leader's and of those whose clock is 40 s behind."""
    lab = Lab(tmp_path, NAME, LED, brokers=(2,))
    log = lab.log(LED, 2)
    producer = sorted({b["producer_id"] for b in log.markers()})[number]
    data, gone = [pair for pair in ended(log, commit) if pair[1]["producer_id"] == producer][1]
    log.drop(gone)
    log.save()
    found = above_info(lab.findings())
    is_said_once([f for f in found if f.kind == "clock-skew"])
    (f,) = [f for f in found if f.kind != "clock-skew"]
    assert (f.kind, f.severity, f.topic, f.partition) == ("missing-marker", "critical", "trio.log", 0)
    assert f.producer_id == data[0]["producer_id"] == producer
    assert f.evidence["expected"]["marker"] == ("COMMIT" if commit else "ABORT")
    assert f.evidence["between"][0] < gone["base_offset"] < f.evidence["between"][1]


def cleaned(root: Path, part: float) -> None:
    """Every coordinator's log without its oldest records, as its cleaner leaves it."""
    for path in sorted(root.glob("broker-*/__transaction_state-*")):
        log = Forged(path.parent, path.name)
        gone = log.all()[: int(len(log.all()) * part)]
        if gone:
            log.drop(*gone)
            log.save()
            checkpoint = path.parent / "cleaner-offset-checkpoint"
            lines = checkpoint.read_text().split("\n")[2:] if checkpoint.exists() else []
            place = " ".join(path.name.rsplit("-", 1))
            kept = [line for line in lines if line and not line.startswith(f"{place} ")]
            entries = [*kept, f"{place} {gone[-1].last + 1}"]
            checkpoint.write_text("\n".join(["0", str(len(entries)), *entries, ""]))


@pytest.mark.parametrize("name", [NAME, "replicas-41"])
@pytest.mark.parametrize("off", [{1: -10}, {1: 10}, {2: -40, 3: 55}])
def test_cleaned_coordinators_miss_no_marker(name: str, off: dict[int, int], tmp_path: Path) -> None:
    """``off``: by how many minutes the clock of a broker is off. All logs were stopped cleanly and have all markers."""
    root = tmp_path / "in"
    shutil.copytree(corpora.unpack(name), root)
    cleaned(root, 0.4)
    for broker, minutes in off.items():
        shift(root, broker, minutes * 60_000)
    assert {f.kind for f in above_info(audit_folder(root, None))} <= {"clock-skew"}


def compacted(root: Path, part: float) -> None:
    """Every coordinator's log without the older records of each id in its oldest part."""
    for path in sorted(root.glob("broker-*/__transaction_state-*")):
        log = Forged(path.parent, path.name)
        latest = {bytes(record["key"]): b for b in log.all() if not b.control for record in b.records()}
        old = log.all()[: int(len(log.all()) * part)]
        log.drop(*[b for b in old if not b.control and all(latest[bytes(r["key"])] != b for r in b.records())])
        log.checkpoint("cleaner-offset-checkpoint", old[-1].last + 1 if old else 0)
        log.save()


@pytest.mark.parametrize("lost", [None, ("ro2-1", -4)])
@pytest.mark.parametrize("minutes", [50, 7 * 24 * 60])
def test_a_copy_from_before_the_decisions_lacks_no_marker(
    lost: tuple[str, int] | None, minutes: int, tmp_path: Path
) -> None:
    """Broker 2 was copied before the last four transactions of both ids, whose records alone are left. By its clock,
    which is ahead, it was copied behind them. ``lost``: a marker between others of another broker's log."""
    root = corpora.copy("rolling-cold-copies-43", tmp_path)
    compacted(root, 2 / 3)
    shift(root, 2, minutes * 60_000)
    for path in root.glob(f"broker-3/{lost[0]}") if lost else ():
        log = Forged(path.parent, path.name)
        log.drop(log.markers()[lost[1] if lost else 0])
        log.save()
    found = [f for f in above_info(audit_folder(root, None)) if f.kind != "clock-skew"]
    assert {(f.kind, f.severity) for f in found} == ({("missing-marker", "critical")} if lost else set())


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize(("off", "part"), [({1: -40}, 0.85), ({2: 1440, 3: 3}, 0.6), ({2: 10080, 1: -50}, 0.6)])
def test_an_epoch_for_each_end_tells_the_decision_whatever_the_clocks(
    off: dict[int, int], part: float, lost: bool, tmp_path: Path
) -> None:
    """Version 2, with the last decisions alone. ``lost``: every replica lacks the last marker."""
    root = corpora.copy("replicas-41", tmp_path)
    cleaned(root, part)
    for broker, minutes in off.items():
        shift(root, broker, minutes * 60_000)
    for path in root.glob("broker-*/trio.log-0") if lost else ():
        log = Forged(path.parent, path.name)
        log.drop(log.markers()[-1])
        log.save()
    found = {(f.kind, f.severity, f.partition) for f in above_info(audit_folder(root, None)) if f.kind != "clock-skew"}
    assert {key for key in found if key[0] == "missing-marker"} == set()
    assert (("hanging-transaction", "critical", 0) in found) is lost
    assert lost or not found
