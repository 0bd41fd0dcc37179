"""Committed offsets and log starts of real brokers moved: who goes back, and who will be unknown."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.audited import above_info
from tests.forge import Batch, Lab


def commit(batch: Batch, number: int, offset: int) -> None:
    """Another committed offset in one record: it stands behind the value's version."""
    records = batch.records()
    value = bytearray(records[number]["value"])
    struct.pack_into(">q", value, 2, offset)
    records[number]["value"] = bytes(value)
    batch.refill(*records)


@pytest.mark.parametrize(
    ("corpus", "folder", "at", "number", "offset", "before", "where", "group", "severity"),
    [
        ("healthy-28", "__consumer_offsets-1", 17, 0, 300, 345, ("web.orders", 0), "web-group", "error"),
        ("healthy-41", "__consumer_offsets-0", 18, 0, 300, 320, ("shop.orders", 2), "shop-group", "error"),
        ("healthy-28", "__consumer_offsets-2", 4, 0, 400, 500, ("web.plain", 1), "web-group-plain", "warning"),
        ("healthy-41", "__consumer_offsets-1", 5, 2, 400, 515, ("shop.kv", 0), "shop-group-plain", "warning"),
    ],
)
def test_offset_moved_backwards(
    tmp_path: Path, corpus: str, folder: str, at: int, number: int, offset: int, before: int,
    where: tuple[str, int], group: str, severity: str,
) -> None:  # fmt: skip
    """An error where a transaction did it: its output was made of input that is read again."""
    lab = Lab(tmp_path, corpus)
    log = lab.log(folder)
    batch = log.find(at)
    commit(batch, number, offset)
    log.save()
    (f,) = above_info(lab.findings())
    assert (f.kind, f.severity, f.topic, f.partition, f.offset) == ("offset-regression", severity, *where, offset)
    assert (f.group_id, f.file) == (group, f"{folder}/{0:020}.log")
    if batch.transactional:
        assert (f.producer_id, f.producer_epoch) == (batch["producer_id"], batch["epoch"])
    assert str(before) in f.message


@pytest.mark.parametrize("folder", ["iot.events-0", "iot.events-1", "iot.events-3", "iot.events-4"])
def test_unknown_producer_hazard(tmp_path: Path, folder: str) -> None:
    """A 2.3 broker forgets who wrote what is deleted: his next batch is refused."""
    lab = Lab(tmp_path, "unknown-producer-23", folder)
    log = lab.log(folder)
    untouched = {f.producer_id for f in above_info(lab.findings())}
    last = [b for b in log.data() if b["producer_id"] >= 0][-1]
    log.checkpoint("log-start-offset-checkpoint", log.end)
    found = above_info(lab.findings())
    f = next(f for f in found if f.producer_id == last["producer_id"])
    assert (f.kind, f.severity, f.topic, f.partition) == (
        "unknown-producer-exposure",
        "warning",
        "iot.events",
        log.partition,
    )
    assert f.last_offset == last.last
    assert {f.kind for f in found} == {"unknown-producer-exposure"}
    assert untouched <= {f.producer_id for f in found}


def test_nobody_is_in_danger_where_brokers_keep_him(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "altered-41", "bay.case-0")
    log = lab.log("bay.case-0")
    log.checkpoint("log-start-offset-checkpoint", log.end)
    assert not above_info(lab.findings())
