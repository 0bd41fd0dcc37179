"""The compiled readers of internal topics against the plain ones, which are compared with Kafka's own output."""

from __future__ import annotations

import functools
import io
import random
import struct
from pathlib import Path

import numpy as np
import pytest

from auditor.base.errors import Limits
from auditor.connectors.codec.segment import Chunk, read_segment
from auditor.connectors.logdir.internal_rows import TABLES, InternalRows
from auditor.facts.coordinator_log import PLAIN_ROWS, CoordinatorLog, StateRecord, pack, windows_of
from auditor.facts.offsets import WatchedOffsets
from auditor.pipeline.cluster_context import entries
from auditor.replay.internal_readers import CoordinatorReader, OffsetsReader, PartitionSets, Room
from auditor.rules.committed_offsets import watched
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import LogView
from tests import corpora, made
from tests.fuzz.mutate import mutated
from tests.fuzz.seeds import by_kind
from tests.internal_tables import same_both_ways
from tests.seeded_tests import seeded
from tests.segments import batch, record

STATE, OFFSETS = "__transaction_state", "__consumer_offsets"
KEY = ("cluster", 1, "broker-1", OFFSETS, 0)
LIMITS = Limits()
NAMES = ("alpha", "beta", "gämma", "")


def chunks(data: bytes, **how: bool) -> list[Chunk]:
    return list(read_segment(io.BytesIO(data), len(data), file="0.log", limits=LIMITS, **how))


def all_entries(log: CoordinatorLog) -> list[StateRecord]:
    return [entry for number in range(log.id_count) for entry in log.entries_of(number)]


def by_id(found: list[StateRecord]) -> list[StateRecord]:
    order = {name: number for number, name in enumerate(dict.fromkeys(e.transactional_id for e in found))}
    return sorted(found, key=lambda e: order[e.transactional_id])


def both_logs(data: bytes) -> tuple[InternalRows, CoordinatorReader, list[StateRecord], list[StateRecord]]:
    plain, quick = InternalRows(STATE, LIMITS), CoordinatorReader(0, LIMITS)
    for one, other in zip(chunks(data, raw=True), chunks(data, keep_bytes=True), strict=False):
        assert plain.add("0.log", one) == quick.take("0.log", other)
    tables = plain.tables(("cluster", 1, "broker-1", STATE, 0))
    rows = by_id(entries(tables["transaction_log"])) if tables else []
    return plain, quick, rows, all_entries(quick.finish())


@pytest.mark.parametrize("name", corpora.names())
def test_the_transaction_logs_of_real_brokers(name: str) -> None:
    for path in sorted(Path(corpora.unpack(name)).rglob(f"{STATE}-*/*.log")):
        plain, quick, rows, columns = both_logs(path.read_bytes())
        assert rows == columns
        assert (plain.unreadable, plain.unknown) == (quick.unreadable, quick.unknown)


@pytest.mark.parametrize("name", corpora.names())
def test_the_tables_of_real_brokers(name: str) -> None:
    for topic in (STATE, OFFSETS):
        for path in sorted(Path(corpora.unpack(name)).rglob(f"{topic}-*/*.log")):
            same_both_ways(topic, path.read_bytes(), payload=True)


@pytest.mark.parametrize("topic", [STATE, OFFSETS])
def test_the_tables_of_mutants(topic: str) -> None:
    """Records of real brokers, changed as damage or an attacker would, several in a batch."""
    seeds, found = by_kind()[topic], set[str]()
    for number in range(0, 2000, 8):
        records = b""
        for k in range(8):
            mutant = mutated(topic, seeds, 11, number + k)
            size = int.from_bytes(mutant[:2], "big")
            records += record(k, mutant[2 : 2 + size] or None, mutant[2 + size :] or None)
        found |= same_both_ways(topic, batch(records, 8), payload=number % 16 == 0).keys()
    assert found == TABLES[topic]


def value(chance: random.Random, version: int) -> bytes:
    """A value of ``__transaction_state`` with a few partitions, sometimes odd."""
    topics = chance.sample(("orders", "päid", "t" * 250, "x"), chance.choice((0, 1, 2)))
    head = struct.pack(
        ">hqhib", version, chance.randrange(5), chance.randrange(4), 60_000, chance.choice((0, 1, 2, 4, 9))
    )
    tail = struct.pack(">qq", chance.choice((-1, 5, 2**62)), 7)
    if version == 0:
        lists = struct.pack(">i", len(topics)) + b"".join(
            struct.pack(">h", len(t.encode())) + t.encode() + struct.pack(">iii", 2, chance.randrange(3), 1)
            for t in topics
        )
        return head + (lists if chance.random() < 0.9 else b"\xff\xff\xff\xff") + tail
    lists = bytes([len(topics) + 1]) + b"".join(
        varint(len(t.encode()) + 1) + t.encode() + b"\2" + struct.pack(">i", chance.randrange(3)) + b"\0"
        for t in topics
    )
    tags = chance.choice((b"\0", b"\1\2\2\0\2", b"\2\0\x08" + bytes(8) + b"\2\2\0\1", b"\1\x09\1\0",
                          b"\3\1\x08" + bytes(7) + b"\5\2\2\0\2\3\2\0\7"))  # fmt: skip
    return head + (lists if chance.random() < 0.9 else b"\0") + tail + tags


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128, number >> 7])


