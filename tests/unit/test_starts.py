"""What a start does at damaged files: as predicted, so did real brokers (``tests/broker/started.py``)."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from auditor.connectors.kafka_names import is_refused_folder, lacks_number
from auditor.facts.crash_recovery import HOLE, LOST, STOPS, TAIL
from tests import corpora
from tests.facts import opened
from tests.starts import DAMAGES, on_disk

DATA = Path(__file__).parents[1] / "data" / "starts"
RECORDED = sorted(path.stem for path in DATA.glob("*.json"))
BASES = [name for name in RECORDED if (DATA / f"{name}.tar.gz").exists()]
NOT_PREDICTED = {
    # Log.parseTopicPartitionName does not know -stray, which LocalLog does in 3.6.2: only a downgrade meets one there.
    ("2.8.2", "folder orders-9.0123456789abcdef0123456789abcdef-stray"),
    # Garbage with a size is a batch to FileLogInputStream; ProducerStateManager then reads it by its attributes.
    *((name, "active segment with a size of 14 behind") for name in BASES),
}
BY_NAME = {damage.name: damage for damage in DAMAGES}


def recorded(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DATA / f"{name}.json").read_text())
    return found


def base(name: str, folder: Path) -> Path:
    with tarfile.open(DATA / f"{name}.tar.gz") as tar:
        tar.extractall(folder, filter="data")
    return folder / "broker-1"


def predicted(folder: Path) -> tuple[bool, bool, list[str]]:
    """Whether a broker with these log directories starts, whether orders-0 is lost, and the findings."""
    audit = opened(folder)
    found = [f.kind for f in audit.findings if f.severity != "info"]
    rows = audit.recovery
    steps = [step for row in rows for step in row["reads"]]
    poison = any(row["poison"] for row in rows)
    failing = {row["log_dir"] for row in rows if not row["starts"]}
    ends = any(step["outcome"] == STOPS[0] for step in steps) or (poison and not failing)
    starts = not ends and len(failing) < len(rows) if rows else True
    return starts, any(s["outcome"] == LOST and s["file"].startswith("orders-0") for s in steps), found


@pytest.mark.parametrize("name", [name for name in BASES if "disks" not in name])
def test_a_start_does_what_was_predicted(name: str, tmp_path: Path) -> None:
    sound, wrong = base(name, tmp_path / "base"), []
    for row in recorded(name):
        if (name, row["damage"]) in NOT_PREDICTED:
            continue
        target = tmp_path / "damaged" / "broker-1"
        shutil.rmtree(target.parent, ignore_errors=True)
        shutil.copytree(sound, target)
        BY_NAME[row["damage"]].do(target)
        starts, lost, found = predicted(target.parent)
        if (starts, lost and starts) != (row["starts"], "orders-0" in row["stray"]):
            wrong.append((row["damage"], row["starts"], starts, lost))
        newer = "another version" in row["damage"]  # which a newer release may have written: an info
        assert starts or newer or {"start-fails", "torn-tail"} & set(found), row["damage"]
        assert row["damage"] != "none" or not found
    assert not wrong


def test_a_log_directory_fails_and_the_broker_goes_on(tmp_path: Path) -> None:
    sound, wrong = base("4.3.1-disks", tmp_path / "base"), []
    for row in recorded("4.3.1-disks"):
        target = tmp_path / "damaged" / "broker-1"
        shutil.rmtree(target.parent, ignore_errors=True)
        shutil.copytree(sound, target)
        on_disk(row["damage"]).do(target / "disk-2")
        if predicted(target)[0] != row["starts"]:
            wrong.append(row["damage"])
    assert not wrong


def _batch_ends(data: bytes) -> list[int]:
    ends = [0]
    while ends[-1] + 17 < len(data) and (size := int.from_bytes(data[ends[-1] + 8 : ends[-1] + 12], "big")):
        ends.append(ends[-1] + 12 + size)
    return ends


@pytest.mark.parametrize(("change", "starts"), [("none", False), ("cut", True), ("unclean", True), ("before", True)])
def test_zeros_in_the_last_segment_of_a_clean_stop(change: str, starts: bool, tmp_path: Path) -> None:
    """4.1.0 and 4.3.1 ended at the zeros of bay.case-8, and started without them or without a clean stop; also with
    zeros in place of a batch before the last entry of the index, from which a start reads."""
    root = corpora.copy("altered-41", tmp_path) / "broker-1"
    log = root / "bay.case-8" / "00000000000000000190.log"
    data = log.read_bytes()
    ends = _batch_ends(data)
    if change in ("cut", "before"):
        log.write_bytes(data[: ends[-1]])
    if change == "before":
        log.write_bytes(data[: ends[1]] + b"\0" * (ends[2] - ends[1]) + data[ends[2] : ends[-1]])
    if change == "unclean":
        (root / ".kafka_cleanshutdown").unlink()
    audit = opened(tmp_path)
    (row,) = audit.recovery
    stops = [step["file"] for step in row["reads"] if step["kind"] in (TAIL, HOLE) and step["file"]]
    assert stops == ([] if starts else [f"bay.case-8/{log.name}"])
    errors = [f for f in audit.findings if f.kind == "torn-tail" and f.severity == "error" and f.partition == 8]
    assert [f.outcome for f in errors] == ([] if starts else ["at_risk"])
    assert all("Broker 1 fails to start at them" in f.message and ".kafka_cleanshutdown" in f.remedy for f in errors)


def test_the_loss_of_an_empty_partition_is_no_finding(tmp_path: Path) -> None:
    """A topic that was made right before the copy may not have the file yet, and nothing is lost."""
    folder = base("4.3.1", tmp_path)
    empty = [log for log in folder.glob("__transaction_state-*/*.log") if not log.stat().st_size]
    (empty[0].parent / "partition.metadata").unlink()
    assert [f for f in opened(tmp_path).findings if f.kind == "start-fails"] == []


def test_a_file_that_a_running_copy_lacks_is_no_proof(tmp_path: Path) -> None:
    """The same directory says critical where it was stopped cleanly: all its files are of one moment."""
    folder = base("4.3.1", tmp_path)
    with_data = [log for log in folder.glob("orders-*/*.log") if log.stat().st_size]
    (with_data[0].parent / "partition.metadata").unlink()
    for stopped, severity in ((True, "critical"), (False, "info")):
        if not stopped:
            (folder / ".kafka_cleanshutdown").unlink()
        (f,) = [f for f in opened(tmp_path).findings if f.kind == "start-fails"]
        assert (f.severity, f.if_true) == (severity, None if stopped else "critical")


def test_a_newer_release_refuses_small_segments(tmp_path: Path) -> None:
    """A 4.3.1 ended on the directory of a 3.9.1 with segment.bytes=16384."""
    assert [row["starts"] for row in recorded("next-release") if row["damage"] == "3.9.1 on 4.3.1"] == [False]
    base("3.9.1", tmp_path)
    audit = opened(tmp_path)
    (row,) = audit.recovery
    assert row["starts"]
    assert [words for words in row["next_release"] if "segment.bytes=16384 of topic orders" in words]


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("lost+found", True), ("backup", True), ("-0", True), ("a-", True), (".git", True), ("orders-x", True),
        ("orders-0", False), ("a--1", False), ("a-007", False), ("remote-log-index-cache", False),
        ("o-0.0123456789abcdef0123456789abcdef-delete", False), ("o-0-delete", True), ("a-2147483648", True),
    ],
)  # fmt: skip
def test_names_of_directories(name: str, refused: bool) -> None:
    assert is_refused_folder(name) is refused


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("abc.log", True), ("._00000000000000000000.log", True), ("00000000000000000000 (1).log", True),
        ("00000000000000000000.log", False), ("7.index", False), ("notes.txt", False), ("abc.snapshot", True),
        ("leader-epoch-checkpoint", False), ("00000000000000000000.log.gz", False),
    ],
)  # fmt: skip
def test_names_of_files(name: str, refused: bool) -> None:
    assert lacks_number(name) is refused
