"""The text dumps of real brokers (logdir/text_folder.py) against the bytes they were made from and the truth."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from auditor.connectors.codec import batches as col
from auditor.connectors.codec.indexes import ProducerEntries
from auditor.connectors.logdir.inventory import discover
from auditor.connectors.logdir.text_folder import TextFolder, TextReplica, origin, read_texts
from auditor.connectors.schema import DECODED, LOG_KEY
from tests import corpora

SOURCES = ["hanging-36", "healthy-28", "healthy-41"]
TEXTS = corpora.ROOT / "text-dumps" / "texts"


def read(folder: Path) -> TextFolder:
    (log_dir,) = discover([str(folder)]).log_dirs
    return read_texts(log_dir.place, log_dir.texts)


def user_replicas(found: TextFolder) -> list[TextReplica]:
    return [replica for replica in found.replicas if not (replica.topic or "").startswith("__")]


def stored_batches(path: Path) -> list[dict[str, int]]:
    """The headers of a segment, by its bytes alone (reference/formats.md section 2)."""
    data, at, rows = path.read_bytes(), 0, []
    while at < len(data):
        base, size, epoch, magic, crc, attributes, delta, _first, last, producer, producer_epoch, sequence, count = (
            struct.unpack_from(">qiibIhiqqqhii", data, at)
        )
        row = {
            "position": at, "size": size + 12, "magic": magic, "base_offset": base, "last_offset": base + delta,
            "record_count": count, "partition_leader_epoch": epoch, "crc": crc, "max_timestamp": last,
            "producer_id": producer, "producer_epoch": producer_epoch, "base_sequence": sequence,
            "attributes": attributes, "control_type": -1, "coordinator_epoch": -1, "flaws": 0,
        }  # fmt: skip
        if attributes & 0x20:  # one record: varints of one byte each, key of 4 bytes, value of 6
            row["control_type"], row["coordinator_epoch"] = struct.unpack_from(">2xh3xi", data, at + 66)
        rows.append(row)
        at += size + 12
    return rows


@pytest.mark.parametrize("source", SOURCES)
def test_batches_are_those_of_the_segments(source: str) -> None:
    """Field by field, as far as each dump goes; base_timestamp is what text cannot show."""
    compared = 0
    for replica in read(TEXTS / source).replicas:
        assert replica.cannot_show == ["base_timestamp"]
        for segment in replica.segments:
            stored = stored_batches(corpora.unpack(source) / "broker-1" / segment.file)
            shown = segment.batches
            for number, row in enumerate(stored[: len(shown.position)]):
                expected = dict(row)
                if number == len(shown.position) - 1 and segment.cut and row["control_type"] >= 0:
                    continue
                if row["record_count"] < row["last_offset"] - row["base_offset"] + 1:
                    expected["flaws"] |= col.FLAW_COUNT_BELOW_SPAN
                if row["producer_id"] < 0 <= row["base_sequence"]:  # as coordinators write to __consumer_offsets
                    expected["flaws"] |= col.FLAW_NO_PRODUCER_FIELDS
                assert {name: getattr(shown, name)[number].item() for name in row} == expected
                compared += 1
            assert segment.cut == (len(stored) > len(shown.position)) or replica.ends_early
    assert compared > 100


@pytest.mark.parametrize("source", SOURCES)
def test_snapshots_are_those_of_the_files(source: str) -> None:
    compared = 0
    for replica in read(TEXTS / source).replicas:
        for snapshot in replica.snapshots:
            data = (corpora.unpack(source) / "broker-1" / snapshot.file).read_bytes()
            stored = sorted(struct.iter_unpack(">qhiqiqiq", data[10:]))
            shown = sorted(zip(*(column.tolist() for column in snapshot.entries), strict=True))
            assert len(shown) == len(stored)
            for mine, theirs in zip(shown, stored, strict=True):
                # Before 3.1 the time of an entry without data is not printed.
                at = ProducerEntries._fields.index("last_timestamp")
                assert mine[:at] + mine[at + 1 :] == theirs[:at] + theirs[at + 1 :]
                assert mine[at] == theirs[at] or (mine[at] == -1 and theirs[3] == -1)
            compared += len(stored)
    assert compared > 10


def last_states(found: TextFolder) -> dict[str, dict[str, Any]]:
    names = DECODED["transaction_log"].names[len(LOG_KEY) :]
    last: dict[str, dict[str, Any]] = {}
    for replica in found.replicas:
        for values in replica.rows.get("transaction_log", []):
            row = dict(zip(names, values, strict=True))
            last[row["transactional_id"]] = row | {"partition": replica.partition}
    return last


def assert_states(found: TextFolder, source: str, *, console: bool = False) -> None:
    truth = corpora.manifest("text-dumps")["truth"][source]
    last = last_states(found)
    assert (
        sum(len(replica.rows.get("transaction_log", [])) for replica in found.replicas)
        == truth["values_in_transaction_state"]
    )
    assert last.keys() == truth["last_state"].keys()
    for name, expected in truth["last_state"].items():
        row = last[name]
        assert (row["partition"], row["offset"]) == (
            (None, None) if console else (expected["partition"], expected["offset"])
        )
        assert row["producer_id"] == expected["producerId"]
        assert row["producer_epoch"] == expected["producerEpoch"]
        assert row["timeout_ms"] == expected["timeoutMs"]
        assert row["state"] == expected["state"]
        assert row["partitions"] == expected["partitions"]
        assert row["last_update_timestamp"] == expected["lastUpdateMs"]
        assert row["start_timestamp"] == expected["startMs"]
        assert (row["client_transaction_version"] or 0) == expected.get("clientTransactionVersion", 0)


@pytest.mark.parametrize("source", SOURCES)
def test_transactions_are_the_truth_each_record_once(source: str) -> None:
    """Console and two releases' dumps of one log in a folder: one replica, with what each of them shows."""
    assert_states(read(TEXTS / source), source)


