"""auditor.connectors.text.dump: every line shape of reference/formats.md section 11, and texts that try to mislead."""

from __future__ import annotations

import random
from typing import Any

import pytest

from auditor.connectors.codec import batches as col
from auditor.connectors.text.dump import Batches, Dump, parse_dump
from auditor.connectors.text.lines import normalise, sniff
from tests import corpora

BATCH_41 = (
    "baseOffset: 7 lastOffset: 10 count: 4 baseSequence: 0 lastSequence: 3 producerId: 20 producerEpoch: 0 "
    "partitionLeaderEpoch: 0 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty position: 0 "
    "CreateTime: 1700000000005 size: 104 magic: 2 compresscodec: none crc: 4048522816 isvalid: true"
)
RECORDS_41 = """\
| offset: 7 CreateTime: 1700000000000 keySize: 2 valueSize: 2 sequence: 0 headerKeys: [h,n] key: k1 payload: v1
| offset: 8 CreateTime: 1700000000005 keySize: -1 valueSize: 2 sequence: 1 headerKeys: [] payload: v2
| offset: 9 CreateTime: 1699999999997 keySize: 2 valueSize: -1 sequence: 2 headerKeys: [] key: k3
| offset: 10 CreateTime: 1700000000000 keySize: 0 valueSize: 0 sequence: 3 headerKeys: [] key:  payload:\x20
"""
OTHER_RECORDS = RECORDS_41.partition("\n")[2]
MARKER = (
    "baseOffset: 2 lastOffset: 2 count: 1 baseSequence: -1 lastSequence: -1 producerId: 5 producerEpoch: 0 "
    "partitionLeaderEpoch: 0 isTransactional: true isControl: true deleteHorizonMs: OptionalLong[1795230541724] "
    "position: 79 LogAppendTime: 1795230353015 size: 78 magic: 2 compresscodec: none crc: 1 isvalid: true\n"
)


def batches(text: str, errors: int = 0) -> Batches:
    found = parse_dump(text.encode())
    assert len(found.errors) == errors, found.errors
    (section,) = found.sections
    return section.batches


def row(shown: Batches, number: int = 0) -> dict[str, Any]:
    return {name: column[number].item() for name, column in shown.columns._asdict().items()}


def test_a_batch_and_its_records() -> None:
    shown = batches(f"{BATCH_41}\n{RECORDS_41}")
    assert row(shown) == {
        "position": 0,
        "size": 104,
        "magic": 2,
        "attributes": 0,
        "base_offset": 7,
        "last_offset": 10,
        "record_count": 4,
        "partition_leader_epoch": 0,
        "crc": 4048522816,
        "base_timestamp": -1,
        "max_timestamp": 1700000000005,
        "producer_id": 20,
        "producer_epoch": 0,
        "base_sequence": 0,
        "control_type": -1,
        "coordinator_epoch": -1,
        "flaws": 0,
    }
    assert shown.cannot_show == {"base_timestamp"}
    assert not shown.cut


@pytest.mark.parametrize(
    ("before", "after", "unknown"),
    [
        (" count: 4", "", {"record_count"}),
        (" isControl: false", "", {"is_control"}),
        (" deleteHorizonMs: OptionalLong.empty", "", set()),
        ("compresscodec: none", "compresscodec: NONE", set()),
        (" size: 104 magic: 2 compresscodec: none crc: 4048522816 isvalid: true",
         " isvalid: true size: 104 magic: 2 compresscodec: NONE crc: 4048522816", set()),
    ],
)  # fmt: skip
def test_the_batch_line_of_older_releases(before: str, after: str, unknown: set[str]) -> None:
    assert before in BATCH_41
    shown = batches(BATCH_41.replace(before, after))
    assert row(shown) == row(batches(BATCH_41))
    assert shown.cannot_show == unknown | {"base_timestamp"}


@pytest.mark.parametrize(("codec", "number"), [("gzip", 1), ("SNAPPY", 2), ("lz4", 3), ("ZSTD", 4)])
def test_codecs(codec: str, number: int) -> None:
    assert row(batches(BATCH_41.replace("none", codec)))["attributes"] == number


def test_an_invalid_checksum_is_a_flaw() -> None:
    assert row(batches(BATCH_41.replace("isvalid: true", "isvalid: false")))["flaws"] == col.FLAW_CRC


