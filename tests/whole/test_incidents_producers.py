"""What producers and their end markers leave in a real partition when something went wrong: sequences, epochs, markers.

Each test alters one thing, as a careful forger would; the one finding has to say where.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from auditor.rules.seen.view import Finding
from tests import segments
from tests.audited import above_info
from tests.forge import CONTROL, Batch, Forged, Lab, marker, reported

IDEMPOTENT = {
    "4.1": ("altered-41", "bay.case-0"),
    "3.6": ("hanging-36", "bank.ledger-4"),
    "2.8": ("trimmed-28", "reel.tape-6"),
    "4.1 compacted": ("healthy-41", "shop.kv-0"),
}
TRANSACTIONAL = {
    "2.8": ("healthy-28", "web.orders-0"),
    "4.1": ("healthy-41", "shop.orders-0"),
    "3.6": ("hanging-36", "bank.ledger-4"),
}
HOUR_MS = 3_600_000


def open_log(root: Path, name: str = "4.1", logs: dict[str, tuple[str, str]] = IDEMPOTENT) -> tuple[Lab, Forged]:
    lab = Lab(root, *logs[name])
    return lab, lab.log(logs[name][1])


def judged(lab: Lab, log: Forged, *, live: bool = False, **more: Any) -> list[Finding]:
    log.save()
    if live:
        lab.is_live()
    return above_info(lab.findings(**more))


def only(
    found: list[Finding], rule: str, severity: str, log: Forged, batch: Batch, last: Batch | None = None
) -> Finding:
    assert [f.kind for f in found] == [rule], [f.message for f in found]
    f = found[0]
    assert (f.severity, f.topic, f.partition, f.broker_id) == (severity, log.topic, log.partition, 1)
    assert (f.offset, f.last_offset) == (batch["base_offset"], (last or batch).last)
    assert (f.file, f.position) == log.place(batch)
    assert (f.producer_id, f.producer_epoch) == (batch["producer_id"], batch["epoch"])
    return f


def writer(log: Forged) -> list[Batch]:
    """The data of the log's newest idempotent producer without transactions."""
    last = [b for b in log.data() if b["producer_id"] >= 0 and not b.transactional][-1]
    return log.data(last["producer_id"], last["epoch"])


def following(batch: Batch) -> int:
    return batch["sequence"] + batch["count"]


# Gaps


