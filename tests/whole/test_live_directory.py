"""A directory that a broker works on while it is read: files grow, shrink, change names, go. No alarm, no exception."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from auditor.base.errors import AuditInputError, DecodeError
from auditor.connectors.logdir.files import Inventory
from auditor.connectors.logdir.inventory import discover
from auditor.pipeline import whole_audit
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.whole_audit import Say, nobody
from auditor.rules.catalogue import registry
from tests import corpora, facts
from tests.audited import above_info, audit_folder, published
from tests.changing_directory import CHANGES, changes_going_on, live_copy
from tests.forge import Lab, reported
from tests.segments import chunks

NAMES = ("healthy-41", "healthy-28")
Change = Callable[[Path], None]


def worrying(path: Path, name: str) -> tuple[set[tuple[Any, ...]], list[DecodeError]]:
    """Findings above info, and what could not be read."""
    ids = [r.id for r in registry.kinds().values() if not r.what_if]
    logs = facts.logs_below(path, records=True, as_of=corpora.manifest(name)["copied_at"])
    found = {(f.kind, f.topic, f.partition, f.offset) for f in facts.judge(logs, *ids) if f.severity != "info"}
    return found, [error for log in logs for replica in log.replicas for error in replica.errors]


def after_listing(change: Change, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``change`` happen between the listing and the first byte read."""

    def discovered(*arguments: Any) -> Inventory:
        inventory = discover(*arguments)
        change(folder)
        return inventory

    monkeypatch.setattr(whole_audit, "discover", discovered)