@pytest.mark.parametrize(
    ("marker", "kind", "epoch"),
    [
        ("endTxnMarker: COMMIT coordinatorEpoch: 3", 1, 3),
        ("endTxnMarker: ABORT coordinatorEpoch: -1", 0, -1),
        ("controlType: KRAFT_VERSION(5)", 5, -1),
        ('LeaderChange: {"version":0,"leaderId":7}', 2, -1),
        ('SnapshotHeader {"version":0}', 3, -1),
    ],
)
def test_control_records(marker: str, kind: int, epoch: int) -> None:
    line = f"| offset: 2 CreateTime: 1795230353015 keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] {marker}\n"
    shown = batches(MARKER + line)
    found = row(shown)
    assert (found["control_type"], found["coordinator_epoch"]) == (kind, epoch)
    assert found["base_timestamp"] == 1795230541724
    assert found["attributes"] == 0x08 | 0x10 | 0x20 | 0x40
    assert found["flaws"] == (col.FLAW_CONTROL_TYPE if kind > 1 else 0)


def test_markers_without_records_are_reported_as_unknown() -> None:
    shown = batches(MARKER)
    assert row(shown)["control_type"] == -1
    assert {"control_type", "coordinator_epoch"} <= shown.cannot_show
    older = batches(MARKER.replace(" isControl: true", ""))
    assert row(older)["attributes"] & 0x20, "a producer's batch without a sequence is a marker"


def test_a_record_of_2_8() -> None:
    line = (
        "| offset: 7 isValid: true crc: null keySize: 2 valueSize: 2 CreateTime: 5 baseOffset: 7 lastOffset: 10 "
        "baseSequence: 0 lastSequence: 3 producerEpoch: 0 partitionLeaderEpoch: 0 batchSize: 104 magic: 2 "
        "compressType: NONE position: 0 sequence: 0 headerKeys: [] key: ab payload: cd\n"
    )
    shown = batches(f"{BATCH_41}\n{line}")
    assert shown.cut, "one of four records"


def test_legacy_batches() -> None:
    text = (
        "offset: 103 position: 57 NoTimestampType: -1 size: 83 magic: 0 compresscodec: gzip crc: 2629397231"
        " isvalid: true\n"
        "| offset: 100 NoTimestampType: -1 keySize: 1 valueSize: 2 isValid: true crc: 374826161} key: k payload: v0\n"
        "| offset: 103 NoTimestampType: -1 keysize: 1 valuesize: 2 crc: 374826161 isvalid: true key: k payload: v1\n"
        "offset: 104 position: 140 CreateTime: 9 size: 40 magic: 1 compresscodec: none crc: 7 isvalid: true\n"
    )
    shown = batches(text)
    first, second = row(shown), row(shown, 1)
    assert (first["base_offset"], first["last_offset"], first["record_count"], first["magic"]) == (100, 103, 2, 0)
    assert (second["base_offset"], second["max_timestamp"], second["base_timestamp"]) == (104, 9, 9)
    assert row(batches(text.split("\n")[0]))["flaws"] == col.FLAW_LEGACY_WRAPPER


def test_deep_records_before_2_2() -> None:
    line = (
        "offset: {} position: {} CreateTime: {} isvalid: true keysize: 4 valuesize: 6 magic: 2 compresscodec: NONE "
        "producerId: 5 producerEpoch: 0 sequence: {} isTransactional: true headerKeys: []"
    )
    text = "\n".join(line.format(*numbers) for numbers in [(0, 0, 11, 0), (1, 0, 12, 1), (2, 79, 13, -1)])
    text += " endTxnMarker: COMMIT coordinatorEpoch: 0"
    shown = batches(text)
    data, marker = row(shown), row(shown, 1)
    assert (data["base_offset"], data["last_offset"], data["record_count"], data["size"]) == (0, 1, 2, 79)
    assert (data["max_timestamp"], data["base_sequence"], data["attributes"]) == (12, 0, 0x10)
    assert (marker["control_type"], marker["coordinator_epoch"], marker["attributes"]) == (1, 0, 0x30)
    assert {"crc", "size", "partition_leader_epoch"} <= shown.cannot_show
    without_epoch = batches(text.replace(" producerEpoch: 0", ""))
    assert "producer_epoch" in without_epoch.cannot_show


def test_deep_records_of_0_10() -> None:
    text = "offset: 0 position: 0 CreateTime: 5 isvalid: true payloadsize: 45 magic: 1 compresscodec: NONE crc: 9"
    text += " keysize: 2"
    assert (row(batches(text))["crc"], row(batches(text))["magic"]) == (9, 1)


