"""What is stored in a version that is newer than this reader: named, its bytes unreadable, status 3, in every place.

Each is Kafka's own bytes with the version, or the level, one higher; the twin has the newest that Kafka 4.4.0 knows.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from auditor.base.errors import is_unread
from auditor.cli import main
from auditor.connectors.logdir.inventory import discover
from auditor.connectors.tables.input_splits import plan
from auditor.connectors.tables.rows import How, read_piece
from auditor.outputs import publish
from tests import corpora
from tests.audited import above_info
from tests.controller_records import Controller
from tests.facts import opened

CORPUS = "groups-43"
AS_OF = corpora.manifest(CORPUS)["copied_at"]
METADATA = "__cluster_metadata-0/00000000000000000000.log"
SNAPSHOT = "pier-9.in-0/00000000000000000180.snapshot"
FILES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    SNAPSHOT: (lambda old: b"\0\2" + old[2:], "snapshot version 2, known: 1"),
    "pier-9.in-2/00000000000000000000.txnindex": (
        lambda old: b"\0\1" + old[2:], "1 entries, the first of version 1, known: 0",
    ),
    "pier-9.in-1/leader-epoch-checkpoint": (lambda old: b"1" + old[1:], "version 1, known: 0"),
    "log-start-offset-checkpoint": (lambda old: b"1" + old[1:], "version 1, known: 0"),
    "recovery-point-offset-checkpoint": (lambda old: b"1" + old[1:], "version 1, known: 0"),
    "replication-offset-checkpoint": (lambda old: b"1" + old[1:], "version 1, known: 0"),
    "pier-9.out-0/partition.metadata": (
        lambda old: old.replace(b"version: 0", b"version: 1") + b"\nshape: new\n", "version 1, known: 0",
    ),
    "meta.properties": (lambda old: old.replace(b"version=1", b"version=2"), "version 2, known: 0 or 1"),
    "__cluster_metadata-0/quorum-state": (
        lambda old: old.replace(b'"data_version":0', b'"data_version":2'), "version 2, known: 0 or 1",
    ),
}  # fmt: skip
LEVELS = [("metadata.version", 77, "known: up to 33"), ("transaction.version", 3, "known: up to 2"),
          ("share.version", 3, "known: up to 2")]  # fmt: skip
NEWEST = {"metadata.version": 33, "transaction.version": 2, "share.version": 2, "shiny.version": 0}


def set_levels(broker: Path, levels: dict[str, int], kraft: int) -> int:
    """Feature levels at the end of the metadata log; the offset of the first."""
    controller = Controller(broker, AS_OF)
    first = controller.log.end
    for name, level in levels.items():
        controller.feature(name, level)
    controller.kraft_version(kraft)
    controller.save()
    return first


def errors_of_tables(folder: Path) -> set[tuple[str, str, str]]:
    """File, reason and detail in the table ``decode_errors``."""
    wanted = frozenset({"decode_errors"})
    found = [
        rows.to_pylist() for p in plan(discover([str(folder)]), wanted) for _, rows in read_piece(p, wanted, How())
    ]
    return {(e["file"], e["reason"], e["detail"]) for rows in found for e in rows}


def test_newer_versions_are_said_in_every_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broker = corpora.copy(CORPUS, tmp_path / "copy") / "broker-1"
    size = 0
    for name, (change, _) in FILES.items():
        old = (broker / name).read_bytes()
        (broker / name).write_bytes(change(old))
        assert change(old) != old, name
        size += 34 if name.endswith(".txnindex") else len(change(old))
    first = set_levels(broker, {name: level for name, level, _ in LEVELS}, 2)
    said = {(name, "bad_version", detail) for name, (_, detail) in FILES.items()}
    levels = [f"{name} at level {level}, {known}" for name, level, known in LEVELS]
    levels.append("kraft.version at level 2, known: up to 1")
    said |= {(METADATA, "bad_version", f"record at offset {first + k}: {what}") for k, what in enumerate(levels)}

    audit = opened(tmp_path / "copy", as_of=AS_OF)
    assert [(f.kind, f.file) for f in above_info(audit.findings)] == [("snapshot-unreadable", SNAPSHOT)]
    assert {(e.file, e.reason, e.detail) for _, e in audit.unread()} == said
    assert audit.exit_code() == 3
    metadata = {e.position: e.length for _, e in audit.unread() if e.file == METADATA}
    assert publish._bytes(audit, audit.logs.totals)["unreadable"] == size + sum(metadata.values())
    assert audit.settings[audit.inventory.log_dirs[0].join_key].levels["metadata.version"] == 77
    topic_ids = {c.topic: c.topic_id for c in audit.inventory.log_dirs[0].replicas}
    assert topic_ids["pier-9.out"] is not None  # as Kafka does, whatever the version

    assert {(e["file"], e["reason"], e["detail"]) for e in audit.table("decode_errors").to_pylist()} == said
    for name in {name for name, _, _ in said}:
        assert main(["decode", "--records", str(broker / name)]) == 3, name
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        shown = {(row["reason"], row["detail"]) for row in rows if row.get("table") == "decode_errors"}
        assert shown == {(reason, detail) for file, reason, detail in said if file == name}


def test_the_newest_levels_of_kafka_are_nothing_to_speak_of(tmp_path: Path) -> None:
    broker = corpora.copy(CORPUS, tmp_path) / "broker-1"
    set_levels(broker, NEWEST, 1)
    audit = opened(tmp_path, as_of=AS_OF)
    assert above_info(audit.findings) == []
    assert audit.unread() == []
    assert audit.exit_code() == 0


def test_what_a_vendor_writes_into_the_metadata_is_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broker = corpora.copy(CORPUS, tmp_path / "copy") / "broker-1"
    before = publish.run_report(opened(tmp_path / "copy", as_of=AS_OF)).summary
    controller = Controller(broker, AS_OF)
    known = controller.log.end
    controller.feature("confluent.metadata.version", 120)
    controller.vendors(10_001, b"\x05what\0")
    controller.feature("transaction.version", 2)
    theirs = [b for b in controller.log.all() if b["base_offset"] in (known, known + 1)]
    controller.save()
    audit = opened(tmp_path / "copy", as_of=AS_OF)
    said = publish.run_report(audit).summary
    assert above_info(audit.findings) == []
    assert (audit.unread(), audit.exit_code(), said["complete"], said["unreadable"]) == ([], 0, True, [])
    (note,) = set(said["notes"]) - set(before["notes"])
    assert "confluent.metadata.version at level 120" in note
    assert "api key 10001" in note
    size = sum(len(b.data) for b in theirs)
    (skipped,) = [s for s in said["skipped"] if "vendor" in s["reason"]]
    assert (skipped["files"], skipped["bytes"], skipped["example"].rpartition("/")[2]) == (
        1, size, METADATA.rpartition("/")[2],
    )  # fmt: skip
    assert said["bytes"]["skipped"] == before["bytes"]["skipped"] + size
    assert said["bytes"]["unreadable"] == 0
    levels = audit.settings[audit.inventory.log_dirs[0].join_key].levels
    assert (levels["transaction.version"], levels["confluent.metadata.version"]) == (2, 120)
    rows = [(e["reason"], e["position"], e["bytes"]) for e in audit.table("decode_errors").to_pylist()]
    assert [reason for reason, *_ in rows] == ["vendor", "vendor"]
    assert sum(length for *_, length in rows) == size
    assert main(["decode", "--records", str(broker / METADATA)]) == 0
    assert capsys.readouterr().out.count('"reason":"vendor"') == 2


def test_a_vendor_beside_what_is_newer_hides_none_of_it(tmp_path: Path) -> None:
    broker = corpora.copy(CORPUS, tmp_path) / "broker-1"
    controller = Controller(broker, AS_OF)
    controller.vendors(10_001, b"")
    controller.feature("metadata.version", 77)
    controller.save()
    audit = opened(tmp_path, as_of=AS_OF)
    assert [e.reason for _, e in audit.unread()] == ["bad_version"]
    assert audit.exit_code() == 3


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (SNAPSHOT, lambda old: bytes(2) + old[2:]),
        ("pier-9.in-2/00000000000000000000.txnindex", lambda old: struct.pack(">h", -1) + old[2:]),
        ("pier-9.in-1/leader-epoch-checkpoint", lambda old: b"-1" + old[1:]),
        ("replication-offset-checkpoint", lambda old: b"x" + old),
        ("meta.properties", lambda old: old.replace(b"version=1", b"version=one")),
        ("pier-9.out-0/partition.metadata", lambda old: old.replace(b"version: 0", b"version: -1")),
        ("__cluster_metadata-0/quorum-state", lambda old: old.replace(b'"data_version":0', b'"data_version":-1')),
    ],
)
def test_a_version_that_never_was_is_damage(name: str, change: Callable[[bytes], bytes], tmp_path: Path) -> None:
    file = corpora.copy(CORPUS, tmp_path) / "broker-1" / name
    file.write_bytes(change(file.read_bytes()))
    ((_, error),) = {(found[0], found[1:]) for found in errors_of_tables(tmp_path)}
    assert error[0] == "bad_value"
    assert not is_unread(*error)
