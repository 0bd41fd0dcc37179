"""Names in log directories, and which files a starting broker keeps. reference/formats.md sections 1.2 and 1.3."""

from __future__ import annotations

import io
import struct

import pytest

from auditor.connectors import kafka_names
from auditor.connectors.codec.segment import end_offset
from auditor.connectors.kafka_names import DataName, PartitionFolder
from auditor.connectors.logdir import files as logdir_files
from auditor.connectors.logdir.files import FoundFile, keep

UID = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("t.dots-and-dash-0-1", PartitionFolder("t.dots-and-dash-0", 1, "live")),
        ("a-0", PartitionFolder("a", 0, "live")),
        ("a-2147483647", PartitionFolder("a", 2147483647, "live")),
        ("a-2147483648", None),
        ("a-01", None),
        ("a-", None),
        ("-1", None),
        ("a b-1", None),
        ("a-١", None),
        ("a" * 249 + "-1", PartitionFolder("a" * 249, 1, "live")),
        ("a" * 250 + "-1", None),
        (f"web.gone-0.{UID}-delete", PartitionFolder("web.gone", 0, "deleted")),
        (f"a.b-12.{UID}-future", PartitionFolder("a.b", 12, "future")),
        (f"a-3.{UID}-stray", PartitionFolder("a", 3, "stray")),
        (f"a-3.{UID[1:]}-stray", None),
        ("remote-log-index-cache", None),
    ],
)
def test_partition_folders(name: str, expected: PartitionFolder | None) -> None:
    assert kafka_names.partition_folder(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000042.log", DataName(42, "log", "")),
        ("00000000000000000042.txnindex.deleted", DataName(42, "txnindex", "deleted")),
        ("00000000000000000042.log.swap", DataName(42, "log", "swap")),
        ("00000000000000000042.timeindex.cleaned", DataName(42, "timeindex", "cleaned")),
        ("09223372036854775807.log", DataName(2**63 - 1, "log", "")),
        ("09223372036854775808.log", None),
        ("42.log", None),
        ("00000000000000000042.log.bak", None),
        ("00000000000000000154-0000000002.checkpoint", DataName(154, "checkpoint", "")),
        ("00000000000000000154-0000000002-77.checkpoint.part", DataName(154, "checkpoint", "part")),
        ("leader-epoch-checkpoint", DataName(-1, "leader-epoch-checkpoint", "")),
    ],
)
def test_data_names(name: str, expected: DataName | None) -> None:
    assert kafka_names.data_name(name) == expected


@pytest.mark.parametrize(("name", "digits"), [("broker-3", 3), ("kafka07", 7), ("disk", None), ("b99999999999", None)])
def test_trailing_digits(name: str, digits: int | None) -> None:
    assert kafka_names.trailing_digits(name) == digits


def file(offset: int, kind: str = "log", state: str = "") -> FoundFile:
    name = f"t-0/{offset:020}.{kind}" + (f".{state}" if state else "")
    return FoundFile(name, 10, DataName(offset, kind, state))


def test_a_sound_folder_keeps_all() -> None:
    files = [file(0), file(0, "index"), file(100), file(100, "snapshot")]
    assert keep(files, lambda _: pytest.fail("nothing was swapped")) == (files, [])


def test_deleted_and_cleaned_are_dropped() -> None:
    files = [file(0, state="deleted"), file(100), file(100, state="cleaned")]
    kept, dropped = keep(files, lambda _: 0)
    assert kept == [files[1]]
    assert dropped == [(files[0], logdir_files.DELETED), (files[2], logdir_files.CLEANED)]


def test_a_swap_replaces_what_it_covers() -> None:
    """Two segments 0 and 100 were compacted into one, which ends before 200: both give way, 200 stays."""
    swap = [file(0, state="swap"), file(0, "index", "swap")]
    old = [file(0), file(0, "txnindex"), file(100), file(100, "timeindex")]
    rest = [file(200), file(100, "snapshot")]
    kept, dropped = keep([*swap, *old, *rest], lambda item: 200 if item is swap[0] else 0)
    assert kept == [*swap, *rest]
    assert dropped == [(item, logdir_files.REPLACED) for item in old]


def test_a_swap_from_an_unfinished_compaction_is_dropped() -> None:
    files = [file(0), file(100), file(100, state="cleaned"), file(100, state="swap"), file(0, state="swap")]
    kept, dropped = keep(files, lambda _: 50)
    assert kept == [files[1], files[4]]
    assert dropped == [
        (files[0], logdir_files.REPLACED),
        (files[2], logdir_files.CLEANED),
        (files[3], logdir_files.SWAP_DROPPED),
    ]


def batch(base: int, delta: int) -> bytes:
    """A record batch without records."""
    return struct.pack(">qiibIhi", base, 49, 0, 2, 0, 0, delta) + bytes(34)


def test_end_offset() -> None:
    legacy = struct.pack(">qiIbb", 7, 14, 0, 0, 0) + bytes(8)
    assert end_offset(io.BytesIO(b"")) == 0
    assert end_offset(io.BytesIO(batch(5, 4))) == 10
    assert end_offset(io.BytesIO(batch(5, 4) + batch(20, 0))) == 21
    assert end_offset(io.BytesIO(legacy + bytes(4))) == 8
    assert end_offset(io.BytesIO(batch(5, 4) + bytes(100))) == 10