def test_keys_and_payloads_are_measured_by_their_sizes() -> None:
    """A payload that looks like a batch, a record and a banner does not become one."""
    fake = f"{BATCH_41}\n| offset: 9 CreateTime: 1 keySize: -1 valueSize: 1 sequence: 0 headerKeys: [] payload: x"
    fake += "\nDumping a-0/0.log"
    key = "a\nb payload: "
    header = f"keySize: {len(key)} valueSize: {len(fake)} sequence: 0 headerKeys: [x] y\nz]"
    text = f"{BATCH_41}\n| offset: 7 CreateTime: 1 {header} key: {key} payload: {fake}\n{OTHER_RECORDS}"
    shown = batches(text)
    assert len(shown.columns.position) == 1
    assert not shown.cut


def test_payload_that_is_no_utf8_may_go_over_lines() -> None:
    """Printed with replacement characters its size differs: lines that are none of the tool's belong to it."""
    line = (
        "| offset: 7 CreateTime: 1 keySize: -1 valueSize: 5 sequence: 0 headerKeys: [] payload: \ufffd\ufffdab\nrest\n"
    )
    shown = batches(f"{BATCH_41}\n{line}{OTHER_RECORDS}")
    assert not shown.cut


def test_skipped_metadata() -> None:
    shown = batches(f"{BATCH_41}\n| key: a payload: 1\n payload: 2\n\n")
    assert len(shown.columns.position) == 1


def test_snapshots_of_all_releases() -> None:
    text = """\
producerId: 7 producerEpoch: 2 coordinatorEpoch: 0 currentTxnFirstOffset: OptionalLong.empty \
lastTimestamp: 1795230355566 firstSequence: 0 lastSequence: 0 lastOffset: 10 offsetDelta: 0 timestamp: 1795230355566
producerId: 13 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong[26] lastTimestamp: 5
producerId: 12 producerEpoch: 3 coordinatorEpoch: 0 currentTxnFirstOffset: OptionalLong.empty lastTimestamp: 7\x20
producerId: 1 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: Some(26) firstSequence: 15 lastSequence: 19
producerId: 2 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: None
"""
    found = parse_dump(text.encode())
    assert found.errors == []
    entries = found.sections[0].snapshot
    assert [entry["producerId"] for entry in entries] == [7, 13, 12, 1, 2]
    assert [entry.get("currentTxnFirstOffset") for entry in entries] == [None, 26, None, 26, None]
    assert entries[0] == {
        "producerId": 7, "producerEpoch": 2, "coordinatorEpoch": 0, "lastTimestamp": 1795230355566, "firstSequence": 0,
        "lastSequence": 0, "lastOffset": 10, "offsetDelta": 0, "timestamp": 1795230355566,
    }  # fmt: skip


def test_indexes() -> None:
    text = (
        "Dumping a-0/00000000000000002500.index\noffset: 2531 position: 16243\n"
        "Dumping a-0/00000000000000002500.timeindex\ntimestamp: 1700000000031 offset: 2531\n"
        "Dumping a-0/00000000000000000000.txnindex\n"
        "version: 0 producerId: 5 firstOffset: 3 lastOffset: 4 lastStableOffset: 5\n"
        "a-0/00000000000000000001.timeindex is empty.\na-0/1.index passed sanity check.\n"
    )
    found = parse_dump(text.encode())
    assert found.errors == []
    index, times, aborted = found.sections
    assert index.offset_entries == [{"offset": 2531, "position": 16243}]
    assert times.time_entries == [{"timestamp": 1700000000031, "offset": 2531}]
    assert aborted.aborted == [
        {"version": 0, "producer_id": 5, "first_offset": 3, "last_offset": 4, "last_stable_offset": 5}
    ]


def test_what_the_tools_say_is_known() -> None:
    noise = """\
Log starting offset: 0
Non-consecutive offsets in /x/a-0/00000000000000000000.log
  6 is followed by 9
Processed a total of 5 messages
[2026-11-21 03:51:49,337] ERROR Error processing message, terminating:  (kafka.tools.ConsoleConsumer$)
org.apache.kafka.common.errors.TimeoutException
Exception in thread "main" java.lang.NullPointerException: Cannot invoke "x" because "y" is null
\tat kafka.tools.DumpLogSegments$.$anonfun$main$1$adapted(DumpLogSegments.scala:51)
\tat scala.collection.mutable.ArrayOps$ofRef.foreach(ArrayOps.scala:198)
"""
    found = parse_dump(f"Dumping a-0/0.log\n{BATCH_41}\n{noise}".encode())
    assert found.errors == []
    assert found.sections[0].crashed


