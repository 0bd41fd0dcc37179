"""Records newer than this reader: named, their bytes unreadable, the run incomplete, and nowhere anything else."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from auditor.base.errors import DEFAULT_LIMITS, DecodeError, is_unread
from auditor.cli import main
from auditor.connectors.logdir.inventory import discover
from auditor.connectors.tables.input_splits import plan
from auditor.connectors.tables.rows import How, read_piece
from auditor.outputs import publish
from auditor.pipeline import cluster_settings
from auditor.pipeline.judge import judge_log
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.plan import replica_tasks
from auditor.pipeline.runner import LogTotals
from auditor.replay.reading.replica_reader import read_replica
from auditor.replay.task import ReplicaTask
from auditor.rules.seen.cluster_view import Cluster
from tests import segments
from tests.segments import record

COMMIT = struct.pack(">hh1sh1si", 1, 1, b"g", 1, b"t", 0)
V4 = b"\0\4" + struct.pack(">qi", 7, 0) + b"\1" + struct.pack(">q", 1_700_000_000_000) + b"\0"
V5 = b"\0\5" + V4[2:]
NEW_TYPE = b"\0\x18\0\1g"
TOPIC = b"\1\2\0\2t" + bytes(16) + b"\0"
NEWER_BROKER = b"\1\0\5\0"


def log_dir(tmp_path: Path, topic: str, *batches: bytes) -> Path:
    folder = tmp_path / "broker-1" / f"{topic}-0"
    folder.mkdir(parents=True)
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    return tmp_path


def one(offset: int, key: bytes | None, value: bytes | None) -> bytes:
    return segments.batch(record(0, key, value), 1, base_offset=offset)


def log_rows(folder: Path) -> tuple[list[dict[str, Any]], list[tuple[str, DecodeError]], Any]:
    inventory = discover([str(folder)])
    settings, errors = cluster_settings.read_settings(inventory, DEFAULT_LIMITS)
    options = AuditOptions((str(folder),), folder / "out")
    rows = []
    for task in replica_tasks(inventory, settings, options):
        assert isinstance(task, ReplicaTask)
        found = judge_log([read_replica(task)], Cluster(as_of=0, newest_time=0), ())
        rows += [row for kind, row in found if kind == "log"]
    return rows, errors, inventory


def test_a_newer_commit_is_unreadable_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known, newer, unknown = one(0, COMMIT, V4), one(1, COMMIT, V5), one(2, NEW_TYPE, V4)
    folder = log_dir(tmp_path, "__consumer_offsets", known, newer, unknown)
    ((row,), errors, inventory) = log_rows(folder)
    assert errors == []
    assert row["sums"]["bytes_error"] == len(newer) + len(unknown)
    assert row["sums"]["bytes_decoded"] == len(known)
    said = {(e["reason"], e["position"], e["length"], e["detail"]) for e in row["errors"]}
    assert said == {
        ("bad_version", len(known), len(newer), "record at offset 1: OffsetCommitValue version 5, known: 0 to 4"),
        ("unknown_key_type", len(known) + len(newer), len(unknown),
         "record at offset 2: a record of __consumer_offsets with the unknown key type 24"),
    }  # fmt: skip
    assert all(is_unread(e["reason"], e["detail"]) for e in row["errors"])
    audit = SimpleNamespace(outside=[], inventory=inventory)
    assert publish._bytes(audit, LogTotals.of([row]))["unreadable"] == len(newer) + len(unknown)  # type: ignore[arg-type]

    wanted = frozenset({"decode_errors"})
    tables = [rows.to_pylist() for p in plan(inventory, wanted) for _, rows in read_piece(p, wanted, How())]
    assert {(e["reason"], e["position"], e["bytes"], e["detail"]) for rows in tables for e in rows} == said

    file = folder / "broker-1" / "__consumer_offsets-0" / f"{0:020}.log"
    assert main(["decode", "--records", str(file)]) == 3
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["table"] for line in printed].count("offset_commits") == 1
    assert {line["reason"] for line in printed if line["table"] == "decode_errors"} == {e[0] for e in said}


def test_newer_metadata_is_unreadable_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known, newer = one(0, None, TOPIC), one(1, None, NEWER_BROKER)
    folder = log_dir(tmp_path, "__cluster_metadata", known, newer)
    ((row,), errors, inventory) = log_rows(folder)
    assert [(e.reason, e.position, e.length, e.detail) for _, e in errors] == [
        ("bad_version", len(known), len(newer), "record at offset 1: RegisterBrokerRecord version 5, known: 0 to 4")
    ]
    assert all(is_unread(e.reason, e.detail) for _, e in errors)
    audit = SimpleNamespace(outside=errors, inventory=inventory)
    size = publish._bytes(audit, LogTotals.of([row]))  # type: ignore[arg-type]
    assert (size["decoded"], size["unreadable"]) == (len(known), len(newer))
    assert size["total"] == len(known) + len(newer)
    file = folder / "broker-1" / "__cluster_metadata-0" / f"{0:020}.log"
    assert main(["decode", "--records", str(file)]) == 3
    assert '"reason":"bad_version"' in capsys.readouterr().out


def test_what_is_damaged_is_not_unread() -> None:
    assert not is_unread("bad_value", "snapshot version 0, known: 1")
    assert not is_unread("crc_mismatch", "record at offset 1: x")
    assert is_unread("unreadable", "EIO")
    assert is_unread("bad_version", "snapshot version 2, known: 1")