@seeded(20)
def test_transaction_logs_of_all_sorts(seed: int) -> None:
    chance = random.Random(seed)
    data = b""
    for offset in range(300):
        name = chance.choice(NAMES).encode()
        key = struct.pack(">hh", chance.choice((0, 0, 0, 0, 1)), len(name)) + name + b"!" * (chance.random() < 0.05)
        stored = value(chance, chance.choice((0, 0, 1, 1))) if chance.random() < 0.9 else None
        if stored is not None and chance.random() < 0.1:
            stored = stored[: chance.randrange(len(stored))]
        data += batch(record(0, key, stored), 1, base_offset=offset)
    plain, quick, rows, columns = both_logs(data)
    assert rows == columns
    assert (plain.unreadable, plain.unknown) == (quick.unreadable, quick.unknown)
    assert all_entries(pack(rows)) == rows
    assert same_both_ways(STATE, data)["transaction_log"].num_rows > 200


def commit(chance: random.Random) -> tuple[bytes, bytes | None]:
    """A record of a few groups' offsets, sometimes odd."""
    group, topic = chance.choice(NAMES[:3]).encode(), chance.choice((b"t", b"orders"))
    if chance.random() < 0.06:
        members = struct.pack(">i", 0)
        body = struct.pack(">h", 3) + struct.pack(">h", 8) + b"consumer" + struct.pack(">i", chance.randrange(4))
        return struct.pack(">hh", 2, len(group)) + group, body + struct.pack(">hhq", -1, -1, 5) + members
    key = struct.pack(">hh", chance.choice((0, 1)), len(group)) + group + struct.pack(">h", len(topic)) + topic
    key += struct.pack(">i", chance.randrange(2))
    if chance.random() < 0.05:
        return key, None
    version, offset = chance.randrange(5), chance.randrange(40)
    stored = struct.pack(">hq", version, offset) + (struct.pack(">i", 3) if version >= 3 else b"")
    said = chance.choice((b"me", b"", "ü".encode(), b"\xff"))
    stored += (bytes([len(said) + 1]) if version == 4 else struct.pack(">h", len(said))) + said
    stored += struct.pack(">q", 9) + (bytes(8) if version == 1 else b"")
    if version == 4:
        topic_ids = (bytes(16), b"0123456789abcdef")
        stored += chance.choice((b"\0", *(b"\1\0\x10" + one for one in topic_ids), b"\1\7\1\0"))
    return key, stored[:-1] if chance.random() < 0.02 else stored


@functools.cache
def offsets_log(seed: int) -> tuple[bytes, list[dict[str, int]]]:
    """Batches and the markers among them."""
    chance = random.Random(seed)
    data, ends = b"", []
    for offset in range(0, 600, 2):
        producer = chance.choice((7, 8))
        if chance.random() < 0.08:
            kind = chance.randrange(2)
            marker = record(0, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 3))
            data += batch(marker, 1, base_offset=offset, attributes=0x30, producer_id=producer, epoch=0)
            ends.append({"producer_id": producer, "first_offset": 0, "marker_offset": offset, "commit": kind})
            continue
        body = b"".join(record(k, *commit(chance)) for k in range(2))
        inside = {"attributes": 0x10, "producer_id": producer, "epoch": 0} if chance.random() < 0.2 else {}
        data += batch(body, 2, base_offset=offset, **inside)
    return data, ends


def reported(seen: WatchedOffsets) -> dict[str, object]:
    """All of it, in an order of its own."""
    return {
        "zombies": sorted(seen.zombies), "handed_over": sorted(seen.handed_over),
        "interleaved": sorted(seen.interleaved), "skips": sorted(seen.skips),
        "falls": sorted(seen.falls), "pending": {p: sorted(c) for p, c in seen.pending.items() if c},
        "in_force": sorted(seen.in_force.all()),
        "groups": sorted(seen.groups),
    }  # fmt: skip


@pytest.mark.parametrize("log_start", [0, 111])
@seeded(20)
def test_committed_offsets_of_all_sorts(seed: int, log_start: int) -> None:
    data, ends = offsets_log(seed)
    assert same_both_ways(OFFSETS, data, payload=log_start > 0).keys() == TABLES[OFFSETS]
    plain, quick = InternalRows(OFFSETS, LIMITS), OffsetsReader(log_start, LIMITS)
    for one, other in zip(chunks(data, raw=True), chunks(data, keep_bytes=True), strict=False):
        assert plain.add("0.log", one) == quick.take("0.log", other)
    replica = made.facts(
        OFFSETS, log_start=log_start, log_end=600, tables=plain.tables(KEY), transactions=made.transactions(*ends)
    )
    expected = watched(LogView([replica], Cluster(as_of=1, newest_time=1)))
    assert expected is not None
    assert reported(quick.finish()) == reported(expected)
    assert (plain.unreadable, plain.unknown) == (quick.unreadable, quick.unknown)
    assert expected.falls
    assert expected.zombies or expected.interleaved or expected.skips


