"""A copy says when each log was read, and that decides what a directory alone leaves open: a claim, used as one."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from auditor.copying import folders, run
from auditor.copying.run import CopyResult, reread_open_logs
from auditor.pipeline.whole_audit import Audit
from tests import segments
from tests.audited import above_info
from tests.bare_broker import BEGAN, broker, data, end
from tests.coordinator_records import Coordinator
from tests.copies import copy_of, listed, relisted
from tests.facts import opened, opened_all
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


def at(monkeypatch: pytest.MonkeyPatch, now: int) -> None:
    for module in (folders, run):
        monkeypatch.setattr(module, "now_ms", lambda: now)


@pytest.fixture(autouse=True)
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, LATER)
    monkeypatch.setattr(run, "RACY_NS", -(1 << 62))


def standing(path: Path) -> list[tuple[str, str, str]]:
    return [(f"{row['topic']}-{row['partition']}", row["standing"], row["rule"]) for row in opened(path).blocked]


def readings(copy: Path) -> list[list[Any]]:
    said: list[list[Any]] = listed(copy / "broker-1")["readings"]
    return said


def test_a_hold_that_a_directory_leaves_open_is_decided(locked: Path, tmp_path: Path) -> None:
    copy_of(locked.parent, tmp_path / "copy")
    assert standing(locked.parent) == [("pay-0", "unknown", "long-open-transaction")]
    assert standing(tmp_path / "copy") == [("pay-0", "overdue", "long-open-transaction")]
    assert readings(tmp_path / "copy") == [
        [name, LATER, LATER, True] for name in ("__transaction_state-0", "other-0", "pay-0")
    ]
    (note,) = [n for n in opened(tmp_path / "copy").inventory.notes if "while its broker was running" in n]
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
    at(monkeypatch, BEGAN + 30_000)
    copy_of(locked.parent, tmp_path / "copy")
    assert standing(tmp_path / "copy") == [("pay-0", "unknown", "long-open-transaction")]


@pytest.mark.parametrize("claimed", [1, LATER, (1 << 63) - 1])
def test_no_claim_turns_anything_green(
    locked: Path, tmp_path: Path, claimed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is found without the claim is found with it, whatever it says."""
    copy_of(locked.parent, tmp_path / "copy")
    before = {f.fingerprint: f.severity for f in opened(locked.parent).findings}
    said = listed(tmp_path / "copy" / "broker-1")
    said["readings"] = [[name, claimed, claimed, True] for name, *_ in said["readings"]]
    relisted(tmp_path / "copy" / "broker-1", said)
    after = {f.fingerprint: f.severity for f in opened(tmp_path / "copy").findings}
    order = ("info", "warning", "error", "critical")
    assert before
    assert all(order.index(after[name]) >= order.index(severity) for name, severity in before.items())


def test_a_log_is_read_as_it_is_when_its_turn_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator decides while the data is copied: its log, read behind it, has that."""
    path = held(tmp_path / "source")
    take = run.OneFolder.take

    def taken(self: run.OneFolder, done: run.CopyResult) -> None:
        take(self, done)
        if self.folder.name.endswith("pay-0"):
            coordinator = Coordinator(path, 0)
            coordinator.state("app", "PrepareCommit", (7, 0), BEGAN + 5_000, "pay-0", start=BEGAN)
            coordinator.save()
            with (path / "pay-0" / f"{0:020}.log").open("ab") as f:
                f.write(segments.simple(99))

    monkeypatch.setattr(run.OneFolder, "take", taken)
    copy_of(path.parent, tmp_path / "copy")
    sizes = {
        f["name"]: f["size"]
        for name in ("pay-0", "__transaction_state-0")
        for f in listed(tmp_path / "copy" / "broker-1" / name)["files"]
        if name.startswith("__") and f["name"].endswith(".log")
    }
    assert sizes == {f"{0:020}.log": (path / "__transaction_state-0" / f"{0:020}.log").stat().st_size}


def decided(path: Path, ended: int) -> tuple[Forged, Coordinator]:
    """Its coordinator completes the transaction at a time, and the data's log has no marker yet."""
    pay, coordinator = Forged(path, "pay-0"), Coordinator(path, 0)
    for state, time in (("PrepareCommit", ended - 100), ("CompleteCommit", ended)):
        coordinator.state("app", state, (7, 0), time, *(["pay-0"] if state[0] == "P" else []), start=BEGAN)
    coordinator.save()
    return pay, coordinator


def test_what_ended_behind_the_reading_of_its_log_was_open_then(locked: Path, tmp_path: Path) -> None:
    """Nothing is known to be amiss: no finding above an info, and no doubt that would be one."""
    decided(locked, LATER + 20)
    copy_of(locked.parent, tmp_path / "copy")
    (row,) = opened(tmp_path / "copy").blocked
    assert (row["standing"], row["severity"], row["if_true"]) == ("waiting", None, None)
    assert row["why"] == "it was open when this log was scanned, and has completed since"
    assert not above_info(opened(tmp_path / "copy").findings)
    assert "hanging-transaction" not in {f.rule for f in opened(tmp_path / "copy").findings}


