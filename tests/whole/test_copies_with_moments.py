"""A copy says when each log was read, and that decides what a directory alone leaves open: a claim, used as one."""

from __future__ import annotations

import fcntl
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from auditor.copying import one_folder, run
from auditor.copying.second_look import looked_again
from tests import segments
from tests.bare_broker import BEGAN, broker, data, end
from tests.coordinator_records import Coordinator
from tests.copies import LIST, copy_of
from tests.facts import opened
from tests.forge import Forged

NEWEST = BEGAN + 100_000  # of a transaction of 60 s, which is overdue since ten seconds
LATER = BEGAN + 102_000  # when the copy is made
APPEND_TIME = 0x08


def held(root: Path) -> Path:
    """A broker that was not stopped, with an open transaction, and another log that goes on since."""
    path = broker(root, "pay-0", "other-0")
    (path / ".kafka_cleanshutdown").unlink()
    pay, other, coordinator = Forged(path, "pay-0"), Forged(path, "other-0"), Coordinator(path, 0)
    coordinator.state("app", "Ongoing", (7, 0), BEGAN, "pay-0", start=BEGAN)
    data(pay, 7, 0, BEGAN + 10, transactional=True)
    last = data(other, -1, -1, NEWEST, epoch=-1)
    last.set(attributes=APPEND_TIME)
    for log in (pay, other, coordinator):
        log.save()  # without a checkpoint of high watermarks, which may decide it, too
    (path / ".lock").touch()
    return path


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    """Its directory while it runs: a broker holds the lock of it."""
    path = held(tmp_path / "source")
    with (path / ".lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)  # as Java's FileChannel.tryLock does
        yield path


@pytest.fixture(autouse=True)
def at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "now_ms", lambda: LATER)
    monkeypatch.setattr(one_folder, "RACY_NS", -(1 << 62))


def standing(path: Path) -> list[tuple[str, str, str]]:
    return [(f"{row['topic']}-{row['partition']}", row["standing"], row["rule"]) for row in opened(path).blocked]


def readings(copy: Path) -> list[list[Any]]:
    said: list[list[Any]] = json.loads(gzip.decompress((copy / "broker-1" / LIST).read_bytes()))["readings"]
    return said


def test_a_hold_that_a_directory_leaves_open_is_decided(locked: Path, tmp_path: Path) -> None:
    copy_of(locked.parent, tmp_path / "copy")
    assert standing(locked.parent) == [("pay-0", "unknown", "long-open-transaction")]
    assert standing(tmp_path / "copy") == [("pay-0", "overdue", "long-open-transaction")]
    assert readings(tmp_path / "copy") == [
        [name, LATER, LATER, True] for name in ("__transaction_state-0", "other-0", "pay-0")
    ]
    (note,) = [n for n in opened(tmp_path / "copy").inventory.notes if "as the copy says" in n]
    assert "from 2026-11-21T" in note


def test_without_a_running_broker_the_clock_is_nobodys(tmp_path: Path) -> None:
    path = held(tmp_path / "source")
    copy_of(path.parent, tmp_path / "copy")
    assert not any(live for *_, live in readings(tmp_path / "copy"))
    assert standing(tmp_path / "copy") == standing(path.parent) == [("pay-0", "unknown", "long-open-transaction")]


def test_a_moment_of_before_decides_nothing_that_came_later(
    locked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a coordinator's log that was read before the time-out ran out, nobody knows whether it went on to decide."""
    monkeypatch.setattr(run, "now_ms", lambda: BEGAN + 30_000)
    copy_of(locked.parent, tmp_path / "copy")
    assert standing(tmp_path / "copy") == [("pay-0", "unknown", "long-open-transaction")]


@pytest.mark.parametrize("claimed", [1, LATER, (1 << 63) - 1])
def test_no_claim_turns_anything_green(
    locked: Path, tmp_path: Path, claimed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is found without the claim is found with it, whatever it says."""
    copy_of(locked.parent, tmp_path / "copy")
    before = {f.fingerprint: f.severity for f in opened(locked.parent).findings}
    at = tmp_path / "copy" / "broker-1" / LIST
    said = json.loads(gzip.decompress(at.read_bytes()))
    said["readings"] = [[name, claimed, claimed, True] for name, *_ in said["readings"]]
    at.write_bytes(gzip.compress(json.dumps(said).encode()))
    after = {f.fingerprint: f.severity for f in opened(tmp_path / "copy").findings}
    order = ("info", "warning", "error", "critical")
    assert before
    assert all(order.index(after[name]) >= order.index(severity) for name, severity in before.items())


def test_a_log_is_read_as_it_is_when_its_turn_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator decides while the data is copied: its log, read behind it, has that."""
    path = held(tmp_path / "source")
    take = one_folder.OneFolder.take

    def taken(self: one_folder.OneFolder, done: one_folder.Done) -> None:
        take(self, done)
        if self.folder.name.endswith("pay-0"):
            coordinator = Coordinator(path, 0)
            coordinator.state("app", "PrepareCommit", (7, 0), BEGAN + 5_000, "pay-0", start=BEGAN)
            coordinator.save()
            with (path / "pay-0" / f"{0:020}.log").open("ab") as f:
                f.write(segments.simple(99))

    monkeypatch.setattr(one_folder.OneFolder, "take", taken)
    copy_of(path.parent, tmp_path / "copy")
    sizes = {
        f["name"]: f["size"]
        for name in ("pay-0", "__transaction_state-0")
        for f in json.loads(gzip.decompress((tmp_path / "copy" / "broker-1" / name / LIST).read_bytes()))["files"]
        if name.startswith("__") and f["name"].endswith(".log")
    }
    assert sizes == {f"{0:020}.log": (path / "__transaction_state-0" / f"{0:020}.log").stat().st_size}


def test_what_looks_held_and_is_over_by_now_is_read_again(locked: Path, tmp_path: Path) -> None:
    """Its coordinator completed it right behind the reading of the data."""
    pay, coordinator = Forged(locked, "pay-0"), Coordinator(locked, 0)
    for state, time in (("PrepareCommit", 500), ("CompleteCommit", 600)):
        coordinator.state("app", state, (7, 0), LATER + time, *(["pay-0"] if state[0] == "P" else []), start=BEGAN)
    coordinator.save()
    copy_of(locked.parent, tmp_path / "copy")
    assert [stands for _, stands, _ in standing(tmp_path / "copy")] != []
    end(pay, pay.data()[0], True, LATER + 550)
    pay.save()
    rounds = looked_again([str(locked.parent)], tmp_path / "copy", BEGAN, opened)
    assert len(rounds) == 1
    assert rounds[0].folders == 2
    assert standing(tmp_path / "copy") == []
