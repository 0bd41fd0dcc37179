"""Backups of two days, copied and renamed directories, topics of one name, directories of another cluster."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from auditor.pipeline.whole_audit import Audit
from tests import corpora
from tests.audited import above_info
from tests.facts import opened
from tests.whole.test_one_standing import agree
from tests.whole.test_removed_topics import with_id

TWO_DAYS, TWO_TOPICS = "newer-copy-behind-the-older", "the-same-other-numbers"
OPEN, CLEAN = "open-41-killed", "healthy-41"


def incident(name: str, target: Path) -> Path:
    return shutil.copytree(corpora.unpack("incidents") / name / "input", target / name)


def told(audit: Audit) -> list[tuple[str, str, str | None, int | None, int | None]]:
    """What is found without the directories' names, which decide nothing."""
    return sorted((f.kind, f.severity, f.topic, f.partition, f.offset) for f in audit.findings)


def published_notes(audit: Audit) -> list[str]:
    from auditor.outputs.publish import _notes

    return [*audit.inventory.notes, *_notes(audit, audit.logs.totals)]


# Backups of two days.


@pytest.mark.parametrize("names", [("mon", "tue"), ("tue", "mon"), ("z", "a")])
def test_the_older_backup_is_excluded_whatever_it_is_called(tmp_path: Path, names: tuple[str, str]) -> None:
    source, root = incident(TWO_DAYS, tmp_path), tmp_path / "root"
    for day, name in zip(("mon", "tue"), names, strict=True):
        shutil.copytree(source / day, root / name)
    audit = opened(root)
    assert told(audit) == told(opened(incident("newer-alone", tmp_path)))
    (note,) = [note for note in published_notes(audit) if "is excluded" in note]
    old, new = (f"{name}/broker-1" for name in names)
    assert note.startswith(f"{old} is excluded: {new} is a newer copy of the same log directory (log end of ")
    assert not any("is live in" in note for note in published_notes(audit))
    leading = {(row["log_dir"], row["leader_copy"]) for row in audit.judged["log"]}
    assert leading == {(old, False), (new, True)}


def test_what_only_the_older_backup_has_is_judged(tmp_path: Path) -> None:
    root = incident(TWO_DAYS, tmp_path)
    shutil.rmtree(root / "tue" / "broker-1" / "t-0")
    leading = {(r["log_dir"], r["topic"]) for r in opened(root).judged["log"] if r["leader_copy"]}
    assert ("mon/broker-1", "t") in leading
    assert ("tue/broker-1", "u") in leading


def test_where_each_copy_has_more_of_a_log_nothing_is_certain(tmp_path: Path) -> None:
    root = incident(TWO_DAYS, tmp_path)
    mon, tue = (root / day / "broker-1" for day in ("mon", "tue"))
    (mon / "__transaction_state-0").rename(root / "aside")
    (tue / "__transaction_state-0").rename(mon / "__transaction_state-0")
    (root / "aside").rename(tue / "__transaction_state-0")
    times_alike(mon, tue)
    audit = opened(root)
    assert above_info(audit.findings) == []
    assert ("hanging-transaction", "critical") in {(f.kind, f.if_true) for f in audit.findings}
    assert any(note.startswith("inconclusive, because the newer copy") for note in published_notes(audit))


def times_alike(*directories: Path) -> None:
    """No log of these has broker-written times, so that nothing but ends could order them."""
    for directory in directories:
        shutil.rmtree(directory / "__cluster_metadata-0")


# Directories under another name.


@pytest.fixture
def renamed(tmp_path: Path) -> Path:
    """One partition copied beside itself with a date, another one renamed: transactions are open in both."""
    root = corpora.copy(OPEN, tmp_path)
    broker = root / "broker-1"
    shutil.copytree(broker / "hall.desk-0", broker / "hall.desk-0-20261128")
    (broker / "hall.desk-1").rename(broker / "old.hall.desk-1")
    return root