@pytest.mark.parametrize(("ended", "expected"), [(LATER + 20, []), (LATER - 1, ["missing-marker"])])
def test_a_marker_of_what_ended_behind_the_reading_is_not_missing(
    locked: Path, tmp_path: Path, ended: int, expected: list[str]
) -> None:
    """A transaction that got its marker, then one of which the log has nothing when it is read."""
    pay, coordinator = decided(locked, BEGAN + 5_000)
    end(pay, pay.data()[0], True, BEGAN + 4_950)
    pay.save()
    for state in ("Ongoing", "PrepareCommit", "CompleteCommit"):
        coordinator.state("app", state, (7, 0), ended, *(["pay-0"] if state[0] != "C" else []), start=ended - 50)
    coordinator.save()
    copy_of(locked.parent, tmp_path / "copy")
    assert [f.kind for f in opened(tmp_path / "copy").findings if f.kind == "missing-marker"] == expected


def test_what_an_index_lists_behind_the_end_of_its_log_came_while_both_were_read(locked: Path, tmp_path: Path) -> None:
    pay = Forged(locked, "pay-0")
    pay.aborted = [(7, 0, 9)]
    pay.save()
    copy_of(locked.parent, tmp_path / "copy")
    kinds = [{f.kind for f in opened(path).findings} for path in (locked.parent, tmp_path / "copy")]
    assert ["aborted-index-extra-entry" in found for found in kinds] == [True, False]


@pytest.mark.parametrize("ended", [LATER - 1, LATER - 40_000])
def test_what_ended_before_its_log_was_read_and_has_no_marker_hangs(locked: Path, tmp_path: Path, ended: int) -> None:
    decided(locked, ended)
    copy_of(locked.parent, tmp_path / "copy")
    assert standing(tmp_path / "copy") == [("pay-0", "stuck", "hanging-transaction")]


def test_what_the_cleaner_took_away_proves_no_hang(locked: Path, tmp_path: Path) -> None:
    """Of a busy id the coordinator's log, read behind the data, has a later transaction alone."""
    coordinator = Coordinator(locked, 0)
    before = coordinator.log.all()
    coordinator.state("app", "Ongoing", (7, 4), LATER + 900, "pay-0", start=LATER + 900)
    coordinator.log.drop(*before)
    coordinator.save()
    for began, stands in ((BEGAN + 90_000, "waiting"), (BEGAN - 90_000, "unknown")):
        pay = Forged(locked, "pay-0")
        for batch in pay.data():
            batch.set(base_time=began, max_time=began + 2)
        pay.save()
        copy_of(locked.parent, tmp_path / "copy")
        assert [row for _, row, _ in standing(tmp_path / "copy")] == [stands]


def test_times_that_a_log_contradicts_are_not_gone_by_and_that_is_said(
    locked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that is behind: what it says was read then has what was written later."""
    decided(locked, LATER + 20)
    at(monkeypatch, NEWEST - 31_000)
    copy_of(locked.parent, tmp_path / "copy")
    audit = opened(tmp_path / "copy")
    assert [row["standing"] for row in audit.blocked] == [row["standing"] for row in opened(locked.parent).blocked]
    ((log_dir, why),) = [item for cluster in audit.clusters.values() for item in cluster.misread.items()]
    assert log_dir == "broker-1"
    assert "has what was written at" in why


def again_of(locked: Path, copy: Path) -> Callable[[frozenset[str]], CopyResult]:
    return lambda only: run.copy_logs([str(locked.parent)], copy, only=only)


def test_what_looks_held_and_is_over_by_now_is_read_again(locked: Path, tmp_path: Path) -> None:
    """Its marker comes right behind the reading of the data, whatever its coordinator says."""
    pay, _ = decided(locked, LATER - 1)
    done = copy_of(locked.parent, tmp_path / "copy")
    assert [stands for _, stands, _ in standing(tmp_path / "copy")] == ["stuck"]
    end(pay, pay.data()[0], True, LATER + 550)
    pay.save()
    rounds = reread_open_logs(tmp_path / "copy", BEGAN, done, opened_all, again_of(locked, tmp_path / "copy"))
    assert [each.folders for each in rounds] == [2]
    assert standing(tmp_path / "copy") == []


def test_only_what_an_open_transaction_ends_is_looked_at(locked: Path, tmp_path: Path) -> None:
    asked: list[list[str]] = []

    def audit(paths: Sequence[str]) -> Audit:
        asked.append([path.rpartition("/")[2] for path in paths])
        return opened_all(paths)

    done = copy_of(locked.parent, tmp_path / "copy")
    reread_open_logs(tmp_path / "copy", BEGAN, done, audit, again_of(locked, tmp_path / "copy"))
    assert asked[0] == ["__transaction_state-0", "pay-0"]
    pay = Forged(locked, "pay-0")
    end(pay, pay.data()[0], True, LATER + 550)
    pay.save()
    for known in (tmp_path / "copy", tmp_path / "new"):  # grown in place, and read from the start
        asked.clear()
        done = copy_of(locked.parent, known)
        assert reread_open_logs(known, BEGAN, done, audit, again_of(locked, known)) == []
        assert asked == []
