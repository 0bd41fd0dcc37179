"""What real logs say when a length in their middle is wrong: all that they said before, and the damage."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from auditor.rules.seen.view import Finding
from tests import corpora
from tests.audited import audit_folder
from tests.facts import logs_below


def batches(data: bytes) -> list[tuple[int, int, int]]:
    """Position, base offset and size of each batch, by the headers."""
    found, at = [], 0
    while at < len(data):
        offset, size = struct.unpack_from(">qi", data, at)
        found.append((at, offset, size + 12))
        at += size + 12
    return found


def resize(path: Path, number: int, size: int) -> tuple[int, int, int]:
    """Gives a batch of a segment another length field and other bytes, since the length alone could be put right by the
    checksum; returns its position, offset, and true size."""
    data = bytearray(path.read_bytes())
    at, offset, length = batches(bytes(data))[number]
    struct.pack_into(">i", data, at + 8, size)
    data[at + length - 3] ^= 4
    path.write_bytes(data)
    return at, offset, length


def said(found: list[Finding]) -> set[tuple[object, ...]]:
    return {(f.kind, f.severity, f.topic, f.partition, f.broker_id, f.offset, f.producer_id) for f in found}


@pytest.mark.parametrize("size", [-1, 20, 400, 2**20, 2**31 - 1])
def test_a_hanging_transaction_behind_a_wrong_length(tmp_path: Path, size: int) -> None:
    """hanging-36, bank.ledger-2: fill's batches of 6 records from offset 0 on, the hanging transaction at offset 73."""
    log = corpora.copy("hanging-36", tmp_path) / "broker-1" / "bank.ledger-2" / f"{0:020}.log"
    before = said(audit_folder(tmp_path, None))
    assert ("hanging-transaction", "critical", "bank.ledger", 2, 1, 73, 2) in before
    position, offset, length = resize(log, 1, size)
    found = audit_folder(tmp_path, None)
    damage = ("record-structure-invalid", "error", "bank.ledger", 2, 1, offset, None)
    assert said(found) == before | {damage}
    (f,) = [f for f in found if f.kind == "record-structure-invalid"]
    assert (f.file, f.position, f.last_offset) == (f"bank.ledger-2/{0:020}.log", position, offset + 5)
    assert (f.evidence["bytes"], f.evidence["unread_offsets"]) == (length, [offset, offset + 5])


PLACES = {
    "first": ("hanging-36", "bank.ledger-2", 0, (0,)),
    "two in a row": ("hanging-36", "bank.ledger-2", 0, (2, 3)),
    "two apart": ("hanging-36", "bank.ledger-2", 0, (1, 5)),
    "the first of a later segment": ("trimmed-28", "reel.tape-6", -1, (0,)),
    "in a later segment": ("trimmed-28", "reel.tape-6", -1, (3,)),
    "compressed": ("healthy-41", "shop.orders-0", 0, (5,)),
}


@pytest.mark.parametrize("size", [-1, 400, 2**31 - 1])
@pytest.mark.parametrize("place", PLACES)
def test_a_wrong_length_anywhere(tmp_path: Path, place: str, size: int) -> None:
    """What lies behind is read as before; what cannot be read is said, a finding for each stretch."""
    name, partition, which, numbers = PLACES[place]
    log = sorted((corpora.copy(name, tmp_path) / "broker-1" / partition).glob("*.log"))[which]
    before = said(audit_folder(tmp_path, None))
    at = [resize(log, number, size) for number in reversed(numbers)]
    found = audit_folder(tmp_path, None)
    damage = [f for f in found if f.kind == "record-structure-invalid"]
    assert {(f.severity, f.file) for f in damage} == {("error", f"{partition}/{log.name}")}
    assert min(f.position or 0 for f in damage) == min(position for position, _, _ in at)
    assert sum(f.evidence["bytes"] for f in damage) == sum(length for _, _, length in at)
    assert len(damage) == (2 if place == "two apart" else 1)
    assert said(found) - before == said(damage)


def test_the_recovery_dry_run_says_what_a_broker_cuts(tmp_path: Path) -> None:
    """A broker stops at the first bad batch, whatever lies behind it."""
    path = corpora.copy("hanging-36", tmp_path) / "broker-1" / "bank.ledger-2" / f"{0:020}.log"
    behind = batches(path.read_bytes())[4:]
    position, offset, _ = resize(path, 3, -7)
    (log,) = [log for log in logs_below(tmp_path) if log.name == "bank.ledger-2"]
    scan = log.leader.scans[0]
    assert (scan.cut, scan.cut_offset) == (position, offset)
    assert scan.records - scan.cut_records > 0
    assert log.leader.log_end > behind[-1][1]
    assert log.leader.sums["bytes_error"] == behind[0][0] - position


def test_what_a_follower_cannot_read_is_one_finding(tmp_path: Path) -> None:
    """replicas-41: broker 3 lacks what its own damage hides, which is no finding beside the damage."""
    folder = corpora.copy("replicas-41", tmp_path) / "broker-3" / "trio.log-2"
    before = said(audit_folder(tmp_path, None))
    _, offset, _ = resize(sorted(folder.glob("*.log"))[0], 5, -3)
    found = audit_folder(tmp_path, None)
    (f,) = [f for f in found if said([f]) - before]
    assert (f.kind, f.broker_id, f.offset) == ("record-structure-invalid", 3, offset)
    assert f.severity == "critical"
    assert [also["rule"] for also in f.evidence["also"]] == ["replica-missing-range"]


def test_a_batch_of_an_unknown_magic_keeps_its_offset(tmp_path: Path) -> None:
    """The eight bytes before it are its offset where its length leads to a sound neighbour."""
    path = corpora.copy("hanging-36", tmp_path) / "broker-1" / "bank.ledger-2" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    at, offset, _ = batches(bytes(data))[2]
    data[at + 16] = 9
    path.write_bytes(data)
    (f,) = [f for f in audit_folder(tmp_path, None) if f.kind == "record-structure-invalid"]
    assert (f.offset, f.position) == (offset, at)
