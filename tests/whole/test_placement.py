"""Partitions that nobody leads though the cluster is up, that lack a folder, and that one broker has twice."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from auditor.outputs.publish import run_report
from auditor.pipeline.whole_audit import Audit
from auditor.rules.seen.view import Finding
from tests import corpora
from tests.controller_records import Controller
from tests.facts import opened
from tests.forge import Forged, Lab

OFFLINE, ABSENT, TWICE = "partition-offline", "replica-absent", "partition-in-two-log-dirs"


def of_rule(audit: Audit, rule: str) -> list[Finding]:
    return [f for f in audit.findings if f.kind == rule]


def places(found: list[Finding]) -> set[str]:
    """The partitions of findings, each by itself or one of several."""
    return {name for f in found for name in f.evidence.get("partitions", [f"{f.topic}-{f.partition}"])}


# --- no leader ---


def test_a_stopped_cluster_has_no_leader_and_is_sound() -> None:
    assert not of_rule(opened(corpora.unpack("replicas-41")), OFFLINE)


def test_while_a_broker_is_up_each_partition_without_a_leader_is_offline(tmp_path: Path) -> None:
    """Those of the internal topics too. In the corpus each broker was stopped, which is no reason to be woken for;
    broker 2 led the quorum last."""
    root = corpora.copy("replicas-41", tmp_path)
    writing = Controller(root / "broker-2", corpora.manifest("replicas-41")["copied_at"])
    writing.register(7)  # a broker that has none of them
    writing.save()
    found = of_rule(opened(root), OFFLINE)
    assert {(f.severity, tuple(f.evidence["up"])) for f in found} == {("info", (7,))}
    known = next(iter(opened(root).settings.values())).metadata
    assert known is not None
    assert places(found) == {f"{p.topic}-{p.partition}" for p in known.partitions.values()}
    assert len(found) < len(places(found))  # what stopped together is said together
    for number in (1, 2, 3):
        writing.register(number)
        writing.fence(number, 100 + number)  # killed, not stopped
    writing.save()
    grave = {f.topic: f.severity for f in of_rule(opened(root), OFFLINE)}
    assert set(grave.values()) == {"critical", "error"}
    assert all((severity == "critical") == str(topic).startswith("__") for topic, severity in grave.items())


def test_without_a_folder_and_beyond_the_topics_asked_for_it_is_said_too(tmp_path: Path) -> None:
    root = corpora.copy("index-residue-live-43", tmp_path)
    expected = {(e["topic"], e["partition"]) for e in corpora.manifest("index-residue-live-43")["expect"]}
    assert not any((root / "broker-3a" / f"{topic}-{number}").exists() for topic, number in expected)
    for topics in ((), ("fo*",)):
        audit = opened(root, topics=topics)
        assert {(f.topic, f.partition) for f in of_rule(audit, OFFLINE)} == expected
        assert audit.exit_code() == 1


def test_of_metadata_with_damage_it_is_not_known(tmp_path: Path) -> None:
    root = corpora.copy("index-residue-live-43", tmp_path)
    log = max((root / "broker-3a" / "__cluster_metadata-0").glob("*.log"))
    log.write_bytes(log.read_bytes() + b"\xff" * 100)
    found = of_rule(opened(root), OFFLINE)
    assert {(f.severity, f.if_true) for f in found} == {("info", "error")}


def test_the_remedy_names_who_has_all_of_it() -> None:
    """With KIP-966 the in-sync set may be empty: the eligible replicas are those to start."""
    for f in of_rule(opened(corpora.unpack("index-residue-live-43")), OFFLINE):
        assert "start broker 1, in the ISR by the metadata" in f.remedy


# --- no folder ---


def notes(audit: Audit) -> list[str]:
    return [note for note in run_report(audit).summary["notes"] if "missing from the input" in note]


@pytest.mark.parametrize("gone", [False, True])
def test_a_replica_in_sync_without_a_folder(tmp_path: Path, gone: bool) -> None:
    """The brokers were stopped one after another: the first of them were in sync as long as they ran."""
    root = corpora.copy("replicas-41", tmp_path)
    if gone:
        for number in (1, 2, 3):
            shutil.rmtree(root / f"broker-{number}" / "trio.log-1")
    audit = opened(root, whole=True)
    found = [(f.severity, f.broker_id, f.topic, f.partition) for f in of_rule(audit, ABSENT)]
    assert found == ([("critical", number, "trio.log", 1) for number in (1, 2, 3)] if gone else [])
    assert audit.exit_code() == int(gone)
    partial = opened(root)
    assert not of_rule(partial, ABSENT)
    assert [note[:5] for note in notes(partial)] == ["1 of "] * (3 if gone else 0)
    headline = run_report(partial).summary["verdict"]["headline"]
    assert headline.startswith("3 replicas of these brokers are not in the input; " if gone else "No problems found")


def test_a_folder_of_a_removed_topic_is_not_the_replica(tmp_path: Path) -> None:
    """The broker sets it aside at its start, and makes an empty one."""
    root = corpora.copy("replicas-41", tmp_path)
    (root / "broker-2" / "trio.log-1" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    found = of_rule(opened(root, whole=True), ABSENT)
    assert [(f.severity, f.broker_id, f.topic, f.partition) for f in found] == [("critical", 2, "trio.log", 1)]


def test_of_files_that_were_copied_one_after_another_it_is_not_known(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "healthy-41", "shop.orders-0", "shop.orders-1")
    lab.is_live()
    (found,) = of_rule(opened(lab.root, whole=True), ABSENT)
    assert (found.severity, found.if_true, found.broker_id, found.topic) == ("info", "critical", 1, None)
    grave = of_rule(opened(lab.root, whole=True, at_once=True), ABSENT)
    assert {f.severity for f in grave} == {"critical"}
    assert {"shop.orders-2"} < places([found]) == places(grave)
    assert found.evidence["count"] == len(grave) == len(places(grave))  # grave ones are said one by one


def test_in_sync_is_who_was_before_the_shutdowns_that_end_the_metadata(tmp_path: Path) -> None:
    """Broker 1 was stopped last and alone is eligible by the end (KIP-966), nobody in sync; the others had all of it
    until they were stopped."""
    root = corpora.copy("replicas-41", tmp_path)
    known = next(iter(opened(root).settings.values())).metadata
    assert known is not None
    assert {(p.isr, p.elr) for p in known.partitions.values() if p.topic == "trio.log"} == {((), (1,))}
    log = Forged(root / "broker-1", "trio.log-1")
    odd = log.data()[2]
    odd.set(crc=odd["crc"] ^ 1)
    log.save()
    (f,) = of_rule(opened(root), "batch-crc-mismatch")
    assert f.remedy is not None
    assert "the Isr of trio.log-1 lists broker 2 or 3" in f.remedy


# --- two folders ---


def second(lab: Lab, *, directory_id: str | None = "AnotherDirectoryIdAAAA") -> Path:
    """Another log directory of broker 1, without partitions; ``directory_id``: None for what brokers before 3.7 say."""
    other = lab.root / "broker-1-second"
    other.mkdir()
    for file in (lab.broker() / "meta.properties", lab.broker() / ".kafka_cleanshutdown"):
        if file.exists():
            shutil.copy(file, other)
    said = (other / "meta.properties").read_text()
    if directory_id is None:
        for meta in (lab.broker() / "meta.properties", other / "meta.properties"):
            meta.write_text(re.sub(r"directory\.id=.*\n", "", said))
    else:
        (other / "meta.properties").write_text(re.sub(r"(directory\.id=).*", rf"\g<1>{directory_id}", said))
    return other


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path, "healthy-41", "shop.orders-0", "shop.orders-1")


def runs(audit: Audit) -> dict[str, dict[str, Any]]:
    return {row["log_dir"]: row for row in run_report(audit).summary["recovery"]}


def test_a_partition_in_two_log_directories_ends_the_broker_at_its_start(lab: Lab) -> None:
    other = second(lab)
    shutil.copytree(lab.broker() / "shop.orders-1", other / "shop.orders-1")
    audit = opened(lab.root, as_of=lab.as_of)
    (found,) = of_rule(audit, TWICE)
    assert (found.severity, found.broker_id, found.topic, found.partition) == ("error", 1, "shop.orders", 1)
    for name, row in runs(audit).items():
        assert row["starts"] is False
        assert [(p["topic"], p["partition"]) for p in row["poison"]] == [("shop.orders", 1)]
        assert name in ("broker-1", "broker-1-second")
        assert "would not start" in row["says"]
        assert row["says"].endswith("scans nothing and ends all the same")
        assert row["from_recovery_points"]["starts"] is False


def test_different_partitions_in_two_log_directories_are_what_they_are_for(lab: Lab) -> None:
    other = second(lab)
    (lab.broker() / "shop.orders-1").rename(other / "shop.orders-1")
    audit = opened(lab.root, as_of=lab.as_of)
    assert not of_rule(audit, TWICE)
    assert all(row["starts"] for row in runs(audit).values())


@pytest.mark.parametrize("ending", ["future", "stray", "delete"])
def test_a_folder_that_is_moved_or_set_aside_is_no_second_one(lab: Lab, ending: str) -> None:
    shutil.copytree(lab.broker() / "shop.orders-1", second(lab) / f"shop.orders-1.{'0f' * 16}-{ending}")
    assert not of_rule(opened(lab.root, as_of=lab.as_of), TWICE)


def test_a_folder_of_another_topic_id_is_no_second_one(lab: Lab) -> None:
    """One of them is of a topic that was removed: the start renames it first."""
    other = second(lab)
    shutil.copytree(lab.broker() / "shop.orders-1", other / "shop.orders-1")
    (other / "shop.orders-1" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    assert not of_rule(opened(lab.root, as_of=lab.as_of), TWICE)


def test_two_copies_of_one_log_directory_are_one(lab: Lab) -> None:
    shutil.copytree(lab.broker(), lab.root / "broker-1-monday")
    audit = opened(lab.root, as_of=lab.as_of)
    assert not of_rule(audit, TWICE)
    assert all(row["starts"] for row in runs(audit).values())


def test_without_directory_ids_it_is_not_known(lab: Lab) -> None:
    other = second(lab, directory_id=None)
    shutil.copytree(lab.broker() / "shop.orders-1", other / "shop.orders-1")
    audit = opened(lab.root, as_of=lab.as_of)
    (found,) = of_rule(audit, TWICE)
    assert (found.severity, found.if_true) == ("info", "error")
    assert all(row["starts"] for row in runs(audit).values())
