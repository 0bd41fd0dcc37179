"""Files that are missing or empty: what the others show of them is reported, and no audit is an all-clear over them.

A few corpora with one kind of file removed or emptied at a time; every corpus in the nightly run.
"""

from __future__ import annotations

import datetime
import fcntl
import itertools
import json
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from auditor.copying import run
from auditor.copying.folders import InputFolder
from auditor.copying.run import copy_logs
from auditor.pipeline.whole_audit import EMPTY_SEGMENTS
from auditor.rules.seen.view import Finding
from tests import corpora
from tests.audited import audit_folder
from tests.conftest import NIGHTLY
from tests.facts import opened

ASIDE = re.compile(r"(-delete|-future|-stray|-[0-9]{8})$")  # directories that are not read, or only beside another
REMOVED, EMPTIED = "removed", "emptied"
KINDS = {  # by glob, below a log directory: what names it
    "*/*.log": ".log",
    "*/*.index": "index",
    "*/*.timeindex": "timeindex",
    "*/*.txnindex": "txnindex",
    "*/*.snapshot": "snapshot",
    "*/leader-epoch-checkpoint": "leader-epoch-checkpoint",
    "*/partition.metadata": "partition.metadata",
    "replication-offset-checkpoint": "replication-offset-checkpoint",
    "recovery-point-offset-checkpoint": "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint": "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint": "cleaner-offset-checkpoint",
    "meta.properties": "meta.properties",
    "__cluster_metadata-*/*.checkpoint": "metadata checkpoint",
    "__cluster_metadata-*/*": "__cluster_metadata",
    "__consumer_offsets-*/*": "__consumer_offsets",
    "__transaction_state-*/*": "__transaction_state",
}
# What a broker writes again by itself from what is left, by the class that does; nothing is lost with it.
REBUILT = {
    ("*/*.index", REMOVED): "LogSegment.sanityCheck, LogSegment.recover",
    ("*/*.index", EMPTIED): "AbstractIndex: look-ups begin at position 0 of the segment",
    ("*/*.timeindex", REMOVED): "LogSegment.sanityCheck, LogSegment.recover",
    ("*/*.timeindex", EMPTIED): "LogSegment.sanityCheck",
    ("*/*.txnindex", REMOVED): "TransactionIndex, by LogSegment.recover; reported where aborted records show",
    ("*/*.txnindex", EMPTIED): "TransactionIndex, by LogSegment.recover; reported where aborted records show",
    ("*/*.snapshot", REMOVED): "UnifiedLog.rebuildProducerState",
    ("*/*.snapshot", EMPTIED): "UnifiedLog.rebuildProducerState; producer-snapshot-mismatch (warning) where it is read",
    ("log-start-offset-checkpoint", EMPTIED): "LogManager.checkpointLogStartOffsets: empty where none was raised",
    ("cleaner-offset-checkpoint", EMPTIED): "LogCleanerManager.updateCheckpoints: empty before the first cleaning",
    ("__cluster_metadata-*/*.checkpoint", REMOVED): "MetadataLoader: the log is read from its first offset",
}


def matching(root: Path, pattern: str) -> list[Path]:
    files = (file for log_dir in root.iterdir() for file in log_dir.glob(pattern) if file.is_file())
    return sorted(file for file in files if not ASIDE.search(file.parent.name))


def has_data(folder: Path) -> bool:
    return any(file.stat().st_size for file in folder.glob("*.log"))


def changes(root: Path, corpus: str) -> Iterator[tuple[str, str, list[Path]]]:
    """A kind, how it is changed, and the files: of all partitions, and of one."""
    chance = random.Random(f"{corpus} {datetime.date.today()}")
    every = list(itertools.product(KINDS, (REMOVED, EMPTIED), (False, True)))
    for pattern, how, of_one in every if NIGHTLY else chance.sample(every, 6):
        files = matching(root, pattern)
        if of_one and (with_data := [f.parent for f in files if has_data(f.parent)]):  # of others nothing is lost
            folder = chance.choice(with_data)
            files = [file for file in files if file.parent == folder]
        if files and (pattern, how) not in REBUILT and any(file.stat().st_size for file in files):
            yield pattern, how, files


def seeded() -> list[str]:
    names = [name for name in corpora.judged() if list(corpora.unpack(name).glob("*/meta.properties"))]
    return names if NIGHTLY else random.Random(str(datetime.date.today())).sample(names, 2)


@pytest.mark.parametrize("name", seeded())
def test_a_kind_that_is_missing_or_empty_is_named(name: str, tmp_path: Path) -> None:
    source = corpora.unpack(name)
    for pattern, how, files in changes(source, name):
        root = tmp_path / "input"
        shutil.copytree(source, root)
        for file in files:
            changed = root / file.relative_to(source)
            if how == REMOVED:
                changed.unlink()
            else:
                changed.write_bytes(b"")
        audit = opened(root)
        named = audit.exit_code() >= 1 or any(KINDS[pattern] in f"{row.kind} {row.first}" for row in audit.coverage)
        assert named, f"{name}: {pattern} {how}: {files[:3]} of {len(files)}"
        shutil.rmtree(root)