def test_copied_and_renamed_directories_are_their_partitions(renamed: Path) -> None:
    as_of = corpora.manifest(OPEN)["copied_at"]
    audit = opened(renamed, as_of=as_of, records=True)
    assert told(audit) == told(opened(corpora.unpack(OPEN), as_of=as_of, records=True))
    assert {row["topic"] for row in audit.judged["open"]} == {"hall.desk"}
    notes = [note for note in published_notes(audit) if "partition.metadata" in note]
    assert notes == [
        "broker-1/hall.desk-0-20261128 is excluded: its partition.metadata has the topic id of hall.desk, so it is a "
        "second copy of hall.desk-0, which is in broker-1/hall.desk-0",
        "broker-1/old.hall.desk-1 is audited as hall.desk-1: its partition.metadata has the topic id of hall.desk",
    ]
    assert audit.inventory.bytes_found == sum(f.stat().st_size for f in renamed.rglob("*") if f.is_file())


def test_a_renamed_directory_is_none_that_its_broker_opens(renamed: Path) -> None:
    absent = [f for f in opened(renamed, whole=True, at_once=True).findings if f.kind == "replica-absent"]
    assert [(f.severity, f.topic, f.partition) for f in absent] == [("critical", "hall.desk", 1)]


def test_without_metadata_the_copy_beside_its_partition_is_excluded_too(renamed: Path) -> None:
    shutil.rmtree(renamed / "broker-1" / "__cluster_metadata-0")
    topics = {row["topic"] for row in opened(renamed).judged["log"]}
    assert not topics & {"hall.desk-0", "old.hall.desk"}


def test_a_directory_with_an_id_of_its_own_is_a_topic_of_its_own(renamed: Path) -> None:
    shutil.rmtree(renamed / "broker-1" / "__cluster_metadata-0")
    with_id(renamed / "broker-1" / "hall.desk-0-20261128", "A" * 21 + "g")
    logs = {(row["topic"], row["partition"]) for row in opened(renamed).judged["log"]}
    assert ("hall.desk-0", 20_261_128) in logs


# Topics of one name.


def found_in(audit: Audit, kind: str) -> set[tuple[Any, ...]]:
    return {(f.severity, f.broker_id, f.offset, f.producer_id) for f in audit.findings if f.kind == kind}


@pytest.mark.parametrize("swapped", [False, True])
def test_each_topic_of_a_name_is_judged_whatever_broker_has_it(tmp_path: Path, swapped: bool) -> None:
    root = incident(TWO_TOPICS, tmp_path)
    if swapped:
        for number, other in ((1, 2), (2, 1)):
            meta = root / f"broker-{number}" / "meta.properties"
            meta.write_text(re.sub(r"broker\.id=\d+", f"broker.id={other}", meta.read_text()))
    audit = opened(root)
    hanging, removed = (2, 1) if swapped else (1, 2)
    assert found_in(audit, "hanging-transaction") == {("critical", hanging, 0, 9)}
    assert found_in(audit, "replica-of-removed-topic") == {("info", removed, None, None)}
    assert all(row["leader_copy"] for row in audit.judged["log"])
    blocked = [(row["broker_id"], row["topic"], row["first_offset"]) for row in audit.blocked]
    assert blocked == [(hanging, "t", 0)]


def test_a_marker_that_another_topic_of_the_name_may_have_is_not_missed(tmp_path: Path) -> None:
    """Both brokers were stopped cleanly, so nothing else would explain its absence."""
    audit = opened(incident("twin-sound-other-numbers", tmp_path), at_once=True)
    assert above_info(audit.findings) == []
    (missing,) = [f for f in audit.findings if f.kind == "missing-marker"]
    assert (missing.broker_id, missing.if_true) == (2, "critical")
    assert "another topic of this name may have it" in missing.message


# Directories of another cluster.


def test_directories_of_another_cluster_are_one_finding(tmp_path: Path) -> None:
    root = corpora.copy(CLEAN, tmp_path)
    before = told(opened(root))
    for number in range(4):
        shutil.copytree(
            corpora.unpack(OPEN) / "broker-1" / f"hall.desk-{number}", root / "broker-1" / f"hall.desk-{number}"
        )
    audit = opened(root)
    (found,) = [f for f in audit.findings if f.kind == "partition-of-another-cluster"]
    assert (found.severity, found.broker_id, found.evidence["count"]) == ("error", 1, 4)
    assert [one for one in told(audit) if one[0] != found.kind] == before
    assert not [row for row in audit.blocked if row["topic"] == "hall.desk"]
    agree(audit, tmp_path)