@pytest.mark.parametrize("source", SOURCES)
def test_console_text_alone_shows_the_states(source: str, tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_bytes((TEXTS / source / "console-transaction-log.txt").read_bytes())
    assert_states(read(tmp_path), source, console=True)


def test_offset_commits_are_the_console_s_and_the_dump_s() -> None:
    """Of healthy-28: 21 commits by both tools, each once, with the time only the console shows."""
    found = read(TEXTS / "healthy-28")
    names = DECODED["offset_commits"].names[len(LOG_KEY) :]
    rows = [
        dict(zip(names, values, strict=True)) for c in found.replicas for values in c.rows.get("offset_commits", [])
    ]
    console = (TEXTS / "healthy-28" / "console-consumer-offsets.txt").read_text().splitlines()
    assert len(rows) == len(console) == 21
    for row in rows:
        key = f"[{row['group_id']},{row['consumed_topic']},{row['consumed_partition']}]"
        assert any(
            line.startswith(key) and f"offset={row['committed_offset']}," in line
            and f"commitTimestamp={row['commit_timestamp']}," in line for line in console
        )  # fmt: skip
        assert row["offset"] is not None
        assert row["is_transactional"] == (row["group_id"] == "web-group")


@pytest.mark.parametrize("source", SOURCES)
def test_nothing_in_the_dumps_is_unknown(source: str) -> None:
    found = read(TEXTS / source)
    assert found.errors == []
    assert [error for replica in found.replicas for error in replica.unreadable] == []
    assert all(replica.topic is not None and replica.partition is not None for replica in found.replicas)


def test_dumps_that_end_early_are_known() -> None:
    """The dumps were cut at 90 kB; the broker's bytes show which logs go on."""
    for source in SOURCES:
        for replica in user_replicas(read(TEXTS / source)):
            folder = corpora.unpack(source) / "broker-1" / f"{replica.topic}-{replica.partition}"
            size = sum(path.stat().st_size for path in folder.glob("*.log"))
            shown = sum(int(segment.batches.size.sum()) for segment in replica.segments)
            assert replica.ends_early == (shown < size), replica.topic


def test_aborted_transactions_are_those_of_the_index(tmp_path: Path) -> None:
    name = "broker-1.bank.ledger-0.txnindex.txt"
    (tmp_path / name).write_bytes((corpora.oracle("hanging-36") / name).read_bytes())
    (replica,) = read(tmp_path).replicas
    (index,) = replica.indexes
    data = (corpora.unpack("hanging-36") / "broker-1" / index.file).read_bytes()
    stored = [(at * 34, *values) for at, values in enumerate(struct.iter_unpack(">hqqqq", data))]
    assert list(zip(*(column.tolist() for column in index.entries[:-1]), strict=True)) == stored
    assert index.entries.decoded_bytes == len(data)


def test_a_cut_dump_is_filled_from_another(tmp_path: Path) -> None:
    """One dump has all batches without their records (so no marker's type), the other half of the records."""
    source = (TEXTS / "hanging-36" / "dump-by-3.6.2.bank.audit-0.txt").read_text()
    lines = source.splitlines(keepends=True)
    (tmp_path / "shallow.txt").write_text("".join(line for line in lines if not line.startswith("|")))
    (tmp_path / "cut.txt").write_text("".join(lines[:10]))
    (replica,) = read(tmp_path).replicas
    (segment,) = replica.segments
    assert segment.sources == ("cut.txt", "shallow.txt")
    assert segment.batches.control_type.tolist() == [-1, 0, -1, -1]
    assert segment.batches.base_offset.tolist() == [0, 5, 6, 11]
    assert np.all(segment.batches.producer_id == 5)


@pytest.mark.parametrize(
    ("path", "dump", "topic", "partition", "file", "offset"),
    [
        ("/k/a.b-3/00000000000000000042.log", "x.txt", "a.b", 3, "a.b-3/00000000000000000042.log", 42),
        ("C:\\kafka\\a-0\\00000000000000000042.log", "x.txt", "a", 0, "a-0/00000000000000000042.log", 42),
        ("00000000000000000042.log", "t/orders-7.txt", "orders", 7, "t/orders-7.txt", 42),
        (None, "orders-7.snapshots.txt", "orders", 7, "orders-7.snapshots.txt", -1),
        (None, "x.__transaction_state-13.log.txt", "__transaction_state", 13, "x.__transaction_state-13.log.txt", -1),
        (None, "a-1.00000000000000000042.log.txt", "a", 1, "a-1.00000000000000000042.log.txt", 42),
        (None, "dump.txt", None, None, "dump.txt", -1),
    ],
)  # fmt: skip
def test_whence_a_dump(path: str, dump: str, topic: str, partition: int, file: str, offset: int) -> None:
    assert origin(path, dump) == (topic, partition, "live", file, offset)


def test_a_dump_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "d.txt").write_text("Dumping a-0/00000000000000000000.log\n")
    (log_dir,) = discover([str(tmp_path)]).log_dirs
    (tmp_path / "d.txt").unlink()
    found = read_texts(log_dir.place, log_dir.texts)
    assert [(error.file, error.reason) for error in found.errors] == [("d.txt", "vanished")]
    assert (found.replicas, found.bytes_read) == ([], 0)
