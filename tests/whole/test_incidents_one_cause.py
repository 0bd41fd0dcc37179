"""Incidents that leave several traces: one finding, in which the others are evidence; and twins that are none.

Each alters one thing of a real log as a careful forger would.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from auditor.rules.seen.view import Finding
from tests.audited import above_info
from tests.forge import Batch, Forged, Lab, marker

SHOPS = {"2.8": ("healthy-28", "web.orders-0"), "4.1": ("healthy-41", "shop.orders-0")}  # transaction.version 0 and 2
PLAIN = {
    "4.1": ("altered-41", "bay.case-0"),
    "3.6": ("hanging-36", "bank.ledger-4"),
    "2.8": ("trimmed-28", "reel.tape-6"),
}
Ended = tuple[list[Batch], Batch]  # the data of a transaction and its marker


def ended(log: Forged, commit: bool) -> list[Ended]:
    """The transactions of a log, in the order of their markers."""
    found: list[Ended] = []
    opened: dict[int, list[Batch]] = {}
    for batch in log.all():
        if not batch.control:
            if batch.transactional:
                opened.setdefault(batch["producer_id"], []).append(batch)
        elif (data := opened.pop(batch["producer_id"], None)) and is_commit(batch) == commit:
            found.append((data, batch))
    return found


def is_commit(batch: Batch) -> bool:
    return bool(batch.records()[0]["key"][3] == 1)


def coordinator_epoch(batch: Batch) -> int:
    return int.from_bytes(batch.records()[0]["value"][2:6], "big")


def the_one(lab: Lab, log: Forged) -> Finding:
    log.save()
    found = above_info(lab.findings())
    assert len(found) == 1, [(f.kind, f.severity, f.offset, f.message) for f in found]
    return found[0]


def also(f: Finding) -> set[str]:
    return {a["rule"] for a in f.evidence.get("also", ())}


# By hand, over what the coordinator decides


@pytest.mark.parametrize("name", SHOPS)
@pytest.mark.parametrize("which", [0, 3, -1])
@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_by_hand_right_before_the_coordinators(tmp_path: Path, name: str, which: int, commit: bool) -> None:
    """The first of the partition, one in the middle, the last; the coordinator's own marker then closes nothing."""
    lab = Lab(tmp_path, *SHOPS[name])
    log = lab.log(SHOPS[name][1])
    data, true = ended(log, not commit)[which]
    by_hand = marker(data[-1], commit, time=true["max_time"] - 1, coordinator=coordinator_epoch(true))
    log.insert(data[-1], by_hand)
    f = the_one(lab, log)
    assert (f.kind, f.severity, f.offset) == ("split-decision", "critical", by_hand["base_offset"])
    assert f.evidence["expected"] == ("ABORT" if commit else "COMMIT")
    assert f.evidence["transaction_first_offset"] == data[0]["base_offset"]


@pytest.mark.parametrize("name", SHOPS)
@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_by_hand_right_behind_the_coordinators_is_none(tmp_path: Path, name: str, commit: bool) -> None:
    """It closes nothing: the data is as it was decided."""
    lab = Lab(tmp_path, *SHOPS[name])
    log = lab.log(SHOPS[name][1])
    data, true = ended(log, not commit)[2]
    fields = {"epoch": true["epoch"], "time": true["max_time"] + 1, "coordinator": coordinator_epoch(true)}
    log.insert(true, marker(data[-1], commit, **fields))
    log.save()
    assert above_info(lab.findings()) == []


# A marker that is lost


@pytest.mark.parametrize("name", SHOPS)
@pytest.mark.parametrize(("commit", "which"), [(True, 0), (True, 4), (False, 1)])
def test_a_marker_that_is_lost(tmp_path: Path, name: str, commit: bool, which: int) -> None:
    """The hole that it leaves, and an index that names the next transaction alone, are the same incident."""
    lab = Lab(tmp_path, *SHOPS[name])
    log = lab.log(SHOPS[name][1])
    data, gone = ended(log, commit)[which]
    log.drop(gone)
    f = the_one(lab, log)
    assert (f.kind, f.severity, f.producer_id) == ("missing-marker", "critical", data[0]["producer_id"])
    assert f.evidence["expected"]["marker"] == ("COMMIT" if commit else "ABORT")
    assert f.evidence["between"][0] < gone["base_offset"] < f.evidence["between"][1]
    assert {"offset-hole"} <= also(f) <= {"offset-hole", "aborted-index-extra-entry"}