def stopped(target: Path) -> tuple[Path, int]:
    """A broker's directory that was stopped cleanly, and the time of its copy."""
    root = corpora.copy("healthy-41", target)
    (root / "broker-1" / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    return root, int(corpora.manifest("healthy-41")["copied_at"])


def about_files(found: list[Finding]) -> list[tuple[str, str, str]]:
    return [(f.kind, f.severity, f"{f.topic}-{f.partition}") for f in found if f.kind in KINDS_OF_FINDINGS]


KINDS_OF_FINDINGS = {"missing-segment", "orphaned-index"}


def test_a_partition_that_lost_its_segments_is_critical(tmp_path: Path) -> None:
    root, as_of = stopped(tmp_path)
    assert about_files(audit_folder(root, as_of)) == []
    for file in root.glob("broker-1/shop.orders-0/*.log"):
        file.unlink()
    assert about_files(audit_folder(root, as_of)) == [("missing-segment", "critical", "shop.orders-0")]
    (root / "broker-1" / ".kafka_cleanshutdown").unlink()
    (found,) = (f for f in audit_folder(root, as_of) if f.kind == "missing-segment")
    assert (found.severity, found.if_true) == ("info", "critical")


def test_a_directory_that_lost_everything_is_critical(tmp_path: Path) -> None:
    root, as_of = stopped(tmp_path)
    for file in root.glob("broker-1/shop.orders-0/*"):
        file.unlink()
    assert about_files(audit_folder(root, as_of)) == [("missing-segment", "critical", "shop.orders-0")]
    (root / "broker-1" / "shop.orders-0").rmdir()  # it may not have been copied
    assert about_files(audit_folder(root, as_of)) == []
    rows = opened(root).coverage
    assert [(row.kind, row.state, row.first) for row in rows] == [
        ("directory of a partition", "missing", "broker-1/shop.orders-0")
    ]


def test_an_index_without_its_segment_is_an_error(tmp_path: Path) -> None:
    root, as_of = stopped(tmp_path)
    oldest, after = sorted(root.glob("broker-1/shop.orders-0/*.log"))[:2]
    oldest.unlink()
    (found,) = (f for f in audit_folder(root, as_of) if f.kind == "orphaned-index")
    assert (found.severity, found.offset, found.last_offset) == ("error", int(oldest.stem), int(after.stem) - 1)
    for file in root.glob(f"broker-1/shop.orders-0/{oldest.stem}.*"):
        file.rename(f"{file}.deleted")  # as retention leaves them
    assert about_files(audit_folder(root, as_of)) == []


def test_the_newest_segment_without_any_checkpoint(tmp_path: Path) -> None:
    root, as_of = stopped(tmp_path)
    newest = max(root.glob("broker-1/shop.orders-0/*.log"))
    for file in (newest, *root.glob("broker-1/*-offset-checkpoint"), *newest.parent.glob("*.snapshot")):
        file.unlink()
    (found,) = (f for f in audit_folder(root, as_of) if f.kind == "orphaned-index")
    assert (found.severity, found.offset) == ("error", int(newest.stem))


ORDERS = "broker-1/shop.orders-0"


def running(target: Path) -> tuple[Path, int]:
    """A broker's directory as a running one has it."""
    root, as_of = stopped(target)
    (root / "broker-1" / ".kafka_cleanshutdown").unlink()
    return root, as_of


def oldest(root: Path) -> list[Path]:
    """The files of the oldest segment, in the order in which a broker renames them."""
    base = min(root.glob(f"{ORDERS}/*.log")).stem
    return [file for kind in ("log", "index", "timeindex", "txnindex") for file in root.glob(f"{ORDERS}/{base}.{kind}")]


def delete(files: list[Path]) -> None:
    for file in files:
        if file.exists():
            file.rename(f"{file}.deleted")


def test_an_index_whose_segment_is_being_deleted_is_none_without_its_segment(tmp_path: Path) -> None:
    root, as_of = stopped(tmp_path)
    delete(oldest(root)[:1])
    assert about_files(audit_folder(root, as_of)) == []


@pytest.mark.parametrize("files", [1, 4])
@pytest.mark.parametrize("at", ["listing", "reading"])
def test_a_segment_deleted_while_it_is_copied_is_no_incident(
    at: str, files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, as_of = running(tmp_path / "in")
    segment, stat_and_size, refresh = oldest(root), run.stat_and_size, InputFolder.refresh

    def before_reading(place: Any, name: str) -> Any:
        if at == "reading" and place.path.endswith(ORDERS) and name == segment[0].name:
            delete(segment[:files])
        return stat_and_size(place, name)

    def then_deleted(folder: InputFolder) -> None:
        refresh(folder)
        if at == "listing" and folder.name == ORDERS:
            folder.files.pop(segment[0].name, None)  # a listing that a renaming goes through
            delete(segment[:files])

    monkeypatch.setattr(run, "stat_and_size", before_reading)
    monkeypatch.setattr(InputFolder, "refresh", then_deleted)
    monkeypatch.setattr(run, "TIMES", 1)
    copy_logs([str(root)], tmp_path / "copy")
    assert {severity for _, severity, _ in about_files(audit_folder(tmp_path / "copy", as_of))} <= {"info"}
    assert {severity for _, severity, _ in about_files(opened(tmp_path / "copy", whole=True).findings)} <= {"info"}


def test_a_copy_says_what_its_directory_does(tmp_path: Path) -> None:
    for number, make in enumerate((stopped, running)):
        root, as_of = make(tmp_path / f"{number}")
        for file in [oldest(root)[0], *root.glob("broker-1/shop.orders-1/*.log")]:
            file.unlink()
        copy_logs([str(root)], tmp_path / f"copy-{number}")
        assert (of_files := about_files(audit_folder(root, as_of)))
        assert about_files(audit_folder(tmp_path / f"copy-{number}", as_of)) == of_files


def test_a_copy_made_beside_its_broker_shows_that_a_log_was_lost(tmp_path: Path) -> None:
    root, as_of = running(tmp_path / "in")
    for file in root.glob(f"{ORDERS}/*.log"):  # an open log always has an active segment
        file.unlink()
    with (root / "broker-1" / ".lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)  # as Java's FileChannel.tryLock does
        copy_logs([str(root)], tmp_path / "copy")
    found = about_files(audit_folder(tmp_path / "copy", as_of))
    assert ("missing-segment", "critical", "shop.orders-0") in found


def test_a_copy_of_some_partitions_lacks_no_segment(tmp_path: Path) -> None:
    for number, make in enumerate((stopped, running)):
        root, as_of = make(tmp_path / f"{number}")
        for names in ((ORDERS,), (ORDERS, "broker-1/__transaction_state-0")):
            copy_logs([str(root / name) for name in names], copy := tmp_path / f"copy-{number}-{len(names)}")
            assert about_files(audit_folder(copy, as_of)) == []
        copy_logs([str(root)], copy := tmp_path / f"whole-{number}")
        for gone in ("shop.orders-1", "shop.plain-0"):
            shutil.rmtree(copy / "broker-1" / gone)
        assert about_files(audit_folder(copy, as_of)) == []
        assert about_files(opened(copy, whole=True).findings) == []


def test_with_all_directories_a_replica_in_sync_without_segments_is_lost(tmp_path: Path) -> None:
    root, _ = running(tmp_path)
    for file in root.glob(f"{ORDERS}/*.log"):
        file.unlink()
    assert about_files(opened(root).findings) == [("missing-segment", "info", "shop.orders-0")]
    assert about_files(opened(root, whole=True).findings) == [("missing-segment", "critical", "shop.orders-0")]


def test_logs_that_are_all_empty_are_not_those_of_a_new_cluster(tmp_path: Path) -> None:
    root = corpora.copy("open-41-killed", tmp_path)
    for file in root.glob("*/*/*.log"):
        file.write_bytes(b"")
    audit = opened(root)
    assert (audit.empty_input, audit.exit_code()) == (EMPTY_SEGMENTS, 3)


def test_a_running_broker_has_checkpoints_as_soon_as_it_has_data(tmp_path: Path) -> None:
    root, _ = running(tmp_path)
    assert opened(root).coverage == []
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint", "meta.properties"):
        (root / "broker-1" / name).write_bytes(b"")
    assert [(row.kind, row.state) for row in opened(root).coverage] == [
        ("meta.properties", "missing"),
        ("recovery-point-offset-checkpoint", "missing"),
        ("replication-offset-checkpoint", "missing"),
    ]


def test_a_log_that_is_empty_below_its_high_watermark_is_named(tmp_path: Path) -> None:
    root, _ = running(tmp_path)
    for file in root.glob(f"{ORDERS}/*.log"):
        file.write_bytes(b"")
    (row,) = opened(root).coverage
    assert (row.kind, row.state, row.first) == (
        "segment (.log)",
        "missing",
        f"{ORDERS}/{min(root.glob(f'{ORDERS}/*.log')).name}",
    )


def test_the_metadata_is_in_one_log_directory_of_a_broker() -> None:
    assert opened(corpora.unpack("unclean-43")).coverage == []


def test_a_damaged_kind_of_evidence_is_in_the_headline(tmp_path: Path) -> None:
    root, _ = stopped(tmp_path)
    file = root / "broker-1" / "shop.orders-0" / "partition.metadata"
    file.write_bytes(bytes(file.stat().st_size))
    audit = opened(root)
    assert [(row.kind, row.state) for row in audit.coverage] == [("partition.metadata", "damaged")]
    assert audit.exit_code() == 3
    assert json.dumps([row._asdict() for row in audit.coverage])