@pytest.fixture(scope="module", params=NAMES)
def sound(request: pytest.FixtureRequest) -> tuple[str, set[tuple[Any, ...]]]:
    return request.param, worrying(corpora.unpack(request.param), request.param)[0]


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_gone_is_said_and_nothing_is_concluded_from_it(
    change: Change, sound: tuple[str, set[tuple[Any, ...]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, before = sound
    folder = live_copy(name, tmp_path / "live")
    after_listing(change, folder, monkeypatch)
    found, errors = worrying(folder, name)
    assert not found - before
    assert "vanished" in {error.reason for error in errors}
    assert "unreadable" not in {error.reason for error in errors}


@pytest.mark.parametrize("fraction", [0.3, 0.6, 0.9])
def test_what_grows_is_read_as_listed(
    fraction: float, sound: tuple[str, set[tuple[Any, ...]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logs have grown by the time they are read, and indexes, snapshots and checkpoints show what came since."""
    name, before = sound
    folder = live_copy(name, tmp_path / "live")
    grown: dict[Path, bytes] = {}
    for partition in {path.parent for path in folder.glob("*/*/*.log")}:
        newest = max(partition.glob("*.log"))
        grown[newest] = newest.read_bytes()
        sizes = [int(size) for chunk in chunks(grown[newest]) for size in chunk.batches.size]
        newest.write_bytes(grown[newest][: sum(sizes[: int(len(sizes) * fraction)])])

    def grow(_: Path) -> None:
        for path, data in grown.items():
            path.write_bytes(data)

    after_listing(grow, folder, monkeypatch)
    found, errors = worrying(folder, name)
    assert not found - before
    assert not errors


def first_copied(partition: Path, of_25: int) -> None:
    """What a log was when so many 25ths of its batches were written."""
    newest = max(partition.glob("*.log"))
    data = newest.read_bytes()
    sizes = [int(size) for chunk in chunks(data) for size in chunk.batches.size]
    newest.write_bytes(data[: sum(sizes[: len(sizes) * of_25 // 25])])


@pytest.mark.parametrize(("name", "of_25"), [("lively-25", 13), ("lively-25", 16), ("lively-30", 16)])
def test_decisions_that_came_after_their_log_was_copied(name: str, of_25: int, tmp_path: Path) -> None:
    """File by file from a running broker: __transaction_state first, then partitions that have been cleaned since."""
    folder = live_copy(name, tmp_path / "live")
    for partition in folder.glob("*/__transaction_state-*"):
        first_copied(partition, of_25)
    assert above_info(audit_folder(folder, int(corpora.manifest(name)["copied_at"]), records=False)) == []


def written_until(partition: Path, time: int) -> None:
    """The log as it was before the first batch that is stamped after ``time`` (ms)."""
    for segment in sorted(partition.glob("*.log")):
        data, at = segment.read_bytes(), 0
        while at < len(data) and int.from_bytes(data[at + 35 : at + 43], "big") <= time:
            at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        segment.write_bytes(data[:at])


@pytest.mark.parametrize("moment", range(12))
def test_the_coordinators_log_was_copied_before_what_streams_wrote(moment: int, tmp_path: Path) -> None:
    """Streams stamps records with the times of events, half a minute before: that is not when they were written."""
    folder = live_copy("groups-43", tmp_path / "live")
    for partition in folder.glob("*/__transaction_state-*"):
        written_until(partition, 1795307740000 + 150 * moment)  # the first id of Streams came at 1795307740218
    assert above_info(audit_folder(folder, None, records=False)) == []


@pytest.mark.parametrize(("offset", "rule"), [(718, "marker-contradicts-decision"), (794, "split-decision")])
def test_a_contradiction_in_a_cleaned_log_of_a_running_broker(offset: int, rule: str, tmp_path: Path) -> None:
    """The coordinator's log goes on behind the marker's time: its decision is there, and it was the other one."""
    lab = Lab(tmp_path, "lively-25", "shop.both-0")
    lab.is_live()
    log = lab.log("shop.both-0")
    marker = next(b for b in log.markers() if b["base_offset"] == offset)
    (record,) = marker.records()
    marker.refill({**record, "key": record["key"][:3] + bytes([1 - record["key"][3]])})
    log.save()
    assert list(reported(lab.findings())) == [(rule, "critical", offset, offset)]


def test_a_directory_that_keeps_changing_is_read_to_the_end(tmp_path: Path) -> None:
    folder = live_copy("healthy-41", tmp_path / "live")
    with changes_going_on(folder, 7) as fewer_changes_than:
        while fewer_changes_than(100):
            worrying(folder, "healthy-41")


def test_a_folder_that_goes_while_it_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from auditor.connectors.stores import storage

    folder = live_copy("unknown-producer-41", tmp_path / "live")
    victim = next(path.parent for path in sorted(folder.glob("*/*/*.log")) if path.stat().st_size)
    scandir = storage.os.scandir

    def vanishing(path: Any) -> Any:
        if path == str(victim):
            victim.rename(victim.with_name("gone"))
        return scandir(path)

    monkeypatch.setattr(storage.os, "scandir", vanishing)
    inventory = discover([str(folder)])
    assert [(e.error.file, e.error.reason) for e in inventory.errors] == [(victim.name, "vanished")]
    audited = facts.opened(folder)
    audited.inventory = inventory
    assert not audited.incomplete()


def test_a_path_that_goes_before_it_is_listed_is_the_users_to_know(tmp_path: Path) -> None:
    with pytest.raises(AuditInputError):
        discover([str(tmp_path / "gone")])


# --- whole audits, tables too ---------------------------------------------------------------------------------------


def status(folder: Path, out: Path, say: Say = nobody) -> int:
    """The exit status of an audit with everything."""
    as_of = corpora.manifest("healthy-41")["copied_at"]
    return published(AuditOptions((str(folder),), out, records=True, tables=True, as_of=as_of), say).exit_code()


@pytest.mark.parametrize("step", ["read and replay", "judge", "publish"])
def test_what_goes_between_two_steps_is_said(step: str, tmp_path: Path) -> None:
    """Before the replicas are read, with half of the work done, and before the tables are read."""
    folder = live_copy("healthy-41", tmp_path / "live")

    def change(at: str) -> None:
        if at == step:
            for one in CHANGES:
                one(folder)

    assert status(folder, tmp_path / "out", change) == 0
    findings = (tmp_path / "out" / "findings.jsonl").read_text(encoding="utf-8").splitlines()
    assert [line for line in findings if json.loads(line)["severity"] != "info"] == []
    reasons = {row["reason"] for row in json.loads((tmp_path / "out" / "summary.json").read_text())["unreadable"]}
    assert "unreadable" not in reasons
    assert ("vanished" in reasons) == (step == "read and replay")


def test_a_directory_that_keeps_changing_is_audited_to_the_end(tmp_path: Path) -> None:
    """No broker does this to a directory, so that there may be findings; but never an exception."""
    folder = live_copy("healthy-41", tmp_path / "live")
    with changes_going_on(folder, 11) as fewer_changes_than:
        while fewer_changes_than(100):
            assert status(folder, tmp_path / "out") in (0, 1, 3)
    assert (tmp_path / "out" / "summary.json").exists()
