"""No damage to a log makes the replay, a rule or the dry run raise: bad data is a finding or an error row."""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path

import pyarrow as pa
import pytest
from kafka.record.util import calc_crc32c

from auditor.connectors.schema import DECODED
from auditor.pipeline import cluster_context
from auditor.pipeline.judge import judge_log
from auditor.rules.catalogue import registry
from auditor.rules.resolution.resolve import resolve
from auditor.rules.seen.view import Finding
from tests import corpora
from tests.facts import logs_below

FOLDERS = ("trio.log-0", "__transaction_state-0", "__consumer_offsets-0")


@pytest.fixture
def brokers(tmp_path: Path) -> Path:
    for broker in (1, 2):
        source, target = corpora.unpack("replicas-41") / f"broker-{broker}", tmp_path / f"broker-{broker}"
        for folder in FOLDERS:
            shutil.copytree(source / folder, target / folder)
        for path in (p for p in source.iterdir() if p.is_file()):
            shutil.copy(path, target)
    return tmp_path


def cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def flip(data: bytes, chance: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(chance.randrange(1, 8)):
        out[chance.randrange(len(out))] ^= 1 << chance.randrange(8)
    return bytes(out)


def splice(data: bytes, chance: random.Random) -> bytes:
    """A stretch out of the middle is gone, or there twice."""
    a, b = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    return data[:a] + data[b:] if chance.random() < 0.5 else data[:b] + data[a:]


def forge(data: bytes, chance: random.Random) -> bytes:
    """Other bytes in one batch's header and records, and the checksum that fits: what a foreign writer could leave."""
    starts, at = [], 0
    while at + 61 <= len(data) and (length := struct.unpack_from(">i", data, at + 8)[0]) >= 49:
        starts.append((at, at + 12 + length))
        at += 12 + length
    if not starts:
        return flip(data, chance)
    a, b = chance.choice(starts)
    out = bytearray(data[a:b])
    for _ in range(chance.randrange(1, 4)):
        place = chance.randrange(21, 61) if chance.random() < 0.7 else chance.randrange(len(out))
        out[place] = chance.choice((0, 1, 127, 128, 255, out[place] ^ 1))
    out[17:21] = struct.pack(">I", calc_crc32c(bytes(out[21:])))
    return data[:a] + bytes(out) + data[b:]


@pytest.mark.parametrize("harm", [cut, flip, splice, forge])
@pytest.mark.parametrize("seed", [*range(8), 188, 245])
def test_nothing_raises(brokers: Path, harm: object, seed: int) -> None:
    chance = random.Random(seed)
    files = sorted(p for p in brokers.glob("broker-*/*-0/*") if p.stat().st_size)
    for path in chance.sample(files, chance.randrange(1, 6)):
        path.write_bytes(harm(path.read_bytes(), chance))  # type: ignore[operator]
    if seed % 3 == 0:
        chance.choice(files).unlink()
    rule_ids = tuple(r.id for r in registry.kinds().values() if not r.what_if)
    rows = [row for log in logs_below(brokers, records=True) for row in judge_log(log.replicas, log.cluster, rule_ids)]
    runs = [row["recovery"] for kind, row in rows if kind == "log"]
    assert len(runs) == 6
    assert all(run["log_end_after"] >= 0 for run in runs if run is not None)


def test_times_beyond_all_calendars_are_numbers_still() -> None:
    """A transaction's times are what a record says: any 64 bits."""
    times = {"record_timestamp": 2**62, "last_update_timestamp": -(2**62), "start_timestamp": 2**62}
    row = {"partition": 0, "offset": 3, "transactional_id": "t", "tombstone": False, "state": "Empty", **times}
    table = pa.Table.from_pylist([row], schema=DECODED["transaction_log"])
    (entry,) = cluster_context.entries(table)
    assert (entry.record_time, entry.last_update, entry.start) == (2**62, -(2**62), 2**62)


def test_an_index_that_breaks_off_beside_a_batch_that_is_out_of_order() -> None:
    """Neither explains the other: what is wrong with the index has no place in the segment."""
    where = {"topic": "t", "partition": 0, "evidence": {"log_dir": "logs", "expected": 8, "batches": 1}}
    batch = Finding("offsets-not-increasing", "error", offset=5, last_offset=6, file="t-0/0.log", position=61, **where)
    index = Finding("index-mismatch", "warning", file="t-0/0.index", position=8, **where)
    assert {f.kind for f in resolve([batch, index])} == {"offsets-not-increasing", "index-mismatch"}
