"""Every segment of every corpus against what DumpLogSegments of its release printed, field by field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from auditor.base.errors import DecodeError
from auditor.connectors.codec import batches as col
from auditor.connectors.codec.compression import NAMES
from auditor.connectors.codec.records import Record, records_of
from auditor.connectors.codec.segment import read_segment
from tests import corpora, oracle

LOGS = list(oracle.logs())
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, HORIZON = 0x08, 0x10, 0x20, 0x40
# Alterations that are errors of bytes, by file, from the manifest: position, length, reason.
DAMAGED = {
    "bay.case-7/00000000000000000190.log": [(5183, 320, "truncated")],
    "bay.case-8/00000000000000000190.log": [(5760, 4096, "zero_filled")],
}


def read(path: Path) -> tuple[list[dict[str, int]], list[Any], list[DecodeError]]:
    """Our batches as dicts, our records with their batch's row, and errors."""
    batches: list[dict[str, int]] = []
    records: list[Any] = []
    errors: list[DecodeError] = []
    with path.open("rb", buffering=0) as f:
        for chunk in read_segment(f, path.stat().st_size, file=path.name, raw=True, records=True):
            assert chunk.raw is not None
            assert chunk.summary is not None
            here = records_of(chunk.raw, chunk.batches, file=path.name)
            records += [(len(batches) + row, r) for row, r in here if isinstance(r, Record)]
            names = chunk.batches._fields
            batches += [
                dict(zip(names, row, strict=True)) for row in zip(*(c.tolist() for c in chunk.batches), strict=True)
            ]
            errors += chunk.errors + chunk.body_errors
    return batches, records, errors


def as_printed(batch: dict[str, int]) -> dict[str, str]:
    """A batch of magic 2 as DumpLogSegments words it."""
    attributes = batch["attributes"]
    last = batch["last_offset"] - batch["base_offset"] + batch["base_sequence"] if batch["base_sequence"] >= 0 else -1
    horizon = f"OptionalLong[{batch['base_timestamp']}]" if attributes & HORIZON else "OptionalLong.empty"
    return {
        "baseoffset": str(batch["base_offset"]),
        "lastoffset": str(batch["last_offset"]),
        "count": str(batch["record_count"]),
        "basesequence": str(batch["base_sequence"]),
        "lastsequence": str(last % 2**31 if last >= 0 else -1),
        "producerid": str(batch["producer_id"]),
        "producerepoch": str(batch["producer_epoch"]),
        "partitionleaderepoch": str(batch["partition_leader_epoch"]),
        "istransactional": str(bool(attributes & TRANSACTIONAL)).lower(),
        "iscontrol": str(bool(attributes & CONTROL)).lower(),
        "deletehorizonms": horizon,
        "position": str(batch["position"]),
        "logappendtime" if attributes & LOG_APPEND_TIME else "createtime": str(batch["max_timestamp"]),
        "size": str(batch["size"]),
        "magic": str(batch["magic"]),
        "compresscodec": NAMES[attributes & 7],
        "crc": str(batch["crc"]),
        "isvalid": str(not batch["flaws"] & col.FLAW_CRC).lower(),
    }


def check_batch(line: oracle.Line, batch: dict[str, int]) -> None:
    printed = line.fields | {"compresscodec": line.fields["compresscodec"].lower()}
    ours = as_printed(batch)
    assert set(printed) <= set(ours)
    assert printed == {name: ours[name] for name in printed}


def check_message(line: oracle.Line, batch: dict[str, int], record: Record) -> None:
    """A line of 0.10: one a message, also for those inside a wrapper, whose position they then have."""
    assert line.number("position") == batch["position"]
    assert line.number("magic") == batch["magic"]
    assert line.timestamp == record.timestamp
    assert ("notimestamptype" in line.fields) == (batch["magic"] == 0)
    assert ("logappendtime" in line.fields) == (batch["magic"] == 1 and batch["attributes"] & LOG_APPEND_TIME != 0)
    assert line.number("payloadsize") == (-1 if record.value is None else len(record.value))
    assert line.fields.get("keysize", "-1") == str(-1 if record.key is None else len(record.key))
    assert not batch["flaws"]
    if not batch["attributes"] & 7:
        assert line.number("crc") == batch["crc"]
        assert batch["base_offset"] == batch["last_offset"] == record.offset
        assert batch["max_timestamp"] == record.timestamp