def taking_turns(count: int) -> bytes:
    """Commits of one partition of a group by two producers in turn, whose transactions stay open."""
    key = struct.pack(">hh1sh1si", 1, 1, b"g", 1, b"t", 0)
    stored = struct.pack(">hqihq", 3, 5, 3, 0, 9)
    return b"".join(
        batch(record(0, key, stored), 1, base_offset=n, attributes=0x10, producer_id=7 + n % 2, epoch=0)
        for n in range(count)
    )


@pytest.mark.parametrize(("count", "reasons"), [(6, []), (7, ["limit"]), (60, ["limit"])])
def test_more_commits_behind_open_transactions_than_the_limit_are_an_error(count: int, reasons: list[str]) -> None:
    """One is undecided anyway, five may wait behind it; all that is in force or pending is known as before."""
    reader = OffsetsReader(0, LIMITS, most_waiting=5)
    errors = [error for chunk in chunks(taking_turns(count), keep_bytes=True) for error in reader.take("0.log", chunk)]
    assert [error.reason for error in errors] == reasons
    assert all("from the record at offset 6 on" in error.detail for error in errors)
    seen = reader.finish()
    assert {p: [c.record_offset for c in commits] for p, commits in seen.pending.items()} == {
        7 + n % 2: [n] for n in (count - 2, count - 1)
    }


def test_more_distinct_text_than_the_limit_is_an_error_and_all_else_is_read() -> None:
    """Of 40 ids of 100 bytes, 1000 bytes hold 10."""
    ids = [f"{number:02d}".encode() * 50 for number in range(40)]
    stored = struct.pack(">hqhibiqq", 0, 5, 0, 60_000, 1, 0, 5, 5)
    records = [record(0, struct.pack(">hh", 0, 100) + name, stored) for name in ids * 2]
    data = b"".join(batch(one, 1, base_offset=offset) for offset, one in enumerate(records))
    reader = CoordinatorReader(0, LIMITS, Room(dictionary_bytes=1000))
    errors = [error for chunk in chunks(data, keep_bytes=True) for error in reader.take("0.log", chunk)]
    assert [error.reason for error in errors] == ["limit"]
    log = reader.finish()
    assert (log.id_count, log.count, log.broken_at) == (10, 20, 79)


def test_more_records_than_the_limit_are_an_error_and_those_before_are_read() -> None:
    stored = struct.pack(">hqhibiqq", 0, 5, 0, 60_000, 1, 0, 5, 5)
    data = b"".join(batch(record(0, b"\0\0\0\1a", stored), 1, base_offset=offset) for offset in range(9))
    reader = CoordinatorReader(0, LIMITS, Room(records=5))
    errors = [error for chunk in chunks(data, keep_bytes=True) for error in reader.take("0.log", chunk)]
    log = reader.finish()
    assert [(e.reason, "5 are before it" in e.detail) for e in errors] == [("limit", True)]
    assert (log.count, log.broken_at, [e.offset for e in log.entries_of(0)]) == (5, 8, [0, 1, 2, 3, 4])


@seeded(5)
def test_transactions_of_few_and_of_many_records_are_cut_alike(seed: int) -> None:
    """Few are cut by the interpreter, many by machine code: the few at the front of many, where no id goes on."""
    random = np.random.default_rng(seed)
    rows = PLAIN_ROWS + 1
    columns = {
        "id": np.sort(random.integers(0, rows // 8, rows)).astype(np.int32),
        "state": random.integers(-1, 8, rows).astype(np.int16),
        "producer_id": random.integers(0, 3, rows),
        "start": random.integers(0, 3, rows),
    }
    few = {name: column[:PLAIN_ROWS] for name, column in columns.items()}
    assert windows_of(few).tolist() == windows_of(columns)[:PLAIN_ROWS].tolist()


def test_a_tombstone_behind_lists_that_fill_a_buffer_has_no_partitions() -> None:
    """An empty list has no first byte: where those before fill 64 KiB to the last one, nothing lies behind them."""
    lists = [struct.pack(">iH114sii", 1, 114, b"%0114d" % number, 1, number) for number in range(512)]
    data = np.frombuffer(b"".join(lists) + b"\0", np.uint8).copy()
    starts = np.append(np.arange(512) * 128, 512 * 128)
    sets = PartitionSets(1 << 20)
    codes, null = sets.codes(data, starts, np.append(np.full(512, 128), 0))
    assert len(set(codes.tolist())) == 513
    assert not null.any()