def test_invalid_bytes_at_the_end() -> None:
    text = f"Dumping a-0/0.log\n{BATCH_41}\nFound 200 invalid bytes at the end of 00000000000000000000.log\n"
    assert parse_dump(text.encode()).sections[0].invalid_tail == 200


def test_segments_without_banners_are_distinguished_by_position() -> None:
    second = BATCH_41.replace("baseOffset: 7 lastOffset: 10", "baseOffset: 11 lastOffset: 14")
    moved = BATCH_41.replace("position: 0", "position: 104")
    found = parse_dump(f"{moved}\n{second}\n".encode())
    assert [len(section.batches.columns.position) for section in found.sections] == [1, 1]


def test_garbled_and_cut_lines_are_errors_with_their_place() -> None:
    start = f"Dumping a-0/0.log\n{BATCH_41}\n"
    found = parse_dump(f"{start}garbage\nmore garbage\n{BATCH_41[:60]}".encode(), "d.txt")
    assert [(e.file, e.position, e.length, e.reason) for e in found.errors] == [
        ("d.txt", len(start), 21, "bad_line"),
        ("d.txt", len(start) + 21, 60, "truncated"),
    ]
    assert "garbage" not in repr(found.errors)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("baseOffset: 7", f"baseOffset: {2**63}"),
        ("producerId: 20", f"producerId: {-(2**63) - 1}"),
        ("producerEpoch: 0", f"producerEpoch: {2**15}"),
        ("size: 104", f"size: {2**31}"),
        ("crc: 4048522816", f"crc: {2**32}"),
        ("crc: 4048522816", "crc: -1"),
        ("count: 4", "count: " + "9" * 30),
        ("magic: 2", "magic: 128"),
        ("none", "brotli"),
    ],
)
def test_numbers_that_fit_no_column_make_a_line_bad(before: str, after: str) -> None:
    found = parse_dump(f"{BATCH_41.replace(before, after)}\n".encode())
    assert [error.reason for error in found.errors] == ["bad_line"]
    assert found.sections == []


def test_other_encodings_and_line_ends() -> None:
    text = f"Dumping a-0/0.log\n{BATCH_41}\n{RECORDS_41}"
    expected = parse_dump(text.encode())
    for data in (text.replace("\n", "\r\n").encode("utf-16"), b"\xef\xbb\xbf" + text.encode()):
        assert sniff(data) == "dump"
        assert same(parse_dump(normalise(data)), expected)


PREFIXES = (
    "    ",
    "\t",
    "> ",
    ">> ",
    "kafka-1  | ",
    "broker_2|  ",
    "2026-11-28T10:{n:02d}:00.12{n}Z ",
    "[2026-11-28 10:00:0{n}] ",
)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("around", [("", ""), ("Full dump:\n\n```\n", "```\nThat is all.\n")])
def test_what_stands_before_every_line_is_no_part_of_it(prefix: str, around: tuple[str, str]) -> None:
    text = f"Dumping a-0/0.log\n{BATCH_41}\n{RECORDS_41}"
    pasted = "".join(prefix.format(n=n) + line for n, line in enumerate(text.splitlines(keepends=True)))
    data = (around[0] + pasted + around[1]).encode()
    assert sniff(data) == "dump"
    assert [section.path for section in parse_dump(normalise(data)).sections] == ["a-0/0.log"]
    batches = [repr(section.batches) for section in parse_dump(normalise(data)).sections]
    assert batches == [repr(section.batches) for section in parse_dump(text.encode()).sections]


def same(first: Dump, second: Dump) -> bool:
    return repr(first) == repr(second)


def test_binary_and_prose_are_no_dumps() -> None:
    for data in (b"", b"\0" * 100, b"hello\nworld\n", bytes(range(256)) * 10, b"# offset: of things\n", b"{}"):
        assert sniff(data) is None


def test_no_mutation_raises() -> None:
    """Cut at any byte and changed anywhere, a dump gives values: never an exception."""
    source = corpora.ROOT / "text-dumps" / "texts"
    chosen = ["hanging-36/dump-by-4.1.0.__transaction_state-1.txt", "healthy-28/dump-by-2.8.2.__consumer_offsets-2.txt"]
    rng = random.Random(36)
    for name in chosen:
        text = (source / name).read_bytes()[:4000]
        for cut in range(0, len(text), 7):
            parse_dump(text[:cut])
        for _ in range(400):
            changed = bytearray(text)
            for _ in range(rng.randint(1, 8)):
                at = rng.randrange(len(changed))
                changed[at : at + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 3))
            found = parse_dump(bytes(changed))
            assert all(e.position + e.length <= len(changed) + 1 for e in found.errors)