def check_record(line: oracle.Line, batch: dict[str, int], record: Record) -> None:
    sequence = batch["base_sequence"]
    if sequence >= 0:
        sequence = (sequence + record.offset - batch["base_offset"]) % 2**31
    assert line.timestamp == record.timestamp
    assert line.number("keysize") == (-1 if record.key is None else len(record.key))
    assert line.number("valuesize") == (-1 if record.value is None else len(record.value))
    assert line.number("sequence") == sequence
    assert line.fields["headerkeys"] == "[" + ",".join(name.decode() for name, _value in record.headers) + "]"
    if "endtxnmarker" in line.fields:
        assert line.fields["endtxnmarker"] == {0: "ABORT", 1: "COMMIT"}[batch["control_type"]]
        assert line.number("coordinatorepoch") == batch["coordinator_epoch"]
    else:
        assert batch["control_type"] == -1


@pytest.mark.parametrize(("corpus", "dump", "folder"), LOGS, ids=[f"{c}-{d.name}" for c, d, _ in LOGS])
def test_segments_equal_the_dump(corpus: str, dump: Path, folder: Path) -> None:
    files = sorted((corpora.unpack(corpus) / folder).glob("*.log"))
    ours = {path.name: read(path) for path in files}
    for path in files:
        size = sum(b["size"] for b in ours[path.name][0]) + sum(e.length for e in ours[path.name][2])
        assert size == path.stat().st_size
        expected = DAMAGED.get(f"{folder.name}/{path.name}", [])
        assert [(e.position, e.length, e.reason) for e in ours[path.name][2]] == expected
    printed = oracle.read_dump(dump)
    checked: set[tuple[str, int]] = set()
    for line in printed.lines:
        among = [line.file] if line.file else list(ours)
        if "baseoffset" in line.fields and not line.is_record:
            name, row = find_batch(line, ours, among)
            check_batch(line, ours[name][0][row])
        else:
            name, row, record = find_record(line, ours, among)
            check = check_record if line.is_record else check_message
            check(line, ours[name][0][row], record)
        checked.add((name, row))
    if printed.is_whole:
        assert checked == {(name, row) for name, (batches, _r, _e) in ours.items() for row in range(len(batches))}
        messages = [line for line in printed.lines if line.is_record or "baseoffset" not in line.fields]
        assert len(messages) == sum(len(records) for _b, records, _e in ours.values())


def find_batch(line: oracle.Line, ours: dict[str, Any], among: list[str]) -> tuple[str, int]:
    """The one batch of ours at the line's position and offset."""
    offset = line.number("baseoffset")
    found = [
        (name, row)
        for name in among
        for row, batch in enumerate(ours[name][0])
        if batch["position"] == line.number("position") and batch["base_offset"] == offset
    ]
    assert len(found) == 1, line
    return found[0]


def find_record(line: oracle.Line, ours: dict[str, Any], among: list[str]) -> tuple[str, int, Record]:
    """Our record of the line's offset and sequence; several only where a batch was duplicated by hand."""
    offset, sequence = line.number("offset"), int(line.fields.get("sequence", -1))
    found = [(name, row, r) for name in among for row, r in ours[name][1] if r.offset == offset]
    same = [f for f in found if (ours[f[0]][0][f[1]]["base_sequence"] >= 0) == (sequence >= 0)]
    assert same, line
    return same[0]


def test_the_dumps_are_all_there() -> None:
    """One for each kind of release, and none of them empty: else the test above would prove nothing."""
    assert {corpus for corpus, _dump, _folder in LOGS} == set(corpora.names())
    lines = [len(oracle.read_dump(dump).lines) for _corpus, dump, _folder in LOGS]
    assert sum(lines) > 9000