@pytest.mark.parametrize("name", IDEMPOTENT)
@pytest.mark.parametrize("where", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("by", [1, 40])
def test_sequence_gap(tmp_path: Path, name: str, where: float, by: int) -> None:
    lab, log = open_log(tmp_path, name)
    mine = [
        b for b in writer(log) if b["base_offset"] >= (598 if name == "4.1 compacted" else 0)
    ]  # the rest is cleaned
    batch = mine[1 + int((len(mine) - 2) * where)]
    expected = batch["sequence"]
    log.resequence(batch["producer_id"], batch["epoch"], batch["base_offset"], by)
    f = only(judged(lab, log, live=by == 1), "sequence-gap", "error", log, batch)
    assert (f.evidence["expected"], f.evidence["found"]) == (expected, expected + by)
    assert f.evidence["missing_records"] == by


@pytest.mark.parametrize("name", ["4.1", "3.6", "2.8"])
@pytest.mark.parametrize("by", [1, 3, 40])
def test_a_batch_with_another_number(tmp_path: Path, name: str, by: int) -> None:
    """The batches behind it go on as if it had its own: that they overlap it, or go back, has the same cause."""
    lab, log = open_log(tmp_path, name)
    batch = writer(log)[5]
    expected = batch["sequence"]
    batch.set(sequence=expected + by)
    f = only(judged(lab, log), "sequence-gap", "error", log, batch)
    assert (f.evidence["expected"], f.evidence["found"]) == (expected, expected + by)


@pytest.mark.parametrize("adjoins", [True, False])
def test_a_gap_in_a_cleaned_region_is_the_cleaners_but_between_offsets_that_adjoin(
    tmp_path: Path, adjoins: bool
) -> None:
    lab, log = open_log(tmp_path, "4.1 compacted")
    mine = [b for b in writer(log) if b["base_offset"] < 598]
    batch = next(b for a, b in itertools.pairwise(mine) if a.last + 1 == b["base_offset"])
    if not adjoins:
        batch = mine[mine.index(batch) + 1]
        log.drop(mine[mine.index(batch) - 1])
    expected = batch["sequence"]
    log.resequence(batch["producer_id"], batch["epoch"], batch["base_offset"], 3)
    found = judged(lab, log)
    if adjoins:
        f = only(found, "sequence-gap", "error", log, batch)
        assert (f.evidence["expected"], f.evidence["found"]) == (expected, expected + 3)
    else:
        assert not found


@pytest.mark.parametrize("name", ["2.8", "4.1"])
@pytest.mark.parametrize("commit", [True, False])
def test_a_gap_inside_a_transaction(tmp_path: Path, name: str, commit: bool) -> None:
    """A committed one was read as if it were whole."""
    lab, log = open_log(tmp_path, name, TRANSACTIONAL)
    ends = [b for b in log.markers() if (b.records()[0]["key"][3] == 1) == commit and b["base_offset"] > 100]
    mine = [b for b in log.data(ends[0]["producer_id"]) if b["base_offset"] < ends[0]["base_offset"]]
    batch, expected = mine[-1], mine[-1]["sequence"]
    log.resequence(batch["producer_id"], batch["epoch"], batch["base_offset"], 5)
    found = judged(lab, log)
    rule, severity = ("committed-transaction-hole", "critical") if commit else ("sequence-gap", "error")
    f = only(found, rule, severity, log, batch)
    assert (f.evidence["expected"], f.evidence["found"]) == (expected, expected + 5)
    assert f.transactional_id is not None


@pytest.mark.parametrize("name", IDEMPOTENT)
def test_a_batch_ahead_of_its_turn(tmp_path: Path, name: str) -> None:
    lab, log = open_log(tmp_path, name)
    batch = log.next(writer(log)[-1], sequence=following(writer(log)[-1]) + 7)
    f = only(judged(lab, log), "sequence-gap", "error", log, batch)
    assert f.evidence["missing_records"] == 7


def test_sequence_out_of_order_behind_what_is_stored(tmp_path: Path) -> None:
    """The log begins at sequence 316: what lies below was never stored twice here."""
    lab, log = open_log(tmp_path, "2.8")
    batch = log.next(writer(log)[-1], sequence=100)
    f = only(judged(lab, log), "sequence-gap", "error", log, batch)
    assert (f.evidence["found"], f.evidence.get("missing_records")) == (100, None)


@pytest.mark.parametrize("name", ["4.1", "3.6", "2.8"])
def test_two_batches_in_the_wrong_order(tmp_path: Path, name: str) -> None:
    lab, log = open_log(tmp_path, name)
    first, second, third = writer(log)[5:8]
    assert first["count"] == second["count"]
    sequence = first["sequence"]
    first.set(sequence=second["sequence"])
    second.set(sequence=sequence)
    f = only(judged(lab, log), "sequence-gap", "error", log, first, second)
    assert (f.evidence.get("missing_records"), f.evidence["class"]) == (None, "out of order")
    assert third["sequence"] == following(first)


# Records twice


@pytest.mark.parametrize("name", IDEMPOTENT)
@pytest.mark.parametrize("age", [1, 2, 8])
def test_duplicate_batch_at_the_end(tmp_path: Path, name: str, age: int) -> None:
    lab, log = open_log(tmp_path, name)
    batch = log.next(writer(log)[-age])
    f = only(judged(lab, log, live=age == 2), "duplicate-sequence-range", "error", log, batch)
    assert f.evidence["found"] == batch["sequence"]
    kept = age <= 5  # as many as a broker's cache has
    assert f.evidence.get("stored_before_at") == (writer(log)[-age - 1]["base_offset"] if kept else None)


@pytest.mark.parametrize("name", ["4.1", "3.6", "2.8"])
@pytest.mark.parametrize("where", [0.1, 0.5])
def test_duplicate_batch_amid_others(tmp_path: Path, name: str, where: float) -> None:
    """Nothing is said of the batches behind it, whose sequences go on where the first copy ended."""
    lab, log = open_log(tmp_path, name)
    mine = writer(log)
    first = mine[1 + int((len(mine) - 3) * where)]
    batch = log.insert(first, first.copy())
    log.save()
    for file in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        log.checkpoint(file, log.end)
    log = lab.log(log.folder.name)
    batch = log.find(batch["base_offset"])
    only(judged(lab, log), "duplicate-sequence-range", "error", log, batch)


def test_a_run_of_duplicates_is_one_finding(tmp_path: Path) -> None:
    lab, log = open_log(tmp_path)
    mine = writer(log)[-4:]
    copies = [log.next(b) for b in mine]
    f = only(judged(lab, log), "duplicate-sequence-range", "error", log, copies[0], copies[-1])
    assert f.evidence["batches"] == 4


@pytest.mark.parametrize("name", IDEMPOTENT)
def test_records_that_overlap(tmp_path: Path, name: str) -> None:
    lab, log = open_log(tmp_path, name)
    batch = log.next(writer(log)[-1], sequence=following(writer(log)[-1]) - 1)
    only(judged(lab, log), "duplicate-sequence-range", "error", log, batch)


@pytest.mark.parametrize("name", ["4.1", "3.6", "2.8"])
def test_sequence_reset_in_the_same_epoch(tmp_path: Path, name: str) -> None:
    lab, log = open_log(tmp_path, name)
    batch = log.next(writer(log)[-1], sequence=0)
    more = log.next(batch, sequence=following(batch))
    f = only(judged(lab, log), "sequence-reset-same-epoch", "warning", log, batch)
    assert (f.evidence["found"], more["epoch"]) == (0, f.producer_epoch)


def test_a_whole_turn_of_the_sequence_numbers(tmp_path: Path) -> None:
    """Across 2147483647 within a batch and between two: as it has to be."""
    lab, log = open_log(tmp_path)
    like = writer(log)[-1]
    start = 2**31 - 2 * like["count"] - 1
    first = log.next(like, producer_id=900, sequence=start)
    second = log.next(like, producer_id=900, sequence=start + 3)
    third = log.next(like, producer_id=900, sequence=start + 6)
    fourth = log.next(like, producer_id=900, sequence=2)
    assert (first["count"], second["count"], third["sequence"], fourth["count"]) == (3, 3, 2**31 - 1, 3)
    only(judged(lab, log), "unknown-producer-first-sequence", "warning", log, first)


# Unknown producers


def test_producer_first_sequence_not_zero(tmp_path: Path) -> None:
    lab, log = open_log(tmp_path)
    batch = log.next(writer(log)[-1], producer_id=900, epoch=0, sequence=40)
    f = only(judged(lab, log), "unknown-producer-first-sequence", "warning", log, batch)
    assert (f.evidence["expected"], f.evidence["found"]) == (0, 40)


def test_a_snapshot_that_does_not_know_the_producer_denies_that_retention_took_it(tmp_path: Path) -> None:
    lab, log = open_log(tmp_path, "2.8")
    batch = log.next(writer(log)[-1], producer_id=900, epoch=0, sequence=40)
    only(judged(lab, log), "unknown-producer-first-sequence", "warning", log, batch)


@pytest.mark.parametrize("name", ["4.1", "3.6", "2.8"])
def test_first_batch_of_a_new_epoch_not_at_zero(tmp_path: Path, name: str) -> None:
    lab, log = open_log(tmp_path, name)
    last = writer(log)[-1]
    batch = log.next(last, epoch=last["epoch"] + 1, sequence=3)
    f = only(judged(lab, log), "first-batch-after-bump-nonzero", "error", log, batch)
    assert (f.evidence["found"], f.evidence["previous_epoch"]) == (3, last["epoch"])


def test_a_producer_that_was_idle_longer_than_it_is_remembered(tmp_path: Path) -> None:
    lab, log = open_log(tmp_path, "2.8")
    last = writer(log)[-1]
    later = {"base_time": last["base_time"] + 25 * HOUR_MS, "max_time": last["max_time"] + 25 * HOUR_MS}
    batch = log.next(last, sequence=following(last), **later)
    f = only(judged(lab, log), "producer-expired-while-active", "warning", log, batch)
    assert f.evidence["idle_ms"] == 25 * HOUR_MS


@pytest.mark.parametrize("name", ["4.1", "3.6", "2.8"])
def test_a_producer_whose_clock_is_days_behind(tmp_path: Path, name: str) -> None:
    lab, log = open_log(tmp_path, name)
    last = writer(log)[-1]
    broker = log.markers()[-1]["max_time"]
    times = {
        "max_time": broker - 49 * HOUR_MS,
        "base_time": broker - 49 * HOUR_MS - last["max_time"] + last["base_time"],
    }
    batch = log.next(last, sequence=following(last), **times)
    log.save()
    found = lab.findings()
    assert not above_info(found)
    (f,) = [f for f in found if f.kind == "producer-timestamp-skew"]
    assert (f.severity, f.offset, f.producer_id) == ("info", batch["base_offset"], batch["producer_id"])


# Epochs


@pytest.mark.parametrize("name", ["4.1", "3.6", "2.8", "4.1 compacted"])
def test_producer_epoch_regression(tmp_path: Path, name: str) -> None:
    """What the zombie goes on with is no gap of its own."""
    lab, log = open_log(tmp_path, name)
    last = writer(log)[-1]
    newer = log.next(last, epoch=last["epoch"] + 1, sequence=0)
    batch = log.next(last, sequence=following(last))
    more = log.next(batch, sequence=following(batch))
    f = only(judged(lab, log), "epoch-regression", "critical", log, batch, more)
    assert (f.evidence["expected"], f.evidence["found"]) == (newer["epoch"], last["epoch"])
    assert (f.evidence["higher_epoch_offset"], f.evidence["batches"]) == (newer["base_offset"], 2)


@pytest.mark.parametrize("name", ["4.1", "3.6"])
def test_marker_epoch_regression(tmp_path: Path, name: str) -> None:
    lab, log = open_log(tmp_path, name, TRANSACTIONAL)
    last = log.markers()[-1]
    if last["epoch"] == 0:  # before transaction.version 2 a fencing marker first
        last = log.decide(last, False, epoch=1)
    batch = log.decide(last, True, epoch=last["epoch"] - 1, coordinator=coordinator(log.markers()[0]))
    f = only(judged(lab, log), "epoch-regression", "error", log, batch)
    assert (f.evidence["expected"], f.evidence["found"]) == (last["epoch"], last["epoch"] - 1)


def coordinator(batch: Batch) -> int:
    """The coordinator epoch of a marker: the last four bytes of its value."""
    return int.from_bytes(batch.records()[0]["value"][2:6], "big")


def test_stale_coordinator_epoch(tmp_path: Path) -> None:
    lab, log = open_log(tmp_path, "4.1", TRANSACTIONAL)
    last = log.markers()[-1]
    assert coordinator(last) > 0
    batch = log.decide(last, False, epoch=last["epoch"], coordinator=coordinator(last) - 1)
    f = only(judged(lab, log), "coordinator-epoch-regression", "error", log, batch)
    assert (f.evidence["expected"], f.evidence["found"]) == (coordinator(last), coordinator(last) - 1)


@pytest.mark.parametrize("name", TRANSACTIONAL)
def test_a_coordinator_epoch_that_never_was(tmp_path: Path, name: str) -> None:
    lab, log = open_log(tmp_path, name, TRANSACTIONAL)
    last = log.markers()[-1]
    batch = log.decide(last, False, epoch=last["epoch"], coordinator=90)
    f = only(judged(lab, log), "unknown-coordinator-epoch", "error", log, batch)
    assert f.evidence["found"] == 90


def test_an_epoch_that_runs_out(tmp_path: Path) -> None:
    lab, log = open_log(tmp_path)
    batch = log.next(writer(log)[-1], epoch=30_001, sequence=0)
    (f,) = judged(lab, log)
    assert (f.kind, f.severity, f.offset) == ("epoch-near-exhaustion", "warning", batch["base_offset"])
    assert (f.producer_id, f.producer_epoch) == (batch["producer_id"], 30_001)


def test_an_epoch_that_is_raised_all_the_time(tmp_path: Path) -> None:
    lab, log = open_log(tmp_path)
    last = writer(log)[-1]
    for epoch in range(1, 11):
        tenth = log.next(last, epoch=epoch, sequence=0)
    f = only(judged(lab, log), "epoch-bump-storm", "warning", log, tenth)
    assert f.evidence["bumps"] == 10


# Markers


def infos(lab: Lab, log: Forged) -> set[tuple[str, int | None]]:
    log.save()
    found = lab.findings()
    assert not above_info(found)
    return {(f.kind, f.offset) for f in found if f.topic == log.topic}


@pytest.mark.parametrize("name", TRANSACTIONAL)
def test_duplicate_marker(tmp_path: Path, name: str) -> None:
    """Coordinators send them again after a failover: worth a line."""
    lab, log = open_log(tmp_path, name, TRANSACTIONAL)
    batch = log.next(log.markers()[-1])
    assert ("marker-without-transaction", batch["base_offset"]) in infos(lab, log)


@pytest.mark.parametrize("name", TRANSACTIONAL)
@pytest.mark.parametrize("commit", [True, False])
def test_marker_without_transaction(tmp_path: Path, name: str, commit: bool) -> None:
    lab, log = open_log(tmp_path, name, TRANSACTIONAL)
    batch = log.decide(log.last, commit, producer_id=901, epoch=3)
    assert ("marker-without-transaction", batch["base_offset"]) in infos(lab, log)


def test_a_producer_that_keeps_ending_nothing(tmp_path: Path) -> None:
    lab, log = open_log(tmp_path)
    markers = [log.decide(log.last, False, producer_id=901, epoch=e) for e in range(120)]
    f = only(judged(lab, log), "marker-without-transaction", "warning", log, markers[0], markers[-1])
    assert (f.evidence["markers"], f.evidence["closed_nothing"]) == (120, 120)


CONTROLS: dict[str, tuple[dict[str, int], str]] = {
    "unknown_control_type": ({"kind": 7}, "its type is neither ABORT nor COMMIT"),
    "no producer": ({"producer_id": -1, "epoch": -1}, "it has no producer id"),
    "sequence": ({"sequence": 5}, "it has a sequence"),
    "not transactional": ({"attributes": CONTROL}, "it is not transactional"),
}


@pytest.mark.parametrize("name", TRANSACTIONAL)
@pytest.mark.parametrize("kind", CONTROLS)
def test_a_control_batch_that_is_no_marker(tmp_path: Path, name: str, kind: str) -> None:
    header, flaw = CONTROLS[kind]
    lab, log = open_log(tmp_path, name, TRANSACTIONAL)
    last = log.markers()[-1]
    batch = log.decide(last, True, coordinator=coordinator(last), **({"epoch": last["epoch"]} | header))
    found = judged(lab, log)
    assert [f.kind for f in found] == ["malformed-control-batch"], [f.message for f in found]
    f = found[0]
    assert (f.severity, f.offset, f.last_offset) == ("error", batch["base_offset"], batch.last)
    assert (f.file, f.position) == log.place(batch)
    assert flaw in f.evidence["flaws"]


@pytest.mark.parametrize("name", TRANSACTIONAL)
def test_control_batch_with_two_records(tmp_path: Path, name: str) -> None:
    lab, log = open_log(tmp_path, name, TRANSACTIONAL)
    last = log.markers()[-1]
    batch = log.decide(last, True, epoch=last["epoch"], coordinator=coordinator(last))
    record = {**batch.records()[0], "delta": 1}
    batch.refill(batch.records()[0], record).set(count=2, delta=1)
    f = only(judged(lab, log), "malformed-control-batch", "error", log, batch)
    assert "it has more than one record" in f.evidence["flaws"]


@pytest.mark.parametrize(("part", "flaw"), [("key", "its key is too short"), ("value", "its value is too short")])
def test_a_marker_that_is_cut_short(tmp_path: Path, part: str, flaw: str) -> None:
    lab, log = open_log(tmp_path)
    batch = marker(log.last, True)
    (record,) = batch.records()
    record[part] = record[part][:3]
    log.append(batch.refill(record))
    f = only(judged(lab, log), "malformed-control-batch", "error", log, batch)
    assert flaw in f.evidence["flaws"]


# Old formats


@pytest.mark.parametrize(("magic", "folder"), [(0, "old.m0-0"), (1, "old.m1-0")])
def test_a_wrapper_that_holds_a_broken_message(tmp_path: Path, magic: int, folder: str) -> None:
    lab = Lab(tmp_path, "legacy-0102", folder)
    path = max((lab.broker() / folder).glob("*.log"))
    lines = (lab.broker() / "replication-offset-checkpoint").read_text().splitlines()
    end = next(int(line.split()[2]) for line in lines if line.startswith(folder.replace("-", " ")))
    inner = [segments.message(k + (0 if magic else end), b"k", b"v", magic=magic) for k in range(3)]
    inner[1] = inner[1][:12] + b"\0\0\0\1" + inner[1][16:]
    at = path.stat().st_size
    path.write_bytes(path.read_bytes() + segments.wrapper(end + 2, inner, magic=magic))
    found = above_info(lab.findings())
    assert [(f.kind, f.severity, f.position) for f in found] == [("legacy-inner-record-invalid", "error", at)]
    assert found[0].evidence["flaws"] == ["an inner record has a CRC mismatch"]
    assert found[0].evidence["record_index"] == 1


def test_reported_is_what_is_above_info() -> None:
    assert list(reported([Finding("a", "info"), Finding("b", "error", offset=1, last_offset=2)])) == [
        ("b", "error", 1, 2)
    ]