@pytest.mark.parametrize("name", SHOPS)
def test_a_hole_elsewhere_is_not_the_markers(tmp_path: Path, name: str) -> None:
    """Another producer's batch is lost too, before the transaction began: two incidents, two findings."""
    lab = Lab(tmp_path, *SHOPS[name])
    log = lab.log(SHOPS[name][1])
    data, gone = ended(log, True)[4]
    other = [b for b in log.data() if b.last < data[0]["base_offset"] and b["producer_id"] != gone["producer_id"]][-1]
    log.drop(gone, other)
    log.save()
    found = above_info(lab.findings())
    assert {"missing-marker", "offset-hole"} <= {f.kind for f in found}


# A sequence number that was altered


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("by", [1, 3, 25])
def test_a_sequence_altered_downwards(tmp_path: Path, name: str, by: int) -> None:
    """The batch behind it goes on as if it were right: that is no loss beside the duplicate that it looks like."""
    lab = Lab(tmp_path, *PLAIN[name])
    log = lab.log(PLAIN[name][1])
    batch = idempotent(log)
    expected = batch["sequence"]
    batch.set(sequence=expected - by)
    f = the_one(lab, log)
    assert (f.kind, f.severity, f.offset) == ("duplicate-sequence-range", "error", batch["base_offset"])
    assert (f.evidence["expected"], f.evidence["found"]) == (expected, expected - by)
    assert f.evidence["goes_on_as_expected"] is True


@pytest.mark.parametrize("name", PLAIN)
def test_a_sequence_altered_to_0(tmp_path: Path, name: str) -> None:
    lab = Lab(tmp_path, *PLAIN[name])
    log = lab.log(PLAIN[name][1])
    batch = idempotent(log).set(sequence=0)
    f = the_one(lab, log)
    assert (f.kind, f.severity, f.offset) == ("sequence-reset-same-epoch", "error", batch["base_offset"])


def idempotent(log: Forged) -> Batch:
    """The middle batch of the log's newest idempotent producer without transactions."""
    last = [b for b in log.data() if b["producer_id"] >= 0 and not b.transactional][-1]
    mine = log.data(last["producer_id"], last["epoch"])
    return mine[len(mine) // 2]


@pytest.mark.parametrize("name", SHOPS)
@pytest.mark.parametrize("by", [1, 3])
def test_a_sequence_altered_downwards_in_a_committed_transaction(tmp_path: Path, name: str, by: int) -> None:
    """No record of the transaction is missing."""
    lab = Lab(tmp_path, *SHOPS[name])
    log = lab.log(SHOPS[name][1])
    data = next(data for data, _ in ended(log, True)[3:] if len(data) >= 3 and data[1]["sequence"] > by)
    data[1].set(sequence=data[1]["sequence"] - by)
    f = the_one(lab, log)
    assert (f.kind, f.severity, f.offset) == ("duplicate-sequence-range", "error", data[1]["base_offset"])


@pytest.mark.parametrize("name", PLAIN)
def test_a_loss_behind_a_duplicate_is_a_loss(tmp_path: Path, name: str) -> None:
    """The batch behind it goes on three further than if the number alone were wrong."""
    lab = Lab(tmp_path, *PLAIN[name])
    log = lab.log(PLAIN[name][1])
    batch = idempotent(log)
    log.resequence(batch["producer_id"], batch["epoch"], batch.last + 1, 3)
    batch.set(sequence=batch["sequence"] - 1)
    log.save()
    assert {"duplicate-sequence-range", "sequence-gap"} <= {f.kind for f in above_info(lab.findings())}
